//! Several requests in flight: workers that fetch runs of the source into memory, and the order in which units come out.
//!
//! Memory is bounded by what is admitted: a unit is asked for only when it fits beside those that are being fetched or
//! written. A broken request continues at the next missing byte.

use std::collections::{HashMap, VecDeque};
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::hub::{Hub, shown};
use super::plan::{FetchPlan, Piece};
use super::retry::{Fault, Patience};
use crate::sys::buffer::Buffer;
use crate::{Error, Result};

/// Source bytes in memory at a time, unless one unit has more.
pub(crate) const BUDGET: u64 = 82 << 20;
/// Good requests after which one more is allowed at a time again.
const RECOVER: usize = 16;
/// Most bytes of one read.
const STEP: usize = 256 << 10;
/// How often the caller hears of progress and can stop the work.
const TICK: Duration = Duration::from_millis(100);

/// What workers and their master share.
struct Shared {
    hub: Arc<Hub>,
    patience: Patience,
    queue: Mutex<VecDeque<Job>>,
    wake: Condvar,
    stop: AtomicBool,
    /// Bytes received.
    received: AtomicU64,
    /// Requests that may be in flight; fewer after a server said that there are too many.
    allowed: AtomicUsize,
    busy: AtomicUsize,
    /// Requests that went well since the number was last changed.
    good: AtomicUsize,
    most: usize,
}

impl Shared {
    /// Heeds what happens to a request; true if it is to stop.
    fn event(&self, event: &Event) -> bool {
        match event {
            Event::Bytes(n) => {
                self.received.fetch_add(*n, Ordering::Relaxed);
            }
            Event::Waiting => {}
            Event::TooMany => {
                let now = self.allowed.load(Ordering::Relaxed);
                self.allowed.store((now / 2).max(1), Ordering::Relaxed);
                self.good.store(0, Ordering::Relaxed);
            }
        }
        self.stop.load(Ordering::Relaxed)
    }

    /// A request went well.
    fn went_well(&self) {
        if self.good.fetch_add(1, Ordering::Relaxed) + 1 >= RECOVER {
            self.good.store(0, Ordering::Relaxed);
            let now = self.allowed.load(Ordering::Relaxed);
            self.allowed.store((now + 1).min(self.most), Ordering::Relaxed);
        }
    }
}

struct Job {
    unit: usize,
    slot: usize,
    request: Piece,
}

/// The bytes of a unit.
pub(crate) struct Fetched {
    requests: Vec<Piece>,
    buffers: Vec<Option<Buffer>>,
}

impl Fetched {
    /// The bytes of one of the unit's pieces.
    pub(crate) fn get(&self, piece: &Piece) -> Result<&[u8]> {
        let at = self.requests.partition_point(|r| (r.file, r.offset) <= (piece.file, piece.offset));
        let found = at.checked_sub(1).and_then(|i| {
            let start = usize::try_from(piece.offset - self.requests[i].offset).ok()?;
            self.buffers[i].as_deref()?.get(start..start.checked_add(usize::try_from(piece.len).ok()?)?)
        });
        found.ok_or_else(|| Error::Unsupported("a piece that was not fetched".into()))
    }
}

struct Pending {
    requests: Vec<Piece>,
    buffers: Vec<Option<Buffer>>,
    left: usize,
}

type Done = (usize, usize, Result<Buffer>);

/// Fetches the units of a plan, in order.
pub(crate) struct Transfer {
    shared: Arc<Shared>,
    done: Receiver<Done>,
    pending: HashMap<usize, Pending>,
    /// The next unit to ask for, and the next to hand out.
    admitted: usize,
    next: usize,
    in_memory: u64,
    memory: u64,
    /// Source bytes of the unit last handed out.
    out: u64,
}

