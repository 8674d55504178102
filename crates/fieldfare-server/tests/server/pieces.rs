//! What comes in pieces and must be the whole: arguments of calls, calls that are cut, prompts with their numbers.

use crate::answers::{ask, joined, whole, with};
use crate::support::Server;
use serde_json::{Value, json};

/// The arguments of the first call in a stream, piece by piece.
fn argument_pieces(events: &[Value]) -> Vec<String> {
    let pieces = events.iter().filter_map(|event| {
        let call = &event["choices"][0]["delta"]["tool_calls"][0];
        call["function"]["arguments"].as_str().map(str::to_owned)
    });
    pieces.filter(|piece| !piece.is_empty()).collect()
}

#[test]
fn arguments_come_as_they_are_written_where_nothing_can_take_them_back() {
    let server = Server::start();
    let chat = "/v1/chat/completions";
    let note = |open: bool| {
        json!([{ "type": "function", "function": { "name": "note", "description": "Writes a note.", "parameters": {
            "type": "object", "additionalProperties": open, "properties": { "text": { "type": "string" },
            "tags": { "type": "array", "items": { "type": "string" }, "maxItems": 2 } }, "required": ["tags", "text"] } } }])
    };
    // A forced call of a schema, at many temperatures: what is joined is what is given whole.
    for seed in 0..6 {
        let body = with(
            ask("Write down that the train leaves at nine."),
            json!({ "tools": note(false), "tool_choice": "required", "parallel_tool_calls": false,
                "temperature": 1.5, "seed": seed, "max_tokens": 120 }),
        );
        let answer = server.post(chat, &body).json();
        let events = server.post(chat, &with(body.clone(), json!({ "stream": true }))).events();
        assert_eq!(joined(&events), whole(&answer), "{answer}");
        let finish = &answer["choices"][0]["finish_reason"];
        assert_eq!(&events.last().unwrap()["choices"][0]["finish_reason"], finish);
        if finish == "tool_calls" {
            let arguments = whole(&answer)["calls"][0]["arguments"].as_str().unwrap().to_owned();
            let value: Value = serde_json::from_str(&arguments).unwrap();
            assert!(value["text"].is_string() && value["tags"].is_array(), "{value}");
        }
        let pieces = argument_pieces(&events);
        assert!(pieces.len() > 3, "in pieces: {pieces:?}");
    }
    // Where a key may stand twice they come when the call is complete.
    let over = json!({ "tools": note(true), "tool_choice": "required", "parallel_tool_calls": false, "stream": true,
        "temperature": 1.5, "seed": 3, "max_tokens": 400 });
    let events = server.post(chat, &with(ask("Write down that the train leaves."), over)).events();
    assert!(argument_pieces(&events).len() <= 1, "{events:?}");
}

#[test]
fn a_call_that_is_cut_is_given_as_far_as_it_goes() {
    let server = Server::start();
    let chat = "/v1/chat/completions";
    let tools = json!([{ "type": "function", "function": { "name": "say", "parameters": { "type": "object",
        "properties": { "text": { "type": "string" } }, "required": ["text"] } } }]);
    let mut cut = 0;
    for most in 1..14 {
        let body = with(
            ask("Say something long."),
            json!({ "tools": tools, "tool_choice": "required", "max_tokens": most, "temperature": 2, "seed": most }),
        );
        let answer = server.post(chat, &body).json();
        let events = server.post(chat, &with(body, json!({ "stream": true }))).events();
        assert_eq!(joined(&events), whole(&answer), "{answer}");
        let choice = &answer["choices"][0];
        if choice["finish_reason"] != "length" {
            continue;
        }
        match choice["message"]["tool_calls"].as_array() {
            // Not even its name is complete: nothing was said, and that is text.
            None => assert_eq!(choice["message"]["content"], "", "{answer}"),
            Some(calls) => {
                let function = &calls[0]["function"];
                assert_eq!((calls.len(), &function["name"]), (1, &json!("say")));
                assert_eq!(choice["message"]["content"], Value::Null);
                assert!(function["arguments"].as_str().unwrap().starts_with('{'), "{function}");
                cut += 1;
            }
        }
    }
    assert!(cut > 0, "none was cut inside of its arguments");
}

#[test]
fn a_prompt_comes_back_with_its_numbers_in_a_stream_too() {
    let server = Server::start();
    let body = json!({ "model": "default", "prompt": ["Once upon a time", "The end"], "echo": true, "logprobs": 2,
        "temperature": 0, "max_tokens": 5, "n": 2 });
    for over in [json!({}), json!({ "max_tokens": 0 })] {
        let body = with(body.clone(), over);
        let answer = server.post("/v1/completions", &body).json();
        let events = server.post("/v1/completions", &with(body, json!({ "stream": true }))).events();
        for choice in answer["choices"].as_array().unwrap() {
            let mine: Vec<&Value> = events
                .iter()
                .map(|event| &event["choices"][0])
                .filter(|other| other["index"] == choice["index"])
                .collect();
            let text: String = mine.iter().filter_map(|piece| piece["text"].as_str()).collect();
            assert_eq!(choice["text"], text);
            for list in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
                let all = mine.iter().filter_map(|piece| piece["logprobs"][list].as_array()).flatten();
                let all: Vec<Value> = all.cloned().collect();
                assert_eq!(choice["logprobs"][list], json!(all), "{list} of {choice}");
            }
            assert_eq!(mine.last().unwrap()["finish_reason"], choice["finish_reason"]);
        }
    }
}
