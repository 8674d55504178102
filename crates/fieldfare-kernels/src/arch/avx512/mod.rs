//! x86-64 with AVX-512 (F, BW, DQ, VL): 16 lanes, a whole tile row.

mod attend;
mod attend_many;
pub(super) mod matmul;
pub(super) mod matmul_q;
mod plain;

use super::Table;

/// The functions with VNNI; call them only after [`has_vnni`] and [`is_here`].
pub(crate) const TABLE_VNNI: Table = super::x86::table!();
/// The functions; call them only after [`is_here`].
pub(crate) const TABLE: Table = Table { matmul_q: super::avx2::TABLE.matmul_q, ..TABLE_VNNI };

/// True if this CPU has byte dot products of 512 bits.
pub(crate) fn has_vnni() -> bool {
    is_x86_feature_detected!("avx512vnni")
}

/// True if this CPU (and system) runs them.
pub(crate) fn is_here() -> bool {
    super::avx2::is_here()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}
