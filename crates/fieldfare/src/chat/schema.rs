//! Adapts a tool's JSON schema to what the format can say: type, description, nullable, string enums, items,
//! properties.
//!
//! Nothing that matters is lost in silence: what can be said otherwise is rewritten (`["T","null"]`, `anyOf`
//! with null, `const`, local `$ref`), what can be told to the model goes into the description, and what can
//! be neither is refused with its place.

use crate::{Error, Result};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// Deepest nesting followed; deeper schemas and circular references are refused.
const MAX_DEPTH: usize = 32;
/// Most schema nodes visited in one tool: references can make a small document large.
const MAX_NODES: usize = 10_000;

/// Most branches of a `oneOf` that are compared with each other.
const MAX_BRANCHES: usize = 256;
/// What following references may add to the tools of one conversation, by [`weight`]: without a limit, ten thousand
/// references to one long description make gigabytes of a small request.
const MAX_COPIED: usize = 16 << 20;

type Object = Map<String, Value>;

/// What is left of the room for copies of what references lead to.
pub(crate) struct Copies(usize);

impl Default for Copies {
    fn default() -> Self {
        Self(MAX_COPIED)
    }
}

/// About the bytes that a value takes in memory.
fn weight(value: &Value) -> usize {
    let inner = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(map) => map.iter().map(|(key, value)| key.len() + weight(value)).sum(),
        _ => 0,
    };
    128 + inner
}

/// The schema of a tool's parameters, adapted; `field` is how errors name it. `copies` is shared by all tools of a
/// conversation.
pub(crate) fn adapt(schema: &Value, field: &str, copies: &mut Copies) -> Result<Value> {
    let Value::Object(map) = schema else {
        return Err(Error::bad(field, "must be a JSON schema object"));
    };
    let mut map = map.clone();
    if !["type", "$ref", "allOf", "anyOf", "oneOf"].iter().any(|key| map.contains_key(*key)) {
        map.insert("type".to_owned(), "object".into());
    }
    let mut adapter = Adapter { root: schema, field, nodes: 0, copies };
    let adapted = adapter.schema(&Value::Object(map), "", 0)?;
    if adapted.get("type").and_then(Value::as_str) != Some("object") {
        return Err(Error::bad(field, "must describe an object at the top"));
    }
    Ok(Value::Object(adapted))
}

/// A copy without the `null` entries of objects, which the template would print.
pub(crate) fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), without_nulls(v))).collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

struct Adapter<'a> {
    root: &'a Value,
    field: &'a str,
    nodes: usize,
    copies: &'a mut Copies,
}

