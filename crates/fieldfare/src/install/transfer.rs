//! Several requests in flight: workers that fetch units and strips of a plan, and the order in which they are asked for.
//!
//! Memory is bounded by what is admitted. A unit, or scales and biases of a strip, is asked for only when it fits beside
//! what is held; of the experts that are streamed only a fixed number of buffers exists. The window bounds what is asked for and
//! not recorded yet, whatever is slow: the network, this machine, its disk.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::hub::Hub;
use super::plan::{Done, FetchPlan, Piece};
use super::retry::Patience;
use super::stream::{Dice, Event, Stream, TICK, buffer, fetch};
use super::wait::Waiting;
use super::window::Window;
use crate::sys::buffer::Buffer;
use crate::{Error, Result};

/// Source bytes in memory at a time, unless one group has more.
pub(crate) const BUDGET: u64 = 82 << 20;
/// Time without a byte after which the wait of a connection is a wait of the whole.
const QUIET: Duration = Duration::from_millis(500);
/// Good requests after which one more is allowed at a time again.
const RECOVER: usize = 16;

/// What workers and their master share.
struct Shared {
    hub: Arc<Hub>,
    patience: Patience,
    window: Arc<Window>,
    queue: Mutex<VecDeque<Job>>,
    wake: Condvar,
    stop: AtomicBool,
    /// Bytes received.
    received: AtomicU64,
    /// The last wait that was heard of, and when.
    pause: Mutex<Option<(Instant, Waiting)>>,
    /// Requests that may be in flight; fewer after a server said that there are too many.
    allowed: AtomicUsize,
    busy: AtomicUsize,
    /// Requests that went well since the number was last changed.
    good: AtomicUsize,
    most: usize,
    /// Buffers for experts that may be taken, and those that were given back.
    buffers: Mutex<Buffers>,
    given_back: Condvar,
}

struct Buffers {
    left: usize,
    free: Vec<Buffer>,
}

