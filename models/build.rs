//! Takes the pool's own source and puts loom's types in place of the standard library's, so that what is modelled is the code
//! that runs. A line that is not there any more stops the build.

use std::path::PathBuf;

/// What stands in the source, and what stands in the model.
const CHANGES: [(&str, &str); 19] = [
    (
        "#![allow(unsafe_code)] // hands one borrowed closure, and disjoint parts of one slice, to other threads\n",
        "",
    ),
    ("use std::cell::{Cell, UnsafeCell};", "use loom::cell::UnsafeCell;\nuse std::cell::Cell;"),
    (
        "use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};",
        "use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};",
    ),
    (
        "use std::sync::{Arc, Mutex, MutexGuard, PoisonError};",
        "use loom::sync::{Arc, Mutex, MutexGuard};\nuse std::sync::PoisonError;",
    ),
    ("use std::thread::{self, JoinHandle, Thread};", "use loom::thread::{self, JoinHandle, Thread};"),
    ("thread_local! {\n", "loom::thread_local! {\n"),
    ("= const { Cell::new(false) };", "= Cell::new(false);"),
    ("IN_REGION.get()", "IN_REGION.with(Cell::get)"),
    ("    IN_REGION.set(true);\n", "    IN_REGION.with(|cell| cell.set(true));\n"),
    ("    IN_REGION.set(false);\n", "    IN_REGION.with(|cell| cell.set(false));\n"),
    // Time is no part of the model: nobody spins, and nobody works alone because others took long.
    ("thread::available_parallelism().map_or(1, usize::from)", "0"),
    ("        alone.waited(start, waiting, Instant::now());\n", "        let _ = waiting;\n"),
    (
        "fn in_region(f: impl FnOnce()) -> thread::Result<()> {",
        "fn in_region(f: impl FnOnce()) -> std::thread::Result<()> {",
    ),
    // An unpark that comes late finds the caller in a join, which loom takes for a fault of its own. It waits for the end of every
    // thread by itself, and says so if one never comes.
    ("            let _ = worker.join();\n", "            drop(worker);\n"),
    // Accesses to the job are seen by the model.
    (
        "unsafe { *shared.job.get() = job_of(&work) };",
        "shared.job.with_mut(|job| unsafe { *job = job_of(&work) });",
    ),
    ("let job = unsafe { *self.job.get() };", "let job = self.job.with(|job| unsafe { *job });"),
    // Loom takes sequentially consistent accesses for weaker ones. Where the code relies on a store being before a load
    // of something else, a fence stands for that.
    (
        "self.shared.gate.0.swap(word, Ordering::SeqCst);\n",
        "self.shared.gate.0.swap(word, Ordering::SeqCst);\n        fence(Ordering::SeqCst);\n",
    ),
    (
        "self.parked[index].0.swap(true, Ordering::SeqCst);\n",
        "self.parked[index].0.swap(true, Ordering::SeqCst);\n                fence(Ordering::SeqCst);\n",
    ),
    (
        "shared.caller_parked.swap(true, Ordering::SeqCst);\n",
        "shared.caller_parked.swap(true, Ordering::SeqCst);\n        fence(Ordering::SeqCst);\n",
    ),
];

fn main() {
    let path = "../crates/fieldfare-kernels/src/pool.rs";
    println!("cargo::rerun-if-changed={path}");
    let mut source = std::fs::read_to_string(path).expect("the pool's source");
    source.truncate(source.find("#[cfg(test)]\nmod tests;").expect("tests at the end"));
    for (from, to) in CHANGES {
        assert_eq!(source.matches(from).count(), 1, "not once in pool.rs: {from}");
        source = source.replace(from, to);
    }
    // The last one out: it counts itself out, then looks whether the caller is parked.
    let from = "let word = self.gate.0.fetch_sub(1, Ordering::SeqCst);\n";
    assert_eq!(source.matches(from).count(), 1, "not once in pool.rs: {from}");
    source = source.replace(from, &format!("{from}        fence(Ordering::SeqCst);\n"));
    // Inner documentation cannot be included.
    let source: String =
        source.lines().filter(|line| !line.starts_with("//!")).map(|line| format!("{line}\n")).collect();
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo")).join("pool.rs");
    std::fs::write(out, source).expect("written");
}
