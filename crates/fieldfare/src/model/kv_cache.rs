//! Keys and values of the positions seen so far: rings of one window for sliding layers, a growing line for
//! full ones.
//!
//! Keys are stored after norm and rope at absolute positions, values after their norm; nothing is changed
//! when a ring wraps. Memory comes in pages of [`PAGE_ROWS`] positions, taken when the first of them is
//! stored, and never exceeds what the window or the context needs. Inside a page each KV head has its rows
//! together, so one head's attention is a forward stream.

use super::config::Config;
use fieldfare_kernels::{Kernels, KvSlice};
use std::ops::Range;

/// Positions of a page.
pub(super) const PAGE_ROWS: usize = 256;

/// How keys and values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KvType {
    /// IEEE half precision.
    F16,
    /// Single precision.
    F32,
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

    /// Copies elements `from` of a buffer of the same type to `at`.
    fn copy(&mut self, at: usize, other: &Self, from: Range<usize>) {
        match (self, other) {
            (Self::F32(to), Self::F32(data)) => to[at..at + from.len()].copy_from_slice(&data[from]),
            (Self::F16(to), Self::F16(data)) => to[at..at + from.len()].copy_from_slice(&data[from]),
            _ => unreachable!("one cache has one type"),
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

#[derive(Debug)]
struct Page {
    rows: usize,
    k: KvBuf,
    v: KvBuf,
}

/// A run of positions that lie together in one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    page: usize,
    row: usize,
    /// Number of positions.
    pub(super) len: usize,
}

/// The cache of one layer.
#[derive(Debug)]
pub(super) struct LayerKv {
    kind: KvType,
    kv_heads: usize,
    head_dim: usize,
    /// Rows of the ring, or of the line: position `p` is row `p % rows`.
    rows: usize,
    pages: Vec<Page>,
}

impl LayerKv {
    fn new(kind: KvType, kv_heads: usize, head_dim: usize, rows: usize) -> Self {
        Self { kind, kv_heads, head_dim, rows, pages: Vec::new() }
    }

    /// The positions `range`, oldest first, as runs within pages. All must be held: no more than the ring's
    /// rows.
    pub(super) fn spans(&self, range: Range<usize>) -> impl Iterator<Item = Span> {
        debug_assert!(range.len() <= self.rows);
        let rows = self.rows;
        let mut at = range.start;
        std::iter::from_fn(move || {
            (at < range.end).then(|| {
                let row = at % rows;
                let in_page = row % PAGE_ROWS;
                let len = (range.end - at).min(PAGE_ROWS - in_page).min(rows - row);
                at += len;
                Span { page: row / PAGE_ROWS, row: in_page, len }
            })
        })
    }

    fn elements(&self, span: Span, head: usize) -> Range<usize> {
        let start = (head * self.pages[span.page].rows + span.row) * self.head_dim;
        start..start + span.len * self.head_dim
    }

    /// Keys of one KV head: `span.len` rows of `head_dim`, dense.
    pub(super) fn keys(&self, span: Span, head: usize) -> KvSlice<'_> {
        self.pages[span.page].k.slice(self.elements(span, head))
    }

    /// Values of one KV head: `span.len` rows of `head_dim`, dense.
    pub(super) fn values(&self, span: Span, head: usize) -> KvSlice<'_> {
        self.pages[span.page].v.slice(self.elements(span, head))
    }

    /// Stores the `rows` positions from `first` on; of more than a ring's worth only the last remain.
    pub(super) fn append(&mut self, first: usize, rows: usize, own: &OwnKv) {
        let kept = rows.min(self.rows);
        let mut from = rows - kept;
        let spans: Vec<Span> = self.spans(first + from..first + rows).collect();
        for span in spans {
            self.grow(span.page);
            for head in 0..self.kv_heads {
                let to = self.elements(span, head).start;
                let start = (head * rows + from) * self.head_dim;
                let source = start..start + span.len * self.head_dim;
                let page = &mut self.pages[span.page];
                page.k.copy(to, &own.k, source.clone());
                page.v.copy(to, &own.v, source);
            }
            from += span.len;
        }
    }

    /// Takes pages up to and including `page`.
    fn grow(&mut self, page: usize) {
        while self.pages.len() <= page {
            let rows = PAGE_ROWS.min(self.rows - self.pages.len() * PAGE_ROWS);
            let elements = rows * self.kv_heads * self.head_dim;
            let buf = || KvBuf::zeroed(self.kind, elements);
            self.pages.push(Page { rows, k: buf(), v: buf() });
        }
    }

    /// Bytes of the pages for the positions before `positions`.
    fn bytes_for(&self, positions: usize) -> u64 {
        let rows = positions.min(self.rows).next_multiple_of(PAGE_ROWS).min(self.rows);
        let element = match self.kind {
            KvType::F16 => size_of::<u16>(),
            KvType::F32 => size_of::<f32>(),
        };
        let width = (self.kv_heads * self.head_dim * element) as u64;
        width.saturating_mul(2).saturating_mul(rows as u64)
    }

    fn bytes(&self) -> usize {
        self.pages.iter().map(|page| page.k.bytes() + page.v.bytes()).sum()
    }
}

