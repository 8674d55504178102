//! A routing trace (which experts each token used in each layer) and what describes it.

use anyhow::{Context as _, Result};
use std::{io::Write as _, path::Path};

/// Experts by layer, then token.
pub(crate) struct Trace {
    /// `layers[l][t]`: the experts of token `t` in layer `l`, by falling logit.
    pub(crate) layers: Vec<Vec<Vec<usize>>>,
    /// Experts of a layer.
    pub(crate) experts: usize,
}

/// Numbers that do not depend on a cache.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Statistics {
    /// Share of a token's experts that the token `lag` before used too.
    pub(crate) overlap: Vec<(usize, f64)>,
    /// Share of all uses that fall on the 16 most used experts of a layer.
    pub(crate) top16_share: f64,
    /// Experts in common over experts in either, of the same token in neighbouring layers.
    pub(crate) adjacent_jaccard: f64,
    /// Experts of a layer used at all.
    pub(crate) distinct: f64,
    /// Experts of a layer used within 128 tokens in a row.
    pub(crate) union_128: f64,
}

/// Distances of [`Statistics::overlap`].
const LAGS: [usize; 5] = [1, 2, 8, 32, 64];

impl Trace {
    /// An empty trace.
    pub(crate) fn new(layers: usize, experts: usize) -> Self {
        Self { layers: vec![Vec::new(); layers], experts }
    }

    /// Tokens, if every layer has as many.
    pub(crate) fn tokens(&self) -> Option<usize> {
        let first = self.layers.first()?.len();
        self.layers.iter().all(|layer| layer.len() == first).then_some(first)
    }

    /// The numbers.
    pub(crate) fn statistics(&self) -> Statistics {
        let overlap =
            LAGS.iter().map(|&lag| (lag, self.overlap(lag))).filter(|(_, v)| v.is_finite()).collect();
        let layers = self.layers.len() as f64;
        let (mut top, mut distinct, mut union, mut windows) = (0.0, 0.0, 0.0, 0);
        for tokens in &self.layers {
            let mut uses = self.uses(tokens);
            uses.sort_unstable_by(|a, b| b.cmp(a));
            let all: usize = uses.iter().sum();
            top += uses.iter().take(16).sum::<usize>() as f64 / all.max(1) as f64;
            distinct += uses.iter().filter(|&&n| n > 0).count() as f64;
            for window in tokens.chunks_exact(128) {
                union += self.uses(window).iter().filter(|&&n| n > 0).count() as f64;
                windows += 1;
            }
        }
        Statistics {
            overlap,
            top16_share: top / layers,
            adjacent_jaccard: self.jaccard(),
            distinct: distinct / layers,
            union_128: union / f64::from(windows),
        }
    }

    fn uses(&self, tokens: &[Vec<usize>]) -> Vec<usize> {
        let mut uses = vec![0; self.experts];
        tokens.iter().flatten().for_each(|&e| uses[e] += 1);
        uses
    }

    fn overlap(&self, lag: usize) -> f64 {
        let pairs = self.layers.iter().flat_map(|tokens| tokens.iter().zip(tokens.iter().skip(lag)));
        let (mut common, mut all) = (0, 0);
        for (before, now) in pairs {
            common += now.iter().filter(|e| before.contains(e)).count();
            all += now.len();
        }
        f64::from(common as u32) / all as f64
    }

    fn jaccard(&self) -> f64 {
        let (mut sum, mut pairs) = (0.0, 0);
        for neighbours in self.layers.windows(2) {
            for (a, b) in neighbours[0].iter().zip(&neighbours[1]) {
                let common = a.iter().filter(|e| b.contains(e)).count();
                sum += common as f64 / (a.len() + b.len() - common).max(1) as f64;
                pairs += 1;
            }
        }
        sum / f64::from(pairs)
    }

    /// Writes rows `step,layer,expert`.
    pub(crate) fn dump(&self, path: &Path) -> Result<()> {
        let file =
            std::fs::File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        let mut out = std::io::BufWriter::new(file);
        writeln!(out, "step,layer,expert")?;
        for (layer, tokens) in self.layers.iter().enumerate() {
            for (step, experts) in tokens.iter().enumerate() {
                for expert in experts {
                    writeln!(out, "{step},{layer},{expert}")?;
                }
            }
        }
        out.flush().with_context(|| format!("cannot write {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_trace_by_hand() {
        let trace =
            Trace { layers: vec![vec![vec![0, 1], vec![1, 2]], vec![vec![0, 3], vec![2, 1]]], experts: 4 };
        assert_eq!(trace.tokens(), Some(2));
        let s = trace.statistics();
        assert_eq!(s.overlap, [(1, 0.25)]); // one of four: expert 1 in layer 0
        assert_eq!(s.adjacent_jaccard, f64::midpoint(1.0 / 3.0, 1.0));
        assert_eq!(s.distinct, 3.5);
        assert_eq!(s.top16_share, 1.0);
    }
}
