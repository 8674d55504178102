//! A server for one test, and the plainest client there is.

use fieldfare::engine::{Engine, EngineOptions};
use fieldfare_server::{Bound, Facts, Options, Stop, bind};
use fieldfare_testing::demo;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Waits; a busy machine is slow.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The model, open; its lock is in `locks`.
pub(crate) fn open(locks: &TempDir, engine: EngineOptions) -> Engine {
    let options = EngineOptions { threads: Some(1), runtime_dir: Some(locks.path().to_path_buf()), ..engine };
    Engine::open(&demo(), options).unwrap()
}

/// A running server, ended when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) log: Arc<Mutex<Vec<String>>>,
    pub(crate) stop: Stop,
    /// The ids that end an answer or begin a call.
    pub(crate) ends: Vec<u32>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
    _locks: TempDir,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(Options::default(), 2048)
    }

    pub(crate) fn with(options: Options, context: usize) -> Self {
        Self::with_engine(options, EngineOptions { max_context: context, ..EngineOptions::default() })
    }

    pub(crate) fn with_engine(options: Options, engine: EngineOptions) -> Self {
        let locks = tempfile::tempdir().unwrap();
        let engine = open(&locks, engine);
        let facts = Facts::of(&engine).unwrap();
        let mut ends = engine.stop_ids().to_vec();
        ends.push(facts.tokenizer.control().call_open);
        let bound: Bound = bind(Options { port: 0, ..options }).unwrap();
        let address = bound.address();
        let stop = Stop::default();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (asked, lines) = (stop.clone(), log.clone());
        let write = Box::new(move |line: &str| lines.lock().unwrap().push(line.to_owned()));
        let thread = std::thread::spawn(move || bound.serve(engine, facts, &asked, write));
        Self { address, log, stop, ends, thread: Some(thread), _locks: locks }
    }

    /// Ends it and waits.
    pub(crate) fn end(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.address)
    }

    /// Sends these bytes and reads what comes until the other side closes.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Response {
        raw(self.address, bytes)
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.ask("GET", path, &[], "")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Response {
        self.ask("POST", path, &[("content-type", "application/json")], &body.to_string())
    }

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        self.raw(&request(method, path, headers, body))
    }

    /// The value of a metric.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let page = self.get("/metrics").body;
        let line = page.lines().find(|line| line.split([' ', '{']).next() == Some(name));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
            .unwrap_or_else(|| panic!("{name}: {page}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    stream
}

/// Sends these bytes there and reads what comes until the other side closes.
pub(crate) fn raw(address: SocketAddr, bytes: &[u8]) -> Response {
    let mut stream = connect(address);
    // A server that has refused already may close before all is sent.
    let _ = stream.write_all(bytes);
    Response::read(&mut stream)
}

/// A request on a connection of its own.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        text.push_str("host: localhost\r\n");
    }
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        text.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    format!("{text}\r\n{body}").into_bytes()
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn read(stream: &mut TcpStream) -> Self {
        let mut reader = BufReader::new(stream);
        let mut headers = String::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                break;
            }
            headers.push_str(&line.to_lowercase());
        }
        let mut rest = Vec::new();
        // A reset after the answer is the end of it.
        let _ = reader.read_to_end(&mut rest);
        let chunked = headers.contains("transfer-encoding: chunked");
        let body = if chunked { unchunked(&rest) } else { rest };
        let status = headers.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        Self { status, headers, body: String::from_utf8(body).expect("UTF-8") }
    }

    /// The status in what comes, which need not be HTTP; 0 if it is not.
    pub(crate) fn read_status(stream: &mut TcpStream) -> u16 {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Status, and code of the refusal.
    pub(crate) fn refusal(&self) -> (u16, String) {
        (self.status, self.json()["error"]["code"].as_str().unwrap_or_default().to_owned())
    }

    /// The events of a stream: each is one JSON value; the last must be `[DONE]` and is left out.
    pub(crate) fn events(&self) -> Vec<Value> {
        let mut events: Vec<&str> =
            self.body.split_terminator("\n\n").filter(|line| *line != ": ping").collect();
        assert_eq!(events.pop(), Some("data: [DONE]"), "{self:?}");
        events
            .into_iter()
            .map(|event| {
                let text = event.strip_prefix("data: ").unwrap_or_else(|| panic!("{event}"));
                serde_json::from_str(text).unwrap()
            })
            .collect()
    }
}

/// Every chunk must itself be whole characters.
fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
        let len = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if len == 0 {
            break;
        }
        let chunk = &rest[end + 2..end + 2 + len];
        assert!(std::str::from_utf8(chunk).is_ok(), "a chunk ends inside a character");
        body.extend_from_slice(chunk);
        rest = &rest[end + 2 + len + 2..];
    }
    body
}
