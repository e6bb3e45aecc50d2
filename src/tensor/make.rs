//! Tensors made on a device and of a dtype that are named: `Tensor::on("CPU:1").dtype(Scalar::F16).zeros([2, 3])`.
//!
//! One form for every creation: what `device=` and `dtype=` are in PyTorch and tinygrad is said once, before the name,
//! and the arguments after it stay those of the function on [`Tensor`].

use super::args::{IntoDim, IntoShape};
use super::convert::default_float;
use super::creation::{Element, Nested, own_type};
use super::elementwise::Elementwise;
use super::handle::{Tensor, set_thread_device};
use super::value::Value;
use crate::uop::{ConstVal, Scalar};
use std::sync::Arc;

/// Device and dtype of Tensors about to be made; made by [`Tensor::on`] and [`Tensor::of_dtype`].
#[derive(Clone, Debug, Default)]
pub struct Make {
    device: Option<Arc<str>>,
    dtype: Option<Scalar>,
}

impl Tensor {
    /// Names the device of a Tensor about to be made.
    ///
    /// ```
    /// use doorbell::tensor::prelude::*;
    /// let noise = Tensor::on("CPU").dtype(Scalar::F16).rand([2, 3]);
    /// assert_eq!((noise.dtype()?, &*noise.device()), (Scalar::F16, "CPU"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on(device: impl AsRef<str>) -> Make {
        Make { device: Some(device.as_ref().into()), dtype: None }
    }
    /// Names the dtype of a Tensor about to be made: `Tensor::of_dtype(Scalar::I64).arange(5)`.
    pub fn of_dtype(dtype: Scalar) -> Make {
        Make { device: None, dtype: Some(dtype) }
    }
}

/// The thread's default device is another one until this is dropped.
struct There(Option<Option<Arc<str>>>);
impl Drop for There {
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            set_thread_device(before);
        }
    }
}

/// Functions of [`Tensor`] by the same name.
macro_rules! as_tensor {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $t:ty),*);)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self, $($arg: $t),*) -> Tensor {
            let _there = self.enter();
            self.placed(Tensor::$name($($arg),*))
        }
    )*};
}

impl Make {
    /// Also names the device.
    #[must_use]
    pub fn on(self, device: impl AsRef<str>) -> Make {
        Make { device: Some(device.as_ref().into()), ..self }
    }
    /// Also names the dtype.
    #[must_use]
    pub fn dtype(self, dtype: Scalar) -> Make {
        Make { dtype: Some(dtype), ..self }
    }

    fn enter(&self) -> There {
        There(self.device.clone().map(|device| set_thread_device(Some(device))))
    }
    /// `made` on the device and of the dtype that were named.
    #[track_caller]
    fn placed(&self, made: Tensor) -> Tensor {
        let made = match self.dtype {
            Some(t) if made.node().is_ok_and(|u| u.dtype().scalar != t) => made.cast(t),
            _ => made,
        };
        match &self.device {
            Some(device) => made.to(device),
            None => made,
        }
    }

    /// As [`Tensor::full`]; the dtype that was named has the number among its values.
    #[track_caller]
    pub fn full(&self, shape: impl IntoShape, value: impl Into<ConstVal>) -> Tensor {
        let value = value.into();
        self.placed(Tensor::full_of(shape, value, self.dtype.unwrap_or(own_type(value))))
    }
    /// As [`Tensor::zeros`].
    #[track_caller]
    pub fn zeros(&self, shape: impl IntoShape) -> Tensor {
        self.placed(Tensor::full_of(shape, 0.0, self.dtype.unwrap_or(default_float())))
    }
    /// As [`Tensor::ones`].
    #[track_caller]
    pub fn ones(&self, shape: impl IntoShape) -> Tensor {
        self.placed(Tensor::full_of(shape, 1.0, self.dtype.unwrap_or(default_float())))
    }
    /// As [`Tensor::empty`], of the default float where no dtype was named.
    #[track_caller]
    pub fn empty(&self, shape: impl IntoShape) -> Tensor {
        let _there = self.enter();
        Tensor::empty(shape, self.dtype.unwrap_or(default_float()))
    }
    /// As [`Tensor::rand`]; f16, bf16, f32 and f64 are drawn with all their bits, other types are converted.
    #[track_caller]
    pub fn rand(&self, shape: impl IntoShape) -> Tensor {
        let _there = self.enter();
        let dtype = self.dtype.unwrap_or(default_float());
        let drawn = matches!(dtype, Scalar::F16 | Scalar::BF16 | Scalar::F32 | Scalar::F64);
        let stream = Tensor::default_generator();
        self.placed(stream.rand_of(shape, if drawn { dtype } else { Scalar::F32 }))
    }
    as_tensor! {
        /// As [`Tensor::new`].
        #[allow(clippy::new_ret_no_self)]
        new(data: impl Nested);
        /// As [`Tensor::from_slice`].
        from_slice(list: &[impl Element], shape: impl IntoShape);
        /// As [`Tensor::arange`].
        arange(n: impl IntoDim);
        /// As [`Tensor::arange_step`].
        arange_step(start: f64, stop: f64, step: f64);
        /// As [`Tensor::linspace`].
        linspace(start: f64, stop: f64, n: usize);
        /// As [`Tensor::eye`].
        eye(n: usize, m: usize);
        /// As [`Tensor::randn`].
        randn(shape: impl IntoShape);
        /// As [`Tensor::normal`].
        normal(shape: impl IntoShape, mean: f64, std: f64);
        /// As [`Tensor::uniform`].
        uniform(shape: impl IntoShape, low: f64, high: f64);
        /// As [`Tensor::randint`].
        randint(shape: impl IntoShape, low: i32, high: i32);
        /// As [`Tensor::randperm`].
        randperm(n: usize);
        /// As [`Tensor::random_bits`].
        random_bits(shape: impl IntoShape);
        /// As [`Tensor::scaled_uniform`].
        scaled_uniform(shape: impl IntoShape);
        /// As [`Tensor::glorot_uniform`].
        glorot_uniform(shape: impl IntoShape);
        /// As [`Tensor::kaiming_uniform`].
        kaiming_uniform(shape: impl IntoShape, a: f64);
        /// As [`Tensor::kaiming_normal`].
        kaiming_normal(shape: impl IntoShape, a: f64);
    }
}
