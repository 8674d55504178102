//! What a benchmark runs: given tokens, without sampling, so that a row's work is the same in every build and program.

use crate::model::{Forward, Runner, RunnerStats};
use crate::{Error, Result};
use std::ops::ControlFlow;
use std::time::Instant;

/// A text of our own, for models that have a tokenizer.
pub const TEXT: &str = include_str!("../../data/text.txt");

/// `count` ids of a text: the first one once, the others again and again.
pub fn repeated(ids: &[u32], count: usize) -> Vec<u32> {
    let (first, rest) = ids.split_at(ids.len().min(1));
    let rest = if rest.is_empty() { first } else { rest };
    first.iter().chain(rest.iter().cycle()).take(count).copied().collect()
}

/// Ids spread over the vocabulary, the same each time (the high bits of a linear congruence), for models without a
/// tokenizer.
pub fn made_up(vocab: usize, count: usize) -> Vec<u32> {
    let vocab = (vocab as u64).max(1);
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from((state >> 33) % vocab).unwrap_or(0)
    };
    (0..count).map(|_| next()).collect()
}

/// A text from its first token to its last.
#[derive(Clone, Debug)]
pub struct Pass {
    /// Seconds for the prompt.
    pub prefill_seconds: f64,
    /// Seconds for the rest, a token at a time.
    pub decode_seconds: f64,
    /// Counts before it.
    pub before: RunnerStats,
    /// Between prompt and rest.
    pub between: RunnerStats,
    /// After it.
    pub after: RunnerStats,
}

/// Runs the whole text, from the start.
///
/// # Errors
/// Those of the model; [`Error::Cancelled`] if `flow` breaks.
pub fn pass(
    runner: &mut Runner,
    prompt: &[u32],
    rest: &[u32],
    flow: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Pass> {
    runner.rewind(0);
    let (before, start) = (runner.stats(), Instant::now());
    runner.prefill(prompt, &mut |_| flow())?;
    let prefill_seconds = start.elapsed().as_secs_f64();
    let (between, start) = (runner.stats(), Instant::now());
    decode(runner, rest, flow)?;
    let decode_seconds = start.elapsed().as_secs_f64();
    Ok(Pass { prefill_seconds, decode_seconds, before, between, after: runner.stats() })
}

/// Feeds tokens, one at a time.
///
/// # Errors
/// As [`pass`].
pub fn decode(runner: &mut Runner, ids: &[u32], flow: &mut dyn FnMut() -> ControlFlow<()>) -> Result<()> {
    for &id in ids {
        if flow().is_break() {
            return Err(Error::Cancelled);
        }
        runner.decode(id)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_texts_are_repeated_behind_their_first_token() {
        assert_eq!(repeated(&[2, 7, 8], 6), [2, 7, 8, 7, 8, 7]);
        assert_eq!(repeated(&[2], 3), [2, 2, 2]);
        assert_eq!(repeated(&[2, 7, 8], 2), [2, 7]);
        assert!(repeated(&[], 2).is_empty());
    }

    #[test]
    fn made_up_tokens_are_the_same_each_time_and_within_the_vocabulary() {
        let ids = made_up(100, 500);
        assert_eq!(ids, made_up(100, 500));
        assert_eq!(ids[..50], made_up(100, 50)[..]);
        assert!(ids.iter().all(|&id| id < 100));
        let mut distinct = ids;
        distinct.sort_unstable();
        distinct.dedup();
        assert!(distinct.len() > 90);
    }
}
