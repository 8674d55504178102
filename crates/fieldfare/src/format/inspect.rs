//! A description of a model directory for people and programs: what it is, where it came from, how large it is, and what
//! memory running it takes.

use super::open::ReceiptState;
use super::{Arch, DType, Integrity, Layout, ModelDir, PINNED_SNAPSHOT, Quant, SIDECAR_DIR, hash};
use crate::Result;
use std::path::{Path, PathBuf};

/// Context for which [`inspect`] estimates memory, in tokens.
const DEFAULT_CONTEXT: usize = 4_096;
/// Expert slots of a layer for which [`inspect`] estimates memory.
const DEFAULT_SLOTS: usize = 16;
/// Bytes of a cached K or V element: float16.
const KV_BYTES: u64 = 2;

/// What [`inspect`] finds.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Inspection {
    /// The directory; in JSON, what of its name is no Unicode is replaced.
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
    /// Source of the model.
    pub model_id: String,
    /// Identity: SHA-256 of the manifest.
    pub manifest_sha256: String,
    /// Format version, `major.minor`.
    pub version: String,
    /// Order of its tensors.
    pub layout: Layout,
    /// Shape of the model.
    pub architecture: Arch,
    /// Numbers of the layers that attend to everything.
    pub full_attention_layers: Vec<usize>,
    /// Quantization by family of tensors.
    pub quantization: Quant,
    /// Where it came from.
    pub source: Source,
    /// The receipt: `valid`, `absent`, or why it does not count.
    pub receipt: String,
    /// Sidecars that are part of the model.
    pub sidecars: Vec<String>,
    /// True if text can be turned into tokens.
    pub has_tokenizer: bool,
    /// Bytes on disk.
    pub sizes: Sizes,
    /// Resident tensors.
    pub tensors: TensorCounts,
    /// Memory at 4,096 tokens of context and 16 slots in each layer.
    pub memory: Memory,
}

/// Where a model came from.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Source {
    /// Hash of the source's index, where known.
    pub snapshot_hash: Option<String>,
    /// True for the pinned Gemma 4 26B-A4B checkpoint.
    pub pinned: bool,
    /// Repository, from a valid receipt.
    pub repo_id: Option<String>,
    /// Commit (or snapshot hash), from a valid receipt.
    pub revision: Option<String>,
}

/// Bytes on disk.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Sizes {
    /// `model_weights.bin`.
    pub resident_bytes: u64,
    /// All layer files.
    pub expert_bytes: u64,
    /// One expert, with its padding.
    pub expert_stride_bytes: u64,
    /// One expert, without.
    pub expert_used_bytes: u64,
    /// Sidecars.
    pub sidecar_bytes: u64,
    /// All listed files and the manifest.
    pub total_bytes: u64,
}

/// Resident tensors by how they are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TensorCounts {
    /// All.
    pub total: usize,
    /// As 16 x 64 tiles.
    pub tiled: usize,
    /// Quantized, in source order.
    pub source_order: usize,
    /// Plain.
    pub plain: usize,
}

/// What running takes, beside scratch and tables (tens of MB for the large model).
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Memory {
    /// Tokens of context.
    pub context_tokens: usize,
    /// Slots of each layer.
    pub slots_per_layer: usize,
    /// Resident weights: mapped, clean pages that the system may drop and read again.
    pub core_bytes: u64,
    /// The KV cache when the context is full, in float16. Sliding layers stop growing at their window.
    pub kv_bytes: u64,
    /// Expert slots of all layers.
    pub slots_bytes: u64,
    /// The sum.
    pub total_bytes: u64,
}

