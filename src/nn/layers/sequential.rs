//! Layers one after another.

use super::{
    BatchNorm, Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, Dropout, Embedding,
    GroupNorm, InstanceNorm, LayerNorm, LayerNorm2d, Linear, MultiHeadAttention, RMSNorm,
};
use crate::nn::Module;
use crate::nn::module::named;
use crate::tensor::Tensor;

/// A module of one input and one output: what [`Sequential`] takes.
///
/// Every layer of this module with one input is one; batch norm and dropout follow the thread's
/// [`training`](crate::nn::training) scope when they are called so. Implement it for blocks of your own.
pub trait Layer: Module {
    /// The layer's output (`layer(x)` in tinygrad and PyTorch).
    #[track_caller]
    fn call(&self, x: &Tensor) -> Tensor;
}

/// Layers whose `forward` takes one Tensor.
macro_rules! layers {
    ($($t:ty),*) => {$(
        impl Layer for $t {
            #[track_caller]
            fn call(&self, x: &Tensor) -> Tensor {
                self.forward(x)
            }
        }
    )*};
}
layers!(
    Linear,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Embedding,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LayerNorm2d,
    RMSNorm,
    Sequential
);

impl Layer for BatchNorm {
    #[track_caller]
    fn call(&self, x: &Tensor) -> Tensor {
        BatchNorm::call(self, x)
    }
}
impl Layer for Dropout {
    #[track_caller]
    fn call(&self, x: &Tensor) -> Tensor {
        Dropout::call(self, x)
    }
}
/// Self-attention without a mask.
impl Layer for MultiHeadAttention {
    #[track_caller]
    fn call(&self, x: &Tensor) -> Tensor {
        self.forward(x, x, x, None, false)
    }
}
impl<L: Layer + ?Sized> Layer for Box<L> {
    #[track_caller]
    fn call(&self, x: &Tensor) -> Tensor {
        (**self).call(x)
    }
}
/// One after another.
impl<L: Layer> Layer for Vec<L> {
    #[track_caller]
    fn call(&self, x: &Tensor) -> Tensor {
        self.iter().fold(x.clone(), |x, layer| layer.call(&x))
    }
}
/// One after another.
impl<L: Layer, const N: usize> Layer for [L; N] {
    #[track_caller]
    fn call(&self, x: &Tensor) -> Tensor {
        self.iter().fold(x.clone(), |x, layer| layer.call(&x))
    }
}

type Function = dyn Fn(&Tensor) -> Tensor + Send + Sync;

enum Part {
    Layer(Box<dyn Layer + Send + Sync>),
    Function(Box<Function>),
}

/// Layers and functions one after another, named by their index as in `torch.nn.Sequential`.
///
/// ```
/// use doorbell::nn::{BatchNorm, Dropout, Linear, Module, Sequential};
/// use doorbell::tensor::prelude::*;
///
/// let net = Sequential::new()
///     .layer(Linear::new(4, 8).without_bias())
///     .layer(BatchNorm::new(8))
///     .then(|x| x.relu())
///     .layer(Dropout::new(0.1))
///     .layer(Linear::new(8, 2));
/// let y = Tensor::train(|| net.forward(&Tensor::ones([3, 4])));
/// assert_eq!(format!("{:?}", y.shape()?), "[3, 2]");
/// assert!(net.state_dict().contains_key("4.bias"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct Sequential {
    parts: Vec<Part>,
}

impl Sequential {
    /// Nothing yet: the input is the output.
    pub fn new() -> Sequential {
        Sequential::default()
    }
    /// With one more layer at the end.
    pub fn layer(mut self, layer: impl Layer + Send + Sync + 'static) -> Sequential {
        self.parts.push(Part::Layer(Box::new(layer)));
        self
    }
    /// With one more function at the end: an activation, a reshape. It has no parameters of its own.
    pub fn then(mut self, function: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static) -> Sequential {
        self.parts.push(Part::Function(Box::new(function)));
        self
    }
    /// Number of layers and functions.
    pub fn len(&self) -> usize {
        self.parts.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
    /// The output of the last part.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        self.parts.iter().fold(x.clone(), |x, part| match part {
            Part::Layer(layer) => layer.call(&x),
            Part::Function(function) => function(&x),
        })
    }
}

impl Module for Sequential {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(String, &Tensor)) {
        for (k, part) in self.parts.iter().enumerate() {
            if let Part::Layer(layer) = part {
                layer.visit(&named(prefix, &k.to_string()), f);
            }
        }
    }
}

impl std::fmt::Debug for Sequential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sequential").field("parts", &self.parts.len()).finish()
    }
}
