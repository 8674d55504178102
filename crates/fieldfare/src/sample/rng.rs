//! The documented random generator: SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
//! OOPSLA 2014). A seed gives the same numbers for ever, on every machine; the tests hold known values.
//!
//! State is one 64-bit word that starts as the seed. Each draw adds `0x9E3779B97F4A7C15` to it and mixes a copy:
//! `z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9; z = (z ^ z >> 27) * 0x94D049BB133111EB; z ^ z >> 31`.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

/// SplitMix64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rng(u64);

impl Rng {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// A number in `0..total`; see [`ticket`].
    pub fn below(&mut self, total: u64) -> u64 {
        ticket(self.next_u64(), total)
    }
}

/// Random bits as a number in `0..total`, by multiplication: each number has the same count of the 2^64 bit patterns,
/// give or take one. 0 for an empty range.
pub fn ticket(random: u64, total: u64) -> u64 {
    ((u128::from(random) * u128::from(total)) >> 64) as u64
}

/// A seed that nobody chose: the system's entropy (which std's hash maps draw on) mixed with the clock. Below 2^53,
/// so that it survives a trip through JSON readers that keep numbers as doubles.
pub fn fresh_seed() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    if let Ok(since) = SystemTime::now().duration_since(UNIX_EPOCH) {
        hasher.write_u128(since.as_nanos());
    }
    hasher.finish() >> 11
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        let mut rng = Rng::new(1_234_567);
        let drawn: Vec<u64> = (0..5).map(|_| rng.next_u64()).collect();
        assert_eq!(
            drawn,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821
            ]
        );
    }

    #[test]
    fn tickets_stay_in_range() {
        let mut rng = Rng::new(0);
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
        let mut seen = [false; 7];
        for _ in 0..200 {
            seen[rng.below(7) as usize] = true;
        }
        assert_eq!(seen, [true; 7]);
        assert!(rng.below(u64::MAX) < u64::MAX);
    }

    #[test]
    fn fresh_seeds_differ_and_fit_a_double() {
        let (a, b) = (fresh_seed(), fresh_seed());
        assert_ne!(a, b);
        assert!(a < 1 << 53 && b < 1 << 53);
    }
}
