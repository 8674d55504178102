//! [`Line`]: the pages of one layer.

use super::page::{Held, Page};
use super::{KvType, OwnKv};
use crate::Result;
use fieldfare_kernels::KvSlice;
use std::ops::Range;
use std::sync::Arc;

/// Positions of a page of a full layer.
const FULL_ROWS: usize = 256;
/// Pages of a window: one more is there while the window lies across their borders.
const WINDOW_PAGES: usize = 16;

/// The shape of a layer's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LineShape {
    pub(super) kind: KvType,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    /// Positions that a token sees, itself included; `None` for all.
    pub(super) window: Option<usize>,
    /// Positions of a page; the last of the context may have fewer.
    pub(super) page_rows: usize,
    pub(super) context: usize,
}

impl LineShape {
    pub(super) fn new(
        kind: KvType,
        kv_heads: usize,
        head_dim: usize,
        window: Option<usize>,
        context: usize,
    ) -> Self {
        let page_rows = window
            .map_or(FULL_ROWS, |window| (window / WINDOW_PAGES).clamp(1, FULL_ROWS).next_power_of_two());
        Self { kind, kv_heads, head_dim, window, page_rows, context }
    }

    /// Rows of a page.
    fn rows_of(&self, page: usize) -> usize {
        self.page_rows.min(self.context.saturating_sub(page * self.page_rows))
    }

    /// Bytes of a page.
    pub(super) fn bytes_of(&self, page: usize) -> usize {
        2 * self.rows_of(page) * self.kv_heads * self.head_dim * self.kind.bytes()
    }

    /// Bytes of so many neighbouring pages: the most that they may be.
    fn bytes_of_pages(&self, pages: usize) -> u64 {
        let row = (2 * self.kv_heads * self.head_dim * self.kind.bytes()) as u64;
        let rows = pages.saturating_mul(self.page_rows).min(self.context) as u64;
        row.saturating_mul(rows)
    }

    /// The pages that a token at `position` looks at, its own row not counted.
    pub(super) fn seen_from(&self, position: usize) -> Range<usize> {
        let start = self.window.map_or(0, |window| (position + 1).saturating_sub(window));
        start.min(position) / self.page_rows..position.div_ceil(self.page_rows)
    }

    /// Most pages of the window around one position.
    fn window_pages(&self) -> usize {
        self.window.map_or(usize::MAX, |window| (window - 1).div_ceil(self.page_rows) + 1)
    }

    /// Bytes of the pages for the positions before `positions`, where nothing has to be gone back to.
    pub(super) fn bytes_for(&self, positions: usize) -> u64 {
        self.bytes_of_pages(positions.div_ceil(self.page_rows).min(self.window_pages()))
    }

    /// Bytes that a line comes to at most on its way to `end` with the given points.
    pub(super) fn bytes_at_most(&self, end: usize, points: &[usize]) -> u64 {
        let all = end.div_ceil(self.page_rows);
        if self.window.is_none() {
            return self.bytes_of_pages(all);
        }
        let (mut pages, mut counted) = (self.window_pages(), 0);
        for &point in points.iter().filter(|&&point| point < end) {
            let seen = self.seen_from(point);
            pages = pages.saturating_add(seen.end.saturating_sub(seen.start.max(counted)));
            counted = seen.end;
        }
        self.bytes_of_pages(pages.min(all))
    }
}

/// A run of positions that lie together in one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) struct Span {
    page: usize,
    row: usize,
    /// Number of positions.
    pub(in crate::model) len: usize,
}

/// The cache of one layer.
#[derive(Debug, Clone)]
pub(in crate::model) struct Line {
    pub(super) shape: LineShape,
    /// By number; `None` where it was dropped.
    pub(super) pages: Vec<Option<Arc<Page>>>,
    /// Pages before this one are all dropped.
    first: usize,
}

impl Line {
    pub(super) fn new(shape: LineShape) -> Self {
        Self { shape, pages: Vec::new(), first: 0 }
    }

    /// The positions `range`, oldest first, as runs within pages.
    pub(in crate::model) fn spans(&self, range: Range<usize>) -> impl Iterator<Item = Span> + use<> {
        let rows = self.shape.page_rows;
        let mut at = range.start;
        std::iter::from_fn(move || {
            (at < range.end).then(|| {
                let row = at % rows;
                let len = (range.end - at).min(rows - row);
                let page = at / rows;
                at += len;
                Span { page, row, len }
            })
        })
    }

    /// Elements of the keys of a span in its page; the values have their own as far behind as [`Line::values_at`] says.
    fn elements(&self, span: Span, head: usize) -> Range<usize> {
        let start = (head * self.shape.rows_of(span.page) + span.row) * self.shape.head_dim;
        start..start + span.len * self.shape.head_dim
    }

    /// Elements of a page before its values.
    fn values_at(&self, page: usize) -> usize {
        self.shape.rows_of(page) * self.shape.kv_heads * self.shape.head_dim
    }

    fn page(&self, page: usize) -> &Page {
        self.pages[page].as_deref().expect("the window at the end of the text is never dropped")
    }

