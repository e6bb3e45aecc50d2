//! The Tensors that a recorded function is called with, as the buffers whose places its commands have: a sharded one
//! has a buffer on each of its devices.

use super::jit_capture::Capture;
use super::memory::{AllocationId, allocation_id, attached, dense_view};
use super::{Error, JitError, Session};
use crate::device::{Arg, Command, Location, Memory};
use crate::tensor::{DEVICE_SEPARATOR, Elementwise, Movement, Tensor};
use crate::uop::{BufferRef, Op, Scalar, UOp, numel};

/// What an input must be like at each replay.
#[derive(PartialEq)]
pub(super) struct Input {
    pub shape: String,
    pub dtype: Scalar,
    /// With the axis that its devices have parts of.
    pub device: String,
}

/// An input's memory and its length in bytes.
pub(super) type Known = (Location, u64);

/// The inputs of one call.
pub(super) struct Given {
    /// Each realized, as whole buffers.
    pub whole: Vec<Tensor>,
    /// Their buffers.
    pub parts: Vec<Tensor>,
    /// Of which input each is.
    pub of: Vec<usize>,
}

impl Given {
    pub(super) fn new(s: &Session, asked: &[Tensor]) -> Result<Given, Error> {
        let whole: Vec<Tensor> = asked.iter().map(|t| buffers_of(s, t)).collect::<Result<_, _>>()?;
        let mut given = Given { parts: Vec::with_capacity(whole.len()), of: Vec::with_capacity(whole.len()), whole };
        for (k, t) in given.whole.iter().enumerate() {
            let u = t.uop()?;
            match u.op() {
                Op::Shard => given.parts.extend(u.src().iter().map(Tensor::from)),
                _ => given.parts.push(t.clone()),
            }
            given.of.resize(given.parts.len(), k);
        }
        Ok(given)
    }

    /// Names of the parts from those of the inputs.
    fn names(&self, names: &[String]) -> Vec<String> {
        let alone = |k: usize| self.of.iter().filter(|of| **of == k).count() == 1;
        let name = |(k, part): (&usize, &Tensor)| match names.get(*k) {
            Some(name) if alone(*k) => name.clone(),
            Some(name) => format!("{name} on {}", part.device()),
            None => format!("input {k}"),
        };
        self.of.iter().zip(&self.parts).map(name).collect()
    }

    /// Places of the parts, each a buffer of its own. `names` are the inputs'.
    pub(super) fn places(&self, names: &[String]) -> Result<Vec<Known>, Error> {
        let places = self.parts.iter().map(place_of).collect::<Result<Vec<_>, _>>()?;
        for (second, (p, _)) in places.iter().enumerate() {
            let same = |(q, _): &Known| q.memory.is_same(&p.memory) && q.offset == p.offset;
            if let Some(first) = places[..second].iter().position(same) {
                let names = self.names(names);
                return Err(JitError::SameBuffer { first: names[first].clone(), second: names[second].clone() }.into());
            }
        }
        Ok(places)
    }

    /// Whose memory each part is.
    pub(super) fn allocations(&self) -> Result<Vec<AllocationId>, Error> {
        self.parts.iter().map(allocation_of).collect()
    }
}

/// An expression without the values of its variables, which may differ from call to call; their names may not.
pub(super) fn unbound(u: UOp) -> UOp {
    u.toposort().iter().fold(u, |e, b| match b.op() {
        Op::Bind => e.substitute(&[(b.clone(), b.src()[0].clone())].into_iter().collect()),
        _ => e,
    })
}

pub(super) fn facts(t: &Tensor) -> Result<Input, Error> {
    let shape: Vec<String> = t.shape()?.iter().map(|d| unbound(d.uop()).render()).collect();
    let mut device = t.device().replace(DEVICE_SEPARATOR, ", ");
    let u = t.uop()?;
    if let (Op::Shard, Some(axis)) = (u.op(), u.axes().first()) {
        device = format!("{device} along axis {axis}");
    }
    Ok(Input { shape: format!("({})", shape.join(", ")), dtype: t.dtype()?, device })
}

/// The input realized, as a whole buffer on each of its devices.
fn buffers_of(s: &Session, t: &Tensor) -> Result<Tensor, Error> {
    t.realize()?;
    if !t.device().contains(DEVICE_SEPARATOR) {
        return buffer_of(s, t);
    }
    let mut t = t.clone();
    if t.uop()?.op() != Op::Shard {
        // A movement of what lies on the devices.
        t = Tensor::from(&t.uop()?).contiguous();
        t.realize()?;
    }
    let u = t.uop()?;
    let part = |p: &UOp| Ok(buffer_of(s, &Tensor::from(p))?.uop()?);
    let parts = u.src().iter().map(part).collect::<Result<Vec<UOp>, Error>>()?;
    Ok(if parts == u.src() { t } else { Tensor::from(&u.with_src(parts)) })
}

