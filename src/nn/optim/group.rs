//! What every optimiser has: parameters, buffers, a learning rate, and checks of all three.

use super::OptimError;
use crate::nn::Parameters;
use crate::nn::module::named;
use crate::tensor::{Elementwise, Movement, Shown, Tensor, Value, default_device};
use crate::uop::Scalar;

/// Parameters, and the rest that only is realized with them.
pub(super) struct Group {
    pub params: Vec<Tensor>,
    names: Vec<Option<String>>,
    rest: Vec<Tensor>,
    pub lr: Tensor,
    /// Whether a parameter without gradient is left as it is.
    pub skip: bool,
    /// The first setting that means nothing: said at the next step, as the methods that set it return no error.
    pub wrong: Option<OptimError>,
}

impl Group {
    pub(crate) fn new(params: Parameters, lr: f64) -> Result<Group, OptimError> {
        let Parameters { names, list: params, buffers: rest } = params;
        setting("the learning rate", lr, lr.is_finite() && lr >= 0.0, "it is a number from 0 on")?;
        let lr = number(&params, lr);
        let group = Group { params, names, rest, lr, skip: false, wrong: None };
        if group.params.is_empty() {
            return Err(OptimError::Empty);
        }
        for (k, p) in group.params.iter().enumerate() {
            let u = p.node().map_err(|error| OptimError::Faulty { parameter: group.name(k), error })?;
            let dtype = u.dtype().scalar;
            if !dtype.is_float() {
                return Err(OptimError::NotFloat { parameter: group.name(k), dtype });
            }
            if !p.wants_grad() {
                return Err(OptimError::Unwanted { parameter: group.name(k), shape: u.shape().to_vec(), dtype });
            }
            if let Some(first) = group.params[..k].iter().position(|o| o.is(p)) {
                return Err(OptimError::Twice { parameter: group.name(k), first: group.name(first) });
            }
        }
        Ok(group)
    }
    /// A parameter's name for messages.
    pub(crate) fn name(&self, k: usize) -> String {
        self.names[k].as_ref().map_or_else(|| k.to_string(), |n| format!("'{n}'"))
    }
    /// Remembers a setting that means nothing.
    pub(crate) fn require(&mut self, what: &'static str, value: f64, holds: bool, wanted: &'static str) {
        if let Err(e) = setting(what, value, holds, wanted) {
            self.wrong.get_or_insert(e);
        }
    }
    /// Zeros of each parameter's shape and type.
    pub(crate) fn zeros(&self) -> Vec<Tensor> {
        self.params.iter().map(Tensor::zeros_like).collect()
    }
    /// One number in memory beside the parameters.
    pub(crate) fn number(&self, value: f64) -> Tensor {
        number(&self.params, value)
    }
    /// The gradients, after a check of everything that a step needs: an assignment that fails would leave a faulty
    /// parameter. `None` for a parameter that is left as it is.
    pub(crate) fn gradients(&self) -> Result<Vec<Option<Tensor>>, OptimError> {
        if let Some(e) = &self.wrong {
            return Err(e.clone());
        }
        let one = |(k, p): (usize, &Tensor)| {
            let parameter = || self.name(k);
            let g = match p.grad() {
                Some(g) => g,
                None if self.skip => return Ok(None),
                None => return Err(OptimError::NoGradient { parameter: parameter(), count: self.params.len() }),
            };
            let faulty = |error| OptimError::Faulty { parameter: parameter(), error };
            let (found, wanted) = (g.node().map_err(faulty)?, p.node().map_err(faulty)?);
            if found.shape() != wanted.shape() {
                let (found, wanted) = (found.shape().to_vec(), wanted.shape().to_vec());
                return Err(OptimError::Shape { parameter: parameter(), found, wanted });
            }
            Ok(Some(g))
        };
        let lr = self.lr.node().map_err(|error| OptimError::Rate(error.to_string()))?;
        if lr.shape().iter().any(|d| !d.is(1)) {
            return Err(OptimError::Rate(format!("its shape is {}", Shown(lr.shape()))));
        }
        self.params.iter().enumerate().map(one).collect()
    }
    /// All that a step assigns.
    pub(crate) fn touched(&self, state: &[&[Tensor]]) -> Vec<Tensor> {
        let all = self.params.iter().chain(state.iter().copied().flatten());
        all.chain(&self.rest).chain(std::iter::once(&self.lr)).cloned().collect()
    }
    /// Visits state of each parameter under `what` and the parameter's name or number.
    pub(crate) fn visit(&self, prefix: &str, what: &str, state: &[Tensor], f: &mut dyn FnMut(String, &Tensor)) {
        for (k, t) in state.iter().enumerate() {
            let own = self.names[k].clone().unwrap_or_else(|| k.to_string());
            f(named(&named(prefix, what), &own), t);
        }
    }
}

fn setting(what: &'static str, value: f64, holds: bool, wanted: &'static str) -> Result<(), OptimError> {
    if holds { Ok(()) } else { Err(OptimError::Setting { what, value, wanted }) }
}

/// One f32 in memory, (1,), where the first parameter is.
fn number(params: &[Tensor], value: f64) -> Tensor {
    let device = params.first().map_or_else(default_device, Tensor::device);
    Tensor::from_bytes((value as f32).to_le_bytes().to_vec(), Scalar::F32, [1], &device)
}

/// Such a number for a parameter: without axes, so that it broadcasts to the parameter's shape, and on its device.
pub(super) fn beside(p: &Tensor, number: &Tensor) -> Tensor {
    number.reshape(()).to(&p.device())
}

/// Stores a value in state of whatever float type.
pub(super) fn store(state: &Tensor, value: &Tensor) {
    let t = state.dtype().unwrap_or(Scalar::F32);
    state.assign(&value.cast(t));
}

/// The gradient with decay added to it (L2).
pub(super) fn decayed(g: Tensor, p: &Tensor, decay: f64) -> Tensor {
    if decay == 0.0 { g } else { g + p.detach().mul(decay) }
}

/// The Euclidean norm of all elements, in f32 at least.
pub(super) fn norm(x: &Tensor) -> Tensor {
    use crate::tensor::Reduction;
    let t = x.dtype().unwrap_or(Scalar::F32).accumulator();
    x.cast(t).square().sum(()).sqrt()
}
