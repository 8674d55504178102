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
mod guess;
mod head;
mod kv;
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
pub use kv::Sequence;
pub use options::{DEFAULT_PASS_TOKENS, DEFAULT_SLOTS, LookAhead, Memory, Precision};
pub use options::{RunnerOptions, SPARE_SLOTS};
pub use prepared::{Prepared, kernels};
pub use probe::Probe;
pub use reroute::RouteOverride;
pub use runner::{Runner, RunnerStats};

use crate::Result;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;

/// Texts of one step at most.
pub const TOGETHER: usize = 8;

/// What the token loop needs from a model. `model::Runner` implements it; tests script it.
///
/// Positions count from 0; the KV cache holds the ids fed so far. Logits are soft-capped float32, one for each
/// vocabulary entry; the slice handed out is the model's own scratch and may be changed by the caller (masks,
/// penalties) until the next call.
pub trait Forward {
    /// What it keeps of a text.
    type Sequence: Kept;
    /// Number of logits.
    fn vocab_size(&self) -> usize;
    /// Ids in the KV cache: the position that the next id gets.
    fn position(&self) -> usize;
    /// Largest value that [`Forward::position`] may reach.
    fn max_context(&self) -> usize;
    /// Feeds prompt ids in passes and returns the logits after the last one. `progress` gets the number of
    /// these ids done so far, at least once a layer and pass; `Break` ends with [`crate::Error::Cancelled`] and
    /// leaves the cache as far as whole passes got, or as far back as it has to go where there was no room for keeping
    /// what the beginning of the pass sees; ask [`Forward::position`]. The same holds after any other error. `ids` must not be empty and must fit the context ([`crate::Error::ContextFull`] otherwise,
    /// before any work).
    fn prefill(
        &mut self,
        ids: &[u32],
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<&mut [f32]>;
    /// Feeds one generated id and returns the logits after it.
    fn decode(&mut self, id: u32) -> Result<&mut [f32]>;
    /// Feeds each of `texts`, at most [`TOGETHER`] of them, one generated id, all in one pass; returns their logits, one
    /// row after the other. They are what each would get by itself. After an error every text is where it was, or as far
    /// back as it had to go.
    fn decode_together(&mut self, texts: &mut [&mut Self::Sequence], ids: &[u32]) -> Result<&mut [f32]>;
    /// Like [`Forward::prefill`], but hands out the logits after every id (index into `ids`, logits). `between` is
    /// asked at least once a layer and pass, since a pass without an answer may take a while.
    fn prefill_each(
        &mut self,
        ids: &[u32],
        between: &mut dyn FnMut() -> ControlFlow<()>,
        each: &mut dyn FnMut(usize, &[f32]) -> ControlFlow<()>,
    ) -> Result<()>;
    /// Drops what was fed from position `len` on, and so much more that everything is held which a token there sees.
    /// Returns the position after it.
    fn rewind(&mut self, len: usize) -> usize;
    /// The text that is worked on. Another may be put in its place.
    fn sequence(&mut self) -> &mut Self::Sequence;
    /// An empty text.
    fn blank(&self) -> Self::Sequence;
    /// Bytes of kept texts, and of what this one keeps for going back, that are too many once `rows` more ids are fed and
    /// other texts have grown by `extra` bytes. What is not given up in time is taken from this text's points.
    fn excess(&self, rows: usize, extra: u64) -> u64;
    /// [`Forward::excess`] once each of `texts`, which all are apart from the text that is worked on, has one id more.
    fn excess_together(&self, texts: &[&mut Self::Sequence]) -> u64;
    /// Whether texts may grow to these numbers of ids beside each other, were nothing else kept.
    fn has_room_for(&self, ends: &[usize]) -> bool;
    /// Tokens of a prefill pass at most.
    fn pass_tokens(&self) -> usize;
    /// Texts whose steps it may pay to share, with the expert slots that there are now; at least one. With fewer slots than
    /// hold what so many texts want in two steps, each step finds little of the step before.
    fn step_texts(&self) -> usize;
    /// What [`Kept::write`] wrote, about so many bytes, for which memory is freed before they are read.
    ///
    /// # Errors
    /// [`crate::Error::Damaged`] where it is of another model, or not whole.
    fn read_sequence(&mut self, from: &mut dyn Read, bytes: u64) -> Result<Self::Sequence>;
}

/// What a model keeps of a text: its keys and values. A clone shares memory with the original.
pub trait Kept: Clone {
    /// Number of ids.
    fn position(&self) -> usize;
    /// The largest position, at most `len`, from which the model can go on.
    fn reachable(&self, len: usize) -> usize;
    /// Drops what is behind [`Kept::reachable`] of `len`, and returns that.
    fn rewind(&mut self, len: usize) -> usize;
    /// Positions kept for going back, ascending.
    fn points(&self) -> &[usize];
    /// Keeps what is needed to go back to `at`, which may lie ahead.
    fn mark(&mut self, at: usize);
    /// Keeps it no more.
    fn unmark(&mut self, at: usize);
    /// Bytes that dropping it would free.
    fn own_bytes(&self) -> u64;
    /// Writes everything.
    ///
    /// # Errors
    /// Those of `out`.
    fn write(&self, out: &mut dyn Write) -> io::Result<()>;
}
