//! A plain completion: the body of `POST /v1/completions`, checked.

use super::chat::Served;
use super::error::ApiError;
use super::fields::{boolean, get, integer, refuse, whole};
use super::sampling;
use fieldfare::sample::Sampling;
use fieldfare::tokenizer::Tokenizer;
use serde_json::{Map, Value};

/// Tokens made when a request does not say.
const DEFAULT_MAX_TOKENS: usize = 16;

/// What is continued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// Text; `<bos>` is put in front.
    Text(String),
    /// Ids as they are.
    Ids(Vec<u32>),
}

/// A request that can be carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionRequest {
    /// What is continued.
    pub prompt: Given,
    /// Control tokens written in the text are meant.
    pub parse_special: bool,
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

impl CompletionRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// The first thing that is wrong, with status, code and field.
    pub fn parse(map: &Map<String, Value>, served: &Served) -> Result<Self, ApiError> {
        served.check(map)?;
        let (stream, include_usage) = sampling::stream(map)?;
        let request = Self {
            prompt: prompt(map, served.vocabulary)?,
            parse_special: boolean(map, "parse_special")?.unwrap_or(false),
            sampling: sampling::sampling(map, &served.sampling, served.vocabulary)?,
            stop: sampling::stop(map)?,
            max_tokens: sampling::max_tokens(map, &["max_tokens", "n_predict"], DEFAULT_MAX_TOKENS)?,
            stream,
            include_usage,
        };
        sampling::one_plain_answer(map)?;
        if boolean(map, "echo")? == Some(true) {
            return Err(ApiError::unsupported("echo", "the prompt is not given back yet"));
        }
        if integer(map, "logprobs")?.is_some_and(|count| count != 0) {
            return Err(ApiError::unsupported("logprobs", "no probabilities are given yet"));
        }
        if integer(map, "best_of")?.is_some_and(|count| count != 1) {
            return Err(ApiError::unsupported("best_of", "one answer a request is made here"));
        }
        refuse(map, "suffix", "text is only continued")?;
        Ok(request)
    }

    /// The prompt as ids.
    pub fn ids(&self, tokenizer: &Tokenizer) -> Vec<u32> {
        match &self.prompt {
            Given::Ids(ids) => ids.clone(),
            Given::Text(text) => {
                let mut ids = vec![tokenizer.control().bos];
                encode(tokenizer, text, self.parse_special, &mut ids);
                ids
            }
        }
    }
}

/// Text as ids; control tokens in it are text unless `special`.
pub fn encode(tokenizer: &Tokenizer, text: &str, special: bool, ids: &mut Vec<u32>) {
    if special {
        tokenizer.encode_with_control(text, ids);
    } else {
        tokenizer.encode(text, ids);
    }
}

fn prompt(map: &Map<String, Value>, vocabulary: usize) -> Result<Given, ApiError> {
    let value = get(map, "prompt").ok_or_else(|| ApiError::missing("prompt"))?;
    match value {
        Value::String(text) => Ok(Given::Text(text.clone())),
        Value::Array(items) => match items.as_slice() {
            [] => Err(ApiError::value("prompt", "must not be empty")),
            // A list of one prompt is that prompt.
            [Value::String(text)] => Ok(Given::Text(text.clone())),
            [Value::Array(_)] => ids(&items[0], "prompt[0]", vocabulary).map(Given::Ids),
            [Value::Number(_), ..] => ids(value, "prompt", vocabulary).map(Given::Ids),
            [Value::String(_) | Value::Array(_), ..] => {
                Err(ApiError::unsupported("prompt", "one prompt a request is continued here"))
            }
            _ => Err(ApiError::wrong_type("prompt", "text, a list of token ids, or a list of one of these")),
        },
        _ => Err(ApiError::wrong_type("prompt", "text or a list of token ids")),
    }
}

/// A list of token ids.
///
/// # Errors
/// `invalid_type`, `invalid_value`.
pub fn ids(value: &Value, param: &str, vocabulary: usize) -> Result<Vec<u32>, ApiError> {
    let Value::Array(items) = value else { return Err(ApiError::wrong_type(param, "a list of token ids")) };
    if items.is_empty() {
        return Err(ApiError::value(param, "must not be empty"));
    }
    items
        .iter()
        .enumerate()
        .map(|(i, item)| {
            let id =
                whole(item).ok_or_else(|| ApiError::wrong_type(format!("{param}[{i}]"), "a token id"))?;
            u32::try_from(id).ok().filter(|&id| (id as usize) < vocabulary).ok_or_else(|| {
                ApiError::value(format!("{param}[{i}]"), format!("must be from 0 to {}", vocabulary - 1))
            })
        })
        .collect()
}
