//! The door to the engine: one thread owns it, requests wait in a line, and whoever leaves gives up his place.
//!
//! A request first takes a [`Place`], before anything costly is done for it, then hands in its work and gets an
//! [`Answer`] to read from. Dropping the answer (the client is gone) takes waiting work out of the line at once, and
//! ends running work within a token, or a layer of a prefill pass. The channel of an answer is bounded, so a slow reader
//! slows the engine down; one who reads nothing for [`PATIENCE`] counts as gone.

use crate::metrics::Metrics;
use crate::wire::error::ApiError;
use fieldfare::chat::ParsedCall;
use fieldfare::engine::{
    Cancel, Engine, Event, Finish, GenerateOptions, Generation, KeptConversations, TokenScore,
};
use fieldfare::{Error, Result};
use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How long the engine waits for a client to read on.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pieces of an answer that may lie unread.
const UNREAD: usize = 64;

/// What answers: the engine, or a script in tests.
pub trait Model: Send + 'static {
    /// Continues the prompt; as [`fieldfare::engine::Session::generate`].
    ///
    /// # Errors
    /// Those of the engine.
    fn generate(
        &mut self,
        prompt: &[u32],
        options: &GenerateOptions,
        cancel: &Cancel,
        sink: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Generation>;

    /// Forgets everything that a call left behind.
    fn forget(&mut self);

    /// Readings of the expert store and of what is kept.
    fn readings(&self) -> Readings;

    /// Lines for the log, each once.
    fn notes(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// No more calls will come.
    fn close(&mut self) {}
}

/// What the expert store did since the model was opened, and what is kept of conversations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Readings {
    /// Experts found in a slot.
    pub hits: u64,
    /// Experts that had to be read.
    pub misses: u64,
    /// Bytes read from layer files.
    pub bytes_read: u64,
    /// Time in reads.
    pub read_seconds: f64,
    /// Bytes of keys and values, all conversations together.
    pub kv_bytes: u64,
    /// Expert slots of all layers now.
    pub slots: usize,
    /// Conversations.
    pub conversations: KeptConversations,
}

impl Model for Engine {
    fn generate(
        &mut self,
        prompt: &[u32],
        options: &GenerateOptions,
        cancel: &Cancel,
        sink: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Generation> {
        self.session().generate(prompt, options, cancel, sink)
    }

    fn forget(&mut self) {
        self.session().clear();
    }

    fn readings(&self) -> Readings {
        let stats = self.stats();
        Readings {
            hits: stats.hits,
            misses: stats.misses,
            bytes_read: stats.bytes_read,
            read_seconds: stats.read_time.as_secs_f64(),
            kv_bytes: stats.kv_bytes as u64,
            slots: stats.slots,
            conversations: self.kept_conversations(),
        }
    }

    fn notes(&mut self) -> Vec<String> {
        self.conversation_notes()
    }

    fn close(&mut self) {
        self.save_conversations();
    }
}

/// A piece of an answer.
#[derive(Debug)]
pub(crate) enum Update {
    /// How likely the tokens of the next text were.
    Scores(Vec<TokenScore>),
    /// More of the answer.
    Text(String),
    /// More of the thought.
    Reasoning(String),
    /// A complete call.
    Call(Box<ParsedCall>),
    /// The end.
    Done(Box<Outcome>),
    /// The end, without an answer.
    Failed(Box<ApiError>),
}

/// How an answer ended.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// What the engine says.
    pub(crate) generation: Generation,
    /// It was stopped from here after its first call, the only one that the request allows.
    pub(crate) stopped_at_call: bool,
    /// Tokens from the opening of a thought to its end, both included.
    pub(crate) reasoning_tokens: usize,
    /// How likely its tokens were was asked for.
    pub(crate) scored: bool,
}

/// What the engine is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    /// Token ids.
    pub(crate) prompt: Vec<u32>,
    /// How they are continued.
    pub(crate) options: GenerateOptions,
    /// Whether the answer ends after its first call.
    pub(crate) one_call: bool,
    /// The ids that open and close a thought, and whether the answer begins inside of one.
    pub(crate) thought: Option<Thought>,
}

/// How thoughts are told from the rest of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thought {
    /// Opens one.
    pub(crate) open: u32,
    /// Closes one.
    pub(crate) close: u32,
    /// The answer begins inside of one.
    pub(crate) starts_inside: bool,
}

impl Thought {
    fn count(self, ids: &[u32]) -> usize {
        let mut inside = self.starts_inside;
        let counted = |id: &&u32| {
            inside |= **id == self.open;
            let counts = inside;
            inside &= **id != self.close;
            counts
        };
        ids.iter().filter(counted).count()
    }
}

struct Job {
    number: u64,
    work: Work,
    cancel: Cancel,
    updates: mpsc::Sender<Update>,
    since: Instant,
    /// A piece could not be handed on: nobody is waited for any more.
    gone: Cell<bool>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    /// Places taken, by those who render, wait and run.
    places: usize,
    next: u64,
    /// The work that runs.
    running: Option<Cancel>,
    /// No more places.
    closing: bool,
    /// Running work was ended because the server goes away.
    aborted: bool,
}

