//! Bool logic and Where.

use super::compare;
use crate::{ConstVal, Op, UMap, UOp, USet};
use smallvec::SmallVec;

fn is(u: &UOp, v: bool) -> bool {
    u.dtype().is_bool() && u.as_const().is_some_and(|c| c.is_zero() != v)
}
fn truth(like: &UOp, b: bool) -> UOp {
    UOp::constant(like.dtype(), b)
}
/// x where this is `!x`.
fn not_of(u: &UOp) -> Option<&UOp> {
    (u.op() == Op::CmpNe && u.src()[0].dtype().is_bool() && is(&u.src()[1], true)).then(|| &u.src()[0])
}
fn opposite(a: &UOp, b: &UOp) -> bool {
    not_of(a) == Some(b) || not_of(b) == Some(a)
}

/// The clauses of a chain of one op, left to right.
pub fn clauses(u: &UOp, op: Op) -> SmallVec<[UOp; 6]> {
    let (mut out, mut todo) = (SmallVec::new(), SmallVec::<[&UOp; 8]>::new());
    todo.push(u);
    while let Some(u) = todo.pop() {
        if u.op() == op {
            todo.extend(u.src().iter().rev());
        } else {
            out.push(u.clone());
        }
    }
    out
}

/// Add, Max are Or; Mul is And; comparison with a constant is the value or its negation.
pub(crate) fn spelling(u: &UOp) -> Option<UOp> {
    let (a, b) = (u.src().first()?, u.src().get(1)?);
    if !a.dtype().is_bool() {
        return None;
    }
    match u.op() {
        Op::Add | Op::Max => Some(a.or(b)),
        Op::Mul => Some(a.and(b)),
        Op::Sub => Some(a.binary(Op::Xor, b)),
        Op::CmpNe if is(b, false) => Some(a.clone()),
        Op::CmpEq if is(b, true) => Some(a.clone()),
        Op::CmpEq if is(b, false) => Some(a.not()),
        Op::Xor if is(b, false) => Some(a.clone()),
        Op::Xor if is(b, true) => Some(a.not()),
        Op::Xor if a == b => Some(truth(u, false)),
        Op::CmpLt if is(a, false) => Some(b.clone()),
        Op::CmpLt if is(b, true) => Some(a.not()),
        _ => None,
    }
}

/// And, Or of bools: constants, repeated and opposite clauses, intervals of the same expression.
pub(crate) fn and_or(u: &UOp) -> Option<UOp> {
    if !u.dtype().is_bool() {
        return None;
    }
    let (a, b, and) = (&u.src()[0], &u.src()[1], u.op() == Op::And);
    for (x, y) in [(a, b), (b, a)] {
        if is(x, and) {
            return Some(y.clone());
        }
        if is(x, !and) {
            return Some(x.clone());
        }
    }
    if a == b {
        return Some(a.clone());
    }
    if opposite(a, b) {
        return Some(truth(u, !and));
    }
    let all = clauses(u, u.op());
    if all.len() > 32 {
        return None;
    }
    let mut kept: SmallVec<[UOp; 6]> = SmallVec::new();
    for c in &all {
        if kept.iter().any(|k| opposite(k, c)) {
            return Some(truth(u, !and));
        }
        if !kept.contains(c) {
            kept.push(c.clone());
        }
    }
    let merged = if and { intersect(&mut kept) } else { unite(&mut kept) };
    if merged == Merged::Decided {
        return Some(truth(u, !and));
    }
    if kept.len() == all.len() {
        return None;
    }
    kept.into_iter().reduce(|x, y| x.binary(u.op(), &y))
}

#[derive(PartialEq)]
enum Merged {
    Kept,
    /// The chain is constant: an absorbing value occurs.
    Decided,
}

/// Clauses of a conjunction about the same expression: an interval inside another absorbs it, disjoint ones contradict.
fn intersect(kept: &mut SmallVec<[UOp; 6]>) -> Merged {
    pairwise(kept, |(al, ah), (bl, bh)| {
        if al > bh || bl > ah {
            Pair::Decided
        } else if al >= bl && ah <= bh {
            Pair::First
        } else if bl >= al && bh <= ah {
            Pair::Second
        } else {
            Pair::Both
        }
    })
}

