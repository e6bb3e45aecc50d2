//! Normalising layers.

use super::{affine, refused};
use crate::module;
use crate::nn::is_training;
use crate::tensor::{Composite, Convert, Elementwise, IntoShape, Movement, Reduction, Tensor, Value};
use crate::uop::{Dim, Scalar, numel};

/// Normalisation of each channel (axis 1) by the statistics of the batch, or by the running ones outside training.
///
/// For inputs of any rank from 2 on; [`BatchNorm1d`], [`BatchNorm2d`] and [`BatchNorm3d`] are other names of it.
#[derive(Clone, Debug)]
pub struct BatchNorm {
    /// (channels,)
    pub weight: Option<Tensor>,
    /// (channels,)
    pub bias: Option<Tensor>,
    /// (channels,)
    pub running_mean: Option<Tensor>,
    /// (channels,)
    pub running_var: Option<Tensor>,
    /// () i64: batches seen, for statistics that weigh all batches alike ([`BatchNorm::cumulative`]).
    pub num_batches_tracked: Option<Tensor>,
    /// What is added to the variance.
    pub eps: f64,
    /// Share of the new batch in the running statistics.
    pub momentum: f64,
}
module!(BatchNorm { weight, bias, running_mean, running_var, num_batches_tracked; skip eps, momentum });

/// Batch norm over (n, channels) or (n, channels, length).
pub type BatchNorm1d = BatchNorm;
/// Batch norm over (n, channels, h, w).
pub type BatchNorm2d = BatchNorm;
/// Batch norm over (n, channels, d, h, w).
pub type BatchNorm3d = BatchNorm;

/// Weights of ones and biases of zeros.
fn weights(shape: impl IntoShape) -> (Option<Tensor>, Option<Tensor>) {
    let shape = &shape.into_shape();
    (Some(Tensor::ones(shape).requires_grad()), Some(Tensor::zeros(shape).requires_grad()))
}

impl BatchNorm {
    /// With weights and running statistics; eps 1e-5, momentum 0.1.
    pub fn new(channels: usize) -> BatchNorm {
        let (weight, bias) = weights(channels);
        BatchNorm {
            weight,
            bias,
            running_mean: Some(Tensor::zeros([channels]).in_own_memory()),
            running_var: Some(Tensor::ones([channels]).in_own_memory()),
            num_batches_tracked: None,
            eps: 1e-5,
            momentum: 0.1,
        }
    }
    /// The layer without weight and bias (`affine=False`).
    pub fn without_weights(self) -> BatchNorm {
        BatchNorm { weight: None, bias: None, ..self }
    }
    /// The layer without running statistics: it uses those of the batch always (`track_running_stats=False`).
    pub fn without_running_stats(self) -> BatchNorm {
        BatchNorm { running_mean: None, running_var: None, num_batches_tracked: None, ..self }
    }
    /// With another share of the new batch in the running statistics.
    pub fn momentum(self, momentum: f64) -> BatchNorm {
        BatchNorm { momentum, ..self }
    }
    /// With running statistics in which all batches have the same weight (`momentum=None` in PyTorch).
    pub fn cumulative(self) -> BatchNorm {
        let count = Tensor::full_of((), 0, Scalar::I64).in_own_memory();
        BatchNorm { num_batches_tracked: self.running_mean.is_some().then_some(count), ..self }
    }
    /// With something else added to the variance.
    pub fn eps(self, eps: f64) -> BatchNorm {
        BatchNorm { eps, ..self }
    }
    /// With the mode of the thread ([`training`](crate::nn::training)).
    #[track_caller]
    pub fn call(&self, x: &Tensor) -> Tensor {
        self.forward(x, is_training())
    }
    /// (n, channels, ..) to the same shape. In training the running statistics are assigned new values; they are to be
    /// realized with the step, which an optimiser of [`parameters`](crate::nn::Module::parameters) does. The result has
    /// the type of `x` and the weights; the statistics of half types are f32.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, training: bool) -> Tensor {
        let (mean, var) = match (&self.running_mean, &self.running_var) {
            (Some(mean), Some(var)) if !training => (mean.clone(), var.clone()),
            (mean, var) => self.batch(x, if training { mean.as_ref().zip(var.as_ref()) } else { None }),
        };
        let invstd = Elementwise::add(&var, self.eps).rsqrt();
        let y = x.batchnorm(self.weight.as_ref(), self.bias.as_ref(), &mean, &invstd);
        let types = [Some(x), self.weight.as_ref(), self.bias.as_ref()].into_iter().flatten();
        match types.filter_map(|t| t.dtype().ok()).reduce(Scalar::promote) {
            Some(t) if t.is_float() => y.cast(t),
            _ => y,
        }
    }

    #[track_caller]
    fn batch(&self, x: &Tensor, running: Option<(&Tensor, &Tensor)>) -> (Tensor, Tensor) {
        let x = x.as_float();
        let x = x.cast(x.dtype().unwrap_or(Scalar::F32).accumulator());
        let rank = x.node().map_or(2, |u| u.shape().len()) as i64;
        let axes: Vec<i64> = (0..rank).filter(|a| *a != 1).collect();
        let mean = x.mean(axes.clone());
        let mut shape = vec![Dim::Int(1); rank.max(2) as usize];
        shape[1] = Dim::Int(-1);
        let var = x.sub(&mean.reshape(shape)).square().mean(axes);
        if let Some((running_mean, running_var)) = running {
            if let Some(count) = &self.num_batches_tracked {
                count.assign(&count.add(1));
            }
            self.follow(running_mean, &mean.detach());
            self.follow(running_var, &unbiased(&x, &var.detach()));
        }
        (mean, var)
    }
    #[track_caller]
    fn follow(&self, running: &Tensor, new: &Tensor) {
        let moved = match &self.num_batches_tracked {
            Some(count) => Elementwise::add(running, &new.sub(running).div(&count.cast(Scalar::F32))),
            None => Elementwise::add(&running.mul(1.0 - self.momentum), &new.mul(self.momentum)),
        };
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
    /// Of the sizes of the axes.
    pub weight: Option<Tensor>,
    /// Of the sizes of the axes.
    pub bias: Option<Tensor>,
    axes: usize,
    /// What is added to the variance.
    pub eps: f64,
}
module!(LayerNorm { weight, bias; skip axes, eps });

