//! Where bytes go: pure functions from shapes to the resident index and the expert layout.
//!
//! Writers fill files from what these return; readers check with the same rules. Nothing here does I/O.

use super::index::region_bytes;
use super::layout::{ExpertEntry, ExpertLayout, LayerLayout, SubDType, SubTensor, tiled_span};
use super::parts::affine_bytes;
use super::schema::{self, LAYER_ORDER, PREFIX, Stored, TensorKind};
use super::{
    Arch, DType, IndexEntry, Layout, PAGE, PART_ALIGN, Quant, ResidentIndex, TENSOR_ALIGN, align_up,
};
use crate::{Error, Result};
use fieldfare_kernels::tile;

/// A tensor of the source that goes to `model_weights.bin`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTensor {
    /// Full name, ending in `.weight` for matrices.
    pub name: String,
    /// What it is.
    pub kind: SourceKind,
}

/// What a source tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// A quantized matrix with bfloat16 scales and biases for groups of 64 columns.
    Affine {
        /// Output features.
        rows: usize,
        /// Input features (logical), a multiple of 64.
        cols: usize,
        /// Bits of a weight.
        bits: u32,
    },
    /// Anything else, copied as it is. `dtype` is not [`DType::Tile16x64`].
    Plain {
        /// Element type.
        dtype: DType,
        /// Shape; unused dimensions are 0 and trailing.
        shape: [u32; 4],
    },
}

impl From<TensorKind> for SourceKind {
    fn from(kind: TensorKind) -> Self {
        match kind {
            // Schema vectors come from a config of hidden size and head counts that fit 32 bits, or are refused there.
            TensorKind::Vector(n) => {
                Self::Plain { dtype: DType::Bf16, shape: [u32::try_from(n).unwrap_or(u32::MAX), 0, 0, 0] }
            }
            TensorKind::Matrix { rows, cols, bits } => Self::Affine { rows, cols, bits },
        }
    }
}

/// The resident tensors that a model of this shape has, in file order: for checking a source's inventory before any byte is
/// copied, and for synthetic models.
pub fn inventory(arch: &Arch, quant: &Quant) -> Result<Vec<SourceTensor>> {
    let mut tensors = Vec::new();
    schema::resident_tensors(arch, quant, &mut |name, kind| {
        tensors.push(SourceTensor { name: name.to_owned(), kind: kind.into() });
        Ok(())
    })?;
    Ok(tensors)
}

/// The resident index for these tensors (in any order): upstream's entry order, and offsets without gaps in v1, on 4 KiB
/// boundaries in a tiled directory, where every 4-bit matrix that divides into tiles is stored as tiles. The file is
/// `index_size + resident_size` bytes; what no range covers is zero.
pub fn resident_index(tensors: &[SourceTensor], layout: Layout) -> Result<ResidentIndex> {
    let too_large =
        || Error::Unsupported("resident tensors of more than 2^64 bytes or an index beyond 16 MiB".into());
    let mut sorted: Vec<&SourceTensor> = tensors.iter().collect();
    sorted.sort_by_cached_key(|tensor| entry_order(&tensor.name));
    let index_size = region_bytes(sorted.iter().map(|t| t.name.as_str())).ok_or_else(too_large)?;
    let mut at = index_size;
    let mut entries: Vec<IndexEntry> = Vec::with_capacity(sorted.len());
    for tensor in sorted {
        if entries.last().is_some_and(|last| last.name == tensor.name) {
            return Err(Error::Unsupported(format!("two tensors named {}", tensor.name)));
        }
        if !tensor.name.starts_with("language_model.") {
            return Err(Error::Unsupported(format!("tensor {}", tensor.name)));
        }
        let stored = stored(tensor, layout)?;
        if layout == Layout::Tiled {
            at = align_up(at, TENSOR_ALIGN).ok_or_else(too_large)?;
        }
        let mut take = |size: u64| -> Result<std::ops::Range<u64>> {
            if size == 0 {
                return Ok(0..0);
            }
            let start = at;
            at = at.checked_add(size).ok_or_else(too_large)?;
            Ok(start..at)
        };
        entries.push(IndexEntry {
            name: tensor.name.clone(),
            dtype: stored.dtype,
            shape: stored.shape,
            data: take(stored.data)?,
            scales: take(stored.scales)?,
            biases: take(stored.scales)?,
        });
    }
    Ok(ResidentIndex { entries, index_size, resident_size: at - index_size })
}

