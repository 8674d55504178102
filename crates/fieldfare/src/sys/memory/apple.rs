//! macOS: `proc_pid_rusage`, `sysctl`, the Mach host's page counts. There are no memory groups.

use super::{ProcessMemory, Room};
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
    fn mach_host_self() -> u32;
    fn host_page_size(host: u32, size: *mut usize) -> c_int;
    fn host_statistics64(host: u32, flavor: c_int, info: *mut c_void, count: *mut u32) -> c_int;
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

pub(super) fn room() -> Room {
    Room { total: total(), available: available(), ..Room::default() }
}

fn total() -> Option<u64> {
    let (mut value, mut len) = (0u64, size_of::<u64>());
    // SAFETY: the name ends in NUL, `value` has `len` writable bytes, nothing is set.
    let result = unsafe {
        sysctlbyname(c"hw.memsize".as_ptr(), (&raw mut value).cast(), &raw mut len, std::ptr::null_mut(), 0)
    };
    (result == 0 && len == size_of::<u64>()).then_some(value)
}

/// `HOST_VM_INFO64`.
const HOST_VM_INFO64: c_int = 4;

/// `vm_statistics64`.
#[repr(C)]
#[derive(Default)]
struct Pages {
    free: u32,
    active: u32,
    inactive: u32,
    wired: u32,
    counters: [u64; 9],
    purgeable: u32,
    speculative: u32,
    compressions: [u64; 4],
    compressor: u32,
    throttled: u32,
    /// Pages of files.
    external: u32,
    internal: u32,
    compressed: u64,
}

/// Free pages, pages of files and what programs said may go: what can be had without compressing or swapping.
fn available() -> Option<u64> {
    let mut pages = Pages::default();
    let mut count = u32::try_from(size_of::<Pages>() / size_of::<u32>()).unwrap_or(0);
    let mut page_size = 0usize;
    // SAFETY: the call takes nothing and returns a port that may be used for queries.
    let host = unsafe { mach_host_self() };
    // SAFETY: `page_size` is writable.
    let sized = unsafe { host_page_size(host, &raw mut page_size) };
    // SAFETY: the structure is writable and `count` says its size in 32-bit words.
    let counted = unsafe { host_statistics64(host, HOST_VM_INFO64, (&raw mut pages).cast(), &raw mut count) };
    if sized != 0 || counted != 0 {
        return None;
    }
    let count = u64::from(pages.free) + u64::from(pages.external) + u64::from(pages.purgeable);
    count.checked_mul(page_size as u64)
}
