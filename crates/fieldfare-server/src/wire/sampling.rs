//! How tokens are chosen and when to stop: the fields that chat and plain completions have in common.

use super::error::ApiError;
use super::fields::{boolean, get, integer, number, whole, within};
use fieldfare::sample::{MAX_BIASES, Sampling, StopStrings};
use serde_json::{Map, Value};

/// Tokens made when a chat request does not say.
pub const DEFAULT_MAX_TOKENS: usize = 4096;

/// Reads the sampling fields. `vocabulary` bounds the ids of `logit_bias`.
///
/// # Errors
/// The field and what is wrong with it.
pub fn sampling(
    map: &Map<String, Value>,
    defaults: &Sampling,
    vocabulary: usize,
) -> Result<Sampling, ApiError> {
    let mut sampling = defaults.clone();
    if let Some(value) = within(map, "temperature", 0.0, 2.0)? {
        sampling.temperature = value;
    }
    if let Some(value) = number(map, "top_p")? {
        // Tiny positive values stay positive as float32.
        if !(value > 0.0 && value <= 1.0) {
            return Err(ApiError::value("top_p", "must be above 0 and at most 1"));
        }
        sampling.top_p = (value as f32).max(f32::MIN_POSITIVE);
    }
    if let Some(value) = integer(map, "top_k")? {
        sampling.top_k = match value {
            -1 | 0 => 0,
            1..=256 => value as usize,
            _ => return Err(ApiError::value("top_k", "must be from 1 to 256, or 0 or -1 for all")),
        };
    }
    if let Some(value) = within(map, "min_p", 0.0, 1.0)? {
        sampling.min_p = value;
    }
    for key in ["repetition_penalty", "repeat_penalty"] {
        if let Some(value) = number(map, key)? {
            let small = value as f32;
            if !(small > 0.0 && small.is_finite()) {
                return Err(ApiError::value(key, "must be above 0 and within single precision (3.4e38)"));
            }
            sampling.repetition_penalty = small;
            break;
        }
    }
    if let Some(value) = within(map, "presence_penalty", -2.0, 2.0)? {
        sampling.presence_penalty = value;
    }
    if let Some(value) = within(map, "frequency_penalty", -2.0, 2.0)? {
        sampling.frequency_penalty = value;
    }
    sampling.logit_bias = logit_bias(map, vocabulary)?;
    sampling.seed = seed(map)?;
    Ok(sampling)
}

fn logit_bias(map: &Map<String, Value>, vocabulary: usize) -> Result<Vec<(u32, f32)>, ApiError> {
    let Some(value) = get(map, "logit_bias") else { return Ok(Vec::new()) };
    let Value::Object(entries) = value else {
        return Err(ApiError::wrong_type("logit_bias", "an object of token ids and numbers"));
    };
    if entries.len() > MAX_BIASES {
        return Err(ApiError::value("logit_bias", format!("may have at most {MAX_BIASES} entries")));
    }
    let mut biases = Vec::with_capacity(entries.len());
    for (index, (key, value)) in entries.iter().enumerate() {
        let digits = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_digit());
        let id = key.parse::<u32>().ok().filter(|&id| digits && (id as usize) < vocabulary);
        let Some(id) = id else {
            return Err(ApiError::value(
                "logit_bias",
                format!("key {} is no token id of this model (0 to {})", index + 1, vocabulary - 1),
            ));
        };
        let param = format!("logit_bias.{id}");
        let bias = value.as_f64().ok_or_else(|| ApiError::wrong_type(&param, "a number"))?;
        if !(-100.0..=100.0).contains(&bias) {
            return Err(ApiError::value(param, "must be from -100 to 100"));
        }
        if biases.iter().any(|&(other, _)| other == id) {
            return Err(ApiError::value(param, "is given twice"));
        }
        biases.push((id, bias as f32));
    }
    Ok(biases)
}

/// Any 64-bit integer; a negative one stands for its bits.
fn seed(map: &Map<String, Value>) -> Result<Option<u64>, ApiError> {
    let Some(value) = integer(map, "seed")? else { return Ok(None) };
    u64::try_from(value)
        .or_else(|_| i64::try_from(value).map(|value| value as u64))
        .map(Some)
        .map_err(|_| ApiError::value("seed", "must fit into 64 bits"))
}

