#![allow(unsafe_code)] // vector loads and stores

//! `y = W x` with integer activations and `vpdpbusd`: 16 matrix rows at a time, one a lane, times up to 8 rows of
//! activations. The 4 bytes of a lane are 4 columns, whose activations are one broadcast word.
//!
//! Needs AVX-512 VNNI. Without it the AVX2 function stands in this place of the table.

use super::matmul::{bf16, to_array, transpose};
use crate::acts::{Acts, Line, Planes, Side as ActSide};
use crate::arch::Out;
use crate::arch::x86::{ActRow, NATURAL, Place, Side, Source};
use crate::quant::{GROUP, QuantData, QuantMatrix};
use crate::tile::TILE_BYTES;
use std::arch::x86_64::*;
use std::ops::Range;

const LANES: usize = 16;
/// Rows of activations that share a pass over a block of matrix rows: with two planes their 16 integer sums and the
/// weights in use fill the registers.
const X_ROWS: usize = 8;
/// Rows of activations up to which [`rowwise`] is the faster way.
const ROWWISE: usize = 4;
/// Bytes of activations that pass together over all blocks of matrix rows: a quarter of a usual second-level cache,
/// so that blocks have room beside them.
const NEAR: usize = 512 << 10;

/// See `Table`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) unsafe fn matmul_q(w: &QuantMatrix<'_>, rows: Range<usize>, acts: &Acts, m_rows: usize, out: Out) {
    // SAFETY: the caller's promise is passed on; words, layout and planes are those of the operands.
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

/// All 16-row blocks that `rows` touches, each with up to 8 rows of activations at a time.
///
/// # Safety
/// As `matmul_q`; `N` is the 32-bit words of a group, `TILED` the layout, `P` the planes.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn blocks<const N: usize, const TILED: bool, const P: usize>(
    w: &QuantMatrix<'_>,
    rows: Range<usize>,
    acts: &Acts,
    m_rows: usize,
    out: Out,
) {
    let groups = w.groups();
    let mut side = Side::new();
    // So many rows at a time that they stay in the second-level cache while all blocks pass over them.
    let deep = (NEAR / (groups * P * size_of::<Line>()) / X_ROWS * X_ROWS).max(X_ROWS);
    for start in (0..m_rows).step_by(deep) {
        let end = m_rows.min(start + deep);
        for block in rows.start / LANES..rows.end.div_ceil(LANES) {
            let source = Source::<LANES>::new(w, block);
            let mut m = start;
            while m < end {
                let place = Place { out, m, first: block * LANES, rows: &rows, new: m == start };
                // SAFETY: as many rows of activations are left as each call takes; the rest by the caller.
                m += unsafe {
                    match end - m {
                        X_ROWS.. => some::<N, TILED, P, X_ROWS>(&source, groups, acts, &mut side, &place),
                        4 | 7 => some::<N, TILED, P, 4>(&source, groups, acts, &mut side, &place),
                        // 5 are 3 and 2, 6 are 3 and 3.
                        3.. => some::<N, TILED, P, 3>(&source, groups, acts, &mut side, &place),
                        2 => some::<N, TILED, P, 2>(&source, groups, acts, &mut side, &place),
                        _ => some::<N, TILED, P, 1>(&source, groups, acts, &mut side, &place),
                    }
                };
            }
        }
    }
}

