//! What must not change a bit: chunking, slots, policy, threads, layout, ring wraps, rewinds.

use crate::support::{Reference, WINDOW, all_logits, bits, exact, prefill, runner};
use fieldfare::Error;
use fieldfare::format::{Integrity, Layout, ModelDir};
use fieldfare::model::{Forward, LookAhead, Memory, Precision, Prepared, RunnerOptions};
use fieldfare::store::{Policy, Reads};
use std::ops::ControlFlow;

/// Token by token, all experts held, one thread: what everything else is compared with.
fn one_by_one(precision: Precision, ids: &[u32]) -> Vec<Vec<f32>> {
    let mut runner = runner(Layout::V1, &RunnerOptions { precision, slots_per_layer: Some(16), ..exact() });
    ids.iter().map(|&id| runner.decode(id).unwrap().to_vec()).collect()
}

fn assert_same(found: &[Vec<f32>], wanted: &[Vec<f32>], what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (i, (a, b)) in found.iter().zip(wanted).enumerate() {
        assert!(bits(a) == bits(b), "{what}: row {i} differs");
    }
}

#[test]
fn chunks_slots_policies_threads_and_layouts() {
    // More than four windows.
    let ids = &Reference::load().all_ids()[..140];
    for (precision, combinations) in [(Precision::Exact, 16), (Precision::Default, 5)] {
        let wanted = one_by_one(precision, ids);
        // Every value of each option, in combinations that differ in all of them.
        let chunks = [1, 7, 32, 128, 256, 31, 33, 64];
        let slots = [2, 3, 4, 5, 16, 15, 8, 1, 6, 7, 9, 10, 11, 12, 13, 14];
        for (i, &slots) in slots[..combinations].iter().enumerate() {
            let options = RunnerOptions {
                precision,
                prefill_chunk_tokens: chunks[i % chunks.len()],
                slots_per_layer: Some(slots),
                policy: Policy::ALL[i % 3],
                threads: Some(i % 3 + 1),
                ..exact()
            };
            let layout = if i % 2 == 0 { Layout::Tiled } else { Layout::V1 };
            let mut runner = runner(layout, &options);
            assert_same(&all_logits(&mut runner, ids), &wanted, &format!("{layout} {options:?}"));
            let stats = runner.stats();
            assert!(slots < 16 || stats.misses <= 12 * 16, "no expert is read twice: {stats:?}");
        }
    }
}

#[test]
fn looking_ahead_or_not() {
    let ids = &Reference::load().all_ids()[..100];
    let wanted = one_by_one(Precision::Default, ids);
    let mut used = 0;
    for (i, slots) in [1, 2, 5, 9, 15].into_iter().enumerate() {
        for look_ahead in [LookAhead::On, LookAhead::Auto, LookAhead::Off] {
            let options = RunnerOptions {
                precision: Precision::Default,
                slots_per_layer: Some(slots),
                policy: Policy::ALL[i % 3],
                threads: Some(i % 3 + 1),
                look_ahead,
                ..exact()
            };
            let mut runner = runner(if i % 2 == 0 { Layout::Tiled } else { Layout::V1 }, &options);
            let prompt = 20 + i;
            let mut rows = vec![prefill(&mut runner, &ids[..prompt])];
            for &id in &ids[prompt..] {
                rows.push(runner.decode(id).unwrap().to_vec());
            }
            assert_same(&rows, &wanted[prompt - 1..], &format!("{options:?}"));
            let stats = runner.stats();
            assert_eq!(stats.ahead_guesses > 0, look_ahead != LookAhead::Off, "{stats:?}");
            assert!(stats.ahead_used <= stats.ahead_guesses && stats.ahead_recalled <= stats.ahead_chosen);
            used += stats.ahead_used;
        }
    }
    assert!(used > 100, "{used} guesses were right");
}

/// What makes the layouts above differ in more than the order of bytes.
#[test]
fn tiled_experts_have_gate_and_up_in_one() {
    for (layout, joined) in [(Layout::Tiled, true), (Layout::V1, false)] {
        let dir = ModelDir::open(crate::support::tiny(layout).path(), Integrity::Structure).unwrap();
        assert_eq!(Prepared::new(dir, exact()).unwrap().joins_gate_and_up(), joined, "{layout}");
    }
}

