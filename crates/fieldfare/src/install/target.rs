//! Where a model goes: the lock beside it, the unfinished directory `NAME.partial`, and the step that puts the finished
//! one in its place.
//!
//! Nothing that is not ours is ever deleted. A leftover `NAME.partial` counts as ours if it holds [`MARKER`], is empty, or
//! if the lock file says that a run was killed while promoting it. An existing target is replaced on request only, and only
//! if it is a model directory without foreign files in it; it stays until the new one has its name.
//!
//! `NAME.install.lock` is never deleted: whoever deletes a lock file takes the lock from under others.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Component, Path, PathBuf};

use super::remove;
use crate::sys::disk;
use crate::sys::file::{self, Dir};
use crate::sys::volume;
use crate::{Error, Result};

/// Marks an unfinished directory as ours.
pub(crate) const MARKER: &str = ".fieldfare-partial";
/// What is added to a model's name for the record of an install over a network.
pub(crate) const JOURNAL: &str = ".install.journal";
/// What the lock file says while the marker is off and the names are being exchanged.
const PROMOTING: &str = "promoting";
/// What it says before.
const WORKING: &str = "working";

/// What a former run left at `NAME.partial`.
enum Leftover {
    /// Nothing.
    None,
    /// An unfinished directory of ours.
    Marked,
    /// A run was killed between the exchange of names and the deletion of the old model, or just before.
    Replaced,
}

/// A locked place for a model.
pub(crate) struct Target {
    /// The final path as the caller named it: absolute, `.` and `..` resolved by text.
    pub(crate) named: PathBuf,
    parent: PathBuf,
    path: PathBuf,
    partial: PathBuf,
    lock_path: PathBuf,
    /// Record of an install over a network.
    journal: PathBuf,
    lock: File,
    overwrite: bool,
    begun: bool,
}

impl Target {
    /// Checks that `output` may be written and takes its lock. The parent folder is created if needed.
    ///
    /// # Errors
    /// [`Error::Refused`] if something is there that may not be replaced, [`Error::Locked`] if another installer is at
    /// work on it, [`Error::Io`] for a place that cannot be written.
    pub(crate) fn acquire(output: &Path, overwrite: bool) -> Result<Self> {
        Self::acquire_if(output, overwrite, true)
    }

    /// Takes the lock of a place whatever is there, to clean up beside it.
    #[cfg(feature = "install")]
    pub(crate) fn acquire_beside(output: &Path) -> Result<Self> {
        Self::acquire_if(output, false, false)
    }

    fn acquire_if(output: &Path, overwrite: bool, ask: bool) -> Result<Self> {
        if output.as_os_str().is_empty() {
            return Err(Error::bad("--output", "is empty"));
        }
        let named = file::lexical_absolute(output).map_err(Error::io("find", output))?;
        let name = match (output.components().next_back(), named.file_name()) {
            (Some(Component::Normal(_)), Some(name)) => name.to_os_string(),
            _ => {
                return Err(Error::bad(
                    "--output",
                    format!("{} does not name a directory", output.display()),
                ));
            }
        };
        // Asked before anything is created; asked again under the lock and before promotion.
        if ask {
            remove::replaceable(&named, overwrite)?;
        }
        let parent = named.parent().unwrap_or(&named);
        fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
        // Two aliases of one folder must contend for one lock.
        let parent = fs::canonicalize(parent).map_err(Error::io("open", parent))?;
        let with = |suffix: &str| {
            let mut full: OsString = name.clone();
            full.push(suffix);
            parent.join(full)
        };
        let (path, partial, lock_path) = (with(""), with(".partial"), with(".install.lock"));
        let journal = with(JOURNAL);
        let lock = lock(&lock_path)?;
        let target = Self { named, parent, path, partial, lock_path, journal, lock, overwrite, begun: false };
        if ask {
            remove::replaceable(&target.path, overwrite)?;
        }
        target.check_partial()?;
        // Names this process to others; a note about an interrupted exchange stays until it is dealt with.
        target.note(if target.was_promoting() { PROMOTING } else { WORKING })?;
        Ok(target)
    }

    /// The unfinished directory.
    pub(crate) fn partial(&self) -> &Path {
        &self.partial
    }

    /// Refuses, before the first byte, when fewer than `need` bytes are free. What a leftover of ours holds counts as
    /// free; the model that is about to be replaced does not, since it stays until the end.
    pub(crate) fn check_space(&self, need: u64) -> Result<()> {
        match disk::free(&self.parent) {
            Ok(have) if have < need => Err(Error::OutOfSpace { path: self.parent.clone(), need, have }),
            // Where nobody can tell, reserving the files will.
            Err(e) if e.kind() != ErrorKind::Unsupported => {
                Err(Error::io("ask for free space on", &self.parent)(e))
            }
            _ => Ok(()),
        }
    }

    /// Deletes a leftover of a former run, if there is one.
    pub(crate) fn clear_leftover(&self) -> Result<()> {
        // Bytes that took somebody hours to fetch are not thrown away in passing.
        if fs::symlink_metadata(&self.journal).is_ok()
            && fs::symlink_metadata(self.partial.join(MARKER)).is_ok()
        {
            let reason =
                "has an unfinished download beside it; continue that, or `fieldfare install --discard`";
            return Err(Error::Refused { path: self.named.clone(), reason: reason.into() });
        }
        self.clear()
    }

