//! Simplification under a gate: [`simplify_given`], and conjunctions whose clauses simplify one another.
//!
//! Each clause is an interval of an expression. Where that expression occurs in the index, it is replaced by a fresh
//! variable with these bounds, the result is simplified, and the expression is substituted back. A sum in a clause need
//! not occur in the index unchanged: one of its terms is replaced by (variable - the other terms). The smaller result
//! is kept.

use super::compare::as_interval;
use super::divmod::count_nodes;
use super::linear::{Linear, scaled};
use super::logic::clauses;
use crate::{ConstVal, Op, Srcs, UMap, UOp, USet};
use doorbell_sort as sort;

/// Indices with more nodes than this are not simplified.
const MAX_NODES: usize = 400;

/// `idx` simplified under the assumption that `gate` holds.
pub fn simplify_given(gate: &UOp, idx: &UOp) -> UOp {
    let mut out = idx.simplify();
    if out.op() == Op::Const || count_nodes(&out) > MAX_NODES {
        return out;
    }
    let facts: Vec<(UOp, i128, i128)> =
        clauses(&gate.simplify(), Op::And).iter().filter_map(as_interval).filter(|f| f.1 <= f.2).collect();
    let facts = merged(facts);
    if facts.is_empty() || !can_gain(&out, &facts) {
        return out;
    }
    // A second pass, because one clause's result may be what another clause bounds.
    for _ in 0..2 {
        let before = out.clone();
        for (k, (x, lo, hi)) in facts.iter().enumerate() {
            out = with_fact(&out, x, *lo, *hi, k);
        }
        out = with_all(&out, &facts);
        if out == before {
            break;
        }
    }
    out
}

/// Whether tighter bounds can help: in divisions, comparisons, selections and maxima, or where they leave one value.
fn can_gain(u: &UOp, facts: &[(UOp, i128, i128)]) -> bool {
    let gains = |x: &UOp| {
        matches!(
            x.op(),
            Op::FloorDiv | Op::FloorMod | Op::CmpLt | Op::CmpNe | Op::CmpEq | Op::Where | Op::Max | Op::CDiv | Op::CMod
        ) || facts.iter().any(|f| f.1 == f.2 && f.0 == *x)
    };
    facts.iter().any(|f| f.1 == f.2 && f.0.op() == Op::Add) || arithmetic_any(u, gains)
}

/// Whether an elementwise node at or above the leaves satisfies `f`.
fn arithmetic_any(u: &UOp, f: impl Fn(&UOp) -> bool) -> bool {
    let (mut seen, mut todo) = (USet::default(), vec![u]);
    while let Some(x) = todo.pop() {
        if f(x) {
            return true;
        }
        if x.op().is_elementwise() && seen.insert(x.clone()) {
            todo.extend(x.src());
        }
    }
    false
}

fn merged(facts: Vec<(UOp, i128, i128)>) -> Vec<(UOp, i128, i128)> {
    let mut out: Vec<(UOp, i128, i128)> = Vec::new();
    for (x, lo, hi) in facts {
        match out.iter_mut().find(|f| f.0 == x) {
            Some(f) => (f.1, f.2) = (f.1.max(lo), f.2.min(hi)),
            None => out.push((x, lo, hi)),
        }
    }
    // A sum of things that are >= 0 bounds each of them from above.
    let mut more = Vec::new();
    for (x, _, hi) in &out {
        if x.op() == Op::Add
            && let Some(l) = Linear::of(x)
            && l.terms.iter().all(|(t, c)| *c > 0 && t.vmin() >= 0)
        {
            for (t, c) in &l.terms {
                let most = (hi - l.konst) / c;
                if most < t.vmax() && most >= t.vmin() {
                    more.push((t.clone(), t.vmin(), most));
                }
            }
        }
    }
    for (x, lo, hi) in more {
        match out.iter_mut().find(|f| f.0 == x) {
            Some(f) => (f.1, f.2) = (f.1.max(lo), f.2.min(hi)),
            None => out.push((x, lo, hi)),
        }
    }
    out.retain(|f| f.1 <= f.2 && (f.1 > f.0.vmin() || f.2 < f.0.vmax()));
    out
}

