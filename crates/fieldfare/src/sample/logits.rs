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
/// From this exponent down a weight is 0.
const LEAST: f64 = -31.0;

/// `e^x` for small |x|, by its series: twelve terms, for |x| up to 0.7 exact to a few units of the last place.
const fn series(x: f64) -> f64 {
    let mut sum = 1.0;
    let mut term = 14;
    while term > 0 {
        sum = sum * x / term as f64 + 1.0;
        term -= 1;
    }
    sum
}

/// `2^(j / 64)`, computed when the program is compiled.
const ROOTS: [f64; 64] = {
    let mut roots = [0.0; 64];
    let mut j = 0;
    while j < 64 {
        roots[j] = series(j as f64 / 64.0 * std::f64::consts::LN_2);
        j += 1;
    }
    roots
};

/// `e^x * ONE` rounded, for x up to 0. Relative error below 1e-13 before rounding.
#[inline]
pub(super) fn weight(x: f64) -> u64 {
    /// Adding it rounds to an integer and leaves that integer in the low bits.
    const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52
    /// The same for numbers that are not negative.
    const WHOLE: f64 = 4_503_599_627_370_496.0; // 2^52
    let x = x.max(LEAST);
    // x = (64 n + j) / 64 ln 2 + r with 0 <= j < 64 and |r| <= ln 2 / 128: e^x = 2^n 2^(j/64) e^r.
    let shifted = x * (64.0 * std::f64::consts::LOG2_E) + ROUND;
    let r = x - (shifted - ROUND) * (std::f64::consts::LN_2 / 64.0);
    let power = ((((1.0 / 120.0 * r + 1.0 / 24.0) * r + 1.0 / 6.0) * r + 0.5) * r + 1.0) * r + 1.0;
    let bits = shifted.to_bits();
    let root = ROOTS[(bits & 63) as usize];
    // 2^(n + 43) by its exponent bits; n is within -45..=0.
    let scale = f64::from_bits((bits >> 6).wrapping_add(1023 + 43) << 52);
    (power * root * scale + WHOLE).to_bits() & ((1 << 52) - 1)
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

/// Bands of logits below the largest, for Top-P: 32 for each unit, down to where weights are 0.
const BANDS_EACH: f32 = 32.0;
const BANDS: usize = 1024;
/// Comes after every id in the order of equal logits.
const NO_ID: usize = u32::MAX as usize;

/// The candidates of one choice.
#[derive(Debug, Default)]
pub(super) struct Selection {
    keys: Vec<u64>,
    bands: Vec<u64>,
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
        let lowest = logit_of(floor).max(f32::MIN);
        for (id, &logit) in logits.iter().enumerate() {
            // The first test says no to almost all, cheaply.
            if logit < lowest || key(id, logit) < floor {
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
        let nucleus = sampling.top_p < 1.0;
        if sampling.top_k > 0 && sampling.top_k < logits.len() {
            self.likeliest(logits, sampling.top_k);
            if nucleus {
                let total = logits.iter().map(|&logit| weight_of(logit, max)).sum();
                self.shorten(max, share_of(sampling.top_p, total).max(1));
            }
        } else if nucleus {
            self.nucleus(logits, max, sampling.top_p);
        } else {
            return key(NO_ID, f32::MIN);
        }
        self.keys.iter().copied().min().unwrap_or(0)
    }

    /// Finds the last token of the nucleus: masses of bands of logits first, then a selection within the one band
    /// in which the share is reached. Leaves keys of that band.
    fn nucleus(&mut self, logits: &[f32], max: f32, share: f32) {
        // Rounded differences fall in order, so a band holds all tokens between two logits.
        let band = |logit: f32| (((max - logit) * BANDS_EACH) as usize).min(BANDS - 1);
        self.bands.clear();
        self.bands.resize(BANDS, 0);
        for &logit in logits {
            self.bands[band(logit)] += weight_of(logit, max);
        }
        let mut need = share_of(share, self.bands.iter().sum()).max(1);
        let mut last = 0;
        while last < BANDS - 1 && self.bands[last] < need {
            need -= self.bands[last];
            last += 1;
        }
        self.keys.clear();
        let inside = |(id, &logit): (usize, &f32)| {
            (band(logit) == last && logit > f32::NEG_INFINITY).then(|| key(id, logit))
        };
        self.keys.extend(logits.iter().enumerate().filter_map(inside));
        self.shorten(max, need);
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
