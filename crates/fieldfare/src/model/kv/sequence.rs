//! [`Sequence`]: the caches of all layers for one text, and to where in it one can go back.

use super::page::Held;
use super::{Line, LineShape, OwnKv};
use crate::Result;
use std::sync::Arc;

/// Keys and values of one text. A clone shares the memory of what both have in common.
#[derive(Debug, Clone)]
pub struct Sequence {
    pub(super) lines: Vec<Line>,
    pub(super) shapes: Arc<[LineShape]>,
    pub(super) held: Held,
    /// Positions that every layer has seen.
    pub(super) end: usize,
    /// Positions to which the text may go back, ascending.
    pub(super) points: Vec<usize>,
}

impl Sequence {
    pub(super) fn new(shapes: Arc<[LineShape]>, held: Held) -> Self {
        let lines = shapes.iter().map(|&shape| Line::new(shape)).collect();
        Self { lines, shapes, held, end: 0, points: Vec::new() }
    }

    /// One layer's cache.
    pub(in crate::model) fn layer(&self, layer: usize) -> &Line {
        &self.lines[layer]
    }

    /// Stores a pass's rows in one layer.
    ///
    /// # Errors
    /// The system has no memory for them.
    pub(in crate::model) fn append(
        &mut self,
        layer: usize,
        first: usize,
        rows: usize,
        own: &OwnKv,
    ) -> Result<()> {
        self.lines[layer].append(first, rows, own, &self.points, &self.held)
    }

    /// Every layer has the rows before `end` now.
    pub(in crate::model) fn advance(&mut self, end: usize) {
        self.end = end;
    }

    /// The position of the next id.
    pub fn position(&self) -> usize {
        self.end
    }

    /// The largest position, at most `len`, from which one can go on: everything that a token there sees is held.
    pub fn reachable(&self, len: usize) -> usize {
        let mut at = len.min(self.end);
        while let Some(before) = self.lines.iter().filter_map(|line| line.missing(at)).min() {
            at = before;
        }
        at
    }

    /// Drops what is behind `len`, or behind the largest position before it from which one can go on; returns that.
    pub fn rewind(&mut self, len: usize) -> usize {
        let at = self.reachable(len);
        self.points.retain(|&point| point <= at);
        for line in &mut self.lines {
            line.cut(at);
            line.trim(at, &self.points);
        }
        self.end = at;
        at
    }

    /// The positions that are kept for going back, ascending.
    pub fn points(&self) -> &[usize] {
        &self.points
    }

    /// Keeps what is needed to go back to `at`, which may lie ahead, from now on. What is dropped already does not come
    /// back.
    pub fn mark(&mut self, at: usize) {
        if let Err(place) = self.points.binary_search(&at) {
            self.points.insert(place, at);
        }
    }

    /// Keeps it no more.
    pub fn unmark(&mut self, at: usize) {
        if let Ok(place) = self.points.binary_search(&at) {
            self.points.remove(place);
            self.trim();
        }
    }

    fn trim(&mut self) {
        for line in &mut self.lines {
            line.trim(self.end, &self.points);
        }
    }

    /// Bytes that no other sequence shares.
    pub fn own_bytes(&self) -> u64 {
        self.lines.iter().map(Line::own_bytes).sum()
    }

    /// Bytes that growing to `end` takes at most, were the pages that nobody else has taken again.
    pub(in crate::model) fn growth(&self, end: usize) -> i128 {
        self.lines.iter().map(|line| line.growth(end, &self.points)).sum()
    }

    /// What all sequences come to at most when this one has grown to `end`.
    pub(in crate::model) fn held_at(&self, end: usize) -> u64 {
        u64::try_from((i128::from(self.held.bytes()) + self.growth(end)).max(0)).unwrap_or(u64::MAX)
    }
}
