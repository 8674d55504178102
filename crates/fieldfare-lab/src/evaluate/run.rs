//! Runs cases and reference sequences on one engine or on several side by side.
//!
//! A small model's matrices are too small to keep two cores busy with one token, so several engines of one thread each get
//! through the cases sooner than one of several threads. What each case gives is put in the order of the cases before
//! anything is summed, so the figures do not depend on who did what.

use super::Options;
use super::case::Case;
use super::reference::{Comparison, Sequence, Sums, compare};
use super::reply::Reply;
use super::report::{Cost, Failure, Tally};
use anyhow::{Context as _, Result, anyhow};
use fieldfare::engine::{Cancel, Engine, GenerateOptions, OutputMode, Session};
use fieldfare::sample::Sampling;
use fieldfare::tokenizer::Tokenizer;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Tokens that a reply may have beyond the wanted one's length before it counts as endless.
const SLACK: usize = 32;
/// Neighbouring cases that one engine takes at a time: they may have a beginning in common.
const BATCH: usize = 8;

/// What is to be done, and how far it is.
pub(super) struct Work<'a> {
    pub(super) options: &'a Options,
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) cases: &'a [Case],
    pub(super) sequences: &'a [Sequence],
    next: AtomicUsize,
    bar: indicatif::ProgressBar,
}

/// What one engine did, each with its place.
#[derive(Default)]
struct Part {
    answers: Vec<(usize, Answer)>,
    compared: Vec<(usize, Sums)>,
    work: Stats,
}

/// Counters of all engines.
#[derive(Clone, Copy, Default)]
pub(super) struct Stats {
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) read_tokens: u64,
}

/// The outcome of one case.
struct Answer {
    reply: Reply,
    right: bool,
    thought: Result<(), String>,
    nll: f64,
    reused_tokens: usize,
    made_seconds: f64,
}

/// The outcome of all.
#[derive(Default)]
pub(super) struct Done {
    pub(super) tally: Tally,
    pub(super) cost: Cost,
    pub(super) stats: Stats,
    /// Wrong replies to be shown, by group.
    pub(super) failures: BTreeMap<String, Vec<Failure>>,
    pub(super) comparison: Comparison,
}

impl<'a> Work<'a> {
    /// Nothing done yet.
    pub(super) fn new(
        options: &'a Options,
        tokenizer: &'a Tokenizer,
        cases: &'a [Case],
        sequences: &'a [Sequence],
    ) -> Self {
        let bar = indicatif::ProgressBar::new((cases.len() + sequences.len()) as u64);
        Self { options, tokenizer, cases, sequences, next: AtomicUsize::new(0), bar }
    }

