//! The answer that is being written: begun, grown, saved as it grows, and ended in one of several ways.

use super::{Inner, State, spawn};
use crate::client::{self, Cut, Ended, Failure, Piece, Question};
use crate::export;
use crate::library::now;
use crate::message::{
    Conversation, ConversationId, Document, Event, Message, MessageId, Progress, Role, Sampling, Trouble,
};
use crate::trouble::{plain, sentence};
use std::time::{Duration, Instant};

/// Between two times that a growing answer is saved.
const SAVE: Duration = Duration::from_secs(1);
/// How long it may take until it is known why a connection broke.
const WHY: Duration = Duration::from_secs(5);

/// An answer that is not at its end.
pub(super) struct Answer {
    conversation: ConversationId,
    message: Message,
    question: Question,
    cut: Cut,
    /// A stream was begun.
    streams: bool,
    saved: Instant,
    changed: bool,
    /// The connection broke, then.
    broken: Option<Instant>,
}

impl Answer {
    /// The service was asked, and nothing has come yet.
    pub(super) fn reads_prompt(&self) -> bool {
        self.streams && self.message.text.is_empty() && self.message.thought.is_empty()
    }
}

impl State {
    /// A new message in a conversation.
    fn message(
        &mut self,
        parent: Option<MessageId>,
        role: Role,
        text: String,
        documents: Vec<Document>,
    ) -> Message {
        let new = Message::new(self.library.message_id(), parent, role, text);
        Message { documents, written_at: now(), ..new }
    }

    /// Saves a question and begins its answer.
    pub(super) fn ask(
        &mut self,
        id: ConversationId,
        parent: Option<MessageId>,
        text: String,
        documents: Vec<Document>,
        sampling: Sampling,
    ) {
        let Some(conversation) = self.ready_for_answer(id) else { return };
        let known = |id: MessageId| conversation.messages.iter().any(|message| message.id == id);
        if parent.is_some_and(|parent| !known(parent)) || (text.trim().is_empty() && documents.is_empty()) {
            return self.told(Err(plain("there is no question that could be answered", "")));
        }
        let question = self.message(parent, Role::User, text, documents);
        let answer = self.message(Some(question.id), Role::Assistant, String::new(), Vec::new());
        self.begin(conversation, vec![question, answer], sampling);
    }

    /// Another answer to a question.
    pub(super) fn regenerate(&mut self, id: ConversationId, question: MessageId, sampling: Sampling) {
        let Some(conversation) = self.ready_for_answer(id) else { return };
        let is_question = |message: &Message| message.id == question && message.role == Role::User;
        if !conversation.messages.iter().any(is_question) {
            return self.told(Err(plain("there is no question that could be answered", "")));
        }
        let answer = self.message(Some(question), Role::Assistant, String::new(), Vec::new());
        self.begin(conversation, vec![answer], sampling);
    }

    /// The conversation, if an answer may begin in it.
    fn ready_for_answer(&mut self, id: ConversationId) -> Option<Conversation> {
        if self.answer.is_some() {
            self.told(Err(plain("another answer is being written", "Wait for its end, or stop it.")));
            return None;
        }
        match self.library.conversation(id) {
            Ok(Some(conversation)) => Some(conversation),
            Ok(None) => {
                self.told(Err(plain("this conversation is gone", "")));
                None
            }
            Err(trouble) => {
                self.told(Err(trouble));
                None
            }
        }
    }

    /// Saves what is new, the answer last, and sees to it that it is written.
    fn begin(&mut self, mut conversation: Conversation, new: Vec<Message>, sampling: Sampling) {
        let id = conversation.summary.id;
        let saved = self.library.add(id, &new);
        for message in &new {
            self.say.say(Event::Saved(id, message.clone()));
        }
        if let Some(summary) = self.library.summary(id) {
            self.say.say(Event::Changed(summary));
        }
        // After the messages: they are kept, in memory at least, and the window must not take the question back.
        self.told(saved);
        let Some(message) = new.last().cloned() else { return };
        conversation.messages.extend(new);
        conversation.leaf = message.parent;
        let path = export::path(&conversation).into_iter().cloned().collect();
        let question = Question { system: conversation.system.clone(), path, sampling };
        self.answer = Some(Answer {
            conversation: id,
            message,
            question,
            cut: Cut::default(),
            streams: false,
            saved: Instant::now(),
            changed: false,
            broken: None,
        });
        if self.service.client().is_some() {
            self.service_is_ready();
        } else if !self.service.is_starting() {
            let reason =
                if self.bench.is_some() { "a measurement is under way" } else { "no model is loaded" };
            self.finish(Progress::Interrupted(reason.to_owned()));
        }
    }

