//! A model directory into the other layout, or a verified copy of it.
//!
//! Every byte of the source is hashed before anything made of it can get a name: layer files and sidecars as they are
//! read, `model_weights.bin`, whose parts are read out of order, once before. A damaged source is never laundered
//! into a directory with fresh hashes.

use std::fs::File;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::build::{self, Builder, wrong_hash};
use super::matrix::{self, MAX_BLOB, Scratch, Unpacker};
use super::repack::shape_of;
use super::target::Target;
use super::{ConvertOptions, Installed, Listener, Stage};
use crate::format::plan::{self, SourceKind, SourceTensor};
use crate::format::{
    CAP_LAYOUT, CAP_MANIFEST, DType, EXPERTS_DIR, ExpertLayout, ExpertParts, IndexEntry, LAYOUT, Layout,
    MANIFEST, Manifest, ResidentIndex, WEIGHTS, hash, schema,
};
use crate::sys::file::{self, Dir};
use crate::{Error, Result};

/// Writes the model directory `src` in the layout that `options` ask for.
///
/// The names, order and placement of experts, sidecars and everything the manifest says of the model are kept. v1 to tiled to
/// v1 gives back the very bytes of a canonical v1 directory, except the receipt, which carries the place and time.
/// Where the layout is the source's own, the result is a copy of every file, each checked against its hash.
///
/// # Errors
/// [`Error::NotInstalled`] if `src` has no manifest; [`Error::Damaged`] naming the file whose content is not what
/// the manifest says; otherwise as [`install_local`](super::install_local).
pub fn convert(src: &Path, options: &ConvertOptions, listener: Listener<'_>) -> Result<Installed> {
    build::check_name(&options.output, options.layout)?;
    let model = Model::open(src)?;
    let target = Target::acquire(&options.output, options.overwrite)?;
    if model.manifest.layout == options.layout {
        copy(&model, target, listener)
    } else {
        change(&model, target, options.layout, listener)
    }
}

/// An opened source: documents parsed and checked, big files open and of the right size.
struct Model {
    dir: Dir,
    manifest_bytes: Vec<u8>,
    manifest: Manifest,
    experts: ExpertLayout,
    index: ResidentIndex,
    weights: File,
    /// Experts' width in bits.
    bits: u32,
}

impl Model {
    fn open(path: &Path) -> Result<Self> {
        let dir = Dir::open(path).map_err(Error::io("open", path))?;
        let manifest_file = dir.open_file(MANIFEST).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                Error::NotInstalled { path: path.to_path_buf(), reason: format!("{MANIFEST} is missing") }
            }
            _ => Error::io("open", path.join(MANIFEST))(e),
        })?;
        let manifest_bytes = read_all(&manifest_file, MANIFEST, CAP_MANIFEST)?;
        let manifest = Manifest::parse(&manifest_bytes)?;
        let bits = manifest.check_runnable()?.routed_expert.weight_bits;
        let mut this = Self {
            dir,
            manifest_bytes,
            experts: ExpertLayout { expert_stride: 0, experts_per_layer: 0, layers: vec![], blobs: vec![] },
            index: ResidentIndex { entries: vec![], index_size: 0, resident_size: 0 },
            weights: manifest_file,
            manifest,
            bits,
        };
        this.read_layout()?;
        this.read_index()?;
        Ok(this)
    }

    fn read_layout(&mut self) -> Result<()> {
        let (file, _) = self.listed(LAYOUT)?;
        let bytes = read_all(&file, LAYOUT, CAP_LAYOUT)?;
        if hash::sha256(&bytes) != self.manifest.file(LAYOUT)?.sha256 {
            return Err(wrong_hash(LAYOUT));
        }
        self.experts = ExpertLayout::parse(&bytes, self.manifest.layout)?;
        self.experts.check(&self.manifest)?;
        if self.experts.expert_stride > MAX_BLOB {
            return Err(Error::Unsupported(format!("experts of {} bytes", self.experts.expert_stride)));
        }
        Ok(())
    }

    fn read_index(&mut self) -> Result<()> {
        let (file, len) = self.listed(WEIGHTS)?;
        let mut head = [0; 24];
        file::read_exact_at(&file, &mut head, 0).map_err(Error::io("read", WEIGHTS))?;
        let mut region = vec![0; ResidentIndex::region_size(&head, len)?];
        file::read_exact_at(&file, &mut region, 0).map_err(Error::io("read", WEIGHTS))?;
        self.index = ResidentIndex::parse(&region, len, self.manifest.layout)?;
        let quant = self.manifest.check_runnable()?;
        schema::check_resident(&self.index, &self.manifest.arch, quant, self.manifest.layout)?;
        self.weights = file;
        Ok(())
    }

    /// Opens a listed file of the listed size.
    fn listed(&self, path: &str) -> Result<(File, u64)> {
        let want = self.manifest.file(path)?.size;
        let file = self.dir.open_file(path).map_err(Error::io("open", path))?;
        let len = file.metadata().map_err(Error::io("open", path))?.len();
        if len != want {
            return Err(Error::damaged(path, format!("{len} bytes, the manifest says {want}")));
        }
        Ok((file, len))
    }

    fn parts(&self, layer: usize) -> Result<ExpertParts> {
        self.experts.expert_parts(layer, &self.manifest.arch, self.bits, self.manifest.layout)
    }

    /// Listed files that do not depend on the layout.
    fn others(&self) -> Vec<&str> {
        let layers: Vec<String> =
            self.experts.layers.iter().map(|l| format!("{EXPERTS_DIR}/{}", l.file)).collect();
        let dependent = |path: &str| path == WEIGHTS || path == LAYOUT || layers.iter().any(|l| l == path);
        self.manifest.files.keys().map(String::as_str).filter(|path| !dependent(path)).collect()
    }

    fn size_of(&self, paths: &[&str]) -> u64 {
        paths
            .iter()
            .filter_map(|path| self.manifest.files.get(*path))
            .map(|f| f.size)
            .fold(0, u64::saturating_add)
    }
}

