//! Where questions are written, with their documents.

use super::{column, note, primary, unless};
use crate::settings::SendKey;
use crate::state::{Action, NOTHING_WRITTEN, State};
use crate::{theme, words};
use eframe::egui::{
    self, Align, Button, CornerRadius, Frame, Key, KeyboardShortcut, Layout, Margin, Modifiers, RichText,
    Stroke, TextEdit, Ui,
};

/// The composer's field.
pub fn field_id() -> egui::Id {
    egui::Id::unique("composer")
}

/// All of it.
pub fn show(ui: &mut Ui, state: &mut State, out: &mut Vec<Action>) {
    column(ui, super::COLUMN, |ui| {
        if state.composer.editing.is_some() {
            ui.horizontal(|ui| {
                note(ui, "Another version of an earlier question; the old one stays.");
                if ui.small_button("Leave it as it was").clicked() {
                    out.push(Action::CancelEdit);
                }
            });
        }
        let palette = theme::palette(ui);
        let focused = ui.memory(|memory| memory.has_focus(field_id()));
        let frame = Frame::NONE
            .fill(palette.card)
            .stroke(Stroke::new(
                if focused { 1.5 } else { 1.0 },
                if focused { palette.accent } else { palette.line },
            ))
            .corner_radius(CornerRadius::same(10))
            .inner_margin(Margin::symmetric(12, 8));
        frame.show(ui, |ui| {
            documents(ui, state, out);
            field(ui, state, out);
            buttons(ui, state, out);
        });
        foot(ui, state);
    });
}

fn documents(ui: &mut Ui, state: &State, out: &mut Vec<Action>) {
    if state.composer.documents.is_empty() && state.composer.reading == 0 {
        return;
    }
    let palette = theme::palette(ui);
    ui.horizontal_wrapped(|ui| {
        for (index, document) in state.composer.documents.iter().enumerate() {
            let tokens = document.tokens.map_or_else(
                || words::bytes(document.text.len() as u64),
                |tokens| format!("{} tokens", words::count(tokens)),
            );
            let frame = Frame::NONE
                .fill(palette.tint(palette.line, 0.6))
                .corner_radius(CornerRadius::same(6))
                .inner_margin(Margin::symmetric(8, 3));
            frame.show(ui, |ui| {
                ui.horizontal(|ui| {
                    ui.label(format!("{} · {tokens}", document.name));
                    let remove = ui.add(Button::new("×").frame_when_inactive(false).small());
                    if remove.accessible_name(format!("Leave out {}", document.name)).clicked() {
                        out.push(Action::RemoveDocument(index));
                    }
                });
            });
        }
        if state.composer.reading > 0 {
            ui.label("Reading…");
        }
    });
    ui.add_space(4.0);
}

fn field(ui: &mut Ui, state: &mut State, out: &mut Vec<Action>) {
    let (new_line, hint) = match state.settings.send_key {
        SendKey::Return => {
            (KeyboardShortcut::new(Modifiers::SHIFT, Key::Enter), "Write a message; Return sends")
        }
        SendKey::CommandReturn => {
            (KeyboardShortcut::new(Modifiers::NONE, Key::Enter), "Write a message; Ctrl-Return sends")
        }
    };
    let focused = ui.memory(|memory| memory.has_focus(field_id()));
    if focused && wants_to_send(ui, state.settings.send_key) {
        out.push(Action::Send);
    }
    let lines = state.composer.text.lines().count().clamp(1, 3);
    let height = ui.ctx().content_rect().height();
    let most = (height * 0.35).max(60.0);
    egui::ScrollArea::vertical().id_salt("composer text").max_height(most).show(ui, |ui| {
        let edit = TextEdit::multiline(&mut state.composer.text)
            .id(field_id())
            .hint_text(hint)
            .desired_width(f32::INFINITY)
            .desired_rows(lines)
            .frame(Frame::NONE)
            .return_key(new_line);
        let response = ui.add(edit).accessible_name("Message");
        if response.changed() {
            out.push(Action::Typed);
        }
        if std::mem::take(&mut state.composer.focus) {
            response.request_focus();
        }
    });
}

