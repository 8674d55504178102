//! Several answers side by side: their prompts are read one at a time, a pass at a time, and between passes all texts that
//! are read take one step together, so that what a step reads of the model serves them all.
//!
//! Results are those of each by itself: a row's numbers do not depend on the rows beside it. What does not fit beside the
//! others waits for its turn, and where those that run outgrow the memory, the youngest gives up what the model keeps of
//! it and is read again later. A text whose reader is behind pauses, and the others go on.

use super::answer::{Answer, Step};
use super::conversations::{KeptConversations, Out};
use super::event::{Event, Finish, Generation};
use super::options::{Cancel, GenerateOptions};
use super::pace::{Pace, Sharing};
use super::score;
use super::session::Session;
use crate::model::{Forward, Kept, Runner, TOGETHER};
use crate::{Error, Result};
use std::ops::ControlFlow;
use std::time::Instant;

/// Prompt tokens of a pass while others wait for their next token.
const SHARED_PASS: usize = if cfg!(test) { 6 } else { 512 };
/// Tokens of an answer for which there must be room when it begins; what comes after is seen to as it comes.
const AHEAD: usize = if cfg!(test) { 8 } else { 256 };

/// A text to be answered beside others.
pub struct Ask {
    /// What it is called.
    pub number: u64,
    /// Its ids.
    pub prompt: Vec<u32>,
    /// What is asked for.
    pub options: GenerateOptions,
    /// Ends it.
    pub cancel: Cancel,
}

/// Who hears of the answers, each by its number.
pub trait Listener {
    /// Whether the text may go on now. One whose reader is behind pauses.
    fn ready(&mut self, number: u64) -> bool;
    /// Something happened. `Break` ends the answer.
    fn event(&mut self, number: u64, event: Event<'_>) -> ControlFlow<()>;
    /// The end, as [`Session::generate`] has it.
    fn ended(&mut self, number: u64, result: Result<Generation>);
    /// Texts that wait outside until there are places for them.
    fn waiting(&self) -> usize {
        0
    }
}

/// A text that is being answered.
struct Text<'t, K> {
    number: u64,
    prompt: Vec<u32>,
    answer: Answer<'t>,
    cancel: Cancel,
    /// How many of the best ids at each place of the prompt are wanted; taken once they are there.
    scores: Option<usize>,
    /// It was begun to be read before.
    begun: bool,
    /// What the model keeps of it; nothing before it is begun, and after it had to give way.
    kept: Option<K>,
    /// The ids in there: a beginning of prompt and answer.
    fed: Vec<u32>,
    /// All is fed but this id, the last one made.
    next: Option<u32>,
    /// Its reader is behind.
    paused: bool,
}

impl<K> Text<'_, K> {
    /// Ids of prompt and answer so far.
    fn len(&self) -> usize {
        self.prompt.len() + self.answer.made().len()
    }

    /// Ids of prompt and answer from `from` to `end`.
    fn ids(&self, from: usize, end: usize) -> Vec<u32> {
        self.prompt.iter().chain(self.answer.made()).copied().take(end).skip(from).collect()
    }

    /// Ids that it comes to soon.
    fn end(&self, context: usize) -> usize {
        (self.len() + self.answer.left().min(AHEAD)).min(context)
    }
}

/// Answers side by side over one model. Made by [`super::Engine::together`]; dropped, it forgets those that have not ended.
pub struct Together<'e, F: Forward = Runner> {
    session: Session<'e, F>,
    /// In the order in which they came.
    texts: Vec<Text<'e, F::Sequence>>,
    pace: Pace,
    /// All share a step, whatever it brings.
    fixed: bool,
    /// That slots are too few for some of them was said.
    told: bool,
    /// Lines for the log.
    lines: Vec<String>,
}

impl<'e, F: Forward> Together<'e, F> {
    /// At most `most` texts share a step; with `fixed` always as many as there are, else as many as it pays.
    pub(super) fn new(session: Session<'e, F>, most: usize, fixed: bool) -> Self {
        let (texts, lines) = (Vec::new(), Vec::new());
        Self { session, texts, pace: Pace::new(most.min(TOGETHER), fixed), fixed, told: false, lines }
    }

    /// Texts that the next step may have.
    fn limit(&self) -> usize {
        let limit = self.pace.limit();
        if self.fixed { limit } else { limit.min(self.session.forward.step_texts()) }
    }

