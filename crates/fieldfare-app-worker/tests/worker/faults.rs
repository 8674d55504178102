//! A full disk, a model folder that goes or changes, a second program, wrong commands.

use crate::support::{ENDLESS, Home, copy, demo, endless, greedy, model, settings};
use fieldfare_app_worker::Worker;
use fieldfare_app_worker::message::{
    Command, ConversationId, EngineSettings, Event, Job, MessageId, Progress, Service,
};
use std::sync::atomic::Ordering;

#[test]
fn on_a_full_disk_the_answer_goes_on_and_is_saved_when_there_is_room() {
    let home = Home::new();
    let mut rig = home.open();
    rig.tell(Command::Load {
        model: model(&demo()),
        settings: EngineSettings { context: Some(4096), ..settings() },
    });
    rig.ready();
    let id = rig.create("");
    // From here on the library has no room for another page.
    home.start.library_pages.store(1, Ordering::Relaxed);
    let (_, answer) = rig.ask(id, &"word ".repeat(2000), greedy());
    let said = rig.wait("trouble", |event| match event {
        Event::Trouble(trouble) => Some(trouble.clone()),
        Event::Finished(_, message) => panic!("{message:?}"),
        _ => None,
    });
    assert!(said.message.contains("the disk is full"), "{said:?}");
    let finished = rig.finished();
    assert_eq!(finished.id, answer.id);
    assert!(!finished.text.is_empty() && finished.progress == Progress::Done, "{finished:?}");
    assert_eq!(rig.open_conversation(id).messages.last(), Some(&finished));
    assert_eq!(rig.troubles(), 1, "one clear word");
    home.start.library_pages.store(0, Ordering::Relaxed);
    rig.close();
    let mut rig = home.open();
    assert_eq!(rig.open_conversation(id).messages.last(), Some(&finished));
    rig.close();
}

#[test]
fn a_model_folder_that_goes_or_changes_is_told_and_the_app_goes_on() {
    let home = Home::new();
    let path = home.folder.path().join("models/mine.gturbo");
    copy(&demo(), &path);
    let mut rig = home.open();
    rig.load(&path);
    let id = rig.create("");
    // The folder goes while the model runs: what is open stays open.
    let away = home.folder.path().join("away");
    std::fs::rename(&path, &away).unwrap();
    rig.ask(id, "What is 3 + 4?", greedy());
    assert_eq!(rig.finished().progress, Progress::Done);
    rig.tell(Command::Load { model: model(&path), settings: settings() });
    let failed = |rig: &mut crate::support::Rig| {
        rig.wait("refusal", |event| match event {
            Event::Service(Service::Failed(trouble)) => Some(trouble.clone()),
            Event::Service(Service::Ready { .. }) => panic!("it cannot be ready"),
            _ => None,
        })
    };
    let said = failed(&mut rig);
    assert!(said.message.contains("mine.gturbo") && !said.remedy.is_empty(), "{said:?}");
    // Nothing answers now, and that is said at the question.
    rig.ask(id, "And 4 + 5?", greedy());
    let unanswered = rig.finished();
    assert!(
        matches!(&unanswered.progress, Progress::Interrupted(reason) if reason.contains("no model")),
        "{unanswered:?}"
    );
    rig.tell(Command::AskPlan { model: path.clone(), settings: settings() });
    let planned = rig.wait("plan", |event| match event {
        Event::Planned(_, plan) => Some(plan.clone()),
        _ => None,
    });
    assert!(planned.unwrap_err().message.contains("mine.gturbo"));
    // It comes back with a file cut short.
    std::fs::rename(&away, &path).unwrap();
    let layer = path.join("packed_experts/layer_00.bin");
    let file = std::fs::File::options().write(true).open(&layer).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    rig.tell(Command::Load { model: model(&path), settings: settings() });
    let said = failed(&mut rig);
    assert!(said.message.contains("layer_00"), "{said:?}");
    assert!(said.remedy.contains("Verify"), "{said:?}");
    // A good one works at once.
    rig.load(&demo());
    rig.tell(Command::Regenerate {
        conversation: id,
        question: unanswered.parent.unwrap(),
        sampling: greedy(),
    });
    let another = rig.finished();
    assert_eq!((another.parent, another.progress), (unanswered.parent, Progress::Done));
    rig.close();
}

