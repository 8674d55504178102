//! Experts chosen from outside: they are the ones used, whatever the chunks, and only while that is asked for.

use crate::support::{Reference, all_logits, bits, exact, runner};
use fieldfare::format::Layout;
use fieldfare::model::{Forward, Probe, RouteOverride, RunnerOptions};
use std::sync::{Arc, Mutex};

/// Experts that depend on layer and position alone.
struct Turning;

fn wanted(layer: usize, position: usize, count: usize) -> Vec<usize> {
    // Not by a number that blocks of rows are multiples of.
    (0..count).map(|i| (layer + position % 13 + 5 * i) % 16).collect()
}

impl RouteOverride for Turning {
    fn choose(&mut self, layer: usize, position: usize, ids: &mut [usize]) {
        ids.copy_from_slice(&wanted(layer, position, ids.len()));
    }
}

type Use = (usize, usize, Vec<usize>);

struct Uses(Arc<Mutex<Vec<Use>>>);

impl Probe for Uses {
    fn tensor(&mut self, _: Option<usize>, _: &'static str, _: usize, _: usize, _: &[f32]) {}

    fn experts(&mut self, layer: usize, position: usize, ids: &[usize], weights: &[f32]) {
        assert!(weights.iter().all(|weight| weight.is_finite()));
        self.0.lock().unwrap().push((layer, position, ids.to_vec()));
    }
}

#[test]
fn experts_from_outside_are_used_in_every_chunking() {
    // More than any block of rows.
    let ids: Vec<u32> = Reference::load().all_ids().iter().cycle().take(280).copied().collect();
    let (ids, options) = (&ids[..], RunnerOptions { max_context: 300, ..exact() });
    let own = all_logits(&mut runner(Layout::Tiled, &options), ids);
    let mut found = Vec::new();
    for chunk in [1, 16, 280] {
        let mut runner =
            runner(Layout::Tiled, &RunnerOptions { prefill_chunk_tokens: chunk, ..options.clone() });
        let uses = Arc::new(Mutex::new(Vec::new()));
        runner.set_probe(Some(Box::new(Uses(Arc::clone(&uses)))));
        runner.set_reroute(Some(Box::new(Turning)));
        found.push(all_logits(&mut runner, ids));
        for (layer, position, mut used) in uses.lock().unwrap().drain(..) {
            let mut wanted = wanted(layer, position, used.len());
            wanted.sort_unstable();
            used.sort_unstable();
            assert_eq!(used, wanted, "layer {layer}, position {position}");
        }
        runner.set_reroute(None);
        runner.rewind(0);
        let back = all_logits(&mut runner, ids);
        assert!(back.iter().zip(&own).all(|(a, b)| bits(a) == bits(b)), "the router again");
    }
    assert!(found[0].iter().zip(&own).any(|(a, b)| bits(a) != bits(b)));
    for other in &found[1..] {
        assert!(other.iter().zip(&found[0]).all(|(a, b)| bits(a) == bits(b)));
    }
}
