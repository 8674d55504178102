#![allow(unsafe_code)] // vector loads and stores

//! `y = W x` with integer activations and `vpmaddubsw`: 8 matrix rows at a time (half a tile), one a lane, times up
//! to 4 rows of activations.
//!
//! `vpmaddubsw` adds two products of an unsigned and a signed byte into 16 bits and saturates. Only nibbles come into
//! it, so a step adds at most 2 * 15 * 128 = 3840, and [`DEEP`] steps fit before the
//! sum has to move to 32 bits. 8-bit weights take `vpmaddwd` instead.

use super::matmul::{bf16, to_array, transpose};
use crate::acts::{Acts, Line, Planes, Side as ActSide};
use crate::arch::Out;
use crate::arch::x86::{ActRow, NATURAL, Place, Side, Source};
use crate::quant::{GROUP, QuantData, QuantMatrix};
use crate::tile::{TILE_BYTES, TILE_ROWS};
use std::arch::x86_64::*;
use std::ops::Range;

pub(in crate::arch) const LANES: usize = 8;
/// Rows of activations that share a pass over a block of matrix rows.
pub(in crate::arch) const X_ROWS: usize = 4;
/// Bytes of activations that pass together over all blocks of matrix rows, see the AVX-512 twin.
pub(in crate::arch) const NEAR: usize = 128 << 10;
/// `vpmaddubsw` steps that 16 bits hold.
const DEEP: usize = 8;
const _: () = assert!(DEEP * 2 * 15 * 128 <= i16::MAX as usize);

/// The product around `nibbles` and `bytes` of the module that uses it, compiled for its features.
macro_rules! product {
    ($features:literal) => {
        /// See `Table`.
        #[target_feature(enable = $features)]
        pub(in crate::arch) unsafe fn matmul_q(
            w: &QuantMatrix<'_>,
            rows: Range<usize>,
            acts: &Acts,
            m_rows: usize,
            out: Out,
        ) {
            // SAFETY: the caller's promise is passed on; words, layout and planes are those of the operands.
            unsafe {
                match (w.bits(), w.data(), acts.planes()) {
                    (4, QuantData::Tiles { .. }, Planes::One) => {
                        blocks::<8, true, 1>(w, rows, acts, m_rows, out)
                    }
                    (4, QuantData::Tiles { .. }, Planes::Two) => {
                        blocks::<8, true, 2>(w, rows, acts, m_rows, out)
                    }
                    (4, QuantData::Rows { .. }, Planes::One) => {
                        blocks::<8, false, 1>(w, rows, acts, m_rows, out)
                    }
                    (4, QuantData::Rows { .. }, Planes::Two) => {
                        blocks::<8, false, 2>(w, rows, acts, m_rows, out)
                    }
                    (_, _, Planes::One) => blocks::<16, false, 1>(w, rows, acts, m_rows, out),
                    (_, _, Planes::Two) => blocks::<16, false, 2>(w, rows, acts, m_rows, out),
                }
            }
        }

        /// All 8-row blocks that `rows` touches, with up to 4 rows of activations at a time.
        ///
        /// # Safety
        /// As `matmul_q`; `N` is the 32-bit words of a group, `TILED` the layout, `P` the planes.
        #[target_feature(enable = $features)]
        unsafe fn blocks<const N: usize, const TILED: bool, const P: usize>(
            w: &QuantMatrix<'_>,
            rows: Range<usize>,
            acts: &Acts,
            m_rows: usize,
            out: Out,
        ) {
            let mut side = Side::new();
            // So many rows at a time that they stay in the second-level cache while all blocks pass over them.
            let deep = (NEAR / (w.groups() * P * size_of::<Line>()) / X_ROWS * X_ROWS).max(X_ROWS);
            for start in (0..m_rows).step_by(deep) {
                let end = m_rows.min(start + deep);
                let mut block = rows.start / LANES;
                while block * LANES < rows.end {
                    let first = Source::<LANES>::new(w, block);
                    // Both halves of a panel in one pass: two passes would leave memory idle in every second one.
                    let whole = TILED && block.is_multiple_of(2) && (block + 1) * LANES < rows.end;
                    let mut m = start;
                    while m < end {
                        let place = Place { out, m, first: block * LANES, rows: &rows, new: m == start };
                        // SAFETY: as many rows of activations are left as each call takes, and the second half of the
                        // panel exists because `rows` reaches into it; the rest by the caller.
                        m += unsafe {
                            if whole {
                                let sources = [&first, &Source::new(w, block + 1)];
                                upto::<N, TILED, P, 2>(end - m, &sources, w.groups(), acts, &mut side, &place)
                            } else {
                                upto::<N, TILED, P, 1>(
                                    end - m,
                                    &[&first],
                                    w.groups(),
                                    acts,
                                    &mut side,
                                    &place,
                                )
                            }
                        };
                    }
                    block += 1 + usize::from(whole);
                }
            }
        }

        /// As many of the `left` rows of activations as one pass takes, at most 4; returns how many.
        ///
        /// # Safety
        /// As `some`, with these many for M.
        #[target_feature(enable = $features)]
        unsafe fn upto<const N: usize, const TILED: bool, const P: usize, const H: usize>(
            left: usize,
            sources: &[&Source<LANES>; H],
            groups: usize,
            acts: &Acts,
            side: &mut Side<LANES>,
            place: &Place<'_>,
        ) -> usize {
            // SAFETY: by the caller.
            unsafe {
                match left {
                    // 5 are 3 and 2.
                    3 | 5 => some::<N, TILED, P, H, 3>(sources, groups, acts, side, place),
                    X_ROWS.. => some::<N, TILED, P, H, X_ROWS>(sources, groups, acts, side, place),
                    2 => some::<N, TILED, P, H, 2>(sources, groups, acts, side, place),
                    _ => some::<N, TILED, P, H, 1>(sources, groups, acts, side, place),
                }
            }
        }

        /// `H` neighbouring blocks (more than one only of tiles) times `M` rows of activations; returns M.
        ///
        /// # Safety
        /// `acts` has rows `place.m..place.m + M`, `groups` groups each and `P` planes; `sources` are of a matrix of that width,
        /// `N` and `TILED`; `place` is valid for M rows of
        /// results.
        #[target_feature(enable = $features)]
        unsafe fn some<const N: usize, const TILED: bool, const P: usize, const H: usize, const M: usize>(
            sources: &[&Source<LANES>; H],
            groups: usize,
            acts: &Acts,
            side: &mut Side<LANES>,
            place: &Place<'_>,
        ) -> usize {
            let x: [ActRow; M] = ActRow::several(acts, place.m);
            let mut sums = [[_mm256_setzero_ps(); M]; H];
            for g in 0..groups {
                if place.new {
                    sources[0].ask(g, N * 4);
                }
                for (source, sums) in sources.iter().zip(&mut sums) {
                    // SAFETY: g is below groups, and rises; the rows of activations have a group there.
                    unsafe {
                        let dots = if N == 8 {
                            nibbles::<TILED, P, M>(source, g, &x)
                        } else {
                            bytes::<P, M>(source, g, &x)
                        };
                        let (scales, biases) = source.side(g, groups, side);
                        let (scale, bias) = (bf16(scales), bf16(biases));
                        for ((sum, dot), x) in sums.iter_mut().zip(dots).zip(&x) {
                            let ActSide { step, sum: total } = *x.sides.add(g);
                            let rest = _mm256_mul_ps(bias, _mm256_set1_ps(total));
                            let t = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(dot), rest);
                            *sum = _mm256_fmadd_ps(_mm256_set1_ps(step), t, *sum);
                        }
                    }
                }
            }
            for (h, sums) in sums.into_iter().enumerate() {
                let place = Place { first: place.first + h * LANES, ..*place };
                for (m, sum) in sums.into_iter().enumerate() {
                    // SAFETY: by the caller.
                    unsafe { place.store(m, &to_array(sum)) };
                }
            }
            M
        }
    };
}
pub(in crate::arch) use product;