fn stored(tensor: &SourceTensor, layout: Layout) -> Result<Stored> {
    let refuse = || Error::Unsupported(format!("tensor {} of shape {:?}", tensor.name, tensor.kind));
    match tensor.kind {
        SourceKind::Affine { rows, cols, bits } => {
            Stored::new(TensorKind::Matrix { rows, cols, bits }, layout).ok_or_else(refuse)
        }
        SourceKind::Plain { dtype, shape } => {
            let width = match dtype {
                DType::U32 | DType::F32 => 4u64,
                DType::Bf16 | DType::F16 => 2,
                DType::Tile16x64 => return Err(refuse()),
            };
            let used = shape.iter().take_while(|d| **d > 0).count();
            let elements = shape[..used].iter().try_fold(width, |n, d| n.checked_mul(u64::from(*d)));
            match elements {
                Some(data) if used > 0 && shape[used..].iter().all(|d| *d == 0) => {
                    Ok(Stored { dtype, shape, data, scales: 0 })
                }
                _ => Err(refuse()),
            }
        }
    }
}

/// Upstream's order of entries: the embedding, then layers by number with their tensors in a fixed order and others behind
/// them by name, then tensors without a layer by name, then the last norm.
fn entry_order(name: &str) -> (u8, u64, usize, String) {
    if let Some(rest) = name.strip_prefix(PREFIX) {
        match rest {
            "embed_tokens.weight" => return (0, 0, 0, String::new()),
            "norm.weight" => return (3, 0, 0, String::new()),
            _ => {}
        }
        if let Some((number, suffix)) = rest.strip_prefix("layers.").and_then(|rest| rest.split_once('.'))
            && let Ok(layer) = number.parse::<u64>()
        {
            let place = LAYER_ORDER.iter().position(|known| *known == suffix).unwrap_or(LAYER_ORDER.len());
            return (1, layer, place, name.to_owned());
        }
    }
    (2, 0, 0, name.to_owned())
}

/// Geometry of an expert blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// Its parts in file order.
    pub parts: Vec<SubTensor>,
    /// Bytes that mean something; zeros follow.
    pub used: u64,
    /// Bytes from one blob to the next: `used` rounded up to whole pages.
    pub stride: u64,
}

/// The blob of an expert of this shape. v1: nine parts without gaps. Tiled: one part for each matrix that divides into tiles,
/// gate and up panels taking turns, down behind them; what does not divide keeps its three parts; each part starts at
/// a multiple of 64.
pub fn expert_blob(arch: &Arch, bits: u32, layout: Layout) -> Result<Blob> {
    let refuse = || {
        let (m, h) = (arch.moe_intermediate_size, arch.hidden_size);
        Error::Unsupported(format!("experts of {m} x {h}, {bits} bit"))
    };
    let (inner, hidden) = (arch.moe_intermediate_size, arch.hidden_size);
    let mut blob = Blob { parts: Vec::new(), used: 0, stride: 0 };
    if layout == Layout::Tiled && tile::is_tileable(inner, hidden, bits) {
        let panel = tile::panel_bytes(hidden) as u64;
        blob.tiles("gate", [inner, hidden], 0, panel * 2).ok_or_else(refuse)?;
        blob.tiles("up", [inner, hidden], panel, panel * 2).ok_or_else(refuse)?;
    } else {
        blob.rows("gate", [inner, hidden], bits, layout).ok_or_else(refuse)?;
        blob.rows("up", [inner, hidden], bits, layout).ok_or_else(refuse)?;
    }
    if layout == Layout::Tiled && tile::is_tileable(hidden, inner, bits) {
        let start = align_up(blob.used, PART_ALIGN).ok_or_else(refuse)?;
        blob.tiles("down", [hidden, inner], start, tile::panel_bytes(inner) as u64).ok_or_else(refuse)?;
    } else {
        blob.rows("down", [hidden, inner], bits, layout).ok_or_else(refuse)?;
    }
    blob.stride = align_up(blob.used, PAGE).ok_or_else(refuse)?;
    Ok(blob)
}

