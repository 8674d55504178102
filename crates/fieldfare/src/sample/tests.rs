//! Tests of the choice as a whole: against a plain full sort, exact distributions, extremes, seeds.

use super::logits::{ONE, Selection, share_of, weight};
use super::*;
use proptest::prelude::*;

/// The same choice by sorting everything: candidates by rising id with their weights.
fn naive(sampling: &Sampling, logits: &[f32]) -> Vec<(u32, u64)> {
    let logits: Vec<f32> = logits
        .iter()
        .map(|&l| {
            if l.is_nan() {
                f32::NEG_INFINITY
            } else if l == f32::INFINITY {
                f32::MAX
            } else {
                l
            }
        })
        .collect();
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let of = |l: f32, t: f32| weight((f64::from(l) - f64::from(max)) / f64::from(t));
    let mut order: Vec<u32> =
        (0..logits.len() as u32).filter(|&i| logits[i as usize] > f32::NEG_INFINITY).collect();
    order.sort_by(|&a, &b| logits[b as usize].partial_cmp(&logits[a as usize]).unwrap().then(a.cmp(&b)));
    if sampling.top_p < 1.0 && !order.is_empty() {
        let total: u64 = order.iter().map(|&i| of(logits[i as usize], 1.0)).sum();
        let need = share_of(sampling.top_p, total).max(1);
        let mut sum = 0;
        let mut keep = 0;
        while sum < need {
            sum += of(logits[order[keep] as usize], 1.0);
            keep += 1;
        }
        order.truncate(keep);
    }
    if sampling.top_k > 0 {
        order.truncate(sampling.top_k);
    }
    if sampling.min_p > 0.0 {
        order.retain(|&i| of(logits[i as usize], 1.0) >= share_of(sampling.min_p, ONE));
    }
    order.sort_unstable();
    order.into_iter().map(|i| (i, of(logits[i as usize], sampling.temperature))).collect()
}

fn selected(sampling: &Sampling, logits: &[f32]) -> Selection {
    let mut selection = Selection::default();
    selection.select(sampling, &mut logits.to_vec());
    selection
}

fn plain() -> Sampling {
    Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, seed: Some(1), ..Sampling::default() }
}

fn one(sampling: &Sampling, logits: &[f32]) -> u32 {
    Sampler::new(sampling, logits.len()).unwrap().sample(&mut logits.to_vec())
}

fn logit() -> impl Strategy<Value = f32> {
    prop_oneof![
        6 => -30.0_f32..30.0,
        // Few values, so that ties are common.
        4 => (-4_i8..5).prop_map(f32::from),
        1 => prop::sample::select(vec![0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 1e-40]),
    ]
}

proptest! {
    #[test]
    fn equals_the_full_sort(
        logits in prop::collection::vec(logit(), 1..700),
        top_k in prop_oneof![Just(0_usize), 1_usize..8, 1_usize..800],
        top_p in prop_oneof![Just(1.0_f32), 0.001_f32..1.0],
        min_p in prop_oneof![Just(0.0_f32), 0.0_f32..=1.0],
        temperature in prop_oneof![Just(1.0_f32), Just(1e-30), 0.01_f32..2.0],
        random in any::<u64>(),
    ) {
        let sampling = Sampling { temperature, top_k, top_p, min_p, ..plain() };
        let wanted = naive(&sampling, &logits);
        let found = selected(&sampling, &logits);
        let pairs: Vec<(u32, u64)> = found.ids.iter().copied().zip(found.weights.iter().copied()).collect();
        prop_assert_eq!(&pairs, &wanted);
        let mut ticket = rng::ticket(random, wanted.iter().map(|pair| pair.1).sum());
        let token = wanted.iter().find(|(_, weight)| {
            let here = ticket < *weight;
            ticket = ticket.wrapping_sub(*weight);
            here
        });
        prop_assert_eq!(found.draw(random), token.map(|pair| pair.0));
    }

    #[test]
    fn weights_are_exponentials(x in -31.0_f64..=0.0) {
        let (found, wanted) = (weight(x) as f64, x.exp() * ONE as f64);
        prop_assert!((found - wanted).abs() <= 0.5 + wanted * 1e-13, "{found} {wanted}");
    }
}

#[test]
fn weights_at_the_ends() {
    assert_eq!(weight(0.0), ONE);
    assert_eq!(weight(-0.0), ONE);
    assert_eq!(weight(-31.0), 0);
    assert_eq!(weight(f64::NEG_INFINITY), 0);
    assert!(weight(-30.0) > 0);
    assert_eq!(weight(-1e300), 0);
}

