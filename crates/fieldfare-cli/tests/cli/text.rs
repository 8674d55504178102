//! Text in, text out, on the tiny model. Its text means nothing; where it goes and what surrounds it does.

use crate::support::{Home, binary, ran, tiny_model};
use std::io::Read;
use std::process::{Command, Stdio};

const SHORT: [&str; 4] = ["--max-new", "6", "--seed", "7"];

#[test]
fn one_json_line_with_the_promised_fields() {
    let home = Home::new();
    let ran = home.run_model(["generate", "--prompt", "abc", "--json"].into_iter().chain(SHORT));
    assert_eq!(ran.code, 0, "{ran:?}");
    let value = ran.json();
    for field in ["text", "token_ids", "finish_reason", "prompt_tokens", "timings"] {
        assert!(value.get(field).is_some(), "{field}: {value}");
    }
    assert_eq!(value["seed"], 7);
    assert!(value["token_ids"].as_array().unwrap().len() <= 6);
    let chat = home.run_model(["chat", "--json", "hello", "there"].into_iter().chain(SHORT));
    assert!(chat.json()["text"].is_string(), "{chat:?}");
}

#[test]
fn the_answer_is_all_of_standard_output() {
    let home = Home::new();
    for command in [vec!["generate", "--prompt", "abc"], vec!["chat", "abc"]] {
        let json = home.run_model(command.iter().copied().chain(["--json"]).chain(SHORT)).json();
        let text = json["text"].as_str().unwrap();
        let ran = home.run_model(command.iter().copied().chain(SHORT));
        assert_eq!(ran.out.trim_end_matches('\n'), text.trim_end_matches('\n'), "{command:?}");
        assert!(ran.err.contains("tokens"), "{ran:?}");
        assert!(!ran.err.contains('\u{1b}') && !ran.err.contains('\r'), "{ran:?}");
        let quiet = home.run_model(command.iter().copied().chain(["--quiet"]).chain(SHORT));
        assert_eq!((quiet.out, quiet.err.as_str()), (ran.out, ""));
    }
}

#[test]
fn the_locale_changes_nothing() {
    let home = Home::new();
    let prompt = "Grüße, 你好, 🎉 — repeat this";
    let args = || ["generate", "--prompt", prompt, "--json"].into_iter().chain(SHORT);
    let mut ids = Vec::new();
    for locale in ["C", "POSIX", "C.UTF-8", "xx_XX.ISO-8859-1"] {
        let mut command = home.model_command(args());
        command.env("LANG", locale).env("LC_ALL", locale);
        let value = ran(command).json();
        ids.push((value["prompt_tokens"].clone(), value["token_ids"].clone(), value["text"].clone()));
    }
    assert!(ids.windows(2).all(|pair| pair[0] == pair[1]), "{ids:?}");
    // Through a file and through a pipe it is the same prompt.
    let file = home.write("prompt", prompt);
    let ran_file = home
        .run_model(["generate", "--prompt-file", file.to_str().unwrap(), "--json"].into_iter().chain(SHORT));
    assert_eq!(ran_file.json()["token_ids"], ids[0].1);
    let mut piped = home.model_command(["generate", "--prompt-file", "-", "--json"].into_iter().chain(SHORT));
    piped.write_stdin(prompt);
    assert_eq!(ran(piped).json()["token_ids"], ids[0].1);
}

#[test]
fn chat_takes_text_a_pipe_or_a_conversation() {
    let home = Home::new();
    let argument = home.run_model(["chat", "--json", "hello you"].into_iter().chain(SHORT)).json();
    let mut command = home.model_command(["chat", "--json"].into_iter().chain(SHORT));
    command.write_stdin("hello you\n");
    assert_eq!(ran(command).json()["token_ids"], argument["token_ids"]);
    let mut command = home.model_command(["chat", "--json", "--messages-file", "-"].into_iter().chain(SHORT));
    command.write_stdin(r#"[{"role": "user", "content": "hello you"}]"#);
    let messages = ran(command).json();
    assert_eq!(messages["token_ids"], argument["token_ids"]);
    let system =
        home.run_model(["chat", "--json", "--system", "Be brief.", "hello you"].into_iter().chain(SHORT));
    assert_ne!(system.json()["prompt_tokens"], argument["prompt_tokens"]);
}

#[test]
fn thoughts_never_reach_standard_output() {
    let home = Home::new();
    let ran = home.run_model(["chat", "--think", "--json", "hello"].into_iter().chain(SHORT));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.json()["text"].is_string());
}

