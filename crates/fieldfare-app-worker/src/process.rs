//! A second process of this program: started with a task, heard line by line, and ended whatever happens here.
//!
//! The child's standard input is the leash. It stays open as long as this process lives, and the system closes it however
//! this process ends; the child ends when it does. What the child writes to standard error is kept as far as it says why
//! it ended.

use crate::message::Trouble;
use crate::trouble::plain;
use crate::wire::{self, Task, Told};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines of standard error that are kept.
const LAST_LINES: usize = 40;
/// Longest line of standard error or output that is read on.
const LONGEST: u64 = 1 << 20;
/// How long a child may take to go once its output has ended, or its input.
const PATIENCE: Duration = Duration::from_secs(3);
/// How much later a line of standard error may come than what was told about it.
const MOMENT: Duration = Duration::from_millis(300);
/// Between two looks at a child that is going.
const LOOK: Duration = Duration::from_millis(5);

/// What comes from a child.
#[derive(Debug)]
pub(crate) enum Heard {
    /// It told something.
    Told(Told),
    /// It is gone, with this status and these last words.
    Ended(Ending),
}

/// How a child ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ending {
    /// Its exit code, if it had one.
    pub(crate) code: Option<i32>,
    /// The system's words for it, such as `signal: 9 (SIGKILL)`.
    pub(crate) status: String,
    /// The last lines that it wrote to standard error.
    pub(crate) last_words: String,
    /// It was ended from here.
    pub(crate) asked: bool,
}

/// A running child. Dropped, it is asked to end, and killed if it does not.
pub(crate) struct Process {
    shared: Arc<Mutex<Shared>>,
    words: Words,
}

/// The last lines of a child's standard error.
type Words = Arc<Mutex<VecDeque<String>>>;

struct Shared {
    child: Child,
    leash: Option<ChildStdin>,
    asked: bool,
    reaped: bool,
}

impl Shared {
    fn kill(&mut self) {
        if !self.reaped {
            // It may have ended by itself.
            let _ = self.child.kill();
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Process {
    /// Starts `command` with a task. `hear` is called on a thread of its own, last with [`Heard::Ended`].
    ///
    /// # Errors
    /// The system starts no process or thread.
    pub(crate) fn start(
        command: &[OsString],
        task: &Task,
        hear: impl FnMut(Heard) + Send + 'static,
    ) -> Result<Self, Trouble> {
        let failed = |error: std::io::Error| {
            plain(
                format!("a second process cannot be started: {error}"),
                "Close other programs, then try again.",
            )
        };
        let (program, args) =
            command.split_first().ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (mut leash, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        if let Some(leash) = &mut leash {
            // A child that is gone already is heard of below.
            let _ = writeln!(leash, "{}", wire::line(task)).and_then(|()| leash.flush());
        }
        let shared = Arc::new(Mutex::new(Shared { child, leash, asked: false, reaped: false }));
        let words = Words::default();
        let process = Self { shared: shared.clone(), words: words.clone() };
        let kept = words.clone();
        let listener = std::thread::Builder::new().name("child-errors".into()).spawn(move || {
            for line in lines(err) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() == LAST_LINES {
                    kept.pop_front();
                }
                kept.push_back(line);
            }
        });
        let listener = listener.map_err(failed)?;
        let mut hear = hear;
        std::thread::Builder::new()
            .name("child".into())
            .spawn(move || {
                for line in lines(out) {
                    if let Ok(told) = serde_json::from_str(&line) {
                        hear(Heard::Told(told));
                    }
                }
                let mut ending = reap(&shared);
                let _ = listener.join();
                let words = words.lock().unwrap_or_else(PoisonError::into_inner);
                ending.last_words = words.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
                drop(words);
                hear(Heard::Ended(ending));
            })
            .map_err(failed)?;
        Ok(process)
    }

    /// The last thing that it wrote to standard error behind this beginning, once; waits a moment for it, since what
    /// came another way may have been quicker.
    pub(crate) fn take_said(&self, beginning: &str) -> Option<String> {
        let until = Instant::now() + MOMENT;
        loop {
            let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
            let at = words.iter().rposition(|line| line.starts_with(beginning));
            if let Some(line) = at.and_then(|at| words.remove(at)) {
                return line.strip_prefix(beginning).map(str::to_owned);
            }
            drop(words);
            if Instant::now() >= until {
                return None;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Asks it to end: whatever it does, it ends when its input does.
    pub(crate) fn ask_to_end(&self) {
        let mut shared = lock(&self.shared);
        shared.asked = true;
        shared.leash = None;
    }

    /// Waits until it is gone, for as long as it may take; then kills it.
    pub(crate) fn end(&self) {
        self.ask_to_end();
        let until = Instant::now() + PATIENCE;
        loop {
            let mut shared = lock(&self.shared);
            if shared.reaped || !matches!(shared.child.try_wait(), Ok(None)) {
                return;
            }
            if Instant::now() >= until {
                shared.kill();
                return;
            }
            drop(shared);
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits for a child whose output has ended.
fn reap(shared: &Mutex<Shared>) -> Ending {
    let until = Instant::now() + PATIENCE;
    loop {
        let mut shared = lock(shared);
        match shared.child.try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => {
                shared.reaped = true;
                shared.leash = None;
                return Ending {
                    code: status.code(),
                    status: status.to_string(),
                    last_words: String::new(),
                    asked: shared.asked,
                };
            }
            Err(error) => {
                let (status, asked) = (format!("not known: {error}"), shared.asked);
                return Ending { status, asked, ..Ending::default() };
            }
        }
        if Instant::now() >= until {
            shared.kill();
        }
        drop(shared);
        std::thread::sleep(LOOK);
    }
}

/// Lines of a pipe, whatever is in them.
fn lines(from: Option<impl Read>) -> impl Iterator<Item = String> {
    let mut reader = from.map(BufReader::new);
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        let read = reader.as_mut()?.take(LONGEST).read_until(b'\n', &mut line).ok()?;
        (read > 0).then(|| String::from_utf8_lossy(&line).trim_end().to_owned())
    })
}
