//! `config.json` of a checkpoint: what the model is, and everything about it that this program does not do.
//!
//! A key that the maths needs must be there: defaults of other programs belong to other models. What is not supported is
//! refused by the name of its key, before any tensor is looked at.

use crate::format::json::{self, Value};
use crate::{Error, Result};

/// Largest `config.json` accepted, in bytes.
pub(crate) const CONFIG_CAP: u64 = 1 << 20;
/// Most layers. Tables of tensors are made for each before any is looked for in the checkpoint.
const MAX_LAYERS: u64 = 1_024;
/// The only group size of the format.
pub(crate) const GROUP: u64 = 64;

/// The numbers of `text_config`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TextConfig {
    pub(crate) vocab: u64,
    pub(crate) hidden: u64,
    pub(crate) ffn: u64,
    pub(crate) moe_ffn: u64,
    pub(crate) experts: u64,
    pub(crate) top_k: u64,
    pub(crate) heads: u64,
    pub(crate) kv_heads: u64,
    pub(crate) full_kv_heads: u64,
    pub(crate) head_dim: u64,
    pub(crate) full_head_dim: u64,
    pub(crate) window: u64,
    pub(crate) soft_cap: f64,
    pub(crate) rope_theta: f64,
    pub(crate) full_rope_theta: f64,
    pub(crate) partial_rotary: f64,
    pub(crate) activation: String,
    /// True for each layer with full attention.
    pub(crate) full_layers: Vec<bool>,
}

/// The `quantization` block.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quantization {
    base: u64,
    overrides: Vec<(String, Option<u64>)>,
}

impl Quantization {
    /// Declared width of the tensor `module` (name without `.weight`); `None` if it is declared unquantised.
    pub(crate) fn bits(&self, module: &str) -> Option<u64> {
        self.overrides.iter().find(|(name, _)| name == module).map_or(Some(self.base), |(_, bits)| *bits)
    }

    /// Number of override objects.
    pub(crate) fn override_count(&self) -> usize {
        self.overrides.iter().filter(|(_, bits)| bits.is_some()).count()
    }
}

/// Parses and checks the bytes of `config.json`.
///
/// # Errors
/// [`Error::Damaged`] for what is malformed or missing, [`Error::Unsupported`] for what this program does not do; both
/// name the key.
pub(crate) fn parse(bytes: &[u8]) -> Result<(TextConfig, Quantization)> {
    let value = json::parse("config.json", bytes, CONFIG_CAP)?;
    let root = Keys::new("config.json", &value)?;
    if let Some(kind) = root.text("model_type")?
        && kind != "gemma4"
    {
        return Err(unsupported("config.json: model_type", &kind, "gemma4"));
    }
    let text = root.object("text_config")?.ok_or_else(|| root.missing("text_config"))?;
    let config = text_config(&root, &text)?;
    let quant = match root.object("quantization")? {
        Some(block) => block,
        None => root.object("quantization_config")?.ok_or_else(|| {
            Error::Unsupported(
                "an unquantised checkpoint (config.json has no quantization): use an MLX affine 4-bit conversion".into(),
            )
        })?,
    };
    let quant = quantization(&quant)?;
    Ok((config, quant))
}

