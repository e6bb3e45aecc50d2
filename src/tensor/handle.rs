//! The Tensor: a handle on one node, or on the first error below it.

use super::error::{Fault, TensorError};
use super::value::{Operand, Value};
use crate::uop::{BufferRef, DType, Dim, Made, Op, Scalar, UOp};
use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

/// A lazy multi-dimensional array. Cloning gives another handle on the same Tensor: an `assign` through one is visible
/// through all.
///
/// Nothing is computed until the engine is asked for a value, and building never fails: an error is carried by the
/// Tensor, with the caller's line, and is returned by whatever needs a value, a shape or a dtype.
#[derive(Clone)]
pub struct Tensor(Arc<Inner>);

struct Inner {
    state: Mutex<Result<UOp, Fault>>,
    /// With a lock of its own: a gradient is stored while graphs are read.
    grad: Mutex<Option<Tensor>>,
    wants_grad: Mutex<bool>,
    /// Whose `backward` gave the gradient.
    losses: Mutex<Vec<Weak<Inner>>>,
}

/// Host memory that is the content of a Buffer on device `HOST`: little-endian elements. The engine uploads it at a
/// `Copy`.
pub struct HostBytes(pub Vec<u8>);

/// Device name of Tensors that are made from host data, before they are copied.
pub const HOST: &str = "HOST";

static DEFAULT_DEVICE: RwLock<Option<Arc<str>>> = RwLock::new(None);

