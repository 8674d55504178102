//! x86-64 with AMX (tile registers and their byte products) beside AVX-512 VNNI: Intel's servers from Sapphire Rapids on.
//! Only prompts gain by it, so only the integer products of many rows are its own.

mod matmul_q;
mod tiles;

use super::{Table, avx512};

/// The functions; call them only after [`is_here`].
pub(crate) const TABLE: Table = Table { matmul_q: matmul_q::matmul_q, ..avx512::TABLE_VNNI };

/// True if this CPU and system run them.
pub(crate) fn is_here() -> bool {
    avx512::is_here() && avx512::has_vnni() && tiles::are_here()
}
