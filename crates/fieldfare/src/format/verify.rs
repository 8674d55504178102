//! The full check of a model directory: structure first, then the hash of every listed file, then what lies around
//! undeclared; at the end a new receipt. The model is not loaded.

use super::open::{ModelDir, check_hash, open_listed, read_optional, receipt_path};
use super::{CAP_RECEIPT, Integrity, Layout, MANIFEST, RECEIPT, Receipt, SIDECAR_DIR, hash};
use crate::sys::file::{self, Dir};
use crate::{Error, Result};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::SystemTime;

/// Most files hashed at a time: beyond that disks get slower, not faster.
const MAX_THREADS: usize = 8;
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
    same_manifest(&dir)?;
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

/// The manifest, which has the hashes of all other files, is held against the receipt that was written for it.
fn same_manifest(dir: &ModelDir) -> Result<()> {
    let old = read_optional(dir.root(), RECEIPT, CAP_RECEIPT).ok().flatten();
    match old.and_then(|bytes| Receipt::parse(&bytes).ok()) {
        Some(old) if old.manifest_sha256 != hash::sha256(dir.manifest_bytes()) => Err(Error::damaged(
            MANIFEST,
            format!("is not the one that {RECEIPT} was written for; if that is meant, delete {RECEIPT}"),
        )),
        _ => Ok(()),
    }
}

/// What a thread that hashes says.
enum Said {
    Begins(usize),
    Bytes(usize, u64),
    Ends(usize, Result<()>),
}

/// Hashes every listed file, several at a time. Faults are told at the end, in the order of their paths; the error is the first of them.
fn hash_all(dir: &ModelDir, progress: &mut dyn FnMut(VerifyProgress<'_>) -> ControlFlow<()>) -> Result<u64> {
    let files: Vec<(&str, u64)> =
        dir.manifest().files.iter().map(|(path, e)| (path.as_str(), e.size)).collect();
    let total = files.iter().fold(0u64, |sum, (_, size)| sum.saturating_add(*size));
    // The large ones first, so that no thread is left alone with one at the end.
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(files[*i].1));
    let next = AtomicUsize::new(0);
    let threads =
        std::thread::available_parallelism().map_or(2, std::num::NonZero::get).clamp(1, MAX_THREADS);
    let mut faults: Vec<(usize, Error)> = Vec::new();
    let (mut done, mut of_file) = (0u64, vec![0u64; files.len()]);
    let (send, said) = mpsc::sync_channel(64);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(files.len()) {
            let (send, order, files, next) = (send.clone(), &order, &files, &next);
            scope.spawn(move || {
                while let Some(&i) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // The receiver is gone after a wish to stop.
                    if send.send(Said::Begins(i)).is_err() || hash_one(dir, files[i].0, i, &send).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        for said in said {
            let flow = match said {
                Said::Begins(i) => progress(VerifyProgress::File { path: files[i].0, size: files[i].1 }),
                Said::Bytes(i, bytes) => {
                    of_file[i] += bytes;
                    done = done.saturating_add(bytes);
                    progress(VerifyProgress::Bytes { done, total })
                }
                Said::Ends(i, checked) => {
                    done = done.saturating_add(files[i].1.saturating_sub(of_file[i]));
                    match checked {
                        Ok(()) => ControlFlow::Continue(()),
                        Err(error) => {
                            faults.push((i, error));
                            ControlFlow::Continue(())
                        }
                    }
                }
            };
            if flow.is_break() {
                return Err(Error::Cancelled);
            }
        }
        Ok(())
    })?;
    // In the order of the paths, whichever thread was first.
    faults.sort_by_key(|(i, _)| *i);
    for (_, error) in &faults {
        if progress(VerifyProgress::Fault { message: &error.to_string() }).is_break() {
            return Err(Error::Cancelled);
        }
    }
    let others = faults.len().saturating_sub(1);
    match faults.into_iter().next() {
        None => Ok(total),
        Some((_, Error::Damaged { file, reason })) if others > 0 => {
            Err(Error::Damaged { file, reason: format!("{reason} ({others} more files are wrong)") })
        }
        Some((_, error)) => Err(error),
    }
}

/// Hashes one file and says so; an error if nobody listens any more.
fn hash_one(
    dir: &ModelDir,
    path: &str,
    number: usize,
    send: &mpsc::SyncSender<Said>,
) -> Result<(), mpsc::SendError<Said>> {
    let mut step = |bytes| match send.send(Said::Bytes(number, bytes)) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    let manifest = dir.manifest();
    let checked =
        open_listed(dir.root(), manifest, path).and_then(|file| check_hash(&file, manifest, path, &mut step));
    send.send(Said::Ends(number, checked))
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
    file::write_atomic(dir.root(), dir.path(), RECEIPT, &receipt.encode())
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
