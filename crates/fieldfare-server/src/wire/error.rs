//! What a client is told when something is refused: a status, and the body that the OpenAI clients read.

use serde_json::{Map, Value, json};
use std::fmt::Display;

/// A refusal. `code` is always text, and `param` always there (`null` where no field is to blame).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// HTTP status.
    pub status: u16,
    /// The family, as OpenAI names it.
    pub kind: &'static str,
    /// What programs look at.
    pub code: &'static str,
    /// The field, as `messages[2].content`.
    pub param: Option<String>,
    /// What people read. Never holds text of the model, and of a prompt only names and short values.
    pub message: String,
    /// Tokens of the prompt and of the context, where the prompt is too long.
    pub tokens: Option<Box<(usize, usize)>>,
    /// Seconds for `Retry-After`.
    pub retry_after: Option<u32>,
    /// For `Allow`.
    pub allow: Option<&'static str>,
}

impl ApiError {
    /// Any refusal without a field.
    pub fn new(status: u16, kind: &'static str, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            code,
            param: None,
            message: message.into(),
            tokens: None,
            retry_after: None,
            allow: None,
        }
    }

    /// A wrong request: 400.
    pub fn bad(code: &'static str, param: impl Into<String>, message: impl Display) -> Self {
        let param = param.into();
        let message = format!("{param}: {message}");
        Self { param: Some(param), ..Self::new(400, "invalid_request_error", code, message) }
    }

    /// The body is not a JSON object.
    pub fn json(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_request_error", "invalid_json", message)
    }

    /// A field of the wrong type.
    pub fn wrong_type(param: impl Into<String>, wanted: impl Display) -> Self {
        Self::bad("invalid_type", param, format!("must be {wanted}"))
    }

    /// A field of the right type and out of range.
    pub fn value(param: impl Into<String>, reason: impl Display) -> Self {
        Self::bad("invalid_value", param, reason)
    }

    /// Something that others offer and this server does not.
    pub fn unsupported(param: impl Into<String>, reason: impl Display) -> Self {
        Self::bad("unsupported_value", param, reason)
    }

    /// A field that must be there.
    pub fn missing(param: impl Into<String>) -> Self {
        Self::bad("missing_required_parameter", param, "is missing")
    }

    /// The name in `model` is not the one that runs here.
    pub fn model(name: &str) -> Self {
        let name: String = name.chars().take(64).collect();
        let message = format!("model: `{name}` is not served here; GET /v1/models lists what is");
        Self {
            param: Some("model".to_owned()),
            ..Self::new(404, "invalid_request_error", "model_not_found", message)
        }
    }

    /// The prompt is longer than the context. Clients look for these very words to know that they should shorten the
    /// conversation.
    pub fn too_long(prompt: usize, context: usize) -> Self {
        let message = format!(
            "prompt is too long: this model's maximum context length is {context} tokens, the request has {prompt}"
        );
        Self {
            param: Some("messages".to_owned()),
            tokens: Some(Box::new((prompt, context))),
            ..Self::new(400, "invalid_request_error", "context_length_exceeded", message)
        }
    }

    /// No such path.
    pub fn not_found(path: &str) -> Self {
        let path: String = path.chars().take(100).collect();
        Self::new(404, "invalid_request_error", "not_found", format!("there is nothing at {path}"))
    }

    /// The path is known, the method is not.
    pub fn method(allow: &'static str) -> Self {
        let message = format!("this path answers to {allow}");
        Self { allow: Some(allow), ..Self::new(405, "invalid_request_error", "method_not_allowed", message) }
    }

    /// As many requests wait as may.
    pub fn queue_full() -> Self {
        let message = "as many requests wait as may; try again in a moment";
        Self { retry_after: Some(1), ..Self::new(429, "rate_limit_error", "queue_full", message) }
    }

    /// The model is not open yet.
    pub fn loading() -> Self {
        let message = "the model is being loaded; try again in a moment";
        Self { retry_after: Some(1), ..Self::new(503, "unavailable_error", "model_loading", message) }
    }

    /// The server goes away.
    pub fn shutting_down() -> Self {
        Self::new(503, "unavailable_error", "shutting_down", "the server is shutting down")
    }

    /// Something that nobody foresaw; what it was stands in the log.
    pub fn internal() -> Self {
        Self::new(500, "server_error", "internal_error", "an internal error; the server's log says more")
    }

    /// The object in `error`.
    pub fn object(&self) -> Value {
        let mut object = Map::new();
        object.insert("message".to_owned(), self.message.clone().into());
        object.insert("type".to_owned(), self.kind.into());
        object.insert("param".to_owned(), self.param.clone().into());
        object.insert("code".to_owned(), self.code.into());
        if let Some((prompt, context)) = self.tokens.as_deref().copied() {
            object.insert("n_prompt_tokens".to_owned(), prompt.into());
            object.insert("n_ctx".to_owned(), context.into());
        }
        Value::Object(object)
    }

    /// The body.
    pub fn body(&self) -> Value {
        json!({ "error": self.object() })
    }
}
