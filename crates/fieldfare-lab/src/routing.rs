//! Runs a model over a text, every token given (teacher-forced), and describes its routing: which share of expert uses
//! each cache would have served, how local and how skewed the uses are, and whether activations and logits are sane.

use crate::{
    cache::{Policy, hit_rate},
    corpus,
    trace::{Statistics, Trace},
    wrong_use,
};
use anyhow::{Context as _, Result};
use clap::Args;
use fieldfare::{
    format::{Integrity, ModelDir},
    model::{Forward as _, Precision, Probe, Runner, RunnerOptions},
};
use std::{
    collections::HashSet,
    ops::ControlFlow,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Options of `fieldfare-lab routing`.
#[derive(Args)]
pub(crate) struct Options {
    /// A model directory.
    dir: PathBuf,
    /// A JSON array of ids in place of the bundled text.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Use only the first N tokens.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Cache sizes to replay, in experts of a layer.
    #[arg(long, value_delimiter = ',', default_value = "8,16,24,32")]
    slots: Vec<usize>,
    /// Policies to replay.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Policy::LfuTotal, Policy::Lfu, Policy::Lru])]
    policy: Vec<Policy>,
    /// Tokens that warm the caches and are not counted.
    #[arg(long, value_name = "N", default_value_t = 32)]
    warm: usize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Write the trace as rows `step,layer,expert`.
    #[arg(long, value_name = "FILE")]
    dump: Option<PathBuf>,
    /// Tokens of a pass through the model.
    #[arg(long, value_name = "N", default_value_t = 256)]
    chunk: usize,
    /// Threads; by default what the engine takes.
    #[arg(long)]
    threads: Option<usize>,
}

/// Everything that is printed.
#[derive(serde::Serialize)]
struct Report {
    model: String,
    tokens: usize,
    distinct_tokens: usize,
    warm: usize,
    hit_rates: Vec<HitRates>,
    routing: Statistics,
    /// Root mean square of the residual behind each layer.
    residual_rms: Vec<f64>,
    logits: Logits,
}

/// One policy.
#[derive(serde::Serialize)]
struct HitRates {
    policy: &'static str,
    /// Cache size and hit rate.
    slots: Vec<(usize, f64)>,
}

/// What the logits look like.
#[derive(Clone, Debug, Default, serde::Serialize)]
struct Logits {
    mean_std: f64,
    largest: f64,
    /// Different tokens that are the most likely one somewhere.
    distinct_argmax: usize,
    /// Positions at which the most frequent of them is the most likely one.
    most_frequent_argmax: usize,
    /// Positions whose own token is the most likely next one.
    echoes: usize,
}

/// What the probe gathers.
struct Gathered {
    trace: Trace,
    /// Sum of squares and count, by layer.
    squares: Vec<(f64, usize)>,
}

struct Gatherer(Arc<Mutex<Gathered>>);

fn locked(gathered: &Mutex<Gathered>) -> MutexGuard<'_, Gathered> {
    gathered.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Probe for Gatherer {
    fn tensor(&mut self, layer: Option<usize>, name: &'static str, _: usize, _: usize, data: &[f32]) {
        if let (Some(layer), "layer_out") = (layer, name) {
            let (sum, count) = &mut locked(&self.0).squares[layer];
            *sum += data.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>();
            *count += data.len();
        }
    }

    fn experts(&mut self, layer: usize, position: usize, ids: &[usize], _: &[f32]) {
        let tokens = &mut locked(&self.0).trace.layers[layer];
        if tokens.len() <= position {
            tokens.resize(position + 1, Vec::new());
        }
        tokens[position] = ids.to_vec();
    }
}

/// Runs the model and prints the report.
pub(crate) fn run(options: &Options) -> Result<()> {
    let ids = corpus::load(options.tokens.as_deref(), options.limit)?;
    let dir = ModelDir::open(&options.dir, Integrity::Receipt)?;
    let (layers, experts, vocab) = {
        let arch = &dir.manifest().arch;
        (arch.num_hidden_layers, arch.num_experts, arch.vocab_size)
    };
    if let Some(id) = ids.iter().find(|&&id| id as usize >= vocab) {
        return Err(wrong_use(format!(
            "token {id} is not in the vocabulary of this model ({vocab} entries); give others with --tokens"
        )));
    }
    let runner_options = RunnerOptions {
        max_context: ids.len(),
        prefill_chunk_tokens: options.chunk.clamp(1, ids.len()),
        precision: Precision::Default,
        threads: options.threads,
        ..RunnerOptions::default()
    };
    let mut runner = Runner::new(dir, &runner_options)?;
    let gathered = Arc::new(Mutex::new(Gathered {
        trace: Trace::new(layers, experts),
        squares: vec![(0.0, 0); layers],
    }));
    runner.set_probe(Some(Box::new(Gatherer(Arc::clone(&gathered)))));
    let logits = run_tokens(&mut runner, &ids)?;
    let gathered = locked(&gathered);
    let trace = &gathered.trace;
    trace
        .tokens()
        .filter(|&n| n == ids.len())
        .context("the model did not report the experts of every token")?;
    if let Some(path) = &options.dump {
        trace.dump(path)?;
    }
    let report = Report {
        model: options.dir.display().to_string(),
        tokens: ids.len(),
        distinct_tokens: ids.iter().collect::<HashSet<_>>().len(),
        warm: options.warm,
        hit_rates: options.policy.iter().map(|&policy| rates(trace, policy, options)).collect(),
        routing: trace.statistics(),
        residual_rms: gathered.squares.iter().map(|&(sum, n)| (sum / n.max(1) as f64).sqrt()).collect(),
        logits,
    };
    if options.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print(&report);
    }
    Ok(())
}

