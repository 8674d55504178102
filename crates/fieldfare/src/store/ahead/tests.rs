//! Guesses against a reader that can fail, and one that waits.

use super::super::reader::Reader;
use super::super::tests::{Filler, request};
use super::super::{ExpertStore, Policy, StoreShape, StoreStats};
use crate::Result;
use proptest::prelude::*;
use std::sync::{Arc, Condvar, Mutex, mpsc};

const EXPERTS: usize = 8;

fn shape(slots: usize, spares: usize, readers: usize) -> StoreShape {
    StoreShape { layers: 2, experts: EXPERTS, slots: 2 * slots, spares, stride: 64, readers }
}

fn store(slots: usize, spares: usize) -> (ExpertStore, Arc<Mutex<Vec<usize>>>) {
    let fail = Arc::new(Mutex::new(Vec::new()));
    let reader = Filler { fail: Arc::clone(&fail) };
    (ExpertStore::new(shape(slots, spares, 2), Policy::Lfu, Box::new(reader)).unwrap(), fail)
}

/// Requests and checks; the experts in the order they came.
fn fetch(store: &mut ExpertStore, layer: usize, wanted: &[usize]) -> Result<Vec<usize>> {
    let mut seen = Vec::new();
    store.note_token(layer, wanted);
    request(store, layer, wanted, &mut |expert, blob| {
        assert!(blob.iter().all(|&b| usize::from(b) == layer * 16 + expert), "blob of expert {expert}");
        seen.push(expert);
        Ok(())
    })?;
    Ok(seen)
}

/// Waits until nothing is read any more.
fn quiet(store: &mut ExpertStore) {
    while let Some(done) = store.readers.wait() {
        store.take_back(done).unwrap();
    }
}

#[test]
fn a_right_guess_is_not_read_again_and_a_wrong_one_is_forgotten() {
    let (mut store, _) = store(4, 2);
    fetch(&mut store, 0, &[0, 1]).unwrap();
    // Held experts are no guesses, and there are two spare slots.
    assert_eq!(store.look_ahead(0, &[1, 5, 0, 6, 7], 9), 2);
    quiet(&mut store);
    let before = store.stats();
    assert_eq!((before.misses, before.bytes_read, before.ahead_wasted_bytes), (2, 4 * 64, 2 * 64));
    let mut seen = fetch(&mut store, 0, &[0, 3, 5]).unwrap();
    assert_eq!(seen.remove(0), 0, "what is held comes first");
    seen.sort_unstable();
    assert_eq!(seen, [3, 5]);
    let StoreStats { hits, misses, bytes_read, ahead_guesses, ahead_used, ahead_wasted_bytes, .. } =
        store.stats();
    assert_eq!((hits, misses, bytes_read), (1, 4, 5 * 64), "5 came from the guess, 3 was read");
    assert_eq!((ahead_guesses, ahead_used, ahead_wasted_bytes), (2, 1, 64));
    // 6 was guessed for another time.
    fetch(&mut store, 0, &[6]).unwrap();
    assert_eq!((store.stats().bytes_read, store.stats().ahead_used), (6 * 64, 1));
    // What came from a guess is held like the rest; of five experts the oldest has gone.
    fetch(&mut store, 0, &[0, 3, 5, 6]).unwrap();
    assert_eq!(store.stats().bytes_read, 6 * 64);
    assert_eq!(store.look_ahead(1, &[1, 2, 3], 1), 1, "no more than asked for");
    assert_eq!(store.look_ahead(2, &[1], 1), 0, "no such layer");
}

#[test]
fn nothing_that_is_held_gives_way() {
    let (mut store, _) = store(3, 3);
    fetch(&mut store, 1, &[0, 1, 2]).unwrap();
    for guesses in [[3, 4, 5], [5, 6, 7]] {
        assert_eq!(store.look_ahead(1, &guesses, 3), 3);
        quiet(&mut store);
        let misses = store.stats().misses;
        fetch(&mut store, 1, &[0, 1, 2]).unwrap();
        assert_eq!(store.stats().misses, misses);
    }
}

#[test]
fn a_guess_that_failed_is_read_when_it_is_wanted() {
    let (mut store, fail) = store(2, 2);
    *fail.lock().unwrap() = vec![3];
    store.look_ahead(0, &[3, 4], 2);
    quiet(&mut store);
    assert!(matches!(fetch(&mut store, 0, &[3, 4]), Err(crate::Error::Damaged { .. })));
    store.look_ahead(0, &[3, 4], 2);
    fail.lock().unwrap().clear();
    quiet(&mut store);
    assert_eq!(fetch(&mut store, 0, &[3, 4]).unwrap().len(), 2);
    // It fails while it is waited for.
    *fail.lock().unwrap() = vec![5];
    store.look_ahead(0, &[5], 2);
    assert!(fetch(&mut store, 0, &[5]).is_err());
    fail.lock().unwrap().clear();
    assert_eq!(fetch(&mut store, 0, &[5, 3]).unwrap().len(), 2);
}

