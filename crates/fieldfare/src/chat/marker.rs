//! The control tokens that the chat format writes, and the list of markers and text that a prompt is built
//! as.
//!
//! Text and markers never meet in one string before encoding: that is what keeps a `<turn|>` typed by a user
//! text.

use crate::tokenizer::{ControlTokens, Tokenizer};
use crate::{Error, Result};

/// A control token of the chat format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    Bos,
    TurnOpen,
    TurnClose,
    ToolOpen,
    ToolClose,
    CallOpen,
    CallClose,
    ResponseOpen,
    ResponseClose,
    Quote,
    Think,
    ChannelOpen,
    ChannelClose,
    Image,
    Audio,
    Video,
}

impl Marker {
    /// Its spelling.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Bos => "<bos>",
            Self::TurnOpen => "<|turn>",
            Self::TurnClose => "<turn|>",
            Self::ToolOpen => "<|tool>",
            Self::ToolClose => "<tool|>",
            Self::CallOpen => "<|tool_call>",
            Self::CallClose => "<tool_call|>",
            Self::ResponseOpen => "<|tool_response>",
            Self::ResponseClose => "<tool_response|>",
            Self::Quote => "<|\"|>",
            Self::Think => "<|think|>",
            Self::ChannelOpen => "<|channel>",
            Self::ChannelClose => "<channel|>",
            Self::Image => "<|image|>",
            Self::Audio => "<|audio|>",
            Self::Video => "<|video|>",
        }
    }

    /// Its id in this vocabulary; only media placeholders may be missing.
    pub(crate) fn id(self, control: &ControlTokens) -> Option<u32> {
        Some(match self {
            Self::Bos => control.bos,
            Self::TurnOpen => control.turn_open,
            Self::TurnClose => control.turn_close,
            Self::ToolOpen => control.tool_open,
            Self::ToolClose => control.tool_close,
            Self::CallOpen => control.call_open,
            Self::CallClose => control.call_close,
            Self::ResponseOpen => control.response_open,
            Self::ResponseClose => control.response_close,
            Self::Quote => control.quote,
            Self::Think => control.think,
            Self::ChannelOpen => control.channel_open,
            Self::ChannelClose => control.channel_close,
            Self::Image => return control.image,
            Self::Audio => return control.audio,
            Self::Video => return control.video,
        })
    }
}

/// A prompt before encoding: markers, and runs of text that are never neighbours.
#[derive(Debug, Default)]
pub(crate) struct Script {
    pieces: Vec<Piece>,
}

#[derive(Debug)]
enum Piece {
    Marker(Marker),
    Text(String),
}

impl Script {
    pub(crate) fn marker(&mut self, marker: Marker) {
        self.pieces.push(Piece::Marker(marker));
    }

    pub(crate) fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if let Some(Piece::Text(run)) = self.pieces.last_mut() {
            run.push_str(text);
        } else {
            self.pieces.push(Piece::Text(text.to_owned()));
        }
    }

    /// `text` between two quote markers, raw.
    pub(crate) fn quoted(&mut self, text: &str) {
        self.marker(Marker::Quote);
        self.text(text);
        self.marker(Marker::Quote);
    }

    pub(crate) fn append(&mut self, other: Self) {
        for piece in other.pieces {
            match piece {
                Piece::Marker(marker) => self.marker(marker),
                Piece::Text(text) => self.text(&text),
            }
        }
    }

    /// Whether anything but white space would be seen.
    pub(crate) fn is_blank(&self) -> bool {
        self.pieces.iter().all(|p| matches!(p, Piece::Text(t) if super::python::is_blank(t)))
    }

    /// The whole as text, markers spelled out.
    pub(crate) fn to_text(&self) -> String {
        self.pieces
            .iter()
            .map(|piece| match piece {
                Piece::Marker(marker) => marker.text(),
                Piece::Text(text) => text.as_str(),
            })
            .collect()
    }

    /// The whole as ids. Text is encoded run by run with control tokens not recognised.
    pub(crate) fn to_ids(&self, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Marker(marker) => ids.push(marker.id(tokenizer.control()).ok_or_else(|| {
                    Error::Unsupported(format!("this tokenizer has no token {}", marker.text()))
                })?),
                Piece::Text(text) => tokenizer.encode(text, &mut ids),
            }
        }
        Ok(ids)
    }
}
