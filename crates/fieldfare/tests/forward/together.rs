//! Steps of several texts: each text's logits have the bits that they have alone, whoever shares the step.

use crate::support::{Reference, WINDOW, bits, exact, prefill, runner};
use fieldfare::Error;
use fieldfare::format::Layout;
use fieldfare::model::{Forward, LookAhead, Precision, Runner, RunnerOptions, Sequence, TOGETHER};
use fieldfare::store::Policy;

/// A text: a prompt, and the ids that follow, as they come.
struct Text {
    ids: Vec<u32>,
    prompt: usize,
    /// The logits after the prompt and after each id that follows, alone.
    wanted: Vec<Vec<f32>>,
}

/// Texts of different lengths, some shorter than the window, some longer; two begin alike.
fn texts(precision: Precision) -> Vec<Text> {
    let all = Reference::load().all_ids();
    let shapes = [
        (0, 1, 30),
        (3, WINDOW - 1, 20),
        (0, 70, 40),
        (0, 71, 25),
        (50, 2 * WINDOW + 9, 33),
        (90, 5, 60),
        (11, 33, 12),
        (40, WINDOW, 36),
    ];
    let text = |(from, prompt, more): (usize, usize, usize)| {
        let mut ids = all[from..from + prompt + more].to_vec();
        // The same words on another way.
        if from == 0 {
            ids[prompt..].reverse();
        }
        let mut alone =
            runner(Layout::V1, &RunnerOptions { precision, slots_per_layer: Some(16), ..exact() });
        let mut wanted = vec![prefill(&mut alone, &ids[..prompt])];
        for &id in &ids[prompt..] {
            wanted.push(alone.decode(id).expect("alone").to_vec());
        }
        Text { ids, prompt, wanted }
    };
    shapes.into_iter().map(text).collect()
}

fn take_out(runner: &mut Runner) -> Sequence {
    let blank = runner.blank();
    std::mem::replace(runner.sequence(), blank)
}

#[test]
fn any_texts_in_any_steps() {
    for precision in [Precision::Exact, Precision::Default] {
        let texts = texts(precision);
        assert_eq!(texts.len(), TOGETHER);
        for (round, slots) in [1, 2, 5, 16].into_iter().enumerate() {
            let options = RunnerOptions {
                precision,
                slots_per_layer: Some(slots),
                policy: Policy::ALL[round % 3],
                threads: Some(round % 3 + 1),
                prefill_chunk_tokens: [7, 256, 1, 33][round],
                look_ahead: [LookAhead::On, LookAhead::Auto][round % 2],
                ..exact()
            };
            let layout = if round % 2 == 0 { Layout::Tiled } else { Layout::V1 };
            any_steps(&mut runner(layout, &options), &texts, round as u32 + 1, &format!("{options:?}"));
        }
    }
}

/// All texts to their ends: some begin later than others, and each step takes those that a die chooses.
fn any_steps(runner: &mut Runner, texts: &[Text], seed: u32, what: &str) {
    let mut state = seed;
    let mut die = |sides: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % sides
    };
    let mut running: Vec<(usize, Sequence)> = Vec::new();
    let mut next = 0;
    let (mut steps, mut shared) = (0, 0);
    while next < texts.len() || !running.is_empty() {
        if next < texts.len() && (running.len() < 2 || die(4) == 0) {
            let text = &texts[next];
            let found = prefill(runner, &text.ids[..text.prompt]);
            assert!(bits(&found) == bits(&text.wanted[0]), "{what}: prompt of {next}");
            running.push((next, take_out(runner)));
            next += 1;
        }
        let mut chosen: Vec<(usize, &mut Sequence)> = running
            .iter_mut()
            .filter(|_| die(3) > 0)
            .map(|(number, sequence)| (*number, &mut *sequence))
            .collect();
        if let [(number, sequence)] = &mut chosen[..] {
            // One by itself, as the only one, or the way a single text goes.
            let at = sequence.position();
            let id = texts[*number].ids[at];
            let found = if die(2) == 0 {
                std::mem::swap(runner.sequence(), *sequence);
                let found = runner.decode(id).expect("a step").to_vec();
                std::mem::swap(runner.sequence(), *sequence);
                found
            } else {
                runner.decode_together(&mut [&mut **sequence], &[id]).expect("a step").to_vec()
            };
            check(&found, &texts[*number], at, what);
        } else if !chosen.is_empty() {
            let ids: Vec<u32> =
                chosen.iter().map(|(number, text)| texts[*number].ids[text.position()]).collect();
            let at: Vec<(usize, usize)> =
                chosen.iter().map(|(number, text)| (*number, text.position())).collect();
            let mut sequences: Vec<&mut Sequence> =
                chosen.iter_mut().map(|(_, sequence)| &mut **sequence).collect();
            let found = runner.decode_together(&mut sequences, &ids).expect("a step").to_vec();
            for ((number, at), found) in at.into_iter().zip(found.chunks_exact(found.len() / ids.len())) {
                check(found, &texts[number], at, what);
            }
            shared += ids.len();
        }
        steps += 1;
        running.retain(|(number, sequence)| sequence.position() < texts[*number].ids.len());
    }
    assert!(shared > 150, "{shared} in {steps} steps");
}

/// `found` are the logits after the id at position `at`.
fn check(found: &[f32], text: &Text, at: usize, what: &str) {
    assert!(bits(found) == bits(&text.wanted[at + 1 - text.prompt]), "{what}: position {at}");
}

#[test]
fn what_is_no_step_is_refused_and_leaves_all_as_it_was() {
    let ids = Reference::load().all_ids();
    let options = RunnerOptions { max_context: 20, ..exact() };
    let mut runner = runner(Layout::Tiled, &options);
    prefill(&mut runner, &ids[..20]);
    let mut full = take_out(&mut runner);
    prefill(&mut runner, &ids[..5]);
    let mut short = take_out(&mut runner);
    let mut refused = |texts: &mut [&mut Sequence], ids: &[u32]| {
        runner.decode_together(texts, ids).map(|_| ()).expect_err("no step")
    };
    assert!(matches!(refused(&mut [], &[]), Error::BadRequest { .. }));
    assert!(matches!(refused(&mut [&mut short], &[1, 2]), Error::BadRequest { .. }));
    assert!(matches!(refused(&mut [&mut short], &[512]), Error::BadRequest { .. }));
    let error = refused(&mut [&mut short, &mut full], &[300, 301]);
    assert!(matches!(error, Error::ContextFull { prompt: 21, context: 20 }), "{error}");
    assert_eq!((short.position(), full.position()), (5, 20));
    assert_eq!(runner.position(), 0);
}
