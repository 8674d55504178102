//! Who is not let in, what is cut off, who leaves early, and the end.

use crate::support::{Response, Server, open, raw, request, until};
use fieldfare::engine::EngineOptions;
use fieldfare_server::{Facts, Options, StartError, Stop, bind};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

const JSON: (&str, &str) = ("content-type", "application/json");

fn story(over: Value) -> Value {
    let mut body =
        json!({ "model": "default", "messages": [{ "role": "user", "content": "Tell me a story." }] });
    body.as_object_mut().unwrap().extend(over.as_object().unwrap().clone());
    body
}

/// A story that takes a while: without what ends an answer the toy writes on.
fn endless(server: &Server) -> Value {
    let bias: serde_json::Map<String, Value> =
        server.ends.iter().map(|id| (id.to_string(), json!(-100))).collect();
    story(json!({ "stream": true, "max_tokens": -1, "temperature": 1.0, "seed": 3, "logit_bias": bias }))
}

#[test]
fn every_way_to_be_wrong_has_its_answer() {
    let server = Server::start();
    let post =
        |path: &str, headers: &[(&str, &str)], body: &str| server.ask("POST", path, headers, body).refusal();
    let chat = "/v1/chat/completions";
    let wanted = |status: u16, code: &str| (status, code.to_owned());
    assert_eq!(server.get("/v1/embeddings").refusal(), wanted(404, "not_found"));
    assert_eq!(post("/v1/responses", &[JSON], "{}"), wanted(404, "not_found"));
    for (method, path, allow) in [
        ("GET", chat, "allow: post"),
        ("PUT", "/v1/models", "allow: get, head"),
        ("DELETE", "/health", "allow: get, head"),
        ("OPTIONS", chat, "allow: post"),
    ] {
        let response = server.ask(method, path, &[], "");
        assert_eq!(response.refusal(), wanted(405, "method_not_allowed"), "{method} {path}");
        assert!(response.headers.contains(allow), "{response:?}");
    }
    let plain = story(json!({})).to_string();
    for kind in ["text/plain", "application/x-www-form-urlencoded", ""] {
        assert_eq!(
            post(chat, &[("content-type", kind)], &plain),
            wanted(415, "unsupported_media_type"),
            "{kind}"
        );
    }
    assert_eq!(post(chat, &[], &plain), wanted(415, "unsupported_media_type"));
    let packed = [JSON, ("content-encoding", "gzip")];
    assert_eq!(post(chat, &packed, &plain), wanted(415, "unsupported_media_type"));
    let twice = [JSON, ("content-encoding", "identity"), packed[1]];
    assert_eq!(post(chat, &twice, &plain), wanted(415, "unsupported_media_type"));
    for body in ["", "{", "[]", "null"] {
        assert_eq!(post(chat, &[JSON], body), wanted(400, "invalid_json"), "{body}");
    }
    let long = "word ".repeat(5000);
    let too_long = server
        .post(chat, &story(json!({ "stream": true, "messages": [{ "role": "user", "content": long }] })));
    assert_eq!(too_long.refusal(), wanted(400, "context_length_exceeded"));
    let error = &too_long.json()["error"];
    let said = error["message"].as_str().unwrap();
    assert!(
        said.contains("prompt is too long: this model's maximum context length is 2048 tokens"),
        "{said}"
    );
    assert!(error["n_ctx"] == 2048 && error["n_prompt_tokens"].as_u64() > Some(2048), "{error}");
    let beyond = story(json!({ "logit_bias": { "999999": 1 } }));
    assert_eq!(server.post(chat, &beyond).refusal(), wanted(400, "invalid_value"));
    // After all of it the server answers as before.
    assert_eq!(server.post(chat, &story(json!({ "max_tokens": 4 }))).status, 200);
}

