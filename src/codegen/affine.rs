//! Index expressions as affine sums: constant + Σ coefficient · term. Strides are read off this form, and addresses are
//! split by it.

use doorbell_uop::{DType, Memo, Op, UOp};
use smallvec::SmallVec;

/// `constant + Σ coef · term`. Terms are distinct, are not sums themselves, and are in order of first appearance.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Affine {
    pub terms: SmallVec<[(UOp, i64); 4]>,
    pub constant: i64,
}

impl Affine {
    fn term(u: &UOp) -> Affine {
        Affine { terms: [(u.clone(), 1)].into_iter().collect(), constant: 0 }
    }
    fn add(&mut self, o: &Affine, factor: i64) -> Option<()> {
        self.constant = self.constant.checked_add(o.constant.checked_mul(factor)?)?;
        for (t, c) in &o.terms {
            let c = c.checked_mul(factor)?;
            match self.terms.iter_mut().find(|(x, _)| x == t) {
                Some((_, k)) => *k = k.checked_add(c)?,
                None => self.terms.push((t.clone(), c)),
            }
        }
        self.terms.retain(|(_, c)| *c != 0);
        Some(())
    }
    /// Coefficient of `t`; 0 if it is not a term.
    pub(crate) fn coef(&self, t: &UOp) -> i64 {
        self.terms.iter().find(|(x, _)| x == t).map_or(0, |(_, c)| *c)
    }
    /// The largest number that divides every coefficient and the constant (0 for the zero sum).
    pub(crate) fn divisor(&self) -> i64 {
        self.terms.iter().fold(self.constant.unsigned_abs() as i64, |g, (_, c)| gcd(g, *c))
    }
    /// The sum as an expression: terms in their order, the constant last.
    pub(crate) fn build(&self) -> UOp {
        let mut sum: Option<UOp> = None;
        for (t, c) in &self.terms {
            let p = if *c == 1 { t.clone() } else { t * *c };
            sum = Some(match sum {
                None => p,
                Some(s) => &s + &p,
            });
        }
        match sum {
            None => UOp::int(self.constant),
            Some(s) if self.constant == 0 => s,
            Some(s) => &s + self.constant,
        }
    }
}

pub(super) fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a as i64
}

/// Affine forms of index nodes, each computed once.
#[derive(Default)]
pub(super) struct AffineMemo(Memo<Affine>);

impl AffineMemo {
    /// The affine form of an index expression (scalar WeakInt).
    pub(crate) fn of(&mut self, root: &UOp) -> &Affine {
        let mut todo: SmallVec<[&UOp; 16]> = SmallVec::new();
        todo.push(root);
        while let Some(u) = todo.last().copied() {
            if self.0.has(u) {
                todo.pop();
                continue;
            }
            let before = todo.len();
            if Self::is_sum(u) {
                todo.extend(u.src().iter().filter(|s| !self.0.has(s)));
            }
            if todo.len() == before {
                todo.pop();
                let a = self.combine(u).unwrap_or_else(|| Affine::term(u));
                self.0.insert(u, a);
            }
        }
        // PANIC: the loop ends when the root has its form.
        self.0.get(root).expect("the form of the root")
    }

    /// `None`: not a sum, or a coefficient overflows.
    fn combine(&self, u: &UOp) -> Option<Affine> {
        if let Some(c) = u.as_int() {
            return Some(Affine { terms: SmallVec::new(), constant: c });
        }
        if !Self::is_sum(u) {
            return None;
        }
        let (a, b) = (self.0.get(&u.src()[0])?, u.src().get(1).and_then(|s| self.0.get(s)));
        let mut sum = Affine::default();
        match u.op() {
            Op::Add => {
                sum.add(a, 1)?;
                sum.add(b?, 1)?;
            }
            Op::Sub => {
                sum.add(a, 1)?;
                sum.add(b?, -1)?;
            }
            Op::Neg => sum.add(a, -1)?,
            _ => match (b?, a) {
                (k, x) | (x, k) if k.terms.is_empty() => sum.add(x, k.constant)?,
                _ => return None,
            },
        }
        Some(sum)
    }

    /// Whether `u` is a sum of other terms, so that users of `u` work with those terms directly.
    pub(crate) fn sees_through(&mut self, u: &UOp) -> bool {
        Self::is_sum(u) && self.of(u).terms.iter().all(|(t, _)| t != u)
    }
    /// Whether this op on indices can be part of a sum.
    pub(crate) fn is_sum(u: &UOp) -> bool {
        u.dtype() == DType::INDEX && matches!(u.op(), Op::Add | Op::Sub | Op::Mul | Op::Neg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_flattened_and_products_of_terms_stay_terms() {
        let (a, b) = (UOp::var("a", 0, 9), UOp::var("b", 0, 9));
        let e = &(&(&(&a + 3) * 4) + &b) + &(&a * &b);
        let mut memo = AffineMemo::default();
        let f = memo.of(&e);
        assert_eq!((f.coef(&a), f.coef(&b), f.coef(&(&a * &b)), f.constant), (4, 1, 1, 12));
        assert_eq!(AffineMemo::default().of(&(&(&a * 2) - &(&a * 2))).terms.len(), 0);
    }
}
