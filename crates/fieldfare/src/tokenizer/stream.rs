//! Ids to text, one at a time, without decoding anything twice (gemma4-chat.md, section 3).
//!
//! Byte tokens collect in a run, because several make one character. A run is shown whole when something visible
//! follows: as text if all of it is valid UTF-8, else as one U+FFFD for each byte. Once a run can no longer become
//! valid its bytes are shown at once.

use super::{SPACE_MARK, Tokenizer};
use std::str::from_utf8;

/// Turns a stream of ids into text. Made by [`Tokenizer::stream`].
#[derive(Debug)]
pub struct StreamDecoder<'a> {
    tokenizer: &'a Tokenizer,
    skip_control: bool,
    barriers: bool,
    /// Bytes of the open run that are not shown yet.
    run: Vec<u8>,
    /// The first `whole` of them are complete characters.
    whole: usize,
    /// The open run can no longer become valid.
    broken: bool,
}

impl<'a> StreamDecoder<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, skip_control: bool, barriers: bool) -> Self {
        Self { tokenizer, skip_control, barriers, run: Vec::new(), whole: 0, broken: false }
    }

    /// Appends to `out` the text that becomes certain with this id.
    pub fn push(&mut self, id: u32, out: &mut String) {
        let Some(piece) = self.tokenizer.piece(id) else { return };
        if self.skip_control && self.tokenizer.is_control(id) {
            if self.barriers && self.tokenizer.control.is_barrier(id) {
                self.end_run(out);
            }
            return;
        }
        if let Some(byte) = byte_of(piece) {
            self.push_byte(byte, out);
            return;
        }
        self.end_run(out);
        out.extend(piece.chars().map(|c| if c == SPACE_MARK { ' ' } else { c }));
    }

    /// Appends what is still held, and makes the decoder as new.
    pub fn finish(&mut self, out: &mut String) {
        self.end_run(out);
    }

    fn push_byte(&mut self, byte: u8, out: &mut String) {
        self.run.push(byte);
        if !self.broken {
            match from_utf8(&self.run[self.whole..]) {
                Ok(_) => self.whole = self.run.len(),
                // No length: the bytes are the beginning of a character.
                Err(error) => self.broken = error.error_len().is_some(),
            }
        }
        if self.broken {
            self.replace(out);
        }
    }

    fn end_run(&mut self, out: &mut String) {
        match from_utf8(&self.run) {
            Ok(text) => out.push_str(text),
            Err(_) => self.replace(out),
        }
        self.run.clear();
        self.whole = 0;
        self.broken = false;
    }

    fn replace(&mut self, out: &mut String) {
        out.extend(self.run.drain(..).map(|_| char::REPLACEMENT_CHARACTER));
        self.whole = 0;
    }
}

/// The byte that a piece such as `<0x0A>` stands for.
fn byte_of(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    let hex = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if hex { u8::from_str_radix(digits, 16).ok() } else { None }
}
