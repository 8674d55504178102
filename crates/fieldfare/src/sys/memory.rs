//! What this process uses of the machine's memory, and what it may use.
//!
//! The terms differ by platform, and a number that the platform does not give is `None`, never a guess. Mapped model
//! weights are clean file pages: the system can drop them at any time, so they are told apart from anonymous memory
//! wherever that is possible (Linux).
#![allow(unsafe_code)] // macOS and Windows answer only through calls of their C libraries

/// Memory of this process in bytes, as the platform counts it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Resident now: `VmRSS`; physical footprint on macOS; working set on Windows.
    pub rss: Option<u64>,
    /// Of that, anonymous memory, the part that cannot be dropped: `RssAnon` (Linux only).
    pub rss_anon: Option<u64>,
    /// Of that, pages of files, the mapped weights above all: `RssFile` (Linux only).
    pub rss_file: Option<u64>,
    /// The largest `rss` so far: `VmHWM`; peak working set on Windows.
    pub peak_rss: Option<u64>,
}

/// Reads the figures of this process.
pub fn process() -> ProcessMemory {
    platform::process()
}

/// Physical memory of the machine in bytes.
pub fn total_bytes() -> Option<u64> {
    platform::total_bytes()
}

/// The memory limit that a control group sets for this process, in bytes; `None` where there is none.
pub fn cgroup_limit() -> Option<u64> {
    platform::cgroup_limit()
}

