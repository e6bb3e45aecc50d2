//! Arrange: restructures and reorders machine instructions on virtual registers.
//!
//! In: [`Code`](super::mir::Code) as selected. Out: the same code, with convergence barriers.
//!
//! Order: [`shape`] guards short blocks and joins others, [`flow`] adds the convergence barriers; both are part of
//! every selection. Then, depending on the attempt's [`Choices`](super::attempts::Choices): [`invariant`],
//! [`pipeline`], [`sink`], [`hoist`], and [`flight`] for wgmma instructions.

pub(crate) mod flight;
pub(crate) mod flow;
pub(super) mod hoist;
pub(super) mod invariant;
pub(super) mod pipeline;
pub(crate) mod shape;
pub(super) mod sink;
