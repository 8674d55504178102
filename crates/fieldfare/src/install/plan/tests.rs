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
            parts: &geometry.parts,
            shards: &[0, 1, 2],
            sidecars: &[("tokenizer.json", 3, 32_169_626)],
        };
        let plan = parts.plan().expect("plan");
        let needed: u64 = plan.units.iter().map(|u| u.fetch).sum();
        assert_eq!(needed, 14_200_055_868 + 32_169_626);
        let (requests, bytes) = plan.traffic(0);
        assert!(bytes - needed < 100_000, "{}", bytes - needed);
        assert!(requests < 6_000, "{requests}");
        println!("{layout}: {} units, {requests} requests, {bytes} bytes", plan.units.len());
        for unit in &plan.units {
            assert!(unit.fetch <= UNIT && unit.requests().iter().all(|r| r.len <= WINDOW));
        }
        // Every needed byte is in one piece of one item.
        let mut pieces: Vec<Piece> =
            plan.units.iter().flat_map(|u| &u.items).flat_map(Item::pieces).copied().collect();
        pieces.sort_unstable();
        for pair in pieces.windows(2) {
            assert!(pair[0].file < pair[1].file || pair[0].end() <= pair[1].offset, "{pair:?}");
        }
        // Files are filled from front to back.
        for (output, file) in plan.outputs.iter().enumerate() {
            let mut at = 0;
            for unit in plan.units.iter().filter(|u| u.output == output) {
                at += unit.items.iter().map(|i| i.len(geometry.experts.expert_stride)).sum::<u64>();
                assert_eq!(unit.end, at);
            }
            assert_eq!(at, file.len, "{}", file.path);
        }
    }
}
