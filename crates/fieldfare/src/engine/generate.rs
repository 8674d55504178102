//! The token loop: read the prompt, choose, show, feed, until something ends it.

use super::conversations::Reuse;
use super::event::{Event, Finish, Generation, Scores, Timings, TokenScore};
use super::options::{Cancel, GenerateOptions, OutputMode};
use super::score;
use super::session::{Counters, Session};
use crate::chat::{End, OutputEvent, OutputParser, ParsedCall, ParsedOutput};
use crate::model::Forward;
use crate::sample::{Sampler, StopStrings};
use crate::sys::memory;
use crate::tokenizer::{StreamDecoder, Tokenizer};
use crate::{Error, Result};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

type Sink<'s> = &'s mut dyn FnMut(Event<'_>) -> ControlFlow<()>;

/// Runs one generation. The prompt is checked already.
pub(super) fn run<F: Forward>(
    session: &mut Session<'_, F>,
    prompt: &[u32],
    options: &GenerateOptions,
    cancel: &Cancel,
    sink: Sink<'_>,
) -> Result<Generation> {
    let rules = Rules::new(session, options);
    let guide = options.plan.as_ref().map(|plan| plan.guide(&rules.stop)).transpose()?;
    let mut sampler = Sampler::new(&options.sampling, session.forward.vocab_size())?.guided(guide);
    let reader = Reader::new(session, options)?;
    StopStrings::validate(&options.stop)?;
    let out = Out::new(sink, StopStrings::new(options.stop.clone()));
    let clock = Clock::start((session.counters)(session.forward));
    let prompt_scores = options
        .prompt_logprobs
        .map(|top| score::run(session, prompt, 1, top, cancel, &mut |_| ControlFlow::Continue(())))
        .transpose()?;
    let tokenizer = session.tokenizer;
    let mut made = Made {
        reader,
        out,
        tokenizer,
        token_ids: Vec::new(),
        fed: 0,
        cached_tokens: 0,
        reuse: Reuse::default(),
        first: None,
        prefilled: None,
        prompt_scores,
    };
    let finish = if options.max_new == 0 {
        Finish::Length
    } else {
        token_loop(session, prompt, options.max_new, &rules, &mut sampler, &mut made, cancel)?
    };
    let counters = (session.counters)(session.forward);
    Ok(made.finish(finish, prompt.len(), sampler.seed(), &clock, counters))
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
    fn new<F: Forward>(session: &Session<'_, F>, options: &GenerateOptions) -> Self {
        let control = session.tokenizer.map(Tokenizer::control);
        let suppress = match (&options.suppress, control, &options.mode) {
            (Some(ids), _, _) => ids.clone(),
            (None, None, _) => Vec::new(),
            (None, Some(control), OutputMode::Raw) => control.media(),
            (None, Some(control), OutputMode::Chat { .. }) => control.suppressed(),
        };
        let vocabulary = session.forward.vocab_size();
        Self {
            stop: options.stop_ids.clone().unwrap_or_else(|| session.stop_ids.to_vec()),
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

fn token_loop<F: Forward>(
    session: &mut Session<'_, F>,
    prompt: &[u32],
    max_new: usize,
    rules: &Rules,
    sampler: &mut Sampler,
    made: &mut Made<'_, '_>,
    cancel: &Cancel,
) -> Result<Finish> {
    for &id in prompt {
        sampler.accept_prompt(id);
    }
    let Some(mut next) = read_prompt(session, prompt, rules, sampler, made, cancel)? else {
        return Ok(Finish::Cancelled);
    };
    made.prefilled = Some(Instant::now());
    loop {
        if cancel.is_cancelled() || made.out.broken {
            return Ok(Finish::Cancelled);
        }
        made.first.get_or_insert_with(Instant::now);
        let id = next.id;
        if rules.stop.contains(&id) {
            return Ok(Finish::Stop);
        }
        sampler.accept(id);
        made.push(next);
        if made.out.stopped || made.reader.is_done() || sampler.is_over() {
            return Ok(Finish::Stop);
        }
        let full = session.forward.position() >= session.forward.max_context();
        if full || made.token_ids.len() >= max_new {
            return Ok(Finish::Length);
        }
        if cancel.is_cancelled() || made.out.broken {
            return Ok(Finish::Cancelled);
        }
        session.conversations.make_space(session.forward, 1, 0);
        let count = made.token_ids.len();
        let result = session.forward.decode(id).and_then(|logits| rules.choose(logits, sampler, count));
        match result {
            Ok(chosen) => {
                session.conversations.push(id);
                next = chosen;
            }
            Err(error) => {
                // It may be the choice that failed: then the model has been fed.
                session.conversations.push(id);
                session.conversations.truncate(session.forward.position());
                return Err(error);
            }
        }
    }
}

/// Feeds what the cache lacks of the prompt and chooses the first token; `None` if the caller asked to stop.
fn read_prompt<F: Forward>(
    session: &mut Session<'_, F>,
    prompt: &[u32],
    rules: &Rules,
    sampler: &mut Sampler,
    made: &mut Made<'_, '_>,
    cancel: &Cancel,
) -> Result<Option<Choice>> {
    let (reused, reuse) = session.converse(prompt);
    let total = prompt.len();
    (made.cached_tokens, made.reuse) = (reused, reuse);
    let out = &mut made.out;
    out.emit(Event::Prefill { done: reused, total });
    if cancel.is_cancelled() || out.broken {
        return Ok(None);
    }
    let mut progress = |done: usize| {
        out.emit(Event::Prefill { done: (reused + done).min(total), total });
        if cancel.is_cancelled() || out.broken { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let result = session
        .forward
        .prefill(&prompt[reused..], &mut progress)
        .and_then(|logits| rules.choose(logits, sampler, 0));
    made.fed = total - reused;
    match result {
        Ok(choice) => {
            session.conversations.set(prompt);
            Ok(Some(choice))
        }
        Err(error) => {
            session.resync(prompt);
            let asked = cancel.is_cancelled() || made.out.broken;
            if matches!(error, Error::Cancelled) && asked { Ok(None) } else { Err(error) }
        }
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
    fn new<F: Forward>(session: &Session<'t, F>, options: &GenerateOptions) -> Result<Self> {
        let wanted = !options.stop.is_empty() || options.mode != OutputMode::Raw;
        if wanted {
            session.require_tokenizer()?;
        }
        let Some(tokenizer) = session.tokenizer else { return Ok(Self::Ids) };
        Ok(match &options.mode {
            OutputMode::Raw => Self::Raw(tokenizer.stream(true, true)),
            OutputMode::Chat { starts_in_reasoning, tools } => {
                Self::Chat(Box::new(OutputParser::new(tokenizer, tools.clone(), *starts_in_reasoning)))
            }
        })
    }

    /// Whether the message is over by its own account.
    fn is_done(&self) -> bool {
        matches!(self, Self::Chat(parser) if parser.is_done())
    }
}

/// Where events go, and what was shown.
struct Out<'s> {
    sink: Sink<'s>,
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

impl<'s> Out<'s> {
    fn new(sink: Sink<'s>, stops: StopStrings) -> Self {
        Self {
            sink,
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

    fn emit(&mut self, event: Event<'_>) {
        if !self.broken && (self.sink)(event).is_break() {
            self.broken = true;
        }
    }

    /// Visible text: what cannot be the beginning of a stop string is shown.
    fn visible(&mut self, text: &str) {
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
        self.show(&certain);
    }

    fn show(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let end = self.text.len() + text.len();
        let ready = self.held.iter().take_while(|score| score.start < end).count();
        if ready > 0 {
            let ready: Vec<TokenScore> = self.held.drain(..ready).collect();
            self.emit(Event::Scores(&ready));
            self.scores.extend(ready);
        }
        self.text.push_str(text);
        self.emit(Event::Text(text));
    }

    /// Shows what was held back, unless a stop string ended the text.
    fn release(&mut self) {
        if !self.stopped {
            let mut rest = String::new();
            self.stops.finish(&mut rest);
            self.show(&rest);
        }
    }

    fn event(&mut self, event: OutputEvent<'_>) {
        match event {
            OutputEvent::Content(text) => self.visible(text),
            OutputEvent::Reasoning(text) => {
                self.reasoning.push_str(text);
                self.emit(Event::Reasoning(text));
            }
            OutputEvent::ToolCall(call) => {
                // Text before a call is not the beginning of anything behind it.
                self.release();
                self.tool_calls.push(call.clone());
                self.emit(Event::ToolCall(call));
            }
        }
    }
}

/// What the loop has made so far.
struct Made<'t, 's> {
    reader: Reader<'t>,
    out: Out<'s>,
    tokenizer: Option<&'t Tokenizer>,
    prompt_scores: Option<Scores>,
    token_ids: Vec<u32>,
    /// Prompt tokens fed.
    fed: usize,
    cached_tokens: usize,
    reuse: Reuse,
    /// When the first token was chosen.
    first: Option<Instant>,
    /// When the prompt was read.
    prefilled: Option<Instant>,
}

impl Made<'_, '_> {
    fn push(&mut self, choice: Choice) {
        let id = choice.id;
        self.out.coming = choice.score.filter(|_| self.is_text(id)).map(|score| (score, self.own_bytes(id)));
        self.token_ids.push(id);
        self.out.emit(Event::Token { id });
        match &mut self.reader {
            Reader::Ids => {}
            Reader::Raw(decoder) => {
                let mut text = String::new();
                decoder.push(id, &mut text);
                self.out.visible(&text);
            }
            Reader::Chat(parser) => parser.push(id, &mut |event| self.out.event(event)),
        }
        if let Some((score, _)) = self.out.coming.take() {
            self.out.held.push_back(TokenScore { start: self.out.offered, ..score });
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

    fn finish(
        self,
        finish: Finish,
        prompt_tokens: usize,
        seed: u64,
        clock: &Clock,
        counters: Counters,
    ) -> Generation {
        let mut out = self.out;
        let parsed = flush(self.reader, &mut out, finish);
        let finish = match (finish, parsed.as_ref().map(|p| p.finish)) {
            (Finish::Cancelled, _) => Finish::Cancelled,
            (_, Some(End::ToolCalls)) => Finish::ToolCalls,
            // The last bytes may have completed a stop string.
            (Finish::Length, _) if out.stopped => Finish::Stop,
            (finish, _) => finish,
        };
        Generation {
            text: out.text,
            reasoning: Some(out.reasoning).filter(|r| !r.is_empty()),
            tool_calls: out.tool_calls,
            truncated_tool_call: parsed.as_ref().is_some_and(|p| p.truncated_tool_call),
            call_error: parsed.and_then(|p| p.error),
            scores: out.scores,
            prompt_scores: self.prompt_scores,
            finish,
            seed,
            prompt_tokens,
            cached_tokens: self.cached_tokens,
            reuse: self.reuse,
            timings: clock.timings(self.prefilled, self.first, self.fed, self.token_ids.len(), counters),
            token_ids: self.token_ids,
        }
    }
}

/// Shows what was held back.
fn flush(reader: Reader<'_>, out: &mut Out<'_>, finish: Finish) -> Option<ParsedOutput> {
    let parsed = match reader {
        Reader::Ids => None,
        Reader::Raw(mut decoder) => {
            let mut text = String::new();
            decoder.finish(&mut text);
            out.visible(&text);
            None
        }
        Reader::Chat(parser) => {
            let end = if finish == Finish::Stop { End::Stop } else { End::Length };
            Some(parser.finish(end, &mut |event| out.event(event)))
        }
    };
    out.release();
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
