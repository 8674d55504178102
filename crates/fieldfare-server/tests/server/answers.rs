//! What is answered: whole and in pieces, calls, thoughts, counts, the known part of a conversation.

use crate::support::Server;
use serde_json::{Map, Value, json};

pub(crate) fn ask(text: &str) -> Value {
    json!({ "model": "default", "temperature": 0, "messages": [{ "role": "user", "content": text }] })
}

pub(crate) fn with(mut body: Value, over: Value) -> Value {
    let Value::Object(over) = over else { panic!("an object") };
    body.as_object_mut().unwrap().extend(over);
    body
}

/// The deltas of a stream put together, in the shape of a whole message.
pub(crate) fn joined(events: &[Value]) -> Value {
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
pub(crate) fn whole(answer: &Value) -> Value {
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
            for key in ["id", "created", "model", "system_fingerprint"] {
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
    // A conversation is counted as it is going to be read.
    let talk = ask("What is the capital of France?");
    let ids = server.post("/tokenize", &json!({ "messages": talk["messages"] })).json();
    let answer = server.post("/v1/chat/completions", &with(talk, json!({ "max_tokens": 1 }))).json();
    assert_eq!((&ids["count"], &ids["max_model_len"]), (&answer["usage"]["prompt_tokens"], &json!(2048)));
    assert_eq!(ids["tokens"].as_array().unwrap().len() as u64, ids["count"].as_u64().unwrap());
    assert!(answer["system_fingerprint"].as_str().unwrap().starts_with("fp_"), "{answer}");
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
    let meta = &list["data"][0]["meta"];
    assert_eq!((&meta["n_ctx"], &meta["n_ctx_train"]), (&json!(512), &json!(4096)));
    assert!(meta["size"].as_u64().unwrap() > 5_000_000, "{meta}");
    // As its checkpoint's header adds up to: shapes of scales times 64, and of what is not quantized.
    assert_eq!(meta["n_params"], 18_360_524);
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
        if later {
            assert_eq!(response.refusal(), (404, "not_found".into()), "{about}");
        } else if about.contains("empty message list") {
            assert_eq!(response.refusal(), (400, "invalid_message".into()), "{about}");
        } else {
            assert_eq!(response.status, 200, "{about}: {response:?}");
            if body.get("stream") == Some(&json!(true)) {
                assert!(!response.events().is_empty(), "{about}");
            }
            answered += 1;
        }
    }
    assert!(answered >= 27, "{answered}");
}

#[test]
fn structured_output_is_json_that_fits_also_in_pieces_and_cut() {
    let server = Server::start();
    let schema = json!({ "type": "object", "properties": { "city": { "enum": ["Paris", "Rome"] },
        "people": { "type": "integer" }, "old": { "type": "boolean" } },
        "required": ["city", "people", "old"], "additionalProperties": false });
    let format =
        json!({ "type": "json_schema", "json_schema": { "name": "x", "strict": true, "schema": schema } });
    for (seed, over) in (0..12)
        .map(|seed| (seed, json!({})))
        .chain([(50, json!({ "reasoning_effort": "low" })), (51, json!({ "tools": tools() }))])
    {
        let body = with(
            ask("What is the capital of France?"),
            json!({ "temperature": 2, "seed": seed, "top_p": 1,
            "response_format": format, "max_tokens": 400 }),
        );
        let body = with(body, over);
        let answer = server.post("/v1/chat/completions", &body).json();
        let message = &answer["choices"][0]["message"];
        assert_eq!(
            answer["choices"][0]["finish_reason"],
            if message["tool_calls"].is_null() { "stop" } else { "tool_calls" }
        );
        if message["tool_calls"].is_null() {
            let value: Value = serde_json::from_str(message["content"].as_str().unwrap()).unwrap();
            assert_eq!(value.as_object().unwrap().len(), 3, "{value}");
            assert!(["Paris", "Rome"].contains(&value["city"].as_str().unwrap()), "{value}");
            assert!(value["people"].is_i64() && value["old"].is_boolean(), "{value}");
        }
        let streamed = server.post("/v1/chat/completions", &with(body, json!({ "stream": true }))).events();
        assert_eq!(joined(&streamed)["content"], whole(&answer)["content"]);
    }
    let cut = with(ask("Hi"), json!({ "response_format": { "type": "json_object" }, "max_tokens": 1 }));
    let cut = server.post("/v1/chat/completions", &cut).json();
    assert_eq!(cut["choices"][0]["finish_reason"], "length");
    assert!(cut["choices"][0]["message"]["content"].as_str().unwrap().starts_with('{'), "{cut}");
}

#[test]
fn hostile_schemas_are_refused_and_the_next_request_is_answered() {
    let server = Server::start();
    let deep =
        (0..100).fold(json!({ "type": "null" }), |inner, _| json!({ "type": "array", "items": inner }));
    let values: Vec<String> = (0..50_000).map(|i| format!("v{i}")).collect();
    for schema in [
        json!({ "properties": { "a": { "items": { "anyOf": [{ "$ref": "#" }] } } , "b": { "$ref": "#/x" } } }),
        json!({ "$ref": "#" }),
        json!({ "enum": values }),
        json!({ "description": "x".repeat(1 << 20), "type": "object" }),
        deep,
    ] {
        let start = std::time::Instant::now();
        let body = with(
            ask("Hi"),
            json!({ "response_format": { "type": "json_schema",
            "json_schema": { "name": "x", "schema": schema } } }),
        );
        assert_eq!(server.post("/v1/chat/completions", &body).refusal(), (400, "invalid_json_schema".into()));
        assert!(start.elapsed() < std::time::Duration::from_secs(60));
    }
    let answer = server.post("/v1/chat/completions", &ask("Hi"));
    assert_eq!(answer.status, 200);
}

#[test]
fn calls_are_forced_named_and_single_where_asked() {
    let server = Server::start();
    let ask = |over: Value| {
        let body = with(ask("Tell me a story about a dog."), json!({ "tools": tools(), "max_tokens": 300 }));
        server.post("/v1/chat/completions", &with(body, over)).json()
    };
    for (seed, temperature) in [(1, 0.0), (2, 1.0), (3, 2.0), (4, 2.0), (5, 2.0)] {
        let over = json!({ "tool_choice": "required", "seed": seed, "temperature": temperature,
            "parallel_tool_calls": false });
        let answer = ask(over);
        let choice = &answer["choices"][0];
        if choice["finish_reason"] == "length" {
            continue;
        }
        assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
        let calls = choice["message"]["tool_calls"].as_array().unwrap();
        assert_eq!((calls.len(), &choice["message"]["content"]), (1, &Value::Null));
        let name = calls[0]["function"]["name"].as_str().unwrap();
        assert!(["timer", "read_file"].contains(&name));
        serde_json::from_str::<Map<String, Value>>(calls[0]["function"]["arguments"].as_str().unwrap())
            .unwrap();
    }
    let named = json!({ "tool_choice": { "type": "function", "function": { "name": "timer" } }, "temperature": 0,
        "reasoning_effort": "low", "thinking_budget_tokens": 12 });
    let answer = ask(named);
    assert_eq!(answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "timer", "{answer}");
    let thought = answer["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap();
    assert!(thought <= 12 + 4, "{answer}");

    let mut strict = tools();
    for tool in strict.as_array_mut().unwrap() {
        tool["function"]["strict"] = json!(true);
    }
    let over = json!({ "tool_choice": { "type": "function", "function": { "name": "timer" } }, "tools": strict,
        "temperature": 2, "seed": 9 });
    let answer = ask(over);
    let calls = answer["choices"][0]["message"]["tool_calls"].as_array().unwrap();
    for call in calls {
        let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        assert!(arguments["minutes"].is_number() && arguments.as_object().unwrap().len() == 1, "{answer}");
    }
}

#[test]
fn probabilities_are_the_same_whole_in_pieces_and_scored() {
    let server = Server::start();
    let body = with(
        ask("What is the capital of France?"),
        json!({ "logprobs": true, "top_logprobs": 3,
        "logit_bias": { "7": -100 } }),
    );
    let answer = server.post("/v1/chat/completions", &body).json();
    let content = answer["choices"][0]["logprobs"]["content"].as_array().unwrap().clone();
    let text: String = content.iter().map(|entry| entry["token"].as_str().unwrap()).collect();
    assert_eq!(text, answer["choices"][0]["message"]["content"].as_str().unwrap());
    for entry in &content {
        let best = &entry["top_logprobs"][0];
        assert_eq!(entry["top_logprobs"].as_array().unwrap().len(), 3);
        assert!(
            entry["logprob"].as_f64().unwrap() <= best["logprob"].as_f64().unwrap()
                && best["logprob"].as_f64().unwrap() <= 0.0
        );
        let bytes: Vec<u8> =
            entry["bytes"].as_array().unwrap().iter().map(|byte| byte.as_u64().unwrap() as u8).collect();
        assert_eq!(String::from_utf8_lossy(&bytes), entry["token"].as_str().unwrap());
    }
    let events = server.post("/v1/chat/completions", &with(body.clone(), json!({ "stream": true }))).events();
    let streamed: Vec<Value> = events
        .iter()
        .flat_map(|event| event["choices"][0]["logprobs"]["content"].as_array().cloned().unwrap_or_default())
        .collect();
    assert_eq!(streamed, content);
    let plain = server
        .post("/v1/chat/completions", &with(body, json!({ "logprobs": false, "top_logprobs": null })))
        .json();
    assert_eq!(plain["choices"][0]["logprobs"], Value::Null);
}

#[test]
fn every_choice_begins_with_its_prompts_numbers() {
    let server = Server::start();
    let prompts = ["The capital of France", "One two three four"];
    let body = json!({ "model": "demo", "prompt": prompts, "temperature": 1, "seed": 3, "max_tokens": 3, "echo": true,
        "logprobs": 1, "n": 2 });
    let answer = server.post("/v1/completions", &body).json();
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 4);
    for (at, prompt) in prompts.iter().enumerate() {
        let alone = server.post(
            "/v1/completions",
            &with(
                body.clone(),
                json!({ "prompt": prompt, "n": 1,
            "max_tokens": 0 }),
            ),
        );
        let wanted = &alone.json()["choices"][0]["logprobs"];
        let count = wanted["tokens"].as_array().unwrap().len();
        assert!(count > 1);
        for choice in &choices[2 * at..2 * at + 2] {
            for key in ["tokens", "token_logprobs", "text_offset"] {
                let list = choice["logprobs"][key].as_array().unwrap();
                assert!(list.len() > count, "{key}: {list:?}");
                assert_eq!(list[..count], wanted[key].as_array().unwrap()[..], "{key}");
            }
        }
    }
}

#[test]
fn an_evaluation_harness_gets_the_prompts_numbers() {
    let server = Server::start();
    let ids = server
        .post("/tokenize", &json!({ "content": "The capital of France is Paris.", "add_special": true }))
        .json();
    let body = json!({ "model": "demo", "prompt": ids["tokens"], "temperature": 0, "max_tokens": 4, "echo": true,
        "logprobs": 2 });
    let answer = server.post("/v1/completions", &body).json();
    let lists = &answer["choices"][0]["logprobs"];
    let count = ids["tokens"].as_array().unwrap().len();
    let made = answer["usage"]["completion_tokens"].as_u64().unwrap() as usize;
    for key in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(lists[key].as_array().unwrap().len(), count + made, "{key}");
    }
    assert_eq!((&lists["token_logprobs"][0], &lists["top_logprobs"][0]), (&Value::Null, &Value::Null));
    assert!(
        lists["token_logprobs"].as_array().unwrap()[1..].iter().all(|value| value.as_f64().unwrap() <= 0.0)
    );
    let text = answer["choices"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("The capital of France is Paris."), "{text}");
    // The numbers of the answer, when it is part of a prompt, are the same to what prefill and decode agree on.
    let mut longer = ids["tokens"].as_array().unwrap().clone();
    let spoken = &text["The capital of France is Paris.".len()..];
    let more = server.post("/tokenize", &json!({ "content": spoken, "parse_special": false })).json();
    longer.extend(more["tokens"].as_array().unwrap().iter().cloned());
    let again = server
        .post("/v1/completions", &with(body.clone(), json!({ "prompt": longer, "max_tokens": 0 })))
        .json();
    assert_eq!(again["usage"]["completion_tokens"], 0);
    let known = &again["choices"][0]["logprobs"];
    assert_eq!(known["token_logprobs"].as_array().unwrap().len(), longer.len());
    for at in 1..count {
        assert_eq!(known["token_logprobs"][at], lists["token_logprobs"][at], "{at}");
    }
    if known["tokens"] == lists["tokens"] {
        for at in count..longer.len() {
            let (a, b) = (
                known["token_logprobs"][at].as_f64().unwrap(),
                lists["token_logprobs"][at].as_f64().unwrap(),
            );
            assert!((a - b).abs() < 1e-4, "{a} {b}");
        }
    }
}

