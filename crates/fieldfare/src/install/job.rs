//! Everything that an install over a network asks, checks and decides before the first byte of payload.

use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, UNIX_EPOCH};

use super::Listener;
use super::ask::{self, Asker};
use super::build::SLACK;
use super::fetch::FetchOptions;
use super::hub::{FileInfo, Hub, Remote, is_commit};
use super::journal::{Journal, State};
use super::plan::{Done, FetchPlan, Parts, Piece};
use super::proof::Prover;
use super::repack::{self, Geometry};
use super::schema::{self, Checked};
use super::source::{Checkpoint, INDEX, INDEX_CAP, SIDECARS, SINGLE};
use super::stream::{Dice, Event, fetch};
use super::target::{Target, Unfinished};
use crate::format::{Layout, hash};
use crate::{Error, Result};

/// Bytes fetched to measure a rate.
const SAMPLE: u64 = 4 << 20;

/// How an install begins.
pub(crate) enum Begun {
    /// With what is to be done beside this.
    Go(Journal, State),
    /// All is done, the directory has its name, and only what comes after that is left.
    Promoted(State),
}

/// Everything that is known before the first byte of payload.
pub(crate) struct Job {
    pub(crate) prover: Arc<Prover>,
    pub(crate) checked: Checked,
    pub(crate) plan: FetchPlan,
    pub(crate) warnings: Vec<String>,
    /// The `config.json` that everything was planned from.
    pub(crate) config: String,
    /// Numbers of the small files.
    sidecars: Vec<usize>,
}

impl Job {
    pub(crate) fn open(options: &FetchOptions, listener: Listener<'_>) -> Result<Self> {
        let hub = Hub::new(options.remote.clone(), options.token.clone(), &options.patience)?;
        let mut ask = Asker { hub, patience: options.patience, listener, answered: false };
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
        let Geometry { index, index_bytes, experts, .. } = &prover.geometry;
        let source = &prover.source;
        let parts = Parts {
            source,
            index,
            index_bytes,
            experts,
            shards: &prover.files,
            sidecars: &sidecars,
            range: options.range,
        };
        let plan = parts.plan()?;
        let config = hash::hex(&hash::sha256(&config));
        let sidecars = sidecars.iter().map(|(_, file, _)| *file).collect();
        Ok(Self { prover: Arc::new(prover), checked, plan, warnings, config, sidecars })
    }

    /// Fetches the beginning of the first shard, with the clock in hand.
    pub(crate) fn measure(&self, options: &FetchOptions, listener: Listener<'_>) -> Result<u64> {
        let Prover { hub, files, .. } = &*self.prover;
        let Some(&file) = files.first() else { return Ok(0) };
        let piece = Piece { file, offset: 0, len: hub.file(file).size.min(SAMPLE) };
        let mut stop = |event: Event| ask::tell(listener, &event);
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
            let FileInfo { name, size, sha256, version } = info;
            text.push_str(&format!("{name} {size} {header} {sha256:?} {version:?}\n"));
        }
        for file in &self.sidecars {
            let FileInfo { name, size, sha256, version } = hub.file(*file);
            text.push_str(&format!("{name} {size} {sha256:?} {version:?}\n"));
        }
        text.push_str(&self.plan.fingerprint());
        hash::hex(&hash::sha256(text.as_bytes()))
    }

    /// Bytes that an unfinished install of just this has fetched already, as the journal at `path` says.
    pub(crate) fn kept(&self, options: &FetchOptions, path: &Path) -> u64 {
        let begun = Journal::peek(path).filter(|state| state.binding == self.binding(options.layout));
        let fetched = |state: State| self.plan.traffic(&Done::new()).1 - self.plan.traffic(&state.done).1;
        begun.map_or(0, fetched)
    }

    /// Whether the source tells versions of its files apart: by a commit, or each file by itself. If not, what one run fetched and
    /// what the next one fetches may be of two versions.
    fn is_versioned(&self) -> bool {
        let Prover { hub, files, .. } = &*self.prover;
        hub.commit().is_some()
            || files.iter().chain(&self.sidecars).all(|file| hub.file(*file).version.is_some())
    }

    /// The journal to continue, or a new one with a new directory.
    pub(crate) fn begin(&mut self, options: &FetchOptions, target: &mut Target) -> Result<Begun> {
        let binding = self.binding(options.layout);
        let found = Journal::open(target.journal())?;
        if target.is_promoted_for(&binding) {
            return Ok(Begun::Promoted(found.map(|(_, state)| state).unwrap_or_default()));
        }
        if let Some((journal, state)) = found {
            let refuse =
                |reason: String| Err(Error::Journal { path: target.journal().to_path_buf(), reason });
            let known = state.done.last().is_none_or(|step| *step < self.plan.steps());
            let same = state.binding == binding && known;
            match target.unfinished(&state.nonce) {
                Unfinished::Here if !same => {
                    return refuse(format!(
                        "an install of {} in another layout or of another version of the source is unfinished here",
                        state.source
                    ));
                }
                Unfinished::Here if self.is_versioned() || state.done.is_empty() => {
                    self.check_space(target)?;
                    target.keep();
                    return Ok(Begun::Go(journal, state));
                }
                Unfinished::Here => self.warnings.push(
                    "the server says nothing by which two versions of its files could be told apart (no strong ETag, no Last-Modified in the past), so what a former run had fetched was fetched again".into(),
                ),
                Unfinished::Other if !state.done.is_empty() => {
                    return refuse("does not belong to the unfinished directory beside it, or that one's mark is damaged".into());
                }
                Unfinished::Other | Unfinished::Gone => {}
            }
        }
        target.settle()?;
        target.discard()?;
        self.check_space(target)?;
        let now = (options.clock)().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        let nonce = hash::hex(&hash::sha256(format!("{now} {}", std::process::id()).as_bytes())[..8]);
        target.begin_as(&nonce, &binding)?;
        let journal = Journal::begin(target.journal(), &binding, &nonce, &options.remote.name())?;
        // From here on there is something to continue.
        target.keep();
        target.sync_parent()?;
        Ok(Begun::Go(journal, State::default()))
    }

    /// Room for what is not on the disk yet.
    fn check_space(&self, target: &Target) -> Result<()> {
        let have = target.allocated(&mut self.plan.outputs.iter().map(|o| o.path.as_str()));
        let all = self.plan.bytes() + self.prover.geometry.layout_bytes.len() as u64 + SLACK;
        target.check_space(all.saturating_sub(have))
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
        known.check_shard(&shard.name, info.size, info.sha256.as_deref())?;
    }
    if let Remote::Hub { revision, .. } = &options.remote
        && is_commit(revision)
        && hub.commit() != Some(revision.to_lowercase().as_str())
    {
        return Err(Error::bad("--revision", "the hub answers with another commit"));
    }
    Ok(())
}
