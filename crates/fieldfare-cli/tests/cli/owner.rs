//! One process for one model, and how a process that is asked to stop ends.

use crate::support::{Home, binary, copy, tiny_model};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The tiny model without tokenizer and without ids that end an answer: it goes on until it is stopped.
fn endless_model() -> &'static Path {
    static MODEL: OnceLock<(Home, PathBuf)> = OnceLock::new();
    let (_, path) = MODEL.get_or_init(|| {
        let home = Home::new();
        let source = home.path("source");
        copy(&fieldfare_testing::tiny_checkpoint(), &source);
        for name in ["tokenizer.json", "tokenizer_config.json"] {
            std::fs::remove_file(source.join(name)).unwrap();
        }
        let config = std::fs::read_to_string(source.join("config.json")).unwrap();
        let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
        config.as_object_mut().unwrap().remove("eos_token_id");
        config["text_config"].as_object_mut().unwrap().remove("eos_token_id");
        std::fs::write(source.join("config.json"), config.to_string()).unwrap();
        let path = home.path("endless.gturbo");
        let args = ["install".as_ref(), "--from".as_ref(), source.as_os_str(), "--output".as_ref()];
        let ran = home.run(args.into_iter().chain([path.as_os_str()]));
        assert_eq!(ran.code, 0, "{ran:?}");
        (home, path)
    });
    path
}

/// A generation that goes on for minutes unless it is stopped; returns when it owns the model.
fn long_generation(home: &Home, json: bool) -> Child {
    let tokens = home.write("tokens.json", "[2, 5]");
    let mut command = Command::new(binary());
    command.args(["generate", "--max-new", "32000", "--max-context", "32768", "--tokens-file"]);
    command.arg(tokens).arg("--model").arg(endless_model()).envs(home.environment());
    if json {
        command.arg("--json");
    }
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_owner(home);
    child
}

fn wait_for_owner(home: &Home) {
    let owned = || {
        let notes = std::fs::read_dir(home.path("run/fieldfare")).into_iter().flatten();
        notes.flatten().any(|entry| entry.path().extension().is_some_and(|end| end == "owner"))
    };
    let end = Instant::now() + Duration::from_secs(120);
    // The lock is the first thing that is taken, after signals are listened to.
    while !owned() {
        assert!(Instant::now() < end, "nobody took the model");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(unix)]
fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[cfg(unix)]
#[test]
fn the_second_owner_is_told_about_the_first_and_the_lock_dies_with_it() {
    let home = Home::new();
    let mut first = long_generation(&home, false);
    let second = || {
        let mut command = home.command(["generate", "--tokens-file", "-", "--max-new", "1", "--json"]);
        command.env("FIELDFARE_MODEL", endless_model()).write_stdin("[2]");
        crate::support::ran(command)
    };
    let refused = second();
    let err = refused.fails(1, "is in use by").to_owned();
    assert!(err.contains(&first.id().to_string()) && err.contains("generate"), "{err}");
    signal(&first, "-KILL");
    first.wait().unwrap();
    assert_eq!(second().code, 0);
}

#[cfg(unix)]
#[test]
fn ctrl_c_is_exit_code_130() {
    let home = Home::new();
    // A process that ends at once is no clean end: the statistics say that it was its own.
    for name in ["-INT", "-TERM"] {
        let child = long_generation(&home, false);
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{name}");
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(err.contains("finish: cancelled") && !err.contains("error"), "{err}");
    }
}

#[cfg(unix)]
#[test]
fn an_interrupted_json_answer_is_empty_or_whole() {
    let home = Home::new();
    let child = long_generation(&home, true);
    signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let out = String::from_utf8(output.stdout).unwrap();
    if !out.is_empty() {
        let value: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(value["finish_reason"], "cancelled");
    }
}

#[cfg(unix)]
#[test]
fn an_interrupted_score_prints_nothing() {
    let home = Home::new();
    let ids: Vec<u32> = (0..32_000).map(|i| 2 + i % 500).collect();
    let tokens = home.write("long.json", serde_json::to_string(&ids).unwrap());
    let mut command = Command::new(binary());
    command
        .args(["score", "--max-context", "32768", "--json", "--quiet", "--tokens-file"])
        .arg(tokens)
        .arg("--model")
        .arg(endless_model());
    command.envs(home.environment()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_for_owner(&home);
    signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
}

#[cfg(unix)]
#[test]
fn a_read_only_model_directory_works() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let model = home.path("m.gturbo");
    copy(tiny_model(), &model);
    std::fs::set_permissions(&model, std::fs::Permissions::from_mode(0o555)).unwrap();
    let mut command = home.command(["generate", "--prompt", "x", "--max-new", "1"]);
    command.env("FIELDFARE_MODEL", &model);
    let ran = crate::support::ran(command);
    std::fs::set_permissions(&model, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn no_home_and_no_runtime_folder_is_no_obstacle() {
    let home = Home::new();
    let mut command = home.command(["generate", "--prompt", "x", "--max-new", "1", "--model"]);
    command.arg(tiny_model());
    for name in ["HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"] {
        command.env_remove(name);
    }
    command.env("TMPDIR", home.path("run"));
    let ran = crate::support::ran(command);
    assert_eq!(ran.code, 0, "{ran:?}");
}
