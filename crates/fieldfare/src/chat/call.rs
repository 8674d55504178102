//! Reads the body of a tool call, `call:NAME{key:value,…}`, strictly but for the named tolerances.
//!
//! The body comes as text and quote markers apart, because a marker spelled with ordinary tokens is text.
//! What is repaired is named in [`Recovery`]; what would be a guess (an unclosed string may be a half-written
//! file) is an error.

use super::json::{self, Json, MAX_DEPTH};
use super::python;

/// A departure from the format that the parser puts right. Each is counted, so that one can see how often it
/// happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Recovery {
    /// Round brackets around the arguments, perhaps with `=` for `:`.
    ParenShell,
    /// The word `call` is missing.
    BareOpener,
    /// The last braces or brackets are missing.
    MissingClose,
    /// The end marker is missing and the message ended by a stop token.
    MissingCloseTag,
    /// The name has a prefix up to a colon before a known name.
    NamespacedName,
    /// A value between single quotes.
    SingleQuotes,
    /// A key between quote markers or quotes.
    QuotedKeys,
    /// `None`, `True` or `False`.
    PythonLiteral,
}

impl Recovery {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::ParenShell,
        Self::BareOpener,
        Self::MissingClose,
        Self::MissingCloseTag,
        Self::NamespacedName,
        Self::SingleQuotes,
        Self::QuotedKeys,
        Self::PythonLiteral,
    ];

    /// The name in logs and counters.
    pub fn name(self) -> &'static str {
        match self {
            Self::ParenShell => "paren_shell",
            Self::BareOpener => "bare_opener",
            Self::MissingClose => "missing_close",
            Self::MissingCloseTag => "missing_close_tag",
            Self::NamespacedName => "namespaced_name",
            Self::SingleQuotes => "single_quotes",
            Self::QuotedKeys => "quoted_keys",
            Self::PythonLiteral => "python_literal",
        }
    }
}

/// The body of a call as it is collected: text, and where in it quote markers stand.
#[derive(Debug, Default)]
pub(crate) struct Body {
    text: String,
    /// Byte positions in `text` before which a quote marker stands, rising; several may be equal.
    quotes: Vec<usize>,
}

impl Body {
    pub(crate) fn text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub(crate) fn quote(&mut self) {
        self.quotes.push(self.text.len());
    }

    /// Bytes of the body, markers counted as they are spelled.
    pub(crate) fn len(&self) -> usize {
        self.text.len() + self.quotes.len() * QUOTE.len()
    }

    /// The body with markers spelled out.
    pub(crate) fn spelled(&self) -> String {
        let mut out = String::with_capacity(self.len());
        let mut from = 0;
        for &at in &self.quotes {
            out.push_str(&self.text[from..at]);
            out.push_str(QUOTE);
            from = at;
        }
        out.push_str(&self.text[from..]);
        out
    }
}

const QUOTE: &str = super::marker::Marker::Quote.text();

/// A call as written: the name is not looked up yet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RawCall {
    pub(crate) name: String,
    pub(crate) arguments: Json,
    pub(crate) recovered: Vec<Recovery>,
}

/// Whether a key can be written bare and read back.
pub(crate) fn is_writable_key(key: &str) -> bool {
    !key.is_empty()
        && python::strip(key) == key
        && key.chars().all(is_key_char)
        && !key.starts_with(['"', '\''])
}

/// What a tool's name is made of, as it is read.
pub(crate) fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | ':')
}

/// What no bare key has, beside control characters.
pub(crate) const NO_KEY: [char; 10] = [':', ',', '{', '}', '[', ']', '(', ')', '"', '='];

fn is_key_char(c: char) -> bool {
    !c.is_control() && !NO_KEY.contains(&c)
}

/// Reads a whole body. The error says what is wrong, in words.
pub(crate) fn parse(body: &Body) -> Result<RawCall, String> {
    let mut parser = Parser { body, at: 0, quote: 0, recovered: Vec::new() };
    let call = parser.call()?;
    Ok(call)
}

/// Reads a body that is one list or object of a call; `None` where it is not in the format itself.
pub(crate) fn parse_value(body: &Body) -> Option<Json> {
    let mut parser = Parser { body, at: 0, quote: 0, recovered: Vec::new() };
    let value = parser.value(1).ok()?;
    (parser.recovered.is_empty() && parser.peek() == Step::End).then_some(value)
}

/// One step of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Quote,
    Char(char),
    End,
}

struct Parser<'a> {
    body: &'a Body,
    /// Position in the text.
    at: usize,
    /// Quote markers passed.
    quote: usize,
    recovered: Vec<Recovery>,
}

