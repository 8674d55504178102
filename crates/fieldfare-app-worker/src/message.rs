//! What the window asks of the worker and what it hears back: the border between pictures and everything that takes time.
//!
//! The window holds what is true and draws it; it never opens a file, a socket or a database. The worker
//! (threads of its own, [`crate::worker`]) does what a [`Command`] says and answers with [`Event`]s, in order for each
//! conversation and job. Both sides are tested alone: the window with scripted events, the worker without a window.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A conversation in the library, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConversationId(pub i64);

/// A message in the library, for ever. Messages of a conversation are a tree: an edited question or another answer is a
/// sibling, and what is shown is the path from the root to the conversation's leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(pub i64);

/// Who wrote a message. The system prompt is a property of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// Where an answer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It grows. Found at start in the library: the program ended meanwhile; the worker turns it into `Interrupted`.
    Writing,
    /// Whole.
    Done,
    /// The person stopped it, or it met the limit of tokens.
    Cut(String),
    /// The service or the program ended meanwhile; the reason in words.
    Interrupted(String),
}

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Its id.
    pub id: MessageId,
    /// What it answers or follows; none for a first question.
    pub parent: Option<MessageId>,
    /// Who wrote it.
    pub role: Role,
    /// Markdown.
    pub text: String,
    /// The thought before an answer; empty if none.
    pub thought: String,
    /// Text documents that came with a question.
    pub documents: Vec<Document>,
    /// Where it is.
    pub progress: Progress,
    /// Seconds since 1970.
    pub written_at: i64,
    /// Figures of the run that made an answer.
    pub run: Option<Run>,
}

impl Message {
    /// A question, or an answer that begins, of no time yet.
    pub fn new(id: MessageId, parent: Option<MessageId>, role: Role, text: impl Into<String>) -> Self {
        let progress = if role == Role::Assistant { Progress::Writing } else { Progress::Done };
        Self {
            id,
            parent,
            role,
            text: text.into(),
            thought: String::new(),
            documents: Vec::new(),
            progress,
            written_at: 0,
            run: None,
        }
    }
}

/// A text document dropped into the window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// File name alone.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Tokens, once counted by the service.
    pub tokens: Option<u64>,
}

/// Figures of one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Tokens of the prompt, and of these known already.
    pub prompt_tokens: u64,
    /// Of the prompt, taken from the kept conversation.
    pub cached_tokens: u64,
    /// Tokens made.
    pub tokens: u64,
    /// Seconds to the first token.
    pub first_token_seconds: f64,
    /// Tokens a second of the prompt.
    pub prefill_per_second: f64,
    /// Tokens a second after the first.
    pub decode_per_second: f64,
    /// Share of experts found in memory, 0 to 1.
    pub hit_rate: f64,
    /// Bytes read from the disk for experts.
    pub read_bytes: u64,
}

/// One line of the list of conversations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Its id.
    pub id: ConversationId,
    /// Its name; the first words of the first question until renamed.
    pub title: String,
    /// Seconds since 1970 of the last change; the list is sorted by it, newest first.
    pub changed_at: i64,
    /// For a search: the place that was found, else empty.
    pub found: String,
}

/// A conversation as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversation {
    /// Its line in the list.
    pub summary: Summary,
    /// System prompt, empty for none.
    pub system: String,
    /// All messages, parents before children.
    pub messages: Vec<Message>,
    /// The end of the path that is shown.
    pub leaf: Option<MessageId>,
}

/// How answers are drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// 0 picks the likeliest.
    pub temperature: f32,
    /// 0 for all.
    pub top_k: u32,
    /// 0 to 1.
    pub top_p: f32,
    /// Think before answering.
    pub thinking: bool,
    /// Most tokens of an answer; none for what fits.
    pub max_tokens: Option<u32>,
    /// The same answer again for the same question.
    pub seed: Option<u64>,
}

impl Default for Sampling {
    /// As everywhere in this program, without a thought.
    fn default() -> Self {
        let usual = fieldfare::sample::Sampling::default();
        Self {
            temperature: usual.temperature,
            top_k: u32::try_from(usual.top_k).unwrap_or(0),
            top_p: usual.top_p,
            thinking: false,
            max_tokens: None,
            seed: None,
        }
    }
}

/// How the engine is started. Other values need a restart of the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineSettings {
    /// Bytes of memory; none for what the machine bears.
    pub memory_bytes: Option<u64>,
    /// Tokens; none for the most that fits.
    pub context: Option<u32>,
    /// Fixed slots for each layer; none: as many as fit.
    pub slots: Option<u32>,
    /// Threads; none for the machine's.
    pub threads: Option<u32>,
    /// Whether a prompt is read in passes (on) or a token at a time.
    pub prefill: bool,
    /// Advice about reads to the system: `off`, `default`, `bounded`, `adaptive`.
    pub advice: String,
}

