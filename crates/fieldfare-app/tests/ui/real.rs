//! The same window against the real worker, its library on the disk, and its second process with the demonstration model:
//! what a person does in a day, and what may go wrong meanwhile.
//!
//! The second process is the app's own binary, as in a release. `FIELDFARE_KILLS=50` kills it as often as an issue asked
//! for once; a few times is enough for every day.

use crate::{Looks, Told};
use egui::{Key, Modifiers};
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable;
use fieldfare::install::hub::Remote;
use fieldfare_app::app::App;
use fieldfare_app::state::{Action, Page, State};
use fieldfare_app_worker::message::{Message, Progress, Service};
use fieldfare_app_worker::{Paths, Start, Worker};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest wait for anything; a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(180);
/// Seconds of the window's clock between two frames, which follow each other about as quickly.
const STEP: f32 = 0.02;
/// A question that the demonstration model never stops to answer, until the context is full.
const ENDLESS: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// Where a window lives, over several starts.
struct Home {
    folder: TempDir,
    start: Start,
    /// In the command line of this home's children, and of no others.
    marker: String,
}

impl Home {
    /// One whose hub is asked for a repository of this name; nobody answers there, so nothing leaves this machine.
    fn new(repo: &str) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let folder = tempfile::tempdir().expect("a folder for a test");
        let marker = format!("of-test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let locks = folder.path().join("locks");
        std::fs::create_dir_all(&locks).expect("a folder for locks");
        let mut start = Start::of_system();
        let program = env!("CARGO_BIN_EXE_fieldfare-app");
        // The option means nothing to a second process; it is found by it.
        start.child = [program, "--decode-service", "--data", &marker].map(Into::into).to_vec();
        start.locks = Some(locks);
        start.remote = Remote::Hub {
            endpoint: "http://127.0.0.1:9".to_owned(),
            repo: repo.to_owned(),
            revision: "main".to_owned(),
        };
        let home = Self { folder, start, marker };
        std::fs::create_dir_all(home.paths().data).expect("a folder for the library");
        // The likeliest token, so that every run is the same.
        let settings = home.paths().data.join("settings.json");
        std::fs::write(settings, r#"{"temperature": 0.0, "theme": "dark", "threads": 1, "context": 4096}"#)
            .expect("settings");
        home
    }

    fn paths(&self) -> Paths {
        Paths { data: self.folder.path().join("app"), models: vec![self.folder.path().join("models")] }
    }

    fn open(&self) -> Real {
        let (commands, events) =
            Worker::start(self.paths(), self.start.clone(), || ()).expect("nobody else has this folder");
        let dialogs = Told::default();
        let asked = Box::new(dialogs.clone());
        let harness = Harness::builder()
            .with_size(egui::vec2(1_100.0, 760.0))
            .with_max_steps(16)
            .with_step_dt(STEP)
            .build_eframe(move |creation| {
                let wall = Box::new(|| crate::fake::NOW);
                App::new(&creation.egui_ctx, commands, events, asked, wall, State::default())
            });
        Real { harness, dialogs }
    }

    /// A window in which the demonstration model was installed and loaded, as a person does it. The name that its hub is
    /// asked for is none, so that this is settled at once.
    fn with_demo() -> (Self, Real) {
        let home = Self::new("no name");
        let real = home.install_demo();
        (home, real)
    }

    fn install_demo(&self) -> Real {
        let mut real = self.open();
        real.until("the first page", |real| real.sees("Demonstration model"));
        real.press("Try it");
        real.until("a loaded model", |real| real.sees("Ready"));
        real.until("one child", |_| self.children().len() == 1);
        real
    }

    fn model(&self) -> PathBuf {
        self.paths().models[0].join("demo.gturbo")
    }

    /// Process ids of the children that run.
    fn children(&self) -> Vec<u32> {
        let entries = std::fs::read_dir("/proc").expect("a list of processes");
        let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        ids.filter(|id| {
            let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            line.split(|&byte| byte == 0).any(|arg| arg == self.marker.as_bytes())
        })
        .collect()
    }

    /// Ends the child as the system does when memory runs out.
    fn kill_child(&self) {
        let children = self.children();
        assert_eq!(children.len(), 1, "one child runs");
        let id = children[0].to_string();
        let status = std::process::Command::new("kill").args(["-9", &id]).status().expect("kill");
        assert!(status.success());
    }
}

/// A window and all that is behind it.
struct Real {
    harness: Harness<'static, App>,
    dialogs: Told,
}

impl Looks for Real {
    fn window(&self) -> &Harness<'static, App> {
        &self.harness
    }
}

