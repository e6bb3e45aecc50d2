//! Layers, optimisers, state, datasets: everything that is written in Tensors.
//!
//! Uses `tensor` and `uop`. A layer is a plain struct of Tensors; [`Module`] names them. Whether a layer is in training
//! is an argument of the call, never a global. Nothing here computes: optimisers and loaders return the Tensors that
//! are to be realized together.
#![forbid(unsafe_code)]
// Operands are borrowed throughout, so that formulas read alike whether a side is used again or not.
#![allow(clippy::needless_borrows_for_generic_args)]

#[cfg(feature = "datasets")]
pub mod datasets;
mod layers;
mod module;
mod norm;
pub mod optim;
pub mod state;

pub use layers::{Conv2d, Dropout, Embedding, Linear};
pub use module::{Module, StateDict};
pub use norm::{BatchNorm, GroupNorm, LayerNorm, RMSNorm};
