//! The options of `fieldfare serve`.

use super::values::{Parallel, bytes, integer, memory, number, parallel};
use super::{ModelArgs, TuningArgs};
use clap::Args;
use fieldfare::engine::MemoryBudget;
use std::net::IpAddr;
use std::path::PathBuf;

/// `fieldfare serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Address to listen on; one that other machines reach needs an API key
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Port to listen on; 0 takes a free one
    #[arg(long, value_name = "N", default_value_t = 8080)]
    pub port: u16,
    /// Key that requests must show (as Authorization: Bearer KEY). Others on this machine can read a command line, so
    /// the environment variable is the better place
    #[arg(long, value_name = "KEY", env = "FIELDFARE_API_KEY", hide_env_values = true)]
    pub api_key: Option<String>,
    /// File whose only line is that key
    #[arg(long, value_name = "FILE", conflicts_with = "api_key")]
    pub api_key_file: Option<PathBuf>,
    /// Speak TLS with this chain of certificates (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Origin whose web pages may use the server, as https://page.example, or localhost for all of this machine; may be
    /// given several times [default: none]
    #[arg(long, value_name = "ORIGIN", visible_alias = "cors-origin")]
    pub cors: Vec<String>,
    /// Further name that requests may call the server by; may be given several times
    #[arg(long, value_name = "NAME")]
    pub allowed_host: Vec<String>,
    /// Further name of the model; may be given several times
    #[arg(long, value_name = "NAME")]
    pub model_alias: Vec<String>,
    /// Answer to every model name that a request may have
    #[arg(long)]
    pub any_model: bool,
    /// Names under which thoughts go out: reasoning_content, or both (reasoning too)
    #[arg(long, value_name = "NAMES", default_value = "reasoning_content",
        value_parser = ["reasoning_content", "both"])]
    pub reasoning_field: String,
    /// Requests that are answered side by side: 1 to 8, or auto for 4 where memory is plentiful and 1 elsewhere. Where
    /// they cost each other more than they bring, they go one after the other
    #[arg(long, value_name = "N", default_value = "auto", allow_negative_numbers = true, value_parser = parallel)]
    pub parallel: Parallel,
    /// Requests that may wait beside those that are answered
    #[arg(long, value_name = "N", default_value_t = 4, allow_negative_numbers = true,
        value_parser = integer::<0, 1024>)]
    pub queue_limit: usize,
    /// Seconds that an answer may take from its first token on; then it ends as one that has reached its length
    /// (finish_reason length) [default: no limit]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = integer::<1, 86_400>)]
    pub max_generation_seconds: Option<usize>,
    /// Temperature where a request does not say
    #[arg(long, value_name = "T", default_value_t = 0.2, allow_negative_numbers = true,
        value_parser = |text: &str| number(text, 0.0, 2.0))]
    pub temperature: f32,
    /// Let the model think where a request does not say
    #[arg(long, visible_alias = "thinking")]
    pub think: bool,
    /// Bytes that a request's body may have
    #[arg(long, value_name = "SIZE", default_value = "16MiB", allow_hyphen_values = true, value_parser = bytes)]
    pub max_body_bytes: u64,
    /// How lines of the log are written: as text, or as JSON objects with time and message
    #[arg(long, value_name = "FORM", default_value = "text", value_parser = ["text", "json"])]
    pub log_format: String,
    /// Seconds that running answers may go on after Ctrl-C
    #[arg(long, value_name = "SECONDS", default_value_t = 5, allow_negative_numbers = true,
        value_parser = integer::<0, 3600>)]
    pub shutdown_grace: usize,
    /// Open the port only once the model is open; without this, who comes before is told to wait (503 model_loading)
    #[arg(long)]
    pub wait_ready: bool,
    /// Nothing on standard error but errors
    #[arg(short, long)]
    pub quiet: bool,
    /// Which model.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Most tokens of prompt and answer together [default: as many as the memory bears, up to 32768]
    #[arg(long, value_name = "N", help_heading = "Engine", allow_negative_numbers = true,
        value_parser = integer::<1, 1_048_576>)]
    pub max_context: Option<usize>,
    /// Memory that the process may take, mapped weights included: 2GiB, 2GB, 2048MiB, or auto for what machine and
    /// control group leave free
    #[arg(long, value_name = "SIZE", default_value = "auto", help_heading = "Engine", allow_hyphen_values = true,
        value_parser = memory)]
    pub memory: MemoryBudget,
    /// Conversations to keep, the one that is answered included. They take from the memory budget and give way when it is
    /// needed, the least recently used first
    #[arg(long, value_name = "N", default_value_t = 16, help_heading = "Engine", allow_negative_numbers = true,
        value_parser = integer::<1, 256>)]
    pub conversations: usize,
    /// Folder for conversations that have to give way, and for all of them at the end: what is read there need not be
    /// computed again, also by the next start [default: none; they are dropped]
    #[arg(long, value_name = "DIR", help_heading = "Engine")]
    pub prompt_cache_dir: Option<PathBuf>,
    /// Bytes that the files there may take, the least recently used removed first
    #[arg(long, value_name = "SIZE", default_value = "8GiB", help_heading = "Engine", allow_hyphen_values = true,
        value_parser = bytes)]
    pub prompt_cache_bytes: u64,
    /// Threads that compute [default: as the processor suggests]
    #[arg(long, value_name = "N", help_heading = "Engine", allow_negative_numbers = true,
        value_parser = integer::<1, 1024>)]
    pub threads: Option<usize>,
    /// The rest of it.
    #[command(flatten)]
    pub tuning: TuningArgs,
}
