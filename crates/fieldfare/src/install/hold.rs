//! The lock beside a target, `NAME.install.lock`: one installer at a time, and a note that outlives a killed one.
//!
//! Who holds it deletes it in the end, unless its note still matters. Whoever opened it meanwhile and gets a lock on a file that
//! has no name any more begins anew, so there are never two owners.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::sys::{disk, volume};
use crate::{Error, Result};

/// What the note says while names are being exchanged.
const PROMOTING: &str = "promoting";
/// What it says before.
const WORKING: &str = "working";
/// Times that the file may vanish while it is being locked.
const TRIES: usize = 100;

/// A held lock.
pub(crate) struct Hold {
    /// There until the end.
    file: Option<File>,
    path: PathBuf,
    /// The note says that names are being exchanged.
    promoting: bool,
}

impl Hold {
    /// Takes the lock at `path` of the target `what`.
    ///
    /// # Errors
    /// [`Error::Locked`] while another process has it, [`Error::Io`] where it cannot be.
    pub(crate) fn acquire(path: &Path, what: &Path) -> Result<Self> {
        for _ in 0..TRIES {
            let file = volume::open_lock(path).map_err(Error::io("create", path))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(fs::TryLockError::WouldBlock) => return Err(locked(&file, what)),
                Err(fs::TryLockError::Error(e)) => return Err(Error::io("lock", path)(e)),
            }
            // The last owner may have deleted it between the two, and another one made it anew.
            if volume::is_at(&file, path).map_err(Error::io("open", path))? {
                let mut hold = Self { file: Some(file), path: path.to_path_buf(), promoting: false };
                hold.promoting = hold.says(PROMOTING);
                // Names this process to others; a note about an interrupted exchange stays until it is dealt with.
                hold.note(if hold.promoting { PROMOTING } else { WORKING })?;
                return Ok(hold);
            }
        }
        let reason = "vanishes whenever it is locked; try again".into();
        Err(Error::Refused { path: path.to_path_buf(), reason })
    }

    /// Whether a run was stopped while it exchanged names.
    pub(crate) fn was_promoting(&self) -> bool {
        self.promoting
    }

    /// Records, durably, that names are about to be exchanged: what is then found unmarked at `NAME.partial` is the old model.
    pub(crate) fn promoting(&mut self) -> Result<()> {
        self.note(PROMOTING)?;
        self.promoting = true;
        Ok(())
    }

    /// Records that there is no old model at `NAME.partial` any more.
    pub(crate) fn working(&mut self) -> Result<()> {
        self.note(WORKING)?;
        self.promoting = false;
        Ok(())
    }

    fn says(&self, word: &str) -> bool {
        let Some(mut file) = self.file.as_ref() else { return false };
        let mut text = String::new();
        let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.take(4096).read_to_string(&mut text));
        read.is_ok() && text.lines().any(|line| line == word)
    }

    /// Writes process and state, durably.
    fn note(&self, state: &str) -> Result<()> {
        let Some(mut file) = self.file.as_ref() else { return Ok(()) };
        file.set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| file.write_all(format!("{}\n{state}\n", std::process::id()).as_bytes()))
            .and_then(|()| disk::flush(file, &self.path))
            .map_err(Error::io("write", &self.path))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(file) = self.file.take()
            && !self.promoting
        {
            // Best effort: one that stays is taken by the next.
            let _ = volume::remove_lock(file, &self.path);
        }
    }
}

/// What to tell the second one.
fn locked(file: &File, what: &Path) -> Error {
    let mut text = String::new();
    let pid = match file.take(64).read_to_string(&mut text) {
        Ok(_) => text.lines().next().and_then(|line| line.parse::<u32>().ok()),
        // Some systems do not let others read a locked file.
        Err(_) => None,
    };
    let owner =
        pid.map_or_else(|| "another installer".into(), |pid| format!("another installer, process {pid}"));
    Error::Locked { what: what.display().to_string(), owner }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn it_goes_with_its_owner_unless_its_note_matters() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("m.install.lock");
        let mut hold = Hold::acquire(&path, Path::new("m")).expect("free");
        let error = Hold::acquire(&path, Path::new("m")).err().expect("locked").to_string();
        assert_eq!(error, format!("m is in use by another installer, process {}", std::process::id()));
        assert!(!hold.was_promoting());
        hold.promoting().expect("note");
        drop(hold);
        assert!(path.is_file());
        let mut hold = Hold::acquire(&path, Path::new("m")).expect("free");
        assert!(hold.was_promoting(), "the note of the last owner");
        hold.working().expect("note");
        drop(hold);
        assert!(!path.exists());
    }

    /// Many that come and go: one at a time, although each deletes the file under the others. How often one
    /// finds the lock taken is the scheduler's business, so each tries until it has had it often enough.
    #[test]
    fn never_two_owners() {
        const TIMES: usize = 25;
        const TRIES: usize = 1_000_000;
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("m.install.lock");
        let owners = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let (mut had, mut tries) = (0, 0);
                    while had < TIMES {
                        tries += 1;
                        assert!(tries <= TRIES, "the lock never comes free");
                        match Hold::acquire(&path, Path::new("m")) {
                            Ok(hold) => {
                                assert_eq!(owners.fetch_add(1, Ordering::SeqCst), 0, "two owners");
                                std::thread::yield_now();
                                owners.fetch_sub(1, Ordering::SeqCst);
                                drop(hold);
                                had += 1;
                            }
                            Err(Error::Locked { .. }) => std::thread::yield_now(),
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        });
        assert!(!path.exists());
    }
}
