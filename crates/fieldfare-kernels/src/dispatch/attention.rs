#![allow(unsafe_code)] // calls table functions after the checks, and gives workers disjoint parts of a result

//! Attention of a block of rows over keys and values: one definition for prompts and for generated tokens.
//!
//! Positions are cut into blocks of [`BLOCK`] at multiples of it, counted from the start of the text. What a query
//! sees of a block becomes one partial result, by itself:
//!
//! ```text
//! s_j = q . k_j       m = max s_j       p_j = exp(s_j - m)       l = sum p_j       o = sum p_j v_j
//! ```
//!
//! with dot products and sums in 16 lanes (element i, or the i-th visible position, in lane i % 16) and o in rising
//! order of j. The partial results are joined in rising order, from m = -inf, l = 0, o = 0:
//!
//! ```text
//! M = max(m, m')      l = fma(l, e(m - M), l' e(m' - M))         o = fma(o, e(m - M), o' e(m' - M))
//! ```
//!
//! and the result is o / l. Nothing of this depends on which rows are computed together, on where positions lie, or
//! on who computes what: a prompt in chunks of any length and a token by itself give the same bits. Rows that share a
//! pass share the loads of keys and values, and so do the query heads of a group; a single row's blocks are
//! spread over the pool.

use super::Kernels;
use super::integer::Start;
use crate::kv::KvSlice;
use crate::pool::Pool;
use std::ops::Range;

/// Positions of a block.
pub(crate) const BLOCK: usize = 128;
/// Queries (rows times heads of a group) that pass over a block together, as far as whole rows make it up.
const QUERIES: usize = 32;
/// Bytes of partial results before they are joined.
const PARTIALS: usize = 1 << 20;

/// Keys and values of one KV head at neighbouring positions.
#[derive(Debug, Clone, Copy)]
pub struct KvSpan<'a> {
    /// The first position.
    pub first: usize,
    /// One row of the head's width for each position, dense.
    pub keys: KvSlice<'a>,
    /// As many, in rows of the same width.
    pub values: KvSlice<'a>,
}

/// What a block of rows sees.
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    /// Query heads.
    pub heads: usize,
    /// KV heads, a divisor of `heads`: query head h uses KV head `h / (heads / kv_heads)`.
    pub kv_heads: usize,
    /// Elements of a head.
    pub width: usize,
    /// Position of the first row.
    pub first: usize,
    /// Number of rows; row r is at position `first + r` and sees up to itself.
    pub rows: usize,
    /// Positions that a row sees, itself included; `None` for all from 0 on.
    pub window: Option<usize>,
    /// For each KV head, one after the other, equally many spans: positions without gaps in rising order, from the
    /// oldest that the first row sees (or before) to the last row's own (or behind).
    pub spans: &'a [KvSpan<'a>],
}

/// Memory that [`Kernels::attend`] needs, to keep from call to call.
#[derive(Debug, Default)]
pub struct AttendScratch {
    workers: Vec<Worker>,
    /// Partial results of single rows: `[kv head][block][query][width]`.
    parts: Vec<f32>,
    /// Their m and l.
    sides: Vec<(f32, f32)>,
}

#[derive(Debug, Default)]
struct Worker {
    /// The queries of an item, dense.
    q: Vec<f32>,
    /// `[query][BLOCK]`.
    scores: Vec<f32>,
    /// `[query][width]`.
    part: Vec<f32>,
    /// m and l of each query: of a block, and joined.
    sides: Vec<(f32, f32)>,
    joined: Vec<(f32, f32)>,
}

impl AttendScratch {
    /// Nothing yet.
    pub fn new() -> AttendScratch {
        AttendScratch::default()
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        let floats = |w: &Worker| w.q.capacity() + w.scores.capacity() + w.part.capacity();
        let floats: usize = self.workers.iter().map(floats).sum::<usize>() + self.parts.capacity();
        let sides = |w: &Worker| w.sides.capacity() + w.joined.capacity();
        let sides: usize = self.workers.iter().map(sides).sum::<usize>() + self.sides.capacity();
        floats * 4 + sides * size_of::<(f32, f32)>()
    }

    /// Bytes that heads of this shape need at most on `threads` threads, however many rows and positions.
    pub fn bytes_for(heads: usize, kv_heads: usize, width: usize, threads: usize) -> usize {
        let kv_heads = kv_heads.max(1);
        let queries = queries_of(heads / kv_heads);
        let workers = threads * queries * (2 * width + BLOCK + 4) * 4;
        let block = kv_heads * queries * width * 4;
        // Fewer queries make smaller blocks, of which more are there: up to the same bytes.
        let parts = (wave(block, kv_heads, threads) * block).max(PARTIALS);
        workers + parts + parts / (width.max(1) * 4) * size_of::<(f32, f32)>()
    }
}

