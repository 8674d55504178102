//! Conversations: what is asked, answered, changed, thrown away and brought back.

use super::{UNDO_SECONDS, error, notice, send, typed};
use crate::state::{Action, Answer, Composer, Effect, Open, Sending, State, Weight};
use crate::{tree, words};
use fieldfare_app_worker::message::{
    Command, Conversation, ConversationId, Document, Message, MessageId, Progress, Role, Summary, Trouble,
};

pub(super) fn opened(state: &mut State, mut conversation: Conversation) -> Vec<Effect> {
    let id = conversation.summary.id;
    // What was already heard of a growing answer is newer than what the library has.
    if let Some(answer) = state.answer.as_ref().filter(|answer| answer.conversation == id)
        && let Some(message) = conversation.messages.iter_mut().find(|message| message.id == answer.id)
    {
        message.text.clone_from(&answer.text);
        message.thought.clone_from(&answer.thought);
    }
    put_in_list(state, conversation.summary.clone());
    state.open = Some(Open::new(conversation));
    match state.sending.as_mut() {
        Some(sending) if sending.conversation.is_none() => {
            sending.conversation = Some(id);
            let sending = sending.clone();
            vec![ask(state, id, &sending)]
        }
        _ => Vec::new(),
    }
}

pub(super) fn ask(state: &State, conversation: ConversationId, sending: &Sending) -> Effect {
    send(Command::Ask {
        conversation,
        parent: sending.parent,
        text: sending.text.clone(),
        documents: sending.documents.clone(),
        sampling: state.settings.sampling(),
    })
}

pub(super) fn put_in_list(state: &mut State, summary: Summary) {
    let list = &mut state.library.list;
    let found = list.iter().find(|other| other.id == summary.id).map(|other| other.found.clone());
    // A new line belongs into the whole list only, not among what a search found.
    if found.is_none() && !state.library.search.is_empty() {
        return;
    }
    list.retain(|other| other.id != summary.id);
    let place = list.partition_point(|other| other.changed_at > summary.changed_at);
    list.insert(place, Summary { found: found.unwrap_or_default(), ..summary });
}

pub(super) fn changed(state: &mut State, summary: Summary) -> Vec<Effect> {
    if let Some(open) = state.open.as_mut().filter(|open| open.conversation.summary.id == summary.id) {
        open.conversation.summary = summary.clone();
    }
    put_in_list(state, summary);
    Vec::new()
}

pub(super) fn title(state: &State, id: ConversationId) -> String {
    let listed = state.library.list.iter().find(|summary| summary.id == id);
    let open = state.open.as_ref().map(|open| &open.conversation.summary).filter(|summary| summary.id == id);
    listed.or(open).map(|summary| summary.title.clone()).unwrap_or_default()
}

/// A name that every file system takes.
pub(super) fn file_name(title: &str) -> String {
    let kept: String = title
        .chars()
        .map(|c| if c.is_alphanumeric() || matches!(c, ' ' | '-' | '_') { c } else { ' ' })
        .take(60)
        .collect();
    let words: Vec<&str> = kept.split_whitespace().collect();
    if words.is_empty() { "conversation".to_owned() } else { words.join(" ") }
}

pub(super) fn delete(state: &mut State, id: ConversationId) -> Vec<Effect> {
    let mut effects = Vec::new();
    if state.answer.as_ref().is_some_and(|answer| answer.conversation == id) {
        effects.extend(stop(state));
    }
    effects.push(send(Command::Delete(id)));
    effects
}

pub(super) fn deleted(state: &mut State, id: ConversationId) -> Vec<Effect> {
    let title = words::first_line(&title(state, id), 40);
    state.library.list.retain(|summary| summary.id != id);
    if state.open_id() == Some(id) {
        leave_edit(state);
        state.open = None;
    }
    let until = Some(state.now + UNDO_SECONDS);
    let button = Some(("Undo".to_owned(), Box::new(Action::Restore(id))));
    notice(state, Weight::Info, format!("Deleted “{title}”."), String::new(), button, until);
    Vec::new()
}

pub(super) fn saved(state: &mut State, conversation: ConversationId, message: Message) -> Vec<Effect> {
    if message.role == Role::User
        && state.sending.as_ref().is_some_and(|sending| sending.conversation == Some(conversation))
    {
        state.sending = None;
    }
    if message.role == Role::Assistant && message.progress == Progress::Writing {
        state.answer = Some(Answer {
            conversation,
            id: message.id,
            text: message.text.clone(),
            thought: message.thought.clone(),
            prefill: None,
            pieces: 0,
            first_at: None,
            stopping: false,
        });
    }
    put_message(state, conversation, message, true);
    Vec::new()
}

pub(super) fn put_message(state: &mut State, conversation: ConversationId, message: Message, show: bool) {
    let Some(open) = state.open.as_mut().filter(|open| open.conversation.summary.id == conversation) else {
        return;
    };
    let id = message.id;
    match open.conversation.messages.iter_mut().find(|other| other.id == id) {
        Some(other) => *other = message,
        None => open.conversation.messages.push(message),
    }
    if show {
        open.conversation.leaf = Some(id);
        open.path = tree::path(&open.conversation);
    }
}

