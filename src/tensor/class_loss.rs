//! Losses of classes: of numbered classes and of probabilities, with weights, smoothing and a label that is left out.

use super::elementwise::Elementwise;
use super::error::{Problem, Shown};
use super::index::widened;
use super::loss::{Reduce, everything};
use super::movement::{Movement, positions};
use super::reduction::{Reduction, accumulated};
use super::value::{Expr, Value, lift_many};
use crate::uop::{Dim, Scalar};

/// Options of [`Loss::cross_entropy_with`](super::Loss::cross_entropy_with).
#[derive(Clone, Debug)]
pub struct CrossEntropy<V> {
    weight: Option<V>,
    how: How,
}
/// Options of [`Loss::nll_loss_with`](super::Loss::nll_loss_with).
#[derive(Clone, Debug)]
pub struct Nll<V> {
    weight: Option<V>,
    how: How,
}

/// Options that are no Tensors.
#[derive(Copy, Clone, Debug, Default)]
struct How {
    ignore: Option<i64>,
    smoothing: f64,
    reduction: Reduce,
}

/// What the two losses of classes have in common.
macro_rules! class_options {
    ($loss:ident) => {
        impl<V: Value> Default for $loss<V> {
            fn default() -> Self {
                $loss { weight: None, how: How::default() }
            }
        }
        impl<V: Value> $loss<V> {
            /// The mean, where every class and every label counts the same.
            pub fn new() -> Self {
                Self::default()
            }
            /// What becomes of the losses of the positions.
            #[must_use]
            pub fn reduction(mut self, reduction: Reduce) -> Self {
                self.how.reduction = reduction;
                self
            }
            /// Positions with this label cost nothing and do not count (-100 in PyTorch, -1 in tinygrad unless given).
            #[must_use]
            pub fn ignore(mut self, label: i64) -> Self {
                self.how.ignore = Some(label);
                self
            }
            /// A factor of each class, (classes,). The mean is then divided by the factors of the labels.
            #[must_use]
            pub fn weight(self, weight: &V) -> Self {
                $loss { weight: Some(weight.clone()), ..self }
            }
        }
    };
}
class_options!(CrossEntropy);
class_options!(Nll);

impl<V: Value> CrossEntropy<V> {
    /// This share (0 to 1) of the target mass goes evenly to all classes.
    #[must_use]
    pub fn smoothing(mut self, share: f64) -> Self {
        self.how.smoothing = share;
        self
    }
}
impl<V: Value> From<Nll<V>> for CrossEntropy<V> {
    fn from(nll: Nll<V>) -> Self {
        CrossEntropy { weight: nll.weight, how: nll.how }
    }
}

/// Options with the weights as an expression.
pub(super) struct Chosen {
    weight: Option<Expr>,
    how: How,
}

/// Builds a loss of prediction, target and the weights of the options.
#[track_caller]
pub(super) fn with_weight<V: Value>(
    name: &'static str,
    x: &V,
    y: &V,
    options: CrossEntropy<V>,
    f: impl FnOnce(&Expr, &Expr, &Chosen) -> Result<Expr, Problem>,
) -> V {
    let nodes = [Some(x), Some(y), options.weight.as_ref()];
    let nodes: Vec<_> = nodes.into_iter().flatten().map(Value::node).collect();
    lift_many(name, &nodes, |v| {
        let [x, y, weight @ ..] = &v[..] else { return Err(Problem::argument("no values")) };
        let s = options.how.smoothing;
        if !(0.0..=1.0).contains(&s) {
            return Err(Problem::argument(format!("a smoothing of {s}")));
        }
        f(x, y, &Chosen { weight: weight.first().cloned(), how: options.how })
    })
}

/// Labels of the shape before the classes.
pub(super) fn sparse(x: &Expr, y: &Expr) -> Result<(), Problem> {
    let rank = x.rank();
    if rank == 0 || !y.scalar().is_int() || y.shape() != &x.shape()[..rank - 1] {
        return Err(Problem::shape(format!("labels are integers of shape {}", Shown(&x.shape()[..rank.max(1) - 1]))));
    }
    Ok(())
}

