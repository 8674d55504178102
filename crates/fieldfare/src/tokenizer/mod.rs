//! Gemma 4's tokenizer: text to ids, ids to text, text streaming.
//!
//! A `tokenizer.json` is read once, as a stream, and compiled into one flat table (`table`, `build`) that lies in a
//! cache folder under the SHA-256 of its source and is mapped from then on (`cache`). Everything comes from the
//! file: control tokens are found by their text, so no id is written into the program. Text is cut where no token
//! can reach across and each stretch is merged by rank (`bpe`); `stream` turns ids back into text. What the file
//! asks for and this room does not do (another normalizer, tokens that strip white space …) is refused by name.

mod bpe;
mod build;
mod cache;
mod control;
mod json;
mod stream;
mod table;
#[cfg(test)]
mod tests;

pub use control::ControlTokens;
pub use stream::StreamDecoder;

use crate::format::hash;
use crate::{Error, Result};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use table::Table;

/// What errors about the file call it: its place in a model directory.
pub(crate) const FILE: &str = "tokenizer/tokenizer.json";
/// Largest `tokenizer.json` read, in bytes (the real one has 32 MB; the installer has the same limit).
const MAX_FILE: u64 = 64 << 20;
/// The character that stands for a space inside tokens.
const SPACE_MARK: char = '\u{2581}';

/// A loaded tokenizer. Immutable; may be used from several threads at once.
#[derive(Debug)]
pub struct Tokenizer {
    table: Table,
    control: ControlTokens,
    matcher: control::Matcher,
}

impl Tokenizer {
    /// Opens a `tokenizer.json`.
    ///
    /// With a cache folder, the compiled form is looked for there under the file's SHA-256 and mapped; a missing or
    /// damaged one is built and written. A folder that cannot be used is no error: the form is then built in memory.
    ///
    /// # Errors
    /// The file cannot be read, is not what it should be, or asks for something unsupported.
    pub fn open(tokenizer_json: &Path, cache_dir: Option<&Path>) -> Result<Self> {
        Self::load(tokenizer_json, cache_dir, None)
    }

    /// As [`Tokenizer::open`] for a file whose SHA-256 is known: one flipped byte of a vocabulary gives a tokenizer
    /// that works and reads other words.
    ///
    /// # Errors
    /// As [`Tokenizer::open`], and [`Error::Damaged`] for a file with another hash.
    pub fn open_listed(tokenizer_json: &Path, cache_dir: Option<&Path>, sha256: &[u8; 32]) -> Result<Self> {
        Self::load(tokenizer_json, cache_dir, Some(sha256))
    }

    fn load(tokenizer_json: &Path, cache_dir: Option<&Path>, wanted: Option<&[u8; 32]>) -> Result<Self> {
        let check = |found: &[u8; 32]| match wanted {
            Some(wanted) if wanted != found => {
                Err(Error::damaged(FILE, "its SHA-256 is not the one in the manifest"))
            }
            _ => Ok(()),
        };
        if cache_dir.is_some() || wanted.is_some() {
            let mut source = Hashed::new(open_source(tokenizer_json)?);
            std::io::copy(&mut source, &mut std::io::sink()).map_err(Error::io("read", tokenizer_json))?;
            let found = source.finish();
            check(&found)?;
            if let Some(table) = cache_dir.and_then(|dir| cache::load(dir, &found)) {
                return Self::from_table(table);
            }
        }
        let mut source = Hashed::new(open_source(tokenizer_json)?);
        let parsed = json::read(BufReader::with_capacity(256 << 10, &mut source))
            .map_err(|error| error.into_error(tokenizer_json))?;
        // The hash is of the bytes just parsed, so a file that changed since the look-up gets its own name.
        let sha256 = source.finish();
        check(&sha256)?;
        let words = build::build(parsed, &sha256)?;
        if let Some(dir) = cache_dir
            && let Some(table) = cache::store(dir, &sha256, &words)
        {
            return Self::from_table(table);
        }
        Self::from_words(words, &sha256)
    }

    /// A tokenizer from the bytes of a `tokenizer.json`, built in memory.
    ///
    /// # Errors
    /// The bytes are not what they should be, or ask for something unsupported.
    pub fn from_json(bytes: &[u8]) -> Result<Self> {
        if bytes.len() as u64 > MAX_FILE {
            return Err(too_large(bytes.len() as u64));
        }
        let parsed = json::parse(bytes).map_err(|error| error.into_error(Path::new(FILE)))?;
        let sha256 = hash::sha256(bytes);
        Self::from_words(build::build(parsed, &sha256)?, &sha256)
    }

    fn from_words(words: Vec<u64>, sha256: &[u8; 32]) -> Result<Self> {
        let table = Table::new(table::Storage::Heap(words), sha256)
            .ok_or_else(|| Error::damaged(FILE, "its compiled form is inconsistent"))?;
        Self::from_table(table)
    }

