#![allow(unsafe_code)] // vector loads and stores

//! Several query heads against one run of keys and values: up to 8 queries share each load, the 16 sums of a step are
//! in registers. Each element has the operations of `attend`, in the same order.

use super::attend::{dots, load, span, sum};
use crate::arch::LANES;
use crate::arch::x86;
use crate::kv::KvSlice;
use std::arch::x86_64::*;

/// Sums in registers.
const SUMS: usize = 16;

/// Bytes between the key in use and the one asked for.
const KEYS_AHEAD: usize = 8192;

/// See `Table`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
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
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
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
                8.. => some::<HALF, 8, 2>(q, width, kv, count, out, apart),
                4.. => some::<HALF, 4, 4>(q, width, kv, count, out, apart),
                2.. => some::<HALF, 2, 8>(q, width, kv, count, out, apart),
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
/// As `all`, with whole vectors in `width` and `Q * K` = 16.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
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
        let mut acc = [[_mm512_setzero_ps(); K]; Q];
        for c in (0..width).step_by(LANES) {
            // SAFETY: keys j..j + K are there, 16 elements from c on in each and in each query.
            unsafe {
                let key: [__m512; K] = std::array::from_fn(|k| load::<HALF>(keys, (j + k) * width + c));
                for (i, acc) in acc.iter_mut().enumerate() {
                    let q = _mm512_loadu_ps(q.as_ptr().add(i * width + c));
                    for (acc, key) in acc.iter_mut().zip(key) {
                        *acc = _mm512_fmadd_ps(q, key, *acc);
                    }
                }
            }
        }
        let mut flat = [_mm512_setzero_ps(); SUMS];
        for (flat, &acc) in flat.iter_mut().zip(acc.iter().flatten()) {
            *flat = acc;
        }
        let sums = fold(flat);
        for i in 0..Q {
            for k in 0..K {
                let a = i * K + k;
                out[i * apart + j + k] = sums[a % 4 * 4 + a / 4];
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

/// Lanes of each of 16 vectors added in the order of `math::fold`, upper halves to lower ones; vector `a` is at
/// `a % 4 * 4 + a / 4`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn fold(v: [__m512; SUMS]) -> [f32; SUMS] {
    let eight: [__m512; 8] = std::array::from_fn(|i| {
        let (a, b) = (v[2 * i], v[2 * i + 1]);
        _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xEE>(a, b))
    });
    let four: [__m512; 4] = std::array::from_fn(|i| {
        let (a, b) = (eight[2 * i], eight[2 * i + 1]);
        _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xDD>(a, b))
    });
    let two: [__m512; 2] = std::array::from_fn(|i| {
        let (a, b) = (four[2 * i], four[2 * i + 1]);
        _mm512_add_ps(_mm512_shuffle_ps::<0x44>(a, b), _mm512_shuffle_ps::<0xEE>(a, b))
    });
    let [a, b] = two;
    let one = _mm512_add_ps(_mm512_shuffle_ps::<0x88>(a, b), _mm512_shuffle_ps::<0xDD>(a, b));
    let mut sums = [0.0; SUMS];
    // SAFETY: 16 floats.
    unsafe { _mm512_storeu_ps(sums.as_mut_ptr(), one) };
    sums
}

/// See `Table`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
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
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
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
                8.. => together::<HALF, 8, 2>(p, apart, values, count, width, out),
                4.. => together::<HALF, 4, 4>(p, apart, values, count, width, out),
                2.. => together::<HALF, 2, 8>(p, apart, values, count, width, out),
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
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
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
    while at + V * LANES <= width {
        // SAFETY: columns at.. are in every row of `out` and every value; `p` has `count` for each row.
        unsafe {
            let place = |i: usize, v: usize| i * width + at + v * LANES;
            let mut acc: [[__m512; V]; Q] = std::array::from_fn(|i| {
                std::array::from_fn(|v| _mm512_loadu_ps(out.as_ptr().add(place(i, v))))
            });
            for j in 0..count {
                let value: [__m512; V] =
                    std::array::from_fn(|v| load::<HALF>(values, j * width + at + v * LANES));
                for (i, acc) in acc.iter_mut().enumerate() {
                    let p = _mm512_set1_ps(*p.get_unchecked(i * apart + j));
                    for (acc, value) in acc.iter_mut().zip(value) {
                        *acc = _mm512_fmadd_ps(p, value, *acc);
                    }
                }
            }
            for (i, acc) in acc.into_iter().enumerate() {
                for (v, acc) in acc.into_iter().enumerate() {
                    _mm512_storeu_ps(out.as_mut_ptr().add(place(i, v)), acc);
                }
            }
        }
        at += V * LANES;
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
