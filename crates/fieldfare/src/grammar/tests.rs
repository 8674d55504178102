//! Random answers under grammars: each is read back and fits. Hostile schemas: each is refused, soon.

use super::*;
use crate::chat::{End, OutputParser, ParsedOutput};
use crate::sample::{Allowed, Sampler, Sampling};
use serde_json::{Value, json};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const STOP: [u32; 3] = [1, 106, 50];

/// The tiny tokenizer: control tokens as in the real one, text mostly byte by byte.
fn grammars() -> &'static Grammars {
    static GRAMMARS: OnceLock<Grammars> = OnceLock::new();
    GRAMMARS.get_or_init(|| {
        let path = fieldfare_testing::tiny_checkpoint().join("tokenizer.json");
        let tokenizer = Tokenizer::from_json(&std::fs::read(path).unwrap()).unwrap();
        Grammars::new(Arc::new(tokenizer))
    })
}

fn tokenizer() -> &'static Tokenizer {
    grammars().0.tokenizer()
}

/// A small check of a value against a schema, written for itself: no line is shared with the reader of schemas.
fn fits(schema: &Value, root: &Value, value: &Value) -> bool {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        return fits(root.pointer(&reference[1..]).unwrap(), root, value);
    }
    let all = |key: &str| schema.get(key).and_then(Value::as_array);
    let kind_fits = |kind: &Value| match kind.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other}"),
    };
    let typed = match schema.get("type") {
        None => true,
        Some(Value::Array(kinds)) => kinds.iter().any(kind_fits),
        Some(kind) => kind_fits(kind),
    };
    let union = ["anyOf", "oneOf"]
        .iter()
        .all(|key| all(key).is_none_or(|branches| branches.iter().any(|branch| fits(branch, root, value))));
    let constant = schema.get("const").is_none_or(|one| one == value)
        && all("enum").is_none_or(|values| values.contains(value));
    let items = value.as_array().is_none_or(|items| {
        let count = |key: &str, or: u64| schema.get(key).and_then(Value::as_u64).unwrap_or(or);
        let len = items.len() as u64;
        let each = |item: &Value| schema.get("items").is_none_or(|schema| fits(schema, root, item));
        (count("minItems", 0)..=count("maxItems", u64::MAX)).contains(&len) && items.iter().all(each)
    });
    let entries = value.as_object().is_none_or(|map| {
        let named = |key: &String| schema.get("properties").and_then(|properties| properties.get(key));
        let entry = |(key, value): (&String, &Value)| match (named(key), schema.get("additionalProperties")) {
            (Some(schema), _) | (None, Some(schema @ Value::Object(_))) => fits(schema, root, value),
            (None, others) => others != Some(&Value::Bool(false)),
        };
        map.iter().all(entry)
            && all("required").is_none_or(|names| names.iter().all(|n| map.contains_key(n.as_str().unwrap())))
    });
    typed && union && constant && items && entries
}

/// Noise, in which what ends things is a little likelier, so that answers end.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn logits(&mut self, logits: &mut [f32]) {
        for (id, logit) in logits.iter_mut().enumerate() {
            *logit = (self.next() >> 40) as f32 / 1e6;
            let piece = tokenizer().piece(id as u32).unwrap_or_default();
            if matches!(piece, "\"" | "}" | "]" | "<0x22>" | "<0x7D>" | "<0x5D>") || id == 52 {
                *logit += 12.0;
            }
        }
    }
}

