//! One output file: written from front to back through a bounded buffer, hashed on the way, flushed to the disk at the
//! end.

use std::fs::File;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::sys::disk;
use crate::{Error, Result};

/// Bytes of the write buffer, and of the buffer of a plain copy.
pub(crate) const CHUNK: usize = 1 << 20;

/// An output file in the making.
pub(crate) struct Sink {
    path: PathBuf,
    file: File,
    hash: Sha256,
    buffer: Vec<u8>,
    flushed: u64,
}

impl Sink {
    /// Starts the new and empty `file`, whose name is `path`, and reserves `len` bytes for it.
    pub(crate) fn new(file: File, path: PathBuf, len: u64) -> Result<Self> {
        disk::reserve(&file, &path, len).map_err(Error::io("reserve space for", &path))?;
        Ok(Self { path, file, hash: Sha256::new(), buffer: Vec::with_capacity(CHUNK), flushed: 0 })
    }

    /// Bytes written so far.
    pub(crate) fn position(&self) -> u64 {
        self.flushed + self.buffer.len() as u64
    }

    /// Appends `bytes`.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let n = bytes.len().min(CHUNK - self.buffer.len());
            self.buffer.extend_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
            if self.buffer.len() == CHUNK {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Appends zeros up to the position `end`.
    pub(crate) fn zeros_to(&mut self, end: u64) -> Result<()> {
        while self.position() < end {
            let n = (end - self.position()).min((CHUNK - self.buffer.len()) as u64);
            self.buffer.resize(self.buffer.len() + usize::try_from(n).unwrap_or(0), 0);
            if self.buffer.len() == CHUNK {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.hash.update(&self.buffer);
        disk::write(&self.file, &self.path, &self.buffer, self.flushed)
            .map_err(Error::io("write", &self.path))?;
        self.flushed += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Puts everything on the disk; returns length and hash.
    pub(crate) fn finish(mut self) -> Result<(u64, [u8; 32])> {
        self.flush()?;
        self.file.set_len(self.flushed).map_err(Error::io("write", &self.path))?;
        disk::flush_all(&self.file, &self.path).map_err(Error::io("sync", &self.path))?;
        Ok((self.flushed, self.hash.finalize().into()))
    }
}
