//! The server on loopback with the demonstration model: whole requests as bytes, and what comes back.

#![allow(clippy::unwrap_used)] // helpers of tests fail by panicking, as tests do

mod answers;
mod heads;
mod limits;
mod pieces;
mod side_by_side;
mod support;
mod talks;
mod tls;
