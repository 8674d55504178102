//! The same ids and the same text as the `tokenizers` library.

use super::*;
use proptest::prelude::*;
use serde_json::json;
use std::collections::HashSet;
use tokenizers::Tokenizer as Library;

/// The library's two ways of encoding: special tokens as text, and recognised.
struct Oracle {
    plain: Library,
    control: Library,
}

impl Oracle {
    fn new(json: &[u8]) -> Self {
        let control = Library::from_bytes(json).unwrap();
        let mut plain = control.clone();
        plain.set_encode_special_tokens(true);
        Self { plain, control }
    }

    fn encode(&self, text: &str, control: bool) -> Vec<u32> {
        let library = if control { &self.control } else { &self.plain };
        library.encode(text, false).unwrap().get_ids().to_vec()
    }

    fn decode(&self, ids: &[u32], skip: bool) -> String {
        self.control.decode(ids, skip).unwrap()
    }

    fn agrees(&self, tokenizer: &Tokenizer, text: &str) {
        for control in [false, true] {
            assert_eq!(
                encode(tokenizer, text, control),
                self.encode(text, control),
                "{text:?} control {control}"
            );
        }
    }
}

fn tiny_oracle() -> &'static Oracle {
    static ORACLE: OnceLock<Oracle> = OnceLock::new();
    ORACLE.get_or_init(|| Oracle::new(tiny_json()))
}

fn real_oracle() -> Option<(&'static Tokenizer, &'static Oracle)> {
    static ORACLE: OnceLock<Oracle> = OnceLock::new();
    let tokenizer = real()?;
    let path = fieldfare_testing::gemma4_tokenizer()?;
    Some((tokenizer, ORACLE.get_or_init(|| Oracle::new(&std::fs::read(path).unwrap()))))
}

/// Strings that reach the corners: any Unicode, runs of one character, pieces of control tokens, the characters
/// around which text is cut.
fn text() -> impl Strategy<Value = String> {
    let fragment = prop_oneof![
        4 => any::<char>().prop_map(String::from),
        4 => "[ -~]{1,12}",
        3 => "[a-z]{1,60}",
        2 => ("[ \n\t\r\u{2581}a>.-]", 1_usize..70).prop_map(|(c, count)| c.repeat(count)),
        4 => prop::sample::select(vec![
            "<", ">", "|", "</", "> </", ">\u{2581}</", ">  </", " </div>", "<|turn>", "<turn|>", "<|tool", "_call>",
            "<|\"|>", "<bos>", "<eos", "<|channel>thought\n", "<channel|>", "<unused0>", "<0x41>", "<table>", "\n", "\n\n",
            " ", "  ", "\u{2581}", " the", "Hello", "'s", "\u{1F980}", "\u{1F468}\u{200D}\u{1F469}", "\u{0}", "\u{FFFD}",
            "e\u{301}", "\u{E9}", "\u{4E2D}\u{6587}", "\u{0928}\u{092E}", "\u{0E2B}\u{0E49}", "<|image|>", "<|think|>",
        ]).prop_map(String::from),
        2 => prop::collection::vec(prop::char::range('\u{4E00}', '\u{9FFF}'), 1..20).prop_map(|c| c.into_iter().collect()),
    ];
    prop::collection::vec(fragment, 0..12).prop_map(|fragments| fragments.concat())
}

proptest! {
    #[test]
    fn tiny_vocabulary(text in text()) {
        tiny_oracle().agrees(tiny(), &text);
    }

    #[test]
    fn tiny_decoding(ids in prop::collection::vec(0_u32..520, 0..40), skip in any::<bool>()) {
        prop_assert_eq!(tiny().decode(&ids, skip), tiny_oracle().decode(&ids, skip));
    }

    #[test]
    fn real_vocabulary(text in text()) {
        if let Some((tokenizer, oracle)) = real_oracle() {
            oracle.agrees(tokenizer, &text);
        }
    }

    /// Token texts in a row find merges that random letters do not.
    #[test]
    fn real_pieces(ids in prop::collection::vec(0_u32..262_144, 0..20)) {
        if let Some((tokenizer, oracle)) = real_oracle() {
            let text: String = ids.iter().filter_map(|&id| tokenizer.piece(id)).collect();
            oracle.agrees(tokenizer, &text);
        }
    }

    #[test]
    fn real_decoding(
        ids in prop::collection::vec(prop_oneof![0_u32..262_150, 230_u32..500, 0_u32..110], 0..40),
        skip in any::<bool>(),
    ) {
        if let Some((tokenizer, oracle)) = real_oracle() {
            prop_assert_eq!(tokenizer.decode(&ids, skip), oracle.decode(&ids, skip));
        }
    }
}