/// Queries of an item: whole rows of a group's heads.
fn queries_of(group: usize) -> usize {
    (QUERIES / group.max(1)).max(1) * group
}

/// Blocks whose partial results are there at a time: `block` bytes each for all KV heads.
fn wave(block: usize, kv_heads: usize, threads: usize) -> usize {
    (PARTIALS / block.max(1)).max((4 * threads).div_ceil(kv_heads))
}

impl Attention<'_> {
    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Positions that row `row` sees.
    fn seen(&self, row: usize) -> Range<usize> {
        let end = self.first + row + 1;
        self.window.map_or(0, |window| end.saturating_sub(window))..end
    }

    fn check(&self, q: &[f32], out: &[f32]) {
        let whole = self.width > 0 && self.kv_heads > 0 && self.heads.is_multiple_of(self.kv_heads);
        assert!(whole && self.heads > 0, "{} heads on {} of {}", self.heads, self.kv_heads, self.width);
        let len = self.rows.checked_mul(self.heads).and_then(|n| n.checked_mul(self.width));
        assert_eq!(Some(q.len()), len, "queries against {} rows of {}", self.rows, self.heads);
        assert_eq!(out.len(), q.len(), "results against queries");
        assert!(self.window != Some(0), "a window of nothing");
        assert!(self.first.checked_add(self.rows).is_some(), "positions beyond all numbers");
        assert!(self.spans.len().is_multiple_of(self.kv_heads), "spans of {} KV heads", self.kv_heads);
        if self.rows == 0 {
            return;
        }
        let needed = self.seen(0).start..self.first + self.rows;
        let each = self.spans.len() / self.kv_heads;
        for head in 0..self.kv_heads {
            let spans = &self.spans[head * each..][..each];
            let mut at = spans.first().map_or(usize::MAX, |span| span.first);
            assert!(at <= needed.start, "KV head {head}: no position {}", needed.start);
            for span in spans {
                assert_eq!(span.first, at, "KV head {head}: positions without gaps");
                assert_eq!(span.keys.len(), span.values.len(), "keys against values");
                assert!(span.keys.len().is_multiple_of(self.width), "whole keys");
                at += span.keys.len() / self.width;
            }
            assert!(at >= needed.end, "KV head {head}: positions up to {at} of {}", needed.end);
        }
    }

    /// Runs of the positions `range` in the spans of `head`: first position, keys, values.
    fn runs(
        &self,
        head: usize,
        range: Range<usize>,
    ) -> impl Iterator<Item = (usize, KvSlice<'_>, KvSlice<'_>)> {
        let each = self.spans.len() / self.kv_heads;
        let spans = &self.spans[head * each..][..each];
        let width = self.width;
        let from = spans.partition_point(|s| s.first + s.keys.len() / width <= range.start);
        spans[from..].iter().take_while(move |s| s.first < range.end).filter_map(move |s| {
            let start = range.start.max(s.first);
            let end = range.end.min(s.first + s.keys.len() / width);
            let part = (start - s.first) * width..(end.max(start) - s.first) * width;
            (start < end).then(|| (start, s.keys.part(part.clone()), s.values.part(part)))
        })
    }
}

/// Some rows of one KV head's group.
struct Item<'a> {
    a: &'a Attention<'a>,
    head: usize,
    rows: Range<usize>,
}

