//! AArch64: for now the scalar functions, which the compiler vectorizes where it can (Advanced SIMD and fused
//! multiply-add are part of the base architecture). Written-out loops replace entries of this table one by one,
//! in files named as in the other folders.

use super::{Table, scalar};

/// Advanced SIMD is there on every target we build for.
pub(crate) fn is_here() -> bool {
    cfg!(target_feature = "neon")
}

/// The functions.
pub(crate) const TABLE: Table = Table { ..scalar::TABLE };
