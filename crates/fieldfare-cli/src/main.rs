//! The `fieldfare` command.
fn main() {}
