//! One run of a source file, from its first byte to its last, with as many requests as that takes: a broken one continues
//! at the next missing byte.

use std::io::Read;
use std::time::{Duration, Instant};

use super::hub::{Hub, shown};
use super::plan::Piece;
use super::retry::{Fault, Patience};
use super::wait::{Trouble, Waiting};
use crate::sys::buffer::Buffer;
use crate::{Error, Result};

/// Most bytes of one read.
const STEP: usize = 256 << 10;
/// How often the caller hears of progress and can stop the work.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// What happens during a fetch; the listener says whether to stop.
pub(crate) enum Event {
    /// So many came.
    Bytes(u64),
    /// A server asked to be left alone for a while.
    TooMany,
    /// Nothing happens.
    Waiting,
    /// A failed try will be repeated.
    Pause(Waiting),
}

/// A small generator for jitter; its quality does not matter.
pub(crate) struct Dice(pub(crate) u32);

impl Dice {
    fn roll(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0
    }
}

/// A run that is being fetched.
pub(crate) struct Stream<'a> {
    hub: &'a Hub,
    patience: &'a Patience,
    request: Piece,
    /// Bytes handed out.
    have: u64,
    reader: Option<Box<dyn Read + Send>>,
    /// Tries in a row that brought nothing, and addresses that had expired.
    failed: u32,
    expired: u32,
}

impl<'a> Stream<'a> {
    /// Nothing is asked yet.
    pub(crate) fn new(hub: &'a Hub, patience: &'a Patience, request: Piece) -> Self {
        Self { hub, patience, request, have: 0, reader: None, failed: 0, expired: 0 }
    }

    /// Fills `bytes` with what comes next, with as many tries as it takes.
    pub(crate) fn fill(
        &mut self,
        bytes: &mut [u8],
        dice: &mut Dice,
        stop: &mut dyn FnMut(Event) -> bool,
    ) -> Result<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            let before = filled;
            let fault = match self.attempt(bytes, &mut filled, stop) {
                Ok(()) => break,
                Err(fault) => fault,
            };
            self.reader = None;
            if filled > before {
                (self.failed, self.expired) = (0, 0);
            }
            let (reason, trouble, after) = match fault {
                Fault::Fatal(error) => return Err(error),
                // A new address is asked for at once, the first times.
                Fault::Expired { .. } if self.expired < 3 => {
                    self.expired += 1;
                    continue;
                }
                Fault::Expired { reason } => (reason, Trouble::Expired, None),
                Fault::Again { reason, trouble, after } => (reason, trouble, after),
            };
            self.failed += 1;
            if after.is_some() {
                stop(Event::TooMany);
            }
            let name = &self.hub.file(self.request.file).name;
            let wait = self.patience.wait(self.failed, after, dice.roll()).ok_or_else(|| {
                let tries = format!("{name}: given up after {} tries: {reason}", self.failed);
                Error::Network { url: shown(&self.hub.source()), reason: tries }
            })?;
            sleep(wait, trouble, stop)?;
        }
        Ok(())
    }

    /// One request for what is missing, or more of the one that is open.
    fn attempt(
        &mut self,
        bytes: &mut [u8],
        filled: &mut usize,
        stop: &mut dyn FnMut(Event) -> bool,
    ) -> Result<(), Fault> {
        let Piece { file, offset, len } = self.request;
        let name = || self.hub.file(file).name.clone();
        let reader = match &mut self.reader {
            Some(reader) => reader,
            empty => empty.insert(self.hub.open(file, offset + self.have, len - self.have)?),
        };
        while *filled < bytes.len() {
            if stop(Event::Waiting) {
                return Err(Error::Cancelled.into());
            }
            let end = bytes.len().min(*filled + STEP);
            match reader.read(&mut bytes[*filled..end]) {
                Ok(0) => {
                    let reason = format!("{}: the connection ended early", name());
                    return Err(Fault::again(Trouble::Broken, reason));
                }
                Ok(n) => {
                    *filled += n;
                    self.have += n as u64;
                    stop(Event::Bytes(n as u64));
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => {
                    let late = e.kind() == std::io::ErrorKind::TimedOut;
                    let trouble = if late { Trouble::NoAnswer } else { Trouble::Broken };
                    return Err(Fault::again(trouble, format!("{}: {e}", name())));
                }
            }
        }
        if self.have < len {
            return Ok(());
        }
        // The end must be the end; reading it also lets the connection be used again.
        match reader.read(&mut [0]) {
            Ok(0) | Err(_) => Ok(()),
            Ok(_) => {
                let reason = format!("{}: more bytes than it was asked for", name());
                Err(Error::Network { url: shown(&self.hub.source()), reason }.into())
            }
        }
    }
}

/// Fetches a run as a whole.
pub(crate) fn fetch(
    hub: &Hub,
    patience: &Patience,
    request: &Piece,
    dice: &mut Dice,
    stop: &mut dyn FnMut(Event) -> bool,
) -> Result<Buffer> {
    let mut bytes = buffer(request.len)?;
    Stream::new(hub, patience, *request).fill(&mut bytes, dice, stop)?;
    Ok(bytes)
}

/// Memory for so many bytes.
pub(crate) fn buffer(len: u64) -> Result<Buffer> {
    let len = usize::try_from(len).map_err(|_| Error::Unsupported(format!("a request of {len} bytes")))?;
    Buffer::new(len).map_err(Error::io("take memory for", "a request"))
}

/// Waits, and hears a wish to stop.
pub(crate) fn sleep(wait: Duration, trouble: Trouble, stop: &mut dyn FnMut(Event) -> bool) -> Result<()> {
    // Up to a moment: on a busy machine a nap takes longer than it should.
    let start = Instant::now();
    loop {
        let left = wait.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        if stop(Event::Pause(Waiting { left, trouble })) {
            return Err(Error::Cancelled);
        }
        std::thread::sleep(left.min(TICK));
    }
}
