//! The resident index: the head of `model_weights.bin` that says which tensor lies where.
//!
//! ```text
//! | header 24 | entries 72*n | names | zero padding to a page | tensor payloads |
//! ```
//!
//! Offsets are absolute and little-endian. Format v1 has dtypes 0 to 3; tiled directories add 4, a 4-bit matrix as
//! 16 x 64 tiles whose scales and biases lie inside the tiles.

use super::files::shorten;
use super::{CAP_INDEX, Layout, PAGE, TENSOR_ALIGN, WEIGHTS, align_up, fault};
use crate::{Error, Result};
use fieldfare_kernels::tile;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

const HEADER: usize = 24;
const ENTRY: usize = 72;

/// How a tensor is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub enum DType {
    /// Packed quantized weights in source order, with scales and biases.
    U32,
    /// bfloat16.
    Bf16,
    /// float16.
    F16,
    /// float32.
    F32,
    /// 4-bit weights, scales and biases as 16 x 64 tiles.
    Tile16x64,
}

impl DType {
    fn from_byte(byte: u8, layout: Layout) -> Option<Self> {
        Some(match byte {
            0 => Self::U32,
            1 => Self::Bf16,
            2 => Self::F16,
            3 => Self::F32,
            4 if layout == Layout::Tiled => Self::Tile16x64,
            _ => return None,
        })
    }

    fn to_byte(self) -> u8 {
        match self {
            Self::U32 => 0,
            Self::Bf16 => 1,
            Self::F16 => 2,
            Self::F32 => 3,
            Self::Tile16x64 => 4,
        }
    }
}

/// One resident tensor. Ranges are absolute file offsets; an absent one is `0..0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Full source name.
    pub name: String,
    /// How it is stored.
    pub dtype: DType,
    /// Logical (dequantized) shape, row-major; unused dimensions are 0 and trailing.
    pub shape: [u32; 4],
    /// Weights, or everything of a plain or tiled tensor.
    pub data: Range<u64>,
    /// Scales of a source-order quantized tensor.
    pub scales: Range<u64>,
    /// Biases of a source-order quantized tensor.
    pub biases: Range<u64>,
}

impl IndexEntry {
    /// Number of elements, unless that overflows.
    pub fn elements(&self) -> Option<u64> {
        self.shape.iter().take_while(|d| **d > 0).try_fold(1u64, |n, d| n.checked_mul(u64::from(*d)))
    }
}

/// Header and entries of `model_weights.bin`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResidentIndex {
    /// Tensors in file order.
    pub entries: Vec<IndexEntry>,
    /// Bytes of the index region: where payloads may start.
    pub index_size: u64,
    /// Bytes of the payload region.
    pub resident_size: u64,
}

/// The bytes of an entry that were read as a little-endian number.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut out = [0; 8];
    out.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(out)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut out = [0; 4];
    out.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(out)
}

impl ResidentIndex {
    /// Size of the index region from the first 24 bytes of a file of `file_len` bytes: how much to read for
    /// [`ResidentIndex::parse`]. At most 16 MiB.
    pub fn region_size(header: &[u8; HEADER], file_len: u64) -> Result<usize> {
        let size = u64_at(header, 0);
        if size < HEADER as u64 || size > CAP_INDEX || !size.is_multiple_of(PAGE) || size > file_len {
            let reason = format!(
                "expected a multiple of {PAGE}, at most {CAP_INDEX} and the file's {file_len} bytes, found {size}"
            );
            return Err(fault(WEIGHTS, "indexSize", reason));
        }
        // The cap fits every usize.
        usize::try_from(size).map_err(|_| fault(WEIGHTS, "indexSize", "too large for this machine"))
    }

