//! An answer as server-sent events. Nothing runs on its own here: the connection asks for the next piece when it has
//! room, and when the client goes away this is dropped, which cancels the work.

use crate::choices::Choices;
use crate::clock::Clock;
use crate::door::{Outcome, Update};
use crate::metrics::Metrics;
use crate::wire::error::ApiError;
use crate::wire::reply::{Head, call_refusal};
use fieldfare::engine::{Scores, TokenScore};
use hyper::body::Bytes;
use serde_json::Value;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A sign of life is sent after so long without anything else.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Answers that have to wait before they get into the line.
pub(crate) type Later = Pin<Box<dyn Future<Output = Result<Choices, Box<ApiError>>> + Send>>;

/// What a stream will tell of.
pub(crate) enum Coming {
    /// It is in the line, or runs.
    Now(Choices),
    /// It is not.
    Later(Later),
}

/// The stream of one answer, or several.
pub(crate) struct Events {
    head: Head,
    /// What has to come before the first answer.
    coming: Option<Later>,
    choices: Option<Choices>,
    /// What was sent of each.
    sent: Vec<Sent>,
    /// Those that are complete.
    outcomes: Vec<Option<Outcome>>,
    /// The prompt's own numbers, for all answers to it.
    prompt: Option<Box<Scores>>,
    ready: VecDeque<Bytes>,
    quiet: Clock,
    keep_alive: Duration,
    metrics: Arc<Metrics>,
}

/// What was sent of an answer.
#[derive(Default)]
struct Sent {
    /// How likely the tokens of the next text were.
    scores: Option<Vec<TokenScore>>,
    /// Complete calls.
    calls: usize,
    /// Characters, with what stands before it.
    shown: usize,
    /// The present call was begun.
    in_call: bool,
}

impl Events {
    /// Begins; the first chunk is ready at once.
    pub(crate) fn new(head: Head, coming: Coming, keep_alive: Duration, metrics: Arc<Metrics>) -> Self {
        let (coming, choices) = match coming {
            Coming::Now(choices) => (None, Some(choices)),
            Coming::Later(later) => (Some(later), None),
        };
        let mut quiet = Clock::default();
        quiet.set(keep_alive);
        let mut events = Self {
            head,
            coming,
            choices,
            sent: Vec::new(),
            outcomes: Vec::new(),
            prompt: None,
            ready: VecDeque::new(),
            quiet,
            keep_alive,
            metrics,
        };
        // The first is told of whether it is in the line yet or not.
        events.open(events.choices.as_ref().map_or(1, Choices::begun));
        events
    }

    /// The next bytes; `None` after the end.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                self.quiet.set(self.keep_alive);
                return Poll::Ready(Some(bytes));
            }
            if let Some(coming) = &mut self.coming {
                if let Poll::Ready(come) = coming.as_mut().poll(cx) {
                    self.begin(come);
                    continue;
                }
            } else {
                let Some(choices) = &mut self.choices else { return Poll::Ready(None) };
                if let Poll::Ready(next) = choices.poll(cx) {
                    let begun = choices.begun();
                    self.take(next);
                    self.open(begun);
                    continue;
                }
            }
            if !self.quiet.is_up(cx) {
                return Poll::Pending;
            }
            self.ready.push_back(Bytes::from_static(b": ping\n\n"));
        }
    }

    fn begin(&mut self, come: Result<Choices, Box<ApiError>>) {
        self.coming = None;
        match come {
            Ok(choices) => {
                let begun = choices.begun();
                self.choices = Some(choices);
                self.open(begun);
            }
            Err(error) => self.fail(&error),
        }
    }

    /// Tells of the answers that were begun, up to this number of them.
    fn open(&mut self, begun: usize) {
        while self.sent.len() < begun && !self.has_ended() {
            self.head.index = self.sent.len();
            self.sent.push(Sent { shown: self.head.before(), ..Sent::default() });
            self.outcomes.push(None);
            self.ready.extend(self.head.role().iter().map(frame));
            // Another answer to the same prompt, whose numbers are known.
            if !self.head.index.is_multiple_of(self.head.each.max(1))
                && let Some(scores) = &self.prompt
            {
                self.ready.push_back(frame(&self.head.prompt(scores)));
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.coming.is_none() && self.choices.is_none()
    }

    fn take(&mut self, next: Option<(usize, Update)>) {
        let Some((index, update)) = next else {
            let outcomes: Vec<Outcome> = self.outcomes.drain(..).flatten().collect();
            self.ready.extend(self.head.counts(&outcomes).iter().map(frame));
            return self.close();
        };
        self.head.index = index;
        let sent = &mut self.sent[index];
        match update {
            Update::Scores(scores) => sent.scores.get_or_insert_default().extend(scores),
            Update::Text(text) => {
                let scores = sent.scores.take();
                self.ready.push_back(frame(&self.head.text(&text, scores.as_deref(), sent.shown)));
                sent.shown += text.chars().count();
            }
            Update::Reasoning(text) => self.ready.push_back(frame(&self.head.reasoning(&text))),
            Update::Prompt(scores) => {
                self.ready.push_back(frame(&self.head.prompt(&scores)));
                self.prompt = Some(scores);
            }
            Update::CallOpened(name) => {
                self.ready.push_back(frame(&self.head.call_opened(sent.calls, &name)));
                sent.in_call = true;
            }
            Update::CallArguments(text) => {
                self.ready.extend(self.head.call_arguments(sent.calls, &text).iter().map(frame));
            }
            Update::Call(call) => {
                if !std::mem::take(&mut sent.in_call) {
                    self.ready.extend(self.head.call(sent.calls, &call).iter().map(frame));
                }
                sent.calls += 1;
            }
            Update::Done(outcome) => self.end(index, *outcome),
            Update::Failed(error) => self.fail(&error),
        }
    }

    fn end(&mut self, index: usize, outcome: Outcome) {
        if let Some(error) = &outcome.generation.call_error {
            self.metrics.log(&format!("a tool call could not be read: {}", error.kind.name()));
            return self.fail(&call_refusal(error));
        }
        self.ready.push_back(frame(&self.head.end(&outcome)));
        self.outcomes[index] = Some(outcome);
    }

    fn fail(&mut self, error: &ApiError) {
        self.ready.push_back(frame(&error.body()));
        self.close();
    }

    fn close(&mut self) {
        self.ready.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
        self.choices = None;
    }
}

fn frame(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}
