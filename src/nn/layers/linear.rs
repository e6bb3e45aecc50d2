//! Linear, embedding, dropout.

use super::uniform;
use crate::module;
use crate::nn::is_training;
use crate::tensor::{Product, Tensor};

/// `x @ weightᵀ + bias`: (.., inputs) to (.., outputs).
#[derive(Clone, Debug)]
pub struct Linear {
    /// (outputs, inputs)
    pub weight: Tensor,
    /// (outputs,)
    pub bias: Option<Tensor>,
}
module!(Linear { weight, bias });

impl Linear {
    /// Weights and bias within ± one over the root of `inputs`.
    pub fn new(inputs: usize, outputs: usize) -> Linear {
        Linear { weight: uniform(&[outputs, inputs], inputs), bias: Some(uniform(&[outputs], inputs)) }
    }
    /// The layer without its bias (`bias=False`).
    pub fn without_bias(self) -> Linear {
        Linear { bias: None, ..self }
    }
    /// (.., inputs) to (.., outputs).
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.linear(&self.weight, self.bias.as_ref())
    }
}

/// A row of `weight` for each integer.
#[derive(Clone, Debug)]
pub struct Embedding {
    /// (count, size)
    pub weight: Tensor,
}
module!(Embedding { weight });

impl Embedding {
    /// `count` rows of `size` numbers, Glorot uniform.
    pub fn new(count: usize, size: usize) -> Embedding {
        Embedding { weight: Tensor::glorot_uniform([count, size]).in_own_memory().requires_grad() }
    }
    /// (..) integers to (.., size); an integer outside gives zeros.
    #[track_caller]
    pub fn forward(&self, i: &Tensor) -> Tensor {
        self.weight.get(i)
    }
}

/// Zeroes elements with probability `p` while training, and divides the others by `1 - p`.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    /// The probability of a zero.
    pub p: f64,
}
module!(Dropout { skip p });

impl Dropout {
    /// With this probability of a zero.
    pub fn new(p: f64) -> Dropout {
        Dropout { p }
    }
    /// With the mode named.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, training: bool) -> Tensor {
        x.dropout(self.p, training)
    }
    /// With the mode of the thread ([`training`](crate::nn::training)).
    #[track_caller]
    pub fn call(&self, x: &Tensor) -> Tensor {
        self.forward(x, is_training())
    }
}
