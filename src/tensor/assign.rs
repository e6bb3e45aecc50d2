//! Assignment: the only operation that changes a Tensor.

use super::creation::known;
use super::error::{Fault, Problem, Shown};
use super::graph;
use super::handle::{HOST, Tensor};
use super::value::{Value, build};
use crate::uop::{Arg, BufferRef, Dim, Op, Scalar, UOp, toposort_many};
use std::collections::HashMap;
use std::sync::Arc;

/// Whether a node is memory of its own or a view of it. The buffer of a computed value is not: equal expressions are
/// one node, so two Tensors of zeros share it, and an assignment to one must not be seen by the other.
pub(crate) fn is_memory(u: &UOp) -> bool {
    let mut u = u;
    loop {
        match u.op() {
            Op::Buffer => return u.buffer_ref().is_some_and(|b| b.is_owned()),
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

/// Makes the memory of a computed value the target's own where nobody else can see it, so that a function which was
/// recorded with a Tensor sees the first assignment to it too.
///
/// Nobody can where all handles on the buffer, and on what is built on it, are known: those of nodes below `value`, and
/// of `target` and `value` one of the Tensor and one of the caller. Another expression that was computed to this buffer
/// has a handle on it.
fn take_over(target: &UOp, value: &UOp) {
    let mut buffer = target;
    while buffer.op() == Op::Reshape {
        buffer = &buffer.src()[0];
    }
    let computed = |b: &&Arc<BufferRef>| !b.is_owned() && &*b.device != HOST && b.memory.get().is_some();
    let Some(memory) = buffer.buffer_ref().filter(computed) else { return };
    let all = toposort_many(&[target.clone(), value.clone()], |_| true);
    let mut uses: HashMap<u64, usize> = HashMap::from([(buffer.id(), 0)]);
    for u in &all {
        let below: Vec<u64> = u.src().iter().map(UOp::id).filter(|s| uses.contains_key(s)).collect();
        if !below.is_empty() {
            uses.entry(u.id()).or_default();
        }
        below.iter().for_each(|s| *uses.entry(*s).or_default() += 1);
    }
    let known = |u: &UOp| {
        let roots = [target, value].into_iter().filter(|root| *root == u).count();
        // One more is in the list itself.
        uses.get(&u.id()).is_none_or(|n| u.handles() == n + 1 + 2 * roots)
    };
    if all.iter().all(known) {
        memory.own();
    }
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
    /// Stores `value` (broadcast to the shape) in this Tensor's memory; all handles on it see it, and so do functions
    /// that were recorded with it. A Tensor that is not memory yet, or shares the memory of a computed value with
    /// others, gets memory of its own. A fault in `value` becomes this Tensor's.
    ///
    /// Expressions of the old content that are computed together with the assignment or before it see the old content;
    /// those computed later read the memory as it is then.
    #[track_caller]
    pub fn assign(&self, value: &Tensor) -> &Tensor {
        if let (Ok(target), Ok(value)) = (self.node(), value.node()) {
            take_over(&target, &value);
        }
        let made: Tensor = build("assign", [self.node(), value.node()], |[target, value]| {
            let value = fitted(target, value)?;
            let place = if is_memory(target) { target.clone() } else { place(target, &value)? };
            Ok(UOp::new(Op::Assign, place.dtype(), [place, value], Arg::None))
        });
        self.set_node(made.node());
        self
    }
    /// This Tensor in memory of its own from the start: what is assigned to it later is written there, and seen by
    /// functions that were recorded before.
    #[must_use]
    pub(crate) fn in_own_memory(self) -> Tensor {
        self.assign(&self);
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
