#![allow(unsafe_code)] // vector loads and stores

//! `y = W x` with integer activations and `vpdpbusd`: 16 matrix rows at a time, one a lane, times up to 8 rows of
//! activations. The 4 bytes of a lane are 4 columns, whose activations are one broadcast word.
//!
//! Needs AVX-512 VNNI. Without it the AVX2 function stands in this place of the table.

use super::matmul::{bf16, to_array, transpose};
use crate::acts::{Acts, Line, Planes, Side as ActSide};
use crate::arch::Out;
use crate::arch::x86::{ActRow, NATURAL, Place, Side, Source, ask_rows};
use crate::quant::{GROUP, QuantData, QuantMatrix};
use crate::tile::TILE_BYTES;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

const LANES: usize = 16;
/// Rows of activations that share a pass over a block of matrix rows: with two planes their 16 integer sums and the
/// weights in use fill the registers.
const X_ROWS: usize = 8;
/// Rows of activations that share a pass of [`rowwise`], and up to which it is the faster way.
const ROWWISE: usize = 4;
/// Groups of a row for which [`Turned`] has room: rows of 4,096.
const TURNED: usize = 64;
/// Bytes of activations that pass together over all blocks of matrix rows: a quarter of a usual second-level cache,
/// so that blocks have room beside them.
const NEAR: usize = 512 << 10;

/// See `Table`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
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
            (4, QuantData::Tiles { .. }, Planes::One) => blocks::<true, 1>(w, rows, acts, m_rows, out),
            (4, QuantData::Tiles { .. }, Planes::Two) => blocks::<true, 2>(w, rows, acts, m_rows, out),
            (4, QuantData::Rows { .. }, Planes::One) => blocks::<false, 1>(w, rows, acts, m_rows, out),
            (4, QuantData::Rows { .. }, Planes::Two) => blocks::<false, 2>(w, rows, acts, m_rows, out),
            (_, _, Planes::One) => byte_blocks::<1>(w, rows, acts, m_rows, out),
            (_, _, Planes::Two) => byte_blocks::<2>(w, rows, acts, m_rows, out),
        }
    }
}

/// Calls `$pass` with the rows of activations from `$m` up to `$end` that one pass takes, as its constant.
macro_rules! pass {
    ($m:expr, $end:expr, $pass:ident::<$($fixed:tt),*>($($argument:expr),*)) => {
        match $end - $m {
            X_ROWS.. => $pass::<$($fixed,)* X_ROWS>($($argument),*),
            4 | 7 => $pass::<$($fixed,)* 4>($($argument),*),
            // 5 are 3 and 2, 6 are 3 and 3.
            3.. => $pass::<$($fixed,)* 3>($($argument),*),
            2 => $pass::<$($fixed,)* 2>($($argument),*),
            _ => $pass::<$($fixed,)* 1>($($argument),*),
        }
    };
}

/// All 16-row blocks of 4 bits that `rows` touches, each with up to 8 rows of activations at a time.
///
/// # Safety
/// As `matmul_q`; `TILED` is the layout, `P` the planes.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn blocks<const TILED: bool, const P: usize>(
    w: &QuantMatrix<'_>,
    rows: Range<usize>,
    acts: &Acts,
    m_rows: usize,
    out: Out,
) {
    let groups = w.groups();
    let mut side = Side::new();
    for (block, Range { start, end }) in passes(&rows, m_rows, groups * P) {
        let source = Source::<LANES>::new(w, block);
        let mut m = start;
        while m < end {
            let place = Place { out, m, first: block * LANES, rows: &rows, new: m == start };
            // SAFETY: as many rows of activations are left as each call takes; the rest by the caller.
            m += unsafe { pass!(m, end, some::<TILED, P>(&source, groups, acts, &mut side, &place)) };
        }
    }
}