/// An answer to noise at temperature 2: its ids, and whether it ended before the limit. It is made twice side by side: what
/// may come is told ahead on another thread in one, and in the other when it is asked for.
fn answer(bound: &Bound, seed: u64, most: usize) -> (Vec<u32>, bool) {
    let sampling =
        Sampling { temperature: 2.0, top_k: 0, top_p: 1.0, seed: Some(seed), ..Sampling::default() };
    let vocabulary = tokenizer().vocab_size();
    let guided = || Sampler::new(&sampling, vocabulary).unwrap().guided(Some(bound.guide(&STOP).unwrap()));
    let (mut sampler, mut ahead) = (guided(), guided());
    let mut noise = Noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut logits = vec![0.0; vocabulary];
    let mut ids = Vec::new();
    while ids.len() < most {
        ahead.look_ahead();
        noise.logits(&mut logits);
        let told_ahead = ahead.choose(&mut logits.clone()).unwrap();
        let id = sampler.choose(&mut logits).unwrap();
        assert_eq!(told_ahead, id, "after {} tokens", ids.len());
        if STOP.contains(&id) {
            return (ids, true);
        }
        ids.push(id);
        sampler.accept(id);
        ahead.accept(id);
        assert_eq!(ahead.is_over(), sampler.is_over());
        if sampler.is_over() {
            return (ids, true);
        }
    }
    (ids, false)
}

fn read(ids: &[u32], tools: &[&str], starts_in_thought: bool) -> ParsedOutput {
    let tools = tools.iter().map(|&name| name.to_owned()).collect();
    let mut parser = OutputParser::new(tokenizer(), tools, starts_in_thought);
    ids.iter().for_each(|&id| parser.push(id, &mut |_| {}));
    parser.finish(End::Stop, &mut |_| {})
}

fn bind(rules: &Rules) -> Bound {
    grammars().bind(rules).unwrap().expect("rules that bind")
}

fn schemas() -> Vec<Value> {
    vec![
        json!({ "type": "object", "properties": {
            "name": { "type": "string", "description": "who", "maxLength": 9 },
            "age": { "type": "integer", "minimum": 0 },
            "tags": { "type": "array", "items": { "enum": ["a", "b\"c", "\u{e9}"] }, "minItems": 1, "maxItems": 4 },
            "note": { "type": ["string", "null"] } },
            "required": ["age", "tags"], "additionalProperties": false }),
        json!({ "type": "object", "properties": { "steps": { "type": "array", "items": { "$ref": "#/$defs/step" } },
            "final": { "type": "number" } }, "required": ["steps", "final"], "additionalProperties": false,
            "$defs": { "step": { "type": "object", "properties": { "what": { "type": "boolean" },
                "then": { "anyOf": [{ "$ref": "#/$defs/step" }, { "type": "null" }] } },
                "required": ["what", "then"], "additionalProperties": false } } }),
        json!({ "anyOf": [{ "type": "integer" }, { "const": { "k": [1, "x"] } }, { "enum": [null, true] }] }),
        json!({ "oneOf": [
            { "type": "object", "properties": { "kind": { "const": "cat" }, "lives": { "type": "integer" } },
              "required": ["kind", "lives"] },
            { "type": "object", "properties": { "kind": { "const": "dog" }, "tricks": { "type": "array", "maxItems": 2,
              "items": { "type": "string" } } }, "required": ["kind", "tricks"] } ] }),
        json!({ "type": "object", "additionalProperties": { "type": "number" },
            "properties": { "a": { "type": "string" } } }),
        json!({ "type": "array", "items": { "type": "array", "items": {}, "maxItems": 2 }, "minItems": 2 }),
        json!({ "type": "object" }),
    ]
}

#[test]
fn two_hundred_answers_fit_their_schemas() {
    let mut complete = 0;
    for (at, schema) in schemas().iter().enumerate() {
        let parsed = Schema::parse(schema, "schema", false).unwrap();
        let bound = bind(&Rules { content: Content::Json(parsed), ..Rules::default() });
        for seed in 0..40 {
            let (ids, ended) = answer(&bound, seed * 31 + at as u64, 3000);
            if !ended {
                continue;
            }
            let text = read(&ids, &[], false).content.unwrap();
            let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert!(fits(schema, schema, &value), "{schema}\n{text}");
            complete += 1;
        }
    }
    assert!(complete >= 200, "only {complete} answers ended");
}

#[test]
fn the_check_itself_can_fail() {
    let all = schemas();
    for (schema, value) in [
        (&all[0], json!({ "age": 1, "tags": [] })),
        (&all[0], json!({ "age": 1, "tags": ["a"], "x": 1 })),
        (&all[0], json!({ "age": 1.5, "tags": ["a"] })),
        (&all[1], json!({ "steps": [{ "what": true, "then": { "what": 1, "then": null } }], "final": 1 })),
        (&all[2], json!(1.5)),
        (&all[4], json!({ "b": "x" })),
        (&all[5], json!([[1]])),
    ] {
        assert!(!fits(schema, schema, &value), "{value}");
    }
}

