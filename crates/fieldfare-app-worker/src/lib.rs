//! What is behind the desktop window: the decode service, the library of conversations, downloads, measurements.
//!
//! [`message`] is the border to the window. Nothing here draws, and nothing here runs on the window's thread.

pub mod message;
