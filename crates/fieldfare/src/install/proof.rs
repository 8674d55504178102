//! Proof of the source: the SHA-256 of a shard, taken of the bytes that were written, brought back into the source's order.
//!
//! Whatever went wrong between the source's disk and ours shows here: the wire, the plan, the tiling, the disk.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::build::Meter;
use super::hub::Hub;
use super::matrix::{Component, Scratch, Unpacker};
use super::plan::Piece;
use super::repack::{Geometry, shape_of};
use super::retry::Patience;
use super::schema::{ROLES, expert_module};
use super::source::Checkpoint;
use super::stream::{Dice, Event, fetch};
use super::{Proof, Stage};
use crate::format::safetensors::TensorInfo;
use crate::format::{DType, EXPERTS_DIR, IndexEntry, WEIGHTS, hash};
use crate::sys::file::{Dir, read_exact_at};
use crate::{Error, Result};

/// Bytes handled at a time, where there is a choice.
const BLOCK: u64 = 1 << 20;

/// What a proof needs to know.
pub(crate) struct Prover {
    pub(crate) source: Checkpoint,
    pub(crate) geometry: Geometry,
    pub(crate) hub: Arc<Hub>,
    pub(crate) patience: Patience,
    /// Number of the source file of each shard.
    pub(crate) files: Vec<usize>,
}

/// Where a tensor of the source lies.
enum Place<'a> {
    Expert { layer: usize, role: usize, component: Component },
    Resident { entry: &'a IndexEntry, component: Component },
}

impl Prover {
    /// True if a shard has tensors that are not installed.
    pub(crate) fn has_gaps(&self, shard: usize) -> bool {
        let tensors = &self.source.shards()[shard].header.tensors;
        tensors.iter().any(|t| self.source.tensor(&t.name).is_none())
    }

    /// Name and published hash of a shard.
    pub(crate) fn expected(&self, shard: usize) -> Option<String> {
        let name = &self.source.shards()[shard].name;
        let known = self.source.known().and_then(|known| known.shard(name)).map(|(_, hash)| hash.to_owned());
        known.or_else(|| self.hub.file(self.files[shard]).sha256.clone())
    }

    /// For each shard, the number of layer files (in order, after all others) that must be complete.
    pub(crate) fn needs(&self, shard: usize) -> usize {
        let places = self.places();
        let layers =
            self.source.shards()[shard].header.tensors.iter().map(|t| match places.get(t.name.as_str()) {
                Some(Place::Expert { layer, .. }) => layer + 1,
                _ => 0,
            });
        layers.max().unwrap_or(0)
    }

    fn places(&self) -> HashMap<String, Place<'_>> {
        let mut places = HashMap::new();
        for layer in 0..self.geometry.experts.layers.len() {
            for (role, name) in ROLES.into_iter().enumerate() {
                let module = expert_module(layer, name);
                for (suffix, component) in SUFFIXES {
                    places.insert(format!("{module}.{suffix}"), Place::Expert { layer, role, component });
                }
            }
        }
        for entry in &self.geometry.index.entries {
            match entry.name.strip_suffix(".weight").filter(|_| shape_of(entry).is_some()) {
                Some(module) => {
                    for (suffix, component) in SUFFIXES {
                        places.insert(format!("{module}.{suffix}"), Place::Resident { entry, component });
                    }
                }
                None => {
                    let place = Place::Resident { entry, component: Component::Weights };
                    places.insert(entry.name.clone(), place);
                }
            }
        }
        places
    }

    /// SHA-256 of a shard, from the files in `dir` and, for what is not there, from the source.
    pub(crate) fn hash(&self, dir: &Path, shard: usize, stop: &AtomicBool) -> Result<[u8; 32]> {
        let root = Dir::open(dir).map_err(Error::io("open", dir))?;
        let open = |path: &str| root.open_file(path).map_err(Error::io("open", dir.join(path)));
        let mut reader =
            Reader { prover: self, weights: open(WEIGHTS)?, layer: None, hash: Sha256::new(), stop };
        let header = &self.source.shards()[shard].header;
        reader.hash.update((header.json.len() as u64).to_le_bytes());
        reader.hash.update(&header.json);
        let places = self.places();
        for tensor in &header.tensors {
            match places.get(tensor.name.as_str()) {
                Some(Place::Resident { entry, component }) => reader.resident(entry, *component)?,
                Some(Place::Expert { layer, role, component }) => {
                    if reader.layer.as_ref().is_none_or(|(open, _)| open != layer) {
                        let file = &self.geometry.experts.layers[*layer].file;
                        reader.layer = Some((*layer, open(&format!("{EXPERTS_DIR}/{file}"))?));
                    }
                    reader.experts(*role, *component)?;
                }
                None => reader.elsewhere(self.files[shard], tensor)?,
            }
        }
        Ok(reader.hash.finalize().into())
    }
}