    /// Keys of one KV head: `span.len` rows of `head_dim`, dense.
    pub(in crate::model) fn keys(&self, span: Span, head: usize) -> KvSlice<'_> {
        self.page(span.page).slice(self.elements(span, head))
    }

    /// Values of one KV head: `span.len` rows of `head_dim`, dense.
    pub(in crate::model) fn values(&self, span: Span, head: usize) -> KvSlice<'_> {
        let (elements, values) = (self.elements(span, head), self.values_at(span.page));
        self.page(span.page).slice(values + elements.start..values + elements.end)
    }

    /// Stores the `rows` positions from `first` on, those that the next token or a token at one of `points` may look at;
    /// drops before that what none of them does.
    pub(super) fn append(
        &mut self,
        first: usize,
        rows: usize,
        own: &OwnKv,
        points: &[usize],
        held: &Held,
    ) -> Result<()> {
        let end = first + rows;
        let spans: Vec<Span> = self.spans(first..end).collect();
        if spans.last().is_some_and(|span| self.pages.get(span.page).is_none_or(Option::is_none)) {
            self.trim(end, points);
        }
        let mut from = 0;
        for span in spans {
            if self.is_needed(span.page, end, points) {
                self.store(span, (from, rows), own, held)?;
            }
            from += span.len;
        }
        Ok(())
    }

    /// Stores rows `from..` of `own`, which has `rows`, in the span.
    fn store(&mut self, span: Span, (from, rows): (usize, usize), own: &OwnKv, held: &Held) -> Result<()> {
        let (dim, values) = (self.shape.head_dim, self.values_at(span.page));
        let elements: Vec<usize> =
            (0..self.shape.kv_heads).map(|head| self.elements(span, head).start).collect();
        let page = self.writable(span.page, held)?;
        for (head, to) in elements.into_iter().enumerate() {
            let start = (head * rows + from) * dim;
            let source = start..start + span.len * dim;
            page.store(to, own.k.raw(source.clone()));
            page.store(values + to, own.v.raw(source));
        }
        Ok(())
    }

    /// A page that nobody else has: a new one, or a copy where others have it.
    fn writable(&mut self, page: usize, held: &Held) -> Result<&mut Page> {
        if self.pages.len() <= page {
            self.pages.resize(page + 1, None);
        }
        let slot = &mut self.pages[page];
        // What is there stays until its copy is made: without memory for one nothing is lost.
        match slot {
            None => *slot = Some(Arc::new(Page::new(self.shape.kind, self.shape.bytes_of(page), held)?)),
            Some(shared) => {
                if Arc::get_mut(shared).is_none() {
                    *shared = Arc::new(shared.copy()?);
                }
            }
        }
        Ok(slot.as_mut().and_then(Arc::get_mut).expect("made, or found alone, just now"))
    }

    /// Puts a page in its place.
    pub(super) fn put(&mut self, page: usize, data: Page) {
        if self.pages.len() <= page {
            self.pages.resize(page + 1, None);
        }
        self.pages[page] = Some(Arc::new(data));
        self.first = self.first.min(page);
    }

    fn is_needed(&self, page: usize, end: usize, points: &[usize]) -> bool {
        self.shape.window.is_none()
            || self.shape.seen_from(end).contains(&page)
            || points.iter().any(|&point| self.shape.seen_from(point).contains(&page))
    }

    /// Drops the pages that neither the token at `end` nor one at a point looks at.
    pub(super) fn trim(&mut self, end: usize, points: &[usize]) {
        if self.shape.window.is_none() {
            return;
        }
        let mut first = None;
        for page in self.first..self.pages.len() {
            if self.pages[page].is_some() && !self.is_needed(page, end, points) {
                self.pages[page] = None;
            }
            if self.pages[page].is_some() {
                first.get_or_insert(page);
            }
        }
        self.first = first.unwrap_or(0);
    }

    /// Drops the pages behind `len` positions.
    pub(super) fn cut(&mut self, len: usize) {
        self.pages.truncate(len.div_ceil(self.shape.page_rows));
        self.first = self.first.min(self.pages.len());
    }

    /// The first position of the newest page that a token at `position` would look at and that is not there.
    pub(super) fn missing(&self, position: usize) -> Option<usize> {
        self.shape.window?;
        let gone = |&page: &usize| self.pages.get(page).is_none_or(Option::is_none);
        self.shape.seen_from(position).rev().find(gone).map(|page| page * self.shape.page_rows)
    }

    /// Bytes of the pages that nobody else has.
    pub(super) fn own_bytes(&self) -> u64 {
        let own = |(number, page): (usize, &Option<Arc<Page>>)| {
            page.as_ref()
                .filter(|page| Arc::strong_count(page) == 1)
                .map(|_| self.shape.bytes_of(number) as u64)
        };
        self.pages.iter().enumerate().skip(self.first).filter_map(own).sum()
    }

    /// Bytes that growing to `end` takes at most, were the pages that nobody else has taken again.
    pub(super) fn growth(&self, end: usize, points: &[usize]) -> i128 {
        let most = i128::from(self.shape.bytes_at_most(end, points));
        if self.shape.window.is_some() {
            return most - i128::from(self.own_bytes());
        }
        let there: usize = (0..self.pages.len()).map(|page| self.shape.bytes_of(page)).sum();
        // The last page may be shared, and is then copied.
        let last = self.pages.last().and_then(Option::as_ref).filter(|page| Arc::strong_count(page) > 1);
        let copied = last.map_or(0, |_| self.shape.bytes_of(self.pages.len() - 1));
        most - there as i128 + copied as i128
    }
}
