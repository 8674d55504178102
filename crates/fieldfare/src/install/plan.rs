//! What to fetch and where it goes: pure functions from a checkpoint's headers to requests and places.
//!
//! Every place in the output files is known beforehand, so what arrives is written where it belongs, in whatever order it
//! arrives. There are two kinds of work. A *unit* is a few resident tensors, or a part of a large one, or a small file: it
//! is fetched as a whole into memory, since the scales of a matrix may lie anywhere before or behind its weights, and then
//! written. A *strip* is one matrix of all experts of a layer: its scales and biases, an eighth of it, are fetched
//! into memory; its weights, one run of the source, are streamed in requests of up to 64 MiB, and each expert
//! is written as it passes. So tiles are made without a second copy on disk, whatever the order of tensors in a shard.
//!
//! A *step*, which is what a journal vouches for, is a unit or one expert of a strip.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;

use super::matrix::{Component, Shape};
use super::schema::{ROLES, expert_module, module_of};
use super::source::{Checkpoint, Located};
use crate::format::{DType, EXPERTS_DIR, ExpertLayout, ResidentIndex, SIDECAR_DIR, WEIGHTS, hash};
use crate::{Error, Result};
use fieldfare_kernels::tile::{self, TILE_ROWS};

/// Longest request, unless one expert has more.
pub(crate) const RANGE: u64 = 64 << 20;
/// Source bytes of a unit; half a request at most, so that what a killed run lost is less than one for each connection.
const UNIT: u64 = 32 << 20;
/// Source bytes of a run of plain bytes or rows within a unit.
const RUN: u64 = 4 << 20;
/// Bytes between two pieces that are fetched and thrown away to save a request.
const GAP: u64 = 4 << 10;

/// A run of bytes of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Piece {
    /// Number of the source file.
    pub(crate) file: usize,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Piece {
    fn end(self) -> u64 {
        self.offset + self.len
    }
}

/// Bytes of an output file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// Known beforehand.
    Bytes(Vec<u8>),
    /// As in the source.
    Copy(Piece),
    /// Whole panels of a matrix; `shape.rows` is the number of rows here.
    Panels { shape: Shape, pieces: [Piece; 3] },
}

impl Item {
    pub(crate) fn pieces(&self) -> &[Piece] {
        match self {
            Self::Bytes(_) => &[],
            Self::Copy(piece) => std::slice::from_ref(piece),
            Self::Panels { pieces, .. } => pieces,
        }
    }

    /// Source bytes.
    fn fetch(&self) -> u64 {
        self.pieces().iter().map(|p| p.len).sum()
    }

    /// Bytes of the output file.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Copy(piece) => piece.len,
            Self::Panels { shape, .. } => (shape.rows / TILE_ROWS * tile::panel_bytes(shape.cols)) as u64,
        }
    }
}

/// What is fetched as a whole and written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// Number of the output file.
    pub(crate) output: usize,
    /// With their places in it.
    pub(crate) items: Vec<(u64, Item)>,
    /// Source bytes of the items.
    pub(crate) fetch: u64,
}

/// One matrix of all experts of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Strip {
    /// Number of the output file.
    pub(crate) output: usize,
    /// Which matrix of an expert.
    pub(crate) role: usize,
    /// The weights of all experts.
    pub(crate) weights: Piece,
    /// Their scales and biases.
    pub(crate) sides: [Piece; 2],
}

/// A file of the new directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) path: String,
    pub(crate) len: u64,
}

/// All of it, in the order of the work: units, then strips.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FetchPlan {
    pub(crate) outputs: Vec<Output>,
    pub(crate) units: Vec<Unit>,
    pub(crate) strips: Vec<Strip>,
    /// Experts of a layer.
    pub(crate) experts: u64,
    /// Longest request, unless one expert has more.
    pub(crate) range: u64,
}

/// Numbers of the steps that are done.
pub(crate) type Done = BTreeSet<usize>;

