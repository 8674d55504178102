//! The bytes that a token needs of a model, and the multiplications: taken from a model directory's own layout, or from
//! the shape of Gemma 4 26B-A4B before there is a directory.

use crate::format::{Arch, DType, IndexEntry, ModelDir};
use crate::model::{Config, LayerKind};
use crate::{Error, Result};

/// One layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerTraffic {
    /// Bytes of everything the attention half reads of the resident weights.
    pub attention: u64,
    /// Bytes of the shared expert, the router and the norms.
    pub dense: u64,
    /// Bytes of keys and values of one position.
    pub kv_row: u64,
    /// Positions that are looked back at; `None`: all.
    pub window: Option<usize>,
    /// Multiplications of one token with the resident matrices.
    pub macs: u64,
    /// Multiplications of one token with one position of the cache.
    pub score_macs: u64,
}

/// A model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    /// Its layers.
    pub layers: Vec<LayerTraffic>,
    /// Bytes of the table that logits are computed with.
    pub head: u64,
    /// Multiplications for one row of logits.
    pub head_macs: u64,
    /// Bytes of an expert that its products read.
    pub expert: u64,
    /// Bytes that are read from the disk for it.
    pub stride: u64,
    /// Multiplications of one token with one expert.
    pub expert_macs: u64,
    /// Experts of a layer.
    pub experts: usize,
    /// Experts that a token uses.
    pub top_k: usize,
}

/// Bytes of a cached element in half precision.
const HALF: u64 = 2;

impl LayerTraffic {
    /// A layer with nothing but its cache.
    fn new(arch: &Arch, layer: usize, kv_element: u64) -> Self {
        let (heads, kv_heads, width) = arch.heads(layer);
        let full = arch.full_attention.get(layer).copied().unwrap_or(false);
        let product = |a: usize, b: usize| (a as u64).saturating_mul(b as u64);
        Self {
            attention: 0,
            dense: 0,
            kv_row: product(kv_heads, width).saturating_mul(2 * kv_element),
            window: (!full).then_some(arch.sliding_window),
            macs: 0,
            score_macs: product(heads, width).saturating_mul(2),
        }
    }

    /// Positions that a token at `position` (counted from 1) sees.
    fn visible(&self, position: usize) -> u64 {
        self.window.map_or(position, |window| position.min(window)) as u64
    }

    /// Bytes of the cache that a token with `context` positions reads.
    pub fn kv(&self, context: usize) -> u64 {
        self.kv_row.saturating_mul(self.visible(context))
    }

    /// Positions seen by `tokens` tokens, counted for each.
    fn visible_sum(&self, tokens: usize) -> u64 {
        let growing = self.window.map_or(tokens, |window| tokens.min(window)) as u64;
        let full = tokens as u64 - growing;
        (growing * (growing + 1) / 2).saturating_add(full.saturating_mul(growing))
    }
}

impl Traffic {
    /// What tokens need of the model in this directory, with a KV cache of `kv_element` bytes an element.
    ///
    /// # Errors
    /// A layout that names no experts.
    pub fn of(dir: &ModelDir, kv_element: u64) -> Result<Self> {
        let arch = &dir.manifest().arch;
        let mut layers: Vec<_> =
            (0..arch.num_hidden_layers).map(|layer| LayerTraffic::new(arch, layer, kv_element)).collect();
        let (mut head, mut head_macs) = (0, 0);
        for entry in &dir.index().entries {
            let (bytes, macs) = (bytes(entry), macs(entry));
            match place(&entry.name) {
                Some((layer, is_attention)) => {
                    let Some(layer) = layers.get_mut(layer) else { continue };
                    let half = if is_attention { &mut layer.attention } else { &mut layer.dense };
                    *half += bytes;
                    layer.macs += macs;
                }
                None if entry.name.ends_with("embed_tokens.weight") => (head, head_macs) = (bytes, macs),
                None => {}
            }
        }
        let parts = dir.expert_parts(0)?;
        let matrix = |part: &crate::format::Part| (part.rows as u64).saturating_mul(part.cols as u64);
        let model = Self {
            layers,
            head,
            head_macs,
            expert: parts.used() as u64,
            stride: dir.manifest().expert_stride,
            expert_macs: [&parts.gate, &parts.up, &parts.down].into_iter().map(matrix).sum(),
            experts: arch.num_experts,
            top_k: arch.top_k_experts,
        };
        if model.head == 0 || model.layers.iter().any(|layer| layer.attention == 0 || layer.dense == 0) {
            return Err(Error::damaged("model_weights.bin", "lacks the weights of a layer or of the head"));
        }
        Ok(model)
    }