fn tools() -> Vec<Tool> {
    let tool = |name: &str, parameters: Value| Tool {
        name: name.to_owned(),
        description: None,
        parameters: Some(parameters),
        response: None,
    };
    crate::chat::prepare_tools(&[
        tool("get", json!({ "type": "object", "properties": { "city": { "type": "string" } } })),
        tool("get_more", json!({ "type": "object", "properties": {
            "mode": { "enum": ["fast", "slow", ""] }, "Count": { "type": "integer" }, "list": { "type": "array",
            "items": { "type": "number" }, "maxItems": 3 } }, "required": ["mode", "Count"],
            "additionalProperties": false })),
        tool("open", json!({ "type": "object" })),
    ])
    .unwrap()
}

fn lenient() -> Vec<CallRule> {
    tools().iter().map(CallRule::lenient).collect()
}

/// As it was declared, before it is adapted for the renderer.
fn strict() -> (Value, CallRule) {
    let schema = json!({ "type": "object", "properties": {
        "mode": { "enum": ["fast", "slow", ""] }, "Count": { "type": "integer" },
        "where": { "type": "object", "properties": { "x": { "type": "number" }, "y": { "type": "null" } },
            "required": ["x"], "additionalProperties": false },
        "list": { "type": "array", "items": { "type": "number" }, "maxItems": 3 } },
        "required": ["mode", "Count", "where"], "additionalProperties": false });
    let rule = CallRule::strict("get_more", &schema).unwrap();
    for beyond in [json!({ "type": "string" }), json!({ "properties": { "a:b": {} } }), json!({ "not": {} })]
    {
        CallRule::strict("x", &beyond).unwrap_err();
    }
    (schema, rule)
}

const NAMES: [&str; 3] = ["get", "get_more", "open"];

#[test]
fn forced_calls_are_always_well_formed() {
    let mut calls = 0;
    let (schema, strict) = strict();
    let mut rules = lenient();
    rules[1] = strict;
    for choice in [Choice::Required, Choice::Named("get_more".into())] {
        let bound = bind(&Rules {
            calls: rules.clone(),
            choice: choice.clone(),
            single_call: true,
            ..Rules::default()
        });
        for seed in 0..150 {
            let (ids, ended) = answer(&bound, seed, 4000);
            assert_eq!(ids[0], 48, "the call comes first");
            if !ended {
                continue;
            }
            let output = read(&ids, &NAMES, false);
            assert_eq!((output.error, output.tool_calls.len()), (None, 1));
            let call = &output.tool_calls[0];
            assert_eq!(call.recovered, []);
            if call.call.name == "get_more" {
                let value = call.call.arguments.value().unwrap();
                assert!(fits(&schema, &schema, &value), "{value}");
                let keys: Vec<String> =
                    value.as_object().unwrap().keys().map(|key| key.to_lowercase()).collect();
                assert!(keys.is_sorted(), "{keys:?}");
            } else {
                assert_eq!(choice, Choice::Required);
                if call.call.name == "get" {
                    let value = call.call.arguments.value().unwrap();
                    assert!(value.as_object().unwrap().keys().all(|key| key == "city"), "{value}");
                }
            }
            calls += 1;
        }
    }
    assert!(calls >= 200, "{calls}");
}

