//! One row's process, seen from the bench: started, asked for runs, and ended whatever happens.

use super::protocol::{Spec, Told};
use crate::failure::Failure;
use crate::{Outcome, interrupt};
use fieldfare::sys::group::MemoryGroup;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How often Ctrl-C is looked for while the process works.
const LOOK: Duration = Duration::from_millis(50);

/// A running process. Dropped, it is killed; its group goes after it.
pub(super) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    told: Receiver<String>,
    started: Instant,
    group: Option<MemoryGroup>,
}

impl Process {
    /// Starts this program again, as the process of one row, with the bench's own command line.
    ///
    /// # Errors
    /// The system starts no process.
    pub(super) fn start(spec: &Spec, group: Option<MemoryGroup>) -> Outcome<Self> {
        let failed =
            |error: std::io::Error| Failure::failed(format!("cannot start the measuring process: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let description = serde_json::to_string(spec)
            .map_err(|error| Failure::failed(format!("cannot describe a row: {error}")))?;
        let started = Instant::now();
        let mut child = Command::new(program)
            .args(std::env::args_os().skip(1))
            .arg("--row")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (sender, told) = mpsc::channel();
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        let input = child.stdin.take();
        let mut process = Self { child, input, told, started, group };
        process.say(&description);
        Ok(process)
    }

    /// Since the process was started.
    pub(super) fn elapsed(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Asks for a run.
    pub(super) fn go(&mut self) {
        self.say("go");
    }

    /// Says that no more runs are wanted.
    pub(super) fn finish(&mut self) {
        self.input = None;
    }

    fn say(&mut self, line: &str) {
        // A process that is gone says so, or why, when it is waited for.
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}").and_then(|()| input.flush());
        }
    }

    /// The next thing that it tells.
    ///
    /// # Errors
    /// [`Failure::Interrupted`]; what it says of its own failure; that it ended without a word.
    pub(super) fn next(&mut self) -> Outcome<Told> {
        loop {
            if interrupt::asked() {
                return Err(Failure::Interrupted);
            }
            match self.told.recv_timeout(LOOK) {
                Ok(line) => match serde_json::from_str(&line) {
                    Ok(Told::Failed { message, hint }) => return Err(Failure::Failed { message, hint }),
                    Ok(told) => return Ok(told),
                    Err(error) => return Err(Failure::failed(format!("the measuring process says {error}"))),
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.death()),
            }
        }
    }

    /// Why it ended.
    fn death(&mut self) -> Failure {
        let status = self.child.wait();
        if interrupt::asked() {
            return Failure::Interrupted;
        }
        if self.group.as_ref().and_then(MemoryGroup::kills).is_some_and(|kills| kills > 0) {
            return Failure::failed("the kernel killed it: the control group's limit was too small");
        }
        match status {
            Ok(status) => Failure::failed(format!("the measuring process ended early ({status})")),
            Err(error) => Failure::failed(format!("the measuring process is lost: {error}")),
        }
    }

    /// What the kernel counted in its group.
    pub(super) fn group_peak(&self) -> Option<u64> {
        self.group.as_ref().and_then(MemoryGroup::peak)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.input = None;
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