#[test]
fn around_every_control_token() {
    let Some((tokenizer, oracle)) = real_oracle() else { return };
    let controls: Vec<&str> = (0..tokenizer.vocab_size() as u32)
        .filter(|&id| tokenizer.is_control(id))
        .filter_map(|id| tokenizer.piece(id))
        .collect();
    assert_eq!(controls.len(), 24);
    for (index, control) in controls.iter().enumerate() {
        let next = controls[(index + 1) % controls.len()];
        let (cut, last) = control.split_at(control.len() - 1);
        for text in [
            (*control).to_owned(),
            format!("a{control}b"),
            format!(" {control} {next}\n"),
            format!("{control}{control}{next}"),
            format!("<{control}>"),
            format!("{cut} {last}"),
            format!("{cut}{control}{last}"),
            cut.to_owned(),
            control[1..].to_owned(),
            control.replace('|', "||"),
            control.to_uppercase(),
        ] {
            oracle.agrees(tokenizer, &text);
            let own = encode(tokenizer, &text, false);
            assert!(own.iter().all(|&id| !tokenizer.is_control(id)), "{text:?} made a control token");
        }
    }
}

#[test]
fn documents() {
    let Some((tokenizer, oracle)) = real_oracle() else { return };
    for file in
        ["chat/README.md", "chat/client-requests.json", "chat/token-cases.json", "tiny-gemma4-a/README.md"]
    {
        let text = std::fs::read_to_string(fieldfare_testing::fixtures().join(file)).unwrap();
        for stretch in text.split_inclusive('\n').collect::<Vec<_>>().chunks(40) {
            oracle.agrees(tokenizer, &stretch.concat());
        }
    }
}

#[test]
fn long_stretches() {
    let Some((tokenizer, oracle)) = real_oracle() else { return };
    let letters: String = (0..3000_u32).map(|i| char::from(b'a' + (i * i % 7919 % 26) as u8)).collect();
    for text in [
        "a".repeat(3000),
        "ab".repeat(1500),
        "-=".repeat(1500),
        "> ".repeat(1000),
        "> </".repeat(500),
        letters,
    ] {
        oracle.agrees(tokenizer, &text);
    }
}

/// A small vocabulary grown by random merges: of characters, of bytes, with repeated pairs, with U+2581 in every
/// place, in the new or the old way of writing merges.
fn grown(steps: &[(usize, usize)], with_bytes: bool, old_merges: bool) -> Vec<u8> {
    let mut document: Value = serde_json::from_slice(tiny_json()).unwrap();
    let mut tokens: Vec<String> =
        ["a", "b", "<", ">", "/", "\u{2581}", "\u{E9}", "\n"].map(String::from).into();
    if with_bytes {
        tokens.extend(["<0xC3>", "<0xA8>", "<0x0D>"].map(String::from));
    }
    let mut merges = Vec::new();
    for &(left, right) in steps {
        let (left, right) = (tokens[left % tokens.len()].clone(), tokens[right % tokens.len()].clone());
        let result = left.clone() + &right;
        merges.push(if old_merges { json!(format!("{left} {right}")) } else { json!([left, right]) });
        if !tokens.contains(&result) {
            tokens.push(result);
        }
    }
    let old = document["model"]["vocab"].as_object().unwrap().clone();
    let mut vocab = serde_json::Map::new();
    for (piece, id) in old {
        if piece.starts_with("<0x") || (piece.starts_with('<') && id.as_u64().unwrap() < 107) {
            vocab.insert(piece, id);
        }
    }
    let known: HashSet<String> = vocab.keys().cloned().collect();
    for (index, token) in tokens.into_iter().filter(|token| !known.contains(token)).enumerate() {
        // Leaves ids out, as a file may.
        vocab.insert(token, json!(600 + 3 * index));
    }
    document["model"]["vocab"] = Value::Object(vocab);
    document["model"]["merges"] = Value::Array(merges);
    serde_json::to_vec(&document).unwrap()
}

proptest! {
    #[test]
    fn grown_vocabularies(
        steps in prop::collection::vec((0_usize..1000, 0_usize..1000), 0..100),
        with_bytes in any::<bool>(),
        old_merges in any::<bool>(),
        texts in prop::collection::vec("[ab<>/ \u{2581}\u{E9}\u{E8}\r\n]{0,60}", 1..6),
    ) {
        let json = grown(&steps, with_bytes, old_merges);
        let tokenizer = Tokenizer::from_json(&json).unwrap();
        let oracle = Oracle::new(&json);
        for text in texts {
            oracle.agrees(&tokenizer, &text);
            oracle.agrees(&tokenizer, &text.repeat(4));
        }
    }
}

/// A token made of bytes reads otherwise than the text it stands for; no cut may rely on its letters.
#[test]
fn merges_of_bytes_across_a_space() {
    // Tokens 8, 9: the bytes of U+00E8; 11: both; 12: with the slash; 13: with the space behind it.
    let json = grown(&[(8, 9), (11, 4), (12, 5)], true, false);
    let tokenizer = Tokenizer::from_json(&json).unwrap();
    let oracle = Oracle::new(&json);
    for text in ["\u{E8}/ b", "\u{E8}/b", " \u{E8}/ ", "\u{E8}\u{E8}/\u{2581}"] {
        oracle.agrees(&tokenizer, text);
    }
    assert_eq!(encode(&tokenizer, "\u{E8}/ ", false).len(), 1);
}
