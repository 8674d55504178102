//! A worker without an engine, a disk or a clock: it keeps its library in memory and answers what it is told to.

use fieldfare_app_worker::message::{
    BenchRow, Command, Conversation, ConversationId, Document, EngineSettings, Event, ExpertCell, Job,
    Message, MessageId, Model, Offer, Plan, Progress, Role, Run, Sample, Service, Step, Summary, Trouble,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender};

/// The time of day at which all tests happen.
pub(crate) const NOW: i64 = 1_764_500_000;

/// The worker.
pub(crate) struct Fake {
    commands: Receiver<Command>,
    events: Sender<Event>,
    /// All that was asked.
    pub(crate) asked: Vec<Command>,
    /// The library.
    pub(crate) conversations: BTreeMap<i64, Conversation>,
    hidden: BTreeMap<i64, Conversation>,
    /// Models on the pretended machine.
    pub(crate) models: Vec<Model>,
    /// Whether a load becomes ready by itself.
    pub(crate) loads: bool,
    /// What is said about a plan instead of one.
    pub(crate) plan_trouble: Option<Trouble>,
    writing: Option<(ConversationId, Message)>,
    next: i64,
}

/// The large model.
pub(crate) fn large() -> Model {
    let path = PathBuf::from("/home/ada/.local/share/fieldfare/models/gemma-4-26b-a4b.gturbo");
    Model { path, name: "Gemma 4 26B-A4B".to_owned(), bytes: 14_313_000_000, is_demo: false }
}

/// The demonstration model.
pub(crate) fn demo() -> Model {
    let path = PathBuf::from("/home/ada/.local/share/fieldfare/models/demo.gturbo");
    Model { path, name: "Demonstration model (a toy)".to_owned(), bytes: 12_600_000, is_demo: true }
}

/// Where memory goes with these settings.
pub(crate) fn plan(settings: EngineSettings) -> Plan {
    let memory_bytes = settings.memory_bytes.unwrap_or(12_000_000_000).clamp(1_900_000_000, 16_000_000_000);
    let (core_bytes, other_bytes) = (1_352_000_000, 96_000_000);
    let context = settings.context.unwrap_or(8_192);
    let kv_bytes = u64::from(context) * 26_000;
    let left = memory_bytes.saturating_sub(core_bytes + other_bytes + kv_bytes);
    let slot = 30 * 3_345_408;
    let slots = settings.slots.unwrap_or(128).min((left / slot) as u32).clamp(1, 128);
    Plan {
        memory_bytes,
        core_bytes,
        kv_bytes,
        slot_bytes: u64::from(slots) * slot,
        other_bytes,
        slots_per_layer: slots,
        experts_per_layer: 128,
        context,
        hit_rate: (f64::from(slots) / 128.0).powf(0.35),
        tokens_per_second: Some(2.0 + f64::from(slots) * 0.07),
        settings,
    }
}

/// A message of the past.
pub(crate) fn message(id: i64, parent: Option<i64>, role: Role, text: &str) -> Message {
    let run = Run {
        prompt_tokens: 514,
        cached_tokens: 386,
        tokens: 212,
        first_token_seconds: 1.4,
        prefill_per_second: 92.0,
        decode_per_second: 5.3,
        hit_rate: 0.71,
        read_bytes: 4_200_000_000,
    };
    let run = (role == Role::Assistant).then_some(run);
    let new = Message::new(MessageId(id), parent.map(MessageId), role, text);
    Message { progress: Progress::Done, written_at: NOW - 600, run, ..new }
}

impl Fake {
    /// Its ends of the two lines.
    pub(crate) fn new(commands: Receiver<Command>, events: Sender<Event>) -> Self {
        Self {
            commands,
            events,
            asked: Vec::new(),
            conversations: BTreeMap::new(),
            hidden: BTreeMap::new(),
            models: vec![large(), demo()],
            loads: true,
            plan_trouble: None,
            writing: None,
            next: 1_000,
        }
    }

    /// Says something.
    pub(crate) fn say(&self, event: Event) {
        self.events.send(event).expect("the window is there");
    }

    /// A conversation of the past.
    pub(crate) fn remember(&mut self, id: i64, title: &str, age: i64, messages: Vec<Message>) {
        let summary = Summary {
            id: ConversationId(id),
            title: title.to_owned(),
            changed_at: NOW - age,
            found: String::new(),
        };
        let leaf = messages.last().map(|message| message.id);
        self.conversations.insert(id, Conversation { summary, system: String::new(), messages, leaf });
    }

    /// Answers what was asked since; how much that was.
    pub(crate) fn pump(&mut self) -> usize {
        let commands: Vec<Command> = self.commands.try_iter().collect();
        let count = commands.len();
        commands.into_iter().for_each(|command| self.hear(command));
        count
    }

