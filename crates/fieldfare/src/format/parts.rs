//! What a runtime needs to know of an expert blob: where gate, up and down lie and how they are stored.

use super::layout::{ExpertLayout, SubDType, SubTensor};
use super::{Arch, LAYOUT, Layout, fault, manifest::GROUP};
use crate::{Error, Result};
use fieldfare_kernels::tile;
use std::ops::Range;

/// Where the matrices of an expert lie in its blob; the same for every expert of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpertParts {
    /// Bytes from one blob of the layer file to the next.
    pub stride: usize,
    /// Gate projection, `moe_intermediate_size` x `hidden_size`.
    pub gate: Part,
    /// Up projection, of the same shape.
    pub up: Part,
    /// Down projection, `hidden_size` x `moe_intermediate_size`.
    pub down: Part,
    /// Blob number in the layer file by logical expert id.
    pub slot_of: Vec<u32>,
}

/// One matrix of an expert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Output features.
    pub rows: usize,
    /// Input features.
    pub cols: usize,
    /// Bits of a weight.
    pub bits: u32,
    /// Bytes of the blob from the first to the last one of this matrix.
    pub span: Range<usize>,
    /// Where its bytes are.
    pub data: PartData,
}

/// Bytes of a matrix, relative to the blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartData {
    /// Source order.
    Rows {
        /// Packed weights.
        weights: Range<usize>,
        /// bfloat16 scales.
        scales: Range<usize>,
        /// bfloat16 biases.
        biases: Range<usize>,
    },
    /// 16 x 64 tiles.
    Tiles {
        /// First panel.
        offset: usize,
        /// Bytes from one panel to the next.
        panel_stride: usize,
    },
}

impl ExpertParts {
    /// Bytes of the blob that mean something: up to the last byte of the last matrix.
    pub fn used(&self) -> usize {
        self.gate.span.end.max(self.up.span.end).max(self.down.span.end)
    }
}

impl ExpertLayout {
    /// The parts of a layer's experts, checked against the shapes that `arch` implies: all roles present, of the right
    /// type, shape and size, the same in all experts, every matrix that divides into tiles tiled in a tiled directory.
    /// Other roles are ignored.
    pub fn expert_parts(&self, layer: usize, arch: &Arch, bits: u32, layout: Layout) -> Result<ExpertParts> {
        let at = format!("layers[{layer}].experts");
        let layout_of_layer = self
            .layers
            .get(layer)
            .ok_or_else(|| Error::bad("layer", format!("{layer} of {}", self.layers.len())))?;
        let first = *layout_of_layer.experts.first().ok_or_else(|| fault(LAYOUT, &at, "no experts"))?;
        let shapes = [
            ("gate", arch.moe_intermediate_size, arch.hidden_size),
            ("up", arch.moe_intermediate_size, arch.hidden_size),
            ("down", arch.hidden_size, arch.moe_intermediate_size),
        ];
        let read = |e: usize, blob: &[SubTensor]| -> Result<[Part; 3]> {
            let [gate, up, down] = shapes.map(|(role, rows, cols)| {
                let tensors = format!("{at}[{e}].tensors");
                read_part(blob, &tensors, role, [rows, cols], bits, layout)
            });
            Ok([gate?, up?, down?])
        };
        let parts = read(0, self.parts_of(first))?;
        for (e, expert) in layout_of_layer.experts.iter().enumerate() {
            if expert.blob != first.blob && read(e, self.parts_of(*expert))? != parts {
                return Err(fault(
                    LAYOUT,
                    &format!("{at}[{e}].tensors"),
                    "differ from the layer's first expert",
                ));
            }
        }
        let [gate, up, down] = parts;
        let stride = usize::try_from(self.expert_stride)
            .map_err(|_| fault(LAYOUT, "expertStride", "too large for this machine"))?;
        let slot_of = layout_of_layer.experts.iter().map(|e| e.physical_rank).collect();
        Ok(ExpertParts { stride, gate, up, down, slot_of })
    }
}

