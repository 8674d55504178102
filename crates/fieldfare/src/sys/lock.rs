//! One process at a time for one model, wherever the model lies.
//!
//! The lock is an advisory lock of the operating system on a file in the runtime folder, named by the model's
//! identity, so it works for read-only model directories and dies with the process, however that ends. A note beside
//! it says who holds it; the note is a courtesy for the error message and never decides anything. Lock files are
//! left in place: removing one while another process opens it would give two owners.

use crate::sys::paths;
use crate::{Error, Result};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

/// Longest note that is read back.
const NOTE_CAP: usize = 512;
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
    /// Takes the lock of the model with this `identity` (the manifest's SHA-256 in hex); `what` names the model in the
    /// error, usually by its path.
    ///
    /// # Errors
    /// [`Error::Locked`] with the owner's process id and command when another process (or another engine of this one)
    /// has it; I/O errors of the runtime folder.
    pub fn acquire(identity: &str, what: impl Into<String>) -> Result<Self> {
        Self::acquire_in(&paths::runtime_dir()?, identity, what)
    }

    /// As [`ModelLock::acquire`], in a folder of the caller's choice.
    ///
    /// # Errors
    /// As [`ModelLock::acquire`]; [`Error::BadRequest`] when the identity cannot be a file name.
    pub fn acquire_in(dir: &Path, identity: &str, what: impl Into<String>) -> Result<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if identity.is_empty() || identity.len() > 128 || !identity.bytes().all(plain) {
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
                return Err(Error::Locked { what: what.into(), owner: read_note(&note) });
            }
            Err(TryLockError::Error(error)) => return Err(Error::io("lock", &path)(error)),
        }
        // Without its note the lock still holds; only the message of a second process is poorer.
        let _ = std::fs::write(&note, own_note());
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
/// a person's prompt.
fn own_note() -> String {
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
    format!("process {} ({command})", std::process::id())
}

fn read_note(path: &Path) -> String {
    for attempt in 0..NOTE_TRIES {
        if attempt > 0 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let Ok(bytes) = std::fs::read(path) else { continue };
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(NOTE_CAP)]);
        let line: String = text.lines().next().unwrap_or("").chars().filter(|c| !c.is_control()).collect();
        if !line.is_empty() {
            return line;
        }
    }
    "another process".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_owner_is_told_who_the_first_is() {
        let dir = tempfile::tempdir().unwrap();
        let first = ModelLock::acquire_in(dir.path(), "abc123", "a model").unwrap();
        let error = ModelLock::acquire_in(dir.path(), "abc123", "a model").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("a model is in use by"), "{text}");
        assert!(text.contains(&format!("process {} (", std::process::id())), "{text}");
        ModelLock::acquire_in(dir.path(), "other", "another model").unwrap();
        drop(first);
        ModelLock::acquire_in(dir.path(), "abc123", "a model").unwrap();
    }

    #[test]
    fn a_stale_note_owns_nothing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("abc.owner"), "process 1 (somebody dead)").unwrap();
        std::fs::write(dir.path().join("abc.lock"), "").unwrap();
        ModelLock::acquire_in(dir.path(), "abc", "a model").unwrap();
    }

    #[test]
    fn identities_that_are_paths_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for identity in ["", "../x", "a/b", "a.b", "a b"] {
            assert!(matches!(
                ModelLock::acquire_in(dir.path(), identity, "a model"),
                Err(Error::BadRequest { .. })
            ));
        }
    }
}
