//! A whole prompt's way through a layer: every expert wanted is lent once, in ascending order, and read at most once.
//!
//! Blobs come from the layer's slots, are read into slots that they will stay in, or pass through a few *transit*
//! buffers, which all layers share and which exist only while a prompt is read. The counts of the prompt are known when
//! a sweep begins, so is what the slots are to hold after it: the most valuable of what they hold and of what passes by.
//! An expert that stays goes straight into a slot whose own expert has had its turn or none; if there is none yet, it
//! waits in its transit buffer until one is. When all reads of a layer have been given, those of the next layer follow that
//! are expected to be wanted, into empty slots and what is free of the buffers, and go on under whatever is computed in
//! between.

use super::readers::{Job, Place};
use super::slots::{Loan, SlotPool};
use super::{ExpertStore, Layer};
use crate::{Error, Result};

/// Buffers that experts pass through.
pub(super) struct Transit {
    pool: SlotPool,
    /// Layer and expert that each buffer holds or waits for.
    holds: Vec<Option<(usize, usize)>>,
    /// By buffer: what it holds was read ahead of its layer's sweep.
    ahead: Vec<bool>,
}

impl Transit {
    /// Notes how a read into a buffer ended.
    pub(super) fn take_back(&mut self, buffer: usize, loan: Loan, good: bool) {
        self.pool.take_back(loan);
        if !good && let Some(holds) = self.holds.get_mut(buffer) {
            *holds = None;
        }
    }

    fn is_ready(&self, buffer: usize) -> bool {
        self.pool.get(0, buffer).is_some()
    }

    fn find(&self, layer: usize, expert: usize) -> Option<usize> {
        self.holds.iter().position(|&holds| holds == Some((layer, expert)))
    }

    /// The experts of a layer that were read ahead and are still here.
    fn early(&self, layer: usize) -> impl Iterator<Item = usize> {
        let here = self.holds.iter().zip(&self.ahead).filter(|(_, ahead)| **ahead);
        here.filter_map(move |(holds, _)| holds.filter(|(of, _)| *of == layer).map(|(_, expert)| expert))
    }
}

/// Buffers, if there are as many, into which nothing is read ahead: whatever comes first in a layer can be read, also where
/// nobody expected it.
const KEPT_FREE: usize = 2;

/// The layer after one, and which of its experts are worth reading before it is known what it wants.
#[derive(Debug, Clone, Copy)]
pub struct Next<'a> {
    /// The layer.
    pub layer: usize,
    /// Its experts, the likeliest first. As many as there are places for are read.
    pub experts: &'a [usize],
}

/// One sweep.
struct Sweep<'a> {
    layer: usize,
    next: Option<Next<'a>>,
    /// By expert: it is wanted and had no turn yet.
    due: Vec<bool>,
    /// By expert: it is in a slot when the sweep is over.
    stays: Vec<bool>,
    /// Experts that had their turn and wait in their buffers for a slot.
    waiting: Vec<usize>,
    /// Everything wanted is held or being read.
    all_asked: bool,
}

impl ExpertStore {
    /// Makes `buffers` transit buffers (at least one) for the sweeps to come, empty.
    ///
    /// # Errors
    /// [`Error::BadRequest`] if the system has no such memory.
    pub fn open_transit(&mut self, buffers: usize) -> Result<()> {
        self.close_transit();
        let pool = SlotPool::new(1, buffers.max(1), self.slots.stride())?;
        self.transit =
            Some(Transit { holds: vec![None; pool.slots()], ahead: vec![false; pool.slots()], pool });
        Ok(())
    }

    /// Gives the memory of the transit buffers back.
    pub fn close_transit(&mut self) {
        if self.transit.is_some() {
            self.settle();
            self.transit = None;
        }
        for layer in &mut self.layers {
            layer.ahead.fill(false);
        }
    }

    /// Has experts read that are not held, as far as there are empty slots of their layer and transit buffers.
    pub fn read_ahead(&mut self, next: Next<'_>) {
        if next.layer < self.layers.len() {
            self.ask_next(next, None);
        }
    }

