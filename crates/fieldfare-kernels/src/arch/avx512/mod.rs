//! x86-64 with AVX-512 (F, BW, DQ, VL): 16 lanes, a whole tile row.

mod attend;
mod matmul;
mod plain;

/// The functions; call them only after [`is_here`].
pub(crate) const TABLE: super::Table = super::x86::table!();

/// True if this CPU (and system) runs them.
pub(crate) fn is_here() -> bool {
    super::avx2::is_here()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}
