//! The rules of the window, one by one, without a window.

use super::*;
use fieldfare_app_worker::message::{
    Conversation, ConversationId, Document, EngineSettings, Job, Message, MessageId, Model, Offer, Plan,
    Progress, Role, Summary,
};
use std::path::PathBuf;

fn model(name: &str) -> Model {
    Model { path: PathBuf::from(name), name: name.to_owned(), bytes: 14_000_000_000, is_demo: name == "demo" }
}

fn plan(settings: EngineSettings) -> Plan {
    Plan {
        memory_bytes: settings.memory_bytes.unwrap_or(6_000_000_000),
        settings,
        core_bytes: 1_350_000_000,
        kv_bytes: 200_000_000,
        slot_bytes: 2_000_000_000,
        other_bytes: 100_000_000,
        slots_per_layer: 20,
        experts_per_layer: 128,
        context: 4_096,
        hit_rate: 0.6,
        tokens_per_second: Some(4.3),
    }
}

fn message(id: i64, parent: Option<i64>, role: Role, text: &str, progress: Progress) -> Message {
    Message { progress, written_at: 100, ..Message::new(MessageId(id), parent.map(MessageId), role, text) }
}

fn summary(id: i64, title: &str, changed_at: i64) -> Summary {
    Summary { id: ConversationId(id), title: title.to_owned(), changed_at, found: String::new() }
}

fn conversation(id: i64) -> Conversation {
    Conversation {
        summary: summary(id, "Birds", 100),
        system: String::new(),
        messages: vec![
            message(1, None, Role::User, "What is a fieldfare?", Progress::Done),
            message(2, Some(1), Role::Assistant, "A thrush.", Progress::Done),
        ],
        leaf: Some(MessageId(2)),
    }
}

/// A window with a loaded model and an open conversation.
fn ready() -> State {
    let mut state = State::default();
    event(&mut state, Event::Settings(None));
    event(&mut state, Event::Models(vec![model("gemma")]));
    let settings = state.settings.engine();
    event(&mut state, Event::Service(Service::Ready { model: model("gemma"), plan: plan(settings) }));
    event(&mut state, Event::Opened(conversation(7)));
    state
}

fn sent(effects: &[Effect]) -> Vec<&Command> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Send(command) => Some(command),
            _ => None,
        })
        .collect()
}

