//! One program at a time for a data folder: an OS lock that dies with its process, and a file by which a second start asks
//! the first to come to the front.

use crate::message::Trouble;
use crate::trouble::{plain, trouble};
use fieldfare::Error;
use fieldfare::sys::volume;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

const LOCK: &str = "app.lock";
const RAISE: &str = "app.raise";

/// This program is the one of its data folder.
#[derive(Debug)]
pub(crate) struct Instance {
    /// Held for its lock alone.
    _lock: File,
    raise: PathBuf,
}

impl Instance {
    /// Takes the lock.
    ///
    /// # Errors
    /// Another one has it; it is asked to come to the front.
    pub(crate) fn take(data: &Path) -> Result<Self, Trouble> {
        let (path, raise) = (data.join(LOCK), data.join(RAISE));
        let file = volume::open_lock(&path).map_err(|error| trouble(&Error::io("open", &path)(error)))?;
        match file.try_lock() {
            Ok(()) => {
                // Of a time when nobody heard it.
                let _ = std::fs::remove_file(&raise);
                Ok(Self { _lock: file, raise })
            }
            Err(TryLockError::WouldBlock) => {
                // It is told all the same that it is running, if this fails.
                let _ = std::fs::write(&raise, b"");
                Err(plain("Fieldfare is running already; its window comes to the front", ""))
            }
            Err(TryLockError::Error(error)) => Err(trouble(&Error::io("lock", &path)(error))),
        }
    }

    /// Whether another start asked for the window since the last call.
    pub(crate) fn asked_for(&self) -> bool {
        std::fs::remove_file(&self.raise).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_refused_and_the_first_hears_of_it_once() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join(RAISE), b"").unwrap();
        let first = Instance::take(temp.path()).unwrap();
        assert!(!first.asked_for(), "what was said before its time is nothing to it");
        let said = Instance::take(temp.path()).unwrap_err();
        assert!(said.message.contains("running already"), "{said:?}");
        assert!(first.asked_for() && !first.asked_for());
        drop(first);
        Instance::take(temp.path()).unwrap();
    }
}
