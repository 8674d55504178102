//! The description of one expert blob: read, checked against itself and the stride, written.

use super::{SubDType, SubTensor};
use crate::Result;
use crate::format::files::shorten;
use crate::format::json::{self, Fields, Value};
use crate::format::{LAYOUT, Layout, PART_ALIGN, fault};
use fieldfare_kernels::tile;

/// Most roles that one tiled blob may describe; ours has at most nine.
const MAX_TILED_ROLES: usize = 64;

/// The `tensors` object of one blob.
pub(super) fn blob_text(parts: &[SubTensor], depth: usize) -> String {
    let members = parts.iter().map(|part| {
        let mut tensor = vec![
            ("dtype".to_owned(), part.dtype.name().into()),
            ("offset".to_owned(), part.offset.into()),
            ("shape".to_owned(), part.shape.iter().map(|d| (*d).into()).collect::<Vec<Value>>().into()),
            ("size".to_owned(), part.size.into()),
        ];
        if let Some(bits) = part.bits {
            tensor.push(("bits".to_owned(), bits.into()));
        }
        if let Some(stride) = part.panel_stride {
            tensor.push(("panelStride".to_owned(), stride.into()));
        }
        (part.role.clone(), Value::Object(tensor))
    });
    let mut text = String::new();
    json::canonical_into(&mut text, &Value::Object(members.collect()), depth);
    text
}

/// Reads the `tensors` object that stands at `at`; parts come out sorted by role.
pub(super) fn read_blob(value: &Value, layout: Layout, at: &str) -> Result<Vec<SubTensor>> {
    let outer = Fields::new(LAYOUT, at, value)?;
    let mut parts = Vec::new();
    for (role, value) in outer.members() {
        if role.is_empty() {
            return Err(fault(LAYOUT, at, "an empty role"));
        }
        let fields = outer.member(role, value)?;
        let dtype = fields.need("dtype", dtype_names(layout), |v| match v.as_str()? {
            "U32" => Some(SubDType::U32),
            "BF16" => Some(SubDType::Bf16),
            "TILE16X64" if layout == Layout::Tiled => Some(SubDType::Tile16x64),
            _ => None,
        })?;
        let shape = fields.need("shape", "a non-empty array of positive 32-bit dimensions", |v| {
            let dims = v
                .as_array()?
                .iter()
                .map(|d| d.as_int().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0));
            dims.collect::<Option<Vec<u32>>>().filter(|dims| !dims.is_empty())
        })?;
        let bits =
            |v: &Value| v.as_int().filter(|n| (1..=32).contains(n)).and_then(|n| u32::try_from(n).ok());
        let panel_stride = match dtype {
            SubDType::Tile16x64 => Some(fields.u64("panelStride")?),
            _ => None,
        };
        parts.push(SubTensor {
            role: role.clone(),
            dtype,
            shape,
            bits: fields.optional("bits", "an integer from 1 to 32", bits)?,
            offset: fields.u64("offset")?,
            size: fields.need("size", "an integer > 0", |v| v.as_u64().filter(|n| *n > 0))?,
            panel_stride,
        });
    }
    parts.sort_by(|a, b| a.role.cmp(&b.role));
    Ok(parts)
}

fn dtype_names(layout: Layout) -> &'static str {
    match layout {
        Layout::V1 => "\"U32\" or \"BF16\" (layout v1)",
        Layout::Tiled => "\"U32\", \"BF16\" or \"TILE16X64\"",
    }
}

/// Checks one blob description against the stride and itself.
pub(super) fn check_blob(parts: &[SubTensor], stride: u64, layout: Layout, at: &str) -> Result<()> {
    let wrong = |part: &SubTensor, field: &str, reason: String| {
        fault(LAYOUT, &format!("{at}.{}.{field}", shorten(&part.role)), reason)
    };
    if layout == Layout::Tiled && parts.len() > MAX_TILED_ROLES {
        return Err(fault(LAYOUT, at, format!("more than {MAX_TILED_ROLES} roles")));
    }
    for part in parts {
        if part.offset.checked_add(part.size).is_none_or(|end| end > stride) {
            let reason = format!("{} bytes at {} do not fit the blob of {stride}", part.size, part.offset);
            return Err(wrong(part, "offset", reason));
        }
        if layout == Layout::Tiled && !part.offset.is_multiple_of(PART_ALIGN) {
            return Err(wrong(
                part,
                "offset",
                format!("expected a multiple of {PART_ALIGN}, found {}", part.offset),
            ));
        }
        if part.dtype == SubDType::Tile16x64 {
            check_tiles(part).map_err(|(field, reason)| wrong(part, field, reason))?;
        }
    }
    let mut sorted: Vec<&SubTensor> = parts.iter().collect();
    sorted.sort_by_key(|part| part.offset);
    let overlap =
        |a: &SubTensor, b: &SubTensor| fault(LAYOUT, at, format!("{} and {} overlap", a.role, b.role));
    match layout {
        Layout::V1 => {
            for pair in sorted.windows(2) {
                if pair[0].offset + pair[0].size > pair[1].offset {
                    return Err(overlap(pair[0], pair[1]));
                }
            }
        }
        Layout::Tiled => {
            for (i, a) in sorted.iter().enumerate() {
                for b in &sorted[i + 1..] {
                    if a.offset + a.size > b.offset && !interleaved(a, b) {
                        return Err(overlap(a, b));
                    }
                }
            }
        }
    }
    Ok(())
}

/// The geometry of a tiled part: rows and columns, bytes of a panel, all checked by [`check_tiles`].
fn check_tiles(part: &SubTensor) -> Result<(), (&'static str, String)> {
    let &[rows, cols] = part.shape.as_slice() else {
        return Err(("shape", format!("expected rows and columns, found {} dimensions", part.shape.len())));
    };
    if !tile::is_tileable(rows as usize, cols as usize, part.bits.unwrap_or(0)) {
        return Err((
            "shape",
            format!("{rows} x {cols}, {:?} bit, does not divide into 4-bit 16 x 64 tiles", part.bits),
        ));
    }
    let panel = tile::panel_bytes(cols as usize) as u64;
    let stride = part.panel_stride.unwrap_or(0);
    if stride < panel || !stride.is_multiple_of(PART_ALIGN) {
        return Err((
            "panelStride",
            format!("expected a multiple of {PART_ALIGN} from {panel} on, found {stride}"),
        ));
    }
    let size = tiled_span(rows, panel, stride);
    if size != Some(part.size) {
        return Err(("size", format!("expected {size:?}, found {}", part.size)));
    }
    Ok(())
}

/// Bytes from the first to the last byte of a tiled part.
pub(in crate::format) fn tiled_span(rows: u32, panel: u64, stride: u64) -> Option<u64> {
    (u64::from(rows) / tile::TILE_ROWS as u64).checked_sub(1)?.checked_mul(stride)?.checked_add(panel)
}

/// True if the panels of two parts whose spans overlap lie between each other without touching: equal strides, and within one
/// stride the panel of `b` fits behind the panel of `a`.
fn interleaved(a: &SubTensor, b: &SubTensor) -> bool {
    let (Some(stride), Some(other)) = (a.panel_stride, b.panel_stride) else { return false };
    let panel =
        |part: &SubTensor| part.shape.get(1).map_or(0, |cols| tile::panel_bytes(*cols as usize) as u64);
    let gap = (b.offset - a.offset) % stride.max(1); // `a` comes first
    stride == other && gap >= panel(a) && gap.checked_add(panel(b)).is_some_and(|end| end <= stride)
}
