//! The compiled tokenizer: one block of 64-bit words that is looked up where it lies, on the heap or mapped.
//!
//! A header (magic, version, length, checksum, SHA-256 of the source, the places of the sections) and then the
//! sections, each 64-byte aligned, in this machine's byte order (a file of the other order fails the magic). The
//! checksum covers everything, so damage is found on load; look-ups still check their bounds, so that not even a
//! forged file can make them panic.

use crate::sys::map::Map;
use std::fmt;
use std::ops::Range;

/// Ids are below this: 20 bits of a merge slot.
pub(super) const MAX_IDS: usize = 1 << 20;
/// Ranks are below this: 24 bits of a merge slot, one value kept for the empty slot.
pub(super) const MAX_MERGES: usize = (1 << 24) - 1;
/// No id, no rank.
pub(super) const NONE: u32 = u32::MAX;
/// A slot of the merge table without a merge.
pub(super) const EMPTY_MERGE: u64 = u64::MAX;
/// Characters of one page of the character table.
pub(super) const PAGE: usize = 256;

/// Changes whenever the meaning of any word changes; part of the file's name in the cache.
pub(super) const VERSION: u64 = 1;
const MAGIC: u64 = u64::from_le_bytes(*b"FFTOKTAB");
/// Header words before the section places: magic, version, bytes, checksum, SHA-256 (4), ids, flags.
const FIXED: usize = 10;
const CHECKSUM_AT: usize = 3;
const HEADER: usize = (FIXED + 2 * SECTIONS).next_multiple_of(8);

/// Flag: some merge has a byte token as a part, so characters outside the vocabulary are no place to cut.
pub(super) const FLAG_BYTES_MERGE: u64 = 1;
/// Flag: [`Section::Exceptions`] lists all tokens in which U+2581 follows another character.
pub(super) const FLAG_EXCEPTIONS: u64 = 2;

/// The sections, in file order.
#[derive(Debug, Clone, Copy)]
pub(super) enum Section {
    /// Token texts by id, one after another (bytes).
    Text,
    /// Where each token's text begins, and the end of the last (u32, ids + 1). Empty texts are unused ids.
    Offsets,
    /// Hash table of texts: ids (u32, a power of two).
    Tokens,
    /// Hash table of merges: left id, right id, rank (u64: 20, 20, 24 bits; a power of two).
    Merges,
    /// The id that a merge makes, by rank (u32).
    Results,
    /// Page of the character table by code point / 256 (u32; 0 is the empty page).
    CharPages,
    /// Ids of one-character tokens, by page and code point % 256 (u32).
    CharIds,
    /// Ids of the byte tokens (u32, 256).
    ByteIds,
    /// Ids of the added tokens, rising (u32).
    Added,
    /// Bit 128a+b: ASCII characters a, b stand side by side in some merged token (u64, 256).
    AsciiPairs,
    /// The same for all other pairs, by hash: a set bit may be false, a clear bit is true (u64, a power of two).
    Pairs,
    /// Merged tokens in which U+2581 follows another character (u32).
    Exceptions,
}
pub(super) const SECTIONS: usize = 12;

/// Where the words lie.
pub(super) enum Storage {
    Heap(Vec<u64>),
    Mapped(Map),
}

impl Storage {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Heap(words) => bytemuck::cast_slice(words),
            Self::Mapped(map) => map.bytes(),
        }
    }
}

/// A checked compiled form.
pub(super) struct Table {
    storage: Storage,
    sections: [Range<usize>; SECTIONS],
    flags: u64,
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("bytes", &self.storage.bytes().len()).finish_non_exhaustive()
    }
}

