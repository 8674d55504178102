//! Long jobs: downloading, checking, unpacking. All of them can be stopped at any time and gone on with.

use super::{flow, tell};
use crate::message::{Offer, Step};
use crate::models;
use crate::trouble::{OFFLINE, sentence, trouble};
use crate::wire::{Source, Told};
use fieldfare::format::{self, VerifyOptions, VerifyProgress};
use fieldfare::install::{self, FetchOptions, Progress, Stage, Surroundings};
use fieldfare::sys::{file, volume};
use fieldfare::{Error, Result};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Between two steps that are told.
const PAUSE: Duration = Duration::from_millis(100);
/// The rate is that of so long a time.
const WINDOW: Duration = Duration::from_secs(8);
/// From here on a network that brings nothing is worth a word.
const SILENCE: Duration = Duration::from_secs(4);

/// Tells how far a job is, at a human pace.
struct Teller {
    told: Option<Instant>,
    seen: VecDeque<(Instant, u64)>,
    /// When it last came on.
    moved: Instant,
}

impl Teller {
    fn new() -> Self {
        Self { told: None, seen: VecDeque::new(), moved: Instant::now() }
    }

    fn step(&mut self, stage: &str, done: u64, total: u64) -> ControlFlow<()> {
        let now = Instant::now();
        if self.told.is_none_or(|told| now.duration_since(told) >= PAUSE) {
            self.told = Some(now);
            tell(&Told::Step(self.at(now, stage, done, total)));
        }
        flow()
    }

    fn at(&mut self, now: Instant, stage: &str, done: u64, total: u64) -> Step {
        if self.seen.back().is_none_or(|(_, last)| done != *last) {
            self.moved = now;
        }
        // Hashing again what is there already goes back to the start: a new count.
        if self.seen.back().is_some_and(|(_, last)| done < *last) {
            self.seen.clear();
        }
        self.seen.push_back((now, done));
        while self.seen.len() > 2 && self.seen.get(1).is_some_and(|(at, _)| now.duration_since(*at) > WINDOW)
        {
            self.seen.pop_front();
        }
        let rate = self.seen.front().map_or(0.0, |(since, from)| {
            (done - from) as f64 / now.duration_since(*since).as_secs_f64().max(1e-3)
        });
        let quiet = now.duration_since(self.moved);
        Step {
            stage: stage.to_owned(),
            done_bytes: done,
            total_bytes: total,
            bytes_per_second: rate as u64,
            seconds_left: (rate >= 1.0).then(|| ((total.saturating_sub(done)) as f64 / rate).ceil() as u64),
            note: (quiet >= SILENCE && stage == FETCHING)
                .then(|| format!("Nothing has come for {} s; trying again and again.", quiet.as_secs())),
        }
    }
}

/// The stage that a network holds up.
const FETCHING: &str = "Downloading";

fn stage(progress: Progress) -> &'static str {
    match progress.stage {
        Stage::Asking => "Asking what there is",
        Stage::Fetching => FETCHING,
        Stage::Proving => "Checking what came",
        Stage::Verifying => "Checking",
        Stage::Writing => "Writing",
        Stage::Finishing => "Finishing",
    }
}

/// How often the hub is asked what there is before the window is told that it does not answer. A download is more patient.
const ASKS: u32 = 4;

/// As the command line does: the token and what else the hub's own tools know.
fn options(source: &Source, target: &Path) -> Result<FetchOptions> {
    let hub = Surroundings::of_process();
    if hub.offline {
        return Err(Error::bad(OFFLINE, "it is set, so the network may not be used"));
    }
    Ok(FetchOptions {
        token: hub.token,
        allow_unpinned: source.unpinned,
        ..FetchOptions::new(source.remote(), target)
    })
}

