//! What people do, from the first start to the last.

use crate::fake::{self, demo, large, message};
use crate::{Looks, Rig};
use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable;
use fieldfare_app::state::{Action, Dialog, Page};
use fieldfare_app_worker::message::{
    Command, ConversationId, Event, Job, MessageId, Offer, Progress, Role, Service, Trouble,
};
use std::path::PathBuf;

fn birds(rig: &mut fake::Fake) {
    rig.remember(
        1,
        "Birds of the garden",
        300,
        vec![
            message(1, None, Role::User, "What is a fieldfare?"),
            message(2, Some(1), Role::Assistant, "A **thrush** with a slate head."),
        ],
    );
    rig.remember(2, "Bread", 90_000, vec![message(10, None, Role::User, "How do I bake rye bread?")]);
}

fn asked(rig: &Rig, matches: impl Fn(&Command) -> bool) -> bool {
    rig.fake.asked.iter().any(matches)
}

#[test]
fn first_start_demo_model_first_answer() {
    let mut rig = Rig::new(None, |fake| fake.models.clear());
    rig.must_see("Demonstration model");
    rig.must_see("14.4 GB needed, 213 GB free");
    rig.press("Try it");
    assert!(asked(&rig, |command| matches!(command, Command::InstallDemo)));
    assert!(asked(&rig, |command| matches!(command, Command::Load { model, .. } if model.is_demo)));
    rig.must_see("What would you like to know?");
    rig.must_see("Ready");
    rig.write("What is the capital of France?");
    rig.key(Modifiers::NONE, Key::Enter);
    assert!(asked(
        &rig,
        |command| matches!(command, Command::Ask { text, .. } if text == "What is the capital of France?")
    ));
    rig.fake.prefill(128, 514);
    rig.run();
    rig.must_see("Prefill (128/514)");
    rig.fake.piece("", "The user wants a city.");
    rig.fake.piece("The capital of France is **Paris**.", "");
    rig.run();
    rig.must_see("Paris");
    rig.must_not_see("The user wants a city.");
    rig.press("Show the thought");
    rig.must_see("The user wants a city.");
    rig.fake.finish(Progress::Done);
    rig.run();
    rig.must_see("5.3 tok/s");
    rig.must_see("Regenerate");
}

#[test]
fn the_download_begins_pauses_goes_on_and_ends() {
    let mut rig = Rig::new(None, |fake| fake.models.clear());
    rig.press("Download");
    assert!(asked(&rig, |command| matches!(command, Command::Install { .. })));
    rig.fake.say(Event::JobStep(Job::Install, fake::step(3_000_000_000)));
    rig.run();
    rig.must_see("Fetching layer 7 of 30: 21 %");
    rig.must_see("46.0 MB/s · 4 min left");
    rig.must_see("A download into it is running; pause it first.");
    rig.press("Pause");
    rig.must_see("Paused; what was fetched stays.");
    rig.fake.say(Event::Offer(fake::offer(3_000_000_000)));
    rig.run();
    rig.must_see("11.2 GB to go; 3.00 GB of 14.2 GB are here already");
    rig.press("Resume");
    rig.fake.models.push(large());
    rig.fake.say(Event::JobDone(Job::Install, "Installed and checked.".to_owned()));
    rig.run();
    assert!(asked(&rig, |command| matches!(command, Command::Load { model, .. } if *model == large())));
    assert_eq!(rig.harness.state().state.page, Page::Chat);
}

#[test]
fn too_little_space_is_said_beside_the_button() {
    let mut rig = Rig::new(None, |fake| fake.models.clear());
    let obstacle = "12 GB more are needed there; choose another folder. ".repeat(6).trim().to_owned();
    rig.fake.say(Event::Offer(Offer {
        free_bytes: 2_000_000_000,
        obstacle: Some(obstacle.clone()),
        ..fake::offer(0)
    }));
    rig.run();
    rig.must_see(&obstacle);
    let screen = rig.harness.ctx.content_rect();
    for name in ["Download", "Ask again", "Choose a folder…"] {
        let rect = rig.button(name).rect();
        assert!(screen.contains_rect(rect), "{name} at {rect:?}");
    }
    rig.press("Download");
    assert!(!asked(&rig, |command| matches!(command, Command::Install { .. })));
    rig.press("Choose…");
    assert!(matches!(rig.dialogs.asked.borrow()[..], [Dialog::InstallFolder(_)]));
    rig.dialogs.answers.borrow_mut().push(Action::InstallFolder(PathBuf::from("/big")));
    rig.run();
    assert!(asked(
        &rig,
        |command| matches!(command, Command::AskOffer { folder } if folder.ends_with("big"))
    ));
}

