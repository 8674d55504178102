//! A chat request: the body of `POST /v1/chat/completions`, checked.

use super::error::ApiError;
use super::fields::{boolean, get, integer, refuse, text, whole};
use super::sampling::Ending;
use super::tools::{Tools, tools};
use super::{messages, sampling};
use fieldfare::Error;
use fieldfare::chat::{Message, RenderOptions, Role};
use fieldfare::grammar::{self, Content, Rules, Schema};
use fieldfare::sample::Sampling;
use serde_json::{Map, Value};

/// What the server is, as far as requests are checked against it.
#[derive(Clone, Debug)]
pub struct Served {
    /// The model's name.
    pub id: String,
    /// Other names that it answers to, beside `default`.
    pub aliases: Vec<String>,
    /// It answers to every other name too.
    pub any_name: bool,
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
        self.any_name
            || name == self.id
            || name == "default"
            || self.aliases.iter().any(|alias| alias == name)
    }

    /// Checks `model`.
    ///
    /// # Errors
    /// `missing_required_parameter`, `invalid_type`, `model_not_found`.
    pub fn check(&self, map: &Map<String, Value>) -> Result<(), ApiError> {
        match text(map, "model")? {
            None if self.any_name => Ok(()),
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
    /// Ids that do, and how early.
    pub ending: Ending,
    /// What the answer may be.
    pub format: Content,
    /// Most tokens of a thought.
    pub thought_tokens: Option<usize>,
    /// How likely each token was, and so many others beside it.
    pub logprobs: Option<usize>,
    /// Answers.
    pub count: usize,
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
        let (render, thought_tokens) = render(map, served.thinking)?;
        let format = response_format(map)?;
        let taken = Rules { content: format.clone(), ..Rules::default() }.bytes();
        let request = Self {
            sampling: sampling::sampling(map, &served.sampling, served.vocabulary)?,
            stop: sampling::stop(map)?,
            max_tokens: sampling::max_tokens(
                map,
                &["max_completion_tokens", "max_tokens", "n_predict"],
                sampling::DEFAULT_MAX_TOKENS,
                1,
            )?,
            ending: sampling::ending(map, served.vocabulary)?,
            thought_tokens: thought_tokens.filter(|_| render.enable_thinking),
            logprobs: probabilities(map)?,
            count: sampling::count(map)?,
            render,
            format,
            tools: tools(map, grammar::BYTES.saturating_sub(taken))?,
            messages: messages::messages(map)?,
            stream,
            include_usage,
        };
        refuse(map, "audio", "text only")?;
        refuse(map, "web_search_options", "this server opens no connection")?;
        if request.render.continue_final {
            let last = request.messages.last();
            if last.is_none_or(|message| message.role != Role::Assistant || !message.tool_calls.is_empty()) {
                let reason = "needs a last message of the assistant without tool calls";
                return Err(ApiError::value("continue_final_message", reason));
            }
        }
        if let Some(Value::Array(kinds)) = get(map, "modalities")
            && kinds.iter().any(|kind| kind != "text")
        {
            return Err(ApiError::unsupported("modalities", "text only"));
        }
        Ok(request)
    }
}

/// `logprobs` and `top_logprobs`.
fn probabilities(map: &Map<String, Value>) -> Result<Option<usize>, ApiError> {
    let asked = boolean(map, "logprobs")?.unwrap_or(false);
    let top = match get(map, "top_logprobs").map(whole) {
        None => 0,
        Some(None) => return Err(ApiError::wrong_type("top_logprobs", "a whole number")),
        Some(Some(top @ 0..=20)) => top as usize,
        Some(Some(_)) => return Err(ApiError::value("top_logprobs", "must be from 0 to 20")),
    };
    if !asked && get(map, "top_logprobs").is_some() {
        return Err(ApiError::value("top_logprobs", "needs logprobs"));
    }
    Ok(asked.then_some(top))
}

