use super::*;
use proptest::prelude::*;

const HEADS: usize = 2;
const DIM: usize = 3;

/// Rows whose every element tells text and position.
fn own(texts: &[u32]) -> OwnKv {
    let rows = texts.len();
    let data = |sign: f32| {
        let value = |i: usize| texts[i / DIM % rows] as f32 + 0.25 * (i / DIM / rows) as f32;
        (0..HEADS * rows * DIM).map(|i| sign * value(i)).collect()
    };
    OwnKv { k: KvBuf::F32(data(1.0)), v: KvBuf::F32(data(-1.0)) }
}

fn cache(windows: &[Option<usize>], context: usize) -> KvCache {
    let shape = |&window| LineShape::new(KvType::F32, HEADS, DIM, window, context);
    KvCache { shapes: windows.iter().map(shape).collect(), held: Held::default() }
}

/// Feeds one pass in blocks, layer by layer.
fn feed(sequence: &mut Sequence, texts: &[u32], block: usize) {
    let start = sequence.position();
    for layer in 0..sequence.lines.len() {
        let mut at = start;
        for block in texts.chunks(block) {
            sequence.append(layer, at, block.len(), &own(block)).expect("memory");
            at += block.len();
        }
    }
    sequence.advance(start + texts.len());
}

/// What a token at the end of the sequence sees in one layer.
fn seen(sequence: &Sequence, layer: usize, head: usize) -> Vec<f32> {
    let line = sequence.layer(layer);
    let end = sequence.position();
    let start = line.shape.window.map_or(0, |window| (end + 1).saturating_sub(window)).min(end);
    let mut found = Vec::new();
    for span in line.spans(start..end) {
        let (KvSlice::F32(keys), KvSlice::F32(values)) = (line.keys(span, head), line.values(span, head))
        else {
            unreachable!("f32 cache")
        };
        for (key, value) in keys.chunks(DIM).zip(values.chunks(DIM)) {
            assert!(key.iter().all(|k| *k == key[0]) && value.iter().all(|v| *v == -key[0]));
            found.push(key[0] - 0.25 * head as f32);
        }
    }
    found
}

fn check(sequence: &Sequence, texts: &[u32]) {
    assert_eq!(sequence.position(), texts.len());
    for (layer, line) in sequence.lines.iter().enumerate() {
        let from =
            line.shape.window.map_or(0, |window| (texts.len() + 1).saturating_sub(window)).min(texts.len());
        let wanted: Vec<f32> = texts[from..].iter().map(|&text| text as f32).collect();
        for head in 0..HEADS {
            assert_eq!(seen(sequence, layer, head), wanted, "layer {layer} of {}", texts.len());
        }
    }
}

fn texts(from: u32, count: usize) -> Vec<u32> {
    (from..).take(count).collect()
}

#[test]
fn windows_hold_what_is_seen_in_any_chunks_and_no_more() {
    for window in [1, 2, 5, 31, 32, 100, 600] {
        let context = 4 * window + 20;
        for chunk in [1, 3, window, window + 1, 2 * window + 7] {
            let cache = cache(&[Some(window), None], context);
            let mut sequence = cache.sequence();
            let mut all = Vec::new();
            while all.len() + chunk <= context {
                let more = texts(all.len() as u32, chunk);
                feed(&mut sequence, &more, 5);
                all.extend(more);
                check(&sequence, &all);
                assert!(cache.bytes() <= cache.bytes_for(all.len()), "window {window}, {}", all.len());
            }
            drop(sequence);
            assert_eq!(cache.bytes(), 0);
        }
    }
}

#[test]
fn memory_comes_page_by_page_and_goes() {
    let cache = cache(&[None, Some(64)], 700);
    let row = (2 * HEADS * DIM * 4) as u64;
    let mut sequence = cache.sequence();
    assert_eq!(cache.bytes(), 0);
    feed(&mut sequence, &texts(0, 1), 8);
    assert_eq!(cache.bytes(), (256 + 4) * row);
    feed(&mut sequence, &texts(1, 699), 8);
    assert_eq!(
        cache.bytes(),
        (700 + 68) * row,
        "17 pages of a window; the last of the line is as long as the context"
    );
    assert_eq!(cache.bytes(), cache.bytes_for(700));
    assert_eq!(sequence.own_bytes(), cache.bytes());
    assert_eq!(sequence.rewind(699), 699);
    assert_eq!(sequence.rewind(256), 0, "nothing was kept for going back");
    assert_eq!(cache.bytes(), 0);
}

#[test]
fn points_keep_the_way_back() {
    let cache = cache(&[Some(16), Some(16), None], 500);
    let mut sequence = cache.sequence();
    let all = texts(0, 300);
    sequence.mark(100);
    sequence.mark(200); // ahead of both
    feed(&mut sequence, &all, 7);
    check(&sequence, &all);
    for (len, reached) in [(300, 300), (299, 200), (280, 200), (200, 200), (199, 100), (100, 100), (99, 0)] {
        assert_eq!(sequence.reachable(len), reached, "{len}");
    }
    let kept = cache.bytes();
    assert_eq!(sequence.rewind(250), 200);
    check(&sequence, &all[..200]);
    assert!(cache.bytes() < kept);
    feed(&mut sequence, &texts(900, 60), 9);
    let mut other = all[..200].to_vec();
    other.extend(texts(900, 60));
    check(&sequence, &other);
    sequence.unmark(200);
    assert_eq!(sequence.reachable(230), 100);
    assert_eq!(sequence.rewind(230), 100);
    check(&sequence, &all[..100]);
}

