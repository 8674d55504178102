//! Builds the compiled form (`table`) from a parsed file (`json`).

use super::json::Source;
use super::table::{
    EMPTY_MERGE, FLAG_BYTES_MERGE, FLAG_EXCEPTIONS, NONE, PAGE, assemble, hash_chars, hash_pair, hash_text,
    pair_key,
};
use super::{FILE, SPACE_MARK};
use crate::{Error, Result};
use std::collections::BTreeSet;

/// With more such tokens than this, no text is cut where one of them might be.
const MAX_EXCEPTIONS: usize = 64;
/// The same if one of them has more bytes: looking for it at every space of a text takes time with the square of its
/// length. The real ones have a few characters.
const MAX_EXCEPTION_BYTES: usize = 128;
/// Steps for each entry that filling a hash table may take. The tables are at most half full, so one or two are usual; a
/// file made so that its entries collide would take hours.
const MAX_STEPS: usize = 64;

/// The words of the compiled form.
pub(super) fn build(source: Source, sha256: &[u8; 32]) -> Result<Vec<u64>> {
    let (pieces, added) = Pieces::collect(&source)?;
    let char_table = CharTable::build(&pieces);
    let byte_ids = byte_ids(&pieces)?;
    let merges = Merges::build(&source, &pieces, &byte_ids)?;
    drop(source);
    let mut flags = if merges.bytes_merge { FLAG_BYTES_MERGE } else { 0 };
    let mut exceptions: Vec<u32> = merges.exceptions.into_iter().collect();
    // A token with byte parts does not read like the text it comes from, so it cannot be looked for there.
    let short = |id: &u32| pieces.piece(*id).len() <= MAX_EXCEPTION_BYTES;
    if exceptions.len() <= MAX_EXCEPTIONS && exceptions.iter().all(short) && !merges.bytes_merge {
        flags |= FLAG_EXCEPTIONS;
    } else {
        exceptions.clear();
    }
    let sections = [
        pieces.text.as_bytes(),
        bytemuck::cast_slice(&pieces.offsets),
        bytemuck::cast_slice(&pieces.slots),
        bytemuck::cast_slice(&merges.slots),
        bytemuck::cast_slice(&merges.results),
        bytemuck::cast_slice(&char_table.pages),
        bytemuck::cast_slice(&char_table.ids),
        bytemuck::cast_slice(&byte_ids),
        bytemuck::cast_slice(&added),
        bytemuck::cast_slice(&merges.ascii_pairs),
        bytemuck::cast_slice(&merges.pairs),
        bytemuck::cast_slice(&exceptions),
    ];
    Ok(assemble(sha256, pieces.len(), flags, sections))
}

fn damaged(field: impl std::fmt::Display, reason: impl Into<String>) -> Error {
    Error::damaged(format!("{FILE}: {field}"), reason)
}

/// Counts the steps of filling one hash table.
struct Steps {
    left: usize,
    field: &'static str,
}

impl Steps {
    fn new(entries: usize, field: &'static str) -> Self {
        Self { left: 1_024 + entries.saturating_mul(MAX_STEPS), field }
    }

    fn take(&mut self) -> Result<()> {
        self.left = self.left.checked_sub(1).ok_or_else(|| {
            damaged(self.field, "its entries collide: no tokenizer that was trained has that")
        })?;
        Ok(())
    }
}

/// Token texts in the order of ids, and the hash table over them.
struct Pieces {
    text: String,
    offsets: Vec<u32>,
    slots: Vec<u32>,
    /// Ids of added tokens that are not in `model.vocab`: text is never split into them.
    outside: BTreeSet<u32>,
}

