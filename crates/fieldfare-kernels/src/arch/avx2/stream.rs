#![allow(unsafe_code)] // vector loads

//! Reading memory and nothing else: the bound for the kernels that stream weights.

use crate::arch::x86;
use std::arch::x86_64::*;

/// XOR of all 8-byte words (bytes beyond the last whole 64 are left out). Asks 1 KiB ahead, which is worth a quarter
/// of the rate where the hardware's own prefetching is timid. AVX-512 uses it too: 64-byte loads measured slower.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn xor(bytes: &[u8]) -> u64 {
    const VECTORS: usize = 256 / size_of::<__m256i>();
    let (blocks, rest) = bytes.as_chunks::<256>();
    let mut sums = [_mm256_setzero_si256(); VECTORS];
    for block in blocks {
        for (i, sum) in sums.iter_mut().enumerate() {
            if i % 2 == 0 {
                x86::ask(block.as_ptr(), 1024 + i * 32);
            }
            // SAFETY: the block has VECTORS vectors.
            *sum = _mm256_xor_si256(*sum, unsafe {
                _mm256_loadu_si256(block.as_ptr().cast::<__m256i>().add(i))
            });
        }
    }
    let mut words = [[0u64; size_of::<__m256i>() / 8]; VECTORS];
    for (words, sum) in words.iter_mut().zip(sums) {
        // SAFETY: as many bytes as the vector has.
        unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), sum) };
    }
    words.as_flattened().iter().fold(crate::arch::scalar::quantize::xor(rest), |all, word| all ^ word)
}
