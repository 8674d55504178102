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
use crate::arch::output::store;
use crate::quant::{GROUP, QuantData, QuantMatrix};
use crate::tile::{self, TILE_BYTES, TILE_ROWS};
use std::arch::aarch64::*;
use std::arch::asm;
use std::ops::Range;

/// Vectors of 4 rows in a block of 16.
const QUADS: usize = TILE_ROWS / 4;
/// Rows of activations that share a pass over a block: with one plane their sums fill half of the registers.
const X_ROWS: usize = 4;

/// Words, scales and biases of a group of 16 rows, word by word as tiles have them.
struct Group {
    words: [[[u32; 4]; QUADS]; GROUP / 8],
    scales: [u16; TILE_ROWS],
    biases: [u16; TILE_ROWS],
}

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
        match (w.bits(), acts.planes()) {
            (4, Planes::One) => blocks::<8, 1>(w, rows, acts, m_rows, out),
            (4, Planes::Two) => blocks::<8, 2>(w, rows, acts, m_rows, out),
            (_, Planes::One) => blocks::<16, 1>(w, rows, acts, m_rows, out),
            (_, Planes::Two) => blocks::<16, 2>(w, rows, acts, m_rows, out),
        }
    }
}

/// All 16-row blocks that `rows` touches.
///
/// # Safety
/// As `matmul_q`; `N` is the 32-bit words of a group and `P` the planes.
#[target_feature(enable = "neon,dotprod")]
unsafe fn blocks<const N: usize, const P: usize>(
    w: &QuantMatrix<'_>,
    rows: Range<usize>,
    acts: &Acts,
    m_rows: usize,
    out: Out,
) {
    for block in rows.start / TILE_ROWS..rows.end.div_ceil(TILE_ROWS) {
        let mut m = 0;
        while m < m_rows {
            // SAFETY: as many rows of activations are left as each call takes; the rest by the caller.
            m += unsafe {
                match m_rows - m {
                    X_ROWS.. => some::<N, P, X_ROWS>(w, block, &rows, acts, m, out),
                    2.. => some::<N, P, 2>(w, block, &rows, acts, m, out),
                    _ => some::<N, P, 1>(w, block, &rows, acts, m, out),
                }
            };
        }
    }
}

/// Block `block` times rows `m..m + M` of activations; returns M.
///
/// # Safety
/// They exist; `N` and `P` as `blocks`; `out` is valid for `rows` and these M.
#[target_feature(enable = "neon,dotprod")]
unsafe fn some<const N: usize, const P: usize, const M: usize>(
    w: &QuantMatrix<'_>,
    block: usize,
    rows: &Range<usize>,
    acts: &Acts,
    m: usize,
    out: Out,
) -> usize {
    let groups = w.groups();
    let mut sums = [[vdupq_n_f32(0.0); QUADS]; M];
    let mut copy =
        Group { words: [[[0; 4]; QUADS]; GROUP / 8], scales: [0; TILE_ROWS], biases: [0; TILE_ROWS] };
    for g in 0..groups {
        let (words, scales, biases) = group(w, block, g, &mut copy);
        let lines: [&[Line; P]; M] = std::array::from_fn(|i| {
            let at = ((m + i) * groups + g) * P;
            acts.lines()[at..].first_chunk::<P>().expect("a row has P lines for each group")
        });
        let natural = if N == 16 { natural(&lines) } else { [[[vdupq_n_s8(0); 4]; P]; M] };
        for quad in 0..QUADS {
            // SAFETY: N words of 16 rows, 16 scales and 16 biases are there, in either form.
            unsafe {
                let dots = if N == 16 {
                    bytes(std::array::from_fn(|lane| row_bytes(w, block, quad * 4 + lane, g)), &natural)
                } else {
                    nibbles(words.add(quad * 16), &lines)
                };
                let side = |from: *const u8| {
                    let bits = vld1_u8(from.add(quad * 8));
                    vreinterpretq_f32_u32(vshll_n_u16::<16>(vreinterpret_u16_u8(bits)))
                };
                let (scale, bias) = (side(scales), side(biases));
                for (i, dot) in dots.into_iter().enumerate() {
                    let Side { step, sum } = acts.sides()[(m + i) * groups + g];
                    let dot = if N == 16 { vaddq_s32(dot, vdupq_n_s32(128 * sum as i32)) } else { dot };
                    let t = vfmaq_f32(vmulq_n_f32(bias, sum), scale, vcvtq_f32_s32(dot));
                    sums[i][quad] = vfmaq_f32(sums[i][quad], vdupq_n_f32(step), t);
                }
            }
        }
    }
    for (i, sums) in sums.iter().enumerate() {
        let mut lanes = [0.0f32; TILE_ROWS];
        for (lanes, sum) in lanes.as_chunks_mut::<4>().0.iter_mut().zip(sums) {
            // SAFETY: 4 floats.
            unsafe { vst1q_f32(lanes.as_mut_ptr(), *sum) };
        }
        // SAFETY: `out` is valid for `rows` and m + i by the caller.
        unsafe { store(out, m + i, block * TILE_ROWS, rows, &lanes) };
    }
    M
}

