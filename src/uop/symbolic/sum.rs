//! Sums and products of integers.
//!
//! `WeakInt` sums get the normal form of [`Linear::build`]; before that, quotients and remainders of the same value are
//! recombined, and Wheres with the same condition are merged. Sums of machine integers wrap, which is compatible with
//! addition and multiplication: like terms and constants are collected there too, but nothing is distributed or
//! reordered.

use super::linear::{self, Linear, Product};
use crate::{ConstVal, Op, UOp, USet, floor_div};

pub(crate) fn is_index(u: &UOp) -> bool {
    u.dtype() == crate::DType::INDEX.vec(u.dtype().lanes)
}

/// Add, Sub, Neg, Mul and Shl of index arithmetic in normal form.
pub(crate) fn normal_sum(u: &UOp) -> Option<UOp> {
    if !is_index(u) {
        return None;
    }
    let mut l = Linear::of(u)?;
    if let [(t, c)] = l.terms.as_slice()
        && l.konst == 0
        && t == u
        && *c == 1
    {
        return product(u);
    }
    while let Some(better) = recombine(&l) {
        l = better;
    }
    while let Some(better) = merge_wheres(&l) {
        l = better;
    }
    Some(l.build())
}

/// The terms of an index sum that has not been simplified: each is simplified once, and the sum is built once, instead
/// of at each of its additions. `None`: not a sum of at least three parts.
pub(crate) fn sum_of_parts(u: &UOp) -> Option<Linear> {
    if u.op() != Op::Add || !is_index(u) || !u.src().iter().any(|s| s.op() == Op::Add) {
        return None;
    }
    Linear::of(u)
}

/// The sum of these parts once they are simplified; `None` if a rule other than the normal form may apply.
pub(crate) fn join_parts(parts: &Linear, simplest: &dyn Fn(&UOp) -> UOp) -> Option<UOp> {
    let mut l = Linear::constant(parts.dtype, parts.konst);
    for (t, c) in &parts.terms {
        l.add(&simplest(t), *c)?;
    }
    while let Some(better) = recombine(&l) {
        l = better;
    }
    while let Some(better) = merge_wheres(&l) {
        l = better;
    }
    if l.terms.len() < 2 {
        return None;
    }
    let m = l.build();
    (m.vmin() != m.vmax()).then_some(m)
}

/// A product of several non-constant factors: factors in order, coefficient last.
fn product(u: &UOp) -> Option<UOp> {
    if u.op() != Op::Mul {
        return None;
    }
    let p = Product::of(u)?;
    Some(p.build(u.dtype()))
}

fn const_divmod(u: &UOp, op: Op) -> Option<(&UOp, i128)> {
    if u.op() != op {
        return None;
    }
    let c = u.src()[1].as_const()?.as_int()?;
    (c != 0).then_some((&u.src()[0], c))
}

/// `m*(b % d)` with its partner: `m*d*(b // d)` gives `m*b`; `m*d*((b // d) % e)` gives `m*(b % (d*e))`.
/// What b // d looks like after simplification is found by simplifying it, so shifted and merged quotients fit too.
fn recombine(l: &Linear) -> Option<Linear> {
    for (k, (t, m)) in l.terms.iter().enumerate() {
        let Some((b, d)) = const_divmod(t, Op::FloorMod) else { continue };
        let Some(md) = m.checked_mul(d) else { continue };
        let partner =
            |(j, (v, c)): (usize, &(UOp, i128))| j != k && c % md == 0 && matches!(v.op(), Op::FloorDiv | Op::FloorMod);
        if !l.terms.iter().enumerate().any(partner) {
            continue;
        }
        let q = Linear::of(&b.floordiv(&t.src()[1]).simplify())?;
        if let Some(r) = whole(l, k, b, &q, md).or_else(|| partial(l, k, b, &q, md)) {
            return Some(r);
        }
    }
    None
}

fn whole(l: &Linear, k: usize, b: &UOp, q: &Linear, md: i128) -> Option<Linear> {
    let (t, m) = &l.terms[k];
    let mut r = l.clone();
    r.add_term(t, -m)?;
    r.add(b, *m)?;
    r.add_linear(q, -md)?;
    let (now, then) = (divisions(l), divisions(&r));
    (then + 2 <= now || then < now && r.terms.len() <= l.terms.len()).then_some(r)
}

