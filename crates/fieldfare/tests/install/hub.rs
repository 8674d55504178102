//! Installing from a hub that misbehaves: the same bytes as from a directory, or a clear error.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fieldfare::format::{Layout, hash};
use fieldfare::install::hub::Remote;
use fieldfare::install::retry::Patience;
use fieldfare::install::{FetchOptions, Installed, Progress, Proof, Stage, discard, install_remote, preview};
use fieldfare::{Error, Result};
use fieldfare_testing::fake_hub::{Asked, COMMIT, FakeHub, Fault, REPO, Served, files_of};

use crate::support::{Checkpoint, contents, go_on, install, listing};

/// The tiny checkpoint in three shards with vision tensors in the last, as a directory.
fn checkpoint(dir: &Path, media: bool) {
    let mut tiny = Checkpoint::tiny();
    if media {
        for i in 0..3u8 {
            let tensor =
                crate::support::Tensor { dtype: "BF16".into(), shape: vec![3000], bytes: vec![i; 6000] };
            tiny.tensors.insert(format!("vision_tower.t{i}.weight"), tensor);
        }
    }
    // An order that has nothing to do with names.
    let mut names = tiny.names();
    names.sort_by_key(|name| hash::sha256(name.as_bytes()));
    let (vision, text): (Vec<_>, Vec<_>) = names.into_iter().partition(|n| n.starts_with("vision"));
    let third = text.len() / 3;
    let mut shards: Vec<Vec<String>> =
        vec![text[..third].to_vec(), text[third..2 * third].to_vec(), text[2 * third..].to_vec()];
    for (i, name) in vision.into_iter().enumerate() {
        shards[2].insert(i * 7, name);
    }
    tiny.write(dir, &shards);
}

pub(crate) fn served(dir: &Path) -> BTreeMap<String, Served> {
    files_of(dir, |name, bytes| {
        let large = name.ends_with(".safetensors") || name == "tokenizer.json";
        large.then(|| hash::hex(&hash::sha256(bytes)))
    })
}

pub(crate) fn options(hub: &FakeHub, output: &Path) -> FetchOptions {
    let remote = Remote::Hub { endpoint: hub.endpoint(), repo: REPO.into(), revision: "main".into() };
    FetchOptions {
        allow_unpinned: true,
        connections: 4,
        patience: Patience {
            tries: 6,
            first: Duration::from_millis(1),
            longest: Duration::from_millis(4),
            // A busy machine's silence is no fault of the hub's.
            stall: Duration::from_secs(120),
        },
        ..FetchOptions::new(remote, output)
    }
}

/// Soon tired of a connection that stands still, for hubs that stop in the middle for ever.
fn impatient(hub: &FakeHub, output: &Path) -> FetchOptions {
    let options = options(hub, output);
    FetchOptions { patience: Patience { stall: Duration::from_secs(2), ..options.patience }, ..options }
}

/// Longer than any test waits.
const FOR_EVER: Duration = Duration::from_secs(3600);

pub(crate) fn run(options: &FetchOptions) -> Result<Installed> {
    install_remote(options, &mut go_on)
}

pub(crate) struct Place {
    _root: tempfile::TempDir,
    pub(crate) source: PathBuf,
    pub(crate) out: PathBuf,
    pub(crate) wanted: BTreeMap<String, Vec<u8>>,
}

pub(crate) fn place(layout: Layout, media: bool) -> Place {
    let root = tempfile::tempdir().expect("temporary directory");
    let source = root.path().join("source");
    checkpoint(&source, media);
    let local = root.path().join("local.gturbo");
    install(&source, &local, layout).expect("install");
    let (out, wanted) = (root.path().join("a model, größer.gturbo"), contents(&local));
    Place { source, out, wanted, _root: root }
}

