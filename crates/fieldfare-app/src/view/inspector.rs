//! What the engine does: memory against budget, speed and reads over time, and every expert of every layer.

use super::{card, note};
use crate::state::State;
use crate::theme::{self, Palette};
use crate::words;
use eframe::egui::{self, Color32, Mesh, Rect, RichText, Sense, Shape, Ui, WidgetInfo};
use egui_plot::{HLine, Line, Plot, PlotPoints};
use fieldfare_app_worker::message::{ExpertCell, Role, Sample};

/// How much time the plots show, in seconds.
const SPAN: f64 = 120.0;
/// How long a miss is seen, in seconds.
const FLASH: f64 = 0.8;

/// All of it.
pub fn show(ui: &mut Ui, state: &State) {
    let Some(newest) = &state.seen.newest else {
        let reason = state.why_no_engine().unwrap_or("The first figures come in a moment.");
        card(ui, "Nothing to see yet", |ui| {
            ui.label(format!(
                "{reason} This page then shows the expert cache, the reads and the speed as they happen."
            ));
        });
        return;
    };
    card(ui, "Expert cache", |ui| map(ui, state, newest));
    card(ui, "Over time", |ui| plots(ui, state));
    if let Some(plan) = state.plan() {
        card(ui, "Memory", |ui| {
            let used = words::bytes(newest.memory_bytes);
            ui.label(format!(
                "The engine holds {used} of its budget of {}.",
                words::bytes(newest.budget_bytes)
            ));
            super::plan::bar(ui, plan, false);
        });
    }
    let run = state
        .open
        .as_ref()
        .and_then(|open| open.shown().rev().find(|message| message.role == Role::Assistant))
        .and_then(|message| message.run);
    card(ui, "Last answer", |ui| match run {
        Some(run) => super::chat::diagnostics(ui, &run),
        None => {
            note(ui, "No answer was written in this conversation yet.");
        }
    });
}

/// What the colours of a cell mean.
fn color_of(cell: ExpertCell, flash: f32, palette: &Palette) -> Color32 {
    let ground = if cell.resident {
        // From the series' blue to the accent by use.
        let cold = palette.tint(palette.series[0], 0.45);
        cold.lerp_to_gamma(palette.series[1], cell.heat.clamp(0.0, 1.0))
    } else {
        palette.tint(palette.line, 0.55)
    };
    if cell.missed { ground.lerp_to_gamma(palette.bad, flash) } else { ground }
}

fn map(ui: &mut Ui, state: &State, sample: &Sample) {
    let palette = theme::palette(ui);
    let layers = sample.experts.len();
    let experts = sample.experts.iter().map(Vec::len).max().unwrap_or(0);
    if layers == 0 || experts == 0 {
        note(ui, "The engine does not report its experts.");
        return;
    }
    let cells = || sample.experts.iter().flatten();
    let resident = cells().filter(|cell| cell.resident).count();
    let missed = cells().filter(|cell| cell.missed).count();
    let all = cells().count();
    let width = ui.available_width() - 30.0;
    let cell = (width / experts as f32).clamp(2.0, 18.0);
    let tall = cell.clamp(6.0, 10.0);
    let size = egui::vec2(30.0 + cell * experts as f32, tall * layers as f32);
    let (rect, response) = ui.allocate_exact_size(size, Sense::hover());
    let words = format!(
        "{layers} layers of {experts} experts: {} of {} in memory, {} read since the last look",
        words::count(resident as u64),
        words::count(all as u64),
        missed
    );
    response.widget_info(|| WidgetInfo::labeled(egui::Role::Image, true, format!("Expert cache: {words}")));
    let age = state.now - state.seen.newest_at;
    let flash = if missed > 0 { (1.0 - age / FLASH).clamp(0.0, 1.0) as f32 } else { 0.0 };
    if flash > 0.0 {
        // The flash fades in a few steps, not in every frame of the screen.
        ui.ctx().request_repaint_after_secs(0.1);
    }
    if ui.is_rect_visible(rect) {
        let grid = Rect::from_min_size(rect.min + egui::vec2(30.0, 0.0), egui::vec2(cell, tall));
        ui.painter().add(Shape::mesh(mesh(sample, grid, flash, &palette)));
        for layer in (0..layers).step_by(5) {
            let at = egui::pos2(rect.left() + 24.0, rect.top() + tall * (layer as f32 + 0.5));
            let font = egui::FontId::proportional(10.0);
            ui.painter().text(at, egui::Align2::RIGHT_CENTER, layer.to_string(), font, palette.weak);
        }
    }
    if let Some(at) = response.hover_pos() {
        let layer = ((at.y - rect.top()) / tall).max(0.0) as usize;
        let expert = ((at.x - rect.left() - 30.0) / cell).max(0.0) as usize;
        if let Some(cell) = sample.experts.get(layer).and_then(|layer| layer.get(expert)) {
            let place = if cell.resident { "in memory" } else { "on the disk" };
            let heat = words::share(f64::from(cell.heat));
            response.on_hover_text(format!(
                "Layer {layer}, expert {expert}: {place}, used {heat} of the most used"
            ));
        }
    }
    ui.horizontal_wrapped(|ui| {
        for (name, color) in [
            ("on the disk", color_of(ExpertCell::default(), 0.0, &palette)),
            ("in memory", color_of(ExpertCell { resident: true, ..ExpertCell::default() }, 0.0, &palette)),
            ("used much", color_of(ExpertCell { resident: true, heat: 1.0, missed: false }, 0.0, &palette)),
            ("just read", palette.bad),
        ] {
            let (square, _) = ui.allocate_exact_size(egui::vec2(10.0, 10.0), Sense::hover());
            ui.painter().rect_filled(square, 2.0, color);
            ui.label(RichText::new(name).small());
            ui.add_space(6.0);
        }
    });
    note(
        ui,
        format!(
            "{words}. A row is a layer, a column an expert; {} of uses found theirs lately.",
            words::share(sample.hit_rate)
        ),
    );
}

