//! The `files` object of manifests and receipts: which files belong to the model, their sizes and hashes.

use super::json::{self, Fields, Value};
use super::{MANIFEST, RECEIPT, SIDECAR_DIR, hash, paths};
use crate::Result;
use std::collections::BTreeMap;

/// Size and hash of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// Bytes.
    pub size: u64,
    /// SHA-256.
    pub sha256: [u8; 32],
}

/// Parses a `files` object; the path rules of the manifest apply to receipts too, except for reserved names.
pub(super) fn parse_entries(fields: &Fields<'_>) -> Result<BTreeMap<String, FileEntry>> {
    let mut files = BTreeMap::new();
    for (path, value) in fields.members() {
        let entry = fields.member(path, value)?;
        let sha256 = entry.need("sha256", "64 hexadecimal digits", |v| hash::parse_hex(v.as_str()?))?;
        files.insert(path.clone(), FileEntry { size: entry.u64("size")?, sha256 });
    }
    Ok(files)
}

/// Parses the manifest's `files` object and checks its paths against each other.
pub(super) fn parse_files(fields: &Fields<'_>) -> Result<BTreeMap<String, FileEntry>> {
    // Filesystem keys with NUL for `/`, so that plain order puts everything below a path right behind it.
    let mut keys: Vec<(String, &str)> = Vec::new();
    for (path, _) in fields.members() {
        if let Some(problem) = paths::problem(path) {
            return Err(fields.fault(&shorten(path), format!("the path {problem}")));
        }
        let key = paths::key(path);
        let top = key.split('/').next().unwrap_or_default();
        if key == SIDECAR_DIR || top == MANIFEST || top == RECEIPT {
            return Err(fields.fault(path, "a reserved name"));
        }
        keys.push((key.replace('/', "\0"), path));
    }
    keys.sort();
    for pair in keys.windows(2) {
        let [(a, first), (b, second)] = pair else { continue };
        if a == b {
            return Err(
                fields.fault(second, format!("names the same file as {first} on a case-folding volume"))
            );
        }
        if b.strip_prefix(a.as_str()).is_some_and(|rest| rest.starts_with('\0')) {
            return Err(fields.fault(second, format!("lies below the listed file {first}")));
        }
    }
    parse_entries(fields)
}

pub(super) fn files_to_value(files: &BTreeMap<String, FileEntry>) -> Value {
    let entry = |e: &FileEntry| {
        json::object([("sha256", hash::hex(&e.sha256).as_str().into()), ("size", e.size.into())])
    };
    Value::Object(files.iter().map(|(path, e)| (path.clone(), entry(e))).collect())
}

/// At most 80 characters of an untrusted name, without control characters, for messages.
pub(crate) fn shorten(text: &str) -> String {
    text.chars().take(80).map(|c| if c.is_control() { '?' } else { c }).collect()
}
