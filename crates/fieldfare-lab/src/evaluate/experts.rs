//! What the router does: how evenly each layer uses its experts, and a trace of conversations for cache simulation.

use crate::trace::Trace;
use anyhow::{Context as _, Result, ensure};
use fieldfare::model::{Forward as _, Probe, Runner};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How one layer's uses are spread over its experts.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(super) struct Spread {
    /// Share of the least used expert.
    pub(super) least: f64,
    /// Share of the most used one.
    pub(super) most: f64,
    /// Entropy of the shares by that of an even use: 1 is even, 0 a single expert.
    pub(super) evenness: f64,
    /// Experts never used.
    pub(super) unused: usize,
}

/// What the probe gathers.
struct Gathered {
    uses: Vec<Vec<u64>>,
    trace: Option<Trace>,
}

/// Watches a runner's router.
pub(super) struct Watch(Arc<Mutex<Gathered>>);

struct Gatherer(Arc<Mutex<Gathered>>);

fn locked(gathered: &Mutex<Gathered>) -> MutexGuard<'_, Gathered> {
    gathered.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Probe for Gatherer {
    fn tensor(&mut self, _: Option<usize>, _: &'static str, _: usize, _: usize, _: &[f32]) {}

    fn experts(&mut self, layer: usize, _: usize, ids: &[usize], _: &[f32]) {
        let mut gathered = locked(&self.0);
        ids.iter().for_each(|&id| gathered.uses[layer][id] += 1);
        if let Some(trace) = &mut gathered.trace {
            trace.layers[layer].push(ids.to_vec());
        }
    }
}

impl Watch {
    /// Watches `runner` from now on.
    pub(super) fn new(runner: &mut Runner) -> Self {
        let arch = &runner.dir().manifest().arch;
        let uses = vec![vec![0; arch.num_experts]; arch.num_hidden_layers];
        let gathered = Arc::new(Mutex::new(Gathered { uses, trace: None }));
        let watch = Self(gathered);
        watch.attach(runner);
        watch
    }

    /// Watches one more runner of the same model.
    pub(super) fn attach(&self, runner: &mut Runner) {
        runner.set_probe(Some(Box::new(Gatherer(Arc::clone(&self.0)))));
    }

    /// The spread of each layer over all that was computed since the start.
    pub(super) fn spreads(&self) -> Vec<Spread> {
        locked(&self.0).uses.iter().map(|uses| spread(uses)).collect()
    }

    /// Writes the trace of `texts`, each in an empty cache, as one after the other: rows `step,layer,expert`. Returns the
    /// number of tokens.
    ///
    /// # Errors
    /// Those of the model and of the file.
    pub(super) fn trace(&self, runner: &mut Runner, texts: &[Vec<u32>], path: &Path) -> Result<usize> {
        {
            let mut gathered = locked(&self.0);
            let experts = gathered.uses.first().map_or(0, Vec::len);
            gathered.trace = Some(Trace::new(gathered.uses.len(), experts));
        }
        let mut tokens = 0;
        for ids in texts {
            runner.rewind(0);
            let mut each = |_: usize, _: &[f32]| ControlFlow::Continue(());
            runner.prefill_each(ids, &mut || ControlFlow::Continue(()), &mut each)?;
            tokens += ids.len();
        }
        let trace = locked(&self.0).trace.take().context("the trace was taken already")?;
        ensure!(
            trace.tokens() == Some(tokens),
            "the model did not report the experts of every token in every layer"
        );
        trace.dump(path)?;
        Ok(tokens)
    }
}

fn spread(uses: &[u64]) -> Spread {
    let all = uses.iter().sum::<u64>().max(1) as f64;
    let shares = || uses.iter().map(|&n| n as f64 / all);
    let entropy: f64 = shares().filter(|&p| p > 0.0).map(|p| -p * p.ln()).sum();
    Spread {
        least: shares().fold(1.0, f64::min),
        most: shares().fold(0.0, f64::max),
        evenness: if uses.len() > 1 { entropy / (uses.len() as f64).ln() } else { 1.0 },
        unused: uses.iter().filter(|&&n| n == 0).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_by_hand() {
        assert_eq!(spread(&[5, 5, 5, 5]), Spread { least: 0.25, most: 0.25, evenness: 1.0, unused: 0 });
        assert_eq!(spread(&[8, 0, 0, 0]), Spread { least: 0.0, most: 1.0, evenness: 0.0, unused: 3 });
        assert_eq!(spread(&[4, 4, 0, 0]).evenness, 0.5);
    }
}
