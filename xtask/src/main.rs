//! Checks of the repository itself: `cargo run -p xtask -- check`.
//!
//! Each check answers with the list of its complaints; the command prints them all and fails if there are any.

mod layers;
mod licences;
mod sources;

use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(complaints) => {
            eprintln!("{complaints} complaints");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<usize> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let Some("check") = std::env::args().nth(1).as_deref() else {
        bail!("usage: cargo run -p xtask -- check");
    };
    let mut complaints = 0;
    for (name, found) in [
        ("layer order of the library", layers::check(&root)?),
        ("files", sources::check(&root)?),
        ("licences", licences::check(&root)?),
    ] {
        println!("{name}: {}", if found.is_empty() { "ok" } else { "not ok" });
        for line in &found {
            println!("  {line}");
        }
        complaints += found.len();
    }
    Ok(complaints)
}
