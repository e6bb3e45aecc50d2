//! Simplifies a kernel graph and takes away the loops that are none any more.

use super::scope::first_range;
use crate::uop::{Op, Srcs, UMap, UOp};

/// The kernel in its simplest spelling: ranges of one step are gone from the lists of Stores and Reduces, and Stores whose
/// gate is never true are gone.
pub(super) fn clean(sink: &UOp) -> UOp {
    let sink = sink.simplify();
    let mut done: UMap<UOp> = UMap::default();
    for u in sink.toposort() {
        let first = first_range(u.op()).unwrap_or(usize::MAX);
        let keep = |k: usize, s: &UOp| k < first || s.op() == Op::Range;
        let never = |s: &UOp| {
            let gate = if s.op() == Op::Store { s.src()[0].src().get(2) } else { None };
            gate.and_then(UOp::as_const).is_some_and(|c| c.is_zero())
        };
        let list = u.src().iter().enumerate().filter(|(k, s)| keep(*k, s) && !(u.op() == Op::Sink && never(s)));
        // PANIC: toposort lists sources first.
        let src: Srcs = list.map(|(_, s)| done[s].clone()).collect();
        let new = if u.op() == Op::Reduce && src.len() == 1 { src[0].clone() } else { u.with_src(src) };
        done.insert(u, new);
    }
    done.remove(&sink).unwrap_or(sink)
}
