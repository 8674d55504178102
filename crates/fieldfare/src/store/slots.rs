//! The slot memory: one allocation for all layers, 2 MiB-aligned as a whole, slots packed in it at the blob stride.
//!
//! Packing matters: reads into 4 KiB pages run at half the rate of reads into huge ones, and rounding every slot up
//! to 2 MiB would waste a fifth of the memory. Slots lie by rank (the first slot of every layer, then the second …),
//! so that all layers can give up their last ones by cutting off the end, when the KV cache or a prompt needs the
//! memory, and take them again, empty, when it does not.
//!
//! A few *spare* slots belong to no layer. What was read into one ahead of its use becomes a layer's slot by changing
//! places with it; nothing is copied.
//!
//! A slot is filled by whoever holds its [`Loan`], on any thread, or by several who hold parts of it; until all parts are
//! back together the pool lends the slot to nobody else.
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
    spares: usize,
    stride: usize,
    /// The block of memory of each slot that there could be, by rank, then that of each spare one: a permutation.
    block: Vec<usize>,
    /// By block: lent to be filled.
    lent: Vec<bool>,
}

/// The right to fill one slot, or a part of it.
#[derive(Debug)]
pub struct Loan {
    memory: Arc<Pages>,
    block: usize,
    /// What [`Loan::bytes`] gives.
    range: Range<usize>,
    /// Bytes of the slot that this right covers, filled ones included.
    covers: usize,
}

impl Loan {
    /// The bytes of the slot, or of the part.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: a loan is made for a slot that is not lent, and the pool hands out neither bytes nor another loan of it
        // nor gives its memory back before this one has been returned with all its parts. Slots do not overlap, and the
        // ranges of parts do not either: a part's is taken from the front of the loan's, which is shorter from then on.
        unsafe { self.memory.part_mut(self.range.clone()) }
    }

    /// How many bytes [`Loan::bytes`] has.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// True if nothing is left to fill.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Takes the first `len` bytes, or all, off this loan, for somebody else to fill.
    pub fn split_off_front(&mut self, len: usize) -> Loan {
        let middle = self.range.start + len.min(self.range.len());
        let range = self.range.start..middle;
        self.range.start = middle;
        self.covers -= range.len();
        Loan { memory: Arc::clone(&self.memory), block: self.block, covers: range.len(), range }
    }

    /// Takes a part back that is filled, or given up. One of another slot changes nothing.
    pub fn join(&mut self, part: Loan) {
        if self.block == part.block && Arc::ptr_eq(&self.memory, &part.memory) {
            self.covers += part.covers;
        }
    }
}

impl SlotPool {
    /// `slots` slots of `stride` bytes for `layers` layers: each has `slots / layers`, the first ones one more where
    /// that leaves a rest. Memory is touched only when a slot is first filled.
    ///
    /// # Errors
    /// [`Error::BadRequest`] if the system has no such memory.
    pub fn new(layers: usize, slots: usize, stride: usize) -> Result<Self> {
        Self::with_spares(layers, slots, 0, stride)
    }