fn text_config(root: &Keys<'_>, text: &Keys<'_>) -> Result<TextConfig> {
    let kind = text.text("model_type")?.ok_or_else(|| text.missing("model_type"))?;
    if kind != "gemma4_text" {
        return Err(unsupported(&text.at("model_type"), &kind, "gemma4_text"));
    }
    refuse_features(root, text)?;
    let layers = text.need("num_hidden_layers")?;
    let full_layers = layer_types(text, layers)?;
    let (head_dim, kv_heads) = (text.need("head_dim")?, text.need("num_key_value_heads")?);
    let (full_head_dim, full_kv_heads) = full_heads(text, &full_layers, head_dim, kv_heads)?;
    let rope = text.object("rope_parameters")?.ok_or_else(|| text.missing("rope_parameters"))?;
    let (rope_theta, _) = rope_of(&rope, "sliding_attention", "default", 10_000.0)?;
    let (full_rope_theta, partial) = rope_of(&rope, "full_attention", "proportional", 1_000_000.0)?;
    let activation = text.text("hidden_activation")?.unwrap_or_else(|| "gelu_pytorch_tanh".into());
    if activation != "gelu_pytorch_tanh" {
        return Err(unsupported(&text.at("hidden_activation"), &activation, "gelu_pytorch_tanh"));
    }
    let eps = text.number("rms_norm_eps")?.ok_or_else(|| text.missing("rms_norm_eps"))?;
    if eps <= 0.0 {
        return Err(Error::damaged(text.at("rms_norm_eps"), format!("{eps} is not positive")));
    }
    let config = TextConfig {
        vocab: text.need("vocab_size")?,
        hidden: text.need("hidden_size")?,
        ffn: text.need("intermediate_size")?,
        moe_ffn: text.need("moe_intermediate_size")?,
        experts: text.need("num_experts")?,
        top_k: text.need("top_k_experts")?,
        heads: text.need("num_attention_heads")?,
        kv_heads,
        full_kv_heads,
        head_dim,
        full_head_dim,
        window: text.need("sliding_window")?,
        soft_cap: text
            .number("final_logit_softcapping")?
            .ok_or_else(|| text.missing("final_logit_softcapping"))?,
        rope_theta,
        full_rope_theta,
        partial_rotary: partial.unwrap_or(0.25),
        activation,
        full_layers,
    };
    shapes_work(text, &config)?;
    Ok(config)
}

/// Features of the family that the forward pass does not have.
fn refuse_features(root: &Keys<'_>, text: &Keys<'_>) -> Result<()> {
    for key in ["hidden_size_per_layer_input", "num_kv_shared_layers"] {
        let value = text.count(key)?.ok_or_else(|| text.missing(key))?;
        if value != 0 {
            return Err(unsupported(&text.at(key), &value.to_string(), "0"));
        }
    }
    for (key, wanted, absent) in [
        ("attention_bias", false, false),
        ("use_double_wide_mlp", false, false),
        ("enable_moe_block", true, false),
        ("attention_k_eq_v", true, false),
    ] {
        let value = text.flag(key)?.unwrap_or(absent);
        if value != wanted {
            return Err(unsupported(&text.at(key), &value.to_string(), &wanted.to_string()));
        }
    }
    let tied = match text.flag("tie_word_embeddings")? {
        Some(tied) => tied,
        None => root.flag("tie_word_embeddings")?.unwrap_or(false),
    };
    if !tied {
        return Err(unsupported(&text.at("tie_word_embeddings"), "false", "true"));
    }
    match text.get("use_bidirectional_attention") {
        None | Some(Value::Bool(false)) => Ok(()),
        Some(Value::String(s)) if s == "vision" => Ok(()),
        Some(other) => Err(unsupported(
            &text.at("use_bidirectional_attention"),
            &other.describe(),
            "\"vision\" or absent",
        )),
    }
}

fn layer_types(text: &Keys<'_>, layers: u64) -> Result<Vec<bool>> {
    let at = text.at("layer_types");
    if layers > MAX_LAYERS {
        return Err(unsupported(
            &text.at("num_hidden_layers"),
            &layers.to_string(),
            &format!("up to {MAX_LAYERS}"),
        ));
    }
    let list = match text.get("layer_types") {
        Some(Value::Array(list)) => list,
        Some(_) => return Err(Error::damaged(at, "not an array")),
        None => return Err(text.missing("layer_types")),
    };
    if list.len() as u64 != layers {
        return Err(Error::damaged(at, format!("{} entries for {layers} layers", list.len())));
    }
    let full = list
        .iter()
        .enumerate()
        .map(|(i, kind)| match kind.as_str() {
            Some("full_attention") => Ok(true),
            Some("sliding_attention") => Ok(false),
            _ => Err(unsupported(
                &format!("{at}[{i}]"),
                &kind.describe(),
                "sliding_attention or full_attention",
            )),
        })
        .collect::<Result<Vec<_>>>()?;
    // Other programs force the last layer to full attention or do not: nobody means a sliding one.
    if full.last() != Some(&true) {
        return Err(unsupported(&at, "a sliding last layer", "full_attention at the end"));
    }
    Ok(full)
}

