//! Arrange: machine instructions on virtual registers → the same in a better shape and order.
//!
//! In: [`Code`](super::mir::Code) as selected. Out: the same code, with convergence barriers.
//!
//! Order: [`shape`] guards short blocks and joins others, [`flow`] adds the convergence barriers; both belong to every
//! selection. Then, as far as the attempt's [`Choices`](super::attempts::Choices) say: [`invariant`], [`pipeline`],
//! [`sink`], [`hoist`], and [`flight`] for multiplies of a warpgroup.

pub mod flight;
pub mod flow;
pub mod hoist;
pub mod invariant;
pub mod pipeline;
pub mod shape;
pub mod sink;
