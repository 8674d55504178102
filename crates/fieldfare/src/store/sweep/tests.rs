//! Sweeps over a reader that can fail, and against what must hold for any of them.

use super::super::tests::{Filler, request};
use super::super::{Policy, StoreShape};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

const EXPERTS: usize = 10;
const LAYERS: usize = 3;

fn store(slots: usize, readers: usize) -> (ExpertStore, Arc<Mutex<Vec<usize>>>) {
    let fail = Arc::new(Mutex::new(Vec::new()));
    let shape = StoreShape {
        layers: LAYERS,
        experts: EXPERTS,
        slots: slots.max(LAYERS),
        spares: 0,
        stride: 64,
        readers,
    };
    let reader = Filler { fail: Arc::clone(&fail) };
    let mut store = ExpertStore::new(shape, Policy::Lfu, Box::new(reader)).unwrap();
    store.resize(slots);
    (store, fail)
}

/// All experts of a layer, as for a prompt that is going to want nearly all.
fn all_of(layer: usize) -> Next<'static> {
    const ALL: [usize; EXPERTS] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    Next { layer, experts: &ALL }
}

fn sweep(store: &mut ExpertStore, layer: usize, wanted: &[usize], next: Option<usize>) -> Result<Vec<usize>> {
    sweep_then(store, layer, wanted, next.map(all_of))
}

fn sweep_then(
    store: &mut ExpertStore,
    layer: usize,
    wanted: &[usize],
    next: Option<Next<'_>>,
) -> Result<Vec<usize>> {
    let mut seen = Vec::new();
    store.sweep(layer, wanted, next, &mut |expert, blob| {
        assert!(blob.iter().all(|&b| usize::from(b) == layer * 16 + expert), "blob of expert {expert}");
        seen.push(expert);
        Ok(())
    })?;
    Ok(seen)
}

/// What the slots of a layer hold or are about to hold.
fn held(store: &ExpertStore, layer: usize) -> BTreeSet<usize> {
    let Layer { held, coming, .. } = &store.layers[layer];
    held.iter().chain(coming).flatten().copied().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_expert_once_in_order_and_the_best_stay(
        slots in 0usize..=LAYERS * EXPERTS,
        (buffers, readers) in (1usize..=13, 1usize..4),
        passes in prop::collection::vec(
            prop::collection::vec(prop::collection::btree_set(0..EXPERTS, 1..4), 1..12), 1..6),
        (ahead, begun) in any::<(bool, bool)>(),
        guesses in prop::collection::vec(0..EXPERTS + 1, 0..EXPERTS),
        fetches: bool,
    ) {
        let (mut store, _) = store(slots, readers);
        for tokens in &passes {
            store.open_transit(buffers).unwrap();
            let mut may_be_read = store.stats().misses;
            if ahead {
                store.read_ahead(all_of(0));
                may_be_read += EXPERTS as u64;
            }
            for layer in 0..LAYERS {
                let mut wanted = BTreeSet::new();
                for token in tokens {
                    let token: Vec<usize> = token.iter().map(|expert| (expert * (layer + 1)) % EXPERTS).collect();
                    store.note_token(layer, &token);
                    wanted.extend(token);
                }
                let places = store.layers[layer].held.len();
                let before = held(&store, layer);
                let mut best: Vec<usize> = before.union(&wanted).copied().collect();
                best.sort_by_key(|&expert| std::cmp::Reverse(store.layers[layer].uses.rank(expert)));
                let wanted: Vec<usize> = wanted.into_iter().collect();
                let next = (ahead && layer + 1 < LAYERS).then_some(layer + 1);
                if begun {
                    store.begin_sweep(layer, &wanted).unwrap();
                }
                // All of the next layer, or guesses: some wrong, some twice, in no order.
                let next = next.map(|layer| match guesses.len() {
                    0 => all_of(layer),
                    _ => Next { layer, experts: &guesses },
                });
                let seen = sweep_then(&mut store, layer, &wanted, next);
                prop_assert_eq!(seen.unwrap(), &wanted[..]);
                // Each at most once: what was guessed is not read again when its turn comes.
                may_be_read += (wanted.len() + next.map_or(0, |next| next.experts.len())) as u64;
                prop_assert!(store.stats().misses <= may_be_read || buffers <= KEPT_FREE);
                prop_assert!(store.readers.in_flight() <= buffers + store.slots.slots());
                let after = held(&store, layer);
                // Guesses that have their turn late leave fewer buffers to wait in.
                if buffers >= places + 2 && guesses.is_empty() {
                    prop_assert_eq!(after, best.iter().take(places).copied().collect::<BTreeSet<_>>());
                } else {
                    prop_assert!(after.len() <= places);
                }
            }
            // Each expert at most once a pass.
            let most = store.stats().misses;
            store.close_transit();
            prop_assert!(store.stats().misses <= most + (buffers + store.slots.slots()) as u64);
            if fetches && slots >= LAYERS {
                let mut count = 0;
                request(&mut store, 1, &[1, 4, 5], &mut |expert, blob| {
                    assert_eq!(usize::from(blob[0]), 16 + expert);
                    count += 1;
                    Ok(())
                }).unwrap();
                prop_assert_eq!(count, 3);
            }
        }
    }
}

