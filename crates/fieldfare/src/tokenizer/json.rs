//! Reads a `tokenizer.json` as a stream: no document tree, only the token texts and the merge texts in two arenas.
//!
//! Anything may stand in the file. What is not JSON of the right form is damage; what is well formed but asks for
//! another way of tokenizing is unsupported, by name.

use super::FILE;
use super::table::{MAX_IDS, MAX_MERGES};
use crate::Error;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::io::Read;
use std::marker::PhantomData;
use std::path::Path;

/// Most added tokens taken from a file (the real one has 24).
const MAX_ADDED: usize = 65_536;

/// Texts one after another.
#[derive(Debug, Default)]
pub(super) struct Arena {
    text: String,
    ends: Vec<u32>,
}

impl Arena {
    /// Adds a text. The file's size limit keeps the sum far below 4 GiB.
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(self.text.len() as u32);
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn get(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.text[start..self.ends[index] as usize]
    }
}

/// One entry of `added_tokens`.
#[derive(Debug, Deserialize)]
pub(super) struct AddedToken {
    pub(super) id: u64,
    pub(super) content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    normalized: bool,
    #[serde(default)]
    special: bool,
}

/// What the compiled form is built from.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// Token texts in the order of the file.
    pub(super) tokens: Arena,
    /// Their ids, each below `MAX_IDS`.
    pub(super) ids: Vec<u32>,
    /// Left and right parts of the merges, by rank: entry 2r and 2r+1.
    pub(super) merges: Arena,
    /// The added tokens, none with a flag that changes how text is cut.
    pub(super) added: Vec<AddedToken>,
    /// The first thing found that this program does not do.
    unsupported: Option<String>,
    seen: Seen,
}

/// Which parts the file had.
#[derive(Debug, Default)]
struct Seen {
    added: bool,
    normalizer: bool,
    decoder: bool,
    model: bool,
    vocab: bool,
    merges: bool,
    byte_fallback: bool,
}

/// Why a file could not be read.
pub(super) enum ReadError {
    Json(serde_json::Error),
    Part(&'static str, String),
    Unsupported(String),
}

impl ReadError {
    pub(super) fn into_error(self, path: &Path) -> Error {
        match self {
            Self::Json(error) if error.is_io() => {
                Error::Io { action: "read", path: path.into(), source: error.into() }
            }
            Self::Json(error) => Error::damaged(format!("{FILE}: line {}", error.line()), error.to_string()),
            Self::Part(field, reason) => Error::damaged(format!("{FILE}: {field}"), reason),
            Self::Unsupported(reason) => Error::Unsupported(format!("{FILE}: {reason}")),
        }
    }
}

/// Parses from a stream.
pub(super) fn read(reader: impl Read) -> Result<Source, ReadError> {
    let mut json = serde_json::Deserializer::from_reader(reader);
    let source = top(&mut json)?;
    json.end().map_err(ReadError::Json)?;
    source.checked()
}

/// Parses from memory.
pub(super) fn parse(bytes: &[u8]) -> Result<Source, ReadError> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let source = top(&mut json)?;
    json.end().map_err(ReadError::Json)?;
    source.checked()
}

fn top<'de, D: Deserializer<'de, Error = serde_json::Error>>(json: D) -> Result<Source, ReadError> {
    let mut source = Source::default();
    json.deserialize_map(Top(&mut source)).map_err(ReadError::Json)?;
    Ok(source)
}

impl Source {
    fn checked(self) -> Result<Self, ReadError> {
        if let Some(reason) = self.unsupported {
            return Err(ReadError::Unsupported(reason));
        }
        let seen = &self.seen;
        for (there, field) in [
            (seen.added, "added_tokens"),
            (seen.model, "model"),
            (seen.vocab, "model.vocab"),
            (seen.merges, "model.merges"),
        ] {
            if !there {
                return Err(ReadError::Part(field, "is missing".into()));
            }
        }
        for (there, reason) in [
            (seen.normalizer, "normalizer: null (only the replacement of spaces by U+2581 is supported)"),
            (seen.decoder, "decoder: null (only that of Gemma 4 is supported)"),
            (seen.byte_fallback, "model.byte_fallback: false (only true is supported)"),
        ] {
            if !there {
                return Err(ReadError::Unsupported(reason.into()));
            }
        }
        Ok(self)
    }

    fn refuse(&mut self, reason: impl Into<String>) {
        self.unsupported.get_or_insert_with(|| reason.into());
    }

    /// Marks a part as seen; a second one is damage, because readers differ in which they take.
    fn once<E: serde::de::Error>(seen: &mut bool, field: &'static str) -> Result<(), E> {
        if std::mem::replace(seen, true) { Err(E::duplicate_field(field)) } else { Ok(()) }
    }