#[test]
fn strangers_are_not_let_in() {
    let server = Server::start();
    let hosted = |host: &str| server.ask("GET", "/v1/models", &[("host", host)], "");
    assert_eq!(hosted("127.0.0.1:8080").status, 200);
    assert_eq!(hosted("evil.example").refusal(), (403, "host_not_allowed".into()));
    let nameless = server.raw(b"GET /v1/models HTTP/1.1\r\nconnection: close\r\n\r\n");
    assert_eq!(nameless.status, 400, "{nameless:?}");
    let page = server.ask("GET", "/v1/models", &[("origin", "https://evil.example")], "");
    assert_eq!(page.refusal(), (403, "origin_not_allowed".into()));
    assert!(!page.headers.contains("access-control"), "{page:?}");
    let question = [("origin", "https://evil.example"), ("access-control-request-method", "POST")];
    assert_eq!(server.ask("OPTIONS", "/v1/chat/completions", &question, "").status, 403);

    let options = Options { cors: vec!["https://page.example".into()], ..Options::default() };
    let server = Server::with(options, 512);
    let question = [
        ("origin", "https://page.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "content-type"),
    ];
    let answer = server.ask("OPTIONS", "/v1/chat/completions", &question, "");
    assert_eq!(answer.status, 204, "{answer:?}");
    for header in [
        "allow-origin: https://page.example",
        "allow-headers: content-type",
        "allow-methods: get, head, post",
    ] {
        assert!(answer.headers.contains(&format!("access-control-{header}")), "{answer:?}");
    }
    let page = server.ask("GET", "/v1/models", &question[..1], "");
    assert!(page.status == 200 && page.headers.contains("access-control-allow-origin: https://page.example"));
}

#[test]
fn a_key_is_asked_for_everywhere_but_for_health() {
    let server = Server::with(Options { api_key: Some("s3cret".into()), ..Options::default() }, 512);
    assert_eq!(server.get("/health").status, 200);
    for path in ["/", "/v1/models", "/metrics", "/nothing"] {
        let refused = server.get(path);
        assert_eq!(refused.refusal(), (401, "invalid_api_key".into()), "{path}");
        assert!(refused.headers.contains("www-authenticate: bearer"), "{refused:?}");
    }
    let with = |key: &str| server.ask("GET", "/v1/models", &[("authorization", key)], "").status;
    assert_eq!((with("Bearer s3cret"), with("Bearer s3cre"), with("Bearer s3cret1")), (200, 401, 401));
    assert_eq!(server.ask("GET", "/v1/models", &[("x-api-key", "s3cret")], "").status, 200);
}

#[test]
fn what_is_too_large_is_cut_off() {
    // Whoever waited for the rest of a body would wait for ever.
    let hour = Duration::from_secs(3600);
    let server = Server::with(Options { max_body: 4096, body_pause: hour, ..Options::default() }, 512);
    let chat = "/v1/chat/completions";
    let big = story(json!({ "user": "x".repeat(5000) })).to_string();
    // By its announced length, before it is sent.
    let head = format!(
        "POST {chat} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 999999999\r\n\r\n"
    );
    let refused = server.raw(head.as_bytes());
    assert_eq!(refused.refusal(), (413, "request_too_large".into()));
    assert!(refused.headers.contains("connection: close"), "{refused:?}");
    // By what comes.
    let mut bytes = format!("POST {chat} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n").into_bytes();
    bytes.extend(format!("{:x}\r\n{big}\r\n0\r\n\r\n", big.len()).into_bytes());
    assert_eq!(server.raw(&bytes).refusal(), (413, "request_too_large".into()));
    // A body that breaks off leaves nothing behind.
    let mut cut = server.connect();
    cut.write_all(format!("POST {chat} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{{").as_bytes()).unwrap();
    drop(cut);
    assert_eq!(server.post(chat, &story(json!({ "max_tokens": 2 }))).status, 200);
}

#[test]
fn slow_headers_are_cut_off() {
    let time = Duration::from_secs(2);
    let server = Server::with(Options { head_time: time, ..Options::default() }, 512);
    let start = Instant::now();
    // A byte now and then does not buy more time.
    let mut drip = server.connect();
    let dripping = std::thread::spawn(move || {
        drip.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: ").unwrap();
        drip.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        // Before the other bound of a connection comes, that of a pause between requests.
        while start.elapsed() < Duration::from_secs(60) {
            let gone = match drip.read(&mut [0; 1]) {
                Ok(_) => true,
                Err(error) => {
                    !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
                }
            };
            if gone || drip.write_all(b"y").is_err() {
                return start.elapsed();
            }
        }
        panic!("a byte now and then buys time");
    });
    let mut slow = server.connect();
    slow.write_all(b"GET /health HTTP/1.1\r\nx: ").unwrap();
    let mut rest = Vec::new();
    if let Err(error) = slow.read_to_end(&mut rest) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "it is closed");
    }
    assert!(start.elapsed() >= time, "{:?}", start.elapsed());
    let took = dripping.join().unwrap();
    assert!(took >= time, "{took:?}");
}

