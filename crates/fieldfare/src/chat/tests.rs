//! The fixture files of the chat format, and properties of rendering and parsing together.

use super::*;
use crate::tokenizer::Tokenizer;
use proptest::prelude::*;
use serde_json::Value;
use std::sync::OnceLock;

/// The real vocabulary where the set-up has it.
fn tokenizer() -> Option<&'static Tokenizer> {
    static TOKENIZER: OnceLock<Option<Tokenizer>> = OnceLock::new();
    let tokenizer = TOKENIZER.get_or_init(|| {
        let path = fieldfare_testing::gemma4_tokenizer()?;
        Some(Tokenizer::open(&path, None).unwrap())
    });
    if tokenizer.is_none() {
        println!("skipped: no Gemma 4 tokenizer.json here");
    }
    tokenizer.as_ref()
}

fn cases(file: &str) -> Vec<Value> {
    let path = fieldfare_testing::fixtures().join("chat").join(file);
    let mut file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let Value::Array(cases) = file["cases"].take() else { panic!("no cases") };
    assert!(cases.len() > 50);
    cases
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

struct Case {
    messages: Vec<Message>,
    tools: Vec<Tool>,
    options: RenderOptions,
}

fn render_case(case: &Value) -> Case {
    let option = |key: &str, default| case["options"][key].as_bool().unwrap_or(default);
    Case {
        messages: parse_messages(&case["messages"]).unwrap(),
        tools: parse_tools(&case["tools"]).unwrap(),
        options: RenderOptions {
            enable_thinking: option("enable_thinking", false),
            preserve_thinking: option("preserve_thinking", false),
            add_generation_prompt: option("add_generation_prompt", true),
            continue_final: false,
        },
    }
}

#[test]
fn prompts_are_the_templates() {
    for case in cases("cases.json") {
        let Case { messages, tools, options } = render_case(&case);
        let text = render_text(&messages, &tools, &options);
        if case.get("error").is_some() {
            let error = text.unwrap_err().to_string();
            assert!(error.starts_with("messages[1].tool_calls[0].function.arguments:"), "{error}");
            continue;
        }
        let text = text.unwrap();
        assert_eq!(text, case["prompt"].as_str().unwrap(), "{}", case["id"]);
        let open = !text.ends_with("<turn|>\n") || !options.add_generation_prompt;
        assert_eq!(open, case.get("open_turn_missing").is_none(), "{}", case["id"]);
        if let Some(wanted) = case.get("prompt_text_before_calls") {
            let prepared = prepare(&messages).unwrap();
            let text = render_text(&prepared, &tools, &options).unwrap();
            assert_eq!(text, wanted.as_str().unwrap(), "{}", case["id"]);
        }
    }
}

#[test]
fn prompt_ids_are_the_templates() {
    let Some(tokenizer) = tokenizer() else { return };
    let mut scanned = 0;
    for case in cases("cases.json") {
        let Case { messages, tools, options } = render_case(&case);
        if case.get("error").is_some() {
            assert!(render(&messages, &tools, &options, tokenizer).is_err());
            continue;
        }
        let prompt = render(&messages, &tools, &options, tokenizer).unwrap();
        assert_eq!(prompt.ids, ids(&case["token_ids"]), "{}", case["id"]);
        if let Some(wrong) = case.get("token_ids_if_user_text_is_scanned_for_specials") {
            assert_ne!(prompt.ids, ids(wrong), "{}", case["id"]);
            scanned += 1;
        }
        if let Some(wanted) = case.get("token_ids_text_before_calls") {
            let prompt = super::prompt(&messages, &tools, &options, tokenizer).unwrap();
            assert_eq!(prompt.ids, ids(wanted), "{}", case["id"]);
        }
        let thought = case["prompt"].as_str().unwrap().ends_with("<|channel>thought\n");
        assert_eq!(prompt.starts_in_reasoning, thought, "{}", case["id"]);
    }
    assert_eq!(scanned, 2);
}

/// What came out of a parser, streamed and whole.
struct Read {
    whole: ParsedOutput,
    content: String,
    reasoning: String,
    calls: Vec<ParsedCall>,
}

fn read(tokenizer: &Tokenizer, ids: &[u32], tools: &[&str], in_reasoning: bool, end: End) -> Read {
    let tools = tools.iter().map(|&name| name.to_owned()).collect();
    let mut parser = OutputParser::new(tokenizer, tools, in_reasoning);
    let (mut content, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    let mut sink = |event: OutputEvent<'_>| match event {
        OutputEvent::Content(text) => content.push_str(text),
        OutputEvent::Reasoning(text) => reasoning.push_str(text),
        OutputEvent::ToolCall(call) => calls.push(call.clone()),
        OutputEvent::CallOpened(_) | OutputEvent::CallArguments(_) => panic!("nobody asked"),
    };
    for &id in ids {
        parser.push(id, &mut sink);
    }
    let whole = parser.finish(end, &mut sink);
    Read { whole, content, reasoning, calls }
}

fn case_ids(tokenizer: &Tokenizer, case: &Value) -> Vec<u32> {
    if let Some(recipe) = case.get("text_recipe") {
        let repeat = recipe["repeat"]
            .as_str()
            .unwrap()
            .repeat(usize::try_from(recipe["times"].as_u64().unwrap()).unwrap());
        let text =
            format!("{}{repeat}{}", recipe["before"].as_str().unwrap(), recipe["after"].as_str().unwrap());
        let mut ids = Vec::new();
        tokenizer.encode_with_control(&text, &mut ids);
        return ids;
    }
    ids(&case["token_ids"])
}

/// Equal as JSON, numbers by value (the fixture writes `-0` and integers beyond 64 bits).
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((ka, a), (kb, b))| ka == kb && same(a, b))
        }
        (a, b) => a == b,
    }
}

