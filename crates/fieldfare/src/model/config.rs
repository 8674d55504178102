//! The model's shape: from the manifest, with `rms_norm_eps` and everything the manifest does not carry from
//! `config.json`, and both compared where they say the same thing.
//!
//! Nothing is guessed: a key that the maths needs must be there, and a model of another kind is refused by
//! the name of the key that makes it one.

use crate::format::{Arch, Manifest, ModelDir, PINNED_SNAPSHOT};
use crate::{Error, Result};
use serde_json::{Map, Value};

/// The name of the sidecar in messages.
const SIDECAR: &str = "tokenizer/config.json";
/// Largest `config.json` that is read: what the installer takes. Read as a tree it may need seventy times its size.
const SIDECAR_CAP: u64 = 1 << 20;
/// Largest width, count or vocabulary accepted: products of two fit 64 bits with room to spare.
const LARGEST: usize = 1 << 24;
/// Widest head accepted; tables of its rotations are made before any tensor is looked at.
const LARGEST_HEAD: usize = 1 << 14;

/// How a layer attends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerKind {
    /// Over a window of the newest positions.
    Sliding,
    /// Over all positions.
    Full,
}

impl LayerKind {
    /// 0 for sliding, 1 for full: index of tables that have one entry for each kind.
    pub fn index(self) -> usize {
        match self {
            Self::Sliding => 0,
            Self::Full => 1,
        }
    }
}

/// The shape of a Gemma 4 mixture-of-experts text model. Fields are named as in the checkpoint's `text_config`.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the shared expert.
    pub intermediate_size: usize,
    /// Width of a routed expert.
    pub moe_intermediate_size: usize,
    /// Query heads, both layer kinds.
    pub num_attention_heads: usize,
    /// KV heads of sliding layers.
    pub num_key_value_heads: usize,
    /// KV heads of full layers.
    pub num_global_key_value_heads: usize,
    /// Head width of sliding layers.
    pub head_dim: usize,
    /// Head width of full layers.
    pub global_head_dim: usize,
    /// Entries of the embedding table.
    pub vocab_size: usize,
    /// Positions that a sliding layer sees, its own included.
    pub sliding_window: usize,
    /// Experts of a layer.
    pub num_experts: usize,
    /// Experts of a token.
    pub top_k_experts: usize,
    /// Bound of the logits.
    pub final_logit_softcapping: f32,
    /// Added to the mean square inside every norm's root.
    pub rms_norm_eps: f32,
    /// What embeddings are multiplied by.
    pub embed_scale: f32,
    /// Kind of every layer.
    pub layers: Vec<LayerKind>,
    /// Radians a position turns each pair of a head, by [`LayerKind::index`]; `head width / 2` entries, 0 for
    /// pairs that do not turn.
    pub rope_frequencies: [Vec<f32>; 2],
}

impl Config {
    /// The configuration of a model directory.
    ///
    /// # Errors
    /// [`Error::Unsupported`] names what makes the model another kind, [`Error::Damaged`] a missing or
    /// contradicting field.
    pub fn open(dir: &ModelDir) -> Result<Self> {
        let bytes = dir
            .read_sidecar("config.json", SIDECAR_CAP)?
            .ok_or_else(|| Error::damaged(SIDECAR, "missing: the norms' epsilon is only there"))?;
        let document = serde_json::from_slice(&bytes)
            .map_err(|error| Error::damaged(SIDECAR, format!("not JSON: {error}")))?;
        Self::new(dir.manifest(), &document)
    }

