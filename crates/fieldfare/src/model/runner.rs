//! [`Runner`]: one model directory made ready to run, behind [`Forward`].

use super::config::Config;
use super::forward::{Pass, forward};
use super::kv_cache::{KvCache, KvType};
use super::scratch::{HEAD_ROWS, Scratch};
use super::weights::Weights;
use super::{Forward, Probe, head};
use crate::format::{ModelDir, kv_bytes};
use crate::store::{ExpertStore, LayerFile, LayerFiles, Policy, StoreShape};
use crate::sys::memory;
use crate::{Error, Result};
use fieldfare_kernels::{ISA_VARIABLE, Kernels, Pool};
use std::borrow::Borrow;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// Slots of a layer when nothing is said: the knee of the hit-rate curve at the memory this project is about.
pub const DEFAULT_SLOTS: usize = 16;

/// What is to blame when the numbers are wrong and the structure is right.
const WEIGHT_FILES: &str = "model_weights.bin or packed_experts/layer_*.bin";

/// What may be rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// Keys and values in half precision (single, should the model's key norms be so large that halves could
    /// overflow).
    #[default]
    Default,
    /// Everything in single precision, for verification.
    Exact,
}

/// How to run a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerOptions {
    /// Positions the KV cache may hold; memory is taken as they are used.
    pub max_context: usize,
    /// Tokens of a prefill pass; more read each expert less often and take more scratch.
    pub prefill_chunk_tokens: usize,
    /// What may be rounded.
    pub precision: Precision,
    /// Expert slots of a layer; `None` is 16, or all experts where there are fewer.
    pub slots_per_layer: Option<usize>,
    /// Which expert loses its slot.
    pub policy: Policy,
    /// Worker threads; `None` is one for each core this process may use.
    pub threads: Option<usize>,
}

impl Default for RunnerOptions {
    fn default() -> Self {
        Self {
            max_context: 4096,
            prefill_chunk_tokens: 128,
            precision: Precision::Default,
            slots_per_layer: None,
            policy: Policy::default(),
            threads: None,
        }
    }
}

/// What a runner has done and what it takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunnerStats {
    /// Experts asked for that were held, prefill and decode together.
    pub hits: u64,
    /// Experts read, prefill and decode together.
    pub misses: u64,
    /// Experts asked for by decode that were held.
    pub decode_hits: u64,
    /// Experts read by decode.
    pub decode_misses: u64,
    /// Bytes read from layer files.
    pub bytes_read: u64,
    /// Time spent in those reads.
    pub read_time: Duration,
    /// Prompt tokens fed, those before a rewind included.
    pub prefill_tokens: u64,
    /// Generated tokens fed.
    pub decode_tokens: u64,
    /// Bytes of keys and values taken so far.
    pub kv_bytes: usize,
    /// Bytes of all slots, touched or not.
    pub slot_bytes: usize,
    /// Bytes of activation buffers, touched or not.
    pub scratch_bytes: usize,
    /// Slots of a layer.
    pub slots_per_layer: usize,
    /// Worker threads.
    pub threads: usize,
}

/// A model ready to run.
pub struct Runner {
    dir: Arc<ModelDir>,
    config: Config,
    weights: Weights,
    kernels: &'static Kernels,
    pool: Pool,
    cache: KvCache,
    store: ExpertStore,
    scratch: Scratch,
    probe: Option<Box<dyn Probe>>,
    max_context: usize,
    position: usize,
    stats: RunnerStats,
}

impl Runner {
    /// Checks the directory's configuration and tensors and makes the buffers.
    ///
    /// # Errors
    /// [`Error::BadRequest`] for an option out of range, [`Error::Unsupported`] for a model of another kind,
    /// [`Error::Damaged`] for tensors that do not fit the configuration.
    pub fn new(dir: impl Into<Arc<ModelDir>>, options: impl Borrow<RunnerOptions>) -> Result<Self> {
        let (dir, options) = (dir.into(), options.borrow());
        check_options(options)?;
        let config = Config::open(&dir)?;
        let weights = Weights::open(&dir, &config)?;
        let kind = match options.precision {
            Precision::Default if weights.keys_fit_f16() => KvType::F16,
            Precision::Default | Precision::Exact => KvType::F32,
        };
        let threads = options
            .threads
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
        let pool = Pool::new(threads);
        let rows = options.prefill_chunk_tokens.min(options.max_context);
        let store = open_store(&dir, &config, options)?;
        let scratch = Scratch::new(&config, rows, pool.threads(), kind);
        let width = if kind == KvType::F32 { 2 } else { 1 };
        check_memory(
            options.max_context,
            &|context| kv_bytes(&dir.manifest().arch, context).saturating_mul(width),
            (store.slot_bytes() + scratch.bytes()) as u64,
            memory::room().limit(),
        )?;
        Ok(Self {
            cache: KvCache::new(&config, kind, options.max_context),
            scratch,
            store,
            kernels: kernels()?,
            pool,
            weights,
            config,
            dir,
            probe: None,
            max_context: options.max_context,
            position: 0,
            stats: RunnerStats::default(),
        })
    }

