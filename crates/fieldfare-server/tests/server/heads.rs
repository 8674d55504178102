//! Heads of requests that are too large, or are none.

use crate::support::{Response, Server, raw, request, until};
use fieldfare_server::Options;
use std::io::Write;
use std::time::Duration;

/// A head with these lines behind the first ones.
fn head(lines: &str) -> Vec<u8> {
    format!("GET /health HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n").into_bytes()
}

fn fields(count: usize, len: usize) -> String {
    let value = "y".repeat(len);
    (0..count).map(|i| format!("x-{i}: {value}\r\n")).collect()
}

/// Says no in the words of the contract, and closes.
fn refuses(response: &Response, status: u16, code: &str) {
    assert_eq!(response.refusal(), (status, code.to_owned()), "{response:?}");
    let error = &response.json()["error"];
    assert_eq!(error["type"], "invalid_request_error");
    assert!(error["param"].is_null() && error["message"].is_string(), "{error}");
    for line in ["connection: close", "content-type: application/json", "server: fieldfare"] {
        assert!(response.headers.contains(line), "{line}: {response:?}");
    }
}

#[test]
fn heads_that_are_too_large_are_refused_in_words() {
    let server = Server::with(Options::default(), 512);
    let endless = format!("GET /health HTTP/1.1\r\nhost: localhost\r\n{}", fields(40_000, 100));
    for (what, bytes) in [
        ("more fields than may be", head(&fields(101, 1))),
        ("more than are read", head(&fields(600, 1))),
        ("a great many", head(&fields(100_000, 1))),
        ("a long value", head(&format!("x: {}\r\n", "y".repeat(40 << 10)))),
        ("a longer one", head(&format!("x: {}\r\n", "y".repeat(4 << 20)))),
        ("a long name", head(&format!("{}: y\r\n", "x".repeat(70 << 10)))),
        ("fields that are long together", head(&fields(60, 1000))),
        ("the same, longer than what is held", head(&fields(90, 10_000))),
        ("fields without an end", endless.into_bytes()),
        ("a long target", request("GET", &format!("/{}", "x".repeat(40 << 10)), &[], "")),
        ("a longer one", request("GET", &format!("/{}", "x".repeat(1 << 20)), &[], "")),
    ] {
        eprintln!("{what}");
        refuses(&server.raw(&bytes), 431, "headers_too_large");
    }
    // What is allowed is.
    assert_eq!(server.raw(&head(&format!("connection: close\r\n{}", fields(98, 300)))).status, 200);
    assert!(server.get("/metrics").body.contains("endpoint=\"other\",status=\"4xx\""));
}

#[test]
fn what_is_no_head_is_refused_in_words() {
    let server = Server::with(Options::default(), 512);
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"hello\r\n\r\n",
        b"GET /health HTTP/9.9\r\nhost: localhost\r\n\r\n",
        b"GET /he alth HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: \0\r\n\r\n",
        b"POST /health HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\n",
        b"POST /health HTTP/1.1\r\nhost: localhost\r\ncontent-length: -3\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /health HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: gzip\r\n\r\n",
    ] {
        eprintln!("{}", String::from_utf8_lossy(bytes));
        refuses(&server.raw(bytes), 400, "invalid_http");
    }
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn answers_before_a_bad_head_are_whole() {
    let server = Server::with(Options::default(), 512);
    for (status, bad) in [(431, head(&fields(600, 1))), (400, b"hello\r\n\r\n".to_vec())] {
        // All at once, and one after the other.
        let mut together = head("");
        together.extend(&bad);
        let mut client = server.connect();
        client.write_all(&together).unwrap();
        let mut slowly = server.connect();
        slowly.write_all(&head("")).unwrap();
        until("it is answered", || slowly.peek(&mut [0; 512]).is_ok_and(|len| len > 0));
        slowly.write_all(&bad).unwrap();
        for client in [&mut client, &mut slowly] {
            let both = Response::read(client);
            assert_eq!(both.status, 200);
            let (first, second) = both.body.split_at("{\"status\":\"ok\"}".len());
            assert_eq!(first, "{\"status\":\"ok\"}");
            assert!(second.starts_with(&format!("HTTP/1.1 {status} ")), "{second}");
            assert!(second.contains("\"code\":"), "{second}");
        }
    }
}

#[test]
fn a_refused_head_gives_its_place_back() {
    let options = Options { head_time: Duration::from_secs(3600), ..Options::default() };
    let server = Server::with(options, 512);
    // Twice as many as there are places, half of them by clients that never close; those may take all places for a moment.
    let mut kept = Vec::new();
    for _ in 0..256 {
        until("there is a place", || raw(server.address, &head(&fields(600, 1))).status == 431);
        let mut client = server.connect();
        let _ = client.write_all(&head(&fields(600, 1)));
        kept.push(client);
    }
    until("all are given back", || {
        // As many as there are places, all at once.
        let idle: Vec<_> = (0..255).map(|_| server.connect()).collect();
        let status = server.get("/health").status;
        drop(idle);
        status == 200
    });
    drop(kept);
}

#[test]
fn a_refusal_arrives_though_its_request_is_still_being_sent() {
    let options = Options { max_body: 1 << 20, body_pause: Duration::from_secs(3600), ..Options::default() };
    let server = Server::with(options, 512);
    let body = "x".repeat(8 << 20);
    let json = ("content-type", "application/json");
    for (headers, path, status, code) in [
        (&[json][..], "/v1/chat/completions", 413, "request_too_large"),
        (&[][..], "/v1/chat/completions", 415, "unsupported_media_type"),
        (&[json][..], "/nowhere", 404, "not_found"),
        (&[json, ("host", "evil.example")][..], "/v1/chat/completions", 403, "host_not_allowed"),
    ] {
        let mut client = server.connect();
        // Nothing is reset under a client that sends all of it before it reads.
        client.write_all(&request("POST", path, headers, &body)).unwrap();
        assert_eq!(Response::read(&mut client).refusal(), (status, code.to_owned()));
    }
}