    fn clear(&self) -> Result<()> {
        match self.check_partial()? {
            Leftover::None => Ok(()),
            Leftover::Marked => fs::remove_dir_all(&self.partial).map_err(Error::io("delete", &self.partial)),
            Leftover::Replaced => remove::model(&self.partial),
        }
    }

    /// Creates the unfinished directory with its marker.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.begin_as("")
    }

    /// The same with a word in the marker that tells this directory from others.
    pub(crate) fn begin_as(&mut self, nonce: &str) -> Result<()> {
        fs::create_dir(&self.partial).map_err(Error::io("create", &self.partial))?;
        self.begun = true;
        let marker = self.partial.join(MARKER);
        let text = format!("An unfinished install by fieldfare, process {}.\n{nonce}\n", std::process::id());
        // Flushed: without its word the journal would speak of another directory, and everything be fetched again.
        let file = File::create_new(&marker).map_err(Error::io("create", &marker))?;
        disk::write(&file, &marker, text.as_bytes(), 0)
            .and_then(|()| disk::flush(&file, &marker))
            .map_err(Error::io("write", &marker))?;
        sync_dir(&self.partial)?;
        sync_dir(&self.parent)?;
        self.note(WORKING)
    }

    /// Place of the record of an install over a network.
    #[cfg(feature = "install")]
    pub(crate) fn journal(&self) -> &Path {
        &self.journal
    }

    /// True if there is an unfinished directory with this word in its marker.
    #[cfg(feature = "install")]
    pub(crate) fn is_begun_as(&self, nonce: &str) -> bool {
        let text = fs::read_to_string(self.partial.join(MARKER)).unwrap_or_default();
        !nonce.is_empty() && text.lines().nth(1) == Some(nonce)
    }

    /// From here on a run that ends early leaves the unfinished directory for the next one.
    #[cfg(feature = "install")]
    pub(crate) fn keep(&mut self) {
        self.begun = false;
    }

    /// Deletes journal and unfinished directory, whatever state they are in. True if there was something.
    #[cfg(feature = "install")]
    pub(crate) fn discard(&self) -> Result<bool> {
        let partial = fs::symlink_metadata(&self.partial).is_ok();
        self.clear()?;
        let journal = super::journal::Journal::delete(&self.journal)?;
        sync_dir(&self.parent)?;
        Ok(partial || journal)
    }

    /// Bytes of the unfinished directory that are on the disk already.
    #[cfg(feature = "install")]
    pub(crate) fn allocated(&self, paths: &mut dyn Iterator<Item = &str>) -> u64 {
        paths
            .filter_map(|path| fs::symlink_metadata(self.partial.join(path)).ok())
            .map(|meta| volume::allocated(&meta))
            .sum()
    }

    /// Flushes the folder that target and journal are in.
    #[cfg(feature = "install")]
    pub(crate) fn sync_parent(&self) -> Result<()> {
        sync_dir(&self.parent)
    }

    /// Bytes free where the model goes.
    #[cfg(feature = "install")]
    pub(crate) fn free(&self) -> Option<u64> {
        disk::free(&self.parent).ok()
    }

    /// Says what is at `NAME.partial`; an error if it is not ours.
    fn check_partial(&self) -> Result<Leftover> {
        let meta = match fs::symlink_metadata(&self.partial) {
            Ok(meta) => meta,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Leftover::None),
            Err(e) => return Err(Error::io("open", &self.partial)(e)),
        };
        let foreign =
            |reason: &str| Err(Error::Refused { path: self.partial.clone(), reason: reason.into() });
        if !meta.is_dir() {
            return foreign("is in the way and is not a directory; move it away");
        }
        let mut entries = fs::read_dir(&self.partial).map_err(Error::io("read", &self.partial))?;
        let marked = fs::symlink_metadata(self.partial.join(MARKER)).is_ok_and(|m| m.is_file());
        if entries.next().is_none() || marked {
            return Ok(Leftover::Marked);
        }
        if self.was_promoting() && remove::magic(&self.partial)?.is_some() {
            return Ok(Leftover::Replaced);
        }
        foreign(
            "is in the way and was not left by this program; move it away or discard it with the tool that made it",
        )
    }

    fn was_promoting(&self) -> bool {
        let mut text = String::new();
        let mut lock = &self.lock;
        let read = lock.seek(SeekFrom::Start(0)).and_then(|_| lock.take(4096).read_to_string(&mut text));
        read.is_ok() && text.lines().any(|line| line == PROMOTING)
    }

    /// Writes process and state into the lock file, durably.
    fn note(&self, state: &str) -> Result<()> {
        let mut lock = &self.lock;
        lock.set_len(0)
            .and_then(|()| lock.seek(SeekFrom::Start(0)))
            .and_then(|_| lock.write_all(format!("{}\n{state}\n", std::process::id()).as_bytes()))
            .and_then(|()| disk::flush(&self.lock, &self.lock_path))
            .map_err(Error::io("write", &self.lock_path))
    }

    /// Gives the finished directory its name. Returns whether a model was replaced, and a remark if the old one could
    /// not be deleted.
    pub(crate) fn promote(mut self) -> Result<(bool, Option<String>)> {
        let exists = remove::replaceable(&self.path, self.overwrite)?;
        self.note(PROMOTING)?;
        let marker = self.partial.join(MARKER);
        fs::remove_file(&marker).map_err(Error::io("delete", &marker))?;
        sync_dir(&self.partial)?;
        let remark = if exists {
            self.replace()?
        } else {
            file::rename_new(&self.partial, &self.path).map_err(Error::io("rename", &self.partial))?;
            self.begun = false;
            None
        };
        sync_dir(&self.parent)?;
        self.note("done")?;
        Ok((exists, remark))
    }

    /// Swaps the names, then deletes what was the old model.
    fn replace(&mut self) -> Result<Option<String>> {
        let old = match file::exchange(&self.partial, &self.path) {
            Ok(()) => self.partial.clone(),
            Err(e) if e.kind() == ErrorKind::Unsupported => self.replace_in_two_steps()?,
            Err(e) => return Err(Error::io("exchange", &self.path)(e)),
        };
        self.begun = false;
        sync_dir(&self.parent)?;
        match remove::model(&old) {
            Ok(()) => Ok(None),
            Err(e) => {
                Ok(Some(format!("the old model could not be deleted and is at {}: {e}", old.display())))
            }
        }
    }
}

