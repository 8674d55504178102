//! What a disk is told of a file in the making: bytes at a place, room, flushes. One door for all of it, so that a test can
//! stand there and pull the plug, or fill the disk, at any of these moments.

use std::fs::File;
use std::io;
use std::path::Path;

use super::file::{self, Dir};
use super::volume;

/// Writes `bytes` at `offset` of `file`, which is at `path`.
///
/// # Errors
/// Those of the system.
pub(crate) fn write(file: &File, path: &Path, bytes: &[u8], offset: u64) -> io::Result<()> {
    told(Op::Write, path, || file::write_all_at(file, bytes, offset))
}

/// Gives the file its final length and reserves room for it.
///
/// # Errors
/// Those of the system.
pub(crate) fn reserve(file: &File, path: &Path, len: u64) -> io::Result<()> {
    told(Op::Reserve, path, || volume::reserve(file, len))
}

/// Flushes what was written to the file.
///
/// # Errors
/// Those of the system.
pub(crate) fn flush(file: &File, path: &Path) -> io::Result<()> {
    told(Op::Flush, path, || file.sync_data())
}

/// Flushes the file with everything that is known of it.
///
/// # Errors
/// Those of the system.
pub(crate) fn flush_all(file: &File, path: &Path) -> io::Result<()> {
    told(Op::Flush, path, || file.sync_all())
}

/// Flushes the names in a folder.
///
/// # Errors
/// Those of the system.
pub(crate) fn flush_names(dir: &Dir, path: &Path) -> io::Result<()> {
    told(Op::FlushNames, path, || dir.sync())
}

/// Bytes free on the file system of a folder.
///
/// # Errors
/// Those of the system.
pub(crate) fn free(path: &Path) -> io::Result<u64> {
    #[cfg(all(test, unix, feature = "install"))]
    if let Some(free) = plug::of(path).and_then(|plug| plug.free()) {
        return Ok(free);
    }
    file::free_space(path)
}

/// What is about to be done, or was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Bytes are written.
    Write,
    /// Room is taken.
    Reserve,
    /// A file is flushed.
    Flush,
    /// The names in a folder are flushed.
    FlushNames,
}

#[cfg(not(all(test, unix, feature = "install")))]
fn told(_: Op, _: &Path, act: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    act()
}

#[cfg(all(test, unix, feature = "install"))]
fn told(op: Op, path: &Path, act: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let plug = plug::of(path);
    if let Some(plug) = &plug {
        plug.before(op, path)?;
    }
    act()?;
    if let Some(plug) = &plug {
        plug.after(op, path);
    }
    Ok(())
}

#[cfg(all(test, unix, feature = "install"))]
pub(crate) mod plug {
    //! Tests that stand at the door.

    use super::Op;
    use std::io;
    use std::path::{Path, PathBuf};
    use std::sync::{Arc, Mutex, PoisonError};

    /// Hears of everything that is done below a folder.
    pub(crate) trait Plug: Send + Sync {
        /// Before it is done; an error takes its place.
        fn before(&self, _: Op, _: &Path) -> io::Result<()> {
            Ok(())
        }
        /// After it was done.
        fn after(&self, _: Op, _: &Path) {}
        /// What is said of the free space, if not the truth.
        fn free(&self) -> Option<u64> {
            None
        }
    }

    type Plugs = Vec<(PathBuf, Arc<dyn Plug>)>;
    static PLUGS: Mutex<Plugs> = Mutex::new(Vec::new());

    fn plugs() -> std::sync::MutexGuard<'static, Plugs> {
        PLUGS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn of(path: &Path) -> Option<Arc<dyn Plug>> {
        plugs().iter().find(|(root, _)| path.starts_with(root)).map(|(_, plug)| plug.clone())
    }

    /// Ends with this value.
    pub(crate) struct Plugged(PathBuf);

    /// From now on `plug` hears of what is done below `root`, a path without links.
    pub(crate) fn plug(root: &Path, plug: Arc<dyn Plug>) -> Plugged {
        plugs().push((root.to_path_buf(), plug));
        Plugged(root.to_path_buf())
    }

    impl Drop for Plugged {
        fn drop(&mut self) {
            plugs().retain(|(root, _)| *root != self.0);
        }
    }
}
