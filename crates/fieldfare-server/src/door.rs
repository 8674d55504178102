//! The door to the engine: one thread owns it, requests wait in a line, and whoever leaves gives up his place.
//!
//! A request first takes a [`Place`], before anything costly is done for it, then hands in its work and gets an
//! [`Answer`] to read from. Work is let in from the line in its order, as much at a time as the model takes side by side.
//! Dropping the answer (the client is gone) takes waiting work out of the line at once, and ends running work within a
//! token, or a layer of a prefill pass. The channel of an answer is bounded: while a reader is behind, his text pauses and
//! the others go on; one who reads nothing for too long counts as gone.
//!
//! Long file: the line, the desk and the answers share one state that nothing outside may see.

use crate::metrics::Metrics;
use crate::wire::error::ApiError;
use fieldfare::chat::ParsedCall;
use fieldfare::engine::{
    Ask, Cancel, Engine, Event, Finish, GenerateOptions, Generation, KeptConversations, Listener, Scores,
    Sharing, Together, TokenScore,
};
use fieldfare::model::RunnerStats;
use fieldfare::{Error, Result};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Pieces of an answer that may lie unread.
const UNREAD: usize = 64;
/// Pieces that a step may come to, as a rule: a text goes on while there is room for so many.
const STEP: usize = 8;
/// How often it is looked whether a text that pauses may go on.
const GLANCE: Duration = Duration::from_millis(20);
/// Turns after which the readings are taken anew while texts run.
const READ_EVERY: u64 = 16;

/// What answers: the engine, or a script in tests.
pub trait Model: Send + 'static {
    /// Begins to work on at most so many texts side by side.
    fn run(&mut self, most: usize) -> Box<dyn Running + '_>;

    /// Forgets everything that a broken-off work left behind.
    fn forget(&mut self);

    /// Readings of the expert store and of what is kept.
    fn readings(&self) -> Readings;

    /// Lines for the log, each once.
    fn notes(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// No more work will come.
    fn close(&mut self) {}
}

/// A model at work; as [`Together`].
pub trait Running {
    /// Takes in a text.
    fn add(&mut self, ask: Ask, listener: &mut dyn Listener);

    /// How many more it would work on now.
    fn places(&self) -> usize;

    /// Works a little: about a pass of a prompt and a step of the texts. False if there was nothing to do.
    fn turn(&mut self, listener: &mut dyn Listener) -> bool;

    /// As [`Model::readings`].
    fn readings(&self) -> Readings;

    /// Lines for the log, each once.
    fn notes(&mut self) -> Vec<String> {
        Vec::new()
    }
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
    /// How many texts share a step.
    pub sharing: Sharing,
}

impl Readings {
    fn new(stats: &RunnerStats, conversations: KeptConversations, sharing: Sharing) -> Self {
        Self {
            hits: stats.hits,
            misses: stats.misses,
            bytes_read: stats.bytes_read,
            read_seconds: stats.read_time.as_secs_f64(),
            kv_bytes: stats.kv_bytes as u64,
            slots: stats.slots,
            conversations,
            sharing,
        }
    }
}

impl Model for Engine {
    fn run(&mut self, most: usize) -> Box<dyn Running + '_> {
        Box::new(self.together(most, false))
    }

    fn forget(&mut self) {
        self.session().clear();
    }

    fn readings(&self) -> Readings {
        Readings::new(&self.stats(), self.kept_conversations(), Sharing::default())
    }

    fn notes(&mut self) -> Vec<String> {
        self.conversation_notes()
    }

    fn close(&mut self) {
        self.save_conversations();
    }
}

impl Running for Together<'_> {
    fn add(&mut self, ask: Ask, listener: &mut dyn Listener) {
        Together::add(self, ask, listener);
    }

    fn places(&self) -> usize {
        Together::places(self)
    }

    fn turn(&mut self, listener: &mut dyn Listener) -> bool {
        Together::turn(self, listener)
    }

    fn readings(&self) -> Readings {
        Readings::new(&self.model().stats(), self.kept_conversations(), self.sharing())
    }

    fn notes(&mut self) -> Vec<String> {
        Together::notes(self)
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
    /// How likely the tokens of the prompt were.
    Prompt(Box<Scores>),
    /// A call of this tool begins.
    CallOpened(String),
    /// More of its arguments.
    CallArguments(String),
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
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    /// Places taken, by those who render, wait and run.
    places: usize,
    next: u64,
    /// The work that runs, by number.
    running: Vec<(u64, Cancel)>,
    /// No more places.
    closing: bool,
    /// Running work was ended because the server goes away.
    aborted: bool,
}