    /// Does everything on `engine` and `more` others that `open` gives.
    ///
    /// # Errors
    /// Those of the model, and of `open`.
    pub(super) fn run(
        &self,
        engine: &mut Engine,
        more: usize,
        open: &(dyn Fn() -> Result<Engine> + Sync),
    ) -> Result<Done> {
        let parts = std::thread::scope(|scope| {
            let others: Vec<_> = (0..more)
                .map(|_| scope.spawn(|| self.stopping(open().and_then(|mut e| self.part(&mut e)))))
                .collect();
            let own = self.stopping(self.part(engine));
            let joined = others.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|_| Err(anyhow!("a thread of the evaluation panicked")))
            });
            std::iter::once(own).chain(joined).collect::<Result<Vec<Part>>>()
        })?;
        self.bar.finish_and_clear();
        let (mut answers, mut compared, mut done) = (Vec::new(), Vec::new(), Done::default());
        for part in parts {
            answers.extend(part.answers);
            compared.extend(part.compared);
            done.stats.hits += part.work.hits;
            done.stats.misses += part.work.misses;
            done.stats.read_tokens += part.work.read_tokens;
        }
        answers.sort_by_key(|&(at, _)| at);
        compared.sort_by_key(|&(at, _)| at);
        for (at, answer) in answers {
            done.add(&self.cases[at], answer, self.options.show_failures);
        }
        done.comparison = Comparison::of(compared.iter().map(|(_, sums)| sums));
        Ok(done)
    }

    /// After a failure nobody takes more.
    fn stopping<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.next.store(usize::MAX / 2, Ordering::Relaxed);
        }
        result
    }

    /// Takes what is left until nothing is: cases first, in batches, then sequences.
    fn part(&self, engine: &mut Engine) -> Result<Part> {
        let mut part = Part::default();
        let batches = self.cases.len().div_ceil(BATCH);
        loop {
            let turn = self.next.fetch_add(1, Ordering::Relaxed);
            if turn < batches {
                let mut session = engine.session();
                for at in turn * BATCH..self.cases.len().min((turn + 1) * BATCH) {
                    let case = &self.cases[at];
                    let answer =
                        self.answer(&mut session, case).with_context(|| format!("case {}", case.id))?;
                    part.answers.push((at, answer));
                    self.bar.inc(1);
                }
            } else if let Some(sequence) = self.sequences.get(turn - batches) {
                part.compared.push((turn - batches, compare(engine.runner_mut(), sequence)?));
                self.bar.inc(1);
            } else {
                break;
            }
        }
        let stats = engine.stats();
        part.work = Stats { hits: stats.hits, misses: stats.misses, read_tokens: stats.prefill_tokens };
        Ok(part)
    }

    /// Lets the model answer, then scores the wanted reply.
    fn answer(&self, session: &mut Session<'_>, case: &Case) -> Result<Answer> {
        let options = GenerateOptions {
            sampling: Sampling { temperature: 0.0, ..Sampling::default() },
            max_new: self.options.max_new.max(case.target.len() + SLACK),
            mode: OutputMode::Chat {
                starts_in_reasoning: case.starts_in_reasoning,
                tools: case.tools.clone(),
            },
            ..GenerateOptions::default()
        };
        let cancel = Cancel::new();
        let generation =
            session.generate(&case.prompt, &options, &cancel, &mut |_| ControlFlow::Continue(()))?;
        let (reused_tokens, made_seconds) = (generation.cached_tokens, generation.timings.decode_seconds);
        let ids = [&case.prompt[..], &case.target].concat();
        let mut go_on = |_| ControlFlow::Continue(());
        let scores = session.score_from(&ids, case.prompt.len(), 0, &cancel, &mut go_on)?;
        let reply = Reply::of(generation);
        Ok(Answer {
            right: reply.fault.is_none() && case.rule.right(&reply.content, &reply.calls),
            thought: reply.thought(case, self.tokenizer),
            nll: scores.logprobs.iter().map(|&logprob| -f64::from(logprob)).sum(),
            reused_tokens,
            made_seconds,
            reply,
        })
    }
}

impl Done {
    fn add(&mut self, case: &Case, answer: Answer, show: usize) {
        let tally = &mut self.tally;
        tally.groups.entry(case.group.clone()).or_default().add(answer.right);
        let count = if case.thinking { &mut tally.thoughts } else { &mut tally.no_thoughts };
        count.add(answer.thought.is_ok());
        tally.nll += answer.nll;
        tally.targets += case.target.len();
        self.cost.reused_tokens += answer.reused_tokens as u64;
        self.cost.made_tokens += answer.reply.tokens() as u64;
        self.cost.made_seconds += answer.made_seconds;
        let reason = match (answer.right, answer.thought) {
            (true, Ok(())) => return,
            (false, Ok(())) => "wrong".to_owned(),
            (true, Err(reason)) => reason,
            (false, Err(reason)) => format!("wrong; {reason}"),
        };
        let kept = self.failures.entry(case.group.clone()).or_default();
        if kept.len() < show {
            kept.push(Failure {
                id: case.id.clone(),
                group: case.group.clone(),
                reason,
                wanted: case.expect.to_string(),
                got: answer.reply.shown(),
            });
        }
    }
}
