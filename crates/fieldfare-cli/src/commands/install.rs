//! `fieldfare install` and `fieldfare convert`: model directories from a checkpoint, or from one another.

use crate::Outcome;
use crate::args::{ConvertArgs, InstallArgs, LayoutArg};
use crate::failure::Failure;
use crate::ui::progress::{Progress, Unit};
use crate::ui::{output, report};
use crate::{interrupt, locate};
use fieldfare::Error;
use fieldfare::format::{Layout, SIDECAR_DIR};
use fieldfare::install::hub::Remote;
use fieldfare::install::{
    self, ConvertOptions, FetchOptions, InstallOptions, Installed, Preview, Proof, Stage, Surroundings,
    Waiting,
};
use source::Source;
use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

mod source;

/// Time between two lines where no progress bar can be, and between two events.
const LINES: Duration = Duration::from_secs(10);
const EVENTS: Duration = Duration::from_millis(500);
/// Two looks at one wait see its end this much apart at most; the next one's end is later than that.
const SAME_WAIT: Duration = Duration::from_millis(200);

/// Installs a checkpoint, from a folder or over a network.
///
/// # Errors
/// Those of the installer, or Ctrl-C.
pub fn run(args: &InstallArgs) -> Outcome {
    let hub = Surroundings::of_process();
    let source = Source::of(args, &hub)?;
    let output = match &args.output {
        Some(path) => path.clone(),
        None => locate::default_output(&source.name())?,
    };
    if args.discard {
        return discard(&output, args);
    }
    match source {
        Source::Folder(from) => local(from, output, args),
        Source::Remote(remote) => fetch(remote, hub.token, output, args),
    }
}

fn local(from: PathBuf, output: PathBuf, args: &InstallArgs) -> Outcome {
    if args.dry_run {
        return Err(Failure::usage("--dry-run is for sources on a network"));
    }
    let options = InstallOptions { from, output, layout: layout(args.layout), overwrite: args.overwrite };
    let work = Work::begin(args.quiet, args.json);
    let installed = install::install_local(&options, &mut |progress| work.step(progress));
    work.done("installed", installed?, args.output.is_none())
}

fn fetch(remote: Remote, token: Option<String>, output: PathBuf, args: &InstallArgs) -> Outcome {
    let options = FetchOptions {
        token,
        layout: layout(args.layout),
        overwrite: args.overwrite,
        allow_unpinned: args.allow_unpinned,
        prove_source: args.prove_source,
        connections: args.connections,
        range: args.longest_request,
        ..FetchOptions::new(remote, output)
    };
    let work = Work::begin(args.quiet, args.json);
    if args.dry_run {
        let preview = install::preview(&options, &mut |progress| work.step(progress));
        work.progress.clear();
        let again = "check the address and the network, then run the same command again; nothing was written";
        let preview = preview.map_err(|error| match error {
            Error::Network { .. } => Failure::from(error).with_hint(again),
            other => other.into(),
        })?;
        return show(&preview, args.json);
    }
    let installed = install::install_remote(&options, &mut |progress| work.step(progress));
    if let Err(Error::Cancelled) = &installed {
        work.progress.clear();
        report::hint("paused; the same command continues where it stopped, --discard gives it up");
    }
    work.done("installed", installed?, args.output.is_none())
}

fn show(preview: &Preview, json: bool) -> Outcome {
    let output = preview.output.display().to_string();
    if json {
        let line = serde_json::json!({
            "event": "plan", "source": preview.source, "commit": preview.commit, "pinned": preview.pinned,
            "source_bytes": preview.source_bytes, "requests": preview.requests,
            "fetch_bytes": preview.fetch_bytes, "model_bytes": preview.model_bytes,
            "output": output, "free_bytes": preview.free_bytes, "bytes_per_second": preview.bytes_per_second,
        });
        return output::document(format!("{line}\n").as_bytes());
    }
    let commit = preview.commit.as_ref().map(|c| format!(" at commit {c}")).unwrap_or_default();
    let known = if preview.pinned { "known by hash" } else { "hashes not known beforehand" };
    let free = preview.free_bytes.map_or("not known".into(), report::bytes);
    let time =
        preview.fetch_bytes.checked_div(preview.bytes_per_second).map_or("not known".into(), |seconds| {
            let rate = report::bytes(preview.bytes_per_second);
            format!("{} at {rate}/s, measured on one connection", report::span(Duration::from_secs(seconds)))
        });
    let text = format!(
        "source  {}{commit}, {known}\nfetch   {} ({} bytes) of {} in {} requests\nwrite   {} to {output}\nfree    {free}\ntime    {time}\n",
        preview.source,
        report::bytes(preview.fetch_bytes),
        preview.fetch_bytes,
        report::bytes(preview.source_bytes),
        preview.requests,
        report::bytes(preview.model_bytes),
    );
    output::document(text.as_bytes())
}

