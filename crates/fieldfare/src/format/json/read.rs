//! The strict reader: `serde_json` does the parsing, this adds what it lets pass (a repeated key) and what it cannot
//! know (how much memory a document is worth). Nesting ends at `serde_json`'s own limit of 128.

use super::Value;
use crate::format::files::shorten;
use crate::{Error, Result};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;

/// Most values that one document may have as a tree, so that a hostile one takes 16 MiB and not fifty times its size. Our
/// manifests have a few hundred, a layout without its blobs 20,000.
const MAX_VALUES: usize = 1 << 19;

/// Most keys that are remembered at one time to find repeated ones, in all open objects together; so that a hostile
/// object takes 40 MiB also where nothing of it is kept. The largest of ours has two thousand.
const MAX_KEYS: usize = 1 << 19;

/// What is wanted of a document that says the same thing thousands of times.
pub(crate) struct Wanted {
    /// Members whose arrays and objects are kept; those of other members are checked and come out empty.
    pub(crate) containers: &'static [&'static str],
    /// Members that stay text: they come out as the number of their text among the distinct ones.
    pub(crate) text: &'static str,
}

/// Parses a whole document of at most `cap` bytes. `file` is for messages.
pub fn parse(file: &str, bytes: &[u8], cap: u64) -> Result<Value> {
    read(file, bytes, cap, &mut Reader::new(None))
}

/// Parses what is wanted of a document. The texts come in the order of their numbers; each is well-formed, but only
/// [`parse`] finds a repeated key in it.
pub(crate) fn parse_wanted<'a>(
    file: &str,
    bytes: &'a [u8],
    cap: u64,
    wanted: &Wanted,
) -> Result<(Value, Vec<&'a str>)> {
    let mut reader = Reader::new(Some(wanted));
    let value = read(file, bytes, cap, &mut reader)?;
    let mut texts = vec![""; reader.texts.len()];
    for (text, number) in reader.texts {
        texts[number] = text;
    }
    Ok((value, texts))
}

fn read<'a>(file: &str, bytes: &'a [u8], cap: u64, reader: &mut Reader<'a, '_>) -> Result<Value> {
    if bytes.len() as u64 > cap {
        return Err(Error::damaged(file, format!("{} bytes exceed the limit of {cap}", bytes.len())));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|e| Error::damaged(file, format!("not UTF-8 at byte {}", e.valid_up_to())))?;
    let mut json = serde_json::Deserializer::from_str(text);
    let value = Tree { reader, keep: true }.deserialize(&mut json);
    value.and_then(|value| json.end().map(|()| value)).map_err(|e| match e.classify() {
        Category::Data => Error::damaged(file, e.to_string()), // one of ours
        _ => Error::damaged(file, format!("not valid JSON: {e}")),
    })
}

struct Reader<'a, 'w> {
    wanted: Option<&'w Wanted>,
    texts: HashMap<&'a str, usize>,
    /// Values that may still be made.
    values: usize,
    /// Keys that may still be remembered.
    keys: usize,
}

impl<'w> Reader<'_, 'w> {
    fn new(wanted: Option<&'w Wanted>) -> Self {
        Self { wanted, texts: HashMap::new(), values: MAX_VALUES, keys: MAX_KEYS }
    }
}

fn take_one<E: serde::de::Error>(left: &mut usize, what: &str) -> Result<(), E> {
    *left = left.checked_sub(1).ok_or_else(|| E::custom(format_args!("too many {what}")))?;
    Ok(())
}

/// Reads one value; what is not to be kept is checked, and arrays and objects come out empty.
struct Tree<'r, 'a, 'w> {
    reader: &'r mut Reader<'a, 'w>,
    keep: bool,
}

#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> DeserializeSeed<'a> for Tree<'_, 'a, '_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Tree<'_, 'a, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut array: A) -> Result<Value, A::Error> {
        let Self { reader, keep } = self;
        let mut elements = Vec::new();
        while let Some(element) = array.next_element_seed(Tree { reader: &mut *reader, keep })? {
            if keep {
                take_one(&mut reader.values, "values")?;
                elements.push(element);
            }
        }
        Ok(Value::Array(elements))
    }

    fn visit_map<A: MapAccess<'a>>(self, mut object: A) -> Result<Value, A::Error> {
        let Self { reader, keep } = self;
        let mut members = Vec::new();
        let mut keys = HashSet::new();
        while let Some(Key(key)) = object.next_key()? {
            take_one(&mut reader.keys, "keys")?;
            if !keys.insert(key.clone()) {
                return Err(A::Error::custom(format!("duplicate key {:?}", shorten(&key))));
            }
            let value = match reader.wanted {
                Some(wanted) if keep && key == wanted.text => {
                    let text = object.next_value::<&RawValue>()?.get();
                    let next = reader.texts.len();
                    (*reader.texts.entry(text).or_insert(next)).into()
                }
                wanted => {
                    let keep = keep && wanted.is_none_or(|wanted| wanted.containers.contains(&&*key));
                    object.next_value_seed(Tree { reader: &mut *reader, keep })?
                }
            };
            if keep {
                take_one(&mut reader.values, "values")?;
                members.push((key.into_owned(), value));
            }
        }
        reader.keys += keys.len();
        Ok(Value::Object(members))
    }
}
