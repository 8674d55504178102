//! The answers of one request: as many under way at once as may be, the next as one ends.

use crate::door::{Answer, Place, Update, Work};
use crate::wire::error::ApiError;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Answers of a request, by their numbers.
pub(crate) struct Choices {
    place: Arc<Place>,
    rest: VecDeque<Work>,
    live: Vec<(usize, Answer)>,
    most: usize,
    next: usize,
    /// Whose turn it is to be asked first.
    turn: usize,
}

impl Choices {
    /// Hands in as much of the work as `most` allows.
    pub(crate) fn new(place: Place, works: VecDeque<Work>, most: usize) -> Self {
        let place = Arc::new(place);
        let mut choices = Self { place, rest: works, live: Vec::new(), most: most.max(1), next: 0, turn: 0 };
        choices.fill();
        choices
    }

    /// Answers that were begun so far.
    pub(crate) fn begun(&self) -> usize {
        self.next
    }

    fn fill(&mut self) {
        while self.live.len() < self.most
            && let Some(work) = self.rest.pop_front()
        {
            self.live.push((self.next, Place::submit(&self.place, work)));
            self.next += 1;
        }
    }

    /// The next piece of any of them, with its number; `None` once all have ended. With the end of one that went well the
    /// next is begun; where one fails, all are called off.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, Update)>> {
        if self.live.is_empty() {
            return Poll::Ready(None);
        }
        for step in 0..self.live.len() {
            let at = (self.turn + step) % self.live.len();
            let (number, answer) = &mut self.live[at];
            let number = *number;
            let Poll::Ready(update) = answer.poll_next(cx) else { continue };
            let update = update.unwrap_or_else(|| Update::Failed(Box::new(ApiError::internal())));
            match &update {
                Update::Done(outcome) if outcome.generation.call_error.is_none() => {
                    self.live.remove(at);
                    self.fill();
                }
                Update::Done(_) | Update::Failed(_) => self.call_off(),
                _ => self.turn = at + 1,
            }
            return Poll::Ready(Some((number, update)));
        }
        Poll::Pending
    }

    /// Ends all that are under way; nobody has left.
    fn call_off(&mut self) {
        self.rest.clear();
        self.place.excuse();
        self.live.clear();
    }
}
