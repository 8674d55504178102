//! What to do for one request, worked out without doing it: hits first, then a read with its victim for every
//! miss.
//!
//! Experts are consumed one after the other, in the order of the steps, and a slot is free to be reused as
//! soon as its expert has been consumed. So a layer may have fewer slots than a request has experts. An
//! expert that the request still needs is never a victim; one it has consumed is a victim only when every
//! slot holds one of the request's own experts (then the least valuable goes, so the hottest stay).

use super::policy::Uses;

/// One step of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The expert is in the slot already.
    Hit {
        /// Expert id.
        expert: usize,
        /// Slot of the layer.
        slot: usize,
    },
    /// The expert is to be read into the slot.
    Read {
        /// Expert id.
        expert: usize,
        /// Slot of the layer.
        slot: usize,
        /// The expert that loses the slot.
        evicted: Option<usize>,
    },
}

impl Step {
    /// The slot it uses.
    pub fn slot(self) -> usize {
        match self {
            Self::Hit { slot, .. } | Self::Read { slot, .. } => slot,
        }
    }

    /// The expert this step delivers.
    pub fn expert(self) -> usize {
        match self {
            Self::Hit { expert, .. } | Self::Read { expert, .. } => expert,
        }
    }
}

/// Plans the request for `wanted` (distinct experts) against `held`, the expert in each slot.
///
/// Steps replace the contents of `steps`: the hits in the order of `wanted`, then the reads in that order.
/// With no slot at all there are no reads; [`super::ExpertStore`] always has one.
pub fn plan(held: &[Option<usize>], wanted: &[usize], uses: &Uses, steps: &mut Vec<Step>) {
    steps.clear();
    for &expert in wanted {
        if let Some(slot) = held.iter().position(|&h| h == Some(expert)) {
            steps.push(Step::Hit { expert, slot });
        }
    }
    if steps.len() == wanted.len() {
        return;
    }
    let mut now: Vec<Option<usize>> = held.to_vec();
    // Whether the slot's expert belongs to this request: a hit, all of which are consumed before the first
    // read, or an earlier read.
    let mut ours: Vec<bool> = held.iter().map(|h| h.is_some_and(|e| wanted.contains(&e))).collect();
    for &expert in wanted {
        if held.contains(&Some(expert)) {
            continue;
        }
        let Some(slot) = victim(&now, &ours, uses) else { return };
        steps.push(Step::Read { expert, slot, evicted: now[slot] });
        now[slot] = Some(expert);
        ours[slot] = true;
    }
}

/// The slot to reuse: an empty one, else the least valuable expert of no concern to the request, else the least
/// valuable one consumed. Ties to the lower slot.
fn victim(now: &[Option<usize>], ours: &[bool], uses: &Uses) -> Option<usize> {
    if let Some(empty) = now.iter().position(Option::is_none) {
        return Some(empty);
    }
    let least = |wanted_ones: bool| {
        (0..now.len())
            .filter(|&slot| ours[slot] == wanted_ones)
            .min_by_key(|&slot| now[slot].map(|expert| uses.rank(expert)))
    };
    least(false).or_else(|| least(true))
}

#[cfg(test)]
mod tests {
    use super::super::policy::Policy;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A slot and how dear it is: by class, then by value.
    type Candidate = (usize, (u8, (f64, usize)));

    /// The same cache in the plainest words: every use is kept in a list, scores are summed from it, and the
    /// steps are found by asking "who may go" anew each time.
    struct Naive {
        policy: Policy,
        history: Vec<Vec<usize>>,
        slots: Vec<Option<usize>>,
    }

    impl Naive {
        fn value(&self, expert: usize) -> (f64, usize) {
            let mut score = 0.0;
            let mut last = 0;
            for (token, experts) in self.history.iter().enumerate() {
                if experts.contains(&expert) {
                    let age = (self.history.len() - 1 - token) as f64;
                    score += match self.policy {
                        Policy::Lfu => 0.5f64.powf(age / 32.0),
                        Policy::LfuTotal => 1.0,
                        Policy::Lru => 0.0,
                    };
                    last = token + 1;
                }
            }
            // Sums made in another order differ in the last bits: compare coarsely, as ties do arise.
            ((score * 1e9).round(), last)
        }

