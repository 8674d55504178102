//! The conversation. Only what can be seen is laid out: every part of it is a row with a height, measured when it was
//! last drawn and estimated before, so that a long answer costs the same as a short one.

use super::{COLUMN, note, strong, unless};
use crate::markdown::{Doc, Kind, draw};
use crate::state::{Action, State};
use crate::theme::{self, Palette};
use crate::{tree, words};
use eframe::egui::{self, Button, Rect, RichText, Sense, Shape, Ui, UiBuilder, Vec2};
use fieldfare_app_worker::message::{ConversationId, Message, MessageId, Progress, Role, Run};
use std::collections::{HashMap, HashSet};

/// What is laid out, and how high it was.
#[derive(Default)]
pub struct Cache {
    conversation: Option<ConversationId>,
    docs: HashMap<MessageId, Docs>,
    open_thoughts: HashSet<MessageId>,
    heights: HashMap<(MessageId, Part), (f32, f32)>,
    /// What rows above the visible ones turned out to be higher than estimated.
    correction: f32,
    offset: f32,
    /// Rows drawn in the last frame, of how many: for tests of what a frame costs.
    pub drawn: (usize, usize),
}

#[derive(Default)]
struct Docs {
    text: Doc,
    thought: Doc,
    documents_shown: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    /// Documents of a question.
    Documents,
    /// The line that folds a thought.
    ThoughtHead,
    /// A block of the thought.
    Thought(usize),
    /// A block of the text.
    Block(usize),
    /// What can be done, and figures.
    Foot,
}

struct Row {
    message: usize,
    part: Part,
    gap: f32,
    height: f32,
    known: bool,
}

/// Space between messages.
const GAP: f32 = 18.0;

/// The conversation, or the way to begin one.
pub fn show(ui: &mut Ui, state: &State, cache: &mut Cache, out: &mut Vec<Action>) {
    let Some(open) = &state.open else {
        empty(ui, state, out);
        return;
    };
    let conversation = open.conversation.summary.id;
    if cache.conversation != Some(conversation) {
        *cache = Cache { conversation: Some(conversation), ..Cache::default() };
    }
    // The composer's column.
    let width = (ui.available_width() - 40.0 - 32.0).clamp(160.0, COLUMN);
    let shown: Vec<&Message> = open.shown().collect();
    for message in &shown {
        let docs = cache.docs.entry(message.id).or_insert_with(|| match message.role {
            Role::User => Docs { text: Doc::plain(""), ..Docs::default() },
            Role::Assistant => Docs::default(),
        });
        docs.text.set(&message.text);
        docs.thought.set(&message.thought);
        for (doc, thought) in [(&mut docs.text, false), (&mut docs.thought, true)] {
            let width = block_width(width, message.role, thought);
            doc.guess(width, |source| estimate(source, width));
        }
    }
    let side = ((ui.available_width() - width) / 2.0).max(0.0);
    let mut area = egui::ScrollArea::vertical()
        .id_salt(("conversation", conversation.0))
        .auto_shrink([false, false])
        .stick_to_bottom(true);
    if cache.correction.abs() > 0.5 {
        area = area.vertical_scroll_offset(cache.offset + std::mem::take(&mut cache.correction));
    }
    let page = paging(ui);
    let output = area.show_viewport(ui, |ui, viewport| {
        if page != 0.0 {
            ui.scroll_with_delta(egui::vec2(0.0, -page * viewport.height() * 0.9));
        }
        let mut view = View { state, shown: &shown, cache, out, width, side };
        view.rows(ui, viewport);
    });
    cache.offset = output.state.clamped_offset().y;
}

/// Page up and down, as long as a field of many lines does not need them.
fn paging(ui: &Ui) -> f32 {
    ui.input(|input| {
        let up = input.key_pressed(egui::Key::PageUp);
        let down = input.key_pressed(egui::Key::PageDown);
        f32::from(i8::from(down) - i8::from(up))
    })
}

struct View<'a> {
    state: &'a State,
    shown: &'a [&'a Message],
    cache: &'a mut Cache,
    out: &'a mut Vec<Action>,
    width: f32,
    side: f32,
}