    /// Takes in a text, at the end of the line. What is wrong with it is told at once.
    pub fn add(&mut self, ask: Ask, listener: &mut dyn Listener) {
        let Ask { number, prompt, options, cancel } = ask;
        let counters = (self.session.counters)(self.session.forward);
        let answer = self
            .session
            .check(&prompt)
            .and_then(|()| Answer::new(&self.session.setting(), &prompt, &options, counters));
        match answer {
            Ok(answer) => self.texts.push(Text {
                number,
                prompt,
                answer,
                cancel,
                scores: options.prompt_logprobs,
                begun: false,
                kept: None,
                fed: Vec::new(),
                next: None,
                paused: false,
            }),
            Err(error) => listener.ended(number, Err(error)),
        }
    }

    /// How many more texts it would work on now: those that pause leave room for others, within bounds.
    pub fn places(&self) -> usize {
        let busy = self.texts.iter().filter(|text| !text.paused).count();
        let most = self.pace.sharing().most;
        self.limit().saturating_sub(busy).min((2 * most).saturating_sub(self.texts.len()))
    }

    /// Texts that have not ended.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether all have ended.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// How many share a step, and why.
    pub fn sharing(&self) -> Sharing {
        Sharing { now: self.limit(), ..self.pace.sharing() }
    }

    /// What somebody should know, once.
    pub fn notes(&mut self) -> Vec<String> {
        let mut lines = std::mem::take(&mut self.lines);
        lines.extend(self.session.conversations.notes());
        lines
    }

    /// What is kept of conversations that have ended.
    pub fn kept_conversations(&self) -> KeptConversations {
        self.session.conversations.kept()
    }

    /// The model underneath.
    pub fn model(&self) -> &F {
        self.session.forward
    }

    /// A pass over a part of a prompt, if there is one to read, and a step of all texts that can take one. False if there
    /// was nothing to do: all have ended, or pause.
    pub fn turn(&mut self, listener: &mut dyn Listener) -> bool {
        for at in (0..self.texts.len()).rev() {
            let text = &mut self.texts[at];
            if text.answer.is_unwanted(&text.cancel) {
                self.end(at, Ok(Finish::Cancelled), listener);
            } else {
                text.paused = !listener.ready(text.number);
            }
        }
        let read = self.read(listener);
        let stepped = self.step(listener);
        read || stepped
    }

    /// Texts that would take a step now.
    fn going(&self) -> Vec<usize> {
        let goes = |&at: &usize| self.texts[at].next.is_some() && !self.texts[at].paused;
        (0..self.texts.len()).filter(goes).collect()
    }

    /// One pass over one prompt.
    fn read(&mut self, listener: &mut dyn Listener) -> bool {
        let others = self.going();
        let rest = |at: usize| self.texts[at].len() - self.texts[at].fed.len();
        let begun = |&at: &usize| self.texts[at].kept.is_some();
        let busy = (0..self.texts.len()).filter(|at| begun(at) && !self.texts[*at].paused).count();
        let unread = |&at: &usize| {
            let text = &self.texts[at];
            text.next.is_none() && !text.paused && (begun(&at) || (busy < self.limit() && self.has_room(at)))
        };
        // Short ones do not wait for long ones.
        let chosen = (0..self.texts.len()).filter(unread).min_by_key(|&at| (rest(at) > SHARED_PASS, at));
        let Some(at) = chosen else { return false };
        if self.texts[at].kept.is_none() && !self.begin(at, listener) {
            return true;
        }
        let most = self.session.forward.pass_tokens();
        self.pass(at, if others.is_empty() { most } else { most.min(SHARED_PASS) }, listener);
        true
    }

    /// Whether a text may begin beside those that have.
    fn has_room(&self, at: usize) -> bool {
        let context = self.session.forward.max_context();
        let begun = self.texts.iter().filter(|text| text.kept.is_some());
        let mut ends: Vec<usize> = begun.map(|text| text.end(context)).collect();
        if ends.is_empty() {
            return true;
        }
        ends.push(self.texts[at].end(context));
        self.session.forward.has_room_for(&ends)
    }

