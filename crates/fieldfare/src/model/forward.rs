//! The forward pass: embedding, then every layer, for one or many tokens alike. Decode is a pass of one row.
//!
//! A pass goes through a layer with all its rows before the next layer begins, so that each expert is read once for the
//! whole prompt. Attention, router and shared expert take the rows in blocks, whose scratch is small.
//!
//! The rows are of one text, or each of one of its own: then several texts share a step, and only attention and the rope
//! tables know the difference.

use super::attention;
use super::config::Config;
use super::kv::Sequence;
use super::look_ahead::Looker;
use super::moe;
use super::scratch::Scratch;
use super::weights::{Matrix, Weights};
use super::wide::WideRows;
use super::{Probe, RouteOverride};
use crate::store::{ExpertStore, Next};
use crate::{Error, Result};
use fieldfare_kernels::{Acts, Kernels, Planes, Pool, QuantMatrix};
use std::ops::{ControlFlow, Range};

/// Rows of a block.
pub(super) const BLOCK_ROWS: usize = 128;

/// Rows of a pass from which nearly every expert of a layer is used, so that nobody needs to be asked what to read ahead.
pub(super) const AHEAD_ROWS: usize = 512;

/// Rows from which work on single rows is shared out over the pool.
const SHARED_ROWS: usize = 8;

/// What stays the same throughout one pass, and which of its rows are worked on.
pub(super) struct Pass<'a> {
    /// The model's shape.
    pub(super) config: &'a Config,
    /// The mapped resident file.
    pub(super) resident: &'a [u8],
    /// The instruction set.
    pub(super) kernels: &'a Kernels,
    /// The threads.
    pub(super) pool: &'a Pool,
    /// How activations become integers before a product; `None` keeps them f32.
    pub(super) planes: Option<Planes>,
    /// Who is looking.
    pub(super) probe: Option<&'a mut (dyn Probe + 'static)>,
    /// Who chooses the experts, if not the router.
    pub(super) reroute: Option<&'a mut (dyn RouteOverride + 'static)>,
    /// Position of the first row of the pass, where all rows are of one text.
    pub(super) start: usize,
    /// The position of every row, where each is of a text of its own.
    pub(super) each_at: Option<&'a [usize]>,
    /// Position of the first row of the block.
    pub(super) first: usize,
    /// Rows of the block.
    pub(super) rows: usize,
}

/// Whose rows a pass has.
pub(super) enum Texts<'a, 'b> {
    /// All rows are one text's, one after the other.
    One(&'a mut Sequence),
    /// Each row is another text's.
    Each(&'a mut [&'b mut Sequence]),
}

impl<'a> Pass<'a> {
    /// A pass of no rows yet that nobody looks at.
    pub(super) fn new(
        config: &'a Config,
        resident: &'a [u8],
        kernels: &'a Kernels,
        pool: &'a Pool,
        planes: Option<Planes>,
    ) -> Self {
        let (probe, reroute, each_at) = (None, None, None);
        Self { config, resident, kernels, pool, planes, probe, reroute, start: 0, each_at, first: 0, rows: 0 }
    }

    /// Begins with `rows` rows, the first at `start`.
    pub(super) fn begin(&mut self, start: usize, rows: usize) {
        (self.start, self.first, self.rows) = (start, start, rows);
    }

    /// Where a row of the pass is in its text.
    pub(super) fn position(&self, row: usize) -> usize {
        self.each_at.map_or(self.start + row, |each| each[row])
    }

    /// Turns to the given rows of the pass.
    pub(super) fn turn_to(&mut self, rows: &Range<usize>) {
        (self.first, self.rows) = (self.start + rows.start, rows.len());
    }

    /// Quantizes `rows` rows of `x`, once for all matrices that take them; nothing to do where products are f32.
    pub(super) fn load(&self, x: &[f32], rows: usize, cols: usize, acts: &mut Acts) {
        if let Some(planes) = self.planes {
            self.kernels.quantize_acts(self.pool, &x[..rows * cols], rows, cols, planes, acts);
        }
    }

    /// `y = x W^T` for `rows` rows; `acts` is `x` as [`Pass::load`] left it. `x` and `y` may be longer.
    pub(super) fn product(&self, w: &QuantMatrix<'_>, x: &[f32], acts: &Acts, rows: usize, y: &mut [f32]) {
        let y = &mut y[..rows * w.rows()];
        match self.planes {
            Some(_) => self.kernels.matmul_q(self.pool, w, acts, rows, y),
            None => self.kernels.matmul(self.pool, w, &x[..rows * w.cols()], rows, y),
        }
    }

    /// [`Pass::product`] with a resident matrix, for the rows of the block.
    pub(super) fn matmul(&self, matrix: &Matrix, x: &[f32], acts: &Acts, y: &mut [f32]) {
        self.product(&matrix.view(self.resident), x, acts, self.rows, y);
    }

    /// `y = x W^T` in f32 whatever the precision: for the router, whose choice a rounding could turn.
    pub(super) fn matmul_f32(&self, matrix: &Matrix, x: &[f32], y: &mut [f32]) {
        let (x, y) = (&x[..self.rows * matrix.cols()], &mut y[..self.rows * matrix.rows()]);
        self.kernels.matmul(self.pool, &matrix.view(self.resident), x, self.rows, y);
    }

    /// Calls `f(i, part)` for the parts of `width` elements of `rows`, by several threads where there are enough rows.
    /// A part is computed as a whole, so who computes it does not change a bit.
    pub(super) fn each(&self, rows: &mut [f32], width: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
        if self.rows < SHARED_ROWS {
            rows.chunks_exact_mut(width).enumerate().for_each(|(i, part)| f(i, part));
        } else {
            self.pool.for_chunks(rows, width, f);
        }
    }

