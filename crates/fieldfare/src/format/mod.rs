//! The model directory on disk: manifest, layout, resident index, tile order, receipt, verification.
//!
//! Two kinds of directory share the same file names: `.gturbo` v1 in source order, and the tiled one, where
//! 4-bit matrices lie in the order in which the kernels stream them. `docs/format.md` describes both and how
//! they are told apart. Bytes read here are hostile until checked: sizes are capped before reading, arithmetic
//! on them is checked, and every refusal names the file and the field.
//!
//! [`plan`] decides where bytes go (for writers), [`ModelDir`] opens and checks a finished directory, [`verify`]
//! hashes it, [`inspect`] describes it. Nothing here computes with weights.

pub(crate) mod files;
pub mod hash;
mod index;
mod inspect;
pub mod json;
mod layout;
mod manifest;
mod open;
mod parts;
pub mod paths;
pub mod plan;
mod receipt;
mod resident;
pub mod safetensors;
pub mod schema;
mod verify;

pub use files::FileEntry;
pub use index::{DType, IndexEntry, ResidentIndex};
pub use inspect::{Inspection, Memory, Sizes, Source, TensorCounts, inspect, kv_bytes, memory, parameters};
pub use layout::{ExpertEntry, ExpertLayout, LayerLayout, SubDType, SubTensor};
pub use manifest::{Arch, Manifest, Quant, QuantSlot};
pub use open::{Integrity, ModelDir, ReceiptState};
pub use parts::{ExpertParts, Part, PartData};
pub use receipt::Receipt;
pub use resident::{Resident, Tensor, TensorData};
pub use verify::{ReceiptOutcome, VerifyOptions, VerifyProgress, VerifyReport, verify};

use crate::{Error, Result};

/// The manifest's file name; its presence means "complete".
pub const MANIFEST: &str = "manifest.json";
/// The receipt's file name.
pub const RECEIPT: &str = "verified-install.json";
/// The resident tensors' file name.
pub const WEIGHTS: &str = "model_weights.bin";
/// Path of the expert layout below the root.
pub const LAYOUT: &str = "packed_experts/layout.json";
/// Folder of the layer files below the root.
pub const EXPERTS_DIR: &str = "packed_experts";
/// Folder of the sidecars (`config.json`, `tokenizer.json` …) below the root.
pub const SIDECAR_DIR: &str = "tokenizer";

/// The format's page: expert blobs and the index region are multiples of it. Not the host's page size.
pub const PAGE: u64 = 16_384;
/// Alignment of every resident tensor in a tiled directory: what direct I/O and a 4 KiB page need.
pub const TENSOR_ALIGN: u64 = 4_096;
/// Alignment of every part of an expert blob in a tiled directory: a cache line.
pub const PART_ALIGN: u64 = 64;

/// Largest `manifest.json` that is read, in bytes.
pub const CAP_MANIFEST: u64 = 4 << 20;
/// Largest `verified-install.json` that is read, in bytes.
pub const CAP_RECEIPT: u64 = 4 << 20;
/// Largest `packed_experts/layout.json` that is read, in bytes.
pub const CAP_LAYOUT: u64 = 16 << 20;
/// Largest index region of `model_weights.bin` that is read, in bytes.
pub const CAP_INDEX: u64 = 16 << 20;

/// `sourceSnapshotHash` of the pinned Gemma 4 26B-A4B checkpoint. Behaviour tied to that source (the bfloat16
/// rounding of its embedding scale) is keyed on it.
pub const PINNED_SNAPSHOT: &str = "sha256:bf198c9f5ea6462addca1966e5dd669c407537a876e82cf06db9084c5c850b13";

/// Order of the bytes of quantized matrices in a model directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// `.gturbo` v1, as upstream reads and writes it: source order, no alignment.
    #[default]
    V1,
    /// 4-bit matrices as 16 x 64 tiles, resident tensors on 4 KiB boundaries.
    Tiled,
}

impl Layout {
    /// The manifest's `magic`.
    pub fn magic(self) -> &'static str {
        match self {
            Self::V1 => "GTURBO",
            Self::Tiled => "FIELDFARE",
        }
    }
}

impl std::fmt::Display for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::V1 => "v1",
            Self::Tiled => "tiled",
        })
    }
}

impl std::str::FromStr for Layout {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "v1" => Ok(Self::V1),
            "tiled" | TILE_ORDER => Ok(Self::Tiled),
            _ => Err(Error::bad("layout", format!("expected v1 or tiled, found {text:?}"))),
        }
    }
}

impl serde::Serialize for Layout {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Value of the manifest's `tensorOrder` in a tiled directory.
pub const TILE_ORDER: &str = "tile16x64";

/// `value` rounded up to a multiple of `align`, unless that overflows.
pub(crate) fn align_up(value: u64, align: u64) -> Option<u64> {
    value.checked_next_multiple_of(align)
}

/// A fault in one field of one file.
pub(crate) fn fault(file: &str, field: &str, reason: impl Into<String>) -> Error {
    Error::damaged(format!("{file}: {field}"), reason)
}