    /// Parses the index region (`indexSize` bytes) of a file of `file_len` bytes, applying every rule of 1.5 of the
    /// specification, and in a tiled directory those of the tile dtype and of alignment.
    pub fn parse(region: &[u8], file_len: u64, layout: Layout) -> Result<Self> {
        let header = region
            .first_chunk::<HEADER>()
            .ok_or_else(|| fault(WEIGHTS, "header", format!("expected 24 bytes, found {}", region.len())))?;
        let index_size = Self::region_size(header, file_len)?;
        if region.len() != index_size {
            return Err(fault(
                WEIGHTS,
                "indexSize",
                format!("expected {}, found {index_size}", region.len()),
            ));
        }
        let (resident_size, count) = (u64_at(header, 8), u64_at(header, 16));
        if (index_size as u64).checked_add(resident_size) != Some(file_len) {
            let reason = format!(
                "indexSize {index_size} and residentSize {resident_size} do not make the file's {file_len} bytes"
            );
            return Err(fault(WEIGHTS, "residentSize", reason));
        }
        if count > ((index_size - HEADER) / ENTRY) as u64 {
            return Err(fault(
                WEIGHTS,
                "entryCount",
                format!("{count} entries do not fit {index_size} bytes"),
            ));
        }
        let names_start = HEADER + ENTRY * usize::try_from(count).unwrap_or(0); // fits, as just checked
        let bounds = Bounds { names_start, index_size, end: file_len, layout };
        let mut names = HashSet::new();
        let mut entries = Vec::new();
        // Names lie one behind another. Ones that share their bytes could make gigabytes of a region of 16 MiB.
        let mut name_bytes = index_size - names_start;
        for (i, raw) in region[HEADER..names_start].chunks_exact(ENTRY).enumerate() {
            let entry = bounds.entry(region, raw, i)?;
            name_bytes = name_bytes.checked_sub(entry.name.len()).ok_or_else(|| {
                fault(WEIGHTS, &format!("entries[{i}].name"), "the names are longer than the space for them")
            })?;
            if !names.insert(entry.name.clone()) {
                return Err(fault(
                    WEIGHTS,
                    &format!("entries[{i}].name"),
                    format!("{:?} appears twice", shorten(&entry.name)),
                ));
            }
            entries.push(entry);
        }
        check_overlaps(&entries)?;
        Ok(Self { entries, index_size: index_size as u64, resident_size })
    }

    /// The bytes of the index region.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let problem = |what: String| Error::Unsupported(format!("{WEIGHTS}: {what}"));
        let size = region_bytes(self.entries.iter().map(|e| e.name.as_str()))
            .filter(|size| *size == self.index_size)
            .ok_or_else(|| {
                problem(format!("an index of {} bytes for {} entries", self.index_size, self.entries.len()))
            })?;
        let size = usize::try_from(size).map_err(|_| problem("the index is too large".into()))?;
        let mut out = Vec::with_capacity(size);
        for word in [self.index_size, self.resident_size, self.entries.len() as u64] {
            out.extend(word.to_le_bytes());
        }
        let mut name_at = HEADER + ENTRY * self.entries.len();
        for entry in &self.entries {
            let length = u16::try_from(entry.name.len())
                .ok()
                .filter(|n| *n > 0)
                .ok_or_else(|| problem(format!("a tensor name of {} bytes", entry.name.len())))?;
            let offset = u32::try_from(name_at).map_err(|_| problem("the index is too large".into()))?;
            out.extend(offset.to_le_bytes());
            out.extend(length.to_le_bytes());
            out.extend([entry.dtype.to_byte(), 0]);
            out.extend(entry.data.start.to_le_bytes());
            out.extend((entry.data.end - entry.data.start).to_le_bytes());
            entry.shape.iter().for_each(|d| out.extend(d.to_le_bytes()));
            for range in [&entry.scales, &entry.biases] {
                out.extend(range.start.to_le_bytes());
                out.extend((range.end - range.start).to_le_bytes());
            }
            name_at += entry.name.len();
        }
        self.entries.iter().for_each(|e| out.extend(e.name.as_bytes()));
        out.resize(size, 0);
        Ok(out)
    }

    /// Entries by name.
    pub fn by_name(&self) -> HashMap<&str, &IndexEntry> {
        self.entries.iter().map(|e| (e.name.as_str(), e)).collect()
    }
}

/// Bytes of the index region that holds these names, if within the reader's cap.
pub(super) fn region_bytes<'a>(names: impl Iterator<Item = &'a str>) -> Option<u64> {
    let raw = names.fold(HEADER as u64, |sum, name| sum.saturating_add((ENTRY + name.len()) as u64));
    align_up(raw, PAGE).filter(|size| *size <= CAP_INDEX)
}

/// Bytes of a tiled matrix, if it divides into tiles.
pub(super) fn tiled_bytes(rows: u32, cols: u32) -> Option<u64> {
    let tileable = tile::is_tileable(rows as usize, cols as usize, 4);
    let tiles = u64::from(rows) / tile::TILE_ROWS as u64 * (u64::from(cols) / tile::TILE_COLS as u64);
    if tileable { tiles.checked_mul(tile::TILE_BYTES as u64) } else { None }
}

struct Bounds {
    names_start: usize,
    index_size: usize,
    end: u64,
    layout: Layout,
}