fn read_all(file: &File, name: &str, cap: u64) -> Result<Vec<u8>> {
    let len = file.metadata().map_err(Error::io("open", name))?.len();
    if len > cap {
        return Err(Error::damaged(name, format!("{len} bytes exceed the {cap}-byte cap")));
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    file::read_exact_at(file, &mut bytes, 0).map_err(Error::io("read", name))?;
    Ok(bytes)
}

/// Every listed file as it is, and the manifest to the byte.
fn copy(model: &Model, target: Target, listener: Listener<'_>) -> Result<Installed> {
    let paths: Vec<&str> = model.manifest.files.keys().map(String::as_str).collect();
    let bytes = model.size_of(&paths);
    let mut builder = Builder::start(target, bytes, bytes, listener)?;
    for path in paths {
        let (file, len) = model.listed(path)?;
        builder.copy(path, path, &file, len, Some(model.manifest.file(path)?))?;
    }
    builder.finish(model.manifest.clone(), Some(model.manifest_bytes.clone()))
}

/// The same model in the other layout.
fn change(model: &Model, target: Target, layout: Layout, listener: Listener<'_>) -> Result<Installed> {
    let tensors = model.index.entries.iter().map(source_tensor).collect::<Result<Vec<_>>>()?;
    let index = plan::resident_index(&tensors, layout)?;
    let index_bytes = build::index_bytes(&index, layout)?;
    let blob = plan::expert_blob(&model.manifest.arch, model.bits, layout)?;
    let experts = plan::with_blob(&model.experts, &blob)?;
    let layout_bytes = build::layout_bytes(&experts, layout)?;
    let others = model.others();
    let big = (experts.layers.len() as u64).saturating_mul(experts.file_bytes()?);
    let weights = index.index_size + index.resident_size;
    let bytes = big
        .saturating_add(weights)
        .saturating_add(model.size_of(&others))
        .saturating_add(layout_bytes.len() as u64);
    let hashed = model.index.index_size + model.index.resident_size;

    let mut builder = Builder::start(target, bytes, bytes.saturating_add(hashed), listener)?;
    builder.meter.stage(Stage::Verifying)?;
    verify_weights(model, &mut builder)?;
    builder.meter.stage(Stage::Writing)?;
    write_resident(model, &index, &index_bytes, &mut builder)?;
    for layer in 0..experts.layers.len() {
        write_layer(model, &experts, layout, layer, &mut builder)?;
    }
    builder.put(LAYOUT, &layout_bytes)?;
    for path in others {
        let (file, len) = model.listed(path)?;
        builder.copy(path, path, &file, len, Some(model.manifest.file(path)?))?;
    }
    let manifest = Manifest { layout, expert_stride: experts.expert_stride, ..model.manifest.clone() };
    builder.finish(manifest, None)
}

fn verify_weights(model: &Model, builder: &mut Builder<'_>) -> Result<()> {
    let want = model.manifest.file(WEIGHTS)?;
    let mut step = |n| match builder.meter.step(n) {
        Ok(()) => std::ops::ControlFlow::Continue(()),
        Err(_) => std::ops::ControlFlow::Break(()),
    };
    let found = hash::sha256_file(&model.weights, want.size, WEIGHTS, &mut step)?;
    if found == want.sha256 { Ok(()) } else { Err(wrong_hash(WEIGHTS)) }
}

fn write_resident(
    model: &Model,
    index: &ResidentIndex,
    index_bytes: &[u8],
    builder: &mut Builder<'_>,
) -> Result<()> {
    let by_name = model.index.by_name();
    let mut sink = builder.create(WEIGHTS, index.index_size + index.resident_size)?;
    sink.write(index_bytes)?;
    builder.meter.step(index_bytes.len() as u64)?;
    let read = |at: u64, buf: &mut [u8]| {
        file::read_exact_at(&model.weights, buf, at).map_err(Error::io("read", WEIGHTS))
    };
    for entry in &index.entries {
        // The new index was made from the names of the old one.
        let from = by_name
            .get(entry.name.as_str())
            .ok_or_else(|| Error::damaged(WEIGHTS, format!("no {}", entry.name)))?;
        matrix::gap(&mut sink, entry.data.start, &mut builder.meter)?;
        let Some(shape) = shape_of(entry) else {
            let mut at = from.data.start;
            while at < from.data.end {
                let n = (from.data.end - at).min(super::sink::CHUNK as u64);
                let mut bytes = vec![0; usize::try_from(n).unwrap_or(0)];
                read(at, &mut bytes)?;
                sink.write(&bytes)?;
                builder.meter.step(n)?;
                at += n;
            }
            continue;
        };
        shape.check(&entry.name)?;
        if from.dtype == DType::Tile16x64 {
            let mut unpacker = Unpacker::new(shape);
            let mut rows = |component, rows, out: &mut [u8]| {
                unpacker.rows(component, rows, out, &mut |at, buf| read(from.data.start + at, buf))
            };
            matrix::write(&mut sink, entry.dtype, shape, &mut rows, &mut builder.meter)?;
        } else {
            let start = [from.data.start, from.scales.start, from.biases.start];
            let mut rows = |component: matrix::Component, rows: std::ops::Range<usize>, out: &mut [u8]| {
                read(start[component as usize] + rows.start as u64 * shape.row_bytes(component) as u64, out)
            };
            matrix::write(&mut sink, entry.dtype, shape, &mut rows, &mut builder.meter)?;
        }
    }
    builder.list(WEIGHTS, sink)
}

fn source_tensor(entry: &IndexEntry) -> Result<SourceTensor> {
    let kind = match shape_of(entry) {
        Some(shape) => {
            shape.check(&entry.name)?;
            SourceKind::Affine { rows: shape.rows, cols: shape.cols, bits: shape.bits }
        }
        None => SourceKind::Plain { dtype: entry.dtype, shape: entry.shape },
    };
    Ok(SourceTensor { name: entry.name.clone(), kind })
}

/// One layer file, blob by blob in the order of the file: each is read once, hashed, rearranged and written.
fn write_layer(
    model: &Model,
    experts: &ExpertLayout,
    layout: Layout,
    layer: usize,
    builder: &mut Builder<'_>,
) -> Result<()> {
    let path = format!("{EXPERTS_DIR}/{}", experts.layers[layer].file);
    let (file, _) = model.listed(&path)?;
    let (from, to) =
        (model.parts(layer)?, experts.expert_parts(layer, &model.manifest.arch, model.bits, layout)?);
    let mut sink = builder.create(&path, experts.file_bytes()?)?;
    let mut hasher = Sha256::new();
    let (mut old, mut new) = (vec![0u8; from.stride], vec![0u8; to.stride]);
    let (mut unpacked, mut packed) = (Scratch::default(), Scratch::default());
    for rank in 0..experts.experts_per_layer as u64 {
        file::read_exact_at(&file, &mut old, rank * from.stride as u64).map_err(Error::io("read", &path))?;
        hasher.update(&old);
        for (a, b) in [(&from.gate, &to.gate), (&from.up, &to.up), (&from.down, &to.down)] {
            packed.put(b, &mut new, &mut |component, buf| {
                unpacked.get(a, &old, component, buf);
                Ok(())
            })?;
        }
        sink.write(&new)?;
        builder.meter.step(new.len() as u64)?;
    }
    builder.list(&path, sink)?;
    let found: [u8; 32] = hasher.finalize().into();
    if found == model.manifest.file(&path)?.sha256 { Ok(()) } else { Err(wrong_hash(&path)) }
}