/// Describes the directory at `path`; it is checked as for running, not hashed.
pub fn inspect(path: impl AsRef<Path>) -> Result<Inspection> {
    let dir = ModelDir::open(path, Integrity::Receipt)?;
    let manifest = dir.manifest();
    let arch = &manifest.arch;
    let listed = |prefix: &str| -> u64 {
        let inside = manifest.files.iter().filter(|(path, _)| path.starts_with(prefix));
        inside.fold(0, |sum, (_, entry)| sum.saturating_add(entry.size))
    };
    let prefix = format!("{SIDECAR_DIR}/");
    let expert_bytes = dir.experts().file_bytes()?.saturating_mul(dir.experts().layers.len() as u64);
    let (repo_id, revision, receipt) = match dir.receipt() {
        ReceiptState::Valid(receipt) => {
            (receipt.source_repo_id.clone(), receipt.source_revision.clone(), "valid".to_owned())
        }
        ReceiptState::Invalid(reason) => (None, None, reason.clone()),
        ReceiptState::Absent | ReceiptState::NotRead => (None, None, "absent".to_owned()),
    };
    Ok(Inspection {
        path: dir.path().to_path_buf(),
        model_id: manifest.model_id.clone(),
        manifest_sha256: hash::hex(&dir.manifest_sha256()),
        version: format!("1.{}", manifest.version_minor),
        layout: dir.layout(),
        architecture: arch.clone(),
        full_attention_layers: (0..arch.num_hidden_layers)
            .filter(|layer| arch.full_attention[*layer])
            .collect(),
        quantization: dir.quant().clone(),
        source: Source {
            snapshot_hash: manifest.source_snapshot_hash.clone(),
            pinned: manifest.source_snapshot_hash.as_deref() == Some(PINNED_SNAPSHOT),
            repo_id,
            revision,
        },
        receipt,
        sidecars: manifest.files.keys().filter_map(|p| p.strip_prefix(&prefix)).map(str::to_owned).collect(),
        has_tokenizer: dir.sidecar_sha256("tokenizer.json").is_some(),
        sizes: Sizes {
            resident_bytes: dir.index().index_size.saturating_add(dir.index().resident_size),
            expert_bytes,
            expert_stride_bytes: dir.experts().expert_stride,
            expert_used_bytes: dir.expert_parts(0)?.used() as u64,
            sidecar_bytes: listed(&prefix),
            total_bytes: listed("").saturating_add(dir.manifest_bytes().len() as u64),
        },
        tensors: count_tensors(&dir),
        memory: memory(&dir, DEFAULT_CONTEXT, DEFAULT_SLOTS),
    })
}

fn lossy<S: serde::Serializer>(path: &Path, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

fn count_tensors(dir: &ModelDir) -> TensorCounts {
    let mut counts = TensorCounts::default();
    for entry in &dir.index().entries {
        counts.total += 1;
        match entry.dtype {
            DType::Tile16x64 => counts.tiled += 1,
            DType::U32 if !entry.scales.is_empty() => counts.source_order += 1,
            _ => counts.plain += 1,
        }
    }
    counts
}

/// How many numbers the model was trained to have: those of all its tensors and experts. Scales and biases of quantization
/// are none of them.
///
/// # Errors
/// The layout of the experts makes no sense.
pub fn parameters(dir: &ModelDir) -> Result<u64> {
    let product = |shape: &[u32; 4]| {
        let sides = shape.iter().filter(|&&side| side > 0);
        sides.fold(1_u64, |product, &side| product.saturating_mul(u64::from(side)))
    };
    let resident =
        dir.index().entries.iter().fold(0_u64, |sum, entry| sum.saturating_add(product(&entry.shape)));
    let mut experts = 0_u64;
    for layer in 0..dir.experts().layers.len() {
        let parts = dir.expert_parts(layer)?;
        for part in [&parts.gate, &parts.up, &parts.down] {
            let one = (part.rows as u64).saturating_mul(part.cols as u64);
            experts = experts.saturating_add(one.saturating_mul(parts.slot_of.len() as u64));
        }
    }
    Ok(resident.saturating_add(experts))
}

/// What running takes with this context and this many slots in each layer (never more than there are experts).
pub fn memory(dir: &ModelDir, context: usize, slots_per_layer: usize) -> Memory {
    let arch = &dir.manifest().arch;
    let slots_per_layer = slots_per_layer.min(arch.num_experts);
    let core_bytes = dir.index().index_size.saturating_add(dir.index().resident_size);
    let kv_bytes = kv_bytes(arch, context);
    let slots_bytes = dir
        .experts()
        .expert_stride
        .saturating_mul(slots_per_layer as u64)
        .saturating_mul(arch.num_hidden_layers as u64);
    let total_bytes = core_bytes.saturating_add(kv_bytes).saturating_add(slots_bytes);
    Memory { context_tokens: context, slots_per_layer, core_bytes, kv_bytes, slots_bytes, total_bytes }
}

/// Bytes of the float16 KV cache of a full context: K and V of every layer, a sliding one holding its window only.
pub fn kv_bytes(arch: &Arch, context: usize) -> u64 {
    let layer = |full: bool| {
        let (heads, width, rows) = if full {
            (arch.num_global_key_value_heads, arch.global_head_dim, context)
        } else {
            (arch.num_key_value_heads, arch.head_dim, context.min(arch.sliding_window))
        };
        [heads, width, rows].iter().fold(2 * KV_BYTES, |product, n| product.saturating_mul(*n as u64))
    };
    arch.full_attention.iter().fold(0u64, |sum, full| sum.saturating_add(layer(*full)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kv_of_the_large_model() {
        let (arch, _) = crate::format::plan::tests::production();
        // 25 sliding layers of 1,024 x 8 x 256 and 5 full ones of 4,096 x 2 x 512, K and V, two bytes each.
        assert_eq!(kv_bytes(&arch, 4_096), 25 * 1_024 * 8 * 256 * 4 + 5 * 4_096 * 2 * 512 * 4);
        assert_eq!(kv_bytes(&arch, 0), 0);
        assert!(kv_bytes(&arch, 512) < kv_bytes(&arch, 1_024));
    }
}