    /// Gemma 4 26B-A4B in 4 bits, router in 8, in our tiled layout, KV cache in half precision.
    pub fn full_size() -> Self {
        // A matrix of 4 bits has 2 bytes of scale and of bias for each 64 weights, one of 8 bits likewise.
        let four = |rows: u64, cols: u64| rows * cols * 9 / 16;
        let eight = |rows: u64, cols: u64| rows * cols * 17 / 16;
        let config = Config::full_size();
        let [hidden, shared, inner, experts, vocab, heads] = [
            config.hidden_size,
            config.intermediate_size,
            config.moe_intermediate_size,
            config.num_experts,
            config.vocab_size,
            config.num_attention_heads,
        ]
        .map(|size| size as u64);
        let layer = |&kind: &LayerKind| {
            let (kv_heads, width) = (config.kv_heads(kind) as u64, config.head_width(kind) as u64);
            let (q, kv) = (heads * width, kv_heads * width);
            // Full layers take their keys for values.
            let values = if kind == LayerKind::Full { 0 } else { kv };
            let weights = 2 * q + kv + values;
            LayerTraffic {
                attention: four(weights, hidden),
                dense: 3 * four(shared, hidden) + eight(experts, hidden),
                kv_row: kv * 2 * HALF,
                window: config.window(kind),
                macs: (weights + 3 * shared + experts) * hidden,
                score_macs: 2 * q,
            }
        };
        Self {
            layers: config.layers.iter().map(layer).collect(),
            head: four(vocab, hidden),
            head_macs: vocab * hidden,
            expert: 3 * four(inner, hidden),
            stride: FULL_SIZE_STRIDE,
            expert_macs: 3 * inner * hidden,
            experts: config.num_experts,
            top_k: config.top_k_experts,
        }
    }

    /// Bytes that a token with `context` positions reads when everything is in memory.
    pub fn touched(&self, context: usize) -> u64 {
        let experts = (self.top_k as u64).saturating_mul(self.layers.len() as u64);
        self.touched_together(&[context], experts)
    }

    /// Bytes that a step of several texts reads when everything is in memory: each text has so many positions, and all
    /// of them together want `experts` different experts, counted over all layers.
    pub fn touched_together(&self, contexts: &[usize], experts: u64) -> u64 {
        let layers = self.layers.iter().map(|layer| {
            let caches = contexts.iter().map(|&context| layer.kv(context));
            caches.fold(layer.attention.saturating_add(layer.dense), u64::saturating_add)
        });
        let resident = layers.fold(self.head, u64::saturating_add);
        resident.saturating_add(self.expert.saturating_mul(experts))
    }

    /// Multiplications of a prompt of so many tokens; logits are computed once.
    pub fn prompt_macs(&self, tokens: usize) -> u64 {
        let experts = self.expert_macs.saturating_mul(self.top_k as u64);
        let layers = self.layers.iter().map(|layer| {
            let products = layer.macs.saturating_add(experts).saturating_mul(tokens as u64);
            products.saturating_add(layer.score_macs.saturating_mul(layer.visible_sum(tokens)))
        });
        layers.fold(self.head_macs, u64::saturating_add)
    }
}

/// Bytes of an expert of 26B-A4B on disk, and of a slot.
pub const FULL_SIZE_STRIDE: u64 = 3_358_720;
/// Bytes of the resident weights of 26B-A4B with their index.
pub const FULL_SIZE_CORE: u64 = 1_353_771_068;
/// Bytes of 26B-A4B on disk.
pub const FULL_SIZE_DISK: u64 = 14_251_255_868;

