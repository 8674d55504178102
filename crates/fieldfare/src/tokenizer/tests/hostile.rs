//! Files that are damaged, or ask for what is not done: a typed error each, and never a panic.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn document() -> Value {
    serde_json::from_slice(tiny_json()).unwrap()
}

/// Loads the tiny document after a change; the error's text.
fn refusal(change: impl FnOnce(&mut Value)) -> String {
    let mut document = document();
    change(&mut document);
    let bytes = serde_json::to_vec(&document).unwrap();
    match Tokenizer::from_json(&bytes) {
        Ok(_) => panic!("the document loads"),
        Err(error @ (Error::Damaged { .. } | Error::Unsupported(_))) => error.to_string(),
        Err(error) => panic!("another kind of error: {error}"),
    }
}

fn refused_with(wanted: &str, change: impl FnOnce(&mut Value)) {
    let message = refusal(change);
    assert!(message.contains("tokenizer/tokenizer.json: "), "{message}");
    assert!(message.contains(wanted), "{message:?} lacks {wanted:?}");
}

#[test]
fn every_cut_of_the_file_is_damage() {
    let json = tiny_json();
    for end in (0..json.len() - 2).step_by(61) {
        let error = Tokenizer::from_json(&json[..end]).unwrap_err();
        assert!(matches!(&error, Error::Damaged { file, .. } if file.starts_with(FILE)), "{end}: {error}");
    }
    let error = Tokenizer::from_json(&[json, b"{}"].concat()).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

#[test]
fn missing_and_mistyped_parts() {
    for part in ["added_tokens", "model", "normalizer", "decoder"] {
        refused_with(part, |d| drop(d.as_object_mut().unwrap().shift_remove(part)));
        if part != "model" {
            assert!(!refusal(|d| d[part] = json!(17)).is_empty());
        }
        assert!(!refusal(|d| d[part] = json!("text")).is_empty());
    }
    for part in ["vocab", "merges", "byte_fallback"] {
        refused_with(part, |d| drop(d["model"].as_object_mut().unwrap().shift_remove(part)));
        assert!(!refusal(|d| d["model"][part] = json!(17)).is_empty());
        assert!(!refusal(|d| d["model"][part] = json!(null)).is_empty());
    }
    assert!(Tokenizer::from_json(b"").is_err());
    assert!(Tokenizer::from_json(b"[]").is_err());
    assert!(Tokenizer::from_json(b"{}").is_err());
    assert!(Tokenizer::from_json(&[0xFF; 100]).is_err());
}

#[test]
fn ids() {
    let vocab = |d: &mut Value, piece: &str, id: Value| d["model"]["vocab"][piece] = id;
    refused_with("id 107 is given to \"\\n\" and \"a\"", |d| vocab(d, "a", json!(107)));
    refused_with("too large", |d| vocab(d, "a", json!(1_u64 << 20)));
    refused_with("too large", |d| vocab(d, "a", json!(u64::MAX)));
    assert!(!refusal(|d| vocab(d, "a", json!(-1))).is_empty());
    assert!(!refusal(|d| vocab(d, "a", json!(1.5))).is_empty());
    assert!(!refusal(|d| vocab(d, "a", json!("1"))).is_empty());
    assert!(!refusal(|d| vocab(d, "", json!(511))).is_empty());
    refused_with("added_tokens[1]", |d| d["added_tokens"][1]["id"] = json!(0));
    refused_with("added_tokens[1]", |d| d["added_tokens"][1]["content"] = json!("<other>"));
    refused_with("added_tokens[1]", |d| d["added_tokens"][1]["content"] = json!(""));
    refused_with("too large", |d| d["added_tokens"][1]["id"] = json!(u64::MAX));
    // The same text under a new id is one text with two ids.
    refused_with("<eos>", |d| d["added_tokens"][1]["id"] = json!(700));
    let twice = String::from_utf8(tiny_json().to_vec()).unwrap().replacen(
        "\"<mask>\": 4",
        "\"<mask>\": 4, \"<mask>\": 900",
        1,
    );
    assert_ne!(twice.as_bytes(), tiny_json());
    let message = Tokenizer::from_json(twice.as_bytes()).unwrap_err().to_string();
    assert!(message.contains("\"<mask>\" has ids 4 and 900"), "{message}");
}

#[test]
fn merges() {
    let merge = |d: &mut Value, merge: Value| d["model"]["merges"][3] = merge;
    refused_with("model.merges[3]: \"\u{e9}\" is not in model.vocab", |d| {
        merge(d, json!(["\u{e9}", "a"]));
    });
    refused_with("model.merges[3]: \"az\" is not in model.vocab", |d| merge(d, json!(["a", "z"])));
    for bad in [
        json!([]),
        json!(["a"]),
        json!(["a", "b", "c"]),
        json!(["a", 1]),
        json!(["", "a"]),
        json!("ab"),
        json!("a b c"),
    ] {
        assert!(!refusal(|d| merge(d, bad)).is_empty());
    }
    assert!(!refusal(|d| merge(d, json!(null))).is_empty());
}

#[test]
fn what_is_not_done_is_named() {
    refused_with("normalizer: \"NFC\"", |d| d["normalizer"] = json!({"type": "NFC"}));
    refused_with("normalizer: null", |d| d["normalizer"] = json!(null));
    refused_with("pre_tokenizer: \"ByteLevel\"", |d| d["pre_tokenizer"] = json!({"type": "ByteLevel"}));
    refused_with("decoder: \"Fuse\"", |d| d["decoder"] = json!({"type": "Fuse"}));
    refused_with("truncation", |d| d["truncation"] = json!({"max_length": 5}));
    refused_with("padding", |d| d["padding"] = json!({}));
    refused_with("model.type: \"Unigram\"", |d| d["model"]["type"] = json!("Unigram"));
    refused_with("dropout", |d| d["model"]["dropout"] = json!(0.1));
    refused_with("ignore_merges", |d| d["model"]["ignore_merges"] = json!(true));
    refused_with("end_of_word_suffix", |d| d["model"]["end_of_word_suffix"] = json!("</w>"));
    refused_with("byte_fallback", |d| d["model"]["byte_fallback"] = json!(false));
    for flag in ["single_word", "lstrip", "rstrip", "normalized"] {
        refused_with(flag, |d| d["added_tokens"][5][flag] = json!(true));
    }
    refused_with("special: false", |d| d["added_tokens"][5]["special"] = json!(false));
    refused_with("no control token <|turn>", |d| {
        d["added_tokens"].as_array_mut().unwrap().retain(|token| token["content"] != "<|turn>");
    });
    refused_with("no byte token <0x41>", |d| {
        let id = d["model"]["vocab"].as_object_mut().unwrap().shift_remove("<0x41>").unwrap();
        d["model"]["vocab"]["<0x4l>"] = id;
    });
}

#[test]
fn deep_nesting_and_long_lists_end_early() {
    let deep = |field: &str| format!("{{\"{field}\":{}", "[".repeat(200_000));
    for field in ["model", "added_tokens", "anything", "normalizer"] {
        assert!(matches!(Tokenizer::from_json(deep(field).as_bytes()), Err(Error::Damaged { .. })));
    }
    let steps = vec![json!({"type": "Fuse"}); 5000];
    assert!(refusal(|d| d["decoder"]["decoders"] = json!(steps)).contains("more than 16"));
    let error = Tokenizer::from_json(&vec![b' '; MAX_FILE as usize + 1]).unwrap_err();
    assert!(error.to_string().contains("limit"), "{error}");
}

/// Texts chosen so that they meet in one place of the hash table.
#[test]
fn entries_that_collide_are_refused() {
    let mask = 4_095;
    let texts =
        (0_u64..).map(|i| format!("x{i:x}")).filter(|text| table::hash_text(text.as_bytes()) & mask == 7);
    refused_with("model.vocab: its entries collide", |d| {
        for (id, text) in (512..1_512).zip(texts) {
            d["model"]["vocab"][text] = json!(id);
        }
    });
}

/// Tokens with spaces inside are looked for at every space of a text, so a long one must not be.
#[test]
fn a_long_token_with_spaces_inside_costs_nothing() {
    let mut document = document();
    let (mut piece, mut id) = ("a\u{2581}".to_owned(), 512);
    let mut merge = vec![json!(["a", "\u{2581}"])];
    document["model"]["vocab"][&piece] = json!(id);
    for _ in 0..14 {
        merge.push(json!([piece, piece]));
        piece = piece.repeat(2);
        id += 1;
        document["model"]["vocab"][&piece] = json!(id);
    }
    document["model"]["merges"] = json!(merge);
    let tokenizer = Tokenizer::from_json(&serde_json::to_vec(&document).unwrap()).unwrap();
    assert!(!tokenizer.table.view().exceptions_known);
    let text = "a ".repeat(1 << 14);
    let ids = encode(&tokenizer, &text, false);
    assert_eq!((ids.len(), ids[0]), (1, id));
    assert_eq!(tokenizer.decode(&ids, true), text);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Any bytes changed: an answer, whichever, and what loads also works.
    #[test]
    fn changed_bytes_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        text in "\\PC{0,30}",
    ) {
        let mut bytes = tiny_json().to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        match Tokenizer::from_json(&bytes) {
            Ok(tokenizer) => {
                let ids = encode(&tokenizer, &text, true);
                let _ = tokenizer.decode(&ids, false);
            }
            Err(error) => prop_assert!(matches!(error, Error::Damaged { .. } | Error::Unsupported(_)), "{error}"),
        }
    }
}
