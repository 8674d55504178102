//! The list of conversations, and the way to the other pages.

use super::{note, primary};
use crate::state::{Action, Page, State};
use crate::{theme, words};
use eframe::egui::{self, Align2, FontId, Sense, TextEdit, Ui, WidgetInfo};
use fieldfare_app_worker::message::{ConversationId, Summary};

/// Height of a line of the list.
const LINE: f32 = 34.0;
/// With the place that a search found below the name.
const FOUND_LINE: f32 = 50.0;

/// All of it.
pub fn list(ui: &mut Ui, state: &mut State, out: &mut Vec<Action>) {
    let width = ui.available_width();
    let new = primary(ui, "+  New conversation").min_size(egui::vec2(width, 32.0));
    if ui.add(new).on_hover_text("Ctrl-N").clicked() {
        out.push(Action::NewChat);
    }
    ui.add_space(4.0);
    let search = TextEdit::singleline(&mut state.library.search)
        .hint_text("Search conversations")
        .desired_width(f32::INFINITY)
        .id(egui::Id::unique("search"));
    let field = ui.add(search).accessible_name("Search conversations");
    if field.changed() {
        out.push(Action::SearchChanged);
    }
    if std::mem::take(&mut state.library.focus_search) {
        field.request_focus();
    }
    ui.add_space(4.0);
    let foot = egui::Panel::bottom("pages").frame(egui::Frame::NONE).show_separator_line(false);
    foot.show(ui, |ui| pages(ui, state, out));
    if state.library.list.is_empty() {
        let searching = !state.library.search.is_empty();
        let text = match (&state.library.listed, searching) {
            (None, _) => "Reading the conversations…",
            (Some(_), true) => "Nothing was found.",
            (Some(_), false) => "Conversations will be listed here. They stay on this machine.",
        };
        ui.add_space(12.0);
        note(ui, text);
        return;
    }
    lines(ui, state, out);
}

fn lines(ui: &mut Ui, state: &mut State, out: &mut Vec<Action>) {
    let searching = !state.library.search.is_empty();
    let height = if searching { FOUND_LINE } else { LINE };
    let list = std::mem::take(&mut state.library.list);
    ui.spacing_mut().item_spacing.y = 2.0;
    egui::ScrollArea::vertical().id_salt("conversations").auto_shrink([false, false]).show_rows(
        ui,
        height,
        list.len(),
        |ui, rows| {
            for summary in list.get(rows).unwrap_or_default() {
                ui.push_id(summary.id.0, |ui| {
                    let renamed = state.library.rename.as_ref().is_some_and(|(id, _)| *id == summary.id);
                    if renamed {
                        rename(ui, state, height, out);
                    } else {
                        line(ui, state, summary, height, out);
                    }
                });
            }
        },
    );
    state.library.list = list;
}

fn rename(ui: &mut Ui, state: &mut State, height: f32, out: &mut Vec<Action>) {
    let Some((_, draft)) = &mut state.library.rename else { return };
    let size = egui::vec2(ui.available_width(), height);
    let field = ui.add_sized(size, TextEdit::singleline(draft)).accessible_name("New name");
    if std::mem::take(&mut state.library.focus_rename) {
        field.request_focus();
    } else if field.lost_focus() {
        let escaped = ui.input(|input| input.key_pressed(egui::Key::Escape));
        out.push(if escaped { Action::CancelRename } else { Action::EndRename });
    }
}

fn line(ui: &mut Ui, state: &State, summary: &Summary, height: f32, out: &mut Vec<Action>) {
    let palette = theme::palette(ui);
    let here = state.open_id() == Some(summary.id);
    let size = egui::vec2(ui.available_width(), height);
    let (rect, response) = ui.allocate_exact_size(size, Sense::click());
    let title = if summary.title.is_empty() { "Untitled" } else { &summary.title };
    response.widget_info(|| WidgetInfo::selected(egui::Role::Button, true, here, title));
    let hovered = response.hovered() || response.has_focus();
    if here || hovered {
        let share = if here { 0.75 } else { 0.4 };
        ui.painter().rect_filled(rect, 6.0, palette.tint(palette.line, share));
    }
    if response.has_focus() {
        let stroke = egui::Stroke::new(1.0, palette.accent);
        ui.painter().rect_stroke(rect, 6.0, stroke, egui::StrokeKind::Inside);
    }
    let writing = state.answer.as_ref().is_some_and(|answer| answer.conversation == summary.id);
    let age = if writing { "…".to_owned() } else { words::ago(summary.changed_at, state.wall) };
    let small = FontId::proportional(12.0);
    let first = if summary.found.is_empty() { rect.center().y } else { rect.top() + 16.0 };
    let age_at = egui::pos2(rect.right() - 8.0, first);
    let age_rect = ui.painter().text(age_at, Align2::RIGHT_CENTER, age, small.clone(), palette.weak);
    let most = age_rect.left() - rect.left() - 18.0;
    text(ui, rect.left() + 10.0, first, title, FontId::proportional(14.5), palette.text, most);
    if !summary.found.is_empty() {
        let most = rect.width() - 20.0;
        text(ui, rect.left() + 10.0, rect.bottom() - 14.0, &summary.found, small, palette.weak, most);
    }
    menu(&response, summary.id, out);
    if response.clicked() {
        out.push(Action::OpenChat(summary.id));
    }
    // The keys that file managers have.
    if response.has_focus() {
        let (f2, delete) =
            ui.input(|input| (input.key_pressed(egui::Key::F2), input.key_pressed(egui::Key::Delete)));
        if f2 {
            out.push(Action::BeginRename(summary.id));
        } else if delete {
            out.push(Action::Delete(summary.id));
        }
    }
}

/// One line of text, cut where it ends.
fn text(ui: &Ui, x: f32, y: f32, text: &str, font: FontId, color: egui::Color32, most: f32) {
    let line = words::first_line(text, 120);
    let mut job = egui::text::LayoutJob::simple_singleline(line, font, color);
    job.wrap = egui::text::TextWrapping::truncate_at_width(most.max(10.0));
    let galley = ui.painter().layout_job(job);
    let at = egui::pos2(x, y - galley.size().y / 2.0);
    ui.painter().galley(at, galley, color);
}

fn menu(response: &egui::Response, id: ConversationId, out: &mut Vec<Action>) {
    response.context_menu(|ui| {
        for (name, action) in [
            ("Rename (F2)", Action::BeginRename(id)),
            ("Export…", Action::Export(id)),
            ("Delete (Del)", Action::Delete(id)),
        ] {
            if ui.button(name).clicked() {
                out.push(action);
                ui.close();
            }
        }
    });
}

fn pages(ui: &mut Ui, state: &State, out: &mut Vec<Action>) {
    ui.add_space(6.0);
    ui.separator();
    ui.spacing_mut().item_spacing.y = 1.0;
    ui.spacing_mut().interact_size.y = 26.0;
    ui.with_layout(egui::Layout::top_down_justified(egui::Align::Min), |ui| {
        for (page, name) in [
            (Page::Chat, "Chat"),
            (Page::Models, "Models"),
            (Page::Inspector, "Inspector"),
            (Page::Bench, "Benchmark"),
            (Page::Settings, "Settings"),
            (Page::About, "About"),
        ] {
            if ui.add(egui::Button::selectable(state.page == page, name)).clicked() {
                out.push(Action::Go(page));
            }
        }
    });
}
