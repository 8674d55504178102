//! A session: the KV cache and the conversations whose ids are in it. A prompt that begins like one of them costs only
//! what is new.

use super::answer::Setting;
use super::conversations::{Conversations, Reuse};
use super::event::{Event, Generation, Scores};
use super::generate;
use super::options::{Cancel, GenerateOptions};
use super::score;
use crate::model::{Forward, Runner};
use crate::tokenizer::Tokenizer;
use crate::{Error, Result};
use std::ops::ControlFlow;

/// Readings of the expert store, for the difference over a call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) bytes_read: u64,
}

/// Generates and scores, one call at a time, over one KV cache. Written against [`Forward`], so that it is
/// tested without a model.
pub struct Session<'a, F: Forward = Runner> {
    pub(super) forward: &'a mut F,
    /// What the KV cache holds.
    pub(super) conversations: &'a mut Conversations<F::Sequence>,
    pub(super) tokenizer: Option<&'a Tokenizer>,
    /// Why there is no tokenizer.
    pub(super) no_tokenizer: &'a str,
    /// The ids that end an answer unless the caller names others.
    pub(super) stop_ids: &'a [u32],
    pub(super) counters: fn(&F) -> Counters,
}

impl<'a, F: Forward> Session<'a, F> {
    /// Continues `prompt`.
    ///
    /// The part of the prompt that the KV cache already holds is not computed again; results are the same
    /// either way. A context of N holds N tokens of prompt and answer; since the last token made need not be
    /// fed, a prompt of exactly N tokens still gets one, and ends by [`super::Finish::Length`]. With
    /// `max_new` 0 nothing is fed and nothing made.
    ///
    /// `sink` gets what happens; `Break` and `cancel` end the call with [`super::Finish::Cancelled`] and what
    /// there is so far.
    ///
    /// # Errors
    /// [`Error::BadRequest`] for an empty prompt, an id beyond the vocabulary or a bad option,
    /// [`Error::ContextFull`] for a prompt longer than the context, both before any work;
    /// [`Error::NoTokenizer`] for what needs one; those of the model.
    pub fn generate(
        &mut self,
        prompt: &[u32],
        options: &GenerateOptions,
        cancel: &Cancel,
        sink: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Generation> {
        self.check(prompt)?;
        generate::run(self, prompt, options, cancel, sink)
    }

    /// Feeds `ids` and says how likely each is, and with `top` > 0 the best ids at each position. Starts with
    /// an empty cache. `progress` gets the number of ids done.
    ///
    /// # Errors
    /// As [`Session::generate`]; [`Error::Cancelled`] when asked to stop.
    pub fn score(
        &mut self,
        ids: &[u32],
        top: usize,
        cancel: &Cancel,
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Scores> {
        self.check(ids)?;
        self.conversations.start_anew(self.forward);
        score::run(self, ids, 1, top, cancel, progress)
    }

    /// Scores only `ids[first..]`: the [`Scores`] are those of `ids[first - 1..]` after all ids before. The part of `ids`
    /// before `first` that the KV cache already holds is not computed again; results are the same either way.
    ///
    /// # Errors
    /// As [`Session::score`]; [`Error::BadRequest`] where `first` is 0 or beyond the ids.
    pub fn score_from(
        &mut self,
        ids: &[u32],
        first: usize,
        top: usize,
        cancel: &Cancel,
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Scores> {
        self.check(ids)?;
        if first == 0 || first > ids.len() {
            return Err(Error::bad("first", format!("{first} is not between 1 and {}", ids.len())));
        }
        score::run(self, ids, first, top, cancel, progress)
    }

    /// The ids in the KV cache, of the conversation that was gone on with last.
    pub fn cached(&self) -> &[u32] {
        self.conversations.current()
    }

    /// Tokens that the KV cache may hold.
    pub fn max_context(&self) -> usize {
        self.forward.max_context()
    }

    /// The model underneath.
    pub fn model(&self) -> &F {
        self.forward
    }

    /// Forgets everything in the KV cache. Files stay.
    pub fn clear(&mut self) {
        self.conversations.clear(self.forward);
    }

    /// What answers need to know of the model.
    pub(super) fn setting(&self) -> Setting<'a> {
        Setting {
            tokenizer: self.tokenizer,
            no_tokenizer: self.no_tokenizer,
            stop_ids: self.stop_ids,
            vocabulary: self.forward.vocab_size(),
        }
    }

    pub(super) fn check(&self, ids: &[u32]) -> Result<()> {
        if ids.is_empty() {
            return Err(Error::bad("prompt", "is empty"));
        }
        let context = self.forward.max_context();
        if ids.len() > context {
            return Err(Error::ContextFull { prompt: ids.len(), context });
        }
        let vocabulary = self.forward.vocab_size();
        let beyond = |&&id: &&u32| usize::try_from(id).ok().is_none_or(|id| id >= vocabulary);
        match ids.iter().find(beyond) {
            Some(id) => {
                Err(Error::bad("prompt", format!("token id {id} is beyond the vocabulary of {vocabulary}")))
            }
            None => Ok(()),
        }
    }

    /// Brings the cache to the longest prefix of `prompt` that can be had, but never all of it: the logits
    /// after the last token are wanted. Returns its length, and why it is no longer.
    pub(super) fn reuse(&mut self, prompt: &[u32]) -> (usize, Reuse) {
        let reuse = self.conversations.open(self.forward, prompt);
        (self.conversations.current().len(), reuse)
    }

    /// [`Session::reuse`] for a prompt that is going to be answered, and its conversation gone on with.
    pub(super) fn converse(&mut self, prompt: &[u32]) -> (usize, Reuse) {
        let reuse = self.reuse(prompt);
        self.set_points(prompt, prompt.len());
        reuse
    }

    /// Sets the points of a prompt that is going to be answered, when its text is read up to `end`.
    pub(super) fn set_points(&mut self, prompt: &[u32], end: usize) {
        let system_end = self.tokenizer.and_then(|tokenizer| system_end(tokenizer, prompt));
        self.conversations.set_points(self.forward, prompt.len(), system_end, end);
    }

    /// After a failed call of the model: `known` are the ids that were in the cache or on their way in, and
    /// the model says how many it kept.
    pub(super) fn resync(&mut self, known: &[u32]) {
        let kept = self.forward.position().min(known.len());
        self.conversations.set(&known[..kept]);
    }
}

/// Where the turn after the system's opens, in a prompt that begins with one.
fn system_end(tokenizer: &Tokenizer, prompt: &[u32]) -> Option<usize> {
    let opener = tokenizer.control().turn_open;
    let mut turns = (0..prompt.len()).filter(|&at| prompt[at] == opener);
    let (first, second) = (turns.next()?, turns.next()?);
    let beginning = &prompt[first + 1..second.min(first + 12)];
    tokenizer.decode(beginning, false).starts_with("system\n").then_some(second)
}
