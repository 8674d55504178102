use super::*;
use fieldfare::format::{Integrity, ModelDir, TensorData};
use fieldfare_kernels::tile;

fn options(preset: Preset, seed: u64, output: PathBuf, layout: Order) -> Options {
    Options { preset, seed, output, layout, tokenizer: None, threads: None, overrides: Vec::new() }
}

/// Hashes of every file of the manifest.
fn hashes(dir: &Path) -> BTreeMap<String, FileEntry> {
    Manifest::parse(&fs::read(dir.join(MANIFEST)).unwrap()).unwrap().files
}

#[test]
fn a_seed_gives_the_same_bytes_with_any_number_of_threads() {
    let temp = tempfile::tempdir().unwrap();
    let make = |name: &str, seed, threads| {
        let options = options(Preset::Tiny, seed, temp.path().join(name), Order::Tiled);
        write_model(&options, Tuning::default(), threads).unwrap();
        hashes(&options.output)
    };
    let one = make("a", 5, 1);
    assert_eq!(one, make("b", 5, 3));
    assert_ne!(one, make("c", 6, 2));
}

#[test]
fn both_layouts_open_and_hold_the_same_matrices() {
    let temp = tempfile::tempdir().unwrap();
    let open = |name: &str, order| {
        let options = options(Preset::Tiny, 1, temp.path().join(name), order);
        write_model(&options, Tuning::default(), 2).unwrap();
        ModelDir::open(&options.output, Integrity::Full).unwrap()
    };
    let (tiled, plain) = (open("tiled", Order::Tiled), open("v1", Order::V1));
    let name = "language_model.model.layers.0.self_attn.q_proj.weight";
    let (tiled, plain) = (tiled.resident().tensor(name).unwrap(), plain.resident().tensor(name).unwrap());
    let (TensorData::Tiled { data, .. }, TensorData::Affine { weights, scales, biases, .. }) =
        (tiled.data, plain.data)
    else {
        panic!("stored otherwise");
    };
    let cols = tiled.shape[1] as usize;
    let mut source = (vec![0; 8 * cols], vec![0; cols / 2], vec![0; cols / 2]);
    tile::unpack_panel(cols, &data[..tile::panel_bytes(cols)], &mut source.0, &mut source.1, &mut source.2);
    assert_eq!(source.0, weights[..8 * cols]);
    assert_eq!(source.1, scales[..cols / 2]);
    assert_eq!(source.2, biases[..cols / 2]);
}

#[test]
fn an_existing_directory_is_left_alone() {
    let temp = tempfile::tempdir().unwrap();
    let options = options(Preset::Tiny, 1, temp.path().to_path_buf(), Order::Tiled);
    assert!(write_model(&options, Tuning::default(), 1).is_err());
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
}

#[test]
fn tuning_is_read_and_wrong_values_are_refused() {
    let set = |text: &str| tuning(&[text.to_owned()]);
    assert!((set("popularity=0.7").unwrap().popularity - 0.7).abs() < 1e-6);
    for wrong in ["popularity=1.5", "popularity", "recency=x", "speed=1", "recency=-1"] {
        assert!(set(wrong).is_err(), "{wrong}");
    }
}

/// The library's own idea of the large model, which it plans and advises with, is that of the model that is made here.
#[test]
fn the_library_knows_the_full_size() {
    use fieldfare::model::{Config, LayerKind};
    let (arch, config) = (Preset::Full.shape().arch(), Config::full_size());
    let sizes = |[a, b]: [usize; 2]| assert_eq!(a, b);
    [
        [arch.hidden_size, config.hidden_size],
        [arch.intermediate_size, config.intermediate_size],
        [arch.moe_intermediate_size, config.moe_intermediate_size],
        [arch.num_attention_heads, config.num_attention_heads],
        [arch.num_key_value_heads, config.num_key_value_heads],
        [arch.num_global_key_value_heads, config.num_global_key_value_heads],
        [arch.head_dim, config.head_dim],
        [arch.global_head_dim, config.global_head_dim],
        [arch.vocab_size, config.vocab_size],
        [arch.sliding_window, config.sliding_window],
        [arch.num_experts, config.num_experts],
        [arch.top_k_experts, config.top_k_experts],
    ]
    .into_iter()
    .for_each(sizes);
    let full: Vec<bool> = config.layers.iter().map(|&kind| kind == LayerKind::Full).collect();
    assert_eq!(arch.full_attention, full);
    assert_eq!(
        (arch.final_logit_softcapping as f32, config.rms_norm_eps),
        (config.final_logit_softcapping, 1e-6)
    );
}
