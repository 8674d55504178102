//! From a source over a network to a finished model directory: ask, plan, fetch into place, prove, promote. Whatever ends a
//! run before that, the next one continues.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use super::ask::Asker;
use super::build::{self, Builder, Meter, SLACK};
use super::commit::{Committer, Step};
use super::hub::{ENDPOINT, Hub, Remote, is_commit};
use super::journal::{Journal, State};
use super::known::KNOWN;
use super::matrix::{self, Scratch};
use super::plan::{FetchPlan, Item, Parts, Piece, Unit};
use super::proof::{Proofs, Prover};
use super::repack::{self, Geometry};
use super::retry::Patience;
use super::schema::{self, Checked};
use super::sink::Sink;
use super::source::{self, Checkpoint, INDEX, INDEX_CAP, SIDECARS, SINGLE};
use super::target::Target;
use super::transfer::{BUDGET, Dice, Event, Fetched, Transfer, fetch};
use super::{Installed, Listener, Progress, Stage};
use crate::format::{DType, LAYOUT, Layout, MANIFEST, RECEIPT, SIDECAR_DIR, WEIGHTS, hash};
use crate::sys::file::read_exact_at;
use crate::{Error, Result};

/// Bytes fetched to measure a rate.
const SAMPLE: u64 = 4 << 20;

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
    /// Source bytes held in memory at a time. One unit of work (27 MiB, or one expert) is held whatever this says. A killed
    /// run has to fetch these again, and two units that wait to be flushed.
    pub memory: u64,
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
    let (requests, fetch_bytes) = job.plan.traffic(0);
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
        model_bytes: job.plan.bytes() + prover.geometry.layout_bytes.len() as u64,
        output: options.output.clone(),
        free_bytes: crate::sys::file::free_space(place).ok(),
        bytes_per_second,
    })
}

/// Removes what an unfinished install over a network left for `output`: the journal and `NAME.partial`. True if there was
/// something.
///
/// # Errors
/// [`Error::Locked`] while an installer is at work on it, [`Error::Refused`] if what is there is not ours.
pub fn discard(output: &Path) -> Result<bool> {
    // A finished model there is none of our business, so it may exist.
    Target::acquire_beside(output)?.discard()
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
    job.run(options, target, listener)
}

/// Everything that is known before the first byte of payload.
struct Job {
    prover: Arc<Prover>,
    checked: Checked,
    plan: FetchPlan,
    warnings: Vec<String>,
    /// The `config.json` that everything was planned from.
    config: String,
}

impl Job {
    fn open(options: &FetchOptions, listener: Listener<'_>) -> Result<Self> {
        let hub = Hub::new(options.remote.clone(), options.token.clone(), &options.patience)?;
        let mut ask = Asker { hub, patience: options.patience, listener };
        let from = options.remote.name();
        let index = ask.small(INDEX, INDEX_CAP)?;
        if index.is_none() && ask.find(SINGLE)?.is_none() {
            return Err(Error::bad(from, format!("no checkpoint: it has neither {INDEX} nor {SINGLE}")));
        }
        let (config_name, config_cap) = SIDECARS[0];
        let config = ask
            .small(config_name, config_cap)?
            .ok_or_else(|| Error::damaged(config_name, format!("missing in {from}")))?;
        let mut files = Vec::new();
        let source =
            Checkpoint::remote(&from, &config, index.as_deref(), &mut |name| ask.header(name, &mut files))?;
        let checked = schema::check(&source)?;
        let geometry = Geometry::new(&checked, options.layout)?;
        let mut warnings = Vec::new();
        let mut sidecars = Vec::new();
        for (name, cap) in SIDECARS {
            match ask.find(name)? {
                Some(file) => {
                    let size = ask.hub.file(file).size;
                    if size > cap || size == 0 {
                        return Err(Error::damaged(
                            name,
                            format!("{size} bytes; at most {cap} are expected"),
                        ));
                    }
                    sidecars.push((name, file, size));
                }
                None => warnings.extend(repack::lacks(name, &from)),
            }
        }
        let prover = Prover { source, geometry, hub: Arc::new(ask.hub), patience: options.patience, files };
        pinned(options, &prover, &config)?;
        let Geometry { index, index_bytes, experts, parts, .. } = &prover.geometry;
        let source = &prover.source;
        let parts =
            Parts { source, index, index_bytes, experts, parts, shards: &prover.files, sidecars: &sidecars };
        let plan = parts.plan()?;
        let config = hash::hex(&hash::sha256(&config));
        Ok(Self { prover: Arc::new(prover), checked, plan, warnings, config })
    }

