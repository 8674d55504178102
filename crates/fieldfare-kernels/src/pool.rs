#![allow(unsafe_code)] // hands one borrowed closure, and disjoint parts of one slice, to other threads

//! A spin-then-park pool for regions of microseconds, on cores that others may want too.
//!
//! A region is a number of *parts*, each computed once by whichever thread comes to it. Every thread has a section
//! of them, neighbours in order, takes those first and then helps the others out. The caller takes
//! part in the work and needs nobody: a worker that sleeps, or that the system keeps from its core, finds the gate
//! closed when it comes and is not waited for. Only a worker that is in the middle of a part is, and if such waits
//! grow long, because another program wants its core, the caller works alone for a while ([`Alone`]).
//!
//! Between regions workers spin for a bounded time and then park: an idle pool costs nothing. A panic in any part is
//! carried to the caller after the region has ended. A region started inside a region runs its parts one after the
//! other on the thread that asked, so nesting cannot deadlock.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long a worker without work, or a caller that waits for workers, spins before it parks: longer than the serial
/// steps between two regions of a decoding step, far shorter than anything a person would call busy.
const SPIN: Duration = Duration::from_micros(50);

/// The part of [`SPIN`] after which a spinning thread lets others go first.
const YIELD_AFTER: u32 = 8;

/// Parts of a region for each thread, where the work can be cut so finely: enough for a thread that was held up to
/// be helped out, few enough for the parts to be long runs of memory.
const PARTS: usize = 4;

thread_local! {
    /// True while this thread runs a part of some pool's region.
    static IN_REGION: Cell<bool> = const { Cell::new(false) };
}

/// A borrowed closure without its type and lifetime; valid while the gate is open or a worker is inside.
#[derive(Clone, Copy)]
struct Job {
    call: unsafe fn(*const (), usize),
    data: *const (),
}

#[repr(align(128))] // two cache lines: neighbours are fetched in pairs
struct Padded<T>(T);

/// The gate's word: number of the newest region, whether it may be entered, and how many workers are inside.
/// They are one word so that entering is one step: whoever counts himself in found that very region open.
mod gate {
    pub(super) const INSIDE: u64 = 0xFFFF;
    pub(super) const OPEN: u64 = 1 << 16;
    pub(super) const REGION: u64 = 1 << 32;

    /// Number of the region.
    pub(super) fn region(word: u64) -> u64 {
        word / REGION
    }
}

/// Parts that nobody has taken, as `end << 32 | first`.
struct Section(AtomicU64);

impl Section {
    fn set(&self, parts: Range<usize>) {
        self.0.store((parts.end as u64) << 32 | parts.start as u64, Ordering::Relaxed);
    }

    /// Takes the first part. (Helpers too: the last one would be a jump for a caller that has to do everything,
    /// which cost it 6 %.) Relaxed is enough: what the parts read and write is ordered by the gate, and a
    /// compare-exchange gives each part to one thread in any ordering.
    fn take(&self) -> Option<usize> {
        let next = |word: u64| (word & 0xFFFF_FFFF < word >> 32).then_some(word + 1);
        let word = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        Some((word & 0xFFFF_FFFF) as usize)
    }
}

struct Shared {
    gate: Padded<AtomicU64>,
    job: UnsafeCell<Job>,
    /// One for each worker, the caller's first.
    sections: Vec<Padded<Section>>,
    stop: AtomicBool,
    /// One flag for each spawned worker: it is parked or about to park.
    parked: Vec<Padded<AtomicBool>>,
    caller_parked: AtomicBool,
    caller: Mutex<Option<Thread>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    spin: Duration,
}

// SAFETY: `job` is written only by the caller that holds the region lock, while the gate is closed and nobody inside;
// workers read it only inside, which orders the read after the write (release of the opening, acquire of the
// entering) and before the next write (release of the leaving, acquire of the caller's wait). Its pointer is to a
// `Sync` closure that outlives the region. All other fields are Sync by themselves.
unsafe impl Sync for Shared {}
// SAFETY: see `Sync`; nothing belongs to a thread.
unsafe impl Send for Shared {}

/// Worker threads for short parallel regions.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held for the length of a region: several threads may share a pool and take turns.
    region: Mutex<Alone>,
}

