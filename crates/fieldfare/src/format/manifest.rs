//! `manifest.json`: what the model is, how it is quantized, which files belong to it.

use super::files::{FileEntry, files_to_value, parse_files, shorten};
use super::json::{self, Fields, Value};
use super::{CAP_MANIFEST, LAYOUT, Layout, MANIFEST, PAGE, TILE_ORDER, WEIGHTS, fault};
use crate::{Error, Result};
use std::collections::BTreeMap;

/// The flags that format v1 knows.
const FLAGS: [&str; 3] = ["streamingPresent", "turboQuantKV", "aneSharedExpert"];
/// Elements of one quantization group: the only size that is run.
pub(crate) const GROUP: usize = 64;

/// The shape of the model. Field names are those of the checkpoint's `config.json`.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Arch {
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Inner width of the shared expert.
    pub intermediate_size: usize,
    /// Inner width of a routed expert.
    pub moe_intermediate_size: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads of sliding layers.
    pub num_key_value_heads: usize,
    /// Key and value heads of full layers.
    pub num_global_key_value_heads: usize,
    /// Head width of sliding layers.
    pub head_dim: usize,
    /// Head width of full layers.
    pub global_head_dim: usize,
    /// Entries of the embedding table.
    pub vocab_size: usize,
    /// Positions that a sliding layer sees.
    pub sliding_window: usize,
    /// Soft cap of the logits.
    pub final_logit_softcapping: f64,
    /// RoPE base of sliding layers.
    pub rope_theta: f64,
    /// RoPE base of full layers.
    pub global_rope_theta: f64,
    /// Rotated share of a full layer's head.
    pub partial_rotary_factor: f64,
    /// Transformer layers.
    pub num_hidden_layers: usize,
    /// Routed experts of a layer.
    pub num_experts: usize,
    /// Routed experts used for a token.
    pub top_k_experts: usize,
    /// True if the head uses the embedding table.
    pub tie_word_embeddings: bool,
    /// True if full layers take V from the K projection.
    pub attention_k_eq_v: bool,
    /// Name of the activation function.
    pub hidden_activation: String,
    /// For each layer, true if it attends to everything.
    pub full_attention: Vec<bool>,
}

/// How one family of tensors is quantized.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct QuantSlot {
    /// Bits of a weight.
    pub weight_bits: u32,
    /// `affine`.
    pub scheme: String,
    /// Type of the scales: `BF16`.
    pub scale_type: String,
    /// Type of the biases: `BF16`.
    pub bias_type: String,
    /// Weights that share a scale and a bias.
    pub group_size: u32,
}

/// How each family of tensors is quantized.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Quant {
    /// The embedding table.
    pub embedding: QuantSlot,
    /// Q, K, V and O projections.
    pub attention: QuantSlot,
    /// The router projection.
    pub router: QuantSlot,
    /// The shared expert.
    pub shared_expert: QuantSlot,
    /// Routed experts.
    pub routed_expert: QuantSlot,
}

/// `manifest.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// Told by the magic (and `tensorOrder`).
    pub layout: Layout,
    /// Additive version; any is accepted.
    pub version_minor: u64,
    /// Known flags that are present.
    pub flags: BTreeMap<String, bool>,
    /// Repository of the source, or `unknown/snapshot`.
    pub model_id: String,
    /// `sha256:` and the hash of the source's index, where known.
    pub source_snapshot_hash: Option<String>,
    /// Shape of the model.
    pub arch: Arch,
    /// Quantization; needed to run, optional in the format.
    pub quant: Option<Quant>,
    /// Every file but the manifest and the receipt, by path.
    pub files: BTreeMap<String, FileEntry>,
    /// Bytes from one expert blob to the next.
    pub expert_stride: u64,
    /// Per-tensor width overrides in the source's config; informational.
    pub bit_width_overrides_honored: Option<i64>,
}

impl QuantSlot {
    /// Affine, BF16 scales and biases, groups of 64.
    pub fn affine(weight_bits: u32) -> Self {
        let bf16 = "BF16".to_owned();
        Self {
            weight_bits,
            scheme: "affine".into(),
            scale_type: bf16.clone(),
            bias_type: bf16,
            group_size: 64,
        }
    }

    fn parse(fields: &Fields<'_>) -> Result<Self> {
        let bits =
            |v: &Value| v.as_int().filter(|n| (1..=32).contains(n)).and_then(|n| u32::try_from(n).ok());
        let group = |v: &Value| v.as_int().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
        Ok(Self {
            weight_bits: fields.need("weightBits", "an integer from 1 to 32", bits)?,
            scheme: fields.text("scheme")?,
            scale_type: fields.text("scaleType")?,
            bias_type: fields.text("biasType")?,
            group_size: fields.need("groupSize", "an integer > 0", group)?,
        })
    }