/// All blocks that `rows` touches, with so many rows of activations at a time, of `lines` lines, that they stay in the second-level
/// cache while all blocks pass over them.
fn passes(rows: &Range<usize>, m_rows: usize, lines: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    let blocks = rows.start / LANES..rows.end.div_ceil(LANES);
    let deep = (NEAR / (lines * size_of::<Line>()) / X_ROWS * X_ROWS).max(X_ROWS);
    let starts = (0..m_rows).step_by(deep);
    starts.flat_map(move |m| blocks.clone().map(move |block| (block, m..m_rows.min(m + deep))))
}

/// All 16-row blocks of 8 bits in source order that `rows` touches.
///
/// # Safety
/// As `matmul_q`; `P` is the planes.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn byte_blocks<const P: usize>(
    w: &QuantMatrix<'_>,
    rows: Range<usize>,
    acts: &Acts,
    m_rows: usize,
    out: Out,
) {
    let groups = w.groups();
    let (mut side, mut turned) = (Side::new(), Turned::new());
    for (block, Range { start, end }) in passes(&rows, m_rows, groups * P) {
        let source = Source::<LANES>::new(w, block);
        let turn = end - start > ROWWISE && groups <= TURNED;
        if turn {
            // SAFETY: the source is such a matrix; its groups have room.
            unsafe { turned.fill(&source, groups, &mut side) };
        }
        // What is filled in next is asked for while the first of many rows are computed.
        let next = (turn && (block + 1) * LANES < rows.end).then(|| Source::<LANES>::new(w, block + 1));
        let mut m = start;
        while m < end {
            let place = Place { out, m, first: block * LANES, rows: &rows, new: m == start };
            let next = next.as_ref().filter(|_| place.new);
            // SAFETY: as many rows of activations are left as each call takes; `turned` was filled for this block;
            // the rest by the caller.
            m += unsafe {
                if turn {
                    pass!(m, end, some_turned::<P>(&turned, next, groups, acts, &place))
                } else {
                    let end = end.min(m + ROWWISE);
                    pass!(m, end, some_bytes::<P>(&source, groups, acts, &mut side, &place))
                }
            };
        }
    }
}

/// The block times `M` rows of activations; returns M.
///
/// # Safety
/// `acts` has rows `place.m..place.m + M`, `groups` groups each and `P` planes; `source` is a matrix of that width and
/// `TILED`; `place` is valid for M rows of results.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn some<const TILED: bool, const P: usize, const M: usize>(
    source: &Source<LANES>,
    groups: usize,
    acts: &Acts,
    side: &mut Side<LANES>,
    place: &Place<'_>,
) -> usize {
    let x: [ActRow; M] = ActRow::several(acts, place.m);
    let mut sums = [_mm512_setzero_ps(); M];
    for g in 0..groups {
        if place.new {
            source.ask(g, GROUP / 2);
        }
        // SAFETY: g is below groups, and rises; the rows of activations have a group there.
        unsafe {
            let dots = nibbles::<TILED, P, M>(source, g, &x);
            add(&mut sums, dots, source.side(g, groups, side), g, &x);
        }
    }
    // SAFETY: by the caller.
    unsafe { store(place, sums) }
}

/// As `some`, with 8-bit weights in source order.
///
/// # Safety
/// As there.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn some_bytes<const P: usize, const M: usize>(
    source: &Source<LANES>,
    groups: usize,
    acts: &Acts,
    side: &mut Side<LANES>,
    place: &Place<'_>,
) -> usize {
    let Source::Rows { weights, .. } = source else { unreachable!("8-bit weights are in source order") };
    let x: [ActRow; M] = ActRow::several(acts, place.m);
    let mut sums = [_mm512_setzero_ps(); M];
    for g in 0..groups {
        if place.new {
            source.ask(g, GROUP);
        }
        // SAFETY: g is below groups, and rises; the rows of activations have a group there.
        unsafe {
            let dots = rowwise::<P, M>(weights, g, &x);
            add(&mut sums, dots, source.side(g, groups, side), g, &x);
        }
    }
    // SAFETY: by the caller.
    unsafe { store(place, sums) }
}

