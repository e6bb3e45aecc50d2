//! Layers with weights: linear, convolution, embedding; and dropout, which has none.
//!
//! Initial values as in tinygrad: uniform within one over the root of the fan-in; embeddings Glorot.

use crate::module;
use crate::tensor::{Conv, Elementwise, Indexing, Product, Tensor};

/// `x @ weightᵀ + bias`: (.., inputs) to (.., outputs).
#[derive(Clone, Debug)]
pub struct Linear {
    /// (outputs, inputs)
    pub weight: Tensor,
    pub bias: Option<Tensor>,
}
module!(Linear { weight, bias });

impl Linear {
    pub fn new(inputs: usize, outputs: usize) -> Linear {
        let bound = 1.0 / (inputs as f64).sqrt();
        Linear {
            weight: Tensor::uniform([outputs, inputs], -bound, bound).requires_grad(),
            bias: Some(Tensor::uniform([outputs], -bound, bound).requires_grad()),
        }
    }
    pub fn without_bias(self) -> Linear {
        Linear { bias: None, ..self }
    }
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.linear(&self.weight, self.bias.as_ref())
    }
}

/// Cross-correlation over (n, channels, h, w).
#[derive(Clone, Debug)]
pub struct Conv2d {
    /// (outputs, inputs / groups, kernel, kernel)
    pub weight: Tensor,
    pub bias: Option<Tensor>,
    how: Conv,
}
module!(Conv2d { weight, bias });

impl Conv2d {
    /// A square kernel; `how` has stride, padding, dilation and groups.
    pub fn new(inputs: usize, outputs: usize, kernel: usize, how: Conv) -> Conv2d {
        let per_group = inputs / how.groups.max(1);
        let bound = 1.0 / ((per_group * kernel * kernel) as f64).sqrt();
        Conv2d {
            weight: Tensor::uniform([outputs, per_group, kernel, kernel], -bound, bound).requires_grad(),
            bias: Some(Tensor::uniform([outputs], -bound, bound).requires_grad()),
            how,
        }
    }
    pub fn without_bias(self) -> Conv2d {
        Conv2d { bias: None, ..self }
    }
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.conv2d(&self.weight, self.bias.as_ref(), self.how)
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
    pub fn new(count: usize, size: usize) -> Embedding {
        Embedding { weight: Tensor::glorot_uniform([count, size]).requires_grad() }
    }
    /// (..) integers to (.., size); an integer outside gives zeros.
    #[track_caller]
    pub fn forward(&self, i: &Tensor) -> Tensor {
        self.weight.get(i)
    }
}

/// Zeroes elements with probability `p` while training.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    pub p: f64,
}
impl super::Module for Dropout {
    fn visit(&self, _: &str, _: &mut dyn FnMut(String, &Tensor)) {}
}

impl Dropout {
    #[track_caller]
    pub fn forward(&self, x: &Tensor, training: bool) -> Tensor {
        x.dropout(self.p, training)
    }
}

/// `x * weight + bias` where they are there.
#[track_caller]
pub(super) fn affine(x: Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Tensor {
    let x = match weight {
        Some(w) => x.mul(w),
        None => x,
    };
    match bias {
        Some(b) => Elementwise::add(&x, b),
        None => x,
    }
}
