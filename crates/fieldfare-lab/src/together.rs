//! `fieldfare-lab together`: the same texts one after the other and side by side, in turns: tokens a second of each way, and
//! whether every answer is the same.
//!
//! Texts are ids drawn from a seed, so any model directory will do. The weights of a synthetic model ask for any expert
//! as often as for another; with `--routing generated` experts are asked for as real texts do, each text by its own
//! favourites: the texts' answers lie at different positions, and what a position asks for depends on its text. Then what
//! the ways could make with everything in memory is known too: the bytes that their steps touch, at the rate at which
//! memory is read between the rounds.

use crate::wrong_use;
use anyhow::Result;
use clap::{Args, ValueEnum};
use fieldfare::engine::{
    Ask, Cancel, Engine, EngineOptions, Event, GenerateOptions, Generation, Listener, MemoryBudget, Sharing,
};
use fieldfare::measure::memory::{MemoryProbe, usual_bytes};
use fieldfare::measure::routing::{RouteShape, Routes};
use fieldfare::measure::traffic::Traffic;
use fieldfare::measure::{best, median};
use fieldfare::model::{Precision, RouteOverride, TOGETHER};
use fieldfare::sample::Sampling;
use fieldfare::sys::{machine, memory, size};
use fieldfare_kernels::Kernels;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Which texts, and in what memory.
#[derive(Args)]
pub(crate) struct Options {
    /// Model directory
    #[arg(long)]
    model: PathBuf,
    /// Memory budget [default: what is free]
    #[arg(long, value_parser = size::parse)]
    memory: Option<u64>,
    /// Texts
    #[arg(long, default_value_t = 4)]
    texts: usize,
    /// Tokens of each answer
    #[arg(long, default_value_t = 64)]
    tokens: usize,
    /// Tokens of the shortest prompt; each further one is longer by so many that answers lie apart
    #[arg(long, default_value_t = 48)]
    prompt: usize,
    /// Times that each way is gone
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Which experts are asked for
    #[arg(long, value_enum, default_value_t = Routing::Model)]
    routing: Routing,
    /// Of generated routing: share of experts that a guess is right about
    #[arg(long, default_value_t = 0.75)]
    recall: f64,
    /// Single precision throughout
    #[arg(long)]
    exact: bool,
    /// Seed of texts, routing and draws
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Routing {
    /// Those that the model's router chooses.
    Model,
    /// As real texts do, each by itself.
    Generated,
}

/// Experts by position: each band of positions is another text.
#[derive(Clone)]
struct Bands {
    texts: Arc<[Routes]>,
    band: usize,
}

impl Bands {
    fn text(&self, position: usize) -> &Routes {
        &self.texts[position / self.band % self.texts.len()]
    }
}

impl Bands {
    /// Bytes that a token touches with its text alone, and in steps that all texts share, means over the answers. Texts
    /// that begin together stay together, so what a step wants of the experts is known.
    fn bytes(&self, model: &Traffic, starts: &[usize], tokens: usize) -> [f64; 2] {
        let (mut alone, mut shared) = (0, 0);
        for step in 1..tokens {
            let contexts: Vec<usize> = starts.iter().map(|start| start + step).collect();
            alone += contexts.iter().map(|&context| model.touched(context)).sum::<u64>();
            let wanted = |layer: usize| {
                let positions = contexts.iter().map(|context| context - 1);
                let all = positions.flat_map(|at| self.text(at).experts(layer, at).iter().copied());
                all.collect::<BTreeSet<u16>>().len() as u64
            };
            let experts = (0..model.layers.len()).map(wanted).sum();
            shared += model.touched_together(&contexts, experts);
        }
        [alone, shared].map(|bytes| bytes as f64 / (starts.len() * (tokens - 1)) as f64)
    }
}

impl RouteOverride for Bands {
    fn choose(&mut self, layer: usize, position: usize, ids: &mut [usize]) {
        for (id, &expert) in ids.iter_mut().zip(self.text(position).experts(layer, position)) {
            *id = usize::from(expert);
        }
    }

    fn guess(&mut self, layer: usize, position: usize, ids: &mut Vec<usize>) {
        ids.clear();
        ids.extend(self.text(position).guesses(layer, position).iter().map(|&expert| usize::from(expert)));
    }
}

/// How the texts are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// One after the other.
    Alone,
    /// All in one step, whatever it brings.
    Fixed,
    /// As a server does it: measured, and what is more goes on.
    Measured,
}

impl Way {
    const ALL: [Self; 3] = [Self::Alone, Self::Fixed, Self::Measured];

    fn name(self) -> &'static str {
        match self {
            Self::Alone => "one after the other",
            Self::Fixed => "side by side",
            Self::Measured => "as measured",
        }
    }
}

