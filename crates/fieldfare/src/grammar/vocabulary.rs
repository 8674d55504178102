//! The tokenizer as the grammar engine wants it: a tree of all tokens by their bytes.
//!
//! It takes about a second and tens of megabytes for 262,144 entries, so it is made on first use and kept. A token has
//! the bytes that the streaming decoder would show; control tokens have none, but for the quote mark of calls, which
//! grammars name by id. `<unused7>` and the like are left out: no text has them.

use super::cost::MAX_STATES;
use super::schema::MAX_NODES;
use crate::tokenizer::Tokenizer;
use crate::{Error, Result};
use llguidance::api::TopLevelGrammar;
use llguidance::earley::{BiasComputer, ParserRecognizer};
use llguidance::toktrie::{
    InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv,
};
use llguidance::{Matcher, ParserFactory};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Most places in a grammar that an answer can be at once. Behind the brace of an object whose entries are all optional
/// it is at each of them, in some places for every part of the schema; fewer would fail answers half-way.
const MAX_ROW: usize = 16 * MAX_NODES;
/// Most of these of all beginnings of tokens together; 20,000 take about 1 ms.
const MAX_STEP: usize = 2_000_000;
/// Stack for compiling, which goes down a few frames for each rule that leads to another: about 3 KB each, and as many
/// of them as a schema has parts. Only what is used is taken.
const STACK: usize = 64 << 20;

/// The tree, and a twig that stands in for it while the factory is made.
struct Tree {
    twig: TokTrie,
    whole: OnceLock<TokTrie>,
}

impl TokenizerEnv for Tree {
    fn tok_trie(&self) -> &TokTrie {
        self.whole.get().unwrap_or(&self.twig)
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.tok_trie().greedy_tokenize(bytes)
    }

    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

/// Computes masks by a walk over the tree. The factory's own way keeps two more copies of it.
struct Walk(Arc<Tree>);

impl BiasComputer for Walk {
    fn compute_bias(&self, recognizer: &mut ParserRecognizer<'_>, start: &[u8]) -> SimpleVob {
        let mut set = self.trie().alloc_token_set();
        self.trie().add_bias(recognizer, &mut set, start);
        set
    }

    fn trie(&self) -> &TokTrie {
        self.0.tok_trie()
    }
}

/// What is made once.
struct Made {
    factory: ParserFactory,
    walk: Arc<Walk>,
}

/// Makes matchers.
pub(super) struct Vocabulary {
    tokenizer: Arc<Tokenizer>,
    made: OnceLock<std::result::Result<Made, String>>,
    /// Held while a grammar is compiled, which takes several times what stays of it.
    compiling: Mutex<()>,
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vocabulary").field("ready", &self.made.get().is_some()).finish_non_exhaustive()
    }
}

impl Vocabulary {
    pub(super) fn new(tokenizer: Arc<Tokenizer>) -> Self {
        Self { tokenizer, made: OnceLock::new(), compiling: Mutex::default() }
    }

    pub(super) fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The matcher of a grammar, at its beginning. The error is for developers: it may quote the grammar.
    pub(super) fn matcher(&self, lark: &str) -> std::result::Result<Matcher, String> {
        let made = self.made.get_or_init(|| make(&self.tokenizer)).as_ref().map_err(Clone::clone)?;
        let _alone = self.compiling.lock().unwrap_or_else(PoisonError::into_inner);
        let compile = || made.factory.create_parser(TopLevelGrammar::from_lark(lark.to_owned()));
        let parser = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("grammar".to_owned()).stack_size(STACK);
            let thread = thread.spawn_scoped(scope, compile).map_err(|error| error.to_string())?;
            thread.join().map_err(|_| "compiling panicked".to_owned())
        })?;
        let matcher = Matcher::new(parser.map(|mut parser| {
            parser.bias_computer = made.walk.clone();
            parser
        }));
        match matcher.get_error() {
            None => Ok(matcher),
            Some(error) => Err(error),
        }
    }

    /// Makes what is made once.
    pub(super) fn prepare(&self) -> Result<()> {
        match self.made.get_or_init(|| make(&self.tokenizer)) {
            Ok(_) => Ok(()),
            Err(reason) => Err(Error::Unsupported(format!("grammars with this vocabulary: {reason}"))),
        }
    }
}

fn make(tokenizer: &Tokenizer) -> std::result::Result<Made, String> {
    let size = u32::try_from(tokenizer.vocab_size()).map_err(|error| error.to_string())?;
    let twig = TokTrie::from(&TokRxInfo::new(2, 1), &[b"a".to_vec(), Vec::new()]);
    let tree = Arc::new(Tree { twig, whole: OnceLock::new() });
    let env: TokEnv = tree.clone();
    let mut factory =
        ParserFactory::new(&env, InferenceCapabilities::default(), &[]).map_err(|error| error.to_string())?;
    let words: Vec<Vec<u8>> = (0..size).map(|id| bytes(tokenizer, id)).collect();
    let _ = tree.whole.set(TokTrie::from(&TokRxInfo::new(size, tokenizer.control().eos), &words));
    drop(words);
    factory.quiet();
    let limits = factory.limits_mut();
    limits.max_lexer_states = MAX_STATES as usize;
    limits.max_items_in_row = MAX_ROW;
    limits.step_max_items = MAX_STEP;
    limits.verbose_errors = false;
    limits.precompute_large_lexemes = false;
    Ok(Made { factory, walk: Arc::new(Walk(tree)) })
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
