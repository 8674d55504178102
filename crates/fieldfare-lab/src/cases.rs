//! Runs a file of fixture cases through the library's public interface.
//!
//! The file says by its `format` field which of the four kinds it holds; a kind gives one check for each case. A failure
//! is printed as a line with the case, what was compared, and the wanted and the found value.

use crate::wrong_use;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use fieldfare::{
    chat::{self, End, OutputEvent, OutputParser, RenderOptions},
    tokenizer::Tokenizer,
};
use serde_json::{Value, json};
use std::{io::Write as _, path::PathBuf};

/// Options of `fieldfare-lab cases`.
#[derive(Args)]
pub(crate) struct Options {
    /// A file of cases: gemma4-chat-cases/1, gemma4-parse-cases/1, gemma4-token-cases/1 or gemma4-detok-cases/1.
    file: PathBuf,
    /// The tokenizer.json that the ids belong to.
    #[arg(long, value_name = "FILE")]
    tokenizer: PathBuf,
}

/// What differs: what was compared, wanted, found.
type Differences = Vec<(&'static str, Value, Value)>;
type Check = fn(&Tokenizer, &Value) -> Result<Differences>;

/// Runs the file; true if nothing failed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let path = options.file.display();
    let bytes =
        std::fs::read(&options.file).map_err(|error| wrong_use(format!("cannot read {path}: {error}")))?;
    let file: Value =
        serde_json::from_slice(&bytes).map_err(|error| wrong_use(format!("{path}: not JSON: {error}")))?;
    let check: Check = match file["format"].as_str() {
        Some("gemma4-chat-cases/1") => chat_case,
        Some("gemma4-parse-cases/1") => parse_case,
        Some("gemma4-token-cases/1") => token_case,
        Some("gemma4-detok-cases/1") => detok_case,
        other => {
            let found = other.map_or("no text".to_owned(), |text| format!("{text:?}"));
            return Err(wrong_use(format!("{path}: format: {found} is none of the known formats of cases")));
        }
    };
    let cases = file["cases"].as_array().ok_or_else(|| wrong_use(format!("{path}: cases: not an array")))?;
    let tokenizer =
        Tokenizer::open(&options.tokenizer, None).map_err(|error| wrong_use(error.to_string()))?;
    let (mut passed, mut failed) = (0, 0);
    let mut out = std::io::stdout().lock();
    for case in cases {
        let id = case["id"].as_str().unwrap_or("(no id)");
        let differences = check(&tokenizer, case)
            .unwrap_or_else(|error| vec![("case", json!("can be run"), json!(format!("{error:#}")))]);
        if differences.is_empty() {
            passed += 1;
            continue;
        }
        failed += 1;
        for (what, wanted, got) in differences {
            writeln!(out, "{id}: {what}: wanted {wanted}, got {got}")?;
        }
    }
    writeln!(out, "{passed} passed, {failed} failed")?;
    Ok(failed == 0)
}

/// Adds a difference unless the values are equal.
fn compare(out: &mut Differences, what: &'static str, wanted: &Value, got: Value) {
    if !same(wanted, &got) {
        out.push((what, wanted.clone(), got));
    }
}

/// Equality of JSON in which numbers count by value: `0`, `-0` and `0.0` are one. Integers keep all their digits.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            a == b || ((a.is_f64() || b.is_f64()) && a.as_f64() == b.as_f64())
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

fn text<'a>(case: &'a Value, field: &str) -> Result<&'a str> {
    case[field].as_str().with_context(|| format!("{field}: not text"))
}

fn flag(case: &Value, field: &str) -> Result<bool> {
    case[field].as_bool().with_context(|| format!("{field}: neither true nor false"))
}

fn ids(case: &Value, field: &str) -> Result<Vec<u32>> {
    serde_json::from_value(case[field].clone()).with_context(|| format!("{field}: not an array of ids"))
}

/// Text to ids.
fn token_case(tokenizer: &Tokenizer, case: &Value) -> Result<Differences> {
    let (text, mut got, mut out) = (text(case, "text")?, Vec::new(), Vec::new());
    if flag(case, "parse_control_tokens")? {
        tokenizer.encode_with_control(text, &mut got);
    } else {
        tokenizer.encode(text, &mut got);
    }
    compare(&mut out, "token_ids", &json!(ids(case, "token_ids")?), json!(got));
    Ok(out)
}

