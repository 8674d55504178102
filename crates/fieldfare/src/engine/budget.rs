//! Where the memory goes, decided before any of it is taken: a limit and a model's sizes in, a [`Plan`] out.
//!
//! What the limit bounds is the process's resident memory, pages of mapped files included, as a control group counts
//! it. The core, the buffers and what the program itself takes are fixed; what is left belongs to the KV cache and
//! the expert slots together. The cache takes its pages as it fills, and the slots give way: a short conversation has
//! more of them than a full context leaves. A pass over a prompt borrows their memory while it lasts. Nothing here asks
//! the system or changes anything.

use crate::store::Reads;
use crate::{Error, Result};
use serde::Serialize;
use std::fmt;

/// Slots of a layer from which the core is copied into memory of its own (huge pages, nothing faulted in later)
/// instead of mapped. With fewer, the pages that the system can drop are the slack that a tight limit needs.
const COPY_CORE_SLOTS: usize = 16;

/// Prompt tokens that a pass must be able to take.
const LEAST_PASS: usize = 32;

/// Slots of a layer where nobody says how much memory there is.
const BLIND_SLOTS: usize = 16;

/// Texts side by side where memory is plentiful.
const SUGGESTED_PARALLEL: usize = 4;

/// How much memory an engine may take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MemoryBudget {
    /// What machine, control groups and limits leave free, less a reserve; at most what holds everything.
    #[default]
    Auto,
    /// This many bytes.
    Bytes(u64),
}

/// Whether the core's pages are the file's or the process's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Core {
    /// Mapped from the file: clean pages that the system may drop and read again.
    Mapped,
    /// Copied into anonymous memory.
    Copied,
}

/// Where a limit comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// It was asked for.
    Given,
    /// It is what was free.
    Free,
    /// It is all that machine and groups have. Then the mapped core does not count: the system may drop it.
    Machine,
}

/// A bound on memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Bytes.
    pub bytes: u64,
    /// Whose they are.
    pub origin: Origin,
}

/// The sizes of a model and its buffers, in bytes.
#[derive(Clone, Copy)]
pub struct Sizes<'a> {
    /// The resident weights with their index.
    pub core: u64,
    /// One expert, and one slot.
    pub stride: u64,
    /// Layers.
    pub layers: usize,
    /// Experts of a layer.
    pub experts: usize,
    /// The KV cache once it holds so many tokens; never falls.
    pub kv: &'a dyn Fn(usize) -> u64,
    /// Activation buffers that stay.
    pub scratch: u64,
    /// What a pass over so many prompt tokens takes while it lasts; never falls.
    pub pass: &'a dyn Fn(usize) -> u64,
    /// The program itself: code, tokenizer, heap, stacks.
    pub process: u64,
}

/// What is asked of a plan.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// The bound; `None` where nothing is known.
    pub limit: Option<Limit>,
    /// What is free, for deciding whether the page cache may hold the experts too.
    pub free: Option<u64>,
    /// Tokens of a full context.
    pub max_context: usize,
    /// Prompt tokens of a pass; fewer where the limit is too small for that.
    pub pass_tokens: usize,
    /// Slots of each layer, whatever the limit leaves.
    pub slots_per_layer: Option<usize>,
    /// How experts are read; `None` leaves it to the plan.
    pub reads: Option<Reads>,
    /// How the core is held; `None` leaves it to the plan.
    pub core: Option<Core>,
    /// Whether slots can be given back while the model runs.
    pub elastic: bool,
    /// Slots more to read ahead into, where there is room for them.
    pub spares: usize,
}

