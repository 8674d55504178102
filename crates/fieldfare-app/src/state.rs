//! What is true: everything that the window draws from, and nothing of how it is drawn.
//!
//! [`crate::update`] alone changes it, from events of the worker and actions of the person; drafts (text that is being
//! written in a field) are the exception: their fields write into them directly.

use crate::settings::{Place, Settings};
use crate::tree;
use fieldfare_app_worker::message::{
    BenchRow, Command, Conversation, ConversationId, Document, EngineSettings, Job, Message, MessageId,
    Model, Offer, Plan, Sample, Service, Step, Summary, Trouble,
};
use std::collections::VecDeque;
use std::path::PathBuf;

/// Why an empty question is not sent.
pub const NOTHING_WRITTEN: &str = "Nothing is written yet.";

/// Which part of the program is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Page {
    /// The conversation.
    #[default]
    Chat,
    /// Models: download, demonstration model, check.
    Models,
    /// The expert cache and figures over time.
    Inspector,
    /// Tokens a second against memory.
    Bench,
    /// Settings.
    Settings,
    /// What this is.
    About,
}

/// What a person does.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Show a part.
    Go(Page),
    /// Show or hide the list of conversations.
    ToggleSidebar,
    /// An empty conversation; it is saved with its first question.
    NewChat,
    /// Show a conversation.
    OpenChat(ConversationId),
    /// The search field has another text.
    SearchChanged,
    /// Put the keyboard into the search field.
    FocusSearch,
    /// Begin to write another name.
    BeginRename(ConversationId),
    /// Use it.
    EndRename,
    /// Leave the old name.
    CancelRename,
    /// Hide a conversation.
    Delete(ConversationId),
    /// Bring it back.
    Restore(ConversationId),
    /// Write it to a file.
    Export(ConversationId),
    /// Where to.
    ExportTo(ConversationId, PathBuf),
    /// Send what is written.
    Send,
    /// End the answer.
    Stop,
    /// Another answer in place of this one.
    Regenerate(MessageId),
    /// Take a question back into the composer.
    Edit(MessageId),
    /// Leave it as it was.
    CancelEdit,
    /// Show another version.
    Version(MessageId),
    /// Put text into the clipboard.
    Copy(String),
    /// Put an example into the composer.
    Example(String),
    /// The composer's text changed.
    Typed,
    /// Let files be chosen as documents.
    PickDocuments,
    /// Files that were dropped or chosen.
    Documents(Vec<PathBuf>),
    /// Leave a document out.
    RemoveDocument(usize),
    /// Another system prompt for this conversation.
    SetSystem(String),
    /// Load a model.
    Load(Model),
    /// Free its memory.
    Unload,
    /// Let a folder for the download be chosen.
    PickInstallFolder,
    /// The download's folder is this one.
    InstallFolder(PathBuf),
    /// Download, or go on.
    Install,
    /// Pause or end a job.
    StopJob(Job),
    /// Throw an unfinished download away.
    Discard,
    /// Unpack the demonstration model.
    InstallDemo,
    /// Check every byte of a model.
    Verify(PathBuf),
    /// Look for models again.
    FindModels,
    /// Let a folder with models be chosen.
    PickModelFolder,
    /// Look there too.
    ModelFolder(PathBuf),
    /// The draft of the engine's settings changed.
    Replan(EngineSettings),
    /// Use the draft.
    ApplyPlan,
    /// Back to what is in force.
    RevertPlan,
    /// Other settings of the window.
    Settings(Box<Settings>),
    /// Larger or smaller by steps; 0 is back to 100 %.
    Zoom(i32),
    /// Measure.
    BenchRun,
    /// End measuring.
    BenchStop,
    /// Close a notice.
    Dismiss(u64),
    /// The window can be seen, or not.
    Visible(bool),
    /// The window is there.
    Placed(Place),
    /// The window shall close.
    Close,
}

/// What is to be done outside of the state.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Tell the worker.
    Send(Command),
    /// Into the clipboard.
    Copy(String),
    /// A dialog of the system.
    Ask(Dialog),
    /// To the front.
    Front,
    /// Back to where the window was.
    Resize(Place),
    /// End the program.
    Exit,
}

