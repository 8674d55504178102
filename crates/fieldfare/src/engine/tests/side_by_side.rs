//! Answers side by side: whatever joins, leaves, pauses, fails or gives way, each is what it is alone.

use super::*;
use crate::sample::{Allowed, Guide, IdSet, Plan};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Listens to all.
#[derive(Default)]
struct Desk {
    seen: BTreeMap<u64, String>,
    tokens: BTreeMap<u64, usize>,
    ended: BTreeMap<u64, Result<Generation>>,
    paused: BTreeSet<u64>,
    waiting: usize,
    /// Answers that are broken off at their n-th token.
    broken: BTreeMap<u64, usize>,
}

impl Listener for Desk {
    fn ready(&mut self, number: u64) -> bool {
        !self.paused.contains(&number)
    }

    fn event(&mut self, number: u64, event: Event<'_>) -> ControlFlow<()> {
        assert!(!self.ended.contains_key(&number));
        let seen = self.seen.entry(number).or_default();
        match event {
            Event::Text(text) => seen.push_str(text),
            Event::Reasoning(text) => seen.push_str(&format!("({text})")),
            Event::ToolCall(call) => seen.push_str(&format!("[{}]", call.call.name)),
            Event::Token { .. } => {
                assert!(!self.paused.contains(&number), "{number} was to pause");
                let made = self.tokens.entry(number).or_default();
                *made += 1;
                if self.broken.get(&number) == Some(made) {
                    return ControlFlow::Break(());
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn waiting(&self) -> usize {
        self.waiting
    }

    fn ended(&mut self, number: u64, result: Result<Generation>) {
        assert!(self.ended.insert(number, result).is_none(), "{number} ended twice");
    }
}

/// Everything of a generation but its times and what was at hand.
fn essence(generation: &Generation) -> impl PartialEq + std::fmt::Debug + use<> {
    let g = generation.clone();
    let calls: Vec<String> = g.tool_calls.iter().map(|call| call.call.arguments.text().to_owned()).collect();
    let prompt = g.prompt_scores.map(|scores| (scores.logprobs, scores.argmax));
    (g.text, g.reasoning, calls, g.token_ids, g.scores, prompt, g.finish, g.seed, g.truncated_tool_call)
}

/// Allows only ids of one parity, in turns: a guide that knows how far it is.
#[derive(Debug)]
struct Parity;

#[derive(Debug)]
struct ParityGuide {
    sets: [IdSet; 2],
    next: usize,
}

impl Plan for Parity {
    fn guide(&self, _: &[u32]) -> Result<Box<dyn Guide>> {
        let sets = [0, 1].map(|odd| (200..400).filter(|id| id % 2 == odd).collect());
        Ok(Box::new(ParityGuide { sets, next: 0 }))
    }
}

impl Guide for ParityGuide {
    fn allowed(&mut self) -> Result<Allowed<'_>> {
        Ok(Allowed::Only(&self.sets[self.next]))
    }

    fn accept(&mut self, id: u32) {
        assert_eq!(id as usize % 2, self.next, "what was allowed");
        self.next = 1 - self.next;
    }

    fn is_over(&self) -> bool {
        false
    }

    fn is_slow(&self) -> bool {
        true
    }
}

/// Asks for an answer.
#[derive(Debug, Clone)]
struct Wish {
    /// The turn at which it comes.
    at: usize,
    /// What its prompt begins with, and how much of that it has; others have the same.
    family: u32,
    shared: usize,
    own: usize,
    kind: usize,
    seed: u64,
    max_new: usize,
    /// The token at which its reader goes, if he goes.
    leaves: Option<usize>,
    /// Turns in which its reader is behind.
    pauses: std::ops::Range<usize>,
}

impl Wish {
    fn prompt(&self) -> Vec<u32> {
        let shared = (200 + 20 * self.family..).take(self.shared);
        let own = (0..self.own as u32).map(|i| 300 + (self.seed as u32 * 31 + i * 7) % 200);
        shared.chain(own).chain([2]).collect()
    }

    fn options(&self) -> GenerateOptions {
        let sampling =
            Sampling { seed: Some(self.seed), temperature: 1.0, top_p: 1.0, top_k: 0, ..Sampling::default() };
        let base = GenerateOptions { sampling, max_new: self.max_new, ..GenerateOptions::default() };
        match self.kind {
            0 => base,
            1 => GenerateOptions { mode: chat(&["f"]).mode, ..base },
            2 => GenerateOptions { stop: vec!["a".to_owned(), "12".to_owned()], ..base },
            3 => GenerateOptions { logprobs: Some(2), prompt_logprobs: Some(1), ..base },
            4 => GenerateOptions { plan: Some(Arc::new(Parity)), ..base },
            _ => GenerateOptions {
                sampling: Sampling { repetition_penalty: 1.4, temperature: 0.0, ..base.sampling },
                min_new: 5,
                ..base
            },
        }
    }
}

fn wishes() -> impl Strategy<Value = Vec<Wish>> {
    let when = (0usize..30, prop::option::weighted(0.2, 1usize..12), 0usize..40, 0usize..10);
    let what = (0u32..2, 0usize..16, 0usize..14, 0usize..6, 0u64..1000, 0usize..30);
    let wish =
        (when, what).prop_map(|((at, leaves, pause, long), (family, shared, own, kind, seed, max_new))| {
            Wish { at, family, shared, own, kind, seed, max_new, leaves, pauses: pause..pause + long }
        });
    prop::collection::vec(wish, 1..9)
}

#[derive(Debug, Clone)]
struct Setup {
    most: usize,
    fixed: bool,
    room: u64,
    memory: usize,
    chunk: usize,
    conversations: usize,
    fails_at: Option<usize>,
}

fn setups() -> impl Strategy<Value = Setup> {
    let numbers = (1usize..9, any::<bool>(), 66u64..300, 1usize..20, 1usize..9, 0usize..4);
    (numbers, prop::option::weighted(0.2, 20usize..60)).prop_map(
        |((most, fixed, room, memory, chunk, conversations), fails_at)| Setup {
            most,
            fixed,
            room,
            memory,
            chunk,
            conversations,
            fails_at,
        },
    )
}

fn model(setup: &Setup) -> Scripted {
    let mut model = Scripted { chunk: setup.chunk, room: setup.room, ..Scripted::noisy() };
    model.text = model.text.with_memory(setup.memory);
    model
}

/// What came of a run: the answers, and what happened on the way.
struct Outcome {
    desk: Desk,
    steps: Vec<usize>,
    gave_way: usize,
    reused: usize,
}

fn run(setup: &Setup, wishes: &[Wish]) -> Outcome {
    let mut bench = Bench::new(model(setup));
    bench.model.fails_at = setup.fails_at;
    bench.conversations = Conversations::new(setup.conversations, None);
    let held = bench.model.text.held.clone();
    let mut desk = Desk::default();
    let cancels: Vec<Cancel> = wishes.iter().map(|_| Cancel::new()).collect();
    let (mut gave_way, mut reused) = (0, 0);
    {
        let mut together = Together::new(bench.session(), setup.most, setup.fixed);
        let mut turn = 0;
        while desk.ended.len() < wishes.len() {
            for (number, wish) in wishes.iter().enumerate() {
                let number = number as u64;
                if wish.at == turn {
                    // Half of those who leave say so, half just hear no more.
                    if let Some(leaves) = wish.leaves.filter(|_| number.is_multiple_of(2)) {
                        desk.broken.insert(number, leaves);
                    }
                    let (prompt, options) = (wish.prompt(), wish.options());
                    let cancel = cancels[number as usize].clone();
                    together.add(Ask { number, prompt, options, cancel }, &mut desk);
                }
                if wish.pauses.contains(&turn) {
                    desk.paused.insert(number);
                } else {
                    desk.paused.remove(&number);
                }
                let made = desk.tokens.get(&number).copied().unwrap_or(0);
                if number % 2 == 1 && wish.leaves.is_some_and(|leaves| made >= leaves) {
                    cancels[number as usize].cancel();
                }
            }
            together.turn(&mut desk);
            gave_way += together.notes().iter().filter(|line| line.contains("gave way")).count();
            // Whoever is alone may have all the room there is, and then some of what it keeps for going back.
            let several = together.len() > 1 || setup.room >= 130;
            assert!(!several || held.get() <= setup.room + 64, "{} ids are kept", held.get());
            turn += 1;
            assert!(turn < 5000, "it comes to no end");
        }
        assert!(together.is_empty() && !together.turn(&mut desk));
    }
    assert_eq!(bench.conversations.current(), bench.model.text.ids);
    for generation in desk.ended.values().flatten() {
        reused += generation.cached_tokens;
    }
    Outcome { desk, steps: bench.model.steps, gave_way, reused }
}

fn check(setup: &Setup, wishes: &[Wish], outcome: &Outcome) -> Result<(), TestCaseError> {
    let fresh = Setup { room: u64::MAX, ..setup.clone() };
    for (number, wish) in wishes.iter().enumerate() {
        let number = number as u64;
        let mut bench = Bench::new(model(&fresh));
        bench.model.fails_at = setup.fails_at;
        let alone = bench.run(&wish.prompt(), &wish.options());
        let found = &outcome.desk.ended[&number];
        match (&alone, found) {
            (Ok((alone, _)), Ok(found)) if found.finish == Finish::Cancelled => {
                prop_assert!(wish.leaves.is_some());
                prop_assert!(alone.token_ids.starts_with(&found.token_ids));
            }
            (Ok((alone, seen)), Ok(found)) => {
                prop_assert_eq!(essence(found), essence(alone), "{:?}", wish);
                let heard = outcome.desk.seen.get(&number).cloned().unwrap_or_default();
                // Whoever goes at the last token has heard less.
                let (whole, seen) = (wish.leaves.is_none(), seen.concat());
                prop_assert!(heard == seen || !whole && seen.starts_with(&heard), "{} of {}", heard, seen);
            }
            // It may have left before it came to that.
            (Err(_), Ok(found)) => prop_assert!(
                wish.leaves.is_some() && found.finish == Finish::Cancelled || setup.fails_at.is_some()
            ),
            (Err(alone), Err(found)) => prop_assert_eq!(alone.to_string(), found.to_string()),
            (Ok(_), Err(found)) => prop_assert!(false, "{}", found),
        }
    }
    Ok(())
}

#[test]
fn each_is_what_it_is_alone() {
    let (mut together, mut gave_way, mut reused, mut failed) = (0, 0, 0, 0);
    let mut runner = proptest::test_runner::TestRunner::new_with_rng(
        proptest::test_runner::Config { cases: 600, failure_persistence: None, ..Default::default() },
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let counts = std::cell::RefCell::new((&mut together, &mut gave_way, &mut reused, &mut failed));
    runner
        .run(&(setups(), wishes()), |(setup, wishes)| {
            let outcome = run(&setup, &wishes);
            check(&setup, &wishes, &outcome)?;
            let mut counts = counts.borrow_mut();
            *counts.0 += outcome.steps.iter().filter(|&&texts| texts > 2).count();
            *counts.1 += outcome.gave_way;
            *counts.2 += outcome.reused;
            *counts.3 += outcome.desk.ended.values().filter(|result| result.is_err()).count();
            prop_assert!(outcome.steps.iter().all(|&texts| texts <= setup.most));
            Ok(())
        })
        .unwrap();
    assert!(together > 1000 && gave_way > 5 && reused > 5000, "{together} {gave_way} {reused}");
    assert!(failed > 5, "{failed}");
}

/// A wish for many tokens of noise.
fn plain(at: usize, seed: u64, own: usize, max_new: usize) -> Wish {
    Wish { at, family: 0, shared: 0, own, kind: 0, seed, max_new, leaves: None, pauses: 0..0 }
}

fn wide() -> Setup {
    let room = u64::MAX;
    Setup { most: 4, fixed: true, room, memory: 64, chunk: 4, conversations: 4, fails_at: None }
}

#[test]
fn a_long_prompt_delays_the_others_by_a_pass() {
    let mut bench = Bench::new(model(&wide()));
    let mut desk = Desk::default();
    let mut together = Together::new(bench.session(), 4, true);
    let ask = |number: u64, wish: &Wish| Ask {
        number,
        prompt: wish.prompt(),
        options: wish.options(),
        cancel: Cancel::new(),
    };
    together.add(ask(0, &plain(0, 1, 3, 30)), &mut desk);
    together.turn(&mut desk);
    // 41 ids, in passes of 4: the first text makes a token between any two of them.
    together.add(ask(1, &plain(0, 2, 40, 5)), &mut desk);
    let made = |desk: &Desk| desk.tokens.get(&0).copied().unwrap_or(0);
    for pass in 0..10 {
        let before = made(&desk);
        together.turn(&mut desk);
        assert_eq!((made(&desk), desk.tokens.contains_key(&1)), (before + 1, false), "pass {pass}");
    }
    together.turn(&mut desk);
    assert!(desk.tokens.contains_key(&1));
    // A short one does not wait for a long one.
    together.add(ask(2, &plain(0, 3, 50, 5)), &mut desk);
    together.turn(&mut desk);
    together.add(ask(3, &plain(0, 4, 2, 1)), &mut desk);
    while !desk.ended.contains_key(&3) {
        assert!(!desk.tokens.contains_key(&2));
        together.turn(&mut desk);
    }
    assert_eq!(together.places(), 1, "one has ended, three go on");
}

#[test]
fn whoever_pauses_leaves_his_place_to_others_within_bounds() {
    let mut bench = Bench::new(model(&wide()));
    let mut desk = Desk::default();
    let mut together = Together::new(bench.session(), 2, true);
    for number in 0..2 {
        let wish = plain(0, number, 4, 20);
        let (prompt, options, cancel) = (wish.prompt(), wish.options(), Cancel::new());
        together.add(Ask { number, prompt, options, cancel }, &mut desk);
    }
    assert_eq!(together.places(), 0);
    desk.paused.extend([0, 1]);
    assert!(!together.turn(&mut desk), "there is nothing to do");
    assert_eq!((together.places(), together.len()), (2, 2));
    desk.paused.extend([2, 3]);
    for number in 2..4 {
        let wish = plain(0, number, 4, 20);
        let (prompt, options, cancel) = (wish.prompt(), wish.options(), Cancel::new());
        together.add(Ask { number, prompt, options, cancel }, &mut desk);
    }
    together.turn(&mut desk);
    assert_eq!(together.places(), 0, "four pause, and that is enough");
    desk.paused.clear();
    while together.turn(&mut desk) {}
    assert!(together.is_empty() && desk.ended.values().all(Result::is_ok));
}

/// Places for more are tried out where others wait for them, inside or outside, and only there.
#[test]
fn whoever_waits_is_tried_beside_the_others() {
    let places = |waiting: usize, inside: u64, step_texts: usize| {
        let mut bench = Bench::new(Scripted { step_texts, ..model(&wide()) });
        let mut desk = Desk { waiting, ..Desk::default() };
        let mut together = Together::new(bench.session(), 4, false);
        for number in 0..inside {
            let wish = plain(0, number, 4, 60);
            let (prompt, options, cancel) = (wish.prompt(), wish.options(), Cancel::new());
            together.add(Ask { number, prompt, options, cancel }, &mut desk);
        }
        assert_eq!(together.places(), 0, "a trial begins with one alone");
        for _ in 0..20 {
            together.turn(&mut desk);
        }
        let told = together.notes().iter().filter(|line| line.contains("too few expert slots")).count();
        (together.sharing().now, together.places(), told)
    };
    assert_eq!(places(0, 1, 8), (1, 0, 0));
    assert_eq!(places(1, 1, 8), (4, 3, 0));
    assert_eq!(places(0, 2, 8), (4, 2, 0));
    // Where slots are too few, not so many are tried; it is said once.
    assert_eq!(places(5, 1, 2), (2, 1, 1));
    assert_eq!(places(1, 1, 1), (1, 0, 1));
    assert_eq!(places(0, 1, 1), (1, 0, 0));
}

#[test]
fn a_prompt_goes_on_from_a_text_that_runs() {
    let wish = |own| Wish { shared: 16, ..plain(0, 5, own, 12) };
    let mut bench = Bench::new(model(&wide()));
    bench.conversations = Conversations::new(4, None);
    let mut desk = Desk::default();
    let mut together = Together::new(bench.session(), 2, true);
    for (number, own) in [(0, 6), (1, 9)] {
        let (prompt, options, cancel) = (wish(own).prompt(), wish(own).options(), Cancel::new());
        together.add(Ask { number, prompt, options, cancel }, &mut desk);
        for _ in 0..8 {
            together.turn(&mut desk);
        }
    }
    while together.turn(&mut desk) {}
    drop(together);
    let cached = |number| desk.ended[&number].as_ref().map_or(0, |made| made.cached_tokens);
    assert_eq!((cached(0), cached(1)), (0, 16 + 6));
    assert_eq!(bench.conversations.kept().in_memory, 2);
}
