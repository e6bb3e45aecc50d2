//! Errors of a Tensor expression, and where it was written.

use crate::uop::{DType, Dim};
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// A shared [`TensorError`]: what a Tensor carries instead of a node.
pub type Fault = Arc<TensorError>;

/// The first error below a Tensor: op, sources and the line of the call.
#[derive(Clone, PartialEq)]
pub struct TensorError {
    /// Name of the method that was called.
    pub op: &'static str,
    /// What is wrong.
    pub problem: Problem,
    /// Shape and dtype of each source of the op.
    pub sources: Vec<(Vec<Dim>, DType)>,
    /// The caller's source line.
    pub at: &'static Location<'static>,
}

/// The text of `Display`: what `?` out of `main` prints.
impl std::fmt::Debug for TensorError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for TensorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.op, self.problem)?;
        for (k, (shape, dtype)) in self.sources.iter().enumerate() {
            write!(f, "{} {} {dtype}", if k == 0 { "; of" } else { "," }, Shown(shape))?;
        }
        write!(f, "; at {}:{}:{}", self.at.file(), self.at.line(), self.at.column())
    }
}
impl std::error::Error for TensorError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.problem)
    }
}

/// What is wrong, without the place.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the text of each variant says what it means and holds")]
pub enum Problem {
    #[error("shapes {} and {} do not broadcast: axis {axis} from the right has {} and {}",
        Shown(.a), Shown(.b), from_right(.a, *.axis), from_right(.b, *.axis))]
    Broadcast { a: Vec<Dim>, b: Vec<Dim>, axis: usize },
    #[error("shape {} does not become {}", Shown(.from), Shown(.to))]
    Reshape { from: Vec<Dim>, to: Vec<Dim> },
    #[error("axis {axis} is out of range for rank {rank}")]
    Axis { axis: i64, rank: usize },
    #[error("axis {axis} is named twice")]
    AxisTwice { axis: usize },
    #[error("index {index} is out of range for axis {axis} of size {size}")]
    Index { index: i64, axis: usize, size: Dim },
    #[error("the values lie on devices {first} and {second}; `.to(\"{first}\")` moves one")]
    Devices { first: Arc<str>, second: Arc<str> },
    #[error("{0}")]
    Shape(String),
    #[error("{0}")]
    DType(String),
    #[error("{0}")]
    Argument(String),
    /// From a UOp built by the shared vocabulary: its text is all that is left.
    #[error("{0}")]
    Carried(String),
}

/// The text of `Display`: what `?` out of `main` prints.
impl std::fmt::Debug for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl Problem {
    pub(crate) fn shape(text: impl Into<String>) -> Problem {
        Problem::Shape(text.into())
    }
    pub(crate) fn dtype(text: impl Into<String>) -> Problem {
        Problem::DType(text.into())
    }
    pub(crate) fn argument(text: impl Into<String>) -> Problem {
        Problem::Argument(text.into())
    }
}

fn from_right(shape: &[Dim], axis: usize) -> Dim {
    shape.iter().nth_back(axis).cloned().unwrap_or(Dim::Int(1))
}

/// A shape as users write it: `()`, `(3,)`, `(2, 3)`.
pub struct Shown<'a>(pub &'a [Dim]);
impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [one] => write!(f, "({one},)"),
            all => {
                let texts: Vec<String> = all.iter().map(Dim::to_string).collect();
                write!(f, "({})", texts.join(", "))
            }
        }
    }
}
