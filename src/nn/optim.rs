//! Optimisers: they turn gradients into assignments, which the engine realizes together with the loss.
//!
//! The learning rate and everything that changes from step to step is a Tensor, so a recorded step replays.
//! Formulas: SGD as in PyTorch (momentum without dampening, nesterov); Adam with decay added to the gradient, AdamW with
//! decay apart (Loshchilov and Hutter), both with bias correction.

use crate::tensor::{Elementwise, Fault, Tensor, Value};

/// Why a step was not made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OptimError {
    #[error("optimiser: parameter {index} of {count} has no gradient: backward was not called, or does not reach it")]
    NoGradient { index: usize, count: usize },
    #[error("optimiser: parameter {index}: {error}")]
    Faulty { index: usize, error: Fault },
}

/// What every optimiser can do.
pub trait Optimizer {
    /// Gathered gradients are forgotten.
    fn zero_grad(&self);
    /// Assigns the stepped parameters and the optimiser's own state; gives all Tensors that are to be realized together,
    /// those without gradient (running statistics) included.
    ///
    /// # Errors
    /// A parameter has no gradient, or a faulty one. Nothing was assigned then.
    fn schedule_step(&mut self) -> Result<Vec<Tensor>, OptimError>;
    /// The learning rate: assign to it to change it.
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
        let (params, rest) = tensors.iter().cloned().partition(Tensor::wants_grad);
        Group { params, rest, lr: Tensor::new([lr as f32]) }
    }
    /// Zeros of each parameter's shape and type.
    fn zeros(&self) -> Vec<Tensor> {
        self.params.iter().map(Tensor::zeros_like).collect()
    }
    fn zero_grad(&self) {
        self.params.iter().for_each(|p| p.set_grad(None));
    }
    fn gradients(&self) -> Result<Vec<Tensor>, OptimError> {
        let count = self.params.len();
        let one = |(index, p): (usize, &Tensor)| {
            let g = p.grad().ok_or(OptimError::NoGradient { index, count })?;
            g.node().and(p.node()).map_err(|error| OptimError::Faulty { index, error })?;
            Ok(g)
        };
        self.params.iter().enumerate().map(one).collect()
    }
    /// All that a step assigns.
    fn touched(&self, state: &[&[Tensor]]) -> Vec<Tensor> {
        let all = self.params.iter().chain(state.iter().copied().flatten());
        all.chain(&self.rest).chain(std::iter::once(&self.lr)).cloned().collect()
    }
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
                    v.assign(&(v.mul(self.momentum) + &g));
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
    let t = p.dtype().unwrap_or(crate::uop::Scalar::F32);
    p.assign(&p.detach().sub(&step.mul(lr)).cast(t));
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
        let powers = vec![Tensor::new([1.0f32]), Tensor::new([1.0f32])];
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
            m.assign(&(m.mul(b1) + g.mul(1.0 - b1)));
            v.assign(&(v.mul(b2) + g.square().mul(1.0 - b2)));
            let step = m.div(&unbias_first) / (v.div(&unbias_second).sqrt() + self.eps);
            let step = if self.decoupled { decayed(step, p, self.weight_decay) } else { step };
            move_by(p, &step, &self.group.lr);
        }
        Ok(self.group.touched(&[&self.first, &self.second, &self.powers]))
    }
}