impl Table {
    /// Checks a compiled form; `None` if it is not a whole one made from the source with this hash.
    pub(super) fn new(storage: Storage, sha256: &[u8; 32]) -> Option<Self> {
        let bytes = storage.bytes();
        let words: &[u64] = bytemuck::try_cast_slice(bytes).ok()?;
        let header = words.get(..HEADER)?;
        let known = header[0] == MAGIC && header[1] == VERSION && header[2] == bytes.len() as u64;
        if !known
            || bytemuck::cast_slice::<u64, u8>(&header[4..8]) != sha256
            || header[CHECKSUM_AT] != checksum(words)
        {
            return None;
        }
        let (ids, flags) = (usize::try_from(header[8]).ok()?, header[9]);
        let mut sections = [const { 0..0 }; SECTIONS];
        for (section, place) in sections.iter_mut().zip(header[FIXED..].chunks_exact(2)) {
            let start = usize::try_from(place[0]).ok()?;
            let end = start.checked_add(usize::try_from(place[1]).ok()?)?;
            if !start.is_multiple_of(64) || end > bytes.len() {
                return None;
            }
            *section = start..end;
        }
        let table = Self { storage, sections, flags };
        let view = table.view();
        let sound = view.len() == ids
            && view.byte_ids.len() == 256
            && view.char_pages.len() == 0x11_0000 / PAGE
            && view.ascii_pairs.len() == 256
            && [view.tokens.len(), view.merges.len(), view.pairs.len()]
                .iter()
                .all(|len| len.is_power_of_two());
        sound.then_some(table)
    }

    fn section<T: bytemuck::AnyBitPattern>(&self, section: Section) -> &[T] {
        let bytes = self.storage.bytes().get(self.sections[section as usize].clone()).unwrap_or_default();
        bytemuck::try_cast_slice(bytes).unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The sections as typed slices.
    pub(super) fn view(&self) -> View<'_> {
        View {
            text: self.section(Section::Text),
            offsets: self.section(Section::Offsets),
            tokens: self.section(Section::Tokens),
            merges: self.section(Section::Merges),
            results: self.section(Section::Results),
            char_pages: self.section(Section::CharPages),
            char_ids: self.section(Section::CharIds),
            byte_ids: self.section(Section::ByteIds),
            added: self.section(Section::Added),
            ascii_pairs: self.section(Section::AsciiPairs),
            pairs: self.section(Section::Pairs),
            exceptions: self.section(Section::Exceptions),
            bytes_merge: self.flags & FLAG_BYTES_MERGE != 0,
            exceptions_known: self.flags & FLAG_EXCEPTIONS != 0,
        }
    }
}

/// Look-ups in a compiled form.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    text: &'a [u8],
    offsets: &'a [u32],
    tokens: &'a [u32],
    merges: &'a [u64],
    results: &'a [u32],
    char_pages: &'a [u32],
    char_ids: &'a [u32],
    byte_ids: &'a [u32],
    added: &'a [u32],
    ascii_pairs: &'a [u64],
    pairs: &'a [u64],
    pub(super) exceptions: &'a [u32],
    pub(super) bytes_merge: bool,
    pub(super) exceptions_known: bool,
}

impl<'a> View<'a> {
    /// Number of ids.
    pub(super) fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// The text of a token.
    pub(super) fn piece(&self, id: u32) -> Option<&'a str> {
        let &[start, end, ..] = self.offsets.get(id as usize..)? else { return None };
        let bytes = self.text.get(start as usize..end as usize)?;
        if bytes.is_empty() { None } else { std::str::from_utf8(bytes).ok() }
    }

    /// The id of a text.
    pub(super) fn id_of(&self, piece: &str) -> Option<u32> {
        let mask = self.tokens.len().checked_sub(1)?;
        let mut slot = hash_text(piece.as_bytes()) as usize & mask;
        for _ in 0..=mask {
            let id = *self.tokens.get(slot)?;
            if id == NONE {
                return None;
            }
            if self.piece(id) == Some(piece) {
                return Some(id);
            }
            slot = (slot + 1) & mask;
        }
        None
    }

    /// Whether the id is an added token.
    pub(super) fn is_added(&self, id: u32) -> bool {
        self.added.binary_search(&id).is_ok()
    }

    /// The added tokens, by rising id.
    pub(super) fn added(&self) -> impl Iterator<Item = (u32, &'a str)> + use<'a> {
        let view = *self;
        view.added.iter().filter_map(move |&id| Some((id, view.piece(id)?)))
    }

    /// The one-character token of a character.
    #[inline]
    pub(super) fn char_id(&self, c: char) -> Option<u32> {
        let code = c as usize;
        let page = *self.char_pages.get(code / PAGE)? as usize;
        let id = *self.char_ids.get(page * PAGE + code % PAGE)?;
        (id != NONE).then_some(id)
    }

    /// The token of a byte.
    pub(super) fn byte_id(&self, byte: u8) -> u32 {
        self.byte_ids.get(usize::from(byte)).copied().unwrap_or(0)
    }

    /// The rank at which two tokens merge, [`NONE`] if they do not.
    #[inline]
    pub(super) fn rank(&self, left: u32, right: u32) -> u32 {
        let Some(mask) = self.merges.len().checked_sub(1) else { return NONE };
        let pair = pair_key(left, right);
        let mut slot = hash_pair(pair, self.merges.len());
        for _ in 0..=mask {
            match self.merges.get(slot) {
                Some(&found) if found == EMPTY_MERGE => return NONE,
                Some(&found) if found >> 24 == pair => return (found & 0xFF_FFFF) as u32,
                Some(_) => slot = (slot + 1) & mask,
                None => return NONE,
            }
        }
        NONE
    }

    /// The token that the merge of a rank makes.
    #[inline]
    pub(super) fn result(&self, rank: u32) -> u32 {
        self.results.get(rank as usize).copied().unwrap_or(NONE)
    }

    /// Whether some merged token may hold `a` directly before `b`. False is certain.
    #[inline]
    pub(super) fn may_join(&self, a: char, b: char) -> bool {
        let (words, bit) = if a.is_ascii() && b.is_ascii() {
            (self.ascii_pairs, (a as usize) << 7 | b as usize)
        } else {
            (self.pairs, hash_chars(a, b, self.pairs.len()))
        };
        words.get(bit / 64).is_none_or(|word| word >> (bit % 64) & 1 != 0)
    }
}

