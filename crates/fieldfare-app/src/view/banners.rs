//! What happened that one should know, with the remedy, above the page.

use super::strong;
use crate::state::{Action, State, Weight};
use crate::theme;
use eframe::egui::{self, Align, CornerRadius, Frame, Label, Layout, Margin, RichText, Stroke, Ui};

/// The newest few; older ones follow when these are closed.
const MOST: usize = 3;

/// All that are open.
pub fn show(ui: &mut Ui, state: &State, out: &mut Vec<Action>) {
    if state.notices.is_empty() {
        return;
    }
    let palette = theme::palette(ui);
    let frame = Frame::NONE.inner_margin(Margin::symmetric(12, 4));
    egui::Panel::top("notices").frame(frame).show_separator_line(false).show(ui, |ui| {
        for notice in state.notices.iter().rev().take(MOST) {
            let (color, mark) = match notice.weight {
                Weight::Error => (palette.bad, "Error"),
                Weight::Warning => (palette.warning, "Note"),
                Weight::Info => (palette.good, ""),
            };
            let frame = Frame::NONE
                .fill(palette.tint(color, 0.12))
                .stroke(Stroke::new(1.0, palette.tint(color, 0.7)))
                .corner_radius(CornerRadius::same(6))
                .inner_margin(Margin::symmetric(12, 7));
            frame.show(ui, |ui| {
                ui.push_id(notice.id, |ui| {
                    ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                        let close = ui.add(egui::Button::new("×").frame_when_inactive(false));
                        if close.accessible_name("Close this notice").clicked() {
                            out.push(Action::Dismiss(notice.id));
                        }
                        if let Some((name, action)) = &notice.button
                            && ui.button(name.as_str()).clicked()
                        {
                            out.push(Action::Dismiss(notice.id));
                            out.push((**action).clone());
                        }
                        ui.with_layout(Layout::left_to_right(Align::Center).with_main_wrap(true), |ui| {
                            if !mark.is_empty() {
                                ui.label(RichText::new(mark).color(color));
                            }
                            ui.add(Label::new(strong(notice.message.as_str(), &palette)).wrap());
                            if !notice.remedy.is_empty() {
                                ui.add(Label::new(notice.remedy.as_str()).wrap());
                            }
                        });
                    });
                });
            });
        }
        let more = state.notices.len().saturating_sub(MOST);
        if more > 0 {
            super::note(ui, format!("and {more} more"));
        }
    });
}
