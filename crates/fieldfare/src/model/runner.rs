//! [`Runner`]: one model directory made ready to run, behind [`Forward`].

use super::config::Config;
use super::core_ahead::CoreAhead;
use super::footprint;
use super::forward::{Pass, Texts, forward};
use super::kv::{KvCache, Sequence};
use super::look_ahead::Looker;
use super::options::{Memory, RunnerOptions};
use super::prepared::Prepared;
use super::scratch::{HEAD_ROWS, Scratch};
use super::weights::Weights;
use super::wide::{Shape, Wide};
use super::{Forward, Kept, Probe, RouteOverride, TOGETHER, head};
use crate::format::ModelDir;
use crate::store::{ExpertStore, RdAdvise, Reads};
use crate::{Error, Result};
use fieldfare_kernels::{Kernels, Planes, Pool};
use std::borrow::Borrow;
use std::io::{self, Read, Write};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is to blame when the numbers are wrong and the structure is right.
const WEIGHT_FILES: &str = "model_weights.bin or packed_experts/layer_*.bin";

/// What a runner has done and what it takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunnerStats {
    /// Experts asked for that were held, prefill and decode together.
    pub hits: u64,
    /// Experts read, prefill and decode together.
    pub misses: u64,
    /// Experts asked for by decode that were held.
    pub decode_hits: u64,
    /// Experts read by decode.
    pub decode_misses: u64,
    /// Experts that were guessed while tokens were generated, and given to the readers.
    pub ahead_guesses: u64,
    /// Of these, ones that were then wanted.
    pub ahead_used: u64,
    /// Bytes read for the others; part of `bytes_read`.
    pub ahead_wasted_bytes: u64,
    /// Experts chosen where there was a guess.
    pub ahead_chosen: u64,
    /// Of these, ones that had been guessed, held or not.
    pub ahead_recalled: u64,
    /// Whether experts were read ahead for the last generated token.
    pub looks_ahead: bool,
    /// Bytes read from layer files.
    pub bytes_read: u64,
    /// Time spent in those reads.
    pub read_time: Duration,
    /// Prompt tokens fed, those before a rewind included.
    pub prefill_tokens: u64,
    /// Generated tokens fed.
    pub decode_tokens: u64,
    /// Bytes of keys and values, those of texts that are kept included.
    pub kv_bytes: usize,
    /// Bytes of all slots, touched or not.
    pub slot_bytes: usize,
    /// Bytes of activation buffers, touched or not.
    pub scratch_bytes: usize,
    /// Of these, bytes in huge pages; `None` where the system does not say.
    pub slot_huge_bytes: Option<u64>,
    /// Bytes of resident weights that were copied into memory; 0 while they are mapped.
    pub core_copied_bytes: usize,
    /// Of these, bytes in huge pages; `None` where the system does not say.
    pub core_huge_bytes: Option<u64>,
    /// Slots of all layers now; they are given up as the cache grows where a plan says so.
    pub slots: usize,
    /// Slots of a layer; some may have one more.
    pub slots_per_layer: usize,
    /// How experts are read.
    pub reads: Option<Reads>,
    /// How buffered reads are announced to the page cache; off where reads are direct.
    pub rdadvise: RdAdvise,
    /// Bytes that were announced.
    pub advised_bytes: u64,
    /// Worker threads.
    pub threads: usize,
}

/// A model ready to run.
pub struct Runner {
    /// Reads the mapped core in the background, at first.
    _core: Option<CoreAhead>,
    dir: Arc<ModelDir>,
    config: Config,
    weights: Weights,
    kernels: &'static Kernels,
    pool: Pool,
    planes: Option<Planes>,
    cache: KvCache,
    /// The text that is worked on.
    sequence: Sequence,
    store: ExpertStore,
    look: Looker,
    scratch: Scratch,
    /// How large the buffers of a pass are.
    wide: Shape,
    /// Those of a step: a row for each text.
    few: Wide,
    /// Tokens of a pass at most.
    pass_tokens: usize,
    probe: Option<Box<dyn Probe>>,
    reroute: Option<Box<dyn RouteOverride>>,
    max_context: usize,
    memory: Memory,
    stats: RunnerStats,
}

