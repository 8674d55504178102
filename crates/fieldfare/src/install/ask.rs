//! The questions before an install over a network: which files the source has, the small ones, the shards' headers.

use std::io::Read;
use std::ops::ControlFlow;

use super::hub::{Hub, shown};
use super::plan::Piece;
use super::retry::{Fault, Patience};
use super::stream::{Dice, Event, fetch, sleep};
use super::{Progress, Stage};
use crate::format::safetensors::Header;
use crate::{Error, Result};

/// Asks a source, with patience.
pub(crate) struct Asker<'a, 'b> {
    pub(crate) hub: Hub,
    pub(crate) patience: Patience,
    pub(crate) listener: &'a mut (dyn FnMut(Progress) -> ControlFlow<()> + 'b),
}

impl Asker<'_, '_> {
    fn stop(&mut self) -> bool {
        (self.listener)(Progress { stage: Stage::Asking, done: 0, total: 0 }).is_break()
    }

    pub(crate) fn find(&mut self, name: &str) -> Result<Option<usize>> {
        let mut failed = 0;
        loop {
            if self.stop() {
                return Err(Error::Cancelled);
            }
            let (reason, after) = match self.hub.find(name) {
                Ok(found) => return Ok(found),
                Err(Fault::Fatal(error)) => return Err(error),
                Err(Fault::Again { reason, after }) => (reason, after),
                Err(Fault::Expired { reason }) => (reason, None),
            };
            failed += 1;
            let wait = self.patience.wait(failed, after, failed << 24).ok_or_else(|| Error::Network {
                url: shown(&self.hub.source()),
                reason: format!("{name}: given up after {failed} tries: {reason}"),
            })?;
            sleep(wait, &mut |_| self.stop())?;
        }
    }

    fn read(&mut self, file: usize, offset: u64, len: u64) -> Result<Vec<u8>> {
        if len == 0 {
            return Ok(Vec::new());
        }
        let listener = &mut *self.listener;
        let mut stop = |_: Event| listener(Progress { stage: Stage::Asking, done: 0, total: 0 }).is_break();
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
