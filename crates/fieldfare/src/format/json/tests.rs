use super::*;
use crate::Result;
use proptest::prelude::*;

fn read(text: &str) -> Result<Value> {
    parse("doc", text.as_bytes(), 1 << 20)
}

#[test]
fn values_are_read() {
    let value = read(
        r#" {"a":[1,-2,3.5,1e2,"x\u00e9\ud83d\ude00\n"],"b":{"c":null,"d":true},"e":18446744073709551615} "#,
    )
    .unwrap();
    let a = value.get("a").and_then(Value::as_array).unwrap();
    assert_eq!(a[0].as_int(), Some(1));
    assert_eq!(a[1].as_u64(), None);
    assert_eq!(a[2].as_int(), None);
    assert_eq!(a[3].as_int(), Some(100));
    assert_eq!(a[4].as_str(), Some("x\u{e9}\u{1f600}\n"));
    assert_eq!(value.get("b").unwrap().get("c"), None, "null counts as absent");
    assert_eq!(value.get("e").unwrap().as_u64(), Some(u64::MAX));
}

#[test]
fn malformed_text_is_refused() {
    for bad in [
        "",
        "{",
        "[1,]",
        "{\"a\":1,}",
        "{'a':1}",
        "01",
        "-",
        "1.",
        "1e",
        "+1",
        "nul",
        "NaN",
        "\"\u{1}\"",
        "\"\\x\"",
        "\"\\ud800\"",
        "\"\\ud800\\u0041\"",
        "\"\\u12\"",
        "1 2",
        "{\"a\" 1}",
        "\"",
        "\"\\",
        "1e999",
        "[",
        "{\"a\"",
        "\"\\u00e\u{e9}\"",
    ] {
        assert!(read(bad).is_err(), "{bad:?}");
    }
    let many: String = (0..40).map(|i| format!("\"k{}\":0,", i % 39)).collect();
    for twice in [
        r#"{"a":1,"a":2}"#.to_owned(),
        r#"{"a":1,"\u0061":2}"#.to_owned(),
        format!("{{{}}}", &many[..many.len() - 1]),
    ] {
        let message = read(&twice).unwrap_err().to_string();
        assert!(message.contains("duplicate key"), "{message}");
    }
    assert!(read(&"[".repeat(100_000)).unwrap_err().to_string().contains("recursion limit"));
    let wide = format!("[{}0]", "0,".repeat(1 << 19));
    assert!(parse("doc", wide.as_bytes(), 4 << 20).unwrap_err().to_string().contains("too many values"));
    assert!(parse("doc", b"\xff", 9).is_err());
    let keys = |count: usize| (0..count).map(|i| format!("\"{i}\":0,")).collect::<String>() + "\"z\":0";
    let skipped = |text: &str| {
        let text = format!("{{\"skipped\":{text}}}");
        parse_wanted("doc", text.as_bytes(), 16 << 20, &Wanted { containers: &[], text: "" }).map(drop)
    };
    let message = skipped(&format!("{{{}}}", keys((1 << 19) + 20))).unwrap_err().to_string();
    assert!(message.contains("too many keys"), "{message}");
    // One object after another gives its keys back.
    skipped(&format!("[{{{0}}},{{{0}}},{{{0}}}]", keys(1 << 18))).unwrap();
    assert!(parse("doc", b"[1, 2]", 5).unwrap_err().to_string().contains("limit of 5"));
    assert!(parse("doc", b"[1,2]", 5).is_ok(), "exactly at the cap");
}

#[test]
fn keys_sort_as_upstream_does() {
    let mut keys = vec![
        "packed_experts/layer_10.bin",
        "expertStride",
        "files",
        "expertsPerLayer",
        "packed_experts/layer_09.bin",
        "packed_experts/layer_2.bin",
        "tokenizer/tokenizer_config.json",
        "tokenizer/tokenizer.json",
        "arch",
    ];
    keys.sort_by(|a, b| compare_keys(a, b));
    assert_eq!(
        keys,
        [
            "arch",
            "expertsPerLayer",
            "expertStride",
            "files",
            "packed_experts/layer_2.bin",
            "packed_experts/layer_09.bin",
            "packed_experts/layer_10.bin",
            "tokenizer/tokenizer.json",
            "tokenizer/tokenizer_config.json",
        ]
    );
    assert_eq!(compare_keys("A", "a"), std::cmp::Ordering::Less, "ties go by the raw text");
}

#[test]
fn canonical_form() {
    let value = read(r#"{"b":[1.0,0.25],"a":"/\u00e9\"\\\u0001","e":{},"l":[]}"#).unwrap();
    let want = "{\n  \"a\" : \"/\u{e9}\\\"\\\\\\u0001\",\n  \"b\" : [\n    1,\n    0.25\n  ],\n  \"e\" : {\n\n  },\n  \"l\" : [\n\n  ]\n}";
    assert_eq!(canonical(&value), want);
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::String),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::btree_map(".{0,4}", inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn canonical_text_reads_back(value in values()) {
        let text = canonical(&value);
        prop_assert_eq!(canonical(&read(&text).unwrap()), text);
    }

    #[test]
    fn any_text_is_refused_or_read(text in ".{0,64}", bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = read(&text);
        let _ = parse("doc", &bytes, 1 << 20);
    }
}

/// Replaces (or with `None` removes) the member at a path of keys and indices; for tests that damage a document.
pub(in crate::format) fn edit(value: &mut Value, path: &str, new: Option<Value>) {
    let (head, rest) = path.split_once('|').map_or((path, None), |(head, rest)| (head, Some(rest)));
    match (value, rest) {
        (Value::Array(elements), Some(rest)) => {
            edit(&mut elements[head.parse::<usize>().unwrap()], rest, new);
        }
        (Value::Array(elements), None) => {
            let at = head.parse::<usize>().unwrap();
            elements.splice(at..(at + 1).min(elements.len()), new);
        }
        (Value::Object(members), Some(rest)) => {
            edit(&mut members.iter_mut().find(|(key, _)| key == head).unwrap().1, rest, new);
        }
        (Value::Object(members), None) => {
            members.retain(|(key, _)| key != head);
            members.extend(new.map(|value| (head.to_owned(), value)));
        }
        (other, _) => panic!("{path}: {other:?} has no members"),
    }
}
