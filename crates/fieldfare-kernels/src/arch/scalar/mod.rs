//! The meaning of each operation in plain Rust: compiled everywhere, the oracle of the vector versions for ever.
//!
//! The loops of `norm`, `glu`, `softmax`, `rope` and `quantize` have no branches and a fixed order, so the vector folders compile
//! the same source once more with their features; matmul and attention they write out.

pub(crate) mod attend;
pub(crate) mod glu;
pub(crate) mod math;
pub(crate) mod matmul;
pub(crate) mod matmul_q;
pub(crate) mod norm;
pub(crate) mod quantize;
pub(crate) mod rope;
pub(crate) mod softmax;

use super::Table;

/// Scalar functions.
pub(crate) const TABLE: Table = Table {
    matmul: matmul::matmul,
    matmul_q: matmul_q::matmul_q,
    quantize: quantize::quantize,
    xor: quantize::xor,
    dequantize_row: matmul::dequantize_row,
    rms_norm: norm::rms_norm,
    rms_norm_in_place: norm::rms_norm_in_place,
    rope: rope::rope,
    gelu_mul: glu::gelu_mul,
    add: norm::add,
    add_scaled: norm::add_scaled,
    scale: norm::scale,
    soft_cap: softmax::soft_cap,
    scores_many: attend::scores_many,
    weighted_many: attend::weighted_many,
    exps: softmax::exps,
    join: softmax::join,
    to_f16: attend::to_f16,
};