impl Real {
    fn state(&self) -> &State {
        &self.harness.state().state
    }

    /// Draws until it is so.
    #[track_caller]
    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < end, "no {what} among {:#?}", self.names());
            self.harness.run_steps(1);
            std::thread::sleep(Duration::from_secs_f32(STEP / 2.0));
        }
        self.harness.run_steps(2);
    }

    fn press(&mut self, name: &str) {
        self.button(name).click();
        self.harness.run_steps(2);
    }

    /// Presses the last of several buttons with this name.
    fn press_last(&mut self, name: &str) {
        self.harness.query_all_by_label(name).last().expect("at least one").click();
        self.harness.run_steps(2);
    }

    fn key(&mut self, modifiers: Modifiers, key: Key) {
        self.harness.key_press_modifiers(modifiers, key);
        self.harness.run_steps(2);
    }

    fn write(&mut self, text: &str) {
        self.harness.get_by_label("Message").focus();
        self.harness.run_steps(1);
        self.harness.get_by_label("Message").type_text(text);
        self.harness.run_steps(2);
    }

    /// Messages of the conversation that is shown, all versions.
    fn messages(&self) -> usize {
        self.state().open.as_ref().map_or(0, |open| open.conversation.messages.len())
    }

    /// Writes a question and sends it; the answer begins.
    #[track_caller]
    fn ask(&mut self, text: &str) {
        let before = self.messages();
        self.write(text);
        self.key(Modifiers::NONE, Key::Enter);
        self.until("answer that begins", |real| real.messages() >= before + 2);
    }

    /// Waits until it is written.
    #[track_caller]
    fn answered(&mut self) -> Message {
        self.until("end of the answer", |real| real.state().answer.is_none());
        self.last().clone()
    }

    fn last(&self) -> &Message {
        let open = self.state().open.as_ref().expect("a conversation");
        open.shown().next_back().expect("a message")
    }

    fn shown(&self) -> Vec<String> {
        let open = self.state().open.as_ref().expect("a conversation");
        open.shown().map(|message| message.text.clone()).collect()
    }

    /// Pieces of the answer so far.
    fn pieces(&self) -> u64 {
        self.state().answer.as_ref().map_or(0, |answer| answer.pieces)
    }

    fn answers(&self, action: Action) {
        self.dialogs.answers.borrow_mut().push(action);
    }

    /// Closes the window and waits until all behind it has ended.
    fn close(mut self, home: &Home) {
        self.key(Modifiers::COMMAND, Key::Q);
        self.until("end of the window", |real| real.harness.state().is_leaving());
        assert!(home.children().is_empty(), "its memory is free");
    }
}

