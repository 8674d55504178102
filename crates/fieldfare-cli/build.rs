//! Tells the program which commit it is built from, where it is built in a checkout of its own repository.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
    };
    // Unpacked somewhere inside another repository, its commits say nothing about this program.
    if git(&["rev-parse", "--show-prefix"]).as_deref() != Some("crates/fieldfare-cli/") {
        return;
    }
    // Moves with every commit and every change of branch.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo::rustc-env=FIELDFARE_COMMIT={commit}");
    }
}
