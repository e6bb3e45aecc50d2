//! Simplifies a kernel graph and removes loops that run only once.

use super::scope::first_range;
use doorbell_uop::{Op, Srcs, UOp};

/// The simplified kernel: one-step ranges are removed from the lists of Stores and Reduces, and Stores whose gate is
/// never true are removed.
pub(super) fn clean(sink: &UOp) -> UOp {
    // Before simplification, which makes them 0: no list may hold a constant.
    let sink = if sink.any(runs_once) { loops_left(sink, |s| !runs_once(s)) } else { sink.clone() };
    loops_left(&sink.simplify(), |s| s.op() == Op::Range)
}

fn runs_once(u: &UOp) -> bool {
    u.op() == Op::Range && u.vmax() == 0
}

/// The kernel with only those loops in the lists of Stores and Reduces for which `keep` holds, and without Stores that
/// are never done.
fn loops_left(sink: &UOp, keep: impl Fn(&UOp) -> bool) -> UOp {
    sink.rebuild(|r, u| {
        let first = match first_range(u.op()) {
            Some(first) => first,
            None if u.op() == Op::Sink => usize::MAX,
            None => return r.same(),
        };
        let keep = |k: usize, s: &UOp| k < first || keep(s);
        let never = |s: &UOp| {
            let gate = if s.op() == Op::Store { s.src()[0].src().get(2) } else { None };
            gate.and_then(UOp::as_const).is_some_and(|c| c.is_zero())
        };
        let list = u.src().iter().enumerate().filter(|(k, s)| keep(*k, s) && !(u.op() == Op::Sink && never(s)));
        let src: Srcs = list.map(|(k, _)| r.src(k).clone()).collect();
        if u.op() == Op::Reduce && src.len() == 1 { src[0].clone() } else { u.with_src(src) }
    })
}