#[test]
fn several_answers_and_several_prompts_come_one_after_another() {
    let server = Server::start();
    let body = with(
        ask("Tell me a story about a dog."),
        json!({ "n": 3, "temperature": 1.5, "seed": 5, "max_tokens": 12 }),
    );
    let answer = server.post("/v1/chat/completions", &body).json();
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.iter().map(|choice| choice["index"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2]);
    let alone = server.post("/v1/chat/completions", &with(body.clone(), json!({ "n": 1, "seed": 7 }))).json();
    assert_eq!(
        choices[2]["message"], alone["choices"][0]["message"],
        "the third has the seed after the next"
    );
    assert_eq!(answer["usage"]["prompt_tokens"], alone["usage"]["prompt_tokens"]);
    assert_eq!(answer["usage"]["completion_tokens"].as_u64().unwrap(), 36);
    let streamed = with(body, json!({ "stream": true, "stream_options": { "include_usage": true } }));
    let events = server.post("/v1/chat/completions", &streamed).events();
    for (index, choice) in choices.iter().enumerate() {
        let text: String = events
            .iter()
            .filter(|event| event["choices"][0]["index"] == index)
            .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
            .collect();
        assert_eq!(text, choice["message"]["content"].as_str().unwrap());
    }
    assert_eq!(events.last().unwrap()["usage"]["completion_tokens"], 36);
    assert_eq!(server.metric("fieldfare_requests_waiting"), 0.0);

    let prompts = json!({ "model": "demo", "prompt": ["Once upon", "The capital of"], "temperature": 0, "n": 2, "max_tokens": 5 });
    let both = server.post("/v1/completions", &prompts).json();
    assert_eq!(both["choices"].as_array().unwrap().len(), 4);
    for (at, prompt) in ["Once upon", "Once upon", "The capital of", "The capital of"].iter().enumerate() {
        let one = json!({ "model": "demo", "prompt": prompt, "temperature": 0, "max_tokens": 5 });
        let one = server.post("/v1/completions", &one).json();
        assert_eq!(one["choices"][0]["text"], both["choices"][at]["text"]);
    }
}

