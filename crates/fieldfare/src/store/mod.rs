//! The expert store: a layer's experts are asked for, and their blobs are lent one after the other, from
//! slots where they are held or fresh from the layer files.
//!
//! Slots of all layers are one allocation ([`slots`]), each layer has an equal share, [`policy`] says which
//! expert is worth keeping, [`plan`] works out a request without doing it, [`readers`] are the threads that read,
//! [`reader`] how one blob is read, [`sweep`] how a whole prompt goes through a layer, `ahead` reads what is only guessed, [`rdadvise`] announces to the page cache what is about to be read.
//! What is missing is asked for at once; what is held is delivered meanwhile, and then each blob as it arrives. Results do not depend on any of this: a blob is the same bytes wherever it comes
//! from, and callers must not let the order of delivery change their sums.

mod ahead;
pub mod board;
pub mod plan;
pub mod policy;
pub mod rdadvise;
pub mod reader;
pub mod readers;
pub mod slots;
pub mod sweep;

pub use board::Board;
pub use plan::Step;
pub use policy::Policy;
pub use rdadvise::RdAdvise;
pub use reader::{LayerFile, LayerFiles, ReadAt, Reader};
pub use sweep::Next;

use crate::{Error, Result};
use ahead::Spare;
use policy::Uses;
use rdadvise::Advice;
use readers::{Done, Job, Place, Readers};
use slots::{SlotPool, slots_of};
use std::sync::Arc;
use std::time::Duration;
use sweep::Transit;

/// Reader threads when nothing is said. A disk delivers its full rate to one or two large reads; more only make each of
/// them later.
pub const DEFAULT_READERS: usize = 2;

/// How blobs are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reads {
    /// From the disk into the slot, past the page cache.
    Direct,
    /// Through the page cache, which keeps what it has memory for.
    Buffered,
}

impl std::fmt::Display for Reads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Buffered => "buffered",
        })
    }
}

/// What the store has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Experts asked for that were in a slot.
    pub hits: u64,
    /// Experts that were read.
    pub misses: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Time in which at least one read was under way.
    pub read_time: Duration,
    /// Experts that were guessed and given to the readers.
    pub ahead_guesses: u64,
    /// Of these, ones that were wanted.
    pub ahead_used: u64,
    /// Bytes read for the others, up to where they were called off; part of `bytes_read`.
    pub ahead_wasted_bytes: u64,
    /// Bytes that were announced to the page cache.
    pub advised_bytes: u64,
}

/// One layer's slots and counts.
struct Layer {
    /// The expert in each slot.
    held: Vec<Option<usize>>,
    /// The expert that is being read into each slot.
    coming: Vec<Option<usize>>,
    /// By slot: what it holds was read ahead of a sweep that has not asked for it yet.
    ahead: Vec<bool>,
    uses: Uses,
}

/// Holds some experts of every layer and reads the others when they are asked for.
pub struct ExpertStore {
    slots: SlotPool,
    layers: Vec<Layer>,
    readers: Readers,
    /// What [`ExpertStore::begin`] left for [`ExpertStore::finish`].
    request: Option<Request>,
    advice: Advice,
    /// Spare slots.
    spares: Vec<Spare>,
    /// A request or sweep has begun to run and has not ended.
    open: bool,
    /// Buffers of a sweep, while there are any.
    transit: Option<Transit>,
    experts: usize,
    stats: StoreStats,
    board: Arc<Board>,
}

/// The shape of an [`ExpertStore`].
#[derive(Debug, Clone, Copy)]
pub struct StoreShape {
    /// Number of layers.
    pub layers: usize,
    /// Experts of a layer.
    pub experts: usize,
    /// Slots of all layers together: at least one a layer, at most all experts.
    pub slots: usize,
    /// Slots more, of no layer, into which experts are read that are only guessed.
    pub spares: usize,
    /// Bytes of a blob and of a slot.
    pub stride: usize,
    /// Reader threads.
    pub readers: usize,
}

/// Experts of one layer that were asked for.
struct Request {
    layer: usize,
    steps: Vec<Step>,
    progress: Progress,
    /// Steps whose expert has come to its slot from a spare one and is to be delivered.
    ready: Vec<usize>,
}

/// How far a request has come.
struct Progress {
    /// By step: delivered to the caller.
    delivered: Vec<bool>,
    /// By step: a read that was given to the readers.
    asked: Vec<bool>,
    /// By step: the earlier step that uses the same slot and must have been delivered before.
    after: Vec<Option<usize>>,
}

