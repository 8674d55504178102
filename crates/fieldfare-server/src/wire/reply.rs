//! Answers as JSON: whole ones, and the chunks of a stream.

use super::error::ApiError;
use super::id;
use super::scores;
use crate::door::Outcome;
use fieldfare::chat::{CallError, CallErrorKind, ParsedCall};
use fieldfare::engine::{Finish, Generation, Scores, TokenScore};
use fieldfare::tokenizer::Tokenizer;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Longest piece of a call's arguments in one chunk, in bytes.
const MAX_FRAGMENT: usize = 1024;

/// Which of the two shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `chat.completion`.
    Chat,
    /// `text_completion`.
    Text,
}

/// What all pieces of one answer have in common.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// Which shape.
    pub(crate) shape: Shape,
    /// The answer's name.
    pub(crate) id: String,
    /// Seconds since 1970.
    pub(crate) created: u64,
    /// The model's own name.
    pub(crate) model: String,
    /// The chunks of a stream carry `usage: null`, and one at the end the counts.
    pub(crate) include_usage: bool,
    /// Which answer this is of those that were asked for.
    pub(crate) index: usize,
    /// Answers to each prompt: the counts take each prompt once.
    pub(crate) each: usize,
    /// Spells tokens.
    pub(crate) tokenizer: Arc<Tokenizer>,
    /// The prompts, where they stand before the answers.
    pub(crate) echo: Vec<String>,
    /// The prompts go out with how likely their tokens were.
    pub(crate) echo_scored: bool,
    /// Thoughts go out as `reasoning` too.
    pub(crate) both_reasoning: bool,
    /// Names weights and program.
    pub(crate) fingerprint: String,
}

