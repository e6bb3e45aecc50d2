//! The allocator for tensors' memory: small blocks are cut from slabs, large ones are buffers of their own, freed ones
//! are kept for reuse.
//!
//! Layer: above a device's buffers, which it gets from a [`Source`]; memories hold it. It works like the CPU device's
//! allocator: four size classes per power of two for small blocks; for large ones, best fit with at most a quarter
//! more; the oldest freed blocks are released first. A block with pending uses passes them on to its next owner, and is
//! never freed before they are done.

use crate::{DeviceError, DeviceTag, Memory, MemoryParts, Release, Uses};
use doorbell_hcq::memory::View;
use doorbell_hcq::signal::Timeline;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Alignment of every block: a cache line of the device's L2.
const ALIGN_BYTES: u64 = 256;
const SMALL_MAX: u64 = 64 << 10;
const SLAB_BYTES: u64 = 2 << 20;
const PAGE: u64 = 4096;

/// A buffer of the device; freed on drop.
pub trait Buffer: Send + Sync + std::fmt::Debug {
    /// Address as the device sees it.
    fn va(&self) -> u64;
    fn len_bytes(&self) -> u64;
}

/// The source of buffers, with properties of the device.
pub(crate) trait Source: Send + Sync + std::fmt::Debug {
    fn device(&self) -> &str;
    /// Bytes of the device's memory; 0 if unknown.
    fn memory_bytes(&self) -> u64;
    /// Bytes of freed memory to keep for reuse.
    fn cache_bytes(&self) -> u64;
    /// Allocates a buffer in the device's memory.
    ///
    /// # Errors
    /// The driver's error, as text.
    fn buffer(&self, len_bytes: u64) -> Result<Arc<dyn Buffer>, String>;
}

/// A part of a buffer.
#[derive(Clone, Debug)]
struct Block {
    #[allow(dead_code)] // keeps the buffer
    bo: Arc<dyn Buffer>,
    va: u64,
    len_bytes: u64,
}

#[derive(Debug)]
struct Freed {
    block: Block,
    uses: Uses,
    at: u64,
}

#[derive(Debug, Default)]
struct State {
    used_bytes: u64,
    cached_bytes: u64,
    tick: u64,
    slab: Option<(Arc<dyn Buffer>, u64)>,
    small: BTreeMap<u64, Vec<(Block, Uses)>>,
    large: BTreeMap<u64, VecDeque<Freed>>,
    /// Blocks in use, by address.
    live: HashMap<u64, Block>,
    is_closed: bool,
}

/// The allocator of one device.
#[derive(Debug)]
pub(crate) struct Pool {
    source: Arc<dyn Source>,
    state: Mutex<State>,
}

impl std::fmt::Debug for Uses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Uses({})", if self.are_done() { "done" } else { "pending" })
    }
}

fn rounded(len_bytes: u64) -> u64 {
    let len = len_bytes.max(1).next_multiple_of(ALIGN_BYTES);
    if len > SMALL_MAX {
        return len.next_multiple_of(if len >= SLAB_BYTES { SLAB_BYTES / 8 } else { PAGE });
    }
    len.next_multiple_of((len.next_power_of_two() / 8).max(ALIGN_BYTES))
}