    fn take_normalizer(&mut self, part: Option<Part>) {
        self.seen.normalizer = part.is_some();
        if let Some(part) = part
            && !part.replaces(" ", "\u{2581}")
        {
            self.refuse(format!(
                "normalizer: {:?} (only the replacement of spaces by U+2581 is supported)",
                part.kind
            ));
        }
    }

    fn take_pre_tokenizer(&mut self, part: Option<Part>) {
        // A split at spaces finds none after the normalizer, whatever its behaviour.
        if let Some(part) = part
            && !(part.kind == "Split" && part.pattern_text() == Some(" "))
        {
            self.refuse(format!("pre_tokenizer: {:?} (only a split at spaces is supported)", part.kind));
        }
    }

    fn take_decoder(&mut self, part: Option<Part>) {
        self.seen.decoder = part.is_some();
        let Some(part) = part else { return };
        let steps = part.decoders.as_ref().map_or(&[][..], |few| &few.0);
        let known = part.kind == "Sequence"
            && matches!(steps, [replace, bytes, fuse] if replace.replaces("\u{2581}", " ")
                && bytes.kind == "ByteFallback" && fuse.kind == "Fuse");
        if !known {
            self.refuse(format!(
                "decoder: {:?} (only U+2581 to space, byte fallback, join is supported)",
                part.kind
            ));
        }
    }

    fn take_added(&mut self, token: AddedToken) {
        let flag = [
            (token.single_word, "single_word: true"),
            (token.lstrip, "lstrip: true"),
            (token.rstrip, "rstrip: true"),
            // A text without spaces or their mark is the same before and after the normalizer, except that the
            // order of the searches could matter: refuse it whole.
            (token.normalized, "normalized: true"),
            (!token.special, "special: false"),
        ]
        .into_iter()
        .find(|flag| flag.0);
        if let Some((_, flag)) = flag {
            self.refuse(format!("added_tokens: {:?} has {flag}", token.content));
        }
        self.added.push(token);
    }
}

/// A normalizer, pre-tokenizer or decoder, as far as it matters.
#[derive(Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    pattern: Option<Pattern>,
    content: Option<String>,
    decoders: Option<Few<Step>>,
}

/// One step of a decoder. Apart from [`Part`] so that nesting ends here.
#[derive(Deserialize)]
struct Step {
    #[serde(rename = "type")]
    kind: String,
    pattern: Option<Pattern>,
    content: Option<String>,
}

#[derive(Deserialize)]
struct Pattern {
    #[serde(rename = "String")]
    string: Option<String>,
}

fn replaces(kind: &str, pattern: Option<&Pattern>, content: Option<&str>, from: &str, to: &str) -> bool {
    kind == "Replace" && pattern.and_then(|p| p.string.as_deref()) == Some(from) && content == Some(to)
}

impl Part {
    fn replaces(&self, from: &str, to: &str) -> bool {
        replaces(&self.kind, self.pattern.as_ref(), self.content.as_deref(), from, to)
    }

    fn pattern_text(&self) -> Option<&str> {
        self.pattern.as_ref().and_then(|pattern| pattern.string.as_deref())
    }
}

impl Step {
    fn replaces(&self, from: &str, to: &str) -> bool {
        replaces(&self.kind, self.pattern.as_ref(), self.content.as_deref(), from, to)
    }
}

/// A short list: more than 16 elements are refused while reading, so that a hostile file cannot fill the memory.
struct Few<T>(Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FewVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for FewVisitor<T> {
            type Value = Few<T>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a list of at most 16")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Few<T>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    if items.len() == 16 {
                        return Err(A::Error::custom("a list of more than 16"));
                    }
                    items.push(item);
                }
                Ok(Few(items))
            }
        }
        deserializer.deserialize_seq(FewVisitor(PhantomData))
    }
}

/// The document.
struct Top<'a>(&'a mut Source);

impl<'de> Visitor<'de> for Top<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a tokenizer object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let source = self.0;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "added_tokens" => {
                    Source::once(&mut source.seen.added, "added_tokens")?;
                    map.next_value_seed(Added(source))?;
                }
                "normalizer" => source.take_normalizer(map.next_value()?),
                "pre_tokenizer" => source.take_pre_tokenizer(map.next_value()?),
                "decoder" => source.take_decoder(map.next_value()?),
                "model" => {
                    Source::once(&mut source.seen.model, "model")?;
                    map.next_value_seed(Model(source))?;
                }
                "truncation" | "padding" => {
                    if map.next_value::<Option<IgnoredAny>>()?.is_some() {
                        source.refuse(format!("{key}: only null is supported"));
                    }
                }
                // `post_processor` adds tokens around whole texts; the chat renderer and the commands do that here.
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Implements `DeserializeSeed` for a visitor by the given method.
macro_rules! seed {
    ($name:ident, $method:ident) => {
        impl<'de> DeserializeSeed<'de> for $name<'_> {
            type Value = ();
            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
                deserializer.$method(self)
            }
        }
    };
}
seed!(Added, deserialize_seq);
seed!(Model, deserialize_map);
seed!(Vocab, deserialize_map);
seed!(Merges, deserialize_seq);
seed!(Merge, deserialize_any);
seed!(Push, deserialize_str);

