//! Where things of one person belong on this platform: installed models, caches, locks.
//!
//! Linux follows the XDG base directories, macOS its Library folders, Windows its AppData folders (all through
//! `etcetera`). Each folder is our own subfolder, `fieldfare`. Services and containers often run without `HOME` or
//! `XDG_RUNTIME_DIR`: the first two functions then answer `None`, the third falls back to a private folder under the
//! temporary one, after checking that nobody else owns it.

use crate::{Error, Result};
use etcetera::base_strategy::{BaseStrategy, choose_native_strategy};
use std::path::{Path, PathBuf};

const APP: &str = "fieldfare";

/// An absolute path from the environment. Relative values are ignored, as the XDG specification asks.
fn absolute_var(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// The variable counts on its own where XDG rules, even when there is no home folder to fall back to.
fn xdg_var(name: &str) -> Option<PathBuf> {
    if cfg!(any(windows, target_vendor = "apple")) { None } else { absolute_var(name) }
}

fn under_app(base: PathBuf) -> Option<PathBuf> {
    base.is_absolute().then(|| base.join(APP))
}

/// The folder for installed models and the chat history: `$XDG_DATA_HOME/fieldfare` or
/// `~/.local/share/fieldfare` on Linux. `None` when the person has no home folder. Not created.
pub fn data_dir() -> Option<PathBuf> {
    xdg_var("XDG_DATA_HOME")
        .or_else(|| choose_native_strategy().ok().map(|dirs| dirs.data_dir()))
        .and_then(under_app)
}

/// The folder for what can be made again (compiled tokenizers): `$XDG_CACHE_HOME/fieldfare` or `~/.cache/fieldfare`
/// on Linux. `None` when the person has no home folder. Not created.
pub fn cache_dir() -> Option<PathBuf> {
    xdg_var("XDG_CACHE_HOME")
        .or_else(|| choose_native_strategy().ok().map(|dirs| dirs.cache_dir()))
        .and_then(under_app)
}

/// The folder for locks, created private to the person (mode 0700) if it is missing.
///
/// The first of these that works: `$XDG_RUNTIME_DIR/fieldfare`, `/run/user/UID/fieldfare` (so that a cron job and a
/// login session of one person meet in the same place), and `fieldfare-UID` in the temporary folder. On Windows:
/// `run` in the local application data.
///
/// # Errors
/// Names the last candidate and why it cannot be used.
pub fn runtime_dir() -> Result<PathBuf> {
    let mut last = None;
    for candidate in runtime_candidates() {
        match private_dir(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| Error::bad("runtime folder", "this platform names none")))
}

fn runtime_candidates() -> Vec<PathBuf> {
    let mut candidates = Vec::new();
    if cfg!(windows) {
        candidates.extend(cache_dir().map(|dir| dir.join("run")));
    } else {
        // A runtime folder that the system has not made is not ours to make: it would have the wrong life time.
        let system = [xdg_var("XDG_RUNTIME_DIR"), system_runtime_dir()];
        candidates
            .extend(system.into_iter().flatten().filter(|base| base.is_dir()).map(|base| base.join(APP)));
    }
    candidates.push(std::env::temp_dir().join(format!("{APP}-{}", person())));
    candidates
}

#[cfg(all(unix, not(target_vendor = "apple")))]
fn system_runtime_dir() -> Option<PathBuf> {
    Some(PathBuf::from(format!("/run/user/{}", rustix::process::getuid().as_raw())))
}

#[cfg(not(all(unix, not(target_vendor = "apple"))))]
fn system_runtime_dir() -> Option<PathBuf> {
    None
}

/// What tells people on one machine apart in the shared temporary folder.
#[cfg(unix)]
fn person() -> String {
    rustix::process::getuid().as_raw().to_string()
}

#[cfg(not(unix))]
fn person() -> String {
    // The temporary folder of Windows is the person's own already.
    "run".to_owned()
}

/// Makes `dir` with access for the owner only, or checks that an existing one is a real folder of ours: in a shared
/// temporary folder anybody could have put a link or a folder of their own there first.
///
/// # Errors
/// It cannot be made, or is no folder of this person that others cannot write to.
pub fn private_dir(dir: &Path) -> Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(false);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    if let Some(parent) = dir.parent()
        && cfg!(windows)
    {
        std::fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
    }
    match builder.create(dir) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(Error::io("create", dir)(error)),
    }
    let meta = std::fs::symlink_metadata(dir).map_err(Error::io("inspect", dir))?;
    let refuse = |reason: &str| Err(Error::Refused { path: dir.to_path_buf(), reason: reason.to_owned() });
    if !meta.is_dir() {
        return refuse("is not a folder");
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        if meta.uid() != rustix::process::geteuid().as_raw() {
            return refuse("belongs to somebody else; name a folder of your own with XDG_RUNTIME_DIR");
        }
        if meta.permissions().mode() & 0o022 != 0 {
            return refuse("can be written by others");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_folder_is_made_once_and_accepted_again() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("locks");
        private_dir(&dir).unwrap();
        private_dir(&dir).unwrap();
        assert!(dir.is_dir());
    }

    #[cfg(unix)]
    #[test]
    fn links_files_and_open_folders_are_refused() {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().unwrap();
        let target = temp.path().join("target");
        std::fs::create_dir(&target).unwrap();
        let link = temp.path().join("link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(matches!(private_dir(&link), Err(Error::Refused { .. })));
        let file = temp.path().join("file");
        std::fs::write(&file, b"").unwrap();
        assert!(matches!(private_dir(&file), Err(Error::Refused { .. })));
        std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(private_dir(&target), Err(Error::Refused { .. })));
    }

    #[test]
    fn folders_end_in_our_name() {
        for dir in [data_dir(), cache_dir()].into_iter().flatten() {
            assert!(dir.is_absolute());
            assert_eq!(dir.file_name().unwrap(), APP);
        }
    }
}
