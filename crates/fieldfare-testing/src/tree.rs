//! What tests look at of a model directory, and dice for those that try many things.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Every file below `dir` but the receipt, which has a date in it, by its path relative to it, with slashes.
///
/// # Panics
/// If it cannot be read.
pub fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut out = BTreeMap::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(dir.join(&folder)).expect("a folder") {
            let entry = entry.expect("an entry");
            let path = folder.join(entry.file_name());
            if entry.file_type().expect("a type").is_dir() {
                todo.push(path);
            } else if path != Path::new("verified-install.json") {
                let bytes = std::fs::read(dir.join(&path)).expect("a file");
                out.insert(path.to_str().expect("a name in Unicode").replace('\\', "/"), bytes);
            }
        }
    }
    out
}

/// Names in a folder, in order.
///
/// # Panics
/// If it cannot be read.
pub fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("an entry"));
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().into_string().expect("a name in Unicode")).collect();
    names.sort();
    names
}

/// A generator of numbers that look random; the same ones from the same seed.
#[derive(Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// One below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n.max(1)
    }
}

/// A number of rounds that the environment may set.
pub fn rounds(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}
