//! Steps by running moments of the gradient: Adam, AdamW, LAMB.
//!
//! Adam adds decay to the gradient, AdamW takes it from the parameter (Loshchilov and Hutter), both with bias
//! correction; LAMB scales each parameter's AdamW step by the ratio of norms (You et al. 2019).

use super::group::{Group, beside, decayed, norm, store};
use super::{OptimError, Optimizer};
use crate::nn::module::named;
use crate::nn::{Module, Parameters};
use crate::tensor::{Elementwise, Tensor};

/// Adam; made by [`AdamW::new`] and [`Lamb::new`] too.
pub struct Adam {
    group: Group,
    /// Running means of the gradient and of its square.
    first: Vec<Tensor>,
    second: Vec<Tensor>,
    /// The largest second moments so far, with `amsgrad`.
    largest: Vec<Tensor>,
    /// b1 and b2 to the power of the number of steps, (1,) each.
    powers: Vec<Tensor>,
    betas: (f64, f64),
    eps: f64,
    weight_decay: f64,
    decoupled: bool,
    /// LAMB's ratio of norms.
    trust: bool,
}

impl Adam {
    /// Betas 0.9 and 0.999, eps 1e-8, no decay; change them by the methods below.
    ///
    /// # Errors
    /// As [`Sgd::new`](super::Sgd::new).
    pub fn new(params: impl Into<Parameters>, lr: f64) -> Result<Adam, OptimError> {
        let group = Group::new(params.into(), lr)?;
        let (first, second) = (group.zeros(), group.zeros());
        let powers = vec![group.number(1.0), group.number(1.0)];
        Ok(Adam {
            group,
            first,
            second,
            largest: Vec::new(),
            powers,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.0,
            decoupled: false,
            trust: false,
        })
    }
    /// AdamW: decay is taken from the parameter, not added to the gradient.
    ///
    /// # Errors
    /// As [`Sgd::new`](super::Sgd::new).
    pub fn decoupled(params: impl Into<Parameters>, lr: f64, weight_decay: f64) -> Result<Adam, OptimError> {
        Ok(Adam { decoupled: true, ..Adam::new(params, lr)? }.weight_decay(weight_decay))
    }
    /// How much of the old moments stays at each step.
    pub fn betas(mut self, first: f64, second: f64) -> Adam {
        for beta in [first, second] {
            self.group.require("a beta", beta, (0.0..1.0).contains(&beta), "it is from 0 to below 1");
        }
        Adam { betas: (first, second), ..self }
    }
    /// What is added to the root of the second moment.
    pub fn eps(mut self, eps: f64) -> Adam {
        self.group.require("eps", eps, eps.is_finite() && eps >= 0.0, "it is a number from 0 on");
        Adam { eps, ..self }
    }
    /// Decay: added to the gradient by Adam, taken from the parameter by AdamW and LAMB.
    pub fn weight_decay(mut self, decay: f64) -> Adam {
        self.group.require("weight decay", decay, decay.is_finite() && decay >= 0.0, "it is a number from 0 on");
        Adam { weight_decay: decay, ..self }
    }
    /// Divides by the root of the largest second moment so far (Reddi, Kale, Kumar 2018).
    pub fn amsgrad(self) -> Adam {
        Adam { largest: self.group.zeros(), ..self }
    }
    /// A parameter without gradient stays as it is, instead of being an error (PyTorch's behaviour). The bias
    /// correction counts all steps.
    pub fn skip_unused(mut self) -> Adam {
        self.group.skip = true;
        self
    }

    /// The step of parameter `k`, before the learning rate. `unbias`: one minus the powers.
    fn step_of(&self, k: usize, p: &Tensor, g: &Tensor, unbias: &[Tensor; 2]) -> Tensor {
        let (b1, b2) = self.betas;
        let (m, v) = (&self.first[k], &self.second[k]);
        store(m, &(m.mul(b1) + g.mul(1.0 - b1)));
        store(v, &(v.mul(b2) + g.square().mul(1.0 - b2)));
        let [first, second] = unbias.each_ref().map(|u| beside(p, u));
        let v = match self.largest.get(k) {
            Some(largest) => {
                store(largest, &largest.maximum(v));
                largest
            }
            None => v,
        };
        m.div(&first) / (v.div(&second).sqrt() + self.eps)
    }
}

/// AdamW with the usual decay of 0.01.
pub struct AdamW;

impl AdamW {
    /// As [`Adam::decoupled`] with decay 0.01; change it by [`Adam`]'s methods.
    ///
    /// # Errors
    /// As [`Sgd::new`](super::Sgd::new).
    #[allow(clippy::new_ret_no_self)]
    pub fn new(params: impl Into<Parameters>, lr: f64) -> Result<Adam, OptimError> {
        Adam::decoupled(params, lr, 0.01)
    }
}

/// Layer-wise adaptive moments for large batches.
#[doc(alias = "LAMB")]
pub struct Lamb;

impl Lamb {
    /// Betas 0.9 and 0.999, eps 1e-6, no decay; change them by [`Adam`]'s methods.
    ///
    /// # Errors
    /// As [`Sgd::new`](super::Sgd::new).
    #[allow(clippy::new_ret_no_self)]
    pub fn new(params: impl Into<Parameters>, lr: f64) -> Result<Adam, OptimError> {
        Ok(Adam { trust: true, ..Adam::decoupled(params, lr, 0.0)?.eps(1e-6) })
    }
}

/// LAMB's factor: 1 where a norm is 0.
fn trust_ratio(p: &Tensor, step: &Tensor) -> Tensor {
    let (r1, r2) = (norm(&p.detach()), norm(step));
    r1.gt(0.0).bitand(&r2.gt(0.0)).where_(&r1.div(&r2), 1.0)
}

impl Module for Adam {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(String, &Tensor)) {
        f(named(prefix, "lr"), &self.group.lr);
        self.powers.visit(&named(prefix, "powers"), f);
        self.group.visit(prefix, "first", &self.first, f);
        self.group.visit(prefix, "second", &self.second, f);
        self.group.visit(prefix, "largest", &self.largest, f);
    }
}

impl Optimizer for Adam {
    fn params(&self) -> Vec<Tensor> {
        self.group.params.clone()
    }
    fn lrs(&self) -> Vec<Tensor> {
        vec![self.group.lr.clone()]
    }
    fn lr(&self) -> &Tensor {
        &self.group.lr
    }
    fn check(&self) -> Result<(), OptimError> {
        self.group.gradients().map(drop)
    }
    fn schedule_step(&mut self) -> Result<Vec<Tensor>, OptimError> {
        let grads = self.group.gradients()?;
        // PANIC: `new` makes two powers, and as many moments as parameters; nothing removes any.
        self.powers[0].assign(&self.powers[0].mul(self.betas.0));
        self.powers[1].assign(&self.powers[1].mul(self.betas.1));
        let unbias = [0, 1].map(|k| self.powers[k].neg().add(1));
        for (k, (p, g)) in self.group.params.iter().zip(grads).enumerate() {
            let Some(g) = g else { continue };
            let g = if self.decoupled { g } else { decayed(g, p, self.weight_decay) };
            let step = self.step_of(k, p, &g, &unbias);
            let step = if self.decoupled { decayed(step, p, self.weight_decay) } else { step };
            let step = if self.trust { step.mul(&trust_ratio(p, &step)) } else { step };
            store(p, &p.detach().sub(&step.mul(&beside(p, &self.group.lr))));
        }
        Ok(self.group.touched(&[&self.first, &self.second, &self.largest, &self.powers]))
    }
}
