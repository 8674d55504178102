//! The activation buffers of a block of rows, and the small ones of a whole pass, sized once from the configuration.
//!
//! All are zeroed memory that the system hands out on first use, so a short prompt touches only its own rows.
//! Buffers are row-major, one row a token of the block.

use super::TOGETHER;
use super::config::Config;
use super::kv::{KvType, OwnKv};
use fieldfare_kernels::{Acts, AttendScratch, GROUP, Planes};

/// Rows of logits that [`super::Forward::prefill_each`] computes at once: the table is read once for all of
/// them.
pub(super) const HEAD_ROWS: usize = 8;

/// Those of a step are computed at once.
const _: () = assert!(TOGETHER <= HEAD_ROWS);

/// Rows of one expert up to which gate and up are one product: more are bound by arithmetic, and taking the results apart
/// would cost more than the longer run of memory brings.
pub(super) const FEW_ROWS: usize = 8;

/// Activations of up to `rows` tokens, one block, in one layer.
#[derive(Debug)]
pub(super) struct Scratch {
    /// Rows there is room for.
    pub(super) rows: usize,
    /// The input of the current matrix, `[rows][hidden]`.
    pub(super) normed: Vec<f32>,
    /// The same as integers, where the precision has it so; also of inputs that are not in `normed`.
    pub(super) acts: Acts,
    /// A branch's output before and after its norm, `[rows][hidden]`.
    pub(super) branch: Vec<f32>,
    /// The shared expert's output, kept while the routed experts run, `[rows][hidden]`.
    pub(super) shared: Vec<f32>,
    /// Queries, `[rows][heads][head_dim]`.
    pub(super) q: Vec<f32>,
    /// Keys before they are rounded, `[rows][kv heads][head_dim]`.
    pub(super) k: Vec<f32>,
    /// Values before they are rounded, `[rows][kv heads][head_dim]`.
    pub(super) v: Vec<f32>,
    /// This block's keys and values in the cache's type.
    pub(super) own: OwnKv,
    /// Attention output before `o_proj`, `[rows][heads][head_dim]`.
    pub(super) attended: Vec<f32>,
    /// What attention needs.
    pub(super) attend: AttendScratch,
    /// Bytes that it may come to.
    attend_bytes: usize,
    /// Gate of the shared expert, `[rows][intermediate]`.
    pub(super) gate: Vec<f32>,
    /// Up of the shared expert, `[rows][intermediate]`.
    pub(super) up: Vec<f32>,
    /// Buffers of the routed branch.
    pub(super) routed: Routed,
    /// Logits handed out, `[HEAD_ROWS or 1][vocab]`; grown for `prefill_each`.
    pub(super) logits: Vec<f32>,
}

/// Buffers of the routed branch.
#[derive(Debug)]
pub(super) struct Routed {
    /// Router logits, `[rows][experts]`.
    pub(super) logits: Vec<f32>,
    /// Chosen experts of the whole pass, `[pass rows][top_k]`, by falling logit.
    pub(super) ids: Vec<usize>,
    /// Their weights, `[pass rows][top_k]`.
    pub(super) weights: Vec<f32>,
    /// Ids of one row while they are chosen.
    pub(super) picked: Vec<usize>,
    /// Distinct experts of the pass, ascending.
    pub(super) wanted: Vec<usize>,
    /// Where each expert's rows start in `uses`, `[experts + 1]`.
    pub(super) starts: Vec<usize>,
    /// The uses (`row * top_k + rank`) of all experts, grouped by expert, rows ascending, `[pass rows * top_k]`.
    pub(super) uses: Vec<usize>,
    /// Results of the experts of a pass of few rows, in the order of `uses`, `[rows * top_k][hidden]`.
    pub(super) parts: Vec<f32>,
    /// The input of the whole pass as integers.
    pub(super) input: Acts,
    /// Buffers of the expert that is computed.
    pub(super) mine: OneExpert,
}

/// Some rows of one expert.
#[derive(Debug, Default)]
pub(super) struct OneExpert {
    /// Which rows of the pass, ascending: at most a block at once.
    pub(super) rows: Vec<usize>,
    /// Its input, `[rows][hidden]`; unused where products are of integers.
    pub(super) input: Vec<f32>,
    /// Its input as integers.
    pub(super) acts: Acts,
    /// Gate, `[rows][moe_intermediate]`.
    pub(super) gate: Vec<f32>,
    /// Up, `[rows][moe_intermediate]`.
    pub(super) up: Vec<f32>,
    /// Gate and up of a few rows, 16 of one, 16 of the other, `[FEW_ROWS][2 * moe_intermediate]`.
    pub(super) both: Vec<f32>,
    /// The input of the down matrix as integers.
    pub(super) inner: Acts,
    /// Its output, `[rows][hidden]`.
    pub(super) out: Vec<f32>,
}