/// What this process may use at most: the smaller of the machine's memory and the group's limit.
pub fn limit_bytes() -> Option<u64> {
    match (total_bytes(), cgroup_limit()) {
        (Some(total), Some(limit)) => Some(total.min(limit)),
        (total, limit) => total.or(limit),
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod platform {
    use super::ProcessMemory;
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

    pub(super) fn total_bytes() -> Option<u64> {
        kib_field(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
    }

    /// `Name:   1234 kB` in bytes.
    pub(super) fn kib_field(text: &str, name: &str) -> Option<u64> {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    }

    pub(super) fn cgroup_limit() -> Option<u64> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        groups.lines().filter_map(|line| group_limit(line, Path::new("/sys/fs/cgroup"))).min()
    }

    /// The smallest limit on the way from the group of this line up to the root: v2 lines are `0::/path`, v1 lines
    /// `N:controllers:/path` with `memory` among the controllers.
    pub(super) fn group_limit(line: &str, root: &Path) -> Option<u64> {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let (base, file): (PathBuf, _) = if controllers.is_empty() {
            (root.to_path_buf(), "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            (root.join("memory"), "memory.limit_in_bytes")
        } else {
            return None;
        };
        let mut smallest = None;
        let mut group = PathBuf::from(path.trim_start_matches('/'));
        loop {
            if let Ok(text) = std::fs::read_to_string(base.join(&group).join(file))
                && let Ok(limit) = text.trim().parse::<u64>()
                // v1 writes "no limit" as the largest multiple of the page size
                && limit < 1 << 60
            {
                smallest = Some(smallest.map_or(limit, |known: u64| known.min(limit)));
            }
            if !group.pop() {
                return smallest;
            }
        }
    }
}

#[cfg(target_vendor = "apple")]
mod platform {
    use super::ProcessMemory;
    use std::ffi::{c_char, c_int, c_void};

    unsafe extern "C" {
        fn proc_pid_rusage(pid: c_int, flavor: c_int, buffer: *mut c_void) -> c_int;
        fn sysctlbyname(
            name: *const c_char,
            old: *mut c_void,
            old_len: *mut usize,
            new: *mut c_void,
            new_len: usize,
        ) -> c_int;
    }

    /// `RUSAGE_INFO_V2` is 16 bytes of uuid and then 64-bit counters, of which the eighth is the physical footprint.
    const RUSAGE_INFO_V2: c_int = 2;
    const FOOTPRINT: usize = 2 + 7;

    pub(super) fn process() -> ProcessMemory {
        // Larger than the structure (18 counters and the uuid), in case it grows.
        let mut info = [0u64; 64];
        let pid = c_int::try_from(std::process::id()).unwrap_or(0);
        // SAFETY: the buffer is writable, aligned for u64 and larger than the structure of this flavor.
        let result = unsafe { proc_pid_rusage(pid, RUSAGE_INFO_V2, info.as_mut_ptr().cast()) };
        let rss = (result == 0).then_some(info[FOOTPRINT]);
        ProcessMemory { rss, ..ProcessMemory::default() }
    }

    pub(super) fn total_bytes() -> Option<u64> {
        let (mut value, mut len) = (0u64, size_of::<u64>());
        // SAFETY: the name ends in NUL, `value` has `len` writable bytes, nothing is set.
        let result = unsafe {
            sysctlbyname(
                c"hw.memsize".as_ptr(),
                (&raw mut value).cast(),
                &raw mut len,
                std::ptr::null_mut(),
                0,
            )
        };
        (result == 0 && len == size_of::<u64>()).then_some(value)
    }

    pub(super) fn cgroup_limit() -> Option<u64> {
        None
    }
}

#[cfg(windows)]
mod platform {
    use super::ProcessMemory;
    use std::ffi::c_void;

    /// `PROCESS_MEMORY_COUNTERS`.
    #[repr(C)]
    #[derive(Default)]
    struct Counters {
        size: u32,
        page_faults: u32,
        peak_working_set: usize,
        working_set: usize,
        quotas: [usize; 4],
        pagefile: usize,
        peak_pagefile: usize,
    }

    /// `MEMORYSTATUSEX`.
    #[repr(C)]
    #[derive(Default)]
    struct Status {
        size: u32,
        load: u32,
        total: u64,
        others: [u64; 6],
    }

    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn GetCurrentProcess() -> *mut c_void;
        fn K32GetProcessMemoryInfo(process: *mut c_void, counters: *mut Counters, size: u32) -> i32;
        fn GlobalMemoryStatusEx(status: *mut Status) -> i32;
    }

    pub(super) fn process() -> ProcessMemory {
        let size = u32::try_from(size_of::<Counters>()).unwrap_or(0);
        let mut counters = Counters { size, ..Counters::default() };
        // SAFETY: the pseudo handle needs no closing; the structure is writable and says its own size.
        let ok = unsafe { K32GetProcessMemoryInfo(GetCurrentProcess(), &raw mut counters, size) };
        if ok == 0 {
            return ProcessMemory::default();
        }
        ProcessMemory {
            rss: Some(counters.working_set as u64),
            peak_rss: Some(counters.peak_working_set as u64),
            ..ProcessMemory::default()
        }
    }

    pub(super) fn total_bytes() -> Option<u64> {
        let mut status =
            Status { size: u32::try_from(size_of::<Status>()).unwrap_or(0), ..Status::default() };
        // SAFETY: the structure is writable and says its own size.
        let ok = unsafe { GlobalMemoryStatusEx(&raw mut status) };
        (ok != 0).then_some(status.total)
    }

    pub(super) fn cgroup_limit() -> Option<u64> {
        None
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple", windows)))]
mod platform {
    use super::ProcessMemory;

    pub(super) fn process() -> ProcessMemory {
        ProcessMemory::default()
    }

    pub(super) fn total_bytes() -> Option<u64> {
        None
    }

    pub(super) fn cgroup_limit() -> Option<u64> {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory_and_the_machine_has_more() {
        let memory = process();
        let rss = memory.rss.unwrap();
        assert!(rss > 0 && memory.rss_anon.unwrap() <= rss && memory.peak_rss.unwrap() >= rss);
        assert!(limit_bytes().unwrap() > rss);
    }

    #[test]
    fn group_limits_are_the_smallest_on_the_way_up() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::write(inner.join("memory.max"), "max\n").unwrap();
        std::fs::write(root.path().join("a/memory.max"), "2147483648\n").unwrap();
        assert_eq!(platform::group_limit("0::/a/b", root.path()), Some(2_147_483_648));
        assert_eq!(platform::group_limit("0::/", root.path()), None);
        std::fs::create_dir_all(root.path().join("memory")).unwrap();
        let unlimited = root.path().join("memory/memory.limit_in_bytes");
        std::fs::write(&unlimited, "9223372036854771712\n").unwrap();
        assert_eq!(platform::group_limit("4:cpu,memory:/x", root.path()), None);
        std::fs::write(&unlimited, "1000000\n").unwrap();
        assert_eq!(platform::group_limit("4:cpu,memory:/x", root.path()), Some(1_000_000));
        assert_eq!(platform::group_limit("nonsense", root.path()), None);
    }
}