impl Default for EngineSettings {
    /// What the machine bears, and the engine's own choice of the rest.
    fn default() -> Self {
        Self {
            memory_bytes: None,
            context: None,
            slots: None,
            threads: None,
            prefill: true,
            advice: "default".to_owned(),
        }
    }
}

/// Where memory goes at a budget, and what speed to expect, before it is applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// For which settings.
    pub settings: EngineSettings,
    /// The budget in force.
    pub memory_bytes: u64,
    /// Shared core.
    pub core_bytes: u64,
    /// KV cache at the full context.
    pub kv_bytes: u64,
    /// Expert slots.
    pub slot_bytes: u64,
    /// Everything else.
    pub other_bytes: u64,
    /// Slots of each layer, of how many experts.
    pub slots_per_layer: u32,
    /// Experts of each layer.
    pub experts_per_layer: u32,
    /// Tokens of context.
    pub context: u32,
    /// Share of experts expected in memory.
    pub hit_rate: f64,
    /// Tokens a second to expect; none if this machine was not measured.
    pub tokens_per_second: Option<f64>,
}

/// A model directory on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// Where.
    pub path: PathBuf,
    /// For people.
    pub name: String,
    /// Bytes on disk.
    pub bytes: u64,
    /// Our small model for trying things out.
    pub is_demo: bool,
}

/// The download before it begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// What would be fetched, for people.
    pub name: String,
    /// Where it would go.
    pub target: PathBuf,
    /// Bytes to fetch.
    pub fetch_bytes: u64,
    /// Bytes that are there already from an unfinished download.
    pub kept_bytes: u64,
    /// Bytes needed on the disk.
    pub need_bytes: u64,
    /// Bytes free there.
    pub free_bytes: u64,
    /// Why it cannot begin, with the remedy; none if it can.
    pub obstacle: Option<String>,
}

/// A step of a long job (install, verify, unpack).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What happens now, in words.
    pub stage: String,
    /// Done so far.
    pub done_bytes: u64,
    /// Of how many.
    pub total_bytes: u64,
    /// Bytes a second lately.
    pub bytes_per_second: u64,
    /// Seconds left, when it can be said.
    pub seconds_left: Option<u64>,
    /// Said by the job: "trying again in 4 s: connection reset".
    pub note: Option<String>,
}

/// Which long job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Job {
    /// Download and install.
    Install,
    /// Check every byte.
    Verify,
    /// Unpack the demonstration model.
    Demo,
}

/// What was said when something failed: one line, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// What happened.
    pub message: String,
    /// What to do about it; empty if nothing can be said.
    pub remedy: String,
}

/// The state of the decode service.
#[derive(Clone, Debug, PartialEq)]
pub enum Service {
    /// No model is loaded.
    Off,
    /// It starts.
    Starting {
        /// The model.
        model: Model,
    },
    /// It answers.
    Ready {
        /// The model.
        model: Model,
        /// What it said about its memory.
        plan: Plan,
    },
    /// It ended without being asked; it is started again by itself up to three times in a minute.
    Crashed {
        /// What is known ("killed: the system ran out of memory", "ended with signal 11").
        trouble: Trouble,
        /// Whether it is being started again.
        restarting: bool,
    },
    /// It cannot be started.
    Failed(Trouble),
}

/// Figures of the moment, about four times a second while the service runs and the window is visible.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Milliseconds since the program began (the clock of the plots).
    pub at_ms: u64,
    /// Memory of the service, as its system counts it.
    pub memory_bytes: u64,
    /// Its budget.
    pub budget_bytes: u64,
    /// Tokens of the prompt read so far, and all: none while no prompt is read.
    pub prefill: Option<(u64, u64)>,
    /// Tokens a second lately; 0 when idle.
    pub tokens_per_second: f64,
    /// Bytes a second read for experts lately.
    pub read_bytes_per_second: f64,
    /// Share of hits lately.
    pub hit_rate: f64,
    /// For each layer, for each expert.
    pub experts: Vec<Vec<ExpertCell>>,
}

/// One expert in the map.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ExpertCell {
    /// It is in memory.
    pub resident: bool,
    /// Use lately, 0 to 1 of the most used.
    pub heat: f32,
    /// It was read from the disk since the last sample.
    pub missed: bool,
}

/// A row of the benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchRow {
    /// The budget.
    pub memory_bytes: u64,
    /// Tokens a second when decoding.
    pub decode: f64,
    /// What the machine's limits would allow.
    pub decode_bound: f64,
    /// Tokens a second of the prompt.
    pub prefill: f64,
    /// Seconds to the first token.
    pub first_token_seconds: f64,
    /// Share of hits.
    pub hit_rate: f64,
    /// Peak memory.
    pub peak_bytes: u64,
}