/// A dialog of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dialog {
    /// A folder for the download; begins there.
    InstallFolder(PathBuf),
    /// A folder that has models in it.
    ModelFolder,
    /// Text files.
    Documents,
    /// A file for a conversation, and a name to begin with.
    Export(ConversationId, String),
}

/// A long job as far as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It goes on.
    Running(Option<Step>),
    /// It ended well.
    Done(String),
    /// The person ended it.
    Stopped(String),
    /// It failed.
    Failed(Trouble),
}

/// Models and how to get them.
#[derive(Clone, Debug, Default)]
pub struct Models {
    /// Those on this machine; none until they were looked for.
    pub found: Option<Vec<Model>>,
    /// Where the download goes, as it is being written.
    pub folder: String,
    /// The download as it would be.
    pub offer: Option<Offer>,
    /// The jobs' states.
    pub install: Option<JobState>,
    /// Of the demonstration model.
    pub demo: Option<JobState>,
    /// Of a check, and of what.
    pub verify: Option<(PathBuf, JobState)>,
    /// Load the first model that appears, since the person asked for it to be installed.
    pub load_next: bool,
}

/// The engine's settings before they are applied.
#[derive(Clone, Debug, Default)]
pub struct Planning {
    /// As the person wants them.
    pub draft: Option<EngineSettings>,
    /// For which model the two plans are.
    pub model: Option<PathBuf>,
    /// What the machine bears: the end of the slider.
    pub automatic: Option<Plan>,
    /// The newest answer, for the draft or one just before it.
    pub planned: Option<(EngineSettings, Result<Plan, Trouble>)>,
    /// The question that is open.
    pub asked: Option<EngineSettings>,
}

/// The list of conversations.
#[derive(Clone, Debug, Default)]
pub struct Library {
    /// What is searched, as it is being written.
    pub search: String,
    /// What was found.
    pub list: Vec<Summary>,
    /// For which search.
    pub listed: Option<String>,
    /// The one being renamed, and its draft.
    pub rename: Option<(ConversationId, String)>,
    /// The keyboard should be in the search field.
    pub focus_search: bool,
    /// The keyboard should be in the field of the new name.
    pub focus_rename: bool,
}

/// The conversation that is shown.
#[derive(Clone, Debug)]
pub struct Open {
    /// All of it.
    pub conversation: Conversation,
    /// Places of the messages that are shown.
    pub path: Vec<usize>,
}

impl Open {
    /// With its path.
    pub fn new(conversation: Conversation) -> Self {
        let path = tree::path(&conversation);
        Self { conversation, path }
    }

    /// The messages that are shown.
    pub fn shown(&self) -> impl DoubleEndedIterator<Item = &Message> {
        self.path.iter().filter_map(|place| self.conversation.messages.get(*place))
    }

    /// A message by its id.
    pub fn message(&self, id: MessageId) -> Option<&Message> {
        self.conversation.messages.iter().find(|message| message.id == id)
    }
}

/// The answer that is being written.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// In which conversation.
    pub conversation: ConversationId,
    /// Which message.
    pub id: MessageId,
    /// What is there, whether or not its conversation is shown.
    pub text: String,
    /// The thought before it.
    pub thought: String,
    /// Tokens of the prompt that were read, of all.
    pub prefill: Option<(u64, u64)>,
    /// Pieces so far: about as many tokens.
    pub pieces: u64,
    /// When its first piece came.
    pub first_at: Option<f64>,
    /// The person asked for its end.
    pub stopping: bool,
}

/// What is being written.
#[derive(Clone, Debug, Default)]
pub struct Composer {
    /// The text.
    pub text: String,
    /// Documents that go with it.
    pub documents: Vec<Document>,
    /// Documents that are being read.
    pub reading: usize,
    /// The question that this will be another version of.
    pub editing: Option<MessageId>,
    /// What was written before an edit began.
    pub before_edit: String,
    /// Tokens of a text that was counted.
    pub counted: Option<(String, u64)>,
    /// When it changed without having been counted.
    pub uncounted_since: Option<f64>,
    /// The keyboard should be here.
    pub focus: bool,
}