/// Ids to the text that each of them lets out.
fn detok_case(tokenizer: &Tokenizer, case: &Value) -> Result<Differences> {
    let mut stream = tokenizer.stream(flag(case, "skip_specials")?, flag(case, "barriers")?);
    let (mut deltas, mut tail, mut out) = (Vec::new(), String::new(), Vec::new());
    for id in ids(case, "token_ids")? {
        let mut delta = String::new();
        stream.push(id, &mut delta);
        deltas.push(delta);
    }
    stream.finish(&mut tail);
    let whole = deltas.concat() + &tail;
    compare(&mut out, "deltas", &case["deltas"], json!(deltas));
    compare(&mut out, "tail", &case["tail"], json!(tail));
    compare(&mut out, "text", &case["text"], json!(whole));
    Ok(out)
}

/// Messages and tools to the prompt: as the template writes them, and where the case has it, as our own preparation wants
/// them. A prompt's text must also agree with its ids.
fn chat_case(tokenizer: &Tokenizer, case: &Value) -> Result<Differences> {
    let messages = chat::parse_messages(&case["messages"])?;
    let tools = chat::parse_tools(&case["tools"])?;
    let set = |name: &str, default: bool| match &case["options"][name] {
        Value::Null => Ok(default),
        _ => flag(&case["options"], name),
    };
    let options = RenderOptions {
        enable_thinking: set("enable_thinking", false)?,
        preserve_thinking: set("preserve_thinking", false)?,
        add_generation_prompt: set("add_generation_prompt", true)?,
        continue_final: false,
    };
    let mut out = Vec::new();
    let mut prompt =
        |text_field: &'static str, ids_field: &'static str, messages: &[chat::Message]| -> Result<()> {
            let rendered = chat::render(messages, &tools, &options, tokenizer)?;
            compare(&mut out, ids_field, &json!(ids(case, ids_field)?), json!(rendered.ids));
            let text = chat::render_text(messages, &tools, &options)?;
            compare(&mut out, text_field, &json!(self::text(case, text_field)?), json!(text));
            Ok(())
        };
    if case.get("error").is_some() {
        if let Ok(text) = chat::render_text(&messages, &tools, &options) {
            out.push(("error", case["error"].clone(), json!(text)));
        }
        return Ok(out);
    }
    prompt("prompt", "token_ids", &messages)?;
    if case.get("prompt_text_before_calls").is_some() {
        prompt("prompt_text_before_calls", "token_ids_text_before_calls", &chat::prepare(&messages)?)?;
    }
    Ok(out)
}

