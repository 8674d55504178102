//! `fieldfare verify`: sizes, hashes and structure of a model directory, without loading the model.

use crate::Outcome;
use crate::args::VerifyArgs;
use crate::ui::progress::{Progress, Unit};
use crate::ui::{output, report};
use crate::{interrupt, locate};
use fieldfare::format::{self, ReceiptOutcome, VerifyOptions, VerifyProgress, VerifyReport};
use std::time::{Duration, Instant};

/// Strays that are named one by one.
const STRAYS_SHOWN: usize = 20;

/// Verifies the directory.
///
/// # Errors
/// The first fault; the others have been printed by then.
pub fn run(args: &VerifyArgs) -> Outcome {
    let directory = locate::model(args.place.path(), args.quiet)?;
    interrupt::listen();
    let started = Instant::now();
    let progress = Progress::new("checking", Unit::Bytes, args.quiet);
    let mut faults = Vec::new();
    let result = format::verify(&directory, &VerifyOptions::default(), &mut |step| {
        match step {
            VerifyProgress::File { path, .. } => progress.say(&format!("checking {path}")),
            VerifyProgress::Bytes { done, total } => progress.set(done, total),
            VerifyProgress::Fault { message } => faults.push(message.to_owned()),
        }
        interrupt::flow()
    });
    progress.clear();
    if result.is_err() && faults.len() > 1 && !args.quiet {
        // The error that follows is the first; people want to know all.
        for fault in &faults {
            report::warning(fault);
        }
    }
    let report = result?;
    summary(&report, &directory.display().to_string(), started.elapsed(), args.quiet)
}

fn summary(report: &VerifyReport, directory: &str, time: Duration, quiet: bool) -> Outcome {
    for warning in &report.warnings {
        report::warning(warning);
    }
    for stray in report.strays.iter().take(STRAYS_SHOWN) {
        report::warning(&format!("{stray} is no part of the model"));
    }
    if report.strays.len() > STRAYS_SHOWN {
        report::warning(&format!("and {} other entries", report.strays.len() - STRAYS_SHOWN));
    }
    if let ReceiptOutcome::Failed(reason) = &report.receipt {
        report::warning(&format!("the receipt could not be written: {reason}"));
    }
    if quiet {
        return Ok(());
    }
    let files = report::count(report.files, "file");
    let size = report::bytes(report.bytes);
    let speed = report::bytes((report.bytes as f64 / time.as_secs_f64().max(1e-9)) as u64);
    output::document(
        format!(
            "ok: {directory} ({}, {}), {files}, {size} in {} ({speed}/s)\n",
            report.model_id,
            report.layout,
            report::span(time)
        )
        .as_bytes(),
    )
}
