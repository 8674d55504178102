//! Blocks of Markdown on the screen.

use super::parse::{Align, Item, Node, Span};
use super::{Doc, Kind};
use crate::theme::{self, Palette};
use eframe::egui::text::{LayoutJob, TextFormat};
use eframe::egui::{
    self, Color32, CornerRadius, FontFamily, FontId, Frame, Label, Margin, RichText, Stroke, Ui,
};

/// Draws one block at the width of `ui`; text for the clipboard is the answer, if a copy button was pressed.
pub fn block(ui: &mut Ui, doc: &mut Doc, index: usize) -> Option<String> {
    let kind = doc.blocks().get(index)?.kind.clone();
    match kind {
        Kind::Plain => {
            let job = plain_job(ui, doc.source(index).trim_end_matches('\n'));
            ui.add(Label::new(job).wrap());
            None
        }
        Kind::Code { language, first, last, .. } => {
            let copied = code(ui, &language, doc.source(index), first, last);
            copied.then(|| doc.whole_code(index).to_owned())
        }
        Kind::Markdown | Kind::Rows { .. } => {
            let parts = doc.nodes(index);
            nodes(ui, &parts)
        }
    }
}

fn plain_job(ui: &Ui, text: &str) -> LayoutJob {
    let font = egui::TextStyle::Body.resolve(ui.style());
    LayoutJob::simple_format(
        text.to_owned(),
        TextFormat { font_id: font, color: ui.visuals().text_color(), ..TextFormat::default() },
    )
}

fn nodes(ui: &mut Ui, nodes: &[Node]) -> Option<String> {
    let mut copied = None;
    for (place, node) in nodes.iter().enumerate() {
        if place > 0 {
            ui.add_space(6.0);
        }
        let inner = ui.push_id(place, |ui| one(ui, node)).inner;
        copied = copied.or(inner);
    }
    copied
}

fn one(ui: &mut Ui, node: &Node) -> Option<String> {
    match node {
        Node::Paragraph(spans) => {
            text(ui, spans, None);
            None
        }
        Node::Heading(level, spans) => {
            let body = egui::TextStyle::Body.resolve(ui.style()).size;
            let size = body * [1.5, 1.3, 1.15, 1.05, 1.0, 1.0][usize::from(level.clamp(&1, &6) - 1)];
            ui.add_space(if *level <= 2 { 4.0 } else { 2.0 });
            text(ui, spans, Some(size));
            None
        }
        Node::Code(language, source) => code(ui, language, source, true, true).then(|| source.clone()),
        Node::Math(formula) => {
            let palette = theme::palette(ui);
            Frame::NONE.inner_margin(Margin::symmetric(12, 2)).show(ui, |ui| {
                ui.add(Label::new(RichText::new(formula).italics().size(16.0).color(palette.strong)).wrap());
            });
            None
        }
        Node::List(first, items) => list(ui, *first, items),
        Node::Quote(inner) => {
            let palette = theme::palette(ui);
            let frame = Frame::NONE.inner_margin(Margin { left: 14, right: 0, top: 0, bottom: 0 });
            let shown = frame.show(ui, |ui| {
                ui.visuals_mut().override_text_color = Some(palette.weak);
                nodes(ui, inner)
            });
            let rect = shown.response.rect;
            ui.painter().vline(rect.left() + 3.0, rect.y_range(), Stroke::new(3.0, palette.line));
            shown.inner
        }
        Node::Table(align, rows) => {
            table(ui, align, rows);
            None
        }
        Node::Rule => {
            ui.separator();
            None
        }
    }
}

fn format_of(ui: &Ui, span: &Span, size: Option<f32>, palette: &Palette) -> TextFormat {
    let body = egui::TextStyle::Body.resolve(ui.style());
    let heading = size.is_some();
    let size = size.unwrap_or(body.size);
    let strong = span.bold || heading;
    let color = match ui.visuals().override_text_color {
        Some(color) if !strong => color,
        _ if strong => palette.strong,
        _ => ui.visuals().text_color(),
    };
    let mut format = TextFormat { color, italics: span.italic || span.math, ..TextFormat::default() };
    if span.code {
        format.font_id = FontId::new(size * 0.9, FontFamily::Monospace);
        format.background = palette.code;
        format.expand_bg = 1.0;
    } else if strong {
        format.font_id = FontId::new(size, FontFamily::Name(crate::fonts::STRONG.into()));
    } else {
        format.font_id = FontId::new(size, body.family);
    }
    if span.strike {
        format.strikethrough = Stroke::new(1.0, color);
    }
    if span.link.is_some() {
        format.color = palette.link;
        format.underline = Stroke::new(1.0, palette.link);
    }
    format
}

fn text(ui: &mut Ui, spans: &[Span], size: Option<f32>) {
    let palette = theme::palette(ui);
    if spans.iter().all(|span| span.link.is_none()) {
        let mut job = LayoutJob::default();
        for span in spans {
            job.append(&span.text, 0.0, format_of(ui, span, size, &palette));
        }
        ui.add(Label::new(job).wrap());
        return;
    }
    // Links are widgets of their own, so that they can be reached with the keyboard.
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing.x = 0.0;
        for span in spans {
            let mut job = LayoutJob::default();
            job.append(&span.text, 0.0, format_of(ui, span, size, &palette));
            match &span.link {
                Some(url) if is_safe(url) => {
                    ui.hyperlink_to(job, url).on_hover_text(url);
                }
                Some(url) => {
                    ui.label(job).on_hover_text(format!("Not opened: {url}"));
                }
                None => {
                    ui.label(job);
                }
            }
        }
    });
}

