//! An ordinary day: a model, a conversation, its branches, documents, figures.

use crate::support::{ENDLESS, Home, demo, endless, greedy, settings};
use fieldfare_app_worker::message::{
    Command, Document, EngineSettings, Event, Progress, Role, Sampling, Service,
};

#[test]
fn a_conversation_from_its_first_question_to_its_export() {
    let home = Home::new();
    let mut rig = home.loaded();
    let id = rig.create("You are brief.");
    let (question, answer) = rig.ask(id, "What is the capital of France?", greedy());
    assert_eq!((question.role, question.parent, answer.role), (Role::User, None, Role::Assistant));
    let mut shown = String::new();
    let finished = rig.wait("end", |event| match event {
        Event::Piece { answer: of, text, .. } if *of == answer.id => {
            shown.push_str(text);
            None
        }
        Event::Finished(of, message) if *of == id => Some(message.clone()),
        _ => None,
    });
    assert_eq!((&finished.text, &finished.progress), (&shown, &Progress::Done));
    let run = finished.run.unwrap();
    assert!(run.tokens > 0 && run.prompt_tokens > 5 && run.first_token_seconds > 0.0, "{run:?}");
    assert!(run.decode_per_second > 0.0 && (0.0..=1.0).contains(&run.hit_rate), "{run:?}");
    // Greedy is greedy: another answer to the same question is the same, as a sibling.
    rig.tell(Command::Regenerate { conversation: id, question: question.id, sampling: greedy() });
    let again = rig.finished();
    assert_eq!((again.parent, &again.text), (Some(question.id), &finished.text));
    assert!(again.id != finished.id && again.run.unwrap().cached_tokens > 0, "{again:?}");
    // A limit of tokens is said.
    let short = Sampling { max_tokens: Some(2), ..greedy() };
    let (second, _) = rig.ask(id, "Tell me a story.", short);
    assert_eq!(second.parent, Some(again.id));
    let cut = rig.finished();
    assert!(matches!(&cut.progress, Progress::Cut(reason) if reason.contains("2 tokens")), "{cut:?}");
    // Back to the first answer, and its path alone goes out.
    rig.tell(Command::SetLeaf(id, finished.id));
    rig.tell(Command::Rename(id, " Paris ".into()));
    let path = home.folder.path().join("out.md");
    rig.tell(Command::Export { conversation: id, to: path.clone() });
    rig.wait("export", |event| matches!(event, Event::Exported(_)).then_some(()));
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        text.starts_with("# Paris\n")
            && text.contains("You are brief.")
            && text.contains(finished.text.trim()),
        "{text}"
    );
    assert!(!text.contains("story"), "{text}");
    let opened = rig.open_conversation(id);
    assert_eq!(
        (opened.messages.len(), opened.leaf, opened.summary.title.as_str()),
        (5, Some(finished.id), "Paris")
    );
    // Found, deleted, brought back.
    let listed = |rig: &mut crate::support::Rig, search: &str| {
        rig.tell(Command::List { search: search.into() });
        rig.wait("list", |event| match event {
            Event::Listed { search: of, conversations } if of == search => Some(conversations.len()),
            _ => None,
        })
    };
    assert_eq!((listed(&mut rig, "CAPITAL"), listed(&mut rig, "nowhere")), (1, 0));
    rig.tell(Command::Delete(id));
    rig.wait("deletion", |event| matches!(event, Event::Deleted(_)).then_some(()));
    assert_eq!(listed(&mut rig, ""), 0);
    rig.tell(Command::Restore(id));
    assert_eq!(listed(&mut rig, ""), 1);
    assert_eq!(rig.troubles(), 0);
    rig.close();
}

