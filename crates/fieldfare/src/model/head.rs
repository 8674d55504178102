//! From the residual to logits: last norm, the embedding table as the head, soft cap; only for rows that need
//! them.

use super::forward::Pass;
use super::scratch::Scratch;
use super::weights::HeadWeights;
use std::ops::Range;

/// Logits of rows `which` of the pass, whose residual is `x`, into the first `which.len() x vocab` of `s.logits`, which must have
/// room.
pub(super) fn logits(
    pass: &mut Pass<'_>,
    weights: &HeadWeights,
    which: &Range<usize>,
    x: &[f32],
    s: &mut Scratch,
) {
    let (config, kernels) = (pass.config, pass.kernels);
    let (hidden, rows) = (config.hidden_size, which.len());
    pass.turn_to(which);
    pass.norms(&x[which.start * hidden..which.end * hidden], &weights.norm, &mut s.normed);
    pass.probe(None, "final_norm", hidden, &s.normed);
    let normed = &s.normed[..rows * hidden];
    let logits = &mut s.logits[..rows * config.vocab_size];
    pass.load(normed, rows, hidden, &mut s.acts);
    pass.product(&weights.embedding.view(pass.resident), normed, &s.acts, rows, logits);
    kernels.soft_cap(logits, config.final_logit_softcapping);
}
