//! Optimisers: they turn gradients into assignments, which are realized together with the loss.
//!
//! [`Sgd`], [`Lars`] and [`Muon`] move by momentum, [`Adam`], [`AdamW`] and [`Lamb`] by moments; [`OptimizerGroup`]
//! joins several, each with its own parameters and settings; [`schedule`] changes learning rates, [`clip_grad_norm`]
//! and [`clip_grad_value`] bound gradients. The learning rate and everything that changes from step to step is a
//! Tensor, so a recorded step ([`Jit`](crate::Jit)) replays.
//!
//! An optimiser moves every parameter it is given: one that asks for no gradient is an error when the optimiser is
//! made. [`Module::parameters`](super::Module::parameters) lists those of a model that do, and carries its buffers
//! along, so that running statistics are realized with the step.
//!
//! ```
//! use doorbell::nn::optim::{Adam, Optimizer};
//! use doorbell::nn::{Linear, Module};
//! use doorbell::tensor::prelude::*;
//!
//! let net = Linear::new(2, 1);
//! let mut optim = Adam::new(net.parameters(), 0.1)?;
//! let x = Tensor::new([[0.0f32, 1.0], [1.0, 0.0], [1.0, 1.0]]);
//! let y = Tensor::new([[2.0f32], [-1.0], [1.0]]);
//! let mut losses = Vec::new();
//! for _ in 0..100 {
//!     optim.zero_grad();
//!     let loss = net.forward(&x).mse_loss(&y);
//!     loss.backward()?;
//!     optim.step()?;
//!     losses.push(loss.item()?);
//! }
//! assert!(losses[99] < 0.01 * losses[0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! In a recorded step, [`schedule_step`](Optimizer::schedule_step) returns what is to be realized with the loss:
//!
//! ```
//! # use doorbell::Jit;
//! # use doorbell::nn::optim::{Optimizer, Sgd};
//! # use doorbell::nn::{Linear, Module};
//! # use doorbell::tensor::prelude::*;
//! let net = Linear::new(2, 1);
//! let mut optim = Sgd::new(net.parameters(), 0.1)?.momentum(0.9);
//! let mut step = Jit::new(|x: &[Tensor]| -> Result<Vec<Tensor>, doorbell::Error> {
//!     optim.zero_grad();
//!     let loss = net.forward(&x[0]).mse_loss(&x[1]);
//!     loss.backward()?;
//!     let mut all = vec![loss];
//!     all.extend(optim.schedule_step()?);
//!     Ok(all)
//! });
//! # let (x, y) = (Tensor::new([[0.0f32, 1.0], [1.0, 0.0]]), Tensor::new([[2.0f32], [-1.0]]));
//! # for _ in 0..4 {
//! let loss = step.call(&[x.clone(), y.clone()])?[0].item()?;
//! # assert!(loss < 20.0);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Gradients add up over `backward` calls until `zero_grad`, so a batch may come in parts. Realizing the gradients
//! after each part lets go of its graph:
//!
//! ```
//! # use doorbell::nn::optim::{Optimizer, Sgd};
//! # use doorbell::nn::{Linear, Module};
//! # use doorbell::tensor::prelude::*;
//! # let net = Linear::new(2, 1);
//! # let x = Tensor::new([[0.0f32, 1.0], [1.0, 0.0], [1.0, 1.0], [2.0, 1.0]]);
//! # let y = Tensor::new([[2.0f32], [-1.0], [1.0], [0.5]]);
//! # net.forward(&x).mse_loss(&y).backward()?;
//! # let whole = net.weight.grad().ok_or("no gradient")?.to_vec::<f32>()?;
//! let mut optim = Sgd::new(net.parameters(), 0.1)?;
//! optim.zero_grad();
//! for part in [0..2, 2..4] {
//!     // Each part counts by its share of the batch.
//!     let loss = net.forward(&x.get(part.clone())).mse_loss(&y.get(part)).div(2.0);
//!     loss.backward()?;
//!     let grads: Vec<Tensor> = optim.params().iter().filter_map(Tensor::grad).collect();
//!     Tensor::realize_all(&grads)?;
//! }
//! # let parts = net.weight.grad().ok_or("no gradient")?.to_vec::<f32>()?;
//! # assert!(parts.iter().zip(&whole).all(|(a, b)| (a - b).abs() < 1e-5));
//! optim.step()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod adam;
mod clip;
mod group;
mod join;
pub mod schedule;
mod sgd;

pub use adam::{Adam, AdamW, Lamb};
pub use clip::{clip_grad_norm, clip_grad_value, grad_norm};
pub use join::OptimizerGroup;
pub use sgd::{Lars, Muon, MuonScale, Sgd};

use super::Module;
use crate::engine::Error;
use crate::tensor::{Fault, Shown, Tensor};
use crate::uop::{Dim, Scalar};

