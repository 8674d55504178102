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
    collections::{HashMap, HashSet},
    io::Write as _,
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
    /// Tokens that warm the caches and are not counted [default: 32, or all given ones with --generate].
    #[arg(long, value_name = "N")]
    warm: Option<usize>,
    /// Behind the given tokens, let the model go on with N tokens of its own choice (the most likely ones).
    #[arg(long, value_name = "N", default_value_t = 0)]
    generate: usize,
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
            // one after the other, so that the sum does not depend on the length of a pass
            *sum = data.iter().fold(*sum, |sum, &x| sum + f64::from(x) * f64::from(x));
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
    let report = measure(options)?;
    let mut out = std::io::stdout().lock();
    if options.json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
    } else {
        print(&report, &mut out)?;
    }
    Ok(())
}

fn measure(options: &Options) -> Result<Report> {
    let mut ids = corpus::load(options.tokens.as_deref(), options.limit)?;
    let warm = options.warm.unwrap_or(if options.generate > 0 { ids.len() } else { 32 });
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
        max_context: ids.len() + options.generate,
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
    let logits = run_tokens(&mut runner, &mut ids, options.generate)?;
    let gathered = locked(&gathered);
    let trace = &gathered.trace;
    trace
        .tokens()
        .filter(|&n| n == ids.len())
        .context("the model did not report the experts of every token")?;
    if let Some(path) = &options.dump {
        trace.dump(path)?;
    }
    Ok(Report {
        model: options.dir.display().to_string(),
        tokens: ids.len(),
        distinct_tokens: ids.iter().collect::<HashSet<_>>().len(),
        warm,
        hit_rates: options.policy.iter().map(|&policy| rates(trace, policy, warm, options)).collect(),
        routing: trace.statistics(),
        residual_rms: gathered.squares.iter().map(|&(sum, n)| (sum / n.max(1) as f64).sqrt()).collect(),
        logits,
    })
}