impl Request {
    /// The step whose read into `slot` is under way.
    fn read_into(&self, slot: usize) -> Option<usize> {
        let read = |step: &Step| matches!(step, Step::Read { slot: s, .. } if *s == slot);
        let Progress { delivered, asked, .. } = &self.progress;
        (0..self.steps.len()).find(|&at| asked[at] && !delivered[at] && read(&self.steps[at]))
    }
}

impl Progress {
    fn new(steps: &[Step]) -> Self {
        let after = (0..steps.len())
            .map(|at| (0..at).rev().find(|&earlier| steps[earlier].slot() == steps[at].slot()))
            .collect();
        Self { delivered: vec![false; steps.len()], asked: vec![false; steps.len()], after }
    }

    /// Whether a read may begin: what its slot held for this request has been delivered.
    fn is_free(&self, at: usize) -> bool {
        self.after[at].is_none_or(|earlier| self.delivered[earlier])
    }
}

impl ExpertStore {
    /// Empty slots of the given shape before `reader`.
    ///
    /// # Errors
    /// [`Error::BadRequest`] for a slot count out of range or a pool beyond the address space.
    pub fn new(shape: StoreShape, policy: Policy, reader: Box<dyn Reader>) -> Result<Self> {
        let StoreShape { layers, experts, slots, spares, stride, readers } = shape;
        let most = layers.saturating_mul(experts);
        if slots == 0 || slots < layers || slots > most {
            let reason = format!(
                "{} is not between 1 and the {experts} experts of a layer",
                slots.checked_div(layers).unwrap_or(0)
            );
            return Err(Error::bad("expert-cache-slots", reason));
        }
        let layer = |layer| {
            let (slots, uses) = (slots_of(slots, layers, layer), Uses::new(policy, experts));
            Layer { held: vec![None; slots], coming: vec![None; slots], ahead: vec![false; slots], uses }
        };
        Ok(Self {
            slots: SlotPool::with_spares(layers, slots, spares, stride)?,
            layers: (0..layers).map(layer).collect(),
            readers: Readers::new(reader, readers)?,
            request: None,
            advice: Advice::default(),
            spares: vec![Spare::default(); spares],
            open: false,
            transit: None,
            experts,
            stats: StoreStats::default(),
            board: Arc::new(Board::new(layers, experts)),
        })
    }

    /// Notes the experts that one token chose in layer `number`, before they are fetched.
    pub fn note_token(&mut self, number: usize, experts: &[usize]) {
        if let Some(layer) = self.layers.get_mut(number) {
            layer.uses.note_token(experts);
            self.board.note_uses(number, experts);
        }
    }

    /// Asks for the experts `wanted` (distinct ids) of `layer`: gives the readers every miss whose slot nobody needs any
    /// more, so that they work while the caller does something else. [`ExpertStore::finish`] is to follow; a request that
    /// was never finished is dropped.
    ///
    /// # Errors
    /// [`Error::BadRequest`] for a layer that does not exist.
    pub fn begin(&mut self, layer: usize, wanted: &[usize]) -> Result<()> {
        if std::mem::take(&mut self.open) {
            self.settle(); // what a panic in `each`, or a request not finished, may have left
        }
        let mut steps = self.request.take().map(|request| request.steps).unwrap_or_default();
        let layers = self.layers.len();
        let Some(state) = self.layers.get(layer) else {
            return Err(Error::bad("layer", format!("{layer} is not one of {layers}")));
        };
        plan::plan(&state.held, wanted, &state.uses, &mut steps);
        self.drop_guesses(layer, wanted);
        let mut request = Request { layer, progress: Progress::new(&steps), steps, ready: Vec::new() };
        self.open = true;
        self.announce(&request);
        self.ask(&mut request);
        self.request = Some(request);
        Ok(())
    }

    /// Has missing experts announced to the page cache from now on, where reads go through it.
    pub fn set_advice(&mut self, mode: RdAdvise) {
        self.advice = Advice::new(mode);
    }

    /// How missing experts are announced: not at all where reads do not go through the page cache.
    pub fn advice(&self) -> RdAdvise {
        if self.reads() == Reads::Buffered { self.advice.mode() } else { RdAdvise::Off }
    }

