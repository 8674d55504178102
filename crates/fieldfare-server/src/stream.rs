//! An answer as server-sent events. Nothing runs on its own here: the connection asks for the next piece when it has
//! room, and when the client goes away this is dropped, which cancels the work.

use crate::door::{Answer, Outcome, Update, Work};
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
use tokio::time::{Instant, Sleep, sleep};

/// A sign of life is sent after so long without anything else.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The stream of one answer.
pub(crate) struct Events {
    head: Head,
    answer: Option<Answer>,
    /// Answers that come after this one.
    rest: VecDeque<Work>,
    /// Those that are complete.
    outcomes: Vec<Outcome>,
    /// How likely the tokens of the next text were.
    scores: Option<Vec<TokenScore>>,
    /// The prompt's own, for all answers to it.
    prompt: Option<Box<Scores>>,
    ready: VecDeque<Bytes>,
    calls: usize,
    /// Characters of the present answer that were sent, with what stands before it.
    shown: usize,
    /// The present call was begun.
    in_call: bool,
    quiet: Pin<Box<Sleep>>,
    keep_alive: Duration,
    metrics: Arc<Metrics>,
}

impl Events {
    /// Begins; the first chunk is ready at once.
    pub(crate) fn new(
        head: Head,
        answer: Answer,
        rest: VecDeque<Work>,
        keep_alive: Duration,
        metrics: Arc<Metrics>,
    ) -> Self {
        let ready = head.role().iter().map(frame).collect();
        let shown = head.before();
        Self {
            head,
            answer: Some(answer),
            rest,
            outcomes: Vec::new(),
            scores: None,
            prompt: None,
            ready,
            calls: 0,
            shown,
            in_call: false,
            quiet: Box::pin(sleep(keep_alive)),
            keep_alive,
            metrics,
        }
    }

    /// The next bytes; `None` after the end.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                self.quiet.as_mut().reset(Instant::now() + self.keep_alive);
                return Poll::Ready(Some(bytes));
            }
            let Some(answer) = &mut self.answer else { return Poll::Ready(None) };
            match answer.poll_next(cx) {
                Poll::Ready(update) => self.take(update),
                Poll::Pending => {
                    if self.quiet.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    self.ready.push_back(Bytes::from_static(b": ping\n\n"));
                }
            }
        }
    }

    fn take(&mut self, update: Option<Update>) {
        match update {
            Some(Update::Scores(scores)) => self.scores.get_or_insert_default().extend(scores),
            Some(Update::Text(text)) => {
                let scores = self.scores.take();
                self.ready.push_back(frame(&self.head.text(&text, scores.as_deref(), self.shown)));
                self.shown += text.chars().count();
            }
            Some(Update::Reasoning(text)) => self.ready.push_back(frame(&self.head.reasoning(&text))),
            Some(Update::Prompt(scores)) => {
                self.ready.push_back(frame(&self.head.prompt(&scores)));
                self.prompt = Some(scores);
            }
            Some(Update::CallOpened(name)) => {
                self.ready.push_back(frame(&self.head.call_opened(self.calls, &name)));
                self.in_call = true;
            }
            Some(Update::CallArguments(text)) => {
                self.ready.extend(self.head.call_arguments(self.calls, &text).iter().map(frame));
            }
            Some(Update::Call(call)) => {
                if !std::mem::take(&mut self.in_call) {
                    self.ready.extend(self.head.call(self.calls, &call).iter().map(frame));
                }
                self.calls += 1;
            }
            Some(Update::Done(outcome)) => self.end(*outcome),
            Some(Update::Failed(error)) => self.fail(&error),
            None => self.fail(&ApiError::internal()),
        }
    }

    fn end(&mut self, outcome: Outcome) {
        if let Some(error) = &outcome.generation.call_error {
            self.metrics.log(&format!("a tool call could not be read: {}", error.kind.name()));
            return self.fail(&call_refusal(error));
        }
        self.ready.push_back(frame(&self.head.end(&outcome)));
        self.outcomes.push(outcome);
        if let (Some(work), Some(answer)) = (self.rest.pop_front(), &mut self.answer) {
            answer.again(work);
            self.head.index += 1;
            self.calls = 0;
            self.in_call = false;
            self.shown = self.head.before();
            self.scores = None;
            self.ready.extend(self.head.role().iter().map(frame));
            // Another answer to the same prompt, whose numbers are known.
            if !self.head.index.is_multiple_of(self.head.each.max(1))
                && let Some(scores) = &self.prompt
            {
                self.ready.push_back(frame(&self.head.prompt(scores)));
            }
            return;
        }
        self.ready.extend(self.head.counts(&self.outcomes).iter().map(frame));
        self.close();
    }

    fn fail(&mut self, error: &ApiError) {
        self.ready.push_back(frame(&error.body()));
        self.close();
    }

    fn close(&mut self) {
        self.ready.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
        self.answer = None;
    }
}

fn frame(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}
