//! Answers as JSON: whole ones, and the chunks of a stream.

use super::error::ApiError;
use super::id;
use crate::door::Outcome;
use fieldfare::chat::{CallError, CallErrorKind, ParsedCall};
use fieldfare::engine::{Finish, Generation};
use serde_json::{Map, Value, json};

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
}

impl Head {
    /// A new answer.
    pub(crate) fn new(shape: Shape, model: &str, include_usage: bool) -> Self {
        let prefix = if shape == Shape::Chat { "chatcmpl-" } else { "cmpl-" };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            shape,
            id: id::answer(prefix),
            created: now.map_or(0, |since| since.as_secs()),
            model: model.to_owned(),
            include_usage,
        }
    }

    fn object(&self, kind: &str, choices: Value) -> Map<String, Value> {
        let mut object = Map::new();
        object.insert("id".to_owned(), self.id.clone().into());
        object.insert("object".to_owned(), kind.into());
        object.insert("created".to_owned(), self.created.into());
        object.insert("model".to_owned(), self.model.clone().into());
        object.insert("choices".to_owned(), choices);
        object
    }

    /// The whole answer.
    pub(crate) fn whole(&self, outcome: &Outcome) -> Value {
        let generation = &outcome.generation;
        let finish = finish_reason(outcome);
        let (kind, choice) = match self.shape {
            Shape::Chat => {
                let message = message(generation);
                (
                    "chat.completion",
                    json!({ "index": 0, "message": message, "logprobs": null, "finish_reason": finish }),
                )
            }
            Shape::Text => (
                "text_completion",
                json!({ "index": 0, "text": generation.text, "logprobs": null, "finish_reason": finish }),
            ),
        };
        let mut object = self.object(kind, json!([choice]));
        object.insert("usage".to_owned(), usage(outcome));
        object.insert("timings".to_owned(), timings(generation));
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
        Value::Object(self.chunk(json!([{ "index": 0, "delta": delta, "finish_reason": finish }])))
    }

    /// The first chunk of a chat stream; plain completions have none.
    pub(crate) fn role(&self) -> Option<Value> {
        (self.shape == Shape::Chat).then(|| self.delta(&json!({ "role": "assistant", "content": "" }), None))
    }

    /// More of the answer.
    pub(crate) fn text(&self, text: &str) -> Value {
        match self.shape {
            Shape::Chat => self.delta(&json!({ "content": text }), None),
            Shape::Text => Value::Object(
                self.chunk(json!([{ "index": 0, "text": text, "logprobs": null, "finish_reason": null }])),
            ),
        }
    }

    /// More of the thought.
    pub(crate) fn reasoning(&self, text: &str) -> Value {
        self.delta(&json!({ "reasoning_content": text }), None)
    }

    /// A call: its name, then its arguments in pieces that are cut between characters.
    pub(crate) fn call(&self, index: usize, call: &ParsedCall) -> Vec<Value> {
        let opening = json!({ "tool_calls": [{
            "index": index,
            "id": id::call(),
            "type": "function",
            "function": { "name": call.call.name, "arguments": "" },
        }] });
        let mut chunks = vec![self.delta(&opening, None)];
        let arguments = call.call.arguments.text();
        for piece in pieces(&arguments) {
            let delta = json!({ "tool_calls": [{ "index": index, "function": { "arguments": piece } }] });
            chunks.push(self.delta(&delta, None));
        }
        chunks
    }

    /// The end: why, and the counts if they were asked for.
    pub(crate) fn end(&self, outcome: &Outcome) -> Vec<Value> {
        let generation = &outcome.generation;
        let finish = finish_reason(outcome);
        let mut last = match self.shape {
            Shape::Chat => self.chunk(json!([{ "index": 0, "delta": {}, "finish_reason": finish }])),
            Shape::Text => {
                self.chunk(json!([{ "index": 0, "text": "", "logprobs": null, "finish_reason": finish }]))
            }
        };
        last.insert("timings".to_owned(), timings(generation));
        let mut chunks = vec![Value::Object(last)];
        if self.include_usage {
            let mut counts = self.chunk(json!([]));
            counts.insert("usage".to_owned(), usage(outcome));
            chunks.push(Value::Object(counts));
        }
        chunks
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

fn message(generation: &Generation) -> Value {
    let mut message = Map::new();
    message.insert("role".to_owned(), "assistant".into());
    let silent = generation.text.is_empty() && !generation.tool_calls.is_empty();
    message.insert("content".to_owned(), if silent { Value::Null } else { generation.text.clone().into() });
    if let Some(reasoning) = &generation.reasoning {
        message.insert("reasoning_content".to_owned(), reasoning.clone().into());
    }
    if !generation.tool_calls.is_empty() {
        let call = |call: &ParsedCall| {
            json!({
                "id": id::call(),
                "type": "function",
                "function": { "name": call.call.name, "arguments": call.call.arguments.text() },
            })
        };
        message.insert("tool_calls".to_owned(), generation.tool_calls.iter().map(call).collect());
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

/// The counts. The stop token is none of the completion's.
fn usage(outcome: &Outcome) -> Value {
    let generation = &outcome.generation;
    let made = generation.token_ids.len();
    json!({
        "prompt_tokens": generation.prompt_tokens,
        "completion_tokens": made,
        "total_tokens": generation.prompt_tokens + made,
        "prompt_tokens_details": { "cached_tokens": generation.cached_tokens },
        "completion_tokens_details": { "reasoning_tokens": outcome.reasoning_tokens },
    })
}

/// The times, under the names that llama.cpp gave them.
fn timings(generation: &Generation) -> Value {
    let times = &generation.timings;
    json!({
        "cache_n": generation.cached_tokens,
        "prompt_n": generation.prompt_tokens - generation.cached_tokens,
        "prompt_ms": times.prefill_seconds * 1e3,
        "prompt_per_second": times.prefill_tokens_per_second,
        "predicted_n": generation.token_ids.len(),
        "predicted_ms": times.decode_seconds * 1e3,
        "predicted_per_second": times.decode_tokens_per_second,
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
