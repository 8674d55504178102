//! The memory budget as one slider, and what it would mean, before it is applied.

use super::{button_or_why, note, primary, row, strong, unless};
use crate::state::{Action, State};
use crate::{theme, words};
use eframe::egui::{self, Align2, FontId, Label, RichText, Sense, Slider, Ui, WidgetInfo};
use fieldfare_app_worker::message::Plan;

/// The slider and the plan.
pub fn show(ui: &mut Ui, state: &State, out: &mut Vec<Action>) {
    let Some(model) = state.chosen() else {
        note(ui, "No model is installed; what memory would do is shown once there is one.");
        return;
    };
    note(ui, format!("For {}.", model.name));
    let mut draft = state.draft();
    let before = draft.clone();
    let off = draft.memory_bytes.is_none().then_some("The slider is off while the machine decides.");
    row(ui, "Memory", |ui| {
        let highest = state.planning.automatic.as_ref().map_or(16e9, |plan| plan.memory_bytes as f64);
        let step = if highest > 4e9 { 5e7 } else { (highest / 200.0).max(1.0) };
        // Round figures, from the first that can do.
        let lowest = state.planning.automatic.as_ref().map_or(1e9, lowest);
        let lowest = ((lowest / step).ceil() * step).min(highest * 0.999);
        let mut value = draft.memory_bytes.map_or(highest, |bytes| bytes as f64);
        let slider = Slider::new(&mut value, lowest..=highest)
            .step_by(step)
            // What is set is left alone until a person moves it.
            .clamping(egui::SliderClamping::Edits)
            .custom_formatter(|value, _| words::bytes(value as u64))
            .custom_parser(|text| words::parse_bytes(text).map(|bytes| bytes as f64));
        let response = ui.name_inputs("Memory budget", |ui| unless(ui, off, slider));
        if response.changed() && off.is_none() {
            draft.memory_bytes = Some(value as u64);
        }
    });
    row(ui, "", |ui| {
        let mut automatic = draft.memory_bytes.is_none();
        if ui.checkbox(&mut automatic, "As much as helps and the machine bears").changed() {
            let highest = state.planning.automatic.as_ref().map(|plan| plan.memory_bytes);
            draft.memory_bytes = if automatic { None } else { highest.or(Some(4_000_000_000)) };
        }
    });
    if let Some(reason) = off {
        note(ui, reason);
    }
    more(ui, state, &mut draft);
    if draft != before {
        out.push(Action::Replan(draft.clone()));
    }
    ui.add_space(6.0);
    match &state.planning.planned {
        Some((settings, Ok(plan))) => bar(ui, plan, *settings != draft),
        Some((_, Err(trouble))) => {
            let palette = theme::palette(ui);
            ui.add(Label::new(RichText::new(&trouble.message).color(palette.bad)).wrap());
            ui.add(Label::new(trouble.remedy.as_str()).wrap());
        }
        None => {
            ui.label("Asking what that would mean…");
        }
    }
    ui.add_space(6.0);
    let changed = draft != state.settings.engine();
    let refused = matches!(&state.planning.planned, Some((settings, Err(_))) if *settings == draft);
    ui.horizontal(|ui| {
        let why = if !changed {
            Some("Nothing was changed.")
        } else if refused {
            Some("The model cannot be started like this.")
        } else if state.answer.is_some() {
            Some("An answer is being written; stop it first.")
        } else {
            None
        };
        if button_or_why(ui, primary(ui, "Apply"), why) {
            out.push(Action::ApplyPlan);
        }
        if changed {
            if ui.button("Leave as it was").clicked() {
                out.push(Action::RevertPlan);
            }
            note(ui, "The engine starts again with it; conversations stay.");
        }
    });
}

/// What cannot be done without: the core, the program, and one slot in each layer.
fn lowest(plan: &Plan) -> f64 {
    let slots = f64::from(plan.slots_per_layer.max(1));
    (plan.core_bytes + plan.other_bytes) as f64 + plan.slot_bytes as f64 / slots
}