#[test]
fn a_failed_download_says_what_to_do() {
    let mut rig = Rig::new(None, |fake| fake.models.clear());
    let trouble = Trouble {
        message: "The hub cannot be reached.".to_owned(),
        remedy: "Check the network; Resume goes on.".to_owned(),
    };
    rig.fake.say(Event::JobFailed(Job::Install, trouble));
    rig.run();
    rig.must_see("The hub cannot be reached.");
    rig.must_see("Check the network; Resume goes on.");
    rig.press("Throw away");
    assert!(asked(&rig, |command| matches!(command, Command::DiscardInstall { .. })));
}

#[test]
fn a_model_is_loaded_unloaded_and_checked() {
    let mut rig = Rig::new(None, |_| ());
    rig.must_see("Ready");
    rig.press("Unload");
    rig.must_see("No model loaded");
    rig.must_see("No model is loaded.");
    rig.press("Load");
    rig.must_see("Ready");
    rig.press("Models");
    rig.harness.query_all_by_label("Check every byte").next().expect("a button for each model").click();
    rig.run();
    assert!(asked(&rig, |command| matches!(command, Command::Verify { model } if *model == large().path)));
    rig.fake.say(Event::JobDone(Job::Verify, "Every byte is as it should be.".to_owned()));
    rig.run();
    rig.must_see("Every byte is as it should be.");
}

#[test]
fn another_model_is_chosen_from_the_list() {
    let mut rig = Rig::new(None, |_| ());
    rig.harness.get_by_label("Model").click();
    rig.run();
    rig.harness.get_by_label_contains("12.6 MB").click();
    rig.run();
    assert!(asked(&rig, |command| matches!(command, Command::Load { model, .. } if *model == demo())));
}

#[test]
fn escape_stops_and_what_is_there_stays() {
    let mut rig = Rig::new(None, birds);
    rig.press("Birds of the garden");
    rig.write("Tell me more");
    rig.key(Modifiers::NONE, Key::Enter);
    rig.fake.piece("It lives in", "");
    rig.run();
    rig.must_see("It lives in");
    rig.key(Modifiers::NONE, Key::Escape);
    assert!(asked(&rig, |command| matches!(command, Command::StopAnswer)));
    rig.must_see("Stopped.");
    rig.must_see("It lives in");
}