    fn announce(&mut self, request: &Request) {
        if self.advice() == RdAdvise::Off {
            return;
        }
        let missing = |step: &Step| matches!(step, Step::Read { .. }).then(|| step.expert());
        let experts: Vec<usize> = request.steps.iter().filter_map(missing).collect();
        let bytes = (experts.len() * self.slots.stride()) as u64;
        if self.advice.wants(request.layer, experts.len(), bytes)
            && let Some((bytes, slowest)) = self.readers.reader().advise(request.layer, &experts)
        {
            self.advice.note(bytes, slowest);
            self.stats.advised_bytes += bytes;
        }
    }

    /// Lends the blob of every expert that [`ExpertStore::begin`] was asked for to `each`, once, in an order of the store's
    /// choosing. A blob is only lent for the call. Without a request there is nothing to lend.
    ///
    /// # Errors
    /// Those of the reader and of `each`; the store stays usable, experts not yet delivered are then simply not held.
    pub fn finish(&mut self, each: &mut dyn FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
        let Some(mut request) = self.request.take() else { return Ok(()) };
        let result = self.run(&mut request, each);
        if result.is_err() || request.progress.delivered.contains(&false) {
            self.settle();
        }
        self.open = false;
        self.show(request.layer);
        result
    }

    /// Carries out the steps of a request: reads as early as their slots allow, hits meanwhile, reads as they arrive.
    fn run(&mut self, request: &mut Request, each: &mut dyn FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
        let layer = request.layer;
        let hits: Vec<usize> =
            (0..request.steps.len()).filter(|&at| matches!(request.steps[at], Step::Hit { .. })).collect();
        let mut hits = hits.into_iter();
        while request.progress.delivered.contains(&false) {
            self.ask(request);
            let (at, is_hit) = if let Some(at) = hits.next() {
                (at, true)
            } else if let Some(at) = request.ready.pop() {
                (at, false)
            } else {
                let Some(done) = self.readers.wait() else { break };
                let Some(slot) = self.take_back(done)? else { continue };
                let Some(at) = request.read_into(slot) else { continue }; // not of this request
                (at, false)
            };
            let step = request.steps[at];
            let Some(blob) = self.slots.get(layer, step.slot()) else { continue }; // lent: cannot be
            self.stats.hits += u64::from(is_hit);
            each(step.expert(), blob)?;
            request.progress.delivered[at] = true;
        }
        Ok(())
    }

    /// Gives the readers every job whose slot is free; they take them one by one, in this order.
    fn ask(&mut self, request: &mut Request) {
        for at in 0..request.steps.len() {
            let Step::Read { expert, slot, .. } = request.steps[at] else { continue };
            if request.progress.asked[at] || !request.progress.is_free(at) {
                continue;
            }
            request.progress.asked[at] =
                self.take_guess(request, at) || self.read_into_slot(request.layer, expert, slot, false);
        }
    }

    /// Has `expert` read into a slot, whose expert is gone from then on, in parts or as a whole (a sweep keeps both
    /// processors busy: threads would wait for them between parts). False if the slot is lent.
    fn read_into_slot(&mut self, layer: usize, expert: usize, slot: usize, whole: bool) -> bool {
        let Some(loan) = self.slots.lend(layer, slot) else { return false };
        let state = &mut self.layers[layer];
        // Empty until the read is known to be good.
        state.held[slot] = None;
        state.coming[slot] = Some(expert);
        state.ahead[slot] = false;
        self.readers.submit(Job { layer, expert, place: Place::Slot(slot), whole, loan });
        true
    }

    /// Notes what a read that ended left in its place; the slot of its layer, if it is one now.
    fn take_back(&mut self, Done { job, result, bytes, called_off }: Done) -> Result<Option<usize>> {
        let Job { layer, expert, place, loan, .. } = job;
        let good = !called_off && matches!(result, Ok(Ok(())));
        self.stats.bytes_read += bytes as u64;
        let slot = match place {
            Place::Slot(slot) => {
                self.slots.take_back(loan);
                let state = &mut self.layers[layer];
                state.coming[slot] = None;
                state.held[slot] = good.then_some(expert);
                Some(slot)
            }
            Place::Transit(buffer) => {
                if let Some(transit) = &mut self.transit {
                    transit.take_back(buffer, loan, good);
                }
                None
            }
            Place::Spare(number) => {
                self.slots.take_back(loan);
                self.end_spare(number, good, bytes)
            }
        };
        let wanted = slot.is_some() || matches!(place, Place::Transit(_));
        if good && wanted {
            self.stats.misses += 1;
            self.board.note_read(layer, expert);
        }
        match result {
            // Nobody waits for a guess that failed: whoever wants it reads it again.
            Ok(Err(_)) if !wanted => Ok(None),
            Ok(read) => read.map(|()| slot),
            Err(panic) => {
                self.settle();
                std::panic::resume_unwind(panic)
            }
        }
    }