#[test]
fn nothing_is_bound_before_a_call_opens_and_everything_in_it() {
    let bound = bind(&Rules { calls: lenient(), ..Rules::default() });
    let mut guide = bound.guide(&STOP).unwrap();
    for id in [100, 7, 101, 300, 48] {
        assert!(matches!(guide.allowed().unwrap(), Allowed::All), "before {id}");
        guide.accept(id);
    }
    let Allowed::Only(set) = guide.allowed().unwrap() else { panic!("bound") };
    let mut text = Vec::new();
    tokenizer().encode("call:open{}", &mut text);
    assert!(set.contains(text[0]) && !set.contains(106) && !set.contains(49));
    for &id in &text {
        guide.accept(id);
    }
    let Allowed::Only(set) = guide.allowed().unwrap() else { panic!("bound") };
    assert_eq!((set.len(), set.first()), (1, Some(49)));
    guide.accept(49);
    let Allowed::Only(set) = guide.allowed().unwrap() else { panic!("bound") };
    assert_eq!(*set, [48, 1, 50, 106].into_iter().collect());
    // What makes no sense is told, not ignored.
    guide.accept(48);
    guide.accept(49_000);
    guide.allowed().unwrap_err();
}

#[test]
fn a_thought_comes_first_where_it_may_and_binds_nothing_but_its_end() {
    let schema = Schema::parse(&json!({ "type": "boolean" }), "schema", false).unwrap();
    let rules = Rules {
        content: Content::Json(schema),
        calls: lenient(),
        may_think: true,
        thought_tokens: Some(4),
        ..Rules::default()
    };
    let mut thoughts = 0;
    for seed in 0..60 {
        let (ids, ended) = answer(&bind(&rules), seed, 4000);
        if !ended {
            continue;
        }
        let output = read(&ids, &NAMES, false);
        assert_eq!(output.error, None);
        match output.content.as_deref().map(str::trim) {
            Some("true" | "false") => assert!(output.tool_calls.is_empty()),
            None | Some("") => assert!(!output.tool_calls.is_empty()),
            other => panic!("{other:?}"),
        }
        if let Some(at) = ids.iter().position(|&id| id == 100) {
            let mut label = Vec::new();
            tokenizer().encode("thought\n", &mut label);
            assert_eq!((at, &ids[1..=label.len()]), (0, label.as_slice()));
            let end = ids.iter().position(|&id| id == 101 || id == 48).unwrap();
            assert!(end - label.len() - 1 <= 4, "{ids:?}");
            thoughts += 1;
        }
    }
    assert!(thoughts > 2, "{thoughts}");
    // Inside of one that the prompt opened: the end of the answer must wait.
    let rules = Rules { starts_in_thought: true, thought_tokens: None, ..rules };
    let mut guide = bind(&rules).guide(&STOP).unwrap();
    let Allowed::AllBut(barred) = guide.allowed().unwrap() else { panic!("barred") };
    assert!([1, 106, 50, 100].iter().all(|id| barred.contains(id)) && !barred.contains(&48));
    guide.accept(101);
    let Allowed::Only(set) = guide.allowed().unwrap() else { panic!("bound") };
    assert!(set.contains(48) && !set.contains(100) && !set.contains(106));
}

#[test]
fn without_rules_nothing_is_made() {
    let path = fieldfare_testing::tiny_checkpoint().join("tokenizer.json");
    let fresh = Grammars::new(Arc::new(Tokenizer::from_json(&std::fs::read(path).unwrap()).unwrap()));
    assert!(fresh.bind(&Rules::default()).unwrap().is_none());
    assert!(format!("{fresh:?}").contains("ready: false"));
    let named = Rules { choice: Choice::Named("x".into()), calls: lenient(), ..Rules::default() };
    assert!(fresh.bind(&named).unwrap_err().to_string().starts_with("tool_choice"));
    fresh.bind(&Rules { choice: Choice::Required, ..Rules::default() }).unwrap_err();
}

/// A schema so deep, nested in the way that `wrap` says.
fn deep(levels: usize, wrap: impl Fn(Value) -> Value) -> Value {
    (0..levels).fold(json!({ "type": "null" }), |inner, _| wrap(inner))
}