impl Adapter<'_> {
    fn refuse<T>(&self, at: &str, reason: impl std::fmt::Display) -> Result<T> {
        let place = if at.is_empty() { self.field.to_owned() } else { format!("{}{at}", self.field) };
        Err(Error::bad(place, reason.to_string()))
    }

    fn schema(&mut self, value: &Value, at: &str, depth: usize) -> Result<Object> {
        self.nodes += 1;
        if depth > MAX_DEPTH {
            return self.refuse(at, format!("nested deeper than {MAX_DEPTH}, or a reference to itself"));
        }
        if self.nodes > MAX_NODES {
            return self.refuse(at, format!("more than {MAX_NODES} parts after following references"));
        }
        let mut map = match value {
            Value::Object(map) => map.clone(),
            Value::Bool(true) => Object::new(),
            _ => return self.refuse(at, "must be a JSON schema object"),
        };
        map.retain(|_, v| !v.is_null());
        // Each round takes one indirection away; what it uncovers is a raw schema again.
        let mut rounds = 0;
        while ["$ref", "allOf", "anyOf", "oneOf"].iter().any(|key| map.contains_key(*key)) {
            rounds += 1;
            if rounds > MAX_DEPTH {
                return self.refuse(at, "a reference to itself");
            }
            self.all_of(&mut map, at)?;
            if let Some(reference) = map.remove("$ref") {
                map = overlay(self.resolve(&reference, at)?, map);
            }
            self.unions(&mut map, at, depth)?;
        }
        self.types(&mut map, at)?;
        self.enums(&mut map);
        self.children(&mut map, at, depth)?;
        Ok(map)
    }

    fn resolve(&mut self, reference: &Value, at: &str) -> Result<Object> {
        let text = reference.as_str().unwrap_or_default();
        match text.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer)) {
            Some(target @ Value::Object(map)) => match self.copies.0.checked_sub(weight(target)) {
                Some(left) => {
                    self.copies.0 = left;
                    Ok(map.clone())
                }
                None => self.refuse(at, "references make the declarations too large"),
            },
            _ => self.refuse(at, format!("`$ref` {reference} does not lead to a schema in this document")),
        }
    }

    /// Merges the branches of `allOf` where they do not contradict each other.
    fn all_of(&mut self, map: &mut Object, at: &str) -> Result<()> {
        let Some(branches) = map.remove("allOf") else { return Ok(()) };
        let mut required = Required::default();
        for branch in branches.as_array().into_iter().flatten() {
            let Value::Object(branch) = branch else { continue };
            let mut branch = branch.clone();
            let mut rounds = 0;
            while let Some(reference) = branch.remove("$ref") {
                rounds += 1;
                if rounds > MAX_DEPTH {
                    return self.refuse(at, "a reference to itself");
                }
                branch = overlay(self.resolve(&reference, at)?, branch);
            }
            for (key, value) in branch {
                if key == "required" && map.get(&key).is_some_and(Value::is_array) && value.is_array() {
                    required.merge(map, value);
                } else {
                    self.merge(map, key, value, at)?;
                }
            }
        }
        Ok(())
    }

    fn merge(&self, map: &mut Object, key: String, value: Value, at: &str) -> Result<()> {
        match (map.get_mut(&key), value) {
            (None, value) => {
                map.insert(key, value);
            }
            (Some(Value::Object(mine)), Value::Object(theirs)) if key == "properties" => {
                for (name, schema) in theirs {
                    if mine.get(&name).is_some_and(|old| *old != schema) {
                        return self.refuse(at, format!("`allOf` gives `{name}` two meanings"));
                    }
                    mine.insert(name, schema);
                }
            }
            (Some(_), _) if ["description", "title", "$comment", "$id"].contains(&key.as_str()) => {}
            (Some(mine), theirs) if *mine != theirs => {
                return self.refuse(at, format!("`allOf` gives `{key}` two values"));
            }
            _ => {}
        }
        Ok(())
    }

    /// `anyOf` and `oneOf`: null becomes `nullable`, one branch left becomes the schema itself, string
    /// constants an enum, and any other choice is told in the description.
    fn unions(&mut self, map: &mut Object, at: &str, depth: usize) -> Result<()> {
        for key in ["anyOf", "oneOf"] {
            let Some(Value::Array(branches)) = map.remove(key) else { continue };
            let all = branches.len();
            let branches: Vec<_> =
                branches.into_iter().filter(|b| b.get("type") != Some(&"null".into())).collect();
            if branches.len() < all {
                map.insert("nullable".to_owned(), true.into());
            }
            if let [Value::Object(one)] = branches.as_slice() {
                let mut one = one.clone();
                one.retain(|_, v| !v.is_null());
                *map = overlay(one, std::mem::take(map));
                continue;
            }
            let mut adapted = Vec::with_capacity(branches.len());
            for branch in &branches {
                adapted.push(self.schema(branch, at, depth + 1)?);
            }
            let constants: Option<Vec<Value>> =
                adapted.iter().map(string_constants).collect::<Option<Vec<_>>>().map(|c| c.concat());
            if let Some(mut constants) = constants.filter(|c| !c.is_empty()) {
                let mut seen = HashSet::new();
                constants.retain(|c| seen.insert(c.to_string()));
                map.insert("type".to_owned(), "string".into());
                map.insert("enum".to_owned(), constants.into());
                continue;
            }
            if key == "oneOf" && adapted.len() > MAX_BRANCHES {
                return self.refuse(at, format!("more than {MAX_BRANCHES} branches in `oneOf`"));
            }
            if key == "oneOf" && overlap(&adapted) {
                return self.refuse(at, "the branches of `oneOf` overlap: one value would fit several");
            }
            if map.get("type").and_then(Value::as_str) != Some("object") {
                // The original says more briefly what the adapted branches say.
                describe(
                    map,
                    &format!("One of these: {}", Value::Array(branches.iter().map(without_nulls).collect())),
                );
            }
        }
        Ok(())
    }

    /// Leaves exactly one type name, in lower case as it came.
    fn types(&self, map: &mut Object, at: &str) -> Result<()> {
        let kind = match map.remove("type") {
            Some(Value::String(kind)) => Some(kind),
            Some(Value::Array(kinds)) => {
                let names: Vec<_> = kinds.iter().filter_map(Value::as_str).collect();
                let real: Vec<_> = names.iter().copied().filter(|k| *k != "null").collect();
                if real.len() < names.len() {
                    map.insert("nullable".to_owned(), true.into());
                }
                match real.as_slice() {
                    [] => None,
                    [one] => Some((*one).to_owned()),
                    several => {
                        describe(map, &format!("One of these types: {}", several.join(", ")));
                        Some("string".to_owned())
                    }
                }
            }
            None => None,
            Some(_) => return self.refuse(at, "`type` must be a name or a list of names"),
        };
        let kind = kind.or_else(|| inferred(map).map(str::to_owned)).unwrap_or_else(|| {
            let rest: Object = map
                .iter()
                .filter(|(k, _)| {
                    !["description", "title", "nullable", "default", "$schema", "$defs"].contains(&k.as_str())
                })
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            if !rest.is_empty() {
                describe(map, &Value::Object(rest).to_string());
            }
            "string".to_owned()
        });
        map.insert("type".to_owned(), kind.into());
        Ok(())
    }

    /// `const` becomes an enum of one; an enum on anything but strings goes to the description, as the
    /// template shows none there.
    fn enums(&self, map: &mut Object) {
        if let Some(constant) = map.remove("const") {
            map.entry("enum").or_insert_with(|| Value::Array(vec![constant]));
        }
        let Some(Value::Array(values)) = map.remove("enum") else { return };
        let kept: Vec<_> = values.iter().filter(|v| !v.is_null()).cloned().collect();
        if kept.len() < values.len() {
            map.insert("nullable".to_owned(), true.into());
        }
        if map.get("type") == Some(&"string".into()) && kept.iter().all(Value::is_string) {
            map.insert("enum".to_owned(), kept.into());
        } else {
            let list: Vec<_> = kept.iter().map(Value::to_string).collect();
            describe(map, &format!("One of: {}", list.join(", ")));
        }
    }

    fn children(&mut self, map: &mut Object, at: &str, depth: usize) -> Result<()> {
        for key in ["$schema", "$defs", "definitions", "$id", "$comment"] {
            map.remove(key);
        }
        if map.get("description").is_some_and(|d| !d.is_string()) {
            map.remove("description");
        }
        if map.get("nullable").is_some_and(|n| n != &Value::Bool(true)) {
            map.remove("nullable");
        }
        match map.get("type").and_then(Value::as_str) {
            Some("object") => {
                let properties = match map.remove("properties") {
                    Some(Value::Object(properties)) => properties,
                    None => Object::new(),
                    Some(_) => return self.refuse(at, "`properties` must be an object"),
                };
                let mut adapted = Object::new();
                for (name, schema) in properties {
                    self.check_key(&name, at)?;
                    if !schema.is_null() {
                        let schema = self.schema(&schema, &format!("{at}.{name}"), depth + 1)?;
                        adapted.insert(name, Value::Object(schema));
                    }
                }
                map.insert("properties".to_owned(), Value::Object(adapted));
                if let Some(Value::Array(names)) = map.get_mut("required") {
                    names.retain(Value::is_string);
                } else {
                    map.remove("required");
                }
            }
            Some("array") => match map.remove("items") {
                Some(items @ (Value::Object(_) | Value::Bool(true))) => {
                    let items = self.schema(&items, &format!("{at}[]"), depth + 1)?;
                    map.insert("items".to_owned(), Value::Object(items));
                }
                Some(items @ Value::Array(_)) => describe(map, &format!("Items in order: {items}")),
                _ => {
                    if let Some(items) = map.remove("prefixItems") {
                        describe(map, &format!("Items in order: {items}"));
                    }
                }
            },
            _ => {}
        }
        Ok(())
    }

    /// Keys are written bare in calls and read back up to the colon.
    fn check_key(&self, key: &str, at: &str) -> Result<()> {
        if super::call::is_writable_key(key) {
            return Ok(());
        }
        self.refuse(at, format!("the property name {key:?} cannot be written in a call"))
    }
}