/// The block times `M` rows of activations; returns M.
///
/// # Safety
/// `acts` has rows `place.m..place.m + M`, `groups` groups each and `P` planes; `source` is a matrix of that width,
/// `N` and `TILED`; `place` is valid for M rows of
/// results.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn some<const N: usize, const TILED: bool, const P: usize, const M: usize>(
    source: &Source<LANES>,
    groups: usize,
    acts: &Acts,
    side: &mut Side<LANES>,
    place: &Place<'_>,
) -> usize {
    let x: [ActRow; M] = std::array::from_fn(|m| ActRow::new(acts, place.m + m));
    let mut sums = [_mm512_setzero_ps(); M];
    for g in 0..groups {
        if place.new {
            source.ask(g, N * 4);
        }
        // SAFETY: g is below groups, and rises; the rows of activations have a group there.
        unsafe {
            let dots = match source {
                Source::Rows { weights, .. } if N == 16 && M <= ROWWISE => rowwise::<P, M>(weights, g, &x),
                _ => dots::<N, TILED, P, M>(source, g, &x),
            };
            let (scales, biases) = source.side(g, groups, side);
            let (scale, bias) = (bf16(scales), bf16(biases));
            for ((sum, dot), x) in sums.iter_mut().zip(dots).zip(&x) {
                let ActSide { step, sum: total } = *x.sides.add(g);
                let rest = _mm512_mul_ps(bias, _mm512_set1_ps(total));
                let t = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(dot), rest);
                *sum = _mm512_fmadd_ps(_mm512_set1_ps(step), t, *sum);
            }
        }
    }
    for (m, sum) in sums.into_iter().enumerate() {
        // SAFETY: by the caller.
        unsafe { place.store(m, &to_array(sum)) };
    }
    M
}

/// The integer dot products of group `g`.
///
/// # Safety
/// The group is there in `source` and in each of `x`, which has `P` planes; `N` and `TILED` as `some`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn dots<const N: usize, const TILED: bool, const P: usize, const M: usize>(
    source: &Source<LANES>,
    g: usize,
    x: &[ActRow; M],
) -> [__m512i; M] {
    let mut natural = [[[0u32; GROUP / 4]; P]; M];
    if N == 16 {
        for (x, natural) in x.iter().zip(&mut natural) {
            for (p, natural) in natural.iter_mut().enumerate() {
                // SAFETY: the line is there; 64 bytes to write.
                unsafe {
                    let line = _mm512_loadu_si512(x.lines.add(g * P + p).cast());
                    let order = _mm512_broadcast_i32x4(_mm_loadu_si128(NATURAL.as_ptr().cast()));
                    _mm512_storeu_si512(natural.as_mut_ptr().cast(), _mm512_shuffle_epi8(line, order));
                }
            }
        }
    }
    let mut dots = [[_mm512_setzero_si512(); P]; M];
    for h in 0..N / 4 {
        // SAFETY: a group has N words, `x` a group at g. Each word by itself: an array of vectors that is iterated
        // over goes through memory, which cost a fifth of the time.
        unsafe {
            let [first, second, third, fourth] = four::<N, TILED>(source, g, h);
            step::<N, P, M>(&mut dots, first, h * 4, g, x, &natural);
            step::<N, P, M>(&mut dots, second, h * 4 + 1, g, x, &natural);
            step::<N, P, M>(&mut dots, third, h * 4 + 2, g, x, &natural);
            step::<N, P, M>(&mut dots, fourth, h * 4 + 3, g, x, &natural);
        }
    }
    dots.map(|dots| if P == 2 { _mm512_add_epi32(_mm512_slli_epi32::<8>(dots[0]), dots[1]) } else { dots[0] })
}