#[test]
fn hostile_schemas_are_refused_soon() {
    let names = |count: usize| (0..count).map(|i| format!("name {i} {}", "x".repeat(i % 50)));
    let properties: serde_json::Map<String, Value> =
        names(5000).map(|name| (name, json!({ "type": "string" }))).collect();
    let doubling: serde_json::Map<String, Value> = (0..40)
        .map(|i| {
            let next = format!("#/$defs/d{}", i + 1);
            (format!("d{i}"), json!({ "anyOf": [{ "$ref": next }, { "$ref": next }, { "type": "null" }] }))
        })
        .chain([("d40".to_owned(), json!({ "type": "string" }))])
        .collect();
    let hostile = [
        ("deep", deep(100, |inner| json!({ "type": "array", "items": inner }))),
        ("deep anyOf", deep(60, |inner| json!({ "anyOf": [inner, { "type": "string" }] }))),
        ("huge enum", json!({ "enum": names(20_000).collect::<Vec<_>>() })),
        ("one huge constant", json!({ "const": "x".repeat(70_000) })),
        ("1 MB", json!({ "type": "object", "description": "x".repeat(1 << 20) })),
        ("many properties", json!({ "type": "object", "properties": properties })),
        ("itself", json!({ "$ref": "#" })),
        (
            "a ring",
            json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } } }),
        ),
        ("a ring of choices", json!({ "anyOf": [{ "type": "null" }, { "$ref": "#" }] })),
        (
            "no end",
            json!({ "type": "object", "properties": { "next": { "$ref": "#" } }, "required": ["next"] }),
        ),
        ("far away", json!({ "$ref": "http://example.com/schema" })),
        ("nowhere", json!({ "$ref": "#/$defs/none" })),
        ("nothing", json!({ "enum": [] })),
        ("no such type", json!({ "type": "text" })),
        ("false", json!({ "type": "object", "properties": { "a": false } })),
        ("not", json!({ "not": { "type": "string" } })),
        ("too many items", json!({ "type": "array", "minItems": 65 })),
        ("overlap", json!({ "oneOf": [{ "type": "string" }, { "type": "string" }] })),
        ("a tuple", json!({ "type": "array", "prefixItems": [{ "type": "string" }] })),
        ("no list", json!({ "type": "object", "required": "a" })),
        ("closed", json!({ "type": "object", "required": ["a"], "additionalProperties": false })),
        ("no schema", json!([1])),
    ];
    for (name, schema) in &hostile {
        let start = Instant::now();
        let result = Schema::parse(schema, "schema", false).and_then(|schema| {
            grammars().bind(&Rules { content: Content::Json(schema), ..Rules::default() })
        });
        let error = result.map(|_| ()).expect_err(name).to_string();
        assert!(error.starts_with("schema"), "{name}: {error}");
        assert!(start.elapsed() < Duration::from_secs(60), "{name}: {:?}", start.elapsed());
    }
    // What narrows values is taken, unless strictness is asked for.
    for narrow in [json!({ "type": "string", "pattern": "^a" }), json!({ "type": "integer", "minimum": 3 })] {
        Schema::parse(&narrow, "schema", false).unwrap();
        Schema::parse(&narrow, "schema", true).unwrap_err();
    }
    // Large but honest, or doubling on the way: taken or refused, and soon either way; a step stays a step.
    let wide: serde_json::Map<String, Value> =
        names(400).map(|name| (name, json!({ "type": "string" }))).collect();
    for schema in [
        json!({ "$ref": "#/$defs/d0", "$defs": doubling }),
        json!({ "type": "object", "properties": wide }),
        json!({ "enum": names(1000).collect::<Vec<_>>() }),
        json!({ "type": "array", "minItems": 64, "items": { "type": "array", "minItems": 64, "items": { "type": "array",
            "minItems": 64, "items": { "enum": names(500).collect::<Vec<_>>() } } } }),
    ] {
        let start = Instant::now();
        let bound = Schema::parse(&schema, "schema", false).and_then(|parsed| {
            grammars().bind(&Rules { content: Content::Json(parsed), ..Rules::default() })
        });
        if let Ok(Some(bound)) = bound {
            let (ids, ended) = answer(&bound, 3, 60);
            assert!(!ids.is_empty() || ended);
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    }
}

/// Whether the grammar takes all of this text, byte by byte, and then may end.
fn takes(lark: &str, text: &str) -> bool {
    follows(&grammars().0.matcher(lark).unwrap(), text)
}

