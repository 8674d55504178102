//! About how much memory a grammar comes to, told from what it is made of, before it is compiled: so that whoever has to
//! leave room for several at once can see to it that there is some.
//!
//! What is large are the states of a grammar's lexer. There is one for each beginning of a key that an answer can be at,
//! with an entry for each key that begins so and may still come; and which may still come differs by what was written.
//! These are counted from the keys alone, as if an answer went through all of them. What one costs was measured
//! (`docs/experiments/0034`).

use super::schema::{Schema, Shape, size};
use super::{ArgumentRule, Choice, Content, Rules};
use std::collections::HashSet;

/// What every grammar takes: numbers, texts, white space, free values.
const BASE: u64 = 384 << 10;
/// An alternative of a rule.
const RULE: u64 = 1000;
/// A state of the lexer.
const STATE: u64 = 700;
/// A key that is possible in a state.
const ENTRY: u64 = 8;
/// A key that is possible at a place of the grammar where an answer was.
const PLACE: u64 = 12;
/// Most states that a lexer may have.
pub(super) const MAX_STATES: u64 = 30_000;

/// Parts of a grammar, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Parts {
    rules: u64,
    states: u64,
    entries: u64,
    places: u64,
}

impl Parts {
    fn add(&mut self, other: Self) {
        self.rules += other.rules;
        self.states += other.states;
        self.entries += other.entries;
        self.places += other.places;
    }

    fn bytes(self) -> u64 {
        let states = self.states.min(MAX_STATES);
        self.rules * RULE + states * STATE + self.entries * ENTRY + self.places * PLACE
    }
}

impl Rules {
    /// About the bytes that the grammars of these rules and an answer over them take, the vocabulary's tree apart.
    pub fn bytes(&self) -> u64 {
        let content = match &self.content {
            // A call in its place.
            _ if self.choice != Choice::Auto => 0,
            Content::Free => 0,
            Content::Json(schema) => BASE + schema.bytes(),
        };
        let calls: u64 = self.callable().map(|call| call.arguments.bytes()).sum();
        content + if self.calls.is_empty() { 0 } else { BASE + calls }
    }
}

impl ArgumentRule {
    /// What it adds to a grammar.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Open => RULE,
            Self::Keys(keys) => {
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                any_order(keys).bytes()
            }
            Self::Fits(schema) => schema.bytes(),
        }
    }
}

impl Schema {
    /// What it adds to a grammar.
    pub fn bytes(&self) -> u64 {
        let mut parts = Parts { rules: self.shapes.len() as u64, ..Parts::default() };
        // Objects that have the same keys in the same order share their states.
        let mut known: HashSet<Vec<&str>> = HashSet::new();
        for shape in &self.shapes {
            match shape {
                Shape::Object { entries, others } => {
                    parts.rules += 2 * entries.len() as u64;
                    let mut run = Vec::new();
                    for (at, entry) in entries.iter().enumerate() {
                        run.push(entry.key.as_str());
                        // What may come next ends at what must come next.
                        if entry.required || at + 1 == entries.len() {
                            let run = std::mem::take(&mut run);
                            let count = run.len() as u64;
                            parts.places += count * (count + 1) / 2;
                            if !known.contains(&run) {
                                parts.add(in_order(run.clone()));
                                known.insert(run);
                            }
                        }
                    }
                    if others.is_some() {
                        parts.states += entries.iter().map(|entry| entry.key.len() as u64 + 3).sum::<u64>();
                    }
                }
                Shape::Literals(values) => {
                    let letters = values.iter().map(|value| size(value) as u64).sum();
                    parts.add(Parts { states: letters, entries: letters, ..Parts::default() });
                }
                _ => {}
            }
        }
        parts.bytes()
    }
}

/// Quotes and a colon around it.
fn spelled(key: &str) -> u64 {
    key.len() as u64 + 3
}

/// Bytes that neighbours of a sorted list have in common.
fn common(keys: &[&str]) -> Vec<u64> {
    let same = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count() as u64;
    keys.windows(2).map(|pair| same(pair[0], pair[1])).collect()
}

