//! Losses: distances between what was predicted and what should have been, of each element, summed or averaged.
//!
//! The short form of each is the mean; the form that ends in `_with` takes the options. Losses of classes have theirs
//! in `class_loss`.

use super::class_loss::{self, last, sparse};
pub use super::class_loss::{CrossEntropy, Nll};
use super::elementwise::Elementwise;
use super::error::{Problem, Shown};
use super::math::Math;
use super::reduction::Reduction;
use super::value::{Expr, Operand, Value, lift, lift_many};

/// What becomes of the losses of the elements: `reduction=` in PyTorch and tinygrad.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Reduce {
    /// Their mean.
    #[default]
    Mean,
    /// Their sum.
    Sum,
    /// Nothing: one loss an element (of class losses: one a position).
    None,
}

/// Options of [`Loss::binary_crossentropy_with`].
#[derive(Clone, Debug)]
pub struct BinaryCrossEntropy<V> {
    reduction: Reduce,
    weight: Option<V>,
}
/// Options of [`Loss::binary_crossentropy_logits_with`].
#[derive(Clone, Debug)]
pub struct BinaryLogits<V> {
    reduction: Reduce,
    weight: Option<V>,
    positive: Option<V>,
}
/// Options of [`Loss::kl_div_with`].
#[derive(Copy, Clone, Debug, Default)]
pub struct KlDiv {
    reduction: Reduce,
    batch: bool,
    log_target: bool,
}

impl<V: Value> Default for BinaryCrossEntropy<V> {
    fn default() -> Self {
        BinaryCrossEntropy { reduction: Reduce::Mean, weight: None }
    }
}
impl<V: Value> BinaryCrossEntropy<V> {
    /// The mean, without weights.
    pub fn new() -> Self {
        Self::default()
    }
    /// What becomes of the losses of the elements.
    #[must_use]
    pub fn reduction(self, reduction: Reduce) -> Self {
        BinaryCrossEntropy { reduction, ..self }
    }
    /// A factor of each element's loss (broadcast to its shape).
    #[must_use]
    pub fn weight(self, weight: &V) -> Self {
        BinaryCrossEntropy { weight: Some(weight.clone()), ..self }
    }
}
impl<V: Value> Default for BinaryLogits<V> {
    fn default() -> Self {
        BinaryLogits { reduction: Reduce::Mean, weight: None, positive: None }
    }
}
impl<V: Value> BinaryLogits<V> {
    /// The mean, without weights.
    pub fn new() -> Self {
        Self::default()
    }
    /// What becomes of the losses of the elements.
    #[must_use]
    pub fn reduction(self, reduction: Reduce) -> Self {
        BinaryLogits { reduction, ..self }
    }
    /// A factor of each element's loss (broadcast to its shape).
    #[must_use]
    pub fn weight(self, weight: &V) -> Self {
        BinaryLogits { weight: Some(weight.clone()), ..self }
    }
    /// A factor of the loss of positive examples: one number, or one a class.
    #[must_use]
    pub fn pos_weight(self, weight: impl Operand<V>) -> Self {
        BinaryLogits { positive: Some(V::of(weight.operand())), ..self }
    }
}
impl KlDiv {
    /// The mean over all elements, of probabilities.
    pub fn new() -> KlDiv {
        KlDiv::default()
    }
    /// What becomes of the losses of the elements.
    #[must_use]
    pub fn reduction(self, reduction: Reduce) -> KlDiv {
        KlDiv { reduction, batch: false, ..self }
    }
    /// The sum divided by the size of axis 0: the divergence by its definition (`reduction="batchmean"`).
    #[must_use]
    pub fn batch_mean(self) -> KlDiv {
        KlDiv { reduction: Reduce::Sum, batch: true, ..self }
    }
    /// The target is logarithms of probabilities.
    #[must_use]
    pub fn log_target(self) -> KlDiv {
        KlDiv { log_target: true, ..self }
    }
}