/// The caches of all layers and how far they are filled.
#[derive(Debug)]
pub(super) struct KvCache {
    layers: Vec<LayerKv>,
    /// Rows of the shortest ring that can wrap; `usize::MAX` when none can.
    ring: usize,
    /// One past the newest position stored in any layer since the cache was last empty.
    high: usize,
}

impl KvCache {
    /// Empty caches for contexts of up to `max_context`.
    pub(super) fn new(config: &Config, kind: KvType, max_context: usize) -> Self {
        let mut ring = usize::MAX;
        let layers = config
            .layers
            .iter()
            .map(|&layer| {
                let rows = match config.window(layer) {
                    Some(window) if window < max_context => {
                        ring = ring.min(window);
                        window
                    }
                    _ => max_context,
                };
                LayerKv::new(kind, config.kv_heads(layer), config.head_width(layer), rows)
            })
            .collect();
        Self { layers, ring, high: 0 }
    }

    /// One layer's cache.
    pub(super) fn layer(&self, layer: usize) -> &LayerKv {
        &self.layers[layer]
    }

    /// Stores a pass's rows in one layer.
    pub(super) fn append(&mut self, layer: usize, first: usize, rows: usize, own: &OwnKv) {
        self.high = self.high.max(first + rows);
        self.layers[layer].append(first, rows, own);
    }

    /// The position to go on from when `len`, at most the present position, is wanted: `len` if everything
    /// that a token at `len` sees is still there, else 0. A token at `len` sees the `window - 1` positions
    /// before it.
    pub(super) fn rewind(&mut self, len: usize) -> usize {
        let oldest_kept = self.high.saturating_sub(self.ring);
        let oldest_needed = (len + 1).saturating_sub(self.ring);
        if len == 0 || oldest_needed < oldest_kept {
            self.high = 0;
            return 0;
        }
        if self.high <= self.ring {
            self.high = len;
        }
        len
    }

    /// Bytes taken once it has held so many positions.
    pub(super) fn bytes_for(&self, positions: usize) -> u64 {
        self.layers.iter().fold(0, |sum, layer| layer.bytes_for(positions).saturating_add(sum))
    }

