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
//! What runs on several devices, as the parts of sharded Tensors do, is a list for each run of commands that no other
//! device waits for; a replay starts them all, and their queues wait for each other.
//! A function takes and gives any [`Tree`]: a slice, tuple, map or struct of Tensors. What is no Tensor in it is
//! frozen: a call with another number is refused, but a bound variable may have another value at each call.

use super::batches::batches;
use super::jit_capture::{Capture, Open};
use super::jit_inputs::{Given, Input, InputUse, Known, facts, input_places, unbound};
use super::jit_outputs::{Call, Outputs};
use super::package::{Kept, KeptInput, PackageBytes, PackageOptions, Ports};
use super::profile::{Stamped, Timed};
use super::realize::Assigned;
use super::session::OpenDevice;
use super::tree::{Fixed, Leaf, Outcome, Tree, shown, tensors, with_tensors};
use super::{Error, JitError, Session, session};
use crate::device::{Arg, Command, Location, Memory, Patch, QueueKind, Recorded};
use crate::device::{record_by_resubmission, record_in_order};
use crate::hcq::signal::host_ns;
use crate::tensor::{Tensor, Value};
use crate::uop::{Op, UOp};
use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

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
    /// The times of its commands, if they are wanted.
    timed: Option<Arc<Timed>>,
    inputs: Vec<Input>,
    others: Vec<Other>,
    /// (command, argument, buffer among the inputs', byte offset from its start).
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
    /// Kernels, copies, arithmetic and bytes of a replay.
    totals: [u64; 4],
    /// The commands as they go into a package.
    kept: Kept,
    ports: Ports,
    /// Memory that the commands use for themselves: results, temporaries, state.
    own: Vec<Memory>,
    /// Nodes of the inputs whose places the list holds now; empty when they cannot be taken for granted.
    last: Vec<UOp>,
}

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
/// A Tensor that the function captures may be assigned to between calls; it has to be realized before the recording,
/// so that it is memory then and not an expression.
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
        let called = Given::new(s, &asked)?;
        self.calls += 1;
        let before: Vec<UOp> = called.whole.iter().map(Value::node).collect::<Result<_, _>>().map_err(Error::from)?;
        let given = with_tensors(input, &called.whole);
        let out = if self.calls < 2 || !s.options.jit {
            let out = (self.function)(std::borrow::Borrow::borrow(&given)).into_result()?;
            Tensor::realize_all(&tensors(&out))?;
            out
        } else {
            self.capture(s, std::borrow::Borrow::borrow(&given), &called)?
        };
        for ((t, input), before) in asked.iter().zip(&called.whole).zip(before) {
            let now = input.node().map_err(Error::from)?;
            if t.is(input) || now == before {
                continue;
            }
            // The function has assigned to a buffer that was made for a part of the caller's; of a sharded one also to
            // memory that it got in the place of computed parts.
            match now.op() {
                Op::Shard => t.set_uop(now),
                _ => Assigned::new(t).renew(),
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

    /// Writes the recording to a file: a package for its device, which [`Packaged`](super::Packaged), `doorbell run`
    /// and libdoorbell run without compiling anything. Inputs and outputs have the names of their places in what the
    /// function takes and gives (`0`, `state.sum`; `input` and `output` where it is one Tensor). Captured Tensors go
    /// along as they are now.
    ///
    /// # Errors
    /// `Jit`: nothing is recorded, several devices, a result that is not dense; `File`.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.package(&PackageOptions::default())?.write(path.as_ref())
    }

    /// As [`Jit::save`], for chosen targets, as bytes.
    ///
    /// # Errors
    /// As `save`; a target for which a kernel cannot be compiled.
    pub fn package(&self, options: &PackageOptions) -> Result<PackageBytes, Error> {
        let recording = self.recording.as_ref().ok_or(JitError::NotRecorded)?;
        super::package::package(session()?.as_ref(), &recording.kept, &recording.ports, options)
    }

    /// Kernels of one replay.
    pub fn kernels(&self) -> Option<u64> {
        self.recording.as_ref().map(|r| r.totals[0])
    }

    fn capture(&mut self, s: &Session, input: &I, called: &Given) -> Result<R::Value, R::Failure> {
        let names = shown(input);
        let known = called.places(&tensor_names(input, &names))?;
        let open = Open::begin().map_err(Error::from)?;
        let made = (self.function)(input).into_result();
        let realized = made.and_then(|out| Ok(Tensor::realize_all(&tensors(&out)).map(|()| out)?));
        let capture = open.end();
        if let Some(e) = capture.error {
            return Err(Error::from(e).into());
        }
        let result = realized?;
        self.recording = Some(self.recorded(s, capture, (input, called, known), &result)?);
        Ok(result)
    }

    fn recorded(
        &self,
        s: &Session,
        mut capture: Capture,
        (input, called, known): (&I, &Given, Vec<Known>),
        result: &R::Value,
    ) -> Result<Recording<R::Value>, Error> {
        if capture.commands.is_empty() {
            return Err(JitError::NothingCaptured.into());
        }
        let (whole, allocations) = (&called.whole, called.allocations()?);
        let (mut places, mut own) = input_places(&capture, &known, &allocations);
        let mut pruned = 0;
        if self.prunes {
            let state: Vec<Memory> = capture.assigned.iter().flat_map(Assigned::memories).collect();
            pruned = capture.prune(|c, a| places.iter().any(|p| (p.0, p.1) == (c, a)), &state);
            (places, own) = input_places(&capture, &known, &allocations);
        }
        if s.options.debug >= 1 {
            let (commands, inputs) = (capture.commands.len(), whole.len());
            let pruned = if self.prunes { format!(", {pruned} left out") } else { String::new() };
            let devices = capture.devices.iter().collect::<BTreeSet<_>>().into_iter();
            let devices = devices.map(|d| &**d).collect::<Vec<_>>().join(", ");
            s.say(&format!("jit: recorded {commands} commands on {devices}, {inputs} inputs{pruned}"));
        }
        let outputs = Outputs::recorded(&tensors(result), called, &allocations, &capture.assigned)?;
        let (list, timed) = list(s, &capture)?;
        Ok(Recording {
            list,
            timed,
            kept: Kept::new(&capture, &places, &own),
            ports: ports(input, called, result)?,
            inputs: whole.iter().map(facts).collect::<Result<_, _>>()?,
            others: others(input),
            places,
            outputs,
            result: with_tensors(result, &[]),
            assigned_inputs: (0..whole.len()).filter(|k| capture.assigned.iter().any(|a| a.is(&whole[*k]))).collect(),
            totals: capture.totals(),
            vars: capture.vars,
            assigned: capture.assigned.into_iter().filter(|a| !whole.iter().any(|t| a.is(t))).collect(),
            patches: Vec::new(),
            own,
            last: Vec::new(),
        })
    }
}