const SUFFIXES: [(&str, Component); 3] =
    [("weight", Component::Weights), ("scales", Component::Scales), ("biases", Component::Biases)];

struct Reader<'a> {
    prover: &'a Prover,
    weights: File,
    layer: Option<(usize, File)>,
    hash: Sha256,
    stop: &'a AtomicBool,
}

impl Reader<'_> {
    fn go_on(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Cancelled) } else { Ok(()) }
    }

    fn resident(&mut self, entry: &IndexEntry, component: Component) -> Result<()> {
        let (Some(shape), DType::Tile16x64) = (shape_of(entry), entry.dtype) else {
            let range = match component {
                Component::Weights => &entry.data,
                Component::Scales => &entry.scales,
                Component::Biases => &entry.biases,
            };
            return self.run(range.start, range.end);
        };
        let mut unpacker = Unpacker::new(shape);
        let row = shape.row_bytes(component);
        let mut out = Vec::new();
        for first in (0..shape.rows).step_by(256) {
            let rows = first..shape.rows.min(first + 256);
            out.resize(rows.len() * row, 0);
            let weights = &self.weights;
            unpacker.rows(component, rows, &mut out, &mut |at, buf| {
                read_exact_at(weights, buf, entry.data.start + at).map_err(Error::io("read", WEIGHTS))
            })?;
            self.hash.update(&out);
            self.go_on()?;
        }
        Ok(())
    }

    /// Bytes of `model_weights.bin` that are in source order.
    fn run(&mut self, mut at: u64, end: u64) -> Result<()> {
        let mut buffer = vec![0; usize::try_from(BLOCK.min(end - at)).unwrap_or(0)];
        while at < end {
            let n = usize::try_from(end - at).map_or(buffer.len(), |left| left.min(buffer.len()));
            read_exact_at(&self.weights, &mut buffer[..n], at).map_err(Error::io("read", WEIGHTS))?;
            self.hash.update(&buffer[..n]);
            at += n as u64;
            self.go_on()?;
        }
        Ok(())
    }

    /// One array of one matrix of all experts of the open layer.
    fn experts(&mut self, role: usize, component: Component) -> Result<()> {
        let Geometry { parts, experts, .. } = &self.prover.geometry;
        let part = [&parts.gate, &parts.up, &parts.down][role];
        let Some((layer, file)) = &self.layer else { return Ok(()) };
        let mut blob = vec![0; parts.stride];
        let mut scratch = Scratch::default();
        let shape = super::matrix::shape_of(part);
        let mut out = vec![0; shape.rows * shape.row_bytes(component)];
        for expert in 0..experts.experts_per_layer {
            let slot = u64::from(parts.slot_of.get(expert).copied().unwrap_or(0));
            let at = slot * parts.stride as u64 + part.span.start as u64;
            read_exact_at(file, &mut blob[part.span.clone()], at)
                .map_err(Error::io("read", &experts.layers[*layer].file))?;
            scratch.component(part, &blob, component, &mut out);
            self.hash.update(&out);
            self.go_on()?;
        }
        Ok(())
    }

    /// A tensor that was not installed: from the source, only to be hashed.
    fn elsewhere(&mut self, file: usize, tensor: &TensorInfo) -> Result<()> {
        let Prover { hub, patience, .. } = self.prover;
        let mut done = 0;
        while done < tensor.len {
            let len = (tensor.len - done).min(4 * BLOCK);
            let piece = Piece { file, offset: tensor.offset + done, len };
            let stop = self.stop;
            let mut listener = |_: Event| stop.load(Ordering::Relaxed);
            self.hash.update(&*fetch(hub, patience, &piece, &mut Dice(1), &mut listener)?);
            done += len;
        }
        Ok(())
    }
}

