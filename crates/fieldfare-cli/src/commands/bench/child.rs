//! The process of one row: opens the model within its budget, feeds the tokens once to warm up, then once for each run
//! that it is asked for, and tells the times.

use super::protocol::{End, ReadsIn, Run, Spec, Told};
use crate::args::{BenchArgs, RoutingArg};
use crate::commands::answer;
use crate::failure::Failure;
use crate::ui::output;
use crate::{Outcome, interrupt, locate};
use fieldfare::engine::{Engine, EngineOptions, MemoryBudget};
use fieldfare::measure::routing::{Replay, RouteShape, Routes};
use fieldfare::measure::work;
use fieldfare::model::{self, Forward, Probe, Runner, RunnerStats};
use fieldfare::store::Reads;
use fieldfare::sys::{group, machine, memory};
use fieldfare::{Error, format};
use std::io::BufRead;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Measures one row, as standard input describes it.
///
/// # Errors
/// Those of the engine, told before.
pub(super) fn run(args: &BenchArgs) -> Outcome {
    machine::end_with_parent();
    let mut lines = std::io::stdin().lock().lines();
    let mut line = || lines.next().and_then(Result::ok);
    let spec: Spec = line()
        .and_then(|line| serde_json::from_str(&line).ok())
        .ok_or_else(|| Failure::usage("--row is what `bench` starts for itself"))?;
    match measure(args, &spec, &mut line) {
        Ok(()) => Ok(()),
        Err(Failure::Failed { message, hint } | Failure::Usage { message, hint }) => {
            tell(&Told::Failed { message, hint })?;
            Err(Failure::Shown(1))
        }
        Err(other) => Err(other),
    }
}

fn tell(told: &Told) -> Outcome {
    output::json_line(told)
}

/// Runs until the bench has no more lines to send.
fn measure(args: &BenchArgs, spec: &Spec, line: &mut dyn FnMut() -> Option<String>) -> Outcome {
    if let Some(path) = &spec.group {
        group::join(path).map_err(Error::io("join the control group", path))?;
    }
    interrupt::listen();
    let directory = locate::model(args.model.model.as_deref(), true)?;
    let options = EngineOptions {
        max_context: spec.max_context,
        memory: spec.memory.map_or(MemoryBudget::Auto, MemoryBudget::Bytes),
        threads: spec.threads,
        ..answer::tuned(&args.tuning)
    };
    let preparing = Instant::now();
    let routes = routes(args, spec, &directory)?;
    let preparing_seconds = preparing.elapsed().as_secs_f64();

    let mut engine = Engine::open(&directory, options)?;
    let plan = engine.plan().clone();
    let runner = engine.runner_mut();
    if let Some(&id) = spec.ids.iter().find(|&&id| id as usize >= runner.vocab_size()) {
        return Err(Failure::failed(format!("the text has the token {id}, beyond the model's vocabulary")));
    }
    runner.set_reroute(routes.map(|routes| Box::new(Replay(routes)) as Box<_>));
    let (prompt, rest) = spec.ids.split_at(spec.prompt.min(spec.ids.len()));
    let used = Used::new(&plan);
    runner.set_probe(Some(Box::new(used.clone())));
    runner.prefill(prompt, &mut |_| interrupt::flow())?;
    // What was read on a wrong guess need not have been.
    let RunnerStats { bytes_read, ahead_wasted_bytes, .. } = runner.stats();
    let expert_bytes = bytes_read.saturating_sub(ahead_wasted_bytes);
    tell(&Told::First { preparing_seconds, expert_bytes, experts_used: used.count() })?;
    runner.set_probe(None);
    work::decode(runner, rest, &mut interrupt::flow)?;
    tell(&Told::Warm { reads: reads(runner) })?;
    while let Some("go") = line().as_deref() {
        tell(&Told::Run(one_run(runner, prompt, rest)?))?;
    }
    let stats = runner.stats_with_pages();
    let slots_in = stats.slot_bytes as u64 + stats.core_copied_bytes as u64;
    let huge = stats.slot_huge_bytes.map(|bytes| bytes + stats.core_huge_bytes.unwrap_or(0));
    tell(&Told::End(Box::new(End {
        slots: stats.slots,
        layers: plan.layers,
        huge_page_share: huge.map(|huge| huge as f64 / slots_in.max(1) as f64),
        peak_rss_bytes: memory::process().peak_rss,
        reads: reads(runner),
        threads: stats.threads,
        isa: model::kernels()?.isa().to_string(),
        limit_bytes: plan.limit_bytes,
        plan: super::protocol::plan(&plan),
    })))
}

