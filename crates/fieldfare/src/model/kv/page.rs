//! [`Page`]: keys and values of neighbouring positions in one layer.

use super::KvType;
use crate::sys::buffer::Buffer;
use crate::{Error, Result};
use fieldfare_kernels::KvSlice;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of all pages of a model. Clones count together.
#[derive(Debug, Clone, Default)]
pub(in crate::model) struct Held(Arc<AtomicU64>);

impl Held {
    /// Bytes taken now.
    pub(in crate::model) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Keys, then values, each `[kv head][row][head_dim]`.
#[derive(Debug)]
pub(super) struct Page {
    data: Buffer,
    kind: KvType,
    held: Held,
}

impl Page {
    /// Zeros.
    ///
    /// # Errors
    /// The system has no such memory.
    pub(super) fn new(kind: KvType, bytes: usize, held: &Held) -> Result<Self> {
        let data = Buffer::new(bytes).map_err(|error| {
            Error::bad("memory", format!("cannot have {bytes} bytes of KV cache: {error}"))
        })?;
        held.0.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(Self { data, kind, held: held.clone() })
    }

    /// A copy in memory of its own.
    ///
    /// # Errors
    /// The system has no such memory.
    pub(super) fn copy(&self) -> Result<Self> {
        let mut copy = Self::new(self.kind, self.data.len(), &self.held)?;
        copy.data.copy_from_slice(&self.data);
        Ok(copy)
    }

    /// Elements `range`, for the kernels.
    pub(super) fn slice(&self, range: Range<usize>) -> KvSlice<'_> {
        let bytes = &self.data[range.start * self.kind.bytes()..range.end * self.kind.bytes()];
        match self.kind {
            KvType::F32 => KvSlice::F32(bytemuck::cast_slice(bytes)),
            KvType::F16 => KvSlice::F16(bytemuck::cast_slice(bytes)),
        }
    }

    /// Overwrites the elements from `at` on.
    pub(super) fn store(&mut self, at: usize, raw: &[u8]) {
        let at = at * self.kind.bytes();
        self.data[at..at + raw.len()].copy_from_slice(raw);
    }

    /// All bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.data
    }

    /// All bytes, to be filled.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.held.0.fetch_sub(self.data.len() as u64, Ordering::Relaxed);
    }
}
