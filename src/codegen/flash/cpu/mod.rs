//! Attention on a CPU: rows are in lanes, so that nothing is folded across lanes.

pub(super) mod forward;
pub(super) mod gradient;
mod tiles;

use super::pieces;
use crate::Target;
use doorbell_uop::Scalar;

/// A tile of sums in registers.
#[derive(Clone, Copy, Debug)]
struct Shape {
    lanes: u16,
    /// Vectors of rows.
    vectors: usize,
    /// Other rows, or columns of the result.
    high: usize,
}

impl Shape {
    fn of(rows: i64, target: &Target) -> Option<Shape> {
        let lanes = target.lanes(Scalar::F32);
        (lanes >= 8).then_some(())?;
        // Registers of a tile; the others hold its vectors of rows and what passes.
        let (tile, most) = if target.vector_regs >= 32 { (24, 4) } else { (12, 2) };
        let rows = pieces(rows, i64::from(lanes));
        // A vector alone needs a load for each product.
        let cost = |n: i64| pieces(rows, n) * n * if n == 1 { 5 } else { 4 };
        let vectors = (1..=most).rev().min_by_key(|n| cost(*n))? as usize;
        Some(Shape { lanes, vectors, high: tile / vectors })
    }
    /// Rows of a tile.
    fn width(&self) -> i64 {
        self.vectors as i64 * i64::from(self.lanes)
    }
}

/// Multiplications and additions of a kernel below which one core does them faster than several.
const WORTH_THREADS: i64 = 1 << 22;

/// Chunks of so many tiles, which cores take in turn.
fn chunks(tiles: i64, work: i64, target: &Target) -> i64 {
    match i64::from(target.threads) {
        1 => 1,
        _ if work < WORTH_THREADS => 1,
        // Chunks of unequal work, as those of a causal mask, are many.
        n => (1..=tiles.min(32 * n)).rev().find(|c| tiles % c == 0).unwrap_or(1),
    }
}