    /// Fetches the beginning of the first shard, with the clock in hand.
    fn measure(&self, options: &FetchOptions, listener: Listener<'_>) -> Result<u64> {
        let Prover { hub, files, .. } = &*self.prover;
        let Some(&file) = files.first() else { return Ok(0) };
        let piece = Piece { file, offset: 0, len: hub.file(file).size.min(SAMPLE) };
        let mut stop = |_: Event| listener(Progress { stage: Stage::Asking, done: 0, total: 0 }).is_break();
        let started = Instant::now();
        fetch(hub, &options.patience, &piece, &mut Dice(3), &mut stop)?;
        // A rate for people: fractions of bytes do not matter.
        Ok((piece.len as f64 / started.elapsed().as_secs_f64().max(1e-6)) as u64)
    }

    /// What a journal is bound to: the plan, and what is known of the content.
    fn binding(&self, layout: Layout) -> String {
        let Prover { hub, source, files, .. } = &*self.prover;
        let mut text = format!("{layout} {} {:?}\n", source.snapshot_hash, hub.commit());
        for (shard, file) in source.shards().iter().zip(files) {
            let info = hub.file(*file);
            let header = hash::hex(&hash::sha256(&shard.header.json));
            text.push_str(&format!("{} {} {header} {:?}\n", info.name, info.size, info.sha256));
        }
        text.push_str(&self.plan.fingerprint());
        hash::hex(&hash::sha256(text.as_bytes()))
    }

    /// The journal to continue, or a new one with a new directory.
    fn begin(&self, options: &FetchOptions, target: &mut Target) -> Result<(Journal, State)> {
        let binding = self.binding(options.layout);
        if let Some((journal, state)) = Journal::open(target.journal())?
            && target.is_begun_as(&state.nonce)
        {
            if state.binding != binding || state.units.len() > self.plan.units.len() {
                let reason = format!(
                    "an install of {} in another layout or of another version of the source is unfinished here",
                    state.source
                );
                return Err(Error::Journal { path: target.journal().to_path_buf(), reason });
            }
            self.check_space(target)?;
            target.keep();
            return Ok((journal, state));
        }
        target.discard()?;
        self.check_space(target)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        let nonce = hash::hex(&hash::sha256(format!("{now} {}", std::process::id()).as_bytes())[..8]);
        target.begin_as(&nonce)?;
        let journal = Journal::begin(target.journal(), &binding, &nonce, &options.remote.name())?;
        // From here on there is something to continue.
        target.keep();
        target.sync_parent()?;
        Ok((journal, State::default()))
    }

    /// Room for what is not on the disk yet.
    fn check_space(&self, target: &Target) -> Result<()> {
        let have = target.allocated(&mut self.plan.outputs.iter().map(|o| o.path.as_str()));
        let all = self.plan.bytes() + self.prover.geometry.layout_bytes.len() as u64 + SLACK;
        target.check_space(all.saturating_sub(have))
    }