    /// The model's shape.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The directory it runs from.
    pub fn dir(&self) -> &Arc<ModelDir> {
        &self.dir
    }

    /// Shows intermediates to `probe` from now on; the one before is returned.
    pub fn set_probe(&mut self, probe: Option<Box<dyn Probe>>) -> Option<Box<dyn Probe>> {
        std::mem::replace(&mut self.probe, probe)
    }

    /// What was done so far and what memory is taken.
    pub fn stats(&self) -> RunnerStats {
        let store = self.store.stats();
        RunnerStats {
            hits: store.hits,
            misses: store.misses,
            bytes_read: store.bytes_read,
            read_time: store.read_time,
            kv_bytes: self.cache.bytes(),
            slot_bytes: self.store.slot_bytes(),
            scratch_bytes: self.scratch.bytes(),
            slots_per_layer: self.store.slots_per_layer(),
            threads: self.pool.threads(),
            ..self.stats
        }
    }

    /// Refuses what must not start: no ids, ids beyond the vocabulary, more than the context holds.
    fn check(&self, ids: &[u32]) -> Result<()> {
        if ids.is_empty() {
            return Err(Error::bad("prompt", "has no tokens"));
        }
        if ids.len() > self.max_context - self.position {
            let prompt = self.position.saturating_add(ids.len());
            return Err(Error::ContextFull { prompt, context: self.max_context });
        }
        let vocab = self.config.vocab_size;
        match ids.iter().find(|&&id| id as usize >= vocab) {
            Some(id) => Err(Error::bad("token id", format!("{id} is beyond the vocabulary of {vocab}"))),
            None => Ok(()),
        }
    }

    /// Runs one pass over `ids` (at most a chunk), then computes the logits of the rows `which` asks for and
    /// hands them out by blocks: `each(first row of the block, logits)`.
    fn pass(
        &mut self,
        ids: &[u32],
        which: Rows,
        between: &mut dyn FnMut() -> ControlFlow<()>,
        each: &mut dyn FnMut(usize, &[f32]) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut pass = Pass {
            config: &self.config,
            resident: self.dir.resident().bytes(),
            kernels: self.kernels,
            pool: &self.pool,
            probe: self.probe.as_deref_mut(),
            first: self.position,
            rows: ids.len(),
        };
        let (cache, store, scratch) = (&mut self.cache, &mut self.store, &mut self.scratch);
        let done = forward(&mut pass, &self.weights, ids, cache, store, scratch, between);
        if let Err(error) = done {
            self.position = self.cache.rewind(self.position);
            return Err(error);
        }
        self.position += ids.len();
        let rows = match which {
            Rows::None => return Ok(()),
            Rows::Last => ids.len() - 1..ids.len(),
            Rows::All => 0..ids.len(),
        };
        let mut at = rows.start;
        while at < rows.end {
            let block = at..rows.end.min(at + HEAD_ROWS);
            let needed = block.len() * self.config.vocab_size;
            if self.scratch.logits.len() < needed {
                self.scratch.logits.resize(needed, 0.0);
            }
            head::logits(&mut pass, &self.weights.head, block.clone(), &mut self.scratch);
            // No input makes a whole model compute such numbers, and every answer to them would be nonsense.
            if !self.scratch.logits[..needed].iter().all(|logit| logit.is_finite()) {
                self.position = self.cache.rewind(self.position - ids.len());
                return Err(Error::damaged(WEIGHT_FILES, "the model computed logits that are no numbers"));
            }
            for (row, logits) in block.clone().zip(self.scratch.logits.chunks_exact(self.config.vocab_size)) {
                if each(row, logits).is_break() {
                    return Err(Error::Cancelled);
                }
            }
            at = block.end;
        }
        Ok(())
    }
}

/// Which rows of a pass need logits.
#[derive(Clone, Copy)]
enum Rows {
    None,
    Last,
    All,
}

/// Bounds of the options: far beyond sense, low enough that no size overflows or asks for absurd memory.
const LIMITS: [(&str, usize); 3] =
    [("max-context", 1 << 20), ("prefill-chunk-tokens", 8192), ("threads", 1024)];

fn check_options(options: &RunnerOptions) -> Result<()> {
    let values = [options.max_context, options.prefill_chunk_tokens, options.threads.unwrap_or(1)];
    for ((field, limit), value) in LIMITS.into_iter().zip(values) {
        if value == 0 || value > limit {
            return Err(Error::bad(field, format!("{value} is not between 1 and {limit}")));
        }
    }
    Ok(())
}

/// Refuses a context that could not be filled: the KV cache grows as it is used, so it would end in the middle of an
/// answer. `fixed` is what is taken besides; mapped weights do not count, since the system may drop them.
fn check_memory(context: usize, kv: &dyn Fn(usize) -> u64, fixed: u64, limit: Option<u64>) -> Result<()> {
    let need = |context| kv(context).saturating_add(fixed);
    let Some(limit) = limit.filter(|&limit| need(context) > limit) else { return Ok(()) };
    let megabytes = |bytes: u64| bytes.div_ceil(1_000_000);
    if need(1) > limit {
        let reason =
            format!("slots and buffers take {} MB, there are {}", megabytes(fixed), megabytes(limit));
        return Err(Error::bad("expert-cache-slots", reason));
    }
    let (mut fits, mut beyond) = (1, context);
    while beyond - fits > 1 {
        let middle = fits.midpoint(beyond);
        if need(middle) > limit { beyond = middle } else { fits = middle }
    }
    let (need, limit) = (megabytes(need(context)), megabytes(limit));
    let reason =
        format!("{context} tokens take {need} MB of memory when all are used, there are {limit}; {fits} fit");
    Err(Error::bad("max-context", reason))
}

