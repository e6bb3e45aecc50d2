//! Index arithmetic: what a movement op does to the list of indices of its output.
//!
//! An index is a WeakInt expression over ranges and variables. Sums are kept as linear combinations in one canonical
//! order (largest stride first), so that equal addresses are the identical node and most divisions of a reshape vanish
//! by looking at coefficients and bounds. What remains is left to `UOp::simplify` when a kernel is finished.

use crate::sort;
use crate::uop::{Dim, Op, UMap, UOp, floor_div};
use smallvec::SmallVec;

/// Indices of one element, one an axis.
pub(crate) type Idx = SmallVec<[UOp; 6]>;

/// A sum of `coefficient * atom` plus a constant; an atom is any index expression that is not itself a sum.
#[derive(Clone, Default)]
pub(crate) struct Lin {
    terms: SmallVec<[(UOp, i64); 6]>,
    constant: i64,
}

impl Lin {
    /// Reads `u` as a linear combination; `None` if a coefficient overflows.
    pub(crate) fn of(u: &UOp) -> Option<Lin> {
        let mut lin = Lin::default();
        lin.accumulate(u, 1)?;
        Some(lin)
    }

    fn accumulate(&mut self, u: &UOp, scale: i64) -> Option<()> {
        let mut todo: SmallVec<[(UOp, i64); 8]> = SmallVec::new();
        todo.push((u.clone(), scale));
        while let Some((u, scale)) = todo.pop() {
            match (u.op(), u.src()) {
                (Op::Const, _) => {
                    self.constant = self.constant.checked_add(u.as_int()?.checked_mul(scale)?)?;
                }
                (Op::Add, [a, b]) => {
                    todo.push((b.clone(), scale));
                    todo.push((a.clone(), scale));
                }
                (Op::Sub, [a, b]) => {
                    todo.push((b.clone(), scale.checked_neg()?));
                    todo.push((a.clone(), scale));
                }
                (Op::Neg, [a]) => todo.push((a.clone(), scale.checked_neg()?)),
                (Op::Mul, [a, b]) => match (a.as_int(), b.as_int()) {
                    (Some(k), _) => todo.push((b.clone(), scale.checked_mul(k)?)),
                    (_, Some(k)) => todo.push((a.clone(), scale.checked_mul(k)?)),
                    _ => self.term(u, scale)?,
                },
                _ => self.term(u, scale)?,
            }
        }
        Some(())
    }

    fn term(&mut self, atom: UOp, scale: i64) -> Option<()> {
        match self.terms.iter_mut().find(|t| t.0 == atom) {
            Some(t) => t.1 = t.1.checked_add(scale)?,
            None => self.terms.push((atom, scale)),
        }
        Some(())
    }

    /// `(x / c) * c * k + (x mod c) * k` is `x * k`: a split that its merge undoes.
    fn recombine(&mut self) {
        while let Some((q, r, x, k)) = self.split_pair() {
            let (high, low) = (q.max(r), q.min(r));
            self.terms.remove(high);
            self.terms.remove(low);
            if self.accumulate(&x, k).is_none() {
                return;
            }
        }
    }

    fn split_pair(&self) -> Option<(usize, usize, UOp, i64)> {
        self.terms.iter().enumerate().find_map(|(r, (rem, k))| {
            let [x, c] = rem.src() else { return None };
            let (true, Some(by)) = (rem.op() == Op::FloorMod, c.as_int()) else { return None };
            let is_quotient = |(a, j): &(UOp, i64)| {
                a.op() == Op::FloorDiv && a.src()[..] == rem.src()[..] && Some(*j) == k.checked_mul(by)
            };
            let q = self.terms.iter().position(is_quotient)?;
            Some((q, r, x.clone(), *k))
        })
    }

    /// The combination as an expression, terms in canonical order: largest stride first, then by range number.
    pub(crate) fn build(mut self) -> UOp {
        self.recombine();
        self.terms.retain(|t| t.1 != 0);
        sort::by_key(&mut self.terms, |(a, k)| {
            (std::cmp::Reverse(k.unsigned_abs()), a.range_arg().map_or(u32::MAX, |r| r.id))
        });
        let mut sum: Option<UOp> = None;
        for (atom, k) in self.terms {
            let t = if k == 1 { atom } else { &atom * k };
            sum = Some(sum.map_or_else(|| t.clone(), |s| &s + &t));
        }
        match sum {
            None => UOp::int(self.constant),
            Some(s) if self.constant == 0 => s,
            Some(s) => &s + self.constant,
        }
    }

    /// The sum without its multiple of `atom`, whatever the factor.
    pub(crate) fn without_term(mut self, atom: &UOp) -> UOp {
        self.terms.retain(|t| t.0 != *atom);
        self.build()
    }

