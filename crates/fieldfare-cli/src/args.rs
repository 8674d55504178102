//! The command line as types: every command, option, default and bound. Help, man pages and shell completions come
//! from here and from nowhere else.

mod bench;
mod model;
mod serve;
mod values;
pub use bench::{BenchArgs, DoctorArgs, GroupArg, RoutingArg};
pub use model::{ModelArgs, PlaceArgs, SourceArgs};
pub use serve::ServeArgs;
pub use values::Parallel;
use values::{integer, memory, number, seed};

use clap::{Args, Parser, Subcommand, ValueEnum};
use fieldfare::engine::MemoryBudget;
use std::path::PathBuf;

/// What the environment decides.
const ENVIRONMENT: &str = "\
Environment:
  FIELDFARE_MODEL    Model directory, or demo, when --model does not name one
  FIELDFARE_API_KEY  Key that requests to serve must show
  FIELDFARE_ISA      Instruction set of the kernels: scalar, avx2, avxvnni, avx512, amx, neon, i8mm
  NO_COLOR           No colours";

/// Runs Gemma 4 26B-A4B on ordinary computers in about 2 GB of memory
///
/// The experts of the model stay on the SSD and are read as they are needed. Text goes to standard output,
/// statistics and errors to standard error.
///
/// Exit status: 0 done, 1 failure, 2 wrong use, 130 interrupted.
#[derive(Debug, Parser)]
#[command(name = "fieldfare", version, max_term_width = 100, after_long_help = ENVIRONMENT)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Bring Gemma 4 26B-A4B from the model hub, or another MLX checkpoint, into a model directory
    Install(InstallArgs),
    /// Copy a model directory into a layout of your choice
    Convert(ConvertArgs),
    /// Check sizes, hashes and structure of a model directory
    Verify(VerifyArgs),
    /// Show architecture, layout, sizes and memory needs of a model directory
    Inspect(InspectArgs),
    /// Talk with the model: one answer, or a conversation on a terminal
    ///
    /// With TEXT or piped input it answers once. On a terminal without TEXT it opens a conversation: /help lists its
    /// commands, Ctrl-C stops an answer, Ctrl-D quits.
    Chat(ChatArgs),
    /// Answer programs over HTTP, as the OpenAI API does
    ///
    /// Listens on 127.0.0.1 only, unless told otherwise. Any program that speaks the OpenAI API works with the address
    /// that is printed, and any key.
    Serve(ServeArgs),
    /// Continue raw text or token ids, without the chat format
    Generate(GenerateArgs),
    /// Give the probability of each token of a text
    Score(ScoreArgs),
    /// Measure speed at several memory budgets, beside what the machine allows
    ///
    /// Every row runs in a process of its own on given tokens, without sampling, while the rates of memory, disk and
    /// arithmetic are measured in between; the bound is what no program could beat at those rates.
    Bench(BenchArgs),
    /// Look at this machine and say what to expect, before anything is downloaded
    Doctor(DoctorArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page, or write all pages into a folder
    Man(ManArgs),
}

/// `fieldfare install`.
#[derive(Debug, Args)]
pub struct InstallArgs {
    /// A folder with a checkpoint, a repository of the model hub (OWNER/NAME), or the https address of a folder with
    /// its files [default: the Gemma 4 26B-A4B checkpoint whose hashes are known]
    #[arg(long, value_name = "SOURCE")]
    pub from: Option<String>,
    /// Commit, branch or tag of a repository [default: the known commit of a known one, else main]
    #[arg(long, value_name = "REV")]
    pub revision: Option<String>,
    /// Model directory to make [default: NAME.gturbo in the data folder, where the other commands find it]
    #[arg(long, value_name = "DIR.gturbo")]
    pub output: Option<PathBuf>,
    /// Order of the weights on disk
    #[arg(long, value_enum, value_name = "LAYOUT", default_value_t = LayoutArg::Tiled)]
    pub layout: LayoutArg,
    /// Replace an existing model directory (never anything else); the old one stays until the new one is complete
    #[arg(long)]
    pub overwrite: bool,
    /// Accept a checkpoint whose hashes are not known beforehand
    #[arg(long)]
    pub allow_unpinned: bool,
    /// Fetch the parts that are not installed too, to prove every file of the source by its hash
    #[arg(long)]
    pub prove_source: bool,
    /// Requests at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = integer::<1, 32>)]
    pub connections: usize,
    /// Longest request in bytes
    #[arg(long, value_name = "N", hide = true, default_value_t = 64 << 20, value_parser = clap::value_parser!(u64).range(4096..=1 << 30))]
    pub longest_request: u64,
    /// Say what would be fetched and written, and do nothing
    #[arg(long, conflicts_with = "discard")]
    pub dry_run: bool,
    /// Remove what an unfinished install left beside the model directory, and nothing else
    #[arg(long, conflicts_with = "overwrite")]
    pub discard: bool,
    /// Events and result as lines of JSON on standard output
    #[arg(long)]
    pub json: bool,
    /// No progress and no closing remarks
    #[arg(short, long)]
    pub quiet: bool,
}