/// All cells as one mesh; `first` is the first cell.
fn mesh(sample: &Sample, first: Rect, flash: f32, palette: &Palette) -> Mesh {
    let mut mesh = Mesh::default();
    let gap = if first.width() > 4.0 { 1.0 } else { 0.5 };
    for (layer, cells) in sample.experts.iter().enumerate() {
        for (expert, cell) in cells.iter().enumerate() {
            let step = egui::vec2(first.width() * expert as f32, first.height() * layer as f32);
            let mut rect = first.translate(step);
            rect.max -= egui::vec2(gap, gap);
            mesh.add_colored_rect(rect, color_of(*cell, flash, palette));
        }
    }
    mesh
}

fn plots(ui: &mut Ui, state: &State) {
    let palette = theme::palette(ui);
    let Some(last) = state.seen.samples.back() else { return };
    let end = last.at_ms as f64 / 1e3;
    let points = |value: fn(&Sample) -> f64| -> Vec<[f64; 2]> {
        state
            .seen
            .samples
            .iter()
            .map(|sample| [sample.at_ms as f64 / 1e3 - end, value(sample)])
            .filter(|point| point[0] >= -SPAN)
            .collect()
    };
    let budget = last.budget_bytes as f64 / 1e9;
    let tall = |value: f64, unit: &str| value.max(if unit == "GB" { 0.05 } else { 1.0 });
    let width = ui.available_width();
    let rate = points(|sample| sample.tokens_per_second);
    let read = points(|sample| sample.read_bytes_per_second / 1e6);
    let memory = points(|sample| sample.memory_bytes as f64 / 1e9);
    for (name, unit, points, color, line) in [
        ("Tokens a second", "tok/s", rate, palette.series[0], None),
        ("Read for experts", "MB/s", read, palette.series[1], None),
        ("Memory", "GB", memory, palette.series[2], Some(budget).filter(|budget| *budget > 0.0)),
    ] {
        let newest = points.last().map_or(0.0, |point| point[1]);
        ui.horizontal(|ui| {
            ui.label(RichText::new(name).small().color(palette.text));
            let decimals = if unit == "GB" && budget < 0.5 { 3 } else { 1 };
            let mut text = format!("{newest:.decimals$} {unit}");
            if let Some(line) = line {
                text.push_str(&format!(" of {line:.decimals$}"));
            }
            ui.label(RichText::new(text).small().color(palette.strong));
        });
        let top = points.iter().map(|point| point[1]).fold(line.unwrap_or(0.0), f64::max);
        let plot = plot(name, width, 90.0, &palette)
            .show_grid([false, true])
            .include_x(-SPAN)
            .include_x(0.0)
            .include_y(0.0)
            .include_y(tall(top * 1.1, unit));
        let response = plot.show(ui, |plot| {
            plot.line(Line::new(name, PlotPoints::from(points)).color(color).width(1.5));
            if let Some(line) = line {
                plot.hline(HLine::new("Budget", line).color(palette.weak).width(1.0));
            }
        });
        response.response.widget_info(|| {
            WidgetInfo::labeled(
                egui::Role::Image,
                true,
                format!("{name} over two minutes, now {newest:.1} {unit}"),
            )
        });
    }
    note(ui, "The last two minutes; now is on the right.");
}

/// A plot that is looked at, not dragged.
pub fn plot<'a>(name: &str, width: f32, height: f32, palette: &Palette) -> Plot<'a> {
    Plot::new(name.to_owned())
        .grid_color(palette.line)
        .grid_spacing(14.0..=120.0)
        .width(width)
        .height(height)
        .allow_zoom(false)
        .allow_drag(false)
        .allow_scroll(false)
        .allow_boxed_zoom(false)
        .allow_double_click_reset(false)
        .show_axes([false, true])
        .y_axis_min_width(36.0)
        .show_x(false)
        .set_margin_fraction(egui::vec2(0.0, 0.02))
}