    /// Answers one command.
    pub(crate) fn hear(&mut self, command: Command) {
        self.asked.push(command.clone());
        self.answer(command);
    }

    fn answer(&mut self, command: Command) {
        match command {
            Command::FindModels { .. } => self.say(Event::Models(self.models.clone())),
            Command::AskOffer { .. } => self.say(Event::Offer(offer(0))),
            Command::AskPlan { settings, .. } => {
                let plan = match &self.plan_trouble {
                    Some(trouble) if settings.memory_bytes.is_some() => Err(trouble.clone()),
                    _ => Ok(plan(settings.clone())),
                };
                self.say(Event::Planned(settings, plan));
            }
            Command::Load { model, settings } => {
                self.say(Event::Service(Service::Starting { model: model.clone() }));
                if self.loads {
                    self.say(Event::Service(Service::Ready { model, plan: plan(settings) }));
                }
            }
            Command::Unload => self.say(Event::Service(Service::Off)),
            Command::InstallDemo => {
                self.models.push(demo());
                self.say(Event::JobDone(Job::Demo, "Unpacked.".to_owned()));
            }
            Command::StopJob(job) => {
                self.say(Event::JobStopped(job, "Paused; what was fetched stays.".to_owned()));
            }
            Command::ReadDocument { path } => self.say(Event::DocumentRead(document(&path))),
            Command::Count { text } => {
                let tokens = text.split_whitespace().count() as u64;
                self.say(Event::Counted { text, tokens });
            }
            Command::Export { to, .. } => self.say(Event::Exported(to)),
            Command::Close => self.say(Event::Closed),
            other => self.library(other),
        }
    }

    fn library(&mut self, command: Command) {
        match command {
            Command::List { search } => {
                let found = |conversation: &&Conversation| {
                    let lower = search.to_lowercase();
                    conversation.summary.title.to_lowercase().contains(&lower)
                        || conversation
                            .messages
                            .iter()
                            .any(|message| message.text.to_lowercase().contains(&lower))
                };
                let mut conversations: Vec<Summary> = self
                    .conversations
                    .values()
                    .filter(found)
                    .map(|conversation| conversation.summary.clone())
                    .collect();
                conversations.sort_by_key(|summary| -summary.changed_at);
                if !search.is_empty() {
                    for summary in &mut conversations {
                        summary.found = format!("… {search} …");
                    }
                }
                self.say(Event::Listed { search, conversations });
            }
            Command::Open(id) => {
                if let Some(conversation) = self.conversations.get(&id.0) {
                    self.say(Event::Opened(conversation.clone()));
                }
            }
            Command::Create { system } => {
                self.next += 1;
                self.remember(self.next, "New conversation", 0, Vec::new());
                let conversation = self.conversations.get_mut(&self.next).expect("just made");
                conversation.system = system;
                let conversation = conversation.clone();
                self.say(Event::Opened(conversation));
            }
            Command::Rename(id, title) => {
                let conversation = self.conversations.get_mut(&id.0).expect("a known conversation");
                conversation.summary.title = title;
                let summary = conversation.summary.clone();
                self.say(Event::Changed(summary));
            }
            Command::Delete(id) => {
                let conversation = self.conversations.remove(&id.0).expect("a known conversation");
                self.hidden.insert(id.0, conversation);
                self.say(Event::Deleted(id));
            }
            Command::Restore(id) => {
                let conversation = self.hidden.remove(&id.0).expect("a hidden conversation");
                let summary = conversation.summary.clone();
                self.conversations.insert(id.0, conversation);
                self.say(Event::Changed(summary));
            }
            Command::SetLeaf(id, leaf) => {
                self.conversations.get_mut(&id.0).expect("a known conversation").leaf = Some(leaf);
            }
            Command::Ask { conversation, parent, text, documents, .. } => {
                let question = self.save(conversation, parent, Role::User, &text, documents);
                self.begin(conversation, question);
            }
            Command::Regenerate { conversation, question, .. } => self.begin(conversation, question),
            Command::StopAnswer => self.finish(Progress::Cut("Stopped.".to_owned())),
            _ => {}
        }
    }

    fn save(
        &mut self,
        conversation: ConversationId,
        parent: Option<MessageId>,
        role: Role,
        text: &str,
        documents: Vec<Document>,
    ) -> MessageId {
        self.next += 1;
        let mut new = message(self.next, parent.map(|id| id.0), role, text);
        new.documents = documents;
        new.written_at = NOW;
        if role == Role::Assistant {
            new.progress = Progress::Writing;
            new.run = None;
            self.writing = Some((conversation, new.clone()));
        }
        let kept = self.conversations.get_mut(&conversation.0).expect("a known conversation");
        if kept.messages.is_empty() {
            kept.summary.title = text.to_owned();
        }
        kept.summary.changed_at = NOW;
        kept.messages.push(new.clone());
        kept.leaf = Some(new.id);
        let summary = kept.summary.clone();
        let id = new.id;
        self.say(Event::Saved(conversation, new));
        self.say(Event::Changed(summary));
        id
    }