#[test]
fn a_hub_gives_the_same_bytes_as_a_directory() {
    for layout in [Layout::V1, Layout::Tiled] {
        let place = place(layout, true);
        let hub = FakeHub::start(served(&place.source), |_, _| Fault::None);
        let token = Some("hf_secret".to_owned());
        let options = FetchOptions { layout, token, ..options(&hub, &place.out) };
        let seen = preview(&options, &mut go_on).expect("preview");
        assert_eq!((seen.commit.as_deref(), seen.pinned), (Some(COMMIT), false));
        assert!(!place.out.exists());
        let done = run(&options).expect("install");
        assert!(contents(&place.out) == place.wanted, "{layout}");
        let proofs: Vec<Proof> = done.proof.iter().map(|(_, proof)| *proof).collect();
        assert_eq!(proofs, [Proof::Proven, Proof::Proven, Proof::Partial]);
        assert_eq!(listing(place.out.parent().expect("parent")).len(), 3, "nothing is left beside it");
        for asked in hub.asked() {
            let want = (!asked.is_storage()).then(|| "Bearer hf_secret".to_owned());
            assert_eq!(asked.authorization, want, "{asked:?}");
        }
        // The redirect is asked for once a file, not once a request.
        let asked = hub.asked();
        let resolved =
            asked.iter().filter(|a| a.method == "GET" && a.path.contains("safetensors") && !a.is_storage());
        assert!(resolved.count() <= 3 * 4 + 3, "at most once a connection");
    }
}

#[test]
fn a_plain_server_will_do_and_all_of_a_source_can_be_proven() {
    let place = place(Layout::Tiled, true);
    let hub = FakeHub::start(served(&place.source), |_, _| Fault::None);
    let all = FetchOptions { prove_source: true, ..options(&hub, &place.out) };
    let done = run(&all).expect("install");
    assert!(done.proof.iter().all(|(_, proof)| *proof == Proof::Proven), "{:?}", done.proof);

    let other = place.out.with_file_name("other.gturbo");
    let url = format!("{}/storage", hub.endpoint());
    let done = run(&FetchOptions { remote: Remote::Base { url }, ..options(&hub, &other) }).expect("install");
    assert!(done.proof.iter().all(|(_, proof)| *proof == Proof::NoHash), "{:?}", done.proof);
    assert!(contents(&other) == place.wanted);
}

#[test]
fn unknown_checkpoints_must_be_wanted() {
    let place = place(Layout::Tiled, false);
    let hub = FakeHub::start(served(&place.source), |_, _| Fault::None);
    let strict = FetchOptions { allow_unpinned: false, ..options(&hub, &place.out) };
    let message = run(&strict).expect_err("unknown").to_string();
    assert!(message.contains("--allow-unpinned") && message.contains(COMMIT), "{message}");
    let other = "f".repeat(40);
    let remote = Remote::Hub { endpoint: hub.endpoint(), repo: REPO.into(), revision: other };
    let message = run(&FetchOptions { remote, ..strict }).expect_err("moved").to_string();
    assert!(message.contains("not of the one asked for"), "{message}");
}

