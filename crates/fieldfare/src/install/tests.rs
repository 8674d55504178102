//! What a disk can do to an install over a network: lose power, fill up, be small from the start.

mod full;
mod power;

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fieldfare_testing::fake_hub::{Content, FakeHub, Fault, REPO, Served};

use super::hub::Remote;
use super::retry::Patience;
use super::{FetchOptions, InstallOptions, Installed, Progress, install_local, install_remote};
use crate::Result;
use crate::format::{Layout, hash};

fn go_on(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// A hub with the tiny checkpoint and no faults.
fn hub() -> FakeHub {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(fieldfare_testing::tiny_checkpoint()).expect("fixture") {
        let entry = entry.expect("entry");
        if entry.file_type().expect("type").is_file() {
            let bytes = fs::read(entry.path()).expect("fixture");
            let name = entry.file_name().into_string().expect("text");
            let sha256 = name.ends_with(".safetensors").then(|| hash::hex(&hash::sha256(&bytes)));
            files.insert(name, Served { content: Content::Bytes(bytes), sha256 });
        }
    }
    FakeHub::start(files, |_, _| Fault::None)
}

/// Requests of 64 KiB, so that the tiny checkpoint has many.
fn options(hub: &FakeHub, output: &Path) -> FetchOptions {
    let remote = Remote::Hub { endpoint: hub.endpoint(), repo: REPO.into(), revision: "main".into() };
    let patience = Patience {
        tries: 4,
        first: Duration::from_millis(1),
        longest: Duration::from_millis(4),
        stall: Duration::from_secs(5),
    };
    let options = FetchOptions::new(remote, output);
    FetchOptions { allow_unpinned: true, connections: 4, patience, range: 64 << 10, ..options }
}

fn run(options: &FetchOptions) -> Result<Installed> {
    install_remote(options, &mut go_on)
}

/// Every file below `dir` but the receipt, by relative path.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut out = BTreeMap::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(folder) = todo.pop() {
        for entry in fs::read_dir(dir.join(&folder)).expect("list") {
            let entry = entry.expect("entry");
            let path = folder.join(entry.file_name());
            if entry.file_type().expect("type").is_dir() {
                todo.push(path);
            } else if path != Path::new("verified-install.json") {
                out.insert(path.clone(), fs::read(dir.join(path)).expect("read"));
            }
        }
    }
    out
}

/// What the tiny checkpoint becomes when it is installed from its folder.
fn wanted(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let output = root.join("local");
    let from = fieldfare_testing::tiny_checkpoint();
    let options = InstallOptions { from, output: output.clone(), layout: Layout::Tiled, overwrite: false };
    install_local(&options, &mut go_on).expect("install");
    contents(&output)
}

/// A generator of numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n.max(1)
    }
}

/// A number of rounds that the environment may set.
fn rounds(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}
