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
//! On a CPU ([`cpu`]) a tile is some vectors of queries, one query a lane. Keys and values are read one element at a
//! time, for all lanes; a tile of keys by queries is in registers. Nothing is folded across lanes, and only the queries
//! and the result are turned. On a GPU a workgroup takes queries ([`gpu`]), whose products come from a matrix unit
//! ([`gpu::waves`]) or from its threads ([`gpu::threads`]).

mod cpu;
mod gpu;
mod gradient;
mod list;
mod parts;
mod value;

use super::{Target, decomp};
use doorbell_uop::{Op, Scalar, Srcs, UOp};

/// The linear program of an attention, and the chunks of its work; `None`: not of this form, or not for this target.
pub(super) fn program(ast: &UOp, target: &Target) -> Option<Vec<UOp>> {
    if let Some(parts) = parts::Parts::of(ast) {
        if target.has_grid() {
            return gpu::program(&parts, target);
        }
        return cpu::forward::program(&parts, target);
    }
    let (parts, of_others) = gradient::Gradient::of(ast)?;
    if target.has_grid() {
        return gpu::gradient_program(&parts, target);
    }
    cpu::gradient::program(&parts, of_others.as_ref(), target)
}

/// Attentions of which `program` makes one kernel on a GPU, by their type: rows of queries and values have a multiple
/// of this many elements, and at most so many.
pub fn rows(target: &Target) -> Vec<(Scalar, i64, [i64; 2])> {
    gpu::rows(target)
}

/// The logarithm to base 2 of a sum of weights, each of which was divided by `2^most` before.
fn log_sum(total: &UOp, most: &UOp) -> Option<UOp> {
    let log = UOp::alu(Op::Log2, Srcs::from_iter([total.clone()]));
    Some(decomp::log2(&log)?.binary(Op::Add, most))
}

/// Pieces of this length in all, the last one may be shorter.
fn pieces(all: i64, len: i64) -> i64 {
    (all + len - 1) / len
}