/// Runs all ways; false if an answer differs.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if !(2..=TOGETHER).contains(&options.texts) || options.tokens < 2 || options.prompt < 2 {
        return Err(wrong_use(format!(
            "there are 2 to {TOGETHER} texts, with prompts and answers of two tokens at least"
        )));
    }
    let band = (options.prompt + options.tokens + 1).next_multiple_of(64);
    let engine = EngineOptions {
        memory: options.memory.map_or(MemoryBudget::Auto, MemoryBudget::Bytes),
        max_context: options.texts * band,
        conversations: 2 * TOGETHER,
        precision: if options.exact { Precision::Exact } else { Precision::Default },
        ..EngineOptions::default()
    };
    let mut engine = Engine::open(&options.model, engine)?;
    println!("{}", engine.plan());
    let mut bands = None;
    if options.routing == Routing::Generated {
        let config = engine.runner_mut().config();
        let shape = RouteShape {
            layers: config.layers.len(),
            experts: config.num_experts,
            top_k: config.top_k_experts,
        };
        let text = |at| Routes::generate_guessed(shape, 2 * band, options.seed + at, options.recall);
        let texts = (0..options.texts as u64).map(text).collect();
        let routes = Bands { texts, band };
        engine.runner_mut().set_reroute(Some(Box::new(routes.clone())));
        bands = Some(routes);
    }
    let prompts = prompts(options, band, u32::try_from(engine.vocab_size())?)?;
    println!(
        "round, way: tokens a second, seconds with prompts | hits, GB read, slots a layer, KV MB, resident MB"
    );
    let (mut rates, mut wholes): ([Vec<f64>; 3], [Vec<f64>; 3]) = Default::default();
    let (mut wanted, mut same, mut memory) = (None, true, Vec::new());
    for round in 0..options.rounds {
        if bands.is_some() {
            memory.push(memory_rate()?);
        }
        for ((way, rates), wholes) in Way::ALL.into_iter().zip(&mut rates).zip(&mut wholes) {
            // Each way reads the prompts, and finds their experts in the slots.
            engine.session().clear();
            let (before, start) = (engine.stats(), Instant::now());
            let (answers, rate, lines) = answer(&mut engine, way, &prompts, options)?;
            let (after, whole) = (engine.stats(), start.elapsed().as_secs_f64());
            let (hits, misses) = (after.hits - before.hits, after.misses - before.misses);
            println!(
                "{round}, {}: {rate:.2}, {whole:.1} | {:.1} %, {:.2}, {:.1}, {}, {}",
                way.name(),
                100.0 * hits as f64 / (hits + misses).max(1) as f64,
                (after.bytes_read - before.bytes_read) as f64 / 1e9,
                after.slots as f64 / engine.plan().layers.max(1) as f64,
                after.kv_bytes / 1_000_000,
                memory::process().rss.unwrap_or(0) / 1_000_000,
            );
            lines.iter().for_each(|line| println!("    {line}"));
            rates.push(rate);
            wholes.push(whole);
            let ids: Vec<Vec<u32>> = answers.into_iter().map(|answer| answer.token_ids).collect();
            let wanted = wanted.get_or_insert_with(|| ids.clone());
            if *wanted != ids {
                same = false;
                println!("    answers differ");
            }
        }
    }
    let middle = |at: usize| median(&rates[at]).unwrap_or(f64::NAN);
    let whole = |at: usize| median(&wholes[at]).unwrap_or(f64::NAN);
    for (at, way) in Way::ALL.into_iter().enumerate() {
        println!(
            "{}: {:.2} tokens a second, {:.2} times one after the other; with prompts {:.1} s, {:.2} times as quick",
            way.name(),
            middle(at),
            middle(at) / middle(0),
            whole(at),
            whole(0) / whole(at)
        );
    }
    if let Some(bands) = &bands {
        memory.push(memory_rate()?);
        let model = Traffic::of(engine.model_dir(), if options.exact { 4 } else { 2 })?;
        let starts: Vec<usize> = prompts.iter().map(Vec::len).collect();
        let [alone, shared] = bands.bytes(&model, &starts, options.tokens);
        let rate = median(&memory).unwrap_or(f64::NAN);
        let listed: Vec<String> = memory.iter().map(|rate| format!("{:.1}", rate / 1e9)).collect();
        println!("memory, GB/s before each round and at the end: {}", listed.join(", "));
        for (name, bytes, reached) in [("alone", alone, middle(0)), ("side by side", shared, middle(1))] {
            println!(
                "{name}: {:.2} GB a token, {:.2} tokens a second at the rate of memory, of which {:.2} reached",
                bytes / 1e9,
                rate / bytes,
                reached * bytes / rate
            );
        }
        println!("the bytes allow {:.2} times one after the other", alone / shared);
    }
    println!("{}", if same { "all answers are the same" } else { "answers differ" });
    Ok(same)
}