/// Only what a browser or mail program is for; a model's text must not start anything else.
fn is_safe(url: &str) -> bool {
    ["https://", "http://", "mailto:"]
        .iter()
        .any(|scheme| url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
}

fn list(ui: &mut Ui, first: Option<u64>, items: &[Item]) -> Option<String> {
    let mut copied = None;
    let body = egui::TextStyle::Body.resolve(ui.style()).size;
    let indent = if first.is_some() { body * 1.9 } else { body * 1.3 };
    for (place, item) in items.iter().enumerate() {
        let mark = match (item.task, first) {
            (Some(true), _) => "☑".to_owned(),
            (Some(false), _) => "☐".to_owned(),
            (None, Some(first)) => format!("{}.", first.saturating_add(place as u64)),
            (None, None) => "•".to_owned(),
        };
        let inner = ui
            .horizontal_top(|ui| {
                ui.spacing_mut().item_spacing.x = 4.0;
                let left = ui.available_rect_before_wrap().left();
                let color = theme::palette(ui).weak;
                ui.add(Label::new(RichText::new(mark).color(color)).extend());
                let used = ui.cursor().left() - left;
                ui.add_space((indent - used).max(0.0));
                ui.vertical(|ui| ui.push_id(place, |ui| nodes(ui, &item.nodes)).inner).inner
            })
            .inner;
        copied = copied.or(inner);
        if place + 1 < items.len() {
            ui.add_space(3.0);
        }
    }
    copied
}

fn table(ui: &mut Ui, align: &[Align], rows: &[Vec<Vec<Span>>]) {
    let palette = theme::palette(ui);
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let widest = (ui.available_width() / columns as f32 - 16.0).clamp(60.0, 420.0);
    egui::ScrollArea::horizontal().auto_shrink([true, true]).show(ui, |ui| {
        let frame = Frame::NONE
            .stroke(Stroke::new(1.0, palette.line))
            .corner_radius(CornerRadius::same(6))
            .inner_margin(Margin::symmetric(8, 4));
        frame.show(ui, |ui| {
            egui::Grid::new("table").spacing([16.0, 6.0]).striped(true).max_col_width(widest).show(
                ui,
                |ui| {
                    for (place, row) in rows.iter().enumerate() {
                        for column in 0..columns {
                            let spans: Vec<Span> = row
                                .get(column)
                                .map(|spans| {
                                    spans
                                        .iter()
                                        .map(|span| Span { bold: span.bold || place == 0, ..span.clone() })
                                        .collect()
                                })
                                .unwrap_or_default();
                            let layout = match align.get(column) {
                                Some(Align::Right) => egui::Layout::right_to_left(egui::Align::Center),
                                Some(Align::Center) => egui::Layout::top_down(egui::Align::Center),
                                _ => egui::Layout::left_to_right(egui::Align::Center),
                            };
                            ui.with_layout(layout, |ui| text(ui, &spans, None));
                        }
                        ui.end_row();
                    }
                },
            );
        });
    });
}

fn code(ui: &mut Ui, language: &str, source: &str, first: bool, last: bool) -> bool {
    let palette = theme::palette(ui);
    let radius = |round: bool| if round { 6 } else { 0 };
    let corners = CornerRadius { nw: radius(first), ne: radius(first), sw: radius(last), se: radius(last) };
    let margin =
        Margin { left: 12, right: 8, top: if first { 6 } else { 0 }, bottom: if last { 10 } else { 0 } };
    let mut copied = false;
    Frame::NONE.fill(palette.code).corner_radius(corners).inner_margin(margin).show(ui, |ui| {
        ui.set_width(ui.available_width());
        if first {
            ui.horizontal(|ui| {
                let name = if language.is_empty() { "code" } else { language };
                ui.label(RichText::new(name).small().color(palette.weak));
                ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                    copied = ui.small_button("Copy").on_hover_text("Copy this code").clicked();
                });
            });
        }
        let job = code_job(ui, source.strip_suffix('\n').unwrap_or(source), palette.strong);
        ui.add(Label::new(job).wrap());
    });
    copied
}

fn code_job(ui: &Ui, source: &str, color: Color32) -> LayoutJob {
    let font_id = egui::TextStyle::Monospace.resolve(ui.style());
    LayoutJob::simple_format(source.to_owned(), TextFormat { font_id, color, ..TextFormat::default() })
}

#[cfg(test)]
mod tests {
    use super::is_safe;

    #[test]
    fn links_start_browsers_and_nothing_else() {
        assert!(is_safe("https://example.org"));
        assert!(is_safe("MAILTO:someone@example.org"));
        for url in ["file:///etc/passwd", "javascript:alert(1)", "smb://x", "//x", ""] {
            assert!(!is_safe(url), "{url}");
        }
    }
}
