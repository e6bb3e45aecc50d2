//! Capture and replay: the second call of a recorded function is captured; from the third call on, its commands are
//! replayed.
//!
//! A replay patches the addresses of inputs and the values of variables into one recorded list, and submits it once.
//! Tensors assigned to during the capture (parameters, optimiser state) are assigned to at each replay; they get a new
//! version of their buffer, so that values computed from the old contents are not mistaken for current ones.
//! As in tinygrad, the returned Tensors share their memory between calls, and host values are frozen at capture.
//! An input that is part of a buffer is recorded as a separate buffer in the same memory, even if the function also
//! uses the whole buffer. An input that a replay might overwrite (a result of the previous call, a part of captured
//! memory) is copied first.
//! A result that is an input, or a view of one, is made anew from each call's inputs ([`Outputs`]).

use super::jit_outputs::{Call, Outputs};
use super::memory::{AllocationId, allocation_id, attached, dense_view};
use super::realize::Assigned;
use super::{Error, JitError, Session, session};
use crate::device::{Arg, Command, Location, Memory, Patch, QueueKind, Recorded};
use crate::tensor::{Elementwise, Movement, Tensor, Value};
use crate::uop::{BufferRef, Dim, Op, Scalar, UOp, numel};
use std::cell::RefCell;
use std::sync::Arc;

/// State of the capture in progress on this thread: commands and their arguments.
#[derive(Default)]
pub(super) struct Capture {
    pub device: Option<Arc<str>>,
    pub commands: Vec<Command>,
    /// Variable arguments: (command, argument, name).
    pub vars: Vec<(usize, usize, Arc<str>)>,
    /// The allocation of each buffer argument: (command, argument, allocation).
    pub allocations: Vec<(usize, usize, AllocationId)>,
    pub assigned: Vec<Assigned>,
    pub kernels: u64,
    pub flops: u64,
    pub mem_bytes: u64,
    pub error: Option<JitError>,
}

thread_local! {
    static CAPTURE: RefCell<Option<Capture>> = const { RefCell::new(None) };
}

/// Runs `f` on this thread's capture, if one is in progress.
pub(super) fn capturing<R>(f: impl FnOnce(&mut Capture) -> R) -> Option<R> {
    CAPTURE.with(|c| c.borrow_mut().as_mut().map(f))
}

/// The properties that an input must have at each replay.
struct Input {
    shape: String,
    dtype: Scalar,
    device: String,
}

struct Recording {
    list: Box<dyn Recorded>,
    inputs: Vec<Input>,
    /// (command, argument, input, byte offset from the input's start).
    places: Vec<InputUse>,
    vars: Vec<(usize, usize, Arc<str>)>,
    outputs: Outputs,
    /// Captured Tensors that the function assigns to.
    assigned: Vec<Assigned>,
    /// Inputs that the function assigns to.
    assigned_inputs: Vec<usize>,
    patches: Vec<Patch>,
    totals: (u64, u64, u64),
    device: Arc<str>,
    /// Memory that the commands use in addition to the inputs: results, temporaries, state.
    own: Vec<Memory>,
    /// Nodes of the inputs whose addresses are currently in the list; empty if that is not certain.
    last: Vec<UOp>,
}

/// Ends this thread's capture on drop, also if the function panics.
struct Open;

impl Drop for Open {
    fn drop(&mut self) {
        CAPTURE.with(|c| c.borrow_mut().take());
    }
}

/// An input's memory and its length in bytes.
type InputMemory = (Location, u64);

/// A function of Tensors that is recorded once and replayed.
pub struct Jit<F> {
    function: F,
    calls: usize,
    recording: Option<Recording>,
}

impl<F: FnMut(&[Tensor]) -> Result<Vec<Tensor>, Error>> Jit<F> {
    pub fn new(function: F) -> Jit<F> {
        Jit { function, calls: 0, recording: None }
    }

