//! Tensor graph → kernels and copies.
//!
//! In: roots of tensor UOps (see `uop`). Out: a [`Schedule`]: kernel graphs in normal form with their buffers, copies, a memory plan
//! for temporaries, and where each root lies afterwards. Depends on `uop` only. The way: `front` strips identities from the
//! graph, which gives the key of the cache; `stored` says which values lie in memory; `lower` turns the others into
//! expressions over ranges; `kernel` puts kernels into normal form; `order` and `memory` place them in time and space.
//! Left out: sharding over devices.
#![forbid(unsafe_code)]

mod bind;
mod collapse;
mod front;
mod fuse;
mod graph;
mod index;
mod jobs;
mod keep;
mod kernel;
mod lower;
mod memory;
mod order;
mod plan;
mod split;
mod stored;

pub use bind::{Output, Schedule, ScheduleCache, ScheduleItem, TempMemory, schedule};
pub use memory::Arena;
pub use stored::buffer_view;

use crate::uop::Op;
use std::sync::Arc;

/// Why a graph could not be scheduled. All of these are malformed graphs: the tensor room refuses to build them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    #[error("schedule: {op:?}: {why}")]
    Malformed { op: Op, why: &'static str },
    #[error("schedule: variable {name} is bound to {first} and to {second} in one graph")]
    Rebound { name: Arc<str>, first: i64, second: i64 },
    #[error("schedule: variable {name} is bound to {value}, outside {min}..={max}")]
    Unbounded { name: Arc<str>, value: i64, min: i64, max: i64 },
    #[error("schedule: a kernel mixes devices: {op:?} of shape {shape} lies on another one")]
    Mixed { op: Op, shape: String },
    #[error("schedule: assignments and reads of one buffer wait for each other")]
    Cycle,
}

#[cfg(test)]
mod tests;
