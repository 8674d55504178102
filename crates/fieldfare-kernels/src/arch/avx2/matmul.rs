#![allow(unsafe_code)] // vector loads and stores

//! `y = W x` in f32, 8 matrix rows at a time (half a tile), one a lane.
//!
//! One x row: weights are dequantized in registers and used at once. Several: every group of 8 rows is dequantized
//! once into L1 for up to [`X_ROWS`] x rows, which pass over it 8 at a time. Both do the same operations in the
//! same order for each element.

use crate::arch::x86::{self, Side, Source, store};
use crate::arch::{Out, QUARTER};
use crate::quant::{GROUP, QuantData, QuantMatrix};
use crate::tile::TILE_BYTES;
use std::arch::x86_64::*;
use std::ops::Range;

const LANES: usize = 8;
const QUARTERS: usize = GROUP / QUARTER;
/// x rows that share one dequantization: their partial sums (8 KiB), their part of x (16 KiB) and the weights
/// (2 KiB) fit the first-level cache.
const X_ROWS: usize = 64;

/// Partial sums of a block of rows for each x row.
#[repr(align(64))]
struct Sums([[[f32; LANES]; QUARTERS]; X_ROWS]);
/// A dequantized group: column by column, 8 rows each.
#[repr(align(64))]
struct Weights([[f32; LANES]; GROUP]);

/// See `Table`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn matmul(w: &QuantMatrix<'_>, rows: Range<usize>, x: &[f32], m_rows: usize, out: Out) {
    // SAFETY: the caller's promise is passed on; words and layout are the matrix's (only 4 bits have tiles).
    unsafe {
        match (w.bits(), w.data()) {
            (4, QuantData::Tiles { .. }) => blocks::<8, true>(w, rows, x, m_rows, out),
            (4, QuantData::Rows { .. }) => blocks::<8, false>(w, rows, x, m_rows, out),
            _ => blocks::<16, false>(w, rows, x, m_rows, out),
        }
    }
}

/// All 8-row blocks that `rows` touches. `N` is the 32-bit words of a group, 8 or 16; `TILED` the layout. Both are
/// fixed at compile time so that words stay in registers.
///
/// # Safety
/// As `matmul`; `N` and `TILED` are the matrix's.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn blocks<const N: usize, const TILED: bool>(
    w: &QuantMatrix<'_>,
    rows: Range<usize>,
    x: &[f32],
    m_rows: usize,
    out: Out,
) {
    let (groups, cols) = (w.groups(), w.cols());
    let mut side = Side::new();
    for block in rows.start / LANES..rows.end.div_ceil(LANES) {
        let source = Source::<LANES>::new(w, block);
        if m_rows == 1 {
            // SAFETY: x has `cols` elements; out by the caller.
            unsafe {
                let sums = one::<N, TILED>(&source, groups, x.as_ptr(), &mut side);
                store(out, 0, block * LANES, &rows, &sums);
            }
            continue;
        }
        for (chunk, x) in x.chunks(X_ROWS * cols).enumerate() {
            let mut sums = Sums([[[0.0; LANES]; QUARTERS]; X_ROWS]);
            // SAFETY: a chunk has at most X_ROWS whole rows of x; out by the caller.
            unsafe {
                many::<N, TILED>(&source, groups, x, &mut side, &mut sums);
                for (m, quarters) in sums.0.iter().take(x.len() / cols).enumerate() {
                    store(out, chunk * X_ROWS + m, block * LANES, &rows, &fold(quarters));
                }
            }
        }
    }
}