impl Runner {
    /// Checks the directory's configuration and tensors and makes the buffers: [`Prepared`] run in its usual memory.
    ///
    /// # Errors
    /// Those of [`Prepared::new`] and [`Prepared::run`].
    pub fn new(dir: impl Into<Arc<ModelDir>>, options: impl Borrow<RunnerOptions>) -> Result<Self> {
        let prepared = Prepared::new(dir, options)?;
        let memory = prepared.usual_memory();
        prepared.run(memory)
    }

    pub(super) fn assemble(
        prepared: Prepared,
        store: ExpertStore,
        memory: &Memory,
        core: Option<CoreAhead>,
    ) -> Result<Self> {
        let Prepared { dir, config, weights, kernels, pool, cache, scratch, wide, options } = prepared;
        Ok(Self {
            _core: core,
            planes: options.precision.planes(),
            wide,
            few: Wide::new(wide, TOGETHER)?,
            pass_tokens: memory.pass_tokens.min(options.prefill_chunk_tokens).min(options.max_context).max(1),
            look: Looker::new(options.look_ahead, config.num_experts),
            dir,
            config,
            weights,
            kernels,
            pool,
            sequence: cache.sequence(),
            cache,
            store,
            scratch,
            probe: None,
            reroute: None,
            max_context: options.max_context,
            memory: *memory,
            stats: RunnerStats::default(),
        })
    }

    /// The model's shape.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The directory it runs from.
    pub fn dir(&self) -> &Arc<ModelDir> {
        &self.dir
    }

    /// Shows intermediates to `probe` from now on; the one before is returned.
    pub fn set_probe(&mut self, probe: Option<Box<dyn Probe>>) -> Option<Box<dyn Probe>> {
        std::mem::replace(&mut self.probe, probe)
    }

    /// Lets `reroute` choose the experts from now on, for measurements: what is computed is then no answer of the model.
    pub fn set_reroute(&mut self, reroute: Option<Box<dyn RouteOverride>>) {
        self.reroute = reroute;
    }

    /// Which experts are in memory; it follows the store.
    pub fn board(&self) -> std::sync::Arc<crate::store::Board> {
        self.store.board()
    }

    /// What was done so far and what memory is taken, but for the huge pages.
    pub fn stats(&self) -> RunnerStats {
        let (store, found) = (self.store.stats(), self.look.found());
        RunnerStats {
            ahead_guesses: store.ahead_guesses,
            ahead_used: store.ahead_used,
            ahead_wasted_bytes: store.ahead_wasted_bytes,
            ahead_chosen: found.chosen,
            ahead_recalled: found.guessed,
            looks_ahead: self.look.is_on(),
            hits: store.hits,
            misses: store.misses,
            bytes_read: store.bytes_read,
            read_time: store.read_time,
            kv_bytes: usize::try_from(self.cache.bytes()).unwrap_or(usize::MAX),
            slot_bytes: self.store.slot_bytes(),
            scratch_bytes: self.scratch.bytes() + self.few.bytes(),
            slots: self.store.slots(),
            reads: Some(self.store.reads()),
            rdadvise: self.store.advice(),
            advised_bytes: store.advised_bytes,
            core_copied_bytes: self.dir.resident().copied_bytes(),
            slots_per_layer: self.store.slots_per_layer(),
            threads: self.pool.threads(),
            ..self.stats
        }
    }

    /// [`Runner::stats`] with the huge pages counted, which takes the system a moment.
    pub fn stats_with_pages(&self) -> RunnerStats {
        RunnerStats {
            slot_huge_bytes: self.store.huge_bytes(),
            core_huge_bytes: self.dir.resident().huge_bytes(),
            ..self.stats()
        }
    }

