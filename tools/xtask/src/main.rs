//! Project tasks: set-up, tests, benchmarks.
fn main() {}