#[test]
fn slots_given_up_to_a_growing_cache() {
    let some = Reference::load().all_ids();
    let ids: Vec<u32> = some.iter().cycle().take(560).copied().collect();
    let options = RunnerOptions { max_context: 600, prefill_chunk_tokens: 50, ..exact() };
    let wanted = prefill(&mut runner(Layout::Tiled, &options), &ids);
    for (core, reads) in [(false, Reads::Direct), (true, Reads::Buffered)] {
        let dir = ModelDir::open(crate::support::tiny(Layout::Tiled).path(), Integrity::Structure).unwrap();
        let prepared = Prepared::new(dir, &options).unwrap();
        let (stride, layers) = (prepared.stride(), prepared.config().layers.len());
        // A full cache leaves one slot in each layer, and then some.
        let shared = prepared.kv_bytes(600) + (layers as u64 + 3) * stride;
        let slots = usize::try_from((shared - prepared.kv_bytes(1)) / stride).unwrap();
        assert!(slots > layers + 3 && slots < 16 * layers, "{slots}");
        let pass_tokens = 50;
        let shared_bytes = Some(shared);
        // Read ahead where it is mapped.
        let memory = Memory {
            slots,
            spares: 0,
            shared_bytes,
            floor_slots: layers,
            kept_bytes: 0,
            pass_tokens,
            copy_core: core,
            read_core_ahead: !core,
            reads,
        };
        let mut runner = prepared.run(memory).unwrap();
        assert_eq!(runner.stats().slots, slots);
        assert_same(
            &[prefill(&mut runner, &ids)],
            std::slice::from_ref(&wanted),
            "with fewer and fewer slots",
        );
        let stats = runner.stats_with_pages();
        assert_eq!(stats.slots, layers + 3);
        assert!((stats.kv_bytes + stats.slot_bytes) as u64 <= shared);
        assert_eq!(stats.core_copied_bytes > 0, core);
    }
}

#[test]
fn prefill_then_decode_at_the_edges_of_the_ring() {
    let ids = &Reference::load().all_ids()[..145];
    let wanted = one_by_one(Precision::Default, ids);
    let mut options = RunnerOptions { precision: Precision::Default, ..exact() };
    for chunk in [7, WINDOW - 1, WINDOW, WINDOW + 1, 128] {
        options.prefill_chunk_tokens = chunk;
        for prompt in [1, WINDOW - 1, WINDOW, WINDOW + 1, 3 * WINDOW + 5] {
            let mut runner = runner(Layout::Tiled, &options);
            let mut rows = vec![prefill(&mut runner, &ids[..prompt])];
            for &id in &ids[prompt..prompt + WINDOW + 3] {
                rows.push(runner.decode(id).unwrap().to_vec());
            }
            let wanted = &wanted[prompt - 1..][..rows.len()];
            assert_same(&rows, wanted, &format!("chunk {chunk}, prompt {prompt}"));
        }
    }
}

#[test]
fn a_prompt_in_several_calls() {
    let ids = Reference::load().all_ids();
    let wanted = one_by_one(Precision::Exact, &ids);
    let mut runner = runner(Layout::V1, &RunnerOptions { prefill_chunk_tokens: 16, ..exact() });
    let mut at = 0;
    for len in [5, 1, 40, 16, 17, 3, 90, 60] {
        assert_eq!(runner.position(), at);
        let last = prefill(&mut runner, &ids[at..at + len]);
        at += len;
        assert!(bits(&last) == bits(&wanted[at - 1]), "after {at}");
    }
    assert_eq!(at, ids.len());
}

#[test]
fn the_context_can_be_filled_to_the_last_position() {
    let ids = Reference::load().all_ids();
    let wanted = one_by_one(Precision::Exact, &ids);
    // Smaller than the window, the window itself, larger.
    for context in [1, 7, WINDOW - 1, WINDOW, WINDOW + 1, 100] {
        let options = RunnerOptions { max_context: context, prefill_chunk_tokens: 10, ..exact() };
        let mut runner = runner(Layout::Tiled, &options);
        let too_long = runner.prefill(&ids[..=context], &mut |_| panic!("no work is done")).unwrap_err();
        assert!(
            matches!(too_long, Error::ContextFull { prompt, context: c } if prompt == context + 1 && c == context)
        );
        assert_eq!(runner.position(), 0);
        let rows = all_logits(&mut runner, &ids[..context]);
        assert_same(&rows, &wanted[..context], &format!("context {context}"));
        assert_eq!(runner.position(), context);
        assert!(matches!(runner.decode(ids[context]), Err(Error::ContextFull { .. })));
        assert_eq!(runner.position(), context);
        // KV memory never exceeds what context and window need: 10 sliding layers of 4 x 64, 2 full of 2 x 128.
        let rows = 10 * context.min(WINDOW) * 4 * 64 + 2 * context * 2 * 128;
        assert!(runner.stats().kv_bytes <= 2 * 4 * rows, "{:?}", runner.stats());
    }
}

