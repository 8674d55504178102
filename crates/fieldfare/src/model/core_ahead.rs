//! Reading the mapped core ahead: a thread that has the resident weights read in the order in which the first pass uses
//! them, so that the disk has work while the first layers are computed.
//!
//! Faulted in by whoever needs them, their pages would come while nothing else is read, and everything would wait. The
//! thread asks for some megabytes beyond those it waits for, no more: experts are read from the same disk meanwhile. It
//! ends when all is there, at the first page that cannot be read (whoever needs that one will find out), or with the model.

use crate::format::{IndexEntry, ModelDir};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Bytes that are waited for at once.
const STEP: usize = 4 << 20;
/// Steps that are asked for beyond the one that is waited for.
const AHEAD: usize = 2;

/// The thread.
pub(super) struct CoreAhead {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl CoreAhead {
    /// Starts it. `None` if the system gives no thread: the pages then come when they are touched.
    pub(super) fn start(dir: &Arc<ModelDir>) -> Option<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (dir, stopped) = (Arc::clone(dir), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("core-ahead".to_owned())
            .stack_size(128 << 10)
            .spawn(move || read(&dir, &stopped))
            .ok()?;
        Some(Self { stop, thread: Some(thread) })
    }
}

impl Drop for CoreAhead {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

fn read(dir: &ModelDir, stop: &AtomicBool) {
    let map = dir.resident().map();
    let steps: Vec<Range<usize>> = order(&dir.index().entries).into_iter().flat_map(steps_of).collect();
    for step in steps.iter().take(AHEAD) {
        map.will_need(step.clone());
    }
    for (at, step) in steps.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        if let Some(next) = steps.get(at + AHEAD) {
            map.will_need(next.clone());
        }
        match map.populate(step.clone()) {
            Ok(()) => {}
            // All that can be done here is to ask.
            Err(error) if is_unsupported(&error) => {}
            Err(_) => return,
        }
    }
}

fn is_unsupported(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::Unsupported | std::io::ErrorKind::InvalidInput)
}

/// A range in steps.
fn steps_of(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(STEP).map(move |start| start..end.min(start + STEP))
}

/// The file's bytes in the order of their use: layer by layer, as they lie, then what belongs to none (the embedding,
/// of which a prompt takes a few rows, is the head at the end of the pass). Neighbours make one range.
fn order(entries: &[IndexEntry]) -> Vec<Range<usize>> {
    let mut parts: Vec<(usize, Range<u64>)> = entries
        .iter()
        .flat_map(|entry| {
            let layer = layer_of(&entry.name).unwrap_or(usize::MAX);
            [&entry.data, &entry.scales, &entry.biases].map(|range| (layer, range.clone()))
        })
        .filter(|(_, range)| !range.is_empty())
        .collect();
    parts.sort_by_key(|(layer, range)| (*layer, range.start));
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (_, part) in parts {
        let (Ok(start), Ok(end)) = (usize::try_from(part.start), usize::try_from(part.end)) else { continue };
        match ranges.last_mut() {
            // What lies between two tensors is less than it would cost to leave it out.
            Some(last) if start >= last.end && start - last.end < STEP => last.end = end,
            _ => ranges.push(start..end),
        }
    }
    ranges
}

/// The number after `layers.` in a tensor's name.
fn layer_of(name: &str) -> Option<usize> {
    let (_, rest) = name.split_once("layers.")?;
    rest.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::DType;

    fn entry(name: &str, data: Range<u64>, scales: Range<u64>) -> IndexEntry {
        IndexEntry { name: name.into(), dtype: DType::U32, shape: [1, 1, 0, 0], data, scales, biases: 0..0 }
    }

    #[test]
    fn layers_in_order_then_the_rest_and_neighbours_together() {
        const MB: u64 = 1 << 20;
        let entries = [
            entry("m.embed.weight", 0..100 * MB, 100 * MB..101 * MB),
            entry("m.layers.10.q", 200 * MB..210 * MB, 210 * MB..211 * MB),
            entry("m.layers.2.q", 300 * MB..310 * MB, 0..0),
            entry("m.layers.2.k", 311 * MB..312 * MB, 0..0),
            entry("m.norm", 400 * MB..401 * MB, 0..0),
        ];
        let mb = |range: Range<usize>| range.start >> 20..range.end >> 20;
        let found: Vec<_> = order(&entries).into_iter().map(mb).collect();
        assert_eq!(found, [300..312, 200..211, 0..101, 400..401]);
        let steps: Vec<_> = steps_of(5..2 * STEP + 6).collect();
        assert_eq!(steps, [5..STEP + 5, STEP + 5..2 * STEP + 5, 2 * STEP + 5..2 * STEP + 6]);
        assert_eq!(
            (layer_of("a.layers.7.b"), layer_of("a.layers.x"), layer_of("norm")),
            (Some(7), None, None)
        );
    }
}
