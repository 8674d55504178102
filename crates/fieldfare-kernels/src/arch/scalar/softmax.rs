//! Softmax and the soft cap of logits.

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

/// `x = exp(x - max) / sum`
#[inline(always)]
pub(crate) fn softmax(x: &mut [f32]) {
    let max = largest(x);
    let mut lanes = [0.0f32; LANES];
    let mut chunks = x.chunks_exact_mut(LANES);
    for chunk in &mut chunks {
        for (lane, v) in lanes.iter_mut().zip(chunk) {
            *v = exp(*v - max);
            *lane += *v;
        }
    }
    for (lane, v) in lanes.iter_mut().zip(chunks.into_remainder()) {
        *v = exp(*v - max);
        *lane += *v;
    }
    let sum = fold(lanes);
    for v in x {
        *v /= sum;
    }
}

/// `x = cap * tanh(x / cap)`
#[inline(always)]
pub(crate) fn soft_cap(x: &mut [f32], cap: f32) {
    for x in x {
        *x = cap * tanh(*x / cap);
    }
}