impl Blob {
    fn tiles(&mut self, role: &str, [rows, cols]: [usize; 2], offset: u64, panel_stride: u64) -> Option<()> {
        let shape = [u32::try_from(rows).ok()?, u32::try_from(cols).ok()?];
        let size = tiled_span(shape[0], tile::panel_bytes(cols) as u64, panel_stride)?;
        self.used = self.used.max(offset.checked_add(size)?);
        self.parts.push(SubTensor {
            role: role.to_owned(),
            dtype: SubDType::Tile16x64,
            shape: shape.to_vec(),
            bits: Some(4),
            offset,
            size,
            panel_stride: Some(panel_stride),
        });
        Some(())
    }

    fn rows(&mut self, role: &str, [rows, cols]: [usize; 2], bits: u32, layout: Layout) -> Option<()> {
        if rows == 0 || cols == 0 || !cols.is_multiple_of(super::manifest::GROUP) {
            return None;
        }
        let (weights, scales) = affine_bytes(rows, cols, bits)?;
        let groups = cols / super::manifest::GROUP;
        for (suffix, dtype, cols, bits, size) in [
            ("", SubDType::U32, cols, Some(bits), weights),
            ("_scales", SubDType::Bf16, groups, None, scales),
            ("_biases", SubDType::Bf16, groups, None, scales),
        ] {
            let offset = if layout == Layout::Tiled { align_up(self.used, PART_ALIGN)? } else { self.used };
            self.used = offset.checked_add(size)?;
            self.parts.push(SubTensor {
                role: format!("{role}{suffix}"),
                dtype,
                shape: vec![u32::try_from(rows).ok()?, u32::try_from(cols).ok()?],
                bits,
                offset,
                size,
                panel_stride: None,
            });
        }
        Some(())
    }
}

/// The expert layout of a model of this shape: files `layer_00.bin` …, experts in order of their ids.
pub fn expert_layout(arch: &Arch, bits: u32, layout: Layout) -> Result<ExpertLayout> {
    let per = u32::try_from(arch.num_experts)
        .map_err(|_| Error::Unsupported(format!("{} experts in a layer", arch.num_experts)))?;
    let experts: Vec<ExpertEntry> =
        (0..per).map(|physical_rank| ExpertEntry { physical_rank, blob: 0 }).collect();
    let layers = (0..arch.num_hidden_layers)
        .map(|layer| LayerLayout { file: format!("layer_{layer:02}.bin"), experts: experts.clone() })
        .collect();
    let empty =
        ExpertLayout { expert_stride: 0, experts_per_layer: arch.num_experts, layers, blobs: Vec::new() };
    with_blob(&empty, &expert_blob(arch, bits, layout)?)
}

/// The same files and placement of experts with another blob: what conversion between layouts writes.
pub fn with_blob(placement: &ExpertLayout, blob: &Blob) -> Result<ExpertLayout> {
    let mut parts = blob.parts.clone();
    parts.sort_by(|a, b| a.role.cmp(&b.role));
    let mut out = placement.clone();
    out.layers.iter_mut().flat_map(|layer| &mut layer.experts).for_each(|expert| expert.blob = 0);
    out.blobs = vec![parts];
    out.expert_stride = blob.stride;
    out.file_bytes()?;
    Ok(out)
}

#[cfg(test)]
pub(super) mod tests;
