//! The one IR: node, dtype, ops, arguments, shapes, bounds, pattern, rewrite, symbolic arithmetic, spec, printing.
//!
//! Everything from a user's Tensor to the last instruction before machine code is a graph of [`UOp`]s. This module
//! depends on nothing else. The stages of a graph and what each may contain:
//!
//! * **tensor graph** (`tensor` → `schedule`): values with shapes; `Buffer`, `Const`, `Iota`, `Var` and `Bind` are
//!   leaves. Movement ops with their sizes as sources, elementwise ops on sources of equal shape (a scalar Const
//!   broadcasts), `Reduce` with axes (they become size 1), `Buffer`s as leaves.
//! * **kernel graph** (`schedule` → `codegen`): a `Sink` of `Store`s. No shapes: indices are WeakInt expressions over
//!   `Range`s and `Var`s; `Reduce` has ranges as sources; memory is read by `Load(Index(Param, i[, gate])[, alt])`. A
//!   `Reduce` is inside the loops its value depends on (the open ranges below it minus its own), so a softmax is
//!   one kernel graph.
//! * **linear program** (`codegen` → `isa`): a list of nodes in execution order; see `codegen::program`.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod arg;
mod bounds;
mod checked;
mod construct;
mod custom;
mod dtype;
mod eval;
pub mod fp8;
mod intern;
mod matching;
mod node;
mod numbers;
mod observe;
mod op;
mod pattern;
mod render;
mod rewrite;
mod rule;
mod sets;
mod shape;
pub mod spec;
pub mod symbolic;
mod trace;
mod walk;

pub use arg::{
    Arg, Attention, AttentionPart, Axes, AxisKind, BufArg, BufferRef, ConstVal, KernelInfo, Name, RangeArg, Spread,
    Tensor2, TileArg, TileBit, TmaArg, WmmaArg,
};
pub(crate) use bounds::floor_mod;
pub use bounds::{Bounds, const_as, floor_div};
pub use checked::checked;
pub use custom::{CustomArg, CustomCode, CustomGradient, CustomText};
pub use dtype::{AddrSpace, DType, Scalar};
pub use eval::{cast_const, eval_alu, from_bits, threefry2x32, to_bits, wrap};
pub use matching::{MAX_CAPTURES, Match};
pub use node::{IntoSrcs, Made, NodeHasher, Srcs, UMap, UOp, USet, Watcher};
pub use numbers::Memo;
pub use op::Op;
pub use pattern::Pat;
pub use render::infix;
pub use rewrite::{DEFAULT_LIMIT, RewriteError, Rewriter, graph_rewrite};
pub use rule::{PatternMatcher, Rule, RuleInfo};
pub use sets::{OpSet, Scalars};
pub use shape::{Dim, numel};
pub use spec::{SpecError, SpecLevel, Stage};
pub use symbolic::{rules, simplify_given};
pub use trace::{Step, Trace, traced};
pub use walk::{Order, Rebuild, open_numbers, open_ranges, toposort_many};

#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;