/// Feeds the ids and looks at the logits behind each.
fn run_tokens(runner: &mut Runner, ids: &[u32]) -> Result<Logits> {
    let bar = indicatif::ProgressBar::new(ids.len() as u64);
    let mut out = Logits { largest: f64::NEG_INFINITY, ..Logits::default() };
    let mut uses = std::collections::HashMap::new();
    runner.prefill_each(ids, &mut |i, logits| {
        bar.set_position(i as u64 + 1);
        let n = logits.len() as f64;
        let (mut sum, mut squares, mut best) = (0.0, 0.0, 0);
        for (id, &x) in logits.iter().enumerate() {
            sum += f64::from(x);
            squares += f64::from(x) * f64::from(x);
            if x > logits[best] {
                best = id;
            }
        }
        out.mean_std += (squares / n - (sum / n) * (sum / n)).max(0.0).sqrt();
        out.largest = out.largest.max(f64::from(logits[best]));
        out.echoes += usize::from(best == ids[i] as usize);
        *uses.entry(best).or_insert(0) += 1;
        ControlFlow::Continue(())
    })?;
    bar.finish_and_clear();
    out.mean_std /= ids.len() as f64;
    out.distinct_argmax = uses.len();
    out.most_frequent_argmax = uses.into_values().max().unwrap_or(0);
    Ok(out)
}

fn rates(trace: &Trace, policy: Policy, options: &Options) -> HitRates {
    let rate = |&slots: &usize| (slots, hit_rate(&trace.layers, trace.experts, policy, slots, options.warm));
    HitRates { policy: policy.name(), slots: options.slots.iter().map(rate).collect() }
}

fn print(report: &Report) {
    println!(
        "{}: {} tokens, {} distinct; caches counted after {}",
        report.model, report.tokens, report.distinct_tokens, report.warm
    );
    for row in &report.hit_rates {
        let cells: Vec<String> =
            row.slots.iter().map(|(slots, rate)| format!("{slots} slots {:.1} %", rate * 100.0)).collect();
        println!("hit rate, {:<10} {}", row.policy, cells.join("  "));
    }
    let r = &report.routing;
    let lags: Vec<String> = r.overlap.iter().map(|(lag, share)| format!("{lag}: {share:.3}")).collect();
    println!("overlap with the token before, by distance: {}", lags.join("  "));
    println!(
        "16 hottest experts {:.3} of uses; adjacent-layer Jaccard {:.3}; distinct experts {:.1} a layer, {:.1} in 128 tokens",
        r.top16_share, r.adjacent_jaccard, r.distinct, r.union_128
    );
    let rms: Vec<String> = report.residual_rms.iter().map(|x| format!("{x:.2}")).collect();
    println!("residual rms by layer: {}", rms.join(" "));
    let l = &report.logits;
    println!(
        "logits: std {:.2}, largest {:.1}; argmax: {} distinct, the most frequent one {} times, {} echoes of the token itself",
        l.mean_std, l.largest, l.distinct_argmax, l.most_frequent_argmax, l.echoes
    );
}
