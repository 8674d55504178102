//! The feed-forward half of a layer: the shared expert, the router, the routed experts, the sum of both
//! branches.
//!
//! Both branches start from the same residual. The router runs in f32 and comes first. The row of a step, or the few rows
//! of one that several texts share, have the experts missing read while the shared expert is computed, take each once, as
//! they arrive, and keep their results apart. Many rows take the experts by ascending id, each once for all its rows, and
//! add to the rows' sums at once. A row's results are added by ascending expert id in both cases, so neither the order of
//! arrival, nor the chunking, nor the rows beside it change a bit.

use super::forward::{Pass, blocks};
use super::scratch::{FEW_ROWS, OneExpert, Routed, Scratch};
use super::weights::{ExpertShape, FeedForwardWeights};
use super::wide::WideRows;
use crate::store::{ExpertStore, Next};
use crate::{Error, Result};
use fieldfare_kernels::tile::TILE_ROWS;
use fieldfare_kernels::{Acts, top_k};
use std::ops::{ControlFlow, Range};

/// The rows of a pass from which cancelling is asked for between experts.
const ASK_ROWS: usize = 256;

/// A layer's feed-forward half for all rows of a pass.
pub(super) struct Part<'a> {
    /// The layer.
    pub(super) layer: usize,
    /// Its weights.
    pub(super) weights: &'a FeedForwardWeights,
    /// Rows of the pass.
    pub(super) rows: usize,
}

/// Chooses the experts of the rows of a block and keeps their input.
pub(super) fn route(
    pass: &mut Pass<'_>,
    layer: usize,
    weights: &FeedForwardWeights,
    store: &mut ExpertStore,
    block: &Range<usize>,
    s: &mut Scratch,
    w: &mut WideRows<'_>,
) {
    let (hidden, experts, k) = (pass.config.hidden_size, pass.config.num_experts, pass.config.top_k_experts);
    let x = &w.x[block.start * hidden..block.end * hidden];
    // The router's norm has no weight of its own; its scale vector, times hidden^-1/2, stands in for one.
    pass.norms(x, &weights.router_scale, &mut s.normed);
    let r = &mut s.routed;
    pass.matmul_f32(&weights.router, &s.normed, &mut r.logits);
    pass.probe(Some(layer), "router_logits", experts, &r.logits);
    for (at, row) in block.clone().enumerate() {
        let logits = &r.logits[at * experts..(at + 1) * experts];
        let ids = &mut r.ids[row * k..(row + 1) * k];
        let shares = &mut r.weights[row * k..(row + 1) * k];
        top_k(logits, k, &mut r.picked);
        ids.copy_from_slice(&r.picked);
        let position = pass.position(row);
        if let Some(reroute) = pass.reroute.as_deref_mut() {
            reroute.choose(layer, position, ids);
            ids.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        }
        expert_weights(logits, ids, &weights.per_expert_scale, shares);
        pass.probe_experts(layer, at, ids, shares);
        store.note_token(layer, ids);
    }
    match pass.planes {
        None => pass.norms(x, &weights.routed_pre_norm, &mut w.input[block.start * hidden..]),
        Some(_) => {
            pass.norms(x, &weights.routed_pre_norm, &mut s.normed);
            pass.load(&s.normed, pass.rows, hidden, &mut s.acts);
            r.input.append(&s.acts);
        }
    }
}