    /// Lends the blob of every expert in `wanted` (ascending) to `each`, once, in that order, and leaves the most
    /// valuable ones in the slots. When all of them are on their way, reads for `next` begin.
    ///
    /// # Errors
    /// Those of the reader and of `each`; the store stays usable.
    pub fn sweep(
        &mut self,
        layer: usize,
        wanted: &[usize],
        next: Option<Next<'_>>,
        each: &mut dyn FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.prepare_sweep(layer, wanted)?;
        let is_wanted = |expert: &usize| wanted.binary_search(expert).is_ok();
        let Layer { held, coming, ahead, .. } = &mut self.layers[layer];
        let was_held =
            |(slot, expert): (usize, &Option<usize>)| !ahead[slot] && expert.as_ref().is_some_and(is_wanted);
        self.stats.hits += held.iter().enumerate().filter(|&at| was_held(at)).count() as u64;
        let early =
            (0..ahead.len()).filter(|&slot| ahead[slot]).filter_map(|slot| held[slot].or(coming[slot]));
        let passing = self.transit.iter().flat_map(|transit| transit.early(layer));
        let in_vain = early.chain(passing).filter(|expert| !is_wanted(expert)).count();
        self.stats.ahead_wasted_bytes += (in_vain * self.slots.stride()) as u64;
        ahead.fill(false);
        let mut sweep = self.plan_sweep(layer, wanted, next.filter(|next| next.layer < self.layers.len()));
        let result = self.run_sweep(&mut sweep, wanted, each);
        if result.is_err() {
            self.settle();
        }
        self.show(layer);
        result
    }

    /// The first part of a [`ExpertStore::sweep`] with the same experts, which is to follow: as many of them as there are
    /// places for are read while the caller does something else.
    ///
    /// # Errors
    /// As [`ExpertStore::sweep`], but for those of the reader, which follow there.
    pub fn begin_sweep(&mut self, layer: usize, wanted: &[usize]) -> Result<()> {
        self.prepare_sweep(layer, wanted)?;
        let mut sweep = self.plan_sweep(layer, wanted, None);
        self.ask_wanted(&mut sweep, wanted);
        let Layer { coming, ahead, .. } = &mut self.layers[layer];
        for (ahead, coming) in ahead.iter_mut().zip(coming) {
            *ahead |= coming.is_some();
        }
        Ok(())
    }

    /// Refuses what is no sweep, and sees to its buffers.
    fn prepare_sweep(&mut self, layer: usize, wanted: &[usize]) -> Result<()> {
        let (layers, experts) = (self.layers.len(), self.experts);
        if layer >= layers
            || wanted.iter().any(|&expert| expert >= experts)
            || !wanted.is_sorted_by(|a, b| a < b)
        {
            let reason = format!("{layer} of {layers}: {wanted:?} are no experts in ascending order");
            return Err(Error::bad("layer", reason));
        }
        self.request = None;
        self.open = true;
        self.drop_guesses(layer, &[]);
        if self.transit.is_none() && self.layers[layer].held.len() < experts {
            self.open_transit(1)?;
        }
        Ok(())
    }

