//! Several conversations with edits, branches and titles between their turns: what is kept of them changes no bit.

use crate::fixture::{Fixture, exact};
use crate::rig::{Rig, Step};
use fieldfare::engine::{EngineOptions, MemoryBudget, Reuse};
use fieldfare::format::Layout;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::RefCell;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (0usize..4, 1usize..50, 0usize..40).prop_map(|(at, new, answer)| Step::Turn(at, new, answer)),
        2 => (0usize..4, 1usize..16, 1usize..40).prop_map(|(at, share, new)| Step::Edit(at, share, new)),
        1 => (0usize..4, 0usize..4).prop_map(|(from, to)| Step::Branch(from, to)),
        2 => (4usize..30).prop_map(Step::Title),
        1 => (0usize..4, 1usize..20).prop_map(|(at, new)| Step::Score(at, new)),
    ];
    prop::collection::vec(step, 8..20)
}

/// Three conversations one after the other and then the first again: more than two places hold.
fn three_long_ones() -> Vec<Step> {
    let mut steps: Vec<Step> =
        (0..3).flat_map(|at| [Step::Turn(at, 45, 39), Step::Turn(at, 45, 30)]).collect();
    steps.push(Step::Turn(0, 5, 3));
    steps
}

#[test]
fn any_history_gives_what_a_fresh_run_gives() {
    let fixture = Fixture::new(Layout::Tiled);
    let files = fixture.dir.path().join("files");
    let mut met = Vec::new();
    let mut cached = 0;
    // Given a limit, all that it leaves is for conversations; without one they share as much as a full context.
    let (room, scarce) = (MemoryBudget::Bytes(1 << 30), MemoryBudget::Auto);
    for (conversations, memory, dir, chunk) in
        [(2, room, None, 256), (3, room, Some(files), 16), (9, room, None, 40), (9, scarce, None, 64)]
    {
        let kept = EngineOptions {
            conversations,
            memory,
            prompt_cache_dir: dir,
            prompt_cache_bytes: 64 << 20,
            prefill_chunk_tokens: chunk,
            expert_cache_slots: Some(5),
            ..exact()
        };
        let other = Fixture::new(Layout::Tiled);
        let rig = RefCell::new(Rig::new(fixture.open(kept), &other));
        three_long_ones().iter().for_each(|step| rig.borrow_mut().step(step));
        let mut runner = TestRunner::new_with_rng(
            Config { cases: 4, failure_persistence: None, ..Config::default() },
            proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
        );
        // Histories follow one another in the same engine, which makes them one long history.
        runner
            .run(&steps(), |steps| {
                steps.iter().for_each(|step| rig.borrow_mut().step(step));
                Ok(())
            })
            .expect("no bit differs");
        let rig = rig.into_inner();
        met.extend(rig.met);
        cached += rig.cached;
    }
    for reuse in [Reuse::Continued, Reuse::New, Reuse::Edited, Reuse::Window, Reuse::Evicted] {
        assert!(met.contains(&reuse), "{} was never met", reuse.name());
    }
    assert!(cached > 1000, "{cached}");
}
