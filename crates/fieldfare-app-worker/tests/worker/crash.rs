//! The second process is killed, the first is killed, the window closes: nothing is lost, nothing hangs, nothing stays.

use crate::support::{
    ENDLESS, Home, PATIENCE, demo, endless, greedy, kill, model, processes_with, settings, until,
};
use fieldfare_app_worker::message::{Command, EngineSettings, Event, MessageId, Progress, Service};
use fieldfare_app_worker::{Paths, Start, Worker};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

const KILLS: u64 = 50;

#[test]
fn fifty_kills_while_it_writes_lose_nothing_and_the_next_answer_works() {
    let home = Home::new();
    let mut rig = home.loaded_for_long();
    let id = rig.create("");
    let mut pieces: HashMap<MessageId, (String, String)> = HashMap::new();
    let mut told = Vec::new();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let (mut restarted, mut stayed_down) = (0, 0);
    for number in 0..KILLS {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Sometimes while the prompt is read, mostly somewhere in the answer.
        let after = (state >> 33) % 40;
        // A branch of its own each time, so that the context is not full before the end.
        let text = ENDLESS.to_owned();
        rig.tell(Command::Ask {
            conversation: id,
            parent: None,
            text,
            documents: Vec::new(),
            sampling: endless(),
        });
        let (question, answer) = (rig.saved(), rig.saved());
        assert_eq!((answer.parent, answer.progress), (Some(question.id), Progress::Writing));
        let mut seen = 0;
        while seen < after {
            let (text, thought) = rig.wait("piece", |event| match event {
                Event::Piece { answer: of, text, thought } if *of == answer.id => {
                    Some((text.clone(), thought.clone()))
                }
                Event::Finished(_, message) => panic!("it ended too early: {message:?}"),
                _ => None,
            });
            let known = pieces.entry(answer.id).or_default();
            known.0.push_str(&text);
            known.1.push_str(&thought);
            seen += 1;
        }
        home.kill_child();
        let mut restarting = None;
        let finished = rig.wait("notice and end", |event| {
            match event {
                Event::Piece { answer: of, text, thought } if *of == answer.id => {
                    let known = pieces.entry(answer.id).or_default();
                    known.0.push_str(text);
                    known.1.push_str(thought);
                }
                Event::Service(Service::Crashed { trouble, restarting: again }) => {
                    assert!(
                        trouble.message.contains("killed") && trouble.message.contains("memory"),
                        "{trouble:?}"
                    );
                    assert!(!trouble.remedy.is_empty());
                    restarting = Some(*again);
                }
                Event::Finished(_, message) => return Some(message.clone()),
                _ => {}
            }
            None
        });
        assert!(
            matches!(&finished.progress, Progress::Interrupted(reason) if reason.contains("memory ran out")),
            "{number}: {finished:?}"
        );
        let (text, thought) = pieces.remove(&answer.id).unwrap_or_default();
        assert_eq!(
            (&finished.text, &finished.thought),
            (&text, &thought),
            "{number}: all that was shown is kept"
        );
        told.push((question, finished));
        match restarting.expect("the crash is told before the end of the answer") {
            true => restarted += 1,
            false => {
                stayed_down += 1;
                let settings = EngineSettings { context: Some(4096), ..settings() };
                rig.tell(Command::Load { model: model(&demo()), settings });
            }
        }
        rig.ready();
    }
    println!("{KILLS} kills: {restarted} times started again by itself, {stayed_down} times by hand");
    assert!(restarted >= 3 && restarted + stayed_down == KILLS);
    let (_, _) = rig.ask(id, "What is 3 + 4?", greedy());
    let last = rig.finished();
    assert_eq!(last.progress, Progress::Done, "{last:?}");
    assert!(!last.text.is_empty() && last.run.unwrap().tokens > 0);
    rig.close();
    // What is on the disk is what was told.
    let mut rig = home.open();
    let kept = rig.open_conversation(id).messages;
    assert_eq!(kept.len(), 2 * told.len() + 2);
    for (question, answer) in &told {
        for message in [question, answer] {
            assert_eq!(kept.iter().find(|kept| kept.id == message.id), Some(message));
        }
    }
    rig.close();
    assert!(home.children().is_empty());
}

