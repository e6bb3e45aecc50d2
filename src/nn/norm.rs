//! Normalising layers.

use super::layers::affine;
use crate::module;
use crate::tensor::{Composite, Elementwise, Movement, Reduction, Tensor, Value};
use crate::uop::{Dim, Scalar, numel};

/// Normalisation of each channel (axis 1) by the statistics of the batch, or by the running ones outside training.
#[derive(Clone, Debug)]
pub struct BatchNorm {
    pub weight: Tensor,
    pub bias: Tensor,
    pub running_mean: Tensor,
    pub running_var: Tensor,
    pub eps: f64,
    /// Share of the new batch in the running statistics.
    pub momentum: f64,
}
module!(BatchNorm { weight, bias, running_mean, running_var });

impl BatchNorm {
    pub fn new(channels: usize) -> BatchNorm {
        BatchNorm {
            weight: Tensor::ones([channels]).requires_grad(),
            bias: Tensor::zeros([channels]).requires_grad(),
            running_mean: Tensor::zeros([channels]),
            running_var: Tensor::ones([channels]),
            eps: 1e-5,
            momentum: 0.1,
        }
    }
    /// In training the running statistics are assigned new values; they are to be realized with the step. The result
    /// has the type of `x` and the weights; the statistics of half types are f32.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, training: bool) -> Tensor {
        let (mean, var) = if training { self.batch(x) } else { (self.running_mean.clone(), self.running_var.clone()) };
        let invstd = Elementwise::add(&var, self.eps).rsqrt();
        let y = x.batchnorm(Some(&self.weight), Some(&self.bias), &mean, &invstd);
        let types = [x, &self.weight, &self.bias].map(Tensor::dtype).into_iter().flatten();
        match types.reduce(Scalar::promote) {
            Some(t) if t.is_float() => y.cast(t),
            _ => y,
        }
    }

    #[track_caller]
    fn batch(&self, x: &Tensor) -> (Tensor, Tensor) {
        let x = x.float();
        let x = x.cast(x.dtype().unwrap_or(Scalar::F32).accumulator());
        let rank = x.node().map_or(2, |u| u.shape().len()) as i64;
        let axes: Vec<i64> = (0..rank).filter(|a| *a != 1).collect();
        let mean = x.mean(axes.clone());
        let mut shape = vec![Dim::Int(1); rank.max(2) as usize];
        shape[1] = Dim::Int(-1);
        let var = x.sub(&mean.reshape(shape)).square().mean(axes);
        self.follow(&self.running_mean, &mean.detach());
        self.follow(&self.running_var, &unbiased(&x, &var.detach()));
        (mean, var)
    }
    #[track_caller]
    fn follow(&self, running: &Tensor, new: &Tensor) {
        let moved = Elementwise::add(&running.mul(1.0 - self.momentum), &new.mul(self.momentum));
        running.assign(&moved.cast(running.dtype().unwrap_or(Scalar::F32)));
    }
}

/// The estimate of the variance of what `x` is a sample of: n / (n - 1) of the sample's own, with n elements a channel.
#[track_caller]
fn unbiased(x: &Tensor, var: &Tensor) -> Tensor {
    let Ok(u) = x.node() else { return var.clone() };
    let counted: Vec<Dim> = u.shape().iter().enumerate().filter(|(k, _)| *k != 1).map(|(_, d)| d.clone()).collect();
    match numel(&counted) {
        Dim::Int(n) => var.mul(n as f64 / (n - 1).max(1) as f64),
        Dim::Sym(n) => {
            let n = Tensor::from(n).cast(Scalar::F32);
            var.mul(n.div(&n.sub(1).maximum(1)))
        }
    }
}

/// Normalisation over the last axes.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    pub weight: Option<Tensor>,
    pub bias: Option<Tensor>,
    axes: usize,
    pub eps: f64,
}
module!(LayerNorm { weight, bias });

impl LayerNorm {
    /// Over axes of these sizes, with weights.
    pub fn new(shape: &[usize]) -> LayerNorm {
        LayerNorm {
            weight: Some(Tensor::ones(shape).requires_grad()),
            bias: Some(Tensor::zeros(shape).requires_grad()),
            axes: shape.len(),
            eps: 1e-5,
        }
    }
    pub fn without_weights(self) -> LayerNorm {
        LayerNorm { weight: None, bias: None, ..self }
    }
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let axes: Vec<i64> = (1..=self.axes as i64).map(|a| -a).collect();
        affine(x.layernorm(axes, self.eps), self.weight.as_ref(), self.bias.as_ref())
    }
}

/// Division by the root of the mean square of the last axis.
#[derive(Clone, Debug)]
pub struct RMSNorm {
    pub weight: Tensor,
    pub eps: f64,
}
module!(RMSNorm { weight });

impl RMSNorm {
    pub fn new(size: usize) -> RMSNorm {
        RMSNorm { weight: Tensor::ones([size]).requires_grad(), eps: 1e-6 }
    }
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.rmsnorm(-1, self.eps).mul(&self.weight)
    }
}

/// Normalisation of groups of channels, each example on its own.
#[derive(Clone, Debug)]
pub struct GroupNorm {
    groups: usize,
    pub weight: Tensor,
    pub bias: Tensor,
    pub eps: f64,
}
module!(GroupNorm { weight, bias });

impl GroupNorm {
    pub fn new(groups: usize, channels: usize) -> GroupNorm {
        GroupNorm {
            groups,
            weight: Tensor::ones([channels]).requires_grad(),
            bias: Tensor::zeros([channels]).requires_grad(),
            eps: 1e-5,
        }
    }
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let shape = match x.shape() {
            Ok(shape) if shape.len() >= 2 => shape,
            Ok(shape) => return x.reshape([shape, vec![Dim::Int(-1), Dim::Int(-1)]].concat()),
            Err(_) => return x.clone(),
        };
        let rows = x.reshape([&shape[0], &Dim::from(self.groups), &Dim::Int(-1)]).layernorm(-1, self.eps);
        let channels = |t: &Tensor| {
            let mut ones = vec![Dim::Int(1); shape.len()];
            ones[1] = Dim::Int(-1);
            t.reshape(ones)
        };
        affine(rows.reshape(&shape), Some(&channels(&self.weight)), Some(&channels(&self.bias)))
    }
}
