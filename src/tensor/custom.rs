//! Kernels that the user writes: as a graph of UOps for any device, or as text in a device's assembly language.
//!
//! The result is a Tensor like others: lazy, scheduled with the rest of the graph, recorded by a JIT. A gradient is the
//! user's too. tinygrad's `Tensor.custom_kernel`, with the result's memory made here.
//!
//! ```
//! use doorbell::tensor::CustomKernel;
//! use doorbell::tensor::prelude::*;
//! use doorbell::uop::{AxisKind, UOp};
//!
//! let x = Tensor::new([1.0f32, 2.0, 3.0, 4.0]);
//! let doubled = CustomKernel::new("doubled", [4], Scalar::F32).graph(&[&x], |out, sources| {
//!     let i = UOp::range(4, 0, AxisKind::Loop);
//!     let value = sources[0].index(&i).load();
//!     out.index(&i).store(&(&value + &value), &[i])
//! });
//! assert_eq!((doubled + 1.0).to_vec::<f32>()?, [3.0, 5.0, 7.0, 9.0]);
//! # Ok::<(), doorbell::Error>(())
//! ```

use super::args::IntoShape;
use super::creation::known;
use super::error::Problem;
use super::graph;
use super::handle::Tensor;
use super::value::{Value, lift_many};
use crate::uop::{
    Arg, CustomArg, CustomCode, CustomGradient, CustomText, DType, Dim, Op, Scalar, Stage, UOp, numel, spec,
};
use std::sync::Arc;

/// A kernel of one's own: what it is called, what it gives, and its gradient. [`CustomKernel::graph`] or
/// [`CustomKernel::text`] applies it.
#[derive(Clone)]
pub struct CustomKernel {
    name: String,
    shape: Vec<Dim>,
    dtype: Scalar,
    gradient: Option<CustomGradient>,
}

/// How a kernel in text is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Workgroups along x, y and z.
    pub global: [u32; 3],
    /// Threads of a workgroup along x, y and z.
    pub local: [u32; 3],
    /// Workgroup memory to ask for, beside what the text declares.
    pub shared_bytes: u32,
}

impl Default for Launch {
    fn default() -> Launch {
        Launch { global: [1; 3], local: [1; 3], shared_bytes: 0 }
    }
}

impl CustomKernel {
    /// A kernel whose result has this shape (of known sizes) and dtype.
    #[must_use]
    pub fn new(name: &str, shape: impl IntoShape, dtype: Scalar) -> CustomKernel {
        CustomKernel { name: name.into(), shape: shape.into_shape(), dtype, gradient: None }
    }

    /// With a gradient: from that of the result, and the sources, those of the sources, `None` for one that has none.
    /// Without this, `backward` through the kernel is an error.
    #[must_use]
    pub fn gradient(
        mut self,
        gradient: impl Fn(&Tensor, &[Tensor]) -> Vec<Option<Tensor>> + Send + Sync + 'static,
    ) -> CustomKernel {
        self.gradient = Some(CustomGradient(Arc::new(move |of_result, sources| {
            let sources: Vec<Tensor> = sources.iter().map(Tensor::from).collect();
            let shares = gradient(&Tensor::from(of_result), &sources);
            shares.into_iter().map(|s| s.map(|s| UOp::of(s.node()))).collect()
        })));
        self
    }

    /// Applies the kernel that `kernel` builds: from the address of the result (of its elements in row-major order) and
    /// those of the sources, to the [`UOp::store`]s, one of them or a [`UOp::sink`] of several. Every element of the
    /// result is to be stored; ops and loops are those of kernel graphs (see [`crate::uop`]), and the target's code
    /// generator optimises the kernel as any other. Sources are computed first, and lie densely in memory.
    ///
    /// A result that is no kernel is an error, as are sizes that are not known.
    #[track_caller]
    pub fn graph(&self, sources: &[&Tensor], kernel: impl FnOnce(&UOp, &[UOp]) -> UOp) -> Tensor {
        self.apply(sources, |out, addresses| {
            let built = kernel(out, addresses);
            let sink = if built.op() == Op::Sink { built } else { UOp::sink([built]) };
            spec::verify(Stage::Kernel, &sink).map_err(|e| Problem::argument(e.to_string()))?;
            if let Some(other) = sink.src().iter().find(|s| s.op() != Op::Store) {
                return Err(Problem::argument(format!("a kernel ends in stores, not in {:?}", other.op())));
            }
            Ok(CustomCode::Graph(sink))
        })
    }

    /// Applies a kernel in the assembly language of the device's back end (PTX on NVIDIA's cards), whose entry has the
    /// kernel's name. Its arguments are the address of the result, then those of the sources, eight bytes each.
    ///
    /// A back end that reads no text, and what an assembler says, are errors of realize.
    #[track_caller]
    pub fn text(&self, sources: &[&Tensor], text: &str, launch: Launch) -> Tensor {
        let Launch { global, local, shared_bytes } = launch;
        self.apply(sources, |_, _| {
            if [global, local].concat().contains(&0) {
                return Err(Problem::argument(format!("a launch of {global:?} workgroups of {local:?} threads")));
            }
            Ok(CustomCode::Text(CustomText { text: text.into(), global, local, shared_bytes }))
        })
    }

    #[track_caller]
    fn apply(&self, sources: &[&Tensor], code: impl FnOnce(&UOp, &[UOp]) -> Result<CustomCode, Problem>) -> Tensor {
        let nodes: Vec<_> = sources.iter().map(|t| t.node()).collect();
        lift_many("custom_kernel", &nodes, |sources| {
            if self.dtype.size_bytes() == 0 {
                return Err(Problem::dtype(format!("{} has no form in memory", self.dtype)));
            }
            if self.name.is_empty() {
                return Err(Problem::argument("a kernel needs a name"));
            }
            let sources: Vec<UOp> = sources.iter().map(|s| graph::cast(s.uop(), s.scalar().strong())).collect();
            let len = |shape: &[Dim]| known(shape).map(|_| numel(shape).as_int().unwrap_or(0) as usize);
            let out = UOp::param(0, DType::of(self.dtype), len(&self.shape)?);
            let addresses = (1..).zip(&sources).map(|(k, s)| Ok(UOp::param(k, s.dtype(), len(s.shape())?)));
            let code = code(&out, &addresses.collect::<Result<Vec<_>, Problem>>()?)?;
            let (name, shape, gradient) = (self.name.as_str().into(), self.shape.clone(), self.gradient.clone());
            let arg = CustomArg { name, dtype: DType::of(self.dtype), shape, code, gradient };
            Ok(UOp::new(Op::Custom, DType::of(self.dtype), sources, Arg::Custom(Arc::new(arg))).into())
        })
    }
}
