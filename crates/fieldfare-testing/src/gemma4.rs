//! The real Gemma 4 26B-A4B checkpoint without its weights: headers of its three shards, made from
//! `fixtures/gemma4-26b-a4b/offsets.txt`, to the byte what is published; and a `config.json` that says the same of the shape.

use std::collections::BTreeMap;

/// Layers of the language model and of the vision tower.
const LAYERS: usize = 30;

/// Type, shape and bytes before the first one in its shard.
struct Tensor {
    dtype: &'static str,
    shape: Vec<u64>,
}

impl Tensor {
    fn bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * if self.dtype == "U32" { 4 } else { 2 }
    }
}

type Group = BTreeMap<String, Tensor>;

/// Name and header text of each shard, and the bytes of payload behind it.
///
/// # Panics
/// If the fixture is not there or not what it should be.
pub fn headers() -> Vec<(String, String, u64)> {
    let path = crate::fixtures().join("gemma4-26b-a4b/offsets.txt");
    let text = std::fs::read_to_string(path).expect("the fixture");
    let mut shards: Vec<BTreeMap<String, (Tensor, u64)>> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((label, offsets)) = line.split_once(": ") else {
            shards.push(BTreeMap::new());
            continue;
        };
        let shard = shards.len();
        let tensors = shards.last_mut().expect("a shard before its groups");
        let offsets: Vec<u64> = offsets.split(' ').map(|n| n.parse().expect("a number")).collect();
        let group: Vec<_> = group(label).into_iter().filter(|(name, _)| is_in(label, name, shard)).collect();
        assert_eq!(group.len(), offsets.len(), "{label} of shard {shard}");
        tensors.extend(group.into_iter().zip(offsets).map(|((name, tensor), at)| (name, (tensor, at))));
    }
    let count = shards.len();
    let shards = shards.into_iter().enumerate().map(|(i, tensors)| {
        let payload = tensors.values().map(|(tensor, at)| at + tensor.bytes()).max().unwrap_or(0);
        let mut json = r#"{"__metadata__":{"format":"mlx"}"#.to_owned();
        for (name, (tensor, at)) in &tensors {
            let shape: Vec<String> = tensor.shape.iter().map(u64::to_string).collect();
            let (end, dtype, shape) = (at + tensor.bytes(), tensor.dtype, shape.join(","));
            json +=
                &format!(r#","{name}":{{"data_offsets":[{at},{end}],"dtype":"{dtype}","shape":[{shape}]}}"#);
        }
        json.push('}');
        (format!("model-{:05}-of-{count:05}.safetensors", i + 1), json, payload)
    });
    shards.collect()
}

