//! Looking ahead while tokens are generated: the next layer's router, asked about the input of that layer, guesses which
//! experts it is going to choose when attention has been added. They are read under the attention, when the disk has
//! nothing else to do.
//!
//! A guess costs a product of one row with a small matrix, and bytes where it is wrong. So it is measured what it brings:
//! the share of chosen experts that were guessed, and the time of a token with and without, token by token in turns. In
//! [`LookAhead::Auto`] it is done only while both say that it pays. A step that several texts share goes by what was
//! found out about single ones.
//!
//! A prompt looks ahead too, earlier: its rows are asked when their layer's experts are known, so that reads for the next
//! layer follow those of this one at once. One of so many tokens that nearly all experts are wanted asks nobody.

use super::forward::{AHEAD_ROWS, Pass};
use super::guess::Guess;
use super::options::LookAhead;
use super::scratch::{Routed, Scratch};
use super::weights::FeedForwardWeights;
use crate::store::ExpertStore;
use std::time::{Duration, Instant};

/// Share of the chosen experts that must be guessed.
const LEAST_RECALL: f64 = 0.6;
/// Tokens of a trial, every other one without.
const TRIAL_TOKENS: u32 = 32;
/// Tokens for which its outcome counts.
const SETTLED_TOKENS: u32 = 256;
/// Tokens of a trial after which too little recall ends it.
const FIRST_TOKENS: u32 = 8;
/// Rows of a prompt that are asked, the last ones.
const PROMPT_ROWS: usize = 64;
/// Guesses for a layer of a prompt by which their worth is judged: about as many as there are places for.
const PROMPT_GUESSES: usize = 16;
/// Guesses for a prompt after which too many wrong ones end it.
const FIRST_GUESSES: u64 = 48;

/// What was guessed and found, for the statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Experts chosen where there was a guess.
    pub(super) chosen: u64,
    /// Of these, guessed ones.
    pub(super) guessed: u64,
}

/// Time and misses of tokens.
#[derive(Debug, Clone, Copy, Default)]
struct Arm {
    tokens: u32,
    seconds: f64,
    misses: u64,
}

impl Arm {
    fn note(&mut self, seconds: f64, misses: u64) {
        self.tokens += 1;
        self.seconds += seconds;
        self.misses += misses;
    }

    /// Seconds of a token, were there `misses` of them.
    fn seconds_at(&self, misses: f64, seconds_per_miss: f64) -> f64 {
        let tokens = f64::from(self.tokens.max(1));
        self.seconds / tokens + (misses - self.misses as f64 / tokens) * seconds_per_miss
    }
}

/// What the measurements have come to.
#[derive(Debug, Clone, Copy)]
enum Phase {
    Trial { with: Arm, without: Arm },
    Settled { on: bool, left: u32 },
}

/// Decides, token by token, whether to look ahead.
#[derive(Debug)]
struct Judge {
    mode: LookAhead,
    phase: Phase,
    /// Since the trial began.
    found: Found,
}

impl Judge {
    fn new(mode: LookAhead) -> Self {
        Self { mode, phase: Self::trial(), found: Found::default() }
    }

    fn trial() -> Phase {
        Phase::Trial { with: Arm::default(), without: Arm::default() }
    }

    /// Whether the next token is read ahead for.
    fn reads(&self) -> bool {
        match (self.mode, self.phase) {
            (LookAhead::On, _) => true,
            (LookAhead::Off, _) => false,
            (LookAhead::Auto, Phase::Trial { with, without }) => with.tokens <= without.tokens,
            (LookAhead::Auto, Phase::Settled { on, .. }) => on,
        }
    }

    /// Whether a step that several texts share is read ahead for. It is not timed: no two have the same texts.
    fn reads_shared(&self) -> bool {
        match self.phase {
            Phase::Trial { .. } if self.mode == LookAhead::Auto => {
                self.found.chosen == 0 || self.recall() >= LEAST_RECALL
            }
            _ => self.reads(),
        }
    }

