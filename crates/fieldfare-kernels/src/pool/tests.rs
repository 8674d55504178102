//! Hand-off, panics, nesting, shutdown; timing only where the promise is about time.

use super::*;
use std::sync::atomic::AtomicUsize;

fn sizes() -> impl Iterator<Item = Pool> {
    [0, 1, 2, 3, 8].into_iter().map(Pool::new)
}

#[test]
fn every_part_is_called_once_and_the_caller_is_worker_0() {
    for pool in sizes() {
        for parts in (0..50).chain([1000]) {
            let calls: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
            let busy: Vec<AtomicBool> = (0..pool.threads()).map(|_| AtomicBool::new(false)).collect();
            let caller = thread::current().id();
            pool.run_parts(parts, |worker, part| {
                assert!(!busy[worker].swap(true, Ordering::Relaxed), "two at a time are worker {worker}");
                calls[part].fetch_add(1, Ordering::Relaxed);
                assert_eq!(worker == 0, thread::current().id() == caller);
                busy[worker].store(false, Ordering::Relaxed);
            });
            assert!(calls.iter().all(|c| c.load(Ordering::Relaxed) == 1));
        }
        let calls: Vec<AtomicUsize> = (0..pool.threads()).map(|_| AtomicUsize::new(0)).collect();
        pool.run(|index| {
            calls[index].fetch_add(1, Ordering::Relaxed);
        });
        assert!(calls.iter().all(|c| c.load(Ordering::Relaxed) == 1));
    }
    assert_eq!(Pool::new(0).threads(), 1);
    assert_eq!(Pool::new(3).threads(), 3);
}

/// Without any worker inside, the caller's part of a region is the whole region.
#[test]
fn the_caller_needs_nobody() {
    let pool = Pool::new(4);
    let shared = &*pool.shared;
    for (worker, section) in shared.sections.iter().enumerate() {
        section.0.set(split(100, 4, worker, 1));
    }
    let sum = AtomicUsize::new(0);
    shared.take_parts(4, 0, |part| {
        sum.fetch_add(part, Ordering::Relaxed);
    });
    assert_eq!(sum.into_inner(), 4950);
}

/// Regions of parts of very different length, each with data of its own on the caller's stack: a worker that
/// touched a region after its end would write into another's.
#[test]
fn late_workers_touch_nothing() {
    for threads in [2, 3, 8] {
        let pool = Pool::new(threads);
        for round in 0..3000usize {
            let parts = 1 + round * 7 % 23;
            let marks: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
            pool.run_parts(parts, |_, part| {
                for _ in 0..(round * 31 + part * 17) % 97 {
                    std::hint::spin_loop();
                }
                if (round + part).is_multiple_of(501) {
                    thread::yield_now();
                }
                marks[part].fetch_add(round + 1, Ordering::Relaxed);
            });
            assert!(marks.iter().all(|m| m.load(Ordering::Relaxed) == round + 1), "round {round}");
            drop(marks);
            if round.is_multiple_of(500) {
                thread::sleep(SPIN * 4); // the next region finds the workers parked
            }
        }
    }
}

#[test]
fn sections_are_taken_in_order() {
    let section = Section(AtomicU64::new(0));
    assert_eq!(section.take(), None);
    section.set(3..6);
    assert_eq!([(); 5].map(|()| section.take()), [Some(3), Some(4), Some(5), None, None]);
}

#[test]
fn long_waits_are_followed_by_time_alone() {
    let (start, ms) = (Instant::now(), Duration::from_millis(1));
    let mut alone = Alone::default();
    alone.waited(start, start + ms * 10, start + ms * 20);
    assert!(alone.until.is_none(), "as long as the work: that was a long part");
    alone.waited(start, start + ms, start + ms + Alone::LONG / 2);
    assert!(alone.until.is_none(), "short");
    alone.waited(start, start + ms, start + ms * 5);
    assert_eq!((alone.times, alone.until), (2, Some(start + ms * 13)), "twice the wait of 4 ms");
    assert!(alone.still(start + ms * 12) && !alone.still(start + ms * 13));
    let mut at = start + ms * 14;
    for times in [4, 8, 16, 32, 64, 64] {
        alone.waited(at, at + ms, at + ms * 5);
        assert_eq!((alone.times, alone.until), (times, Some(at + ms * (5 + 4 * times))), "again, soon");
        at = alone.until.unwrap() + ms;
    }
    at += ms * 100;
    alone.waited(at, at + ms, at + ms * 5);
    assert_eq!(alone.times, 2, "after a good while");
}