    /// Gives up the slots whose memory the cache is about to need for `rows` more positions, and their pass while it
    /// lasts; takes those again that nothing needs any more.
    fn make_room(&mut self, rows: usize, pass_bytes: u64) {
        let end = self.sequence.position() + rows;
        // Whoever keeps other texts has been asked to let go of some; what is left to give up is going back.
        while self.excess_at(end, pass_bytes, 0) > 0
            && let Some(&point) = self.sequence.points().first()
        {
            self.sequence.unmark(point);
        }
        // One token after the other needs a slot in every layer; a pass over many has buffers of its own.
        let least = if pass_bytes > 0 { 0 } else { self.config.layers.len() };
        self.resize_slots(end, pass_bytes, least);
    }

    /// Leaves the slots what the cache at `end` and `beside` do not take of what they share, but never fewer than `least`.
    fn resize_slots(&mut self, end: usize, beside: u64, least: usize) {
        self.leave_slots(self.sequence.held_at(end).saturating_add(beside), least);
    }

    /// Leaves the slots what `taken` leaves of what they share, but never fewer than `least`.
    fn leave_slots(&mut self, taken: u64, least: usize) {
        let Some(shared) = self.memory.shared_bytes else { return };
        let left = shared.saturating_sub(taken);
        let slots = usize::try_from(left / self.dir.manifest().expert_stride.max(1)).unwrap_or(usize::MAX);
        self.store.resize(slots.max(least));
    }

    /// Bytes of what is kept of other texts, and for going back in this one, that are too many once it has
    /// grown to `end` and others by `extra`.
    fn excess_at(&self, end: usize, pass_bytes: u64, extra: u64) -> u64 {
        let held = self.sequence.held_at(end).saturating_add(extra);
        self.beyond(held, pass_bytes, end)
    }

    /// Bytes by which `held` is more than texts may take beside a pass, where the longest of them has `longest` ids.
    fn beyond(&self, held: u64, pass_bytes: u64, longest: usize) -> u64 {
        match self.memory.shared_bytes {
            Some(shared) => {
                let floor =
                    (self.memory.floor_slots as u64).saturating_mul(self.dir.manifest().expert_stride);
                held.saturating_add(pass_bytes.max(floor)).saturating_sub(shared)
            }
            None => held.saturating_sub(self.cache.bytes_for(longest)).saturating_sub(self.memory.kept_bytes),
        }
    }

    /// What all texts come to at most when each of `texts` has one id more.
    fn held_together(&self, texts: &[&mut Sequence]) -> u64 {
        let growth: i128 = texts.iter().map(|text| text.growth(text.position() + 1)).sum();
        u64::try_from((i128::from(self.cache.bytes()) + growth).max(0)).unwrap_or(u64::MAX)
    }

    /// Refuses what is no step of several texts.
    fn check_together(&self, texts: &[&mut Sequence], ids: &[u32]) -> Result<()> {
        if texts.is_empty() || texts.len() != ids.len() || texts.len() > TOGETHER {
            let reason = format!("{} texts with {} ids, and at most {TOGETHER}", texts.len(), ids.len());
            return Err(Error::bad("texts", reason));
        }
        self.check_ids(ids)?;
        match texts.iter().find(|text| text.position() >= self.max_context) {
            Some(text) => Err(Error::ContextFull { prompt: text.position() + 1, context: self.max_context }),
            None => Ok(()),
        }
    }

    /// Bytes that a pass over so many rows takes while it lasts.
    fn pass_bytes(&self, rows: usize) -> u64 {
        let (stride, experts) = (self.dir.manifest().expert_stride, self.config.num_experts);
        footprint::pass_bytes(self.wide, rows, stride, experts)
    }

