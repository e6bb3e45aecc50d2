//! Comparisons of integers in normal form.
//!
//! `a < b` of index arithmetic becomes `P < N + c`: terms with positive coefficients on the left, the others with their
//! sign changed on the right, common divisors cancelled, the constant on the right (or alone on the left when there is
//! no P). `!(x < c)` becomes `c-1 < x`, so integer conditions carry no negation. Quotients compared with constants
//! become comparisons of what was divided. All of it needs exact integers: `WeakInt`; constants also move in machine
//! integers whose bounds show that nothing wraps.

use super::linear::Linear;
use super::sum::is_index;
use crate::{Bounds, ConstVal, Op, UOp, floor_div, floor_mod};
use doorbell_sort as sort;

fn lit(like: &UOp, v: i128) -> UOp {
    UOp::constant(like.dtype(), ConstVal::Int(v))
}
fn int(u: &UOp) -> Option<i128> {
    u.as_const().and_then(ConstVal::as_int)
}
fn truth(like: &UOp, b: bool) -> UOp {
    UOp::constant(like.dtype(), b)
}
const fn ceil_div(a: i128, b: i128) -> i128 {
    -floor_div(-a, b)
}

/// `a < b` on index arithmetic.
pub(crate) fn less(u: &UOp) -> Option<UOp> {
    let (a, b) = (&u.src()[0], &u.src()[1]);
    if !is_index(a) {
        return None;
    }
    // d < c, with the constant apart.
    let mut d = Linear::of(a)?;
    d.add(b, -1)?;
    let mut c = -d.konst;
    d.konst = 0;
    let Bounds { min, max } = tight_bounds(&d);
    if max < c {
        return Some(truth(u, true));
    }
    if min >= c {
        return Some(truth(u, false));
    }
    (d, c) = drop_small_terms(d, c);
    let g = d.content();
    if g > 1 {
        (d, c) = (d.map(|f| f / g, 0), ceil_div(c, g));
    }
    if d.terms.len() == 1
        && let Some(n) = unwrap_term(u, &d, c)
    {
        return Some(n);
    }
    (d, c) = simplex(d, c);
    let pos = Linear { terms: d.terms.iter().filter(|t| t.1 > 0).cloned().collect(), ..Linear::zero(d.dtype) };
    let neg = Linear { terms: d.terms.iter().filter(|t| t.1 < 0).cloned().collect(), ..Linear::zero(d.dtype) };
    let mut neg = neg.map(|f| -f, 0);
    Some(if pos.terms.is_empty() {
        lit(a, -c).lt(&neg.build())
    } else {
        neg.konst = c;
        pos.build().lt(&neg.build())
    })
}

/// Bounds of a sum; a range whose end is symbolic is at most that end minus one.
fn tight_bounds(d: &Linear) -> Bounds {
    let plain = d.bounds();
    let mut e = d.clone();
    for (t, c) in &d.terms {
        if t.op() == Op::Range
            && t.src()[0].op() != Op::Const
            && *c > 0
            && (e.add_term(t, -c).is_none() || e.add(&t.src()[0], *c).is_none())
        {
            return plain;
        }
    }
    if e.terms == d.terms {
        return plain;
    }
    let ranges: i128 = d
        .terms
        .iter()
        .filter(|(t, c)| t.op() == Op::Range && t.src()[0].op() != Op::Const && *c > 0)
        .map(|t| t.1)
        .sum();
    Bounds::new(plain.min, plain.max.min(e.bounds().max - ranges))
}

/// Terms that cannot change the answer go: with every other coefficient divisible by g, `g*X + R < c` is `X < m` when
/// the smallest and the largest R give the same m.
fn drop_small_terms(d: Linear, c: i128) -> (Linear, i128) {
    if d.terms.len() < 2 {
        return (d, c);
    }
    for (_, f) in &d.terms {
        let g0 = f.abs();
        if g0 <= 1 {
            continue;
        }
        let big =
            Linear { terms: d.terms.iter().filter(|t| t.1.abs() >= g0).cloned().collect(), ..Linear::zero(d.dtype) };
        let g = big.content();
        if g <= 1 || big.terms.len() == d.terms.len() {
            continue;
        }
        let small =
            Linear { terms: d.terms.iter().filter(|t| t.1.abs() < g0).cloned().collect(), ..Linear::zero(d.dtype) };
        let r = small.bounds();
        let (lo, hi) = (ceil_div(c.saturating_sub(r.max), g), ceil_div(c.saturating_sub(r.min), g));
        if lo == hi {
            return (big.map(|f| f / g, 0), lo);
        }
    }
    (d, c)
}