struct Inner {
    state: Mutex<State>,
    wake: Condvar,
    /// Places.
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
    /// Starts the thread that owns `model`. At most `waiting` requests wait while `most` run. A client that reads nothing
    /// for as long as `patience` has left; `runtime` is where slow readers are waited for.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn open(
        patience: Duration,
        model: impl Model,
        (most, waiting): (usize, usize),
        metrics: Arc<Metrics>,
        runtime: tokio::runtime::Handle,
    ) -> std::io::Result<(Self, JoinHandle<()>)> {
        let sharing = Sharing { most, now: most, ..Sharing::default() };
        metrics.store(Readings { sharing, ..model.readings() });
        let (state, wake) = (Mutex::default(), Condvar::new());
        let inner = Arc::new(Inner { state, wake, limit: waiting + most, patience, metrics });
        let door = Self(inner.clone());
        let thread = std::thread::Builder::new()
            .name("engine".to_owned())
            .spawn(move || work(model, most, &inner, &runtime))?;
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
        Ok(Place { inner: self.0.clone(), told: AtomicBool::new(false) })
    }

    /// How many run and how many wait.
    pub(crate) fn load(&self) -> (usize, usize) {
        let state = self.0.lock();
        (state.running.len(), state.waiting.len())
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
        for (_, cancel) in &state.running {
            cancel.cancel();
        }
    }
}

/// A place in the line, given up when dropped.
pub(crate) struct Place {
    inner: Arc<Inner>,
    /// That its client has left was counted, or is not to be.
    told: AtomicBool,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.inner.lock().places -= 1;
    }
}

impl Place {
    /// Hands in work. A request that has more of it may do so again, now or later; it waits its turn like others'.
    pub(crate) fn submit(place: &Arc<Self>, work: Work) -> Answer {
        let (updates, cancel, number) = place.hand_in(work);
        Answer { updates, cancel, number, place: place.clone(), ended: false }
    }

    /// Answers that are dropped from now on are not those of a client who has left.
    pub(crate) fn excuse(&self) {
        self.told.store(true, Ordering::Relaxed);
    }

    fn hand_in(&self, work: Work) -> (mpsc::Receiver<Update>, Cancel, u64) {
        let (updates, receiver) = mpsc::channel(UNREAD);
        let cancel = Cancel::new();
        let mut state = self.inner.lock();
        let number = state.next;
        state.next += 1;
        if state.closing {
            let _ = updates.try_send(Update::Failed(Box::new(ApiError::shutting_down())));
        } else {
            let cancel = cancel.clone();
            state.waiting.push_back(Job { number, work, cancel, updates, since: Instant::now() });
        }
        drop(state);
        self.inner.wake.notify_all();
        (receiver, cancel, number)
    }
}

/// An answer that is being made. Dropped before its end, it cancels the work.
pub(crate) struct Answer {
    updates: mpsc::Receiver<Update>,
    cancel: Cancel,
    number: u64,
    place: Arc<Place>,
    ended: bool,
}

impl Answer {
    /// The next piece; `None` after the end.
    pub(crate) fn poll_next(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Option<Update>> {
        self.updates.poll_recv(cx).map(|update| self.seen(update))
    }

    /// The end, however many pieces come before it.
    #[cfg(test)]
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
        let inner = &self.place.inner;
        if !self.place.told.swap(true, Ordering::Relaxed) {
            inner.metrics.left.add(1);
        }
        let mut state = inner.lock();
        let gone = state.waiting.iter().position(|job| job.number == self.number);
        let job = gone.and_then(|at| state.waiting.remove(at));
        drop(state);
        drop(job);
    }
}

