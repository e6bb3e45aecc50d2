//! Control: each instruction's control word: how long to stall, and which scoreboards to set and to wait for.
//!
//! In: a scheduled [`Listing`](super::schedule::list::Listing). Out: instructions with control words, and each label's
//! position.
//!
//! Order: [`sync`] sets stalls and scoreboards ([`carry`] is the state at the end of a piece), [`reuse`] the flags of
//! the operand cache.

pub(crate) mod carry;
pub(crate) mod reuse;
pub(crate) mod sync;