#[test]
fn stopping_is_quick_keeps_what_is_there_and_the_next_answer_begins() {
    let home = Home::new();
    let mut rig = home.loaded_for_long();
    let id = rig.create("");
    for _ in 0..3 {
        let (_, answer) = rig.ask_first(id, ENDLESS, endless());
        rig.wait("piece", |event| matches!(event, Event::Piece { .. }).then_some(()));
        rig.tell(Command::StopAnswer);
        let stopped = rig.finished();
        assert_eq!(stopped.id, answer.id);
        assert!(
            !stopped.text.is_empty() && stopped.progress == Progress::Cut("stopped".into()),
            "{stopped:?}"
        );
    }
    rig.ask(id, "What is 3 + 4?", greedy());
    assert_eq!(rig.finished().progress, Progress::Done);
    rig.close();
}

#[test]
fn documents_are_read_counted_and_stand_before_the_question() {
    let home = Home::new();
    let mut rig = home.loaded();
    let path = home.folder.path().join("notes.txt");
    std::fs::write(&path, "The bird is blue.\n").unwrap();
    rig.tell(Command::ReadDocument { path });
    let document = rig.wait("document", |event| match event {
        Event::DocumentRead(document) => Some(document.clone().unwrap()),
        _ => None,
    });
    let tokens = document.tokens.unwrap();
    assert!(document.name == "notes.txt" && (4..40).contains(&tokens), "{document:?}");
    rig.tell(Command::Count { text: document.text.clone() });
    let counted = rig.wait("count", |event| match event {
        Event::Counted { tokens, .. } => Some(*tokens),
        _ => None,
    });
    assert_eq!(counted, tokens);
    rig.tell(Command::ReadDocument { path: home.folder.path().join("none") });
    let refused = rig.wait("refusal", |event| match event {
        Event::DocumentRead(document) => Some(document.clone().unwrap_err()),
        _ => None,
    });
    assert!(refused.message.contains("none"), "{refused:?}");
    // With the document the prompt is longer by about its tokens.
    let id = rig.create("");
    let mut prompt = |documents: Vec<Document>| {
        rig.tell(Command::Ask {
            conversation: id,
            parent: None,
            text: "Which colour?".into(),
            documents,
            sampling: greedy(),
        });
        rig.finished().run.unwrap().prompt_tokens
    };
    let (without, with) = (prompt(Vec::new()), prompt(vec![document]));
    assert!(with >= without + tokens, "{without} {with} {tokens}");
    // Longer than the context: said, not cut.
    let long = Document { name: "long".into(), text: "many words ".repeat(2000), tokens: None };
    rig.tell(Command::Ask {
        conversation: id,
        parent: None,
        text: "?".into(),
        documents: vec![long],
        sampling: greedy(),
    });
    let refused = rig.finished();
    assert!(
        matches!(&refused.progress, Progress::Interrupted(reason) if reason.contains("longer than the context")),
        "{refused:?}"
    );
    rig.close();
}

#[test]
fn samples_show_the_moment_and_only_while_they_are_wanted() {
    let home = Home::new();
    let mut rig = home.loaded_for_long();
    let id = rig.create("");
    rig.ask(id, ENDLESS, endless());
    let sample = rig.wait("a busy sample", |event| match event {
        Event::Sample(sample) if sample.tokens_per_second > 0.0 => Some(sample.clone()),
        _ => None,
    });
    assert!(
        sample.memory_bytes > 1 << 20 && sample.budget_bytes > 0,
        "{} {}",
        sample.memory_bytes,
        sample.budget_bytes
    );
    assert_eq!((sample.experts.len(), sample.experts[0].len()), (12, 16));
    let cells = || sample.experts.iter().flatten();
    assert!(cells().any(|cell| cell.resident) && cells().any(|cell| cell.heat == 1.0));
    assert!(cells().all(|cell| (0.0..=1.0).contains(&cell.heat)));
    rig.tell(Command::StopAnswer);
    rig.finished();
    rig.tell(Command::Watch(false));
    rig.open_conversation(id);
    // Those that were under way have passed by; from here on there are none.
    std::thread::sleep(std::time::Duration::from_millis(600));
    rig.tell(Command::List { search: String::new() });
    let mut late = 0;
    rig.wait("list", |event| {
        late += usize::from(matches!(event, Event::Sample(_)));
        matches!(event, Event::Listed { .. }).then_some(())
    });
    assert_eq!(late, 0);
    rig.tell(Command::Watch(true));
    rig.wait("sample", |event| matches!(event, Event::Sample(_)).then_some(()));
    rig.tell(Command::Unload);
    rig.wait("off", |event| matches!(event, Event::Service(Service::Off)).then_some(()));
    assert!(home.children().is_empty());
    rig.close();
}