/// `0 < a*x + b*y` with x, y >= 0 and a, b > 0 is `0 < x + y`; the same for `a*x + b*y < 1`.
fn simplex(d: Linear, c: i128) -> (Linear, i128) {
    let all = |sign: i128| d.terms.iter().all(|(t, f)| f.signum() == sign && t.vmin() >= 0);
    if c == 1 && all(1) || c == 0 && all(-1) {
        return (d.map(i128::signum, 0), c);
    }
    (d, c)
}

/// One term t with coefficient 1 or -1: quotients by constants dissolve.
fn unwrap_term(u: &UOp, d: &Linear, c: i128) -> Option<UOp> {
    let (t, f) = &d.terms[0];
    if t.op() == Op::FloorDiv {
        let (x, k) = (&t.src()[0], int(&t.src()[1])?);
        return match (*f, k > 0) {
            _ if k == 0 => None,
            // x//k < c
            (1, true) => Some(x.lt(&lit(x, c.checked_mul(k)?))),
            // x//-k < c: x > c*-k
            (1, false) => Some(lit(x, c.checked_mul(k)?).lt(x)),
            // -(x//k) < c: x//k >= 1-c
            (-1, true) => Some(lit(x, (1 - c).checked_mul(k)? - 1).lt(x)),
            (-1, false) => Some(x.lt(&lit(x, (1 - c).checked_mul(k)? + 1))),
            _ => None,
        };
    }
    if t.op() == Op::Where && t.src()[1].op() == Op::Const && t.src()[2].op() == Op::Const {
        let arm = |k: usize| Some(truth(u, int(&t.src()[k])?.checked_mul(*f)? < c));
        return Some(t.src()[0].select(&arm(1)?, &arm(2)?));
    }
    None
}

/// `a != b`, `a == b` on index arithmetic.
pub(crate) fn equal(u: &UOp) -> Option<UOp> {
    let (a, b) = (&u.src()[0], &u.src()[1]);
    if !is_index(a) {
        return None;
    }
    let mut d = Linear::of(a)?;
    d.add(b, -1)?;
    let mut c = -d.konst;
    d.konst = 0;
    let want = u.op() == Op::CmpEq;
    let Bounds { min, max } = tight_bounds(&d);
    if c < min || c > max {
        return Some(truth(u, !want));
    }
    if d.terms.is_empty() {
        return Some(truth(u, want));
    }
    let g = d.content();
    if g > 1 {
        if floor_mod(c, g) != 0 {
            return Some(truth(u, !want));
        }
        (d, c) = (d.map(|f| f / g, 0), c / g);
    }
    // The first term in order is positive.
    sort::by(&mut d.terms, |x, y| super::order::cmp(&x.0, &y.0));
    if d.terms[0].1 < 0 {
        (d, c) = (d.map(|f| -f, 0), -c);
    }
    let pos = Linear { terms: d.terms.iter().filter(|t| t.1 > 0).cloned().collect(), ..Linear::zero(d.dtype) };
    let mut neg =
        Linear { terms: d.terms.iter().filter(|t| t.1 < 0).cloned().collect(), ..Linear::zero(d.dtype) }.map(|f| -f, 0);
    neg.konst = c;
    Some(pos.build().binary(u.op(), &neg.build()))
}

/// `x + k < c` of machine integers whose bounds exclude wrap-around; `c < x + k`, `x + k == c` likewise.
pub(crate) fn machine_compare(u: &UOp) -> Option<UOp> {
    let (a, b) = (&u.src()[0], &u.src()[1]);
    if !a.dtype().is_int() || is_index(a) {
        return None;
    }
    let range = Bounds::full(a.dtype());
    let moved = |x: &UOp, c: i128| -> Option<(UOp, UOp)> {
        if x.op() != Op::Add {
            return None;
        }
        let (y, k) = (&x.src()[0], int(&x.src()[1])?);
        let wraps = y.vmin() + k < range.min || y.vmax() + k > range.max;
        let fits = (range.min..=range.max).contains(&(c - k));
        // Equality is unharmed by wrap-around.
        let free = u.op() != Op::CmpLt;
        (free || !wraps && fits).then(|| (y.clone(), lit(x, c - k)))
    };
    if let Some(c) = int(b)
        && let Some((y, k)) = moved(a, c)
    {
        return Some(y.binary(u.op(), &k));
    }
    if let Some(c) = int(a)
        && let Some((y, k)) = moved(b, c)
    {
        return Some(k.binary(u.op(), &y));
    }
    None
}

