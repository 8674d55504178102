//! Typed looks at the fields of a JSON object; every refusal names its field.

use super::error::ApiError;
use serde_json::{Map, Value};

/// A body as a JSON object. Half a character that stands alone in a text counts as U+FFFD.
///
/// # Errors
/// `invalid_json`: not UTF-8, not JSON, nested deeper than 128, not an object, or empty.
pub fn object(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(ApiError::json("the body is empty; a JSON object is wanted"));
    }
    if std::str::from_utf8(body).is_err() {
        return Err(ApiError::json("the body is not UTF-8"));
    }
    let read = serde_json::from_slice(body).or_else(|error| match mended(body) {
        Some(body) => serde_json::from_slice(&body),
        None => Err(error),
    });
    match read {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(ApiError::json("the body must be a JSON object")),
        Err(error) => {
            let (line, column) = (error.line(), error.column());
            Err(ApiError::json(format!(
                "the body is not JSON that can be read: line {line}, column {column}"
            )))
        }
    }
}

/// The body with U+FFFD for escapes of half a character (`\ud83d` without its other half), if it has any. JSON knows them
/// and text does not: a client that cuts texts by UTF-16 units, in the middle of an emoji, sends them.
fn mended(body: &[u8]) -> Option<Vec<u8>> {
    let unit = |at: usize| {
        let digits = body.get(at..at + 6)?.strip_prefix(b"\\u")?;
        let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut mended = None;
    let mut at = 0;
    while at < body.len() {
        at += match (body[at], unit(at), unit(at + 6)) {
            (b'\\', Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (b'\\', Some(0xd800..=0xdfff), _) => {
                mended.get_or_insert_with(|| body.to_vec())[at + 2..at + 6].copy_from_slice(b"fffd");
                6
            }
            (b'\\', None, _) => 2,
            _ => 1,
        };
    }
    mended
}

/// The value of a field; `null` is absent.
pub fn get<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    map.get(key).filter(|value| !value.is_null())
}

/// Text.
///
/// # Errors
/// `invalid_type`.
pub fn text<'a>(map: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, ApiError> {
    match get(map, key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(ApiError::wrong_type(key, "text")),
    }
}

/// True or false.
///
/// # Errors
/// `invalid_type`.
pub fn boolean(map: &Map<String, Value>, key: &str) -> Result<Option<bool>, ApiError> {
    match get(map, key) {
        None => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(_) => Err(ApiError::wrong_type(key, "true or false")),
    }
}

/// A number.
///
/// # Errors
/// `invalid_type`.
pub fn number(map: &Map<String, Value>, key: &str) -> Result<Option<f64>, ApiError> {
    match get(map, key) {
        None => Ok(None),
        Some(value) => value.as_f64().map(Some).ok_or_else(|| ApiError::wrong_type(key, "a number")),
    }
}

/// A whole number; `4096.0` is one.
///
/// # Errors
/// `invalid_type`.
pub fn integer(map: &Map<String, Value>, key: &str) -> Result<Option<i128>, ApiError> {
    match get(map, key) {
        None => Ok(None),
        Some(value) => whole(value).map(Some).ok_or_else(|| ApiError::wrong_type(key, "a whole number")),
    }
}

/// The whole number that a value is.
pub fn whole(value: &Value) -> Option<i128> {
    let number = value.as_number()?;
    if let Some(value) = number.as_i64() {
        return Some(value.into());
    }
    if let Some(value) = number.as_u64() {
        return Some(value.into());
    }
    let float = number.as_f64()?;
    // Beyond 64 bits it only matters that it is beyond.
    (float.fract() == 0.0).then_some(float as i128)
}

/// A number between bounds, as the engine takes it.
///
/// # Errors
/// `invalid_type`, `invalid_value`.
pub fn within(map: &Map<String, Value>, key: &str, low: f64, high: f64) -> Result<Option<f32>, ApiError> {
    match number(map, key)? {
        None => Ok(None),
        Some(value) if (low..=high).contains(&value) => Ok(Some(value as f32)),
        Some(_) => Err(ApiError::value(key, format!("must be from {low} to {high}"))),
    }
}

/// Refuses what stands in for a feature that is not here.
///
/// # Errors
/// `unsupported_value` if the field is there.
pub fn refuse(map: &Map<String, Value>, key: &str, reason: &str) -> Result<(), ApiError> {
    match get(map, key) {
        None => Ok(()),
        Some(_) => Err(ApiError::unsupported(key, reason)),
    }
}
