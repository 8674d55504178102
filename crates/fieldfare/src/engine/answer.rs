//! An answer that is being made, apart from the model: it is given logits and says the next id, or that it is over. So one
//! loop can ask many of them and feed the model once.

use super::conversations::Reuse;
use super::event::{Event, Finish, Generation, Scores, Timings, TokenScore};
use super::options::{Cancel, GenerateOptions, OutputMode};
use super::score;
use super::session::Counters;
use crate::chat::{End, OutputEvent, OutputParser, ParsedCall, ParsedOutput};
use crate::sample::{Sampler, StopStrings};
use crate::sys::memory;
use crate::tokenizer::{StreamDecoder, Tokenizer};
use crate::{Error, Result};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Where events go.
pub(super) type Sink<'s> = &'s mut dyn FnMut(Event<'_>) -> ControlFlow<()>;

/// What answers need to know of a model.
pub(super) struct Setting<'t> {
    pub(super) tokenizer: Option<&'t Tokenizer>,
    /// Why there is none.
    pub(super) no_tokenizer: &'t str,
    /// The ids that end an answer unless it names others.
    pub(super) stop_ids: &'t [u32],
    /// Number of ids.
    pub(super) vocabulary: usize,
}

/// What comes after logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// This id is to be fed.
    Next(u32),
    /// Nothing.
    End(Finish),
}

/// An answer.
pub(super) struct Answer<'t> {
    rules: Rules,
    sampler: Sampler,
    reader: Reader<'t>,
    shown: Shown,
    tokenizer: Option<&'t Tokenizer>,
    max_new: usize,
    /// Longest time from the first token on.
    longest: Option<Duration>,
    clock: Clock,
    prompt_tokens: usize,
    token_ids: Vec<u32>,
    /// Prompt tokens fed.
    pub(super) fed: usize,
    /// How much of the prompt was at hand, and why no more.
    pub(super) met: (usize, Reuse),
    prompt_scores: Option<Scores>,
    /// When the first token was chosen.
    first: Option<Instant>,
    /// When the prompt was read.
    prefilled: Option<Instant>,
}

impl<'t> Answer<'t> {
    /// Nothing made yet. `counters` are those of the model now.
    ///
    /// # Errors
    /// Options that make no sense, or need a tokenizer where there is none.
    pub(super) fn new(
        setting: &Setting<'t>,
        prompt: &[u32],
        options: &GenerateOptions,
        counters: Counters,
    ) -> Result<Self> {
        let rules = Rules::new(setting, options);
        let guide = options.plan.as_ref().map(|plan| plan.guide(&rules.stop)).transpose()?;
        let mut sampler = Sampler::new(&options.sampling, setting.vocabulary)?.guided(guide);
        let reader = Reader::new(setting, options)?;
        StopStrings::validate(&options.stop)?;
        if options.max_new > 0 {
            prompt.iter().for_each(|&id| sampler.accept_prompt(id));
            sampler.look_ahead();
        }
        Ok(Self {
            rules,
            sampler,
            reader,
            shown: Shown::new(StopStrings::new(options.stop.clone())),
            tokenizer: setting.tokenizer,
            max_new: options.max_new,
            longest: options.longest,
            clock: Clock::start(counters),
            prompt_tokens: prompt.len(),
            token_ids: Vec::new(),
            fed: 0,
            met: (0, Reuse::default()),
            prompt_scores: None,
            first: None,
            prefilled: None,
        })
    }

    /// How likely the tokens of the prompt were, as it was asked for.
    pub(super) fn scored(&mut self, scores: Scores, sink: Sink<'_>) {
        self.shown.emit(Event::PromptScores(&scores), sink);
        self.prompt_scores = Some(scores);
    }

    /// Nothing is to be made.
    pub(super) fn is_empty(&self) -> bool {
        self.max_new == 0
    }

    /// The ids made so far, the one to be fed next included.
    pub(super) fn made(&self) -> &[u32] {
        &self.token_ids
    }

    /// More ids that may be made.
    pub(super) fn left(&self) -> usize {
        self.max_new.saturating_sub(self.token_ids.len())
    }

    /// Tells of the prompt; true if it is to be read on.
    pub(super) fn reading(&mut self, done: usize, cancel: &Cancel, sink: Sink<'_>) -> bool {
        let total = self.prompt_tokens;
        self.shown.emit(Event::Prefill { done: done.min(total), total }, sink);
        !self.is_unwanted(cancel)
    }

