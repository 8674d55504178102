use super::*;
use crate::format::hash;

/// The manifest of 1.11 of the specification, built from its description, and its bytes.
pub(in crate::format) fn reference() -> (Manifest, Vec<u8>) {
    let file = |size| FileEntry { size, sha256: [0; 32] };
    let manifest = Manifest {
        layout: Layout::V1,
        version_minor: 0,
        flags: Manifest::default_flags(),
        model_id: "fixture/model".into(),
        source_snapshot_hash: Some("fixture-snapshot".into()),
        arch: Arch {
            hidden_size: 64,
            intermediate_size: 128,
            moe_intermediate_size: 32,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            num_global_key_value_heads: 1,
            head_dim: 16,
            global_head_dim: 32,
            vocab_size: 1024,
            sliding_window: 128,
            final_logit_softcapping: 30.0,
            rope_theta: 10_000.0,
            global_rope_theta: 1_000_000.0,
            partial_rotary_factor: 0.25,
            num_hidden_layers: 1,
            num_experts: 2,
            top_k_experts: 1,
            tie_word_embeddings: true,
            attention_k_eq_v: true,
            hidden_activation: "gelu_pytorch_tanh".into(),
            full_attention: vec![false],
        },
        quant: Some(Quant {
            embedding: QuantSlot::affine(4),
            attention: QuantSlot::affine(4),
            router: QuantSlot::affine(8),
            shared_expert: QuantSlot::affine(4),
            routed_expert: QuantSlot::affine(4),
        }),
        files: [(WEIGHTS, 16416), ("packed_experts/layer_00.bin", 32768), (LAYOUT, 1)]
            .map(|(path, size)| (path.to_owned(), file(size)))
            .into(),
        expert_stride: 16384,
        bit_width_overrides_honored: Some(120),
    };
    let bytes = manifest.encode();
    (manifest, bytes)
}

#[test]
fn reference_bytes() {
    let (manifest, bytes) = reference();
    assert_eq!(bytes.len(), 2219);
    assert_eq!(
        hash::hex(&hash::sha256(&bytes)),
        "f0c4d01ac7f1747416a0274dd26bb585e2e43ae294b02a8daf272e7129d46dce"
    );
    assert_eq!(Manifest::parse(&bytes).unwrap(), manifest);
}

fn with(path: &str, new: Option<Value>) -> Result<Manifest> {
    let mut value = reference().0.to_value();
    json::tests::edit(&mut value, path, new);
    Manifest::parse(json::canonical(&value).as_bytes())
}

fn entry() -> Value {
    json::object([("size", 1u8.into()), ("sha256", "0".repeat(64).as_str().into())])
}

#[test]
fn each_rule_is_applied_and_named() {
    let none = || None::<Value>;
    let float = |n: f64| Some(Value::Float(n));
    let int = |n: i64| Some(Value::from(n));
    let text = |s: &str| Some(Value::from(s));
    let faults: Vec<(&str, Option<Value>, &str)> = vec![
        ("magic", none(), "magic: expected"),
        ("magic", text("GTURBO2"), "magic: expected \"GTURBO\" or \"FIELDFARE\", found \"GTURBO2\""),
        ("magic", text("FIELDFARE"), "tensorOrder: expected \"tile16x64\""),
        ("versionMajor", int(2), "versionMajor 2"),
        ("versionMajor", text("1"), "versionMajor"),
        ("versionMinor", int(-1), "versionMinor"),
        ("flags", int(1), "flags: expected an object"),
        ("flags|newFlag", Some(true.into()), "flags.newFlag: unknown flag"),
        ("flags|turboQuantKV", int(1), "flags.turboQuantKV"),
        ("modelID", text(""), "modelID"),
        ("sourceSnapshotHash", int(1), "sourceSnapshotHash"),
        ("bitWidthOverridesHonored", float(0.5), "bitWidthOverridesHonored"),
        ("expertsPerLayer", int(0), "expertsPerLayer"),
        ("expertsPerLayer", int(3), "arch.numExperts: expected 3"),
        ("numLayers", none(), "numLayers: expected an integer > 0, it is missing"),
        ("numLayers", int(2), "arch.numLayers: expected 2"),
        ("expertStride", int(16_000), "expertStride"),
        ("expertStride", int(0), "expertStride"),
        ("arch", none(), "arch"),
        ("arch|hiddenSize", int(0), "arch.hiddenSize"),
        ("arch|hiddenSize", float(64.5), "arch.hiddenSize"),
        ("arch|hiddenSize", Some(u64::MAX.into()), "arch.hiddenSize"),
        ("arch|ffnIntermediate", none(), "arch.ffnIntermediate"),
        ("arch|ropeTheta", int(0), "arch.ropeTheta"),
        ("arch|fullRopeTheta", int(-1), "arch.fullRopeTheta"),
        ("arch|finalLogitSoftcap", text("30"), "arch.finalLogitSoftcap"),
        ("arch|partialRotaryFactor", float(1.5), "arch.partialRotaryFactor"),
        ("arch|topKExperts", int(3), "arch.topKExperts"),
        ("arch|tieWordEmbeddings", int(1), "arch.tieWordEmbeddings"),
        ("arch|hiddenActivation", text(""), "arch.hiddenActivation"),
        (
            "arch|fullAttentionLayerMask",
            Some(vec![].into()),
            "arch.fullAttentionLayerMask: 0 entries for 1 layers",
        ),
        ("arch|fullAttentionLayerMask|0", int(2), "arch.fullAttentionLayerMask"),
        ("quant|router", none(), "quant.router"),
        ("quant|router|weightBits", int(33), "quant.router.weightBits"),
        ("quant|router|groupSize", int(0), "quant.router.groupSize"),
        ("quant|router|scheme", text(""), "quant.router.scheme"),
        ("files", none(), "files"),
        ("files|../x", Some(entry()), "files.../x: the path has an empty"),
        ("files|/x", Some(entry()), "is not relative"),
        ("files|a//b", Some(entry()), "the path has an empty"),
        ("files|Tokenizer", Some(entry()), "files.Tokenizer: a reserved name"),
        ("files|Manifest.JSON", Some(entry()), "a reserved name"),
        ("files|verified-install.json/x", Some(entry()), "a reserved name"),
        ("files|MODEL_weights.bin", Some(entry()), "names the same file as"),
        ("files|model_weights.bin/x", Some(entry()), "lies below the listed file"),
        ("files|model_weights.bin|size", int(-1), "files.model_weights.bin.size"),
        ("files|model_weights.bin|sha256", text("00"), "files.model_weights.bin.sha256"),
    ];
    for (path, new, wanted) in faults {
        let message = with(path, new.clone()).expect_err(path).to_string();
        assert!(
            message.contains("manifest.json: ") && message.contains(wanted),
            "{path} = {new:?}: {message}"
        );
    }
}