/// The block times one x row.
///
/// # Safety
/// `x` has `groups * 64` elements, `source` a matrix of that width, N and TILED.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn one<const N: usize, const TILED: bool>(
    source: &Source<LANES>,
    groups: usize,
    x: *const f32,
    side: &mut Side<LANES>,
) -> [f32; LANES] {
    let mut sums = [_mm256_setzero_ps(); QUARTERS];
    for g in 0..groups {
        // SAFETY: g is below groups, and rises.
        let (words, scale, bias) = unsafe { group::<N, TILED>(source, g, groups, side) };
        let per_word = GROUP / N;
        for k in 0..N / QUARTERS {
            let bytes: [_; QUARTERS] = std::array::from_fn(|i| bytes::<N>(words[i * (N / QUARTERS) + k]));
            for j in 0..per_word {
                for (i, (bytes, sum)) in bytes.iter().zip(&mut sums).enumerate() {
                    let weight = _mm256_fmadd_ps(value::<N>(bytes, j), scale, bias);
                    // SAFETY: the column is below groups * 64.
                    let x = unsafe { *x.add(g * GROUP + i * QUARTER + k * per_word + j) };
                    *sum = _mm256_fmadd_ps(weight, _mm256_set1_ps(x), *sum);
                }
            }
        }
    }
    to_array(_mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])))
}

/// Adds the block times up to [`X_ROWS`] x rows to `sums`.
///
/// # Safety
/// `x` is at most `X_ROWS` whole rows of `groups * 64`; `source` as for `one`.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn many<const N: usize, const TILED: bool>(
    source: &Source<LANES>,
    groups: usize,
    x: &[f32],
    side: &mut Side<LANES>,
    sums: &mut Sums,
) {
    let cols = groups * GROUP;
    let m_rows = x.len() / cols;
    let mut weights = Weights([[0.0; LANES]; GROUP]);
    for g in 0..groups {
        // SAFETY: g is below groups, and rises.
        let (words, scale, bias) = unsafe { group::<N, TILED>(source, g, groups, side) };
        let per_word = GROUP / N;
        for (word, columns) in words.into_iter().zip(weights.0.chunks_exact_mut(per_word)) {
            let bytes = bytes::<N>(word);
            for (j, column) in columns.iter_mut().enumerate() {
                *column = to_array(_mm256_fmadd_ps(value::<N>(&bytes, j), scale, bias));
            }
        }
        let mut m = 0;
        while m < m_rows {
            let left = m_rows - m;
            // SAFETY: rows m..m + 8 (4, 2, 1) exist, each with a group at g.
            unsafe {
                let x = x.as_ptr().add(m * cols + g * GROUP);
                m += match left {
                    8.. => rows::<8>(&weights, x, cols, &mut sums.0[m..]),
                    4.. => rows::<4>(&weights, x, cols, &mut sums.0[m..]),
                    2.. => rows::<2>(&weights, x, cols, &mut sums.0[m..]),
                    _ => rows::<1>(&weights, x, cols, &mut sums.0[m..]),
                };
            }
        }
    }
}

/// One group of the block times `M` x rows; returns M.
///
/// # Safety
/// `x` points to 64 elements, and to as many in each of the next M - 1 rows, `stride` apart.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn rows<const M: usize>(
    weights: &Weights,
    x: *const f32,
    stride: usize,
    sums: &mut [[[f32; LANES]; QUARTERS]],
) -> usize {
    let sums = &mut sums[..M];
    // SAFETY: the starts of the M rows.
    let x: [*const f32; M] = std::array::from_fn(|m| unsafe { x.add(m * stride) });
    for i in 0..QUARTERS {
        let mut acc: [__m256; M] = std::array::from_fn(|m| from_array(&sums[m][i]));
        for c in i * QUARTER..(i + 1) * QUARTER {
            let weight = from_array(&weights.0[c]);
            for (acc, x) in acc.iter_mut().zip(x) {
                // SAFETY: the column is below 64.
                *acc = _mm256_fmadd_ps(weight, _mm256_set1_ps(unsafe { *x.add(c) }), *acc);
            }
        }
        for (sums, acc) in sums.iter_mut().zip(acc) {
            sums[i] = to_array(acc);
        }
    }
    M
}

