//! Ctrl-C (and a polite request to end) as a flag that long work looks at.
//!
//! Pressed again while the work still winds down, it ends the process at once: what lies on disk is promoted atomically
//! and locks die with the process, so that is safe at any time. In a conversation it takes more presses, since there an
//! impatient second one means the answer, not the program.

use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Exit code of an interrupted command.
const EXIT_CODE: i32 = 130;

/// Presses since the last [`reset`].
static PRESSES: AtomicUsize = AtomicUsize::new(0);
/// The press that ends the process at once.
static LIMIT: AtomicUsize = AtomicUsize::new(ONE_JOB);

/// What is called at a press.
static HOOK: OnceLock<Box<dyn Fn() + Send + Sync>> = OnceLock::new();

/// Limit of a command that does one thing.
const ONE_JOB: usize = 2;
/// Limit while a conversation's answer is made.
const ONE_ANSWER: usize = 4;
/// Limit while a conversation waits at its prompt. There Ctrl-C is a key that the line editor reads; a signal comes from
/// elsewhere and means the program.
const AT_PROMPT: usize = 1;

/// From here on Ctrl-C sets the flag. Called after input has been read, so that a command that still waits for
/// standard input ends at the first Ctrl-C as any program does.
pub fn listen() {
    static LISTENING: std::sync::Once = std::sync::Once::new();
    LISTENING.call_once(|| {
        // Where signals cannot be caught, Ctrl-C keeps its ordinary meaning.
        let _ = ctrlc::set_handler(|| {
            if let Some(hook) = HOOK.get() {
                hook();
            }
            if PRESSES.fetch_add(1, Ordering::Relaxed) + 1 >= LIMIT.load(Ordering::Relaxed) {
                std::process::exit(EXIT_CODE);
            }
        });
    });
}

/// As [`listen`], and `hook` is called at every press, for work that waits and looks at no flag. The first hook stays.
pub fn listen_with(hook: impl Fn() + Send + Sync + 'static) {
    let _ = HOOK.set(Box::new(hook));
    listen();
}

/// A conversation begins to answer: earlier presses say nothing about this answer.
pub fn answering() {
    LIMIT.store(ONE_ANSWER, Ordering::Relaxed);
    PRESSES.store(0, Ordering::Relaxed);
}

/// A conversation is back at its prompt.
pub fn at_prompt() {
    PRESSES.store(0, Ordering::Relaxed);
    LIMIT.store(AT_PROMPT, Ordering::Relaxed);
}

/// Whether Ctrl-C has been pressed.
pub fn asked() -> bool {
    PRESSES.load(Ordering::Relaxed) > 0
}

/// For progress callbacks: go on, or stop here.
pub fn flow() -> ControlFlow<()> {
    if asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}
