//! Plans for the large model and for any other.

use super::*;
use proptest::prelude::*;

const LAYERS: usize = 30;

/// The KV cache of the large model: 25 rings of 1,024 rows, 5 lines, pages of 256 rows.
fn large_kv(context: usize) -> u64 {
    let pages = |rows: usize| (rows.div_ceil(256) * 256) as u64;
    25 * pages(context.min(1024)) * 8 * 256 * 4 + 5 * pages(context) * 2 * 512 * 4
}

/// A pass of the large model: 26 KB a token and buffers for 8 or 16 experts.
fn large_pass(tokens: usize) -> u64 {
    let experts = if tokens >= 512 { 16 } else { 8 };
    if tokens > 1 { tokens as u64 * 25_600 + experts * 3_358_720 } else { 0 }
}

fn large() -> Sizes<'static> {
    Sizes {
        core: 1_354_987_008,
        stride: 3_358_720,
        layers: LAYERS,
        experts: 128,
        kv: &large_kv,
        scratch: 24_000_000,
        pass: &large_pass,
        process: 64_000_000,
    }
}

fn request(bytes: u64) -> Request {
    Request {
        limit: Some(Limit { bytes, origin: Origin::Given }),
        free: Some(u64::MAX),
        max_context: 4096,
        pass_tokens: 4096,
        slots_per_layer: None,
        reads: None,
        core: None,
        elastic: true,
        spares: 0,
    }
}

#[test]
fn the_large_model_in_two_gibibytes() {
    let plan = plan(&large(), &request(2 << 30)).unwrap();
    assert_eq!(plan.slots_per_layer(), 6);
    assert_eq!(plan.slots_full / LAYERS, 4);
    assert_eq!((plan.core, plan.reads), (Core::Mapped, Reads::Direct));
    assert!(plan.full_bytes() <= 2 << 30 && plan.first_bytes() <= 2 << 30);
    let line = plan.to_string();
    assert!(
        line.starts_with("memory 2147 of 2148 MB: core 1355 (mapped), KV 58 to 294, program 88, slots 6."),
        "{line}"
    );
    assert!(line.contains(" of 128 a layer (about 34 % hits), direct reads"), "{line}");
    assert!(line.ends_with(", prompts by 4096 tokens"), "{line}");
    assert_eq!(plan.lines().len(), 8);
}

#[test]
fn more_memory_ends_in_all_resident() {
    let plan = plan(&large(), &request(16 << 30)).unwrap();
    assert_eq!((plan.slots, plan.slots_full, plan.shared_bytes), (LAYERS * 128, LAYERS * 128, None));
    assert_eq!(plan.core, Core::Copied);
    assert_eq!(plan.slots_beside(u64::MAX), plan.slots);
    assert!(plan.full_bytes() < 16 << 30 && plan.full_bytes() > 14_400_000_000 + plan.pass_bytes);
    assert_eq!(plan.reads, Reads::Direct, "a given limit leaves nothing to the page cache");
    let free = Limit { bytes: 16 << 30, origin: Origin::Free };
    let found =
        super::plan(&large(), &Request { limit: Some(free), free: Some(64 << 30), ..request(0) }).unwrap();
    assert_eq!(found.reads, Reads::Buffered);
    let found =
        super::plan(&large(), &Request { limit: Some(free), free: Some(20 << 30), ..request(0) }).unwrap();
    assert_eq!(found.reads, Reads::Direct);
}