/// As `some`, with 8-bit weights that were turned.
///
/// # Safety
/// As there; `turned` was filled with the block.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn some_turned<const P: usize, const M: usize>(
    turned: &Turned,
    next: Option<&Source<LANES>>,
    groups: usize,
    acts: &Acts,
    place: &Place<'_>,
) -> usize {
    let x: [ActRow; M] = ActRow::several(acts, place.m);
    let mut sums = [_mm512_setzero_ps(); M];
    for (g, group) in turned.0[..groups].iter().enumerate() {
        if let Some(Source::Rows { weights, .. }) = next {
            weights.iter().for_each(|row| ask_rows::<_MM_HINT_T1>(*row, g * GROUP, GROUP));
        }
        let mut dots = [[_mm512_setzero_si512(); P]; M];
        // SAFETY: the group was filled; the rows of activations have one there, with lines of 16 words.
        unsafe {
            let group = group.assume_init_ref();
            for (k, weights) in group.words.iter().enumerate() {
                let weights = _mm512_load_si512(weights.as_ptr().cast());
                for (dots, x) in dots.iter_mut().zip(&x) {
                    for (p, dot) in dots.iter_mut().enumerate() {
                        let word = *x.lines.add(g * P + p).cast::<i32>().add(k);
                        *dot = _mm512_dpbusd_epi32(*dot, weights, _mm512_set1_epi32(word));
                    }
                }
            }
            let sides = (group.scales.as_ptr(), group.biases.as_ptr());
            add(&mut sums, dots.map(|dots| join(&dots)), sides, g, &x);
        }
    }
    // SAFETY: by the caller.
    unsafe { store(place, sums) }
}

/// Adds what group `g` gives to the sums: `step (scale dot + bias total)`.
///
/// # Safety
/// There are 16 scales and biases; the rows of activations have a group g.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn add<const M: usize>(
    sums: &mut [__m512; M],
    dots: [__m512i; M],
    (scales, biases): (*const u16, *const u16),
    g: usize,
    x: &[ActRow; M],
) {
    // SAFETY: by the caller.
    unsafe {
        let (scale, bias) = (bf16(scales), bf16(biases));
        for ((sum, dot), x) in sums.iter_mut().zip(dots).zip(x) {
            let ActSide { step, sum: total } = *x.sides.add(g);
            let rest = _mm512_mul_ps(bias, _mm512_set1_ps(total));
            let t = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(dot), rest);
            *sum = _mm512_fmadd_ps(_mm512_set1_ps(step), t, *sum);
        }
    }
}

/// The sums to their place; returns M.
///
/// # Safety
/// It is valid for M rows of results.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn store<const M: usize>(place: &Place<'_>, sums: [__m512; M]) -> usize {
    for (m, sum) in sums.into_iter().enumerate() {
        // SAFETY: by the caller.
        unsafe { place.store(m, &to_array(sum)) };
    }
    M
}

/// The planes' dot products as one.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn join<const P: usize>(dots: &[__m512i; P]) -> __m512i {
    if P == 2 { _mm512_add_epi32(_mm512_slli_epi32::<8>(dots[0]), dots[P - 1]) } else { dots[0] }
}

/// A block of 16 rows of 8-bit weights as tiles would have it, for many rows of activations: a row in each lane, the columns
/// of a word as those of a word of a line.
struct Turned([MaybeUninit<TurnedGroup>; TURNED]);

#[repr(align(64))]
struct TurnedGroup {
    words: [[u32; LANES]; GROUP / 4],
    scales: [u16; LANES],
    biases: [u16; LANES],
}

impl Turned {
    fn new() -> Turned {
        Turned([const { MaybeUninit::uninit() }; TURNED])
    }

