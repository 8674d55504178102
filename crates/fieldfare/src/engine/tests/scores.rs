//! What the engine says of probabilities, and what binds an answer: least lengths, plans.

use super::*;

#[test]
fn scores_are_the_models_own() {
    // Two equal best, then a known distribution over four ids.
    let mut bench = Bench::new(Scripted {
        vocabulary: 4,
        logits: vec![0.0; 4],
        ..Scripted::new(|fed, logits| {
            let row: [f32; 4] = if fed.len() == 1 { [0.0, 2.0, 2.0, 1.0] } else { [1.0, 0.0, 0.0, 0.0] };
            logits.copy_from_slice(&row);
        })
    });
    let mut done = Vec::new();
    let scores = bench
        .session()
        .score(&[3, 2, 0], 2, &Cancel::new(), &mut |n| {
            done.push(n);
            ControlFlow::Continue(())
        })
        .unwrap();
    let z1 = (1.0 + 2.0 * 2_f64.exp() + 1_f64.exp()).ln();
    let z2 = (1_f64.exp() + 3.0).ln();
    let wanted = [2.0 - z1, 1.0 - z2];
    for (got, wanted) in scores.logprobs.iter().zip(wanted) {
        assert!((f64::from(*got) - wanted).abs() < 1e-6);
    }
    assert_eq!((scores.logprobs.len(), &scores.argmax), (2, &vec![1, 0, 0]));
    assert!((scores.perplexity - (-(wanted[0] + wanted[1]) / 2.0).exp()).abs() < 1e-9);
    assert_eq!(scores.top[0].iter().map(|c| c.id).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(scores.top[1].iter().map(|c| c.id).collect::<Vec<_>>(), [0, 1]);
    done.dedup(); // asked between layers too
    assert_eq!(done, [0, 1, 2, 3]);

    let one = bench.session().score(&[3], 0, &Cancel::new(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(one.logprobs.is_empty() && one.perplexity.is_nan() && one.argmax == [1] && one.top.is_empty());

    let mut stop = |n| if n == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    assert!(matches!(bench.session().score(&[3, 2, 0], 0, &Cancel::new(), &mut stop), Err(Error::Cancelled)));
    assert_eq!(bench.conversations.current(), bench.model.text.ids);
    let mut go_on = |_| ControlFlow::Continue(());
    assert!(bench.session().score(&[], 0, &Cancel::new(), &mut go_on).is_err());
    let long = bench.session().score(&[1; 65], 0, &Cancel::new(), &mut go_on);
    assert!(matches!(long, Err(Error::ContextFull { prompt: 65, context: 64 })));
}

#[test]
fn scores_are_the_models_own_and_go_with_the_text() {
    // A two-byte character, a stop string, a control token: what is shown has a score, what is not has none.
    let text = "ab\u{e9}STOPx";
    let mut bench = Bench::saying(text);
    let options = GenerateOptions {
        logprobs: Some(2),
        sampling: Sampling { logit_bias: vec![(5, -100.0)], ..greedy().sampling },
        ..stopping(&["STOP"])
    };
    let (plain, _) = Bench::saying(text).run(&[2], &stopping(&["STOP"])).unwrap();
    let mut seen = Vec::new();
    let generation = bench
        .session()
        .generate(&[2], &options, &Cancel::new(), &mut |event| {
            match event {
                Event::Scores(scores) => seen.extend(scores.iter().map(|score| score.id)),
                Event::Text(text) => seen.push(1000 + text.len() as u32),
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((generation.text.as_str(), &plain.text), ("ab\u{e9}", &generation.text));
    let shown = ids("ab\u{e9}");
    assert_eq!(generation.scores.iter().map(|score| score.id).collect::<Vec<_>>(), shown);
    let told: Vec<u32> = seen.iter().copied().filter(|&id| id < 1000).collect();
    assert_eq!(told, shown, "each before its text");
    assert!(seen[0] < 1000 && *seen.last().unwrap() > 1000);
    let starts: Vec<usize> = generation.scores.iter().map(|score| score.start).collect();
    assert_eq!((starts[0], starts[1], starts[2]), (0, 1, 2));
    // One logit of 30 among 511 of 0, whatever was biased or suppressed.
    let wanted = 30.0 - (f64::exp(30.0) + 511.0).ln();
    for score in &generation.scores {
        assert!((f64::from(score.logprob) - wanted).abs() < 1e-6, "{score:?}");
        assert_eq!((score.top.len(), score.top[0].id, score.top[1].id), (2, score.id, 0));
    }
    let (none, _) = bench.run(&[2], &greedy()).unwrap();
    assert_eq!((none.scores.len(), none.prompt_scores.is_none()), (0, true));
}

#[test]
fn thoughts_and_calls_have_no_scores() {
    let said = "<|channel>thought\nhm<channel|>yes<|tool_call>call:f{}<tool_call|>";
    let options = GenerateOptions { logprobs: Some(0), ..chat(&["f"]) };
    let (generation, _) = Bench::saying(said).run(&[2], &options).unwrap();
    assert_eq!(generation.scores.iter().map(|score| score.id).collect::<Vec<_>>(), ids("yes"));
    assert_eq!(generation.tool_calls.len(), 1);
    assert!(generation.scores.iter().all(|score| score.top.is_empty()));
}

#[test]
fn a_prompt_is_scored_where_asked_and_the_answer_stays_the_same() {
    let prompt = [2, 70, 71, 72];
    let ask = GenerateOptions { prompt_logprobs: Some(1), max_new: 3, ..greedy() };
    let mut bench = Bench::new(Scripted::noisy());
    let (scored, _) = bench.run(&prompt, &ask).unwrap();
    let scores = scored.prompt_scores.unwrap();
    assert_eq!((scores.tokens.as_slice(), scores.logprobs.len(), scores.top.len()), (&prompt[..], 3, 4));
    let (plain, _) =
        Bench::new(Scripted::noisy()).run(&prompt, &GenerateOptions { max_new: 3, ..greedy() }).unwrap();
    assert_eq!(plain.token_ids, scored.token_ids);
    let alone =
        bench.session().score(&prompt, 1, &Cancel::new(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((alone.logprobs, alone.top), (scores.logprobs, scores.top));
    let (none, _) = bench.run(&prompt, &GenerateOptions { max_new: 0, ..ask }).unwrap();
    assert_eq!((none.token_ids.len(), none.prompt_scores.unwrap().logprobs.len()), (0, 3));
}

#[test]
fn nothing_ends_an_answer_before_its_least_length() {
    let mut bench = Bench::new(Scripted::saying(1, Vec::new()));
    let (ended, _) = bench.run(&[2], &greedy()).unwrap();
    assert_eq!(ended.token_ids.len(), 0);
    let (longer, _) = bench.run(&[2], &GenerateOptions { min_new: 5, ..greedy() }).unwrap();
    assert_eq!((longer.token_ids.len(), longer.finish), (5, Finish::Stop));
}

/// Binds an answer to one id, so many times, then ends it.
#[derive(Clone, Debug)]
struct Only(crate::sample::IdSet, usize);

impl crate::sample::Plan for Only {
    fn guide(&self, stop: &[u32]) -> Result<Box<dyn crate::sample::Guide>> {
        assert_eq!(stop, STOP);
        Ok(Box::new(self.clone()))
    }
}

impl crate::sample::Guide for Only {
    fn allowed(&mut self) -> Result<crate::sample::Allowed<'_>> {
        if self.1 == 99 {
            Err(Error::Unsupported("lost".into()))
        } else {
            Ok(crate::sample::Allowed::Only(&self.0))
        }
    }
    fn accept(&mut self, id: u32) {
        assert!(self.0.contains(id));
        self.1 -= 1;
    }
    fn is_over(&self) -> bool {
        self.1 == 0
    }
}

#[test]
fn a_plan_decides_what_is_said_and_when_it_is_over() {
    let plan = |times| GenerateOptions {
        plan: Some(std::sync::Arc::new(Only([70].into_iter().collect(), times))),
        ..greedy()
    };
    let mut bench = Bench::saying("something else");
    let (bound, _) = bench.run(&[2], &plan(3)).unwrap();
    assert_eq!((bound.token_ids.as_slice(), bound.finish), (&[70, 70, 70][..], Finish::Stop));
    let (cut, _) = bench.run(&[2], &GenerateOptions { max_new: 2, ..plan(3) }).unwrap();
    assert_eq!((cut.token_ids.len(), cut.finish), (2, Finish::Length));
    assert!(bench.run(&[2], &plan(99)).unwrap_err().to_string().contains("lost"));
    let (again, _) = bench.run(&[2], &plan(1)).unwrap();
    assert_eq!(again.token_ids, [70]);
}
