//! Rows of a KV cache as attention reads them.

use std::ops::Range;

/// A run of cached keys or values in the type they are stored in.
#[derive(Debug, Clone, Copy)]
pub enum KvSlice<'a> {
    /// Exact.
    F32(&'a [f32]),
    /// IEEE half floats as bits.
    F16(&'a [u16]),
}

impl<'a> KvSlice<'a> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            KvSlice::F32(data) => data.len(),
            KvSlice::F16(data) => data.len(),
        }
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements `range`.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> KvSlice<'a> {
        match self {
            KvSlice::F32(data) => KvSlice::F32(&data[range]),
            KvSlice::F16(data) => KvSlice::F16(&data[range]),
        }
    }
}