/// Bytes a second that memory gives to all threads.
fn memory_rate() -> Result<f64> {
    let bytes = usual_bytes(memory::room().free(), machine::largest_cache());
    let mut probe = MemoryProbe::new(Kernels::detect(), machine::cores(), bytes)?;
    let samples: Vec<f64> = (0..5).map(|_| probe.sample(Duration::from_millis(60))).collect();
    Ok(best(&samples))
}

/// One prompt for each text; the end of each is another band.
fn prompts(options: &Options, band: usize, vocabulary: u32) -> Result<Vec<Vec<u32>>> {
    const CONTROL: u32 = 600;
    if vocabulary <= CONTROL {
        return Err(wrong_use("the model's vocabulary is too small"));
    }
    let mut state = options.seed;
    let mut id = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        CONTROL + (state >> 33) as u32 % (vocabulary - CONTROL)
    };
    let lengths = (0..options.texts).map(|at| at * band + options.prompt);
    Ok(lengths.map(|length| (0..length).map(|_| id()).collect()).collect())
}

fn wish(options: &Options, text: usize) -> GenerateOptions {
    GenerateOptions {
        sampling: Sampling {
            temperature: 1.0,
            seed: Some(options.seed + text as u64),
            ..Sampling::default()
        },
        max_new: options.tokens,
        stop_ids: Some(Vec::new()),
        ..GenerateOptions::default()
    }
}

/// Hears of tokens and ends.
#[derive(Default)]
struct Ear {
    /// Texts that have begun.
    spoke: Vec<u64>,
    /// Tokens made since all had.
    made: usize,
    since: Option<Instant>,
    texts: usize,
    ended: Vec<(u64, fieldfare::Result<Generation>)>,
}

impl Listener for Ear {
    fn ready(&mut self, _: u64) -> bool {
        true
    }

    fn event(&mut self, number: u64, event: Event<'_>) -> ControlFlow<()> {
        if matches!(event, Event::Token { .. }) {
            self.made += usize::from(self.since.is_some());
            if !self.spoke.contains(&number) {
                self.spoke.push(number);
                if self.spoke.len() == self.texts {
                    self.since = Some(Instant::now());
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn ended(&mut self, number: u64, result: fieldfare::Result<Generation>) {
        self.ended.push((number, result));
    }
}

/// The answers in order, tokens a second once all prompts were read, and what was said.
fn answer(
    engine: &mut Engine,
    way: Way,
    prompts: &[Vec<u32>],
    options: &Options,
) -> Result<(Vec<Generation>, f64, Vec<String>)> {
    if way == Way::Alone {
        let (mut answers, mut seconds, mut tokens) = (Vec::new(), 0.0, 0);
        for (text, prompt) in prompts.iter().enumerate() {
            let mut ignore = |_: Event<'_>| ControlFlow::Continue(());
            let answer =
                engine.session().generate(prompt, &wish(options, text), &Cancel::new(), &mut ignore)?;
            seconds += answer.timings.decode_seconds;
            tokens += answer.token_ids.len() - 1;
            answers.push(answer);
        }
        return Ok((answers, tokens as f64 / seconds, Vec::new()));
    }
    let mut ear = Ear { texts: prompts.len(), ..Ear::default() };
    let mut together = engine.together(prompts.len(), way == Way::Fixed);
    // The longest prompt first: the others' answers wait for it no longer than they must.
    for (text, prompt) in prompts.iter().enumerate().rev() {
        let (number, prompt, options) = (text as u64, prompt.clone(), wish(options, text));
        together.add(Ask { number, prompt, options, cancel: Cancel::new() }, &mut ear);
    }
    let mut lines = Vec::new();
    while together.turn(&mut ear) {
        lines.extend(together.notes());
    }
    let Sharing { now, most, .. } = together.sharing();
    if way == Way::Measured {
        lines.push(format!("at the end {now} of {most} share a step"));
    }
    drop(together);
    let seconds = ear.since.map_or(f64::NAN, |since| since.elapsed().as_secs_f64());
    let mut ended = ear.ended;
    ended.sort_by_key(|&(number, _)| number);
    let answers = ended.into_iter().map(|(_, result)| result).collect::<fieldfare::Result<Vec<_>>>()?;
    anyhow::ensure!(answers.len() == prompts.len(), "not all have ended");
    Ok((answers, ear.made as f64 / seconds, lines))
}
