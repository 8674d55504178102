//! Plain servers, which know no commits: two versions of a file are never mixed, within a run or across runs.

use std::fs;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use fieldfare::Error;
use fieldfare::format::Layout;
use fieldfare::install::hub::Remote;
use fieldfare::install::{FetchOptions, Progress, Stage, discard, install_remote};
use fieldfare_testing::fake_hub::{Content, FakeHub, Fault, Version};

use crate::hub::{Place, options, place, run, served};
use crate::support::contents;

fn plain(hub: &FakeHub, place: &Place) -> FetchOptions {
    let url = format!("{}/storage", hub.endpoint());
    FetchOptions { remote: Remote::Base { url }, range: 64 << 10, ..options(hub, &place.out) }
}

/// A server with these files that says this of their version.
fn server(place: &Place, version: Version) -> FakeHub {
    FakeHub::start(served(&place.source), move |_, _| Fault::Of(version))
}

/// The same with one bit of the last shard's last tensor changed: same names, same lengths, same headers.
fn changed(place: &Place, version: Version) -> FakeHub {
    let mut files = served(&place.source);
    let shard = files.get_mut("model-00003-of-00003.safetensors").expect("a shard");
    let Content::Bytes(bytes) = &mut shard.content else { panic!("in memory") };
    *bytes.last_mut().expect("bytes") ^= 1;
    FakeHub::start(files, move |_, _| Fault::Of(version))
}

fn stop_halfway(options: &FetchOptions) {
    let stopped = install_remote(options, &mut |progress: Progress| {
        let far = progress.stage == Stage::Fetching && progress.done * 2 > progress.total;
        if far { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(stopped, Err(Error::Cancelled)), "{stopped:?}");
}

/// What is installed of the changed files.
fn wanted_of_changed(place: &Place) -> std::collections::BTreeMap<String, Vec<u8>> {
    let hub = changed(place, Version::Tag(9));
    let other = FetchOptions { output: place.out.with_file_name("other.gturbo"), ..plain(&hub, place) };
    run(&other).expect("install");
    let contents = contents(&other.output);
    fs::remove_dir_all(&other.output).expect("delete");
    assert!(contents != place.wanted);
    contents
}

#[test]
fn a_resume_never_mixes_two_versions() {
    let place = place(Layout::Tiled, false);
    let other = wanted_of_changed(&place);
    for (before, after) in [
        (Version::Tag(1), Version::Tag(2)),
        (Version::Modified(3), Version::Modified(4)),
        (Version::Tag(1), Version::Modified(3)),
        (Version::Modified(3), Version::Unsaid),
    ] {
        let old = server(&place, before);
        stop_halfway(&plain(&old, &place));
        let new = changed(&place, after);
        let error = run(&plain(&new, &place)).expect_err("another version");
        assert!(matches!(&error, Error::Journal { .. }), "{error:?}");
        assert!(error.to_string().contains("another version of the source"), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("--discard")));
        // The old one, from any address, is continued.
        let again = server(&place, before);
        let sent = again.sent();
        run(&plain(&again, &place)).expect("continued");
        let whole: u64 = place.wanted.values().map(|bytes| bytes.len() as u64).sum();
        assert!(again.sent() - sent < whole * 3 / 4, "{} of {whole}", again.sent() - sent);
        assert!(contents(&place.out) == place.wanted, "{before:?}");
        fs::remove_dir_all(&place.out).expect("delete");
        // Given up, the new one is installed.
        stop_halfway(&plain(&old, &place));
        assert!(discard(&place.out).expect("discard"));
        run(&plain(&new, &place)).expect("anew");
        assert!(contents(&place.out) == other, "{after:?}");
        fs::remove_dir_all(&place.out).expect("delete");
    }
}

/// A server that says nothing that could be relied on: what a former run fetched is not used, and that is said.
#[test]
fn without_a_version_all_is_fetched_again() {
    let place = place(Layout::Tiled, false);
    let other = wanted_of_changed(&place);
    for version in [Version::Unsaid, Version::Weak(1), Version::JustNow] {
        let old = server(&place, version);
        stop_halfway(&plain(&old, &place));
        let new = changed(&place, version);
        let done = run(&plain(&new, &place)).expect("anew");
        assert!(contents(&place.out) == other, "{version:?}");
        assert!(done.warnings.iter().any(|said| said.contains("fetched again")), "{:?}", done.warnings);
        fs::remove_dir_all(&place.out).expect("delete");
        let done = run(&plain(&new, &place)).expect("without a stop");
        assert!(!done.warnings.iter().any(|said| said.contains("fetched again")), "{:?}", done.warnings);
        fs::remove_dir_all(&place.out).expect("delete");
    }
}

#[test]
fn a_version_that_changes_in_the_middle_is_an_error() {
    let place = place(Layout::Tiled, false);
    for (before, after, name) in [
        (Version::Tag(1), Version::Tag(2), "another ETag"),
        (Version::Tag(1), Version::Weak(1), "another ETag"),
        (Version::Modified(1), Version::Modified(2), "another Last-Modified"),
        (Version::Modified(1), Version::Unsaid, "another Last-Modified"),
    ] {
        let seen = AtomicUsize::new(0);
        let hub = FakeHub::start(served(&place.source), move |_, asked| {
            let payload = asked.method == "GET" && asked.path.contains("00002");
            let late = payload && seen.fetch_add(1, Ordering::Relaxed) > 8;
            Fault::Of(if late { after } else { before })
        });
        let message = run(&plain(&hub, &place)).expect_err("it changed").to_string();
        assert!(message.contains("its content changed") && message.contains(name), "{message}");
        assert!(!place.out.exists());
        discard(&place.out).expect("discard");
    }
}

/// A signed address that expired is asked for anew; what it leads to must be what it was.
#[test]
fn a_new_address_leads_to_the_same_bytes() {
    let place = place(Layout::Tiled, false);
    for (tag, good) in [(1, true), (2, false)] {
        let seen = AtomicUsize::new(0);
        let hub = FakeHub::start(served(&place.source), move |_, asked| {
            if !(asked.is_storage() && asked.path.contains("00002")) {
                return Fault::None;
            }
            match seen.fetch_add(1, Ordering::Relaxed) {
                0..6 => Fault::Of(Version::Tag(1)),
                6..10 => Fault::Status(403),
                _ => Fault::Of(Version::Tag(tag)),
            }
        });
        let options = FetchOptions { range: 64 << 10, connections: 1, ..options(&hub, &place.out) };
        match run(&options) {
            Ok(_) => {
                assert!(good && contents(&place.out) == place.wanted);
                fs::remove_dir_all(&place.out).expect("delete");
            }
            Err(error) => assert!(!good && error.to_string().contains("its content changed"), "{error}"),
        }
    }
}