#[test]
fn outputs_are_read_as_specified() {
    let Some(tokenizer) = tokenizer() else { return };
    for case in cases("parse-cases.json") {
        let id = &case["id"];
        let tools: Vec<_> = case["tools"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
        let end = if case["end"] == "length" { End::Length } else { End::Stop };
        let got = read(tokenizer, &case_ids(tokenizer, &case), &tools, case["start"] == "reasoning", end);
        let (whole, wanted) = (&got.whole, &case["expect"]);
        assert_eq!(whole.content.as_deref(), wanted["content"].as_str(), "{id}");
        assert_eq!(whole.reasoning.as_deref(), wanted["reasoning"].as_str(), "{id}");
        assert_eq!(whole.truncated_tool_call, wanted["truncated_tool_call"] == true, "{id}");
        let calls = wanted["tool_calls"].as_array().unwrap();
        assert_eq!(whole.tool_calls.len(), calls.len(), "{id}");
        for (call, wanted) in whole.tool_calls.iter().zip(calls) {
            assert_eq!(call.call.name, wanted["name"].as_str().unwrap(), "{id}");
            assert_eq!(call.call.arguments.text(), wanted["arguments_text"].as_str().unwrap(), "{id}");
            let value = call.call.arguments.value().unwrap();
            assert!(same(&value, &wanted["arguments"]), "{id}: {value}");
            let recovered: Vec<_> = call.recovered.iter().map(|r| r.name()).collect();
            let names: Vec<&str> =
                wanted["recovered"].as_array().into_iter().flatten().map(|r| r.as_str().unwrap()).collect();
            assert_eq!(recovered, names, "{id}");
        }
        match &whole.error {
            Some(error) => {
                assert_eq!(error.kind.name(), wanted["error"].as_str().unwrap(), "{id}");
                assert_eq!(error.raw_call.as_deref(), wanted["raw_call"].as_str(), "{id}");
            }
            None => {
                assert!(wanted.get("error").is_none(), "{id}");
                assert_eq!(whole.finish.name(), wanted["finish_reason"].as_str().unwrap(), "{id}");
            }
        }
        streamed_is_whole(&got);
    }
}

#[track_caller]
fn streamed_is_whole(got: &Read) {
    assert_eq!(got.content, got.whole.content.as_deref().unwrap_or_default());
    assert_eq!(got.reasoning, got.whole.reasoning.as_deref().unwrap_or_default());
    assert_eq!(got.calls, got.whole.tool_calls);
}

#[test]
fn white_space_waits_for_what_follows() {
    let Some(tokenizer) = tokenizer() else { return };
    let content = |text: &str| {
        let mut ids = Vec::new();
        tokenizer.encode_with_control(text, &mut ids);
        let got = read(tokenizer, &ids, &["f"], false, End::Stop);
        streamed_is_whole(&got);
        got.whole.content
    };
    let call = "<|tool_call>call:f{}<tool_call|>";
    assert_eq!(content(" \n").as_deref(), Some(" \n"));
    assert_eq!(content(" a \n").as_deref(), Some(" a \n"));
    assert_eq!(content(&format!(" \n{call}")), None);
    assert_eq!(content(&format!("a \n{call}\n{call} ")).as_deref(), Some("a \n"));
    assert_eq!(content(&format!("a{call}\n{call}\nb ")).as_deref(), Some("a\nb "));
    assert_eq!(content(&format!("\n{call}b")).as_deref(), Some("\nb"));
}

#[test]
fn calls_are_told_while_they_are_written() {
    let path = fieldfare_testing::tiny_checkpoint().join("tokenizer.json");
    let tokenizer = Tokenizer::from_json(&std::fs::read(path).unwrap()).unwrap();
    let read = |text: &str, end: End| {
        let mut ids = Vec::new();
        tokenizer.encode_with_control(text, &mut ids);
        let tools = ["f", "g"].map(str::to_owned).to_vec();
        let mut parser = OutputParser::new(&tokenizer, tools, false).telling(vec!["f".to_owned()]);
        let mut seen = Vec::new();
        let mut sink = |event: OutputEvent<'_>| match event {
            OutputEvent::CallOpened(name) => seen.push(format!("{name} ")),
            OutputEvent::CallArguments(text) => seen.last_mut().unwrap().push_str(text),
            OutputEvent::ToolCall(call) => seen.push(call.call.arguments.text()),
            OutputEvent::Content(_) | OutputEvent::Reasoning(_) => {}
        };
        ids.iter().for_each(|&id| parser.push(id, &mut sink));
        let whole = parser.finish(end, &mut sink);
        (seen, whole)
    };
    let call = |name: &str, body: &str| format!("<|tool_call>call:{name}{{{body}}}<tool_call|>");
    let text = "a:<|\"|>say \"hi\"\n{<|\"|>,b:[1,{c:<|\"|>]<|\"|>}]";
    let spelled = r#"{"a":"say \"hi\"\n{","b":[1,{"c":"]"}]}"#;
    let (seen, whole) = read(&(call("f", text) + &call("g", "a:1") + &call("f", "")), End::Stop);
    assert_eq!(seen, [&format!("f {spelled}"), spelled, r#"{"a":1}"#, "f {}", "{}"]);
    assert_eq!((whole.tool_calls.len(), whole.cut_call), (3, None));
    // Cut, repaired at the end, and what no grammar lets through.
    let (seen, whole) = read("<|tool_call>call:f{a:<|\"|>half of the", End::Length);
    assert_eq!(seen, [r#"f {"a":"half of the"#]);
    let cut = whole.cut_call.unwrap();
    assert_eq!((cut.name.as_str(), cut.arguments.as_str()), ("f", r#"{"a":"half of the"#));
    assert!(whole.truncated_tool_call && whole.tool_calls.is_empty() && whole.finish == End::Length);
    let (seen, whole) = read("<|tool_call>call:g{a:<|\"|>half", End::Length);
    assert!(seen.is_empty() && whole.truncated_tool_call && whole.cut_call.is_none());
    let (seen, _) = read("<|tool_call>call:f{a:'x',b:[1<turn|>", End::Stop);
    assert_eq!(seen, [r#"f {"a":"x","b":[1]}"#, r#"{"a":"x","b":[1]}"#]);
    let (seen, whole) = read(&call("f", "a:1,a:2"), End::Stop);
    assert_eq!(seen, [r#"f {"a":1,"a":2}"#]);
    assert_eq!(whole.error.map(|error| error.kind), Some(CallErrorKind::Malformed));
}

#[test]
fn bytes_stay_on_their_side_of_a_mark() {
    let Some(tokenizer) = tokenizer() else { return };
    let control = tokenizer.control();
    // A llama in four byte tokens right before the closing quote mark of a call.
    let mut ids = vec![control.call_open];
    tokenizer.encode("call:f{a:", &mut ids);
    ids.extend([control.quote, 478, 397, 404, 391, control.quote]);
    tokenizer.encode("}", &mut ids);
    ids.push(control.call_close);
    let got = read(tokenizer, &ids, &["f"], false, End::Stop);
    assert_eq!(got.calls[0].call.arguments.text(), "{\"a\":\"\u{1f999}\"}");
    assert!(got.calls[0].recovered.is_empty());
}

#[test]
fn conversations_are_prepared() {
    let call = |id: &str, arguments: &str| ToolCall {
        id: id.to_owned(),
        name: "f".to_owned(),
        arguments: Arguments::Text(arguments.to_owned()),
    };
    let mut asks = Message::assistant("Let me see.");
    asks.reasoning = Some("Hm.".to_owned());
    asks.tool_calls = vec![call("a", ""), call("b", "{\"n\":18446744073709551616}")];
    let messages = [
        Message::new(Role::Developer, "one"),
        Message::system("two"),
        Message::new(Role::User, Content::Parts(vec![Part::Text("x ".into()), Part::Text(" y".into())])),
        asks,
        Message::tool("b", "done"),
        Message::system("late"),
        Message::user("go on"),
    ];
    let prepared = prepare(&messages).unwrap();
    let options = RenderOptions { preserve_thinking: true, ..RenderOptions::default() };
    assert_eq!(
        render_text(&prepared, &[], &options).unwrap(),
        "<bos><|turn>system\none\n\ntwo<turn|>\n<|turn>user\nx  y<turn|>\n<|turn>model\n<|channel>thought\nHm.\n<channel|>\
         Let me see.<|tool_call>call:f{}<tool_call|><|tool_call>call:f{n:18446744073709551616}<tool_call|>\
         <|tool_response>response:f{value:<|\"|>done<|\"|>}<tool_response|>\
         <|tool_response>response:f{value:<|\"|><|\"|>}<tool_response|><turn|>\n\
         <|turn>system\nlate<turn|>\n<|turn>user\ngo on<turn|>\n<|turn>model\n<|channel>thought\n<channel|>"
    );
}

#[test]
fn what_the_template_would_drop_is_refused() {
    let refuse = |messages: &[Message]| prepare(messages).unwrap_err().to_string();
    let mut calls = Message::assistant(Content::None);
    calls.tool_calls = vec![ToolCall { id: "a".into(), name: "f".into(), arguments: Arguments::empty() }];
    assert!(refuse(&[Message::tool("a", "x")]).starts_with("messages[0].tool_call_id:"));
    assert!(refuse(&[calls.clone(), Message::tool("z", "x")]).starts_with("messages[1].tool_call_id:"));
    let twice = [calls.clone(), Message::tool("a", "x"), Message::tool("a", "x")];
    assert!(refuse(&twice).starts_with("messages[2].tool_call_id:"));
    let late = [calls.clone(), Message::user("q"), Message::tool("a", "x")];
    assert!(refuse(&late).starts_with("messages[2].tool_call_id:"));
    assert!(refuse(&[Message::new(Role::User, Content::None)]).starts_with("messages[0].content:"));
    assert!(refuse(&[Message::new(Role::User, Content::Parts(vec![Part::Image]))]).contains("not supported"));
    for bad in ["[1]", "{", "\"x\""] {
        calls.tool_calls[0].arguments = Arguments::Text(bad.into());
        assert!(
            refuse(std::slice::from_ref(&calls)).starts_with("messages[0].tool_calls[0].function.arguments:")
        );
    }
}

/// Texts full of what the format uses for itself.
/// A client decides how many calls a message has, so nothing may look through all of them for each.
#[test]
fn many_calls_and_results_take_no_quadratic_time() {
    let count = 60_000;
    let call =
        |i: usize| ToolCall { id: format!("call-{i}"), name: format!("f{i}"), arguments: Arguments::empty() };
    let calls = Message { tool_calls: (0..count).map(call).collect(), ..Message::assistant(Content::None) };
    let mut messages = vec![Message::user("x"), calls];
    messages.extend((1..count).rev().map(|i| Message::tool(format!("call-{i}"), "r")));
    let prepared = prepare(&messages).unwrap();
    let text = render_text(&prepared, &[], &RenderOptions::default()).unwrap();
    assert!(text.contains(&format!("response:f{}{{", count - 1)) && text.contains("response:f1{"));
    messages.push(Message::tool("call-5", "again"));
    assert!(prepare(&messages).unwrap_err().to_string().contains("`call-5` names no call"));
    messages.pop();
    // The one without a result gets an empty one when the conversation goes on.
    messages.push(Message::user("y"));
    let prepared = prepare(&messages).unwrap();
    assert_eq!(prepared[prepared.len() - 2], Message::tool("call-0", ""));
}

/// A thought's label without its newline may be as long as the whole output.
#[test]
fn a_label_that_does_not_end_is_looked_at_once() {
    let tokenizer =
        Tokenizer::open(&fieldfare_testing::tiny_checkpoint().join("tokenizer.json"), None).unwrap();
    let mut parser = OutputParser::new(&tokenizer, Vec::new(), false);
    parser.push(tokenizer.control().channel_open, &mut |_| {});
    let letter = tokenizer.id_of("a").unwrap();
    (0..400_000).for_each(|_| parser.push(letter, &mut |_| {}));
    let output = parser.finish(End::Length, &mut |_| {});
    assert_eq!(output.reasoning.map(|r| r.len()), Some(400_000));
}

fn nasty() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "<|\"|>",
        "<tool_call|>",
        "<|tool_call>",
        "<turn|>",
        "<|channel>",
        "}",
        "{",
        "\"",
        "'",
        "\\",
        "\n",
        "\t",
        ",",
        ":",
        "call:f{",
        " ",
        "a",
        "\u{e9}",
        "\u{1f999}",
        "\u{2028}",
        "\u{0}",
        "\r\n",
        "1",
        "null",
        "]",
        "\u{200d}",
    ]);
    prop::collection::vec(words, 0..12).prop_map(|words| words.concat())
}

fn json_value() -> impl Strategy<Value = Json> {
    let number =
        prop_oneof![any::<i64>().prop_map(|n| n.to_string()), any::<u64>().prop_map(|n| format!("{n}{n}"))];
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        number.prop_map(Json::Number),
        // U+2581 comes back as a space: the one loss of the vocabulary.
        nasty().prop_map(Json::String),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::Array),
            object(inner).prop_map(Json::Object),
        ]
    })
}

fn object(value: impl Strategy<Value = Json>) -> impl Strategy<Value = Vec<(String, Json)>> {
    // Sorted by key, as the format writes them.
    prop::collection::btree_map("[a-z_][a-z0-9_.\\-$]{0,8}( [a-z]{1,3})?", value, 0..4)
        .prop_map(|map| map.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_rendered_reads_back(arguments in object(json_value()), thought in nasty(), said in nasty()) {
        let Some(tokenizer) = tokenizer() else { return Ok(()) };
        let arguments = Json::Object(arguments);
        let mut message = Message::assistant(said.as_str());
        message.reasoning = Some(thought.clone()).filter(|t| !t.is_empty());
        message.tool_calls =
            vec![ToolCall { id: "c".into(), name: "f".into(), arguments: Arguments::Object(arguments.clone()) }];
        let messages = [Message::user("q"), message];
        let options = RenderOptions { enable_thinking: true, ..RenderOptions::default() };
        let before = prompt(&messages[..1], &[], &options, tokenizer).unwrap().ids;
        let whole = prompt(&messages, &[], &options, tokenizer).unwrap().ids;
        prop_assert_eq!(&whole[..before.len()], &before[..]);
        let got = read(tokenizer, &whole[before.len()..], &["f"], false, End::Stop);
        prop_assert_eq!(&got.whole.error, &None);
        prop_assert_eq!(got.calls.len(), 1);
        prop_assert_eq!(&got.calls[0].call.arguments, &Arguments::Object(arguments));
        prop_assert_eq!(got.reasoning, thought);
        prop_assert!(got.calls[0].recovered.is_empty());
        let visible = render_visible(&said);
        prop_assert_eq!(got.content, python::strip(&visible));
    }

    #[test]
    fn no_ids_panic(ids in prop::collection::vec(prop_oneof![0u32..300, any::<u32>(), 200_000u32..262_144], 0..60), cut in any::<bool>()) {
        let Some(tokenizer) = tokenizer() else { return Ok(()) };
        let end = if cut { End::Length } else { End::Stop };
        let got = read(tokenizer, &ids, &["f"], cut, end);
        streamed_is_whole(&got);
    }
}

/// Assistant text as the template shows it: without thought stretches.
fn render_visible(text: &str) -> String {
    text.split("<channel|>").map(|p| p.split("<|channel>").next().unwrap_or_default()).collect()
}

#[test]
fn a_final_message_is_gone_on_with() {
    let options = RenderOptions { continue_final: true, ..RenderOptions::default() };
    let ask = |text: &str| {
        let messages = [Message::user("Count."), Message::assistant(text)];
        render_text(&messages, &[], &options).unwrap()
    };
    let front = "<bos><|turn>user\nCount.<turn|>\n<|turn>model\n";
    assert_eq!(ask("\n one, two, "), format!("{front}one, two, "));
    assert_eq!(ask("<|channel>thought\nx<channel|>one "), format!("{front}one "));
    assert_eq!(ask("  "), front);
    // Where the last word is somebody else's, a turn is opened as ever.
    let plain = RenderOptions::default();
    let messages = [Message::user("Hi")];
    assert_eq!(render_text(&messages, &[], &options).unwrap(), render_text(&messages, &[], &plain).unwrap());
}
