//! The yardstick: one command that says whether a build still answers right and still computes what the reference does.
//!
//! Every case is answered greedily through the same engine, renderer and parser as `fieldfare chat` uses, and judged; the
//! wanted replies are scored for perplexity; held-out sequences are held against the logits that transformers gives for the
//! same dequantized weights; the router is watched meanwhile. Each figure has a committed threshold, and the command
//! fails when one is missed. For shares that is a floor, what the committed model reaches; the goal beyond it is shown.

mod case;
mod experts;
mod judge;
mod reference;
mod reply;
mod report;
mod run;
mod thresholds;

#[cfg(test)]
mod tests;

use crate::wrong_use;
use anyhow::{Context as _, Result};
use case::Case;
use clap::{Args, ValueEnum};
use experts::Watch;
use fieldfare::engine::{Engine, EngineOptions};
use fieldfare::model::Precision;
use fieldfare::sys::memory;
use report::{Cost, Report};
use run::Work;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Models whose slots take more than this are run once, whatever the cores.
const SMALL_SLOTS: usize = 256 << 20;

/// For `--thresholds`: judge nothing.
const NONE: &str = "none";

/// Options of `fieldfare-lab evaluate`.
#[derive(Args)]
pub(crate) struct Options {
    /// The model directory, or `demo` for the bundled one.
    #[arg(long, value_name = "DIR", default_value = "demo")]
    model: String,
    /// The cases: one JSON object a line.
    #[arg(long, value_name = "FILE", default_value = "fixtures/demo/cases.jsonl")]
    cases: PathBuf,
    /// What transformers computed in float32 from the dequantized weights.
    #[arg(long, value_name = "FILE", default_value = "fixtures/demo/reference.safetensors")]
    reference: PathBuf,
    /// The marks to meet, or `none` to report and judge nothing (a file of that name is `./none`).
    #[arg(long, value_name = "FILE", default_value = "fixtures/demo/thresholds.json")]
    thresholds: PathBuf,
    /// What may be rounded.
    #[arg(long, value_enum, default_value_t = PrecisionName::Default)]
    precision: PrecisionName,
    /// Run only N cases of each group, taken evenly from all of it.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Print up to N wrong replies of each group.
    #[arg(long, value_name = "N", default_value_t = 0)]
    show_failures: usize,
    /// Most tokens of a reply (more where the wanted one is longer).
    #[arg(long, value_name = "N", default_value_t = 200)]
    max_new: usize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Write the experts used for some of the conversations as rows `step,layer,expert` (see scripts/cache_sim.py).
    #[arg(long, value_name = "FILE")]
    routing_trace: Option<PathBuf>,
    /// Least number of tokens in the routing trace; all groups take part.
    #[arg(long, value_name = "N", default_value_t = 4096)]
    trace_tokens: usize,
    /// Engines side by side [default: one for each core where the model is small, else 1].
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Threads of an engine [default: 1 where there are several engines, else one for each core].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

/// Names of [`Precision`].
#[derive(Clone, Copy, ValueEnum)]
enum PrecisionName {
    /// Keys and values in half precision.
    Default,
    /// Everything in single precision.
    Exact,
}

impl PrecisionName {
    fn value(self) -> Precision {
        match self {
            Self::Default => Precision::Default,
            Self::Exact => Precision::Exact,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Exact => "exact",
        }
    }
}

/// Evaluates and prints; false if a mark misses its threshold, which without thresholds none does.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let report = evaluate(options, None)?;
    let mut out = std::io::stdout().lock();
    if options.json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
    } else {
        report.print(&mut out)?;
    }
    Ok(report.passed != Some(false))
}

/// The directory that `--model` means: `demo` is the demonstration model, unpacked where `fieldfare` has it too; a
/// directory of that name is `./demo`.
fn model_path(argument: &str) -> Result<PathBuf> {
    if argument == fieldfare_demo::NAME {
        let ready = fieldfare_demo::ensure(&mut |_| ControlFlow::Continue(()))?;
        ready.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
        return Ok(ready.path);
    }
    let path = PathBuf::from(argument);
    if path.is_dir() {
        return Ok(path);
    }
    Err(wrong_use(format!("no model at {argument}: not a directory; name one with --model DIR")))
}