/// Both branches of all rows, at most [`super::TOGETHER`], decode's way. Their uses have been grouped.
pub(super) fn few_rows(
    pass: &mut Pass<'_>,
    part: &Part<'_>,
    store: &mut ExpertStore,
    s: &mut Scratch,
    w: &mut WideRows<'_>,
) -> Result<()> {
    let (hidden, k) = (pass.config.hidden_size, pass.config.top_k_experts);
    store.begin(part.layer, &s.routed.wanted)?;
    pass.turn_to(&(0..part.rows));
    shared_expert(pass, part, w.x, s);
    let Routed { starts, uses, parts, weights, mine, input, .. } = &mut s.routed;
    store.finish(&mut |expert, blob| {
        let mine_are = starts[expert]..starts[expert + 1];
        mine.gather(pass, w.input, input, uses[mine_are.clone()].iter().map(|&position| position / k));
        mine.run(pass, &part.weights.experts, blob);
        let out = &mine.out[..mine_are.len() * hidden];
        parts[mine_are.start * hidden..mine_are.end * hidden].copy_from_slice(out);
        Ok(())
    })?;
    // They lie by ascending expert id, and so do those of each row.
    w.sums[..part.rows * hidden].fill(0.0);
    for (&position, part) in uses[..part.rows * k].iter().zip(parts.chunks_exact(hidden)) {
        let row = position / k;
        pass.kernels.add_scaled(&mut w.sums[row * hidden..(row + 1) * hidden], weights[position], part);
    }
    combine(pass, part, &(0..part.rows), s, w);
    Ok(())
}

