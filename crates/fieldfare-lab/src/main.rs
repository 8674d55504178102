//! The developers' tool: synthetic models, routing traces, fixture cases. Never shipped to users.
//!
//! Exit codes: 0 done, 1 failure (or failed cases), 2 wrong use.

mod cache;
mod cases;
mod corpus;
mod evaluate;
mod grammar;
mod hub;
mod load;
mod routing;
mod synth;
mod talks;
mod together;
mod tokenizer;
mod trace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Developers' tool of Fieldfare.
#[derive(Parser)]
#[command(name = "fieldfare-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write a synthetic model directory from a seed.
    Synth(synth::Options),
    /// Run a model over a text, each token given, and describe which experts it used.
    Routing(routing::Options),
    /// Run a file of fixture cases (chat, parser, tokenizer or detokenizer).
    Cases(cases::Options),
    /// Hold a trained model against its cases, its reference and their thresholds.
    Evaluate(evaluate::Options),
    /// Write the real checkpoint without its weights: sparse files of the true sizes.
    SparseSource(hub::SparseOptions),
    /// Copy, hash and flush as many bytes as an install fetches, for comparison.
    PlainCopy(hub::CopyOptions),
    /// Serve a checkpoint on the loopback interface as a model hub does.
    Hub(hub::HubOptions),
    /// Hold several conversations in turns and say what each turn read again.
    Talks(talks::Options),
    /// Answer several texts one after the other and side by side, and say how fast each way is.
    Together(together::Options),
    /// Be many clients of a running server, half of which vanish.
    Load(load::Options),
    /// Measure what grammars cost over a tokenizer.
    Grammar(grammar::Options),
    /// Measure loading, memory and speed of a tokenizer.
    Tokenizer(tokenizer::Options),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Synth(options) => synth::run(&options).map(|()| true),
        Command::Routing(options) => routing::run(&options).map(|()| true),
        Command::Cases(options) => cases::run(&options),
        Command::Evaluate(options) => evaluate::run(&options),
        Command::SparseSource(options) => hub::sparse(&options).map(|()| true),
        Command::PlainCopy(options) => hub::copy(&options).map(|()| true),
        Command::Hub(options) => hub::serve(&options).map(|()| true),
        Command::Talks(options) => talks::run(&options).map(|()| true),
        Command::Together(options) => together::run(&options),
        Command::Load(options) => load::run(&options),
        Command::Grammar(options) => grammar::run(&options).map(|()| true),
        Command::Tokenizer(options) => tokenizer::run(&options),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            let wrong_use = error.downcast_ref::<WrongUse>().is_some();
            ExitCode::from(if wrong_use { 2 } else { 1 })
        }
    }
}

/// An error of the person at the keyboard: exit code 2.
#[derive(Debug)]
struct WrongUse(String);

impl std::fmt::Display for WrongUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongUse {}

/// A [`WrongUse`] as an error to return.
fn wrong_use(message: impl Into<String>) -> anyhow::Error {
    WrongUse(message.into()).into()
}