/// Distances between what was predicted and what should have been.
pub trait Loss: Value {
    /// Mean of `-log softmax(self)[class]` over (n, classes, ..) and class numbers (n, ..), or of
    /// `-sum(target * log softmax(self))` for class probabilities of the shape of `self`.
    #[track_caller]
    fn cross_entropy(&self, target: &Self) -> Self {
        self.cross_entropy_with(target, CrossEntropy::new())
    }
    /// As [`Loss::cross_entropy`], with weights of classes, a class number that does not count, smoothing and
    /// reduction: `x.cross_entropy_with(&y, CrossEntropy::new().smoothing(0.1).reduction(Reduce::Sum))`.
    #[track_caller]
    fn cross_entropy_with(&self, target: &Self, how: CrossEntropy<Self>) -> Self {
        class_loss::with_weight("cross_entropy", self, target, how, |x, y, how| {
            if x.rank() == 0 {
                return Err(Problem::shape("a single number has no classes"));
            }
            let axis = i64::from(x.rank() > 1);
            if y.scalar().is_int() && y.rank() + 1 == x.rank() {
                return class_loss::of_labels(&last(x, axis).log_softmax(-1), y, how);
            }
            if y.shape() != x.shape() {
                return Err(Problem::shape(format!("{} is neither classes nor probabilities", Shown(y.shape()))));
            }
            class_loss::of_probabilities(x, y, axis, how)
        })
    }
    /// Mean of `-log softmax(self)[label]` over (.., classes) and integer labels (..). A label outside the classes
    /// costs nothing, and counts.
    #[track_caller]
    fn sparse_categorical_crossentropy(&self, labels: &Self) -> Self {
        self.sparse_categorical_crossentropy_with(labels, CrossEntropy::new())
    }
    /// As [`Loss::sparse_categorical_crossentropy`], with the options of [`Loss::cross_entropy_with`].
    #[track_caller]
    fn sparse_categorical_crossentropy_with(&self, labels: &Self, how: CrossEntropy<Self>) -> Self {
        class_loss::with_weight("sparse_categorical_crossentropy", self, labels, how, |x, y, how| {
            sparse(x, y)?;
            class_loss::of_labels(&x.log_softmax(-1), y, how)
        })
    }
    /// Mean of `-self[label]` over log probabilities (n, classes, ..) and labels (n, ..).
    #[track_caller]
    fn nll_loss(&self, labels: &Self) -> Self {
        self.nll_loss_with(labels, Nll::new())
    }
    /// As [`Loss::nll_loss`], with weights of classes, a label that does not count, and reduction.
    #[track_caller]
    fn nll_loss_with(&self, labels: &Self, how: Nll<Self>) -> Self {
        class_loss::with_weight("nll_loss", self, labels, how.into(), |x, y, how| {
            let x = last(x, i64::from(x.rank() > 1));
            class_loss::of_labels(&x, y, how)
        })
    }
    /// Mean of `-(y log p + (1 - y) log(1 - p))` over probabilities; a logarithm counts as -100 at least, as in
    /// PyTorch. `binary_cross_entropy` in PyTorch.
    #[track_caller]
    fn binary_crossentropy(&self, target: &Self) -> Self {
        self.binary_crossentropy_with(target, BinaryCrossEntropy::new())
    }
    /// As [`Loss::binary_crossentropy`], with weights of elements and reduction.
    #[track_caller]
    fn binary_crossentropy_with(&self, target: &Self, how: BinaryCrossEntropy<Self>) -> Self {
        let nodes = [Some(self), Some(target), how.weight.as_ref()];
        let nodes: Vec<_> = nodes.into_iter().flatten().map(Value::node).collect();
        lift_many("binary_crossentropy", &nodes, |v| {
            let [p, y, weight @ ..] = &v[..] else { return Err(Problem::argument("no values")) };
            fits(p, y)?;
            let other = y.neg().add(1).mul(&bounded_log(&p.neg().add(1)));
            let each = y.mul(&bounded_log(p)).add(&other);
            reduced(&weighted(&each, weight.first())?, how.reduction).map(|loss| loss.neg())
        })
    }
    /// As [`Loss::binary_crossentropy`] of `sigmoid(self)`, without overflow. `binary_cross_entropy_with_logits` in
    /// PyTorch.
    #[track_caller]
    fn binary_crossentropy_logits(&self, target: &Self) -> Self {
        self.binary_crossentropy_logits_with(target, BinaryLogits::new())
    }
    /// As [`Loss::binary_crossentropy_logits`], with weights of elements and of positive examples, and reduction.
    #[track_caller]
    fn binary_crossentropy_logits_with(&self, target: &Self, how: BinaryLogits<Self>) -> Self {
        let nodes = [Some(self), Some(target), how.weight.as_ref(), how.positive.as_ref()];
        let nodes: Vec<_> = nodes.into_iter().flatten().map(Value::node).collect();
        lift_many("binary_crossentropy_logits", &nodes, |v| {
            let [x, y, more @ ..] = &v[..] else { return Err(Problem::argument("no values")) };
            fits(x, y)?;
            let positive = if how.positive.is_some() { y.mul(&more[more.len() - 1]) } else { y.clone() };
            let off = y.neg().add(1).mul(&x.neg().log_sigmoid());
            let each = positive.mul(&x.log_sigmoid()).add(&off);
            let weight = more.first().filter(|_| how.weight.is_some());
            reduced(&weighted(&each, weight)?, how.reduction).map(|loss| loss.neg())
        })
    }
    /// Mean squared difference.
    #[track_caller]
    fn mse_loss(&self, target: &Self) -> Self {
        self.mse_loss_with(target, Reduce::Mean)
    }
    /// Squared difference.
    #[track_caller]
    fn mse_loss_with(&self, target: &Self, reduction: Reduce) -> Self {
        between("mse_loss", self, target, reduction, |d| Ok(d.square()))
    }
    /// Mean absolute difference.
    #[track_caller]
    fn l1_loss(&self, target: &Self) -> Self {
        self.l1_loss_with(target, Reduce::Mean)
    }
    /// Absolute difference.
    #[track_caller]
    fn l1_loss_with(&self, target: &Self, reduction: Reduce) -> Self {
        between("l1_loss", self, target, reduction, |d| Ok(d.abs()))
    }
    /// Mean of [`Loss::smooth_l1_loss_with`] with `beta` 1.
    #[track_caller]
    fn smooth_l1_loss(&self, target: &Self) -> Self {
        self.smooth_l1_loss_with(target, 1.0, Reduce::Mean)
    }
    /// `d² / (2 beta)` where the difference `d` is smaller than `beta`, else `|d| - beta / 2`.
    #[track_caller]
    fn smooth_l1_loss_with(&self, target: &Self, beta: f64, reduction: Reduce) -> Self {
        between("smooth_l1_loss", self, target, reduction, |d| {
            if beta.is_nan() || beta < 0.0 {
                return Err(Problem::argument(format!("a beta of {beta}")));
            }
            Ok(if beta == 0.0 { d.abs() } else { bent(d, beta).div(beta) })
        })
    }
    /// Mean of [`Loss::huber_loss_with`] with `delta` 1.
    #[track_caller]
    fn huber_loss(&self, target: &Self) -> Self {
        self.huber_loss_with(target, 1.0, Reduce::Mean)
    }
    /// `d² / 2` where the difference `d` is smaller than `delta`, else `delta * (|d| - delta / 2)`.
    #[track_caller]
    fn huber_loss_with(&self, target: &Self, delta: f64, reduction: Reduce) -> Self {
        between("huber_loss", self, target, reduction, |d| {
            if delta.is_nan() || delta <= 0.0 {
                return Err(Problem::argument(format!("a delta of {delta}")));
            }
            Ok(bent(d, delta))
        })
    }
    /// Mean of `target * (log target - self)` over log probabilities `self` and probabilities `target`.
    #[track_caller]
    fn kl_div(&self, target: &Self) -> Self {
        self.kl_div_with(target, KlDiv::new())
    }
    /// As [`Loss::kl_div`], with reduction, and targets as logarithms.
    #[track_caller]
    fn kl_div_with(&self, target: &Self, how: KlDiv) -> Self {
        lift("kl_div", [self.node(), target.node()], |[x, y]| {
            fits(&x, &y)?;
            let each = if how.log_target {
                y.exp().mul(&y.sub(&x))
            } else {
                // A target of 0 costs nothing; its logarithm is left out.
                let none = y.eq(0);
                none.where_(0, &y.mul(&none.where_(1, &y).log().sub(&x)))
            };
            let whole = reduced(&each, how.reduction)?;
            let rows = x.dim(0);
            Ok(if how.batch { whole.div(&Expr::from(rows.uop()).cast(whole.scalar())) } else { whole })
        })
    }
}

