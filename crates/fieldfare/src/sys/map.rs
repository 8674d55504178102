//! Read-only mappings of files.
//!
//! A mapping costs address space, not memory: pages come from the page cache when touched and can be dropped by
//! the system at any time. The file must not shrink while it is mapped (the system would answer with a bus
//! error, see [`super::fault`]); model directories are replaced as a whole and never rewritten in place.
#![allow(unsafe_code)] // memmap2 cannot promise that nobody changes the file

use super::fault;
use memmap2::{Mmap, MmapOptions};
use std::fs::File;
use std::io;
use std::ops::Range;

/// A whole file, mapped read-only.
#[derive(Debug)]
pub struct Map {
    /// Nothing for an empty file.
    map: Option<Mmap>,
    /// Its number among the mappings whose faults are explained.
    watched: Option<usize>,
}

impl Drop for Map {
    fn drop(&mut self) {
        if let Some(number) = self.watched {
            fault::forget(number);
        }
    }
}

impl Map {
    /// Maps the first `len` bytes of an open regular file, which must have them.
    pub fn new(file: &File, len: u64) -> io::Result<Self> {
        if file.metadata()?.len() < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let len = usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        if len == 0 {
            return Ok(Self { map: None, watched: None }); // the system refuses empty mappings
        }
        // SAFETY: the mapping is read-only and handed out only as `&[u8]`. Its bytes could change if another process
        // wrote to the file, which the model directory's contract forbids; nothing here relies on bytes that were
        // checked once staying equal for memory safety, since all ranges are checked against the length, not the content.
        let map = unsafe { MmapOptions::new().len(len).map(file)? };
        Ok(Self { watched: fault::remember(&map), map: Some(map) })
    }

    /// The mapped bytes.
    pub fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }

    /// Has the system begin to read the pages of `range`, without waiting for them; where it takes no such advice, nothing
    /// is done. What lies beyond the end is left out.
    pub fn will_need(&self, range: Range<usize>) {
        if let Some((map, range)) = self.part(range) {
            will_need(map, range);
        }
    }

    /// Has the pages of `range` read and mapped, and waits for it: who touches them then waits for nothing. What lies beyond
    /// the end is left out.
    ///
    /// # Errors
    /// The system cannot do that ([`io::ErrorKind::Unsupported`], [`io::ErrorKind::InvalidInput`]), or a page cannot be read:
    /// an error here, where touching it would end the process.
    pub fn populate(&self, range: Range<usize>) -> io::Result<()> {
        self.part(range).map_or(Ok(()), |(map, range)| populate(map, range))
    }

    fn part(&self, range: Range<usize>) -> Option<(&Mmap, Range<usize>)> {
        let map = self.map.as_ref()?;
        let range = range.start..range.end.min(map.len());
        (!range.is_empty()).then_some((map, range))
    }
}

#[cfg(unix)]
fn will_need(map: &Mmap, range: Range<usize>) {
    // Refused, the pages are read when they are touched.
    let _ = map.advise_range(memmap2::Advice::WillNeed, range.start, range.len());
}

#[cfg(not(unix))]
fn will_need(_map: &Mmap, _range: Range<usize>) {}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn populate(map: &Mmap, range: Range<usize>) -> io::Result<()> {
    // From Linux 5.14 on; invalid before.
    map.advise_range(memmap2::Advice::PopulateRead, range.start, range.len())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn populate(_map: &Mmap, _range: Range<usize>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
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

    #[test]
    fn pages_asked_for_are_the_same_bytes_and_none_beyond_the_end() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..40_000u32).map(|i| (i % 251) as u8).collect();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        let map = Map::new(&file, bytes.len() as u64).unwrap();
        for range in [0..40_000, 5_000..9_000, 39_999..80_000, 50_000..60_000, 7..7] {
            map.will_need(range.clone());
            let can = map.populate(range);
            if let Err(error) = can {
                let kinds = [io::ErrorKind::Unsupported, io::ErrorKind::InvalidInput];
                assert!(kinds.contains(&error.kind()), "{error}");
            }
        }
        assert_eq!(map.bytes(), bytes);
        let empty = Map::new(&file, 0).unwrap();
        empty.will_need(0..1);
        empty.populate(0..1).unwrap();
    }

    /// A page that is no longer there: touched, it would end the process.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_page_that_cannot_be_read_is_an_error() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &[1; 64 << 10]).unwrap();
        let map = Map::new(&file, 64 << 10).unwrap();
        file.set_len(4096).unwrap();
        assert!(map.populate(0..4096).is_ok_and(|()| map.bytes()[0] == 1) || map.populate(0..4096).is_err());
        assert!(map.populate(32 << 10..64 << 10).is_err());
    }
}
