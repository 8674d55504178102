//! The expert store: a layer's experts are asked for, and their blobs are lent one after the other, from
//! slots where they are held or fresh from the layer files.
//!
//! Slots of all layers are one allocation ([`slots`]), each layer has an equal share, [`policy`] says which
//! expert is worth keeping, [`plan`] works out a request without doing it, [`reader`] does the reads. Results
//! do not depend on any of this: a blob is the same bytes wherever it comes from, and callers must not let
//! the order of delivery change their sums.

pub mod plan;
pub mod policy;
pub mod reader;
pub mod slots;

pub use plan::Step;
pub use policy::Policy;
pub use reader::{LayerFile, LayerFiles, ReadAt, Reader};

use crate::{Error, Result};
use policy::Uses;
use slots::SlotPool;
use std::time::{Duration, Instant};

/// How blobs are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reads {
    /// From the disk into the slot, past the page cache.
    Direct,
    /// Through the page cache, which keeps what it has memory for.
    Buffered,
}

impl std::fmt::Display for Reads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Buffered => "buffered",
        })
    }
}

/// What the store has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Experts asked for that were in a slot.
    pub hits: u64,
    /// Experts that were read.
    pub misses: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Time spent in reads.
    pub read_time: Duration,
}

/// One layer's slots and counts.
struct Layer {
    /// The expert in each slot.
    held: Vec<Option<usize>>,
    uses: Uses,
}

/// Holds some experts of every layer and reads the others when they are asked for.
pub struct ExpertStore {
    slots: SlotPool,
    layers: Vec<Layer>,
    reader: Box<dyn Reader>,
    steps: Vec<Step>,
    stats: StoreStats,
}

/// The shape of an [`ExpertStore`].
#[derive(Debug, Clone, Copy)]
pub struct StoreShape {
    /// Number of layers.
    pub layers: usize,
    /// Experts of a layer.
    pub experts: usize,
    /// Slots of a layer, 1..=`experts`.
    pub slots_per_layer: usize,
    /// Bytes of a blob and of a slot.
    pub stride: usize,
}

impl ExpertStore {
    /// Empty slots of the given shape before `reader`.
    ///
    /// # Errors
    /// [`Error::BadRequest`] for a slot count out of range or a pool beyond the address space.
    pub fn new(shape: StoreShape, policy: Policy, reader: Box<dyn Reader>) -> Result<Self> {
        let StoreShape { layers, experts, slots_per_layer, stride } = shape;
        if slots_per_layer == 0 || slots_per_layer > experts {
            return Err(Error::bad(
                "expert-cache-slots",
                format!("{slots_per_layer} is not between 1 and the {experts} experts of a layer"),
            ));
        }
        let layer = || Layer { held: vec![None; slots_per_layer], uses: Uses::new(policy, experts) };
        Ok(Self {
            slots: SlotPool::new(layers, slots_per_layer, stride)?,
            layers: (0..layers).map(|_| layer()).collect(),
            reader,
            steps: Vec::new(),
            stats: StoreStats::default(),
        })
    }

    /// Notes the experts that one token chose in `layer`, before they are fetched.
    pub fn note_token(&mut self, layer: usize, experts: &[usize]) {
        if let Some(layer) = self.layers.get_mut(layer) {
            layer.uses.note_token(experts);
        }
    }

    /// Lends the blob of every expert in `wanted` (distinct ids) to `each`, once, in an order of the store's
    /// choosing. A blob is only lent for the call.
    ///
    /// # Errors
    /// Those of the reader and of `each`; the store stays usable, experts not yet delivered are then simply
    /// not held.
    pub fn fetch(
        &mut self,
        layer: usize,
        wanted: &[usize],
        each: &mut dyn FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let layers = self.layers.len();
        let Some(state) = self.layers.get_mut(layer) else {
            return Err(Error::bad("layer", format!("{layer} is not one of {layers}")));
        };
        plan::plan(&state.held, wanted, &state.uses, &mut self.steps);
        for &step in &self.steps {
            match step {
                Step::Hit { expert, slot } => {
                    self.stats.hits += 1;
                    each(expert, self.slots.get(layer, slot))?;
                }
                Step::Read { expert, slot, .. } => {
                    let blob = self.slots.get_mut(layer, slot);
                    // Empty until the read is known to be good.
                    state.held[slot] = None;
                    let start = Instant::now();
                    self.reader.read(layer, expert, blob)?;
                    self.stats.read_time += start.elapsed();
                    self.stats.misses += 1;
                    self.stats.bytes_read += blob.len() as u64;
                    state.held[slot] = Some(expert);
                    each(expert, blob)?;
                }
            }
        }
        Ok(())
    }

    /// What was done so far.
    pub fn stats(&self) -> StoreStats {
        self.stats
    }

    /// Bytes of all slots.
    pub fn slot_bytes(&self) -> usize {
        self.slots.bytes()
    }

    /// Slots of a layer.
    pub fn slots_per_layer(&self) -> usize {
        self.layers.first().map_or(0, |layer| layer.held.len())
    }
}

#[cfg(test)]
mod tests;
