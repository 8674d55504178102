//! Several conversations, and one that outlives its server.

use crate::support::Server;
use fieldfare::engine::EngineOptions;
use fieldfare_server::Options;
use serde_json::{Value, json};
use std::path::Path;

fn server(dir: Option<&Path>) -> Server {
    let engine = EngineOptions {
        max_context: 2048,
        conversations: 4,
        prompt_cache_dir: dir.map(Path::to_path_buf),
        ..EngineOptions::default()
    };
    Server::with_engine(Options::default(), engine)
}

/// Far longer than the demonstration model's window.
fn long_system() -> String {
    (0..60).map(|line| format!("Rule {line}: answer in a few plain words. ")).collect()
}

struct Talk(Vec<Value>);

impl Talk {
    fn new() -> Self {
        Self(vec![json!({ "role": "system", "content": long_system() })])
    }

    /// Asks, and takes the answer into the history; returns the whole reply.
    fn ask(&mut self, server: &Server, text: &str) -> Value {
        self.0.push(json!({ "role": "user", "content": text }));
        let reply = post(server, &self.0);
        self.0.push(json!({ "role": "assistant", "content": said(&reply) }));
        reply
    }
}

fn post(server: &Server, messages: &[Value]) -> Value {
    let body = json!({ "model": "default", "messages": messages, "temperature": 0, "max_tokens": 24 });
    server.post("/v1/chat/completions", &body).json()
}

fn said(reply: &Value) -> Value {
    reply["choices"][0]["message"]["content"].clone()
}

fn tokens(reply: &Value) -> (u64, u64) {
    let usage = &reply["usage"];
    let prompt = usage["prompt_tokens"].as_u64().unwrap();
    (prompt, usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap())
}

/// Prompts that were met like this.
fn met(server: &Server, reuse: &str) -> u64 {
    let page = server.get("/metrics").body;
    let name = format!("fieldfare_prompts_total{{reuse=\"{reuse}\"}} ");
    page.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
}

#[test]
fn titles_branches_and_a_restart_leave_a_conversation_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (mut first, fresh) = (server(Some(dir.path())), server(None));
    let mut talk = Talk::new();
    let reply = talk.ask(&first, "What is the capital of France?");
    let (mut known, cached) = tokens(&reply);
    assert_eq!((cached, met(&first, "new")), (0, 1));
    for question in ["And of Italy?", "List three fruits."] {
        // A title, between the turns.
        let title = [json!({ "role": "user", "content": "Give this talk a title." })];
        assert_eq!(said(&post(&first, &title)), said(&post(&fresh, &title)));
        let reply = talk.ask(&first, question);
        let (prompt, cached) = tokens(&reply);
        assert!(cached + 8 >= known && cached < prompt, "{cached} of {known}");
        known = prompt;
        assert_eq!(said(&reply), said(&post(&fresh, &talk.0[..talk.0.len() - 1])), "{question}");
    }
    assert_eq!(met(&first, "continued"), 3, "two turns, and the second title");
    // The second question is asked otherwise: what stands before it is not read again, nor is the talk lost.
    let mut branch = talk.0[..3].to_vec();
    branch.push(json!({ "role": "user", "content": "What is my name?" }));
    let reply = post(&first, &branch);
    assert!(tokens(&reply).1 > 256, "{reply}");
    assert_eq!(said(&reply), said(&post(&fresh, &branch)));
    let reply = talk.ask(&first, "Thank you.");
    assert!(tokens(&reply).1 + 8 >= known, "{reply}");
    known = tokens(&reply).0;
    assert!(first.metric("fieldfare_conversations") >= 2.0 && first.metric("fieldfare_kv_cache_bytes") > 0.0);
    first.end();
    assert!(std::fs::read_dir(dir.path()).unwrap().count() >= 1);

    let mut second = server(Some(dir.path()));
    assert!(second.metric("fieldfare_conversation_files") >= 1.0);
    let reply = talk.ask(&second, "What is the capital of Japan?");
    let (_, cached) = tokens(&reply);
    assert!(cached + 8 >= known, "{cached} of {known}: {:?}", second.log.lock().unwrap());
    assert_eq!(met(&second, "restored"), 1);
    assert_eq!(said(&reply), said(&post(&fresh, &talk.0[..talk.0.len() - 1])));
    second.end();

    // What is damaged is told of, and read anew.
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    let third = server(Some(dir.path()));
    let reply = talk.ask(&third, "And of Spain?");
    assert_eq!(tokens(&reply).1, 0);
    assert_eq!(said(&reply), said(&post(&fresh, &talk.0[..talk.0.len() - 1])));
    assert!(third.log.lock().unwrap().iter().any(|line| line.contains("left out")));
}
