use super::*;
use crate::format::hash::{hex, sha256};
use proptest::prelude::*;

const NAME: &str = "language_model.model.embed_tokens.weight";

/// The index of 1.11 of the specification, built from its description.
fn reference() -> ResidentIndex {
    let entry = IndexEntry {
        name: NAME.into(),
        dtype: DType::U32,
        shape: [1, 1, 0, 0],
        data: 16_384..16_400,
        scales: 16_400..16_408,
        biases: 16_408..16_416,
    };
    ResidentIndex { entries: vec![entry], index_size: 16_384, resident_size: 32 }
}

/// Two plain tensors of 8 bytes with a gap of 8 between them.
fn two() -> Vec<u8> {
    let entry = |name: &str, start: u64| IndexEntry {
        name: name.into(),
        dtype: DType::Bf16,
        shape: [4, 0, 0, 0],
        data: start..start + 8,
        scales: 0..0,
        biases: 0..0,
    };
    let entries = vec![entry("aa", 16_384), entry("bb", 16_400)];
    ResidentIndex { entries, index_size: 16_384, resident_size: 24 }.encode().unwrap()
}

#[test]
fn reference_bytes() {
    let index = reference();
    let bytes = index.encode().unwrap();
    assert_eq!(bytes.len(), 16_384);
    assert_eq!(hex(&sha256(&bytes)), "aa705246112c17d4b60422a2705bda53e96553f7ff96e09b00e6fbb5a4ffa594");
    assert_eq!(ResidentIndex::parse(&bytes, 16_416, Layout::V1).unwrap(), index);
    assert_eq!(index.by_name()[NAME].elements(), Some(1));
}

#[test]
fn gaps_are_legal() {
    let index = ResidentIndex::parse(&two(), 16_408, Layout::V1).unwrap();
    assert_eq!(index.entries[1].data, 16_400..16_408);
    // 16,400 is no 4 KiB boundary.
    let message = ResidentIndex::parse(&two(), 16_408, Layout::Tiled).unwrap_err().to_string();
    assert!(message.contains("entries[1].data: expected a multiple of 4096"), "{message}");
}

/// Overlapping names, each but one of them another: a region of 16 MiB could hold 13 GB of them.
#[test]
fn names_cannot_share_their_bytes() {
    let mut bytes = two();
    let start = HEADER + 2 * ENTRY;
    bytes[start..].fill(b'a');
    for (entry, at) in [(0, start), (1, start + 1)] {
        let raw = &mut bytes[HEADER + entry * ENTRY..];
        raw[..4].copy_from_slice(&(at as u32).to_le_bytes());
        raw[4..6].copy_from_slice(&((16_384 - at) as u16).to_le_bytes());
    }
    let message = ResidentIndex::parse(&bytes, 16_408, Layout::V1).unwrap_err().to_string();
    assert!(message.contains("entries[1].name: the names are longer than the space"), "{message}");
}

