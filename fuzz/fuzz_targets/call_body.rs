//! The body of a tool call, as text in which U+0001 stands for the quote marker. What is read is written by the
//! template and read again: the same call.
#![no_main]
use fieldfare::chat::{
    Arguments, End, Json, Message, OutputParser, ParsedOutput, RenderOptions, ToolCall, prepare, render,
};
use fieldfare::tokenizer::Tokenizer;
use std::sync::LazyLock;

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    Tokenizer::from_json(include_bytes!("../../fixtures/tiny-gemma4-a/tokenizer.json"))
        .expect("the fixture loads")
});

fn read(ids: &[u32]) -> ParsedOutput {
    let tools = ["f", "get_weather", "fs:read"].map(str::to_owned).to_vec();
    let mut parser = OutputParser::new(&TOKENIZER, tools, false);
    for &id in ids {
        parser.push(id, &mut |_| {});
    }
    parser.finish(End::Stop, &mut |_| {})
}

/// Key order and the spelling of numbers aside; `None` where the format cannot say it: a key that cannot stand bare, a
/// number beyond every float.
fn plain(json: &Json) -> Option<Json> {
    Some(match json {
        Json::Number(n) if n.contains(['.', 'e', 'E']) => {
            let x: f64 = n.parse().ok()?;
            Json::Number(Some(x).filter(|x| x.is_finite())?.to_string())
        }
        Json::Number(n) if n == "-0" => Json::Number("0".into()),
        Json::Array(items) => Json::Array(items.iter().map(plain).collect::<Option<_>>()?),
        Json::Object(entries) => {
            let bare = |key: &str| {
                !key.is_empty()
                    && !key.chars().any(|c| c.is_control() || c == '\u{2581}' || ":,{}[]()\"=".contains(c))
                    && !key.starts_with('\'')
                    && key.trim() == key
            };
            let mut entries = entries
                .iter()
                .map(|(k, v)| if bare(k) { Some((k.clone(), plain(v)?)) } else { None })
                .collect::<Option<Vec<_>>>()?;
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            Json::Object(entries)
        }
        Json::String(s) => Json::String(s.replace('\u{2581}', " ")),
        other => other.clone(),
    })
}

libfuzzer_sys::fuzz_target!(|text: &str| {
    let control = TOKENIZER.control();
    let mut ids = vec![control.call_open];
    for (i, run) in text.split('\u{1}').enumerate() {
        if i > 0 {
            ids.push(control.quote);
        }
        TOKENIZER.encode(run, &mut ids);
    }
    ids.push(control.call_close);
    let output = read(&ids);
    let [first] = output.tool_calls.as_slice() else {
        assert!(output.error.is_some(), "neither a call nor an error");
        return;
    };
    let Arguments::Object(arguments) = &first.call.arguments else { panic!("a parsed call has text") };
    let spelled = arguments.to_string();
    assert_eq!(Json::parse(&spelled).as_ref(), Ok(arguments), "not JSON: {spelled}");
    let Some(wanted) = plain(arguments) else { return };
    let call =
        ToolCall { id: "1".into(), name: first.call.name.clone(), arguments: first.call.arguments.clone() };
    let message = Message { tool_calls: vec![call], ..Message::assistant("") };
    let prepared = prepare(&[Message::user("x"), message]).expect("a call that was read can be sent back");
    let options = RenderOptions { add_generation_prompt: false, ..RenderOptions::default() };
    let prompt = render(&prepared, &[], &options, &TOKENIZER).expect("and written").ids;
    let start = prompt.iter().position(|id| *id == control.call_open).expect("it has a call");
    let again = read(&prompt[start..]);
    let [again] = again.tool_calls.as_slice() else { panic!("{spelled}: not read back: {again:?}") };
    assert_eq!(again.recovered, [], "{spelled}");
    let Arguments::Object(got) = &again.call.arguments else { panic!("a parsed call has text") };
    assert_eq!(plain(got).as_ref(), Some(&wanted), "{spelled}");
});
