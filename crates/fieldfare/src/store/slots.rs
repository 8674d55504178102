//! The slot memory: one allocation for all layers, 2 MiB-aligned as a whole, slots packed in it at the blob stride.
//!
//! Packing matters: reads into 4 KiB pages run at half the rate of reads into huge ones, and rounding every slot up
//! to 2 MiB would waste a fifth of the memory. Slots lie by rank (the first slot of every layer, then the second …),
//! so that all layers can give up their last ones by cutting off the end, when the KV cache or a prompt needs the
//! memory, and take them again, empty, when it does not.
//!
//! A slot is filled by whoever holds its [`Loan`], on any thread; until the loan is back the pool lends the slot to
//! nobody else.
#![allow(unsafe_code)] // disjoint parts of one allocation are written by several threads

use crate::sys::pages::Pages;
use crate::{Error, Result};
use std::ops::Range;
use std::sync::Arc;

/// Slots of all layers.
#[derive(Debug)]
pub struct SlotPool {
    memory: Arc<Pages>,
    layers: usize,
    slots: usize,
    /// As many as the memory was made for.
    capacity: usize,
    stride: usize,
    /// By slot of the pool: lent to be filled.
    lent: Vec<bool>,
}

/// The right to fill one slot.
#[derive(Debug)]
pub struct Loan {
    memory: Arc<Pages>,
    index: usize,
    range: Range<usize>,
}

impl Loan {
    /// The bytes of the slot.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: a loan is made for a slot that is not lent, and the pool hands out neither bytes nor another loan of it
        // nor gives its memory back before this one has been returned. Slots do not overlap.
        unsafe { self.memory.part_mut(self.range.clone()) }
    }
}

impl SlotPool {
    /// `slots` slots of `stride` bytes for `layers` layers: each has `slots / layers`, the first ones one more where
    /// that leaves a rest. Memory is touched only when a slot is first filled.
    ///
    /// # Errors
    /// [`Error::BadRequest`] if the system has no such memory.
    pub fn new(layers: usize, slots: usize, stride: usize) -> Result<Self> {
        let bytes = slots.saturating_mul(stride);
        let memory = Pages::new(bytes).map_err(|error| {
            Error::bad("expert-cache-slots", format!("cannot have {bytes} bytes for {slots} slots: {error}"))
        })?;
        let (memory, lent) = (Arc::new(memory), vec![false; slots]);
        Ok(Self { memory, layers: layers.max(1), slots, capacity: slots, stride, lent })
    }

    /// Slots of all layers at most.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes of a slot.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Slots of one layer.
    pub fn slots_of(&self, layer: usize) -> usize {
        slots_of(self.slots, self.layers, layer)
    }

    /// Slots of all layers.
    pub fn slots(&self) -> usize {
        self.slots
    }

    fn index(&self, layer: usize, slot: usize) -> usize {
        assert!(layer < self.layers && slot < self.slots_of(layer), "slot {slot} of layer {layer}");
        slot * self.layers + layer
    }

    fn range(&self, index: usize) -> Range<usize> {
        index * self.stride..(index + 1) * self.stride
    }

    /// The bytes of one slot; `None` while it is lent.
    pub fn get(&self, layer: usize, slot: usize) -> Option<&[u8]> {
        let index = self.index(layer, slot);
        // SAFETY: the slot is not lent, and lending it takes the pool exclusively, which this borrow excludes.
        (!self.lent[index]).then(|| unsafe { self.memory.part(self.range(index)) })
    }

    /// Lends a slot to be filled; `None` while it is lent.
    pub fn lend(&mut self, layer: usize, slot: usize) -> Option<Loan> {
        let index = self.index(layer, slot);
        if std::mem::replace(&mut self.lent[index], true) {
            return None;
        }
        Some(Loan { memory: Arc::clone(&self.memory), index, range: self.range(index) })
    }

    /// Takes a loan back. One of another pool changes nothing.
    pub fn take_back(&mut self, loan: Loan) {
        if Arc::ptr_eq(&loan.memory, &self.memory) {
            self.lent[loan.index] = false;
        }
    }

    /// Gives up the slots beyond the first `slots` and their memory, or takes some of those given up again; no more than
    /// there were in the beginning. False if slots to give up may be lent: then nothing is done.
    pub fn resize(&mut self, slots: usize) -> bool {
        let slots = slots.min(self.capacity);
        if slots < self.slots {
            // No loan is out, or it would share the memory.
            let Some(memory) = Arc::get_mut(&mut self.memory) else { return false };
            memory.release(slots * self.stride);
        }
        self.slots = slots;
        self.lent.resize(slots, false);
        true
    }

    /// Copies what slot `from` of a layer holds to slot `to`. Nothing is done if either is lent.
    pub fn copy(&mut self, layer: usize, from: usize, to: usize) {
        if from == to || self.get(layer, from).is_none() {
            return;
        }
        let Some(mut loan) = self.lend(layer, to) else { return };
        if let Some(bytes) = self.get(layer, from) {
            loan.bytes().copy_from_slice(bytes);
        }
        self.take_back(loan);
    }

    /// Bytes of the pool.
    pub fn bytes(&self) -> usize {
        self.slots * self.stride
    }

    /// How many of them are in huge pages; `None` where the system does not say.
    pub fn huge_bytes(&self) -> Option<u64> {
        self.memory.huge_bytes().map(|bytes| bytes.min(self.bytes() as u64))
    }
}

/// Slots of one of `layers` layers that share `slots`.
pub(super) fn slots_of(slots: usize, layers: usize, layer: usize) -> usize {
    slots / layers + usize::from(layer < slots % layers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_apart_and_lent_once() {
        let mut pool = SlotPool::new(3, 8, 64).unwrap();
        assert_eq!([pool.slots_of(0), pool.slots_of(1), pool.slots_of(2)], [3, 3, 2]);
        let places: Vec<_> = (0..3).flat_map(|l| (0..slots_of(8, 3, l)).map(move |s| (l, s))).collect();
        let mut loans: Vec<_> = places.iter().map(|&(l, s)| pool.lend(l, s).unwrap()).collect();
        std::thread::scope(|scope| {
            for (value, loan) in loans.iter_mut().enumerate() {
                scope.spawn(move || loan.bytes().fill(value as u8));
            }
        });
        assert!(pool.lend(1, 2).is_none() && pool.get(1, 2).is_none());
        assert!(!pool.resize(4), "not while slots are lent");
        loans.into_iter().for_each(|loan| pool.take_back(loan));
        for (value, &(layer, slot)) in places.iter().enumerate() {
            assert!(pool.get(layer, slot).unwrap().iter().all(|&byte| usize::from(byte) == value));
        }
        assert!(pool.resize(4));
        assert_eq!((pool.slots(), pool.bytes(), pool.slots_of(0), pool.slots_of(2)), (4, 256, 2, 1));
        assert!(pool.get(0, 1).unwrap().iter().all(|&byte| byte == 1), "what stays keeps its bytes");
        assert!(pool.resize(100));
        assert_eq!((pool.slots(), pool.bytes()), (8, 512), "no more than there were");
        pool.copy(0, 1, 2);
        assert!(pool.get(0, 2).unwrap().iter().all(|&byte| byte == 1));
        assert!(pool.resize(0) && pool.resize(8));
    }

    #[test]
    fn absurd_sizes_are_refused() {
        assert!(matches!(SlotPool::new(30, usize::MAX, 1 << 20), Err(Error::BadRequest { .. })));
    }
}