#[test]
fn a_client_may_ask_before_it_sends_its_body() {
    let server = Server::with(Options::default(), 512);
    let body = story(json!({ "max_tokens": 3 })).to_string();
    let mut client = server.connect();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nexpect: 100-continue\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes()).unwrap();
    let mut go_on = [0; 25];
    client.read_exact(&mut go_on).unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(body.as_bytes()).unwrap();
    assert_eq!(Response::read(&mut client).status, 200);
    // Of a key that stands twice the last counts.
    let twice = body.replacen('{', "{\"max_tokens\":\"no number\",\"model\":5,", 1);
    assert_eq!(server.ask("POST", "/v1/chat/completions", &[JSON], &twice).status, 200, "{twice}");
}

#[test]
fn requests_follow_each_other_on_one_connection() {
    let server = Server::with(Options::default(), 512);
    let body = story(json!({ "max_tokens": 3 })).to_string();
    let mut bytes = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes();
    bytes.extend(request("GET", "/health", &[], ""));
    let both = server.raw(&bytes);
    assert!(both.status == 200 && both.body.contains("chat.completion"), "{both:?}");
    assert!(both.body.ends_with("{\"status\":\"ok\"}"), "{both:?}");
}

#[test]
fn a_client_that_leaves_frees_the_engine() {
    let server = Server::with(Options { queue: 1, ..Options::default() }, 32_768);
    let open = || {
        let mut stream = server.connect();
        let body = endless(&server).to_string();
        stream.write_all(&request("POST", "/v1/chat/completions", &[JSON], &body)).unwrap();
        stream
    };
    let load = || (server.metric("fieldfare_requests_running"), server.metric("fieldfare_requests_waiting"));
    let mut running = open();
    // The first chunk comes at once.
    let mut first = [0; 1024];
    let seen = running.read(&mut first).unwrap();
    assert!(String::from_utf8_lossy(&first[..seen]).contains("200 OK"));
    until("it runs", || load() == (1.0, 0.0));
    let waiting = open();
    until("it waits", || load() == (1.0, 1.0));
    let third = server.post("/v1/chat/completions", &endless(&server));
    assert_eq!(third.refusal(), (429, "queue_full".into()));
    assert!(third.headers.contains("retry-after: 1"), "{third:?}");
    drop(waiting);
    until("the place is free", || load() == (1.0, 0.0));
    drop(running);
    until("the engine is free", || load() == (0.0, 0.0));
    assert_eq!(server.metric("fieldfare_disconnects_total"), 2.0);
    assert_eq!(server.post("/v1/chat/completions", &story(json!({ "max_tokens": 4 }))).status, 200);
}

#[test]
fn a_client_that_leaves_before_a_whole_answer_frees_the_engine() {
    let server = Server::with(Options::default(), 32_768);
    let mut stream = server.connect();
    let mut body = endless(&server);
    body["stream"] = json!(false);
    stream.write_all(&request("POST", "/v1/chat/completions", &[JSON], &body.to_string())).unwrap();
    until("it runs", || server.metric("fieldfare_requests_running") == 1.0);
    drop(stream);
    until("the engine is free", || server.metric("fieldfare_requests_running") == 0.0);
    assert_eq!(server.metric("fieldfare_disconnects_total"), 1.0);
}

#[test]
fn a_client_that_leaves_while_its_prompt_is_read_frees_the_engine() {
    let server = Server::with(Options::default(), 32_768);
    let chat = "/v1/chat/completions";
    let body =
        story(json!({ "messages": [{ "role": "user", "content": "one two three four ".repeat(6000) }] }));
    let mut stream = server.connect();
    stream.write_all(&request("POST", chat, &[JSON], &body.to_string())).unwrap();
    until("it runs", || server.metric("fieldfare_requests_running") == 1.0);
    drop(stream);
    until("the engine is free", || server.metric("fieldfare_requests_running") == 0.0);
    assert_eq!(server.metric("fieldfare_generated_tokens_total"), 0.0, "it was in the prompt");
    assert!(server.metric("fieldfare_prompt_tokens_total") > 20_000.0);
    let log = server.log.lock().unwrap().join("\n");
    assert!(log.contains("cancelled"), "{log}");
    // What was read of it does no harm to what comes next.
    let next = server.post(chat, &story(json!({ "temperature": 0, "max_tokens": 8 }))).json();
    let fresh = Server::start().post(chat, &story(json!({ "temperature": 0, "max_tokens": 8 }))).json();
    assert_eq!(next["choices"][0]["message"], fresh["choices"][0]["message"]);
}

