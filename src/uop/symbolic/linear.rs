//! Sums as data: integer coefficients times terms, plus a constant. The normal form of index arithmetic.
//!
//! Valid for `WeakInt`, whose arithmetic is taken to be exact (an index never leaves i64). Constants distribute over
//! sums, equal terms are one term, and [`Linear::build`] has one spelling of a sum: terms in structural order, constant
//! last.

use super::order;
use crate::{Bounds, ConstVal, DType, Op, UOp};
use doorbell_sort as sort;
use smallvec::SmallVec;

/// Larger sums are not normalised, so that simplifying a long chain stays linear.
const MAX_TERMS: usize = 64;

/// `sum of coefficient * term + konst`; terms are distinct, coefficients not zero.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Linear {
    /// Terms and their coefficients, in no particular order until [`Linear::build`] sorts them.
    pub terms: SmallVec<[(UOp, i128); 6]>,
    /// The constant of the sum.
    pub konst: i128,
    /// Type of the terms and of the sum.
    pub dtype: DType,
}

fn int(u: &UOp) -> Option<i128> {
    u.as_const().and_then(ConstVal::as_int)
}

impl Linear {
    /// The sum without terms: 0.
    pub fn zero(dtype: DType) -> Linear {
        Linear { terms: SmallVec::new(), konst: 0, dtype }
    }
    /// The sum without terms that is `konst`.
    pub fn constant(dtype: DType, konst: i128) -> Linear {
        Linear { konst, ..Linear::zero(dtype) }
    }
    /// `None`: too many terms, or coefficients beyond i64.
    pub fn of(u: &UOp) -> Option<Linear> {
        let mut l = Linear::zero(u.dtype());
        l.add(u, 1)?;
        Some(l)
    }
    /// Adds `coef * u`.
    pub fn add(&mut self, u: &UOp, coef: i128) -> Option<()> {
        let mut todo: SmallVec<[(&UOp, i128); 8]> = SmallVec::new();
        todo.push((u, coef));
        while let Some((u, c)) = todo.pop() {
            let s = u.src();
            match u.op() {
                Op::Const => self.konst = self.konst.checked_add(c.checked_mul(int(u)?)?)?,
                Op::Add => todo.extend([(&s[1], c), (&s[0], c)]),
                Op::Sub => todo.extend([(&s[1], -c), (&s[0], c)]),
                Op::Neg => todo.push((&s[0], -c)),
                Op::Mul | Op::Shl => match (int(&s[0]), int(&s[1])) {
                    (_, Some(k)) if u.op() == Op::Shl && (0..62).contains(&k) => {
                        todo.push((&s[0], c.checked_mul(1 << k)?))
                    }
                    (_, Some(k)) if u.op() == Op::Mul => todo.push((&s[0], c.checked_mul(k)?)),
                    (Some(k), _) if u.op() == Op::Mul => todo.push((&s[1], c.checked_mul(k)?)),
                    _ => self.add_term(u, c)?,
                },
                _ => self.add_term(u, c)?,
            }
        }
        let limit = i64::MAX as i128;
        (self.konst.abs() <= limit && self.terms.iter().all(|t| t.1.abs() <= limit)).then_some(())
    }
    /// Adds `coef` times a term that is not a sum itself.
    pub fn add_term(&mut self, u: &UOp, coef: i128) -> Option<()> {
        if let Some(k) = self.terms.iter().position(|t| t.0 == *u) {
            self.terms[k].1 += coef;
            if self.terms[k].1 == 0 {
                self.terms.remove(k);
            }
        } else if coef != 0 {
            if self.terms.len() >= MAX_TERMS {
                return None;
            }
            self.terms.push((u.clone(), coef));
        }
        Some(())
    }
    /// Adds `coef * o`.
    pub(crate) fn add_linear(&mut self, o: &Linear, coef: i128) -> Option<()> {
        for (t, c) in &o.terms {
            self.add_term(t, c.checked_mul(coef)?)?;
        }
        self.konst = self.konst.checked_add(o.konst.checked_mul(coef)?)?;
        Some(())
    }
    /// Smallest and largest value that the bounds of the terms allow, saturated to i128.
    pub fn bounds(&self) -> Bounds {
        let (mut lo, mut hi) = (self.konst, self.konst);
        for (t, c) in &self.terms {
            let (a, b) = (t.vmin().saturating_mul(*c), t.vmax().saturating_mul(*c));
            lo = lo.saturating_add(a.min(b));
            hi = hi.saturating_add(a.max(b));
        }
        Bounds::new(lo, hi)
    }
    /// Greatest common divisor of the coefficients (not of the constant); 0 if there is no term.
    pub fn content(&self) -> i128 {
        self.terms.iter().fold(0, |g, t| gcd(g, t.1))
    }
    /// Applies `f` to each coefficient and the constant; terms that become zero are removed.
    pub fn map(&self, f: impl Fn(i128) -> i128, konst: i128) -> Linear {
        let terms = self.terms.iter().map(|(t, c)| (t.clone(), f(*c))).filter(|t| t.1 != 0).collect();
        Linear { terms, konst, dtype: self.dtype }
    }
    /// The sum as a node, in its one canonical spelling.
    pub fn build(mut self) -> UOp {
        sort::by(&mut self.terms, |a, b| order::cmp(&a.0, &b.0));
        let mut sum: Option<UOp> = None;
        for (t, c) in &self.terms {
            let t = scaled(t, *c);
            sum = Some(match sum {
                None => t,
                Some(s) => s.binary(Op::Add, &t),
            });
        }
        let k = UOp::constant(self.dtype, ConstVal::Int(self.konst));
        match sum {
            None => k,
            Some(s) if self.konst == 0 => s,
            Some(s) => s.binary(Op::Add, &k),
        }
    }
}

