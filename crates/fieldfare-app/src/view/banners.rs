//! What happened that one should know, with the remedy, above the page.

use crate::state::{Action, Notice, State, Weight};
use crate::theme;
use eframe::egui::text::{LayoutJob, TextFormat};
use eframe::egui::{
    self, Align, Color32, CornerRadius, FontFamily, FontId, Frame, Label, Layout, Margin, Stroke, TextStyle,
    Ui,
};

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
                ui.push_id(notice.id, |ui| one(ui, notice, mark, color, out));
            });
        }
        let more = state.notices.len().saturating_sub(MOST);
        if more > 0 {
            super::note(ui, format!("and {more} more"));
        }
    });
}

/// What happened and what to do, and on the right what can be pressed.
fn one(ui: &mut Ui, notice: &Notice, mark: &str, color: Color32, out: &mut Vec<Action>) {
    let palette = theme::palette(ui);
    let mut job = LayoutJob::default();
    let body = TextStyle::Body.resolve(ui.style());
    let strong = FontId::new(body.size, FontFamily::Name(crate::fonts::STRONG.into()));
    for (text, font, color) in [
        (mark, &body, color),
        (notice.message.as_str(), &strong, palette.strong),
        (notice.remedy.as_str(), &body, palette.text),
    ] {
        if !text.is_empty() {
            let space = if job.text.is_empty() { 0.0 } else { 8.0 };
            job.append(text, space, TextFormat::simple(font.clone(), color));
        }
    }
    let buttons = if notice.button.is_some() { 150.0 } else { 40.0 };
    let width = (ui.available_width() - buttons).max(100.0);
    ui.horizontal(|ui| {
        ui.allocate_ui_with_layout(egui::vec2(width, 0.0), Layout::top_down(Align::Min), |ui| {
            ui.set_width(width);
            ui.add(Label::new(job).wrap());
        });
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
        });
    });
}
