//! The store against a reader that can fail.

use super::*;
use std::sync::{Arc, Mutex};

/// Fills a blob with a value of its layer and expert; refuses the reads that `fail` names.
pub(super) struct Filler {
    pub(super) fail: Arc<Mutex<Vec<usize>>>,
}

impl Reader for Filler {
    fn read(&self, layer: usize, expert: usize, _from: usize, into: &mut [u8]) -> Result<()> {
        into.fill((layer * 16 + expert) as u8);
        let fail = self.fail.lock().unwrap().clone();
        assert!(!fail.contains(&99), "the reader's");
        if fail.contains(&expert) {
            return Err(Error::damaged("layer", "gone"));
        }
        Ok(())
    }
}

fn store(slots_per_layer: usize) -> (ExpertStore, Arc<Mutex<Vec<usize>>>) {
    store_of(2 * slots_per_layer, 2)
}

fn store_of(slots: usize, readers: usize) -> (ExpertStore, Arc<Mutex<Vec<usize>>>) {
    let fail = Arc::new(Mutex::new(Vec::new()));
    let shape = StoreShape { layers: 2, experts: 8, slots, spares: 0, stride: 64, readers };
    let reader = Filler { fail: Arc::clone(&fail) };
    (ExpertStore::new(shape, Policy::Lfu, Box::new(reader)).unwrap(), fail)
}

/// Both halves of a request.
pub(super) fn request(
    store: &mut ExpertStore,
    layer: usize,
    wanted: &[usize],
    each: &mut dyn FnMut(usize, &[u8]) -> Result<()>,
) -> Result<()> {
    store.begin(layer, wanted)?;
    store.finish(each)
}

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

#[test]
fn delivers_every_expert_at_every_size() {
    for slots in 1..=8 {
        let (mut store, _) = store(slots);
        for round in 0..6 {
            for layer in 0..2 {
                let wanted = [round % 8, (round + 3) % 8, (round + 5) % 8, (2 * round + 1) % 8];
                let mut wanted = wanted.to_vec();
                wanted.sort_unstable();
                wanted.dedup();
                let mut seen = fetch(&mut store, layer, &wanted).unwrap();
                seen.sort_unstable();
                assert_eq!(seen, wanted);
            }
        }
        let stats = store.stats();
        assert_eq!(stats.bytes_read, stats.misses * 64);
        assert!(slots < 8 || stats.misses == 16, "{stats:?}");
    }
}

#[test]
fn the_same_is_delivered_with_any_slots_and_readers_and_after_giving_some_up() {
    for (slots, readers) in [(2, 1), (3, 4), (5, 3), (7, 2), (16, 4)] {
        let (mut store, _) = store_of(slots, readers);
        for round in 0..8 {
            if round == 4 {
                store.resize((slots / 2).max(2));
                assert_eq!(store.slots(), (slots / 2).max(2));
            }
            if round == 6 {
                store.resize(16);
                assert_eq!(store.slots(), slots, "as many as there were");
            }
            for layer in 0..2 {
                let all: Vec<usize> = (0..8).map(|i| (i * 3 + round) % 8).collect();
                let mut seen = fetch(&mut store, layer, &all[..=round % 8]).unwrap();
                seen.sort_unstable();
                let mut wanted = all[..=round % 8].to_vec();
                wanted.sort_unstable();
                assert_eq!(seen, wanted);
            }
        }
    }
}

#[test]
fn hits_are_delivered_while_a_read_is_on_its_way() {
    /// Does not end before somebody has said so.
    struct Slow(Arc<(Mutex<bool>, std::sync::Condvar)>);
    impl Reader for Slow {
        fn read(&self, _layer: usize, expert: usize, _from: usize, into: &mut [u8]) -> Result<()> {
            let (said, changed) = &*self.0;
            let mut said = said.lock().unwrap();
            while expert == 1 && !*said {
                said = changed.wait(said).unwrap();
            }
            into.fill(expert as u8);
            Ok(())
        }
    }
    let gate = Arc::new((Mutex::new(false), std::sync::Condvar::new()));
    let shape = StoreShape { layers: 1, experts: 4, slots: 2, spares: 0, stride: 16, readers: 1 };
    let mut store = ExpertStore::new(shape, Policy::Lfu, Box::new(Slow(Arc::clone(&gate)))).unwrap();
    request(&mut store, 0, &[0], &mut |_, _| Ok(())).unwrap();
    let mut order = Vec::new();
    request(&mut store, 0, &[0, 1], &mut |expert, blob| {
        order.push((expert, blob[0]));
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        Ok(())
    })
    .unwrap();
    assert_eq!(order, [(0, 0), (1, 1)]);
    assert!(store.stats().read_time > Duration::ZERO);
}