pub(super) fn piece(state: &mut State, id: MessageId, text: &str, thought: &str) {
    let now = state.now;
    let Some(answer) = state.answer.as_mut().filter(|answer| answer.id == id) else { return };
    answer.text.push_str(text);
    answer.thought.push_str(thought);
    answer.pieces += 1;
    answer.prefill = None;
    answer.first_at.get_or_insert(now);
    let conversation = answer.conversation;
    if let Some(open) = state.open.as_mut().filter(|open| open.conversation.summary.id == conversation)
        && let Some(message) = open.conversation.messages.iter_mut().rev().find(|message| message.id == id)
    {
        message.text.push_str(text);
        message.thought.push_str(thought);
    }
}

pub(super) fn finished(state: &mut State, conversation: ConversationId, message: Message) -> Vec<Effect> {
    if state.answer.as_ref().is_some_and(|answer| answer.id == message.id) {
        state.answer = None;
    }
    put_message(state, conversation, message, false);
    Vec::new()
}

pub(super) fn document_read(state: &mut State, result: Result<Document, Trouble>) -> Vec<Effect> {
    state.composer.reading = state.composer.reading.saturating_sub(1);
    match result {
        Ok(document) => state.composer.documents.push(document),
        Err(trouble) => error(state, trouble),
    }
    Vec::new()
}

pub(super) fn send_question(state: &mut State) -> Vec<Effect> {
    if state.why_not_send().is_some() {
        return Vec::new();
    }
    let parent = match (state.composer.editing, &state.open) {
        (Some(edited), Some(open)) => open.message(edited).and_then(|message| message.parent),
        (_, Some(open)) => open.shown().next_back().map(|message| message.id),
        (_, None) => None,
    };
    let composer = std::mem::take(&mut state.composer);
    let sending = Sending {
        conversation: state.open_id(),
        parent,
        text: composer.text.trim().to_owned(),
        documents: composer.documents,
    };
    state.composer = Composer {
        text: composer.before_edit,
        focus: true,
        counted: composer.counted,
        ..Composer::default()
    };
    let effect = match sending.conversation {
        Some(id) => ask(state, id, &sending),
        None => {
            let system = state.new_system.take().unwrap_or_else(|| state.settings.system());
            send(Command::Create { system })
        }
    };
    state.sending = Some(sending);
    vec![effect]
}

/// A question that could not be saved goes back to where it was written.
pub(super) fn give_back_question(state: &mut State) {
    if let Some(sending) = state.sending.take() {
        if state.composer.text.is_empty() {
            state.composer.text = sending.text;
        } else if !sending.text.is_empty() {
            state.composer.text = format!("{}\n\n{}", sending.text, state.composer.text);
        }
        state.composer.documents.extend(sending.documents);
    }
}

pub(super) fn stop(state: &mut State) -> Vec<Effect> {
    match state.answer.as_mut().filter(|answer| !answer.stopping) {
        Some(answer) => {
            answer.stopping = true;
            vec![send(Command::StopAnswer)]
        }
        None => Vec::new(),
    }
}

pub(super) fn regenerate(state: &mut State, answer: MessageId) -> Vec<Effect> {
    if state.why_not_regenerate().is_some() {
        return Vec::new();
    }
    let Some(open) = &state.open else { return Vec::new() };
    let Some(question) = open.message(answer).and_then(|message| message.parent) else { return Vec::new() };
    let conversation = open.conversation.summary.id;
    vec![send(Command::Regenerate { conversation, question, sampling: state.settings.sampling() })]
}

pub(super) fn edit(state: &mut State, id: MessageId) -> Vec<Effect> {
    let Some(message) = state.open.as_ref().and_then(|open| open.message(id)).cloned() else {
        return Vec::new();
    };
    if message.role != Role::User {
        return Vec::new();
    }
    if state.composer.editing.is_none() {
        state.composer.before_edit = std::mem::take(&mut state.composer.text);
    }
    state.composer.text = message.text;
    state.composer.documents = message.documents;
    state.composer.editing = Some(id);
    state.composer.focus = true;
    typed(state)
}

pub(super) fn leave_edit(state: &mut State) {
    if state.composer.editing.take().is_some() {
        state.composer.text = std::mem::take(&mut state.composer.before_edit);
        state.composer.documents.clear();
        state.composer.focus = true;
    }
}

pub(super) fn version(state: &mut State, id: MessageId) -> Vec<Effect> {
    let Some(open) = state.open.as_mut() else { return Vec::new() };
    let leaf = tree::newest_below(&open.conversation.messages, id);
    open.conversation.leaf = Some(leaf);
    open.path = tree::path(&open.conversation);
    vec![send(Command::SetLeaf(open.conversation.summary.id, leaf))]
}

pub(super) fn set_system(state: &mut State, system: String) -> Vec<Effect> {
    match state.open.as_mut() {
        Some(open) => {
            open.conversation.system.clone_from(&system);
            vec![send(Command::SetSystem(open.conversation.summary.id, system))]
        }
        None => {
            state.new_system = Some(system);
            Vec::new()
        }
    }
}
