//! Optimise: the list of instructions → a shorter or faster list, and what is known of its registers.
//!
//! In: [`Body`](super::read::flat::Body). Out: the body, and [`facts::RegisterFacts`] about it for selection.
//!
//! Order: [`split`] gives each value a register of its own, [`unroll`] puts iterations of loops side by side, [`facts`]
//! finds constants, copies and sums, [`vector`] joins loads of shared memory. [`uniform`] is asked by selection, where
//! it matters.

pub mod facts;
pub mod split;
pub mod uniform;
pub mod unroll;
pub mod vector;
