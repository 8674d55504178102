//! Sources that must be refused, each by name, and before anything is written.

use std::fs;
use std::path::Path;

use fieldfare::Error;
use fieldfare::format::Layout;
use serde_json::json;

use crate::support::{Checkpoint, INDEX, Tensor, contents, install, listing, to};

const EXPERT: &str = "language_model.model.layers.4.experts.switch_glu.up_proj";

/// Installs what is in `dir/source` and returns the error; nothing may be left behind.
fn refused(root: &Path) -> Error {
    let before = listing(root);
    let error = install(&root.join("source"), &root.join("out"), Layout::V1).expect_err("installed");
    assert_eq!(listing(root), before, "{error}");
    error
}

#[test]
fn tensors_are_checked_by_name_before_the_first_byte() {
    let zero = |dtype: &str, shape: &[u64], bytes: usize| Tensor {
        dtype: dtype.into(),
        shape: shape.to_vec(),
        bytes: vec![0; bytes],
    };
    let scale = "language_model.model.layers.2.router.scale";
    type Edit = Box<dyn Fn(&mut Checkpoint)>;
    let cases: Vec<(&str, Edit)> = vec![
        (scale, Box::new(move |c| drop(c.tensors.remove(scale)))),
        ("up_proj.biases", Box::new(|c| drop(c.tensors.remove(&format!("{EXPERT}.biases"))))),
        (
            "and 3 more",
            Box::new(|c| {
                c.tensors.retain(|n, _| !n.contains("layers.1.mlp.") || n.contains("up_proj.weight"));
            }),
        ),
        ("[128]", Box::new(move |c| drop(c.tensors.insert(scale.into(), zero("BF16", &[64], 128))))),
        ("F32", Box::new(move |c| drop(c.tensors.insert(scale.into(), zero("F32", &[128], 512))))),
        (
            "[15, 64, 16]",
            Box::new(move |c| {
                drop(c.tensors.insert(format!("{EXPERT}.weight"), zero("U32", &[15, 64, 16], 61440)));
            }),
        ),
        (
            "is 8 bit",
            Box::new(move |c| {
                drop(c.tensors.insert(format!("{EXPERT}.weight"), zero("U32", &[16, 64, 32], 131_072)));
            }),
        ),
        (
            "lm_head.weight",
            Box::new(move |c| {
                drop(c.tensors.insert("language_model.lm_head.weight".into(), zero("BF16", &[1], 2)));
            }),
        ),
        (
            "per_layer",
            Box::new(move |c| {
                drop(c.tensors.insert("language_model.model.per_layer".into(), zero("F16", &[1], 2)));
            }),
        ),
        (
            "model.norm.weight",
            Box::new(move |c| drop(c.tensors.insert("model.norm.weight".into(), zero("BF16", &[1], 2)))),
        ),
        (
            "layers.5.self_attn.v_proj",
            Box::new(move |c| {
                let name = "language_model.model.layers.5.self_attn.v_proj.weight";
                c.tensors.insert(name.into(), zero("U32", &[256, 16], 16384));
            }),
        ),
        (
            "layers.3.router.proj is 4 bit",
            Box::new(|c| {
                c.config(|v| {
                    v["quantization"]
                        .as_object_mut()
                        .expect("object")
                        .remove("language_model.model.layers.3.router.proj");
                });
            }),
        ),
        (
            "layers.6.mlp.up_proj is not quantised",
            Box::new(|c| {
                c.config(|v| {
                    v["quantization"]["language_model.model.layers.6.mlp.up_proj"] = json!(false);
                });
            }),
        ),
        ("embed_tokens of 6 bit", Box::new(|c| c.config(|v| v["quantization"]["bits"] = json!(6)))),
        (
            "num_kv_shared_layers",
            Box::new(|c| c.config(|v| v["text_config"]["num_kv_shared_layers"] = json!(2))),
        ),
        ("config.json", Box::new(|c| drop(c.files.remove("config.json")))),
        (
            "tokenizer.json: a Git LFS pointer",
            Box::new(|c| {
                drop(c.files.insert(
                    "tokenizer.json".into(),
                    b"version https://git-lfs.github.com/spec/v1\noid".to_vec(),
                ));
            }),
        ),
        (
            "tokenizer_config.json",
            Box::new(|c| drop(c.files.insert("tokenizer_config.json".into(), b"<html>".to_vec()))),
        ),
    ];
    for (want, edit) in cases {
        let root = tempfile::tempdir().expect("temporary directory");
        let mut source = Checkpoint::tiny();
        edit(&mut source);
        source.write_plain(&root.path().join("source"));
        let error = refused(root.path());
        assert!(matches!(error, Error::Damaged { .. } | Error::Unsupported(_)), "{want}: {error:?}");
        assert!(error.to_string().contains(want), "{want}: {error}");
    }
}