    /// The configuration that `manifest` and `document`, a whole `config.json`, describe together.
    ///
    /// # Errors
    /// As [`Config::open`].
    pub fn new(manifest: &Manifest, document: &Value) -> Result<Self> {
        let text = Text::of(document)?;
        let arch = &manifest.arch;
        let layers: Vec<LayerKind> = arch
            .full_attention
            .iter()
            .map(|&full| if full { LayerKind::Full } else { LayerKind::Sliding })
            .collect();
        text.refuse_other_models()?;
        text.compare_layers(&layers)?;
        text.compare_others(arch)?;
        let size = |key: &'static str, value| text.compare_size(key, value);
        let config = Self {
            hidden_size: size("hidden_size", arch.hidden_size)?,
            intermediate_size: size("intermediate_size", arch.intermediate_size)?,
            moe_intermediate_size: size("moe_intermediate_size", arch.moe_intermediate_size)?,
            num_attention_heads: size("num_attention_heads", arch.num_attention_heads)?,
            num_key_value_heads: size("num_key_value_heads", arch.num_key_value_heads)?,
            num_global_key_value_heads: size("num_global_key_value_heads", arch.num_global_key_value_heads)?,
            head_dim: size("head_dim", arch.head_dim)?,
            global_head_dim: size("global_head_dim", arch.global_head_dim)?,
            vocab_size: size("vocab_size", arch.vocab_size)?,
            sliding_window: size("sliding_window", arch.sliding_window)?,
            num_experts: size("num_experts", arch.num_experts)?,
            top_k_experts: size("top_k_experts", arch.top_k_experts)?,
            final_logit_softcapping: arch.final_logit_softcapping as f32,
            rms_norm_eps: text.eps()?,
            embed_scale: embed_scale(arch.hidden_size, manifest.source_snapshot_hash.as_deref()),
            layers,
            rope_frequencies: [
                rope_frequencies(arch.head_dim, arch.rope_theta, 1.0),
                rope_frequencies(arch.global_head_dim, arch.global_rope_theta, arch.partial_rotary_factor),
            ],
        };
        for (key, value) in
            [("attention_k_eq_v", arch.attention_k_eq_v), ("tie_word_embeddings", arch.tie_word_embeddings)]
        {
            if !value {
                return Err(Error::Unsupported(format!("{key} = false in the model's configuration")));
            }
        }
        config.check(&arch.hidden_activation)?;
        Ok(config)
    }

    /// Gemma 4 26B-A4B, for advice before it is there.
    pub fn full_size() -> Self {
        let kind = |layer| if layer % 6 == 5 { LayerKind::Full } else { LayerKind::Sliding };
        Self {
            hidden_size: 2816,
            intermediate_size: 2112,
            moe_intermediate_size: 704,
            num_attention_heads: 16,
            num_key_value_heads: 8,
            num_global_key_value_heads: 2,
            head_dim: 256,
            global_head_dim: 512,
            vocab_size: 262_144,
            sliding_window: 1024,
            num_experts: 128,
            top_k_experts: 8,
            final_logit_softcapping: 30.0,
            rms_norm_eps: 1e-6,
            embed_scale: embed_scale(2816, Some(PINNED_SNAPSHOT)),
            layers: (0..30).map(kind).collect(),
            rope_frequencies: [rope_frequencies(256, 1e4, 1.0), rope_frequencies(512, 1e6, 0.25)],
        }
    }

    /// Refuses shapes that the forward pass has no meaning for.
    fn check(&self, activation: &str) -> Result<()> {
        let unsupported =
            |what: String| Err(Error::Unsupported(format!("{what} in the model's configuration")));
        if activation != "gelu_pytorch_tanh" {
            return unsupported(format!("hidden_activation = {activation:?}"));
        }
        let cap = self.final_logit_softcapping;
        if !(cap > 0.0 && cap.is_finite()) {
            return unsupported(format!("final_logit_softcapping = {cap}"));
        }
        if !self.rope_frequencies.iter().flatten().all(|frequency| frequency.is_finite()) {
            return unsupported("a rope_theta so small that positions have no angle".into());
        }
        for (name, width) in [("head_dim", self.head_dim), ("global_head_dim", self.global_head_dim)] {
            if !width.is_multiple_of(2) {
                return unsupported(format!("{name} = {width}, an odd width,"));
            }
        }
        for (name, kv_heads) in [
            ("num_key_value_heads", self.num_key_value_heads),
            ("num_global_key_value_heads", self.num_global_key_value_heads),
        ] {
            if !self.num_attention_heads.is_multiple_of(kv_heads) {
                return unsupported(format!(
                    "{name} = {kv_heads} beside {} query heads",
                    self.num_attention_heads
                ));
            }
        }
        if self.top_k_experts > self.num_experts {
            return unsupported(format!("top_k_experts = {} of {}", self.top_k_experts, self.num_experts));
        }
        Ok(())
    }