/// Names and shapes of inputs and results.
fn ports<I: Tree + ?Sized, V: Tree<Owned = V>>(input: &I, called: &Given, result: &V) -> Result<Ports, Error> {
    let (mut of_inputs, mut of_outputs) = (Vec::new(), Vec::new());
    input.names("", &mut of_inputs);
    result.names("", &mut of_outputs);
    let named = |name: String, alone: &str| if name.is_empty() { alone.to_string() } else { name };
    let mut inputs = Vec::with_capacity(called.whole.len());
    for (k, name) in names_of(input, &of_inputs, true).into_iter().enumerate() {
        let t = &called.whole[k];
        let parts = (0..called.parts.len()).filter(|part| called.of[*part] == k).map(|part| &called.parts[part]);
        let buffers: Vec<UOp> = parts.map(buffer_node).collect::<Result<_, _>>()?;
        inputs.push(KeptInput { name: named(name, "input"), dtype: t.dtype()?, shape: t.shape()?, buffers });
    }
    let outputs = names_of(result, &of_outputs, true).into_iter().zip(tensors(result));
    let outputs = outputs.map(|(name, t)| Ok((named(name, "output"), t.node()?)));
    Ok(Ports { inputs, outputs: outputs.collect::<Result<_, Error>>()? })
}

fn buffer_node(t: &Tensor) -> Result<UOp, Error> {
    let u = t.uop()?;
    Ok(super::memory::dense_view(&u).map_or(u, |(buffer, _)| buffer))
}

/// Commands for many replays, and their times if these are asked for.
type Listed = (Box<dyn Recorded>, Option<Arc<Timed>>);

/// Commands for many replays: a list that the device has ready, or (`JIT=2`) one that is submitted anew. Of several
/// devices a list for each part that runs without waiting for another one.
fn list(s: &Session, c: &Capture) -> Result<Listed, Error> {
    let commands: Vec<(&Arc<str>, &Command)> = c.devices.iter().zip(&c.commands).collect();
    let (mut lists, mut stamped) = (Vec::new(), Vec::new());
    for batch in batches(&commands) {
        let mut own: Vec<Command> = batch.iter().map(|k| c.commands[*k].clone()).collect();
        let open = s.device(&c.devices[batch[0]])?;
        if s.is_timed() {
            let stamp = |(k, command): (&usize, &mut Command)| -> Option<Stamped> {
                s.profile.stamp(open.device.as_ref(), command, c.facts[*k].label?)
            };
            stamped.extend(batch.iter().zip(&mut own).filter_map(stamp));
        }
        lists.push((batch, list_on(s, open, &own)?));
    }
    let list = match lists.len() {
        1 => lists.swap_remove(0).1,
        _ => record_in_order(lists),
    };
    Ok((list, s.is_timed().then(|| Timed::new(&s.profile, stamped))))
}

fn list_on(s: &Session, open: Arc<OpenDevice>, commands: &[Command]) -> Result<Box<dyn Recorded>, Error> {
    if s.options.jit_lists {
        return Ok(open.device.record(commands)?);
    }
    let name = open.name.clone();
    Ok(record_by_resubmission(&name, commands, move |list| open.device.submit(QueueKind::Compute, list))?)
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
        let called = Given::new(s, asked)?;
        self.check(input, &called.whole)?;
        let known = match called.places(&[]) {
            Err(Error::Jit(JitError::SameBuffer { .. })) => called.places(&tensor_names(input, &shown(input)))?,
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
            let bound = bound_variables(input, &called.whole)?;
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
        let out = self.outputs.of(s, &Call { passed: asked, given: &called, copies: &copies })?;
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
        self.start(s, patches)?;
        let [kernels, copies, flops, mem] = self.totals;
        s.counters.launched(kernels, copies, flops, mem);
        for a in &self.assigned {
            a.renew();
        }
        Ok(())
    }

    fn start(&mut self, s: &Session, patches: &[Patch]) -> Result<(), Error> {
        let Some(timed) = &self.timed else {
            self.list.replay(patches)?;
            return Ok(());
        };
        timed.fetch();
        let (at_ns, began) = (host_ns(), Instant::now());
        timed.started(self.list.replay(patches)?, at_ns);
        s.profile.host("replay", "replay", began);
        Ok(())
    }

    /// A copy of an input that lies in memory which the commands may overwrite before they read it.
    fn copy(&self, s: &Session, (place, len_bytes): &Known) -> Result<Option<Location>, Error> {
        if !self.own.iter().any(|m| m.is_same(&place.memory)) {
            return Ok(None);
        }
        let device = &s.device(place.memory.device().name())?.device;
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