    /// Takes in a block.
    ///
    /// # Safety
    /// It is one of 8-bit weights in source order, of `groups` groups.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn fill(&mut self, source: &Source<LANES>, groups: usize, side: &mut Side<LANES>) {
        let Source::Rows { weights, .. } = source else { unreachable!("8-bit weights are in source order") };
        for (g, to) in self.0[..groups].iter_mut().enumerate() {
            source.ask(g, GROUP);
            let to = to.as_mut_ptr();
            // SAFETY: a group has 64 bytes in each row; `to` has as many words.
            unsafe { turn_bytes(weights, g, &mut (*to).words) };
            // SAFETY: g is below groups, and rises; 16 values each.
            unsafe {
                let (scales, biases) = source.side(g, groups, side);
                (*to).scales = scales.cast::<[u16; LANES]>().read();
                (*to).biases = biases.cast::<[u16; LANES]>().read();
            }
        }
    }
}

/// Group `g` of 16 rows of 8-bit weights in source order as tiles would have it: a row in each lane, the columns of a word
/// as those of a word of a line.
///
/// # Safety
/// The group is there in each row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(in crate::arch) unsafe fn turn_bytes(
    rows: &[*const u8; LANES],
    g: usize,
    to: &mut [[u32; LANES]; GROUP / 4],
) {
    /// Of a word the even columns first.
    const EVEN_FIRST: [u8; 16] = [0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15];
    // SAFETY: 16 bytes.
    let split = unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(EVEN_FIRST.as_ptr().cast())) };
    for h in 0..GROUP / 16 {
        let mut words = [_mm512_setzero_si512(); 4];
        // SAFETY: a group has 16 words in each row; `to` has as many.
        unsafe {
            transpose(rows, g * GROUP + h * 16, &mut words);
            let [a, b, c, d] = words.map(|word| _mm512_shuffle_epi8(word, split));
            let even = |a, b| _mm512_mask_blend_epi16(0xAAAA_AAAA, a, _mm512_slli_epi32::<16>(b));
            let odd = |a, b| _mm512_mask_blend_epi16(0xAAAA_AAAA, _mm512_srli_epi32::<16>(a), b);
            for (k, word) in [even(a, b), odd(a, b), even(c, d), odd(c, d)].into_iter().enumerate() {
                _mm512_storeu_si512(to[h * 4 + k].as_mut_ptr().cast(), word);
            }
        }
    }
}

/// The integer dot products of group `g` of 4-bit weights.
///
/// # Safety
/// The group is there in `source` and in each of `x`, which has `P` planes; `TILED` as `some`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn nibbles<const TILED: bool, const P: usize, const M: usize>(
    source: &Source<LANES>,
    g: usize,
    x: &[ActRow; M],
) -> [__m512i; M] {
    let mut dots = [[_mm512_setzero_si512(); P]; M];
    for h in 0..2 {
        // SAFETY: a group has 8 words, `x` a group at g. Each word by itself: an array of vectors that is iterated
        // over goes through memory, which cost a fifth of the time.
        unsafe {
            let [first, second, third, fourth] = four::<TILED>(source, g, h);
            step::<P, M>(&mut dots, first, h * 4, g, x);
            step::<P, M>(&mut dots, second, h * 4 + 1, g, x);
            step::<P, M>(&mut dots, third, h * 4 + 2, g, x);
            step::<P, M>(&mut dots, fourth, h * 4 + 3, g, x);
        }
    }
    dots.map(|dots| join(&dots))
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

/// Adds the products of word `k` of group `g`, 8 columns.
///
/// # Safety
/// The group is there in each of `x`, which has `P` planes; `k` is below 8.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn step<const P: usize, const M: usize>(
    dots: &mut [[__m512i; P]; M],
    weights: __m512i,
    k: usize,
    g: usize,
    x: &[ActRow; M],
) {
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
/// They are there; `TILED` as `some`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(in crate::arch) unsafe fn four<const TILED: bool>(
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
                transpose(weights, g * GROUP / 2 + h * 16, &mut words);
                words
            }
            _ => std::hint::unreachable_unchecked(),
        }
    }
}