    fn run(
        mut self,
        options: &FetchOptions,
        mut target: Target,
        listener: Listener<'_>,
    ) -> Result<Installed> {
        let (mut journal, state) = self.begin(options, &mut target)?;
        let (_, total) = self.plan.traffic(0);
        let builder = Builder::resume(target, total, Stage::Fetching, listener)?;
        let mut run = Run { job: &self, builder, sink: None, listed: 0 };
        let first = run.restore(&state, &mut journal)?;
        let before = if first == state.units.len() { &state.proven[..] } else { &[] };
        let proofs = Proofs::new(&self.prover, options.prove_source, before);
        let proofs = run.transfer(options, first, proofs, journal)?;
        let Run { mut builder, .. } = run;
        let journal_path = builder.target().journal().to_path_buf();
        let partial = builder.target().partial().to_path_buf();
        let proof = match proofs.finish(&self.prover, &partial, &mut builder.meter) {
            Ok(proof) => proof,
            Err(error @ Error::Damaged { .. }) => {
                // Nothing in it can be trusted.
                builder.target().discard()?;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        tidy(&builder)?;
        builder.put_anew(LAYOUT, &self.prover.geometry.layout_bytes)?;
        let manifest = repack::manifest(
            &self.prover.source,
            &self.prover.geometry.experts,
            &self.checked,
            options.layout,
        );
        let origin = self.prover.hub.commit().map(|commit| (options.remote.name(), commit.to_owned()));
        let mut installed = builder.finish_from(manifest, None, origin)?;
        Journal::delete(&journal_path)?;
        installed.dropped_tensors = self.prover.source.dropped();
        installed.proof = proof;
        installed.warnings.splice(0..0, std::mem::take(&mut self.warnings));
        Ok(installed)
    }
}

/// Known sources must be what they are known for; unknown ones must be wanted.
fn pinned(options: &FetchOptions, prover: &Prover, config: &[u8]) -> Result<()> {
    let Prover { source, hub, files, .. } = prover;
    let Some(known) = source.known() else {
        if options.allow_unpinned {
            return Ok(());
        }
        let at = hub.commit().map(|c| format!(" at commit {c}")).unwrap_or_default();
        let reason = format!(
            "{}{at} is not a checkpoint whose hashes are known; --allow-unpinned installs it all the same",
            options.remote.name()
        );
        return Err(Error::bad("--from", reason));
    };
    if known.sidecar("config.json") != Some(hash::hex(&hash::sha256(config)).as_str()) {
        return Err(Error::damaged("config.json", "is not the published one, though the index is"));
    }
    for (shard, file) in source.shards().iter().zip(files) {
        let info = hub.file(*file);
        let Some((size, sha256)) = known.shard(&shard.name) else { continue };
        if info.size != size {
            return Err(Error::damaged(
                &shard.name,
                format!("has {} bytes, the published one {size}", info.size),
            ));
        }
        if info.sha256.as_deref().is_some_and(|found| found != sha256) {
            return Err(Error::damaged(
                &shard.name,
                "the source links it to other content than the published one",
            ));
        }
    }
    if let Remote::Hub { revision, .. } = &options.remote
        && is_commit(revision)
        && hub.commit() != Some(revision.to_lowercase().as_str())
    {
        return Err(Error::bad("--revision", "the hub answers with another commit"));
    }
    Ok(())
}

/// An install that is under way.
struct Run<'a> {
    job: &'a Job,
    builder: Builder<'a>,
    /// The file that is being written.
    sink: Option<Sink>,
    /// Files that are complete.
    listed: usize,
}

impl Run<'_> {
    /// Takes up what a journal vouches for. Returns the number of the first unit to fetch.
    fn restore(&mut self, state: &State, journal: &mut Journal) -> Result<usize> {
        let units = &self.job.plan.units;
        let mut next = 0;
        while next < state.units.len() {
            let output = units[next].output;
            let last = units.iter().rposition(|u| u.output == output).unwrap_or(next);
            let good = if last < state.units.len() {
                self.complete(output, &state.units[last])?
            } else {
                let done = state.units.len() - 1;
                self.reopen(output, units[done].end, &state.units[done])?
            };
            if !good {
                // Not what the journal says: from the beginning of this file.
                journal.back_to(next)?;
                return Ok(next);
            }
            next = last.min(state.units.len() - 1) + 1;
        }
        Ok(next)
    }

    /// A file that is complete: its length is looked at, its content was flushed before the journal spoke of it.
    fn complete(&mut self, output: usize, sha256: &[u8; 32]) -> Result<bool> {
        let out = &self.job.plan.outputs[output];
        let len =
            self.builder.dir().open_file(&out.path).and_then(|file| file.metadata()).map(|meta| meta.len());
        if len.ok() != Some(out.len) {
            return Ok(false);
        }
        self.builder.list_as(&out.path, out.len, *sha256);
        self.listed = output + 1;
        Ok(true)
    }