/// What a download would be. That it cannot begin is a part of the answer.
pub(super) fn offer(source: &Source, target: &Path) -> Result<Offer> {
    let mut offer = Offer {
        name: models::known_name(),
        target: target.to_path_buf(),
        fetch_bytes: 0,
        kept_bytes: 0,
        need_bytes: 0,
        free_bytes: 0,
        obstacle: None,
    };
    let place = target.ancestors().find(|place| place.is_dir()).unwrap_or_else(|| Path::new("."));
    offer.free_bytes = file::free_space(place).unwrap_or(0);
    if target.exists() {
        offer.obstacle = Some(format!("There is a model already: {}.", target.display()));
        return Ok(offer);
    }
    let preview = options(source, target).and_then(|mut options| {
        options.patience.tries = options.patience.tries.min(ASKS);
        install::preview(&options, &mut |_| flow())
    });
    match preview {
        Ok(preview) => {
            offer.fetch_bytes = preview.fetch_bytes;
            offer.kept_bytes = preview.kept_bytes;
            offer.need_bytes = preview.model_bytes;
            let held = if preview.kept_bytes > 0 { held(target) } else { 0 };
            if let Some(free) = preview.free_bytes
                && free.saturating_add(held) < preview.model_bytes
            {
                let short = (preview.model_bytes - free - held) as f64 / 1e9;
                offer.obstacle = Some(format!(
                    "{short:.1} GB more must be free there. Free some space, or choose another folder."
                ));
            }
        }
        Err(Error::Cancelled) => return Err(Error::Cancelled),
        Err(Error::Network { url, reason }) => {
            offer.obstacle = Some(format!(
                "The model hub does not answer. Check the network and ask again, or choose a folder that has the model. ({url}: {reason})"
            ));
        }
        Err(error) => {
            let said = trouble(&error);
            offer.obstacle = Some(format!("{} {}", said.message, said.remedy).trim_end().to_owned());
        }
    }
    Ok(offer)
}

/// Bytes that an unfinished download has on the disk, those reserved for it included.
fn held(target: &Path) -> u64 {
    let mut name = target.as_os_str().to_owned();
    name.push(".partial");
    let mut folders = vec![PathBuf::from(name)];
    let mut bytes = 0u64;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().filter_map(std::io::Result::ok) {
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => folders.push(entry.path()),
                Ok(meta) if meta.is_file() => bytes = bytes.saturating_add(volume::allocated(&meta)),
                _ => {}
            }
        }
    }
    bytes
}

/// Downloads, or goes on.
pub(super) fn install(source: &Source, target: &Path) -> Result<String> {
    let mut teller = Teller::new();
    let installed = install::install_remote(&options(source, target)?, &mut |progress| {
        teller.step(stage(progress), progress.done, progress.total)
    })?;
    let warnings: String =
        installed.warnings.iter().map(|warning| format!(" {}", sentence(warning))).collect();
    Ok(format!("The model is installed in {}.{warnings}", installed.path.display()))
}

/// Throws an unfinished download away.
pub(super) fn discard(target: &Path) -> Result<String> {
    let found = install::discard(target)?;
    Ok(if found { "The unfinished download is gone." } else { "There was no unfinished download." }
        .to_owned())
}

/// Reads every byte of a model.
pub(super) fn verify(model: &Path) -> Result<String> {
    let mut teller = Teller::new();
    let report = format::verify(model, &VerifyOptions::default(), &mut |progress| match progress {
        VerifyProgress::Bytes { done, total } => teller.step("Checking", done, total),
        _ => flow(),
    })?;
    let stray = match report.strays.len() {
        0 => String::new(),
        1 => format!(" One file does not belong there: {}.", report.strays[0]),
        more => format!(" {more} files do not belong there, {} among them.", report.strays[0]),
    };
    Ok(format!(
        "All {} files are as they must be ({:.1} GB).{stray}",
        report.files,
        report.bytes as f64 / 1e9
    ))
}

/// Unpacks the demonstration model.
pub(super) fn demo(folders: &[PathBuf]) -> Result<String> {
    let mut teller = Teller::new();
    let ready = fieldfare_demo::ensure_in(folders, &mut |step| match step {
        fieldfare_demo::Step::Waiting => teller.step("Waiting for another program that does the same", 0, 0),
        fieldfare_demo::Step::Unpacking { done, total } => teller.step("Unpacking", done, total),
    })?;
    Ok(format!("The demonstration model is in {}.", ready.path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_and_time_left_are_those_of_the_last_seconds_and_silence_is_told() {
        let mut teller = Teller::new();
        let start = Instant::now();
        let mut at =
            |seconds: u64, done: u64| teller.at(start + Duration::from_secs(seconds), FETCHING, done, 10_000);
        assert_eq!((at(0, 1000).bytes_per_second, at(0, 1000).seconds_left), (0, None));
        let step = at(2, 3000);
        assert_eq!((step.bytes_per_second, step.seconds_left, step.note), (1000, Some(7), None));
        // A fast second does not count for ever.
        for second in 3..40 {
            at(second, 3000 + second);
        }
        assert!(at(40, 3040).bytes_per_second <= 2);
        let silent = at(46, 3040);
        assert!(silent.note.unwrap().contains("for 6 s"));
        assert_eq!(at(47, 500).bytes_per_second, 0, "what begins anew has no rate yet");
    }
}
