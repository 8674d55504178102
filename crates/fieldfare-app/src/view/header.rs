//! The bar above the page: what is open, and the model.

use super::{button_or_why, primary, strong};
use crate::state::{Action, Page, State};
use crate::{theme, words};
use eframe::egui::{self, Align, Button, Layout, RichText, Ui};
use fieldfare_app_worker::message::{Model, Service};

/// The bar.
pub fn bar(ui: &mut Ui, state: &mut State, out: &mut Vec<Action>) {
    let palette = theme::palette(ui);
    ui.horizontal(|ui| {
        let name = if state.settings.sidebar { "Hide the list" } else { "Show the list" };
        let toggle = ui.add(Button::new("☰").frame_when_inactive(false));
        if toggle.accessible_name(name).on_hover_text(format!("{name} (Ctrl-B)")).clicked() {
            out.push(Action::ToggleSidebar);
        }
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            model(ui, state, out);
            ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                let title = match (&state.open, state.page) {
                    (Some(open), Page::Chat) => open.conversation.summary.title.clone(),
                    (None, Page::Chat) => "New conversation".to_owned(),
                    _ => String::new(),
                };
                ui.add(egui::Label::new(strong(title, &palette)).truncate());
            });
        });
    });
}

/// From right to left.
fn model(ui: &mut Ui, state: &State, out: &mut Vec<Action>) {
    let found = state.models.found.as_deref().unwrap_or_default();
    let Some(chosen) = state.chosen().cloned() else {
        if state.models.found.is_some() {
            if state.page != Page::Models && ui.add(primary(ui, "Get a model")).clicked() {
                out.push(Action::Go(Page::Models));
            }
        } else {
            ui.label(RichText::new("Looking for models…").color(theme::palette(ui).weak));
        }
        return;
    };
    match &state.service {
        Service::Off | Service::Failed(_) | Service::Crashed { restarting: false, .. } => {
            let why = state.bench.running.then_some("The benchmark runs.");
            if button_or_why(ui, primary(ui, "Load"), why) {
                out.push(Action::Load(chosen.clone()));
            }
        }
        Service::Starting { .. } | Service::Crashed { restarting: true, .. } => {
            if ui.button("Cancel").clicked() {
                out.push(Action::Unload);
            }
        }
        Service::Ready { .. } => {
            let unload = ui.button("Unload").on_hover_text("Ends the engine and frees its memory");
            if unload.clicked() {
                out.push(Action::Unload);
            }
        }
    }
    picker(ui, state, found, &chosen, out);
}

fn picker(ui: &mut Ui, state: &State, found: &[Model], chosen: &Model, out: &mut Vec<Action>) {
    let label = |model: &Model| format!("{} ({})", model.name, words::bytes(model.bytes));
    egui::ComboBox::from_id_salt("model")
        .selected_text(words::first_line(&chosen.name, 34))
        .width(210.0)
        .show_ui(ui, |ui| {
            for model in found {
                let here = model.path == chosen.path;
                let choice = ui.selectable_label(here, label(model));
                if choice.on_hover_text(model.path.display().to_string()).clicked()
                    && (!here || state.loaded().is_none())
                {
                    out.push(Action::Load(model.clone()));
                }
            }
            ui.separator();
            if ui.selectable_label(false, "More models…").clicked() {
                out.push(Action::Go(Page::Models));
            }
        })
        .response
        .accessible_name("Model");
}