impl Pool {
    #[must_use]
    pub(crate) fn new(source: Arc<dyn Source>) -> Arc<Self> {
        Arc::new(Self { source, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of blocks in use, after rounding.
    #[must_use]
    pub(crate) fn used_bytes(&self) -> u64 {
        self.state().used_bytes
    }

    /// Allocates memory of the device `tag`, whose uses are mostly on `timeline`.
    ///
    /// # Errors
    /// As [`Pool::take`].
    pub(crate) fn alloc(
        self: &Arc<Self>,
        tag: &DeviceTag,
        timeline: &Arc<Timeline>,
        len_bytes: u64,
    ) -> Result<Memory, DeviceError> {
        let (va, uses) = self.take(len_bytes)?;
        Ok(Memory::new(MemoryParts {
            device: tag.clone(),
            va,
            len_bytes,
            host: None,
            uses: uses.unwrap_or_else(|| Uses::new(Some(Arc::clone(timeline)))),
            release: Some(Arc::clone(self) as _),
        }))
    }

    /// Allocates a block; returns its address, and pending uses by its former owner.
    ///
    /// # Errors
    /// `TooBig`, `OutOfMemory`.
    pub(crate) fn take(&self, len_bytes: u64) -> Result<(u64, Option<Uses>), DeviceError> {
        let max = self.source.memory_bytes();
        if max != 0 && len_bytes > max {
            return Err(DeviceError::TooBig { device: self.source.device().into(), asked: len_bytes, max });
        }
        let size = rounded(len_bytes);
        let mut state = self.state();
        let (block, uses) =
            if size <= SMALL_MAX { self.small(&mut state, size)? } else { self.large(&mut state, size)? };
        let va = block.va;
        state.used_bytes += block.len_bytes;
        state.live.insert(va, block);
        Ok((va, uses))
    }

    fn small(&self, state: &mut State, size: u64) -> Result<(Block, Option<Uses>), DeviceError> {
        if let Some((block, uses)) = state.small.get_mut(&size).and_then(Vec::pop) {
            return Ok((block, Some(uses)));
        }
        let (bo, at) = match state.slab.take().filter(|(bo, at)| at + size <= bo.len_bytes()) {
            Some(slab) => slab,
            None => (self.buffer(state, SLAB_BYTES)?, 0),
        };
        let block = Block { va: bo.va() + at, bo: Arc::clone(&bo), len_bytes: size };
        state.slab = Some((bo, at + size));
        Ok((block, None))
    }

    fn large(&self, state: &mut State, size: u64) -> Result<(Block, Option<Uses>), DeviceError> {
        let fit = state.large.range(size..=size + size / 4).next().map(|(size, _)| *size);
        if let Some(freed) = fit.and_then(|size| take_last(state, size)) {
            return Ok((freed.block, Some(freed.uses)));
        }
        let bo = self.buffer(state, size)?;
        Ok((Block { va: bo.va(), len_bytes: bo.len_bytes(), bo }, None))
    }

    /// Allocates a new buffer; if that fails, frees the cached blocks and tries again.
    fn buffer(&self, state: &mut State, size: u64) -> Result<Arc<dyn Buffer>, DeviceError> {
        if let Ok(bo) = self.source.buffer(size) {
            return Ok(bo);
        }
        trim(state, 0);
        self.source.buffer(size).map_err(|why| DeviceError::OutOfMemory {
            device: self.source.device().into(),
            asked: size,
            used: state.used_bytes,
            why,
        })
    }

    /// Frees the cached blocks; blocks released from now on are freed at once. No queue of this device may be running
    /// any more.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        // TIMEOUT: for peers' copies, which may still read a freed block; after a fault they may never complete.
        let deadline = Instant::now() + Duration::from_secs(1);
        let left = || deadline.saturating_duration_since(Instant::now());
        let pending = state.small.values().flatten().map(|(_, uses)| uses);
        for uses in pending.chain(state.large.values().flatten().map(|f| &f.uses)).filter(|uses| !uses.are_done()) {
            let _frees_anyway = uses.wait(left());
        }
        state.small.clear();
        state.large.clear();
        state.slab = None;
        state.cached_bytes = 0;
    }
}

/// The last freed block of exactly `size`.
fn take_last(state: &mut State, size: u64) -> Option<Freed> {
    let list = state.large.get_mut(&size)?;
    let freed = list.pop_back()?;
    if list.is_empty() {
        state.large.remove(&size);
    }
    state.cached_bytes -= freed.block.len_bytes;
    Some(freed)
}

/// Frees the oldest finished blocks until at most `limit` bytes are kept; blocks still in use stay.
fn trim(state: &mut State, limit: u64) {
    while state.cached_bytes > limit {
        let done = |list: &VecDeque<Freed>| {
            list.iter().enumerate().filter(|(_, f)| f.uses.are_done()).map(|(i, f)| (f.at, i)).min()
        };
        let oldest = state.large.iter().filter_map(|(size, list)| done(list).map(|(at, i)| (at, *size, i))).min();
        let Some((_, size, index)) = oldest else { return };
        if let Some(list) = state.large.get_mut(&size) {
            list.remove(index);
            if list.is_empty() {
                state.large.remove(&size);
            }
        }
        state.cached_bytes -= size;
    }
}

impl Release for Pool {
    fn release(&self, va: u64, _host: Option<View>, uses: Uses) {
        let mut state = self.state();
        let Some(block) = state.live.remove(&va) else { return };
        let size = block.len_bytes;
        state.used_bytes -= size;
        if state.is_closed {
            return;
        }
        if size <= SMALL_MAX {
            state.small.entry(size).or_default().push((block, uses));
            return;
        }
        state.tick += 1;
        state.cached_bytes += size;
        let at = state.tick;
        state.large.entry(size).or_default().push_back(Freed { block, uses, at });
        trim(&mut state, self.source.cache_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_four_a_power_of_two_and_pages_beyond() {
        let table =
            [(0, 256), (257, 512), (1500, 1536), (5000, 5120), (65_536, 65_536), (65_537, 69_632), (3 << 20, 3 << 20)];
        for (asked, expected) in table {
            assert_eq!(rounded(asked), expected, "{asked}");
        }
    }
}
