//! Scores and weighted sums over spans of keys and values in both types.

use crate::data::*;
use fieldfare_kernels::{Kernels, KvSlice};
use half::f16;

/// A span as f32 and as f16, the f32 one rounded so that both mean the same.
struct Span {
    exact: Vec<f32>,
    half: Vec<u16>,
}

impl Span {
    fn random(r: &mut Random, len: usize, edges: &[f32]) -> Span {
        let half: Vec<f16> = r.vector_with(len, edges).into_iter().map(f16::from_f32).collect();
        Span {
            exact: half.iter().map(|v| v.to_f32()).collect(),
            half: half.iter().map(|v| v.to_bits()).collect(),
        }
    }

    fn both(&self, offset: usize) -> [KvSlice<'_>; 2] {
        [KvSlice::F32(&self.exact[offset..]), KvSlice::F16(&self.half[offset..])]
    }
}

/// (width, vectors, stride)
fn spans() -> Vec<(usize, usize, usize)> {
    let mut list: Vec<_> = (0..=66).map(|d| (d, 1 + d % 6, d + d % 3)).collect();
    list.extend((0..=9).map(|n| (40, n, 44)));
    list.extend([(256, 5, 256), (256, 70, 2048), (512, 33, 1024), (300, 4, 0), (321, 3, 321)]);
    list
}

fn span_len((d, n, stride): (usize, usize, usize)) -> usize {
    n.saturating_sub(1) * stride + d
}

fn scores(kernels: &Kernels, q: &[f32], keys: KvSlice<'_>, stride: usize, n: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; n];
    kernels.scores(q, keys, stride, &mut out);
    out
}

fn weighted(kernels: &Kernels, p: &[f32], values: KvSlice<'_>, stride: usize, out: &[f32]) -> Vec<f32> {
    let mut out = out.to_vec();
    kernels.weighted_sum(p, values, stride, &mut out);
    out
}

#[test]
fn scalar_is_the_definition() {
    let mut r = Random(21);
    for shape @ (d, n, stride) in spans() {
        let span = Span::random(&mut r, span_len(shape), &[0.5]);
        let (q, p, start) = (r.vector(d), r.vector(n), r.vector(d));
        for kv in span.both(0) {
            for (j, s) in scores(scalar(), &q, kv, stride, n).into_iter().enumerate() {
                let terms = (0..d).map(|i| f64::from(q[i]) * f64::from(span.exact[j * stride + i]));
                let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), t: f64| (sum + t, size + t.abs()));
                assert!((f64::from(s) - sum).abs() <= 1e-6 * size);
            }
            for (i, o) in weighted(scalar(), &p, kv, stride, &start).into_iter().enumerate() {
                let terms = (0..n).map(|j| f64::from(p[j]) * f64::from(span.exact[j * stride + i]));
                let first = f64::from(start[i]);
                let (sum, size) =
                    terms.fold((first, first.abs()), |(sum, size), t| (sum + t, size + t.abs()));
                assert!((f64::from(o) - sum).abs() <= 5e-6 * size);
            }
        }
    }
}

#[test]
fn every_isa_gives_the_scalar_bits_from_any_start() {
    let mut r = Random(22);
    let wild = [&EDGES[..], &WILD[..]].concat();
    for shape @ (d, n, stride) in spans() {
        for edges in [&[0.5][..], &wild] {
            for offset in 0..4 {
                let span = Span::random(&mut r, offset + span_len(shape), edges);
                let (q, p, out) = (r.vector(offset + d), r.vector(offset + n), r.vector(offset + d));
                let (q, p, out) = (&q[offset..], &p[offset..], &out[offset..]);
                for kv in span.both(offset) {
                    let expected = scores(scalar(), q, kv, stride, n);
                    let sums = weighted(scalar(), p, kv, stride, out);
                    for kernels in vector_kernels() {
                        let what = format!("{:?} d {d}, n {n}, stride {stride}", kernels.isa());
                        assert_same(&scores(kernels, q, kv, stride, n), &expected, &what);
                        assert_same(&weighted(kernels, p, kv, stride, out), &sums, &what);
                    }
                }
            }
        }
    }
}

#[test]
fn spans_may_be_cut_anywhere() {
    let mut r = Random(23);
    let (d, n, stride) = (256, 13, 512);
    let span = Span::random(&mut r, span_len((d, n, stride)), &[0.5]);
    let (q, p, out) = (r.vector(d), r.vector(n), r.vector(d));
    for kernels in all_kernels() {
        for kv in span.both(0) {
            let all = scores(kernels, &q, kv, stride, n);
            let sum = weighted(kernels, &p, kv, stride, &out);
            for cut in 0..n {
                let rest = kv.from(cut * stride);
                assert_same(&scores(kernels, &q, kv, stride, cut), &all[..cut], "before the cut");
                assert_same(&scores(kernels, &q, rest, stride, n - cut), &all[cut..], "after the cut");
                let first = weighted(kernels, &p[..cut], kv, stride, &out);
                assert_same(&weighted(kernels, &p[cut..], rest, stride, &first), &sum, "sum in two calls");
            }
        }
    }
}

#[test]
fn spans_that_end_too_early_are_refused() {
    let keys = vec![0.0f32; 100];
    let attempt = |d: usize, n: usize, stride: usize| {
        let run = || scores(scalar(), &vec![0.0; d], KvSlice::F32(&keys), stride, n);
        let sums = || weighted(scalar(), &vec![0.0; n], KvSlice::F32(&keys), stride, &vec![0.0; d]);
        let refused = std::panic::catch_unwind(run).is_err();
        assert_eq!(std::panic::catch_unwind(sums).is_err(), refused);
        refused
    };
    assert!(!attempt(10, 10, 10) && !attempt(100, 1, usize::MAX) && !attempt(200, 0, 5));
    assert!(attempt(10, 10, 11) && attempt(101, 1, 0) && attempt(10, 3, usize::MAX));
}