impl Item<'_> {
    fn queries(&self) -> usize {
        self.rows.len() * self.a.group()
    }

    /// First element of query `i`, in the order row, head, in `[row][head][width]`.
    fn place(&self, i: usize) -> usize {
        let (row, head) = (self.rows.start + i / self.a.group(), i % self.a.group());
        (row * self.a.heads + self.head * self.a.group() + head) * self.a.width
    }

    /// Blocks that any of the rows sees something of.
    fn blocks(&self) -> Range<usize> {
        self.a.seen(self.rows.start).start / BLOCK..(self.a.first + self.rows.end).div_ceil(BLOCK)
    }

    /// What row `row` sees of block `block`.
    fn seen(&self, row: usize, block: usize) -> Range<usize> {
        let seen = self.a.seen(row);
        seen.start.max(block * BLOCK)..seen.end.min((block + 1) * BLOCK)
    }

    fn gather(&self, q: &[f32], dense: &mut Vec<f32>) {
        dense.clear();
        dense.reserve_exact(self.queries() * self.a.width);
        for row in self.rows.clone() {
            let start = (row * self.a.heads + self.head * self.a.group()) * self.a.width;
            dense.extend_from_slice(&q[start..start + self.a.group() * self.a.width]);
        }
    }

    /// The results of all blocks into their places in `out`.
    ///
    /// # Safety
    /// The CPU has `kernels`' features, the attention has been checked, `w` is large enough, and nobody else uses the
    /// places of these rows and heads in `out`.
    unsafe fn whole(&self, kernels: &Kernels, q: &[f32], w: &mut Worker, out: &Start<f32>) {
        let (group, width) = (self.a.group(), self.a.width);
        self.gather(q, &mut w.q);
        // SAFETY: by the caller.
        let result = |i| unsafe { out.part(self.place(i)..self.place(i) + width) };
        for i in 0..self.queries() {
            w.joined[i] = (f32::NEG_INFINITY, 0.0);
            result(i).fill(0.0);
        }
        for block in self.blocks() {
            // SAFETY: by the caller.
            let rows = unsafe { self.block(kernels, block, &w.q, &mut w.scores, &mut w.part, &mut w.sides) };
            let first = (rows.start - self.rows.start) * group;
            for i in first..first + rows.len() * group {
                let part = &w.part[i * width..(i + 1) * width];
                // SAFETY: the CPU has the features; both are one row of a head.
                unsafe { (kernels.table.join)(&mut w.joined[i], result(i), w.sides[i], part) };
            }
        }
        for i in 0..self.queries() {
            result(i).iter_mut().for_each(|o| *o /= w.joined[i].1);
        }
    }

    /// The partial results of `block` into `part` and `sides`, those of rows that see nothing of it undefined;
    /// returns the rows that do.
    ///
    /// # Safety
    /// The CPU has `kernels`' features, and the attention has been checked.
    unsafe fn block(
        &self,
        kernels: &Kernels,
        block: usize,
        q: &[f32],
        scores: &mut [f32],
        part: &mut [f32],
        sides: &mut [(f32, f32)],
    ) -> Range<usize> {
        let (a, table) = (self.a, &kernels.table);
        let (group, width) = (a.group(), a.width);
        // Later rows see later positions: those with something to see follow one another.
        let sees = |row: &usize| !self.seen(*row, block).is_empty();
        let Some(first) = self.rows.clone().find(sees) else { return self.rows.start..self.rows.start };
        let last = self.rows.clone().rfind(sees).unwrap_or(first);
        let rows = first..last + 1;
        // Queries of a row, from that of the item's first one.
        let of =
            |rows: Range<usize>| (rows.start - self.rows.start) * group..(rows.end - self.rows.start) * group;
        let mine = of(rows.clone());
        let any = self.seen(first, block).start..self.seen(last, block).end;
        for (start, keys, values) in a.runs(self.head, any) {
            let (q, scores) = (&q[mine.start * width..mine.end * width], &mut scores[mine.start * BLOCK..]);
            // SAFETY: whole queries and keys; the scores have a row of BLOCK for each query.
            unsafe {
                (table.scores_many)(q, width, keys, values, &mut scores[start - block * BLOCK..], BLOCK);
            }
        }
        for row in rows.clone() {
            let seen = self.seen(row, block);
            for i in of(row..row + 1) {
                let at = i * BLOCK + seen.start - block * BLOCK;
                // SAFETY: the CPU has the features.
                sides[i] = unsafe { (table.exps)(&mut scores[at..at + seen.len()]) };
            }
        }
        part[mine.start * width..mine.end * width].fill(0.0);
        let mut sum = |rows: Range<usize>, range: Range<usize>| {
            let i = of(rows);
            for (start, _, values) in a.runs(self.head, range) {
                let p = &scores[i.start * BLOCK + start - block * BLOCK..];
                // SAFETY: whole values and results; the scores have a row of BLOCK for each of them.
                unsafe {
                    let part = &mut part[i.start * width..i.end * width];
                    (table.weighted_many)(p, BLOCK, values, width, part);
                }
            }
        };
        // Positions that all rows see together, what only some see row by row; in rising order for each.
        let common = self.seen(last, block).start..self.seen(first, block).end;
        if common.is_empty() {
            rows.clone().for_each(|row| sum(row..row + 1, self.seen(row, block)));
        } else {
            rows.clone().for_each(|row| sum(row..row + 1, self.seen(row, block).start..common.start));
            sum(rows.clone(), common.clone());
            rows.clone().for_each(|row| sum(row..row + 1, common.end..self.seen(row, block).end));
        }
        rows
    }
}

