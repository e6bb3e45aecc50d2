//! BOUND: turns conditions on a reduction's loop variable into loop bounds.
//!
//! `Σ_k where(k <= h and h < k + 20, x, 0)` runs k from max(0, h - 19) to h: the zero terms are not computed, and the
//! loop contains no check. This works only for conditions that are constant inside the reduction except for the loop
//! variable; lanes and unrolled copies keep their conditions.

use super::kind_of;
use crate::affine::AffineMemo;
use doorbell_uop::{Arg, AxisKind, ConstVal, Op, RangeArg, Srcs, UMap, UOp};

/// The kernel in which the conditions on `r` in its reductions became bounds. New ranges are numbered from `sub`.
///
/// # Errors
/// No reduction over `r` has such a condition.
pub(super) fn bound(sink: &UOp, r: &UOp, mut sub: u32) -> Result<UOp, &'static str> {
    let sums: Vec<UOp> = sink.toposort().into_iter().filter(|u| u.op() == Op::Reduce).collect();
    let mut map: UMap<UOp> = UMap::default();
    for sum in sums.iter().filter(|s| s.reduce_op() == Some(Op::Add) && s.src()[1..].contains(r)) {
        sub += 1;
        if let Some(new) = bounded(sum, r, sub) {
            map.insert(sum.clone(), new);
        }
    }
    if map.is_empty() {
        Err("no condition on it that a loop around the sum decides")
    } else {
        Ok(sink.substitute(&map))
    }
}

fn bounded(sum: &UOp, r: &UOp, sub: u32) -> Option<UOp> {
    let (Op::Where, [condition, x, zero]) = (sum.src()[0].op(), sum.src()[0].src()) else { return None };
    let n = r.src()[0].as_int().filter(|_| zero.as_const().is_some_and(ConstVal::is_zero))?;
    let (mut first, mut end) = (UOp::int(0), UOp::int(n));
    let (mut known, mut open) = (vec![], vec![]);
    for c in conjuncts(condition) {
        match limit(&c, r, &sum.src()[1..]) {
            Some(Limit::From(at)) => first = first.max(&at),
            Some(Limit::Below(at)) => end = least(&end, &at),
            None => {
                open.push(c);
                continue;
            }
        }
        known.push(c);
    }
    if known.is_empty() {
        return None;
    }
    // Clamped to 0..=n.
    let count = least(&(&end - &first).max(&UOp::int(0)), &UOp::int(n));
    let id = r.range_arg().map_or(0, |a| a.id);
    let arg = Arg::Range(RangeArg { id, sub, kind: AxisKind::Reduce });
    let fresh = UOp::new(Op::Range, r.dtype(), [count], arg);
    let x = without(x, &known);
    let body = match open.into_iter().reduce(|a, b| a.and(&b)) {
        Some(c) => c.select(&x, zero),
        None => x,
    };
    let at: UMap<UOp> = [(r.clone(), &first + &fresh)].into_iter().collect();
    let ranges = sum.src()[1..].iter().map(|s| if s == r { fresh.clone() } else { s.clone() });
    let src: Srcs = std::iter::once(body.substitute(&at)).chain(ranges).collect();
    Some(sum.with_src(src))
}

/// The minimum of two, written as -max(-a, -b), whose bounds are exact.
fn least(a: &UOp, b: &UOp) -> UOp {
    -&(-a).max(&-b)
}

enum Limit {
    From(UOp),
    Below(UOp),
}

/// The bound that a condition gives for `r`, if the condition is only that and does not depend on the other ranges in
/// `closed`.
fn limit(condition: &UOp, r: &UOp, closed: &[UOp]) -> Option<Limit> {
    let not = condition.op() == Op::CmpNe && condition.src()[1].as_const() == Some(ConstVal::Bool(true));
    let less = if not { &condition.src()[0] } else { condition };
    let (Op::CmpLt, [a, b]) = (less.op(), less.src()) else { return None };
    if !condition.contains(r) || a.dtype() != doorbell_uop::DType::INDEX {
        return None;
    }
    // The condition holds where this is above zero: b - a, or a + 1 - b.
    let above = if not { &(a + 1) - b } else { b - a };
    let sum = AffineMemo::default().of(&above).clone();
    let step = sum.coef(r);
    let mut rest = sum.clone();
    rest.terms.retain(|(t, _)| t != r);
    let rest = rest.build();
    let outside = |x: &UOp| matches!(kind_of(x), AxisKind::Loop | AxisKind::Thread) && !closed.contains(x);
    if !rest.open_ranges().iter().all(outside) {
        return None;
    }
    match step {
        1 => Some(Limit::From(&UOp::int(1) - &rest)),
        -1 => Some(Limit::Below(rest)),
        _ => None,
    }
}

fn conjuncts(gate: &UOp) -> Vec<UOp> {
    let (mut todo, mut found): (Vec<UOp>, Vec<UOp>) = (vec![gate.clone()], vec![]);
    while let Some(c) = todo.pop() {
        match (c.op(), c.src()) {
            (Op::And, [a, b]) => todo.extend([b.clone(), a.clone()]),
            _ if found.contains(&c) => {}
            _ => found.push(c),
        }
    }
    found
}

/// `x` where the known conditions hold: its loads drop them from their gates.
fn without(x: &UOp, known: &[UOp]) -> UOp {
    x.rebuild(|m, u| match u.op() {
        Op::Load if u.src().len() > 1 && u.src()[0].op() == Op::Index && u.src()[0].src().len() > 2 => {
            let (at, asked) = (m.src(0), conjuncts(&u.src()[0].src()[2]));
            let left = asked.iter().filter(|c| !known.contains(c)).cloned().reduce(|a, b| a.and(&b));
            let (memory, i) = (&at.src()[0], &at.src()[1]);
            match left {
                Some(g) => memory.index_gated(i, &g).load_or(m.src(1)),
                None => memory.index(i).load(),
            }
        }
        _ => m.same(),
    })
}
