//! Help, wrong use, closed pipes: everything that needs no model.

use crate::support::{Home, binary};
use std::process::{Command, Stdio};

const COMMANDS: [&str; 12] = [
    "install",
    "convert",
    "verify",
    "inspect",
    "chat",
    "serve",
    "generate",
    "score",
    "bench",
    "doctor",
    "completions",
    "man",
];

#[test]
fn help_lists_every_command_and_each_has_help() {
    let home = Home::new();
    let help = home.run(["--help"]);
    assert_eq!((help.code, help.err.as_str()), (0, ""));
    for command in COMMANDS {
        assert!(help.out.contains(&format!("\n  {command} ")), "{command}: {}", help.out);
        let own = home.run([command, "--help"]);
        assert_eq!(own.code, 0);
        assert!(own.out.contains(&format!("Usage: fieldfare {command}")), "{}", own.out);
    }
    assert_eq!(home.run(["help", "chat"]).out, home.run(["chat", "--help"]).out);
    assert!(home.run(["--version"]).out.starts_with("fieldfare "));
}

#[test]
fn wrong_use_is_exit_code_2_with_one_error_and_one_hint() {
    let home = Home::new();
    for (args, says) in [
        (vec!["generat"], "unrecognized subcommand 'generat'"),
        (vec!["generate"], "--prompt <TEXT>"),
        (vec!["generate", "--prompt", "x", "--temperature", "NaN"], "must be from 0 to 2"),
        (vec!["generate", "--prompt", "x", "--max-new", "-1"], "must be from 1 to 1048576"),
        (vec!["generate", "--prompt", "x", "--max-context", "1e9"], "not a whole number"),
        (vec!["generate", "--prompt", "x", "--max-new", "18446744073709551616"], "must be from 1"),
        (vec!["generate", "--prompt", "x", "--tokens-file", "y"], "cannot be used with"),
        (vec!["generate", "--prompt", "x", "--expert-cache-policy", "fifo"], "lfu, lfu-total, lru"),
        (vec!["generate", "--prompt", ""], "is empty"),
        (vec!["chat", "   "], "is empty"),
        (vec!["score"], "--text-file <FILE>"),
        (vec!["install", "--connections", "0"], "--connections"),
        (vec!["bench", "--memory", "2GiB,2G"], "write GiB (of 1024) or GB (of 1000)"),
        (vec!["bench", "--memory", "2GiB,"], "a size"),
        (vec!["bench", "--prompt", "16,0"], "must be from 1 to 1048576"),
        (vec!["bench", "--runs", "many"], "not a whole number"),
        (vec!["bench", "--routing", "synthetic:x"], "the seed is not a whole number"),
        (vec!["serve", "--host", "0.0.0.0", "--port", "0"], "there is no API key"),
        (vec!["serve", "--host", "localhost"], "--host <IP>"),
        (vec!["serve", "--port", "65536"], "--port <N>"),
        (vec!["man", "nothing"], "no command 'nothing'"),
    ] {
        let ran = home.run(&args);
        let err = ran.fails(2, says);
        assert_eq!(err.lines().count(), 2, "{args:?}: {err}");
        assert!(err.lines().nth(1).unwrap().starts_with("hint: "), "{err}");
    }
}

#[test]
fn without_a_command_the_help_is_shown_as_wrong_use() {
    let home = Home::new();
    let args: [&str; 0] = [];
    let ran = home.run(args);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("Usage: fieldfare"));
}

#[test]
fn completions_and_pages_know_the_options() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = home.run(["completions", shell]).out;
        assert!(script.contains("prefill-chunk-tokens"), "{shell}");
    }
    assert!(home.run(["man"]).out.contains(".TH fieldfare 1"));
    assert!(home.run(["man", "chat"]).out.contains("messages\\-file"));
    let folder = home.path("man");
    assert_eq!(home.run(["man".as_ref(), "--output".as_ref(), folder.as_os_str()]).code, 0);
    let mut pages: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    let mut expected: Vec<_> = COMMANDS.iter().map(|command| format!("fieldfare-{command}.1")).collect();
    expected.push("fieldfare.1".to_owned());
    expected.sort();
    assert_eq!(pages, expected);
}

#[test]
fn a_closed_pipe_is_a_quiet_end() {
    for args in [vec!["completions", "bash"], vec!["man"], vec!["--help"]] {
        let mut child =
            Command::new(binary()).args(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let home = Home::new();
    for args in [&["completions", "bash"][..], &["--help"], &["chat", "-h"], &["--version"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(binary())
            .args(args)
            .envs(home.environment())
            .stdout(full)
            .stderr(Stdio::piped())
            .spawn()
            .and_then(std::process::Child::wait_with_output)
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(err.starts_with("error: cannot write the output: "), "{args:?} {err}");
    }
}

#[test]
fn bad_input_is_refused_before_any_model_is_looked_for() {
    let home = Home::new();
    let latin1 = home.write("latin1.txt", b"Gr\xfc\xdfe");
    for ran in [
        home.run(["generate".as_ref(), "--prompt-file".as_ref(), latin1.as_os_str()]),
        home.run(["score".as_ref(), "--text-file".as_ref(), latin1.as_os_str()]),
    ] {
        ran.fails(1, "latin1.txt is not UTF-8: bad byte 0xfc at offset 2");
    }
    let mut command = home.command(["chat"]);
    command.write_stdin(b"Gr\xfc\xdfe");
    crate::support::ran(command).fails(1, "standard input is not UTF-8: bad byte 0xfc at offset 2");
    let mut command = home.command(["generate", "--tokens-file", "-", "--json"]);
    command.write_stdin("[2, -1]");
    crate::support::ran(command).fails(1, "standard input: entry 1: invalid value: integer `-1`");
    for nothing in ["", " \n"] {
        let mut command = home.command(["chat"]);
        command.write_stdin(nothing);
        let ran = crate::support::ran(command);
        assert!(ran.fails(2, "standard input is empty").contains("fieldfare chat"), "{ran:?}");
    }
    let mut command = home.command(["chat", "--messages-file", "-"]);
    command.write_stdin(r#"[{"role": "user"}, {"role": "elf", "content": "x"}]"#);
    crate::support::ran(command).fails(1, "messages[1].role");
    let mut command = home.command(["chat", "--system", "x", "--messages-file", "-"]);
    command.write_stdin(r#"[{"role": "user"}]"#);
    crate::support::ran(command).fails(1, "standard input: messages[0].content: is missing");
    let mut command = home.command(["chat", "--messages-file", "-"]);
    let image = r#"{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}"#;
    command.write_stdin(format!(r#"[{{"role": "user", "content": [{image}]}}]"#));
    crate::support::ran(command).fails(1, "messages[0].content: only text is supported");
    home.run(["generate", "--prompt-file", "/nonexistent/x"]).fails(1, "cannot open /nonexistent/x");
}