    /// Calls the function with these inputs, which are realized first. The results are realized; the next call
    /// overwrites their memory.
    ///
    /// # Errors
    /// Errors of the function's Tensors; from the third call on, inputs that differ from the recorded ones.
    pub fn call(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let s = session()?;
        let s = s.as_ref();
        if let Some(r) = self.recording.as_mut().filter(|r| r.is_repeated(inputs)) {
            return r.repeat(s, inputs);
        }
        let passed = inputs;
        let inputs: Vec<Tensor> = inputs.iter().map(|t| buffer_of(s, t)).collect::<Result<_, _>>()?;
        let inputs = inputs.as_slice();
        if let Some(r) = &mut self.recording {
            return r.replay(s, inputs, passed);
        }
        self.calls += 1;
        let before: Vec<UOp> = inputs.iter().map(Value::node).collect::<Result<_, _>>()?;
        let out = if self.calls < 2 || !s.options.jit {
            let out = (self.function)(inputs)?;
            Tensor::realize_all(&out)?;
            out
        } else {
            self.capture(s, inputs)?
        };
        for ((t, input), before) in passed.iter().zip(inputs).zip(before) {
            // The function has assigned to a separate buffer that stands for a part of the caller's buffer.
            if !t.is(input) && input.node()? != before {
                Assigned::new(t).renew();
            }
        }
        Ok(out)
    }

    /// Whether the next call is a replay.
    pub fn is_recorded(&self) -> bool {
        self.recording.is_some()
    }

    /// Drops the recording; the next call runs the function, and the one after it is captured again.
    pub fn reset(&mut self) {
        self.recording = None;
        self.calls = 0;
    }

    /// Number of kernels in one replay.
    pub fn kernels(&self) -> Option<u64> {
        self.recording.as_ref().map(|r| r.totals.0)
    }

    fn capture(&mut self, s: &Session, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let input_memory = inputs_of(inputs)?;
        let nested = CAPTURE.with(|c| {
            let mut c = c.borrow_mut();
            let nested = c.is_some();
            c.get_or_insert_with(Capture::default);
            nested
        });
        if nested {
            return Err(JitError::Nested.into());
        }
        let open = Open;
        let made = (self.function)(inputs).and_then(|out| Tensor::realize_all(&out).map(|()| out));
        let capture = CAPTURE.with(|c| c.borrow_mut().take()).unwrap_or_default();
        drop(open);
        if let Some(e) = capture.error {
            return Err(e.into());
        }
        let outputs = made?;
        let Some(device) = capture.device.clone() else { return Err(JitError::NothingCaptured.into()) };
        let allocations = inputs.iter().map(allocation_of).collect::<Result<Vec<_>, _>>()?;
        let (places, own) = input_uses(&capture, &input_memory, &allocations);
        let list = s.device(&device)?.device.record(&capture.commands)?;
        if s.options.debug >= 1 {
            s.say(&format!("jit: recorded {} commands on {device}, {} inputs", capture.commands.len(), inputs.len()));
        }
        self.recording = Some(Recording {
            list,
            inputs: inputs.iter().map(properties_of).collect::<Result<_, _>>()?,
            places,
            vars: capture.vars,
            outputs: Outputs::recorded(&outputs, inputs, &allocations)?,
            assigned_inputs: (0..inputs.len()).filter(|k| capture.assigned.iter().any(|a| a.is(&inputs[*k]))).collect(),
            assigned: capture.assigned.into_iter().filter(|a| !inputs.iter().any(|t| a.is(t))).collect(),
            patches: Vec::new(),
            totals: (capture.kernels, capture.flops, capture.mem_bytes),
            device,
            own,
            last: Vec::new(),
        });
        Ok(outputs)
    }
}

fn properties_of(t: &Tensor) -> Result<Input, Error> {
    // A variable's value may differ between calls; its name and position may not.
    let unbound = |d: &Dim| {
        d.uop().toposort().iter().fold(d.uop(), |e, b| match b.op() {
            Op::Bind => e.substitute(&[(b.clone(), b.src()[0].clone())].into_iter().collect()),
            _ => e,
        })
    };
    let shape: Vec<String> = t.shape()?.iter().map(|d| unbound(d).render()).collect();
    Ok(Input { shape: format!("({})", shape.join(", ")), dtype: t.dtype()?, device: t.device().to_string() })
}