fn follows(start: &Matcher, text: &str) -> bool {
    let mut matcher = start.clone();
    let mut ids = Vec::new();
    tokenizer().encode(text, &mut ids);
    ids.iter().all(|&id| {
        matcher.compute_mask().is_ok_and(|mask| mask.is_allowed(id)) && matcher.consume_token(id).is_ok()
    }) && matcher.is_accepting().unwrap()
}

#[test]
fn whole_numbers_are_those_of_64_bits() {
    let lark = json(&Schema::parse(&json!({ "type": "integer" }), "schema", false).unwrap());
    let edges = [0, 1, 10, 1 << 53, 999_999_999_999_999_999, 1_234_567_890_123_456_789, i64::MAX, i64::MIN];
    for number in edges.into_iter().flat_map(|number| [number, number.wrapping_neg()]) {
        assert!(takes(&lark, &number.to_string()), "{number}");
    }
    for number in [u64::MAX, u64::MAX - 1, 10_000_000_000_000_000_000, 18_446_744_073_700_000_000] {
        assert!(takes(&lark, &number.to_string()), "{number}");
    }
    for beyond in [
        "18446744073709551616",
        "-9223372036854775809",
        "20000000000000000000",
        "-10000000000000000000",
        "01",
        "-0",
    ] {
        assert!(!takes(&lark, beyond), "{beyond}");
    }
}

#[test]
fn calls_have_the_keys_that_can_be_read_back() {
    let good =
        ["My Notes.md", "Größe", "a+b.txt", "#1", "a/b", "it's", "x", "\u{4e2d}\u{6587}", "a\u{a0}b", "~<|>"];
    let bad = [
        " a",
        "a ",
        "\u{3000}a",
        "a\u{a0}",
        "'a",
        "\"a",
        "a\"b",
        "a=b",
        "a,b",
        "a{b",
        "a]b",
        "a(b",
        "a\tb",
        "a\u{85}b",
        "",
    ];
    let rule = CallRule { name: "f".to_owned(), arguments: ArgumentRule::Open };
    let open = call(&[&rule], 52).0;
    let fixed = |key: &str| CallRule::strict("f", &json!({ "properties": { key: { "type": "null" } } }));
    for key in good {
        let text = format!("call:f{{{key}:null}}");
        assert!(takes(&open, &text), "{key:?}");
        assert!(takes(&call(&[&fixed(key).unwrap()], 52).0, &text), "{key:?}");
    }
    for key in bad {
        assert!(!takes(&open, &format!("call:f{{{key}:null}}")), "{key:?}");
        fixed(key).unwrap_err();
    }
}

#[test]
fn entries_come_in_their_order_with_none_that_must_come_left_out() {
    let names = ["a", "b", "c"];
    // Every row of up to three different keys, `x` being none of those that are named.
    let mut rows: Vec<Vec<&str>> = vec![Vec::new()];
    for length in 1..=3 {
        let longer: Vec<Vec<&str>> = rows
            .iter()
            .filter(|row| row.len() + 1 == length)
            .flat_map(|row| {
                ["a", "b", "c", "x"].into_iter().filter(|key| !row.contains(key)).map(|key| {
                    let mut row = row.clone();
                    row.push(key);
                    row
                })
            })
            .collect();
        rows.extend(longer);
    }
    assert_eq!(rows.len(), 1 + 4 + 12 + 24);
    for (must, others) in (0..8).flat_map(|must| [(must, false), (must, true)]) {
        let required: Vec<&str> =
            names.iter().enumerate().filter(|(at, _)| must >> at & 1 == 1).map(|(_, name)| *name).collect();
        let schema = json!({ "type": "object", "properties": { "a": { "type": "null" }, "b": { "type": "null" },
            "c": { "type": "null" } }, "required": required, "additionalProperties": others });
        let parsed = Schema::parse(&schema, "schema", false).unwrap();
        let in_json = grammars().0.matcher(&json(&parsed)).unwrap();
        let rule = CallRule { name: "f".to_owned(), arguments: ArgumentRule::Fits(parsed) };
        let in_call = grammars().0.matcher(&call(&[&rule], 52).0).unwrap();
        for row in &rows {
            let fits = row.is_sorted()
                && required.iter().all(|name| row.contains(name))
                && (others || !row.contains(&"x"));
            for (comma, colon) in [(",", ":"), (", ", ": "), (",\n  ", ": ")] {
                let pairs: Vec<String> = row.iter().map(|key| format!("\"{key}\"{colon}null")).collect();
                let text = format!("{{{}}}", pairs.join(comma));
                assert_eq!(follows(&in_json, &text), fits, "{text} of {schema}");
            }
            let pairs: Vec<String> = row.iter().map(|key| format!("{key}:null")).collect();
            let text = format!("call:f{{{}}}", pairs.join(","));
            assert_eq!(follows(&in_call, &text), fits, "{text} of {schema}");
        }
        let spaced = format!("{{ {} }}", names.map(|name| format!("\"{name}\":null")).join(", "));
        assert!(
            follows(&in_json, &spaced) && !follows(&in_json, "{,}") && !follows(&in_json, "{\"a\":null,}")
        );
    }
}

