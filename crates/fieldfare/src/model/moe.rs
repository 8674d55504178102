//! The feed-forward half of a layer: the shared expert, the router, the routed experts, the sum of both
//! branches.
//!
//! Both branches start from the same residual. The router runs in f32. The distinct experts of a pass are
//! fetched once each and applied to all their rows as they are delivered; every use (a row and one of its
//! experts) has a partial sum of its own, and a row's partial sums are added in router order. So neither the
//! order of delivery nor the chunking changes a bit.

use super::forward::Pass;
use super::scratch::{OneExpert, Routed, Scratch};
use super::weights::{ExpertShape, FeedForwardWeights};
use crate::Result;
use crate::store::ExpertStore;
use fieldfare_kernels::{Acts, Kernels, top_k};

/// `x = (x + rms(shared + routed)) * layer_scalar` for the rows of the pass.
pub(super) fn feed_forward(
    pass: &mut Pass<'_>,
    layer: usize,
    weights: &FeedForwardWeights,
    store: &mut ExpertStore,
    s: &mut Scratch,
) -> Result<()> {
    let (config, kernels, rows, eps) = (pass.config, pass.kernels, pass.rows, pass.config.rms_norm_eps);
    let hidden = config.hidden_size;

    route(pass, layer, weights, store, s);
    shared_expert(pass, layer, weights, s);
    routed_experts(pass, layer, weights, store, s)?;

    for row in 0..rows {
        let range = row * hidden..(row + 1) * hidden;
        let branch = &mut s.branch[range.clone()];
        kernels.add(branch, &s.shared[range.clone()]);
        kernels.rms_norm_in_place(branch, Some(&weights.post_norm), eps);
    }
    pass.probe(Some(layer), "ffn_out", hidden, &s.branch);
    for row in 0..rows {
        let range = row * hidden..(row + 1) * hidden;
        let x = &mut s.x[range.clone()];
        kernels.add(x, &s.branch[range]);
        kernels.scale(x, weights.layer_scalar);
    }
    pass.probe(Some(layer), "layer_out", hidden, &s.x);
    Ok(())
}

/// The dense branch; leaves its normed output in `s.shared`.
fn shared_expert(pass: &mut Pass<'_>, layer: usize, weights: &FeedForwardWeights, s: &mut Scratch) {
    let (config, kernels, eps) = (pass.config, pass.kernels, pass.config.rms_norm_eps);
    let (hidden, wide) = (config.hidden_size, pass.rows * config.intermediate_size);
    for row in 0..pass.rows {
        let range = row * hidden..(row + 1) * hidden;
        kernels.rms_norm(&s.x[range.clone()], Some(&weights.shared_pre_norm), eps, &mut s.normed[range]);
    }
    pass.load(&s.normed, pass.rows, hidden, &mut s.acts);
    pass.matmul(&weights.shared_gate, &s.normed, &s.acts, &mut s.gate);
    pass.matmul(&weights.shared_up, &s.normed, &s.acts, &mut s.up);
    kernels.gelu_mul(&mut s.gate[..wide], &s.up[..wide]);
    pass.load(&s.gate, pass.rows, config.intermediate_size, &mut s.acts);
    pass.matmul(&weights.shared_down, &s.gate, &s.acts, &mut s.shared);
    pass.probe(Some(layer), "shared_raw", hidden, &s.shared);
    for row in 0..pass.rows {
        let out = &mut s.shared[row * hidden..(row + 1) * hidden];
        kernels.rms_norm_in_place(out, Some(&weights.shared_post_norm), eps);
    }
    pass.probe(Some(layer), "shared_out", hidden, &s.shared);
}

