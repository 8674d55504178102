//! `fieldfare doctor`: what this machine is and what to expect of it, before anything is downloaded.
//!
//! `facts` looks and measures, `expect` works out what Gemma 4 26B-A4B would do here, `advice` says what stands in the way
//! and what helps, `show` prints it. Nothing is left behind, and findings, however bad, are no failure.

mod advice;
mod expect;
mod facts;
mod show;

use crate::Outcome;
use crate::args::DoctorArgs;
use crate::ui::output;
use crate::ui::report::statistics;
use crate::ui::style::Style;
use std::io::IsTerminal;

/// Examines the machine.
///
/// # Errors
/// An instruction set, a folder or a model that was asked for and is not there; a closed pipe.
pub fn run(args: &DoctorArgs) -> Outcome {
    if !args.json && !args.quick && std::io::stderr().is_terminal() {
        statistics("measuring memory and disk, a few seconds");
    }
    let facts = facts::gather(args)?;
    let expected = expect::expect(&facts);
    let advice = advice::advise(&facts, &expected);
    let report = show::Report { facts: &facts, expected: &expected, advice: &advice };
    if args.json {
        return output::json_line(&report);
    }
    output::document(show::text(&report, Style::stdout()).as_bytes())
}
