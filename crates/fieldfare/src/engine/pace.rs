//! How many texts share a step: measured, because it depends on what they ask for. Where all experts are in memory, a step
//! of many reads the weights once for all of them. Where different texts compete for a few slots, they push each other's
//! experts out, and one after the other may be more.
//!
//! Tokens a second of a dozen steps with one text, and of as many with as many as may be, say which it is; it is asked again
//! later, the later the more often the answer was the same. A trial begins with one alone, which costs nothing where that is
//! the better way, and the steps of many end early where they are clearly slower: short answers would feel a long trial.

use serde::Serialize;

/// Steps of each kind in a trial.
const STEPS: u32 = 16;
/// Of these, the first, which are not counted: the slots still hold what the other kind wanted.
const FIRST: u32 = 4;
/// Counted steps of many after which they may have lost, and the share of one's rate below which they have.
const LOST: (u32, f64) = (2, 0.9);
/// Steps for which an outcome counts at first, and at most.
const SETTLED: (u32, u32) = (256, 4096);

/// What is known of sharing steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sharing {
    /// Texts that may share a step.
    pub most: usize,
    /// Texts that may do so now.
    pub now: usize,
    /// Tokens a second of steps with several texts, as last measured.
    pub together: Option<f64>,
    /// Tokens a second of steps with one.
    pub alone: Option<f64>,
    /// Trials that came to an end.
    pub trials: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Arm {
    steps: u32,
    tokens: u32,
    seconds: f64,
}

impl Arm {
    fn note(&mut self, texts: usize, seconds: f64) {
        self.steps += 1;
        if self.steps > FIRST {
            self.tokens += u32::try_from(texts).unwrap_or(u32::MAX);
            self.seconds += seconds;
        }
    }

    fn is_over(&self) -> bool {
        self.steps >= STEPS
    }

    /// Whether it is clear already that the other way makes more.
    fn has_lost(&self, other: f64) -> bool {
        self.steps >= FIRST + LOST.0 && self.rate() < LOST.1 * other
    }

    fn rate(&self) -> f64 {
        f64::from(self.tokens) / self.seconds.max(1e-9)
    }
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Trial { alone: Arm, together: Arm },
    Settled { together: bool, left: u32 },
}

/// Decides, step by step, how many texts share it.
#[derive(Debug)]
pub(super) struct Pace {
    phase: Phase,
    sharing: Sharing,
    /// Steps for which the next outcome counts if it is the same.
    interval: u32,
    last: Option<bool>,
    /// Several always share, whatever it brings.
    fixed: bool,
}

impl Pace {
    /// For at most so many texts; `fixed` measures nothing.
    pub(super) fn new(most: usize, fixed: bool) -> Self {
        let most = most.max(1);
        Self {
            phase: Self::trial(),
            sharing: Sharing { most, now: most, ..Sharing::default() },
            interval: SETTLED.0,
            last: None,
            fixed: fixed || most == 1,
        }
    }

    fn trial() -> Phase {
        Phase::Trial { alone: Arm::default(), together: Arm::default() }
    }

    /// Texts that the next step may have.
    pub(super) fn limit(&self) -> usize {
        let together = match self.phase {
            _ if self.fixed => true,
            Phase::Trial { alone, .. } => alone.is_over(),
            Phase::Settled { together, .. } => together,
        };
        if together { self.sharing.most } else { 1 }
    }

    pub(super) fn sharing(&self) -> Sharing {
        Sharing { now: self.limit(), ..self.sharing }
    }

    /// A step of `texts` is over that took so long, when `wanting` would have shared it, those among them whose prompts
    /// are not read yet. A line for the log where a trial has come to its end.
    pub(super) fn note(&mut self, texts: usize, wanting: usize, seconds: f64) -> Option<String> {
        // Where nobody else waits there is nothing to choose.
        if self.fixed || wanting < 2 {
            return None;
        }
        match &mut self.phase {
            Phase::Trial { alone, .. } if !alone.is_over() => alone.note(texts, seconds),
            // The others' prompts are being read.
            Phase::Trial { .. } if texts < 2 => {}
            Phase::Trial { together, alone } => {
                together.note(texts, seconds);
                let rates = (together.rate(), alone.rate());
                if together.is_over() || together.has_lost(rates.1) {
                    return Some(self.settle(rates));
                }
            }
            Phase::Settled { left, .. } => {
                *left -= 1;
                if *left == 0 {
                    self.phase = Self::trial();
                }
            }
        }
        None
    }

