//! Keys and values of the positions seen so far.
//!
//! Every layer has a line of pages by absolute position ([`Line`]), each a piece of memory that comes from the system and
//! goes back to it. A full layer keeps all of them. A sliding layer drops those that nothing will look at again: what the
//! window shows at the present end, and at the *points* to which the text may have to go back, stays. So going back
//! needs no copy of anything overwritten: nothing ever is. Pages are shared between the sequences that have them in common
//! and copied when one of them is about to write ([`Sequence`]).
//!
//! Keys are stored after norm and rope, values after their norm. Inside a page each KV head has its rows together,
//! so one head's attention is a forward stream.

mod line;
mod page;
mod sequence;
mod stream;

pub(super) use line::Line;
pub(super) use page::Held;
pub use sequence::Sequence;

use super::config::Config;
use fieldfare_kernels::{Kernels, KvSlice};
use line::LineShape;
use std::ops::Range;
use std::sync::Arc;

/// How keys and values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KvType {
    /// IEEE half precision.
    F16,
    /// Single precision.
    F32,
}

impl KvType {
    /// Bytes of an element.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::F16 => size_of::<u16>(),
            Self::F32 => size_of::<f32>(),
        }
    }
}

/// A buffer of keys or values in one of the two types.
#[derive(Debug)]
pub(super) enum KvBuf {
    /// Single precision.
    F32(Vec<f32>),
    /// IEEE half precision, as bits.
    F16(Vec<u16>),
}

impl KvBuf {
    /// `len` zeros.
    pub(super) fn zeroed(kind: KvType, len: usize) -> Self {
        match kind {
            KvType::F32 => Self::F32(vec![0.0; len]),
            KvType::F16 => Self::F16(vec![0; len]),
        }
    }

    /// Elements `range`, for the kernels.
    pub(super) fn slice(&self, range: Range<usize>) -> KvSlice<'_> {
        match self {
            Self::F32(data) => KvSlice::F32(&data[range]),
            Self::F16(data) => KvSlice::F16(&data[range]),
        }
    }

    /// Stores `values` from element `at` on, rounded to the buffer's type.
    pub(super) fn store(&mut self, kernels: &Kernels, at: usize, values: &[f32]) {
        match self {
            Self::F32(data) => data[at..at + values.len()].copy_from_slice(values),
            Self::F16(data) => kernels.to_f16(values, &mut data[at..at + values.len()]),
        }
    }

    /// The elements `range` as bytes.
    fn raw(&self, range: Range<usize>) -> &[u8] {
        match self {
            Self::F32(data) => bytemuck::cast_slice(&data[range]),
            Self::F16(data) => bytemuck::cast_slice(&data[range]),
        }
    }

    /// Bytes of the buffer.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::F32(data) => data.len() * 4,
            Self::F16(data) => data.len() * 2,
        }
    }
}

/// Keys and values of the rows of one pass in one layer, before they go to the cache: `[kv
/// head][row][head_dim]`.
#[derive(Debug)]
pub(super) struct OwnKv {
    /// Keys.
    pub(super) k: KvBuf,
    /// Values.
    pub(super) v: KvBuf,
}

impl OwnKv {
    /// Room for `elements` = rows x KV heads x head width.
    pub(super) fn new(kind: KvType, elements: usize) -> Self {
        Self { k: KvBuf::zeroed(kind, elements), v: KvBuf::zeroed(kind, elements) }
    }
}

/// The shape of a model's caches, and how much memory all of its sequences take.
#[derive(Debug, Clone)]
pub(super) struct KvCache {
    shapes: Arc<[LineShape]>,
    held: Held,
}

impl KvCache {
    /// Caches for contexts of up to `max_context`.
    pub(super) fn new(config: &Config, kind: KvType, max_context: usize) -> Self {
        let shapes = config
            .layers
            .iter()
            .map(|&layer| {
                let window = config.window(layer).filter(|&window| window < max_context);
                LineShape::new(kind, config.kv_heads(layer), config.head_width(layer), window, max_context)
            })
            .collect();
        Self { shapes, held: Held::default() }
    }

    /// An empty sequence.
    pub(super) fn sequence(&self) -> Sequence {
        Sequence::new(self.shapes.clone(), self.held.clone())
    }

    /// Bytes of a sequence of so many positions that goes back nowhere.
    pub(super) fn bytes_for(&self, positions: usize) -> u64 {
        self.shapes.iter().fold(0, |sum, shape| shape.bytes_for(positions).saturating_add(sum))
    }

    /// Bytes that all sequences take together.
    pub(super) fn bytes(&self) -> u64 {
        self.held.bytes()
    }
}

#[cfg(test)]
mod tests;