impl Pieces {
    /// The pieces, and the ids of the added tokens, rising.
    fn collect(source: &Source) -> Result<(Self, Vec<u32>)> {
        let largest =
            source.ids.iter().copied().chain(source.added.iter().map(|token| token.id as u32)).max();
        let len = largest.ok_or_else(|| damaged("model.vocab", "is empty"))? as usize + 1;
        // Entry of an id: index into the vocabulary, then into the added tokens.
        let mut entries = vec![NONE; len];
        for (entry, &id) in source.ids.iter().enumerate() {
            if entries[id as usize] != NONE {
                let first = source.tokens.get(entries[id as usize] as usize);
                let second = source.tokens.get(entry);
                return Err(damaged("model.vocab", format!("id {id} is given to {first:?} and {second:?}")));
            }
            entries[id as usize] = entry as u32;
        }
        let mut outside = BTreeSet::new();
        let mut added = BTreeSet::new();
        for (index, token) in source.added.iter().enumerate() {
            let (id, field) = (token.id as u32, format_args!("added_tokens[{index}]").to_string());
            if token.content.is_empty() {
                return Err(damaged(field, "an empty token"));
            }
            if !added.insert(id) {
                return Err(damaged(field, format!("id {id} is given twice")));
            }
            let entry = entries[id as usize];
            if entry == NONE {
                entries[id as usize] = (source.ids.len() + index) as u32;
                outside.insert(id);
            } else if source.tokens.get(entry as usize) != token.content {
                let other = source.tokens.get(entry as usize);
                return Err(damaged(
                    field,
                    format!("{:?} has id {id}, which model.vocab gives to {other:?}", token.content),
                ));
            }
        }
        let mut pieces =
            Self { text: String::new(), offsets: Vec::with_capacity(len + 1), slots: Vec::new(), outside };
        for &entry in &entries {
            pieces.offsets.push(pieces.text.len() as u32);
            let entry = entry as usize;
            if entry < source.ids.len() {
                pieces.text.push_str(source.tokens.get(entry));
            } else if let Some(token) =
                entry.checked_sub(source.ids.len()).and_then(|index| source.added.get(index))
            {
                pieces.text.push_str(&token.content);
            }
        }
        pieces.offsets.push(pieces.text.len() as u32);
        pieces.index()?;
        Ok((pieces, added.into_iter().collect()))
    }

    /// Fills the hash table.
    fn index(&mut self) -> Result<()> {
        let size = (self.len() * 2).next_power_of_two();
        let mut slots = vec![NONE; size];
        let mut steps = Steps::new(self.len(), "model.vocab");
        for id in 0..self.len() as u32 {
            let piece = self.piece(id);
            if piece.is_empty() {
                continue;
            }
            let mut slot = hash_text(piece.as_bytes()) as usize & (size - 1);
            while slots[slot] != NONE {
                if self.piece(slots[slot]) == piece {
                    return Err(damaged(
                        "model.vocab",
                        format!("{piece:?} has ids {} and {id}", slots[slot]),
                    ));
                }
                slot = (slot + 1) & (size - 1);
                steps.take()?;
            }
            slots[slot] = id;
        }
        self.slots = slots;
        Ok(())
    }

    fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The text of an id below `len`; empty if unused.
    fn piece(&self, id: u32) -> &str {
        &self.text[self.offsets[id as usize] as usize..self.offsets[id as usize + 1] as usize]
    }

    fn id_of(&self, piece: &str) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut slot = hash_text(piece.as_bytes()) as usize & mask;
        // At most half of the slots are taken.
        while self.slots[slot] != NONE {
            if self.piece(self.slots[slot]) == piece {
                return Some(self.slots[slot]);
            }
            slot = (slot + 1) & mask;
        }
        None
    }
}

/// The ids of `<0x00>` to `<0xFF>`.
fn byte_ids(pieces: &Pieces) -> Result<Vec<u32>> {
    (0..=255_u8)
        .map(|byte| {
            let name = format!("<0x{byte:02X}>");
            pieces
                .id_of(&name)
                .filter(|id| !pieces.outside.contains(id))
                .ok_or_else(|| Error::Unsupported(format!("{FILE}: model.vocab has no byte token {name}")))
        })
        .collect()
}

/// Two-level table of the one-character tokens.
struct CharTable {
    pages: Vec<u32>,
    ids: Vec<u32>,
}

