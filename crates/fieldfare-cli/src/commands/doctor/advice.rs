//! What stands in the way, and what helps.

use super::expect::Expected;
use super::facts::Facts;
use crate::ui::report::bytes;
use fieldfare::measure::traffic::FULL_SIZE_DISK;
use fieldfare::store::Reads;
use serde::Serialize;

/// Besides the model: what an installation keeps free.
const RESERVE: u64 = 1 << 30;
/// The least that is comfortable, as a limit on memory.
const LEAST_MEMORY: u64 = 2 << 30;
/// Disks below this make it slow: a token at 2 GiB reads half a gigabyte.
const SLOW_DISK: f64 = 500e6;

/// Something to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Advice {
    /// What is the matter.
    pub(super) problem: String,
    /// What helps.
    pub(super) remedy: String,
}

fn advice(problem: impl Into<String>, remedy: impl Into<String>) -> Advice {
    Advice { problem: problem.into(), remedy: remedy.into() }
}

/// All that is worth saying, the worst first.
pub(super) fn advise(facts: &Facts, expected: &Expected) -> Vec<Advice> {
    let mut found = Vec::new();
    if facts.isa == "scalar" {
        let (problem, remedy) = if facts.isas.len() > 1 {
            ("the slow reference kernels are asked for", "unset FIELDFARE_ISA")
        } else {
            (
                "this processor has none of the instruction sets that there are kernels for (AVX2, AVX-512, NEON)",
                "use another computer: the reference kernels are many times slower",
            )
        };
        found.push(advice(problem, remedy));
    }
    memory(facts, expected, &mut found);
    match &facts.folder {
        None => found.push(advice(
            "there is no data folder (no home folder)",
            "name places with --output and --model, or set XDG_DATA_HOME",
        )),
        Some(_) => disk(facts, &mut found),
    }
    found
}

fn memory(facts: &Facts, expected: &Expected, found: &mut Vec<Advice>) {
    let memory = &facts.memory;
    if let Some(limit) = memory.group_limit.filter(|&limit| limit < LEAST_MEMORY) {
        found.push(advice(
            format!("a control group or job limits memory to {}", bytes(limit)),
            "raise it to 2 GiB or more (MemoryMax= of a service, --memory of a container)",
        ));
    } else if expected.auto.is_none() {
        let free = memory.available.map_or_else(String::new, |free| format!(" ({} are free)", bytes(free)));
        found.push(advice(
            format!("what is free does not suffice for Gemma 4 26B-A4B{free}"),
            "close other programs; about 2 GiB are needed, more make it faster",
        ));
    }
    if facts.machine.huge_pages.as_deref() == Some("never") {
        found.push(advice(
            "huge pages are turned off: reads from a fast disk are half as fast, products a third slower",
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        ));
    }
}

