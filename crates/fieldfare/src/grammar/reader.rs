//! From the text of a JSON schema to its shapes, with limits: what is understood, and how each refusal is named.

use super::apart::Apart;
use super::schema::{Entry, Id, MAX_NODES, Shape, size};
use crate::{Error, Result};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Deepest nesting.
const MAX_DEPTH: usize = 48;
/// Most named entries of one object: an answer may leave out any run of them, so each step tries all that may come.
const MAX_ENTRIES: usize = 500;
/// Most values of all `enum` lists together.
const MAX_VALUES: usize = 2000;
/// Most bytes of all these values together.
const MAX_VALUE_BYTES: usize = 64 << 10;
/// Most `minItems` and `maxItems`.
const MAX_ITEMS: u64 = 64;

/// The shapes of a schema, and which is its root. `field` is how errors name it; with `strict` nothing that narrows values
/// may be left out.
pub(super) fn read(document: &Value, field: &str, strict: bool) -> Result<(Vec<Shape>, Id)> {
    let mut reader = Reader {
        document,
        field,
        strict,
        shapes: Vec::new(),
        known: HashMap::new(),
        values: 0,
        bytes: 0,
        apart: Apart::new(document),
    };
    let root = reader.schema(document, "", 0)?;
    let shapes = reader.shapes.into_iter().map(|shape| shape.unwrap_or(Shape::Any)).collect();
    Ok((shapes, root))
}

/// Keywords that say nothing of what fits, or that the reader deals with elsewhere.
const SILENT: [&str; 16] = [
    "$schema",
    "$id",
    "$anchor",
    "$comment",
    "$defs",
    "definitions",
    "title",
    "description",
    "default",
    "examples",
    "example",
    "deprecated",
    "readOnly",
    "writeOnly",
    "contentEncoding",
    "contentMediaType",
];
/// Keywords that narrow values and are left out where strictness was not asked for.
const NARROWING: [&str; 12] = [
    "format",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minProperties",
    "maxProperties",
    "uniqueItems",
];
/// Keywords that change what fits and that no grammar here holds.
const BEYOND: [&str; 17] = [
    "not",
    "if",
    "then",
    "else",
    "patternProperties",
    "propertyNames",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
    "prefixItems",
    "additionalItems",
    "contains",
    "minContains",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$recursiveRef",
];
/// What the reader understands.
const UNDERSTOOD: [&str; 14] = [
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "const",
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
    "minItems",
    "maxItems",
    "nullable",
];

struct Reader<'a> {
    document: &'a Value,
    field: &'a str,
    strict: bool,
    /// `None` while a shape is being read.
    shapes: Vec<Option<Shape>>,
    /// What references lead to, so that each target is read once and may refer to itself.
    known: HashMap<String, Id>,
    values: usize,
    bytes: usize,
    apart: Apart<'a>,
}

impl<'a> Reader<'a> {
    fn refuse<T>(&self, at: &str, reason: impl std::fmt::Display) -> Result<T> {
        let at: String = at.chars().take(200).collect();
        Err(Error::bad(format!("{}{at}", self.field), reason.to_string()))
    }

    fn place(&mut self, at: &str) -> Result<Id> {
        if self.shapes.len() >= MAX_NODES {
            return self.refuse(at, format!("more than {MAX_NODES} parts"));
        }
        self.shapes.push(None);
        Ok(self.shapes.len() - 1)
    }

    fn add(&mut self, shape: Shape, at: &str) -> Result<Id> {
        let id = self.place(at)?;
        self.shapes[id] = Some(shape);
        Ok(id)
    }

    fn schema(&mut self, value: &'a Value, at: &str, depth: usize) -> Result<Id> {
        if depth > MAX_DEPTH {
            return self.refuse(at, format!("nested deeper than {MAX_DEPTH}"));
        }
        let map = match value {
            Value::Bool(true) => return self.add(Shape::Any, at),
            Value::Bool(false) => return self.refuse(at, "nothing fits `false`"),
            Value::Object(map) => map,
            _ => return self.refuse(at, "must be a JSON schema object"),
        };
        let map = self.checked(map, at)?;
        if let Some(reference) = map.get("$ref") {
            self.alone(&map, "$ref", at)?;
            return self.reference(reference, at, depth);
        }
        if let Some(Value::Array(branches)) = map.get("allOf") {
            self.alone(&map, "allOf", at)?;
            let [one] = branches.as_slice() else {
                return self.refuse(at, "`allOf` may have one entry, its schema");
            };
            return self.schema(one, &format!("{at}.allOf[0]"), depth + 1);
        }
        let id = self.place(at)?;
        let shape = self.shape(&map, at, depth)?;
        let shape = if map.get("nullable") == Some(&&Value::Bool(true)) {
            let inner = self.add(shape, at)?;
            let null = self.add(Shape::Null, at)?;
            Shape::Either(vec![inner, null])
        } else {
            shape
        };
        self.shapes[id] = Some(shape);
        Ok(id)
    }