/// Feeds the ids, then `generate` of the model's own, and looks at the logits behind each. The own ones are appended.
fn run_tokens(runner: &mut Runner, ids: &mut Vec<u32>, generate: usize) -> Result<Logits> {
    let bar = indicatif::ProgressBar::new((ids.len() + generate) as u64);
    let mut seen = Seen::default();
    runner.prefill_each(ids, &mut || ControlFlow::Continue(()), &mut |i, logits| {
        seen.look(ids[i], logits);
        bar.inc(1);
        ControlFlow::Continue(())
    })?;
    for _ in 0..generate {
        let id = seen.best;
        ids.push(id);
        seen.look(id, runner.decode(id)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(seen.logits(ids.len()))
}

/// Sums for [`Logits`].
#[derive(Default)]
struct Seen {
    std: f64,
    largest: f32,
    echoes: usize,
    uses: HashMap<u32, usize>,
    /// The most likely token behind the newest one.
    best: u32,
}

impl Seen {
    fn look(&mut self, id: u32, logits: &[f32]) {
        let n = logits.len() as f64;
        let (mut sum, mut squares, mut best) = (0.0, 0.0, (0, f32::NEG_INFINITY));
        for (id, &x) in (0..).zip(logits) {
            sum += f64::from(x);
            squares += f64::from(x) * f64::from(x);
            if x > best.1 {
                best = (id, x);
            }
        }
        self.std += (squares / n - (sum / n) * (sum / n)).max(0.0).sqrt();
        self.largest = self.largest.max(best.1);
        self.echoes += usize::from(best.0 == id);
        *self.uses.entry(best.0).or_insert(0) += 1;
        self.best = best.0;
    }

    fn logits(&self, tokens: usize) -> Logits {
        Logits {
            mean_std: self.std / tokens as f64,
            largest: f64::from(self.largest),
            distinct_argmax: self.uses.len(),
            most_frequent_argmax: self.uses.values().copied().max().unwrap_or(0),
            echoes: self.echoes,
        }
    }
}

fn rates(trace: &Trace, policy: Policy, warm: usize, options: &Options) -> HitRates {
    let rate = |&slots: &usize| (slots, hit_rate(&trace.layers, trace.experts, policy, slots, warm));
    HitRates { policy: policy.name(), slots: options.slots.iter().map(rate).collect() }
}

fn print(report: &Report, out: &mut impl std::io::Write) -> std::io::Result<()> {
    let Report { model, tokens, distinct_tokens, warm, .. } = report;
    writeln!(out, "{model}: {tokens} tokens, {distinct_tokens} distinct; caches counted after {warm}")?;
    for row in &report.hit_rates {
        let cells: Vec<String> =
            row.slots.iter().map(|(slots, rate)| format!("{slots} slots {:.1} %", rate * 100.0)).collect();
        writeln!(out, "hit rate, {:<10} {}", row.policy, cells.join("  "))?;
    }
    let r = &report.routing;
    let lags: Vec<String> = r.overlap.iter().map(|(lag, share)| format!("{lag}: {share:.3}")).collect();
    writeln!(out, "overlap with the token before, by distance: {}", lags.join("  "))?;
    writeln!(out, "16 hottest experts: {:.3} of all uses", r.top16_share)?;
    writeln!(out, "neighbouring layers: Jaccard {:.3}", r.adjacent_jaccard)?;
    writeln!(out, "distinct experts of a layer: {:.1}; within 128 tokens {:.1}", r.distinct, r.union_128)?;
    let rms: Vec<String> = report.residual_rms.iter().map(|x| format!("{x:.2}")).collect();
    writeln!(out, "residual rms by layer: {}", rms.join(" "))?;
    let l = &report.logits;
    writeln!(out, "logits: std {:.2}, largest {:.1}", l.mean_std, l.largest)?;
    writeln!(
        out,
        "most likely tokens: {} distinct, the commonest {} times, {} times the input token itself",
        l.distinct_argmax, l.most_frequent_argmax, l.echoes
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synth;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(line: &[&str]) -> Options {
        Line::parse_from(std::iter::once(&"routing").chain(line)).options
    }

    #[test]
    fn a_tiny_model_is_sane_and_described_in_full() {
        let temp = tempfile::tempdir().unwrap();
        let (dir, tokens) = (temp.path().join("tiny"), temp.path().join("tokens.json"));
        synth::tiny(&dir).unwrap();
        let ids: Vec<u32> = (0..160).map(|i| (i * i * 31 + i * 7) % 512).collect();
        std::fs::write(&tokens, serde_json::to_string(&ids).unwrap()).unwrap();
        let common = [
            dir.to_str().unwrap(),
            "--tokens",
            tokens.to_str().unwrap(),
            "--slots",
            "4,8,16",
            "--generate",
            "8",
        ];
        let run = |more: &[&str]| measure(&options(&[&common[..], more].concat())).unwrap();
        let report = run(&["--threads", "1"]);
        assert_eq!((report.tokens, report.warm), (168, 160));
        for rates in &report.hit_rates {
            let values: Vec<f64> = rates.slots.iter().map(|&(_, rate)| rate).collect();
            assert!(values.is_sorted() && values[2] > 0.9, "{}: {values:?}", rates.policy);
        }
        assert_eq!(report.residual_rms.len(), 6);
        assert!(report.residual_rms.iter().all(|rms| (0.3..3.0).contains(rms)), "{:?}", report.residual_rms);
        let logits = &report.logits;
        assert!((1.5..5.0).contains(&logits.mean_std), "{logits:?}");
        assert!(logits.distinct_argmax > 40 && logits.echoes < 40, "{logits:?}");
        // what one pass and thread give, many passes and threads give
        let again = run(&["--threads", "2", "--chunk", "7"]);
        let plain = measure(&options(&common[..5])).unwrap();
        assert_eq!((plain.tokens, plain.warm), (160, 32));
        assert_eq!(serde_json::to_string(&again).unwrap(), serde_json::to_string(&report).unwrap());
    }

    #[test]
    fn ids_outside_the_vocabulary_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("tiny");
        synth::tiny(&dir).unwrap();
        let error = measure(&options(&[dir.to_str().unwrap()])).err().unwrap();
        assert!(error.downcast_ref::<crate::WrongUse>().is_some(), "{error}");
    }
}
