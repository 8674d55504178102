//! A progress line on standard error, on a terminal only; it is gone before anything else is written.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::io::IsTerminal;

/// What the numbers of a line are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of files.
    Bytes,
    /// Tokens of a prompt.
    Tokens,
}

/// One line of progress, or nothing at all.
pub struct Progress {
    bar: ProgressBar,
    /// How it looks once it is known out of how much.
    style: ProgressStyle,
}

impl Progress {
    /// A line that says `what`; silent when `quiet` or when standard error is no terminal.
    pub fn new(what: &str, unit: Unit, quiet: bool) -> Self {
        if quiet || !std::io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden(), style: ProgressStyle::default_bar() };
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        let template = match unit {
            Unit::Bytes => "{msg} [{bar:24}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            Unit::Tokens => "{msg} [{bar:24}] {pos}/{len} {rate}",
        };
        // Plain characters: they are right in every locale and font.
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let rate = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            // Writing a line that is shown cannot fail in a way that matters.
            let _ = write!(out, "{:.0} tok/s", state.per_sec());
        };
        // Until then a bar would be full: all of nothing is done.
        if let Ok(plain) = ProgressStyle::with_template("{msg}") {
            bar.set_style(plain);
        }
        bar.set_message(what.to_owned());
        Self { bar, style: style.progress_chars("=> ").with_key("rate", rate) }
    }

    /// How far it is, out of how much.
    pub fn set(&self, done: u64, total: u64) {
        if total == 0 {
            return;
        }
        if self.bar.length() != Some(total) {
            if self.bar.length().is_none() {
                self.bar.set_style(self.style.clone());
            }
            self.bar.set_length(total);
        }
        self.bar.set_position(done.min(total));
    }

    /// Says what is being done now.
    pub fn say(&self, what: &str) {
        if self.bar.message() != what {
            self.bar.set_message(what.to_owned());
        }
    }

    /// Removes the line.
    pub fn clear(&self) {
        if !self.bar.is_finished() {
            self.bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
