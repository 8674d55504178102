//! Times that no program can beat on a machine of given rates: for a generated token, for a prompt, for the first token
//! after a cold start.
//!
//! A token's time is that of the *hit-first* order, the best one in which a layer's experts are known only when its router
//! has run. Per layer: the attention half is read from memory; then missing experts are read from the disk, while the
//! shared expert and the experts that are held are read from memory, and the last expert to arrive after that.
//!
//! ```text
//! T = sum over layers of [ (A + K) / B + max( m b / S + (E / k) / B , (D + E) / B ) ] + H / B,   m = k (1 - h)
//! ```
//!
//! A attention weights, K keys and values read, D shared expert and router, E the k experts of a token, H the table of the
//! head, b bytes of an expert on disk; h hit rate; B rate of memory, S of the disk. With h = 1 it is all bytes over B.

use super::traffic::Traffic;

/// What a machine does in a second.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Rates {
    /// Bytes read from memory.
    pub memory: f64,
    /// Bytes read from the disk, experts at a time.
    pub disk: f64,
    /// Multiplications of many rows.
    pub products: f64,
}

/// Seconds of one generated token with `context` positions before it, when a share `hit_rate` of experts is held.
pub fn token_seconds(model: &Traffic, context: usize, hit_rate: f64, rates: &Rates) -> f64 {
    let misses = model.top_k as f64 * (1.0 - hit_rate.clamp(0.0, 1.0));
    let io = misses * model.stride as f64 / rates.disk;
    let memory = |bytes: f64| bytes / rates.memory;
    let one = model.expert as f64;
    let experts = one * model.top_k as f64;
    let layers = model.layers.iter().map(|layer| {
        let attention = memory(layer.attention as f64 + layer.kv(context) as f64);
        let computed = memory(layer.dense as f64 + experts);
        // Without a miss nothing waits for the disk.
        let awaited = if misses > 0.0 { io + memory(one) } else { 0.0 };
        attention + awaited.max(computed)
    });
    layers.sum::<f64>() + memory(model.head as f64)
}

/// The mean of [`token_seconds`] over `tokens` tokens that follow `prompt` ones.
pub fn decode_seconds_per_token(
    model: &Traffic,
    prompt: usize,
    tokens: usize,
    hit_rate: f64,
    rates: &Rates,
) -> f64 {
    // The cache grows evenly, but for windows that fill up meanwhile: each position for itself is exact.
    let tokens = tokens.max(1);
    let sum: f64 = (1..=tokens).map(|token| token_seconds(model, prompt + token, hit_rate, rates)).sum();
    sum / tokens as f64
}

/// Seconds of a prompt: its multiplications, the bytes that have to come from the disk, or one look at all weights that it
/// uses, whichever takes longest. `used` are the experts that it uses, of all layers, `read` those of them that are not
/// held before.
pub fn prompt_seconds(model: &Traffic, tokens: usize, used: u64, read: u64, rates: &Rates) -> f64 {
    let computed = model.prompt_macs(tokens) as f64 / rates.products;
    let from_disk = read as f64 * model.stride as f64 / rates.disk;
    let core: u64 = model.layers.iter().map(|layer| layer.attention + layer.dense).sum();
    let from_memory = (core as f64 + model.head as f64 + used as f64 * model.expert as f64) / rates.memory;
    computed.max(from_disk).max(from_memory)
}

/// Seconds until the first token after a cold start: the resident weights and the experts used, read from the disk.
pub fn first_token_seconds(core_bytes: u64, expert_bytes: u64, rates: &Rates) -> f64 {
    core_bytes.saturating_add(expert_bytes) as f64 / rates.disk
}

#[cfg(test)]
mod tests {
    use super::super::traffic::LayerTraffic;
    use super::*;

    /// Two layers with round numbers.
    fn small() -> Traffic {
        let sliding = LayerTraffic {
            attention: 100,
            dense: 50,
            kv_row: 1,
            window: Some(10),
            macs: 1000,
            score_macs: 2,
        };
        let full = LayerTraffic { attention: 200, window: None, ..sliding.clone() };
        Traffic {
            layers: vec![sliding, full],
            head: 300,
            head_macs: 7,
            expert: 20,
            stride: 24,
            expert_macs: 100,
            experts: 16,
            top_k: 4,
        }
    }

