//! Flushing and journaling, beside the work on what comes next: a step's number is recorded when its data is on the disk.
//!
//! Steps are gathered for a while, then each file is flushed once. No more than a given number of bytes is written and not yet
//! recorded. The window hears of what is recorded: it bounds what a killed run has to fetch again.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::journal::Journal;
use super::stream::TICK;
use super::window::Window;
use crate::sys::disk;
use crate::{Error, Result};

/// Longest time that a step waits to be flushed.
const LATEST: Duration = Duration::from_secs(2);

/// What is to be recorded.
pub(crate) enum Step {
    /// A step of `bytes` bytes was written to `file`, the output of that number. It is the last one that needed so many bytes of
    /// `sides`.
    Done { number: usize, bytes: u64, sides: u64, output: usize, file: Arc<(File, PathBuf)> },
    /// An output file is complete and has this hash.
    File { output: usize, sha256: [u8; 32] },
    /// A shard was proven.
    Proven(usize),
    /// Nothing: what was handed over is to be flushed at once, since somebody waits for room.
    Now,
    /// These steps of this output are not done after all.
    Undo { output: usize, steps: std::ops::Range<usize> },
}

/// The thread that flushes.
pub(crate) struct Committer {
    send: Option<Sender<Step>>,
    thread: Option<JoinHandle<Result<()>>>,
    open: Arc<Open>,
    most: u64,
}

/// Bytes that were written and are not recorded.
#[derive(Default)]
struct Open {
    bytes: Mutex<u64>,
    fewer: Condvar,
}

impl Open {
    fn bytes(&self) -> MutexGuard<'_, u64> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if there is something, and no room beside it.
    fn lacks(&self, bytes: u64, most: u64) -> bool {
        let open = *self.bytes();
        open > 0 && open.saturating_add(bytes) > most
    }

    /// Waits until there is room, unless nothing else is there.
    fn add(&self, bytes: u64, most: u64) {
        let mut open = self.bytes();
        while *open > 0 && open.saturating_add(bytes) > most {
            open = self.fewer.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
        *open = open.saturating_add(bytes);
    }

    fn sub(&self, bytes: u64) {
        let mut open = self.bytes();
        *open = open.saturating_sub(bytes);
        drop(open);
        self.fewer.notify_all();
    }
}

impl Committer {
    /// Starts it; the journal is its own from here on. At most `most` bytes, or one step, are written and not recorded.
    pub(crate) fn start(journal: Journal, most: u64, window: Arc<Window>) -> Result<Self> {
        let (send, steps) = channel();
        let open = Arc::new(Open::default());
        let (files, of) = (BTreeMap::new(), open.clone());
        let batch = Batch {
            journal,
            most: most / 2,
            steps: Vec::new(),
            bytes: 0,
            sides: 0,
            files,
            first: None,
            open: of,
            window,
        };
        let thread = std::thread::Builder::new()
            .name("commit".into())
            .spawn({
                let open = open.clone();
                move || {
                    let ended = batch.run(&steps);
                    // Nobody waits for what will not be flushed.
                    drop(steps);
                    open.sub(u64::MAX);
                    ended
                }
            })
            .map_err(Error::io("start a thread for", "the journal"))?;
        Ok(Self { send: Some(send), thread: Some(thread), open, most })
    }

    /// Hands a step over, when there is room for its bytes.
    ///
    /// # Errors
    /// What went wrong with an earlier one.
    pub(crate) fn push(&mut self, step: Step) -> Result<()> {
        if let Step::Done { bytes, .. } = &step {
            if self.open.lacks(*bytes, self.most)
                && let Some(send) = &self.send
            {
                // If the thread has ended, that shows below.
                let _ = send.send(Step::Now);
            }
            self.open.add(*bytes, self.most);
        }
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
    sides: u64,
    files: BTreeMap<usize, Arc<(File, PathBuf)>>,
    /// When the oldest came.
    first: Option<Instant>,
    open: Arc<Open>,
    window: Arc<Window>,
}

impl Batch {
    fn run(mut self, steps: &Receiver<Step>) -> Result<()> {
        loop {
            let left = self.first.map_or(LATEST, |first| LATEST.saturating_sub(first.elapsed()));
            match steps.recv_timeout(left.min(TICK)) {
                Ok(Step::Done { number, bytes, sides, output, file }) => {
                    self.steps.push(number);
                    self.bytes += bytes;
                    self.sides += sides;
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
                Ok(Step::Now) => self.flush()?,
                // Late enough, or somebody waits for room.
                Err(RecvTimeoutError::Timeout) if left.is_zero() || self.window.take_wanted() => {
                    self.flush()?;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.flush(),
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        for file in std::mem::take(&mut self.files).into_values() {
            disk::flush(&file.0, &file.1).map_err(Error::io("sync", &file.1))?;
        }
        let steps = std::mem::take(&mut self.steps);
        self.first = None;
        if !steps.is_empty() {
            self.journal.done(steps)?;
        }
        let bytes = std::mem::take(&mut self.bytes);
        self.open.sub(bytes);
        self.window.recorded(bytes, std::mem::take(&mut self.sides));
        Ok(())
    }
}
