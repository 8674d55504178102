//! Conversations side by side, in an engine that keeps what it can and in one that keeps nothing.

use crate::fixture::{Fixture, exact, generate, greedy, ids};
use fieldfare::engine::{Cancel, Engine, EngineOptions, GenerateOptions, Reuse};
use fieldfare::sample::Sampling;
use std::ops::ControlFlow;

/// Ids that a generation prompt ends in and that history does not have.
const EMPTY_THOUGHT: usize = 4;

#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// The next turn of a conversation, with so many new ids and so long an answer.
    Turn(usize, usize, usize),
    /// A conversation is cut at this share of its length, in 16ths, and goes on otherwise.
    Edit(usize, usize, usize),
    /// Another conversation begins like this one.
    Branch(usize, usize),
    /// A short prompt of its own.
    Title(usize),
    /// The end of a conversation is scored.
    Score(usize, usize),
}

/// Ids that nobody else has: different at each call.
struct Words(u32);

impl Words {
    fn take(&mut self, count: usize) -> Vec<u32> {
        let mut word = || {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            200 + (self.0 >> 16) % 300
        };
        (0..count).map(|_| word()).collect()
    }
}

/// The bits of the scores of what follows position `first`, and what is likeliest there.
fn score(engine: &mut Engine, ids: &[u32], first: usize) -> Vec<(u32, u32)> {
    let mut go_on = |_| ControlFlow::Continue(());
    let scores = engine.session().score_from(ids, first, 3, &Cancel::new(), &mut go_on).expect("it scores");
    let top = scores.top.iter().flatten().map(|best| (best.id, best.logprob.to_bits()));
    top.chain(scores.logprobs.iter().map(|logprob| (0, logprob.to_bits()))).collect()
}

pub(crate) struct Rig {
    pub(crate) kept: Engine,
    fresh: Engine,
    words: Words,
    /// The next prompt of each conversation, less what it asks.
    talks: Vec<Vec<u32>>,
    pub(crate) met: Vec<Reuse>,
    pub(crate) cached: usize,
}

impl Rig {
    /// `kept` beside an engine on `other` that starts anew each time; four conversations.
    pub(crate) fn new(kept: Engine, other: &Fixture) -> Self {
        let fresh = other.open(EngineOptions { conversations: 0, ..exact() });
        let talks = vec![ids("prompt_ids")[..20].to_vec(); 4];
        Self { kept, fresh, words: Words(7), talks, met: Vec::new(), cached: 0 }
    }

    pub(crate) fn step(&mut self, step: &Step) {
        match *step {
            Step::Turn(at, new, answer) => {
                let mut prompt = self.talks[at].clone();
                prompt.extend(self.words.take(new));
                prompt.extend([7; EMPTY_THOUGHT]);
                if prompt.len() + answer > 250 {
                    self.talks[at] = self.words.take(3);
                    return;
                }
                let made = self.answer(&prompt, answer);
                prompt.truncate(prompt.len() - EMPTY_THOUGHT);
                prompt.extend(made);
                self.talks[at] = prompt;
            }
            Step::Edit(at, share, new) => {
                let keep = self.talks[at].len() * share / 16;
                self.talks[at].truncate(keep);
                let more = self.words.take(new);
                self.talks[at].extend(more);
            }
            Step::Branch(from, to) => self.talks[to] = self.talks[from].clone(),
            Step::Title(len) => {
                let prompt = self.words.take(len);
                self.answer(&prompt, 3);
            }
            Step::Score(at, new) => {
                let mut ids = self.talks[at].clone();
                ids.extend(self.words.take(new));
                ids.truncate(250);
                let first = ids.len().saturating_sub(new).max(1);
                self.fresh.session().clear();
                assert_eq!(score(&mut self.kept, &ids, first), score(&mut self.fresh, &ids, first));
            }
        }
    }

    fn answer(&mut self, prompt: &[u32], made: usize) -> Vec<u32> {
        let options = GenerateOptions {
            stop_ids: Some(Vec::new()),
            sampling: Sampling { temperature: 1.5, seed: Some(prompt.len() as u64), ..Sampling::default() },
            ..greedy(made.max(1))
        };
        self.fresh.session().clear();
        let wanted = generate(&mut self.fresh, prompt, &options);
        let found = generate(&mut self.kept, prompt, &options);
        assert_eq!(wanted.cached_tokens, 0);
        assert_eq!(found.token_ids, wanted.token_ids, "{:?}, {} cached", found.reuse, found.cached_tokens);
        self.met.push(found.reuse);
        self.cached += found.cached_tokens;
        found.token_ids
    }
}
