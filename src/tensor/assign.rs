//! Assignment: the only operation that changes a Tensor.

use super::creation::known;
use super::error::{Fault, Problem, Shown};
use super::graph;
use super::handle::Tensor;
use super::value::{Value, build};
use crate::uop::{Arg, Dim, Op, Scalar, UOp};
use std::sync::Arc;

/// Whether a node is memory of its own or a view of it. The buffer of a computed value is not: equal expressions are
/// one node, so two Tensors of zeros share it, and an assignment to one must not be seen by the other.
pub(crate) fn is_memory(u: &UOp) -> bool {
    let mut u = u;
    loop {
        match u.op() {
            Op::Buffer => return u.buffer_ref().is_some_and(|b| b.owned),
            Op::Param => return true,
            Op::Shard => return u.src().iter().all(is_memory),
            Op::Assign | Op::After | Op::Reshape | Op::Permute | Op::Flip | Op::Shrink => u = &u.src()[0],
            _ => return false,
        }
    }
}

/// `value` in the shape and dtype of `target`.
pub(crate) fn fitted(target: &UOp, value: &UOp) -> Result<UOp, Problem> {
    let (to, from) = (target.dtype().scalar, value.dtype().scalar);
    if from != to && !from.is_weak() && Scalar::promote(from, to) != to {
        return Err(Problem::dtype(format!("{from} does not go into {to} without a cast")));
    }
    let value = graph::taken(value, to)?;
    if graph::is_number(&value) {
        return Ok(graph::full(target.shape(), &value));
    }
    if value.shape().len() > target.shape().len() {
        return Err(Problem::shape(format!("{} does not fit {}", Shown(value.shape()), Shown(target.shape()))));
    }
    graph::expand(&value, target.shape())
}

/// Memory for a Tensor that has none: where it is, or else where its new value is.
fn place(target: &UOp, value: &UOp) -> Result<UOp, Problem> {
    let device = target.device().or(value.device()).cloned().unwrap_or_else(super::default_device);
    memory(value, target.dtype().scalar, target.shape(), device)
}

/// Memory of a dtype and shape on `device`; where that names several, along the axis of `like`.
pub(crate) fn memory(like: &UOp, dtype: Scalar, shape: &[Dim], device: Arc<str>) -> Result<UOp, Problem> {
    let on_one = |shape: &[Dim], device: &Arc<str>| {
        let buffer = Tensor::buffer(dtype, known(shape)?, device.clone());
        Ok::<UOp, Problem>(graph::reshape(&buffer, shape))
    };
    match device.contains(super::shard::SEPARATOR) {
        true => super::shard::memory_like(like, &device, shape, on_one),
        false => on_one(shape, &device),
    }
}

impl Tensor {
    /// Stores `value` (broadcast to the shape) in this Tensor's memory; all handles on it see it. A Tensor that is not
    /// memory yet gets memory of its own. A fault in `value` becomes this Tensor's.
    ///
    /// Expressions of the old content that are computed together with the assignment or before it see the old content;
    /// those computed later read the memory as it is then.
    #[track_caller]
    pub fn assign(&self, value: &Tensor) -> &Tensor {
        let made: Tensor = build("assign", [self.node(), value.node()], |[target, value]| {
            let value = fitted(target, value)?;
            let place = if is_memory(target) { target.clone() } else { place(target, &value)? };
            Ok(UOp::new(Op::Assign, place.dtype(), [place, value], Arg::None))
        });
        self.set_node(made.node());
        self
    }
    /// This Tensor with a new value in its own shape and dtype: in its memory, if it is memory.
    #[track_caller]
    pub(crate) fn become_value(&self, op: &'static str, value: &Tensor) {
        let made: Tensor = build(op, [self.node(), value.node()], |[own, value]| {
            let value = fitted(own, value)?;
            Ok(if is_memory(own) { UOp::new(Op::Assign, own.dtype(), [own.clone(), value], Arg::None) } else { value })
        });
        self.set_node(made.node());
    }
    /// Gives this handle (and its clones) another Tensor's node, without storing anything.
    pub fn replace(&self, other: &Tensor) {
        let node: Result<UOp, Fault> = other.node();
        self.set_node(node);
    }
}
