//! Pictures of every page, kept in `docs/app` and compared with what is drawn now. They are painted by a painter of our own
//! from the fonts that the window brings, so they are the same everywhere; the tolerance is for the last bits of
//! floating point. `UPDATE_SNAPSHOTS=1 cargo test -p fieldfare-app --test ui pictures` makes them anew.

use crate::Rig;
use crate::fake::{self, message};
use egui::Theme;
use fieldfare_app::state::Page;
use fieldfare_app_worker::message::{Document, Event, Job, Role};
use std::path::{Path, PathBuf};

const ANSWER: &str = "A **fieldfare** (*Turdus pilaris*) is a large thrush. You know it by:\n\n- its slate-grey head and rump,\n- its chestnut back,\n- a loud `chack-chack` in flight.\n\n| | Fieldfare | Blackbird |\n|---|---|---|\n| Length | 25 cm | 24 cm |\n| Winter | in flocks | alone |\n\nThe wing loading is $w = \\frac{m g}{A}$, about 33 N/m² for a bird of 105 g.\n\n```rust\nfn wing_loading(mass: f64, area: f64) -> f64 {\n    mass * 9.81 / area // newtons per square metre\n}\n```\n\n> In hard winters they come into gardens for windfall apples.\n";

fn library(fake: &mut fake::Fake) {
    let mut question =
        message(1, None, Role::User, "What is a fieldfare, and how do I tell it from a blackbird?");
    question.documents.push(Document {
        name: "notes.txt".to_owned(),
        text: String::new(),
        tokens: Some(1_234),
    });
    let mut answer = message(2, Some(1), Role::Assistant, ANSWER);
    answer.thought = "The question is about a bird. I should compare the two.".to_owned();
    let mut other = message(3, Some(1), Role::Assistant, "A bird.");
    other.written_at += 5;
    fake.remember(1, "Fieldfares and blackbirds", 300, vec![question, other, answer]);
    for (id, title, age) in [
        (2, "Sourdough that does not rise", 5_400),
        (3, "Letter to the town council", 90_000),
        (4, "Borrow checker, again", 200_000),
        (5, "Gift ideas for a gardener", 500_000),
        (6, "Zusammenfassung des Protokolls", 1_300_000),
    ] {
        fake.remember(id, title, age, vec![message(id * 10, None, Role::User, title)]);
    }
}

/// How far a channel may be off, and how many pixels may be further off than that.
const TOLERANCE: (u8, usize) = (24, 60);

fn keep(rig: &mut Rig, name: &str) {
    rig.harness.run_steps(3);
    let picture = rig.picture();
    let kept =
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/app")).join(format!("{name}.png"));
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        picture.save(&kept).expect("the folder of pictures can be written");
    }
    let drawn = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.png"));
    let known = image::open(&kept).unwrap_or_else(|error| panic!("{}: {error}", kept.display())).to_rgb8();
    let off = |(one, other): (&image::Rgb<u8>, &image::Rgb<u8>)| {
        one.0.iter().zip(other.0).any(|(one, other)| one.abs_diff(other) > TOLERANCE.0)
    };
    let same_size = known.dimensions() == picture.dimensions();
    let different = known.pixels().zip(picture.pixels()).filter(|pair| off(*pair)).count();
    if !same_size || different > TOLERANCE.1 {
        picture.save(&drawn).expect("the scratch folder can be written");
        panic!("{name}: {different} pixels differ; kept {}, drawn {}", kept.display(), drawn.display());
    }
    let bytes = std::fs::metadata(&kept).map_or(0, |data| data.len());
    assert!(bytes < 200_000, "{name}: {bytes} bytes are too many to keep");
}

#[test]
fn chat() {
    let mut rig = Rig::new(None, library);
    rig.press("Fieldfares and blackbirds");
    for step in 0..8 {
        rig.fake.say(Event::Sample(fake::sample(step)));
    }
    rig.run();
    keep(&mut rig, "chat");
}

#[test]
fn chat_light_while_an_answer_is_written() {
    let mut rig = Rig::with(egui::vec2(1_100.0, 760.0), Theme::Light, None, library);
    rig.press("Fieldfares and blackbirds");
    rig.write("Where do they nest?");
    rig.key(egui::Modifiers::NONE, egui::Key::Enter);
    rig.fake.piece("In trees, often **in colonies**, from Scandinavia to Siberia;", "");
    rig.fake.say(Event::Sample(fake::sample(3)));
    rig.run();
    keep(&mut rig, "chat-light");
}

#[test]
fn empty() {
    let mut rig = Rig::new(None, library);
    keep(&mut rig, "empty");
}

#[test]
fn first_start() {
    let mut rig = Rig::with(egui::vec2(1_100.0, 760.0), Theme::Light, None, |fake| fake.models.clear());
    rig.press("Download");
    rig.fake.say(Event::JobStep(Job::Install, fake::step(3_000_000_000)));
    rig.run();
    keep(&mut rig, "first-start");
}

#[test]
fn settings() {
    let mut rig = Rig::new(Some(r#"{"memory_bytes": 4000000000}"#), library);
    rig.press("Settings");
    keep(&mut rig, "settings");
}

#[test]
fn settings_with_high_contrast() {
    let settings = r#"{"high_contrast": true, "zoom_percent": 125}"#;
    let mut rig = Rig::with(egui::vec2(1_100.0, 760.0), Theme::Light, Some(settings), library);
    rig.press("Settings");
    keep(&mut rig, "high-contrast");
}

#[test]
fn inspector() {
    let mut rig = Rig::new(None, library);
    for step in 0..400 {
        rig.fake.say(Event::Sample(fake::sample(step)));
    }
    rig.run();
    rig.press("Inspector");
    keep(&mut rig, "inspector");
}

#[test]
fn bench() {
    let mut rig = Rig::with(egui::vec2(1_100.0, 760.0), Theme::Light, None, library);
    rig.press("Benchmark");
    rig.press("Run");
    for gigabytes in [2.0, 3.0, 4.0, 6.0] {
        rig.fake.say(Event::BenchRow(fake::bench_row(gigabytes)));
    }
    rig.fake.say(Event::BenchDone(Ok(())));
    rig.run();
    keep(&mut rig, "bench");
}

#[test]
fn trouble() {
    let mut rig = Rig::new(None, library);
    rig.press("Fieldfares and blackbirds");
    rig.write("Where do they nest?");
    rig.key(egui::Modifiers::NONE, egui::Key::Enter);
    rig.fake.piece("In trees, often in", "");
    rig.run();
    rig.fake.crash(true);
    rig.run();
    keep(&mut rig, "trouble");
}

#[test]
fn models_and_about() {
    let mut rig = Rig::new(None, library);
    rig.press("Models");
    keep(&mut rig, "models");
    rig.press("About");
    assert_eq!(rig.harness.state().state.page, Page::About);
    keep(&mut rig, "about");
}

/// For packages: the file is what the code draws.
#[test]
fn icon() {
    let side = 256;
    let drawn = image::RgbaImage::from_raw(side, side, fieldfare_app::icon::pixels(side))
        .expect("four bytes a pixel");
    let kept = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/app/icon.png"));
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        drawn.save(&kept).expect("the folder of pictures can be written");
    }
    let known = image::open(&kept).unwrap_or_else(|error| panic!("{}: {error}", kept.display())).to_rgba8();
    let off = known.pixels().zip(drawn.pixels()).filter(|(one, other)| one != other).count();
    assert!(off < 100, "{off} pixels differ");
}
