//! The same by path, for platforms without directory descriptors: every component is looked at before it is used.

use super::{DirEntry, is_link, not_regular};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// A directory, known by its resolved path.
#[derive(Debug)]
pub struct Dir(PathBuf);

fn must_be_dir(path: &Path) -> io::Result<()> {
    // symlink_metadata does not follow, so a link is not a directory here.
    if fs::symlink_metadata(path)?.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

impl Dir {
    /// Opens a directory; `path` itself may be or contain symbolic links.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(path)?;
        must_be_dir(&path)?;
        Ok(Self(path))
    }

    /// Opens a directory below this one (components separated by `/`), following no link.
    pub fn open_dir(&self, relative: &str) -> io::Result<Self> {
        let mut path = self.0.clone();
        for part in relative.split('/') {
            path.push(part);
            must_be_dir(&path)?;
        }
        Ok(Self(path))
    }

    fn resolve(&self, relative: &str) -> io::Result<PathBuf> {
        match relative.rsplit_once('/') {
            None => Ok(self.0.join(relative)),
            Some((parent, name)) => Ok(self.open_dir(parent)?.0.join(name)),
        }
    }

    /// Opens a regular file for reading, following no link in any position.
    pub fn open_file(&self, relative: &str) -> io::Result<File> {
        let path = self.resolve(relative)?;
        let kind = fs::symlink_metadata(&path)?.file_type();
        if kind.is_symlink() {
            return Err(is_link());
        }
        if !kind.is_file() {
            return Err(not_regular());
        }
        File::open(path)
    }

    /// Opens a regular file for reading and writing, following no link in any position.
    pub fn open_file_rw(&self, relative: &str) -> io::Result<File> {
        drop(self.open_file(relative)?);
        OpenOptions::new().read(true).write(true).open(self.resolve(relative)?)
    }

    /// Creates a file for reading and writing. It must not exist.
    pub fn create_file(&self, relative: &str) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create_new(true).open(self.resolve(relative)?)
    }

    /// Creates a directory below this one; its parent must exist.
    pub fn create_dir(&self, relative: &str) -> io::Result<()> {
        fs::create_dir(self.resolve(relative)?)
    }

    /// Removes a file or link below this directory.
    pub fn remove_file(&self, relative: &str) -> io::Result<()> {
        fs::remove_file(self.resolve(relative)?)
    }

    /// Renames within this directory, replacing what has the new name.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
    }

    /// Flushes the directory's entries; the systems served here offer no such call.
    pub fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    /// The entries, sorted by name. More than `limit` of them are an error.
    pub fn entries(&self, limit: usize) -> io::Result<Vec<DirEntry>> {
        let mut out = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            if out.len() >= limit {
                return Err(io::Error::other(format!("more than {limit} entries")));
            }
            out.push(DirEntry { name: entry.file_name(), is_dir: entry.file_type()?.is_dir() });
        }
        out.sort();
        Ok(out)
    }
}

/// Reads at most `buf.len()` bytes at `offset`.
pub fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    #[cfg(windows)]
    return std::os::windows::fs::FileExt::seek_read(file, buf, offset);
    #[cfg(not(windows))]
    {
        let _ = (file, buf, offset);
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Writes at most `buf.len()` bytes at `offset`.
pub fn write_at(file: &File, buf: &[u8], offset: u64) -> io::Result<usize> {
    #[cfg(windows)]
    return std::os::windows::fs::FileExt::seek_write(file, buf, offset);
    #[cfg(not(windows))]
    {
        let _ = (file, buf, offset);
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Free bytes on the file system of `path`: not known here.
pub fn free_space(_path: &Path) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Renames `from` to `to`, which must not exist.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    if fs::symlink_metadata(to).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    fs::rename(from, to)
}

/// Exchanges two directory entries: not offered here.
pub fn exchange(_a: &Path, _b: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
