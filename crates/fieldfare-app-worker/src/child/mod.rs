//! What runs in a child process: `fieldfare-app --decode-service`.
//!
//! The first line of standard input is the task. When the input ends the window is gone or wants no more, and so the
//! process ends: a serving or measuring one at once, one that writes files after a moment in which it may put its work in
//! order. It ends in any case, and whatever it was doing can be gone on with.

mod job;
mod measure;
mod row;
mod serve;

use crate::message::Trouble;
use crate::trouble::{plain, trouble};
use crate::wire::{self, Task, Told};
use fieldfare::Error;
use std::io::{BufRead, Read, Write};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest first line.
const CAP: u64 = 1 << 20;
/// What a child that writes files has for putting its work in order.
const MOMENT: Duration = Duration::from_millis(700);
/// Exit code of a child whose task failed; it has said why.
const FAILED: i32 = 1;
/// Exit code of a child whose input ended while it worked.
const LEFT: i32 = 3;

/// The input has ended.
static LET_GO: AtomicBool = AtomicBool::new(false);

/// Runs as a child of the window's process; the exit code.
pub fn serve_decode() -> i32 {
    fieldfare::sys::fault::explain();
    let mut first = String::new();
    let read = std::io::stdin().lock().take(CAP).read_line(&mut first);
    let Some(task) = read.ok().and_then(|_| serde_json::from_str::<Task>(&first).ok()) else {
        eprintln!("error: this is what the Fieldfare app starts for itself");
        return 2;
    };
    let at_once =
        matches!(task, Task::Serve { .. } | Task::Measure { .. } | Task::Row { .. } | Task::Offer { .. });
    let watcher = std::thread::Builder::new().name("leash".into()).spawn(move || {
        let mut input = std::io::stdin().lock();
        // Whatever else comes, and however it ends.
        let _ = std::io::copy(&mut input, &mut std::io::sink());
        LET_GO.store(true, Ordering::Relaxed);
        if !at_once {
            std::thread::sleep(MOMENT);
        }
        std::process::exit(LEFT);
    });
    if let Err(error) = watcher {
        // Without it nothing would end this process.
        tell(&Told::Failed(plain(format!("a thread cannot be started: {error}"), "Close other programs.")));
        return FAILED;
    }
    match run(task) {
        Ok(told) => {
            tell(&told);
            0
        }
        Err(trouble) => {
            tell(&Told::Failed(trouble));
            FAILED
        }
    }
}

fn run(task: Task) -> Result<Told, Trouble> {
    let done = |words: String| Told::Done { words };
    let result = match task {
        Task::Serve { model, settings, key, locks } => {
            serve::run(&model, &settings, key, locks.as_deref())?;
            return Ok(done("ended".to_owned()));
        }
        Task::Offer { source, target } => job::offer(&source, &target).map(Told::Offer),
        Task::Install { source, target } => job::install(&source, &target).map(done),
        Task::Discard { target } => job::discard(&target).map(done),
        Task::Verify { model } => job::verify(&model).map(done),
        Task::Demo { folders } => job::demo(&folders).map(done),
        Task::Measure { model } => measure::rates(&model).map(Told::Rates),
        Task::Row { model, memory_bytes, prompt, decode, rates, locks } => {
            row::run(&model, memory_bytes, (prompt, decode), rates, locks.as_deref()).map(Told::Row)
        }
    };
    match result {
        Ok(told) => Ok(told),
        Err(Error::Cancelled) => Ok(Told::Stopped),
        Err(error) => Err(trouble(&error)),
    }
}

/// Tells the parent; a parent that is gone hears nothing, and the leash ends this process.
fn tell(told: &Told) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{}", wire::line(told)).and_then(|()| out.flush());
}

/// For progress callbacks: go on, or stop here.
fn flow() -> ControlFlow<()> {
    if LET_GO.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}
