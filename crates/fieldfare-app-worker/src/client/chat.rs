//! One answer: the question as a request, the stream as it comes, the figures of the run.

use super::figures::Stats;
use super::{Client, Failure, Refusal, agent, gone, read};
use crate::export::fenced;
use crate::message::{Message, Role, Run, Sampling};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use ureq::Agent;

/// How long a stream may be silent; the service gives a sign of life every second.
const SILENCE: Duration = Duration::from_secs(60);
/// The sampler's bound on `top_k`; more is all.
const MOST_TOP_K: u32 = 256;
/// Longest event.
const LONGEST: u64 = 16 << 20;

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// System prompt, empty for none.
    pub(crate) system: String,
    /// The path to the question, which is the last.
    pub(crate) path: Vec<Message>,
    /// How the answer is drawn.
    pub(crate) sampling: Sampling,
}

impl Question {
    /// The body of the request.
    pub(super) fn body(&self) -> Value {
        let mut messages = Vec::new();
        if !self.system.trim().is_empty() {
            messages.push(json!({ "role": "system", "content": self.system }));
        }
        for message in &self.path {
            match message.role {
                Role::User => messages.push(json!({ "role": "user", "content": with_documents(message) })),
                // What was ended before its first word says nothing. Thoughts of earlier turns are not shown again.
                Role::Assistant if message.text.trim().is_empty() => {}
                Role::Assistant => messages.push(json!({ "role": "assistant", "content": message.text })),
            }
        }
        let Sampling { temperature, top_k, top_p, thinking, max_tokens, seed } = &self.sampling;
        let mut body = json!({
            "model": "default",
            "messages": messages,
            "stream": true,
            "stream_options": { "include_usage": true },
            "temperature": temperature.clamp(0.0, 2.0),
            "top_p": top_p.clamp(1e-6, 1.0),
            "top_k": if *top_k > MOST_TOP_K { 0 } else { *top_k },
            "max_tokens": max_tokens.map_or(-1, i64::from),
            "chat_template_kwargs": { "enable_thinking": thinking },
        });
        if let Some(seed) = seed {
            body["seed"] = (*seed).into();
        }
        body
    }
}

/// Documents stand before the question, each fenced under its name.
fn with_documents(message: &Message) -> String {
    let mut text: String =
        message.documents.iter().map(|document| format!("{}\n\n", fenced(document))).collect();
    text.push_str(&message.text);
    text
}

/// More of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) text: String,
    pub(crate) thought: String,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ended {
    /// It met the limit of tokens, or the end of the context.
    pub(crate) at_limit: bool,
    /// Its figures.
    pub(crate) run: Run,
}

/// Ends a stream from any thread. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cut {
    asked: Arc<AtomicBool>,
    agent: Arc<Mutex<Option<Agent>>>,
}

impl Cut {
    /// Drops the connection, now or as soon as there is one.
    pub(crate) fn cut(&self) {
        self.asked.store(true, Ordering::SeqCst);
        let agent = self.agent.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(agent) = agent {
            agent.shutdown();
        }
    }

    /// Whether that was asked.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    fn agent(&self) -> Agent {
        let agent = agent(SILENCE);
        *self.agent.lock().unwrap_or_else(PoisonError::into_inner) = Some(agent.clone());
        if self.is_asked() {
            // Asked just before there was one.
            self.cut();
        }
        agent
    }
}

