#![allow(unsafe_code)] // vector loads and stores

//! One query head against a span of the KV cache: 4 keys at a time, values kept in registers over the span. The 16
//! lanes of a dot product are two vectors.

use crate::arch::LANES;
use crate::arch::scalar::math;
use std::arch::x86_64::*;

/// Lanes of a vector.
pub(super) const WIDTH: usize = 8;

/// `out[j] = q . keys[j * stride ..]`; `HALF` says whether the keys are f16.
///
/// # Safety
/// `keys` reach to `(out.len() - 1) * stride + q.len()` unless `out` is empty.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn span<const HALF: bool>(q: &[f32], keys: *const u8, stride: usize, out: &mut [f32]) {
    let mut fours = out.chunks_exact_mut(4);
    let mut j = 0;
    for four in &mut fours {
        // SAFETY: keys j..j + 4 are in the span.
        four.copy_from_slice(&unsafe { dots::<HALF, 4>(q, keys, j * stride, stride) });
        j += 4;
    }
    for one in fours.into_remainder() {
        // SAFETY: key j is in the span.
        [*one] = unsafe { dots::<HALF, 1>(q, keys, j * stride, stride) };
        j += 1;
    }
}

/// Dot products with the `K` keys that start at element `first`.
///
/// # Safety
/// The keys are there.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn dots<const HALF: bool, const K: usize>(
    q: &[f32],
    keys: *const u8,
    first: usize,
    stride: usize,
) -> [f32; K] {
    let mut low = [_mm256_setzero_ps(); K];
    let mut high = [_mm256_setzero_ps(); K];
    let whole = q.len() / LANES * LANES;
    for i in (0..whole).step_by(LANES) {
        // SAFETY: i + 16 elements are in the query and in each key.
        unsafe {
            let q_low = _mm256_loadu_ps(q.as_ptr().add(i));
            let q_high = _mm256_loadu_ps(q.as_ptr().add(i + WIDTH));
            for (k, (low, high)) in low.iter_mut().zip(&mut high).enumerate() {
                let at = first + k * stride + i;
                *low = _mm256_fmadd_ps(q_low, load::<HALF>(keys, at), *low);
                *high = _mm256_fmadd_ps(q_high, load::<HALF>(keys, at + WIDTH), *high);
            }
        }
    }
    let rest = &q[whole..];
    std::array::from_fn(|k| {
        if rest.is_empty() {
            return fold(low[k], high[k]);
        }
        let mut lanes = [0.0; LANES];
        // SAFETY: 16 floats; elements below the width of the key.
        unsafe {
            _mm256_storeu_ps(lanes.as_mut_ptr(), low[k]);
            _mm256_storeu_ps(lanes.as_mut_ptr().add(WIDTH), high[k]);
            for (i, (lane, &q)) in lanes.iter_mut().zip(rest).enumerate() {
                *lane = q.mul_add(one::<HALF>(keys, first + k * stride + whole + i), *lane);
            }
        }
        math::fold(lanes)
    })
}

/// `out += sum_j p[j] * values[j * stride ..]`, in order of j; `HALF` says whether the values are f16.
///
/// # Safety
/// `values` reach to `(p.len() - 1) * stride + out.len()` unless `p` is empty.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn sum<const HALF: bool>(p: &[f32], values: *const u8, stride: usize, out: &mut [f32]) {
    let mut at = 0;
    while at < out.len() {
        let part = &mut out[at..];
        // SAFETY: columns at.. are in every value, as many as the part still has.
        at += unsafe {
            match part.len() {
                64.. => columns::<HALF, 8>(p, values, at, stride, part),
                8.. => columns::<HALF, 1>(p, values, at, stride, part),
                _ => {
                    for (i, o) in part.iter_mut().enumerate() {
                        for (j, &p) in p.iter().enumerate() {
                            *o = p.mul_add(one::<HALF>(values, j * stride + at + i), *o);
                        }
                    }
                    part.len()
                }
            }
        };
    }
}

/// The first `V * 8` elements of `part`, which are columns `at..` of the values; returns how many.
///
/// # Safety
/// They are there, in every value.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn columns<const HALF: bool, const V: usize>(
    p: &[f32],
    values: *const u8,
    at: usize,
    stride: usize,
    part: &mut [f32],
) -> usize {
    let part = &mut part[..V * WIDTH];
    // SAFETY: the V vectors of the part.
    let mut acc: [__m256; V] =
        std::array::from_fn(|v| unsafe { _mm256_loadu_ps(part.as_ptr().add(v * WIDTH)) });
    for (j, &p) in p.iter().enumerate() {
        let p = _mm256_set1_ps(p);
        for (v, acc) in acc.iter_mut().enumerate() {
            // SAFETY: by the caller.
            *acc = _mm256_fmadd_ps(p, unsafe { load::<HALF>(values, j * stride + at + v * WIDTH) }, *acc);
        }
    }
    for (v, acc) in acc.into_iter().enumerate() {
        // SAFETY: as the load above.
        unsafe { _mm256_storeu_ps(part.as_mut_ptr().add(v * WIDTH), acc) };
    }
    V * WIDTH
}

/// See `Table`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn to_f16(x: &[f32], out: &mut [u16]) {
    const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;
    for (x, out) in x.chunks(WIDTH).zip(out.chunks_mut(WIDTH)) {
        let (mut from, mut to) = ([0.0; WIDTH], [0; WIDTH]);
        from[..x.len()].copy_from_slice(x);
        // SAFETY: 8 floats, 8 halves.
        unsafe {
            let halves = _mm256_cvtps_ph::<NEAREST>(_mm256_loadu_ps(from.as_ptr()));
            _mm_storeu_si128(to.as_mut_ptr().cast(), halves);
        }
        out.copy_from_slice(&to[..out.len()]);
    }
}

/// 8 elements from `index` on.
///
/// # Safety
/// They are there.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn load<const HALF: bool>(base: *const u8, index: usize) -> __m256 {
    // SAFETY: by the caller.
    unsafe {
        if HALF {
            _mm256_cvtph_ps(_mm_loadu_si128(base.cast::<u16>().add(index).cast()))
        } else {
            _mm256_loadu_ps(base.cast::<f32>().add(index))
        }
    }
}

/// One element.
///
/// # Safety
/// It is there.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn one<const HALF: bool>(base: *const u8, index: usize) -> f32 {
    // SAFETY: by the caller.
    unsafe {
        if HALF {
            let bits = base.cast::<u16>().add(index).read();
            _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(bits))))
        } else {
            base.cast::<f32>().add(index).read()
        }
    }
}

/// The lanes added in the order of `math::fold`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn fold(low: __m256, high: __m256) -> f32 {
    let eight = _mm256_add_ps(low, high);
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
}