/// Distinct divisions and remainders in the terms.
fn divisions(l: &Linear) -> usize {
    let (mut seen, mut count) = (USet::default(), 0);
    let mut todo: Vec<&UOp> = l.terms.iter().map(|t| &t.0).collect();
    while let Some(u) = todo.pop() {
        if u.op().is_elementwise() && seen.insert(u.clone()) {
            count += usize::from(matches!(u.op(), Op::FloorDiv | Op::FloorMod));
            todo.extend(u.src());
        }
    }
    count
}

fn partial(l: &Linear, k: usize, b: &UOp, q: &Linear, md: i128) -> Option<Linear> {
    let (t, m) = &l.terms[k];
    for (v, c) in &l.terms {
        let Some((qv, e)) = const_divmod(v, Op::FloorMod) else { continue };
        if *c != md || e < 0 || v == t {
            continue;
        }
        // q and qv may differ by a constant: (b // d) = qv + shift.
        let mut diff = q.clone();
        if diff.add(qv, -1).is_none() || !diff.terms.is_empty() {
            continue;
        }
        let (shift, d) = (diff.konst, md / m);
        let base = b.binary(Op::Add, &UOp::constant(b.dtype(), ConstVal::Int(-shift * d)));
        let wide = base.floormod(&UOp::constant(b.dtype(), ConstVal::Int(d.checked_mul(e)?)));
        let mut r = l.clone();
        r.add_term(t, -m)?;
        r.add_term(v, -c)?;
        r.add(&wide.simplify(), *m)?;
        return Some(r);
    }
    None
}

/// `c?t:f + c?tt:ff` = `c?(t+tt):(f+ff)` where that does not add work: an arm pair is constant.
fn merge_wheres(l: &Linear) -> Option<Linear> {
    for (k, (a, ca)) in l.terms.iter().enumerate() {
        if a.op() != Op::Where {
            continue;
        }
        for (b, cb) in &l.terms[k + 1..] {
            if b.op() != Op::Where || a.src()[0] != b.src()[0] {
                continue;
            }
            let arm = |i: usize| linear::scaled(&a.src()[i], *ca).binary(Op::Add, &linear::scaled(&b.src()[i], *cb));
            let constant = |i: usize| a.src()[i].op() == Op::Const && b.src()[i].op() == Op::Const;
            let zero = |u: &UOp| u.as_const().is_some_and(ConstVal::is_zero);
            let crossed = zero(&a.src()[1]) && zero(&b.src()[2]) || zero(&a.src()[2]) && zero(&b.src()[1]);
            if constant(1) || constant(2) || crossed {
                let merged = a.src()[0].select(&arm(1).simplify(), &arm(2).simplify());
                let mut r = l.clone();
                r.add_term(a, -ca)?;
                r.add_term(b, -cb)?;
                r.add_term(&merged, 1)?;
                return Some(r);
            }
        }
    }
    None
}

/// Sums of machine integers: terms and constants collected where that makes the sum shorter.
pub(crate) fn machine_sum(u: &UOp) -> Option<UOp> {
    let t = u.dtype();
    if !t.is_int() || is_index(u) {
        return None;
    }
    let (a, b) = (&u.src()[0], &u.src()[1]);
    let zero = || UOp::constant(t, 0i64);
    let sub = u.op() == Op::Sub;
    if let Some(c) = b.as_const().and_then(ConstVal::as_int) {
        let c = if sub { -c } else { c };
        if c == 0 {
            return Some(a.clone());
        }
        // (x + c1) + c2
        if let Some((x, c1)) = plus_const(a) {
            return Some(x.binary(Op::Add, &UOp::constant(t, ConstVal::Int(c1 + c))));
        }
        return sub.then(|| a.binary(Op::Add, &UOp::constant(t, ConstVal::Int(c))));
    }
    if sub && a == b {
        return Some(zero());
    }
    // Constants move outwards: (x + c) + y, x + (y + c), (x + c) - y.
    if let Some((x, c)) = plus_const(a) {
        return Some(x.binary(u.op(), b).binary(Op::Add, &UOp::constant(t, ConstVal::Int(c))));
    }
    if let Some((y, c)) = plus_const(b) {
        let c = if sub { -c } else { c };
        return Some(a.binary(u.op(), y).binary(Op::Add, &UOp::constant(t, ConstVal::Int(c))));
    }
    // x*c0 + x*c1; (y + x*c0) + x*c1; (y + x*c0) - x*c1
    let (xb, cb) = times_const(b);
    let cb = if sub { -cb } else { cb };
    let (xa, ca) = times_const(a);
    if xa == xb {
        return Some(linear::scaled(xa, ca + cb).to_zero(ca + cb));
    }
    if a.op() == Op::Add {
        for k in 0..2 {
            let (x, c) = times_const(&a.src()[k]);
            if x == xb {
                let rest = &a.src()[1 - k];
                return Some(if c + cb == 0 { rest.clone() } else { rest.binary(Op::Add, &linear::scaled(x, c + cb)) });
            }
        }
    }
    // x + -y, x - -y
    if b.op() == Op::Neg {
        return Some(a.binary(if sub { Op::Add } else { Op::Sub }, &b.src()[0]));
    }
    None
}

