//! What the bench and the process of one row say to each other: one JSON object a line, the row's description first.

use fieldfare::engine::Plan;
use fieldfare::store::Reads;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What a row is to measure. Everything else stands in the command line, which is the bench's own.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Spec {
    /// The budget; `None` is auto.
    pub(super) memory: Option<u64>,
    /// Tokens that the KV cache may hold.
    pub(super) max_context: usize,
    /// Threads that compute; `None`: as the engine decides.
    pub(super) threads: Option<usize>,
    /// Prompt, then what follows it.
    pub(super) ids: Vec<u32>,
    /// How many of them are the prompt.
    pub(super) prompt: usize,
    /// The control group to join first.
    pub(super) group: Option<PathBuf>,
    /// The seed, if experts are generated.
    pub(super) seed: Option<u64>,
}

/// What the row's process tells.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(super) enum Told {
    /// The first token after the prompt is there.
    First {
        /// Time that only the measurement took.
        preparing_seconds: f64,
        /// Bytes of experts read until then.
        expert_bytes: u64,
        /// Different experts that the prompt used, of all layers.
        experts_used: u64,
    },
    /// Ready for a measured run.
    Warm {
        /// How experts are read.
        reads: ReadsIn,
    },
    /// A run is done.
    Run(Run),
    /// That was all.
    End(Box<End>),
    /// It did not work.
    Failed {
        /// Why.
        message: String,
        /// The remedy.
        hint: Option<String>,
    },
}

/// One measured run.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Run {
    /// Time of the prompt.
    pub(super) prefill_seconds: f64,
    /// Bytes of experts read for it.
    pub(super) prefill_bytes: u64,
    /// Time in which at least one of those reads was under way.
    pub(super) prefill_read_seconds: f64,
    /// Time of the tokens after it.
    pub(super) decode_seconds: f64,
    /// Their experts that were held.
    pub(super) hits: u64,
    /// Their experts that were read.
    pub(super) misses: u64,
    /// Bytes read for them.
    pub(super) read_bytes: u64,
    /// Time in which at least one of those reads was under way.
    pub(super) read_seconds: f64,
    /// Experts among them that were guessed and given to the readers.
    pub(super) ahead_guesses: u64,
    /// Of these, ones that were wanted.
    pub(super) ahead_used: u64,
    /// Bytes read for the others.
    pub(super) ahead_wasted_bytes: u64,
    /// Experts chosen where there was a guess.
    pub(super) ahead_chosen: u64,
    /// Of these, guessed ones, held or not.
    pub(super) ahead_recalled: u64,
}

/// What is known when all runs are done.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct End {
    /// Slots of all layers.
    pub(super) slots: usize,
    /// Layers.
    pub(super) layers: usize,
    /// Share of slots and copied weights in huge pages; `None` where the system does not say.
    pub(super) huge_page_share: Option<f64>,
    /// The most that was ever resident.
    pub(super) peak_rss_bytes: Option<u64>,
    /// How experts were read.
    pub(super) reads: ReadsIn,
    /// Threads that compute.
    pub(super) threads: usize,
    /// Their instruction set.
    pub(super) isa: String,
    /// The bound that the plan kept to.
    pub(super) limit_bytes: Option<u64>,
    /// The plan, for people.
    pub(super) plan: serde_json::Value,
}

/// [`Reads`], which the library only writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ReadsIn {
    /// Past the page cache.
    Direct,
    /// Through it.
    Buffered,
}

impl From<Reads> for ReadsIn {
    fn from(reads: Reads) -> Self {
        match reads {
            Reads::Direct => Self::Direct,
            Reads::Buffered => Self::Buffered,
        }
    }
}

impl From<ReadsIn> for Reads {
    fn from(reads: ReadsIn) -> Self {
        match reads {
            ReadsIn::Direct => Self::Direct,
            ReadsIn::Buffered => Self::Buffered,
        }
    }
}

/// The plan as JSON.
pub(super) fn plan(plan: &Plan) -> serde_json::Value {
    serde_json::to_value(plan).unwrap_or_default()
}
