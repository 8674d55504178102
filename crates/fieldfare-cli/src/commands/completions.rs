//! `fieldfare completions SHELL`: from the same definitions as the help.

use crate::Outcome;
use crate::args::{Cli, CompletionsArgs};
use crate::ui::output;
use clap::CommandFactory;

/// Prints the script.
///
/// # Errors
/// A closed pipe or another write error.
pub fn run(args: &CompletionsArgs) -> Outcome {
    // Through memory: the generator itself would panic on a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "fieldfare", &mut script);
    output::document(&script)
}