impl CharTable {
    fn build(pieces: &Pieces) -> Self {
        let mut table = Self { pages: vec![0; 0x11_0000 / PAGE], ids: vec![NONE; PAGE] };
        for id in 0..pieces.len() as u32 {
            let mut chars = pieces.piece(id).chars();
            if let (Some(c), None) = (chars.next(), chars.next())
                && !pieces.outside.contains(&id)
            {
                let page = &mut table.pages[c as usize / PAGE];
                if *page == 0 {
                    *page = (table.ids.len() / PAGE) as u32;
                    table.ids.resize(table.ids.len() + PAGE, NONE);
                }
                table.ids[*page as usize * PAGE + c as usize % PAGE] = id;
            }
        }
        table
    }
}

/// The merges, and what follows from them about where text may be cut.
struct Merges {
    slots: Vec<u64>,
    results: Vec<u32>,
    ascii_pairs: Vec<u64>,
    pairs: Vec<u64>,
    exceptions: BTreeSet<u32>,
    bytes_merge: bool,
}

impl Merges {
    fn build(source: &Source, pieces: &Pieces, byte_ids: &[u32]) -> Result<Self> {
        let count = source.merges.len() / 2;
        let slots = (count * 2).next_power_of_two();
        // 4 bits for each token keep false bits to a few in a hundred for the real vocabulary, in 128 KB.
        let pair_words = (pieces.len() / 16).next_power_of_two().clamp(64, 1 << 17);
        let mut merges = Self {
            slots: vec![EMPTY_MERGE; slots],
            results: Vec::with_capacity(count),
            ascii_pairs: vec![0; 256],
            pairs: vec![0; pair_words],
            exceptions: BTreeSet::new(),
            bytes_merge: false,
        };
        let byte_ids: BTreeSet<u32> = byte_ids.iter().copied().collect();
        let mut text = String::new();
        let mut steps = Steps::new(count, "model.merges");
        for rank in 0..count {
            let (left, right) = (source.merges.get(2 * rank), source.merges.get(2 * rank + 1));
            text.clear();
            text.push_str(left);
            text.push_str(right);
            let find = |part: &str| {
                pieces.id_of(part).filter(|id| !pieces.outside.contains(id)).ok_or_else(|| {
                    damaged(format_args!("model.merges[{rank}]"), format!("{part:?} is not in model.vocab"))
                })
            };
            let (left, right, result) = (find(left)?, find(right)?, find(&text)?);
            merges.bytes_merge |= byte_ids.contains(&left) || byte_ids.contains(&right);
            merges.insert(left, right, rank, &mut steps)?;
            merges.results.push(result);
            merges.note_pairs(&text, result);
        }
        Ok(merges)
    }

    /// A pair listed twice has its last rank, as in the `tokenizers` library.
    fn insert(&mut self, left: u32, right: u32, rank: usize, steps: &mut Steps) -> Result<()> {
        let pair = pair_key(left, right);
        let mut slot = hash_pair(pair, self.slots.len());
        while self.slots[slot] != EMPTY_MERGE && self.slots[slot] >> 24 != pair {
            slot = (slot + 1) & (self.slots.len() - 1);
            steps.take()?;
        }
        self.slots[slot] = pair << 24 | rank as u64;
        Ok(())
    }

    /// Notes which characters stand side by side in a merged token.
    fn note_pairs(&mut self, text: &str, result: u32) {
        let mut before: Option<char> = None;
        for c in text.chars() {
            if let Some(b) = before {
                let (words, bit) = if b.is_ascii() && c.is_ascii() {
                    (&mut self.ascii_pairs, (b as usize) << 7 | c as usize)
                } else {
                    let bit = hash_chars(b, c, self.pairs.len());
                    (&mut self.pairs, bit)
                };
                words[bit / 64] |= 1 << (bit % 64);
                if c == SPACE_MARK && b != SPACE_MARK && self.exceptions.len() <= MAX_EXCEPTIONS {
                    self.exceptions.insert(result);
                }
            }
            before = Some(c);
        }
    }
}
