//! Directory descriptors, `openat` and its family.

use super::{DirEntry, is_link, not_regular};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// An open directory.
#[derive(Debug)]
pub struct Dir(OwnedFd);

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Dir {
    /// Opens a directory; `path` itself may be or contain symbolic links.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(fs::open(path, DIRECTORY, Mode::empty())?))
    }

    /// Opens a directory below this one (components separated by `/`), following no link.
    pub fn open_dir(&self, relative: &str) -> io::Result<Self> {
        let mut at = self.0.try_clone()?;
        for part in relative.split('/') {
            at = fs::openat(&at, part, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        }
        Ok(Self(at))
    }

    /// The directory that holds `relative`, if that is not this one, and the last component.
    fn parent<'a>(&self, relative: &'a str) -> io::Result<(Option<Self>, &'a str)> {
        match relative.rsplit_once('/') {
            None => Ok((None, relative)),
            Some((parent, name)) => Ok((Some(self.open_dir(parent)?), name)),
        }
    }

    /// Opens a regular file for reading, following no link in any position. A FIFO does not block.
    pub fn open_file(&self, relative: &str) -> io::Result<File> {
        let (parent, name) = self.parent(relative)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match fs::openat(&parent.as_ref().unwrap_or(self).0, name, flags, Mode::empty()) {
            Err(Errno::LOOP | Errno::MLINK) => return Err(is_link()), // BSDs answer MLINK
            opened => opened?,
        };
        if FileType::from_raw_mode(fs::fstat(&fd)?.st_mode) != FileType::RegularFile {
            return Err(not_regular());
        }
        Ok(File::from(fd))
    }

    /// Opens a regular file for reading and writing, following no link in any position.
    pub fn open_file_rw(&self, relative: &str) -> io::Result<File> {
        let (parent, name) = self.parent(relative)?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match fs::openat(&parent.as_ref().unwrap_or(self).0, name, flags, Mode::empty()) {
            Err(Errno::LOOP | Errno::MLINK) => return Err(is_link()),
            opened => opened?,
        };
        if FileType::from_raw_mode(fs::fstat(&fd)?.st_mode) != FileType::RegularFile {
            return Err(not_regular());
        }
        Ok(File::from(fd))
    }

    /// Creates a file for reading and writing. It must not exist, not even as a link.
    pub fn create_file(&self, relative: &str) -> io::Result<File> {
        let (parent, name) = self.parent(relative)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        Ok(File::from(fs::openat(&parent.as_ref().unwrap_or(self).0, name, flags, mode)?))
    }

    /// Creates a directory below this one; its parent must exist.
    pub fn create_dir(&self, relative: &str) -> io::Result<()> {
        let (parent, name) = self.parent(relative)?;
        Ok(fs::mkdirat(&parent.as_ref().unwrap_or(self).0, name, Mode::from_raw_mode(0o777))?)
    }

    /// Removes a file or link below this directory.
    pub fn remove_file(&self, relative: &str) -> io::Result<()> {
        let (parent, name) = self.parent(relative)?;
        Ok(fs::unlinkat(&parent.as_ref().unwrap_or(self).0, name, AtFlags::empty())?)
    }

    /// Renames within this directory, replacing what has the new name.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(fs::renameat(&self.0, from, &self.0, to)?)
    }

    /// Flushes the directory's entries to the disk.
    pub fn sync(&self) -> io::Result<()> {
        // There, fsync alone leaves data in the drive's cache.
        #[cfg(target_vendor = "apple")]
        if fs::fcntl_fullfsync(&self.0).is_ok() {
            return Ok(());
        }
        Ok(fs::fsync(&self.0)?)
    }

    /// The entries, sorted by name, without `.` and `..`. More than `limit` of them are an error.
    pub fn entries(&self, limit: usize) -> io::Result<Vec<DirEntry>> {
        let mut out = Vec::new();
        for entry in fs::Dir::read_from(&self.0)? {
            let entry = entry?;
            let bytes = entry.file_name().to_bytes();
            if matches!(bytes, b"." | b"..") {
                continue;
            }
            let kind = match entry.file_type() {
                // Some file systems leave the type to a stat.
                FileType::Unknown => fs::statat(&self.0, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
                known => known,
            };
            if out.len() >= limit {
                return Err(io::Error::other(format!("more than {limit} entries")));
            }
            out.push(DirEntry {
                name: OsStr::from_bytes(bytes).to_owned(),
                is_dir: kind == FileType::Directory,
            });
        }
        out.sort();
        Ok(out)
    }
}

/// Reads at most `buf.len()` bytes at `offset`.
pub fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(buf, offset)
}

/// Writes at most `buf.len()` bytes at `offset`.
pub fn write_at(file: &File, buf: &[u8], offset: u64) -> io::Result<usize> {
    file.write_at(buf, offset)
}

/// Bytes that this user may still write on the file system of `path`.
pub fn free_space(path: &Path) -> io::Result<u64> {
    let stat = fs::statvfs(path)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Renames `from` to `to`, which must not exist. Where the system lacks an atomic form, a check comes before.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    {
        match fs::renameat_with(fs::CWD, from, fs::CWD, to, fs::RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            done => return Ok(done?),
        }
    }
    if fs::statat(fs::CWD, to, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    Ok(fs::renameat(fs::CWD, from, fs::CWD, to)?)
}

/// Exchanges two directory entries of one file system atomically. [`io::ErrorKind::Unsupported`] where the system
/// or the file system cannot.
pub fn exchange(a: &Path, b: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    {
        match fs::renameat_with(fs::CWD, a, fs::CWD, b, fs::RenameFlags::EXCHANGE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => Err(io::ErrorKind::Unsupported.into()),
            done => Ok(done?),
        }
    }
    #[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
    {
        let _ = (a, b);
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}
