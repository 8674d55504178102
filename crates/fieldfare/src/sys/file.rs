//! Files and directories: opening without following links, positioned reads and writes, durable replacement.
//!
//! [`Dir`] is an open directory. Everything below it is reached component by component from its descriptor, so
//! that no symbolic link is followed and renaming the directory meanwhile changes nothing. Platforms without
//! directory descriptors get the same checks by path, which a hostile local user could race.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::disk;

mod direct;
pub use direct::ReadFile;

#[cfg(unix)]
mod unix;
#[cfg(unix)]
pub use unix::{Dir, exchange, free_space, read_at, rename_new, write_at};

#[cfg(not(unix))]
mod other;
#[cfg(not(unix))]
pub use other::{Dir, exchange, free_space, read_at, rename_new, write_at};

/// Characters beside `/` that separate or end a path component on this platform; a portable name has none of them.
#[cfg(windows)]
pub const SEPARATORS: &[char] = &['\\', ':'];
/// Characters beside `/` that separate or end a path component on this platform; a portable name has none of them.
#[cfg(not(windows))]
pub const SEPARATORS: &[char] = &[];

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// Its name.
    pub name: OsString,
    /// True for a directory (not for a link to one).
    pub is_dir: bool,
}

/// Fills `buf` from `offset`; an early end of the file is an error.
pub fn read_exact_at(file: &File, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buf.is_empty() {
        match read_at(file, buf, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                buf = &mut buf[n..];
                offset += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Writes all of `buf` at `offset`.
pub fn write_all_at(file: &File, mut buf: &[u8], mut offset: u64) -> io::Result<()> {
    while !buf.is_empty() {
        match write_at(file, buf, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                buf = &buf[n..];
                offset += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Replaces `dir/name`, where `dir` is at `path`, by `bytes` so that a crash leaves the old or the new file: a temporary beside it, flushed,
/// renamed over the name (a symbolic link there is replaced, not followed), then the directory flushed.
pub fn write_atomic(dir: &Dir, path: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = format!(".{name}.{}.tmp", std::process::id());
    let full = path.join(&temporary);
    let _ = dir.remove_file(&temporary); // left by a killed process of the same id
    let written = dir.create_file(&temporary).and_then(|file| {
        disk::write(&file, &full, bytes, 0)?;
        disk::flush_all(&file, &full)
    });
    if let Err(e) = written.and_then(|()| dir.rename(&temporary, name)) {
        let _ = dir.remove_file(&temporary);
        return Err(e);
    }
    disk::flush_names(dir, path)
}

/// The absolute form of a path as it was named: `.`, `..` and doubled slashes resolved by the text alone, symbolic
/// links not. On macOS a leading `/private` goes, since the same directory is named with and without it.
pub fn lexical_absolute(path: &Path) -> io::Result<PathBuf> {
    let mut out = PathBuf::new();
    for component in std::path::absolute(path)?.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    #[cfg(target_os = "macos")]
    if let Ok(rest) = out.strip_prefix("/private") {
        out = Path::new("/").join(rest);
    }
    Ok(out)
}

/// The error for an entry that is there but is not a regular file.
fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not a regular file")
}

/// The error for a symbolic link where none may be.
fn is_link() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a symbolic link, which is not followed")
}

#[cfg(test)]
mod tests;
