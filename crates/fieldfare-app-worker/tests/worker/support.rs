//! A worker for one test, with a data folder and locks of its own, and ears for its events.

use fieldfare_app_worker::message::{
    Command, Conversation, ConversationId, EngineSettings, Event, Message, Model, Sampling, Service,
};
use fieldfare_app_worker::{Paths, Start, Worker};
pub(crate) use fieldfare_testing::demo;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest wait for anything; a busy machine is slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn model(path: &Path) -> Model {
    Model { path: path.to_path_buf(), name: "demo".into(), bytes: 1, is_demo: true }
}

pub(crate) fn settings() -> EngineSettings {
    EngineSettings { context: Some(1024), threads: Some(1), ..EngineSettings::default() }
}

/// Greedy: the same answer each time.
pub(crate) fn greedy() -> Sampling {
    Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, thinking: false, max_tokens: Some(200), seed: Some(1) }
}

/// A question that the demonstration model never stops to answer, until the context is full: with nothing but the likeliest
/// token it repeats one for ever.
pub(crate) const ENDLESS: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// As [`greedy`], for as long as there is room.
pub(crate) fn endless() -> Sampling {
    Sampling { max_tokens: None, ..greedy() }
}

/// Copies a folder.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Where a worker lives, over several starts.
pub(crate) struct Home {
    pub(crate) folder: TempDir,
    pub(crate) start: Start,
    /// In the command line of this home's children, and of no others.
    marker: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let folder = tempfile::tempdir().unwrap();
        let locks = folder.path().join("locks");
        std::fs::create_dir(&locks).unwrap();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let marker = format!("--of-test-{}-{number}", std::process::id());
        let mut start = Start::of_system();
        start.child = vec![env!("CARGO_BIN_EXE_fieldfare-decode-service").into(), marker.clone().into()];
        start.locks = Some(locks);
        Self { folder, start, marker }
    }

    pub(crate) fn paths(&self) -> Paths {
        Paths { data: self.folder.path().join("app"), models: vec![self.folder.path().join("models")] }
    }

    pub(crate) fn open(&self) -> Rig {
        let (commands, events) = Worker::start(self.paths(), self.start.clone(), || {}).unwrap();
        Rig { commands, events, seen: Vec::new() }
    }

    /// A worker with the demonstration model loaded.
    pub(crate) fn loaded(&self) -> Rig {
        let mut rig = self.open();
        rig.load(&demo());
        rig
    }

    /// The same with room for an answer that goes on while a busy machine lets nobody look at it.
    pub(crate) fn loaded_for_long(&self) -> Rig {
        let mut rig = self.open();
        let settings = EngineSettings { context: Some(4096), ..settings() };
        rig.tell(Command::Load { model: model(&demo()), settings });
        rig.ready();
        rig
    }

    /// Process ids of the children that run.
    pub(crate) fn children(&self) -> Vec<u32> {
        processes_with(&self.marker)
    }

    pub(crate) fn marker(&self) -> &str {
        &self.marker
    }

    /// Ends the child as the system does when memory runs out.
    pub(crate) fn kill_child(&self) {
        let children = self.children();
        assert_eq!(children.len(), 1, "one child runs");
        kill(children[0]);
    }
}

/// Processes that have a word in their command line.
pub(crate) fn processes_with(word: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.split(|&byte| byte == 0).any(|arg| arg == word.as_bytes())
    })
    .collect()
}

pub(crate) fn kill(id: u32) {
    let status = std::process::Command::new("kill").args(["-9", &id.to_string()]).status().unwrap();
    assert!(status.success());
}

pub(crate) fn until(what: &str, limit: Duration, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A running worker.
pub(crate) struct Rig {
    pub(crate) commands: Sender<Command>,
    events: Receiver<Event>,
    /// All but samples, for messages.
    seen: Vec<Event>,
}

impl Rig {
    pub(crate) fn tell(&self, command: Command) {
        self.commands.send(command).unwrap();
    }

    /// The next event that is one of these; the others pass by.
    pub(crate) fn wait<T>(&mut self, what: &str, mut pick: impl FnMut(&Event) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(event) = self.events.recv_timeout(left) else {
                let tail = &self.seen[self.seen.len().saturating_sub(12)..];
                panic!("no {what}; the last events: {tail:#?}");
            };
            let picked = pick(&event);
            if !matches!(event, Event::Sample(_)) {
                self.seen.push(event);
            }
            if let Some(picked) = picked {
                return picked;
            }
        }
    }

    pub(crate) fn load(&mut self, path: &Path) {
        self.tell(Command::Load { model: model(path), settings: settings() });
        self.ready();
    }

    pub(crate) fn ready(&mut self) {
        self.wait("service", |event| match event {
            Event::Service(Service::Ready { .. }) => Some(()),
            Event::Service(Service::Failed(trouble)) => panic!("{trouble:?}"),
            _ => None,
        });
    }

    pub(crate) fn create(&mut self, system: &str) -> ConversationId {
        self.tell(Command::Create { system: system.into() });
        self.opened().summary.id
    }

    pub(crate) fn opened(&mut self) -> Conversation {
        self.wait("conversation", |event| match event {
            Event::Opened(conversation) => Some(conversation.clone()),
            _ => None,
        })
    }

    pub(crate) fn open_conversation(&mut self, id: ConversationId) -> Conversation {
        self.tell(Command::Open(id));
        self.opened()
    }

    /// Asks as if nothing had been said before.
    pub(crate) fn ask_first(
        &mut self,
        id: ConversationId,
        text: &str,
        sampling: Sampling,
    ) -> (Message, Message) {
        let documents = Vec::new();
        self.tell(Command::Ask { conversation: id, parent: None, text: text.into(), documents, sampling });
        (self.saved(), self.saved())
    }

    /// Asks below the end of a conversation; question and answer as they are saved first.
    pub(crate) fn ask(&mut self, id: ConversationId, text: &str, sampling: Sampling) -> (Message, Message) {
        let parent = self.open_conversation(id).leaf;
        self.tell(Command::Ask {
            conversation: id,
            parent,
            text: text.into(),
            documents: Vec::new(),
            sampling,
        });
        (self.saved(), self.saved())
    }

    pub(crate) fn saved(&mut self) -> Message {
        self.wait("saved message", |event| match event {
            Event::Saved(_, message) => Some(message.clone()),
            _ => None,
        })
    }

    pub(crate) fn finished(&mut self) -> Message {
        self.wait("end of the answer", |event| match event {
            Event::Finished(_, message) => Some(message.clone()),
            _ => None,
        })
    }

    /// Closes; what else was said goes with it.
    pub(crate) fn close(mut self) {
        self.tell(Command::Close);
        self.wait("farewell", |event| matches!(event, Event::Closed).then_some(()));
    }

    /// Troubles said so far.
    pub(crate) fn troubles(&self) -> usize {
        self.seen.iter().filter(|event| matches!(event, Event::Trouble(_))).count()
    }
}
