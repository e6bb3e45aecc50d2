//! Steps along the gradient, with momentum: SGD, LARS, Muon.
//!
//! One formula, as in tinygrad: the gradient, decayed, goes into a velocity, which moves the parameter; LARS scales
//! each parameter's step by the ratio of norms, Muon makes it (nearly) orthogonal.

use super::group::{Group, beside, decayed, norm, store};
use super::{OptimError, Optimizer};
use crate::nn::{Module, Parameters};
use crate::tensor::{Elementwise, Movement, Product, Reduction, Tensor, Value};

/// Stochastic gradient descent, plain or with momentum; made by [`Lars::new`] and [`Muon::new`] too.
#[doc(alias = "SGD")]
pub struct Sgd {
    group: Group,
    velocity: Vec<Tensor>,
    momentum: f64,
    nesterov: bool,
    classic: bool,
    weight_decay: f64,
    /// LARS's coefficient; `None`: no ratio of norms.
    trust: Option<f64>,
    orthogonal: Option<Orthogonal>,
}

/// How Muon makes a step orthogonal.
struct Orthogonal {
    steps: usize,
    coefficients: [f64; 3],
    scale: MuonScale,
}

/// How Muon's step depends on the shape (rows, columns) of a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MuonScale {
    /// Not at all (tinygrad).
    #[default]
    None,
    /// By sqrt(max(1, rows / columns)) (`adjust_lr_fn="original"`, PyTorch's default).
    Original,
    /// By 0.2 sqrt(max(rows, columns)) (`adjust_lr_fn="match_rms_adamw"`).
    MatchRmsAdamW,
}

/// Layer-wise adaptive rate scaling: each parameter's step is scaled by the norm of the parameter over that of its
/// gradient (You, Gitman, Ginsburg 2017).
#[doc(alias = "LARS")]
pub struct Lars;

/// Momentum made orthogonal by Newton-Schulz iterations (Jordan 2024): for parameters that are matrices. Give biases,
/// norms and embeddings to [`AdamW`](super::AdamW) in an [`OptimizerGroup`](super::OptimizerGroup).
pub struct Muon;

impl Sgd {
    /// Plain descent; the methods below add to it.
    ///
    /// # Errors
    /// No parameters; one that asks for no gradient, is not of floats, faulty or listed twice; a negative rate.
    pub fn new(params: impl Into<Parameters>, lr: f64) -> Result<Sgd, OptimError> {
        Ok(Sgd {
            group: Group::new(params.into(), lr)?,
            velocity: Vec::new(),
            momentum: 0.0,
            nesterov: false,
            classic: false,
            weight_decay: 0.0,
            trust: None,
            orthogonal: None,
        })
    }
    /// Steps along a velocity: `v = momentum * v + g` (no dampening).
    pub fn momentum(mut self, momentum: f64) -> Sgd {
        self.group.require("momentum", momentum, (0.0..1.0).contains(&momentum), "it is from 0 to below 1");
        self.velocity = if momentum == 0.0 { Vec::new() } else { self.group.zeros() };
        self.momentum = momentum;
        self
    }
    /// Steps along `g + momentum * v`; needs momentum.
    pub fn nesterov(self) -> Sgd {
        Sgd { nesterov: true, ..self }
    }
    /// Steps along the velocity alone: Muon without its Nesterov momentum.
    pub fn plain_momentum(self) -> Sgd {
        Sgd { nesterov: false, ..self }
    }
    /// The learning rate goes into the velocity instead of scaling the step (as in old papers, and in tinygrad's
    /// `classic`): a change of it acts gradually.
    pub fn classic(self) -> Sgd {
        Sgd { classic: true, ..self }
    }
    /// Decay added to the gradient (L2); Muon shrinks the parameter itself.
    pub fn weight_decay(mut self, decay: f64) -> Sgd {
        self.group.require("weight decay", decay, decay.is_finite() && decay >= 0.0, "it is a number from 0 on");
        Sgd { weight_decay: decay, ..self }
    }
    /// LARS's trust coefficient (`tcoef`), 0.001 at first.
    pub fn trust(mut self, coefficient: f64) -> Sgd {
        self.group.require("the trust coefficient", coefficient, coefficient > 0.0, "it is above 0");
        Sgd { trust: Some(coefficient), ..self }
    }
    /// Muon's iterations and the coefficients of their polynomial; 5 of (3.4445, -4.7750, 2.0315) at first. Other
    /// optimisers become orthogonal by it.
    pub fn orthogonal(self, steps: usize, coefficients: [f64; 3]) -> Sgd {
        let scale = self.orthogonal.as_ref().map_or(MuonScale::None, |o| o.scale);
        Sgd { orthogonal: Some(Orthogonal { steps, coefficients, scale }), ..self }
    }
    /// How Muon's step depends on a parameter's shape; no other optimiser has that.
    pub fn scaled(mut self, scale: MuonScale) -> Sgd {
        match &mut self.orthogonal {
            Some(o) => o.scale = scale,
            None => self.group.require("a scale of Muon", 0.0, false, "the optimiser is not Muon"),
        }
        self
    }
    /// A parameter without gradient stays as it is, instead of being an error (PyTorch's behaviour).
    pub fn skip_unused(mut self) -> Sgd {
        self.group.skip = true;
        self
    }

