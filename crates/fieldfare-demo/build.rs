//! Hashes the checkpoint in `model/` once, when it is built, so that no start of the program has to read its megabytes
//! to know which model it carries.

use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::path::Path;

/// In the order of `embedded::FILES`; a test there compares the two hashes.
const FILES: [&str; 6] = [
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
];

fn main() -> Result<(), String> {
    let mut hash = Sha256::new();
    for name in FILES {
        let path = Path::new("model").join(name);
        println!("cargo::rerun-if-changed={}", path.display());
        let bytes = std::fs::read(&path)
            .map_err(|error| format!("crates/fieldfare-demo/{}: {error}", path.display()))?;
        hash.update(name.as_bytes());
        hash.update([0]);
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(&bytes);
    }
    println!("cargo::rerun-if-changed=build.rs");
    let mut hex = String::new();
    for byte in hash.finalize() {
        write!(hex, "{byte:02x}").map_err(|error| error.to_string())?;
    }
    println!("cargo::rustc-env=FIELDFARE_DEMO_IDENTITY={hex}");
    Ok(())
}