#[test]
fn a_day_from_the_first_start_to_the_last_close() {
    let home = Home::new("owner/name");
    let mut real = home.open();
    real.until("the first page", |real| real.sees("Demonstration model"));
    assert_eq!(real.state().page, Page::Models);
    real.until("word of the hub", |real| real.sees("The model hub does not answer"));
    real.must_see("Check the network and ask again");
    real.press("Try it");
    real.until("a loaded model", |real| real.sees("Ready"));
    real.must_see("What would you like to know?");
    assert!(home.model().join("manifest.json").is_file());

    // Asked, streamed, answered, with figures.
    real.ask("What is the capital of Spain?");
    let madrid = real.answered();
    assert_eq!(madrid.progress, Progress::Done);
    assert!(madrid.text.contains("Madrid"), "{madrid:?}");
    real.must_see("Madrid");
    real.must_see("tok/s");
    assert!(madrid.run.is_some_and(|run| run.tokens > 0 && run.prompt_tokens > 5), "{madrid:?}");

    // Escape stops an answer that would go on, and what is there stays.
    real.ask(ENDLESS);
    real.until("a few pieces", |real| real.pieces() > 4);
    real.must_see("Answering");
    real.key(Modifiers::NONE, Key::Escape);
    let stopped = real.answered();
    assert_eq!(stopped.progress, Progress::Cut("stopped".to_owned()));
    assert!(!stopped.text.is_empty());

    // The second question is written anew: another version, and the way back.
    real.press_last("Edit");
    assert_eq!(real.state().composer.text, ENDLESS);
    real.key(Modifiers::COMMAND, Key::A);
    real.ask("What is 3 + 4?");
    let seven = real.answered();
    assert!(seven.text.contains('7'), "{seven:?}");
    real.must_see("2/2");
    real.press_last("Older version");
    assert_eq!(real.last().id, stopped.id);
    real.press_last("Newer version");
    assert_eq!(real.last().id, seven.id);

    // Another answer beside it.
    real.press_last("Regenerate");
    real.until("another answer", |real| real.last().id != seven.id);
    let again = real.answered();
    assert_eq!((again.parent, &again.text), (seven.parent, &seven.text), "the likeliest is the likeliest");

    // A document comes with its tokens.
    let notes = home.folder.path().join("notes.txt");
    std::fs::write(&notes, "The bird is blue.\n").expect("a document");
    real.answers(Action::Documents(vec![notes]));
    real.until("a counted document", |real| real.sees("notes.txt · ") && real.sees(" tokens"));
    real.ask("Which colour has the bird?");
    assert_eq!(real.answered().progress, Progress::Done);
    let all = real.shown();
    assert_eq!(all.len(), 6);

    // What is shown goes out, in both forms.
    let id = real.state().open_id().expect("a conversation");
    for name in ["out.md", "out.json"] {
        let path = home.folder.path().join(name);
        real.key(Modifiers::COMMAND, Key::E);
        real.answers(Action::ExportTo(id, path.clone()));
        real.until("a file", |real| real.sees("Saved to") && path.is_file());
        let text = std::fs::read_to_string(&path).expect("what was written");
        assert!(text.contains("Madrid") && !text.contains(ENDLESS), "{text}");
    }

    // Deleted, and brought back as it was.
    let title =
        real.state().open.as_ref().map(|open| open.conversation.summary.title.clone()).expect("a title");
    real.button(&title).focus();
    real.harness.run_steps(1);
    real.key(Modifiers::NONE, Key::Delete);
    real.until("the way back", |real| real.sees("Undo"));
    assert!(real.state().library.list.is_empty() && real.state().open.is_none());
    real.press("Undo");
    real.until("the conversation", |real| !real.state().library.list.is_empty());
    real.press(&title);
    real.until("its messages", |real| real.state().open.is_some());
    assert_eq!(real.shown(), all);
    real.close(&home);

    // The next day all of it is there, and the model is loaded again by itself.
    let mut real = home.open();
    real.until("a loaded model", |real| real.sees("Ready"));
    real.press(&title);
    real.until("its messages", |real| real.state().open.is_some());
    assert_eq!(real.shown(), all);
    real.close(&home);
}