/// Where the memory goes, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The bound, if there is one.
    pub limit_bytes: Option<u64>,
    /// Whose it is.
    pub limit_origin: Option<Origin>,
    /// The resident weights.
    pub core_bytes: u64,
    /// How they are held.
    pub core: Core,
    /// The program itself.
    pub process_bytes: u64,
    /// Activation buffers that stay.
    pub scratch_bytes: u64,
    /// Prompt tokens of a pass.
    pub pass_tokens: usize,
    /// What a pass takes while it lasts; the slots lend it where they can be given up and taken again.
    pub pass_bytes: u64,
    /// Tokens of a full context.
    pub max_context: usize,
    /// The KV cache when it begins.
    pub kv_first_bytes: u64,
    /// The KV cache of a full context.
    pub kv_full_bytes: u64,
    /// Slots of all layers when a conversation begins.
    pub slots: usize,
    /// Slots of all layers when the context is full.
    pub slots_full: usize,
    /// Slots more, of no layer, into which experts are read before they are asked for.
    pub spares: usize,
    /// Bytes of one slot.
    pub slot_bytes: u64,
    /// Layers.
    pub layers: usize,
    /// Experts of a layer.
    pub experts: usize,
    /// What KV cache, passes and slots share; `None` where the slots stay as they are.
    pub shared_bytes: Option<u64>,
    /// Where slots stay as they are: what may be kept of other conversations, and for going back in one. Where they
    /// give way, it is what [`Plan::floor_slots`] leaves.
    pub kept_bytes: u64,
    /// How experts are read.
    pub reads: Reads,
}

/// Makes the plan.
///
/// # Errors
/// [`Error::BadRequest`] naming what would be enough: for `memory` if the limit is below the least that works, for
/// `expert-cache-slots` or `max-context` if these are what does not fit.
pub fn plan(sizes: &Sizes<'_>, request: &Request) -> Result<Plan> {
    let layers = sizes.layers.max(1);
    let all = layers.saturating_mul(sizes.experts);
    if let Some(slots) = request.slots_per_layer
        && (slots == 0 || slots > sizes.experts)
    {
        let reason = format!("{slots} is not between 1 and the {} experts of a layer", sizes.experts);
        return Err(Error::bad("expert-cache-slots", reason));
    }
    let asked = request.slots_per_layer.map(|slots| slots.saturating_mul(layers));
    let fixed = fixed_bytes(sizes, request);
    let (first, full) = ((sizes.kv)(1), (sizes.kv)(request.max_context));
    let fit = |beside: u64, limit: Limit| {
        let left = limit.bytes.saturating_sub(fixed).saturating_sub(beside);
        usize::try_from(left / sizes.stride.max(1)).unwrap_or(usize::MAX).min(all)
    };
    if let Some(limit) = request.limit
        && limit.bytes < least(sizes, request)
    {
        return Err(too_small(sizes, request, limit));
    }
    let beside = |spares: usize| {
        let spares = (spares as u64).saturating_mul(sizes.stride);
        fixed.saturating_add(full).saturating_add(spares)
    };
    let slots_with = |pass: u64| match (asked, request.limit) {
        (Some(asked), _) => (asked, asked),
        (None, Some(limit)) if request.elastic => (fit(first, limit), fit(full, limit)),
        (None, Some(limit)) => {
            let slots = fit(full.saturating_add(pass), limit);
            (slots, slots)
        }
        (None, None) => (all.min(BLIND_SLOTS.saturating_mul(layers)), all.min(BLIND_SLOTS * layers)),
    };
    let mut pass_tokens = longest_pass(sizes, request, beside(0));
    let mut spares = spares(request, sizes, slots_with((sizes.pass)(pass_tokens)));
    // They take what a pass would have had, and are not worth one that is shorter than it has to be.
    if !fits_pass(sizes, request, beside(spares)) {
        spares = 0;
    } else if spares > 0 {
        pass_tokens = longest_pass(sizes, request, beside(spares));
    }
    let pass = (sizes.pass)(pass_tokens);
    let (slots, slots_full) = slots_with(pass);
    let taken = if asked.is_some() { 0 } else { spares };
    let (slots, slots_full) = (slots - taken, slots_full - taken);
    let fixed = fixed.saturating_add((spares as u64).saturating_mul(sizes.stride));
    let fit = |beside: u64, limit: Limit| {
        let left = limit.bytes.saturating_sub(fixed).saturating_sub(beside);
        usize::try_from(left / sizes.stride.max(1)).unwrap_or(usize::MAX).min(all)
    };
    // Where all slots are left beside a full context and a pass, nothing has to give way.
    let elastic = request.elastic && asked.is_none();
    let gives_way = |limit: &Limit| elastic && fit(full.saturating_add(pass), *limit) < slots;
    let mut plan = Plan {
        limit_bytes: request.limit.map(|limit| limit.bytes),
        limit_origin: request.limit.map(|limit| limit.origin),
        core_bytes: sizes.core,
        core: request.core.unwrap_or(Core::Mapped),
        process_bytes: sizes.process,
        scratch_bytes: sizes.scratch,
        pass_tokens,
        pass_bytes: pass,
        max_context: request.max_context,
        kv_first_bytes: first,
        kv_full_bytes: full,
        slots,
        slots_full,
        spares,
        slot_bytes: sizes.stride,
        layers,
        experts: sizes.experts,
        shared_bytes: request.limit.filter(gives_way).map(|limit| limit.bytes.saturating_sub(fixed)),
        kept_bytes: 0,
        reads: request.reads.unwrap_or(Reads::Direct),
    };
    if plan.shared_bytes.is_none() {
        plan.kept_bytes = kept_bytes(&plan);
    }
    if request.core.is_none() && plan.has_room_for_a_copy() {
        plan.core = Core::Copied;
    }
    if request.reads.is_none() && page_cache_is_free(&plan, request) {
        plan.reads = Reads::Buffered;
    }
    Ok(plan)
}