    /// The other terms, if `atom` is in the sum exactly once.
    pub(crate) fn without(mut self, atom: &UOp) -> Option<UOp> {
        let at = self.terms.iter().position(|t| t.0 == *atom && t.1 == 1)?;
        self.terms.remove(at);
        Some(self.build())
    }

    /// The range of `ranges` that the sum determines when the others are known, if it contains no other of them.
    pub(crate) fn only_of(&self, ranges: &[UOp]) -> Option<UOp> {
        let mut found = None;
        for (atom, _) in self.terms.iter().filter(|t| t.1 != 0) {
            match ranges.iter().find(|r| *r == atom) {
                Some(r) if found.is_none() => found = Some(r.clone()),
                Some(_) => return None,
                None if atom.op() != Op::Range && ranges.iter().any(|r| atom.contains(r)) => return None,
                None => {}
            }
        }
        found
    }

    /// Smallest and largest value of the sum.
    fn bounds(&self) -> (i128, i128) {
        let (mut lo, mut hi) = (self.constant as i128, self.constant as i128);
        for (a, k) in &self.terms {
            let (x, y) = (a.vmin().saturating_mul(*k as i128), a.vmax().saturating_mul(*k as i128));
            lo = lo.saturating_add(x.min(y));
            hi = hi.saturating_add(x.max(y));
        }
        (lo, hi)
    }

    /// Splits into (quotient, remainder) by `c` > 0 where both are linear, else the remainder part is left to `rest`.
    fn split(&self, c: i64) -> (Lin, Lin) {
        let (mut q, mut r) = (Lin::default(), Lin::default());
        for (a, k) in &self.terms {
            if k % c == 0 {
                q.terms.push((a.clone(), k / c));
            } else {
                r.terms.push((a.clone(), *k));
            }
        }
        q.constant = self.constant.div_euclid(c);
        r.constant = self.constant.rem_euclid(c);
        (q, r)
    }

    /// Quotient and remainder by `c` of a sum whose coefficients are near multiples of `c`, each replaced by its
    /// distance from the nearest one: with c = 25, 24 * a + b is 25 * a + (b - a). `None`: that does not come within a
    /// step of being in 0..c.
    fn near(&self, c: i64) -> Option<(UOp, UOp)> {
        let (mut q, mut r) = (Lin::default(), Lin::default());
        for (a, k) in &self.terms {
            let whole = k.checked_add(c / 2)?.div_euclid(c);
            q.terms.push((a.clone(), whole));
            r.terms.push((a.clone(), k - whole * c));
        }
        (q.constant, r.constant) = (self.constant.div_euclid(c), self.constant.rem_euclid(c));
        let (lo, hi) = r.bounds();
        if lo < -(c as i128) || hi >= c as i128 || q.terms.iter().all(|t| t.1 == 0) {
            return None;
        }
        if lo >= 0 {
            return Some((q.build(), r.build()));
        }
        let (n, m) = (r.build(), UOp::int(c));
        q.accumulate(&n.floordiv(&m), 1)?;
        Some((q.build(), n.floormod(&m)))
    }

    fn gcd(&self, c: i64) -> i64 {
        self.terms.iter().fold(c, |g, t| gcd(g, t.1))
    }