/// A bool converted to a number and compared with a constant.
pub(crate) fn of_bool_cast(u: &UOp) -> Option<UOp> {
    let (a, b) = (&u.src()[0], &u.src()[1]);
    if a.op() != Op::Cast || !a.src()[0].dtype().is_bool() {
        return None;
    }
    let (x, c) = (&a.src()[0], b.as_const()?.as_f64());
    let test = |v: f64| match u.op() {
        Op::CmpLt => v < c,
        Op::CmpEq => v == c,
        _ => v != c,
    };
    Some(match (test(0.0), test(1.0)) {
        (false, false) => truth(u, false),
        (true, true) => truth(u, true),
        (false, true) => x.clone(),
        (true, false) => x.not(),
    })
}

/// What the bounds of both sides decide, and comparisons of a value with itself.
pub(crate) fn by_bounds(u: &UOp) -> Option<UOp> {
    let (a, b) = (&u.src()[0], &u.src()[1]);
    if a == b {
        return match u.op() {
            Op::CmpLt => Some(truth(u, false)),
            // NaN differs from itself.
            _ if a.dtype().is_float() => None,
            op => Some(truth(u, op == Op::CmpEq)),
        };
    }
    if a.dtype().is_float() || a.dtype().space.is_some() {
        return None;
    }
    (u.vmin() == u.vmax()).then(|| truth(u, u.vmin() == 1))
}

/// `!(a < b)` of integers, `!(a == b)`, `!(a != b)`.
pub(crate) fn negated(u: &UOp) -> Option<UOp> {
    let (x, t) = (&u.src()[0], &u.src()[1]);
    if u.op() != Op::CmpNe || !x.dtype().is_bool() || !t.as_const().is_some_and(ConstVal::is_one) {
        return None;
    }
    let s = x.src();
    match x.op() {
        Op::CmpEq => Some(s[0].ne(&s[1])),
        Op::CmpNe if s[0].dtype().is_bool() && s[1].as_const().is_some_and(ConstVal::is_one) => Some(s[0].clone()),
        Op::CmpNe => Some(s[0].equal(&s[1])),
        Op::CmpLt if s[0].dtype().is_int() => {
            let full = Bounds::full(s[0].dtype());
            match (int(&s[0]), int(&s[1])) {
                // !(x < c): c-1 < x
                (None, Some(c)) if c > full.min => Some(lit(&s[0], c - 1).lt(&s[0])),
                // !(c < x): x < c+1
                (Some(c), None) if c < full.max => Some(s[1].lt(&lit(&s[1], c + 1))),
                _ if is_index(&s[0]) => Some(s[1].lt(&linear_plus_one(&s[0]))),
                _ => None,
            }
        }
        _ => None,
    }
}

fn linear_plus_one(u: &UOp) -> UOp {
    u.binary(Op::Add, &lit(u, 1))
}

/// A condition on one expression as an interval: `lo <= expr <= hi`.
pub(crate) fn as_interval(v: &UOp) -> Option<(UOp, i128, i128)> {
    let s = v.src();
    if s.len() != 2 || !s[0].dtype().is_int() {
        return None;
    }
    let (x, lo, hi) = match (v.op(), int(&s[0]), int(&s[1])) {
        (Op::CmpLt, None, Some(c)) => (&s[0], s[0].vmin(), c - 1),
        (Op::CmpLt, Some(c), None) => (&s[1], c + 1, s[1].vmax()),
        (Op::CmpEq, None, Some(c)) => (&s[0], c, c),
        // x < y: as far as the bounds of the other side say.
        (Op::CmpLt, None, None) => (&s[0], s[0].vmin(), s[1].vmax() - 1),
        _ => return None,
    };
    Some((x.clone(), lo.max(x.vmin()), hi.min(x.vmax())))
}
