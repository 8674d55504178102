//! From a source over a network to a finished model directory: ask, plan, fetch into place, prove, promote. Whatever ends a
//! run before that, the next one continues.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::build::{self, Builder};
use super::hub::{ENDPOINT, Remote};
use super::job::{Begun, Job};
use super::journal::State;
use super::known::KNOWN;
use super::plan::{Done, RANGE};
use super::proof::Proofs;
use super::repack;
use super::retry::Patience;
use super::run::{Run, tidy};
use super::target::{JOURNAL, Target};
use super::transfer::BUDGET;
use super::{Installed, Listener, Stage};
use crate::format::{Integrity, LAYOUT, Layout, ModelDir};
use crate::{Error, Result};

/// What to install over a network, and where.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// The source.
    pub remote: Remote,
    /// Sent to the hub's own address, and nowhere else.
    pub token: Option<String>,
    /// The model directory to make.
    pub output: PathBuf,
    /// Order of the bytes of quantized matrices.
    pub layout: Layout,
    /// Replace an existing model directory.
    pub overwrite: bool,
    /// Accept a checkpoint whose hashes are not known beforehand.
    pub allow_unpinned: bool,
    /// Fetch also what is not installed, to hash it.
    pub prove_source: bool,
    /// Requests in flight, 1 to 32.
    pub connections: usize,
    /// Source bytes held in memory at a time. One unit of work (up to 32 MiB) is held whatever this says.
    pub memory: u64,
    /// Longest request in bytes, unless one expert has more. A killed run has to fetch again at most so many for each
    /// connection.
    pub range: u64,
    /// The time of day, for the receipt. Nothing else depends on it.
    pub clock: fn() -> SystemTime,
    /// How long to bear with a bad network.
    pub patience: Patience,
}

impl FetchOptions {
    /// The usual choices for a source and a place.
    pub fn new(remote: Remote, output: impl Into<PathBuf>) -> Self {
        Self {
            remote,
            token: None,
            output: output.into(),
            layout: Layout::Tiled,
            overwrite: false,
            allow_unpinned: false,
            prove_source: false,
            connections: 8,
            memory: BUDGET,
            range: RANGE,
            clock: SystemTime::now,
            patience: Patience::default(),
        }
    }
}

/// The checkpoint that `fieldfare install` takes by itself, from a hub at this address (the default if none is given).
pub fn default_remote(endpoint: Option<&str>) -> Remote {
    let [known, ..] = &KNOWN;
    Remote::Hub {
        endpoint: endpoint.unwrap_or(ENDPOINT).to_owned(),
        repo: known.id.to_owned(),
        revision: known.revision.to_owned(),
    }
}

/// What an install would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// Repository, or address.
    pub source: String,
    /// The commit, where the source has such.
    pub commit: Option<String>,
    /// Whether its hashes are known beforehand.
    pub pinned: bool,
    /// Bytes of the source's shards.
    pub source_bytes: u64,
    /// Requests to make.
    pub requests: usize,
    /// Bytes to fetch.
    pub fetch_bytes: u64,
    /// Of these, bytes that an unfinished install there has fetched already.
    pub kept_bytes: u64,
    /// Bytes of the model directory.
    pub model_bytes: u64,
    /// Where it goes.
    pub output: PathBuf,
    /// Bytes free there, where that can be told.
    pub free_bytes: Option<u64>,
    /// What one connection brought while a few megabytes were fetched to measure it.
    pub bytes_per_second: u64,
}

/// Asks the source and plans, without writing anything.
///
/// # Errors
/// Those of [`install_remote`] up to that point.
pub fn preview(options: &FetchOptions, listener: Listener<'_>) -> Result<Preview> {
    let job = Job::open(options, listener)?;
    let (requests, fetch_bytes) = job.plan.traffic(&Done::new());
    let bytes_per_second = job.measure(options, listener)?;
    let place = options.output.ancestors().find(|p| p.is_dir()).unwrap_or_else(|| Path::new("."));
    let prover = &job.prover;
    Ok(Preview {
        source: options.remote.name(),
        commit: prover.hub.commit().map(str::to_owned),
        pinned: prover.source.known().is_some(),
        source_bytes: prover.files.iter().map(|n| prover.hub.file(*n).size).sum(),
        requests,
        fetch_bytes,
        kept_bytes: job.kept(options, &journal_of(&options.output)),
        model_bytes: job.plan.bytes() + prover.geometry.layout_bytes.len() as u64,
        output: options.output.clone(),
        free_bytes: crate::sys::file::free_space(place).ok(),
        bytes_per_second,
    })
}

