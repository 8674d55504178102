#![allow(unsafe_code)] // vector loads and stores

//! Several query heads against one run of keys and values: up to 4 queries share each load. Each element has the
//! operations of `attend`, in the same order.

use super::attend::{WIDTH, dots, fold, load, span, sum};
use crate::arch::LANES;
use crate::arch::x86;
use crate::kv::KvSlice;
use std::arch::x86_64::*;

/// Bytes between the key in use and the one asked for.
const KEYS_AHEAD: usize = 8192;

/// See `Table`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn scores_many(
    q: &[f32],
    width: usize,
    keys: KvSlice<'_>,
    next: KvSlice<'_>,
    out: &mut [f32],
    apart: usize,
) {
    let count = keys.len() / width;
    // SAFETY: the caller's promise, with the type that the pointer has.
    unsafe {
        match keys {
            KvSlice::F32(_) => all::<false>(q, width, [keys, next].map(start), count, out, apart),
            KvSlice::F16(_) => all::<true>(q, width, [keys, next].map(start), count, out, apart),
        }
    }
}

fn start(slice: KvSlice<'_>) -> *const u8 {
    match slice {
        KvSlice::F32(data) => data.as_ptr().cast(),
        KvSlice::F16(data) => data.as_ptr().cast(),
    }
}

/// # Safety
/// As `scores_many`; `HALF` says whether the keys, `count` of them, are f16. `kv` are the keys and what comes next.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn all<const HALF: bool>(
    q: &[f32],
    width: usize,
    kv: [*const u8; 2],
    count: usize,
    out: &mut [f32],
    apart: usize,
) {
    let queries = q.len() / width;
    let mut i = 0;
    while i < queries && count > 0 {
        let (q, out) = (&q[i * width..], &mut out[i * apart..]);
        // Only the first pass has anything to ask for.
        let kv = [kv[0], if i == 0 { kv[1] } else { std::ptr::null() }];
        // SAFETY: as many queries are left as each call takes, and `out` has their rows; the rest by the caller.
        i += unsafe {
            match queries - i {
                _ if !width.is_multiple_of(LANES) => {
                    span::<HALF>(&q[..width], kv[0], width, &mut out[..count]);
                    1
                }
                3.. => some::<HALF, 3, 2>(q, width, kv, count, out, apart),
                2.. => some::<HALF, 2, 2>(q, width, kv, count, out, apart),
                _ => {
                    span::<HALF>(&q[..width], kv[0], width, &mut out[..count]);
                    1
                }
            }
        };
    }
}

/// The first `Q` queries, `K` keys at a time; returns Q.
///
/// # Safety
/// As `all`, with whole 16s in `width`.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn some<const HALF: bool, const Q: usize, const K: usize>(
    q: &[f32],
    width: usize,
    [keys, next]: [*const u8; 2],
    count: usize,
    out: &mut [f32],
    apart: usize,
) -> usize {
    let q = &q[..Q * width];
    let bytes = width * if HALF { 2 } else { 4 };
    let mut j = 0;
    while j + K <= count {
        if !next.is_null() {
            x86::ask_rows::<_MM_HINT_T0>(keys, j * bytes + KEYS_AHEAD, K * bytes);
            x86::ask_rows::<_MM_HINT_T1>(next, j * bytes, K * bytes);
        }
        // Both halves of the 16 lanes.
        let mut acc = [[[_mm256_setzero_ps(); 2]; K]; Q];
        for c in (0..width).step_by(LANES) {
            for half in 0..2 {
                let c = c + half * WIDTH;
                // SAFETY: keys j..j + K are there, 8 elements from c on in each and in each query.
                unsafe {
                    let key: [__m256; K] = std::array::from_fn(|k| load::<HALF>(keys, (j + k) * width + c));
                    for (i, acc) in acc.iter_mut().enumerate() {
                        let q = _mm256_loadu_ps(q.as_ptr().add(i * width + c));
                        for (acc, key) in acc.iter_mut().zip(key) {
                            acc[half] = _mm256_fmadd_ps(q, key, acc[half]);
                        }
                    }
                }
            }
        }
        for (i, acc) in acc.into_iter().enumerate() {
            for (k, [low, high]) in acc.into_iter().enumerate() {
                out[i * apart + j + k] = fold(low, high);
            }
        }
        j += K;
    }
    while j < count {
        for i in 0..Q {
            // SAFETY: key j is there.
            [out[i * apart + j]] =
                unsafe { dots::<HALF, 1>(&q[i * width..][..width], keys, j * width, width) };
        }
        j += 1;
    }
    Q
}