/// Faults that pass, and those that do not, each on one request in the middle.
#[test]
fn every_fault_alone() {
    let place = place(Layout::Tiled, false);
    let storage = |asked: &Asked| asked.method == "GET" && asked.path.contains("00002") && asked.is_storage();
    let resolve =
        |asked: &Asked| asked.method == "GET" && asked.path.contains("00002") && !asked.is_storage();
    let cases: [(Fault, bool, Option<&str>); 24] = [
        (Fault::NoAnswer, false, None),
        (Fault::NoAnswer, true, None),
        (Fault::Reset, false, None),
        (Fault::Stall(FOR_EVER), false, None),
        (Fault::Status(429), false, None),
        (Fault::Status(429), true, None),
        (Fault::Later(1), false, None),
        // What lies behind the part that was asked for is nobody's, and the connection is not used again.
        (Fault::Surplus, false, None),
        (Fault::Status(500), false, None),
        (Fault::Status(503), true, None),
        // A signed address that expired is asked for anew.
        (Fault::Status(403), false, None),
        (Fault::Status(404), false, None),
        (Fault::Whole, false, Some("cannot send parts")),
        (Fault::WrongRange, false, Some("Content-Range")),
        (Fault::TooLong, false, Some("Content-Range")),
        (Fault::TooShort, false, Some("Content-Range")),
        (Fault::OtherTag, false, Some("its content changed")),
        (Fault::OtherCommit, true, Some("the revision moved")),
        (Fault::Encoded, false, Some("Content-Encoding")),
        // One redirect more is followed.
        (Fault::Circle, false, None),
        (Fault::Elsewhere, true, Some("plain http")),
        (Fault::Status(403), true, Some("access denied")),
        (Fault::Status(416), false, Some("416")),
        (Fault::Flip, false, Some("does not have the published SHA-256")),
    ];
    for (fault, at_hub, want) in cases {
        let seen = AtomicUsize::new(0);
        let script = move |_: usize, asked: &Asked| {
            let hit = if at_hub { resolve(asked) } else { storage(asked) };
            // The fifth, or the second to the hub itself, which is rarely asked: headers come first.
            let nth = usize::from(hit) * (seen.fetch_add(usize::from(hit), Ordering::Relaxed) + 1);
            if nth == if at_hub { 1 } else { 5 } { fault } else { Fault::None }
        };
        let hub = FakeHub::start(served(&place.source), script);
        let stalls = matches!(fault, Fault::Stall(_));
        let options = if stalls { impatient(&hub, &place.out) } else { options(&hub, &place.out) };
        match (run(&options), want) {
            (Ok(_), None) => assert!(contents(&place.out) == place.wanted, "{fault:?}"),
            (Err(error), Some(want)) => {
                let message = error.to_string();
                assert!(message.contains(want), "{fault:?}: {message}");
                assert!(!message.contains("secret"), "{message}");
                assert!(!place.out.exists());
                // The next run is not harmed.
                run(&options).unwrap_or_else(|e| panic!("{fault:?}: {e}"));
                assert!(contents(&place.out) == place.wanted, "{fault:?}");
            }
            (done, want) => panic!("{fault:?}: {done:?}, not {want:?}"),
        }
        fs::remove_dir_all(&place.out).expect("delete");
    }
}