impl Parser<'_> {
    fn peek(&self) -> Step {
        if self.body.quotes.get(self.quote) == Some(&self.at) {
            return Step::Quote;
        }
        self.body.text[self.at..].chars().next().map_or(Step::End, Step::Char)
    }

    fn bump(&mut self) -> Step {
        let step = self.peek();
        match step {
            Step::Quote => self.quote += 1,
            Step::Char(c) => self.at += c.len_utf8(),
            Step::End => {}
        }
        step
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Step::Char(wanted);
        if found {
            self.bump();
        }
        found
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Step::Char(c) if python::is_space(c)) {
            self.bump();
        }
    }

    /// The text up to the next quote marker.
    fn plain(&self) -> &str {
        let end = self.body.quotes.get(self.quote).copied().unwrap_or(self.body.text.len());
        &self.body.text[self.at..end]
    }

    fn take_while(&mut self, fits: impl Fn(char) -> bool) -> String {
        let taken: String = self.plain().chars().take_while(|c| fits(*c)).collect();
        self.at += taken.len();
        taken
    }

    fn note(&mut self, what: Recovery) {
        self.recovered.push(what);
    }

    fn call(&mut self) -> Result<RawCall, String> {
        self.skip_space();
        if self.plain().starts_with("call") {
            self.at += "call".len();
            self.skip_space();
        } else {
            self.note(Recovery::BareOpener);
        }
        if !self.take(':') {
            return Err("`call:` is missing".to_owned());
        }
        self.skip_space();
        let name = self.take_while(is_name_char);
        if name.is_empty() {
            return Err("the tool's name is missing".to_owned());
        }
        self.skip_space();
        let close = if self.take('{') {
            '}'
        } else if self.take('(') {
            self.note(Recovery::ParenShell);
            ')'
        } else {
            return Err("the arguments have no brackets".to_owned());
        };
        let arguments = self.entries(close, 0)?;
        self.skip_space();
        if self.peek() != Step::End {
            return Err("more text after the arguments".to_owned());
        }
        let mut recovered = std::mem::take(&mut self.recovered);
        recovered.sort_unstable();
        recovered.dedup();
        Ok(RawCall { name, arguments, recovered })
    }

    /// The entries of a mapping whose opener is read, up to and with its closer.
    fn entries(&mut self, close: char, depth: usize) -> Result<Json, String> {
        let mut entries = Vec::new();
        self.skip_space();
        if self.take(close) {
            return Ok(Json::Object(entries));
        }
        loop {
            self.skip_space();
            let key = self.key(close)?;
            let value = self.value(depth + 1)?;
            entries.push((key, value));
            if self.closed(close)? {
                return Ok(Json::object(entries));
            }
        }
    }

    /// After a value: true at the closer (or the end of the body, which counts as one), false at a comma.
    fn closed(&mut self, close: char) -> Result<bool, String> {
        self.skip_space();
        match self.bump() {
            Step::Char(',') => Ok(false),
            Step::Char(c) if c == close => Ok(true),
            Step::End => {
                self.note(Recovery::MissingClose);
                Ok(true)
            }
            Step::Char(c) => Err(format!("`{c}` where `,` or `{close}` should stand")),
            Step::Quote => Err(format!("a quote mark where `,` or `{close}` should stand")),
        }
    }

    /// A key and the colon (or `=`, in round brackets) after it.
    fn key(&mut self, close: char) -> Result<String, String> {
        let key = match self.peek() {
            Step::Quote => {
                self.note(Recovery::QuotedKeys);
                self.marked_string()?
            }
            Step::Char('"') => {
                self.note(Recovery::QuotedKeys);
                self.json_string()?
            }
            Step::Char('\'') => {
                self.note(Recovery::QuotedKeys);
                self.bump();
                let key = self.take_while(|c| c != '\'');
                if !self.take('\'') {
                    return Err("a key is not closed".to_owned());
                }
                key
            }
            _ => {
                let paren = close == ')';
                let key = self.take_while(|c| python::is_space(c) || is_key_char(c) || (!paren && c == '='));
                python::strip(&key).to_owned()
            }
        };
        if key.is_empty() {
            return Err("a key is missing".to_owned());
        }
        self.skip_space();
        if self.take(':') || (close == ')' && self.take('=')) {
            return Ok(key);
        }
        Err(format!("`:` should follow the key {key:?}"))
    }

    fn value(&mut self, depth: usize) -> Result<Json, String> {
        if depth > MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH}"));
        }
        self.skip_space();
        match self.peek() {
            Step::End => Err("a value is missing".to_owned()),
            Step::Quote => self.marked_string().map(Json::String),
            Step::Char('"') => self.json_string().map(Json::String),
            Step::Char('\'') => self.single_quoted().map(Json::String),
            Step::Char('{') => {
                self.bump();
                self.entries('}', depth)
            }
            Step::Char('[') => {
                self.bump();
                self.items(depth)
            }
            Step::Char(_) => self.scalar(),
        }
    }

    fn items(&mut self, depth: usize) -> Result<Json, String> {
        let mut items = Vec::new();
        self.skip_space();
        if self.take(']') {
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.closed(']')? {
                return Ok(Json::Array(items));
            }
        }
    }

    /// Between two quote markers: raw, nothing is an escape.
    fn marked_string(&mut self) -> Result<String, String> {
        self.bump();
        let s = self.plain().to_owned();
        self.at += s.len();
        match self.bump() {
            Step::Quote => Ok(s),
            _ => Err("a string is not closed".to_owned()),
        }
    }

    fn json_string(&mut self) -> Result<String, String> {
        let (s, len) = json::read_string(self.plain())?;
        self.at += len;
        Ok(s)
    }

    /// Between single quotes, raw. The closing one is the first that a comma, a closer or the end follows, so
    /// that an apostrophe inside does not end it.
    fn single_quoted(&mut self) -> Result<String, String> {
        self.note(Recovery::SingleQuotes);
        self.bump();
        let plain = self.plain();
        let at_end = self.at + plain.len() == self.body.text.len();
        let end = plain.match_indices('\'').map(|(i, _)| i).find(|i| {
            match plain[i + 1..].trim_start_matches(python::is_space).chars().next() {
                Some(c) => matches!(c, ',' | '}' | ']' | ')'),
                None => at_end,
            }
        });
        let Some(end) = end else { return Err("a string is not closed".to_owned()) };
        let s = plain[..end].to_owned();
        self.at += end + 1;
        Ok(s)
    }

    fn scalar(&mut self) -> Result<Json, String> {
        let word: String = self
            .plain()
            .chars()
            .take_while(|c| {
                !python::is_space(*c) && !matches!(c, ',' | '}' | ']' | ')' | '{' | '[' | '(' | ':')
            })
            .collect();
        let value = match word.as_str() {
            "null" => Json::Null,
            "true" => Json::Bool(true),
            "false" => Json::Bool(false),
            "None" => Json::Null,
            "True" => Json::Bool(true),
            "False" => Json::Bool(false),
            "" => return Err("a value is missing".to_owned()),
            number if json::is_number(number) => Json::Number(word.clone()),
            other => return Err(format!("{other:?} is no value")),
        };
        if matches!(word.as_str(), "None" | "True" | "False") {
            self.note(Recovery::PythonLiteral);
        }
        self.at += word.len();
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `§` stands for the quote marker.
    fn body(text: &str) -> Body {
        let mut body = Body::default();
        for (i, run) in text.split('§').enumerate() {
            if i > 0 {
                body.quote();
            }
            body.text(run);
        }
        body
    }

    fn read(text: &str) -> Result<(String, String, Vec<&'static str>), String> {
        let call = parse(&body(text))?;
        Ok((call.name, call.arguments.to_string(), call.recovered.iter().map(|r| r.name()).collect()))
    }

    #[track_caller]
    fn reads(text: &str, arguments: &str, recovered: &[&str]) {
        assert_eq!(read(text).unwrap(), ("f".to_owned(), arguments.to_owned(), recovered.to_vec()));
    }

    #[test]
    fn strings_are_raw_and_quotes_are_markers() {
        reads(r#"call:f{a:§\d{"x"},'§,b:§§}"#, r#"{"a":"\\d{\"x\"},'","b":""}"#, &[]);
        reads(" call : f { a b : [ 1 , { c : true } ] } ", r#"{"a b":[1,{"c":true}]}"#, &[]);
        reads("call:f{a=b:1}", r#"{"a=b":1}"#, &[]);
    }

    #[test]
    fn tolerances_are_named() {
        reads("call:f(a=1,b:§x§)", r#"{"a":1,"b":"x"}"#, &["paren_shell"]);
        reads(":f{}", "{}", &["bare_opener"]);
        reads("call:f{a:[{b:1", r#"{"a":[{"b":1}]}"#, &["missing_close"]);
        reads(
            "call:f{§a§:'it's',\"b\":None}",
            r#"{"a":"it's","b":null}"#,
            &["single_quotes", "quoted_keys", "python_literal"],
        );
        reads("call:f(a='x'", r#"{"a":"x"}"#, &["paren_shell", "missing_close", "single_quotes"]);
    }

    #[test]
    fn guesses_are_errors() {
        for bad in [
            "",
            "call",
            "call:",
            "call:f",
            "call:{}",
            "call:f please",
            "call:f{",
            "call:f{a",
            "call:f{a:",
            "call:f{a:1,",
            "call:f{a:1,}",
            "call:f{a:b}",
            "call:f{a:007}",
            "call:f{a:1.}",
            "call:f{a:[1}",
            "call:f{a:1)",
            "call:f(a:1}",
            "call:f{a:1}}",
            "call:f{a:1} and",
            "call:f{a:§x}",
            "call:f{a:§x§y}",
            "call:f{a:\"x§\"}",
            "call:f{a:\"\\ud800\"}",
            "call:f{:1}",
            "call:f{a:'x",
            "call:f{a:[",
            "f{a:1}",
            "call:f{a:1 2}",
            "call:f{,}",
            "call:f{a:truex}",
            "§call:f{}",
            "call:f{a§b:1}",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(read(&format!("call:f{{a:{}", "[".repeat(100_000))).is_err());
    }

    proptest! {
        #[test]
        fn no_body_panics(text in "(call:f)?[{(\\[§'\":,=\\]})a-c01.\\-\\\\ \nTrueNon\u{e9}]{0,40}") {
            if let Ok(call) = parse(&body(&text)) {
                prop_assert!(matches!(call.arguments, Json::Object(_)));
            }
        }
    }
}
