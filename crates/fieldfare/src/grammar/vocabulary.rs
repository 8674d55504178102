//! The tokenizer as the grammar engine wants it: a tree of all tokens by their bytes.
//!
//! It takes about a second and tens of megabytes for 262,144 entries, so it is made on first use and kept. A token has
//! the bytes that the streaming decoder would show; control tokens have none, but for the quote mark of calls, which
//! grammars name by id. `<unused7>` and the like are left out: no text has them.

use crate::tokenizer::Tokenizer;
use crate::{Error, Result};
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use std::sync::{Arc, OnceLock};

/// Most states of a grammar's lexer: each takes 1 to 2 KB.
const MAX_LEXER_STATES: usize = 30_000;

/// Makes matchers.
pub(super) struct Vocabulary {
    tokenizer: Arc<Tokenizer>,
    factory: OnceLock<std::result::Result<ParserFactory, String>>,
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vocabulary").field("ready", &self.factory.get().is_some()).finish_non_exhaustive()
    }
}

impl Vocabulary {
    pub(super) fn new(tokenizer: Arc<Tokenizer>) -> Self {
        Self { tokenizer, factory: OnceLock::new() }
    }

    pub(super) fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The matcher of a grammar, at its beginning. The error is for developers: it may quote the grammar.
    pub(super) fn matcher(&self, lark: &str) -> std::result::Result<Matcher, String> {
        let factory = self.factory.get_or_init(|| factory(&self.tokenizer)).as_ref().map_err(Clone::clone)?;
        let parser = factory.create_parser(TopLevelGrammar::from_lark(lark.to_owned()));
        let matcher = Matcher::new(parser);
        match matcher.get_error() {
            None => Ok(matcher),
            Some(error) => Err(error),
        }
    }

    /// Makes what is made once.
    pub(super) fn prepare(&self) -> Result<()> {
        match self.factory.get_or_init(|| factory(&self.tokenizer)) {
            Ok(_) => Ok(()),
            Err(reason) => Err(Error::Unsupported(format!("grammars with this vocabulary: {reason}"))),
        }
    }
}

fn factory(tokenizer: &Tokenizer) -> std::result::Result<ParserFactory, String> {
    let size = u32::try_from(tokenizer.vocab_size()).map_err(|error| error.to_string())?;
    let words: Vec<Vec<u8>> = (0..size).map(|id| bytes(tokenizer, id)).collect();
    let info = TokRxInfo::new(size, tokenizer.control().eos);
    let trie = TokTrie::from(&info, &words);
    drop(words);
    let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let mut factory =
        ParserFactory::new(&env, InferenceCapabilities::default(), &[]).map_err(|error| error.to_string())?;
    factory.quiet();
    let limits = factory.limits_mut();
    limits.max_lexer_states = MAX_LEXER_STATES;
    limits.verbose_errors = false;
    limits.precompute_large_lexemes = false;
    Ok(factory)
}

/// What a token shows.
fn bytes(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    if tokenizer.is_control(id) {
        return Vec::new();
    }
    let Some(piece) = tokenizer.piece(id) else { return Vec::new() };
    if let Some(byte) = byte_token(piece) {
        return vec![byte];
    }
    if piece.starts_with("<unused") || piece == "[multimodal]" {
        return Vec::new();
    }
    piece.replace('\u{2581}', " ").into_bytes()
}

/// The byte that `<0x0A>` stands for.
pub(super) fn byte_token(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}