/// `stop`: a text or a list of texts.
///
/// # Errors
/// The entry and what is wrong with it.
pub fn stop(map: &Map<String, Value>) -> Result<Vec<String>, ApiError> {
    let stops = match get(map, "stop") {
        None => Vec::new(),
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(items)) => items
            .iter()
            .enumerate()
            .map(|(i, item)| match item {
                Value::String(text) => Ok(text.clone()),
                _ => Err(ApiError::wrong_type(format!("stop[{i}]"), "text")),
            })
            .collect::<Result<_, _>>()?,
        Some(_) => return Err(ApiError::wrong_type("stop", "text or a list of texts")),
    };
    match StopStrings::validate(&stops) {
        Ok(()) => Ok(stops),
        Err(fieldfare::Error::BadRequest { field, reason }) => Err(ApiError::value(field, reason)),
        Err(_) => Err(ApiError::internal()),
    }
}

/// How many tokens may be made: the first of `keys` that is there counts, and all of them are checked. `usize::MAX`
/// stands for no limit (-1); `least` is 1, or 0 where none may be made.
///
/// # Errors
/// The field and what is wrong with it.
pub fn max_tokens(
    map: &Map<String, Value>,
    keys: &[&str],
    default: usize,
    least: i128,
) -> Result<usize, ApiError> {
    let mut chosen = None;
    for key in keys {
        let Some(value) = integer(map, key)? else { continue };
        let limit = match value {
            -1 => usize::MAX,
            value if value >= least => usize::try_from(value).unwrap_or(usize::MAX),
            _ => return Err(ApiError::value(*key, "must be above 0, or -1 for no limit")),
        };
        chosen = chosen.or(Some(limit));
    }
    Ok(chosen.unwrap_or(default))
}

/// Most answers of one request.
const MAX_ANSWERS: i128 = 8;

/// `n`: how many answers.
///
/// # Errors
/// `invalid_type`, `invalid_value`.
pub fn count(map: &Map<String, Value>) -> Result<usize, ApiError> {
    match integer(map, "n")? {
        None => Ok(1),
        Some(count @ 1..=MAX_ANSWERS) => Ok(count as usize),
        Some(_) => Err(ApiError::value("n", format!("must be from 1 to {MAX_ANSWERS}"))),
    }
}

/// What ends an answer besides texts, and how early.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// Further ids that end it.
    pub stop_ids: Vec<u32>,
    /// Nothing ends it before so many tokens; `usize::MAX`: only the limit does.
    pub least: usize,
}

/// `stop_token_ids`, `min_tokens`, `ignore_eos`.
///
/// # Errors
/// The field and what is wrong with it.
pub fn ending(map: &Map<String, Value>, vocabulary: usize) -> Result<Ending, ApiError> {
    let stop_ids = match get(map, "stop_token_ids") {
        None => Vec::new(),
        Some(Value::Array(items)) if items.len() <= 64 => {
            let id = |(i, item): (usize, &Value)| {
                let param = format!("stop_token_ids[{i}]");
                let id = whole(item).ok_or_else(|| ApiError::wrong_type(&param, "a token id"))?;
                let known = u32::try_from(id).ok().filter(|&id| (id as usize) < vocabulary);
                known.ok_or_else(|| ApiError::value(param, format!("must be from 0 to {}", vocabulary - 1)))
            };
            items.iter().enumerate().map(id).collect::<Result<_, _>>()?
        }
        Some(Value::Array(_)) => {
            return Err(ApiError::value("stop_token_ids", "may have at most 64 entries"));
        }
        Some(_) => return Err(ApiError::wrong_type("stop_token_ids", "a list of token ids")),
    };
    let least = match integer(map, "min_tokens")? {
        None => 0,
        Some(least @ 0..) => usize::try_from(least).unwrap_or(usize::MAX),
        Some(_) => return Err(ApiError::value("min_tokens", "must not be negative")),
    };
    let never = boolean(map, "ignore_eos")?.unwrap_or(false);
    Ok(Ending { stop_ids, least: if never { usize::MAX } else { least } })
}

/// `stream` and `stream_options.include_usage`.
///
/// # Errors
/// `invalid_type`.
pub fn stream(map: &Map<String, Value>) -> Result<(bool, bool), ApiError> {
    let stream = boolean(map, "stream")?.unwrap_or(false);
    let usage = match get(map, "stream_options") {
        None => None,
        Some(Value::Object(options)) => match get(options, "include_usage") {
            None => None,
            Some(Value::Bool(flag)) => Some(*flag),
            Some(_) => return Err(ApiError::wrong_type("stream_options.include_usage", "true or false")),
        },
        Some(_) => return Err(ApiError::wrong_type("stream_options", "an object")),
    };
    Ok((stream, stream && usage.unwrap_or(false)))
}
