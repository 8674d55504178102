//! Finding the candidates among the logits, and drawing one.
//!
//! A token's weight is `e^(logit - largest)` times 2^43, rounded to an integer: sums do not depend on the order of
//! adding, so every way of finding the candidates finds the same ones. The exponential is our own, of plain f64
//! multiplications and additions, so its bits do not depend on the machine or its C library. Tokens are ordered by
//! falling logit, equal ones by rising id; "the n likeliest" means the first n of that order. Draws go through the
//! candidates by rising id.

use super::Sampling;

/// Weight of the likeliest token. With 2^20 tokens the sum stays below 2^64.
pub(super) const ONE: u64 = 1 << 43;
/// Below this exponent a weight rounds to 0.
const LEAST: f64 = -31.0;

/// `e^x * ONE` rounded, for x up to 0. Relative error below 1e-13 before rounding.
pub(super) fn weight(x: f64) -> u64 {
    /// Adding it rounds to an integer and leaves that integer in the low bits.
    const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52
    if x < LEAST {
        return 0;
    }
    // x = n ln 2 + r, |r| <= 0.35: e^x = 2^n e^r, and e^r by its series.
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let r = x - (shifted - ROUND) * std::f64::consts::LN_2;
    let mut series = 1.0 / 479_001_600.0;
    for factor in [
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        series = series * r + factor;
    }
    // 2^(n + 43) by its exponent bits; n is within -45..=0.
    let scale = f64::from_bits(shifted.to_bits().wrapping_add(1023 + 43) << 52);
    (series * scale + 0.5) as u64
}

/// Weight of a logit among logits with this maximum.
fn weight_of(logit: f32, max: f32) -> u64 {
    weight(f64::from(logit) - f64::from(max))
}

/// A number that is larger for tokens earlier in the order. The logit is not NaN.
fn key(id: usize, logit: f32) -> u64 {
    let bits = (logit + 0.0).to_bits(); // one zero instead of two
    let rising = if bits >> 31 != 0 { !bits } else { bits | 1 << 31 };
    u64::from(rising) << 32 | u64::from(!(id as u32))
}

/// The logit of a key.
fn logit_of(key: u64) -> f32 {
    let rising = (key >> 32) as u32;
    f32::from_bits(if rising >> 31 != 0 { rising & !(1 << 31) } else { !rising })
}

/// The largest logit, the lowest id among equals; NaN is never it. 0 if there is nothing above minus infinity.
pub(super) fn greedy(logits: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (id, &logit) in logits.iter().enumerate() {
        if logit > best.1 {
            best = (id, logit);
        }
    }
    best.0 as u32
}

/// The candidates of one choice.
#[derive(Debug, Default)]
pub(super) struct Selection {
    keys: Vec<u64>,
    /// Candidates by rising id.
    pub(super) ids: Vec<u32>,
    /// Their weights with temperature.
    pub(super) weights: Vec<u64>,
    /// Sum of the weights.
    pub(super) total: u64,
}

impl Selection {
    /// Finds the candidates: Top-P, Top-K, min-p; then weighs them with the temperature, which is above 0.
    pub(super) fn select(&mut self, sampling: &Sampling, logits: &mut [f32]) {
        self.ids.clear();
        self.weights.clear();
        self.total = 0;
        let max = tidy(logits);
        if max == f32::NEG_INFINITY {
            return;
        }
        let floor = self.floor(sampling, logits, max);
        let least = share_of(sampling.min_p, ONE);
        let temperature = f64::from(sampling.temperature);
        for (id, &logit) in logits.iter().enumerate() {
            if key(id, logit) < floor || logit == f32::NEG_INFINITY {
                continue;
            }
            if sampling.min_p > 0.0 && weight_of(logit, max) < least {
                continue;
            }
            let weight = weight((f64::from(logit) - f64::from(max)) / temperature);
            self.ids.push(id as u32);
            self.weights.push(weight);
            self.total += weight;
        }
    }

    /// The candidate that 64 random bits choose; `None` if there are none.
    pub(super) fn draw(&self, random: u64) -> Option<u32> {
        let mut ticket = super::rng::ticket(random, self.total);
        for (&id, &weight) in self.ids.iter().zip(&self.weights) {
            if ticket < weight {
                return Some(id);
            }
            ticket -= weight;
        }
        None
    }

    /// The key of the last token that Top-P and Top-K keep: both keep a beginning of the order.
    fn floor(&mut self, sampling: &Sampling, logits: &[f32], max: f32) -> u64 {
        let limited = sampling.top_k > 0 && sampling.top_k < logits.len();
        let nucleus = sampling.top_p < 1.0;
        if limited {
            self.likeliest(logits, sampling.top_k);
        } else if nucleus {
            // Tokens of weight 0 come last and are never needed to reach a share.
            self.keys.clear();
            let near = |(id, &logit): (usize, &f32)| {
                (f64::from(logit) - f64::from(max) >= LEAST).then(|| key(id, logit))
            };
            self.keys.extend(logits.iter().enumerate().filter_map(near));
        } else {
            return 0;
        }
        if nucleus {
            let total = logits.iter().map(|&logit| weight_of(logit, max)).sum();
            self.shorten(max, share_of(sampling.top_p, total).max(1));
        }
        self.keys.iter().copied().min().unwrap_or(0)
    }

    /// Collects the keys of the `count` likeliest tokens (fewer if fewer are possible), in no order: one pass with a
    /// rising floor, a partial selection whenever the room is full.
    fn likeliest(&mut self, logits: &[f32], count: usize) {
        let keys = &mut self.keys;
        let room = count.saturating_mul(2).max(count.saturating_add(256));
        let mut floor = 0;
        let shrink = |keys: &mut Vec<u64>| {
            keys.select_nth_unstable_by(count - 1, |a, b| b.cmp(a));
            keys.truncate(count);
            keys[count - 1]
        };
        keys.clear();
        for (id, &logit) in logits.iter().enumerate() {
            let key = key(id, logit);
            if key > floor && logit != f32::NEG_INFINITY {
                keys.push(key);
                if keys.len() == room {
                    floor = shrink(keys);
                }
            }
        }
        if keys.len() > count {
            shrink(keys);
        }
    }

    /// Keeps the fewest first keys whose weights reach `need`; all of them if they do not. Halves the range in
    /// question by selection, so the work is linear.
    fn shorten(&mut self, max: f32, mut need: u64) {
        let keys = &mut self.keys;
        let weigh = |keys: &[u64]| keys.iter().map(|&key| weight_of(logit_of(key), max)).sum::<u64>();
        if weigh(keys) < need {
            return;
        }
        let (mut low, mut high) = (0, keys.len());
        while high - low > 1 {
            let half = (high - low) / 2;
            keys[low..high].select_nth_unstable_by(half, |a, b| b.cmp(a));
            let mass = weigh(&keys[low..low + half]);
            if mass >= need {
                high = low + half;
            } else {
                need -= mass;
                low += half;
            }
        }
        keys.truncate(high);
    }
}

/// The smallest whole weight that is at least this share of the total.
pub(super) fn share_of(share: f32, total: u64) -> u64 {
    ((f64::from(share) * total as f64).ceil() as u64).min(total)
}

/// Makes NaN minus infinity and plus infinity the largest finite number; returns the largest logit.
fn tidy(logits: &mut [f32]) -> f32 {
    let mut max = f32::NEG_INFINITY;
    for logit in logits {
        if logit.is_nan() {
            *logit = f32::NEG_INFINITY;
        } else if *logit == f32::INFINITY {
            *logit = f32::MAX;
        }
        max = max.max(*logit);
    }
    max
}
