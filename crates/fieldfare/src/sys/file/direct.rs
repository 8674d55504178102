//! A file whose reads may go past the page cache: `O_DIRECT` on Linux, `F_NOCACHE` on macOS, a second handle with
//! `FILE_FLAG_NO_BUFFERING` on Windows.
//!
//! Direct reads want offset, length and memory at multiples of [`ReadFile::alignment`]. File systems that cannot do
//! them refuse when they are asked for, or only at the first read: [`ReadFile::set_direct`] tries.
#![allow(unsafe_code)] // Windows answers only through its C library

use std::fs::File;
use std::io;

/// The alignment of direct reads where the system does not say: enough for every disk in use.
const USUAL: usize = 4096;

/// An open file, read by position.
#[derive(Debug)]
pub struct ReadFile(platform::Handles);

impl ReadFile {
    /// Reads of this file, through the page cache at first. The descriptor must not be shared with others.
    pub fn new(file: File) -> Self {
        Self(platform::Handles::new(file))
    }

    /// Turns direct reads on or off.
    ///
    /// # Errors
    /// Those of the system; [`io::ErrorKind::Unsupported`] or [`io::ErrorKind::InvalidInput`] where the platform or the
    /// file system has none. Reads are buffered then.
    pub fn set_direct(&self, on: bool) -> io::Result<()> {
        self.0.set_direct(on)
    }

    /// What offset, length and memory of a direct read must be multiples of. A power of two.
    pub fn alignment(&self) -> usize {
        self.0.alignment().filter(|n| n.is_power_of_two()).map_or(USUAL, |n| n.max(512))
    }

