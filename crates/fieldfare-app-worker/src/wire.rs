//! What the window's process and its children say to each other: one JSON object a line.
//!
//! The first line on a child's standard input is its [`Task`]. After it the input only stays open: when it ends, so does
//! the child. What the child has to say comes as [`Told`] on its standard output. Secrets (the key) go this way because
//! nobody else sees a pipe, as they would see a command line or an environment.

use crate::message::{BenchRow, EngineSettings, Offer, Plan, Step, Trouble};
use fieldfare::install::hub::Remote;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What a child is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "task", rename_all = "snake_case")]
pub(crate) enum Task {
    /// Serve a model over loopback to whoever shows the key.
    Serve { model: PathBuf, settings: EngineSettings, key: String, locks: Option<PathBuf> },
    /// Ask what a download would be.
    Offer { source: Source, target: PathBuf },
    /// Download, or go on with it.
    Install { source: Source, target: PathBuf },
    /// Throw an unfinished download away.
    Discard { target: PathBuf },
    /// Check a model.
    Verify { model: PathBuf },
    /// Unpack the demonstration model into the first of these folders that will do.
    Demo { folders: Vec<PathBuf> },
    /// Measure what this machine gives at most to this model.
    Measure { model: PathBuf },
    /// Measure tokens a second.
    Row {
        model: PathBuf,
        memory_bytes: u64,
        prompt: u32,
        decode: u32,
        rates: Option<Rates>,
        locks: Option<PathBuf>,
    },
}

/// Where a model is downloaded from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    /// Address of the hub.
    pub(crate) endpoint: String,
    /// `owner/name`.
    pub(crate) repo: String,
    /// The commit.
    pub(crate) revision: String,
    /// Take it although its hashes are not known beforehand.
    pub(crate) unpinned: bool,
}

impl Source {
    /// In the library's terms.
    pub(crate) fn remote(&self) -> Remote {
        Remote::Hub {
            endpoint: self.endpoint.clone(),
            repo: self.repo.clone(),
            revision: self.revision.clone(),
        }
    }
}

/// What a child tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Told {
    /// It works on it.
    Loading,
    /// The model answers at this address.
    Ready { address: String, plan: Plan, model: String },
    /// A step of a long job.
    Step(Step),
    /// What a download would be.
    Offer(Offer),
    /// The machine's rates.
    Rates(Rates),
    /// A row of the benchmark.
    Row(BenchRow),
    /// It is done; in words.
    Done { words: String },
    /// It was asked to end, and did.
    Stopped,
    /// It did not work.
    Failed(Trouble),
}

/// What a machine gives at most, as it was measured beside a model's files.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rates {
    /// Bytes a second read from memory.
    pub(crate) memory: f64,
    /// Bytes a second read from the disk, experts at a time.
    pub(crate) disk: f64,
    /// Multiplications of many rows a second.
    pub(crate) products: f64,
}

impl Rates {
    /// In the library's terms.
    pub(crate) fn measured(self) -> fieldfare::measure::bound::Rates {
        fieldfare::measure::bound::Rates { memory: self.memory, disk: self.disk, products: self.products }
    }
}

/// A value as one line.
pub(crate) fn line(value: &impl Serialize) -> String {
    // Numbers that are no numbers become null; everything else of these types has a form.
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_one_line_and_reads_back() {
        let settings = EngineSettings {
            memory_bytes: Some(u64::MAX),
            context: None,
            slots: Some(3),
            threads: None,
            prefill: true,
            advice: "off".into(),
        };
        let task = Task::Serve { model: "/a\nb".into(), settings, key: "k".into(), locks: None };
        let text = line(&task);
        assert!(!text.contains('\n'));
        let Task::Serve { model, settings, .. } = serde_json::from_str(&text).unwrap() else {
            panic!("{text}")
        };
        assert_eq!((model, settings.memory_bytes), ("/a\nb".into(), Some(u64::MAX)));
        for told in [
            Told::Loading,
            Told::Done { words: "x".into() },
            Told::Failed(Trouble { message: "m".into(), remedy: "r".into() }),
        ] {
            assert_eq!(serde_json::from_str::<Told>(&line(&told)).unwrap(), told);
        }
    }
}