    /// An answer that waits for the service can begin.
    pub(super) fn service_is_ready(&mut self) {
        let (Some(answer), Some(client)) = (&mut self.answer, self.service.client().cloned()) else { return };
        if answer.streams {
            return;
        }
        answer.streams = true;
        let (id, question, cut, inner) =
            (answer.message.id, answer.question.clone(), answer.cut.clone(), self.inner.clone());
        let work = move || {
            let ended = client::stream(&client, &question, &cut, &mut |piece| {
                let _ = inner.send(Inner::Piece(id, piece));
            });
            let _ = inner.send(Inner::Ended(id, ended));
        };
        match spawn("answer", work) {
            Ok(()) => self.tell_sampler(),
            Err(error) => {
                self.finish(Progress::Interrupted(format!("a thread cannot be started: {error}")));
            }
        }
    }

    /// The service has gone; an answer that it wrote, or that waited for it, has ended.
    pub(super) fn service_is_down(&mut self, reason: &str) {
        self.end_answer(reason);
    }

    /// How far the prompt is.
    pub(super) fn prefill(&self, done: u64, total: u64) {
        if let Some(answer) = self.answer.as_ref().filter(|answer| answer.reads_prompt()) {
            self.say.say(Event::Prefill { answer: answer.message.id, done, total });
        }
    }

    /// More of the answer.
    pub(super) fn piece(&mut self, id: MessageId, piece: Piece) {
        let Some(answer) = self.answer.as_mut().filter(|answer| answer.message.id == id) else { return };
        let first = answer.reads_prompt();
        answer.message.text.push_str(&piece.text);
        answer.message.thought.push_str(&piece.thought);
        answer.changed = true;
        self.say.say(Event::Piece { answer: id, text: piece.text, thought: piece.thought });
        if first {
            self.tell_sampler();
        }
        self.tend_answer();
    }

    /// The stream is over.
    pub(super) fn stream_ended(&mut self, id: MessageId, result: Result<Ended, Failure>) {
        let Some(answer) = self.answer.as_mut().filter(|answer| answer.message.id == id) else { return };
        match result {
            Ok(Ended { at_limit, run }) => {
                answer.message.run = Some(run);
                let wanted = answer.question.sampling.max_tokens;
                let progress = match wanted {
                    _ if !at_limit => Progress::Done,
                    Some(most) if run.tokens >= u64::from(most) => {
                        Progress::Cut(format!("the limit of {most} tokens was reached"))
                    }
                    _ => Progress::Cut("the context is full".to_owned()),
                };
                self.finish(progress);
            }
            Err(Failure::Refused { code, message }) => {
                let reason = match code.as_str() {
                    "context_length_exceeded" => {
                        "the conversation is longer than the context; raise it in the settings, or begin a new one".to_owned()
                    }
                    "internal_error" => self.service.internal_error().unwrap_or(message),
                    _ => message,
                };
                self.finish(Progress::Interrupted(reason));
            }
            // The process says why, if it ended.
            Err(Failure::Gone(_)) => answer.broken = Some(Instant::now()),
        }
    }

    /// Saves what has grown, if it is time; gives up waiting for a reason.
    pub(super) fn tend_answer(&mut self) {
        let Some(answer) = &mut self.answer else { return };
        if answer.broken.is_some_and(|since| since.elapsed() >= WHY) {
            return self
                .finish(Progress::Interrupted("the connection to the model's process broke".to_owned()));
        }
        if answer.changed && answer.saved.elapsed() >= SAVE {
            (answer.changed, answer.saved) = (false, Instant::now());
            let saved = self.library.update(answer.conversation, &answer.message);
            self.told(saved);
        }
    }

    /// The person wants no more of it.
    pub(super) fn stop_answer(&mut self) {
        if let Some(answer) = &self.answer {
            answer.cut.cut();
            self.finish(Progress::Cut("stopped".to_owned()));
        }
    }

    /// Something else ends it.
    pub(super) fn end_answer(&mut self, reason: &str) {
        if let Some(answer) = &self.answer {
            answer.cut.cut();
            let reason = sentence(reason);
            self.finish(Progress::Interrupted(reason.trim_end_matches('.').to_owned()));
        }
    }

    /// Whether the answer belongs to this conversation.
    pub(super) fn is_answering(&self, id: ConversationId) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.conversation == id)
    }

    /// The end: saved, then told.
    fn finish(&mut self, progress: Progress) {
        let Some(mut answer) = self.answer.take() else { return };
        answer.message.progress = progress;
        let saved = self.library.update(answer.conversation, &answer.message);
        self.told(saved);
        self.say.say(Event::Finished(answer.conversation, answer.message));
        self.tell_sampler();
    }

    /// Why nothing may be started now, if so.
    pub(super) fn busy(&self) -> Option<Trouble> {
        self.bench.is_some().then(|| plain("a measurement is under way", "Wait for its end, or stop it."))
    }
}
