//! What becomes of schemas, and limits on what they may cost.

use super::*;
use serde_json::json;

fn adapt(schema: &Value, field: &str) -> Result<Value> {
    super::adapt(schema, field, &mut Copies::default())
}

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
    assert_eq!(property(json!({"enum": [1, 2]})), json!({"type": "integer", "description": "One of: 1, 2"}));
    assert_eq!(property(json!({"const": "x"})), json!({"type": "string", "enum": ["x"]}));
}

#[test]
fn references_are_followed_and_loops_refused() {
    assert_eq!(property(json!({"$ref": "#/$defs/node"})), json!({"type": "integer", "description": "inner"}));
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
        (json!({"properties": {"a": {"allOf": [{"type": "string"}, {"type": "integer"}]}}}), "two values"),
        (json!({"properties": {"a": {"oneOf": [{"type": "number"}, {"type": "integer"}]}}}), "overlap"),
        (json!({"properties": {"a": false}}), "must be a JSON schema"),
    ] {
        let error = adapt(&schema, "t").unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn references_cannot_make_a_small_document_large() {
    let many = |count: usize, target: Value| {
        let refs: Object = (0..count).map(|i| (format!("p{i}"), json!({"$ref": "#/$defs/a"}))).collect();
        json!({"properties": refs, "$defs": {"a": target}})
    };
    adapt(&many(200, json!({"description": "d".repeat(1_000)})), "t").unwrap();
    let error =
        adapt(&many(5_000, json!({"description": "d".repeat(100_000)})), "t").unwrap_err().to_string();
    assert!(error.contains("too large"), "{error}");
    // The room is that of all tools together.
    let mut copies = Copies::default();
    let one = many(1_000, json!({"description": "d".repeat(2_000)}));
    let refused = (0..20).any(|_| super::adapt(&one, "t", &mut copies).is_err());
    assert!(refused);
}

#[test]
fn long_lists_take_no_quadratic_time() {
    let names = |from: usize| (from..from + 200_000).map(|i| format!("n{i}").into()).collect::<Vec<Value>>();
    let all = json!({"type": "object", "allOf": [{"required": names(0)}, {"required": names(100_000)}, {"required": ["n0", "x"]}]});
    let required = adapt(&all, "t").unwrap()["required"].as_array().unwrap().len();
    assert_eq!(required, 300_001);

    let branch = |from: usize| json!({"type": "object", "required": ["k"], "properties": {"k": {"enum": names(from)}}});
    let apart = json!({"properties": {"a": {"oneOf": [branch(0), branch(200_000)]}}});
    adapt(&apart, "t").unwrap();
    let shared = json!({"properties": {"a": {"oneOf": [branch(0), branch(199_999)]}}});
    assert!(adapt(&shared, "t").unwrap_err().to_string().contains("overlap"));
    let many: Vec<Value> = (0..300).map(|i| json!({"type": format!("t{i}")})).collect();
    let error = adapt(&json!({"properties": {"a": {"oneOf": many}}}), "t").unwrap_err().to_string();
    assert!(error.contains("more than 256 branches"), "{error}");
}
