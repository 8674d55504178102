//! Experts as real text asks for them, for measurements on models whose weights do not: from a generator, or recorded.
//!
//! The generator has the statistics that are known of Gemma 4 26B-A4B: 66 % of uses hit a cache of 16 experts a layer, 79
//! and 87 % one of 24 and 32; a token shares a good third of its experts with the one before it; neighbouring layers share
//! next to none. Each expert has a score, `sqrt(.72) P + sqrt(.06) S + sqrt(.11) F + sqrt(.11) N`, and the best ones are
//! used: P popularity in this text, S and F wander with a memory of 30 tokens and of one, N is new each time
//! (`scripts/cache_sim.py` is the same in Python and says where the numbers come from). Only whole numbers are drawn, so
//! that a seed means the same experts everywhere.

use crate::model::RouteOverride;
use crate::{Error, Result};
use std::path::Path;
use std::sync::Arc;

const POPULARITY: f64 = 0.72;
const SLOW: f64 = 0.06;
const FAST: f64 = 0.11;
const SLOW_TOKENS: f64 = 30.0;
const FAST_TOKENS: f64 = 1.0;
/// Share of popularity that all texts have in common.
const COMMON: f64 = 0.35;
/// How much less the first and last layers have favourites, and how layers differ.
const UNEVEN: f64 = 0.1;
/// Holds down the most popular, so that none rules.
const SKEW: f64 = 0.3;
/// Of the popularity of one layer with the next.
const CORRELATION: f64 = 0.1;

/// Longest trace that is read.
const MAX_TRACE_BYTES: u64 = 256 << 20;

/// The experts of every token in every layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routes {
    layers: usize,
    top_k: usize,
    tokens: usize,
    /// `[layer][token][top_k]`.
    ids: Vec<u16>,
    /// What stands for a guess of them made before, best first, likewise; empty without.
    guesses: Vec<u16>,
}

/// The numbers of a model that routes are made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteShape {
    /// Layers.
    pub layers: usize,
    /// Experts of a layer, at most 65,536.
    pub experts: usize,
    /// Experts that a token uses, at most all.
    pub top_k: usize,
}

/// Normal numbers, near enough: sums of eight uniform ones.
struct Normals(u64);

impl Normals {
    fn new(seed: u64, layer: u64) -> Self {
        Self(mix(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ mix(layer.wrapping_add(1))))
    }

    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn next(&mut self) -> f32 {
        let quarter =
            |word: u64| (word & 0xffff) + ((word >> 16) & 0xffff) + ((word >> 32) & 0xffff) + (word >> 48);
        let sum = quarter(self.word()) + quarter(self.word());
        // Mean 8 * 65535 / 2, variance 8 * (65536^2 - 1) / 12.
        (sum as f32 - 262_140.0) / 53_509.9
    }
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A normal number with its upper tail pressed together; variance stays 1.
fn skewed(x: f64) -> f64 {
    let a = SKEW;
    (1.0 - (-a * x - a * a / 2.0).exp()) / (a * a).exp_m1().sqrt()
}

impl Routes {
    /// Experts for `tokens` tokens.
    pub fn generate(shape: RouteShape, tokens: usize, seed: u64) -> Self {
        Self::with_noise(shape, tokens, seed, None)
    }

    /// [`Routes::generate`], the same experts, and for each token and layer a guess of them, of which about the share
    /// `recall` is right: the best by scores to which as much noise is added as makes it so. A wrong guess is then one that
    /// nearly was chosen, as with a router that is asked too early. **Simulated**: it says what a prediction of this quality
    /// is worth, not how good one is.
    pub fn generate_guessed(shape: RouteShape, tokens: usize, seed: u64, recall: f64) -> Self {
        let trial = RouteShape { layers: shape.layers.min(4), ..shape };
        let (mut low, mut high) = (0.0, 16.0);
        for _ in 0..12 {
            let noise = f64::midpoint(low, high);
            let reached = Self::with_noise(trial, 64, seed, Some(noise as f32)).recall().unwrap_or(1.0);
            if reached > recall { low = noise } else { high = noise }
        }
        Self::with_noise(shape, tokens, seed, Some(f64::midpoint(low, high) as f32))
    }

    /// Share of the experts that are among their guesses; `None` where nothing is guessed.
    pub fn recall(&self) -> Option<f64> {
        let pairs =
            self.ids.chunks_exact(self.top_k.max(1)).zip(self.guesses.chunks_exact(self.top_k.max(1)));
        let right: usize = pairs.map(|(ids, guess)| ids.iter().filter(|id| guess.contains(id)).count()).sum();
        (!self.guesses.is_empty()).then(|| right as f64 / self.ids.len().max(1) as f64)
    }

