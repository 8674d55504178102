//! From a checkpoint, here or on a network, to a model directory, and from one layout to the other, in bounded memory.
//!
//! ```text
//! source    an MLX checkpoint: headers, inventory, reads by tensor      config    what its config.json says
//! schema    tensors against the shapes that the config implies          matrix    rows to panels and back
//! build     the files of the new directory, hashed as they are written  target    lock, NAME.partial, promotion
//!
//! fetch     an install over a network from its first question to its receipt; a killed one goes on where it was
//! job       what is asked and checked before the payload                run       what is done with what arrives
//! remote    addresses: what is allowed, what is shown                   hub       requests, tokens, what a reply must be
//! ask       the questions, with patience                                plan      which runs of the source go where (pure)
//! transfer  requests in flight, bounded memory                          stream    one run of the source, whatever breaks
//! retry     what is tried again, and when (pure)                        tiles     what arrived into the layout
//! window    bound on what a killed run has to fetch again                wait      a try that will be repeated
//! surroundings  the hub's variables and token files, as its own tools know them
//! commit    flushes, then journals, beside the work                     journal   what is durably done
//! digest    hashes of finished files, beside the work                   proof     the source's hashes, of what was written
//! known     checkpoints known by hash (data)                            version   what tells two versions of a file apart
//! ```
//!
//! Everything that can be checked is checked before the first payload byte. A directory gets its name only when every file
//! in it has been flushed, its manifest last; whatever ends a local run before that leaves nothing behind but the lock
//! file, and a killed process a marked `NAME.partial` that the next run replaces. An install over a network keeps
//! `NAME.partial` and its journal, and continues.
//!
//! Memory: a write buffer of 1 MiB, read buffers of 1 MiB for each part of a matrix, and two expert blobs (3.4 MB each for
//! 26B-A4B, at most [`matrix::MAX_BLOB`]). No tensor, shard or layer file is ever held.

#[cfg(feature = "install")]
mod ask;
mod build;
#[cfg(feature = "install")]
mod commit;
mod config;
mod convert;
#[cfg(feature = "install")]
mod digest;
#[cfg(feature = "install")]
mod fetch;
mod hold;
#[cfg(feature = "install")]
pub mod hub;
#[cfg(feature = "install")]
mod job;
#[cfg(feature = "install")]
mod journal;
mod known;
mod matrix;
#[cfg(feature = "install")]
mod plan;
#[cfg(feature = "install")]
mod proof;
#[cfg(feature = "install")]
mod remote;
mod remove;
mod repack;
#[cfg(feature = "install")]
pub mod retry;
#[cfg(feature = "install")]
mod run;
mod schema;
mod sink;
mod source;
#[cfg(feature = "install")]
mod stream;
#[cfg(feature = "install")]
mod surroundings;
mod target;
#[cfg(feature = "install")]
mod tiles;
#[cfg(feature = "install")]
mod transfer;
#[cfg(feature = "install")]
mod version;
mod wait;
#[cfg(feature = "install")]
mod window;

use std::ops::ControlFlow;
use std::path::PathBuf;

use crate::format::Layout;

pub use convert::convert;
#[cfg(feature = "install")]
pub use fetch::{FetchOptions, Preview, default_remote, discard, install_remote, preview};
pub use repack::install_local;
#[cfg(feature = "install")]
pub use surroundings::Surroundings;
pub use wait::{Trouble, Waiting};

/// What to install and where.
#[derive(Clone, Debug)]
pub struct InstallOptions {
    /// Directory of the checkpoint.
    pub from: PathBuf,
    /// The model directory to make.
    pub output: PathBuf,
    /// Order of the bytes of quantized matrices.
    pub layout: Layout,
    /// Replace an existing model directory.
    pub overwrite: bool,
}

/// What to convert a model directory to.
#[derive(Clone, Debug)]
pub struct ConvertOptions {
    /// The layout wanted; the source's own makes a verified copy.
    pub layout: Layout,
    /// The model directory to make.
    pub output: PathBuf,
    /// Replace an existing model directory.
    pub overwrite: bool,
}

/// What an install is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Hashing what will be read more than once (conversion only).
    Verifying,
    /// Writing and hashing the new files.
    Writing,
    /// Asking a source over a network what it has.
    Asking,
    /// Fetching, writing and hashing.
    Fetching,
    /// Waiting for the hashes of the source, taken of what was written.
    Proving,
    /// Flushing, and giving the directory its name. Not interruptible: it is asked before, and takes no long time.
    Finishing,
}

/// How far an install has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// Bytes done, over all stages.
    pub done: u64,
    /// Bytes to do, over all stages.
    pub total: u64,
    /// Set while nothing comes over the network and a try is about to be repeated.
    pub waiting: Option<Waiting>,
}

impl Progress {
    /// Nothing is waited for.
    pub(crate) fn of(stage: Stage, done: u64, total: u64) -> Self {
        Self { stage, done, total, waiting: None }
    }
}

/// What is known of a shard's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// SHA-256 of the whole shard, taken of what was written, is the published one.
    Proven,
    /// Parts of it were not fetched (`--prove-source` fetches them to hash them).
    Partial,
    /// The source names no hash.
    NoHash,
}

/// A finished install.
#[derive(Clone, Debug)]
pub struct Installed {
    /// The directory, absolute, as it was named.
    pub path: PathBuf,
    /// Its layout.
    pub layout: Layout,
    /// The manifest's model id: the pinned repository, or `unknown/snapshot`.
    pub model_id: String,
    /// The manifest's `sourceSnapshotHash`.
    pub source_snapshot_hash: Option<String>,
    /// SHA-256 of the manifest: the identity of the model.
    pub manifest_sha256: [u8; 32],
    /// Files listed in the manifest.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Vision and audio tensors left out.
    pub dropped_tensors: usize,
    /// For each shard that came over a network, whether its content was proven.
    pub proof: Vec<(String, Proof)>,
    /// True if an older model was replaced.
    pub replaced: bool,
    /// What the person should know: tokenizer files that the source lacks, an old model that could not be deleted.
    pub warnings: Vec<String>,
}

/// The caller's ear for progress, and its way to stop.
type Listener<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

/// Doors for fuzz targets to readers that nobody outside needs.
#[cfg(fuzzing)]
pub mod fuzzing {
    use crate::Result;
    use crate::format::Arch;
    use std::collections::BTreeMap;

    /// The shape that a checkpoint's `config.json` describes.
    pub fn arch(bytes: &[u8]) -> Result<Arch> {
        let (config, quantization) = super::config::parse(bytes)?;
        let _ = (quantization.bits("language_model.model.embed_tokens"), quantization.override_count());
        super::schema::arch(&config)
    }

    /// Which shard has which tensor, from `model.safetensors.index.json`.
    pub fn weight_map(bytes: &[u8]) -> Result<BTreeMap<String, String>> {
        super::source::weight_map(bytes)
    }
}

#[cfg(all(test, unix, feature = "install"))]
mod tests;
