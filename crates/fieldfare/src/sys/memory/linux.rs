//! Linux: `/proc`, the control groups of both versions, resource limits.

use super::{ProcessMemory, Room};
use rustix::process::{Resource, getrlimit};
use std::path::{Path, PathBuf};

pub(super) fn process() -> ProcessMemory {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else {
        return ProcessMemory::default();
    };
    ProcessMemory {
        rss: kib_field(&status, "VmRSS:"),
        rss_anon: kib_field(&status, "RssAnon:"),
        rss_file: kib_field(&status, "RssFile:"),
        peak_rss: kib_field(&status, "VmHWM:"),
    }
}

pub(super) fn room() -> Room {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut room = Room {
        total: kib_field(&meminfo, "MemTotal:"),
        available: kib_field(&meminfo, "MemAvailable:"),
        rlimit_free: rlimit_free(),
        ..Room::default()
    };
    for line in groups.lines() {
        let (limit, free) = group(line, Path::new("/sys/fs/cgroup"));
        room.group_limit = least(room.group_limit, limit);
        room.group_free = least(room.group_free, free);
    }
    room
}

/// `Name:   1234 kB` in bytes.
fn kib_field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}

/// What the resource limits leave. The address space holds mapped files too, so it is the narrowest by far where it is
/// set; `RLIMIT_RSS` has no effect on today's kernels, but who sets it means it.
fn rlimit_free() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let terms = [(Resource::As, "VmSize:"), (Resource::Data, "VmData:"), (Resource::Rss, "VmRSS:")];
    let left = terms.into_iter().filter_map(|(resource, used)| {
        let limit = getrlimit(resource).current?;
        Some(limit.saturating_sub(kib_field(&status, used).unwrap_or(0)))
    });
    left.min()
}

/// File names and keys of one version of control groups.
struct Version {
    limits: &'static [&'static str],
    usage: &'static str,
    /// Keys of `memory.stat` for file pages, those of groups below included.
    file_pages: [&'static str; 2],
}

const V1: Version = Version {
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    file_pages: ["total_inactive_file ", "total_active_file "],
};

const V2: Version = Version {
    // Above `high` a group is slowed down until it is below again, so it bounds as well.
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    file_pages: ["inactive_file ", "active_file "],
};

/// The smallest limit, and the least left free, on the way from the group of this line up to the root: v2 lines are
/// `0::/path`, v1 lines `N:controllers:/path` with `memory` among the controllers. In a container the path may be the
/// host's, of which only the root is there.
fn group(line: &str, root: &Path) -> (Option<u64>, Option<u64>) {
    let mut fields = line.splitn(3, ':');
    let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
        return (None, None);
    };
    let (base, version): (PathBuf, _) = if controllers.is_empty() {
        (root.to_path_buf(), V2)
    } else if controllers.split(',').any(|name| name == "memory") {
        (root.join("memory"), V1)
    } else {
        return (None, None);
    };
    let (mut smallest, mut least_free) = (None, None);
    let mut group = PathBuf::from(path.trim_start_matches('/'));
    loop {
        let folder = base.join(&group);
        let read = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
        let number = |file: &str| read(file)?.trim().parse::<u64>().ok();
        // v1 writes "no limit" as the largest multiple of the page size, v2 as a word.
        let limits = version.limits.iter().filter_map(|file| number(file)).filter(|&limit| limit < 1 << 60);
        if let Some(limit) = limits.min() {
            let stat = read("memory.stat").unwrap_or_default();
            let pages = |key: &str| -> u64 {
                let value = stat.lines().find_map(|line| line.strip_prefix(key));
                value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
            };
            let droppable = version.file_pages.iter().map(|key| pages(key)).fold(0, u64::saturating_add);
            let used = number(version.usage).unwrap_or(0).saturating_sub(droppable);
            smallest = least(smallest, Some(limit));
            least_free = least(least_free, Some(limit.saturating_sub(used)));
        }
        if !group.pop() {
            return (smallest, least_free);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_limits_are_the_smallest_on_the_way_up() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::write(inner.join("memory.max"), "max\n").unwrap();
        std::fs::write(root.path().join("a/memory.max"), "2147483648\n").unwrap();
        let whole = (Some(2_147_483_648), Some(2_147_483_648));
        assert_eq!(group("0::/a/b", root.path()), whole);
        assert_eq!(group("0::/", root.path()), (None, None));
        std::fs::create_dir_all(root.path().join("memory")).unwrap();
        let unlimited = root.path().join("memory/memory.limit_in_bytes");
        std::fs::write(&unlimited, "9223372036854771712\n").unwrap();
        assert_eq!(group("4:cpu,memory:/x", root.path()), (None, None));
        std::fs::write(&unlimited, "1000000\n").unwrap();
        assert_eq!(group("4:cpu,memory:/x", root.path()), (Some(1_000_000), Some(1_000_000)));
        assert_eq!(group("nonsense", root.path()), (None, None));
    }

    #[test]
    fn what_is_free_may_be_bounded_by_another_group_than_the_smallest() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("a/b/memory.max", "1000\n");
        write("a/b/memory.current", "300\n");
        write("a/b/memory.stat", "anon 100\ninactive_file 150\nactive_file 40\nfile 9999\n");
        write("a/memory.max", "max\n");
        write("a/memory.high", "5000\n");
        write("a/memory.current", "4500\n");
        write("a/memory.stat", "inactive_file 0\n");
        assert_eq!(group("0::/a/b", root.path()), (Some(1000), Some(500)));
        write("a/memory.current", "9000\n");
        assert_eq!(group("0::/a/b", root.path()), (Some(1000), Some(0)));
        write("memory/m/memory.limit_in_bytes", "1000\n");
        write("memory/m/memory.usage_in_bytes", "800\n");
        write("memory/m/memory.stat", "inactive_file 1\ntotal_inactive_file 200\ntotal_active_file 50\n");
        assert_eq!(group("4:memory:/m", root.path()), (Some(1000), Some(450)));
    }

    #[test]
    fn fields_in_kib() {
        assert_eq!(kib_field("A: 1 kB\nMem:   20 kB\n", "Mem:"), Some(20_480));
        assert_eq!(kib_field("Mem: x kB", "Mem:"), None);
        assert_eq!(kib_field("", "Mem:"), None);
        assert_eq!(kib_field("Mem: 18446744073709551615 kB", "Mem:"), None);
    }
}
