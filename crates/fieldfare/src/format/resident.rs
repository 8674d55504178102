//! The resident tensors: `model_weights.bin`, mapped read-only, and its tensors by name.
//!
//! Where memory allows the whole file can be copied into anonymous memory, in huge pages if the system has them: nothing
//! is faulted in page by page then, and nothing dropped. Who asks for bytes gets those of the copy from then on; they
//! are the same.

use super::{DType, IndexEntry, ResidentIndex, WEIGHTS, fault};
use crate::sys::{file, file::ReadFile, map::Map, pages::Pages};
use crate::{Error, Result};
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::sync::OnceLock;

/// Bytes of one read when the file is copied: many blocks and whole huge pages.
const COPY_STEP: usize = 8 << 20;

/// The mapped weights file.
#[derive(Debug)]
pub struct Resident {
    map: Map,
    copy: OnceLock<Pages>,
    index: ResidentIndex,
    by_name: HashMap<String, usize>,
}

/// One resident tensor.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// Full source name.
    pub name: &'a str,
    /// How it is stored.
    pub dtype: DType,
    /// Logical shape; unused dimensions are 0 and trailing.
    pub shape: [u32; 4],
    /// Its bytes.
    pub data: TensorData<'a>,
}

/// The bytes of a tensor. Only 2-byte alignment is certain in v1; in a tiled directory each tensor starts on a 4 KiB
/// boundary of the file.
#[derive(Clone, Copy, Debug)]
pub enum TensorData<'a> {
    /// Elements of the tensor's dtype.
    Plain(&'a [u8]),
    /// A quantized matrix in source order.
    Affine {
        /// Bits of a weight.
        bits: u32,
        /// Packed weights, row-major.
        weights: &'a [u8],
        /// bfloat16 scales, one for 64 columns of a row.
        scales: &'a [u8],
        /// bfloat16 biases, likewise.
        biases: &'a [u8],
    },
    /// A quantized matrix as 16 x 64 tiles.
    Tiled {
        /// Bits of a weight: 4.
        bits: u32,
        /// Panels, one after the other.
        data: &'a [u8],
    },
}

impl Resident {
    /// Maps a file whose index has been checked against its size.
    pub(super) fn new(file: &File, index: ResidentIndex) -> Result<Self> {
        let len = index
            .index_size
            .checked_add(index.resident_size)
            .ok_or_else(|| fault(WEIGHTS, "residentSize", "too large"))?;
        let map = Map::new(file, len).map_err(Error::io("map", WEIGHTS))?;
        let by_name = index.entries.iter().enumerate().map(|(i, e)| (e.name.clone(), i)).collect();
        Ok(Self { map, copy: OnceLock::new(), index, by_name })
    }

    /// The index of the file.
    pub fn index(&self) -> &ResidentIndex {
        &self.index
    }

    /// The whole file, index included: what the ranges of the index count from.
    pub fn bytes(&self) -> &[u8] {
        let map = self.map.bytes();
        self.copy.get().map_or(map, |copy| &copy.bytes()[..map.len()])
    }

    /// Copies the file into anonymous memory. `file` is the weights file again, with a descriptor of its own.
    pub(super) fn copy(&self, file: File) -> Result<()> {
        let len = self.map.bytes().len();
        if self.copy.get().is_some() || len == 0 {
            return Ok(());
        }
        let whole = len.checked_next_multiple_of(COPY_STEP).unwrap_or(usize::MAX);
        let mut pages = Pages::new(whole).map_err(Error::io("take memory for", WEIGHTS))?;
        if read_direct(&file, len, pages.bytes_mut()).is_none() {
            file::read_exact_at(&file, &mut pages.bytes_mut()[..len], 0)
                .map_err(Error::io("read", WEIGHTS))?;
        }
        // Two at once would both be right.
        let _ = self.copy.set(pages);
        Ok(())
    }

    /// The mapping, whether or not there is a copy.
    pub(crate) fn map(&self) -> &Map {
        &self.map
    }

    /// Bytes that were copied; 0 while the file is mapped.
    pub fn copied_bytes(&self) -> usize {
        self.copy.get().map_or(0, |_| self.map.bytes().len())
    }

    /// Bytes of the copy in huge pages; `None` without one, or where the system does not say.
    pub fn huge_bytes(&self) -> Option<u64> {
        Some(self.copy.get()?.huge_bytes()?.min(self.map.bytes().len() as u64))
    }

    /// A tensor by its full name.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.view(self.index.entries.get(*self.by_name.get(name)?)?)
    }

    fn view<'a>(&'a self, entry: &'a IndexEntry) -> Option<Tensor<'a>> {
        let bytes = |range: &Range<u64>| -> Option<&'a [u8]> {
            self.bytes().get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
        };
        let data = bytes(&entry.data)?;
        let affine = entry.dtype == DType::U32 && !entry.scales.is_empty() && !entry.biases.is_empty();
        let data = match entry.dtype {
            DType::Tile16x64 => TensorData::Tiled { bits: 4, data },
            DType::U32 if affine => TensorData::Affine {
                bits: width(entry)?,
                weights: data,
                scales: bytes(&entry.scales)?,
                biases: bytes(&entry.biases)?,
            },
            _ => TensorData::Plain(data),
        };
        Some(Tensor { name: &entry.name, dtype: entry.dtype, shape: entry.shape, data })
    }
}

/// Reads the first `len` bytes past the page cache, which has no need of them; `into` is longer by less than a step. `None`
/// if that cannot be done to the end; then the file is read as usual, and what is wrong with it found again.
fn read_direct(file: &File, len: usize, into: &mut [u8]) -> Option<()> {
    let file = ReadFile::new(file.try_clone().ok()?);
    file.set_direct(true).ok()?;
    let block = file.alignment();
    let mut done = 0;
    while done < len {
        let end = into.len().min(done + COPY_STEP);
        let read = match file.read_at(&mut into[done..end], done as u64) {
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => 0,
        };
        let reached = done + read;
        let whole = if reached >= len { reached } else { reached / block * block };
        if whole <= done {
            // The descriptor is shared with the caller's.
            let _ = file.set_direct(false);
            return None;
        }
        done = whole;
    }
    Some(())
}

/// Bits of a packed weight: the index does not store them, size and shape imply them. `None` where they disagree, which the
/// schema check excludes for every tensor of the model.
fn width(entry: &IndexEntry) -> Option<u32> {
    let elements = entry.elements()?;
    let bits = (entry.data.end - entry.data.start).checked_mul(8)?;
    (bits % elements == 0)
        .then(|| u32::try_from(bits / elements).ok())
        .flatten()
        .filter(|bits| (1..=32).contains(bits))
}
