//! The kernels' pool in every order of steps that its threads can take, up to a number of preemptions: each part is computed
//! once, what parts write is seen by the caller, nobody touches the closure of a region that is over, nobody sleeps for
//! ever.
//!
//! `scripts/models` runs it; `LOOM_MAX_PREEMPTIONS` says how many times threads may be stopped in the middle, instead of the
//! number at each test.

#![allow(dead_code, unused_imports, unused_mut)] // the pool's source, of which the models use a part

include!(concat!(env!("OUT_DIR"), "/pool.rs"));

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::atomic::AtomicUsize;

    fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
        builder.check(f);
    }

    /// Two regions one after the other with data of their own on the caller's stack, then the end.
    fn regions(preemptions: usize, threads: usize, regions: usize, parts: usize) {
        model(preemptions, move || {
            let pool = Pool::new(threads);
            for _ in 0..regions {
                let cells: Vec<UnsafeCell<u32>> = (0..parts).map(|_| UnsafeCell::new(0)).collect();
                let cells = Shares(cells);
                pool.run_parts(parts, |_, part| {
                    // A second one at the same time, or one that the caller does not see, is an error of the model.
                    cells.at(part).with_mut(|cell| unsafe { *cell += 1 });
                });
                for cell in &cells.0 {
                    assert_eq!(cell.with(|cell| unsafe { *cell }), 1);
                }
            }
            drop(pool);
        });
    }

    struct Shares(Vec<UnsafeCell<u32>>);
    // SAFETY: each part has a cell of its own; loom checks that.
    unsafe impl Sync for Shares {}

    impl Shares {
        fn at(&self, part: usize) -> &UnsafeCell<u32> {
            &self.0[part]
        }
    }

    #[test]
    fn two_threads_and_one_region() {
        regions(5, 2, 1, 2);
    }

    #[test]
    fn two_threads_and_two_regions() {
        regions(4, 2, 2, 2);
    }

    #[test]
    fn three_threads_and_one_region() {
        regions(1, 3, 1, 3);
    }

    #[test]
    fn a_pool_that_is_never_used_ends() {
        model(3, || drop(Pool::new(3)));
    }

    /// The models can fail: without the look at the flag that says that a worker is parked, one sleeps for ever, and loom finds
    /// the order of steps that leads there. (It then aborts, so this is a process of its own.)
    #[test]
    fn a_worker_that_is_not_woken_is_found() {
        let this = std::env::current_exe().expect("this test");
        let ran = std::process::Command::new(this)
            .args(["--ignored", "--exact", "tests::not_woken", "--nocapture"])
            .output()
            .expect("run");
        assert!(!ran.status.success());
        assert!(String::from_utf8_lossy(&ran.stderr).contains("deadlock; threads ="));
    }

    #[test]
    #[ignore = "ends in a deadlock, as it should; the test above runs it"]
    fn not_woken() {
        model(1, || {
            let mut pool = Pool::new(2);
            // The word of a new region without the look at the flags, as `signal` would be if it forgot them.
            pool.shared.stop.store(true, Ordering::Relaxed);
            pool.shared.gate.0.store(gate::REGION, Ordering::SeqCst);
            pool.workers.clear();
        });
    }
}
