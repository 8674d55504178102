//! Colours, where they are wanted: on a terminal, unless `NO_COLOR` is set or the terminal is dumb.

use clap::builder::styling::{AnsiColor, Style as Ansi};
use std::io::IsTerminal;

/// Whether one of the two outputs takes colours.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    colours: bool,
}

impl Style {
    /// For standard error.
    pub fn stderr() -> Self {
        Self { colours: wanted(std::io::stderr().is_terminal()) }
    }

    /// For standard output.
    pub fn stdout() -> Self {
        Self { colours: wanted(std::io::stdout().is_terminal()) }
    }

    /// No colours.
    pub fn plain() -> Self {
        Self { colours: false }
    }

    /// The word in front of an error.
    pub fn error(self, text: &str) -> String {
        self.paint(Ansi::new().bold().fg_color(Some(AnsiColor::Red.into())), text)
    }

    /// The word in front of a warning.
    pub fn warning(self, text: &str) -> String {
        self.paint(Ansi::new().bold().fg_color(Some(AnsiColor::Yellow.into())), text)
    }

    /// The word in front of a hint.
    pub fn hint(self, text: &str) -> String {
        self.paint(Ansi::new().bold().fg_color(Some(AnsiColor::Cyan.into())), text)
    }

    /// A heading.
    pub fn heading(self, text: &str) -> String {
        self.paint(Ansi::new().bold(), text)
    }

    /// What matters less: thoughts, statistics.
    pub fn dim(self, text: &str) -> String {
        self.paint(Ansi::new().dimmed(), text)
    }

    fn paint(self, ansi: Ansi, text: &str) -> String {
        if self.colours && !text.is_empty() { format!("{ansi}{text}{ansi:#}") } else { text.to_owned() }
    }
}

fn wanted(is_terminal: bool) -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    is_terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
