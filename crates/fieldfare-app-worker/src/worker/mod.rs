//! The thread that carries out what the window asks.
//!
//! Everything arrives in one line: commands, what children tell, pieces of an answer. So nothing here needs a lock, and
//! events are in order. What takes time (the network, the disk, the model) runs in children and on threads of its own;
//! the library is written from here, a few milliseconds at a time.

mod answer;
mod commands;

use crate::client::{self, Ended, Failure, Piece};
use crate::instance::Instance;
use crate::jobs::Jobs;
use crate::library::Library;
use crate::message::{Command, Event, Job, MessageId, Sample, Service as ServiceState, Trouble};
use crate::newest::Newest;
use crate::paths::{self, Paths};
use crate::plan::{Asked, Planner};
use crate::process::{Heard, Process};
use crate::service::{News, Service};
use crate::settings;
use crate::trouble::plain;
use crate::wire::Source;
use answer::Answer;
use fieldfare::install::hub::Remote;
use fieldfare::install::{Surroundings, default_remote};
use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Between two looks at what is due.
const TICK: Duration = Duration::from_millis(200);

/// What surrounds the worker.
#[derive(Clone, Debug)]
pub struct Start {
    /// The command that becomes a child; see [`crate::serve_decode`].
    pub child: Vec<OsString>,
    /// Where the model is downloaded from.
    pub remote: Remote,
    /// Download it although its hashes are not known beforehand.
    pub allow_unpinned: bool,
    /// Where models are locked; none for the place that all programs of a person share.
    pub locks: Option<PathBuf>,
    /// A fault for tests: pages that the library may have, 0 for no bound.
    #[doc(hidden)]
    pub library_pages: Arc<AtomicU32>,
}

impl Start {
    /// This program with `--decode-service` as the child, and the usual model.
    pub fn of_system() -> Self {
        let program = std::env::current_exe().map(OsString::from).ok();
        let program = program.or_else(|| std::env::args_os().next()).unwrap_or_default();
        Self {
            child: vec![program, "--decode-service".into()],
            remote: default_remote(Surroundings::of_process().endpoint.as_deref()),
            allow_unpinned: false,
            locks: None,
            library_pages: Arc::default(),
        }
    }

    fn source(&self) -> Source {
        let (endpoint, repo, revision) = match &self.remote {
            Remote::Hub { endpoint, repo, revision } => (endpoint.clone(), repo.clone(), revision.clone()),
            Remote::Base { url } => (url.clone(), String::new(), String::new()),
        };
        Source { endpoint, repo, revision, unpinned: self.allow_unpinned }
    }
}

/// The worker.
pub struct Worker;

