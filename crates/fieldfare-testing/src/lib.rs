//! Test support shared by the workspace: where the fixtures are.

#[cfg(feature = "demo")]
mod demo;
pub mod fake_hub;
pub mod gemma4;
mod port;
mod tree;

#[cfg(feature = "demo")]
pub use demo::demo;
pub use port::NobodyThere;
pub use tree::{Dice, contents, names, rounds};

use std::path::PathBuf;

/// The `fixtures` folder of the repository.
pub fn fixtures() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures"))
}

/// The tiny random Gemma 4 checkpoint with a float32 reference.
pub fn tiny_checkpoint() -> PathBuf {
    fixtures().join("tiny-gemma4-a")
}

/// The real 262,144-entry `tokenizer.json`, where the set-up has rebuilt it (`scripts/make_gemma4_tokenizer.py`):
/// the file named by `FIELDFARE_GEMMA4_TOKENIZER`, else `target/gemma4-tokenizer.json`.
pub fn gemma4_tokenizer() -> Option<PathBuf> {
    let path = std::env::var_os("FIELDFARE_GEMMA4_TOKENIZER").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/gemma4-tokenizer.json")),
        PathBuf::from,
    );
    path.is_file().then_some(path)
}