    /// The keywords that count, or a refusal.
    fn checked(&self, map: &'a Map<String, Value>, at: &str) -> Result<HashMap<&'a str, &'a Value>> {
        let mut kept = HashMap::new();
        for (key, value) in map {
            let key = key.as_str();
            if UNDERSTOOD.contains(&key) {
                kept.insert(key, value);
            } else if BEYOND.contains(&key) {
                return self.refuse(at, format!("`{key}` is not supported"));
            } else if NARROWING.contains(&key) && self.strict {
                return self.refuse(at, format!("`{key}` cannot be enforced, as strict asks"));
            } else if !SILENT.contains(&key) && !NARROWING.contains(&key) && key.starts_with('$') {
                return self.refuse(at, "a keyword with $ that is not supported");
            }
        }
        Ok(kept)
    }

    /// Refuses siblings of a keyword that would have to be intersected with it.
    fn alone(&self, map: &HashMap<&str, &Value>, keyword: &str, at: &str) -> Result<()> {
        match map.keys().find(|key| **key != keyword) {
            None => Ok(()),
            Some(other) => self.refuse(at, format!("`{other}` beside `{keyword}` is not supported")),
        }
    }

    fn reference(&mut self, reference: &Value, at: &str, depth: usize) -> Result<Id> {
        let text = reference.as_str().unwrap_or_default();
        if let Some(&id) = self.known.get(text) {
            return Ok(id);
        }
        let target = text.strip_prefix('#').and_then(|pointer| self.document.pointer(pointer));
        let Some(target) = target else {
            return self.refuse(at, "`$ref` does not lead to a schema in this document");
        };
        // The place is there before its contents, so a schema may lead to itself; one branch is the target.
        let id = self.place(at)?;
        self.known.insert(text.to_owned(), id);
        let inner = self.schema(target, at, depth + 1)?;
        self.shapes[id] = Some(Shape::Either(vec![inner]));
        Ok(id)
    }

    fn shape(&mut self, map: &HashMap<&str, &'a Value>, at: &str, depth: usize) -> Result<Shape> {
        for key in ["anyOf", "oneOf"] {
            let Some(value) = map.get(key) else { continue };
            let nullable = map.contains_key("nullable");
            if map.len() > 1 + usize::from(nullable) {
                return self.refuse(at, format!("`{key}` beside other keywords is not supported"));
            }
            let Value::Array(branches) = value else {
                return self.refuse(at, format!("`{key}` must be a list of schemas"));
            };
            if branches.is_empty() {
                return self.refuse(at, format!("`{key}` is empty"));
            }
            if key == "oneOf" && !self.apart.are_all(branches) {
                return self.refuse(at, "branches of `oneOf` overlap: one value would fit several");
            }
            let ids = branches.iter().enumerate();
            let ids = ids.map(|(i, branch)| self.schema(branch, &format!("{at}.{key}[{i}]"), depth + 1));
            return Ok(Shape::Either(ids.collect::<Result<_>>()?));
        }
        let kinds = self.kinds(map, at)?;
        if let Some(literals) = self.literals(map, &kinds, at)? {
            return Ok(literals);
        }
        let mut shapes = Vec::with_capacity(kinds.len());
        for kind in kinds {
            shapes.push(self.of_kind(kind, map, at, depth)?);
        }
        match shapes.len() {
            1 => Ok(shapes.remove(0)),
            _ => {
                let ids = shapes.into_iter().map(|shape| self.add(shape, at)).collect::<Result<_>>()?;
                Ok(Shape::Either(ids))
            }
        }
    }