/// Requests that cover `pieces`: two are joined if they are of one file, at most `gap` bytes lie between them, and both
/// fit into a window of `window` bytes.
pub(crate) fn coalesce(mut pieces: Vec<Piece>, window: u64, gap: u64) -> Vec<Piece> {
    pieces.sort_unstable();
    let mut out: Vec<Piece> = Vec::new();
    for piece in pieces {
        if let Some(last) = out.last_mut()
            && last.file == piece.file
            && piece.offset <= last.end().saturating_add(gap)
            && last.end().max(piece.end()) - last.offset <= window
        {
            last.len = last.end().max(piece.end()) - last.offset;
        } else {
            out.push(piece);
        }
    }
    out
}

/// What a plan is made from.
pub(crate) struct Parts<'a> {
    pub(crate) source: &'a Checkpoint,
    pub(crate) index: &'a ResidentIndex,
    pub(crate) index_bytes: &'a [u8],
    pub(crate) experts: &'a ExpertLayout,
    /// Number of the source file of each shard.
    pub(crate) shards: &'a [usize],
    /// Name, number and length of the small files.
    pub(crate) sidecars: &'a [(&'static str, usize, u64)],
    /// Longest request.
    pub(crate) range: u64,
}

impl Parts<'_> {
    /// The plan.
    ///
    /// # Errors
    /// If a tensor is missing, or sizes do not add up.
    pub(crate) fn plan(&self) -> Result<FetchPlan> {
        let experts = self.experts.experts_per_layer as u64;
        let mut plan = FetchPlan { experts, range: self.range.max(1), ..FetchPlan::default() };
        for (name, file, len) in self.sidecars {
            let output = plan.output(format!("{SIDECAR_DIR}/{name}"), *len);
            let whole = Piece { file: *file, offset: 0, len: *len };
            plan.add(output, &mut 0, runs(whole, plan.run()).map(Item::Copy));
        }
        self.resident(&mut plan)?;
        for (layer, description) in self.experts.layers.iter().enumerate() {
            let path = format!("{EXPERTS_DIR}/{}", description.file);
            let output = plan.output(path, self.experts.file_bytes()?);
            for (role, name) in ROLES.into_iter().enumerate() {
                let [weights, scales, biases] = self.arrays(&expert_module(layer, name))?;
                for array in [weights, scales, biases] {
                    if experts == 0 || !array.len.is_multiple_of(experts) || array.len == 0 {
                        return Err(Error::Unsupported(format!("{} bytes of {experts} experts", array.len)));
                    }
                }
                plan.strips.push(Strip { output, role, weights, sides: [scales, biases] });
            }
        }
        Ok(plan)
    }

    fn resident(&self, plan: &mut FetchPlan) -> Result<()> {
        let len = self.index.index_size + self.index.resident_size;
        let output = plan.output(WEIGHTS.to_owned(), len);
        let run = plan.run();
        plan.add(output, &mut 0, std::iter::once(Item::Bytes(self.index_bytes.to_vec())));
        // In the order of the source, where neighbours can be fetched together.
        let mut entries = Vec::with_capacity(self.index.entries.len());
        for entry in &self.index.entries {
            let Piece { file, offset, .. } = self.piece(&entry.name)?;
            entries.push((file, offset, entry));
        }
        entries.sort_unstable_by_key(|(file, offset, _)| (*file, *offset));
        for (.., entry) in entries {
            let mut at = entry.data.start;
            match super::repack::shape_of(entry) {
                Some(shape) => {
                    let arrays = self.arrays(module_of(&entry.name))?;
                    if entry.dtype == DType::Tile16x64 {
                        plan.add(output, &mut at, panels(shape, arrays, run));
                    } else {
                        // v1 has the three arrays one behind the other.
                        let pieces = arrays.into_iter().flat_map(|array| runs(array, run));
                        plan.add(output, &mut at, pieces.map(Item::Copy));
                    }
                }
                None => plan.add(output, &mut at, runs(self.piece(&entry.name)?, run).map(Item::Copy)),
            }
            let end = entry.data.end.max(entry.scales.end).max(entry.biases.end);
            if at != end || end > len {
                return Err(Error::damaged(WEIGHTS, format!("{}: {at} planned, {end} expected", entry.name)));
            }
        }
        Ok(())
    }

    /// Weights, scales and biases of a module.
    fn arrays(&self, module: &str) -> Result<[Piece; 3]> {
        let part = |suffix: &str| self.piece(&format!("{module}.{suffix}"));
        Ok([part("weight")?, part("scales")?, part("biases")?])
    }

    fn piece(&self, name: &str) -> Result<Piece> {
        let Located { shard, info } = self
            .source
            .tensor(name)
            .ok_or_else(|| Error::damaged("checkpoint", format!("missing tensor: {name}")))?;
        Ok(Piece { file: self.shards[*shard], offset: info.offset, len: info.len })
    }
}