impl Kernels {
    /// Attention of all rows and heads: `out[row][head] = sum_j softmax_j(q[row][head] . k_j) v_j` over the positions
    /// j that the row sees, unscaled; `q` and `out` are `[row][head][width]`. Keys and values of the rows themselves
    /// are among the spans.
    ///
    /// An element depends on its own query and the keys and values that it sees, at their positions: the same bits
    /// for all ways to cut a text into calls or keys and values into spans, every pool size and instruction set.
    /// Scores of `-inf` have no weight; where all are, or one is `+inf` or NaN, the result is NaN.
    ///
    /// # Panics
    /// If lengths differ from what `a` says, spans have gaps or do not cover what the rows see.
    pub fn attend(
        &self,
        pool: &Pool,
        a: &Attention<'_>,
        q: &[f32],
        scratch: &mut AttendScratch,
        out: &mut [f32],
    ) {
        a.check(q, out);
        let per_item = queries_of(a.group()) / a.group();
        let tiles = a.rows.div_ceil(per_item);
        let queries = a.rows.min(per_item) * a.group();
        scratch.workers.resize_with(pool.threads().max(scratch.workers.len()), Worker::default);
        for worker in &mut scratch.workers {
            grow(&mut worker.scores, queries * BLOCK, 0.0);
            grow(&mut worker.part, queries * a.width, 0.0);
            grow(&mut worker.sides, queries, (0.0, 0.0));
            grow(&mut worker.joined, queries, (0.0, 0.0));
        }
        if tiles == 1 && pool.threads() * 4 > a.kv_heads && pool.threads() > 1 {
            return self.attend_few(pool, a, q, scratch, out);
        }
        let (start, workers) = (Start::new(out), Start::new(&mut scratch.workers));
        // Neighbouring items have the same keys and values.
        pool.for_ranges(a.kv_heads * tiles, 1, |worker, items| {
            // SAFETY: there is a worker's scratch for each, and calls at the same time have different workers.
            let w = unsafe { &mut workers.part(worker..worker + 1)[0] };
            for index in items {
                let first = index % tiles * per_item;
                let rows = first..(first + per_item).min(a.rows);
                let item = Item { a, head: index / tiles, rows };
                // SAFETY: the CPU has this table's features, the attention was checked; the results of these rows
                // and heads are this item's alone.
                unsafe { item.whole(self, q, w, &start) };
            }
        });
    }

    /// [`Kernels::attend`] of so few rows that one item has them all: shared out by blocks.
    fn attend_few(
        &self,
        pool: &Pool,
        a: &Attention<'_>,
        q: &[f32],
        scratch: &mut AttendScratch,
        out: &mut [f32],
    ) {
        let whole = |head| Item { a, head, rows: 0..a.rows };
        let (queries, blocks) = (whole(0).queries(), whole(0).blocks());
        let each = queries * a.width;
        let wave = wave(a.kv_heads * each * 4, a.kv_heads, pool.threads()).min(blocks.len());
        grow(&mut scratch.parts, a.kv_heads * wave * each, 0.0);
        grow(&mut scratch.sides, a.kv_heads * wave * queries, (0.0, 0.0));
        let mut sums = vec![(f32::NEG_INFINITY, 0.0); a.kv_heads * queries];
        out.fill(0.0);
        let out = Start::new(out);
        let workers = Start::new(&mut scratch.workers);
        let (parts, sides) = (Start::new(&mut scratch.parts), Start::new(&mut scratch.sides));
        let total = Start::new(&mut sums);
        for first in blocks.clone().step_by(wave) {
            let count = wave.min(blocks.end - first);
            pool.run_parts(a.kv_heads * count, |worker, index| {
                let item = whole(index / count);
                // SAFETY: the CPU has this table's features, the attention was checked; there is a worker's scratch
                // for each worker, and calls at the same time have different ones; each index has its own parts.
                unsafe {
                    let w = &mut workers.part(worker..worker + 1)[0];
                    item.gather(q, &mut w.q);
                    let part = parts.part(index * each..(index + 1) * each);
                    let sides = sides.part(index * queries..(index + 1) * queries);
                    item.block(self, first + index % count, &w.q, &mut w.scores, part, sides);
                }
            });
            pool.for_ranges(a.kv_heads * queries, 1, |_, range| {
                for i in range {
                    let (head, i) = (i / queries, i % queries);
                    let (item, row) = (whole(head), i / a.group());
                    // SAFETY: nobody else has this query; the region before this one has filled the parts.
                    unsafe {
                        let side = &mut total.part(head * queries + i..head * queries + i + 1)[0];
                        let result = out.part(item.place(i)..item.place(i) + a.width);
                        for block in (0..count).filter(|b| !item.seen(row, first + b).is_empty()) {
                            let at = (head * count + block) * queries + i;
                            let part = parts.part(at * a.width..(at + 1) * a.width);
                            (self.table.join)(side, result, sides.part(at..at + 1)[0], part);
                        }
                        if first + count == blocks.end {
                            result.iter_mut().for_each(|o| *o /= side.1);
                        }
                    }
                }
            });
        }
    }
}

/// At least `len` elements.
fn grow<T: Copy>(buf: &mut Vec<T>, len: usize, fill: T) {
    if buf.len() < len {
        buf.reserve_exact(len - buf.len());
        buf.resize(len, fill);
    }
}
