//! Installing the fixture, converting it back and forth, and everything that must be refused.

mod faults;
#[cfg(feature = "install")]
mod hub;
mod places;
#[cfg(feature = "install")]
mod resume;
mod support;
#[cfg(feature = "install")]
mod versions;

use std::fs;
use std::path::Path;
use std::process::Command;

use fieldfare::format::{DType, ExpertLayout, Layout, Manifest, PartData, ResidentIndex};
use fieldfare_kernels::tile;
use fieldfare_testing::tiny_checkpoint;
use proptest::prelude::*;
use support::{Checkpoint, contents, install, to};

/// The independent checker of the format's specification, where there is a Python.
fn check_strictly(dir: &Path) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/gturbo_check.py");
    match Command::new("python3").arg(script).arg("--strict").arg(dir).output() {
        Ok(out) => {
            let text = String::from_utf8_lossy(&out.stdout);
            assert_eq!(text, "ok\n", "gturbo_check says this of {}", dir.display());
        }
        Err(e) => println!("skipped gturbo_check: no python3 ({e})"),
    }
}

#[test]
fn v1_holds_the_source_bytes_and_satisfies_the_checker() {
    let root = tempfile::tempdir().expect("temporary directory");
    let out = root.path().join("tiny.gturbo");
    let done = install(&tiny_checkpoint(), &out, Layout::V1).expect("install");
    assert_eq!((done.model_id.as_str(), done.layout, done.replaced), ("unknown/snapshot", Layout::V1, false));
    assert!(done.warnings.is_empty(), "{:?}", done.warnings);
    check_strictly(&out);
    let files = contents(&out);
    let manifest = Manifest::parse(&files["manifest.json"]).expect("manifest");
    assert_eq!(manifest.bit_width_overrides_honored, Some(12));
    assert_eq!((done.files, files.len()), (manifest.files.len(), manifest.files.len() + 1));
    assert!(!files.contains_key("tokenizer/generation_config.json"));
    assert_eq!(
        files["tokenizer/config.json"],
        fs::read(tiny_checkpoint().join("config.json")).expect("fixture")
    );

    let source = Checkpoint::tiny();
    let weights = &files["model_weights.bin"];
    let size = ResidentIndex::region_size(weights.first_chunk().expect("header"), weights.len() as u64)
        .expect("size");
    let index = ResidentIndex::parse(&weights[..size], weights.len() as u64, Layout::V1).expect("index");
    let cut = |r: &std::ops::Range<u64>| {
        &weights[usize::try_from(r.start).expect("small")..usize::try_from(r.end).expect("small")]
    };
    for entry in &index.entries {
        assert_eq!(cut(&entry.data), source.tensors[&entry.name].bytes, "{}", entry.name);
        if entry.dtype == DType::U32 {
            let module = entry.name.strip_suffix("weight").expect("a matrix");
            assert_eq!(
                cut(&entry.scales),
                source.tensors[&format!("{module}scales")].bytes,
                "{}",
                entry.name
            );
            assert_eq!(
                cut(&entry.biases),
                source.tensors[&format!("{module}biases")].bytes,
                "{}",
                entry.name
            );
        }
    }
    // 12 layers, 9 routed tensors each, are the only ones that are not resident.
    assert_eq!(
        index.entries.iter().map(|e| if e.dtype == DType::U32 { 3 } else { 1 }).sum::<usize>() + 108,
        source.tensors.len()
    );
    let stride = usize::try_from(manifest.expert_stride).expect("small");
    for (layer, expert) in [(0, 0), (7, 3), (11, 15)] {
        let blob =
            &files[&format!("packed_experts/layer_{layer:02}.bin")][expert * stride..(expert + 1) * stride];
        let mut expected = Vec::new();
        for role in ["gate", "up", "down"] {
            for part in ["weight", "scales", "biases"] {
                let name =
                    format!("language_model.model.layers.{layer}.experts.switch_glu.{role}_proj.{part}");
                let bytes = &source.tensors[&name].bytes;
                expected
                    .extend_from_slice(&bytes[bytes.len() / 16 * expert..bytes.len() / 16 * (expert + 1)]);
            }
        }
        assert_eq!(blob[..expected.len()], expected, "layer {layer} expert {expert}");
        assert!(blob[expected.len()..].iter().all(|b| *b == 0), "padding");
    }
}

