//! Fieldfare's desktop window.

fn main() {}
