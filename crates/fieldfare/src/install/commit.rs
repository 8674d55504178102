//! Flushing and journaling, beside the work on the next unit: a unit's line is written when its data is on the disk.

use std::fs::File;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::journal::Journal;
use crate::{Error, Result};

/// Units that may wait to be flushed. A killed run loses them, so it is few.
const WAITING: usize = 1;

/// What is to be recorded.
pub(crate) enum Step {
    /// A unit was written to `file`, which is `path`; `whole` if nothing more comes there.
    Unit { file: File, path: PathBuf, whole: bool, number: usize, prefix: [u8; 32] },
    /// A shard was proven.
    Proven(usize),
    /// Units from this one on are not done after all.
    Back(usize),
}

/// The thread that flushes.
pub(crate) struct Committer {
    send: Option<SyncSender<Step>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Committer {
    /// Starts it; the journal is its own from here on.
    pub(crate) fn start(journal: Journal) -> Result<Self> {
        let (send, steps) = sync_channel(WAITING);
        let thread = std::thread::Builder::new()
            .name("commit".into())
            .spawn(move || commit(journal, &steps))
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

fn commit(mut journal: Journal, steps: &Receiver<Step>) -> Result<()> {
    for step in steps {
        match step {
            Step::Unit { file, path, whole, number, prefix } => {
                let synced = if whole { file.sync_all() } else { file.sync_data() };
                synced.map_err(Error::io("sync", &path))?;
                journal.unit(number, &prefix)?;
            }
            Step::Proven(shard) => journal.proven(shard)?,
            Step::Back(number) => journal.back_to(number)?,
        }
    }
    Ok(())
}
