//! What every tensor of a synthetic model is made of, so that it behaves like a trained one where speed depends on
//! it: activations of ordinary size through all layers, and routing with skew and locality.
//!
//! - **A shared direction** u, plus or minus one, constant within each group of 64 columns, is part of every
//!   embedding row. Router rows answer to it, each with its own strength drawn from a popularity law: that is the
//!   static part of the router's logits, which makes some experts hot and others cold.
//! - **Token and context**: the rest of an embedding row is noise of the token's own. Attention adds noise of the
//!   tokens before it, weighted by recency: queries and keys of sliding layers have a common part (their rows answer
//!   to u with one pattern for every head), and the rotation by position makes its score fall with distance. So
//!   routing drifts with the text. Full layers look at everything.
//! - Values, the router's random part and the gates are centred in every group: they do not answer to u, which
//!   would only add constants.
//! - Weights of the norms behind attention and experts decide how much each layer adds to the residual.
//! - The final norm has weights of random sign, balanced in each group: the tied head then neither echoes the input
//!   token nor sees u.

use super::{
    rng::Stream,
    shape::Shape,
    weights::{GROUP, Matrix, Shift},
};

/// The numbers that were tuned (docs/experiments/0001-synthetic-routing.md).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    /// Part of an embedding's variance along the shared direction.
    pub(crate) common: f32,
    /// Part of the variance of the router's logits that is meant to be static popularity.
    pub(crate) popularity: f32,
    /// Skew of the popularity law: compresses its upper tail.
    pub(crate) skew: f64,
    /// Correlation of popularity between neighbouring layers.
    pub(crate) neighbour: f64,
    /// Standard deviation of the router's logits.
    pub(crate) router_spread: f32,
    /// Score of the common part of queries and keys at distance 0, in sliding layers.
    pub(crate) recency: f32,
    /// Share of that common part in the variance of queries and keys.
    pub(crate) recency_share: f32,
    /// Standard deviation of the scores of full layers.
    pub(crate) full_spread: f32,
    /// What attention adds, against a residual of one: first layer, the next two, the others.
    pub(crate) attention: [f32; 3],
    /// What the feed-forward part of each layer adds.
    pub(crate) feed_forward: f32,
    /// Standard deviation of the logits before the cap.
    pub(crate) logits: f32,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            common: 0.1,
            popularity: 0.75,
            skew: 0.3,
            neighbour: 0.1,
            router_spread: 1.5,
            recency: 14.0,
            recency_share: 1.0 / 3.0,
            full_spread: 1.0,
            attention: [1.3, 0.5, 0.2],
            feed_forward: 0.15,
            logits: 3.0,
        }
    }
}

/// One tensor: how to make it.
#[derive(Clone, Debug)]
pub(crate) enum Recipe {
    /// A quantized matrix.
    Matrix(Matrix),
    /// A bf16 vector.
    Vector(Vec<f32>),
}

/// A synthetic model: every tensor by name, nothing made yet.
pub(crate) struct Model {
    /// The sizes.
    pub(crate) shape: Shape,
    /// Sign of each hidden group in the shared direction.
    pub(crate) direction: Vec<f32>,
    seed: u64,
    tuning: Tuning,
    /// Popularity of the experts of each layer, mean 0 and variance 1 in expectation.
    popularity: Vec<Vec<f64>>,
}

impl Model {
    /// The model of `seed`.
    pub(crate) fn new(shape: Shape, seed: u64, tuning: Tuning) -> Self {
        let signs = Stream::new(seed, "direction");
        let direction = (0..shape.hidden / GROUP)
            .map(|g| if signs.word(g as u64) & 1 == 0 { 1.0 } else { -1.0 })
            .collect();
        let popularity = popularity(&shape, seed, &tuning);
        Self { shape, direction, seed, tuning, popularity }
    }

    /// The embedding table.
    pub(crate) fn embedding(&self) -> Matrix {
        let (t, s) = (&self.tuning, &self.shape);
        let unit = 1.0 / (s.hidden as f32).sqrt(); // the lookup multiplies by the root: a residual of rms one
        self.matrix("embed_tokens", s.vocab, s.hidden, 4, (1.0 - t.common).sqrt() * unit)
            .shifted(Shift::Same(t.common.sqrt() * unit))
    }

    /// The final norm.
    pub(crate) fn final_norm(&self) -> Vec<f32> {
        let stream = Stream::new(self.seed, "norm");
        let mut signs = vec![0.0; self.shape.hidden];
        for (g, group) in signs.chunks_exact_mut(GROUP).enumerate() {
            // the 32 columns with the smaller words get plus: exactly half of each group
            let mut order: Vec<usize> = (0..GROUP).collect();
            order.sort_by_key(|&i| stream.word((g * GROUP + i) as u64));
            for (rank, i) in order.into_iter().enumerate() {
                group[i] = if rank < GROUP / 2 { self.tuning.logits } else { -self.tuning.logits };
            }
        }
        signs
    }

