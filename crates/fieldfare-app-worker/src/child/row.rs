//! One row of the benchmark: the model within a budget, a prompt, and tokens after it. The process does nothing else, so its
//! peak of memory is the row's.

use super::flow;
use crate::message::{BenchRow, EngineSettings};
use crate::setup;
use crate::wire::Rates;
use fieldfare::Result;
use fieldfare::engine::Engine;
use fieldfare::format::ModelDir;
use fieldfare::measure::routing::{Replay, RouteShape, Routes};
use fieldfare::measure::traffic::Traffic;
use fieldfare::measure::{bound, median, work};
use fieldfare::model::{Forward, Runner};
use fieldfare::sys::memory;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Measured runs, after one that warms up.
const RUNS: usize = 3;
/// What models of random weights are called; their own routing is that of no text.
const SYNTHETIC: &str = "fieldfare/synthetic-";
/// Bytes of an element of the KV cache.
const ELEMENT: u64 = 2;
/// Measures a row.
pub(super) fn run(
    path: &Path,
    memory_bytes: u64,
    (prompt, decode): (u32, u32),
    rates: Option<Rates>,
    locks: Option<&Path>,
) -> Result<BenchRow> {
    let started = Instant::now();
    let (prompt, decode) = (prompt.max(1) as usize, decode.max(1) as usize);
    let context = u32::try_from(prompt + decode).unwrap_or(u32::MAX);
    let settings = EngineSettings {
        memory_bytes: Some(memory_bytes),
        context: Some(context.max(512)),
        ..EngineSettings::default()
    };
    let (options, _) = setup::planned(path, &settings, locks)?;
    let mut engine = Engine::open(path, options)?;
    let ids = ids(&engine, prompt + decode);
    let traffic = Traffic::of(engine.model_dir(), ELEMENT)?;
    let routes = routes(engine.model_dir(), ids.len());
    let runner = engine.runner_mut();
    runner.set_reroute(routes.map(|routes| Box::new(Replay(routes)) as Box<_>));
    let (before, after) = ids.split_at(prompt);
    runner.prefill(before, &mut |_| flow())?;
    let first_token_seconds = started.elapsed().as_secs_f64();
    work::decode(runner, after, &mut flow)?;
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(one(runner, before, after)?);
    }
    let middle = |value: fn(&Run) -> f64| median(&runs.iter().map(value).collect::<Vec<_>>()).unwrap_or(0.0);
    let hit_rate = middle(|run| run.hit_rate);
    let bound = rates.map_or(0.0, |rates| {
        1.0 / bound::decode_seconds_per_token(&traffic, prompt, decode, hit_rate, &rates.measured())
    });
    let reached = decode as f64 / middle(|run| run.decode_seconds);
    Ok(BenchRow {
        memory_bytes,
        decode: reached,
        // What was reached is possible.
        decode_bound: if rates.is_some() { bound.max(reached) } else { 0.0 },
        prefill: prompt as f64 / middle(|run| run.prefill_seconds),
        first_token_seconds,
        hit_rate,
        peak_bytes: memory::process().peak_rss.unwrap_or(0),
    })
}

struct Run {
    prefill_seconds: f64,
    decode_seconds: f64,
    hit_rate: f64,
}

fn one(runner: &mut Runner, prompt: &[u32], rest: &[u32]) -> Result<Run> {
    let work::Pass { prefill_seconds, decode_seconds, between, after, .. } =
        work::pass(runner, prompt, rest, &mut flow)?;
    let hits = after.decode_hits - between.decode_hits;
    let misses = after.decode_misses - between.decode_misses;
    let hit_rate = if hits + misses == 0 { 1.0 } else { hits as f64 / (hits + misses) as f64 };
    Ok(Run { prefill_seconds, decode_seconds, hit_rate })
}

/// The same tokens as `fieldfare bench` runs.
fn ids(engine: &Engine, count: usize) -> Vec<u32> {
    let Ok(tokenizer) = engine.tokenizer() else { return work::made_up(engine.vocab_size(), count) };
    let mut ids = vec![tokenizer.control().bos];
    tokenizer.encode(work::TEXT, &mut ids);
    work::repeated(&ids, count)
}

/// Experts as real text asks for them, for models whose weights do not.
fn routes(dir: &ModelDir, tokens: usize) -> Option<Arc<Routes>> {
    let manifest = dir.manifest();
    let arch = &manifest.arch;
    let shape =
        RouteShape { layers: arch.num_hidden_layers, experts: arch.num_experts, top_k: arch.top_k_experts };
    manifest
        .model_id
        .starts_with(SYNTHETIC)
        .then(|| Arc::new(Routes::generate_guessed(shape, tokens, 1, 0.65)))
}
