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
//! A function takes and gives any [`Tree`]: a slice, tuple, map or struct of Tensors. What is no Tensor in it is frozen: a call with
//! another number is refused, but a bound variable may have another value at each call.

use super::jit_capture::{Capture, Open};
use super::jit_outputs::{Call, Outputs};
use super::memory::{AllocationId, allocation_id, attached, dense_view};
use super::realize::Assigned;
use super::session::OpenDevice;
use super::tree::{Fixed, Leaf, Outcome, Tree, shown, tensors, with_tensors};
use super::{Error, JitError, Session, session};
use crate::device::{Arg, Command, Location, Memory, Patch, QueueKind, Recorded, record_by_resubmission};
use crate::tensor::{Elementwise, Movement, Tensor, Value};
use crate::uop::{BufferRef, Op, Scalar, UOp, numel};
use std::marker::PhantomData;
use std::sync::Arc;

/// What an input must be like at each replay.
struct Input {
    shape: String,
    dtype: Scalar,
    device: String,
}

/// What is no Tensor in an input.
#[derive(PartialEq)]
enum Other {
    /// A size without the value of its variables.
    Size(UOp),
    Fixed(Fixed<'static>),
}

impl Other {
    fn shown(&self) -> String {
        match self {
            Other::Size(u) => u.render(),
            Other::Fixed(f) => f.to_string(),
        }
    }
}

struct Recording<V> {
    list: Box<dyn Recorded>,
    inputs: Vec<Input>,
    others: Vec<Other>,
    /// (command, argument, input, byte offset from the input's start).
    places: Vec<InputUse>,
    vars: Vec<(usize, usize, Arc<str>)>,
    outputs: Outputs,
    /// What the recorded call gave: its Tensors are replaced by those of each call.
    result: V,
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

/// An input's memory and its length in bytes.
type Known = (Location, u64);

/// A function of Tensors that is recorded once and replayed (tinygrad's `TinyJit`).
///
/// ```
/// use doorbell::tensor::prelude::*;
/// use doorbell::Jit;
///
/// let mut scaled = Jit::new(|(x, factor): &(Tensor, Tensor)| (x * factor).sum(()));
/// for k in 1..=4 {
///     let total = scaled.call(&(Tensor::new([1.0f32, 2.0]), Tensor::new([k as f32])))?;
///     assert_eq!(total.item()?, 3.0 * f64::from(k));
/// }
/// // An error type of one's own, or any: it is named where the function returns a Result.
/// let mut parsed = Jit::new(|x: &[Tensor]| -> Result<Tensor, Box<dyn std::error::Error>> {
///     let factor: f32 = "2.5".parse()?;
///     Ok(&x[0] * factor)
/// });
/// assert_eq!(parsed.call(&[Tensor::new([2.0f32])]).map_err(|e| e.to_string()).unwrap().item()?, 5.0);
/// # Ok::<(), doorbell::Error>(())
/// ```
///
/// What a recording does not repeat: the function's Rust code runs at the first two calls only, so a number that it
/// computes is that of the second call; what it prints is printed twice.
pub struct Jit<F, I: ?Sized, R: Outcome> {
    function: F,
    calls: usize,
    prunes: bool,
    recording: Option<Recording<R::Value>>,
    inputs: PhantomData<fn(&I)>,
}

impl<I: Tree + ?Sized, R: Outcome, F: FnMut(&I) -> R> Jit<F, I, R> {
    /// Of a function from a [`Tree`] to a [`Tree`] or a `Result` of one.
    pub fn new(function: F) -> Jit<F, I, R> {
        Jit { function, calls: 0, prunes: false, recording: None, inputs: PhantomData }
    }

    /// Runs kernels that do not depend on inputs, nor on anything that the function assigns to, once, when they are
    /// recorded: weights that are dequantised, tables, masks. Captured Tensors must not be assigned to elsewhere then.
    #[must_use]
    pub fn prune(mut self) -> Jit<F, I, R> {
        self.prunes = true;
        self
    }