/// What the window asks.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields are what their names say")]
pub enum Command {
    /// Look for models in the usual places and these folders: [`Event::Models`].
    FindModels { folders: Vec<PathBuf> },
    /// What a download into this folder would be: [`Event::Offer`].
    AskOffer { folder: PathBuf },
    /// Download (or go on) into the target of the offer; ends in `Models`, pauses keep what is there.
    Install { target: PathBuf },
    /// Unpack the demonstration model if it is not there.
    InstallDemo,
    /// Check a model.
    Verify { model: PathBuf },
    /// Pause the download, or end a check.
    StopJob(Job),
    /// Throw an unfinished download away.
    DiscardInstall { target: PathBuf },
    /// What a start with these settings would be: [`Event::Planned`]. Asked often while a slider moves; only the newest is answered.
    AskPlan { model: PathBuf, settings: EngineSettings },
    /// Start the service with a model, ending the one that runs.
    Load { model: Model, settings: EngineSettings },
    /// End the service and free its memory.
    Unload,
    /// Conversations, newest first, of which text or title has `search` in it (all if empty): [`Event::Listed`].
    List { search: String },
    /// All of one: [`Event::Opened`].
    Open(ConversationId),
    /// A new one: [`Event::Opened`].
    Create { system: String },
    /// Another name.
    Rename(ConversationId, String),
    /// Another system prompt.
    SetSystem(ConversationId, String),
    /// Hide it; [`Command::Restore`] brings it back until the program ends.
    Delete(ConversationId),
    /// Undo [`Command::Delete`].
    Restore(ConversationId),
    /// Show the path that ends here.
    SetLeaf(ConversationId, MessageId),
    /// Save a question below `parent` and answer it: [`Event::Saved`] for both messages, then `Prefill`, `Piece`s, `Finished`.
    Ask {
        conversation: ConversationId,
        parent: Option<MessageId>,
        text: String,
        documents: Vec<Document>,
        sampling: Sampling,
    },
    /// Another answer to a question that is saved: a sibling of the old one.
    Regenerate { conversation: ConversationId, question: MessageId, sampling: Sampling },
    /// End the answer that is written; what is there stays.
    StopAnswer,
    /// Read a file as a document and count its tokens: [`Event::DocumentRead`].
    ReadDocument { path: PathBuf },
    /// Tokens of a text that is being written: [`Event::Counted`]. Only the newest is answered.
    Count { text: String },
    /// Write a conversation (its shown path) as Markdown or JSON, by the ending of the name.
    Export { conversation: ConversationId, to: PathBuf },
    /// Measure the loaded model's directory at these budgets (the service is ended before and started again after).
    Bench { model: PathBuf, memory_bytes: Vec<u64>, prompt: u32, decode: u32 },
    /// End the measurement.
    StopBench,
    /// Keep the window's settings (one JSON document that the worker does not look into).
    SaveSettings(String),
    /// Whether samples are wanted (a minimized window wants none).
    Watch(bool),
    /// The window closes: end the service, wait for what must be written, then [`Event::Closed`].
    Close,
}

/// What the worker says.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields are what their names say")]
pub enum Event {
    /// Models on this machine.
    Models(Vec<Model>),
    /// A download as it would be.
    Offer(Offer),
    /// A job goes on.
    JobStep(Job, Step),
    /// A job ended well; in words.
    JobDone(Job, String),
    /// A job was paused or ended by the person; how to go on.
    JobStopped(Job, String),
    /// A job failed.
    JobFailed(Job, Trouble),
    /// A start as it would be, or why it cannot be.
    Planned(EngineSettings, Result<Plan, Trouble>),
    /// The service's state changed.
    Service(Service),
    /// The list for a search.
    Listed { search: String, conversations: Vec<Summary> },
    /// A conversation.
    Opened(Conversation),
    /// One line of the list changed (or is new).
    Changed(Summary),
    /// A conversation was hidden; it can be restored.
    Deleted(ConversationId),
    /// A message was saved (a question, or an answer that begins).
    Saved(ConversationId, Message),
    /// A prompt is read: so many of so many tokens.
    Prefill { answer: MessageId, done: u64, total: u64 },
    /// More of an answer's text or thought.
    Piece { answer: MessageId, text: String, thought: String },
    /// An answer ended: the message as it is saved, also when it failed.
    Finished(ConversationId, Message),
    /// A document, or why it cannot be one.
    DocumentRead(Result<Document, Trouble>),
    /// Tokens of the newest text asked for.
    Counted { text: String, tokens: u64 },
    /// A conversation was written there.
    Exported(PathBuf),
    /// Figures of the moment.
    Sample(Sample),
    /// A row of the benchmark is done.
    BenchRow(BenchRow),
    /// The benchmark ended.
    BenchDone(Result<(), Trouble>),
    /// The settings kept, at the start; none if there are none or they cannot be read.
    Settings(Option<String>),
    /// Something else failed (the library cannot be written, a file cannot be exported).
    Trouble(Trouble),
    /// Another window of this program was started and ended again; this one should come to the front.
    Raise,
    /// Everything is written; the window may go.
    Closed,
}