/// The engine's thread.
fn work(mut model: impl Model, most: usize, inner: &Inner, runtime: &tokio::runtime::Handle) {
    let mut desk = Desk { inner, runtime, live: Vec::new(), ended: Vec::new() };
    // Until the end, or a panic: then everybody who was let in is told, and all begins anew.
    while catch_unwind(AssertUnwindSafe(|| serve(&mut *model.run(most), &mut desk))).is_err() {
        inner.metrics.log("internal error: the engine panicked; its cache was dropped");
        if catch_unwind(AssertUnwindSafe(|| model.forget())).is_err() {
            inner.metrics.log("internal error: the engine's cache cannot be dropped");
        }
        desk.fail_all();
    }
    // What a panic left half-done is not worth more than the end.
    if catch_unwind(AssertUnwindSafe(|| model.close())).is_err() {
        inner.metrics.log("internal error: the conversations could not be kept");
    }
    model.notes().iter().for_each(|note| inner.metrics.log(note));
}

/// Lets in from the line and works, until the end.
fn serve(work: &mut dyn Running, desk: &mut Desk<'_>) {
    let mut turns: u64 = 0;
    while let Some(jobs) = desk.next(work.places()) {
        for job in jobs {
            let ask = desk.take_in(job);
            work.add(ask, desk);
        }
        let worked = work.turn(desk);
        turns += 1;
        work.notes().iter().for_each(|note| desk.inner.metrics.log(note));
        if !desk.ended.is_empty() || turns.is_multiple_of(READ_EVERY) {
            desk.inner.metrics.store(work.readings());
        }
        desk.see_off();
        if !worked {
            desk.wait();
        }
    }
}

/// Work that was let in.
struct Live {
    number: u64,
    cancel: Cancel,
    updates: mpsc::Sender<Update>,
    since: Instant,
    /// Tokens of its prompt.
    prompt: usize,
    one_call: bool,
    thought: Option<Thought>,
    /// How likely its tokens were was asked for.
    scored: bool,
    /// Its first token was made.
    spoke: bool,
    stopped_at_call: bool,
    /// Pieces for which there was no room.
    behind: VecDeque<Update>,
    /// Since when the reader has been behind.
    waits: Option<Instant>,
    /// Nobody reads any more.
    gone: bool,
}

impl Live {
    /// Hands a piece on, after those that are behind.
    fn send(&mut self, update: Update) {
        self.behind.push_back(update);
        self.catch_up();
    }

    fn catch_up(&mut self) {
        while let Some(update) = self.behind.pop_front() {
            match self.updates.try_send(update) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Full(update)) => return self.behind.push_front(update),
                Err(mpsc::error::TrySendError::Closed(_)) => self.gone = true,
            }
        }
    }

    /// Whether there is room for what a step brings. Whoever is waited for in vain is not waited for again.
    fn is_ready(&mut self, patience: Duration) -> bool {
        self.catch_up();
        if self.behind.is_empty() && self.updates.capacity() >= STEP {
            self.waits = None;
            return true;
        }
        if self.waits.get_or_insert_with(Instant::now).elapsed() >= patience {
            self.gone = true;
            self.cancel.cancel();
        }
        false
    }
}

/// Between the model and those who wait for answers.
struct Desk<'a> {
    inner: &'a Inner,
    runtime: &'a tokio::runtime::Handle,
    live: Vec<Live>,
    ended: Vec<(u64, Result<Generation>)>,
}

