//! How a model is run, and the bounds of it.

use crate::store::{Policy, RdAdvise, Reads};
use crate::{Error, Result};
use fieldfare_kernels::Planes;

/// Slots of a layer when nothing is said and nobody plans: the knee of the hit-rate curve.
pub const DEFAULT_SLOTS: usize = 16;

/// Spare slots to read ahead into: more than the disk can fill while it has nothing else to do.
pub const SPARE_SLOTS: usize = 3;

/// Tokens of a prefill pass when nothing is said: a whole prompt, mostly.
pub const DEFAULT_PASS_TOKENS: usize = 4096;

/// What may be rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// Activations as integers of about 15 bits in every product but the router's; keys and values in half
    /// precision (single, should the model's key norms be so large that halves could overflow).
    #[default]
    Default,
    /// Everything in single precision, for verification.
    Exact,
}

impl Precision {
    /// How activations become integers before a product; `None` keeps them f32. One plane for prompt tokens, be it in
    /// one kind of product only, is far from what the fixture allows (experiment 0010).
    pub(super) fn planes(self) -> Option<Planes> {
        match self {
            Self::Default => Some(Planes::Two),
            Self::Exact => None,
        }
    }
}

/// Whether experts of the next layer are read before its router has chosen them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LookAhead {
    /// While it pays, by what is measured.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

impl std::fmt::Display for LookAhead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        })
    }
}

/// How to run a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerOptions {
    /// Positions the KV cache may hold; memory is taken as they are used.
    pub max_context: usize,
    /// Tokens of a prefill pass at most; more read each expert less often and take more memory while they are read.
    pub prefill_chunk_tokens: usize,
    /// What may be rounded.
    pub precision: Precision,
    /// Expert slots of a layer; `None` is 16, or all experts where there are fewer.
    pub slots_per_layer: Option<usize>,
    /// Which expert loses its slot.
    pub policy: Policy,
    /// Worker threads; `None` is one for each core this process may use.
    pub threads: Option<usize>,
    /// Whether experts are read before they are asked for. Never changes a result.
    pub look_ahead: LookAhead,
    /// Whether buffered reads are announced to the page cache. Never changes a result.
    pub rdadvise: RdAdvise,
}

impl Default for RunnerOptions {
    fn default() -> Self {
        Self {
            max_context: 4096,
            prefill_chunk_tokens: DEFAULT_PASS_TOKENS,
            precision: Precision::Default,
            slots_per_layer: None,
            policy: Policy::default(),
            threads: None,
            look_ahead: LookAhead::default(),
            rdadvise: RdAdvise::default(),
        }
    }
}

impl RunnerOptions {
    /// [`RunnerOptions::threads`], or one for each core.
    pub(super) fn workers(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.threads.unwrap_or_else(cores)
    }
}

/// Bounds of the options: far beyond sense, low enough that no size overflows or asks for absurd memory.
const LIMITS: [(&str, usize); 3] =
    [("max-context", 1 << 20), ("prefill-chunk-tokens", 8192), ("threads", 1024)];

impl RunnerOptions {
    pub(super) fn check(&self) -> Result<()> {
        let values = [self.max_context, self.prefill_chunk_tokens, self.threads.unwrap_or(1)];
        for ((field, limit), value) in LIMITS.into_iter().zip(values) {
            if value == 0 || value > limit {
                return Err(Error::bad(field, format!("{value} is not between 1 and {limit}")));
            }
        }
        Ok(())
    }
}

/// What a prepared model is given to run in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Expert slots of all layers together.
    pub slots: usize,
    /// Slots more for experts that are read before they are asked for; without any there is no look-ahead.
    pub spares: usize,
    /// Bytes that KV caches, passes over a prompt and slots share: slots are given up as the cache grows, and for the time
    /// of a pass. `None` keeps them all.
    pub shared_bytes: Option<u64>,
    /// Slots of all layers that what is kept of other texts, or for going back, must leave; where slots give way.
    pub floor_slots: usize,
    /// Bytes of it at most where slots do not give way.
    pub kept_bytes: u64,
    /// Tokens of a pass at most.
    pub pass_tokens: usize,
    /// Whether the resident weights are copied into memory of their own, or stay mapped.
    pub copy_core: bool,
    /// Whether mapped resident weights are read ahead of their first use, which takes the memory of all of them at once.
    pub read_core_ahead: bool,
    /// How experts are read; where direct reads cannot be had, they are buffered.
    pub reads: Reads,
}
