#![allow(unsafe_code)] // vector loads and stores

//! `y = W x` with integer activations and tile registers: 16 matrix rows by 16 rows of activations by a group's 64 columns
//! are one `tdpbsud` for each plane, 16 384 multiply-adds. A tile of weights turned to bytes is what such a register wants
//! (`tile.rs` has a word of each of 16 rows next to each other), and a line of activations is a row of one.
//!
//! Every group has its own scale, so sums leave the registers after each: two blocks of matrix rows share a load of
//! activations, and the f32 sums of a chunk of rows stay in the first-level cache. It is a pipeline: while the products of
//! one step are made, those of the step before are written, and those of the step before that are added up.

use super::tiles::{ROWS, Sums, Tiles, Weights};
use crate::acts::{Acts, Line, Planes, Side as ActSide};
use crate::arch::Out;
use crate::arch::avx512::matmul::{bf16, to_array};
use crate::arch::avx512::matmul_q::{four, matmul_q as few, turn_bytes};
use crate::arch::x86::{Place, Side, Source, ask_rows};
use crate::quant::{GROUP, QuantData, QuantMatrix};
use std::arch::x86_64::*;
use std::cell::RefCell;
use std::ops::Range;

/// Rows of activations below which vectors are quicker.
const MANY: usize = 4;
/// Rows of activations that pass together over all matrix rows, at most.
const CHUNK: usize = 128;
/// Bytes of activations that do: half of such a CPU's second-level cache.
const NEAR: usize = 1 << 20;

/// See `Table`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) unsafe fn matmul_q(w: &QuantMatrix<'_>, rows: Range<usize>, acts: &Acts, m_rows: usize, out: Out) {
    // SAFETY: the caller's promise is passed on; words, layout and planes are those of the operands.
    unsafe {
        match (w.bits(), w.data(), acts.planes()) {
            _ if m_rows < MANY => few(w, rows, acts, m_rows, out),
            (4, QuantData::Tiles { .. }, Planes::One) => chunks::<true, true, 1>(w, rows, acts, m_rows, out),
            (4, QuantData::Tiles { .. }, Planes::Two) => chunks::<true, true, 2>(w, rows, acts, m_rows, out),
            (4, QuantData::Rows { .. }, Planes::One) => chunks::<true, false, 1>(w, rows, acts, m_rows, out),
            (4, QuantData::Rows { .. }, Planes::Two) => chunks::<true, false, 2>(w, rows, acts, m_rows, out),
            (_, _, Planes::One) => chunks::<false, false, 1>(w, rows, acts, m_rows, out),
            (_, _, Planes::Two) => chunks::<false, false, 2>(w, rows, acts, m_rows, out),
        }
    }
}

/// What a pass over one or two blocks keeps: f32 sums of [`CHUNK`] rows of activations, integer ones of two steps, the bytes of
/// two groups. Every pass writes what it reads.
struct Scratch {
    sums: [[[__m512; 2]; ROWS]; CHUNK / ROWS],
    dots: [[Sums; 2]; 2],
    weights: [[Weights; 2]; 2],
    sides: [Side<ROWS>; 2],
}

impl Scratch {
    #[target_feature(enable = "avx512f")]
    fn new() -> Self {
        Self {
            sums: [[[_mm512_setzero_ps(); 2]; ROWS]; CHUNK / ROWS],
            dots: [[Sums([[0; ROWS]; ROWS]); 2]; 2],
            weights: [[Weights([[0; ROWS]; ROWS]); 2]; 2],
            sides: [Side::new(), Side::new()],
        }
    }
}

thread_local! {
    /// A thread's own: to clear so much would cost a call with few rows as much as its products.
    static SCRATCH: RefCell<Option<Box<Scratch>>> = const { RefCell::new(None) };
}

/// A step whose integer sums are still to come: which f32 sums they go to, scales and biases of its matrix rows, steps and
/// totals of its activations.
#[derive(Clone, Copy)]
struct Pending {
    step: usize,
    block: usize,
    of_rows: (__m512, __m512),
    sides: *const ActSide,
}