impl LayerNorm {
    /// Over the last axis, of this size, or over the last axes, of these: `LayerNorm::new(64)`,
    /// `LayerNorm::new([8, 8])`. With weights; eps 1e-5.
    pub fn new(shape: impl IntoShape) -> LayerNorm {
        let shape = shape.into_shape();
        let (weight, bias) = weights(&shape);
        LayerNorm { weight, bias, axes: shape.len(), eps: 1e-5 }
    }
    /// The layer without weight and bias (`elementwise_affine=False`).
    pub fn without_weights(self) -> LayerNorm {
        LayerNorm { weight: None, bias: None, ..self }
    }
    /// The layer with a weight and no bias (`bias=False`).
    pub fn without_bias(self) -> LayerNorm {
        LayerNorm { bias: None, ..self }
    }
    /// With something else added to the variance.
    pub fn eps(self, eps: f64) -> LayerNorm {
        LayerNorm { eps, ..self }
    }
    /// (.., sizes) to the same shape.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let axes: Vec<i64> = (1..=self.axes as i64).map(|a| -a).collect();
        affine(x.layernorm(axes, self.eps), self.weight.as_ref(), self.bias.as_ref())
    }
}

/// Layer norm over the channels (axis 1) of (n, channels, h, w), each pixel on its own.
#[derive(Clone, Debug)]
pub struct LayerNorm2d {
    /// (channels,)
    pub weight: Option<Tensor>,
    /// (channels,)
    pub bias: Option<Tensor>,
    /// What is added to the variance.
    pub eps: f64,
}
module!(LayerNorm2d { weight, bias; skip eps });

impl LayerNorm2d {
    /// With weights; eps 1e-5.
    pub fn new(channels: usize) -> LayerNorm2d {
        let (weight, bias) = weights(channels);
        LayerNorm2d { weight, bias, eps: 1e-5 }
    }
    /// The layer without weight and bias.
    pub fn without_weights(self) -> LayerNorm2d {
        LayerNorm2d { weight: None, bias: None, ..self }
    }
    /// With something else added to the variance.
    pub fn eps(self, eps: f64) -> LayerNorm2d {
        LayerNorm2d { eps, ..self }
    }
    /// (n, channels, ..) to the same shape.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        per_channel("layernorm2d", x, x.layernorm(1, self.eps), self.weight.as_ref(), self.bias.as_ref())
    }
}

/// Division by the root of the mean square of the last axis.
#[derive(Clone, Debug)]
pub struct RMSNorm {
    /// (size,)
    pub weight: Option<Tensor>,
    /// What is added to the mean square.
    pub eps: f64,
}
module!(RMSNorm { weight; skip eps });

