//! Optimisers: they turn gradients into assignments, which the engine realizes together with the loss.
//!
//! The learning rate and everything that changes from step to step is a Tensor, so a recorded step replays.
//! Formulas: SGD as in PyTorch (momentum without dampening, nesterov); Adam with decay added to the gradient, AdamW
//! with decay separate (Loshchilov and Hutter), both with bias correction.

use crate::tensor::{Elementwise, Fault, Movement, Shown, Tensor, Value, default_device};
use crate::uop::{Dim, Scalar};

/// Why a step was not made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OptimError {
    #[error("optimiser: parameter {index} of {count} has no gradient: backward was not called, or does not reach it")]
    NoGradient { index: usize, count: usize },
    #[error("optimiser: parameter {index}: {error}")]
    Faulty { index: usize, error: Fault },
    #[error("optimiser: parameter {index} of shape {} has a gradient of shape {}", Shown(.wanted), Shown(.found))]
    Shape { index: usize, found: Vec<Dim>, wanted: Vec<Dim> },
    #[error("optimiser: the learning rate is no single number: {0}")]
    Rate(String),
}

/// What every optimiser can do.
pub trait Optimizer {
    /// Gathered gradients are forgotten.
    fn zero_grad(&self);
    /// Assigns the stepped parameters and the optimiser's own state; returns all Tensors that are to be realized
    /// together, those without gradient (running statistics) included.
    ///
    /// # Errors
    /// A parameter has no gradient, a faulty one or one of another shape; the learning rate is no single number.
    /// Nothing was assigned then.
    fn schedule_step(&mut self) -> Result<Vec<Tensor>, OptimError>;
    /// The learning rate, (1,) on the first parameter's device: assign to it to change it.
    fn lr(&self) -> &Tensor;
}

/// Parameters, and the rest that only is realized with them.
struct Group {
    params: Vec<Tensor>,
    rest: Vec<Tensor>,
    lr: Tensor,
}

impl Group {
    fn new(tensors: &[Tensor], lr: f64) -> Group {
        let (params, rest): (Vec<Tensor>, Vec<Tensor>) = tensors.iter().cloned().partition(Tensor::wants_grad);
        let lr = number(&params, lr);
        Group { params, rest, lr }
    }
    /// Zeros of each parameter's shape and type.
    fn zeros(&self) -> Vec<Tensor> {
        self.params.iter().map(Tensor::zeros_like).collect()
    }
    fn zero_grad(&self) {
        self.params.iter().for_each(|p| p.set_grad(None));
    }
    /// The gradients, after a check of everything that a step needs: an assignment that fails would leave a faulty
    /// parameter.
    fn gradients(&self) -> Result<Vec<Tensor>, OptimError> {
        let count = self.params.len();
        let one = |(index, p): (usize, &Tensor)| {
            let g = p.grad().ok_or(OptimError::NoGradient { index, count })?;
            let faulty = |error| OptimError::Faulty { index, error };
            let (found, wanted) = (g.node().map_err(faulty)?, p.node().map_err(faulty)?);
            if found.shape() != wanted.shape() {
                let (found, wanted) = (found.shape().to_vec(), wanted.shape().to_vec());
                return Err(OptimError::Shape { index, found, wanted });
            }
            Ok(g)
        };
        let lr = self.lr.node().map_err(|error| OptimError::Rate(error.to_string()))?;
        if lr.shape().iter().any(|d| !d.is(1)) {
            return Err(OptimError::Rate(format!("its shape is {}", Shown(lr.shape()))));
        }
        self.params.iter().enumerate().map(one).collect()
    }
    /// All that a step assigns.
    fn touched(&self, state: &[&[Tensor]]) -> Vec<Tensor> {
        let all = self.params.iter().chain(state.iter().copied().flatten());
        all.chain(&self.rest).chain(std::iter::once(&self.lr)).cloned().collect()
    }
}

/// One f32 in memory, (1,), where the first parameter is.
fn number(params: &[Tensor], value: f64) -> Tensor {
    let device = params.first().map_or_else(default_device, Tensor::device);
    Tensor::from_bytes((value as f32).to_le_bytes().to_vec(), Scalar::F32, [1], &device)
}

/// Such a number for a parameter: without axes, so that it broadcasts to the parameter's shape, and on its device.
fn beside(p: &Tensor, number: &Tensor) -> Tensor {
    number.reshape(()).to(&p.device())
}

/// Stores a value in state of whatever float type.
fn store(state: &Tensor, value: &Tensor) {
    let t = state.dtype().unwrap_or(Scalar::F32);
    state.assign(&value.cast(t));
}

/// Stochastic gradient descent.
pub struct Sgd {
    group: Group,
    velocity: Vec<Tensor>,
    pub momentum: f64,
    pub nesterov: bool,
    pub weight_decay: f64,
}

