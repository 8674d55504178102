//! The merge loop.
//!
//! Every space becomes U+2581, every character its one-character token or its byte tokens, and then the pair of the
//! lowest rank merges, leftmost first, until none is left. Merges never reach across two characters that no
//! merged token holds side by side, so text is cut at such places first and each stretch is merged alone: the result
//! is the same and the stretches are short. A long stretch takes a heap, so nothing is quadratic.

use super::SPACE_MARK;
use super::table::{NONE, View};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Stretches up to this many symbols are merged by scanning for the lowest rank.
const SHORT: usize = 40;
/// A stretch longer than this is cut wherever it may be: positions have 32 bits. (Four billion characters that
/// could be one word.)
const LONGEST: usize = u32::MAX as usize - 8;

/// One encoding in progress: a view of the table and room to work in.
pub(super) struct Encoder<'a> {
    view: View<'a>,
    symbols: Vec<u32>,
    ranks: Vec<u32>,
    links: Vec<Link>,
    heap: BinaryHeap<Reverse<u64>>,
}

/// Neighbours of a symbol in a long stretch.
#[derive(Clone, Copy)]
struct Link {
    prev: u32,
    next: u32,
}

impl<'a> Encoder<'a> {
    pub(super) fn new(view: View<'a>) -> Self {
        Self { view, symbols: Vec::new(), ranks: Vec::new(), links: Vec::new(), heap: BinaryHeap::new() }
    }

    /// Appends the ids of a text without control tokens.
    pub(super) fn encode(&mut self, text: &str, out: &mut Vec<u32>) {
        let mut before: Option<char> = None;
        for (at, c) in text.char_indices() {
            let c = if c == ' ' { SPACE_MARK } else { c };
            if let Some(id) = self.view.char_id(c) {
                if before.is_some_and(|before| self.may_cut(before, c, text, at)) {
                    self.flush(out);
                }
                self.symbols.push(id);
                before = Some(c);
            } else {
                let mut buffer = [0; 4];
                let bytes = c.encode_utf8(&mut buffer).bytes();
                if self.view.bytes_merge {
                    self.symbols.extend(bytes.map(|byte| self.view.byte_id(byte)));
                } else {
                    self.flush(out);
                    out.extend(bytes.map(|byte| self.view.byte_id(byte)));
                }
                before = None;
            }
            if self.symbols.len() >= LONGEST {
                self.flush(out);
            }
        }
        self.flush(out);
    }

    /// Whether no merge can reach across the place between `before` and `c`, the character at byte `at`.
    #[inline]
    fn may_cut(&self, before: char, c: char, text: &str, at: usize) -> bool {
        if !self.view.may_join(before, c) {
            return true;
        }
        c == SPACE_MARK && before != SPACE_MARK && self.view.exceptions_known && !self.exception_at(text, at)
    }

    /// Whether one of the few tokens with U+2581 behind another character lies across byte `at` of the text.
    fn exception_at(&self, text: &str, at: usize) -> bool {
        let (left, right) = text.split_at(at);
        self.view.exceptions.iter().filter_map(|&id| self.view.piece(id)).any(|piece| {
            piece.match_indices(SPACE_MARK).any(|(middle, _)| {
                let (head, tail) = piece.split_at(middle);
                same(head.chars().rev(), left.chars().rev()) && same(tail.chars(), right.chars())
            })
        })
    }

    /// Merges the stretch collected so far.
    fn flush(&mut self, out: &mut Vec<u32>) {
        match self.symbols.len() {
            0 => return,
            1 => {}
            2..=SHORT => self.merge_short(),
            _ => self.merge_long(),
        }
        out.append(&mut self.symbols);
    }

    fn merge_short(&mut self) {
        let Self { view, symbols, ranks, .. } = self;
        ranks.clear();
        ranks.extend(symbols.windows(2).map(|pair| view.rank(pair[0], pair[1])));
        loop {
            let mut at = 0;
            let mut lowest = NONE;
            for (index, &rank) in ranks.iter().enumerate() {
                if rank < lowest {
                    (at, lowest) = (index, rank);
                }
            }
            if lowest == NONE {
                return;
            }
            symbols[at] = view.result(lowest);
            symbols.remove(at + 1);
            ranks.remove(at);
            if at > 0 {
                ranks[at - 1] = view.rank(symbols[at - 1], symbols[at]);
            }
            if at < ranks.len() {
                ranks[at] = view.rank(symbols[at], symbols[at + 1]);
            }
        }
    }

    fn merge_long(&mut self) {
        let Self { view, symbols, links, heap, .. } = self;
        let count = symbols.len() as u32;
        links.clear();
        links.extend((0..count).map(|at| Link { prev: at.wrapping_sub(1), next: at + 1 }));
        let entry = |rank: u32, at: u32| Reverse(u64::from(rank) << 32 | u64::from(at));
        let mut entries = std::mem::take(heap).into_vec();
        entries.clear();
        entries.extend(symbols.windows(2).zip(0..).filter_map(|(pair, at)| {
            let rank = view.rank(pair[0], pair[1]);
            (rank != NONE).then(|| entry(rank, at))
        }));
        *heap = BinaryHeap::from(entries);
        while let Some(Reverse(lowest)) = heap.pop() {
            let (rank, at) = ((lowest >> 32) as u32, lowest as u32);
            let Link { prev, next } = links[at as usize];
            // A symbol merged away has no token; then, or when a neighbour has merged, the entry is out of date.
            if symbols[at as usize] == NONE || next >= count {
                continue;
            }
            let now = view.rank(symbols[at as usize], symbols[next as usize]);
            if now == NONE || view.result(now) != view.result(rank) {
                continue;
            }
            let merged = view.result(rank);
            symbols[at as usize] = merged;
            symbols[next as usize] = NONE;
            let after = links[next as usize].next;
            links[at as usize].next = after;
            if after < count {
                links[after as usize].prev = at;
                let rank = view.rank(merged, symbols[after as usize]);
                if rank != NONE {
                    heap.push(entry(rank, at));
                }
            }
            if prev < count {
                let rank = view.rank(symbols[prev as usize], merged);
                if rank != NONE {
                    heap.push(entry(rank, prev));
                }
            }
        }
        symbols.retain(|&symbol| symbol != NONE);
    }
}

/// Whether a text (spaces as they are) begins with the characters of a piece.
fn same(piece: impl Iterator<Item = char>, mut text: impl Iterator<Item = char>) -> bool {
    for wanted in piece {
        let found = text.next().map(|c| if c == ' ' { SPACE_MARK } else { c });
        if found != Some(wanted) {
            return false;
        }
    }
    true
}