impl View<'_> {
    fn rows(&mut self, ui: &mut Ui, viewport: Rect) {
        let rows = self.list();
        let palette = theme::palette(ui);
        let origin = ui.max_rect().min;
        let mut y = 10.0;
        let mut drawn = 0;
        let mut bubble: Option<(usize, egui::layers::ShapeIdx, f32)> = None;
        for row in &rows {
            y += row.gap;
            let message = self.shown[row.message];
            let in_bubble = message.role == Role::User && row.part != Part::Foot;
            if in_bubble && bubble.is_none_or(|(of, ..)| of != row.message) {
                bubble = Some((row.message, ui.painter().add(Shape::Noop), y));
            } else if !in_bubble {
                self.close_bubble(ui, bubble.take(), origin, y - row.gap, &palette);
            }
            let mut height = row.height;
            let visible = y + height >= viewport.min.y - 60.0 && y <= viewport.max.y + 60.0;
            if visible {
                drawn += 1;
                height = self.draw(ui, row, egui::pos2(origin.x + self.side, origin.y + y));
                if y < viewport.min.y && (height - row.height).abs() > 0.5 && !row.known {
                    self.cache.correction += height - row.height;
                }
                self.remember(row, height);
            }
            y += height;
        }
        self.close_bubble(ui, bubble.take(), origin, y, &palette);
        y += 16.0;
        let size = Vec2::new(ui.available_width(), y);
        ui.allocate_rect(Rect::from_min_size(origin, size), Sense::hover());
        self.cache.drawn = (drawn, rows.len());
        // What was drawn turned out to have another height than it was placed by.
        if self.cache.correction.abs() > 0.5 {
            ui.ctx().request_repaint();
        }
    }

    /// Every part of what is shown, in order.
    fn list(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (place, message) in self.shown.iter().enumerate() {
            let Some(docs) = self.cache.docs.get(&message.id) else { continue };
            let first = rows.len();
            let mut push = |part: Part, gap: f32, height: f32, known: bool| {
                let gap = if rows.len() == first { GAP } else { gap };
                rows.push(Row { message: place, part, gap, height, known });
            };
            let mut fixed = |part: Part, gap: f32, guess: f32| {
                let known =
                    self.cache.heights.get(&(message.id, part)).filter(|(_, width)| *width == self.width);
                push(part, gap, known.map_or(guess, |(height, _)| *height), known.is_some());
            };
            if !message.documents.is_empty() {
                fixed(Part::Documents, 0.0, 30.0);
            }
            if !message.thought.is_empty() {
                fixed(Part::ThoughtHead, 0.0, 28.0);
                if self.cache.open_thoughts.contains(&message.id) {
                    self.blocks(&docs.thought, true, &mut rows, place, first);
                }
            }
            self.blocks(&docs.text, false, &mut rows, place, first);
            let known =
                self.cache.heights.get(&(message.id, Part::Foot)).filter(|(_, width)| *width == self.width);
            let gap = if rows.len() == first { GAP } else { 4.0 };
            let (height, known) = (known.map_or(30.0, |(height, _)| *height), known.is_some());
            rows.push(Row { message: place, part: Part::Foot, gap, height, known });
        }
        rows
    }

    fn blocks(&self, doc: &Doc, thought: bool, rows: &mut Vec<Row>, message: usize, first: usize) {
        let width = block_width(self.width, self.shown[message].role, thought);
        for (index, block) in doc.blocks().iter().enumerate() {
            let piece =
                matches!(block.kind, Kind::Code { first: false, .. } | Kind::Plain | Kind::Rows { .. });
            let continues = piece && index > 0;
            let gap = if rows.len() == first {
                GAP
            } else if continues {
                0.0
            } else {
                9.0
            };
            let known = block.height.filter(|(_, at)| *at == width);
            // At another width it was about as high.
            let height = known.or(block.height).or(block.guess).map_or(20.0, |(height, _)| height);
            let part = if thought { Part::Thought(index) } else { Part::Block(index) };
            rows.push(Row { message, part, gap, height, known: known.is_some() });
        }
    }

    fn remember(&mut self, row: &Row, height: f32) {
        let message = self.shown[row.message];
        let (width, thought) = match row.part {
            Part::Block(_) => (block_width(self.width, message.role, false), false),
            Part::Thought(_) => (block_width(self.width, message.role, true), true),
            part => {
                self.cache.heights.insert((message.id, part), (height, self.width));
                return;
            }
        };
        let (Part::Block(index) | Part::Thought(index)) = row.part else { return };
        if let Some(docs) = self.cache.docs.get_mut(&message.id) {
            let doc = if thought { &mut docs.thought } else { &mut docs.text };
            if let Some(block) = doc.blocks_mut().get_mut(index) {
                block.height = Some((height, width));
            }
        }
    }

    /// The question's ground, behind its rows.
    fn close_bubble(
        &self,
        ui: &Ui,
        bubble: Option<(usize, egui::layers::ShapeIdx, f32)>,
        origin: egui::Pos2,
        bottom: f32,
        palette: &Palette,
    ) {
        let Some((message, shape, top)) = bubble else { return };
        let left = origin.x + self.side + self.width - self.bubble_width(ui, self.shown[message]) - 28.0;
        let right = origin.x + self.side + self.width;
        let rect = Rect::from_min_max(
            egui::pos2(left, origin.y + top - 9.0),
            egui::pos2(right, origin.y + bottom + 9.0),
        );
        ui.painter().set(shape, Shape::rect_filled(rect, 10.0, palette.card));
    }

    /// As wide as a short question is, else as wide as questions get.
    fn bubble_width(&self, ui: &Ui, message: &Message) -> f32 {
        let most = block_width(self.width, Role::User, false);
        if message.text.len() > 400 || !message.documents.is_empty() {
            return most;
        }
        let font = egui::TextStyle::Body.resolve(ui.style());
        let text = message.text.clone();
        let galley = ui.painter().layout_no_wrap(text, font, egui::Color32::WHITE);
        (galley.size().x + 1.0).clamp(24.0, most)
    }

    fn draw(&mut self, ui: &mut Ui, row: &Row, at: egui::Pos2) -> f32 {
        let message = self.shown[row.message];
        let (left, width) = match (message.role, row.part) {
            (Role::User, Part::Foot) => (0.0, self.width),
            (Role::User, _) => {
                let width = self.bubble_width(ui, message);
                (self.width - width - 14.0, width)
            }
            (Role::Assistant, Part::Thought(_)) => (18.0, block_width(self.width, Role::Assistant, true)),
            (Role::Assistant, _) => (0.0, self.width),
        };
        let rect = Rect::from_min_size(at + egui::vec2(left, 0.0), egui::vec2(width, row.height.max(1.0)));
        let builder = UiBuilder::new()
            .id_salt((message.id.0, row.part))
            .max_rect(rect)
            .layout(egui::Layout::top_down(egui::Align::Min));
        let mut child = ui.new_child(builder);
        child.set_width(width);
        match row.part {
            Part::Documents => self.documents(&mut child, message),
            Part::ThoughtHead => self.thought_head(&mut child, message),
            Part::Thought(index) => {
                let weak = theme::palette(&child).weak;
                child.visuals_mut().override_text_color = Some(weak);
                self.block(&mut child, message.id, index, true);
            }
            Part::Block(index) => self.block(&mut child, message.id, index, false),
            Part::Foot => self.foot(&mut child, message),
        }
        child.min_rect().height()
    }

    fn block(&mut self, ui: &mut Ui, message: MessageId, index: usize, thought: bool) {
        let Some(docs) = self.cache.docs.get_mut(&message) else { return };
        let doc = if thought { &mut docs.thought } else { &mut docs.text };
        if let Some(copied) = draw::block(ui, doc, index) {
            self.out.push(Action::Copy(copied));
        }
    }

    fn documents(&mut self, ui: &mut Ui, message: &Message) {
        let palette = theme::palette(ui);
        let shown = self.cache.docs.get(&message.id).is_some_and(|docs| docs.documents_shown);
        ui.horizontal_wrapped(|ui| {
            for document in &message.documents {
                let size = document.tokens.map_or_else(
                    || words::bytes(document.text.len() as u64),
                    |tokens| format!("{} tokens", words::count(tokens)),
                );
                ui.label(RichText::new(format!("{} · {size}", document.name)).small().color(palette.strong));
            }
            let name = if shown { "Hide text" } else { "Show text" };
            if ui.small_button(name).clicked()
                && let Some(docs) = self.cache.docs.get_mut(&message.id)
            {
                docs.documents_shown = !shown;
            }
        });
        if shown {
            for document in &message.documents {
                let begin: String = document.text.chars().take(2_000).collect();
                let rest = document.text.len() > begin.len();
                note(ui, if rest { format!("{begin}…") } else { begin });
            }
        }
    }

    fn thought_head(&mut self, ui: &mut Ui, message: &Message) {
        let open = self.cache.open_thoughts.contains(&message.id);
        let thinking = message.text.is_empty() && message.progress == Progress::Writing;
        let words = message.thought.split_whitespace().count() as u64;
        let mark = if open { "⏷" } else { "⏵" };
        let verb = if thinking { "Thinking" } else { "Thought" };
        let text = format!("{mark} {verb} · {} words", words::count(words));
        let palette = theme::palette(ui);
        let button = Button::new(RichText::new(text).small().color(palette.weak)).frame_when_inactive(false);
        let name = if open { "Hide the thought" } else { "Show the thought" };
        if ui.add(button).accessible_name(name).clicked() {
            if open {
                self.cache.open_thoughts.remove(&message.id);
            } else {
                self.cache.open_thoughts.insert(message.id);
            }
        }
    }

    fn foot(&mut self, ui: &mut Ui, message: &Message) {
        match message.role {
            Role::User => {
                ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                    self.tool(ui, "Copy", || Action::Copy(message.text.clone()));
                    self.tool(ui, "Edit", || Action::Edit(message.id));
                    self.versions(ui, message, true);
                });
            }
            Role::Assistant => self.answer_foot(ui, message),
        }
    }

    fn answer_foot(&mut self, ui: &mut Ui, message: &Message) {
        let palette = theme::palette(ui);
        let writing = self.state.answer.as_ref().filter(|answer| answer.id == message.id);
        if let Some(answer) = writing {
            let text = match answer.prefill {
                _ if answer.stopping => "Stopping…".to_owned(),
                Some((done, total)) => format!("Reading the prompt: {done} of {total} tokens"),
                None if answer.pieces == 0 => "Waiting for the first token…".to_owned(),
                None => "…".to_owned(),
            };
            ui.label(RichText::new(text).color(palette.weak));
            return;
        }
        match &message.progress {
            Progress::Cut(reason) => {
                note(ui, reason.clone());
            }
            Progress::Interrupted(reason) => {
                ui.add(egui::Label::new(RichText::new(reason).color(palette.warning)).wrap());
            }
            Progress::Writing | Progress::Done => {}
        }
        ui.horizontal_wrapped(|ui| {
            self.tool(ui, "Copy", || Action::Copy(message.text.clone()));
            let why = self.state.why_not_regenerate();
            let again = Button::new(RichText::new("Regenerate").small()).frame_when_inactive(false);
            let response = unless(ui, why, again);
            if let Some(reason) = why {
                note(ui, reason);
            } else if response.on_hover_text("Another answer; this one stays").clicked() {
                self.out.push(Action::Regenerate(message.id));
            }
            self.versions(ui, message, false);
            if let Some(run) = message.run {
                ui.label(RichText::new(figures(&run)).small().color(palette.weak))
                    .on_hover_ui(|ui| diagnostics(ui, &run));
            }
        });
    }

    /// A small button; what it does is made when it is pressed: a long text is not copied in every frame.
    fn tool(&mut self, ui: &mut Ui, name: &str, action: impl FnOnce() -> Action) {
        let button = Button::new(RichText::new(name).small()).frame_when_inactive(false);
        if ui.add(button).clicked() {
            self.out.push(action());
        }
    }

    /// `‹ 2/3 ›`, or with the reason of an arrow that leads nowhere `‹ 3/3, the newest ›`.
    fn versions(&mut self, ui: &mut Ui, message: &Message, from_right: bool) {
        let Some(open) = &self.state.open else { return };
        let versions = tree::versions(&open.conversation.messages, message);
        let Some(place) = versions.iter().position(|id| *id == message.id) else { return };
        if versions.len() < 2 {
            return;
        }
        let count = versions.len();
        let older = place.checked_sub(1).and_then(|place| versions.get(place)).copied();
        let newer = versions.get(place + 1).copied();
        let end = match (older, newer) {
            (None, _) => Some("the oldest"),
            (_, None) => Some("the newest"),
            _ => None,
        };
        let mut step = |ui: &mut Ui, mark: &str, name: &str, to: Option<MessageId>| {
            let button = Button::new(RichText::new(mark).small()).frame_when_inactive(false);
            let response = unless(ui, end.filter(|_| to.is_none()), button).accessible_name(name);
            if let Some(to) = to.filter(|_| response.clicked()) {
                self.out.push(Action::Version(to));
            }
        };
        let end = end.map_or_else(String::new, |end| format!(", {end}"));
        let label = RichText::new(format!("{}/{count}{end}", place + 1)).small();
        if from_right {
            step(ui, "›", "Newer version", newer);
            ui.label(label);
            step(ui, "‹", "Older version", older);
        } else {
            step(ui, "‹", "Older version", older);
            ui.label(label);
            step(ui, "›", "Newer version", newer);
        }
    }
}

