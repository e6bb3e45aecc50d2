//! The user's API: a lazy Tensor is a UOp and nothing else.
//!
//! Uses `uop`, and `default_device` for the name of the machine's best device. [`Tensor`] is a handle on one node; the
//! op vocabulary is a set of traits that every [`Value`] shares ([`Elementwise`], [`Math`], [`Movement`],
//! [`Reduction`], [`Product`] ...), so the same methods build from Tensors and from UOps. Nothing here computes or
//! allocates on a device: realize and reading back are the engine's.
//!
//! Errors (shapes, dtypes, arguments) are carried by the Tensor as a [`TensorError`] with the caller's line; Tensors
//! built from it carry the first one.
//!
//! The files, in five groups:
//!
//! - *The value and its form in a program*: `handle`, `value`, `graph` (primitives on nodes), `error`, `facts`, `args`,
//!   `operators`, `names`, `variable`, `device_name`;
//! - *Where values come from*: `creation`, `make`, `random`, `file`, `custom` (kernels that the user writes);
//! - *Arithmetic*: `elementwise`, `math`, `remainder`, `convert`, `reduction`, `statistics`, `norm`, `product`,
//!   `einsum`, `attention`, `linalg`, `hash`, `loss`, `class_loss`;
//! - *Arrangement and windows*: `movement`, `rearrange`, `join`, `padding`, `index`, `order`; `window`, `per_axis`,
//!   `conv`, `pool`, `adaptive`, `resize`;
//! - *Of whole graphs*: `gradient`, `assign`, `shard` (several devices).
#![forbid(unsafe_code)]
// Operands are borrowed throughout, so that formulas read alike whether a side is used again or not.
#![allow(clippy::needless_borrows_for_generic_args)]

mod adaptive;
mod args;
mod assign;
mod attention;
mod class_loss;
mod conv;
mod convert;
mod creation;
mod custom;
mod device_name;
mod einsum;
mod elementwise;
mod error;
mod facts;
mod file;
mod gradient;
mod graph;
mod handle;
mod hash;
mod index;
mod join;
mod linalg;
mod loss;
mod make;
mod math;
mod movement;
mod names;
mod norm;
mod operators;
mod order;
mod padding;
mod per_axis;
mod pool;
mod product;
mod random;
mod rearrange;
mod reduction;
mod remainder;
mod resize;
mod shard;
mod statistics;
mod value;
mod variable;
mod window;

pub use args::{IntoAxes, IntoDim, IntoShape, IntoSplit};
pub use conv::{Conv, Convolution, Padding};
pub(crate) use convert::strong;
pub use convert::{Convert, default_float, default_int, set_default_float, set_default_int};
pub use creation::{Element, Nested};
pub use custom::{CustomKernel, Launch};
pub use elementwise::Elementwise;
pub use error::{Fault, Problem, Shown, TensorError};
pub use file::FileRange;
pub(crate) use file::TensorFile;
pub(crate) use handle::set_thread_device;
pub use handle::{HOST, HostBytes, Tensor, default_device, set_default_device};
pub use hash::{Hash, Keccak};
pub(crate) use index::probe;
pub use index::{ELLIPSIS, Index, Indexing, IntoIndices, NEW_AXIS, ScatterReduce, slice};
pub use linalg::Linalg;
pub use loss::{BinaryCrossEntropy, BinaryLogits, CrossEntropy, KlDiv, Loss, Nll, Reduce};
pub use make::Make;
pub use math::Math;
pub use movement::Movement;
pub use names::{Close, Names};
pub use norm::Composite;
pub use order::Order;
pub(crate) use order::group_count;
pub use padding::{IntoPadding, PadMode};
pub use per_axis::PerAxis;
pub use pool::{Pool, Pooling};
pub use product::Product;
pub use random::Generator;
pub use rearrange::Rearrange;
pub use reduction::Reduction;
pub use resize::{Resize, ResizeMode, Resizing, Target};
pub use shard::AllReduce;
pub(crate) use shard::{Lowered, Lowering, SEPARATOR as DEVICE_SEPARATOR, finish as finish_sharded, is_sharded};
pub use statistics::Statistics;
pub use value::{Operand, Value};
pub use variable::Variable;

/// Everything a program that builds Tensors needs.
///
/// The operators `+ - * / %` work without an import. Do not import `std::ops::Add` and its kin beside this: Rust then
/// takes `a.add(&b)` for the operator's method, which takes `a` by value (`Tensor` is a handle: `a.clone().add(&b)`
/// costs next to nothing), while with this prelude alone it borrows. Where generic code needs those traits, write
/// `&a + &b` or `Elementwise::add(&a, &b)`.
pub mod prelude {
    pub use super::{
        BinaryCrossEntropy, BinaryLogits, Close, Composite, Conv, Convert, Convolution, CrossEntropy, ELLIPSIS,
        Elementwise, Generator, Hash, Index, Indexing, Keccak, KlDiv, Linalg, Loss, Math, Movement, NEW_AXIS, Names,
        Nll, Order, PadMode, Pool, Pooling, Product, Rearrange, Reduce, Reduction, Resize, ResizeMode, Resizing,
        ScatterReduce, Statistics, Tensor, Value, Variable, slice,
    };
    pub use crate::uop::{Dim, Scalar};
}