fn read_part(
    blob: &[SubTensor],
    at: &str,
    role: &str,
    [rows, cols]: [usize; 2],
    bits: u32,
    layout: Layout,
) -> Result<Part> {
    let find = |role: &str| blob.iter().find(|part| part.role == role);
    let tiled = layout == Layout::Tiled && tile::is_tileable(rows, cols, bits);
    let wrong = |role: &str, what: &str| fault(LAYOUT, &format!("{at}.{role}"), what);
    let groups = cols / GROUP;
    let need = |role: &str,
                dtype: SubDType,
                cols: usize,
                bits: Option<u32>,
                bytes: Option<u64>,
                align: u64| {
        let what = format!(
            "{} {rows} x {cols}{}",
            dtype.name(),
            bits.map_or(String::new(), |b| format!(", {b} bit"))
        );
        let part = find(role).ok_or_else(|| wrong(role, &format!("missing; expected {what}")))?;
        let shape_fits = part.shape.iter().map(|d| *d as usize).eq([rows, cols]);
        if part.dtype != dtype || !shape_fits || part.bits != bits || bytes.is_some_and(|n| n != part.size) {
            let bytes = bytes.map_or(String::new(), |n| format!(" in {n} bytes"));
            let found =
                format!("{} {:?}, bits {:?}, {} bytes", part.dtype.name(), part.shape, part.bits, part.size);
            return Err(wrong(role, &format!("expected {what}{bytes}, found {found}")));
        }
        if !part.offset.is_multiple_of(align) {
            return Err(fault(
                LAYOUT,
                &format!("{at}.{role}.offset"),
                format!("{} is not a multiple of {align}", part.offset),
            ));
        }
        // The range lies within the stride, as was checked when parsed; v1 wants it below 2^32 too.
        let start = u32::try_from(part.offset).ok();
        let end = u32::try_from(part.offset + part.size).ok();
        match (start, end) {
            (Some(start), Some(end)) => Ok((start as usize..end as usize, part.panel_stride)),
            _ => Err(wrong(role, "lies beyond 2^32")),
        }
    };
    if !cols.is_multiple_of(GROUP) {
        return Err(wrong(role, &format!("{cols} columns are not whole groups of {GROUP}")));
    }
    if tiled {
        let (span, panel_stride) =
            need(role, SubDType::Tile16x64, cols, Some(bits), None, super::PART_ALIGN)?;
        let panel_stride = panel_stride.and_then(|n| usize::try_from(n).ok());
        let panel_stride = panel_stride.ok_or_else(|| wrong(role, "panelStride is missing or too large"))?;
        let data = PartData::Tiles { offset: span.start, panel_stride };
        return Ok(Part { rows, cols, bits, span, data });
    }
    let bytes = affine_bytes(rows, cols, bits).ok_or_else(|| wrong(role, "the matrix is too large"))?;
    let (weights, _) = need(role, SubDType::U32, cols, Some(bits), Some(bytes.0), 4)?;
    let (scales, _) = need(&format!("{role}_scales"), SubDType::Bf16, groups, None, Some(bytes.1), 2)?;
    let (biases, _) = need(&format!("{role}_biases"), SubDType::Bf16, groups, None, Some(bytes.1), 2)?;
    let span = weights.start.min(scales.start).min(biases.start)..weights.end.max(scales.end).max(biases.end);
    Ok(Part { rows, cols, bits, span, data: PartData::Rows { weights, scales, biases } })
}

/// Bytes of the packed weights and of the scales (the biases have as many) of an affine matrix.
pub(super) fn affine_bytes(rows: usize, cols: usize, bits: u32) -> Option<(u64, u64)> {
    let (rows, cols) = (rows as u64, cols as u64);
    let weights = rows.checked_mul(cols)?.checked_mul(u64::from(bits))?;
    let scales = rows.checked_mul(cols / GROUP as u64)?.checked_mul(2)?;
    weights.is_multiple_of(8).then_some((weights / 8, scales))
}