#[test]
fn each_fault_is_refused_and_named() {
    const FIRST: usize = HEADER;
    const SECOND: usize = HEADER + ENTRY;
    let faults: [(usize, &[u8], &str); 28] = [
        (0, &[23, 0], "indexSize"),
        (0, &[0, 0x41], "indexSize"),
        (0, &[0, 0x80], "indexSize"),
        (0, &[0, 0, 0, 2], "indexSize"),
        (8, &[25], "residentSize"),
        (8, &[0xff; 8], "residentSize"),
        (16, &[0xff; 8], "entryCount"),
        (16, &[0, 1], "entryCount"),
        (FIRST, &[167], "entries[0].name"),
        (FIRST, &[0xff; 4], "entries[0].name"),
        (FIRST + 4, &[0, 0], "entries[0].name"),
        (FIRST + 4, &[0xff, 0xff], "entries[0].name"),
        (SECOND, &[168], "entries[1].name: \"aa\" appears twice"),
        (168, &[0xff], "entries[0].name: not UTF-8"),
        (FIRST + 6, &[4], "entries[0].dtype"),
        (FIRST + 7, &[1], "entries[0].reserved"),
        (FIRST + 8, &[0xff, 0x3f], "entries[0].data"),
        (FIRST + 8, &[0xff; 8], "entries[0].data"),
        (FIRST + 16, &[0], "entries[0].data: empty"),
        (FIRST + 16, &[0xff; 8], "entries[0].data"),
        (FIRST + 16, &[17], "aa at 16384..16401 overlaps bb"),
        (SECOND + 16, &[9], "entries[1].data"),
        (FIRST + 24, &[0], "entries[0].shape"),
        (FIRST + 32, &[1], "entries[0].shape"),
        (FIRST + 40, &[1], "entries[0].scales: an absent range"),
        (FIRST + 48, &[2], "entries[0].scales"),
        (FIRST + 56, &[1], "entries[0].biases: an absent range"),
        (FIRST + 56, &[0, 0x40, 0, 0, 0, 0, 0, 0, 2], "overlaps"),
    ];
    for (at, patch, wanted) in faults {
        let mut bytes = two();
        bytes[at..at + patch.len()].copy_from_slice(patch);
        let message = ResidentIndex::parse(&bytes, 16_408, Layout::V1).expect_err(wanted).to_string();
        assert!(message.starts_with("model_weights.bin: ") && message.contains(wanted), "{at}: {message}");
    }
    for len in [16_407, 16_409, 0] {
        assert!(ResidentIndex::parse(&two(), len, Layout::V1).is_err(), "file of {len}");
    }
    assert!(ResidentIndex::parse(&two()[..16_383], 16_408, Layout::V1).is_err());
    assert!(ResidentIndex::parse(&[], 0, Layout::V1).is_err());
}

#[test]
fn tile_dtype_has_its_own_rules() {
    let make = |shape, size: u64| {
        let entry = IndexEntry {
            name: "t".into(),
            dtype: DType::Tile16x64,
            shape,
            data: 16_384..16_384 + size,
            scales: 0..0,
            biases: 0..0,
        };
        let index = ResidentIndex { entries: vec![entry], index_size: 16_384, resident_size: size };
        (index.encode().unwrap(), 16_384 + size)
    };
    let (bytes, len) = make([32, 128, 0, 0], 4 * 576);
    ResidentIndex::parse(&bytes, len, Layout::Tiled).unwrap();
    let message = ResidentIndex::parse(&bytes, len, Layout::V1).unwrap_err().to_string();
    assert!(message.contains("entries[0].dtype: expected 0..3 in layout v1, found 4 (t)"), "{message}");
    for (shape, size) in
        [([32, 128, 0, 0], 4 * 576 + 1), ([8, 64, 0, 0], 288), ([16, 63, 0, 0], 576), ([16, 64, 1, 0], 576)]
    {
        let (bytes, len) = make(shape, size);
        assert!(ResidentIndex::parse(&bytes, len, Layout::Tiled).is_err(), "{shape:?} {size}");
    }
}

#[test]
fn encoding_refuses_what_does_not_fit() {
    let mut index = reference();
    index.index_size = 32_768;
    assert!(index.encode().is_err());
    let mut index = reference();
    index.entries[0].name = "x".repeat(65_536);
    index.index_size = 81_920;
    assert!(index.encode().is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn no_patch_panics(at in 0usize..256, patch in prop::collection::vec(any::<u8>(), 1..16), tiled in any::<bool>()) {
        let mut bytes = two();
        bytes[at..at + patch.len()].copy_from_slice(&patch);
        let layout = if tiled { Layout::Tiled } else { Layout::V1 };
        if let Ok(index) = ResidentIndex::parse(&bytes, 16_408, layout) {
            for entry in &index.entries {
                prop_assert!(entry.data.start >= 16_384 && entry.data.end <= 16_408);
            }
        }
    }
}
