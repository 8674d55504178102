//! Attention of blocks of rows: the scalar one against plain f64, the others bit for bit against it, and the promise
//! that neither chunks, spans, pools nor neighbours show in a result.

use crate::data::*;
use fieldfare_kernels::{AttendScratch, Attention, Kernels, KvSlice, KvSpan, Pool, isas};
use half::f16;
use proptest::prelude::*;

/// A text's queries, keys and values in one layer: `[position][head][width]`, `[kv head][position][width]`.
struct Text {
    heads: usize,
    kv_heads: usize,
    width: usize,
    len: usize,
    window: Option<usize>,
    q: Vec<f32>,
    exact: [Vec<f32>; 2],
    half: [Vec<u16>; 2],
}

impl Text {
    fn random(r: &mut Random, shape: (usize, usize, usize), len: usize, window: Option<usize>) -> Text {
        let (heads, kv_heads, width) = shape;
        // Scores of ordinary size, so that many positions matter.
        let size = 3.0 / (width as f32).sqrt();
        let q = r.vector(len * heads * width).into_iter().map(|v| v * size).collect();
        let half = [(); 2].map(|()| r.vector(kv_heads * len * width).into_iter().map(f16::from_f32));
        let half = half.map(|values| values.map(f16::to_bits).collect::<Vec<_>>());
        let exact = half.clone().map(|v| v.into_iter().map(|v| f16::from_bits(v).to_f32()).collect());
        Text { heads, kv_heads, width, len, window, q, exact, half }
    }

    fn row(&self) -> usize {
        self.heads * self.width
    }

