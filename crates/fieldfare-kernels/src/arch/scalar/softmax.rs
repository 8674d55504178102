//! What attention needs of softmax, and the soft cap of logits.

use super::math::{exp, fold, tanh};
use crate::arch::LANES;

/// Largest element; NaN is passed over, `-inf` for none.
#[inline(always)]
fn largest(x: &[f32]) -> f32 {
    let pick = |max: f32, v: f32| if v > max { v } else { max };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &v) in lanes.iter_mut().zip(chunk) {
            *lane = pick(*lane, v);
        }
    }
    rest.iter().chain(&lanes).fold(f32::NEG_INFINITY, |max, &v| pick(max, v))
}

/// `x = exp(x - base)`; returns the sum.
#[inline(always)]
fn exps_from(x: &mut [f32], base: f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let mut chunks = x.chunks_exact_mut(LANES);
    for chunk in &mut chunks {
        for (lane, v) in lanes.iter_mut().zip(chunk) {
            *v = exp(*v - base);
            *lane += *v;
        }
    }
    for (lane, v) in lanes.iter_mut().zip(chunks.into_remainder()) {
        *v = exp(*v - base);
        *lane += *v;
    }
    fold(lanes)
}

/// `x = exp(x - max)`; returns max and the sum. With nothing above `-inf` the x become 0, as they would beside a larger
/// one elsewhere.
#[inline(always)]
pub(crate) fn exps(x: &mut [f32]) -> (f32, f32) {
    let max = largest(x);
    let base = if max == f32::NEG_INFINITY { 0.0 } else { max };
    (max, exps_from(x, base))
}

/// Adds what one run of positions gave to what those before it gave: maximum and sum of exponentials in `side` and
/// `with`, weighted sums in `o` and `part`.
#[inline(always)]
pub(crate) fn join(side: &mut (f32, f32), o: &mut [f32], with: (f32, f32), part: &[f32]) {
    let ((m, l), (m2, l2)) = (*side, with);
    let max = if m2 > m { m2 } else { m };
    // exp(-inf - -inf) would be NaN where there was only nothing.
    let factor = |m: f32| if m == f32::NEG_INFINITY { 0.0 } else { exp(m - max) };
    let (a, b) = (factor(m), factor(m2));
    *side = (max, l.mul_add(a, l2 * b));
    for (o, &part) in o.iter_mut().zip(part) {
        *o = o.mul_add(a, part * b);
    }
}

/// `x = cap * tanh(x / cap)`
#[inline(always)]
pub(crate) fn soft_cap(x: &mut [f32], cap: f32) {
    for x in x {
        *x = cap * tanh(*x / cap);
    }
}
