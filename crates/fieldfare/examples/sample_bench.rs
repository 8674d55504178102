//! Measures the choice of one token at the real vocabulary's size: `sample_bench`.
//!
//! Logits are of three kinds: peaked as after an easy prefix, spread as after a hard one, and all alike, for which
//! Top-P without Top-K has the most to do.

use fieldfare::sample::{Sampler, Sampling};
use std::time::Instant;

const VOCAB: usize = 262_144;

fn logits(spread: f32) -> Vec<f32> {
    let mut state = 3_u64;
    (0..VOCAB)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // The sum of four uniform numbers is near enough to a bell.
            let bell =
                (0..4).map(|part| ((state >> (16 * part)) & 0xFFFF) as f32 / 65_535.0).sum::<f32>() - 2.0;
            bell * spread
        })
        .collect()
}

fn main() -> fieldfare::Result<()> {
    let base = Sampling { seed: Some(1), ..Sampling::default() };
    let settings = [
        ("greedy", Sampling { temperature: 0.0, ..base.clone() }),
        ("defaults (0.2, 64, 0.95)", base.clone()),
        ("top-k 64 only", Sampling { top_p: 1.0, ..base.clone() }),
        ("top-p 0.95 only, 1.0", Sampling { top_k: 0, temperature: 1.0, ..base.clone() }),
        ("everything, 1.0", Sampling { top_k: 0, top_p: 1.0, temperature: 1.0, ..base.clone() }),
        (
            "min-p 0.05 only, 1.0",
            Sampling { top_k: 0, top_p: 1.0, min_p: 0.05, temperature: 1.0, ..base.clone() },
        ),
    ];
    for (kind, spread) in [("peaked", 14.0), ("spread", 3.0), ("all alike", 0.0)] {
        let logits = logits(spread);
        for (name, sampling) in &settings {
            let mut sampler = Sampler::new(sampling, VOCAB)?;
            let mut scratch = logits.clone();
            let mut best = f64::INFINITY;
            for _ in 0..20 {
                let start = Instant::now();
                std::hint::black_box(sampler.sample(&mut scratch));
                best = best.min(start.elapsed().as_secs_f64());
            }
            println!("{kind:<10} {name:<26} {:7.3} ms", best * 1e3);
        }
    }
    Ok(())
}
