//! Floor division and remainder of index arithmetic: `WeakInt`, exact.
//!
//! With x = sum of f*t + k and a positive constant divisor c these identities hold for every sign of x, because the
//! quotient is rounded down:
//! - multiples of c move out of the numerator;
//! - a common divisor g of all f and c divides both;
//! - `(x//a + k)//c = (x + k*a)//(a*c)`;
//! - `(x % (k*c))//c = (x//c) % k`;
//! - `x%c = ((x//d) % (c/d))*d + x%d` for d | c.
//!
//! An identity is applied if the result has fewer or cheaper nodes. The cases are known from tinygrad's
//! `uop/divandmod.py`, and the names of rules follow it.

use super::linear::{self, Linear, Product};
use crate::{Bounds, ConstVal, DType, Op, UOp, USet, floor_div, floor_mod};
use smallvec::SmallVec;

/// FloorDiv and FloorMod nodes whose sources are simplified.
pub(crate) fn fold(u: &UOp) -> Option<UOp> {
    if u.dtype().scalar != DType::INDEX.scalar {
        return None;
    }
    let (x, y, modulo) = (&u.src()[0], &u.src()[1], u.op() == Op::FloorMod);
    if let Some(q) = constant_quotient(x.bounds(), y.bounds()) {
        return Some(if modulo { x - &(y * &index(u, q)) } else { index(u, q) });
    }
    match y.as_const().and_then(ConstVal::as_int) {
        Some(0) => Some(index(u, 0)),
        Some(c) if c > 0 => {
            let x = Linear::of(x)?;
            if modulo { mod_positive(&x, c) } else { div_positive(&x, c) }
        }
        Some(c) => negative(&Linear::of(x)?, c, modulo),
        None => symbolic(u, x, y, modulo),
    }
}

fn index(u: &UOp, v: i128) -> UOp {
    UOp::constant(u.dtype(), ConstVal::Int(v))
}
fn lit(dtype: DType, v: i128) -> UOp {
    UOp::constant(dtype, ConstVal::Int(v))
}
fn div(x: UOp, c: i128) -> UOp {
    if c == 1 { x } else { x.floordiv(&lit(x.dtype(), c)) }
}
fn modulo(x: UOp, c: i128) -> UOp {
    if c == 1 { lit(x.dtype(), 0) } else { x.floormod(&lit(x.dtype(), c)) }
}
fn as_div(u: &UOp, op: Op) -> Option<(&UOp, i128)> {
    if u.op() != op {
        return None;
    }
    Some((&u.src()[0], u.src()[1].as_const()?.as_int()?))
}

/// The quotient if all corners agree and the divisor is never zero.
fn constant_quotient(x: Bounds, y: Bounds) -> Option<i128> {
    if y.min <= 0 && y.max >= 0 {
        return None;
    }
    let q = floor_div(x.min, y.min);
    let same = [(x.min, y.max), (x.max, y.min), (x.max, y.max)].iter().all(|(a, b)| floor_div(*a, *b) == q);
    same.then_some(q)
}

/// x = whole*c + rest with the coefficients of `rest` smaller than c (sign kept) and its constant in 0..c.
fn reduce(x: &Linear, c: i128) -> (Linear, Linear) {
    (x.map(|f| f / c, floor_div(x.konst, c)), x.map(|f| f % c, floor_mod(x.konst, c)))
}

fn is_zero(l: &Linear) -> bool {
    l.terms.is_empty() && l.konst == 0
}

fn plus(whole: &Linear, part: UOp) -> UOp {
    if is_zero(whole) { part } else { whole.clone().build().binary(Op::Add, &part) }
}

