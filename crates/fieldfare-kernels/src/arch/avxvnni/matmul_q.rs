#![allow(unsafe_code)] // vector loads and stores

//! `y = W x` with integer activations and `vpdpbusd` of 256 bits: as the AVX2 twin, whose 16-bit sums it does not need.

use crate::acts::{Acts, Line, Planes, Side as ActSide};
use crate::arch::Out;
use crate::arch::avx2::matmul::{bf16, to_array};
use crate::arch::avx2::matmul_q::{LANES, NEAR, X_ROWS, fold, four, join, product};
use crate::arch::x86::{ActRow, NATURAL, Place, Side, Source};
use crate::quant::{GROUP, QuantData, QuantMatrix};
use std::arch::x86_64::*;
use std::ops::Range;

product!("avx2,avxvnni,fma,f16c");

/// The integer dot products of group `g` of 4-bit weights.
///
/// # Safety
/// The group is there in `source` and in each of `x`, which has `P` planes; `TILED` as `some`.
#[inline]
#[target_feature(enable = "avx2,avxvnni,fma,f16c")]
unsafe fn nibbles<const TILED: bool, const P: usize, const M: usize>(
    source: &Source<LANES>,
    g: usize,
    x: &[ActRow; M],
) -> [__m256i; M] {
    // SAFETY: the line is there and has 16 words.
    let word = |m: usize, p: usize, i: usize| unsafe { *x[m].lines.add(g * P + p).cast::<i32>().add(i) };
    let low = _mm256_set1_epi8(15);
    let mut dots = [[_mm256_setzero_si256(); P]; M];
    for h in 0..2 {
        // SAFETY: a group has 8 words. Each by itself: an array of vectors that is iterated over goes through memory.
        let [first, second, third, fourth] = unsafe { four::<8, TILED>(source, g, h) };
        let mut step = |weights, k: usize| {
            let even = _mm256_and_si256(weights, low);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<4>(weights), low);
            for (m, dots) in dots.iter_mut().enumerate() {
                for (p, dot) in dots.iter_mut().enumerate() {
                    *dot = _mm256_dpbusd_avx_epi32(*dot, even, _mm256_set1_epi32(word(m, p, 2 * k)));
                    *dot = _mm256_dpbusd_avx_epi32(*dot, odd, _mm256_set1_epi32(word(m, p, 2 * k + 1)));
                }
            }
        };
        step(first, h * 4);
        step(second, h * 4 + 1);
        step(third, h * 4 + 2);
        step(fourth, h * 4 + 3);
    }
    dots.map(|dots| join(&dots))
}

/// The integer dot products of group `g` of 8-bit weights in source order, the rows one after the other.
///
/// # Safety
/// As `nibbles`, of a matrix in source order.
#[inline]
#[target_feature(enable = "avx2,avxvnni,fma,f16c")]
unsafe fn bytes<const P: usize, const M: usize>(
    source: &Source<LANES>,
    g: usize,
    x: &[ActRow; M],
) -> [__m256i; M] {
    let Source::Rows { weights: rows, .. } = source else {
        // SAFETY: by the caller.
        unsafe { std::hint::unreachable_unchecked() }
    };
    // SAFETY: 16 bytes.
    let order = unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(NATURAL.as_ptr().cast())) };
    // SAFETY: there are P lines of two halves of 32 bytes.
    let half = |m: usize, p: usize, half: usize| unsafe {
        let line = x[m].lines.add(g * P + p).cast::<__m256i>();
        _mm256_shuffle_epi8(_mm256_loadu_si256(line.add(half)), order)
    };
    let lines: [[[__m256i; 2]; P]; M] =
        std::array::from_fn(|m| std::array::from_fn(|p| [half(m, p, 0), half(m, p, 1)]));
    let mut dots = [[_mm256_setzero_si256(); LANES]; M];
    for (row, weights) in rows.iter().enumerate() {
        // SAFETY: a row has 64 bytes for each group.
        let half = |half: usize| unsafe { _mm256_loadu_si256(weights.add(g * GROUP + half * 32).cast()) };
        let (first, second) = (half(0), half(1));
        for (dots, lines) in dots.iter_mut().zip(&lines) {
            let add = |sum, line: &[__m256i; 2]| {
                _mm256_dpbusd_avx_epi32(_mm256_dpbusd_avx_epi32(sum, first, line[0]), second, line[1])
            };
            let high = add(_mm256_setzero_si256(), &lines[0]);
            dots[row] = if P == 2 { add(_mm256_slli_epi32::<8>(high), &lines[P - 1]) } else { high };
        }
    }
    dots.map(|dots| fold(&dots))
}
