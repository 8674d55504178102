//! Follows one answer by its control tokens, as the reader of answers does, and says what may come next.

use super::{Bound, Start};
use crate::sample::{Allowed, Guide, IdSet};
use crate::{Error, Result};
use llguidance::Matcher;

/// Where the answer is.
enum At {
    /// Before anything was said: at the beginning, or after a thought.
    Start {
        /// A thought may be opened.
        may_think: bool,
    },
    /// Behind the token that opens a channel; so many tokens of its name are there.
    Label(usize),
    /// In a thought of so many tokens.
    Thought(usize),
    /// In the answer, where nothing binds it.
    Free,
    /// In the JSON.
    Json(Box<Matcher>),
    /// In a call.
    Call(Box<Matcher>),
    /// After a call.
    AfterCall,
    /// Complete.
    Over,
}

impl std::fmt::Debug for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Start { .. } => "Start",
            Self::Label(_) => "Label",
            Self::Thought(_) => "Thought",
            Self::Free => "Free",
            Self::Json(_) => "Json",
            Self::Call(_) => "Call",
            Self::AfterCall => "AfterCall",
            Self::Over => "Over",
        })
    }
}

/// What may come next.
#[derive(Clone, Copy, Debug)]
enum Told {
    /// Anything.
    All,
    /// Anything that is not barred.
    NotBarred,
    /// What is in the set.
    InSet,
}

/// The guide of one answer.
#[derive(Debug)]
pub(super) struct Follower {
    bound: Bound,
    at: At,
    /// Ids that end the answer.
    stop: Vec<u32>,
    /// What a thought may not hold while something is still to come.
    barred: Vec<u32>,
    /// The set that was told last.
    set: IdSet,
    /// What may come next, if it was told since the last token came.
    told: Option<Result<Told>>,
    calls: usize,
    failed: Option<String>,
}

impl Follower {
    pub(super) fn new(bound: Bound, stop: &[u32]) -> Self {
        let control = &bound.control;
        let mut barred = stop.to_vec();
        barred.extend([control.channel_open, control.call_close, control.response_open]);
        if bound.call.is_none() {
            barred.push(control.call_open);
        }
        let at =
            if bound.starts_in_thought { At::Thought(0) } else { At::Start { may_think: bound.may_think } };
        Self {
            at,
            stop: stop.to_vec(),
            barred,
            set: IdSet::default(),
            told: None,
            calls: 0,
            failed: None,
            bound,
        }
    }

    /// Whether what comes outside of calls is bound.
    fn is_bound(&self) -> bool {
        self.bound.content.is_some() || (self.bound.forced && self.calls == 0)
    }

