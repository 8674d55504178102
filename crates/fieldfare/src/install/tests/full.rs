//! Too little room from the start, and a disk that fills up on the way.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::Error;
use crate::sys::disk::Op;
use crate::sys::disk::plug::{Plug, plug};

/// After so many operations that take room there is none, until somebody makes some.
struct Small {
    left: AtomicU64,
    full: AtomicBool,
}

impl Plug for Small {
    fn before(&self, op: Op, _: &Path) -> io::Result<()> {
        if matches!(op, Op::Write | Op::Reserve) {
            let ends = self.left.fetch_sub(1, Ordering::Relaxed) == 1;
            if ends {
                self.full.store(true, Ordering::Relaxed);
            }
            if self.full.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        Ok(())
    }
}

/// Whatever is the first thing that finds no room, the message says so, and when there is room the same command gives the same
/// bytes and fetches nothing again that the journal vouches for.
#[test]
fn a_disk_that_fills_up_on_the_way() {
    let root = tempfile::tempdir().expect("temporary directory");
    let base = root.path().canonicalize().expect("a path");
    let (wanted, hub) = (wanted(&base), hub());
    let mut dice = Dice(7);
    let mut full = 0;
    for round in 0..rounds("FIELDFARE_INSTALL_FULL", 24) {
        let parent = base.join(format!("disk {round}"));
        fs::create_dir(&parent).expect("create");
        let output = parent.join("m.gturbo");
        let options = options(&hub, &output);
        let small =
            Arc::new(Small { left: AtomicU64::new(1 + dice.below(2_500)), full: AtomicBool::new(false) });
        let plugged = plug(&parent, small.clone());
        let ended = run(&options);
        drop(plugged);
        match ended {
            // It was over before that.
            Ok(_) => assert!(!small.full.load(Ordering::Relaxed)),
            Err(error) => {
                full += 1;
                assert!(
                    matches!(&error, Error::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull),
                    "{error:?}"
                );
                let message = error.to_string();
                assert!(
                    message.contains("no storage space") || message.contains("No space left"),
                    "{message}"
                );
                assert!(error.hint().is_some_and(|hint| hint.contains("free some space")), "{message}");
                assert!(!output.exists());
                let expected = super::again::to_fetch(&options);
                // The run that found no room still received when it ended.
                hub.at_rest();
                let before = hub.sent();
                run(&options).unwrap_or_else(|e| panic!("round {round}: {e}"));
                let sent = hub.sent() - before;
                assert!(sent <= expected, "round {round}: {sent} bytes, not {expected}");
            }
        }
        assert!(contents(&output) == wanted, "round {round}");
        fs::remove_dir_all(&parent).expect("delete");
    }
    assert!(full > 10, "{full}");
}

/// 2 GB free: refused before anything is written, with both numbers.
struct TwoGigabytes;

impl Plug for TwoGigabytes {
    fn free(&self) -> Option<u64> {
        Some(2_000_000_000)
    }
}

#[test]
fn two_gigabytes_are_too_little_for_26b_a4b_and_nothing_is_written() {
    use fieldfare_testing::gemma4;
    use std::io::Write as _;
    let root = tempfile::tempdir().expect("temporary directory");
    let base = root.path().canonicalize().expect("a path");
    let mut files = BTreeMap::new();
    for (name, json, payload) in gemma4::headers() {
        let path = base.join(&name);
        let mut file = fs::File::create_new(&path).expect("create");
        file.write_all(&(json.len() as u64).to_le_bytes()).expect("write");
        file.write_all(json.as_bytes()).expect("write");
        let len = 8 + json.len() as u64 + payload;
        file.set_len(len).expect("a sparse file");
        let content = Content::File(path, len);
        files.insert(name, Served { content, sha256: Some("0".repeat(64)) });
    }
    for (name, text) in [("model.safetensors.index.json", gemma4::index()), ("config.json", gemma4::config())]
    {
        files.insert(name.into(), Served { content: Content::Bytes(text.into()), sha256: None });
    }
    let hub = FakeHub::start(files, |_, _| Fault::None);
    let place = base.join("place");
    fs::create_dir(&place).expect("create");
    let _plugged = plug(&place, Arc::new(TwoGigabytes));
    let options = FetchOptions { range: 64 << 20, ..options(&hub, &place.join("m.gturbo")) };
    let error = run(&options).expect_err("no room");
    match &error {
        Error::OutOfSpace { need, have: 2_000_000_000, .. } => {
            assert!((14_200_000_000..14_400_000_000).contains(need), "{need}");
            let message = error.to_string();
            assert!(message.contains(&need.to_string()) && message.contains("2000000000"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    assert!(names(&place).is_empty(), "{:?}", names(&place));
    assert!(hub.sent() < 1_000_000, "no payload was asked for: {}", hub.sent());
}