#[test]
fn a_pass_reads_every_expert_at_most_once_and_a_held_one_not_at_all() {
    for (slots, buffers) in [(0, 4), (LAYERS, 4), (7, 3), (LAYERS * EXPERTS, 1), (2 * LAYERS, 16)] {
        let (mut store, _) = store(slots, 2);
        let all: Vec<usize> = (0..EXPERTS).collect();
        for pass in 0..3 {
            let before = store.stats();
            store.open_transit(buffers).unwrap();
            store.read_ahead(all_of(0));
            for layer in 0..LAYERS {
                all.iter().for_each(|&expert| store.note_token(layer, &[expert]));
                let next = (layer + 1 < LAYERS).then_some(layer + 1);
                if pass == 2 {
                    store.begin_sweep(layer, &all).unwrap();
                }
                assert_eq!(sweep(&mut store, layer, &all, next).unwrap(), all);
            }
            store.close_transit();
            let stats = store.stats();
            let (misses, hits) = (stats.misses - before.misses, stats.hits - before.hits);
            assert_eq!(store.holds_all(), slots == LAYERS * EXPERTS);
            let held = if pass == 0 { 0 } else { slots as u64 };
            assert_eq!((misses, hits), ((LAYERS * EXPERTS) as u64 - held, held), "{slots} {buffers} {pass}");
        }
    }
}

#[test]
fn errors_of_reads_and_callers_leave_a_store_that_works() {
    let all: Vec<usize> = (0..EXPERTS).collect();
    for (slots, buffers) in [(0, 2), (5, 4), (LAYERS * EXPERTS, 1)] {
        let (mut store, fail) = store(slots, 2);
        store.open_transit(buffers).unwrap();
        for failing in [0, 6, 9] {
            store.resize(0);
            store.resize(slots);
            *fail.lock().unwrap() = vec![failing];
            assert!(matches!(sweep(&mut store, 0, &all, Some(1)), Err(Error::Damaged { .. })));
            fail.lock().unwrap().clear();
            assert_eq!(sweep(&mut store, 0, &all, Some(1)).unwrap(), all);
            // What was read ahead for the next layer gives way if another sweep comes first.
            assert_eq!(sweep(&mut store, 2, &all, Some(1)).unwrap(), all);
            assert_eq!(sweep(&mut store, 2, &all, None).unwrap(), all);
        }
        let mut turns = 0;
        let result = store.sweep(1, &all, Some(all_of(2)), &mut |_, _| {
            turns += 1;
            if turns == 4 { Err(Error::Cancelled) } else { Ok(()) }
        });
        assert!(matches!(result, Err(Error::Cancelled)) && turns == 4);
        assert_eq!(store.readers.in_flight(), 0);
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            store.sweep(1, &all, Some(all_of(2)), &mut |expert, _| {
                assert!(expert < 5, "the caller's");
                Ok(())
            })
        }));
        assert!(panic.is_err());
        *fail.lock().unwrap() = vec![99]; // the reader's
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            sweep(&mut store, 2, &all, None).map(|_| ())
        }));
        fail.lock().unwrap().clear();
        assert!(panic.is_err() || slots == LAYERS * EXPERTS);
        assert_eq!(sweep(&mut store, 1, &all, None).unwrap(), all);
    }
}

