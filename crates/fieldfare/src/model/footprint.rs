//! What a model of a known shape takes besides its weights: made of the very buffers that a runner has, so that advice about
//! a model that is not there is the plan of one that is.

use super::TOGETHER;
use super::config::Config;
use super::forward::BLOCK_ROWS;
use super::kv::{KvCache, KvType};
use super::options::{Precision, RunnerOptions};
use super::scratch::Scratch;
use super::wide::Shape;
use crate::Result;
use crate::sys::pages::HUGE;

/// Sizes of a model without its files.
pub struct Footprint {
    config: Config,
    wide: Shape,
    cache: KvCache,
    scratch: Scratch,
    stride: u64,
}

impl Footprint {
    /// Of a model whose experts take `stride` bytes each and whose keys and values are as the precision has them as a rule.
    /// Nothing is touched: it takes address space, not memory.
    ///
    /// # Errors
    /// [`crate::Error::BadRequest`] for an option out of range.
    pub fn new(config: Config, stride: u64, options: &RunnerOptions) -> Result<Self> {
        options.check()?;
        let kind = match options.precision {
            Precision::Default => KvType::F16,
            Precision::Exact => KvType::F32,
        };
        let (wide, cache, scratch) = buffers(&config, options, kind, options.workers());
        Ok(Self { config, wide, cache, scratch, stride })
    }

    /// The model's shape.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes of the KV cache once it holds so many tokens.
    pub fn kv_bytes(&self, tokens: usize) -> u64 {
        self.cache.bytes_for(tokens)
    }

    /// Bytes of activation buffers at most that stay.
    pub fn scratch_bytes(&self) -> u64 {
        scratch_bytes(self.wide, &self.scratch, &self.config)
    }

    /// Bytes that a pass of so many prompt tokens takes while it lasts.
    pub fn pass_bytes(&self, tokens: usize) -> u64 {
        pass_bytes(self.wide, tokens, self.stride, self.config.num_experts)
    }
}

/// The buffers of a model of this shape.
pub(super) fn buffers(
    config: &Config,
    options: &RunnerOptions,
    kind: KvType,
    threads: usize,
) -> (Shape, KvCache, Scratch) {
    let planes = options.precision.planes();
    let pass_rows = options.prefill_chunk_tokens.min(options.max_context);
    // A step of several texts is a pass of as many rows.
    let rows = (pass_rows.clamp(TOGETHER, BLOCK_ROWS), pass_rows.max(TOGETHER));
    (
        Shape::new(config, planes.is_none()),
        KvCache::new(config, kind, options.max_context),
        Scratch::new(config, rows, threads, kind, planes),
    )
}

/// Bytes of activation buffers at most that stay.
pub(super) fn scratch_bytes(wide: Shape, scratch: &Scratch, config: &Config) -> u64 {
    (scratch.bytes_at_most(config) as u64).saturating_add(wide.bytes(TOGETHER))
}

/// Transit buffers of a pass: enough that a disk has work while an expert is computed, and while the next layer's attention is.
pub(super) fn transit(experts: usize) -> usize {
    experts.min(16)
}

/// Bytes that a pass of so many tokens takes while it lasts; one of a single token takes none.
pub(super) fn pass_bytes(shape: Shape, tokens: usize, stride: u64, experts: usize) -> u64 {
    if tokens <= 1 {
        return 0;
    }
    let transit = (transit(experts) as u64).saturating_mul(stride);
    let transit = transit.checked_next_multiple_of(HUGE as u64).unwrap_or(u64::MAX);
    shape.bytes(tokens).saturating_add(transit)
}