/// Keys any run of which may be left out: at each beginning of some, a state for every one that may be the first left.
fn in_order(mut keys: Vec<&str>) -> Parts {
    keys.sort_unstable();
    let common = common(&keys);
    let letters: u64 = keys.iter().map(|key| spelled(key)).sum();
    let mut shared = 0;
    for at in 0..common.len() {
        let mut least = u64::MAX;
        for same in &common[at..] {
            least = least.min(*same);
            if least == 0 {
                break;
            }
            shared += least + 1;
        }
    }
    Parts { states: letters, entries: letters + shared, ..Parts::default() }
}

/// Keys in any order: few come once each, and then there is a state for every set of those that are left.
fn any_order(mut keys: Vec<&str>) -> Parts {
    let letters: u64 = keys.iter().map(|key| spelled(key)).sum();
    let count = keys.len() as u64;
    if keys.len() > super::lark::MAX_ONCE {
        return Parts { rules: count + 2, states: letters, entries: letters, places: count };
    }
    keys.sort_unstable();
    let common = common(&keys);
    let rules = (1 << count) + (count << count) / 2;
    let mut parts = Parts { rules, places: count << count, ..Parts::default() };
    for from in 0..keys.len() {
        let mut least = spelled(keys[from]);
        for to in from..keys.len() {
            if to > from {
                least = least.min(common[to - 1]);
            }
            let before = if from == 0 { 0 } else { common[from - 1] };
            let beyond = common.get(to).copied().unwrap_or(0);
            // Beginnings that these have in common and no other has.
            let own = least.saturating_sub(before.max(beyond));
            let alike = (to - from + 1) as u64;
            parts.states += own * ((1 << alike) - 1);
            parts.entries += own * (alike << (alike - 1));
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Every beginning of every suffix of the run, counted one by one.
    fn counted(keys: &[&str]) -> (u64, u64) {
        let mut sets: HashSet<(String, Vec<usize>)> = HashSet::new();
        for first in 0..keys.len() {
            let left: Vec<usize> = (first..keys.len()).collect();
            for &at in &left {
                for end in 1..=keys[at].len() {
                    let start = &keys[at][..end];
                    let alike = left.iter().copied().filter(|&other| keys[other].starts_with(start));
                    sets.insert((start.to_owned(), alike.collect()));
                }
            }
        }
        (sets.len() as u64, sets.iter().map(|(_, alike)| alike.len() as u64).sum())
    }

    #[test]
    fn states_are_those_that_there_are() {
        for keys in [vec!["a"], vec!["key1", "key2", "key33"], vec!["b", "ab", "abc", "x"], vec![]] {
            let (states, entries) = counted(&keys);
            let parts = in_order(keys.clone());
            // Quotes and colons are beside the beginnings, and shared ones are counted with one quote.
            let marks = 3 * keys.len() as u64;
            assert!(
                parts.states >= states && parts.states <= states + marks,
                "{keys:?}: {parts:?}, {states}"
            );
            assert!(parts.entries >= entries, "{keys:?}: {parts:?}, {entries}");
            let pairs = keys.len() * keys.len().saturating_sub(1) / 2;
            assert!(parts.entries <= entries + marks + pairs as u64, "{keys:?}: {parts:?}, {entries}");
        }
        // Two that begin alike: each alone and both.
        let parts = any_order(vec!["ab", "ac"]);
        assert_eq!((parts.states, parts.entries), (3 + 2 * 4, 4 + 2 * 4));
    }

    #[test]
    fn what_must_come_costs_less_than_what_may() {
        let wide = |required: bool, count: usize| {
            let names: Vec<String> = (0..count).map(|i| format!("property number {i}")).collect();
            let properties: serde_json::Map<_, _> =
                names.iter().map(|name| (name.clone(), json!({ "type": "string" }))).collect();
            let required = if required { json!(names) } else { json!([]) };
            let schema = json!({ "type": "object", "properties": properties, "required": required,
                "additionalProperties": false });
            Schema::parse(&schema, "schema", false).unwrap().bytes()
        };
        assert!(wide(true, 500) * 2 < wide(false, 500), "{} {}", wide(true, 500), wide(false, 500));
        assert!(wide(false, 500) > 10 * wide(false, 100) && wide(false, 12) < 400_000);
        // Nothing that is asked for takes long to count.
        let long: Vec<String> = (0..6).map(|i| format!("{}{i}", "x".repeat(1 << 20))).collect();
        let start = std::time::Instant::now();
        assert!(ArgumentRule::Keys(long).bytes() > 1 << 20);
        assert!(start.elapsed() < std::time::Duration::from_secs(60));
    }
}
