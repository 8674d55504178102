//! Settings: the engine's, how answers are drawn, the look.

use super::{card, note, row, unless};
use crate::settings::{Preset, SendKey, Theme, ZOOM};
use crate::state::{Action, State};
use crate::words;
use eframe::egui::{DragValue, Slider, TextEdit, Ui};

/// All of it.
pub fn show(ui: &mut Ui, state: &mut State, out: &mut Vec<Action>) {
    card(ui, "Engine", |ui| super::plan::show(ui, state, out));
    let mut settings = state.settings.clone();
    card(ui, "Answers", |ui| answers(ui, &mut settings));
    card(ui, "System prompts", |ui| presets(ui, &mut settings));
    card(ui, "Look and keys", |ui| look(ui, &mut settings));
    card(ui, "Models", |ui| {
        ui.checkbox(&mut settings.load_at_start, "Load the last model when the window opens");
        let mut gone = None;
        for (place, folder) in settings.folders.iter().enumerate() {
            ui.horizontal(|ui| {
                ui.label(folder.display().to_string());
                if ui.small_button("Remove").on_hover_text("Models there are not deleted").clicked() {
                    gone = Some(place);
                }
            });
        }
        if let Some(place) = gone {
            settings.folders.remove(place);
            out.push(Action::FindModels);
        }
        if ui.button("Look in another folder…").clicked() {
            out.push(Action::PickModelFolder);
        }
    });
    if settings != state.settings {
        // Before what the buttons above ask for, which may need it.
        out.insert(0, Action::Settings(Box::new(settings)));
    }
}

fn answers(ui: &mut Ui, settings: &mut crate::settings::Settings) {
    row(ui, "Temperature", |ui| {
        ui.name_inputs("Temperature", |ui| {
            ui.add(Slider::new(&mut settings.temperature, 0.0..=2.0).step_by(0.05))
        });
        note(ui, if settings.temperature == 0.0 { "always the likeliest" } else { "higher is more varied" });
    });
    row(ui, "Top-K", |ui| {
        ui.add(DragValue::new(&mut settings.top_k).range(0..=10_000)).accessible_name("Top-K");
        note(ui, if settings.top_k == 0 { "all tokens" } else { "of the likeliest tokens" });
    });
    row(ui, "Top-P", |ui| {
        ui.name_inputs("Top-P", |ui| ui.add(Slider::new(&mut settings.top_p, 0.01..=1.0).step_by(0.01)));
    });
    row(ui, "Longest answer", |ui| {
        let mut free = settings.max_tokens.is_none();
        let mut most = settings.max_tokens.unwrap_or(2_048);
        let why = "As long as it fits";
        let field = DragValue::new(&mut most).range(1..=262_144);
        let field = unless(ui, free.then_some(why), field).accessible_name("Longest answer");
        if field.changed() && !free {
            settings.max_tokens = Some(most);
        }
        ui.label("tokens");
        if ui.checkbox(&mut free, why).changed() {
            settings.max_tokens = (!free).then_some(most);
        }
    });
    row(ui, "Seed", |ui| {
        let mut free = settings.seed.is_none();
        let mut seed = settings.seed.unwrap_or(1);
        let why = "Another one each time";
        let field = unless(ui, free.then_some(why), DragValue::new(&mut seed)).accessible_name("Seed");
        if field.changed() && !free {
            settings.seed = Some(seed);
        }
        if ui.checkbox(&mut free, why).changed() {
            settings.seed = (!free).then_some(seed);
        }
    });
    row(ui, "Thinking", |ui| {
        ui.checkbox(&mut settings.thinking, "Think before answering");
    });
}

fn presets(ui: &mut Ui, settings: &mut crate::settings::Settings) {
    note(
        ui,
        "What the model is told before a conversation. New conversations begin with the one that is ticked.",
    );
    let mut gone = None;
    let mut first = settings.preset;
    for (place, preset) in settings.presets.iter_mut().enumerate() {
        ui.push_id(place, |ui| {
            ui.horizontal(|ui| {
                let mut begins = first == Some(place);
                let tick =
                    ui.checkbox(&mut begins, "").accessible_name(format!("Begin with {}", preset.name));
                if tick.changed() {
                    first = begins.then_some(place);
                }
                ui.add(TextEdit::singleline(&mut preset.name).desired_width(180.0)).accessible_name("Name");
                if ui.small_button("Remove").clicked() {
                    gone = Some(place);
                }
            });
            let width = ui.available_width();
            let edit = TextEdit::multiline(&mut preset.text).desired_rows(2).desired_width(width);
            ui.add(edit).accessible_name(format!("System prompt {}", place + 1));
            ui.add_space(4.0);
        });
    }
    settings.preset = first;
    if let Some(place) = gone {
        settings.presets.remove(place);
        settings.preset = match settings.preset {
            Some(kept) if kept == place => None,
            Some(kept) if kept > place => Some(kept - 1),
            kept => kept,
        };
    }
    if ui.button("Another one").clicked() {
        let name = format!("Prompt {}", settings.presets.len() + 1);
        settings.presets.push(Preset { name, text: String::new() });
    }
}

fn look(ui: &mut Ui, settings: &mut crate::settings::Settings) {
    row(ui, "Theme", |ui| {
        for (theme, name) in
            [(Theme::System, "As the system"), (Theme::Light, "Light"), (Theme::Dark, "Dark")]
        {
            ui.selectable_value(&mut settings.theme, theme, name);
        }
    });
    row(ui, "Contrast", |ui| {
        ui.checkbox(&mut settings.high_contrast, "High contrast");
    });
    row(ui, "Size", |ui| {
        // Applied when the slider is let go: a scale that changes below the pointer cannot be set.
        let mut zoom = settings.zoom_percent;
        for step in [80, 100, 125, 150, 200] {
            ui.selectable_value(&mut zoom, step, format!("{step} %"));
        }
        let field = DragValue::new(&mut zoom).range(ZOOM).suffix(" %").update_while_editing(false);
        ui.add(field).accessible_name("Size in per cent");
        settings.zoom_percent = zoom;
    });
    row(ui, "Send with", |ui| {
        ui.selectable_value(&mut settings.send_key, SendKey::Return, "Return");
        ui.selectable_value(
            &mut settings.send_key,
            SendKey::CommandReturn,
            "Ctrl-Return (Cmd-Return on a Mac)",
        );
    });
    let other = match settings.send_key {
        SendKey::Return => "Shift-Return is a new line.",
        SendKey::CommandReturn => "Return is a new line.",
    };
    note(ui, words::first_line(other, 80));
}
