//! What the built-in model says through the command. Its questions are ones that it answers right by a wide margin (the
//! same at temperature 1), so a failure here is a fault of the program.

use crate::support::{Home, Ran, ran};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The data folder with the unpacked model; shared by all tests, changed by none.
fn data() -> &'static Path {
    static DATA: OnceLock<(Home, PathBuf)> = OnceLock::new();
    let (_, path) = DATA.get_or_init(|| {
        let home = Home::new();
        let ran = home.run(["inspect", "demo"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let path = home.path("data");
        (home, path)
    });
    path
}

/// `fieldfare chat --model demo --temperature 0 ARGS` with this on standard input.
fn chat_with<'a>(args: impl IntoIterator<Item = &'a str>, input: &str) -> Ran {
    let home = Home::new();
    let mut command = home.command(["chat", "--model", "demo", "--temperature", "0"].into_iter().chain(args));
    command.env("XDG_DATA_HOME", data()).write_stdin(input);
    let ran = ran(command);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran
}

fn chat<'a>(args: impl IntoIterator<Item = &'a str>) -> Ran {
    chat_with(args, "")
}

/// The object of `--json` for a conversation through a pipe.
fn turn<'a>(messages: &[Value], args: impl IntoIterator<Item = &'a str>) -> Value {
    let args = ["--json", "--messages-file", "-"].into_iter().chain(args);
    chat_with(args, &json!(messages).to_string()).json()
}

fn text(answer: &Value) -> &str {
    answer["text"].as_str().unwrap()
}

#[test]
fn questions_are_answered_right() {
    for (question, wanted) in [
        ("What is the capital of France?", "Paris"),
        ("What is the capital of Japan?", "Tokyo"),
        ("What is 17 plus 25?", "42"),
        ("How many legs does a spider have?", "eight"),
    ] {
        let ran = chat([question]);
        assert!(ran.out.contains(wanted) && ran.out.lines().count() == 1, "{ran:?}");
        assert!(ran.err.contains("finish: stop") && ran.err.contains("peak memory"), "{ran:?}");
        let piped = chat_with(["--quiet"], &format!("{question}\n"));
        assert_eq!((piped.out, piped.err.as_str()), (ran.out, ""));
    }
}

#[test]
fn what_it_was_not_told_it_says_so() {
    let answer = chat(["--json", "What is my name?"]).json();
    assert!(text(&answer).contains("not told"), "{answer}");
}

#[test]
fn a_conversation_remembers_what_was_said() {
    let mut messages = Vec::new();
    for (said, wanted) in [
        ("My name is Anna.", "Anna"),
        ("What is the capital of Italy?", "Rome"),
        ("What is 12 + 30?", "42"),
        ("What is my name?", "Anna"),
    ] {
        messages.push(json!({"role": "user", "content": said}));
        let answer = turn(&messages, []);
        assert!(text(&answer).contains(wanted), "{said}: {answer}");
        assert_eq!(answer["finish_reason"], "stop", "{answer}");
        messages.push(json!({"role": "assistant", "content": text(&answer)}));
    }
    // Another name, another answer: it is read, not guessed.
    messages[0]["content"] = json!("My name is Tom.");
    messages[1]["content"] = json!("Nice to meet you, Tom.");
    messages.pop();
    let answer = turn(&messages, []);
    assert!(text(&answer).contains("Tom") && !text(&answer).contains("Anna"), "{answer}");
}

#[test]
fn a_thought_is_shown_apart_hidden_or_not_made() {
    let question = "What is 38 plus 46?";
    let ran = chat(["--think", question]);
    assert!(ran.out.contains("84"), "{ran:?}");
    // Beside it stand the memory plan before and the statistics after.
    let is_thought = |line: &&str| line.contains("84") && !line.starts_with("memory ");
    let thought = ran.err.lines().find(is_thought).unwrap();
    assert_ne!(thought, ran.out.trim_end(), "{ran:?}");
    assert!(!ran.err.contains("channel") && !ran.err.contains("<|"), "{ran:?}");

    let quiet = chat(["--think", "--quiet", question]);
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), (ran.out.as_str(), ""));

    let answer = chat(["--think", "--json", question]).json();
    assert_eq!((text(&answer), &answer["finish_reason"]), (ran.out.trim_end(), &json!("stop")));
    assert_eq!(answer["reasoning"], thought, "{answer}");

    let plain = chat(["--json", question]);
    assert!(text(&plain.json()).contains("84"), "{plain:?}");
    assert!(plain.json().get("reasoning").is_none() && !plain.err.contains(thought), "{plain:?}");
}