/// What may be kept where nothing gives way: what a limit leaves; where the machine is the limit, or none is known, as
/// much as one more full context.
fn kept_bytes(plan: &Plan) -> u64 {
    let left = plan.limit_bytes.map(|limit| limit.saturating_sub(plan.full_bytes()));
    match (left, plan.limit_origin) {
        (Some(left), Some(Origin::Given | Origin::Free)) => left,
        (Some(left), _) => left.min(plan.kv_full_bytes),
        (None, _) => plan.kv_full_bytes,
    }
}

/// Slots to read ahead into: taken from the others where these are not fixed and each layer has two at least, beside them
/// else; none where nothing is ever missing or the limit leaves no room.
fn spares(request: &Request, sizes: &Sizes<'_>, (slots, slots_full): (usize, usize)) -> usize {
    let layers = sizes.layers.max(1);
    let room = match (request.slots_per_layer, request.limit) {
        _ if slots_full >= layers.saturating_mul(sizes.experts) => false,
        (None, _) => slots_full.min(slots) >= layers.saturating_mul(2).saturating_add(request.spares),
        (Some(fixed), Some(limit)) => {
            let more = (request.spares as u64).saturating_mul(sizes.stride);
            let pass = (sizes.pass)(request.pass_tokens.min(request.max_context));
            let slots = (fixed.saturating_mul(layers) as u64).saturating_mul(sizes.stride);
            let taken = [fixed_bytes(sizes, request), (sizes.kv)(request.max_context), pass, slots, more];
            taken.into_iter().fold(0, u64::saturating_add) <= limit.bytes
        }
        (Some(_), None) => true,
    };
    if room { request.spares } else { 0 }
}

/// The least bytes with which `request` can be planned.
pub fn least(sizes: &Sizes<'_>, request: &Request) -> u64 {
    least_at(sizes, request, request.max_context)
}

