//! The frame loop: hears the worker, draws, and does what the update says.

use crate::dialogs::Dialogs;
use crate::settings::Place;
use crate::state::{Action, Effect, State};
use crate::{fonts, keys, theme, update, view};
use egui::{Context, ViewportCommand};
use fieldfare_app_worker::message::{Command, Event};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

/// Longest time between something that was heard and its picture: about thirty pictures a second while an answer is
/// written, which leaves the processors to it.
pub const HEARD: Duration = Duration::from_millis(30);

/// The window.
pub struct App {
    /// What is true.
    pub state: State,
    /// What views keep.
    pub cache: view::Cache,
    commands: Sender<Command>,
    events: Receiver<Event>,
    dialogs: Box<dyn Dialogs>,
    wall: Box<dyn Fn() -> i64>,
    exit: bool,
    /// How long frames took on this thread, in milliseconds, if somebody wants to know.
    pub frames: Option<Vec<f32>>,
    began: Instant,
    /// Seconds from the start to the first frame with the list of conversations in it.
    pub usable_after: Option<f64>,
}

impl App {
    /// A window for a worker. `wall` is the time of day, in seconds since 1970.
    pub fn new(
        context: &Context,
        commands: Sender<Command>,
        events: Receiver<Event>,
        dialogs: Box<dyn Dialogs>,
        wall: Box<dyn Fn() -> i64>,
        state: State,
    ) -> Self {
        fonts::install(context);
        // The sizes are the settings' business, or two would fight over the keys.
        context.options_mut(|options| options.zoom_with_keyboard = false);
        theme::apply(context, &state.settings);
        let mut app = Self {
            state,
            cache: view::Cache::default(),
            commands,
            events,
            dialogs,
            wall,
            exit: false,
            frames: None,
            began: Instant::now(),
            usable_after: None,
        };
        let effects = update::start();
        app.perform(context, effects);
        app
    }

    /// Counts from here how long it takes until the window is of use.
    pub fn since(mut self, began: Instant) -> Self {
        self.began = began;
        self
    }

    /// Hears and does what is due, before a frame.
    pub fn hear(&mut self, context: &Context) {
        self.state.now = context.input(|input| input.time);
        self.state.wall = (self.wall)();
        let mut effects = Vec::new();
        while let Ok(event) = self.events.try_recv() {
            effects.extend(update::event(&mut self.state, event));
        }
        for action in self.dialogs.answers() {
            effects.extend(update::action(&mut self.state, action));
        }
        effects.extend(update::tick(&mut self.state));
        if context.input(|input| input.viewport().close_requested()) && !self.exit {
            effects.extend(update::action(&mut self.state, Action::Close));
            // Exit may have been asked for by that already.
            if !effects.contains(&Effect::Exit) {
                context.send_viewport_cmd(ViewportCommand::CancelClose);
            }
        }
        let minimized = context.input(|input| input.viewport().minimized).unwrap_or(false);
        effects.extend(update::action(&mut self.state, Action::Visible(!minimized)));
        self.perform(context, effects);
        theme::apply(context, &self.state.settings);
    }

    /// Draws one frame.
    pub fn draw(&mut self, ui: &mut egui::Ui) {
        let context = ui.ctx().clone();
        let mut actions = keys::actions(&context, &self.state);
        let dropped: Vec<_> = context
            .input(|input| input.raw.dropped_files.iter().map(|file| file.path().to_path_buf()).collect());
        if !dropped.is_empty() {
            actions.push(Action::Documents(dropped));
        }
        actions.extend(self.place(&context));
        view::window(ui, &mut self.state, &mut self.cache, &mut actions);
        if context.input(|input| !input.raw.hovered_files.is_empty()) {
            drop_here(&context);
        }
        let any = !actions.is_empty();
        let mut effects = Vec::new();
        for action in actions {
            effects.extend(update::action(&mut self.state, action));
        }
        self.perform(&context, effects);
        if any {
            context.request_repaint();
        }
        if let Some(seconds) = update::next_tick(&self.state) {
            context.request_repaint_after(Duration::from_secs_f64(seconds.min(3_600.0) + 0.01));
        }
        if self.usable_after.is_none() && self.state.library.listed.is_some() {
            self.usable_after = Some(self.began.elapsed().as_secs_f64());
        }
    }

    /// Where the window is now, if that is new.
    fn place(&self, context: &Context) -> Option<Action> {
        if !self.state.settings_known {
            return None;
        }
        let (inner, maximized) = context.input(|input| {
            let viewport = input.viewport();
            (viewport.inner_rect, viewport.maximized.unwrap_or(false))
        });
        let size = inner?.size() * context.zoom_factor();
        let kept = self.state.settings.place;
        let place = match kept {
            // A window that fills the screen keeps the size that it goes back to.
            Some(kept) if maximized => Place { maximized, ..kept },
            _ => Place { width: size.x.round(), height: size.y.round(), maximized },
        };
        (kept != Some(place) && place.width >= 300.0 && place.height >= 200.0)
            .then_some(Action::Placed(place))
    }

    fn perform(&mut self, context: &Context, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send(command) => {
                    let closing = command == Command::Close;
                    // A worker that is gone cannot say that it is closed.
                    if self.commands.send(command).is_err() && closing {
                        self.leave(context);
                    }
                }
                Effect::Copy(text) => context.copy_text(text),
                Effect::Ask(dialog) => self.dialogs.ask(dialog, context),
                Effect::Front => {
                    context.send_viewport_cmd(ViewportCommand::Minimized(false));
                    context.send_viewport_cmd(ViewportCommand::Focus);
                }
                Effect::Resize(place) => {
                    let zoom = self.state.settings.zoom_percent as f32 / 100.0;
                    let size = egui::vec2(place.width, place.height) / zoom;
                    context.send_viewport_cmd(ViewportCommand::InnerSize(size));
                    if place.maximized {
                        context.send_viewport_cmd(ViewportCommand::Maximized(true));
                    }
                }
                Effect::Exit => self.leave(context),
            }
        }
    }

    /// The window is about to go.
    pub fn is_leaving(&self) -> bool {
        self.exit
    }

    fn leave(&mut self, context: &Context) {
        self.exit = true;
        context.send_viewport_cmd(ViewportCommand::Close);
    }
}

/// Says that what hovers over the window may be dropped.
fn drop_here(context: &Context) {
    let rect = context.content_rect();
    let painter =
        context.layer_painter(egui::LayerId::new(egui::Order::Foreground, egui::Id::unique("drop")));
    painter.rect_filled(rect, 0.0, egui::Color32::from_black_alpha(160));
    let font = egui::FontId::proportional(24.0);
    painter.text(
        rect.center(),
        egui::Align2::CENTER_CENTER,
        "Drop text documents here",
        font,
        egui::Color32::WHITE,
    );
}

impl eframe::App for App {
    fn logic(&mut self, context: &Context, frame: &mut eframe::Frame) {
        if let (Some(frames), Some(seconds)) = (&mut self.frames, frame.info().cpu_usage) {
            frames.push(seconds * 1e3);
        }
        self.hear(context);
    }

    fn ui(&mut self, ui: &mut egui::Ui, _frame: &mut eframe::Frame) {
        self.draw(ui);
    }

    fn clear_color(&self, visuals: &egui::Visuals) -> [f32; 4] {
        visuals.panel_fill.to_normalized_gamma_f32()
    }
}
