//! `fieldfare man`: manual pages from the same definitions as the help.

use crate::Outcome;
use crate::args::{Cli, ManArgs};
use crate::failure::Failure;
use crate::ui::output;
use clap::CommandFactory;

/// Prints one page, or writes all of them into a folder.
///
/// # Errors
/// An unknown command; write errors.
pub fn run(args: &ManArgs) -> Outcome {
    let mut cli = Cli::command();
    cli.build();
    if let Some(folder) = &args.output {
        // `help` repeats every command below itself; its pages would say nothing new.
        let cli = Cli::command().disable_help_subcommand(true);
        let failed = |error| Failure::failed(format!("cannot write to {}: {error}", folder.display()));
        std::fs::create_dir_all(folder).map_err(failed)?;
        return clap_mangen::generate_to(cli, folder).map_err(failed);
    }
    let page = match &args.command {
        None => cli,
        Some(name) => cli.find_subcommand(name).cloned().ok_or_else(|| {
            Failure::usage(format!("there is no command '{name}'")).with_hint("see `fieldfare --help`")
        })?,
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page)
        .render(&mut text)
        .map_err(|error| Failure::failed(format!("cannot write the page: {error}")))?;
    output::document(&text)
}
