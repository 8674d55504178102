//! Where a model goes: the lock beside it, the unfinished directory `NAME.partial`, and the step that puts the finished
//! one in its place.
//!
//! Nothing that is not ours is ever deleted. A leftover `NAME.partial` counts as ours if it holds [`MARKER`], is empty, or
//! if the lock file says that a run was killed while it exchanged names, so that it is the old model. An existing target is
//! replaced on request only, and only if it is a model directory without foreign files in it; it stays until the new one has its
//! name.
//!
//! The mark goes last, when the directory has its name already: wherever a run is stopped, what has the mark is the new one. If
//! it is at `NAME.partial`, the next run goes on and promotes it; if it has its name, the next run takes off the mark.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use super::hold::Hold;
use super::remove;
use crate::sys::disk;
use crate::sys::file::{self, Dir};
use crate::sys::volume;
use crate::{Error, Result};

/// Marks an unfinished directory as ours.
pub(crate) const MARKER: &str = ".fieldfare-partial";
/// What is added to a model's name for the record of an install over a network.
pub(crate) const JOURNAL: &str = ".install.journal";

/// What a former run left at `NAME.partial`.
enum Leftover {
    /// Nothing.
    None,
    /// An unfinished directory of ours.
    Marked,
    /// A run was killed between the exchange of names and the deletion of the old model.
    Replaced,
}

/// Where the directory is that a journal speaks of.
#[cfg(feature = "install")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfinished {
    /// Nowhere.
    Gone,
    /// At `NAME.partial`.
    Here,
    /// What is at `NAME.partial` is another one.
    Other,
}

/// A locked place for a model.
pub(crate) struct Target {
    /// The final path as the caller named it: absolute, `.` and `..` resolved by text.
    pub(crate) named: PathBuf,
    parent: PathBuf,
    path: PathBuf,
    partial: PathBuf,
    /// Record of an install over a network.
    journal: PathBuf,
    overwrite: bool,
    begun: bool,
    /// Last, so that it goes last.
    hold: Hold,
}

impl Target {
    /// Checks that `output` may be written and takes its lock. The parent folder is created if needed.
    ///
    /// # Errors
    /// [`Error::Refused`] if something is there that may not be replaced, [`Error::Locked`] if another installer is at
    /// work on it, [`Error::Io`] for a place that cannot be written.
    pub(crate) fn acquire(output: &Path, overwrite: bool) -> Result<Self> {
        let (named, name) = place(output)?;
        // Asked before anything is created; asked again under the lock and before promotion.
        if !is_marked(&named) {
            remove::replaceable(&named, overwrite)?;
        }
        let parent = named.parent().unwrap_or(&named);
        make_folders(parent)?;
        let target = Self::lock(named, &name, overwrite)?;
        if !is_marked(&target.path) {
            remove::replaceable(&target.path, overwrite)?;
        }
        target.check_partial()?;
        Ok(target)
    }

    /// Takes the lock of a place to clean up beside it, if there is anything of an installer's.
    #[cfg(feature = "install")]
    pub(crate) fn acquire_beside(output: &Path) -> Result<Option<Self>> {
        let (named, name) = place(output)?;
        let beside = [".partial", JOURNAL, ".install.lock"].map(|end| beside(&named, &name, end));
        if !is_marked(&named) && beside.iter().all(|path| fs::symlink_metadata(path).is_err()) {
            return Ok(None);
        }
        let target = Self::lock(named, &name, false)?;
        target.check_partial()?;
        Ok(Some(target))
    }