#[test]
fn what_was_begun_is_read_before_it_is_finished_or_dropped() {
    let (mut store, fail) = store(4);
    fetch(&mut store, 0, &[0, 1]).unwrap();
    store.begin(0, &[1, 2, 3]).unwrap();
    let mut seen = Vec::new();
    store
        .finish(&mut |expert, _| {
            seen.push(expert);
            Ok(())
        })
        .unwrap();
    assert_eq!(seen[0], 1, "the hit first");
    assert_eq!((seen.len(), store.stats().misses, store.stats().hits), (3, 4, 1));
    // Nothing is left to finish, and a request that nobody finishes does no harm.
    store.finish(&mut |_, _| panic!("there is no request")).unwrap();
    store.begin(0, &[4, 5, 6, 7]).unwrap();
    assert_eq!(fetch(&mut store, 1, &[4]).unwrap(), [4]);
    *fail.lock().unwrap() = vec![2];
    store.begin(1, &[2]).unwrap();
    fail.lock().unwrap().clear();
    assert!(store.begin(2, &[0]).is_err());
    assert_eq!(fetch(&mut store, 0, &[4, 5, 6, 7]).unwrap().len(), 4);
}

#[test]
fn a_panic_of_the_caller_or_the_reader_leaves_a_store_that_works() {
    let (mut store, fail) = store(3);
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        request(&mut store, 0, &[0, 1, 2, 3, 4], &mut |_, _| panic!("the caller's"))
    }));
    assert!(panic.is_err());
    assert_eq!(fetch(&mut store, 0, &[0, 1, 2, 3, 4]).unwrap().len(), 5);
    fail.lock().unwrap().push(99); // makes the reader panic
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fetch(&mut store, 1, &[5, 6])));
    assert!(panic.is_err());
    fail.lock().unwrap().clear();
    assert_eq!(fetch(&mut store, 1, &[5, 6]).unwrap().len(), 2);
}

#[test]
fn a_failed_read_leaves_nothing_wrong_behind() {
    let (mut store, fail) = store(2);
    fetch(&mut store, 0, &[0, 1]).unwrap();
    *fail.lock().unwrap() = vec![3];
    assert!(matches!(fetch(&mut store, 0, &[2, 3, 4]), Err(Error::Damaged { .. })));
    fail.lock().unwrap().clear();
    // 3 was half read over an older expert: neither may be taken for held.
    assert_eq!(fetch(&mut store, 0, &[0, 1, 2, 3, 4]).unwrap().len(), 5);
}

#[test]
fn an_error_of_the_caller_ends_the_request() {
    let (mut store, _) = store(4);
    let mut calls = 0;
    let result = request(&mut store, 1, &[1, 2], &mut |_, _| {
        calls += 1;
        Err(Error::Cancelled)
    });
    assert!(matches!(result, Err(Error::Cancelled)));
    assert_eq!(calls, 1);
    assert_eq!(fetch(&mut store, 1, &[1, 2]).unwrap(), [1, 2]);
}

#[test]
fn what_is_worth_most_stays_when_slots_are_given_up() {
    let (mut store, _) = store(5);
    for expert in [6, 2, 4, 0, 1] {
        fetch(&mut store, 0, &[expert]).unwrap();
    }
    fetch(&mut store, 0, &[2, 4]).unwrap();
    store.resize(5); // three for the first layer, two for the second
    let misses = store.stats().misses;
    fetch(&mut store, 0, &[1, 2, 4]).unwrap();
    assert_eq!(store.stats().misses, misses);
    store.resize(10);
    fetch(&mut store, 0, &[0, 1, 2, 4, 6]).unwrap();
    assert_eq!(store.stats().misses, misses + 2, "the others are read again");
    fetch(&mut store, 0, &[0, 1, 2, 4, 6]).unwrap();
    assert_eq!(store.stats().misses, misses + 2);
}

#[test]
fn slot_counts_are_checked() {
    for slots in [0, 1, 17, 18] {
        let shape = StoreShape { layers: 2, experts: 8, slots, spares: 0, stride: 64, readers: 1 };
        let reader = Filler { fail: Arc::default() };
        assert!(matches!(
            ExpertStore::new(shape, Policy::Lru, Box::new(reader)),
            Err(Error::BadRequest { field, .. }) if field == "expert-cache-slots"
        ));
    }
}

#[test]
fn the_board_shows_what_is_held() {
    let board = board::Board::new(2, 70);
    board.show(1, &[Some(3), None, Some(69)]);
    let held: Vec<(usize, usize)> = (0..2)
        .flat_map(|layer| (0..70).map(move |expert| (layer, expert)))
        .filter(|&(l, e)| board.holds(l, e))
        .collect();
    assert_eq!(held, [(1, 3), (1, 69)]);
    board.show(1, &[None]);
    board.show(9, &[Some(1)]);
    board.note_uses(1, &[3, 69, 70]);
    board.note_uses(1, &[3]);
    board.note_read(0, 69);
    board.note_read(2, 0);
    assert_eq!((board.uses(1, 3), board.uses(1, 69), board.uses(0, 3), board.uses(1, 70)), (2, 1, 0, 0));
    assert_eq!((board.reads(0, 69), board.reads(1, 0), board.reads(2, 0)), (1, 0, 0));
    assert!((0..70).all(|expert| !board.holds(1, expert)) && !board.holds(5, 0));
}