/// How wide a block is in a column.
fn block_width(column: f32, role: Role, thought: bool) -> f32 {
    match role {
        Role::User => column * 0.84 - 28.0,
        Role::Assistant if thought => column - 18.0,
        Role::Assistant => column,
    }
}

/// About how high a block will be.
fn estimate(source: &str, width: f32) -> f32 {
    let columns = (width / 7.2).max(8.0);
    let lines: f32 = source.lines().map(|line| (line.len() as f32 / columns).ceil().max(1.0)).sum();
    lines.max(1.0) * 20.0
}

/// One line of figures.
fn figures(run: &Run) -> String {
    format!(
        "{} · {} · first after {:.1} s",
        words::tokens(run.tokens),
        words::rate(run.decode_per_second),
        run.first_token_seconds
    )
}

/// Everything that is known about a run.
pub fn diagnostics(ui: &mut Ui, run: &Run) {
    egui::Grid::new("diagnostics").num_columns(2).spacing([18.0, 4.0]).show(ui, |ui| {
        let lines = [
            (
                "Prompt",
                format!(
                    "{} tokens, {} of them known",
                    words::count(run.prompt_tokens),
                    words::count(run.cached_tokens)
                ),
            ),
            ("Reading the prompt", words::rate(run.prefill_per_second)),
            ("First token after", format!("{:.2} s", run.first_token_seconds)),
            ("Answer", format!("{} tokens", words::count(run.tokens))),
            ("Answering", words::rate(run.decode_per_second)),
            ("Experts found in memory", words::share(run.hit_rate)),
            ("Read from the disk", words::bytes(run.read_bytes)),
        ];
        for (name, value) in lines {
            ui.label(name);
            ui.label(value);
            ui.end_row();
        }
    });
}