#[test]
fn rewinding_keeps_or_drops() {
    let ids = Reference::load().all_ids();
    let wanted = one_by_one(Precision::Exact, &ids);
    let mut runner = runner(Layout::V1, &RunnerOptions { prefill_chunk_tokens: 9, ..exact() });
    let last = prefill(&mut runner, &ids[..20]);
    assert!(bits(&last) == bits(&wanted[19]));
    // Other ids in between must leave no trace.
    assert_eq!(runner.rewind(12), 12);
    prefill(&mut runner, &[100, 101, 102]);
    assert_eq!(runner.rewind(12), 12);
    let last = prefill(&mut runner, &ids[12..WINDOW]);
    assert!(bits(&last) == bits(&wanted[WINDOW - 1]), "rewound within the window");
    // Exactly full: nothing was overwritten yet.
    assert_eq!(runner.rewind(5), 5);
    let last = prefill(&mut runner, &ids[5..WINDOW + 4]);
    assert!(bits(&last) == bits(&wanted[WINDOW + 3]));
    // Wrapped: one token back is possible, two are not.
    assert_eq!(runner.rewind(WINDOW + 3), WINDOW + 3);
    let again = runner.decode(ids[WINDOW + 3]).unwrap().to_vec();
    assert!(bits(&again) == bits(&wanted[WINDOW + 3]));
    assert_eq!(runner.rewind(WINDOW + 2), 0);
    assert_eq!(runner.position(), 0);
    let last = prefill(&mut runner, &ids[..50]);
    assert!(bits(&last) == bits(&wanted[49]), "from the start again");
    assert_eq!(runner.rewind(1000), 50, "beyond the end changes nothing");
    let last = prefill(&mut runner, &ids[50..70]);
    assert!(bits(&last) == bits(&wanted[69]));
}

#[test]
fn cancelling_keeps_whole_chunks() {
    let ids = Reference::load().all_ids();
    let wanted = one_by_one(Precision::Exact, &ids);
    for (stop_at, kept) in [(0, 0), (5, 0), (12, 10), (17, 10), (35, 20), (36, 30)] {
        let mut runner = runner(Layout::Tiled, &RunnerOptions { prefill_chunk_tokens: 10, ..exact() });
        let (mut calls, mut seen) = (0, Vec::new());
        let result = runner.prefill(&ids[..30], &mut |done| {
            seen.push(done);
            calls += 1;
            if calls > stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(matches!(result, Err(Error::Cancelled)), "stopped at {stop_at}");
        assert!(seen.is_sorted() && *seen.last().unwrap() <= 30, "{seen:?}");
        assert_eq!(runner.position(), kept, "stopped at {stop_at}");
        let last = prefill(&mut runner, &ids[kept..60]);
        assert!(bits(&last) == bits(&wanted[59]), "stopped at {stop_at}");
    }
    // Past the window a broken-off chunk has overwritten rows that its start needs.
    let mut runner = runner(Layout::Tiled, &RunnerOptions { prefill_chunk_tokens: 10, ..exact() });
    let result = runner.prefill(&ids[..100], &mut |done| {
        if done > 85 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(result, Err(Error::Cancelled)));
    assert_eq!(runner.position(), 0);
    let mut calls = 0;
    let result = runner.prefill_each(&ids[..25], &mut || ControlFlow::Continue(()), &mut |_, _| {
        calls += 1;
        if calls == 13 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(result, Err(Error::Cancelled)));
    assert_eq!((calls, runner.position()), (13, 20));
    assert!(bits(&prefill(&mut runner, &ids[20..40])) == bits(&wanted[39]));
    // Nor need the end of a chunk be waited for.
    runner.rewind(0);
    let (mut layers, mut rows) = (0, 0);
    let mut between = || {
        layers += 1;
        if layers == 15 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let result = runner.prefill_each(&ids[..25], &mut between, &mut |_, _| {
        rows += 1;
        ControlFlow::Continue(())
    });
    assert!(matches!(result, Err(Error::Cancelled)));
    assert_eq!((rows, runner.position()), (10, 10));
}

#[test]
fn a_pass_broken_off_past_the_window_costs_only_itself_where_there_is_room() {
    let ids = Reference::load().all_ids();
    let options = RunnerOptions { prefill_chunk_tokens: 50, ..exact() };
    let wanted = prefill(&mut runner(Layout::Tiled, &options), &ids[..120]);
    for (kept_bytes, left) in [(0, 0), (64 << 20, 100)] {
        let dir = ModelDir::open(crate::support::tiny(Layout::Tiled).path(), Integrity::Structure).unwrap();
        let prepared = Prepared::new(dir, &options).unwrap();
        let memory = Memory { kept_bytes, ..prepared.usual_memory() };
        let mut runner = prepared.run(memory).unwrap();
        let result = runner.prefill(&ids[..145], &mut |done| {
            if done > 120 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(matches!(result, Err(Error::Cancelled)));
        assert_eq!(runner.position(), left);
        assert!(bits(&prefill(&mut runner, &ids[left..120])) == bits(&wanted));
    }
}
