//! What requests are understood to ask for: bounds, thoughts, probabilities, ends.

use super::*;
use crate::wire::tools::Tools;

#[test]
fn what_answers_are_bound_to_is_understood() {
    use fieldfare::grammar::{ArgumentRule, Choice, Content};
    let tool = |name: &str, over: Value| {
        let mut function = map(json!({ "name": name, "parameters": { "type": "object",
            "properties": { "a": { "type": "string" } } } }));
        function.extend(map(over));
        json!({ "type": "function", "function": function })
    };
    let ask = |over: Value| {
        let mut body = map(json!({ "tools": [tool("f", json!({})), tool("g", json!({ "strict": true })),
            tool("h", json!({ "strict": true, "parameters": { "type": "object", "not": {} } })),
            tool("i", json!({ "parameters": null }))] }));
        body.extend(map(over));
        chat(&Value::Object(body)).unwrap()
    };
    let plain = ask(json!({}));
    let tools = &plain.tools;
    assert_eq!((tools.choice.clone(), tools.parallel, tools.loosened), (Choice::Auto, true, 1));
    assert_eq!(tools.rules[0].arguments, ArgumentRule::Keys(vec!["a".into()]));
    assert!(matches!(tools.rules[1].arguments, ArgumentRule::Fits(_)));
    assert_eq!(
        (&tools.rules[2].arguments, &tools.rules[3].arguments),
        (&ArgumentRule::Open, &ArgumentRule::Open)
    );
    // A forced call is held to the schema, strict or not.
    let required = ask(json!({ "tool_choice": "required" })).tools;
    assert_eq!((required.choice, required.loosened), (Choice::Required, 1));
    assert!(matches!(required.rules[0].arguments, ArgumentRule::Fits(_)));
    assert_eq!(required.rules[3].arguments, ArgumentRule::Open);
    let named = json!({ "tool_choice": { "type": "function", "function": { "name": "g" } } });
    assert_eq!(ask(named).tools.choice, Choice::Named("g".into()));
    let none = ask(json!({ "tool_choice": "none" }));
    assert!(none.tools.declared.is_empty() && none.tools.rules.is_empty());

    let format = |value: Value| chat(&json!({ "response_format": value })).unwrap().format;
    assert_eq!(format(json!({ "type": "text" })), Content::Free);
    assert!(matches!(format(json!({ "type": "json_object" })), Content::Json(_)));
    assert!(matches!(
        format(json!({ "type": "json_object", "schema": { "type": "array" } })),
        Content::Json(_)
    ));
    let narrowed = json!({ "type": "json_schema", "json_schema": { "name": "x", "strict": null,
        "schema": { "type": "string", "pattern": "^a", "title": "T", "x-vendor": 1 } } });
    assert!(matches!(format(narrowed), Content::Json(_)));
}

#[test]
fn thoughts_probabilities_and_ends_are_understood() {
    let thinks = |over: Value| {
        let request = chat(&over).unwrap();
        (request.render.enable_thinking, request.thought_tokens)
    };
    assert_eq!(thinks(json!({})), (false, None));
    assert_eq!(thinks(json!({ "reasoning_effort": "low" })), (true, Some(1024)));
    assert_eq!(thinks(json!({ "reasoning_effort": "high" })), (true, None));
    assert_eq!(thinks(json!({ "reasoning_effort": "low", "thinking_budget_tokens": 7 })), (true, Some(7)));
    assert_eq!(thinks(json!({ "reasoning_effort": "low", "thinking_budget_tokens": -1 })), (true, None));
    assert_eq!(thinks(json!({ "reasoning_effort": "low", "thinking_budget_tokens": 0 })), (false, None));
    assert_eq!(thinks(json!({ "reasoning": { "enabled": true, "max_tokens": 9 } })), (true, Some(9)));
    assert_eq!(thinks(json!({ "thinking_token_budget": 9 })), (false, None));

    let scored = |over: Value| chat(&over).unwrap().logprobs;
    assert_eq!(scored(json!({ "logprobs": false })), None);
    assert_eq!(scored(json!({ "logprobs": true })), Some(0));
    assert_eq!(scored(json!({ "logprobs": true, "top_logprobs": 5 })), Some(5));

    let request = chat(&json!({ "n": 3, "stop_token_ids": [5, 6.0], "min_tokens": 4 })).unwrap();
    assert_eq!(
        (request.count, request.ending.stop_ids.as_slice(), request.ending.least),
        (3, &[5, 6][..], 4)
    );
    assert_eq!(chat(&json!({ "ignore_eos": true })).unwrap().ending.least, usize::MAX);
    let going_on = json!({ "continue_final_message": true, "messages": [{ "role": "user", "content": "x" },
        { "role": "assistant", "content": "y" }] });
    assert!(chat(&going_on).unwrap().render.continue_final);

    let echo = completion(&json!({ "echo": true, "max_tokens": 0, "logprobs": 0, "prompt": ["a", [1, 2]] }))
        .unwrap();
    assert_eq!((echo.max_tokens, echo.logprobs, echo.prompts.len()), (0, Some(0), 2));
}

#[test]
fn what_is_bound_fits_into_the_memory_for_it() {
    use fieldfare::grammar::{self, ArgumentRule, Choice, Rules};
    let wide = |count: usize, length: usize| {
        let name = |i: usize| format!("{}{i}", "k".repeat(length));
        let properties: Map<String, Value> =
            (0..count).map(|i| (name(i), json!({ "type": "string" }))).collect();
        json!({ "type": "object", "properties": properties, "additionalProperties": false })
    };
    let tool = |name: &str, strict: bool, schema: Value| {
        let function = json!({ "name": name, "strict": strict, "parameters": schema });
        json!({ "type": "function", "function": function })
    };
    let kinds = |tools: &Tools| -> Vec<&str> {
        let kind = |rule: &grammar::CallRule| match rule.arguments {
            ArgumentRule::Open => "open",
            ArgumentRule::Keys(_) => "keys",
            ArgumentRule::Fits(_) => "fits",
        };
        let rules = Rules { calls: tools.rules.clone(), choice: tools.choice.clone(), ..Rules::default() };
        assert!(rules.bytes() <= grammar::BYTES, "{}", rules.bytes());
        tools.rules.iter().map(kind).collect()
    };
    // Strict ones as far as there is room, and then by their keys.
    let strict: Vec<Value> = ["a", "b"].map(|name| tool(name, true, wide(450, 15))).into();
    let tools = chat(&json!({ "tools": strict })).unwrap().tools;
    assert_eq!((kinds(&tools), tools.loosened), (vec!["fits", "keys"], 1));
    // Only the one that is called counts, wherever it stands.
    let named = json!({ "type": "function", "function": { "name": "b" } });
    let tools = chat(&json!({ "tools": strict, "tool_choice": named })).unwrap().tools;
    assert_eq!(tools.choice, Choice::Named("b".into()));
    assert_eq!((kinds(&tools)[1], tools.loosened), ("fits", 0));
    // Others by their keys, and then not even by these.
    let long: Vec<Value> = ["a", "b", "c"].map(|name| tool(name, false, wide(500, 120))).into();
    let tools = chat(&json!({ "tools": long })).unwrap().tools;
    assert_eq!((kinds(&tools), tools.loosened), (vec!["keys", "open", "open"], 0));
    // An answer is bound as it was asked for, or refused.
    assert!(chat(&schema_format(wide(450, 15), true)).is_ok());
    let body = schema_format(wide(500, 120), true);
    check(chat(&body).map(drop), SCHEMA, "response_format.json_schema.schema", &body);
}
