//! Scratch memory of a compute ring. It grows when a kernel needs more, but never while a kernel is using it.
//!
//! Layer: `queue` calls it before a launch. Source: docs/amd.md 2.9 (architected flat scratch;
//! `amd_queue_t` for AQL firmware).

use super::bo::{Bo, Placement};
use super::chip::QueueFormat;
use super::core::Core;
use super::encode::ScratchRegs;
use crate::DeviceError;
use doorbell_hcq::error::SubmitError;
use doorbell_hcq::memory::View;
use doorbell_hcq::packet::aql::queue::queue_offset;
use doorbell_hcq::packet::pm4::regs::TmpringSize;

/// Lanes per wave for the size of scratch, also for waves of 32.
const WAVE_LANES: u64 = 64;
/// Largest value of the waves field of COMPUTE_TMPRING_SIZE.
const MAX_WAVES: u64 = 4095;

/// The scratch of one ring.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    #[allow(dead_code)] // keeps the buffer
    bo: Option<Bo>,
    lane_bytes: u64,
    regs: ScratchRegs,
}

/// The sizes that follow from a kernel's scratch on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Bytes per lane, rounded up.
    pub lane_bytes: u64,
    pub wave_bytes: u64,
    /// Bytes per XCC.
    pub xcc_bytes: u64,
    /// Bytes of the buffer.
    pub bytes: u64,
    pub waves: u64,
}

impl Plan {
    /// The sizes for kernels with `private_bytes` per work-item.
    #[must_use]
    pub(crate) fn new(core: &Core, private_bytes: u32) -> Self {
        let (chip, node) = (core.chip, &core.node);
        let align = chip.scratch_align();
        let lane_bytes = u64::from(private_bytes).next_multiple_of(align / WAVE_LANES);
        let wave_bytes = lane_bytes * WAVE_LANES;
        let slots = node.value("max_slots_scratch_cu").max(1);
        let xcc = node.xcc_count();
        let xcc_bytes = wave_bytes * slots * (node.cu_count() / xcc).max(1);
        let engines = if chip.scratch_waves_per_engine { node.engine_count() } else { 1 };
        let waves = (xcc_bytes / wave_bytes.max(1) / engines).min(node.cu_count() * slots * xcc).min(MAX_WAVES);
        Self { lane_bytes, wave_bytes, xcc_bytes, bytes: xcc_bytes * xcc, waves }
    }
}

impl Scratch {
    #[must_use]
    pub(crate) fn regs(&self) -> ScratchRegs {
        self.regs
    }

    /// Whether the current size suffices for kernels with `private_bytes` per work-item.
    #[must_use]
    pub(crate) fn holds(&self, private_bytes: u32) -> bool {
        u64::from(private_bytes) <= self.lane_bytes
    }

    /// Grows it to at least `private_bytes` per work-item. The ring must be idle; `queue_page` is an AQL ring's
    /// `amd_queue_t`.
    ///
    /// # Errors
    /// `OutOfMemory`; `Submit` when the size does not fit the registers.
    pub(crate) fn grow(&mut self, core: &Core, private_bytes: u32, queue_page: &View) -> Result<(), DeviceError> {
        let plan = Plan::new(core, private_bytes);
        let wave_bytes = u32::try_from(plan.wave_bytes).unwrap_or(u32::MAX);
        let waves = u32::try_from(plan.waves).unwrap_or(u32::MAX);
        let tmpring_size = TmpringSize { waves, wave_bytes }.emit(core.chip.gfx).map_err(SubmitError::from)?;
        // The old buffer is freed first: both may not fit at once.
        *self = Self::default();
        let bo = core.bo(plan.bytes, Placement::Vram).map_err(|e| DeviceError::OutOfMemory {
            device: core.tag.name().into(),
            asked: plan.bytes,
            used: 0,
            why: format!("scratch of {private_bytes} bytes a work-item: {e}"),
        })?;
        let base = bo.va();
        if core.chip.format == QueueFormat::Aql {
            let low = |n: u64| n as u32;
            let descriptor = [
                low(base),
                low(base >> 32) | core.chip.scratch_descriptor_swizzle,
                u32::try_from(plan.xcc_bytes).unwrap_or(u32::MAX),
                core.chip.scratch_descriptor_word3,
            ];
            queue_page.write(queue_offset::SCRATCH_RESOURCE_DESCRIPTOR, bytemuck::cast_slice(&descriptor))?;
            queue_page.write(queue_offset::SCRATCH_BACKING_MEMORY_LOCATION, &base.to_le_bytes())?;
            let lane = u32::try_from(plan.lane_bytes).unwrap_or(u32::MAX);
            queue_page.write(queue_offset::SCRATCH_WAVE64_LANE_BYTE_SIZE, &lane.to_le_bytes())?;
            queue_page.write(queue_offset::COMPUTE_TMPRING_SIZE, &tmpring_size.to_le_bytes())?;
        }
        *self = Self { bo: Some(bo), lane_bytes: plan.lane_bytes, regs: ScratchRegs { tmpring_size, base } };
        Ok(())
    }
}