fn bytes(entry: &IndexEntry) -> u64 {
    [&entry.data, &entry.scales, &entry.biases]
        .into_iter()
        .map(|range| range.end.saturating_sub(range.start))
        .fold(0, u64::saturating_add)
}

/// Elements of a matrix; vectors are not multiplied with.
fn macs(entry: &IndexEntry) -> u64 {
    let is_matrix = matches!(entry.dtype, DType::U32 | DType::Tile16x64) && entry.shape[1] > 0;
    if is_matrix { entry.elements().unwrap_or(u64::MAX) } else { 0 }
}

/// Layer of a tensor, and whether it belongs to the attention half.
fn place(name: &str) -> Option<(usize, bool)> {
    let (_, rest) = name.split_once(".layers.")?;
    let (number, rest) = rest.split_once('.')?;
    let is_attention = ["self_attn.", "input_layernorm", "post_attention_layernorm"]
        .into_iter()
        .any(|part| rest.starts_with(part));
    Some((number.parse().ok()?, is_attention))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_size_model_is_the_one_of_the_format_page() {
        let model = Traffic::full_size();
        assert_eq!(model.layers[0].attention, 2 * 6_488_064 + 2 * 3_244_032);
        assert_eq!(model.layers[5].attention, 2 * 12_976_128 + 1_622_016);
        assert_eq!(model.layers[0].dense, 3 * 3_345_408 + 382_976);
        assert_eq!((model.head, model.expert), (415_236_096, 3 * 1_115_136));
        assert_eq!(model.expert.next_multiple_of(16_384), FULL_SIZE_STRIDE);
        // All matrices are the resident file but for vectors, index and padding.
        let matrices: u64 = model.layers.iter().map(|layer| layer.attention + layer.dense).sum();
        let rest = FULL_SIZE_CORE - matrices - model.head;
        assert!(rest < 3_000_000, "{rest}");
        // 2.16 GB a token and 231 MB of cache at 1,024 positions, as computed by hand.
        assert!((2_150_000_000..2_170_000_000).contains(&model.touched(0)));
        assert_eq!((model.touched(1024) - model.touched(0)) / 1_000_000, 230);
        // Two texts share all but caches and experts.
        let two = model.touched_together(&[1024, 1024], 30 * 15);
        assert_eq!(two - model.touched(1024), model.touched(1024) - model.touched(0) + 30 * 7 * model.expert);
        // 3.08 billion a token, without attention.
        let macs: u64 = model.layers.iter().map(|layer| layer.macs + 8 * model.expert_macs).sum();
        assert_eq!(macs / 10_000_000, 308);
    }

    #[test]
    fn positions_seen_stop_growing_at_the_window() {
        let layer = LayerTraffic { window: Some(4), kv_row: 10, ..Traffic::full_size().layers[0].clone() };
        assert_eq!((layer.kv(3), layer.kv(4), layer.kv(9)), (30, 40, 40));
        let by_hand: u64 = (1..=9).map(|position| layer.visible(position)).sum();
        assert_eq!(layer.visible_sum(9), by_hand);
        let full = LayerTraffic { window: None, ..layer };
        assert_eq!((full.kv(9), full.visible_sum(9)), (90, 45));
    }

    #[test]
    fn names_have_their_place() {
        let at = |name: &str| place(&format!("language_model.model.{name}"));
        assert_eq!(at("layers.7.self_attn.q_proj.weight"), Some((7, true)));
        assert_eq!(at("layers.29.mlp.down_proj.weight"), Some((29, false)));
        assert_eq!(at("layers.0.router.scale"), Some((0, false)));
        assert_eq!(at("layers.0.pre_feedforward_layernorm_2.weight"), Some((0, false)));
        assert_eq!(at("embed_tokens.weight"), None);
        assert_eq!(at("layers.x.mlp"), None);
    }
}