#[test]
fn shift_return_is_a_new_line_and_the_setting_turns_it_round() {
    let mut rig = Rig::new(None, |_| ());
    rig.write("one");
    rig.key(Modifiers::SHIFT, Key::Enter);
    assert!(!asked(&rig, |command| matches!(command, Command::Create { .. })));
    assert_eq!(rig.harness.state().state.composer.text, "one\n");
    let mut rig = Rig::new(Some(r#"{"send_key": "command_return"}"#), |_| ());
    rig.write("one");
    rig.key(Modifiers::NONE, Key::Enter);
    assert!(!asked(&rig, |command| matches!(command, Command::Create { .. })));
    rig.key(Modifiers::COMMAND, Key::Enter);
    assert!(asked(&rig, |command| matches!(command, Command::Create { .. })));
}

#[test]
fn an_input_method_writes_into_the_composer() {
    let mut rig = Rig::new(None, |_| ());
    rig.write("El ni");
    rig.compose(&["n", "n~", "ñ"], "ñ");
    rig.write("o ");
    // What is suggested is shown, but is no text until it is taken.
    rig.compose(&["а", "ан"], "");
    assert_eq!(rig.harness.state().state.composer.text, "El niño ");
    rig.compose(&["к", "ки"], "кит");
    assert_eq!(rig.harness.state().state.composer.text, "El niño кит");
    assert!(!asked(&rig, |command| matches!(command, Command::Create { .. })), "nothing was sent");
    rig.key(Modifiers::NONE, Key::Enter);
    assert!(asked(&rig, |command| matches!(command, Command::Ask { text, .. } if text == "El niño кит")));
    // A search is written the same way.
    rig.harness.get_by_label("Search conversations").focus();
    rig.harness.run_steps(1);
    rig.harness.event(egui::Event::Ime(egui::ImeEvent::Commit("кит".to_owned())));
    rig.run();
    assert_eq!(rig.harness.state().state.library.search, "кит");
}

#[test]
fn an_edit_makes_a_version_and_one_can_go_back() {
    let mut rig = Rig::new(None, birds);
    rig.press("Birds of the garden");
    rig.press("Edit");
    assert_eq!(rig.harness.state().state.composer.text, "What is a fieldfare?");
    rig.write(" Briefly.");
    rig.key(Modifiers::NONE, Key::Enter);
    assert!(asked(
        &rig,
        |command| matches!(command, Command::Ask { parent: None, text, .. } if text.contains("Briefly"))
    ));
    rig.fake.piece("A bird.", "");
    rig.fake.finish(Progress::Done);
    rig.run();
    rig.must_see("2/2");
    rig.press("Older version");
    rig.must_see("1/2");
    rig.must_see("slate head");
    assert!(asked(&rig, |command| matches!(command, Command::SetLeaf(ConversationId(1), MessageId(2)))));
}

#[test]
fn another_answer_stands_beside_the_old_one() {
    let mut rig = Rig::new(None, birds);
    rig.press("Birds of the garden");
    rig.press("Regenerate");
    rig.fake.piece("Turdus pilaris.", "");
    rig.fake.finish(Progress::Done);
    rig.run();
    rig.must_see("Turdus pilaris.");
    rig.must_see("2/2");
    rig.press("Older version");
    rig.must_see("slate head");
}

#[test]
fn conversations_are_searched_renamed_deleted_and_brought_back() {
    let mut rig = Rig::new(None, birds);
    rig.key(Modifiers::COMMAND, Key::F);
    rig.harness.get_by_label("Search conversations").type_text("rye");
    rig.run();
    rig.must_see("Bread");
    rig.must_not_see("Birds of the garden");
    rig.harness.state_mut().state.library.search.clear();
    rig.harness.get_by_label("Search conversations").type_text("zzz");
    rig.run();
    rig.must_see("Nothing was found.");
    let mut rig = Rig::new(None, birds);
    rig.button("Bread").click_secondary();
    rig.run();
    rig.press("Rename (F2)");
    rig.harness.get_by_label("New name").type_text(" of rye");
    rig.key(Modifiers::NONE, Key::Enter);
    assert!(
        asked(
            &rig,
            |command| matches!(command, Command::Rename(ConversationId(2), name) if name == "Bread of rye")
        ),
        "{:?}",
        rig.fake.asked
    );
    rig.button("Bread of rye").focus();
    rig.harness.run_steps(1);
    rig.key(Modifiers::NONE, Key::Delete);
    rig.must_see("Deleted “Bread of rye”.");
    rig.must_not_see("rye bread");
    rig.press("Undo");
    rig.must_see("Bread of rye");
    rig.must_not_see("Deleted");
}

#[test]
fn an_undo_is_offered_for_ten_seconds() {
    let mut rig = Rig::new(None, birds);
    rig.harness.state_mut().state.now = 0.0;
    rig.button("Bread").focus();
    rig.harness.run_steps(1);
    rig.key(Modifiers::NONE, Key::Delete);
    rig.must_see("Undo");
    rig.wait(8.0);
    rig.must_see("Undo");
    rig.wait(3.0);
    rig.must_not_see("Undo");
}

#[test]
fn a_conversation_is_exported_and_text_is_copied() {
    let mut rig = Rig::new(None, birds);
    rig.press("Birds of the garden");
    rig.key(Modifiers::COMMAND, Key::E);
    assert_eq!(
        *rig.dialogs.asked.borrow(),
        [Dialog::Export(ConversationId(1), "Birds of the garden.md".to_owned())]
    );
    rig.dialogs
        .answers
        .borrow_mut()
        .push(Action::ExportTo(ConversationId(1), PathBuf::from("/tmp/birds.json")));
    rig.run();
    assert!(asked(
        &rig,
        |command| matches!(command, Command::Export { to, .. } if to.ends_with("birds.json"))
    ));
    rig.must_see("Saved to /tmp/birds.json.");
    let copies = rig.harness.query_all_by_label("Copy").count();
    assert_eq!(copies, 2, "one for the question, one for the answer");
    rig.harness.query_all_by_label("Copy").last().expect("two").click();
    rig.harness.run_steps(1);
    let copied = &rig.harness.output().platform_output.commands;
    assert!(
        copied.iter().any(
            |command| matches!(command, egui::OutputCommand::CopyText(text) if text.contains("**thrush**"))
        ),
        "{copied:?}"
    );
}

#[test]
fn code_is_copied_without_its_fences() {
    let mut rig = Rig::new(None, |fake| {
        let text = "Here:\n\n```rust\nfn main() {}\n```\n";
        fake.remember(
            1,
            "Code",
            3,
            vec![message(1, None, Role::User, "Code?"), message(2, Some(1), Role::Assistant, text)],
        );
    });
    rig.press("Code");
    rig.must_see("rust");
    rig.harness.query_all_by_label("Copy").nth(1).expect("in the code").click();
    rig.harness.run_steps(1);
    let copied = &rig.harness.output().platform_output.commands;
    assert!(
        copied.iter().any(
            |command| matches!(command, egui::OutputCommand::CopyText(text) if text == "fn main() {}\n")
        ),
        "{copied:?}"
    );
}

#[test]
fn documents_come_with_their_tokens_and_pictures_are_refused() {
    let mut rig = Rig::new(None, |_| ());
    let paths = vec![PathBuf::from("/a/notes.txt"), PathBuf::from("/a/cat.png")];
    rig.dialogs.answers.borrow_mut().push(Action::Documents(paths));
    rig.run();
    rig.must_see("notes.txt · 1,234 tokens");
    rig.must_see("cat.png is not text.");
    rig.must_see("save it as text first");
    rig.write("Sum it up");
    rig.wait(1.0);
    rig.must_see("1,237 of 8,192 tokens");
    rig.key(Modifiers::NONE, Key::Enter);
    assert!(asked(&rig, |command| matches!(command, Command::Ask { documents, .. } if documents.len() == 1)));
    let mut rig = Rig::new(None, |_| ());
    rig.dialogs.answers.borrow_mut().push(Action::Documents(vec![PathBuf::from("/a/notes.txt")]));
    rig.run();
    rig.press("Leave out notes.txt");
    rig.must_not_see("notes.txt");
}

#[test]
fn the_engine_dies_and_comes_back_and_nothing_is_lost() {
    let mut rig = Rig::new(None, birds);
    rig.press("Birds of the garden");
    for round in 0..5 {
        rig.write(&format!("Question {round}"));
        rig.key(Modifiers::NONE, Key::Enter);
        rig.fake.piece(&format!("Half an answer {round}"), "");
        rig.run();
        rig.fake.crash(true);
        rig.run();
        rig.must_see("The engine ended: killed: the system ran out of memory");
        rig.must_see("the conversation is safe");
        rig.must_see(&format!("Half an answer {round}"));
        rig.must_see("The engine is being started again.");
        let model = large();
        let settings = rig.harness.state().state.settings.engine();
        rig.fake.say(Event::Service(Service::Starting { model: model.clone() }));
        rig.run();
        rig.must_see("The engine ended");
        rig.fake.say(Event::Service(Service::Ready { model, plan: fake::plan(settings) }));
        rig.run();
        rig.must_see("The engine ended");
        rig.wait(11.0);
        rig.must_not_see("The engine ended");
    }
    rig.write("And now?");
    rig.key(Modifiers::NONE, Key::Enter);
    rig.fake.piece("An answer.", "");
    rig.fake.finish(Progress::Done);
    rig.run();
    rig.must_see("An answer.");
}

#[test]
fn an_engine_that_cannot_start_says_why_and_can_be_tried_again() {
    let mut rig = Rig::new(None, |fake| fake.loads = false);
    let trouble = Trouble {
        message: "the model directory is gone".to_owned(),
        remedy: "Look for it, or install it again.".to_owned(),
    };
    rig.fake.say(Event::Service(Service::Failed(trouble)));
    rig.run();
    rig.must_see("the model directory is gone");
    rig.must_see("Look for it, or install it again.");
    rig.fake.loads = true;
    rig.press("Try again");
    rig.must_see("Ready");
    rig.wait(11.0);
    rig.must_not_see("the model directory is gone");
}

#[test]
fn a_full_disk_gives_the_question_back() {
    let mut rig = Rig::new(None, birds);
    rig.press("Birds of the garden");
    rig.write("A question");
    rig.harness.state_mut().state.composer.documents.clear();
    // The worker says nothing but that it failed.
    rig.harness.key_press(Key::Enter);
    rig.harness.run_steps(1);
    rig.fake.say(Event::Trouble(Trouble {
        message: "The disk is full.".to_owned(),
        remedy: "Free some space.".to_owned(),
    }));
    rig.harness.run_steps(2);
    rig.must_see("The disk is full.");
    assert_eq!(rig.harness.state().state.composer.text, "A question");
}

#[test]
fn the_memory_slider_shows_the_plan_before_it_is_applied() {
    let mut rig = Rig::new(None, |_| ());
    rig.key(Modifiers::COMMAND, Key::Comma);
    rig.must_see("Nothing was changed.");
    rig.must_see("Shared core 1.35 GB");
    rig.must_see("about 9.2 tok/s");
    rig.tick("As much as helps and the machine bears");
    rig.harness.get_by_label("Memory budget").set_value_accesskit(4e9);
    rig.run();
    rig.must_see("4.00 GB in all");
    assert_eq!(rig.harness.state().state.settings.memory_bytes, None, "not applied yet");
    rig.press("Apply");
    assert!(asked(
        &rig,
        |command| matches!(command, Command::Load { settings, .. } if settings.memory_bytes == Some(4_000_000_000))
    ));
    rig.must_see("Nothing was changed.");
}

#[test]
fn a_budget_that_is_too_small_is_refused_with_the_reason() {
    let mut rig = Rig::new(None, |fake| {
        fake.plan_trouble = Some(Trouble {
            message: "1.00 GB is too little.".to_owned(),
            remedy: "At least 1.9 GB are needed.".to_owned(),
        });
    });
    rig.press("Settings");
    rig.tick("As much as helps and the machine bears");
    rig.must_see("At least 1.9 GB are needed.");
    rig.must_see("The model cannot be started like this.");
}

#[test]
fn settings_are_kept_and_found_again() {
    let mut rig = Rig::new(None, |_| ());
    rig.press("Settings");
    rig.tick("High contrast");
    rig.tick("Think before answering");
    rig.wait(1.5);
    let kept = rig.fake.asked.iter().rev().find_map(|command| match command {
        Command::SaveSettings(kept) => Some(kept.clone()),
        _ => None,
    });
    let kept = kept.expect("settings are kept after a rest");
    let rig = Rig::new(Some(&kept), |_| ());
    let settings = &rig.harness.state().state.settings;
    assert!(settings.high_contrast && settings.thinking);
}

#[test]
fn system_prompts_are_chosen_and_made() {
    let mut rig = Rig::new(None, |_| ());
    rig.press("No system prompt");
    rig.harness.get_by_label("Brief").click();
    rig.run();
    rig.key(Modifiers::NONE, Key::Escape);
    rig.write("Hello");
    rig.key(Modifiers::NONE, Key::Enter);
    assert!(
        asked(&rig, |command| matches!(command, Command::Create { system } if system.contains("briefly"))),
        "{:?}",
        rig.fake.asked
    );
}

#[test]
fn the_inspector_shows_what_the_engine_does() {
    let mut rig = Rig::new(None, |_| ());
    rig.press("Inspector");
    rig.must_see("Nothing to see yet");
    for step in 0..80 {
        rig.fake.say(Event::Sample(fake::sample(step)));
    }
    rig.run();
    rig.must_see("Expert cache: 30 layers of 128 experts");
    rig.must_see("Tokens a second over two minutes, now");
    rig.must_see("of its budget of 4.00 GB");
}

#[test]
fn the_benchmark_runs_and_draws() {
    let mut rig = Rig::new(None, |_| ());
    rig.press("Benchmark");
    rig.press("Run");
    assert!(asked(
        &rig,
        |command| matches!(command, Command::Bench { memory_bytes, .. } if memory_bytes.len() == 4)
    ));
    rig.fake.say(Event::BenchRow(fake::bench_row(2.0)));
    rig.run();
    rig.must_see("Measuring: 1 of 4 done");
    rig.must_see("This is being measured; Stop ends it.");
    rig.fake.say(Event::BenchRow(fake::bench_row(4.0)));
    rig.fake.say(Event::BenchDone(Ok(())));
    rig.run();
    rig.must_see("Tokens a second by memory: 2.3 tok/s at 2.00 GB, 5.3 tok/s at 4.00 GB");
    rig.press("Copy as text");
}

#[test]
fn every_page_is_reached_with_keys() {
    let mut rig = Rig::new(None, birds);
    for (key, page) in [
        (Key::Num2, Page::Models),
        (Key::Num3, Page::Inspector),
        (Key::Num4, Page::Bench),
        (Key::Comma, Page::Settings),
        (Key::Num1, Page::Chat),
    ] {
        rig.key(Modifiers::COMMAND, key);
        assert_eq!(rig.harness.state().state.page, page);
    }
    rig.key(Modifiers::NONE, Key::F1);
    assert_eq!(rig.harness.state().state.page, Page::About);
    rig.key(Modifiers::COMMAND, Key::Num1);
    rig.key(Modifiers::COMMAND, Key::B);
    rig.must_not_see("New conversation (");
    assert!(!rig.harness.state().state.settings.sidebar);
    rig.key(Modifiers::COMMAND, Key::F);
    assert!(rig.harness.state().state.settings.sidebar, "the search brings the list back");
    rig.press("Birds of the garden");
    rig.key(Modifiers::COMMAND, Key::N);
    assert!(rig.harness.state().state.open.is_none());
    rig.press("About");
    rig.must_see("New conversation");
    rig.must_see("Ctrl+N");
}

#[test]
fn tab_goes_through_every_button_of_the_first_page() {
    let mut rig = Rig::new(None, |fake| fake.models.clear());
    let mut reached = std::collections::BTreeSet::new();
    for _ in 0..60 {
        rig.harness.key_press(Key::Tab);
        rig.harness.run_steps(1);
        let focused = rig.harness.query_all_by(|node| node.is_focused() && !node.is_hidden());
        for node in focused {
            use egui_kittest::kittest::NodeT;
            reached.extend(node.accesskit_node().label());
        }
    }
    for name in ["Download", "Choose…", "Try it", "Folder for the download", "Choose a folder…", "Settings"]
    {
        assert!(reached.contains(name), "{name} is not among {reached:?}");
    }
}

#[test]
fn the_window_closes_when_the_worker_has_ended() {
    let mut rig = Rig::new(None, |_| ());
    rig.key(Modifiers::COMMAND, Key::Q);
    assert!(asked(&rig, |command| matches!(command, Command::Close)));
    assert!(rig.harness.state().is_leaving());
}

#[test]
fn nothing_is_drawn_when_nothing_happens() {
    let mut rig = Rig::new(None, birds);
    rig.press("Birds of the garden");
    rig.wait(20.0);
    rig.harness.run_steps(4);
    let next = rig.harness.output().viewport_output.values().map(|viewport| viewport.repaint_delay).min();
    assert!(next.is_some_and(|delay| delay > std::time::Duration::from_secs(60)), "{next:?}");
}

#[test]
fn a_small_window_still_has_everything_in_reach() {
    let size = egui::vec2(560.0, 400.0);
    let mut rig = Rig::with(size, egui::Theme::Light, Some(r#"{"sidebar": false}"#), birds);
    rig.must_see("Ready");
    rig.write("Hi");
    let screen = egui::Rect::from_min_size(egui::Pos2::ZERO, size);
    for name in ["Send", "+ Document", "Unload"] {
        let rect = rig.button(name).rect();
        assert!(screen.contains_rect(rect), "{name} at {rect:?}");
    }
}
