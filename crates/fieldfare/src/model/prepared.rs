//! [`Prepared`]: a model directory checked and measured, before its slots are made.
//!
//! What the slots may take depends on what everything else takes, and that is known here: nothing large has been
//! touched yet.

use super::config::Config;
use super::core_ahead::CoreAhead;
use super::footprint;
use super::kv::{KvCache, KvType};
use super::options::{DEFAULT_SLOTS, LookAhead, Memory, Precision, RunnerOptions, SPARE_SLOTS};
use super::runner::Runner;
use super::scratch::Scratch;
use super::weights::Weights;
use super::wide::Shape;
use crate::format::ModelDir;
use crate::store::{DEFAULT_READERS, ExpertStore, LayerFile, LayerFiles, Reader, Reads, StoreShape};
use crate::sys::file::ReadFile;
use crate::sys::pages::Pages;
use crate::{Error, Result};
use fieldfare_kernels::{ISA_VARIABLE, Kernels, Pool};
use std::borrow::Borrow;
use std::sync::Arc;

/// A model whose sizes are known and whose slots are not yet made.
pub struct Prepared {
    pub(super) dir: Arc<ModelDir>,
    pub(super) config: Config,
    pub(super) weights: Weights,
    pub(super) kernels: &'static Kernels,
    pub(super) pool: Pool,
    pub(super) cache: KvCache,
    pub(super) scratch: Scratch,
    pub(super) wide: Shape,
    pub(super) options: RunnerOptions,
}

impl Prepared {
    /// Checks the directory's configuration and tensors.
    ///
    /// # Errors
    /// [`Error::BadRequest`] for an option out of range, [`Error::Unsupported`] for a model of another kind,
    /// [`Error::Damaged`] for tensors that do not fit the configuration.
    pub fn new(dir: impl Into<Arc<ModelDir>>, options: impl Borrow<RunnerOptions>) -> Result<Self> {
        let (dir, options) = (dir.into(), options.borrow().clone());
        options.check()?;
        let config = Config::open(&dir)?;
        let weights = Weights::open(&dir, &config)?;
        let kind = match options.precision {
            Precision::Default if weights.keys_fit_f16() => KvType::F16,
            Precision::Default | Precision::Exact => KvType::F32,
        };
        let pool = Pool::new(options.workers());
        let (wide, cache, scratch) = footprint::buffers(&config, &options, kind, pool.threads());
        Ok(Self { wide, cache, scratch, kernels: kernels()?, pool, weights, config, dir, options })
    }

    /// The model's shape.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes of the resident weights with their index.
    pub fn core_bytes(&self) -> u64 {
        self.dir.resident().bytes().len() as u64
    }

    /// Bytes of one expert, and of one slot.
    pub fn stride(&self) -> u64 {
        self.dir.manifest().expert_stride
    }

    /// Bytes of the KV cache once it holds so many tokens.
    pub fn kv_bytes(&self, tokens: usize) -> u64 {
        self.cache.bytes_for(tokens)
    }

    /// Bytes of activation buffers at most that stay.
    pub fn scratch_bytes(&self) -> u64 {
        footprint::scratch_bytes(self.wide, &self.scratch, &self.config)
    }

    /// Bytes that a pass of so many prompt tokens takes while it lasts.
    pub fn pass_bytes(&self, tokens: usize) -> u64 {
        footprint::pass_bytes(self.wide, tokens, self.stride(), self.config.num_experts)
    }

    /// Whether gate and up of an expert lie so that a few rows are multiplied with both at once, in every layer.
    pub fn joins_gate_and_up(&self) -> bool {
        self.weights.layers.iter().all(|layer| layer.feed_forward.experts.gate_up.is_some())
    }

    /// The slots that the options ask for, or those of [`DEFAULT_SLOTS`]; core mapped, reads direct.
    pub fn usual_memory(&self) -> Memory {
        let experts = self.config.num_experts;
        let slots = self.options.slots_per_layer.unwrap_or_else(|| DEFAULT_SLOTS.min(experts));
        let slots = slots.saturating_mul(self.config.layers.len());
        let all = experts.saturating_mul(self.config.layers.len());
        let spares = if self.options.look_ahead == LookAhead::Off || slots >= all { 0 } else { SPARE_SLOTS };
        let pass_tokens = self.options.prefill_chunk_tokens;
        Memory {
            slots,
            spares,
            shared_bytes: None,
            floor_slots: slots,
            kept_bytes: 0,
            pass_tokens,
            copy_core: false,
            read_core_ahead: false,
            reads: Reads::Direct,
        }
    }

    /// Makes the slots.
    ///
    /// # Errors
    /// [`Error::BadRequest`] for slots out of range or memory that the system does not have, [`Error::Io`] or
    /// [`Error::Damaged`] for files that cannot be read.
    pub fn run(self, memory: Memory) -> Result<Runner> {
        // The first thing: the disk has work then while files are opened and slots made.
        let ahead = memory.read_core_ahead && !memory.copy_core;
        let core = ahead.then(|| CoreAhead::start(&self.dir)).flatten();
        let store = self.open_store(&memory)?;
        if memory.copy_core {
            self.dir.copy_resident()?;
        }
        Runner::assemble(self, store, &memory, core)
    }

    fn open_store(&self, memory: &Memory) -> Result<ExpertStore> {
        let (dir, layers) = (&self.dir, self.config.layers.len());
        let mut files = Vec::with_capacity(layers);
        for layer in 0..layers {
            let parts = dir.expert_parts(layer)?;
            files.push(LayerFile {
                file: ReadFile::new(dir.open_layer(layer)?),
                name: format!("packed_experts/{}", dir.experts().layers[layer].file),
                rank_of: parts.slot_of,
            });
        }
        let stride = self.stride();
        let shape = StoreShape {
            layers,
            experts: self.config.num_experts,
            slots: memory.slots,
            stride: usize::try_from(stride)
                .map_err(|_| Error::damaged("manifest.json: expertStride", "exceeds the address space"))?,
            spares: memory.spares,
            readers: DEFAULT_READERS,
        };
        let reader = LayerFiles::new(dir.path(), stride, files);
        if memory.reads == Reads::Direct {
            // Any block of a disk, at any alignment a system asks for.
            let mut trial = Pages::new(64 << 10).map_err(Error::io("allocate for", dir.path()))?;
            reader.try_direct(trial.bytes_mut());
        }
        let reader: Box<dyn Reader> = Box::new(reader);
        let mut store = ExpertStore::new(shape, self.options.policy, reader)?;
        store.set_advice(self.options.rdadvise);
        Ok(store)
    }
}

/// The kernels that [`ISA_VARIABLE`] names, or the best. A name that cannot be had is refused: who sets it measures or
/// compares, and would not notice other kernels in its place.
///
/// # Errors
/// [`Error::BadRequest`] for a name that means nothing, or nothing here.
pub fn kernels() -> Result<&'static Kernels> {
    let name = std::env::var_os(ISA_VARIABLE);
    let name = name.as_ref().map(|name| name.to_string_lossy());
    Kernels::detect_named(name.as_deref()).map_err(|error| Error::bad(ISA_VARIABLE, error.to_string()))
}
