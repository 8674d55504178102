//! What conversations take, and give back.

use crate::alone;
use crate::fixture::{Fixture, exact, generate, greedy};
use crate::rig::{Rig, Step};
use crate::side_by_side::{assert_same, side_by_side, wishes};
use fieldfare::engine::{Engine, EngineOptions, MemoryBudget, Reuse};
use fieldfare::format::Layout;
use fieldfare::sys::memory;

/// Opens with the least that is enough, in steps of so many bytes.
fn least(fixture: &Fixture, options: &EngineOptions, step: u64) -> (Engine, u64) {
    let mut bytes = step;
    loop {
        let options = EngineOptions { memory: MemoryBudget::Bytes(bytes), ..options.clone() };
        match fixture.try_open(options) {
            Ok(engine) => return (engine, bytes),
            Err(error) => assert!(bytes < 4 << 30, "{error}"),
        }
        bytes += step;
    }
}

/// The same with room for more contexts. The least is opened only once: by the next time the process itself may hold a page
/// more, which counts.
fn with_more(
    engine: Engine,
    fixture: &Fixture,
    contexts: u64,
    memory: MemoryBudget,
    options: &EngineOptions,
) -> Engine {
    if contexts == 0 {
        return engine;
    }
    drop(engine);
    fixture.open(EngineOptions { memory, ..options.clone() })
}

/// In tight budgets conversations give way to slots and to each other; in wider ones slots stay and conversations have what
/// is left.
#[test]
fn tight_budgets_give_the_same_and_are_kept() {
    let _alone = alone();
    let (fixture, other) = (Fixture::new(Layout::Tiled), Fixture::new(Layout::Tiled));
    let options = EngineOptions { conversations: 9, ..exact() };
    let mut met = Vec::new();
    for contexts in [0, 1, 3] {
        let (engine, bytes) = least(&fixture, &options, 1 << 20);
        let bytes = bytes + contexts * engine.plan().kv_full_bytes;
        let engine = with_more(engine, &fixture, contexts, MemoryBudget::Bytes(bytes), &options);
        let plan = engine.plan().clone();
        assert_eq!(plan.shared_bytes.is_some(), contexts < 2, "{plan}");
        let room = bytes - plan.core_bytes - plan.process_bytes - plan.scratch_bytes;
        let mut rig = Rig::new(engine, &other);
        for round in 0..14 {
            rig.step(&Step::Turn(round / 2 % 2, 30, 12));
            rig.step(&Step::Score(round % 3, 5));
            if round == 10 {
                rig.step(&Step::Branch(1, 2));
                rig.step(&Step::Edit(1, 8, 9));
                rig.step(&Step::Title(20));
            }
            let stats = rig.kept.stats();
            assert!((stats.kv_bytes + stats.slot_bytes) as u64 <= room, "{contexts}: {stats:?}");
            assert!(stats.slots >= plan.floor_slots(), "{contexts}: {stats:?}");
        }
        met.push((rig.met.contains(&Reuse::Continued), rig.kept.kept_conversations().evicted > 0));
    }
    assert!(met[2].0 && met.iter().all(|met| met.1), "{met:?}");
}

/// The memory of the KV cache comes as it fills and is the system's again when it is dropped.
#[test]
fn resident_memory_follows_the_cache() {
    let _alone = alone();
    let Some(_) = memory::process().rss_anon else {
        println!("this system does not tell anonymous memory apart");
        return;
    };
    let resident = || memory::process().rss_anon.expect("as before");
    let fixture = Fixture::new(Layout::Tiled);
    let slots = Some(16);
    let options = EngineOptions { max_context: 6000, expert_cache_slots: slots, conversations: 9, ..exact() };
    let mut engine = fixture.open(options);
    let prompt: Vec<u32> = (0..5000).map(|at| 200 + at % 250).collect();
    // Buffers that stay are there after the first.
    generate(&mut engine, &prompt, &greedy(2));
    engine.session().clear();
    assert_eq!(engine.stats().kv_bytes, 0);
    let before = resident();
    for round in 0..3 {
        generate(&mut engine, &prompt, &greedy(2));
        let (held, taken) = (engine.stats().kv_bytes as u64, resident().saturating_sub(before));
        assert!(held > 10 << 20, "{held}");
        // The last pages are not full.
        assert!(taken + (2 << 20) >= held && taken <= held + (2 << 20), "round {round}: {taken} of {held}");
        engine.session().clear();
        assert!(resident() <= before + (2 << 20), "round {round}: {} more", resident() - before);
    }
}

/// Texts side by side in tight budgets: what they and the slots take is inside, some wait or give way, and nothing differs.
#[test]
fn texts_side_by_side_stay_inside_the_budget() {
    let _alone = alone();
    let (fixture, other) = (Fixture::new(Layout::Tiled), Fixture::new(Layout::Tiled));
    let options = EngineOptions { conversations: 4, ..exact() };
    let mut fresh = other.open(EngineOptions { conversations: 0, ..exact() });
    let wishes = wishes(&fresh);
    let mut wanted = Vec::new();
    for (prompt, options) in &wishes {
        fresh.session().clear();
        wanted.push(generate(&mut fresh, prompt, options));
    }
    let mut slots = Vec::new();
    for contexts in [0, 1, 4] {
        let (engine, bytes) = least(&fixture, &options, 1 << 20);
        let bytes = bytes + contexts * engine.plan().kv_full_bytes;
        let mut engine = with_more(engine, &fixture, contexts, MemoryBudget::Bytes(bytes), &options);
        let plan = engine.plan().clone();
        let room = bytes - plan.core_bytes - plan.process_bytes - plan.scratch_bytes;
        let mut most = 0;
        let mut look = |stats: &fieldfare::model::RunnerStats| {
            assert!((stats.kv_bytes + stats.slot_bytes) as u64 <= room, "{contexts}: {stats:?}");
            assert!(stats.slots >= plan.layers, "{contexts}: {stats:?}");
            most = most.max(stats.kv_bytes);
        };
        let found = side_by_side(&mut engine, &wishes, 4, true, &mut look);
        assert_same(&found, &wanted, &format!("{contexts}: {plan}"));
        slots.push((plan.slots, most));
    }
    // Where there is enough for all, what is held at most is not the same each time.
    assert!(slots.is_sorted_by_key(|(slots, _)| *slots), "{slots:?}");
    assert!(slots[0].1 < slots[1].1 && slots[0].1 < slots[2].1, "{slots:?}");
}