/// `fieldfare convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// Which model.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Order of the weights to write
    #[arg(long, value_enum, value_name = "LAYOUT")]
    pub layout: LayoutArg,
    /// Model directory to make
    #[arg(long, value_name = "DST")]
    pub output: PathBuf,
    /// Replace an existing model directory (never anything else)
    #[arg(long)]
    pub overwrite: bool,
    /// No progress and no closing remarks
    #[arg(short, long)]
    pub quiet: bool,
}

/// `fieldfare verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Which model.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// No progress and no summary
    #[arg(short, long)]
    pub quiet: bool,
}

/// `fieldfare inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Which model.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Plan for this much memory, as --memory of the other commands
    #[arg(long, value_name = "SIZE", default_value = "auto", allow_hyphen_values = true, value_parser = memory)]
    pub memory: MemoryBudget,
    /// Plan for this many tokens of context
    #[arg(long, value_name = "N", default_value_t = 4096, allow_negative_numbers = true,
        value_parser = integer::<1, 1_048_576>)]
    pub max_context: usize,
    /// One JSON object on one line
    #[arg(long)]
    pub json: bool,
}

/// `fieldfare chat`.
#[derive(Debug, Args)]
pub struct ChatArgs {
    /// What to say; without it, piped input or a conversation on the terminal
    #[arg(value_name = "TEXT")]
    pub text: Vec<String>,
    /// Answer the conversation in this file: a JSON array of objects with role and content (- for standard input)
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    pub messages_file: Option<PathBuf>,
    /// Instructions that stand before the conversation
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Let the model think first; the thoughts go to standard error
    #[arg(long)]
    pub think: bool,
    /// Don't read or write the history of typed lines
    #[arg(long)]
    pub no_history: bool,
    /// Which model.
    #[command(flatten)]
    pub model: ModelArgs,
    /// How tokens are chosen.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// How the engine is set up.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// What is printed.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `fieldfare generate`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("input").required(true).args(["prompt", "prompt_file", "tokens_file"]))]
pub struct GenerateArgs {
    /// Text to continue
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// File with the text to continue (- for standard input)
    #[arg(long, value_name = "FILE")]
    pub prompt_file: Option<PathBuf>,
    /// File with a JSON array of token ids to continue, used as they are (- for standard input)
    #[arg(long, value_name = "FILE")]
    pub tokens_file: Option<PathBuf>,
    /// Which model.
    #[command(flatten)]
    pub model: ModelArgs,
    /// How tokens are chosen.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// How the engine is set up.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// What is printed.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `fieldfare score`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("input").required(true).args(["text_file", "tokens_file"]))]
pub struct ScoreArgs {
    /// File with the text to score (- for standard input)
    #[arg(long, value_name = "FILE")]
    pub text_file: Option<PathBuf>,
    /// File with a JSON array of token ids to score, used as they are (- for standard input)
    #[arg(long, value_name = "FILE")]
    pub tokens_file: Option<PathBuf>,
    /// With --json, also the N best next ids and their log-probabilities at each position
    #[arg(long, value_name = "N", default_value_t = 0, requires = "json", allow_negative_numbers = true,
        value_parser = integer::<0, 1024>)]
    pub top: usize,
    /// Which model.
    #[command(flatten)]
    pub model: ModelArgs,
    /// How the engine is set up.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// What is printed.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `fieldfare completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `fieldfare man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Page of this command instead of the program's
    #[arg(value_name = "COMMAND", conflicts_with = "output")]
    pub command: Option<String>,
    /// Write every page into this folder
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// How the next token is chosen, and when to stop.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Most new tokens
    #[arg(long, value_name = "N", default_value_t = 1024, allow_negative_numbers = true,
        value_parser = integer::<1, 1_048_576>)]
    pub max_new: usize,
    /// 0 always takes the most likely token; higher is more varied
    #[arg(long, value_name = "T", default_value_t = 0.2, allow_negative_numbers = true,
        value_parser = |text: &str| number(text, 0.0, 2.0))]
    pub temperature: f32,
    /// Choose among the K most likely tokens; 0 for all
    #[arg(long, value_name = "K", default_value_t = 64, allow_negative_numbers = true,
        value_parser = integer::<0, 1_048_576>)]
    pub top_k: usize,
    /// Choose among the fewest tokens that together have this probability
    #[arg(long, value_name = "P", default_value_t = 0.95, allow_negative_numbers = true,
        value_parser = |text: &str| number(text, f32::MIN_POSITIVE, 1.0))]
    pub top_p: f32,
    /// Leave out tokens less likely than this share of the most likely one's probability
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_negative_numbers = true,
        value_parser = |text: &str| number(text, 0.0, 1.0))]
    pub min_p: f32,
    /// Above 1 makes tokens that stand in the recent text less likely
    #[arg(long, value_name = "R", default_value_t = 1.0, allow_negative_numbers = true,
        value_parser = |text: &str| number(text, 0.01, 100.0))]
    pub repetition_penalty: f32,
    /// Same seed, model and options: same text [default: drawn anew, shown in the statistics]
    #[arg(long, value_name = "SEED", allow_negative_numbers = true,
        value_parser = seed)]
    pub seed: Option<u64>,
    /// Stop before this text; may be given several times
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true,
        value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub stop: Vec<String>,
    /// The answer is one JSON value of the types, properties and choices of the schema in this file ({} for any JSON);
    /// ranges, lengths, patterns and formats in it are not enforced, and a cut by --max-new can leave it unfinished
    #[arg(long, value_name = "FILE")]
    pub json_schema: Option<PathBuf>,
}

