#![allow(unsafe_code)] // owns raw memory: the alignment of a `Vec<u8>` is 1

//! Zeroed bytes at a chosen alignment: 64 for vectors, 4096 for direct reads, 2 MiB for huge pages.
//!
//! The memory comes from the allocator's zeroed path with a small alignment and is aligned inside, because that
//! path maps fresh pages for large sizes: nothing is touched, so unused parts cost address space only.

use bytemuck::Pod;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Smallest alignment of an [`AlignedBuf`]: a cache line, a 512-bit vector.
pub const MIN_ALIGN: usize = 64;

const BASE_ALIGN: usize = 16;

/// A buffer that could not be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// The alignment is not a power of two.
    #[error("alignment {0} is not a power of two")]
    Alignment(usize),
    /// The system refused, or the size does not fit the address space.
    #[error("cannot allocate {len} bytes at alignment {align}")]
    Memory {
        /// Bytes asked for.
        len: usize,
        /// Alignment asked for.
        align: usize,
    },
}

/// A fixed number of bytes, zero at first, starting at a multiple of the alignment.
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
    align: usize,
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the buffer owns its memory like a Box<[u8]>; bytes have no thread of their own.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// `len` zero bytes at a multiple of `align`, which is raised to [`MIN_ALIGN`]. Large buffers are not touched:
    /// their pages become resident at the first write.
    ///
    /// # Errors
    /// [`AllocError`] if `align` is not a power of two or the memory is not to be had.
    pub fn zeroed(len: usize, align: usize) -> Result<AlignedBuf, AllocError> {
        if !align.is_power_of_two() {
            return Err(AllocError::Alignment(align));
        }
        let align = align.max(MIN_ALIGN);
        let failed = AllocError::Memory { len, align };
        let bytes = len.checked_add(align).ok_or(failed)?;
        let layout = Layout::from_size_align(bytes, BASE_ALIGN).map_err(|_| failed)?;
        // SAFETY: the layout's size is at least `align`, so it is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(failed)?;
        let offset = base.as_ptr().align_offset(align);
        debug_assert!(offset < align);
        // SAFETY: `offset < align`, so start and the `len` bytes behind it lie in the allocation.
        let start = unsafe { base.add(offset) };
        Ok(AlignedBuf { start, len, align, base, layout })
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The alignment that was asked for (at least [`MIN_ALIGN`]).
    pub fn align(&self) -> usize {
        self.align
    }

    /// First byte, for system calls.
    pub fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// First byte, for system calls.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `len` initialized (zeroed) bytes at `start` belong to this buffer.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The bytes.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// As many whole `T` as fit. Alignments above that of the buffer do not exist among plain types; should one
    /// come, the view is empty.
    pub fn typed<T: Pod>(&self) -> &[T] {
        let used = self.whole::<T>();
        bytemuck::try_cast_slice(&self.as_slice()[..used]).unwrap_or(&[])
    }

    /// As [`AlignedBuf::typed`], for writing.
    pub fn typed_mut<T: Pod>(&mut self) -> &mut [T] {
        let used = self.whole::<T>();
        bytemuck::try_cast_slice_mut(&mut self.as_mut_slice()[..used]).unwrap_or(&mut [])
    }

    fn whole<T>(&self) -> usize {
        self.len.checked_div(size_of::<T>()).unwrap_or(0) * size_of::<T>()
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: `base` came from the same allocator with this layout and is freed once.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AlignedBuf")
            .field("len", &self.len)
            .field("align", &self.align)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_and_aligned_at_every_power_of_two() {
        for shift in 0..=21 {
            for len in [0, 1, 63, 64, 100_000] {
                let mut buf = AlignedBuf::zeroed(len, 1 << shift).unwrap();
                assert_eq!(buf.as_ptr().addr() % (1 << shift).max(MIN_ALIGN), 0);
                assert_eq!((buf.len(), buf.is_empty()), (len, len == 0));
                assert!(buf.as_slice().iter().all(|&b| b == 0));
                buf.as_mut_slice().fill(7);
                assert!(buf.as_slice().iter().all(|&b| b == 7));
            }
        }
    }

    #[test]
    fn typed_views_share_the_bytes_and_drop_the_rest() {
        let mut buf = AlignedBuf::zeroed(4 * 5 + 3, 4096).unwrap();
        buf.typed_mut::<f32>()[4] = 1.5;
        assert_eq!(buf.typed::<f32>(), &[0.0, 0.0, 0.0, 0.0, 1.5]);
        assert_eq!(buf.typed::<u16>().len(), 11);
        assert_eq!(buf.typed::<[u8; 0]>().len(), 0);
        assert_eq!(&buf.as_slice()[16..20], &1.5f32.to_ne_bytes());
    }

    #[test]
    fn refusals_are_typed() {
        assert_eq!(AlignedBuf::zeroed(1, 3).unwrap_err(), AllocError::Alignment(3));
        assert_eq!(AlignedBuf::zeroed(1, 0).unwrap_err(), AllocError::Alignment(0));
        assert!(matches!(AlignedBuf::zeroed(usize::MAX, 64), Err(AllocError::Memory { .. })));
        assert!(matches!(AlignedBuf::zeroed(isize::MAX as usize - 100, 64), Err(AllocError::Memory { .. })));
    }
}