/// Chooses the experts of every row and groups the uses by expert.
fn route(
    pass: &mut Pass<'_>,
    layer: usize,
    weights: &FeedForwardWeights,
    store: &mut ExpertStore,
    s: &mut Scratch,
) {
    let (config, kernels, eps) = (pass.config, pass.kernels, pass.config.rms_norm_eps);
    let (hidden, experts, k) = (config.hidden_size, config.num_experts, config.top_k_experts);
    for row in 0..pass.rows {
        let range = row * hidden..(row + 1) * hidden;
        // The router's norm has no weight of its own; its scale vector, times hidden^-1/2, stands in for one.
        kernels.rms_norm(&s.x[range.clone()], Some(&weights.router_scale), eps, &mut s.normed[range]);
    }
    let r = &mut s.routed;
    pass.matmul_f32(&weights.router, &s.normed, &mut r.logits);
    pass.probe(Some(layer), "router_logits", experts, &r.logits);
    for row in 0..pass.rows {
        let logits = &r.logits[row * experts..(row + 1) * experts];
        let ids = &mut r.ids[row * k..(row + 1) * k];
        let shares = &mut r.weights[row * k..(row + 1) * k];
        top_k(logits, k, &mut r.picked);
        ids.copy_from_slice(&r.picked);
        if let Some(reroute) = pass.reroute.as_deref_mut() {
            reroute.choose(layer, pass.first + row, ids);
            ids.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        }
        expert_weights(logits, ids, &weights.per_expert_scale, shares);
        pass.probe_experts(layer, row, ids, shares);
        store.note_token(layer, ids);
    }
    r.group(pass.rows * k, experts);
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
    fn group(&mut self, uses: usize, experts: usize) {
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
}

/// The routed branch; leaves its normed output in `s.branch`.
fn routed_experts(
    pass: &mut Pass<'_>,
    layer: usize,
    weights: &FeedForwardWeights,
    store: &mut ExpertStore,
    s: &mut Scratch,
) -> Result<()> {
    let (config, kernels, rows, eps) = (pass.config, pass.kernels, pass.rows, pass.config.rms_norm_eps);
    let (hidden, k) = (config.hidden_size, config.top_k_experts);
    for row in 0..rows {
        let range = row * hidden..(row + 1) * hidden;
        kernels.rms_norm(&s.x[range.clone()], Some(&weights.routed_pre_norm), eps, &mut s.normed[range]);
    }
    pass.load(&s.normed, rows, hidden, &mut s.acts);
    let Routed { wanted, starts, uses, parts, mine, .. } = &mut s.routed;
    store.fetch(layer, wanted, &mut |expert, blob| {
        let range = starts[expert]..starts[expert + 1];
        mine.gather(pass, &s.normed, &s.acts, uses[range.clone()].iter().map(|&position| position / k));
        let out = &mut parts[range.start * hidden..range.end * hidden];
        mine.run(pass, &weights.experts, blob, range.len(), out);
        Ok(())
    })?;
    s.routed.combine(kernels, rows * k, k, hidden, &mut s.branch);
    pass.probe(Some(layer), "routed_raw", hidden, &s.branch);
    for row in 0..rows {
        let out = &mut s.branch[row * hidden..(row + 1) * hidden];
        kernels.rms_norm_in_place(out, Some(&weights.routed_post_norm), eps);
    }
    pass.probe(Some(layer), "routed_out", hidden, &s.branch);
    Ok(())
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

    /// `out = (gelu(input Wgate) * (input Wup)) Wdown` with the expert's matrices, for its `rows` rows.
    fn run(&mut self, pass: &Pass<'_>, shape: &ExpertShape, blob: &[u8], rows: usize, out: &mut [f32]) {
        let width = pass.config.moe_intermediate_size;
        let (gate, up) = (&mut self.gate[..rows * width], &mut self.up[..rows * width]);
        pass.product(&shape.gate.view(blob), &self.input, &self.acts, rows, gate);
        pass.product(&shape.up.view(blob), &self.input, &self.acts, rows, up);
        pass.kernels.gelu_mul(gate, up);
        pass.load(gate, rows, width, &mut self.inner);
        pass.product(&shape.down.view(blob), gate, &self.inner, rows, out);
    }
}

impl Routed {
    /// Adds each row's weighted partial sums in router order.
    fn combine(&mut self, kernels: &Kernels, uses: usize, k: usize, hidden: usize, out: &mut [f32]) {
        let part_of = &mut self.part_of[..uses];
        for (part, &position) in self.uses[..uses].iter().enumerate() {
            part_of[position] = part;
        }
        for (row, parts) in part_of.chunks_exact(k).enumerate() {
            let out = &mut out[row * hidden..(row + 1) * hidden];
            out.fill(0.0);
            for (&part, &weight) in parts.iter().zip(&self.weights[row * k..(row + 1) * k]) {
                kernels.add_scaled(out, weight, &self.parts[part * hidden..(part + 1) * hidden]);
            }
        }
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
            part_of: vec![0; ids.len()],
            parts: Vec::new(),
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

        #[test]
        fn partial_sums_are_added_in_router_order(
            ids in prop::collection::vec(prop::sample::subsequence((0..6usize).collect::<Vec<_>>(), 3).prop_shuffle(), 1..8),
            seed in 1u32..1000,
        ) {
            let (k, hidden) = (3, 2);
            let flat: Vec<usize> = ids.concat();
            let mut r = routed(6, &flat);
            r.group(flat.len(), 6);
            // Values of very different size, so that another order would round differently.
            let value = |i: usize| (i as f32 + seed as f32).sin() * 10f32.powi((i * 7 % 11) as i32 - 5);
            r.weights = (0..flat.len()).map(|i| value(i + 100)).collect();
            r.parts = vec![0.0; flat.len() * hidden];
            for (part, &position) in r.uses.iter().enumerate() {
                for c in 0..hidden {
                    r.parts[part * hidden + c] = value(position * hidden + c);
                }
            }
            let kernels = Kernels::detect();
            let mut out = vec![7.0; ids.len() * hidden];
            r.combine(kernels, flat.len(), k, hidden, &mut out);
            for row in 0..ids.len() {
                let mut wanted = vec![0.0; hidden];
                for rank in 0..k {
                    let position = row * k + rank;
                    let part: Vec<f32> = (0..hidden).map(|c| value(position * hidden + c)).collect();
                    kernels.add_scaled(&mut wanted, value(position + 100), &part);
                }
                prop_assert_eq!(&out[row * hidden..(row + 1) * hidden], &wanted[..]);
            }
        }
    }
}
