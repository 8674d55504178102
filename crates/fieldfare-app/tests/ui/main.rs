//! The window without a screen: every flow by its labels and keys, against a worker that is told what to do, on a clock
//! that only the tests move; the same against the real worker with its second process and the demonstration model;
//! pictures of every page; and what a frame costs.

mod fake;
mod flows;
mod frames;
mod packaging;
mod paint;
mod pictures;
mod real;

use egui::ImeEvent;
use egui::accesskit::Role;
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable;
use fake::{Fake, NOW};
use fieldfare_app::app::App;
use fieldfare_app::dialogs::Dialogs;
use fieldfare_app::state::{Action, Dialog, State};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc;

/// Dialogs that answer what a test has put there.
#[derive(Clone, Default)]
pub(crate) struct Told {
    asked: Rc<RefCell<Vec<Dialog>>>,
    answers: Rc<RefCell<Vec<Action>>>,
}

impl Dialogs for Told {
    fn ask(&mut self, dialog: Dialog, _context: &egui::Context) {
        self.asked.borrow_mut().push(dialog);
    }

    fn answers(&mut self) -> Vec<Action> {
        self.answers.borrow_mut().drain(..).collect()
    }
}

/// What can be seen in a window.
pub(crate) trait Looks {
    /// The window.
    fn window(&self) -> &Harness<'static, App>;

    /// The button with this name.
    fn button<'a>(&'a self, name: &'a str) -> egui_kittest::Node<'a> {
        self.window().get_by_role_and_label(Role::Button, name)
    }

    /// Whether something has this in its name.
    fn sees(&self, text: &str) -> bool {
        self.window().query_all_by_label_contains(text).next().is_some()
            || self
                .window()
                .query_all_by(|node| node.value().is_some_and(|value| value.contains(text)))
                .next()
                .is_some()
    }

    /// Fails if something has no such name, with all names there are.
    #[track_caller]
    fn must_see(&self, text: &str) {
        assert!(self.sees(text), "no “{text}” among {:#?}", self.names());
    }

    /// Fails if something has such a name.
    #[track_caller]
    fn must_not_see(&self, text: &str) {
        assert!(!self.sees(text), "“{text}” is there");
    }

    /// Fails if a control that cannot be used does not say why: to screen readers, and in words near it.
    #[track_caller]
    fn must_explain(&self) {
        use egui_kittest::kittest::NodeT;
        let all: Vec<_> = self.window().query_all_by(|_| true).collect();
        for control in &all {
            let node = control.accesskit_node();
            // The value beside a slider is spoken with the slider.
            let part = node.labelled_by().any(|by| by.is_disabled() && by.description().is_some());
            if !node.is_disabled() || part {
                continue;
            }
            let name = node.label().or_else(|| node.value()).unwrap_or_default();
            let why = node.description().unwrap_or_default();
            assert!(!why.is_empty(), "“{name}” cannot be used and says nothing: {:#?}", self.names());
            let near = control.rect().expand2(egui::vec2(2_000.0, 80.0));
            let beside = all.iter().any(|other| {
                let words = other.accesskit_node();
                let said = words.label().or_else(|| words.value()).unwrap_or_default();
                words.id() != node.id() && said.contains(&why) && near.intersects(other.rect())
            });
            assert!(beside, "“{name}” cannot be used, and “{why}” is not beside it: {:#?}", self.names());
        }
    }

    /// All names there are.
    fn names(&self) -> Vec<String> {
        self.window()
            .query_all_by(|_| true)
            .filter_map(|node| {
                use egui_kittest::kittest::NodeT;
                node.accesskit_node().label().or_else(|| node.accesskit_node().value())
            })
            .collect()
    }
}

impl Looks for Rig {
    fn window(&self) -> &Harness<'static, App> {
        &self.harness
    }
}

/// A window with its worker.
pub(crate) struct Rig {
    /// The window.
    pub harness: Harness<'static, App>,
    /// The worker.
    pub fake: Fake,
    /// The dialogs.
    pub dialogs: Told,
    painter: paint::Painter,
}

impl Rig {
    /// A window whose worker has this to say at the start.
    pub(crate) fn new(settings: Option<&str>, setup: impl FnOnce(&mut Fake)) -> Self {
        Self::with(egui::vec2(1_100.0, 760.0), egui::Theme::Dark, settings, setup)
    }

    /// The same with a size and a theme.
    pub(crate) fn with(
        size: egui::Vec2,
        theme: egui::Theme,
        settings: Option<&str>,
        setup: impl FnOnce(&mut Fake),
    ) -> Self {
        let (send, commands) = mpsc::channel();
        let (say, events) = mpsc::channel();
        let mut fake = Fake::new(commands, say);
        setup(&mut fake);
        let mut kept: serde_json::Value =
            serde_json::from_str(settings.unwrap_or("{}")).expect("settings of a test");
        kept["theme"] = if theme == egui::Theme::Light { "light".into() } else { "dark".into() };
        fake.say(fieldfare_app_worker::message::Event::Settings(Some(kept.to_string())));
        let dialogs = Told::default();
        let asked = Box::new(dialogs.clone());
        let painter = paint::Painter::default();
        let harness =
            Harness::builder().with_size(size).with_max_steps(16).renderer(painter.clone()).build_eframe(
                move |creation| {
                    App::new(&creation.egui_ctx, send, events, asked, Box::new(|| NOW), State::default())
                },
            );
        let mut rig = Self { harness, fake, dialogs, painter };
        rig.run();
        rig
    }

    /// Lets both go on until neither has anything more to say. What then cannot be used must say why.
    pub(crate) fn run(&mut self) {
        for _ in 0..12 {
            let asked = self.fake.pump();
            self.harness.run_steps(2);
            if asked == 0 && self.fake.pump() == 0 {
                break;
            }
        }
        self.must_explain();
    }

    /// Presses the button with this name.
    pub(crate) fn press(&mut self, name: &str) {
        self.button(name).click();
        self.run();
    }

    /// Uses an input method: what it suggests, then what it comes to.
    pub(crate) fn compose(&mut self, suggested: &[&str], text: &str) {
        self.harness.get_by_label("Message").focus();
        self.harness.run_steps(1);
        for suggestion in suggested {
            let event = ImeEvent::Preedit { text: (*suggestion).to_owned(), active_range_chars: None };
            self.harness.event(egui::Event::Ime(event));
            self.run();
        }
        self.harness.event(egui::Event::Ime(ImeEvent::Commit(text.to_owned())));
        self.run();
    }

    /// Ticks the box with this name, wherever on its page it is.
    pub(crate) fn tick(&mut self, name: &str) {
        self.harness.get_by_label(name).click_accesskit();
        self.run();
    }

    /// Writes into the composer, which has the keyboard.
    pub(crate) fn write(&mut self, text: &str) {
        self.harness.get_by_label("Message").focus();
        self.harness.run_steps(1);
        self.harness.get_by_label("Message").type_text(text);
        self.run();
    }

    /// Presses a key.
    pub(crate) fn key(&mut self, modifiers: egui::Modifiers, key: egui::Key) {
        self.harness.key_press_modifiers(modifiers, key);
        self.run();
    }

    /// The picture of the last frame.
    pub(crate) fn picture(&self) -> image::RgbImage {
        self.painter.paint(&self.harness.ctx, self.harness.output())
    }

    /// Lets so many seconds go by.
    pub(crate) fn wait(&mut self, seconds: f32) {
        // A step is a quarter of a second.
        self.harness.run_steps((seconds * 4.0).ceil() as usize);
        self.run();
    }
}