    /// Waits for every read that is still out; what arrives is held, errors concern nobody any more.
    fn settle(&mut self) {
        self.readers.call_off(|_, _| true);
        while let Some(Done { job, result, bytes, called_off }) = self.readers.wait() {
            let result = match result {
                Ok(Ok(())) => Ok(Ok(())),
                _ => Ok(Err(Error::Cancelled)),
            };
            let _ = self.take_back(Done { job, result, bytes, called_off });
        }
    }

    /// Gives up slots, and their memory, or takes some of those given up again, until all layers together have `slots`;
    /// no more than there were in the beginning. A layer keeps its most valuable experts; without any slot it has
    /// only [`ExpertStore::sweep`].
    pub fn resize(&mut self, slots: usize) {
        let slots = slots.min(self.slots.capacity());
        if slots == self.slots.slots() {
            return;
        }
        self.settle();
        self.spares.fill(Spare::default());
        let layers = self.layers.len();
        for layer in 0..layers {
            self.keep_best(layer, slots_of(slots, layers, layer));
        }
        if self.slots.resize(slots) {
            let slots = self.slots.slots();
            for (number, layer) in self.layers.iter_mut().enumerate() {
                let slots = slots_of(slots, layers, number);
                layer.held.resize(slots, None);
                layer.coming.resize(slots, None);
                layer.ahead.resize(slots, false);
            }
        }
        (0..layers).for_each(|layer| self.show(layer));
    }

    /// Moves the most valuable experts of a layer into its first `slots` slots.
    fn keep_best(&mut self, layer: usize, slots: usize) {
        let Layer { held, uses, .. } = &mut self.layers[layer];
        let Some((first, rest)) = held.split_at_mut_checked(slots) else { return };
        let value = |held: &Option<usize>| held.map(|expert| uses.rank(expert));
        let mut order: Vec<usize> = (0..rest.len()).filter(|&at| rest[at].is_some()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse(value(&rest[at])));
        for at in order {
            let Some(worst) = (0..first.len()).min_by_key(|&slot| value(&first[slot])) else { return };
            if value(&first[worst]) >= value(&rest[at]) {
                return;
            }
            self.slots.copy(layer, slots + at, worst);
            first[worst] = rest[at].take();
        }
    }

    /// Which experts are in memory; it follows the store.
    pub fn board(&self) -> Arc<Board> {
        self.board.clone()
    }

    fn show(&self, layer: usize) {
        if let Some(state) = self.layers.get(layer) {
            self.board.show(layer, &state.held);
            let StoreStats { hits, misses, bytes_read, .. } = self.stats;
            self.board.note_counts(board::Counts { hits, misses, bytes_read });
        }
    }

    /// What was done so far.
    pub fn stats(&self) -> StoreStats {
        StoreStats { read_time: self.readers.busy(), ..self.stats }
    }

    /// How blobs are read now.
    pub fn reads(&self) -> Reads {
        self.readers.reader().mode()
    }

    /// Whether every expert is in a slot.
    pub fn holds_all(&self) -> bool {
        self.layers.iter().all(|layer| layer.held.iter().flatten().count() == self.experts)
    }

    /// Slots beside those of the layers, to read ahead into.
    pub fn spares(&self) -> usize {
        self.spares.len()
    }

    /// Bytes of a slot.
    pub fn stride(&self) -> usize {
        self.slots.stride()
    }

    /// Bytes of all slots.
    pub fn slot_bytes(&self) -> usize {
        self.slots.bytes()
    }

    /// Bytes of slots that are in huge pages; `None` where the system does not say.
    pub fn huge_bytes(&self) -> Option<u64> {
        self.slots.huge_bytes()
    }

    /// Slots of all layers.
    pub fn slots(&self) -> usize {
        self.slots.slots()
    }

    /// Slots of a layer; some may have one more.
    pub fn slots_per_layer(&self) -> usize {
        self.slots.slots() / self.layers.len().max(1)
    }
}

#[cfg(test)]
mod tests;
