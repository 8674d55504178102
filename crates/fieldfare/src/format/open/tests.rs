use super::*;
use crate::format::plan::{self, SourceTensor};
use crate::format::{Arch, FileEntry, TensorData};
use std::collections::BTreeMap;

/// Writes a small model of pseudo-random bytes in this layout and returns its manifest.
pub(in crate::format) fn build(root: &Path, layout: Layout) -> Manifest {
    let (mut arch, quant) = plan::tests::production();
    arch = Arch {
        hidden_size: 128,
        intermediate_size: 192,
        moe_intermediate_size: 64,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        num_global_key_value_heads: 1,
        head_dim: 32,
        global_head_dim: 64,
        vocab_size: 100, // 100 rows do not divide by 16: the embedding stays in source order
        sliding_window: 8,
        num_hidden_layers: 2,
        num_experts: 3,
        top_k_experts: 2,
        full_attention: vec![false, true],
        ..arch
    };
    let mut tensors = plan::inventory(&arch, &quant).unwrap();
    let extra = plan::SourceKind::Plain { dtype: crate::format::DType::F32, shape: [3, 2, 1, 0] };
    tensors.push(SourceTensor { name: "language_model.extra".into(), kind: extra });
    let index = plan::resident_index(&tensors, layout).unwrap();
    let mut weights = index.encode().unwrap();
    weights.extend((0..index.resident_size).map(|i| ((i * 2_654_435_761) >> 16) as u8));
    let experts = plan::expert_layout(&arch, 4, layout).unwrap();
    let used = experts.expert_parts(0, &arch, 4, layout).unwrap().used() as u64;
    let byte = |i: u64| if i % experts.expert_stride < used { ((i * 40_503) >> 8) as u8 } else { 0 };
    let blob: Vec<u8> = (0..experts.file_bytes().unwrap()).map(byte).collect();
    let mut files = BTreeMap::new();
    let mut write = |path: &str, bytes: &[u8]| {
        let target = root.join(path);
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::write(target, bytes).unwrap();
        files.insert(path.to_owned(), FileEntry { size: bytes.len() as u64, sha256: hash::sha256(bytes) });
    };
    write(WEIGHTS, &weights);
    write(LAYOUT, &experts.encode());
    write("packed_experts/layer_00.bin", &blob);
    write("packed_experts/layer_01.bin", &blob);
    write("tokenizer/config.json", b"{}");
    let manifest = Manifest {
        layout,
        version_minor: 0,
        flags: Manifest::default_flags(),
        model_id: "unknown/snapshot".into(),
        source_snapshot_hash: None,
        arch,
        quant: Some(quant),
        files,
        expert_stride: experts.expert_stride,
        bit_width_overrides_honored: Some(2),
    };
    std::fs::write(root.join(MANIFEST), manifest.encode()).unwrap();
    manifest
}

/// Replaces a file and its entry in the manifest.
fn replace(root: &Path, manifest: &Manifest, path: &str, bytes: &[u8]) {
    let mut manifest = manifest.clone();
    let entry = FileEntry { size: bytes.len() as u64, sha256: hash::sha256(bytes) };
    manifest.files.insert(path.to_owned(), entry);
    std::fs::write(root.join(path), bytes).unwrap();
    std::fs::write(root.join(MANIFEST), manifest.encode()).unwrap();
}

fn message(root: &Path) -> String {
    ModelDir::open(root, Integrity::Receipt).expect_err("must be refused").to_string()
}