fn disk(facts: &Facts, found: &mut Vec<Advice>) {
    let Some(folder) = &facts.folder else { return };
    let place = folder.path.display();
    if let Some(free) = folder.free_bytes.filter(|&free| free < FULL_SIZE_DISK + RESERVE) {
        let (free, need) = (bytes(free), bytes(FULL_SIZE_DISK + RESERVE));
        found.push(advice(
            format!("{free} are free where {place} lies, the model and a reserve take {need}"),
            "free some space, or install elsewhere with --output DIR.gturbo",
        ));
    }
    if folder.network {
        let kind = folder.file_system.as_deref().unwrap_or("a network");
        found.push(advice(
            format!("{place} lies on a network file system ({kind}): every token waits for it"),
            "install on a local SSD with --output DIR.gturbo",
        ));
    }
    if let Some(error) = &folder.disk_error {
        found.push(advice(
            format!("the disk could not be tried: {error}"),
            "try --folder with a folder of yours",
        ));
    }
    let Some(disk) = &folder.disk else { return };
    if disk.reads == Reads::Buffered {
        found.push(advice(
            format!("direct reads do not work where {place} lies; the rate shown may be the page cache's"),
            "install on a local file system such as ext4, xfs or btrfs",
        ));
    } else if disk.bytes_per_second < SLOW_DISK {
        let rate = bytes(disk.bytes_per_second as u64);
        found.push(advice(
            format!("the disk reads {rate} a second, which makes small budgets slow"),
            "install on an NVMe SSD, or give more memory with --memory",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::{Disk, Folder, Room};
    use super::*;
    use crate::commands::bench::Machine;

    fn facts() -> Facts {
        Facts {
            version: "0",
            commit: None,
            machine: Machine {
                processor: None,
                system: "linux".into(),
                cores: 2,
                memory_bytes: Some(16 << 30),
                huge_pages: Some("madvise".into()),
            },
            isas: vec!["scalar".into(), "avx2".into()],
            isa: "avx2".into(),
            memory: Room {
                total: Some(16 << 30),
                available: Some(12 << 30),
                group_limit: None,
                group_free: None,
                rlimit_free: None,
            },
            bandwidth_bytes_per_second: Some(30e9),
            folder: Some(Folder {
                path: "/models".into(),
                free_bytes: Some(100 << 30),
                file_system: Some("ext4".into()),
                network: false,
                disk: Some(Disk {
                    bytes_per_second: 2e9,
                    depth: 2,
                    by_depth: Vec::new(),
                    reads: Reads::Direct,
                }),
                disk_error: None,
            }),
        }
    }

    fn problems(change: impl FnOnce(&mut Facts)) -> String {
        let mut facts = facts();
        change(&mut facts);
        let expected = super::super::expect::expect(&facts);
        // What the machine that runs the test has free is not the matter here.
        let found = advise(&facts, &expected).into_iter().filter(|a| !a.problem.starts_with("what is free"));
        found.map(|advice| advice.problem + "\n").collect()
    }

    #[test]
    fn a_good_machine_has_no_problem_and_each_bad_thing_has_its_own() {
        assert_eq!(problems(|_| ()), "");
        let folder = |facts: &mut Facts| facts.folder.take().unwrap();
        for (change, says) in [
            (Box::new(|f: &mut Facts| f.isa = "scalar".into()) as Box<dyn FnOnce(&mut Facts)>, "asked for"),
            (
                Box::new(|f: &mut Facts| (f.isa, f.isas) = ("scalar".into(), vec!["scalar".into()])),
                "none of the instruction sets",
            ),
            (Box::new(|f: &mut Facts| f.memory.group_limit = Some(1 << 30)), "limits memory to 1.07 GB"),
            (
                Box::new(|f: &mut Facts| f.machine.huge_pages = Some("never".into())),
                "huge pages are turned off",
            ),
            (Box::new(|f: &mut Facts| f.folder = None), "no data folder"),
            (
                Box::new(move |f: &mut Facts| {
                    f.folder = Some(Folder { free_bytes: Some(1 << 30), ..folder(f) });
                }),
                "1.07 GB are free",
            ),
            (
                Box::new(move |f: &mut Facts| {
                    f.folder = Some(Folder { network: true, file_system: Some("nfs4".into()), ..folder(f) });
                }),
                "network file system (nfs4)",
            ),
            (
                Box::new(move |f: &mut Facts| {
                    f.folder = Some(Folder { disk: None, disk_error: Some("no".into()), ..folder(f) });
                }),
                "could not be tried: no",
            ),
            (
                Box::new(move |f: &mut Facts| {
                    let mut there = folder(f);
                    there.disk = there.disk.map(|disk| Disk { reads: Reads::Buffered, ..disk });
                    f.folder = Some(there);
                }),
                "direct reads do not work",
            ),
            (
                Box::new(move |f: &mut Facts| {
                    let mut there = folder(f);
                    there.disk = there.disk.map(|disk| Disk { bytes_per_second: 1e8, ..disk });
                    f.folder = Some(there);
                }),
                "reads 100 MB a second",
            ),
        ] {
            let found = problems(change);
            assert!(found.contains(says) && found.lines().count() == 1, "{says}: {found}");
        }
    }
}