    /// Width of one head in a layer of this kind.
    pub fn head_width(&self, kind: LayerKind) -> usize {
        match kind {
            LayerKind::Sliding => self.head_dim,
            LayerKind::Full => self.global_head_dim,
        }
    }

    /// KV heads of a layer of this kind.
    pub fn kv_heads(&self, kind: LayerKind) -> usize {
        match kind {
            LayerKind::Sliding => self.num_key_value_heads,
            LayerKind::Full => self.num_global_key_value_heads,
        }
    }

    /// Positions that a layer of this kind sees, or `None` for all.
    pub fn window(&self, kind: LayerKind) -> Option<usize> {
        (kind == LayerKind::Sliding).then_some(self.sliding_window)
    }
}

/// The float32 root of the width, but for the pinned source the bf16 root that its own libraries multiply by.
fn embed_scale(hidden_size: usize, snapshot: Option<&str>) -> f32 {
    if snapshot == Some(PINNED_SNAPSHOT) { 53.0 } else { (hidden_size as f32).sqrt() }
}

/// `theta^(-2i / width)` for the first `fraction` of the `width / 2` pairs, 0 for the others. The exponent's
/// denominator is the whole head width also where only a part turns ("proportional" rope).
fn rope_frequencies(width: usize, theta: f64, fraction: f64) -> Vec<f32> {
    let pairs = width / 2;
    let turned = (fraction * width as f64 / 2.0) as usize;
    (0..pairs)
        .map(|i| if i < turned { theta.powf(-2.0 * i as f64 / width as f64) as f32 } else { 0.0 })
        .collect()
}

/// The `text_config` of a `config.json`.
struct Text<'a>(&'a Map<String, Value>);

impl<'a> Text<'a> {
    fn of(document: &'a Value) -> Result<Self> {
        document
            .get("text_config")
            .and_then(Value::as_object)
            .map(Self)
            .ok_or_else(|| Error::damaged(SIDECAR, "has no text_config object"))
    }

    /// A key that is there and not null.
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// `value` of the manifest, after `key` of the sidecar was found to agree if it is there.
    fn compare_size(&self, key: &'static str, value: usize) -> Result<usize> {
        let largest = if key.ends_with("head_dim") { LARGEST_HEAD } else { LARGEST };
        if value == 0 || value > largest {
            return Err(Error::Unsupported(format!("{key} = {value} in the model's configuration")));
        }
        self.compare(&[key], &Value::from(value))?;
        Ok(value)
    }