    /// Refuses what must not start: no ids, ids beyond the vocabulary, more than the context holds.
    fn check(&self, ids: &[u32]) -> Result<()> {
        if ids.is_empty() {
            return Err(Error::bad("prompt", "has no tokens"));
        }
        if ids.len() > self.max_context - self.position() {
            let prompt = self.position().saturating_add(ids.len());
            return Err(Error::ContextFull { prompt, context: self.max_context });
        }
        self.check_ids(ids)
    }

    fn check_ids(&self, ids: &[u32]) -> Result<()> {
        let vocab = self.config.vocab_size;
        match ids.iter().find(|&&id| id as usize >= vocab) {
            Some(id) => Err(Error::bad("token id", format!("{id} is beyond the vocabulary of {vocab}"))),
            None => Ok(()),
        }
    }

    /// Runs one pass over `ids`, then computes the logits of the rows `which` asks for and hands them out by blocks:
    /// `each(first row of the block, logits)`. What many rows need besides is there only as long as this takes.
    fn pass(
        &mut self,
        ids: &[u32],
        which: Rows,
        between: &mut dyn FnMut(usize) -> ControlFlow<()>,
        each: &mut dyn FnMut(usize, &[f32]) -> ControlFlow<()>,
    ) -> Result<()> {
        if ids.len() == 1 {
            self.make_room(1, 0);
            return self.run(ids, which, None, between, each);
        }
        let (start, bytes) = (self.sequence.position(), self.pass_bytes(ids.len()));
        // A pass that is broken off should not cost what was there before it, where there is room for both windows.
        let mut held = start > 0 && !self.sequence.points().contains(&start);
        if held {
            self.sequence.mark(start);
            if self.excess_at(start + ids.len(), bytes, 0) > 0 {
                self.sequence.unmark(start);
                held = false;
            }
        }
        self.make_room(ids.len(), bytes);
        let result = self.run_wide(ids, which, between, each);
        self.store.close_transit();
        if held {
            self.sequence.unmark(start);
        }
        self.make_room(0, 0);
        result
    }

    fn run_wide(
        &mut self,
        ids: &[u32],
        which: Rows,
        between: &mut dyn FnMut(usize) -> ControlFlow<()>,
        each: &mut dyn FnMut(usize, &[f32]) -> ControlFlow<()>,
    ) -> Result<()> {
        let experts = self.config.num_experts;
        if self.store.slots() < self.config.layers.len() * experts {
            self.store.open_transit(footprint::transit(experts))?;
        }
        let wide = Wide::new(self.wide, ids.len())?;
        self.run(ids, which, Some(wide), between, each)
    }

    /// The pass itself, in `wide` or, for one row, in what is kept for that.
    fn run(
        &mut self,
        ids: &[u32],
        which: Rows,
        wide: Option<Wide>,
        between: &mut dyn FnMut(usize) -> ControlFlow<()>,
        each: &mut dyn FnMut(usize, &[f32]) -> ControlFlow<()>,
    ) -> Result<()> {
        let start = self.sequence.position();
        let mut pass = Pass {
            probe: self.probe.as_deref_mut(),
            reroute: self.reroute.as_deref_mut(),
            ..Pass::new(&self.config, self.dir.resident().bytes(), self.kernels, &self.pool, self.planes)
        };
        pass.begin(start, ids.len());
        let (store, scratch) = (&mut self.store, &mut self.scratch);
        let mut own = wide;
        let mut wide = own.as_mut().unwrap_or(&mut self.few).rows();
        let (look, texts) = (&mut self.look, &mut Texts::One(&mut self.sequence));
        let done = forward(&mut pass, &self.weights, ids, texts, store, look, scratch, &mut wide, between);
        if let Err(error) = done {
            self.sequence.rewind(start);
            return Err(error);
        }
        self.sequence.advance(start + ids.len());
        let rows = match which {
            Rows::None => return Ok(()),
            Rows::Last => ids.len() - 1..ids.len(),
            Rows::All => 0..ids.len(),
        };
        let mut at = rows.start;
        while at < rows.end {
            let block = at..rows.end.min(at + HEAD_ROWS);
            if let Err(error) = speak(&mut pass, &self.weights, &block, wide.x, &mut self.scratch) {
                self.sequence.rewind(start);
                return Err(error);
            }
            for (row, logits) in block.clone().zip(self.scratch.logits.chunks_exact(self.config.vocab_size)) {
                if each(row, logits).is_break() {
                    return Err(Error::Cancelled);
                }
            }
            at = block.end;
        }
        Ok(())
    }
}

