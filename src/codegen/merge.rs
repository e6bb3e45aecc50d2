//! Merges adjacent loops into one where all indices of the kernel use them only as the single number `a·n + b` with b
//! in 0..n.

use super::affine::{Affine, AffineMemo};
use super::scope::first_range;
use doorbell_uop::{Arg, DType, Op, Order, RangeArg, Rebuild, Srcs, UOp};

/// Merges all loops that can be merged without leaving a division or remainder.
pub(super) fn merge_axes(sink: &UOp) -> UOp {
    let mut sink = sink.clone();
    while let Some((a, b)) = candidates(&sink).into_iter().find(|(a, b)| counted_as_one(&sink, a, b)) {
        sink = merge(&sink, &a, &b);
    }
    sink
}

/// Pairs of ranges that are adjacent wherever either of them is closed.
fn candidates(sink: &UOp) -> Vec<(UOp, UOp)> {
    let mut pairs: Vec<(UOp, UOp)> = vec![];
    let mut broken: Vec<(UOp, UOp)> = vec![];
    let order = Order::of(sink);
    let lists: Vec<&UOp> = order.nodes().iter().filter(|u| first_range(u.op()).is_some()).copied().collect();
    for u in &lists {
        let ranges = &u.src()[first_range(u.op()).unwrap_or(0)..];
        for w in ranges.windows(2) {
            let pair = (w[0].clone(), w[1].clone());
            let fixed = w[1].src()[0].as_int().is_some()
                && w[0].range_arg().map(|a| a.kind) == w[1].range_arg().map(|a| a.kind);
            if fixed && !pairs.contains(&pair) {
                pairs.push(pair);
            }
        }
    }
    for u in &lists {
        let ranges = &u.src()[first_range(u.op()).unwrap_or(0)..];
        for (a, b) in &pairs {
            let (x, y) = (ranges.iter().position(|r| r == a), ranges.iter().position(|r| r == b));
            let ok = match (x, y) {
                (None, None) => true,
                (Some(x), Some(y)) => y == x + 1,
                _ => false,
            };
            if !ok {
                broken.push((a.clone(), b.clone()));
            }
        }
    }
    pairs.retain(|p| !broken.contains(p));
    pairs
}

/// Whether `a` and `b` occur only in sums in which the coefficient of `a` is `len(b)` times that of `b`.
fn counted_as_one(sink: &UOp, a: &UOp, b: &UOp) -> bool {
    let Some(n) = b.src()[0].as_int() else { return false };
    let mut memo = AffineMemo::default();
    Order::of(sink).nodes().iter().all(|u| {
        let first = first_range(u.op()).unwrap_or(usize::MAX);
        if *u == a || *u == b || memo.sees_through(u) {
            return true;
        }
        u.src().iter().take(first).all(|s| {
            if s.dtype() != DType::INDEX {
                return true;
            }
            let sum = memo.of(s);
            sum.coef(b).checked_mul(n) == Some(sum.coef(a))
        })
    })
}

fn merge(sink: &UOp, a: &UOp, b: &UOp) -> UOp {
    let n = b.src()[0].as_int().unwrap_or(1);
    let order = Order::of(sink);
    let Some(arg) = a.range_arg() else { return sink.clone() };
    let used =
        order.nodes().iter().filter_map(|u| u.range_arg()).filter(|x| x.id == arg.id).map(|x| x.sub).max().unwrap_or(0);
    let end = match a.src()[0].as_int() {
        Some(m) => UOp::int(m * n),
        None => &a.src()[0] * n,
    };
    let m = UOp::new(Op::Range, DType::INDEX, [end], Arg::Range(RangeArg { sub: used + 1, ..arg }));
    let mut memo = AffineMemo::default();
    order.rebuild(|r, u| {
        let first = first_range(u.op()).unwrap_or(usize::MAX);
        let mut src = Srcs::new();
        let through = memo.sees_through(u);
        for (k, s) in u.src().iter().enumerate() {
            if k >= first {
                if s != b {
                    src.push(if s == a { m.clone() } else { r.src(k).clone() });
                }
            } else if s.dtype() == DType::INDEX && !through {
                src.push(one_number(memo.of(s), (a, b, &m), r).unwrap_or_else(|| r.src(k).clone()));
            } else {
                src.push(r.src(k).clone());
            }
        }
        if u.op() == Op::Range { u.clone() } else { u.with_src(src) }
    })
}

/// The sum with `m` in place of the pair; `None`: it does not contain the pair.
fn one_number(sum: &Affine, (a, b, m): (&UOp, &UOp, &UOp), done: &Rebuild) -> Option<UOp> {
    let step = sum.coef(b);
    if step == 0 && sum.terms.iter().all(|(t, _)| done.of(t) == Some(t)) {
        return None;
    }
    let mut new = Affine { terms: Default::default(), constant: sum.constant };
    for (t, c) in &sum.terms {
        if t == a {
            new.terms.push((m.clone(), step));
        } else if t != b {
            new.terms.push((done.of(t).unwrap_or(t).clone(), *c));
        }
    }
    Some(new.build())
}