#[test]
fn the_service_is_killed_again_and_again_and_the_next_answer_works() {
    let kills: usize =
        std::env::var("FIELDFARE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(5);
    let (home, mut real) = Home::with_demo();
    let mut kept: Vec<Message> = Vec::new();
    let (mut by_itself, mut by_hand) = (0, 0);
    // Where in an answer it happens is different each time, and the same in every run.
    let mut dice = 12_345u32;
    for number in 0..kills {
        // So that the notice below is this time's.
        real.harness.state_mut().state.notices.clear();
        real.key(Modifiers::COMMAND, Key::N);
        real.ask(ENDLESS);
        dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let after = u64::from(dice >> 16) % 20;
        real.until("some pieces", |real| real.pieces() >= after);
        home.kill_child();
        real.until("a notice", |real| real.sees("The engine ended:"));
        let cut = real.answered();
        assert!(matches!(&cut.progress, Progress::Interrupted(_)), "{number}: {cut:?}");
        real.must_see("memory");
        kept.push(cut);
        if matches!(real.state().service, Service::Crashed { restarting: false, .. }) {
            by_hand += 1;
            real.press("Start again");
        } else {
            by_itself += 1;
        }
        real.until("a loaded model", |real| real.sees("Ready"));
        // The question stays, and another answer to it is begun and stopped.
        real.press_last("Regenerate");
        real.until("another answer", |real| real.pieces() > 0);
        real.key(Modifiers::NONE, Key::Escape);
        assert_eq!(real.answered().progress, Progress::Cut("stopped".to_owned()), "{number}");
    }
    println!("{kills} kills: {by_itself} times started again by itself, {by_hand} times by the button");
    real.key(Modifiers::COMMAND, Key::N);
    real.ask("What is the capital of Spain?");
    assert!(real.answered().text.contains("Madrid"));
    // Nothing that was shown is lost on the disk.
    real.close(&home);
    let mut real = home.open();
    real.until("the list", |real| real.state().library.list.len() == kills + 1);
    let ids: Vec<_> = real.state().library.list.iter().map(|summary| summary.id).collect();
    let mut found = 0;
    for id in ids {
        let open = move |real: &Real| real.state().open_id() == Some(id);
        real.answers(Action::OpenChat(id));
        real.until("a conversation", open);
        let conversation = &real.state().open.as_ref().expect("just opened").conversation;
        found += kept.iter().filter(|cut| conversation.messages.contains(cut)).count();
    }
    assert_eq!(found, kills);
    real.close(&home);
}

#[test]
fn a_model_folder_that_goes_and_a_full_disk_are_told_and_nothing_is_lost() {
    let (home, mut real) = Home::with_demo();
    // The folder goes under the running engine: what is open stays open.
    let away = home.folder.path().join("away");
    std::fs::rename(home.model(), &away).expect("a move");
    real.ask("What is the capital of Spain?");
    assert!(real.answered().text.contains("Madrid"));
    real.press("Unload");
    real.until("an end", |real| real.sees("No model is loaded."));
    assert!(home.children().is_empty());
    real.press("Load");
    real.until("a refusal", |real| real.sees("The engine cannot start:"));
    real.must_see("demo.gturbo");
    real.must_see("Choose another model folder, or download the model.");
    std::fs::rename(&away, home.model()).expect("a move back");
    real.press("Try again");
    real.until("a loaded model", |real| real.sees("Ready"));

    // From here on the library has no room for another page.
    home.start.library_pages.store(1, Ordering::Relaxed);
    real.ask(&"word ".repeat(2_000));
    let kept = real.answered();
    real.until("a notice", |real| real.sees("disk is full"));
    assert_eq!(kept.progress, Progress::Done, "{kept:?}");
    assert!(!kept.text.is_empty());
    home.start.library_pages.store(0, Ordering::Relaxed);
    let all = real.shown();
    let title =
        real.state().open.as_ref().map(|open| open.conversation.summary.title.clone()).expect("a title");
    real.close(&home);
    let mut real = home.open();
    real.until("the list", |real| real.sees(&title));
    real.press(&title);
    real.until("its messages", |real| real.state().open.is_some());
    assert_eq!(real.shown(), all);
    // A window that vanishes without a word takes the model with it.
    real.until("a loaded model", |real| real.sees("Ready"));
    assert_eq!(home.children().len(), 1);
    drop(real);
    let end = Instant::now() + PATIENCE;
    while !home.children().is_empty() {
        assert!(Instant::now() < end, "the second process stays");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A second process that has no task says what it is.
#[test]
fn the_second_process_says_what_it_is_to_whoever_starts_it_by_hand() {
    let output = std::process::Command::new(Path::new(env!("CARGO_BIN_EXE_fieldfare-app")))
        .arg("--decode-service")
        .stdin(std::process::Stdio::null())
        .output()
        .expect("the app's binary");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("the Fieldfare app starts for itself"));
}