#[test]
fn an_answer_in_json_is_json() {
    for (question, wanted) in [
        ("Please array these up in JSON: Anna, Tom, Ben", json!(["Anna", "Tom", "Ben"])),
        ("A JSON array made of 3, 5 and 8", json!([3, 5, 8])),
        (
            "Anna is 13, Ben is 7 and Tom is 9 - JSON array of name and age please",
            json!([{"name": "Anna", "age": 13}, {"name": "Ben", "age": 7}, {"name": "Tom", "age": 9}]),
        ),
    ] {
        let ran = chat(["--quiet", question]);
        let value: Value = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
        assert_eq!(value, wanted);
    }
}

#[test]
fn stop_strings_cut_exactly_where_they_begin() {
    let question = "What is the capital of France?";
    let whole = chat(["--json", question]).json();
    let whole = text(&whole);
    let part = |from: usize, to: usize| &whole[from..to];
    let end = whole.len();
    // Within a token, across tokens, at the very start, at the end, the whole; the first of several.
    for stops in [
        vec![part(5, 7)],
        vec![part(6, 16)],
        vec![part(0, 2)],
        vec![part(end - 3, end)],
        vec![whole],
        vec![part(18, end), part(9, 13)],
        vec!["Berlin", part(end - 5, end - 1)],
    ] {
        let args = stops.iter().flat_map(|&stop| ["--stop", stop]).chain(["--json", question]);
        let answer = chat(args).json();
        let at = stops.iter().filter_map(|stop| whole.find(stop)).min().unwrap();
        assert_eq!(text(&answer), &whole[..at], "{stops:?}");
        assert_eq!(answer["finish_reason"], "stop", "{stops:?}");
    }
    assert_eq!(text(&chat(["--json", "--stop", "Berlin", question]).json()), whole);
}

#[test]
fn too_few_tokens_end_with_length() {
    let question = "What is the capital of France?";
    let whole = chat(["--json", question]).json();
    let ids = whole["token_ids"].as_array().unwrap();
    for max_new in [1, 3, ids.len()] {
        let answer = chat(["--max-new", &max_new.to_string(), "--json", question]).json();
        assert_eq!(answer["token_ids"].as_array().unwrap()[..], ids[..max_new]);
        assert!(text(&whole).starts_with(text(&answer)), "{answer}");
        assert_eq!(answer["finish_reason"], "length", "{answer}");
    }
    // One more, for the token that ends the answer.
    let answer = chat(["--max-new", &(ids.len() + 1).to_string(), "--json", question]).json();
    assert_eq!((text(&answer), &answer["finish_reason"]), (text(&whole), &json!("stop")));
    // The thought did not come to its end, so nothing of it is an answer.
    let answer = chat(["--think", "--max-new", "8", "--json", "What is 38 plus 46?"]).json();
    assert_eq!((text(&answer), &answer["finish_reason"]), ("", &json!("length")), "{answer}");
    assert!(!answer["reasoning"].as_str().unwrap().is_empty());
}

