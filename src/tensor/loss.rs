//! Losses, each reduced to one number.

use super::elementwise::Elementwise;
use super::error::{Problem, Shown};
use super::index::widened;
use super::math::Math;
use super::movement::{Movement, positions};
use super::reduction::{Reduction, accumulated, sum};
use super::value::{Expr, Value, lift};
use crate::uop::{Dim, Scalar};

/// Distances between what was predicted and what should have been.
pub trait Loss: Value {
    /// Mean of `-log softmax(self)[label]` over (.., classes) and integer labels (..). Labels equal to `ignore` do not
    /// count; `smoothing` of the target mass goes evenly to all classes.
    #[track_caller]
    fn sparse_categorical_crossentropy(&self, labels: &Self, ignore: Option<i64>, smoothing: f64) -> Self {
        lift("sparse_categorical_crossentropy", [self.node(), labels.node()], |[x, y]| {
            if !(0.0..=1.0).contains(&smoothing) {
                return Err(Problem::argument(format!("a smoothing of {smoothing}")));
            }
            sparse(&x, &y)?;
            let logs = x.log_softmax(-1);
            let hit = labelled(&logs, &y);
            let spread = logs.mean(-1).mul(smoothing);
            let each = if smoothing == 0.0 { hit } else { hit.mul(1.0 - smoothing).add(&spread) };
            Ok(averaged(&each, ignore.map(|i| y.ne(i))).neg())
        })
    }
    /// Cross entropy of (n, classes, ..) with class numbers (n, ..), or with class probabilities of the same shape.
    #[track_caller]
    fn cross_entropy(&self, target: &Self, smoothing: f64) -> Self {
        lift("cross_entropy", [self.node(), target.node()], |[x, y]| {
            if x.rank() == 0 {
                return Err(Problem::shape("a single number has no classes"));
            }
            let axis = i64::from(x.rank() > 1);
            if y.scalar().is_int() && y.rank() + 1 == x.rank() {
                return Ok(last(&x, axis).sparse_categorical_crossentropy(&y, None, smoothing));
            }
            if y.shape() != x.shape() {
                return Err(Problem::shape(format!("{} is neither classes nor probabilities", Shown(y.shape()))));
            }
            let n = x.dim(axis as usize);
            let y = y.mul(1.0 - smoothing).add(&Expr::from(n.uop()).cast(Scalar::F32).recip().mul(smoothing));
            let logs = x.log_softmax(axis);
            // A class of probability 0 in both costs nothing: 0 * log 0 is 0 here.
            let absent = y.eq(0).bitand(&logs.eq(f64::NEG_INFINITY));
            let each = absent.where_(0, &logs).mul(&y);
            Ok(last(&each, axis).sum(-1).mean(()).neg())
        })
    }
    /// Mean of `-self[label]` over log probabilities (n, classes, ..) and labels (n, ..).
    #[track_caller]
    fn nll_loss(&self, labels: &Self, ignore: Option<i64>) -> Self {
        lift("nll_loss", [self.node(), labels.node()], |[x, y]| {
            let x = last(&x, i64::from(x.rank() > 1));
            sparse(&x, &y)?;
            Ok(averaged(&labelled(&x, &y), ignore.map(|i| y.ne(i))).neg())
        })
    }
    /// Mean of `-(y log p + (1 - y) log(1 - p))` over probabilities; a logarithm counts as -100 at least, as in
    /// PyTorch.
    #[track_caller]
    fn binary_crossentropy(&self, target: &Self) -> Self {
        lift("binary_crossentropy", [self.node(), target.node()], |[p, y]| {
            let other = y.neg().add(1).mul(&bounded_log(&p.neg().add(1)));
            Ok(y.mul(&bounded_log(&p)).add(&other).mean(()).neg())
        })
    }
    /// As [`Loss::binary_crossentropy`] of `sigmoid(self)`, without overflow; `positive` weighs the positive examples.
    #[track_caller]
    fn binary_crossentropy_logits(&self, target: &Self, positive: Option<f64>) -> Self {
        lift("binary_crossentropy_logits", [self.node(), target.node()], |[x, y]| {
            let weight = y.mul(positive.unwrap_or(1.0));
            let off = y.neg().add(1).mul(&x.neg().log_sigmoid());
            Ok(weight.mul(&x.log_sigmoid()).add(&off).mean(()).neg())
        })
    }
    /// Mean squared difference.
    #[track_caller]
    fn mse_loss(&self, target: &Self) -> Self {
        lift("mse_loss", [self.node(), target.node()], |[x, y]| Ok(x.sub(&y).square().mean(())))
    }
}

impl<V: Value> Loss for V {}

fn sparse(x: &Expr, y: &Expr) -> Result<(), Problem> {
    let rank = x.rank();
    if rank == 0 || !y.scalar().is_int() || y.shape() != &x.shape()[..rank - 1] {
        return Err(Problem::shape(format!("labels are integers of shape {}", Shown(&x.shape()[..rank.max(1) - 1]))));
    }
    Ok(())
}

/// The logarithm of a probability, at least -100; without slope where it is 0.
fn bounded_log(p: &Expr) -> Expr {
    let zero = p.eq(0);
    zero.where_(-100.0, &zero.where_(1.0, p).log().maximum(-100.0))
}

/// Classes to the last axis.
fn last(x: &Expr, axis: i64) -> Expr {
    let mut order: Vec<i64> = (0..x.rank() as i64).filter(|k| *k != axis).collect();
    order.push(axis);
    x.permute(order)
}

/// The element of the last axis that the label names; 0 for a label outside.
fn labelled(x: &Expr, y: &Expr) -> Expr {
    // A faulty expression has no axes, and stays what it is.
    let Some(at) = x.rank().checked_sub(1) else { return x.clone() };
    let hit = widened(y, x.dim(at).max()).unsqueeze(-1).eq(&positions(x.shape(), at));
    hit.where_(x, 0).cast(x.scalar()).sum(-1)
}

fn averaged(each: &Expr, counts: Option<Expr>) -> Expr {
    match counts {
        None => each.mean(()),
        Some(mask) => {
            let axes: Vec<usize> = (0..each.rank()).collect();
            let total = |x: &Expr| sum(x, &axes).unwrap_or_else(|_| x.clone()).reshape(Vec::<Dim>::new());
            let (each, t) = accumulated(each);
            // A choice, not a product: what does not count may be infinite.
            total(&mask.where_(&each, 0)).div(&total(&mask)).cast(t)
        }
    }
}
