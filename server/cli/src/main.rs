//! The rdq binary.
fn main() {}