/// See `Table`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn weighted_many(
    p: &[f32],
    apart: usize,
    values: KvSlice<'_>,
    width: usize,
    out: &mut [f32],
) {
    let count = values.len() / width;
    // SAFETY: the caller's promise, with the type that the pointer has.
    unsafe {
        match values {
            KvSlice::F32(values) => sums::<false>(p, apart, values.as_ptr().cast(), count, width, out),
            KvSlice::F16(values) => sums::<true>(p, apart, values.as_ptr().cast(), count, width, out),
        }
    }
}

/// # Safety
/// As `weighted_many`; `HALF` says whether `values`, `count` of them, are f16.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn sums<const HALF: bool>(
    p: &[f32],
    apart: usize,
    values: *const u8,
    count: usize,
    width: usize,
    out: &mut [f32],
) {
    let rows = out.len() / width;
    let mut i = 0;
    while i < rows && count > 0 {
        let (p, out) = (&p[i * apart..], &mut out[i * width..]);
        // SAFETY: as many rows are left as each call takes, and `p` has theirs; the rest by the caller.
        i += unsafe {
            match rows - i {
                4.. => together::<HALF, 4, 2>(p, apart, values, count, width, out),
                2.. => together::<HALF, 2, 4>(p, apart, values, count, width, out),
                _ => {
                    sum::<HALF>(&p[..count], values, width, &mut out[..width]);
                    1
                }
            }
        };
    }
}

/// The first `Q` rows, `V` vectors of columns at a time; returns Q.
///
/// # Safety
/// As `sums`.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn together<const HALF: bool, const Q: usize, const V: usize>(
    p: &[f32],
    apart: usize,
    values: *const u8,
    count: usize,
    width: usize,
    out: &mut [f32],
) -> usize {
    let (p, out) = (&p[..(Q - 1) * apart + count], &mut out[..Q * width]);
    let mut at = 0;
    while at + V * WIDTH <= width {
        // SAFETY: columns at.. are in every row of `out` and every value; `p` has `count` for each row.
        unsafe {
            let place = |i: usize, v: usize| i * width + at + v * WIDTH;
            let mut acc: [[__m256; V]; Q] = std::array::from_fn(|i| {
                std::array::from_fn(|v| _mm256_loadu_ps(out.as_ptr().add(place(i, v))))
            });
            for j in 0..count {
                let value: [__m256; V] =
                    std::array::from_fn(|v| load::<HALF>(values, j * width + at + v * WIDTH));
                for (i, acc) in acc.iter_mut().enumerate() {
                    let p = _mm256_set1_ps(*p.get_unchecked(i * apart + j));
                    for (acc, value) in acc.iter_mut().zip(value) {
                        *acc = _mm256_fmadd_ps(p, value, *acc);
                    }
                }
            }
            for (i, acc) in acc.into_iter().enumerate() {
                for (v, acc) in acc.into_iter().enumerate() {
                    _mm256_storeu_ps(out.as_mut_ptr().add(place(i, v)), acc);
                }
            }
        }
        at += V * WIDTH;
    }
    if at < width {
        for (i, out) in out.chunks_exact_mut(width).enumerate() {
            let rest = values.wrapping_add(at * if HALF { 2 } else { 4 });
            // SAFETY: columns at.. of the values, as many as the row has left.
            unsafe { sum::<HALF>(&p[i * apart..][..count], rest, width, &mut out[at..]) };
        }
    }
    Q
}
