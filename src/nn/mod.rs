//! Layers, optimisers, state, datasets: everything that is written in Tensors.
//!
//! Uses `tensor` and `uop`, and of `engine` its error: `step` and `save` compute. A layer is a plain struct of Tensors;
//! [`Module`] names them and tells parameters from buffers. Whether layers are training is an argument of the call
//! (`forward`), or the thread's [`training`] scope (`call`).
#![forbid(unsafe_code)]
// Operands are borrowed throughout, so that formulas read alike whether a side is used again or not.
#![allow(clippy::needless_borrows_for_generic_args)]

#[cfg(feature = "datasets")]
pub mod datasets;
mod layers;
mod module;
pub mod optim;
pub mod state;
mod training;

pub use layers::*;
pub use module::{Module, Parameters, StateDict};
pub use training::{Mode, evaluating, is_training, training};