impl<V: Value> Loss for V {}

/// A target has the shape of the prediction: broadcasting one against the other is nearly always a mistake.
fn fits(x: &Expr, y: &Expr) -> Result<(), Problem> {
    if x.shape() == y.shape() {
        return Ok(());
    }
    Err(Problem::shape(format!("the target has shape {}, the prediction {}", Shown(y.shape()), Shown(x.shape()))))
}

#[track_caller]
fn between<V: Value>(
    name: &'static str,
    x: &V,
    y: &V,
    reduction: Reduce,
    f: impl FnOnce(&Expr) -> Result<Expr, Problem>,
) -> V {
    lift(name, [x.node(), y.node()], |[x, y]| {
        fits(&x, &y)?;
        let d = x.sub(&y);
        let d = if d.scalar().is_float() { d } else { Expr::from(super::elementwise::to_float(d.uop())) };
        reduced(&f(&d)?, reduction)
    })
}

/// Half a square up to `bend`, straight beyond.
fn bent(d: &Expr, bend: f64) -> Expr {
    let size = d.abs();
    size.lt(bend).where_(&d.square().mul(0.5), &size.sub(0.5 * bend).mul(bend)).cast(d.scalar())
}

fn weighted(each: &Expr, weight: Option<&Expr>) -> Result<Expr, Problem> {
    let Some(weight) = weight else { return Ok(each.clone()) };
    let whole = each.mul(weight);
    if whole.shape() == each.shape() {
        return Ok(whole);
    }
    Err(Problem::shape(format!("weights of shape {} for losses of {}", Shown(weight.shape()), Shown(each.shape()))))
}

pub(super) fn reduced(each: &Expr, reduction: Reduce) -> Result<Expr, Problem> {
    let node = |x: Expr| x.node().map_err(|fault| fault.problem.clone()).map(Expr::from);
    node(match reduction {
        Reduce::Mean => each.mean(()),
        Reduce::Sum => each.sum(()),
        Reduce::None => each.clone(),
    })
}

/// The logarithm of a probability, at least -100; without slope where it is 0.
fn bounded_log(p: &Expr) -> Expr {
    let zero = p.eq(0);
    zero.where_(-100.0, &zero.where_(1.0, p).log().maximum(-100.0))
}

/// A sum over everything, of a type that holds it.
pub(super) fn everything(x: &Expr) -> Expr {
    let axes: Vec<usize> = (0..x.rank()).collect();
    super::reduction::total(x, crate::uop::Op::Add, &axes)
}