impl Pool {
    /// A pool of `threads` workers, the caller included: `threads - 1` are spawned. 0 counts as 1. If the system
    /// refuses a thread the pool is as large as it could become; ask [`Pool::threads`].
    pub fn new(threads: usize) -> Pool {
        let spawned = (threads.max(1) - 1).min(gate::INSIDE as usize);
        // More workers than cores: spinning would take time from those that work.
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let spin = if spawned < cores { SPIN } else { Duration::ZERO };
        let shared = Arc::new(Shared {
            gate: Padded(AtomicU64::new(0)),
            job: UnsafeCell::new(Job { call: nothing, data: std::ptr::null() }),
            sections: (0..=spawned).map(|_| Padded(Section(AtomicU64::new(0)))).collect(),
            stop: AtomicBool::new(false),
            parked: (0..spawned).map(|_| Padded(AtomicBool::new(false))).collect(),
            caller_parked: AtomicBool::new(false),
            caller: Mutex::new(None),
            panic: Mutex::new(None),
            spin,
        });
        let mut workers = Vec::with_capacity(spawned);
        for index in 0..spawned {
            let theirs = Arc::clone(&shared);
            let name = format!("fieldfare-{}", index + 1);
            match thread::Builder::new().name(name).spawn(move || theirs.work(index)) {
                Ok(handle) => workers.push(handle),
                Err(_) => break,
            }
        }
        Pool { shared, workers, region: Mutex::new(Alone::default()) }
    }

    /// Number of workers, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `f(index)` for every index in `0..threads()`, at the same time as far as workers are there, and returns
    /// when all have returned. An index is not a thread: the caller takes those whose workers do not come.
    ///
    /// # Panics
    /// With the panic of a call, once all have ended.
    pub fn run<F: Fn(usize) + Sync>(&self, f: F) {
        self.run_parts(self.threads(), |_, index| f(index));
    }

