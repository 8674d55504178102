//! What is on the screen. Views read the state, write into its drafts, and say what the person does as [`Action`]s.

pub mod about;
pub mod banners;
pub mod bench;
pub mod chat;
pub mod composer;
pub mod header;
pub mod inspector;
pub mod install;
pub mod plan;
pub mod settings;
pub mod sidebar;
pub mod status;

use crate::state::{Action, Page, State};
use crate::theme::{self, Palette};
use eframe::egui::{self, Button, CornerRadius, Frame, Margin, Response, RichText, Stroke, Ui, Widget};

/// What views keep for themselves between frames: nothing that is true, only what is laid out.
#[derive(Default)]
pub struct Cache {
    /// The conversation's blocks.
    pub chat: chat::Cache,
}

/// The widest column of text that reads well, in points.
pub const COLUMN: f32 = 780.0;

/// The whole window.
pub fn window(ui: &mut Ui, state: &mut State, cache: &mut Cache, out: &mut Vec<Action>) {
    let palette = theme::palette(ui);
    let bar = Frame::NONE.fill(palette.side).inner_margin(Margin::symmetric(12, 5));
    egui::Panel::bottom("status").frame(bar).show_separator_line(false).show(ui, |ui| status::bar(ui, state));
    if state.settings.sidebar {
        let side =
            Frame::NONE.fill(palette.side).inner_margin(Margin { left: 10, right: 8, top: 10, bottom: 6 });
        egui::Panel::left("sidebar")
            .frame(side)
            .resizable(true)
            .default_size(270.0)
            .size_range(210.0..=440.0)
            .show_separator_line(false)
            .show(ui, |ui| sidebar::list(ui, state, out));
    }
    let ground = Frame::NONE.fill(palette.ground);
    egui::CentralPanel::default().frame(ground).show(ui, |ui| {
        let bar = Frame::NONE.fill(palette.ground).inner_margin(Margin::symmetric(12, 8));
        egui::Panel::top("header").frame(bar).show(ui, |ui| header::bar(ui, state, out));
        banners::show(ui, state, out);
        match state.page {
            Page::Chat => {
                let below = Frame::NONE.fill(palette.ground).inner_margin(Margin::symmetric(16, 10));
                egui::Panel::bottom("composer")
                    .frame(below)
                    .show_separator_line(false)
                    .show(ui, |ui| composer::show(ui, state, out));
                chat::show(ui, state, &mut cache.chat, out);
            }
            Page::Models => page(ui, "Models", |ui| install::show(ui, state, out)),
            Page::Inspector => page(ui, "Inspector", |ui| inspector::show(ui, state)),
            Page::Bench => page(ui, "Benchmark", |ui| bench::show(ui, state, out)),
            Page::Settings => page(ui, "Settings", |ui| settings::show(ui, state, out)),
            Page::About => page(ui, "About Fieldfare", |ui| about::show(ui, state, out)),
        }
    });
    if state.closing.is_some() {
        closing(ui, state);
    }
}

/// A page that scrolls, with a title, in a column.
fn page(ui: &mut Ui, title: &str, contents: impl FnOnce(&mut Ui)) {
    let palette = theme::palette(ui);
    egui::ScrollArea::vertical().id_salt(title).auto_shrink([false, false]).show(ui, |ui| {
        column(ui, 860.0, |ui| {
            ui.add_space(14.0);
            ui.label(RichText::new(title).heading().color(palette.strong));
            ui.add_space(8.0);
            contents(ui);
            ui.add_space(24.0);
        });
    });
}

/// Contents in the middle, no wider than this.
pub fn column<R>(ui: &mut Ui, widest: f32, contents: impl FnOnce(&mut Ui) -> R) -> R {
    let available = ui.available_width();
    let width = (available - 40.0).clamp(120.0, widest);
    let side = ((available - width) / 2.0).max(0.0);
    let mut rect = ui.available_rect_before_wrap();
    rect.min.x += side;
    rect.set_width(width);
    let shown = ui.scope_builder(egui::UiBuilder::new().max_rect(rect), |ui| {
        ui.set_width(width);
        contents(ui)
    });
    shown.inner
}

/// Contents on a card with an optional title.
pub fn card<R>(ui: &mut Ui, title: &str, contents: impl FnOnce(&mut Ui) -> R) -> R {
    let palette = theme::palette(ui);
    let frame = Frame::NONE
        .fill(palette.card)
        .stroke(Stroke::new(1.0, palette.tint(palette.line, 0.8)))
        .corner_radius(CornerRadius::same(8))
        .inner_margin(Margin::symmetric(16, 12));
    let shown = frame.show(ui, |ui| {
        ui.set_width(ui.available_width());
        if !title.is_empty() {
            ui.label(strong(title, &palette).size(16.0));
            ui.add_space(4.0);
        }
        contents(ui)
    });
    ui.add_space(10.0);
    shown.inner
}

/// Strong text.
pub fn strong(text: impl Into<String>, palette: &Palette) -> RichText {
    RichText::new(text).family(egui::FontFamily::Name(crate::fonts::STRONG.into())).color(palette.strong)
}

/// Small text that matters less, on as many lines as it takes.
pub fn note(ui: &mut Ui, text: impl Into<String>) -> Response {
    let palette = theme::palette(ui);
    ui.add(egui::Label::new(RichText::new(text).small().color(palette.weak)).wrap())
}

/// The button that is meant.
pub fn primary(ui: &Ui, text: &str) -> Button<'static> {
    let palette = theme::palette(ui);
    Button::new(RichText::new(text.to_owned()).color(palette.on_button)).fill(palette.button)
}

/// A control that cannot be used while there is a reason. Screen readers and the pointer are told it here; for everybody else the
/// caller writes it beside the control (the tests insist).
pub fn unless(ui: &mut Ui, why_not: Option<&str>, control: impl Widget) -> Response {
    let response = ui.add_enabled(why_not.is_none(), control);
    let Some(reason) = why_not else { return response };
    ui.ctx().accesskit_node_builder(response.id, |node| node.set_description(reason));
    response.on_disabled_hover_text(reason)
}

/// A button, and beside it why it cannot be pressed, if so; whether it was pressed is the answer.
pub fn button_or_why(ui: &mut Ui, button: Button<'_>, why_not: Option<&str>) -> bool {
    let response = unless(ui, why_not, button);
    if let Some(reason) = why_not {
        note(ui, reason);
    }
    response.clicked()
}

/// A name in front of a field.
pub fn row<R>(ui: &mut Ui, name: &str, contents: impl FnOnce(&mut Ui) -> R) -> R {
    ui.horizontal(|ui| {
        let size = egui::vec2(140.0, ui.spacing().interact_size.y);
        let (rect, _) = ui.allocate_exact_size(size, egui::Sense::hover());
        let builder =
            egui::UiBuilder::new().max_rect(rect).layout(egui::Layout::left_to_right(egui::Align::Center));
        ui.new_child(builder).add(egui::Label::new(name).selectable(false));
        contents(ui)
    })
    .inner
}

fn closing(ui: &Ui, state: &State) {
    let waited = state.closing.map_or(0.0, |since| state.now - since);
    // A quick end needs no words.
    if waited < 0.4 {
        ui.ctx().request_repaint_after_secs(0.4);
        return;
    }
    egui::Modal::new(egui::Id::unique("closing")).show(ui.ctx(), |ui| {
        ui.horizontal(|ui| {
            ui.label("Freeing the model's memory and keeping what is written…");
        });
    });
}