#[test]
fn texts_side_by_side_where_memory_is_plentiful() {
    let ask = |gib: u64| plan(&large(), &request(gib << 30)).unwrap();
    for (gib, parallel) in [(2, 1), (3, 1), (6, 1), (7, 1), (8, 4), (16, 4)] {
        let plan = ask(gib);
        assert_eq!(plan.suggested_parallel(), parallel, "{gib} GiB: {plan}");
        // One full context always fits.
        assert!(plan.texts_bytes() >= plan.kv_full_bytes, "{gib} GiB: {plan}");
    }
    // What gives way leaves half of the slots beside a full context, what does not leaves all.
    let (small, large) = (ask(3), ask(16));
    let floor = small.floor_slots() as u64 * small.slot_bytes;
    assert_eq!(small.texts_bytes() + floor, small.shared_bytes.unwrap());
    assert_eq!(large.texts_bytes(), large.kv_full_bytes + large.kept_bytes);
    assert!(large.full_bytes() + large.kept_bytes <= 16 << 30);
}

#[test]
fn too_little_says_what_is_needed() {
    let error = plan(&large(), &request(1 << 30)).unwrap_err().to_string();
    assert_eq!(error, "memory: this model needs 1838 MB at 4096 tokens of context, 1073 MB are given");
    let error = plan(&large(), &request(1_700_000_000)).unwrap_err().to_string();
    assert_eq!(error, "max-context: 4096 tokens need 1838 MB of memory, 1700 MB are given; 512 fit");
    let fixed = Request { slots_per_layer: Some(16), ..request(1_700_000_000) };
    let error = plan(&large(), &fixed).unwrap_err().to_string();
    assert_eq!(
        error,
        "expert-cache-slots: 16 in each layer need 3377 MB at 4096 tokens of context, 1700 MB are given"
    );
    for slots in [0, 129] {
        let error = plan(&large(), &Request { slots_per_layer: Some(slots), ..fixed }).unwrap_err();
        assert!(matches!(error, Error::BadRequest { field, .. } if field == "expert-cache-slots"));
    }
    // What it says is enough.
    plan(&large(), &request(1_838_000_000)).unwrap();
}

#[test]
fn fixed_slots_stay_and_leave_the_mapped_core_to_the_system() {
    let machine = Limit { bytes: 2_200_000_000, origin: Origin::Machine };
    let request = Request { limit: Some(machine), slots_per_layer: Some(16), free: None, ..request(0) };
    let plan = plan(&large(), &request).unwrap();
    assert_eq!((plan.slots, plan.slots_full, plan.shared_bytes), (480, 480, None));
    assert_eq!((plan.core, plan.reads), (Core::Mapped, Reads::Direct));
    let blind = super::plan(&large(), &Request { limit: None, slots_per_layer: None, ..request }).unwrap();
    assert_eq!((blind.slots, blind.shared_bytes), (480, None));
}

#[test]
fn passes_are_as_long_as_the_limit_allows() {
    let tokens = |bytes, slots_per_layer, elastic| {
        let request = Request { slots_per_layer, elastic, max_context: 1 << 14, ..request(bytes) };
        plan(&large(), &request).unwrap().pass_tokens
    };
    let least = least(&large(), &Request { max_context: 1 << 14, ..request(0) });
    // The slots lend what they have: at the least 100 MB, which are 46 MB beside the buffers.
    assert_eq!(tokens(least, None, true), 1836);
    assert_eq!(tokens(least + 100_000_000, None, true), 4096);
    assert_eq!(tokens(least + 27_700_000, Some(1), true), 32);
    assert_eq!(tokens(least + 27_700_000, None, false), 32);
    assert_eq!(tokens(least + 800_000_000, None, false), 4096);
    let short = Request { pass_tokens: 1, ..request(2 << 30) };
    assert_eq!(plan(&large(), &short).unwrap().pass_bytes, 0);
}

#[test]
fn the_expected_hits_rise() {
    let hits: Vec<f64> = (0..=128).filter_map(|slots| expected_hits(slots, 128)).collect();
    assert_eq!((hits.len(), hits[0], hits[128]), (129, 0.0, 1.0));
    assert!(hits.windows(2).all(|pair| pair[0] <= pair[1]));
    assert_eq!((hits[16], expected_hits(5, 8)), (0.66, None));
}