/// All 16-row blocks that `rows` touches, two at a time, for a chunk of rows of activations after the other.
///
/// # Safety
/// As `matmul_q`; `NIBBLES` and `TILED` are the matrix's, `P` the planes.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn chunks<const NIBBLES: bool, const TILED: bool, const P: usize>(
    w: &QuantMatrix<'_>,
    rows: Range<usize>,
    acts: &Acts,
    m_rows: usize,
    out: Out,
) {
    let fit = (NEAR / (w.groups() * P * size_of::<Line>()) / ROWS * ROWS).clamp(ROWS, CHUNK);
    SCRATCH.with_borrow_mut(|scratch| {
        let scratch = scratch.get_or_insert_with(|| Box::new(Scratch::new()));
        for start in (0..m_rows).step_by(fit) {
            let chunk = Chunk::new(acts, start..m_rows.min(start + fit));
            // SAFETY: the table is this CPU's; a chunk has 1 to 16 rows at a time; the last one's are dropped.
            let tiles = unsafe { Tiles::new(chunk.rows) };
            let (mut block, end) = (rows.start / ROWS, rows.end.div_ceil(ROWS));
            while block < end {
                let pass = (w, block, &rows, out);
                // SAFETY: the blocks are there; the rest by the caller.
                block += unsafe {
                    if block + 1 < end {
                        chunk.pass::<NIBBLES, TILED, P, 2>(&tiles, pass, scratch)
                    } else {
                        chunk.pass::<NIBBLES, TILED, P, 1>(&tiles, pass, scratch)
                    }
                };
            }
        }
    });
}

/// Rows of activations that pass over the matrix together: `steps` times `rows`, the last step's some of the one before
/// again where they do not come out even.
struct Chunk<'a> {
    acts: &'a Acts,
    all: Range<usize>,
    steps: usize,
    rows: usize,
}

impl<'a> Chunk<'a> {
    fn new(acts: &'a Acts, all: Range<usize>) -> Self {
        let steps = all.len().div_ceil(ROWS).max(1);
        Self { acts, steps, rows: all.len().div_ceil(steps), all }
    }

    /// First row of step `i`.
    fn first(&self, i: usize) -> usize {
        (self.all.start + i * self.rows).min(self.all.end - self.rows)
    }

    /// All of them times `B` blocks from `block` on; returns B.
    ///
    /// # Safety
    /// The blocks are in the matrix, which is `NIBBLES` and `TILED`, the activations have `P` planes; `out` is valid for `rows` and
    /// the chunk's results; `tiles` is for as many rows as the chunk has in a step.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn pass<const NIBBLES: bool, const TILED: bool, const P: usize, const B: usize>(
        &self,
        tiles: &Tiles,
        (w, block, rows, out): (&QuantMatrix<'_>, usize, &Range<usize>, Out),
        s: &mut Scratch,
    ) -> usize {
        let groups = w.groups();
        let sources: [Source<ROWS>; B] = std::array::from_fn(|b| Source::new(w, block + b));
        let stride = groups * P * size_of::<Line>();
        let lines = self.acts.lines().as_ptr();
        let sides = self.acts.sides().as_ptr();
        let zero = _mm512_setzero_ps();
        s.sums[..self.steps].fill([[zero; 2]; ROWS]);
        let nothing = Pending { step: 0, block: 0, of_rows: (zero, zero), sides };
        let (mut pending, mut count) = ([nothing; 2], 0);
        // SAFETY: g is below groups, and rises; each step's rows of activations are there.
        unsafe {
            turn_all::<NIBBLES, TILED, B>(&sources, 0, &mut s.weights[0]);
            for g in 0..groups {
                if g + 1 < groups {
                    // By when registers want them they have long been written.
                    turn_all::<NIBBLES, TILED, B>(&sources, g + 1, &mut s.weights[(g + 1) % 2]);
                }
                let mut of_rows = [(zero, zero); B];
                for (b, source) in sources.iter().enumerate() {
                    let (scales, biases) = source.side(g, groups, &mut s.sides[b]);
                    of_rows[b] = (bf16(scales), bf16(biases));
                }
                tiles.weights::<B>(&s.weights[g % 2]);
                for step in 0..self.steps {
                    let first = self.first(step);
                    tiles.acts::<P>(lines.add((first * groups + g) * P).cast(), stride);
                    // Lines far apart, which no prefetcher follows.
                    let (next, next_g) = if step + 1 < self.steps { (step + 1, g) } else { (0, g + 1) };
                    let next = lines.wrapping_add((self.first(next) * groups + next_g) * P).cast();
                    for row in 0..self.rows {
                        ask_rows::<_MM_HINT_T0>(next, row * stride, P * size_of::<Line>());
                    }
                    for (block, &of_rows) in of_rows.iter().enumerate() {
                        let now = count % 2;
                        tiles.multiply::<P>(block, now, &mut s.dots[1 - now]);
                        if count > 1 {
                            self.add::<P>(&mut s.sums, &s.dots[now], &pending[now], groups);
                        }
                        let sides = sides.add(first * groups + g);
                        pending[now] = Pending { step, block, of_rows, sides };
                        count += 1;
                    }
                }
            }
            for _ in 0..2 {
                let now = count % 2;
                tiles.multiply::<P>(0, now, &mut s.dots[1 - now]);
                if count > 1 {
                    self.add::<P>(&mut s.sums, &s.dots[now], &pending[now], groups);
                }
                count += 1;
            }
        }
        for i in 0..self.steps {
            for b in 0..B {
                let place = Place { out, m: self.first(i), first: (block + b) * ROWS, rows, new: false };
                for m in 0..self.rows {
                    // SAFETY: by the caller.
                    unsafe { place.store(m, &to_array(s.sums[i][m][b])) };
                }
            }
        }
        B
    }

