//! Which resident tensors a model of a given shape has, in upstream's order, and the check that an index has them.
//!
//! The list is walked, never built: a hostile manifest can claim many layers.

use super::index::tiled_bytes;
use super::parts::affine_bytes;
use super::{
    Arch, DType, IndexEntry, Layout, MANIFEST, Quant, ResidentIndex, WEIGHTS, fault, manifest::GROUP,
};
use crate::Result;
use std::collections::HashMap;

/// What all language tensors' names start with.
pub const PREFIX: &str = "language_model.model.";

/// What a tensor must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorKind {
    /// A bfloat16 vector of this length.
    Vector(usize),
    /// A quantized matrix.
    Matrix {
        /// Output features.
        rows: usize,
        /// Input features, a multiple of 64.
        cols: usize,
        /// Bits of a weight.
        bits: u32,
    },
}

/// The tensors of one layer in upstream's order: suffix, and whether sliding layers alone have it.
pub(super) const LAYER_ORDER: [&str; 20] = [
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "self_attn.q_norm.weight",
    "self_attn.k_norm.weight",
    "router.proj.weight",
    "router.scale",
    "router.per_expert_scale",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
    "pre_feedforward_layernorm.weight",
    "pre_feedforward_layernorm_2.weight",
    "post_feedforward_layernorm.weight",
    "post_feedforward_layernorm_1.weight",
    "post_feedforward_layernorm_2.weight",
    "layer_scalar",
];

/// Calls `visit` with the name and kind of every resident tensor, in upstream's order. Errors of `visit` end the walk;
/// so does a shape whose products overflow.
pub fn resident_tensors(
    arch: &Arch,
    quant: &Quant,
    visit: &mut dyn FnMut(&str, TensorKind) -> Result<()>,
) -> Result<()> {
    let matrix = |rows, cols, bits| TensorKind::Matrix { rows, cols, bits };
    let hidden = arch.hidden_size;
    visit(
        &format!("{PREFIX}embed_tokens.weight"),
        matrix(arch.vocab_size, hidden, quant.embedding.weight_bits),
    )?;
    for layer in 0..arch.num_hidden_layers {
        let (heads, kv_heads, head_dim) = arch.heads(layer);
        let width = |heads: usize| {
            let reason = format!("{heads} heads of {head_dim} overflow");
            heads.checked_mul(head_dim).ok_or_else(|| fault(MANIFEST, "arch.numHeads", reason))
        };
        let (q, kv) = (width(heads)?, width(kv_heads)?);
        for suffix in LAYER_ORDER {
            let (attention, shared) = (quant.attention.weight_bits, quant.shared_expert.weight_bits);
            let kind = match suffix {
                "self_attn.q_proj.weight" => matrix(q, hidden, attention),
                "self_attn.v_proj.weight" if arch.full_attention.get(layer) == Some(&true) => continue,
                "self_attn.k_proj.weight" | "self_attn.v_proj.weight" => matrix(kv, hidden, attention),
                "self_attn.o_proj.weight" => matrix(hidden, q, attention),
                "self_attn.q_norm.weight" | "self_attn.k_norm.weight" => TensorKind::Vector(head_dim),
                "router.proj.weight" => matrix(arch.num_experts, hidden, quant.router.weight_bits),
                "router.per_expert_scale" => TensorKind::Vector(arch.num_experts),
                "mlp.gate_proj.weight" | "mlp.up_proj.weight" => {
                    matrix(arch.intermediate_size, hidden, shared)
                }
                "mlp.down_proj.weight" => matrix(hidden, arch.intermediate_size, shared),
                "layer_scalar" => TensorKind::Vector(1),
                _ => TensorKind::Vector(hidden), // the seven norms and router.scale
            };
            visit(&format!("{PREFIX}layers.{layer}.{suffix}"), kind)?;
        }
    }
    visit(&format!("{PREFIX}norm.weight"), TensorKind::Vector(hidden))
}

/// Checks that the index has every tensor of 1.10 of the specification, each as the layout stores it: in a tiled
/// directory a matrix is in tiles exactly if it divides into them. Other tensors are ignored.
pub fn check_resident(index: &ResidentIndex, arch: &Arch, quant: &Quant, layout: Layout) -> Result<()> {
    let entries: HashMap<&str, &IndexEntry> = index.by_name();
    resident_tensors(arch, quant, &mut |name, kind| {
        let wrong = |reason: String| fault(WEIGHTS, name, reason);
        let entry = *entries.get(name).ok_or_else(|| wrong("the tensor is missing".into()))?;
        let want = Stored::new(kind, layout).ok_or_else(|| {
            wrong(format!("{kind:?} is not possible: columns must be whole groups of {GROUP} and sizes fit"))
        })?;
        let size = |range: &std::ops::Range<u64>| range.end - range.start;
        let found = (entry.dtype, entry.shape, size(&entry.data), size(&entry.scales), size(&entry.biases));
        let expected = (want.dtype, want.shape, want.data, want.scales, want.scales);
        if found != expected {
            return Err(wrong(format!(
                "expected dtype, shape, bytes of data, scales and biases {expected:?}, found {found:?}"
            )));
        }
        if ![&entry.data, &entry.scales, &entry.biases].iter().all(|range| range.start.is_multiple_of(2)) {
            return Err(wrong("an offset is odd".into()));
        }
        Ok(())
    })
}

/// How a tensor is stored: what its index entry says.
pub(super) struct Stored {
    pub(super) dtype: DType,
    pub(super) shape: [u32; 4],
    pub(super) data: u64,
    /// Bytes of the scales, and of the biases.
    pub(super) scales: u64,
}

impl Stored {
    /// `None` if columns are not whole groups or a size overflows.
    pub(super) fn new(kind: TensorKind, layout: Layout) -> Option<Self> {
        match kind {
            TensorKind::Vector(n) => {
                let length = u32::try_from(n).ok()?;
                Some(Self {
                    dtype: DType::Bf16,
                    shape: [length, 0, 0, 0],
                    data: u64::from(length) * 2,
                    scales: 0,
                })
            }
            TensorKind::Matrix { rows, cols, bits } => {
                let shape = [u32::try_from(rows).ok()?, u32::try_from(cols).ok()?, 0, 0];
                if rows == 0 || cols == 0 || !cols.is_multiple_of(GROUP) {
                    return None;
                }
                if layout == Layout::Tiled
                    && bits == 4
                    && let Some(data) = tiled_bytes(shape[0], shape[1])
                {
                    return Some(Self { dtype: DType::Tile16x64, shape, data, scales: 0 });
                }
                let (data, scales) = affine_bytes(rows, cols, bits)?;
                Some(Self { dtype: DType::U32, shape, data, scales })
            }
        }
    }
}
