//! Memory budgets and ways of reading. A program of its own: a plan counts what the process holds, so tests beside this one
//! would move what it asks for.

#[path = "../engine/fixture.rs"]
mod fixture;
#[path = "../engine/rig.rs"]
mod rig;
#[path = "../engine/side_by_side.rs"]
mod side_by_side;
mod talks;

use fieldfare::engine::{Core, EngineOptions, GenerateOptions, MemoryBudget};
use fieldfare::format::Layout;
use fieldfare::store::Reads;
use fixture::{Fixture, exact, generate, greedy, ids};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Keeps the tests of this program apart.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn any_memory_budget_and_way_of_reading_gives_the_same() {
    let _alone = alone();
    let prompt = &ids("prompt_ids")[..40];
    let options = GenerateOptions { stop_ids: Some(Vec::new()), ..greedy(24) };
    for layout in [Layout::Tiled, Layout::V1] {
        let fixture = Fixture::new(layout);
        let all = fixture.open(EngineOptions { expert_cache_slots: Some(16), ..exact() });
        let (layers, slot) = (all.plan().layers, all.plan().slot_bytes);
        drop(all);
        let wanted = generate(&mut fixture.open(exact()), prompt, &options).token_ids;
        // What does not fit says what would.
        let none = EngineOptions { memory: MemoryBudget::Bytes(1), ..exact() };
        let error = fixture.try_open(none).err().expect("a byte is not enough").to_string();
        assert!(
            error.starts_with("memory: this model needs ") && error.contains(" MB at 256 tokens"),
            "{error}"
        );
        let mut seen = Vec::new();
        for (extra, reads, core) in [
            (0, Some(Reads::Buffered), None),
            (0, Some(Reads::Direct), Some(Core::Copied)),
            (3 * layers as u64 + 5, None, Some(Core::Mapped)),
            (9 * layers as u64, Some(Reads::Direct), None),
            (1 << 20, None, None),
        ] {
            // What the process holds already counts, so the least is asked for again each time.
            let options_for =
                |bytes| EngineOptions { memory: MemoryBudget::Bytes(bytes), reads, core, ..exact() };
            let blank = fixture.open(options_for(4 << 30));
            let kv = blank.plan().kv_full_bytes;
            let fixed = blank.plan().full_bytes() - kv - blank.plan().slots as u64 * slot;
            drop(blank);
            // Some slack for what the allocator keeps.
            let bytes = fixed + kv + layers as u64 * slot + extra * slot + (8 << 20);
            let mut engine = fixture.open(options_for(bytes));
            let plan = engine.plan().clone();
            assert!(plan.full_bytes() <= bytes && plan.first_bytes() <= bytes, "{plan}");
            assert_eq!(generate(&mut engine, prompt, &options).token_ids, wanted, "{plan}");
            let stats = engine.stats_with_pages();
            assert!(stats.slots <= plan.slots && stats.slots >= plan.slots_full, "{stats:?}");
            assert_eq!(stats.core_copied_bytes > 0, plan.core == Core::Copied);
            assert!(
                layout == Layout::Tiled
                    || stats.reads == Some(Reads::Buffered)
                    || reads != Some(Reads::Buffered)
            );
            seen.push(plan.slots);
        }
        assert_eq!(seen.last(), Some(&(layers * 16)));
    }
}