struct Inner {
    state: Mutex<State>,
    wake: Condvar,
    limit: usize,
    patience: Duration,
    metrics: Arc<Metrics>,
}

impl Inner {
    /// No code that holds the lock can panic half-way through a change.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The line in front of the engine.
#[derive(Clone)]
pub(crate) struct Door(Arc<Inner>);

impl Door {
    /// Starts the thread that owns `model`. At most `waiting` requests wait while one runs. `runtime` is where slow
    /// readers are waited for.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn open(
        model: impl Model,
        waiting: usize,
        metrics: Arc<Metrics>,
        runtime: tokio::runtime::Handle,
    ) -> std::io::Result<(Self, JoinHandle<()>)> {
        Self::with_patience(PATIENCE, model, waiting, metrics, runtime)
    }

    fn with_patience(
        patience: Duration,
        model: impl Model,
        waiting: usize,
        metrics: Arc<Metrics>,
        runtime: tokio::runtime::Handle,
    ) -> std::io::Result<(Self, JoinHandle<()>)> {
        metrics.store(model.readings());
        let (state, wake) = (Mutex::default(), Condvar::new());
        let inner = Arc::new(Inner { state, wake, limit: waiting + 1, patience, metrics });
        let door = Self(inner.clone());
        let thread = std::thread::Builder::new()
            .name("engine".to_owned())
            .spawn(move || work(model, &inner, &runtime))?;
        Ok((door, thread))
    }

    /// Takes a place in the line.
    ///
    /// # Errors
    /// `queue_full`, `shutting_down`.
    pub(crate) fn enter(&self) -> Result<Place, ApiError> {
        let mut state = self.0.lock();
        if state.closing {
            return Err(ApiError::shutting_down());
        }
        if state.places >= self.0.limit {
            self.0.metrics.refused.add(1);
            return Err(ApiError::queue_full());
        }
        state.places += 1;
        Ok(Place(self.0.clone()))
    }

    /// How many run and how many wait.
    pub(crate) fn load(&self) -> (usize, usize) {
        let state = self.0.lock();
        (usize::from(state.running.is_some()), state.waiting.len())
    }

    /// Lets nobody in any more and sends away those who wait.
    pub(crate) fn close(&self) {
        let waiting = {
            let mut state = self.0.lock();
            state.closing = true;
            std::mem::take(&mut state.waiting)
        };
        self.0.wake.notify_all();
        for job in waiting {
            // Nothing was sent yet, so there is room.
            let _ = job.updates.try_send(Update::Failed(Box::new(ApiError::shutting_down())));
        }
    }

    /// Ends what runs; its client is told that the server goes away.
    pub(crate) fn abort(&self) {
        let mut state = self.0.lock();
        state.aborted = true;
        if let Some(cancel) = &state.running {
            cancel.cancel();
        }
    }
}

/// A place in the line, given up when dropped.
pub(crate) struct Place(Arc<Inner>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.lock().places -= 1;
    }
}

impl Place {
    /// Hands in the work.
    pub(crate) fn submit(self, work: Work) -> Answer {
        let (updates, cancel, number) = self.hand_in(work);
        Answer { updates, cancel, number, place: self, ended: false }
    }

    fn hand_in(&self, work: Work) -> (mpsc::Receiver<Update>, Cancel, u64) {
        let (updates, receiver) = mpsc::channel(UNREAD);
        let cancel = Cancel::new();
        let mut state = self.0.lock();
        let number = state.next;
        state.next += 1;
        if state.closing {
            let _ = updates.try_send(Update::Failed(Box::new(ApiError::shutting_down())));
        } else {
            let cancel = cancel.clone();
            let (since, gone) = (Instant::now(), Cell::new(false));
            state.waiting.push_back(Job { number, work, cancel, updates, since, gone });
        }
        drop(state);
        self.0.wake.notify_all();
        (receiver, cancel, number)
    }
}

/// An answer that is being made. Dropped before its end, it cancels the work.
pub(crate) struct Answer {
    updates: mpsc::Receiver<Update>,
    cancel: Cancel,
    number: u64,
    place: Place,
    ended: bool,
}

