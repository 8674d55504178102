//! The reader threads: a few threads that fill lent slots, so that a layer's misses are read side by side and while
//! something else is computed.
//!
//! A blob is read in a few parts, unless it is to be whole, so that two threads together bring one blob after the other
//! rather than two at once, late, and a guess can be called off soon. Jobs are taken in the order they were given;
//! those that were only guessed ([`Readers::submit_ahead`]) run while nothing else is asked for, and stop after the parts
//! under way when something is. Jobs come back in the order they end. A panic in a reader comes back with its job, so that
//! nothing waits for ever and the slot is not lost.

use super::reader::Reader;
use super::slots::Loan;
use crate::{Error, Result};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of a part, about. A multiple of every block of direct reads.
const PART: usize = 832 << 10;

/// Parts of guessed blobs that are under way at once: what is asked for meanwhile waits for no more.
const GUESSED_AT_ONCE: usize = 2;

/// Where a blob goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A slot of its layer.
    Slot(usize),
    /// A transit buffer.
    Transit(usize),
    /// A spare slot.
    Spare(usize),
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
    /// It is read by one thread, in one go.
    pub whole: bool,
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
    /// Bytes that were read.
    pub bytes: usize,
    /// It was called off before its end, which is then no good.
    pub called_off: bool,
}

/// A job that is not over.
struct Task {
    job: Job,
    number: u64,
    guessed: bool,
    called_off: bool,
    /// Bytes of the blob that were given to threads.
    given: usize,
    read: usize,
    /// Parts under way.
    running: usize,
    result: std::thread::Result<Result<()>>,
}

impl Task {
    /// More of it can be given to a thread.
    fn has_more(&self) -> bool {
        !self.called_off && matches!(self.result, Ok(Ok(()))) && !self.job.loan.is_empty()
    }

    fn is_over(&self) -> bool {
        self.running == 0 && !self.has_more()
    }
}

/// A part of a blob, on its way.
struct Piece {
    number: u64,
    layer: usize,
    expert: usize,
    from: usize,
    loan: Loan,
}

#[derive(Default)]
struct State {
    /// In the order given.
    tasks: Vec<Task>,
    ended: VecDeque<Done>,
    numbers: u64,
    /// Since when there have been tasks.
    since: Option<Instant>,
    /// Time with tasks, up to `since`.
    busy: Duration,
    closing: bool,
}

impl State {
    /// The next part to read.
    fn next_piece(&mut self) -> Option<Piece> {
        let asked = self.tasks.iter().position(|task| !task.guessed && task.has_more());
        let guessed = || {
            let idle = self.tasks.iter().all(|task| task.guessed);
            let running: usize = self.tasks.iter().map(|task| task.running).sum();
            let free = idle && running < GUESSED_AT_ONCE;
            free.then(|| self.tasks.iter().position(Task::has_more)).flatten()
        };
        let at = asked.or_else(guessed)?;
        let task = &mut self.tasks[at];
        // What would be left of less than half a part goes along.
        let left = task.job.loan.len();
        let len = if task.job.whole || left < PART + PART / 2 { left } else { PART };
        let loan = task.job.loan.split_off_front(len);
        let from = task.given;
        task.given += len;
        task.running += 1;
        Some(Piece { number: task.number, layer: task.job.layer, expert: task.job.expert, from, loan })
    }

    /// Notes how the read of a part ended.
    fn put_back(&mut self, piece: Piece, result: std::thread::Result<Result<()>>) {
        let Some(task) = self.tasks.iter_mut().find(|task| task.number == piece.number) else { return };
        task.running -= 1;
        if matches!(result, Ok(Ok(()))) {
            task.read += piece.loan.len();
        } else if matches!(task.result, Ok(Ok(()))) {
            task.result = result;
        }
        task.job.loan.join(piece.loan);
        self.end_tasks();
    }

    /// Hands out the tasks that are over.
    fn end_tasks(&mut self) {
        while let Some(at) = self.tasks.iter().position(Task::is_over) {
            let Task { job, result, read, called_off, .. } = self.tasks.remove(at);
            // Called off too late.
            let called_off = called_off && !job.loan.is_empty();
            self.ended.push_back(Done { job, result, bytes: read, called_off });
        }
        if self.tasks.is_empty()
            && let Some(since) = self.since.take()
        {
            self.busy += since.elapsed();
        }
    }
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
            let Some(mut piece) = state.next_piece() else {
                state = self.given.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let result = catch_unwind(AssertUnwindSafe(|| {
                self.reader.read(piece.layer, piece.expert, piece.from, piece.loan.bytes())
            }));
            state = self.state();
            let before = state.ended.len();
            state.put_back(piece, result);
            if state.ended.len() > before {
                self.ended.notify_one();
                if state.tasks.iter().all(|task| task.guessed) && !state.tasks.is_empty() {
                    self.given.notify_all(); // guesses may run now
                }
            }
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
        self.give(job, false);
    }

    /// Gives a job that nobody has asked for yet; it runs while there is no other.
    pub fn submit_ahead(&mut self, job: Job) {
        self.give(job, true);
    }

    fn give(&mut self, job: Job, guessed: bool) {
        let mut state = self.shared.state();
        let number = state.numbers;
        state.numbers += 1;
        let parts = if job.whole { 1 } else { job.loan.len().div_ceil(PART) };
        state.tasks.push(Task {
            job,
            number,
            guessed,
            called_off: false,
            given: 0,
            read: 0,
            running: 0,
            result: Ok(Ok(())),
        });
        if state.since.is_none() {
            state.since = Some(Instant::now());
        }
        drop(state);
        self.out += 1;
        for _ in 0..parts.min(self.threads.len()) {
            self.shared.given.notify_one();
        }
    }

