//! Several conversations at once: which of those that are kept a prompt goes on from, what is kept of the one that is left,
//! and what is given up when the memory is needed.
//!
//! A conversation is known by its ids. The model works on one; the others lie idle, last used last. Nearly every turn
//! diverges from what was generated, at the start of the previous answer; the place where a prompt's answer begins is
//! therefore a point to which its text can go back, and so is the end of its system turn, where other conversations may
//! diverge. A prompt takes what has the longest beginning in common with it and still can go back there. If that is
//! behind the newest point, the conversation goes on; if not, the prompt is a branch, an edit or another talk (the title of a
//! conversation, say), and the conversation stays beside it, sharing the memory of what they have in common.
//!
//! Texts that are being answered side by side are *out*: whoever works on them holds them, and they are neither present nor
//! idle. A prompt that shares its beginning with one of them goes on from a clone.
//!
//! Memory is given up in this order: older points of idle conversations, their ends, older points of this one, whole idle
//! conversations, the least recently used first, short ones before all others (to disk, where there is a folder for it), then
//! this one's own points.

use super::snapshots::Snapshots;
use crate::model::{Forward, Kept};
use serde::Serialize;
use std::hash::{DefaultHasher, Hasher};
use std::path::Path;

/// Ids before the end of a prompt at which it may have to go back: the empty thought in which it ends, and then some.
const SLACK: usize = 8;
/// Points of a conversation.
const POINTS: usize = 6;
/// Ids in common that any two chats have.
const FRAME: usize = 16;
/// Ids of a mark in the trace of a conversation that was given up.
const STRIDE: usize = 64;
/// Traces that are remembered.
const TRACES: usize = 64;
/// Ids from which a conversation is worth a file.
const WORTH_A_FILE: usize = 256;

/// How much of a prompt was at hand, and if not all of it that could be, why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reuse {
    /// It goes on from the newest point of a conversation, or behind it.
    Continued,
    /// It goes on from a conversation that was on disk.
    Restored,
    /// Nothing like it was kept.
    #[default]
    New,
    /// It differs from what was kept before the newest point: an edit, or a branch.
    Edited,
    /// More was the same, but what the windows showed there is not kept any more.
    Window,
    /// More was the same in a conversation that had to be given up.
    Evicted,
}

impl Reuse {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Continued, Self::Restored, Self::New, Self::Edited, Self::Window, Self::Evicted];

    /// As a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Continued => "continued",
            Self::Restored => "restored",
            Self::New => "new",
            Self::Edited => "edited",
            Self::Window => "window",
            Self::Evicted => "evicted",
        }
    }
}

/// What is kept at present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptConversations {
    /// Conversations in memory, the present one included.
    pub in_memory: usize,
    /// Conversations in files.
    pub on_disk: usize,
    /// Bytes of these files.
    pub disk_bytes: u64,
    /// Conversations given up so far, those that went to disk included.
    pub evicted: u64,
}

/// A conversation that the model does not work on.
struct Idle<K> {
    ids: Vec<u32>,
    kept: K,
}

/// All conversations of one model.
pub(super) struct Conversations<K> {
    /// The ids in the model's present text.
    current: Vec<u32>,
    /// Least recently used first.
    idle: Vec<Idle<K>>,
    /// Conversations at most, the present one included; 0 keeps nothing for going back either.
    limit: usize,
    snapshots: Option<Snapshots>,
    /// Of conversations that were given up: hashes of their beginnings, one for each [`STRIDE`].
    traces: Vec<Vec<u64>>,
    evicted: u64,
}

/// Where a prompt could go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Current,
    Idle(usize),
    /// One of those that are out.
    Out(usize),
    File,
}

/// A text that somebody else works on, and its ids.
pub(super) type Out<'a, K> = (&'a K, &'a [u32]);

impl<K: Kept> Conversations<K> {
    pub(super) fn new(limit: usize, snapshots: Option<Snapshots>) -> Self {
        Self { current: Vec::new(), idle: Vec::new(), limit, snapshots, traces: Vec::new(), evicted: 0 }
    }

    /// The ids in the model's present text.
    pub(super) fn current(&self) -> &[u32] {
        &self.current
    }