impl Transfer {
    /// Starts `connections` workers for the units from `first` on; `memory` bounds the bytes held.
    pub(crate) fn start(
        hub: Arc<Hub>,
        patience: Patience,
        connections: usize,
        memory: u64,
        first: usize,
    ) -> Result<Self> {
        let (send, done) = mpsc::channel();
        let shared = Arc::new(Shared {
            hub,
            patience,
            queue: Mutex::default(),
            wake: Condvar::new(),
            stop: AtomicBool::new(false),
            received: AtomicU64::new(0),
            allowed: AtomicUsize::new(connections),
            busy: AtomicUsize::new(0),
            good: AtomicUsize::new(0),
            most: connections,
        });
        for number in 0..connections {
            let (shared, send) = (shared.clone(), send.clone());
            let seed = u32::try_from(number).unwrap_or(0);
            // Not joined: one that waits for a dead connection must not keep the caller from leaving.
            std::thread::Builder::new()
                .name(format!("fetch {number}"))
                .spawn(move || work(&shared, &send, seed))
                .map_err(Error::io("start a thread for", "the transfer"))?;
        }
        Ok(Self {
            shared,
            done,
            pending: HashMap::new(),
            admitted: first,
            next: first,
            in_memory: 0,
            memory,
            out: 0,
        })
    }

    /// Bytes received so far.
    pub(crate) fn received(&self) -> u64 {
        self.shared.received.load(Ordering::Relaxed)
    }

