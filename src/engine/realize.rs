//! Computing Tensors: schedule, compile, submit, read back.

use super::jit_capture::capturing;
use super::memory::{attached, dense_view, size_of};
use super::record::Recorder;
use super::{Error, JitError, Session, blame, session};
use crate::device::Memory;
use crate::explorer::Realize;
use crate::schedule::{self, Schedule};
use crate::tensor::{DEVICE_SEPARATOR, Lowered, Lowering, finish_sharded, is_sharded};
use crate::tensor::{Element, Problem, Shown, Tensor, TensorError, Value, strong};
use crate::uop::{self, DType, Op, Scalar, UMap, UOp, from_bits, spec};
use std::borrow::Borrow;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// A Tensor that was assigned to: after each run it has a new version of its buffer, in the same memory.
#[derive(Clone)]
pub(crate) struct Assigned {
    tensor: Tensor,
}

impl Assigned {
    pub(super) fn new(tensor: &Tensor) -> Assigned {
        Assigned { tensor: tensor.clone() }
    }
    /// Where its bytes are; one memory on each device that it is over.
    pub(super) fn memories(&self) -> Vec<Memory> {
        let nodes = self.tensor.uop().map(|view| view.toposort()).unwrap_or_default();
        nodes.iter().filter_map(|u| Some(attached(u.buffer_ref()?)?.memory)).collect()
    }
    /// Whether this is that very Tensor.
    pub(super) fn is(&self, t: &Tensor) -> bool {
        self.tensor.is(t)
    }
    /// Gives the Tensor's buffer a new identity: its content has changed.
    pub(super) fn renew(&self) {
        if let Ok(u) = self.tensor.uop()
            && let Some(fresh) = next_version(&u)
        {
            self.tensor.set_uop(fresh);
        }
    }
}

/// The same view of a buffer whose content has changed.
fn next_version(view: &UOp) -> Option<UOp> {
    let buffers = view.toposort().into_iter().filter(|u| u.op() == Op::Buffer);
    let fresh = |b: UOp| Some((b.clone(), UOp::buffer(b.dtype(), b.buffer_ref()?.next_version())));
    let map: UMap<UOp> = buffers.filter_map(fresh).collect();
    (!map.is_empty()).then(|| view.substitute(&map))
}

impl Session {
    /// Computes all `tensors`; each is then a view of a buffer.
    ///
    /// # Errors
    /// The first error that a Tensor carries; errors of scheduling, compiling or running.
    pub fn realize(&self, tensors: &[Tensor]) -> Result<(), Error> {
        self.realize_all(tensors).map_err(|error| blame::blamed(error, tensors))
    }

    fn realize_all(&self, tensors: &[Tensor]) -> Result<(), Error> {
        // Two threads whose graphs hold the same assignment would both make it: the second one waits, and then finds it
        // made.
        let mut _assigning = None;
        for t in tensors {
            if _assigning.is_none() && assigns(&t.node()?) {
                _assigning = Some(self.assigning.lock().unwrap_or_else(PoisonError::into_inner));
            }
        }
        let mut roots: Vec<(UOp, Arc<str>)> = Vec::with_capacity(tensors.len());
        let mut open: Vec<(&Tensor, UOp)> = Vec::with_capacity(tensors.len());
        for t in tensors {
            let u = t.node()?;
            if !is_memory(&u) {
                let root = root(u, &roots);
                roots.push((root.clone(), t.device()));
                open.push((t, root));
            }
        }
        if roots.is_empty() {
            return Ok(());
        }
        let sharded = self.over_devices(&mut roots)?;
        let began = Instant::now();
        if self.options.spec >= 1 {
            spec::verify(spec::Stage::Tensor, &UOp::sink(roots.iter().map(|r| r.0.clone())))?;
        }
        let planned = || self.plan(&roots);
        let schedule = uop::checked(self.options.spec_level(), spec::Stage::Scheduling, planned)?;
        if self.is_timed() {
            self.profile.host("schedule", &format!("{} kernels", schedule.items.len()), began);
        }
        let plan = self.recorder.as_ref().map(|r| r.scheduled(&roots, &schedule));
        self.run(&schedule)?;
        if let (Some(r), Some(plan)) = (&self.recorder, plan) {
            self.note_realized(r, plan, &schedule, began);
        }
        schedule.finish();
        for (u, lowered) in &sharded {
            finish_sharded(u, lowered);
        }
        for (t, u) in open {
            if u.op() == Op::Assign {
                capturing(|c| c.assigned.push(Assigned { tensor: t.clone() }));
            }
            // A value of constants alone is memory for this Tensor only; otherwise, looking up the node drops the
            // graph.
            match schedule.outputs.iter().find(|o| o.node == u && u.device().is_none()) {
                Some(output) => t.set_uop(output.view.clone()),
                None => drop(t.node()?),
            }
        }
        Ok(())
    }

