//! Local memory of all threads: grown when a kernel wants more, never while one runs on it.
//!
//! Place in the arrows: `queue` asks before a launch. Source: nv.md 2.5 (sizes), 3.4 (methods).

use super::bo::{Bo, Placement};
use super::core::Core;
use crate::DeviceError;
use doorbell_hcq::packet::nv::{PushBuffer, compute};
use doorbell_hcq::packet::{EmitError, GpuVa};

/// Where generic addresses mean shared memory, and local memory: 4 GiB each, above everything that is given out.
pub const SHARED_WINDOW: GpuVa = GpuVa(0x7294 << 32);
pub const LOCAL_WINDOW: GpuVa = GpuVa(0x7293 << 32);
/// SMs that may work on local memory at once: all there are.
const ALL_SMS: u32 = 0xff;
/// Grows at least to this many bytes a thread: the first kernel with a stack is rarely the last.
const MIN_BYTES: u32 = 0x400;

/// The local memory of one channel.
#[derive(Debug, Default)]
pub struct Local {
    bo: Option<Bo>,
    thread_bytes: u32,
    tpc_bytes: u64,
    /// The engine has been told.
    is_sent: bool,
}

impl Local {
    /// Bytes a thread that there are.
    #[must_use]
    pub fn thread_bytes(&self) -> u32 {
        self.thread_bytes
    }

    /// Makes it large enough. The channel is idle.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn grow(&mut self, core: &Core, thread_bytes: u32) -> Result<(), DeviceError> {
        let thread_bytes = thread_bytes.max(MIN_BYTES).next_multiple_of(32);
        let [tpc_bytes, bytes] = core.gpu.chip.local_memory_bytes(thread_bytes, core.gpu.facts.max_tpcs);
        // The old one goes first: the new one may not fit beside it.
        *self = Self::default();
        let bo = core.bo(bytes, Placement::Vram).map_err(|e| DeviceError::OutOfMemory {
            device: core.tag.name().into(),
            asked: bytes,
            used: 0,
            why: format!("local memory of {thread_bytes} bytes a thread: {e}"),
        })?;
        *self = Self { bo: Some(bo), thread_bytes, tpc_bytes, is_sent: false };
        Ok(())
    }

    /// Tells the engine, once after each growth.
    ///
    /// # Errors
    /// As all methods.
    pub fn emit(&mut self, out: &mut PushBuffer) -> Result<(), EmitError> {
        if let Some(bo) = self.bo.as_ref().filter(|_| !self.is_sent) {
            compute::Action::LocalMemory(GpuVa(bo.va())).emit(out)?;
            let size = compute::Action::LocalMemorySize { tpc_bytes: self.tpc_bytes, max_sms: ALL_SMS };
            size.emit(out)?;
            self.is_sent = true;
        }
        Ok(())
    }

    /// The list with the methods was given up: they are to be sent again.
    pub fn forget(&mut self) {
        self.is_sent = false;
    }
}