impl Target {
    /// Where names cannot be exchanged: two renames, undone if the second fails. Returns the place of the old model.
    fn replace_in_two_steps(&self) -> Result<PathBuf> {
        let mut aside = self.partial.clone().into_os_string();
        aside.push(".old");
        let aside = PathBuf::from(aside);
        file::rename_new(&self.path, &aside).map_err(Error::io("rename", &self.path))?;
        if let Err(e) = file::rename_new(&self.partial, &self.path) {
            let back = file::rename_new(&aside, &self.path);
            let place = if back.is_ok() { &self.path } else { &aside };
            return Err(Error::io("rename the new model; the old one is at", place)(e));
        }
        Ok(aside)
    }
}

impl Drop for Target {
    /// An unfinished directory of a run that failed or was stopped goes away. It was made by this run, under the lock.
    fn drop(&mut self) {
        if self.begun {
            // Best effort: a leftover is marked and the next run replaces it.
            let _ = fs::remove_dir_all(&self.partial);
        }
    }
}

fn sync_dir(path: &Path) -> Result<()> {
    Dir::open(path).and_then(|dir| disk::flush_names(&dir, path)).map_err(Error::io("sync", path))
}

/// Opens and locks the lock file.
fn lock(path: &Path) -> Result<File> {
    let lock = volume::open_lock(path).map_err(Error::io("create", path))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let mut text = String::new();
            let pid = match (&lock).take(64).read_to_string(&mut text) {
                Ok(_) => text.lines().next().and_then(|line| line.parse::<u32>().ok()),
                // Some systems do not let others read a locked file.
                Err(_) => None,
            };
            let owner = pid.map_or_else(
                || "another installer".into(),
                |pid| format!("another installer, process {pid}"),
            );
            return Err(Error::Locked {
                what: path.with_extension("").with_extension("").display().to_string(),
                owner,
            });
        }
        Err(fs::TryLockError::Error(e)) => return Err(Error::io("lock", path)(e)),
    }
    if !volume::is_at(&lock, path).map_err(Error::io("open", path))? {
        let reason = "was replaced while it was being locked; try again".into();
        return Err(Error::Refused { path: path.to_path_buf(), reason });
    }
    Ok(lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_space_is_told_with_both_numbers() {
        let root = tempfile::tempdir().expect("temporary directory");
        let target = Target::acquire(&root.path().join("new folder/out"), false).expect("free");
        target.check_space(1).expect("a byte is free");
        match target.check_space(u64::MAX) {
            Err(Error::OutOfSpace { path, need: u64::MAX, have }) => {
                assert!(have > 0 && path.ends_with("new folder"), "{have} at {}", path.display());
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_exchange_two_renames_do_it_or_undo_it() {
        let root = tempfile::tempdir().expect("temporary directory");
        let path = |name: &str| root.path().join(name);
        fs::create_dir(path("out")).expect("create");
        fs::write(path("out").join(crate::format::MANIFEST), r#"{"magic":"GTURBO"}"#).expect("write");
        let mut target = Target::acquire(&path("out"), true).expect("replaceable");
        // Nothing to rename yet: the old model must be back in its place.
        assert!(target.replace_in_two_steps().is_err());
        assert!(path("out").join(crate::format::MANIFEST).is_file());
        target.begin().expect("begin");
        let old = target.replace_in_two_steps().expect("renamed");
        assert!(old.ends_with("out.partial.old") && old.join(crate::format::MANIFEST).is_file());
        assert!(path("out").join(MARKER).is_file());
        remove::model(&old).expect("deleted");
        assert!(!old.exists());
    }
}