    fn lock(named: PathBuf, name: &OsString, overwrite: bool) -> Result<Self> {
        // Two aliases of one folder must contend for one lock.
        let parent = named.parent().unwrap_or(&named);
        let parent = fs::canonicalize(parent).map_err(Error::io("open", parent))?;
        let path = parent.join(name);
        let with = |end| beside(&path, name, end);
        let (partial, journal) = (with(".partial"), with(JOURNAL));
        let hold = Hold::acquire(&with(".install.lock"), &path)?;
        Ok(Self { named, parent, path, partial, journal, overwrite, begun: false, hold })
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
    pub(crate) fn clear_leftover(&mut self) -> Result<()> {
        self.settle()?;
        // Bytes that took somebody hours to fetch are not thrown away in passing.
        if fs::symlink_metadata(&self.journal).is_ok() && is_marked(&self.partial) {
            let reason =
                "has an unfinished download beside it; continue that, or `fieldfare install --discard`";
            return Err(Error::Refused { path: self.named.clone(), reason: reason.into() });
        }
        self.clear()?;
        // Without its directory a journal speaks of nothing.
        delete(&self.journal).map(|_| ())
    }

    fn clear(&mut self) -> Result<()> {
        match self.check_partial()? {
            Leftover::None => {}
            Leftover::Marked => {
                fs::remove_dir_all(&self.partial).map_err(Error::io("delete", &self.partial))?;
            }
            Leftover::Replaced => remove::model(&self.partial)?,
        }
        if self.hold.was_promoting() { self.hold.working() } else { Ok(()) }
    }

    /// If a run was stopped when the directory had its name and not all was done, does the rest. The place is then as it is after
    /// an install: it may be replaced on request.
    pub(crate) fn settle(&mut self) -> Result<()> {
        if is_marked(&self.path) {
            self.finish()?;
            remove::replaceable(&self.path, self.overwrite)?;
        }
        Ok(())
    }

    /// The rest: the old model goes, then the journal, then the mark. True if there was an old model.
    pub(crate) fn finish(&mut self) -> Result<bool> {
        let old = match self.check_partial()? {
            Leftover::Replaced => Some(self.partial.clone()),
            _ if self.hold.was_promoting() => self.put_aside(),
            _ => None,
        };
        old.as_deref().map_or(Ok(()), remove::model)?;
        self.seal()?;
        self.hold.working()?;
        Ok(old.is_some())
    }

    /// Journal and mark of a directory that has its name.
    fn seal(&self) -> Result<()> {
        delete(&self.journal)?;
        let marker = self.path.join(MARKER);
        fs::remove_file(&marker).map_err(Error::io("delete", &marker))?;
        sync_dir(&self.path)?;
        sync_dir(&self.parent)
    }

    /// Creates the unfinished directory with its marker.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.begin_as("", "")
    }

    /// The same with a word in the marker that tells this directory from others, and one that says what it is made of.
    pub(crate) fn begin_as(&mut self, nonce: &str, binding: &str) -> Result<()> {
        fs::create_dir(&self.partial).map_err(Error::io("create", &self.partial))?;
        self.begun = true;
        let marker = self.partial.join(MARKER);
        let process = std::process::id();
        let text = format!("An unfinished install by fieldfare, process {process}.\n{nonce}\n{binding}\n");
        // Flushed: without its word the journal would speak of another directory, and everything be fetched again.
        let file = File::create_new(&marker).map_err(Error::io("create", &marker))?;
        disk::write(&file, &marker, text.as_bytes(), 0)
            .and_then(|()| disk::flush(&file, &marker))
            .map_err(Error::io("write", &marker))?;
        sync_dir(&self.partial)?;
        sync_dir(&self.parent)?;
        self.hold.working()
    }

    /// Place of the record of an install over a network.
    #[cfg(feature = "install")]
    pub(crate) fn journal(&self) -> &Path {
        &self.journal
    }

    /// Where the directory is that has this word in its marker.
    #[cfg(feature = "install")]
    pub(crate) fn unfinished(&self, nonce: &str) -> Unfinished {
        if is_word(&self.partial, 1, nonce) {
            Unfinished::Here
        } else if fs::symlink_metadata(&self.partial).is_ok() {
            Unfinished::Other
        } else {
            Unfinished::Gone
        }
    }

    /// Whether a directory that was begun for this has its name already, and its mark still.
    #[cfg(feature = "install")]
    pub(crate) fn is_promoted_for(&self, binding: &str) -> bool {
        is_marked(&self.path) && is_word(&self.path, 2, binding)
    }

    /// From here on a run that ends early leaves the unfinished directory for the next one.
    #[cfg(feature = "install")]
    pub(crate) fn keep(&mut self) {
        self.begun = false;
    }

    /// Deletes journal and unfinished directory, whatever state they are in. True if there was something.
    #[cfg(feature = "install")]
    pub(crate) fn discard(&mut self) -> Result<bool> {
        let there = |path: &Path| fs::symlink_metadata(path).is_ok();
        let found = there(&self.partial) || there(&self.journal);
        if is_marked(&self.path) {
            self.finish()?;
        }
        self.clear()?;
        delete(&self.journal)?;
        sync_dir(&self.parent)?;
        Ok(found)
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
        if self.hold.was_promoting() && remove::magic(&self.partial)?.is_some() {
            return Ok(Leftover::Replaced);
        }
        foreign(
            "is in the way and was not left by this program; move it away or discard it with the tool that made it",
        )
    }