    /// Calls the function with this input (its Tensors are realized first). The results are realized; their memory is
    /// overwritten by the next call.
    ///
    /// # Errors
    /// What the function returns, and its Tensors carry; from the third call on, an input unlike the recorded one.
    pub fn call(&mut self, input: &I) -> Result<R::Value, R::Failure> {
        let s = session()?;
        let s = s.as_ref();
        let asked = tensors(input);
        if let Some(r) = &mut self.recording {
            return Ok(r.call(s, input, &asked)?);
        }
        let whole: Vec<Tensor> = asked.iter().map(|t| buffer_of(s, t)).collect::<Result<_, _>>()?;
        self.calls += 1;
        let before: Vec<UOp> = whole.iter().map(Value::node).collect::<Result<_, _>>().map_err(Error::from)?;
        let given = with_tensors(input, &whole);
        let out = if self.calls < 2 || !s.options.jit {
            let out = (self.function)(std::borrow::Borrow::borrow(&given)).into_result()?;
            Tensor::realize_all(&tensors(&out))?;
            out
        } else {
            self.capture(s, std::borrow::Borrow::borrow(&given), &whole)?
        };
        for ((t, input), before) in asked.iter().zip(&whole).zip(before) {
            // The function has assigned to a buffer that was made for a part of the caller's.
            if !t.is(input) && input.node().map_err(Error::from)? != before {
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

    fn capture(&mut self, s: &Session, input: &I, whole: &[Tensor]) -> Result<R::Value, R::Failure> {
        let names = shown(input);
        let known = inputs_of(whole, &tensor_names(input, &names))?;
        let open = Open::begin().map_err(Error::from)?;
        let made = (self.function)(input).into_result();
        let realized = made.and_then(|out| Ok(Tensor::realize_all(&tensors(&out)).map(|()| out)?));
        let capture = open.end();
        if let Some(e) = capture.error {
            return Err(Error::from(e).into());
        }
        let result = realized?;
        self.recording = Some(self.recorded(s, capture, (input, whole, known), &result)?);
        Ok(result)
    }

    fn recorded(
        &self,
        s: &Session,
        mut capture: Capture,
        (input, whole, known): (&I, &[Tensor], Vec<Known>),
        result: &R::Value,
    ) -> Result<Recording<R::Value>, Error> {
        let Some(device) = capture.device.clone() else { return Err(JitError::NothingCaptured.into()) };
        let allocations = whole.iter().map(allocation_of).collect::<Result<Vec<_>, _>>()?;
        let (mut places, mut own) = input_places(&capture, &known, &allocations);
        let mut pruned = 0;
        if self.prunes {
            let state: Vec<Memory> = capture.assigned.iter().filter_map(Assigned::memory).collect();
            pruned = capture.prune(|c, a| places.iter().any(|p| (p.0, p.1) == (c, a)), &state);
            (places, own) = input_places(&capture, &known, &allocations);
        }
        let open = s.device(&device)?;
        if s.options.debug >= 1 {
            let (commands, inputs) = (capture.commands.len(), whole.len());
            let pruned = if self.prunes { format!(", {pruned} left out") } else { String::new() };
            s.say(&format!("jit: recorded {commands} commands on {device}, {inputs} inputs{pruned}"));
        }
        Ok(Recording {
            list: list(s, open, &capture.commands)?,
            inputs: whole.iter().map(facts).collect::<Result<_, _>>()?,
            others: others(input),
            places,
            outputs: Outputs::recorded(&tensors(result), whole, &allocations)?,
            result: with_tensors(result, &[]),
            assigned_inputs: (0..whole.len()).filter(|k| capture.assigned.iter().any(|a| a.is(&whole[*k]))).collect(),
            totals: capture.totals(),
            vars: capture.vars,
            assigned: capture.assigned.into_iter().filter(|a| !whole.iter().any(|t| a.is(t))).collect(),
            patches: Vec::new(),
            device,
            own,
            last: Vec::new(),
        })
    }
}

/// Commands for many replays: a list that the device has ready, or (`JIT=2`) one that is submitted anew.
fn list(s: &Session, open: Arc<OpenDevice>, commands: &[Command]) -> Result<Box<dyn Recorded>, Error> {
    if s.options.jit_lists {
        return Ok(open.device.record(commands)?);
    }
    let name = open.name.clone();
    Ok(record_by_resubmission(&name, commands, move |list| open.device.submit(QueueKind::Compute, list))?)
}

/// An expression without the values of its variables, which may differ from call to call; their names may not.
fn unbound(u: UOp) -> UOp {
    u.toposort().iter().fold(u, |e, b| match b.op() {
        Op::Bind => e.substitute(&[(b.clone(), b.src()[0].clone())].into_iter().collect()),
        _ => e,
    })
}

fn others<I: Tree + ?Sized>(input: &I) -> Vec<Other> {
    let mut all = Vec::new();
    input.visit(&mut |leaf| match leaf {
        Leaf::Tensor(_) => {}
        Leaf::Size(u) => all.push(Other::Size(unbound(u.clone()))),
        Leaf::Fixed(f) => all.push(Other::Fixed(f.kept())),
    });
    all
}

/// Of the names of all parts, those of Tensors, or of the others.
fn names_of<I: Tree + ?Sized>(input: &I, names: &[String], of_tensors: bool) -> Vec<String> {
    let (mut all, mut names) = (Vec::new(), names.iter());
    input.visit(&mut |leaf| {
        let name = names.next().cloned().unwrap_or_default();
        if matches!(leaf, Leaf::Tensor(_)) == of_tensors {
            all.push(name);
        }
    });
    all
}

fn tensor_names<I: Tree + ?Sized>(input: &I, names: &[String]) -> Vec<String> {
    names_of(input, names, true)
}

fn facts(t: &Tensor) -> Result<Input, Error> {
    let shape: Vec<String> = t.shape()?.iter().map(|d| unbound(d.uop()).render()).collect();
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
fn inputs_of(inputs: &[Tensor], names: &[String]) -> Result<Vec<Known>, Error> {
    let places = inputs.iter().map(place_of).collect::<Result<Vec<_>, _>>()?;
    for (second, (p, _)) in places.iter().enumerate() {
        let same = |(q, _): &Known| q.memory.is_same(&p.memory) && q.offset == p.offset;
        if let Some(first) = places[..second].iter().position(same) {
            let name = |k: usize| names.get(k).cloned().unwrap_or_else(|| format!("input {k}"));
            return Err(JitError::SameBuffer { first: name(first), second: name(second) }.into());
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
fn allocation_of(t: &Tensor) -> Result<AllocationId, Error> {
    let buffer = dense_view(&t.uop()?).and_then(|(b, _)| b.buffer_ref().and_then(|b| allocation_id(b)));
    buffer.ok_or_else(|| Error::Internal("an input of a jit has no memory".into()))
}

/// Where the commands use the inputs' memory, and the other memory that they use. A buffer that the function has
/// captured is no input, even if an input is a part of it.
fn input_places(capture: &Capture, inputs: &[Known], allocations: &[AllocationId]) -> (Vec<InputUse>, Vec<Memory>) {
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

impl<V: Tree<Owned = V>> Recording<V> {
    fn call<I: Tree + ?Sized>(&mut self, s: &Session, input: &I, asked: &[Tensor]) -> Result<V, Error> {
        self.check_others(input)?;
        let given = if self.is_repeated(asked) { self.repeat(s, asked)? } else { self.replay(s, input, asked)? };
        Ok(with_tensors(&self.result, &given))
    }

    /// Whether the inputs are the very buffers of the last replay: then nothing is to be checked or patched.
    fn is_repeated(&self, inputs: &[Tensor]) -> bool {
        let same = |(t, last): (&Tensor, &UOp)| t.node().is_ok_and(|u| u == *last);
        self.last.len() == inputs.len() && !inputs.is_empty() && inputs.iter().zip(&self.last).all(same)
    }

    /// What is no Tensor must be as it was recorded.
    fn check_others<I: Tree + ?Sized>(&mut self, input: &I) -> Result<(), Error> {
        if self.others.is_empty() {
            return Ok(());
        }
        let have = others(input);
        if let Some(k) = (0..have.len().max(self.others.len())).find(|k| have.get(*k) != self.others.get(*k)) {
            let input = names_of(input, &shown(input), false).get(k).cloned().unwrap_or_else(|| "the input".into());
            let text = |o: Option<&Other>| o.map_or_else(|| "not there".into(), Other::shown);
            return Err(JitError::Frozen { input, have: text(have.get(k)), want: text(self.others.get(k)) }.into());
        }
        if self.others.iter().any(|o| matches!(o, Other::Size(_))) {
            self.last.clear();
        }
        Ok(())
    }

    fn replay<I: Tree + ?Sized>(&mut self, s: &Session, input: &I, asked: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        self.last.clear();
        let whole: Vec<Tensor> = asked.iter().map(|t| buffer_of(s, t)).collect::<Result<_, _>>()?;
        self.check(input, &whole)?;
        let known = match inputs_of(&whole, &[]) {
            Err(Error::Jit(JitError::SameBuffer { .. })) => inputs_of(&whole, &tensor_names(input, &shown(input)))?,
            known => known?,
        };
        let copies = known.iter().map(|known| self.copy(s, known)).collect::<Result<Vec<_>, _>>()?;
        self.patches.clear();
        for (command, arg, input, offset) in &self.places {
            let mut place = copies[*input].clone().unwrap_or_else(|| known[*input].0.clone());
            place.offset += offset;
            self.patches.push(Patch::Arg { command: *command, arg: *arg, value: Arg::Buffer(place) });
        }
        if !self.vars.is_empty() || self.outputs.have_variables() {
            let bound = bound_variables(input, &whole)?;
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
        let out = self.outputs.of(s, &Call { passed: asked, whole: &whole, copies: &copies })?;
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

    fn check<I: Tree + ?Sized>(&self, input: &I, inputs: &[Tensor]) -> Result<(), Error> {
        if inputs.len() != self.inputs.len() {
            return Err(JitError::Count { have: inputs.len(), want: self.inputs.len() }.into());
        }
        for (index, (t, want)) in inputs.iter().zip(&self.inputs).enumerate() {
            let have = facts(t)?;
            let name = || tensor_names(input, &shown(input)).get(index).cloned().unwrap_or_default();
            if have.shape != want.shape {
                return Err(JitError::Shape { input: name(), have: have.shape, want: want.shape.clone() }.into());
            }
            if have.dtype != want.dtype {
                let (have, want) = (have.dtype.to_string(), want.dtype.to_string());
                return Err(JitError::Dtype { input: name(), have, want }.into());
            }
            if have.device != want.device {
                return Err(JitError::Device { input: name(), have: have.device, want: want.device.clone() }.into());
            }
        }
        Ok(())
    }
}

/// Variables bound in the shapes and values of the Tensors and among the sizes of an input, each with its one value.
fn bound_variables<I: Tree + ?Sized>(input: &I, inputs: &[Tensor]) -> Result<Vec<(Arc<str>, i64)>, Error> {
    let mut roots = inputs.iter().map(Tensor::uop).collect::<Result<Vec<UOp>, _>>()?;
    input.visit(&mut |leaf| {
        if let Leaf::Size(u) = leaf {
            roots.push(u.clone());
        }
    });
    let mut out: Vec<(Arc<str>, i64)> = Vec::new();
    for root in roots {
        for u in root.toposort() {
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
