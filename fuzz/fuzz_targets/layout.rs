//! `packed_experts/layout.json` in both layouts.
#![no_main]
use fieldfare::format::{ExpertLayout, Layout};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for layout in [Layout::V1, Layout::Tiled] {
        if let Ok(experts) = ExpertLayout::parse(bytes, layout) {
            let again = ExpertLayout::parse(&experts.encode(), layout).expect("our own form is accepted");
            assert_eq!(experts.encode(), again.encode());
        }
    }
});