/// A clock of the machine that jumps by decades, back and forth, every time that it is looked at, and a server that lives in
/// another year: a wait until a date is as long as that server's own clock says, an expired address is asked for
/// anew, a connection that stands still is given up after the time that was said, and the bytes are the same.
#[test]
fn a_clock_that_jumps() {
    use std::time::{Instant, SystemTime};
    fn clock() -> SystemTime {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        let years = if CALLS.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) { 90 } else { 3 };
        SystemTime::UNIX_EPOCH + Duration::from_secs(years * 365 * 86_400)
    }
    let place = place(Layout::Tiled, false);
    let (seen, again) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let waits = again.clone();
    let hub = FakeHub::start(served(&place.source), move |_, asked| {
        if !asked.is_storage() || !asked.path.contains("safetensors") {
            return Fault::None;
        }
        // The wait belongs to the second run: the first one is stopped in the middle, waiting or not.
        if waits.compare_exchange(1, 2, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return Fault::Later(2);
        }
        match seen.fetch_add(1, Ordering::Relaxed) {
            3 => Fault::Status(403),
            5 => Fault::Stall(FOR_EVER),
            _ => Fault::None,
        }
    });
    let options = FetchOptions { clock, range: 64 << 10, ..impatient(&hub, &place.out) };
    let started = Instant::now();
    // Stopped and continued once, so that two runs see different years.
    let stopped = install_remote(&options, &mut |progress: Progress| {
        let far = progress.stage == Stage::Fetching && progress.done * 2 > progress.total;
        if far { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(stopped, Err(Error::Cancelled)), "{stopped:?}");
    again.store(1, Ordering::Relaxed);
    run(&options).expect("install");
    let took = started.elapsed();
    assert!(contents(&place.out) == place.wanted);
    assert!(took >= Duration::from_secs(2), "the server asked for two seconds: {took:?}");
    assert!(took < Duration::from_secs(600), "not decades: {took:?}");
}

/// A number that looks random, from a seed.
fn mix(seed: u64, n: u64) -> u64 {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ n.wrapping_mul(0xd1b5_4a32_d192_ed03);
    x = (x ^ (x >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 29)
}

/// Any mixture of faults: the same bytes, or an error and no model; and when the weather is fine again, the same bytes.
/// `FIELDFARE_INSTALL_SEEDS` sets the number of runs, or `FIRST-LAST` for a part of many.
#[test]
fn seeded_mixtures() {
    let wanted = std::env::var("FIELDFARE_INSTALL_SEEDS").unwrap_or_else(|_| "60".into());
    let number = |text: &str| text.parse::<u64>().expect("FIELDFARE_INSTALL_SEEDS is a number or FIRST-LAST");
    let seeds = match wanted.split_once('-') {
        Some((first, last)) => number(first)..number(last) + 1,
        None => 0..number(&wanted),
    };
    let places = [place(Layout::Tiled, false), place(Layout::V1, false)];
    let (mut good, mut bad) = (0, 0);
    for seed in seeds {
        let which = usize::try_from(seed % 2).expect("small");
        let place = &places[which];
        let harsh = seed % 3 == 0;
        let script = move |n: usize, asked: &Asked| {
            let roll = mix(seed, n as u64);
            if !roll.is_multiple_of(8) {
                return Fault::None;
            }
            match (roll >> 8) % if harsh { 40 } else { 30 } {
                0..6 => Fault::Reset,
                6..12 => Fault::NoAnswer,
                12..18 => Fault::Status(503),
                18..22 => Fault::Status(429),
                22..29 if asked.is_storage() => Fault::Status(403),
                22..29 => Fault::None,
                29 if roll >> 20 & 7 == 0 => Fault::Stall(FOR_EVER),
                30 => Fault::Whole,
                31 => Fault::WrongRange,
                32 => Fault::TooLong,
                33 => Fault::TooShort,
                34 => Fault::OtherTag,
                35 => Fault::OtherCommit,
                // Small files of a source that nobody knows have no hash to hold them against.
                36 if asked.is_storage() => Fault::Flip,
                37 => Fault::Encoded,
                38 => Fault::Circle,
                39 => Fault::Status(416),
                _ => Fault::None,
            }
        };
        let layout = [Layout::Tiled, Layout::V1][which];
        // Every second pair with requests so small that a matrix has several.
        let range = if seed / 2 % 2 == 0 { 64 << 20 } else { 128 << 10 };
        let hub = FakeHub::start(served(&place.source), script);
        let first = FetchOptions { layout, range, ..impatient(&hub, &place.out) };
        match run(&first) {
            Ok(_) => good += 1,
            Err(error) => {
                bad += 1;
                assert!(!place.out.exists(), "seed {seed}: {error}");
                let fine = FakeHub::start(served(&place.source), |_, _| Fault::None);
                let again = FetchOptions { layout, range, ..options(&fine, &place.out) };
                // A small file that was bent in an earlier run may be part of what is refused; then all is fetched anew.
                if let Err(error) = run(&again) {
                    assert!(
                        matches!(error, Error::Damaged { .. } | Error::Journal { .. }),
                        "seed {seed}: {error}"
                    );
                    discard(&place.out).expect("discard");
                    run(&again).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
                }
            }
        }
        assert!(contents(&place.out) == place.wanted, "seed {seed}");
        fs::remove_dir_all(&place.out).expect("delete");
    }
    println!("seeds {wanted}: {good} runs succeeded, {bad} ended with an error and were repeated");
    assert!(good > 0);
}

#[test]
fn a_wrong_byte_leaves_the_old_model_where_it_is() {
    let place = place(Layout::Tiled, false);
    install(&place.source, &place.out, Layout::V1).expect("the old one");
    let old = contents(&place.out);
    for shard in ["00001", "00002", "00003"] {
        let hub = FakeHub::start(served(&place.source), move |_, asked| {
            let hit = asked.is_storage()
                && asked.path.contains(&format!("model-{shard}"))
                && asked.range.is_some_and(|(a, _)| a > 200_000);
            // An early shard is found wrong while the others still come.
            if !hit && asked.is_storage() && shard != "00003" {
                std::thread::sleep(Duration::from_millis(10));
            }
            if hit { Fault::Flip } else { Fault::None }
        });
        let over = FetchOptions { overwrite: true, ..options(&hub, &place.out) };
        let message = run(&over).expect_err("a wrong byte").to_string();
        assert!(message.contains(shard) && message.contains("SHA-256"), "{shard}: {message}");
        assert!(contents(&place.out) == old, "the old model is as it was");
    }
    let fine = FakeHub::start(served(&place.source), |_, _| Fault::None);
    let done = run(&FetchOptions { overwrite: true, ..options(&fine, &place.out) }).expect("install");
    assert!(done.replaced && contents(&place.out) == place.wanted);
}

#[test]
fn a_wrong_small_file_is_fetched_anew() {
    let place = place(Layout::Tiled, false);
    let hub = FakeHub::start(served(&place.source), |_, asked| {
        if asked.is_storage() && asked.path.contains("tokenizer.json") { Fault::Flip } else { Fault::None }
    });
    let message = run(&options(&hub, &place.out)).expect_err("a wrong byte").to_string();
    assert!(message.starts_with("tokenizer.json"), "{message}");
    let fine = FakeHub::start(served(&place.source), |_, _| Fault::None);
    run(&options(&fine, &place.out)).expect("anew");
    assert!(contents(&place.out) == place.wanted);
}

#[test]
fn places_that_will_not_do() {
    let place = place(Layout::Tiled, false);
    let parent = place.out.parent().expect("parent");
    let hub = FakeHub::start(served(&place.source), |_, _| Fault::None);
    let at = |output: &Path| run(&options(&hub, output));
    // Nothing is asked of the source before the place is known to be good.
    fs::write(parent.join("file"), "x").expect("write");
    assert!(matches!(at(&parent.join("file")), Err(Error::Refused { .. })));
    assert!(at(&parent.join("file/model")).is_err());
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(parent.join("local.gturbo"), parent.join("link")).expect("link");
        let message = at(&parent.join("link")).expect_err("a link").to_string();
        assert!(message.contains("symbolic link"), "{message}");
    }
    assert!(hub.asked().is_empty());
    // A second installer of the same place is told at once, while the first is at work.
    let mut second = None;
    install_remote(&options(&hub, &place.out), &mut |progress: Progress| {
        if progress.stage == Stage::Fetching && second.is_none() {
            second = Some((at(&place.out), discard(&place.out)));
        }
        ControlFlow::Continue(())
    })
    .expect("the first");
    let (second, discarded) = second.expect("tried");
    assert!(matches!(second, Err(Error::Locked { .. })), "{second:?}");
    assert!(matches!(discarded, Err(Error::Locked { .. })));
    assert!(contents(&place.out) == place.wanted);
    // Discarding harms no finished model, and a stranger's folder in the way is no leftover.
    assert!(!discard(&place.out).expect("nothing to discard"));
    assert!(contents(&place.out) == place.wanted);
    let partial = parent.join("other.gturbo.partial");
    fs::create_dir(&partial).expect("create");
    fs::write(partial.join("precious"), "x").expect("write");
    let other = parent.join("other.gturbo");
    assert!(matches!(at(&other), Err(Error::Refused { .. })));
    assert!(matches!(discard(&other), Err(Error::Refused { .. })));
    assert!(partial.join("precious").is_file());
}

#[test]
fn verify_finds_every_flip_and_a_moved_model_still_verifies() {
    use fieldfare::format::{VerifyOptions, verify};
    let place = place(Layout::Tiled, false);
    let hub = FakeHub::start(served(&place.source), |_, _| Fault::None);
    run(&options(&hub, &place.out)).expect("install");
    let moved = place.out.with_file_name("moved.gturbo");
    fs::rename(&place.out, &moved).expect("move");
    let keep = VerifyOptions { write_receipt: false, ..VerifyOptions::default() };
    let check = || verify(&moved, &keep, &mut |_| ControlFlow::Continue(()));
    check().expect("moved, and as it was");
    let mut flips = 0;
    for (path, bytes) in contents(&moved) {
        let full = moved.join(&path);
        for i in 0..8u64 {
            let mut bent = bytes.clone();
            let bit = match i {
                0 => 0,
                1 => bytes.len() as u64 * 8 - 1,
                _ => mix(i, bytes.len() as u64) % (bytes.len() as u64 * 8),
            };
            bent[usize::try_from(bit / 8).expect("small")] ^= 1 << (bit % 8);
            fs::write(&full, &bent).expect("write");
            assert!(check().is_err(), "{path}: bit {bit}");
            flips += 1;
        }
        fs::write(&full, &bytes).expect("write");
    }
    assert!(flips >= 17 * 8, "{flips}");
    check().expect("whole again");
}