    /// Adds what a step gives to the sums of its rows of activations: `step (scale dot + bias total)`, as everywhere.
    ///
    /// # Safety
    /// The step's sides have as many steps and totals as rows, every `groups`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn add<const P: usize>(
        &self,
        sums: &mut [[[__m512; 2]; ROWS]; CHUNK / ROWS],
        dots: &[Sums; 2],
        of: &Pending,
        groups: usize,
    ) {
        let (scale, bias) = of.of_rows;
        for (m, sums) in sums[of.step].iter_mut().enumerate().take(self.rows) {
            // SAFETY: by the caller; a row of integers is a vector.
            unsafe {
                let ActSide { step, sum: total } = *of.sides.add(m * groups);
                let plane = |p: usize| _mm512_load_si512(dots[p].0[m].as_ptr().cast());
                let dot = match P {
                    2 => _mm512_add_epi32(_mm512_slli_epi32::<8>(plane(0)), plane(P - 1)),
                    _ => plane(0),
                };
                let rest = _mm512_mul_ps(bias, _mm512_set1_ps(total));
                let t = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(dot), rest);
                let sum = &mut sums[of.block];
                *sum = _mm512_fmadd_ps(_mm512_set1_ps(step), t, *sum);
            }
        }
    }
}

/// The weights of group `g` of all blocks as bytes.
///
/// # Safety
/// As [`turn`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn turn_all<const NIBBLES: bool, const TILED: bool, const B: usize>(
    sources: &[Source<ROWS>; B],
    g: usize,
    to: &mut [Weights; 2],
) {
    for (source, to) in sources.iter().zip(to) {
        source.ask(g, if NIBBLES { GROUP / 2 } else { GROUP });
        // SAFETY: by the caller.
        unsafe { turn::<NIBBLES, TILED>(source, g, to) };
    }
}

/// The weights of group `g` as bytes, columns in the order of a line.
///
/// # Safety
/// They are there; `NIBBLES` and `TILED` are the matrix's.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn turn<const NIBBLES: bool, const TILED: bool>(source: &Source<ROWS>, g: usize, to: &mut Weights) {
    if !NIBBLES {
        let Source::Rows { weights, .. } = source else { unreachable!("8-bit weights are in source order") };
        // SAFETY: a group has 64 bytes in each row.
        return unsafe { turn_bytes(weights, g, &mut to.0) };
    }
    let low = _mm512_set1_epi8(15);
    for h in 0..2 {
        // SAFETY: a group has 8 words.
        let words = unsafe { four::<TILED>(source, g, h) };
        for (k, word) in words.into_iter().enumerate() {
            let at = (h * 4 + k) * 2;
            let (even, odd) =
                (_mm512_and_si512(word, low), _mm512_and_si512(_mm512_srli_epi32::<4>(word), low));
            // SAFETY: 16 words of 4 bytes each.
            unsafe {
                _mm512_store_si512(to.0[at].as_mut_ptr().cast(), even);
                _mm512_store_si512(to.0[at + 1].as_mut_ptr().cast(), odd);
            }
        }
    }
}
