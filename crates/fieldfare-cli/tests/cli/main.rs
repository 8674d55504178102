//! The command as people and scripts meet it: exit codes, what goes to which output, messages.

#![allow(clippy::unwrap_used)] // helpers of tests fail by panicking, as tests do

mod answers;
mod bench;
mod damage;
mod demo;
mod doctor;
mod hub;
mod models;
mod network;
mod owner;
mod places;
mod serve;
mod support;
mod text;
mod usage;
