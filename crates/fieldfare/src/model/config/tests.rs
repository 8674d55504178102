//! The configuration of the fixture, and each way in which another one is refused.

use super::*;
use crate::format::{Arch, Layout};
use std::collections::BTreeMap;

fn document() -> Value {
    let bytes = std::fs::read(fieldfare_testing::tiny_checkpoint().join("config.json")).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

fn manifest() -> Manifest {
    Manifest {
        layout: Layout::V1,
        version_minor: 0,
        flags: BTreeMap::new(),
        model_id: "unknown/snapshot".into(),
        source_snapshot_hash: None,
        arch: Arch {
            hidden_size: 128,
            intermediate_size: 192,
            moe_intermediate_size: 64,
            num_attention_heads: 8,
            num_key_value_heads: 4,
            num_global_key_value_heads: 2,
            head_dim: 64,
            global_head_dim: 128,
            vocab_size: 512,
            sliding_window: 32,
            final_logit_softcapping: 30.0,
            rope_theta: 10_000.0,
            global_rope_theta: 1_000_000.0,
            partial_rotary_factor: 0.25,
            num_hidden_layers: 12,
            num_experts: 16,
            top_k_experts: 4,
            tie_word_embeddings: true,
            attention_k_eq_v: true,
            hidden_activation: "gelu_pytorch_tanh".into(),
            full_attention: (0..12).map(|layer| layer % 6 == 5).collect(),
        },
        quant: None,
        files: BTreeMap::new(),
        expert_stride: 16_384,
        bit_width_overrides_honored: None,
    }
}

#[test]
fn the_fixture() {
    let config = Config::new(&manifest(), &document()).unwrap();
    assert_eq!((config.head_width(LayerKind::Sliding), config.head_width(LayerKind::Full)), (64, 128));
    assert_eq!((config.kv_heads(LayerKind::Sliding), config.kv_heads(LayerKind::Full)), (4, 2));
    assert_eq!((config.window(LayerKind::Sliding), config.window(LayerKind::Full)), (Some(32), None));
    assert_eq!(config.layers.iter().filter(|&&kind| kind == LayerKind::Full).count(), 2);
    assert_eq!(config.rms_norm_eps, 1e-6);
    assert_eq!(config.embed_scale, 128f32.sqrt());
}

#[test]
fn only_the_pinned_source_has_the_rounded_scale() {
    let mut manifest = manifest();
    for (hash, scale) in
        [(None, 128f32.sqrt()), (Some("sha256:00"), 128f32.sqrt()), (Some(PINNED_SNAPSHOT), 53.0)]
    {
        manifest.source_snapshot_hash = hash.map(str::to_owned);
        assert_eq!(Config::new(&manifest, &document()).unwrap().embed_scale, scale);
    }
    assert!((embed_scale(2816, None) - 53.066).abs() < 1e-3);
}

#[test]
fn rope_turns_a_share_of_the_pairs() {
    let full = rope_frequencies(512, 1e6, 0.25);
    assert_eq!(full.len(), 256);
    assert!(full[..64].iter().all(|&f| f > 0.0) && full[64..].iter().all(|&f| f == 0.0));
    assert_eq!(full[0], 1.0);
    // The exponent's denominator is the head width.
    assert!((f64::from(full[63]) - 1e6f64.powf(-126.0 / 512.0)).abs() < 1e-9);
    let sliding = rope_frequencies(256, 1e4, 1.0);
    assert_eq!((sliding.len(), sliding.iter().filter(|&&f| f > 0.0).count()), (128, 128));
}

/// `config.json` with one key of `text_config` set (or removed by null).
fn with(key: &str, value: Value) -> Value {
    let mut document = document();
    document["text_config"][key] = value;
    document
}

#[test]
fn other_models_are_refused_by_name() {
    for (key, value) in [
        ("hidden_size_per_layer_input", Value::from(256)),
        ("num_kv_shared_layers", Value::from(20)),
        ("attention_bias", Value::Bool(true)),
        ("enable_moe_block", Value::Bool(false)),
        ("use_bidirectional_attention", Value::from("all")),
        ("model_type", Value::from("gemma3_text")),
        ("layer_types", Value::from(vec!["linear_attention"; 12])),
        ("rope_parameters", serde_json::json!({"full_attention": {"rope_type": "yarn"}})),
    ] {
        let error = Config::new(&manifest(), &with(key, value)).unwrap_err();
        assert!(matches!(&error, Error::Unsupported(what) if what.contains(key)), "{key}: {error}");
    }
    type Change = (&'static str, fn(&mut Arch));
    let changes: [Change; 9] = [
        ("attention_k_eq_v", |arch| arch.attention_k_eq_v = false),
        ("tie_word_embeddings", |arch| arch.tie_word_embeddings = false),
        ("hidden_activation", |arch| arch.hidden_activation = "silu".into()),
        ("final_logit_softcapping", |arch| arch.final_logit_softcapping = 0.0),
        ("head_dim", |arch| arch.head_dim = 63),
        ("num_key_value_heads", |arch| arch.num_key_value_heads = 3),
        ("vocab_size", |arch| arch.vocab_size = usize::MAX),
        ("global_head_dim", |arch| arch.global_head_dim = 1 << 20),
        ("rope_theta", |arch| arch.rope_theta = 1e-300),
    ];
    for (key, change) in changes {
        let mut manifest = manifest();
        change(&mut manifest.arch);
        // Without the sidecar's value, so that not the comparison is what fails.
        let sidecar = if key == "rope_theta" { "rope_parameters" } else { key };
        let error = Config::new(&manifest, &with(sidecar, Value::Null)).unwrap_err();
        assert!(matches!(&error, Error::Unsupported(what) if what.contains(key)), "{key}: {error}");
    }
}

#[test]
fn contradictions_and_gaps_are_damage() {
    for (key, value) in [
        ("hidden_size", Value::from(129)),
        ("top_k_experts", Value::from("four")),
        ("num_hidden_layers", Value::from(13)),
        ("final_logit_softcapping", Value::from(50.0)),
        ("hidden_activation", Value::from("silu")),
        ("attention_k_eq_v", Value::Bool(false)),
        ("tie_word_embeddings", Value::from("yes")),
        ("rope_parameters", serde_json::json!({"full_attention": {"rope_theta": 5e5}})),
        ("rope_parameters", serde_json::json!({"full_attention": {"partial_rotary_factor": "x"}})),
        ("rope_parameters", serde_json::json!({"sliding_attention": {"rope_theta": 1e6}})),
        ("layer_types", Value::from(vec!["sliding_attention"; 12])),
        ("layer_types", Value::from(vec!["full_attention"; 11])),
        ("layer_types", Value::from(5)),
        ("rms_norm_eps", Value::Null),
        ("rms_norm_eps", Value::from(-1.0)),
        ("rms_norm_eps", Value::from(1e-300)),
    ] {
        let error = Config::new(&manifest(), &with(key, value)).unwrap_err();
        assert!(matches!(&error, Error::Damaged { file, .. } if file.contains(key)), "{key}: {error}");
    }
    let error = Config::new(&manifest(), &Value::Null).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }));
    // Keys that are absent leave the manifest's value.
    Config::new(&manifest(), &with("hidden_size", Value::Null)).unwrap();
    // So do parts that are absent, and a number is one however it is written.
    Config::new(&manifest(), &with("rope_parameters", serde_json::json!({"full_attention": 1}))).unwrap();
    Config::new(&manifest(), &with("final_logit_softcapping", Value::from(30))).unwrap();
}
