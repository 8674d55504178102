//! A messages file: refused with a field's name, or prepared, written as text and as ids that say the same. The
//! input's length chooses the options.
#![no_main]
use fieldfare::chat::{self, RenderOptions};
use fieldfare::tokenizer::Tokenizer;
use std::sync::LazyLock;

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    Tokenizer::from_json(include_bytes!("../../fixtures/tiny-gemma4-a/tokenizer.json"))
        .expect("the fixture loads")
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let mut ids = Vec::new();
        TOKENIZER.encode(text, &mut ids);
        assert!(!ids.iter().any(|id| TOKENIZER.is_control(*id)), "text became a control token");
        assert_eq!(TOKENIZER.decode(&ids, true), text.replace('\u{2581}', " "));
    }
    let Ok(value) = serde_json::from_slice(bytes) else { return };
    let Ok(messages) = chat::parse_messages(&value) else { return };
    let options = RenderOptions {
        enable_thinking: bytes.len() & 1 != 0,
        preserve_thinking: bytes.len() & 2 != 0,
        add_generation_prompt: bytes.len() & 4 == 0,
        continue_final: false,
    };
    // Not prepared: arguments that are text are refused, nothing else.
    let _ = chat::render_text(&messages, &[], &options);
    let Ok(prepared) = chat::prepare(&messages) else { return };
    assert_eq!(chat::prepare(&prepared).expect("prepared twice"), prepared);
    let text = chat::render_text(&prepared, &[], &options).expect("what was prepared can be written");
    let prompt = chat::render(&prepared, &[], &options, &TOKENIZER).expect("and encoded");
    assert_eq!(TOKENIZER.decode(&prompt.ids, false), text.replace('\u{2581}', " "));
    assert_eq!(prompt, chat::prompt(&messages, &[], &options, &TOKENIZER).expect("in one step"));
});