fn response_format(map: &Map<String, Value>) -> Result<Content, ApiError> {
    let format = match get(map, "response_format") {
        None => return Ok(Content::Free),
        Some(Value::Object(format)) => format,
        Some(_) => return Err(ApiError::wrong_type("response_format", "an object")),
    };
    let kind = match get(format, "type") {
        None => return Err(ApiError::missing("response_format.type")),
        Some(Value::String(kind)) => kind.as_str(),
        Some(_) => return Err(ApiError::wrong_type("response_format.type", "text")),
    };
    match kind {
        "text" => Ok(Content::Free),
        // With a schema as llama.cpp takes it.
        "json_object" => match get(format, "schema") {
            None => Ok(Content::Json(Schema::object())),
            Some(schema) => schema_of(schema, "response_format.schema", false),
        },
        "json_schema" => {
            let path = "response_format.json_schema";
            let wrapper = match get(format, "json_schema") {
                None => return Err(ApiError::missing(path)),
                Some(Value::Object(wrapper)) => wrapper,
                Some(_) => return Err(ApiError::wrong_type(path, "an object")),
            };
            let strict = match get(wrapper, "strict") {
                None => false,
                Some(Value::Bool(strict)) => *strict,
                Some(_) => return Err(ApiError::wrong_type(format!("{path}.strict"), "true or false")),
            };
            let path = format!("{path}.schema");
            match get(wrapper, "schema") {
                None => Err(ApiError::missing(path)),
                Some(schema) => schema_of(schema, &path, strict),
            }
        }
        _ => Err(ApiError::value("response_format.type", "must be text, json_object or json_schema")),
    }
}

fn schema_of(schema: &Value, path: &str, strict: bool) -> Result<Content, ApiError> {
    match Schema::parse(schema, path, strict) {
        Ok(schema) => Ok(Content::Json(schema)),
        Err(Error::BadRequest { field, reason }) => Err(ApiError::bad("invalid_json_schema", field, reason)),
        Err(_) => Err(ApiError::internal()),
    }
}

/// Whether to think and for how long: the word of the newest style that is there.
fn render(map: &Map<String, Value>, default: bool) -> Result<(RenderOptions, Option<usize>), ApiError> {
    let mut options = RenderOptions {
        enable_thinking: default,
        continue_final: boolean(map, "continue_final_message")?.unwrap_or(false),
        ..RenderOptions::default()
    };
    let mut most = None;
    let mut effort_of = |effort: &str, param: &str| -> Result<bool, ApiError> {
        let (thinks, budget) = effort_of(effort, param)?;
        most = budget;
        Ok(thinks)
    };
    if let Some(effort) = text(map, "reasoning_effort")? {
        options.enable_thinking = effort_of(effort, "reasoning_effort")?;
    }
    match get(map, "reasoning") {
        None => {}
        Some(Value::Object(reasoning)) => {
            match get(reasoning, "effort") {
                None => {}
                Some(Value::String(effort)) => {
                    options.enable_thinking = effort_of(effort, "reasoning.effort")?;
                }
                Some(_) => return Err(ApiError::wrong_type("reasoning.effort", "text")),
            }
            match get(reasoning, "enabled") {
                None => {}
                Some(Value::Bool(enabled)) => options.enable_thinking = *enabled,
                Some(_) => return Err(ApiError::wrong_type("reasoning.enabled", "true or false")),
            }
            if let Some(value) = get(reasoning, "max_tokens") {
                let within =
                    |error: ApiError| ApiError { param: Some("reasoning.max_tokens".into()), ..error };
                most = budget(whole(value), "reasoning.max_tokens").map_err(within)?;
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
    for key in ["thinking_budget_tokens", "reasoning_budget_tokens", "thinking_token_budget"] {
        if get(map, key).is_some() {
            most = budget(integer(map, key)?, key)?;
        }
    }
    if most == Some(0) {
        options.enable_thinking = false;
    }
    Ok((options, most))
}

/// Tokens of a thought: -1 is no limit, 0 is no thought.
fn budget(value: Option<i128>, param: &str) -> Result<Option<usize>, ApiError> {
    match value {
        None => Err(ApiError::wrong_type(param, "a whole number")),
        Some(-1) => Ok(None),
        Some(tokens @ 0..) => Ok(Some(usize::try_from(tokens).unwrap_or(usize::MAX))),
        Some(_) => Err(ApiError::value(param, "must not be negative, or -1 for no limit")),
    }
}

/// Whether it thinks, and most tokens of that. The model itself knows no levels; these are ours.
fn effort_of(effort: &str, param: &str) -> Result<(bool, Option<usize>), ApiError> {
    match effort {
        "none" | "minimal" => Ok((false, None)),
        "low" => Ok((true, Some(1024))),
        "medium" => Ok((true, Some(4096))),
        "high" | "xhigh" | "max" => Ok((true, None)),
        _ => Err(ApiError::value(param, "must be none, minimal, low, medium, high, xhigh or max")),
    }
}
