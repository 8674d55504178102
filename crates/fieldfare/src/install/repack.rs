//! A local MLX checkpoint into a model directory.

use std::fs::File;
use std::path::Path;

use super::build::{self, Builder};
use super::matrix::{self, Component, MAX_BLOB, Scratch, Shape};
use super::schema::{self, Checked, ROLES, expert_module, module_of};
use super::source::{Checkpoint, Located, SIDECARS};
use super::target::Target;
use super::{InstallOptions, Installed, Listener};
use crate::format::{
    DType, EXPERTS_DIR, ExpertLayout, ExpertParts, IndexEntry, LAYOUT, Layout, Manifest, ResidentIndex,
    SIDECAR_DIR, WEIGHTS, hash, plan,
};
use crate::{Error, Result};

/// What upstream's writer calls every other source.
const UNKNOWN_ID: &str = "unknown/snapshot";

/// Repacks the checkpoint in `options.from` into the model directory `options.output`.
///
/// Language tensors are copied, never requantised; vision and audio tensors are left out; `config.json`, the tokenizer
/// files and the chat template go to `tokenizer/`, `generation_config.json` does not (stop tokens are the family's). A source
/// without tokenizer files installs with a warning. `listener` is told of progress and may stop the work.
///
/// # Errors
/// [`Error::Damaged`] and [`Error::Unsupported`] name what is wrong with the source, before the first byte is
/// written; [`Error::Refused`], [`Error::Locked`], [`Error::OutOfSpace`] and [`Error::Io`] what is wrong with the
/// place; [`Error::Cancelled`]. Nothing is left at `output` or `output.partial`.
pub fn install_local(options: &InstallOptions, listener: Listener<'_>) -> Result<Installed> {
    build::check_name(&options.output, options.layout)?;
    let source = Checkpoint::open(&options.from)?;
    let checked = schema::check(&source)?;
    let mut job = Job::plan(&options.from, source, &checked, options.layout)?;
    let target = Target::acquire(&options.output, options.overwrite)?;
    let mut builder = Builder::start(target, job.bytes, job.bytes, listener)?;
    job.write_resident(&mut builder)?;
    job.write_experts(&mut builder)?;
    builder.put(LAYOUT, &job.layout_bytes)?;
    for (name, file, len) in &job.sidecars {
        let path = format!("{SIDECAR_DIR}/{name}");
        builder.copy(&path, name, file, *len, None)?;
        let found = builder.listed(&path).map(|f| hash::hex(&f.sha256));
        if let Some(known) = job.source.known()
            && known.sidecar(name).is_some_and(|want| found.as_deref() != Some(want))
        {
            job.warnings.push(format!("{name} is not the one published with {}", known.id));
        }
    }
    let mut installed =
        builder.finish(manifest(&job.source, &job.experts, &checked, options.layout), None)?;
    installed.dropped_tensors = job.source.dropped();
    installed.warnings.splice(0..0, job.warnings);
    Ok(installed)
}

/// The places of everything, from shapes alone.
pub(crate) struct Geometry {
    pub(crate) index: ResidentIndex,
    pub(crate) index_bytes: Vec<u8>,
    pub(crate) experts: ExpertLayout,
    pub(crate) layout_bytes: Vec<u8>,
    pub(crate) parts: ExpertParts,
}

impl Geometry {
    pub(crate) fn new(checked: &Checked, layout: Layout) -> Result<Self> {
        let bits = checked.quant.routed_expert.weight_bits;
        let index = plan::resident_index(&checked.resident, layout)?;
        let index_bytes = build::index_bytes(&index, layout)?;
        let experts = plan::expert_layout(&checked.arch, bits, layout)?;
        if experts.expert_stride > MAX_BLOB {
            return Err(Error::Unsupported(format!("experts of {} bytes", experts.expert_stride)));
        }
        let layout_bytes = build::layout_bytes(&experts, layout)?;
        let parts = experts.expert_parts(0, &checked.arch, bits, layout)?;
        Ok(Self { index, index_bytes, experts, layout_bytes, parts })
    }
}

/// The remark about a small file that the source lacks, if it is missed. `from` is the source.
pub(crate) fn lacks(name: &str, from: &str) -> Option<String> {
    match name {
        "tokenizer.json" => Some(format!(
            "{from} has no tokenizer.json: only commands that take token ids will work with this model"
        )),
        "tokenizer_config.json" => Some(format!("{from} has no tokenizer_config.json")),
        _ => None,
    }
}

/// Everything that is known before the first byte.
struct Job {
    source: Checkpoint,
    index: ResidentIndex,
    index_bytes: Vec<u8>,
    experts: ExpertLayout,
    layout_bytes: Vec<u8>,
    parts: ExpertParts,
    sidecars: Vec<(&'static str, File, u64)>,
    warnings: Vec<String>,
    /// Payload to be written.
    bytes: u64,
}

impl Job {
    fn plan(from: &Path, source: Checkpoint, checked: &Checked, layout: Layout) -> Result<Self> {
        let Geometry { index, index_bytes, experts, layout_bytes, parts } = Geometry::new(checked, layout)?;
        let mut sidecars = Vec::new();
        let mut warnings = Vec::new();
        for (name, cap) in SIDECARS {
            match source.sidecar(name, cap)? {
                Some((file, len)) => sidecars.push((name, file, len)),
                None => warnings.extend(lacks(name, &from.display().to_string())),
            }
        }
        let layers = (experts.layers.len() as u64).checked_mul(experts.file_bytes()?);
        let small = layout_bytes.len() as u64 + sidecars.iter().map(|(_, _, len)| len).sum::<u64>();
        let bytes = layers
            .and_then(|n| {
                n.checked_add(index.index_size)?.checked_add(index.resident_size)?.checked_add(small)
            })
            .ok_or_else(|| Error::Unsupported("a model of more than 2^64 bytes".into()))?;
        Ok(Self { source, index, index_bytes, experts, layout_bytes, parts, sidecars, warnings, bytes })
    }