impl Shared {
    /// Heeds what happens to a request; true if it is to stop.
    fn event(&self, event: &Event) -> bool {
        match event {
            Event::Bytes(n) => {
                self.received.fetch_add(*n, Ordering::Relaxed);
            }
            Event::Waiting => {}
            Event::Pause(waiting) => *lock(&self.pause) = Some((Instant::now(), *waiting)),
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

    /// A buffer of `len` bytes, when there is one.
    fn take(&self, len: u64) -> Result<Buffer> {
        let mut buffers = lock(&self.buffers);
        while buffers.left == 0 {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            buffers = self.given_back.wait_timeout(buffers, TICK).unwrap_or_else(PoisonError::into_inner).0;
        }
        buffers.left -= 1;
        // Down projections may be of another size than the others.
        match buffers.free.iter().position(|free| free.len() as u64 == len) {
            Some(at) => Ok(buffers.free.swap_remove(at)),
            None => {
                buffers.free.pop();
                buffer(len)
            }
        }
    }

    /// One request after the other, until there is nothing left of the job.
    fn work(&self, job: Job, dice: &mut Dice, send: &Sender<Result<Arrived>>) -> Result<()> {
        let mut event = |e: Event| self.event(&e);
        match job {
            Job::Whole { group, slot, request } => {
                let bytes = fetch(&self.hub, &self.patience, &request, dice, &mut event)?;
                // Whoever no longer listens has stopped.
                let _ = send.send(Ok(Arrived::Whole(group, slot, bytes)));
            }
            Job::Range { strip, experts, request } => {
                let count = experts.end - experts.start;
                let each = request.len / count.max(1);
                let stop = || self.stop.load(Ordering::Relaxed);
                let now = self.window.admit_experts(each, count, &stop).ok_or(Error::Cancelled)?;
                let rest = experts.start + now..experts.end;
                if !rest.is_empty() {
                    let at = now * each;
                    let (offset, len) = (request.offset + at, request.len - at);
                    let request = Piece { offset, len, ..request };
                    lock(&self.queue).push_front(Job::Range { strip, experts: rest, request });
                    self.wake.notify_one();
                }
                let request = Piece { len: now * each, ..request };
                let mut stream = Stream::new(&self.hub, &self.patience, request);
                for expert in experts.start..experts.start + now {
                    let mut bytes = self.take(each)?;
                    stream.fill(&mut bytes, dice, &mut event)?;
                    let _ = send.send(Ok(Arrived::Part(strip, expert, bytes)));
                }
            }
        }
        Ok(())
    }
}

/// A request.
enum Job {
    Whole { group: usize, slot: usize, request: Piece },
    Range { strip: usize, experts: Range<u64>, request: Piece },
}

enum Arrived {
    /// A request of a group, by its slot.
    Whole(usize, usize, Buffer),
    /// An expert of a strip.
    Part(usize, u64, Buffer),
}

/// What was fetched as a whole.
pub(crate) struct Fetched {
    requests: Vec<Piece>,
    buffers: Vec<Option<Buffer>>,
}

impl Fetched {
    /// Bytes that were asked for.
    pub(crate) fn asked(&self) -> u64 {
        self.requests.iter().map(|request| request.len).sum()
    }

    /// The bytes of one of its pieces.
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
    fetched: Fetched,
    left: usize,
}

/// Something that arrived.
pub(crate) enum Got {
    /// All of a group that is fetched as a whole.
    Whole(usize, Fetched),
    /// The weights of an expert of a strip.
    Part(usize, u64, Buffer),
}

/// Fetches the groups of a plan.
pub(crate) struct Transfer {
    shared: Arc<Shared>,
    arrived: Receiver<Result<Arrived>>,
    pending: HashMap<usize, Pending>,
    /// The next group to ask for.
    admitted: usize,
    /// Bytes held for each group that was admitted and not let go.
    held: HashMap<usize, u64>,
    memory: u64,
    /// When something was last seen to come, and how much there was by then.
    seen: (Instant, u64),
}

impl Transfer {
    /// Starts `connections` workers; `memory` bounds the bytes held, `window` those that are not recorded.
    pub(crate) fn start(
        (hub, patience): (Arc<Hub>, Patience),
        connections: usize,
        memory: u64,
        window: Arc<Window>,
        plan: &FetchPlan,
    ) -> Result<Self> {
        let (send, arrived) = mpsc::channel();
        let part = plan.strips.iter().map(|strip| strip.weights.len / plan.experts.max(1)).max().unwrap_or(0);
        // Two for each connection, one being filled and one being written, if a third of the memory has room for them.
        let buffers = usize::try_from(memory / 3 / part.max(1)).unwrap_or(usize::MAX);
        let buffers = buffers.clamp(1, 2 * connections);
        let shared = Arc::new(Shared {
            hub,
            patience,
            window,
            queue: Mutex::default(),
            wake: Condvar::new(),
            stop: AtomicBool::new(false),
            received: AtomicU64::new(0),
            pause: Mutex::default(),
            allowed: AtomicUsize::new(connections),
            busy: AtomicUsize::new(0),
            good: AtomicUsize::new(0),
            most: connections,
            buffers: Mutex::new(Buffers { left: buffers, free: Vec::new() }),
            given_back: Condvar::new(),
        });
        for number in 0..connections {
            let (shared, send) = (shared.clone(), send.clone());
            let seed = u32::try_from(number).unwrap_or(0);
            // Not joined: one that waits for a dead connection must not keep the caller from leaving.
            std::thread::Builder::new()
                .name(format!("fetch {number}"))
                .spawn(move || serve(&shared, &send, seed))
                .map_err(Error::io("start a thread for", "the transfer"))?;
        }
        let memory = memory.saturating_sub(part.saturating_mul(buffers as u64));
        let (pending, held) = (HashMap::new(), HashMap::new());
        Ok(Self { shared, arrived, pending, admitted: 0, held, memory, seen: (Instant::now(), 0) })
    }

    /// Bytes received so far.
    pub(crate) fn received(&self) -> u64 {
        self.shared.received.load(Ordering::Relaxed)
    }

    /// The wait of a connection, while nothing comes on the others.
    fn waiting(&mut self) -> Option<Waiting> {
        let received = self.received();
        if received != self.seen.1 {
            self.seen = (Instant::now(), received);
        }
        let (heard, mut waiting) = (*lock(&self.shared.pause))?;
        let ago = heard.elapsed();
        let waits = self.seen.0.elapsed() >= QUIET && ago < 5 * TICK;
        // What is left of it now.
        waiting.left = waiting.left.saturating_sub(ago);
        waits.then_some(waiting)
    }

    /// What arrives next. `tick` is called several times a second and may stop the work.
    pub(crate) fn next(
        &mut self,
        plan: &FetchPlan,
        done: &Done,
        tick: &mut dyn FnMut(u64, Option<Waiting>) -> Result<()>,
    ) -> Result<Got> {
        loop {
            // Anew each time: there may be room by now.
            self.admit(plan, done);
            let waiting = self.waiting();
            tick(self.received(), waiting)?;
            // What has no request is there at once.
            if let Some(group) = self.pending.iter().find(|(_, p)| p.left == 0).map(|(group, _)| *group)
                && let Some(pending) = self.pending.remove(&group)
            {
                return Ok(Got::Whole(group, pending.fetched));
            }
            match self.arrived.recv_timeout(TICK) {
                Ok(arrived) => match arrived? {
                    Arrived::Part(strip, expert, bytes) => return Ok(Got::Part(strip, expert, bytes)),
                    Arrived::Whole(group, slot, bytes) => {
                        if let Some(pending) = self.pending.get_mut(&group) {
                            pending.fetched.buffers[slot] = Some(bytes);
                            pending.left -= 1;
                        }
                    }
                },
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(Error::Unsupported("the transfer's threads ended".into()));
                }
            }
        }
    }

    /// The bytes that were fetched as a whole for a group are gone.
    pub(crate) fn let_go(&mut self, group: usize) {
        self.held.remove(&group);
    }

    /// An expert's buffer may be used again.
    pub(crate) fn give_back(&self, bytes: Buffer) {
        let mut buffers = lock(&self.shared.buffers);
        buffers.left += 1;
        buffers.free.push(bytes);
        self.shared.given_back.notify_one();
    }

    /// Asks for as many groups as fit, in their order.
    fn admit(&mut self, plan: &FetchPlan, done: &Done) {
        while self.admitted < plan.groups() {
            let group = self.admitted;
            if plan.left(group, done) == 0 {
                self.admitted += 1;
                continue;
            }
            let work = plan.work(group, done);
            let need: u64 = work.whole.iter().map(|r| r.len).sum();
            if !self.held.is_empty() && self.held.values().sum::<u64>() + need > self.memory {
                break;
            }
            let window = &self.shared.window;
            let is_unit = group < plan.units.len();
            if !(if is_unit { window.admit_unit(need) } else { window.admit_sides(need) }) {
                break;
            }
            self.held.insert(group, need);
            let buffers = work.whole.iter().map(|_| None).collect();
            let mut queue = lock(&self.shared.queue);
            queue.extend(work.whole.iter().enumerate().map(|(slot, request)| Job::Whole {
                group,
                slot,
                request: *request,
            }));
            let strip = group.saturating_sub(plan.units.len());
            queue.extend(work.ranges.into_iter().map(|(experts, request)| Job::Range {
                strip,
                experts,
                request,
            }));
            drop(queue);
            self.shared.wake.notify_all();
            let left = work.whole.len();
            self.pending.insert(group, Pending { fetched: Fetched { requests: work.whole, buffers }, left });
            self.admitted += 1;
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.wake.notify_all();
        self.shared.given_back.notify_all();
    }
}

fn serve(shared: &Shared, send: &Sender<Result<Arrived>>, seed: u32) {
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
        let ended = shared.work(job, &mut dice, send);
        shared.busy.fetch_sub(1, Ordering::Relaxed);
        shared.wake.notify_one();
        match ended {
            Ok(()) => shared.went_well(),
            Err(error) => {
                if send.send(Err(error)).is_err() {
                    return;
                }
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::hub::Remote;

    #[test]
    fn fewer_requests_after_a_server_complained_and_more_again_with_time() {
        let remote = Remote::Base { url: "http://127.0.0.1:9".into() };
        let hub = Hub::new(remote, None, &Patience::default()).expect("an address");
        let (plan, window) = (FetchPlan::default(), Arc::new(Window::new(8, 1 << 20)));
        let transfer =
            Transfer::start((Arc::new(hub), Patience::default()), 8, BUDGET, window, &plan).expect("start");
        let shared = &transfer.shared;
        let allowed = || shared.allowed.load(Ordering::Relaxed);
        assert_eq!(allowed(), 8);
        for want in [4, 2, 1, 1] {
            assert!(!shared.event(&Event::TooMany));
            assert_eq!(allowed(), want);
        }
        for want in 2..=8 {
            (0..RECOVER).for_each(|_| shared.went_well());
            assert_eq!(allowed(), want);
        }
        (0..RECOVER).for_each(|_| shared.went_well());
        assert_eq!(allowed(), 8, "never more than asked for");
    }

    #[test]
    fn buffers_are_counted() {
        let remote = Remote::Base { url: "http://127.0.0.1:9".into() };
        let hub = Hub::new(remote, None, &Patience::default()).expect("an address");
        let weights = Piece { file: 0, offset: 0, len: 4 * 1000 };
        let sides = [Piece { file: 0, offset: 4000, len: 400 }, Piece { file: 0, offset: 4400, len: 400 }];
        let strip = super::super::plan::Strip { output: 0, role: 0, weights, sides };
        let plan = FetchPlan { strips: vec![strip], experts: 4, range: 4000, ..FetchPlan::default() };
        let hub = Arc::new(hub);
        // A third of the memory, two for each connection, and one at least.
        for (memory, connections, want) in [(1, 4, 1), (6000, 4, 2), (1 << 30, 4, 8), (1 << 30, 1, 2)] {
            let window = Arc::new(Window::new(connections, 4000));
            let transfer =
                Transfer::start((hub.clone(), Patience::default()), connections, memory, window, &plan)
                    .expect("start");
            assert_eq!(lock(&transfer.shared.buffers).left, want, "{memory} {connections}");
            let bytes = transfer.shared.take(1000).expect("one");
            assert_eq!((bytes.len(), lock(&transfer.shared.buffers).left), (1000, want - 1));
            transfer.give_back(bytes);
            assert_eq!(transfer.shared.take(500).expect("of another length").len(), 500);
        }
    }
}
