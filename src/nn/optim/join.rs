//! Several optimisers as one: parameter groups with settings of their own.

use super::{OptimError, Optimizer};
use crate::nn::Module;
use crate::nn::module::named;
use crate::tensor::Tensor;

/// Optimisers that step together, each with its own parameters, learning rate and settings: PyTorch's parameter groups
/// and tinygrad's `OptimizerGroup`.
///
/// ```
/// use doorbell::nn::optim::{AdamW, Muon, Optimizer, OptimizerGroup};
/// use doorbell::nn::{Linear, Module};
/// use doorbell::tensor::prelude::*;
///
/// let net = Linear::new(4, 3);
/// let all = net.parameters();
/// let mut optim = OptimizerGroup::new(Muon::new(all.filtered(|name| name == "weight"), 0.02)?)
///     .with(AdamW::new(all.filtered(|name| name == "bias"), 0.001)?.weight_decay(0.0));
/// net.forward(&Tensor::ones([2, 4])).square().mean(()).backward()?;
/// optim.step()?;
/// assert_eq!((optim.params().len(), optim.lrs().len()), (2, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OptimizerGroup {
    first: Box<dyn Optimizer>,
    more: Vec<Box<dyn Optimizer>>,
}

impl OptimizerGroup {
    /// A group of one.
    pub fn new(first: impl Optimizer + 'static) -> OptimizerGroup {
        OptimizerGroup { first: Box::new(first), more: Vec::new() }
    }
    /// The group with one more optimiser.
    pub fn with(mut self, member: impl Optimizer + 'static) -> OptimizerGroup {
        self.more.push(Box::new(member));
        self
    }
    /// The optimisers.
    pub fn members(&self) -> impl Iterator<Item = &dyn Optimizer> {
        std::iter::once(&self.first).chain(&self.more).map(|m| &**m)
    }
}

impl Module for OptimizerGroup {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(String, &Tensor)) {
        for (k, m) in self.members().enumerate() {
            m.visit(&named(prefix, &k.to_string()), f);
        }
    }
}

impl Optimizer for OptimizerGroup {
    fn params(&self) -> Vec<Tensor> {
        self.members().flat_map(|m| m.params()).collect()
    }
    fn lrs(&self) -> Vec<Tensor> {
        self.members().flat_map(|m| m.lrs()).collect()
    }
    fn lr(&self) -> &Tensor {
        self.first.lr()
    }
    fn check(&self) -> Result<(), OptimError> {
        let all = self.params();
        for (k, p) in all.iter().enumerate() {
            if let Some(first) = all[..k].iter().position(|o| o.is(p)) {
                return Err(OptimError::Twice { parameter: k.to_string(), first: first.to_string() });
            }
        }
        self.members().try_for_each(Optimizer::check)
    }
    fn schedule_step(&mut self) -> Result<Vec<Tensor>, OptimError> {
        self.check()?;
        let mut all: Vec<Tensor> = Vec::new();
        for m in std::iter::once(&mut self.first).chain(&mut self.more) {
            for t in m.schedule_step()? {
                if !all.iter().any(|o| o.is(&t)) {
                    all.push(t);
                }
            }
        }
        Ok(all)
    }
}
