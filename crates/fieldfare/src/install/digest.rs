//! Hashes of the finished output files, taken beside the work, normally out of the system's page cache: they are written in
//! no order, so the hash cannot be taken on the way.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::sink::CHUNK;
use crate::sys::file::read_exact_at;
use crate::{Error, Result};

/// A file to hash: its number, itself, its length.
type Order = (usize, Arc<(File, PathBuf)>, u64);

/// The thread that hashes.
pub(crate) struct Digester {
    send: Option<Sender<Order>>,
    results: Receiver<Result<(usize, [u8; 32])>>,
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    open: usize,
}

impl Digester {
    /// Starts it.
    pub(crate) fn start() -> Result<Self> {
        let (send, orders) = channel::<Order>();
        let (answer, results) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let heed = stop.clone();
        let thread = std::thread::Builder::new()
            .name("digest".into())
            .spawn(move || {
                for (number, file, len) in orders {
                    // Whoever no longer listens has stopped.
                    let _ = answer.send(digest(&file, len, &heed).map(|sha256| (number, sha256)));
                }
            })
            .map_err(Error::io("start a thread for", "the hashes"))?;
        Ok(Self { send: Some(send), results, thread: Some(thread), stop, open: 0 })
    }

    /// Asks for the hash of a file of which every byte was written.
    pub(crate) fn push(&mut self, number: usize, file: Arc<(File, PathBuf)>, len: u64) {
        if self.send.as_ref().is_some_and(|send| send.send((number, file, len)).is_ok()) {
            self.open += 1;
        }
    }

    /// A hash that is ready, waiting a little if asked to. `None` if there is none yet.
    pub(crate) fn ready(&mut self, wait: Duration) -> Result<Option<(usize, [u8; 32])>> {
        match self.results.recv_timeout(wait) {
            Ok(result) => {
                self.open -= 1;
                result.map(Some)
            }
            Err(_) => Ok(None),
        }
    }

    /// True while hashes are to come.
    pub(crate) fn is_busy(&self) -> bool {
        self.open > 0
    }
}

impl Drop for Digester {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.send = None;
        // A thread that reads files of a directory that is about to be deleted must end first.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn digest(file: &(File, PathBuf), len: u64, stop: &AtomicBool) -> Result<[u8; 32]> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; usize::try_from(len).map_or(CHUNK, |len| len.min(CHUNK))];
    let mut at = 0;
    while at < len {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        let n = usize::try_from(len - at).map_or(buffer.len(), |left| left.min(buffer.len()));
        read_exact_at(&file.0, &mut buffer[..n], at).map_err(Error::io("read", &file.1))?;
        hash.update(&buffer[..n]);
        at += n as u64;
    }
    Ok(hash.finalize().into())
}
