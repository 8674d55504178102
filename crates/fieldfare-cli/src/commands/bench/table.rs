//! The result for people: what the machine can do, then a line for each row.

use super::limits::Rate;
use super::report::Report;
use super::rows::{Case, Measured};
use crate::ui::report::bytes;
use crate::ui::style::Style;
use crate::ui::terminal;
use std::fmt::Write as _;

/// Heading and unit of each column.
const COLUMNS: [(&str, &str); 21] = [
    ("memory", ""),
    ("threads", ""),
    ("prompt", "tokens"),
    ("decode", "tok/s"),
    ("spread", "%"),
    ("bound", "tok/s"),
    ("ratio", ""),
    ("prefill", "tok/s"),
    ("bound", "tok/s"),
    ("first", "s"),
    ("slots", "a layer"),
    ("hits", "%"),
    ("read", "MB/tok"),
    ("reads", "GB/s"),
    ("disk", "GB/s"),
    ("share", "%"),
    ("busy", "%"),
    ("ahead", "a token"),
    ("waste", "MB/tok"),
    ("RSS", "MB"),
    ("group", "MB"),
];

/// The whole of it.
pub(super) fn text(report: &Report<'_>, style: Style) -> String {
    let mut lines = Vec::new();
    let mut failed = Vec::new();
    for whole in &report.rows {
        match &whole.row.measured {
            Some(measured) => lines.push(cells(&whole.row.case, measured)),
            None => failed.push(&whole.row),
        }
    }
    let (columns, width) = columns(&COLUMNS, &lines, style);
    let mut text = head(report, style) + &columns;
    if report.measured().any(|row| row.decode_bounds_raised + row.prefill_bounds_raised > 0) {
        text += "* runs faster than what was measured around them allows: something else ran then, and the bound is raised\n";
    }
    for row in failed {
        let error = row.error.as_deref().unwrap_or("not measured");
        // Writing into a String cannot fail.
        let _ = writeln!(text, "{:>width$}  {}", row.case.memory, terminal::one_line(error), width = width);
    }
    text
}

/// The lines below their headings and units, each column as wide as it needs; and the width of the first.
pub(super) fn columns(headings: &[(&str, &str)], lines: &[Vec<String>], style: Style) -> (String, usize) {
    let names = headings.iter().map(|(name, _)| (*name).to_owned()).collect();
    let units = headings.iter().map(|(_, unit)| (*unit).to_owned()).collect();
    let lines: Vec<&Vec<String>> = [&names, &units].into_iter().chain(lines).collect();
    let widths: Vec<usize> = (0..headings.len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        let line = cells.join("  ");
        text += &if number < 2 { style.heading(&line) } else { line };
        text.push('\n');
    }
    (text, widths.first().copied().unwrap_or(0))
}

fn head(report: &Report<'_>, style: Style) -> String {
    let limits = &report.limits;
    let rates = |rates: &[Rate], of: &str| {
        let one = |rate: &Rate| format!("{:.1} with {}", rate.median / 1e9, rate.count);
        let all: Vec<String> = rates.iter().map(one).collect();
        format!("{} {of} (GB/s)", all.join(", "))
    };
    let huge = limits
        .memory_huge_page_share
        .map_or(String::new(), |share| format!("; {:.0} % in huge pages", 100.0 * share));
    let products = [limits.products_two_planes, limits.products_one_plane, limits.products_f32]
        .map(|rate| format!("{:.0}", rate / 1e9));
    let guessed = report.simulated_guess_recall.map_or(String::new(), |share| {
        format!(", look-ahead given simulated guesses of which {:.0} % are right", 100.0 * share)
    });
    let lines = [
        ("model", report.title()),
        ("experts", format!("chosen by {}{guessed}; text {}", report.routing, report.text)),
        ("memory", rates(&limits.memory, "threads") + &huge),
        ("disk", format!("{}, {} reads", rates(&limits.disk, "reads at once"), limits.disk_mode)),
        (
            "products",
            format!("{} GMAC/s in two planes, {} in one, {} in f32", products[0], products[1], products[2]),
        ),
    ];
    let mut text = String::new();
    for (name, value) in lines {
        let _ = writeln!(text, "{} {}", style.heading(&format!("{name:<8}")), terminal::one_line(&value));
    }
    text.push('\n');
    text
}

fn cells(case: &Case, row: &Measured) -> Vec<String> {
    let giga = |rate: f64| format!("{:.2}", rate / 1e9);
    let mega = |bytes: Option<u64>| {
        bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{:.0}", bytes as f64 / 1e6))
    };
    let percent = |share: f64| format!("{:.0}", 100.0 * share);
    let raised = |text: String, runs: usize| if runs > 0 { text + "*" } else { text };
    vec![
        case.memory.clone(),
        row.threads.to_string(),
        case.prompt_tokens.to_string(),
        rate(row.decode_tokens_per_second),
        percent(row.decode_spread),
        raised(rate(row.decode_bound_tokens_per_second), row.decode_bounds_raised),
        format!("{:.2}", row.decode_bound_ratio),
        rate(row.prefill_tokens_per_second),
        raised(rate(row.prefill_bound_tokens_per_second), row.prefill_bounds_raised),
        format!("{:.2}", row.time_to_first_token_seconds),
        format!("{:.1}", row.slots_per_layer),
        format!("{:.1}", 100.0 * row.hit_rate),
        format!("{:.1}", row.read_bytes_per_token / 1e6),
        row.read_bytes_per_second.map_or_else(|| "-".to_owned(), giga),
        giga(row.disk_bytes_per_second),
        row.read_disk_ratio.map_or_else(|| "-".to_owned(), percent),
        percent(row.read_time_share),
        format!("{:.1}", row.look_ahead_used_per_token),
        format!("{:.1}", row.look_ahead_wasted_bytes_per_token / 1e6),
        mega(row.peak_rss_bytes),
        mega(row.cgroup_peak_bytes),
    ]
}

/// Tokens a second.
pub(super) fn rate(rate: f64) -> String {
    if rate < 99.5 { format!("{rate:.2}") } else { format!("{rate:.0}") }
}

/// A budget as people write it: in GiB where that is whole or a half, else in MB.
pub(super) fn size(count: u64) -> String {
    const HALF: u64 = 1 << 29;
    match count / HALF {
        0 => bytes(count),
        halves if count.is_multiple_of(HALF) && halves % 2 == 0 => format!("{} GiB", halves / 2),
        halves if count.is_multiple_of(HALF) => format!("{}.5 GiB", halves / 2),
        _ => bytes(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_written_as_they_were_meant() {
        for (count, text) in [
            (2 << 30, "2 GiB"),
            (5 << 29, "2.5 GiB"),
            (2_000_000_000, "2.00 GB"),
            (1_000_000, "1.00 MB"),
            (3_500_000_000, "3.50 GB"),
        ] {
            assert_eq!(size(count), text);
        }
    }
}
