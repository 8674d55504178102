//! What an engine and a generation are asked for, checked before any work.

use super::budget::{Core, MemoryBudget};
use crate::model::{DEFAULT_PASS_TOKENS, LookAhead, Precision, RunnerOptions};
use crate::sample::{Plan, Sampling};
use crate::store::{Policy, RdAdvise, Reads};
use crate::{Error, Result};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Memory that the process is going to take beside the engine, of which its plan then leaves as much: for grammars, say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// Bytes.
    pub bytes: u64,
    /// Bytes more for each token id of the model.
    pub bytes_per_id: u64,
}

/// How to run a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Tokens that the KV cache may hold, prompt and answer together. Memory is taken as it fills.
    pub max_context: usize,
    /// Resident memory that the process may take, pages of mapped files included. Never changes a result.
    pub memory: MemoryBudget,
    /// What else the process is going to take of that.
    pub beside: Beside,
    /// Expert slots of a layer; `None` leaves them to the memory budget.
    pub expert_cache_slots: Option<usize>,
    /// How experts are read; `None` leaves it to the plan. Never changes a result.
    pub reads: Option<Reads>,
    /// How the resident weights are held; `None` leaves it to the plan. Never changes a result.
    pub core: Option<Core>,
    /// Which expert loses its slot. Never changes a result.
    pub expert_cache_policy: Policy,
    /// Tokens of a prefill pass at most; the plan may allow fewer. Never changes a result.
    pub prefill_chunk_tokens: usize,
    /// What may be rounded.
    pub precision: Precision,
    /// Worker threads; `None` is one for each core.
    pub threads: Option<usize>,
    /// Conversations that are kept at most, the present one included: 1 keeps what going on with it needs, 0 not even that.
    /// They live in the memory budget, and have to give way. Never changes a result.
    pub conversations: usize,
    /// Where conversations go that have to give way, and all of them by [`super::Engine::save_conversations`]. A file holds
    /// the text's ids and what the model made of them: nothing for the eyes of others.
    pub prompt_cache_dir: Option<PathBuf>,
    /// Bytes of the files there at most.
    pub prompt_cache_bytes: u64,
    /// Whether experts are read before they are asked for. Never changes a result.
    pub look_ahead: LookAhead,
    /// Whether buffered reads are announced to the page cache. Never changes a result.
    pub rdadvise: RdAdvise,
    /// Where the model's lock lies; `None` is the platform's runtime folder, which all programs of a user share.
    pub runtime_dir: Option<PathBuf>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            max_context: 4096,
            memory: MemoryBudget::Auto,
            beside: Beside::default(),
            expert_cache_slots: None,
            reads: None,
            core: None,
            expert_cache_policy: Policy::default(),
            prefill_chunk_tokens: DEFAULT_PASS_TOKENS,
            precision: Precision::Default,
            threads: None,
            conversations: 1,
            prompt_cache_dir: None,
            prompt_cache_bytes: 8 << 30,
            look_ahead: LookAhead::default(),
            rdadvise: RdAdvise::default(),
            runtime_dir: None,
        }
    }
}

impl EngineOptions {
    /// Refuses what no model could do; the model itself checks the rest (slots against experts, say).
    pub fn validate(&self) -> Result<()> {
        let checks = [
            ("max_context", Some(self.max_context), 1 << 20),
            ("expert_cache_slots", self.expert_cache_slots, 1 << 16),
            ("prefill_chunk_tokens", Some(self.prefill_chunk_tokens), 8192),
            ("threads", self.threads, 4096),
        ];
        for (field, value, limit) in checks {
            if value.is_some_and(|value| value == 0 || value > limit) {
                return Err(Error::bad(field, format!("must be from 1 to {limit}")));
            }
        }
        Ok(())
    }

    pub(super) fn runner(&self) -> RunnerOptions {
        RunnerOptions {
            max_context: self.max_context,
            // A pass never has more rows than the context, and its scratch is made for all of them.
            prefill_chunk_tokens: self.prefill_chunk_tokens.min(self.max_context),
            precision: self.precision,
            slots_per_layer: self.expert_cache_slots,
            policy: self.expert_cache_policy,
            threads: self.threads,
            look_ahead: self.look_ahead,
            rdadvise: self.rdadvise,
        }
    }
}

/// What one generation is asked for.
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Most tokens made. 0 makes none and feeds nothing.
    pub max_new: usize,
    /// Texts that end the answer; matched on visible text, across token borders, and not shown.
    pub stop: Vec<String>,
    /// Ids that end the answer; not shown and not among the generated ids. `None` is the model's own list.
    pub stop_ids: Option<Vec<u32>>,
    /// Ids that are never chosen; their logits are set to minus infinity before anything else. `None` in chat
    /// mode is every media token and what only a prompt has (`<pad>`, `<bos>`, `<unk>`, `<mask>`, tool
    /// declarations, the think mark, the start of a turn); in raw mode the media tokens only, so that greedy
    /// is the model's own argmax.
    pub suppress: Option<Vec<u32>>,
    /// What the ids mean.
    pub mode: OutputMode,
    /// For each token of the answer's text, how likely the model found it and this many others; see
    /// [`super::TokenScore`].
    pub logprobs: Option<usize>,
    /// The same for the prompt, which is then read anew: [`super::Generation::prompt_scores`].
    pub prompt_logprobs: Option<usize>,
    /// Ids that end the answer are not chosen before so many others.
    pub min_new: usize,
    /// Longest time from the first token on; then the answer ends as at `max_new`. The one option by which an answer's
    /// length depends on how fast the machine is.
    pub longest: Option<Duration>,
    /// Tools the arguments of whose calls are told while they are written; the plan must be one in which no key of theirs can
    /// stand twice ([`crate::sample::Plan`]), else such a call is an error.
    pub told_calls: Vec<String>,
    /// What the answer is bound to, if anything: what it does not allow is never chosen, whatever else is asked for.
    pub plan: Option<Arc<dyn Plan>>,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            sampling: Sampling::default(),
            max_new: 1024,
            stop: Vec::new(),
            stop_ids: None,
            suppress: None,
            mode: OutputMode::Raw,
            logprobs: None,
            prompt_logprobs: None,
            min_new: 0,
            longest: None,
            told_calls: Vec::new(),
            plan: None,
        }
    }
}

/// How generated ids become text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputMode {
    /// Plain continuation; control tokens are not shown.
    Raw,
    /// The chat format: content, reasoning and tool calls apart.
    Chat {
        /// What the renderer said of the prompt.
        starts_in_reasoning: bool,
        /// Names of the declared tools.
        tools: Vec<String>,
    },
}

/// Asks a running call to end, from any thread. Clones share the request; it stays until the token is
/// dropped.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Nothing asked yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks. Calls that see it end within about one token, or one layer of a prefill pass.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_range_are_named() {
        EngineOptions::default().validate().unwrap();
        let bad = [
            EngineOptions { max_context: 0, ..EngineOptions::default() },
            EngineOptions { expert_cache_slots: Some(0), ..EngineOptions::default() },
            EngineOptions { prefill_chunk_tokens: usize::MAX, ..EngineOptions::default() },
            EngineOptions { threads: Some(0), ..EngineOptions::default() },
        ];
        for (options, field) in
            bad.iter().zip(["max_context", "expert_cache_slots", "prefill_chunk_tokens", "threads"])
        {
            assert!(options.validate().unwrap_err().to_string().starts_with(field));
        }
    }
}
