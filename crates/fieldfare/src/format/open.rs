//! Opening a finished model directory: every check that needs no payload, in the order of 1.10 of the specification.

use super::{
    CAP_INDEX, CAP_LAYOUT, CAP_MANIFEST, CAP_RECEIPT, EXPERTS_DIR, ExpertLayout, ExpertParts, LAYOUT, Layout,
    MANIFEST, Manifest, Quant, RECEIPT, Receipt, Resident, ResidentIndex, SIDECAR_DIR, WEIGHTS, fault, hash,
    paths, schema,
};
use crate::sys::file::{self, Dir};
use crate::{Error, Result};
use std::fs::File;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// How much is checked when a directory is opened. Sizes of all listed files, the hashes of the manifest and of
/// `layout.json`, and all structure are checked always; 14 GB of payload are not read again at each start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Integrity {
    /// Also hash every listed file. Minutes for a large model.
    Full,
    /// Also look at the receipt and report what it says ([`ModelDir::receipt`]). For running.
    #[default]
    Receipt,
    /// Nothing more.
    Structure,
}

/// What the receipt says of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiptState {
    /// It was not looked at ([`Integrity::Structure`], [`Integrity::Full`]).
    NotRead,
    /// There is none.
    Absent,
    /// The files were hashed once and agreed with this manifest.
    Valid(Box<Receipt>),
    /// It speaks of something else, for the reason given.
    Invalid(String),
}

/// An open, checked model directory.
#[derive(Debug)]
pub struct ModelDir {
    path: PathBuf,
    root: Dir,
    manifest: Manifest,
    manifest_bytes: Vec<u8>,
    quant: Quant,
    experts: ExpertLayout,
    resident: Resident,
    receipt: ReceiptState,
}

impl ModelDir {
    /// Opens and checks the directory at `path`, which may be a symbolic link; nothing below it may.
    pub fn open(path: impl AsRef<Path>, integrity: Integrity) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        let root = open_root(&path)?;
        let manifest_bytes = read_manifest(&root, &path)?;
        let receipt_bytes = match integrity {
            Integrity::Receipt => Some(read_optional(&root, RECEIPT, CAP_RECEIPT)),
            Integrity::Full | Integrity::Structure => None,
        };
        let manifest = Manifest::parse(&manifest_bytes)?;
        let quant = manifest.check_runnable()?.clone();
        let receipt = match receipt_bytes {
            None => ReceiptState::NotRead,
            Some(bytes) => receipt_state(bytes, &manifest, &manifest_bytes, &path),
        };
        let weights = open_listed(&root, &manifest, WEIGHTS)?;
        let layout_bytes = read_listed(&root, &manifest, LAYOUT, CAP_LAYOUT)?;
        let experts = ExpertLayout::parse(&layout_bytes, manifest.layout)?;
        drop(layout_bytes);
        experts.check(&manifest)?;
        for path in manifest.files.keys() {
            let file = open_listed(&root, &manifest, path)?;
            if integrity == Integrity::Full && path != LAYOUT {
                check_hash(&file, &manifest, path, &mut |_| ControlFlow::Continue(()))?;
            }
        }
        let index = read_index(&weights, &manifest)?;
        schema::check_resident(&index, &manifest.arch, &quant, manifest.layout)?;
        for layer in 0..experts.layers.len() {
            experts.expert_parts(layer, &manifest.arch, quant.routed_expert.weight_bits, manifest.layout)?;
        }
        let resident = Resident::new(&weights, index)?;
        Ok(Self { path, root, manifest, manifest_bytes, quant, experts, resident, receipt })
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The exact bytes of the manifest.
    pub fn manifest_bytes(&self) -> &[u8] {
        &self.manifest_bytes
    }

    /// SHA-256 of the manifest's bytes: the identity of the model.
    pub fn manifest_sha256(&self) -> [u8; 32] {
        hash::sha256(&self.manifest_bytes)
    }

    /// The manifest's quantization, which an open directory always has.
    pub fn quant(&self) -> &Quant {
        &self.quant
    }

    /// The order of its tensors.
    pub fn layout(&self) -> Layout {
        self.manifest.layout
    }

    /// Where experts lie.
    pub fn experts(&self) -> &ExpertLayout {
        &self.experts
    }

