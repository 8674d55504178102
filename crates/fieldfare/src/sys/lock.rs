//! One process at a time for one model, wherever the model lies.
//!
//! The lock is an advisory lock of the operating system on a file in the runtime folder, named by the model's
//! identity, so it works for read-only model directories and dies with the process, however that ends. A note beside
//! it says who holds it, and where that process found the model: a copy elsewhere is the same model. The note is a courtesy
//! for the error message and never decides anything. Lock files are left in place: removing one while another process opens
//! it would give two owners.

use crate::sys::paths;
use crate::{Error, Result};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

/// Longest note that is read back.
const NOTE_CAP: usize = 8192;
/// The owner writes its note just after it got the lock: wait this often for it, 5 ms each.
const NOTE_TRIES: usize = 10;

/// Exclusive use of one model by this process, until dropped.
#[derive(Debug)]
pub struct ModelLock {
    /// Held for its lock alone.
    _file: File,
    note: PathBuf,
}

impl ModelLock {
    /// Takes the lock of the model with this `identity` (the manifest's SHA-256 in hex), which is at `place`.
    ///
    /// # Errors
    /// [`Error::Locked`] with the owner's process id and command when another process (or another engine of this one)
    /// has it; I/O errors of the runtime folder.
    pub fn acquire(identity: &str, place: &Path) -> Result<Self> {
        Self::acquire_in(&paths::runtime_dir()?, identity, place)
    }

    /// As [`ModelLock::acquire`], in a folder of the caller's choice.
    ///
    /// # Errors
    /// As [`ModelLock::acquire`]; [`Error::BadRequest`] when the identity cannot be a file name.
    pub fn acquire_in(dir: &Path, identity: &str, place: &Path) -> Result<Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if identity.is_empty() || identity.len() > 128 || !identity.bytes().all(allowed) {
            return Err(Error::bad("model identity", "not a plain name"));
        }
        let path = dir.join(format!("{identity}.lock"));
        let note = dir.join(format!("{identity}.owner"));
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(Error::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let what = format!("the model {}", place.display());
                return Err(Error::Locked { what, owner: owner(&note, place) });
            }
            Err(TryLockError::Error(error)) => return Err(Error::io("lock", &path)(error)),
        }
        // Without its note the lock still holds; only the message of a second process is poorer.
        let _ = std::fs::write(&note, own_note(place));
        Ok(Self { _file: file, note })
    }
}

impl Drop for ModelLock {
    fn drop(&mut self) {
        // Before the lock goes (with the file, after this), so that the note of the next owner is never removed.
        let _ = std::fs::remove_file(&self.note);
    }
}

/// `process 4711 (fieldfare chat)`: the program's name and its subcommand, never more of the arguments, which may hold
/// a person's prompt. On the next line where the model is.
fn own_note(place: &Path) -> String {
    let mut args = std::env::args_os();
    let program = args.next().unwrap_or_default();
    let program = Path::new(&program).file_name().map(|name| name.to_string_lossy().into_owned());
    let mut command = program.unwrap_or_else(|| "unknown program".to_owned());
    let word = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
    if let Some(first) = args.next().and_then(|arg| arg.into_string().ok())
        && !first.starts_with('-')
        && first.len() <= 16
        && word(&first)
    {
        command.push(' ');
        command.push_str(&first);
    }
    let place = whole(place).display().to_string();
    format!("process {} ({command})\n{}\n", std::process::id(), plain(&place))
}

/// The place as it is told apart from others.
fn whole(place: &Path) -> PathBuf {
    place.canonicalize().or_else(|_| std::path::absolute(place)).unwrap_or_else(|_| place.to_path_buf())
}

/// Text for one line.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// Who has the model, and where it is for that process if not at `place`.
fn owner(note: &Path, place: &Path) -> String {
    let (owner, theirs) = read_note(note);
    if theirs.is_empty() || theirs == plain(&whole(place).display().to_string()) {
        owner
    } else {
        format!("{owner}, which has the same model at {theirs}")
    }
}

/// Its two lines.
fn read_note(path: &Path) -> (String, String) {
    for attempt in 0..NOTE_TRIES {
        if attempt > 0 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let Ok(bytes) = std::fs::read(path) else { continue };
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(NOTE_CAP)]);
        let mut lines = text.lines().map(plain);
        if let Some(line) = lines.next().filter(|line| !line.is_empty()) {
            return (line, lines.next().unwrap_or_default());
        }
    }
    ("another process".to_owned(), String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_owner_is_told_who_the_first_is() {
        let dir = tempfile::tempdir().unwrap();
        let (model, copy) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::create_dir(&model).unwrap();
        std::fs::create_dir(&copy).unwrap();
        let first = ModelLock::acquire_in(dir.path(), "abc123", &model).unwrap();
        let refused =
            |place: &Path| ModelLock::acquire_in(dir.path(), "abc123", place).unwrap_err().to_string();
        let text = refused(&model.join("../a"));
        assert!(text.contains("../a is in use by process"), "{text}");
        assert!(text.contains(&format!("process {} (", std::process::id())), "{text}");
        assert!(!text.contains("the same model at"), "{text}");
        // A copy of it elsewhere is not what that process uses.
        let text = refused(&copy);
        let theirs = model.canonicalize().unwrap();
        assert!(text.starts_with(&format!("the model {} is in use by process", copy.display())), "{text}");
        assert!(text.ends_with(&format!("which has the same model at {}", theirs.display())), "{text}");
        ModelLock::acquire_in(dir.path(), "other", &copy).unwrap();
        drop(first);
        ModelLock::acquire_in(dir.path(), "abc123", &copy).unwrap();
    }

    #[test]
    fn a_stale_note_owns_nothing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("abc.owner"), "process 1 (somebody dead)").unwrap();
        std::fs::write(dir.path().join("abc.lock"), "").unwrap();
        ModelLock::acquire_in(dir.path(), "abc", dir.path()).unwrap();
    }

    #[test]
    fn identities_that_are_paths_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for identity in ["", "../x", "a/b", "a.b", "a b"] {
            assert!(matches!(
                ModelLock::acquire_in(dir.path(), identity, dir.path()),
                Err(Error::BadRequest { .. })
            ));
        }
    }
}