/// The names in the `required` list of an `allOf`, so that each is looked at once however many branches there are.
#[derive(Default)]
struct Required(Option<HashSet<String>>);

impl Required {
    /// Appends the names of `theirs` that the list in `map` lacks.
    fn merge(&mut self, map: &mut Object, theirs: Value) {
        let (Some(Value::Array(mine)), Value::Array(theirs)) = (map.get_mut("required"), theirs) else {
            return;
        };
        let known = self.0.get_or_insert_with(|| mine.iter().map(Value::to_string).collect());
        mine.extend(theirs.into_iter().filter(|name| known.insert(name.to_string())));
    }
}

/// `base` with the entries of `over` on top; two descriptions: the outer one stays.
fn overlay(mut base: Object, over: Object) -> Object {
    for (key, value) in over {
        base.insert(key, value);
    }
    base
}

fn describe(map: &mut Object, what: &str) {
    let text = match map.get("description").and_then(Value::as_str) {
        Some(old) if !old.is_empty() => format!("{old} ({what})"),
        _ => what.to_owned(),
    };
    map.insert("description".to_owned(), text.into());
}

fn inferred(map: &Object) -> Option<&'static str> {
    if map.contains_key("properties") {
        return Some("object");
    }
    if map.contains_key("items") || map.contains_key("prefixItems") {
        return Some("array");
    }
    let sample = match (map.get("enum"), map.get("const")) {
        (Some(Value::Array(values)), _) => values.iter().find(|v| !v.is_null())?,
        (_, Some(value)) => value,
        _ => return None,
    };
    Some(match sample {
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::String(_) | Value::Null => "string",
    })
}

