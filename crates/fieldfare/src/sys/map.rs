//! Read-only mappings of files.
//!
//! A mapping costs address space, not memory: pages come from the page cache when touched and can be dropped by
//! the system at any time. The file must not shrink while it is mapped (the system would answer with a bus
//! error); model directories are replaced as a whole and never rewritten in place.
#![allow(unsafe_code)] // memmap2 cannot promise that nobody changes the file

use memmap2::{Mmap, MmapOptions};
use std::fs::File;
use std::io;

/// A whole file, mapped read-only.
#[derive(Debug)]
pub struct Map(Option<Mmap>);

impl Map {
    /// Maps the first `len` bytes of an open regular file, which must have them.
    pub fn new(file: &File, len: u64) -> io::Result<Self> {
        if file.metadata()?.len() < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let len = usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        if len == 0 {
            return Ok(Self(None)); // the system refuses empty mappings
        }
        // SAFETY: the mapping is read-only and handed out only as `&[u8]`. Its bytes could change if another process
        // wrote to the file, which the model directory's contract forbids; nothing here relies on bytes that were
        // checked once staying equal for memory safety, since all ranges are checked against the length, not the content.
        let map = unsafe { MmapOptions::new().len(len).map(file)? };
        Ok(Self(Some(map)))
    }

    /// The mapped bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_what_is_there_and_no_more() {
        let mut file = tempfile::tempfile().unwrap();
        assert!(Map::new(&file, 0).unwrap().bytes().is_empty());
        std::io::Write::write_all(&mut file, b"some bytes").unwrap();
        assert_eq!(Map::new(&file, 4).unwrap().bytes(), b"some");
        assert!(Map::new(&file, 11).is_err());
    }
}