/// A run cut into runs of at most `most` bytes.
fn runs(whole: Piece, most: u64) -> impl Iterator<Item = Piece> {
    (0..whole.len.div_ceil(most)).map(move |i| Piece {
        offset: whole.offset + i * most,
        len: most.min(whole.len - i * most),
        ..whole
    })
}

/// A matrix cut into groups of whole panels.
fn panels(shape: Shape, arrays: [Piece; 3], most: u64) -> impl Iterator<Item = Item> {
    let row = move |component| shape.row_bytes(component) as u64;
    let panels = most / (row(Component::Weights) * TILE_ROWS as u64).max(1);
    let step = usize::try_from(panels.max(1)).unwrap_or(1) * TILE_ROWS;
    (0..shape.rows).step_by(step).map(move |first| {
        let rows = step.min(shape.rows - first);
        let mut pieces = arrays;
        for (component, piece) in Component::ALL.into_iter().zip(&mut pieces) {
            piece.offset += first as u64 * row(component);
            piece.len = rows as u64 * row(component);
        }
        Item::Panels { shape: Shape { rows, ..shape }, pieces }
    })
}

impl Strip {
    /// The weights of one expert.
    pub(crate) fn part(&self, expert: u64, experts: u64) -> Piece {
        let len = self.weights.len / experts.max(1);
        Piece { offset: self.weights.offset + expert * len, len, ..self.weights }
    }
}

/// A thing to fetch with everything that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// What is fetched as a whole: a unit, or scales and biases of a strip.
    pub(crate) whole: Vec<Piece>,
    /// What is streamed: experts, and their weights in one piece.
    pub(crate) ranges: Vec<(Range<u64>, Piece)>,
}

impl FetchPlan {
    fn output(&mut self, path: String, len: u64) -> usize {
        self.outputs.push(Output { path, len });
        self.outputs.len() - 1
    }

    /// Source bytes of an item.
    fn run(&self) -> u64 {
        (self.range / 2).clamp(1, RUN)
    }

    /// Adds items of a file, one behind the other from `at` on.
    fn add(&mut self, output: usize, at: &mut u64, items: impl Iterator<Item = Item>) {
        let most = UNIT.min(self.range / 2).max(1);
        for item in items {
            let fetch = item.fetch();
            let fits = |unit: &&mut Unit| {
                unit.output == output && (unit.items.is_empty() || unit.fetch + fetch <= most)
            };
            let place = (*at, item);
            *at += place.1.len();
            match self.units.last_mut().filter(fits) {
                Some(unit) => {
                    unit.fetch += fetch;
                    unit.items.push(place);
                }
                None => self.units.push(Unit { output, items: vec![place], fetch }),
            }
        }
    }

    /// Number of steps.
    pub(crate) fn steps(&self) -> usize {
        self.step(self.strips.len(), 0)
    }

