//! What the demonstration model says through the library: tools called and their results read, thoughts opened and
//! closed, a conversation whose beginning is in the cache. Its questions are ones that it answers right by a wide margin,
//! so a failure here is a fault of the library.

#![allow(clippy::unwrap_used)] // helpers of tests fail by panicking, as tests do

use fieldfare::chat::{self, Content, Message, RenderOptions, Role, Tool, ToolCall};
use fieldfare::engine::{
    Cancel, Engine, EngineOptions, Event, Finish, GenerateOptions, Generation, OutputMode, Session,
};
use fieldfare::sample::Sampling;
use fieldfare::tokenizer::Tokenizer;
use fieldfare_testing::demo;
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::sync::Arc;
use tempfile::TempDir;

/// Tokens that the model's sliding layers see.
const WINDOW: usize = 256;

/// The model in one test's hands, with a lock of its own.
struct Talker {
    engine: Engine,
    tokenizer: Arc<Tokenizer>,
    tools: Vec<Tool>,
    think: bool,
    /// What the KV cache holds, by the rule that it keeps what was read and written.
    held: Vec<u32>,
    /// Length of the last prompt.
    asked: usize,
    _locks: TempDir,
}

impl Talker {
    fn new(options: EngineOptions) -> Self {
        let locks = tempfile::tempdir().unwrap();
        let runtime_dir = Some(locks.path().to_path_buf());
        let engine = Engine::open(&demo(), EngineOptions { runtime_dir, ..options }).unwrap();
        let tokenizer = Arc::clone(engine.tokenizer().unwrap());
        Self { engine, tokenizer, tools: Vec::new(), think: false, held: Vec::new(), asked: 0, _locks: locks }
    }

    fn with_tools(tools: &Value) -> Self {
        Self { tools: chat::parse_tools(tools).unwrap(), ..Self::new(EngineOptions::default()) }
    }

    fn answer(&mut self, messages: &[Message]) -> Generation {
        let render = RenderOptions { enable_thinking: self.think, ..RenderOptions::default() };
        let prompt = chat::prompt(messages, &self.tools, &render, &self.tokenizer).unwrap();
        let tools = self.tools.iter().map(|tool| tool.name.clone()).collect();
        let mode = OutputMode::Chat { starts_in_reasoning: prompt.starts_in_reasoning, tools };
        let generation = generate(&mut self.engine.session(), &prompt.ids, mode);
        // Nothing is read twice while the windows hold it, and of a prompt at least its last token is read.
        if self.held.len() <= WINDOW {
            let same = common(&self.held, &prompt.ids);
            assert_eq!(generation.cached_tokens, same.min(prompt.ids.len() - 1));
        }
        // Beyond that, what is known is known up to the last answer's place, less a few.
        let common = common(&self.held, &prompt.ids);
        let turn = common + 8 >= self.asked;
        assert!(
            !turn || generation.cached_tokens + 8 >= self.asked,
            "{} of {common}",
            generation.cached_tokens
        );
        self.asked = prompt.ids.len();
        assert_eq!(generation.prompt_tokens, prompt.ids.len());
        self.held = [&prompt.ids[..], &generation.token_ids].concat();
        generation
    }
}

