//! JSON values as the chat format needs them: numbers keep their spelling and objects their order.
//!
//! `serde_json::Value` turns an integer beyond 64 bits into a float; a tool argument must not change on its
//! way to the model or back. So arguments travel as [`Json`], whose numbers are the text they were written
//! as.

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
    /// Parses one JSON document. Of repeated keys the last wins. The error names the byte.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut reader = Reader { bytes: text.as_bytes(), text, at: 0 };
        reader.skip_space();
        let value = reader.value(0)?;
        reader.skip_space();
        if reader.at != reader.bytes.len() {
            return Err(format!("more text after the value at byte {}", reader.at));
        }
        Ok(value)
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

    fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
            Self::Number(n) => out.push_str(n),
            Self::String(s) => write_string(s, out),
            Self::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Self::Object(entries) => {
                out.push('{');
                for (i, (key, value)) in entries.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    write_string(key, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

/// Compact JSON text: nothing around commas and colons, numbers as spelled, only what must be is escaped.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        self.write(&mut out);
        f.write_str(&out)
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

fn write_string(s: &str, out: &mut String) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Length of the JSON number at the start of `bytes`; `None` where there is none or it breaks the grammar (a
/// leading zero, a dot or an exponent without digits). What follows it is the caller's to judge.
pub(crate) fn number_len(bytes: &[u8]) -> Option<usize> {
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut at = usize::from(bytes.first() == Some(&b'-'));
    let whole = digits(at);
    if whole == 0 || (whole > 1 && bytes[at] == b'0') {
        return None;
    }
    at += whole;
    if bytes.get(at) == Some(&b'.') {
        let fraction = digits(at + 1);
        if fraction == 0 {
            return None;
        }
        at += 1 + fraction;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        let exponent = digits(at + 1 + sign);
        if exponent == 0 {
            return None;
        }
        at += 1 + sign + exponent;
    }
    Some(at)
}

/// Reads a JSON string whose opening quote is at `at`; returns it and the position after its closing quote.
/// Raw control characters, unknown escapes and lone surrogates are errors, as JSON has it.
pub(crate) fn read_string(text: &str, at: usize) -> Result<(String, usize), String> {
    let mut out = String::new();
    let mut rest = text[at + 1..].char_indices();
    let base = at + 1;
    while let Some((i, c)) = rest.next() {
        match c {
            '"' => return Ok((out, base + i + 1)),
            '\\' => {
                let escape = rest.next().map(|(_, e)| e).ok_or("a string is not closed")?;
                let plain = match escape {
                    '"' | '\\' | '/' => escape,
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    'b' => '\u{8}',
                    'f' => '\u{c}',
                    'u' => unicode_escape(&mut rest)?,
                    other => return Err(format!("unknown escape \\{other} in a string")),
                };
                out.push(plain);
            }
            c if c < ' ' => return Err("a raw control character in a string".to_owned()),
            c => out.push(c),
        }
    }
    Err("a string is not closed".to_owned())
}

fn unicode_escape(rest: &mut std::str::CharIndices<'_>) -> Result<char, String> {
    fn four(rest: &mut std::str::CharIndices<'_>) -> Result<u32, String> {
        let mut code = 0;
        for _ in 0..4 {
            let digit =
                rest.next().and_then(|(_, c)| c.to_digit(16)).ok_or("a \\u escape needs four hex digits")?;
            code = code * 16 + digit;
        }
        Ok(code)
    }
    let lone = || "a lone surrogate in a string".to_owned();
    let first = four(rest)?;
    let code = if (0xd800..0xdc00).contains(&first) {
        if rest.next().map(|(_, c)| c) != Some('\\') || rest.next().map(|(_, c)| c) != Some('u') {
            return Err(lone());
        }
        let second = four(rest)?;
        if !(0xdc00..0xe000).contains(&second) {
            return Err(lone());
        }
        0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)
    } else {
        first
    };
    char::from_u32(code).ok_or_else(lone)
}

struct Reader<'a> {
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn skip_space(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        self.skip_space();
        let found = self.bytes.get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self, depth: usize) -> Result<Json, String> {
        if depth > MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH}"));
        }
        self.skip_space();
        match self.bytes.get(self.at) {
            None => Err("the text ends where a value should stand".to_owned()),
            Some(b'"') => self.string().map(Json::String),
            Some(b'[') => self.array(depth),
            Some(b'{') => self.object(depth),
            Some(_) => self.scalar(),
        }
    }

    fn string(&mut self) -> Result<String, String> {
        let (s, end) = read_string(self.text, self.at)?;
        self.at = end;
        Ok(s)
    }

    fn scalar(&mut self) -> Result<Json, String> {
        let rest = &self.bytes[self.at..];
        for (word, value) in [("null", Json::Null), ("true", Json::Bool(true)), ("false", Json::Bool(false))]
        {
            if rest.starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        let len = number_len(rest).ok_or_else(|| format!("no JSON value at byte {}", self.at))?;
        let number = self.text[self.at..self.at + len].to_owned();
        self.at += len;
        Ok(Json::Number(number))
    }

    fn array(&mut self, depth: usize) -> Result<Json, String> {
        self.at += 1;
        let mut items = Vec::new();
        if self.take(b']') {
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.take(b']') {
                return Ok(Json::Array(items));
            }
            if !self.take(b',') {
                return Err(format!("`,` or `]` should stand at byte {}", self.at));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, String> {
        self.at += 1;
        let mut entries = Vec::new();
        if self.take(b'}') {
            return Ok(Json::object(entries));
        }
        loop {
            self.skip_space();
            if self.bytes.get(self.at) != Some(&b'"') {
                return Err(format!("a key should stand at byte {}", self.at));
            }
            let key = self.string()?;
            if !self.take(b':') {
                return Err(format!("`:` should stand at byte {}", self.at));
            }
            let value = self.value(depth + 1)?;
            entries.push((key, value));
            if self.take(b'}') {
                return Ok(Json::object(entries));
            }
            if !self.take(b',') {
                return Err(format!("`,` or `}}` should stand at byte {}", self.at));
            }
        }
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
