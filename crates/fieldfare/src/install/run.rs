//! An install over a network that is under way: what arrives is brought into the layout, written where it belongs, flushed,
//! journaled, hashed and proven.

use std::collections::HashMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::build::Builder;
use super::commit::{Committer, Step};
use super::digest::Digester;
use super::fetch::FetchOptions;
use super::job::Job;
use super::journal::{Journal, State};
use super::plan::{Done, Item, Strip};
use super::proof::{Proofs, Prover};
use super::source;
use super::tiles::Packer;
use super::transfer::{Fetched, Got, Transfer};
use super::window::Window;
use crate::format::{MANIFEST, RECEIPT, SIDECAR_DIR, WEIGHTS, hash};
use crate::sys::buffer::Buffer;
use crate::sys::disk;
use crate::{Error, Result};

/// A file that is being written, with its path.
type Open = Arc<(File, PathBuf)>;

/// Scales and biases of a strip, and how many of its experts are still to come.
struct Sides {
    left: usize,
    fetched: Fetched,
}

/// An install that is under way.
pub(crate) struct Run<'a> {
    job: &'a Job,
    pub(crate) builder: Builder<'a>,
    /// Output files that are being written.
    open: HashMap<usize, Open>,
    /// Steps of each output file that are still to be written.
    left: Vec<usize>,
    /// Scales and biases of strips, and experts that came before them.
    sides: HashMap<usize, Sides>,
    early: Vec<(usize, u64, Buffer)>,
    packer: Packer,
}

impl<'a> Run<'a> {
    pub(crate) fn new(job: &'a Job, builder: Builder<'a>) -> Self {
        let left = (0..job.plan.outputs.len()).map(|output| job.plan.steps_of(output).len()).collect();
        let (open, sides, early, packer) = (HashMap::new(), HashMap::new(), Vec::new(), Packer::default());
        Self { job, builder, open, left, sides, early, packer }
    }

    /// Takes up what a journal vouches for: nothing of it is read, but files must be there and have their length. What is
    /// not so is undone. Returns what is to be hashed.
    pub(crate) fn restore(&mut self, state: &mut State, journal: &mut Journal) -> Result<Vec<usize>> {
        let plan = &self.job.plan;
        let mut unhashed = Vec::new();
        for (output, out) in plan.outputs.iter().enumerate() {
            let steps = plan.steps_of(output);
            let done = state.done.range(steps.clone()).count();
            if done == 0 {
                continue;
            }
            let len =
                self.builder.dir().open_file(&out.path).and_then(|file| file.metadata()).map(|m| m.len());
            if len.ok() != Some(out.len) {
                journal.undo(output, &steps)?;
                state.done.retain(|step| !steps.contains(step));
                state.files.remove(&output);
                state.proven.clear();
                continue;
            }
            self.left[output] -= done;
            if self.left[output] > 0 {
                continue;
            }
            match state.files.get(&output) {
                Some(sha256) => self.builder.list_as(&out.path, out.len, *sha256),
                None => unhashed.push(output),
            }
        }
        Ok(unhashed)
    }

    /// Fetches and writes everything that is not done.
    pub(crate) fn transfer(
        &mut self,
        options: &FetchOptions,
        done: &Done,
        unhashed: Vec<usize>,
        mut proofs: Proofs,
        journal: Journal,
    ) -> Result<Proofs> {
        let (plan, prover) = (&self.job.plan, &self.job.prover);
        let connections = options.connections.clamp(1, 32);
        let window = Arc::new(Window::new(connections, options.range));
        let mut committer = Committer::start(journal, options.range / 2, window.clone())?;
        let mut digester = Digester::start()?;
        for output in unhashed {
            let file = self.file(output)?;
            digester.push(output, file, plan.outputs[output].len);
        }
        let before = plan.traffic(&Done::new()).1 - plan.traffic(done).1;
        let hub = (prover.hub.clone(), options.patience);
        let mut transfer = Transfer::start(hub, connections, options.memory, window, plan)?;
        let partial = self.builder.target().partial().to_path_buf();
        proofs.start(prover, &partial, self.layers_done())?;
        while self.left.iter().any(|left| *left > 0) {
            let meter = &mut self.builder.meter;
            let got =
                transfer.next(plan, done, &mut |received, waiting| meter.set(before + received, waiting))?;
            for (output, step) in self.take(got, done, &mut transfer)? {
                committer.push(step)?;
                if self.left[output] == 0
                    && let Some(file) = self.open.remove(&output)
                {
                    digester.push(output, file, plan.outputs[output].len);
                }
            }
            while let Some(hashed) = digester.ready(Duration::ZERO)? {
                self.hashed(hashed, &mut committer)?;
            }
            proofs.start(prover, &partial, self.layers_done())?;
            for shard in proofs.fresh.drain(..) {
                committer.push(Step::Proven(shard))?;
            }
            if proofs.wrong.is_some() {
                return Ok(proofs);
            }
        }
        drop(transfer);
        while digester.is_busy() {
            self.builder.meter.step(0)?;
            if let Some(hashed) = digester.ready(Duration::from_millis(50))? {
                self.hashed(hashed, &mut committer)?;
            }
        }
        committer.finish()?;
        Ok(proofs)
    }