    const RATES: Rates = Rates { memory: 10.0, disk: 2.0, products: 100.0 };

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9 * b.abs().max(1.0)
    }

    #[test]
    fn a_token_by_hand() {
        let model = small();
        // h = 1/2: two misses, 48 bytes, 24 s of reading and 2 s for the last expert; 13 s of arithmetic meanwhile.
        // Layer 0: (100 + 5) / 10 + 26; layer 1: (200 + 5) / 10 + 26; head 30.
        assert!(close(token_seconds(&model, 5, 0.5, &RATES), 10.5 + 26.0 + 20.5 + 26.0 + 30.0));
        // At 20 positions the first layer sees 10, the second all.
        assert!(close(token_seconds(&model, 20, 0.5, &RATES), 11.0 + 26.0 + 22.0 + 26.0 + 30.0));
        // h = 0.95: 0.2 misses, 2.4 s and 2 s are hidden behind 13 s.
        assert!(close(token_seconds(&model, 5, 0.95, &RATES), 10.5 + 13.0 + 20.5 + 13.0 + 30.0));
    }

    #[test]
    fn with_everything_held_it_is_all_bytes_over_the_rate_of_memory() {
        let model = Traffic::full_size();
        let rates = Rates { memory: 35e9, disk: 1.7e9, products: 270e9 };
        let seconds = token_seconds(&model, 512, 1.0, &rates);
        assert!(close(seconds, model.touched(512) as f64 / 35e9));
        // About 15 tokens a second on that machine.
        assert!((14.0..16.0).contains(&(1.0 / seconds)), "{}", 1.0 / seconds);
    }

    #[test]
    fn the_full_size_model_on_a_measured_machine() {
        // 6.1 slots of 128, about 34 % of hits, at S = 2.4 GB/s and B = 30 to 50 GB/s: 3.8 to 4.1 tokens a second.
        let model = Traffic::full_size();
        for (memory, low, high) in [(30e9, 3.7, 3.95), (50e9, 3.95, 4.25)] {
            let rates = Rates { memory, disk: 2.4e9, products: 1.0 };
            let rate = 1.0 / token_seconds(&model, 512, 0.345, &rates);
            assert!((low..high).contains(&rate), "{memory}: {rate}");
        }
    }

    #[test]
    fn a_run_is_the_mean_of_its_tokens() {
        let model = small();
        let mean = decode_seconds_per_token(&model, 4, 2, 0.5, &RATES);
        let by_hand =
            f64::midpoint(token_seconds(&model, 5, 0.5, &RATES), token_seconds(&model, 6, 0.5, &RATES));
        assert!(close(mean, by_hand));
        assert!(close(
            decode_seconds_per_token(&model, 4, 0, 0.5, &RATES),
            token_seconds(&model, 5, 0.5, &RATES)
        ));
    }

    #[test]
    fn a_prompt_is_its_longest_part() {
        let model = small();
        // 12 tokens: 2 layers of (1000 + 400) x 12, positions 10 x 11 / 2 + 2 x 10 = 75 and 78 at 2 each, 7 for the head.
        let macs = 2 * 1400 * 12 + 2 * 75 + 2 * 78 + 7;
        assert_eq!(model.prompt_macs(12), macs);
        assert!(close(prompt_seconds(&model, 12, 20, 20, &RATES), macs as f64 / 100.0));
        let slow_disk = Rates { disk: 0.5, ..RATES };
        assert!(close(prompt_seconds(&model, 12, 20, 20, &slow_disk), 20.0 * 24.0 / 0.5));
        let fast = Rates { memory: 10.0, disk: 1e9, products: 1e9 };
        assert!(close(prompt_seconds(&model, 12, 20, 20, &fast), (400.0 + 300.0 + 400.0) / 10.0));
        assert!(close(first_token_seconds(100, 24, &RATES), 62.0));
    }
}