#[test]
fn entries_of_large_objects_follow_the_same_rules() {
    for (count, must, others) in [(33, vec![], false), (70, vec![7, 40, 41], true), (64, vec![0, 63], false)]
    {
        let name = |at: usize| if at == count { "z".to_owned() } else { format!("k{at:02}") };
        let properties: serde_json::Map<String, Value> =
            (0..count).map(|at| (name(at), json!({ "type": "null" }))).collect();
        let required: Vec<String> = must.iter().map(|&at| name(at)).collect();
        let schema =
            json!({ "properties": properties, "required": required, "additionalProperties": others });
        let start = grammars().0.matcher(&json(&Schema::parse(&schema, "schema", false).unwrap())).unwrap();
        let mut noise = Noise(0x5eed + count as u64);
        let mut taken = 0;
        for round in 0..60 {
            // Some of them, more and more often all that must be there, and now and then one too far ahead.
            let mut row: Vec<usize> =
                (0..count + usize::from(others)).filter(|_| noise.next().is_multiple_of(5)).collect();
            if round % 4 != 0 {
                row.extend(&must);
                row.sort_unstable();
                row.dedup();
            }
            if round % 3 == 0 && row.len() > 1 {
                let at = (noise.next() % (row.len() as u64 - 1)) as usize;
                row.swap(at, at + 1);
            }
            let fits = row.is_sorted() && must.iter().all(|at| row.contains(at));
            let pairs: Vec<String> = row.iter().map(|&at| format!("\"{}\":null", name(at))).collect();
            let text = format!("{{{}}}", pairs.join(", "));
            assert_eq!(follows(&start, &text), fits, "{text}");
            taken += usize::from(fits);
        }
        assert!((10..55).contains(&taken), "{taken}");
    }
}

#[test]
fn many_optional_entries_are_followed_to_the_end() {
    let properties = |count: usize| -> serde_json::Map<String, Value> {
        (0..count).map(|i| (format!("p{i}"), json!({ "type": "null" }))).collect()
    };
    let parse = |schema: Value| Schema::parse(&schema, "schema", false);
    let error = parse(json!({ "properties": properties(1500) })).unwrap_err().to_string();
    assert!(error.starts_with("schema") && error.contains("properties"), "{error}");
    let parsed = parse(json!({ "properties": properties(500) })).unwrap();
    let lark = json(&parsed);
    for text in ["{}", "{ \"p0\": null }", "{\"p7\":null,\n  \"p400\":null, \"p499\":null\n}"] {
        assert!(takes(&lark, text), "{text}");
    }
    let all = |count: usize| -> String {
        let pairs: Vec<String> = (0..count).map(|i| format!("\"p{i}\":null")).collect();
        pairs.join(",")
    };
    assert!(takes(&lark, &format!("{{{}}}", all(500))));
    // One behind the other, they lead deeper than the stack of a thread usually goes.
    let nested = (0..4).fold(json!({ "type": "null" }), |inner, _| {
        let mut properties = properties(499);
        properties.insert("q".to_owned(), inner);
        json!({ "properties": properties })
    });
    assert!(takes(&json(&parse(nested).unwrap()), "{\"q\":{\"q\":{}}}"));
    // And as many branches.
    let branches: Vec<Value> = (0..1990).map(|i| json!({ "const": i })).collect();
    let parsed = Schema::parse(&json!({ "anyOf": branches }), "schema", false).unwrap();
    assert!(takes(&json(&parsed), "1234"));
}

