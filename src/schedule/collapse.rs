//! A sum over a range of which only one iteration contributes → that iteration.
//!
//! Gathers, embeddings, one-hot products and label losses are written as sums of `where(position == index, x, 0)`: the
//! position that the index names is the only one that adds anything, so the sum is a load at the index, gated by the
//! bounds. Where the selection is a product with a 0/1 mask, the skipped elements are assumed to be finite.

use super::index::{Lin, both, within};
use super::lower::folded;
use crate::uop::{ConstVal, DType, Dim, Op, Srcs, UMap, UOp, USet};

/// A sum's body and ranges without the ranges that a comparison pins to one value.
pub(crate) fn collapse(op: Op, body: UOp, ranges: Vec<UOp>) -> (UOp, Vec<UOp>) {
    if op != Op::Add {
        return (body, ranges);
    }
    let mut body = body;
    let mut left = Vec::new();
    for r in ranges {
        match pinned(&body, &r) {
            Some((guard, e)) => body = at(&body, &r, &guard, &e),
            None => left.push(r),
        }
    }
    (body, left)
}

/// A comparison without which the body is zero and that is true for at most one value of `r`: it and that value.
fn pinned(body: &UOp, r: &UOp) -> Option<(UOp, UOp)> {
    let mut values = vec![body.clone()];
    let mut conditions = Vec::new();
    while let Some(u) = values.pop() {
        match (u.op(), u.src()) {
            (Op::Where, [c, x, zero]) if is_zero(zero) => {
                conditions.push((c.clone(), true));
                values.push(x.clone());
            }
            (Op::Where, [c, zero, _]) if is_zero(zero) => conditions.push((c.clone(), false)),
            (Op::Mul, [a, b]) if !u.dtype().is_bool() => values.extend([a.clone(), b.clone()]),
            (Op::Cast, [b]) if b.dtype().is_bool() => conditions.push((b.clone(), true)),
            (Op::Cast, [x]) => values.push(x.clone()),
            _ => {}
        }
    }
    while let Some((c, holds)) = conditions.pop() {
        match (c.op(), c.src()) {
            (Op::And, [a, b]) if holds => conditions.extend([(a.clone(), true), (b.clone(), true)]),
            (Op::CmpNe, [a, b]) if b.as_const() == Some(ConstVal::Bool(true)) => match (a.op(), a.src()) {
                (Op::CmpNe | Op::CmpEq, [x, y]) if (a.op() == Op::CmpNe) == holds => {
                    if let Some(e) = solved(x, y, r) {
                        return Some((if holds { c } else { a.clone() }, e));
                    }
                }
                _ => {}
            },
            (Op::CmpEq, [x, y]) if holds => {
                if let Some(e) = solved(x, y, r) {
                    return Some((c, e));
                }
            }
            (Op::CmpNe, [x, y]) if !holds => {
                if let Some(e) = solved(x, y, r) {
                    return Some((c, e));
                }
            }
            _ => {}
        }
    }
    None
}

fn is_zero(u: &UOp) -> bool {
    u.as_const().is_some_and(ConstVal::is_zero)
}

/// The `r` for which `x == y`, if one side is `r` plus something else and the other does not depend on it.
fn solved(x: &UOp, y: &UOp, r: &UOp) -> Option<UOp> {
    for (with, without) in [(x, y), (y, x)] {
        let without_r = without.dtype().is_int() && !without.contains(r);
        // A conversion that keeps every value of the position may be looked through.
        let mut p = with;
        while p.op() == Op::Cast && p.src()[0].dtype().is_int() {
            let (from, to) = (p.src()[0].bounds(), p.dtype().scalar.int_range());
            if from.min < to.0 || from.max > to.1 {
                break;
            }
            p = &p.src()[0];
        }
        if without_r
            && p.dtype() == DType::INDEX
            && let Some(rest) = Lin::of(p).and_then(|l| l.without(r))
            && !rest.contains(r)
        {
            let e = without.cast(DType::INDEX);
            return Some(if rest.as_int() == Some(0) { e } else { &e - &rest });
        }
    }
    None
}

/// `body` with `r` at `e`: zero where `e` is outside the range, and no memory touched there.
fn at(body: &UOp, r: &UOp, guard: &UOp, e: &UOp) -> UOp {
    let valid = within(e, &Dim::from(&r.src()[0]));
    let order = body.toposort();
    let mut depends: USet = [r.clone()].into_iter().collect();
    let mut new: UMap<UOp> = [(r.clone(), e.clone())].into_iter().collect();
    new.insert(guard.clone(), UOp::bool(guard_holds(guard)));
    for u in &order {
        if new.contains_key(u) {
            depends.insert(u.clone());
            continue;
        }
        if !u.src().iter().any(|s| depends.contains(s)) {
            continue;
        }
        depends.insert(u.clone());
        let src: Srcs = u.src().iter().map(|s| new.get(s).unwrap_or(s).clone()).collect();
        let made = match u.op() {
            Op::Index => match both(src.get(2).cloned(), valid.clone()) {
                Some(gate) => src[0].index_gated(&src[1], &gate),
                None => src[0].index(&src[1]),
            },
            Op::Load if src[0].src().len() > 2 => src[0].load_or(src.get(1).unwrap_or(&UOp::constant(u.dtype(), 0i64))),
            Op::Mul if src[0].as_const().is_some_and(ConstVal::is_one) => src[1].clone(),
            Op::Mul if src[1].as_const().is_some_and(ConstVal::is_one) => src[0].clone(),
            op if op.is_elementwise() => folded(u, src),
            _ => u.with_src(src),
        };
        new.insert(u.clone(), made);
    }
    let value = new.get(body).unwrap_or(body).clone();
    match valid {
        // The loads below carry the condition.
        Some(_) if value.op() == Op::Load && value.src().len() > 1 && depends.contains(body) => value,
        Some(v) => v.select(&value, &value.const_like(0)),
        None => value,
    }
}

/// The value of the guard's node when its comparison is true.
fn guard_holds(guard: &UOp) -> bool {
    // `x != y` is found as a guard where it must not hold.
    !(guard.op() == Op::CmpNe && guard.src()[1].as_const() != Some(ConstVal::Bool(true)))
}
