//! The engine on the installed fixture checkpoint: the reference's numbers, whole conversations, the lock.

mod fixture;
mod rig;
mod side_by_side;
mod talks;
mod together;

use fieldfare::Error;
use fieldfare::chat::{self, Message, RenderOptions};
use fieldfare::engine::{Cancel, Engine, EngineOptions, Event, Finish, GenerateOptions, OutputMode, Scores};
use fieldfare::format::Layout;
use fieldfare::sample::Sampling;
use fixture::{Fixture, exact, generate, greedy, ids};
use safetensors::SafeTensors;
use std::ops::ControlFlow;
use tempfile::TempDir;

fn score(engine: &mut Engine, ids: &[u32], top: usize) -> Scores {
    let mut go_on = |_| ControlFlow::Continue(());
    engine.session().score(ids, top, &Cancel::new(), &mut go_on).expect("the fixture scores")
}

#[test]
fn scores_and_greedy_tokens_are_the_references() {
    let bytes = std::fs::read(fieldfare_testing::tiny_checkpoint().join("reference.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let logits: Vec<f32> = tensors
        .tensor("logits")
        .unwrap()
        .data()
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    let (prompt, wanted) = (ids("prompt_ids"), ids("generated_ids"));
    let all = [prompt.clone(), wanted.clone()].concat();
    for layout in [Layout::V1, Layout::Tiled] {
        let fixture = Fixture::new(layout);
        let mut engine = fixture.open(exact());
        let generation = generate(&mut engine, &prompt, &greedy(wanted.len()));
        assert_eq!((&generation.token_ids, generation.finish), (&wanted, Finish::Length));
        assert!(generation.timings.expert_hit_rate.is_some() && generation.timings.expert_bytes_read > 0);

        let scores = score(&mut engine, &all, 3);
        assert_eq!((scores.logprobs.len(), scores.argmax.len()), (all.len() - 1, all.len()));
        for (i, row) in logits.chunks_exact(512).enumerate() {
            let norm = row.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln();
            let best =
                (0..512_u32).rev().max_by(|&a, &b| row[a as usize].total_cmp(&row[b as usize])).unwrap();
            assert_eq!(scores.argmax[i], best, "position {i}");
            assert_eq!(scores.top[i][0].id, best);
            if let Some(&next) = all.get(i + 1) {
                let wanted = f64::from(row[next as usize]) - norm;
                assert!((f64::from(scores.logprobs[i]) - wanted).abs() < 1e-3, "position {i}");
            }
        }
    }
}

#[test]
fn the_end_of_a_text_scores_alike_with_and_without_its_beginning_in_the_cache() {
    let fixture = Fixture::new(Layout::Tiled);
    let mut engine = fixture.open(EngineOptions::default());
    let all = [ids("prompt_ids"), ids("generated_ids")].concat();
    let mut go_on = |_| ControlFlow::Continue(());
    // 20 fits the sliding window, 200 does not: then the beginning has to be read again.
    for first in [20, 200] {
        let (given, text) = (&all[..first], &all[..first + 12]);
        let whole = score(&mut engine, text, 2);
        generate(&mut engine, given, &greedy(5));
        let part = engine.session().score_from(text, first, 2, &Cancel::new(), &mut go_on).unwrap();
        assert_eq!(part.tokens, whole.tokens[first - 1..]);
        assert_eq!(part.logprobs, whole.logprobs[first - 1..]);
        assert_eq!(part.argmax, whole.argmax[first - 1..]);
        assert_eq!(part.top, whole.top[first - 1..]);
    }
    for first in [0, 5] {
        assert!(engine.session().score_from(&all[..4], first, 0, &Cancel::new(), &mut go_on).is_err());
    }
    assert_eq!(
        engine.session().score_from(&all[..4], 1, 0, &Cancel::new(), &mut go_on).unwrap(),
        score(&mut engine, &all[..4], 0)
    );
}

#[test]
fn reuse_slots_chunks_and_history_change_nothing() {
    let fixture = Fixture::new(Layout::Tiled);
    let prompt = &ids("prompt_ids")[..90];
    let options = GenerateOptions {
        sampling: Sampling { temperature: 1.0, seed: Some(11), ..Sampling::default() },
        stop_ids: Some(Vec::new()),
        ..greedy(40)
    };
    let fresh = generate(&mut fixture.open(exact()), prompt, &options);
    assert_eq!(fresh.token_ids.len(), 40);
    // Another prompt, then this one with a part, all or none of it in the cache.
    let mut engine = fixture.open(EngineOptions {
        prefill_chunk_tokens: 7,
        expert_cache_slots: Some(5),
        threads: Some(2),
        ..exact()
    });
    let mut other = prompt[..60].to_vec();
    other.extend(&prompt[..20]);
    generate(&mut engine, &other, &options);
    for _ in 0..2 {
        let again = generate(&mut engine, prompt, &options);
        assert_eq!(again.token_ids, fresh.token_ids);
    }
    // The conversation goes on: everything but the last token made was fed.
    let longer = [prompt, &fresh.token_ids[..], &[300, 301]].concat();
    let next = generate(&mut engine, &longer, &options);
    assert_eq!(next.cached_tokens, prompt.len() + 39);
    assert_eq!(next.token_ids, generate(&mut reopened(engine, &fixture), &longer, &options).token_ids);
}

/// The same model anew: the lock of `engine` goes first.
fn reopened(engine: Engine, fixture: &Fixture) -> Engine {
    drop(engine);
    fixture.open(exact())
}

#[test]
fn a_conversation_runs_and_the_lock_holds() {
    let fixture = Fixture::new(Layout::Tiled);
    let mut engine = fixture.open(EngineOptions { max_context: 256, ..EngineOptions::default() });
    let error = fixture.try_open(EngineOptions::default()).err();
    assert!(matches!(error, Some(Error::Locked { .. })), "{error:?}");
    assert_eq!(engine.stop_ids(), [1, 106, 50]);

    let tokenizer = engine.tokenizer().unwrap().clone();
    let prompt = chat::prompt(&[Message::user("Hi")], &[], &RenderOptions::default(), &tokenizer).unwrap();
    let mode = OutputMode::Chat { starts_in_reasoning: prompt.starts_in_reasoning, tools: Vec::new() };
    let answer = generate(&mut engine, &prompt.ids, &GenerateOptions { mode, ..greedy(24) });
    assert!(!answer.token_ids.is_empty());
    let forbidden = tokenizer.control().suppressed();
    assert!(answer.token_ids.iter().all(|id| !forbidden.contains(id)));

    // Filled to the last place, and one beyond.
    let full = generate(&mut engine, &vec![300; 256], &greedy(10));
    assert_eq!((full.token_ids.len(), full.finish), (1, Finish::Length));
    let mut ignore = |_: Event<'_>| ControlFlow::Continue(());
    let error = engine.session().generate(&vec![300; 257], &greedy(10), &Cancel::new(), &mut ignore);
    assert!(matches!(error, Err(Error::ContextFull { prompt: 257, context: 256 })));
}

#[test]
fn without_tokenizer_files_ids_still_work() {
    let source = TempDir::new().unwrap();
    for name in ["config.json", "model.safetensors", "model.safetensors.index.json"] {
        std::fs::copy(fieldfare_testing::tiny_checkpoint().join(name), source.path().join(name)).unwrap();
    }
    let fixture = Fixture::from(source.path(), Layout::V1);
    let mut engine = fixture.open(exact());
    assert!(matches!(engine.tokenizer().err(), Some(Error::NoTokenizer(_))));
    assert_eq!(engine.stop_ids(), [1, 106, 50]);
    let generation = generate(&mut engine, &ids("prompt_ids")[..20], &greedy(4));
    assert_eq!(generation.text, "");
    assert!(fixture.dir.path().exists());
}
