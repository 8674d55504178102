//! The shapes that can be made: the real one, and two small ones for tests.

use clap::ValueEnum;
use fieldfare::format::Arch;

/// A shape by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// Gemma 4 26B-A4B itself: 30 layers, 128 experts, 14.3 GB.
    #[value(name = "26b-a4b")]
    Full,
    /// Six layers of 64 small experts under the real vocabulary, about 0.35 GB.
    Small,
    /// Six layers of 16 tiny experts, 512 vocabulary entries, about 3 MB: for unit tests.
    Tiny,
}

/// Every size of a model. Names as in the manifest's `arch`.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the manifest's own names")]
pub(crate) struct Shape {
    pub(crate) hidden: usize,
    pub(crate) ffn: usize,
    pub(crate) moe: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) full_kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) full_head_dim: usize,
    pub(crate) vocab: usize,
    pub(crate) window: usize,
    pub(crate) layers: usize,
    pub(crate) experts: usize,
    pub(crate) top_k: usize,
}

impl Preset {
    /// The sizes.
    pub(crate) fn shape(self) -> Shape {
        match self {
            Self::Full => Shape {
                hidden: 2816,
                ffn: 2112,
                moe: 704,
                heads: 16,
                kv_heads: 8,
                full_kv_heads: 2,
                head_dim: 256,
                full_head_dim: 512,
                vocab: 262_144,
                window: 1024,
                layers: 30,
                experts: 128,
                top_k: 8,
            },
            Self::Small => Shape {
                hidden: 1024,
                ffn: 768,
                moe: 256,
                heads: 8,
                kv_heads: 4,
                full_kv_heads: 2,
                head_dim: 128,
                full_head_dim: 256,
                vocab: 262_144,
                window: 256,
                layers: 6,
                experts: 64,
                top_k: 8,
            },
            Self::Tiny => Shape {
                hidden: 256,
                ffn: 192,
                moe: 64,
                heads: 4,
                kv_heads: 2,
                full_kv_heads: 1,
                head_dim: 64,
                full_head_dim: 128,
                vocab: 512,
                window: 32,
                layers: 6,
                experts: 16,
                top_k: 4,
            },
        }
    }

    /// The name on the command line, also the end of the manifest's `modelID`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Full => "26b-a4b",
            Self::Small => "small",
            Self::Tiny => "tiny",
        }
    }
}

impl Shape {
    /// Every sixth layer sees the whole context.
    pub(crate) fn is_full(&self, layer: usize) -> bool {
        layer % 6 == 5
    }

    /// Width of a head in `layer`.
    pub(crate) fn dim(&self, layer: usize) -> usize {
        if self.is_full(layer) { self.full_head_dim } else { self.head_dim }
    }

    /// Key heads in `layer`.
    pub(crate) fn keys(&self, layer: usize) -> usize {
        if self.is_full(layer) { self.full_kv_heads } else { self.kv_heads }
    }
}

/// RoPE bases of sliding and full layers, and the turned share of the latter.
const ROPE: [f64; 3] = [10_000.0, 1_000_000.0, 0.25];
/// Bound of the logits.
const SOFT_CAP: f64 = 30.0;
/// What all norms add to the mean square.
const EPS: f64 = 1e-6;

impl Shape {
    /// As the manifest has it.
    pub(crate) fn arch(&self) -> Arch {
        Arch {
            hidden_size: self.hidden,
            intermediate_size: self.ffn,
            moe_intermediate_size: self.moe,
            num_attention_heads: self.heads,
            num_key_value_heads: self.kv_heads,
            num_global_key_value_heads: self.full_kv_heads,
            head_dim: self.head_dim,
            global_head_dim: self.full_head_dim,
            vocab_size: self.vocab,
            sliding_window: self.window,
            final_logit_softcapping: SOFT_CAP,
            rope_theta: ROPE[0],
            global_rope_theta: ROPE[1],
            partial_rotary_factor: ROPE[2],
            num_hidden_layers: self.layers,
            num_experts: self.experts,
            top_k_experts: self.top_k,
            tie_word_embeddings: true,
            attention_k_eq_v: true,
            hidden_activation: "gelu_pytorch_tanh".to_owned(),
            full_attention: (0..self.layers).map(|layer| self.is_full(layer)).collect(),
        }
    }

    /// As a checkpoint's `config.json` has it.
    pub(crate) fn config(&self) -> serde_json::Value {
        let kind = |layer| if self.is_full(layer) { "full_attention" } else { "sliding_attention" };
        let mut quantization = serde_json::json!({ "group_size": 64, "bits": 4, "mode": "affine" });
        for layer in 0..self.layers {
            quantization[format!("language_model.model.layers.{layer}.router.proj")] =
                serde_json::json!({ "group_size": 64, "bits": 8 });
        }
        serde_json::json!({
            "architectures": ["Gemma4ForConditionalGeneration"],
            "model_type": "gemma4",
            "quantization": quantization,
            "tie_word_embeddings": true,
            "text_config": {
                "attention_bias": false,
                "attention_k_eq_v": true,
                "bos_token_id": 2,
                "enable_moe_block": true,
                "eos_token_id": 1,
                "final_logit_softcapping": SOFT_CAP,
                "global_head_dim": self.full_head_dim,
                "head_dim": self.head_dim,
                "hidden_activation": "gelu_pytorch_tanh",
                "hidden_size": self.hidden,
                "hidden_size_per_layer_input": 0,
                "intermediate_size": self.ffn,
                "layer_types": (0..self.layers).map(kind).collect::<Vec<_>>(),
                "model_type": "gemma4_text",
                "moe_intermediate_size": self.moe,
                "num_attention_heads": self.heads,
                "num_experts": self.experts,
                "num_global_key_value_heads": self.full_kv_heads,
                "num_hidden_layers": self.layers,
                "num_key_value_heads": self.kv_heads,
                "num_kv_shared_layers": 0,
                "pad_token_id": 0,
                "rms_norm_eps": EPS,
                "rope_parameters": {
                    "full_attention": {
                        "partial_rotary_factor": ROPE[2], "rope_theta": ROPE[1], "rope_type": "proportional",
                    },
                    "sliding_attention": { "rope_theta": ROPE[0], "rope_type": "default" },
                },
                "sliding_window": self.window,
                "tie_word_embeddings": true,
                "top_k_experts": self.top_k,
                "use_double_wide_mlp": false,
                "vocab_size": self.vocab,
            },
        })
    }
}
