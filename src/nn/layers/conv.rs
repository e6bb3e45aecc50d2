//! Convolutions over one, two and three axes, plain and transposed.

use super::{failed, uniform};
use crate::module;
use crate::tensor::{Conv, Convolution, PerAxis, Tensor};

/// Weight and bias for a window, uniform within one over the root of the fan-in. A kernel listed for another number of
/// axes makes the weight carry that error.
#[track_caller]
fn parameters(
    op: &'static str,
    channels: [usize; 2],
    (fan, outputs): (usize, usize),
    kernel: PerAxis<usize>,
    axes: usize,
) -> (Tensor, Tensor) {
    let (window, problem) = match kernel.over(axes, "kernel") {
        Ok(window) => (window, None),
        Err(problem) => (vec![1; axes], Some(problem)),
    };
    let fan = window.iter().fold(fan, |n, k| n.saturating_mul(*k));
    let shape: Vec<usize> = channels.into_iter().chain(window).collect();
    // No closure: the error has the caller's line.
    let weight = match problem {
        Some(problem) => failed(op, problem),
        None => uniform(&shape, fan),
    };
    (weight, uniform(&[outputs], fan))
}

/// Convolution layers: name, op, number of axes, the shapes of input and output, that of the weight.
macro_rules! convolutions {
    ($($(#[$doc:meta])* $name:ident $op:ident $axes:literal $transposed:literal $input:literal $output:literal $weight:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name {
            #[doc = $weight]
            pub weight: Tensor,
            /// (outputs,)
            pub bias: Option<Tensor>,
            how: Conv,
        }
        module!($name { weight, bias; skip how });

        impl $name {
            /// A kernel of this size: one number for all axes, or a list with one for each. `how` has stride, padding,
            /// dilation and groups, and for transposed convolutions output padding.
            #[track_caller]
            pub fn new(inputs: usize, outputs: usize, kernel: impl Into<PerAxis<usize>>, how: Conv) -> $name {
                let groups = how.groups.max(1);
                let (channels, fan) = if $transposed {
                    ([inputs, outputs / groups], inputs)
                } else {
                    ([outputs, inputs / groups], inputs / groups)
                };
                let (weight, bias) = parameters(stringify!($op), channels, (fan, outputs), kernel.into(), $axes);
                $name { weight, bias: Some(bias), how }
            }
            /// The layer without its bias (`bias=False`).
            pub fn without_bias(self) -> $name {
                $name { bias: None, ..self }
            }
            #[doc = concat!($input, " to ", $output, ".")]
            #[track_caller]
            pub fn forward(&self, x: &Tensor) -> Tensor {
                x.$op(&self.weight, self.bias.as_ref(), self.how)
            }
        }
    )*};
}

convolutions! {
    /// Cross-correlation along one axis.
    Conv1d conv1d 1 false "(n, inputs, length)" "(n, outputs, length')" "(outputs, inputs / groups, kernel)";
    /// Cross-correlation over two axes.
    ///
    /// ```
    /// use doorbell::nn::Conv2d;
    /// use doorbell::tensor::prelude::*;
    ///
    /// let square = Conv2d::new(3, 8, 3, Conv::padded(1));
    /// let wide = Conv2d::new(8, 8, [1, 5], Conv::padded([0, 2]).strided([1, 2]).grouped(4)).without_bias();
    /// let y = wide.forward(&square.forward(&Tensor::ones([2, 3, 6, 8])));
    /// assert_eq!(y.shape()?, [2, 8, 6, 4].map(Dim::Int));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    Conv2d conv2d 2 false "(n, inputs, h, w)" "(n, outputs, h', w')" "(outputs, inputs / groups, kernel h, kernel w)";
    /// Cross-correlation over three axes.
    Conv3d conv3d 3 false "(n, inputs, d, h, w)" "(n, outputs, d', h', w')"
        "(outputs, inputs / groups, kernel d, kernel h, kernel w)";
    /// Transposed convolution along one axis: each input element puts its window into the output.
    ConvTranspose1d conv_transpose1d 1 true "(n, inputs, length)" "(n, outputs, length')"
        "(inputs, outputs / groups, kernel)";
    /// Transposed convolution over two axes: each input element puts its window into the output.
    ConvTranspose2d conv_transpose2d 2 true "(n, inputs, h, w)" "(n, outputs, h', w')"
        "(inputs, outputs / groups, kernel h, kernel w)";
    /// Transposed convolution over three axes: each input element puts its window into the output.
    ConvTranspose3d conv_transpose3d 3 true "(n, inputs, d, h, w)" "(n, outputs, d', h', w')"
        "(inputs, outputs / groups, kernel d, kernel h, kernel w)";
}