/// Asks, hands on what comes, and says how it ended.
///
/// # Errors
/// The service refuses, or goes away.
pub(crate) fn stream(
    client: &Client,
    question: &Question,
    cut: &Cut,
    each: &mut dyn FnMut(Piece),
) -> Result<Ended, Failure> {
    let started = Instant::now();
    let before = client.stats(false).ok();
    let response = cut
        .agent()
        .post(format!("{}/v1/chat/completions", client.base))
        .header("authorization", client.bearer())
        .content_type("application/json")
        .send(question.body().to_string())
        .map_err(gone)?;
    if !response.status().is_success() {
        return Err(read::<Value>(response).err().unwrap_or_else(|| Failure::Gone("no answer".to_owned())));
    }
    let mut reading = Reading { started, first: None, run: Run::default(), at_limit: false, ended: false };
    let mut lines = BufReader::new(response.into_body().into_reader());
    let mut line = Vec::new();
    loop {
        line.clear();
        let limited = &mut std::io::Read::take(&mut lines, LONGEST);
        let read = BufRead::read_until(limited, b'\n', &mut line).map_err(gone)?;
        if read == 0 {
            break;
        }
        let Some(event) = line.strip_prefix(b"data: ") else { continue };
        if event.trim_ascii() == b"[DONE]" {
            break;
        }
        reading.take(event, each)?;
    }
    if !reading.ended {
        return Err(Failure::Gone("the answer ended in the middle".to_owned()));
    }
    if let (Some(before), Ok(after)) = (before, client.stats(false)) {
        reading.figures(&before, &after);
    }
    Ok(Ended { at_limit: reading.at_limit, run: reading.run })
}

struct Reading {
    started: Instant,
    first: Option<f64>,
    run: Run,
    at_limit: bool,
    ended: bool,
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    timings: Option<Timings>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Delta,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct Delta {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    reasoning_content: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    #[serde(default)]
    prompt_tokens_details: Details,
}

#[derive(Default, Deserialize)]
struct Details {
    #[serde(default)]
    cached_tokens: u64,
}

#[derive(Deserialize)]
struct Timings {
    prompt_per_second: Option<f64>,
    predicted_per_second: Option<f64>,
}

impl Reading {
    fn take(&mut self, event: &[u8], each: &mut dyn FnMut(Piece)) -> Result<(), Failure> {
        let chunk: Chunk = serde_json::from_slice(event).map_err(gone)?;
        if let Some(error) = chunk.error {
            let refusal: Refusal = serde_json::from_value(json!({ "error": error })).unwrap_or_default();
            return Err(refusal.failure(500));
        }
        for Choice { delta, finish_reason } in chunk.choices {
            let piece = Piece {
                text: delta.content.unwrap_or_default(),
                thought: delta.reasoning_content.unwrap_or_default(),
            };
            if piece != Piece::default() {
                self.first.get_or_insert_with(|| self.started.elapsed().as_secs_f64());
                each(piece);
            }
            if let Some(reason) = finish_reason {
                self.ended = true;
                self.at_limit = reason == "length";
            }
        }
        if let Some(usage) = chunk.usage {
            self.run.prompt_tokens = usage.prompt_tokens;
            self.run.cached_tokens = usage.prompt_tokens_details.cached_tokens;
            self.run.tokens = usage.completion_tokens;
        }
        if let Some(timings) = chunk.timings {
            self.run.prefill_per_second = timings.prompt_per_second.unwrap_or(0.0);
            self.run.decode_per_second = timings.predicted_per_second.unwrap_or(0.0);
        }
        self.run.first_token_seconds = self.first.unwrap_or(0.0);
        Ok(())
    }

    /// Hits and reads of this answer: nobody else asks this service.
    fn figures(&mut self, before: &Stats, after: &Stats) {
        let hits = after.experts.hits.saturating_sub(before.experts.hits);
        let all = hits + after.experts.misses.saturating_sub(before.experts.misses);
        self.run.hit_rate = if all == 0 { 0.0 } else { hits as f64 / all as f64 };
        self.run.read_bytes = after.experts.bytes_read.saturating_sub(before.experts.bytes_read);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Document, MessageId, Progress};

    fn message(role: Role, text: &str, documents: Vec<Document>) -> Message {
        let new = Message::new(MessageId(1), None, role, text);
        Message { thought: "not sent".into(), documents, progress: Progress::Done, ..new }
    }

    fn sampling() -> Sampling {
        Sampling { temperature: 0.5, top_k: 999, top_p: 0.0, thinking: true, max_tokens: None, seed: Some(7) }
    }

