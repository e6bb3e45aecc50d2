//! Capture and replay: the second call of a recorded function is captured, from the third on its commands are replayed.
//!
//! A replay patches the addresses of the inputs and the values of variables into one recorded list and rings once. What
//! was assigned to during the capture (parameters, optimiser state) is assigned to at each replay; the Tensors that
//! hold it get a new version of their buffer, so that nothing computed from the old content is taken for the new.
//! As with tinygrad's: the returned Tensors share their memory between calls, Python-like host values are frozen at
//! capture.
//! An input that is part of a buffer is recorded as a buffer of its own in the same memory, also where the function
//! uses the whole buffer besides; one that a replay might overwrite (a result of the call before, a part of captured
//! memory) is copied first.
//! A result that is an input, or a view of one, is made from the inputs of each call ([`Outputs`]).

use super::jit_outputs::{Call, Outputs};
use super::memory::{Home, attached, dense_view, home};
use super::realize::Assigned;
use super::{Error, JitError, Session, session};
use crate::device::{Arg, Command, Location, Memory, Patch, QueueKind, Recorded};
use crate::tensor::{Elementwise, Movement, Tensor, Value};
use crate::uop::{BufferRef, Dim, Op, Scalar, UOp, numel};
use std::cell::RefCell;
use std::sync::Arc;

/// Commands and facts of the capture that is going on in this thread.
#[derive(Default)]
pub(super) struct Capture {
    pub device: Option<Arc<str>>,
    pub commands: Vec<Command>,
    /// Variable arguments: (command, argument, name).
    pub vars: Vec<(usize, usize, Arc<str>)>,
    /// Whose memory the buffers are: (command, argument, home).
    pub homes: Vec<(usize, usize, Home)>,
    pub assigned: Vec<Assigned>,
    pub kernels: u64,
    pub flops: u64,
    pub mem_bytes: u64,
    pub error: Option<JitError>,
}

thread_local! {
    static CAPTURE: RefCell<Option<Capture>> = const { RefCell::new(None) };
}

/// Runs `f` on the capture of this thread, if one is going on.
pub(super) fn capturing<R>(f: impl FnOnce(&mut Capture) -> R) -> Option<R> {
    CAPTURE.with(|c| c.borrow_mut().as_mut().map(f))
}

/// What an input must be like at each replay.
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
    /// Inputs that it assigns to.
    assigned_inputs: Vec<usize>,
    patches: Vec<Patch>,
    totals: (u64, u64, u64),
    device: Arc<str>,
    /// Memory that the commands use for themselves: results, temporaries, state.
    own: Vec<Memory>,
    /// Nodes of the inputs whose places the list holds now; empty when they cannot be taken for granted.
    last: Vec<UOp>,
}

/// Ends the capture of this thread, also when the function panics.
struct Open;

impl Drop for Open {
    fn drop(&mut self) {
        CAPTURE.with(|c| c.borrow_mut().take());
    }
}

