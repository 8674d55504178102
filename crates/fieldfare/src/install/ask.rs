//! The questions before an install over a network: which files the source has, the small ones, the shards' headers.

use std::io::Read;
use std::ops::ControlFlow;

use super::hub::{Hub, shown};
use super::plan::Piece;
use super::retry::{Fault, NO_HOST_TRIES, Patience};
use super::stream::{Dice, Event, fetch, sleep};
use super::{Listener, Progress, Stage, Trouble};
use crate::format::safetensors::Header;
use crate::{Error, Result};

/// Asks a source, with patience.
pub(crate) struct Asker<'a, 'b> {
    pub(crate) hub: Hub,
    pub(crate) patience: Patience,
    pub(crate) listener: &'a mut (dyn FnMut(Progress) -> ControlFlow<()> + 'b),
    /// The source has answered once.
    pub(crate) answered: bool,
}

/// Tells the listener what happens while the source is asked; true if it wants no more.
pub(crate) fn tell(listener: Listener<'_>, event: &Event) -> bool {
    let waiting = if let Event::Pause(waiting) = event { Some(*waiting) } else { None };
    listener(Progress { waiting, ..Progress::of(Stage::Asking, 0, 0) }).is_break()
}

impl Asker<'_, '_> {
    fn stop(&mut self) -> bool {
        tell(self.listener, &Event::Waiting)
    }

    pub(crate) fn find(&mut self, name: &str) -> Result<Option<usize>> {
        let mut failed = 0;
        loop {
            if self.stop() {
                return Err(Error::Cancelled);
            }
            let (reason, trouble, after) = match self.hub.find(name) {
                Ok(found) => {
                    self.answered = true;
                    return Ok(found);
                }
                Err(Fault::Fatal(error)) => return Err(error),
                Err(Fault::Again { reason, trouble, after }) => (reason, trouble, after),
                Err(Fault::Expired { reason }) => (reason, Trouble::Expired, None),
            };
            failed += 1;
            let mut patience = self.patience;
            if trouble == Trouble::NoHost && !self.answered {
                patience.tries = patience.tries.min(NO_HOST_TRIES);
            }
            let wait = patience.wait(failed, after, failed << 24).ok_or_else(|| Error::Network {
                url: shown(&self.hub.source()),
                reason: format!("{name}: given up after {failed} tries: {reason}"),
            })?;
            sleep(wait, trouble, &mut |event| tell(self.listener, &event))?;
        }
    }

    fn read(&mut self, file: usize, offset: u64, len: u64) -> Result<Vec<u8>> {
        if len == 0 {
            return Ok(Vec::new());
        }
        let listener = &mut *self.listener;
        let mut stop = |event: Event| tell(listener, &event);
        let piece = Piece { file, offset, len };
        let bytes = fetch(&self.hub, &self.patience, &piece, &mut Dice(7), &mut stop)?;
        Ok(bytes.to_vec())
    }

    /// A small file as a whole.
    pub(crate) fn small(&mut self, name: &str, cap: u64) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.find(name)? else { return Ok(None) };
        let size = self.hub.file(file).size;
        if size > cap {
            return Err(Error::damaged(name, format!("{size} bytes exceed the {cap}-byte cap")));
        }
        self.read(file, 0, size).map(Some)
    }

    pub(crate) fn header(&mut self, name: &str, files: &mut Vec<usize>) -> Result<Header> {
        let file = self.find(name)?.ok_or_else(|| Error::damaged(name, "missing at the source"))?;
        files.push(file);
        let size = self.hub.file(file).size;
        let mut at = 0;
        let mut failure = None;
        let mut reader = FromFn(|buf: &mut [u8]| {
            let len = (buf.len() as u64).min(size - at);
            match self.read(file, at, len) {
                Ok(bytes) => {
                    buf[..bytes.len()].copy_from_slice(&bytes);
                    at += len;
                    Ok(bytes.len())
                }
                Err(error) => {
                    failure = Some(error);
                    Err(std::io::Error::other("the request failed"))
                }
            }
        });
        let header = Header::read(name, &mut reader, size);
        failure.map_or(header, Err)
    }
}

/// A reader made of a function.
struct FromFn<F>(F);

impl<F: FnMut(&mut [u8]) -> std::io::Result<usize>> Read for FromFn<F> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        (self.0)(buf)
    }
}
