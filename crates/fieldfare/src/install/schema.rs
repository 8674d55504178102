//! A checkpoint's tensors against the shapes that its config implies: the whole inventory, before anything is written.

use std::collections::BTreeSet;

use super::config::{GROUP, TextConfig};
use super::matrix::Shape;
use super::source::{Checkpoint, Located};
use crate::format::plan::{self, SourceKind, SourceTensor};
use crate::format::safetensors::Dtype;
use crate::format::schema::PREFIX;
use crate::format::{Arch, Quant, QuantSlot};
use crate::{Error, Result};

/// The matrices of an expert, in the order of a blob.
pub(crate) const ROLES: [&str; 3] = ["gate", "up", "down"];
/// More experts in all than `layout.json` can describe within its cap; refused before anything is allocated for them.
const MAX_EXPERTS: u64 = 1 << 16;
/// Names listed in a message before "and N more".
const NAMED: usize = 5;

/// What a checked checkpoint holds.
pub(crate) struct Checked {
    pub(crate) arch: Arch,
    pub(crate) quant: Quant,
    pub(crate) resident: Vec<SourceTensor>,
}

/// Module names of the expert matrix `role` of a layer.
pub(crate) fn expert_module(layer: usize, role: &str) -> String {
    format!("{PREFIX}layers.{layer}.experts.switch_glu.{role}_proj")
}

/// Checks that every tensor is there with the type, shape and width that `config.json` implies, and no other.
///
/// # Errors
/// Names the tensors and what is wrong with them.
pub(crate) fn check(source: &Checkpoint) -> Result<Checked> {
    let arch = arch(&source.config)?;
    let quant = quant(source)?;
    let resident = plan::inventory(&arch, &quant)?;
    let mut audit = Audit { source, left: source.names().collect(), missing: Vec::new() };
    for tensor in &resident {
        match tensor.kind {
            SourceKind::Affine { rows, cols, bits } => {
                audit.matrix(module_of(&tensor.name), &[], Shape { rows, cols, bits })?;
            }
            SourceKind::Plain { shape, .. } => {
                let dims: Vec<u64> = shape.iter().take_while(|d| **d > 0).map(|d| u64::from(*d)).collect();
                audit.tensor(&tensor.name, Dtype::Bf16, &dims)?;
            }
        }
    }
    let (inner, hidden) = (arch.moe_intermediate_size, arch.hidden_size);
    let bits = quant.routed_expert.weight_bits;
    for layer in 0..arch.num_hidden_layers {
        for role in ROLES {
            let (rows, cols) = if role == "down" { (hidden, inner) } else { (inner, hidden) };
            let module = expert_module(layer, role);
            audit.matrix(&module, &[arch.num_experts as u64], Shape { rows, cols, bits })?;
        }
    }
    audit.finish()?;
    Ok(Checked { arch, quant, resident })
}

/// Name of a quantised tensor without `.weight`.
pub(crate) fn module_of(name: &str) -> &str {
    name.strip_suffix(".weight").unwrap_or(name)
}

struct Audit<'a> {
    source: &'a Checkpoint,
    left: BTreeSet<&'a str>,
    missing: Vec<String>,
}

