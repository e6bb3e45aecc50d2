//! The table: one entry a kernel, by file.

mod control;
mod float;
mod half;
mod integer;
mod memory;
mod reduce;
mod sort;

use super::{Case, Data, Random, Tolerance};

/// Every kernel once.
pub fn cases() -> Vec<Case> {
    [sort::cases(), reduce::cases(), memory::cases(), control::cases(), integer::cases(), float::cases(), half::cases()]
        .into_iter()
        .flatten()
        .collect()
}

/// A launch in one dimension.
fn line(kernel: &'static str, file: &'static str, grid: u32, block: u32) -> Case {
    Case::new(kernel, file, [grid, 1, 1], [block, 1, 1])
}
