//! Writes values and tool declarations as the template does: types in capitals, keys sorted without regard to
//! case, strings raw between quote markers.
//!
//! What the template drops (limits, formats, enums on numbers …) is dropped here too; `schema` moves what
//! matters into places that are shown before this is called.

use super::json::Json;
use super::marker::{Marker, Script};
use super::{Tool, python};

/// How the keys of a mapping are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// As they are: arguments and results.
    Bare,
    /// Between quote markers: inside declarations.
    Quoted,
}

/// A value inside arguments or a declaration.
pub(crate) fn value(out: &mut Script, value: &Json, keys: Keys) {
    match value {
        Json::Null => out.text("null"),
        Json::Bool(b) => out.text(if *b { "true" } else { "false" }),
        Json::Number(n) => out.text(&python::number(n)),
        Json::String(s) => out.quoted(s),
        Json::Array(items) => {
            out.text("[");
            for (i, item) in items.iter().enumerate() {
                separate(out, i > 0);
                self::value(out, item, keys);
            }
            out.text("]");
        }
        Json::Object(entries) => {
            out.text("{");
            mapping(out, entries, keys);
            out.text("}");
        }
    }
}

/// The entries of a mapping without its braces.
pub(crate) fn mapping(out: &mut Script, entries: &[(String, Json)], keys: Keys) {
    for (i, (key, item)) in python::sorted(entries).into_iter().enumerate() {
        separate(out, i > 0);
        match keys {
            Keys::Bare => out.text(key),
            Keys::Quoted => out.quoted(key),
        }
        out.text(":");
        value(out, item, keys);
    }
}

fn separate(out: &mut Script, wanted: bool) {
    if wanted {
        out.text(",");
    }
}

/// One tool, markers included.
pub(crate) fn declaration(out: &mut Script, tool: &Tool) {
    out.marker(Marker::ToolOpen);
    out.text("declaration:");
    out.text(&tool.name);
    out.text("{description:");
    out.quoted(tool.description.as_deref().unwrap_or_default());
    if let Some(parameters) = tool.parameters.as_ref().map(Json::from).filter(python::truthy) {
        out.text(",parameters:{");
        if let Some(Json::Object(properties)) = parameters.get("properties").filter(|p| python::truthy(p)) {
            out.text("properties:{");
            self::properties(out, properties, false);
            out.text("},");
        }
        if let Some(required) = parameters.get("required").filter(|r| python::truthy(r)) {
            self::required(out, required);
            out.text(",");
        }
        if let Some(kind) = parameters.get("type").filter(|t| python::truthy(t)) {
            type_name(out, kind);
            out.text("}");
        }
    }
    if let Some(response) = tool.response.as_ref().map(Json::from) {
        out.text(",response:{");
        if let Some(description) = response.get("description").filter(|d| python::truthy(d)) {
            out.text("description:");
            out.quoted(&python::text(description));
            out.text(",");
        }
        if let Some(kind) = response.get("type") {
            type_name(out, kind);
        }
        out.text("}");
    }
    out.text("}");
    out.marker(Marker::ToolClose);
}

/// `type:T`, T in capitals between quote markers.
fn type_name(out: &mut Script, kind: &Json) {
    out.text("type:");
    out.quoted(&python::text(kind).to_uppercase());
}

/// `required:[…]`.
fn required(out: &mut Script, names: &Json) {
    out.text("required:[");
    if let Json::Array(names) = names {
        for (i, name) in names.iter().enumerate() {
            separate(out, i > 0);
            out.quoted(&python::text(name));
        }
    }
    out.text("]");
}

/// Keywords that are no property names where the template reads an object's own keywords as properties.
const KEYWORDS: [&str; 5] = ["description", "type", "properties", "required", "nullable"];

/// The properties of an object, comma-separated, sorted.
fn properties(out: &mut Script, properties: &[(String, Json)], skip_keywords: bool) {
    let mut later = false;
    for (name, schema) in python::sorted(properties) {
        if skip_keywords && KEYWORDS.contains(&name) {
            continue;
        }
        separate(out, later);
        later = true;
        property(out, name, schema);
    }
}

fn property(out: &mut Script, name: &str, schema: &Json) {
    let mut later = false;
    let mut next = |out: &mut Script| {
        separate(out, later);
        later = true;
    };
    let true_one = |key| schema.get(key).filter(|v| python::truthy(v));
    out.text(name);
    out.text(":{");
    if let Some(description) = true_one("description") {
        next(out);
        out.text("description:");
        out.quoted(&python::text(description));
    }
    let kind = schema.get("type").map(python::text).unwrap_or_default().to_uppercase();
    if kind == "STRING"
        && let Some(values) = true_one("enum")
    {
        next(out);
        out.text("enum:");
        value(out, values, Keys::Quoted);
    }
    if kind == "ARRAY"
        && let Some(Json::Object(keywords)) = true_one("items")
    {
        next(out);
        out.text("items:{");
        items(out, keywords);
        out.text("}");
    }
    if true_one("nullable").is_some() {
        next(out);
        out.text("nullable:true");
    }
    if kind == "OBJECT" {
        next(out);
        out.text("properties:{");
        match (schema.get("properties"), schema) {
            (Some(Json::Object(inner)), _) => properties(out, inner, false),
            (_, Json::Object(keywords)) => properties(out, keywords, true),
            _ => {}
        }
        out.text("}");
        if let Some(names) = true_one("required") {
            next(out);
            required(out, names);
        }
    }
    next(out);
    out.text("type:");
    out.quoted(&kind);
    out.text("}");
}

/// The keywords of an array's items: properties, required and type as elsewhere, every other one as a value.
fn items(out: &mut Script, keywords: &[(String, Json)]) {
    let mut later = false;
    for (key, item) in python::sorted(keywords) {
        if *item == Json::Null {
            continue;
        }
        separate(out, later);
        later = true;
        match (key, item) {
            ("properties", item) => {
                out.text("properties:{");
                if let Json::Object(inner) = item {
                    properties(out, inner, false);
                }
                out.text("}");
            }
            ("required", names) => required(out, names),
            ("type", Json::Array(kinds)) => {
                let upper = kinds.iter().map(|k| Json::String(python::text(k).to_uppercase())).collect();
                out.text("type:");
                value(out, &Json::Array(upper), Keys::Quoted);
            }
            ("type", kind) => type_name(out, kind),
            (key, item) => {
                out.text(key);
                out.text(":");
                value(out, item, Keys::Quoted);
            }
        }
    }
}
