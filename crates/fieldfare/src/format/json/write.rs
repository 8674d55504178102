//! The canonical writer.

use super::Value;
use std::cmp::Ordering;
use std::fmt::Write as _;

/// The canonical text of a value: upstream's bytes, without a final newline.
pub fn canonical(value: &Value) -> String {
    let mut out = String::new();
    canonical_into(&mut out, value, 0);
    out
}

/// Appends the canonical text of a value that stands `depth` levels below the top. Lets a writer of a large document
/// assemble it piece by piece. The first line is not indented.
pub fn canonical_into(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int(value) => {
            let _ = write!(out, "{value}"); // writing to a String cannot fail, here and below
        }
        Value::Float(value) => {
            // `{}` is the shortest form that reads back, and has no fraction for whole numbers; -0 is written 0.
            let _ = write!(out, "{}", if *value == 0.0 { 0.0 } else { *value });
        }
        Value::String(text) => quote(out, text),
        Value::Array(elements) => {
            out.push_str("[\n");
            for (i, element) in elements.iter().enumerate() {
                separate(out, i, depth + 1);
                canonical_into(out, element, depth + 1);
            }
            close(out, depth, ']');
        }
        Value::Object(members) => {
            let mut sorted: Vec<&(String, Value)> = members.iter().collect();
            sorted.sort_by(|a, b| compare_keys(&a.0, &b.0));
            out.push_str("{\n");
            for (i, (key, value)) in sorted.into_iter().enumerate() {
                separate(out, i, depth + 1);
                quote(out, key);
                out.push_str(" : ");
                canonical_into(out, value, depth + 1);
            }
            close(out, depth, '}');
        }
    }
}

fn separate(out: &mut String, index: usize, depth: usize) {
    if index > 0 {
        out.push_str(",\n");
    }
    indent(out, depth);
}

fn close(out: &mut String, depth: usize, bracket: char) {
    out.push('\n');
    indent(out, depth);
    out.push(bracket);
}

fn indent(out: &mut String, depth: usize) {
    for _ in 0..depth {
        out.push_str("  ");
    }
}

fn quote(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\x1f' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out.push('"');
}

/// Order of keys in canonical text: without regard to case, runs of digits by value, ties by the raw text.
pub fn compare_keys(a: &str, b: &str) -> Ordering {
    let (mut x, mut y) = (a, b);
    loop {
        match (next_token(&mut x), next_token(&mut y)) {
            (None, None) => return a.cmp(b),
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(p), Some(q)) => match p.cmp(&q) {
                Ordering::Equal => {}
                order => return order,
            },
        }
    }
}

/// A character in lower case, or a run of digits: it ranks where `0` does, then by value (more digits without leading
/// zeros is larger, so no number is too long).
fn next_token<'a>(text: &mut &'a str) -> Option<(u32, usize, &'a str)> {
    let first = text.chars().next()?;
    if first.is_ascii_digit() {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (run, rest) = text.split_at(end);
        let value = run.trim_start_matches('0');
        *text = rest;
        Some((u32::from('0'), value.len() + 1, value))
    } else {
        *text = &text[first.len_utf8()..];
        Some((first.to_lowercase().next().map_or(0, u32::from), 0, ""))
    }
}
