//! The results of a replay: memory of the recording, or the call's inputs and views of them.
//!
//! A result in an input's memory is not part of the recording: each call has its own inputs, so such results are made
//! anew from them. A size that depends on a variable contains the variable with its value; it gets the value of the
//! current call.

use super::memory::{AllocationId, allocation_id};
use super::{Error, Session};
use crate::device::Location;
use crate::tensor::{Tensor, Value};
use crate::uop::{Arg, BufferRef, Op, UMap, UOp};
use std::sync::Arc;

/// One result as it was recorded.
enum Output {
    /// Memory of the recording, or of a Tensor captured by the function.
    Own(Tensor),
    /// The input with this index, as passed to the call.
    Input(usize),
    /// A movement of an input's buffer, with that buffer's node.
    View { input: usize, view: UOp, buffer: UOp },
}

/// The results of a recording.
pub(super) struct Outputs {
    list: Vec<Output>,
    /// Variables in the results: name, and the node with the value at capture.
    binds: Vec<(Arc<str>, UOp)>,
    /// Maps these nodes to those of the last call, if they differ.
    values: UMap<UOp>,
    /// The results of the last call.
    given: Vec<Tensor>,
}

/// The inputs of one call: as passed, as whole buffers, and the copies that were made of some.
pub(super) struct Call<'a> {
    pub passed: &'a [Tensor],
    pub whole: &'a [Tensor],
    pub copies: &'a [Option<Location>],
}

fn lost() -> Error {
    Error::Internal("a result of a jit has no memory".into())
}

/// The Buffer node below a movement.
fn buffer_below(u: &UOp) -> Option<UOp> {
    u.toposort().into_iter().find(|b| b.op() == Op::Buffer)
}

impl Outputs {
    /// `allocations`: the inputs' allocations.
    pub(super) fn recorded(
        outputs: &[Tensor],
        inputs: &[Tensor],
        allocations: &[AllocationId],
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
            let buffer = buffer_below(&view).ok_or_else(lost)?;
            let own = buffer.buffer_ref().and_then(|b| allocation_id(b)).ok_or_else(lost)?;
            list.push(match allocations.iter().position(|h| h.is_same(&own)) {
                None => Output::Own(t.clone()),
                Some(k) if t.is(&inputs[k]) => Output::Input(k),
                Some(input) => Output::View { input, view, buffer },
            });
        }
        Ok(Outputs { list, binds, values: UMap::default(), given: outputs.to_vec() })
    }

    pub(super) fn have_variables(&self) -> bool {
        !self.binds.is_empty()
    }

    /// The results of a call with the same input nodes as the previous call.
    pub(super) fn again(&self, passed: &[Tensor]) -> Vec<Tensor> {
        let one = |(output, given): (&Output, &Tensor)| match output {
            Output::Input(k) => passed[*k].clone(),
            _ => given.clone(),
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
        self.given.clone_from(&made);
        Ok(made)
    }

    fn made(&self, s: &Session, call: &Call, output: &Output) -> Result<Tensor, Error> {
        match output {
            Output::Own(t) => {
                let recorded = t.node()?;
                let now = recorded.substitute(&self.values);
                Ok(if now == recorded { t.clone() } else { Tensor::from(now) })
            }
            Output::Input(k) => match &call.copies[*k] {
                None => Ok(call.passed[*k].clone()),
                Some(place) => {
                    let u = call.whole[*k].node()?;
                    let buffer = buffer_below(&u).ok_or_else(lost)?;
                    let copy = buffer_at(s, &buffer, place.clone())?;
                    Ok(Tensor::from(u.substitute(&[(buffer, copy)].into_iter().collect())))
                }
            },
            Output::View { input, view, buffer } => {
                let now = match &call.copies[*input] {
                    Some(place) => buffer_at(s, buffer, place.clone())?,
                    None => buffer_below(&call.whole[*input].node()?).ok_or_else(lost)?,
                };
                let mut map = self.values.clone();
                map.insert(buffer.clone(), now);
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
