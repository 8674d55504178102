//! Several requests at once: each answer is what it is alone, whoever comes, reads slowly or goes.

use crate::support::{Response, Server, request};
use fieldfare::engine::EngineOptions;
use fieldfare_server::Options;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

fn server(parallel: usize) -> Server {
    let engine = EngineOptions { max_context: 2048, conversations: 6, ..EngineOptions::default() };
    Server::with_engine(Options { parallel, queue: 16, ..Options::default() }, engine)
}

fn tool() -> Value {
    json!([{ "type": "function", "function": {
        "name": "get_weather",
        "parameters": { "type": "object", "properties": { "city": { "type": "string" } } },
    }}])
}

/// Requests of many kinds, as many tokens long as the model makes them.
fn bodies() -> Vec<Value> {
    let ask = |text: &str| json!([{ "role": "user", "content": text }]);
    let base = |text: &str, seed: u64| {
        json!({
            "model": "default", "messages": ask(text), "seed": seed, "temperature": 0.9, "max_tokens": 48,
        })
    };
    let with = |mut body: Value, key: &str, value: Value| {
        body[key] = value;
        body
    };
    vec![
        base("What is the capital of France?", 1),
        with(base("Count from one to ten.", 2), "stop", json!(["five"])),
        with(
            with(base("What is the weather in Rome?", 3), "tools", tool()),
            "tool_choice",
            json!("required"),
        ),
        with(base("Tell me about the sea.", 4), "response_format", json!({ "type": "json_object" })),
        with(with(base("Name three fruits.", 5), "logprobs", json!(true)), "top_logprobs", json!(2)),
        with(base("What is the capital of France?", 6), "n", json!(3)),
        with(
            base("What is the capital of Italy?", 7),
            "chat_template_kwargs",
            json!({ "enable_thinking": true }),
        ),
    ]
}

/// What of an answer does not depend on the moment; ids of answers and calls are drawn.
fn essence(reply: &Value) -> Value {
    let mut choices = reply["choices"].clone();
    for choice in choices.as_array_mut().unwrap_or_else(|| panic!("{reply}")) {
        for call in choice["message"]["tool_calls"].as_array_mut().into_iter().flatten() {
            call["id"] = Value::Null;
        }
    }
    json!([choices, reply["usage"]["completion_tokens"]])
}

#[test]
fn answers_side_by_side_are_those_of_one_after_the_other() {
    let (many, one) = (server(4), server(1));
    let bodies = bodies();
    let wanted: Vec<Value> =
        bodies.iter().map(|body| essence(&one.post("/v1/chat/completions", body).json())).collect();
    for _ in 0..2 {
        std::thread::scope(|scope| {
            let asked: Vec<_> = bodies
                .iter()
                .map(|body| scope.spawn(|| many.post("/v1/chat/completions", body).json()))
                .collect();
            // Some begin and go.
            for _ in 0..3 {
                let body = json!({
                    "model": "default", "stream": true, "max_tokens": 400, "min_tokens": 400,
                    "messages": [{ "role": "user", "content": "Tell me a long story." }],
                });
                let mut stream = many.connect();
                let head = [("content-type", "application/json")];
                stream.write_all(&request("POST", "/v1/chat/completions", &head, &body.to_string())).unwrap();
                let mut some = [0; 64];
                let _ = stream.read(&mut some);
            }
            for (wanted, asked) in wanted.iter().zip(asked) {
                assert_eq!(&essence(&asked.join().unwrap()), wanted);
            }
        });
    }
    assert_eq!(many.metric("fieldfare_parallel_most"), 4.0);
    assert_eq!(one.metric("fieldfare_parallel_most"), 1.0);
    // Those that went are gone.
    let end = Instant::now() + Duration::from_secs(20);
    while many.metric("fieldfare_requests_running") > 0.0 {
        assert!(Instant::now() < end, "something still runs");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(many.get("/stats").json()["sharing"]["most"] == 4);
}

#[test]
fn whoever_reads_nothing_stops_nobody() {
    let server = server(2);
    let head = [("content-type", "application/json")];
    let long = json!({
        "model": "default", "stream": true, "max_tokens": 1900, "min_tokens": 1900, "temperature": 1.5, "seed": 3,
        "logprobs": true, "top_logprobs": 20,
        "messages": [{ "role": "user", "content": "Tell me a long story." }],
    });
    let mut unread = server.connect();
    unread.write_all(&request("POST", "/v1/chat/completions", &head, &long.to_string())).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while server.metric("fieldfare_requests_running") < 1.0 {
        assert!(Instant::now() < end, "it is not let in");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Two at a time, beside the one.
    let short = json!({
        "model": "default", "max_tokens": 12, "messages": [{ "role": "user", "content": "Hello." }],
    });
    std::thread::scope(|scope| {
        let ask = || {
            for _ in 0..4 {
                assert_eq!(server.post("/v1/chat/completions", &short).status, 200);
            }
        };
        scope.spawn(ask);
        scope.spawn(ask);
    });
    // Read at last, it is whole.
    let events = Response::read(&mut unread).events();
    let last = events.iter().rev().find_map(|event| event["choices"][0]["finish_reason"].as_str());
    assert_eq!(last, Some("length"));
}
