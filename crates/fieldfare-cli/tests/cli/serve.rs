//! The server as a command: it says where it is, answers, ends on a signal, and explains why it does not start.

use crate::support::{Home, binary};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for anything; a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server on a free port, and its address.
fn start(home: &Home, more: &[&str]) -> (Child, BufReader<std::process::ChildStderr>, String) {
    let (child, lines, address, _) = start_with_lines(home, more);
    (child, lines, address)
}

/// And what it said before.
fn start_with_lines(
    home: &Home,
    more: &[&str],
) -> (Child, BufReader<std::process::ChildStderr>, String, Vec<String>) {
    let args = ["serve", "--model", "demo", "--port", "0", "--max-context", "512"];
    let mut command = Command::new(binary());
    command.args(args.iter().chain(more)).envs(home.environment()).env_remove("FIELDFARE_API_KEY");
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut said = Vec::new();
    let line = loop {
        let mut line = String::new();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "it ended");
        if line.contains("http://") {
            break line;
        }
        said.push(line);
    };
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    (child, lines, address, said)
}

fn get(address: &str, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn interrupt(child: &mut Child) -> Option<i32> {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(Instant::now() < end, "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(unix)]
#[test]
fn it_serves_until_it_is_told_to_stop() {
    let home = Home::new();
    let (mut child, mut lines, address) = start(&home, &["--model-alias", "other"]);
    assert!(get(&address, "/v1/models", "").contains("\"id\":\"other\""));

    // The same port again, and the same model again.
    let port = address.rsplit(':').next().unwrap();
    // The port is looked at first: nobody waits for a model to be told of that.
    home.run(["serve", "--model", "demo", "--port", port]).fails(1, "is taken by another fieldfare server");
    home.run(["serve", "--model", "demo", "--port", "0"]).fails(1, "is in use by");

    assert_eq!(interrupt(&mut child), Some(0));
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("error"), "{rest}");
}

#[cfg(unix)]
#[test]
fn it_says_how_many_run_side_by_side() {
    let home = Home::new();
    // All experts of the demonstration model fit.
    for (more, says) in [
        (&[][..], "up to 4 requests side by side"),
        (&["--parallel", "2"], "up to 2 requests side by side"),
        (&["--parallel", "1"], "one request at a time"),
    ] {
        let (mut child, _lines, address, said) = start_with_lines(&home, more);
        assert!(said.iter().any(|line| line.contains(says)), "{more:?}: {said:?}");
        let most = if says.starts_with("one") { "1" } else { says.split(' ').nth(2).unwrap() };
        assert!(
            get(&address, "/metrics", "").contains(&format!("fieldfare_parallel_most {most}\n")),
            "{says}"
        );
        assert_eq!(interrupt(&mut child), Some(0));
    }
}

#[cfg(unix)]
#[test]
fn a_key_is_asked_for() {
    let home = Home::new();
    let (mut child, _lines, address) = start(&home, &["--api-key", "k1"]);
    assert!(get(&address, "/v1/models", "").starts_with("HTTP/1.1 401"));
    assert!(get(&address, "/v1/models", "authorization: Bearer k1\r\n").starts_with("HTTP/1.1 200"));
    assert_eq!(interrupt(&mut child), Some(0));
}

#[cfg(unix)]
#[test]
fn what_the_contract_names_is_understood() {
    let home = Home::new();
    let key = home.write("key", "a long word\n");
    let key = key.to_str().unwrap();
    let more = ["--api-key-file", key, "--wait-ready", "--log-format", "json", "--max-body-bytes", "1KiB"];
    let (mut child, mut lines, address) =
        start(&home, &[&more[..], &["--cors-origin", "localhost", "--thinking"]].concat());
    assert!(get(&address, "/v1/models", "x-api-key: a long wor\r\n").starts_with("HTTP/1.1 401"));
    let page = get(&address, "/v1/models", "x-api-key: a long word\r\norigin: http://localhost:3000\r\n");
    assert!(page.to_lowercase().contains("access-control-allow-origin: http://localhost:3000"), "{page}");
    let post = |body: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(
            stream,
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nx-api-key: a long word\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let body = r#"{"model":"demo","messages":[{"role":"user","content":"What is 3 + 4?"}],"max_tokens":60}"#;
    assert!(post(body).contains("\"reasoning_content\""), "it thinks");
    assert!(post(&" ".repeat(2000)).starts_with("HTTP/1.1 413"));
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let said: serde_json::Value =
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert!(said["message"].as_str().unwrap().starts_with("answered:"), "{line}");
    assert!(said["time"].as_f64().unwrap() > 1.7e9 && said["level"] == "info", "{line}");
    assert_eq!(interrupt(&mut child), Some(0));
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("\"message\":\"ending\""), "{rest}");
}

/// The disk goes while the model is open: here its file is cut short, which the system answers in the same way.
#[cfg(unix)]
#[test]
fn weights_that_can_no_longer_be_read_end_it_with_a_word() {
    let home = Home::new();
    let (mut child, mut lines, address) = start(&home, &["--core", "mapped"]);
    let weights = find(&home.path(""), "model_weights.bin").expect("the demo is installed");
    std::fs::OpenOptions::new().write(true).open(weights).unwrap().set_len(4096).unwrap();
    let body = r#"{"model":"demo","messages":[{"role":"user","content":"hi"}],"max_tokens":4}"#;
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert_eq!(child.wait().unwrap().code(), Some(1), "no signal: {answer}");
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("error: the model's weights can no longer be read"), "{rest}");
    assert!(rest.contains("hint: check the disk"), "{rest}");
}

/// A file of this name somewhere below `folder`.
#[cfg(unix)]
fn find(folder: &std::path::Path, name: &str) -> Option<std::path::PathBuf> {
    let entries: Vec<_> = std::fs::read_dir(folder).ok()?.flatten().collect();
    let found = entries.iter().map(std::fs::DirEntry::path).find(|path| path.ends_with(name));
    let below = || entries.iter().filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
    found.or_else(|| below().find_map(|entry| find(&entry.path(), name)))
}
