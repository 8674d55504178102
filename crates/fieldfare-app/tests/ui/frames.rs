//! What a frame costs with 2,000 conversations and an answer of 200,000 characters: everything on the window's thread but
//! handing triangles to the driver (hearing the worker, update, layout, tessellation), without the harness around it.
//!
//! ```text
//! cargo test --release -p fieldfare-app --test ui frames -- --nocapture --test-threads 1
//! ```
//!
//! prints the distribution: processor time of this thread (where the system tells it), which other programs do not
//! disturb, and time by the clock, which they do. Milliseconds bound the processor time of optimized builds. Unoptimized
//! ones, which are also those of CI on whatever machine, draw fewer frames and hold the usual one against a frame in which
//! nothing is open, on the same machine. What must not grow with the answer, the number of rows drawn, is checked everywhere.

use crate::Told;
use crate::fake::{Fake, NOW, message};
use egui::{Event, RawInput, Rect, pos2, vec2};
use fieldfare_app::app::App;
use fieldfare_app::state::{Action, Page, State};
use fieldfare_app::update;
use fieldfare_app_worker::message::{Command, ConversationId, Progress, Role, Sampling};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Milliseconds that a frame may take on the window's thread.
const FRAME: f64 = 16.0;
/// What the usual frame of an unoptimized build may take, in frames with nothing open: the longest takes about 12.
const PLAIN_FRAMES: f64 = 60.0;
/// Frames of a measurement.
const FRAMES: usize = if cfg!(debug_assertions) { 40 } else { 900 };

/// Headings, paragraphs, lists and code in turn.
fn long_answer(characters: usize) -> String {
    let mut text = String::new();
    let mut part = 0;
    while text.len() < characters {
        part += 1;
        text.push_str(&format!("## Part {part}\n\nThis is paragraph {part} of an answer that **never** seems to end; it says `nothing` in {part} ways and leads [nowhere](https://example.org/{part}).\n\n"));
        text.push_str("- one thing\n- another thing that is a little longer than the first\n- a third\n\n");
        text.push_str("```rust\nfn f(x: u32) -> u32 {\n    x + 1\n}\n```\n\n");
    }
    text
}

