//! The compiled form on disk: used when whole, rebuilt when not, and never trusted.

use super::table::{SECTIONS, Storage, Table, assemble};
use super::*;
use proptest::prelude::*;
use std::path::PathBuf;

struct Room {
    dir: tempfile::TempDir,
    json: PathBuf,
}

impl Room {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let json = fieldfare_testing::tiny_checkpoint().join("tokenizer.json");
        Self { dir, json }
    }

    /// A cache folder that does not exist yet.
    fn cache(&self) -> PathBuf {
        self.dir.path().join("a/cache")
    }

    fn file(&self) -> PathBuf {
        let sha256 = hash::sha256(tiny_json());
        cache::path(&self.cache(), &sha256)
    }

    fn open(&self) -> Tokenizer {
        Tokenizer::open(&self.json, Some(&self.cache())).unwrap()
    }
}

fn works(tokenizer: &Tokenizer) {
    let text = "the end\u{1F980} <|turn>";
    for control in [false, true] {
        assert_eq!(encode(tokenizer, text, control), encode(tiny(), text, control));
    }
}

fn is_mapped(tokenizer: &Tokenizer) -> bool {
    matches!(tokenizer.table.storage(), Storage::Mapped(_))
}

#[test]
fn it_is_written_once_and_mapped() {
    let room = Room::new();
    let first = room.open();
    assert!(is_mapped(&first));
    works(&first);
    let written = std::fs::metadata(room.file()).unwrap().modified().unwrap();
    let second = room.open();
    assert!(is_mapped(&second));
    works(&second);
    assert_eq!(std::fs::metadata(room.file()).unwrap().modified().unwrap(), written);
    let files: Vec<_> = std::fs::read_dir(room.cache()).unwrap().collect();
    assert_eq!(files.len(), 1, "nothing is left beside it");
}

#[test]
fn a_damaged_one_is_rebuilt() {
    let room = Room::new();
    drop(room.open());
    let whole = std::fs::read(room.file()).unwrap();
    let mut damaged: Vec<Vec<u8>> =
        [0, 1, 7, 8, 100, whole.len() / 2, whole.len() - 1].map(|len| whole[..len].to_vec()).into();
    damaged.push([&whole[..], &[0; 8]].concat());
    damaged.push(vec![0xFF; whole.len()]);
    for at in (0..512).chain((512..whole.len()).step_by(997)) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        damaged.push(bytes);
    }
    for bytes in damaged {
        // Written beside and renamed, as the cache does: a mapped file must not change.
        let beside = room.dir.path().join("beside");
        std::fs::write(&beside, &bytes).unwrap();
        std::fs::rename(&beside, room.file()).unwrap();
        let tokenizer = room.open();
        works(&tokenizer);
        assert!(std::fs::read(room.file()).unwrap() == whole, "not rebuilt");
    }
}

#[test]
fn without_a_usable_folder_it_is_built_in_memory() {
    let room = Room::new();
    // A folder where the file should be.
    std::fs::create_dir_all(room.file()).unwrap();
    let tokenizer = room.open();
    assert!(!is_mapped(&tokenizer));
    works(&tokenizer);
    // A file where the folder should be.
    let blocked = room.dir.path().join("blocked");
    std::fs::write(&blocked, "").unwrap();
    for dir in [Some(blocked.join("below")), Some(blocked), None] {
        let tokenizer = Tokenizer::open(&room.json, dir.as_deref()).unwrap();
        assert!(!is_mapped(&tokenizer));
        works(&tokenizer);
    }
}

#[test]
fn another_source_has_another_file() {
    let room = Room::new();
    drop(room.open());
    let changed = room.dir.path().join("changed.json");
    std::fs::write(&changed, [tiny_json(), b"\n"].concat()).unwrap();
    works(&Tokenizer::open(&changed, Some(&room.cache())).unwrap());
    assert_eq!(std::fs::read_dir(room.cache()).unwrap().count(), 2);
    // A form under another's name is not taken.
    let sha256 = hash::sha256(b"other");
    std::fs::copy(room.file(), cache::path(&room.cache(), &sha256)).unwrap();
    assert!(cache::load(&room.cache(), &sha256).is_none());
}

#[test]
fn sources_that_cannot_be_read_are_io_errors() {
    let room = Room::new();
    let missing = room.dir.path().join("none.json");
    assert!(matches!(Tokenizer::open(&missing, None), Err(Error::Io { action: "open", .. })));
    assert!(matches!(Tokenizer::open(room.dir.path(), None), Err(Error::Damaged { .. } | Error::Io { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A forged form with a right checksum and any content: wrong answers, but answers.
    #[test]
    fn forged_forms_do_not_panic(
        sections in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), SECTIONS),
        small in any::<bool>(),
        flags in 0_u64..4,
        text in "\\PC{0,80}",
    ) {
        let mut sections = sections;
        // Sizes that pass the check; contents as they come, or small numbers, which reach further.
        for (index, bytes) in [(2, 64), (3, 128), (5, 4 * 4352), (6, 4096), (7, 1024), (9, 2048), (10, 64)] {
            let seed = sections[index].clone();
            sections[index] = (0..bytes).map(|at| seed.get(at % seed.len().max(1)).copied().unwrap_or(0)).collect();
        }
        for index in [1, 4, 8, 11] {
            let whole = sections[index].len() / 4 * 4;
            sections[index].truncate(whole);
        }
        if small {
            for index in [1, 2, 4, 5, 6, 7, 8, 11] {
                for (at, byte) in sections[index].iter_mut().enumerate() {
                    *byte = if at % 4 == 0 { *byte % 32 } else { 0 };
                }
            }
        }
        let ids = (sections[1].len() / 4).saturating_sub(1);
        let refs: Vec<&[u8]> = sections.iter().map(Vec::as_slice).collect();
        let words = assemble(&[7; 32], ids, flags, refs.try_into().unwrap());
        let table = Table::new(Storage::Heap(words), &[7; 32]);
        prop_assert!(table.is_some());
        if let Some(table) = table {
            let view = table.view();
            let mut out = Vec::new();
            bpe::Encoder::new(view).encode(&text, &mut out);
            for id in out.into_iter().chain(0..40) {
                let _ = view.piece(id).map(|piece| view.id_of(piece));
            }
            let matcher = control::Matcher::new(&view);
            let _ = matcher.find(&text);
            let _ = Tokenizer::from_table(table);
        }
    }
}

#[test]
fn a_file_with_another_hash_than_listed_is_damaged() {
    let room = Room::new();
    let wanted: [u8; 32] = Sha256::digest(tiny_json()).into();
    let changed = room.dir.path().join("changed.json");
    let text = std::str::from_utf8(tiny_json()).unwrap();
    // Another word of the same length: still a sound tokenizer.
    std::fs::write(&changed, text.replacen("<unused99>", "<unusedXX>", 1)).unwrap();
    Tokenizer::open(&changed, Some(&room.cache())).unwrap();
    for cache in [None, Some(room.cache())] {
        works(&Tokenizer::open_listed(&room.json, cache.as_deref(), &wanted).unwrap());
        let error = Tokenizer::open_listed(&changed, cache.as_deref(), &wanted).unwrap_err();
        assert!(matches!(&error, Error::Damaged { file, .. } if file == FILE), "{error}");
    }
}