/// The integer dot products of group `g` of 8-bit weights in source order, a column in each byte and the rows one after the
/// other: their lanes are added up for all 16 rows together, which takes half as many shuffles as turning words of 16 rows.
///
/// # Safety
/// The group is there in each row and in each of `x`, which has `P` planes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn rowwise<const P: usize, const M: usize>(
    rows: &[*const u8; LANES],
    g: usize,
    x: &[ActRow; M],
) -> [__m512i; M] {
    // SAFETY: 16 bytes.
    let order = unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(NATURAL.as_ptr().cast())) };
    let mut lines = [[_mm512_setzero_si512(); P]; M];
    for (x, lines) in x.iter().zip(&mut lines) {
        for (p, line) in lines.iter_mut().enumerate() {
            // SAFETY: the line is there.
            let columns = unsafe { _mm512_loadu_si512(x.lines.add(g * P + p).cast()) };
            *line = _mm512_shuffle_epi8(columns, order);
        }
    }
    // SAFETY: a row has 64 bytes for each group.
    let weights = |row: usize| unsafe { _mm512_loadu_si512(rows[row].add(g * GROUP).cast()) };
    let dot = |weights: __m512i, line: &[__m512i; P]| {
        let zero = _mm512_setzero_si512();
        let first = _mm512_dpbusd_epi32(zero, weights, line[0]);
        if P == 2 { _mm512_dpbusd_epi32(_mm512_slli_epi32::<8>(first), weights, line[P - 1]) } else { first }
    };
    // Of four rows their sums over each 128 bits.
    let four = |row: usize| -> [__m512i; M] {
        let w = [weights(row), weights(row + 1), weights(row + 2), weights(row + 3)];
        std::array::from_fn(|m| {
            let [a, b, c, d] = w.map(|w| dot(w, &lines[m]));
            let ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
            let cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
            _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd))
        })
    };
    let halves = |a: __m512i, b: __m512i| {
        let (even, odd) = (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xDD>(a, b));
        _mm512_add_epi32(even, odd)
    };
    let (a, b) = (four(0), four(4));
    let first: [__m512i; M] = std::array::from_fn(|m| halves(a[m], b[m]));
    let (c, d) = (four(8), four(12));
    std::array::from_fn(|m| halves(first[m], halves(c[m], d[m])))
}

/// Adds the products of word `k` of group `g`: of 8 columns (4 bits), or of 4 whose activations are in `natural`.
///
/// # Safety
/// The group is there in each of `x`, which has `P` planes; `k` is below `N`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn step<const N: usize, const P: usize, const M: usize>(
    dots: &mut [[__m512i; P]; M],
    weights: __m512i,
    k: usize,
    g: usize,
    x: &[ActRow; M],
    natural: &[[[u32; GROUP / 4]; P]; M],
) {
    if N == 16 {
        for (m, dots) in dots.iter_mut().enumerate() {
            for (p, dot) in dots.iter_mut().enumerate() {
                *dot = _mm512_dpbusd_epi32(*dot, weights, _mm512_set1_epi32(natural[m][p][k].cast_signed()));
            }
        }
        return;
    }
    let low = _mm512_set1_epi8(15);
    let even = _mm512_and_si512(weights, low);
    let odd = _mm512_and_si512(_mm512_srli_epi32::<4>(weights), low);
    // SAFETY: the line is there and has 16 words.
    let word = |m: usize, p: usize, i: usize| unsafe {
        _mm512_set1_epi32(*x[m].lines.add(g * P + p).cast::<i32>().add(i))
    };
    for (m, dots) in dots.iter_mut().enumerate() {
        for (p, dot) in dots.iter_mut().enumerate() {
            *dot = _mm512_dpbusd_epi32(*dot, even, word(m, p, 2 * k));
        }
    }
    for (m, dots) in dots.iter_mut().enumerate() {
        for (p, dot) in dots.iter_mut().enumerate() {
            *dot = _mm512_dpbusd_epi32(*dot, odd, word(m, p, 2 * k + 1));
        }
    }
}

/// Words `4 h..4 h + 4` of group `g`, a row in each lane.
///
/// # Safety
/// They are there; `N` and `TILED` as `some`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn four<const N: usize, const TILED: bool>(
    source: &Source<LANES>,
    g: usize,
    h: usize,
) -> [__m512i; 4] {
    // SAFETY: by the caller.
    unsafe {
        match source {
            Source::Tiles { panel, .. } if TILED => {
                let words = panel.add(g * TILE_BYTES + h * 256);
                std::array::from_fn(|k| _mm512_loadu_si512(words.add(k * 64).cast()))
            }
            Source::Rows { weights, .. } if !TILED => {
                let mut words = [_mm512_setzero_si512(); 4];
                transpose(weights, g * N * 4 + h * 16, &mut words);
                words
            }
            _ => std::hint::unreachable_unchecked(),
        }
    }
}