/// An input's memory and its length in bytes.
type Known = (Location, u64);

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

    /// Calls the function with these inputs (realized first). The results are realized; their memory is overwritten by
    /// the next call.
    ///
    /// # Errors
    /// What the function's Tensors carry; from the third call on, inputs unlike the recorded ones.
    pub fn call(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let s = session()?;
        let s = s.as_ref();
        if let Some(r) = self.recording.as_mut().filter(|r| r.is_repeated(inputs)) {
            return r.repeat(s, inputs);
        }
        let asked = inputs;
        let inputs: Vec<Tensor> = inputs.iter().map(|t| buffer_of(s, t)).collect::<Result<_, _>>()?;
        let inputs = inputs.as_slice();
        if let Some(r) = &mut self.recording {
            return r.replay(s, inputs, asked);
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
        for ((t, input), before) in asked.iter().zip(inputs).zip(before) {
            // The function has assigned to a buffer that was made for a part of the caller's.
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

    /// Forgets the recording; the next call runs the function, the one after it is captured again.
    pub fn reset(&mut self) {
        self.recording = None;
        self.calls = 0;
    }

    /// Kernels of one replay.
    pub fn kernels(&self) -> Option<u64> {
        self.recording.as_ref().map(|r| r.totals.0)
    }

    fn capture(&mut self, s: &Session, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let known = inputs_of(inputs)?;
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
        let homes = inputs.iter().map(home_of).collect::<Result<Vec<_>, _>>()?;
        let (places, own) = input_places(&capture, &known, &homes);
        let list = s.device(&device)?.device.record(&capture.commands)?;
        if s.options.debug >= 1 {
            s.say(&format!("jit: recorded {} commands on {device}, {} inputs", capture.commands.len(), inputs.len()));
        }
        self.recording = Some(Recording {
            list,
            inputs: inputs.iter().map(facts).collect::<Result<_, _>>()?,
            places,
            vars: capture.vars,
            outputs: Outputs::recorded(&outputs, inputs, &homes)?,
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

fn facts(t: &Tensor) -> Result<Input, Error> {
    // A variable's value may differ from call to call; its name and place may not.
    let unbound = |d: &Dim| {
        d.uop().toposort().iter().fold(d.uop(), |e, b| match b.op() {
            Op::Bind => e.substitute(&[(b.clone(), b.src()[0].clone())].into_iter().collect()),
            _ => e,
        })
    };
    let shape: Vec<String> = t.shape()?.iter().map(|d| unbound(d).render()).collect();
    Ok(Input { shape: format!("({})", shape.join(", ")), dtype: t.dtype()?, device: t.device().to_string() })
}

/// The input realized, as a whole buffer: a part of one and what has a variable size become a buffer of their own on
/// the same memory, what has no dense memory is copied.
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

/// Places of the inputs, each a buffer of its own.
fn inputs_of(inputs: &[Tensor]) -> Result<Vec<Known>, Error> {
    let places = inputs.iter().map(place_of).collect::<Result<Vec<_>, _>>()?;
    for (second, (p, _)) in places.iter().enumerate() {
        let same = |(q, _): &Known| q.memory.is_same(&p.memory) && q.offset == p.offset;
        if let Some(first) = places[..second].iter().position(same) {
            return Err(JitError::SameBuffer { first, second }.into());
        }
    }
    Ok(places)
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
type InputUse = (usize, usize, usize, u64);

/// Whose memory an input is.
fn home_of(t: &Tensor) -> Result<Home, Error> {
    let buffer = dense_view(&t.uop()?).and_then(|(b, _)| b.buffer_ref().and_then(|b| home(b)));
    buffer.ok_or_else(|| Error::Internal("an input of a jit has no memory".into()))
}

/// Where the commands use the inputs' memory, and the other memory that they use. A buffer that the function has
/// captured is no input, even if an input is a part of it.
fn input_places(capture: &Capture, inputs: &[Known], homes: &[Home]) -> (Vec<InputUse>, Vec<Memory>) {
    let (mut out, mut own): (Vec<_>, Vec<Memory>) = (Vec::new(), Vec::new());
    let mut used = capture.homes.iter().peekable();
    let mut look = |command: usize, arg: usize, p: &Location| {
        // The homes are listed in the order of the commands and their arguments.
        while used.next_if(|(c, a, _)| (*c, *a) < (command, arg)).is_some() {}
        let home = used.next_if(|(c, a, _)| (*c, *a) == (command, arg)).map(|u| &u.2);
        let within = |k: usize, (q, len): &Known| {
            home.is_some_and(|h| h.is_same(&homes[k]))
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
    /// Whether the inputs are the very buffers of the last replay: then nothing is to be checked or patched.
    fn is_repeated(&self, inputs: &[Tensor]) -> bool {
        let same = |(t, last): (&Tensor, &UOp)| t.node().is_ok_and(|u| u == *last);
        self.last.len() == inputs.len() && !inputs.is_empty() && inputs.iter().zip(&self.last).all(same)
    }

    fn replay(&mut self, s: &Session, inputs: &[Tensor], asked: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        self.last.clear();
        self.check(inputs)?;
        let known = inputs_of(inputs)?;
        let copies = known.iter().map(|known| self.copy(s, known)).collect::<Result<Vec<_>, _>>()?;
        self.patches.clear();
        for (command, arg, input, offset) in &self.places {
            let mut place = copies[*input].clone().unwrap_or_else(|| known[*input].0.clone());
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
            Assigned::new(&asked[*k]).renew();
        }
        let out = self.outputs.of(s, &Call { asked, whole: inputs, copies: &copies })?;
        if self.assigned_inputs.is_empty() && copies.iter().all(Option::is_none) {
            self.last = asked.iter().map(Value::node).collect::<Result<_, _>>()?;
        }
        Ok(out)
    }

    /// The list as it is: the inputs' nodes are those of the call before.
    fn repeat(&mut self, s: &Session, asked: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        self.run(s, &[])?;
        Ok(self.outputs.again(asked))
    }

    /// Rings once, with these changes to the recorded list.
    fn run(&mut self, s: &Session, patches: &[Patch]) -> Result<(), Error> {
        self.list.replay(patches)?;
        let (kernels, flops, mem) = self.totals;
        s.counters.launched(kernels, 0, flops, mem);
        for a in &self.assigned {
            a.renew();
        }
        Ok(())
    }

    /// A copy of an input that lies in memory which the commands may overwrite before they read it.
    fn copy(&self, s: &Session, (place, len_bytes): &Known) -> Result<Option<Location>, Error> {
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
            let have = facts(t)?;
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

/// Variables bound in the shapes and values of the inputs, each with its one value.
fn bound_variables(inputs: &[Tensor]) -> Result<Vec<(Arc<str>, i64)>, Error> {
    let mut out: Vec<(Arc<str>, i64)> = Vec::new();
    for t in inputs {
        for u in t.uop()?.toposort() {
            if u.op() == Op::Bind
                && let (crate::uop::Arg::Var(name, ..), Some(v)) =
                    (u.src()[0].arg(), u.src().get(1).and_then(UOp::as_int))
            {
                match out.iter().find(|known| *known.0 == **name) {
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