    /// The ids that end an answer here: a result that the model begins to write itself only behind a call.
    fn ends(&self) -> impl Iterator<Item = u32> + '_ {
        let response = self.bound.control.response_open;
        let called = self.calls > 0;
        self.stop.iter().copied().filter(move |&id| called || id != response)
    }

    /// Fills the set with what the matcher allows; its end is `ends`.
    fn fill(set: &mut IdSet, matcher: &mut Matcher, eos: u32, ends: &[u32]) -> Result<()> {
        let mask = matcher.compute_mask_or_eos().map_err(|error| lost(&error.to_string()))?;
        set.copy_words(mask.as_slice());
        if set.contains(eos) {
            set.remove(eos);
            ends.iter().for_each(|&id| set.insert(id));
        }
        if set.is_empty() { Err(lost("nothing can follow")) } else { Ok(()) }
    }

    fn open_call(&mut self) {
        match &self.bound.call {
            Some(Start(matcher)) => self.at = At::Call(Box::new(matcher.clone())),
            None => self.failed = Some("a call where there are no tools".to_owned()),
        }
    }

    fn outside(&mut self, id: u32) {
        let control = &self.bound.control;
        if id == control.call_open && self.bound.call.is_some() {
            return self.open_call();
        }
        if id == control.channel_open {
            self.at = At::Label(0);
            return;
        }
        if matches!(self.at, At::AfterCall) {
            return;
        }
        match &self.bound.content {
            Some(Start(matcher)) if self.is_bound() => {
                self.at = At::Json(Box::new(matcher.clone()));
                self.inside(id);
            }
            _ => self.at = At::Free,
        }
    }

    /// Feeds the matcher.
    fn inside(&mut self, id: u32) {
        let close = self.bound.control.call_close;
        match &mut self.at {
            At::Call(_) if id == close => {
                self.calls += 1;
                self.at = if self.bound.single_call { At::Over } else { At::AfterCall };
            }
            At::Call(matcher) => {
                if let Err(error) = matcher.consume_token(id) {
                    self.failed = Some(error.to_string());
                }
            }
            At::Json(matcher) => match matcher.consume_token(id) {
                Ok(()) if matcher.is_stopped() => self.at = At::Over,
                Ok(()) => {}
                Err(error) => self.failed = Some(error.to_string()),
            },
            _ => {}
        }
    }

    /// Finds what may come next.
    fn tell(&mut self) -> Result<Told> {
        if let Some(reason) = &self.failed {
            return Err(lost(reason));
        }
        let control = &self.bound.control;
        let (open, close) = (control.channel_open, control.channel_close);
        let (call_open, call_close, eos) = (control.call_open, control.call_close, control.eos);
        let bound = self.is_bound();
        match &mut self.at {
            At::Start { may_think } if bound => {
                let may_think = *may_think;
                self.set = IdSet::default();
                if !self.bound.forced
                    && let Some(Start(matcher)) = &self.bound.content
                {
                    let ends: Vec<u32> = self.ends().collect();
                    Self::fill(&mut self.set, &mut matcher.clone(), eos, &ends)?;
                }
                if self.bound.call.is_some() {
                    self.set.insert(call_open);
                }
                if may_think {
                    self.set.insert(open);
                }
                Ok(Told::InSet)
            }
            At::Label(done) if bound => {
                self.set = self.bound.label.get(*done).copied().into_iter().collect();
                Ok(Told::InSet)
            }
            At::Thought(made) if self.bound.thought_tokens.is_some_and(|most| *made >= most) => {
                self.set = [close].into_iter().collect();
                Ok(Told::InSet)
            }
            At::Thought(_) if bound => Ok(Told::NotBarred),
            At::Json(_) => {
                let ends: Vec<u32> = self.ends().collect();
                let At::Json(matcher) = &mut self.at else { return Ok(Told::All) };
                Self::fill(&mut self.set, matcher, eos, &ends)?;
                Ok(Told::InSet)
            }
            At::Call(matcher) => {
                Self::fill(&mut self.set, matcher, eos, &[call_close])?;
                Ok(Told::InSet)
            }
            At::AfterCall => {
                let mut set: IdSet = self.ends().collect();
                set.insert(call_open);
                self.set = set;
                Ok(Told::InSet)
            }
            At::Start { .. } | At::Label(_) | At::Thought(_) | At::Free | At::Over => Ok(Told::All),
        }
    }
}

fn lost(reason: &str) -> Error {
    let reason: String = reason.chars().take(200).collect();
    Error::Unsupported(format!("the grammar of this answer: {reason}"))
}

impl Guide for Follower {
    fn allowed(&mut self) -> Result<Allowed<'_>> {
        let told = match self.told.take() {
            Some(told) => told?,
            None => self.tell()?,
        };
        self.told = Some(Ok(told));
        Ok(match told {
            Told::All => Allowed::All,
            Told::NotBarred => Allowed::AllBut(&self.barred),
            Told::InSet => Allowed::Only(&self.set),
        })
    }

    fn prepare(&mut self) {
        self.told = Some(self.tell());
    }

    fn is_slow(&self) -> bool {
        match self.at {
            At::Json(_) | At::Call(_) => true,
            At::Start { .. } => self.is_bound() && !self.bound.forced && self.bound.content.is_some(),
            _ => false,
        }
    }

    fn accept(&mut self, id: u32) {
        self.told = None;
        let control = &self.bound.control;
        let (open, close, call_open) = (control.channel_open, control.channel_close, control.call_open);
        match &mut self.at {
            At::Label(_) | At::Thought(_) if id == call_open && self.bound.call.is_some() => self.open_call(),
            At::Label(_) | At::Thought(_) if id == close => {
                self.at = if self.is_bound() { At::Start { may_think: false } } else { At::Free };
            }
            At::Label(_) | At::Thought(_) if id == open => self.at = At::Label(0),
            At::Label(done) => {
                *done += 1;
                // A name of another length (unbound answers choose their own) counts to the thought.
                if *done >= self.bound.label.len() {
                    self.at = At::Thought(0);
                }
            }
            At::Thought(made) => *made += 1,
            At::Start { .. } | At::Free | At::AfterCall => self.outside(id),
            At::Json(_) | At::Call(_) => self.inside(id),
            At::Over => {}
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.at, At::Over)
    }
}