    /// Gives the finished directory its name. Returns whether a model was replaced, and a remark if the old one could
    /// not be deleted.
    pub(crate) fn promote(mut self) -> Result<(bool, Option<String>)> {
        let exists = remove::replaceable(&self.path, self.overwrite)?;
        let stopped = self.hold.was_promoting();
        self.hold.promoting()?;
        let old = if exists {
            Some(self.exchange()?)
        } else {
            file::rename_new(&self.partial, &self.path).map_err(Error::io("rename", &self.partial))?;
            if stopped { self.put_aside() } else { None }
        };
        self.begun = false;
        sync_dir(&self.parent)?;
        let remark = old.as_ref().and_then(|old| {
            let e = remove::model(old).err()?;
            Some(format!("the old model could not be deleted and is at {}: {e}", old.display()))
        });
        self.seal()?;
        if remark.is_none() {
            self.hold.working()?;
        }
        Ok((old.is_some(), remark))
    }

    /// Swaps the names. Returns where the old model is.
    fn exchange(&self) -> Result<PathBuf> {
        match file::exchange(&self.partial, &self.path) {
            Ok(()) => Ok(self.partial.clone()),
            Err(e) if e.kind() == ErrorKind::Unsupported => self.replace_in_two_steps(),
            Err(e) => Err(Error::io("exchange", &self.path)(e)),
        }
    }

    fn aside(&self) -> PathBuf {
        let mut aside = self.partial.clone().into_os_string();
        aside.push(".old");
        PathBuf::from(aside)
    }

    /// The old model, if a run was stopped between two renames and left it there.
    fn put_aside(&self) -> Option<PathBuf> {
        Some(self.aside()).filter(|aside| matches!(remove::magic(aside), Ok(Some(_))))
    }

    /// Where names cannot be exchanged: two renames, undone if the second fails. Returns the place of the old model.
    fn replace_in_two_steps(&self) -> Result<PathBuf> {
        let aside = self.aside();
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

/// Creates a folder and those above it that are missing, durably: what is fetched into one that a power loss takes is gone.
fn make_folders(path: &Path) -> Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|folder| !folder.exists()).collect();
    fs::create_dir_all(path).map_err(Error::io("create", path))?;
    missing.iter().rev().filter_map(|folder| folder.parent()).try_for_each(sync_dir)
}

fn sync_dir(path: &Path) -> Result<()> {
    Dir::open(path).and_then(|dir| disk::flush_names(&dir, path)).map_err(Error::io("sync", path))
}

/// The absolute path that `output` names, and its last part.
fn place(output: &Path) -> Result<(PathBuf, OsString)> {
    if output.as_os_str().is_empty() {
        return Err(Error::bad("--output", "is empty"));
    }
    let named = file::lexical_absolute(output).map_err(Error::io("find", output))?;
    match (output.components().next_back(), named.file_name().map(OsString::from)) {
        (Some(Component::Normal(_)), Some(name)) => Ok((named, name)),
        _ => Err(Error::bad("--output", format!("{} does not name a directory", output.display()))),
    }
}

/// The path of something beside a target: its name with this end.
fn beside(path: &Path, name: &OsString, end: &str) -> PathBuf {
    let mut full = name.clone();
    full.push(end);
    path.with_file_name(full)
}

/// Whether a directory has the mark.
fn is_marked(dir: &Path) -> bool {
    fs::symlink_metadata(dir).is_ok_and(|meta| meta.is_dir())
        && fs::symlink_metadata(dir.join(MARKER)).is_ok_and(|meta| meta.is_file())
}

/// Whether that line of a directory's mark is this word.
#[cfg(feature = "install")]
fn is_word(dir: &Path, line: usize, word: &str) -> bool {
    let text = fs::read_to_string(dir.join(MARKER)).unwrap_or_default();
    !word.is_empty() && text.lines().nth(line) == Some(word)
}

/// Deletes a file; false if there was none.
fn delete(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::io("delete", path)(e)),
    }
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
