//! Inputs and files that are wrong, and numbers beyond half precision.

use crate::support::{Reference, all_logits, bits, difference, exact, install, prefill, runner, scratch};
use fieldfare::Error;
use fieldfare::format::{Integrity, Layout, ModelDir};
use fieldfare::model::{Forward, Precision, Probe, Runner, RunnerOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn a_runner_may_move_to_another_thread() {
    let runner = runner(Layout::Tiled, &exact());
    let position = std::thread::spawn(move || runner.position()).join().unwrap();
    assert_eq!(position, 0);
}

#[test]
fn options_and_ids_are_checked() {
    let dir = crate::support::tiny(Layout::Tiled);
    for (field, options) in [
        ("max-context", RunnerOptions { max_context: 0, ..exact() }),
        ("max-context", RunnerOptions { max_context: usize::MAX, ..exact() }),
        ("prefill-chunk-tokens", RunnerOptions { prefill_chunk_tokens: 0, ..exact() }),
        ("prefill-chunk-tokens", RunnerOptions { prefill_chunk_tokens: usize::MAX, ..exact() }),
        ("threads", RunnerOptions { threads: Some(0), ..exact() }),
        ("threads", RunnerOptions { threads: Some(1 << 40), ..exact() }),
        ("expert-cache-slots", RunnerOptions { slots_per_layer: Some(0), ..exact() }),
        ("expert-cache-slots", RunnerOptions { slots_per_layer: Some(17), ..exact() }),
    ] {
        let error = Runner::new(Arc::clone(&dir), &options).map(|_| ()).unwrap_err();
        assert!(matches!(&error, Error::BadRequest { field: f, .. } if f == field), "{error}");
    }
    let mut runner = runner(Layout::Tiled, &exact());
    assert_eq!((runner.vocab_size(), runner.max_context()), (512, 256));
    for ids in [&[][..], &[2, 512], &[u32::MAX]] {
        assert!(matches!(
            runner.prefill(ids, &mut |_| std::ops::ControlFlow::Continue(())),
            Err(Error::BadRequest { .. })
        ));
    }
    assert!(matches!(runner.decode(512), Err(Error::BadRequest { .. })));
    assert_eq!(runner.position(), 0);
}

#[test]
fn a_layer_file_that_shrinks_is_an_error_and_no_more() {
    let path = install(&fieldfare_testing::tiny_checkpoint(), "forward-shrinks.gturbo", Layout::Tiled);
    let options = RunnerOptions { slots_per_layer: Some(2), prefill_chunk_tokens: 8, ..exact() };
    let mut broken = Runner::new(ModelDir::open(&path, Integrity::Full).unwrap(), &options).unwrap();
    let ids = Reference::load().prompt;
    prefill(&mut broken, &ids[..20]);

    let file = path.join("packed_experts/layer_05.bin");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() / 16 + 100]).unwrap();
    let error = broken.prefill(&ids[20..40], &mut |_| std::ops::ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(&error, Error::Damaged { file, .. } if file.ends_with("layer_05.bin")), "{error}");
    // The chunk would have ended at 28, inside the window: what came before it is still good.
    assert_eq!(broken.position(), 20);
    std::fs::write(&file, &bytes).unwrap();
    let ours = prefill(&mut broken, &ids[20..60]);
    let wanted = prefill(&mut runner(Layout::Tiled, &exact()), &ids[..60]);
    assert!(bits(&ours) == bits(&wanted));
}

#[test]
fn weights_that_are_no_numbers_are_an_error_and_no_text() {
    let path = install(&fieldfare_testing::tiny_checkpoint(), "forward-nan.gturbo", Layout::Tiled);
    // The size is right and the hash is for `verify`: only running the model can tell.
    let file = path.join("packed_experts/layer_05.bin");
    let size = usize::try_from(std::fs::metadata(&file).unwrap().len()).unwrap();
    std::fs::write(&file, vec![0xff; size]).unwrap();
    let dir = Arc::new(ModelDir::open(&path, Integrity::Receipt).unwrap());
    let mut broken = Runner::new(dir, exact()).unwrap();
    let go_on = || std::ops::ControlFlow::Continue(());
    let ids = Reference::load().prompt;
    let damaged = |error: &Error| matches!(error, Error::Damaged { file, .. } if file.contains("layer_"));
    let error = broken.prefill(&ids[..20], &mut |_| go_on()).map(|_| ()).unwrap_err();
    assert!(damaged(&error), "{error}");
    assert_eq!(broken.position(), 0);
    let error = broken.decode(ids[0]).map(|_| ()).unwrap_err();
    assert!(damaged(&error), "{error}");
    let error = broken.prefill_each(&ids[..20], &mut { go_on }, &mut |_, _| go_on()).unwrap_err();
    assert!(damaged(&error), "{error}");
}