#[test]
fn branches_are_compared_within_bounds() {
    let list = |from: usize, to: usize| (from..to).collect::<Vec<_>>();
    let branch = |target: &str, count: usize| {
        let names: Vec<String> = (0..count).map(|i| format!("p{i}")).collect();
        let properties: serde_json::Map<String, Value> =
            names.iter().map(|name| (name.clone(), json!({ "$ref": target }))).collect();
        json!({ "type": "object", "properties": properties, "required": names })
    };
    let parse = |a: Value, b: Value, count: usize| {
        let schema = json!({ "oneOf": [branch("#/$defs/a", count), branch("#/$defs/b", count)],
            "$defs": { "a": { "enum": a }, "b": { "enum": b } } });
        let start = Instant::now();
        let result = Schema::parse(&schema, "schema", false);
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
        result.map(|_| ()).map_err(|error| error.to_string())
    };
    let huge = parse(json!(list(0, 9000)), json!(list(9000, 18_000)), 1500).unwrap_err();
    assert!(huge.contains("overlap"), "{huge}");
    // Few constants, but behind many references: either answer is right, and soon.
    let long = |c: &str| json!([c.repeat(50_000)]);
    let long = parse(long("a"), long("b"), 1500).unwrap_err();
    assert!(long.contains("overlap"), "{long}");
    // What is small is compared, values as values.
    parse(json!(list(0, 64)), json!(list(64, 128)), 20).unwrap();
    parse(json!([{ "a": 1, "b": 2 }]), json!([{ "b": 2, "a": 1 }]), 1).unwrap_err();
    parse(json!(["x", 1]), json!([1, "y"]), 3).unwrap_err();
    let many: Vec<Value> =
        (0..64).map(|i| json!({ "properties": { "kind": { "const": i } }, "required": ["kind"] })).collect();
    Schema::parse(&json!({ "oneOf": many }), "schema", false).unwrap();
}

#[test]
fn few_keys_come_once_each_and_only_such_calls_are_told() {
    let keys = |count: usize| ArgumentRule::Keys((0..count).map(|at| format!("k{at}")).collect());
    let rule = |name: &str, arguments| CallRule { name: name.to_owned(), arguments };
    let open = json!({ "properties": { "a": { "type": "null" } }, "additionalProperties": true });
    let rules = [
        rule("six", keys(6)),
        rule("seven", keys(7)),
        rule("one", keys(1)),
        rule("any", ArgumentRule::Open),
        strict().1,
        CallRule::strict("others", &open).unwrap(),
    ];
    let (lark, told) = call(&rules.iter().collect::<Vec<_>>(), 52);
    assert_eq!(told, ["six", "one", "get_more"]);
    for (text, fits) in [
        ("call:six{}", true),
        ("call:six{k3:1,k0:2,k5:[]}", true),
        ("call:six{k5:1,k4:1,k3:1,k2:1,k1:1,k0:1}", true),
        ("call:six{k5:1,k4:1,k5:1}", false),
        ("call:six{k5:1,}", false),
        ("call:six{k0:1,k1:1,k2:1,k3:1,k4:1,k5:1,k0:1}", false),
        ("call:one{k0:null}", true),
        ("call:one{k0:null,k0:null}", false),
        ("call:seven{k0:1,k6:2,k0:3}", true),
    ] {
        assert_eq!(takes(&lark, text), fits, "{text}");
    }
    // Many tools do not make the grammar grow without end.
    let many: Vec<CallRule> = (0..256).map(|at| rule(&format!("t{at}"), keys(6))).collect();
    let (lark, told) = call(&many.iter().collect::<Vec<_>>(), 52);
    assert!(told.len() >= 8 && told.len() < 256, "{}", told.len());
    assert!(takes(&lark, "call:t0{k5:1}") && takes(&lark, "call:t255{k5:1,k5:2}"));
}
