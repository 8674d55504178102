//! A counter-based random source: every word is a function of its key and its index alone, so that the bytes of
//! a tensor do not depend on who makes which part of it, or in which order.
//!
//! The mixing function is the finalizer of SplitMix64 (Steele, Lea and Flood, 2014).

/// The increment of SplitMix64: 2^64 divided by the golden ratio, made odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// An endless sequence of random words that can be read from any index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    key: u64,
}

impl Stream {
    /// The stream of `name` under `seed`: FNV-1a of the name, mixed with the seed.
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, byte| {
            (h ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self { key: mix(mix(seed.wrapping_add(STEP)) ^ hash) }
    }

    /// Word `index`.
    pub(crate) fn word(self, index: u64) -> u64 {
        mix(self.key.wrapping_add(index.wrapping_add(1).wrapping_mul(STEP)))
    }

    /// Uniform in [0, 1), with 24 random bits.
    pub(crate) fn uniform(self, index: u64) -> f32 {
        (self.word(index) >> 40) as f32 / 16_777_216.0
    }

    /// Standard normal number `index`, by the method of Box and Muller (words `2 index` and `2 index + 1`).
    pub(crate) fn normal(self, index: u64) -> f64 {
        let unit = |i: u64| ((self.word(i) >> 11) as f64 + 0.5) / 9_007_199_254_740_992.0;
        (-2.0 * unit(2 * index).ln()).sqrt() * (std::f64::consts::TAU * unit(2 * index + 1)).cos()
    }

    /// Fills `out` with the words from `first` on, little-endian. `out` holds whole words.
    pub(crate) fn fill(self, first: u64, out: &mut [u8]) {
        let mut state = self.key.wrapping_add(first.wrapping_mul(STEP));
        for bytes in out.chunks_exact_mut(8) {
            state = state.wrapping_add(STEP);
            bytes.copy_from_slice(&mix(state).to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fill_is_the_words_wherever_it_starts() {
        let stream = Stream::new(7, "layer.3.gate");
        let mut whole = [0; 64];
        stream.fill(0, &mut whole);
        let mut part = [0; 24];
        stream.fill(3, &mut part);
        assert_eq!(part, whole[24..48]);
        assert_eq!(stream.word(3).to_le_bytes(), whole[24..32]);
    }

    #[test]
    fn names_and_seeds_part_the_streams() {
        let word = |seed, name| Stream::new(seed, name).word(0);
        assert_ne!(word(1, "a"), word(2, "a"));
        assert_ne!(word(1, "a"), word(1, "b"));
    }

    #[test]
    fn normals_have_unit_moments() {
        let stream = Stream::new(1, "normal");
        let values: Vec<f64> = (0..20_000).map(|i| stream.normal(i)).collect();
        let mean = values.iter().sum::<f64>() / 20_000.0;
        let variance = values.iter().map(|v| v * v).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "mean {mean}, variance {variance}");
    }
}
