use super::*;

fn piece(file: usize, offset: u64, len: u64) -> Piece {
    Piece { file, offset, len }
}

#[test]
fn pieces_are_joined_up_to_gap_and_window() {
    let pieces = || vec![piece(1, 0, 10), piece(0, 30, 10), piece(0, 0, 10), piece(0, 12, 8)];
    assert_eq!(coalesce(pieces(), 100, 10), [piece(0, 0, 40), piece(1, 0, 10)]);
    assert_eq!(coalesce(pieces(), 100, 9), [piece(0, 0, 20), piece(0, 30, 10), piece(1, 0, 10)]);
    assert_eq!(
        coalesce(pieces(), 19, 10),
        [piece(0, 0, 10), piece(0, 12, 8), piece(0, 30, 10), piece(1, 0, 10)]
    );
    assert_eq!(coalesce(vec![piece(0, 0, 20), piece(0, 5, 3)], 100, 0), [piece(0, 0, 20)]);
}

/// The real checkpoint's headers, and the shape they are planned for.
fn real() -> (Checkpoint, super::super::schema::Checked) {
    use crate::format::safetensors::Header;
    let shards = fieldfare_testing::gemma4::headers();
    let known = super::super::known::KNOWN.first().expect("one");
    for (name, json, payload) in &shards {
        // To the byte what is published: lengths and hashes are those of the real files.
        let (size, _) = known.shard(name).expect("a shard of that name");
        assert_eq!(size, 8 + json.len() as u64 + payload);
        assert_eq!(known.header(name), Some(hash::hex(&hash::sha256(json.as_bytes())).as_str()));
    }
    let index = fieldfare_testing::gemma4::index();
    let config = fieldfare_testing::gemma4::config();
    let mut header = |name: &str| {
        let (_, json, payload) = shards.iter().find(|(n, ..)| n == name).expect("one of them");
        Header::parse(name, json.clone().into_bytes(), *payload)
    };
    let source =
        Checkpoint::remote("x", config.as_bytes(), Some(index.as_bytes()), &mut header).expect("good");
    let checked = super::super::schema::check(&source).expect("complete");
    (source, checked)
}

#[test]
fn the_real_checkpoint_in_ranges_of_64_mib_with_gaps_of_2_mib() {
    let (source, _) = real();
    let mut pieces = Vec::new();
    for name in source.names().map(str::to_owned).collect::<Vec<_>>() {
        let at = source.tensor(&name).expect("there");
        let (count, most) = if name.contains("switch_glu") { (128, u64::MAX) } else { (1, 64 << 20) };
        let size = at.info.len / count;
        for i in 0..count {
            let whole = piece(at.shard, at.info.offset + i * size, size);
            let mut done = 0;
            while done < size {
                let len = (size - done).min(most);
                pieces.push(piece(whole.file, whole.offset + done, len));
                done += len;
            }
        }
    }
    assert_eq!(pieces.iter().map(|p| p.len).sum::<u64>(), 14_200_055_868);
    let ranges = coalesce(pieces, 64 << 20, 2 << 20);
    assert_eq!((ranges.len(), ranges.iter().map(|r| r.len).sum::<u64>()), (272, 14_200_161_708));
}

#[test]
fn the_plan_of_the_real_checkpoint_fetches_hardly_a_byte_too_much() {
    let (source, checked) = real();
    for layout in [crate::format::Layout::V1, crate::format::Layout::Tiled] {
        let geometry = super::super::repack::Geometry::new(&checked, layout).expect("geometry");
        let parts = Parts {
            source: &source,
            index: &geometry.index,
            index_bytes: &geometry.index_bytes,
            experts: &geometry.experts,
            shards: &[0, 1, 2],
            sidecars: &[("tokenizer.json", 3, 32_169_626)],
            range: RANGE,
        };
        let plan = parts.plan().expect("plan");
        let nothing = Done::new();
        let works: Vec<Work> = (0..plan.groups()).map(|group| plan.work(group, &nothing)).collect();
        let mut pieces: Vec<Piece> =
            plan.units.iter().flat_map(|u| &u.items).flat_map(|(_, i)| i.pieces()).copied().collect();
        pieces.extend(plan.strips.iter().flat_map(|s| s.sides.into_iter().chain([s.weights])));
        assert_eq!(pieces.iter().map(|p| p.len).sum::<u64>(), 14_200_055_868 + 32_169_626);
        // Every needed byte is in one piece, and in one request.
        pieces.sort_unstable();
        for pair in pieces.windows(2) {
            assert!(pair[0].file < pair[1].file || pair[0].end() <= pair[1].offset, "{pair:?}");
        }
        let (requests, bytes) = plan.traffic(&nothing);
        let waste = bytes - (14_200_055_868 + 32_169_626);
        println!("{layout}: {} groups, {requests} requests, {bytes} bytes", plan.groups());
        assert!(waste < 100_000, "{waste}");
        assert!(requests < 1_100, "{requests}");
        let mut covered = Vec::new();
        for work in &works {
            assert!(work.whole.iter().map(|r| r.len).sum::<u64>() <= UNIT + 100_000);
            assert!(work.ranges.iter().all(|(_, r)| r.len <= RANGE));
            covered.extend(work.whole.iter().copied());
            let mut next = 0;
            for (experts, request) in &work.ranges {
                assert_eq!((experts.start, request.len % (experts.end - experts.start)), (next, 0));
                next = experts.end;
                covered.push(*request);
            }
            assert!(work.ranges.is_empty() || next == 128);
        }
        let holds = |at: u64, p: &Piece| {
            covered
                .iter()
                .filter(|r| r.file == p.file && r.offset <= at && at < r.end())
                .map(|r| r.end())
                .max()
        };
        for piece in &pieces {
            // Weights of a strip are in two requests, one behind the other.
            let end = holds(piece.offset, piece)
                .and_then(|end| if end < piece.end() { holds(end, piece) } else { Some(end) });
            assert!(end.is_some_and(|end| piece.end() <= end), "{piece:?}");
        }
        // Every step belongs to one file.
        let steps: Vec<usize> = (0..plan.outputs.len()).flat_map(|output| plan.steps_of(output)).collect();
        assert_eq!(steps, (0..plan.steps()).collect::<Vec<_>>());
        // What is done is not asked for again: half of a strip, a unit.
        let strip = plan.units.len();
        let mut done: Done = (0..10).map(|expert| plan.step(0, expert)).collect();
        done.insert(0);
        assert_eq!(plan.work(strip, &done).ranges[0].0.start, 10);
        assert!(plan.work(0, &done).whole.is_empty());
        let part = plan.strips[0].part(0, 128).len;
        assert_eq!(plan.traffic(&done).1, bytes - 10 * part - plan.units[0].fetch);
    }
}
