//! Answers side by side on the fixture: whatever the memory, the precision and whoever comes and goes, each is what it is
//! alone.

use crate::fixture::{greedy, ids};
use fieldfare::engine::{Ask, Cancel, Engine, Event, Finish, GenerateOptions, Generation};
use fieldfare::engine::{Listener, OutputMode};
use fieldfare::grammar::{ArgumentRule, CallRule, Choice, Grammars, Rules};
use fieldfare::model::RunnerStats;
use fieldfare::sample::{Plan, Sampling};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Hears of ends, and asks one answer to stop.
#[derive(Default)]
pub(crate) struct Ear {
    pub(crate) ended: BTreeMap<u64, Generation>,
    tokens: BTreeMap<u64, usize>,
    asked: usize,
    cancels: BTreeMap<u64, (usize, Cancel)>,
}

impl Listener for Ear {
    fn ready(&mut self, number: u64) -> bool {
        // Every one is behind now and then.
        self.asked += 1;
        (self.asked + number as usize) % 7 != 6
    }

    fn event(&mut self, number: u64, event: Event<'_>) -> ControlFlow<()> {
        if let Event::Token { .. } = event {
            let made = self.tokens.entry(number).or_default();
            *made += 1;
            if let Some((at, cancel)) = self.cancels.get(&number)
                && *made >= *at
            {
                cancel.cancel();
            }
        }
        ControlFlow::Continue(())
    }

    fn ended(&mut self, number: u64, result: fieldfare::Result<Generation>) {
        assert!(self.ended.insert(number, result.expect("it generates")).is_none());
    }
}

/// Prompts that share beginnings, of lengths on both sides of the window, and what is asked for.
pub(crate) fn wishes(engine: &Engine) -> Vec<(Vec<u32>, GenerateOptions)> {
    let all = ids("prompt_ids");
    let call = CallRule { name: "f".to_owned(), arguments: ArgumentRule::Open };
    let rules = Rules { calls: vec![call], choice: Choice::Required, may_think: true, ..Rules::default() };
    let plan = Grammars::new(engine.tokenizer().expect("a tokenizer").clone()).bind(&rules);
    let plan = plan.expect("a grammar").map(|plan| Arc::new(plan) as Arc<dyn Plan>);
    let wish = |number: usize, prompt: Vec<u32>, made: usize| {
        let sampling = Sampling { temperature: 1.2, seed: Some(number as u64), ..Sampling::default() };
        let base = GenerateOptions { sampling, stop_ids: Some(Vec::new()), ..greedy(made) };
        let chat = |thinks| OutputMode::Chat { starts_in_reasoning: thinks, tools: vec!["f".to_owned()] };
        let options = match number % 5 {
            0 => base,
            1 => GenerateOptions { mode: chat(true), stop_ids: None, ..base },
            2 => GenerateOptions { mode: chat(false), plan: plan.clone(), stop_ids: None, ..base },
            3 => GenerateOptions { logprobs: Some(2), stop: vec!["a".to_owned()], ..base },
            _ => GenerateOptions { prompt_logprobs: Some(1), ..base },
        };
        (prompt, options)
    };
    let shared = |len: usize, own: usize| -> Vec<u32> {
        all[..len].iter().copied().chain((0..own as u32).map(|i| 300 + i * 13 % 150)).collect()
    };
    let prompts = [
        (shared(40, 3), 30),
        (shared(40, 11), 12),
        (shared(5, 4), 40),
        (all[20..110].to_vec(), 25),
        (shared(40, 3), 30),
        (all[..100].to_vec(), 1),
        (shared(60, 30), 33),
        (shared(1, 1), 50),
        (all[..100].to_vec(), 20),
    ];
    prompts.into_iter().enumerate().map(|(number, (prompt, made))| wish(number, prompt, made)).collect()
}

/// Answers all, some of which come later than others; one, number 3, is broken off.
pub(crate) fn side_by_side(
    engine: &mut Engine,
    wishes: &[(Vec<u32>, GenerateOptions)],
    most: usize,
    fixed: bool,
    look: &mut dyn FnMut(&RunnerStats),
) -> BTreeMap<u64, Generation> {
    let mut ear = Ear::default();
    let mut together = engine.together(most, fixed);
    let mut turn = 0;
    while ear.ended.len() < wishes.len() {
        for (number, (prompt, options)) in wishes.iter().enumerate().filter(|(number, _)| number * 3 == turn)
        {
            let (number, cancel) = (number as u64, Cancel::new());
            if number == 3 {
                ear.cancels.insert(number, (8, cancel.clone()));
            }
            let (prompt, options) = (prompt.clone(), options.clone());
            together.add(Ask { number, prompt, options, cancel }, &mut ear);
        }
        together.turn(&mut ear);
        look(&together.model().stats());
        turn += 1;
        assert!(turn < 5000, "it comes to no end");
    }
    ear.ended
}

pub(crate) fn assert_same(found: &BTreeMap<u64, Generation>, wanted: &[Generation], what: &str) {
    for (number, found) in found {
        let wanted = &wanted[*number as usize];
        if *number == 3 {
            assert_eq!(found.finish, Finish::Cancelled, "{what}");
            assert!(wanted.token_ids.starts_with(&found.token_ids) && found.token_ids.len() < 12, "{what}");
            continue;
        }
        assert_eq!(found.token_ids, wanted.token_ids, "{what}: {number}");
        assert_eq!((&found.text, &found.reasoning), (&wanted.text, &wanted.reasoning), "{what}: {number}");
        assert_eq!((found.finish, &found.scores), (wanted.finish, &wanted.scores), "{what}: {number}");
        assert_eq!(found.prompt_scores, wanted.prompt_scores, "{what}: {number}");
    }
}