/// The kernels that [`ISA_VARIABLE`] names, or the best. A name that cannot be had is refused: who sets it measures or
/// compares, and would not notice other kernels in its place.
fn kernels() -> Result<&'static Kernels> {
    let name = std::env::var_os(ISA_VARIABLE);
    let name = name.as_ref().map(|name| name.to_string_lossy());
    Kernels::detect_named(name.as_deref()).map_err(|error| Error::bad(ISA_VARIABLE, error.to_string()))
}

fn open_store(dir: &ModelDir, config: &Config, options: &RunnerOptions) -> Result<ExpertStore> {
    let layers = config.layers.len();
    let mut files = Vec::with_capacity(layers);
    for layer in 0..layers {
        let parts = dir.expert_parts(layer)?;
        files.push(LayerFile {
            file: dir.open_layer(layer)?,
            name: format!("packed_experts/{}", dir.experts().layers[layer].file),
            rank_of: parts.slot_of,
        });
    }
    let stride = dir.manifest().expert_stride;
    let slots = options.slots_per_layer.unwrap_or_else(|| DEFAULT_SLOTS.min(config.num_experts));
    let shape = StoreShape {
        layers,
        experts: config.num_experts,
        slots_per_layer: slots,
        stride: usize::try_from(stride)
            .map_err(|_| Error::damaged("manifest.json: expertStride", "exceeds the address space"))?,
    };
    let reader = LayerFiles::new(dir.path(), stride, files);
    ExpertStore::new(shape, options.policy, Box::new(reader))
}

impl Forward for Runner {
    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn position(&self) -> usize {
        self.position
    }

    fn max_context(&self) -> usize {
        self.max_context
    }

    fn prefill(
        &mut self,
        ids: &[u32],
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<&mut [f32]> {
        self.check(ids)?;
        let layers = self.config.layers.len();
        let mut done = 0;
        for chunk in ids.chunks(self.scratch.rows) {
            let mut layer = 0;
            // Within a chunk the layers passed count for their share of its ids.
            let mut between = || {
                layer += 1;
                progress(done + chunk.len() * (layer - 1) / layers)
            };
            let last = done + chunk.len() == ids.len();
            let which = if last { Rows::Last } else { Rows::None };
            self.pass(chunk, which, &mut between, &mut |_, _| ControlFlow::Continue(()))?;
            done += chunk.len();
            self.stats.prefill_tokens += chunk.len() as u64;
        }
        if progress(done).is_break() {
            return Err(Error::Cancelled);
        }
        Ok(&mut self.scratch.logits[..self.config.vocab_size])
    }

    fn decode(&mut self, id: u32) -> Result<&mut [f32]> {
        self.check(&[id])?;
        let before = self.store.stats();
        let go_on = || ControlFlow::Continue(());
        self.pass(&[id], Rows::Last, &mut { go_on }, &mut |_, _| ControlFlow::Continue(()))?;
        let after = self.store.stats();
        self.stats.decode_hits += after.hits - before.hits;
        self.stats.decode_misses += after.misses - before.misses;
        self.stats.decode_tokens += 1;
        Ok(&mut self.scratch.logits[..self.config.vocab_size])
    }

    fn prefill_each(
        &mut self,
        ids: &[u32],
        between: &mut dyn FnMut() -> ControlFlow<()>,
        each: &mut dyn FnMut(usize, &[f32]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.check(ids)?;
        let mut done = 0;
        for chunk in ids.chunks(self.scratch.rows) {
            self.stats.prefill_tokens += chunk.len() as u64;
            self.pass(chunk, Rows::All, between, &mut |row, logits| each(done + row, logits))?;
            done += chunk.len();
        }
        Ok(())
    }

    fn rewind(&mut self, len: usize) -> usize {
        self.position = self.cache.rewind(len.min(self.position));
        self.position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_that_cannot_be_filled_is_refused_with_the_one_that_can() {
        let kv = |context: usize| 1_000_000 * context as u64;
        let check = |context, fixed, limit| check_memory(context, &kv, fixed, limit);
        check(100, 50_000_000, Some(150_000_000)).unwrap();
        check(usize::MAX, 0, None).unwrap();
        let text = check(1 << 20, 50_000_000, Some(150_000_000)).unwrap_err().to_string();
        assert!(text.starts_with("max-context: 1048576 tokens") && text.ends_with(" 100 fit"), "{text}");
        let text = check(2, 150_000_000, Some(150_000_000)).unwrap_err().to_string();
        assert_eq!(text, "expert-cache-slots: slots and buffers take 150 MB, there are 150");
    }
}
