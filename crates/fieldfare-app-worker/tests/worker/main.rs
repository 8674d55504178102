//! The worker with real second processes and the demonstration model: what the window would ask, and what it hears.

#![allow(clippy::unwrap_used)] // helpers of tests fail by panicking, as tests do

mod crash;
mod day;
mod faults;
mod jobs;
mod support;
