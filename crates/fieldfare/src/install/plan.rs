//! What to fetch and where it goes: pure functions from a checkpoint's headers to requests and places.
//!
//! Output files are written from front to back, so that each can be hashed on its way to the disk and never needs to be
//! read again. A file is made of *items*, an item of *pieces* of source files; items are gathered into *units* of bounded
//! size, which are fetched as a whole into memory, brought into the layout there, appended, flushed and journaled. A group of
//! experts is one item: nine pieces, one for each array, each in one run of the source because the expert is the first
//! dimension there. So tiles are made without a second copy on disk, whatever the order of tensors in a shard.

use std::fmt::Write as _;

use super::matrix::{Component, Shape};
use super::schema::{ROLES, expert_module, module_of};
use super::source::{Checkpoint, Located};
use crate::format::{
    DType, EXPERTS_DIR, ExpertLayout, ExpertParts, ResidentIndex, SIDECAR_DIR, WEIGHTS, hash,
};
use crate::{Error, Result};
use fieldfare_kernels::tile::{self, TILE_ROWS};

/// Source bytes of a unit, unless a single expert has more. Three units of the largest kind are in memory at a time.
pub(crate) const UNIT: u64 = 27 << 20;
/// Source bytes of a run of plain bytes or rows within a unit.
const RUN: u64 = 4 << 20;
/// Longest request.
const WINDOW: u64 = 16 << 20;
/// Bytes between two pieces that are fetched and thrown away to save a request. Kept small: with 2 MiB the 26B-A4B
/// checkpoint would cost 28 MB more for 15 % fewer requests, since units follow the files and not the source.
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

/// The next bytes of an output file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// Known beforehand.
    Bytes(Vec<u8>),
    /// Alignment.
    Zeros(u64),
    /// As in the source.
    Copy(Piece),
    /// Whole panels of a matrix; `shape.rows` is the number of rows here.
    Panels { shape: Shape, pieces: [Piece; 3] },
    /// Blobs of experts; pieces by matrix and component, each with the bytes of all `count` experts.
    Experts { count: u64, pieces: [Piece; 9] },
}

impl Item {
    pub(crate) fn pieces(&self) -> &[Piece] {
        match self {
            Self::Bytes(_) | Self::Zeros(_) => &[],
            Self::Copy(piece) => std::slice::from_ref(piece),
            Self::Panels { pieces, .. } => pieces,
            Self::Experts { pieces, .. } => pieces,
        }
    }

    /// Source bytes.
    fn fetch(&self) -> u64 {
        self.pieces().iter().map(|p| p.len).sum()
    }

    /// Bytes of the output file.
    fn len(&self, stride: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Zeros(n) => *n,
            Self::Copy(piece) => piece.len,
            Self::Panels { shape, .. } => (shape.rows / TILE_ROWS * tile::panel_bytes(shape.cols)) as u64,
            Self::Experts { count, .. } => count * stride,
        }
    }
}

/// What is fetched, written, flushed and journaled together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// Number of the output file.
    pub(crate) output: usize,
    pub(crate) items: Vec<Item>,
    /// Source bytes of the items.
    pub(crate) fetch: u64,
    /// Length of the output file behind it.
    pub(crate) end: u64,
}

impl Unit {
    /// The requests for its pieces, in the order of the source.
    pub(crate) fn requests(&self) -> Vec<Piece> {
        coalesce(self.items.iter().flat_map(Item::pieces).copied().collect(), WINDOW, GAP)
    }
}

/// A file of the new directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) path: String,
    pub(crate) len: u64,
}

/// All of it, in the order of the work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FetchPlan {
    pub(crate) outputs: Vec<Output>,
    pub(crate) units: Vec<Unit>,
}

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
    pub(crate) parts: &'a ExpertParts,
    /// Number of the source file of each shard.
    pub(crate) shards: &'a [usize],
    /// Name, number and length of the small files.
    pub(crate) sidecars: &'a [(&'static str, usize, u64)],
}

