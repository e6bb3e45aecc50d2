//! What a gate says about an index: [`simplify_given`], and conjunctions whose clauses simplify one another.
//!
//! Each clause is an interval of an expression. Where that expression stands in the index, a stand-in variable with those
//! bounds takes its place, the result is simplified, and the expression is put back. A sum in a clause need not stand in the
//! index as it is: one of its terms is replaced by (stand-in - the other terms). The smaller result is kept.

use super::compare::as_interval;
use super::divmod::count_nodes;
use super::linear::{Linear, scaled};
use super::logic::clauses;
use crate::uop::{ConstVal, Op, UMap, UOp};

/// Nodes of an index above which nothing is tried.
const MAX_NODES: usize = 400;

/// `idx` simplified as far as it is used only where `gate` holds.
pub fn simplify_given(gate: &UOp, idx: &UOp) -> UOp {
    let mut out = idx.simplify();
    if out.op() == Op::Const || count_nodes(&out) > MAX_NODES {
        return out;
    }
    let facts: Vec<(UOp, i128, i128)> =
        clauses(&gate.simplify(), Op::And).iter().filter_map(as_interval).filter(|f| f.1 <= f.2).collect();
    let facts = merged(facts);
    // A second round: what one clause made may be what another speaks of.
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

/// A variable that no program has, for x in lo..=hi.
fn stand_in(x: &UOp, k: usize, lo: i128, hi: i128) -> UOp {
    if lo == hi {
        return UOp::constant(x.dtype(), ConstVal::Int(lo));
    }
    let clamp = |v: i128| v.clamp(i64::MIN as i128, i64::MAX as i128) as i64;
    UOp::var(&format!("\u{1}given{k}"), clamp(lo), clamp(hi)).with_dtype(x.dtype())
}

fn replaced(u: &UOp, from: &UOp, to: &UOp) -> UOp {
    let map: UMap<UOp> = [(from.clone(), to.clone())].into_iter().collect();
    u.substitute(&map)
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

/// All whole expressions at once.
fn with_all(u: &UOp, facts: &[(UOp, i128, i128)]) -> UOp {
    let pairs: Vec<(UOp, UOp)> = facts
        .iter()
        .enumerate()
        .filter(|(_, f)| u.contains(&f.0))
        .map(|(k, (x, lo, hi))| (x.clone(), stand_in(x, k, *lo, *hi)))
        .collect();
    if pairs.len() < 2 {
        return u.clone();
    }
    let there: UMap<UOp> = pairs.iter().cloned().collect();
    let again: UMap<UOp> = pairs.into_iter().filter(|p| p.1.op() != Op::Const).map(|(x, f)| (f, x)).collect();
    let n = u.substitute(&there).simplify().substitute(&again).simplify();
    if count_nodes(&n) < count_nodes(u) { n } else { u.clone() }
}

fn back(n: UOp, f: &UOp, x: &UOp) -> UOp {
    if f.op() == Op::Const { n } else { replaced(&n, f, x).simplify() }
}

/// A conjunction of integer conditions, each simplified given the others.
pub fn conjunction(u: &UOp) -> Option<UOp> {
    if !u.dtype().is_bool() || u.op() != Op::And {
        return None;
    }
    let all = clauses(u, Op::And);
    if all.len() > 12 || all.iter().filter(|c| as_interval(c).is_some()).count() == 0 {
        return None;
    }
    let mut kept: Vec<UOp> = Vec::new();
    let mut changed = false;
    // What others speak of comes first, so that they can be simplified by it.
    let mut order: Vec<&UOp> = all.iter().collect();
    order.sort_by_key(|c| {
        let Some((x, ..)) = as_interval(c) else { return 0 };
        -(all.iter().filter(|o| o != c && o.contains(&x)).count() as i64)
    });
    for c in order {
        let Some(given) = kept.iter().cloned().reduce(|a, b| a.and(&b)) else {
            kept.push(c.clone());
            continue;
        };
        let n = if mentions(c, &kept) { simplify_given(&given, c) } else { c.clone() };
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

/// Whether a clause shares a variable or range with others.
fn mentions(c: &UOp, others: &[UOp]) -> bool {
    let leaf = |u: &UOp| matches!(u.op(), Op::Range | Op::Var | Op::Special);
    let mine: Vec<UOp> = c.toposort().into_iter().filter(leaf).collect();
    others.iter().any(|o| o.any(|u| mine.contains(u)))
}
