//! One file for each command.

pub mod completions;
pub mod man;

use crate::Outcome;
use crate::args::Command;

/// Carries out a command.
///
/// # Errors
/// Why it did not end well.
pub fn run(command: Command) -> Outcome {
    match command {
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
        _ => unreachable!(),
    }
}