/// A fresh variable for x in lo..=hi.
fn stand_in(x: &UOp, k: usize, lo: i128, hi: i128) -> UOp {
    if lo == hi {
        return UOp::constant(x.dtype(), ConstVal::Int(lo));
    }
    let clamp = |v: i128| v.clamp(i64::MIN as i128, i64::MAX as i128) as i64;
    UOp::var(&format!("\u{1}given{k}"), clamp(lo), clamp(hi)).with_dtype(x.dtype())
}

/// Replacement within arithmetic only: the end of a range must not use facts that hold inside the loop, and a load is
/// executed whether the gate holds or not.
fn replaced_all(u: &UOp, map: &UMap<UOp>) -> UOp {
    let mut done: UMap<UOp> = UMap::default();
    for x in u.toposort_if(|x| x.op().is_elementwise() && !map.contains_key(x)) {
        let n = match map.get(&x) {
            Some(n) => n.clone(),
            None if x.op().is_elementwise() => {
                let src: Srcs = x.src().iter().map(|s| done.get(s).unwrap_or(s).clone()).collect();
                x.with_src(src)
            }
            None => x.clone(),
        };
        done.insert(x, n);
    }
    done.remove(u).unwrap_or_else(|| u.clone())
}

fn replaced(u: &UOp, from: &UOp, to: &UOp) -> UOp {
    let map: UMap<UOp> = [(from.clone(), to.clone())].into_iter().collect();
    replaced_all(u, &map)
}

fn with_fact(u: &UOp, x: &UOp, lo: i128, hi: i128, k: usize) -> UOp {
    let f = stand_in(x, k, lo, hi);
    if x.op() != Op::Add {
        if !u.contains(x) {
            return u.clone();
        }
        let n = replaced(u, x, &f).simplify();
        return back(n, &f, x);
    }
    let mut best = u.clone();
    let mut size = count_nodes(u);
    let mut consider = |n: UOp| {
        let s = count_nodes(&n);
        if s < size {
            (best, size) = (n, s);
        }
    };
    if u.contains(x) {
        consider(back(replaced(u, x, &f).simplify(), &f, x));
    }
    // t = (f - the others) / c for a term whose coefficient is one.
    if let Some(l) = Linear::of(x) {
        for (t, c) in l.terms.iter().filter(|t| t.1.abs() == 1) {
            if !u.contains(t) {
                continue;
            }
            let mut others = l.clone();
            if others.add_term(t, -c).is_none() {
                continue;
            }
            let solved = scaled(&(&f - &others.build()), *c).simplify();
            consider(back(replaced(u, t, &solved).simplify(), &f, x));
        }
        // Every term at least one gives the same result: then so does a sum that is at least one.
        if lo == 1 && l.konst == 0 && l.terms.iter().all(|(t, c)| *c > 0 && t.vmin() >= 0) {
            let each: Vec<UOp> = l
                .terms
                .iter()
                .map(|(t, _)| {
                    let f = stand_in(t, k, 1, t.vmax());
                    back(replaced(u, t, &f).simplify(), &f, t)
                })
                .collect();
            if each.windows(2).all(|w| w[0] == w[1]) {
                consider(each[0].clone());
            }
        }
    }
    best
}

/// Applies all facts at once: whole expressions where they occur in `u`; otherwise one term of a sum that no other fact
/// uses.
fn with_all(u: &UOp, facts: &[(UOp, i128, i128)]) -> UOp {
    if facts.len() < 2 {
        return u.clone();
    }
    let (mut there, mut again): (UMap<UOp>, UMap<UOp>) = Default::default();
    for (k, (x, lo, hi)) in facts.iter().enumerate() {
        let f = stand_in(x, k, *lo, *hi);
        if u.contains(x) {
            there.insert(x.clone(), f.clone());
        } else if let Some((t, solved)) = solve(x, &f, |t| u.contains(t) && !there.contains_key(t)) {
            there.insert(t, solved);
        } else {
            continue;
        }
        if f.op() != Op::Const {
            again.insert(f, x.clone());
        }
    }
    let n = replaced_all(&replaced_all(u, &there).simplify(), &again).simplify();
    if count_nodes(&n) < count_nodes(u) { n } else { u.clone() }
}