#[test]
fn those_who_wait_get_signs_of_life() {
    let options = Options { keep_alive: Duration::from_millis(50), ..Options::default() };
    let server = Server::with(options, 32_768);
    let mut running = server.connect();
    running
        .write_all(&request("POST", "/v1/chat/completions", &[JSON], &endless(&server).to_string()))
        .unwrap();
    until("it runs", || server.metric("fieldfare_requests_running") == 1.0);
    let mut waiting = server.connect();
    let body = story(json!({ "stream": true, "max_tokens": 3 })).to_string();
    waiting.write_all(&request("POST", "/v1/chat/completions", &[JSON], &body)).unwrap();
    until("it waits", || server.metric("fieldfare_requests_waiting") == 1.0);
    let mut seen = [0; 8192];
    until("there are signs of life", || {
        let len = waiting.peek(&mut seen).unwrap();
        String::from_utf8_lossy(&seen[..len]).matches(": ping\n\n").count() >= 3
    });
    drop(running);
    let answer = Response::read(&mut waiting);
    assert!(
        answer.body.starts_with("data: ") && answer.body.contains("\"role\":\"assistant\""),
        "{answer:?}"
    );
    assert!(answer.body.matches(": ping\n\n").count() >= 3, "{answer:?}");
    assert!(answer.events().len() >= 2);
}

#[test]
fn the_end_is_told_to_those_who_wait_and_those_who_run() {
    let options = Options { grace: Duration::from_millis(300), ..Options::default() };
    let mut server = Server::with(options, 32_768);
    let post = |body: Value| {
        let mut stream = server.connect();
        stream.write_all(&request("POST", "/v1/chat/completions", &[JSON], &body.to_string())).unwrap();
        stream
    };
    let mut running = post(endless(&server));
    until("it runs", || server.metric("fieldfare_requests_running") == 1.0);
    let mut waiting = post(story(json!({})));
    until("it waits", || server.metric("fieldfare_requests_waiting") == 1.0);
    let idle = server.connect();
    let reads = std::thread::spawn(move || (Response::read(&mut running), Response::read(&mut waiting)));
    server.end();
    let (running, waiting) = reads.join().unwrap();
    assert_eq!(waiting.refusal(), (503, "shutting_down".into()));
    let last = running.events().pop().unwrap();
    assert_eq!(last["error"]["code"], "shutting_down", "{last}");
    let log = server.log.lock().unwrap().join("\n");
    let said = "ending: finishing 1 request, for 0.3 s at most; Ctrl-C again ends at once; 1 request in the line sent away";
    assert!(log.contains(said), "{log}");
    drop(idle);
    assert!(std::net::TcpStream::connect(server.address).is_err(), "the port is closed");
}

