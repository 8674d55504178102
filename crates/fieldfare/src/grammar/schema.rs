//! A JSON schema as shapes that a grammar can be made of; `reader` makes them.
//!
//! The subset: `type` (also a list), `properties`, `required`, `additionalProperties`, `items`, `enum`, `const`, `anyOf`,
//! `oneOf` whose branches cannot both fit, `allOf` of one, local `$ref`, `minItems` and `maxItems` up to 64. What only
//! narrows text and numbers (`pattern`, `format`, ranges, lengths) is left out unless the caller wants it enforced, and
//! then refused like everything else that a grammar cannot hold: an answer never looks bound and is not. A schema comes
//! from a stranger, so its size, depth and parts have limits, and one that no finite value fits is refused.

use super::reader;
use crate::chat::is_writable_key;
use crate::{Error, Result};
use serde_json::Value;

/// Largest schema, in bytes of its text.
pub const MAX_BYTES: usize = 256 << 10;
/// Most parts, references followed once.
pub(super) const MAX_NODES: usize = 4000;
/// Index of a shape.
pub(super) type Id = usize;

/// What a value may be.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    /// Any value.
    Any,
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// Any text.
    Text,
    /// One of these values.
    Literals(Vec<Value>),
    /// A list.
    List {
        /// What is in it.
        item: Id,
        /// Fewest.
        min: u64,
        /// Most, if there is a limit.
        max: Option<u64>,
    },
    /// An object.
    Object {
        /// The named entries in order.
        entries: Vec<Entry>,
        /// What other entries may hold; `None`: there are none.
        others: Option<Id>,
    },
    /// One of these.
    Either(Vec<Id>),
}

/// A named entry of an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) value: Id,
    pub(super) required: bool,
}

/// A schema, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    pub(super) shapes: Vec<Shape>,
    pub(super) root: Id,
}

impl Schema {
    /// Any JSON object.
    pub fn object() -> Self {
        let entries = Vec::new();
        Self { shapes: vec![Shape::Object { entries, others: Some(1) }, Shape::Any], root: 0 }
    }

    /// Reads a schema. `field` is how errors name it; with `strict` nothing that narrows values may be left out.
    ///
    /// # Errors
    /// [`Error::BadRequest`]: the place in the schema and what is wrong there.
    pub fn parse(schema: &Value, field: &str, strict: bool) -> Result<Self> {
        if size(schema) > MAX_BYTES {
            return Err(Error::bad(field, format!("has more than {MAX_BYTES} bytes")));
        }
        let (shapes, root) = reader::read(schema, field, strict)?;
        let mut schema = Self { shapes, root };
        if schema.loops() {
            return Err(Error::bad(field, "a reference leads to itself"));
        }
        if !schema.prune() {
            return Err(Error::bad(field, "no finite value fits"));
        }
        if schema.bytes() > super::BYTES {
            return Err(Error::bad(field, "is too complex: too many long keys that may be left out"));
        }
        Ok(schema)
    }

    /// Whether calls can spell what fits: objects at the top, and keys that calls can write.
    pub(super) fn is_callable(&self) -> bool {
        fn spells(value: &Value) -> bool {
            match value {
                Value::Object(map) => map.iter().all(|(key, value)| is_writable_key(key) && spells(value)),
                Value::Array(items) => items.iter().all(spells),
                _ => true,
            }
        }
        let writable_shape = |shape: &Shape| match shape {
            Shape::Object { entries, .. } => entries.iter().all(|entry| is_writable_key(&entry.key)),
            Shape::Literals(values) => values.iter().all(spells),
            _ => true,
        };
        self.root_object().is_some() && self.shapes.iter().all(writable_shape)
    }

    /// The object that the root is, perhaps by reference.
    pub(super) fn root_object(&self) -> Option<Id> {
        let mut root = self.root;
        while let Shape::Either(ids) = &self.shapes[root] {
            let [one] = ids.as_slice() else { return None };
            root = *one;
        }
        matches!(self.shapes[root], Shape::Object { .. }).then_some(root)
    }

    /// Whether a shape leads to itself without a value in between.
    fn loops(&self) -> bool {
        // 0: not seen, 1: on the way, 2: done. The way is kept by hand: it may be long.
        let mut state = vec![0_u8; self.shapes.len()];
        for start in 0..self.shapes.len() {
            let mut way = vec![(start, 0)];
            while let Some((id, next)) = way.pop() {
                let inner = match &self.shapes[id] {
                    Shape::Either(ids) => ids.as_slice(),
                    _ => &[],
                };
                if next == 0 {
                    if state[id] == 2 {
                        continue;
                    }
                    state[id] = 1;
                }
                match inner.get(next) {
                    None => state[id] = 2,
                    Some(&to) => {
                        if state[to] == 1 {
                            return true;
                        }
                        way.push((id, next + 1));
                        way.push((to, 0));
                    }
                }
            }
        }
        false
    }

    /// Takes out what no finite value fits (an object that must hold another of its kind, and so on for ever); false if
    /// nothing is left.
    fn prune(&mut self) -> bool {
        let mut finite = vec![false; self.shapes.len()];
        loop {
            let before = finite.iter().filter(|&&ok| ok).count();
            for (id, shape) in self.shapes.iter().enumerate() {
                finite[id] = finite[id]
                    || match shape {
                        Shape::List { item, min, .. } => *min == 0 || finite[*item],
                        Shape::Object { entries, .. } => {
                            entries.iter().all(|entry| !entry.required || finite[entry.value])
                        }
                        Shape::Either(ids) => ids.iter().any(|&id| finite[id]),
                        Shape::Literals(values) => !values.is_empty(),
                        _ => true,
                    };
            }
            if finite.iter().filter(|&&ok| ok).count() == before {
                break;
            }
        }
        for shape in &mut self.shapes {
            match shape {
                Shape::List { item, max, .. } if !finite[*item] => *max = Some(0),
                Shape::Object { entries, others } => {
                    entries.retain(|entry| finite[entry.value] || entry.required);
                    *others = others.filter(|&id| finite[id]);
                }
                Shape::Either(ids) => ids.retain(|&id| finite[id]),
                _ => {}
            }
        }
        finite[self.root]
    }
}

/// About the bytes of a value's text; does not recurse deeper than JSON that was parsed can be nested.
pub(super) fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| size(item) + 1).sum::<usize>() + 2,
        Value::Object(map) => map.iter().map(|(key, value)| key.len() + size(value) + 4).sum::<usize>() + 2,
        _ => 5,
    }
}
