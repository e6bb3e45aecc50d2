//! One kernel → one linear program: optimise, expand, decompose, linearise; register allocation.
//!
//! In: a kernel graph (see `uop`), whose root is a `Sink` of `Store(Index(Param, i[, gate]), value, ranges...)`, and a
//! [`Target`]. Out: a [`Program`]. Depends on `uop` only.
#![forbid(unsafe_code)]

pub mod program;
pub mod regalloc;
pub mod target;

pub use program::{Estimates, ParamInfo, Program};
pub use target::Target;
