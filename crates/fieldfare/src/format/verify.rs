//! The full check of a model directory: structure first, then the hash of every listed file, then what lies around
//! undeclared; at the end a new receipt. The model is not loaded.

use super::open::{ModelDir, check_hash, open_listed, read_optional, receipt_path};
use super::{CAP_RECEIPT, Integrity, Layout, MANIFEST, RECEIPT, Receipt, SIDECAR_DIR};
use crate::sys::file::{self, Dir};
use crate::{Error, Result};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::SystemTime;

/// Most entries that are looked at in the search for strays.
const MAX_ENTRIES: usize = 100_000;
/// Depth to which that search goes, unless a listed path is deeper.
const MAX_DEPTH: usize = 16;

/// What [`verify`] does.
#[derive(Clone, Debug)]
pub struct VerifyOptions {
    /// Write a new receipt after success. A directory that cannot be written to still verifies.
    pub write_receipt: bool,
    /// Name of the program for the receipt.
    pub tool: String,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        Self { write_receipt: true, tool: concat!("fieldfare ", env!("CARGO_PKG_VERSION"), " verify").into() }
    }
}

/// What [`verify`] reports while it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyProgress<'a> {
    /// A file is about to be hashed.
    File {
        /// Path below the root.
        path: &'a str,
        /// Its bytes.
        size: u64,
    },
    /// Bytes hashed so far.
    Bytes {
        /// Of all listed files.
        done: u64,
        /// Bytes of all listed files.
        total: u64,
    },
    /// A file is not what the manifest says. The others are still looked at.
    Fault {
        /// File and reason.
        message: &'a str,
    },
}

/// What became of the receipt.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiptOutcome {
    /// A new one was written.
    Written,
    /// None was asked for.
    Skipped,
    /// It could not be written, for the reason given.
    Failed(String),
}

/// The result of a successful check.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct VerifyReport {
    /// Source of the model.
    pub model_id: String,
    /// Order of its tensors.
    pub layout: Layout,
    /// Files hashed.
    pub files: usize,
    /// Bytes hashed.
    pub bytes: u64,
    /// Entries that nothing declares, except what operating systems leave about. They are never read.
    pub strays: Vec<String>,
    /// Things that are legal but worth saying.
    pub warnings: Vec<String>,
    /// What became of the receipt.
    pub receipt: ReceiptOutcome,
}

/// Checks the directory at `path`. All listed files are hashed even when one is wrong; then the error is the first
/// fault and the number of others, each of which went to `progress`. `progress` may stop the work.
pub fn verify(
    path: impl AsRef<Path>,
    options: &VerifyOptions,
    progress: &mut dyn FnMut(VerifyProgress<'_>) -> ControlFlow<()>,
) -> Result<VerifyReport> {
    let path = path.as_ref();
    let dir = ModelDir::open(path, Integrity::Structure)?;
    let bytes = hash_all(&dir, progress)?;
    let manifest = dir.manifest();
    let strays = find_strays(&dir)?;
    let mut warnings = Vec::new();
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        if dir.sidecar_sha256(name).is_none() {
            warnings.push(format!("{SIDECAR_DIR}/{name} is not part of the model"));
        }
    }
    let receipt = match options.write_receipt.then(|| write_receipt(&dir, &options.tool)) {
        None => ReceiptOutcome::Skipped,
        Some(Ok(())) => ReceiptOutcome::Written,
        Some(Err(e)) => ReceiptOutcome::Failed(e.to_string()),
    };
    let files = manifest.files.len();
    Ok(VerifyReport {
        model_id: manifest.model_id.clone(),
        layout: dir.layout(),
        files,
        bytes,
        strays,
        warnings,
        receipt,
    })
}

