//! Optimise: a shorter or faster list of instructions, and an analysis of its registers.
//!
//! In: [`Body`](super::read::flat::Body). Out: the body, and [`facts::RegisterFacts`] about it for selection.
//!
//! Order: [`split`] gives each value its own register, [`unroll`] unrolls loops, [`facts`] finds constants, copies and
//! sums, [`vector`] joins loads of shared memory. Selection calls [`uniform`] where needed.

pub(crate) mod facts;
pub(crate) mod split;
pub(crate) mod uniform;
pub(super) mod unroll;
pub(crate) mod vector;