impl Head {
    /// A new answer.
    pub(crate) fn new(shape: Shape, model: &str, include_usage: bool, tokenizer: Arc<Tokenizer>) -> Self {
        let prefix = if shape == Shape::Chat { "chatcmpl-" } else { "cmpl-" };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            shape,
            id: id::answer(prefix),
            created: now.map_or(0, |since| since.as_secs()),
            model: model.to_owned(),
            include_usage,
            index: 0,
            each: 1,
            tokenizer,
            echo: Vec::new(),
            echo_scored: false,
            both_reasoning: false,
            fingerprint: String::new(),
        }
    }

    fn object(&self, kind: &str, choices: Value) -> Map<String, Value> {
        let mut object = Map::new();
        object.insert("id".to_owned(), self.id.clone().into());
        object.insert("object".to_owned(), kind.into());
        object.insert("created".to_owned(), self.created.into());
        object.insert("model".to_owned(), self.model.clone().into());
        object.insert("system_fingerprint".to_owned(), self.fingerprint.clone().into());
        object.insert("choices".to_owned(), choices);
        object
    }

    /// Characters that stand before the present answer.
    pub(crate) fn before(&self) -> usize {
        self.echoed(self.index).chars().count()
    }

    /// What stands before the answer of this number.
    fn echoed(&self, index: usize) -> &str {
        self.echo.get(index / self.each.max(1)).map_or("", String::as_str)
    }

    /// The whole answer, or several.
    pub(crate) fn whole(&self, outcomes: &[Outcome]) -> Value {
        let choices = outcomes.iter().enumerate().map(|(index, outcome)| {
            let generation = &outcome.generation;
            let finish = finish_reason(outcome);
            match self.shape {
                Shape::Chat => {
                    let logprobs = outcome.scored.then(|| scores::chat(&generation.scores, &self.tokenizer));
                    json!({ "index": index, "message": message(generation, self.both_reasoning), "logprobs": logprobs,
                        "finish_reason": finish })
                }
                Shape::Text => {
                    let echo = self.echoed(index);
                    // The first answer to a prompt has its numbers, for all of them.
                    let each = self.each.max(1);
                    let prompt = outcomes.get(index / each * each);
                    let prompt = prompt.and_then(|first| first.generation.prompt_scores.as_ref());
                    let scored = || scores::text(generation, prompt, echo, &self.tokenizer);
                    let logprobs = outcome.scored.then(scored);
                    json!({ "index": index, "text": format!("{echo}{}", generation.text), "logprobs": logprobs,
                        "finish_reason": finish })
                }
            }
        });
        let kind = if self.shape == Shape::Chat { "chat.completion" } else { "text_completion" };
        let mut object = self.object(kind, choices.collect());
        object.insert("usage".to_owned(), usage(outcomes, self.each));
        object.insert("timings".to_owned(), timings(outcomes));
        Value::Object(object)
    }

    fn chunk(&self, choices: Value) -> Map<String, Value> {
        let kind = if self.shape == Shape::Chat { "chat.completion.chunk" } else { "text_completion" };
        let mut object = self.object(kind, choices);
        if self.include_usage {
            object.insert("usage".to_owned(), Value::Null);
        }
        object
    }

    fn delta(&self, delta: &Value, finish: Option<&str>) -> Value {
        Value::Object(self.chunk(json!([{ "index": self.index, "delta": delta, "finish_reason": finish }])))
    }

    /// The first chunk: in a chat the role, in a plain completion the prompt if it is wanted back; with numbers it waits for
    /// these ([`Head::prompt`]).
    pub(crate) fn role(&self) -> Option<Value> {
        match self.shape {
            Shape::Chat => Some(self.delta(&json!({ "role": "assistant", "content": "" }), None)),
            Shape::Text if self.echo.is_empty() || self.echo_scored => None,
            Shape::Text => Some(self.text(self.echoed(self.index), None, 0)),
        }
    }

    /// The prompt with how likely its tokens were.
    pub(crate) fn prompt(&self, scores: &Scores) -> Value {
        let (index, echo) = (self.index, self.echoed(self.index));
        let logprobs = scores::prompt(scores, echo, &self.tokenizer);
        let choice = json!({ "index": index, "text": echo, "logprobs": logprobs, "finish_reason": null });
        Value::Object(self.chunk(json!([choice])))
    }

    /// More of the answer, and how likely its tokens were if that is wanted. So many characters were shown before.
    pub(crate) fn text(&self, text: &str, scored: Option<&[TokenScore]>, shown: usize) -> Value {
        let index = self.index;
        let choice = match self.shape {
            Shape::Chat => {
                let mut choice =
                    json!({ "index": index, "delta": { "content": text }, "finish_reason": null });
                if let Some(scored) = scored {
                    choice["logprobs"] = scores::chat(scored, &self.tokenizer);
                }
                choice
            }
            Shape::Text => {
                let logprobs = scored.map(|scored| scores::pieces(scored, text, shown, &self.tokenizer));
                json!({ "index": index, "text": text, "logprobs": logprobs, "finish_reason": null })
            }
        };
        Value::Object(self.chunk(json!([choice])))
    }

    /// More of the thought.
    pub(crate) fn reasoning(&self, text: &str) -> Value {
        let mut delta = json!({ "reasoning_content": text });
        if self.both_reasoning {
            delta["reasoning"] = text.into();
        }
        self.delta(&delta, None)
    }

    /// A call: its name, then its arguments.
    pub(crate) fn call(&self, index: usize, call: &ParsedCall) -> Vec<Value> {
        let mut chunks = vec![self.call_opened(index, &call.call.name)];
        chunks.extend(self.call_arguments(index, &call.call.arguments.text()));
        chunks
    }

    /// The name of a call that begins.
    pub(crate) fn call_opened(&self, index: usize, name: &str) -> Value {
        let opening = json!({ "tool_calls": [{
            "index": index,
            "id": id::call(),
            "type": "function",
            "function": { "name": name, "arguments": "" },
        }] });
        self.delta(&opening, None)
    }

    /// More of its arguments, in pieces that are cut between characters.
    pub(crate) fn call_arguments(&self, index: usize, text: &str) -> Vec<Value> {
        let delta =
            |piece: &str| json!({ "tool_calls": [{ "index": index, "function": { "arguments": piece } }] });
        pieces(text).into_iter().map(|piece| self.delta(&delta(piece), None)).collect()
    }

    /// The end of one answer: why.
    pub(crate) fn end(&self, outcome: &Outcome) -> Value {
        let finish = finish_reason(outcome);
        let index = self.index;
        let mut last = match self.shape {
            Shape::Chat => self.chunk(json!([{ "index": index, "delta": {}, "finish_reason": finish }])),
            Shape::Text => {
                self.chunk(json!([{ "index": index, "text": "", "logprobs": null, "finish_reason": finish }]))
            }
        };
        last.insert("timings".to_owned(), timings(std::slice::from_ref(outcome)));
        Value::Object(last)
    }

    /// The counts of all answers, if they were asked for.
    pub(crate) fn counts(&self, outcomes: &[Outcome]) -> Option<Value> {
        self.include_usage.then(|| {
            let mut counts = self.chunk(json!([]));
            counts.insert("usage".to_owned(), usage(outcomes, self.each));
            Value::Object(counts)
        })
    }
}

/// Pieces of at most [`MAX_FRAGMENT`] bytes.
fn pieces(text: &str) -> Vec<&str> {
    let mut rest = text;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let end = rest.floor_char_boundary(MAX_FRAGMENT);
        let (piece, more) = rest.split_at(end);
        pieces.push(piece);
        rest = more;
    }
    pieces
}