#[test]
fn whoever_finds_no_memory_for_his_grammar_waits_for_it() {
    let options = Options {
        // So little that each grammar takes all of it.
        grammar_bytes: 1,
        parallel: 2,
        keep_alive: Duration::from_millis(50),
        grace: Duration::from_millis(300),
        ..Options::default()
    };
    let mut server = Server::with(options, 32_768);
    let tools = json!([{ "type": "function", "function": { "name": "f", "parameters": {
        "type": "object", "properties": { "a": { "type": "string" } } } } }]);
    let post = |mut body: Value| {
        body["tools"] = tools.clone();
        let mut stream = server.connect();
        stream.write_all(&request("POST", "/v1/chat/completions", &[JSON], &body.to_string())).unwrap();
        stream
    };
    let running = post(endless(&server));
    until("it runs", || server.metric("fieldfare_requests_running") == 1.0);
    assert!(server.metric("fieldfare_grammar_bytes") > 0.0);
    let mut piecemeal = post(story(json!({ "stream": true, "max_tokens": 3 })));
    let mut seen = [0; 8192];
    until("it is told to wait", || {
        let len = piecemeal.peek(&mut seen).unwrap();
        String::from_utf8_lossy(&seen[..len]).contains(": ping\n\n")
    });
    let mut whole = post(story(json!({ "max_tokens": 3 })));
    // There is a place for one that needs no grammar.
    assert_eq!(server.post("/v1/chat/completions", &story(json!({ "max_tokens": 3 }))).status, 200);
    assert_eq!(server.metric("fieldfare_requests_running"), 1.0, "the others wait");
    // One that leaves is not waited for.
    let lines = || server.log.lock().unwrap().iter().filter(|line| line.contains("waits for memory")).count();
    until("two wait", || lines() == 2);
    let leaves = post(story(json!({ "stream": true, "max_tokens": 3 })));
    until("three wait", || lines() == 3);
    drop(leaves);
    drop(running);
    let events = Response::read(&mut piecemeal).events();
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "length", "{events:?}");
    assert_eq!(Response::read(&mut whole).json()["choices"][0]["finish_reason"], "length");
    until("all is given back", || server.metric("fieldfare_grammar_bytes") == 0.0);
    // The end is told to those who wait.
    let mut running = post(endless(&server));
    until("it runs", || server.metric("fieldfare_requests_running") == 1.0);
    let mut whole = post(story(json!({ "max_tokens": 3 })));
    until("it waits", || lines() == 4);
    let reads = std::thread::spawn(move || (Response::read(&mut running), Response::read(&mut whole)));
    server.end();
    let (running, whole) = reads.join().unwrap();
    assert_eq!(whole.refusal(), (503, "shutting_down".into()));
    assert_eq!(running.events().pop().unwrap()["error"]["code"], "shutting_down");
}

#[test]
fn an_answer_ends_when_its_time_is_up() {
    let chat = "/v1/chat/completions";
    let server = Server::with(Options { max_generation: Some(Duration::ZERO), ..Options::default() }, 512);
    let body = story(json!({ "n": 2, "temperature": 0 }));
    let answer = server.post(chat, &body).json();
    for choice in answer["choices"].as_array().unwrap() {
        assert_eq!(choice["finish_reason"], "length", "{answer}");
        assert!(!choice["message"]["content"].as_str().unwrap().is_empty(), "{answer}");
    }
    assert_eq!(
        answer["usage"]["completion_tokens"], 2,
        "a token each, for which there is no time to measure"
    );
    let events = server.post(chat, &story(json!({ "stream": true, "temperature": 0 }))).events();
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "length");
    let text = json!({ "model": "default", "prompt": "Once upon", "max_tokens": 50 });
    let text = server.post("/v1/completions", &text).json();
    assert_eq!(
        (&text["choices"][0]["finish_reason"], &text["usage"]["completion_tokens"]),
        (&json!("length"), &json!(1))
    );

    let time = Duration::from_millis(300);
    let server = Server::with(Options { max_generation: Some(time), ..Options::default() }, 32_768);
    let start = Instant::now();
    let events = server.post(chat, &endless(&server)).events();
    assert!(start.elapsed() >= time && events.len() >= 2, "{events:?}");
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "length");
}

#[test]
fn nothing_that_was_said_is_in_the_log() {
    let server = Server::start();
    let mut body = story(json!({ "max_tokens": 30 }));
    body["messages"][0]["content"] = json!("What is the capital of France?");
    let answer = server.post("/v1/chat/completions", &body).json();
    let said = answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    server.post("/v1/xyzzy-path", &body);
    until("it is logged", || !server.log.lock().unwrap().is_empty());
    let log = server.log.lock().unwrap().join("\n");
    assert!(log.contains("answered:") && !log.contains("France") && !log.contains(&said), "{log}");
    assert!(!log.contains("xyzzy"), "{log}");
}

