//! Tests of the whole room: recorded cases, the `tokenizers` library as oracle, hostile files, the cache.

mod cached;
mod hostile;
mod oracle;

use super::*;
use serde_json::Value;
use std::sync::OnceLock;

fn tiny_json() -> &'static [u8] {
    static JSON: OnceLock<Vec<u8>> = OnceLock::new();
    JSON.get_or_init(|| std::fs::read(fieldfare_testing::tiny_checkpoint().join("tokenizer.json")).unwrap())
}

fn tiny() -> &'static Tokenizer {
    static TINY: OnceLock<Tokenizer> = OnceLock::new();
    TINY.get_or_init(|| Tokenizer::from_json(tiny_json()).unwrap())
}

/// The real vocabulary, or a printed line.
fn real() -> Option<&'static Tokenizer> {
    static REAL: OnceLock<Option<Tokenizer>> = OnceLock::new();
    let tokenizer = REAL.get_or_init(|| {
        let path = fieldfare_testing::gemma4_tokenizer()?;
        Some(Tokenizer::open(&path, None).unwrap())
    });
    if tokenizer.is_none() {
        eprintln!("skipped: no real tokenizer.json (scripts/make_gemma4_tokenizer.py makes it)");
    }
    tokenizer.as_ref()
}

fn cases(file: &str) -> Vec<Value> {
    let bytes = std::fs::read(fieldfare_testing::fixtures().join("chat").join(file)).unwrap();
    let mut value: Value = serde_json::from_slice(&bytes).unwrap();
    let Value::Array(cases) = value["cases"].take() else { panic!("no cases in {file}") };
    cases
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn encode(tokenizer: &Tokenizer, text: &str, control: bool) -> Vec<u32> {
    let mut out = Vec::new();
    if control {
        tokenizer.encode_with_control(text, &mut out);
    } else {
        tokenizer.encode(text, &mut out);
    }
    out
}

#[test]
fn recorded_token_cases() {
    let Some(tokenizer) = real() else { return };
    let cases = cases("token-cases.json");
    assert_eq!(cases.len(), 85);
    for case in &cases {
        let text = case["text"].as_str().unwrap();
        let control = case["parse_control_tokens"].as_bool().unwrap();
        assert_eq!(encode(tokenizer, text, control), ids(&case["token_ids"]), "{}", case["id"]);
    }
}

#[test]
fn recorded_detok_cases() {
    let Some(tokenizer) = real() else { return };
    let cases = cases("detok-cases.json");
    assert_eq!(cases.len(), 23);
    for case in &cases {
        let skip = case["skip_specials"].as_bool().unwrap();
        let mut stream = tokenizer.stream(skip, case["barriers"].as_bool().unwrap());
        let mut all = String::new();
        for (id, wanted) in ids(&case["token_ids"]).into_iter().zip(case["deltas"].as_array().unwrap()) {
            let mut delta = String::new();
            stream.push(id, &mut delta);
            assert_eq!(delta, wanted.as_str().unwrap(), "{} at {id}", case["id"]);
            all.push_str(&delta);
        }
        let mut tail = String::new();
        stream.finish(&mut tail);
        assert_eq!(tail, case["tail"].as_str().unwrap(), "{}", case["id"]);
        assert_eq!(all + &tail, case["text"].as_str().unwrap(), "{}", case["id"]);
    }
}

#[test]
fn the_tiny_fixture_loads() {
    let tokenizer = tiny();
    assert_eq!(tokenizer.vocab_size(), 512);
    assert_eq!(tokenizer.id_of("<|turn>"), Some(tokenizer.control().turn_open));
    assert!(tokenizer.is_control(tokenizer.control().quote));
    assert!(!tokenizer.is_control(tokenizer.id_of("a").unwrap()));
    assert!(tokenizer.control().media().is_empty());
    let text = "the cat and\nthe\u{1F980} dog";
    assert_eq!(tokenizer.decode(&encode(tokenizer, text, false), true), text);
    assert_eq!(tokenizer.piece(512), None);
    assert_eq!(tokenizer.piece(u32::MAX), None);
}