product!("avx2,fma,f16c");

/// The integer dot products of group `g` of 4-bit weights: each word gives its low nibbles to the even columns, its
/// high ones to the odd columns.
///
/// # Safety
/// The group is there in `source` and in each of `x`, which has `P` planes; `TILED` as `some`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn nibbles<const TILED: bool, const P: usize, const M: usize>(
    source: &Source<LANES>,
    g: usize,
    x: &[ActRow; M],
) -> [__m256i; M] {
    // SAFETY: the line is there and has 16 words.
    let word = |m: usize, p: usize, i: usize| unsafe { *x[m].lines.add(g * P + p).cast::<i32>().add(i) };
    let (low, ones) = (_mm256_set1_epi8(15), _mm256_set1_epi16(1));
    let mut dots = [[_mm256_setzero_si256(); P]; M];
    for h in 0..2 {
        let mut short = [[_mm256_setzero_si256(); P]; M];
        // SAFETY: a group has 8 words. Each by itself: an array of vectors that is iterated over goes through memory.
        let [first, second, third, fourth] = unsafe { four::<8, TILED>(source, g, h) };
        let mut step = |weights, k: usize| {
            let even = _mm256_and_si256(weights, low);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<4>(weights), low);
            for (m, short) in short.iter_mut().enumerate() {
                for (p, short) in short.iter_mut().enumerate() {
                    let first = _mm256_maddubs_epi16(even, _mm256_set1_epi32(word(m, p, 2 * k)));
                    let second = _mm256_maddubs_epi16(odd, _mm256_set1_epi32(word(m, p, 2 * k + 1)));
                    *short = _mm256_add_epi16(*short, _mm256_add_epi16(first, second));
                }
            }
        };
        step(first, h * 4);
        step(second, h * 4 + 1);
        step(third, h * 4 + 2);
        step(fourth, h * 4 + 3);
        // 4 words of 2 steps each: DEEP.
        for (dots, short) in dots.iter_mut().flatten().zip(short.iter().flatten()) {
            *dots = _mm256_add_epi32(*dots, _mm256_madd_epi16(*short, ones));
        }
    }
    dots.map(|dots| join(&dots))
}