const EXAMPLES: [&str; 4] = [
    "Explain in five sentences how a bicycle stays upright.",
    "Write a friendly note that invites the neighbours to a garden party on Saturday.",
    "Compare rye and wheat bread in a table: taste, keeping, baking.",
    "What is the capital of France?",
];

/// Nothing is open.
fn empty(ui: &mut Ui, state: &State, out: &mut Vec<Action>) {
    let palette = theme::palette(ui);
    egui::ScrollArea::vertical().id_salt("empty").auto_shrink([false, false]).show(ui, |ui| {
        super::column(ui, 620.0, |ui| {
            ui.add_space((ui.ctx().content_rect().height() * 0.16).min(140.0));
            ui.label(strong("What would you like to know?", &palette).size(26.0));
            ui.add_space(4.0);
            let line = match state.why_no_engine() {
                None => "Everything you write stays on this machine.".to_owned(),
                Some(reason) => format!("{reason} You can write already."),
            };
            ui.label(RichText::new(line).color(palette.weak));
            ui.add_space(18.0);
            for example in EXAMPLES {
                let button = Button::new(RichText::new(example).color(palette.text))
                    .wrap()
                    .min_size(egui::vec2(ui.available_width(), 38.0));
                if ui.add(button).clicked() {
                    out.push(Action::Example(example.to_owned()));
                }
            }
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_grow_with_the_text() {
        assert!(estimate(&"word ".repeat(400), 700.0) > 4.0 * estimate(&"word ".repeat(50), 700.0));
        assert_eq!(estimate("", 700.0), 20.0);
    }
}
