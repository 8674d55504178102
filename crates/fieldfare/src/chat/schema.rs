//! Adapts a tool's JSON schema to what the format can say: type, description, nullable, string enums, items,
//! properties.
//!
//! Nothing that matters is lost in silence: what can be said otherwise is rewritten (`["T","null"]`, `anyOf`
//! with null, `const`, local `$ref`), what can be told to the model goes into the description, and what can
//! be neither is refused with its place.

use crate::{Error, Result};
use serde_json::{Map, Value};

/// Deepest nesting followed; deeper schemas and circular references are refused.
const MAX_DEPTH: usize = 32;
/// Most schema nodes visited in one tool: references can make a small document large.
const MAX_NODES: usize = 10_000;

type Object = Map<String, Value>;

/// The schema of a tool's parameters, adapted; `field` is how errors name it.
pub(crate) fn adapt(schema: &Value, field: &str) -> Result<Value> {
    let Value::Object(map) = schema else {
        return Err(Error::bad(field, "must be a JSON schema object"));
    };
    let mut map = map.clone();
    if !["type", "$ref", "allOf", "anyOf", "oneOf"].iter().any(|key| map.contains_key(*key)) {
        map.insert("type".to_owned(), "object".into());
    }
    let mut adapter = Adapter { root: schema, field, nodes: 0 };
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

    fn resolve(&self, reference: &Value, at: &str) -> Result<Object> {
        let text = reference.as_str().unwrap_or_default();
        match text.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer)) {
            Some(Value::Object(target)) => Ok(target.clone()),
            _ => self.refuse(at, format!("`$ref` {reference} does not lead to a schema in this document")),
        }
    }

    /// Merges the branches of `allOf` where they do not contradict each other.
    fn all_of(&self, map: &mut Object, at: &str) -> Result<()> {
        let Some(branches) = map.remove("allOf") else { return Ok(()) };
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
                self.merge(map, key, value, at)?;
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
            (Some(Value::Array(mine)), Value::Array(theirs)) if key == "required" => {
                for name in theirs {
                    if !mine.contains(&name) {
                        mine.push(name);
                    }
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
                let mut seen = std::collections::HashSet::new();
                constants.retain(|c| seen.insert(c.to_string()));
                map.insert("type".to_owned(), "string".into());
                map.insert("enum".to_owned(), constants.into());
                continue;
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
    let kind = |b: &Object| match b.get("type").and_then(Value::as_str) {
        Some("integer") => "number".to_owned(),
        other => other.unwrap_or_default().to_owned(),
    };
    branches.iter().enumerate().any(|(i, a)| {
        branches[i + 1..].iter().any(|b| kind(a) == kind(b) && !(kind(a) == "object" && told_apart(a, b)))
    })
}

fn told_apart(a: &Object, b: &Object) -> bool {
    let required = |o: &Object, name: &str| {
        o.get("required").and_then(Value::as_array).is_some_and(|r| r.iter().any(|n| n == name))
    };
    let constants =
        |o: &Object, name: &str| o.get("properties")?.get(name)?.as_object().and_then(string_constants);
    let Some(names) = a.get("properties").and_then(Value::as_object) else { return false };
    names.keys().any(|name| match (constants(a, name), constants(b, name)) {
        (Some(x), Some(y)) => required(a, name) && required(b, name) && !x.iter().any(|v| y.contains(v)),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn property(schema: Value) -> Value {
        let top = json!({"type": "object", "properties": {"p": schema},
            "$defs": {"node": {"type": "integer", "description": "inner"}, "loop": {"$ref": "#/$defs/loop"}}});
        adapt(&top, "tools[0].function.parameters").unwrap()["properties"]["p"].clone()
    }

    #[test]
    fn null_in_a_union_is_nullable() {
        let wanted = json!({"nullable": true, "type": "string"});
        assert_eq!(property(json!({"type": ["string", "null"]})), wanted);
        assert_eq!(property(json!({"anyOf": [{"type": "string"}, {"type": "null"}]})), wanted);
        assert_eq!(property(json!({"oneOf": [{"type": "null"}, {"type": "string"}]})), wanted);
    }

    #[test]
    fn constants_are_an_enum() {
        let wanted = json!({"description": "d", "type": "string", "enum": ["a", "b", "c"]});
        let union =
            json!({"description": "d", "anyOf": [{"type": "string", "enum": ["a", "b"]}, {"const": "c"}]});
        assert_eq!(property(union), wanted);
        assert_eq!(
            property(json!({"enum": [1, 2]})),
            json!({"type": "integer", "description": "One of: 1, 2"})
        );
        assert_eq!(property(json!({"const": "x"})), json!({"type": "string", "enum": ["x"]}));
    }

    #[test]
    fn references_are_followed_and_loops_refused() {
        assert_eq!(
            property(json!({"$ref": "#/$defs/node"})),
            json!({"type": "integer", "description": "inner"})
        );
        for (schema, reason) in [
            (json!({"$ref": "#/$defs/loop"}), "reference to itself"),
            (json!({"$ref": "#/nowhere"}), "does not lead"),
            (json!({"$ref": "http://x/y"}), "does not lead"),
        ] {
            let top = json!({"properties": {"p": schema}, "$defs": {"loop": {"$ref": "#/$defs/loop"}}});
            let error = adapt(&top, "tools[0]").unwrap_err().to_string();
            assert!(error.starts_with("tools[0].p:") && error.contains(reason), "{error}");
        }
    }

    #[test]
    fn what_is_missing_is_inferred() {
        assert_eq!(property(json!({"items": {"type": "string"}}))["type"], "array");
        assert_eq!(property(json!({"properties": {}}))["type"], "object");
        assert_eq!(
            property(json!({"type": "object", "title": null})),
            json!({"type": "object", "properties": {}})
        );
        assert_eq!(property(json!({})), json!({"type": "string"}));
        assert_eq!(adapt(&json!({}), "t").unwrap(), json!({"type": "object", "properties": {}}));
        let any = property(json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}));
        assert_eq!(any["type"], "string");
        assert!(any["description"].as_str().unwrap().contains("integer"), "{any}");
    }

    #[test]
    fn what_cannot_be_said_is_refused() {
        for (schema, reason) in [
            (json!({"type": "string"}), "object at the top"),
            (json!({"properties": {"a:b": {}}}), "cannot be written"),
            (
                json!({"properties": {"a": {"allOf": [{"type": "string"}, {"type": "integer"}]}}}),
                "two values",
            ),
            (json!({"properties": {"a": {"oneOf": [{"type": "number"}, {"type": "integer"}]}}}), "overlap"),
            (json!({"properties": {"a": false}}), "must be a JSON schema"),
        ] {
            let error = adapt(&schema, "t").unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
