//! Whatever a journal says is done can be found after a power loss: each folder on the way to it has had its names flushed.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::again::questions;
use super::*;
use crate::install::job::Job;
use crate::install::journal::Journal;
use crate::sys::disk::Op;
use crate::sys::disk::plug::{Plug, plug};

/// A name in a folder, and what has it.
type Name = (PathBuf, OsString, u64);

/// Notes which names were flushed, and asks for them whenever the journal has been.
struct Watcher {
    root: PathBuf,
    output: PathBuf,
    job: Job,
    flushed: Mutex<BTreeSet<Name>>,
    asked: Mutex<usize>,
    missing: Mutex<BTreeSet<PathBuf>>,
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).map_or(0, |meta| meta.ino())
}

impl Plug for Watcher {
    fn before(&self, op: Op, path: &Path) -> io::Result<()> {
        // What is there before is what is flushed; more may be, but nobody can rely on that.
        if op == Op::FlushNames {
            let mut flushed = self.flushed.lock().unwrap_or_else(PoisonError::into_inner);
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                flushed.insert((path.to_path_buf(), entry.file_name(), inode(&entry.path())));
            }
        }
        Ok(())
    }

    fn after(&self, op: Op, path: &Path) {
        let journal = self.output.with_file_name("m.gturbo.install.journal");
        if op != Op::Flush || path != journal {
            return;
        }
        let Some(state) = Journal::peek(path) else { return };
        let (plan, partial) = (&self.job.plan, self.output.with_file_name("m.gturbo.partial"));
        let outputs = plan.outputs.iter().enumerate();
        let done = outputs.filter(|(n, _)| state.done.range(plan.steps_of(*n)).next().is_some());
        let flushed = self.flushed.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, output) in done {
            for full in [&partial.join(&output.path), &journal] {
                for path in full.ancestors().take_while(|path| *path != self.root) {
                    let (folder, name) =
                        (path.parent().expect("a folder"), path.file_name().expect("a name"));
                    *self.asked.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                    if !flushed.contains(&(folder.to_path_buf(), name.to_owned(), inode(path))) {
                        self.missing
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .insert(path.to_path_buf());
                    }
                }
            }
        }
    }
}

/// The hub keeps the weights back until the small files are in the journal: their folder's name then has to be on the disk by
/// itself, and not because a file beside it was begun.
#[test]
fn what_the_journal_says_has_names_that_outlive_a_power_loss() {
    let root = tempfile::tempdir().expect("temporary directory");
    let base = root.path().canonicalize().expect("a path");
    let place = base.join("disk");
    fs::create_dir(&place).expect("create");
    // Of these folders there is none yet.
    let output = place.join("models/of a house/m.gturbo");
    let journal = output.with_file_name("m.gturbo.install.journal");
    let files = files_of(&fieldfare_testing::tiny_checkpoint(), |_, _| None);
    let header = questions();
    let hub = FakeHub::start(files, move |_, asked| {
        let payload = asked.range.is_some_and(|(first, _)| first > header);
        let end = Instant::now() + Duration::from_secs(60);
        let recorded = || fs::read_to_string(&journal).is_ok_and(|text| text.contains(" done "));
        while payload && journal.exists() && !recorded() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        Fault::None
    });
    let options = options(&hub, &output);
    let watcher = std::sync::Arc::new(Watcher {
        root: place.clone(),
        output: output.clone(),
        job: Job::open(&options, &mut go_on).expect("job"),
        flushed: Mutex::default(),
        asked: Mutex::default(),
        missing: Mutex::default(),
    });
    let plugged = plug(&place, watcher.clone());
    run(&options).expect("install");
    drop(plugged);
    let missing = watcher.missing.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(missing.is_empty(), "could be lost: {missing:?}");
    let asked = *watcher.asked.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(asked > 100, "{asked} names");
}