    /// The resident tensors of a layer, in the order of the format, by the end of their names.
    pub(crate) fn layer(&self, layer: usize) -> Vec<(&'static str, Recipe)> {
        let (t, s) = (&self.tuning, &self.shape);
        let (hidden, dim, full) = (s.hidden, s.dim(layer), s.is_full(layer));
        let (q_rows, k_rows) = (s.heads * dim, s.keys(layer) * dim);
        let root = |n: usize| 1.0 / (n as f32).sqrt();
        let name = |part: &str| format!("layers.{layer}.{part}");
        let matrix = |part: &str, rows, cols, sigma| self.matrix(&name(part), rows, cols, 4, sigma);
        let about = |part: &str, n, value| Recipe::Vector(self.about(&name(part), n, value, 0.05));
        let recency = || Shift::Rows(self.recency_rows(layer, root(hidden)));
        let (mut q, mut k) = (
            matrix("self_attn.q_proj.weight", q_rows, hidden, root(hidden)),
            matrix("self_attn.k_proj.weight", k_rows, hidden, root(hidden)),
        );
        let score; // product of the weights of the two head norms
        if full {
            (q, k) = (q.centred(), k.centred());
            score = t.full_spread * root(dim);
        } else {
            (q, k) = (q.shifted(recency()), k.shifted(recency()));
            score = t.recency / (dim as f32 * t.recency_share);
        }
        let mut out = vec![
            ("self_attn.q_proj.weight", Recipe::Matrix(q)),
            ("self_attn.k_proj.weight", Recipe::Matrix(k)),
        ];
        if !full {
            let v = matrix("self_attn.v_proj.weight", k_rows, hidden, root(hidden)).centred();
            out.push(("self_attn.v_proj.weight", Recipe::Matrix(v)));
        }
        let router = self
            .matrix(&name("router.proj.weight"), s.experts, hidden, 8, self.router_sigma(layer))
            .centred()
            .shifted(Shift::Rows(self.router_rows(layer)));
        let gates = |part: &str| Recipe::Matrix(matrix(part, s.ffn, hidden, root(hidden)).centred());
        out.extend([
            (
                "self_attn.o_proj.weight",
                Recipe::Matrix(matrix("self_attn.o_proj.weight", hidden, q_rows, root(q_rows))),
            ),
            ("self_attn.q_norm.weight", about("self_attn.q_norm.weight", dim, score.sqrt())),
            ("self_attn.k_norm.weight", about("self_attn.k_norm.weight", dim, score.sqrt())),
            ("router.proj.weight", Recipe::Matrix(router)),
            ("router.scale", about("router.scale", hidden, 1.0)),
            ("router.per_expert_scale", about("router.per_expert_scale", s.experts, 1.0)),
            ("mlp.gate_proj.weight", gates("mlp.gate_proj.weight")),
            ("mlp.up_proj.weight", gates("mlp.up_proj.weight")),
            (
                "mlp.down_proj.weight",
                Recipe::Matrix(matrix("mlp.down_proj.weight", hidden, s.ffn, root(s.ffn))),
            ),
            ("input_layernorm.weight", about("input_layernorm.weight", hidden, 1.0)),
            (
                "post_attention_layernorm.weight",
                about("post_attention_layernorm.weight", hidden, self.attention(layer)),
            ),
            ("pre_feedforward_layernorm.weight", about("pre_feedforward_layernorm.weight", hidden, 1.0)),
            ("pre_feedforward_layernorm_2.weight", about("pre_feedforward_layernorm_2.weight", hidden, 1.0)),
            (
                "post_feedforward_layernorm.weight",
                about("post_feedforward_layernorm.weight", hidden, t.feed_forward),
            ),
            (
                "post_feedforward_layernorm_1.weight",
                about("post_feedforward_layernorm_1.weight", hidden, 0.7),
            ),
            (
                "post_feedforward_layernorm_2.weight",
                about("post_feedforward_layernorm_2.weight", hidden, 0.7),
            ),
            ("layer_scalar", Recipe::Vector(self.about(&name("layer_scalar"), 1, 1.0, 0.02))),
        ]);
        out
    }