    /// Refuses another value than the manifest's at `path`; none there is no contradiction.
    fn compare(&self, path: &[&str], value: &Value) -> Result<()> {
        let inner = |found: Option<&'a Value>, key: &&str| {
            found.and_then(|found| found.get(key)).filter(|found| !found.is_null())
        };
        let found = path.split_first().and_then(|(key, rest)| rest.iter().fold(self.get(key), inner));
        match found {
            // 30 and 30.0 are one number.
            Some(found) if found != value && (found.as_f64() != value.as_f64() || !found.is_number()) => {
                Err(Error::damaged(
                    format!("{SIDECAR}: text_config.{}", path.join(".")),
                    format!("is {found}, the manifest says {value}"),
                ))
            }
            _ => Ok(()),
        }
    }

    /// What is no size and stands in both files.
    fn compare_others(&self, arch: &Arch) -> Result<()> {
        let (sliding, full) = ("sliding_attention", "full_attention");
        let pairs: [(&[&str], Value); 8] = [
            (&["num_hidden_layers"], arch.num_hidden_layers.into()),
            (&["final_logit_softcapping"], arch.final_logit_softcapping.into()),
            (&["hidden_activation"], arch.hidden_activation.as_str().into()),
            (&["attention_k_eq_v"], arch.attention_k_eq_v.into()),
            (&["tie_word_embeddings"], arch.tie_word_embeddings.into()),
            (&["rope_parameters", sliding, "rope_theta"], arch.rope_theta.into()),
            (&["rope_parameters", full, "rope_theta"], arch.global_rope_theta.into()),
            (&["rope_parameters", full, "partial_rotary_factor"], arch.partial_rotary_factor.into()),
        ];
        pairs.iter().try_for_each(|(path, value)| self.compare(path, value))
    }

    fn compare_layers(&self, layers: &[LayerKind]) -> Result<()> {
        let Some(types) = self.get("layer_types") else { return Ok(()) };
        let field = format!("{SIDECAR}: text_config.layer_types");
        let types = types.as_array().ok_or_else(|| Error::damaged(field.as_str(), "is not an array"))?;
        if types.len() != layers.len() {
            let reason = format!("has {} entries, the manifest {} layers", types.len(), layers.len());
            return Err(Error::damaged(field, reason));
        }
        for (layer, (found, kind)) in types.iter().zip(layers).enumerate() {
            let agrees = match found.as_str() {
                Some("sliding_attention") => *kind == LayerKind::Sliding,
                Some("full_attention") => *kind == LayerKind::Full,
                _ => return Err(Error::Unsupported(format!("layer_types[{layer}] = {found} in {SIDECAR}"))),
            };
            if !agrees {
                return Err(Error::damaged(
                    field,
                    format!("[{layer}] is {found}, the manifest says otherwise"),
                ));
            }
        }
        Ok(())
    }

    /// Refuses keys that change the maths, by name.
    fn refuse_other_models(&self) -> Result<()> {
        let wanted: [(&str, &[Value]); 7] = [
            ("hidden_size_per_layer_input", &[Value::from(0)]),
            ("num_kv_shared_layers", &[Value::from(0)]),
            ("attention_bias", &[Value::Bool(false)]),
            ("enable_moe_block", &[Value::Bool(true)]),
            ("use_bidirectional_attention", &[Value::from("vision"), Value::Bool(false)]),
            ("model_type", &[Value::from("gemma4_text")]),
            ("use_double_wide_mlp", &[Value::Bool(false)]),
        ];
        for (key, accepted) in wanted {
            if let Some(found) = self.get(key)
                && !accepted.contains(found)
            {
                return Err(Error::Unsupported(format!("{key} = {found} in {SIDECAR}")));
            }
        }
        let ropes = self.get("rope_parameters");
        for (kind, expected) in [("sliding_attention", "default"), ("full_attention", "proportional")] {
            let found = ropes.and_then(|ropes| ropes.get(kind)).and_then(|rope| rope.get("rope_type"));
            if let Some(found) = found
                && found != expected
            {
                return Err(Error::Unsupported(format!(
                    "rope_parameters.{kind}.rope_type = {found} in {SIDECAR}"
                )));
            }
        }
        Ok(())
    }

    fn eps(&self) -> Result<f32> {
        let field = || format!("{SIDECAR}: text_config.rms_norm_eps");
        let eps = self.get("rms_norm_eps").ok_or_else(|| Error::damaged(field(), "missing"))?;
        match eps.as_f64() {
            Some(eps) if eps as f32 > 0.0 && eps < 1.0 => Ok(eps as f32),
            _ => Err(Error::damaged(field(), format!("{eps} is not between 0 and 1"))),
        }
    }
}

#[cfg(test)]
mod tests;
