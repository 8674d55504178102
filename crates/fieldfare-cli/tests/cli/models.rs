//! Where models come from: found, not found, installed, converted, verified, inspected.

use crate::support::{Home, Ran, copy, install, tiny_model};
use std::path::Path;

fn with_path(home: &Home, command: &str, path: &Path) -> Ran {
    home.run([command.as_ref(), path.as_os_str()])
}

#[test]
fn a_missing_model_says_what_was_looked_at() {
    let home = Home::new();
    let err = home.run(["generate", "--prompt", "x"]).fails(1, "no model found").to_owned();
    for place in ["--model", "FIELDFARE_MODEL", "models/default", "*.gturbo", "fieldfare install"] {
        assert!(err.contains(place), "{place}: {err}");
    }
    home.run(["generate", "--prompt", "x", "--model", "/nonexistent/m"])
        .fails(1, "no model at /nonexistent/m");
    let mut command = home.command(["generate", "--prompt", "x", "--json"]);
    command.env("FIELDFARE_MODEL", "/nonexistent/v");
    crate::support::ran(command).fails(1, "no model at /nonexistent/v (named by FIELDFARE_MODEL)");
    let file = home.write("file", "");
    with_path(&home, "inspect", &file).fails(1, "not a directory");
    let empty = home.path("home");
    with_path(&home, "verify", &empty).fails(1, "no model at");
}

#[test]
fn an_installed_model_is_found_in_the_data_folder() {
    let home = Home::new();
    let from = fieldfare_testing::tiny_checkpoint();
    let ran = home.run(["install".as_ref(), "--from".as_ref(), from.as_os_str()]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(home.path("data/fieldfare/models/tiny-gemma4-a.gturbo/manifest.json").is_file());
    let ran = home.run(["generate", "--prompt", "x", "--max-new", "2", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(home.run(["inspect"]).code, 0);
    assert_eq!(home.run(["verify"]).code, 0);
}

#[test]
fn install_leaves_what_it_does_not_own() {
    let home = Home::new();
    let path = home.path("taken.gturbo");
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("precious"), "x").unwrap();
    for overwrite in [false, true] {
        let from = fieldfare_testing::tiny_checkpoint();
        let mut args = vec!["install".as_ref(), "--from".as_ref(), from.as_os_str(), "--output".as_ref()];
        args.push(path.as_os_str());
        if overwrite {
            args.push("--overwrite".as_ref());
        }
        home.run(args).fails(1, "taken.gturbo");
        assert_eq!(std::fs::read(path.join("precious")).unwrap(), b"x");
    }
    let missing = home.path("missing");
    home.run(["install".as_ref(), "--from".as_ref(), missing.as_os_str()]).fails(1, "missing");
}

#[test]
fn converting_there_and_back_gives_the_same_model() {
    let home = Home::new();
    let (v1, tiled, again) = (home.path("a.gturbo"), home.path("b.gturbo"), home.path("c.gturbo"));
    assert_eq!(install(&home, &v1, "v1").code, 0);
    let convert = |from: &Path, layout: &str, to: &Path| {
        home.run([
            "convert".as_ref(),
            from.as_os_str(),
            "--layout".as_ref(),
            layout.as_ref(),
            "--output".as_ref(),
            to.as_os_str(),
        ])
    };
    let ran = convert(&v1, "tiled", &tiled);
    assert_eq!(ran.code, 0, "{ran:?}");
    let ran = convert(&tiled, "v1", &again);
    assert_eq!(ran.code, 0, "{ran:?}");
    for file in
        ["manifest.json", "model_weights.bin", "packed_experts/layout.json", "packed_experts/layer_00.bin"]
    {
        assert!(std::fs::read(v1.join(file)).unwrap() == std::fs::read(again.join(file)).unwrap(), "{file}");
    }
    convert(&v1, "tiled", &tiled).fails(1, "b.gturbo");
    let text = |model: &Path| {
        let ran = home.run([
            "generate".as_ref(),
            "--prompt".as_ref(),
            "abc".as_ref(),
            "--max-new".as_ref(),
            "8".as_ref(),
            "--temperature".as_ref(),
            "0".as_ref(),
            "--json".as_ref(),
            "--model".as_ref(),
            model.as_os_str(),
        ]);
        ran.json()["token_ids"].clone()
    };
    assert_eq!(text(&v1), text(&tiled));
}

#[test]
fn inspection_is_a_table_for_people_and_json_for_programs() {
    let home = Home::new();
    let ran = with_path(&home, "inspect", tiny_model());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    assert!(ran.out.contains("tiled"), "{}", ran.out);
    let ran = home.run(["inspect".as_ref(), "--json".as_ref(), tiny_model().as_os_str()]);
    assert!(ran.json().is_object());
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_with_a_name_that_is_no_text_is_inspected_too() {
    use std::os::unix::ffi::OsStrExt;
    let home = Home::new();
    let link = home.path("models").with_file_name(std::ffi::OsStr::from_bytes(b"m\xff.gturbo"));
    std::os::unix::fs::symlink(tiny_model(), &link).unwrap();
    let ran = home.run(["inspect".as_ref(), "--json".as_ref(), link.as_os_str()]);
    assert!(ran.json()["path"].as_str().unwrap().ends_with("m\u{fffd}.gturbo"));
}

#[test]
fn verification_sums_up_and_names_strays() {
    let home = Home::new();
    let model = home.path("m.gturbo");
    copy(tiny_model(), &model);
    let ran = with_path(&home, "verify", &model);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("files"), "{ran:?}");
    std::fs::write(model.join("stray.txt"), "x").unwrap();
    let ran = with_path(&home, "verify", &model);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("stray.txt"), "{ran:?}");
}

#[test]
fn two_verifications_at_once_both_succeed() {
    let home = Home::new();
    let model = home.path("m.gturbo");
    copy(tiny_model(), &model);
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..3).map(|_| scope.spawn(|| with_path(&home, "verify", &model))).collect();
        for run in runs {
            let ran = run.join().unwrap();
            assert_eq!(ran.code, 0, "{ran:?}");
        }
    });
}

