#![allow(unsafe_code)] // vector loads and stores, and one instruction that has no stable function yet

//! `y = W x` with integer activations and `usmmla`, for two rows of activations and more (one row is `neon`'s): 2 matrix
//! rows of 8 columns times 2 rows of activations of the same columns, 32 products where `sdot` has 16.
//!
//! Both sides have to be put together so. Words `2j` and `2j + 1` of two rows, one vector, give with their low nibbles
//! the even columns of 16, with their high ones the odd columns: 3 instructions for 2 vectors, from tiles and from rows in source
//! order alike. 4 rows of a group are 16 such vectors, which stay in registers while all rows of activations
//! of a pass go by; these are put in pairs once for all blocks of a call ([`Pair`]). So `usmmla` is what a pass is made
//! of: for two rows of activations 32 of them with two planes, 8 loads of two vectors each and some 20 instructions for
//! scales, biases and sums. One sum does for both planes: the high one first, shifted up before the low one comes.
//! Weights are unsigned here, so those of 8 bits need no correction, and only two zips to become two vectors.
//!
//! An odd last row of activations makes a pair with itself, at the price that `sdot` would have.

use crate::acts::{Acts, Planes, Side};
use crate::arch::neon::source::Source;
use crate::arch::output::store;
use crate::arch::{Out, neon};
use crate::quant::{GROUP, QuantData, QuantMatrix};
use crate::tile::TILE_ROWS;
use std::arch::aarch64::*;
use std::arch::asm;
use std::ops::Range;

/// Vectors of two rows of a group, 8 columns each.
const CHUNKS: usize = GROUP / 8;
/// Pairs of activation rows in a pass: with more, their sums (128 bytes each) crowd the first-level cache.
const PAIRS: usize = 32;
/// Bytes of activations that pass together over all blocks of matrix rows: half of the smallest usual second-level cache. Not
/// measured.
const NEAR: usize = 256 << 10;

/// Two rows of activations in one group. Vectors of four floats hold first, second, first, second.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
struct Pair<const P: usize> {
    /// Chunk by chunk 8 columns of the first row, then of the second.
    planes: [[[i8; 16]; CHUNKS]; P],
    steps: [f32; 4],
    sums: [f32; 4],
}

impl<const P: usize> Pair<P> {
    const NONE: Pair<P> = Pair { planes: [[[0; 16]; CHUNKS]; P], steps: [0.0; 4], sums: [0.0; 4] };
}

/// The sums of a pair for a block: two matrix rows in each vector, the first one's with both rows of activations first.
type Sums = [float32x4_t; TILE_ROWS / 2];

/// See `Table`.
#[target_feature(enable = "neon,dotprod,i8mm")]
pub(super) unsafe fn matmul_q(w: &QuantMatrix<'_>, rows: Range<usize>, acts: &Acts, m_rows: usize, out: Out) {
    // SAFETY: the caller's promise is passed on; words, layout and planes are those of the operands.
    unsafe {
        match (w.bits(), w.data(), acts.planes()) {
            _ if m_rows < 2 => neon::matmul_q::matmul_q(w, rows, acts, m_rows, out),
            (4, QuantData::Tiles { .. }, Planes::One) => blocks::<8, true, 1>(w, rows, acts, m_rows, out),
            (4, QuantData::Tiles { .. }, Planes::Two) => blocks::<8, true, 2>(w, rows, acts, m_rows, out),
            (4, QuantData::Rows { .. }, Planes::One) => blocks::<8, false, 1>(w, rows, acts, m_rows, out),
            (4, QuantData::Rows { .. }, Planes::Two) => blocks::<8, false, 2>(w, rows, acts, m_rows, out),
            (_, _, Planes::One) => blocks::<16, false, 1>(w, rows, acts, m_rows, out),
            (_, _, Planes::Two) => blocks::<16, false, 2>(w, rows, acts, m_rows, out),
        }
    }
}