    /// What is kept now.
    pub(super) fn kept(&self) -> KeptConversations {
        let (on_disk, disk_bytes) = self.snapshots.as_ref().map_or((0, 0), Snapshots::kept);
        KeptConversations {
            in_memory: self.idle.len() + usize::from(!self.current.is_empty()),
            on_disk,
            disk_bytes,
            evicted: self.evicted,
        }
    }

    /// What somebody should know, once.
    pub(super) fn notes(&mut self) -> Vec<String> {
        self.snapshots.as_mut().map(Snapshots::notes).unwrap_or_default()
    }

    /// Puts the model at the end of the longest beginning of `prompt` that can be had, but never all of it: the logits
    /// after its last id are wanted.
    pub(super) fn open<F: Forward<Sequence = K>>(&mut self, forward: &mut F, prompt: &[u32]) -> Reuse {
        self.open_beside(forward, prompt, &[])
    }

    /// [`Conversations::open`] while other texts are out.
    pub(super) fn open_beside<F: Forward<Sequence = K>>(
        &mut self,
        forward: &mut F,
        prompt: &[u32],
        out: &[Out<'_, K>],
    ) -> Reuse {
        let wanted = |ids: &[u32]| common(ids, prompt).min(prompt.len().saturating_sub(1));
        let mut best = (forward.sequence().reachable(wanted(&self.current)), Source::Current);
        let mut longest = wanted(&self.current);
        for (at, idle) in self.idle.iter().enumerate() {
            let wanted = wanted(&idle.ids);
            longest = longest.max(wanted);
            let reach = idle.kept.reachable(wanted);
            if reach > best.0 {
                best = (reach, Source::Idle(at));
            }
        }
        for (at, (kept, ids)) in out.iter().enumerate() {
            let reach = kept.reachable(wanted(ids));
            if reach > best.0 {
                best = (reach, Source::Out(at));
            }
        }
        let file = self.snapshots.as_ref().and_then(|snapshots| snapshots.best(prompt));
        if let Some((reach, _)) = &file
            && *reach >= best.0 + FRAME
        {
            best = (*reach, Source::File);
        }
        let missed = self.given_up(prompt);
        let (continued, restored) = match best {
            (reach, Source::Current) => (self.go_on(forward, reach), false),
            (reach, Source::Idle(at)) => (self.turn_to(forward, at, reach), false),
            (reach, Source::Out(at)) => {
                let (kept, ids) = out[at];
                self.change(forward, kept.clone(), ids.to_vec());
                let at = forward.rewind(reach);
                self.current.truncate(at);
                (false, false)
            }
            (reach, Source::File) => {
                let restored = file.is_some_and(|(_, path)| self.restore(forward, &path, reach));
                // Damaged, or gone: as if it had not been there.
                if !restored {
                    return self.open_beside(forward, prompt, out);
                }
                (true, true)
            }
        };
        let reached = self.current.len();
        self.make_space(forward, prompt.len() - reached, 0);
        // Whoever was given up for this is no loss that it has met with.
        if missed > reached + STRIDE {
            Reuse::Evicted
        } else if longest > reached + SLACK {
            Reuse::Window
        } else if restored {
            Reuse::Restored
        } else if reached < FRAME.min(prompt.len().saturating_sub(1)) || reached == 0 {
            Reuse::New
        } else if continued {
            Reuse::Continued
        } else {
            Reuse::Edited
        }
    }

    /// Goes on in the present conversation, or in a branch of it. True if it is no branch.
    fn go_on<F: Forward<Sequence = K>>(&mut self, forward: &mut F, reach: usize) -> bool {
        let newest = newest(forward.sequence());
        let branches = newest.is_some_and(|newest| reach < newest);
        if branches {
            let kept = forward.sequence().clone();
            self.park(kept, self.current.clone());
        }
        let at = if reach < forward.position() { forward.rewind(reach) } else { reach };
        self.current.truncate(at);
        !branches
    }

    /// Goes on in an idle conversation, or in a branch of it. True if it is no branch.
    fn turn_to<F: Forward<Sequence = K>>(&mut self, forward: &mut F, at: usize, reach: usize) -> bool {
        let branches = newest(&self.idle[at].kept).is_some_and(|newest| reach < newest);
        let Idle { ids, kept } = self.idle.remove(at);
        if branches {
            // It was just of use, so it is not the first to go.
            self.idle.push(Idle { ids: ids.clone(), kept: kept.clone() });
        }
        self.change(forward, kept, ids);
        let at = forward.rewind(reach);
        self.current.truncate(at);
        !branches
    }

    /// Goes on from a file; false if it is damaged.
    fn restore<F: Forward<Sequence = K>>(&mut self, forward: &mut F, path: &Path, reach: usize) -> bool {
        self.start_anew(forward);
        let bytes = self.snapshots.as_ref().map_or(0, |snapshots| snapshots.bytes(path));
        self.make_space(forward, 1, bytes);
        let Some(snapshots) = &mut self.snapshots else { return false };
        if forward.excess(1, bytes) > 0 {
            snapshots.pass_over(path, "is larger than what memory there is for conversations");
            return false;
        }
        let Some((kept, ids)) = snapshots.load(path, forward) else { return false };
        *forward.sequence() = kept;
        self.current = ids;
        let at = forward.rewind(reach);
        self.current.truncate(at);
        true
    }

    /// Puts another text in the place of the present one, which is parked.
    fn change<F: Forward<Sequence = K>>(&mut self, forward: &mut F, kept: K, ids: Vec<u32>) {
        let left = std::mem::replace(forward.sequence(), kept);
        let left_ids = std::mem::replace(&mut self.current, ids);
        self.park(left, left_ids);
    }

    /// Hands out the present text with its ids, and leaves an empty one.
    pub(super) fn take_out<F: Forward<Sequence = K>>(&mut self, forward: &mut F) -> (K, Vec<u32>) {
        let blank = forward.blank();
        (std::mem::replace(forward.sequence(), blank), std::mem::take(&mut self.current))
    }

    /// What was out is the present text; the one that was is parked.
    pub(super) fn put_back<F: Forward<Sequence = K>>(&mut self, forward: &mut F, kept: K, ids: Vec<u32>) {
        self.change(forward, kept, ids);
    }

    /// An empty text in the place of the present one.
    pub(super) fn start_anew<F: Forward<Sequence = K>>(&mut self, forward: &mut F) {
        let blank = forward.blank();
        self.change(forward, blank, Vec::new());
    }

    /// Lays a conversation aside, if it is one: what has no points was not talked to.
    fn park(&mut self, kept: K, ids: Vec<u32>) {
        if newest(&kept).is_none() {
            return;
        }
        self.idle.push(Idle { ids, kept });
        while self.idle.len() + 1 > self.limit {
            self.evict();
        }
    }

    /// Gives up the idle conversation that was used least recently, a short one before all others: a title is read again
    /// in a moment.
    fn evict(&mut self) {
        let short = self.idle.iter().position(|idle| idle.ids.len() < WORTH_A_FILE);
        let mut idle = self.idle.remove(short.unwrap_or(0));
        self.evicted += 1;
        if self.traces.len() >= TRACES {
            self.traces.remove(0);
        }
        self.traces.push(trace(&idle.ids));
        save(&mut self.snapshots, &mut idle.kept, &mut idle.ids);
    }

    /// How much of `prompt` was in a conversation that was given up, in whole strides.
    fn given_up(&self, prompt: &[u32]) -> usize {
        let wanted = trace(prompt);
        let common = |trace: &Vec<u64>| trace.iter().zip(&wanted).take_while(|(a, b)| a == b).count();
        self.traces.iter().map(common).max().unwrap_or(0) * STRIDE
    }

    /// To follow [`Conversations::open`] for a prompt of `prompt` ids that will be answered: its text may have to go back to where the
    /// answer begins, and to where its system turn ends. It is going to be read up to `end`, the prompt's end as a rule.
    pub(super) fn set_points<F: Forward<Sequence = K>>(
        &mut self,
        forward: &mut F,
        prompt: usize,
        system_end: Option<usize>,
        end: usize,
    ) {
        if self.limit == 0 {
            return;
        }
        let sequence = forward.sequence();
        for point in [system_end, Some(prompt.saturating_sub(SLACK))].into_iter().flatten() {
            if point > 0 && (point >= sequence.position() || sequence.reachable(point) == point) {
                sequence.mark(point);
            }
        }
        while sequence.points().len() > POINTS {
            let second = sequence.points()[1];
            sequence.unmark(second);
        }
        let rows = end.saturating_sub(sequence.position());
        self.make_space(forward, rows, 0);
    }

    /// Gives up what is too much once `rows` more ids are fed and `extra` bytes come besides.
    pub(super) fn make_space<F: Forward<Sequence = K>>(&mut self, forward: &mut F, rows: usize, extra: u64) {
        while forward.excess(rows, extra) > 0 && self.give_up(forward.sequence()) {}
    }

    /// Gives up the next thing, so that texts that are out can grow. False if there is nothing more.
    pub(super) fn give_up_for_others<F: Forward<Sequence = K>>(&mut self, forward: &mut F) -> bool {
        self.give_up(forward.sequence())
    }

    /// Gives up the next thing. False if there is nothing that would not hurt more than it helps.
    fn give_up(&mut self, current: &mut K) -> bool {
        for idle in &mut self.idle {
            if let [first, _, ..] = *idle.kept.points() {
                idle.kept.unmark(first);
                return true;
            }
        }
        for idle in &mut self.idle {
            if let Some(newest) = newest(&idle.kept)
                && newest < idle.kept.position()
            {
                let at = idle.kept.rewind(newest);
                idle.ids.truncate(at);
                return true;
            }
        }
        if let [_, second, _, ..] = *current.points() {
            current.unmark(second);
            return true;
        }
        if !self.idle.is_empty() {
            self.evict();
            return true;
        }
        if let [first, _, ..] = *current.points() {
            current.unmark(first);
            return true;
        }
        false
    }

    /// The model has been fed these ids, and no more.
    pub(super) fn set(&mut self, known: &[u32]) {
        self.current.clear();
        self.current.extend_from_slice(known);
    }

    /// One more id.
    pub(super) fn push(&mut self, id: u32) {
        self.current.push(id);
    }

    /// The model dropped what is behind `len`.
    pub(super) fn truncate(&mut self, len: usize) {
        self.current.truncate(len);
    }

    /// Forgets all that is in memory.
    pub(super) fn clear<F: Forward<Sequence = K>>(&mut self, forward: &mut F) {
        self.idle.clear();
        let left = forward.rewind(0);
        self.current.truncate(left);
    }

    /// Writes what is in memory to files, where there is a folder for them.
    pub(super) fn save_all<F: Forward<Sequence = K>>(&mut self, forward: &mut F) {
        for idle in &mut self.idle {
            save(&mut self.snapshots, &mut idle.kept, &mut idle.ids);
        }
        let mut current = forward.sequence().clone();
        if newest(&current).is_some() {
            save(&mut self.snapshots, &mut current, &mut self.current.clone());
        }
    }
}

/// The newest point that was reached.
fn newest<K: Kept>(kept: &K) -> Option<usize> {
    kept.points().iter().rev().copied().find(|&point| point <= kept.position())
}

/// As a file, up to the newest point: the end of an answer is hardly ever gone on from.
fn save<K: Kept>(snapshots: &mut Option<Snapshots>, kept: &mut K, ids: &mut Vec<u32>) {
    let Some(snapshots) = snapshots else { return };
    let at = newest(kept).unwrap_or(kept.position());
    let at = kept.rewind(at);
    ids.truncate(at);
    if ids.len() >= WORTH_A_FILE {
        snapshots.save(kept, ids);
    }
}

/// How many ids two texts begin with in common.
pub(super) fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Hashes of the beginnings of a text, one for each stride.
fn trace(ids: &[u32]) -> Vec<u64> {
    let mut hasher = DefaultHasher::new();
    ids.chunks_exact(STRIDE)
        .map(|ids| {
            ids.iter().for_each(|&id| hasher.write_u32(id));
            hasher.finish()
        })
        .collect()
}

#[cfg(test)]
mod tests;