    /// The caller asked to stop, or hears no more.
    pub(super) fn is_unwanted(&self, cancel: &Cancel) -> bool {
        cancel.is_cancelled() || self.shown.broken
    }

    /// Takes the logits after all ids so far. `full`: the model takes no more ids.
    ///
    /// # Errors
    /// Nothing that is allowed can be chosen.
    pub(super) fn step(
        &mut self,
        logits: &mut [f32],
        full: bool,
        cancel: &Cancel,
        sink: Sink<'_>,
    ) -> Result<Step> {
        let choice = self.rules.choose(logits, &mut self.sampler, self.token_ids.len())?;
        self.prefilled.get_or_insert_with(Instant::now);
        if self.is_unwanted(cancel) {
            return Ok(Step::End(Finish::Cancelled));
        }
        self.first.get_or_insert_with(Instant::now);
        let id = choice.id;
        if self.rules.stop.contains(&id) {
            return Ok(Step::End(Finish::Stop));
        }
        self.sampler.accept(id);
        self.push(choice, sink);
        if self.shown.stopped || self.reader.is_done() || self.sampler.is_over() {
            return Ok(Step::End(Finish::Stop));
        }
        if full || self.token_ids.len() >= self.max_new || self.is_late() {
            return Ok(Step::End(Finish::Length));
        }
        if self.is_unwanted(cancel) {
            return Ok(Step::End(Finish::Cancelled));
        }
        // While the model is fed this token.
        self.sampler.look_ahead();
        Ok(Step::Next(id))
    }

    fn is_late(&self) -> bool {
        let taken = self.first.map(|first| first.elapsed());
        self.longest.zip(taken).is_some_and(|(longest, taken)| taken >= longest)
    }

    fn push(&mut self, choice: Choice, sink: Sink<'_>) {
        let id = choice.id;
        self.shown.coming =
            choice.score.filter(|_| self.is_text(id)).map(|score| (score, self.own_bytes(id)));
        self.token_ids.push(id);
        self.shown.emit(Event::Token { id }, sink);
        match &mut self.reader {
            Reader::Ids => {}
            Reader::Raw(decoder) => {
                let mut text = String::new();
                decoder.push(id, &mut text);
                self.shown.visible(&text, sink);
            }
            Reader::Chat(parser) => parser.push(id, &mut |event| self.shown.event(event, sink)),
        }
        if let Some((score, _)) = self.shown.coming.take() {
            self.shown.held.push_back(TokenScore { start: self.shown.offered, ..score });
        }
    }

    /// Bytes that the token shows by itself; 0 for a byte, which shows with others.
    fn own_bytes(&self, id: u32) -> usize {
        let Some(piece) = self.tokenizer.and_then(|tokenizer| tokenizer.piece(id)) else { return 0 };
        if piece.starts_with("<0x") && piece.len() == 6 {
            return 0;
        }
        piece.len() - piece.matches('\u{2581}').count() * ('\u{2581}'.len_utf8() - 1)
    }

    /// Whether the token is part of the answer's text.
    fn is_text(&self, id: u32) -> bool {
        let control = self.tokenizer.is_some_and(|tokenizer| tokenizer.is_control(id));
        !control && !matches!(&self.reader, Reader::Chat(parser) if !parser.in_content())
    }

    /// The end: shows what was held back. `counters` are the model's now.
    pub(super) fn finish(self, finish: Finish, counters: Counters, sink: Sink<'_>) -> Generation {
        let mut shown = self.shown;
        let parsed = flush(self.reader, &mut shown, finish, sink);
        let finish = match (finish, parsed.as_ref().map(|p| p.finish)) {
            (Finish::Cancelled, _) => Finish::Cancelled,
            (_, Some(End::ToolCalls)) => Finish::ToolCalls,
            // The last bytes may have completed a stop string.
            (Finish::Length, _) if shown.stopped => Finish::Stop,
            (finish, _) => finish,
        };
        let (cached_tokens, reuse) = self.met;
        Generation {
            text: shown.text,
            reasoning: Some(shown.reasoning).filter(|r| !r.is_empty()),
            tool_calls: shown.tool_calls,
            truncated_tool_call: parsed.as_ref().is_some_and(|p| p.truncated_tool_call),
            cut_call: parsed.as_ref().and_then(|p| p.cut_call.clone()),
            call_error: parsed.and_then(|p| p.error),
            scores: shown.scores,
            prompt_scores: self.prompt_scores,
            finish,
            seed: self.sampler.seed(),
            prompt_tokens: self.prompt_tokens,
            cached_tokens,
            reuse,
            timings: self.clock.timings(self.prefilled, self.first, self.fed, self.token_ids.len(), counters),
            token_ids: self.token_ids,
        }
    }
}

