//! AArch64 with products of small matrices of bytes (`i8mm`, from Armv8.6 on: Apple from the M2 on, Neoverse V1 and N2): the
//! integer products of several rows of activations; the rest is what `neon` has.

mod matmul_q;

use super::{Table, neon};

/// The functions; call them only after [`is_here`].
pub(crate) const TABLE: Table = Table { matmul_q: matmul_q::matmul_q, ..neon::TABLE_DOTPROD };

/// True if this CPU (and system) runs them.
pub(crate) fn is_here() -> bool {
    neon::is_here() && neon::has_dotprod() && std::arch::is_aarch64_feature_detected!("i8mm")
}