fn more(ui: &mut Ui, state: &State, draft: &mut fieldfare_app_worker::message::EngineSettings) {
    let planned = state.planning.planned.as_ref().and_then(|(_, plan)| plan.as_ref().ok());
    let context = planned.map_or(4_096, |plan| plan.context);
    row(ui, "Context", |ui| {
        optional(ui, &mut draft.context, context, 256..=262_144, "tokens", "The most that fits", "Context");
    });
    let slots = planned.map_or(8, |plan| plan.slots_per_layer.max(1));
    let most = planned.map_or(128, |plan| plan.experts_per_layer.max(1));
    row(ui, "Expert slots", |ui| {
        optional(ui, &mut draft.slots, slots, 1..=most, "of each layer", "As many as fit", "Expert slots");
    });
    row(ui, "Threads", |ui| {
        optional(ui, &mut draft.threads, 2, 1..=256, "", "As the machine has", "Threads");
    });
    row(ui, "Prefill", |ui| {
        ui.checkbox(&mut draft.prefill, "Read a prompt in passes (quicker; off: a token at a time)");
    });
    row(ui, "Read advice", |ui| {
        egui::ComboBox::from_id_salt("advice")
            .selected_text(draft.advice.clone())
            .show_ui(ui, |ui| {
                for advice in crate::settings::ADVICE {
                    ui.selectable_value(&mut draft.advice, advice.to_owned(), advice);
                }
            })
            .response
            .accessible_name("Read advice");
        note(ui, "what the system is told about coming reads");
    });
}

/// A number that may be left to the program; the ticked box beside it says why it cannot be changed then.
fn optional(
    ui: &mut Ui,
    value: &mut Option<u32>,
    usual: u32,
    range: std::ops::RangeInclusive<u32>,
    unit: &str,
    automatic: &str,
    name: &str,
) {
    let mut left_alone = value.is_none();
    let mut number = value.unwrap_or(usual);
    let field = egui::DragValue::new(&mut number).range(range).speed(1.0);
    let response = unless(ui, left_alone.then_some(automatic), field).accessible_name(name);
    if response.changed() && !left_alone {
        *value = Some(number);
    }
    if !unit.is_empty() {
        ui.label(unit);
    }
    if ui.checkbox(&mut left_alone, automatic).changed() {
        *value = (!left_alone).then_some(number);
    }
}

/// Where memory goes, as a bar with its parts named.
pub fn bar(ui: &mut Ui, plan: &Plan, old: bool) {
    let palette = theme::palette(ui);
    let parts = [
        ("Shared core", plan.core_bytes, palette.series[0]),
        ("Expert slots", plan.slot_bytes, palette.series[1]),
        ("Context (KV)", plan.kv_bytes, palette.series[2]),
        ("Program", plan.other_bytes, palette.series[3]),
    ];
    let sum: u64 = parts.iter().map(|part| part.1).sum();
    let all = sum.max(plan.memory_bytes).max(1);
    let (rect, response) = ui.allocate_exact_size(egui::vec2(ui.available_width(), 22.0), Sense::hover());
    let words: Vec<String> =
        parts.iter().map(|(name, bytes, _)| format!("{name} {}", words::bytes(*bytes))).collect();
    response.widget_info(|| {
        WidgetInfo::labeled(egui::Role::ProgressIndicator, true, format!("Memory: {}", words.join(", ")))
    });
    let painter = ui.painter_at(rect);
    painter.rect_filled(rect, 4.0, palette.tint(palette.line, 0.5));
    let mut left = rect.left();
    for (_, bytes, color) in parts {
        let width = rect.width() * (bytes as f64 / all as f64) as f32;
        let part = egui::Rect::from_min_size(egui::pos2(left, rect.top()), egui::vec2(width, rect.height()));
        let color = if old { palette.tint(color, 0.5) } else { color };
        painter.rect_filled(part.shrink2(egui::vec2(0.5, 0.0)), 2.0, color);
        left += width;
    }
    if sum < plan.memory_bytes {
        let at = rect.right_center() - egui::vec2(6.0, 0.0);
        let free = format!("{} free", words::bytes(plan.memory_bytes - sum));
        if rect.right() - left > 70.0 {
            painter.text(at, Align2::RIGHT_CENTER, free, FontId::proportional(12.0), palette.weak);
        }
    }
    ui.horizontal_wrapped(|ui| {
        for (name, bytes, color) in parts {
            let (square, _) = ui.allocate_exact_size(egui::vec2(10.0, 10.0), Sense::hover());
            ui.painter().rect_filled(square, 2.0, color);
            ui.add(Label::new(RichText::new(format!("{name} {}", words::bytes(bytes))).small()).extend());
            ui.add_space(6.0);
        }
    });
    ui.horizontal_wrapped(|ui| {
        let speed = plan.tokens_per_second.map_or_else(
            || "not known before this machine was measured (Benchmark)".to_owned(),
            |rate| format!("about {}", words::rate(rate)),
        );
        ui.label("Expected speed:");
        ui.label(strong(speed, &palette));
    });
    note(
        ui,
        format!(
            "{} in all · {} of {} experts a layer in memory, {} of uses expected to find theirs · context of {} tokens",
            words::bytes(plan.memory_bytes),
            plan.slots_per_layer,
            plan.experts_per_layer,
            words::share(plan.hit_rate),
            words::count(u64::from(plan.context)),
        ),
    );
}