/// A proof that is being made: shard, expected hash, thread.
type Running = (usize, String, JoinHandle<Result<[u8; 32]>>);

/// Hashes of shards, taken beside the transfer, one after the other.
pub(crate) struct Proofs {
    /// Shards still to be proven: number, layers needed, expected hash.
    waiting: Vec<(usize, usize, String)>,
    running: Option<Running>,
    /// Shards proven since somebody last looked.
    pub(crate) fresh: Vec<usize>,
    outcome: Vec<(String, Proof)>,
    stop: Arc<AtomicBool>,
    pub(crate) wrong: Option<Error>,
}

impl Proofs {
    /// `before` has the shards that a former run proved.
    pub(crate) fn new(prover: &Prover, all: bool, before: &[usize]) -> Self {
        let (mut waiting, mut outcome) = (Vec::new(), Vec::new());
        for (number, shard) in prover.source.shards().iter().enumerate() {
            let proof = match prover.expected(number) {
                None => Proof::NoHash,
                Some(_) if before.contains(&number) => Proof::Proven,
                Some(_) if prover.has_gaps(number) && !all => Proof::Partial,
                Some(expected) => {
                    waiting.push((number, prover.needs(number), expected));
                    Proof::Proven
                }
            };
            outcome.push((shard.name.clone(), proof));
        }
        let stop = Arc::new(AtomicBool::new(false));
        Self { waiting, running: None, fresh: Vec::new(), outcome, stop, wrong: None }
    }

    /// What there will be to say of each shard when all proofs have ended well.
    pub(crate) fn outcome(mut self) -> Vec<(String, Proof)> {
        std::mem::take(&mut self.outcome)
    }

    /// Starts the next proof if its layers are there and no other is running.
    pub(crate) fn start(&mut self, prover: &Arc<Prover>, dir: &Path, layers: usize) -> Result<()> {
        if self.running.as_ref().is_some_and(|(.., thread)| thread.is_finished()) {
            self.join()?;
        }
        if self.wrong.is_some() {
            return Ok(()); // it is over
        }
        let all = prover.geometry.experts.layers.len();
        // `model_weights.bin` is complete before any layer is; a shard without experts waits for the first.
        let ready = |needs: usize| layers >= needs.max(1).min(all);
        if self.running.is_none()
            && let Some(at) = self.waiting.iter().position(|(_, needs, _)| ready(*needs))
        {
            let (shard, _, expected) = self.waiting.remove(at);
            let (prover, dir, stop) = (prover.clone(), dir.to_path_buf(), self.stop.clone());
            let thread = std::thread::Builder::new()
                .name("proof".into())
                .spawn(move || prover.hash(&dir, shard, &stop))
                .map_err(Error::io("start a thread for", "the proof"))?;
            self.running = Some((shard, expected, thread));
        }
        Ok(())
    }

    fn join(&mut self) -> Result<()> {
        let Some((shard, expected, thread)) = self.running.take() else { return Ok(()) };
        let found = thread.join().map_err(|_| Error::Unsupported("the proof's thread panicked".into()))??;
        if hash::hex(&found) != expected {
            let name = &self.outcome[shard].0;
            let what = "what was fetched does not have the published SHA-256; it has been discarded";
            self.wrong.get_or_insert_with(|| Error::damaged(name, what));
        } else {
            self.fresh.push(shard);
        }
        Ok(())
    }

    /// Waits for all of them.
    pub(crate) fn finish(
        mut self,
        prover: &Arc<Prover>,
        dir: &Path,
        meter: &mut Meter<'_>,
    ) -> Result<Vec<(String, Proof)>> {
        meter.stage(Stage::Proving)?;
        loop {
            // What others would be proven by may not be there yet.
            if self.wrong.is_none() {
                self.start(prover, dir, usize::MAX)?;
            }
            if self.running.is_none() || self.wrong.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
            meter.step(0)?;
        }
        match self.wrong.take() {
            Some(error) => Err(error),
            None => Ok(self.outcome()),
        }
    }
}

impl Drop for Proofs {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A thread that reads files of a directory that is about to be deleted must end first.
        if let Some((.., thread)) = self.running.take() {
            let _ = thread.join();
        }
    }
}
