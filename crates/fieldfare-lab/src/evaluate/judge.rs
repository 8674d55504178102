//! Judges a reply by the rule in a case's `expect`. The corpus generator judges its own replies by the same rules
//! (`training/corpus/judge.py`), so a change here is a change there.
//!
//! ```text
//! {"kind": "equals", "any": [texts]}           the whole text, after trimming, is one of these
//! {"kind": "contains", "any": [texts]}         one of these occurs as whole words, upper and lower case alike
//! {"kind": "all", "of": [texts]}               each of these occurs as whole words
//! {"kind": "number", "value": 42}              the last number in the text is this one
//! {"kind": "calls", "calls": [[name, args]]}   exactly these calls, in this order, arguments equal as JSON
//! {"kind": "json", "value": {...}}             the text is JSON equal to this
//! {"kind": "unknown"}                          the text says that the model does not know
//! {"kind": "free", "min_words": 3}             any text of at least so many words, no call
//! ```
//!
//! A rule may also have `"not": [texts]`, none of which may occur. JSON is equal when numbers are equal by value (1 and
//! 1.0 are), in any order of keys; unlike Python's `==`, `true` is not 1.

use crate::cases::same;
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

/// What counts as saying that one does not know.
const UNKNOWN: [&str; 9] = [
    "do not know",
    "don't know",
    "not know",
    "cannot answer",
    "can't answer",
    "not sure",
    "no idea",
    "cannot say",
    "no information",
];

