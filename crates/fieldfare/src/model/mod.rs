//! The forward pass: configuration, weights, KV cache, attention, experts, head.
//!
//! [`Runner`] opens a model directory and implements [`Forward`], what the token loop needs from a model.
//! Results do not depend on how a prompt is cut into passes, on the number of threads, nor on which experts
//! happen to be held: the same ids give the same bits.

mod attention;
mod config;
mod core_ahead;
mod footprint;
mod forward;
mod head;
mod kv_cache;
mod look_ahead;
mod moe;
mod options;
mod prepared;
mod probe;
mod reroute;
mod runner;
mod scratch;
mod weights;
mod wide;

pub use config::{Config, LayerKind};
pub use footprint::Footprint;
pub use options::{DEFAULT_PASS_TOKENS, DEFAULT_SLOTS, LookAhead, Memory, Precision};
pub use options::{RunnerOptions, SPARE_SLOTS};
pub use prepared::{Prepared, kernels};
pub use probe::Probe;
pub use reroute::RouteOverride;
pub use runner::{Runner, RunnerStats};

use crate::Result;
use std::ops::ControlFlow;

/// What the token loop needs from a model. `model::Runner` implements it; tests script it.
///
/// Positions count from 0; the KV cache holds the ids fed so far. Logits are soft-capped float32, one for each
/// vocabulary entry; the slice handed out is the model's own scratch and may be changed by the caller (masks,
/// penalties) until the next call.
pub trait Forward {
    /// Number of logits.
    fn vocab_size(&self) -> usize;
    /// Ids in the KV cache: the position that the next id gets.
    fn position(&self) -> usize;
    /// Largest value that [`Forward::position`] may reach.
    fn max_context(&self) -> usize;
    /// Feeds prompt ids in passes and returns the logits after the last one. `progress` gets the number of
    /// these ids done so far, at least once a layer and pass; `Break` ends with [`crate::Error::Cancelled`] and
    /// leaves the cache as far as whole passes got, or empty where the one broken off had overwritten ring
    /// rows that are needed to go on from there; ask [`Forward::position`]. The same holds after any other
    /// error. `ids` must not be empty and must fit the context ([`crate::Error::ContextFull`] otherwise,
    /// before any work).
    fn prefill(
        &mut self,
        ids: &[u32],
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<&mut [f32]>;
    /// Feeds one generated id and returns the logits after it.
    fn decode(&mut self, id: u32) -> Result<&mut [f32]>;
    /// Like [`Forward::prefill`], but hands out the logits after every id (index into `ids`, logits). `between` is
    /// asked at least once a layer and pass, since a pass without an answer may take a while.
    fn prefill_each(
        &mut self,
        ids: &[u32],
        between: &mut dyn FnMut() -> ControlFlow<()>,
        each: &mut dyn FnMut(usize, &[f32]) -> ControlFlow<()>,
    ) -> Result<()>;
    /// Drops what was fed from position `len` on, or everything when the rings no longer hold what `len` needs.
    /// Returns the position after it: `len` or 0.
    fn rewind(&mut self, len: usize) -> usize;
}
