//! Several requests at once: each answer is what it is alone, whoever comes, reads slowly or goes.

use crate::support::{Response, Server, request, until};
use fieldfare::engine::EngineOptions;
use fieldfare_server::Options;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::time::Duration;

/// Longer than any test takes on the busiest machine.
const LONG: Duration = Duration::from_secs(3600);

fn server(parallel: usize) -> Server {
    let engine = EngineOptions { max_context: 2048, conversations: 6, ..EngineOptions::default() };
    Server::with_engine(Options { parallel, queue: 16, read_pause: LONG, ..Options::default() }, engine)
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
    until("nothing runs", || many.metric("fieldfare_requests_running") == 0.0);
    assert!(many.get("/stats").json()["sharing"]["most"] == 4);
}

#[test]
fn answers_of_one_request_run_side_by_side_and_are_told_apart() {
    let (many, one) = (server(3), server(1));
    let chat = "/v1/chat/completions";
    let body = json!({
        "model": "default", "n": 5, "temperature": 1.2, "seed": 11, "max_tokens": 40, "tools": tool(),
        "messages": [{ "role": "user", "content": "What is the weather in Rome?" }],
    });
    let wanted = one.post(chat, &body).json();
    assert_eq!(essence(&many.post(chat, &body).json()), essence(&wanted));
    let mut body = body;
    body["stream"] = json!(true);
    body["stream_options"] = json!({ "include_usage": true });
    let events = many.post(chat, &body).events();
    let last = events.last().unwrap();
    assert_eq!(last["usage"]["completion_tokens"], wanted["usage"]["completion_tokens"]);
    let of = |index: usize| -> Vec<Value> {
        let mine = |event: &&Value| event["choices"][0]["index"] == index;
        events.iter().filter(mine).cloned().collect()
    };
    for (index, choice) in wanted["choices"].as_array().unwrap().iter().enumerate() {
        let mine = of(index);
        assert_eq!(mine[0]["choices"][0]["delta"]["role"], "assistant");
        let finish: Vec<&Value> = mine
            .iter()
            .map(|event| &event["choices"][0]["finish_reason"])
            .filter(|why| !why.is_null())
            .collect();
        assert_eq!(finish, [&choice["finish_reason"]]);
        let message = &choice["message"];
        let text: String =
            mine.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(text, message["content"].as_str().unwrap_or_default());
        let calls = |part: &str| -> String {
            let of = |event: &Value| {
                let call = &event["choices"][0]["delta"]["tool_calls"][0];
                call["function"][part].as_str().unwrap_or_default().to_owned()
            };
            mine.iter().map(of).collect()
        };
        let called = message["tool_calls"].as_array().into_iter().flatten();
        let whole = |part: &str| -> String {
            called.clone().map(|call| call["function"][part].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!((calls("name"), calls("arguments")), (whole("name"), whole("arguments")));
    }
    // Three begin before any has ended.
    let at = |wanted: &dyn Fn(&Value) -> bool| events.iter().position(wanted).unwrap();
    let begins = at(&|event| event["choices"][0]["index"] == 2);
    let ends = at(&|event| event["choices"][0]["finish_reason"].is_string());
    assert!(begins < ends, "{begins} {ends}");
    // Whoever leaves has left once, and all of his are ended.
    let mut long = body;
    long["min_tokens"] = json!(1500);
    long["max_tokens"] = json!(1500);
    let mut stream = many.connect();
    let head = [("content-type", "application/json")];
    stream.write_all(&request("POST", chat, &head, &long.to_string())).unwrap();
    let busy = || many.metric("fieldfare_requests_running") + many.metric("fieldfare_requests_waiting");
    // As many as it pays, of the three that are under way at a time.
    until("they run", || busy() == 3.0);
    drop(stream);
    until("nothing runs", || busy() == 0.0);
    assert_eq!(many.metric("fieldfare_disconnects_total"), 1.0);
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
    until("it is let in", || server.metric("fieldfare_requests_running") >= 1.0);
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