/// Every ticket has one owner and each token owns as many as its weight: the distribution is the softmax, exactly.
#[test]
fn the_draw_has_the_distribution_of_the_softmax() {
    let logits = [0.5_f32, -1.0, 2.0, f32::NEG_INFINITY, 2.0, -25.0];
    let sampling = Sampling { temperature: 0.7, ..plain() };
    let selection = selected(&sampling, &logits);
    assert_eq!(selection.ids, [0, 1, 2, 4, 5]);
    let exact: Vec<f64> = logits.iter().map(|&l| ((f64::from(l) - 2.0) / f64::from(0.7_f32)).exp()).collect();
    let sum: f64 = exact.iter().sum();
    let mut start = 0_u64;
    for (&id, &weight) in selection.ids.iter().zip(&selection.weights) {
        let share = weight as f64 / selection.total as f64;
        assert!((share - exact[id as usize] / sum).abs() < 1e-12);
        if weight > 0 {
            // The first and last random numbers of the token's tickets.
            let random =
                |ticket: u64| (u128::from(ticket) << 64).div_ceil(u128::from(selection.total)) as u64;
            assert_eq!(selection.draw(random(start)), Some(id));
            assert_eq!(selection.draw(random(start + weight).wrapping_sub(1)), Some(id));
        }
        start += weight;
    }
    assert_eq!(start, selection.total);
}

#[test]
fn each_limit_keeps_what_it_says() {
    // Shares: 1/2, 1/4, 1/8, 1/16, 1/16.
    let logits = [8.0_f32, 16.0, 4.0, 2.0, 2.0].map(f32::ln);
    let keep = |sampling: Sampling| selected(&sampling, &logits).ids;
    assert_eq!(keep(plain()), [0, 1, 2, 3, 4]);
    assert_eq!(keep(Sampling { top_p: 0.4, ..plain() }), [1]);
    assert_eq!(keep(Sampling { top_p: 0.6, ..plain() }), [0, 1]);
    assert_eq!(keep(Sampling { top_p: 0.9, ..plain() }), [0, 1, 2, 3], "of equal tokens the lower id");
    assert_eq!(keep(Sampling { top_k: 4, ..plain() }), [0, 1, 2, 3]);
    assert_eq!(keep(Sampling { min_p: 0.24, ..plain() }), [0, 1, 2]);
    // Top-P is of the full distribution: the two tokens of Top-K do not become all of it.
    assert_eq!(keep(Sampling { top_k: 2, top_p: 0.7, ..plain() }), [0, 1]);
    assert_eq!(keep(Sampling { top_k: 2, top_p: 0.45, ..plain() }), [1]);
    // Temperature does not change which tokens are kept.
    assert_eq!(keep(Sampling { top_p: 0.6, temperature: 2.0, ..plain() }), [0, 1]);
}

#[test]
fn greedy_takes_the_lowest_of_equals() {
    let greedy = Sampling { temperature: 0.0, ..plain() };
    assert_eq!(one(&greedy, &[1.0, 3.0, 3.0, f32::NAN]), 1);
    assert_eq!(one(&greedy, &[-0.0, 0.0]), 0);
    assert_eq!(one(&greedy, &[f32::NAN, f32::INFINITY, f32::INFINITY]), 1);
    assert_eq!(one(&Sampling { top_k: 1, ..plain() }, &[1.0, 3.0, 3.0]), 1);
}

#[test]
fn extremes_do_no_harm() {
    for temperature in [0.0, 1e-38, 0.2, 2.0] {
        for (top_k, top_p) in [(0, 1.0), (0, 0.5), (2, 0.5), (usize::MAX, 1.0)] {
            let sampling = Sampling { temperature, top_k, top_p, ..plain() };
            assert_eq!(one(&sampling, &[]), 0);
            assert_eq!(one(&sampling, &[f32::NEG_INFINITY; 3]), 0);
            assert_eq!(one(&sampling, &[f32::NAN; 3]), 0);
            assert_eq!(one(&sampling, &[f32::NAN, 1.0, f32::NEG_INFINITY]), 1);
            assert_eq!(one(&sampling, &[f32::MIN, f32::MIN, f32::MAX]), 2);
            assert_eq!(one(&sampling, &[f32::MIN, f32::NEG_INFINITY, f32::INFINITY]), 2);
        }
    }
}