fn hash_all(dir: &ModelDir, progress: &mut dyn FnMut(VerifyProgress<'_>) -> ControlFlow<()>) -> Result<u64> {
    let manifest = dir.manifest();
    let total = manifest.files.values().fold(0u64, |sum, entry| sum.saturating_add(entry.size));
    let (mut done, mut first, mut others) = (0u64, None, 0usize);
    for (path, entry) in &manifest.files {
        if progress(VerifyProgress::File { path, size: entry.size }).is_break() {
            return Err(Error::Cancelled);
        }
        let start = done;
        let mut step = |bytes: u64| {
            done = done.saturating_add(bytes);
            progress(VerifyProgress::Bytes { done, total })
        };
        let checked = open_listed(dir.root(), manifest, path)
            .and_then(|file| check_hash(&file, manifest, path, &mut step));
        done = start.saturating_add(entry.size);
        match checked {
            Ok(()) => {}
            Err(Error::Cancelled) => return Err(Error::Cancelled),
            Err(error) => {
                if progress(VerifyProgress::Fault { message: &error.to_string() }).is_break() {
                    return Err(Error::Cancelled);
                }
                others += usize::from(first.is_some());
                first.get_or_insert(error);
            }
        }
    }
    match first {
        None => Ok(total),
        Some(Error::Damaged { file, reason }) if others > 0 => {
            Err(Error::Damaged { file, reason: format!("{reason} ({others} more files are wrong)") })
        }
        Some(error) => Err(error),
    }
}

/// Writes the receipt, keeping the provenance that an earlier one for the same manifest recorded.
fn write_receipt(dir: &ModelDir, tool: &str) -> Result<()> {
    let path = receipt_path(dir.path())?;
    let mut receipt = Receipt::new(dir.manifest(), dir.manifest_bytes(), &path, tool, SystemTime::now());
    let old = read_optional(dir.root(), RECEIPT, CAP_RECEIPT).ok().flatten();
    if let Some(old) = old.and_then(|bytes| Receipt::parse(&bytes).ok())
        && old.manifest_sha256 == receipt.manifest_sha256
    {
        receipt.source_repo_id = old.source_repo_id;
        receipt.source_revision = old.source_revision.or(receipt.source_revision);
    }
    file::write_atomic(dir.root(), RECEIPT, &receipt.encode())
        .map_err(Error::io("write", dir.path().join(RECEIPT)))
}

/// What operating systems leave in directories they look at.
fn is_litter(name: &str) -> bool {
    matches!(name, ".DS_Store" | ".fseventsd" | ".Trashes")
        || name.starts_with("._")
        || name.starts_with(".Spotlight-")
}

/// Entries below the root that nothing declares.
fn find_strays(dir: &ModelDir) -> Result<Vec<String>> {
    let listed = dir.manifest().files.keys();
    let mut declared: HashSet<&str> = [MANIFEST, RECEIPT, SIDECAR_DIR].into();
    let mut depth = MAX_DEPTH;
    for path in listed {
        declared.insert(path);
        declared.extend(path.match_indices('/').map(|(at, _)| &path[..at]));
        depth = depth.max(path.matches('/').count() + 1);
    }
    let mut search = Search { declared, strays: Vec::new(), left: MAX_ENTRIES };
    search.walk(dir.root(), "", depth)?;
    Ok(search.strays)
}

struct Search<'a> {
    declared: HashSet<&'a str>,
    strays: Vec<String>,
    left: usize,
}

impl Search<'_> {
    fn walk(&mut self, dir: &Dir, prefix: &str, depth: usize) -> Result<()> {
        let here = if prefix.is_empty() { "." } else { prefix };
        let entries = dir.entries(self.left).map_err(Error::io("list", here))?;
        self.left -= entries.len();
        for entry in entries {
            let name = entry.name.to_string_lossy();
            let path = format!("{prefix}{name}");
            let declared = self.declared.contains(path.as_str());
            if !declared && is_litter(&name) {
                continue;
            }
            if !declared {
                self.strays.push(path);
            } else if entry.is_dir && depth > 0 {
                // Below a stray directory everything is stray; naming it once is enough.
                match dir.open_dir(&name) {
                    Ok(inner) => self.walk(&inner, &format!("{path}/"), depth - 1)?,
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => {} // it vanished meanwhile
                    Err(e) => return Err(Error::io("open", &path)(e)),
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