fn reads(runner: &Runner) -> ReadsIn {
    runner.stats().reads.unwrap_or(Reads::Buffered).into()
}

/// The whole text once, from the start.
fn one_run(runner: &mut Runner, prompt: &[u32], rest: &[u32]) -> Outcome<Run> {
    let work::Pass { prefill_seconds, decode_seconds, before, between, after } =
        work::pass(runner, prompt, rest, &mut interrupt::flow)?;
    let reading =
        |from: &RunnerStats, to: &RunnerStats| to.read_time.saturating_sub(from.read_time).as_secs_f64();
    Ok(Run {
        prefill_seconds,
        prefill_bytes: between.bytes_read - before.bytes_read,
        prefill_read_seconds: reading(&before, &between),
        decode_seconds,
        hits: after.decode_hits - between.decode_hits,
        misses: after.decode_misses - between.decode_misses,
        read_bytes: after.bytes_read - between.bytes_read,
        read_seconds: reading(&between, &after),
        ahead_guesses: after.ahead_guesses - between.ahead_guesses,
        ahead_used: after.ahead_used - between.ahead_used,
        ahead_wasted_bytes: after.ahead_wasted_bytes.saturating_sub(between.ahead_wasted_bytes),
        ahead_chosen: after.ahead_chosen - between.ahead_chosen,
        ahead_recalled: after.ahead_recalled - between.ahead_recalled,
    })
}

/// The experts that the row is to use, if not the model's own choice.
fn routes(args: &BenchArgs, spec: &Spec, directory: &std::path::Path) -> Outcome<Option<Arc<Routes>>> {
    let trace = match (&args.routing, spec.seed) {
        (Some(RoutingArg::Trace(path)), _) => Some(path),
        (_, Some(_)) => None,
        _ => return Ok(None),
    };
    let dir = format::ModelDir::open(directory, format::Integrity::Receipt)?;
    let arch = &dir.manifest().arch;
    let shape =
        RouteShape { layers: arch.num_hidden_layers, experts: arch.num_experts, top_k: arch.top_k_experts };
    let routes = match trace {
        Some(path) => Routes::read(path, shape)?,
        None => Routes::generate_guessed(
            shape,
            spec.ids.len(),
            spec.seed.unwrap_or(1),
            f64::from(args.guess_recall),
        ),
    };
    Ok(Some(Arc::new(routes)))
}

/// Which experts were used, by layer. Clones share it.
#[derive(Clone)]
struct Used(Arc<Mutex<Vec<Vec<bool>>>>);

impl Used {
    fn new(plan: &fieldfare::engine::Plan) -> Self {
        Self(Arc::new(Mutex::new(vec![vec![false; plan.experts]; plan.layers])))
    }

    fn count(&self) -> u64 {
        let used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        used.iter().flatten().filter(|&&used| used).count() as u64
    }
}

impl Probe for Used {
    fn tensor(&mut self, _: Option<usize>, _: &'static str, _: usize, _: usize, _: &[f32]) {}

    fn experts(&mut self, layer: usize, _: usize, ids: &[usize], _: &[f32]) {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for &id in ids {
            if let Some(used) = used.get_mut(layer).and_then(|layer| layer.get_mut(id)) {
                *used = true;
            }
        }
    }
}