    fn with_noise(shape: RouteShape, tokens: usize, seed: u64, noise: Option<f32>) -> Self {
        let RouteShape { layers, experts, top_k } = shape;
        let mut common = Normals::new(seed, 0);
        let mut draw = |count: usize| -> Vec<f64> { (0..count).map(|_| f64::from(common.next())).collect() };
        let (mut model_wide, mut topic) = (draw(experts), draw(experts));
        let mut ids = Vec::with_capacity(layers * tokens * top_k);
        let mut guesses = Vec::new();
        for layer in 0..layers {
            for popularity in [&mut model_wide, &mut topic] {
                let fresh = draw(experts);
                for (old, new) in popularity.iter_mut().zip(fresh) {
                    *old = CORRELATION * *old + (1.0 - CORRELATION * CORRELATION).sqrt() * new;
                }
            }
            let popularity: Vec<f64> = (model_wide.iter().zip(&topic))
                .map(|(wide, topic)| skewed(COMMON.sqrt() * wide + (1.0 - COMMON).sqrt() * topic))
                .collect();
            let share = popular_share(layer, layers, draw(1)[0]);
            generate_layer(
                &popularity,
                share,
                top_k,
                tokens,
                &mut Normals::new(seed, layer as u64 + 1),
                &mut ids,
                noise.map(|noise| (noise, Normals::new(!seed, layer as u64 + 1), &mut guesses)),
            );
        }
        Self { layers, top_k, tokens, ids, guesses }
    }

    /// Reads a trace: rows `token,layer,expert`, a heading allowed, every token with as many experts in every layer as
    /// the model uses.
    ///
    /// # Errors
    /// [`Error::BadRequest`] with the line, or what is missing.
    pub fn read(path: &Path, shape: RouteShape) -> Result<Self> {
        let size = std::fs::metadata(path).map_err(Error::io("open", path))?.len();
        if size > MAX_TRACE_BYTES {
            return Err(Error::bad(
                "routing",
                format!("{} is longer than {} MiB", path.display(), MAX_TRACE_BYTES >> 20),
            ));
        }
        let text = std::fs::read_to_string(path).map_err(Error::io("read", path))?;
        parse(&text, shape).map_err(|reason| Error::bad("routing", format!("{}: {reason}", path.display())))
    }

    /// Tokens; beyond them it begins again.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// The experts of one token in one layer.
    pub fn experts(&self, layer: usize, token: usize) -> &[u16] {
        &self.ids[self.place(layer, token)]
    }

    /// What stands for a guess of them, best first; nothing where there is none.
    pub fn guesses(&self, layer: usize, token: usize) -> &[u16] {
        self.guesses.get(self.place(layer, token)).unwrap_or_default()
    }

