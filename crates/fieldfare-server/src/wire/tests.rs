//! Tables: what is refused, with status, code and field; what is taken.

use super::chat::{ChatRequest, Served};
use super::completions::CompletionRequest;
use super::error::ApiError;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

mod understood;

fn served() -> Served {
    Served {
        id: "gemma".into(),
        aliases: vec!["gpt-4o".into()],
        any_name: false,
        vocabulary: 1000,
        context: 100,
        sampling: fieldfare::sample::Sampling::default(),
        thinking: false,
    }
}

fn map(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { panic!("an object") };
    map
}

/// The plainest request, with these fields over it.
fn chat(over: &Value) -> Result<ChatRequest, ApiError> {
    let mut body = map(json!({ "model": "gemma", "messages": [{ "role": "user", "content": "hi" }] }));
    body.extend(map(over.clone()));
    ChatRequest::parse(&body, &served())
}

fn completion(over: &Value) -> Result<CompletionRequest, ApiError> {
    let mut body = map(json!({ "model": "gemma", "prompt": "hi" }));
    body.extend(map(over.clone()));
    CompletionRequest::parse(&body, &served())
}

fn check(refused: Result<(), ApiError>, code: &str, param: &str, body: &Value) {
    let error = refused.expect_err(&format!("{body} is refused"));
    let status = if code == "model_not_found" { 404 } else { 400 };
    assert_eq!((error.status, error.code, error.param.as_deref()), (status, code, Some(param)), "{body}");
    let object = error.body();
    assert_eq!(object["error"]["type"], "invalid_request_error", "{body}");
    assert_eq!(object["error"]["code"], code, "{body}");
    assert!(object["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{body}");
}

const TYPE: &str = "invalid_type";
const VALUE: &str = "invalid_value";
const NOT_OFFERED: &str = "unsupported_value";
const MESSAGE: &str = "invalid_message";
const CALL: &str = "invalid_tool_call";
const MISSING: &str = "missing_required_parameter";
const SCHEMA: &str = "invalid_json_schema";

fn schema_format(schema: Value, strict: bool) -> Value {
    json!({ "response_format": { "type": "json_schema",
        "json_schema": { "name": "x", "strict": strict, "schema": schema } } })
}

#[test]
fn fields_that_are_refused() {
    let biases: Map<String, Value> = (0..1025).map(|id| (id.to_string(), json!(1))).collect();
    let table = [
        (json!({ "model": null }), "missing_required_parameter", "model"),
        (json!({ "model": 5 }), TYPE, "model"),
        (json!({ "model": "" }), "model_not_found", "model"),
        (json!({ "model": "gpt-5" }), "model_not_found", "model"),
        (json!({ "messages": null }), "missing_required_parameter", "messages"),
        (json!({ "messages": "hi" }), TYPE, "messages"),
        (json!({ "messages": {} }), TYPE, "messages"),
        (json!({ "messages": [] }), MESSAGE, "messages"),
        (json!({ "messages": vec![json!({"role": "user", "content": "x"}); 4097] }), VALUE, "messages"),
        (json!({ "stream": "true" }), TYPE, "stream"),
        (json!({ "stream": 1 }), TYPE, "stream"),
        (json!({ "stream_options": true }), TYPE, "stream_options"),
        (json!({ "stream_options": { "include_usage": "yes" } }), TYPE, "stream_options.include_usage"),
        (json!({ "temperature": "0.5" }), TYPE, "temperature"),
        (json!({ "temperature": [] }), TYPE, "temperature"),
        (json!({ "temperature": -0.1 }), VALUE, "temperature"),
        (json!({ "temperature": 2.01 }), VALUE, "temperature"),
        (json!({ "top_p": 0 }), VALUE, "top_p"),
        (json!({ "top_p": 1.5 }), VALUE, "top_p"),
        (json!({ "top_p": -1 }), VALUE, "top_p"),
        (json!({ "top_p": {} }), TYPE, "top_p"),
        (json!({ "top_k": 257 }), VALUE, "top_k"),
        (json!({ "top_k": -2 }), VALUE, "top_k"),
        (json!({ "top_k": 1.5 }), TYPE, "top_k"),
        (json!({ "top_k": "40" }), TYPE, "top_k"),
        (json!({ "min_p": 1.1 }), VALUE, "min_p"),
        (json!({ "min_p": -0.1 }), VALUE, "min_p"),
        (json!({ "min_p": true }), TYPE, "min_p"),
        (json!({ "repetition_penalty": 0 }), VALUE, "repetition_penalty"),
        (json!({ "repetition_penalty": -1 }), VALUE, "repetition_penalty"),
        (json!({ "repetition_penalty": 1e300 }), VALUE, "repetition_penalty"),
        (json!({ "repeat_penalty": 0 }), VALUE, "repeat_penalty"),
        (json!({ "repeat_penalty": "1" }), TYPE, "repeat_penalty"),
        (json!({ "presence_penalty": 2.1 }), VALUE, "presence_penalty"),
        (json!({ "presence_penalty": "0" }), TYPE, "presence_penalty"),
        (json!({ "frequency_penalty": -2.1 }), VALUE, "frequency_penalty"),
        (json!({ "frequency_penalty": [0] }), TYPE, "frequency_penalty"),
        (json!({ "logit_bias": [] }), TYPE, "logit_bias"),
        (json!({ "logit_bias": { "x": 1 } }), VALUE, "logit_bias"),
        (json!({ "logit_bias": { "1000": 1 } }), VALUE, "logit_bias"),
        (json!({ "logit_bias": { "-1": 1 } }), VALUE, "logit_bias"),
        (json!({ "logit_bias": { "+1": 1 } }), VALUE, "logit_bias"),
        (json!({ "logit_bias": { "": 1 } }), VALUE, "logit_bias"),
        (json!({ "logit_bias": { "5": "1" } }), TYPE, "logit_bias.5"),
        (json!({ "logit_bias": { "5": 100.5 } }), VALUE, "logit_bias.5"),
        (json!({ "logit_bias": { "5": 1, "05": 1 } }), VALUE, "logit_bias.5"),
        (json!({ "logit_bias": biases }), VALUE, "logit_bias"),
        (json!({ "seed": "7" }), TYPE, "seed"),
        (json!({ "seed": 1.5 }), TYPE, "seed"),
        (json!({ "seed": 1e30 }), VALUE, "seed"),
        (json!({ "seed": -9.3e18 }), VALUE, "seed"),
        (json!({ "stop": 5 }), TYPE, "stop"),
        (json!({ "stop": { "text": "x" } }), TYPE, "stop"),
        (json!({ "stop": ["a", 5] }), TYPE, "stop[1]"),
        (json!({ "stop": ["a", null] }), TYPE, "stop[1]"),
        (json!({ "stop": "" }), VALUE, "stop[0]"),
        (json!({ "stop": ["a", ""] }), VALUE, "stop[1]"),
        (json!({ "stop": vec!["a"; 65] }), VALUE, "stop"),
        (json!({ "stop": "x".repeat(1025) }), VALUE, "stop[0]"),
        (json!({ "max_tokens": 0 }), VALUE, "max_tokens"),
        (json!({ "max_tokens": -2 }), VALUE, "max_tokens"),
        (json!({ "max_tokens": "10" }), TYPE, "max_tokens"),
        (json!({ "max_tokens": 1.5 }), TYPE, "max_tokens"),
        (json!({ "max_completion_tokens": 0 }), VALUE, "max_completion_tokens"),
        (json!({ "max_completion_tokens": [] }), TYPE, "max_completion_tokens"),
        (json!({ "max_completion_tokens": 5, "max_tokens": 0 }), VALUE, "max_tokens"),
        (json!({ "n_predict": false }), TYPE, "n_predict"),
        (json!({ "n": 1.5 }), TYPE, "n"),
        (json!({ "n": 0 }), VALUE, "n"),
        (json!({ "n": 9 }), VALUE, "n"),
        (json!({ "n": "1" }), TYPE, "n"),
        (json!({ "logprobs": "yes" }), TYPE, "logprobs"),
        (json!({ "logprobs": 1 }), TYPE, "logprobs"),
        (json!({ "top_logprobs": 2 }), VALUE, "top_logprobs"),
        (json!({ "logprobs": true, "top_logprobs": 21 }), VALUE, "top_logprobs"),
        (json!({ "top_logprobs": "2" }), TYPE, "top_logprobs"),
        (json!({ "response_format": "json" }), TYPE, "response_format"),
        (json!({ "response_format": {} }), "missing_required_parameter", "response_format.type"),
        (json!({ "response_format": { "type": 1 } }), TYPE, "response_format.type"),
        (json!({ "response_format": { "type": "yaml" } }), VALUE, "response_format.type"),
        (json!({ "response_format": { "type": "json_schema" } }), MISSING, "response_format.json_schema"),
        (
            json!({ "response_format": { "type": "json_schema", "json_schema": [] } }),
            TYPE,
            "response_format.json_schema",
        ),
        (schema_format(json!(null), false), MISSING, "response_format.json_schema.schema"),
        (schema_format(json!([]), false), SCHEMA, "response_format.json_schema.schema"),
        (schema_format(json!("object"), false), SCHEMA, "response_format.json_schema.schema"),
        (schema_format(json!(false), false), SCHEMA, "response_format.json_schema.schema"),
        (schema_format(json!({ "type": "text" }), false), SCHEMA, "response_format.json_schema.schema"),
        (schema_format(json!({ "type": [] }), false), SCHEMA, "response_format.json_schema.schema"),
        (schema_format(json!({ "type": 5 }), false), SCHEMA, "response_format.json_schema.schema"),
        (schema_format(json!({ "enum": [] }), false), SCHEMA, "response_format.json_schema.schema"),
        (schema_format(json!({ "enum": "a" }), false), SCHEMA, "response_format.json_schema.schema"),
        (schema_format(json!({ "$ref": "#" }), false), SCHEMA, "response_format.json_schema.schema"),
        (schema_format(json!({ "$ref": "#/none" }), false), SCHEMA, "response_format.json_schema.schema"),
        (schema_format(json!({ "not": {} }), false), SCHEMA, "response_format.json_schema.schema"),
        (schema_format(json!({ "anyOf": [] }), false), SCHEMA, "response_format.json_schema.schema"),
        (schema_format(json!({ "anyOf": {} }), false), SCHEMA, "response_format.json_schema.schema"),
        (
            schema_format(json!({ "anyOf": [{ "type": "x" }] }), false),
            SCHEMA,
            "response_format.json_schema.schema.anyOf[0]",
        ),
        (schema_format(json!({ "allOf": [{}, {}] }), false), SCHEMA, "response_format.json_schema.schema"),
        (schema_format(json!({ "oneOf": [{}, {}] }), false), SCHEMA, "response_format.json_schema.schema"),
        (
            schema_format(json!({ "type": "array", "maxItems": 65 }), false),
            SCHEMA,
            "response_format.json_schema.schema",
        ),
        (
            schema_format(json!({ "type": "array", "minItems": -1 }), false),
            SCHEMA,
            "response_format.json_schema.schema",
        ),
        (
            schema_format(json!({ "type": "array", "items": [{}] }), false),
            SCHEMA,
            "response_format.json_schema.schema",
        ),
        (
            schema_format(json!({ "type": "object", "properties": [] }), false),
            SCHEMA,
            "response_format.json_schema.schema",
        ),
        (
            schema_format(json!({ "type": "object", "properties": { "a": { "contains": {} } } }), false),
            SCHEMA,
            "response_format.json_schema.schema.properties.a",
        ),
        (
            schema_format(json!({ "type": "object", "properties": { "a": { "pattern": "x" } } }), true),
            SCHEMA,
            "response_format.json_schema.schema.properties.a",
        ),
        (
            schema_format(json!({ "type": "string", "minLength": 1 }), true),
            SCHEMA,
            "response_format.json_schema.schema",
        ),
        (
            schema_format(json!({ "type": "integer", "maximum": 1 }), true),
            SCHEMA,
            "response_format.json_schema.schema",
        ),
        (
            json!({ "response_format": { "type": "json_schema", "json_schema": { "strict": 1, "schema": {} } } }),
            TYPE,
            "response_format.json_schema.strict",
        ),
        (
            json!({ "response_format": { "type": "json_object", "schema": 5 } }),
            SCHEMA,
            "response_format.schema",
        ),
        (json!({ "thinking_budget_tokens": -2 }), VALUE, "thinking_budget_tokens"),
        (json!({ "thinking_budget_tokens": "9" }), TYPE, "thinking_budget_tokens"),
        (json!({ "reasoning_budget_tokens": 1.5 }), TYPE, "reasoning_budget_tokens"),
        (json!({ "thinking_token_budget": [] }), TYPE, "thinking_token_budget"),
        (json!({ "reasoning": { "max_tokens": "9" } }), TYPE, "reasoning.max_tokens"),
        (json!({ "reasoning": { "max_tokens": -9 } }), VALUE, "reasoning.max_tokens"),
        (json!({ "ignore_eos": 1 }), TYPE, "ignore_eos"),
        (json!({ "min_tokens": -1 }), VALUE, "min_tokens"),
        (json!({ "min_tokens": "1" }), TYPE, "min_tokens"),
        (json!({ "stop_token_ids": 5 }), TYPE, "stop_token_ids"),
        (json!({ "stop_token_ids": ["5"] }), TYPE, "stop_token_ids[0]"),
        (json!({ "stop_token_ids": [1, 1000] }), VALUE, "stop_token_ids[1]"),
        (json!({ "stop_token_ids": vec![1; 65] }), VALUE, "stop_token_ids"),
        (json!({ "continue_final_message": "yes" }), TYPE, "continue_final_message"),
        (json!({ "reasoning_effort": "huge" }), VALUE, "reasoning_effort"),
        (json!({ "reasoning_effort": 3 }), TYPE, "reasoning_effort"),
        (json!({ "reasoning": true }), TYPE, "reasoning"),
        (json!({ "reasoning": { "effort": "x" } }), VALUE, "reasoning.effort"),
        (json!({ "reasoning": { "effort": 1 } }), TYPE, "reasoning.effort"),
        (json!({ "reasoning": { "enabled": "yes" } }), TYPE, "reasoning.enabled"),
        (json!({ "chat_template_kwargs": [] }), TYPE, "chat_template_kwargs"),
        (
            json!({ "chat_template_kwargs": { "enable_thinking": "true" } }),
            TYPE,
            "chat_template_kwargs.enable_thinking",
        ),
        (
            json!({ "chat_template_kwargs": { "preserve_thinking": 1 } }),
            TYPE,
            "chat_template_kwargs.preserve_thinking",
        ),
        (json!({ "functions": [] }), NOT_OFFERED, "functions"),
        (json!({ "function_call": "auto" }), NOT_OFFERED, "function_call"),
        (json!({ "web_search_options": {} }), NOT_OFFERED, "web_search_options"),
        (json!({ "audio": { "voice": "x" } }), NOT_OFFERED, "audio"),
        (json!({ "modalities": ["text", "audio"] }), NOT_OFFERED, "modalities"),
        (json!({ "continue_final_message": true }), VALUE, "continue_final_message"),
        (json!({ "parallel_tool_calls": "no" }), TYPE, "parallel_tool_calls"),
    ];
    for (body, code, param) in &table {
        check(chat(body).map(drop), code, param, body);
    }
    assert!(table.len() > 130, "{}", table.len());
}

#[test]
fn messages_that_are_refused() {
    let call = |over: Value| {
        let mut call =
            map(json!({ "id": "a", "type": "function", "function": { "name": "f", "arguments": "{}" } }));
        call.extend(map(over));
        json!({ "role": "assistant", "tool_calls": [call] })
    };
    let function =
        |name: Value, arguments: Value| call(json!({ "function": { "name": name, "arguments": arguments } }));
    let image = json!([{ "type": "image_url", "image_url": { "url": "http://x" } }]);
    // Each stands after a message of the person, as messages[1].
    let table = [
        (json!("hi"), TYPE, ""),
        (json!(null), TYPE, ""),
        (json!([]), TYPE, ""),
        (json!({}), MESSAGE, ".role"),
        (json!({ "role": null, "content": "x" }), MESSAGE, ".role"),
        (json!({ "role": 1, "content": "x" }), TYPE, ".role"),
        (json!({ "role": "robot", "content": "x" }), MESSAGE, ".role"),
        (json!({ "role": "function", "content": "x" }), MESSAGE, ".role"),
        (json!({ "role": "User", "content": "x" }), MESSAGE, ".role"),
        (json!({ "role": "user" }), MESSAGE, ".content"),
        (json!({ "role": "user", "content": null }), MESSAGE, ".content"),
        (json!({ "role": "system", "content": null }), MESSAGE, ".content"),
        (json!({ "role": "user", "content": 5 }), TYPE, ".content"),
        (json!({ "role": "user", "content": { "type": "text" } }), TYPE, ".content"),
        (json!({ "role": "user", "content": [5] }), TYPE, ".content[0]"),
        (json!({ "role": "user", "content": [{ "type": "text" }] }), MESSAGE, ".content[0].text"),
        (json!({ "role": "user", "content": [{ "type": "text", "text": 5 }] }), TYPE, ".content[0].text"),
        (json!({ "role": "user", "content": [{ "type": 5 }] }), TYPE, ".content[0].type"),
        (json!({ "role": "user", "content": image }), "unsupported_content", ".content[0].type"),
        (
            json!({ "role": "user", "content": [{ "type": "text", "text": "x" }, { "type": "input_audio" }] }),
            "unsupported_content",
            ".content[1].type",
        ),
        (
            json!({ "role": "user", "content": [{ "type": "file" }] }),
            "unsupported_content",
            ".content[0].type",
        ),
        (json!({ "role": "user", "content": "x", "name": 5 }), TYPE, ".name"),
        (json!({ "role": "assistant", "reasoning_content": [] }), TYPE, ".reasoning_content"),
        (json!({ "role": "assistant", "reasoning": {} }), TYPE, ".reasoning"),
        (json!({ "role": "assistant", "function_call": { "name": "f" } }), NOT_OFFERED, ".function_call"),
        (json!({ "role": "assistant", "tool_calls": {} }), TYPE, ".tool_calls"),
        (json!({ "role": "assistant", "tool_calls": ["f"] }), CALL, ".tool_calls[0]"),
        (call(json!({ "id": null })), CALL, ".tool_calls[0].id"),
        (call(json!({ "id": "" })), CALL, ".tool_calls[0].id"),
        (call(json!({ "id": 5 })), CALL, ".tool_calls[0].id"),
        (call(json!({ "type": "custom" })), CALL, ".tool_calls[0].type"),
        (call(json!({ "function": null })), CALL, ".tool_calls[0].function"),
        (call(json!({ "function": "f" })), CALL, ".tool_calls[0].function"),
        (function(json!(null), json!("{}")), CALL, ".tool_calls[0].function.name"),
        (function(json!(""), json!("{}")), CALL, ".tool_calls[0].function.name"),
        (function(json!("a b"), json!("{}")), CALL, ".tool_calls[0].function.name"),
        (function(json!("f"), json!("{")), "invalid_tool_arguments", ".tool_calls[0].function.arguments"),
        (function(json!("f"), json!("[1]")), "invalid_tool_arguments", ".tool_calls[0].function.arguments"),
        (function(json!("f"), json!("null")), "invalid_tool_arguments", ".tool_calls[0].function.arguments"),
        (function(json!("f"), json!([1])), "invalid_tool_arguments", ".tool_calls[0].function.arguments"),
        (json!({ "role": "tool", "content": "x" }), "invalid_tool_result", ".tool_call_id"),
        (json!({ "role": "tool", "content": "x", "tool_call_id": 5 }), TYPE, ".tool_call_id"),
        (
            json!({ "role": "tool", "content": "x", "tool_call_id": "q" }),
            "invalid_tool_result",
            ".tool_call_id",
        ),
        (
            json!({ "role": "user", "content": "x", "tool_calls": [
                { "id": "a", "function": { "name": "f", "arguments": "{}" } }] }),
            CALL,
            ".tool_calls",
        ),
    ];
    for (message, code, place) in &table {
        let body = json!({ "messages": [{ "role": "user", "content": "hi" }, message] });
        check(chat(&body).map(drop), code, &format!("messages[1]{place}"), &body);
    }
    let twice = json!({ "messages": [
        { "role": "user", "content": "hi" },
        { "role": "assistant", "tool_calls": [
            { "id": "a", "function": { "name": "f" } }, { "id": "a", "function": { "name": "f" } }] },
    ] });
    check(chat(&twice).map(drop), CALL, "messages[1].tool_calls[1].id", &twice);
    let late = json!({ "messages": [
        { "role": "user", "content": "hi" },
        { "role": "assistant", "tool_calls": [{ "id": "a", "function": { "name": "f" } }] },
        { "role": "user", "content": "and" },
        { "role": "tool", "content": "x", "tool_call_id": "a" },
    ] });
    check(chat(&late).map(drop), "invalid_tool_result", "messages[3].tool_call_id", &late);
}

#[test]
fn tools_that_are_refused() {
    let named = |name: Value| json!({ "type": "function", "function": { "name": name } });
    let table = [
        (json!({ "tools": {} }), TYPE, "tools"),
        (json!({ "tools": "f" }), TYPE, "tools"),
        (json!({ "tools": ["f"] }), TYPE, "tools[0]"),
        (json!({ "tools": [{ "type": 5 }] }), TYPE, "tools[0].type"),
        (json!({ "tools": [{ "type": "web_search" }] }), "unsupported_tool", "tools[0].type"),
        (json!({ "tools": [{ "type": "function" }] }), "missing_required_parameter", "tools[0].function"),
        (json!({ "tools": [{ "type": "function", "function": "f" }] }), TYPE, "tools[0].function"),
        (json!({ "tools": [named(json!(null))] }), "invalid_tool_name", "tools[0].function.name"),
        (json!({ "tools": [named(json!(5))] }), TYPE, "tools[0].function.name"),
        (json!({ "tools": [named(json!(""))] }), "invalid_tool_name", "tools[0].function.name"),
        (json!({ "tools": [named(json!("a b"))] }), "invalid_tool_name", "tools[0].function.name"),
        (json!({ "tools": [named(json!("ä"))] }), "invalid_tool_name", "tools[0].function.name"),
        (
            json!({ "tools": [named(json!("f")), named(json!("x".repeat(65)))] }),
            "invalid_tool_name",
            "tools[1].function.name",
        ),
        (
            json!({ "tools": [named(json!("f")), named(json!("f"))] }),
            "invalid_tool_name",
            "tools[1].function.name",
        ),
        (
            json!({ "tools": [{ "type": "function", "function": { "name": "f", "description": 5 } }] }),
            TYPE,
            "tools[0].function.description",
        ),
        (json!({ "tools": vec![named(json!("f")); 257] }), VALUE, "tools"),
        (json!({ "tool_choice": "any" }), VALUE, "tool_choice"),
        (json!({ "tool_choice": 5 }), TYPE, "tool_choice"),
        (json!({ "tool_choice": "required" }), VALUE, "tool_choice"),
        (json!({ "tool_choice": {} }), VALUE, "tool_choice.type"),
        (json!({ "tool_choice": { "type": "tool" } }), VALUE, "tool_choice.type"),
        (
            json!({ "tool_choice": { "type": "function" } }),
            "missing_required_parameter",
            "tool_choice.function.name",
        ),
        (json!({ "tool_choice": { "type": "function", "function": { "name": "f" } } }), VALUE, "tool_choice"),
        (
            json!({ "tools": [{ "type": "function", "function": { "name": "f", "strict": "yes" } }] }),
            TYPE,
            "tools[0].function.strict",
        ),
        (
            json!({ "tools": [named(json!("f"))], "tool_choice": { "type": "function", "function": { "name": "g" } } }),
            VALUE,
            "tool_choice.function.name",
        ),
    ];
    for (body, code, param) in &table {
        check(chat(body).map(drop), code, param, body);
    }
}

#[test]
fn completions_that_are_refused() {
    let table = [
        (json!({ "model": null }), "missing_required_parameter", "model"),
        (json!({ "prompt": null }), "missing_required_parameter", "prompt"),
        (json!({ "prompt": 5 }), TYPE, "prompt"),
        (json!({ "prompt": {} }), TYPE, "prompt"),
        (json!({ "prompt": [] }), VALUE, "prompt"),
        (json!({ "prompt": [null] }), TYPE, "prompt"),
        (json!({ "prompt": [[]] }), VALUE, "prompt[0]"),
        (json!({ "prompt": ["a", null] }), TYPE, "prompt[1]"),
        (json!({ "prompt": [[1], []] }), VALUE, "prompt[1]"),
        (json!({ "prompt": vec!["a"; 129] }), VALUE, "prompt"),
        (json!({ "prompt": vec!["a"; 20], "n": 8 }), VALUE, "n"),
        (json!({ "prompt": [1, "a"] }), TYPE, "prompt[1]"),
        (json!({ "prompt": [1, 1000] }), VALUE, "prompt[1]"),
        (json!({ "prompt": [1, -1] }), VALUE, "prompt[1]"),
        (json!({ "prompt": [1.5] }), TYPE, "prompt[0]"),
        (json!({ "max_tokens": 0 }), VALUE, "max_tokens"),
        (json!({ "echo": "no" }), TYPE, "echo"),
        (json!({ "logprobs": 21 }), VALUE, "logprobs"),
        (json!({ "logprobs": -1 }), VALUE, "logprobs"),
        (json!({ "logprobs": true }), TYPE, "logprobs"),
        (json!({ "best_of": 2 }), NOT_OFFERED, "best_of"),
        (json!({ "suffix": "x" }), NOT_OFFERED, "suffix"),
        (json!({ "n": 9 }), VALUE, "n"),
        (json!({ "audio": {} }), NOT_OFFERED, "audio"),
        (json!({ "stop_token_ids": {} }), TYPE, "stop_token_ids"),
        (json!({ "min_tokens": -1 }), VALUE, "min_tokens"),
        (json!({ "ignore_eos": "no" }), TYPE, "ignore_eos"),
        (json!({ "max_tokens": -2, "echo": true }), VALUE, "max_tokens"),
        (json!({ "parse_special": 1 }), TYPE, "parse_special"),
        (json!({ "temperature": 3 }), VALUE, "temperature"),
    ];
    for (body, code, param) in &table {
        check(completion(body).map(drop), code, param, body);
    }
}

#[test]
fn null_is_absent_and_unknown_fields_are_ignored() {
    let plain = chat(&json!({})).expect("the plainest request");
    for key in [
        "stream",
        "stream_options",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "repetition_penalty",
        "repeat_penalty",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "seed",
        "stop",
        "max_tokens",
        "max_completion_tokens",
        "n_predict",
        "n",
        "logprobs",
        "top_logprobs",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "response_format",
        "reasoning_effort",
        "reasoning",
        "chat_template_kwargs",
        "functions",
        "function_call",
        "web_search_options",
        "audio",
        "modalities",
        "continue_final_message",
        "store",
        "metadata",
        "user",
        "service_tier",
        "something else",
    ] {
        let mut body = Map::new();
        body.insert(key.to_owned(), Value::Null);
        assert_eq!(chat(&Value::Object(body)).as_ref(), Ok(&plain), "{key}");
    }
    let extras = json!({ "store": true, "metadata": { "a": [1] }, "user": 5, "verbosity": "low", "prediction": [], "x": {} });
    assert_eq!(chat(&extras).as_ref(), Ok(&plain));
}

#[test]
fn what_is_taken_means_what_it_says() {
    for name in ["gemma", "default", "gpt-4o"] {
        assert!(chat(&json!({ "model": name })).is_ok());
    }
    let request = chat(&json!({
        "stream": true, "stream_options": { "include_usage": true, "other": 1 }, "temperature": 0, "top_p": 1,
        "top_k": -1, "min_p": 0.1, "repeat_penalty": 1.1, "presence_penalty": -2, "frequency_penalty": 2,
        "logit_bias": { "7": -100 }, "seed": -1, "stop": ["a", "b"], "max_completion_tokens": 40.0, "max_tokens": 5,
        "reasoning_effort": "high", "chat_template_kwargs": { "preserve_thinking": true, "other": "x" },
        "parallel_tool_calls": false, "n": 1, "logprobs": false, "response_format": { "type": "text" },
    }))
    .expect("a request with everything");
    assert!(request.stream && request.include_usage && !request.tools.parallel);
    let sampling = &request.sampling;
    assert_eq!((sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p), (0.0, 1.0, 0, 0.1));
    assert_eq!((sampling.repetition_penalty, sampling.presence_penalty), (1.1, -2.0));
    assert_eq!((sampling.frequency_penalty, sampling.seed), (2.0, Some(u64::MAX)));
    assert_eq!(
        (&sampling.logit_bias, &request.stop),
        (&vec![(7, -100.0)], &vec!["a".to_owned(), "b".to_owned()])
    );
    assert_eq!(request.max_tokens, 40);
    assert!(request.render.enable_thinking && request.render.preserve_thinking);
    assert_eq!(sampling.validate().map_err(|error| error.to_string()), Ok(()));

    let max = |body: Value| chat(&body).expect("taken").max_tokens;
    assert_eq!(max(json!({})), 4096);
    assert_eq!(max(json!({ "max_tokens": -1 })), usize::MAX);
    assert_eq!(max(json!({ "max_tokens": 1e15 })), 1_000_000_000_000_000);
    assert_eq!(max(json!({ "max_tokens": 1e30 })), usize::MAX);
    let thinks = |body: Value| chat(&body).expect("taken").render.enable_thinking;
    assert!(!thinks(json!({})) && !thinks(json!({ "reasoning_effort": "minimal" })));
    assert!(thinks(json!({ "reasoning_effort": "none", "reasoning": { "enabled": true } })));
    assert!(thinks(json!({ "chat_template_kwargs": { "enable_thinking": true } })));
    assert!(chat(&json!({ "seed": u64::MAX })).is_ok() && chat(&json!({ "seed": i64::MIN })).is_ok());
}

#[test]
fn one_bad_schema_does_not_fail_the_other_tools() {
    let tool = |name: &str, parameters: Value| json!({ "type": "function", "function": { "name": name, "parameters": parameters } });
    let good = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    let over = json!({ "tools": [
        tool("good", good.clone()),
        tool("list", json!([])),
        tool("text", json!("x")),
        tool("array", json!({ "type": "array" })),
        tool("ring", json!({ "type": "object", "properties": { "a": { "$ref": "#" } } })),
        { "type": "function", "function": { "name": "none", "parameters": null, "strict": true } },
    ] });
    let tools = chat(&over).expect("taken").tools;
    assert_eq!(tools.names(), ["good", "list", "text", "array", "ring", "none"]);
    assert_eq!(
        tools.declared[0].parameters.as_ref().map(|schema| &schema["properties"]["a"]["type"]),
        Some(&json!("string"))
    );
    assert!(tools.opened >= 3, "{}", tools.opened);
    // The end of it: hidden tools are no tools.
    let mut hidden = map(over);
    hidden.insert("tool_choice".into(), "none".into());
    assert!(chat(&Value::Object(hidden)).expect("taken").tools.declared.is_empty());
}

#[test]
fn the_recorded_requests_are_read_or_refused_by_name() {
    let path = fieldfare_testing::fixtures().join("chat/client-requests.json");
    let file: Value = serde_json::from_slice(&std::fs::read(path).expect("the fixture")).expect("JSON");
    let (mut taken, mut refused) = (0, Vec::new());
    for request in file["requests"].as_array().expect("a list") {
        if !request["path"].as_str().is_some_and(|path| path.starts_with("/v1/chat/completions")) {
            continue;
        }
        let mut body = map(request["body"].clone());
        body.insert("model".into(), "default".into());
        match ChatRequest::parse(&body, &served()) {
            Ok(_) => taken += 1,
            Err(error) => {
                refused.push((request["about"].as_str().unwrap_or_default(), error.code, error.param));
            }
        }
    }
    // Only the one that is wrong on purpose.
    for (about, code, param) in &refused {
        assert!(about.contains("empty message list") && *code == MESSAGE, "{about}: {code} {param:?}");
    }
    assert!(taken >= 24 && refused.len() == 1, "{taken} taken, {refused:?}");
}

/// Any JSON, not too deep, with the names that matter among the keys.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e6..1e6).prop_map(Value::from),
        "[a-z<|>é]{0,6}".prop_map(Value::from),
        prop_oneof![Just("user"), Just("tool"), Just("assistant"), Just("function"), Just("text")]
            .prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("role"),
        Just("content"),
        Just("tool_calls"),
        Just("function"),
        Just("name"),
        Just("arguments"),
        Just("type"),
        Just("text"),
        Just("id"),
        Just("tool_call_id"),
        Just("parameters"),
        Just("x"),
    ];
    leaf.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6).prop_map(|entries| {
                Value::Object(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_is_sent_is_taken_or_refused_with_a_code(
        field in prop_oneof![
            Just("messages"), Just("tools"), Just("tool_choice"), Just("stop"), Just("logit_bias"), Just("seed"),
            Just("reasoning"), Just("response_format"), Just("stream_options"), Just("top_k"), Just("max_tokens"),
        ],
        value in any_json(),
    ) {
        let mut body = Map::new();
        body.insert(field.to_owned(), value);
        if let Err(error) = chat(&Value::Object(body)) {
            prop_assert!(error.status == 400 && error.code != "internal_error", "{error:?}");
        }
    }
}
