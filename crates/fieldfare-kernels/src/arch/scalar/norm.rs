//! RMSNorm and the plain element-wise steps between matrices.

use super::math::fold;
use crate::arch::LANES;

/// `1 / sqrt(mean(x^2) + eps)`. Squares are summed in f64, which holds them exactly and has room for every f32.
#[inline(always)]
fn factor(x: &[f32], eps: f32) -> f32 {
    let mut lanes = [0.0f64; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &v) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(v) * f64::from(v);
        }
    }
    for (lane, &v) in lanes.iter_mut().zip(rest) {
        *lane += f64::from(v) * f64::from(v);
    }
    let mean = fold(lanes) / x.len().max(1) as f64;
    (1.0 / (mean + f64::from(eps)).sqrt()) as f32
}

/// `out = x * factor * weight`, multiplied in this order.
#[inline(always)]
pub(crate) fn rms_norm(x: &[f32], weight: Option<&[f32]>, eps: f32, out: &mut [f32]) {
    let factor = factor(x, eps);
    match weight {
        Some(weight) => {
            for ((o, &x), &w) in out.iter_mut().zip(x).zip(weight) {
                *o = x * factor * w;
            }
        }
        None => {
            for (o, &x) in out.iter_mut().zip(x) {
                *o = x * factor;
            }
        }
    }
}

/// [`rms_norm`] with one buffer.
#[inline(always)]
pub(crate) fn rms_norm_in_place(x: &mut [f32], weight: Option<&[f32]>, eps: f32) {
    let factor = factor(x, eps);
    match weight {
        Some(weight) => {
            for (x, &w) in x.iter_mut().zip(weight) {
                *x = *x * factor * w;
            }
        }
        None => scale(x, factor),
    }
}

/// `x += y`
#[inline(always)]
pub(crate) fn add(x: &mut [f32], y: &[f32]) {
    for (x, &y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

/// `x = fma(a, y, x)`
#[inline(always)]
pub(crate) fn add_scaled(x: &mut [f32], a: f32, y: &[f32]) {
    for (x, &y) in x.iter_mut().zip(y) {
        *x = a.mul_add(y, *x);
    }
}

/// `x *= a`
#[inline(always)]
pub(crate) fn scale(x: &mut [f32], a: f32) {
    for x in x {
        *x *= a;
    }
}