/// The model's output to content, reasoning, calls.
fn parse_case(tokenizer: &Tokenizer, case: &Value) -> Result<Differences> {
    let tools: Vec<String> =
        serde_json::from_value(case["tools"].clone()).context("tools: not an array of names")?;
    let in_reasoning = match case["start"].as_str() {
        None | Some("content") => false,
        Some("reasoning") => true,
        Some(other) => bail!("start: {other:?} is neither content nor reasoning"),
    };
    let end = match case["end"].as_str() {
        None | Some("stop") => End::Stop,
        Some("length") => End::Length,
        Some(other) => bail!("end: {other:?} is neither stop nor length"),
    };
    // What is passed on while it comes must be what is there at the end.
    let (mut content, mut reasoning) = (String::new(), String::new());
    let mut sink = |event: OutputEvent<'_>| match event {
        OutputEvent::Content(text) => content.push_str(text),
        OutputEvent::Reasoning(text) => reasoning.push_str(text),
        OutputEvent::ToolCall(_) | OutputEvent::CallOpened(_) | OutputEvent::CallArguments(_) => {}
    };
    let mut parser = OutputParser::new(tokenizer, tools, in_reasoning);
    for id in output_ids(tokenizer, case)? {
        parser.push(id, &mut sink);
    }
    let output = parser.finish(end, &mut sink);
    let (expect, mut out) = (&case["expect"], Vec::new());
    compare(&mut out, "content", &expect["content"], json!(output.content));
    compare(&mut out, "reasoning", &expect["reasoning"], json!(output.reasoning));
    let mut calls = Vec::new();
    for call in &output.tool_calls {
        let mut shown = json!({
            "name": call.call.name,
            "arguments": call.call.arguments.value(),
            "arguments_text": call.call.arguments.text(),
        });
        if !call.recovered.is_empty() {
            shown["recovered"] = json!(call.recovered.iter().map(|r| r.name()).collect::<Vec<_>>());
        }
        calls.push(shown);
    }
    compare(&mut out, "tool_calls", &expect["tool_calls"], json!(calls));
    let error = output.error.as_ref().map(|error| error.kind.name());
    compare(&mut out, "error", &expect["error"], json!(error));
    compare(&mut out, "raw_call", &expect["raw_call"], json!(output.error.and_then(|error| error.raw_call)));
    let cut = expect["truncated_tool_call"].as_bool().unwrap_or(false);
    compare(&mut out, "truncated_tool_call", &json!(cut), json!(output.truncated_tool_call));
    if error.is_none() {
        compare(&mut out, "finish_reason", &expect["finish_reason"], json!(output.finish.name()));
    }
    let streamed = (output.content.unwrap_or_default(), output.reasoning.unwrap_or_default());
    compare(&mut out, "streamed content", &json!(streamed.0), json!(content));
    compare(&mut out, "streamed reasoning", &json!(streamed.1), json!(reasoning));
    Ok(out)
}

/// The ids of a parser case: given, or encoded from its text, or from the recipe of a text too long to write down.
fn output_ids(tokenizer: &Tokenizer, case: &Value) -> Result<Vec<u32>> {
    if case.get("token_ids").is_some() {
        return ids(case, "token_ids");
    }
    let mut out = Vec::new();
    if let Some(text) = case["text"].as_str() {
        tokenizer.encode_with_control(text, &mut out);
        return Ok(out);
    }
    let recipe = &case["text_recipe"];
    let times = recipe["times"].as_u64().context("text_recipe.times: not a number")?;
    let middle = text(recipe, "repeat")?.repeat(usize::try_from(times)?);
    let whole = [text(recipe, "before")?, &middle, text(recipe, "after")?].concat();
    tokenizer.encode_with_control(&whole, &mut out);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_by_value_and_integers_by_their_digits() {
        assert!(same(&json!({"a": [0, 1.0]}), &json!({"a": [-0.0, 1]})));
        assert!(!same(&json!(9_007_199_254_740_993_u64), &json!(9_007_199_254_740_992_u64)));
        assert!(!same(&json!({"a": 1}), &json!({"a": 1, "b": null})));
        assert!(!same(&json!([1, 2]), &json!([2, 1])));
    }

    #[test]
    fn the_fixtures_pass_and_a_changed_case_fails() {
        let Some(tokenizer) = fieldfare_testing::gemma4_tokenizer() else {
            println!("skipped: no Gemma 4 tokenizer.json here");
            return;
        };
        let folder = fieldfare_testing::fixtures().join("chat");
        let run = |file: PathBuf| run(&Options { file, tokenizer: tokenizer.clone() }).unwrap();
        for name in ["cases", "parse-cases", "token-cases", "detok-cases"] {
            assert!(run(folder.join(format!("{name}.json"))), "{name}");
        }
        let bytes = std::fs::read(folder.join("token-cases.json")).unwrap();
        let mut file: Value = serde_json::from_slice(&bytes).unwrap();
        file["cases"][1]["token_ids"] = json!([5]);
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("changed.json");
        std::fs::write(&path, file.to_string()).unwrap();
        assert!(!run(path));
    }

    #[test]
    fn an_unknown_format_is_wrong_use() {
        let file = fieldfare_testing::fixtures().join("chat/client-requests.json");
        let error = run(&Options { file, tokenizer: PathBuf::new() }).unwrap_err();
        assert!(error.downcast_ref::<crate::WrongUse>().is_some(), "{error}");
    }
}