fn div_positive(x: &Linear, c: i128) -> Option<UOp> {
    if c == 1 {
        return Some(x.clone().build());
    }
    let (whole, rest) = reduce(x, c);
    if rest.terms.is_empty() {
        // The constant lies in 0..c.
        return Some(whole.build());
    }
    if let [(t, 1)] = rest.terms.as_slice() {
        if let Some((z, a)) = as_div(t, Op::FloorDiv)
            && a != 0
        {
            let mut n = Linear::of(z)?;
            n.konst = n.konst.checked_add(rest.konst.checked_mul(a)?)?;
            return Some(plus(&whole, div(n.build(), a.checked_mul(c)?)));
        }
        if let Some((z, m)) = as_div(t, Op::FloorMod)
            && rest.konst == 0
            && m > 0
            && m % c == 0
        {
            return Some(plus(&whole, modulo(div(z.clone(), c), m / c)));
        }
    }
    if let Some((r, q)) = congruence(&rest, c) {
        let mut out = rest.map(|_| 0, q);
        for (k, (t, f)) in rest.terms.iter().enumerate() {
            out.add_term(t, (f - r[k]) / c)?;
        }
        return Some(plus(&whole, out.build()));
    }
    let g = linear::gcd(rest.content(), c);
    if g > 1 {
        let n = rest.map(|f| f / g, floor_div(rest.konst, g));
        return Some(plus(&whole, div(n.build(), c / g)));
    }
    if let Some(n) = nest(&rest, c, false) {
        return Some(plus(&whole, n));
    }
    (!is_zero(&whole)).then(|| plus(&whole, div(rest.build(), c)))
}

fn mod_positive(x: &Linear, c: i128) -> Option<UOp> {
    if c == 1 {
        return Some(lit(x.dtype, 0));
    }
    let (whole, mut rest) = reduce(x, c);
    let mut changed = !is_zero(&whole);
    // f*(z % m) is congruent to f*z where c divides f*m.
    for (t, f) in rest.clone().terms {
        if let Some((z, m)) = as_div(&t, Op::FloorMod)
            && m != 0
            && f * m % c == 0
        {
            rest.add_term(&t, -f)?;
            rest.add(z, f)?;
            changed = true;
        }
    }
    if changed {
        rest = reduce(&rest, c).1;
    }
    if rest.terms.is_empty() {
        return Some(lit(x.dtype, rest.konst));
    }
    if let Some((r, q)) = congruence(&rest, c) {
        let mut out = Linear::constant(x.dtype, rest.konst - q * c);
        for (k, (t, _)) in rest.terms.iter().enumerate() {
            out.add_term(t, r[k])?;
        }
        return Some(out.build());
    }
    let g = linear::gcd(rest.content(), c);
    if g > 1 {
        let n = rest.map(|f| f / g, floor_div(rest.konst, g));
        let m = modulo(n.build(), c / g).binary(Op::Mul, &lit(x.dtype, g));
        return Some(m.binary(Op::Add, &lit(x.dtype, floor_mod(rest.konst, g))));
    }
    if let Some(n) = nest(&rest, c, true) {
        return Some(n);
    }
    changed.then(|| modulo(rest.build(), c))
}

/// Remainders r (one a term, r ≡ f mod c) such that sum of r*t + k stays within one period: returns them and its
/// quotient. A lone term and an exact tie try both signs; several terms take the smaller one.
fn congruence(x: &Linear, c: i128) -> Option<(SmallVec<[i128; 6]>, i128)> {
    let n = x.terms.len();
    if n > 10 {
        return None;
    }
    let mut choices: SmallVec<[(i128, i128); 6]> = SmallVec::new();
    let mut both = 0u32;
    for (k, (_, f)) in x.terms.iter().enumerate() {
        let r = floor_mod(*f, c);
        if r * 2 == c || n <= 2 {
            both |= 1 << k;
        }
        choices.push(if 2 * r > c { (r - c, r) } else { (r, r - c) });
    }
    let tries = 1u32 << n;
    (0..tries).filter(|pick| pick & !both == 0).find_map(|pick| {
        let r: SmallVec<[i128; 6]> =
            choices.iter().enumerate().map(|(k, ch)| if pick >> k & 1 == 0 { ch.0 } else { ch.1 }).collect();
        let (mut lo, mut hi) = (x.konst, x.konst);
        for (k, (t, _)) in x.terms.iter().enumerate() {
            let (a, b) = (t.vmin().saturating_mul(r[k]), t.vmax().saturating_mul(r[k]));
            lo = lo.saturating_add(a.min(b));
            hi = hi.saturating_add(a.max(b));
        }
        let q = floor_div(lo, c);
        (q == floor_div(hi, c)).then_some((r, q))
    })
}

