//! Control tokens: their roles, and finding them in text.

use super::FILE;
use super::table::View;
use crate::{Error, Result};
use std::collections::HashMap;

/// The ids of Gemma 4's control tokens, found by their text among the file's added tokens.
///
/// The media tokens may be absent (a text-only file); the others must be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlTokens {
    /// `<pad>`
    pub pad: u32,
    /// `<eos>`: the end of the sequence; stops generation.
    pub eos: u32,
    /// `<bos>`: the first token of every prompt.
    pub bos: u32,
    /// `<unk>`
    pub unk: u32,
    /// `<mask>`
    pub mask: u32,
    /// `<|tool>`: a tool declaration begins.
    pub tool_open: u32,
    /// `<tool|>`: a tool declaration ends.
    pub tool_close: u32,
    /// `<|tool_call>`: the model calls a tool.
    pub call_open: u32,
    /// `<tool_call|>`: the end of the call.
    pub call_close: u32,
    /// `<|tool_response>`: a tool result begins; stops generation when the model writes it.
    pub response_open: u32,
    /// `<tool_response|>`: the end of the result.
    pub response_close: u32,
    /// `<|"|>`: around strings in declarations, calls and results.
    pub quote: u32,
    /// `<|think|>`: thinking on.
    pub think: u32,
    /// `<|channel>`: a channel begins.
    pub channel_open: u32,
    /// `<channel|>`: a channel ends.
    pub channel_close: u32,
    /// `<|turn>`: a turn begins.
    pub turn_open: u32,
    /// `<turn|>`: the turn ends; stops generation.
    pub turn_close: u32,
    /// `<|image>`: image embeddings begin.
    pub image_open: Option<u32>,
    /// `<|image|>`: the place of an image.
    pub image: Option<u32>,
    /// `<image|>`: image embeddings end.
    pub image_close: Option<u32>,
    /// `<|audio>`: audio embeddings begin.
    pub audio_open: Option<u32>,
    /// `<|audio|>`: the place of audio.
    pub audio: Option<u32>,
    /// `<audio|>`: audio embeddings end.
    pub audio_close: Option<u32>,
    /// `<|video|>`: the place of a video.
    pub video: Option<u32>,
}

impl ControlTokens {
    pub(super) fn find(matcher: &Matcher) -> Result<Self> {
        let some = |text: &str| matcher.ids.get(text.as_bytes()).copied();
        let must = |text: &str| {
            some(text).ok_or_else(|| {
                Error::Unsupported(format!("{FILE}: added_tokens has no control token {text}"))
            })
        };
        Ok(Self {
            pad: must("<pad>")?,
            eos: must("<eos>")?,
            bos: must("<bos>")?,
            unk: must("<unk>")?,
            mask: must("<mask>")?,
            tool_open: must("<|tool>")?,
            tool_close: must("<tool|>")?,
            call_open: must("<|tool_call>")?,
            call_close: must("<tool_call|>")?,
            response_open: must("<|tool_response>")?,
            response_close: must("<tool_response|>")?,
            quote: must("<|\"|>")?,
            think: must("<|think|>")?,
            channel_open: must("<|channel>")?,
            channel_close: must("<channel|>")?,
            turn_open: must("<|turn>")?,
            turn_close: must("<turn|>")?,
            image_open: some("<|image>"),
            image: some("<|image|>"),
            image_close: some("<image|>"),
            audio_open: some("<|audio>"),
            audio: some("<|audio|>"),
            audio_close: some("<audio|>"),
            video: some("<|video|>"),
        })
    }

    /// The ids that end generation: end of sequence, end of turn, and a tool result that the model begins to write.
    pub fn stop_ids(&self) -> Vec<u32> {
        vec![self.eos, self.turn_close, self.response_open]
    }

    /// The media tokens that the file has.
    pub fn media(&self) -> Vec<u32> {
        let media = [
            self.image_open,
            self.image,
            self.image_close,
            self.audio_open,
            self.audio,
            self.audio_close,
            self.video,
        ];
        media.into_iter().flatten().collect()
    }

    /// The ids that a text-only program may forbid before sampling: all media tokens and those that only a prompt
    /// has (padding, `<bos>`, `<unk>`, `<mask>`, tool declarations, the think mark, the start of a turn).
    pub fn suppressed(&self) -> Vec<u32> {
        let mut ids = self.media();
        ids.extend([self.pad, self.bos, self.unk, self.mask]);
        ids.extend([self.tool_open, self.tool_close, self.think, self.turn_open]);
        ids.sort_unstable();
        ids
    }

    /// Whether the id is one of the channel and tool markers that end a run of byte tokens.
    pub fn is_barrier(&self, id: u32) -> bool {
        let markers = [
            self.call_open,
            self.call_close,
            self.response_open,
            self.response_close,
            self.channel_open,
            self.channel_close,
        ];
        markers.contains(&id)
    }
}

/// Finds added tokens in text: leftmost, then longest.
#[derive(Debug)]
pub(super) struct Matcher {
    first: [bool; 256],
    /// Lengths in bytes, falling.
    lengths: Vec<usize>,
    ids: HashMap<Box<[u8]>, u32>,
}

impl Matcher {
    pub(super) fn new(view: &View<'_>) -> Self {
        let mut matcher = Self { first: [false; 256], lengths: Vec::new(), ids: HashMap::new() };
        for (id, piece) in view.added() {
            matcher.first[usize::from(piece.as_bytes()[0])] = true;
            matcher.lengths.push(piece.len());
            matcher.ids.insert(piece.as_bytes().into(), id);
        }
        matcher.lengths.sort_unstable_by(|a, b| b.cmp(a));
        matcher.lengths.dedup();
        matcher
    }

    /// Byte offset, byte length and id of the first token in the text. Both ends are character borders, since
    /// tokens are whole characters.
    pub(super) fn find(&self, text: &str) -> Option<(usize, usize, u32)> {
        let bytes = text.as_bytes();
        bytes.iter().enumerate().filter(|(_, byte)| self.first[usize::from(**byte)]).find_map(|(at, _)| {
            self.lengths.iter().find_map(|&len| {
                let id = *self.ids.get(bytes.get(at..at + len)?)?;
                Some((at, len, id))
            })
        })
    }
}
