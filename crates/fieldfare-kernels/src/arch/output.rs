#![allow(unsafe_code)] // several workers write disjoint rows of one result

//! Where a matmul part writes: rows of a result that other workers fill at the same time.

/// Results `m` (rows of x) of a block of matrix rows that starts at `first`: element (m, row) is at
/// `m * stride + row - first`.
#[derive(Clone, Copy)]
pub(crate) struct Out {
    start: *mut f32,
    stride: usize,
    first: usize,
}

// SAFETY: a pointer and two numbers; writing through it is unsafe and asks for disjointness.
unsafe impl Send for Out {}
// SAFETY: as for Send.
unsafe impl Sync for Out {}

impl Out {
    /// Rows `first..first + stride` of results that lie densely in `y`.
    pub(crate) fn new(y: &mut [f32], stride: usize, first: usize) -> Out {
        Out { start: y.as_mut_ptr(), stride, first }
    }

    /// Address of element (m, row).
    ///
    /// # Safety
    /// The element is inside the slice that `self` was made from, which is still borrowed, and no other thread
    /// uses it.
    pub(crate) unsafe fn at(self, m: usize, row: usize) -> *mut f32 {
        // SAFETY: by the caller.
        unsafe { self.start.add(m * self.stride + row - self.first) }
    }
}