#[test]
fn what_is_not_safe_does_not_start() {
    let open = Options { host: "0.0.0.0".parse().unwrap(), port: 0, ..Options::default() };
    let Err(StartError::Usage { message, hint }) = bind(open) else { panic!("it is refused") };
    assert!(message.contains("API key") && hint.contains("127.0.0.1"), "{message} {hint}");
    let empty = Options { api_key: Some(" ".into()), ..Options::default() };
    assert!(matches!(bind(empty), Err(StartError::Usage { .. })));
    let server = Server::with(Options { api_key: Some("s3cret".into()), ..Options::default() }, 512);
    let taken = bind(Options { port: server.address.port(), ..Options::default() });
    let Err(StartError::Failed { message, hint }) = taken else { panic!("it is taken") };
    assert!(message.contains(&server.address.port().to_string()), "{message}");
    assert!(message.contains("another fieldfare server") && hint.contains("--port"), "{message} {hint}");
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = bind(Options { port: other.local_addr().unwrap().port(), ..Options::default() });
    let Err(StartError::Failed { message, .. }) = taken else { panic!("it is taken") };
    assert!(message.contains("another program"), "{message}");
}

#[test]
fn browsers_get_a_page_and_programs_get_json() {
    let server = Server::with(Options { api_key: Some("a secret word".into()), ..Options::default() }, 512);
    let page = server.ask("GET", "/", &[("accept", "text/html,application/xhtml+xml,*/*;q=0.8")], "");
    assert_eq!(page.status, 200);
    assert!(
        page.headers.contains("content-type: text/html") && page.headers.contains("vary: accept"),
        "{}",
        page.headers
    );
    let policy = page.headers.lines().find(|line| line.starts_with("content-security-policy:")).unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    let nonce = policy.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap();
    assert_eq!(page.body.matches(&format!("nonce=\"{nonce}\"")).count(), 2);
    let again = server.ask("GET", "/", &[("accept", "text/html")], "");
    assert!(!again.headers.contains(nonce), "a new word each time");
    assert!(!page.body.contains("a secret word") && !page.body.contains("demo"));
    // Figures and everything else ask for the key, and so does the plain answer.
    for path in ["/", "/stats"] {
        assert_eq!(server.get(path).refusal(), (401, "invalid_api_key".into()), "{path}");
    }
    let key = [("authorization", "Bearer a secret word")];
    assert_eq!(server.ask("GET", "/", &key, "").json()["name"], "fieldfare");
    let before = server.ask("GET", "/stats", &key, "").json();
    assert_eq!(
        (&before["model"], &before["running"], &before["tokens"]),
        (&json!("demo"), &json!(0), &json!(0))
    );
    let body = story(json!({ "max_tokens": 7 })).to_string();
    let headers = [key[0], ("content-type", "application/json")];
    assert_eq!(server.ask("POST", "/v1/chat/completions", &headers, &body).status, 200);
    let after = server.ask("GET", "/stats", &key, "").json();
    assert_eq!(after["tokens"], 7);
    assert_eq!(after["prefill"]["done"], after["prefill"]["total"]);
    let map = &after["experts"]["map"];
    let row = map["layers"][0].as_str().unwrap();
    assert_eq!(row.len() as u64, map["experts"].as_u64().unwrap().div_ceil(4));
    let held = map["layers"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| !row.as_str().unwrap().trim_matches('0').is_empty())
        .count();
    assert_eq!(held, map["layers"].as_array().unwrap().len(), "every layer holds some: {map}");
    let sum = |of: &str| -> u64 {
        let counts = server.ask("GET", "/stats?counts", &key, "").json()["experts"]["map"][of].clone();
        let rows = counts.as_array().unwrap().iter().flat_map(|row| row.as_array().unwrap().clone());
        rows.map(|count| count.as_u64().unwrap()).sum()
    };
    // Every token of prompt and answer chose some in every layer; what was read was missing.
    let fed = after["prefill"]["total"].as_u64().unwrap() + 6;
    let layers = map["layers"].as_array().unwrap().len() as u64;
    assert_eq!(sum("uses") % (fed * layers), 0, "{after}");
    assert!(sum("uses") > 0 && sum("reads") == after["experts"]["misses"].as_u64().unwrap(), "{after}");
    assert!(map.get("uses").is_none(), "only who asks gets them");
    // Foreign pages and names get neither.
    assert_eq!(
        server.ask("GET", "/stats", &[("origin", "https://evil.example"), key[0]], "").refusal().0,
        403
    );
    assert_eq!(
        server.ask("GET", "/", &[("host", "evil.example"), ("accept", "text/html")], "").refusal().0,
        403
    );
}

