//! Query heads against a run of keys and values, and the conversion of what goes into it.

use super::math::fold;
use crate::arch::LANES;
use crate::kv::KvSlice;
use half::f16;

/// `out[i * apart + j] = q_i . key_j` for all queries and keys, `width` elements each, dense.
pub(crate) fn scores_many(
    q: &[f32],
    width: usize,
    keys: KvSlice<'_>,
    _next: KvSlice<'_>,
    out: &mut [f32],
    apart: usize,
) {
    match keys {
        KvSlice::F32(keys) => dots(q, width, keys, |key| key, out, apart),
        KvSlice::F16(keys) => dots(q, width, keys, |key| f16::from_bits(key).to_f32(), out, apart),
    }
}

/// [`scores_many`] with keys of one type.
fn dots<T: Copy>(
    q: &[f32],
    width: usize,
    keys: &[T],
    value: impl Fn(T) -> f32,
    out: &mut [f32],
    apart: usize,
) {
    for (i, q) in q.chunks_exact(width).enumerate() {
        for (j, key) in keys.chunks_exact(width).enumerate() {
            let mut lanes = [0.0f32; LANES];
            for (c, (&q, &key)) in q.iter().zip(key).enumerate() {
                let lane = &mut lanes[c % LANES];
                *lane = q.mul_add(value(key), *lane);
            }
            out[i * apart + j] = fold(lanes);
        }
    }
}

/// `out_i += sum_j p[i * apart + j] * value_j` for all of `out` and values, `width` elements each, dense, in order of j.
pub(crate) fn weighted_many(p: &[f32], apart: usize, values: KvSlice<'_>, width: usize, out: &mut [f32]) {
    match values {
        KvSlice::F32(values) => sums(p, apart, values, |value| value, width, out),
        KvSlice::F16(values) => sums(p, apart, values, |value| f16::from_bits(value).to_f32(), width, out),
    }
}

/// [`weighted_many`] with values of one type.
fn sums<T: Copy>(
    p: &[f32],
    apart: usize,
    values: &[T],
    value: impl Fn(T) -> f32,
    width: usize,
    out: &mut [f32],
) {
    for (i, out) in out.chunks_exact_mut(width).enumerate() {
        for (j, values) in values.chunks_exact(width).enumerate() {
            let p = p[i * apart + j];
            for (o, &v) in out.iter_mut().zip(values) {
                *o = p.mul_add(value(v), *o);
            }
        }
    }
}

/// IEEE half floats, nearest even; beyond 65504 + half a step infinity.
pub(crate) fn to_f16(x: &[f32], out: &mut [u16]) {
    for (o, &x) in out.iter_mut().zip(x) {
        *o = f16::from_f32(x).to_bits();
    }
}
