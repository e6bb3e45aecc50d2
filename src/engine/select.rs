//! Reading whose shape depends on data: the size is computed and read first, then the rest is a Tensor like any other.
//!
//! These methods compute when they are called: not inside a recorded function, where the forms with a `size`
//! ([`Order`](crate::tensor::Order)) are used. Errors of the computation are carried by the Tensor.

use super::Error;
use crate::tensor::{Elementwise, Index, Indexing, IntoIndices, Operand, Order, Problem, Reduction, Tensor, Value};
use crate::tensor::{Fault, TensorError, group_count, probe};
use crate::uop::{Scalar, UOp};
use std::panic::Location;
use std::sync::Arc;

/// The different elements of a Tensor: see [`Tensor::unique`].
#[derive(Clone, Debug)]
pub struct Unique {
    /// In ascending order.
    pub values: Tensor,
    /// For each element its number among the values, in the Tensor's shape.
    pub inverse: Tensor,
    /// How often each value occurs.
    pub counts: Tensor,
}

/// What was called, and where.
#[derive(Clone, Copy)]
struct Call {
    op: &'static str,
    at: &'static Location<'static>,
}

impl Call {
    #[track_caller]
    fn of(op: &'static str) -> Call {
        Call { op, at: Location::caller() }
    }
    fn fault(self, problem: Problem, of: &[UOp]) -> Fault {
        let sources = of.iter().map(|u| (u.shape().to_vec(), u.dtype())).collect();
        Arc::new(TensorError { op: self.op, problem, sources, at: self.at })
    }
    /// What the engine answered, as a Tensor's own fault.
    fn carried(self, error: Error, of: &[UOp]) -> Fault {
        match error {
            Error::Tensor(inner) => Arc::new(*inner),
            other => self.fault(Problem::Argument(format!("its size depends on data, and computing it: {other}")), of),
        }
    }
}

/// The number of true elements of a mask.
fn count(mask: &Tensor) -> Result<usize, Error> {
    Ok(mask.cast(Scalar::I64).sum(()).item()? as usize)
}

/// The indices with the positions of the true elements for masks, which are computed.
fn unmasked(call: Call, x: &Tensor, index: Vec<Index>) -> Result<Vec<Index>, Fault> {
    if index.iter().all(|i| i.mask().is_none()) {
        return Ok(index);
    }
    let node = x.node()?;
    probe(&node, &index).map_err(|problem| call.fault(problem, std::slice::from_ref(&node)))?;
    let mut out = Vec::with_capacity(index.len());
    for i in index {
        let Some(mask) = i.mask() else {
            out.push(i);
            continue;
        };
        let (rank, mask) = (mask.shape().len(), Tensor::from(mask));
        let places = mask.realize().and_then(|mask| {
            let places = mask.nonzero_static(count(mask)?, 0);
            places.realize()?;
            Ok(places)
        });
        let places = places.map_err(|error| call.carried(error, std::slice::from_ref(&node)))?;
        out.extend((0..rank).map(|axis| Index::from(Indexing::get(&places, (.., axis)))));
    }
    Ok(out)
}

