//! What is behind the desktop window: the decode service, the library of conversations, downloads, measurements.
//!
//! [`message`] is the border to the window. Nothing here draws, and nothing here runs on the window's thread.
//!
//! ```text
//! message    what the window asks and hears                   worker     the thread that carries it out
//! service    the second process: started, watched, explained  process    any second process and its lines
//! child      what runs there: serving, installing, measuring  wire       what both processes say to each other
//! client     chat, counts and figures over loopback           library    conversations in SQLite
//! jobs       install, verify, unpack, as seen from here        bench      tokens a second by budget
//! plan       a start as it would be                           newest     a thread for which only the newest counts
//! models     directories on this machine                      documents  texts that are dropped in
//! export     a conversation as a file                         instance   one program at a time
//! settings   the window's settings as a file                  setup      the engine's options from the window's
//! paths      where things lie                                 trouble    errors in the window's words
//! ```
//!
//! The window's process opens no model: whatever needs one, or much memory, runs in a child process that ends when its
//! standard input does.

mod bench;
mod child;
mod client;
mod documents;
mod export;
mod instance;
mod jobs;
mod library;
pub mod message;
mod models;
mod newest;
mod paths;
mod plan;
mod process;
mod service;
mod settings;
mod setup;
mod trouble;
mod wire;
mod worker;

pub use child::serve_decode;
pub use paths::Paths;
pub use worker::{Start, Worker};
