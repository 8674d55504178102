#![allow(unsafe_code)] // writes through `Out`

//! `y = W x` for group-64 affine weights, one element at a time.

use crate::arch::{Out, QUARTER};
use crate::quant::{GROUP, QuantData, QuantMatrix};
use crate::tile;
use half::bf16;
use std::ops::Range;

/// Group `g` of `row` as f32: `fma(q, scale, bias)`.
#[inline(always)]
pub(crate) fn dequantize_group(w: &QuantMatrix<'_>, row: usize, g: usize, out: &mut [f32; GROUP]) {
    let half_at = |bytes: &[u8], i: usize| bf16::from_le_bytes([bytes[i * 2], bytes[i * 2 + 1]]).to_f32();
    let set = |bytes: &[u8], out: &mut [f32], scale: f32, bias: f32| {
        if w.bits() == 8 {
            for (o, &q) in out.iter_mut().zip(bytes) {
                *o = f32::from(q).mul_add(scale, bias);
            }
        } else {
            for (pair, &byte) in out.chunks_exact_mut(2).zip(bytes) {
                pair[0] = f32::from(byte & 15).mul_add(scale, bias);
                pair[1] = f32::from(byte >> 4).mul_add(scale, bias);
            }
        }
    };
    match w.data() {
        QuantData::Rows { weights, scales, biases } => {
            let bytes = GROUP * w.bits() as usize / 8;
            let at = row * w.groups() + g;
            set(&weights[at * bytes..][..bytes], out, half_at(scales, at), half_at(biases, at));
        }
        QuantData::Tiles { data, panel_stride } => {
            let (panel, lane) = (row / tile::TILE_ROWS, row % tile::TILE_ROWS);
            let tile = &data[panel * panel_stride + g * tile::TILE_BYTES..][..tile::TILE_BYTES];
            let scale = half_at(&tile[tile::TILE_SCALES..], lane);
            let bias = half_at(&tile[tile::TILE_BIASES..], lane);
            for (k, part) in out.chunks_exact_mut(8).enumerate() {
                set(&tile[(k * tile::TILE_ROWS + lane) * 4..][..4], part, scale, bias);
            }
        }
    }
}

/// A whole row as f32.
#[inline(always)]
pub(crate) fn dequantize_row(w: &QuantMatrix<'_>, row: usize, out: &mut [f32]) {
    let mut group = [0.0; GROUP];
    for (g, part) in out.chunks_exact_mut(GROUP).enumerate() {
        dequantize_group(w, row, g, &mut group);
        part.copy_from_slice(&group);
    }
}

/// Rows `rows` of `W x` for each of `m_rows` rows of x.
///
/// # Safety
/// See `Table`: `out` is valid for these elements and nobody else uses them.
pub(crate) unsafe fn matmul(w: &QuantMatrix<'_>, rows: Range<usize>, x: &[f32], m_rows: usize, out: Out) {
    let mut group = [0.0; GROUP];
    for row in rows {
        for (m, x) in x.chunks_exact(w.cols()).take(m_rows).enumerate() {
            let mut partial = [0.0f32; GROUP / QUARTER];
            for (g, x) in x.chunks_exact(GROUP).enumerate() {
                dequantize_group(w, row, g, &mut group);
                for (c, (&weight, &x)) in group.iter().zip(x).enumerate() {
                    let sum = &mut partial[c / QUARTER];
                    *sum = weight.mul_add(x, *sum);
                }
            }
            let [p0, p1, p2, p3] = partial;
            // SAFETY: row and m are in the ranges that the caller vouches for.
            unsafe { *out.at(m, row) = (p0 + p1) + (p2 + p3) };
        }
    }
}
