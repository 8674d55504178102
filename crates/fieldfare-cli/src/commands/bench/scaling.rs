//! What more threads bring: the rows of one case by their number of threads, beside what the machine itself gains.

use super::report::Report;
use super::rows::{Case, Measured};
use super::table::{columns, rate};
use crate::ui::style::Style;

const COLUMNS: [(&str, &str); 10] = [
    ("threads", ""),
    ("memory", "GB/s"),
    ("gain", "times"),
    ("products", "GMAC/s"),
    ("gain", "times"),
    ("decode", "tok/s"),
    ("gain", "times"),
    ("prefill", "tok/s"),
    ("gain", "times"),
    ("ratio", "decode"),
];

/// A table for each case that was measured with several numbers of threads; nothing if none was.
pub(super) fn text(report: &Report<'_>, style: Style) -> String {
    let mut cases: Vec<(&Case, Vec<&Measured>)> = Vec::new();
    for row in report.rows.iter().map(|whole| whole.row) {
        let Some(measured) = &row.measured else { continue };
        match cases.iter_mut().find(|(case, _)| same(case, &row.case)) {
            Some((_, rows)) => rows.push(measured),
            None => cases.push((&row.case, vec![measured])),
        }
    }
    let mut text = String::new();
    for (case, rows) in cases {
        let [first, _, ..] = rows[..] else { continue };
        let title = format!(
            "{}, prompt of {}, {} decoded: gain over {} thread{}",
            case.memory,
            case.prompt_tokens,
            case.decode_tokens,
            first.threads,
            if first.threads == 1 { "" } else { "s" }
        );
        let lines: Vec<Vec<String>> = rows.iter().map(|row| cells(first, row)).collect();
        text += &format!("\n{}\n{}", style.heading(&title), columns(&COLUMNS, &lines, style).0);
    }
    text
}

/// Whether two rows differ in their threads only. (What `auto` came to may differ by a little.)
fn same(a: &Case, b: &Case) -> bool {
    let key = |case: &Case| (case.prompt_tokens, case.decode_tokens, case.runs);
    a.memory == b.memory && key(a) == key(b)
}

fn cells(first: &Measured, row: &Measured) -> Vec<String> {
    let gain = |value: fn(&Measured) -> f64| format!("{:.2}", value(row) / value(first));
    vec![
        row.threads.to_string(),
        format!("{:.1}", row.bandwidth_bytes_per_second / 1e9),
        gain(|row| row.bandwidth_bytes_per_second),
        format!("{:.0}", row.products_per_second / 1e9),
        gain(|row| row.products_per_second),
        rate(row.decode_tokens_per_second),
        gain(|row| row.decode_tokens_per_second),
        rate(row.prefill_tokens_per_second),
        gain(|row| row.prefill_tokens_per_second),
        format!("{:.2}", row.decode_bound_ratio),
    ]
}
