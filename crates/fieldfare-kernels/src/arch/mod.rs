//! The inner loops, one folder for each instruction set, same file names in each.
//!
//! `scalar` says what every operation means, in plain f32, and is the oracle of the others. Every reduction has one
//! order, stated there in terms of columns and elements, not of vectors, and every multiply-add is fused, so the
//! vector versions give the same bits:
//!
//! - matmul: a weight is `fma(q, scale, bias)`; quarter `i` of every 64-column group (16 columns) adds into partial
//!   sum `i`, in column order over the whole row; the result is `(p0 + p1) + (p2 + p3)`.
//! - matmul_q: exact integer dot products of a group, groups in rising order into one f32 (see `scalar::matmul_q`).
//! - dot products and sums: element `i` adds into lane `i % 16`; the lanes are folded 16 -> 8 -> 4 -> 2 -> 1, each
//!   fold adding the upper half to the lower one.
//! - weighted sums: one element after the other.
//! - attention: blocks of positions, each by itself, joined in rising order (see `dispatch::attention`).
//!
//! NaN payloads are not part of the promise.

use crate::acts::{Acts, Line, Planes, Side};
use crate::kv::KvSlice;
use crate::quant::QuantMatrix;
use std::ops::Range;

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avxvnni;
#[cfg(target_arch = "aarch64")]
pub(crate) mod i8mm;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod output;
pub(crate) mod scalar;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use output::Out;

/// Columns of a group that share a partial sum of a matmul.
pub(crate) const QUARTER: usize = 16;
/// Lanes of a dot product or sum.
pub(crate) const LANES: usize = 16;

/// The functions of one instruction set. Calling one needs a CPU with the features of its folder, and:
///
/// - `matmul(w, rows, x, m_rows, out)`: `rows` inside the matrix, `x.len() == m_rows * w.cols()`, and `out` valid
///   for every row of `rows` and result below `m_rows`, written by nobody else meanwhile;
/// - `matmul_q(w, rows, acts, m_rows, out)`: the same, `acts.cols() == w.cols()` and `m_rows <= acts.rows()`;
/// - `quantize(x, planes, lines, sides)`: 64 of x and `planes` lines for each of `sides`;
/// - `dequantize_row(w, row, out)`: `row < w.rows()`, `out.len() == w.cols()`;
/// - `rms_norm(x, weight, eps, out)`: equal lengths; `rms_norm_in_place(x, weight, eps)` too;
/// - `rope(head, cos, sin)`: `head.len()` even, the others half as long;
/// - `gelu_mul`, `add`, `add_scaled`: equal lengths;
/// - `scores_many(q, width, keys, next, out, apart)`: `next` is what will be read after the keys, as long as they, a
///   hint; `width > 0`, q and keys whole rows of it, `apart` at least the number
///   of keys, and `out` reaches to `(queries - 1) * apart + keys` unless one of them is none;
/// - `weighted_many(p, apart, values, width, out)`: the same with `p` and `out` in the places of `out` and `q`;
/// - `join(side, o, with, part)`: o and part of equal lengths;
/// - `to_f16(x, out)`: equal lengths.
#[allow(clippy::type_complexity)] // these are the signatures, said once
pub(crate) struct Table {
    pub(crate) matmul: unsafe fn(&QuantMatrix<'_>, Range<usize>, &[f32], usize, Out),
    pub(crate) matmul_q: unsafe fn(&QuantMatrix<'_>, Range<usize>, &Acts, usize, Out),
    pub(crate) quantize: unsafe fn(&[f32], Planes, &mut [Line], &mut [Side]),
    pub(crate) xor: unsafe fn(&[u8]) -> u64,
    pub(crate) dequantize_row: unsafe fn(&QuantMatrix<'_>, usize, &mut [f32]),
    pub(crate) rms_norm: unsafe fn(&[f32], Option<&[f32]>, f32, &mut [f32]),
    pub(crate) rms_norm_in_place: unsafe fn(&mut [f32], Option<&[f32]>, f32),
    pub(crate) rope: unsafe fn(&mut [f32], &[f32], &[f32]),
    pub(crate) gelu_mul: unsafe fn(&mut [f32], &[f32]),
    pub(crate) add: unsafe fn(&mut [f32], &[f32]),
    pub(crate) add_scaled: unsafe fn(&mut [f32], f32, &[f32]),
    pub(crate) scale: unsafe fn(&mut [f32], f32),
    pub(crate) soft_cap: unsafe fn(&mut [f32], f32),
    pub(crate) scores_many: unsafe fn(&[f32], usize, KvSlice<'_>, KvSlice<'_>, &mut [f32], usize),
    pub(crate) weighted_many: unsafe fn(&[f32], usize, KvSlice<'_>, usize, &mut [f32]),
    pub(crate) exps: unsafe fn(&mut [f32]) -> (f32, f32),
    pub(crate) join: unsafe fn(&mut (f32, f32), &mut [f32], (f32, f32), &[f32]),
    pub(crate) to_f16: unsafe fn(&[f32], &mut [u16]),
}