/// Head width and KV heads of the full layers: from `global_head_dim` and `num_global_key_value_heads`, or from
/// `per_layer_config`, the form in which newer tools save the same facts.
fn full_heads(text: &Keys<'_>, full: &[bool], head_dim: u64, kv_heads: u64) -> Result<(u64, u64)> {
    let (dim, kv) = (text.count("global_head_dim")?, text.count("num_global_key_value_heads")?);
    let Some(layers) = text.object("per_layer_config")? else {
        let dim = dim.ok_or_else(|| text.missing("global_head_dim"))?;
        let kv = kv.ok_or_else(|| text.missing("num_global_key_value_heads"))?;
        return Ok((dim, kv));
    };
    let mut seen: Vec<Option<(u64, u64)>> = vec![None; full.len()];
    // By the members themselves: looking each one up would take time with the square of their number.
    for (key, value) in layers.members {
        let at = layers.at(key);
        let entry = Keys::new(at.clone(), value)?;
        let index =
            key.parse::<usize>().ok().filter(|i| *i < full.len() && key.bytes().all(|b| b.is_ascii_digit()));
        let index = index.ok_or_else(|| Error::damaged(&at, format!("not one of {} layers", full.len())))?;
        let known = ["head_dim", "num_key_value_heads"];
        if let Some((other, _)) = entry.members.iter().find(|(k, _)| !known.contains(&k.as_str())) {
            return Err(Error::Unsupported(format!(
                "{} (only head_dim and num_key_value_heads vary)",
                entry.at(other)
            )));
        }
        let pair = (
            entry.count("head_dim")?.unwrap_or(head_dim),
            entry.count("num_key_value_heads")?.unwrap_or(kv_heads),
        );
        if seen[index].replace(pair).is_some() {
            return Err(Error::damaged(at, "layer named twice"));
        }
    }
    let mut all: Option<(u64, u64)> = dim.zip(kv);
    for (i, full) in full.iter().enumerate() {
        let here = seen[i].unwrap_or((head_dim, kv_heads));
        let want = if *full { *all.get_or_insert(here) } else { (head_dim, kv_heads) };
        if here != want {
            let what = format!(
                "{}: layer {i} with {here:?} (head_dim, num_key_value_heads)",
                text.at("per_layer_config")
            );
            return Err(Error::Unsupported(format!("{what}, where its kind has {want:?}")));
        }
    }
    all.ok_or_else(|| text.missing("global_head_dim"))
}

/// Theta and rotated share of one layer kind.
fn rope_of(rope: &Keys<'_>, kind: &str, want: &str, theta: f64) -> Result<(f64, Option<f64>)> {
    let Some(keys) = rope.object(kind)? else { return Ok((theta, None)) };
    if let Some(got) = keys.text("rope_type")?
        && got != want
    {
        return Err(unsupported(&keys.at("rope_type"), &got, want));
    }
    let theta = keys.number("rope_theta")?.unwrap_or(theta);
    if theta <= 0.0 {
        return Err(Error::damaged(keys.at("rope_theta"), format!("{theta} is not positive")));
    }
    if let Some(factor) = keys.number("factor")?
        && factor != 1.0
    {
        return Err(unsupported(&keys.at("factor"), &factor.to_string(), "1"));
    }
    let partial = keys.number("partial_rotary_factor")?;
    if let Some(p) = partial
        && !(0.0..=1.0).contains(&p)
    {
        return Err(Error::damaged(keys.at("partial_rotary_factor"), format!("{p} is outside 0..1")));
    }
    Ok((theta, partial))
}