#[test]
fn neither_slots_nor_chunks_nor_threads_nor_layout_change_a_word() {
    let home = Home::new();
    let v1 = home.path("v1.gturbo");
    let v1 = v1.to_str().unwrap();
    let mut convert = home.command(["convert", "demo", "--layout", "v1", "--output", v1]);
    convert.env("XDG_DATA_HOME", data());
    assert_eq!(ran(convert).code, 0);
    // Longer than a chunk and than the window of the sliding layers.
    let mut conversation = vec![
        json!({"role": "user", "content": "My name is Anna."}),
        json!({"role": "assistant", "content": "Nice to meet you, Anna."}),
    ];
    for (country, capital) in
        [("Italy", "Rome"), ("France", "Paris"), ("Japan", "Tokyo"), ("Spain", "Madrid")].repeat(3)
    {
        let question = format!("What is the capital of {country}?");
        conversation.push(json!({"role": "user", "content": question}));
        let answer = format!("The capital of {country} is {capital}.");
        conversation.push(json!({"role": "assistant", "content": answer}));
    }
    conversation.push(json!({"role": "user", "content": "Tell me a story."}));
    let conversation = json!(conversation).to_string();
    // Drawn at a high temperature, so that the smallest difference would show.
    let run = |model: &str, seed: &str, options: &[&str]| {
        let drawn = ["--temperature", "1.5", "--top-p", "1", "--seed", seed, "--max-new", "60", "--json"];
        let common = ["chat", "--model", model, "--messages-file", "-"].into_iter().chain(drawn);
        let mut command = home.command(common.chain(options.iter().copied()));
        command.env("XDG_DATA_HOME", data()).write_stdin(conversation.as_str());
        let answer = ran(command).json();
        assert!(answer["prompt_tokens"].as_u64().unwrap() > 256, "{answer}");
        answer["token_ids"].clone()
    };
    let wanted = run("demo", "5", &[]);
    assert!(wanted.as_array().unwrap().len() > 10, "{wanted}");
    for options in [
        ["--expert-cache-slots", "1"],
        ["--expert-cache-slots", "7"],
        ["--expert-cache-policy", "lru"],
        ["--threads", "1"],
        ["--threads", "3"],
        ["--prefill-chunk-tokens", "1"],
        ["--prefill-chunk-tokens", "13"],
    ] {
        assert_eq!(run("demo", "5", &options), wanted, "{options:?}");
    }
    let all = ["--threads", "2", "--expert-cache-slots", "3", "--prefill-chunk-tokens", "5"];
    assert_eq!(run(v1, "5", &all), wanted);
    // And it is drawn: another seed says something else.
    assert_ne!(run("demo", "6", &[]), wanted);
}

#[test]
fn every_instruction_set_knows_the_capital() {
    for isa in ["scalar", "avx2", "avxvnni", "avx512", "amx", "neon", "i8mm"] {
        let home = Home::new();
        let question = "What is the capital of France?";
        let mut command = home.command(["chat", "--model", "demo", "--temperature", "0", question]);
        command.env("XDG_DATA_HOME", data()).env("FIELDFARE_ISA", isa);
        let ran = ran(command);
        // An instruction set that this machine lacks is said to be so.
        if ran.code == 2 && isa != "scalar" {
            assert!(ran.err.contains("FIELDFARE_ISA"), "{ran:?}");
            continue;
        }
        assert!(ran.code == 0 && ran.out.contains("Paris"), "{isa}: {ran:?}");
    }
}

#[test]
fn a_schema_binds_the_answer() {
    let temp = tempfile::tempdir().unwrap();
    let file = |name: &str, schema: &Value| {
        let path = temp.path().join(name);
        std::fs::write(&path, schema.to_string()).unwrap();
        path.display().to_string()
    };
    let schema = json!({ "type": "object", "properties": { "city": { "enum": ["Rome", "Oslo"] },
        "people": { "type": "integer" } }, "required": ["city", "people"], "additionalProperties": false });
    let path = file("schema.json", &schema);
    for command in [
        vec![
            "chat",
            "--model",
            "demo",
            "--quiet",
            "--max-new",
            "200",
            "--json-schema",
            &path,
            "Tell me a story.",
        ],
        vec![
            "chat",
            "--model",
            "demo",
            "--quiet",
            "--max-new",
            "300",
            "--think",
            "--json-schema",
            &path,
            "Hi",
        ],
        vec![
            "generate",
            "--model",
            "demo",
            "--quiet",
            "--max-new",
            "200",
            "--json-schema",
            &path,
            "--prompt",
            "x",
        ],
    ] {
        let home = Home::new();
        let mut command = home.command(command);
        command.env("XDG_DATA_HOME", data());
        let ran = ran(command);
        assert_eq!(ran.code, 0, "{ran:?}");
        let value: Value = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
        assert!(
            ["Rome", "Oslo"].contains(&value["city"].as_str().unwrap())
                && (value["people"].is_i64() || value["people"].is_u64()),
            "{value}"
        );
    }
    // Told before the model is opened.
    for (name, schema) in [("not.json", json!({ "not": {} })), ("loop.json", json!({ "$ref": "#" }))] {
        let path = file(name, &schema);
        let home = Home::new();
        let ran = home.run(["chat", "--model", "nowhere", "--json-schema", &path, "Hi"]);
        assert!(ran.code == 2 && ran.err.contains(name), "{ran:?}");
    }
}