/// The strings of an adapted branch that is nothing but string constants.
fn string_constants(branch: &Object) -> Option<Vec<Value>> {
    match branch.get("enum") {
        Some(Value::Array(values)) if branch.get("type") == Some(&"string".into()) => Some(values.clone()),
        _ => None,
    }
}

/// Whether two branches have the same type and nothing tells them apart: no shared required property with
/// different constants.
fn overlap(branches: &[Object]) -> bool {
    let branches: Vec<_> = branches.iter().map(|branch| (kind(branch), constants(branch))).collect();
    branches.iter().enumerate().any(|(i, (kind, a))| {
        branches[i + 1..].iter().any(|(other, b)| kind == other && !(*kind == "object" && told_apart(a, b)))
    })
}

fn kind(branch: &Object) -> &str {
    match branch.get("type").and_then(Value::as_str) {
        Some("integer") => "number",
        other => other.unwrap_or_default(),
    }
}

/// The required properties of a branch that are nothing but string constants, and which.
fn constants(branch: &Object) -> HashMap<&str, HashSet<&str>> {
    let Some(properties) = branch.get("properties").and_then(Value::as_object) else { return HashMap::new() };
    let required = branch.get("required").and_then(Value::as_array).into_iter().flatten();
    required
        .filter_map(|name| {
            let name = name.as_str()?;
            let property = properties.get(name)?.as_object()?;
            let values = property.get("enum")?.as_array().filter(|_| kind(property) == "string")?;
            Some((name, values.iter().filter_map(Value::as_str).collect()))
        })
        .collect()
}

fn told_apart(a: &HashMap<&str, HashSet<&str>>, b: &HashMap<&str, HashSet<&str>>) -> bool {
    a.iter().any(|(name, x)| b.get(name).is_some_and(|y| x.is_disjoint(y)))
}

#[cfg(test)]
mod tests;
