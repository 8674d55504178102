//! Typed looks at the fields of a JSON object; every refusal names its field.

use super::error::ApiError;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Objects and lists inside each other that a body may have, the body itself counted.
const MAX_DEPTH: usize = 128;

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
    if depth(body) > MAX_DEPTH {
        return Err(ApiError::json(format!("the body is nested deeper than {MAX_DEPTH}")));
    }
    let read = value(body).or_else(|error| match mended(body) {
        Some(body) => value(&body),
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

/// The value that a body is. Its depth has been looked at: the library's own limit is one less than ours.
fn value(body: &[u8]) -> serde_json::Result<Value> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    reader.disable_recursion_limit();
    let value = Value::deserialize(&mut reader)?;
    reader.end().map(|()| value)
}

/// How many objects and lists are open at a time, at most. Up to the first byte that is no JSON this sees what a reader sees.
fn depth(body: &[u8]) -> usize {
    let (mut now, mut most, mut in_text, mut at) = (0_usize, 0, false, 0);
    while at < body.len() {
        match body[at] {
            b'"' => in_text = !in_text,
            b'\\' if in_text => at += 1,
            b'[' | b'{' if !in_text => {
                now += 1;
                most = most.max(now);
            }
            b']' | b'}' if !in_text => now = now.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    most
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bodies_that_are_no_object() {
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(200), "]".repeat(200));
        let bodies: [&[u8]; 10] = [
            b"",
            b" \n",
            b"null",
            b"[]",
            b"\"x\"",
            b"{",
            b"{\"a\":1}x",
            b"{\"a\":\"\xff\"}",
            b"\xef\xbb\xbf{}",
            deep.as_bytes(),
        ];
        for body in bodies {
            let error = object(body).expect_err("it is no object");
            assert_eq!((error.status, error.code, error.param), (400, "invalid_json", None), "{body:?}");
        }
        // What was sent is never quoted.
        let error = object(b"{\"secret words\"").expect_err("it is cut");
        assert!(!error.message.contains("secret"), "{}", error.message);
    }

    #[test]
    fn bodies_are_nested_up_to_128() {
        let nested =
            |lists: usize| format!("{{\"a\":{}\"]}}\\\"[\"{}}}", "[".repeat(lists), "]".repeat(lists));
        let read = object(nested(127).as_bytes()).expect("127 lists in an object");
        let mut inner = &read["a"];
        while let Some(list) = inner.as_array() {
            inner = &list[0];
        }
        assert_eq!(inner, "]}\"[");
        let error = object(nested(128).as_bytes()).expect_err("one more");
        assert_eq!((error.code, error.message.contains("deeper than 128")), ("invalid_json", true));
        // What is open and never closed, or closed and never opened.
        for broken in ["[".repeat(1 << 20), format!("{{\"a\":1{}", "]".repeat(300)), "{\"a\":\"\\".to_owned()]
        {
            assert_eq!(object(broken.as_bytes()).expect_err("it is no JSON").code, "invalid_json");
        }
    }

    #[test]
    fn half_a_character_is_a_question_mark() {
        for (sent, wanted) in [
            (r#""\ud83d""#, "\u{fffd}"),
            (r#""cut \uD83D""#, "cut \u{fffd}"),
            (r#""\udcff\ud83d\ude00\ud83d\ud83d\ude00""#, "\u{fffd}😀\u{fffd}😀"),
            (r#""\ud83d\n\udE00x""#, "\u{fffd}\n\u{fffd}x"),
            // These are none.
            (r#""\\ud83d \ud800""#, "\\ud83d \u{fffd}"),
            (r#""\\\ud83d\u0041""#, "\\\u{fffd}A"),
            (r#""\ud83d\ude00""#, "😀"),
        ] {
            let body = format!("{{\"a\":{sent}}}");
            let read = object(body.as_bytes());
            assert_eq!(read.map(|map| map["a"].clone()), Ok(json!(wanted)), "{sent}");
        }
        for broken in
            [r#"{"a":"\ud83"}"#, r#"{"a":"\ud83d"#, r#"{"a":"\ud8+d"}"#, r#"{"a":\ud83d}"#, r#"{"a":"\"#]
        {
            let error = object(broken.as_bytes()).expect_err("it is no JSON");
            assert_eq!(error.code, "invalid_json", "{broken}");
        }
    }
}