/// x//c = (x//d)//(c/d) and x%c = ((x//d) % (c/d))*d + x%d for the d among the coefficients that makes the result
/// smallest.
fn nest(x: &Linear, c: i128, want_mod: bool) -> Option<UOp> {
    let mut tried: SmallVec<[i128; 4]> = SmallVec::new();
    let mut best: Option<(usize, UOp)> = None;
    for (_, f) in &x.terms {
        let d = f.abs();
        if d <= 1 || d >= c || c % d != 0 || tried.contains(&d) {
            continue;
        }
        tried.push(d);
        let Some(inner) = div_positive(x, d) else { continue };
        let inner = inner.simplify();
        let result = if want_mod {
            let low = x.map(|f| floor_mod(f, d), floor_mod(x.konst, d));
            let b = low.bounds();
            if b.min < 0 || b.max >= d {
                continue;
            }
            let high = modulo(inner, c / d).binary(Op::Mul, &lit(x.dtype, d));
            high.binary(Op::Add, &low.build())
        } else {
            div(inner, c / d)
        };
        let result = result.simplify();
        let size = count_nodes(&result);
        if best.as_ref().is_none_or(|(s, _)| size < *s) {
            best = Some((size, result));
        }
    }
    best.map(|b| b.1)
}

/// Number of distinct nodes.
pub(crate) fn count_nodes(u: &UOp) -> usize {
    let (mut seen, mut todo) = (USet::default(), vec![u]);
    while let Some(u) = todo.pop() {
        if seen.insert(u.clone()) {
            todo.extend(u.src());
        }
    }
    seen.len()
}

/// Negative constant divisors stay; multiples of them leave the numerator.
fn negative(x: &Linear, c: i128, want_mod: bool) -> Option<UOp> {
    let (whole, rest) = reduce(x, c);
    if c == -1 || rest.terms.is_empty() && rest.konst == 0 {
        return Some(if want_mod { lit(x.dtype, 0) } else { x.map(|f| f / c, x.konst / c).build() });
    }
    if is_zero(&whole) {
        return None;
    }
    let n = rest.build();
    Some(if want_mod { n.floormod(&lit(x.dtype, c)) } else { plus(&whole, n.floordiv(&lit(x.dtype, c))) })
}

fn symbolic(u: &UOp, x: &UOp, y: &UOp, want_mod: bool) -> Option<UOp> {
    // A range is smaller than its own bound.
    if x.op() == Op::Range && x.src()[0] == *y {
        return Some(if want_mod { x.clone() } else { index(u, 0) });
    }
    // Division by zero gives zero, so what follows needs a divisor that never is.
    if y.vmin() <= 0 && y.vmax() >= 0 {
        return None;
    }
    if x == y {
        return Some(index(u, if want_mod { 0 } else { 1 }));
    }
    if let Some(g) = linear::common_factor(&[x, y])
        && (g.coef > 1 || !g.factors.is_empty())
        && let (Some(xs), Some(ys)) = (divide_by(x, &g), divide_by(y, &g))
    {
        let r = xs.binary(u.op(), &ys);
        return Some(if want_mod { r.binary(Op::Mul, &g.build(u.dtype())) } else { r });
    }
    // Multiples of y move out of the numerator.
    let (lx, py) = (Linear::of(x)?, Product::of(y)?);
    let (mut quotient, mut rest) = (Linear::zero(u.dtype()), Linear::zero(u.dtype()));
    for (t, f) in &lx.terms {
        let single = Linear { terms: SmallVec::from_iter([(t.clone(), *f)]), konst: 0, dtype: u.dtype() };
        match linear::divide_linear(&single, &py) {
            Some(q) => quotient.add_linear(&q, 1)?,
            None => rest.add_term(t, *f)?,
        }
    }
    rest.konst = lx.konst;
    // A sum may contain y as a whole: subtract the multiple that its first term implies.
    if is_zero(&quotient) {
        let ly = Linear::of(y)?;
        let (t, f) = ly.terms.first()?;
        let (_, have) = rest.terms.iter().find(|r| r.0 == *t)?;
        let k = have / f;
        if k == 0 || ly.terms.len() + usize::from(ly.konst != 0) < 2 {
            return None;
        }
        let before = rest.terms.len();
        rest.add_linear(&ly, -k)?;
        quotient.konst = k;
        if rest.terms.len() >= before {
            return None;
        }
    }
    let r = rest.build().binary(u.op(), y);
    Some(if want_mod { r } else { plus(&quotient, r) })
}

fn divide_by(x: &UOp, g: &Product) -> Option<UOp> {
    linear::divide_linear(&Linear::of(x)?, g).map(Linear::build)
}