impl RMSNorm {
    /// With weights; eps 1e-6.
    pub fn new(size: usize) -> RMSNorm {
        RMSNorm { weight: weights(size).0, eps: 1e-6 }
    }
    /// The layer without its weight (`elementwise_affine=False`).
    pub fn without_weights(self) -> RMSNorm {
        RMSNorm { weight: None, ..self }
    }
    /// With something else added to the mean square.
    pub fn eps(self, eps: f64) -> RMSNorm {
        RMSNorm { eps, ..self }
    }
    /// (.., size) to the same shape.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        affine(x.rmsnorm(-1, self.eps), self.weight.as_ref(), None)
    }
}

/// Normalisation of groups of channels, each example on its own.
#[derive(Clone, Debug)]
pub struct GroupNorm {
    groups: usize,
    /// (channels,)
    pub weight: Option<Tensor>,
    /// (channels,)
    pub bias: Option<Tensor>,
    /// What is added to the variance.
    pub eps: f64,
}
module!(GroupNorm { weight, bias; skip groups, eps });

impl GroupNorm {
    /// `groups` groups of `channels / groups` channels, with weights; eps 1e-5.
    pub fn new(groups: usize, channels: usize) -> GroupNorm {
        let (weight, bias) = weights(channels);
        GroupNorm { groups, weight, bias, eps: 1e-5 }
    }
    /// The layer without weight and bias (`affine=False`).
    pub fn without_weights(self) -> GroupNorm {
        GroupNorm { weight: None, bias: None, ..self }
    }
    /// With something else added to the variance.
    pub fn eps(self, eps: f64) -> GroupNorm {
        GroupNorm { eps, ..self }
    }
    /// (n, channels, ..) to the same shape.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let shape = match x.shape() {
            Ok(shape) if shape.len() >= 2 => shape,
            Ok(shape) => return refused("groupnorm", x, format!("channels are axis 1, the rank is {}", shape.len())),
            Err(_) => return x.clone(),
        };
        let uneven = shape[1].as_int().is_some_and(|n| self.groups == 0 || n % self.groups as i64 != 0);
        if uneven {
            return refused("groupnorm", x, format!("{} channels are not {} even groups", shape[1], self.groups));
        }
        let rows = x.reshape([&shape[0], &Dim::from(self.groups), &Dim::Int(-1)]).layernorm(-1, self.eps);
        per_channel("groupnorm", x, rows.reshape(&shape), self.weight.as_ref(), self.bias.as_ref())
    }
}

/// Normalisation of each channel of each example on its own.
#[derive(Clone, Debug)]
pub struct InstanceNorm {
    /// (channels,)
    pub weight: Option<Tensor>,
    /// (channels,)
    pub bias: Option<Tensor>,
    /// What is added to the variance.
    pub eps: f64,
}
module!(InstanceNorm { weight, bias; skip eps });

impl InstanceNorm {
    /// With weights, as in tinygrad (PyTorch's has none unless `affine=True`); eps 1e-5.
    pub fn new(channels: usize) -> InstanceNorm {
        let (weight, bias) = weights(channels);
        InstanceNorm { weight, bias, eps: 1e-5 }
    }
    /// The layer without weight and bias.
    pub fn without_weights(self) -> InstanceNorm {
        InstanceNorm { weight: None, bias: None, ..self }
    }
    /// With something else added to the variance.
    pub fn eps(self, eps: f64) -> InstanceNorm {
        InstanceNorm { eps, ..self }
    }
    /// (n, channels, ..) to the same shape.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let rank = match x.shape() {
            Ok(shape) if shape.len() >= 3 => shape.len() as i64,
            Ok(shape) => return refused("instancenorm", x, format!("there are no axes after the channels: {shape:?}")),
            Err(_) => return x.clone(),
        };
        let axes: Vec<i64> = (2..rank).collect();
        per_channel("instancenorm", x, x.layernorm(axes, self.eps), self.weight.as_ref(), self.bias.as_ref())
    }
}

/// `y * weight + bias` with one of each a channel (axis 1).
#[track_caller]
fn per_channel(op: &'static str, x: &Tensor, y: Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Tensor {
    let Ok(shape) = y.shape() else { return y };
    if shape.len() < 2 {
        return refused(op, x, format!("channels are axis 1, the rank is {}", shape.len()));
    }
    let mut ones = vec![Dim::Int(1); shape.len()];
    ones[1] = Dim::Int(-1);
    let [weight, bias] = [weight, bias].map(|t| t.map(|t| t.reshape(ones.clone())));
    affine(y, weight.as_ref(), bias.as_ref())
}