impl Worker {
    /// Starts it. `wake` is called after each event, from any thread. The first events are [`Event::Settings`] and what is
    /// to be said about the library. It ends with [`Command::Close`], or when the sender is dropped.
    ///
    /// # Errors
    /// Another program has this data folder (its window is brought to the front), or the folder cannot be used.
    pub fn start(
        paths: Paths,
        how: Start,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<(Sender<Command>, Receiver<Event>), Trouble> {
        paths::make_private(&paths.data)?;
        let instance = Instance::take(&paths.data)?;
        let (commands, asked) = mpsc::channel();
        let (events, heard) = mpsc::channel();
        let (inner, line) = mpsc::channel();
        let say = Say { events, wake: Arc::new(wake) };
        let failed = |error: std::io::Error| {
            plain(format!("a thread cannot be started: {error}"), "Close other programs.")
        };
        let forward = inner.clone();
        spawn("commands", move || {
            for command in asked {
                if forward.send(Inner::Command(command)).is_err() {
                    return;
                }
            }
            // Whoever held the other end is gone.
            let _ = forward.send(Inner::Command(Command::Close));
        })
        .map_err(failed)?;
        spawn("worker", move || {
            let said = say.clone();
            let run = AssertUnwindSafe(move || match State::new(paths, how, instance, say.clone(), inner) {
                Ok(state) => state.run(&line),
                Err(trouble) => say.say(Event::Trouble(trouble)),
            });
            if catch_unwind(run).is_err() {
                said.say(Event::Trouble(plain(
                    "the app has a fault and must be started again",
                    "What was saved is safe.",
                )));
            }
            said.say(Event::Closed);
        })
        .map_err(failed)?;
        Ok((commands, heard))
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

/// The way to the window.
#[derive(Clone)]
struct Say {
    events: Sender<Event>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl Say {
    fn say(&self, event: Event) {
        // A window that is gone hears nothing; its sender is gone too, which ends the worker.
        let _ = self.events.send(event);
        (self.wake)();
    }
}

/// What arrives.
enum Inner {
    Command(Command),
    Service(u64, Heard),
    Job(Job, u64, Heard),
    Offer(u64, Heard),
    Bench(u64, Heard),
    Measure(u64, Heard),
    Sample(u64, Sample),
    Piece(MessageId, Piece),
    Ended(MessageId, Result<Ended, Failure>),
}

/// A small child of which only the newest counts.
struct Side {
    number: u64,
    about: PathBuf,
    process: Option<Process>,
}

struct State {
    paths: Paths,
    how: Start,
    instance: Instance,
    say: Say,
    inner: Sender<Inner>,
    library: Library,
    service: Service,
    jobs: Jobs,
    /// Of the job that runs, what it is about.
    installing: PathBuf,
    verifying: PathBuf,
    offer: Side,
    measure: Side,
    bench: Option<crate::bench::Bench>,
    answer: Option<Answer>,
    planner: Newest<Asked>,
    counter: Newest<(client::Client, String)>,
    /// Tells the thread that takes samples whether they are wanted; dropped, it ends.
    sampler: Option<Sender<bool>>,
    samplers: u64,
    watch: bool,
    service_memory: u64,
    folders: Vec<PathBuf>,
    started: Instant,
}

impl State {
    fn new(
        paths: Paths,
        how: Start,
        instance: Instance,
        say: Say,
        inner: Sender<Inner>,
    ) -> Result<Self, Trouble> {
        say.say(Event::Settings(settings::read(&paths.settings())));
        let (library, troubles) = Library::open(&paths.library(), how.library_pages.clone());
        troubles.into_iter().for_each(|trouble| say.say(Event::Trouble(trouble)));
        let failed = |error: std::io::Error| {
            plain(format!("a thread cannot be started: {error}"), "Close other programs.")
        };
        let (told, mut planner) = (say.clone(), Planner::new(paths.machine()));
        let planner = Newest::start("plan", move |asked: Asked| {
            let plan = planner.plan(&asked);
            told.say(Event::Planned(asked.settings, plan));
        })
        .map_err(failed)?;
        let told = say.clone();
        let counter = Newest::start("count", move |(client, text): (client::Client, String)| {
            // Without a service there is no count; the window shows none.
            if let Ok(tokens) = client.count(&text) {
                told.say(Event::Counted { text, tokens });
            }
        })
        .map_err(failed)?;
        let none = || Side { number: 0, about: PathBuf::new(), process: None };
        Ok(Self {
            service: Service::new(how.child.clone(), how.locks.clone()),
            paths,
            how,
            instance,
            say,
            inner,
            library,
            jobs: Jobs::default(),
            installing: PathBuf::new(),
            verifying: PathBuf::new(),
            offer: none(),
            measure: none(),
            bench: None,
            answer: None,
            planner,
            counter,
            sampler: None,
            samplers: 0,
            watch: true,
            service_memory: 0,
            folders: Vec::new(),
            started: Instant::now(),
        })
    }

    fn run(mut self, line: &Receiver<Inner>) {
        let mut ticked = Instant::now();
        loop {
            match line.recv_timeout(TICK.saturating_sub(ticked.elapsed())) {
                Ok(Inner::Command(Command::Close)) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(arrived) => self.take(arrived),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.tick();
            }
        }
        self.close();
    }

    fn take(&mut self, arrived: Inner) {
        match arrived {
            Inner::Command(command) => self.command(command),
            Inner::Service(number, heard) => {
                let news = self.service.hear(number, heard);
                self.news(news);
            }
            Inner::Job(job, number, heard) => self.heard_of_job(job, number, heard),
            Inner::Offer(number, heard) => self.heard_of_offer(number, heard),
            Inner::Bench(number, heard) => self.heard_of_bench(number, heard),
            Inner::Measure(number, heard) => self.heard_of_measure(number, heard),
            Inner::Sample(number, sample) if number == self.samplers => self.sampled(sample),
            Inner::Sample(..) => {}
            Inner::Piece(id, piece) => self.piece(id, piece),
            Inner::Ended(id, result) => self.stream_ended(id, result),
        }
    }

    fn tick(&mut self) {
        if self.instance.asked_for() {
            self.say.say(Event::Raise);
        }
        let saved = self.library.save_unsaved(false);
        self.told(saved);
        self.tend_answer();
    }

    /// Says what went wrong, if something did.
    fn told(&self, result: Result<(), Trouble>) {
        if let Err(trouble) = result {
            self.say.say(Event::Trouble(trouble));
        }
    }

    fn news(&mut self, news: News) {
        match news {
            News::None => {}
            News::Ready(model, plan) => {
                let budget = plan.memory_bytes;
                self.say.say(Event::Service(ServiceState::Ready { model, plan }));
                self.sample(budget);
                self.service_is_ready();
            }
            News::Down(state) => {
                self.sampler = None;
                self.service_memory = 0;
                let (reason, again) = match &state {
                    ServiceState::Crashed { trouble, restarting } => (trouble.message.clone(), *restarting),
                    ServiceState::Failed(trouble) => (trouble.message.clone(), false),
                    _ => (String::new(), false),
                };
                self.say.say(Event::Service(state));
                self.service_is_down(&reason);
                if again {
                    let hear = self.hear_service();
                    let state = self.service.start(hear);
                    self.say.say(Event::Service(state));
                }
            }
        }
    }

    fn hear_service(&self) -> impl Fn(u64, Heard) + Send + 'static {
        let inner = self.inner.clone();
        move |number, heard| drop(inner.send(Inner::Service(number, heard)))
    }

    /// Takes samples of the service that answers now, until the next one or none.
    fn sample(&mut self, budget: u64) {
        let Some(client) = self.service.client().cloned() else { return };
        let (word, words) = mpsc::channel();
        let _ = word.send(self.wants_samples());
        self.samplers += 1;
        let (number, inner, since) = (self.samplers, self.inner.clone(), self.started);
        let work = move || {
            client::watch(&client, budget, since, &words, &mut |sample| {
                // A worker that is gone takes the sender of words with it.
                let _ = inner.send(Inner::Sample(number, sample));
            });
        };
        // Without samples the rest works.
        if spawn("samples", work).is_ok() {
            self.sampler = Some(word);
        }
    }

    /// Whether figures are asked for: the window shows them, or an answer's prompt is read, of which it is told in any case.
    fn wants_samples(&self) -> bool {
        self.watch || self.answer.as_ref().is_some_and(Answer::reads_prompt)
    }

    /// Lets the thread that takes samples know whether they are wanted.
    fn tell_sampler(&self) {
        if let Some(sampler) = &self.sampler {
            // A thread that has ended has nothing to sample.
            let _ = sampler.send(self.wants_samples());
        }
    }

    fn sampled(&mut self, sample: Sample) {
        self.service_memory = sample.memory_bytes;
        if let Some((done, total)) = sample.prefill {
            self.prefill(done, total);
        }
        if self.watch {
            self.say.say(Event::Sample(sample));
        }
    }

    /// The window closes.
    fn close(mut self) {
        self.end_answer("the app was closed while this was written");
        if let Some(bench) = &mut self.bench {
            bench.stop();
        }
        self.bench = None;
        self.sampler = None;
        self.service.unload();
        self.jobs.end();
        let saved = self.library.save_unsaved(true);
        self.told(saved);
        if self.library.has_unsaved() {
            self.say.say(Event::Trouble(plain(
                "the last changes could not be saved, and are lost now",
                "Free some space before the app is started again.",
            )));
        }
    }
}
