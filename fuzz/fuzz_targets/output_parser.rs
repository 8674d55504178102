//! What a model writes: any ids, one by one. The first byte chooses start and end; then two bytes make an id.
#![no_main]
use fieldfare::chat::{End, OutputEvent, OutputParser};
use fieldfare::tokenizer::Tokenizer;
use std::sync::LazyLock;

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    Tokenizer::from_json(include_bytes!("../../fixtures/tiny-gemma4-a/tokenizer.json"))
        .expect("the fixture loads")
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&flags, rest)) = bytes.split_first() else { return };
    let tools = ["f", "get_weather", "fs:read"].map(str::to_owned).to_vec();
    let mut parser = OutputParser::new(&TOKENIZER, tools, flags & 1 != 0);
    let (mut content, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    let mut sink = |event: OutputEvent<'_>| match event {
        OutputEvent::Content(text) => content.push_str(text),
        OutputEvent::Reasoning(text) => reasoning.push_str(text),
        OutputEvent::ToolCall(call) => calls.push(call.clone()),
        OutputEvent::CallOpened(_) | OutputEvent::CallArguments(_) => panic!("nobody asked"),
    };
    // A few ids more than there are: the engine may be asked for any.
    let ids = TOKENIZER.vocab_size() as u32 + 3;
    for pair in rest.chunks_exact(2) {
        let done = parser.is_done();
        parser.push(u32::from(u16::from_le_bytes([pair[0], pair[1]])) % ids, &mut sink);
        assert!(parser.is_done() || !done, "done and then not");
    }
    let end = if flags & 2 != 0 { End::Length } else { End::Stop };
    let output = parser.finish(end, &mut sink);
    assert_eq!(output.content.unwrap_or_default(), content);
    assert_eq!(output.reasoning.unwrap_or_default(), reasoning);
    assert_eq!(output.tool_calls, calls);
    assert!(!(output.truncated_tool_call && output.error.is_some()));
    assert_eq!(output.finish == End::ToolCalls, !calls.is_empty() && !output.truncated_tool_call);
});