/// Realizes an input and returns it as a whole buffer: a part of a buffer, or one with a variable size, becomes a
/// separate buffer on the same memory; an input without dense memory is copied.
fn buffer_of(s: &Session, t: &Tensor) -> Result<Tensor, Error> {
    t.realize()?;
    let u = t.uop()?;
    let Some((buffer, offset)) = dense_view(&u) else {
        let dense = Tensor::from(&u).contiguous();
        dense.realize()?;
        return Ok(dense);
    };
    let Some(whole) = buffer.buffer_ref() else { return Ok(t.clone()) };
    let is_symbolic = u.shape().iter().any(|d| d.as_int().is_none());
    // A variable size: the buffer has the largest size, and its first elements are used.
    let len = numel(u.shape());
    let most = usize::try_from(len.max()).unwrap_or(whole.len);
    let (true, Some(mut place)) = (is_symbolic || most < whole.len, attached(whole)) else { return Ok(t.clone()) };
    place.offset += (offset * buffer.dtype().scalar.size_bytes()) as u64;
    let part = BufferRef::new(most, whole.device.clone());
    s.attach(&part, place)?;
    let all = Tensor::from(UOp::buffer(buffer.dtype(), part));
    Ok(if is_symbolic { all.narrow(0, 0, len) } else { all }.reshape(u.shape()))
}

/// The inputs' locations; each must be a separate buffer.
fn inputs_of(inputs: &[Tensor]) -> Result<Vec<InputMemory>, Error> {
    let places = inputs.iter().map(location_of).collect::<Result<Vec<_>, _>>()?;
    for (second, (p, _)) in places.iter().enumerate() {
        let same = |(q, _): &InputMemory| q.memory.is_same(&p.memory) && q.offset == p.offset;
        if let Some(first) = places[..second].iter().position(same) {
            return Err(JitError::SameBuffer { first, second }.into());
        }
    }
    Ok(places)
}

fn location_of(t: &Tensor) -> Result<InputMemory, Error> {
    let u = t.uop()?;
    let lost = || Error::Internal(format!("an input of a jit is not a buffer: {u:?}"));
    let (buffer, offset) = dense_view(&u).ok_or_else(lost)?;
    let whole = buffer.buffer_ref().ok_or_else(lost)?;
    let mut place = attached(whole).ok_or_else(lost)?;
    let elem = buffer.dtype().scalar.size_bytes() as u64;
    place.offset += offset as u64 * elem;
    // An input with a variable size may lie in memory too small for its largest size.
    let room = place.memory.len_bytes().saturating_sub(place.offset);
    let len_bytes = ((whole.len - offset) as u64 * elem).min(room);
    Ok((place, len_bytes))
}

/// Where a command uses an input's memory: (command, argument, input, byte offset from the input's start).
type InputUse = (usize, usize, usize, u64);

/// The allocation that an input belongs to.
fn allocation_of(t: &Tensor) -> Result<AllocationId, Error> {
    let buffer = dense_view(&t.uop()?).and_then(|(b, _)| b.buffer_ref().and_then(|b| allocation_id(b)));
    buffer.ok_or_else(|| Error::Internal("an input of a jit has no memory".into()))
}