/// All 16-row blocks that `rows` touches.
///
/// # Safety
/// As `matmul_q`; `N` is the 32-bit words of a group, `TILED` the layout, `P` the planes.
#[target_feature(enable = "neon,dotprod,i8mm")]
unsafe fn blocks<const N: usize, const TILED: bool, const P: usize>(
    w: &QuantMatrix<'_>,
    rows: Range<usize>,
    acts: &Acts,
    m_rows: usize,
    out: Out,
) {
    let groups = w.groups();
    // Passes of about as many rows each, which are whole pairs but for the last.
    let most = (NEAR / (groups * P * GROUP * 2)).clamp(1, PAIRS) * 2;
    let deep = m_rows.div_ceil(m_rows.div_ceil(most)).next_multiple_of(2);
    let (mut pairs, mut sums) = (Vec::new(), [[vdupq_n_f32(0.0); TILE_ROWS / 2]; PAIRS]);
    for start in (0..m_rows).step_by(deep) {
        let end = m_rows.min(start + deep);
        let count = (end - start).div_ceil(2);
        pairs.resize(groups * count, Pair::NONE);
        pair::<N, P>(acts, start..end, &mut pairs);
        for block in rows.start / TILE_ROWS..rows.end.div_ceil(TILE_ROWS) {
            let source = Source::new(w, block);
            let sums = &mut sums[..count];
            sums.fill([vdupq_n_f32(0.0); TILE_ROWS / 2]);
            for (g, pairs) in pairs.chunks_exact(count).enumerate() {
                for quad in 0..TILE_ROWS / 4 {
                    // SAFETY: the source is of this layout and has that group.
                    unsafe {
                        let weights = weights::<N, TILED>(&source, quad, g);
                        add(&weights, source.sides::<TILED>(quad, g), pairs, sums, quad);
                    }
                }
            }
            for (i, sums) in sums.iter().enumerate() {
                for (m, sums) in turned(sums).iter().enumerate().take(end - start - 2 * i) {
                    // SAFETY: `out` is valid for `rows` and all of these m, by the caller.
                    unsafe { store(out, start + 2 * i + m, block * TILE_ROWS, &rows, sums) };
                }
            }
        }
    }
}

/// Puts rows `rows` of activations in pairs, for weights of `N` words: group by group the pairs.
#[target_feature(enable = "neon,dotprod,i8mm")]
fn pair<const N: usize, const P: usize>(acts: &Acts, rows: Range<usize>, pairs: &mut [Pair<P>]) {
    /// Of 16 columns of two rows as lines have them, the even ones of both, then the odd ones.
    const APART: [u8; 32] = [
        0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27, // even
        4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31,
    ];
    /// The first 8 of both, then the second 8, in their own order.
    const NATURAL: [u8; 32] = [
        0, 4, 1, 5, 2, 6, 3, 7, 16, 20, 17, 21, 18, 22, 19, 23, // first
        8, 12, 9, 13, 10, 14, 11, 15, 24, 28, 25, 29, 26, 30, 27, 31,
    ];
    let order = if N == 8 { &APART } else { &NATURAL };
    // SAFETY: 32 bytes.
    let order = unsafe { [vld1q_u8(order.as_ptr()), vld1q_u8(order.as_ptr().add(16))] };
    let (groups, count) = (acts.groups(), rows.len().div_ceil(2));
    for i in 0..count {
        let m = [rows.start + 2 * i, (rows.start + 2 * i + 1).min(rows.end - 1)];
        let [first, second] = m.map(|m| {
            let lines = acts.lines()[m * groups * P..].as_chunks::<P>().0.iter();
            lines.zip(&acts.sides()[m * groups..])
        });
        for (pair, (first, second)) in pairs[i..].iter_mut().step_by(count).zip(first.zip(second)) {
            for ((chunks, a), b) in pair.planes.iter_mut().zip(first.0).zip(second.0) {
                for (part, chunks) in chunks.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                    // SAFETY: a line has four parts of 16 bytes; a chunk is 16 bytes.
                    unsafe {
                        let [a, b] = [a, b].map(|line| vld1q_s8(line.0.as_ptr().add(part * 16)));
                        for (chunk, &order) in chunks.iter_mut().zip(&order) {
                            vst1q_s8(chunk.as_mut_ptr(), vqtbl2q_s8(int8x16x2_t(a, b), order));
                        }
                    }
                }
            }
            let (Side { step: s, sum: x }, Side { step: t, sum: y }) = (*first.1, *second.1);
            (pair.steps, pair.sums) = ([s, t, s, t], [x, y, x, y]);
        }
    }
}