    /// Where resident tensors lie.
    pub fn index(&self) -> &ResidentIndex {
        self.resident.index()
    }

    /// The resident tensors.
    pub fn resident(&self) -> &Resident {
        &self.resident
    }

    /// Copies the resident tensors into anonymous memory; see [`Resident`].
    pub fn copy_resident(&self) -> Result<()> {
        self.resident.copy(self.open_file(WEIGHTS)?)
    }

    /// What the receipt says.
    pub fn receipt(&self) -> &ReceiptState {
        &self.receipt
    }

    /// The root's descriptor, for reading files below it.
    pub fn root(&self) -> &Dir {
        &self.root
    }

    /// Opens a listed file, checking its size: `packed_experts/layer_00.bin`.
    pub fn open_file(&self, path: &str) -> Result<File> {
        open_listed(&self.root, &self.manifest, path)
    }

    /// Opens the file of a layer, checking its size.
    pub fn open_layer(&self, layer: usize) -> Result<File> {
        let entry = self.experts.layers.get(layer).ok_or_else(|| {
            Error::bad("layer", format!("{layer} is not one of the model's {}", self.experts.layers.len()))
        })?;
        self.open_file(&format!("{EXPERTS_DIR}/{}", entry.file))
    }

    /// Where gate, up and down lie in the blobs of a layer.
    pub fn expert_parts(&self, layer: usize) -> Result<ExpertParts> {
        let bits = self.quant.routed_expert.weight_bits;
        self.experts.expert_parts(layer, &self.manifest.arch, bits, self.manifest.layout)
    }

    /// Path below the root of a sidecar (`config.json`, `tokenizer.json` …) that the manifest lists.
    fn sidecar(&self, name: &str) -> Option<String> {
        let path = format!("{SIDECAR_DIR}/{name}");
        (paths::basename_problem(name).is_none() && self.manifest.files.contains_key(&path)).then_some(path)
    }

    /// Reads a listed sidecar of at most `cap` bytes and checks its hash. `None` if the manifest does not list it: a file that
    /// merely lies there is not part of the model.
    pub fn read_sidecar(&self, name: &str, cap: u64) -> Result<Option<Vec<u8>>> {
        self.sidecar(name).map(|path| read_listed(&self.root, &self.manifest, &path, cap)).transpose()
    }

    /// The path of a listed sidecar. Prefer [`ModelDir::read_sidecar`], which follows no link and checks the hash.
    pub fn sidecar_path(&self, name: &str) -> Option<PathBuf> {
        self.sidecar(name).map(|_| self.path.join(SIDECAR_DIR).join(name))
    }

    /// The SHA-256 that the manifest gives for a listed sidecar: a key for caches made from it.
    pub fn sidecar_sha256(&self, name: &str) -> Option<[u8; 32]> {
        Some(self.manifest.files.get(&self.sidecar(name)?)?.sha256)
    }
}

/// Opens the root of a model directory.
pub(super) fn open_root(path: &Path) -> Result<Dir> {
    Dir::open(path).map_err(|source| {
        let reason = match source.kind() {
            ErrorKind::NotFound => "there is no such directory",
            ErrorKind::NotADirectory => "it is not a directory",
            _ => return Error::Io { action: "open", path: path.to_path_buf(), source },
        };
        Error::NotInstalled { path: path.to_path_buf(), reason: reason.into() }
    })
}

fn read_manifest(root: &Dir, path: &Path) -> Result<Vec<u8>> {
    read_optional(root, MANIFEST, CAP_MANIFEST)?.ok_or_else(|| Error::NotInstalled {
        path: path.to_path_buf(),
        reason: "it has no manifest.json, so it is no model directory or an unfinished one".into(),
    })
}

/// A fault for an entry below the root that cannot be opened.
fn cannot_open(path: &str, source: std::io::Error) -> Error {
    match source.kind() {
        ErrorKind::NotFound => Error::damaged(path, "missing"),
        ErrorKind::NotADirectory => Error::damaged(path, "lies below something that is not a directory"),
        ErrorKind::InvalidData => Error::damaged(path, source.to_string()),
        _ => Error::Io { action: "open", path: path.into(), source },
    }
}