/// Both branches of all rows: every expert once for all its rows, some of `next`'s read meanwhile.
/// The rows' uses have been grouped.
pub(super) fn many_rows(
    pass: &mut Pass<'_>,
    part: &Part<'_>,
    store: &mut ExpertStore,
    next: Option<Next<'_>>,
    s: &mut Scratch,
    w: &mut WideRows<'_>,
    between: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<()> {
    let (hidden, k, block) = (pass.config.hidden_size, pass.config.top_k_experts, s.rows);
    w.sums[..part.rows * hidden].fill(0.0);
    // The rows of one block have the shared expert computed while the first experts are read.
    let alone = part.rows <= block;
    if alone {
        store.begin_sweep(part.layer, &s.routed.wanted)?;
        pass.turn_to(&(0..part.rows));
        shared_expert(pass, part, w.x, s);
    }
    let Routed { wanted, starts, uses, weights, mine, input, .. } = &mut s.routed;
    store.sweep(part.layer, wanted, next, &mut |expert, blob| {
        if part.rows >= ASK_ROWS && between(part.layer).is_break() {
            return Err(Error::Cancelled);
        }
        for uses in uses[starts[expert]..starts[expert + 1]].chunks(block) {
            mine.gather(pass, w.input, input, uses.iter().map(|&position| position / k));
            mine.run(pass, &part.weights.experts, blob);
            mine.add_to(pass, uses.iter().map(|&position| weights[position]), w.sums);
        }
        Ok(())
    })?;
    for block in blocks(part.rows, block) {
        pass.turn_to(&block);
        if !alone {
            shared_expert(pass, part, &w.x[block.start * hidden..], s);
        }
        combine(pass, part, &block, s, w);
    }
    Ok(())
}

/// The dense branch of a block whose residual is `x`; leaves its normed output in `s.shared`.
fn shared_expert(pass: &mut Pass<'_>, part: &Part<'_>, x: &[f32], s: &mut Scratch) {
    let Part { layer, weights, .. } = *part;
    let (hidden, wide, rows) = (pass.config.hidden_size, pass.config.intermediate_size, pass.rows);
    pass.norms(x, &weights.shared_pre_norm, &mut s.normed);
    pass.load(&s.normed, rows, hidden, &mut s.acts);
    pass.matmul(&weights.shared_gate, &s.normed, &s.acts, &mut s.gate);
    pass.matmul(&weights.shared_up, &s.normed, &s.acts, &mut s.up);
    pass.gelu_mul(&mut s.gate, &s.up, rows, wide);
    pass.load(&s.gate, rows, wide, &mut s.acts);
    pass.matmul(&weights.shared_down, &s.gate, &s.acts, &mut s.shared);
    pass.probe(Some(layer), "shared_raw", hidden, &s.shared);
    pass.norms_in_place(&mut s.shared, &weights.shared_post_norm);
    pass.probe(Some(layer), "shared_out", hidden, &s.shared);
}

/// `x = (x + rms(shared + rms(routed))) * layer_scalar` for the rows of a block.
fn combine(
    pass: &mut Pass<'_>,
    part: &Part<'_>,
    block: &Range<usize>,
    s: &mut Scratch,
    w: &mut WideRows<'_>,
) {
    let Part { layer, weights, .. } = *part;
    let (kernels, hidden) = (pass.kernels, pass.config.hidden_size);
    let range = block.start * hidden..block.end * hidden;
    let (sums, x, shared) = (&mut w.sums[range.clone()], &mut w.x[range], &s.shared);
    pass.probe(Some(layer), "routed_raw", hidden, sums);
    pass.norms_in_place(sums, &weights.routed_post_norm);
    pass.probe(Some(layer), "routed_out", hidden, sums);
    pass.each(sums, hidden, |row, sum| kernels.add(sum, &shared[row * hidden..(row + 1) * hidden]));
    pass.norms_in_place(sums, &weights.post_norm);
    pass.probe(Some(layer), "ffn_out", hidden, sums);
    let sums = &*sums;
    pass.each(x, hidden, |row, x| {
        kernels.add(x, &sums[row * hidden..(row + 1) * hidden]);
        kernels.scale(x, weights.layer_scalar);
    });
    pass.probe(Some(layer), "layer_out", hidden, x);
}

/// Softmax over the chosen logits (`ids` by falling logit), each then times its expert's scale.
fn expert_weights(logits: &[f32], ids: &[usize], scale: &[f32], out: &mut [f32]) {
    let largest = ids.first().map_or(0.0, |&id| logits[id]);
    let mut sum = 0.0;
    for (out, &id) in out.iter_mut().zip(ids) {
        *out = (logits[id] - largest).exp();
        sum += *out;
    }
    for (out, &id) in out.iter_mut().zip(ids) {
        *out = *out / sum * scale[id];
    }
}

impl Routed {
    /// Sorts the first `uses` uses by expert (a counting sort, so rows stay ascending) and lists the distinct
    /// experts.
    pub(super) fn group(&mut self, uses: usize, experts: usize) {
        self.starts[..=experts].fill(0);
        for &id in &self.ids[..uses] {
            self.starts[id + 1] += 1;
        }
        self.wanted.clear();
        for id in 0..experts {
            if self.starts[id + 1] > 0 {
                self.wanted.push(id);
            }
            self.starts[id + 1] += self.starts[id];
        }
        // Each start doubles as its expert's cursor and ends as the next expert's start; shift back after.
        for (position, &id) in self.ids[..uses].iter().enumerate() {
            self.uses[self.starts[id]] = position;
            self.starts[id] += 1;
        }
        self.starts.copy_within(0..experts, 1);
        self.starts[0] = 0;
    }

    /// Whether a row of the pass wants an expert.
    pub(super) fn is_wanted(&self, expert: usize) -> bool {
        self.wanted.binary_search(&expert).is_ok()
    }

    /// The experts that the rows want, each as often as it is wanted.
    pub(super) fn uses(&self) -> impl Iterator<Item = usize> {
        self.wanted.iter().flat_map(|&id| std::iter::repeat_n(id, self.starts[id + 1] - self.starts[id]))
    }
}

impl OneExpert {
    /// Collects the given rows of `x`, and of `acts`, which is `x` quantized.
    fn gather(&mut self, pass: &Pass<'_>, x: &[f32], acts: &Acts, rows: impl Iterator<Item = usize>) {
        self.rows.clear();
        self.rows.extend(rows);
        if pass.planes.is_some() {
            return self.acts.gather(acts, &self.rows);
        }
        let hidden = pass.config.hidden_size;
        for (to, &row) in self.input.chunks_exact_mut(hidden).zip(&self.rows) {
            to.copy_from_slice(&x[row * hidden..(row + 1) * hidden]);
        }
    }

    /// `out = (gelu(input Wgate) * (input Wup)) Wdown` with the expert's matrices, for its rows.
    fn run(&mut self, pass: &Pass<'_>, shape: &ExpertShape, blob: &[u8]) {
        let (width, rows) = (pass.config.moe_intermediate_size, self.rows.len());
        match &shape.gate_up {
            Some(both) if rows <= FEW_ROWS => {
                pass.product(&both.view(blob), &self.input, &self.acts, rows, &mut self.both);
                let both = self.both[..rows * 2 * width].chunks_exact(2 * TILE_ROWS);
                let (gate, up) = (self.gate.chunks_exact_mut(TILE_ROWS), self.up.chunks_exact_mut(TILE_ROWS));
                for (both, (gate, up)) in both.zip(gate.zip(up)) {
                    gate.copy_from_slice(&both[..TILE_ROWS]);
                    up.copy_from_slice(&both[TILE_ROWS..]);
                }
            }
            _ => {
                pass.product(&shape.gate.view(blob), &self.input, &self.acts, rows, &mut self.gate);
                pass.product(&shape.up.view(blob), &self.input, &self.acts, rows, &mut self.up);
            }
        }
        pass.gelu_mul(&mut self.gate, &self.up, rows, width);
        pass.load(&self.gate, rows, width, &mut self.inner);
        pass.product(&shape.down.view(blob), &self.gate, &self.inner, rows, &mut self.out);
    }

    /// Adds the rows, each times its weight, to those of `sums` that they belong to.
    fn add_to(&self, pass: &Pass<'_>, weights: impl Iterator<Item = f32>, sums: &mut [f32]) {
        let hidden = pass.config.hidden_size;
        // Rows ascend, so a walk over `sums` meets them one after the other.
        let (mut rest, mut passed) = (sums, 0);
        let mut targets = Vec::with_capacity(self.rows.len());
        for (&row, weight) in self.rows.iter().zip(weights) {
            let (_, from) = std::mem::take(&mut rest).split_at_mut((row - passed) * hidden);
            let (sum, after) = from.split_at_mut(hidden);
            targets.push((sum, weight));
            (rest, passed) = (after, row + 1);
        }
        pass.pool.for_chunks(&mut targets, 8, |chunk, targets| {
            for (at, (sum, weight)) in targets.iter_mut().enumerate() {
                let row = chunk * 8 + at;
                pass.kernels.add_scaled(sum, *weight, &self.out[row * hidden..(row + 1) * hidden]);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn weights_are_shares_times_scales() {
        let logits = [1.0, 3.0, 2.0, 3.0];
        let mut out = [0.0; 3];
        expert_weights(&logits, &[1, 3, 2], &[9.0, 1.0, 0.5, 2.0], &mut out);
        let sum = 2.0 + (-1.0f32).exp();
        for (found, wanted) in out.into_iter().zip([1.0 / sum, 2.0 / sum, 0.5 * (-1.0f32).exp() / sum]) {
            assert!((found - wanted).abs() < 1e-7, "{found} {wanted}");
        }
        // Far beyond the range of exp, which the largest logit keeps in bounds.
        expert_weights(&[4000.0, 3999.0], &[0, 1], &[1.0, 1.0], &mut out[..2]);
        assert!((out[0] + out[1] - 1.0).abs() < 1e-6);
    }

    fn routed(experts: usize, ids: &[usize]) -> Routed {
        Routed {
            logits: Vec::new(),
            ids: ids.to_vec(),
            weights: Vec::new(),
            picked: Vec::new(),
            wanted: Vec::new(),
            starts: vec![0; experts + 1],
            uses: vec![0; ids.len()],
            parts: Vec::new(),
            input: Acts::new(),
            mine: OneExpert::default(),
        }
    }

    proptest! {
        #[test]
        fn uses_are_grouped_by_expert_with_rows_ascending(ids in prop::collection::vec(0usize..9, 0..40)) {
            let mut r = routed(9, &ids);
            r.group(ids.len(), 9);
            let mut listed = Vec::new();
            for expert in 0..9 {
                let uses: Vec<usize> = (0..ids.len()).filter(|&i| ids[i] == expert).collect();
                prop_assert_eq!(&r.uses[r.starts[expert]..r.starts[expert + 1]], &uses[..]);
                if !uses.is_empty() {
                    listed.push(expert);
                }
            }
            prop_assert_eq!(&r.wanted, &listed);
        }
    }
}
