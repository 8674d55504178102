//! Numbers and tables for people, and the lines that go to standard error.

use crate::ui::style::Style;
use crate::ui::terminal;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

/// A line on standard error. Closed or full, it is no reason to stop.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// A dimmed line on standard error: statistics.
pub fn statistics(text: &str) {
    note(&Style::stderr().dim(&terminal::one_line(text)));
}

/// `warning: …` on standard error.
pub fn warning(text: &str) {
    note(&format!("{} {}", Style::stderr().warning("warning:"), terminal::one_line(text)));
}

/// `hint: …` on standard error.
pub fn hint(text: &str) {
    note(&format!("{} {}", Style::stderr().hint("hint:"), terminal::one_line(text)));
}

/// Bytes in decimal units, three digits: `14.3 GB`, `999 B`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if count < 1000 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1000.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    let digits = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.digits$} {unit}")
}

/// A span of time: `12 ms`, `3.4 s`, `2 min 5 s`.
pub fn span(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 0.9995 {
        format!("{:.0} ms", seconds * 1000.0)
    } else if seconds < 99.95 {
        format!("{seconds:.1} s")
    } else {
        format!("{} min {} s", time.as_secs() / 60, time.as_secs() % 60)
    }
}

/// Things per second, or `None` when no time has passed.
pub fn rate(count: usize, time: Duration) -> Option<f64> {
    let seconds = time.as_secs_f64();
    (seconds > 0.0).then(|| count as f64 / seconds)
}

/// `1 token`, `2 tokens`.
pub fn count(number: usize, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{ending}")
}

/// A table of headings and aligned pairs, made up before it is printed.
#[derive(Debug, Default)]
pub struct Table {
    sections: Vec<(String, Vec<(String, String)>)>,
}

impl Table {
    /// Starts a section.
    pub fn section(&mut self, heading: &str) -> &mut Self {
        self.sections.push((heading.to_owned(), Vec::new()));
        self
    }

    /// Adds a line to the last section.
    pub fn row(&mut self, name: &str, value: impl Into<String>) -> &mut Self {
        if self.sections.is_empty() {
            self.section("");
        }
        if let Some((_, rows)) = self.sections.last_mut() {
            rows.push((name.to_owned(), value.into()));
        }
        self
    }

    /// The table as text; values come from files, so they are neutralised.
    pub fn text(&self, style: Style) -> String {
        let names = self.sections.iter().flat_map(|(_, rows)| rows).map(|(name, _)| name.chars().count());
        let width = names.max().unwrap_or(0);
        let mut text = String::new();
        for (index, (heading, rows)) in self.sections.iter().enumerate() {
            if index > 0 {
                text.push('\n');
            }
            if !heading.is_empty() {
                text.push_str(&style.heading(heading));
                text.push('\n');
            }
            for (name, value) in rows {
                let indent = if heading.is_empty() { "" } else { "  " };
                // Writing into a String cannot fail.
                let _ = writeln!(text, "{indent}{name:<width$}  {}", terminal::one_line(value));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        for (count, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (999_499, "999 kB"),
            (999_500, "1.00 MB"),
            (1_354_000_000, "1.35 GB"),
            (14_300_000_000, "14.3 GB"),
            (u64::MAX, "18447 PB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn spans_and_rates() {
        assert_eq!(span(Duration::from_millis(12)), "12 ms");
        assert_eq!(span(Duration::from_millis(3400)), "3.4 s");
        assert_eq!(span(Duration::from_secs(125)), "2 min 5 s");
        assert_eq!(rate(3, Duration::ZERO), None);
        assert_eq!(rate(3, Duration::from_millis(1500)), Some(2.0));
    }

    #[test]
    fn tables_are_aligned() {
        let mut table = Table::default();
        table.section("Model").row("layers", "30").row("a", "b\u{1b}");
        table.section("Size").row("longest name", "1");
        assert_eq!(
            table.text(Style::plain()),
            "Model\n  layers        30\n  a             b␛\n\nSize\n  longest name  1\n"
        );
    }
}
