//! What a pass keeps of all its rows: residual, sums of the experts, rope tables. About 26 KB a token of the large
//! model; everything else is scratch of one block of rows.
//!
//! The memory is one mapping that is made for a pass and given back after it, so that the expert slots can have it in
//! between: a heap would keep some.

use super::config::Config;
use crate::sys::pages::{HUGE, Pages};
use crate::{Error, Result};

/// Buffers for the rows of one pass.
#[derive(Debug)]
pub(super) struct Wide {
    pages: Pages,
    rows: usize,
    shape: Shape,
}

/// Floats of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    hidden: usize,
    /// Half a head, by layer kind.
    half: [usize; 2],
    /// Whether the experts' input is kept in f32.
    exact: bool,
}

/// The buffers, one row a token of the pass.
pub(super) struct WideRows<'a> {
    /// Residual stream, `[rows][hidden]`. Never less than f32: nothing bounds it.
    pub(super) x: &'a mut [f32],
    /// Sums of the routed experts, `[rows][hidden]`.
    pub(super) sums: &'a mut [f32],
    /// Input of the routed experts in f32, `[rows][hidden]`; empty where products are of integers.
    pub(super) input: &'a mut [f32],
    /// Rope tables, one for each layer kind.
    pub(super) rope: [RopeRows<'a>; 2],
}

/// Cosines and sines, `[rows][head_dim / 2]`.
pub(super) struct RopeRows<'a> {
    /// Half a head.
    pub(super) half: usize,
    /// Cosines.
    pub(super) cos: &'a mut [f32],
    /// Sines.
    pub(super) sin: &'a mut [f32],
}

impl Shape {
    /// Of a model whose products are `exact` or of integers.
    pub(super) fn new(config: &Config, exact: bool) -> Self {
        let half = [config.head_dim / 2, config.global_head_dim / 2];
        Self { hidden: config.hidden_size, half, exact }
    }

    /// Bytes of the buffers of `rows` rows.
    pub(super) fn bytes(self, rows: usize) -> u64 {
        let Self { hidden, half, exact } = self;
        let floats = (2 + usize::from(exact)) * hidden + 2 * (half[0] + half[1]);
        let bytes = (rows as u64).saturating_mul((floats * size_of::<f32>()) as u64);
        bytes.checked_next_multiple_of(HUGE as u64).unwrap_or(u64::MAX)
    }
}

impl Wide {
    /// Zeros for `rows` rows.
    ///
    /// # Errors
    /// [`Error::BadRequest`] if the system has no such memory.
    pub(super) fn new(shape: Shape, rows: usize) -> Result<Self> {
        let bytes = shape.bytes(rows);
        let pages = usize::try_from(bytes).map_err(std::io::Error::other).and_then(Pages::new);
        let pages = pages.map_err(|error| {
            let reason = format!("cannot have {bytes} bytes for {rows} tokens: {error}");
            Error::bad("prefill-chunk-tokens", reason)
        })?;
        Ok(Self { pages, rows, shape })
    }

    /// Bytes taken.
    pub(super) fn bytes(&self) -> usize {
        self.pages.len()
    }

    /// The buffers.
    pub(super) fn rows(&mut self) -> WideRows<'_> {
        let (rows, Shape { hidden, half, exact }) = (self.rows, self.shape);
        let floats: &mut [f32] = bytemuck::cast_slice_mut(self.pages.bytes_mut());
        let (x, floats) = floats.split_at_mut(rows * hidden);
        let (sums, floats) = floats.split_at_mut(rows * hidden);
        let (input, floats) = floats.split_at_mut(if exact { rows * hidden } else { 0 });
        let (cos_0, floats) = floats.split_at_mut(rows * half[0]);
        let (sin_0, floats) = floats.split_at_mut(rows * half[0]);
        let (cos_1, floats) = floats.split_at_mut(rows * half[1]);
        let sin_1 = &mut floats[..rows * half[1]];
        let rope = [
            RopeRows { half: half[0], cos: cos_0, sin: sin_0 },
            RopeRows { half: half[1], cos: cos_1, sin: sin_1 },
        ];
        WideRows { x, sums, input, rope }
    }
}
