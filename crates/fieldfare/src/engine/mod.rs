//! The engine: one open model, its KV cache, and what one does with them: continue a prompt, talk, score.
//!
//! [`Engine::open`] takes the model's lock and makes everything ready; [`Session`] runs one call at a time
//! and keeps what the KV cache holds, so that a conversation costs only its new part. The token loop is
//! written against [`crate::model::Forward`]; [`Together`] runs many at once. Results depend on model, prompt, options and seed, and on
//! nothing else: not on what was asked before, chunks, slots or threads.

mod answer;
mod arrange;
pub mod budget;
mod conversations;
mod event;
mod generate;
mod options;
mod pace;
mod score;
mod session;
mod snapshots;
mod together;

pub use budget::{Core, MemoryBudget, Plan};
pub use conversations::{KeptConversations, Reuse};
pub use event::{Candidate, Event, Finish, Generation, Scores, Timings, TokenScore};
pub use options::{Beside, Cancel, EngineOptions, GenerateOptions, OutputMode};
pub use pace::Sharing;
pub use session::Session;
pub use together::{Ask, Listener, Together};

#[cfg(test)]
mod tests;

use crate::format::{Integrity, ModelDir, hash};
use crate::model::{Forward, Prepared, Runner, RunnerStats, Sequence};
use crate::sys::lock::ModelLock;
use crate::sys::paths;
use crate::tokenizer::Tokenizer;
use crate::{Error, Result};
use conversations::Conversations;
use serde_json::Value;
use session::Counters;
use sha2::{Digest, Sha256};
use snapshots::Snapshots;
use std::path::Path;
use std::sync::Arc;

/// Largest `config.json` that is read.
const MAX_CONFIG_BYTES: u64 = 4 << 20;

/// One model, open and owned by this process.
pub struct Engine {
    runner: Runner,
    plan: Plan,
    /// What the KV cache holds, kept from session to session.
    conversations: Conversations<Sequence>,
    tokenizer: Result<Arc<Tokenizer>, String>,
    stop_ids: Vec<u32>,
    /// Held for as long as the model is open; last, so that it goes last.
    _lock: ModelLock,
}

impl Engine {
    /// Opens a model directory: checks it, takes its lock, loads the tokenizer if there is one, and makes the
    /// runner.
    ///
    /// # Errors
    /// Those of [`ModelDir::open`]; [`Error::Locked`] while another process has the model;
    /// [`Error::BadRequest`] for options out of range or a memory budget below what works; a damaged tokenizer. A missing tokenizer is none.
    pub fn open(path: &Path, options: EngineOptions) -> Result<Self> {
        options.validate()?;
        let dir = Arc::new(ModelDir::open(path, Integrity::Receipt)?);
        let identity = hash::hex(&dir.manifest_sha256());
        let lock = match &options.runtime_dir {
            Some(dir) => ModelLock::acquire_in(dir, &identity, path)?,
            None => ModelLock::acquire(&identity, path)?,
        };
        let tokenizer = open_tokenizer(&dir)?;
        let stop_ids = match &tokenizer {
            Ok(tokenizer) => tokenizer.control().stop_ids(),
            Err(_) => configured_stop_ids(&dir)?,
        };
        let snapshots = open_snapshots(&options, &dir.manifest_sha256())?;
        let prepared = Prepared::new(dir, options.runner())?;
        let plan = arrange::plan(&prepared, &options, arrange::Holding::Measured)?;
        let runner = prepared.run(arrange::memory(&plan))?;
        if let Ok(tokenizer) = &tokenizer
            && tokenizer.vocab_size() > runner.vocab_size()
        {
            let reason =
                format!("has {} entries, the model has {}", tokenizer.vocab_size(), runner.vocab_size());
            return Err(Error::damaged("tokenizer/tokenizer.json", reason));
        }
        let conversations = Conversations::new(options.conversations, snapshots);
        Ok(Self { runner, plan, conversations, tokenizer, stop_ids, _lock: lock })
    }