    /// Somebody asks for what was guessed: it runs as the others from now on. False if no such job is out.
    pub fn confirm(&mut self, place: Place) -> bool {
        let mut state = self.shared.state();
        let Some(task) = state.tasks.iter_mut().find(|task| task.job.place == place) else { return false };
        task.guessed = false;
        drop(state);
        self.shared.given.notify_all();
        true
    }

    /// Calls off what was guessed and not confirmed, all of it or what `which` says of layer and expert; what is under way
    /// ends by itself.
    pub fn call_off(&mut self, which: impl Fn(usize, usize) -> bool) {
        let mut state = self.shared.state();
        for task in &mut state.tasks {
            task.called_off |= task.guessed && which(task.job.layer, task.job.expert);
        }
        state.end_tasks();
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
        fn read(&self, _layer: usize, expert: usize, _from: usize, into: &mut [u8]) -> Result<()> {
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
        let (place, loan) = (Place::Slot(expert), pool.lend(0, expert).unwrap());
        Job { layer: 0, expert, place, whole: false, loan }
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
        while let Some(Done { job, result, .. }) = readers.wait() {
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

    /// Says which part is read and waits for the word to end it.
    struct Gate {
        begun: std::sync::mpsc::Sender<(usize, usize, usize)>,
        go: Mutex<std::sync::mpsc::Receiver<()>>,
    }

    impl Reader for Gate {
        fn read(&self, _layer: usize, expert: usize, from: usize, into: &mut [u8]) -> Result<()> {
            self.begun.send((expert, from, into.len())).unwrap();
            self.go.lock().unwrap().recv().unwrap();
            into.fill(expert as u8 + 1);
            Ok(())
        }
    }

    type Ends =
        (Readers, SlotPool, std::sync::mpsc::Receiver<(usize, usize, usize)>, std::sync::mpsc::Sender<()>);

    fn gated(parts: usize) -> Ends {
        let ((begun, seen), (say, go)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        let readers = Readers::new(Box::new(Gate { begun, go: Mutex::new(go) }), 1).unwrap();
        (readers, SlotPool::new(1, 4, parts * PART).unwrap(), seen, say)
    }

    #[test]
    fn blobs_are_read_part_by_part() {
        let (mut readers, mut pool, seen, say) = gated(3);
        readers.submit(job(&mut pool, 2));
        for part in 0..3 {
            assert_eq!(seen.recv().unwrap(), (2, part * PART, PART));
            say.send(()).unwrap();
        }
        let done = readers.wait().unwrap();
        assert_eq!((done.bytes, done.called_off), (3 * PART, false));
        pool.take_back(done.job.loan);
        assert!(pool.get(0, 2).unwrap().iter().all(|&byte| byte == 3));
        readers.submit(Job { whole: true, ..job(&mut pool, 1) });
        assert_eq!(seen.recv().unwrap(), (1, 0, 3 * PART));
        say.send(()).unwrap();
        assert_eq!(readers.wait().unwrap().bytes, 3 * PART);
        // What would be a small rest is no part of its own.
        let mut pool = SlotPool::new(1, 4, PART + 4096).unwrap();
        readers.submit(job(&mut pool, 0));
        assert_eq!(seen.recv().unwrap(), (0, 0, PART + 4096));
        say.send(()).unwrap();
        assert!(readers.wait().unwrap().result.is_ok());
    }

    #[test]
    fn guesses_run_while_nothing_is_asked_for() {
        let (mut readers, mut pool, seen, say) = gated(2);
        let next = || {
            let part = seen.recv().unwrap();
            say.send(()).unwrap();
            (part.0, part.1 / PART)
        };
        readers.submit_ahead(job(&mut pool, 0));
        readers.submit_ahead(job(&mut pool, 1));
        let first = seen.recv().unwrap();
        readers.submit(job(&mut pool, 2)); // while the first part of a guess is under way
        say.send(()).unwrap();
        assert_eq!((first.0, next(), next()), (0, (2, 0), (2, 1)));
        assert_eq!(readers.wait().unwrap().job.expert, 2);
        // Confirmed, the second guess goes before the first.
        let under_way = seen.recv().unwrap();
        assert_eq!(under_way.0, 0, "a guess again");
        assert!(readers.confirm(Place::Slot(1)) && !readers.confirm(Place::Slot(3)));
        say.send(()).unwrap();
        assert_eq!(readers.wait().unwrap().job.expert, 0);
        assert_eq!([next(), next()], [(1, 0), (1, 1)]);
        assert_eq!(readers.wait().unwrap().job.expert, 1);
    }

    #[test]
    fn guesses_are_called_off() {
        let (mut readers, mut pool, seen, say) = gated(2);
        readers.submit_ahead(job(&mut pool, 0));
        readers.submit_ahead(job(&mut pool, 1));
        assert_eq!(seen.recv().unwrap().0, 0);
        readers.call_off(|_, expert| expert == 1);
        let done = readers.wait().unwrap();
        assert_eq!((done.job.expert, done.bytes, done.called_off), (1, 0, true), "it had not begun");
        pool.take_back(done.job.loan);
        assert!(pool.lend(0, 1).is_some(), "its slot is free at once");
        readers.call_off(|_, _| true);
        say.send(()).unwrap();
        let done = readers.wait().unwrap();
        assert_eq!((done.job.expert, done.bytes, done.called_off), (0, PART, true));
        pool.take_back(done.job.loan);
        assert!(pool.lend(0, 0).is_some() && readers.wait().is_none());
    }
}
