//! Tensor graph → kernels and copies.
//!
//! In: roots of tensor UOps (see `uop`). Out: a [`Schedule`]: kernel graphs in normal form with their buffers, copies,
//! a memory plan for temporaries, and where each root is stored afterwards. Depends on `uop` only.
//!
//! Steps: `front` strips identities from the graph, which gives the key of the cache (`split` cuts large reductions in
//! two there); `stored` and `keep` choose which values may be stored in memory; `jobs` makes one job of each, `lower`
//! turns the graph between them into expressions over ranges (`index`: movement as arithmetic; `collapse`: sums of
//! which one iteration contributes; `sums`: sums of gated sums); `fuse` puts jobs that pass values within iterations
//! into one kernel; `kernel` brings it into normal form; `order`, `snapshot` and `memory` place kernels and temporaries
//! in time and space; `bind` inserts the buffers. `devices` says what keeps a device busy. `explain` says why, for who
//! wants to see it.
//!
//! The meaning of a kernel graph, beyond `uop`: its stores may be at different depths of one loop nest (a row's mean,
//! then the row); stores in equal loops run in one loop, and each iteration loads all it needs before it stores
//! anything. So a kernel may read the memory it overwrites, at the very element it writes and from stores in the same
//! loops only. A Tensor over several devices has become a graph for each of them before (`tensor::shard`).
#![forbid(unsafe_code)]

mod bind;
mod collapse;
mod devices;
mod explain;
mod front;
mod fuse;
mod fused;
mod graph;
mod index;
mod jobs;
mod keep;
mod kernel;
mod lower;
mod memory;
mod order;
mod paths;
mod plan;
mod snapshot;
mod split;
mod stored;
mod sums;

pub use bind::{ItemWhy, Output, Schedule, ScheduleCache, ScheduleItem, TempMemory, schedule, schedule_for};
pub(crate) use devices::is_data;
pub use devices::{AttentionRows, DeviceTraits};
pub use memory::Arena;

use crate::uop::Op;
use std::sync::Arc;

/// Why a graph could not be scheduled. All of these are malformed graphs: the tensor room refuses to build them.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the text of each variant says what it means and holds")]
pub enum ScheduleError {
    #[error("schedule: {op:?}: {why}")]
    Malformed { op: Op, why: &'static str },
    #[error("schedule: variable {name} is bound to {first} and to {second} in one graph")]
    Rebound { name: Arc<str>, first: i64, second: i64 },
    #[error("schedule: variable {name} is bound to {value}, outside {min}..={max}")]
    Unbounded { name: Arc<str>, value: i64, min: i64, max: i64 },
    #[error("schedule: a kernel on {runs} reads {op:?} of shape {shape} on {lies}; `.to(\"{runs}\")` moves it")]
    Mixed { op: Op, shape: String, lies: Arc<str>, runs: Arc<str> },
    #[error("schedule: assignments and reads of one buffer wait for each other")]
    Cycle,
}

/// The text of `Display`: what `?` out of `main` prints.
impl std::fmt::Debug for ScheduleError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