    /// The schedule of a graph. What each device has decides about its kernels, so it is opened before; one that cannot
    /// be opened is planned for as a CPU, and is an error when something is to run on it.
    fn plan(&self, roots: &[(UOp, Arc<str>)]) -> Result<Schedule, Error> {
        let open = |name: &Arc<str>| {
            let _reported_when_it_runs = self.device(name);
        };
        Ok(schedule::schedule_for(roots, &self.schedules, open)?)
    }

    /// Notes what a schedule was and used.
    fn note_realized(&self, r: &Recorder, plan: usize, schedule: &Schedule, began: Instant) {
        let (at_ns, now_ns) = (self.profile.since_began_ns(began), self.profile.now_ns());
        let captured = capturing(|_| ()).is_some();
        r.realized(schedule, Realize { at_ns, length_ns: now_ns.saturating_sub(at_ns), plan, captured });
        r.used(plan, schedule, now_ns);
    }

    /// Puts in the place of a root over several devices its part on each; returns what became of it and of the
    /// assignments below.
    fn over_devices(&self, roots: &mut Vec<(UOp, Arc<str>)>) -> Result<Vec<(UOp, Lowered)>, Error> {
        if !roots.iter().any(|(u, _)| is_sharded(u)) {
            return Ok(Vec::new());
        }
        let mut lowering = Lowering::new(self.options.all_reduce);
        let mut sharded = Vec::new();
        for (u, device) in std::mem::take(roots) {
            let lowered = lowering.lower(&u).map_err(|problem| at_realize(problem, &u))?;
            match &lowered {
                Lowered::One(one) => roots.push((one.clone(), device)),
                Lowered::Many(s) => roots.extend(s.parts.iter().cloned().zip(s.devices.iter().cloned())),
            }
            sharded.push((u, lowered));
        }
        sharded.append(&mut lowering.assigns);
        Ok(sharded)
    }

    /// The bytes of a Tensor, dense and row-major, on the host.
    fn bytes(&self, t: &Tensor) -> Result<(Vec<u8>, Scalar, usize), Error> {
        let (bytes, t, shape) = self.dense_bytes(t)?;
        Ok((bytes, t, shape.iter().product()))
    }

    /// As `bytes`, with the shape.
    pub(super) fn dense_bytes(&self, t: &Tensor) -> Result<(Vec<u8>, Scalar, Vec<usize>), Error> {
        if capturing(|c| c.error = Some(JitError::ReadDuringCapture)).is_some() {
            return Err(JitError::ReadDuringCapture.into());
        }
        let dense = dense(t)?;
        self.realize(std::slice::from_ref(&dense))?;
        let u = dense.node()?;
        let lost = || Error::Internal(format!("a realized tensor is not a dense buffer: {}", u.tree()));
        let shape = u.shape().iter().map(size_of).collect::<Option<Vec<usize>>>().ok_or_else(lost)?;
        let len: usize = shape.iter().product();
        let t = u.dtype().scalar;
        if len == 0 {
            return Ok((Vec::new(), t, shape));
        }
        let (buffer, offset) = dense_view(&u).ok_or_else(lost)?;
        let r = buffer.buffer_ref().ok_or_else(lost)?;
        // A buffer that was never written has no memory.
        if r.memory.get().is_none() {
            return Err(Error::Empty { shape: Shown(u.shape()).to_string(), dtype: t });
        }
        let mut bytes = vec![0u8; len * t.size_bytes()];
        let began = Instant::now();
        self.source(r, t.size_bytes())?.read((offset * t.size_bytes()) as u64, &mut bytes)?;
        if self.is_timed() {
            self.profile.host("read", &format!("wait for and read {} B", bytes.len()), began);
        }
        Ok((bytes, t, shape))
    }
}

/// What is computed for a node: the node. Tensors that are equal because both are of constants alone get memory of
/// their own.
fn root(u: UOp, others: &[(UOp, Arc<str>)]) -> UOp {
    if u.device().is_some() || !others.iter().any(|(other, _)| *other == u) {
        return u;
    }
    let number = u32::try_from(others.len()).ok();
    UOp::tagged(Op::Contiguous, u.dtype(), [u], uop::Arg::None, number)
}

/// What a graph over several devices cannot do.
fn at_realize(problem: Problem, u: &UOp) -> TensorError {
    let at = std::panic::Location::caller();
    TensorError { op: "realize", problem, sources: vec![(u.shape().to_vec(), u.dtype())], at }
}

/// Whether computing the value writes to existing memory.
fn assigns(u: &UOp) -> bool {
    !is_memory(u) && u.toposort().iter().any(|u| u.op() == Op::Assign)
}

/// Whether nothing is left to compute: a movement of a buffer.
fn is_memory(u: &UOp) -> bool {
    let mut u = u;
    loop {
        match u.op() {
            Op::Shard => return u.src().iter().all(is_memory),
            Op::Buffer => return u.buffer_ref().is_some_and(|b| &*b.device != crate::tensor::HOST),
            op if op.is_movement() && op != Op::Pad => u = &u.src()[0],
            _ => return false,
        }
    }
}