    fn from_table(table: Table) -> Result<Self> {
        let view = table.view();
        let matcher = control::Matcher::new(&view);
        let control = ControlTokens::find(&matcher)?;
        Ok(Self { table, control, matcher })
    }

    /// Appends the ids of `text` to `out`. Nothing in the text is taken for a control token and nothing is added:
    /// `<|turn>` typed by a person comes out as ordinary tokens.
    pub fn encode(&self, text: &str, out: &mut Vec<u32>) {
        bpe::Encoder::new(self.table.view()).encode(text, out);
    }

    /// Like [`Tokenizer::encode`], but control tokens written in the text become their ids (leftmost, then longest).
    /// For text whose author may steer the model, never for text from outside.
    pub fn encode_with_control(&self, text: &str, out: &mut Vec<u32>) {
        let mut encoder = bpe::Encoder::new(self.table.view());
        let mut rest = text;
        while let Some((at, len, id)) = self.matcher.find(rest) {
            encoder.encode(&rest[..at], out);
            out.push(id);
            rest = &rest[at + len..];
        }
        encoder.encode(rest, out);
    }

    /// Number of ids: one more than the largest.
    pub fn vocab_size(&self) -> usize {
        self.table.view().len()
    }

    /// The ids of the control tokens by role.
    pub fn control(&self) -> &ControlTokens {
        &self.control
    }

    /// Whether the id is one of the file's added (control) tokens.
    pub fn is_control(&self, id: u32) -> bool {
        self.table.view().is_added(id)
    }

    /// The text of a token as in the file (with U+2581 for spaces, `<0x0A>` for bytes); `None` outside the
    /// vocabulary and for ids that the file leaves out.
    pub fn piece(&self, id: u32) -> Option<&str> {
        self.table.view().piece(id)
    }

    /// The id of a token's text as in the file.
    pub fn id_of(&self, piece: &str) -> Option<u32> {
        self.table.view().id_of(piece)
    }

    /// The text of a list of ids, with control tokens left out if `skip_control`. Control tokens do not end runs of
    /// byte tokens here, as in the `tokenizers` library.
    pub fn decode(&self, ids: &[u32], skip_control: bool) -> String {
        let mut text = String::new();
        let mut stream = self.stream(skip_control, false);
        for &id in ids {
            stream.push(id, &mut text);
        }
        stream.finish(&mut text);
        text
    }

    /// A decoder that gives text id by id. `skip_control` hides control tokens; with `barriers` the channel and tool
    /// markers end an open run of byte tokens even when hidden, so that held text lands on the right side of them.
    pub fn stream(&self, skip_control: bool, barriers: bool) -> StreamDecoder<'_> {
        StreamDecoder::new(self, skip_control, barriers)
    }
}

fn too_large(size: u64) -> Error {
    Error::damaged(FILE, format!("{size} bytes is more than the limit of {MAX_FILE}"))
}

fn open_source(path: &Path) -> Result<std::io::Take<File>> {
    let file = File::open(path).map_err(Error::io("open", path))?;
    let meta = file.metadata().map_err(Error::io("read", path))?;
    if !meta.is_file() {
        return Err(Error::damaged(FILE, "is not a regular file"));
    }
    if meta.len() > MAX_FILE {
        return Err(too_large(meta.len()));
    }
    Ok(file.take(MAX_FILE))
}

/// A reader that hashes what passes through.
struct Hashed<R> {
    inner: R,
    hash: Sha256,
}

impl<R: Read> Hashed<R> {
    fn new(inner: R) -> Self {
        Self { inner, hash: Sha256::new() }
    }

    fn finish(self) -> [u8; 32] {
        self.hash.finalize().into()
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hash.update(&buffer[..count]);
        Ok(count)
    }
}

/// Doors for fuzz targets to the compiled form.
#[cfg(fuzzing)]
pub mod fuzzing {
    use super::{Result, Sha256, Tokenizer, build, json, table};
    use sha2::Digest;
    use std::path::Path;

    /// The words of the compiled form of a `tokenizer.json`.
    pub fn compile(bytes: &[u8]) -> Result<Vec<u64>> {
        let parsed = json::parse(bytes).map_err(|error| error.into_error(Path::new(super::FILE)))?;
        build::build(parsed, &Sha256::digest(bytes).into())
    }

    /// Opens words under a right checksum as the cache would: `None` if they are no compiled form.
    pub fn open(mut words: Vec<u64>) -> Option<Tokenizer> {
        table::seal(&mut words);
        let sha256: [u8; 32] = bytemuck::cast_slice(words.get(4..8)?).try_into().ok()?;
        Tokenizer::from_table(table::Table::new(table::Storage::Heap(words), &sha256)?).ok()
    }
}
