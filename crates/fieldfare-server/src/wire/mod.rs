//! The shapes on the wire, as pure functions: JSON in, checked requests out; answers in, JSON out.
//!
//! Nothing here knows a socket or an engine, so every refusal of the contract is a line in a table of tests. General
//! rules: unknown fields are ignored, `null` is absent, whole floats count as integers, numbers as text do not.

pub mod chat;
pub mod completions;
pub mod error;
pub mod fields;
pub(crate) mod id;
pub mod messages;
pub(crate) mod reply;
pub mod sampling;
pub(crate) mod scores;
pub mod tools;

#[cfg(test)]
mod tests;