    fn write_resident(&self, builder: &mut Builder<'_>) -> Result<()> {
        let mut sink = builder.create(WEIGHTS, self.index.index_size + self.index.resident_size)?;
        sink.write(&self.index_bytes)?;
        builder.meter.step(self.index_bytes.len() as u64)?;
        for entry in &self.index.entries {
            matrix::gap(&mut sink, entry.data.start, &mut builder.meter)?;
            match shape_of(entry) {
                Some(shape) => {
                    let source = Matrix::find(&self.source, module_of(&entry.name))?;
                    let mut read = |component, rows: std::ops::Range<usize>, buf: &mut [u8]| {
                        let at = rows.start as u64 * shape.row_bytes(component) as u64;
                        self.source.read(source.part(component), at, buf)
                    };
                    matrix::write(&mut sink, entry.dtype, shape, &mut read, &mut builder.meter)?;
                }
                None => {
                    let at = find(&self.source, &entry.name)?;
                    // A vector of the schema: a few KiB.
                    let mut bytes = vec![0; usize::try_from(at.info.len).unwrap_or(0)];
                    self.source.read(at, 0, &mut bytes)?;
                    sink.write(&bytes)?;
                    builder.meter.step(at.info.len)?;
                }
            }
        }
        builder.list(WEIGHTS, sink)
    }

    fn write_experts(&mut self, builder: &mut Builder<'_>) -> Result<()> {
        // Padding and the gaps between parts stay zero: every expert overwrites the same bytes.
        let mut blob = vec![0u8; self.parts.stride];
        let mut scratch = Scratch::default();
        for (layer, description) in self.experts.layers.iter().enumerate() {
            let path = format!("{EXPERTS_DIR}/{}", description.file);
            let mut sink = builder.create(&path, self.experts.file_bytes()?)?;
            let mut sources = Vec::with_capacity(ROLES.len());
            for role in ROLES {
                sources.push(Matrix::find(&self.source, &expert_module(layer, role))?);
            }
            for expert in 0..self.experts.experts_per_layer as u64 {
                for (part, from) in
                    [&self.parts.gate, &self.parts.up, &self.parts.down].into_iter().zip(&sources)
                {
                    scratch.put(part, &mut blob, &mut |component, buf| {
                        // The expert is the first dimension, so each slice is in one piece.
                        self.source.read(from.part(component), expert * buf.len() as u64, buf)
                    })?;
                }
                sink.write(&blob)?;
                builder.meter.step(blob.len() as u64)?;
            }
            builder.list(&path, sink)?;
        }
        Ok(())
    }
}

/// What is said of the model, whatever way its bytes came; the list of files is filled in later.
pub(crate) fn manifest(
    source: &Checkpoint,
    experts: &ExpertLayout,
    checked: &Checked,
    layout: Layout,
) -> Manifest {
    Manifest {
        layout,
        version_minor: 0,
        flags: Manifest::default_flags(),
        model_id: source.known().map_or(UNKNOWN_ID, |known| known.id).to_owned(),
        source_snapshot_hash: Some(source.snapshot_hash.clone()),
        arch: checked.arch.clone(),
        quant: Some(checked.quant.clone()),
        files: std::collections::BTreeMap::new(),
        expert_stride: experts.expert_stride,
        bit_width_overrides_honored: i64::try_from(source.quantization.override_count()).ok(),
    }
}

/// Shape of a quantised entry; `None` for a plain one.
pub(crate) fn shape_of(entry: &IndexEntry) -> Option<Shape> {
    let (rows, cols) = (entry.shape[0] as usize, entry.shape[1] as usize);
    match entry.dtype {
        DType::Tile16x64 => Some(Shape { rows, cols, bits: 4 }),
        DType::U32 if !entry.scales.is_empty() => {
            let elements = entry.elements().filter(|n| *n > 0)?;
            let bits = u32::try_from((entry.data.end - entry.data.start).checked_mul(8)? / elements).ok()?;
            Some(Shape { rows, cols, bits })
        }
        _ => None,
    }
}

/// The three source tensors of a quantised matrix; they may lie in different shards.
struct Matrix<'a>([&'a Located; 3]);

impl<'a> Matrix<'a> {
    fn find(source: &'a Checkpoint, module: &str) -> Result<Self> {
        let part = |suffix: &str| find(source, &format!("{module}.{suffix}"));
        Ok(Self([part("weight")?, part("scales")?, part("biases")?]))
    }

    fn part(&self, component: Component) -> &'a Located {
        self.0[component as usize]
    }
}

fn find<'a>(source: &'a Checkpoint, name: &str) -> Result<&'a Located> {
    source.tensor(name).ok_or_else(|| Error::damaged("checkpoint", format!("missing tensor: {name}")))
}
