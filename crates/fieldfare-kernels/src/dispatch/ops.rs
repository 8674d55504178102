#![allow(unsafe_code)] // one call of a table function for each operation, after the checks

//! The safe entry points: shapes are checked here, so that the inner loops may trust them.
//!
//! All panics are programming errors of the caller (lengths that do not fit together); no values of weights or
//! activations panic. What infinities and NaN do is said with each operation.

use super::Kernels;
use crate::arch::Out;
use crate::pool::Pool;
use crate::quant::QuantMatrix;
use crate::tile::TILE_ROWS;
use std::ops::Range;

/// Multiply-adds below which a matmul stays on the calling thread: about 2 us of work, a few times what handing it
/// out costs.
pub(super) const SERIAL: usize = 32 * 1024;

impl Kernels {
    /// `y[m * rows + r] = sum_c W[r][c] * x[m * cols + c]` for `m < m_rows`: every row of x times the matrix, in f32.
    ///
    /// An element depends on its own matrix row and x row only: the same bits for every `m_rows`, pool size and
    /// split, from source rows and from tiles. Infinities and NaN in x reach every element of their result.
    ///
    /// # Panics
    /// If `x` is not `m_rows * w.cols()` or `y` not `m_rows * w.rows()` long.
    pub fn matmul(&self, pool: &Pool, w: &QuantMatrix<'_>, x: &[f32], m_rows: usize, y: &mut [f32]) {
        check_matmul(w, w.rows(), x, m_rows, y);
        let out = Out::new(y, w.rows(), 0);
        let work = w.rows().saturating_mul(w.cols()).saturating_mul(m_rows);
        let part = |rows: Range<usize>| {
            // SAFETY: the CPU has this table's features; lengths were checked; `for_ranges` gives every row to one
            // worker, and `y` stays borrowed until the pool returns.
            unsafe { (self.table.matmul)(w, rows, x, m_rows, out) }
        };
        if work <= SERIAL {
            part(0..w.rows());
        } else {
            pool.for_ranges(w.rows(), TILE_ROWS, |_, rows| part(rows));
        }
    }

    /// [`Kernels::matmul`] of some rows of the matrix, on the calling thread:
    /// `y[m * rows.len() + r - rows.start]`, with the same bits.
    ///
    /// # Panics
    /// If `rows` reaches beyond the matrix, `x` is not `m_rows * w.cols()` or `y` not `m_rows * rows.len()` long.
    pub fn matmul_rows(
        &self,
        w: &QuantMatrix<'_>,
        rows: Range<usize>,
        x: &[f32],
        m_rows: usize,
        y: &mut [f32],
    ) {
        assert!(rows.start <= rows.end && rows.end <= w.rows(), "rows {rows:?} of {}", w.rows());
        check_matmul(w, rows.len(), x, m_rows, y);
        if !rows.is_empty() {
            let out = Out::new(y, rows.len(), rows.start);
            // SAFETY: the CPU has this table's features; rows and lengths were checked; `y` is ours alone.
            unsafe { (self.table.matmul)(w, rows, x, m_rows, out) }
        }
    }

    /// Row `row` of the matrix as f32, the very values that [`Kernels::matmul`] multiplies with.
    ///
    /// # Panics
    /// If there is no such row or `out` is not `w.cols()` long.
    pub fn dequantize_row(&self, w: &QuantMatrix<'_>, row: usize, out: &mut [f32]) {
        assert!(row < w.rows(), "row {row} of {}", w.rows());
        assert_eq!(out.len(), w.cols(), "out against columns");
        // SAFETY: the CPU has this table's features; row and length were checked.
        unsafe { (self.table.dequantize_row)(w, row, out) }
    }

    /// `out = x / sqrt(mean(x^2) + eps) * weight` of one row (no weight: 1). The weight multiplies as it is, without
    /// "1 +". The mean is formed in f64, so no f32 overflows it. An infinity gives NaN in its own place and zeros
    /// elsewhere, a NaN gives NaN everywhere.
    ///
    /// # Panics
    /// If lengths differ.
    pub fn rms_norm(&self, x: &[f32], weight: Option<&[f32]>, eps: f32, out: &mut [f32]) {
        assert_eq!(x.len(), out.len(), "x against out");
        assert!(weight.is_none_or(|w| w.len() == x.len()), "x against weight");
        // SAFETY: the CPU has this table's features; lengths were checked.
        unsafe { (self.table.rms_norm)(x, weight, eps, out) }
    }