    /// Bytes taken so far.
    pub(super) fn bytes(&self) -> usize {
        self.layers.iter().map(LayerKv::bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows whose every element is its position.
    fn own(first: usize, rows: usize, heads: usize, dim: usize) -> OwnKv {
        let data = |sign: f32| {
            (0..heads * rows * dim)
                .map(|i| sign * ((first + i / dim % rows) as f32 + 1000.0 * (i / dim / rows) as f32))
                .collect()
        };
        OwnKv { k: KvBuf::F32(data(1.0)), v: KvBuf::F32(data(-1.0)) }
    }

    fn positions(layer: &LayerKv, range: Range<usize>, head: usize) -> Vec<f32> {
        let mut found = Vec::new();
        for span in layer.spans(range) {
            let (KvSlice::F32(keys), KvSlice::F32(values)) =
                (layer.keys(span, head), layer.values(span, head))
            else {
                unreachable!("f32 cache")
            };
            for (key, value) in keys.chunks(layer.head_dim).zip(values.chunks(layer.head_dim)) {
                assert!(key.iter().all(|k| *k == key[0]) && value.iter().all(|v| *v == -key[0]));
                found.push(key[0] - 1000.0 * head as f32);
            }
        }
        found
    }

    fn expected(range: Range<usize>) -> Vec<f32> {
        range.map(|p| p as f32).collect()
    }

    #[test]
    fn rings_hold_the_last_window_in_order() {
        for window in [1, 5, 255, 256, 257, 600] {
            for chunk in [1, 3, window, window + 1, 2 * window + 7] {
                let mut layer = LayerKv::new(KvType::F32, 2, 3, window);
                let mut at = 0;
                while at < 3 * window + 11 {
                    layer.append(at, chunk, &own(at, chunk, 2, 3));
                    at += chunk;
                    let range = at.saturating_sub(window)..at;
                    assert_eq!(layer.bytes() as u64, layer.bytes_for(at));
                    for head in 0..2 {
                        assert_eq!(positions(&layer, range.clone(), head), expected(range.clone()));
                    }
                }
                assert_eq!(layer.bytes(), 2 * 4 * 2 * 3 * window, "window {window}");
            }
        }
    }

    #[test]
    fn memory_is_taken_page_by_page() {
        let mut layer = LayerKv::new(KvType::F16, 1, 2, 300);
        assert_eq!(layer.bytes(), 0);
        let kernels = Kernels::detect();
        let mut one = OwnKv::new(KvType::F16, 2);
        one.k.store(kernels, 0, &[1.0, -2.5]);
        assert!(matches!(one.k.slice(0..2), KvSlice::F16([0x3c00, 0xc100])));
        for (position, rows) in [(0, 256), (255, 256), (256, 300), (299, 300)] {
            layer.append(position, 1, &one);
            assert_eq!(layer.bytes(), rows * 2 * 2 * 2);
            assert_eq!(layer.bytes_for(position + 1), layer.bytes() as u64);
        }
    }

    fn cache(ring: usize) -> KvCache {
        let mut cache = KvCache { layers: vec![LayerKv::new(KvType::F32, 1, 1, ring)], ring, high: 0 };
        cache.append(0, 0, 3, &own(0, 3, 1, 1));
        cache
    }

    #[test]
    fn rewinding_before_and_after_a_wrap() {
        let mut cache = cache(8);
        assert_eq!(cache.rewind(2), 2);
        cache.append(0, 2, 6, &own(2, 6, 1, 1)); // 8 positions: full, nothing lost
        assert_eq!(cache.rewind(1), 1);
        cache.append(0, 1, 10, &own(1, 10, 1, 1)); // 11 positions: 3..=10 held
        assert_eq!(cache.rewind(10), 10, "a token at 10 sees 3..=9 and itself");
        assert_eq!(cache.rewind(9), 0, "a token at 9 would see 2");
    }

    #[test]
    fn a_rewind_does_not_bring_back_what_was_overwritten() {
        let mut cache = cache(8);
        cache.append(0, 3, 7, &own(3, 7, 1, 1)); // 10 positions: 2..=9 held
        assert_eq!(cache.rewind(9), 9);
        assert_eq!(cache.rewind(8), 0, "position 1 was overwritten by 9, though 9 was dropped");
    }
}