#[test]
fn one_connection_too_many_and_one_body_too_slow_are_told_so() {
    let (body_pause, head_time) = (Duration::from_millis(300), Duration::from_secs(3600));
    let server = Server::with(Options { body_pause, head_time, ..Options::default() }, 512);
    let mut slow = server.connect();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{";
    slow.write_all(head.as_bytes()).unwrap();
    assert_eq!(Response::read(&mut slow).refusal(), (408, "request_timeout".into()));
    drop(slow);
    let kept: Vec<_> = (0..256).map(|_| server.connect()).collect();
    // They are taken in order, so the last finds no place.
    let mut last = server.connect();
    let refused = Response::read(&mut last);
    assert_eq!(refused.refusal(), (503, "overloaded".into()));
    assert!(refused.headers.contains("retry-after: 1"), "{refused:?}");
    drop(kept);
    until("places are given back", || server.get("/health").status == 200);
}

#[test]
fn whoever_comes_before_the_model_is_told_to_wait() {
    let stop = Stop::default();
    let listening = |options| bind(options).unwrap().listen(&stop, Box::new(|_| {})).unwrap();
    let server = listening(Options { port: 0, ..Options::default() });
    let address = server.address();
    let ask = |method: &str, path: &str, headers: &[(&str, &str)], body: &str| {
        raw(address, &request(method, path, headers, body))
    };
    let chat = story(json!({ "max_tokens": 2 })).to_string();
    for (method, path, body) in [
        ("GET", "/health", ""),
        ("GET", "/v1/models", ""),
        ("GET", "/metrics", ""),
        ("GET", "/stats", ""),
        ("POST", "/v1/chat/completions", chat.as_str()),
    ] {
        let refused = ask(method, path, &[JSON], body);
        assert_eq!(refused.refusal(), (503, "model_loading".into()), "{path}");
        assert!(refused.headers.contains("retry-after: 1"), "{path}: {refused:?}");
        assert_eq!(refused.json()["error"]["type"], "unavailable_error");
    }
    // Strangers are strangers, and nothing is nowhere, before as after.
    assert_eq!(ask("GET", "/v1/models", &[("host", "evil.example")], "").refusal().0, 403);
    assert_eq!(ask("GET", "/nowhere", &[], "").refusal().0, 404);
    assert_eq!(ask("GET", "/", &[("accept", "text/html")], "").status, 200);
    let Err(StartError::Failed { message, .. }) =
        bind(Options { port: address.port(), ..Options::default() })
    else {
        panic!("it is taken")
    };
    assert!(message.contains("another fieldfare server"), "{message}");

    let locks = tempfile::tempdir().unwrap();
    let engine = open(&locks, EngineOptions { max_context: 512, ..EngineOptions::default() });
    let facts = Facts::of(&engine).unwrap();
    let serving = std::thread::spawn(move || server.open(engine, facts).unwrap().run());
    until("it is ready", || ask("GET", "/health", &[], "").status == 200);
    assert_eq!(ask("POST", "/v1/chat/completions", &[JSON], &chat).status, 200);
    stop.stop();
    serving.join().unwrap().unwrap();
    assert!(std::net::TcpStream::connect(address).is_err(), "the port is closed");
    // A model that cannot be opened: the port is given back.
    let stop = Stop::default();
    let given_up = bind(Options { port: 0, ..Options::default() }).unwrap();
    let given_up = given_up.listen(&stop, Box::new(|_| {})).unwrap();
    let address = given_up.address();
    drop(given_up);
    assert!(std::net::TcpStream::connect(address).is_err(), "the port is closed");
}

#[test]
fn any_name_will_do_where_that_was_said_and_thoughts_have_two() {
    let options = Options { any_model: true, both_reasoning: true, ..Options::default() };
    let server = Server::with(options, 1024);
    let body = json!({ "model": "gpt-9", "temperature": 0, "reasoning_effort": "low",
        "messages": [{ "role": "user", "content": "What is 3 + 4?" }] });
    let answer = server.post("/v1/chat/completions", &body).json();
    let message = &answer["choices"][0]["message"];
    assert_eq!(answer["model"], "demo");
    assert!(
        message["reasoning"].is_string() && message["reasoning"] == message["reasoning_content"],
        "{answer}"
    );
    assert_eq!(server.get("/v1/models/gpt-9").status, 200);
}