#[test]
fn files_are_checked_by_name_before_the_first_byte() {
    const SECOND: &str = "model-00002-of-00002.safetensors";
    type Edit = Box<dyn Fn(&Path)>;
    let change = |name: &'static str, edit: fn(&mut Vec<u8>)| -> Edit {
        Box::new(move |dir| {
            let mut bytes = fs::read(dir.join(name)).expect("read");
            edit(&mut bytes);
            fs::write(dir.join(name), bytes).expect("write");
        })
    };
    let index = |edit: fn(&mut serde_json::Value)| -> Edit {
        Box::new(move |dir| {
            let mut value = serde_json::from_slice(&fs::read(dir.join(INDEX)).expect("read")).expect("json");
            edit(&mut value);
            fs::write(dir.join(INDEX), value.to_string()).expect("write");
        })
    };
    let cases: Vec<(&str, Edit)> = vec![
        ("cut short", change(SECOND, |b| b.truncate(b.len() - 1))),
        ("no tensor owns", change(SECOND, |b| b.push(0))),
        ("not a safetensors file, or cut short", change(SECOND, |b| b.truncate(1000))),
        ("safetensors", change(SECOND, |b| b[7] ^= 1)),
        ("safetensors", change(SECOND, |b| b[8] ^= 1)),
        ("safetensors", change(SECOND, |b| b[20] = b'"')),
        ("LFS pointer", change(SECOND, |b| *b = b"version https://git-lfs.github.com/spec/v1".to_vec())),
        ("missing; weight_map", Box::new(|dir| fs::remove_file(dir.join(SECOND)).expect("remove"))),
        (
            "plain name",
            index(|v| v["weight_map"]["language_model.model.norm.weight"] = json!("../x.safetensors")),
        ),
        ("plain name", index(|v| v["weight_map"]["language_model.model.norm.weight"] = json!(3))),
        (
            "language_model.model.norm.weight",
            index(|v| {
                v["weight_map"]["language_model.model.norm.weight"] =
                    json!("model-00001-of-00002.safetensors");
            }),
        ),
        (
            "does not list it",
            index(|v| {
                v["weight_map"].as_object_mut().expect("object").remove("language_model.model.norm.weight");
            }),
        ),
        ("weight_map.extra", index(|v| v["weight_map"]["extra"] = json!("model-00001-of-00002.safetensors"))),
        ("weight_map", index(|v| *v = json!({}))),
        (
            INDEX,
            Box::new(|dir| {
                fs::write(dir.join(INDEX), "{\"weight_map\":{\"a\":\"x\",\"a\":\"x\"}}").expect("write");
            }),
        ),
        (
            "neither model.safetensors.index.json nor",
            Box::new(|dir| fs::remove_file(dir.join(INDEX)).expect("remove")),
        ),
    ];
    let source = Checkpoint::tiny();
    let names = source.names();
    for (want, edit) in cases {
        let root = tempfile::tempdir().expect("temporary directory");
        let dir = root.path().join("source");
        source.write(&dir, &[names[..200].to_vec(), names[200..].to_vec()]);
        edit(&dir);
        let error = refused(root.path()).to_string();
        assert!(error.contains(want), "{want}: {error}");
    }
}