#[test]
fn both_layouts_open() {
    for layout in [Layout::V1, Layout::Tiled] {
        let root = tempfile::tempdir().unwrap();
        let manifest = build(root.path(), layout);
        for integrity in [Integrity::Receipt, Integrity::Full, Integrity::Structure] {
            ModelDir::open(root.path(), integrity).unwrap();
        }
        let dir = ModelDir::open(root.path(), Integrity::default()).unwrap();
        assert_eq!((dir.layout(), dir.manifest()), (layout, &manifest));
        assert_eq!(*dir.receipt(), ReceiptState::Absent);
        assert_eq!(dir.open_layer(1).unwrap().metadata().unwrap().len(), 3 * dir.experts().expert_stride);
        assert!(dir.open_layer(2).is_err());
        let parts = dir.expert_parts(0).unwrap();
        assert_eq!((parts.gate.rows, parts.gate.cols, parts.down.rows), (64, 128, 128));
        assert_eq!(parts.slot_of, [0, 1, 2]);
        assert_eq!(dir.read_sidecar("config.json", 2).unwrap().as_deref(), Some(b"{}".as_slice()));
        assert!(dir.read_sidecar("config.json", 1).is_err());
        assert_eq!(dir.read_sidecar("tokenizer.json", 1 << 20).unwrap(), None);
        assert_eq!(dir.read_sidecar("../manifest.json", 1 << 20).unwrap(), None);
        assert!(dir.sidecar_path("config.json").unwrap().is_file());

        let tensor = |name: &str| dir.resident().tensor(name).unwrap();
        let TensorData::Affine { bits: 4, weights, scales, biases } =
            tensor("language_model.model.embed_tokens.weight").data
        else {
            panic!("the embedding is in source order")
        };
        assert_eq!((weights.len(), scales.len(), biases.len()), (100 * 64, 400, 400));
        let router = tensor("language_model.model.layers.1.router.proj.weight");
        assert!(matches!(router.data, TensorData::Affine { bits: 8, .. }), "{router:?}");
        let q = tensor("language_model.model.layers.0.self_attn.q_proj.weight");
        match (layout, q.data) {
            (Layout::V1, TensorData::Affine { bits: 4, .. }) => {}
            (Layout::Tiled, TensorData::Tiled { bits: 4, data }) => {
                assert_eq!(data.len(), 128 / 16 * 2 * 576);
            }
            _ => panic!("{q:?}"),
        }
        let TensorData::Plain(scalar) = tensor("language_model.model.layers.1.layer_scalar").data else {
            panic!()
        };
        assert_eq!(scalar.len(), 2);
        assert!(dir.resident().tensor("nothing").is_none());
    }
}

#[test]
fn a_layout_under_the_other_magic_is_refused() {
    for (layout, other) in [(Layout::V1, Layout::Tiled), (Layout::Tiled, Layout::V1)] {
        let root = tempfile::tempdir().unwrap();
        let manifest = build(root.path(), layout);
        let tampered = Manifest { layout: other, ..manifest.clone() };
        std::fs::write(root.path().join(MANIFEST), tampered.encode()).unwrap();
        let first = message(root.path());
        assert!(first.starts_with(if layout == Layout::V1 { WEIGHTS } else { LAYOUT }), "{first}");
        // Each of the two files gives it away alone.
        let experts = plan::expert_layout(&manifest.arch, 4, other).unwrap();
        replace(root.path(), &tampered, LAYOUT, &experts.encode());
        let second = message(root.path());
        assert!(second.starts_with(WEIGHTS), "{second}");
        let experts = plan::expert_layout(&manifest.arch, 4, layout).unwrap();
        let parsed = ExpertLayout::parse(&experts.encode(), other);
        assert!(parsed.and_then(|experts| experts.expert_parts(0, &manifest.arch, 4, other)).is_err());
    }
}

#[test]
fn damage_is_named() {
    let damage = |change: &dyn Fn(&Path, &Manifest)| {
        let root = tempfile::tempdir().unwrap();
        let manifest = build(root.path(), Layout::Tiled);
        change(root.path(), &manifest);
        message(root.path())
    };
    let says = |message: String, wanted: &str| assert!(message.contains(wanted), "{message}, not {wanted}");
    says(damage(&|root, _| std::fs::remove_file(root.join(MANIFEST)).unwrap()), "has no manifest.json");
    says(
        damage(&|root, _| std::fs::write(root.join(MANIFEST), "{").unwrap()),
        "manifest.json: not valid JSON",
    );
    let big = |root: &Path, path: &str, len: u64| {
        let file = std::fs::OpenOptions::new().write(true).open(root.join(path)).unwrap();
        file.set_len(len).unwrap();
    };
    says(
        damage(&|root, _| big(root, MANIFEST, CAP_MANIFEST + 1)),
        "manifest.json: 4194305 bytes exceed the limit",
    );
    says(damage(&|root, _| big(root, WEIGHTS, 100)), "model_weights.bin: expected");
    says(
        damage(&|root, _| big(root, "packed_experts/layer_01.bin", 5)),
        "packed_experts/layer_01.bin: expected",
    );
    says(damage(&|root, _| big(root, "tokenizer/config.json", 5)), "tokenizer/config.json: expected 2 bytes");
    says(
        damage(&|root, _| std::fs::remove_file(root.join("packed_experts/layer_00.bin")).unwrap()),
        "packed_experts/layer_00.bin: missing",
    );
    says(
        damage(&|root, _| {
            let mut bytes = std::fs::read(root.join(LAYOUT)).unwrap();
            *bytes.last_mut().unwrap() = b' ';
            std::fs::write(root.join(LAYOUT), bytes).unwrap();
        }),
        "packed_experts/layout.json: expected SHA-256",
    );
    says(damage(&|root, m| replace(root, m, WEIGHTS, b"short")), "model_weights.bin: header");
    says(
        damage(&|root, m| {
            let mut tensors = plan::inventory(&m.arch, m.quant.as_ref().unwrap()).unwrap();
            tensors.retain(|t| !t.name.ends_with("layers.1.router.scale"));
            let index = plan::resident_index(&tensors, Layout::Tiled).unwrap();
            let mut bytes = index.encode().unwrap();
            bytes.resize(bytes.len() + index.resident_size as usize, 0);
            replace(root, m, WEIGHTS, &bytes);
        }),
        "language_model.model.layers.1.router.scale: the tensor is missing",
    );
    says(
        damage(&|root, m| {
            let mut experts = plan::expert_layout(&m.arch, 4, Layout::Tiled).unwrap();
            experts.blobs[0].retain(|part| part.role != "up");
            replace(root, m, LAYOUT, &experts.encode());
        }),
        "layers[0].experts[0].tensors.up: missing; expected TILE16X64 64 x 128, 4 bit",
    );
    says(
        damage(&|root, m| {
            let mut experts = plan::expert_layout(&m.arch, 4, Layout::Tiled).unwrap();
            let mut other = experts.blobs[0].clone();
            other.iter_mut().filter(|part| part.role == "down").for_each(|part| part.offset += 64);
            experts.blobs.push(other);
            experts.layers[1].experts[2].blob = 1;
            replace(root, m, LAYOUT, &experts.encode());
        }),
        "layers[1].experts[2].tensors: differ from the layer's first expert",
    );
    says(
        damage(&|root, m| {
            let mut m = m.clone();
            m.files.get_mut("packed_experts/layer_01.bin").unwrap().size -= 1;
            std::fs::write(root.join(MANIFEST), m.encode()).unwrap();
        }),
        "manifest.json: files.packed_experts/layer_01.bin.size",
    );
    let missing = ModelDir::open("/no/such/model", Integrity::Receipt).unwrap_err();
    assert!(matches!(missing, Error::NotInstalled { .. }), "{missing}");
}

