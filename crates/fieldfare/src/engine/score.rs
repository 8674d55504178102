//! Teacher-forced scoring: how likely the model finds each id, given those before it.

use super::event::{Candidate, Scores, TokenScore};
use super::options::Cancel;
use super::session::Session;
use crate::Result;
use crate::model::Forward;
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::ops::ControlFlow;

/// Scores `ids[first..]` (`first` >= 1), each given all ids before it. The ids are checked already; what the cache holds
/// of them before `first` is not computed again. Nothing is suppressed: these are the model's own numbers.
pub(super) fn run<F: Forward>(
    session: &mut Session<'_, F>,
    ids: &[u32],
    first: usize,
    top: usize,
    cancel: &Cancel,
    progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<Scores> {
    let (start, _) = session.reuse(&ids[..first]);
    // All of it is fed, not just what may be there already.
    session.conversations.make_space(session.forward, ids.len() - start, 0);
    let tokens = ids[first - 1..].to_vec();
    let mut scores = Scores {
        logprobs: Vec::with_capacity(tokens.len() - 1),
        argmax: Vec::with_capacity(tokens.len()),
        tokens,
        perplexity: f64::NAN,
        top: Vec::new(),
    };
    let mut sum = 0.0;
    let (done, progress) = (Cell::new(0), RefCell::new(progress));
    let go_on = || {
        let asked = (progress.borrow_mut())(done.get()).is_break() || cancel.is_cancelled();
        if asked { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let result = session.forward.prefill_each(&ids[start..], &mut { go_on }, &mut |i, logits| {
        let i = start + i;
        done.set(i + 1);
        if i + 1 < first {
            return go_on();
        }
        let norm = log_sum_exp(logits);
        scores.argmax.push(argmax(logits));
        if let Some(logit) = ids.get(i + 1).and_then(|&next| logits.get(next as usize)) {
            let logprob = f64::from(*logit) - norm;
            sum += logprob;
            scores.logprobs.push(logprob as f32);
        }
        if top > 0 {
            scores.top.push(best(logits, top, norm));
        }
        go_on()
    });
    session.resync(ids);
    result?;
    if !scores.logprobs.is_empty() {
        scores.perplexity = (-sum / scores.logprobs.len() as f64).exp();
    }
    Ok(scores)
}

/// How likely one id is, and the `top` best.
pub(super) fn one(logits: &[f32], id: u32, top: usize) -> TokenScore {
    let norm = log_sum_exp(logits);
    let logit = logits.get(id as usize).copied().unwrap_or(f32::NEG_INFINITY);
    let top = if top > 0 { best(logits, top, norm) } else { Vec::new() };
    TokenScore { id, logprob: (f64::from(logit) - norm) as f32, top, start: 0 }
}

/// ln of the sum of exp, with the largest taken out; in double precision, since a quarter of a million terms
/// are added.
fn log_sum_exp(logits: &[f32]) -> f64 {
    let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    if largest.is_infinite() {
        return largest;
    }
    largest + logits.iter().map(|&x| (f64::from(x) - largest).exp()).sum::<f64>().ln()
}

/// By falling value, NaN last, then by rising id.
fn order(logits: &[f32], a: u32, b: u32) -> Ordering {
    let value = |id: u32| {
        let x = logits[id as usize];
        if x.is_nan() { f32::NEG_INFINITY } else { x }
    };
    value(b).total_cmp(&value(a)).then(a.cmp(&b))
}

fn argmax(logits: &[f32]) -> u32 {
    let ids = 0..u32::try_from(logits.len()).unwrap_or(u32::MAX);
    ids.min_by(|&a, &b| order(logits, a, b)).unwrap_or_default()
}

fn best(logits: &[f32], top: usize, norm: f64) -> Vec<Candidate> {
    let mut ids: Vec<u32> = (0..u32::try_from(logits.len()).unwrap_or(u32::MAX)).collect();
    let top = top.min(ids.len());
    if top < ids.len() {
        ids.select_nth_unstable_by(top, |&a, &b| order(logits, a, b));
        ids.truncate(top);
    }
    ids.sort_unstable_by(|&a, &b| order(logits, a, b));
    ids.into_iter()
        .map(|id| Candidate { id, logprob: (f64::from(logits[id as usize]) - norm) as f32 })
        .collect()
}