#[test]
fn clones_share_and_do_not_disturb_each_other() {
    let cache = cache(&[Some(16), None], 600);
    let mut one = cache.sequence();
    let all = texts(0, 300);
    feed(&mut one, &all, 7);
    let alone = cache.bytes();
    let mut other = one.clone();
    assert_eq!((cache.bytes(), one.own_bytes(), other.own_bytes()), (alone, 0, 0), "shared");
    let bound = other.held_at(310);
    feed(&mut other, &texts(700, 10), 3);
    assert!(cache.bytes() > alone && cache.bytes() <= bound, "{} {bound}", cache.bytes());
    feed(&mut one, &texts(800, 20), 3);
    check(&one, &[&all[..], &texts(800, 20)].concat());
    check(&other, &[&all[..], &texts(700, 10)].concat());
    drop(one);
    drop(other);
    assert_eq!(cache.bytes(), 0);
}

#[test]
fn what_is_written_comes_back_and_what_is_damaged_does_not() {
    let cache = cache(&[Some(16), None], 300);
    let mut sequence = cache.sequence();
    let all = texts(0, 290);
    sequence.mark(100);
    feed(&mut sequence, &all, 7);
    let mut bytes = Vec::new();
    sequence.write(&mut bytes).expect("memory");
    let again = cache.read(&mut bytes.as_slice()).expect("as written");
    check(&again, &all);
    assert_eq!((again.points(), again.reachable(250)), (&[100][..], 100));
    let held = cache.bytes();
    for cut in [0, 7, 8, 20, 40, 100, bytes.len() / 2, bytes.len() - 1] {
        assert!(cache.read(&mut &bytes[..cut]).is_err(), "{cut}");
    }
    for at in (0..16).chain(24..100) {
        let mut bent = bytes.clone();
        bent[at] ^= 0x40;
        // Some of these are other sequences that could be; none is a panic.
        let _ = cache.read(&mut bent.as_slice());
    }
    let others = [&[Some(17), None][..], &[Some(16), Some(16)], &[Some(16)], &[Some(16), None, None]];
    for windows in others {
        let other = self::cache(windows, 300);
        assert!(other.read(&mut bytes.as_slice()).is_err(), "{windows:?}");
        assert_eq!(other.bytes(), 0);
    }
    assert_eq!(cache.bytes(), held);
}

#[derive(Debug, Clone)]
enum Step {
    Feed(usize, usize),
    Rewind(usize),
    Mark(usize),
    Unmark,
    Fork,
    Switch(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1usize..60, 1usize..20).prop_map(|(rows, block)| Step::Feed(rows, block)),
        2 => (0usize..1000).prop_map(Step::Rewind),
        2 => (0usize..1000).prop_map(Step::Mark),
        1 => Just(Step::Unmark),
        1 => Just(Step::Fork),
        1 => (0usize..4).prop_map(Step::Switch),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_history_holds_exactly_what_it_says(
        steps in steps(),
        windows in prop::collection::vec(prop::option::weighted(0.7, 1usize..40), 1..4),
    ) {
        let cache = cache(&windows, 400);
        let mut open = vec![(cache.sequence(), Vec::<u32>::new())];
        let (mut at, mut next) = (0, 0);
        for step in steps {
            let (sequence, all) = &mut open[at];
            match step {
                Step::Feed(rows, block) => {
                    let rows = rows.min(400 - all.len());
                    if rows == 0 { continue }
                    let bound = sequence.held_at(all.len() + rows);
                    let more = texts(next, rows);
                    next += rows as u32;
                    feed(sequence, &more, block);
                    all.extend(more);
                    prop_assert!(cache.bytes() <= bound, "{} > {bound}", cache.bytes());
                }
                Step::Rewind(to) => {
                    let to = to % (all.len() + 1);
                    let reachable = sequence.reachable(to);
                    prop_assert_eq!(sequence.rewind(to), reachable);
                    all.truncate(reachable);
                }
                Step::Mark(point) => sequence.mark(all.len() + point % 50),
                Step::Unmark => if let Some(&point) = sequence.points().first() { sequence.unmark(point) },
                Step::Fork => {
                    let copy = (sequence.clone(), all.clone());
                    open.push(copy);
                }
                Step::Switch(to) => at = to % open.len(),
            }
            for (sequence, all) in &open {
                check(sequence, all);
                // A point that was passed after it was set is always reached.
                for &point in sequence.points() {
                    if point <= all.len() {
                        prop_assert_eq!(sequence.reachable(point), point);
                    }
                }
            }
        }
        drop(open);
        prop_assert_eq!(cache.bytes(), 0);
    }
}
