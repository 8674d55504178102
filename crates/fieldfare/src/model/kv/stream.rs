//! A sequence as bytes and back. The bytes are of no use to a model of another shape; whoever keeps them checks that they
//! are whole and whose they are.

use super::page::Page;
use super::{KvCache, KvType, LineShape, Sequence};
use crate::{Error, Result};
use std::io::{self, Read, Write};

/// What a stream begins with: its name and version.
const MAGIC: &[u8; 8] = b"FFKV\0\0\0\x01";
/// Points of a text in a file at most; more would take for ever to give up.
const MOST_POINTS: usize = 64;

impl LineShape {
    fn words(&self) -> [u64; 6] {
        let kind = match self.kind {
            KvType::F16 => 2,
            KvType::F32 => 4,
        };
        [
            kind,
            self.kv_heads as u64,
            self.head_dim as u64,
            self.window.unwrap_or(0) as u64,
            self.page_rows as u64,
            self.context as u64,
        ]
    }
}

impl Sequence {
    /// Writes everything held.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(MAGIC)?;
        let word = |out: &mut dyn Write, word: u64| out.write_all(&word.to_le_bytes());
        word(out, self.end as u64)?;
        word(out, self.points.len() as u64)?;
        for &point in &self.points {
            word(out, point as u64)?;
        }
        word(out, self.lines.len() as u64)?;
        for line in &self.lines {
            for part in line.shape.words() {
                word(out, part)?;
            }
            word(out, line.pages.iter().flatten().count() as u64)?;
            for (number, page) in line.pages.iter().enumerate() {
                if let Some(page) = page {
                    word(out, number as u64)?;
                    out.write_all(page.bytes())?;
                }
            }
        }
        Ok(())
    }
}

impl KvCache {
    /// The sequence that [`Sequence::write`] wrote.
    ///
    /// # Errors
    /// [`Error::Damaged`] for anything else.
    pub(in crate::model) fn read(&self, from: &mut dyn Read) -> Result<Sequence> {
        let mut sequence = self.sequence();
        read_into(&mut sequence, from)?;
        Ok(sequence)
    }
}

fn bad(what: &str) -> Error {
    Error::damaged("saved conversation", what)
}

fn failed(error: &io::Error) -> Error {
    Error::damaged("saved conversation", format!("cannot be read: {error}"))
}

fn word(from: &mut dyn Read) -> Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes).map_err(|error| failed(&error))?;
    Ok(u64::from_le_bytes(bytes))
}

/// A count or position of at most `most`.
fn count(from: &mut dyn Read, most: usize, what: &str) -> Result<usize> {
    usize::try_from(word(from)?).ok().filter(|&count| count <= most).ok_or_else(|| bad(what))
}

fn read_into(sequence: &mut Sequence, from: &mut dyn Read) -> Result<()> {
    let mut magic = [0; 8];
    from.read_exact(&mut magic).map_err(|error| failed(&error))?;
    if &magic != MAGIC {
        return Err(bad("is of another version"));
    }
    let context = sequence.shapes.first().map_or(0, |shape| shape.context);
    let end = count(from, context, "has a position beyond the context")?;
    let points = count(from, end.min(MOST_POINTS), "has more points than a text has")?;
    for _ in 0..points {
        let point = count(from, end, "has a point beyond its end")?;
        sequence.mark(point);
    }
    if count(from, usize::MAX, "has no layers")? != sequence.lines.len() {
        return Err(bad("is of another model, or was kept with another --max-context"));
    }
    for layer in 0..sequence.lines.len() {
        let shape = sequence.shapes[layer];
        for expected in shape.words() {
            if word(from)? != expected {
                return Err(bad("is of another model, or was kept with another --max-context"));
            }
        }
        let all = end.div_ceil(shape.page_rows);
        let pages = count(from, all, "has more pages than positions")?;
        for _ in 0..pages {
            let number = count(from, all.saturating_sub(1), "has a page beyond its end")?;
            let mut page = Page::new(shape.kind, shape.bytes_of(number), &sequence.held)?;
            from.read_exact(page.bytes_mut()).map_err(|error| failed(&error))?;
            sequence.lines[layer].put(number, page);
        }
        let line = &sequence.lines[layer];
        let gone = |page: usize| line.pages.get(page).is_none_or(Option::is_none);
        if shape.window.is_none() && (0..all).any(gone) {
            return Err(bad("lacks pages"));
        }
    }
    sequence.end = end;
    Ok(())
}