    /// The norm of every row of the block of `x`, into `out`.
    pub(super) fn norms(&self, x: &[f32], weight: &[f32], out: &mut [f32]) {
        let (hidden, eps) = (self.config.hidden_size, self.config.rms_norm_eps);
        self.each(&mut out[..self.rows * hidden], hidden, |row, out| {
            self.kernels.rms_norm(&x[row * hidden..(row + 1) * hidden], Some(weight), eps, out);
        });
    }

    /// The norm of every row of the block of `x`, in place.
    pub(super) fn norms_in_place(&self, x: &mut [f32], weight: &[f32]) {
        let (hidden, eps) = (self.config.hidden_size, self.config.rms_norm_eps);
        self.each(&mut x[..self.rows * hidden], hidden, |_, x| {
            self.kernels.rms_norm_in_place(x, Some(weight), eps);
        });
    }

    /// `gate = gelu(gate) * up` for `rows` rows of `width`.
    pub(super) fn gelu_mul(&self, gate: &mut [f32], up: &[f32], rows: usize, width: usize) {
        if rows < SHARED_ROWS {
            return self.kernels.gelu_mul(&mut gate[..rows * width], &up[..rows * width]);
        }
        self.pool.for_chunks(&mut gate[..rows * width], width, |row, gate| {
            self.kernels.gelu_mul(gate, &up[row * width..(row + 1) * width]);
        });
    }

    /// Shows the rows of the block to the probe.
    pub(super) fn probe(&mut self, layer: Option<usize>, name: &'static str, row_len: usize, data: &[f32]) {
        if let Some(probe) = self.probe.as_deref_mut() {
            probe.tensor(layer, name, self.first, row_len, &data[..self.rows * row_len]);
        }
    }

    /// Shows one row's experts to the probe.
    pub(super) fn probe_experts(&mut self, layer: usize, row: usize, ids: &[usize], weights: &[f32]) {
        if let Some(probe) = self.probe.as_deref_mut() {
            probe.experts(layer, self.first + row, ids, weights);
        }
    }
}

/// The blocks of `rows` rows.
pub(super) fn blocks(rows: usize, block: usize) -> impl Iterator<Item = Range<usize>> {
    (0..rows).step_by(block.max(1)).map(move |start| start..rows.min(start + block.max(1)))
}

/// Feeds `ids`, one row each, through all layers; leaves the residual after the last one in `w.x` and the rows' keys and
/// values in the cache. `between` gets the number of layers done, is called before every block of rows of a layer, in
/// long passes before every expert too, and may end the pass.
///
/// # Errors
/// [`Error::Cancelled`] when `between` says so, those of reading experts, no memory. Some layers' caches then hold
/// rows that others lack: the caller must rewind.
#[allow(clippy::too_many_arguments)] // the runner's parts, borrowed one by one
pub(super) fn forward(
    pass: &mut Pass<'_>,
    weights: &Weights,
    ids: &[u32],
    texts: &mut Texts<'_, '_>,
    store: &mut ExpertStore,
    look: &mut Looker,
    s: &mut Scratch,
    w: &mut WideRows<'_>,
    between: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<()> {
    let (hidden, rows, block) = (pass.config.hidden_size, ids.len(), s.rows);
    let embedding = weights.head.embedding.view(pass.resident);
    pass.turn_to(&(0..rows));
    pass.each(&mut w.x[..rows * hidden], hidden, |row, x| {
        pass.kernels.dequantize_row(&embedding, ids[row] as usize, x);
        pass.kernels.scale(x, pass.config.embed_scale);
    });
    pass.probe(None, "embed_scaled", hidden, w.x);
    attention::fill_rope(pass.config, rows, |row| pass.position(row), &mut w.rope);
    let few = rows == 1 || matches!(texts, Texts::Each(_));
    if !few && let Some(first) = weights.layers.first() {
        look.begin_prompt(store);
        let experts = look.foresee(pass, (0, &first.feed_forward), (rows, w.x), s);
        store.read_ahead(Next { layer: 0, experts });
    }

    for (layer, layer_weights) in weights.layers.iter().enumerate() {
        s.routed.input.clear(hidden, pass.planes.unwrap_or(Planes::Two));
        for block in blocks(rows, block) {
            if between(layer).is_break() {
                return Err(Error::Cancelled);
            }
            pass.turn_to(&block);
            pass.probe(Some(layer), "input", hidden, &w.x[block.start * hidden..]);
            attention::attend(pass, layer, &layer_weights.attention, texts, &block, s, w)?;
            moe::route(pass, layer, &layer_weights.feed_forward, store, &block, s, w);
        }
        s.routed.group(rows * pass.config.top_k_experts, pass.config.num_experts);
        look.check(layer, &s.routed, !few);
        let part = moe::Part { layer, weights: &layer_weights.feed_forward, rows };
        let next = weights.layers.get(layer + 1).map(|next| (layer + 1, &next.feed_forward));
        if few {
            moe::few_rows(pass, &part, store, s, w)?;
            if let Some(next) = next {
                look.guess(pass, next, store, (rows, w.x), s);
            }
        } else {
            let next =
                next.map(|next| Next { layer: next.0, experts: look.foresee(pass, next, (rows, w.x), s) });
            moe::many_rows(pass, &part, store, next, s, w, between)?;
        }
    }
    Ok(())
}
