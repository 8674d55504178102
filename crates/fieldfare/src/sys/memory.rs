//! What this process uses of the machine's memory, and what it may use.
//!
//! The terms differ by platform, and a number that the platform does not give is `None`, never a guess. Mapped model
//! weights are clean file pages: the system can drop them at any time, so they are told apart from anonymous memory
//! wherever that is possible (Linux).
#![allow(unsafe_code)] // macOS and Windows answer only through calls of their C libraries

#[cfg(any(target_os = "linux", target_os = "android"))]
#[path = "memory/linux.rs"]
mod platform;

#[cfg(target_vendor = "apple")]
#[path = "memory/apple.rs"]
mod platform;

#[cfg(windows)]
#[path = "memory/windows.rs"]
mod platform;

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple", windows)))]
#[path = "memory/other.rs"]
mod platform;

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

/// What there is and what is free, each bound by itself, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// Physical memory of the machine.
    pub total: Option<u64>,
    /// What programs may still take of it without others being swapped out: `MemAvailable`; free, file-backed and
    /// purgeable pages on macOS; available physical memory on Windows.
    pub available: Option<u64>,
    /// The smallest limit of a control group above this process (Linux), or of its job (Windows).
    pub group_limit: Option<u64>,
    /// The least that such a group leaves free; file pages that it could drop count as free.
    pub group_free: Option<u64>,
    /// What the process's own limits (`RLIMIT_AS`, `RLIMIT_DATA`, `RLIMIT_RSS`) leave.
    pub rlimit_free: Option<u64>,
}

impl Room {
    /// What this process may take besides what it holds: the least of all bounds.
    pub fn free(&self) -> Option<u64> {
        [self.available, self.group_free, self.rlimit_free].into_iter().flatten().min()
    }

    /// What this process may hold at most, everything else gone: the least of the machine and the groups' limits.
    pub fn limit(&self) -> Option<u64> {
        [self.total, self.group_limit].into_iter().flatten().min()
    }
}

/// Reads the figures of this process.
pub fn process() -> ProcessMemory {
    platform::process()
}

/// Reads what there is and what is free.
pub fn room() -> Room {
    platform::room()
}

/// Physical memory of the machine in bytes.
pub fn total_bytes() -> Option<u64> {
    room().total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_bound_counts() {
        let room = Room {
            total: Some(100),
            available: Some(40),
            group_limit: Some(50),
            group_free: Some(30),
            rlimit_free: None,
        };
        assert_eq!((room.free(), room.limit()), (Some(30), Some(50)));
        assert_eq!((Room::default().free(), Room::default().limit()), (None, None));
        assert_eq!(Room { rlimit_free: Some(3), ..room }.free(), Some(3));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_uses_memory_and_the_machine_has_more() {
        let memory = process();
        let rss = memory.rss.unwrap();
        assert!(rss > 0 && memory.rss_anon.unwrap() <= rss && memory.peak_rss.unwrap() >= rss);
        let room = room();
        assert!(room.limit().unwrap() > rss);
        assert!(room.free().unwrap() > 0 && room.available.unwrap() < room.total.unwrap());
    }
}