impl Bounds {
    fn entry(&self, region: &[u8], raw: &[u8], i: usize) -> Result<IndexEntry> {
        let wrong = |field: &str, reason: String| fault(WEIGHTS, &format!("entries[{i}].{field}"), reason);
        if raw[7] != 0 {
            return Err(wrong("reserved", format!("expected 0, found {}", raw[7])));
        }
        let (start, length) = (u32_at(raw, 0) as usize, usize::from(u16::from_le_bytes([raw[4], raw[5]])));
        let name = Some(start)
            .filter(|start| *start >= self.names_start && length > 0)
            .and_then(|start| region.get(start..start.checked_add(length)?))
            .ok_or_else(|| {
                let found = format!("{length} bytes at {start}");
                wrong(
                    "name",
                    format!(
                        "expected a non-empty range in {}..{}, found {found}",
                        self.names_start, self.index_size
                    ),
                )
            })?;
        let name = std::str::from_utf8(name).map_err(|_| wrong("name", "not UTF-8".into()))?.to_owned();
        let shown = shorten(&name);
        let dtype = DType::from_byte(raw[6], self.layout).ok_or_else(|| {
            let known = if self.layout == Layout::V1 { "0..3" } else { "0..4" };
            wrong("dtype", format!("expected {known} in layout {}, found {} ({shown})", self.layout, raw[6]))
        })?;
        let shape = [24, 28, 32, 36].map(|at| u32_at(raw, at));
        if shape[0] == 0 || shape.windows(2).any(|pair| pair[0] == 0 && pair[1] != 0) {
            return Err(wrong("shape", format!("{shape:?}: only trailing dimensions may be 0 ({shown})")));
        }
        let range = |at: usize, field: &str, required: bool| -> Result<Range<u64>> {
            let (offset, size) = (u64_at(raw, at), u64_at(raw, at + 8));
            if size == 0 {
                let absent = !required && offset == 0;
                let reason = || format!("an absent range must be 0, 0, found offset {offset} ({shown})");
                return if absent {
                    Ok(0..0)
                } else {
                    Err(wrong(field, if required { format!("empty ({shown})") } else { reason() }))
                };
            }
            match offset.checked_add(size) {
                Some(end) if offset >= self.index_size as u64 && end <= self.end => Ok(offset..end),
                _ => {
                    let allowed = format!("{}..{}", self.index_size, self.end);
                    Err(wrong(field, format!("{size} bytes at {offset} lie outside {allowed} ({shown})")))
                }
            }
        };
        let entry = IndexEntry {
            data: range(8, "data", true)?,
            scales: range(40, "scales", false)?,
            biases: range(56, "biases", false)?,
            name,
            dtype,
            shape,
        };
        if self.layout == Layout::Tiled {
            check_tiled(&entry).map_err(|(field, reason)| wrong(field, format!("{reason} ({shown})")))?;
        }
        Ok(entry)
    }
}

/// The rules of tiled directories for one entry.
fn check_tiled(entry: &IndexEntry) -> Result<(), (&'static str, String)> {
    if !entry.data.start.is_multiple_of(TENSOR_ALIGN) {
        return Err(("data", format!("expected a multiple of {TENSOR_ALIGN}, found {}", entry.data.start)));
    }
    if entry.dtype != DType::Tile16x64 {
        return Ok(());
    }
    let [rows, cols, third, _] = entry.shape;
    let size = tiled_bytes(rows, cols)
        .filter(|_| third == 0)
        .ok_or(("shape", format!("{:?} does not divide into 16 x 64 tiles", entry.shape)))?;
    if entry.data.end - entry.data.start != size {
        return Err(("data", format!("expected {size} bytes, found {}", entry.data.end - entry.data.start)));
    }
    if entry.scales != (0..0) || entry.biases != (0..0) {
        return Err(("scales", "a tiled tensor has its scales and biases inside".into()));
    }
    Ok(())
}

fn check_overlaps(entries: &[IndexEntry]) -> Result<()> {
    let mut ranges: Vec<(&Range<u64>, &str)> = entries
        .iter()
        .flat_map(|e| [&e.data, &e.scales, &e.biases].map(|range| (range, e.name.as_str())))
        .filter(|(range, _)| !range.is_empty())
        .collect();
    ranges.sort_by_key(|(range, _)| range.start);
    for pair in ranges.windows(2) {
        let [(a, first), (b, second)] = pair else { continue };
        if a.end > b.start {
            let (first, second) = (shorten(first), shorten(second));
            let reason =
                format!("{first} at {}..{} overlaps {second} at {}..{}", a.start, a.end, b.start, b.end);
            return Err(fault(WEIGHTS, "entries", reason));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
