//! The forward pass: embedding, then every layer, for one or many tokens alike. Decode is a pass of one row.

use super::attention;
use super::config::Config;
use super::kv_cache::KvCache;
use super::moe;
use super::scratch::Scratch;
use super::weights::{Matrix, Weights};
use super::{Probe, RouteOverride};
use crate::store::ExpertStore;
use crate::{Error, Result};
use fieldfare_kernels::{Acts, Kernels, Planes, Pool, QuantMatrix};
use std::ops::ControlFlow;

/// What stays the same throughout one pass.
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
    /// Position of the first row.
    pub(super) first: usize,
    /// Rows of the pass.
    pub(super) rows: usize,
}

impl Pass<'_> {
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

    /// [`Pass::product`] with a resident matrix, for the rows of the pass.
    pub(super) fn matmul(&self, matrix: &Matrix, x: &[f32], acts: &Acts, y: &mut [f32]) {
        self.product(&matrix.view(self.resident), x, acts, self.rows, y);
    }

    /// `y = x W^T` in f32 whatever the precision: for the router, whose choice a rounding could turn.
    pub(super) fn matmul_f32(&self, matrix: &Matrix, x: &[f32], y: &mut [f32]) {
        let (x, y) = (&x[..self.rows * matrix.cols()], &mut y[..self.rows * matrix.rows()]);
        self.kernels.matmul(self.pool, &matrix.view(self.resident), x, self.rows, y);
    }

    /// Shows the rows of the pass to the probe.
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

/// Feeds `ids`, one row each, through all layers; leaves the residual after the last one in `s.x` and the
/// rows' keys and values in the cache. `between` is called before every layer and may end the pass.
///
/// # Errors
/// [`Error::Cancelled`] when `between` says so, and those of reading experts. Some layers' caches then hold
/// rows that others lack: the caller must rewind.
pub(super) fn forward(
    pass: &mut Pass<'_>,
    weights: &Weights,
    ids: &[u32],
    cache: &mut KvCache,
    store: &mut ExpertStore,
    s: &mut Scratch,
    between: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<()> {
    let hidden = pass.config.hidden_size;
    let embedding = weights.head.embedding.view(pass.resident);
    for (&id, x) in ids.iter().zip(s.x.chunks_exact_mut(hidden)) {
        pass.kernels.dequantize_row(&embedding, id as usize, x);
        pass.kernels.scale(x, pass.config.embed_scale);
    }
    pass.probe(None, "embed_scaled", hidden, &s.x);
    attention::fill_rope(pass.config, pass.first, pass.rows, &mut s.rope);

    for (layer, layer_weights) in weights.layers.iter().enumerate() {
        if between().is_break() {
            return Err(Error::Cancelled);
        }
        pass.probe(Some(layer), "input", hidden, &s.x);
        attention::attend(pass, layer, &layer_weights.attention, cache, s);
        moe::feed_forward(pass, layer, &layer_weights.feed_forward, store, s)?;
    }
    Ok(())
}