    /// Finds what is at hand of a text. False if it has ended by that.
    fn begin(&mut self, at: usize, listener: &mut dyn Listener) -> bool {
        let text = &mut self.texts[at];
        if let Some(top) = text.scores.take() {
            let go_on = &mut |_| ControlFlow::Continue(());
            match score::run(&mut self.session, &text.prompt, 1, top, &text.cancel, go_on) {
                Ok(scores) => {
                    let number = text.number;
                    text.answer.scored(scores, &mut |event| listener.event(number, event));
                }
                Err(error) => {
                    self.end(at, Err(error), listener);
                    return false;
                }
            }
        }
        if text.answer.is_empty() {
            self.end(at, Ok(Finish::Length), listener);
            return false;
        }
        let (known, prompt) = (text.ids(0, text.len()), text.prompt.clone());
        let out: Vec<Out<'_, F::Sequence>> =
            self.texts.iter().filter_map(|text| Some((text.kept.as_ref()?, &text.fed[..]))).collect();
        let Session { conversations, forward, .. } = &mut self.session;
        let reuse = conversations.open_beside(*forward, &known, &out);
        self.session.set_points(&prompt, known.len());
        let (kept, fed) = self.session.conversations.take_out(self.session.forward);
        let text = &mut self.texts[at];
        let cached = fed.len();
        (text.kept, text.fed) = (Some(kept), fed);
        if !std::mem::replace(&mut text.begun, true) {
            text.answer.met = (cached, reuse);
            let number = text.number;
            let goes_on =
                text.answer.reading(cached, &text.cancel, &mut |event| listener.event(number, event));
            if !goes_on {
                self.end(at, Ok(Finish::Cancelled), listener);
                return false;
            }
        }
        true
    }

    /// Feeds up to `most` ids of what a text lacks; at its end it takes its first step.
    fn pass(&mut self, at: usize, most: usize, listener: &mut dyn Listener) {
        let (forward, conversations) = (&mut *self.session.forward, &mut *self.session.conversations);
        let text = &mut self.texts[at];
        let (before, end) = (text.fed.len(), text.len().min(text.fed.len() + most));
        let ids = text.ids(before, end);
        let (first, last) = (text.answer.made().is_empty(), end == text.len());
        let full = end >= forward.max_context();
        let Text { number, answer, cancel, kept, .. } = text;
        let Some(kept) = kept else { return };
        let mut sink = |event: Event<'_>| listener.event(*number, event);
        std::mem::swap(forward.sequence(), kept);
        // The others have grown since it was begun.
        conversations.make_space(forward, ids.len(), 0);
        let mut progress = |done: usize| {
            let goes_on = answer.reading(before + done, cancel, &mut sink);
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let result = forward.prefill(&ids, &mut progress);
        let result = match result {
            Ok(logits) if last => answer.step(logits, full, cancel, &mut sink).map(Some),
            Ok(_) => Ok(None),
            Err(error) => Err(error),
        };
        let position = forward.position();
        std::mem::swap(forward.sequence(), kept);
        text.fed.extend(ids);
        text.fed.truncate(position);
        if first {
            text.answer.fed += position.saturating_sub(before);
        }
        match result {
            Ok(None) => {}
            Ok(Some(Step::Next(id))) => text.next = Some(id),
            Ok(Some(Step::End(finish))) => self.end(at, Ok(finish), listener),
            Err(Error::Cancelled) if text.answer.is_unwanted(&text.cancel) => {
                self.end(at, Ok(Finish::Cancelled), listener);
            }
            Err(error) => self.end(at, Err(error), listener),
        }
    }

    /// One step of all that can take one.
    fn step(&mut self, listener: &mut dyn Listener) -> bool {
        let wanting = self.texts.iter().filter(|text| !text.paused).count();
        let start = Instant::now();
        let chosen: Vec<usize> = self.going().into_iter().take(self.limit()).collect();
        let chosen = self.make_space(chosen);
        let ended = match chosen[..] {
            [] => return false,
            [at] => self.step_alone(at, listener),
            _ => self.step_together(&chosen, listener),
        };
        let seconds = start.elapsed().as_secs_f64();
        // The youngest first: places before them stay what they are.
        for (at, result) in ended.into_iter().rev() {
            self.end(at, result, listener);
        }
        let wanting = wanting + listener.waiting();
        self.lines.extend(self.pace.note(chosen.len(), wanting, seconds));
        let fit = self.session.forward.step_texts();
        let wanting = wanting.min(self.pace.sharing().most);
        if !self.fixed && !self.told && wanting > fit {
            self.told = true;
            let share =
                if fit == 1 { "one at a time".to_owned() } else { format!("at most {fit} at a time") };
            self.lines.push(format!("too few expert slots for {wanting} texts side by side: {share}"));
        }
        true
    }

    /// Sees to it that the chosen texts can grow by an id; those that remain chosen.
    fn make_space(&mut self, mut chosen: Vec<usize>) -> Vec<usize> {
        loop {
            let mut texts: Vec<(usize, &mut F::Sequence)> = self
                .texts
                .iter_mut()
                .enumerate()
                .filter(|(at, _)| chosen.contains(at))
                .filter_map(|(at, text)| Some((at, text.kept.as_mut()?)))
                .collect();
            let kept: Vec<&mut F::Sequence> = texts.iter_mut().map(|(_, kept)| &mut **kept).collect();
            if kept.is_empty() || self.session.forward.excess_together(&kept) == 0 {
                return chosen;
            }
            if self.session.conversations.give_up_for_others(self.session.forward) {
                continue;
            }
            // Going back is worth less than going on.
            let spare = |text: &&mut Text<'_, F::Sequence>| {
                text.kept.as_ref().is_some_and(|kept| kept.points().len() > 1)
            };
            if let Some(kept) = self.texts.iter_mut().rfind(spare).and_then(|text| text.kept.as_mut()) {
                let first = kept.points()[0];
                kept.unmark(first);
                continue;
            }
            let oldest = chosen.first().copied();
            let gives_way = |&at: &usize| self.texts[at].kept.is_some() && Some(at) != oldest;
            let Some(youngest) = (0..self.texts.len()).rfind(gives_way) else { return chosen };
            let text = &mut self.texts[youngest];
            (text.kept, text.next) = (None, None);
            text.fed.clear();
            chosen.retain(|&at| at != youngest);
            self.lines.push("a text gave way to those before it and is read again later".to_owned());
        }
    }