/// Any model, small enough to count in.
fn sizes<'a>(
    numbers: [u64; 4],
    layers: usize,
    experts: usize,
    kv: &'a dyn Fn(usize) -> u64,
    pass: &'a dyn Fn(usize) -> u64,
) -> Sizes<'a> {
    let [core, stride, scratch, process] = numbers;
    Sizes { core, stride, layers, experts, kv, scratch, pass, process }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn never_above_the_limit_and_never_fewer_slots_with_more(
        numbers in [0u64..5_000, 1u64..500, 0u64..500, 0u64..500],
        (layers, experts) in (1usize..6, 1usize..20),
        (row, page) in (0u64..20, 1usize..50),
        context in 1usize..300,
        extra in 0u64..60_000,
        more in 0u64..5_000,
        elastic: bool,
        fixed in prop::option::of(1usize..20),
        (pass_tokens, pass_row, pass_base) in (1usize..400, 0u64..30, 0u64..3_000),
        spares in 0usize..4,
    ) {
        let kv = |tokens: usize| (tokens.div_ceil(page) * page) as u64 * row;
        let pass = |tokens: usize| if tokens > 1 { tokens as u64 * pass_row + pass_base } else { 0 };
        let sizes = sizes(numbers, layers, experts, &kv, &pass);
        let slots_per_layer = fixed.map(|slots| slots.min(experts));
        let ask = |bytes| {
            Request { max_context: context, pass_tokens, elastic, slots_per_layer, spares, ..request(bytes) }
        };
        let least = least(&sizes, &ask(0));
        // The minimum is exact.
        prop_assert!(plan(&sizes, &ask(least)).is_ok());
        if let Some(below) = least.checked_sub(1) {
            prop_assert!(plan(&sizes, &ask(below)).is_err());
        }
        let smaller = plan(&sizes, &ask(least + extra)).unwrap();
        let larger = plan(&sizes, &ask(least + extra + more)).unwrap();
        for tokens in 1..=context {
            let held = smaller.slots_beside(kv(tokens));
            prop_assert!(held >= layers && held <= smaller.slots);
            prop_assert!(held >= smaller.slots_full);
            prop_assert!(held <= larger.slots_beside(kv(tokens)) + larger.spares);
            prop_assert!(smaller.bytes(kv(tokens), held) <= least + extra, "at {} tokens", tokens);
            if slots_per_layer.is_some() || !elastic {
                prop_assert_eq!(held, smaller.slots);
            }
        }
        // A pass beside a full context, with what the slots lend.
        prop_assert!(smaller.pass_tokens >= 1 && smaller.pass_tokens <= pass_tokens.min(context));
        prop_assert_eq!(smaller.pass_bytes, pass(smaller.pass_tokens));
        let lent = smaller.shared_bytes.map_or(0, |_| smaller.pass_bytes);
        let slots = smaller.slots_beside(kv(context) + lent);
        prop_assert!(smaller.bytes(kv(context) + lent, slots) <= least + extra);
        prop_assert_eq!(smaller.slots_beside(kv(1)), smaller.slots);
        prop_assert_eq!(smaller.slots_beside(kv(context)), smaller.slots_full);
        // Nothing that would have held one more slot is left unused.
        if slots_per_layer.is_none() && smaller.slots_full < layers * experts {
            let pass = if elastic { smaller.pass_bytes } else { 0 };
            prop_assert!(smaller.full_bytes() + pass + sizes.stride > least + extra);
        }
    }

    #[test]
    fn no_size_overflows(
        numbers: [u64; 4], layers: usize, experts: usize, context in 1usize.., limit: u64, row: u64, pass_tokens: usize,
    ) {
        let kv = |tokens: usize| (tokens as u64).saturating_mul(row);
        let request = Request { max_context: context, pass_tokens, ..request(limit) };
        let _ = plan(&sizes(numbers, layers, experts, &kv, &kv), &request)
            .map(|plan| (plan.to_string(), plan.lines()));
    }
}