    /// Reads at most `into.len()` bytes at `offset`.
    ///
    /// # Errors
    /// Those of the system.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        super::read_at(self.0.file(), into, offset)
    }

    /// Has the page cache begin to read `len` bytes at `offset`, without waiting for them.
    ///
    /// # Errors
    /// Those of the system; [`io::ErrorKind::Unsupported`] where it takes no such advice.
    pub fn advise(&self, offset: u64, len: u64) -> io::Result<()> {
        advise(self.0.file(), offset, len)
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn advise(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let Some(len) = std::num::NonZeroU64::new(len) else { return Ok(()) };
    Ok(rustix::fs::fadvise(file, offset, Some(len), rustix::fs::Advice::WillNeed)?)
}

#[cfg(target_vendor = "apple")]
fn advise(file: &File, offset: u64, len: u64) -> io::Result<()> {
    Ok(rustix::fs::fcntl_rdadvise(file, offset, len)?)
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn advise(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod platform {
    use rustix::fs::{AtFlags, OFlags, StatxFlags, fcntl_getfl, fcntl_setfl, statx};
    use std::fs::File;
    use std::io;

    #[derive(Debug)]
    pub(super) struct Handles(File);

    impl Handles {
        pub(super) fn new(file: File) -> Self {
            Self(file)
        }

        pub(super) fn file(&self) -> &File {
            &self.0
        }

        pub(super) fn set_direct(&self, on: bool) -> io::Result<()> {
            let flags = fcntl_getfl(&self.0)?;
            Ok(fcntl_setfl(&self.0, if on { flags | OFlags::DIRECT } else { flags - OFlags::DIRECT })?)
        }

        pub(super) fn alignment(&self) -> Option<usize> {
            // `STATX_DIOALIGN`, from Linux 6.1 on.
            let flags = StatxFlags::from_bits_retain(0x2000);
            let stat = statx(&self.0, c"", AtFlags::EMPTY_PATH, flags).ok()?;
            let known = stat.stx_mask & flags.bits() != 0;
            let bytes = stat.stx_dio_mem_align.max(stat.stx_dio_offset_align);
            known.then_some(bytes as usize).filter(|&bytes| bytes > 0)
        }
    }
}

#[cfg(target_vendor = "apple")]
mod platform {
    use rustix::fs::fcntl_nocache;
    use std::fs::File;
    use std::io;

    #[derive(Debug)]
    pub(super) struct Handles(File);

    impl Handles {
        pub(super) fn new(file: File) -> Self {
            Self(file)
        }

        pub(super) fn file(&self) -> &File {
            &self.0
        }

        pub(super) fn set_direct(&self, on: bool) -> io::Result<()> {
            Ok(fcntl_nocache(&self.0, on)?)
        }

        pub(super) fn alignment(&self) -> Option<usize> {
            None
        }
    }
}

#[cfg(windows)]
mod platform {
    use std::ffi::c_void;
    use std::fs::File;
    use std::io;
    use std::os::windows::io::{AsRawHandle, FromRawHandle};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    const GENERIC_READ: u32 = 0x8000_0000;
    const SHARE_READ_WRITE_DELETE: u32 = 7;
    const FLAG_NO_BUFFERING: u32 = 0x2000_0000;

    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn ReOpenFile(file: *mut c_void, access: u32, share: u32, flags: u32) -> *mut c_void;
    }

    #[derive(Debug)]
    pub(super) struct Handles {
        buffered: File,
        direct: OnceLock<File>,
        on: AtomicBool,
    }

    impl Handles {
        pub(super) fn new(file: File) -> Self {
            Self { buffered: file, direct: OnceLock::new(), on: AtomicBool::new(false) }
        }

        pub(super) fn file(&self) -> &File {
            match self.direct.get() {
                Some(direct) if self.on.load(Ordering::Relaxed) => direct,
                _ => &self.buffered,
            }
        }

        pub(super) fn set_direct(&self, on: bool) -> io::Result<()> {
            if on && self.direct.get().is_none() {
                // SAFETY: the handle is open for as long as `buffered` lives.
                let handle = unsafe {
                    ReOpenFile(
                        self.buffered.as_raw_handle().cast(),
                        GENERIC_READ,
                        SHARE_READ_WRITE_DELETE,
                        FLAG_NO_BUFFERING,
                    )
                };
                if handle.is_null() || handle.addr() == usize::MAX {
                    return Err(io::Error::last_os_error());
                }
                // SAFETY: a fresh handle that nobody else owns.
                let _ = self.direct.set(unsafe { File::from_raw_handle(handle.cast()) });
            }
            self.on.store(on, Ordering::Relaxed);
            Ok(())
        }

        pub(super) fn alignment(&self) -> Option<usize> {
            None
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple", windows)))]
mod platform {
    use std::fs::File;
    use std::io;

    #[derive(Debug)]
    pub(super) struct Handles(File);

    impl Handles {
        pub(super) fn new(file: File) -> Self {
            Self(file)
        }

        pub(super) fn file(&self) -> &File {
            &self.0
        }

        pub(super) fn set_direct(&self, on: bool) -> io::Result<()> {
            if on { Err(io::ErrorKind::Unsupported.into()) } else { Ok(()) }
        }

        pub(super) fn alignment(&self) -> Option<usize> {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::pages::Pages;
    use std::io::Write;

    #[test]
    fn direct_and_buffered_reads_agree() {
        // The target folder is on a disk where the temporary folder may be in memory; either may refuse.
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let bytes: Vec<u8> = (0..64 * 1024u32).map(|i| (i * 7 % 251) as u8).collect();
        file.write_all(&bytes).unwrap();
        file.sync_all().unwrap();
        let file = ReadFile::new(file);
        let step = file.alignment();
        assert!(step.is_power_of_two() && step >= 512);
        let mut pages = Pages::new(bytes.len()).unwrap();
        for direct in [false, true, false] {
            if file.set_direct(direct).is_err() {
                assert!(direct, "buffered reads are always there");
                continue;
            }
            assert!(file.advise(0, 1 << 12).is_ok() || !cfg!(target_os = "linux"));
            pages.bytes_mut().fill(0);
            match file.read_at(&mut pages.bytes_mut()[..bytes.len() - step], step as u64) {
                Ok(n) => assert_eq!(pages.bytes()[..n], bytes[step..step + n]),
                Err(error) => assert!(direct && error.kind() == io::ErrorKind::InvalidInput, "{error}"),
            }
        }
    }
}