/// The integer dot products of group `g` of 8-bit weights in source order: a column in each 16 bits, the rows one after the
/// other, whose lanes are added up for all 8 together. Both planes are one number of 16 bits here, so they cost no more than
/// one does.
///
/// # Safety
/// As `nibbles`, of a matrix in source order.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn bytes<const P: usize, const M: usize>(
    source: &Source<LANES>,
    g: usize,
    x: &[ActRow; M],
) -> [__m256i; M] {
    let Source::Rows { weights: rows, .. } = source else {
        // SAFETY: by the caller.
        unsafe { std::hint::unreachable_unchecked() }
    };
    // SAFETY: the line is there.
    let x: [[__m256i; 4]; M] = std::array::from_fn(|m| unsafe { words::<P>(x[m].lines.add(g * P)) });
    let zero = _mm256_setzero_si256();
    let mut dots = [[zero; LANES]; M];
    for (row, weights) in rows.iter().enumerate() {
        // SAFETY: a row has 64 bytes for each group.
        let half = |half: usize| unsafe { _mm256_loadu_si256(weights.add(g * GROUP + half * 32).cast()) };
        let (first, second) = (half(0), half(1));
        let w = [
            _mm256_unpacklo_epi8(first, zero),
            _mm256_unpackhi_epi8(first, zero),
            _mm256_unpacklo_epi8(second, zero),
            _mm256_unpackhi_epi8(second, zero),
        ];
        for (dots, x) in dots.iter_mut().zip(&x) {
            // At most 64 * 255 * 32512 in all lanes together.
            let [a, b, c, d] = std::array::from_fn(|i| _mm256_madd_epi16(w[i], x[i]));
            dots[row] = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
        }
    }
    dots.map(|dots| fold(&dots))
}

/// For each of 8 rows the sum of its lanes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::arch) fn fold(dots: &[__m256i; LANES]) -> __m256i {
    let pairs = |i: usize| _mm256_hadd_epi32(dots[i], dots[i + 1]);
    let (low, high) = (_mm256_hadd_epi32(pairs(0), pairs(2)), _mm256_hadd_epi32(pairs(4), pairs(6)));
    let (even, odd) =
        (_mm256_permute2x128_si256::<0x20>(low, high), _mm256_permute2x128_si256::<0x31>(low, high));
    _mm256_add_epi32(even, odd)
}

/// The 64 activations of a group as 16-bit numbers, in the order in which unpacking leaves bytes.
///
/// # Safety
/// There are `P` lines.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn words<const P: usize>(lines: *const Line) -> [__m256i; 4] {
    // SAFETY: 16 bytes.
    let order = unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(NATURAL.as_ptr().cast())) };
    // SAFETY: a line is two halves of 32 bytes.
    let natural = |p: usize, half: usize| unsafe {
        _mm256_shuffle_epi8(_mm256_loadu_si256(lines.add(p).cast::<__m256i>().add(half)), order)
    };
    let half = |half: usize| {
        let low = natural(P - 1, half);
        // What a negative low byte takes from the high one.
        let sign = _mm256_cmpgt_epi8(_mm256_setzero_si256(), low);
        let high = if P == 2 { _mm256_add_epi8(natural(0, half), sign) } else { sign };
        [_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high)]
    };
    let ([a, b], [c, d]) = (half(0), half(1));
    [a, b, c, d]
}

/// The planes' dot products as one.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::arch) fn join<const P: usize>(dots: &[__m256i; P]) -> __m256i {
    if P == 2 { _mm256_add_epi32(_mm256_slli_epi32::<8>(dots[0]), dots[1]) } else { dots[0] }
}

/// Words `4 h..4 h + 4` of group `g`, a row in each lane.
///
/// # Safety
/// They are there; `N` and `TILED` as `some`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::arch) unsafe fn four<const N: usize, const TILED: bool>(
    source: &Source<LANES>,
    g: usize,
    h: usize,
) -> [__m256i; 4] {
    // SAFETY: by the caller.
    unsafe {
        match source {
            Source::Tiles { panel, lane } if TILED => {
                let words = panel.add(g * TILE_BYTES + (h * 4 * TILE_ROWS + lane) * 4);
                std::array::from_fn(|k| _mm256_loadu_si256(words.add(k * TILE_ROWS * 4).cast()))
            }
            Source::Rows { weights, .. } if !TILED => {
                let mut words = [_mm256_setzero_si256(); 4];
                transpose(weights, g * N * 4 + h * 16, &mut words);
                words
            }
            _ => std::hint::unreachable_unchecked(),
        }
    }
}