impl Answer {
    /// The next piece; `None` after the end.
    pub(crate) fn poll_next(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Option<Update>> {
        self.updates.poll_recv(cx).map(|update| self.seen(update))
    }

    /// More work of the same request, once the work before has ended. It waits its turn like others'.
    pub(crate) fn again(&mut self, work: Work) {
        (self.updates, self.cancel, self.number) = self.place.hand_in(work);
        self.ended = false;
    }

    /// The end, however many pieces come before it.
    pub(crate) async fn outcome(&mut self) -> Result<Box<Outcome>, Box<ApiError>> {
        loop {
            let update = self.updates.recv().await;
            match self.seen(update) {
                Some(Update::Done(outcome)) => return Ok(outcome),
                Some(Update::Failed(error)) => return Err(error),
                Some(_) => {}
                None => return Err(Box::new(ApiError::internal())),
            }
        }
    }

    fn seen(&mut self, update: Option<Update>) -> Option<Update> {
        self.ended |= matches!(update, None | Some(Update::Done(_) | Update::Failed(_)));
        update
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        self.cancel.cancel();
        let inner = &self.place.0;
        inner.metrics.left.add(1);
        let mut state = inner.lock();
        let gone = state.waiting.iter().position(|job| job.number == self.number);
        let job = gone.and_then(|at| state.waiting.remove(at));
        drop(state);
        drop(job);
    }
}

/// The engine's thread.
fn work(mut model: impl Model, inner: &Inner, runtime: &tokio::runtime::Handle) {
    while let Some(job) = next(inner) {
        inner.metrics.queue_wait.observe(job.since.elapsed().as_secs_f64());
        let result = catch_unwind(AssertUnwindSafe(|| run(&mut model, &job, inner, runtime)));
        let aborted = {
            let mut state = inner.lock();
            state.running = None;
            state.aborted
        };
        let last = match result {
            Ok(Ok(outcome)) if aborted && outcome.generation.finish == Finish::Cancelled => {
                Update::Failed(Box::new(ApiError::shutting_down()))
            }
            Ok(Ok(outcome)) => {
                inner.metrics.generated(&outcome, &job.since);
                Update::Done(Box::new(outcome))
            }
            Ok(Err(error)) => Update::Failed(Box::new(refusal(&error, inner))),
            Err(_) => {
                inner.metrics.log("internal error: the engine panicked; its cache was dropped");
                if catch_unwind(AssertUnwindSafe(|| model.forget())).is_err() {
                    inner.metrics.log("internal error: the engine's cache cannot be dropped");
                }
                Update::Failed(Box::new(ApiError::internal()))
            }
        };
        inner.metrics.store(model.readings());
        model.notes().iter().for_each(|note| inner.metrics.log(note));
        send(&job, inner, runtime, last);
    }
    // What a panic left half-done is not worth more than the end.
    if catch_unwind(AssertUnwindSafe(|| model.close())).is_err() {
        inner.metrics.log("internal error: the conversations could not be kept");
    }
    model.notes().iter().for_each(|note| inner.metrics.log(note));
}

fn next(inner: &Inner) -> Option<Job> {
    let mut state = inner.lock();
    loop {
        if let Some(job) = state.waiting.pop_front() {
            state.running = Some(job.cancel.clone());
            return Some(job);
        }
        if state.closing {
            return None;
        }
        state = inner.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

fn run(
    model: &mut impl Model,
    job: &Job,
    inner: &Inner,
    runtime: &tokio::runtime::Handle,
) -> Result<Outcome> {
    let mut stopped_at_call = false;
    let mut first = true;
    let work = &job.work;
    // How far the prompt before came is nothing to this one.
    inner.metrics.reading(0, work.prompt.len());
    let generation = model.generate(&work.prompt, &work.options, &job.cancel, &mut |event| {
        let update = match event {
            Event::Prefill { done, total } => {
                inner.metrics.reading(done, total);
                return ControlFlow::Continue(());
            }
            Event::Token { .. } => {
                inner.metrics.live_tokens.add(1);
                if std::mem::take(&mut first) {
                    inner.metrics.reading(work.prompt.len(), work.prompt.len());
                    inner.metrics.first_token.observe(job.since.elapsed().as_secs_f64());
                }
                return ControlFlow::Continue(());
            }
            Event::Scores(scores) => Update::Scores(scores.to_vec()),
            Event::Text(text) => Update::Text(text.to_owned()),
            Event::Reasoning(text) => Update::Reasoning(text.to_owned()),
            Event::ToolCall(call) => {
                stopped_at_call = work.one_call;
                Update::Call(Box::new(call.clone()))
            }
            _ => return ControlFlow::Continue(()),
        };
        if send(job, inner, runtime, update) && !stopped_at_call {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    let reasoning_tokens = work.thought.map_or(0, |thought| thought.count(&generation.token_ids));
    let scored = work.options.logprobs.is_some();
    Ok(Outcome { generation, stopped_at_call, reasoning_tokens, scored })
}

/// Hands a piece on; false if nobody reads any more. Whoever was waited for in vain is not waited for again.
fn send(job: &Job, inner: &Inner, runtime: &tokio::runtime::Handle, update: Update) -> bool {
    let sent = match job.updates.try_send(update) {
        Err(mpsc::error::TrySendError::Full(update)) if !job.gone.get() => runtime
            .block_on(async { tokio::time::timeout(inner.patience, job.updates.send(update)).await })
            .is_ok_and(|sent| sent.is_ok()),
        tried => tried.is_ok(),
    };
    if !sent {
        job.gone.set(true);
    }
    sent
}

/// What a client is told of an engine's error.
fn refusal(error: &Error, inner: &Inner) -> ApiError {
    match error {
        Error::ContextFull { prompt, context } => ApiError::too_long(*prompt, *context),
        Error::Cancelled => ApiError::shutting_down(),
        other => {
            inner.metrics.log(&format!("internal error: {other}"));
            ApiError::internal()
        }
    }
}

#[cfg(test)]
mod tests;