/// Computes the logits of some rows of a pass.
fn speak(
    pass: &mut Pass<'_>,
    weights: &Weights,
    rows: &Range<usize>,
    x: &[f32],
    scratch: &mut Scratch,
) -> Result<()> {
    let needed = rows.len() * pass.config.vocab_size;
    if scratch.logits.len() < needed {
        scratch.logits.resize(needed, 0.0);
    }
    head::logits(pass, &weights.head, rows, x, scratch);
    // No input makes a whole model compute such numbers, and every answer to them would be nonsense.
    if scratch.logits[..needed].iter().all(|logit| logit.is_finite()) {
        return Ok(());
    }
    Err(Error::damaged(WEIGHT_FILES, "the model computed logits that are no numbers"))
}

/// Which rows of a pass need logits.
#[derive(Clone, Copy)]
enum Rows {
    None,
    Last,
    All,
}

impl Kept for Sequence {
    fn position(&self) -> usize {
        Self::position(self)
    }

    fn reachable(&self, len: usize) -> usize {
        Self::reachable(self, len)
    }

    fn rewind(&mut self, len: usize) -> usize {
        Self::rewind(self, len)
    }

    fn points(&self) -> &[usize] {
        Self::points(self)
    }

    fn mark(&mut self, at: usize) {
        Self::mark(self, at);
    }

    fn unmark(&mut self, at: usize) {
        Self::unmark(self, at);
    }

    fn own_bytes(&self) -> u64 {
        Self::own_bytes(self)
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        Self::write(self, out)
    }
}

impl Forward for Runner {
    type Sequence = Sequence;

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn position(&self) -> usize {
        self.sequence.position()
    }

    fn max_context(&self) -> usize {
        self.max_context
    }