    fn begin(&mut self, conversation: ConversationId, question: MessageId) {
        self.save(conversation, Some(question), Role::Assistant, "", Vec::new());
    }

    /// Reads the prompt so far.
    pub(crate) fn prefill(&self, done: u64, total: u64) {
        let (_, message) = self.writing.as_ref().expect("an answer is written");
        self.say(Event::Prefill { answer: message.id, done, total });
    }

    /// More of the answer.
    pub(crate) fn piece(&mut self, text: &str, thought: &str) {
        let (_, message) = self.writing.as_mut().expect("an answer is written");
        message.text.push_str(text);
        message.thought.push_str(thought);
        let answer = message.id;
        self.say(Event::Piece { answer, text: text.to_owned(), thought: thought.to_owned() });
    }

    /// The answer ends.
    pub(crate) fn finish(&mut self, progress: Progress) {
        let Some((conversation, mut done)) = self.writing.take() else { return };
        done.progress = progress;
        done.run = message(0, None, Role::Assistant, "").run;
        let kept = self.conversations.get_mut(&conversation.0).expect("a known conversation");
        let place = kept.messages.iter().position(|message| message.id == done.id).expect("it was saved");
        kept.messages[place] = done.clone();
        self.say(Event::Finished(conversation, done));
    }

    /// The service dies; the answer with it.
    pub(crate) fn crash(&mut self, restarting: bool) {
        self.finish(Progress::Interrupted("Cut off here: the engine ended.".to_owned()));
        let trouble = Trouble {
            message: "killed: the system ran out of memory".to_owned(),
            remedy: "Lower the memory budget in Settings.".to_owned(),
        };
        self.say(Event::Service(Service::Crashed { trouble, restarting }));
    }
}

/// A download, of which so much is here.
pub(crate) fn offer(kept_bytes: u64) -> Offer {
    Offer {
        name: "Gemma 4 26B-A4B".to_owned(),
        target: large().path,
        fetch_bytes: 14_248_000_000,
        kept_bytes,
        need_bytes: 14_400_000_000,
        free_bytes: 213_000_000_000,
        obstacle: None,
    }
}

/// A step of the download.
pub(crate) fn step(done_bytes: u64) -> Step {
    Step {
        stage: "Fetching layer 7 of 30".to_owned(),
        done_bytes,
        total_bytes: 14_248_000_000,
        bytes_per_second: 46_000_000,
        seconds_left: Some(240),
        note: None,
    }
}

fn document(path: &Path) -> Result<Document, Trouble> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if name.ends_with(".png") {
        return Err(Trouble {
            message: format!("{name} is not text."),
            remedy: "Only text documents can be read; save it as text first.".to_owned(),
        });
    }
    Ok(Document { name, text: "A text of some words.".to_owned(), tokens: Some(1_234) })
}

/// A moment of a run: which experts are there is decided by arithmetic, not by chance.
pub(crate) fn sample(step: u64) -> Sample {
    let cell = |layer: u64, expert: u64| {
        let mixed = (layer * 131 + expert * 31 + (layer * expert) % 17).wrapping_mul(2_654_435_761) >> 7;
        let heat = ((mixed % 1_000) as f32 / 1_000.0).powi(3);
        let resident = heat > 0.02;
        let missed = resident && (mixed / 1_000 + step).is_multiple_of(61);
        ExpertCell { resident, heat: if resident { heat } else { 0.0 }, missed }
    };
    let wave = |period: f64| (step as f64 / period).sin();
    Sample {
        at_ms: step * 250,
        memory_bytes: 3_600_000_000 + (wave(40.0) * 1e8) as u64,
        budget_bytes: 4_000_000_000,
        prefill: None,
        tokens_per_second: 5.3 + 0.5 * wave(9.0),
        read_bytes_per_second: 6.1e8 + 1.4e8 * wave(5.0),
        hit_rate: 0.71,
        experts: (0..30).map(|layer| (0..128).map(|expert| cell(layer, expert)).collect()).collect(),
    }
}

/// A row of the benchmark.
pub(crate) fn bench_row(gigabytes: f64) -> BenchRow {
    let decode = [(2.0, 2.3), (3.0, 4.3), (4.0, 5.3), (6.0, 9.7)]
        .into_iter()
        .find(|(budget, _)| *budget == gigabytes)
        .map_or(11.0, |(_, decode)| decode);
    BenchRow {
        memory_bytes: (gigabytes * 1e9) as u64,
        decode,
        decode_bound: decode * 1.3,
        prefill: 54.0,
        first_token_seconds: 9.4,
        hit_rate: 0.4 + gigabytes * 0.08,
        peak_bytes: (gigabytes * 0.98e9) as u64,
    }
}
