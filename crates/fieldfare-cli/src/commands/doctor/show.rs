//! What was found, for people and as JSON.

use super::advice::Advice;
use super::expect::{Budget, Expected};
use super::facts::{Facts, Folder};
use crate::ui::report::{Table, bytes};
use crate::ui::style::Style;
use crate::ui::terminal;
use fieldfare::measure::traffic::FULL_SIZE_DISK;
use serde::Serialize;
use std::fmt::Write as _;

/// All of it.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    /// What is there.
    #[serde(flatten)]
    pub(super) facts: &'a Facts,
    /// What to expect.
    #[serde(flatten)]
    pub(super) expected: &'a Expected,
    /// What to know.
    #[serde(rename = "warnings")]
    pub(super) advice: &'a [Advice],
}

/// The report for people.
pub(super) fn text(report: &Report<'_>, style: Style) -> String {
    let Report { facts, expected, advice } = report;
    let mut table = Table::default();
    let machine = &facts.machine;
    let size = |count: Option<u64>| count.map_or_else(|| "unknown".to_owned(), bytes);
    table
        .section("Machine")
        .row("system", machine.system.clone())
        .row("processor", machine.processor.clone().unwrap_or_else(|| "unknown".to_owned()))
        .row("cores", machine.cores.to_string())
        .row("kernels", format!("{} (of {})", facts.isa, facts.isas.join(", ")));
    let memory = &facts.memory;
    table
        .section("Memory")
        .row("in the machine", size(memory.total))
        .row("available", size(memory.available));
    if let Some(limit) = memory.group_limit {
        let free = memory.group_free.map_or_else(String::new, |free| format!(", {} of it free", bytes(free)));
        table.row("limit of the group", bytes(limit) + &free);
    }
    if let Some(free) = memory.rlimit_free {
        table.row("resource limits", format!("{} left", bytes(free)));
    }
    table.row("huge pages", machine.huge_pages.clone().unwrap_or_else(|| "the system decides".to_owned()));
    if let Some(rate) = facts.bandwidth_bytes_per_second {
        table.row("read rate", format!("{}/s with {} threads", bytes(rate as u64), machine.cores));
    }
    if let Some(found) = &facts.folder {
        folder(&mut table, found);
    }
    let mut text = table.text(style);
    text += &format!("\n{}\n", style.heading("Gemma 4 26B-A4B, 512 tokens into a conversation"));
    if let Some(plan) = &expected.auto {
        let _ = writeln!(text, "  --memory auto: {}", terminal::one_line(&plan.to_string()));
    }
    let _ = writeln!(text, "  {:>8}  {:>7}  {:>5}  {:>14}", "memory", "slots", "hits", "tok/s, at most");
    for budget in &expected.budgets {
        let _ = writeln!(text, "  {}", line(budget));
    }
    if !advice.is_empty() {
        text += &format!("\n{}\n", style.heading("Worth knowing"));
        for Advice { problem, remedy } in *advice {
            let _ = writeln!(text, "  {} {}", style.warning("warning:"), terminal::one_line(problem));
            let _ = writeln!(text, "  {} {}", style.hint("hint:"), terminal::one_line(remedy));
        }
    }
    text
}

fn folder(table: &mut Table, folder: &Folder) {
    let free = folder.free_bytes.map_or_else(|| "unknown".to_owned(), bytes);
    table
        .section("Disk")
        .row("models go to", folder.path.display().to_string())
        .row("file system", folder.file_system.clone().unwrap_or_else(|| "unknown".to_owned()))
        .row("free", format!("{free} (the model takes {})", bytes(FULL_SIZE_DISK)));
    if let Some(disk) = &folder.disk {
        let all: Vec<String> =
            disk.by_depth.iter().map(|(depth, rate)| format!("{:.2} with {depth}", rate / 1e9)).collect();
        table
            .row(
                "read rate",
                format!(
                    "{}/s at best; {} reads at once (GB/s)",
                    bytes(disk.bytes_per_second as u64),
                    all.join(", ")
                ),
            )
            .row("reads", format!("{} ones work", disk.reads));
    } else if let Some(error) = &folder.disk_error {
        table.row("read rate", format!("not measured: {error}"));
    }
}

fn line(budget: &Budget) -> String {
    if let Some(error) = &budget.error {
        return format!("{:>8}  {}", budget.memory, terminal::one_line(error));
    }
    let or_dash = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
    };
    let hits = budget.hit_rate.map_or_else(|| "-".to_owned(), |hits| format!("{:.0} %", 100.0 * hits));
    let (slots, rate) =
        (or_dash(budget.slots_per_layer, 1), or_dash(budget.decode_bound_tokens_per_second, 1));
    format!("{:>8}  {slots:>7}  {hits:>5}  {rate:>14}", budget.memory)
}
