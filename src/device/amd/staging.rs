//! Copies between host slices and device memory: through two buffers that both sides see, one filled while the other moves.
//!
//! Place in the arrows: above the copy queue. Source: amd.md 1.7 (why the BAR is not used: write-combining, HDP flushes, uncached reads).

use super::bo::{Bo, Placement};
use super::core::Core;
use super::queue::AmdQueue;
use crate::device::{DeviceError, Memory};
use crate::hcq::memory::View;
use crate::hcq::signal::Point;
use std::sync::Arc;

/// One buffer and the copy that last used it.
#[derive(Debug)]
struct Slot {
    bo: Bo,
    view: View,
    last: Option<Point>,
}

/// Both.
#[derive(Debug)]
pub struct Staging {
    slots: [Slot; 2],
    next: usize,
}

impl Staging {
    /// Makes the buffers.
    ///
    /// # Errors
    /// `Driver`.
    pub fn new(core: &Core) -> Result<Self, DeviceError> {
        let slot = || -> Result<Slot, DeviceError> {
            let bo = core.own_bo("staging buffer", core.options.staging_bytes, Placement::Host)?;
            let view = bo.view().map_err(|source| core.refused("staging buffer", source))?;
            Ok(Slot { bo, view, last: None })
        };
        Ok(Self { slots: [slot()?, slot()?], next: 0 })
    }

    /// The slot whose turn it is, free.
    fn turn(&mut self, core: &Core) -> Result<&mut Slot, DeviceError> {
        let slot = &mut self.slots[self.next];
        self.next ^= 1;
        if let Some(point) = slot.last.take() {
            point.wait(core.options.submit_timeout)?;
        }
        Ok(slot)
    }

    /// Host bytes into memory. Returns when the bytes are read; the memory's uses say when they are there.
    ///
    /// # Errors
    /// `Wait`, and as a submission.
    pub fn copy_in(
        &mut self,
        core: &Arc<Core>,
        queue: &AmdQueue,
        dst: &Memory,
        offset: u64,
        src: &[u8],
    ) -> Result<(), DeviceError> {
        let piece = usize::try_from(core.options.staging_bytes).unwrap_or(usize::MAX);
        let mut at = dst.va() + offset;
        for part in src.chunks(piece) {
            let slot = self.turn(core)?;
            slot.view.write(0, part)?;
            slot.last = Some(queue.copy(at, slot.bo.va(), part.len() as u64, dst)?);
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Memory into host bytes: the next piece moves while the last is read.
    ///
    /// # Errors
    /// `Wait`, and as a submission.
    pub fn copy_out(
        &mut self,
        core: &Arc<Core>,
        queue: &AmdQueue,
        src: &Memory,
        offset: u64,
        dst: &mut [u8],
    ) -> Result<(), DeviceError> {
        let piece = usize::try_from(core.options.staging_bytes).unwrap_or(usize::MAX);
        let mut at = src.va() + offset;
        let mut pending: Option<(View, Point, &mut [u8])> = None;
        for part in dst.chunks_mut(piece) {
            let slot = self.turn(core)?;
            let point = queue.copy(slot.bo.va(), at, part.len() as u64, src)?;
            slot.last = Some(point.clone());
            at += part.len() as u64;
            let moved = (slot.view.clone(), point, part);
            if let Some((view, point, part)) = pending.replace(moved) {
                point.wait(core.options.submit_timeout)?;
                view.read(0, part)?;
            }
        }
        if let Some((view, point, part)) = pending {
            point.wait(core.options.submit_timeout)?;
            view.read(0, part)?;
        }
        Ok(())
    }
}