/// A term t of the sum x that `free` allows, and t as (f - the other terms): x = f. The coefficient of t is one or
/// minus one.
fn solve(x: &UOp, f: &UOp, free: impl Fn(&UOp) -> bool) -> Option<(UOp, UOp)> {
    if x.op() != Op::Add {
        return None;
    }
    let l = Linear::of(x)?;
    let (t, c) = l.terms.iter().find(|(t, c)| c.abs() == 1 && free(t))?;
    let mut others = l.clone();
    others.add_term(t, -c)?;
    Some((t.clone(), scaled(&(f - &others.build()), *c).simplify()))
}

fn back(n: UOp, f: &UOp, x: &UOp) -> UOp {
    if f.op() == Op::Const { n } else { replaced(&n, f, x).simplify() }
}

/// A conjunction of integer conditions, each simplified given the others.
pub(crate) fn conjunction(u: &UOp) -> Option<UOp> {
    if !u.dtype().is_bool() || u.op() != Op::And {
        return None;
    }
    let all = clauses(u, Op::And);
    if all.len() > 12 || all.iter().filter(|c| as_interval(c).is_some()).count() == 0 {
        return None;
    }
    let mut kept: Vec<UOp> = Vec::new();
    let mut changed = false;
    // Clauses that bound what others contain come first, so that they can simplify the others.
    let mut order = all.clone();
    sort::by_key(&mut order, |c: &UOp| {
        let Some((x, ..)) = as_interval(c) else { return 0 };
        -(all.iter().filter(|o| *o != c && o.contains(&x)).count() as i64)
    });
    for c in &order {
        let Some(given) = kept.iter().cloned().reduce(|a, b| a.and(&b)) else {
            kept.push(c.clone());
            continue;
        };
        let n = match linear_clause(c) {
            Some(l) => {
                if implied(&l, c, &kept) {
                    UOp::constant(u.dtype(), true)
                } else {
                    c.clone()
                }
            }
            None if mentions(c, &kept) => simplify_given(&given, c),
            None => c.clone(),
        };
        if n != *c {
            changed = true;
        }
        if n.as_const().is_some_and(|v| !v.is_zero()) {
            continue;
        }
        kept.push(n);
    }
    changed.then(|| kept.into_iter().reduce(|a, b| a.and(&b)).unwrap_or_else(|| UOp::constant(u.dtype(), true)))
}

/// The sum that a clause bounds, if it consists of leaves only: then bounds are as precise as possible.
fn linear_clause(c: &UOp) -> Option<Linear> {
    let (x, ..) = as_interval(c)?;
    if !c.src().iter().any(|s| s.op() == Op::Const) {
        return None;
    }
    let l = Linear::of(&x)?;
    let leaf = |u: &UOp| matches!(u.op(), Op::Range | Op::Var | Op::Special);
    l.terms.iter().all(|t| leaf(&t.0)).then_some(l)
}

/// Whether one of the other clauses implies `c`: its sum is subtracted as often as it is contained.
fn implied(l: &Linear, c: &UOp, others: &[UOp]) -> bool {
    let Some((_, lo, hi)) = as_interval(c) else { return false };
    others.iter().any(|o| {
        let Some(((e, from, to), m)) = as_interval(o).zip(linear_clause(o)) else { return false };
        let Some(factor) = m.terms.first().and_then(|(t, k)| {
            let have = l.terms.iter().find(|x| x.0 == *t)?.1;
            (have % k == 0).then_some(have / k)
        }) else {
            return false;
        };
        let mut rest = l.clone();
        if rest.add(&e, -factor).is_none() {
            return false;
        }
        let b = rest.bounds();
        let (p, q) = (from.saturating_mul(factor), to.saturating_mul(factor));
        b.min.saturating_add(p.min(q)) >= lo && b.max.saturating_add(p.max(q)) <= hi
    })
}

/// Whether a clause shares a variable or range with others.
fn mentions(c: &UOp, others: &[UOp]) -> bool {
    let leaf = |u: &UOp| matches!(u.op(), Op::Range | Op::Var | Op::Special);
    let mine: Vec<UOp> = c.toposort().into_iter().filter(leaf).collect();
    others.iter().any(|o| o.any(|u| mine.contains(u)))
}