#[test]
fn a_flipped_bit_is_found_by_full_integrity_only() {
    let root = tempfile::tempdir().unwrap();
    build(root.path(), Layout::V1);
    let path = root.path().join("packed_experts/layer_01.bin");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[40_000] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    ModelDir::open(root.path(), Integrity::Receipt).unwrap();
    let message = ModelDir::open(root.path(), Integrity::Full).unwrap_err().to_string();
    assert!(message.contains("packed_experts/layer_01.bin: expected SHA-256"), "{message}");
}

#[test]
fn foreign_placement_is_honoured() {
    let root = tempfile::tempdir().unwrap();
    let manifest = build(root.path(), Layout::V1);
    let mut experts = plan::expert_layout(&manifest.arch, 4, Layout::V1).unwrap();
    for (expert, rank) in experts.layers[1].experts.iter_mut().zip([2, 0, 1]) {
        expert.physical_rank = rank;
    }
    replace(root.path(), &manifest, LAYOUT, &experts.encode());
    let dir = ModelDir::open(root.path(), Integrity::Receipt).unwrap();
    assert_eq!(dir.expert_parts(1).unwrap().slot_of, [2, 0, 1]);
    assert_eq!(dir.expert_parts(0).unwrap().slot_of, [0, 1, 2]);
}

#[cfg(unix)]
#[test]
fn nothing_below_the_root_may_be_a_link_or_a_special_file() {
    use std::os::unix::fs::symlink;
    for path in [
        MANIFEST,
        WEIGHTS,
        LAYOUT,
        "packed_experts/layer_01.bin",
        "tokenizer/config.json",
        "packed_experts",
        "tokenizer",
    ] {
        let root = tempfile::tempdir().unwrap();
        build(root.path(), Layout::V1);
        let (place, aside) = (root.path().join(path), root.path().join("aside"));
        std::fs::rename(&place, &aside).unwrap();
        symlink(&aside, &place).unwrap();
        let link = message(root.path());
        assert!(link.contains("link") || link.contains("not a directory"), "{path}: {link}");
        std::fs::remove_file(&place).unwrap();
        if aside.is_file() {
            std::fs::create_dir(&place).unwrap();
            let directory = message(root.path());
            assert!(directory.contains("not a regular file"), "{path}: {directory}");
            std::fs::remove_dir(&place).unwrap();
        }
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &place, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let fifo = message(root.path());
        assert!(fifo.contains("not a"), "{path}: {fifo}");
    }
}

#[cfg(unix)]
#[test]
fn the_root_may_be_a_link() {
    let parent = tempfile::tempdir().unwrap();
    let real = parent.path().join("real");
    std::fs::create_dir(&real).unwrap();
    build(&real, Layout::Tiled);
    let link = parent.path().join("link");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    ModelDir::open(&link, Integrity::Receipt).unwrap();
}