/// Whether the key that sends was pressed; it is taken away from the field. A key that an input method has just answered
/// belongs to it: on some systems the one that takes a suggestion is heard here too.
fn wants_to_send(ui: &Ui, key: SendKey) -> bool {
    if ui.input(|input| input.events.iter().any(|event| matches!(event, egui::Event::Ime(_)))) {
        return false;
    }
    ui.input_mut(|input| match key {
        SendKey::Return => {
            let plain = input.events.iter().any(|event| {
                matches!(event, egui::Event::Key { key: Key::Enter, pressed: true, modifiers, .. } if modifiers.is_none())
            });
            plain && input.consume_key(Modifiers::NONE, Key::Enter)
        }
        SendKey::CommandReturn => input.consume_key(Modifiers::COMMAND, Key::Enter),
    })
}

fn buttons(ui: &mut Ui, state: &mut State, out: &mut Vec<Action>) {
    ui.horizontal(|ui| {
        let add = ui.button("+ Document").on_hover_text("Add text documents, or drop them into the window");
        if add.clicked() {
            out.push(Action::PickDocuments);
        }
        let mut settings = state.settings.clone();
        ui.toggle_value(&mut settings.thinking, "Think first")
            .on_hover_text("Let the model think before it answers");
        if settings != state.settings {
            out.push(Action::Settings(Box::new(settings)));
        }
        system(ui, state, out);
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            // Why not is below them, where there is more room.
            let why = state.why_not_send();
            if let Some(answer) = &state.answer {
                let stop = unless(ui, why.filter(|_| answer.stopping), Button::new("■  Stop"));
                if stop.accessible_name("Stop").on_hover_text("Escape").clicked() {
                    out.push(Action::Stop);
                }
                return;
            }
            let send = primary(ui, "Send");
            if unless(ui, why, send).clicked() {
                out.push(Action::Send);
            }
        });
    });
}

/// The system prompt of this conversation: a preset or one's own.
fn system(ui: &mut Ui, state: &mut State, out: &mut Vec<Action>) {
    let current = match &state.open {
        Some(open) => open.conversation.system.clone(),
        None => state.new_system.clone().unwrap_or_else(|| state.settings.system()),
    };
    let name = if current.is_empty() {
        "No system prompt".to_owned()
    } else {
        let preset = state.settings.presets.iter().find(|preset| preset.text == current);
        preset.map_or_else(|| "Own system prompt".to_owned(), |preset| preset.name.clone())
    };
    ui.menu_button(words::first_line(&name, 22), |ui| {
        ui.set_min_width(320.0);
        ui.label("System prompt of this conversation");
        if ui.selectable_label(current.is_empty(), "None").clicked() {
            out.push(Action::SetSystem(String::new()));
        }
        for preset in &state.settings.presets {
            let choice = ui.selectable_label(preset.text == current, &preset.name);
            if choice.on_hover_text(&preset.text).clicked() {
                out.push(Action::SetSystem(preset.text.clone()));
            }
        }
        let mut own = current.clone();
        let edit =
            TextEdit::multiline(&mut own).desired_rows(3).desired_width(300.0).hint_text("Or write one here");
        if ui.add(edit).accessible_name("Own system prompt").changed() {
            out.push(Action::SetSystem(own));
        }
        if ui.button("Edit presets in Settings").clicked() {
            out.push(Action::Go(crate::state::Page::Settings));
            ui.close();
        }
    })
    .response
    .on_hover_text("System prompt");
}

/// Why nothing can be sent, and how long it is; below the button, the shorter of both right under it.
fn foot(ui: &mut Ui, state: &State) {
    let palette = theme::palette(ui);
    let small = |text: String| RichText::new(text).small().color(palette.weak);
    ui.horizontal(|ui| {
        let why = state.why_not_send();
        let obstacle = why.filter(|reason| *reason != NOTHING_WRITTEN);
        ui.label(small(obstacle.unwrap_or("Answers can be wrong; check what matters.").to_owned()));
        let nothing = state.composer.text.trim().is_empty() && state.composer.documents.is_empty();
        let right = if nothing {
            why.filter(|reason| *reason == NOTHING_WRITTEN).map(str::to_owned)
        } else {
            state.written_tokens().map(|tokens| {
                let of = state.plan().map(|plan| format!(" of {}", words::count(u64::from(plan.context))));
                format!("{}{} tokens", words::count(tokens), of.unwrap_or_default())
            })
        };
        if let Some(text) = right {
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| ui.label(small(text)));
        }
    });
}