/// One matrix of the source as panels.
fn panels(source: &Checkpoint, module: &str, expert: Option<usize>) -> Vec<Vec<u8>> {
    let part = |suffix: &str| {
        let t = &source.tensors[&format!("{module}.{suffix}")];
        match expert {
            Some(e) => t.bytes[t.bytes.len() / 16 * e..t.bytes.len() / 16 * (e + 1)].to_vec(),
            None => t.bytes.clone(),
        }
    };
    let (w, s, b) = (part("weight"), part("scales"), part("biases"));
    let groups = usize::try_from(*source.tensors[&format!("{module}.scales")].shape.last().expect("shape"))
        .expect("small");
    let rows = s.len() / 2 / groups;
    let chunk = |bytes: &[u8], i: usize| {
        bytes[bytes.len() / rows * 16 * i..bytes.len() / rows * 16 * (i + 1)].to_vec()
    };
    (0..rows / 16)
        .map(|i| {
            let mut panel = vec![0; tile::panel_bytes(groups * 64)];
            tile::pack_panel(groups * 64, &chunk(&w, i), &chunk(&s, i), &chunk(&b, i), &mut panel);
            panel
        })
        .collect()
}

#[test]
fn tiled_holds_the_panels_of_the_source() {
    let root = tempfile::tempdir().expect("temporary directory");
    let out = root.path().join("tiny.gturbo");
    install(&tiny_checkpoint(), &out, Layout::Tiled).expect("install");
    let (files, source) = (contents(&out), Checkpoint::tiny());
    let manifest = Manifest::parse(&files["manifest.json"]).expect("manifest");
    assert_eq!(manifest.layout, Layout::Tiled);
    let weights = &files["model_weights.bin"];
    let size = ResidentIndex::region_size(weights.first_chunk().expect("header"), weights.len() as u64)
        .expect("size");
    let index = ResidentIndex::parse(&weights[..size], weights.len() as u64, Layout::Tiled).expect("index");
    let mut tiled = 0;
    for entry in &index.entries {
        let at = usize::try_from(entry.data.start).expect("small")
            ..usize::try_from(entry.data.end).expect("small");
        assert!(entry.data.start.is_multiple_of(4096), "{}", entry.name);
        if entry.dtype == DType::Tile16x64 {
            tiled += 1;
            let module = entry.name.strip_suffix(".weight").expect("a matrix");
            assert_eq!(weights[at], panels(&source, module, None).concat(), "{}", entry.name);
        } else {
            assert_eq!(weights[at], source.tensors[&entry.name].bytes, "{}", entry.name);
        }
    }
    assert_eq!(tiled, 1 + 10 * 7 + 2 * 6, "all but routers and vectors");
    let layout = ExpertLayout::parse(&files["packed_experts/layout.json"], Layout::Tiled).expect("layout");
    let parts = layout.expert_parts(9, &manifest.arch, 4, Layout::Tiled).expect("parts");
    let blob = &files["packed_experts/layer_09.bin"][5 * parts.stride..6 * parts.stride];
    for (role, part) in [("gate", &parts.gate), ("up", &parts.up), ("down", &parts.down)] {
        let module = format!("language_model.model.layers.9.experts.switch_glu.{role}_proj");
        let PartData::Tiles { offset, panel_stride } = part.data else { panic!("{role} is not tiled") };
        for (i, panel) in panels(&source, &module, Some(5)).iter().enumerate() {
            let at = offset + i * panel_stride;
            assert_eq!(&blob[at..at + panel.len()], panel, "{role} panel {i}");
        }
    }
}