/// A call: the tool's name and its arguments.
pub(super) type Call = (String, Value);

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rule {
    kind: Kind,
    not: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
enum Kind {
    Equals { any: Vec<String> },
    Contains { any: Vec<String> },
    All { of: Vec<String> },
    Number { value: i64 },
    Calls { calls: Vec<Call> },
    Json { value: Value },
    Unknown {},
    Free { min_words: usize },
}

impl Rule {
    /// Reads a rule.
    ///
    /// # Errors
    /// An unknown kind or field, or a rule that every text or none would satisfy by accident (an empty list or text).
    pub(super) fn parse(value: &Value) -> Result<Self> {
        let mut value = value.clone();
        let map = value.as_object_mut().context("not an object")?;
        let not = match map.remove("not") {
            None => Vec::new(),
            Some(list) => serde_json::from_value(list).context("not: no list of texts")?,
        };
        let kind: Kind = serde_json::from_value(value)?;
        let lists: &[&Vec<String>] = match &kind {
            Kind::Equals { any } | Kind::Contains { any } => &[any],
            Kind::All { of } => &[of],
            _ => &[],
        };
        ensure!(lists.iter().all(|list| !list.is_empty()), "an empty list");
        let words = if matches!(kind, Kind::Equals { .. }) { &[] } else { lists };
        ensure!(words.iter().copied().flatten().chain(&not).all(|text| !text.is_empty()), "an empty text");
        Ok(Self { kind, not })
    }

    /// Whether a reply of this text and these calls is right.
    pub(super) fn right(&self, content: &str, calls: &[Call]) -> bool {
        let text = content.trim();
        if self.not.iter().any(|piece| has(text, piece)) {
            return false;
        }
        if let Kind::Calls { calls: wanted } = &self.kind {
            return calls.len() == wanted.len()
                && calls
                    .iter()
                    .zip(wanted)
                    .all(|(got, wanted)| got.0 == wanted.0 && same(&got.1, &wanted.1));
        }
        if !calls.is_empty() {
            return false;
        }
        match &self.kind {
            Kind::Equals { any } => any.iter().any(|wanted| text == wanted),
            Kind::Contains { any } => any.iter().any(|piece| has(text, piece)),
            Kind::All { of } => of.iter().all(|piece| has(text, piece)),
            Kind::Number { value } => last_number(text) == Some(i128::from(*value)),
            Kind::Calls { .. } => false, // answered above
            Kind::Json { value } => serde_json::from_str(text).is_ok_and(|got| same(&got, value)),
            Kind::Unknown {} => UNKNOWN.iter().any(|piece| has(text, piece)),
            Kind::Free { min_words } => text.split_whitespace().count() >= *min_words,
        }
    }
}

/// What a regular expression calls `\w`.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `piece` occurs in `text` with no word character directly before or behind it, whatever the case.
fn has(text: &str, piece: &str) -> bool {
    let (text, piece) = (text.to_lowercase(), piece.to_lowercase());
    let mut before = None;
    for (at, c) in text.char_indices() {
        if let Some(rest) = text[at..].strip_prefix(&piece)
            && !before.is_some_and(is_word)
            && !rest.chars().next().is_some_and(is_word)
        {
            return true;
        }
        before = Some(c);
    }
    false
}

/// The last of the numbers `-?[0-9]+`, found from left to right; `None` if there is none or it is beyond 128 bits.
fn last_number(text: &str) -> Option<i128> {
    let bytes = text.as_bytes();
    let end = bytes.iter().rposition(u8::is_ascii_digit)? + 1;
    let start = bytes[..end].iter().rposition(|b| !b.is_ascii_digit()).map_or(0, |at| at + 1);
    let start = if start > 0 && bytes[start - 1] == b'-' { start - 1 } else { start };
    text[start..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn right(rule: &Value, content: &str, calls: Value) -> bool {
        let calls: Vec<Call> = serde_json::from_value(calls).unwrap();
        Rule::parse(rule).unwrap().right(content, &calls)
    }

    #[test]
    fn texts() {
        let table = [
            (json!({"kind": "equals", "any": ["Blue", "blue."]}), "  Blue\n", true),
            (json!({"kind": "equals", "any": ["Blue"]}), "blue", false),
            (json!({"kind": "contains", "any": ["Rome"]}), "It is ROME.", true),
            (json!({"kind": "contains", "any": ["Rome"]}), "Romeo", false),
            (json!({"kind": "contains", "any": ["Rome"]}), "chrome", false),
            (json!({"kind": "contains", "any": ["Rome"]}), "Romeo in Rome", true),
            (json!({"kind": "contains", "any": ["Rome"]}), "Rome_2 or éRome", false),
            (json!({"kind": "contains", "any": ["Rome", "Paris"]}), "(paris)", true),
            (json!({"kind": "contains", "any": ["7"]}), "17 or 70", false),
            (json!({"kind": "contains", "any": ["7"]}), "-7.5", true),
            (json!({"kind": "contains", "any": [".5"]}), "x .5", true),
            (json!({"kind": "contains", "any": [".5"]}), "7.5", false),
            (json!({"kind": "contains", "any": ["Öl"]}), "öl", true),
            (json!({"kind": "all", "of": ["red", "blue"]}), "Blue and red.", true),
            (json!({"kind": "all", "of": ["red", "blue"]}), "reds and blue", false),
            (json!({"kind": "number", "value": 42}), "40 + 2 = 42.", true),
            (json!({"kind": "number", "value": 42}), "42, not 41", false),
            (json!({"kind": "number", "value": -5}), "12-5", true),
            (json!({"kind": "number", "value": -5}), "it is --5", true),
            (json!({"kind": "number", "value": 7}), "007 é", true),
            (json!({"kind": "number", "value": 0}), "none", false),
            (
                json!({"kind": "number", "value": 1}),
                "111111111111111111111111111111111111111111111111111111",
                false,
            ),
            (json!({"kind": "json", "value": {"a": 1, "b": [true]}}), " {\"b\":[true],\"a\":1.0} ", true),
            (json!({"kind": "json", "value": {"a": 1}}), "{\"a\": true}", false),
            (json!({"kind": "json", "value": {"a": 1}}), "{\"a\": 1, \"b\": 2}", false),
            (json!({"kind": "json", "value": {"a": 1}}), "```{\"a\": 1}```", false),
            (json!({"kind": "json", "value": "1"}), "1", false),
            (json!({"kind": "unknown"}), "I don't know that.", true),
            (json!({"kind": "unknown"}), "I know it well.", false),
            (json!({"kind": "free", "min_words": 3}), "one  two\nthree", true),
            (json!({"kind": "free", "min_words": 3}), "one two", false),
            (json!({"kind": "free", "min_words": 1, "not": ["Ann"]}), "Hello Ann!", false),
            (json!({"kind": "free", "min_words": 1, "not": ["Ann"]}), "Hello Anna!", true),
        ];
        for (rule, text, wanted) in &table {
            assert_eq!(right(rule, text, json!([])), *wanted, "{rule} {text:?}");
            if *wanted {
                assert!(!right(rule, text, json!([["f", {}]])), "a call where none was wanted: {rule}");
            }
        }
    }

    #[test]
    fn calls() {
        let rule = json!({"kind": "calls", "calls": [["f", {"a": 1, "b": "x"}], ["g", {}]]});
        for (got, wanted) in [
            (json!([["f", {"b": "x", "a": 1.0}], ["g", {}]]), true),
            (json!([["g", {}], ["f", {"a": 1, "b": "x"}]]), false),
            (json!([["f", {"a": 1, "b": "x"}]]), false),
            (json!([["f", {"a": "1", "b": "x"}], ["g", {}]]), false),
            (json!([["f", {"a": 1, "b": "x"}], ["h", {}]]), false),
            (json!([["f", {"a": 1, "b": "x"}], ["g", {}], ["g", {}]]), false),
            (json!([["f", {"a": 1, "b": "x", "c": null}], ["g", {}]]), false),
            (json!([]), false),
        ] {
            assert_eq!(right(&rule, "any text", got.clone()), wanted, "{got}");
        }
        let rule = json!({"kind": "calls", "calls": [["f", {}]], "not": ["sorry"]});
        assert!(right(&rule, "", json!([["f", {}]])) && !right(&rule, "Sorry.", json!([["f", {}]])));
    }

    #[test]
    fn rules_that_say_nothing_are_refused() {
        for rule in [
            json!({"kind": "guess"}),
            json!({"kind": "equals"}),
            json!({"kind": "equals", "any": []}),
            json!({"kind": "contains", "any": [""]}),
            json!({"kind": "all", "of": []}),
            json!({"kind": "unknown", "not": [""]}),
            json!({"kind": "unknown", "nto": ["x"]}),
            json!({"kind": "number", "value": 1.5}),
            json!({"kind": "calls", "calls": [["f"]]}),
            json!("equals"),
        ] {
            assert!(Rule::parse(&rule).is_err(), "{rule}");
        }
        Rule::parse(&json!({"kind": "equals", "any": [""]})).unwrap();
    }
}
