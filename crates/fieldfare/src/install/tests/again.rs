//! What a killed run has to fetch again: never more than one request for each connection, however slow the disk is.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::*;
use crate::install::job::Job;
use crate::install::journal::Journal;
use crate::install::plan::Done;
use crate::sys::disk::Op;
use crate::sys::disk::plug::{Plug, plug};

/// Bytes that every run asks for before it knows what to do.
pub(super) fn questions() -> u64 {
    let dir = fieldfare_testing::tiny_checkpoint();
    let size = |name: &str| fs::metadata(dir.join(name)).expect("fixture").len();
    let shard = fs::read(dir.join("model.safetensors")).expect("fixture");
    let header = 8 + u64::from_le_bytes(*shard.first_chunk().expect("a header"));
    header + size("config.json") + size("model.safetensors.index.json")
}

/// Bytes that an install at this place may still fetch: the questions, and what its journal does not vouch for.
pub(super) fn to_fetch(options: &FetchOptions) -> u64 {
    let job = Job::open(options, &mut go_on).expect("job");
    let journal = beside(&options.output, ".install.journal");
    let state = Journal::open(&journal).expect("a good journal");
    let done = state.map(|(_, state)| state.done).unwrap_or_default();
    questions() + job.plan.traffic(&done).1
}

fn beside(output: &Path, end: &str) -> PathBuf {
    let mut path = output.as_os_str().to_os_string();
    path.push(end);
    path.into()
}

/// A disk that takes its time for every flush. Before each it looks at what would be lost if the process were killed now: what
/// the hub has sent, without what the journal says.
struct Slow {
    job: Job,
    hub: Arc<FakeHub>,
    journal: PathBuf,
    /// Sent before the payload.
    before: u64,
    most: AtomicU64,
    looks: AtomicUsize,
    copy: Mutex<PathBuf>,
}

impl Plug for Slow {
    fn before(&self, op: Op, path: &Path) -> io::Result<()> {
        if op != Op::Flush || !self.journal.exists() {
            return Ok(());
        }
        // One look at a time; whoever flushes is who writes the journal, so that stands still meanwhile.
        let copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner);
        if path == self.journal || path.extension().is_some_and(|end| end == "bin" || end == "json") {
            fs::copy(&self.journal, &*copy)?;
            let done = match Journal::open(&copy) {
                Ok(Some((_, state))) => state.done,
                _ => Done::new(),
            };
            let safe = self.job.plan.traffic(&Done::new()).1 - self.job.plan.traffic(&done).1;
            let lost = self.hub.sent().saturating_sub(self.before + safe);
            self.most.fetch_max(lost, Ordering::Relaxed);
            self.looks.fetch_add(1, Ordering::Relaxed);
        }
        drop(copy);
        std::thread::sleep(Duration::from_millis(2));
        Ok(())
    }
}

#[test]
fn never_more_than_a_request_for_each_connection_however_slow_the_disk_is() {
    let root = tempfile::tempdir().expect("temporary directory");
    let base = root.path().canonicalize().expect("a path");
    let (wanted, hub) = (wanted(&base), Arc::new(hub()));
    for (connections, range) in [(4, 64 << 10), (1, 64 << 10), (8, 16 << 10), (2, 256 << 10)] {
        let parent = base.join(format!("{connections} of {range}"));
        fs::create_dir(&parent).expect("create");
        let output = parent.join("m.gturbo");
        let options = FetchOptions { connections, range, ..options(&hub, &output) };
        let job = Job::open(&options, &mut go_on).expect("job");
        let slow = Arc::new(Slow {
            job,
            hub: hub.clone(),
            journal: beside(&output, ".install.journal"),
            before: hub.sent() + questions(),
            most: AtomicU64::new(0),
            looks: AtomicUsize::new(0),
            copy: Mutex::new(base.join("journal")),
        });
        let plugged = plug(&parent, slow.clone());
        run(&options).expect("install");
        drop(plugged);
        assert!(contents(&output) == wanted);
        let (most, looks) = (slow.most.load(Ordering::Relaxed), slow.looks.load(Ordering::Relaxed));
        let bound = connections as u64 * range;
        println!("{connections} connections, {range} bytes: {most} at most of {bound}, {looks} looks");
        assert!(most <= bound, "{connections} connections, {range} bytes: {most} bytes would be lost");
        assert!(looks > 20 && most > range / 4, "{looks} looks, {most}");
    }
}
