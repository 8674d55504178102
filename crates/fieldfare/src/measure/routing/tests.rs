//! The generator against what is known of the real model, through the store's own policy; traces read and refused.

use super::*;
use crate::store::Step;
use crate::store::plan::plan;
use crate::store::policy::{Policy, Uses};

const FULL: RouteShape = RouteShape { layers: 30, experts: 128, top_k: 8 };

/// Share of uses after `warm` tokens that a cache of so many experts in each layer holds.
fn hit_rate(routes: &Routes, shape: RouteShape, slots: usize, warm: usize) -> f64 {
    let (mut hits, mut all, mut steps) = (0, 0, Vec::new());
    for layer in 0..shape.layers {
        let mut held: Vec<Option<usize>> = vec![None; slots];
        let mut uses = Uses::new(Policy::Lfu, shape.experts);
        for token in 0..routes.tokens() {
            let wanted: Vec<usize> = routes.experts(layer, token).iter().map(|&e| usize::from(e)).collect();
            uses.note_token(&wanted);
            plan(&held, &wanted, &uses, &mut steps);
            for step in &steps {
                match *step {
                    Step::Hit { .. } if token >= warm => hits += 1,
                    Step::Read { expert, slot, .. } => held[slot] = Some(expert),
                    Step::Hit { .. } => {}
                }
            }
            all += if token >= warm { wanted.len() } else { 0 };
        }
    }
    f64::from(hits) / all as f64
}

#[test]
fn caches_hit_as_on_the_real_model() {
    let rates: Vec<_> = (1..=2)
        .map(|seed| {
            let routes = Routes::generate(FULL, 32 + 256, seed);
            [6, 16, 24, 32].map(|slots| hit_rate(&routes, FULL, slots, 32))
        })
        .collect();
    let [six, sixteen, more, most] = [0, 1, 2, 3].map(|i| f64::midpoint(rates[0][i], rates[1][i]));
    assert!((0.63..0.69).contains(&sixteen), "{rates:?}");
    assert!((0.30..0.38).contains(&six), "{rates:?}");
    assert!((0.12..0.15).contains(&(more - sixteen)), "{rates:?}");
    assert!((0.19..0.24).contains(&(most - sixteen)), "{rates:?}");
}

#[test]
fn a_token_shares_experts_with_the_one_before_and_layers_hardly_any() {
    let routes = Routes::generate(FULL, 128, 1);
    let (mut before, mut below) = (0, 0);
    for layer in 1..FULL.layers {
        for token in 1..routes.tokens() {
            let now = routes.experts(layer, token);
            assert!(now.iter().all(|&expert| usize::from(expert) < FULL.experts));
            assert!((1..now.len()).all(|i| !now[..i].contains(&now[i])), "all different");
            before += now.iter().filter(|e| routes.experts(layer, token - 1).contains(e)).count();
            below += now.iter().filter(|e| routes.experts(layer - 1, token).contains(e)).count();
        }
    }
    let uses = ((FULL.layers - 1) * (routes.tokens() - 1) * FULL.top_k) as f64;
    let (before, below) = (before as f64 / uses, below as f64 / uses);
    assert!((0.33..0.44).contains(&before), "{before}");
    assert!((0.05..0.11).contains(&below), "{below}");
}

#[test]
fn a_seed_is_a_text_and_longer_ones_begin_alike() {
    let shape = RouteShape { layers: 3, experts: 16, top_k: 2 };
    let (short, long) = (Routes::generate(shape, 10, 7), Routes::generate(shape, 20, 7));
    for layer in 0..3 {
        assert!((0..10).all(|token| short.experts(layer, token) == long.experts(layer, token)));
    }
    assert_ne!(Routes::generate(shape, 10, 8), short);
    assert_eq!(short.experts(1, 13), short.experts(1, 3), "it begins again");
    let all = Routes::generate(RouteShape { layers: 1, experts: 4, top_k: 4 }, 3, 1);
    let mut ids = vec![9; 4];
    Replay(Arc::new(all)).choose(0, 1, &mut ids);
    ids.sort_unstable();
    assert_eq!(ids, [0, 1, 2, 3]);
}

#[test]
fn traces_are_read_in_either_order_and_refused_with_the_line() {
    let shape = RouteShape { layers: 2, experts: 4, top_k: 2 };
    let by_layer = "step,layer,expert\n0,0,1\n0,0,2\n1,0,3\n1,0,0\n0,1,0\n0,1,1\n1,1,2\n1,1,3\n";
    let routes = parse(by_layer, shape).unwrap();
    assert_eq!((routes.experts(0, 1), routes.experts(1, 0)), (&[3, 0][..], &[0, 1][..]));
    let by_token = "0,0,1\n0,0,2\n0,1,0\n0,1,1\n1,0,3\n1,0,0\n1,1,2\n1,1,3\n\n";
    assert_eq!(parse(by_token, shape).unwrap(), routes);
    for (text, says) in [
        ("", "holds no tokens"),
        ("0,0\n", "line 1: is not token,layer,expert"),
        ("h\n0,x,1\n", "line 2: is not token,layer,expert"),
        ("0,2,1\n", "line 1: names layer 2 and expert 1, the model has 2 layers of 4 experts"),
        ("0,0,4\n", "names layer 0 and expert 4"),
        ("1,0,1\n", "jumps to token 1"),
        ("0,0,1\n0,0,1\n", "line 2: repeats expert 1 of token 0 in layer 0"),
        ("0,0,1\n0,0,2\n0,1,1\n", "token 0 has 1 experts in layer 1, the model uses 2"),
    ] {
        let error = parse(text, shape).unwrap_err();
        assert!(error.contains(says), "{text:?}: {error}");
    }
    let missing = Routes::read(Path::new("/nonexistent/trace.csv"), shape).unwrap_err();
    assert!(missing.to_string().contains("/nonexistent/trace.csv"), "{missing}");
}

#[test]
fn guesses_have_the_share_asked_for_and_leave_the_experts_alone() {
    let shape = RouteShape { layers: 6, experts: 128, top_k: 8 };
    let plain = Routes::generate(shape, 80, 3);
    assert!(plain.recall().is_none() && plain.guesses(2, 5).is_empty());
    for recall in [0.4, 0.65, 0.9] {
        let guessed = Routes::generate_guessed(shape, 80, 3, recall);
        assert!((guessed.recall().unwrap() - recall).abs() < 0.03, "{:?}", guessed.recall());
        let mut same = (0..6).flat_map(|layer| (0..80).map(move |token| (layer, token)));
        assert!(same.all(|(layer, token)| guessed.experts(layer, token) == plain.experts(layer, token)));
        let mut replayed = vec![1, 2, 3];
        let wanted: Vec<usize> = guessed.guesses(4, 7).iter().map(|&id| id.into()).collect();
        Replay(Arc::new(guessed)).guess(4, 7, &mut replayed);
        assert_eq!((replayed.len(), replayed), (8, wanted));
    }
}