    fn to_value(&self) -> Value {
        json::object([
            ("biasType", self.bias_type.as_str().into()),
            ("groupSize", self.group_size.into()),
            ("scaleType", self.scale_type.as_str().into()),
            ("scheme", self.scheme.as_str().into()),
            ("weightBits", self.weight_bits.into()),
        ])
    }
}

impl Quant {
    /// The five slots with their names in the manifest.
    pub fn slots(&self) -> [(&'static str, &QuantSlot); 5] {
        [
            ("embedding", &self.embedding),
            ("attention", &self.attention),
            ("router", &self.router),
            ("sharedExpert", &self.shared_expert),
            ("routedExpert", &self.routed_expert),
        ]
    }

    fn parse(fields: &Fields<'_>) -> Result<Self> {
        let slot = |key| QuantSlot::parse(&fields.object(key)?);
        Ok(Self {
            embedding: slot("embedding")?,
            attention: slot("attention")?,
            router: slot("router")?,
            shared_expert: slot("sharedExpert")?,
            routed_expert: slot("routedExpert")?,
        })
    }
}

impl Arch {
    fn parse(fields: &Fields<'_>) -> Result<Self> {
        let above_zero = |key| {
            let expected = "a finite number > 0";
            fields.need(key, expected, |v| v.as_f64().filter(|n| n.is_finite() && *n > 0.0))
        };
        let mask = fields.need("fullAttentionLayerMask", "an array of 0 and 1", |v| {
            v.as_array()?
                .iter()
                .map(|bit| match bit.as_int() {
                    Some(0) => Some(false),
                    Some(1) => Some(true),
                    _ => None,
                })
                .collect::<Option<Vec<bool>>>()
        })?;
        let factor = |v: &Value| v.as_f64().filter(|n| (0.0..=1.0).contains(n));
        let arch = Self {
            hidden_size: fields.positive("hiddenSize")?,
            intermediate_size: fields.positive("ffnIntermediate")?,
            moe_intermediate_size: fields.positive("moeIntermediateSize")?,
            num_attention_heads: fields.positive("numHeads")?,
            num_key_value_heads: fields.positive("numKVHeads")?,
            num_global_key_value_heads: fields.positive("numFullKVHeads")?,
            head_dim: fields.positive("headDim")?,
            global_head_dim: fields.positive("fullHeadDim")?,
            vocab_size: fields.positive("vocabSize")?,
            sliding_window: fields.positive("slidingWindow")?,
            final_logit_softcapping: fields.number("finalLogitSoftcap")?,
            rope_theta: above_zero("ropeTheta")?,
            global_rope_theta: above_zero("fullRopeTheta")?,
            partial_rotary_factor: fields.need("partialRotaryFactor", "a number from 0 to 1", factor)?,
            num_hidden_layers: fields.positive("numLayers")?,
            num_experts: fields.positive("numExperts")?,
            top_k_experts: fields.positive("topKExperts")?,
            tie_word_embeddings: fields.bool("tieWordEmbeddings")?,
            attention_k_eq_v: fields.bool("attentionKEqV")?,
            hidden_activation: fields.text("hiddenActivation")?,
            full_attention: mask,
        };
        if arch.full_attention.len() != arch.num_hidden_layers {
            let reason =
                format!("{} entries for {} layers", arch.full_attention.len(), arch.num_hidden_layers);
            return Err(fields.fault("fullAttentionLayerMask", reason));
        }
        if arch.top_k_experts > arch.num_experts {
            let reason = format!("{} exceeds numExperts {}", arch.top_k_experts, arch.num_experts);
            return Err(fields.fault("topKExperts", reason));
        }
        Ok(arch)
    }

