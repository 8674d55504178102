//! What this is, and its keys.

use super::{card, note};
use crate::keys::SHORTCUTS;
use crate::state::{Action, State};
use eframe::egui::{self, Ui};

/// All of it.
pub fn show(ui: &mut Ui, state: &State, out: &mut Vec<Action>) {
    card(ui, "", |ui| {
        ui.label(format!("Fieldfare {}", env!("CARGO_PKG_VERSION")));
        ui.label("Runs Gemma 4 26B-A4B on ordinary computers in about 2 GB of memory: the model stays on the disk, and of its experts only those that a token needs are read.");
        note(ui, "A fieldfare is a thrush. It lives in the open and eats what it finds.");
    });
    card(ui, "What stays where", |ui| {
        ui.label("Conversations, documents and settings stay on this machine. The network is used for one thing: the download of a model, when you press Download.");
        if let Some(model) = state.chosen() {
            note(ui, format!("Model: {}", model.path.display()));
        }
        if ui.button("Models").clicked() {
            out.push(Action::Go(crate::state::Page::Models));
        }
    });
    card(ui, "Keys", |ui| {
        egui::Grid::new("keys").num_columns(2).spacing([24.0, 4.0]).show(ui, |ui| {
            let own = [
                ("Return or Ctrl-Return", "Send (Settings says which)"),
                ("Escape", "Stop the answer; leave an edit"),
                ("Page up, page down", "Through the conversation"),
                ("F2, Delete", "Rename or delete a conversation in the list"),
                ("Tab", "To the next button or field"),
            ];
            for (keys, words) in own {
                ui.monospace(keys);
                ui.label(words);
                ui.end_row();
            }
            for shortcut in SHORTCUTS {
                ui.monospace(ui.ctx().format_shortcut(&shortcut.keys));
                ui.label(shortcut.words);
                ui.end_row();
            }
        });
    });
    card(ui, "Licences", |ui| {
        ui.label("Fieldfare and its demonstration model: Apache-2.0. The weights of Gemma 4 have their own licence.");
        note(
            ui,
            "Letters: Ubuntu Light and Medium (Ubuntu font licence), Hack (MIT), Noto Emoji (SIL OFL), emoji-icon-font (MIT). Window: egui (MIT or Apache-2.0).",
        );
    });
}
