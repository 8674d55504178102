//! A chat request: the body of `POST /v1/chat/completions`, checked.

use super::error::ApiError;
use super::fields::{boolean, get, refuse, text, whole};
use super::tools::{Tools, tools};
use super::{messages, sampling};
use fieldfare::chat::{Message, RenderOptions};
use fieldfare::sample::Sampling;
use serde_json::{Map, Value};

/// What the server is, as far as requests are checked against it.
#[derive(Clone, Debug)]
pub struct Served {
    /// The model's name.
    pub id: String,
    /// Other names that it answers to, beside `default`.
    pub aliases: Vec<String>,
    /// Number of token ids.
    pub vocabulary: usize,
    /// Tokens of prompt and answer together.
    pub context: usize,
    /// What holds where a request does not say.
    pub sampling: Sampling,
    /// Whether the model thinks where a request does not say.
    pub thinking: bool,
}

impl Served {
    /// Whether the name means the model that runs here.
    pub fn is_called(&self, name: &str) -> bool {
        name == self.id || name == "default" || self.aliases.iter().any(|alias| alias == name)
    }

    /// Checks `model`.
    ///
    /// # Errors
    /// `missing_required_parameter`, `invalid_type`, `model_not_found`.
    pub fn check(&self, map: &Map<String, Value>) -> Result<(), ApiError> {
        match text(map, "model")? {
            None => Err(ApiError::missing("model")),
            Some(name) if self.is_called(name) => Ok(()),
            Some(name) => Err(ApiError::model(name)),
        }
    }
}

/// A chat request that can be carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    /// The conversation, prepared for the renderer.
    pub messages: Vec<Message>,
    /// What the model may call.
    pub tools: Tools,
    /// How it is written down.
    pub render: RenderOptions,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// Most tokens made; `usize::MAX` is no limit.
    pub max_tokens: usize,
    /// Piece by piece.
    pub stream: bool,
    /// The counts at the end of a stream.
    pub include_usage: bool,
}

impl ChatRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// The first thing that is wrong, with status, code and field.
    pub fn parse(map: &Map<String, Value>, served: &Served) -> Result<Self, ApiError> {
        served.check(map)?;
        let (stream, include_usage) = sampling::stream(map)?;
        let request = Self {
            sampling: sampling::sampling(map, &served.sampling, served.vocabulary)?,
            stop: sampling::stop(map)?,
            max_tokens: sampling::max_tokens(
                map,
                &["max_completion_tokens", "max_tokens", "n_predict"],
                sampling::DEFAULT_MAX_TOKENS,
            )?,
            render: render(map, served.thinking)?,
            tools: tools(map)?,
            messages: messages::messages(map)?,
            stream,
            include_usage,
        };
        sampling::one_plain_answer(map)?;
        probabilities(map)?;
        response_format(map)?;
        refuse(map, "web_search_options", "this server opens no connection")?;
        if boolean(map, "continue_final_message")? == Some(true) {
            return Err(ApiError::unsupported("continue_final_message", "a new turn is always opened"));
        }
        if let Some(Value::Array(kinds)) = get(map, "modalities")
            && kinds.iter().any(|kind| kind != "text")
        {
            return Err(ApiError::unsupported("modalities", "text only"));
        }
        Ok(request)
    }
}

fn probabilities(map: &Map<String, Value>) -> Result<(), ApiError> {
    let asked = boolean(map, "logprobs")?.unwrap_or(false);
    if let Some(value) = get(map, "top_logprobs") {
        match whole(value) {
            None => return Err(ApiError::wrong_type("top_logprobs", "a whole number")),
            Some(0..=20) => {}
            Some(_) => return Err(ApiError::value("top_logprobs", "must be from 0 to 20")),
        }
        if !asked {
            return Err(ApiError::value("top_logprobs", "needs logprobs"));
        }
    }
    if asked {
        return Err(ApiError::unsupported("logprobs", "no probabilities are given yet"));
    }
    Ok(())
}

fn response_format(map: &Map<String, Value>) -> Result<(), ApiError> {
    let format = match get(map, "response_format") {
        None => return Ok(()),
        Some(Value::Object(format)) => format,
        Some(_) => return Err(ApiError::wrong_type("response_format", "an object")),
    };
    match get(format, "type") {
        None => Err(ApiError::missing("response_format.type")),
        Some(Value::String(kind)) => match kind.as_str() {
            "text" => Ok(()),
            "json_object" | "json_schema" => {
                Err(ApiError::unsupported("response_format.type", "JSON cannot be enforced here yet"))
            }
            _ => Err(ApiError::value("response_format.type", "must be text, json_object or json_schema")),
        },
        Some(_) => Err(ApiError::wrong_type("response_format.type", "text")),
    }
}

/// Whether to think: the word of the newest style that is there.
fn render(map: &Map<String, Value>, default: bool) -> Result<RenderOptions, ApiError> {
    let mut options = RenderOptions { enable_thinking: default, ..RenderOptions::default() };
    if let Some(effort) = text(map, "reasoning_effort")? {
        options.enable_thinking = thinks(effort, "reasoning_effort")?;
    }
    match get(map, "reasoning") {
        None => {}
        Some(Value::Object(reasoning)) => {
            match get(reasoning, "effort") {
                None => {}
                Some(Value::String(effort)) => {
                    options.enable_thinking = thinks(effort, "reasoning.effort")?;
                }
                Some(_) => return Err(ApiError::wrong_type("reasoning.effort", "text")),
            }
            match get(reasoning, "enabled") {
                None => {}
                Some(Value::Bool(enabled)) => options.enable_thinking = *enabled,
                Some(_) => return Err(ApiError::wrong_type("reasoning.enabled", "true or false")),
            }
        }
        Some(_) => return Err(ApiError::wrong_type("reasoning", "an object")),
    }
    match get(map, "chat_template_kwargs") {
        None => {}
        Some(Value::Object(kwargs)) => {
            let flag = |key: &str| match get(kwargs, key) {
                None => Ok(None),
                Some(Value::Bool(flag)) => Ok(Some(*flag)),
                Some(_) => Err(ApiError::wrong_type(format!("chat_template_kwargs.{key}"), "true or false")),
            };
            if let Some(enable) = flag("enable_thinking")? {
                options.enable_thinking = enable;
            }
            if let Some(preserve) = flag("preserve_thinking")? {
                options.preserve_thinking = preserve;
            }
        }
        Some(_) => return Err(ApiError::wrong_type("chat_template_kwargs", "an object")),
    }
    Ok(options)
}

fn thinks(effort: &str, param: &str) -> Result<bool, ApiError> {
    match effort {
        "none" | "minimal" => Ok(false),
        "low" | "medium" | "high" | "xhigh" | "max" => Ok(true),
        _ => Err(ApiError::value(param, "must be none, minimal, low, medium, high, xhigh or max")),
    }
}