/// Where words, scales and biases of group `g` of a block are: in its tile, or gathered from source rows into `copy`
/// (rows beyond the last repeat it).
fn group(w: &QuantMatrix<'_>, block: usize, g: usize, copy: &mut Group) -> (*const u8, *const u8, *const u8) {
    match w.data() {
        QuantData::Tiles { data, panel_stride } => {
            let tile = &data[block * panel_stride + g * TILE_BYTES..][..TILE_BYTES];
            (tile.as_ptr(), tile[tile::TILE_SCALES..].as_ptr(), tile[tile::TILE_BIASES..].as_ptr())
        }
        QuantData::Rows { weights, scales, biases } => {
            for lane in 0..TILE_ROWS {
                let at = (block * TILE_ROWS + lane).min(w.rows() - 1) * w.groups() + g;
                // Those of 8 bits are taken where they are.
                if w.bits() == 4 {
                    let words = weights[at * GROUP / 2..][..GROUP / 2].as_chunks::<4>().0;
                    for (to, word) in copy.words.iter_mut().zip(words) {
                        to[lane / 4][lane % 4] = u32::from_ne_bytes(*word);
                    }
                }
                let half = |bytes: &[u8]| u16::from_ne_bytes([bytes[at * 2], bytes[at * 2 + 1]]);
                (copy.scales[lane], copy.biases[lane]) = (half(scales), half(biases));
            }
            let (scales, biases) = (copy.scales.as_ptr(), copy.biases.as_ptr());
            (copy.words.as_ptr().cast(), scales.cast(), biases.cast())
        }
    }
}

/// Group `g` of a row of 8-bit weights; the last row's for lanes beyond it.
fn row_bytes<'a>(w: &QuantMatrix<'a>, block: usize, lane: usize, g: usize) -> &'a [u8; GROUP] {
    let QuantData::Rows { weights, .. } = w.data() else { unreachable!("8-bit weights are in source order") };
    let at = (block * TILE_ROWS + lane).min(w.rows() - 1) * w.groups() + g;
    weights[at * GROUP..].first_chunk().expect("a row has 64 bytes for each group")
}

/// The integer dot products of 4 rows of 4-bit weights.
///
/// # Safety
/// 16 bytes are readable at `words` and at each of the next 7 steps of 64 bytes.
#[inline]
#[target_feature(enable = "neon,dotprod")]
unsafe fn nibbles<const P: usize, const M: usize>(
    words: *const u8,
    lines: &[&[Line; P]; M],
) -> [int32x4_t; M] {
    let mut dots = [[vdupq_n_s32(0); P]; M];
    for part in 0..4 {
        // Columns 16 part.. of each line, one word of 4 a lane.
        let x: [[int8x16_t; P]; M] = std::array::from_fn(|m| {
            // SAFETY: a line has four parts of 16 bytes.
            std::array::from_fn(|p| unsafe { vld1q_s8(lines[m][p].0.as_ptr().add(part * 16)) })
        });
        // SAFETY: the word is one of 8.
        let load = |k: usize| unsafe { vld1q_u8(words.add(k * 64)) };
        let (a, b) = (load(part * 2), load(part * 2 + 1));
        let low = vdupq_n_u8(15);
        // The weights that go with the four words of a part, in the order of the line.
        let weights = [vandq_u8(a, low), vshrq_n_u8::<4>(a), vandq_u8(b, low), vshrq_n_u8::<4>(b)];
        let weights = weights.map(|w| vreinterpretq_s8_u8(w));
        for (dots, x) in dots.iter_mut().zip(&x) {
            for (dot, &x) in dots.iter_mut().zip(x) {
                *dot = sdot_word::<0>(*dot, weights[0], x);
                *dot = sdot_word::<1>(*dot, weights[1], x);
                *dot = sdot_word::<2>(*dot, weights[2], x);
                *dot = sdot_word::<3>(*dot, weights[3], x);
            }
        }
    }
    dots.map(|dots| join(&dots))
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

/// The integer dot products of 4 rows of 8-bit weights, those of `q - 128`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn bytes<const P: usize, const M: usize>(
    rows: [&[u8; GROUP]; 4],
    x: &[[[int8x16_t; 4]; P]; M],
) -> [int32x4_t; M] {
    let weights = rows.map(|row| {
        std::array::from_fn(|part| {
            // SAFETY: a row has four parts of 16 bytes.
            let q = unsafe { vld1q_u8(row.as_ptr().add(part * 16)) };
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