#[test]
fn tokens_beyond_the_vocabulary_are_refused_by_index_and_id() {
    let home = Home::new();
    for command in ["generate", "score"] {
        let mut command = home.model_command([command, "--tokens-file", "-", "--json"]);
        command.write_stdin("[2, 511, 512]");
        ran(command).fails(1, "token 2 has the id 512");
    }
}

#[test]
fn a_prompt_longer_than_the_context_names_both_numbers() {
    let home = Home::new();
    let ids: Vec<u32> = (0..40).map(|i| 2 + i % 300).collect();
    let mut command = home.model_command(["generate", "--tokens-file", "-", "--max-context", "32"]);
    command.write_stdin(serde_json::to_string(&ids).unwrap());
    let ran = ran(command);
    let err = ran.fails(1, "40");
    assert!(err.contains("32") && err.contains("--max-context"), "{err}");
}

#[test]
fn scores_have_one_entry_for_each_step() {
    let home = Home::new();
    let mut command = home.model_command(["score", "--tokens-file", "-", "--json", "--top", "3"]);
    command.write_stdin("[2, 5, 9, 100]");
    let value = ran(command).json();
    assert_eq!(value["tokens"], serde_json::json!([2, 5, 9, 100]));
    assert_eq!(value["logprobs"].as_array().unwrap().len(), 3);
    assert!(value["logprobs"].as_array().unwrap().iter().all(|p| p.as_f64().unwrap() <= 0.0));
    assert!(value["perplexity"].as_f64().unwrap() > 1.0);
    let top = value["top"].as_array().unwrap();
    assert_eq!(top[0].as_array().unwrap().len(), 3);
    let file = home.write("text", "a few words");
    let ran = home.run_model(["score", "--text-file", file.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("perplexity"), "{ran:?}");
}

#[test]
fn nobody_reading_is_a_quiet_end() {
    let home = Home::new();
    let mut child = Command::new(binary())
        .args(["generate", "--prompt", "hello", "--max-new", "3000", "--temperature", "0", "--model"])
        .arg(tiny_model())
        .envs(home.environment())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0u8; 1];
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut first).unwrap();
    drop(out);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(!err.contains("error") && !err.contains("panic"), "{err}");
}

#[test]
fn chunks_slots_and_policies_change_nothing() {
    let home = Home::new();
    let ids: Vec<u32> = (0..50).map(|i| 2 + (i * 37) % 500).collect();
    let file = home.write("ids.json", serde_json::to_string(&ids).unwrap());
    let run = |options: &[&str]| {
        let common =
            ["generate", "--tokens-file", file.to_str().unwrap(), "--json", "--max-new", "12", "--seed", "3"];
        home.run_model(common.into_iter().chain(options.iter().copied())).json()["token_ids"].clone()
    };
    let wanted = run(&[]);
    for options in [
        ["--prefill-chunk-tokens", "1"],
        ["--prefill-chunk-tokens", "7"],
        ["--prefill-chunk-tokens", "32"],
        ["--expert-cache-slots", "2"],
        ["--expert-cache-slots", "16"],
        ["--expert-cache-policy", "lru"],
        ["--threads", "1"],
        ["--memory", "400MiB"],
        ["--memory", "1.5GiB"],
        ["--reads", "direct"],
        ["--reads", "buffered"],
        ["--core", "copied"],
    ] {
        assert_eq!(run(&options), wanted, "{options:?}");
    }
}

#[test]
fn the_memory_plan_is_said_and_kept_to() {
    let home = Home::new();
    let args = |memory| ["generate", "--prompt", "abc", "--max-new", "3", "--memory", memory];
    let ran = home.run_model(args("1GiB"));
    let err = &ran.err;
    assert!(err.starts_with("memory ") && err.contains(" of 1074 MB: core "), "{err}");
    assert!(err.contains(" reads\n") && err.lines().count() == 2, "{err}");
    let json = home.run_model(args("1GiB").into_iter().chain(["--json", "--quiet"])).json();
    assert_eq!(json["memory"]["plan"]["limit_bytes"], 1u64 << 30);
    assert_eq!(json["memory"]["slots"], json["memory"]["plan"]["slots"]);
    let little = home.run_model(args("1MiB"));
    let err = little.fails(2, "memory: this model needs ");
    assert!(err.contains(" MB at 4096 tokens of context, 1 MB are given"), "{err}");
    home.run_model(args("2G")).fails(2, "write GiB (of 1024) or GB (of 1000)");
}

#[test]
fn kernels_that_cannot_be_had_are_refused() {
    let home = Home::new();
    let mut command = home.model_command(["generate", "--prompt", "x", "--max-new", "1"]);
    command.env("FIELDFARE_ISA", "avx9");
    ran(command).fails(2, "FIELDFARE_ISA: \"avx9\" is not an instruction set");
}
