//! Large buffers that come from the system and go back to it at once.
//!
//! An allocator keeps what several threads freed, in pieces that fit nothing else; a program that promises a bound on its
//! memory cannot have that for buffers of megabytes.

use std::io;
use std::ops::{Deref, DerefMut};

use memmap2::{MmapMut, MmapOptions};

/// Smaller buffers come from the allocator: they are cheap to keep.
const SMALL: usize = 64 << 10;

/// Zeroed bytes of a fixed number, aligned for words of 8 bytes.
#[derive(Debug)]
pub struct Buffer(Kind);

#[derive(Debug)]
enum Kind {
    /// Words, and the number of bytes.
    Small(Vec<u64>, usize),
    Large(MmapMut),
}

impl Buffer {
    /// `len` zeroed bytes.
    ///
    /// # Errors
    /// The system has no such memory.
    pub fn new(len: usize) -> io::Result<Self> {
        if len < SMALL {
            return Ok(Self(Kind::Small(vec![0; len.div_ceil(8)], len)));
        }
        Ok(Self(Kind::Large(MmapOptions::new().len(len).map_anon()?)))
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Kind::Small(words, len) => &bytemuck::cast_slice(words)[..*len],
            Kind::Large(map) => map,
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Kind::Small(words, len) => &mut bytemuck::cast_slice_mut(words)[..*len],
            Kind::Large(map) => map,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_length_is_zeroed_and_writable() {
        for len in [0, 1, SMALL - 1, SMALL, SMALL + 1, 3 << 20] {
            let mut buffer = Buffer::new(len).expect("memory");
            assert!(buffer.len() == len && buffer.iter().all(|b| *b == 0));
            buffer.fill(7);
            assert!(buffer.iter().all(|b| *b == 7));
            assert_eq!(buffer.as_ptr().addr() % 8, 0);
        }
    }
}
