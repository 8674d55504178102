//! The `fieldfare` command as a library, so that everything but `main` is testable.
//!
//! `args` says what can be asked for, `commands` does it, `ui` shows it. What the commands share: `locate` finds the
//! model, `demo` the one that is built in, `input` reads texts, tokens and messages, `interrupt` turns Ctrl-C into a clean stop, `failure` into exit
//! codes and the two lines that people see.

pub mod args;
pub mod commands;
pub mod demo;
pub mod failure;
pub mod input;
pub mod interrupt;
pub mod locate;
pub mod ui;

use args::Cli;
use clap::Parser;
use failure::Failure;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the command line and gives its exit code; errors have been printed.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    fieldfare::sys::fault::explain();
    let outcome = match Cli::try_parse_from(&args) {
        Ok(cli) => commands::run(cli.command),
        Err(error) => failure::from_clap(&error, args.get(1).and_then(|arg| arg.to_str())),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report();
            ExitCode::from(failure.exit_code())
        }
    }
}

/// What every command returns.
pub type Outcome<T = ()> = Result<T, Failure>;
