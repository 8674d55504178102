//! Gemma 4's chat format: messages and tools to token ids, token ids back to text, reasoning and tool calls.
//!
//! The types here are neutral: the server, the command line and the app all speak them. [`prepare`] does to a
//! conversation what real clients need, [`render`] writes it as the published template does, natively and as
//! ids, so that text from a request can never become a control token. [`OutputParser`] reads what the model
//! wrote. The cases that pin all of it down are in `fixtures/chat`.

mod call;
mod declare;
mod json;
mod marker;
mod output;
mod prepare;
mod python;
mod render;
mod schema;
mod teller;
mod wire;

pub use call::Recovery;
pub(crate) use call::{NO_KEY, is_writable_key};
pub use json::Json;
pub use output::{
    CallError, CallErrorKind, CutCall, End, OutputEvent, OutputParser, ParsedCall, ParsedOutput,
};
pub use prepare::{prepare, prepare_tools};
pub use render::{prompt, render, render_text};
pub use wire::{parse_messages, parse_tools};

#[cfg(test)]
mod tests;

use crate::{Error, Result};

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Instructions.
    System,
    /// The newer name of `system`; [`prepare`] turns it into one.
    Developer,
    /// The person.
    User,
    /// The model (`model` in the format).
    Assistant,
    /// The result of a tool call.
    Tool,
}

impl Role {
    /// The name in the OpenAI message shape.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// What a message says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// `null` or absent.
    #[default]
    None,
    /// One text.
    Text(String),
    /// Several pieces.
    Parts(Vec<Part>),
}

impl Content {
    /// Whether there is nothing but white space and no media.
    pub fn is_blank(&self) -> bool {
        match self {
            Self::None => true,
            Self::Text(text) => python::is_blank(text),
            Self::Parts(parts) => parts.iter().all(|p| matches!(p, Part::Text(t) if python::is_blank(t))),
        }
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Text.
    Text(String),
    /// A picture: rendered as its placeholder; this runtime is text only, so callers refuse it before.
    Image,
    /// Sound, likewise.
    Audio,
    /// Moving pictures, likewise.
    Video,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: Content,
    /// What the model thought before (assistant only); as given, not trimmed.
    pub reasoning: Option<String>,
    /// The calls that the model made (assistant only), in order.
    pub tool_calls: Vec<ToolCall>,
    /// Which call this is the result of (tool only).
    pub tool_call_id: Option<String>,
    /// The tool's name, used where the id names no call (tool only).
    pub name: Option<String>,
    /// Set by [`prepare`] on the text that it split off a message with calls: such a message still counts as
    /// one with calls where `preserve_thinking` asks.
    pub before_calls: bool,
}

impl Message {
    /// A message with text and nothing else.
    pub fn new(role: Role, content: impl Into<Content>) -> Self {
        Self {
            role,
            content: content.into(),
            reasoning: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
            name: None,
            before_calls: false,
        }
    }

    /// Instructions.
    pub fn system(content: impl Into<Content>) -> Self {
        Self::new(Role::System, content)
    }

    /// A turn of the person.
    pub fn user(content: impl Into<Content>) -> Self {
        Self::new(Role::User, content)
    }

    /// A turn of the model.
    pub fn assistant(content: impl Into<Content>) -> Self {
        Self::new(Role::Assistant, content)
    }

    /// The result of the call `id`.
    pub fn tool(id: impl Into<String>, content: impl Into<Content>) -> Self {
        Self { tool_call_id: Some(id.into()), ..Self::new(Role::Tool, content) }
    }
}

/// A tool that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does; absent counts as empty.
    pub description: Option<String>,
    /// JSON schema of the arguments. [`prepare_tools`] brings it into the subset that the format can express.
    pub parameters: Option<serde_json::Value>,
    /// JSON schema of the result, of which the format shows description and type.
    pub response: Option<serde_json::Value>,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// Names the call for its result. The parser gives `call_0`, `call_1`, … within one message; whoever
    /// keeps a conversation gives its own.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments.
    pub arguments: Arguments,
}

/// The arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// JSON text, as the OpenAI shape carries it, not looked at yet. The renderer refuses it; [`prepare`]
    /// parses it.
    Text(String),
    /// A JSON object.
    Object(Json),
}

impl Arguments {
    /// An object without entries.
    pub fn empty() -> Self {
        Self::Object(Json::Object(Vec::new()))
    }

    /// The arguments as JSON text: numbers as spelled, strings escaped only where they must be.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Object(json) => json.to_string(),
        }
    }

    /// The arguments as a value; `None` for text that is not JSON.
    pub fn value(&self) -> Option<serde_json::Value> {
        match self {
            Self::Text(text) => Json::parse(text).ok().map(|json| json.to_value()),
            Self::Object(json) => Some(json.to_value()),
        }
    }

    /// The same with text parsed. Empty text is an empty object; anything but an object is refused, naming
    /// `field`.
    pub fn parsed(&self, field: &str) -> Result<Self> {
        let json = match self {
            Self::Text(text) if python::is_blank(text) => return Ok(Self::empty()),
            Self::Text(text) => Json::parse(text).map_err(|e| Error::bad(field, format!("not JSON: {e}")))?,
            Self::Object(json) => json.clone(),
        };
        match json {
            Json::Object(_) => Ok(Self::Object(json)),
            _ => Err(Error::bad(field, "must be a JSON object")),
        }
    }
}

/// What [`render`] may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenderOptions {
    /// Whether the model may think first. Off by default.
    pub enable_thinking: bool,
    /// Whether reasoning of earlier messages with tool calls is shown again. Off by default.
    pub preserve_thinking: bool,
    /// Whether the prompt ends in an open model turn. On by default.
    pub add_generation_prompt: bool,
    /// The last message, the model's and without calls, is left open for the model to go on with, its text as given up to
    /// the end. Then no turn is opened. Off by default.
    pub continue_final: bool,
}

impl Default for RenderOptions {
    fn default() -> Self {
        Self {
            enable_thinking: false,
            preserve_thinking: false,
            add_generation_prompt: true,
            continue_final: false,
        }
    }
}

/// A conversation as the model reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Token ids, `<bos>` first.
    pub ids: Vec<u32>,
    /// Whether the prompt ends inside an open thought, so that the output begins in one
    /// ([`OutputParser::new`] wants to know).
    pub starts_in_reasoning: bool,
}
