//! The results of a replay: memory of the recording, or the call's inputs and views of them.
//!
//! A result in an input's memory is not part of the recording: each call has its own inputs, so such results are made
//! anew from them. A size that depends on a variable contains the variable with its value; it gets the value of the
//! current call.

use super::jit_inputs::Given;
use super::memory::{AllocationId, allocation_id};
use super::realize::Assigned;
use super::{Error, Session};
use crate::device::Location;
use crate::tensor::{Tensor, Value};
use crate::uop::{Arg, BufferRef, Op, UMap, UOp};
use std::sync::Arc;

/// One result as it was recorded.
enum Output {
    /// Memory of the recording.
    Own(UOp),
    /// A Tensor that the function has captured and assigns to.
    Assigned(Tensor),
    /// The input with this index, as passed to the call.
    Input(usize),
    /// A movement of buffers that the inputs have: the numbers of these buffers, with their nodes.
    View { buffers: Vec<(usize, UOp)>, view: UOp },
}

/// The results of a recording.
pub(super) struct Outputs {
    list: Vec<Output>,
    /// Variables in the results: name, and the node with the value at capture.
    binds: Vec<(Arc<str>, UOp)>,
    /// Maps these nodes to those of the last call, if they differ.
    values: UMap<UOp>,
    /// The nodes of the last call's results: the Tensors are the caller's, who may assign to them.
    given: Vec<UOp>,
}

/// The inputs of one call: as passed, as buffers, and the copies that were made of some of these.
pub(super) struct Call<'a> {
    pub passed: &'a [Tensor],
    pub given: &'a Given,
    pub copies: &'a [Option<Location>],
}

impl Call<'_> {
    /// The node of an input's buffer, or of its copy.
    fn buffer(&self, s: &Session, part: usize) -> Result<UOp, Error> {
        let own = buffers_below(&self.given.parts[part].node()?).pop().ok_or_else(lost)?;
        match &self.copies[part] {
            None => Ok(own),
            Some(place) => buffer_at(s, &own, place.clone()),
        }
    }
}

fn lost() -> Error {
    Error::Internal("a result of a jit has no memory".into())
}

/// The Buffer nodes below a movement: one on each device.
fn buffers_below(u: &UOp) -> Vec<UOp> {
    u.toposort().into_iter().filter(|b| b.op() == Op::Buffer).collect()
}

impl Outputs {
    /// `allocations`: those of the inputs' buffers.
    pub(super) fn recorded(
        outputs: &[Tensor],
        inputs: &Given,
        allocations: &[AllocationId],
        assigned: &[Assigned],
    ) -> Result<Outputs, Error> {
        let (mut list, mut binds): (Vec<Output>, Vec<(Arc<str>, UOp)>) = (Vec::new(), Vec::new());
        for t in outputs {
            let view = t.node()?;
            for b in view.toposort().into_iter().filter(|b| b.op() == Op::Bind) {
                if let Some(Arg::Var(name, ..)) = b.src().first().map(UOp::arg)
                    && binds.iter().all(|known| *known.0 != **name)
                {
                    binds.push((name.shared(), b.clone()));
                }
            }
            let mut buffers = Vec::new();
            let below = buffers_below(&view);
            if below.is_empty() {
                return Err(lost());
            }
            for buffer in below {
                let own = buffer.buffer_ref().and_then(|b| allocation_id(b)).ok_or_else(lost)?;
                buffers.extend(allocations.iter().position(|h| h.is_same(&own)).map(|part| (part, buffer)));
            }
            list.push(match inputs.whole.iter().position(|input| t.is(input)) {
                _ if buffers.is_empty() && assigned.iter().any(|a| a.is(t)) => Output::Assigned(t.clone()),
                _ if buffers.is_empty() => Output::Own(view),
                Some(k) => Output::Input(k),
                None => Output::View { buffers, view },
            });
        }
        Ok(Outputs { list, binds, values: UMap::default(), given: Vec::new() })
    }

    pub(super) fn have_variables(&self) -> bool {
        !self.binds.is_empty()
    }

    /// The results of a call with the same input nodes as the previous call.
    pub(super) fn again(&self, passed: &[Tensor]) -> Vec<Tensor> {
        let one = |(output, given): (&Output, &UOp)| match output {
            Output::Input(k) => passed[*k].clone(),
            Output::Assigned(t) => t.clone(),
            _ => Tensor::from(given),
        };
        self.list.iter().zip(&self.given).map(one).collect()
    }

    /// Sets the values of this call's variables.
    pub(super) fn bind(&mut self, bound: &[(Arc<str>, i64)]) {
        self.values.clear();
        for (name, node) in &self.binds {
            if let Some((_, value)) = bound.iter().find(|b| b.0 == *name) {
                let now = node.src()[0].bind(*value);
                if now != *node {
                    self.values.insert(node.clone(), now);
                }
            }
        }
    }

    /// The results of a call, after its commands.
    pub(super) fn of(&mut self, s: &Session, call: &Call) -> Result<Vec<Tensor>, Error> {
        let made = self.list.iter().map(|o| self.made(s, call, o)).collect::<Result<Vec<_>, _>>()?;
        self.given = made.iter().map(Value::node).collect::<Result<_, _>>()?;
        Ok(made)
    }

    fn made(&self, s: &Session, call: &Call, output: &Output) -> Result<Tensor, Error> {
        match output {
            Output::Own(view) => Ok(Tensor::from(view.substitute(&self.values))),
            Output::Assigned(t) => {
                let recorded = t.node()?;
                let now = recorded.substitute(&self.values);
                Ok(if now == recorded { t.clone() } else { Tensor::from(now) })
            }
            Output::Input(k) => {
                let parts = || (0..call.copies.len()).filter(|part| call.given.of[*part] == *k);
                if parts().all(|part| call.copies[part].is_none()) {
                    return Ok(call.passed[*k].clone());
                }
                let mut map = UMap::default();
                for part in parts() {
                    let own = buffers_below(&call.given.parts[part].node()?).pop().ok_or_else(lost)?;
                    map.insert(own, call.buffer(s, part)?);
                }
                Ok(Tensor::from(call.given.whole[*k].node()?.substitute(&map)))
            }
            Output::View { buffers, view } => {
                let mut map = self.values.clone();
                for (part, buffer) in buffers {
                    map.insert(buffer.clone(), call.buffer(s, *part)?);
                }
                Ok(Tensor::from(view.substitute(&map)))
            }
        }
    }
}

/// A new buffer like `model` on existing memory.
fn buffer_at(s: &Session, model: &UOp, place: Location) -> Result<UOp, Error> {
    let whole = model.buffer_ref().ok_or_else(lost)?;
    let alias = BufferRef::new(whole.len, whole.device.clone());
    s.attach(&alias, place)?;
    Ok(UOp::buffer(model.dtype(), alias))
}
