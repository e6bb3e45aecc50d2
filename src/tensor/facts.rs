//! What is known of a Tensor without computing it: sizes, bytes, kind of type.

use super::error::TensorError;
use super::handle::Tensor;
use super::value::Value;
use crate::uop::{Dim, Scalar, UOp, numel};
use std::panic::Location;

impl Tensor {
    /// Number of axes, as [`Tensor::rank`].
    ///
    /// # Errors
    /// The first mistake below this Tensor; so do all methods here.
    pub fn ndim(&self) -> Result<usize, TensorError> {
        self.rank()
    }
    /// Size of one axis; negative axes count from the end. All sizes are [`Tensor::shape`].
    #[track_caller]
    pub fn size(&self, axis: i64) -> Result<Dim, TensorError> {
        let (u, here) = (self.uop()?, Location::caller());
        let at = super::args::axis(axis, u.shape().len());
        let at =
            at.map_err(|problem| (*super::value::fault("size", problem, std::slice::from_ref(&u), here)).clone())?;
        Ok(u.shape()[at].clone())
    }
    /// Size of one axis, to make other shapes of where errors wait: `Tensor::arange(x.len_of(1))`. For an axis that is
    /// not there, and of a Tensor that carries an error, it is faulty, and whatever is built on it reports that;
    /// [`Tensor::size`] returns the error.
    #[track_caller]
    pub fn len_of(&self, axis: i64) -> Dim {
        let size: UOp = super::value::build("len_of", [self.node()], |[x]| {
            let at = super::args::axis(axis, x.shape().len())?;
            Ok(x.shape()[at].uop())
        });
        Dim::from(size)
    }
    /// Number of elements; an expression where a size is a variable.
    pub fn numel(&self) -> Result<Dim, TensorError> {
        Ok(numel(&self.shape()?))
    }
    /// The shape with every variable at its largest value.
    pub fn max_shape(&self) -> Result<Vec<usize>, TensorError> {
        Ok(self.shape()?.iter().map(|d| usize::try_from(d.max()).unwrap_or(0)).collect())
    }
    /// Number of elements of [`Tensor::max_shape`].
    pub fn max_numel(&self) -> Result<usize, TensorError> {
        Ok(self.max_shape()?.into_iter().fold(1, usize::saturating_mul))
    }
    /// Bytes of one element; of a number without a type, those of the default type.
    pub fn element_size(&self) -> Result<usize, TensorError> {
        Ok(super::convert::strong(self.dtype()?).size_bytes())
    }
    /// Bytes of all elements, with every variable at its largest value.
    pub fn nbytes(&self) -> Result<usize, TensorError> {
        Ok(self.max_numel()?.saturating_mul(self.element_size()?))
    }
    /// Whether the elements are floats.
    pub fn is_floating_point(&self) -> Result<bool, TensorError> {
        Ok(self.dtype()?.is_float())
    }
    /// Whether the elements are signed integers or floats.
    pub fn is_signed(&self) -> Result<bool, TensorError> {
        Ok(Scalar::is_signed(self.dtype()?))
    }
}