impl Tensor {
    /// The part at these indices: integers, ranges with steps, new axes, an ellipsis, lists, integer Tensors, masks
    /// (see [`Indexing`] for how they are written). Everything is lazy but for a mask: how many elements are true in it
    /// decides the shape, so it is computed here. [`Order::masked_select_static`] and [`where_`](Elementwise::where_)
    /// do without that.
    ///
    /// # Errors
    /// (Carried by the Tensor.) More indices than axes, an integer outside its axis, an index Tensor of floats, a step
    /// of 0, a mask of another shape than the axes it covers, a mask inside a recorded function.
    #[track_caller]
    pub fn get(&self, index: impl IntoIndices) -> Tensor {
        match unmasked(Call::of("get"), self, index.into_indices()) {
            Ok(index) => Indexing::get(self, index),
            Err(fault) => Tensor::of(Err(fault)),
        }
    }
    /// Stores `value` (broadcast to the part, or a number) at these indices, of the same forms as [`Tensor::get`]'s.
    /// Where this Tensor is memory and the indices make a view of it, only the view is written; otherwise the Tensor
    /// stands for a new value. Of several writes to one element the last stays; a position outside writes nothing.
    ///
    /// A mask without other index Tensors is not computed here: `value` broadcasts to the true elements, or has a row
    /// for each, and true elements after its last row stay as they are.
    ///
    /// # Errors
    /// (Carried by this Tensor afterwards.) As [`Tensor::get`]; a value whose shape or type does not fit.
    #[track_caller]
    pub fn set(&self, index: impl IntoIndices, value: impl Operand<Tensor>) -> &Tensor {
        self.set_list(index.into_indices(), value.operand())
    }
    #[track_caller]
    fn set_list(&self, index: Vec<Index>, value: Result<UOp, Fault>) -> &Tensor {
        let picks = index.iter().filter(|i| matches!(i, Index::Pick(_))).count();
        if picks == 1 {
            return self.store(&index, value);
        }
        match unmasked(Call::of("set"), self, index) {
            Ok(index) => self.store(&index, value),
            Err(fault) => {
                self.replace(&Tensor::of(Err(fault)));
                self
            }
        }
    }
    /// Stores what `f` makes of the part at these indices: `x.update(1..3, |part| part + 1)` is Python's `x[1:3] += 1`.
    /// An element that is named several times is updated once.
    ///
    /// # Errors
    /// As [`Tensor::set`].
    #[track_caller]
    pub fn update(&self, index: impl IntoIndices, f: impl FnOnce(Tensor) -> Tensor) -> &Tensor {
        let index = match unmasked(Call::of("update"), self, index.into_indices()) {
            Ok(index) => index,
            Err(fault) => {
                self.replace(&Tensor::of(Err(fault)));
                return self;
            }
        };
        let part = f(Indexing::get(self, index.as_slice()));
        self.store(&index, part.node())
    }
    /// The values at the true elements of `mask` (broadcast to `self`), in row-major order, as a vector. How many they
    /// are depends on data: the mask is computed here. [`Order::masked_select_static`] does without that.
    ///
    /// # Errors
    /// (Carried by the Tensor.) A mask that is not Bool or does not broadcast; what computing it refuses.
    #[track_caller]
    pub fn masked_select(&self, mask: &Tensor) -> Tensor {
        let call = Call::of("masked_select");
        let sized = self.masked_select_static(mask, 0, 0);
        let size = || {
            let (node, mask) = (self.node()?, mask.node()?);
            sized.node()?;
            let wide = Tensor::from(mask.clone()).expand_to(&node);
            count(&wide).map_err(|error| call.carried(error, &[node, mask]))
        };
        match size() {
            Ok(size) => self.masked_select_static(mask, size, 0),
            Err(fault) => Tensor::of(Err(fault)),
        }
    }
    /// Where the elements are not zero: (count, rank) positions (i32) in row-major order. The count depends on data:
    /// the Tensor is computed here. [`Order::nonzero_static`] does without that.
    ///
    /// # Errors
    /// (Carried by the Tensor.) What computing it refuses.
    #[track_caller]
    pub fn nonzero(&self) -> Tensor {
        let call = Call::of("nonzero");
        let size = || {
            let node = self.node()?;
            let counted = self.realize().and_then(|x| count(&x.ne(0)));
            counted.map_err(|error| call.carried(error, &[node]))
        };
        match size() {
            Ok(size) => self.nonzero_static(size, 0),
            Err(fault) => Tensor::of(Err(fault)),
        }
    }
    /// The different elements in ascending order, each element's number among them, and how often each occurs: torch's
    /// `unique` with `return_inverse` and `return_counts`. How many they are depends on data: the Tensor is computed
    /// and sorted here. [`Order::unique_static`] does without that. Every NaN is different.
    ///
    /// # Errors
    /// (Carried by the Tensors.) What computing it refuses.
    #[track_caller]
    pub fn unique(&self) -> Unique {
        let call = Call::of("unique");
        let size = || {
            let node = self.node()?;
            self.realize().map_err(|error| call.carried(error, std::slice::from_ref(&node)))?;
            let groups = group_count(&self.node()?);
            let groups = groups.map_err(|problem| call.fault(problem, std::slice::from_ref(&node)))?;
            let size = Tensor::from(groups).item();
            size.map(|n| n as usize).map_err(|error| call.carried(error, &[node]))
        };
        match size() {
            Ok(size) => {
                let (values, inverse, counts) = self.unique_static(size, 0);
                Unique { values, inverse, counts }
            }
            Err(fault) => {
                let faulty = || Tensor::of(Err(fault.clone()));
                Unique { values: faulty(), inverse: faulty(), counts: faulty() }
            }
        }
    }
    /// Whether all elements are close to those of `o`: [`is_close`](Elementwise::is_close) (torch: `rtol` 1e-5, `atol`
    /// 1e-8) over everything, computed here.
    ///
    /// # Errors
    /// As `realize`.
    pub fn allclose(&self, o: impl Operand<Tensor>, rtol: f64, atol: f64) -> Result<bool, Error> {
        Ok(self.is_close(o, rtol, atol).all(()).item()? != 0.0)
    }

    /// Broadcast to the shape of another node.
    fn expand_to(&self, o: &UOp) -> Tensor {
        crate::tensor::Movement::expand(self, o.shape())
    }
}