#[test]
fn files_that_are_cut_short_under_a_running_model_end_in_words_not_in_silence() {
    let home = Home::new();
    let path = home.folder.path().join("models/mine.gturbo");
    copy(&demo(), &path);
    let mut rig = home.open();
    // One slot a layer: experts are read again and again.
    let tight = EngineSettings { slots: Some(1), ..settings() };
    rig.tell(Command::Load { model: model(&path), settings: tight });
    rig.ready();
    for entry in std::fs::read_dir(path.join("packed_experts")).unwrap() {
        let layer = entry.unwrap().path();
        if layer.extension().is_some_and(|end| end == "bin") {
            std::fs::File::options().write(true).open(layer).unwrap().set_len(0).unwrap();
        }
    }
    let id = rig.create("");
    rig.ask(id, "Tell me a story.", greedy());
    let finished = rig.finished();
    let Progress::Interrupted(reason) = &finished.progress else { panic!("{finished:?}") };
    assert!(reason.contains("layer_"), "{reason}");
    // Whatever became of the process, another model can be loaded and answers.
    rig.load(&demo());
    rig.ask(id, "What is 3 + 4?", greedy());
    assert_eq!(rig.finished().progress, Progress::Done);
    rig.close();
}

#[test]
fn a_second_start_is_refused_and_the_first_hears_of_it() {
    let home = Home::new();
    let mut rig = home.open();
    let said = Worker::start(home.paths(), home.start.clone(), || {}).unwrap_err();
    assert!(said.message.contains("running already"), "{said:?}");
    rig.wait("raise", |event| matches!(event, Event::Raise).then_some(()));
    rig.close();
    home.open().close();
}

#[test]
fn commands_about_nothing_are_answered_in_words() {
    let home = Home::new();
    let mut rig = home.loaded_for_long();
    let nothing = ConversationId(999);
    let id = rig.create("");
    for command in [
        Command::Open(nothing),
        Command::Ask {
            conversation: nothing,
            parent: None,
            text: "x".into(),
            documents: Vec::new(),
            sampling: greedy(),
        },
        Command::Ask {
            conversation: id,
            parent: Some(MessageId(999)),
            text: "x".into(),
            documents: Vec::new(),
            sampling: greedy(),
        },
        Command::Ask {
            conversation: id,
            parent: None,
            text: "  ".into(),
            documents: Vec::new(),
            sampling: greedy(),
        },
        Command::Regenerate { conversation: id, question: MessageId(999), sampling: greedy() },
        Command::Export { conversation: nothing, to: home.folder.path().join("x.md") },
        Command::Export { conversation: id, to: home.folder.path().join("none/x.md") },
    ] {
        let shown = format!("{command:?}");
        rig.tell(command);
        let said = rig.wait(&shown, |event| match event {
            Event::Trouble(trouble) => Some(trouble.message.clone()),
            _ => None,
        });
        assert!(!said.is_empty(), "{shown}");
    }
    // Nothing runs that could be stopped; nothing happens.
    rig.tell(Command::StopAnswer);
    rig.tell(Command::StopBench);
    rig.tell(Command::StopJob(Job::Install));
    // One answer at a time.
    rig.ask(id, ENDLESS, endless());
    rig.tell(Command::Ask {
        conversation: id,
        parent: None,
        text: "x".into(),
        documents: Vec::new(),
        sampling: greedy(),
    });
    let said = rig.wait("refusal", |event| match event {
        Event::Trouble(trouble) => Some(trouble.message.clone()),
        _ => None,
    });
    assert!(said.contains("nother answer"), "{said}");
    rig.close();
}
