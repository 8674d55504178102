//! The decode service, seen from the window's process: started, watched, started again, ended.
//!
//! A service that ends without being asked is started again with the same model and settings, at most [`RESTARTS`] times
//! in [`WINDOW`]; then it stays down until the person loads the model again. What one process said is never taken for
//! another's: each start has a number.

mod ending;

pub(crate) use ending::explain;

use crate::client::Client;
use crate::message::{EngineSettings, Model, Plan, Service as State, Trouble};
use crate::process::{Heard, Process};
use crate::wire::{Task, Told};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Starts by itself at most, in [`WINDOW`].
const RESTARTS: usize = 3;
const WINDOW: Duration = Duration::from_secs(60);

/// The one service.
pub(crate) struct Service {
    command: Vec<OsString>,
    locks: Option<PathBuf>,
    /// What is loaded, or was to be.
    wanted: Option<(Model, EngineSettings)>,
    process: Option<Process>,
    /// Which start it is.
    number: u64,
    key: String,
    /// Where it answers, once it does.
    client: Option<Client>,
    /// It has said why it failed.
    failed: Option<Trouble>,
    /// When it was last started by itself.
    restarts: VecDeque<Instant>,
}

/// What became of the service.
pub(crate) enum News {
    /// Nothing to say.
    None,
    /// It answers.
    Ready(Model, Plan),
    /// It ended or failed; what to tell the window.
    Down(State),
}

impl Service {
    /// None yet.
    pub(crate) fn new(command: Vec<OsString>, locks: Option<PathBuf>) -> Self {
        Self {
            command,
            locks,
            wanted: None,
            process: None,
            number: 0,
            key: String::new(),
            client: None,
            failed: None,
            restarts: VecDeque::new(),
        }
    }

    /// Starts it with a model, because the person asked.
    pub(crate) fn load(
        &mut self,
        model: Model,
        settings: EngineSettings,
        hear: impl Fn(u64, Heard) + Send + 'static,
    ) -> State {
        self.unload();
        self.restarts.clear();
        self.wanted = Some((model, settings));
        self.start(hear)
    }

    /// Starts what is wanted.
    pub(crate) fn start(&mut self, hear: impl Fn(u64, Heard) + Send + 'static) -> State {
        let Some((model, settings)) = self.wanted.clone() else { return State::Off };
        self.end_process();
        self.number += 1;
        let number = self.number;
        self.key = key();
        let task = Task::Serve {
            model: model.path.clone(),
            settings,
            key: self.key.clone(),
            locks: self.locks.clone(),
        };
        match Process::start(&self.command, &task, move |heard| hear(number, heard)) {
            Ok(process) => {
                self.process = Some(process);
                State::Starting { model }
            }
            Err(trouble) => State::Failed(trouble),
        }
    }

    /// Ends it and forgets the model; its memory is free when this returns.
    pub(crate) fn unload(&mut self) {
        self.end_process();
        self.wanted = None;
    }

    /// Ends the process; the model stays wanted.
    pub(crate) fn end_process(&mut self) {
        // What it still says is not of the next one.
        self.number += 1;
        self.process = None;
        self.client = None;
        self.failed = None;
    }

    /// What is loaded, or was to be.
    pub(crate) fn wanted(&self) -> Option<&(Model, EngineSettings)> {
        self.wanted.as_ref()
    }

    /// The way to it, if it answers.
    pub(crate) fn client(&self) -> Option<&Client> {
        self.client.as_ref()
    }

    /// The reason behind its last internal error, which it tells nobody over HTTP.
    pub(crate) fn internal_error(&self) -> Option<String> {
        self.process.as_ref()?.take_said("internal error: ")
    }

    /// Whether there is a process that may answer yet.
    pub(crate) fn is_starting(&self) -> bool {
        self.process.is_some() && self.client.is_none()
    }

    /// Something was heard. After [`News::Down`] with `restarting`, [`Service::start`] is to follow.
    pub(crate) fn hear(&mut self, number: u64, heard: Heard) -> News {
        if number != self.number {
            return News::None;
        }
        match heard {
            Heard::Told(Told::Ready { address, plan, .. }) => {
                let Some((model, _)) = &self.wanted else { return News::None };
                self.client = Some(Client::new(&address, self.key.clone()));
                News::Ready(model.clone(), plan)
            }
            Heard::Told(Told::Failed(trouble)) => {
                self.failed = Some(trouble);
                News::None
            }
            Heard::Told(_) => News::None,
            Heard::Ended(ending) => {
                let failed = self.failed.take();
                self.end_process();
                if let Some(trouble) = failed {
                    // It would fail again.
                    return News::Down(State::Failed(trouble));
                }
                let restarting = self.may_restart(Instant::now());
                News::Down(State::Crashed { trouble: explain(&ending), restarting })
            }
        }
    }

    fn may_restart(&mut self, now: Instant) -> bool {
        while self.restarts.front().is_some_and(|&at| now.duration_since(at) >= WINDOW) {
            self.restarts.pop_front();
        }
        let may = self.restarts.len() < RESTARTS;
        if may {
            self.restarts.push_back(now);
        }
        may
    }
}

/// A key that nobody guesses: 256 bits out of the keyed hash whose key the system has drawn.
fn key() -> String {
    let state = std::hash::RandomState::new();
    let words = (0..4u64).map(|number| {
        let mut hasher = state.build_hasher();
        hasher.write_u64(number);
        format!("{:016x}", hasher.finish())
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_starts_in_a_minute_and_no_more() {
        let mut service = Service::new(Vec::new(), None);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!([0, 1, 2].into_iter().all(|second| service.may_restart(at(second))));
        assert!(!service.may_restart(at(3)) && !service.may_restart(at(59)));
        assert!(service.may_restart(at(60)), "the first is a minute ago");
        assert!(!service.may_restart(at(60)));
    }

    #[test]
    fn keys_are_long_and_new_each_time() {
        let (a, b) = (key(), key());
        assert!(a.len() == 64 && a.bytes().all(|byte| byte.is_ascii_hexdigit()), "{a}");
        assert_ne!(a, b);
        let words: Vec<&str> = (0..4).map(|word| &a[16 * word..16 * word + 16]).collect();
        assert!(words.iter().enumerate().all(|(at, word)| !words[..at].contains(word)), "{a}");
    }
}