/// Finds the commands' uses of the inputs' memory, and the other memory that they use. A buffer captured by the
/// function is not an input, even if an input is a part of it.
fn input_uses(capture: &Capture, inputs: &[InputMemory], allocations: &[AllocationId]) -> (Vec<InputUse>, Vec<Memory>) {
    let (mut out, mut own): (Vec<_>, Vec<Memory>) = (Vec::new(), Vec::new());
    let mut used = capture.allocations.iter().peekable();
    let mut look = |command: usize, arg: usize, p: &Location| {
        // The allocations are listed in the order of the commands and their arguments.
        while used.next_if(|(c, a, _)| (*c, *a) < (command, arg)).is_some() {}
        let allocation_id = used.next_if(|(c, a, _)| (*c, *a) == (command, arg)).map(|u| &u.2);
        let within = |k: usize, (q, len): &InputMemory| {
            allocation_id.is_some_and(|h| h.is_same(&allocations[k]))
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

impl Recording {
    /// Whether the inputs are exactly those of the last replay: then nothing needs to be checked or patched.
    fn is_repeated(&self, inputs: &[Tensor]) -> bool {
        let same = |(t, last): (&Tensor, &UOp)| t.node().is_ok_and(|u| u == *last);
        self.last.len() == inputs.len() && !inputs.is_empty() && inputs.iter().zip(&self.last).all(same)
    }

    fn replay(&mut self, s: &Session, inputs: &[Tensor], passed: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        self.last.clear();
        self.check(inputs)?;
        let input_memory = inputs_of(inputs)?;
        let copies =
            input_memory.iter().map(|input_memory| self.copy(s, input_memory)).collect::<Result<Vec<_>, _>>()?;
        self.patches.clear();
        for (command, arg, input, offset) in &self.places {
            let mut place = copies[*input].clone().unwrap_or_else(|| input_memory[*input].0.clone());
            place.offset += offset;
            self.patches.push(Patch::Arg { command: *command, arg: *arg, value: Arg::Buffer(place) });
        }
        if !self.vars.is_empty() || self.outputs.have_variables() {
            let bound = bound_variables(inputs)?;
            self.outputs.bind(&bound);
            for (command, arg, name) in &self.vars {
                let v = bound.iter().find(|b| b.0 == *name).ok_or_else(|| JitError::Unbound(name.to_string()))?;
                self.patches.push(Patch::Arg { command: *command, arg: *arg, value: Arg::Var(v.1) });
            }
        }
        let patches = std::mem::take(&mut self.patches);
        self.run(s, &patches)?;
        self.patches = patches;
        for k in &self.assigned_inputs {
            Assigned::new(&passed[*k]).renew();
        }
        let out = self.outputs.of(s, &Call { passed, whole: inputs, copies: &copies })?;
        if self.assigned_inputs.is_empty() && copies.iter().all(Option::is_none) {
            self.last = passed.iter().map(Value::node).collect::<Result<_, _>>()?;
        }
        Ok(out)
    }

    /// Replays the unchanged list: the inputs' nodes are those of the previous call.
    fn repeat(&mut self, s: &Session, passed: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        self.run(s, &[])?;
        Ok(self.outputs.again(passed))
    }

    /// Submits the recorded list once, with these patches.
    fn run(&mut self, s: &Session, patches: &[Patch]) -> Result<(), Error> {
        self.list.replay(patches)?;
        let (kernels, flops, mem) = self.totals;
        s.counters.launched(kernels, 0, flops, mem);
        for a in &self.assigned {
            a.renew();
        }
        Ok(())
    }

    /// Copies an input that lies in memory which the commands may overwrite before they read it.
    fn copy(&self, s: &Session, (place, len_bytes): &InputMemory) -> Result<Option<Location>, Error> {
        if !self.own.iter().any(|m| m.is_same(&place.memory)) {
            return Ok(None);
        }
        let device = &s.device(&self.device)?.device;
        let copy = device.alloc(*len_bytes)?.at(0);
        device.submit(QueueKind::Compute, &[Command::copy(copy.clone(), place.clone(), *len_bytes)])?;
        Ok(Some(copy))
    }

    fn check(&self, inputs: &[Tensor]) -> Result<(), Error> {
        if inputs.len() != self.inputs.len() {
            return Err(JitError::Count { have: inputs.len(), want: self.inputs.len() }.into());
        }
        for (index, (t, want)) in inputs.iter().zip(&self.inputs).enumerate() {
            let have = properties_of(t)?;
            if have.shape != want.shape {
                return Err(JitError::Shape { index, have: have.shape, want: want.shape.clone() }.into());
            }
            if have.dtype != want.dtype {
                let (have, want) = (have.dtype.to_string(), want.dtype.to_string());
                return Err(JitError::Dtype { index, have, want }.into());
            }
            if have.device != want.device {
                return Err(JitError::Device { index, have: have.device, want: want.device.clone() }.into());
            }
        }
        Ok(())
    }
}

/// The variables bound in the inputs' shapes and values; each must have a single value.
fn bound_variables(inputs: &[Tensor]) -> Result<Vec<(Arc<str>, i64)>, Error> {
    let mut out: Vec<(Arc<str>, i64)> = Vec::new();
    for t in inputs {
        for u in t.uop()?.toposort() {
            if u.op() == Op::Bind
                && let (crate::uop::Arg::Var(name, ..), Some(v)) =
                    (u.src()[0].arg(), u.src().get(1).and_then(UOp::as_int))
            {
                match out.iter().find(|input_memory| *input_memory.0 == **name) {
                    Some((_, first)) if *first != v => {
                        return Err(JitError::TwoValues { name: name.to_string(), first: *first, second: v }.into());
                    }
                    Some(_) => {}
                    None => out.push((name.shared(), v)),
                }
            }
        }
    }
    Ok(out)
}
