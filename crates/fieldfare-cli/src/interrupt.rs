//! Ctrl-C (and a polite request to end) as a flag that long work looks at. The second one ends the process at once:
//! everything on disk is promoted atomically and locks die with the process, so that is safe at any time.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

/// Exit code of an interrupted command.
pub const EXIT_CODE: i32 = 130;

/// From here on Ctrl-C sets the flag. Called after input has been read, so that a command that still waits for
/// standard input ends at the first Ctrl-C as any program does.
pub fn listen() {
    static LISTENING: std::sync::Once = std::sync::Once::new();
    LISTENING.call_once(|| {
        // Where signals cannot be caught, Ctrl-C keeps its ordinary meaning.
        let _ = ctrlc::set_handler(|| {
            if ASKED.swap(true, Ordering::Relaxed) {
                std::process::exit(EXIT_CODE);
            }
        });
    });
}

/// Whether Ctrl-C has been pressed since the last [`reset`].
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Forgets an earlier Ctrl-C: in a conversation it stopped one answer and says nothing about the next.
pub fn reset() {
    ASKED.store(false, Ordering::Relaxed);
}

/// For progress callbacks: go on, or stop here.
pub fn flow() -> ControlFlow<()> {
    if asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}
