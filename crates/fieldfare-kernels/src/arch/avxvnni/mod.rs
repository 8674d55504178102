//! x86-64 with AVX2 and byte dot products of 256 bits (AVX-VNNI): Intel's laptops from 2021 on, which have no AVX-512.

mod matmul_q;

use super::{Table, avx2};

/// The functions; call them only after [`is_here`].
pub(crate) const TABLE: Table = Table { matmul_q: matmul_q::matmul_q, ..avx2::TABLE };

/// True if this CPU (and system) runs them.
pub(crate) fn is_here() -> bool {
    avx2::is_here() && is_x86_feature_detected!("avxvnni")
}
