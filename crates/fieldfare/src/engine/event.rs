//! What a generation tells while it runs and at its end.

use super::conversations::Reuse;
use crate::chat::{CallError, CutCall, ParsedCall};
use serde::Serialize;

/// Something that happened. Texts are never cut inside a character; joined, they are the texts of
/// [`Generation`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The prompt is being read.
    Prefill {
        /// Tokens of the prompt in the cache.
        done: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// A token was chosen.
    Token {
        /// Its id.
        id: u32,
    },
    /// How likely the tokens were whose text is coming next; only if asked for.
    Scores(&'a [TokenScore]),
    /// More of the answer.
    Text(&'a str),
    /// More of the thought.
    Reasoning(&'a str),
    /// The prompt's own numbers, before the answer; only if asked for.
    PromptScores(&'a Scores),
    /// A call of this tool begins; only where [`super::GenerateOptions::told_calls`] has it.
    CallOpened(&'a str),
    /// More of the text of its arguments.
    CallArguments(&'a str),
    /// A complete tool call.
    ToolCall(&'a ParsedCall),
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// A stop id or stop string, or the message was over.
    Stop,
    /// `max_new` or the context is reached.
    Length,
    /// The model waits for tool results.
    ToolCalls,
    /// The caller asked to stop.
    Cancelled,
}

/// The outcome of a generation.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The answer. Empty where the model has no tokenizer.
    pub text: String,
    /// The thought, if there was one.
    pub reasoning: Option<String>,
    /// Calls in order.
    pub tool_calls: Vec<ParsedCall>,
    /// A call that could not be read; it ended the answer.
    pub call_error: Option<CallError>,
    /// A call was cut off and dropped.
    pub truncated_tool_call: bool,
    /// What was told of it.
    pub cut_call: Option<CutCall>,
    /// The ids made, without the stop id.
    pub token_ids: Vec<u32>,
    /// The tokens of `text`, if [`super::GenerateOptions::logprobs`] asked for them.
    pub scores: Vec<TokenScore>,
    /// The prompt's, if [`super::GenerateOptions::prompt_logprobs`] asked.
    pub prompt_scores: Option<Scores>,
    /// Why it ended.
    pub finish: Finish,
    /// The seed that was used: with it the same prompt gives the same answer.
    pub seed: u64,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// How many of them were in the KV cache already.
    pub cached_tokens: usize,
    /// Where these come from, or why they are not more.
    pub reuse: Reuse,
    /// How long it took and what it read.
    pub timings: Timings,
}

/// Times in seconds of the wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Timings {
    /// From the call to the last prompt token's logits.
    pub prefill_seconds: f64,
    /// Prompt tokens fed (cached ones do not count) by that time; `None` if nothing was fed.
    pub prefill_tokens_per_second: Option<f64>,
    /// From the call to the first token; `None` if there was none.
    pub time_to_first_token_seconds: Option<f64>,
    /// From the first token to the end.
    pub decode_seconds: f64,
    /// Tokens after the first by that time; `None` if there were none.
    pub decode_tokens_per_second: Option<f64>,
    /// From the call to the end.
    pub total_seconds: f64,
    /// Share of experts that were in a slot when asked for; `None` if none was asked for.
    pub expert_hit_rate: Option<f64>,
    /// Bytes read from layer files.
    pub expert_bytes_read: u64,
    /// Most memory that the process ever held resident, where the system says; mapped weights count.
    pub peak_rss_bytes: Option<u64>,
}

/// The model's own opinion of a text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scores {
    /// The ids.
    pub tokens: Vec<u32>,
    /// Entry i: natural logarithm of the probability of token i + 1, given tokens 0 to i. One fewer than
    /// tokens.
    pub logprobs: Vec<f32>,
    /// Entry i: the most likely id after tokens 0 to i (the lowest of equals). As many as tokens.
    pub argmax: Vec<u32>,
    /// exp of the mean of minus `logprobs`; NaN where there are none.
    pub perplexity: f64,
    /// Entry i: the best ids after tokens 0 to i, falling, the lower id first of equals. Empty unless asked
    /// for.
    pub top: Vec<Vec<Candidate>>,
}

/// A next id and how likely it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// The id.
    pub id: u32,
    /// Natural logarithm of its probability.
    pub logprob: f32,
}

/// How likely the model found a token of an answer: its own distribution, before temperature, penalties, bias and
/// whatever else decides what is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenScore {
    /// The id.
    pub id: u32,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// The best ids, falling, the lower id first of equals; as many as asked for.
    pub top: Vec<Candidate>,
    /// Where its text begins, in bytes of the answer's text; tokens of one character share a place.
    pub start: usize,
}