    fn recall(&self) -> f64 {
        self.found.guessed as f64 / self.found.chosen.max(1) as f64
    }

    /// A token is over that was read ahead for, or not.
    fn note(&mut self, read: bool, seconds: f64, misses: u64, seconds_per_miss: f64) {
        let recall = self.recall();
        match &mut self.phase {
            Phase::Trial { with, without } => {
                let arm = if read { &mut *with } else { &mut *without };
                arm.note(seconds, misses);
                let tokens = with.tokens + without.tokens;
                let forgets = tokens >= FIRST_TOKENS && recall < LEAST_RECALL;
                if forgets || tokens >= TRIAL_TOKENS {
                    let misses = (with.misses + without.misses) as f64 / f64::from(tokens);
                    let faster = with.seconds_at(misses, seconds_per_miss)
                        < without.seconds_at(misses, seconds_per_miss);
                    self.phase = Phase::Settled { on: !forgets && faster, left: SETTLED_TOKENS };
                }
            }
            Phase::Settled { left, .. } => {
                *left -= 1;
                if *left == 0 {
                    self.phase = Self::trial();
                    self.found = Found::default();
                }
            }
        }
    }
}

/// Guesses for a model of one shape.
#[derive(Debug)]
pub(super) struct Looker {
    judge: Judge,
    guess: Guess,
    /// All experts, ascending.
    all: Vec<usize>,
    /// How long the disk has had nothing to do between a guess and the layer's request, of late.
    window: f64,
    since: Option<Instant>,
    reads: bool,
    found: Found,
    /// The prompt at hand may want something that is not held.
    lacks: bool,
    /// Of it: guesses judged, and right ones.
    prompt: Found,
}

impl Looker {
    pub(super) fn new(mode: LookAhead, experts: usize) -> Self {
        Self {
            judge: Judge::new(mode),
            guess: Guess::new(experts),
            all: (0..experts).collect(),
            window: 0.0,
            since: None,
            reads: false,
            found: Found::default(),
            lacks: true,
            prompt: Found::default(),
        }
    }

    /// What was guessed and found so far.
    pub(super) fn found(&self) -> Found {
        self.found
    }

    /// Whether experts are read ahead now.
    pub(super) fn is_on(&self) -> bool {
        self.reads
    }

    /// A token begins.
    pub(super) fn begin_token(&mut self, store: &ExpertStore) {
        self.guess.clear();
        self.reads = store.spares() > 0 && self.judge.reads();
    }

    /// A step of several texts begins.
    pub(super) fn begin_shared(&mut self, store: &ExpertStore) {
        self.guess.clear();
        self.reads = store.spares() > 0 && self.judge.reads_shared();
    }

    /// A token is over that took so long and asked for so many experts that were not held.
    pub(super) fn end_token(&mut self, store: &ExpertStore, time: Duration, misses: u64) {
        if store.spares() == 0 {
            return;
        }
        let stats = store.stats();
        let per_miss = stats.read_time.as_secs_f64() / stats.misses.max(1) as f64;
        self.judge.note(self.reads, time.as_secs_f64(), misses, per_miss);
    }

    /// Guesses the experts of a layer, whose input is `x`, and has them read: a row, or one of each text.
    pub(super) fn guess(
        &mut self,
        pass: &mut Pass<'_>,
        next: (usize, &FeedForwardWeights),
        store: &mut ExpertStore,
        (rows, x): (usize, &[f32]),
        s: &mut Scratch,
    ) {
        if !self.reads {
            return;
        }
        let guesses = self.guess.make(pass, next, 0..rows, x, s);
        let stats = store.stats();
        let rate = stats.bytes_read as f64 / stats.read_time.as_secs_f64().max(1e-9);
        let blobs = (self.window * rate / store.stride().max(1) as f64).ceil();
        store.look_ahead(next.0, guesses, (blobs as usize).max(1));
        self.since = Some(Instant::now());
    }