#[test]
fn closing_while_an_answer_is_written_keeps_it_and_ends_the_second_process() {
    let home = Home::new();
    let mut rig = home.loaded_for_long();
    let id = rig.create("");
    let (_, answer) = rig.ask(id, ENDLESS, endless());
    let mut shown = String::new();
    for _ in 0..5 {
        shown += &rig.wait("piece", |event| match event {
            Event::Piece { text, .. } => Some(text.clone()),
            _ => None,
        });
    }
    let start = Instant::now();
    rig.tell(Command::Close);
    let finished = rig.finished();
    rig.wait("farewell", |event| matches!(event, Event::Closed).then_some(()));
    println!("closed in {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
    assert!(home.children().is_empty(), "its memory is free");
    let mut rig = home.open();
    let kept = rig.open_conversation(id).messages.pop().unwrap();
    assert_eq!(kept, finished);
    assert!(kept.id == answer.id && kept.text.starts_with(&shown), "{kept:?}");
    assert!(matches!(&kept.progress, Progress::Interrupted(reason) if reason.contains("closed")), "{kept:?}");
    rig.close();
}

#[test]
fn a_window_that_vanishes_without_a_word_ends_everything() {
    let home = Home::new();
    let rig = home.loaded();
    assert_eq!(home.children().len(), 1);
    drop(rig);
    until("the second process is gone", PATIENCE, || home.children().is_empty());
}

/// The other half of the next test: a program that loads a model and waits to be killed.
#[test]
fn a_program_to_be_killed() {
    let Ok(data) = std::env::var("FIELDFARE_TEST_VICTIM") else { return };
    let marker = std::env::var("FIELDFARE_TEST_MARKER").unwrap();
    let data = Path::new(&data);
    let mut start = Start::of_system();
    start.child = vec![env!("CARGO_BIN_EXE_fieldfare-decode-service").into(), marker.into()];
    start.locks = Some(data.join("locks"));
    let paths = Paths { data: data.join("app"), models: Vec::new() };
    let (commands, events) = Worker::start(paths, start, || {}).unwrap();
    let path = std::env::var("FIELDFARE_TEST_MODEL").unwrap();
    let path = PathBuf::from(path);
    commands.send(Command::Load { model: model(&path), settings: settings() }).unwrap();
    // What a window's process does beside drawing: a plan, samples, a library.
    commands.send(Command::AskPlan { model: path, settings: settings() }).unwrap();
    let (mut planned, mut ready, mut told) = (false, false, false);
    for event in events {
        planned |= matches!(event, Event::Planned(_, Ok(_)));
        ready |= matches!(event, Event::Service(Service::Ready { .. }));
        // Once: nobody reads on.
        if planned && ready && !told && matches!(event, Event::Sample(_)) {
            told = true;
            let memory = fieldfare::sys::memory::process();
            println!("ready: {:?} bytes resident, {:?} of them its own", memory.rss, memory.rss_anon);
        }
    }
}

#[test]
fn when_the_first_process_is_killed_the_second_goes_too() {
    let home = Home::new();
    let mut victim = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::a_program_to_be_killed", "--nocapture"])
        .env("FIELDFARE_TEST_VICTIM", home.folder.path())
        .env("FIELDFARE_TEST_MARKER", home.marker())
        .env("FIELDFARE_TEST_MODEL", demo())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let said = lines.map_while(Result::ok).find(|line| line.contains("ready: ")).expect("it loads the model");
    println!("the first process, without a window: {said}");
    assert_eq!(processes_with(home.marker()).len(), 1);
    let start = Instant::now();
    kill(victim.id());
    until("the child is gone", PATIENCE, || processes_with(home.marker()).is_empty());
    println!("the child was gone {:.0} ms after its parent was killed", start.elapsed().as_secs_f64() * 1e3);
    victim.wait().unwrap();
}