#[test]
fn the_first_start_offers_the_download_and_a_later_one_loads_the_last_model() {
    let mut state = State::default();
    assert!(matches!(sent(&event(&mut state, Event::Settings(None)))[..], [Command::FindModels { .. }]));
    let effects = event(&mut state, Event::Models(Vec::new()));
    assert_eq!(state.page, Page::Models);
    assert!(matches!(sent(&effects)[..], [Command::AskOffer { .. }]));

    let mut state = State::default();
    event(&mut state, Event::Settings(Some(r#"{"model": "second"}"#.to_owned())));
    let effects = event(&mut state, Event::Models(vec![model("first"), model("second")]));
    assert!(matches!(sent(&effects)[..], [Command::Load { model, .. }] if model.name == "second"));
    assert_eq!(state.page, Page::Chat);
}

#[test]
fn loading_at_the_start_can_be_switched_off() {
    let mut state = State::default();
    event(&mut state, Event::Settings(Some(r#"{"load_at_start": false}"#.to_owned())));
    let effects = event(&mut state, Event::Models(vec![model("first")]));
    assert!(!sent(&effects).iter().any(|command| matches!(command, Command::Load { .. })));
}

#[test]
fn a_model_that_was_installed_on_request_is_loaded_by_itself() {
    let mut state = State::default();
    event(&mut state, Event::Settings(None));
    event(&mut state, Event::Models(Vec::new()));
    action(&mut state, Action::InstallDemo);
    assert_eq!(state.busy_job(), Some(Job::Demo));
    let effects = event(&mut state, Event::JobDone(Job::Demo, "Unpacked.".to_owned()));
    assert!(matches!(sent(&effects)[..], [Command::FindModels { .. }]));
    let effects = event(&mut state, Event::Models(vec![model("demo")]));
    assert!(matches!(sent(&effects)[..], [Command::Load { model, .. }] if model.is_demo));
    assert_eq!(state.page, Page::Chat);
}

#[test]
fn a_download_waits_for_an_offer_without_an_obstacle() {
    let mut state = State::default();
    event(&mut state, Event::Models(Vec::new()));
    assert!(action(&mut state, Action::Install).is_empty());
    let offer = Offer {
        name: "Gemma".to_owned(),
        target: PathBuf::from("/models/gemma.gturbo"),
        fetch_bytes: 14,
        kept_bytes: 0,
        need_bytes: 15,
        free_bytes: 3,
        obstacle: Some("Too little space.".to_owned()),
    };
    event(&mut state, Event::Offer(offer.clone()));
    assert_eq!(state.models.folder, "/models");
    assert!(action(&mut state, Action::Install).is_empty());
    event(&mut state, Event::Offer(Offer { obstacle: None, ..offer }));
    let effects = action(&mut state, Action::Install);
    assert!(matches!(sent(&effects)[..], [Command::Install { target }] if target.ends_with("gemma.gturbo")));
    assert!(matches!(
        sent(&action(&mut state, Action::StopJob(Job::Install)))[..],
        [Command::StopJob(Job::Install)]
    ));
    event(&mut state, Event::JobStopped(Job::Install, "Paused.".to_owned()));
    assert_eq!(state.busy_job(), None);
}

#[test]
fn a_question_follows_the_shown_path_and_leaves_the_composer() {
    let mut state = ready();
    state.composer.text = "  And where does it live? ".to_owned();
    let effects = action(&mut state, Action::Send);
    match sent(&effects)[..] {
        [Command::Ask { conversation, parent, text, .. }] => {
            assert_eq!((*conversation, *parent), (ConversationId(7), Some(MessageId(2))));
            assert_eq!(text, "And where does it live?");
        }
        ref other => panic!("{other:?}"),
    }
    assert_eq!(state.composer.text, "");
    assert!(state.why_not_send().is_some());
    let question = message(3, Some(2), Role::User, "And where does it live?", Progress::Done);
    event(&mut state, Event::Saved(ConversationId(7), question));
    assert_eq!(state.sending, None);
    event(
        &mut state,
        Event::Saved(ConversationId(7), message(4, Some(3), Role::Assistant, "", Progress::Writing)),
    );
    assert_eq!(state.open.as_ref().map(|open| open.path.clone()), Some(vec![0, 1, 2, 3]));
    event(&mut state, Event::Prefill { answer: MessageId(4), done: 128, total: 514 });
    assert_eq!(state.answer.as_ref().and_then(|answer| answer.prefill), Some((128, 514)));
    event(&mut state, Event::Piece { answer: MessageId(4), text: "In ".to_owned(), thought: String::new() });
    event(
        &mut state,
        Event::Piece { answer: MessageId(4), text: "trees.".to_owned(), thought: String::new() },
    );
    assert_eq!(
        state.open.as_ref().and_then(|open| open.shown().last()).map(|last| last.text.as_str()),
        Some("In trees.")
    );
    event(
        &mut state,
        Event::Finished(ConversationId(7), message(4, Some(3), Role::Assistant, "In trees.", Progress::Done)),
    );
    assert_eq!(state.answer, None);
}

#[test]
fn the_first_question_makes_its_conversation() {
    let mut state = ready();
    action(&mut state, Action::NewChat);
    action(&mut state, Action::SetSystem("Be brief.".to_owned()));
    state.composer.text = "Hello".to_owned();
    let effects = action(&mut state, Action::Send);
    assert_eq!(sent(&effects), [&Command::Create { system: "Be brief.".to_owned() }]);
    let empty = Conversation { messages: Vec::new(), leaf: None, ..conversation(8) };
    let effects = event(&mut state, Event::Opened(empty));
    assert!(
        matches!(sent(&effects)[..], [Command::Ask { conversation: ConversationId(8), parent: None, text, .. }] if text == "Hello")
    );
    assert_eq!(state.library.list.first().map(|summary| summary.id), Some(ConversationId(8)));
}

#[test]
fn a_question_that_could_not_be_saved_comes_back() {
    let mut state = ready();
    state.composer.text = "Long thought out".to_owned();
    let document = Document { name: "a.txt".to_owned(), text: "x".to_owned(), tokens: Some(1) };
    state.composer.documents.push(document);
    action(&mut state, Action::Send);
    state.composer.text = "next".to_owned();
    let trouble = Trouble { message: "The disk is full.".to_owned(), remedy: "Free some space.".to_owned() };
    event(&mut state, Event::Trouble(trouble.clone()));
    assert_eq!(state.composer.text, "Long thought out\n\nnext");
    assert_eq!(state.composer.documents.len(), 1);
    assert_eq!(state.notices.last().map(|notice| notice.remedy.as_str()), Some("Free some space."));
    event(&mut state, Event::Trouble(trouble));
    assert_eq!(state.notices.len(), 1, "the same trouble is one banner");
}

#[test]
fn an_edit_is_another_version_and_what_was_written_comes_back_after_it() {
    let mut state = ready();
    state.composer.text = "half a question".to_owned();
    action(&mut state, Action::Edit(MessageId(1)));
    assert_eq!(state.composer.text, "What is a fieldfare?");
    action(&mut state, Action::CancelEdit);
    assert_eq!(state.composer.text, "half a question");
    action(&mut state, Action::Edit(MessageId(1)));
    state.composer.text = "What is a wren?".to_owned();
    let effects = action(&mut state, Action::Send);
    assert!(matches!(sent(&effects)[..], [Command::Ask { parent: None, .. }]), "{effects:?}");
    assert_eq!(state.composer.text, "half a question");
    assert_eq!(state.composer.editing, None);
}

#[test]
fn versions_can_be_gone_through() {
    let mut state = ready();
    let effects = action(&mut state, Action::Regenerate(MessageId(2)));
    assert!(matches!(sent(&effects)[..], [Command::Regenerate { question: MessageId(1), .. }]));
    event(
        &mut state,
        Event::Saved(ConversationId(7), message(9, Some(1), Role::Assistant, "", Progress::Writing)),
    );
    event(
        &mut state,
        Event::Finished(ConversationId(7), message(9, Some(1), Role::Assistant, "A bird.", Progress::Done)),
    );
    let last =
        |state: &State| state.open.as_ref().and_then(|open| open.shown().last()).map(|message| message.id);
    assert_eq!(last(&state), Some(MessageId(9)));
    let effects = action(&mut state, Action::Version(MessageId(2)));
    assert_eq!(sent(&effects), [&Command::SetLeaf(ConversationId(7), MessageId(2))]);
    assert_eq!(last(&state), Some(MessageId(2)));
}

#[test]
fn an_answer_goes_on_while_another_conversation_is_shown() {
    let mut state = ready();
    event(
        &mut state,
        Event::Saved(ConversationId(7), message(9, Some(1), Role::Assistant, "", Progress::Writing)),
    );
    event(&mut state, Event::Opened(conversation(8)));
    assert!(state.answer_here().is_none());
    assert!(state.why_not_send().is_some(), "one answer at a time");
    event(&mut state, Event::Piece { answer: MessageId(9), text: "New.".to_owned(), thought: String::new() });
    let mut old = conversation(7);
    old.messages.push(message(9, Some(1), Role::Assistant, "", Progress::Writing));
    old.leaf = Some(MessageId(9));
    event(&mut state, Event::Opened(old));
    assert_eq!(
        state.open.as_ref().and_then(|open| open.shown().last()).map(|last| last.text.as_str()),
        Some("New.")
    );
}

#[test]
fn stop_is_said_once() {
    let mut state = ready();
    assert!(action(&mut state, Action::Stop).is_empty());
    event(
        &mut state,
        Event::Saved(ConversationId(7), message(9, Some(1), Role::Assistant, "", Progress::Writing)),
    );
    assert_eq!(sent(&action(&mut state, Action::Stop)), [&Command::StopAnswer]);
    assert!(action(&mut state, Action::Stop).is_empty());
}

#[test]
fn a_crash_is_said_with_its_reason_and_goes_when_the_engine_is_back() {
    let mut state = ready();
    let trouble = Trouble {
        message: "killed: the system ran out of memory".to_owned(),
        remedy: "Lower the budget.".to_owned(),
    };
    event(&mut state, Event::Service(Service::Crashed { trouble, restarting: true }));
    let notice = state.notices.last().expect("a banner");
    assert!(notice.message.contains("out of memory") && notice.remedy.contains("safe"));
    assert!(state.open.is_some(), "the conversation stays");
    assert!(state.why_not_send().is_some());
    let settings = state.settings.engine();
    event(&mut state, Event::Service(Service::Ready { model: model("gemma"), plan: plan(settings) }));
    assert_eq!(state.notices.len(), 1, "a quick start does not hide what happened");
    state.now += 11.0;
    tick(&mut state);
    assert!(state.notices.is_empty());
    let trouble = Trouble { message: "no such folder".to_owned(), remedy: String::new() };
    event(&mut state, Event::Service(Service::Failed(trouble)));
    assert!(state.notices.last().is_some_and(|notice| notice.button.is_some()));
}

#[test]
fn a_deleted_conversation_can_be_brought_back_for_a_while() {
    let mut state = ready();
    assert_eq!(
        sent(&action(&mut state, Action::Delete(ConversationId(7)))),
        [&Command::Delete(ConversationId(7))]
    );
    event(&mut state, Event::Deleted(ConversationId(7)));
    assert!(state.open.is_none() && state.library.list.is_empty());
    assert_eq!(state.notices.len(), 1);
    assert!(next_tick(&state).is_some_and(|seconds| seconds <= REST_SECONDS), "settings are to be kept soon");
    state.now = 60.0;
    tick(&mut state);
    assert!(state.notices.is_empty());
}

#[test]
fn the_slider_asks_for_the_end_of_the_scale_first_and_then_for_the_draft() {
    let mut state = State::default();
    event(
        &mut state,
        Event::Settings(Some(r#"{"load_at_start": false, "memory_bytes": 2000000000}"#.to_owned())),
    );
    let effects = event(&mut state, Event::Models(vec![model("gemma")]));
    let Some(Command::AskPlan { settings: first, .. }) = sent(&effects).first().copied().cloned() else {
        panic!("{effects:?}")
    };
    assert_eq!(first.memory_bytes, None);
    let effects = event(&mut state, Event::Planned(first.clone(), Ok(plan(first))));
    let Some(Command::AskPlan { settings: second, .. }) = sent(&effects).first().copied().cloned() else {
        panic!("{effects:?}")
    };
    assert_eq!(second.memory_bytes, Some(2_000_000_000));
    assert!(event(&mut state, Event::Planned(second.clone(), Ok(plan(second.clone())))).is_empty());
    let moved = EngineSettings { memory_bytes: Some(3_000_000_000), ..second };
    let effects = action(&mut state, Action::Replan(moved.clone()));
    assert!(matches!(sent(&effects)[..], [Command::AskPlan { settings, .. }] if *settings == moved));
    assert_eq!(state.settings.memory_bytes, Some(2_000_000_000), "nothing is applied by moving");
    assert!(sent(&action(&mut state, Action::ApplyPlan)).is_empty(), "no engine runs, so none starts again");
    assert_eq!(state.settings.memory_bytes, Some(3_000_000_000));
}

#[test]
fn applying_a_plan_starts_a_running_engine_again() {
    let mut state = ready();
    let draft = EngineSettings { memory_bytes: Some(3_000_000_000), ..state.settings.engine() };
    action(&mut state, Action::Replan(draft.clone()));
    let effects = action(&mut state, Action::ApplyPlan);
    assert!(
        matches!(sent(&effects)[..], [Command::Load { settings, .. }] if *settings == draft),
        "{effects:?}"
    );
}

#[test]
fn a_budget_is_not_carried_to_another_model() {
    let mut state = ready();
    let draft = EngineSettings { memory_bytes: Some(3_000_000_000), ..state.settings.engine() };
    action(&mut state, Action::Replan(draft));
    action(&mut state, Action::ApplyPlan);
    let effects = action(&mut state, Action::Load(model("demo")));
    assert!(matches!(
        sent(&effects)[..],
        [Command::Load { settings: EngineSettings { memory_bytes: None, .. }, .. }]
    ));
}

#[test]
fn settings_are_kept_after_a_rest_and_before_the_end() {
    let mut state = ready();
    state.now = 1.0;
    state.unsaved_since = None;
    state.composer.uncounted_since = None;
    tick(&mut state);
    action(&mut state, Action::Zoom(1));
    assert_eq!(state.settings.zoom_percent, 110);
    assert!(sent(&tick(&mut state)).is_empty());
    state.now = 2.0;
    assert!(matches!(sent(&tick(&mut state))[..], [Command::SaveSettings(text)] if text.contains("110")));
    action(&mut state, Action::Zoom(-3));
    let effects = action(&mut state, Action::Close);
    assert!(matches!(sent(&effects)[..], [Command::SaveSettings(_), Command::Close]));
    assert_eq!(event(&mut state, Event::Closed), [Effect::Exit]);
    assert_eq!(action(&mut state, Action::Close), [Effect::Exit], "asked twice, it does not wait");
}

#[test]
fn text_is_counted_after_a_rest() {
    let mut state = ready();
    tick(&mut state);
    state.now = 5.0;
    state.composer.text = "How many?".to_owned();
    action(&mut state, Action::Typed);
    let counts = |effects: &[Effect]| {
        sent(effects).iter().any(|command| matches!(command, Command::Count { text } if text == "How many?"))
    };
    assert!(!counts(&tick(&mut state)));
    state.now = 6.0;
    assert!(counts(&tick(&mut state)));
    event(&mut state, Event::Counted { text: "How many?".to_owned(), tokens: 5_000 });
    assert_eq!(state.written_tokens(), Some(5_000));
    assert!(state.why_not_send().is_some_and(|reason| reason.contains("context")));
}

#[test]
fn a_search_shows_only_its_own_answer() {
    let mut state = ready();
    state.library.search = "new".to_owned();
    action(&mut state, Action::SearchChanged);
    event(&mut state, Event::Listed { search: "old".to_owned(), conversations: vec![summary(1, "Old", 1)] });
    assert!(state.library.list.iter().all(|summary| summary.title != "Old"));
    event(&mut state, Event::Listed { search: "new".to_owned(), conversations: vec![summary(2, "New", 1)] });
    event(&mut state, Event::Changed(summary(3, "Other", 5)));
    assert_eq!(state.library.list.len(), 1, "what was not found is not put into what was");
}

#[test]
fn the_list_is_sorted_by_the_last_change() {
    let mut state = State::default();
    let list = vec![summary(1, "a", 30), summary(2, "b", 20), summary(3, "c", 10)];
    event(&mut state, Event::Listed { search: String::new(), conversations: list });
    event(&mut state, Event::Changed(summary(3, "c", 40)));
    let ids: Vec<i64> = state.library.list.iter().map(|summary| summary.id.0).collect();
    assert_eq!(ids, [3, 1, 2]);
}

#[test]
fn the_benchmark_wants_sizes() {
    let mut state = ready();
    state.bench.budgets = "2GiB, much".to_owned();
    assert!(why_no_bench(&state).is_some_and(|reason| reason.contains("much")));
    assert!(action(&mut state, Action::BenchRun).is_empty());
    state.bench.budgets = "3 GB; 2GiB, 2GiB".to_owned();
    let effects = action(&mut state, Action::BenchRun);
    assert!(
        matches!(sent(&effects)[..], [Command::Bench { memory_bytes, .. }] if memory_bytes[..] == [2 << 30, 3_000_000_000])
    );
    assert!(state.why_not_send().is_some(), "the engine is busy");
    event(&mut state, Event::BenchDone(Ok(())));
    assert!(!state.bench.running);
}

#[test]
fn names_of_files_are_harmless() {
    assert_eq!(file_name("../../etc: \"x\"?"), "etc x");
    assert_eq!(file_name("///"), "conversation");
    assert_eq!(file_name("日本語"), "日本語");
}

#[test]
fn samples_are_bounded_and_keep_one_map() {
    let mut state = ready();
    for at_ms in 0..3_000u64 {
        let experts = vec![vec![fieldfare_app_worker::message::ExpertCell::default(); 128]; 30];
        event(&mut state, Event::Sample(Sample { at_ms, experts, ..Sample::default() }));
    }
    assert_eq!(state.seen.samples.len(), SAMPLES);
    assert!(state.seen.samples.iter().all(|sample| sample.experts.is_empty()));
    assert_eq!(state.seen.newest.as_ref().map(|sample| sample.experts.len()), Some(30));
}

#[test]
fn figures_are_asked_for_while_they_move_or_are_looked_at() {
    let mut state = ready();
    let watch = |state: &mut State| {
        sent(&tick(state)).iter().find_map(|command| match command {
            Command::Watch(watch) => Some(*watch),
            _ => None,
        })
    };
    assert_eq!(watch(&mut state), None, "one is wanted to begin with");
    event(&mut state, Event::Sample(Sample::default()));
    assert_eq!(watch(&mut state), Some(false), "an idle window draws nothing");
    event(
        &mut state,
        Event::Saved(ConversationId(7), message(9, Some(1), Role::Assistant, "", Progress::Writing)),
    );
    assert_eq!(watch(&mut state), Some(true));
    action(&mut state, Action::Visible(false));
    assert_eq!(watch(&mut state), Some(false));
    action(&mut state, Action::Visible(true));
    event(
        &mut state,
        Event::Finished(ConversationId(7), message(9, Some(1), Role::Assistant, "x", Progress::Done)),
    );
    assert_eq!(watch(&mut state), None);
    action(&mut state, Action::Go(Page::Inspector));
    assert_eq!(watch(&mut state), Some(true));
}