/// Words, scales and biases of group `g`.
///
/// # Safety
/// `g` is below `groups`, which is the matrix's, as are `N` and `TILED`; rising calls with one `side` (see `Source::side`).
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn group<const N: usize, const TILED: bool>(
    source: &Source<LANES>,
    g: usize,
    groups: usize,
    side: &mut Side<LANES>,
) -> ([__m256i; N], __m256, __m256) {
    let mut words = [_mm256_setzero_si256(); N];
    // SAFETY: g is in range; a tile has N words of 16 rows, a source row N words a group; sides have 8 values.
    unsafe {
        match source {
            Source::Tiles { panel, lane } if TILED => {
                let tile = panel.add(g * TILE_BYTES + lane * 4);
                if *lane == 0 {
                    x86::prefetch(tile, TILE_BYTES / 64);
                }
                for (k, word) in words.iter_mut().enumerate() {
                    *word = _mm256_loadu_si256(tile.add(k * 64).cast());
                }
            }
            Source::Rows { weights, row_bytes, .. } if !TILED => {
                if g.is_multiple_of(2) {
                    x86::prefetch_rows(weights, *row_bytes, g * N * 4);
                }
                for (h, words) in words.chunks_exact_mut(4).enumerate() {
                    transpose(weights, g * N * 4 + h * 16, words);
                }
            }
            _ => std::hint::unreachable_unchecked(),
        }
        let (scales, biases) = source.side(g, groups, side);
        (words, bf16(scales), bf16(biases))
    }
}

/// 16 bytes at `offset` of each of 8 rows, as 4 words with a row in each lane.
///
/// # Safety
/// The bytes are there.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn transpose(rows: &[*const u8; LANES], offset: usize, words: &mut [__m256i]) {
    // SAFETY: by the caller.
    let load = |row: usize| unsafe { _mm_loadu_si128(rows[row].add(offset).cast()) };
    // Rows r and r + 4 in the two lanes of 128 bits; then 4 x 4 words within each lane.
    let two = |r: usize| _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(load(r)), load(r + 4));
    let (a, b, c, d) = (two(0), two(1), two(2), two(3));
    let (ab_low, ab_high) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let (cd_low, cd_high) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    words[0] = _mm256_unpacklo_epi64(ab_low, cd_low);
    words[1] = _mm256_unpackhi_epi64(ab_low, cd_low);
    words[2] = _mm256_unpacklo_epi64(ab_high, cd_high);
    words[3] = _mm256_unpackhi_epi64(ab_high, cd_high);
}

/// The values of 8 words as bytes: the even ones and the odd ones of 4 bits, or all of them of 8 bits twice.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn bytes<const N: usize>(word: __m256i) -> [__m256i; 2] {
    if N == 8 {
        let low = _mm256_set1_epi8(15);
        [_mm256_and_si256(word, low), _mm256_and_si256(_mm256_srli_epi32::<4>(word), low)]
    } else {
        [word; 2]
    }
}

/// Value `j` of each word as f32. The byte shuffle picks and widens in one step, and not on the multipliers' ports.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn value<const N: usize>(bytes: &[__m256i; 2], j: usize) -> __m256 {
    let (part, byte) = if N == 8 { (j % 2, j / 2) } else { (0, j) };
    let first = _mm256_setr_epi8(
        0, -128, -128, -128, 4, -128, -128, -128, 8, -128, -128, -128, 12, -128, -128, -128, //
        0, -128, -128, -128, 4, -128, -128, -128, 8, -128, -128, -128, 12, -128, -128, -128,
    );
    let pick = _mm256_add_epi32(first, _mm256_set1_epi32(byte as i32));
    _mm256_cvtepi32_ps(_mm256_shuffle_epi8(bytes[part], pick))
}

/// 8 bf16 as f32.
///
/// # Safety
/// They are there.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::arch) unsafe fn bf16(p: *const u16) -> __m256 {
    // SAFETY: by the caller.
    let bits = unsafe { _mm_loadu_si128(p.cast()) };
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(bits)))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn fold(quarters: &[[f32; LANES]; QUARTERS]) -> [f32; LANES] {
    let [a, b, c, d] = std::array::from_fn(|i| from_array(&quarters[i]));
    to_array(_mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d)))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn from_array(from: &[f32; LANES]) -> __m256 {
    // SAFETY: 8 floats.
    unsafe { _mm256_loadu_ps(from.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::arch) fn to_array(v: __m256) -> [f32; LANES] {
    let mut to = [0.0; LANES];
    // SAFETY: 8 floats.
    unsafe { _mm256_storeu_ps(to.as_mut_ptr(), v) };
    to
}
