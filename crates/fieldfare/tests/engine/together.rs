//! Answers side by side, and each by itself.

use crate::fixture::{Fixture, exact, generate};
use crate::side_by_side::{assert_same, side_by_side, wishes};
use fieldfare::engine::{EngineOptions, Generation};
use fieldfare::format::Layout;
use fieldfare::model::Precision;

#[test]
fn each_is_what_it_is_alone() {
    for precision in [Precision::Exact, Precision::Default] {
        let fixture = Fixture::new(Layout::Tiled);
        let mut alone = fixture.open(EngineOptions { conversations: 0, precision, ..exact() });
        let wishes = wishes(&alone);
        let wanted: Vec<Generation> = wishes
            .iter()
            .map(|(prompt, options)| {
                alone.session().clear();
                generate(&mut alone, prompt, options)
            })
            .collect();
        drop(alone);
        let mut cached = 0;
        for (most, fixed, slots, conversations, chunk) in
            [(4, true, 5, 9, 7), (8, true, 1, 2, 256), (3, false, 16, 9, 20), (1, true, 3, 4, 256)]
        {
            let options = EngineOptions {
                precision,
                expert_cache_slots: Some(slots),
                conversations,
                prefill_chunk_tokens: chunk,
                threads: Some(1 + most % 2),
                ..exact()
            };
            let mut engine = fixture.open(options);
            // Twice, the second time with what the first has left.
            for round in 0..2 {
                let found = side_by_side(&mut engine, &wishes, most, fixed, &mut |_| {});
                assert_same(&found, &wanted, &format!("{most} {slots} {round}"));
                cached += found.values().map(|found| found.cached_tokens).sum::<usize>();
            }
            // And then alone again.
            assert_eq!(generate(&mut engine, &wishes[0].0, &wishes[0].1).token_ids, wanted[0].token_ids);
        }
        assert!(cached > 500, "{cached}");
    }
}