    /// Writes what arrived. Returns the steps that were done with that, by output.
    fn take(&mut self, got: Got, done: &Done, transfer: &mut Transfer) -> Result<Vec<(usize, Step)>> {
        let plan = &self.job.plan;
        let mut steps = Vec::new();
        match got {
            Got::Whole(group, fetched) if group < plan.units.len() => {
                steps.push(self.unit(group, &fetched)?);
                drop(fetched);
                transfer.let_go(group);
            }
            Got::Whole(group, fetched) => {
                let strip = group - plan.units.len();
                // One whose experts were all done is not asked for.
                let experts = usize::try_from(plan.experts).unwrap_or(usize::MAX);
                self.sides.insert(strip, Sides { left: plan.left(group, done).min(experts), fetched });
                let (now, later) =
                    std::mem::take(&mut self.early).into_iter().partition(|(of, ..)| *of == strip);
                self.early = later;
                let now: Vec<(usize, u64, Buffer)> = now;
                for (_, expert, bytes) in now {
                    steps.push(self.expert(strip, expert, bytes, transfer)?);
                }
            }
            Got::Part(strip, expert, bytes) if self.sides.contains_key(&strip) => {
                steps.push(self.expert(strip, expert, bytes, transfer)?);
            }
            Got::Part(strip, expert, bytes) => self.early.push((strip, expert, bytes)),
        }
        Ok(steps)
    }

    fn unit(&mut self, number: usize, fetched: &Fetched) -> Result<(usize, Step)> {
        let unit = &self.job.plan.units[number];
        let out = &self.job.plan.outputs[unit.output];
        if let (Some(name), [(0, Item::Copy(piece)), ..]) =
            (out.path.strip_prefix("tokenizer/"), &unit.items[..])
        {
            let head = fetched.get(piece)?;
            source::check_sidecar(name, &head[..head.len().min(64)])?;
        }
        let file = self.file(unit.output)?;
        for (at, item) in &unit.items {
            let written = match item {
                Item::Bytes(bytes) => disk::write(&file.0, &file.1, bytes, *at),
                Item::Copy(piece) => disk::write(&file.0, &file.1, fetched.get(piece)?, *at),
                Item::Panels { shape, pieces } => {
                    let [weights, scales, biases] = pieces;
                    let arrays = [fetched.get(weights)?, fetched.get(scales)?, fetched.get(biases)?];
                    self.packer.panels(*shape, arrays, &mut |bytes, offset| {
                        disk::write(&file.0, &file.1, bytes, at + offset)
                    })
                }
            };
            written.map_err(Error::io("write", &file.1))?;
        }
        Ok(self.done(unit.output, number, (fetched.asked(), 0), file))
    }