#[test]
fn wrong_places_are_told_apart() {
    let root = tempfile::tempdir().expect("temporary directory");
    let message =
        |from: &Path| install(from, &root.path().join("out"), Layout::V1).expect_err("installed").to_string();
    assert!(message(&root.path().join("nowhere")).contains("cannot open"));
    fs::write(root.path().join("file"), "").expect("write");
    assert!(message(&root.path().join("file")).contains("not a directory"));
    install(&fieldfare_testing::tiny_checkpoint(), &root.path().join("model"), Layout::V1).expect("install");
    assert!(message(&root.path().join("model")).contains("fieldfare convert"));
}

#[test]
fn a_damaged_model_is_not_laundered_by_conversion() {
    let root = tempfile::tempdir().expect("temporary directory");
    let path = |name: &str| root.path().join(name);
    install(&fieldfare_testing::tiny_checkpoint(), &path("model"), Layout::V1).expect("install");
    for (file, at) in [
        ("model_weights.bin", 500_000),
        ("packed_experts/layer_07.bin", 100_000),
        ("packed_experts/layer_11.bin", 262_143),
        ("packed_experts/layout.json", 20),
        ("tokenizer/tokenizer.json", 900),
    ] {
        let good = fs::read(path("model").join(file)).expect("read");
        let before = listing(root.path());
        for layout in [Layout::Tiled, Layout::V1] {
            for cut in [false, true] {
                let mut bad = good.clone();
                if cut {
                    bad.truncate(bad.len() - 1);
                } else {
                    bad[at] ^= 1;
                }
                fs::write(path("model").join(file), bad).expect("write");
                let error = to(&path("model"), &path("out"), layout).expect_err("converted");
                assert!(
                    matches!(&error, Error::Damaged { file: f, .. } if f.starts_with(file)),
                    "{file} {layout}: {error:?}"
                );
                assert_eq!(listing(root.path()), before, "{file}");
            }
        }
        fs::write(path("model").join(file), good).expect("write");
    }
    fs::remove_file(path("model").join("manifest.json")).expect("remove");
    assert!(matches!(to(&path("model"), &path("out"), Layout::Tiled), Err(Error::NotInstalled { .. })));
}

#[test]
fn sight_and_hearing_are_left_out() {
    let root = tempfile::tempdir().expect("temporary directory");
    let mut source = Checkpoint::tiny();
    for name in [
        "vision_tower.encoder.layers.0.mlp.gate_proj.linear.weight",
        "embed_vision.x.weight",
        "audio_tower.y",
    ] {
        let tensor = Tensor { dtype: "BF16".into(), shape: vec![3, 5], bytes: vec![7; 30] };
        source.tensors.insert(name.into(), tensor);
    }
    source.write_plain(&root.path().join("source"));
    let done = install(&root.path().join("source"), &root.path().join("out"), Layout::V1).expect("install");
    assert_eq!(done.dropped_tensors, 3);
    install(&fieldfare_testing::tiny_checkpoint(), &root.path().join("plain"), Layout::V1).expect("install");
    let (mut with, mut without) = (contents(&root.path().join("out")), contents(&root.path().join("plain")));
    assert_ne!(with.remove("manifest.json"), without.remove("manifest.json"));
    assert!(with == without);
}

#[test]
fn a_single_file_without_an_index_and_without_a_tokenizer() {
    let root = tempfile::tempdir().expect("temporary directory");
    let dir = root.path().join("source");
    let mut source = Checkpoint::tiny();
    source.files.remove("tokenizer.json");
    source.files.remove("tokenizer_config.json");
    source.write_files(&dir);
    let shard = source.shard(&source.names());
    fs::write(dir.join("model.safetensors"), &shard).expect("write");
    let done = install(&dir, &root.path().join("out"), Layout::Tiled).expect("install");
    assert_eq!(done.warnings.len(), 2);
    assert!(done.warnings[0].contains("tokenizer.json"));
    let header = usize::try_from(u64::from_le_bytes(shard[..8].try_into().expect("8 bytes"))).expect("small");
    let hash = fieldfare::format::hash::hex(&fieldfare::format::hash::sha256(&shard[8..8 + header]));
    assert_eq!(done.source_snapshot_hash, Some(format!("sha256:{hash}")));
    assert!(!contents(&root.path().join("out")).contains_key("tokenizer/tokenizer.json"));
}
