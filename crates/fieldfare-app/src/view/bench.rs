//! Tokens a second against memory, measured here.

use super::{button_or_why, card, note, primary, row, strong, unless};
use crate::state::{Action, State};
use crate::{theme, update, words};
use eframe::egui::{self, Button, DragValue, Grid, Label, RichText, TextEdit, Ui, WidgetInfo};
use egui_plot::{Legend, Line, PlotPoints, Points};

/// All of it.
pub fn show(ui: &mut Ui, state: &mut State, out: &mut Vec<Action>) {
    card(ui, "Measure", |ui| {
        ui.label("Runs the model at each budget on given tokens and draws what it reached beside what this machine's disk and memory would allow. The loaded model is ended before and loaded again after.");
        ui.add_space(4.0);
        let running = state.bench.running;
        let fixed = running.then_some("This is being measured; Stop ends it.");
        row(ui, "Budgets", |ui| {
            let edit = TextEdit::singleline(&mut state.bench.budgets).desired_width(320.0);
            unless(ui, fixed, edit).accessible_name("Budgets");
        });
        row(ui, "Prompt", |ui| {
            let field = DragValue::new(&mut state.bench.prompt).range(1..=32_768);
            unless(ui, fixed, field).accessible_name("Tokens of the prompt");
            ui.label("tokens");
        });
        row(ui, "Answer", |ui| {
            let field = DragValue::new(&mut state.bench.decode).range(1..=4_096);
            unless(ui, fixed, field).accessible_name("Tokens to make");
            ui.label("tokens");
        });
        if let Some(reason) = fixed {
            note(ui, reason);
        }
        if let Some(model) = state.chosen().filter(|model| model.is_demo && !running) {
            note(
                ui,
                format!(
                    "{} is small: everything fits into less than 100 MB, so write budgets like 60MB, 77MB.",
                    model.name
                ),
            );
        }
        ui.horizontal(|ui| {
            if running {
                if ui.button("Stop").clicked() {
                    out.push(Action::BenchStop);
                }
                let (done, all) = (state.bench.rows.len(), state.bench.expected);
                ui.label(format!("Measuring: {done} of {all} done. This can take minutes."));
            } else {
                let why = update::why_no_bench(state);
                if button_or_why(ui, primary(ui, "Run"), why.as_deref()) {
                    out.push(Action::BenchRun);
                }
            }
        });
        if let Some(trouble) = &state.bench.trouble {
            let palette = theme::palette(ui);
            ui.add(Label::new(RichText::new(&trouble.message).color(palette.bad)).wrap());
            ui.add(Label::new(trouble.remedy.as_str()).wrap());
        }
    });
    if state.bench.rows.is_empty() {
        if !state.bench.running {
            card(ui, "Results", |ui| note(ui, "Nothing was measured yet."));
        }
        return;
    }
    card(ui, "Results", |ui| {
        drawing(ui, state);
        table(ui, state);
        if ui.add(Button::new("Copy as text")).clicked() {
            out.push(Action::Copy(as_text(state)));
        }
    });
}

fn drawing(ui: &mut Ui, state: &State) {
    let palette = theme::palette(ui);
    let gb = |bytes: u64| bytes as f64 / 1e9;
    let reached: Vec<[f64; 2]> =
        state.bench.rows.iter().map(|row| [gb(row.memory_bytes), row.decode]).collect();
    let bound: Vec<[f64; 2]> =
        state.bench.rows.iter().map(|row| [gb(row.memory_bytes), row.decode_bound]).collect();
    let words: Vec<String> = state
        .bench
        .rows
        .iter()
        .map(|row| format!("{} at {}", words::rate(row.decode), words::bytes(row.memory_bytes)))
        .collect();
    let plot = super::inspector::plot("speed", ui.available_width(), 220.0, &palette)
        .show_axes([true, true])
        .include_y(0.0)
        .set_margin_fraction(egui::vec2(0.06, 0.12))
        .x_axis_label("memory budget, GB")
        .y_axis_label("tok/s")
        .legend(Legend::default().position(egui_plot::Corner::LeftTop));
    let response = plot.show(ui, |plot| {
        plot.line(
            Line::new("What the machine allows", PlotPoints::from(bound)).color(palette.series[3]).width(1.5),
        );
        plot.line(
            Line::new("Reached", PlotPoints::from(reached.clone())).color(palette.series[1]).width(2.0),
        );
        plot.points(Points::new("Reached", PlotPoints::from(reached)).color(palette.series[1]).radius(4.0));
    });
    response.response.widget_info(|| {
        WidgetInfo::labeled(
            egui::Role::Image,
            true,
            format!("Tokens a second by memory: {}", words.join(", ")),
        )
    });
}

const HEAD: [&str; 7] = ["Budget", "Decode", "Bound", "Prefill", "First token", "Hits", "Peak memory"];

fn cells(row: &fieldfare_app_worker::message::BenchRow) -> [String; 7] {
    [
        words::bytes(row.memory_bytes),
        words::rate(row.decode),
        words::rate(row.decode_bound),
        words::rate(row.prefill),
        format!("{:.2} s", row.first_token_seconds),
        words::share(row.hit_rate),
        words::bytes(row.peak_bytes),
    ]
}

fn table(ui: &mut Ui, state: &State) {
    let palette = theme::palette(ui);
    egui::ScrollArea::horizontal().show(ui, |ui| {
        Grid::new("bench").striped(true).spacing([22.0, 6.0]).show(ui, |ui| {
            for name in HEAD {
                ui.label(strong(name, &palette));
            }
            ui.end_row();
            for row in &state.bench.rows {
                for cell in cells(row) {
                    ui.label(cell);
                }
                ui.end_row();
            }
        });
    });
}

fn as_text(state: &State) -> String {
    let mut text = format!("| {} |\n|{}\n", HEAD.join(" | "), " --- |".repeat(HEAD.len()));
    for row in &state.bench.rows {
        text.push_str(&format!("| {} |\n", cells(row).join(" | ")));
    }
    text
}