    fn gradients(&self) -> Result<Vec<Option<Tensor>>, OptimError> {
        if self.nesterov && self.momentum == 0.0 {
            let (what, wanted) = ("momentum", "nesterov needs one above 0");
            return Err(OptimError::Setting { what, value: 0.0, wanted });
        }
        self.group.gradients()
    }
    /// The new value of parameter `k`.
    fn moved(&self, k: usize, p: &Tensor, g: Tensor) -> Tensor {
        let lr = beside(p, &self.group.lr);
        let ratio = self.trust.map(|c| trust_ratio(p, &g, c, self.weight_decay));
        // Muon's decay acts on the parameter, after the momentum.
        let after = self.orthogonal.is_some();
        let mut step = if after { g } else { decayed(g, p, self.weight_decay) };
        let rated = |step: Tensor| match &ratio {
            Some(r) => step.mul(r).mul(&lr),
            None => step.mul(&lr),
        };
        if self.classic {
            step = rated(step);
        }
        if let Some(v) = self.velocity.get(k) {
            store(v, &(v.mul(self.momentum) + &step));
            step = if self.nesterov { step + v.mul(self.momentum) } else { v.clone() };
        }
        if let Some(o) = &self.orthogonal {
            step = o.made(&step);
        }
        let shrunk = match (after, self.weight_decay) {
            (true, decay) if decay != 0.0 => p.detach().mul(&lr.mul(-decay).add(1.0)),
            _ => p.detach(),
        };
        shrunk.sub(&if self.classic { step } else { rated(step) })
    }
}

impl Lars {
    /// Momentum 0.9, decay 1e-4, trust coefficient 0.001, classic; change them by [`Sgd`]'s methods.
    ///
    /// # Errors
    /// As [`Sgd::new`].
    #[allow(clippy::new_ret_no_self)]
    pub fn new(params: impl Into<Parameters>, lr: f64) -> Result<Sgd, OptimError> {
        Ok(Sgd::new(params, lr)?.momentum(0.9).weight_decay(1e-4).trust(0.001).classic())
    }
}

impl Muon {
    /// Nesterov momentum 0.95, no decay, 5 iterations; change them by [`Sgd`]'s methods. tinygrad's rate is 0.02,
    /// PyTorch's 0.001 with decay 0.1 and [`MuonScale::Original`].
    ///
    /// # Errors
    /// As [`Sgd::new`]; a parameter with fewer than two axes. One with more is taken as a matrix of its first axis.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(params: impl Into<Parameters>, lr: f64) -> Result<Sgd, OptimError> {
        let sgd = Sgd::new(params, lr)?;
        for (k, p) in sgd.group.params.iter().enumerate() {
            let parameter = sgd.group.name(k);
            let u = p.node().map_err(|error| OptimError::Faulty { parameter: parameter.clone(), error })?;
            if u.shape().len() < 2 {
                let what = "Muon moves matrices; give the others to AdamW in an OptimizerGroup";
                return Err(OptimError::Unfit { parameter, shape: u.shape().to_vec(), what });
            }
        }
        Ok(sgd.momentum(0.95).nesterov().orthogonal(5, [3.4445, -4.7750, 2.0315]))
    }
}

/// LARS's factor: 1 where a norm is 0.
fn trust_ratio(p: &Tensor, g: &Tensor, coefficient: f64, decay: f64) -> Tensor {
    let (r1, r2) = (norm(&p.detach()), norm(g));
    let ratio = r1.mul(coefficient).div(&(&r2 + r1.mul(decay)));
    r1.gt(0.0).bitand(&r2.gt(0.0)).where_(&ratio, 1.0)
}

impl Orthogonal {
    fn made(&self, step: &Tensor) -> Tensor {
        let Ok(u) = step.node() else { return step.clone() };
        let rows = u.shape().first().cloned().unwrap_or(crate::uop::Dim::Int(1));
        let matrix = step.cast(u.dtype().scalar.accumulator()).reshape([rows, crate::uop::Dim::Int(-1)]);
        let Ok(m) = matrix.node() else { return matrix };
        let size = |k: usize| m.shape()[k].max().max(1) as f64;
        let (rows, columns) = (size(0), size(1));
        let made = if rows > columns { self.iterated(&matrix.t()).t() } else { self.iterated(&matrix) };
        let factor = match self.scale {
            MuonScale::None => 1.0,
            MuonScale::Original => (rows / columns).max(1.0).sqrt(),
            MuonScale::MatchRmsAdamW => 0.2 * rows.max(columns).sqrt(),
        };
        let made = if factor == 1.0 { made } else { made.mul(factor) };
        made.reshape(u.shape())
    }
    /// Newton-Schulz iterations towards the nearest matrix with orthogonal rows.
    fn iterated(&self, matrix: &Tensor) -> Tensor {
        let [a, b, c] = self.coefficients;
        let mut x = matrix.div(&matrix.square().sum_keep(()).sqrt().add(1e-7));
        for _ in 0..self.steps {
            let gram = x.matmul(&x.t());
            let sum = gram.mul(b) + gram.matmul(&gram).mul(c);
            x = x.mul(a) + sum.matmul(&x);
        }
        x
    }
}

impl Module for Sgd {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(String, &Tensor)) {
        f(super::super::module::named(prefix, "lr"), &self.group.lr);
        self.group.visit(prefix, "velocity", &self.velocity, f);
    }
}

impl Optimizer for Sgd {
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
        self.gradients().map(drop)
    }
    fn schedule_step(&mut self) -> Result<Vec<Tensor>, OptimError> {
        let grads = self.gradients()?;
        for (k, (p, g)) in self.group.params.iter().zip(grads).enumerate() {
            if let Some(g) = g {
                store(p, &self.moved(k, p, g));
            }
        }
        Ok(self.group.touched(&[&self.velocity]))
    }
}
