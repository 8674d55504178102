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
    DType, EXPERTS_DIR, ExpertLayout, IndexEntry, Integrity, LAYOUT, Layout, Manifest, ModelDir,
    ResidentIndex, WEIGHTS, hash,
};
use crate::sys::file;
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
    let model = ModelDir::open(src, Integrity::Structure)?;
    if model.experts().expert_stride > MAX_BLOB {
        return Err(Error::Unsupported(format!("experts of {} bytes", model.experts().expert_stride)));
    }
    not_inside(src, &options.output)?;
    let target = Target::acquire(&options.output, options.overwrite)?;
    if model.layout() == options.layout {
        copy(model, target, listener)
    } else {
        change(model, target, options.layout, listener)
    }
}

/// A model in a model would be a foreign file there.
fn not_inside(src: &Path, output: &Path) -> Result<()> {
    let src = std::fs::canonicalize(src).map_err(Error::io("open", src))?;
    let parent = output.parent().map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p });
    match parent.map(std::fs::canonicalize) {
        Some(Ok(parent)) if parent.starts_with(&src) => Err(Error::Refused {
            path: output.to_path_buf(),
            reason: "lies inside the model to be converted".into(),
        }),
        _ => Ok(()),
    }
}

/// Listed files that do not depend on the layout.
fn others(model: &ModelDir) -> Vec<&str> {
    let layers: Vec<String> =
        model.experts().layers.iter().map(|l| format!("{EXPERTS_DIR}/{}", l.file)).collect();
    let dependent = |path: &str| path == WEIGHTS || path == LAYOUT || layers.iter().any(|l| l == path);
    model.manifest().files.keys().map(String::as_str).filter(|path| !dependent(path)).collect()
}

fn size_of(model: &ModelDir, paths: &[&str]) -> u64 {
    paths
        .iter()
        .filter_map(|path| model.manifest().files.get(*path))
        .map(|f| f.size)
        .fold(0, u64::saturating_add)
}

/// Copies a listed file, which must have its hash.
fn copy_listed(model: &ModelDir, path: &str, builder: &mut Builder<'_>) -> Result<()> {
    let want = model.manifest().file(path)?;
    builder.copy(path, path, &model.open_file(path)?, want.size, Some(want))
}

/// Every listed file as it is, and the manifest to the byte.
fn copy(model: ModelDir, target: Target, listener: Listener<'_>) -> Result<Installed> {
    let paths: Vec<&str> = model.manifest().files.keys().map(String::as_str).collect();
    let bytes = size_of(&model, &paths);
    let mut builder = Builder::start(target, bytes, bytes, listener)?;
    for path in paths {
        copy_listed(&model, path, &mut builder)?;
    }
    let (manifest, bytes) = (model.manifest().clone(), model.manifest_bytes().to_vec());
    // It may be the model that is about to be replaced, and some systems do not rename what is open.
    drop(model);
    builder.finish(manifest, Some(bytes))
}

/// The same model in the other layout.
fn change(model: ModelDir, target: Target, layout: Layout, listener: Listener<'_>) -> Result<Installed> {
    let tensors = model.index().entries.iter().map(source_tensor).collect::<Result<Vec<_>>>()?;
    let index = plan::resident_index(&tensors, layout)?;
    let index_bytes = build::index_bytes(&index, layout)?;
    let bits = model.quant().routed_expert.weight_bits;
    let experts =
        plan::with_blob(model.experts(), &plan::expert_blob(&model.manifest().arch, bits, layout)?)?;
    let layout_bytes = build::layout_bytes(&experts, layout)?;
    let others = others(&model);
    let bytes = (experts.layers.len() as u64)
        .saturating_mul(experts.file_bytes()?)
        .saturating_add(index.index_size + index.resident_size)
        .saturating_add(size_of(&model, &others))
        .saturating_add(layout_bytes.len() as u64);
    let hashed = model.manifest().file(WEIGHTS)?.size;

    let mut builder = Builder::start(target, bytes, bytes.saturating_add(hashed), listener)?;
    builder.meter.stage(Stage::Verifying)?;
    let weights = verified_weights(&model, &mut builder)?;
    builder.meter.stage(Stage::Writing)?;
    write_resident(&model, &weights, &index, &index_bytes, &mut builder)?;
    for layer in 0..experts.layers.len() {
        write_layer(&model, &experts, layout, layer, &mut builder)?;
    }
    builder.put(LAYOUT, &layout_bytes)?;
    for path in others {
        copy_listed(&model, path, &mut builder)?;
    }
    let manifest = Manifest { layout, expert_stride: experts.expert_stride, ..model.manifest().clone() };
    drop((model, weights));
    builder.finish(manifest, None)
}

/// Opens and hashes `model_weights.bin`, whose parts will be read out of order.
fn verified_weights(model: &ModelDir, builder: &mut Builder<'_>) -> Result<File> {
    let want = model.manifest().file(WEIGHTS)?;
    let weights = model.open_file(WEIGHTS)?;
    let mut step = |n| match builder.meter.step(n) {
        Ok(()) => std::ops::ControlFlow::Continue(()),
        Err(_) => std::ops::ControlFlow::Break(()),
    };
    let found = hash::sha256_file(&weights, want.size, WEIGHTS, &mut step)?;
    if found == want.sha256 { Ok(weights) } else { Err(wrong_hash(WEIGHTS)) }
}

fn write_resident(
    model: &ModelDir,
    weights: &File,
    index: &ResidentIndex,
    index_bytes: &[u8],
    builder: &mut Builder<'_>,
) -> Result<()> {
    let by_name = model.index().by_name();
    let mut sink = builder.create(WEIGHTS, index.index_size + index.resident_size)?;
    sink.write(index_bytes)?;
    builder.meter.step(index_bytes.len() as u64)?;
    let read =
        |at: u64, buf: &mut [u8]| file::read_exact_at(weights, buf, at).map_err(Error::io("read", WEIGHTS));
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
    model: &ModelDir,
    experts: &ExpertLayout,
    layout: Layout,
    layer: usize,
    builder: &mut Builder<'_>,
) -> Result<()> {
    let path = format!("{EXPERTS_DIR}/{}", experts.layers[layer].file);
    let file = model.open_layer(layer)?;
    let from = model.expert_parts(layer)?;
    let to = experts.expert_parts(layer, &model.manifest().arch, from.gate.bits, layout)?;
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
    if found == model.manifest().file(&path)?.sha256 { Ok(()) } else { Err(wrong_hash(&path)) }
}
