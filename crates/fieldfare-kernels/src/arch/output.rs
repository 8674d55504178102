#![allow(unsafe_code)] // several workers write disjoint rows of one result

//! Where a matmul part writes: rows of a result that other workers fill at the same time.

use std::ops::Range;

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

/// Writes the results of rows `first..first + L` for x row `m`, as far as they are in `rows`.
///
/// # Safety
/// `out` is valid for `rows` and `m`, and nobody else uses these elements.
#[inline(always)]
pub(in crate::arch) unsafe fn store<const L: usize>(
    out: Out,
    m: usize,
    first: usize,
    rows: &Range<usize>,
    sums: &[f32; L],
) {
    if rows.start <= first && first + L <= rows.end {
        // SAFETY: the L elements from the first on are all in `rows`, by the caller valid and ours.
        unsafe { out.at(m, first).cast::<[f32; L]>().write_unaligned(*sums) };
    } else {
        for (lane, &sum) in sums.iter().enumerate() {
            if rows.contains(&(first + lane)) {
                // SAFETY: the row is in `rows`.
                unsafe { *out.at(m, first + lane) = sum };
            }
        }
    }
}