    /// Number of a step: an expert of a strip.
    pub(crate) fn step(&self, strip: usize, expert: u64) -> usize {
        let experts = usize::try_from(self.experts).unwrap_or(usize::MAX);
        strip
            .saturating_mul(experts)
            .saturating_add(self.units.len())
            .saturating_add(usize::try_from(expert).unwrap_or(usize::MAX))
    }

    /// The steps of an output file.
    pub(crate) fn steps_of(&self, output: usize) -> Range<usize> {
        let first = self.units.partition_point(|unit| unit.output < output);
        let last = self.units.partition_point(|unit| unit.output <= output);
        if first < last {
            return first..last;
        }
        let first = self.strips.partition_point(|strip| strip.output < output);
        let last = self.strips.partition_point(|strip| strip.output <= output);
        self.step(first, 0)..self.step(last, 0)
    }

    /// Number of groups: units and strips.
    pub(crate) fn groups(&self) -> usize {
        self.units.len() + self.strips.len()
    }

    /// Steps of a group that are not done.
    pub(crate) fn left(&self, group: usize, done: &Done) -> usize {
        match group.checked_sub(self.units.len()) {
            None => usize::from(!done.contains(&group)),
            Some(strip) => {
                let steps = self.step(strip, 0)..self.step(strip + 1, 0);
                steps.len() - done.range(steps).count()
            }
        }
    }

    /// What is to be fetched for a group, beside what is done.
    pub(crate) fn work(&self, group: usize, done: &Done) -> Work {
        let mut work = Work { whole: Vec::new(), ranges: Vec::new() };
        if self.left(group, done) == 0 {
            return work;
        }
        let Some(number) = group.checked_sub(self.units.len()) else {
            let pieces = self.units[group].items.iter().flat_map(|(_, item)| item.pieces());
            work.whole = coalesce(pieces.copied().collect(), self.range, GAP);
            return work;
        };
        let strip = &self.strips[number];
        work.whole = coalesce(strip.sides.to_vec(), self.range, GAP);
        for expert in (0..self.experts).filter(|e| !done.contains(&self.step(number, *e))) {
            let part = strip.part(expert, self.experts);
            match work.ranges.last_mut() {
                Some((experts, piece)) if experts.end == expert && piece.len + part.len <= self.range => {
                    experts.end += 1;
                    piece.len += part.len;
                }
                _ => work.ranges.push((expert..expert + 1, part)),
            }
        }
        work
    }

    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.outputs.iter().map(|o| o.len).sum()
    }

    /// Number of requests and bytes asked for, beside what is done.
    pub(crate) fn traffic(&self, done: &Done) -> (usize, u64) {
        let works = (0..self.groups()).map(|group| self.work(group, done));
        works
            .flat_map(|work| work.whole.into_iter().chain(work.ranges.into_iter().map(|(_, piece)| piece)))
            .fold((0, 0), |(n, bytes), request| (n + 1, bytes + request.len))
    }

    /// A hash of every place and run in it.
    pub(crate) fn fingerprint(&self) -> String {
        let mut text = String::new();
        for output in &self.outputs {
            let _ = writeln!(text, "{} {}", output.path, output.len); // a String does not fail
        }
        for unit in &self.units {
            let _ = write!(text, "{}", unit.output);
            for (at, item) in &unit.items {
                let _ = write!(text, " {at}");
                for piece in item.pieces() {
                    let _ = write!(text, " {}:{}+{}", piece.file, piece.offset, piece.len);
                }
            }
            text.push('\n');
        }
        for Strip { output, role, weights, sides } in &self.strips {
            let _ = write!(text, "{output} {role} {}", self.experts);
            for piece in [weights].into_iter().chain(sides) {
                let _ = write!(text, " {}:{}+{}", piece.file, piece.offset, piece.len);
            }
            text.push('\n');
        }
        hash::hex(&hash::sha256(text.as_bytes()))
    }
}

#[cfg(test)]
mod tests;
