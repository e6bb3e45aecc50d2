//! Local memory of all threads. It grows when a kernel needs more, but never while a kernel is using it.
//!
//! Layer: `queue` calls it before a launch. Source: docs/nv.md 2.5 (sizes), 3.4 (methods).

use super::bo::{Bo, Placement};
use super::core::Core;
use crate::DeviceError;
use doorbell_hcq::packet::nv::{PushBuffer, compute};
use doorbell_hcq::packet::{EmitError, GpuVa};

/// The windows of shared and of local memory in the generic address space: 4 GiB each, above all allocated addresses.
pub const SHARED_WINDOW: GpuVa = GpuVa(0x7294 << 32);
pub const LOCAL_WINDOW: GpuVa = GpuVa(0x7293 << 32);
/// SMs that may use local memory at once: all.
const ALL_SMS: u32 = 0xff;
/// Smallest size in bytes per thread: the first kernel with a stack is rarely the last.
const MIN_BYTES: u32 = 0x400;

/// The local memory of one channel.
#[derive(Debug, Default)]
pub(crate) struct Local {
    bo: Option<Bo>,
    thread_bytes: u32,
    tpc_bytes: u64,
    /// The methods that set it have been emitted.
    is_sent: bool,
}

impl Local {
    /// The current size in bytes per thread.
    #[must_use]
    pub(crate) fn thread_bytes(&self) -> u32 {
        self.thread_bytes
    }

    /// Grows it to at least `thread_bytes` per thread. The channel must be idle.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(crate) fn grow(&mut self, core: &Core, thread_bytes: u32) -> Result<(), DeviceError> {
        let thread_bytes = thread_bytes.max(MIN_BYTES).next_multiple_of(32);
        let [tpc_bytes, bytes] = core.gpu.chip.local_memory_bytes(thread_bytes, core.gpu.properties.max_tpcs);
        // The old buffer is freed first: both may not fit at once.
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

    /// Emits the methods that set local memory in the engine, once after each growth.
    ///
    /// # Errors
    /// A field that does not fit.
    pub(crate) fn emit(&mut self, out: &mut PushBuffer) -> Result<(), EmitError> {
        if let Some(bo) = self.bo.as_ref().filter(|_| !self.is_sent) {
            compute::Action::LocalMemory(GpuVa(bo.va())).emit(out)?;
            let size = compute::Action::LocalMemorySize { tpc_bytes: self.tpc_bytes, max_sms: ALL_SMS };
            size.emit(out)?;
            self.is_sent = true;
        }
        Ok(())
    }

    /// The list with the methods was abandoned: they must be emitted again.
    pub(crate) fn forget(&mut self) {
        self.is_sent = false;
    }
}
