//! The result for people: what the machine can do, then a line for each row.

use super::limits::Rate;
use super::report::Report;
use super::rows::{Case, Measured};
use crate::ui::report::bytes;
use crate::ui::style::Style;
use crate::ui::terminal;
use std::fmt::Write as _;

/// Heading and unit of each column.
const COLUMNS: [(&str, &str); 15] = [
    ("memory", ""),
    ("prompt", "tokens"),
    ("decode", "tok/s"),
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
    ("RSS", "MB"),
    ("group", "MB"),
];

/// The whole of it.
pub(super) fn text(report: &Report<'_>, style: Style) -> String {
    let mut lines: Vec<Vec<String>> = vec![
        COLUMNS.iter().map(|(name, _)| (*name).to_owned()).collect(),
        COLUMNS.iter().map(|(_, unit)| (*unit).to_owned()).collect(),
    ];
    let mut failed = Vec::new();
    for whole in &report.rows {
        match &whole.row.measured {
            Some(measured) => lines.push(cells(&whole.row.case, measured)),
            None => failed.push(&whole.row),
        }
    }
    let mut text = head(report, style);
    let widths: Vec<usize> = (0..COLUMNS.len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    for (number, line) in lines.iter().enumerate() {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        let line = cells.join("  ");
        text += &if number < 2 { style.heading(&line) } else { line };
        text.push('\n');
    }
    for row in failed {
        let error = row.error.as_deref().unwrap_or("not measured");
        // Writing into a String cannot fail.
        let _ =
            writeln!(text, "{:>width$}  {}", row.case.memory, terminal::one_line(error), width = widths[0]);
    }
    text
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
    let lines = [
        ("model", report.title()),
        ("experts", format!("chosen by {}; text {}", report.routing, report.text)),
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
    let rate = |rate: f64| if rate < 99.5 { format!("{rate:.2}") } else { format!("{rate:.0}") };
    vec![
        case.memory.clone(),
        case.prompt_tokens.to_string(),
        rate(row.decode_tokens_per_second),
        rate(row.decode_bound_tokens_per_second),
        format!("{:.2}", row.decode_bound_ratio),
        rate(row.prefill_tokens_per_second),
        rate(row.prefill_bound_tokens_per_second),
        format!("{:.2}", row.time_to_first_token_seconds),
        format!("{:.1}", row.slots_per_layer),
        format!("{:.1}", 100.0 * row.hit_rate),
        format!("{:.1}", row.read_bytes_per_token / 1e6),
        row.read_bytes_per_second.map_or_else(|| "-".to_owned(), giga),
        giga(row.disk_bytes_per_second),
        mega(row.peak_rss_bytes),
        mega(row.cgroup_peak_bytes),
    ]
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
