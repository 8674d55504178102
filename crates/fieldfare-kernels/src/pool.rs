#![allow(unsafe_code)] // hands one borrowed closure, and disjoint parts of one slice, to other threads

//! A spin-then-park pool for regions of microseconds.
//!
//! [`Pool::run`] calls one closure once for each worker and returns when all are done; the caller is worker 0, so a
//! pool of 1 has no threads at all. Between regions workers spin for a bounded time and then park: an idle pool
//! costs nothing. A panic in any worker is carried to the caller after the region has ended. A region started
//! inside a region runs its parts one after the other on the thread that asked, so nesting cannot deadlock.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long a worker without work, or a caller that waits for workers, spins before it parks: longer than the serial
/// steps between two regions of a decoding step, far shorter than anything a person would call busy.
const SPIN: Duration = Duration::from_micros(50);

thread_local! {
    /// True while this thread runs a part of some pool's region.
    static IN_REGION: Cell<bool> = const { Cell::new(false) };
}

/// A borrowed closure without its type and lifetime; valid while the region that published it has not ended.
#[derive(Clone, Copy)]
struct Job {
    call: unsafe fn(*const (), usize),
    data: *const (),
}

#[repr(align(128))] // two cache lines: neighbours are fetched in pairs
struct Padded<T>(T);

struct Shared {
    /// Number of the newest region; a change is the signal to work.
    epoch: Padded<AtomicUsize>,
    /// Workers (without the caller) that have not finished the newest region.
    remaining: Padded<AtomicUsize>,
    job: UnsafeCell<Job>,
    stop: AtomicBool,
    /// One flag for each spawned worker: it is parked or about to park.
    parked: Vec<Padded<AtomicBool>>,
    caller_parked: AtomicBool,
    caller: Mutex<Option<Thread>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    spin: Duration,
}

// SAFETY: `job` is written only by the caller that holds the region lock while no worker is in a region
// (`remaining` is 0), and read by workers only after they have seen the new epoch (release/acquire). Its pointer is
// to a `Sync` closure that outlives the region. All other fields are Sync by themselves.
unsafe impl Sync for Shared {}
// SAFETY: see `Sync`; nothing belongs to a thread.
unsafe impl Send for Shared {}

/// Worker threads for short parallel regions.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held for the length of a region: several threads may share a pool and take turns.
    region: Mutex<()>,
}

impl Pool {
    /// A pool of `threads` workers, the caller included: `threads - 1` are spawned. 0 counts as 1. If the system
    /// refuses a thread the pool is as large as it could become; ask [`Pool::threads`].
    pub fn new(threads: usize) -> Pool {
        let spawned = threads.max(1) - 1;
        // More workers than cores: spinning would take time from those that work.
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let spin = if spawned < cores { SPIN } else { Duration::ZERO };
        let shared = Arc::new(Shared {
            epoch: Padded(AtomicUsize::new(0)),
            remaining: Padded(AtomicUsize::new(0)),
            job: UnsafeCell::new(Job { call: nothing, data: std::ptr::null() }),
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
        Pool { shared, workers, region: Mutex::new(()) }
    }

    /// Number of workers, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `f(worker)` for every worker in `0..threads()`, worker 0 on the calling thread, and returns when all
    /// have returned. Inside a region the calls run one after the other.
    ///
    /// # Panics
    /// With the panic of a worker, once all have ended.
    pub fn run<F: Fn(usize) + Sync>(&self, f: F) {
        if self.workers.is_empty() {
            return f(0);
        }
        if IN_REGION.get() {
            return (0..self.threads()).for_each(f);
        }
        let _turn = lock(&self.region);
        let shared = &*self.shared;
        // SAFETY: the region lock is held and the last region's workers are all done, so nobody reads `job`.
        unsafe { *shared.job.get() = Job { call: call::<F>, data: (&raw const f).cast() } };
        shared.remaining.0.store(self.workers.len(), Ordering::Relaxed);
        self.signal();

        let mine = in_region(|| f(0));
        self.wait();
        let theirs = lock(&shared.panic).take();
        drop(_turn);
        if let Some(panic) = mine.err().or(theirs) {
            resume_unwind(panic);
        }
    }

    /// Cuts `data` into chunks of `chunk` elements (the last may be shorter) and calls `f(index, chunk)` for each,
    /// every worker taking a contiguous part of them.
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
        self.run(|worker| {
            let mine = split(chunks, self.threads(), worker, 1);
            if mine.is_empty() {
                return;
            }
            // SAFETY: `scratch` has an element for each worker and `run` gives each index to one call only.
            let scratch = unsafe { &mut *scratch.at(worker) };
            for index in mine {
                let start = index * chunk;
                // SAFETY: start..start + n is inside `data`, and `split` gives each chunk to one worker.
                let part = unsafe { std::slice::from_raw_parts_mut(data.at(start), chunk.min(len - start)) };
                f(scratch, index, part);
            }
        });
    }

    fn signal(&self) {
        // SeqCst here and in `work`: either the worker sees the new epoch before it parks, or we see its flag.
        self.shared.epoch.0.fetch_add(1, Ordering::SeqCst);
        for (flag, worker) in self.shared.parked.iter().zip(&self.workers) {
            if flag.0.load(Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
    }

    fn wait(&self) {
        let shared = &*self.shared;
        let done = || shared.remaining.0.load(Ordering::Acquire) == 0;
        if spin(shared.spin, done) {
            return;
        }
        *lock(&shared.caller) = Some(thread::current());
        shared.caller_parked.store(true, Ordering::SeqCst);
        while shared.remaining.0.load(Ordering::SeqCst) != 0 {
            thread::park();
        }
        shared.caller_parked.store(false, Ordering::Relaxed);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.signal();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its parts, so it has none of its own to report.
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
            if !spin(self.spin, || self.epoch.0.load(Ordering::Acquire) != seen) {
                self.parked[index].0.store(true, Ordering::SeqCst);
                while self.epoch.0.load(Ordering::SeqCst) == seen {
                    thread::park();
                }
                self.parked[index].0.store(false, Ordering::Relaxed);
            }
            // Regions do not overlap, so the epoch moved by exactly one.
            seen = seen.wrapping_add(1);
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            // SAFETY: the epoch's acquire load orders this read after the write of the job, and the caller does
            // not write it again before `remaining` has come to 0.
            let job = unsafe { *self.job.get() };
            // SAFETY: the closure behind `data` lives until the region ends, which waits for this worker.
            let result = in_region(|| unsafe { (job.call)(job.data, index + 1) });
            if let Err(panic) = result {
                lock(&self.panic).get_or_insert(panic);
            }
            if self.remaining.0.fetch_sub(1, Ordering::SeqCst) == 1
                && self.caller_parked.load(Ordering::SeqCst)
                && let Some(caller) = lock(&self.caller).as_ref()
            {
                caller.unpark();
            }
        }
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

/// # Safety
/// `data` points to a live `F`.
unsafe fn call<F: Fn(usize) + Sync>(data: *const (), worker: usize) {
    // SAFETY: by the caller.
    let f = unsafe { &*data.cast::<F>() };
    f(worker);
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

/// Spins until `done`, at most for `limit`; false if it was not.
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
        if start.elapsed() >= limit {
            return false;
        }
    }
}

/// No code of ours panics while it holds one of these locks for data; a poisoned one is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
