//! A time that is up some time after it was set: what connections and streams are polled beside.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// Runs from the moment it is set; stopped, it is never up.
#[derive(Debug, Default)]
pub(crate) struct Clock(Option<Pin<Box<Sleep>>>);

impl Clock {
    /// Sets it, whether it runs or not.
    pub(crate) fn set(&mut self, time: Duration) {
        match &mut self.0 {
            Some(sleep) => sleep.as_mut().reset(Instant::now() + time),
            None => self.0 = Some(Box::pin(sleep(time))),
        }
    }

    /// Sets it unless it runs.
    pub(crate) fn start(&mut self, time: Duration) {
        if self.0.is_none() {
            self.set(time);
        }
    }

    /// Stops it.
    pub(crate) fn stop(&mut self) {
        self.0 = None;
    }

    /// Whether it runs.
    #[cfg(test)]
    pub(crate) fn runs(&self) -> bool {
        self.0.is_some()
    }

    /// Whether its time is up; else the task is woken when it is.
    pub(crate) fn is_up(&mut self, cx: &mut Context<'_>) -> bool {
        self.0.as_mut().is_some_and(|sleep| sleep.as_mut().poll(cx).is_ready())
    }
}