/// A realized input on one device, as a whole buffer: a part of one and what has a variable size become a buffer of
/// their own on the same memory, what has no dense memory is copied.
fn buffer_of(s: &Session, t: &Tensor) -> Result<Tensor, Error> {
    let u = t.uop()?;
    let Some((buffer, offset)) = dense_view(&u) else {
        let dense = Tensor::from(&u).contiguous();
        dense.realize()?;
        return Ok(dense);
    };
    let Some(whole) = buffer.buffer_ref() else { return Ok(t.clone()) };
    let is_symbolic = u.shape().iter().any(|d| d.as_int().is_none());
    // Of a variable size: as long as it can be, of which the first elements are shown.
    let len = numel(u.shape());
    let most = usize::try_from(len.max()).unwrap_or(whole.len);
    let (true, Some(mut place)) = (is_symbolic || most < whole.len, attached(whole)) else { return Ok(t.clone()) };
    place.offset += (offset * buffer.dtype().scalar.size_bytes()) as u64;
    let part = BufferRef::new(most, whole.device.clone());
    s.attach(&part, place)?;
    let all = Tensor::from(UOp::buffer(buffer.dtype(), part));
    Ok(if is_symbolic { all.narrow(0, 0, len) } else { all }.reshape(u.shape()))
}

fn place_of(t: &Tensor) -> Result<Known, Error> {
    let u = t.uop()?;
    let lost = || Error::Internal(format!("an input of a jit is not a buffer: {u:?}"));
    let (buffer, offset) = dense_view(&u).ok_or_else(lost)?;
    let whole = buffer.buffer_ref().ok_or_else(lost)?;
    let mut place = attached(whole).ok_or_else(lost)?;
    let elem = buffer.dtype().scalar.size_bytes() as u64;
    place.offset += offset as u64 * elem;
    // What has a variable size may lie where there is no room for its largest.
    let room = place.memory.len_bytes().saturating_sub(place.offset);
    let len_bytes = ((whole.len - offset) as u64 * elem).min(room);
    Ok((place, len_bytes))
}

/// Where a command uses an input's memory: (command, argument, input, byte offset from the input's start).
pub(super) type InputUse = (usize, usize, usize, u64);

/// Whose memory an input is.
fn allocation_of(t: &Tensor) -> Result<AllocationId, Error> {
    let buffer = dense_view(&t.uop()?).and_then(|(b, _)| b.buffer_ref().and_then(|b| allocation_id(b)));
    buffer.ok_or_else(|| Error::Internal("an input of a jit has no memory".into()))
}

/// Where the commands use the inputs' memory, and the other memory that they use. A buffer that the function has
/// captured is no input, even if an input is a part of it.
pub(super) fn input_places(
    capture: &Capture,
    inputs: &[Known],
    allocations: &[AllocationId],
) -> (Vec<InputUse>, Vec<Memory>) {
    let (mut out, mut own): (Vec<_>, Vec<Memory>) = (Vec::new(), Vec::new());
    let mut used = capture.allocations.iter().peekable();
    let mut look = |command: usize, arg: usize, p: &Location| {
        // The allocations are listed in the order of the commands and their arguments.
        while used.next_if(|(c, a, _)| (*c, *a) < (command, arg)).is_some() {}
        let allocation = used.next_if(|(c, a, _)| (*c, *a) == (command, arg)).map(|u| &u.2);
        let within = |k: usize, (q, len): &Known| {
            allocation.is_some_and(|h| h.is_same(&allocations[k]))
                && q.memory.is_same(&p.memory)
                && p.offset >= q.offset
                && (p.offset < q.offset + len || p.offset == q.offset)
        };
        match inputs.iter().enumerate().find(|(k, q)| within(*k, q)) {
            Some((k, q)) => out.push((command, arg, k, p.offset - q.0.offset)),
            None if own.iter().any(|m| m.is_same(&p.memory)) => {}
            None => own.push(p.memory.clone()),
        }
    };
    for (c, command) in capture.commands.iter().enumerate() {
        match command {
            Command::Exec { args, .. } => {
                for (a, arg) in args.iter().enumerate() {
                    if let Arg::Buffer(p) = arg {
                        look(c, a, p);
                    }
                }
            }
            Command::Copy { dst, src, .. } => {
                look(c, 0, dst);
                look(c, 1, src);
            }
            _ => {}
        }
    }
    (out, own)
}
