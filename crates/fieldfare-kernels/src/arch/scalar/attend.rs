//! One query head against a span of the KV cache, and the conversion of what goes into it.

use super::math::fold;
use crate::arch::LANES;
use crate::kv::KvSlice;
use half::f16;

/// `out[j] = q . keys[j * stride ..]`
pub(crate) fn scores(q: &[f32], keys: KvSlice<'_>, stride: usize, out: &mut [f32]) {
    let each = |out: &mut [f32], key: &dyn Fn(usize) -> f32| {
        for (j, out) in out.iter_mut().enumerate() {
            let mut lanes = [0.0f32; LANES];
            for (i, &q) in q.iter().enumerate() {
                let lane = &mut lanes[i % LANES];
                *lane = q.mul_add(key(j * stride + i), *lane);
            }
            *out = fold(lanes);
        }
    };
    match keys {
        KvSlice::F32(keys) => each(out, &|i| keys[i]),
        KvSlice::F16(keys) => each(out, &|i| f16::from_bits(keys[i]).to_f32()),
    }
}

/// `out += sum_j p[j] * values[j * stride ..]`, in order of j.
pub(crate) fn weighted_sum(p: &[f32], values: KvSlice<'_>, stride: usize, out: &mut [f32]) {
    for (j, &p) in p.iter().enumerate() {
        match values {
            KvSlice::F32(values) => {
                for (o, &v) in out.iter_mut().zip(&values[j * stride..]) {
                    *o = p.mul_add(v, *o);
                }
            }
            KvSlice::F16(values) => {
                for (o, &v) in out.iter_mut().zip(&values[j * stride..]) {
                    *o = p.mul_add(f16::from_bits(v).to_f32(), *o);
                }
            }
        }
    }
}

/// `out[i * apart + j] = q_i . key_j` for all queries and keys, `width` elements each, dense: [`scores`] of each query.
pub(crate) fn scores_many(
    q: &[f32],
    width: usize,
    keys: KvSlice<'_>,
    _next: KvSlice<'_>,
    out: &mut [f32],
    apart: usize,
) {
    let count = keys.len() / width;
    for (i, q) in q.chunks_exact(width).enumerate() {
        scores(q, keys, width, &mut out[i * apart..][..count]);
    }
}

/// `out_i += sum_j p[i * apart + j] * value_j` for all of `out` and values, `width` elements each, dense:
/// [`weighted_sum`] of each.
pub(crate) fn weighted_many(p: &[f32], apart: usize, values: KvSlice<'_>, width: usize, out: &mut [f32]) {
    let count = values.len() / width;
    for (i, out) in out.chunks_exact_mut(width).enumerate() {
        weighted_sum(&p[i * apart..][..count], values, width, out);
    }
}

/// IEEE half floats, nearest even; beyond 65504 + half a step infinity.
pub(crate) fn to_f16(x: &[f32], out: &mut [u16]) {
    for (o, &x) in out.iter_mut().zip(x) {
        *o = f16::from_f32(x).to_bits();
    }
}