/// Does everything but printing. `runtime_dir` is where the model's lock lies, if not in the usual place.
fn evaluate(options: &Options, runtime_dir: Option<&Path>) -> Result<Report> {
    let path = model_path(&options.model)?;
    let own_locks = tempfile::tempdir().context("a scratch folder")?;
    let open = |runtime_dir: Option<&Path>, threads| -> Result<Engine> {
        let precision = options.precision.value();
        let runtime_dir = runtime_dir.map(Path::to_path_buf);
        Ok(Engine::open(
            &path,
            EngineOptions { precision, threads, runtime_dir, ..EngineOptions::default() },
        )?)
    };
    let mut engine = open(runtime_dir, options.threads.or(Some(1)))?;
    let tokenizer = Arc::clone(engine.tokenizer()?);
    let cases = case::load(&options.cases, &tokenizer)?;
    let thresholds = match options.thresholds.as_os_str() == NONE {
        true => None,
        false => Some(thresholds::load(&options.thresholds, &cases)?),
    };
    let sequences = reference::load(&options.reference, engine.vocab_size(), tokenizer.control().bos)?;
    let cases = chosen(cases, options.limit)?;
    let workers = workers(options, engine.stats().slot_bytes);
    if workers == 1 && options.threads.is_none() {
        drop(engine);
        engine = open(runtime_dir, None)?;
    }
    let watch = Watch::new(engine.runner_mut());

    let start = Instant::now();
    let next = AtomicUsize::new(0);
    // This process holds the model's lock by its first engine; the others need one each of their own.
    let another = || {
        let place = own_locks.path().join(next.fetch_add(1, Ordering::Relaxed).to_string());
        std::fs::create_dir(&place).context("a scratch folder")?;
        let mut engine = open(Some(&place), options.threads.or(Some(1)))?;
        watch.attach(engine.runner_mut());
        Ok(engine)
    };
    let done = Work::new(options, &tokenizer, &cases, &sequences).run(&mut engine, workers - 1, &another)?;
    let seconds = start.elapsed().as_secs_f64();
    let router = watch.spreads();
    if let Some(path) = &options.routing_trace {
        watch.trace(engine.runner_mut(), &traced(&cases, options.trace_tokens), path)?;
    }
    let (stats, one) = (done.stats, engine.stats());
    let marks = done.tally.marks(&done.comparison, thresholds.as_ref());
    let asked = stats.hits + stats.misses;
    Ok(Report {
        model: path.display().to_string(),
        precision: options.precision.name(),
        passed: thresholds.is_some().then(|| marks.iter().all(|mark| mark.ok != Some(false))),
        marks,
        reference: done.comparison,
        router,
        cost: Cost {
            seconds,
            cases: cases.len(),
            read_tokens: stats.read_tokens,
            expert_hit_rate: (asked > 0).then(|| stats.hits as f64 / asked as f64),
            slots: one.slots_per_layer,
            workers,
            threads: one.threads,
            peak_rss_bytes: memory::process().peak_rss,
            ..done.cost
        },
        failures: done.failures.into_values().flatten().collect(),
    })
}

/// How many engines run side by side: as told, else one for each core where a small model leaves the threads to us.
fn workers(options: &Options, slot_bytes: usize) -> usize {
    let several = options.threads.is_none() && slot_bytes <= SMALL_SLOTS;
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    options.workers.unwrap_or_else(|| if several { cores() } else { 1 }).max(1)
}

/// The cases to run, those with the same beginning next to each other, so that the KV cache serves it again. Results do not
/// depend on the order.
fn chosen(cases: Vec<Case>, limit: Option<usize>) -> Result<Vec<Case>> {
    if limit == Some(0) {
        return Err(wrong_use("--limit must be at least 1"));
    }
    let mut groups: BTreeMap<String, Vec<Case>> = BTreeMap::new();
    for case in cases {
        groups.entry(case.group.clone()).or_default().push(case);
    }
    let mut chosen = Vec::new();
    for cases in groups.into_values() {
        let (all, wanted) = (cases.len(), limit.unwrap_or(usize::MAX).min(cases.len()));
        let mut taken = 0;
        for (at, case) in cases.into_iter().enumerate() {
            if taken * all <= at * wanted && taken < wanted {
                chosen.push(case);
                taken += 1;
            }
        }
    }
    chosen.sort_by(|a, b| a.prompt.cmp(&b.prompt));
    Ok(chosen)
}

/// Conversations for the trace, a case of each group in turn until there are enough tokens.
fn traced(cases: &[Case], tokens: usize) -> Vec<Vec<u32>> {
    let mut groups: BTreeMap<&str, Vec<&Case>> = BTreeMap::new();
    for case in cases {
        groups.entry(&case.group).or_default().push(case);
    }
    let longest = groups.values().map(Vec::len).max().unwrap_or(0);
    let turns = (0..longest).flat_map(|turn| groups.values().filter_map(move |cases| cases.get(turn)));
    let mut have = 0;
    turns
        .map(|case| [&case.prompt[..], &case.target].concat())
        .take_while(|ids| {
            let more = have < tokens;
            have += ids.len();
            more
        })
        .collect()
}