#[test]
fn bias_comes_before_penalties_and_forbids_at_minus_100() {
    let sampling = Sampling {
        temperature: 0.0,
        logit_bias: vec![(0, 3.0), (2, -100.0)],
        repetition_penalty: 2.0,
        presence_penalty: 0.5,
        frequency_penalty: 0.25,
        ..plain()
    };
    let mut sampler = Sampler::new(&sampling, 4).unwrap();
    for id in [0, 1, 1, 99] {
        sampler.accept(id);
    }
    sampler.accept_prompt(3);
    let mut logits = [1.0, -1.0, 50.0, 4.0];
    assert_eq!(sampler.sample(&mut logits), 3);
    // (1 + 3) / 2 - 0.5 - 0.25; -1 * 2 - 0.5 - 2 * 0.25; forbidden; 4 / 2, repetition only.
    assert_eq!(logits, [1.25, -3.0, f32::NEG_INFINITY, 2.0]);
}

#[test]
fn repetition_forgets_what_leaves_the_window_and_presence_does_not() {
    let sampling = Sampling { temperature: 0.0, repetition_penalty: 2.0, repetition_window: 2, ..plain() };
    let seen = |sampling: &Sampling| {
        let mut sampler = Sampler::new(sampling, 4).unwrap();
        sampler.accept_prompt(3);
        for id in [0, 1, 2] {
            sampler.accept(id);
        }
        let mut logits = [5.0; 4];
        sampler.sample(&mut logits);
        logits
    };
    assert_eq!(seen(&sampling), [5.0, 2.5, 2.5, 5.0]);
    let off = Sampling { repetition_window: 0, ..sampling.clone() };
    assert_eq!(seen(&off), [5.0; 4]);
    // However long ago it was generated; what only the prompt has is not meant.
    let present = Sampling { presence_penalty: 1.0, repetition_penalty: 1.0, ..sampling };
    assert_eq!(seen(&present), [4.0, 4.0, 4.0, 5.0]);
}

/// Computed apart from this program, from the description in the module heads; a seed means these tokens for ever.
#[test]
fn seeds_are_reproducible() {
    let logits: Vec<f32> = (0..50_u32).map(|i| ((i * 37 % 50) as f32) / 10.0).collect();
    let run = |sampling: Sampling| -> Vec<u32> {
        let mut sampler = Sampler::new(&sampling, logits.len()).unwrap();
        (0..12).map(|_| sampler.sample(&mut logits.clone())).collect()
    };
    let all = run(Sampling { seed: Some(42), ..plain() });
    let defaults = run(Sampling { seed: Some(42), temperature: 1.0, ..Sampling::default() });
    assert_eq!(all, GOLDEN_ALL);
    assert_eq!(defaults, GOLDEN_DEFAULT);
    let unseeded = Sampler::new(&Sampling { seed: None, ..plain() }, 50).unwrap();
    let again = run(Sampling { seed: Some(unseeded.seed()), ..plain() });
    let mut sampler = unseeded;
    assert_eq!((0..12).map(|_| sampler.sample(&mut logits.clone())).collect::<Vec<_>>(), again);
}
const GOLDEN_ALL: [u32; 12] = [35, 8, 12, 16, 3, 39, 8, 36, 16, 29, 8, 25];
const GOLDEN_DEFAULT: [u32; 12] = [35, 6, 12, 16, 2, 39, 8, 35, 16, 28, 8, 27];

#[test]
fn errors_name_the_field() {
    let good = Sampling::default();
    assert!(good.validate().is_ok());
    for (field, sampling) in [
        ("temperature", Sampling { temperature: -0.1, ..good.clone() }),
        ("temperature", Sampling { temperature: f32::NAN, ..good.clone() }),
        ("temperature", Sampling { temperature: 2.1, ..good.clone() }),
        ("top_p", Sampling { top_p: 0.0, ..good.clone() }),
        ("top_p", Sampling { top_p: 1.1, ..good.clone() }),
        ("min_p", Sampling { min_p: -0.1, ..good.clone() }),
        ("repetition_penalty", Sampling { repetition_penalty: 0.0, ..good.clone() }),
        ("repetition_penalty", Sampling { repetition_penalty: f32::INFINITY, ..good.clone() }),
        ("presence_penalty", Sampling { presence_penalty: 3.0, ..good.clone() }),
        ("frequency_penalty", Sampling { frequency_penalty: f32::NAN, ..good.clone() }),
        ("logit_bias[3]", Sampling { logit_bias: vec![(3, 101.0)], ..good.clone() }),
        ("logit_bias[3]", Sampling { logit_bias: vec![(3, 1.0), (3, 2.0)], ..good.clone() }),
        ("logit_bias[10]", Sampling { logit_bias: vec![(10, 1.0)], ..good.clone() }),
        ("logit_bias", Sampling { logit_bias: (0..1025).map(|id| (id, 1.0)).collect(), ..good.clone() }),
    ] {
        let message = Sampler::new(&sampling, 10).unwrap_err().to_string();
        assert!(message.starts_with(&format!("{field}: ")), "{message}");
    }
}
