//! Copies between host slices and device memory: through two buffers that both sides see, one filled while the other moves.
//!
//! Place in the arrows: above a device's copy queue, its [`CopyPath`]. Why the BAR is not used: write-combining, flushes of the host's data path,
//! uncached reads (amd.md 1.7, nv.md 1.4).

use super::{DeviceError, Memory};
use doorbell_hcq::memory::View;
use doorbell_hcq::signal::Point;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// Memory that the device and the host see, freed with `keep`.
#[derive(Clone, Debug)]
pub struct SharedBuffer {
    /// Address as the device sees it.
    pub va: u64,
    pub view: View,
    #[allow(dead_code)]
    pub keep: Arc<dyn Any + Send + Sync>,
}

/// A device's copy queue.
pub trait CopyPath {
    /// A buffer to stage in.
    ///
    /// # Errors
    /// The device's.
    fn shared(&self, what: &'static str, len_bytes: u64) -> Result<SharedBuffer, DeviceError>;

    /// Bytes of each of the two staging buffers.
    fn staging_bytes(&self) -> u64;

    /// How long a slot's last copy is waited for.
    fn timeout(&self) -> Duration;

    /// Queues a copy between addresses; `memory` is the one of them that others may use.
    ///
    /// # Errors
    /// As a submission.
    fn copy(&self, dst: u64, src: u64, len_bytes: u64, memory: &Memory) -> Result<Point, DeviceError>;
}

/// One buffer and the copy that last used it.
#[derive(Debug)]
struct Slot {
    buffer: SharedBuffer,
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
    pub fn new(path: &dyn CopyPath) -> Result<Self, DeviceError> {
        let slot = || -> Result<Slot, DeviceError> {
            Ok(Slot { buffer: path.shared("staging buffer", path.staging_bytes())?, last: None })
        };
        Ok(Self { slots: [slot()?, slot()?], next: 0 })
    }

    /// The slot whose turn it is, free.
    fn turn(&mut self, path: &dyn CopyPath) -> Result<&mut Slot, DeviceError> {
        let slot = &mut self.slots[self.next];
        // Until it is known to be done, a copy is not forgotten: the device may still read the buffer or write it.
        if let Some(point) = &slot.last {
            point.wait(path.timeout())?;
            slot.last = None;
        }
        self.next ^= 1;
        Ok(slot)
    }

    /// Host bytes into memory. Returns when the bytes are read; the memory's uses say when they are there.
    ///
    /// # Errors
    /// `Wait`, and as a submission.
    pub fn copy_in(&mut self, path: &dyn CopyPath, dst: &Memory, offset: u64, src: &[u8]) -> Result<(), DeviceError> {
        let piece = usize::try_from(path.staging_bytes()).unwrap_or(usize::MAX);
        let mut at = dst.va() + offset;
        for part in src.chunks(piece) {
            let slot = self.turn(path)?;
            slot.buffer.view.write(0, part)?;
            slot.last = Some(path.copy(at, slot.buffer.va, part.len() as u64, dst)?);
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
        path: &dyn CopyPath,
        src: &Memory,
        offset: u64,
        dst: &mut [u8],
    ) -> Result<(), DeviceError> {
        let piece = usize::try_from(path.staging_bytes()).unwrap_or(usize::MAX);
        let mut at = src.va() + offset;
        let mut pending: Option<(View, Point, &mut [u8])> = None;
        for part in dst.chunks_mut(piece) {
            let slot = self.turn(path)?;
            let point = path.copy(slot.buffer.va, at, part.len() as u64, src)?;
            slot.last = Some(point.clone());
            at += part.len() as u64;
            let moved = (slot.buffer.view.clone(), point, part);
            if let Some((view, point, part)) = pending.replace(moved) {
                point.wait(path.timeout())?;
                view.read(0, part)?;
            }
        }
        if let Some((view, point, part)) = pending {
            point.wait(path.timeout())?;
            view.read(0, part)?;
        }
        Ok(())
    }
}
