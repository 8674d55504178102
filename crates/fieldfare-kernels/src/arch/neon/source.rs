#![allow(unsafe_code)] // pointers into matrices whose shapes were checked

//! Where the weights, scales and biases of 16 matrix rows lie, for the integer products here and of `i8mm`. Those want a quad of rows
//! at a time, one row a lane.

use crate::quant::{QuantData, QuantMatrix};
use crate::tile::{self, TILE_BYTES, TILE_ROWS};
use std::arch::aarch64::*;

/// A block of 16 rows. Rows beyond the last repeat it; their results are dropped.
#[allow(clippy::large_enum_variant)] // one at a time, on the stack
pub(in crate::arch) enum Source {
    /// Its first tile.
    Tiles(*const u8),
    /// The start of each row.
    Rows { weights: [*const u8; TILE_ROWS], scales: [*const u8; TILE_ROWS], biases: [*const u8; TILE_ROWS] },
}

impl Source {
    /// Block `block`, whose first row is inside the matrix.
    pub(in crate::arch) fn new(w: &QuantMatrix<'_>, block: usize) -> Source {
        match w.data() {
            QuantData::Tiles { data, panel_stride } => Source::Tiles(data[block * panel_stride..].as_ptr()),
            QuantData::Rows { weights, scales, biases } => {
                let start = |bytes: &[u8], row_bytes: usize| {
                    let row = |lane: usize| (block * TILE_ROWS + lane).min(w.rows() - 1);
                    std::array::from_fn(|lane| bytes[row(lane) * row_bytes..].as_ptr())
                };
                let side = w.groups() * 2;
                Source::Rows {
                    weights: start(weights, w.cols() / 8 * w.bits() as usize),
                    scales: start(scales, side),
                    biases: start(biases, side),
                }
            }
        }
    }

    /// Word `k` of group `g` of the four rows of a quad.
    ///
    /// # Safety
    /// The matrix is in tiles and has that group; `quad` is below 4 and `k` below 8.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(in crate::arch) unsafe fn word(&self, quad: usize, g: usize, k: usize) -> uint32x4_t {
        // SAFETY: word k of 16 rows is at 64 k of a tile.
        unsafe {
            let Source::Tiles(tile) = self else { std::hint::unreachable_unchecked() };
            vreinterpretq_u32_u8(vld1q_u8(tile.add(g * TILE_BYTES + k * 64 + quad * 16)))
        }
    }

    /// Bytes `16 part..` of group `g` of row `lane`, of which a group has `4 N`.
    ///
    /// # Safety
    /// The matrix is in source order, of words `N` a group, and has that group; `lane` is below 16 and `part` below `N / 4`.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(in crate::arch) unsafe fn bytes<const N: usize>(
        &self,
        lane: usize,
        g: usize,
        part: usize,
    ) -> uint8x16_t {
        // SAFETY: a row has 4 N bytes for each group.
        unsafe {
            let Source::Rows { weights, .. } = self else { std::hint::unreachable_unchecked() };
            vld1q_u8(weights[lane].add(g * N * 4 + part * 16))
        }
    }

    /// Scales and biases of group `g` of a quad.
    ///
    /// # Safety
    /// The matrix has that group, and is in tiles if `TILED`, else in source order; `quad` is below 4.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(in crate::arch) unsafe fn sides<const TILED: bool>(
        &self,
        quad: usize,
        g: usize,
    ) -> (float32x4_t, float32x4_t) {
        let wide = |side: uint16x4_t| vreinterpretq_f32_u32(vshll_n_u16::<16>(side));
        // SAFETY: a tile has 16 of each, a source row one of each for every group.
        unsafe {
            match self {
                Source::Tiles(tile) if TILED => {
                    let at = |part: usize| tile.add(g * TILE_BYTES + part + quad * 8);
                    let side = |part: usize| wide(vreinterpret_u16_u8(vld1_u8(at(part))));
                    (side(tile::TILE_SCALES), side(tile::TILE_BIASES))
                }
                Source::Rows { scales, biases, .. } if !TILED => {
                    let side = |rows: &[*const u8; TILE_ROWS]| {
                        let one = |i: usize| rows[quad * 4 + i].cast::<u16>().add(g).read_unaligned();
                        wide(vld1_u16([one(0), one(1), one(2), one(3)].as_ptr()))
                    };
                    (side(scales), side(biases))
                }
                _ => std::hint::unreachable_unchecked(),
            }
        }
    }
}
