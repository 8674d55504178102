//! Tool declarations: refused with a field's name, or their schemas adapted and written.
#![no_main]
use fieldfare::chat::{self, Message, RenderOptions};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(value) = serde_json::from_slice(bytes) else { return };
    let Ok(tools) = chat::parse_tools(&value) else { return };
    let messages = [Message::user("Hello")];
    let options = RenderOptions::default();
    // The template itself takes any schema.
    chat::render_text(&messages, &tools, &options).expect("tools are written as they are");
    let Ok(prepared) = chat::prepare_tools(&tools) else { return };
    assert_eq!(prepared.len(), tools.len());
    let text = chat::render_text(&messages, &prepared, &options).expect("what was prepared can be written");
    assert_eq!(text.matches("<|tool>declaration:").count() >= tools.len(), true);
    for tool in prepared.iter().filter_map(|tool| tool.parameters.as_ref()) {
        assert_eq!(tool["type"], "object");
        assert!(tool["properties"].is_object());
    }
});