    /// [`Kernels::rms_norm`] with one buffer.
    ///
    /// # Panics
    /// If lengths differ.
    pub fn rms_norm_in_place(&self, x: &mut [f32], weight: Option<&[f32]>, eps: f32) {
        assert!(weight.is_none_or(|w| w.len() == x.len()), "x against weight");
        // SAFETY: the CPU has this table's features; lengths were checked.
        unsafe { (self.table.rms_norm_in_place)(x, weight, eps) }
    }

    /// Turns one head by its position, halves layout: element i pairs with i + d/2. A pair with cos 1 and sin 0
    /// stays as it is, bit for bit (but for the sign of a zero).
    ///
    /// # Panics
    /// If the head's length is odd or the tables are not half as long.
    pub fn rope(&self, head: &mut [f32], cos: &[f32], sin: &[f32]) {
        assert!(head.len().is_multiple_of(2), "a head of {} has no halves", head.len());
        assert!(cos.len() == head.len() / 2 && sin.len() == cos.len(), "head against tables");
        // SAFETY: the CPU has this table's features; lengths were checked.
        unsafe { (self.table.rope)(head, cos, sin) }
    }

    /// `gate = gelu(gate) * up` with the tanh form of GELU. Large gates saturate to themselves or to -0.
    ///
    /// # Panics
    /// If lengths differ.
    pub fn gelu_mul(&self, gate: &mut [f32], up: &[f32]) {
        assert_eq!(gate.len(), up.len(), "gate against up");
        // SAFETY: the CPU has this table's features; lengths were checked.
        unsafe { (self.table.gelu_mul)(gate, up) }
    }

    /// `x += y`
    ///
    /// # Panics
    /// If lengths differ.
    pub fn add(&self, x: &mut [f32], y: &[f32]) {
        assert_eq!(x.len(), y.len(), "x against y");
        // SAFETY: the CPU has this table's features; lengths were checked.
        unsafe { (self.table.add)(x, y) }
    }

    /// `x += a * y`, fused.
    ///
    /// # Panics
    /// If lengths differ.
    pub fn add_scaled(&self, x: &mut [f32], a: f32, y: &[f32]) {
        assert_eq!(x.len(), y.len(), "x against y");
        // SAFETY: the CPU has this table's features; lengths were checked.
        unsafe { (self.table.add_scaled)(x, a, y) }
    }

    /// `x *= a`
    pub fn scale(&self, x: &mut [f32], a: f32) {
        // SAFETY: the CPU has this table's features.
        unsafe { (self.table.scale)(x, a) }
    }

    /// `x = cap * tanh(x / cap)`. Infinities become +-cap, NaN stays. `cap` must not be 0 (that gives NaN).
    pub fn soft_cap(&self, x: &mut [f32], cap: f32) {
        // SAFETY: the CPU has this table's features.
        unsafe { (self.table.soft_cap)(x, cap) }
    }

    /// IEEE half floats as bits, rounded to the nearest, ties to even. As IEEE has it, 65520 and above become
    /// infinity: only values known to be small (normed keys and values) belong in f16. NaN stays NaN.
    ///
    /// # Panics
    /// If lengths differ.
    pub fn to_f16(&self, x: &[f32], out: &mut [u16]) {
        assert_eq!(x.len(), out.len(), "x against out");
        // SAFETY: the CPU has this table's features; lengths were checked.
        unsafe { (self.table.to_f16)(x, out) }
    }
}

fn check_matmul(w: &QuantMatrix<'_>, rows: usize, x: &[f32], m_rows: usize, y: &[f32]) {
    assert_eq!(Some(x.len()), m_rows.checked_mul(w.cols()), "x against {m_rows} rows of {}", w.cols());
    assert_eq!(Some(y.len()), m_rows.checked_mul(rows), "y against {m_rows} rows of {rows}");
}
