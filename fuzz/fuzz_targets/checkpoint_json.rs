//! The small documents of a checkpoint: `config.json`, as the installer and as the runner read it, and
//! `model.safetensors.index.json`.
#![no_main]
use fieldfare::format::{Layout, Manifest};
use fieldfare::install::fuzzing;
use fieldfare::model::Config;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(map) = fuzzing::weight_map(bytes) {
        assert!(!map.is_empty());
        for shard in map.values() {
            let path = std::path::Path::new(shard);
            assert_eq!(path.file_name(), Some(path.as_os_str()), "not a plain name");
        }
    }
    let Ok(arch) = fuzzing::arch(bytes) else { return };
    let Ok(document) = serde_json::from_slice(bytes) else { return };
    let manifest = Manifest {
        layout: Layout::V1,
        version_minor: 0,
        flags: Default::default(),
        model_id: "unknown/snapshot".into(),
        source_snapshot_hash: None,
        arch,
        quant: None,
        files: Default::default(),
        expert_stride: 16_384,
        bit_width_overrides_honored: None,
    };
    if let Ok(config) = Config::new(&manifest, &document) {
        assert!(config.rope_frequencies.iter().flatten().all(|f| f.is_finite()));
        let _ = Manifest::parse(&manifest.encode());
    }
});
