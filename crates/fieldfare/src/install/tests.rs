//! What a disk can do to an install over a network: lose power, fill up, be small or slow, fail at the very end.

mod again;
mod end;
mod full;
mod names;
mod power;

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use fieldfare_testing::fake_hub::{Content, FakeHub, Fault, REPO, Served, files_of};
use fieldfare_testing::{Dice, contents, names, rounds};

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
    let sha256 =
        |name: &str, bytes: &[u8]| name.ends_with(".safetensors").then(|| hash::hex(&hash::sha256(bytes)));
    FakeHub::start(files_of(&fieldfare_testing::tiny_checkpoint(), sha256), |_, _| Fault::None)
}

/// Requests of 64 KiB, so that the tiny checkpoint has many.
fn options(hub: &FakeHub, output: &Path) -> FetchOptions {
    let remote = Remote::Hub { endpoint: hub.endpoint(), repo: REPO.into(), revision: "main".into() };
    let patience = Patience {
        tries: 4,
        first: Duration::from_millis(1),
        longest: Duration::from_millis(4),
        // What a busy machine takes for an answer is no stall, which would be asked for again.
        stall: Duration::from_secs(120),
    };
    let options = FetchOptions::new(remote, output);
    FetchOptions { allow_unpinned: true, connections: 4, patience, range: 64 << 10, ..options }
}

fn run(options: &FetchOptions) -> Result<Installed> {
    install_remote(options, &mut go_on)
}

/// What the tiny checkpoint becomes when it is installed from its folder.
fn wanted(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let output = root.join("local");
    let from = fieldfare_testing::tiny_checkpoint();
    let options = InstallOptions { from, output: output.clone(), layout: Layout::Tiled, overwrite: false };
    install_local(&options, &mut go_on).expect("install");
    contents(&output)
}