    /// Gate, up and down of one expert.
    pub(crate) fn expert(&self, layer: usize, expert: usize) -> [Matrix; 3] {
        let (s, root) = (&self.shape, |n: usize| 1.0 / (n as f32).sqrt());
        let name = |part: &str| format!("layers.{layer}.experts.{expert}.{part}");
        [
            self.matrix(&name("gate"), s.moe, s.hidden, 4, root(s.hidden)),
            self.matrix(&name("up"), s.moe, s.hidden, 4, root(s.hidden)),
            self.matrix(&name("down"), s.hidden, s.moe, 4, root(s.moe)),
        ]
    }

    fn matrix(&self, name: &str, rows: usize, cols: usize, bits: u32, sigma: f32) -> Matrix {
        Matrix::new(self.seed, name, rows, cols, bits, sigma)
    }

    /// `n` numbers uniform within `width` of `value`, relative.
    fn about(&self, name: &str, n: usize, value: f32, width: f32) -> Vec<f32> {
        let stream = Stream::new(self.seed, name);
        (0..n).map(|i| value * (1.0 + width * (2.0 * stream.uniform(i as u64) - 1.0))).collect()
    }

    /// Weight of the norm behind attention.
    fn attention(&self, layer: usize) -> f32 {
        self.tuning.attention[match layer {
            0 => 0,
            1 | 2 => 1,
            _ => 2,
        }]
    }

    /// Mean square of the residual that enters `layer`, if all that was added is independent.
    fn entering(&self, layer: usize) -> f32 {
        let attention: f32 = (0..layer).map(|l| self.attention(l).powi(2)).sum();
        1.0 + attention + layer as f32 * self.tuning.feed_forward.powi(2)
    }

    /// The same for the residual that the router of `layer` sees.
    fn residual(&self, layer: usize) -> f32 {
        self.entering(layer) + self.attention(layer).powi(2)
    }

    /// Share of popularity in the logits of `layer`: lower at both ends, as in public traces.
    fn popularity_share(&self, layer: usize) -> f32 {
        let edge = layer.min(self.shape.layers - 1 - layer);
        self.tuning.popularity
            * match edge {
                0 => 0.8,
                1 | 2 => 0.9,
                _ => 1.0,
            }
    }

    /// Deviation of the router's random part: gives the logits that are not static.
    fn router_sigma(&self, layer: usize) -> f32 {
        let moving = 1.0 - self.tuning.common / self.residual(layer); // of a residual of one, off the shared direction
        self.tuning.router_spread * ((1.0 - self.popularity_share(layer)) / moving).sqrt()
    }

    /// What each router row gets along the shared direction. The router's input has norm one and the component
    /// `sqrt(common / residual / hidden)` along each entry of u.
    fn router_rows(&self, layer: usize) -> Vec<f32> {
        let along = (self.tuning.common / self.residual(layer) * self.shape.hidden as f32).sqrt();
        let spread = self.tuning.router_spread * self.popularity_share(layer).sqrt();
        self.popularity[layer].iter().map(|&p| p as f32 * spread / along).collect()
    }

    /// What each row of queries and keys gets along u: one random pattern over the head's width, for every head.
    fn recency_rows(&self, layer: usize, sigma: f32) -> Vec<f32> {
        let (t, dim) = (&self.tuning, self.shape.dim(layer));
        let stream = Stream::new(self.seed, &format!("layers.{layer}.recency"));
        let pattern: Vec<f64> = (0..dim).map(|i| stream.normal(i as u64)).collect();
        let rms = (pattern.iter().map(|p| p * p).sum::<f64>() / dim as f64).sqrt();
        // to a normed residual: random part of a row's answer sigma sqrt(hidden), part along u amount sqrt(common) hidden
        let odds = (t.recency_share / (1.0 - t.recency_share)).sqrt();
        let common = t.common / self.entering(layer);
        let amount = odds * sigma / (common * self.shape.hidden as f32).sqrt();
        pattern.iter().map(|p| (p / rms) as f32 * amount).collect()
    }
}

/// Popularity of each expert in each layer: skewed standard normals, a first-order chain over the layers.
fn popularity(shape: &Shape, seed: u64, tuning: &Tuning) -> Vec<Vec<f64>> {
    let (rho, a) = (tuning.neighbour, tuning.skew);
    let fresh = (1.0 - rho * rho).sqrt();
    let mut state: Vec<f64> = Vec::new();
    (0..shape.layers)
        .map(|layer| {
            let stream = Stream::new(seed, &format!("layers.{layer}.popularity"));
            let new = |e: usize| stream.normal(e as u64);
            state = (0..shape.experts)
                .map(|e| state.get(e).map_or_else(|| new(e), |old| rho * old + fresh * new(e)))
                .collect();
            state.iter().map(|&x| (1.0 - (-a * x - a * a / 2.0).exp()) / (a * a).exp_m1().sqrt()).collect()
        })
        .collect()
}