/// Clauses of a disjunction: the larger interval absorbs; intervals that meet and cover everything decide.
fn unite(kept: &mut SmallVec<[UOp; 6]>) -> Merged {
    let spans: Vec<_> = kept.iter().map(compare::as_interval).collect();
    for (k, a) in spans.iter().enumerate() {
        for (j, b) in spans[k + 1..].iter().enumerate() {
            if let (Some((x, al, ah)), Some((y, bl, bh))) = (a, b)
                && x == y
                && kept_exact(&kept[k])
                && kept_exact(&kept[k + 1 + j])
                && (*al).min(*bl) <= x.vmin()
                && (*ah).max(*bh) >= x.vmax()
                && al.max(bl) - 1 <= *ah.min(bh)
            {
                return Merged::Decided;
            }
        }
    }
    pairwise(kept, |(al, ah), (bl, bh)| {
        if al <= bl && ah >= bh {
            Pair::First
        } else if bl <= al && bh >= ah {
            Pair::Second
        } else {
            Pair::Both
        }
    })
}

/// Whether the interval of this clause is the clause itself, not a weaker consequence.
fn kept_exact(u: &UOp) -> bool {
    u.src().iter().any(|s| s.op() == Op::Const)
}

enum Pair {
    First,
    Second,
    Both,
    Decided,
}

fn pairwise(kept: &mut SmallVec<[UOp; 6]>, f: impl Fn((i128, i128), (i128, i128)) -> Pair) -> Merged {
    let mut i = 0;
    while i < kept.len() {
        let mut j = i + 1;
        while j < kept.len() {
            if kept_exact(&kept[i])
                && kept_exact(&kept[j])
                && let (Some((x, al, ah)), Some((y, bl, bh))) =
                    (compare::as_interval(&kept[i]), compare::as_interval(&kept[j]))
                && x == y
            {
                match f((al, ah), (bl, bh)) {
                    Pair::Decided => return Merged::Decided,
                    Pair::First => {
                        kept.remove(j);
                        continue;
                    }
                    Pair::Second => {
                        kept[i] = kept.remove(j);
                        j = i + 1;
                        continue;
                    }
                    Pair::Both => {}
                }
            }
            j += 1;
        }
        i += 1;
    }
    Merged::Kept
}

/// Where with known condition, equal arms, negated condition, bool arms.
pub(crate) fn where_simple(u: &UOp) -> Option<UOp> {
    let [c, t, f] = u.src() else { return None };
    if t == f {
        return Some(t.clone());
    }
    if let Some(v) = c.as_const() {
        return Some(if v.is_zero() { f.clone() } else { t.clone() });
    }
    if let Some(x) = not_of(c) {
        return Some(x.select(f, t));
    }
    if u.dtype().is_bool() && c.dtype() == u.dtype() {
        return match () {
            () if is(t, true) => Some(c.or(f)),
            () if is(f, false) => Some(c.and(t)),
            () if is(t, false) => Some(c.not().and(f)),
            () if is(f, true) => Some(c.not().or(t)),
            () => None,
        };
    }
    None
}

/// Where inside Where with a shared arm; maximum written as a comparison.
pub(crate) fn where_nested(u: &UOp) -> Option<UOp> {
    let [c, t, f] = u.src() else { return None };
    if t.op() == Op::Where && t.src()[2] == *f && t.src()[0].dtype() == c.dtype() {
        return Some(c.and(&t.src()[0]).select(&t.src()[1], f));
    }
    if f.op() == Op::Where && f.src()[1] == *t && f.src()[0].dtype() == c.dtype() {
        return Some(c.or(&f.src()[0]).select(t, &f.src()[2]));
    }
    // Integers only: with NaN the comparison and the maximum differ.
    if c.op() == Op::CmpLt && u.dtype().is_int() {
        let (a, b) = (&c.src()[0], &c.src()[1]);
        if a == f && b == t {
            return Some(a.max(b));
        }
        // x < c ? c-or-less : x with the constant moved by one: (x < c+1 ? c : x), (c < x ? x : c+1)
        let (ia, ib) = (a.as_const().and_then(ConstVal::as_int), b.as_const().and_then(ConstVal::as_int));
        if let (Some(k), Some(v)) = (ib, t.as_const().and_then(ConstVal::as_int))
            && a == f
            && v == k - 1
        {
            return Some(f.max(t));
        }
        if let (Some(k), Some(v)) = (ia, f.as_const().and_then(ConstVal::as_int))
            && b == t
            && v == k + 1
        {
            return Some(t.max(f));
        }
    }
    None
}