/// Why an optimiser was not made, or a step not taken. Parameters of a module are called by their names, others by
/// their index in the list.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OptimError {
    /// There is nothing to move.
    #[error("optimiser: no parameters: no Tensor of the list or module asks for a gradient (see requires_grad)")]
    Empty,
    /// A step would not move it.
    #[error(
        "optimiser: parameter {parameter}, {dtype} {}, asks for no gradient, so no step would move it (see requires_grad)",
        Shown(.shape)
    )]
    Unwanted {
        /// Which one.
        parameter: String,
        /// Its shape.
        shape: Vec<Dim>,
        /// Its element type.
        dtype: Scalar,
    },
    /// Only floats have gradients.
    #[error("optimiser: parameter {parameter} holds {dtype}; only floats have a gradient")]
    NotFloat {
        /// Which one.
        parameter: String,
        /// Its element type.
        dtype: Scalar,
    },
    /// It would be moved twice a step.
    #[error("optimiser: parameter {parameter} is parameter {first} once more")]
    Twice {
        /// The later one.
        parameter: String,
        /// The earlier one.
        first: String,
    },
    /// The method does not work for a parameter of this shape.
    #[error("optimiser: parameter {parameter} of shape {}: {what}", Shown(.shape))]
    Unfit {
        /// Which one.
        parameter: String,
        /// Its shape.
        shape: Vec<Dim>,
        /// What would fit.
        what: &'static str,
    },
    /// A setting that means nothing.
    #[error("optimiser: {what} is {value}; {wanted}")]
    Setting {
        /// Which one.
        what: &'static str,
        /// What it was set to.
        value: f64,
        /// What it may be.
        wanted: &'static str,
    },
    /// `backward` was not called, or does not reach the parameter.
    #[error(
        "optimiser: parameter {parameter} of {count} has no gradient: backward was not called, or does not reach it"
    )]
    NoGradient {
        /// Which one.
        parameter: String,
        /// Number of parameters.
        count: usize,
    },
    /// A parameter or its gradient carries an error.
    #[error("optimiser: parameter {parameter}: {error}")]
    Faulty {
        /// Which one.
        parameter: String,
        /// What it carries.
        error: Fault,
    },
    /// Parameter and gradient differ in shape.
    #[error("optimiser: parameter {parameter} of shape {} has a gradient of shape {}", Shown(.wanted), Shown(.found))]
    Shape {
        /// Which one.
        parameter: String,
        /// The gradient's shape.
        found: Vec<Dim>,
        /// The parameter's shape.
        wanted: Vec<Dim>,
    },
    /// The learning rate's Tensor was replaced by something else than one number.
    #[error("optimiser: the learning rate is no single number: {0}")]
    Rate(String),
}

/// So that `?` passes it on in a recorded function.
impl From<OptimError> for Error {
    fn from(e: OptimError) -> Error {
        Error::Function(e.to_string())
    }
}

/// What every optimiser can do. As a [`Module`] it has its state by name (learning rate, velocities, moments), so that
/// [`save`](super::state::save) and [`load_into`](super::state::load_into) keep a training run.
pub trait Optimizer: Module {
    /// The parameters that a step moves.
    fn params(&self) -> Vec<Tensor>;
    /// The learning rates, (1,) on the device of the parameters: one, or one for each member of a group.
    fn lrs(&self) -> Vec<Tensor>;
    /// Whether a step can be made.
    ///
    /// # Errors
    /// A parameter has no gradient, a faulty one or one of another shape; a setting means nothing; the learning rate is
    /// no single number.
    fn check(&self) -> Result<(), OptimError>;
    /// Assigns the stepped parameters and the optimiser's own state; returns all Tensors that are to be realized
    /// together, the buffers of a module included.
    ///
    /// # Errors
    /// As [`Optimizer::check`]. Nothing was assigned then.
    fn schedule_step(&mut self) -> Result<Vec<Tensor>, OptimError>;
    /// The learning rate (of the first member of a group): assign to it to change it.
    fn lr(&self) -> &Tensor;
    /// Makes a step: [`Optimizer::schedule_step`], and computes it, together with the Tensors on which `backward` was
    /// called: read afterwards, a loss is that of the parameters before the step.
    ///
    /// # Errors
    /// As [`Optimizer::check`], and what the engine refuses.
    fn step(&mut self) -> Result<(), Error> {
        let mut losses: Vec<Tensor> = Vec::new();
        for loss in self.params().iter().flat_map(Tensor::losses) {
            if !losses.iter().any(|l| l.is(&loss)) {
                losses.push(loss);
            }
        }
        let mut all = self.schedule_step()?;
        all.extend(losses);
        Tensor::realize_all(&all)
    }
    /// Gathered gradients are forgotten.
    fn zero_grad(&self) {
        self.params().iter().for_each(|p| p.set_grad(None));
    }
    /// Assigns a learning rate (to all members of a group) and computes the assignment: between recorded steps, for
    /// example.
    ///
    /// # Errors
    /// What the engine refuses.
    fn set_lr(&self, lr: f64) -> Result<(), Error> {
        let all = self.lrs();
        all.iter().for_each(|t| {
            t.assign(&Tensor::full_of([1], lr, Scalar::F32).to(&t.device()));
        });
        Tensor::realize_all(&all)
    }
}