thread_local! {
    /// What this thread has in its place.
    static THREAD_DEVICE: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// The device of Tensors made from host data and of random ones unless given: this thread's, the program's, or the
/// value of `DEV` at the first use; where none of them is set, the best device of the machine: the first GPU that can
/// be used, else `CPU`. `DEBUG=1` says which and why.
pub fn default_device() -> Arc<str> {
    if let Some(device) = THREAD_DEVICE.with_borrow(Clone::clone) {
        return device;
    }
    let named = DEFAULT_DEVICE.read().unwrap_or_else(PoisonError::into_inner).clone();
    named.unwrap_or_else(|| crate::default_device::choice().name.clone())
}

/// Chooses the default device of Tensors made from now on.
pub fn set_default_device(name: &str) {
    *DEFAULT_DEVICE.write().unwrap_or_else(PoisonError::into_inner) = Some(name.into());
}

/// Chooses the default device of Tensors that this thread makes from now on, `None`: the program's; returns the former
/// choice.
pub(crate) fn set_thread_device(name: Option<Arc<str>>) -> Option<Arc<str>> {
    THREAD_DEVICE.replace(name)
}

fn locked<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Value for Tensor {
    fn node(&self) -> Result<UOp, Fault> {
        let mut state = locked(&self.0.state);
        let now = state.clone()?;
        match now.realized() {
            Some(buffer) => {
                let buffer = buffer.clone();
                *state = Ok(buffer.clone());
                drop(state);
                self.watch(&buffer);
                Ok(buffer)
            }
            None => Ok(now),
        }
    }
    fn of(node: Result<UOp, Fault>) -> Tensor {
        Tensor(Arc::new(Inner {
            state: Mutex::new(node),
            grad: Mutex::new(None),
            wants_grad: Mutex::new(false),
            losses: Mutex::default(),
        }))
    }
    fn made(node: Result<UOp, Fault>, made: Made) -> Tensor {
        if let Ok(u) = &node {
            u.set_made(made);
        }
        Tensor::of(node)
    }
}

impl Operand<Tensor> for Tensor {
    fn operand(self) -> Result<UOp, Fault> {
        self.node()
    }
}

impl From<UOp> for Tensor {
    fn from(u: UOp) -> Tensor {
        Tensor::of(u.node())
    }
}
impl From<&UOp> for Tensor {
    fn from(u: &UOp) -> Tensor {
        Tensor::of(u.node())
    }
}

impl Tensor {
    /// The Tensor's current node: its buffer once it is realized.
    ///
    /// # Errors
    /// The first mistake below this Tensor; so do all methods that return `Result`.
    pub fn uop(&self) -> Result<UOp, TensorError> {
        self.node().map_err(|fault| (*fault).clone())
    }
    /// Gives the Tensor another node (realize, assign and loading do).
    pub(crate) fn set_uop(&self, u: UOp) {
        self.set_node(Ok(u));
    }
    pub(crate) fn set_node(&self, node: Result<UOp, Fault>) {
        if let Ok(u) = &node {
            self.watch(u);
        }
        *locked(&self.0.state) = node;
    }
    /// Sizes of the axes.
    pub fn shape(&self) -> Result<Vec<Dim>, TensorError> {
        Ok(self.uop()?.shape().to_vec())
    }
    /// Element type; weak for numbers that were not combined with anything yet.
    pub fn dtype(&self) -> Result<Scalar, TensorError> {
        Ok(self.uop()?.dtype().scalar)
    }
    /// Number of axes.
    pub fn rank(&self) -> Result<usize, TensorError> {
        Ok(self.uop()?.shape().len())
    }
    /// Device of the buffers below; the default one for constants and faulty Tensors.
    pub fn device(&self) -> Arc<str> {
        self.node().ok().and_then(|u| u.device().cloned()).unwrap_or_else(default_device)
    }
    /// Whether two handles are the same Tensor.
    pub fn is(&self, o: &Tensor) -> bool {
        Arc::ptr_eq(&self.0, &o.0)
    }

    /// Requests this Tensor's gradient in every `backward` of Tensors built from it.
    ///
    /// A value of constants alone, such as `Tensor::zeros`, gets memory of its own: equal values are one node, and a
    /// gradient must not be that of all Tensors which are equal at first.
    pub fn requires_grad(self) -> Tensor {
        self.set_requires_grad(true);
        self
    }
    /// As [`Tensor::requires_grad`] with `true`; with `false`, `backward` passes this Tensor by from now on.
    pub fn set_requires_grad(&self, on: bool) {
        *locked(&self.0.wants_grad) = on;
        let Ok(u) = self.node() else { return };
        let sized = u.shape().iter().all(|d| d.as_int().is_some());
        if on && sized && u.device().is_none() && !u.dtype().scalar.is_weak() {
            self.assign(&self.clone());
        } else {
            self.watch(&u);
        }
    }
    /// Whether this Tensor asks for its gradient.
    pub fn wants_grad(&self) -> bool {
        *locked(&self.0.wants_grad)
    }
    /// The gradient that `backward` has gathered.
    pub fn grad(&self) -> Option<Tensor> {
        locked(&self.0.grad).clone()
    }
    /// Replaces the gradient; `None` drops it.
    /// Sets the gathered gradient, or forgets it.
    pub fn set_grad(&self, grad: Option<Tensor>) {
        if grad.is_none() {
            locked(&self.0.losses).clear();
        }
        *locked(&self.0.grad) = grad;
    }
    /// Remembers whose `backward` gave this Tensor a gradient, for as long as the other one lives.
    pub(crate) fn add_loss(&self, loss: &Tensor) {
        let mut losses = locked(&self.0.losses);
        losses.retain(|l| l.strong_count() > 0);
        losses.push(Arc::downgrade(&loss.0));
    }
    /// The live Tensors whose `backward` gave the gradient of this one.
    pub(crate) fn losses(&self) -> Vec<Tensor> {
        locked(&self.0.losses).iter().filter_map(Weak::upgrade).map(Tensor).collect()
    }
    /// Ties a node to this handle, so that `backward` finds it from the graph.
    fn watch(&self, u: &UOp) {
        if self.wants_grad() {
            let me: Arc<dyn Any + Send + Sync> = self.0.clone();
            u.watch(Arc::downgrade(&me));
        }
    }
    /// The live handles that requested the gradient of this node.
    pub(crate) fn watching(u: &UOp) -> Vec<Tensor> {
        let alive = u.watchers().into_iter().filter_map(|w| Weak::upgrade(&w)).filter_map(|a| a.downcast().ok());
        alive.map(Tensor).filter(Tensor::wants_grad).collect()
    }

    /// Memory on `device`, not initialised, with this handle alone.
    pub(crate) fn buffer(dtype: Scalar, len: usize, device: Arc<str>) -> UOp {
        UOp::buffer(DType::of(dtype), BufferRef::new(len, device))
    }
    /// Bytes of host memory as a node on `device`.
    pub(crate) fn host_data(bytes: Vec<u8>, dtype: Scalar, len: usize, device: Arc<str>) -> UOp {
        let memory = BufferRef::new(len, HOST.into());
        let _ = memory.memory.set(Arc::new(HostBytes(bytes)));
        let host = UOp::buffer(DType::of(dtype), memory);
        UOp::new(Op::Copy, host.dtype(), [host], crate::uop::Arg::Device(device))
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node() {
            Ok(u) => {
                write!(
                    f,
                    "<Tensor {:?} on {} shape {} {}",
                    u.op(),
                    self.device(),
                    super::error::Shown(u.shape()),
                    u.dtype()
                )?;
                write!(f, " grad {}>", if self.grad().is_some() { "present" } else { "none" })
            }
            Err(fault) => write!(f, "<faulty Tensor: {fault}>"),
        }
    }
}
