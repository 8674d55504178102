//! The slot memory: one zeroed allocation for all layers, aligned to 2 MiB as a whole so that the system can
//! back it with huge pages, slots packed in it at the blob stride.
//!
//! Packing matters: reads into 4 KiB pages run at half the rate of reads into huge ones, and rounding every
//! slot up to 2 MiB would waste a fifth of the memory.

use crate::{Error, Result};
use fieldfare_kernels::AlignedBuf;
use std::ops::Range;

/// Size and alignment of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// Slots of all layers.
#[derive(Debug)]
pub struct SlotPool {
    memory: AlignedBuf,
    slots_per_layer: usize,
    stride: usize,
}

impl SlotPool {
    /// `layers` x `slots_per_layer` slots of `stride` bytes. Memory is touched only when a slot is first
    /// filled.
    ///
    /// # Errors
    /// [`Error::BadRequest`] if the system has no such memory.
    pub fn new(layers: usize, slots_per_layer: usize, stride: usize) -> Result<Self> {
        let bytes =
            layers.checked_mul(slots_per_layer).and_then(|n| n.checked_mul(stride)).unwrap_or(usize::MAX);
        let memory = AlignedBuf::zeroed(bytes, HUGE_PAGE)
            .map_err(|error| Error::bad("expert-cache-slots", error.to_string()))?;
        Ok(Self { memory, slots_per_layer, stride })
    }

    fn range(&self, layer: usize, slot: usize) -> Range<usize> {
        let start = (layer * self.slots_per_layer + slot) * self.stride;
        start..start + self.stride
    }

    /// The bytes of one slot.
    pub fn get(&self, layer: usize, slot: usize) -> &[u8] {
        &self.memory.as_slice()[self.range(layer, slot)]
    }

    /// The bytes of one slot, to be filled.
    pub fn get_mut(&mut self, layer: usize, slot: usize) -> &mut [u8] {
        let range = self.range(layer, slot);
        &mut self.memory.as_mut_slice()[range]
    }

    /// Bytes of the pool.
    pub fn bytes(&self) -> usize {
        self.memory.as_slice().len()
    }
}
