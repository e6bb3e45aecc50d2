//! Copies between host slices and device memory, through two shared buffers: the host fills one while the device copies
//! the other.
//!
//! Layer: above a device's copy queue. Reasons not to use the BAR: write-combining, flushes of the host's
//! data path, uncached reads (docs/amd.md 1.7, docs/nv.md 1.4).

use super::encode::{Encode, GpuCore};
use super::queue::GpuQueue;
use crate::{Device, DeviceError, Memory, MemoryParts, Uses};
use doorbell_hcq::memory::View;
use doorbell_hcq::signal::Point;
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Memory mapped for both device and host; freed when `keep` is dropped.
#[derive(Clone, Debug)]
pub(crate) struct SharedBuffer {
    /// Address as the device sees it.
    pub va: u64,
    pub view: View,
    #[allow(dead_code)]
    pub keep: Arc<dyn Any + Send + Sync>,
}

/// One buffer and the copy that last used it.
#[derive(Debug)]
struct Slot {
    buffer: SharedBuffer,
    last: Option<Point>,
}

/// Both buffers, allocated on first use.
#[derive(Debug, Default)]
pub(crate) struct Staging(Mutex<Option<Slots>>);

impl Staging {
    /// Copies host bytes to memory. Returns once `src` has been read; the memory's uses show when the copy is done.
    ///
    /// # Errors
    /// `Wait`, and as a submission.
    pub(crate) fn copy_in<E: Encode>(
        &self,
        queue: &GpuQueue<E>,
        dst: &Memory,
        offset: u64,
        src: &[u8],
    ) -> Result<(), DeviceError> {
        self.with(&**queue.core(), |slots| slots.copy_in(queue, dst, offset, src))
    }

    /// Copies memory to host bytes.
    ///
    /// # Errors
    /// `Wait`, and as a submission.
    pub(crate) fn copy_out<E: Encode>(
        &self,
        queue: &GpuQueue<E>,
        src: &Memory,
        offset: u64,
        dst: &mut [u8],
    ) -> Result<(), DeviceError> {
        self.with(&**queue.core(), |slots| slots.copy_out(queue, src, offset, dst))
    }

    /// Frees the buffers. No queue may use them any more.
    pub(crate) fn free(&self) {
        *self.slots() = None;
    }

    fn slots(&self) -> MutexGuard<'_, Option<Slots>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(
        &self,
        core: &impl GpuCore,
        run: impl FnOnce(&mut Slots) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        core.check_open()?;
        let mut slots = self.slots();
        let slots = match &mut *slots {
            Some(slots) => slots,
            none => none.insert(Slots::new(core)?),
        };
        run(slots)
    }
}

#[derive(Debug)]
struct Slots {
    slots: [Slot; 2],
    next: usize,
}

impl Slots {
    fn new(core: &impl GpuCore) -> Result<Self, DeviceError> {
        let slot = || -> Result<Slot, DeviceError> {
            Ok(Slot { buffer: core.shared_buffer("staging buffer", core.staging_bytes())?, last: None })
        };
        Ok(Self { slots: [slot()?, slot()?], next: 0 })
    }

    /// The least recently used slot, once its last copy is done.
    fn next_slot(&mut self, core: &impl GpuCore) -> Result<&mut Slot, DeviceError> {
        let slot = &mut self.slots[self.next];
        // `last` is cleared only once the copy is known to be done: until then the device may access the buffer.
        if let Some(point) = &slot.last {
            point.wait(core.submit_timeout())?;
            slot.last = None;
        }
        self.next ^= 1;
        Ok(slot)
    }

    fn copy_in<E: Encode>(
        &mut self,
        queue: &GpuQueue<E>,
        dst: &Memory,
        offset: u64,
        src: &[u8],
    ) -> Result<(), DeviceError> {
        let piece = usize::try_from(queue.core().staging_bytes()).unwrap_or(usize::MAX);
        let mut at = dst.va() + offset;
        for part in src.chunks(piece) {
            let slot = self.next_slot(&**queue.core())?;
            slot.buffer.view.write(0, part)?;
            slot.last = Some(copy(queue, at, slot.buffer.va, part.len() as u64, dst)?);
            at += part.len() as u64;
        }
        Ok(())
    }

    /// The device copies the next piece while the host reads the last one.
    fn copy_out<E: Encode>(
        &mut self,
        queue: &GpuQueue<E>,
        src: &Memory,
        offset: u64,
        dst: &mut [u8],
    ) -> Result<(), DeviceError> {
        let piece = usize::try_from(queue.core().staging_bytes()).unwrap_or(usize::MAX);
        let mut at = src.va() + offset;
        let mut pending: Option<(View, Point, &mut [u8])> = None;
        for part in dst.chunks_mut(piece) {
            let slot = self.next_slot(&**queue.core())?;
            let point = copy(queue, slot.buffer.va, at, part.len() as u64, src)?;
            slot.last = Some(point.clone());
            at += part.len() as u64;
            let moved = (slot.buffer.view.clone(), point, part);
            if let Some((view, point, part)) = pending.replace(moved) {
                point.wait(queue.core().submit_timeout())?;
                view.read(0, part)?;
            }
        }
        if let Some((view, point, part)) = pending {
            point.wait(queue.core().submit_timeout())?;
            view.read(0, part)?;
        }
        Ok(())
    }
}

/// Copies a kernel's code to `va` of a device, and waits for the copy. The caller owns the buffer there.
///
/// # Errors
/// As [`Device::copy_in`]; `Wait`.
pub(crate) fn upload_code(device: &impl Device, va: u64, bytes: &[u8], timeout: Duration) -> Result<(), DeviceError> {
    // A temporary handle, which frees nothing when it is dropped.
    let (tag, uses) = (device.tag().clone(), Uses::new(None));
    let parts = MemoryParts { device: tag, va, len_bytes: bytes.len() as u64, host: None, uses, release: None };
    let memory = Memory::new(parts);
    device.copy_in(&memory, 0, bytes)?;
    Ok(memory.uses().wait(timeout)?)
}

/// Queues a copy between addresses; `memory` is the side that other queues may use.
fn copy<E: Encode>(
    queue: &GpuQueue<E>,
    dst: u64,
    src: u64,
    len_bytes: u64,
    memory: &Memory,
) -> Result<Point, DeviceError> {
    queue.submit_on(memory, |encoder, context| encoder.copy(context, dst, src, len_bytes))
}
