//! Windows: process counters, the machine's status, the limits of the job this process is in.

use super::{ProcessMemory, Room};
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
    available: u64,
    others: [u64; 5],
}

/// `JOBOBJECT_EXTENDED_LIMIT_INFORMATION`.
#[repr(C)]
#[derive(Default)]
struct JobLimits {
    times: [i64; 2],
    flags: u32,
    working_set: [usize; 2],
    active_processes: u32,
    affinity: usize,
    classes: [u32; 2],
    io_counters: [u64; 6],
    process_memory: usize,
    job_memory: usize,
    peak_process_memory: usize,
    peak_job_memory: usize,
}

const JOB_OBJECT_EXTENDED_LIMIT_INFORMATION: i32 = 9;
const LIMIT_PROCESS_MEMORY: u32 = 0x100;
const LIMIT_JOB_MEMORY: u32 = 0x200;

#[link(name = "kernel32")]
unsafe extern "system" {
    fn GetCurrentProcess() -> *mut c_void;
    fn K32GetProcessMemoryInfo(process: *mut c_void, counters: *mut Counters, size: u32) -> i32;
    fn GlobalMemoryStatusEx(status: *mut Status) -> i32;
    fn QueryInformationJobObject(
        job: *mut c_void,
        class: i32,
        info: *mut JobLimits,
        size: u32,
        returned: *mut u32,
    ) -> i32;
}

fn counters() -> Option<Counters> {
    let size = u32::try_from(size_of::<Counters>()).ok()?;
    let mut counters = Counters { size, ..Counters::default() };
    // SAFETY: the pseudo handle needs no closing; the structure is writable and says its own size.
    let ok = unsafe { K32GetProcessMemoryInfo(GetCurrentProcess(), &raw mut counters, size) };
    (ok != 0).then_some(counters)
}

pub(super) fn process() -> ProcessMemory {
    let Some(counters) = counters() else { return ProcessMemory::default() };
    ProcessMemory {
        rss: Some(counters.working_set as u64),
        peak_rss: Some(counters.peak_working_set as u64),
        ..ProcessMemory::default()
    }
}

pub(super) fn room() -> Room {
    let mut status = Status { size: u32::try_from(size_of::<Status>()).unwrap_or(0), ..Status::default() };
    // SAFETY: the structure is writable and says its own size.
    let ok = unsafe { GlobalMemoryStatusEx(&raw mut status) };
    let machine = (ok != 0).then_some(status);
    let limit = job_limit();
    // A job counts committed memory of all its processes; only this one's is known here.
    let used = counters().map_or(0, |counters| counters.pagefile as u64);
    Room {
        total: machine.as_ref().map(|status| status.total),
        available: machine.as_ref().map(|status| status.available),
        group_limit: limit,
        group_free: limit.map(|limit| limit.saturating_sub(used)),
        rlimit_free: None,
    }
}

/// The limit of the job that this process is in; `None` without one.
fn job_limit() -> Option<u64> {
    let mut limits = JobLimits::default();
    let size = u32::try_from(size_of::<JobLimits>()).ok()?;
    // SAFETY: no handle means the job of this process; the structure is writable and its size is given.
    let ok = unsafe {
        QueryInformationJobObject(
            std::ptr::null_mut(),
            JOB_OBJECT_EXTENDED_LIMIT_INFORMATION,
            &raw mut limits,
            size,
            std::ptr::null_mut(),
        )
    };
    let set = |flag: u32, value: usize| (ok != 0 && limits.flags & flag != 0).then_some(value as u64);
    let bounds = [set(LIMIT_PROCESS_MEMORY, limits.process_memory), set(LIMIT_JOB_MEMORY, limits.job_memory)];
    bounds.into_iter().flatten().min()
}