    fn place(&self, layer: usize, token: usize) -> std::ops::Range<usize> {
        let at = (layer % self.layers.max(1)) * self.tokens + token % self.tokens.max(1);
        at * self.top_k..(at + 1) * self.top_k
    }
}

/// Share of popularity in a layer's scores; the outer layers have less of it.
fn popular_share(layer: usize, layers: usize, random: f64) -> f64 {
    let edge = layer.min(layers - 1 - layer);
    let less = match edge {
        0 => 2.0 * UNEVEN,
        1 | 2 => UNEVEN,
        _ => 0.0,
    };
    // A normal number within one deviation, for an even one within 1.
    let share = POPULARITY * (1.0 - less) * (1.0 + 0.5 * UNEVEN * random.clamp(-1.0, 1.0));
    share.clamp(0.0, 1.0 - SLOW - FAST - 0.02)
}

fn generate_layer(
    popularity: &[f64],
    share: f64,
    top_k: usize,
    tokens: usize,
    normals: &mut Normals,
    ids: &mut Vec<u16>,
    mut guessed: Option<(f32, Normals, &mut Vec<u16>)>,
) {
    let memory = |tokens: f64| {
        let keep = (-1.0 / tokens).exp();
        (keep as f32, (1.0 - keep * keep).sqrt() as f32)
    };
    let ((slow_keep, slow_new), (fast_keep, fast_new)) = (memory(SLOW_TOKENS), memory(FAST_TOKENS));
    let weight = |variance: f64| variance.max(0.0).sqrt() as f32;
    let (slow_weight, fast_weight) = (weight(SLOW), weight(FAST));
    let new_weight = weight(1.0 - share - SLOW - FAST);
    let fixed: Vec<f32> = popularity.iter().map(|p| (share.sqrt() * p) as f32).collect();
    let mut slow: Vec<f32> = fixed.iter().map(|_| normals.next()).collect();
    let mut fast: Vec<f32> = fixed.iter().map(|_| normals.next()).collect();
    let mut scores: Vec<(f32, u16)> = Vec::with_capacity(fixed.len());
    for _ in 0..tokens {
        scores.clear();
        for (expert, &fixed) in fixed.iter().enumerate() {
            slow[expert] = slow_keep * slow[expert] + slow_new * normals.next();
            fast[expert] = fast_keep * fast[expert] + fast_new * normals.next();
            let score =
                fixed + slow_weight * slow[expert] + fast_weight * fast[expert] + new_weight * normals.next();
            scores.push((score, expert as u16));
        }
        if let Some((noise, normals, guesses)) = &mut guessed {
            let noisy = scores.iter().map(|&(score, expert)| (score + *noise * normals.next(), expert));
            best(&mut noisy.collect(), top_k, guesses);
        }
        best(&mut scores, top_k, ids);
    }
}

/// Adds the experts with the `top_k` best scores, best first.
fn best(scores: &mut Vec<(f32, u16)>, top_k: usize, ids: &mut Vec<u16>) {
    let better = |a: &(f32, u16), b: &(f32, u16)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
    if top_k < scores.len() {
        scores.select_nth_unstable_by(top_k, better);
        scores.truncate(top_k);
    }
    scores.sort_unstable_by(better);
    ids.extend(scores.iter().map(|&(_, expert)| expert));
}

fn parse(text: &str, shape: RouteShape) -> std::result::Result<Routes, String> {
    let RouteShape { layers, experts, top_k } = shape;
    let mut by_token: Vec<Vec<Vec<u16>>> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || (index == 0 && line.starts_with(|c: char| c.is_ascii_alphabetic())) {
            continue;
        }
        let wrong = |what: String| format!("line {}: {what}", index + 1);
        let mut numbers = line.split(',').map(|field| field.trim().parse::<usize>());
        let (Some(Ok(token)), Some(Ok(layer)), Some(Ok(expert))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return Err(wrong("is not token,layer,expert".to_owned()));
        };
        if layer >= layers || expert >= experts {
            return Err(wrong(format!(
                "names layer {layer} and expert {expert}, the model has {layers} layers of {experts} experts"
            )));
        }
        match token.cmp(&by_token.len()) {
            std::cmp::Ordering::Equal => by_token.push(vec![Vec::new(); layers]),
            // Rows may be by layer, then token: the first layer brings the tokens in order.
            std::cmp::Ordering::Greater => return Err(wrong(format!("jumps to token {token}"))),
            std::cmp::Ordering::Less => {}
        }
        let used = &mut by_token[token][layer];
        let expert = expert as u16;
        if used.contains(&expert) {
            return Err(wrong(format!("repeats expert {expert} of token {token} in layer {layer}")));
        }
        used.push(expert);
    }
    if by_token.is_empty() {
        return Err("holds no tokens".to_owned());
    }
    let mut ids = Vec::with_capacity(by_token.len() * layers * top_k);
    for layer in 0..layers {
        for (token, used) in by_token.iter().enumerate() {
            let count = used[layer].len();
            if count != top_k {
                return Err(format!(
                    "token {token} has {count} experts in layer {layer}, the model uses {top_k}"
                ));
            }
            ids.extend_from_slice(&used[layer]);
        }
    }
    Ok(Routes { layers, top_k, tokens: by_token.len(), ids, guesses: Vec::new() })
}

/// Routes in place of a model's router. Clones share them.
#[derive(Debug, Clone)]
pub struct Replay(pub Arc<Routes>);

impl RouteOverride for Replay {
    fn choose(&mut self, layer: usize, position: usize, ids: &mut [usize]) {
        for (id, &expert) in ids.iter_mut().zip(self.0.experts(layer, position)) {
            *id = usize::from(expert);
        }
    }

    fn guess(&mut self, layer: usize, position: usize, ids: &mut Vec<usize>) {
        ids.clear();
        ids.extend(self.0.guesses(layer, position).iter().map(|&expert| usize::from(expert)));
    }
}

#[cfg(test)]
mod tests;
