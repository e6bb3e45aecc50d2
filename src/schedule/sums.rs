//! A sum of sums, each taken where a condition is true → one sum over all their ranges.
//!
//! The gradient of a window is a sum over its positions of the value computed for each position, shifted and padded: in
//! the gradient of a convolution's input that is again a sum, over the output channels. As one sum over places and
//! channels of a product where the shifted position exists, it needs no memory for the products and has the form of the
//! convolution itself. Each element of the inner sums is wanted at most once ([`once_each`]): nothing is computed
//! again.

use super::index::{Lin, both};
use crate::uop::{Arg, ConstVal, Op, Srcs, UMap, UOp};

/// Body and ranges of a sum of sums (each where conditions hold, zero elsewhere) as one sum under the conditions and
/// `gate`, in which the whole value is wanted. `None`: it is not one.
pub(crate) fn merged(body: &UOp, ranges: &[UOp], gate: Option<&UOp>) -> Option<(UOp, Vec<UOp>)> {
    let (mut conditions, mut inner) = (Vec::new(), body);
    while let (Op::Where, [c, x, zero]) = (inner.op(), inner.src())
        && zero.as_const().is_some_and(ConstVal::is_zero)
    {
        conditions.push(c.clone());
        inner = x;
    }
    if conditions.is_empty() || inner.op() != Op::Reduce || inner.reduce_op() != Some(Op::Add) {
        return None;
    }
    let (x, sums) = (&inner.src()[0], &inner.src()[1..]);
    let ranges = ranges.iter().chain(sums).cloned().collect();
    let wanted = conditions.into_iter().fold(gate.cloned(), |all, c| both(all, Some(c)));
    let wanted = conjuncts(wanted.as_ref());
    // A product that stands under the condition already, or the load of it.
    if let (Op::Where, [c, product, _]) = (x.op(), x.src()) {
        let known = conjuncts(Some(c));
        let more = wanted.into_iter().filter(|w| !known.contains(w)).fold(c.clone(), |all, w| all.and(&w));
        return Some((more.select(product, &product.const_like(0)), ranges));
    }
    if x.op() == Op::Load && carries(x, &wanted) {
        return Some((x.clone(), ranges));
    }
    let all = wanted.iter().cloned().reduce(|a, b| a.and(&b))?;
    let x = without_gates(x, &wanted);
    Some((all.select(&x, &x.const_like(0)), ranges))
}

/// The conditions that all have to hold for `gate` to hold.
fn conjuncts(gate: Option<&UOp>) -> Vec<UOp> {
    let (mut todo, mut found): (Vec<UOp>, Vec<UOp>) = (gate.cloned().into_iter().collect(), Vec::new());
    while let Some(c) = todo.pop() {
        match (c.op(), c.src()) {
            (Op::And, [a, b]) => todo.extend([b.clone(), a.clone()]),
            _ if found.contains(&c) => {}
            _ => found.push(c),
        }
    }
    found
}

/// A load that gives zero where one of the conditions does not hold.
fn carries(load: &UOp, wanted: &[UOp]) -> bool {
    let has = conjuncts(load.src()[0].src().get(2));
    wanted.iter().all(|w| has.contains(w))
}

/// A value that matters only under the conditions: its loads at positions that exist in any case need no gate.
fn without_gates(x: &UOp, wanted: &[UOp]) -> UOp {
    let mut new: UMap<UOp> = UMap::default();
    for u in x.toposort() {
        let src: Srcs = u.src().iter().map(|s| new.get(s).unwrap_or(s).clone()).collect();
        let made = match (u.op(), u.src()) {
            (Op::Load, [at, ..]) if at.op() == Op::Index && always_there(at) => {
                let gate = conjuncts(at.src().get(2));
                if !gate.is_empty() && gate.iter().all(|g| wanted.contains(g)) {
                    at.src()[0].index(&at.src()[1]).load()
                } else {
                    u.with_src(src)
                }
            }
            _ if src[..] == *u.src() => u.clone(),
            _ => u.with_src(src),
        };
        new.insert(u, made);
    }
    new.remove(x).unwrap_or_else(|| x.clone())
}

/// Whether an address lies in its buffer for all values of its ranges.
fn always_there(at: &UOp) -> bool {
    let Arg::Param(_, len) = at.src()[0].arg() else { return false };
    let i = &at.src()[1];
    i.vmin() >= 0 && i.vmax() < *len as i128
}

/// Whether different values of `ranges` make different indices, by solving them for one range after the other.
pub(crate) fn once_each(idx: &[UOp], ranges: &[UOp]) -> bool {
    let Some(sums) = idx.iter().map(Lin::of).collect::<Option<Vec<Lin>>>() else { return false };
    let mut open: Vec<UOp> = ranges.to_vec();
    loop {
        let solved = sums.iter().find_map(|s| s.only_of(&open));
        let Some(r) = solved else { return open.is_empty() };
        open.retain(|x| *x != r);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uop::{AxisKind, DType};

    fn r(n: i64, id: u32) -> UOp {
        UOp::range(n, id, AxisKind::Reduce)
    }

    #[test]
    fn shifted_positions_are_different_ones_and_their_sum_alone_is_not() {
        let (h, tap) = (r(8, 0), r(3, 1));
        let shifted = &h - &tap;
        assert!(once_each(&[tap.clone(), shifted.clone()], &[h.clone(), tap.clone()]));
        assert!(!once_each(std::slice::from_ref(&shifted), &[h.clone(), tap.clone()]));
        assert!(!once_each(&[tap.clone(), h.floordiv(&UOp::int(2))], &[h, tap]));
    }

    #[test]
    fn a_gated_sum_of_products_in_a_sum_is_one_sum_with_one_gate() {
        let (i, tap, k) = (UOp::range(8, 0, AxisKind::Loop), r(3, 1), r(4, 2));
        let at = &i - &tap;
        let inside = UOp::int(-1).lt(&at);
        let zero = UOp::constant(DType::F32, 0i64);
        let (x, w) = (UOp::param(0, DType::F32, 32), UOp::param(1, DType::F32, 12));
        let here = x.index_gated(&(&(&at * 4) + &k), &inside).load_or(&zero);
        let weight = &(&k * 3) + &tap;
        let there = w.index_gated(&weight, &inside).load_or(&zero);
        let inner = (&here * &there).reduce(Op::Add, std::slice::from_ref(&k));
        let (body, ranges) = merged(&inside.select(&inner, &zero), std::slice::from_ref(&tap), None).unwrap();
        assert_eq!(ranges, [tap, k]);
        let product = &here * &w.index(&weight).load();
        assert_eq!(body, inside.select(&product, &zero));
        assert!(merged(&inner, &ranges, None).is_none(), "a sum of sums without a condition stays");
    }
}
