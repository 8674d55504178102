//! From what the machine says and what was asked for to a [`Plan`]: the part of the memory budget that looks around.

use super::budget::{self, Core, Limit, MemoryBudget, Origin, Plan, Request, Sizes};
use super::options::EngineOptions;
use crate::Result;
use crate::model::{LookAhead, Memory, Prepared, SPARE_SLOTS};
use crate::sys::memory::{self, Room};
use crate::sys::pages;

/// What the program takes besides model and buffers when it has just opened one: code and heap...
const PROGRAM: u64 = 18 << 20;
/// ... and, for each id, the tokenizer's tables.
const TOKENIZER_PER_ID: u64 = 136;
/// Ids of the full-size model.
const USUAL_IDS: u64 = 262_144;
/// What it may take more than when the model is opened: tokenizer pages not yet touched, the sampler's tables, stacks,
/// page tables, the unused end of the last huge page.
const GROWTH: u64 = 24 << 20;

/// What the process is taken to hold already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holding {
    /// What the system says, if it is more than usual: the program may be part of a larger one.
    Measured,
    /// A usual figure, for a process that only plans.
    Usual,
}

/// What the process takes besides the engine. As a rule the same whether a plan is only asked for or carried out, so that
/// all commands name the same least memory.
fn process_bytes(ids: u64, held: Option<u64>, options: &EngineOptions) -> u64 {
    let usual = PROGRAM.saturating_add(ids.saturating_mul(TOKENIZER_PER_ID));
    let beside = options.beside.bytes.saturating_add(ids.saturating_mul(options.beside.bytes_per_id));
    held.unwrap_or(0).max(usual).saturating_add(GROWTH).saturating_add(beside)
}

/// Plans for a prepared model.
pub(super) fn plan(prepared: &Prepared, options: &EngineOptions, holding: Holding) -> Result<Plan> {
    let (room, process) = (memory::room(), memory::process());
    let held = process.rss.filter(|_| holding == Holding::Measured);
    let own = process.rss_anon.or(process.rss).unwrap_or(0);
    let config = prepared.config();
    let sizes = Sizes {
        core: prepared.core_bytes(),
        stride: prepared.stride(),
        layers: config.layers.len(),
        experts: config.num_experts,
        kv: &|tokens| prepared.kv_bytes(tokens),
        scratch: prepared.scratch_bytes(),
        pass: &|tokens| prepared.pass_bytes(tokens),
        process: process_bytes(config.vocab_size as u64, held, options),
    };
    plan_sizes(&sizes, &room, own, options)
}

/// Plans for a model of known sizes that is not there, in a process that is not running.
pub(super) fn plan_absent(sizes: &Sizes<'_>, options: &EngineOptions) -> Result<Plan> {
    let sizes = Sizes { process: process_bytes(USUAL_IDS, None, options), ..*sizes };
    plan_sizes(&sizes, &memory::room(), 0, options)
}

fn plan_sizes(sizes: &Sizes<'_>, room: &Room, own: u64, options: &EngineOptions) -> Result<Plan> {
    let request = Request {
        limit: limit(room, own, options),
        free: room.free(),
        max_context: options.max_context,
        pass_tokens: options.prefill_chunk_tokens,
        slots_per_layer: options.expert_cache_slots,
        reads: options.reads,
        core: options.core,
        elastic: pages::CAN_RELEASE,
        spares: if options.look_ahead == LookAhead::Off { 0 } else { SPARE_SLOTS },
    };
    budget::plan(sizes, &request)
}

/// What a plan means for the model.
pub(super) fn memory(plan: &Plan) -> Memory {
    Memory {
        slots: plan.slots,
        spares: plan.spares,
        shared_bytes: plan.shared_bytes,
        floor_slots: plan.floor_slots(),
        kept_bytes: plan.kept_bytes,
        pass_tokens: plan.pass_tokens,
        copy_core: plan.core == Core::Copied,
        // Elsewhere the plan does not count the core, and pages read too early could be gone when they are needed.
        read_core_ahead: matches!(plan.limit_origin, Some(Origin::Given | Origin::Free)),
        reads: plan.reads,
    }
}

/// The bound on this process, of which `own` bytes are held already.
fn limit(room: &Room, own: u64, options: &EngineOptions) -> Option<Limit> {
    let machine = room.limit();
    match (options.memory, options.expert_cache_slots) {
        // More than there is would only end in the system's killing somebody.
        (MemoryBudget::Bytes(bytes), _) => {
            Some(Limit { bytes: bytes.min(machine.unwrap_or(bytes)), origin: Origin::Given })
        }
        // Whoever fixes the slots has decided; only what cannot work is refused.
        (MemoryBudget::Auto, Some(_)) => machine.map(|bytes| Limit { bytes, origin: Origin::Machine }),
        (MemoryBudget::Auto, None) => {
            free_for_us(room).map(|bytes| Limit { bytes: bytes.saturating_add(own), origin: Origin::Free })
        }
    }
}

/// What is free, less a reserve. Other programs of the machine want some of what is available, and the files they read
/// some page cache; in a group of one's own only the kernel's own tables have to fit beside.
fn free_for_us(room: &Room) -> Option<u64> {
    let machine = room.available.map(|free| free.saturating_sub((free / 8).clamp(256 << 20, 2 << 30)));
    let group = [room.group_free, room.rlimit_free].into_iter().flatten().min();
    let group = group.map(|free| free.saturating_sub((free / 32).clamp(32 << 20, 1 << 30)));
    machine.into_iter().chain(group).min()
}

#[cfg(test)]
mod tests {
    use super::super::options::Beside;
    use super::*;

    #[test]
    fn what_is_only_planned_and_what_is_done_count_the_same() {
        let mut options = EngineOptions::default();
        let planned = process_bytes(4096, None, &options);
        assert_eq!(process_bytes(4096, Some(12 << 20), &options), planned);
        assert_eq!(
            process_bytes(4096, Some(planned), &options),
            planned + GROWTH,
            "part of a larger program"
        );
        options.beside = Beside { bytes: 1 << 20, bytes_per_id: 10 };
        assert_eq!(process_bytes(4096, None, &options), planned + (1 << 20) + 40_960);
    }

    #[test]
    fn limits_come_from_the_option_the_machine_or_what_is_free() {
        let gib = |n: u64| n << 30;
        let room = Room {
            total: Some(gib(16)),
            available: Some(gib(8)),
            group_limit: Some(gib(4)),
            group_free: Some(gib(2)),
            rlimit_free: None,
        };
        let ask = |memory, expert_cache_slots| {
            limit(&room, 100, &EngineOptions { memory, expert_cache_slots, ..EngineOptions::default() })
        };
        let is = |bytes, origin| Some(Limit { bytes, origin });
        assert_eq!(ask(MemoryBudget::Bytes(gib(3)), None), is(gib(3), Origin::Given));
        assert_eq!(ask(MemoryBudget::Bytes(gib(9)), Some(2)), is(gib(4), Origin::Given));
        assert_eq!(ask(MemoryBudget::Auto, Some(2)), is(gib(4), Origin::Machine));
        assert_eq!(ask(MemoryBudget::Auto, None), is(gib(2) - (gib(2) / 32) + 100, Origin::Free));
        let machine = Room { group_free: None, ..room };
        assert_eq!(free_for_us(&machine), Some(gib(7)));
        assert_eq!(free_for_us(&Room::default()), None);
        assert_eq!(free_for_us(&Room { available: Some(5), ..Room::default() }), Some(0));
    }
}
