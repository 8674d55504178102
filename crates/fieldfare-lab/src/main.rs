//! The developers' tool.
fn main() {}
