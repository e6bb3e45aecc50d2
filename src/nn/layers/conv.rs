//! Convolutions.

use super::uniform;
use crate::module;
use crate::tensor::{Conv, Convolution, Tensor};

/// Cross-correlation over (n, channels, h, w).
#[derive(Clone, Debug)]
pub struct Conv2d {
    /// (outputs, inputs / groups, kernel, kernel)
    pub weight: Tensor,
    /// (outputs,)
    pub bias: Option<Tensor>,
    how: Conv,
}
module!(Conv2d { weight, bias; skip how });

impl Conv2d {
    /// A square kernel; `how` has stride, padding, dilation and groups.
    pub fn new(inputs: usize, outputs: usize, kernel: usize, how: Conv) -> Conv2d {
        let per_group = inputs / how.groups.max(1);
        let fan = per_group * kernel * kernel;
        Conv2d {
            weight: uniform(&[outputs, per_group, kernel, kernel], fan),
            bias: Some(uniform(&[outputs], fan)),
            how,
        }
    }
    /// The layer without its bias (`bias=False`).
    pub fn without_bias(self) -> Conv2d {
        Conv2d { bias: None, ..self }
    }
    /// (n, inputs, h, w) to (n, outputs, h', w').
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.conv2d(&self.weight, self.bias.as_ref(), self.how)
    }
}