    fn oldest(&self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// Rows `first..first + rows` in one call, their keys and values in runs that end at each of `cuts`.
    fn attend(
        &self,
        kernels: &Kernels,
        pool: &Pool,
        scratch: &mut AttendScratch,
        (first, rows): (usize, usize),
        cuts: &[usize],
        half: bool,
    ) -> Vec<f32> {
        let (oldest, end) = (self.oldest(first), first + rows);
        let mut borders = vec![oldest, end];
        borders.extend(cuts.iter().filter(|&&cut| (oldest..end).contains(&cut)));
        borders.sort_unstable();
        borders.dedup();
        let mut spans = Vec::new();
        for head in 0..self.kv_heads {
            for pair in borders.windows(2) {
                let range =
                    (head * self.len + pair[0]) * self.width..(head * self.len + pair[1]) * self.width;
                let [keys, values] = [0, 1].map(|i| {
                    if half {
                        KvSlice::F16(&self.half[i][range.clone()])
                    } else {
                        KvSlice::F32(&self.exact[i][range.clone()])
                    }
                });
                spans.push(KvSpan { first: pair[0], keys, values });
            }
        }
        let (heads, kv_heads, width, window) = (self.heads, self.kv_heads, self.width, self.window);
        let a = Attention { heads, kv_heads, width, first, rows, window, spans: &spans };
        let mut out = vec![f32::NAN; rows * self.row()];
        kernels.attend(pool, &a, &self.q[first * self.row()..][..out.len()], scratch, &mut out);
        out
    }

    fn whole(&self, kernels: &Kernels) -> Vec<f32> {
        self.attend(kernels, &Pool::new(1), &mut AttendScratch::new(), (0, self.len), &[], false)
    }

    /// In f64, straight from the definition of attention; and the largest weight, a measure of what cancels.
    fn exact(&self, position: usize, head: usize) -> Vec<f64> {
        let kv = head / (self.heads / self.kv_heads);
        let at = |v: &[f32], j: usize, i: usize| f64::from(v[(kv * self.len + j) * self.width + i]);
        let q = &self.q[position * self.row() + head * self.width..];
        let seen = self.oldest(position)..position + 1;
        let dot = |j| (0..self.width).map(|i| f64::from(q[i]) * at(&self.exact[0], j, i)).sum::<f64>();
        let scores: Vec<f64> = seen.clone().map(dot).collect();
        let max = scores.iter().copied().fold(f64::MIN, f64::max);
        let p: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
        let sum: f64 = p.iter().sum();
        (0..self.width)
            .map(|i| seen.clone().zip(&p).map(|(j, p)| p / sum * at(&self.exact[1], j, i)).sum())
            .collect()
    }
}

/// ((heads, KV heads, width), positions, window): around the block of 128 and the 32 queries of an item.
#[allow(clippy::type_complexity)] // said once
fn texts() -> Vec<((usize, usize, usize), usize, Option<usize>)> {
    vec![
        ((1, 1, 1), 3, None),
        ((2, 1, 16), 130, None),
        ((4, 2, 40), 70, Some(1)),
        ((4, 2, 33), 140, Some(5)),
        ((6, 2, 64), 131, Some(128)),
        ((16, 8, 256), 40, Some(24)),
        ((16, 2, 512), 20, None),
        ((5, 5, 48), 300, Some(129)),
        ((40, 1, 16), 9, None),
        ((3, 3, 80), 259, None),
    ]
}

#[test]
fn scalar_is_attention() {
    let mut r = Random(40);
    for (shape, len, window) in texts() {
        let text = Text::random(&mut r, shape, len, window);
        let out = text.whole(scalar());
        for (i, out) in out.chunks(text.width).enumerate().step_by(1 + len / 20) {
            let exact = text.exact(i / text.heads, i % text.heads);
            for (&o, e) in out.iter().zip(exact) {
                // Values are below 1, weights add up to 1.
                assert!((f64::from(o) - e).abs() <= 2e-6, "{shape:?} {window:?}, {i}: {o} is not {e}");
            }
        }
    }
}

/// Zeros, the smallest, the smallest of full precision and the largest that f16 has.
const HALF_EDGES: [f32; 8] = [0.0, -0.0, 6e-8, -6e-8, 6.2e-5, -6.2e-5, 65504.0, -65504.0];

/// Scores from all but alike to hundreds apart: what `exp` makes of the rounding of a score grows with it.
#[test]
fn scores_of_every_size() {
    let mut r = Random(46);
    for (size, tolerance) in [(0.01, 2e-6), (10.0, 2e-5), (300.0, 5e-4)] {
        let mut text = Text::random(&mut r, (2, 1, 64), 300, None);
        text.q.iter_mut().for_each(|q| *q *= size);
        for kernels in all_kernels() {
            for (i, out) in text.whole(kernels).chunks(text.width).enumerate().step_by(7) {
                for (&o, e) in out.iter().zip(text.exact(i / text.heads, i % text.heads)) {
                    assert!((f64::from(o) - e).abs() <= tolerance, "{size}, {i}: {o} is not {e}");
                }
            }
        }
    }
}

#[test]
fn every_isa_gives_the_scalar_bits() {
    let mut r = Random(41);
    let wild = [&EDGES[..], &WILD[..]].concat();
    for (shape, len, window) in texts() {
        for edges in [&HALF_EDGES[..], &wild] {
            let mut text = Text::random(&mut r, shape, len, window);
            // In both types alike.
            for which in 0..2 {
                let values = r.vector_with(text.half[which].len(), edges).into_iter().map(f16::from_f32);
                text.half[which] = values.map(f16::to_bits).collect();
                let exact = text.half[which].iter().map(|&v| f16::from_bits(v).to_f32());
                text.exact[which] = exact.collect();
            }
            let expected = text.whole(scalar());
            for kernels in vector_kernels() {
                let what = format!("{:?} {shape:?}", kernels.isa());
                assert_same(&text.whole(kernels), &expected, &what);
                let (pool, mut scratch) = (Pool::new(1), AttendScratch::new());
                let half = text.attend(kernels, &pool, &mut scratch, (0, len), &[1, len / 2], true);
                assert_same(&half, &expected, &what);
            }
        }
    }
}

#[test]
fn chunks_spans_pools_and_types_do_not_show() {
    let mut r = Random(42);
    let pools = [1, 2, 3, 9].map(Pool::new);
    for (shape, len, window) in texts() {
        let text = Text::random(&mut r, shape, len, window);
        for kernels in all_kernels() {
            let expected = text.whole(kernels);
            let mut scratch = AttendScratch::new();
            for (round, pool) in pools.iter().cycle().take(8).enumerate() {
                let mut first = 0;
                while first < len {
                    let rows = [1, 1 + r.below(7), 1 + r.below(50), len][round / 2].min(len - first);
                    let cuts: Vec<usize> = (0..r.below(6)).map(|_| r.below(len)).collect();
                    let half = r.below(2) == 0;
                    let got = text.attend(kernels, pool, &mut scratch, (first, rows), &cuts, half);
                    let row = text.row();
                    let what = format!("{:?} {shape:?} {window:?}, {rows} from {first}", kernels.isa());
                    assert_same(&got, &expected[first * row..(first + rows) * row], &what);
                    first += rows + len / 40; // not all of them
                }
            }
            let bound = AttendScratch::bytes_for(shape.0, shape.1, shape.2, 9);
            assert!(scratch.bytes() <= bound, "{} of {bound} bytes", scratch.bytes());
        }
    }
}

/// More blocks than partial results are kept at a time.
#[test]
fn long_texts_in_waves() {
    let mut r = Random(43);
    let text = Text::random(&mut r, (16, 2, 128), 128 * 140 + 5, None);
    let at = text.len - 3;
    let expected = text.attend(scalar(), &Pool::new(1), &mut AttendScratch::new(), (at, 3), &[], true);
    for kernels in vector_kernels() {
        for (row, pool) in [2, 3, 5].map(Pool::new).iter().enumerate() {
            let mut scratch = AttendScratch::new();
            let all = text.attend(kernels, pool, &mut scratch, (at, 3), &[256, 512, 9000], true);
            assert_same(&all, &expected, "three rows");
            let one = text.attend(kernels, pool, &mut scratch, (at + row, 1), &[], true);
            assert_same(&one, &expected[row * text.row()..][..text.row()], "one row");
        }
    }
}

#[test]
fn what_a_row_does_not_see_cannot_hurt_it() {
    let mut r = Random(44);
    for window in [None, Some(10)] {
        let mut text = Text::random(&mut r, (4, 2, 32), 40, window);
        let expected = text.whole(scalar());
        // Position 25 of KV head 1: bad for rows 25.. of heads 2 and 3, as far as they see it.
        for bad in [f32::NAN, f32::INFINITY] {
            let at = (text.len + 25) * text.width;
            for keys_or_values in 0..2 {
                let saved = std::mem::replace(&mut text.exact[keys_or_values][at], bad);
                for kernels in all_kernels() {
                    for (i, (got, expected)) in
                        text.whole(kernels).chunks(text.width).zip(expected.chunks(text.width)).enumerate()
                    {
                        let (row, head) = (i / 4, i % 4);
                        if head < 2 || row < 25 || window.is_some_and(|w| row >= 25 + w) {
                            assert_same(got, expected, "untouched");
                        } else if bad.is_nan() {
                            assert!(got.iter().any(|v| v.is_nan()), "row {row}, head {head}");
                        }
                    }
                }
                text.exact[keys_or_values][at] = saved;
            }
        }
    }
}

#[test]
fn endless_scores() {
    let mut r = Random(45);
    let mut text = Text::random(&mut r, (1, 1, 16), 200, None);
    text.q.fill(1.0);
    // A whole block without weight, then one position that takes everything, then one too large.
    text.exact[0][..130 * 16].fill(f32::NEG_INFINITY);
    for kernels in all_kernels() {
        let out = text.whole(kernels);
        assert!(out[..130 * 16].iter().all(|v| v.is_nan()), "nothing but -inf");
        assert_eq!(out[130 * 16..131 * 16], text.exact[1][130 * 16..131 * 16], "all the weight on one");
        assert!(out[131 * 16..].iter().all(|v| v.is_finite()));
    }
    text.exact[0][140 * 16..141 * 16].fill(f32::INFINITY);
    for kernels in all_kernels() {
        let out = text.whole(kernels);
        assert!(out[130 * 16..140 * 16].iter().all(|v| v.is_finite()));
        assert!(out[140 * 16..].iter().all(|v| v.is_nan()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_shape(
        group in 1usize..9, kv_heads in 1usize..4, width in 1usize..70, len in 1usize..290,
        window in 0usize..200, threads in 1usize..4, seed: u64,
    ) {
        let mut r = Random(seed);
        let window = (window > 0).then_some(window);
        let text = Text::random(&mut r, (group * kv_heads, kv_heads, width), len, window);
        let first = r.below(len);
        let rows = 1 + r.below((len - first).min(40));
        let cuts: Vec<usize> = (0..3).map(|_| r.below(len)).collect();
        let mut scratch = AttendScratch::new();
        let expected = text.attend(scalar(), &Pool::new(1), &mut scratch, (first, rows), &[], false);
        for isa in isas() {
            let kernels = Kernels::for_isa(isa).unwrap();
            let got = text.attend(kernels, &Pool::new(threads), &mut scratch, (first, rows), &cuts, true);
            prop_assert!(got.iter().zip(&expected).all(|(&a, &b)| same(a, b)));
            let row = r.below(rows);
            let got = text.attend(kernels, &Pool::new(threads), &mut scratch, (first + row, 1), &cuts, true);
            let expected = &expected[row * text.row()..][..text.row()];
            prop_assert!(got.iter().zip(expected).all(|(&a, &b)| same(a, b)));
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let data = vec![0.0f32; 64];
    let slice = |len: usize| KvSlice::F32(&data[..len]);
    let span = |first, keys: usize, values: usize| KvSpan { first, keys: slice(keys), values: slice(values) };
    let refused = |change: &dyn Fn(&mut Attention<'_>), spans: &[KvSpan<'_>], len: usize| {
        let run = || {
            let mut a = Attention { heads: 2, kv_heads: 1, width: 4, first: 3, rows: 2, window: None, spans };
            change(&mut a);
            let q = vec![0.0; len];
            let mut out = vec![0.0; len];
            scalar().attend(&Pool::new(1), &a, &q, &mut AttendScratch::new(), &mut out);
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err()
    };
    let same = |_: &mut Attention<'_>| ();
    assert!(!refused(&same, &[span(0, 20, 20)], 16));
    assert!(!refused(&same, &[span(0, 8, 8), span(2, 16, 16)], 16));
    assert!(!refused(&|a| a.window = Some(2), &[span(2, 12, 12)], 16));
    assert!(!refused(&|a| a.rows = 0, &[], 0));
    assert!(refused(&same, &[span(0, 20, 20)], 12), "queries");
    assert!(refused(&same, &[span(0, 16, 16)], 16), "the last row's own");
    assert!(refused(&same, &[span(1, 16, 16)], 16), "the first position");
    assert!(refused(&same, &[span(0, 8, 8), span(3, 8, 8)], 16), "a gap");
    assert!(refused(&same, &[span(0, 20, 16)], 16), "fewer values");
    assert!(refused(&same, &[span(0, 22, 22)], 16), "half a key");
    assert!(refused(&same, &[], 16), "no spans");
    assert!(refused(&|a| a.window = Some(0), &[span(0, 20, 20)], 16));
    assert!(refused(&|a| a.kv_heads = 3, &[span(0, 20, 20)], 16));
    assert!(refused(&|a| a.kv_heads = 0, &[span(0, 20, 20)], 16));
    assert!(refused(&|a| a.first = usize::MAX, &[span(0, 20, 20)], 16));
}
