//! Reading experts before anybody has asked for them: guesses for the layer to come, into spare slots, while the disk has
//! nothing else to do.
//!
//! Nothing that is held gives way to a guess. When the layer's experts are known, a guess that was right becomes the
//! layer's slot by changing places with it, read to its end first if need be; the others are called off and their slots
//! are spare again. What is delivered is the same bytes in every case.

use super::readers::{Job, Place};
use super::{ExpertStore, Request, Step};

/// A spare slot.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Spare {
    /// Layer and expert that it holds or waits for.
    holds: Option<(usize, usize)>,
    /// A read into it is out.
    coming: bool,
    /// The slot of its layer that it is to become.
    for_slot: Option<usize>,
}

impl ExpertStore {
    /// Has experts of `layer` read ahead that are likely to be wanted, best first: those not held, as far as there are
    /// spare slots, and at most `most`. They are read while no other read is out. How many were given to the readers.
    pub fn look_ahead(&mut self, layer: usize, guesses: &[usize], most: usize) -> usize {
        if self.spares.is_empty() || layer >= self.layers.len() {
            return 0;
        }
        self.call_off_guesses(|_, _| true);
        // Only what has ended is taken: there is nothing to wait for.
        while let Some(done) = self.readers.poll() {
            // A guess that failed is read again when it is wanted, and fails then; nothing else is out.
            let _ = self.take_back(done);
        }
        let mut given = 0;
        for &expert in guesses {
            if given == most {
                break;
            }
            if expert >= self.experts || self.layers[layer].held.contains(&Some(expert)) {
                continue;
            }
            let Some(at) = self.spares.iter().position(|spare| !spare.coming) else { break };
            let Some(loan) = self.slots.lend_spare(at) else { break };
            self.spares[at] = Spare { holds: Some((layer, expert)), coming: true, for_slot: None };
            self.readers.submit_ahead(Job { layer, expert, place: Place::Spare(at), whole: false, loan });
            self.stats.ahead_guesses += 1;
            given += 1;
        }
        given
    }

    /// Calls off the guesses that a request shows to be wrong, and forgets those that were read.
    pub(super) fn drop_guesses(&mut self, layer: usize, wanted: &[usize]) {
        self.call_off_guesses(|of, expert| of != layer || !wanted.contains(&expert));
    }

    fn call_off_guesses(&mut self, which: impl Fn(usize, usize) -> bool) {
        if self.spares.is_empty() {
            return;
        }
        self.readers.call_off(&which);
        // What is promised to a slot is no guess any more.
        for spare in self.spares.iter_mut().filter(|spare| spare.for_slot.is_none()) {
            spare.holds = spare.holds.filter(|&(layer, expert)| !which(layer, expert));
        }
    }

    /// Fills a slot with what a guess brought, or is about to: then it is read like anything else that was asked for. True if
    /// there is such a guess. A step of `request` whose expert is there joins the ones to be delivered.
    pub(super) fn take_guess(&mut self, request: &mut Request, at: usize) -> bool {
        let Step::Read { expert, slot, .. } = request.steps[at] else { return false };
        let layer = request.layer;
        let Some(number) = self.spares.iter().position(|spare| spare.holds == Some((layer, expert))) else {
            return false;
        };
        if self.spares[number].coming {
            // If the read has ended just now, it comes back like the others.
            self.readers.confirm(Place::Spare(number));
            self.spares[number].for_slot = Some(slot);
            let state = &mut self.layers[layer];
            state.held[slot] = None;
            state.coming[slot] = Some(expert);
            self.stats.ahead_used += 1;
            return true;
        }
        if !self.slots.change_places(layer, slot, number) {
            return false;
        }
        self.spares[number] = Spare::default();
        self.stats.ahead_wasted_bytes -= self.slots.stride() as u64; // counted when it was read
        let state = &mut self.layers[layer];
        (state.held[slot], state.coming[slot], state.ahead[slot]) = (Some(expert), None, false);
        self.stats.ahead_used += 1;
        self.stats.misses += 1;
        self.board.note_read(layer, expert);
        request.ready.push(at);
        true
    }

    /// Notes what a read into a spare slot left there; the slot of a layer that it has become.
    pub(super) fn end_spare(&mut self, number: usize, good: bool, bytes: usize) -> Option<usize> {
        let Spare { holds, for_slot, .. } = std::mem::take(&mut self.spares[number]);
        let (Some((layer, expert)), Some(slot)) = (holds, for_slot) else {
            self.stats.ahead_wasted_bytes += bytes as u64;
            self.spares[number].holds = holds.filter(|_| good);
            return None;
        };
        self.layers[layer].coming[slot] = None;
        if good && self.slots.change_places(layer, slot, number) {
            self.layers[layer].held[slot] = Some(expert);
        }
        Some(slot)
    }
}

#[cfg(test)]
mod tests;