/// Ids with a meaning for the loop, and what is asked of each choice.
struct Rules {
    stop: Vec<u32>,
    suppress: Vec<usize>,
    /// Nothing ends the answer before so many tokens.
    least: usize,
    /// How likely each token was is wanted, and so many others beside it.
    logprobs: Option<usize>,
}

/// A token that was chosen.
struct Choice {
    id: u32,
    score: Option<TokenScore>,
}

impl Rules {
    fn new(setting: &Setting<'_>, options: &GenerateOptions) -> Self {
        let control = setting.tokenizer.map(Tokenizer::control);
        let suppress = match (&options.suppress, control, &options.mode) {
            (Some(ids), _, _) => ids.clone(),
            (None, None, _) => Vec::new(),
            (None, Some(control), OutputMode::Raw) => control.media(),
            (None, Some(control), OutputMode::Chat { .. }) => control.suppressed(),
        };
        let vocabulary = setting.vocabulary;
        Self {
            stop: options.stop_ids.clone().unwrap_or_else(|| setting.stop_ids.to_vec()),
            suppress: suppress.into_iter().map(|id| id as usize).filter(|&id| id < vocabulary).collect(),
            least: options.min_new,
            logprobs: options.logprobs,
        }
    }

    /// Chooses the token that comes after `made` others.
    fn choose(&self, logits: &mut [f32], sampler: &mut Sampler, made: usize) -> Result<Choice> {
        let own = self.logprobs.map(|top| (logits.to_vec(), top));
        for &id in &self.suppress {
            logits[id] = f32::NEG_INFINITY;
        }
        if made < self.least {
            for &id in &self.stop {
                if let Some(logit) = logits.get_mut(id as usize) {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
        let id = sampler.choose(logits)?;
        Ok(Choice { id, score: own.map(|(logits, top)| score::one(&logits, id, top)) })
    }
}

/// Makes text of ids.
enum Reader<'t> {
    /// No tokenizer: ids only.
    Ids,
    Raw(StreamDecoder<'t>),
    Chat(Box<OutputParser<'t>>),
}

impl<'t> Reader<'t> {
    fn new(setting: &Setting<'t>, options: &GenerateOptions) -> Result<Self> {
        let wanted = !options.stop.is_empty() || options.mode != OutputMode::Raw;
        let Some(tokenizer) = setting.tokenizer else {
            let reason = || Error::NoTokenizer(setting.no_tokenizer.to_owned());
            return if wanted { Err(reason()) } else { Ok(Self::Ids) };
        };
        Ok(match &options.mode {
            OutputMode::Raw => Self::Raw(tokenizer.stream(true, true)),
            OutputMode::Chat { starts_in_reasoning, tools } => {
                let parser = OutputParser::new(tokenizer, tools.clone(), *starts_in_reasoning);
                Self::Chat(Box::new(parser.telling(options.told_calls.clone())))
            }
        })
    }

    /// Whether the message is over by its own account.
    fn is_done(&self) -> bool {
        matches!(self, Self::Chat(parser) if parser.is_done())
    }
}

/// What was shown.
struct Shown {
    stops: StopStrings,
    text: String,
    reasoning: String,
    tool_calls: Vec<ParsedCall>,
    /// The sink asked to stop; it gets nothing more.
    broken: bool,
    /// A stop string was met; no more text is shown.
    stopped: bool,
    /// Bytes of text that came here.
    offered: usize,
    /// The score of the token that is being read, and the bytes that it shows by itself: none for a part of a character.
    coming: Option<(TokenScore, usize)>,
    /// Scores of tokens whose text is not shown yet.
    held: VecDeque<TokenScore>,
    scores: Vec<TokenScore>,
}

impl Shown {
    fn new(stops: StopStrings) -> Self {
        Self {
            stops,
            text: String::new(),
            reasoning: String::new(),
            tool_calls: Vec::new(),
            broken: false,
            stopped: false,
            offered: 0,
            coming: None,
            held: VecDeque::new(),
            scores: Vec::new(),
        }
    }

    fn emit(&mut self, event: Event<'_>, sink: Sink<'_>) {
        if !self.broken && sink(event).is_break() {
            self.broken = true;
        }
    }

    /// Visible text: what cannot be the beginning of a stop string is shown.
    fn visible(&mut self, text: &str, sink: Sink<'_>) {
        if self.stopped || text.is_empty() {
            return;
        }
        let before = self.offered;
        self.offered += text.len();
        if let Some((score, own)) = self.coming.take() {
            // Text that was held comes out first: its bytes are earlier tokens'.
            let start = if own > 0 { self.offered.saturating_sub(own) } else { before };
            self.held.push_back(TokenScore { start, ..score });
        }
        let mut certain = String::new();
        self.stopped = self.stops.push(text, &mut certain);
        self.show(&certain, sink);
    }

    fn show(&mut self, text: &str, sink: Sink<'_>) {
        if text.is_empty() {
            return;
        }
        let end = self.text.len() + text.len();
        let ready = self.held.iter().take_while(|score| score.start < end).count();
        if ready > 0 {
            let ready: Vec<TokenScore> = self.held.drain(..ready).collect();
            self.emit(Event::Scores(&ready), sink);
            self.scores.extend(ready);
        }
        self.text.push_str(text);
        self.emit(Event::Text(text), sink);
    }

    /// Shows what was held back, unless a stop string ended the text.
    fn release(&mut self, sink: Sink<'_>) {
        if !self.stopped {
            let mut rest = String::new();
            self.stops.finish(&mut rest);
            self.show(&rest, sink);
        }
    }

    fn event(&mut self, event: OutputEvent<'_>, sink: Sink<'_>) {
        match event {
            OutputEvent::Content(text) => self.visible(text, sink),
            OutputEvent::Reasoning(text) => {
                self.reasoning.push_str(text);
                self.emit(Event::Reasoning(text), sink);
            }
            // Text before a call is not the beginning of anything behind it.
            OutputEvent::CallOpened(name) => {
                self.release(sink);
                self.emit(Event::CallOpened(name), sink);
            }
            OutputEvent::CallArguments(text) => self.emit(Event::CallArguments(text), sink),
            OutputEvent::ToolCall(call) => {
                self.release(sink);
                self.tool_calls.push(call.clone());
                self.emit(Event::ToolCall(call), sink);
            }
        }
    }
}

/// Shows what was held back.
fn flush(reader: Reader<'_>, out: &mut Shown, finish: Finish, sink: Sink<'_>) -> Option<ParsedOutput> {
    let parsed = match reader {
        Reader::Ids => None,
        Reader::Raw(mut decoder) => {
            let mut text = String::new();
            decoder.finish(&mut text);
            out.visible(&text, sink);
            None
        }
        Reader::Chat(parser) => {
            let end = if finish == Finish::Stop { End::Stop } else { End::Length };
            Some(parser.finish(end, &mut |event| out.event(event, sink)))
        }
    };
    out.release(sink);
    parsed
}

/// The clock of a call, and the counters at its start.
struct Clock {
    start: Instant,
    before: Counters,
}

impl Clock {
    fn start(before: Counters) -> Self {
        Self { start: Instant::now(), before }
    }

    fn timings(
        &self,
        prefilled: Option<Instant>,
        first: Option<Instant>,
        fed: usize,
        made: usize,
        after: Counters,
    ) -> Timings {
        let now = Instant::now();
        let since = |at: Instant| at.duration_since(self.start);
        let prefill = prefilled.map_or(now.duration_since(self.start), since);
        let decode = first.map_or(Duration::ZERO, |first| now.duration_since(first));
        let hits = after.hits.saturating_sub(self.before.hits);
        let asked = hits + after.misses.saturating_sub(self.before.misses);
        Timings {
            prefill_seconds: prefill.as_secs_f64(),
            prefill_tokens_per_second: prefilled.and_then(|_| rate(fed, prefill)),
            time_to_first_token_seconds: first.map(|first| since(first).as_secs_f64()),
            decode_seconds: decode.as_secs_f64(),
            decode_tokens_per_second: rate(made.saturating_sub(1), decode),
            total_seconds: now.duration_since(self.start).as_secs_f64(),
            expert_hit_rate: (asked > 0).then(|| hits as f64 / asked as f64),
            expert_bytes_read: after.bytes_read.saturating_sub(self.before.bytes_read),
            peak_rss_bytes: memory::process().peak_rss,
        }
    }
}

fn rate(count: usize, time: Duration) -> Option<f64> {
    (count > 0 && !time.is_zero()).then(|| count as f64 / time.as_secs_f64())
}