impl Parts<'_> {
    /// The plan.
    ///
    /// # Errors
    /// If a tensor is missing, or sizes do not add up.
    pub(crate) fn plan(&self) -> Result<FetchPlan> {
        let mut plan = FetchPlan::default();
        for (name, file, len) in self.sidecars {
            let whole = Piece { file: *file, offset: 0, len: *len };
            plan.add(format!("{SIDECAR_DIR}/{name}"), *len, runs(whole, 1).map(Item::Copy).collect(), 0)?;
        }
        let len = self.index.index_size + self.index.resident_size;
        plan.add(WEIGHTS.to_owned(), len, self.resident()?, 0)?;
        let stride = self.experts.expert_stride;
        for (layer, description) in self.experts.layers.iter().enumerate() {
            let path = format!("{EXPERTS_DIR}/{}", description.file);
            plan.add(path, self.experts.file_bytes()?, self.layer(layer)?, stride)?;
        }
        Ok(plan)
    }

    fn resident(&self) -> Result<Vec<Item>> {
        let mut items = vec![Item::Bytes(self.index_bytes.to_vec())];
        let mut at = self.index.index_size;
        for entry in &self.index.entries {
            if entry.data.start > at {
                items.push(Item::Zeros(entry.data.start - at));
            }
            at = entry.data.end.max(entry.scales.end).max(entry.biases.end);
            match super::repack::shape_of(entry) {
                Some(shape) => {
                    let arrays = self.arrays(module_of(&entry.name))?;
                    if entry.dtype == DType::Tile16x64 {
                        items.extend(panels(shape, arrays));
                    } else {
                        // v1 has the three arrays one behind the other.
                        items.extend(arrays.into_iter().flat_map(|array| runs(array, 1)).map(Item::Copy));
                    }
                }
                None => items.extend(runs(self.piece(&entry.name)?, 1).map(Item::Copy)),
            }
        }
        Ok(items)
    }

    fn layer(&self, layer: usize) -> Result<Vec<Item>> {
        let count = self.experts.experts_per_layer as u64;
        let mut arrays = Vec::with_capacity(9);
        for role in ROLES {
            arrays.extend(self.arrays(&expert_module(layer, role))?);
        }
        let arrays: [Piece; 9] = arrays
            .try_into()
            .map_err(|_| Error::Unsupported("experts of other than three matrices".into()))?;
        let one: u64 = arrays.iter().map(|p| p.len / count.max(1)).sum();
        let group = (UNIT / one.max(1)).clamp(1, 8.max(RUN / one.max(1)));
        let mut items = Vec::new();
        let mut first = 0;
        while first < count {
            let n = group.min(count - first);
            let pieces = arrays.map(|p| {
                let size = p.len / count;
                Piece { offset: p.offset + first * size, len: n * size, ..p }
            });
            items.push(Item::Experts { count: n, pieces });
            first += n;
        }
        debug_assert!(self.parts.stride as u64 == self.experts.expert_stride);
        Ok(items)
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

/// A run cut into runs of at most [`RUN`] bytes, each a multiple of `step` but for the last.
fn runs(whole: Piece, step: u64) -> impl Iterator<Item = Piece> {
    let size = (RUN / step.max(1)).max(1) * step.max(1);
    (0..whole.len.div_ceil(size)).map(move |i| Piece {
        offset: whole.offset + i * size,
        len: size.min(whole.len - i * size),
        ..whole
    })
}

/// A matrix cut into groups of whole panels.
fn panels(shape: Shape, arrays: [Piece; 3]) -> impl Iterator<Item = Item> {
    let row = move |component| shape.row_bytes(component) as u64;
    let panels = RUN / (row(Component::Weights) * TILE_ROWS as u64).max(1);
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

impl FetchPlan {
    /// Adds a file made of `items`.
    fn add(&mut self, path: String, len: u64, items: Vec<Item>, stride: u64) -> Result<()> {
        let output = self.outputs.len();
        let mut unit = Unit { output, items: Vec::new(), fetch: 0, end: 0 };
        for item in items {
            let fetch = item.fetch();
            if !unit.items.is_empty() && unit.fetch + fetch > UNIT {
                let next = Unit { output, items: Vec::new(), fetch: 0, end: unit.end };
                self.units.push(std::mem::replace(&mut unit, next));
            }
            unit.fetch += fetch;
            unit.end += item.len(stride);
            unit.items.push(item);
        }
        // Tiled files may end with alignment that no entry is behind.
        if unit.end < len {
            unit.items.push(Item::Zeros(len - unit.end));
            unit.end = len;
        }
        if unit.end != len {
            return Err(Error::damaged(path, format!("{} bytes planned, {len} expected", unit.end)));
        }
        self.units.push(unit);
        self.outputs.push(Output { path, len });
        Ok(())
    }

    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.outputs.iter().map(|o| o.len).sum()
    }

    /// Number of requests and bytes asked for, from the unit number `from` on.
    pub(crate) fn traffic(&self, from: usize) -> (usize, u64) {
        self.units[from..]
            .iter()
            .flat_map(Unit::requests)
            .fold((0, 0), |(n, bytes), r| (n + 1, bytes + r.len))
    }

    /// A hash of every place and run in it.
    pub(crate) fn fingerprint(&self) -> String {
        let mut text = String::new();
        for output in &self.outputs {
            let _ = writeln!(text, "{} {}", output.path, output.len); // a String does not fail
        }
        for unit in &self.units {
            let _ = write!(text, "{} {}", unit.output, unit.end);
            for piece in unit.items.iter().flat_map(Item::pieces) {
                let _ = write!(text, " {}:{}+{}", piece.file, piece.offset, piece.len);
            }
            text.push('\n');
        }
        hash::hex(&hash::sha256(text.as_bytes()))
    }
}

#[cfg(test)]
mod tests;