fn message(generation: &Generation, both: bool) -> Value {
    let call = |name: &str, arguments: String| json!({ "id": id::call(), "type": "function", "function": { "name": name, "arguments": arguments } });
    let complete = generation.tool_calls.iter().map(|one| call(&one.call.name, one.call.arguments.text()));
    // One that was cut is given as far as it is certain, as in a stream, where it cannot be taken back.
    let cut = generation.cut_call.iter().map(|cut| call(&cut.name, cut.arguments.clone()));
    let calls: Vec<Value> = complete.chain(cut).collect();
    let mut message = Map::new();
    message.insert("role".to_owned(), "assistant".into());
    let silent = generation.text.is_empty() && !calls.is_empty();
    message.insert("content".to_owned(), if silent { Value::Null } else { generation.text.clone().into() });
    if let Some(reasoning) = &generation.reasoning {
        message.insert("reasoning_content".to_owned(), reasoning.clone().into());
        if both {
            message.insert("reasoning".to_owned(), reasoning.clone().into());
        }
    }
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), calls.into());
    }
    Value::Object(message)
}

/// OpenAI's word for how it ended. An answer stopped from here after its only allowed call ended with it.
fn finish_reason(outcome: &Outcome) -> &'static str {
    match outcome.generation.finish {
        Finish::ToolCalls => "tool_calls",
        _ if outcome.stopped_at_call => "tool_calls",
        Finish::Stop => "stop",
        Finish::Length | Finish::Cancelled => "length",
    }
}

/// The counts. The stop token is none of the completion's; a prompt counts once, however many answers it has.
fn usage(outcomes: &[Outcome], each: usize) -> Value {
    let made: usize = outcomes.iter().map(|outcome| outcome.generation.token_ids.len()).sum();
    let prompts = || outcomes.iter().step_by(each.max(1)).map(|outcome| &outcome.generation);
    let prompt: usize = prompts().map(|generation| generation.prompt_tokens).sum();
    let cached: usize = prompts().map(|generation| generation.cached_tokens).sum();
    let reasoning: usize = outcomes.iter().map(|outcome| outcome.reasoning_tokens).sum();
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": made,
        "total_tokens": prompt + made,
        "prompt_tokens_details": { "cached_tokens": cached },
        "completion_tokens_details": { "reasoning_tokens": reasoning },
    })
}

/// The times, under the names that llama.cpp gave them; those of several answers added up.
fn timings(outcomes: &[Outcome]) -> Value {
    let all = || outcomes.iter().map(|outcome| &outcome.generation);
    let cached: usize = all().map(|generation| generation.cached_tokens).sum();
    let read: usize = all().map(|generation| generation.prompt_tokens - generation.cached_tokens).sum();
    let made: usize = all().map(|generation| generation.token_ids.len()).sum();
    let reading: f64 = all().map(|generation| generation.timings.prefill_seconds).sum();
    let making: f64 = all().map(|generation| generation.timings.decode_seconds).sum();
    let each = |seconds: f64, count: usize| (count > 0).then(|| seconds * 1e3 / count as f64);
    let rate = |count: usize, seconds: f64| (count > 0 && seconds > 0.0).then(|| count as f64 / seconds);
    json!({
        "cache_n": cached,
        "prompt_n": read,
        "prompt_ms": reading * 1e3,
        "prompt_per_token_ms": each(reading, read),
        "prompt_per_second": rate(read, reading),
        "predicted_n": made,
        "predicted_ms": making * 1e3,
        "predicted_per_token_ms": each(making, made),
        "predicted_per_second": rate(made.saturating_sub(outcomes.len()), making),
    })
}

/// What a client is told of a call that could not be read; what the model wrote stays here.
pub(crate) fn call_refusal(error: &CallError) -> ApiError {
    let (code, message) = match error.kind {
        CallErrorKind::Malformed => {
            ("tool_call_malformed", "the model wrote a tool call that cannot be read")
        }
        CallErrorKind::UnknownTool => ("tool_call_unknown", "the model called a tool that was not declared"),
        CallErrorKind::Oversized => ("tool_call_oversized", "the model wrote a tool call that is too large"),
    };
    ApiError::new(500, "server_error", code, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_call_has_its_code_and_nothing_of_what_was_written() {
        for (kind, code) in [
            (CallErrorKind::Malformed, "tool_call_malformed"),
            (CallErrorKind::UnknownTool, "tool_call_unknown"),
            (CallErrorKind::Oversized, "tool_call_oversized"),
        ] {
            let reason = "no tool is called `secret words`".to_owned();
            let error = call_refusal(&CallError { kind, reason, raw_call: Some("secret words".to_owned()) });
            assert_eq!((error.status, error.kind, error.code), (500, "server_error", code));
            assert!(!error.body().to_string().contains("secret"), "{error:?}");
        }
    }
}