impl Audit<'_> {
    /// Weights, scales and biases of a module, with leading dimensions `outer`.
    fn matrix(&mut self, module: &str, outer: &[u64], shape: Shape) -> Result<()> {
        shape.check(module)?;
        match self.source.quantization.bits(module) {
            None => return Err(unquantised(module)),
            Some(bits) if bits == u64::from(shape.bits) => {}
            Some(bits) => {
                let what = format!(
                    "{module} is {bits} bit in config.json, its kind {} bit: one width for each kind",
                    shape.bits
                );
                return Err(Error::Unsupported(what));
            }
        }
        let (rows, cols) = (shape.rows as u64, shape.cols as u64);
        let dims = |last: u64| [outer, &[rows, last]].concat();
        let groups = cols / GROUP;
        let scales = self.tensor(&format!("{module}.scales"), Dtype::Bf16, &dims(groups))?;
        self.tensor(&format!("{module}.biases"), Dtype::Bf16, &dims(groups))?;
        let name = format!("{module}.weight");
        if let (Some(weight), true) = (self.source.tensor(&name), scales) {
            // Only the last dimension depends on the width, so it tells the true one.
            let words = weight.info.shape.last().copied().unwrap_or(0);
            let true_bits = words.saturating_mul(32) / cols;
            if weight.info.dtype == Dtype::U32
                && weight.info.shape == dims(words)
                && true_bits != u64::from(shape.bits)
            {
                let what = format!(
                    "shape {:?} is {true_bits} bit, config.json says {} bit",
                    weight.info.shape, shape.bits
                );
                return Err(Error::damaged(self.source.place(weight), what));
            }
        }
        self.tensor(&name, Dtype::U32, &dims(cols * u64::from(shape.bits) / 32))?;
        Ok(())
    }

    /// One tensor; false if it is missing, which is reported at the end.
    fn tensor(&mut self, name: &str, dtype: Dtype, shape: &[u64]) -> Result<bool> {
        self.left.remove(name);
        let Some(Located { info, .. }) = self.source.tensor(name) else {
            self.missing.push(name.to_owned());
            return Ok(false);
        };
        if info.dtype != dtype || info.shape != shape {
            let what =
                format!("expected {} {shape:?}, found {} {:?}", dtype.name(), info.dtype.name(), info.shape);
            let at = self.source.tensor(name).map_or_else(|| name.to_owned(), |t| self.source.place(t));
            return Err(Error::damaged(at, what));
        }
        Ok(true)
    }

    fn finish(self) -> Result<()> {
        if !self.missing.is_empty() {
            return Err(Error::damaged("checkpoint", format!("missing tensors: {}", some(&self.missing))));
        }
        if !self.left.is_empty() {
            let names: Vec<String> = self.left.iter().map(|n| (*n).to_owned()).collect();
            return Err(Error::Unsupported(format!(
                "tensors that this kind of model does not have: {}",
                some(&names)
            )));
        }
        Ok(())
    }
}

fn some(names: &[String]) -> String {
    let shown = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn unquantised(module: &str) -> Error {
    Error::Unsupported(format!("{module} is not quantised (false in config.json)"))
}

/// One width for each family, as the format has it: that of the family's first tensor, which all others must share.
fn quant(source: &Checkpoint) -> Result<Quant> {
    let slot = |module: &str, widths: &[u64]| {
        let bits = source.quantization.bits(module).ok_or_else(|| unquantised(module))?;
        match u32::try_from(bits) {
            Ok(narrow) if widths.contains(&bits) => Ok(QuantSlot::affine(narrow)),
            _ => Err(Error::Unsupported(format!("{module} of {bits} bit (only {widths:?})"))),
        }
    };
    let first = |name: &str| format!("{PREFIX}layers.0.{name}");
    Ok(Quant {
        embedding: slot(&format!("{PREFIX}embed_tokens"), &[4])?,
        attention: slot(&first("self_attn.q_proj"), &[4])?,
        router: slot(&first("router.proj"), &[8])?,
        shared_expert: slot(&first("mlp.gate_proj"), &[4, 8])?,
        routed_expert: slot(&expert_module(0, "gate"), &[4])?,
    })
}

/// The shape, with sizes that this machine can count.
pub(super) fn arch(c: &TextConfig) -> Result<Arch> {
    let layers = c.full_layers.len();
    if c.experts.saturating_mul(layers as u64) > MAX_EXPERTS {
        return Err(Error::Unsupported(format!("{} experts in each of {layers} layers", c.experts)));
    }
    let size = |n: u64| usize::try_from(n).map_err(|_| Error::Unsupported(format!("a dimension of {n}")));
    Ok(Arch {
        hidden_size: size(c.hidden)?,
        intermediate_size: size(c.ffn)?,
        moe_intermediate_size: size(c.moe_ffn)?,
        num_attention_heads: size(c.heads)?,
        num_key_value_heads: size(c.kv_heads)?,
        num_global_key_value_heads: size(c.full_kv_heads)?,
        head_dim: size(c.head_dim)?,
        global_head_dim: size(c.full_head_dim)?,
        vocab_size: size(c.vocab)?,
        sliding_window: size(c.window)?,
        final_logit_softcapping: c.soft_cap,
        rope_theta: c.rope_theta,
        global_rope_theta: c.full_rope_theta,
        partial_rotary_factor: c.partial_rotary,
        num_hidden_layers: layers,
        num_experts: size(c.experts)?,
        top_k_experts: size(c.top_k)?,
        // Both were required to be so.
        tie_word_embeddings: true,
        attention_k_eq_v: true,
        hidden_activation: c.activation.clone(),
        full_attention: c.full_layers.clone(),
    })
}
