//! How well a layer's experts can be guessed before its router has been asked: the share of the chosen ones among as many
//! that the same router names from what is known earlier.
//!
//! `router_recall MODEL TOKENS.json|CASES.jsonl [SLOTS]`: ids, or 85 of the demonstration model's held-out cases with the
//! replies wanted, are fed one by one (the first 16 as a prompt); the model chooses.
//!
//! - A: the layer before has chosen its own experts: the input of its router.
//! - B: its shared expert is known too.
//! - C: the layer before is done: the layer's own input, before attention.
//! - previous: the experts that the token before used in the layer.

use fieldfare::format::{Integrity, ModelDir, Tensor, TensorData};
use fieldfare::model::{Forward, LookAhead, Probe, Runner, RunnerOptions};
use fieldfare::tokenizer::Tokenizer;
use fieldfare_kernels::{Kernels, QuantData, QuantMatrix, tile, top_k};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Names of the guesses.
const GUESSES: [&str; 4] = ["A", "B", "C", "previous"];

/// What a layer's router needs, and the norm of the layer's output.
struct Router {
    rows: Vec<Vec<f32>>,
    scale: Vec<f32>,
    post_norm: Vec<f32>,
    scalar: f32,
}

#[derive(Default)]
struct Seen {
    routers: Vec<Router>,
    eps: f32,
    top_k: usize,
    residual: Vec<f32>,
    shared: Vec<f32>,
    /// Guesses for the next layer.
    guesses: Vec<Vec<usize>>,
    previous: HashMap<usize, Vec<usize>>,
    right: [u64; GUESSES.len()],
    all: [u64; GUESSES.len()],
    on: bool,
}

fn norm(x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    let square = x.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>() / x.len() as f64;
    let factor = (1.0 / (square + f64::from(eps)).sqrt()) as f32;
    x.iter().zip(weight).map(|(x, w)| x * factor * w).collect()
}

impl Seen {
    fn guess(&self, layer: usize, x: &[f32]) -> Vec<usize> {
        let Some(router) = self.routers.get(layer) else { return Vec::new() };
        let x = norm(x, &router.scale, self.eps);
        let dot = |row: &Vec<f32>| row.iter().zip(&x).map(|(a, b)| a * b).sum::<f32>();
        let logits: Vec<f32> = router.rows.iter().map(dot).collect();
        let mut ids = Vec::new();
        top_k(&logits, self.top_k, &mut ids);
        ids
    }
}

struct Watch(Arc<Mutex<Seen>>);

impl Probe for Watch {
    fn tensor(&mut self, layer: Option<usize>, name: &'static str, _: usize, row_len: usize, data: &[f32]) {
        let mut seen = self.0.lock().expect("nobody panics");
        let (Some(layer), row) = (layer, &data[data.len() - row_len..]) else { return };
        match name {
            "post_attn_hidden" => seen.residual = row.to_vec(),
            "shared_out" => seen.shared = row.to_vec(),
            "layer_out" => {
                let Some(router) = seen.routers.get(layer) else { return };
                let branch = norm(&seen.shared, &router.post_norm, seen.eps);
                let b: Vec<f32> =
                    seen.residual.iter().zip(branch).map(|(x, y)| (x + y) * router.scalar).collect();
                let a = seen.residual.clone();
                seen.guesses = [&a[..], &b, row].map(|x| seen.guess(layer + 1, x)).into();
            }
            _ => {}
        }
    }

    fn experts(&mut self, layer: usize, _: usize, ids: &[usize], _: &[f32]) {
        let mut seen = self.0.lock().expect("nobody panics");
        let mut guesses = std::mem::take(&mut seen.guesses);
        guesses.resize(GUESSES.len() - 1, Vec::new());
        guesses.push(seen.previous.insert(layer, ids.to_vec()).unwrap_or_default());
        for (at, guess) in guesses.iter().enumerate().filter(|(_, guess)| !guess.is_empty()) {
            if seen.on {
                seen.all[at] += ids.len() as u64;
                seen.right[at] += ids.iter().filter(|id| guess.contains(id)).count() as u64;
            }
        }
    }
}

