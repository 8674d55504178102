//! One file for each command, and `answer` for what two of them share.

pub mod answer;
pub mod bench;
pub mod chat;
pub mod completions;
pub mod doctor;
pub mod generate;
pub mod inspect;
pub mod install;
pub mod man;
pub mod score;
pub mod serve;
pub mod verify;

use crate::Outcome;
use crate::args::Command;

/// Carries out a command.
///
/// # Errors
/// Why it did not end well.
pub fn run(command: Command) -> Outcome {
    match command {
        Command::Install(args) => install::run(&args),
        Command::Convert(args) => install::convert(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Chat(args) => chat::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Score(args) => score::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}
