//! Stopped installs: what the next run takes up, what it fetches again, and what it refuses.

use std::fs;
use std::ops::ControlFlow;
use std::sync::Arc;

use fieldfare::Error;
use fieldfare::format::Layout;
use fieldfare::install::{FetchOptions, Progress, Stage, discard, install_remote, preview};
use fieldfare_testing::fake_hub::{FakeHub, Fault};

use crate::hub::{options, place, run, served};
use crate::support::{contents, go_on, install, listing};

/// Stopped after any number of progress calls, a run is continued without fetching again what is safe.
#[test]
fn stopped_and_continued() {
    let place = place(Layout::Tiled, false);
    let hub = Arc::new(FakeHub::start(served(&place.source), |_, _| Fault::None));
    let options = options(&hub, &place.out);
    let mut stopped = 0;
    for after in 0..40 {
        let mut calls = 0;
        let done = install_remote(&options, &mut |progress: Progress| {
            calls += usize::from(progress.stage == Stage::Fetching);
            if calls > after { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match done {
            Ok(_) => break,
            Err(Error::Cancelled) => stopped += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(!place.out.exists());
    }
    if !place.out.exists() {
        run(&options).expect("continued");
    }
    assert!(stopped > 3, "{stopped}");
    assert!(contents(&place.out) == place.wanted);
}

#[test]
fn journals_of_others_and_damaged_ones_are_refused_with_the_remedy() {
    let place = place(Layout::Tiled, false);
    let hub = FakeHub::start(served(&place.source), |_, _| Fault::None);
    let tiled = FetchOptions { range: 64 << 10, ..options(&hub, &place.out) };
    let stop = |options: &FetchOptions| {
        install_remote(options, &mut |progress: Progress| {
            let far = progress.stage == Stage::Fetching && progress.done * 2 > progress.total;
            if far { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    };
    assert!(matches!(stop(&tiled), Err(Error::Cancelled)));
    let v1 = FetchOptions { layout: Layout::V1, ..tiled.clone() };
    let error = run(&v1).expect_err("another layout");
    assert!(matches!(error, Error::Journal { .. }) && error.hint().is_some_and(|h| h.contains("--discard")));
    // An install from a directory does not throw the download away in passing.
    let error = install(&place.source, &place.out, Layout::Tiled).expect_err("a download is unfinished");
    assert!(error.to_string().contains("--discard"), "{error}");
    // Whatever bit of the first line is damaged, of the word that names its directory too, nothing is dropped.
    let beside = |end: &str| {
        place.out.with_file_name(format!("{}{end}", place.out.file_name().expect("name").display()))
    };
    let journal = beside(".install.journal");
    let bytes = fs::read(&journal).expect("journal");
    let refused = |what: &str| {
        let error = run(&tiled).expect_err(what);
        assert!(matches!(error, Error::Journal { .. }), "{what}: {error:?}");
        assert!(error.hint().is_some_and(|hint| hint.contains("--discard")), "{what}");
        assert!(beside(".partial").is_dir(), "{what}");
    };
    let first = bytes.iter().position(|byte| *byte == b'\n').expect("a line");
    for at in 0..=first {
        let mut bent = bytes.clone();
        bent[at] ^= 1;
        fs::write(&journal, &bent).expect("write");
        refused(&format!("byte {at} of the journal"));
    }
    fs::write(&journal, &bytes).expect("write");
    // The same word in the mark of the directory.
    let mark = beside(".partial").join(".fieldfare-partial");
    let text = fs::read_to_string(&mark).expect("the mark");
    let word = text.lines().nth(1).expect("a word");
    for other in ["", "0123456789abcdef"] {
        fs::write(&mark, text.replace(word, other)).expect("write");
        refused("another word in the mark");
    }
    fs::write(&mark, &text).expect("write");
    assert!(discard(&place.out).expect("discard"));
    assert!(!discard(&place.out).expect("discard"), "nothing is left");
    assert_eq!(listing(place.out.parent().expect("parent")).len(), 2);
    run(&v1).expect("anew");
}

/// With one unit in memory at a time, a stop costs at most that unit (here at most a file) and what is always asked.
#[test]
fn what_is_safe_is_not_fetched_again() {
    let place = place(Layout::Tiled, false);
    let hub = FakeHub::start(served(&place.source), |_, _| Fault::None);
    let options = FetchOptions { memory: 1, ..options(&hub, &place.out) };
    preview(&options, &mut go_on).expect("preview");
    let asking = hub.sent();
    run(&options).expect("install");
    let whole = hub.sent() - asking;
    let largest = place.wanted.values().map(|bytes| bytes.len() as u64).max().expect("files");
    fs::remove_dir_all(&place.out).expect("delete");

    let before = hub.sent();
    let mut stops = 0;
    loop {
        let (mut start, mut calls) = (0, 0);
        let done = install_remote(&options, &mut |progress: Progress| {
            if progress.stage != Stage::Fetching {
                return ControlFlow::Continue(());
            }
            calls += 1;
            if calls == 2 {
                // The first says that it begins; by the second it knows what is done already.
                start = progress.done;
            }
            // So much further that a unit must have been completed.
            let far = calls > 2 && progress.done > start + largest;
            if far { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match done {
            Ok(_) => break,
            Err(Error::Cancelled) => stops += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(stops < 20, "no progress");
    }
    assert!(stops > 0);
    let all = hub.sent() - before;
    assert!(contents(&place.out) == place.wanted);
    assert!(all <= whole + stops * (asking + largest), "{all} bytes for {whole} and {stops} stops");
}

#[test]
fn files_that_vanish_or_change_between_runs_are_fetched_again() {
    let place = place(Layout::Tiled, false);
    let hub = FakeHub::start(served(&place.source), |_, _| Fault::None);
    let options = FetchOptions { memory: 1, ..options(&hub, &place.out) };
    let partial =
        place.out.with_file_name(format!("{}.partial", place.out.file_name().expect("name").display()));
    for round in 0..4 {
        let stopped = install_remote(&options, &mut |progress: Progress| {
            let far = progress.stage == Stage::Fetching && progress.done * 2 > progress.total;
            if far { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(matches!(stopped, Err(Error::Cancelled)), "{stopped:?}");
        match round {
            0 => fs::remove_file(partial.join("packed_experts/layer_00.bin")).expect("delete"),
            1 => fs::File::options()
                .write(true)
                .open(partial.join("model_weights.bin"))
                .and_then(|file| file.set_len(5))
                .expect("cut"),
            2 => fs::remove_dir_all(partial.join("tokenizer")).expect("delete"),
            _ => {}
        }
    }
    run(&options).expect("install");
    assert!(contents(&place.out) == place.wanted);
}

/// Where nothing is, nothing is left; where there is no folder, none is made.
#[test]
fn discarding_leaves_nothing() {
    let root = tempfile::tempdir().expect("temporary directory");
    assert!(!discard(&root.path().join("m.gturbo")).expect("nothing"));
    assert!(!discard(&root.path().join("a/b/m.gturbo")).expect("nothing"));
    assert!(listing(root.path()).is_empty());
    // What a killed run left behind of its lock goes with the next.
    fs::write(root.path().join("m.gturbo.install.lock"), "4711\nworking\n").expect("write");
    assert!(!discard(&root.path().join("m.gturbo")).expect("nothing"));
    assert!(listing(root.path()).is_empty());
}