fn discard(output: &Path, args: &InstallArgs) -> Outcome {
    let found = install::discard(output)?;
    if args.quiet {
        return Ok(());
    }
    let what = if found { "removed the unfinished install of" } else { "no unfinished install of" };
    output::document(format!("{what} {}\n", output.display()).as_bytes())
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
    let source = locate::model(args.source.path(), args.quiet)?;
    let work = Work::begin(args.quiet, false);
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
    json: bool,
    /// When a line was last written, how far it was at the beginning, and the stage.
    told: Cell<Option<Instant>>,
    first: Cell<Option<(Instant, u64)>>,
    /// What is left of the wait that was last heard of.
    waits: Cell<Option<Instant>>,
}

impl Work {
    fn begin(quiet: bool, json: bool) -> Self {
        interrupt::listen();
        let progress = Progress::new("reading", Unit::Bytes, quiet || json);
        let (told, first, waits) = (Cell::new(None), Cell::new(None), Cell::new(None));
        Self { progress, started: Instant::now(), quiet, json, told, first, waits }
    }

    fn step(&self, progress: install::Progress) -> ControlFlow<()> {
        let stage = match progress.stage {
            Stage::Asking => "asking",
            Stage::Fetching => "fetching",
            Stage::Proving => "proving",
            Stage::Verifying => "checking",
            Stage::Writing => "writing",
            Stage::Finishing => "finishing",
        };
        match progress.waiting {
            None => self.progress.say(stage),
            Some(waiting) => self.progress.say(&format!("{stage}, {waiting}")),
        }
        self.progress.set(progress.done, progress.total);
        if self.json || (!self.quiet && !std::io::stderr().is_terminal()) {
            self.tell(stage, progress);
        }
        interrupt::flow()
    }

    /// A line now and then, for logs and programs.
    fn tell(&self, stage: &str, progress: install::Progress) {
        let now = Instant::now();
        self.tell_waiting(stage, progress.waiting);
        if progress.stage == Stage::Fetching && self.first.get().is_none() {
            self.first.set(Some((now, progress.done)));
        }
        let pause = if self.json { EVENTS } else { LINES };
        let last = self.told.get().unwrap_or(self.started);
        if now.duration_since(last) < pause {
            return;
        }
        self.told.set(Some(now));
        let rate = self.first.get().map_or(0, |(since, done)| {
            let seconds = now.duration_since(since).as_secs_f64();
            // A rate for people: fractions of bytes do not matter.
            ((progress.done.saturating_sub(done)) as f64 / seconds.max(1e-3)) as u64
        });
        let install::Progress { done, total, .. } = progress;
        if self.json {
            let line = serde_json::json!({
                "event": "progress", "stage": stage, "done": done, "total": total, "bytes_per_second": rate,
            });
            // Whoever no longer listens to progress still wants the model.
            let _ = writeln!(std::io::stdout(), "{line}");
        } else if total > 0 {
            let left = total.saturating_sub(done).checked_div(rate).map(Duration::from_secs);
            let left = left.map_or(String::new(), |left| format!(", {} left", report::span(left)));
            let text = format!(
                "{stage} {} of {}, {}/s{left}",
                report::bytes(done),
                report::bytes(total),
                report::bytes(rate)
            );
            report::note(&text);
        }
    }

    /// Each wait before another try is said once, when it begins.
    fn tell_waiting(&self, stage: &str, waiting: Option<Waiting>) {
        // A wait is told from others by its end, however seldom it is looked at; waits of several connections are one.
        let Some(waiting) = waiting else { return };
        let end = Instant::now() + waiting.left;
        if self.waits.get().is_some_and(|said| end < said + SAME_WAIT) {
            return;
        }
        self.waits.set(Some(end));
        if self.json {
            let line = serde_json::json!({
                "event": "waiting", "stage": stage, "seconds": waiting.left.as_secs_f64(),
                "reason": waiting.trouble.to_string(),
            });
            // Whoever no longer listens still wants the model.
            let _ = writeln!(std::io::stdout(), "{line}");
        } else {
            report::note(&format!("{stage}: {waiting}"));
        }
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
        if self.json {
            let proof: serde_json::Map<String, serde_json::Value> = installed
                .proof
                .iter()
                .map(|(name, proof)| (name.clone(), format!("{proof:?}").to_lowercase().into()))
                .collect();
            let line = serde_json::json!({
                "event": did, "path": path, "layout": installed.layout.to_string(), "files": installed.files,
                "bytes": installed.bytes, "model_id": installed.model_id, "replaced": installed.replaced,
                "proof": proof, "seconds": self.started.elapsed().as_secs_f64(),
            });
            return output::document(format!("{line}\n").as_bytes());
        }
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
        for (name, proof) in &installed.proof {
            match proof {
                Proof::Proven => report::note(&format!("proven by its hash: {name}")),
                Proof::Partial => report::note(&format!(
                    "fetched in part, so not proven as a whole: {name} (--prove-source does that)"
                )),
                Proof::NoHash => report::note(&format!("the source names no hash of {name}")),
            }
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