    /// [`SlotPool::new`] with `spares` slots more that belong to no layer.
    ///
    /// # Errors
    /// As there.
    pub fn with_spares(layers: usize, slots: usize, spares: usize, stride: usize) -> Result<Self> {
        let blocks = slots.saturating_add(spares);
        let bytes = blocks.saturating_mul(stride);
        let memory = Pages::new(bytes).map_err(|error| {
            Error::bad("expert-cache-slots", format!("cannot have {bytes} bytes for {slots} slots: {error}"))
        })?;
        let (memory, lent) = (Arc::new(memory), vec![false; blocks]);
        // The spare ones lie in front, where nothing is cut off.
        let block = (spares..blocks).chain(0..spares).collect();
        Ok(Self { memory, layers: layers.max(1), slots, capacity: slots, spares, stride, block, lent })
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

    /// The block of a slot.
    fn block(&self, layer: usize, slot: usize) -> usize {
        assert!(layer < self.layers && slot < self.slots_of(layer), "slot {slot} of layer {layer}");
        self.block[slot * self.layers + layer]
    }

    fn range(&self, block: usize) -> Range<usize> {
        block * self.stride..(block + 1) * self.stride
    }

    /// The bytes of one slot; `None` while it is lent.
    pub fn get(&self, layer: usize, slot: usize) -> Option<&[u8]> {
        let block = self.block(layer, slot);
        // SAFETY: the slot is not lent, and lending it takes the pool exclusively, which this borrow excludes.
        (!self.lent[block]).then(|| unsafe { self.memory.part(self.range(block)) })
    }

    /// Lends a slot to be filled; `None` while it is lent.
    pub fn lend(&mut self, layer: usize, slot: usize) -> Option<Loan> {
        self.lend_block(self.block(layer, slot))
    }

    fn lend_block(&mut self, block: usize) -> Option<Loan> {
        if std::mem::replace(&mut self.lent[block], true) {
            return None;
        }
        let memory = Arc::clone(&self.memory);
        Some(Loan { memory, block, range: self.range(block), covers: self.stride })
    }

    /// Takes a loan back. One of another pool changes nothing; a slot of which parts are still out stays lent.
    pub fn take_back(&mut self, loan: Loan) {
        if Arc::ptr_eq(&loan.memory, &self.memory) && loan.covers == self.stride {
            self.lent[loan.block] = false;
        }
    }

    /// Number of spare slots.
    pub fn spares(&self) -> usize {
        self.spares
    }

    /// Lends a spare slot to be filled; `None` while it is lent.
    pub fn lend_spare(&mut self, spare: usize) -> Option<Loan> {
        assert!(spare < self.spares, "spare slot {spare} of {}", self.spares);
        self.lend_block(self.block[self.capacity + spare])
    }

    /// Makes a spare slot, with what it holds, a slot of a layer, and that one spare. False, and nothing is done, while
    /// either is lent.
    pub fn change_places(&mut self, layer: usize, slot: usize, spare: usize) -> bool {
        assert!(spare < self.spares, "spare slot {spare} of {}", self.spares);
        let (one, other) = (self.block(layer, slot), self.block[self.capacity + spare]);
        if self.lent[one] || self.lent[other] {
            return false;
        }
        self.block.swap(slot * self.layers + layer, self.capacity + spare);
        true
    }

    /// Gives up the slots beyond the first `slots` and their memory, or takes some of those given up again; no more than
    /// there were in the beginning. False if slots to give up may be lent: then nothing is done.
    pub fn resize(&mut self, slots: usize) -> bool {
        let slots = slots.min(self.capacity);
        if slots < self.slots {
            if Arc::get_mut(&mut self.memory).is_none() {
                return false; // a loan is out and shares the memory
            }
            self.move_to_front(slots);
            // Slots taken again lie one behind the other, or huge pages would be paid for that are half used.
            self.block[slots..self.capacity].sort_unstable();
            if let Some(memory) = Arc::get_mut(&mut self.memory) {
                memory.release((slots + self.spares) * self.stride);
            }
        }
        self.slots = slots;
        true
    }

    /// Has the first `slots` slots and the spare ones lie in the first blocks, if nothing is lent.
    fn move_to_front(&mut self, slots: usize) {
        let blocks = slots + self.spares;
        let mut gone = slots..self.capacity;
        for at in (0..slots).chain(self.capacity..self.capacity + self.spares) {
            if self.block[at] < blocks {
                continue;
            }
            // As many blocks at the front belong to slots that go as blocks behind to slots that stay.
            let Some(other) = gone.find(|&other| self.block[other] < blocks) else { return };
            if at < slots {
                let (from, to) = (self.block[at], self.block[other]);
                if let Some(mut loan) = self.lend_block(to) {
                    // SAFETY: `from` is another block and, like all, not lent; the loan is of `to`.
                    loan.bytes().copy_from_slice(unsafe { self.memory.part(self.range(from)) });
                    self.take_back(loan);
                }
            }
            self.block.swap(at, other);
        }
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

    /// Bytes of the pool, spare slots included.
    pub fn bytes(&self) -> usize {
        (self.slots + self.spares) * self.stride
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
    fn parts_of_a_slot_are_filled_apart_and_come_back_together() {
        let mut pool = SlotPool::new(1, 2, 64).unwrap();
        let mut loan = pool.lend(0, 1).unwrap();
        let mut parts: Vec<_> = [10, 30].map(|len| loan.split_off_front(len)).into();
        assert_eq!((parts[0].len(), parts[1].len(), loan.len()), (10, 30, 24));
        parts.push(loan.split_off_front(100));
        assert!(loan.is_empty());
        std::thread::scope(|scope| {
            for (value, part) in parts.iter_mut().enumerate() {
                scope.spawn(move || part.bytes().fill(value as u8 + 1));
            }
        });
        let last = parts.pop().unwrap();
        parts.into_iter().for_each(|part| loan.join(part));
        let mut other = pool.lend(0, 0).unwrap();
        other.join(last); // of another slot
        pool.take_back(loan);
        assert!(pool.get(0, 1).is_none(), "a part is missing");
        pool.take_back(other);
        assert!(pool.get(0, 0).is_some());

        let mut pool = SlotPool::new(1, 1, 8).unwrap();
        let mut loan = pool.lend(0, 0).unwrap();
        for value in [5, 6] {
            let mut part = loan.split_off_front(4);
            part.bytes().fill(value);
            loan.join(part);
        }
        pool.take_back(loan);
        assert_eq!(pool.get(0, 0).unwrap(), [5, 5, 5, 5, 6, 6, 6, 6]);
    }

    #[test]
    fn spare_slots_change_places_and_stay_when_others_go() {
        let mut pool = SlotPool::with_spares(2, 8, 2, 64).unwrap();
        assert_eq!((pool.spares(), pool.bytes(), pool.slots()), (2, 640, 8));
        let fill = |pool: &mut SlotPool, loan: Option<Loan>, value: u8| {
            let mut loan = loan.unwrap();
            loan.bytes().fill(value);
            pool.take_back(loan);
        };
        for (layer, slot) in (0..2).flat_map(|layer| (0..4).map(move |slot| (layer, slot))) {
            let loan = pool.lend(layer, slot);
            fill(&mut pool, loan, (10 * layer + slot) as u8);
        }
        let loan = pool.lend_spare(0).unwrap();
        assert!(!pool.change_places(1, 3, 0) && pool.lend_spare(0).is_none(), "not while it is lent");
        fill(&mut pool, Some(loan), 77);
        assert!(pool.change_places(1, 3, 0) && pool.get(1, 3).unwrap().iter().all(|&b| b == 77));
        let loan = pool.lend_spare(1);
        fill(&mut pool, loan, 88);
        assert!(pool.change_places(0, 0, 1) && pool.change_places(0, 2, 0));
        // Both spare slots are in blocks that go now, one of the slots that stay is in a block of the end.
        let held = |pool: &SlotPool, layer, slot| pool.get(layer, slot).unwrap()[0];
        let before = [held(&pool, 0, 0), held(&pool, 1, 0), held(&pool, 0, 1), held(&pool, 1, 1)];
        assert_eq!((before[0], held(&pool, 0, 2)), (88, 13));
        assert!(pool.resize(4));
        assert_eq!([held(&pool, 0, 0), held(&pool, 1, 0), held(&pool, 0, 1), held(&pool, 1, 1)], before);
        let (first, second) = (pool.lend_spare(0).unwrap(), pool.lend_spare(1).unwrap());
        assert!(first.block < 6 && second.block < 6 && first.block != second.block);
        pool.take_back(first);
        pool.take_back(second);
        assert!(pool.resize(8) && pool.bytes() == 640);
        let mut blocks = pool.block.clone();
        blocks.sort_unstable();
        assert_eq!(blocks, (0..10).collect::<Vec<_>>(), "each block belongs to one");
        assert!(pool.resize(0) && pool.lend_spare(1).is_some());
    }

    #[test]
    fn absurd_sizes_are_refused() {
        assert!(matches!(SlotPool::new(30, usize::MAX, 1 << 20), Err(Error::BadRequest { .. })));
    }
}
