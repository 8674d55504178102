use serde_json::{Value, json};

use super::{Quantization, TextConfig, parse};
use crate::{Error, Result};

fn fixture() -> Value {
    let bytes = std::fs::read(fieldfare_testing::tiny_checkpoint().join("config.json")).expect("fixture");
    serde_json::from_slice(&bytes).expect("fixture")
}

fn read(value: &Value) -> Result<(TextConfig, Quantization)> {
    parse(value.to_string().as_bytes())
}

fn change(edit: impl Fn(&mut Value)) -> Result<(TextConfig, Quantization)> {
    let mut value = fixture();
    edit(&mut value);
    read(&value)
}

#[test]
fn reads_the_fixture() {
    let (c, q) = read(&fixture()).expect("valid");
    assert_eq!((c.hidden, c.ffn, c.moe_ffn, c.vocab, c.experts, c.top_k), (128, 192, 64, 512, 16, 4));
    assert_eq!((c.heads, c.kv_heads, c.full_kv_heads, c.head_dim, c.full_head_dim), (8, 4, 2, 64, 128));
    assert_eq!((c.rope_theta, c.full_rope_theta, c.partial_rotary, c.soft_cap), (1e4, 1e6, 0.25, 30.0));
    let full: Vec<usize> = (0..c.full_layers.len()).filter(|i| c.full_layers[*i]).collect();
    assert_eq!((c.full_layers.len(), full, c.window), (12, vec![5, 11], 32));
    assert_eq!(q.override_count(), 12);
    assert_eq!(q.bits("language_model.model.layers.3.router.proj"), Some(8));
    assert_eq!(q.bits("language_model.model.embed_tokens"), Some(4));
}

#[test]
fn accepts_the_form_with_per_layer_config() {
    let per_layer = |dim: u64, kv: u64| {
        change(move |v| {
            let text = v["text_config"].as_object_mut().expect("object");
            text.remove("global_head_dim");
            text.remove("num_global_key_value_heads");
            text.insert(
                "per_layer_config".into(),
                json!({"05": {"head_dim": 128, "num_key_value_heads": 2},
                       "11": {"head_dim": dim, "num_key_value_heads": kv}}),
            );
        })
    };
    assert_eq!(per_layer(128, 2).expect("valid"), read(&fixture()).expect("valid"));
    assert!(per_layer(64, 2).expect_err("differs").to_string().contains("layer 11"));
    for (extra, want) in [
        (json!({"03": {"head_dim": 128}}), "layer 3"),
        (json!({"05": {"intermediate_size": 3}}), "05.intermediate_size"),
        (json!({"12": {"head_dim": 128}}), "12"),
        (json!({"+5": {"head_dim": 128}}), "+5"),
        (json!({"05": 1}), "05"),
    ] {
        let got = change(|v| v["text_config"]["per_layer_config"] = extra.clone())
            .expect_err("accepted")
            .to_string();
        assert!(got.contains("per_layer_config") && got.contains(want), "{extra}: {got}");
    }
}

#[test]
fn a_small_file_cannot_ask_for_many_layers() {
    let layers = |count: usize| {
        change(|v| {
            let text = v["text_config"].as_object_mut().expect("object");
            text.insert("num_hidden_layers".into(), count.into());
            text.insert("layer_types".into(), vec!["full_attention"; count].into());
        })
    };
    assert_eq!(layers(1_024).expect("the most").0.full_layers.len(), 1_024);
    assert!(layers(1_025).expect_err("more").to_string().contains("num_hidden_layers is 1025"));
}

#[test]
fn names_what_is_not_supported() {
    for (key, value) in [
        ("hidden_size_per_layer_input", json!(256)),
        ("num_kv_shared_layers", json!(20)),
        ("attention_bias", json!(true)),
        ("use_double_wide_mlp", json!(true)),
        ("enable_moe_block", json!(false)),
        ("attention_k_eq_v", json!(false)),
        ("tie_word_embeddings", json!(false)),
        ("hidden_activation", json!("silu")),
        ("model_type", json!("gemma3_text")),
        ("use_bidirectional_attention", json!("all")),
        ("hidden_size", json!(130)),
        ("num_key_value_heads", json!(3)),
        ("layer_types", json!(vec!["sliding_attention"; 12])),
        ("layer_types", json!(vec!["linear_attention"; 12])),
    ] {
        let got = change(|v| v["text_config"][key] = value.clone()).expect_err("accepted");
        assert!(matches!(got, Error::Unsupported(_)) && got.to_string().contains(key), "{key}: {got}");
    }
    let rope = change(|v| v["text_config"]["rope_parameters"]["full_attention"]["rope_type"] = json!("yarn"));
    assert!(rope.expect_err("accepted").to_string().contains("full_attention.rope_type is yarn"));
    let kind = change(|v| v["model_type"] = json!("llama"));
    assert!(kind.expect_err("accepted").to_string().contains("model_type is llama"));
}

#[test]
fn names_what_is_missing_or_malformed() {
    for key in [
        "hidden_size",
        "num_hidden_layers",
        "layer_types",
        "head_dim",
        "global_head_dim",
        "num_key_value_heads",
        "num_global_key_value_heads",
        "num_attention_heads",
        "sliding_window",
        "intermediate_size",
        "num_experts",
        "top_k_experts",
        "moe_intermediate_size",
        "rms_norm_eps",
        "final_logit_softcapping",
        "vocab_size",
        "hidden_size_per_layer_input",
        "num_kv_shared_layers",
        "rope_parameters",
        "model_type",
    ] {
        for value in [Value::Null, json!([1.5])] {
            let got = change(|v| v["text_config"][key] = value.clone()).expect_err("accepted").to_string();
            assert!(got.contains(key), "{key}: {got}");
        }
    }
    let zero = change(|v| v["text_config"]["vocab_size"] = json!(0)).expect_err("accepted").to_string();
    assert!(zero.contains("vocab_size"), "{zero}");
}

#[test]
fn checks_the_quantization_block() {
    for (edit, want) in [
        (json!({"mode": "mxfp4"}), "quantization.mode is mxfp4"),
        (json!({"group_size": 32}), "quantization.group_size is 32"),
        (json!({"language_model.x": {"group_size": 128}}), "language_model.x.group_size is 128"),
        (json!({"bits": "4"}), "quantization.bits"),
    ] {
        let got = change(|v| v["quantization"] = edit.clone()).expect_err("accepted").to_string();
        assert!(got.contains(want), "{edit}: {got}");
    }
    let (_, q) = change(|v| v["quantization"] = json!({"a.b": false, "c.d": {"bits": 8}})).expect("valid");
    assert_eq!((q.bits("a.b"), q.bits("c.d"), q.bits("e"), q.override_count()), (None, Some(8), Some(4), 1));
    let none = change(|v| {
        for key in ["quantization", "quantization_config"] {
            v.as_object_mut().expect("object").remove(key);
        }
    });
    assert!(none.expect_err("accepted").to_string().contains("quantization"));
}
