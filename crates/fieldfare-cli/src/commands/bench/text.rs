//! The tokens that are run over: of a text, or made up. Nothing is sampled, so a row's work is the same in every build.

use crate::Outcome;
use crate::failure::Failure;
use crate::input;
use fieldfare::format::ModelDir;
use fieldfare::sys::paths;
use fieldfare::tokenizer::Tokenizer;
use std::path::Path;

/// Our own text, for models that have a tokenizer.
const BUILT_IN: &str = include_str!("../../../data/text.txt");

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
            None => Ok(made_up(dir.manifest().arch.vocab_size, count)),
        };
    };
    let cache = paths::cache_dir().map(|cache| cache.join("tokenizers"));
    let tokenizer = Tokenizer::open_listed(&path, cache.as_deref(), &sha256)?;
    let (text, source) = match file {
        Some(path) => (input::text_file(path)?, path.display().to_string()),
        None => (BUILT_IN.to_owned(), "built-in".to_owned()),
    };
    let mut ids = vec![tokenizer.control().bos];
    tokenizer.encode(&text, &mut ids);
    Ok(Text { ids: repeated(&ids, count), source })
}

/// The first id once, the others again and again.
fn repeated(ids: &[u32], count: usize) -> Vec<u32> {
    let (first, rest) = ids.split_at(ids.len().min(1));
    let rest = if rest.is_empty() { first } else { rest };
    first.iter().chain(rest.iter().cycle()).take(count).copied().collect()
}

/// Ids spread over the vocabulary, the same each time (the high bits of a linear congruence).
fn made_up(vocab: usize, count: usize) -> Text {
    let vocab = (vocab as u64).max(1);
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from((state >> 33) % vocab).unwrap_or(0)
    };
    Text { ids: (0..count).map(|_| next()).collect(), source: "made up".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_texts_are_repeated_behind_their_first_token() {
        assert_eq!(repeated(&[2, 7, 8], 6), [2, 7, 8, 7, 8, 7]);
        assert_eq!(repeated(&[2], 3), [2, 2, 2]);
        assert_eq!(repeated(&[2, 7, 8], 2), [2, 7]);
    }

    #[test]
    fn made_up_tokens_are_the_same_each_time_and_within_the_vocabulary() {
        let text = made_up(100, 500);
        assert_eq!(text.ids, made_up(100, 500).ids);
        assert_eq!(text.ids[..50], made_up(100, 50).ids[..]);
        assert!(text.ids.iter().all(|&id| id < 100));
        let mut distinct = text.ids;
        distinct.sort_unstable();
        distinct.dedup();
        assert!(distinct.len() > 90);
    }
}