/// The upper 40 bits of a merge slot.
pub(super) fn pair_key(left: u32, right: u32) -> u64 {
    u64::from(left) << 20 | u64::from(right & 0xF_FFFF)
}

/// First slot of a pair in a table of `slots` (a power of two).
#[inline]
pub(super) fn hash_pair(pair: u64, slots: usize) -> usize {
    (pair.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & (slots - 1)
}

/// Bit of a pair of characters in a set of `words` words (a power of two).
#[inline]
pub(super) fn hash_chars(a: char, b: char, words: usize) -> usize {
    let key = u64::from(u32::from(a)) << 32 | u64::from(u32::from(b));
    let mixed = (key ^ key >> 29).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 32) as usize & (words * 64).wrapping_sub(1)
}

/// FNV-1a with a last mix; for token texts.
pub(super) fn hash_text(text: &[u8]) -> u64 {
    let hash = text.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    });
    hash ^ hash >> 32
}

/// Over all words but the checksum itself: four lanes of multiply and rotate. Each step is one to one in the word,
/// so any change of a single word shows; it guards against damage, not against forgery.
fn checksum(words: &[u64]) -> u64 {
    let mut lanes = [1_u64, 2, 3, 4];
    for (index, chunk) in words.chunks(4).enumerate() {
        for (at, (lane, &word)) in lanes.iter_mut().zip(chunk).enumerate() {
            let word = if index * 4 + at == CHECKSUM_AT { 0 } else { word };
            *lane = (*lane ^ word).wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(31);
        }
    }
    lanes.iter().fold(words.len() as u64, |sum, lane| {
        (sum ^ lane).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23)
    })
}

/// Puts sections together. `sections` in the order of [`Section`].
pub(super) fn assemble(sha256: &[u8; 32], ids: usize, flags: u64, sections: [&[u8]; SECTIONS]) -> Vec<u64> {
    let mut header = vec![0_u64; HEADER];
    let mut end = HEADER * 8;
    for (place, section) in header[FIXED..].chunks_exact_mut(2).zip(&sections) {
        place.copy_from_slice(&[end as u64, section.len() as u64]);
        end += section.len().next_multiple_of(64);
    }
    header[..3].copy_from_slice(&[MAGIC, VERSION, end as u64]);
    bytemuck::cast_slice_mut::<u64, u8>(&mut header[4..8]).copy_from_slice(sha256);
    header[8] = ids as u64;
    header[9] = flags;
    let mut words = header;
    words.resize(end / 8, 0);
    let starts: Vec<usize> =
        words[FIXED..].chunks_exact(2).take(SECTIONS).map(|place| place[0] as usize).collect();
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
    for (start, section) in starts.into_iter().zip(&sections) {
        bytes[start..start + section.len()].copy_from_slice(section);
    }
    words[CHECKSUM_AT] = checksum(&words);
    words
}

/// Gives words the right checksum, whatever they are.
#[cfg(fuzzing)]
pub(super) fn seal(words: &mut [u64]) {
    if words.len() > CHECKSUM_AT {
        words[CHECKSUM_AT] = checksum(words);
    }
}
