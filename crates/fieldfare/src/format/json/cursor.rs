//! The pull reader: one pass over the text, no recursion deeper than [`MAX_DEPTH`].

use super::Value;
use crate::{Error, Result};
use std::borrow::Cow;
use std::collections::HashSet;

/// Deepest nesting of arrays and objects. Our documents need 8.
pub const MAX_DEPTH: usize = 64;

/// Most values that one document may have as a tree, so that a hostile one takes 16 MiB and not fifty times its size. Our
/// manifests have a few hundred.
const MAX_VALUES: usize = 1 << 19;
/// The same for a part read with [`Cursor::nested`].
const MAX_NESTED_VALUES: usize = 1 << 15;

/// Most keys that are remembered at one time to find repeated ones, in all open objects together; so that a hostile
/// object takes 40 MiB also where nothing of it is kept. The largest of ours has two thousand.
const MAX_KEYS: usize = 1 << 19;

/// Objects up to this size look for a repeated key by comparing; larger ones use a set.
const SMALL_OBJECT: usize = 16;

/// A position in a JSON document.
pub struct Cursor<'a> {
    file: &'a str,
    text: &'a str,
    at: usize,
    depth: usize,
    /// Values that may still be made.
    budget: usize,
    /// Keys that may still be remembered.
    keys: usize,
}

impl<'a> Cursor<'a> {
    /// Starts reading `bytes` (UTF-8, at most `cap` bytes). `file` is for messages.
    pub fn new(file: &'a str, bytes: &'a [u8], cap: u64) -> Result<Self> {
        if bytes.len() as u64 > cap {
            return Err(Error::damaged(file, format!("{} bytes exceed the limit of {cap}", bytes.len())));
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|e| Error::damaged(file, format!("not UTF-8 at byte {}", e.valid_up_to())))?;
        Ok(Self { file, text, at: 0, depth: 0, budget: MAX_VALUES, keys: MAX_KEYS })
    }

    fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    fn error(&self, what: &str) -> Error {
        Error::damaged(self.file, format!("not valid JSON at byte {}: {what}", self.at))
    }

    /// The next byte that is not white space, not consumed.
    pub fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.bytes().get(self.at) {
            self.at += 1;
        }
        self.bytes().get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<()> {
        if self.eat(byte) { Ok(()) } else { Err(self.error(&format!("expected `{}`", char::from(byte)))) }
    }

    fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(self.error("nested too deeply")) } else { Ok(()) }
    }

    /// Checks that only white space is left.
    pub fn end(&mut self) -> Result<()> {
        if self.peek().is_some() { Err(self.error("text after the value")) } else { Ok(()) }
    }

    /// Reads an object. `member` gets each key and must read its value; a repeated key is an error.
    pub fn object(&mut self, mut member: impl FnMut(&mut Self, &str) -> Result<()>) -> Result<()> {
        self.expect(b'{')?;
        self.enter()?;
        let mut few: Vec<Cow<'a, str>> = Vec::new();
        let mut many: HashSet<Cow<'a, str>> = HashSet::new();
        if !self.eat(b'}') {
            loop {
                self.peek();
                let key = self.string()?;
                if few.contains(&key) || many.contains(&key) {
                    return Err(self.error(&format!("duplicate key {:?}", shorten(&key))));
                }
                self.expect(b':')?;
                member(self, &key)?;
                if few.len() < SMALL_OBJECT {
                    few.push(key);
                } else {
                    self.keys = self.keys.checked_sub(1).ok_or_else(|| self.error("too many keys"))?;
                    many.insert(key);
                }
                if !self.eat(b',') {
                    self.expect(b'}')?;
                    break;
                }
            }
        }
        self.keys += many.len();
        self.depth -= 1;
        Ok(())
    }

    /// Reads an array. `element` gets each index and must read the value there.
    pub fn array(&mut self, mut element: impl FnMut(&mut Self, usize) -> Result<()>) -> Result<()> {
        self.expect(b'[')?;
        self.enter()?;
        if !self.eat(b']') {
            for index in 0.. {
                element(self, index)?;
                if !self.eat(b',') {
                    self.expect(b']')?;
                    break;
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Reads any value as a tree.
    pub fn value(&mut self) -> Result<Value> {
        self.budget = self.budget.checked_sub(1).ok_or_else(|| self.error("too many values"))?;
        match self.peek() {
            Some(b'{') => {
                let mut members = Vec::new();
                self.object(|cursor, key| {
                    members.push((key.to_owned(), cursor.value()?));
                    Ok(())
                })?;
                Ok(Value::Object(members))
            }
            Some(b'[') => {
                let mut elements = Vec::new();
                self.array(|cursor, _| {
                    elements.push(cursor.value()?);
                    Ok(())
                })?;
                Ok(Value::Array(elements))
            }
            Some(b'"') => Ok(Value::String(self.string()?.into_owned())),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            _ => Err(self.error("expected a value")),
        }
    }

    /// Reads any value and drops it.
    pub fn skip(&mut self) -> Result<()> {
        self.leaf().map(drop)
    }

    /// Reads any value; an array or object is checked but comes out empty. For members that should be scalars.
    pub fn leaf(&mut self) -> Result<Value> {
        match self.peek() {
            Some(b'{') => self.object(|cursor, _| cursor.skip()).map(|()| Value::Object(Vec::new())),
            Some(b'[') => self.array(|cursor, _| cursor.skip()).map(|()| Value::Array(Vec::new())),
            _ => {
                let budget = self.budget; // one scalar is not kept in a tree
                let value = self.value();
                self.budget = budget;
                value
            }
        }
    }

    /// The text of the object that starts here, found by its brackets alone and *not* checked. For callers that
    /// either know this very text already or parse it with [`Cursor::nested`].
    pub(crate) fn raw_object(&mut self) -> Result<&'a str> {
        if self.peek() != Some(b'{') {
            return Err(self.error("expected `{`"));
        }
        let (start, bytes) = (self.at, self.bytes());
        let (mut level, mut quoted) = (0usize, false);
        while let Some(&byte) = bytes.get(self.at) {
            self.at += 1;
            match byte {
                b'\\' if quoted => self.at += 1,
                b'"' => quoted = !quoted,
                b'{' if !quoted => level += 1,
                b'}' if !quoted => {
                    level -= 1;
                    if level == 0 {
                        return Ok(&self.text[start..self.at]);
                    }
                }
                _ => {}
            }
        }
        self.at = self.at.min(bytes.len());
        Err(self.error("the object does not end"))
    }

    /// A cursor over a part of this document got from [`Cursor::raw_object`]; it continues the depth count.
    pub(crate) fn nested(&self, text: &'a str) -> Self {
        Self { file: self.file, text, at: 0, depth: self.depth, budget: MAX_NESTED_VALUES, keys: self.keys }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value> {
        if self.bytes()[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(value)
        } else {
            Err(self.error("expected a value"))
        }
    }

    fn digits(&mut self) -> Result<()> {
        let start = self.at;
        while self.bytes().get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        if self.at == start { Err(self.error("expected a digit")) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<Value> {
        let start = self.at;
        let next = |this: &Self| this.bytes().get(this.at).copied();
        self.at += usize::from(next(self) == Some(b'-'));
        let first = next(self);
        self.digits()?;
        if first == Some(b'0')
            && self.bytes()[..self.at].iter().rev().take_while(|b| b.is_ascii_digit()).count() > 1
        {
            return Err(self.error("a number starts with 0"));
        }
        let mut whole = true;
        if next(self) == Some(b'.') {
            (self.at, whole) = (self.at + 1, false);
            self.digits()?;
        }
        if let Some(b'e' | b'E') = next(self) {
            (self.at, whole) = (self.at + 1, false);
            self.at += usize::from(matches!(next(self), Some(b'+' | b'-')));
            self.digits()?;
        }
        let text = &self.text[start..self.at];
        if whole
            && let Ok(value) = text.parse::<i128>()
            && (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value)
        {
            return Ok(Value::Int(value));
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Value::Float(value)),
            _ => Err(self.error("a number out of range")),
        }
    }

    /// Reads a string at the cursor, which must stand on its quote.
    fn string(&mut self) -> Result<Cow<'a, str>> {
        if self.bytes().get(self.at) != Some(&b'"') {
            return Err(self.error("expected a string"));
        }
        self.at += 1;
        let start = self.at;
        let mut owned: Option<String> = None;
        let mut copied = start;
        loop {
            match self.bytes().get(self.at) {
                None => return Err(self.error("the string does not end")),
                Some(b'"') => break,
                Some(b'\\') => {
                    let out = owned.get_or_insert_default();
                    out.push_str(&self.text[copied..self.at]);
                    self.at += 1;
                    let c = self.escape()?;
                    owned.get_or_insert_default().push(c);
                    copied = self.at;
                }
                Some(0..=0x1f) => return Err(self.error("a control character in a string")),
                Some(_) => self.at += 1,
            }
        }
        let rest = &self.text[copied..self.at];
        self.at += 1;
        Ok(match owned {
            None => Cow::Borrowed(rest),
            Some(mut text) => {
                text.push_str(rest);
                Cow::Owned(text)
            }
        })
    }

    fn escape(&mut self) -> Result<char> {
        let letter = self.bytes().get(self.at).copied();
        self.at += usize::from(letter.is_some_and(|b| b.is_ascii()));
        Ok(match letter {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let high = self.four_digits()?;
                let code = if (0xd800..0xdc00).contains(&high) {
                    if !self.bytes()[self.at..].starts_with(b"\\u") {
                        return Err(self.error("half a surrogate pair"));
                    }
                    self.at += 2;
                    let low = self.four_digits()?;
                    if !(0xdc00..0xe000).contains(&low) {
                        return Err(self.error("half a surrogate pair"));
                    }
                    0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00)
                } else {
                    high
                };
                char::from_u32(code).ok_or_else(|| self.error("half a surrogate pair"))?
            }
            _ => return Err(self.error("an unknown escape")),
        })
    }

    fn four_digits(&mut self) -> Result<u32> {
        let code = self
            .bytes()
            .get(self.at..self.at + 4)
            .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .ok_or_else(|| self.error("expected four hexadecimal digits"))?;
        self.at += 4;
        Ok(code)
    }
}

/// At most 60 characters of an untrusted text, for messages.
fn shorten(text: &str) -> String {
    text.chars().take(60).collect()
}
