//! Writes grammars as text in `llguidance`'s dialect of Lark: JSON by schema, and the arguments of Gemma 4's calls.
//!
//! The two differ in how text, keys and white space are written; the shapes are the same. White space in JSON is at most
//! one space, or one newline and its indentation, where people put it. Values that the schema leaves open nest at most
//! [`FREE_DEPTH`] deep, so that every answer can be read back. Every literal goes through [`quoted`]; nothing else of a
//! request gets into the text.

use super::schema::{Entry, Id, Schema, Shape};
use crate::chat::NO_KEY;
use serde_json::Value;
use std::fmt::Write as _;

/// Deepest nesting of values whose schema is open.
const FREE_DEPTH: usize = 24;

/// Most keys that are written at most once each, in any order: a rule for every set of those that are left.
pub(super) const MAX_ONCE: usize = 6;
/// Most places where such a key may come, all tools of a grammar together.
const MAX_ONCE_PLACES: usize = 4096;

/// Most entries of an object that is written as if each entry knew only the next.
const SMALL: usize = 32;
/// Entries of larger ones that are alternatives of one rule. At a place where any of hundreds of keys may come, the engine of
/// grammars compares everything that may come with everything else, so rules between them cost twice.
const BLOCK: usize = 2;

/// How values are spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spelling {
    Json,
    /// Gemma 4's calls: text between two tokens of this id, bare keys, no white space.
    Call(u32),
}

/// The other characters that the reader trims: white space.
const TRIMMED: &str = r" \u{a0}\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}";

/// A bare key: what the reader of calls takes for one, without the white space that it trims, and no quote first.
fn keys() -> String {
    // As in a class of a regex.
    let mut none = r"\x00-\x1f\x7f-\u{9f}".to_owned();
    for c in NO_KEY {
        if matches!(c, '[' | ']') {
            none.push('\\');
        }
        none.push(c);
    }
    format!("/[^{none}{TRIMMED}']([^{none}]{{0,98}}[^{none}{TRIMMED}])?/")
}

/// Every whole number of 64 bits, with a sign or without, and no other.
fn whole_numbers() -> String {
    let low = up_to(&i64::MIN.unsigned_abs().to_string());
    format!("/0|-?[1-9][0-9]{{0,17}}|-({low})|[1-9][0-9]{{18}}|{}/", up_to(&u64::MAX.to_string()))
}

/// Numbers of as many digits as `most` and not above it: for each digit, those that are below from there on.
fn up_to(most: &str) -> String {
    let below = most.bytes().enumerate().filter_map(|(at, digit)| {
        let least = if at == 0 { b'1' } else { b'0' };
        let (before, after) = (&most[..at], most.len() - at - 1);
        (digit > least)
            .then(|| format!("{before}[{}-{}][0-9]{{{after}}}", char::from(least), char::from(digit - 1)))
    });
    let mut all: Vec<String> = below.collect();
    all.push(most.to_owned());
    all.join("|")
}

/// A grammar that is being written.
#[derive(Debug)]
pub(super) struct Writer {
    text: String,
    spelling: Spelling,
    /// Rules of free values are there.
    free: bool,
    next: usize,
    /// Of [`MAX_ONCE_PLACES`], those that were written.
    once: usize,
}

/// Text of a JSON string as JSON writes it, between quotes: also how Lark spells a literal.
fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

impl Writer {
    /// A grammar of JSON.
    pub(super) fn json() -> Self {
        Self::new(Spelling::Json)
    }

    /// A grammar of calls; `quote` is the token around text.
    pub(super) fn call(quote: u32) -> Self {
        Self::new(Spelling::Call(quote))
    }

    fn new(spelling: Spelling) -> Self {
        Self { text: String::new(), spelling, free: false, next: 0, once: 0 }
    }

    /// Adds a line `name: body`.
    pub(super) fn rule(&mut self, name: &str, body: &str) {
        let _ = writeln!(self.text, "{name}: {body}");
    }

