#![allow(unsafe_code)] // calls table functions after the checks, and gives workers disjoint parts of a buffer

//! The safe entry points of the integer products: quantize activations once, use them with any number of matrices.

use super::Kernels;
use super::ops::SERIAL;
use crate::acts::{Acts, Planes};
use crate::arch::Out;
use crate::pool::Pool;
use crate::quant::{GROUP, QuantMatrix};
use crate::tile::TILE_ROWS;
use std::ops::Range;

/// Activations below which quantizing stays on the calling thread: some 10 us of work.
const SERIAL_ACTS: usize = 32 * 1024;

/// Multiply-adds below which a product stays on the calling thread: in cache they take a quarter of the time of f32
/// ones, or less.
const SERIAL_Q: usize = 4 * SERIAL;

/// Start of a part of a buffer that workers write in disjoint pieces.
#[derive(Clone, Copy)]
pub(super) struct Start<T>(*mut T);

// SAFETY: a pointer; using it is unsafe and asks for disjointness.
unsafe impl<T: Send> Send for Start<T> {}
// SAFETY: as for Send.
unsafe impl<T: Send> Sync for Start<T> {}

impl<T> Start<T> {
    pub(super) fn new(buffer: &mut [T]) -> Start<T> {
        Start(buffer.as_mut_ptr())
    }

    /// Elements `range`.
    ///
    /// # Safety
    /// They are inside the buffer, which is still borrowed, and no other thread uses them.
    pub(super) unsafe fn part<'a>(&self, range: Range<usize>) -> &'a mut [T] {
        // SAFETY: by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(range.start), range.len()) }
    }
}

impl Kernels {
    /// Fills `acts` with `m_rows` rows of `cols` activations from `x`, the same integers on every instruction set.
    ///
    /// With `largest` the largest absolute value of a group of 64 and `n` 127 ([`Planes::One`]) or 32512
    /// ([`Planes::Two`]), all in f32: `step = largest / n` and `X = x * (n / largest)`, rounded to the nearest
    /// integer, ties to even. Groups with nothing above 2^-100 become zeros. A group with an infinity or a NaN gets
    /// zeros and a step of NaN: every element of that row's products is NaN.
    ///
    /// # Panics
    /// If `cols` is not whole groups of 64 or `x` is not `m_rows * cols` long.
    pub fn quantize_acts(
        &self,
        pool: &Pool,
        x: &[f32],
        m_rows: usize,
        cols: usize,
        planes: Planes,
        acts: &mut Acts,
    ) {
        assert_eq!(Some(x.len()), m_rows.checked_mul(cols), "x against {m_rows} rows of {cols}");
        let (lines, sides) = acts.shape(m_rows, cols, planes);
        let groups = sides.len();
        if x.len() <= SERIAL_ACTS {
            // SAFETY: the CPU has this table's features; `shape` made the lengths fit.
            return unsafe { (self.table.quantize)(x, planes, lines, sides) };
        }
        let (lines, sides) = (Start::new(lines), Start::new(sides));
        pool.for_ranges(groups, 1, |_, part| {
            let per_group = planes.count();
            // SAFETY: the CPU has this table's features; the lengths are those of `part` groups, every group is in
            // one part, and `acts` stays borrowed until the pool returns.
            unsafe {
                let x = &x[part.start * GROUP..part.end * GROUP];
                let lines = lines.part(part.start * per_group..part.end * per_group);
                (self.table.quantize)(x, planes, lines, sides.part(part));
            }
        });
    }

    /// `y[m * rows + r] = sum_c W[r][c] * x[m][c]` for the first `m_rows` rows of `acts`: integer dot products of
    /// each group of 64 columns, exact; scales, biases and steps in f32, groups in rising order.
    ///
    /// An element depends on its own matrix row and activations only: the same bits for every `m_rows`, pool size,
    /// split, layout and instruction set. A row of activations that had an infinity or a NaN gives NaN.
    ///
    /// # Panics
    /// If the columns differ, `acts` has fewer than `m_rows` rows or `y` is not `m_rows * w.rows()` long.
    pub fn matmul_q(&self, pool: &Pool, w: &QuantMatrix<'_>, acts: &Acts, m_rows: usize, y: &mut [f32]) {
        check(w, w.rows(), acts, m_rows, y);
        let out = Out::new(y, w.rows(), 0);
        let work = w.rows().saturating_mul(w.cols()).saturating_mul(m_rows);
        let part = |rows: Range<usize>| {
            // SAFETY: the CPU has this table's features; shapes were checked; `for_ranges` gives every row to one
            // worker, and `y` stays borrowed until the pool returns.
            unsafe { (self.table.matmul_q)(w, rows, acts, m_rows, out) }
        };
        if work <= SERIAL_Q {
            part(0..w.rows());
        } else {
            pool.for_ranges(w.rows(), TILE_ROWS, |_, rows| part(rows));
        }
    }

    /// [`Kernels::matmul_q`] of some rows of the matrix, on the calling thread:
    /// `y[m * rows.len() + r - rows.start]`, with the same bits.
    ///
    /// # Panics
    /// If `rows` reaches beyond the matrix, or as [`Kernels::matmul_q`] with `y` `m_rows * rows.len()` long.
    pub fn matmul_q_rows(
        &self,
        w: &QuantMatrix<'_>,
        rows: Range<usize>,
        acts: &Acts,
        m_rows: usize,
        y: &mut [f32],
    ) {
        assert!(rows.start <= rows.end && rows.end <= w.rows(), "rows {rows:?} of {}", w.rows());
        check(w, rows.len(), acts, m_rows, y);
        if !rows.is_empty() {
            let out = Out::new(y, rows.len(), rows.start);
            // SAFETY: the CPU has this table's features; rows and shapes were checked; `y` is ours alone.
            unsafe { (self.table.matmul_q)(w, rows, acts, m_rows, out) }
        }
    }

    /// Reads `bytes` once, 64 at a time, and returns the XOR of their little-endian 8-byte words (bytes beyond the
    /// last whole 64 are left out): the rate that memory gives, to hold a kernel's against.
    pub fn stream(&self, pool: &Pool, bytes: &[u8]) -> u64 {
        let sum = std::sync::atomic::AtomicU64::new(0);
        let lines = bytes.len() / 64;
        pool.for_ranges(lines, 1, |_, part| {
            // SAFETY: the CPU has this table's features.
            let part = unsafe { (self.table.xor)(&bytes[part.start * 64..part.end * 64]) };
            sum.fetch_xor(part, std::sync::atomic::Ordering::Relaxed);
        });
        sum.into_inner()
    }
}

fn check(w: &QuantMatrix<'_>, rows: usize, acts: &Acts, m_rows: usize, y: &[f32]) {
    assert_eq!(acts.cols(), w.cols(), "columns of activations against those of the matrix");
    assert!(m_rows <= acts.rows(), "{m_rows} rows of {} activations", acts.rows());
    assert_eq!(Some(y.len()), m_rows.checked_mul(rows), "y against {m_rows} rows of {rows}");
}