        fn request(&mut self, wanted: &[usize]) -> Vec<Step> {
            let mut steps = Vec::new();
            let mut consumed = Vec::new();
            for &expert in wanted {
                if let Some(slot) = self.slots.iter().position(|s| *s == Some(expert)) {
                    steps.push(Step::Hit { expert, slot });
                    consumed.push(expert);
                }
            }
            for &expert in wanted {
                if consumed.contains(&expert) {
                    continue;
                }
                let mut best: Option<Candidate> = None;
                for (slot, held) in self.slots.iter().enumerate() {
                    let key = match held {
                        None => (0, (0.0, 0)),
                        Some(e) if !wanted.contains(e) => (1, self.value(*e)),
                        Some(e) if consumed.contains(e) => (2, self.value(*e)),
                        Some(_) => continue,
                    };
                    if best.is_none_or(|(_, found)| key < found) {
                        best = Some((slot, key));
                    }
                }
                let (slot, _) = best.expect("a consumed or foreign expert is always there");
                steps.push(Step::Read { expert, slot, evicted: self.slots[slot] });
                self.slots[slot] = Some(expert);
                consumed.push(expert);
            }
            steps
        }
    }

    fn chunks() -> impl Strategy<Value = Vec<Vec<Vec<usize>>>> {
        // Chunks of tokens of up to 4 distinct experts out of 12.
        let token = prop::collection::btree_set(0usize..12, 1..=4)
            .prop_map(|set| set.into_iter().collect::<Vec<_>>());
        prop::collection::vec(prop::collection::vec(token, 1..5), 1..40)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn equals_the_naive_cache(slots in 1usize..=12, which in 0usize..3, chunks in chunks()) {
            let policy = Policy::ALL[which];
            let mut naive = Naive { policy, history: Vec::new(), slots: vec![None; slots] };
            let mut held = vec![None; slots];
            let mut uses = Uses::new(policy, 12);
            let mut steps = Vec::new();
            for chunk in &chunks {
                let mut wanted: Vec<usize> = Vec::new();
                for token in chunk {
                    uses.note_token(token);
                    naive.history.push(token.clone());
                    wanted.extend(token.iter().filter(|e| !wanted.contains(e)).copied().collect::<Vec<_>>());
                }
                plan(&held, &wanted, &uses, &mut steps);
                prop_assert_eq!(&steps, &naive.request(&wanted));
                apply(&mut held, &wanted, &steps)?;
                prop_assert_eq!(&held, &naive.slots);
            }
        }
    }

    /// Applies the steps and checks what must hold for any policy.
    fn apply(held: &mut [Option<usize>], wanted: &[usize], steps: &[Step]) -> Result<(), TestCaseError> {
        let mut delivered = BTreeMap::new();
        for &step in steps {
            match step {
                Step::Hit { expert, slot } => prop_assert_eq!(held[slot], Some(expert)),
                Step::Read { expert, slot, evicted } => {
                    prop_assert_eq!(held[slot], evicted);
                    prop_assert!(!held.contains(&Some(expert)), "{} is held twice", expert);
                    if let Some(e) = evicted {
                        prop_assert!(
                            !wanted.contains(&e) || delivered.contains_key(&e),
                            "{} is still needed",
                            e
                        );
                    }
                    held[slot] = Some(expert);
                }
            }
            prop_assert!(delivered.insert(step.expert(), ()).is_none());
        }
        prop_assert_eq!(delivered.len(), wanted.len());
        Ok(())
    }

    #[test]
    fn hits_come_first_and_the_coldest_goes() {
        let mut uses = Uses::new(Policy::Lfu, 8);
        for experts in [[0, 1], [0, 2], [0, 3], [2, 5]] {
            uses.note_token(&experts);
        }
        let mut steps = Vec::new();
        plan(&[Some(0), Some(1), Some(2)], &[5, 2], &uses, &mut steps);
        assert_eq!(
            steps,
            [Step::Hit { expert: 2, slot: 2 }, Step::Read { expert: 5, slot: 1, evicted: Some(1) }]
        );
    }

    #[test]
    fn one_slot_serves_many_experts() {
        let mut steps = Vec::new();
        plan(&[None], &[3, 1, 2], &Uses::new(Policy::Lru, 4), &mut steps);
        let evicted: Vec<_> =
            steps.iter().map(|s| if let Step::Read { evicted, .. } = s { *evicted } else { None }).collect();
        assert_eq!(evicted, [None, Some(3), Some(1)]);
    }
}
