//! `packed_experts/layout.json` in both layouts.
#![no_main]
use fieldfare::format::{CAP_LAYOUT, ExpertLayout, Layout};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for layout in [Layout::V1, Layout::Tiled] {
        if let Ok(experts) = ExpertLayout::parse(bytes, layout) {
            let encoded = experts.encode();
            // Our form is longer than a compact one, so the largest documents do not come back.
            if encoded.len() as u64 <= CAP_LAYOUT {
                let again = ExpertLayout::parse(&encoded, layout).expect("our own form is accepted");
                assert_eq!(encoded, again.encode());
            }
        }
    }
});
