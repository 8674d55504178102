//! The bundled text, as ids of the real tokenizer with `<bos>` in front, so that no tokenizer is needed to use it.
//!
//! [`fieldfare::measure::work::TEXT`] is our own; `data/text.tokens.json` are its ids (a test checks that they still belong together).

use crate::wrong_use;
use anyhow::{Context as _, Result};
use std::path::Path;

/// The ids of the bundled text.
pub(crate) fn bundled() -> Result<Vec<u32>> {
    serde_json::from_str(include_str!("../data/text.tokens.json")).context("data/text.tokens.json")
}

/// The ids in a tokens file (a JSON array), or those of the bundled text; at most `limit`.
pub(crate) fn load(file: Option<&Path>, limit: Option<usize>) -> Result<Vec<u32>> {
    let mut ids = match file {
        None => bundled()?,
        Some(path) => {
            let text =
                std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            serde_json::from_str(&text)
                .with_context(|| format!("{}: not a JSON array of ids", path.display()))?
        }
    };
    ids.truncate(limit.unwrap_or(usize::MAX));
    if ids.is_empty() {
        return Err(wrong_use("there are no tokens to run"));
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ids_are_those_of_the_text() {
        let Some(path) = fieldfare_testing::gemma4_tokenizer() else {
            println!("skipped: no Gemma 4 tokenizer.json here");
            return;
        };
        let tokenizer = fieldfare::tokenizer::Tokenizer::open(&path, None).unwrap();
        let mut ids = vec![tokenizer.control().bos];
        tokenizer.encode(fieldfare::measure::work::TEXT, &mut ids);
        assert_eq!(bundled().unwrap(), ids);
    }
}