fn least_at(sizes: &Sizes<'_>, request: &Request, context: usize) -> u64 {
    let slots = request.slots_per_layer.unwrap_or(1).saturating_mul(sizes.layers.max(1)) as u64;
    let (slots, pass) = (slots.saturating_mul(sizes.stride), (sizes.pass)(least_pass(request).min(context)));
    let lent = request.elastic && request.slots_per_layer.is_none();
    let both = if lent { slots.max(pass) } else { slots.saturating_add(pass) };
    fixed_bytes(sizes, request).saturating_add((sizes.kv)(context)).saturating_add(both)
}

/// The shortest passes that a limit may leave.
fn least_pass(request: &Request) -> usize {
    request.pass_tokens.min(request.max_context).clamp(1, LEAST_PASS)
}

/// Bytes that a pass may take beside `taken`; `None` where nothing bounds it.
fn pass_room(sizes: &Sizes<'_>, request: &Request, taken: u64) -> Option<u64> {
    let left = request.limit?.bytes.saturating_sub(taken);
    let slots =
        |count: usize| (count.saturating_mul(sizes.layers.max(1)) as u64).saturating_mul(sizes.stride);
    Some(match request.slots_per_layer {
        Some(fixed) => left.saturating_sub(slots(fixed)),
        None if request.elastic => left,
        // What it takes is lost to the slots for good.
        None => left.saturating_sub(slots(1)) / 4,
    })
}

/// Whether the shortest pass fits beside `taken`.
fn fits_pass(sizes: &Sizes<'_>, request: &Request, taken: u64) -> bool {
    pass_room(sizes, request, taken).is_none_or(|room| (sizes.pass)(least_pass(request)) <= room)
}

/// The longest pass for which there is memory beside `taken`.
fn longest_pass(sizes: &Sizes<'_>, request: &Request, taken: u64) -> usize {
    let most = request.pass_tokens.min(request.max_context).max(1);
    let Some(room) = pass_room(sizes, request, taken) else { return most };
    let (mut fits, mut beyond) = (least_pass(request), most.saturating_add(1));
    while beyond - fits > 1 {
        let middle = fits.midpoint(beyond);
        if (sizes.pass)(middle) > room { beyond = middle } else { fits = middle }
    }
    fits
}

/// What neither the context nor the slots change.
fn fixed_bytes(sizes: &Sizes<'_>, request: &Request) -> u64 {
    let dropped = request.limit.is_some_and(|limit| limit.origin == Origin::Machine)
        && request.core != Some(Core::Copied);
    let core = if dropped { 0 } else { sizes.core };
    core.saturating_add(sizes.scratch).saturating_add(sizes.process)
}

/// Buffered reads keep a second copy of experts in the page cache, which is worth having where it takes from nobody:
/// no limit was given and what is free holds all of it besides the plan.
fn page_cache_is_free(plan: &Plan, request: &Request) -> bool {
    let experts = (plan.layers.saturating_mul(plan.experts) as u64).saturating_mul(plan.slot_bytes);
    plan.limit_origin != Some(Origin::Given)
        && request.free.is_some_and(|free| free >= plan.full_bytes().saturating_add(experts))
}

/// Whole megabytes that hold so many bytes: what is asked for must suffice when typed.
fn megabytes(bytes: u64) -> u64 {
    bytes.div_ceil(1_000_000)
}

fn too_small(sizes: &Sizes<'_>, request: &Request, limit: Limit) -> Error {
    let (context, need) = (request.max_context, megabytes(least(sizes, request)));
    let has = limit.bytes / 1_000_000;
    let whose = match limit.origin {
        Origin::Given => "given",
        Origin::Free => "free",
        Origin::Machine => "there",
    };
    if least_at(sizes, request, 1) <= limit.bytes {
        let (mut fits, mut beyond) = (1, context);
        while beyond - fits > 1 {
            let middle = fits.midpoint(beyond);
            if least_at(sizes, request, middle) > limit.bytes { beyond = middle } else { fits = middle }
        }
        let reason = format!("{context} tokens need {need} MB of memory, {has} MB are {whose}; {fits} fit");
        return Error::bad("max-context", reason);
    }
    let (field, what) = match request.slots_per_layer {
        Some(slots) if slots > 1 => ("expert-cache-slots", format!("{slots} in each layer need")),
        _ => ("memory", "this model needs".to_owned()),
    };
    let reason = format!("{what} {need} MB at {context} tokens of context, {has} MB are {whose}");
    Error::bad(field, reason)
}