impl Scratch {
    /// Buffers for blocks of `rows` tokens and passes of `pass_rows`, `workers` threads, keys and values of `kind` and
    /// activations of `planes`.
    pub(super) fn new(
        config: &Config,
        (rows, pass_rows): (usize, usize),
        workers: usize,
        kind: KvType,
        planes: Option<Planes>,
    ) -> Self {
        let hidden = rows * config.hidden_size;
        let layers = || config.layers.iter().copied();
        let q = rows * layers().map(|l| config.num_attention_heads * config.head_width(l)).max().unwrap_or(0);
        let kv = rows * layers().map(|l| config.kv_heads(l) * config.head_width(l)).max().unwrap_or(0);
        let widest = config.hidden_size.max(config.intermediate_size).max(q / rows.max(1));
        Self {
            rows,
            normed: vec![0.0; hidden],
            acts: acts(planes, rows, widest),
            branch: vec![0.0; hidden],
            shared: vec![0.0; hidden],
            q: vec![0.0; q],
            k: vec![0.0; kv],
            v: vec![0.0; kv],
            own: OwnKv::new(kind, kv),
            attended: vec![0.0; q],
            attend: AttendScratch::new(),
            attend_bytes: layers()
                .map(|l| {
                    let (heads, width) = (config.num_attention_heads, config.head_width(l));
                    AttendScratch::bytes_for(heads, config.kv_heads(l), width, workers.max(1))
                })
                .max()
                .unwrap_or(0),
            gate: vec![0.0; rows * config.intermediate_size],
            up: vec![0.0; rows * config.intermediate_size],
            routed: Routed::new(config, rows, pass_rows, planes),
            logits: vec![0.0; config.vocab_size],
        }
    }

    /// Bytes of all buffers once they have grown as far as they do.
    pub(super) fn bytes_at_most(&self, config: &Config) -> usize {
        let logits = HEAD_ROWS.saturating_sub(1) * config.vocab_size * size_of::<f32>();
        // Kinds of layers need more of one or another buffer of attention: twice covers both.
        (2 * self.attend_bytes).saturating_add(logits).saturating_add(self.bytes())
    }

    /// Bytes of all buffers as they are now (touched or not).
    pub(super) fn bytes(&self) -> usize {
        let Routed { logits, ids, weights, picked, wanted, starts, uses, parts, input, mine } = &self.routed;
        let own = self.own.k.bytes() + self.own.v.bytes();
        let floats = [&self.normed, &self.branch, &self.shared, &self.q, &self.k, &self.v]
            .into_iter()
            .chain([&self.attended, &self.gate, &self.up, &self.logits])
            .chain([logits, weights, parts, &mine.input, &mine.gate, &mine.up, &mine.both, &mine.out])
            .map(Vec::len)
            .sum::<usize>();
        let words = [ids, picked, wanted, starts, uses, &mine.rows].map(Vec::capacity).iter().sum::<usize>();
        let acts = self.acts.bytes() + input.bytes() + mine.acts.bytes() + mine.inner.bytes();
        self.attend.bytes() + floats * size_of::<f32>() + words * size_of::<usize>() + own + acts
    }
}

/// Room for `rows` rows of `cols` activations, if they become integers: what the memory plan counts is there from the start.
fn acts(planes: Option<Planes>, rows: usize, cols: usize) -> Acts {
    planes.map_or_else(Acts::new, |planes| Acts::with_capacity(rows, cols.next_multiple_of(GROUP), planes))
}

impl Routed {
    fn new(config: &Config, rows: usize, pass_rows: usize, planes: Option<Planes>) -> Self {
        let (uses, hidden) = (pass_rows * config.top_k_experts, config.hidden_size);
        Self {
            logits: vec![0.0; rows * config.num_experts],
            ids: vec![0; uses],
            weights: vec![0.0; uses],
            picked: Vec::with_capacity(config.num_experts),
            wanted: Vec::with_capacity(config.num_experts),
            starts: vec![0; config.num_experts + 1],
            uses: vec![0; uses],
            parts: vec![0.0; TOGETHER.min(pass_rows) * config.top_k_experts * hidden],
            input: acts(planes, pass_rows, hidden),
            mine: OneExpert {
                rows: Vec::with_capacity(rows),
                input: vec![0.0; if planes.is_none() { rows * hidden } else { 0 }],
                acts: acts(planes, rows, hidden),
                gate: vec![0.0; rows * config.moe_intermediate_size],
                up: vec![0.0; rows * config.moe_intermediate_size],
                both: vec![0.0; rows.min(FEW_ROWS) * 2 * config.moe_intermediate_size],
                inner: acts(planes, rows, config.moe_intermediate_size),
                out: vec![0.0; rows * hidden],
            },
        }
    }
}
