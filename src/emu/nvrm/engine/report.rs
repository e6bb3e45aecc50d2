//! Semaphores that engines write: payload of 32 or 64 bits, followed by the time in ns.

use super::super::defect::Defect;
use super::Site;
use crate::vm::VmFault;

/// A semaphore to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Semaphore {
    pub va: u64,
    pub payload: u64,
    /// 8 bytes of payload; otherwise 4, and with a time 4 zeros after them.
    pub wide: bool,
    pub timestamp: bool,
}

impl Semaphore {
    /// Writes it: the time first, as a reader polls the payload.
    pub(crate) fn write(&self, site: Site<'_>) -> Result<(), VmFault> {
        const TIME: u64 = 8;
        if self.timestamp {
            let ns = if site.gpu.has(Defect::ClockZero) { 0 } else { site.gpu.clock.ns() };
            site.vm().write_u64(self.va.wrapping_add(TIME), ns)?;
        }
        let payload = self.payload.wrapping_add(site.gpu.has(Defect::Payload).into());
        if self.wide || self.timestamp {
            let payload = if self.wide { payload } else { payload & u64::from(u32::MAX) };
            site.vm().write_u64(self.va, payload)
        } else {
            site.vm().write_u32(self.va, payload as u32)
        }
    }
}
