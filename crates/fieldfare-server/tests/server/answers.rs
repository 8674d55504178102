//! What is answered: whole and in pieces, calls, thoughts, counts, the known part of a conversation.

use crate::support::Server;
use serde_json::{Map, Value, json};

fn ask(text: &str) -> Value {
    json!({ "model": "default", "temperature": 0, "messages": [{ "role": "user", "content": text }] })
}

fn with(mut body: Value, over: Value) -> Value {
    let Value::Object(over) = over else { panic!("an object") };
    body.as_object_mut().unwrap().extend(over);
    body
}

/// The deltas of a stream put together, in the shape of a whole message.
fn joined(events: &[Value]) -> Value {
    let (mut content, mut reasoning, mut calls) = (String::new(), String::new(), Vec::<Value>::new());
    for delta in events.iter().filter_map(|event| event["choices"].get(0)).map(|choice| &choice["delta"]) {
        content.push_str(delta["content"].as_str().unwrap_or_default());
        reasoning.push_str(delta["reasoning_content"].as_str().unwrap_or_default());
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().unwrap() as usize;
            let piece = call["function"]["arguments"].as_str().unwrap();
            if index == calls.len() {
                assert!(call["id"].as_str().unwrap().starts_with("call_") && piece.is_empty(), "{call}");
                assert_eq!(call["type"], "function");
                calls.push(json!({ "name": call["function"]["name"], "arguments": "" }));
            } else {
                let so_far = calls[index]["arguments"].as_str().unwrap().to_owned();
                calls[index]["arguments"] = json!(so_far + piece);
            }
        }
    }
    json!({ "content": content, "reasoning": reasoning, "calls": calls })
}

/// A whole message in the same shape.
fn whole(answer: &Value) -> Value {
    let message = &answer["choices"][0]["message"];
    let calls = message["tool_calls"].as_array().into_iter().flatten().map(|call| call["function"].clone());
    json!({
        "content": message["content"].as_str().unwrap_or_default(),
        "reasoning": message["reasoning_content"].as_str().unwrap_or_default(),
        "calls": calls.collect::<Vec<_>>(),
    })
}

fn tools() -> Value {
    let tool = |name: &str, about: &str, key: &str, kind: &str| {
        json!({ "type": "function", "function": { "name": name, "description": about, "parameters": {
            "type": "object", "properties": { key: { "type": kind } }, "required": [key] } } })
    };
    json!([
        tool("timer", "Start a timer.", "minutes", "number"),
        tool("read_file", "Opens a file and returns what is in it", "file", "string"),
    ])
}

