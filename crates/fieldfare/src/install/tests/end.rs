//! The last moments of an install: whichever of its operations fails, the next run ends it and fetches nothing again.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::again::questions;
use super::*;
use crate::Error;
use crate::install::target::MARKER;
use crate::sys::disk::Op;
use crate::sys::disk::plug::{Plug, plug};

/// Lets so many operations pass; from then on none.
struct Ends {
    left: AtomicUsize,
    seen: AtomicUsize,
}

impl Plug for Ends {
    fn before(&self, _: Op, _: &Path) -> io::Result<()> {
        self.seen.fetch_add(1, Ordering::Relaxed);
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return Err(io::Error::other("stopped here"));
        }
        self.left.store(left - 1, Ordering::Relaxed);
        Ok(())
    }
}

fn with_ends(parent: &Path, left: usize, options: &FetchOptions) -> (Result<Installed>, usize) {
    let ends = Arc::new(Ends { left: AtomicUsize::new(left), seen: AtomicUsize::new(0) });
    let plugged = plug(parent, ends.clone());
    let ended = run(options);
    drop(plugged);
    (ended, ends.seen.load(Ordering::Relaxed))
}

#[test]
fn whatever_fails_at_the_end_is_ended_by_the_next_run() {
    let root = tempfile::tempdir().expect("temporary directory");
    let base = root.path().canonicalize().expect("a path");
    let (wanted, hub) = (wanted(&base), hub());
    let (mut before_name, mut after_name) = (0, 0);
    for overwrite in [false, true] {
        let place = |name: &str| {
            let parent = base.join(format!("{name} {overwrite}"));
            fs::create_dir(&parent).expect("create");
            let output = parent.join("m.gturbo");
            let mut old = None;
            if overwrite {
                let from = fieldfare_testing::tiny_checkpoint();
                let local =
                    InstallOptions { from, output: output.clone(), layout: Layout::V1, overwrite: false };
                install_local(&local, &mut go_on).expect("the old one");
                old = Some(contents(&output));
            }
            let options = FetchOptions { overwrite, ..options(&hub, &output) };
            (parent, output, options, old)
        };
        // All but the end: with a run that is stopped when everything is there.
        for at in 0..40 {
            let (parent, output, options, old) = place(&format!("at {at}"));
            let stopped = install_remote(&options, &mut |progress: Progress| {
                if progress.stage == crate::install::Stage::Proving {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
            assert!(matches!(stopped, Err(Error::Cancelled)), "{stopped:?}");
            let (ended, seen) = with_ends(&parent, at, &options);
            match ended {
                Ok(done) => {
                    assert!(contents(&output) == wanted && done.replaced == overwrite);
                    assert_eq!(names(&parent), ["m.gturbo"]);
                    assert!(seen > 10, "{seen}");
                    break;
                }
                Err(error) => assert!(error.to_string().contains("stopped here"), "{error}"),
            }
            let marked = output.join(MARKER).is_file();
            let named = output.is_dir() && old.as_ref() != Some(&contents(&output));
            (before_name, after_name) = (before_name + usize::from(!named), after_name + usize::from(named));
            if named && !marked {
                // Nothing of it is left to do but to say so.
                assert!(contents(&output) == wanted);
                continue;
            }
            let sent = hub.sent();
            let done = run(&options).unwrap_or_else(|e| panic!("{at}: {e}"));
            assert!(hub.sent() - sent <= questions(), "{at}: {} bytes", hub.sent() - sent);
            assert!(contents(&output) == wanted, "{at}");
            assert_eq!(names(&parent), ["m.gturbo"], "{at}");
            assert_eq!(done.proof.len(), 1, "{at}");
            assert!(at < 39, "it has no end");
        }
    }
    println!("{before_name} stops before it had its name, {after_name} after");
    assert!(before_name > 10 && after_name >= 4);
}

/// What has its name and its mark is of another source than the one that is asked for now: it is a model like any other.
#[test]
fn what_was_promoted_for_another_source_is_not_taken_for_this_one() {
    let root = tempfile::tempdir().expect("temporary directory");
    let base = root.path().canonicalize().expect("a path");
    let (wanted, hub) = (wanted(&base), hub());
    let output = base.join("m.gturbo");
    let v1 = FetchOptions { layout: Layout::V1, ..options(&hub, &output) };
    run(&v1).expect("install");
    fs::write(output.join(MARKER), "\nabc\ndef\n").expect("write");
    let error = run(&options(&hub, &output)).expect_err("exists").to_string();
    assert!(error.contains("exists already") && !output.join(MARKER).exists(), "{error}");
    fs::write(output.join(MARKER), "\nabc\ndef\n").expect("write");
    let over = FetchOptions { overwrite: true, ..options(&hub, &output) };
    assert!(run(&over).expect("install").replaced);
    assert!(contents(&output) == wanted);
    // An install from a folder, too, takes it for what it is.
    fs::write(output.join(MARKER), "").expect("write");
    let from = fieldfare_testing::tiny_checkpoint();
    let local = InstallOptions { from, output: output.clone(), layout: Layout::Tiled, overwrite: true };
    assert!(install_local(&local, &mut go_on).expect("install").replaced);
    assert!(contents(&output) == wanted);
    assert_eq!(names(&base), ["local", "m.gturbo"]);
}