/// Sizes that the format can hold and that fit each other.
fn shapes_work(text: &Keys<'_>, c: &TextConfig) -> Result<()> {
    for (key, width) in [
        ("hidden_size", c.hidden),
        ("intermediate_size", c.ffn),
        ("moe_intermediate_size", c.moe_ffn),
        ("head_dim x num_attention_heads", c.heads.saturating_mul(c.head_dim)),
        ("global_head_dim x num_attention_heads", c.heads.saturating_mul(c.full_head_dim)),
    ] {
        if !width.is_multiple_of(GROUP) {
            return Err(unsupported(&text.at(key), &width.to_string(), "a multiple of 64 (the group size)"));
        }
    }
    for (key, kv) in [("num_key_value_heads", c.kv_heads), ("num_global_key_value_heads", c.full_kv_heads)] {
        if kv == 0 || !c.heads.is_multiple_of(kv) {
            return Err(unsupported(
                &text.at(key),
                &kv.to_string(),
                &format!("a divisor of {} heads", c.heads),
            ));
        }
    }
    for (key, dim) in [("head_dim", c.head_dim), ("global_head_dim", c.full_head_dim)] {
        if dim == 0 || !dim.is_multiple_of(2) {
            return Err(unsupported(&text.at(key), &dim.to_string(), "an even width"));
        }
    }
    if c.top_k > c.experts {
        return Err(Error::damaged(
            text.at("top_k_experts"),
            format!("{} of {} experts", c.top_k, c.experts),
        ));
    }
    Ok(())
}

fn quantization(block: &Keys<'_>) -> Result<Quantization> {
    let mode = block.text("mode")?.unwrap_or_else(|| "affine".into());
    let group = block.count("group_size")?.unwrap_or(GROUP);
    let base = block.count("bits")?.unwrap_or(4);
    check_form(block, &mode, group)?;
    let mut overrides = Vec::new();
    for (name, value) in block.members {
        match value {
            Value::Object(_) => {
                let entry = Keys::new(block.at(name), value)?;
                let mode = entry.text("mode")?.unwrap_or_else(|| "affine".into());
                check_form(&entry, &mode, entry.count("group_size")?.unwrap_or(group))?;
                overrides.push((name.clone(), Some(entry.count("bits")?.unwrap_or(base))));
            }
            Value::Bool(false) if name.contains('.') => overrides.push((name.clone(), None)),
            _ => {}
        }
    }
    Ok(Quantization { base, overrides })
}

fn check_form(at: &Keys<'_>, mode: &str, group: u64) -> Result<()> {
    if mode != "affine" {
        return Err(unsupported(&at.at("mode"), mode, "affine"));
    }
    if group != GROUP {
        return Err(unsupported(&at.at("group_size"), &group.to_string(), "64"));
    }
    Ok(())
}

fn unsupported(at: &str, got: &str, only: &str) -> Error {
    Error::Unsupported(format!("{at} is {got}, only {only}"))
}

/// A JSON object with its place in the document, so that every complaint names its key. `null` counts as absent.
struct Keys<'a> {
    path: String,
    value: &'a Value,
    members: &'a [(String, Value)],
}

impl<'a> Keys<'a> {
    fn new(path: impl Into<String>, value: &'a Value) -> Result<Self> {
        let path = path.into();
        match value.as_object() {
            Some(members) => Ok(Self { path, value, members }),
            None => Err(Error::damaged(path, "not a JSON object")),
        }
    }

    fn at(&self, key: &str) -> String {
        let mark = if self.path.ends_with(".json") { ": " } else { "." };
        format!("{}{mark}{key}", self.path)
    }

    fn missing(&self, key: &str) -> Error {
        Error::damaged(self.at(key), "missing")
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.value.get(key)
    }

    fn typed<T>(&self, key: &str, what: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value)
            .map(Some)
            .ok_or_else(|| Error::damaged(self.at(key), format!("{} is not {what}", value.describe())))
    }

    fn object(&self, key: &str) -> Result<Option<Self>> {
        self.get(key).map(|v| Self::new(self.at(key), v)).transpose()
    }

    fn text(&self, key: &str) -> Result<Option<String>> {
        self.typed(key, "a string", |v| v.as_str().map(str::to_owned))
    }

    fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    fn number(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a finite number", |v| v.as_f64().filter(|n| n.is_finite()))
    }

    /// A whole number below 2^31: sizes beyond that are nonsense, and products of two fit 64 bits.
    fn count(&self, key: &str) -> Result<Option<u64>> {
        self.typed(key, "a whole number below 2^31", |v| v.as_u64().filter(|n| *n < 1 << 31))
    }

    /// A [`count`](Self::count) that must be there and not be 0.
    fn need(&self, key: &str) -> Result<u64> {
        match self.count(key)? {
            Some(0) => Err(Error::damaged(self.at(key), "0")),
            Some(n) => Ok(n),
            None => Err(self.missing(key)),
        }
    }
}

#[cfg(test)]
mod tests;
