//! `fieldfare-lab talks`: several conversations in turns, as a server has them: what each turn had to read again and how
//! long its first token took, beside the time that as many new tokens take where nothing has to be gone back to.
//!
//! Texts are ids drawn from a seed, so any model directory will do. A turn's prompt is the one before it without its last
//! four ids (the empty thought that history is rendered without), the answer, and what is new.

use crate::wrong_use;
use anyhow::Result;
use clap::Args;
use fieldfare::engine::{Cancel, Engine, EngineOptions, GenerateOptions, Generation, MemoryBudget};
use fieldfare::sample::Sampling;
use fieldfare::sys::{memory, size};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Ids that a prompt ends in and that history does not have.
const EMPTY_THOUGHT: usize = 4;

/// What is said by whom.
#[derive(Args)]
pub(crate) struct Options {
    /// Model directory
    #[arg(long)]
    model: PathBuf,
    /// Memory budget
    #[arg(long, default_value = "6GiB", value_parser = size::parse)]
    memory: u64,
    /// Tokens of a conversation's first prompt; one conversation for each number
    #[arg(long, default_value = "2000", value_delimiter = ',')]
    prompts: Vec<usize>,
    /// Tokens of an answer
    #[arg(long, default_value_t = 32)]
    answer: usize,
    /// New tokens of each further turn
    #[arg(long, default_value_t = 64)]
    more: usize,
    /// Turns of each conversation; they take turns
    #[arg(long, default_value_t = 3)]
    turns: usize,
    /// Between the turns, a short prompt of its own of so many tokens, as for a title; 0 for none
    #[arg(long, default_value_t = 0)]
    title: usize,
    /// Tokens of a full context [default: as many as are needed]
    #[arg(long)]
    max_context: Option<usize>,
    /// Where conversations go that have to give way
    #[arg(long)]
    prompt_cache_dir: Option<PathBuf>,
    /// Seed of the texts
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

struct Ids(u64, u32);

impl Ids {
    fn take(&mut self, count: usize) -> Vec<u32> {
        let mut id = || {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Past the control tokens.
            600 + (self.0 >> 33) as u32 % (self.1 - 600)
        };
        (0..count).map(|_| id()).collect()
    }
}

/// Runs the turns and prints a line for each.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.turns == 0 || options.prompts.iter().any(|&tokens| tokens <= EMPTY_THOUGHT) {
        return Err(wrong_use("a conversation has at least one turn and five tokens"));
    }
    let longest = options.prompts.iter().max().copied().unwrap_or(0);
    let needed = longest + options.turns * (2 * options.answer + 2 * options.more + 64);
    let engine = EngineOptions {
        memory: MemoryBudget::Bytes(options.memory),
        max_context: options.max_context.unwrap_or(needed),
        conversations: 16,
        prompt_cache_dir: options.prompt_cache_dir.clone(),
        ..EngineOptions::default()
    };
    let mut engine = Engine::open(&options.model, engine)?;
    println!("{}", engine.plan());
    let vocabulary = u32::try_from(engine.vocab_size())?;
    if vocabulary <= 600 {
        return Err(wrong_use("the model's vocabulary is too small"));
    }
    let mut ids = Ids(options.seed, vocabulary);
    let mut talks: Vec<Vec<u32>> = options.prompts.iter().map(|&tokens| ids.take(tokens)).collect();
    println!(
        "conversation turn prompt cached new reuse before_ms first_token_s new_per_s | kv_mb slots_per_layer kept files rss_mb"
    );
    for turn in 0..options.turns {
        for (number, prompt) in talks.iter_mut().enumerate() {
            let (answer, before) = ask(&mut engine, prompt, options.answer)?;
            report(&engine, &format!("{number} {turn}"), &answer, before);
            let seconds = answer.timings.time_to_first_token_seconds;
            if turn > 0
                && turn + 1 == options.turns
                && let Some(seconds) = seconds
            {
                // In the last turn only: it leaves a text that nobody goes on with. As many new ids right behind the text that is there: nothing to go back to, nothing to choose.
                let new = prompt.len() - answer.cached_tokens;
                let mut plain = engine.session().cached().to_vec();
                let held = plain.len();
                plain.extend(ids.take(new));
                let (plain, _) = ask(&mut engine, &plain, 1)?;
                anyhow::ensure!(plain.cached_tokens == held, "{} of {held} were there", plain.cached_tokens);
                if let Some(alone) = plain.timings.time_to_first_token_seconds {
                    println!("  {new} new tokens alone: {alone:.3} s; ratio {:.3}", seconds / alone);
                }
            }
            prompt.truncate(prompt.len() - EMPTY_THOUGHT);
            prompt.extend(&answer.token_ids);
            prompt.extend(ids.take(options.more));
        }
        if options.title > 0 {
            let (title, before) = ask(&mut engine, &ids.take(options.title), options.answer)?;
            report(&engine, "title -", &title, before);
        }
    }
    engine.save_conversations();
    for note in engine.conversation_notes() {
        println!("{note}");
    }
    let kept = engine.kept_conversations();
    println!("{} in memory, {} files of {} MB", kept.in_memory, kept.on_disk, kept.disk_bytes / 1_000_000);
    Ok(())
}

/// The answer, and the time before the model was given the first new token: choosing, going back, making room.
fn ask(engine: &mut Engine, prompt: &[u32], made: usize) -> Result<(Generation, Duration)> {
    let options = GenerateOptions {
        sampling: Sampling { temperature: 0.0, ..Sampling::default() },
        max_new: made,
        stop_ids: Some(Vec::new()),
        ..GenerateOptions::default()
    };
    let (start, mut before) = (Instant::now(), None);
    let mut note = |_: fieldfare::engine::Event<'_>| {
        before.get_or_insert_with(|| start.elapsed());
        ControlFlow::Continue(())
    };
    let answer = engine.session().generate(prompt, &options, &Cancel::new(), &mut note)?;
    Ok((answer, before.unwrap_or_default()))
}

fn report(engine: &Engine, who: &str, answer: &Generation, before: Duration) {
    let (stats, kept) = (engine.stats(), engine.kept_conversations());
    let new = answer.prompt_tokens - answer.cached_tokens;
    let first = answer.timings.time_to_first_token_seconds.unwrap_or(f64::NAN);
    println!(
        "{who} {} {} {new} {} {:.1} {first:.3} {:.1} | {} {:.1} {} {} {}",
        answer.prompt_tokens,
        answer.cached_tokens,
        answer.reuse.name(),
        1e3 * before.as_secs_f64(),
        new as f64 / first,
        stats.kv_bytes / 1_000_000,
        stats.slots as f64 / engine.plan().layers as f64,
        kept.in_memory,
        kept.on_disk,
        memory::process().rss.unwrap_or(0) / 1_000_000,
    );
}