/// The index of those shards. (Not the published file: that one lists the same in another order.)
pub fn index() -> String {
    let mut entries = Vec::new();
    for (shard, json, _) in headers() {
        // Names are the keys before `:{"data_offsets"`.
        for part in json.split(r#"":{"data_offsets""#) {
            let name = part.rsplit('"').next().unwrap_or_default();
            if name.contains('.') && !part.ends_with('}') {
                entries.push(format!(r#""{name}":"{shard}""#));
            }
        }
    }
    format!(r#"{{"metadata":{{"total_size":15340981404}},"weight_map":{{{}}}}}"#, entries.join(","))
}

/// Two layers lie in two shards each.
fn is_in(label: &str, name: &str, shard: usize) -> bool {
    let first = match label {
        "L10" => 1,
        "L22" => 2,
        _ => return true,
    };
    let late = [
        "layer_scalar",
        "post_feedforward_layernorm_1.weight",
        "post_feedforward_layernorm_2.weight",
        "pre_feedforward_layernorm_2.weight",
    ];
    let late = late.iter().any(|end| name.ends_with(&format!(".{end}")))
        || name.contains("switch_glu.down_proj")
        || (label == "L22"
            && (name.contains("switch_glu.up_proj") || name.ends_with("switch_glu.gate_proj.biases")));
    late == (shard != first)
}

fn group(label: &str) -> Group {
    let mut group = Group::new();
    let number = |prefix: &str| label.strip_prefix(prefix).and_then(|n| n.parse::<usize>().ok());
    match label {
        "E" => matrix(&mut group, "language_model.model.embed_tokens", &[], 262_144, 2816, 4),
        "N" => plain(&mut group, "language_model.model.norm.weight", &[2816]),
        "EV" => matrix(&mut group, "embed_vision.embedding_projection", &[], 2816, 1152, 4),
        "VT" => {
            plain(&mut group, "vision_tower.patch_embedder.input_proj.weight", &[1152, 768]);
            plain(&mut group, "vision_tower.patch_embedder.position_embedding_table", &[2, 10240, 1152]);
            plain(&mut group, "vision_tower.std_bias", &[1152]);
            plain(&mut group, "vision_tower.std_scale", &[1152]);
        }
        _ => match (number("L"), number("V")) {
            (Some(layer), _) => text_layer(&mut group, layer),
            (_, Some(layer)) => vision_layer(&mut group, layer),
            _ => panic!("an unknown group: {label}"),
        },
    }
    group
}

fn plain(group: &mut Group, name: &str, shape: &[u64]) {
    group.insert(name.to_owned(), Tensor { dtype: "BF16", shape: shape.to_vec() });
}

fn matrix(group: &mut Group, module: &str, outer: &[u64], rows: u64, cols: u64, bits: u64) {
    let shape = |last: u64| [outer, &[rows, last]].concat();
    let words = Tensor { dtype: "U32", shape: shape(cols * bits / 32) };
    group.insert(format!("{module}.weight"), words);
    for part in ["scales", "biases"] {
        plain(group, &format!("{module}.{part}"), &shape(cols / 64));
    }
}

fn text_layer(group: &mut Group, layer: usize) {
    let full = layer % 6 == 5;
    let (q, kv, head) = if full { (8192, 1024, 512) } else { (4096, 2048, 256) };
    let at = |name: &str| format!("language_model.model.layers.{layer}.{name}");
    for (role, rows, cols) in [("gate", 704, 2816), ("up", 704, 2816), ("down", 2816, 704)] {
        matrix(group, &at(&format!("experts.switch_glu.{role}_proj")), &[128], rows, cols, 4);
    }
    for (role, rows, cols) in [("gate", 2112, 2816), ("up", 2112, 2816), ("down", 2816, 2112)] {
        matrix(group, &at(&format!("mlp.{role}_proj")), &[], rows, cols, 4);
    }
    for norm in [
        "input_layernorm",
        "post_attention_layernorm",
        "post_feedforward_layernorm",
        "post_feedforward_layernorm_1",
        "post_feedforward_layernorm_2",
        "pre_feedforward_layernorm",
        "pre_feedforward_layernorm_2",
    ] {
        plain(group, &at(&format!("{norm}.weight")), &[2816]);
    }
    plain(group, &at("layer_scalar"), &[1]);
    plain(group, &at("router.per_expert_scale"), &[128]);
    plain(group, &at("router.scale"), &[2816]);
    matrix(group, &at("router.proj"), &[], 128, 2816, 8);
    plain(group, &at("self_attn.k_norm.weight"), &[head]);
    plain(group, &at("self_attn.q_norm.weight"), &[head]);
    matrix(group, &at("self_attn.q_proj"), &[], q, 2816, 4);
    matrix(group, &at("self_attn.k_proj"), &[], kv, 2816, 4);
    if !full {
        matrix(group, &at("self_attn.v_proj"), &[], kv, 2816, 4);
    }
    matrix(group, &at("self_attn.o_proj"), &[], 2816, q, 4);
}

fn vision_layer(group: &mut Group, layer: usize) {
    let at = |name: &str| format!("vision_tower.encoder.layers.{layer}.{name}.weight");
    for norm in [
        "input_layernorm",
        "post_attention_layernorm",
        "post_feedforward_layernorm",
        "pre_feedforward_layernorm",
    ] {
        plain(group, &at(norm), &[1152]);
    }
    for (name, rows, cols) in [("gate", 4304, 1152), ("up", 4304, 1152), ("down", 1152, 4304)] {
        plain(group, &at(&format!("mlp.{name}_proj.linear")), &[rows, cols]);
    }
    for name in ["q", "k", "v", "o"] {
        plain(group, &at(&format!("self_attn.{name}_proj.linear")), &[1152, 1152]);
    }
    plain(group, &at("self_attn.q_norm"), &[72]);
    plain(group, &at("self_attn.k_norm"), &[72]);
}

/// A `config.json` of that shape.
pub fn config() -> String {
    let kinds: Vec<&str> = (0..LAYERS)
        .map(|l| if l % 6 == 5 { r#""full_attention""# } else { r#""sliding_attention""# })
        .collect();
    let routers: Vec<String> = (0..LAYERS)
        .map(|l| format!(r#""language_model.model.layers.{l}.router.proj":{{"group_size":64,"bits":8}}"#))
        .collect();
    format!(
        r#"{{"model_type":"gemma4","tie_word_embeddings":true,
"quantization":{{"group_size":64,"bits":4,"mode":"affine",{}}},
"text_config":{{"attention_bias":false,"attention_k_eq_v":true,"enable_moe_block":true,
"final_logit_softcapping":30.0,"global_head_dim":512,"head_dim":256,"hidden_activation":"gelu_pytorch_tanh",
"hidden_size":2816,"hidden_size_per_layer_input":0,"intermediate_size":2112,"layer_types":[{}],
"model_type":"gemma4_text","moe_intermediate_size":704,"num_attention_heads":16,"num_experts":128,
"num_global_key_value_heads":2,"num_hidden_layers":30,"num_key_value_heads":8,"num_kv_shared_layers":0,
"rms_norm_eps":1e-06,"rope_parameters":{{"full_attention":{{"partial_rotary_factor":0.25,"rope_theta":1000000.0,
"rope_type":"proportional"}},"sliding_attention":{{"rope_theta":10000.0,"rope_type":"default"}}}},
"sliding_window":1024,"tie_word_embeddings":true,"top_k_experts":8,"use_double_wide_mlp":false,
"vocab_size":262144}}}}"#,
        routers.join(","),
        kinds.join(",")
    )
}