/// Reads a file below the root whose size is within `cap`; `None` if it does not exist.
pub(super) fn read_optional(root: &Dir, path: &str, cap: u64) -> Result<Option<Vec<u8>>> {
    match root.open_file(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(cannot_open(path, e)),
        Ok(file) => read_capped(&file, path, cap).map(Some),
    }
}

fn size_of(file: &File, path: &str) -> Result<u64> {
    Ok(file.metadata().map_err(Error::io("stat", path))?.len())
}

/// Reads a whole file after checking its size against `cap`.
fn read_capped(file: &File, path: &str, cap: u64) -> Result<Vec<u8>> {
    let size = size_of(file, path)?;
    let length = usize::try_from(size)
        .ok()
        .filter(|_| size <= cap)
        .ok_or_else(|| Error::damaged(path, format!("{size} bytes exceed the limit of {cap}")))?;
    let mut bytes = vec![0; length];
    file::read_exact_at(file, &mut bytes, 0).map_err(Error::io("read", path))?;
    Ok(bytes)
}

/// Opens a file that the manifest lists and compares its size.
pub(super) fn open_listed(root: &Dir, manifest: &Manifest, path: &str) -> Result<File> {
    let expected = manifest.file(path)?.size;
    let file = root.open_file(path).map_err(|e| cannot_open(path, e))?;
    let found = size_of(&file, path)?;
    if found == expected {
        Ok(file)
    } else {
        Err(Error::damaged(path, format!("expected {expected} bytes as in the manifest, found {found}")))
    }
}

/// Reads a listed file of at most `cap` bytes and compares size and hash.
fn read_listed(root: &Dir, manifest: &Manifest, path: &str, cap: u64) -> Result<Vec<u8>> {
    let bytes = read_capped(&open_listed(root, manifest, path)?, path, cap)?;
    compare_hash(path, manifest.file(path)?.sha256, hash::sha256(&bytes))?;
    Ok(bytes)
}

fn compare_hash(path: &str, expected: [u8; 32], found: [u8; 32]) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    let reason =
        format!("expected SHA-256 {} as in the manifest, found {}", hash::hex(&expected), hash::hex(&found));
    Err(Error::damaged(path, reason))
}

/// Hashes an open listed file and compares.
pub(super) fn check_hash(
    file: &File,
    manifest: &Manifest,
    path: &str,
    step: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<()> {
    let entry = manifest.file(path)?;
    compare_hash(path, entry.sha256, hash::sha256_file(file, entry.size, path, step)?)
}

fn read_index(weights: &File, manifest: &Manifest) -> Result<ResidentIndex> {
    let size = manifest.file(WEIGHTS)?.size; // just compared with the file's
    let mut header = [0; 24];
    if size < header.len() as u64 {
        return Err(fault(WEIGHTS, "header", format!("expected at least 24 bytes, found {size}")));
    }
    file::read_exact_at(weights, &mut header, 0).map_err(Error::io("read", WEIGHTS))?;
    let length = ResidentIndex::region_size(&header, size)?;
    debug_assert!(length as u64 <= CAP_INDEX);
    let mut region = vec![0; length];
    file::read_exact_at(weights, &mut region, 0).map_err(Error::io("read", WEIGHTS))?;
    ResidentIndex::parse(&region, size, manifest.layout)
}

/// The directory's path as a receipt names it.
pub(super) fn receipt_path(path: &Path) -> Result<String> {
    let absolute = file::lexical_absolute(path).map_err(Error::io("resolve", path))?;
    Ok(absolute.to_string_lossy().into_owned())
}

pub(super) fn receipt_state(
    bytes: Result<Option<Vec<u8>>>,
    manifest: &Manifest,
    manifest_bytes: &[u8],
    path: &Path,
) -> ReceiptState {
    // A receipt only ever adds trust, so whatever is wrong with it leaves the directory as good as one without.
    let read = || -> Result<ReceiptState> {
        let Some(bytes) = bytes? else { return Ok(ReceiptState::Absent) };
        let receipt = Receipt::parse(&bytes)?;
        receipt.check(manifest, manifest_bytes, &receipt_path(path)?)?;
        Ok(ReceiptState::Valid(Box::new(receipt)))
    };
    read().unwrap_or_else(|e| ReceiptState::Invalid(e.to_string()))
}

#[cfg(test)]
pub(super) mod tests;