/// A question on its way to the library: kept until it is saved there.
#[derive(Clone, Debug, PartialEq)]
pub struct Sending {
    /// Its conversation; none while that is being made.
    pub conversation: Option<ConversationId>,
    /// What it follows.
    pub parent: Option<MessageId>,
    /// The text.
    pub text: String,
    /// Its documents.
    pub documents: Vec<Document>,
}

/// Figures over time.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The last minutes, oldest first, without the maps.
    pub samples: VecDeque<Sample>,
    /// The newest map: for each layer, for each expert.
    pub newest: Option<Sample>,
    /// When the newest came, by the window's clock.
    pub newest_at: f64,
}

/// How many samples are kept: five minutes at four a second.
pub const SAMPLES: usize = 1_200;

/// The benchmark.
#[derive(Clone, Debug)]
pub struct Bench {
    /// Budgets, as they are being written.
    pub budgets: String,
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Tokens to make.
    pub decode: u32,
    /// Rows so far.
    pub rows: Vec<BenchRow>,
    /// It runs.
    pub running: bool,
    /// How many rows there will be.
    pub expected: usize,
    /// How it ended.
    pub trouble: Option<Trouble>,
}

impl Default for Bench {
    fn default() -> Self {
        Self {
            budgets: "2GiB, 3GiB, 4GiB, 6GiB".to_owned(),
            prompt: 512,
            decode: 64,
            rows: Vec::new(),
            running: false,
            expected: 0,
            trouble: None,
        }
    }
}

/// How much a notice matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Something failed.
    Error,
    /// Something happened that one should know.
    Warning,
    /// Something was done.
    Info,
}

/// A banner.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// To close it.
    pub id: u64,
    /// How much it matters.
    pub weight: Weight,
    /// What happened.
    pub message: String,
    /// What to do.
    pub remedy: String,
    /// A button: its name and what it does.
    pub button: Option<(String, Box<Action>)>,
    /// When it goes by itself.
    pub until: Option<f64>,
}

/// Everything.
#[derive(Clone, Debug)]
pub struct State {
    /// The window's clock, in seconds.
    pub now: f64,
    /// Seconds since 1970.
    pub wall: i64,
    /// What is shown.
    pub page: Page,
    /// What is remembered.
    pub settings: Settings,
    /// The remembered settings were read.
    pub settings_known: bool,
    /// Since when they differ from what is kept.
    pub unsaved_since: Option<f64>,
    /// Models.
    pub models: Models,
    /// The decode service.
    pub service: Service,
    /// Its settings before they are applied.
    pub planning: Planning,
    /// The list.
    pub library: Library,
    /// The conversation.
    pub open: Option<Open>,
    /// The answer.
    pub answer: Option<Answer>,
    /// The composer.
    pub composer: Composer,
    /// A question that is not saved yet.
    pub sending: Option<Sending>,
    /// The system prompt of a conversation that is not saved yet.
    pub new_system: Option<String>,
    /// Figures over time.
    pub seen: Seen,
    /// The benchmark.
    pub bench: Bench,
    /// Banners, oldest first.
    pub notices: Vec<Notice>,
    /// The next banner's id.
    pub next_notice: u64,
    /// Since when the window waits for the worker's end.
    pub closing: Option<f64>,
    /// The window can be seen.
    pub visible: bool,
    /// The worker sends figures of the moment.
    pub watching: bool,
    /// A model to load instead of the remembered one (from the command line).
    pub wanted: Option<PathBuf>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            now: 0.0,
            wall: 0,
            page: Page::Chat,
            settings: Settings::default(),
            settings_known: false,
            unsaved_since: None,
            models: Models::default(),
            service: Service::Off,
            planning: Planning::default(),
            library: Library::default(),
            open: None,
            answer: None,
            composer: Composer { focus: true, ..Composer::default() },
            sending: None,
            new_system: None,
            seen: Seen::default(),
            bench: Bench::default(),
            notices: Vec::new(),
            next_notice: 0,
            closing: None,
            visible: true,
            watching: true,
            wanted: None,
        }
    }
}

impl State {
    /// The model of the service, if it has one.
    pub fn loaded(&self) -> Option<&Model> {
        match &self.service {
            Service::Starting { model } | Service::Ready { model, .. } => Some(model),
            Service::Off | Service::Crashed { .. } | Service::Failed(_) => None,
        }
    }