fn vector(tensor: &Tensor<'_>) -> Result<Vec<f32>, String> {
    let TensorData::Plain(bytes) = tensor.data else { return Err(format!("{} is no vector", tensor.name)) };
    let wide = bytes.len() / tensor.shape[0].max(1) as usize;
    let value = |b: &[u8]| match *b {
        [a, b] => f32::from_bits(u32::from(u16::from_le_bytes([a, b])) << 16), // bfloat16
        [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
        _ => f32::NAN,
    };
    Ok(bytes.chunks_exact(wide.max(1)).map(value).collect())
}

fn matrix(tensor: &Tensor<'_>) -> Result<Vec<Vec<f32>>, Box<dyn std::error::Error>> {
    let [rows, cols] = [tensor.shape[0] as usize, tensor.shape[1] as usize];
    let (bits, data) = match tensor.data {
        TensorData::Tiled { bits, data } => {
            (bits, QuantData::Tiles { data, panel_stride: tile::panel_bytes(cols) })
        }
        TensorData::Affine { bits, weights, scales, biases } => {
            (bits, QuantData::Rows { weights, scales, biases })
        }
        TensorData::Plain(_) => return Err(format!("{} is not quantized", tensor.name).into()),
    };
    let matrix = QuantMatrix::new(rows, cols, bits, data)?;
    let row = |row| {
        let mut out = vec![0.0; cols];
        Kernels::detect().dequantize_row(&matrix, row, &mut out);
        out
    };
    Ok((0..rows).map(row).collect())
}

/// The ids of each text.
fn texts(dir: &ModelDir, path: &str) -> Result<Vec<Vec<u32>>, Box<dyn std::error::Error>> {
    let bytes = std::fs::read(path)?;
    if !path.ends_with(".jsonl") {
        return Ok(vec![serde_json::from_slice(&bytes)?]);
    }
    let tokenizer = Tokenizer::open(&dir.sidecar_path("tokenizer.json").ok_or("no tokenizer")?, None)?;
    let mut texts = Vec::new();
    for line in std::str::from_utf8(&bytes)?.lines().step_by(40) {
        let case: serde_json::Value = serde_json::from_str(line)?;
        let text = |key: &str| case[key].as_str().unwrap_or_default().to_owned();
        let mut ids = Vec::new();
        tokenizer.encode_with_control(&(text("prompt_text") + &text("target_text")), &mut ids);
        texts.push(ids);
    }
    Ok(texts)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(model), Some(tokens)) = (args.next(), args.next()) else {
        return Err("router_recall MODEL TOKENS.json [SLOTS]".into());
    };
    let slots = args.next().map(|slots| slots.parse()).transpose()?;
    let dir = ModelDir::open(Path::new(&model), Integrity::Receipt)?;
    let texts = texts(&dir, &tokens)?;
    let options =
        RunnerOptions { slots_per_layer: slots, look_ahead: LookAhead::On, ..RunnerOptions::default() };
    let mut runner = Runner::new(dir, options)?;
    let mut seen =
        Seen { eps: runner.config().rms_norm_eps, top_k: runner.config().top_k_experts, ..Seen::default() };
    for layer in 0..runner.config().layers.len() {
        let name = |part: &str| format!("language_model.model.layers.{layer}.{part}");
        let resident = runner.dir().resident();
        let find = |part: &str| resident.tensor(&name(part)).ok_or_else(|| format!("no {}", name(part)));
        let root = (runner.config().hidden_size as f32).sqrt();
        let scale = vector(&find("router.scale")?)?;
        seen.routers.push(Router {
            rows: matrix(&find("router.proj.weight")?)?,
            scale: scale.into_iter().map(|scale| scale / root).collect(),
            post_norm: vector(&find("post_feedforward_layernorm.weight")?)?,
            scalar: vector(&find("layer_scalar")?)?.first().copied().unwrap_or(1.0),
        });
    }
    let seen = Arc::new(Mutex::new(seen));
    runner.set_probe(Some(Box::new(Watch(Arc::clone(&seen)))));
    for ids in texts {
        let (prompt, rest) = ids.split_at(16.min(ids.len().saturating_sub(1)).max(1));
        runner.rewind(0);
        seen.lock().expect("nobody panics").on = false;
        runner.prefill(prompt, &mut |_| ControlFlow::Continue(()))?;
        let mut now = seen.lock().expect("nobody panics");
        // A prompt's rows go through a layer together: its last guesses are of no token here.
        now.guesses.clear();
        now.on = true;
        drop(now);
        for &id in rest {
            runner.decode(id)?;
        }
    }
    let found = seen.lock().expect("nobody panics");
    for ((name, right), all) in GUESSES.iter().zip(found.right).zip(found.all) {
        println!("{name}: {:.1} % of {all}", 100.0 * right as f64 / all.max(1) as f64);
    }
    let stats = runner.stats();
    println!(
        "the engine's own: {:.1} % of {}; {} guesses read, {} of them used, {} misses",
        100.0 * stats.ahead_recalled as f64 / stats.ahead_chosen.max(1) as f64,
        stats.ahead_chosen,
        stats.ahead_guesses,
        stats.ahead_used,
        stats.decode_misses
    );
    Ok(())
}