    /// A file of which the first `end` bytes are done: read again, since its hash is to be continued.
    fn reopen(&mut self, output: usize, end: u64, prefix: &[u8; 32]) -> Result<bool> {
        let out = &self.job.plan.outputs[output];
        let full = self.builder.target().partial().join(&out.path);
        let Ok(file) = self.builder.dir().open_file_rw(&out.path) else { return Ok(false) };
        if file.metadata().map_err(Error::io("open", &full))?.len() < end {
            return Ok(false);
        }
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 1 << 20];
        let mut at = 0;
        while at < end {
            let n = usize::try_from(end - at).map_or(buffer.len(), |left| left.min(buffer.len()));
            read_exact_at(&file, &mut buffer[..n], at).map_err(Error::io("read", &full))?;
            hash.update(&buffer[..n]);
            at += n as u64;
            self.builder.meter.step(0)?;
        }
        if <[u8; 32]>::from(hash.clone().finalize()) != *prefix {
            return Ok(false);
        }
        self.sink = Some(Sink::resume(file, full, out.len, hash, end)?);
        Ok(true)
    }

    fn transfer(
        &mut self,
        options: &FetchOptions,
        first: usize,
        mut proofs: Proofs,
        journal: Journal,
    ) -> Result<Proofs> {
        let mut committer = Committer::start(journal)?;
        let plan = &self.job.plan;
        let prover = &self.job.prover;
        let (_, total) = plan.traffic(0);
        let before = total - plan.traffic(first).1;
        let connections = options.connections.clamp(1, 32);
        let mut transfer =
            Transfer::start(prover.hub.clone(), options.patience, connections, options.memory, first)?;
        let partial = self.builder.target().partial().to_path_buf();
        proofs.start(prover, &partial, self.layers_done())?;
        for number in first..plan.units.len() {
            let meter = &mut self.builder.meter;
            let fetched = transfer.next(plan, &mut |received| meter.set(before + received))?;
            let step = match self.write(number, &fetched) {
                Err(error @ Error::Damaged { .. }) => {
                    // All of this file is to be fetched again, the units that looked well included.
                    let output = plan.units[number].output;
                    let begin = plan.units.partition_point(|unit| unit.output < output);
                    committer.push(Step::Back(begin))?;
                    return Err(error);
                }
                done => done?,
            };
            drop(fetched);
            committer.push(step)?;
            proofs.start(prover, &partial, self.layers_done())?;
            for shard in proofs.fresh.drain(..) {
                committer.push(Step::Proven(shard))?;
            }
            if proofs.wrong.is_some() {
                break;
            }
        }
        committer.finish()?;
        Ok(proofs)
    }

    /// Number of layer files that are complete. They come last.
    fn layers_done(&self) -> usize {
        let outputs = &self.job.plan.outputs;
        let first = outputs.len() - self.job.prover.geometry.experts.layers.len();
        self.listed.saturating_sub(first)
    }

    /// Appends a unit. Returns what is to be flushed and recorded.
    fn write(&mut self, number: usize, fetched: &Fetched) -> Result<Step> {
        let units = &self.job.plan.units;
        let unit = &units[number];
        let whole = units.get(number + 1).is_none_or(|next| next.output != unit.output);
        let out = &self.job.plan.outputs[unit.output];
        let mut sink = match self.sink.take() {
            Some(sink) => sink,
            None => {
                let free = self.builder.target().free();
                if let Some(have) = free.filter(|have| *have < out.len) {
                    let path = self.builder.target().partial().to_path_buf();
                    return Err(Error::OutOfSpace { path, need: out.len, have });
                }
                let sink = self.builder.create_anew(&out.path, out.len)?;
                let folder = out.path.rsplit_once('/').map_or(".", |(folder, _)| folder);
                let synced = self.builder.dir().open_dir(folder).and_then(|dir| dir.sync());
                synced.map_err(Error::io("sync", self.builder.target().partial().join(folder)))?;
                sink
            }
        };
        if let (Some(name), [Item::Copy(piece), ..]) = (out.path.strip_prefix("tokenizer/"), &unit.items[..])
            && piece.offset == 0
        {
            let head = fetched.get(piece)?;
            source::check_sidecar(name, &head[..head.len().min(64)])?;
        }
        self.append(&mut sink, unit, fetched)?;
        let (file, prefix) = sink.hand_over()?;
        let path = sink.path().to_path_buf();
        if whole {
            self.check_file(&out.path, &prefix)?;
            self.builder.list_as(&out.path, out.len, prefix);
            self.listed = unit.output + 1;
        } else {
            self.sink = Some(sink);
        }
        Ok(Step::Unit { file, path, whole, number, prefix })
    }

    fn append(&self, sink: &mut Sink, unit: &Unit, fetched: &Fetched) -> Result<()> {
        let parts = &self.job.prover.geometry.parts;
        let mut silent = |_: Progress| ControlFlow::Continue(());
        let mut meter = Meter::new(&mut silent, 0);
        let (mut blob, mut scratch) = (Vec::new(), Scratch::default());
        for item in &unit.items {
            match item {
                Item::Bytes(bytes) => sink.write(bytes)?,
                Item::Zeros(n) => sink.zeros_to(sink.position() + n)?,
                Item::Copy(piece) => sink.write(fetched.get(piece)?)?,
                Item::Panels { shape, pieces } => {
                    let mut read =
                        |component: matrix::Component, rows: std::ops::Range<usize>, buf: &mut [u8]| {
                            let start = rows.start * shape.row_bytes(component);
                            buf.copy_from_slice(
                                &fetched.get(&pieces[component as usize])?[start..start + buf.len()],
                            );
                            Ok(())
                        };
                    matrix::write(sink, DType::Tile16x64, *shape, &mut read, &mut meter)?;
                }
                Item::Experts { count, pieces } => {
                    blob.resize(parts.stride, 0);
                    for expert in 0..usize::try_from(*count).unwrap_or(0) {
                        for (role, part) in [&parts.gate, &parts.up, &parts.down].into_iter().enumerate() {
                            scratch.put(part, &mut blob, &mut |component, buf| {
                                let bytes = fetched.get(&pieces[role * 3 + component as usize])?;
                                buf.copy_from_slice(&bytes[expert * buf.len()..][..buf.len()]);
                                Ok(())
                            })?;
                        }
                        sink.write(&blob)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A small file has the hash that is known of it, or that the source linked it by.
    fn check_file(&self, path: &str, sha256: &[u8; 32]) -> Result<()> {
        let Some(name) = path.strip_prefix(SIDECAR_DIR).and_then(|rest| rest.strip_prefix('/')) else {
            return Ok(());
        };
        let Prover { source, hub, .. } = &*self.job.prover;
        let planned = (name == "config.json").then(|| self.job.config.clone());
        let known = source.known().and_then(|known| known.sidecar(name)).map(str::to_owned).or(planned);
        match known.or_else(|| hub.by_name(name).and_then(|info| info.sha256.clone())) {
            Some(want) if want != hash::hex(sha256) => Err(Error::damaged(
                name,
                "what arrived does not have the hash it should have; run the same command again",
            )),
            _ => Ok(()),
        }
    }
}

/// Temporaries of a run that was killed at its very end do not become part of the model; nor does anything else.
fn tidy(builder: &Builder<'_>) -> Result<()> {
    let partial = builder.target().partial();
    let ours = [super::target::MARKER, MANIFEST, RECEIPT, WEIGHTS, SIDECAR_DIR, crate::format::EXPERTS_DIR];
    for entry in builder.dir().entries(1000).map_err(Error::io("list", partial))? {
        let name = entry.name.to_string_lossy();
        if ours.contains(&name.as_ref()) {
            continue;
        }
        let temporary = [MANIFEST, RECEIPT].iter().any(|of| name.starts_with(&format!(".{of}.")));
        if !temporary || entry.is_dir {
            let reason = "appeared in the unfinished model and is not part of it; move it away".into();
            return Err(Error::Refused { path: partial.join(&entry.name), reason });
        }
        builder.dir().remove_file(&name).map_err(Error::io("delete", partial.join(&entry.name)))?;
    }
    Ok(())
}
