//! AArch64: mostly the scalar functions, which the compiler vectorizes where it can (Advanced SIMD and fused
//! multiply-add are part of the base architecture). Written-out loops replace entries of this table one by one,
//! in files named as in the other folders: so far the integer products, where the CPU has `sdot`.

pub(super) mod matmul_q;
pub(super) mod source;

use super::{Table, scalar};

/// Advanced SIMD is there on every target we build for.
pub(crate) fn is_here() -> bool {
    cfg!(target_feature = "neon")
}

/// True if this CPU has dot products of bytes.
pub(crate) fn has_dotprod() -> bool {
    std::arch::is_aarch64_feature_detected!("dotprod")
}

/// The functions.
pub(crate) const TABLE: Table = Table { ..scalar::TABLE };
/// The functions with byte dot products; call them only after [`has_dotprod`].
pub(crate) const TABLE_DOTPROD: Table = Table { matmul_q: matmul_q::matmul_q, ..TABLE };
