//! What a frame costs with 2,000 conversations and an answer of 200,000 characters. The bounds hold for optimized builds
//! (`cargo test --release -p fieldfare-app --test ui frames -- --nocapture` prints the figures); unoptimized ones get
//! tenfold. What must not grow with the answer, the number of rows drawn, is checked everywhere.

use crate::Rig;
use crate::fake::message;
use egui_kittest::kittest::Queryable;
use fieldfare_app_worker::message::{Progress, Role};
use std::time::Instant;

/// Milliseconds that a frame may take on the window's thread.
const FRAME: f64 = if cfg!(debug_assertions) { 160.0 } else { 16.0 };

/// Paragraphs, lists and code, by the thousand.
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

fn many(fake: &mut crate::fake::Fake) {
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

/// Milliseconds of frames: the median and the longest but one in a hundred.
fn measure(rig: &mut Rig, frames: usize, mut before: impl FnMut(&mut Rig, usize)) -> (f64, f64) {
    let mut taken = Vec::with_capacity(frames);
    for frame in 0..frames {
        before(rig, frame);
        let began = Instant::now();
        rig.harness.step();
        let output = rig.harness.output();
        let shapes = rig.harness.ctx.tessellate(output.shapes.clone(), output.pixels_per_point);
        assert!(!shapes.is_empty());
        taken.push(began.elapsed().as_secs_f64() * 1e3);
    }
    taken.sort_by(f64::total_cmp);
    (taken[frames / 2], taken[frames * 99 / 100])
}

#[test]
fn long_answers_and_many_conversations_cost_what_is_visible() {
    let began = Instant::now();
    let mut rig = Rig::new(None, many);
    let start = began.elapsed().as_secs_f64();
    rig.harness.get_by_label("The long one").click();
    rig.run();
    let (drawn, all) = rig.harness.state().cache.chat.drawn;
    assert!(all > 2_500, "{all} rows");
    assert!(drawn < 60, "{drawn} of {all} rows drawn");
    let idle = measure(&mut rig, 100, |_, _| ());
    println!("start with 2,000 conversations: {start:.3} s");
    println!("idle: {:.2} ms a frame at the median, {:.2} ms at 99 %", idle.0, idle.1);
    let scroll = measure(&mut rig, 100, |rig, frame| {
        let delta = egui::vec2(0.0, if frame % 50 < 25 { 400.0 } else { -300.0 });
        rig.harness.hover_at(egui::pos2(600.0, 300.0));
        rig.harness.event(egui::Event::MouseWheel {
            unit: egui::MouseWheelUnit::Point,
            delta,
            phase: egui::TouchPhase::Move,
            modifiers: egui::Modifiers::NONE,
            source: egui::MouseWheelSource::Trackpad,
        });
    });
    println!("scrolling: {:.2} ms a frame at the median, {:.2} ms at 99 %", scroll.0, scroll.1);
    assert!(idle.0 <= FRAME && idle.1 <= 2.0 * FRAME, "{idle:?}");
    assert!(scroll.0 <= FRAME, "{scroll:?}");
}

#[test]
fn streaming_at_the_end_of_a_long_answer_is_smooth() {
    let mut rig = Rig::new(None, many);
    rig.harness.get_by_label("The long one").click();
    rig.run();
    rig.write("More of it");
    rig.key(egui::Modifiers::NONE, egui::Key::Enter);
    let text = long_answer(200_000);
    rig.fake.piece(&text, "");
    rig.run();
    // A hundred tokens a second at thirty pictures a second: three or four pieces a frame.
    let mut at = 0;
    let streaming = measure(&mut rig, 200, |rig, frame| {
        for _ in 0..3 + usize::from(frame % 3 == 0) {
            rig.fake.piece(&text[at..at + 5], "");
            at += 5;
        }
    });
    println!(
        "streaming into 200,000 characters: {:.2} ms a frame at the median, {:.2} ms at 99 %",
        streaming.0, streaming.1
    );
    let (drawn, all) = rig.harness.state().cache.chat.drawn;
    assert!(drawn < 60 && all > 5_000, "{drawn} of {all} rows drawn");
    rig.must_see("Answering");
    assert!(streaming.0 <= FRAME && streaming.1 <= 2.0 * FRAME, "{streaming:?}");
    rig.fake.finish(Progress::Done);
    rig.run();
}