    fn settle(&mut self, (rate, alone): (f64, f64)) -> String {
        let together = rate >= alone;
        self.interval =
            if self.last == Some(together) { (2 * self.interval).min(SETTLED.1) } else { SETTLED.0 };
        self.last = Some(together);
        self.phase = Phase::Settled { together, left: self.interval };
        self.sharing.together = Some(rate);
        self.sharing.alone = Some(alone);
        self.sharing.trials += 1;
        let goes_on = if together { "they share steps" } else { "one after the other" };
        format!("texts side by side make {rate:.1} tokens a second, one alone {alone:.1}: {goes_on}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps until a trial has ended, with the given seconds for a step of all texts and of one.
    fn settle(pace: &mut Pace, all: f64, one: f64) -> (u32, String) {
        for step in 1..10_000 {
            let texts = pace.limit();
            let seconds = if texts > 1 { all } else { one };
            if let Some(line) = pace.note(texts, 4, seconds) {
                return (step, line);
            }
        }
        panic!("no end");
    }

    #[test]
    fn what_is_more_goes_on_and_is_asked_again_later() {
        const SHORT: u32 = STEPS + FIRST + LOST.0;
        let mut pace = Pace::new(4, false);
        assert_eq!(pace.limit(), 1);
        let (steps, line) = settle(&mut pace, 2.0, 1.0);
        assert_eq!(steps, 2 * STEPS);
        assert_eq!(line, "texts side by side make 2.0 tokens a second, one alone 1.0: they share steps");
        assert_eq!(pace.sharing().now, 4);
        // Now they compete.
        let (steps, line) = settle(&mut pace, 5.0, 1.0);
        assert_eq!(steps, SETTLED.0 + SHORT);
        assert!(line.ends_with("0.8 tokens a second, one alone 1.0: one after the other"), "{line}");
        let Sharing { now, most, together, alone, trials } = pace.sharing();
        assert_eq!((now, most, together, alone, trials), (1, 4, Some(0.8), Some(1.0), 2));
        assert_eq!(settle(&mut pace, 5.0, 1.0).0, SETTLED.0 + SHORT);
        assert_eq!(settle(&mut pace, 5.0, 1.0).0, 2 * SETTLED.0 + SHORT);
        assert_eq!(settle(&mut pace, 2.0, 1.0).0, 4 * SETTLED.0 + 2 * STEPS);
        assert_eq!(settle(&mut pace, 2.0, 1.0).0, SETTLED.0 + 2 * STEPS);
    }

    #[test]
    fn a_close_race_is_run_to_its_end() {
        let mut pace = Pace::new(4, false);
        let (steps, line) = settle(&mut pace, 4.2, 1.0);
        assert_eq!(steps, 2 * STEPS);
        assert!(line.ends_with("one after the other"), "{line}");
    }

    #[test]
    fn the_first_steps_after_a_change_do_not_count_and_one_text_says_nothing() {
        let mut pace = Pace::new(2, false);
        for _ in 0..3 * STEPS {
            assert_eq!(pace.note(1, 1, 9.0), None);
        }
        assert_eq!(pace.limit(), 1);
        for step in 0..STEPS {
            pace.note(1, 2, if step < FIRST { 100.0 } else { 0.9 });
        }
        assert_eq!(pace.limit(), 2);
        // The second one's prompt is being read.
        for _ in 0..3 * STEPS {
            assert_eq!(pace.note(1, 2, 9.0), None);
        }
        for step in 0..STEPS {
            let line = pace.note(2, 2, if step < FIRST { 100.0 } else { 1.0 });
            assert_eq!(line.is_some(), step + 1 == STEPS);
        }
        assert_eq!(pace.limit(), 2, "2 a second and 1.1");
    }

    /// One at a time is left again although only one text has begun, as long as others wait.
    #[test]
    fn those_that_wait_bring_the_next_trial() {
        let mut pace = Pace::new(4, false);
        settle(&mut pace, 5.0, 1.0);
        for _ in 0..SETTLED.0 {
            assert_eq!(pace.limit(), 1);
            pace.note(1, 3, 1.0);
        }
        assert!(matches!(pace.phase, Phase::Trial { .. }));
    }

    #[test]
    fn nothing_is_measured_where_nothing_is_to_be_chosen() {
        for mut pace in [Pace::new(1, false), Pace::new(3, true)] {
            let limit = pace.limit();
            for _ in 0..10 * STEPS {
                assert_eq!(pace.note(limit, 3, 1.0), None);
            }
            assert_eq!(pace.limit(), limit);
        }
    }
}