#[test]
fn a_sweep_that_was_begun_is_under_way_and_does_no_harm_if_it_is_dropped() {
    let (mut store, _) = self::store(2 * LAYERS, 2);
    store.open_transit(3).unwrap();
    store.begin_sweep(0, &[1, 2, 3, 4, 5, 6]).unwrap();
    assert_eq!(store.readers.in_flight(), 5, "two slots and three buffers");
    // Another one comes instead, of the same layer or not.
    assert_eq!(sweep(&mut store, 1, &[0, 4, 7, 8, 9], None).unwrap(), [0, 4, 7, 8, 9]);
    store.begin_sweep(0, &[0, 7, 8, 9]).unwrap();
    assert_eq!(sweep(&mut store, 0, &[1, 2, 8], None).unwrap(), [1, 2, 8]);
    // What was read because of the beginning was read, not held.
    let (mut store, _) = self::store(2 * LAYERS, 2);
    store.begin_sweep(0, &[1, 2]).unwrap();
    while store.readers.in_flight() > 0 {
        let done = store.readers.wait().unwrap();
        store.take_back(done).unwrap();
    }
    assert_eq!(sweep(&mut store, 0, &[1, 2], None).unwrap(), [1, 2]);
    assert_eq!((store.stats().hits, store.stats().misses), (0, 2));
    assert_eq!(sweep(&mut store, 0, &[1, 2], None).unwrap(), [1, 2]);
    assert_eq!(store.stats().hits, 2);
    // An error of such a read is the sweep's.
    let (mut store, fail) = self::store(LAYERS, 1);
    *fail.lock().unwrap() = vec![3];
    store.begin_sweep(0, &[3, 4]).unwrap();
    assert!(matches!(sweep(&mut store, 0, &[3, 4], None), Err(Error::Damaged { .. })));
    fail.lock().unwrap().clear();
    assert_eq!(sweep(&mut store, 0, &[3, 4], None).unwrap(), [3, 4]);
}

#[test]
fn what_is_no_sweep_is_refused() {
    let (mut store, _) = store(5, 1);
    for (layer, wanted) in [(LAYERS, vec![0]), (0, vec![EXPERTS]), (0, vec![2, 1]), (0, vec![1, 1])] {
        assert!(matches!(store.begin_sweep(layer, &wanted), Err(Error::BadRequest { .. })));
        assert!(matches!(sweep(&mut store, layer, &wanted, None), Err(Error::BadRequest { .. })));
    }
    store.read_ahead(all_of(LAYERS));
    assert!(sweep(&mut store, 0, &[], Some(LAYERS)).unwrap().is_empty());
    assert_eq!(sweep(&mut store, 0, &[3], None).unwrap(), [3], "buffers come by themselves");
}

#[test]
fn guesses_that_have_their_turn_late_are_not_read_twice() {
    let (mut store, _) = store(2 * LAYERS, 1);
    store.note_token(1, &[8, 9]);
    sweep(&mut store, 1, &[8, 9], None).unwrap();
    // The most valuable come first and have no slot to go to: both hold what is due last.
    (0..9).for_each(|_| store.note_token(1, &[0, 1]));
    store.open_transit(5).unwrap();
    store.read_ahead(Next { layer: 1, experts: &[5, 6, 7] });
    assert_eq!(store.readers.in_flight(), 3);
    let before = store.stats();
    let all: Vec<usize> = (0..EXPERTS).collect();
    assert_eq!(sweep(&mut store, 1, &all, None).unwrap(), all);
    let stats = store.stats();
    assert_eq!((stats.hits - before.hits, stats.misses - before.misses), (2, 8));
    assert_eq!(stats.ahead_wasted_bytes, 0);
    // What was read in vain is told.
    store.open_transit(5).unwrap();
    store.read_ahead(Next { layer: 0, experts: &[3, 4, 7, 6] });
    assert_eq!(sweep(&mut store, 0, &[3, 5], None).unwrap(), [3, 5]);
    assert_eq!(store.stats().ahead_wasted_bytes, 3 * 64);
}