    /// A prompt begins.
    pub(super) fn begin_prompt(&mut self, store: &ExpertStore) {
        self.guess.clear();
        self.lacks = !store.holds_all();
        self.prompt = Found::default();
    }

    /// The experts of a layer that are worth reading for a prompt of so many rows whose residual is `x`, the likeliest first.
    pub(super) fn foresee(
        &mut self,
        pass: &mut Pass<'_>,
        next: (usize, &FeedForwardWeights),
        (rows, x): (usize, &[f32]),
        s: &mut Scratch,
    ) -> &[usize] {
        if !self.lacks {
            return &[];
        }
        if rows >= AHEAD_ROWS {
            return &self.all;
        }
        let Found { chosen, guessed } = self.prompt;
        let pays = chosen < FIRST_GUESSES || guessed as f64 >= LEAST_RECALL * chosen as f64;
        match self.judge.mode {
            LookAhead::Off => &[],
            LookAhead::Auto if !pays => &[],
            _ => self.guess.make(pass, next, rows.saturating_sub(PROMPT_ROWS)..rows, x, s),
        }
    }

    /// What is wanted of a layer is known.
    pub(super) fn check(&mut self, layer: usize, routed: &Routed, is_prompt: bool) {
        let Some(guesses) = self.guess.of(layer) else { return };
        if is_prompt {
            let judged = &guesses[..guesses.len().min(PROMPT_GUESSES)];
            self.prompt.chosen += judged.len() as u64;
            self.prompt.guessed += judged.iter().filter(|&&expert| routed.is_wanted(expert)).count() as u64;
        } else {
            let guessed = routed.uses().filter(|expert| guesses.contains(expert)).count() as u64;
            for found in [&mut self.found, &mut self.judge.found] {
                found.chosen += routed.uses().count() as u64;
                found.guessed += guessed;
            }
            if let Some(since) = self.since.take() {
                self.window += (since.elapsed().as_secs_f64() - self.window) / 32.0;
            }
        }
        self.guess.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs tokens with the given times until the judge has decided.
    fn decide(judge: &mut Judge, recall: u64, with: f64, without: f64) -> (u32, bool) {
        for token in 1..=TRIAL_TOKENS {
            let read = judge.reads();
            if read {
                judge.found.chosen += 100;
                judge.found.guessed += recall;
            }
            // Tokens without happen to miss more: that is not to look like a gain.
            let misses = if read { 10 } else { 14 };
            let seconds = if read { with } else { without + 4.0 * 0.01 };
            judge.note(read, seconds, misses, 0.01);
            if let Phase::Settled { on, .. } = judge.phase {
                return (token, on);
            }
        }
        panic!("no end");
    }

    #[test]
    fn it_is_done_while_it_pays() {
        let auto = || Judge::new(LookAhead::Auto);
        assert_eq!(decide(&mut auto(), 70, 0.30, 0.31), (TRIAL_TOKENS, true));
        assert_eq!(decide(&mut auto(), 70, 0.31, 0.30), (TRIAL_TOKENS, false));
        assert_eq!(decide(&mut auto(), 59, 0.30, 0.31), (FIRST_TOKENS, false));
        let mut judge = auto();
        decide(&mut judge, 70, 0.30, 0.31);
        assert!(judge.reads());
        for _ in 0..SETTLED_TOKENS {
            judge.note(true, 1.0, 1, 0.1);
        }
        assert!(matches!(judge.phase, Phase::Trial { .. }), "and tried again later");
        assert_eq!(decide(&mut judge, 70, 0.31, 0.30), (TRIAL_TOKENS, false));
        assert!(!judge.reads());
    }

    #[test]
    fn on_and_off_are_not_judged() {
        let (mut on, mut off) = (Judge::new(LookAhead::On), Judge::new(LookAhead::Off));
        for _ in 0..2 * SETTLED_TOKENS {
            assert!(on.reads() && !off.reads());
            on.note(true, 9.0, 1, 0.1);
            off.note(false, 9.0, 1, 0.1);
        }
    }
}