/// Adds what group `g` gives 4 matrix rows to the sums of all pairs: `step (scale dot + bias total)`.
#[inline]
#[target_feature(enable = "neon,dotprod,i8mm")]
fn add<const P: usize>(
    weights: &[[uint8x16_t; CHUNKS]; 2],
    (scales, biases): (float32x4_t, float32x4_t),
    pairs: &[Pair<P>],
    sums: &mut [Sums],
    quad: usize,
) {
    let twice = |side: float32x4_t| [vzip1q_f32(side, side), vzip2q_f32(side, side)];
    let (scales, biases) = (twice(scales), twice(biases));
    for (pair, sums) in pairs.iter().zip(sums) {
        let mut dots = [vdupq_n_s32(0); 2];
        for (p, plane) in pair.planes.iter().enumerate() {
            if p > 0 {
                dots = dots.map(|dot| vshlq_n_s32::<8>(dot));
            }
            for (c, chunk) in plane.iter().enumerate() {
                // SAFETY: 16 bytes.
                let chunk = unsafe { vld1q_s8(chunk.as_ptr()) };
                dots[0] = usmmla(dots[0], weights[0][c], chunk);
                dots[1] = usmmla(dots[1], weights[1][c], chunk);
            }
        }
        // SAFETY: four floats each.
        let (step, total) = unsafe { (vld1q_f32(pair.steps.as_ptr()), vld1q_f32(pair.sums.as_ptr())) };
        for (i, sum) in sums[quad * 2..][..2].iter_mut().enumerate() {
            let t = vfmaq_f32(vmulq_f32(biases[i], total), scales[i], vcvtq_f32_s32(dots[i]));
            *sum = vfmaq_f32(*sum, step, t);
        }
    }
}

/// The sums of a pair as 16 rows for each of its rows of activations.
#[inline]
#[target_feature(enable = "neon,dotprod,i8mm")]
fn turned(sums: &Sums) -> [[f32; TILE_ROWS]; 2] {
    let mut turned = [[0.0; TILE_ROWS]; 2];
    for (quad, sums) in sums.as_chunks::<2>().0.iter().enumerate() {
        let both = [vuzp1q_f32(sums[0], sums[1]), vuzp2q_f32(sums[0], sums[1])];
        for (to, sums) in turned.iter_mut().zip(both) {
            let to = &mut to[quad * 4..][..4];
            // SAFETY: four floats.
            unsafe { vst1q_f32(to.as_mut_ptr(), sums) };
        }
    }
    turned
}

/// The weights of group `g` of a quad of rows: two by two rows, chunk by chunk of 8 columns as [`pair`] orders them.
///
/// # Safety
/// The matrix is in tiles if `TILED`, else in source order, of `N` words a group, and has group `g`; `quad` is below 4.
#[inline]
#[target_feature(enable = "neon,dotprod,i8mm")]
unsafe fn weights<const N: usize, const TILED: bool>(
    source: &Source,
    quad: usize,
    g: usize,
) -> [[uint8x16_t; CHUNKS]; 2] {
    if TILED {
        // SAFETY: by the caller; a group has 8 words.
        let words = [0, 2, 4, 6].map(|k| unsafe { (source.word(quad, g, k), source.word(quad, g, k + 1)) });
        let low = words.map(|(a, b)| vreinterpretq_u8_u32(vzip1q_u32(a, b)));
        let high = words.map(|(a, b)| vreinterpretq_u8_u32(vzip2q_u32(a, b)));
        return [nibbles(low), nibbles(high)];
    }
    [quad * 4, quad * 4 + 2].map(|lane| {
        let eights = |part: usize| {
            // SAFETY: by the caller; there are as many parts.
            let [a, b] = [lane, lane + 1]
                .map(|lane| unsafe { vreinterpretq_u64_u8(source.bytes::<N>(lane, g, part)) });
            [vzip1q_u64(a, b), vzip2q_u64(a, b)].map(|both| vreinterpretq_u8_u64(both))
        };
        let ([a, b], [c, d]) = (eights(0), eights(1));
        if N == 8 {
            return nibbles([a, b, c, d]);
        }
        let ([e, f], [g, h]) = (eights(2), eights(3));
        [a, b, c, d, e, f, g, h]
    })
}

/// Even and odd columns of four pairs of words.
#[inline]
#[target_feature(enable = "neon,dotprod,i8mm")]
fn nibbles([a, b, c, d]: [uint8x16_t; 4]) -> [uint8x16_t; CHUNKS] {
    let low = |words| vandq_u8(words, vdupq_n_u8(15));
    let high = |words| vshrq_n_u8::<4>(words);
    [low(a), high(a), low(b), high(b), low(c), high(c), low(d), high(d)]
}

/// `sum + w x'`: two rows of 8 unsigned bytes times two of 8 signed ones, lane `2 i + j` for rows i of w and j of x.
#[inline]
#[target_feature(enable = "neon,dotprod,i8mm")]
fn usmmla(mut sum: int32x4_t, w: uint8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: registers only; the instruction is there (i8mm).
    unsafe {
        asm!(
            "usmmla {sum:v}.4s, {w:v}.16b, {x:v}.16b",
            sum = inout(vreg) sum, w = in(vreg) w, x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}
