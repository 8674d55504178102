#![allow(unsafe_code)] // writes through `Out`

//! `y = W x` with integer activations, one element at a time: the arithmetic that every instruction set repeats.
//!
//! For each group, in rising order, with q the weights and X the activations of its 64 columns:
//!
//! ```text
//! dot = sum of q * X                     an integer, exact: at most 64 * 255 * 32512 < 2^30
//! t   = fma(scale, f32(dot), bias * sum) f32(dot) rounds to nearest even; sum = sum of X, exact in f32
//! y   = fma(step, t, y)                  y starts as 0
//! ```
//!
//! How an instruction set forms the dot product is its own affair, the rest has no freedom.

use crate::acts::{Acts, Line, Planes, place};
use crate::arch::Out;
use crate::quant::{GROUP, QuantData, QuantMatrix};
use crate::tile;
use half::bf16;
use std::ops::Range;

/// Group `g` of `row`: weights where [`Line`] has their columns; scale and bias.
#[inline(always)]
fn group(w: &QuantMatrix<'_>, row: usize, g: usize, q: &mut [u8; GROUP]) -> (f32, f32) {
    let half_at = |bytes: &[u8], i: usize| bf16::from_le_bytes([bytes[i * 2], bytes[i * 2 + 1]]).to_f32();
    let nibbles = |word: &[u8], q: &mut [u8]| {
        for (j, &byte) in word.iter().enumerate() {
            q[j] = byte & 15;
            q[4 + j] = byte >> 4;
        }
    };
    match w.data() {
        QuantData::Rows { weights, scales, biases } => {
            let bytes = GROUP * w.bits() as usize / 8;
            let at = row * w.groups() + g;
            let weights = &weights[at * bytes..][..bytes];
            if w.bits() == 8 {
                for (c, &weight) in weights.iter().enumerate() {
                    q[place(c)] = weight;
                }
            } else {
                for (word, q) in weights.chunks_exact(4).zip(q.chunks_exact_mut(8)) {
                    nibbles(word, q);
                }
            }
            (half_at(scales, at), half_at(biases, at))
        }
        QuantData::Tiles { data, panel_stride } => {
            let (panel, lane) = (row / tile::TILE_ROWS, row % tile::TILE_ROWS);
            let tile = &data[panel * panel_stride + g * tile::TILE_BYTES..][..tile::TILE_BYTES];
            for (k, q) in q.chunks_exact_mut(8).enumerate() {
                nibbles(&tile[(k * tile::TILE_ROWS + lane) * 4..][..4], q);
            }
            (half_at(&tile[tile::TILE_SCALES..], lane), half_at(&tile[tile::TILE_BIASES..], lane))
        }
    }
}

#[inline(always)]
fn dot(q: &[u8; GROUP], line: &Line) -> i32 {
    q.iter().zip(&line.0).map(|(&q, &x)| i32::from(q) * i32::from(x)).sum()
}

/// Rows `rows` of `W x` for the first `m_rows` rows of activations.
///
/// # Safety
/// See `Table`: `out` is valid for these elements and nobody else uses them.
pub(crate) unsafe fn matmul_q(w: &QuantMatrix<'_>, rows: Range<usize>, acts: &Acts, m_rows: usize, out: Out) {
    let (groups, planes) = (w.groups(), acts.planes());
    let width = groups * planes.count();
    let mut q = [0; GROUP];
    for row in rows {
        for m in 0..m_rows {
            let lines = acts.lines()[m * width..][..width].chunks_exact(planes.count());
            let sides = &acts.sides()[m * groups..][..groups];
            let mut y = 0.0f32;
            for (g, (lines, side)) in lines.zip(sides).enumerate() {
                let (scale, bias) = group(w, row, g, &mut q);
                let dot = match planes {
                    Planes::One => dot(&q, &lines[0]),
                    Planes::Two => dot(&q, &lines[0]) * 256 + dot(&q, &lines[1]),
                };
                let t = scale.mul_add(dot as f32, bias * side.sum);
                y = side.step.mul_add(t, y);
            }
            // SAFETY: row and m are in the ranges that the caller vouches for.
            unsafe { *out.at(m, row) = y };
        }
    }
}