/// What is hardest for a view that lays out blocks: one paragraph without an end, code without an end, a table that grows.
fn hard_answers() -> [(&'static str, String); 3] {
    let paragraph = "word after word and no end of it; ".repeat(2_000);
    let code: String =
        (0..3_000).map(|line| format!("    let x{line} = f({line}); // line {line}\n")).collect();
    let rows: String =
        (0..3_000).map(|row| format!("| {row} | a **bold** word | `code` | 1.5 |\n")).collect();
    [
        ("a paragraph without end", paragraph),
        ("code without end", format!("```rust\n{code}")),
        ("a table", format!("| a | b | c | d |\n|---|---|---|--:|\n{rows}")),
    ]
}

fn many(fake: &mut Fake) {
    for id in 0..2_000 {
        let title = format!("Conversation {id} about something");
        fake.remember(id, &title, 60 * id, vec![message(10_000 + id, None, Role::User, &title)]);
    }
    let messages = vec![
        message(1, None, Role::User, "Write a lot."),
        message(2, Some(1), Role::Assistant, &long_answer(200_000)),
    ];
    fake.remember(5_000, "The long one", 1, messages);
}

/// A window and its worker, without a harness.
struct Pane {
    context: egui::Context,
    app: App,
    fake: Fake,
    time: f64,
}

/// What a frame cost.
#[derive(Clone, Copy)]
struct Cost {
    /// Milliseconds of processor time.
    busy: f64,
    /// Milliseconds by the clock.
    wall: f64,
    /// It was laid out more than once.
    again: bool,
}

/// Time that this thread has had of a processor.
#[cfg(unix)]
fn busy() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The clock has to do.
#[cfg(not(unix))]
fn busy() -> Duration {
    static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed()
}

impl Pane {
    fn new() -> Self {
        let (send, commands) = mpsc::channel();
        let (say, events) = mpsc::channel();
        let mut fake = Fake::new(commands, say);
        many(&mut fake);
        fake.say(fieldfare_app_worker::message::Event::Settings(None));
        let context = egui::Context::default();
        let dialogs = Box::new(Told::default());
        let app = App::new(&context, send, events, dialogs, Box::new(|| NOW), State::default());
        let mut pane = Self { context, app, fake, time: 0.0 };
        pane.settle();
        pane
    }

    /// Frames until neither has anything more to say.
    fn settle(&mut self) {
        for _ in 0..10 {
            self.frame(Vec::new());
        }
    }

    fn act(&mut self, action: Action) {
        let effects = update::action(&mut self.app.state, action);
        for effect in effects {
            if let fieldfare_app::state::Effect::Send(command) = effect {
                self.fake.hear(command);
            }
        }
        self.settle();
    }

    fn open_the_long_one(&mut self) {
        self.act(Action::OpenChat(ConversationId(5_000)));
        assert!(self.app.state.open.is_some());
        assert_eq!(self.app.state.page, Page::Chat);
    }

    /// A question below the long answer, and an answer that begins.
    fn ask(&mut self) {
        let parent = self.app.state.open.as_ref().and_then(|open| open.conversation.leaf);
        self.fake.hear(Command::Ask {
            conversation: ConversationId(5_000),
            parent,
            text: "More of it".to_owned(),
            documents: Vec::new(),
            sampling: Sampling::default(),
        });
        self.settle();
    }

    /// One frame, thirty of which are a second.
    fn frame(&mut self, events: Vec<Event>) -> Cost {
        self.fake.pump();
        self.time += 1.0 / 30.0;
        let input = RawInput {
            screen_rect: Some(Rect::from_min_size(egui::Pos2::ZERO, vec2(1_100.0, 760.0))),
            time: Some(self.time),
            predicted_dt: 1.0 / 30.0,
            focused: true,
            events,
            ..RawInput::default()
        };
        let (wall, cpu, passes) = (Instant::now(), busy(), self.context.cumulative_pass_nr());
        let app = &mut self.app;
        let mut output = self.context.run_ui(input, |ui| {
            app.hear(&ui.ctx().clone());
            app.draw(ui);
        });
        let shapes = self.context.tessellate(output.shapes, output.pixels_per_point);
        let cost = Cost {
            busy: (busy() - cpu).as_secs_f64() * 1e3,
            wall: wall.elapsed().as_secs_f64() * 1e3,
            again: self.context.cumulative_pass_nr() - passes > 1,
        };
        assert!(!shapes.is_empty());
        output.textures_delta.clear();
        self.fake.pump();
        cost
    }

    /// Many frames, and what is to happen before each; says and answers the median and the longest but one in a hundred.
    fn measure(&mut self, what: &str, mut before: impl FnMut(&mut Self, usize) -> Vec<Event>) -> (f64, f64) {
        let costs: Vec<Cost> = (0..FRAMES)
            .map(|number| {
                let events = before(self, number);
                self.frame(events)
            })
            .collect();
        let sorted = |of: fn(&Cost) -> f64| {
            let mut all: Vec<f64> = costs.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let (busy, wall) = (sorted(|cost| cost.busy), sorted(|cost| cost.wall));
        let at = |sorted: &[f64], share: usize| sorted[(sorted.len() * share / 1_000).min(sorted.len() - 1)];
        let line =
            |sorted: &[f64]| [500, 900, 990, 999].map(|share| format!("{:6.2}", at(sorted, share))).join(" ");
        let again = costs.iter().filter(|cost| cost.again).count();
        println!(
            "{what:<34} busy {}   wall {}   (50 %, 90 %, 99 %, most){}",
            line(&busy),
            line(&wall),
            if again > 0 { format!("   {again} laid out twice") } else { String::new() }
        );
        (at(&busy, 500), at(&busy, 990))
    }

    /// An answer that grows by `text`: a hundred tokens a second at thirty pictures a second, three or four pieces a frame.
    fn stream(&mut self, what: &str, text: &str) -> (f64, f64) {
        let letters: Vec<char> = text.chars().collect();
        let mut at = 0;
        self.measure(what, |pane, number| {
            for _ in 0..3 + usize::from(number % 3 == 0) {
                let piece: String = letters[at..(at + 5).min(letters.len())].iter().collect();
                at = (at + 5).min(letters.len());
                pane.fake.piece(&piece, "");
            }
            Vec::new()
        })
    }
}

/// Frames with nothing open, by which others are judged.
fn plain(pane: &mut Pane) -> (f64, f64) {
    pane.measure("idle, nothing open", |_, _| Vec::new())
}

/// Whether frames of which the usual and the longest took so long are smooth.
fn smooth(frames: (f64, f64), plain: (f64, f64)) -> bool {
    if cfg!(debug_assertions) { frames.0 <= PLAIN_FRAMES * plain.0 } else { frames.1 <= FRAME }
}

fn wheel(number: usize) -> Vec<Event> {
    let delta = vec2(0.0, if number % 50 < 25 { 400.0 } else { -300.0 });
    vec![
        Event::PointerMoved(pos2(600.0, 300.0)),
        Event::MouseWheel {
            unit: egui::MouseWheelUnit::Point,
            delta,
            phase: egui::TouchPhase::Move,
            modifiers: egui::Modifiers::NONE,
            source: egui::MouseWheelSource::Trackpad,
        },
    ]
}

#[test]
fn long_answers_and_many_conversations_cost_what_is_visible() {
    let began = Instant::now();
    let mut pane = Pane::new();
    println!("start with 2,000 conversations: {:.3} s", began.elapsed().as_secs_f64());
    let first = plain(&mut pane);
    pane.open_the_long_one();
    let (drawn, all) = pane.app.cache.chat.drawn;
    assert!(all > 2_500, "{all} rows");
    assert!(drawn < 60, "{drawn} of {all} rows drawn");
    let idle = pane.measure("idle, at the end of the answer", |_, _| Vec::new());
    let scroll = pane.measure("scrolling through it", |_, number| wheel(number));
    let (drawn, _) = pane.app.cache.chat.drawn;
    assert!(drawn < 60, "{drawn} of {all} rows drawn");
    let all_smooth = [first, idle, scroll].into_iter().all(|frames| smooth(frames, first));
    assert!(all_smooth, "{first:?} {idle:?} {scroll:?}");
}

#[test]
fn streaming_at_the_end_of_a_long_answer_is_smooth() {
    let mut pane = Pane::new();
    let plain = plain(&mut pane);
    pane.open_the_long_one();
    pane.ask();
    // It has 200,000 characters already when the measurement begins.
    let text = long_answer(200_000);
    pane.fake.piece(&text, "");
    pane.settle();
    let streaming = pane.stream("streaming into 200,000 characters", &text);
    let (drawn, all) = pane.app.cache.chat.drawn;
    assert!(drawn < 60 && all > 5_000, "{drawn} of {all} rows drawn");
    assert!(smooth(streaming, plain), "{streaming:?} {plain:?}");
    pane.context.enable_accesskit();
    let read = pane.stream("the same with a screen reader", &text);
    assert!(smooth(read, plain), "{read:?} {plain:?}");
    pane.context.disable_accesskit();
    pane.fake.finish(Progress::Done);
    pane.settle();
}

#[test]
fn streaming_what_is_hard_to_lay_out_is_smooth_too() {
    for (what, text) in hard_answers() {
        let mut pane = Pane::new();
        let plain = plain(&mut pane);
        pane.open_the_long_one();
        pane.ask();
        // Nearly as long as a block gets before it is cut.
        let begin: String = text.chars().take(3_000).collect();
        pane.fake.piece(&begin, "");
        pane.settle();
        let rest: String = text.chars().skip(3_000).collect();
        let streaming = pane.stream(what, &rest);
        assert!(smooth(streaming, plain), "{what}: {streaming:?} {plain:?}");
    }
}