    fn prefill(
        &mut self,
        ids: &[u32],
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<&mut [f32]> {
        self.check(ids)?;
        let layers = self.config.layers.len();
        let mut done = 0;
        for chunk in ids.chunks(self.pass_tokens) {
            // Within a pass the layers done count for their share of its ids.
            let mut between = |layer| progress(done + chunk.len() * layer / layers);
            let last = done + chunk.len() == ids.len();
            let which = if last { Rows::Last } else { Rows::None };
            self.pass(chunk, which, &mut between, &mut |_, _| ControlFlow::Continue(()))?;
            done += chunk.len();
            self.stats.prefill_tokens += chunk.len() as u64;
        }
        if progress(done).is_break() {
            return Err(Error::Cancelled);
        }
        Ok(&mut self.scratch.logits[..self.config.vocab_size])
    }

    fn decode(&mut self, id: u32) -> Result<&mut [f32]> {
        self.check(&[id])?;
        let (before, start) = (self.store.stats(), Instant::now());
        self.look.begin_token(&self.store);
        let go_on = |_| ControlFlow::Continue(());
        self.pass(&[id], Rows::Last, &mut { go_on }, &mut |_, _| ControlFlow::Continue(()))?;
        let after = self.store.stats();
        self.look.end_token(&self.store, start.elapsed(), after.misses - before.misses);
        self.stats.decode_hits += after.hits - before.hits;
        self.stats.decode_misses += after.misses - before.misses;
        self.stats.decode_tokens += 1;
        Ok(&mut self.scratch.logits[..self.config.vocab_size])
    }

    fn decode_together(&mut self, texts: &mut [&mut Sequence], ids: &[u32]) -> Result<&mut [f32]> {
        self.check_together(texts, ids)?;
        self.leave_slots(self.held_together(texts), self.config.layers.len());
        let before = self.store.stats();
        self.look.begin_shared(&self.store);
        let (starts, rows): (Vec<usize>, _) = (texts.iter().map(|text| text.position()).collect(), ids.len());
        // A probe knows one text.
        let mut pass = Pass {
            reroute: self.reroute.as_deref_mut(),
            each_at: Some(&starts),
            ..Pass::new(&self.config, self.dir.resident().bytes(), self.kernels, &self.pool, self.planes)
        };
        pass.begin(0, rows);
        let mut wide = self.few.rows();
        let (store, look, scratch) = (&mut self.store, &mut self.look, &mut self.scratch);
        let (each, go_on) = (&mut Texts::Each(texts), &mut |_| ControlFlow::Continue(()));
        let done = forward(&mut pass, &self.weights, ids, each, store, look, scratch, &mut wide, go_on)
            .and_then(|()| speak(&mut pass, &self.weights, &(0..rows), wide.x, &mut self.scratch));
        for (text, &start) in texts.iter_mut().zip(&starts) {
            if done.is_ok() {
                text.advance(start + 1);
            } else {
                text.rewind(start);
            }
        }
        done?;
        let after = self.store.stats();
        self.stats.decode_hits += after.hits - before.hits;
        self.stats.decode_misses += after.misses - before.misses;
        self.stats.decode_tokens += rows as u64;
        Ok(&mut self.scratch.logits[..rows * self.config.vocab_size])
    }

    fn prefill_each(
        &mut self,
        ids: &[u32],
        between: &mut dyn FnMut() -> ControlFlow<()>,
        each: &mut dyn FnMut(usize, &[f32]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.check(ids)?;
        let mut done = 0;
        let mut between = |_| between();
        for chunk in ids.chunks(self.pass_tokens) {
            self.stats.prefill_tokens += chunk.len() as u64;
            self.pass(chunk, Rows::All, &mut between, &mut |row, logits| each(done + row, logits))?;
            done += chunk.len();
        }
        Ok(())
    }

    fn rewind(&mut self, len: usize) -> usize {
        let at = self.sequence.rewind(len);
        // What it held is the slots' again.
        self.make_room(0, 0);
        at
    }

    fn sequence(&mut self) -> &mut Sequence {
        &mut self.sequence
    }

    fn blank(&self) -> Sequence {
        self.cache.sequence()
    }

    fn excess(&self, rows: usize, extra: u64) -> u64 {
        let end = self.max_context.min(self.sequence.position().saturating_add(rows));
        self.excess_at(end, self.pass_bytes(rows.min(self.pass_tokens)), extra)
    }

    fn excess_together(&self, texts: &[&mut Sequence]) -> u64 {
        let longest = texts.iter().map(|text| text.position() + 1).max().unwrap_or(0);
        self.beyond(self.held_together(texts), 0, longest)
    }

    fn has_room_for(&self, ends: &[usize]) -> bool {
        let longest = ends.iter().copied().max().unwrap_or(0);
        let held = ends.iter().fold(0, |sum: u64, &end| sum.saturating_add(self.cache.bytes_for(end)));
        self.beyond(held, self.pass_bytes(longest.min(self.pass_tokens)), longest) == 0
    }

    fn pass_tokens(&self) -> usize {
        self.pass_tokens
    }

    fn step_texts(&self) -> usize {
        let (layers, wanted) = (self.config.layers.len().max(1), self.config.top_k_experts.max(1));
        let slots = self.store.slots() / layers;
        if slots >= self.config.num_experts { TOGETHER } else { (slots / (2 * wanted)).clamp(1, TOGETHER) }
    }

    fn read_sequence(&mut self, from: &mut dyn Read, bytes: u64) -> Result<Sequence> {
        self.resize_slots(self.sequence.position(), bytes, self.config.layers.len());
        self.cache.read(from)
    }
}