    /// The names in `type`, or what the other keywords speak of.
    fn kinds(&self, map: &HashMap<&str, &'a Value>, at: &str) -> Result<Vec<&'a str>> {
        let kinds: Vec<&str> = match map.get("type") {
            None if map.contains_key("properties") || map.contains_key("required") => vec!["object"],
            None if map.contains_key("additionalProperties") => vec!["object"],
            None if map.contains_key("items") => vec!["array"],
            None => vec!["any"],
            Some(Value::String(kind)) => vec![kind.as_str()],
            Some(Value::Array(kinds)) if !kinds.is_empty() => {
                kinds.iter().map(|kind| kind.as_str().unwrap_or_default()).collect()
            }
            Some(_) => vec![""],
        };
        let names = ["any", "null", "boolean", "integer", "number", "string", "array", "object"];
        let given = map.contains_key("type");
        if kinds.iter().any(|kind| !names.contains(kind) || (given && *kind == "any")) {
            return self.refuse(at, "`type` must be the name of a JSON type, or a list of them");
        }
        Ok(kinds)
    }

    /// `const` and `enum`.
    fn literals(
        &mut self,
        map: &HashMap<&str, &'a Value>,
        kinds: &[&str],
        at: &str,
    ) -> Result<Option<Shape>> {
        let mut values: Vec<Value> = match (map.get("const"), map.get("enum")) {
            (None, None) => return Ok(None),
            (Some(one), None) => vec![(*one).clone()],
            (one, Some(Value::Array(values))) => {
                let fits = |value: &&Value| one.is_none_or(|one| one == value);
                values.iter().filter(fits).cloned().collect()
            }
            _ => return self.refuse(at, "`enum` must be a list"),
        };
        values.retain(|value| kinds.iter().any(|kind| is_of(value, kind)));
        self.values += values.len();
        self.bytes += values.iter().map(size).sum::<usize>();
        if self.values > MAX_VALUES || self.bytes > MAX_VALUE_BYTES {
            let limits = format!("{MAX_VALUES} values and {MAX_VALUE_BYTES} bytes");
            return self.refuse(at, format!("`enum` has more than {limits}"));
        }
        if values.is_empty() {
            return self.refuse(at, "no value of `enum` is of the type");
        }
        let mut seen = std::collections::HashSet::new();
        values.retain(|value| seen.insert(value.to_string()));
        Ok(Some(Shape::Literals(values)))
    }

    fn of_kind(
        &mut self,
        kind: &str,
        map: &HashMap<&str, &'a Value>,
        at: &str,
        depth: usize,
    ) -> Result<Shape> {
        Ok(match kind {
            "null" => Shape::Null,
            "boolean" => Shape::Bool,
            "integer" => Shape::Integer,
            "number" => Shape::Number,
            "string" => Shape::Text,
            "array" => self.list(map, at, depth)?,
            "object" => self.object(map, at, depth)?,
            _ => Shape::Any,
        })
    }

    fn list(&mut self, map: &HashMap<&str, &'a Value>, at: &str, depth: usize) -> Result<Shape> {
        let bound = |key: &str| match map.get(key).map(|value| value.as_u64()) {
            None => Ok(None),
            Some(Some(count @ 0..=MAX_ITEMS)) => Ok(Some(count)),
            Some(_) => self.refuse(at, format!("`{key}` must be from 0 to {MAX_ITEMS}")),
        };
        let (min, max) = (bound("minItems")?.unwrap_or(0), bound("maxItems")?);
        if max.is_some_and(|max| max < min) {
            return self.refuse(at, "`maxItems` is below `minItems`");
        }
        let item = match map.get("items") {
            None => self.add(Shape::Any, at)?,
            Some(Value::Array(_)) => return self.refuse(at, "`items` as a list is not supported"),
            Some(items) => self.schema(items, &format!("{at}.items"), depth + 1)?,
        };
        Ok(Shape::List { item, min, max })
    }

    fn object(&mut self, map: &HashMap<&str, &'a Value>, at: &str, depth: usize) -> Result<Shape> {
        let none = Map::new();
        let properties: &Map<String, Value> = match map.get("properties") {
            None => &none,
            Some(Value::Object(properties)) => properties,
            Some(_) => return self.refuse(at, "`properties` must be an object"),
        };
        let required: Vec<&str> = match map.get("required") {
            None => Vec::new(),
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            Some(_) => return self.refuse(at, "`required` must be a list"),
        };
        let required: std::collections::HashSet<&str> = required.into_iter().collect();
        if properties.len().max(required.len()) > MAX_ENTRIES {
            return self.refuse(at, format!("an object of more than {MAX_ENTRIES} properties"));
        }
        let mut entries = Vec::with_capacity(properties.len());
        for (key, value) in map.get("properties").and_then(|value| value.as_object()).into_iter().flatten() {
            let value = self.schema(value, &format!("{at}.properties.{key}"), depth + 1)?;
            entries.push(Entry { key: key.clone(), value, required: required.contains(key.as_str()) });
        }
        // Where entries are named, others are left out: what has none of them fits all the same.
        let others = match map.get("additionalProperties") {
            None if properties.is_empty() => Some(self.add(Shape::Any, at)?),
            None | Some(Value::Bool(false)) => None,
            Some(value) => Some(self.schema(value, &format!("{at}.additionalProperties"), depth + 1)?),
        };
        let closed = map.get("additionalProperties") == Some(&&Value::Bool(false));
        let mut missing: Vec<&str> =
            required.iter().copied().filter(|name| !properties.contains_key(*name)).collect();
        missing.sort_unstable();
        if closed && !missing.is_empty() {
            return self.refuse(at, "`required` names a property that there may not be");
        }
        for name in missing {
            let value = match others {
                Some(id) => id,
                None => self.add(Shape::Any, at)?,
            };
            entries.push(Entry { key: name.to_owned(), value, required: true });
        }
        Ok(Shape::Object { entries, others })
    }
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    }
}