/// Classes to the last axis.
pub(super) fn last(x: &Expr, axis: i64) -> Expr {
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

/// Weights of the classes along the last axis.
fn class_weights(weight: &Expr, classes: &Dim) -> Result<(), Problem> {
    match weight.shape() {
        [n] if n == classes => Ok(()),
        other => Err(Problem::shape(format!("weights of shape {} for {classes} classes", Shown(other)))),
    }
}

/// The loss of log probabilities (.., classes) and labels (..).
pub(super) fn of_labels(logs: &Expr, y: &Expr, chosen: &Chosen) -> Result<Expr, Problem> {
    sparse(logs, y)?;
    let (how, classes) = (chosen.how, logs.dim(logs.rank().saturating_sub(1)));
    let mut hit = labelled(logs, y);
    let mut spread = logs.mean(-1);
    let mut share = None;
    if let Some(weight) = &chosen.weight {
        class_weights(weight, &classes)?;
        let own = labelled(&weight.cast(logs.scalar()).expand(logs.shape()), y);
        hit = hit.mul(&own);
        spread = logs.mul(weight).mean(-1);
        share = Some(own);
    }
    let each = match how.smoothing {
        0.0 => hit,
        s => hit.mul(1.0 - s).add(&spread.mul(s)),
    };
    let counts = how.ignore.map(|i| y.ne(i));
    let reduced = match (how.reduction, &counts) {
        (Reduce::Mean, _) => averaged(&each, counts, share),
        (Reduce::Sum, None) => each.sum(()),
        (Reduce::None, None) => each,
        (Reduce::Sum, Some(mask)) => mask.where_(&each, 0).cast(each.scalar()).sum(()),
        (Reduce::None, Some(mask)) => mask.where_(&each, 0).cast(each.scalar()),
    };
    Ok(Elementwise::neg(&reduced))
}

/// The loss of logits and class probabilities of one shape, classes on `axis`.
pub(super) fn of_probabilities(x: &Expr, y: &Expr, axis: i64, chosen: &Chosen) -> Result<Expr, Problem> {
    let how = chosen.how;
    if how.ignore.is_some() {
        return Err(Problem::argument("a label to ignore, but the target is probabilities"));
    }
    let n = x.dim(axis as usize);
    let y = match how.smoothing {
        0.0 => y.clone(),
        s => y.mul(1.0 - s).add(&Expr::from(n.uop()).cast(Scalar::F32).recip().mul(s)),
    };
    let logs = x.log_softmax(axis);
    // A class of probability 0 in both costs nothing: 0 * log 0 is 0 here.
    let absent = y.eq(0).bitand(&logs.eq(f64::NEG_INFINITY));
    let mut each = last(&absent.where_(0, &logs).mul(&y), axis);
    if let Some(weight) = &chosen.weight {
        class_weights(weight, &n)?;
        each = each.mul(weight);
    }
    super::loss::reduced(&each.sum(-1), how.reduction).map(|loss| Elementwise::neg(&loss))
}

/// The mean of those that count, each with its share of the whole.
fn averaged(each: &Expr, counts: Option<Expr>, share: Option<Expr>) -> Expr {
    if counts.is_none() && share.is_none() {
        return each.mean(());
    }
    let (each, t) = accumulated(each);
    let share = share.map(|own| own.cast(each.scalar()));
    let (whole, parts) = match counts {
        None => (each, share.unwrap_or_else(|| Expr::from(crate::uop::UOp::int(1)))),
        // A choice, not a product: what does not count may be infinite.
        Some(mask) => {
            let parts = share.map_or_else(|| mask.cast(Scalar::I32), |own| mask.where_(&own, 0).cast(each.scalar()));
            (mask.where_(&each, 0).cast(each.scalar()), parts)
        }
    };
    everything(&whole).div(&everything(&parts)).cast(t)
}
