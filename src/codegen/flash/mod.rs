//! Attention as one kernel: the softmax of a row's scores is computed block by block of the keys, and what was summed
//! before is rescaled whenever a larger score appears ("online", as flash attention does), so scores never are in
//! memory.
//!
//! The kernel graph of an attention ([`KernelInfo::attention`](doorbell_uop::KernelInfo)) says what is computed: the
//! reductions of a softmax between two products, each inside the next. As loops they would compute every score once for
//! each column of the result. No opt can make the running sums of it, since a Reduce knows one operation and no
//! rescaling; so this module writes the linear program itself: [`parts`] takes the graph apart, [`list`] keeps nodes in
//! order, and [`value`] computes scores and masks in lanes. Everything else (masks, strides, types) stays what the
//! graph says. Graphs of another form, and on targets without vectors or with too little workgroup memory, are compiled
//! as any other kernel.
//!
//! On a CPU ([`kernel`]) a tile is some vectors of queries, one query a lane. Keys and values are read one element at a
//! time, for all lanes; a tile of keys by queries is in registers. Nothing is folded across lanes, and only the queries
//! and the result are turned. On a GPU a workgroup takes queries ([`gpu`]), whose products come from a matrix unit
//! ([`waves`]) or from its threads ([`threads`]).

mod gpu;
mod kernel;
mod list;
mod parts;
mod threads;
mod value;
mod waves;

use super::Target;
use doorbell_uop::{Scalar, UOp};

/// The linear program of an attention, and the chunks of its work; `None`: not of this form, or not for this target.
pub(super) fn program(ast: &UOp, target: &Target) -> Option<Vec<UOp>> {
    let parts = parts::Parts::of(ast)?;
    if target.has_grid() {
        return waves::program(&parts, target).or_else(|| threads::program(&parts, target));
    }
    if target.lanes(Scalar::F32) < 8 {
        return None;
    }
    let sizes = Sizes::of(&parts, target)?;
    kernel::Kernel::new(&parts, &sizes).write()
}

/// Attentions of which [`program`] makes one kernel on a GPU, by their type: rows of queries and values have a multiple
/// of this many elements, and at most so many.
pub fn rows(target: &Target) -> Vec<(Scalar, i64, i64)> {
    let on_unit = |t: Scalar| waves::unit(target, t).map(|unit| (t, i64::from(unit.k), waves::COLUMNS));
    let plain = threads::most(target).map(|most| (Scalar::F32, threads::MULTIPLE, most));
    [Scalar::F16, Scalar::BF16].into_iter().filter_map(on_unit).chain(plain).collect()
}

/// Pieces of this length in all, the last one may be shorter.
fn pieces(all: i64, len: i64) -> i64 {
    (all + len - 1) / len
}

/// The sizes of tiles and blocks.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    lanes: u16,
    /// Vectors of queries in a tile.
    vectors: usize,
    /// Keys (or columns of the result) of a tile in registers.
    high: usize,
    /// Keys of a block, between two rescalings.
    block: i64,
    /// Work is cut into this many chunks, which cores take in turn.
    chunks: i64,
    /// Keys and values are copied to scratch memory, as f32 and dense, a block at a time.
    staged: [bool; 2],
}

/// Multiplications and additions of a kernel below which one core does them faster than several.
const WORTH_THREADS: i64 = 1 << 22;

impl Sizes {
    fn of(p: &parts::Parts, target: &Target) -> Option<Sizes> {
        let lanes = target.lanes(Scalar::F32);
        // Registers of a tile; the others hold its vectors of queries and what passes.
        let tile = if target.vector_regs >= 32 { 24 } else { 12 };
        let most = if target.vector_regs >= 32 { 4 } else { 2 };
        let rows = pieces(p.rows, i64::from(lanes));
        // A vector alone needs a load for each product.
        let cost = |n: i64| pieces(rows, n) * n * if n == 1 { 5 } else { 4 };
        let vectors = (1..=most).rev().min_by_key(|n| cost(*n))?;
        let high = tile / vectors;
        let width = vectors * i64::from(lanes);
        let staged = [p.key.is_crowded(p.depth_len), p.value.is_crowded(p.columns)];
        let room = (target.local_bytes / 4) as i64;
        let fixed = width * (p.depth_len + p.columns + 2);
        let extra = [(staged[0], p.depth_len), (staged[1], p.columns)].iter().filter(|s| s.0).map(|s| s.1).sum::<i64>();
        let masks = p.masks.len() as i64 * (width + i64::from(lanes));
        let fits = |block: &i64| fixed + block * (width + extra + masks) <= room;
        let block = [72, 48, 24].map(|b| b / high * high).into_iter().find(fits)?;
        let tiles = pieces(p.rows, width) * p.outer.iter().map(|r| r.1).product::<i64>();
        let work = tiles * width * p.keys * (p.depth_len + p.columns) / if p.causal.is_some() { 2 } else { 1 };
        let threads = i64::from(target.threads);
        let chunks = match threads {
            1 => 1,
            _ if work < WORTH_THREADS => 1,
            // Chunks of unequal work, as those of a causal mask, are many.
            n => (1..=tiles.min(32 * n)).rev().find(|c| tiles % c == 0).unwrap_or(1),
        };
        Some(Sizes { lanes, vectors: vectors as usize, high: high as usize, block, chunks, staged })
    }
    /// Queries of a tile.
    fn width(&self) -> i64 {
        self.vectors as i64 * i64::from(self.lanes)
    }
}
