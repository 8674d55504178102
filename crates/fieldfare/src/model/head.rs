//! From the residual to logits: last norm, the embedding table as the head, soft cap; only for rows that need
//! them.

use super::forward::Pass;
use super::scratch::Scratch;
use super::weights::HeadWeights;
use std::ops::Range;

/// Logits of rows `which` of the pass, into the first `which.len() x vocab` of `s.logits`, which must have
/// room.
pub(super) fn logits(pass: &mut Pass<'_>, weights: &HeadWeights, which: Range<usize>, s: &mut Scratch) {
    let (config, kernels) = (pass.config, pass.kernels);
    let hidden = config.hidden_size;
    for row in which.clone() {
        let range = row * hidden..(row + 1) * hidden;
        kernels.rms_norm(&s.x[range.clone()], Some(&weights.norm), config.rms_norm_eps, &mut s.normed[range]);
    }
    let normed = &s.normed[which.start * hidden..which.end * hidden];
    let rows = which.len();
    if let Some(probe) = pass.probe.as_deref_mut() {
        probe.tensor(None, "final_norm", pass.first + which.start, hidden, normed);
    }
    let logits = &mut s.logits[..rows * config.vocab_size];
    pass.load(normed, rows, hidden, &mut s.acts);
    pass.product(&weights.embedding.view(pass.resident), normed, &s.acts, rows, logits);
    kernels.soft_cap(logits, config.final_logit_softcapping);
}