/// Nodes a search for a condition inside an arm may look at.
const CLOSURE_BUDGET: usize = 96;

/// Inside the arms the condition's value is known.
pub(crate) fn where_closure(u: &UOp) -> Option<UOp> {
    let [c, t, f] = u.src() else { return None };
    let nt = assume(t, c, true);
    let nf = assume(f, c, false);
    (nt.is_some() || nf.is_some()).then(|| c.select(nt.as_ref().unwrap_or(t), nf.as_ref().unwrap_or(f)))
}

/// Whether a node's sources may be simplified by what holds where its value is used. A load keeps its gate and a
/// machine division its safe divisor, because they are executed whatever the condition is.
fn is_harmless(x: &UOp) -> bool {
    x.op().is_elementwise() && !matches!(x.op(), Op::CDiv | Op::CMod)
}

/// `u` with `c` (and each clause of it) replaced by its value; only harmless nodes are entered.
fn assume(u: &UOp, c: &UOp, value: bool) -> Option<UOp> {
    let parts = if value { clauses(c, Op::And) } else { clauses(c, Op::Or) };
    // A clause that is known makes its opposite known: the normal form of !(x < 5) is 4 < x.
    let opposites: SmallVec<[UOp; 6]> =
        parts.iter().map(|p| p.not().simplify()).filter(|p| p.op() != Op::Const).collect();
    let oldest = parts.iter().chain(&opposites).map(UOp::id).min()?;
    let (mut seen, mut todo, mut hit) = (USet::default(), SmallVec::<[&UOp; 16]>::new(), false);
    todo.push(u);
    while let Some(x) = todo.pop() {
        // Sources are older than their users, so nothing below an older node can contain the condition.
        if x.id() < oldest || !seen.insert(x.clone()) {
            continue;
        }
        if parts.contains(x) || opposites.contains(x) || x == c {
            hit = true;
            continue;
        }
        if seen.len() > CLOSURE_BUDGET {
            return None;
        }
        if is_harmless(x) {
            todo.extend(x.src());
        }
    }
    if !hit {
        return None;
    }
    let known = parts.iter().chain([c]).map(|p| (p.clone(), truth(p, value)));
    let map: UMap<UOp> = opposites.iter().map(|p| (p.clone(), truth(p, !value))).chain(known).collect();
    let order =
        crate::toposort_many(std::slice::from_ref(u), |x| is_harmless(x) && x.id() >= oldest && !map.contains_key(x));
    let mut done: UMap<UOp> = UMap::default();
    for x in order {
        let n = match map.get(&x) {
            Some(v) => v.clone(),
            None if is_harmless(&x) && x.id() >= oldest => {
                let src: crate::Srcs = x.src().iter().map(|s| done.get(s).unwrap_or(s).clone()).collect();
                x.with_src(src)
            }
            None => x.clone(),
        };
        done.insert(x, n);
    }
    done.remove(u).filter(|n| n != u)
}

/// An op on two Wheres with the same condition, or on a Where and a constant, moves inside when an arm becomes
/// constant. A machine division is executed whatever the condition is, so it keeps the divisor that a Where makes safe.
pub(crate) fn alu_of_wheres(u: &UOp) -> Option<UOp> {
    let (a, b) = (u.src().first()?, u.src().get(1)?);
    let constant = |x: &UOp| x.op() == Op::Const;
    if a.op() != Op::Where || (matches!(u.op(), Op::CDiv | Op::CMod) && !constant(b)) {
        return None;
    }
    let s = a.src();
    if b.op() == Op::Where && b.src()[0] == s[0] {
        let v = b.src();
        if constant(&s[1]) && constant(&v[1]) || constant(&s[2]) && constant(&v[2]) {
            return Some(s[0].select(&s[1].binary(u.op(), &v[1]), &s[2].binary(u.op(), &v[2])));
        }
    }
    if constant(b) && constant(&s[1]) && constant(&s[2]) && u.op() != Op::Threefry {
        return Some(s[0].select(&s[1].binary(u.op(), b), &s[2].binary(u.op(), b)));
    }
    None
}
