//! The forward pass against the float32 reference of `fixtures/tiny-gemma4-a`, and against itself: the same
//! bits for every chunking, slot count, policy, thread count and layout.

#![allow(clippy::unwrap_used)] // helpers of tests, where a panic is the report

mod damage;
mod reference;
mod reroute;
mod same_bits;
mod support;
mod together;
