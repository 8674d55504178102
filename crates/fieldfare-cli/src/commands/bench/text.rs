//! The tokens that are run over: of a text, or made up. Nothing is sampled, so a row's work is the same in every build.

use crate::Outcome;
use crate::failure::Failure;
use crate::input;
use fieldfare::format::ModelDir;
use fieldfare::measure::work;
use fieldfare::sys::paths;
use fieldfare::tokenizer::Tokenizer;
use std::path::Path;

/// Tokens, and what they are for people.
pub(super) struct Text {
    /// As many as were asked for.
    pub(super) ids: Vec<u32>,
    /// `built-in`, `made up`, or the file.
    pub(super) source: String,
}

/// `count` tokens of the file, or of the built-in text, or made up where there is no tokenizer.
///
/// # Errors
/// A file that cannot be read; a file although the model has no tokenizer.
pub(super) fn tokens(dir: &ModelDir, file: Option<&Path>, count: usize) -> Outcome<Text> {
    let listed = dir.sidecar_path("tokenizer.json").zip(dir.sidecar_sha256("tokenizer.json"));
    let Some((path, sha256)) = listed else {
        return match file {
            Some(_) => Err(Failure::usage("this model directory has no tokenizer to read --text with")
                .with_hint("leave out --text: made-up tokens are used then")),
            None => {
                let ids = work::made_up(dir.manifest().arch.vocab_size, count);
                Ok(Text { ids, source: "made up".to_owned() })
            }
        };
    };
    let cache = paths::cache_dir().map(|cache| cache.join("tokenizers"));
    let tokenizer = Tokenizer::open_listed(&path, cache.as_deref(), &sha256)?;
    let (text, source) = match file {
        Some(path) => (input::text_file(path)?, path.display().to_string()),
        None => (work::TEXT.to_owned(), "built-in".to_owned()),
    };
    let mut ids = vec![tokenizer.control().bos];
    tokenizer.encode(&text, &mut ids);
    Ok(Text { ids: work::repeated(&ids, count), source })
}
