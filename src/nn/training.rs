//! Whether layers are training: a scope of the thread, beside the explicit arguments of [`BatchNorm`] and [`Dropout`].
//!
//! [`BatchNorm`]: super::BatchNorm
//! [`Dropout`]: super::Dropout

use crate::tensor::Tensor;
use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static TRAINING: Cell<bool> = const { Cell::new(false) };
}

/// The mode of this thread until it is dropped; then the mode before it is back.
#[derive(Debug)]
#[must_use = "the mode ends with this value: bind it to a name such as `_mode`"]
pub struct Mode {
    before: bool,
    /// The mode belongs to the thread that made it.
    _here: PhantomData<*const ()>,
}

impl Drop for Mode {
    fn drop(&mut self) {
        TRAINING.set(self.before);
    }
}

/// Layers of this thread train until the returned value is dropped (`with Tensor.train()` in tinygrad, `model.train()`
/// in PyTorch). Outside of such a scope they do not: no dropout, and batch norm uses its running statistics.
///
/// ```
/// use doorbell::nn::{self, Dropout, Layer};
/// use doorbell::tensor::prelude::*;
///
/// let (drop, x) = (Dropout::new(0.5), Tensor::ones([64]));
/// assert_eq!(drop.call(&x).sum(()).item()?, 64.0);
/// {
///     let _mode = nn::training();
///     let y = drop.call(&x).to_vec::<f32>()?;
///     assert!(y.iter().all(|v| *v == 0.0 || *v == 2.0) && y.contains(&0.0));
/// }
/// assert!(!nn::is_training());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn training() -> Mode {
    mode(true)
}

/// Layers of this thread do not train until the returned value is dropped: an evaluation within a training scope
/// (`model.eval()` in PyTorch).
pub fn evaluating() -> Mode {
    mode(false)
}

fn mode(on: bool) -> Mode {
    Mode { before: TRAINING.replace(on), _here: PhantomData }
}

/// Whether layers of this thread train.
pub fn is_training() -> bool {
    TRAINING.get()
}

impl Tensor {
    /// Runs `f` with [`training`] on, in this thread.
    pub fn train<R>(f: impl FnOnce() -> R) -> R {
        let _mode = training();
        f()
    }
    /// Whether layers of this thread train: for `x.dropout(p, Tensor::is_training())`.
    pub fn is_training() -> bool {
        is_training()
    }
}
