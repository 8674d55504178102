//! Guesses: which experts of a layer some rows are going to want, by what its router says of their residual before the
//! layer has added its own attention.

use super::forward::Pass;
use super::scratch::Scratch;
use super::weights::FeedForwardWeights;
use fieldfare_kernels::top_k;
use std::cmp::Reverse;
use std::ops::Range;

/// A guess, made again for every layer.
#[derive(Debug)]
pub(super) struct Guess {
    layer: Option<usize>,
    /// The likeliest first.
    experts: Vec<usize>,
    /// By expert: the better its place and the more rows name it, the more.
    scores: Vec<usize>,
}

impl Guess {
    pub(super) fn new(experts: usize) -> Self {
        Self { layer: None, experts: Vec::with_capacity(experts), scores: vec![0; experts] }
    }

    /// Nothing is guessed.
    pub(super) fn clear(&mut self) {
        self.layer = None;
        self.experts.clear();
    }

    /// What was guessed for `layer`, if that is what was guessed last.
    pub(super) fn of(&self, layer: usize) -> Option<&[usize]> {
        (self.layer == Some(layer)).then_some(&self.experts[..])
    }

    /// Guesses what the given rows of the pass, at most a block, are going to want of `layer`. `x` is the residual of the
    /// whole pass, `[rows][hidden]`. Turns the pass to those rows.
    pub(super) fn make(
        &mut self,
        pass: &mut Pass<'_>,
        (layer, weights): (usize, &FeedForwardWeights),
        rows: Range<usize>,
        x: &[f32],
        s: &mut Scratch,
    ) -> &[usize] {
        let (hidden, experts, k) =
            (pass.config.hidden_size, pass.config.num_experts, pass.config.top_k_experts);
        pass.turn_to(&rows);
        pass.norms(&x[rows.start * hidden..rows.end * hidden], &weights.router_scale, &mut s.normed);
        let logits = &mut s.routed.logits;
        pass.matmul_f32(&weights.router, &s.normed, logits);
        self.scores.fill(0);
        for (row, logits) in rows.zip(logits.chunks_exact(experts)) {
            let picked = &mut s.routed.picked;
            top_k(logits, k, picked);
            let position = pass.position(row);
            if let Some(reroute) = pass.reroute.as_deref_mut() {
                reroute.guess(layer, position, picked);
            }
            for (rank, &expert) in picked.iter().enumerate().take(k) {
                if let Some(score) = self.scores.get_mut(expert) {
                    *score += k - rank;
                }
            }
        }
        self.experts.clear();
        self.experts.extend((0..experts).filter(|&expert| self.scores[expert] > 0));
        self.experts.sort_by_key(|&expert| Reverse(self.scores[expert]));
        self.layer = Some(layer);
        &self.experts
    }
}
