//! A plain completion: the body of `POST /v1/completions`, checked.

use super::chat::Served;
use super::error::ApiError;
use super::fields::{boolean, get, integer, refuse, whole};
use super::sampling::{self, Ending};
use fieldfare::sample::Sampling;
use fieldfare::tokenizer::Tokenizer;
use serde_json::{Map, Value};

/// Tokens made when a request does not say.
const DEFAULT_MAX_TOKENS: usize = 16;

/// Most prompts of a request, and most answers of all its prompts.
const MAX_PROMPTS: usize = 128;

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
    /// What is continued, one after another.
    pub prompts: Vec<Given>,
    /// The prompt stands before the answer.
    pub echo: bool,
    /// How likely each token was, and so many others beside it.
    pub logprobs: Option<usize>,
    /// Answers to each prompt.
    pub count: usize,
    /// Ids that end the answer, and how early.
    pub ending: Ending,
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
        let echo = boolean(map, "echo")?.unwrap_or(false);
        let logprobs = match integer(map, "logprobs")? {
            None => None,
            Some(top @ 0..=20) => Some(top as usize),
            Some(_) => return Err(ApiError::value("logprobs", "must be from 0 to 20")),
        };
        let request = Self {
            prompts: prompts(map, served.vocabulary)?,
            echo,
            logprobs,
            count: sampling::count(map)?,
            ending: sampling::ending(map, served.vocabulary)?,
            parse_special: boolean(map, "parse_special")?.unwrap_or(false),
            sampling: sampling::sampling(map, &served.sampling, served.vocabulary)?,
            stop: sampling::stop(map)?,
            max_tokens: sampling::max_tokens(
                map,
                &["max_tokens", "n_predict"],
                DEFAULT_MAX_TOKENS,
                i128::from(!echo),
            )?,
            stream,
            include_usage,
        };
        if request.prompts.len() * request.count > MAX_PROMPTS {
            return Err(ApiError::value("n", format!("makes more than {MAX_PROMPTS} answers")));
        }
        if integer(map, "best_of")?.is_some_and(|count| count != 1) {
            return Err(ApiError::unsupported("best_of", "every answer that is made is given"));
        }
        refuse(map, "audio", "text only")?;
        refuse(map, "suffix", "text is only continued")?;
        Ok(request)
    }

    /// A prompt as ids.
    pub fn ids(&self, prompt: &Given, tokenizer: &Tokenizer) -> Vec<u32> {
        match prompt {
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

fn prompts(map: &Map<String, Value>, vocabulary: usize) -> Result<Vec<Given>, ApiError> {
    let value = get(map, "prompt").ok_or_else(|| ApiError::missing("prompt"))?;
    let items = match value {
        Value::String(text) => return Ok(vec![Given::Text(text.clone())]),
        Value::Array(items) => items,
        _ => return Err(ApiError::wrong_type("prompt", "text or a list of token ids")),
    };
    match items.first() {
        None => return Err(ApiError::value("prompt", "must not be empty")),
        Some(Value::Number(_)) => return Ok(vec![Given::Ids(ids(value, "prompt", vocabulary)?)]),
        Some(Value::String(_) | Value::Array(_)) => {}
        Some(_) => {
            let wanted = "text, a list of token ids, or a list of these";
            return Err(ApiError::wrong_type("prompt", wanted));
        }
    }
    if items.len() > MAX_PROMPTS {
        return Err(ApiError::value("prompt", format!("may have at most {MAX_PROMPTS} entries")));
    }
    let one = |(i, item): (usize, &Value)| match item {
        Value::String(text) => Ok(Given::Text(text.clone())),
        Value::Array(_) => ids(item, &format!("prompt[{i}]"), vocabulary).map(Given::Ids),
        _ => Err(ApiError::wrong_type(format!("prompt[{i}]"), "text or a list of token ids")),
    };
    items.iter().enumerate().map(one).collect()
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
