//! The built-in model: asked for by name everywhere, never taken for an installed one. What it says is not looked at.

use crate::support::{Home, binary, ran, tiny_model};
use std::process::{Command, Stdio};

const SHORT: [&str; 4] = ["--max-new", "2", "--seed", "7"];

fn unpacked(home: &Home) -> std::path::PathBuf {
    home.path("data/fieldfare/models/demo.gturbo")
}

#[test]
fn every_command_takes_it_and_only_the_first_unpacks() {
    let home = Home::new();
    let first = home.run(["chat", "--model", "demo", "hello"].into_iter().chain(SHORT));
    assert_eq!(first.code, 0, "{first:?}");
    assert!(first.err.contains("unpacked") && first.err.contains("a toy"), "{first:?}");
    assert!(unpacked(&home).join("manifest.json").is_file());
    let file = home.write("text", "a few words");
    let file = file.to_str().unwrap();
    for args in [
        vec!["chat", "--model", "demo", "hello", "--max-new", "2"],
        vec!["generate", "--model", "demo", "--prompt", "x", "--max-new", "2"],
        vec!["score", "--model", "demo", "--text-file", file],
        vec!["inspect", "demo"],
        vec!["verify", "demo"],
        vec!["convert", "demo", "--layout", "v1", "--output", home.path("v1.gturbo").to_str().unwrap()],
    ] {
        let ran = home.run(&args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        assert!(!ran.err.contains("unpacked"), "{args:?}: {ran:?}");
    }
    assert!(home.run(["inspect", "demo"]).out.contains("a toy"));
    let mut command = home.command(["generate", "--prompt", "x", "--json"].into_iter().chain(SHORT));
    command.env("FIELDFARE_MODEL", "demo");
    assert_eq!(ran(command).code, 0);
}

#[test]
fn quiet_is_quiet_and_a_folder_of_that_name_is_another_thing() {
    let home = Home::new();
    let ran = home.run(["chat", "--quiet", "--model", "demo", "hello"].into_iter().chain(SHORT));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    home.run(["inspect", "./demo"]).fails(1, "no model at ./demo");
}

#[test]
fn nobody_gets_a_toy_unasked() {
    let home = Home::new();
    assert_eq!(home.run(["verify", "demo"]).code, 0);
    for args in [vec!["chat", "hello"], vec!["generate", "--prompt", "x"], vec!["inspect"]] {
        let ran = home.run(&args);
        let err = ran.fails(1, "no model found");
        assert!(err.contains("--model demo") && err.contains("fieldfare install"), "{err}");
    }
    // With one real model installed, that is the default.
    let from = fieldfare_testing::tiny_checkpoint();
    assert_eq!(home.run(["install".as_ref(), "--from".as_ref(), from.as_os_str()]).code, 0);
    let found = home.run(["inspect", "--json"]).json();
    assert!(found["path"].as_str().unwrap().ends_with("tiny-gemma4-a.gturbo"), "{found}");
}

#[test]
fn a_checkpoint_called_demo_needs_another_name() {
    let home = Home::new();
    let source = home.path("demo");
    crate::support::copy(&fieldfare_testing::tiny_checkpoint(), &source);
    home.run(["install".as_ref(), "--from".as_ref(), source.as_os_str()]).fails(2, "built-in model");
    // Where somebody put one in its place nevertheless, it stays.
    std::fs::create_dir_all(unpacked(&home).parent().unwrap()).unwrap();
    crate::support::copy(tiny_model(), &unpacked(&home));
    home.run(["verify", "demo"]).fails(1, "move it away");
}

#[test]
fn two_first_starts_at_once_both_work() {
    let home = Home::new();
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..3).map(|_| scope.spawn(|| home.run(["inspect", "demo"]))).collect();
        let runs: Vec<_> = runs.into_iter().map(|run| run.join().unwrap()).collect();
        assert!(runs.iter().all(|ran| ran.code == 0), "{runs:?}");
        assert_eq!(runs.iter().filter(|ran| ran.err.contains("unpacked")).count(), 1, "{runs:?}");
    });
}

#[test]
fn without_a_home_it_goes_where_it_can() {
    let home = Home::new();
    let mut command = home.command(["generate", "--model", "demo", "--prompt", "x"].into_iter().chain(SHORT));
    for name in ["HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"] {
        command.env_remove(name);
    }
    command.env("HOME", home.write("file", ""));
    let ran = ran(command);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(home.path("run/fieldfare/models/demo.gturbo").is_dir(), "{ran:?}");
}

#[cfg(unix)]
#[test]
fn killed_or_stopped_while_it_unpacks_it_starts_anew() {
    for signal in ["-KILL", "-INT"] {
        let home = Home::new();
        let models = home.path("data/fieldfare/models");
        let mut child = Command::new(binary())
            .args(["inspect", "demo"])
            .envs(home.environment())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Usually half-way; whenever it is, what follows must hold.
        while !models.join(".demo.unpacking").exists() && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        let _ = Command::new("kill").args([signal, &child.id().to_string()]).stderr(Stdio::null()).status();
        let code = child.wait().unwrap().code();
        if signal == "-INT" {
            assert!(matches!(code, Some(130 | 0)), "{code:?}");
            let left: Vec<_> = std::fs::read_dir(&models).unwrap().map(|e| e.unwrap().file_name()).collect();
            let work = |name: &&std::ffi::OsString| {
                let name = name.to_string_lossy();
                name.contains("unpacking") || name.contains("partial")
            };
            assert_eq!(left.iter().find(work), None, "{left:?}");
        }
        assert_eq!(home.run(["verify", "demo"]).code, 0, "{signal}");
    }
}
