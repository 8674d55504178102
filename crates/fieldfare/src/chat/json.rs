//! JSON values as the chat format needs them: numbers keep their spelling and objects their order.
//!
//! `serde_json::Value` turns an integer beyond 64 bits into a float; a tool argument must not change on its
//! way to the model or back. So arguments travel as [`Json`], whose numbers are the text they were written
//! as. `serde_json` parses and writes them; its `RawValue` gives each number's text.

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::fmt;

/// Deepest nesting that [`Json::parse`] and the call parser accept; deeper input is refused, not followed.
pub(crate) const MAX_DEPTH: usize = 128;

/// A JSON value whose numbers keep their spelling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number in JSON's grammar, spelled as it came.
    Number(String),
    /// A string.
    String(String),
    /// A list.
    Array(Vec<Json>),
    /// A mapping in the order of its keys; no key occurs twice.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Parses one JSON document. Of repeated keys the last wins.
    pub fn parse(text: &str) -> Result<Self, String> {
        let raw: &RawValue = serde_json::from_str(text).map_err(|e| e.to_string())?;
        Self::read(raw.get(), 0, &mut text.len().saturating_mul(16).saturating_add(1 << 20))
    }

    /// Reads a value from its text, which is known to be well-formed but for what strings hold. Text is scanned once for
    /// each array and object around it; `scans` is how many bytes of that are left, so that deep nesting in a long text
    /// (16 levels around all of it) cannot take the time of a hundred such texts.
    fn read(text: &str, depth: usize, scans: &mut usize) -> Result<Self, String> {
        if depth > MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH}"));
        }
        *scans = scans.checked_sub(text.len()).ok_or("nested too deeply for its length")?;
        let mut inside = |raw: &RawValue| Self::read(raw.get(), depth + 1, scans);
        let wrong = |e: serde_json::Error| e.to_string();
        match text.as_bytes() {
            [b'[', ..] => {
                let items: Vec<&RawValue> = serde_json::from_str(text).map_err(wrong)?;
                items.into_iter().map(inside).collect::<Result<_, _>>().map(Self::Array)
            }
            [b'{', ..] => {
                let entries =
                    serde_json::Deserializer::from_str(text).deserialize_map(Entries).map_err(wrong)?;
                let entries = entries.into_iter().map(|(key, raw)| Ok((key, inside(raw)?)));
                entries.collect::<Result<_, String>>().map(Self::object)
            }
            [b'"', ..] => serde_json::from_str(text).map(Self::String).map_err(wrong),
            b"null" => Ok(Self::Null),
            b"true" => Ok(Self::Bool(true)),
            b"false" => Ok(Self::Bool(false)),
            _ => Ok(Self::Number(text.to_owned())),
        }
    }

    /// The value of `key`, if this is an object that has it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(entries) => entries.iter().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// As a `serde_json` value. A number that it cannot hold exactly becomes the nearest float; one beyond
    /// every float becomes a string.
    pub fn to_value(&self) -> serde_json::Value {
        use serde_json::Value;
        match self {
            Self::Null => Value::Null,
            Self::Bool(b) => Value::Bool(*b),
            Self::Number(n) => serde_json::from_str(n).unwrap_or_else(|_| Value::String(n.clone())),
            Self::String(s) => Value::String(s.clone()),
            Self::Array(items) => Value::Array(items.iter().map(Self::to_value).collect()),
            Self::Object(entries) => {
                Value::Object(entries.iter().map(|(k, v)| (k.clone(), v.to_value())).collect())
            }
        }
    }

    /// An object of entries as read: of repeated keys the last stays, at its own place. Linear, since a client decides how
    /// many there are.
    pub(crate) fn object(mut entries: Vec<(String, Self)>) -> Self {
        let mut seen = HashSet::new();
        let last: Vec<bool> = entries.iter().rev().map(|(key, _)| seen.insert(key.as_str())).collect();
        if last.contains(&false) {
            let mut last = last.into_iter().rev();
            entries.retain(|_| last.next().unwrap_or(true));
        }
        Self::Object(entries)
    }
}

/// Compact JSON text: nothing around commas and colons, numbers as spelled, only what must be is escaped.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

