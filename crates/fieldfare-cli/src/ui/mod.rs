//! What people see: text made safe for terminals, progress, tables and statistics. Standard output carries the answer
//! and nothing else; everything here that is not the answer goes to standard error.

pub mod output;
pub mod progress;
pub mod report;
pub mod style;
pub mod terminal;