    /// What is due and what is to stay.
    fn plan_sweep<'a>(&self, layer: usize, wanted: &[usize], next: Option<Next<'a>>) -> Sweep<'a> {
        let mut due = vec![false; self.experts];
        for &expert in wanted {
            due[expert] = true;
        }
        let Layer { held, coming, uses, .. } = &self.layers[layer];
        let mut candidates = due.clone();
        for expert in held.iter().chain(coming).flatten() {
            candidates[*expert] = true;
        }
        let mut order: Vec<usize> = (0..self.experts).filter(|&expert| candidates[expert]).collect();
        order.sort_by_key(|&expert| std::cmp::Reverse(uses.rank(expert)));
        let mut stays = vec![false; self.experts];
        for &expert in order.iter().take(held.len()) {
            stays[expert] = true;
        }
        Sweep { layer, next, due, stays, waiting: Vec::new(), all_asked: false }
    }

    fn run_sweep(
        &mut self,
        sweep: &mut Sweep<'_>,
        wanted: &[usize],
        each: &mut dyn FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let layer = sweep.layer;
        for (at, &expert) in wanted.iter().enumerate() {
            let place = loop {
                self.ask_wanted(sweep, &wanted[at..]);
                if sweep.all_asked
                    && let Some(next) = sweep.next
                {
                    self.ask_next(next, Some(sweep));
                }
                if let Some(place) = self.ready(layer, expert) {
                    break place;
                }
                // The expert whose turn it is was asked for before all that follow, and those that wait for a slot never
                // take the last buffer: it is on its way. Only a sweep that broke off leaves buffers full of others.
                match self.readers.wait() {
                    Some(done) => {
                        self.take_back(done)?;
                    }
                    None => self.empty_transit(sweep),
                }
            };
            let blob = match place {
                Place::Slot(slot) => self.slots.get(layer, slot),
                Place::Transit(buffer) => self.transit.as_ref().and_then(|t| t.pool.get(0, buffer)),
                Place::Spare(_) => None, // `ready` names none
            };
            each(expert, blob.expect("what is ready is not lent"))?;
            sweep.due[expert] = false;
            if let Place::Transit(buffer) = place {
                self.leave_transit(sweep, expert, buffer);
            }
            self.place_waiting(sweep);
        }
        // A slot may still be filled ahead with something that nobody wanted.
        while !sweep.waiting.is_empty()
            && let Some(done) = self.readers.wait()
        {
            self.take_back(done)?;
            self.place_waiting(sweep);
        }
        Ok(())
    }

    /// Forgets what the buffers hold but for what waits for a slot.
    fn empty_transit(&mut self, sweep: &Sweep<'_>) {
        let Some(transit) = &mut self.transit else { return };
        for holds in &mut transit.holds {
            let waits = |(layer, expert)| layer == sweep.layer && sweep.waiting.contains(&expert);
            *holds = holds.filter(|&held| waits(held));
        }
    }

    /// Where an expert is, once it is there.
    fn ready(&self, layer: usize, expert: usize) -> Option<Place> {
        if let Some(slot) = self.layers[layer].held.iter().position(|&held| held == Some(expert)) {
            return Some(Place::Slot(slot));
        }
        let transit = self.transit.as_ref()?;
        let buffer = transit.find(layer, expert).filter(|&buffer| transit.is_ready(buffer))?;
        Some(Place::Transit(buffer))
    }

    /// Whether an expert is held or being read.
    fn is_placed(&self, layer: usize, expert: usize) -> bool {
        let Layer { held, coming, .. } = &self.layers[layer];
        held.contains(&Some(expert))
            || coming.contains(&Some(expert))
            || self.transit.as_ref().is_some_and(|transit| transit.find(layer, expert).is_some())
    }

    /// Gives the readers what is still wanted, in order, as far as there are places.
    fn ask_wanted(&mut self, sweep: &mut Sweep<'_>, wanted: &[usize]) {
        if sweep.all_asked {
            return;
        }
        let mut buffers_left = true;
        sweep.all_asked = true;
        for &expert in wanted {
            if self.is_placed(sweep.layer, expert) {
                continue;
            }
            if sweep.stays[expert]
                && let Some(slot) = self.free_slot(sweep)
                && self.read_into_slot(sweep.layer, expert, slot, true)
            {
                continue;
            }
            buffers_left = buffers_left && self.read_into_transit(sweep.layer, expert, Some(sweep));
            if !buffers_left {
                sweep.all_asked = false;
            }
        }
    }

    /// Gives the readers experts of the layer to come that are not held, as far as there are places.
    fn ask_next(&mut self, Next { layer, experts }: Next<'_>, sweep: Option<&Sweep<'_>>) {
        for &expert in experts {
            if expert >= self.experts || self.is_placed(layer, expert) {
                continue;
            }
            let Layer { held, coming, .. } = &self.layers[layer];
            let empty = (0..held.len()).find(|&slot| held[slot].is_none() && coming[slot].is_none());
            if let Some(slot) = empty
                && self.read_into_slot(layer, expert, slot, true)
            {
                self.layers[layer].ahead[slot] = true;
            } else if !self.has_buffer_for_next(layer) || !self.read_into_transit(layer, expert, sweep) {
                return;
            } else if let Some(transit) = &mut self.transit
                && let Some(buffer) = transit.find(layer, expert)
            {
                transit.ahead[buffer] = true;
            }
        }
    }

    /// Whether one buffer more may be filled for the layer to come.
    fn has_buffer_for_next(&self, layer: usize) -> bool {
        self.transit.as_ref().is_some_and(|transit| {
            let taken = transit.holds.iter().flatten().filter(|(of, _)| *of == layer).count();
            taken + KEPT_FREE < transit.holds.len()
        })
    }

    /// A slot of the sweep's layer whose expert does not stay and is not due, empty ones first.
    fn free_slot(&self, sweep: &Sweep<'_>) -> Option<usize> {
        let Layer { held, coming, .. } = &self.layers[sweep.layer];
        let free = |slot: &usize| {
            coming[*slot].is_none()
                && held[*slot].is_none_or(|expert| !sweep.stays[expert] && !sweep.due[expert])
        };
        (0..held.len()).filter(free).min_by_key(|&slot| held[slot].is_some())
    }

    /// Has `expert` read into a transit buffer: an empty one, or one with something that nobody wants any more.
    fn read_into_transit(&mut self, layer: usize, expert: usize, sweep: Option<&Sweep<'_>>) -> bool {
        let Some(transit) = &mut self.transit else { return false };
        let is_free = |buffer: &usize| match (transit.holds[*buffer], sweep) {
            (None, _) => true,
            (Some(_), _) if !transit.is_ready(*buffer) => false,
            (Some((of, held)), Some(sweep)) if of == sweep.layer => {
                !sweep.due[held] && !sweep.waiting.contains(&held)
            }
            // What was read ahead gives way to the layer at hand alone.
            (Some((of, _)), Some(sweep)) => {
                layer == sweep.layer || sweep.next.is_none_or(|next| next.layer != of)
            }
            (Some((of, _)), None) => of != layer,
        };
        let Some(buffer) = (0..transit.holds.len()).find(is_free) else { return false };
        let Some(loan) = transit.pool.lend(0, buffer) else { return false };
        (transit.holds[buffer], transit.ahead[buffer]) = (Some((layer, expert)), false);
        self.readers.submit(Job { layer, expert, place: Place::Transit(buffer), whole: true, loan });
        true
    }

    /// An expert had its turn in a buffer: it is dropped, or stays there until there is a slot for it.
    fn leave_transit(&mut self, sweep: &mut Sweep<'_>, expert: usize, buffer: usize) {
        let Some(transit) = &self.transit else { return };
        // Two buffers, or the only one, are left to what is still to come.
        let may_wait = sweep.waiting.len() + self.late(sweep) + KEPT_FREE < transit.holds.len();
        let goes_now = sweep.stays[expert] && {
            let free = self.free_slot(sweep);
            free.is_some_and(|slot| self.move_to_slot(sweep.layer, expert, buffer, slot))
        };
        if goes_now {
            return;
        }
        if sweep.stays[expert] && may_wait {
            sweep.waiting.push(expert);
        } else if let Some(transit) = &mut self.transit {
            sweep.stays[expert] = false;
            transit.holds[buffer] = None;
        }
    }

    /// Buffers with experts that were read ahead and have their turn after one that still needs a buffer.
    fn late(&self, sweep: &Sweep<'_>) -> usize {
        let Some(transit) = &self.transit else { return 0 };
        if transit.early(sweep.layer).next().is_none() {
            return 0;
        }
        let lacks_place = |expert: &usize| sweep.due[*expert] && !self.is_placed(sweep.layer, *expert);
        let Some(first) = (0..self.experts).find(lacks_place) else { return 0 };
        transit.early(sweep.layer).filter(|&expert| expert > first && sweep.due[expert]).count()
    }

    /// Moves what waits into slots that have become free.
    fn place_waiting(&mut self, sweep: &mut Sweep<'_>) {
        while let Some(&expert) = sweep.waiting.last() {
            let buffer = self.transit.as_ref().and_then(|transit| transit.find(sweep.layer, expert));
            let (Some(buffer), Some(slot)) = (buffer, self.free_slot(sweep)) else { return };
            if !self.move_to_slot(sweep.layer, expert, buffer, slot) {
                return;
            }
            sweep.waiting.pop();
        }
    }

    /// Copies a blob from a transit buffer into a slot and frees the buffer.
    fn move_to_slot(&mut self, layer: usize, expert: usize, buffer: usize, slot: usize) -> bool {
        let Some(transit) = &mut self.transit else { return false };
        let Some(mut loan) = self.slots.lend(layer, slot) else { return false };
        let blob = transit.pool.get(0, buffer);
        if let Some(blob) = blob {
            loan.bytes().copy_from_slice(blob);
            transit.holds[buffer] = None;
            self.layers[layer].held[slot] = Some(expert);
        }
        let moved = blob.is_some();
        self.slots.take_back(loan);
        moved
    }
}

#[cfg(test)]
mod tests;
