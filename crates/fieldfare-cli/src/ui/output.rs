//! The answer on its way out: written as it is made, flushed piece by piece, neutralised on a terminal only.

use crate::failure::Failure;
use crate::ui::style::Style;
use crate::ui::terminal;
use std::io::{self, IsTerminal, Write};

/// Standard output (or, in tests, any writer) for text that is made piece by piece.
pub struct TextOut<W: Write> {
    out: W,
    is_terminal: bool,
    /// The last thing written was not a line end.
    open_line: bool,
}

impl TextOut<io::StdoutLock<'static>> {
    /// Standard output.
    pub fn stdout() -> Self {
        Self { out: io::stdout().lock(), is_terminal: io::stdout().is_terminal(), open_line: false }
    }
}

impl<W: Write> TextOut<W> {
    /// Any writer; `is_terminal` says whether control characters must not pass.
    pub fn new(out: W, is_terminal: bool) -> Self {
        Self { out, is_terminal, open_line: false }
    }

    /// Writes a piece and hands it on at once.
    ///
    /// # Errors
    /// A closed pipe or another write error.
    pub fn piece(&mut self, text: &str) -> Result<(), Failure> {
        if text.is_empty() {
            return Ok(());
        }
        let shown = if self.is_terminal { terminal::neutral(text) } else { text.into() };
        self.open_line = !shown.ends_with('\n');
        self.out
            .write_all(shown.as_bytes())
            .and_then(|()| self.out.flush())
            .map_err(|error| Failure::writing(&error))
    }

    /// Ends an open line, so that what follows (a prompt of the shell) starts on its own.
    ///
    /// # Errors
    /// As [`TextOut::piece`].
    pub fn end_line(&mut self) -> Result<(), Failure> {
        if self.open_line { self.piece("\n") } else { Ok(()) }
    }
}

/// Writes one whole document to standard output.
///
/// # Errors
/// A closed pipe or another write error.
pub fn document(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| Failure::writing(&error))
}

/// Writes a value as JSON on one line.
///
/// # Errors
/// A closed pipe or another write error.
pub fn json_line(value: &impl serde::Serialize) -> Result<(), Failure> {
    let mut line = serde_json::to_vec(value)
        .map_err(|error| Failure::failed(format!("cannot write the result as JSON: {error}")))?;
    line.push(b'\n');
    document(&line)
}

/// The model's thoughts on standard error: dimmed on a terminal, plain elsewhere, silent when not wanted.
pub struct Thoughts {
    style: Style,
    is_terminal: bool,
    wanted: bool,
    open_line: bool,
}

impl Thoughts {
    /// For standard error.
    pub fn new(wanted: bool) -> Self {
        Self { style: Style::stderr(), is_terminal: io::stderr().is_terminal(), wanted, open_line: false }
    }

    /// Shows a piece. Standard error may be closed: that loses the thoughts, not the answer.
    pub fn piece(&mut self, text: &str) {
        if !self.wanted || text.is_empty() {
            return;
        }
        let shown = if self.is_terminal { terminal::neutral(text) } else { text.into() };
        let mut err = io::stderr().lock();
        // Each line is dimmed on its own, so that nothing that interrupts leaves the terminal dim.
        for line in shown.split_inclusive('\n') {
            let body = line.trim_end_matches('\n');
            let _ = write!(err, "{}{}", self.style.dim(body), &line[body.len()..]);
        }
        self.open_line = !shown.ends_with('\n');
    }

    /// Ends an open line before something else is shown.
    pub fn end(&mut self) {
        if self.open_line {
            let _ = writeln!(io::stderr().lock());
            self.open_line = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_terminals_get_neutral_text() {
        let mut bytes = Vec::new();
        TextOut::new(&mut bytes, false).piece("a\u{1b}[2J").unwrap();
        assert_eq!(bytes, b"a\x1b[2J");
        bytes.clear();
        TextOut::new(&mut bytes, true).piece("a\u{1b}[2J").unwrap();
        assert_eq!(bytes, "a␛[2J".as_bytes());
    }

    #[test]
    fn a_line_is_ended_once() {
        let mut bytes = Vec::new();
        let mut out = TextOut::new(&mut bytes, false);
        out.end_line().unwrap();
        out.piece("a").unwrap();
        out.end_line().unwrap();
        out.end_line().unwrap();
        out.piece("b\n").unwrap();
        out.end_line().unwrap();
        assert_eq!(bytes, b"a\nb\n");
    }

    #[test]
    fn a_closed_pipe_is_a_quiet_end() {
        let failure = TextOut::new(Closed, false).piece("a").unwrap_err();
        assert!(matches!(failure, Failure::PipeClosed));
        assert_eq!(failure.exit_code(), 0);
    }
}