/// Says which expert it has begun with, and reads nothing before it is told to.
struct Slow {
    begun: mpsc::Sender<usize>,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl Reader for Slow {
    fn read(&self, layer: usize, expert: usize, _from: usize, into: &mut [u8]) -> Result<()> {
        let _ = self.begun.send(expert); // nobody may be listening any more
        let (open, changed) = &*self.gate;
        let mut open = open.lock().unwrap();
        while !*open {
            open = changed.wait(open).unwrap();
        }
        into.fill((layer * 16 + expert) as u8);
        Ok(())
    }
}

#[test]
fn guesses_under_way_are_finished_or_called_off() {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let (begun, begins) = mpsc::channel();
    let reader = Box::new(Slow { begun, gate: Arc::clone(&gate) });
    let mut store = ExpertStore::new(shape(2, 3, 1), Policy::Lfu, reader).unwrap();
    store.look_ahead(0, &[1, 2, 3], 3);
    assert_eq!(begins.recv().unwrap(), 1, "the likeliest first, and the others wait for its thread");
    store.note_token(0, &[1, 4]);
    store.begin(0, &[1, 4]).unwrap();
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    let mut seen = Vec::new();
    store
        .finish(&mut |expert, blob| {
            assert!(blob.iter().all(|&byte| usize::from(byte) == expert));
            seen.push(expert);
            Ok(())
        })
        .unwrap();
    seen.sort_unstable();
    assert_eq!(seen, [1, 4]);
    quiet(&mut store);
    let stats = store.stats();
    assert_eq!((stats.ahead_guesses, stats.ahead_used, stats.misses), (3, 1, 2));
    assert_eq!((stats.bytes_read, stats.ahead_wasted_bytes), (2 * 64, 0), "2 and 3 were never begun");
    assert_eq!(store.look_ahead(1, &[1, 2, 3], 3), 3, "all spare slots are there again");
}

#[derive(Debug, Clone)]
enum Do {
    Fetch(usize, Vec<usize>),
    Guess(usize, Vec<usize>),
    Sweep(usize, Vec<usize>),
    Resize(usize),
    Wait,
}

fn experts() -> impl Strategy<Value = Vec<usize>> {
    prop::sample::subsequence((0..EXPERTS).collect::<Vec<_>>(), 1..6).prop_shuffle()
}

fn step() -> impl Strategy<Value = Do> {
    prop_oneof![
        4 => (0..2usize, experts()).prop_map(|(layer, wanted)| Do::Fetch(layer, wanted)),
        4 => (0..2usize, experts()).prop_map(|(layer, guesses)| Do::Guess(layer, guesses)),
        1 => (0..2usize, experts()).prop_map(|(layer, wanted)| Do::Sweep(layer, wanted)),
        1 => (2..14usize).prop_map(Do::Resize),
        2 => Just(Do::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn what_is_wanted_comes_whatever_was_guessed(
        slots in 1usize..7, spares in 0usize..4, steps in prop::collection::vec(step(), 1..40),
    ) {
        let (mut store, _) = store(slots, spares);
        for step in steps {
            match step {
                Do::Fetch(layer, wanted) => {
                    let mut seen = fetch(&mut store, layer, &wanted).unwrap();
                    let mut wanted = wanted;
                    seen.sort_unstable();
                    wanted.sort_unstable();
                    prop_assert_eq!(seen, wanted);
                }
                Do::Guess(layer, guesses) => {
                    let given = store.look_ahead(layer, &guesses, spares);
                    prop_assert!(given <= spares);
                }
                Do::Sweep(layer, mut wanted) => {
                    wanted.sort_unstable();
                    let mut seen = Vec::new();
                    store.sweep(layer, &wanted, None, &mut |expert, blob| {
                        assert!(blob.iter().all(|&b| usize::from(b) == layer * 16 + expert));
                        seen.push(expert);
                        Ok(())
                    }).unwrap();
                    prop_assert_eq!(seen, wanted);
                }
                Do::Resize(slots) => store.resize(slots),
                Do::Wait => quiet(&mut store),
            }
            for layer in 0..2 {
                let mut held: Vec<usize> = store.layers[layer].held.iter().flatten().copied().collect();
                let all = held.len();
                held.sort_unstable();
                held.dedup();
                prop_assert_eq!(held.len(), all, "no expert is held twice");
            }
            let stats = store.stats();
            prop_assert!(stats.ahead_used <= stats.ahead_guesses);
            prop_assert!(stats.ahead_wasted_bytes <= stats.bytes_read);
        }
    }
}