/// For `serde_json`: numbers go out as spelled. What is no number (only a caller's own mistake) goes as a string.
impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(b) => serializer.serialize_bool(*b),
            Self::Number(n) => match serde_json::from_str::<&RawValue>(n) {
                Ok(spelled) => spelled.serialize(serializer),
                Err(_) => serializer.serialize_str(n),
            },
            Self::String(s) => serializer.serialize_str(s),
            Self::Array(items) => serializer.collect_seq(items),
            Self::Object(entries) => serializer.collect_map(entries.iter().map(|(k, v)| (k, v))),
        }
    }
}

impl From<&serde_json::Value> for Json {
    fn from(value: &serde_json::Value) -> Self {
        use serde_json::Value;
        match value {
            Value::Null => Self::Null,
            Value::Bool(b) => Self::Bool(*b),
            Value::Number(n) => Self::Number(n.to_string()),
            Value::String(s) => Self::String(s.clone()),
            Value::Array(items) => Self::Array(items.iter().map(Self::from).collect()),
            Value::Object(entries) => {
                Self::Object(entries.iter().map(|(k, v)| (k.clone(), Self::from(v))).collect())
            }
        }
    }
}

/// Whether `text` is a number in JSON's grammar, of whatever size.
pub(crate) fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
        && serde_json::from_str::<&RawValue>(text).is_ok_and(|raw| raw.get() == text)
}

/// Reads the JSON string at the start of `text`; returns it and its length with its quotes.
pub(crate) fn read_string(text: &str) -> Result<(String, usize), String> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<String>();
    match values.next() {
        Some(Ok(string)) => Ok((string, values.byte_offset())),
        Some(Err(error)) => Err(format!("a string is not valid: {error}")),
        None => Err("a string is missing".to_owned()),
    }
}

/// The entries of an object in order, values as text.
struct Entries;

impl<'a> Visitor<'a> for Entries {
    type Value = Vec<(String, &'a RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_keep_their_spelling() {
        let text = r#"{"a":9007199254740993,"b":18446744073709551616,"c":1.50,"d":1E+2,"e":-0}"#;
        assert_eq!(Json::parse(text).unwrap().to_string(), text);
        assert_eq!(Json::Number("1,2".to_owned()).to_string(), "\"1,2\"", "still JSON");
    }

    #[test]
    fn what_json_refuses_is_refused() {
        for bad in [
            "",
            "{",
            "[1,]",
            "{\"a\":1,}",
            "01",
            "1.",
            ".5",
            "-",
            "1e",
            "\"\\ud800\"",
            "\"\\x\"",
            "\"a\nb\"",
            "nul",
            "[1 2]",
            "1 2",
            "{a:1}",
            "\"open",
        ] {
            assert!(Json::parse(bad).is_err(), "{bad}");
        }
        assert!(Json::parse(&"[".repeat(100_000)).is_err());
        let deep = |levels, inner: &str| {
            Json::parse(&format!("{}{inner}{}", "[".repeat(levels), "]".repeat(levels))).map(drop)
        };
        assert!(deep(128, "1").is_ok());
        assert!(deep(129, "1").unwrap_err().contains("nested deeper than 128"));
        let long = "1,".repeat(100_000) + "1";
        assert!(deep(16, &long).is_ok());
        assert!(deep(100, &long).unwrap_err().contains("nested too deeply for its length"));
    }

    #[test]
    fn the_last_of_repeated_keys_wins() {
        assert_eq!(Json::parse(r#"{"a":1,"b":2,"a":3}"#).unwrap().to_string(), r#"{"b":2,"a":3}"#);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[\\[\\]{}:,\"\\\\0-9eu.\\-a-c \n]{0,40}") {
            let ours = Json::parse(&text);
            let theirs = serde_json::from_str::<serde_json::Value>(&text);
            // Numbers beyond every float are the one thing that ours takes and theirs does not.
            if theirs.is_ok() {
                prop_assert!(ours.is_ok());
            }
            if let Ok(value) = ours {
                prop_assert_eq!(&Json::parse(&value.to_string()).unwrap(), &value);
            }
        }

        #[test]
        fn strings_come_back(s in any::<String>()) {
            let json = Json::String(s.clone());
            let back: String = serde_json::from_str(&json.to_string()).unwrap();
            prop_assert_eq!(&back, &s);
            prop_assert_eq!(Json::parse(&json.to_string()).unwrap(), json);
        }
    }
}
