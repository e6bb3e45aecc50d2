//! Layers: plain structs of Tensors with a `forward`. All but those with a mode or several inputs are [`Layer`]s too.
//!
//! Initial values as in tinygrad and PyTorch: uniform within one over the root of the fan-in; embeddings Glorot. Names
//! of the Tensors are PyTorch's, so that its state files load.

mod attention;
mod conv;
mod linear;
mod norm;
mod recurrent;
mod sequential;

pub use attention::{KvCache, MultiHeadAttention};
pub use conv::{Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d};
pub use linear::{Dropout, Embedding, Linear};
pub use norm::{
    BatchNorm, BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, InstanceNorm, LayerNorm, LayerNorm2d, RMSNorm,
};
pub use recurrent::{GRU, GRUCell, LSTM, LSTMCell, Recurrent};
pub use sequential::{Layer, Sequential};

use crate::tensor::{Elementwise, Problem, Tensor, TensorError, Value};
use std::panic::Location;
use std::sync::Arc;

/// `x * weight + bias` where they are there.
#[track_caller]
fn affine(x: Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Tensor {
    let x = match weight {
        Some(w) => x.mul(w),
        None => x,
    };
    match bias {
        Some(b) => Elementwise::add(&x, b),
        None => x,
    }
}

/// A Tensor that carries an error of a layer about the shape of `x`.
#[track_caller]
fn refused(op: &'static str, x: &Tensor, text: impl Into<String>) -> Tensor {
    let at = Location::caller();
    Tensor::of(x.node().and_then(|u| {
        let sources = vec![(u.shape().to_vec(), u.dtype())];
        Err(Arc::new(TensorError { op, problem: Problem::Shape(text.into()), sources, at }))
    }))
}

/// A Tensor that carries an error of a layer's settings.
#[track_caller]
fn failed(op: &'static str, problem: Problem) -> Tensor {
    Tensor::of(Err(Arc::new(TensorError { op, problem, sources: Vec::new(), at: Location::caller() })))
}

/// Uniform parameters within ± one over the root of `fan`.
fn uniform(shape: &[usize], fan: usize) -> Tensor {
    let bound = 1.0 / (fan.max(1) as f64).sqrt();
    Tensor::uniform(shape, -bound, bound).in_own_memory().requires_grad()
}
