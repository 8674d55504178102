//! Which experts are in memory, for eyes: written by the store, read from any thread at any time.

use std::sync::atomic::{AtomicU64, Ordering};

/// One bit for each expert of each layer.
#[derive(Debug)]
pub struct Board {
    layers: Vec<Vec<AtomicU64>>,
    experts: usize,
}

impl Board {
    /// Nothing held.
    pub(super) fn new(layers: usize, experts: usize) -> Self {
        let row = || (0..experts.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { layers: (0..layers).map(|_| row()).collect(), experts }
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