/// A copy of the fixture in which some plain bf16 tensors are multiplied by powers of two.
fn scaled_copy(name: &str, factors: &[(&str, i32)]) -> PathBuf {
    let to = scratch(name);
    std::fs::create_dir_all(&to).unwrap();
    for entry in std::fs::read_dir(fieldfare_testing::tiny_checkpoint()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    let file = to.join("model.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    let header_len = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + header_len]).unwrap();
    for (tensor, power) in factors {
        let info = &header[format!("language_model.model.{tensor}")];
        assert_eq!(info["dtype"], "BF16", "{tensor}");
        let at =
            |i: usize| 8 + header_len + usize::try_from(info["data_offsets"][i].as_u64().unwrap()).unwrap();
        for value in bytes[at(0)..at(1)].chunks_exact_mut(2) {
            let old = half::bf16::from_le_bytes([value[0], value[1]]).to_f32();
            value.copy_from_slice(&half::bf16::from_f32(old * 2f32.powi(*power)).to_le_bytes());
        }
    }
    std::fs::write(&file, bytes).unwrap();
    to
}

fn open(from: &Path, name: &str) -> Arc<ModelDir> {
    Arc::new(ModelDir::open(install(from, name, Layout::Tiled), Integrity::Full).unwrap())
}

/// Largest magnitude of the residual after each layer.
struct Largest(Arc<AtomicU32>);

impl Probe for Largest {
    fn tensor(&mut self, _: Option<usize>, name: &'static str, _: usize, _: usize, data: &[f32]) {
        if name == "layer_out" {
            // Bits of positive floats are ordered like the floats.
            let largest = data.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            self.0.fetch_max(largest.to_bits(), Ordering::Relaxed);
        }
    }

    fn experts(&mut self, _: usize, _: usize, _: &[usize], _: &[f32]) {}
}

fn worst_case(name: &str, factors: &[(&str, i32)]) -> (f32, Vec<Vec<f32>>, Vec<Vec<f32>>) {
    let dir = open(&scaled_copy(&format!("{name}-source"), factors), &format!("{name}.gturbo"));
    let ids = Reference::load().prompt;
    let largest = Arc::new(AtomicU32::new(0));
    let mut both = [Precision::Exact, Precision::Default].map(|precision| {
        let mut runner = Runner::new(Arc::clone(&dir), &RunnerOptions { precision, ..exact() }).unwrap();
        runner.set_probe(Some(Box::new(Largest(Arc::clone(&largest)))));
        let rows = all_logits(&mut runner, &ids[..80]);
        assert!(rows.iter().flatten().all(|x| x.is_finite()));
        rows
    });
    let halves = std::mem::take(&mut both[1]);
    (f32::from_bits(largest.load(Ordering::Relaxed)), std::mem::take(&mut both[0]), halves)
}

#[test]
fn a_residual_beyond_half_precision_stays_finite() {
    // Both branches of two early layers, then every later layer, work on a residual far above 65504.
    let (largest, exact, halves) = worst_case(
        "forward-large-residual",
        &[
            ("layers.1.post_attention_layernorm.weight", 17),
            ("layers.2.post_feedforward_layernorm.weight", 18),
            ("layers.3.layer_scalar", 6),
        ],
    );
    assert!(largest > 1e6, "{largest}");
    let (most, mean) = difference(exact.iter().zip(&halves).map(|(a, b)| (&a[..], &b[..])));
    println!(
        "residual up to {largest:.1e}: halves for KV differ by {most:.1e} at most, {mean:.1e} on average"
    );
    assert!(mean < 0.05, "{mean}");
}

#[test]
fn keys_beyond_half_precision_are_kept_in_f32() {
    // Scores are then a hard maximum; halves would make the keys infinite and the scores NaN.
    let (_, exact, halves) = worst_case("forward-large-keys", &[("layers.5.self_attn.k_norm.weight", 14)]);
    // The default precision then differs by its products of integers alone, which turn a maximum now and then.
    let (most, mean) = difference(exact.iter().zip(&halves).map(|(a, b)| (&a[..], &b[..])));
    println!("large keys: {most:.1e} at most, {mean:.1e} on average");
    assert!(halves.iter().flatten().all(|logit| logit.is_finite()));
    assert!(mean < 0.005, "{mean}");
}