struct Added<'a>(&'a mut Source);

impl<'de> Visitor<'de> for Added<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of added tokens")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(token) = seq.next_element::<AddedToken>()? {
            if token.id >= MAX_IDS as u64 {
                return Err(A::Error::custom(format_args!("added_tokens: id {} is too large", token.id)));
            }
            if self.0.added.len() == MAX_ADDED {
                return Err(A::Error::custom(format_args!("added_tokens: more than {MAX_ADDED}")));
            }
            self.0.take_added(token);
        }
        Ok(())
    }
}

struct Model<'a>(&'a mut Source);

impl<'de> Visitor<'de> for Model<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a BPE model object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let source = self.0;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "type" => {
                    let kind: String = map.next_value()?;
                    if kind != "BPE" {
                        source.refuse(format!("model.type: {kind:?} (only BPE is supported)"));
                    }
                }
                "vocab" => {
                    Source::once(&mut source.seen.vocab, "model.vocab")?;
                    map.next_value_seed(Vocab(source))?;
                }
                "merges" => {
                    Source::once(&mut source.seen.merges, "model.merges")?;
                    map.next_value_seed(Merges(source))?;
                }
                "byte_fallback" => source.seen.byte_fallback = map.next_value()?,
                "ignore_merges" => {
                    if map.next_value::<bool>()? {
                        source.refuse("model.ignore_merges: true");
                    }
                }
                "dropout" => {
                    if map.next_value::<Option<f64>>()?.is_some_and(|dropout| dropout != 0.0) {
                        source.refuse("model.dropout: only null is supported");
                    }
                }
                "continuing_subword_prefix" | "end_of_word_suffix" => {
                    if map.next_value::<Option<String>>()?.is_some_and(|text| !text.is_empty()) {
                        source.refuse(format!("model.{key}: only null is supported"));
                    }
                }
                // `unk_token` and `fuse_unk` never come into play: bytes cover everything.
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

struct Vocab<'a>(&'a mut Source);

impl<'de> Visitor<'de> for Vocab<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object of token texts and ids")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let source = self.0;
        while map.next_key_seed(Push(&mut source.tokens))?.is_some() {
            let id: u64 = map.next_value()?;
            if id >= MAX_IDS as u64 {
                return Err(A::Error::custom(format_args!("model.vocab: id {id} is too large")));
            }
            if source.ids.len() == MAX_IDS {
                return Err(A::Error::custom(format_args!("model.vocab: more than {MAX_IDS} tokens")));
            }
            source.ids.push(id as u32);
        }
        Ok(())
    }
}

struct Merges<'a>(&'a mut Source);

impl<'de> Visitor<'de> for Merges<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of merges")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let merges = &mut self.0.merges;
        while seq.next_element_seed(Merge(merges))?.is_some() {
            if merges.len() > 2 * MAX_MERGES {
                return Err(A::Error::custom(format_args!("model.merges: more than {MAX_MERGES}")));
            }
        }
        Ok(())
    }
}

/// One merge: `["a", "b"]`, or the older `"a b"`.
struct Merge<'a>(&'a mut Arena);

impl<'de> Visitor<'de> for Merge<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a merge: a list of two texts, or a text with one space")
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        let (left, right) = text
            .split_once(' ')
            .filter(|(left, right)| !left.is_empty() && !right.is_empty() && !right.contains(' '))
            .ok_or_else(|| E::custom(format_args!("model.merges: {text:?} is not two parts")))?;
        self.0.push(left);
        self.0.push(right);
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        for part in 0..2 {
            if seq.next_element_seed(Push(self.0))?.is_none() {
                return Err(A::Error::invalid_length(part, &self));
            }
        }
        match seq.next_element::<IgnoredAny>()? {
            Some(_) => Err(A::Error::invalid_length(3, &self)),
            None => Ok(()),
        }
    }
}

/// A text that goes into an arena.
struct Push<'a>(&'a mut Arena);

impl Visitor<'_> for Push<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a text")
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        if text.is_empty() {
            return Err(E::custom("an empty token"));
        }
        self.0.push(text);
        Ok(())
    }
}