    /// All coefficients divided by `g`, the constant rounded down.
    fn scaled_down(&self, g: i64) -> Lin {
        Lin {
            terms: self.terms.iter().map(|(a, k)| (a.clone(), k / g)).collect(),
            constant: self.constant.div_euclid(g),
        }
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// `a + b`
pub(crate) fn add(a: &UOp, b: &UOp) -> UOp {
    let mut lin = Lin::default();
    match lin.accumulate(a, 1).and_then(|()| lin.accumulate(b, 1)) {
        Some(()) => lin.build(),
        None => a + b,
    }
}

/// `a * b`, either of which may be symbolic.
pub(crate) fn mul(a: &UOp, b: &UOp) -> UOp {
    let (x, k) = match (a.as_int(), b.as_int()) {
        (_, Some(k)) => (a, k),
        (Some(k), _) => (b, k),
        _ => return a * b,
    };
    let mut lin = Lin::default();
    match lin.accumulate(x, k) {
        Some(()) => lin.build(),
        None => a * b,
    }
}

/// `x / d` rounded down and `x mod d`, for `d` > 0.
pub(crate) fn div_mod(x: &UOp, d: &UOp) -> (UOp, UOp) {
    if x.vmin() >= 0 && x.vmax() < d.vmin() {
        return (UOp::int(0), x.clone());
    }
    let Some(c) = d.as_int().filter(|c| *c > 0) else {
        return (x.floordiv(d), x.floormod(d));
    };
    if c == 1 {
        return (x.clone(), UOp::int(0));
    }
    let Some(lin) = Lin::of(x) else { return (x.floordiv(d), x.floormod(d)) };
    let (mut q, r) = lin.split(c);
    let (lo, hi) = r.bounds();
    let k = floor_div(lo, c as i128);
    if k == floor_div(hi, c as i128)
        && let Ok(k) = i64::try_from(k)
    {
        q.constant += k;
        let mut r = r;
        r.constant -= k * c;
        return (q.build(), r.build());
    }
    let g = r.gcd(c);
    if let Some(near) = (g == 1).then(|| lin.near(c)).flatten() {
        return near;
    }
    let (inner, low) = (r.scaled_down(g), r.constant.rem_euclid(g));
    let (n, m) = (inner.clone().build(), UOp::int(c / g));
    let (div, rem) = (n.floordiv(&m), n.floormod(&m));
    let mut whole = q;
    let ok = whole.accumulate(&div, 1);
    let mut part = Lin { constant: low, ..Lin::default() };
    match ok.and_then(|()| part.accumulate(&rem, g)) {
        Some(()) => (whole.build(), part.build()),
        None => (x.floordiv(d), x.floormod(d)),
    }
}

/// `x < d` and `x >= 0` as far as the bounds do not already imply it; `None`: always true.
pub(crate) fn within(x: &UOp, size: &Dim) -> Option<UOp> {
    let x = size.as_int().and_then(|n| unwrapped(x, n)).unwrap_or_else(|| x.clone());
    let low = (x.vmin() < 0).then(|| UOp::int(-1).lt(&x));
    let n = size.uop();
    let high = (x.vmax() >= n.vmin()).then(|| x.lt(&n));
    both(low, high)
}

/// The `n` of `n mod m` where the remainder is below `size` only if `n` is it: what is negative wraps to `size` or
/// more.
pub(crate) fn unwrapped(x: &UOp, size: i64) -> Option<UOp> {
    let ([n, m], Op::FloorMod) = (x.src(), x.op()) else { return None };
    let m = m.as_int()?;
    (n.vmin() >= i128::from(size) - i128::from(m) && n.vmax() < i128::from(m)).then(|| n.clone())
}

/// Indices that are used only where `x`, a remainder, is below `size`, if [`unwrapped`] knows it: without the wrap.
pub(crate) fn unwrap(idx: &mut Idx, x: &UOp, size: i64) {
    let Some(n) = unwrapped(x, size) else { return };
    let quotient = n.floordiv(&x.src()[1]);
    let map: UMap<UOp> = [(x.clone(), n), (quotient, UOp::int(0))].into_iter().collect();
    for i in idx.iter_mut() {
        *i = add(&i.substitute(&map), &UOp::int(0));
    }
}

/// Conjunction of two gates; `None` is "always".
pub(crate) fn both(a: Option<UOp>, b: Option<UOp>) -> Option<UOp> {
    match (a, b) {
        (Some(a), Some(b)) if a == b => Some(a),
        (Some(a), Some(b)) => Some(a.and(&b)),
        (a, b) => a.or(b),
    }
}

/// Position of element `idx` in a dense row-major array of `shape`.
pub(crate) fn flatten(idx: &[UOp], shape: &[Dim]) -> UOp {
    let mut flat = UOp::int(0);
    let mut stride = UOp::int(1);
    for (i, d) in idx.iter().zip(shape).rev() {
        flat = add(&flat, &mul(i, &stride));
        stride = mul(&stride, &d.uop());
    }
    flat
}

/// Indices of the element at position `flat` of a dense row-major array of `shape`.
pub(crate) fn unflatten(flat: &UOp, shape: &[Dim], out: &mut Idx) {
    let at = out.len();
    let mut rest = flat.clone();
    for (k, d) in shape.iter().enumerate().rev() {
        if k == 0 || d.is(1) {
            out.insert(at, if d.is(1) { UOp::int(0) } else { rest.clone() });
            continue;
        }
        let (q, r) = div_mod(&rest, &d.uop());
        // The outermost axis that is not 1 takes the rest: the position is in bounds.
        if shape[..k].iter().all(|d| d.is(1)) {
            out.insert(at, rest.clone());
            rest = UOp::int(0);
        } else {
            out.insert(at, r);
            rest = q;
        }
    }
}

/// Indices into the source (of shape `from`) of a reshape, given those of its output (of shape `to`).
///
/// Axes are matched in the smallest groups of equal size, so only real merges and splits cost arithmetic.
pub(crate) fn reshape(idx: &[UOp], to: &[Dim], from: &[Dim]) -> Idx {
    let mut out = Idx::new();
    let (mut i, mut j) = (0, 0);
    while i < from.len() || j < to.len() {
        if i < from.len() && from[i].is(1) {
            out.push(UOp::int(0));
            i += 1;
        } else if j < to.len() && to[j].is(1) {
            j += 1;
        } else if i < from.len() && j < to.len() && from[i] == to[j] {
            out.push(idx[j].clone());
            (i, j) = (i + 1, j + 1);
        } else {
            let (i2, j2) = group(&from[i..], &to[j..]);
            let flat = flatten(&idx[j..j + j2], &to[j..j + j2]);
            unflatten(&flat, &from[i..i + i2], &mut out);
            (i, j) = (i + i2, j + j2);
        }
    }
    out
}

/// Lengths of the shortest prefixes with equal products; everything if a symbolic size or a zero is in the way.
fn group(a: &[Dim], b: &[Dim]) -> (usize, usize) {
    let (mut i, mut j, mut pa, mut pb) = (0, 0, 1i64, 1i64);
    loop {
        if pa == pb && i > 0 && j > 0 {
            return (i, j);
        }
        let (side, list, n) = if pa <= pb { (&mut pa, a, &mut i) } else { (&mut pb, b, &mut j) };
        match list.get(*n).and_then(Dim::as_int) {
            Some(d) if d > 0 => {
                *side = side.saturating_mul(d);
                *n += 1;
            }
            _ => return (a.len(), b.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uop::AxisKind;

    fn r(n: i64, id: u32) -> UOp {
        UOp::range(n, id, AxisKind::Loop)
    }
    fn dims(d: &[i64]) -> Vec<Dim> {
        d.iter().map(|x| Dim::Int(*x)).collect()
    }

    #[test]
    fn a_split_and_its_merge_cancel() {
        let (a, b) = (r(4, 0), r(6, 1));
        let merged = reshape(&[a.clone(), b.clone()], &dims(&[4, 6]), &dims(&[24]));
        let back = reshape(&merged, &dims(&[24]), &dims(&[4, 6]));
        assert_eq!(back.as_slice(), [a, b]);
    }

    #[test]
    fn axes_that_a_reshape_keeps_are_passed_through_whole() {
        let i = [r(3, 0), r(8, 1), r(5, 2)];
        let got = reshape(&i, &dims(&[3, 8, 5]), &dims(&[3, 2, 1, 4, 5, 1]));
        assert_eq!(got[0], i[0]);
        assert_eq!(got[4], i[2]);
        assert_eq!(got[1].render(), "r1//4");
        assert_eq!(got[3].render(), "r1%4");
    }

    #[test]
    fn a_merge_after_a_shifted_split_is_the_shifted_index() {
        let a = r(32, 0);
        let two = reshape(std::slice::from_ref(&a), &dims(&[32]), &dims(&[2, 16]));
        let moved = [add(&two[0], &UOp::int(2)), two[1].clone()];
        assert_eq!(flatten(&moved, &dims(&[16, 16])).render(), "r0+32");
    }

    #[test]
    fn rows_one_longer_than_their_stride_are_indexed_by_the_difference() {
        // Five copies of 24 elements read in rows of 25, of which the first 20 count.
        let (copy, p) = (r(5, 0), r(24, 1));
        let (row, at) = div_mod(&(&(&copy * 24) + &p), &UOp::int(25));
        assert_eq!(at.op(), Op::FloorMod);
        let valid = within(&at, &Dim::Int(20)).unwrap();
        let mut idx: Idx = [row, at.clone()].into_iter().collect();
        unwrap(&mut idx, &at, 20);
        assert_eq!(idx[0], copy);
        for (c, x) in (0..5).flat_map(|c| (0..24).map(move |x| (c, x))) {
            let set: UMap<UOp> = [(copy.clone(), UOp::int(c)), (p.clone(), UOp::int(x))].into_iter().collect();
            let now = |u: &UOp| u.substitute(&set).simplify();
            let (flat, inside) = (c * 24 + x, (c * 24 + x) % 25 < 20);
            assert_eq!(now(&valid), UOp::bool(inside), "copy {c}, element {x}");
            if inside {
                assert_eq!((now(&idx[0]), now(&idx[1])), (UOp::int(flat / 25), UOp::int(flat % 25)));
            }
        }
    }

    #[test]
    fn a_remainder_that_may_wrap_into_the_wanted_part_stays() {
        let (a, b) = (r(5, 0), r(24, 1));
        let (_, at) = div_mod(&(&(&a * 24) + &b), &UOp::int(25));
        assert_eq!(unwrapped(&at, 22), None);
    }

    #[test]
    fn division_of_a_sum_uses_strides_and_bounds() {
        let (a, b) = (r(10, 0), r(3, 1));
        let x = &(&a * 12) + &(&b * 4);
        let (q, m) = div_mod(&x, &UOp::int(12));
        assert_eq!((q, m), (a.clone(), &b * 4));
        let (q, m) = div_mod(&(&(&a * 2) + 1), &UOp::int(4));
        assert_eq!(q.render(), "r0//2");
        assert_eq!(m.render(), "((r0%2)*2)+1");
    }
}
