//! One process for one model, and how a process that is asked to stop ends.

use crate::support::{Home, binary, copy, tiny_model};
use std::io::Read;
use std::process::{Child, Command, Stdio};

/// A generation that goes on until it is stopped; returns when its first text is out.
fn long_generation(home: &Home, json: bool) -> Child {
    let mut command = Command::new(binary());
    command.args(["generate", "--prompt", "abc", "--max-new", "4000", "--max-context", "4096", "--model"]);
    command.arg(tiny_model()).envs(home.environment());
    if json {
        command.arg("--json");
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    if json {
        std::thread::sleep(std::time::Duration::from_millis(500));
    } else {
        let mut first = [0u8; 1];
        child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        // Somebody has to read on, or the pipe fills and the generation waits.
        let mut out = child.stdout.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    }
    child
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
    let second = home.run_model(["generate", "--prompt", "x", "--json"]);
    let err = second.fails(1, "is in use by").to_owned();
    assert!(err.contains(&first.id().to_string()) && err.contains("generate"), "{err}");
    signal(&first, "-KILL");
    first.wait().unwrap();
    assert_eq!(home.run_model(["generate", "--prompt", "x", "--max-new", "1"]).code, 0);
}

#[cfg(unix)]
#[test]
fn ctrl_c_is_exit_code_130() {
    let home = Home::new();
    for name in ["-INT", "-TERM"] {
        let child = long_generation(&home, false);
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{name}");
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(!err.contains("error"), "{err}");
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
