#![allow(unsafe_code)] // vector loads and stores, and one instruction that has no stable function yet

//! `y = W x` with integer activations and `sdot`: 16 matrix rows at a time in four vectors of 4, one row a lane,
//! times up to 4 rows of activations. The 4 bytes of a lane are 4 columns; `sdot` takes their activations straight
//! from a quarter of a vector.
//!
//! `sdot` wants signed bytes on both sides. Nibbles are; of 8-bit weights it gets `q - 128`, and the group's sum of
//! activations gives back the rest: `sum q X = sum (q - 128) X + 128 sum X`. Their rows, which lie in source order, are taken
//! one after the other, a column in each byte, and the lanes of four of them added up together.

use crate::acts::{Acts, Line, Planes, Side};
use crate::arch::Out;
use crate::arch::neon::source::Source;
use crate::arch::output::store;
use crate::quant::{QuantData, QuantMatrix};
use crate::tile::TILE_ROWS;
use std::arch::aarch64::*;
use std::arch::asm;
use std::ops::Range;

/// Vectors of 4 rows in a block of 16.
const QUADS: usize = TILE_ROWS / 4;
/// Rows of activations that share a pass over a block: with one plane their sums fill half of the registers.
const X_ROWS: usize = 4;

/// See `Table`.
#[target_feature(enable = "neon,dotprod")]
pub(in crate::arch) unsafe fn matmul_q(
    w: &QuantMatrix<'_>,
    rows: Range<usize>,
    acts: &Acts,
    m_rows: usize,
    out: Out,
) {
    // SAFETY: the caller's promise is passed on; words and planes are those of the operands.
    unsafe {
        match (w.bits(), w.data(), acts.planes()) {
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
#[target_feature(enable = "neon,dotprod")]
unsafe fn blocks<const N: usize, const TILED: bool, const P: usize>(
    w: &QuantMatrix<'_>,
    rows: Range<usize>,
    acts: &Acts,
    m_rows: usize,
    out: Out,
) {
    for block in rows.start / TILE_ROWS..rows.end.div_ceil(TILE_ROWS) {
        let source = Source::new(w, block);
        let mut m = 0;
        while m < m_rows {
            // SAFETY: as many rows of activations are left as each call takes; the rest by the caller.
            m += unsafe {
                let (source, first) = (&source, block * TILE_ROWS);
                match m_rows - m {
                    // 5 are 3 and 2.
                    3 | 5 => some::<N, TILED, P, 3>(source, first, &rows, acts, m, out),
                    X_ROWS.. => some::<N, TILED, P, X_ROWS>(source, first, &rows, acts, m, out),
                    2 => some::<N, TILED, P, 2>(source, first, &rows, acts, m, out),
                    _ => some::<N, TILED, P, 1>(source, first, &rows, acts, m, out),
                }
            };
        }
    }
}

/// The block that starts with row `first` times rows `m..m + M` of activations; returns M.
///
/// # Safety
/// They exist; `source` is the block, of a matrix as wide as these rows, of `N` words a group and `TILED`; `P` is their planes;
/// `out` is valid for `rows` and these M.
#[target_feature(enable = "neon,dotprod")]
unsafe fn some<const N: usize, const TILED: bool, const P: usize, const M: usize>(
    source: &Source,
    first: usize,
    rows: &Range<usize>,
    acts: &Acts,
    m: usize,
    out: Out,
) -> usize {
    let groups = acts.groups();
    let mut sums = [[vdupq_n_f32(0.0); M]; QUADS];
    for g in 0..groups {
        let at: [usize; M] = std::array::from_fn(|i| (m + i) * groups + g);
        let lines: [&[Line; P]; M] =
            at.map(|at| acts.lines()[at * P..].first_chunk::<P>().expect("a row has P lines for each group"));
        let sides = at.map(|at| acts.sides()[at]);
        let natural = if N == 16 { natural(&lines) } else { [[[vdupq_n_s8(0); 4]; P]; M] };
        for (quad, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the source has that quad and group, in this layout.
            let (dots, (scale, bias)) = unsafe {
                let dots = if N == 16 {
                    bytes(source, quad, g, &natural)
                } else {
                    nibbles::<TILED, P, M>(source, quad, g, &lines)
                };
                (dots, source.sides::<TILED>(quad, g))
            };
            for ((total, dot), Side { step, sum }) in sums.iter_mut().zip(dots).zip(sides) {
                let dot = if N == 16 { vaddq_s32(dot, vdupq_n_s32(128 * sum as i32)) } else { dot };
                let t = vfmaq_f32(vmulq_n_f32(bias, sum), scale, vcvtq_f32_s32(dot));
                *total = vfmaq_f32(*total, vdupq_n_f32(step), t);
            }
        }
    }
    for i in 0..M {
        let mut lanes = [0.0f32; TILE_ROWS];
        for (lanes, sums) in lanes.as_chunks_mut::<4>().0.iter_mut().zip(&sums) {
            // SAFETY: 4 floats.
            unsafe { vst1q_f32(lanes.as_mut_ptr(), sums[i]) };
        }
        // SAFETY: `out` is valid for `rows` and m + i by the caller.
        unsafe { store(out, m + i, first, rows, &lanes) };
    }
    M
}

/// The integer dot products of a quad of rows of 4-bit weights.
///
/// # Safety
/// The source has that quad and group, in tiles if `TILED`, else in source order.
#[inline]
#[target_feature(enable = "neon,dotprod")]
unsafe fn nibbles<const TILED: bool, const P: usize, const M: usize>(
    source: &Source,
    quad: usize,
    g: usize,
    lines: &[&[Line; P]; M],
) -> [int32x4_t; M] {
    let mut dots = [[vdupq_n_s32(0); P]; M];
    for half in 0..2 {
        // SAFETY: by the caller; a group has 8 words.
        let words = unsafe {
            if TILED {
                [0, 1, 2, 3].map(|k| source.word(quad, g, half * 4 + k))
            } else {
                turned([0, 1, 2, 3].map(|i| source.bytes::<8>(quad * 4 + i, g, half)))
            }
        };
        for (part, words) in words.as_chunks::<2>().0.iter().enumerate() {
            let [a, b] = words.map(|words| vreinterpretq_u8_u32(words));
            let low = vdupq_n_u8(15);
            // The weights that go with the four words of a part, in the order of the line.
            let weights = [vandq_u8(a, low), vshrq_n_u8::<4>(a), vandq_u8(b, low), vshrq_n_u8::<4>(b)];
            let weights = weights.map(|w| vreinterpretq_s8_u8(w));
            for (dots, lines) in dots.iter_mut().zip(lines) {
                for (dot, line) in dots.iter_mut().zip(*lines) {
                    // SAFETY: a line has four parts of 16 bytes.
                    let x = unsafe { vld1q_s8(line.0.as_ptr().add((half * 2 + part) * 16)) };
                    *dot = sdot_word::<0>(*dot, weights[0], x);
                    *dot = sdot_word::<1>(*dot, weights[1], x);
                    *dot = sdot_word::<2>(*dot, weights[2], x);
                    *dot = sdot_word::<3>(*dot, weights[3], x);
                }
            }
        }
    }
    dots.map(|dots| join(&dots))
}

/// Four words of each of four rows as words of all four, one row a lane.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn turned(rows: [uint8x16_t; 4]) -> [uint32x4_t; 4] {
    let [a, b, c, d] = rows.map(|row| vreinterpretq_u32_u8(row));
    let (first, second) = ((vzip1q_u32(a, c), vzip1q_u32(b, d)), (vzip2q_u32(a, c), vzip2q_u32(b, d)));
    let [low, high] = [first, second].map(|(ac, bd)| [vzip1q_u32(ac, bd), vzip2q_u32(ac, bd)]);
    [low[0], low[1], high[0], high[1]]
}

/// The lines with their columns in order, 16 at a time.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn natural<const P: usize, const M: usize>(lines: &[&[Line; P]; M]) -> [[[int8x16_t; 4]; P]; M] {
    // Of 8 columns a line has first the even ones.
    const ORDER: [u8; 16] = [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15];
    // SAFETY: 16 bytes.
    let order = unsafe { vld1q_u8(ORDER.as_ptr()) };
    lines.map(|lines| {
        std::array::from_fn(|p| {
            std::array::from_fn(|part| {
                // SAFETY: a line has four parts of 16 bytes.
                vqtbl1q_s8(unsafe { vld1q_s8(lines[p].0.as_ptr().add(part * 16)) }, order)
            })
        })
    })
}

/// The integer dot products of a quad of rows of 8-bit weights, those of `q - 128`.
///
/// # Safety
/// The source has that quad and group, of 8 bits in source order.
#[inline]
#[target_feature(enable = "neon,dotprod")]
unsafe fn bytes<const P: usize, const M: usize>(
    source: &Source,
    quad: usize,
    g: usize,
    x: &[[[int8x16_t; 4]; P]; M],
) -> [int32x4_t; M] {
    let weights: [[int8x16_t; 4]; 4] = std::array::from_fn(|i| {
        std::array::from_fn(|part| {
            // SAFETY: by the caller; a group has four parts of 16 bytes.
            let q = unsafe { source.bytes::<16>(quad * 4 + i, g, part) };
            vreinterpretq_s8_u8(veorq_u8(q, vdupq_n_u8(128)))
        })
    });
    let dot = |w: &[int8x16_t; 4], x: &[int8x16_t; 4]| {
        w.iter().zip(x).fold(vdupq_n_s32(0), |sum, (&w, &x)| sdot(sum, w, x))
    };
    std::array::from_fn(|m| {
        // Lanes of four rows by pairs, then those of a row are one.
        let planes: [int32x4_t; P] = std::array::from_fn(|p| {
            let [a, b, c, d] = [0, 1, 2, 3].map(|row| dot(&weights[row], &x[m][p]));
            vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d))
        });
        join(&planes)
    })
}

/// The planes' dot products as one.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn join<const P: usize>(dots: &[int32x4_t; P]) -> int32x4_t {
    if P == 2 { vaddq_s32(vshlq_n_s32::<8>(dots[0]), dots[P - 1]) } else { dots[0] }
}

/// `sum + w . x` of 4 bytes in each lane.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot(mut sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: registers only; the instruction is there (dotprod).
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {w:v}.16b, {x:v}.16b",
            sum = inout(vreg) sum, w = in(vreg) w, x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// `sum + w . x` of 4 bytes in each lane, those of x from word `LANE`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot_word<const LANE: u8>(mut sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: registers only; the instruction is there (dotprod) and LANE is below 4.
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {w:v}.16b, {x:v}.4b[{lane}]",
            sum = inout(vreg) sum, w = in(vreg) w, x = in(vreg) x, lane = const LANE,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}
