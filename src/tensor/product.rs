//! Products that sum: matmul of any ranks. All are multiply and reduce over expanded views.

use super::elementwise::Elementwise;
use super::error::Problem;
use super::graph;
use super::movement::Movement;
use super::reduction::sum;
use super::value::{Expr, Value, lift, lift_many};

/// Matrix products.
pub trait Product: Value {
    /// Matrix product over the last axis of `self` and the one before the last of `o` (or its only one); axes in front
    /// broadcast.
    #[track_caller]
    fn matmul(&self, o: &Self) -> Self {
        lift("matmul", [self.node(), o.node()], |[a, b]| matmul(&a, &b))
    }
    /// As [`Product::matmul`].
    #[track_caller]
    fn dot(&self, o: &Self) -> Self {
        lift("dot", [self.node(), o.node()], |[a, b]| matmul(&a, &b))
    }
    /// Sum of products by letters: `"bij,bjk->bik"`; a letter that the result lacks is summed, `...` broadcasts.
    #[track_caller]
    fn einsum(formula: &str, operands: &[&Self]) -> Self {
        let nodes: Vec<_> = operands.iter().map(|x| x.node()).collect();
        lift_many("einsum", &nodes, |xs| super::einsum::einsum(formula, xs))
    }
    /// `self @ weightᵀ + bias` with weight (out, in).
    #[track_caller]
    fn linear(&self, weight: &Self, bias: Option<&Self>) -> Self {
        let y = lift("linear", [self.node(), weight.node()], |[x, w]| matmul(&x, &w.t()));
        match bias {
            Some(bias) => Elementwise::add(&y, bias),
            None => y,
        }
    }
}

impl<V: Value> Product for V {}

pub(crate) fn matmul(a: &Expr, b: &Expr) -> Result<Expr, Problem> {
    if a.rank() == 0 || b.rank() == 0 {
        return Err(Problem::shape("a scalar has no rows or columns"));
    }
    let (ka, axis) = (a.dim(a.rank() - 1), b.rank().saturating_sub(2));
    let kb = b.dim(axis);
    if !graph::same(&ka, &kb) {
        return Err(Problem::shape(format!("the inner sizes {ka} and {kb} differ")));
    }
    // (.., m, 1, k) * (.., 1, n, k), summed over k.
    let x = if a.rank() > 1 && b.rank() > 1 { a.unsqueeze(-2) } else { a.clone() };
    let y = if b.rank() > 1 {
        let turned = b.transpose(-1, -2);
        if a.rank() > 1 { turned.unsqueeze(-3) } else { turned }
    } else {
        b.clone()
    };
    let p = multiplied(&x, &y);
    p.node().map_err(|fault| fault.problem.clone())?;
    let s = sum(&p, &[p.rank() - 1])?;
    let t = graph::promoted(&[a.uop(), b.uop()]);
    Ok(s.reshape(&s.shape()[..s.rank() - 1]).cast(if t.is_weak() { s.scalar() } else { t }))
}

/// Products that are to be summed: floats in the type they are summed in, so that half types round once, at the end.
pub(crate) fn multiplied(a: &Expr, b: &Expr) -> Expr {
    let t = graph::promoted(&[a.uop(), b.uop()]);
    if t.is_float() && !t.is_weak() { a.cast(t.accumulator()).mul(&b.cast(t.accumulator())) } else { a.mul(b) }
}