impl Desk<'_> {
    /// Work for up to `places` from the line; waits for some where nothing runs. `None` at the end.
    fn next(&self, places: usize) -> Option<Vec<Job>> {
        let mut state = self.inner.lock();
        loop {
            let count = places.min(state.waiting.len());
            let jobs: Vec<Job> = state.waiting.drain(..count).collect();
            if !jobs.is_empty() || !self.live.is_empty() {
                state.running.extend(jobs.iter().map(|job| (job.number, job.cancel.clone())));
                return Some(jobs);
            }
            if state.closing {
                return None;
            }
            state = self.inner.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn take_in(&mut self, job: Job) -> Ask {
        let Job { number, work, cancel, updates, since } = job;
        self.inner.metrics.queue_wait.observe(since.elapsed().as_secs_f64());
        let Work { prompt, options, one_call, thought } = work;
        if self.live.is_empty() {
            // How far the prompt before came is nothing to this one.
            self.inner.metrics.reading(0, prompt.len());
        }
        self.live.push(Live {
            number,
            cancel: cancel.clone(),
            updates,
            since,
            prompt: prompt.len(),
            one_call,
            thought,
            scored: options.logprobs.is_some(),
            spoke: false,
            stopped_at_call: false,
            behind: VecDeque::new(),
            waits: None,
            gone: false,
        });
        Ask { number, prompt, options, cancel }
    }

    fn live(&mut self, number: u64) -> Option<&mut Live> {
        self.live.iter_mut().find(|live| live.number == number)
    }

    /// Tells those whose work has ended.
    fn see_off(&mut self) {
        for (number, result) in std::mem::take(&mut self.ended) {
            let Some(at) = self.live.iter().position(|live| live.number == number) else { continue };
            let live = self.live.remove(at);
            let aborted = {
                let mut state = self.inner.lock();
                state.running.retain(|(running, _)| *running != number);
                state.aborted
            };
            let last = match result {
                Ok(generation) if aborted && generation.finish == Finish::Cancelled => {
                    Update::Failed(Box::new(ApiError::shutting_down()))
                }
                Ok(generation) => {
                    let reasoning_tokens =
                        live.thought.map_or(0, |thought| thought.count(&generation.token_ids));
                    let (stopped_at_call, scored) = (live.stopped_at_call, live.scored);
                    let outcome = Outcome { generation, stopped_at_call, reasoning_tokens, scored };
                    self.inner.metrics.generated(&outcome, &live.since);
                    Update::Done(Box::new(outcome))
                }
                Err(error) => Update::Failed(Box::new(refusal(&error, self.inner))),
            };
            self.deliver(live, last);
        }
    }

    /// The last piece. A reader who is behind gets the rest when he reads on, and nobody waits for that.
    fn deliver(&self, mut live: Live, last: Update) {
        live.send(last);
        if live.gone || live.behind.is_empty() {
            return;
        }
        let (patience, Live { updates, behind, .. }) = (self.inner.patience, live);
        self.runtime.spawn(async move {
            for update in behind {
                if !tokio::time::timeout(patience, updates.send(update)).await.is_ok_and(|sent| sent.is_ok())
                {
                    return;
                }
            }
        });
    }

    /// A panic: all that ran is over.
    fn fail_all(&mut self) {
        self.ended.clear();
        self.inner.lock().running.clear();
        for live in std::mem::take(&mut self.live) {
            self.deliver(live, Update::Failed(Box::new(ApiError::internal())));
        }
    }

    /// Until a reader who is behind has read on, but not long: work may have come.
    fn wait(&mut self) {
        let Some(live) = self.live.iter().find(|live| live.waits.is_some() && !live.gone) else {
            return std::thread::sleep(GLANCE / 10);
        };
        let room = live.updates.reserve_many(STEP + live.behind.len().min(UNREAD - STEP));
        let _ = self.runtime.block_on(async { tokio::time::timeout(GLANCE, room).await.map(drop) });
    }
}

impl Listener for Desk<'_> {
    fn ready(&mut self, number: u64) -> bool {
        let patience = self.inner.patience;
        self.live(number).is_none_or(|live| live.is_ready(patience))
    }

    fn waiting(&self) -> usize {
        self.inner.lock().waiting.len()
    }

    fn event(&mut self, number: u64, event: Event<'_>) -> ControlFlow<()> {
        let metrics = &self.inner.metrics;
        let Some(live) = self.live.iter_mut().find(|live| live.number == number) else {
            return ControlFlow::Break(());
        };
        let update = match event {
            Event::Prefill { done, total } => {
                metrics.reading(done, total);
                return ControlFlow::Continue(());
            }
            Event::Token { .. } => {
                metrics.live_tokens.add(1);
                if !std::mem::replace(&mut live.spoke, true) {
                    metrics.reading(live.prompt, live.prompt);
                    metrics.first_token.observe(live.since.elapsed().as_secs_f64());
                }
                return ControlFlow::Continue(());
            }
            Event::Scores(scores) => Update::Scores(scores.to_vec()),
            Event::Text(text) => Update::Text(text.to_owned()),
            Event::Reasoning(text) => Update::Reasoning(text.to_owned()),
            Event::PromptScores(scores) => Update::Prompt(Box::new(scores.clone())),
            Event::CallOpened(name) => Update::CallOpened(name.to_owned()),
            Event::CallArguments(text) => Update::CallArguments(text.to_owned()),
            Event::ToolCall(call) => {
                live.stopped_at_call = live.one_call;
                Update::Call(Box::new(call.clone()))
            }
            _ => return ControlFlow::Continue(()),
        };
        live.send(update);
        if live.gone || live.stopped_at_call { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn ended(&mut self, number: u64, result: Result<Generation>) {
        self.ended.push((number, result));
    }
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