#[test]
fn a_source_without_tokenizer_installs_with_a_warning_and_takes_tokens_only() {
    let home = Home::new();
    let source = home.path("source");
    copy(&fieldfare_testing::tiny_checkpoint(), &source);
    std::fs::remove_file(source.join("tokenizer.json")).unwrap();
    std::fs::remove_file(source.join("tokenizer_config.json")).unwrap();
    let model = home.path("m.gturbo");
    let ran = home.run([
        "install".as_ref(),
        "--from".as_ref(),
        source.as_os_str(),
        "--output".as_ref(),
        model.as_os_str(),
    ]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("warning: ") && ran.err.contains("tokenizer"), "{ran:?}");
    assert!(ran.err.contains("--tokens-file") && !ran.err.contains("fieldfare chat"), "{ran:?}");
    let with = |args: &[&str]| {
        let mut command = home.command(args);
        command.env("FIELDFARE_MODEL", &model).write_stdin("[2, 5, 9]");
        crate::support::ran(command)
    };
    with(&["chat", "hello"]).fails(1, "no tokenizer");
    with(&["generate", "--prompt", "hello"]).fails(1, "no tokenizer");
    let ran = with(&["generate", "--tokens-file", "-", "--max-new", "3", "--json"]);
    assert_eq!(ran.json()["token_ids"].as_array().unwrap().len(), 3, "{ran:?}");
    let ran = with(&["score", "--tokens-file", "-", "--json"]);
    assert_eq!(ran.json()["logprobs"].as_array().unwrap().len(), 2, "{ran:?}");
}

/// The commands that are about nothing but a model take it by place and, as all others do, by option.
#[test]
fn a_model_is_named_by_place_or_by_option() {
    let home = Home::new();
    let tiny = tiny_model().to_str().unwrap();
    for command in ["verify", "inspect"] {
        for args in [&[tiny][..], &["--model", tiny], &["-m", tiny]] {
            assert_eq!(home.run([command].iter().chain(args)).code, 0, "{command} {args:?}");
        }
        home.run([command, tiny, "--model", tiny]).fails(2, "cannot be used with");
        home.run([command, "--model", "/nowhere"]).fails(1, "no model at /nowhere");
    }
    for (number, args) in [&[tiny][..], &["--model", tiny]].into_iter().enumerate() {
        let output = home.path(&number.to_string());
        let rest = ["--layout", "v1", "--output", output.to_str().unwrap()];
        assert_eq!(home.run(["convert"].iter().chain(args).chain(&rest)).code, 0, "{args:?}");
        assert!(output.join("manifest.json").is_file());
    }
    home.run(["convert", "--layout", "v1", "--output", "x"]).fails(2, "<SRC|--model <DIR>>");
}

#[test]
fn all_commands_name_the_same_least_memory() {
    let home = Home::new();
    let needs = |said: &str| -> u64 {
        let number = said.split("this model needs ").nth(1).and_then(|rest| rest.split(' ').next());
        number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{said}"))
    };
    let wanted = needs(&home.run_model(["inspect", "--memory", "1MB"]).out);
    let text = home.write("text", "some words");
    for command in [
        vec!["chat", "hello"],
        vec!["generate", "--prompt", "x"],
        vec!["score", "--text-file", text.to_str().unwrap()],
    ] {
        let ran = home.run_model([&command[..], &["--memory", "1MB"]].concat());
        assert_eq!(needs(ran.fails(2, "this model needs")), wanted, "{command:?}");
    }
    // What is bound to a grammar, as a server's answers are, needs that besides.
    let schema = home.write("schema", "{}");
    let bound = ["chat", "hello", "--json-schema", schema.to_str().unwrap(), "--memory", "1MB"];
    let bound = needs(home.run_model(bound).fails(2, "this model needs"));
    assert!(bound > wanted + 20, "{bound} and {wanted}");
    let serve = home.run_model(["serve", "--port", "0", "--max-context", "4096", "--memory", "1MB"]);
    assert_eq!(needs(serve.fails(2, "this model needs")), bound);
}