impl Plan {
    /// Slots of a layer when a conversation begins; some layers may have one more.
    pub fn slots_per_layer(&self) -> usize {
        self.slots / self.layers.max(1)
    }

    /// What is resident at most when a conversation begins.
    pub fn first_bytes(&self) -> u64 {
        self.bytes(self.kv_first_bytes, self.slots)
    }

    /// What is resident at most when the context is full.
    pub fn full_bytes(&self) -> u64 {
        self.bytes(self.kv_full_bytes, self.slots_full)
    }

    fn bytes(&self, kv: u64, slots: usize) -> u64 {
        let slots = (slots.saturating_add(self.spares) as u64).saturating_mul(self.slot_bytes);
        // What the slots lend is theirs.
        let pass = if self.shared_bytes.is_some() { 0 } else { self.pass_bytes };
        [self.core_bytes, self.process_bytes, self.scratch_bytes, pass, kv, slots]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    /// Slots of all layers beside a KV cache of so many bytes.
    pub fn slots_beside(&self, kv: u64) -> usize {
        let Some(shared) = self.shared_bytes else { return self.slots };
        let left = shared.saturating_sub(kv) / self.slot_bytes.max(1);
        usize::try_from(left).unwrap_or(usize::MAX).min(self.slots)
    }

    /// Bytes of KV cache that all texts together may come to, those that run side by side and those that are kept.
    pub fn texts_bytes(&self) -> u64 {
        match self.shared_bytes {
            Some(shared) => {
                shared.saturating_sub((self.floor_slots() as u64).saturating_mul(self.slot_bytes))
            }
            None => self.kv_full_bytes.saturating_add(self.kept_bytes),
        }
    }

    /// Texts side by side that are likely to bring more than they cost: several where most experts stay in memory, whatever
    /// each text asks for. With fewer slots they would push out each other's.
    pub fn suggested_parallel(&self) -> usize {
        let all = self.layers.saturating_mul(self.experts);
        if self.slots_full >= all.div_ceil(2) { SUGGESTED_PARALLEL } else { 1 }
    }

    /// Slots that kept conversations must leave: half of those beside a full context, and one in each layer.
    pub fn floor_slots(&self) -> usize {
        (self.slots_full / 2).max(self.layers).min(self.slots_full)
    }

    /// A copy of the core cannot be dropped, so it needs a limit with room; see [`COPY_CORE_SLOTS`].
    fn has_room_for_a_copy(&self) -> bool {
        let enough = self.experts.min(COPY_CORE_SLOTS).saturating_mul(self.layers);
        matches!(self.limit_origin, Some(Origin::Given | Origin::Free)) && self.slots_full >= enough
    }

    /// The plan in words, one line for each term.
    pub fn lines(&self) -> Vec<String> {
        let mb = |bytes: u64| format!("{:>6} MB", megabytes(bytes));
        let per_layer = |slots: usize| slots as f64 / self.layers.max(1) as f64;
        let mut lines = Vec::new();
        if let (Some(limit), Some(origin)) = (self.limit_bytes, self.limit_origin) {
            let whose = match origin {
                Origin::Given => "the limit, as asked for",
                Origin::Free => "the limit: what is free, less a reserve",
                Origin::Machine => "the limit: all there is, the mapped core not counted",
            };
            lines.push(format!("{} {whose}", mb(limit)));
        }
        let core = match self.core {
            Core::Mapped => "resident weights, mapped: the system may drop pages and read them again",
            Core::Copied => "resident weights, copied into memory",
        };
        lines.push(format!("{} {core}", mb(self.core_bytes)));
        lines.push(format!("{} the program, its tokenizer and tables", mb(self.process_bytes)));
        lines.push(format!("{} activations", mb(self.scratch_bytes)));
        let whose = if self.shared_bytes.is_some() { ", lent by the slots" } else { "" };
        let (pass, tokens) = (mb(self.pass_bytes), self.pass_tokens);
        lines.push(format!("{pass} a pass over {tokens} tokens of a prompt, while it lasts{whose}"));
        let context = self.max_context;
        let (first, full) = (megabytes(self.kv_first_bytes), mb(self.kv_full_bytes));
        lines.push(format!("{full} KV cache at {context} tokens ({first} MB at first)"));
        let slots = (self.slots_full.saturating_add(self.spares) as u64).saturating_mul(self.slot_bytes);
        let spares = match self.spares {
            0 => String::new(),
            spares => format!(", and {spares} to read ahead into"),
        };
        lines.push(format!(
            "{} expert slots: {:.1} of {} a layer beside a full context, {:.1} at first{spares}",
            mb(slots),
            per_layer(self.slots_full),
            self.experts,
            per_layer(self.slots),
        ));
        lines.push(format!("{} in all, experts by {} reads", mb(self.full_bytes()), self.reads));
        lines
    }
}

/// The plan in one line.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = megabytes;
        match self.limit_bytes {
            Some(limit) => write!(f, "memory {} of {} MB", mb(self.full_bytes()), mb(limit))?,
            None => write!(f, "memory {} MB", mb(self.full_bytes()))?,
        }
        let core = if self.core == Core::Mapped { "mapped" } else { "copied" };
        write!(
            f,
            ": core {} ({core}), KV {} to {}",
            mb(self.core_bytes),
            mb(self.kv_first_bytes),
            mb(self.kv_full_bytes)
        )?;
        write!(f, ", program {}", mb(self.process_bytes.saturating_add(self.scratch_bytes)))?;
        let per_layer = |slots: usize| slots as f64 / self.layers.max(1) as f64;
        write!(f, ", slots {:.1}", per_layer(self.slots))?;
        if self.slots_full < self.slots {
            write!(f, " to {:.1}", per_layer(self.slots_full))?;
        }
        write!(f, " of {} a layer", self.experts)?;
        if let Some(hits) = expected_hits(self.slots_per_layer(), self.experts) {
            write!(f, " (about {:.0} % hits)", 100.0 * hits)?;
        }
        write!(f, ", {} reads, prompts by {} tokens", self.reads, self.pass_tokens)
    }
}

/// Expected share of experts that are held, for 128 experts of which 8 are used: measured on generated routing that
/// has the statistics known of the model (LFU with a half-life of 32 tokens, `scripts/cache_sim.py`). `None` for
/// other models.
pub fn expected_hits(slots: usize, experts: usize) -> Option<f64> {
    const MEASURED: [(usize, f64); 19] = [
        (0, 0.0),
        (2, 0.14),
        (3, 0.20),
        (4, 0.25),
        (6, 0.34),
        (8, 0.42),
        (10, 0.49),
        (12, 0.55),
        (16, 0.66),
        (20, 0.735),
        (24, 0.79),
        (32, 0.87),
        (40, 0.915),
        (48, 0.95),
        (56, 0.966),
        (64, 0.977),
        (80, 0.983),
        (127, 0.99),
        (128, 1.0),
    ];
    if experts != 128 {
        return None;
    }
    let above = MEASURED.iter().position(|(at, _)| *at >= slots)?;
    let (high, hits) = MEASURED[above];
    let (low, before) = MEASURED[above.saturating_sub(1)];
    let share = if high == low { 1.0 } else { (slots - low) as f64 / (high - low) as f64 };
    Some(before + share * (hits - before))
}

#[cfg(test)]
mod tests;