    /// Calls `f(worker, part)` for every part in `0..parts`, each once, and returns when all have returned. Calls
    /// at the same time have different `worker`, which is below [`Pool::threads`] (for scratch of one's own). Which
    /// worker gets which part depends on the moment: neighbouring parts go to one worker as a rule, in rising order.
    /// Inside a region the calls run one after the other.
    ///
    /// # Panics
    /// With the panic of a call, once all have ended; or if `parts` is 2^32 or more.
    pub fn run_parts<F: Fn(usize, usize) + Sync>(&self, parts: usize, f: F) {
        assert!(u32::try_from(parts).is_ok(), "{parts} parts of one region");
        if self.workers.is_empty() || parts <= 1 || IN_REGION.get() {
            return (0..parts).for_each(|part| f(0, part));
        }
        let mut alone = lock(&self.region);
        let start = Instant::now();
        if alone.still(start) {
            // All parts, whatever becomes of one, as with the others' help.
            let panics: Vec<_> = (0..parts).filter_map(|part| in_region(|| f(0, part)).err()).collect();
            drop(alone);
            return panics.into_iter().next().map_or((), |panic| resume_unwind(panic));
        }
        let shared = &*self.shared;
        for (worker, section) in shared.sections.iter().enumerate().take(self.threads()) {
            section.0.set(split(parts, self.threads(), worker, 1));
        }
        let work = |worker: usize| shared.take_parts(self.threads(), worker, |part| f(worker, part));
        // SAFETY: the region lock is held, the gate closed and nobody inside, so nobody reads `job`.
        unsafe { *shared.job.get() = job_of(&work) };
        self.open();
        work(0);
        let waiting = Instant::now();
        self.close();
        alone.waited(start, waiting, Instant::now());
        let panic = lock(&shared.panic).take();
        drop(alone);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Cuts `0..total` into ranges whose starts are multiples of `align` and calls `f(worker, range)` for each, as
    /// [`Pool::run_parts`] does: several ranges for each thread, or just one for a pool of one.
    ///
    /// # Panics
    /// If `align` is 0, or with a panic of `f`.
    pub fn for_ranges(&self, total: usize, align: usize, f: impl Fn(usize, Range<usize>) + Sync) {
        assert!(align > 0, "ranges of no elements");
        let most = if self.workers.is_empty() { 1 } else { self.threads() * PARTS };
        let parts = total.div_ceil(align).min(most);
        self.run_parts(parts, |worker, part| f(worker, split(total, parts, part, align)));
    }

    /// Cuts `data` into chunks of `chunk` elements (the last may be shorter) and calls `f(index, chunk)` for each.
    ///
    /// # Panics
    /// If `chunk` is 0, or with a panic of `f`.
    pub fn for_chunks<T: Send>(&self, data: &mut [T], chunk: usize, f: impl Fn(usize, &mut [T]) + Sync) {
        let mut none = vec![(); self.threads()];
        self.for_chunks_with(data, chunk, &mut none, |(), index, part| f(index, part));
    }

    /// As [`Pool::for_chunks`], with one piece of scratch for each worker: `f(scratch, index, chunk)`.
    ///
    /// # Panics
    /// If `chunk` is 0 or `scratch` has fewer than [`Pool::threads`] elements, or with a panic of `f`.
    pub fn for_chunks_with<T: Send, S: Send>(
        &self,
        data: &mut [T],
        chunk: usize,
        scratch: &mut [S],
        f: impl Fn(&mut S, usize, &mut [T]) + Sync,
    ) {
        assert!(chunk > 0, "chunks of no elements");
        assert!(
            scratch.len() >= self.threads(),
            "{} pieces of scratch for {} workers",
            scratch.len(),
            self.threads()
        );
        let (len, chunks) = (data.len(), data.len().div_ceil(chunk));
        let (data, scratch) = (Parts(data.as_mut_ptr()), Parts(scratch.as_mut_ptr()));
        self.for_ranges(chunks, 1, |worker, mine| {
            // SAFETY: `scratch` has an element for each worker, and calls at the same time have different workers.
            let scratch = unsafe { &mut *scratch.at(worker) };
            for index in mine {
                let start = index * chunk;
                // SAFETY: start..start + n is inside `data`, and each chunk is in one range.
                let part = unsafe { std::slice::from_raw_parts_mut(data.at(start), chunk.min(len - start)) };
                f(scratch, index, part);
            }
        });
    }

    /// Opens the gate for the next region.
    fn open(&self) {
        // Only callers that hold the region lock open and close, and nobody is inside.
        let closed = self.shared.gate.0.load(Ordering::Relaxed);
        self.signal(closed.wrapping_add(gate::REGION) | gate::OPEN);
    }

    /// A new region's word to all workers.
    fn signal(&self, word: u64) {
        // SeqCst here and in `work`: either the worker sees the new region before it parks, or we see its flag. A swap, as at the
        // flags: x86 does the same for both, and emulators of Arm let the load pass a plain store (0028).
        self.shared.gate.0.swap(word, Ordering::SeqCst);
        for (flag, worker) in self.shared.parked.iter().zip(&self.workers) {
            if flag.0.load(Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
    }

    /// Closes the gate and waits for those inside.
    fn close(&self) {
        let shared = &*self.shared;
        shared.gate.0.fetch_and(!gate::OPEN, Ordering::SeqCst);
        let empty = |order| shared.gate.0.load(order) & gate::INSIDE == 0;
        if spin(shared.spin, || empty(Ordering::Acquire)) {
            return;
        }
        *lock(&shared.caller) = Some(thread::current());
        shared.caller_parked.swap(true, Ordering::SeqCst);
        while !empty(Ordering::SeqCst) {
            thread::park();
        }
        shared.caller_parked.store(false, Ordering::Relaxed);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.signal(self.shared.gate.0.load(Ordering::Relaxed).wrapping_add(gate::REGION));
        for worker in self.workers.drain(..) {
            // The panics of parts are caught, so a worker has none of its own to report.
            let _ = worker.join();
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish()
    }
}

impl Shared {
    /// The life of spawned worker `index`, which is worker `index + 1` of the regions.
    fn work(&self, index: usize) {
        let mut seen = 0;
        loop {
            let news = |order| gate::region(self.gate.0.load(order)) != seen;
            if !spin(self.spin, || news(Ordering::Acquire)) {
                self.parked[index].0.swap(true, Ordering::SeqCst);
                while !news(Ordering::SeqCst) {
                    thread::park();
                }
                self.parked[index].0.store(false, Ordering::Relaxed);
            }
            let enter = |word| (word & gate::OPEN != 0).then_some(word + 1);
            match self.gate.0.fetch_update(Ordering::Acquire, Ordering::Acquire, enter) {
                Ok(word) => {
                    seen = gate::region(word);
                    // SAFETY: we are inside, which orders this read after the write of the job, and the caller
                    // writes no other before we have left.
                    let job = unsafe { *self.job.get() };
                    // SAFETY: the closure behind `data` lives until the caller has found the gate closed and
                    // everybody outside.
                    unsafe { (job.call)(job.data, index + 1) };
                    self.leave();
                }
                // Too late for this one. It may be the pool's end, so the flag is looked at here, behind the word that
                // is taken for seen: a look before it could miss an end that comes in between, and nobody would wake us.
                Err(word) => {
                    seen = gate::region(word);
                    if self.stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            }
        }
    }

    /// Counts a worker out and wakes a caller that waits for the last one.
    fn leave(&self) {
        let word = self.gate.0.fetch_sub(1, Ordering::SeqCst);
        if word & gate::INSIDE == 1
            && self.caller_parked.load(Ordering::SeqCst)
            && let Some(caller) = lock(&self.caller).as_ref()
        {
            caller.unpark();
        }
    }

    /// Takes parts until none are left: those of one's own section, then those of the others.
    fn take_parts(&self, threads: usize, worker: usize, f: impl Fn(usize)) {
        for turn in 0..threads {
            let section = &self.sections[(worker + turn) % threads].0;
            while let Some(part) = section.take() {
                if let Err(panic) = in_region(|| f(part)) {
                    let mut first = lock(&self.panic);
                    match &*first {
                        None => *first = Some(panic),
                        // Dropping it could panic in its turn, and this frame must not unwind.
                        Some(_) => std::mem::forget(panic),
                    }
                }
            }
        }
    }
}

/// When the caller works without the others: a worker that the system keeps from its core in the middle of a part
/// holds the whole region up for a time slice of another program, some milliseconds. Every such wait is followed
/// by time alone, twice as long relative to the wait if it comes soon after the last, up to [`Alone::MOST`] times:
/// a lone hiccup costs little, and with a core that is busy for good at most one part in MOST is lost to waits.
#[derive(Debug, Default)]
struct Alone {
    until: Option<Instant>,
    times: u32,
}

impl Alone {
    /// Shorter waits are nobody's fault.
    const LONG: Duration = Duration::from_micros(400);
    const MOST: u32 = 64;

    fn still(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// The caller began a region at `start`, had no more to do at `waiting` and has waited until `now`.
    fn waited(&mut self, start: Instant, waiting: Instant, now: Instant) {
        let (work, wait) = (waiting - start, now - waiting);
        // A wait of the order of the work is the length of the last part.
        if wait < Self::LONG || wait < work * 2 {
            return;
        }
        let soon = self.until.is_some_and(|until| now - until < wait * 16);
        self.times = if soon { (self.times * 2).min(Self::MOST) } else { 2 };
        self.until = Some(now + wait * self.times);
    }
}

/// The part of `0..total` for part `index` of `parts`: contiguous, in order, together all of it; every start is a
/// multiple of `align` and sizes differ by at most one `align`. Empty for parts too many.
///
/// # Panics
/// If `parts` or `align` is 0 or `index` is not below `parts`.
pub fn split(total: usize, parts: usize, index: usize, align: usize) -> Range<usize> {
    assert!(align > 0 && index < parts, "part {index} of {parts} at alignment {align}");
    let units = total.div_ceil(align);
    let (each, more) = (units / parts, units % parts);
    let start = index * each + index.min(more);
    let end = start + each + usize::from(index < more);
    (start * align).min(total)..(end * align).min(total)
}

/// First element of a slice whose disjoint parts go to different threads.
struct Parts<T>(*mut T);

impl<T> Parts<T> {
    /// # Safety
    /// `index` is inside the slice (or its end).
    unsafe fn at(&self, index: usize) -> *mut T {
        // SAFETY: by the caller.
        unsafe { self.0.add(index) }
    }
}

// SAFETY: only used to make one `&mut` of each part, on one thread; `T: Send` is required by the users.
unsafe impl<T: Send> Sync for Parts<T> {}

/// `f` without its type.
fn job_of<F: Fn(usize) + Sync>(f: &F) -> Job {
    /// # Safety
    /// `data` points to a live `F`.
    unsafe fn call<F: Fn(usize) + Sync>(data: *const (), worker: usize) {
        // SAFETY: by the caller.
        let f = unsafe { &*data.cast::<F>() };
        f(worker);
    }
    Job { call: call::<F>, data: std::ptr::from_ref(f).cast() }
}

/// The job before the first region.
fn nothing(_: *const (), _: usize) {}

fn in_region(f: impl FnOnce()) -> thread::Result<()> {
    IN_REGION.set(true);
    // Nothing of ours is left half-changed by a panic of `f`; the caller gets it back and decides about its own.
    let result = catch_unwind(AssertUnwindSafe(f));
    IN_REGION.set(false);
    result
}

/// Spins until `done`, at most for `limit`; false if it was not. Whoever else wants this core gets it after a while,
/// and at once if that is the thread that `done` is about: without the yielding, a worker that the system had put on
/// the caller's core kept the caller from the very step that it waited for (measured: half the speed of one thread).
fn spin(limit: Duration, done: impl Fn() -> bool) -> bool {
    if done() {
        return true;
    }
    if limit.is_zero() {
        return false;
    }
    let start = Instant::now();
    loop {
        for _ in 0..32 {
            std::hint::spin_loop();
            if done() {
                return true;
            }
        }
        let elapsed = start.elapsed();
        if elapsed >= limit {
            return false;
        }
        if elapsed >= limit / YIELD_AFTER {
            thread::yield_now();
        }
    }
}

/// No code of ours panics while it holds one of these locks for data; a poisoned one is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
