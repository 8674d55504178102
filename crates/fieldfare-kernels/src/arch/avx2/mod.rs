//! x86-64 with AVX2, FMA and F16C: 8 lanes.

mod attend;
mod attend_many;
pub(super) mod matmul;
pub(super) mod matmul_q;
mod plain;
pub(super) mod stream;

/// The functions; call them only after [`is_here`].
pub(crate) const TABLE: super::Table = super::x86::table!();

/// True if this CPU (and system) runs them.
pub(crate) fn is_here() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}