    /// The loaded model, else the one that would be loaded.
    pub fn chosen(&self) -> Option<&Model> {
        self.loaded().or_else(|| {
            let found = self.models.found.as_deref().unwrap_or_default();
            let wanted = self.wanted.as_ref().or(self.settings.model.as_ref());
            found
                .iter()
                .find(|model| Some(&model.path) == wanted)
                .or_else(|| found.iter().find(|model| !model.is_demo))
                .or_else(|| found.first())
        })
    }

    /// The plan in force.
    pub fn plan(&self) -> Option<&Plan> {
        match &self.service {
            Service::Ready { plan, .. } => Some(plan),
            _ => None,
        }
    }

    /// The engine's settings as the person wants them.
    pub fn draft(&self) -> EngineSettings {
        self.planning.draft.clone().unwrap_or_else(|| self.settings.engine())
    }

    /// The conversation that is shown, if it is saved.
    pub fn open_id(&self) -> Option<ConversationId> {
        self.open.as_ref().map(|open| open.conversation.summary.id)
    }

    /// The answer being written in the conversation that is shown.
    pub fn answer_here(&self) -> Option<&Answer> {
        self.answer.as_ref().filter(|answer| Some(answer.conversation) == self.open_id())
    }

    /// Why a question cannot be sent now; none if it can.
    pub fn why_not_send(&self) -> Option<&'static str> {
        if self.sending.is_some() {
            Some("The question is being saved.")
        } else if self.answer.as_ref().is_some_and(|answer| answer.stopping) {
            Some("The answer is being stopped.")
        } else if self.answer.is_some() {
            Some("An answer is being written; Escape stops it.")
        } else if self.bench.running {
            Some("The benchmark runs; the engine is busy with it.")
        } else if self.composer.reading > 0 {
            Some("A document is being read.")
        } else if let Some(reason) = self.why_no_engine() {
            Some(reason)
        } else if self.composer.text.trim().is_empty() && self.composer.documents.is_empty() {
            Some(NOTHING_WRITTEN)
        } else if self.over_context() {
            Some("It does not fit into the context; shorten it or raise the context in Settings.")
        } else {
            None
        }
    }

    /// Why the engine does not answer; none if it does.
    pub fn why_no_engine(&self) -> Option<&'static str> {
        match &self.service {
            Service::Ready { .. } => None,
            Service::Starting { .. } => Some("The model is being loaded."),
            Service::Crashed { restarting: true, .. } => Some("The engine is being started again."),
            Service::Off | Service::Crashed { .. } | Service::Failed(_) => {
                Some(if self.chosen().is_some() { "No model is loaded." } else { "No model is installed." })
            }
        }
    }

    /// Why another answer cannot be asked for.
    pub fn why_not_regenerate(&self) -> Option<&'static str> {
        if self.answer.is_some() || self.sending.is_some() {
            Some("An answer is being written.")
        } else if self.bench.running {
            Some("The benchmark runs.")
        } else {
            self.why_no_engine()
        }
    }

    /// Tokens of what is being written, as far as they were counted: the text's and the documents'.
    pub fn written_tokens(&self) -> Option<u64> {
        let text = match &self.composer.counted {
            _ if self.composer.text.is_empty() => 0,
            Some((text, tokens)) if *text == self.composer.text => *tokens,
            _ => return None,
        };
        let documents: u64 = self.composer.documents.iter().filter_map(|document| document.tokens).sum();
        Some(text + documents)
    }

    fn over_context(&self) -> bool {
        match (self.written_tokens(), self.plan()) {
            (Some(tokens), Some(plan)) => tokens >= u64::from(plan.context),
            _ => false,
        }
    }

    /// A job that writes or reads a model at this moment.
    pub fn busy_job(&self) -> Option<Job> {
        let running = |state: &Option<JobState>| matches!(state, Some(JobState::Running(_)));
        if running(&self.models.install) {
            Some(Job::Install)
        } else if running(&self.models.demo) {
            Some(Job::Demo)
        } else if matches!(self.models.verify, Some((_, JobState::Running(_)))) {
            Some(Job::Verify)
        } else {
            None
        }
    }
}
