//! What may come next, as somebody else decides: a grammar, say. The sampler asks before each choice and tells what was
//! chosen; what is not allowed has no probability, before bias, penalties and all else.

use crate::Result;
use std::fmt::Debug;

/// A set of token ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdSet {
    /// Bit `id % 32` of word `id / 32`.
    words: Vec<u32>,
}

impl IdSet {
    /// The set whose words these are: bit `id % 32` of word `id / 32`.
    pub fn of_words(words: &[u32]) -> Self {
        Self { words: words.to_vec() }
    }

    /// Takes over the words of another set, keeping the room.
    pub fn copy_words(&mut self, words: &[u32]) {
        self.words.clear();
        self.words.extend_from_slice(words);
    }

    /// Adds an id.
    pub fn insert(&mut self, id: u32) {
        let word = (id / 32) as usize;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (id % 32);
    }

    /// Takes an id out.
    pub fn remove(&mut self, id: u32) {
        if let Some(word) = self.words.get_mut((id / 32) as usize) {
            *word &= !(1 << (id % 32));
        }
    }

    /// Whether an id is in it.
    pub fn contains(&self, id: u32) -> bool {
        self.words.get((id / 32) as usize).is_some_and(|word| word >> (id % 32) & 1 == 1)
    }

    /// The lowest id in it.
    pub fn first(&self) -> Option<u32> {
        let at = self.words.iter().position(|&word| word != 0)?;
        Some(at as u32 * 32 + self.words[at].trailing_zeros())
    }

    /// How many ids are in it.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Makes the logits of all other ids minus infinity.
    fn keep(&self, logits: &mut [f32]) {
        for (index, chunk) in logits.chunks_mut(32).enumerate() {
            match self.words.get(index).copied().unwrap_or(0) {
                0 => chunk.fill(f32::NEG_INFINITY),
                u32::MAX => {}
                word => {
                    for (bit, logit) in chunk.iter_mut().enumerate() {
                        if word >> bit & 1 == 0 {
                            *logit = f32::NEG_INFINITY;
                        }
                    }
                }
            }
        }
    }
}

impl FromIterator<u32> for IdSet {
    fn from_iter<T: IntoIterator<Item = u32>>(ids: T) -> Self {
        let mut set = Self::default();
        ids.into_iter().for_each(|id| set.insert(id));
        set
    }
}

/// What may come next.
#[derive(Clone, Copy, Debug)]
pub enum Allowed<'a> {
    /// Anything.
    All,
    /// Anything but these.
    AllBut(&'a [u32]),
    /// Only these; never none.
    Only(&'a IdSet),
}

impl Allowed<'_> {
    /// Makes the logits of what may not come minus infinity.
    pub(super) fn apply(self, logits: &mut [f32]) {
        match self {
            Self::All => {}
            Self::AllBut(ids) => {
                for &id in ids {
                    if let Some(logit) = logits.get_mut(id as usize) {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
            Self::Only(set) => set.keep(logits),
        }
    }

    /// The id if it may come, else the lowest that may: bias may have forbidden all that is allowed.
    pub(super) fn corrected(self, id: u32) -> u32 {
        match self {
            Self::Only(set) if !set.contains(id) => set.first().unwrap_or(id),
            _ => id,
        }
    }
}

/// Decides what may come next in one answer.
pub trait Guide: Debug + Send {
    /// What may come next.
    ///
    /// # Errors
    /// It cannot be told: the grammar became too complex on the way.
    fn allowed(&mut self) -> Result<Allowed<'_>>;

    /// This came. Where that makes no sense, the next [`Guide::allowed`] says so.
    fn accept(&mut self, id: u32);

    /// Whether nothing can follow: the answer is complete.
    fn is_over(&self) -> bool;

    /// Does now what the next [`Guide::allowed`] would take time for; what goes wrong is told there. It may be called on
    /// another thread.
    fn prepare(&mut self) {}

    /// Whether [`Guide::prepare`] takes time now, so that another thread is worth asking.
    fn is_slow(&self) -> bool {
        false
    }
}

/// Makes guides: one for each answer.
pub trait Plan: Debug + Send + Sync {
    /// The guide of an answer that these ids may end.
    ///
    /// # Errors
    /// It cannot be made.
    fn guide(&self, stop: &[u32]) -> Result<Box<dyn Guide>>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sampler, Sampling};
    use proptest::prelude::*;

    /// Allows the same at each step.
    #[derive(Debug)]
    struct Fixed(IdSet);

    impl Guide for Fixed {
        fn allowed(&mut self) -> Result<Allowed<'_>> {
            Ok(Allowed::Only(&self.0))
        }

        fn accept(&mut self, _: u32) {}

        fn is_over(&self) -> bool {
            false
        }
    }

    #[test]
    fn sets_hold_what_was_put_in() {
        let mut set: IdSet = [3, 64, 95].into_iter().collect();
        assert_eq!((set.len(), set.first(), set.contains(64), set.contains(65)), (3, Some(3), true, false));
        set.remove(3);
        set.remove(1_000_000);
        assert_eq!(set.first(), Some(64));
        assert!(!set.contains(u32::MAX) && IdSet::default().is_empty() && !set.is_empty());
        let mut logits = vec![1.0_f32; 100];
        set.keep(&mut logits);
        let kept: Vec<usize> = (0..100).filter(|&id| logits[id] == 1.0).collect();
        assert_eq!(kept, [64, 95]);
        let mut logits = vec![1.0_f32; 4];
        Allowed::AllBut(&[1, 9]).apply(&mut logits);
        assert_eq!(logits, [1.0, f32::NEG_INFINITY, 1.0, 1.0]);
    }

    proptest! {
        /// Whatever the logits, bias and penalties: what comes is allowed.
        #[test]
        fn nothing_else_comes(
            logits in proptest::collection::vec(prop_oneof![Just(f32::NAN), Just(f32::NEG_INFINITY), -30.0_f32..30.0], 70),
            ids in proptest::collection::btree_set(0_u32..70, 1..5),
            temperature in prop_oneof![Just(0.0_f32), 0.1_f32..2.0],
            forbidden in proptest::collection::btree_set(0_u32..70, 0..40),
            seed: u64,
        ) {
            let sampling = Sampling {
                temperature,
                repetition_penalty: 1.3,
                logit_bias: forbidden.into_iter().map(|id| (id, -100.0)).collect(),
                seed: Some(seed),
                ..Sampling::default()
            };
            let set: IdSet = ids.iter().copied().collect();
            let mut sampler = Sampler::new(&sampling, 70).unwrap().guided(Some(Box::new(Fixed(set))));
            for _ in 0..4 {
                let id = sampler.choose(&mut logits.clone()).unwrap();
                prop_assert!(ids.contains(&id));
                sampler.accept(id);
            }
        }
    }
}