trait ToZero {
    fn to_zero(self, c: i128) -> UOp;
}
impl ToZero for UOp {
    /// The constant zero if the coefficient is.
    fn to_zero(self, c: i128) -> UOp {
        if c == 0 { UOp::constant(self.dtype(), 0i64) } else { self }
    }
}

fn plus_const(u: &UOp) -> Option<(&UOp, i128)> {
    if u.op() != Op::Add {
        return None;
    }
    Some((&u.src()[0], u.src()[1].as_const()?.as_int()?))
}
fn times_const(u: &UOp) -> (&UOp, i128) {
    match u.op() {
        Op::Neg => (&u.src()[0], -1),
        Op::Mul => match u.src()[1].as_const().and_then(ConstVal::as_int) {
            Some(c) => (&u.src()[0], c),
            None => (u, 1),
        },
        _ => (u, 1),
    }
}

/// Products, quotients and shifts of machine integers by constants.
pub(crate) fn machine_product(u: &UOp) -> Option<UOp> {
    let t = u.dtype();
    if !t.is_int() || is_index(u) {
        return None;
    }
    let (a, b) = (&u.src()[0], &u.src()[1]);
    let c = b.as_const().and_then(ConstVal::as_int);
    let constant = |v: i128| UOp::constant(t, ConstVal::Int(v));
    match (u.op(), c) {
        (Op::Mul, Some(0)) => Some(constant(0)),
        (Op::Mul, Some(1)) => Some(a.clone()),
        (Op::Mul, Some(c)) => {
            let (x, c1) = times_const(a);
            (x != a).then(|| linear::scaled(x, c.wrapping_mul(c1)))
        }
        // Constants move outwards: (x*c)*y
        (Op::Mul, None) => {
            let (x, c1) = times_const(a);
            let (y, c2) = times_const(b);
            (x != a || y != b).then(|| linear::scaled(&x.binary(Op::Mul, y), c1.wrapping_mul(c2)))
        }
        (Op::CDiv | Op::FloorDiv, Some(1)) => Some(a.clone()),
        (Op::CMod | Op::FloorMod, Some(1)) => Some(constant(0)),
        (Op::CDiv | Op::FloorDiv | Op::CMod | Op::FloorMod, Some(0)) => Some(constant(0)),
        (Op::CDiv | Op::FloorDiv, Some(-1)) => Some(-a),
        // (x//c1)//c2
        (Op::FloorDiv, Some(c)) if a.op() == Op::FloorDiv && c > 0 => {
            let c1 = a.src()[1].as_const()?.as_int()?;
            let all = constant(c1.checked_mul(c)?);
            (c1 > 0 && all.as_const()?.as_int()? == c1 * c).then(|| a.src()[0].floordiv(&all))
        }
        // (x%c1)%c2 where c2 divides c1
        (Op::FloorMod, Some(c)) if a.op() == Op::FloorMod && c > 0 => {
            let c1 = a.src()[1].as_const()?.as_int()?;
            (c1 > 0 && c1 % c == 0).then(|| a.src()[0].floormod(b))
        }
        (Op::Shl | Op::Shr, Some(0)) => Some(a.clone()),
        _ => None,
    }
}

/// `x % y` and `x // y` of machine integers whose quotient is known from the bounds.
pub(crate) fn bounded_division(u: &UOp) -> Option<UOp> {
    let (x, y) = (&u.src()[0], &u.src()[1]);
    if !u.dtype().is_int() || y.vmin() <= 0 {
        return None;
    }
    let q = floor_div(x.vmin(), y.vmin());
    if q == 0 && x.vmin() >= 0 && x.vmax() < y.vmin() {
        return Some(match u.op() {
            Op::FloorMod | Op::CMod => x.clone(),
            _ => UOp::constant(u.dtype(), 0i64),
        });
    }
    None
}