    fn to_value(&self) -> Value {
        let mask = self.full_attention.iter().map(|full| u8::from(*full).into()).collect::<Vec<Value>>();
        json::object([
            ("attentionKEqV", self.attention_k_eq_v.into()),
            ("ffnIntermediate", self.intermediate_size.into()),
            ("finalLogitSoftcap", self.final_logit_softcapping.into()),
            ("fullAttentionLayerMask", mask.into()),
            ("fullHeadDim", self.global_head_dim.into()),
            ("fullRopeTheta", self.global_rope_theta.into()),
            ("headDim", self.head_dim.into()),
            ("hiddenActivation", self.hidden_activation.as_str().into()),
            ("hiddenSize", self.hidden_size.into()),
            ("moeIntermediateSize", self.moe_intermediate_size.into()),
            ("numExperts", self.num_experts.into()),
            ("numFullKVHeads", self.num_global_key_value_heads.into()),
            ("numHeads", self.num_attention_heads.into()),
            ("numKVHeads", self.num_key_value_heads.into()),
            ("numLayers", self.num_hidden_layers.into()),
            ("partialRotaryFactor", self.partial_rotary_factor.into()),
            ("ropeTheta", self.rope_theta.into()),
            ("slidingWindow", self.sliding_window.into()),
            ("tieWordEmbeddings", self.tie_word_embeddings.into()),
            ("topKExperts", self.top_k_experts.into()),
            ("vocabSize", self.vocab_size.into()),
        ])
    }

    /// Query, then key and value heads, and the head width of a layer.
    pub fn heads(&self, layer: usize) -> (usize, usize, usize) {
        if self.full_attention.get(layer).copied().unwrap_or(false) {
            (self.num_attention_heads, self.num_global_key_value_heads, self.global_head_dim)
        } else {
            (self.num_attention_heads, self.num_key_value_heads, self.head_dim)
        }
    }
}

impl Manifest {
    /// The flags that upstream's installer writes.
    pub fn default_flags() -> BTreeMap<String, bool> {
        FLAGS.iter().map(|flag| ((*flag).to_owned(), *flag == "streamingPresent")).collect()
    }

    /// Parses a manifest and applies every rule of the format (1.4 of the specification). Unknown keys are ignored.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let value = json::parse(MANIFEST, bytes, CAP_MANIFEST)?;
        let fields = Fields::new(MANIFEST, "", &value)?;
        let layout = parse_layout(&fields)?;
        let major = fields.need("versionMajor", "1", Value::as_int)?;
        if major != 1 {
            return Err(Error::Unsupported(format!(
                "{MANIFEST}: versionMajor {major}; this program reads version 1"
            )));
        }
        let minor = |v: &Value| v.as_u64().filter(|n| i64::try_from(*n).is_ok());
        let version_minor = fields.need("versionMinor", "an integer >= 0", minor)?;
        let flags = parse_flags(&fields.object("flags")?)?;
        let stride = |v: &Value| v.as_u64().filter(|n| *n > 0 && n.is_multiple_of(PAGE));
        let expert_stride = fields.need("expertStride", "a positive multiple of 16384", stride)?;
        let (layers, experts) = (fields.positive("numLayers")?, fields.positive("expertsPerLayer")?);
        let overrides = |v: &Value| v.as_int().and_then(|n| i64::try_from(n).ok());
        let arch_fields = fields.object("arch")?;
        let arch = Arch::parse(&arch_fields)?;
        for (key, found, expected) in
            [("numLayers", arch.num_hidden_layers, layers), ("numExperts", arch.num_experts, experts)]
        {
            if found != expected {
                return Err(
                    arch_fields.fault(key, format!("expected {expected} as outside arch, found {found}"))
                );
            }
        }
        Ok(Self {
            layout,
            version_minor,
            flags,
            model_id: fields.text("modelID")?,
            source_snapshot_hash: fields.optional_text("sourceSnapshotHash")?,
            arch,
            quant: fields.get("quant").map(|_| Quant::parse(&fields.object("quant")?)).transpose()?,
            files: parse_files(&fields.object("files")?)?,
            expert_stride,
            bit_width_overrides_honored: fields.optional(
                "bitWidthOverridesHonored",
                "an integer",
                overrides,
            )?,
        })
    }

    /// The manifest as JSON.
    pub fn to_value(&self) -> Value {
        let mut members = vec![
            ("arch".to_owned(), self.arch.to_value()),
            ("expertsPerLayer".to_owned(), self.arch.num_experts.into()),
            ("expertStride".to_owned(), self.expert_stride.into()),
            ("files".to_owned(), files_to_value(&self.files)),
            (
                "flags".to_owned(),
                Value::Object(self.flags.iter().map(|(k, v)| (k.clone(), (*v).into())).collect()),
            ),
            ("magic".to_owned(), self.layout.magic().into()),
            ("modelID".to_owned(), self.model_id.as_str().into()),
            ("numLayers".to_owned(), self.arch.num_hidden_layers.into()),
            ("versionMajor".to_owned(), 1u8.into()),
            ("versionMinor".to_owned(), self.version_minor.into()),
        ];
        if let Some(count) = self.bit_width_overrides_honored {
            members.push(("bitWidthOverridesHonored".to_owned(), count.into()));
        }
        if let Some(quant) = &self.quant {
            let slots = quant.slots().map(|(key, slot)| (key.to_owned(), slot.to_value()));
            members.push(("quant".to_owned(), Value::Object(slots.into())));
        }
        if let Some(hash) = &self.source_snapshot_hash {
            members.push(("sourceSnapshotHash".to_owned(), hash.as_str().into()));
        }
        if self.layout == Layout::Tiled {
            members.push(("tensorOrder".to_owned(), TILE_ORDER.into()));
        }
        Value::Object(members)
    }