/// The record of an install to `output`.
fn journal_of(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(JOURNAL);
    PathBuf::from(name)
}

/// Removes what an unfinished install over a network left for `output`: the journal and `NAME.partial`. True if there was
/// something.
///
/// # Errors
/// [`Error::Locked`] while an installer is at work on it, [`Error::Refused`] if what is there is not ours.
pub fn discard(output: &Path) -> Result<bool> {
    // A finished model there is none of our business, so it may exist.
    match Target::acquire_beside(output)? {
        Some(mut target) => target.discard(),
        None => Ok(false),
    }
}

/// Fetches a checkpoint and makes it the model directory `options.output`. If a former run for the same source and place was
/// interrupted, continues it.
///
/// # Errors
/// [`Error::Network`] and [`Error::Denied`] if the source does not give what it must; [`Error::Damaged`] and
/// [`Error::Unsupported`] for what is wrong with the checkpoint; [`Error::Refused`], [`Error::Locked`],
/// [`Error::OutOfSpace`], [`Error::Journal`] and [`Error::Io`] for the place; [`Error::Cancelled`]. What has been
/// fetched stays for the next run, unless it was proven wrong.
pub fn install_remote(options: &FetchOptions, listener: Listener<'_>) -> Result<Installed> {
    build::check_name(&options.output, options.layout)?;
    let target = Target::acquire(&options.output, options.overwrite)?;
    let job = Job::open(options, listener)?;
    run(job, options, target, listener)
}

/// A run that was stopped when its directory had got its name: all of it is there and was proven.
fn promoted(job: Job, mut target: Target, state: &State) -> Result<Installed> {
    let replaced = target.finish()?;
    let model = ModelDir::open(&target.named, Integrity::Structure)?;
    let manifest = model.manifest();
    Ok(Installed {
        path: target.named.clone(),
        layout: manifest.layout,
        model_id: manifest.model_id.clone(),
        source_snapshot_hash: manifest.source_snapshot_hash.clone(),
        manifest_sha256: model.manifest_sha256(),
        files: manifest.files.len(),
        bytes: manifest.files.values().map(|file| file.size).sum(),
        dropped_tensors: job.prover.source.dropped(),
        proof: Proofs::new(&job.prover, false, &state.proven).outcome(),
        replaced,
        warnings: job.warnings,
    })
}

fn run(
    mut job: Job,
    options: &FetchOptions,
    mut target: Target,
    listener: Listener<'_>,
) -> Result<Installed> {
    let (mut journal, mut state) = match job.begin(options, &mut target)? {
        Begun::Go(journal, state) => (journal, state),
        Begun::Promoted(state) => return promoted(job, target, &state),
    };
    let total = job.plan.traffic(&Done::new()).1;
    let before = total - job.plan.traffic(&state.done).1;
    let mut builder = Builder::resume(target, (before, total), Stage::Fetching, listener)?;
    builder.clock = options.clock;
    let mut run = Run::new(&job, builder);
    let unhashed = run.restore(&mut state, &mut journal)?;
    let proofs = Proofs::new(&job.prover, options.prove_source, &state.proven);
    let proofs = run.transfer(options, &state.done, unhashed, proofs, journal)?;
    let Run { mut builder, .. } = run;
    let partial = builder.target().partial().to_path_buf();
    let proof = match proofs.finish(&job.prover, &partial, &mut builder.meter) {
        Ok(proof) => proof,
        Err(error @ Error::Damaged { .. }) => {
            // Nothing in it can be trusted.
            builder.discard()?;
            return Err(error);
        }
        Err(error) => return Err(error),
    };
    tidy(&builder)?;
    builder.put_anew(LAYOUT, &job.prover.geometry.layout_bytes)?;
    let prover = &job.prover;
    let manifest = repack::manifest(&prover.source, &prover.geometry.experts, &job.checked, options.layout);
    let origin = prover.hub.commit().map(|commit| (options.remote.name(), commit.to_owned()));
    let mut installed = builder.finish_from(manifest, None, origin)?;
    installed.dropped_tensors = prover.source.dropped();
    installed.proof = proof;
    installed.warnings.splice(0..0, std::mem::take(&mut job.warnings));
    Ok(installed)
}