#[test]
fn what_v1_leaves_open_is_accepted() {
    for (path, new) in [
        ("versionMinor", Some(7u8.into())),
        ("unknown", Some(vec![Value::Null].into())),
        ("arch|unknown", Some(1u8.into())),
        ("flags|aneSharedExpert", None),
        ("sourceSnapshotHash", Some(Value::Null)),
        ("quant", None),
        ("bitWidthOverridesHonored", None),
        ("tensorOrder", Some("tile16x64".into())),
        ("files|extra/file", Some(entry())),
        ("files|model_weights.bin|sha256", Some("AB".repeat(32).as_str().into())),
    ] {
        with(path, new).expect(path);
    }
    let mut text = String::from_utf8(reference().1).unwrap();
    text = text.replace("\"expertStride\" : 16384", "\"expertStride\" : 16384.0") + " \n\t";
    assert_eq!(Manifest::parse(text.as_bytes()).unwrap(), reference().0);
}

/// As many files as the cap lets through.
#[test]
fn many_files_take_no_quadratic_time() {
    let mut manifest = reference().0;
    let entry = manifest.files.values().next().unwrap().clone();
    manifest.files = (0..30_000).map(|i| (format!("f{i}"), entry.clone())).collect();
    assert_eq!(Manifest::parse(&manifest.encode()).unwrap().files, manifest.files);
}

#[test]
fn tiled_manifests_round_trip() {
    let tiled = Manifest { layout: Layout::Tiled, ..reference().0 };
    let bytes = tiled.encode();
    assert_eq!(Manifest::parse(&bytes).unwrap(), tiled);
    let text = String::from_utf8(bytes).unwrap();
    assert!(
        text.contains("\"magic\" : \"FIELDFARE\"") && text.contains("\"tensorOrder\" : \"tile16x64\""),
        "{text}"
    );
    let other = text.replace("tile16x64", "tile8x32");
    let message = Manifest::parse(other.as_bytes()).unwrap_err().to_string();
    assert!(message.contains("tensorOrder \"tile8x32\""), "{message}");
}

#[test]
fn what_cannot_run_is_refused_by_name() {
    let check = |change: &dyn Fn(&mut Manifest)| {
        let mut manifest = reference().0;
        change(&mut manifest);
        manifest.check_runnable().map(drop)
    };
    check(&|_| ()).unwrap();
    type Change = fn(&mut Manifest);
    let cases: [(&str, Change); 9] = [
        ("turboQuantKV", |m| m.flags.extend([("turboQuantKV".into(), true)])),
        ("quant: missing", |m| m.quant = None),
        ("quant.router", |m| m.quant.as_mut().unwrap().router.weight_bits = 4),
        ("quant.embedding", |m| m.quant.as_mut().unwrap().embedding.group_size = 32),
        ("quant.attention", |m| m.quant.as_mut().unwrap().attention.scheme = "mxfp4".into()),
        ("hiddenActivation \"silu\"", |m| m.arch.hidden_activation = "silu".into()),
        ("tieWordEmbeddings", |m| m.arch.tie_word_embeddings = false),
        ("model_weights.bin is not listed", |m| m.files.retain(|path, _| path != WEIGHTS)),
        ("layout.json is not listed", |m| m.files.retain(|path, _| path != LAYOUT)),
    ];
    for (wanted, change) in cases {
        let message = check(&change).expect_err(wanted).to_string();
        assert!(message.contains(wanted), "{wanted}: {message}");
    }
    check(&|m| m.quant.as_mut().unwrap().shared_expert.weight_bits = 8).unwrap();
    check(&|m| m.quant.as_mut().unwrap().shared_expert.scale_type = "bf16".into()).unwrap();
}

proptest::proptest! {
    #[test]
    fn no_damage_panics(at in 0usize..2219, byte in proptest::prelude::any::<u8>(), cut in 0usize..2219) {
        let mut bytes = reference().1;
        bytes[at] = byte;
        let _ = Manifest::parse(&bytes);
        let _ = Manifest::parse(&bytes[..cut]);
    }
}
