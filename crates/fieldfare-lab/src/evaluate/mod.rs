//! The yardstick: one command that says whether a build still answers right and still computes what the reference does.
//!
//! Every case is answered greedily through the same engine, renderer and parser as `fieldfare chat` uses, and judged; the
//! wanted replies are scored for perplexity; held-out sequences are held against the logits that transformers gives for the
//! same dequantized weights; the router is watched meanwhile. Each figure has a committed threshold, and the command
//! fails when one is missed.

mod case;
mod experts;
mod judge;
mod reference;
mod reply;
mod report;
mod thresholds;

#[cfg(test)]
mod tests;

use crate::wrong_use;
use anyhow::{Context as _, Result};
use case::Case;
use clap::{Args, ValueEnum};
use experts::{Unhurried, Watch};
use fieldfare::engine::{Cancel, Engine, EngineOptions, GenerateOptions, OutputMode, Session};
use fieldfare::model::Precision;
use fieldfare::sample::Sampling;
use fieldfare::sys::memory;
use reply::Reply;
use report::{Cost, Failure, Report, Tally};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Tokens that a reply may have beyond the wanted one's length before it counts as endless.
const SLACK: usize = 32;

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
    /// The marks to meet.
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
    /// Threads; by default what the engine takes.
    #[arg(long)]
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

/// Evaluates and prints; false if a mark misses its threshold.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let report = evaluate(options, None)?;
    let mut out = std::io::stdout().lock();
    if options.json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
    } else {
        report.print(&mut out)?;
    }
    Ok(report.passed)
}

/// The directory that `--model` means.
fn model_path(argument: &str) -> Result<PathBuf> {
    let path = PathBuf::from(argument);
    if path.is_dir() {
        return Ok(path);
    }
    Err(wrong_use(format!("no model at {argument}: not a directory; name one with --model DIR")))
}

/// Does everything but printing. `runtime_dir` is where the model's lock lies, if not in the usual place.
fn evaluate(options: &Options, runtime_dir: Option<&Path>) -> Result<Report> {
    let path = model_path(&options.model)?;
    let (precision, precision_name) = match options.precision {
        PrecisionName::Default => (Precision::Default, "default"),
        PrecisionName::Exact => (Precision::Exact, "exact"),
    };
    let mut engine = Engine::open(
        &path,
        EngineOptions {
            precision,
            threads: options.threads,
            runtime_dir: runtime_dir.map(Path::to_path_buf),
            ..EngineOptions::default()
        },
    )?;
    let tokenizer = std::sync::Arc::clone(engine.tokenizer()?);
    let cases = case::load(&options.cases, &tokenizer)?;
    let thresholds = thresholds::load(&options.thresholds, &cases)?;
    let sequences = reference::load(&options.reference, engine.vocab_size(), tokenizer.control().bos)?;
    let cases = chosen(cases, options.limit)?;
    let watch = Watch::start(engine.runner_mut());

    let start = Instant::now();
    let mut run = Run { options, tally: Tally::default(), cost: Cost::default(), failures: BTreeMap::new() };
    run.cases(&mut engine, &cases)?;
    let comparison = reference::compare(engine.runner_mut(), &sequences)?;
    let seconds = start.elapsed().as_secs_f64();
    let router = watch.spreads();
    let stats = engine.stats();
    if let Some(path) = &options.routing_trace {
        watch.trace(engine.runner_mut(), &traced(&cases, options.trace_tokens), path)?;
    }
    let marks = run.tally.marks(&comparison, &thresholds);
    let asked = stats.hits + stats.misses;
    Ok(Report {
        model: path.display().to_string(),
        precision: precision_name,
        passed: marks.iter().all(|mark| mark.ok),
        marks,
        reference: comparison,
        router,
        cost: Cost {
            seconds,
            cases: cases.len(),
            read_tokens: stats.prefill_tokens,
            expert_hit_rate: (asked > 0).then(|| stats.hits as f64 / asked as f64),
            slots: stats.slots_per_layer,
            threads: stats.threads,
            peak_rss_bytes: memory::process().peak_rss,
            ..run.cost
        },
        failures: run.failures.into_values().flatten().collect(),
    })
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

/// An evaluation under way.
struct Run<'a> {
    options: &'a Options,
    tally: Tally,
    cost: Cost,
    /// Wrong replies to be shown, by group.
    failures: BTreeMap<String, Vec<Failure>>,
}

impl Run<'_> {
    fn cases(&mut self, engine: &mut Engine, cases: &[Case]) -> Result<()> {
        let tokenizer = std::sync::Arc::clone(engine.tokenizer()?);
        let bar = indicatif::ProgressBar::new(cases.len() as u64);
        let mut session = engine.session();
        for case in cases {
            let reply = self.answer(&mut session, case).with_context(|| format!("case {}", case.id))?;
            let thought = reply.thought(case, &tokenizer);
            let count = if case.thinking { &mut self.tally.thoughts } else { &mut self.tally.no_thoughts };
            count.add(thought.is_ok());
            let right = reply.fault.is_none() && case.rule.right(&reply.content, &reply.calls);
            self.tally.groups.entry(case.group.clone()).or_default().add(right);
            let reason = match (right, thought) {
                (true, Ok(())) => None,
                (false, Ok(())) => Some("wrong".to_owned()),
                (true, Err(reason)) => Some(reason),
                (false, Err(reason)) => Some(format!("wrong; {reason}")),
            };
            if let Some(reason) = reason {
                self.keep(case, reason, &reply);
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Lets the model answer, then scores the wanted reply.
    fn answer(&mut self, session: &mut Session<'_>, case: &Case) -> Result<Reply> {
        let options = GenerateOptions {
            sampling: Sampling { temperature: 0.0, ..Sampling::default() },
            max_new: self.options.max_new.max(case.target.len() + SLACK),
            mode: OutputMode::Chat {
                starts_in_reasoning: case.starts_in_reasoning,
                tools: case.tools.clone(),
            },
            ..GenerateOptions::default()
        };
        let cancel = Cancel::new();
        let generation =
            session.generate(&case.prompt, &options, &cancel, &mut |_| ControlFlow::Continue(()))?;
        self.cost.reused_tokens += generation.cached_tokens as u64;
        self.cost.made_tokens += generation.token_ids.len() as u64;
        self.cost.made_seconds += generation.timings.decode_seconds;
        let ids = [&case.prompt[..], &case.target].concat();
        let scores = session.score_from(&ids, case.prompt.len(), 0, &cancel, &mut |_| Unhurried::go_on())?;
        self.tally.nll -= scores.logprobs.iter().map(|&logprob| f64::from(logprob)).sum::<f64>();
        self.tally.targets += scores.logprobs.len();
        Ok(Reply::of(generation))
    }

    fn keep(&mut self, case: &Case, reason: String, reply: &Reply) {
        let kept = self.failures.entry(case.group.clone()).or_default();
        if kept.len() < self.options.show_failures {
            kept.push(Failure {
                id: case.id.clone(),
                group: case.group.clone(),
                reason,
                wanted: case.expect.to_string(),
                got: reply.shown(),
            });
        }
    }
}
