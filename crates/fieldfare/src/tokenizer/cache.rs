//! Compiled forms kept on disk.
//!
//! One file for each source, named by its SHA-256 and the version of the form. Files are written beside and renamed,
//! never changed in place, so a mapped one stays whole; whatever is found is checked before use. Nothing here is an
//! error for the caller: without a usable cache the form is built in memory.

use super::table::{Storage, Table, VERSION};
use crate::format::hash;
use crate::sys::map::Map;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The file that a source's compiled form has in the cache folder.
pub(super) fn path(dir: &Path, sha256: &[u8; 32]) -> PathBuf {
    dir.join(format!("tokenizer-{}-{VERSION}.bin", hash::hex(sha256)))
}

/// Maps the compiled form of a source, if there is a whole one.
pub(super) fn load(dir: &Path, sha256: &[u8; 32]) -> Option<Table> {
    let file = File::open(path(dir, sha256)).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() {
        return None;
    }
    let map = Map::new(&file, meta.len()).ok()?;
    Table::new(Storage::Mapped(map), sha256)
}

/// Writes a compiled form and maps it; `None` if the folder does not allow it.
pub(super) fn store(dir: &Path, sha256: &[u8; 32], words: &[u64]) -> Option<Table> {
    std::fs::create_dir_all(dir).ok()?;
    let mut file = tempfile::Builder::new().prefix("tokenizer-").suffix(".part").tempfile_in(dir).ok()?;
    file.write_all(bytemuck::cast_slice(words)).ok()?;
    file.persist(path(dir, sha256)).ok()?;
    load(dir, sha256)
}