#[test]
fn alone_all_parts_are_done_too() {
    let pool = Pool::new(3);
    let until = Instant::now() + Duration::from_secs(600);
    *lock(&pool.region) = Alone { until: Some(until), times: 2 };
    let caller = thread::current().id();
    let done = AtomicUsize::new(0);
    let result = catch_unwind(AssertUnwindSafe(|| {
        pool.run_parts(5, |worker, part| {
            assert!(worker == 0 && thread::current().id() == caller);
            done.fetch_add(1, Ordering::Relaxed);
            assert!(part != 1, "part 1 fell");
        });
    }));
    assert_eq!(*result.unwrap_err().downcast::<&str>().unwrap(), "part 1 fell");
    assert_eq!(done.into_inner(), 5);
    pool.run(|_| ());
}

#[test]
fn many_regions_see_each_others_writes() {
    let pool = Pool::new(3);
    let mut data = vec![0u64; 1000];
    for _ in 0..2000 {
        pool.for_chunks(&mut data, 7, |_, part| part.iter_mut().for_each(|v| *v += 1));
    }
    assert!(data.iter().all(|&v| v == 2000));
}

#[test]
fn chunks_cover_the_slice_and_scratch_is_ones_own() {
    for pool in sizes() {
        for len in [0, 1, 5, 6, 7, 100] {
            let mut data = vec![usize::MAX; len];
            let mut scratch = vec![0usize; pool.threads()];
            pool.for_chunks_with(&mut data, 6, &mut scratch, |count, index, part| {
                *count += part.len();
                for (i, v) in part.iter_mut().enumerate() {
                    *v = index * 6 + i;
                }
            });
            assert!(data.iter().enumerate().all(|(i, &v)| i == v));
            assert_eq!(scratch.iter().sum::<usize>(), len);
        }
    }
}

#[test]
fn panics_reach_the_caller_and_the_pool_lives_on() {
    let pool = Pool::new(3);
    for bad in 0..3 {
        let done = AtomicUsize::new(0);
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.run(|worker| {
                assert!(worker != bad, "worker {bad} fell");
                done.fetch_add(1, Ordering::Relaxed);
            });
        }));
        let text = *result.unwrap_err().downcast::<String>().unwrap();
        assert!(text.contains(&format!("worker {bad} fell")));
        assert_eq!(done.load(Ordering::Relaxed), 2);
        pool.run(|_| ());
    }
    let all = catch_unwind(AssertUnwindSafe(|| pool.run(|_| panic!("all fell"))));
    assert_eq!(*all.unwrap_err().downcast::<&str>().unwrap(), "all fell");
    pool.run(|_| ());
    assert!(!IN_REGION.get());
}

#[test]
fn nested_regions_run_in_place() {
    let (outer, inner) = (Pool::new(2), Pool::new(3));
    let count = AtomicUsize::new(0);
    outer.run(|_| {
        inner.run(|_| {
            outer.run(|_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
        });
    });
    assert_eq!(count.load(Ordering::Relaxed), 2 * 3 * 2);
}

#[test]
fn several_callers_take_turns() {
    let pool = Pool::new(2);
    let sum = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..200 {
                    pool.run(|worker| {
                        sum.fetch_add(worker as u64 + 1, Ordering::Relaxed);
                    });
                }
            });
        }
    });
    assert_eq!(sum.load(Ordering::Relaxed), 3 * 200 * 3);
}

#[test]
fn drop_joins_busy_spinning_and_parked_workers() {
    for parked in [false, true] {
        let pool = Pool::new(3);
        pool.run(|_| ());
        let shared = Arc::clone(&pool.shared);
        while parked && !shared.parked.iter().all(|flag| flag.0.load(Ordering::SeqCst)) {
            thread::yield_now();
        }
        if parked {
            pool.run(|_| ());
        }
        drop(pool);
        assert_eq!(Arc::strong_count(&shared), 1, "all workers are gone");
    }
}

#[test]
fn idle_workers_park() {
    let pool = Pool::new(2);
    pool.run(|_| ());
    // Ends because spinning is bounded; a pool that spins for ever never gets here.
    while !pool.shared.parked[0].0.load(Ordering::SeqCst) {
        thread::yield_now();
    }
}

#[test]
fn split_is_a_partition_in_order() {
    for total in [0, 1, 15, 16, 17, 44, 704, 2816] {
        for parts in 1..6 {
            for align in [1, 16, 64] {
                let ranges: Vec<_> = (0..parts).map(|i| split(total, parts, i, align)).collect();
                assert_eq!((ranges[0].start, ranges[parts - 1].end), (0, total));
                for pair in ranges.windows(2) {
                    assert_eq!(pair[0].end, pair[1].start);
                    assert!(pair[0].end == total || pair[0].end % align == 0);
                }
                let sizes = ranges.iter().map(|r| r.len().div_ceil(align));
                assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);
            }
        }
    }
}