#[test]
fn an_answer_is_the_same_whole_and_in_pieces() {
    let server = Server::start();
    let questions = [
        ask("What is the capital of France?"),
        with(ask("What is 3 + 4?"), json!({ "reasoning_effort": "low" })),
        with(ask("i need a timer of 46 minutes"), json!({ "tools": tools() })),
        with(ask("please show me peja.rs and examples/tissue.html"), json!({ "tools": tools() })),
        with(ask("Tell me a story about a dog."), json!({ "max_tokens": 20 })),
        with(ask("Tell me a story about a dog."), json!({ "stop": ["dog", "."], "max_tokens": 60 })),
        with(ask("Translate \"good morning\" into Japanese and add 😀"), json!({ "max_tokens": 60 })),
    ];
    let mut seen = Vec::new();
    for question in &questions {
        let answer = server.post("/v1/chat/completions", question);
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer = answer.json();
        let streamed =
            with(question.clone(), json!({ "stream": true, "stream_options": { "include_usage": true } }));
        let stream = server.post("/v1/chat/completions", &streamed);
        assert!(stream.headers.contains("content-type: text/event-stream"), "{stream:?}");
        let events = stream.events();
        assert_eq!(joined(&events), whole(&answer), "{question}");

        // The order of the contract, and what every chunk has in common.
        let (last, rest) = events.split_last().unwrap();
        assert_eq!(rest[0]["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
        for event in &events {
            assert_eq!(event["object"], "chat.completion.chunk");
            for key in ["id", "created", "model"] {
                assert_eq!(event[key], events[0][key], "{key}");
            }
        }
        let (finish, before) = rest.split_last().unwrap();
        assert_eq!(finish["choices"][0]["delta"], json!({}));
        assert_eq!(finish["choices"][0]["finish_reason"], answer["choices"][0]["finish_reason"]);
        let open = |event: &Value| event["choices"][0]["finish_reason"].is_null() && event["usage"].is_null();
        assert!(before.iter().all(open));
        assert_eq!(last["choices"], json!([]));
        for key in ["prompt_tokens", "completion_tokens", "total_tokens"] {
            assert_eq!(last["usage"][key], answer["usage"][key], "{key}");
        }
        seen.push(answer);
    }
    let finish = |i: usize| seen[i]["choices"][0]["finish_reason"].as_str().unwrap();
    assert!(whole(&seen[0])["content"].as_str().unwrap().contains("Paris"), "{}", seen[0]);
    assert_eq!((finish(0), finish(4), finish(5)), ("stop", "length", "stop"));
    assert!(!whole(&seen[1])["reasoning"].as_str().unwrap().is_empty(), "{}", seen[1]);
    assert!(seen[1]["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap() > 0);
    assert_eq!(whole(&seen[2])["calls"], json!([{ "name": "timer", "arguments": "{\"minutes\":46}" }]));
    assert_eq!((finish(2), &seen[2]["choices"][0]["message"]["content"]), ("tool_calls", &Value::Null));
    assert_eq!(seen[4]["usage"]["completion_tokens"], 20);
    assert!(!whole(&seen[5])["content"].as_str().unwrap().contains("dog"), "{}", seen[5]);
}

#[test]
fn one_call_an_answer_if_no_more_are_allowed() {
    let server = Server::start();
    let body = with(ask("please show me peja.rs and examples/tissue.html"), json!({ "tools": tools() }));
    let both = whole(&server.post("/v1/chat/completions", &body).json());
    assert_eq!(both["calls"].as_array().unwrap().len(), 2, "{both}");
    let one =
        server.post("/v1/chat/completions", &with(body, json!({ "parallel_tool_calls": false }))).json();
    assert_eq!(whole(&one)["calls"], json!([both["calls"][0]]));
    assert_eq!(one["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn the_next_turn_reads_only_what_is_new() {
    let server = Server::start();
    let mut body = ask("What is the capital of France?");
    let first = server.post("/v1/chat/completions", &body).json();
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({ "role": "assistant", "content": first["choices"][0]["message"]["content"] }));
    messages.push(json!({ "role": "user", "content": "And of Italy?" }));
    let second = server.post("/v1/chat/completions", &body).json();
    let usage = &second["usage"];
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    // All but the empty thought that the first prompt ended in.
    let known = first["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(cached > 4 && cached < known, "{cached} of {known}");
    assert_eq!(
        second["timings"]["prompt_n"].as_u64().unwrap() + cached,
        usage["prompt_tokens"].as_u64().unwrap()
    );

    // A server that knows nothing of the first turn says the same.
    let fresh = Server::start().post("/v1/chat/completions", &body).json();
    assert_eq!(whole(&fresh), whole(&second));
    assert_eq!(fresh["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(server.metric("fieldfare_cached_tokens_total") as u64, cached);
}

#[test]
fn a_seed_repeats_an_answer() {
    let server = Server::start();
    let body = |seed: u64| {
        with(ask("Tell me a story."), json!({ "temperature": 1.5, "seed": seed, "max_tokens": 30 }))
    };
    let say = |seed| whole(&server.post("/v1/chat/completions", &body(seed)).json())["content"].clone();
    let (one, other) = (say(1), say(2));
    assert_eq!(say(1), one);
    assert_ne!(one, other);
}

#[test]
fn plain_text_is_continued() {
    let server = Server::start();
    let body = json!({ "model": "default", "prompt": "Once upon", "temperature": 0 });
    let answer = server.post("/v1/completions", &body).json();
    assert_eq!(
        (&answer["object"], &answer["usage"]["completion_tokens"]),
        (&json!("text_completion"), &json!(16))
    );
    let text = answer["choices"][0]["text"].as_str().unwrap();
    assert!(!text.is_empty() && answer["choices"][0]["finish_reason"] == "length", "{answer}");
    let events = server.post("/completions/", &with(body.clone(), json!({ "stream": true }))).events();
    let pieces: String = events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
    assert_eq!(pieces, text);
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "length");
    // Ids are taken as they are, so text must be given with what the server puts in front of it.
    let ids = server.post("/tokenize", &json!({ "content": "Once upon", "add_special": true })).json();
    let by_ids = server.post("/v1/completions", &with(body, json!({ "prompt": ids["tokens"] }))).json();
    assert_eq!(by_ids["choices"][0]["text"], text);
}

#[test]
fn text_becomes_ids_and_text_again() {
    let server = Server::start();
    let text = "Grüße, 世界 😀 <|turn>";
    let plain = server.post("/tokenize", &json!({ "content": text, "parse_special": false })).json();
    let back = server.post("/detokenize", &json!({ "tokens": plain["tokens"] })).json();
    assert_eq!(back["content"], text);
    let special = server.post("/tokenize", &json!({ "content": text })).json();
    assert!(special["tokens"].as_array().unwrap().len() < plain["tokens"].as_array().unwrap().len());
    let counted = server.post("/v1/tokenize", &json!({ "prompt": "hi" })).json();
    assert_eq!(counted["count"].as_u64().unwrap() as usize, counted["tokens"].as_array().unwrap().len());
    assert_eq!(counted["max_model_len"], 2048);
    assert_eq!(
        server.post("/detokenize", &json!({ "tokens": [-1] })).refusal(),
        (400, "invalid_value".into())
    );
    assert_eq!(server.post("/detokenize", &json!({})).refusal().0, 400);
}

#[test]
fn the_model_is_named_in_every_way() {
    let options = fieldfare_server::Options { aliases: vec!["gpt-4o".into()], ..Default::default() };
    let server = Server::with(options, 512);
    let list = server.get("/v1/models").json();
    assert_eq!((&list["data"][0]["id"], &list["data"][1]["id"]), (&json!("demo"), &json!("gpt-4o")));
    assert_eq!(list["data"][0]["max_model_len"], 512);
    assert_eq!(server.get("/v1/models/demo").json(), list["data"][0]);
    assert_eq!(server.get("/models/gpt-4o/").status, 200);
    assert_eq!(server.get("/v1/models/gpt-5").refusal(), (404, "model_not_found".into()));
    for path in ["/", "/health", "/v1/health", "/healthz", "/v1/models?x=1", "/metrics"] {
        assert_eq!(server.get(path).status, 200, "{path}");
        let head = server.ask("HEAD", path, &[], "");
        assert!(head.status == 200 && head.body.is_empty(), "{path}: {head:?}");
    }
}

#[test]
fn recorded_requests_of_real_clients_are_answered() {
    // Tools of a coding agent alone are ten thousand tokens of this small vocabulary.
    let server = Server::with(fieldfare_server::Options::default(), 32_768);
    let path = fieldfare_testing::fixtures().join("chat/client-requests.json");
    let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut answered = 0;
    for request in file["requests"].as_array().unwrap() {
        let about = format!("{} {}", request["client"], request["about"]);
        let (method, path) = (request["method"].as_str().unwrap(), request["path"].as_str().unwrap());
        let headers: Vec<(&str, &str)> = request["headers"]
            .as_object()
            .unwrap()
            .iter()
            .filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
            .collect();
        let mut text = String::new();
        let mut body = Map::new();
        if let Some(sent) = request["body"].as_object() {
            body = sent.clone();
            body.insert("model".into(), "default".into());
            // What is tested is that they are understood, not how long the toy talks.
            let key = if body.contains_key("max_completion_tokens") {
                "max_completion_tokens"
            } else {
                "max_tokens"
            };
            body.insert(key.into(), 8.into());
            text = Value::Object(body.clone()).to_string();
        }
        let response = server.ask(method, path, &headers, &text);
        let later = path.starts_with("/v1/responses") || path.starts_with("/v1/messages");
        let grammar = body.get("response_format").is_some_and(|format| format["type"] != "text")
            || body.get("tool_choice").is_some_and(|choice| choice != "auto" && choice != "none");
        if later {
            assert_eq!(response.refusal(), (404, "not_found".into()), "{about}");
        } else if grammar {
            assert_eq!(response.refusal(), (400, "unsupported_value".into()), "{about}");
        } else if about.contains("empty message list") {
            assert_eq!(response.refusal(), (400, "invalid_message".into()), "{about}");
        } else {
            let broken_call = response.status == 500 && response.refusal().1.starts_with("tool_call_");
            assert!(response.status == 200 || broken_call, "{about}: {response:?}");
            if body.get("stream") == Some(&json!(true)) {
                assert!(!response.events().is_empty(), "{about}");
            }
            answered += 1;
        }
    }
    assert!(answered >= 21, "{answered}");
}