    /// The bytes of the file, in canonical form.
    pub fn encode(&self) -> Vec<u8> {
        json::canonical(&self.to_value()).into_bytes()
    }

    /// Checks what running needs beyond the format: no removed feature, a supported quantization and activation, the
    /// required files. Refusals name the field.
    pub fn check_runnable(&self) -> Result<&Quant> {
        let unsupported = |what: String| Err(Error::Unsupported(format!("{MANIFEST}: {what}")));
        if self.flags.get("turboQuantKV") == Some(&true) {
            return unsupported("flags.turboQuantKV true (that feature was removed)".into());
        }
        let arch = &self.arch;
        if arch.hidden_activation != "gelu_pytorch_tanh" {
            return unsupported(format!(
                "arch.hiddenActivation {:?} (only gelu_pytorch_tanh)",
                arch.hidden_activation
            ));
        }
        if !arch.tie_word_embeddings {
            return unsupported("arch.tieWordEmbeddings false (a separate head)".into());
        }
        if !arch.attention_k_eq_v && arch.full_attention.contains(&true) {
            return unsupported("arch.attentionKEqV false (a V projection in full layers)".into());
        }
        let quant =
            self.quant.as_ref().ok_or_else(|| fault(MANIFEST, "quant", "missing, but needed to run"))?;
        for (name, slot) in quant.slots() {
            let widths: &[u32] = match name {
                "router" => &[8],
                "sharedExpert" => &[4, 8],
                _ => &[4],
            };
            let is = |text: &str, want: &str| text.eq_ignore_ascii_case(want);
            if !widths.contains(&slot.weight_bits)
                || slot.group_size as usize != GROUP
                || !is(&slot.scheme, "affine")
                || !is(&slot.scale_type, "BF16")
                || !is(&slot.bias_type, "BF16")
            {
                return unsupported(format!(
                    "quant.{name} ({} {} bit, groups of {}, {} scales, {} biases; only affine {} bit, groups of 64, BF16)",
                    slot.scheme,
                    slot.weight_bits,
                    slot.group_size,
                    slot.scale_type,
                    slot.bias_type,
                    widths.iter().map(u32::to_string).collect::<Vec<_>>().join(" or "),
                ));
            }
        }
        for required in [WEIGHTS, LAYOUT] {
            self.file(required)?;
        }
        Ok(quant)
    }

    /// The entry of a file that must be listed.
    pub fn file(&self, path: &str) -> Result<&FileEntry> {
        self.files.get(path).ok_or_else(|| fault(MANIFEST, "files", format!("{path} is not listed")))
    }
}

fn parse_layout(fields: &Fields<'_>) -> Result<Layout> {
    let magic = fields.need("magic", "\"GTURBO\" or \"FIELDFARE\"", Value::as_str)?;
    if magic == Layout::V1.magic() {
        return Ok(Layout::V1); // unknown keys are ignored in v1, `tensorOrder` too
    }
    if magic != Layout::Tiled.magic() {
        let found = Value::from(magic).describe();
        return Err(fields.fault("magic", format!("expected \"GTURBO\" or \"FIELDFARE\", found {found}")));
    }
    let order = fields.need("tensorOrder", "\"tile16x64\" beside magic FIELDFARE", Value::as_str)?;
    if order != TILE_ORDER {
        let found = Value::from(order).describe();
        return Err(Error::Unsupported(format!(
            "{MANIFEST}: tensorOrder {found}; this program reads {TILE_ORDER}"
        )));
    }
    Ok(Layout::Tiled)
}

fn parse_flags(fields: &Fields<'_>) -> Result<BTreeMap<String, bool>> {
    let mut flags = BTreeMap::new();
    for (name, value) in fields.members() {
        if !FLAGS.contains(&name.as_str()) {
            return Err(fields.fault(&shorten(name), "unknown flag"));
        }
        let value = value.as_bool().ok_or_else(|| {
            fields.fault(name, format!("expected true or false, found {}", value.describe()))
        })?;
        flags.insert(name.clone(), value);
    }
    Ok(flags)
}

#[cfg(test)]
pub(super) mod tests;