    #[test]
    fn a_question_has_its_documents_before_it_and_no_thoughts() {
        let document = Document { name: "a.md".into(), text: "words".into(), tokens: None };
        let question = Question {
            system: "Be short.".into(),
            path: vec![
                message(Role::User, "one", Vec::new()),
                message(Role::Assistant, "", Vec::new()),
                message(Role::User, "two", Vec::new()),
                message(Role::Assistant, "fine", Vec::new()),
                message(Role::User, "What is in it?", vec![document]),
            ],
            sampling: sampling(),
        };
        let body = question.body();
        let roles: Vec<_> =
            body["messages"].as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["system", "user", "user", "assistant", "user"]);
        assert_eq!(body["messages"][4]["content"], "Document `a.md`:\n\n```\nwords\n```\n\nWhat is in it?");
        assert!(!body.to_string().contains("not sent"));
        assert_eq!((&body["top_k"], &body["max_tokens"], &body["seed"]), (&json!(0), &json!(-1), &json!(7)));
        assert!(body["top_p"].as_f64().unwrap() > 0.0);
        assert_eq!(body["chat_template_kwargs"]["enable_thinking"], true);
    }

    #[test]
    fn events_become_pieces_figures_and_an_end() {
        let mut reading = Reading {
            started: Instant::now(),
            first: None,
            run: Run::default(),
            at_limit: false,
            ended: false,
        };
        let mut pieces = Vec::new();
        for event in [
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}"#,
            r#"{"choices":[{"delta":{"reasoning_content":"hm"},"finish_reason":null}]}"#,
            r#"{"choices":[{"delta":{"content":"yes"},"finish_reason":null}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"length"}],"timings":{"prompt_per_second":null,"predicted_per_second":4.5}}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3}}}"#,
        ] {
            reading.take(event.as_bytes(), &mut |piece| pieces.push(piece)).unwrap();
        }
        assert_eq!(pieces.len(), 2);
        assert_eq!((pieces[0].thought.as_str(), pieces[1].text.as_str()), ("hm", "yes"));
        assert!(reading.ended && reading.at_limit);
        let Run { prompt_tokens, cached_tokens, tokens, decode_per_second, .. } = reading.run;
        assert_eq!((prompt_tokens, cached_tokens, tokens, decode_per_second), (9, 3, 2, 4.5));
        let refused = reading.take(br#"{"error":{"message":"no","code":"x"}}"#, &mut |_| {}).unwrap_err();
        assert_eq!(refused, Failure::Refused { code: "x".into(), message: "no".into() });
        assert!(reading.take(b"{", &mut |_| {}).is_err());
    }

    #[test]
    fn a_silent_stream_is_cut_at_once() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Client::new(&listener.local_addr().unwrap().to_string(), "k".into());
        // Accepts and never answers.
        let (seen, see) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let kept: Vec<_> =
                listener.incoming().flatten().inspect(|_| seen.send(()).unwrap_or_default()).collect();
            drop(kept);
        });
        let cut = Cut::default();
        let theirs = cut.clone();
        let question = Question { system: String::new(), path: Vec::new(), sampling: sampling() };
        cut.cut();
        // Cut before it began: no connection for the answer is waited for.
        let client = Client { agent: agent(Duration::from_millis(100)), ..client };
        assert!(stream(&client, &question, &theirs, &mut |_| {}).is_err());
        let cut = Cut::default();
        let theirs = cut.clone();
        let thread = std::thread::spawn(move || stream(&client, &question, &theirs, &mut |_| {}));
        for _ in 0..2 {
            see.recv_timeout(Duration::from_secs(120)).unwrap();
        }
        let started = Instant::now();
        cut.cut();
        assert!(thread.join().unwrap().is_err());
        // And not because it had been silent for too long.
        assert!(started.elapsed() < SILENCE, "{:?}", started.elapsed());
    }
}
