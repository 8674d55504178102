//! Fieldfare: runs Gemma 4 26B-A4B on ordinary computers in about 2 GB of memory.
//!
//! The rooms, in the order in which they may use each other:
//! `error`, `sys`, `format` < `store`, `tokenizer`, `model` < `chat`, `sample` < `grammar`, `engine` (neither of which sees the
//! other);
//! `measure` sees what `model` sees, and `model`;
//! `install` sees `format` and `sys` only.

pub mod chat;
pub mod engine;
pub mod error;
pub mod format;
#[cfg(feature = "grammar")]
pub mod grammar;
pub mod install;
pub mod measure;
pub mod model;
pub mod sample;
pub mod store;
pub mod sys;
pub mod tokenizer;

pub use error::{Error, Result};
