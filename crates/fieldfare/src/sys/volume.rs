//! Space for a file, and the lock file beside a target.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Gives `file` its final length and, where the file system can, the blocks for it, so that a full disk or a limit on
/// file sizes shows before the first byte is written. The content reads as zeros.
///
/// # Errors
/// If there is no room, or the file system cannot hold a file of this size.
pub fn reserve(file: &File, len: u64) -> io::Result<()> {
    file.set_len(len)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if len > 0 {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;
        return match fallocate(file, FallocateFlags::empty(), 0, len) {
            // Not every file system can; the length alone is good enough then.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
            Err(e) => Err(e.into()),
        };
    }
    Ok(())
}

/// Bytes that a file has on the disk already, reserved ones included; where that is not known, none.
pub fn allocated(meta: &std::fs::Metadata) -> u64 {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        meta.blocks().saturating_mul(512)
    }
    #[cfg(not(unix))]
    {
        let _ = meta;
        0
    }
}

/// Opens a lock file for reading and writing, creating it for this user only. A symbolic link is refused.
///
/// # Errors
/// If it cannot be opened, or is no regular file.
pub fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        options.mode(0o600).custom_flags(flags.bits().cast_signed());
    }
    #[cfg(windows)]
    {
        use std::os::windows::fs::OpenOptionsExt;
        // Others may read and write, but not delete or rename it while it is open.
        options.share_mode(1 | 2);
    }
    #[cfg(not(unix))]
    if std::fs::symlink_metadata(path).is_ok_and(|meta| !meta.is_file()) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file"));
    }
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file"));
    }
    Ok(file)
}

/// Deletes a lock file whose lock this process holds, and lets the lock go. Who waits for it finds that it has no name any more
/// ([`is_at`]).
///
/// # Errors
/// If it cannot be deleted. Where an open file cannot be, that is so whenever somebody else has opened it, and it stays.
pub fn remove_lock(file: File, path: &Path) -> io::Result<()> {
    // On Unix the name must go before the lock does: afterwards it may be another's.
    #[cfg(unix)]
    {
        let removed = std::fs::remove_file(path);
        drop(file);
        removed
    }
    #[cfg(not(unix))]
    {
        drop(file);
        std::fs::remove_file(path)
    }
}

/// True if `path` still names the open `file`: a lock on a file that somebody has since deleted or replaced is no lock.
///
/// # Errors
/// If either cannot be looked at.
pub fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let there = match std::fs::symlink_metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            there => there?,
        };
        let ours = file.metadata()?;
        Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
    }
    #[cfg(not(unix))]
    {
        // An open file cannot be deleted or replaced there.
        let _ = file;
        std::fs::symlink_metadata(path).map(|meta| meta.is_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_space_reads_as_zeros() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("f");
        reserve(&File::create_new(&path).expect("create"), 10_000).expect("reserve");
        assert_eq!(std::fs::read(&path).expect("read"), vec![0; 10_000]);
    }

    #[test]
    fn a_replaced_lock_file_is_noticed() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("l");
        let lock = open_lock(&path).expect("open");
        assert!(is_at(&lock, &path).expect("look"));
        std::fs::rename(&path, dir.path().join("m")).expect("rename");
        assert!(!is_at(&lock, &path).expect("look"), "it is gone");
        let other = open_lock(&path).expect("open");
        assert!(!is_at(&lock, &path).expect("look"), "it is another's");
        assert!(open_lock(dir.path()).is_err());
        remove_lock(other, &path).expect("delete");
        assert!(!path.exists());
    }
}
