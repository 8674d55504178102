//! Flushing and journaling, beside the work on what comes next: a step's number is recorded when its data is on the disk.
//!
//! Steps are gathered until a quarter of a request's bytes waits or some time has passed, then each file is flushed once.
//! What a killed run has to fetch again is bounded by that, and by what is on its way.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::journal::Journal;
use crate::sys::disk;
use crate::{Error, Result};

/// Steps that may wait for the thread while it flushes.
const WAITING: usize = 8;
/// Longest time that a step waits to be flushed.
const LATEST: Duration = Duration::from_secs(2);

/// What is to be recorded.
pub(crate) enum Step {
    /// A step of `bytes` bytes was written to `file`, the output of that number.
    Done { number: usize, bytes: u64, output: usize, file: Arc<(File, PathBuf)> },
    /// An output file is complete and has this hash.
    File { output: usize, sha256: [u8; 32] },
    /// A shard was proven.
    Proven(usize),
    /// These steps of this output are not done after all.
    Undo { output: usize, steps: std::ops::Range<usize> },
}

/// The thread that flushes.
pub(crate) struct Committer {
    send: Option<SyncSender<Step>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Committer {
    /// Starts it; the journal is its own from here on. It flushes when `batch` bytes wait.
    pub(crate) fn start(journal: Journal, batch: u64) -> Result<Self> {
        let (send, steps) = sync_channel(WAITING);
        let batch =
            Batch { journal, most: batch, steps: Vec::new(), bytes: 0, files: BTreeMap::new(), first: None };
        let thread = std::thread::Builder::new()
            .name("commit".into())
            .spawn(move || batch.run(&steps))
            .map_err(Error::io("start a thread for", "the journal"))?;
        Ok(Self { send: Some(send), thread: Some(thread) })
    }

    /// Hands a step over.
    ///
    /// # Errors
    /// What went wrong with an earlier one.
    pub(crate) fn push(&mut self, step: Step) -> Result<()> {
        match self.send.as_ref().map(|send| send.send(step)) {
            Some(Ok(())) => Ok(()),
            // It ended early, so it has something to say.
            _ => self.join(),
        }
    }

    /// Waits until everything is on the disk and recorded.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.join()
    }

    fn join(&mut self) -> Result<()> {
        self.send = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(done)) => done,
            _ => Err(Error::Unsupported("the journal's thread ended".into())),
        }
    }
}

impl Drop for Committer {
    /// The place stays locked until the last line is written.
    fn drop(&mut self) {
        self.send = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Steps that wait to be flushed.
struct Batch {
    journal: Journal,
    most: u64,
    steps: Vec<usize>,
    bytes: u64,
    files: BTreeMap<usize, Arc<(File, PathBuf)>>,
    /// When the oldest came.
    first: Option<Instant>,
}

impl Batch {
    fn run(mut self, steps: &Receiver<Step>) -> Result<()> {
        loop {
            let wait = self.first.map_or(LATEST, |first| LATEST.saturating_sub(first.elapsed()));
            match steps.recv_timeout(wait) {
                Ok(Step::Done { number, bytes, output, file }) => {
                    self.steps.push(number);
                    self.bytes += bytes;
                    self.files.insert(output, file);
                    self.first.get_or_insert_with(Instant::now);
                    if self.bytes >= self.most {
                        self.flush()?;
                    }
                }
                Ok(Step::File { output, sha256 }) => {
                    self.flush()?;
                    self.journal.file(output, &sha256)?;
                }
                Ok(Step::Proven(shard)) => {
                    self.flush()?;
                    self.journal.proven(shard)?;
                }
                Ok(Step::Undo { output, steps }) => {
                    self.flush()?;
                    self.journal.undo(output, &steps)?;
                }
                Err(RecvTimeoutError::Timeout) => self.flush()?,
                Err(RecvTimeoutError::Disconnected) => return self.flush(),
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        for file in std::mem::take(&mut self.files).into_values() {
            disk::flush(&file.0, &file.1).map_err(Error::io("sync", &file.1))?;
        }
        let steps = std::mem::take(&mut self.steps);
        (self.bytes, self.first) = (0, None);
        if steps.is_empty() { Ok(()) } else { self.journal.done(steps) }
    }
}
