//! Threadgroups: their simdgroups run in turns from barrier to barrier; groups are spread over host threads.

use super::simd::{Simd, Stop};
use super::{GroupMemory, Machine};
use crate::error::Pos;
use crate::fault::{FaultKind, Trouble};
use crate::tree::Position;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The shape of a launch.
#[derive(Clone, Copy)]
pub(crate) struct Grid {
    pub groups: [u32; 3],
    /// Threads of a full group.
    pub group: [u32; 3],
    /// Threads of the grid; groups at its end may be smaller.
    pub threads: [u64; 3],
}

/// A fault, with where it was.
pub(crate) struct Found {
    pub kind: FaultKind,
    pub at: Option<Pos>,
    pub thread: Option<[u32; 3]>,
    pub group: [u32; 3],
    /// Number of the group, by which the first of several faults is known.
    order: u64,
}

/// Runs all groups.
pub(crate) fn launch(m: &Machine, grid: Grid, host_threads: usize) -> Result<(), Found> {
    let count = grid.groups.iter().map(|n| u64::from(*n)).product::<u64>();
    let next = AtomicU64::new(0);
    let first: Mutex<Option<Found>> = Mutex::new(None);
    let work = || {
        let mut worker = Worker::new(m);
        loop {
            let order = next.fetch_add(1, Ordering::Relaxed);
            if order >= count {
                if let Some(executed) = m.executed {
                    executed.fetch_add(worker.simds.iter().map(|s| s.executed).sum(), Ordering::Relaxed);
                }
                return;
            }
            if let Err(found) = worker.group(m, grid, order) {
                next.store(count, Ordering::Relaxed);
                let mut first = first.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if first.as_ref().is_none_or(|f| found.order < f.order) {
                    *first = Some(found);
                }
            }
        }
    };
    let threads = (host_threads as u64).min(count).max(1);
    if threads == 1 {
        work();
    } else {
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
    }
    let first = first.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    first.map_or(Ok(()), Err)
}

struct Worker {
    simds: Vec<Simd>,
    memory: GroupMemory,
}

/// The three positions of a number, first dimension fastest.
fn split(n: u64, by: [u32; 3]) -> [u32; 3] {
    let (x, y) = (u64::from(by[0].max(1)), u64::from(by[1].max(1)));
    [(n % x) as u32, (n / x % y) as u32, (n / (x * y)) as u32]
}

impl Worker {
    fn new(m: &Machine) -> Self {
        Self { simds: Vec::new(), memory: GroupMemory::new(m.threadgroup_bytes) }
    }

    fn group(&mut self, m: &Machine, grid: Grid, order: u64) -> Result<(), Found> {
        let group = split(order, grid.groups);
        let size: [u32; 3] = std::array::from_fn(|n| {
            let before = u64::from(group[n]) * u64::from(grid.group[n]);
            u64::from(grid.group[n]).min(grid.threads[n].saturating_sub(before)) as u32
        });
        let threads = size.iter().product::<u32>();
        let count = threads.div_ceil(32) as usize;
        while self.simds.len() < count {
            self.simds.push(Simd::new(m.code));
        }
        self.memory.reset();
        for (index, simd) in self.simds[..count].iter_mut().enumerate() {
            let lanes = (threads - 32 * index as u32).min(32);
            simd.start(if lanes == 32 { u32::MAX } else { (1 << lanes) - 1 }, index as u32);
            set_positions(m, simd, grid, (group, size));
        }
        self.turns(m, count).map_err(|(index, trouble)| {
            let simd = &self.simds[index];
            let inst = simd.pc.saturating_sub(1) as usize;
            let thread = trouble.lane.map(|lane| {
                let own = split(u64::from(simd.index * 32 + lane), size);
                std::array::from_fn(|n| own[n] + group[n] * grid.group[n])
            });
            Found { kind: trouble.kind, at: m.code.at.get(inst).copied(), thread, group, order }
        })
    }

    /// Until all simdgroups have ended.
    fn turns(&mut self, m: &Machine, count: usize) -> Result<(), (usize, Trouble)> {
        loop {
            let mut at = None;
            for index in 0..count {
                self.memory.simdgroup = index as u8 + 1;
                let stop = self.simds[index].run(m, &mut self.memory).map_err(|t| (index, t))?;
                let here = match stop {
                    Stop::End => None,
                    Stop::Barrier { at, orders } => Some((at, orders)),
                };
                if index == 0 {
                    at = here;
                } else if at != here {
                    // The one that waits is named.
                    let (late, lane) = if here.is_some() { (index, 0) } else { (index - 1, 0) };
                    return Err((late, Trouble { kind: FaultKind::DivergentBarrier, lane: Some(lane) }));
                }
            }
            match at {
                None => return Ok(()),
                Some((_, orders)) => self.memory.barrier(orders),
            }
        }
    }
}

fn set_positions(m: &Machine, simd: &mut Simd, grid: Grid, (group, size): ([u32; 3], [u32; 3])) {
    let threads = size.iter().product::<u32>();
    for &(position, row, lanes, short) in &m.code.positions {
        for k in 0..lanes {
            let n = k as usize;
            let values: [u32; 32] = std::array::from_fn(|lane| {
                let index = simd.index * 32 + lane as u32;
                let own = split(index.into(), size);
                match position {
                    // One number of a position in three dimensions is its first.
                    Position::ThreadInGrid => own[n].wrapping_add(group[n].wrapping_mul(grid.group[n])),
                    Position::ThreadInGroup => own[n],
                    Position::GroupInGrid => group[n],
                    Position::ThreadsPerGroup => size[n],
                    Position::GroupsPerGrid => grid.groups[n],
                    Position::ThreadsPerGrid => grid.threads[n] as u32,
                    Position::IndexInGroup => index,
                    Position::Lane => lane as u32,
                    Position::Simdgroup => simd.index,
                    Position::Simdgroups => threads.div_ceil(32),
                    Position::Width => 32,
                    Position::IndexInQuad => index % 4,
                    Position::Quad => index / 4,
                    Position::QuadsPerGroup => threads.div_ceil(4),
                }
            });
            simd.regs[(row + k) as usize] = if short { values.map(|v| v & 0xffff) } else { values };
        }
    }
}
