//! The worker with real second processes and the demonstration model: what the window would ask, and what it hears.
//!
//! On Linux only: processes are found and killed by `/proc` and `kill`.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // helpers of tests fail by panicking, as tests do

mod crash;
mod day;
mod faults;
mod jobs;
mod support;