impl Sgd {
    pub fn new(params: &[Tensor], lr: f64) -> Sgd {
        Sgd { group: Group::new(params, lr), velocity: Vec::new(), momentum: 0.0, nesterov: false, weight_decay: 0.0 }
    }
    pub fn momentum(mut self, momentum: f64, nesterov: bool) -> Sgd {
        self.velocity = self.group.zeros();
        (self.momentum, self.nesterov) = (momentum, nesterov);
        self
    }
    pub fn weight_decay(self, weight_decay: f64) -> Sgd {
        Sgd { weight_decay, ..self }
    }
}

impl Optimizer for Sgd {
    fn zero_grad(&self) {
        self.group.zero_grad();
    }
    fn lr(&self) -> &Tensor {
        &self.group.lr
    }
    fn schedule_step(&mut self) -> Result<Vec<Tensor>, OptimError> {
        let grads = self.group.gradients()?;
        for (k, (p, g)) in self.group.params.iter().zip(grads).enumerate() {
            let g = decayed(g, p, self.weight_decay);
            let step = match self.velocity.get(k) {
                Some(v) => {
                    store(v, &(v.mul(self.momentum) + &g));
                    if self.nesterov { g + v.mul(self.momentum) } else { v.clone() }
                }
                None => g,
            };
            move_by(p, &step, &self.group.lr);
        }
        Ok(self.group.touched(&[&self.velocity]))
    }
}

fn decayed(g: Tensor, p: &Tensor, decay: f64) -> Tensor {
    if decay == 0.0 { g } else { g + p.detach().mul(decay) }
}

fn move_by(p: &Tensor, step: &Tensor, lr: &Tensor) {
    store(p, &p.detach().sub(&step.mul(&beside(p, lr))));
}

/// Adam and AdamW.
pub struct Adam {
    group: Group,
    /// Running means of the gradient and of its square.
    first: Vec<Tensor>,
    second: Vec<Tensor>,
    /// b1 and b2 to the power of the number of steps, (1,) each.
    powers: Vec<Tensor>,
    pub betas: (f64, f64),
    pub eps: f64,
    pub weight_decay: f64,
    decoupled: bool,
}

impl Adam {
    pub fn new(params: &[Tensor], lr: f64) -> Adam {
        let group = Group::new(params, lr);
        let (first, second) = (group.zeros(), group.zeros());
        let powers = vec![number(&group.params, 1.0), number(&group.params, 1.0)];
        Adam { group, first, second, powers, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.0, decoupled: false }
    }
    /// AdamW: decay is taken from the parameter, not added to the gradient.
    pub fn decoupled(params: &[Tensor], lr: f64, weight_decay: f64) -> Adam {
        Adam { weight_decay, decoupled: true, ..Adam::new(params, lr) }
    }
    pub fn betas(self, first: f64, second: f64) -> Adam {
        Adam { betas: (first, second), ..self }
    }
    pub fn eps(self, eps: f64) -> Adam {
        Adam { eps, ..self }
    }
    pub fn weight_decay(self, weight_decay: f64) -> Adam {
        Adam { weight_decay, ..self }
    }
}

/// AdamW with the usual decay of 0.01.
pub struct AdamW;
impl AdamW {
    #[allow(clippy::new_ret_no_self)]
    pub fn new(params: &[Tensor], lr: f64) -> Adam {
        Adam::decoupled(params, lr, 0.01)
    }
}

impl Optimizer for Adam {
    fn zero_grad(&self) {
        self.group.zero_grad();
    }
    fn lr(&self) -> &Tensor {
        &self.group.lr
    }
    fn schedule_step(&mut self) -> Result<Vec<Tensor>, OptimError> {
        let grads = self.group.gradients()?;
        let (b1, b2) = self.betas;
        // PANIC: `new` makes two powers, and as many moments as parameters; nothing removes any.
        self.powers[0].assign(&self.powers[0].mul(b1));
        self.powers[1].assign(&self.powers[1].mul(b2));
        let unbias = |k: usize| self.powers[k].neg().add(1);
        let (unbias_first, unbias_second) = (unbias(0), unbias(1));
        for (k, (p, g)) in self.group.params.iter().zip(grads).enumerate() {
            let g = if self.decoupled { g } else { decayed(g, p, self.weight_decay) };
            let (m, v) = (&self.first[k], &self.second[k]);
            store(m, &(m.mul(b1) + g.mul(1.0 - b1)));
            store(v, &(v.mul(b2) + g.square().mul(1.0 - b2)));
            let (first, second) = (beside(p, &unbias_first), beside(p, &unbias_second));
            let step = m.div(&first) / (v.div(&second).sqrt() + self.eps);
            let step = if self.decoupled { decayed(step, p, self.weight_decay) } else { step };
            move_by(p, &step, &self.group.lr);
        }
        Ok(self.group.touched(&[&self.first, &self.second, &self.powers]))
    }
}