    /// The only one: as [`Session::generate`] does it.
    fn step_alone(&mut self, at: usize, listener: &mut dyn Listener) -> Vec<(usize, Result<Finish>)> {
        let Session { forward, conversations, .. } = &mut self.session;
        let text = &mut self.texts[at];
        let (Some(id), Some(kept)) = (text.next, &mut text.kept) else { return Vec::new() };
        let full = kept.position() + 1 >= forward.max_context();
        std::mem::swap(forward.sequence(), kept);
        conversations.make_space(*forward, 1, 0);
        let (number, answer, cancel) = (text.number, &mut text.answer, &text.cancel);
        let sink = &mut |event: Event<'_>| listener.event(number, event);
        let result = forward.decode(id).and_then(|logits| answer.step(logits, full, cancel, sink));
        let position = forward.position();
        std::mem::swap(forward.sequence(), kept);
        text.fed.push(id);
        text.fed.truncate(position);
        match result {
            Ok(Step::Next(id)) => text.next = Some(id),
            Ok(Step::End(finish)) => return vec![(at, Ok(finish))],
            Err(error) => return vec![(at, Err(error))],
        }
        Vec::new()
    }

    fn step_together(
        &mut self,
        chosen: &[usize],
        listener: &mut dyn Listener,
    ) -> Vec<(usize, Result<Finish>)> {
        let forward = &mut *self.session.forward;
        let (context, vocabulary) = (forward.max_context(), forward.vocab_size());
        let mut texts: Vec<(usize, &mut Text<'_, F::Sequence>)> =
            self.texts.iter_mut().enumerate().filter(|(at, _)| chosen.contains(at)).collect();
        let ids: Vec<u32> = texts.iter().filter_map(|(_, text)| text.next).collect();
        let mut kept: Vec<&mut F::Sequence> =
            texts.iter_mut().filter_map(|(_, text)| text.kept.as_mut()).collect();
        let result = forward.decode_together(&mut kept, &ids);
        drop(kept);
        let Ok(logits) = result else {
            // Each finds out by itself, when it is read on, whether the fault is its own.
            for (_, text) in texts {
                text.next = None;
                let position = text.kept.as_ref().map_or(0, Kept::position);
                text.fed.truncate(position);
            }
            return Vec::new();
        };
        let mut ended = Vec::new();
        for ((at, text), logits) in texts.into_iter().zip(logits.chunks_exact_mut(vocabulary)) {
            text.fed.extend(text.next.take());
            let full = text.fed.len() >= context;
            let number = text.number;
            let sink = &mut |event: Event<'_>| listener.event(number, event);
            match text.answer.step(logits, full, &text.cancel, sink) {
                Ok(Step::Next(id)) => text.next = Some(id),
                Ok(Step::End(finish)) => ended.push((at, Ok(finish))),
                Err(error) => ended.push((at, Err(error))),
            }
        }
        ended
    }

    /// A text is over: what the model keeps of it is a conversation again.
    fn end(&mut self, at: usize, result: Result<Finish>, listener: &mut dyn Listener) {
        let Text { number, answer, kept, fed, .. } = self.texts.remove(at);
        let counters = (self.session.counters)(self.session.forward);
        if let Some(kept) = kept {
            self.session.conversations.put_back(self.session.forward, kept, fed);
        }
        let result =
            result.map(|finish| answer.finish(finish, counters, &mut |event| listener.event(number, event)));
        listener.ended(number, result);
    }
}