/// The same values with a strong dtype, dense in memory.
fn dense(t: &Tensor) -> Result<Tensor, Error> {
    let u = t.node()?;
    let strong = DType::of(strong(u.dtype().scalar));
    let u = if u.dtype() == strong { u } else { u.cast(strong) };
    // Gathered on the first of its devices.
    let first = u.device().and_then(|d| d.split_once(DEVICE_SEPARATOR)).map(|(first, _)| Arc::from(first));
    let u = match first {
        Some(first) => UOp::new(Op::Copy, u.dtype(), [u], uop::Arg::Device(first)),
        None => u,
    };
    if is_memory(&u) && dense_view(&u).is_some() {
        return Ok(Tensor::from(&u));
    }
    // No call of the user's: made without one.
    Ok(Tensor::from(u.wrap(Op::Contiguous)))
}

impl Tensor {
    /// Computes the Tensor; afterwards it is a view of a buffer.
    ///
    /// # Errors
    /// The first error that it carries; errors of scheduling, compiling or running.
    pub fn realize(&self) -> Result<&Tensor, Error> {
        session()?.realize(std::slice::from_ref(self))?;
        Ok(self)
    }
    /// The kernels and copies that computing this Tensor would run, in order; none if it is memory. Nothing is
    /// computed.
    ///
    /// # Errors
    /// The first error that it carries; errors of scheduling.
    ///
    /// ```
    /// use doorbell::tensor::prelude::*;
    ///
    /// let plan = (Tensor::new([1.0f32, 2.0]) * 2.0).sum(()).schedule()?;
    /// assert_eq!(plan.kernel_count(), 1);
    /// println!("{}", plan.kernels().next().unwrap()); // its graph: loops, loads, a store
    /// # Ok::<(), doorbell::Error>(())
    /// ```
    pub fn schedule(&self) -> Result<Schedule, Error> {
        let (s, u) = (session()?, self.node()?);
        if is_memory(&u) {
            return Ok(Schedule::default());
        }
        let mut roots = vec![(u, self.device())];
        s.over_devices(&mut roots)?;
        s.plan(&roots)
    }
    /// Computes several Tensors, or borrowed ones, as one schedule.
    ///
    /// # Errors
    /// As `realize`.
    pub fn realize_all<T: Borrow<Tensor>>(tensors: &[T]) -> Result<(), Error> {
        let all: Vec<Tensor> = tensors.iter().map(|t| t.borrow().clone()).collect();
        session()?.realize(&all)
    }
    /// Computes this Tensor and others as one schedule: `loss.realize_with(&optim.schedule_step()?)?` computes a loss
    /// and the step that follows from it (`loss.realize(*optim.schedule_step())` in tinygrad).
    ///
    /// # Errors
    /// As `realize`.
    pub fn realize_with<T: Borrow<Tensor>>(&self, others: &[T]) -> Result<&Tensor, Error> {
        let others = others.iter().map(|t| t.borrow().clone());
        session()?.realize(&std::iter::once(self.clone()).chain(others).collect::<Vec<_>>())?;
        Ok(self)
    }
    /// All elements in row-major order; `T` must be the dtype's Rust type (`cast` first for another one, or
    /// [`Tensor::to_f64`] for any). With the shape: [`Tensor::to_nested`].
    ///
    /// # Errors
    /// As `realize`; `WrongType`.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, Error> {
        let (bytes, have, _) = session()?.bytes(self)?;
        if have != T::SCALAR {
            return Err(Error::WrongType { have, want: T::SCALAR });
        }
        Ok(T::get(&bytes))
    }
    /// All elements as f64, whatever the dtype.
    ///
    /// # Errors
    /// As `realize`.
    pub fn to_f64(&self) -> Result<Vec<f64>, Error> {
        let (bytes, t, _) = session()?.bytes(self)?;
        let one = |c: &[u8]| {
            let mut w = [0u8; 8];
            w[..c.len()].copy_from_slice(c);
            from_bits(u64::from_le_bytes(w), t).as_f64()
        };
        Ok(bytes.chunks_exact(t.size_bytes().max(1)).map(one).collect())
    }
    /// All elements as little-endian bytes.
    ///
    /// # Errors
    /// As `realize`.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        Ok(session()?.bytes(self)?.0)
    }
    /// The only element as a number.
    ///
    /// # Errors
    /// As `realize`; `NotOne` if there is not exactly one.
    pub fn item(&self) -> Result<f64, Error> {
        match self.to_f64()?.as_slice() {
            [x] => Ok(*x),
            v => Err(Error::NotOne(v.len())),
        }
    }
}

/// Waits until everything submitted so far is done, on every open device.
///
/// # Errors
/// A device's work did not complete in time.
pub fn synchronize() -> Result<(), Error> {
    for d in session()?.open_devices() {
        d.device.synchronize(d.device.patience())?;
    }
    Ok(())
}