    /// The whole, with the terminals that are used everywhere.
    pub(super) fn finish(mut self) -> String {
        self.rule("NUM", r"/-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+\-]?[0-9]{1,2})?/");
        self.rule("INT", &whole_numbers());
        match self.spelling {
            Spelling::Json => {
                let text = r#"/"([^"\\\x00-\x1f\x7f]|\\["\\bfnrt]|\\u00[01][0-9a-f])*"/"#;
                self.rule("STR", text);
                self.rule("WS", r"/ |\n {0,40}/");
                self.rule("SP", r"/ /");
                // Written once: each optional part is a rule of its own.
                self.rule("ws", "WS?");
                self.rule("sp", "SP?");
            }
            Spelling::Call(_) => {
                self.rule("TEXT", r"/(.|\n)+/");
                self.rule("KEY", &keys());
            }
        }
        self.text
    }

    fn fresh(&mut self, prefix: &str) -> String {
        self.next += 1;
        format!("{prefix}{}", self.next)
    }

    /// White space that may stand around entries.
    fn space(&self) -> &'static str {
        if self.spelling == Spelling::Json { " ws " } else { " " }
    }

    /// A key and its colon.
    fn key(&self, key: &str) -> String {
        match self.spelling {
            Spelling::Json => format!("{} sp", quoted(&format!("{}:", quoted(key)))),
            Spelling::Call(_) => quoted(&format!("{key}:")),
        }
    }

    /// Any text.
    fn any_text(&self) -> String {
        match self.spelling {
            Spelling::Json => "STR".to_owned(),
            Spelling::Call(quote) => format!("<[{quote}]> TEXT? <[{quote}]>"),
        }
    }

    /// Any key but these, and its colon.
    fn other_key(&mut self, taken: &[Entry]) -> String {
        let (any, colon) = match self.spelling {
            Spelling::Json => ("STR", "\":\" sp"),
            Spelling::Call(_) => ("KEY", "\":\""),
        };
        if taken.is_empty() {
            return format!("{any} {colon}");
        }
        let spelled = taken.iter().map(|entry| match self.spelling {
            Spelling::Json => quoted(&quoted(&entry.key)),
            Spelling::Call(_) => quoted(&entry.key),
        });
        let spelled: Vec<String> = spelled.collect();
        let name = self.fresh("OTHER");
        self.rule(&name, &format!("{any} & ~({})", spelled.join(" | ")));
        format!("{name} {colon}")
    }

    /// The name of the rule for any value.
    pub(super) fn any(&mut self) -> String {
        if !std::mem::replace(&mut self.free, true) {
            let space = self.space();
            let text = self.any_text();
            let key = self.other_key(&[]);
            for depth in 0..=FREE_DEPTH {
                let scalar = format!("{text} | NUM | \"true\" | \"false\" | \"null\"");
                if depth == FREE_DEPTH {
                    self.rule(&format!("any{depth}"), &scalar);
                    break;
                }
                let inner = depth + 1;
                let list = format!("\"[\" ({space} any{inner} (\",\"{space} any{inner})*)?{space}\"]\"");
                let entry = format!("{key} any{inner}");
                let object = format!("\"{{\" ({space} {entry} (\",\"{space} {entry})*)?{space}\"}}\"");
                self.rule(&format!("any{depth}"), &format!("{scalar} | {list} | {object}"));
            }
        }
        "any0".to_owned()
    }

    /// The entries of an object after its opener, up to and with its closer: any keys, any values.
    pub(super) fn any_entries(&mut self) -> String {
        let any = self.any();
        let key = self.other_key(&[]);
        let space = self.space();
        format!("({space} {key} {any} (\",\"{space} {key} {any})*)?{space}\"}}\"")
    }

    /// Likewise with some of these keys in any order and any values; and whether no key can stand twice, which holds where
    /// there are few.
    pub(super) fn some_entries(&mut self, keys: &[&str]) -> (String, bool) {
        if keys.is_empty() {
            return ("\"}\"".to_owned(), true);
        }
        let any = self.any();
        let keys: Vec<String> = keys.iter().map(|key| self.key(key)).collect();
        let places = keys.len() << keys.len().min(MAX_ONCE);
        if keys.len() <= MAX_ONCE && self.once + places <= MAX_ONCE_PLACES {
            self.once += places;
            return (self.entries_once(&keys, &any), true);
        }
        let entry = self.fresh("pair");
        self.rule(&entry, &format!("({}) {any}", keys.join(" | ")));
        (format!("({entry} (\",\" {entry})*)? \"}}\""), false)
    }

    /// One rule for what may follow each set of keys that were written.
    fn entries_once(&mut self, keys: &[String], any: &str) -> String {
        let name = self.fresh("once");
        let next = |written: usize| {
            let left = keys.iter().enumerate().filter(|(at, _)| written >> at & 1 == 0);
            let entry = |(at, key): (usize, &String)| format!("{key} {any} {name}_{}", written | 1 << at);
            left.map(entry).collect::<Vec<_>>().join(" | ")
        };
        let all = (1 << keys.len()) - 1;
        for written in 1..all {
            self.rule(&format!("{name}_{written}"), &format!("\"}}\" | \",\" ({})", next(written)));
        }
        self.rule(&format!("{name}_{all}"), "\"}\"");
        format!("(\"}}\" | {})", next(0))
    }

    /// Writes the rules of a schema; the name of its first one.
    pub(super) fn schema(&mut self, schema: &Schema) -> String {
        let prefix = self.fresh("v");
        for (id, shape) in schema.shapes.iter().enumerate() {
            let body = self.shape(shape, &prefix, id);
            self.rule(&format!("{prefix}_{id}"), &body);
        }
        format!("{prefix}_{}", schema.root)
    }

    /// The same of a schema of objects, without the opening brace; and whether no key of it can stand twice.
    pub(super) fn schema_entries(&mut self, schema: &Schema) -> Option<(String, bool)> {
        let root = schema.root_object()?;
        let once = matches!(schema.shapes[root], Shape::Object { others: None, .. });
        let name = self.schema(schema);
        let prefix = name.rsplit_once('_').map_or(name.as_str(), |(prefix, _)| prefix);
        Some((entries_name(prefix, root), once))
    }

    fn shape(&mut self, shape: &Shape, prefix: &str, id: Id) -> String {
        match shape {
            Shape::Any => self.any(),
            Shape::Null => "\"null\"".to_owned(),
            Shape::Bool => "\"true\" | \"false\"".to_owned(),
            Shape::Integer => "INT".to_owned(),
            Shape::Number => "NUM".to_owned(),
            Shape::Text => self.any_text(),
            Shape::Literals(values) => self.literals(values),
            Shape::List { item, min, max } => self.list(&format!("{prefix}_{item}"), *min, *max),
            Shape::Object { entries, others } => {
                let rest = self.entries(entries, *others, prefix, id);
                format!("\"{{\" {rest}")
            }
            Shape::Either(ids) => {
                let names: Vec<String> = ids.iter().map(|id| format!("{prefix}_{id}")).collect();
                // What no finite value fits has no branch left; nothing that is reached refers to it.
                if names.is_empty() { "\"null\"".to_owned() } else { names.join(" | ") }
            }
        }
    }

    fn list(&self, item: &str, min: u64, max: Option<u64>) -> String {
        let space = self.space();
        let more = |low: u64, high: Option<u64>| match high {
            None if low == 0 => format!("(\",\"{space} {item})*"),
            None => format!("(\",\"{space} {item}){{{low},}}"),
            Some(0) => String::new(),
            Some(high) => format!("(\",\"{space} {item}){{{low},{high}}}"),
        };
        match (min, max) {
            (_, Some(0)) => format!("\"[\"{space}\"]\""),
            (0, max) => {
                format!("\"[\" ({space} {item} {})?{space}\"]\"", more(0, max.map(|max| max - 1)))
            }
            (min, max) => {
                format!("\"[\"{space} {item} {}{space}\"]\"", more(min - 1, max.map(|max| max - 1)))
            }
        }
    }

    /// Everything after the opener. For each entry one rule for what comes next if something must come, and one for what
    /// may follow it: so that comma, white space and closer stand once at a place where any of hundreds of keys may come.
    fn entries(&mut self, entries: &[Entry], others: Option<Id>, prefix: &str, id: Id) -> String {
        let mut ordered: Vec<&Entry> = entries.iter().collect();
        if self.spelling != Spelling::Json {
            // As the template writes them.
            ordered.sort_by_key(|entry| entry.key.to_lowercase());
        }
        let space = self.space();
        let next = |at: usize| format!("{prefix}_{id}_{at}n");
        let more = |at: usize| format!("{prefix}_{id}_{at}m");
        let end = ordered.len();
        // From here on nothing must come, and up to there something may.
        let open = ordered.iter().rposition(|entry| entry.required).map_or(0, |at| at + 1);
        let last = if others.is_some() { end + 1 } else { end };
        let close = format!("{space}\"}}\"");
        let step = if end > SMALL { BLOCK } else { 1 };
        for at in 0..end {
            // Those up to the end of the block, and the next block.
            let mut choices = Vec::new();
            let stop = ((at / step + 1) * step).min(end);
            let must = ordered[at..stop].iter().position(|entry| entry.required).map(|after| at + after + 1);
            for (k, entry) in ordered.iter().enumerate().take(must.unwrap_or(stop)).skip(at) {
                choices.push(format!("{} {prefix}_{} {}", self.key(&entry.key), entry.value, more(k + 1)));
            }
            if must.is_none() && stop < last {
                choices.push(next(stop));
            }
            self.rule(&next(at), &choices.join(" | "));
            if at + 1 == end {
                continue;
            }
            let comma = format!("\",\"{space}{}", next(at + 1));
            let body = if at + 1 < open { comma } else { format!("{close} | {comma}") };
            self.rule(&more(at + 1), &body);
        }
        if let Some(value) = others {
            let pair = format!("{} {prefix}_{value}", self.other_key(entries));
            self.rule(&next(end), &format!("{pair} {}", more(end)));
            self.rule(&more(end), &format!("(\",\"{space}{pair})*{close}"));
        } else if end > 0 {
            self.rule(&more(end), &close);
        }
        let first = entries_name(prefix, id);
        let body = match (open, last) {
            (0, 0) => close,
            (0, _) => format!("{close} | {space}{}", next(0)),
            _ => format!("{space}{}", next(0)),
        };
        self.rule(&first, &body);
        first
    }

    /// One of these values. Texts are one terminal, so that a long list costs no more than its letters.
    fn literals(&mut self, values: &[Value]) -> String {
        let quote = match self.spelling {
            Spelling::Json => {
                let spelled: Vec<String> = values.iter().map(|value| quoted(&value.to_string())).collect();
                let name = self.fresh("ONE");
                self.rule(&name, &spelled.join(" | "));
                return name;
            }
            Spelling::Call(quote) => quote,
        };
        let texts: Vec<String> =
            values.iter().filter_map(Value::as_str).filter(|text| !text.is_empty()).map(quoted).collect();
        let mut choices = Vec::new();
        if !texts.is_empty() {
            let name = self.fresh("ONE");
            self.rule(&name, &texts.join(" | "));
            choices.push(format!("<[{quote}]> {name} <[{quote}]>"));
        }
        choices.extend(
            values
                .iter()
                .filter(|value| value.as_str().is_none_or(str::is_empty))
                .map(|value| spelled_in_call(value, quote)),
        );
        choices.join(" | ")
    }
}

/// The rule for what stands behind the opener of an object.
fn entries_name(prefix: &str, id: Id) -> String {
    format!("{prefix}_{id}_f")
}

/// One value as calls spell it.
fn spelled_in_call(value: &Value, quote: u32) -> String {
    match value {
        Value::String(text) if text.is_empty() => format!("<[{quote}]> <[{quote}]>"),
        Value::String(text) => format!("<[{quote}]> {} <[{quote}]>", quoted(text)),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| spelled_in_call(item, quote)).collect();
            format!("\"[\" {} \"]\"", items.join(" \",\" "))
        }
        Value::Object(map) => {
            let entry = |(key, value): (&String, &Value)| {
                format!("{} {}", quoted(&format!("{key}:")), spelled_in_call(value, quote))
            };
            let entries: Vec<String> = map.iter().map(entry).collect();
            format!("\"{{\" {} \"}}\"", entries.join(" \",\" "))
        }
        other => quoted(&other.to_string()),
    }
}