/// How many ids two texts begin with in common.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Greedily; what is told on the way must be what is told at the end.
fn generate(session: &mut Session<'_>, prompt: &[u32], mode: OutputMode) -> Generation {
    let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
    let options = GenerateOptions { sampling, max_new: 120, mode, ..GenerateOptions::default() };
    let (mut text, mut thought, mut calls) = (String::new(), String::new(), Vec::new());
    let generation = session
        .generate(prompt, &options, &Cancel::new(), &mut |event| {
            match event {
                Event::Text(piece) => text.push_str(piece),
                Event::Reasoning(piece) => thought.push_str(piece),
                Event::ToolCall(call) => calls.push(call.call.clone()),
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(text, generation.text);
    assert_eq!(thought.trim_end(), generation.reasoning.as_deref().unwrap_or_default().trim_end());
    assert_eq!(calls, generation.tool_calls.iter().map(|parsed| parsed.call.clone()).collect::<Vec<_>>());
    for part in [&text, &thought] {
        assert!(!part.contains("<|") && !part.contains("|>"), "control text in {part:?}");
    }
    generation
}

/// A tool with one text as its argument.
fn tool(name: &str, description: &str, argument: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "description": description, "parameters": {
        "type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}}})
}

/// Names and arguments of the calls, which must have been readable as they stand.
fn calls(generation: &Generation) -> Vec<(String, Value)> {
    assert!(generation.call_error.is_none() && !generation.truncated_tool_call, "{generation:?}");
    assert!(generation.tool_calls.iter().all(|parsed| parsed.recovered.is_empty()), "{generation:?}");
    let call = |call: &ToolCall| (call.name.clone(), call.arguments.value().unwrap());
    generation.tool_calls.iter().map(|parsed| call(&parsed.call)).collect()
}

/// What the model wrote, as its turn in the conversation.
fn turn(generation: &Generation) -> Message {
    Message {
        reasoning: generation.reasoning.clone(),
        tool_calls: generation.tool_calls.iter().map(|parsed| parsed.call.clone()).collect(),
        ..Message::new(Role::Assistant, generation.text.as_str())
    }
}

fn result(call: &ToolCall, text: &str) -> Message {
    Message { tool_call_id: Some(call.id.clone()), ..Message::new(Role::Tool, text) }
}

#[test]
fn a_tool_is_called_and_its_result_is_told() {
    let clock = tool("current_time", "Returns the time in a city", "city");
    let phone = tool("phoneCall", "Start a phone call with a contact.", "person");
    for think in [false, true] {
        let mut talker = Talker::with_tools(&json!([clock, phone]));
        talker.think = think;
        for (question, name, arguments, given, wanted) in [
            ("What time is it in Vancouver?", "current_time", json!({"city": "Vancouver"}), "13:25", "13:25"),
            (
                "give me the local time of Kolkata",
                "current_time",
                json!({"city": "Kolkata"}),
                "06:50",
                "06:50",
            ),
            ("start a call with Paul", "phoneCall", json!({"person": "Paul"}), "ok", "Paul"),
        ] {
            let mut messages = vec![Message::user(question)];
            let asked = talker.answer(&messages);
            assert_eq!(calls(&asked), [(name.to_owned(), arguments)], "{question}");
            assert_eq!((asked.finish, asked.text.as_str()), (Finish::ToolCalls, ""), "{asked:?}");
            assert_eq!(asked.reasoning.is_some(), think, "{asked:?}");
            messages.extend([turn(&asked), result(&asked.tool_calls[0].call, given)]);
            let told = talker.answer(&messages);
            assert!(told.text.contains(wanted), "{told:?}");
            assert_eq!((told.finish, calls(&told).len()), (Finish::Stop, 0), "{told:?}");
        }
        // What needs no tool gets an answer.
        let answer = talker.answer(&[Message::user("What is the capital of France?")]);
        assert!(answer.text.contains("Paris") && answer.tool_calls.is_empty(), "{answer:?}");
    }
}

#[test]
fn two_things_are_two_calls() {
    let mut talker = Talker::with_tools(&json!([tool("get_timezone", "Look up a time zone.", "city")]));
    let messages = [Message::user("What time zones are Jakarta and Dublin in?")];
    let answer = talker.answer(&messages);
    let wanted = ["Jakarta", "Dublin"].map(|city| ("get_timezone".to_owned(), json!({"city": city})));
    assert_eq!(calls(&answer), wanted);
    assert_eq!(answer.finish, Finish::ToolCalls);
    assert_ne!(answer.tool_calls[0].call.id, answer.tool_calls[1].call.id);
}

#[test]
fn thoughts_are_opened_and_closed() {
    let mut talker = Talker::new(EngineOptions::default());
    let control = talker.tokenizer.control().clone();
    let marks = |generation: &Generation| -> Vec<(usize, bool)> {
        let is_mark = |id| id == control.channel_open || id == control.channel_close;
        let marks = (0..).zip(&generation.token_ids).filter(|&(_, &id)| is_mark(id));
        marks.map(|(at, &id)| (at, id == control.channel_open)).collect()
    };
    for (question, wanted) in [
        ("What is 38 plus 46?", "84"),
        ("What is 17 plus 25?", "42"),
        ("What is the capital of Spain?", "Madrid"),
    ] {
        talker.think = true;
        let answer = talker.answer(&[Message::user(question)]);
        assert!(answer.text.contains(wanted), "{answer:?}");
        assert!(answer.reasoning.as_ref().is_some_and(|text| text.contains(wanted)), "{answer:?}");
        assert!(matches!(marks(&answer)[..], [(0, true), (_, false)]), "{:?}", marks(&answer));
        talker.think = false;
        let answer = talker.answer(&[Message::user(question)]);
        assert!(answer.text.contains(wanted) && answer.reasoning.is_none(), "{answer:?}");
        assert_eq!(marks(&answer), []);
    }
}

#[test]
fn a_beginning_in_the_cache_changes_no_word() {
    let mut talker = Talker::new(EngineOptions::default());
    let mut messages = Vec::new();
    for question in
        ["My name is Anna.", "What is the capital of Japan?", "List three fruits.", "What is my name?"]
    {
        messages.push(Message::user(question));
        let answer = talker.answer(&messages);
        assert!(messages.len() == 1 || answer.cached_tokens > 0, "{answer:?}");
        let options = EngineOptions {
            threads: Some(1),
            prefill_chunk_tokens: 11,
            expert_cache_slots: Some(5),
            ..EngineOptions::default()
        };
        let fresh = Talker::new(options).answer(&messages);
        assert_eq!(fresh.cached_tokens, 0);
        assert_eq!((&answer.text, &answer.token_ids), (&fresh.text, &fresh.token_ids), "{question}");
        messages.push(turn(&answer));
    }
    let Some(Content::Text(last)) = messages.last().map(|message| &message.content) else {
        panic!("no text")
    };
    assert!(last.contains("Anna"), "{last}");
    // Another conversation in the same engine knows nothing of it.
    let answer = talker.answer(&[Message::user("What is my name?")]);
    assert!(answer.text.contains("not told") && !answer.text.contains("Anna"), "{answer:?}");
}
