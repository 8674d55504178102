//! A guide that is asked ahead. What may come next depends on the tokens before it and on nothing else, so it can be told
//! while the model computes the logits that it will be applied to: on a thread of its own, to which the guide goes and from
//! which it comes back.

use super::guide::Guide;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

/// A guide, here or with its helper.
#[derive(Debug)]
pub(super) struct Ahead {
    /// Nothing while the helper has it.
    guide: Option<Box<dyn Guide>>,
    over: bool,
    helper: Option<Helper>,
    /// There was no thread to be had.
    alone: bool,
}

/// A thread that prepares a guide and gives it back. It ends when nobody can send it one.
#[derive(Debug)]
struct Helper {
    to: Sender<Box<dyn Guide>>,
    back: Receiver<Box<dyn Guide>>,
    thread: JoinHandle<()>,
}

impl Helper {
    fn start() -> std::io::Result<Self> {
        let (to, given) = channel::<Box<dyn Guide>>();
        let (give, back) = channel();
        let work = move || {
            for mut guide in given {
                guide.prepare();
                // Whoever asked may have gone meanwhile.
                if give.send(guide).is_err() {
                    break;
                }
            }
        };
        let thread = Builder::new().name("fieldfare guide".to_owned()).spawn(work)?;
        Ok(Self { to, back, thread })
    }
}

impl Ahead {
    pub(super) fn new(guide: Box<dyn Guide>) -> Self {
        Self { over: guide.is_over(), guide: Some(guide), helper: None, alone: false }
    }

    /// The guide, until it is put back; it is waited for where the helper is not done with it. Nothing if it was lost.
    pub(super) fn take(&mut self) -> Option<Box<dyn Guide>> {
        if self.guide.is_some() {
            return self.guide.take();
        }
        let helper = self.helper.take()?;
        if let Ok(guide) = helper.back.recv() {
            self.helper = Some(helper);
            return Some(guide);
        }
        // What broke it is the caller's, as it would be without a helper.
        if let Err(panic) = helper.thread.join() {
            std::panic::resume_unwind(panic);
        }
        None
    }

    /// Puts the guide back.
    pub(super) fn put(&mut self, guide: Box<dyn Guide>) {
        self.over = guide.is_over();
        self.guide = Some(guide);
    }

    /// Whether the answer is complete.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Has what may come next told meanwhile, where that takes time.
    pub(super) fn prepare(&mut self) {
        if self.alone || self.over || !self.guide.as_ref().is_some_and(|guide| guide.is_slow()) {
            return;
        }
        if self.helper.is_none() {
            self.helper = Helper::start().ok();
            self.alone = self.helper.is_none();
        }
        let (Some(helper), Some(guide)) = (&self.helper, self.guide.take()) else { return };
        if let Err(unsent) = helper.to.send(guide) {
            self.guide = Some(unsent.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Allowed, IdSet, Sampler, Sampling};
    use crate::{Error, Result};
    use std::sync::mpsc::sync_channel;
    use std::thread::{self, ThreadId};

    /// Allows the id that is one more than the last; does as it is told while it prepares.
    #[derive(Debug, Default)]
    struct Counting {
        set: IdSet,
        next: u32,
        prepared: Option<ThreadId>,
        /// Prepares until something comes.
        gate: Option<Receiver<()>>,
        breaks: bool,
        fails: bool,
        /// Hears on which thread an answer was told.
        told_on: Option<Sender<ThreadId>>,
    }

    impl Guide for Counting {
        fn allowed(&mut self) -> Result<Allowed<'_>> {
            if let Some(told) = &self.told_on {
                told.send(self.prepared.take().unwrap_or(thread::current().id())).unwrap();
            }
            if self.fails {
                return Err(Error::Unsupported("too complex".to_owned()));
            }
            self.set = [self.next].into_iter().collect();
            Ok(Allowed::Only(&self.set))
        }

        fn accept(&mut self, id: u32) {
            self.next = id + 1;
        }

        fn is_over(&self) -> bool {
            self.next == 5
        }

        fn prepare(&mut self) {
            if let Some(gate) = &self.gate {
                let _ = gate.recv();
            }
            assert!(!self.breaks, "broken");
            self.prepared = Some(thread::current().id());
        }

        fn is_slow(&self) -> bool {
            true
        }
    }

    fn sampler(guide: Counting) -> Sampler {
        let sampling = Sampling { seed: Some(1), ..Sampling::default() };
        Sampler::new(&sampling, 8).unwrap().guided(Some(Box::new(guide)))
    }

    #[test]
    fn what_may_come_is_told_on_another_thread_and_is_the_same() {
        let (told_on, told) = channel();
        let mut ahead = sampler(Counting { told_on: Some(told_on), ..Counting::default() });
        let mut inline = sampler(Counting::default());
        for expected in 0..5 {
            ahead.look_ahead();
            // To ask again changes nothing.
            ahead.look_ahead();
            for sampler in [&mut ahead, &mut inline] {
                assert!(!sampler.is_over());
                assert_eq!(sampler.choose(&mut [0.0; 8]).unwrap(), expected);
                sampler.accept(expected);
            }
            assert_ne!(told.recv().unwrap(), thread::current().id());
        }
        ahead.look_ahead();
        assert!(ahead.is_over() && inline.is_over());
    }

    #[test]
    fn nobody_waits_for_a_guide_but_who_chooses() {
        let (open, gate) = sync_channel(1);
        let mut waited = sampler(Counting { gate: Some(gate), ..Counting::default() });
        // The helper is at the gate, and the caller goes on.
        waited.look_ahead();
        assert!(!waited.is_over());
        open.send(()).unwrap();
        assert_eq!(waited.choose(&mut [0.0; 8]).unwrap(), 0);
        // An answer that is given up does not wait; its guide is gone once it is done.
        let (open, gate) = sync_channel(0);
        let mut left = sampler(Counting { gate: Some(gate), ..Counting::default() });
        left.look_ahead();
        drop(left);
        open.send(()).unwrap();
        while open.send(()).is_ok() {}
    }

    #[test]
    fn what_goes_wrong_is_told_to_who_chooses() {
        let mut failing = sampler(Counting { fails: true, ..Counting::default() });
        failing.look_ahead();
        assert!(failing.choose(&mut [0.0; 8]).is_err());
        let mut broken = sampler(Counting { breaks: true, ..Counting::default() });
        broken.look_ahead();
        let panic = std::panic::AssertUnwindSafe(|| broken.choose(&mut [0.0; 8]));
        let said = std::panic::catch_unwind(panic).unwrap_err();
        assert_eq!(said.downcast_ref::<&str>(), Some(&"broken"));
        // And nothing is chosen without it.
        assert!(broken.choose(&mut [0.0; 8]).is_err());
    }
}
