//! Which experts are in memory, for eyes: written by the store, read from any thread at any time.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// One bit for each expert of each layer, and what happened to it so far.
#[derive(Debug)]
pub struct Board {
    layers: Vec<Vec<AtomicU64>>,
    /// By layer and expert: tokens that chose it.
    uses: Vec<AtomicU32>,
    /// By layer and expert: how often it was read because it was asked for.
    reads: Vec<AtomicU32>,
    hits: AtomicU64,
    misses: AtomicU64,
    bytes_read: AtomicU64,
    experts: usize,
}

/// What the store did so far, as [`super::StoreStats`] has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Experts asked for that were in a slot.
    pub hits: u64,
    /// Experts that were read.
    pub misses: u64,
    /// Bytes read.
    pub bytes_read: u64,
}

impl Board {
    /// Nothing held.
    pub(super) fn new(layers: usize, experts: usize) -> Self {
        let row = || (0..experts.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let counts = || (0..layers * experts).map(|_| AtomicU32::new(0)).collect();
        Self {
            layers: (0..layers).map(|_| row()).collect(),
            uses: counts(),
            reads: counts(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            experts,
        }
    }

    /// A token chose these.
    pub(super) fn note_uses(&self, layer: usize, experts: &[usize]) {
        experts.iter().filter_map(|&expert| self.count(&self.uses, layer, expert)).for_each(add_one);
    }

    /// One was read because it was asked for.
    pub(super) fn note_read(&self, layer: usize, expert: usize) {
        self.count(&self.reads, layer, expert).into_iter().for_each(add_one);
    }

    /// What the store did so far.
    pub(super) fn note_counts(&self, counts: Counts) {
        self.hits.store(counts.hits, Ordering::Relaxed);
        self.misses.store(counts.misses, Ordering::Relaxed);
        self.bytes_read.store(counts.bytes_read, Ordering::Relaxed);
    }

    fn count<'a>(&self, counts: &'a [AtomicU32], layer: usize, expert: usize) -> Option<&'a AtomicU32> {
        let known = layer < self.layers.len() && expert < self.experts;
        counts.get(layer * self.experts + expert).filter(|_| known)
    }

    /// Tokens that chose an expert so far; the count begins anew after 2^32.
    pub fn uses(&self, layer: usize, expert: usize) -> u32 {
        self.count(&self.uses, layer, expert).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// How often an expert was read because it was asked for; the count begins anew after 2^32.
    pub fn reads(&self, layer: usize, expert: usize) -> u32 {
        self.count(&self.reads, layer, expert).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// What the store did until the last layer that it has finished.
    pub fn counts(&self) -> Counts {
        Counts {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
        }
    }

    /// What a layer's slots hold now.
    pub(super) fn show(&self, layer: usize, held: &[Option<usize>]) {
        let Some(row) = self.layers.get(layer) else { return };
        for (at, word) in row.iter().enumerate() {
            let of_word = held.iter().flatten().filter(|&&expert| expert / 64 == at);
            word.store(of_word.fold(0, |bits, expert| bits | 1 << (expert % 64)), Ordering::Relaxed);
        }
    }

    /// Experts of a layer.
    pub fn experts(&self) -> usize {
        self.experts
    }

    /// Layers.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// Whether an expert is in memory.
    pub fn holds(&self, layer: usize, expert: usize) -> bool {
        let word = self.layers.get(layer).and_then(|row| row.get(expert / 64));
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (expert % 64) & 1 == 1)
    }
}

/// For eyes: one more or less does not matter, waiting would.
fn add_one(count: &AtomicU32) {
    count.fetch_add(1, Ordering::Relaxed);
}