    /// The directory.
    pub fn model_dir(&self) -> &ModelDir {
        self.runner.dir()
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// [`Error::NoTokenizer`] where the model was installed without one.
    pub fn tokenizer(&self) -> Result<&Arc<Tokenizer>> {
        self.tokenizer.as_ref().map_err(|reason| Error::NoTokenizer(reason.clone()))
    }

    /// Number of token ids.
    pub fn vocab_size(&self) -> usize {
        self.runner.vocab_size()
    }

    /// Tokens that the KV cache may hold.
    pub fn max_context(&self) -> usize {
        self.runner.max_context()
    }

    /// The ids that end an answer unless a call names others.
    pub fn stop_ids(&self) -> &[u32] {
        &self.stop_ids
    }

    /// Where the memory goes.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What the model did since it was opened, and the memory it takes.
    pub fn stats(&self) -> RunnerStats {
        self.runner.stats()
    }

    /// Which experts are in memory: for eyes, from any thread, also while a session runs.
    pub fn board(&self) -> Arc<crate::store::Board> {
        self.runner.board()
    }

    /// [`Engine::stats`] with the huge pages counted, which takes the system a moment.
    pub fn stats_with_pages(&self) -> RunnerStats {
        self.runner.stats_with_pages()
    }

    /// What is kept of conversations.
    pub fn kept_conversations(&self) -> KeptConversations {
        self.conversations.kept()
    }

    /// What happened to files of conversations that somebody should know; each line once.
    pub fn conversation_notes(&mut self) -> Vec<String> {
        self.conversations.notes()
    }

    /// Writes the conversations in memory to the folder for them, if there is one, so that another process can go on.
    pub fn save_conversations(&mut self) {
        self.conversations.save_all(&mut self.runner);
    }

    /// The model itself, with an empty cache, for tools that look inside and feed it themselves.
    pub fn runner_mut(&mut self) -> &mut Runner {
        self.conversations.clear(&mut self.runner);
        &mut self.runner
    }

    /// Answers side by side, at most `most` of them in one step, while that pays; `fixed`: whatever it brings. They go on
    /// with what the KV cache holds from sessions before, and leave it to those after.
    pub fn together(&mut self, most: usize, fixed: bool) -> Together<'_> {
        Together::new(self.session(), most, fixed)
    }

    /// A session. It goes on with what the KV cache holds from the one before.
    pub fn session(&mut self) -> Session<'_> {
        let (tokenizer, no_tokenizer) = match &self.tokenizer {
            Ok(tokenizer) => (Some(&**tokenizer), ""),
            Err(reason) => (None, reason.as_str()),
        };
        Session {
            forward: &mut self.runner,
            conversations: &mut self.conversations,
            tokenizer,
            no_tokenizer,
            stop_ids: &self.stop_ids,
            counters: |runner| {
                let stats = runner.stats();
                Counters { hits: stats.hits, misses: stats.misses, bytes_read: stats.bytes_read }
            },
        }
    }
}

/// The plan that [`Engine::open`] would make for this directory now, without taking the model or its memory.
///
/// # Errors
/// Those of [`ModelDir::open`] and of the plan.
pub fn plan(path: &Path, options: &EngineOptions) -> Result<Plan> {
    options.validate()?;
    let prepared = Prepared::new(ModelDir::open(path, Integrity::Receipt)?, options.runner())?;
    arrange::plan(&prepared, options, arrange::Holding::Usual)
}

/// The plan for a model of these sizes on this machine now, before there is a directory. What a process takes by itself
/// is filled in.
///
/// # Errors
/// Those of the plan.
pub fn plan_absent(sizes: &budget::Sizes<'_>, options: &EngineOptions) -> Result<Plan> {
    options.validate()?;
    arrange::plan_absent(sizes, options)
}

/// The folder of conversations. What is in a file depends on weights and precision, and the numbers on the program.
fn open_snapshots(options: &EngineOptions, model: &[u8; 32]) -> Result<Option<Snapshots>> {
    let Some(dir) = options.prompt_cache_dir.as_deref().filter(|_| options.conversations > 0) else {
        return Ok(None);
    };
    let mut identity = Sha256::new();
    identity.update(model);
    identity.update(format!("{:?} {}", options.precision, env!("CARGO_PKG_VERSION")));
    Snapshots::open(dir, options.prompt_cache_bytes, identity.finalize().into()).map(Some)
}

/// The tokenizer, or why there is none. Its compiled form lives in the cache folder, never in the model.
fn open_tokenizer(dir: &ModelDir) -> Result<Result<Arc<Tokenizer>, String>> {
    let listed = (dir.sidecar_path("tokenizer.json"), dir.sidecar_sha256("tokenizer.json"));
    let (Some(path), Some(sha256)) = listed else {
        return Ok(Err("it was installed from a source without tokenizer.json".to_owned()));
    };
    let cache = paths::cache_dir().map(|cache| cache.join("tokenizers"));
    match Tokenizer::open_listed(&path, cache.as_deref(), &sha256) {
        Ok(tokenizer) => Ok(Ok(Arc::new(tokenizer))),
        // Scoring and continuing ids work with any vocabulary.
        Err(Error::Unsupported(reason)) => Ok(Err(reason)),
        Err(error) => Err(error),
    }
}

/// `eos_token_id` of `config.json`: a number or a list, at the top or under `text_config`; none if it does
/// not say.
fn configured_stop_ids(dir: &ModelDir) -> Result<Vec<u32>> {
    let Some(bytes) = dir.read_sidecar("config.json", MAX_CONFIG_BYTES)? else { return Ok(Vec::new()) };
    let config: Value = serde_json::from_slice(&bytes)
        .map_err(|e| Error::damaged("config.json", format!("not JSON: {e}")))?;
    Ok(eos_ids(&config))
}

fn eos_ids(config: &Value) -> Vec<u32> {
    let named = [&config["eos_token_id"], &config["text_config"]["eos_token_id"]];
    let ids = named.into_iter().find(|value| !value.is_null()).unwrap_or(&Value::Null);
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match ids {
        Value::Array(ids) => ids.iter().filter_map(id).collect(),
        one => id(one).into_iter().collect(),
    }
}