    fn expert(
        &mut self,
        number: usize,
        expert: u64,
        weights: Buffer,
        transfer: &mut Transfer,
    ) -> Result<(usize, Step)> {
        let plan = &self.job.plan;
        let strip: &Strip = &plan.strips[number];
        let parts = &self.job.prover.geometry.parts;
        let part = [&parts.gate, &parts.up, &parts.down][strip.role];
        let file = self.file(strip.output)?;
        let step = plan.step(number, expert);
        let sides =
            self.sides.get(&number).ok_or_else(|| Error::Unsupported("an expert without scales".into()))?;
        let [scales, biases] = &strip.sides;
        let cut = |whole: &super::plan::Piece| -> Result<&[u8]> {
            let size = usize::try_from(whole.len / plan.experts.max(1)).unwrap_or(usize::MAX);
            let at = usize::try_from(expert).unwrap_or(usize::MAX).saturating_mul(size);
            sides
                .fetched
                .get(whole)?
                .get(at..at.saturating_add(size))
                .ok_or_else(|| Error::Unsupported("scales of another number of experts".into()))
        };
        let arrays = [&*weights, cut(scales)?, cut(biases)?];
        let blob = expert * parts.stride as u64;
        self.packer
            .part(part, arrays, &mut |bytes, offset| disk::write(&file.0, &file.1, bytes, blob + offset))
            .map_err(Error::io("write", &file.1))?;
        let (output, bytes) = (strip.output, weights.len() as u64);
        transfer.give_back(weights);
        let mut ended = 0;
        if let Some(sides) = self.sides.get_mut(&number) {
            sides.left -= 1;
            if sides.left == 0 {
                ended = sides.fetched.asked();
                self.sides.remove(&number);
                transfer.let_go(plan.units.len() + number);
            }
        }
        Ok(self.done(output, step, (bytes, ended), file))
    }

    /// A step with its bytes, and those of the sides that it was the last to need.
    fn done(
        &mut self,
        output: usize,
        number: usize,
        (bytes, sides): (u64, u64),
        file: Open,
    ) -> (usize, Step) {
        self.left[output] -= 1;
        (output, Step::Done { number, bytes, sides, output, file })
    }

    /// The output file of that number; what a former run did not begin is made, with room for all of it.
    fn file(&mut self, output: usize) -> Result<Open> {
        if let Some(file) = self.open.get(&output) {
            return Ok(file.clone());
        }
        let out = &self.job.plan.outputs[output];
        let full = self.builder.target().partial().join(&out.path);
        let begun = self.left[output] < self.job.plan.steps_of(output).len();
        let file = if begun {
            self.builder.dir().open_file_rw(&out.path).map_err(Error::io("open", &full))?
        } else {
            match self.builder.dir().remove_file(&out.path) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(Error::io("delete", &full)(e)),
                _ => {}
            }
            if let Some(have) = self.builder.target().free().filter(|have| *have < out.len) {
                let path = self.builder.target().partial().to_path_buf();
                return Err(Error::OutOfSpace { path, need: out.len, have });
            }
            self.builder.dir().create_file(&out.path).map_err(Error::io("create", &full))?
        };
        disk::reserve(&file, &full, out.len).map_err(Error::io("reserve space for", &full))?;
        if !begun {
            let folder = out.path.rsplit_once('/').map_or(".", |(folder, _)| folder);
            let dir = self.builder.dir().open_dir(folder).map_err(Error::io("open", &full))?;
            let of = full.parent().unwrap_or(&full);
            disk::flush_names(&dir, of).map_err(Error::io("sync", of))?;
        }
        let file = Arc::new((file, full));
        self.open.insert(output, file.clone());
        Ok(file)
    }

    /// Number of layer files, from the first on, that are complete, once `model_weights.bin` is.
    fn layers_done(&self) -> usize {
        let outputs = &self.job.plan.outputs;
        let first = outputs.len() - self.job.prover.geometry.experts.layers.len();
        if self.left[..first].iter().any(|left| *left > 0) {
            return 0;
        }
        self.left[first..].iter().take_while(|left| **left == 0).count()
    }

    /// Lists a file that was hashed; a small one must have the hash that it should have.
    fn hashed(&mut self, (output, sha256): (usize, [u8; 32]), committer: &mut Committer) -> Result<()> {
        let out = &self.job.plan.outputs[output];
        if let Err(error) = self.check_file(&out.path, &sha256) {
            // All of this file is to be fetched again.
            committer.push(Step::Undo { output, steps: self.job.plan.steps_of(output) })?;
            return Err(error);
        }
        self.builder.list_as(&out.path, out.len, sha256);
        committer.push(Step::File { output, sha256 })
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
pub(crate) fn tidy(builder: &Builder<'_>) -> Result<()> {
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