#[test]
fn a_long_prompt_says_how_far_it_is_read() {
    let home = Home::new();
    let mut rig = home.open();
    // A token at a time, so that there is something to see.
    let slow = EngineSettings { prefill: false, slots: Some(1), context: Some(4096), ..settings() };
    rig.tell(Command::Load { model: crate::support::model(&demo()), settings: slow });
    rig.ready();
    // A minimized window wants no figures, but it is told of the prompt.
    rig.tell(Command::Watch(false));
    let id = rig.create("");
    let text = "The bird sat on the fence and looked at the river. ".repeat(150);
    rig.tell(Command::Ask {
        conversation: id,
        parent: None,
        text,
        documents: Vec::new(),
        sampling: greedy(),
    });
    let answer = {
        rig.saved();
        rig.saved()
    };
    let (done, total) = rig.wait("prefill", |event| match event {
        Event::Prefill { answer: of, done, total } if *of == answer.id => Some((*done, *total)),
        Event::Finished(_, message) => panic!("{message:?}"),
        _ => None,
    });
    assert!(done < total && total > 1000, "{done} of {total}");
    rig.close();
}

#[test]
fn plans_say_where_memory_goes_and_only_the_newest_counts() {
    let home = Home::new();
    let mut rig = home.open();
    let budgets: Vec<u64> = (0..20).map(|step| (300 + step) << 20).collect();
    for &bytes in &budgets {
        let settings = EngineSettings { memory_bytes: Some(bytes), ..settings() };
        rig.tell(Command::AskPlan { model: demo(), settings });
    }
    let last = *budgets.last().unwrap();
    let mut answered = 0;
    let plan = rig.wait("plan", |event| match event {
        Event::Planned(settings, plan) => {
            answered += 1;
            (settings.memory_bytes == Some(last)).then(|| plan.clone().unwrap())
        }
        _ => None,
    });
    assert!(answered <= budgets.len());
    assert_eq!((plan.memory_bytes, plan.context, plan.experts_per_layer), (last, 1024, 16));
    assert!(
        plan.core_bytes > 0 && plan.kv_bytes > 0 && plan.slot_bytes > 0 && plan.other_bytes > 0,
        "{plan:?}"
    );
    assert!(plan.core_bytes + plan.kv_bytes + plan.slot_bytes + plan.other_bytes <= last, "{plan:?}");
    assert_eq!((plan.hit_rate, plan.tokens_per_second), (1.0, None), "nothing was measured");
    rig.tell(Command::AskPlan {
        model: demo(),
        settings: EngineSettings { memory_bytes: Some(1 << 20), ..settings() },
    });
    let refused = rig.wait("refusal", |event| match event {
        Event::Planned(_, plan) => Some(plan.clone().unwrap_err()),
        _ => None,
    });
    assert!(refused.message.contains("MB") && refused.remedy.contains("memory"), "{refused:?}");
    rig.close();
}

#[test]
fn settings_are_there_at_the_next_start() {
    let home = Home::new();
    let mut rig = home.open();
    let kept = |rig: &mut crate::support::Rig| {
        rig.wait("settings", |event| match event {
            Event::Settings(settings) => Some(settings.clone()),
            _ => None,
        })
    };
    assert_eq!(kept(&mut rig), None);
    rig.tell(Command::SaveSettings(r#"{"dark": true}"#.into()));
    rig.close();
    let mut rig = home.open();
    assert_eq!(kept(&mut rig).as_deref(), Some(r#"{"dark": true}"#));
    rig.close();
}
