//! Lines typed on a terminal, with editing and a history that outlives the program.

use super::conversation::{Line, Lines};
use crate::Outcome;
use crate::failure::Failure;
use fieldfare::sys::paths;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};
use std::path::PathBuf;

/// Lines that are remembered.
const HISTORY_LINES: usize = 1000;

/// The line editor.
pub struct TerminalLines {
    editor: Editor<(), FileHistory>,
    history: Option<PathBuf>,
}

impl TerminalLines {
    /// Opens the terminal; `keep_history` reads and writes the history file in the data folder.
    ///
    /// # Errors
    /// The terminal cannot be used.
    pub fn open(keep_history: bool) -> Outcome<Self> {
        let failed = |error: ReadlineError| Failure::failed(format!("cannot use the terminal: {error}"));
        let config = Config::builder()
            .max_history_size(HISTORY_LINES)
            .map_err(failed)?
            // A line that begins with a space is not remembered, as in shells.
            .history_ignore_space(true)
            .build();
        let mut editor = Editor::with_config(config).map_err(failed)?;
        let history = keep_history.then(paths::data_dir).flatten().map(|dir| dir.join("chat-history"));
        if let Some(file) = &history {
            // The first conversation has no history yet.
            let _ = editor.load_history(file);
        }
        Ok(Self { editor, history })
    }

    fn remember(&mut self, line: &str) {
        // A history that cannot be kept is no reason to stop talking.
        if let Ok(true) = self.editor.add_history_entry(line)
            && let Some(file) = &self.history
            && file.parent().is_some_and(|dir| std::fs::create_dir_all(dir).is_ok())
        {
            let _ = self.editor.append_history(file);
        }
    }
}

impl Lines for TerminalLines {
    fn next_line(&mut self, more: bool) -> Outcome<Line> {
        match self.editor.readline(if more { "... " } else { "> " }) {
            Ok(line) => {
                self.remember(&line);
                Ok(Line::Text(line))
            }
            Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(error) => Err(Failure::failed(format!("cannot read from the terminal: {error}"))),
        }
    }
}
