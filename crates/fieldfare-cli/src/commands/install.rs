//! `fieldfare install` and `fieldfare convert`: model directories from a checkpoint, or from one another.

use crate::Outcome;
use crate::args::{ConvertArgs, InstallArgs, LayoutArg};
use crate::ui::progress::{Progress, Unit};
use crate::ui::{output, report};
use crate::{interrupt, locate};
use fieldfare::format::{Layout, SIDECAR_DIR};
use fieldfare::install::{self, ConvertOptions, InstallOptions, Installed, Stage};
use std::ops::ControlFlow;
use std::time::Instant;

/// Installs a local checkpoint.
///
/// # Errors
/// Those of the installer, or Ctrl-C.
pub fn run(args: &InstallArgs) -> Outcome {
    let output = match &args.output {
        Some(path) => path.clone(),
        None => locate::default_output(&args.from)?,
    };
    let found_by_itself = args.output.is_none();
    let options = InstallOptions {
        from: args.from.clone(),
        output,
        layout: layout(args.layout),
        overwrite: args.overwrite,
    };
    let work = Work::begin(args.quiet);
    let installed = install::install_local(&options, &mut |progress| work.step(progress));
    work.done("installed", installed?, found_by_itself)
}

/// Converts a model directory.
///
/// # Errors
/// Those of the converter, or Ctrl-C.
pub fn convert(args: &ConvertArgs) -> Outcome {
    let options = ConvertOptions {
        layout: layout(args.layout),
        output: args.output.clone(),
        overwrite: args.overwrite,
    };
    let source = locate::model(Some(&args.source), args.quiet)?;
    let work = Work::begin(args.quiet);
    let installed = install::convert(&source, &options, &mut |progress| work.step(progress));
    work.done("converted", installed?, false)
}

fn layout(arg: LayoutArg) -> Layout {
    match arg {
        LayoutArg::Tiled => Layout::Tiled,
        LayoutArg::V1 => Layout::V1,
    }
}

/// What both have in common: progress, Ctrl-C, the closing remarks.
struct Work {
    progress: Progress,
    started: Instant,
    quiet: bool,
}

impl Work {
    fn begin(quiet: bool) -> Self {
        interrupt::listen();
        let progress = Progress::new("reading", Unit::Bytes, quiet);
        Self { progress, started: Instant::now(), quiet }
    }

    fn step(&self, progress: install::Progress) -> ControlFlow<()> {
        self.progress.say(match progress.stage {
            Stage::Verifying => "checking",
            Stage::Writing => "writing",
            Stage::Finishing => "finishing",
        });
        self.progress.set(progress.done, progress.total);
        interrupt::flow()
    }

    fn done(self, did: &str, installed: Installed, found_by_itself: bool) -> Outcome {
        self.progress.clear();
        for warning in &installed.warnings {
            report::warning(warning);
        }
        if self.quiet {
            return Ok(());
        }
        let path = installed.path.display().to_string();
        let size = report::bytes(installed.bytes);
        let files = report::count(installed.files, "file");
        let time = report::span(self.started.elapsed());
        output::document(
            format!("{did} {path} ({}, {files}, {size}) in {time}\n", installed.layout).as_bytes(),
        )?;
        if installed.dropped_tensors > 0 {
            let dropped = report::count(installed.dropped_tensors, "vision and audio tensor");
            report::note(&format!("left out: {dropped}"));
        }
        if installed.replaced {
            report::note("replaced the model that was there");
        }
        let model = if found_by_itself { String::new() } else { format!(" --model {}", shell_word(&path)) };
        let next = if installed.path.join(SIDECAR_DIR).join("tokenizer.json").is_file() {
            format!("talk with it: fieldfare chat{model}")
        } else {
            format!("without a tokenizer it works on ids: fieldfare generate --tokens-file FILE{model}")
        };
        report::hint(&next);
        Ok(())
    }
}

/// A path as a person can paste it into a shell.
fn shell_word(path: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+:\\".contains(c);
    if path.chars().all(plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::shell_word;

    #[test]
    fn paths_can_be_pasted() {
        assert_eq!(shell_word("/a/b-c.gturbo"), "/a/b-c.gturbo");
        assert_eq!(shell_word("/my models/it's"), r"'/my models/it'\''s'");
    }
}