/// How the engine is set up.
#[derive(Debug, Args)]
#[command(next_help_heading = "Engine")]
pub struct EngineArgs {
    /// Most tokens of prompt and answer together
    #[arg(long, value_name = "N", default_value_t = 4096, allow_negative_numbers = true,
        value_parser = integer::<1, 1_048_576>)]
    pub max_context: usize,
    /// Memory that the process may take, mapped weights included: 2GiB, 2GB, 2048MiB, or auto for what machine and
    /// control group leave free
    #[arg(long, value_name = "SIZE", default_value = "auto", allow_hyphen_values = true, value_parser = memory)]
    pub memory: MemoryBudget,
    /// The rest of it.
    #[command(flatten)]
    pub tuning: TuningArgs,
    /// Threads that compute [default: as the processor suggests]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = integer::<1, 1024>)]
    pub threads: Option<usize>,
}

/// How the engine works within its memory.
#[derive(Debug, Args)]
#[command(next_help_heading = "Engine")]
pub struct TuningArgs {
    /// Experts of each layer that are kept in memory [default: as many as --memory leaves room for]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = integer::<1, 65_536>)]
    pub expert_cache_slots: Option<usize>,
    /// Which expert makes room for another
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = PolicyArg::Lfu)]
    pub expert_cache_policy: PolicyArg,
    /// How experts are read [default: auto]
    #[arg(long, value_enum, value_name = "HOW", default_value_t = ReadsArg::Auto, hide_default_value = true)]
    pub reads: ReadsArg,
    /// Whether buffered reads of missing experts are announced to the page cache first (direct reads never are)
    #[arg(long, value_enum, value_name = "MODE", default_value_t = RdAdviseArg::Off)]
    pub rdadvise: RdAdviseArg,
    /// Whether experts of the next layer are read before its router has chosen them, while the disk has nothing else to do:
    /// auto while it is measured to pay
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = LookAheadArg::Auto)]
    pub look_ahead: LookAheadArg,
    /// How the resident weights are held [default: auto]
    #[arg(long, value_enum, value_name = "HOW", default_value_t = CoreArg::Auto, hide_default_value = true)]
    pub core: CoreArg,
    /// Whether prompt tokens pass through the model together (on) or one after the other (off)
    #[arg(long, value_enum, value_name = "HOW", default_value_t = PrefillArg::On)]
    pub prefill: PrefillArg,
    /// Prompt tokens that pass through the model together, at most: each pass reads the experts once
    #[arg(long, value_name = "N", default_value_t = 4096, allow_negative_numbers = true,
        value_parser = integer::<1, 8192>)]
    pub prefill_chunk_tokens: usize,
    /// exact computes in float32 throughout, for verification
    #[arg(long, value_enum, value_name = "PRECISION", default_value_t = PrecisionArg::Default)]
    pub precision: PrecisionArg,
}

/// What is printed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Nothing on standard error but errors
    #[arg(short, long)]
    pub quiet: bool,
    /// One JSON object on one line at the end, instead of text
    #[arg(long)]
    pub json: bool,
}

/// Order of the weights on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LayoutArg {
    /// Fieldfare's own: tiles of 16 rows and 64 columns, fastest to run
    Tiled,
    /// The .gturbo v1 format, which TurboFieldfare reads too
    V1,
}

/// Which expert leaves a full cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PolicyArg {
    /// The least often used of late
    Lfu,
    /// The least often used over the whole run
    LfuTotal,
    /// The one unused for longest
    Lru,
}

/// How experts are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReadsArg {
    /// Buffered where memory is plentiful, else direct
    Auto,
    /// Past the page cache, where the file system can
    Direct,
    /// Through the page cache
    Buffered,
}

/// What is announced to the page cache, as in TurboFieldfare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RdAdviseArg {
    /// Nothing
    Off,
    /// All that is missing
    Default,
    /// Up to 12 experts; after a slow call nothing more for that token
    Bounded,
    /// The same with a bound on a token's bytes, and more patient
    Adaptive,
}

/// When experts are read ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LookAheadArg {
    /// While it pays
    Auto,
    /// Always
    On,
    /// Never
    Off,
}

/// How a prompt is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PrefillArg {
    /// Many tokens at once, each expert read once for all of them
    On,
    /// Token by token, with the same result
    Off,
}

/// How the resident weights are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CoreArg {
    /// As the memory plan decides
    Auto,
    /// Mapped from the file; the system may drop pages and read them again
    Mapped,
    /// Copied into memory, in large pages where the system has them
    Copied,
}

/// How exactly to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PrecisionArg {
    /// The KV cache is rounded to float16
    Default,
    /// Everything in float32
    Exact,
}

#[cfg(test)]
mod tests;