/// `t * c`, or `t` for one.
pub(crate) fn scaled(t: &UOp, c: i128) -> UOp {
    if c == 1 { t.clone() } else { t.binary(Op::Mul, &UOp::constant(t.dtype(), ConstVal::Int(c))) }
}

pub(crate) fn gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Factors of a product, in structural order, and its integer coefficient.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Product {
    /// The factors that are no constants, in structural order.
    pub factors: SmallVec<[UOp; 4]>,
    /// The coefficient: constant factors, and common divisors of sums among the factors.
    pub coef: i128,
}

impl Product {
    /// Multiplications flattened; the common divisor of a sum that is a factor becomes part of the coefficient.
    pub fn of(u: &UOp) -> Option<Product> {
        let mut p = Product { factors: SmallVec::new(), coef: 1 };
        let mut todo: SmallVec<[&UOp; 8]> = SmallVec::new();
        todo.push(u);
        while let Some(u) = todo.pop() {
            match u.op() {
                Op::Const => p.coef = p.coef.checked_mul(int(u)?)?,
                Op::Mul => todo.extend(u.src().iter().rev()),
                Op::Add => {
                    let l = Linear::of(u)?;
                    let g = gcd(l.content(), l.konst);
                    if g > 1 {
                        p.coef = p.coef.checked_mul(g)?;
                        p.factors.push(l.map(|c| c / g, l.konst / g).build());
                    } else {
                        p.factors.push(u.clone());
                    }
                }
                _ => p.factors.push(u.clone()),
            }
            if p.factors.len() > MAX_TERMS {
                return None;
            }
        }
        sort::by(&mut p.factors, order::cmp);
        (p.coef.abs() <= i64::MAX as i128).then_some(p)
    }
    /// `self / d` if every factor of `d` is a factor here and the coefficient divides.
    pub fn divide(&self, d: &Product) -> Option<Product> {
        if d.coef == 0 || self.coef % d.coef != 0 {
            return None;
        }
        let mut factors = self.factors.clone();
        for f in &d.factors {
            let k = factors.iter().position(|x| x == f)?;
            factors.remove(k);
        }
        Some(Product { factors, coef: self.coef / d.coef })
    }
    /// Greatest common factor.
    pub fn common(&self, o: &Product) -> Product {
        let mut rest = o.factors.clone();
        let mut factors = SmallVec::new();
        for f in &self.factors {
            if let Some(k) = rest.iter().position(|x| x == f) {
                rest.remove(k);
                factors.push(f.clone());
            }
        }
        Product { factors, coef: gcd(self.coef, o.coef) }
    }
    /// The product as a node, its coefficient last.
    pub fn build(&self, dtype: DType) -> UOp {
        let product = self.factors.iter().cloned().reduce(|a, b| a.binary(Op::Mul, &b));
        match product {
            None => UOp::constant(dtype, ConstVal::Int(self.coef)),
            Some(p) => scaled(&p, self.coef),
        }
    }
}

/// Each term divided; `None` if one does not divide.
pub(crate) fn divide_linear(x: &Linear, d: &Product) -> Option<Linear> {
    let mut out = Linear::zero(x.dtype);
    for (t, c) in &x.terms {
        let mut p = Product::of(t)?;
        p.coef = p.coef.checked_mul(*c)?;
        let q = p.divide(d)?;
        out.add(&q.build(x.dtype), 1)?;
    }
    if x.konst != 0 {
        if !d.factors.is_empty() || x.konst % d.coef != 0 {
            return None;
        }
        out.konst += x.konst / d.coef;
    }
    Some(out)
}

/// Greatest factor common to every term of these nodes.
pub(crate) fn common_factor(nodes: &[&UOp]) -> Option<Product> {
    let mut g: Option<Product> = None;
    for n in nodes {
        let l = Linear::of(n)?;
        let mut parts: SmallVec<[Product; 8]> = SmallVec::new();
        for (t, c) in &l.terms {
            let mut p = Product::of(t)?;
            p.coef = p.coef.checked_mul(*c)?;
            parts.push(p);
        }
        if l.konst != 0 || parts.is_empty() {
            parts.push(Product { factors: SmallVec::new(), coef: l.konst });
        }
        for p in parts {
            g = Some(match g {
                None => Product { coef: p.coef.abs(), ..p },
                Some(g) => g.common(&p),
            });
        }
    }
    g
}