#[test]
fn ends_are_moved_and_texts_gone_on_with() {
    let server = Server::start();
    let plain = server.post("/v1/chat/completions", &ask("What is the capital of France?")).json();
    let made = plain["usage"]["completion_tokens"].as_u64().unwrap();
    let body =
        with(ask("What is the capital of France?"), json!({ "ignore_eos": true, "max_tokens": made + 9 }));
    let longer = server.post("/v1/chat/completions", &body).json();
    assert_eq!(
        (&longer["usage"]["completion_tokens"], &longer["choices"][0]["finish_reason"]),
        (&json!(made + 9), &json!("length"))
    );
    let least = with(
        ask("What is the capital of France?"),
        json!({ "min_tokens": made + 3, "max_tokens": made + 9 }),
    );
    let least = server.post("/v1/chat/completions", &least).json();
    assert!(least["usage"]["completion_tokens"].as_u64().unwrap() >= made + 3, "{least}");
    let text = plain["choices"][0]["message"]["content"].as_str().unwrap();
    let ids = server.post("/tokenize", &json!({ "content": text, "parse_special": false })).json();
    let stop = with(ask("What is the capital of France?"), json!({ "stop_token_ids": [ids["tokens"][1]] }));
    let stopped = server.post("/v1/chat/completions", &stop).json();
    assert_eq!(
        (&stopped["usage"]["completion_tokens"], &stopped["choices"][0]["finish_reason"]),
        (&json!(1), &json!("stop"))
    );

    let mut body = ask("What is the capital of France?");
    body["messages"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "role": "assistant", "content": "The capital of " }));
    body["continue_final_message"] = json!(true);
    let template = server.post("/apply-template", &body).json();
    assert!(template["prompt"].as_str().unwrap().ends_with("<|turn>model\nThe capital of "), "{template}");
    let going_on = server.post("/v1/chat/completions", &body).json();
    assert_eq!(going_on["choices"][0]["finish_reason"], "stop", "{going_on}");

    let shown =
        server.post("/apply-template", &with(ask("Hi"), json!({ "tokens": true, "model": null }))).json();
    assert!(shown["prompt"].as_str().unwrap().starts_with("<bos><|turn>user\nHi<turn|>"), "{shown}");
    let back = server.post("/tokenize", &json!({ "content": shown["prompt"] })).json();
    assert_eq!(back["tokens"], shown["tokens"]);
}

#[test]
fn without_tools_no_call_is_opened() {
    let server = Server::start();
    let open = server.ends.last().unwrap().to_string();
    let body = with(ask("Hi"), json!({ "logit_bias": { open: 100 }, "max_tokens": 8 }));
    for over in [json!({}), json!({ "tools": tools(), "tool_choice": "none" })] {
        let answer = server.post("/v1/chat/completions", &with(body.clone(), over));
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.json()["choices"][0]["message"].get("tool_calls").is_none());
    }
    let over = json!({ "tools": tools(), "max_tokens": 300, "parallel_tool_calls": false });
    let called = server.post("/v1/chat/completions", &with(body, over)).json();
    assert_eq!(called["choices"][0]["finish_reason"], "tool_calls", "{called}");
}