    /// The bytes of the next unit. Those handed out before are gone by now. `tick` is called several times a second and may
    /// stop the work.
    pub(crate) fn next(
        &mut self,
        plan: &FetchPlan,
        tick: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Fetched> {
        self.in_memory -= std::mem::take(&mut self.out);
        self.admit(plan);
        loop {
            tick(self.received())?;
            if self.pending.get(&self.next).is_some_and(|unit| unit.left == 0)
                && let Some(unit) = self.pending.remove(&self.next)
            {
                self.out = unit.requests.iter().map(|r| r.len).sum();
                self.next += 1;
                return Ok(Fetched { requests: unit.requests, buffers: unit.buffers });
            }
            match self.done.recv_timeout(TICK) {
                Ok((unit, slot, bytes)) => {
                    let bytes = bytes?;
                    if let Some(unit) = self.pending.get_mut(&unit) {
                        unit.buffers[slot] = Some(bytes);
                        unit.left -= 1;
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(Error::Unsupported("the transfer's threads ended".into()));
                }
            }
        }
    }

    /// Asks for as many units as fit.
    fn admit(&mut self, plan: &FetchPlan) {
        while let Some(unit) = plan.units.get(self.admitted) {
            if self.in_memory > 0 && self.in_memory + unit.fetch > self.memory {
                break;
            }
            let requests = unit.requests();
            self.in_memory += requests.iter().map(|r| r.len).sum::<u64>();
            let mut queue = lock(&self.shared.queue);
            queue.extend(requests.iter().enumerate().map(|(slot, request)| Job {
                unit: self.admitted,
                slot,
                request: *request,
            }));
            drop(queue);
            self.shared.wake.notify_all();
            let buffers = requests.iter().map(|_| None).collect();
            self.pending.insert(self.admitted, Pending { left: requests.len(), requests, buffers });
            self.admitted += 1;
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.wake.notify_all();
    }
}

fn work(shared: &Shared, send: &Sender<Done>, seed: u32) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9) ^ std::process::id());
    loop {
        let mut queue = lock(&shared.queue);
        let job = loop {
            if shared.stop.load(Ordering::Relaxed) {
                return;
            }
            if shared.busy.load(Ordering::Relaxed) < shared.allowed.load(Ordering::Relaxed)
                && let Some(job) = queue.pop_front()
            {
                shared.busy.fetch_add(1, Ordering::Relaxed);
                break job;
            }
            queue = shared.wake.wait_timeout(queue, TICK).unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(queue);
        let bytes = fetch(&shared.hub, &shared.patience, &job.request, &mut dice, &mut |e| shared.event(&e));
        if bytes.is_ok() {
            shared.went_well();
        }
        shared.busy.fetch_sub(1, Ordering::Relaxed);
        shared.wake.notify_one();
        if send.send((job.unit, job.slot, bytes)).is_err() {
            return;
        }
    }
}

/// What happens during a fetch; the listener says whether to stop.
pub(crate) enum Event {
    /// So many came.
    Bytes(u64),
    /// A server asked to be left alone for a while.
    TooMany,
    /// Nothing happens.
    Waiting,
}

/// A small generator for jitter; its quality does not matter.
pub(crate) struct Dice(pub(crate) u32);

impl Dice {
    fn roll(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0
    }
}

/// Fetches a run, with as many tries as it takes.
pub(crate) fn fetch(
    hub: &Hub,
    patience: &Patience,
    request: &Piece,
    dice: &mut Dice,
    stop: &mut dyn FnMut(Event) -> bool,
) -> Result<Buffer> {
    let len = usize::try_from(request.len)
        .map_err(|_| Error::Unsupported(format!("a request of {} bytes", request.len)))?;
    let mut bytes = Buffer::new(len).map_err(Error::io("take memory for", "a request"))?;
    let mut have = 0;
    let (mut failed, mut expired) = (0, 0);
    while have < len {
        let before = have;
        let fault = match attempt(hub, request, &mut bytes, &mut have, stop) {
            Ok(()) => break,
            Err(fault) => fault,
        };
        if have > before {
            (failed, expired) = (0, 0);
        }
        let (reason, after) = match fault {
            Fault::Fatal(error) => return Err(error),
            // A new address is asked for at once, the first times.
            Fault::Expired { .. } if expired < 3 => {
                expired += 1;
                continue;
            }
            Fault::Expired { reason } => (reason, None),
            Fault::Again { reason, after } => (reason, after),
        };
        failed += 1;
        if after.is_some() {
            stop(Event::TooMany);
        }
        let name = &hub.file(request.file).name;
        let wait = patience.wait(failed, after, dice.roll()).ok_or_else(|| {
            let tries = format!("{name}: given up after {failed} tries: {reason}");
            Error::Network { url: shown(&hub.source()), reason: tries }
        })?;
        sleep(wait, stop)?;
    }
    Ok(bytes)
}

/// Waits, and hears a wish to stop.
pub(crate) fn sleep(mut wait: Duration, stop: &mut dyn FnMut(Event) -> bool) -> Result<()> {
    while !wait.is_zero() {
        if stop(Event::Waiting) {
            return Err(Error::Cancelled);
        }
        let nap = wait.min(TICK);
        std::thread::sleep(nap);
        wait -= nap;
    }
    Ok(())
}

/// One request for what is missing. What came before a failure is kept; `have` counts it.
fn attempt(
    hub: &Hub,
    request: &Piece,
    bytes: &mut [u8],
    have: &mut usize,
    stop: &mut dyn FnMut(Event) -> bool,
) -> Result<(), Fault> {
    let first = *have;
    let mut reader = hub.open(request.file, request.offset + first as u64, request.len - first as u64)?;
    let name = || hub.file(request.file).name.clone();
    while *have < bytes.len() {
        if stop(Event::Waiting) {
            return Err(Error::Cancelled.into());
        }
        let end = bytes.len().min(*have + STEP);
        match reader.read(&mut bytes[*have..end]) {
            Ok(0) => return Err(Fault::again(format!("{}: the connection ended early", name()))),
            Ok(n) => {
                *have += n;
                stop(Event::Bytes(n as u64));
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Fault::again(format!("{}: {e}", name()))),
        }
    }
    // The end must be the end; reading it also lets the connection be used again.
    match reader.read(&mut [0]) {
        Ok(0) | Err(_) => Ok(()),
        Ok(_) => {
            *have = first;
            Err(Fault::again(format!("{}: more bytes than asked for", name())))
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
