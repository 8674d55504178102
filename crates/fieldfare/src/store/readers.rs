//! The reader threads: a few threads that fill lent slots, so that a layer's misses are read side by side and while
//! something else is computed.
//!
//! Jobs are taken in the order they were given and come back in the order they end. A panic in a reader comes back with
//! its job, so that nothing waits for ever and the slot is not lost.

use super::reader::Reader;
use super::slots::Loan;
use crate::{Error, Result};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Where a blob goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A slot of its layer.
    Slot(usize),
    /// A transit buffer.
    Transit(usize),
}

/// A blob to be read.
#[derive(Debug)]
pub struct Job {
    /// Layer of the expert.
    pub layer: usize,
    /// The expert.
    pub expert: usize,
    /// Where it goes.
    pub place: Place,
    /// The right to fill it.
    pub loan: Loan,
}

/// A job that ended.
#[derive(Debug)]
pub struct Done {
    /// The job; its slot holds the blob if `result` is good, else anything.
    pub job: Job,
    /// How the read ended; a panic of the reader is for the caller to carry on.
    pub result: std::thread::Result<Result<()>>,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    ended: VecDeque<Done>,
    /// Jobs given and not yet ended.
    open: usize,
    /// Since when `open` has not been 0.
    since: Option<Instant>,
    /// Time with `open` above 0, up to `since`.
    busy: Duration,
    closing: bool,
}

struct Shared {
    reader: Box<dyn Reader>,
    state: Mutex<State>,
    given: Condvar,
    ended: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.state();
        loop {
            if state.closing {
                return;
            }
            let Some(mut job) = state.jobs.pop_front() else {
                state = self.given.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let (layer, expert) = (job.layer, job.expert);
            let result = catch_unwind(AssertUnwindSafe(|| self.reader.read(layer, expert, job.loan.bytes())));
            state = self.state();
            state.ended.push_back(Done { job, result });
            state.open -= 1;
            if state.open == 0
                && let Some(since) = state.since.take()
            {
                state.busy += since.elapsed();
            }
            self.ended.notify_one();
        }
    }
}

/// A reader and its threads.
pub struct Readers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Jobs given and not yet taken back.
    out: usize,
}

impl Readers {
    /// `threads` threads (at least one) that read with `reader`.
    ///
    /// # Errors
    /// [`Error::Io`] if the system gives no thread.
    pub fn new(reader: Box<dyn Reader>, threads: usize) -> Result<Self> {
        let shared = Arc::new(Shared {
            reader,
            state: Mutex::default(),
            given: Condvar::new(),
            ended: Condvar::new(),
        });
        let mut readers = Self { shared, threads: Vec::new(), out: 0 };
        for number in 0..threads.max(1) {
            let shared = Arc::clone(&readers.shared);
            let name = format!("reader-{number}");
            let thread = std::thread::Builder::new()
                .name(name.clone())
                .stack_size(128 << 10)
                .spawn(move || shared.work())
                .map_err(Error::io("start the thread", name))?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// The reader.
    pub fn reader(&self) -> &dyn Reader {
        &*self.shared.reader
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Gives a job; it runs as soon as a thread is free.
    pub fn submit(&mut self, job: Job) {
        let mut state = self.shared.state();
        state.jobs.push_back(job);
        state.open += 1;
        if state.since.is_none() {
            state.since = Some(Instant::now());
        }
        drop(state);
        self.out += 1;
        self.shared.given.notify_one();
    }

    /// Jobs given and not yet taken back.
    pub fn in_flight(&self) -> usize {
        self.out
    }

    /// A job that has ended, if there is one now.
    pub fn poll(&mut self) -> Option<Done> {
        let done = self.shared.state().ended.pop_front()?;
        self.out -= 1;
        Some(done)
    }

    /// The next job to end; `None` if none is out.
    pub fn wait(&mut self) -> Option<Done> {
        if self.out == 0 {
            return None;
        }
        let mut state = self.shared.state();
        loop {
            if let Some(done) = state.ended.pop_front() {
                self.out -= 1;
                return Some(done);
            }
            state = self.shared.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Time in which at least one job was being read or waited for its thread.
    pub fn busy(&self) -> Duration {
        let state = self.shared.state();
        state.busy + state.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.shared.state().closing = true;
        self.shared.given.notify_all();
        for thread in self.threads.drain(..) {
            // A thread never panics: reads are caught.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::slots::SlotPool;
    use super::*;
    use std::sync::Barrier;

    /// Writes the expert's number; expert 7 panics, 6 fails; 0 to 2 wait for one another.
    struct Together(Barrier);

    impl Reader for Together {
        fn read(&self, _layer: usize, expert: usize, into: &mut [u8]) -> Result<()> {
            match expert {
                7 => panic!("expert seven"),
                6 => return Err(Error::Cancelled),
                0..=2 => drop(self.0.wait()),
                _ => {}
            }
            into.fill(expert as u8);
            Ok(())
        }
    }

    fn job(pool: &mut SlotPool, expert: usize) -> Job {
        Job { layer: 0, expert, place: Place::Slot(expert), loan: pool.lend(0, expert).unwrap() }
    }

    #[test]
    fn jobs_run_side_by_side_and_come_back() {
        let mut pool = SlotPool::new(1, 8, 32).unwrap();
        let mut readers = Readers::new(Box::new(Together(Barrier::new(3))), 3).unwrap();
        assert!(readers.wait().is_none() && readers.poll().is_none());
        assert_eq!((readers.busy(), readers.threads()), (Duration::ZERO, 3));
        for expert in [0, 1, 2, 5, 6] {
            let job = job(&mut pool, expert);
            readers.submit(job);
        }
        assert_eq!(readers.in_flight(), 5);
        let mut seen = Vec::new();
        while let Some(Done { job, result }) = readers.wait() {
            assert_eq!(result.unwrap().is_err(), job.expert == 6);
            seen.push(job.expert);
            pool.take_back(job.loan);
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 5, 6]);
        for expert in [0, 1, 2, 5] {
            assert!(pool.get(0, expert).unwrap().iter().all(|&byte| usize::from(byte) == expert));
        }
        assert!(readers.busy() > Duration::ZERO);
    }

    #[test]
    fn panics_come_back_and_a_drop_waits_for_nobody_else() {
        let mut pool = SlotPool::new(1, 8, 32).unwrap();
        let mut readers = Readers::new(Box::new(Together(Barrier::new(3))), 1).unwrap();
        readers.submit(job(&mut pool, 7));
        let panic = readers.wait().unwrap().result.unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"expert seven"));
        // The thread goes on; what is out at the end is dropped with its memory.
        readers.submit(job(&mut pool, 4));
        assert_eq!(readers.wait().unwrap().job.expert, 4);
        readers.submit(job(&mut pool, 5));
        drop((pool, readers));
    }
}