#[test]
fn round_trips_are_byte_identical() {
    let root = tempfile::tempdir().expect("temporary directory");
    let path = |name: &str| root.path().join(name);
    install(&tiny_checkpoint(), &path("v1"), Layout::V1).expect("install");
    install(&tiny_checkpoint(), &path("tiled"), Layout::Tiled).expect("install");
    to(&path("v1"), &path("v1-tiled"), Layout::Tiled).expect("convert");
    to(&path("v1-tiled"), &path("v1-tiled-v1"), Layout::V1).expect("convert");
    to(&path("tiled"), &path("tiled-v1"), Layout::V1).expect("convert");
    to(&path("tiled"), &path("tiled-copy"), Layout::Tiled).expect("copy");
    let (v1, tiled) = (contents(&path("v1")), contents(&path("tiled")));
    for (name, want) in
        [("v1-tiled", &tiled), ("v1-tiled-v1", &v1), ("tiled-v1", &v1), ("tiled-copy", &tiled)]
    {
        let got = contents(&path(name));
        assert_eq!(got.keys().collect::<Vec<_>>(), want.keys().collect::<Vec<_>>(), "{name}");
        for (file, bytes) in want {
            assert!(got[file] == *bytes, "{name}/{file} differs");
        }
    }
    check_strictly(&path("v1-tiled-v1"));
}

#[test]
fn matrices_that_do_not_divide_into_tiles_stay_in_source_order() {
    // Everything else is a multiple of 64 by the rules of quantization; a vocabulary need not be one of 16.
    let mut source = Checkpoint::tiny();
    let mut cut = 0;
    for (name, t) in &mut source.tensors {
        if name.contains("embed_tokens") {
            let keep = 504;
            t.bytes.truncate(t.bytes.len() / 512 * keep);
            t.shape[0] = keep as u64;
            cut += 1;
        }
    }
    assert_eq!(cut, 3);
    source.config(|c| c["text_config"]["vocab_size"] = 504.into());
    let root = tempfile::tempdir().expect("temporary directory");
    let path = |name: &str| root.path().join(name);
    source.write_plain(&path("source"));
    install(&path("source"), &path("v1"), Layout::V1).expect("install");
    install(&path("source"), &path("tiled"), Layout::Tiled).expect("install");
    to(&path("tiled"), &path("back"), Layout::V1).expect("convert");
    assert!(contents(&path("back")) == contents(&path("v1")));
    let weights = fs::read(path("tiled").join("model_weights.bin")).expect("read");
    let size = ResidentIndex::region_size(weights.first_chunk().expect("header"), weights.len() as u64)
        .expect("size");
    let index = ResidentIndex::parse(&weights[..size], weights.len() as u64, Layout::Tiled).expect("index");
    assert_eq!((index.entries[0].shape, index.entries[0].dtype), ([504, 128, 0, 0], DType::U32));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whichever shard a tensor is in and wherever in it, companions included, the output is the same.
    #[test]
    fn any_arrangement_of_shards_gives_the_same_bytes(
        order in Just(Checkpoint::tiny().names()).prop_shuffle(),
        cuts in prop::collection::vec(0usize..538, 0..4),
        tiled in any::<bool>(),
    ) {
        let layout = if tiled { Layout::Tiled } else { Layout::V1 };
        let root = tempfile::tempdir().expect("temporary directory");
        let path = |name: &str| root.path().join(name);
        install(&tiny_checkpoint(), &path("plain"), layout).expect("install");
        let mut cuts = cuts;
        cuts.extend([0, order.len()]);
        cuts.sort_unstable();
        cuts.dedup();
        let shards: Vec<Vec<String>> = cuts.windows(2).map(|w| order[w[0]..w[1]].to_vec()).collect();
        Checkpoint::tiny().write(&path("source"), &shards);
        install(&path("source"), &path("shuffled"), layout).expect("install");
        let (mut a, mut b) = (contents(&path("plain")), contents(&path("shuffled")));
        // Only the hash of the index differs.
        let (a, b) = (a.remove("manifest.json").map(|m| (m, a)), b.remove("manifest.json").map(|m| (m, b)));
        let ((ma, a), (mb, b)) = (a.expect("manifest"), b.expect("manifest"));
        prop_assert!(a == b);
        let (ma, mut mb) = (Manifest::parse(&ma).expect("manifest"), Manifest::parse(&mb).expect("manifest"));
        prop_assert_ne!(&ma.source_snapshot_hash, &mb.source_snapshot_hash);
        mb.source_snapshot_hash = ma.source_snapshot_hash.clone();
        prop_assert_eq!(ma, mb);
    }
}
