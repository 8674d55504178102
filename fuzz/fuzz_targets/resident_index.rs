//! The index region of `model_weights.bin`. The first eight bytes choose the file's length.
#![no_main]
use fieldfare::format::{Layout, ResidentIndex};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((length, region)) = bytes.split_first_chunk::<8>() else { return };
    for layout in [Layout::V1, Layout::Tiled] {
        for file_len in [u64::from_le_bytes(*length), region.len() as u64 + u64::from(length[0])] {
            if let Ok(index) = ResidentIndex::parse(region, file_len, layout) {
                assert!(index.by_name().len() <= region.len());
                let names: usize = index.entries.iter().map(|entry| entry.name.len()).sum();
                assert!(names <= region.len(), "names that share their bytes");
                if let Ok(encoded) = index.encode() {
                    assert_eq!(ResidentIndex::parse(&encoded, file_len, layout).as_ref().ok(), Some(&index));
                }
            }
        }
        if let Some(header) = region.first_chunk::<24>() {
            let _ = ResidentIndex::region_size(header, region.len() as u64);
        }
    }
});
