//! One hardware queue: its ring, pointers and doorbell, and the buffers that KFD requires with it.
//!
//! Layer: above `bo`; `queue` fills it. Source: docs/amd.md 1.5-1.7 (sizes that the kernel verifies since
//! 6.12), 2.2 (ring protocol).
//! Write pointers are monotonic. Packets are stored first, then the pointer, then the doorbell; a ring is never filled
//! completely.

use super::bo::{Bo, Placement};
use super::chip::SaveArea;
use super::core::Core;
use crate::DeviceError;
use doorbell_hcq::memory::{Dwords, View, Word64};
use doorbell_hcq::packet::{aql, pm4, sdma};
use doorbell_ioctl::abi::kfd;
use doorbell_ioctl::port::{CallError, Doorbell, MapRequest, Mapped};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Offsets of the pointers in their page: those of an `amd_queue_t`, which AQL firmware requires and the others allow.
const WRITE_POINTER: u64 = aql::queue::queue_offset::WRITE_DISPATCH_ID;
const READ_POINTER: u64 = aql::queue::queue_offset::READ_DISPATCH_ID;
/// Bytes of the EOP buffer; the kernel requires this size on every chip so far.
const EOP_BYTES: u64 = 4096;
/// Dwords of the ring that a report decodes at most.
const TAIL_DWORDS: u64 = 256;
/// Packets that a report shows at most.
const TAIL_PACKETS: usize = 16;

/// The packet format of a ring, with the unit of its pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingKind {
    /// Dwords.
    Pm4,
    /// Packets of 64 bytes.
    Aql,
    /// Bytes; a packet may not cross the end.
    Sdma,
}

impl RingKind {
    fn queue_type(self) -> u32 {
        match self {
            Self::Pm4 => kfd::QUEUE_TYPE_COMPUTE,
            Self::Aql => kfd::QUEUE_TYPE_COMPUTE_AQL,
            Self::Sdma => kfd::QUEUE_TYPE_SDMA,
        }
    }

    /// Size of the pointers' unit in bytes.
    fn unit_bytes(self) -> u64 {
        match self {
            Self::Pm4 => 4,
            Self::Aql => aql::PACKET_BYTES,
            Self::Sdma => 1,
        }
    }
}

/// A hardware queue.
pub struct HwRing {
    core: Arc<Core>,
    kind: RingKind,
    queue_id: u32,
    view: View,
    dwords: Dwords,
    size_bytes: u64,
    /// Total units written, which is the position of the next one.
    put: u64,
    write_pointer: Word64,
    read_pointer: Word64,
    doorbell: Doorbell,
    pointers: View,
    // Freed after the queue is destroyed.
    buffers: Vec<Bo>,
}

impl std::fmt::Debug for HwRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HwRing({:?} queue {} of {})", self.kind, self.queue_id, self.core.tag)
    }
}

impl HwRing {
    /// Allocates the buffers, each with exactly the required size, and creates the queue: on this SDMA engine, or on
    /// one that the driver chooses.
    ///
    /// # Errors
    /// `Driver` with the call that was refused.
    pub fn new(core: &Arc<Core>, kind: RingKind, engine: Option<u8>) -> Result<Self, DeviceError> {
        let refused = |source| core.refused("create queue", source);
        let page = core.driver.page_bytes();
        let size_bytes = core.options.ring_bytes.next_power_of_two().max(u64::from(kfd::MIN_QUEUE_RING_SIZE)).max(page);
        let ring = core.own_bo("ring", size_bytes, Placement::Host)?;
        let pointers = core.own_bo("queue pointers", page, Placement::Host)?;
        let (view, pages) = (ring.view().map_err(refused)?, pointers.view().map_err(refused)?);
        let mut args = kfd::CreateQueue {
            ring_base_address: ring.va(),
            write_pointer_address: pointers.va() + WRITE_POINTER,
            read_pointer_address: pointers.va() + READ_POINTER,
            ring_size: u32::try_from(size_bytes).unwrap_or(0),
            gpu_id: core.node.gpu_id,
            queue_type: engine.map_or(kind.queue_type(), |_| kfd::QUEUE_TYPE_SDMA_BY_ENG_ID),
            sdma_engine_id: engine.unwrap_or(0).into(),
            queue_percentage: kfd::MAX_QUEUE_PERCENTAGE,
            queue_priority: 7,
            ..Default::default()
        };
        let mut buffers = vec![ring, pointers];
        if kind != RingKind::Sdma {
            let save = SaveArea::of(core.chip, &core.node, page);
            let eop = core.own_bo("EOP buffer", EOP_BYTES, Placement::Vram)?;
            // In system memory, because the kernel writes its header, and the host may read it after a fault.
            let area = core.own_bo("context save area", save.buffer, Placement::Host)?;
            (args.eop_buffer_address, args.eop_buffer_size) = (eop.va(), EOP_BYTES);
            args.ctx_save_restore_address = area.va();
            args.ctx_save_restore_size = u32::try_from(save.context).unwrap_or(u32::MAX);
            args.ctl_stack_size = u32::try_from(save.ctl_stack).unwrap_or(u32::MAX);
            buffers.extend([eop, area]);
        }
        if kind == RingKind::Aql {
            init_aql(core, &view, &pages, args.ring_base_address, size_bytes)?;
        }
        create(core, &mut args).map_err(refused)?;
        let doorbell = match map_doorbell(core, args.doorbell_offset) {
            Ok(doorbell) => doorbell,
            Err(error) => {
                destroy(core, args.queue_id).map_err(refused)?;
                return Err(error);
            }
        };
        Ok(Self {
            core: Arc::clone(core),
            kind,
            queue_id: args.queue_id,
            size_bytes,
            put: 0,
            write_pointer: pages.word64(WRITE_POINTER)?,
            read_pointer: pages.word64(READ_POINTER)?,
            doorbell,
            dwords: view.dwords()?,
            view,
            pointers: pages,
            buffers,
        })
    }

    /// The page with the pointers, which starts with an `amd_queue_t`.
    #[must_use]
    pub fn pointers(&self) -> &View {
        &self.pointers
    }

    fn size(&self) -> u64 {
        self.size_bytes / self.kind.unit_bytes()
    }

    /// Units written and not yet read by the device. PM4's read pointer may be reported modulo the ring size.
    fn pending(&self) -> u64 {
        // ORDER: acquire; the device reads the packets before it advances the pointer.
        let get = self.read_pointer.atomic().load(Ordering::Acquire);
        (self.put.wrapping_sub(get)) % self.size()
    }

    /// The read and write positions for a report, in the ring's units.
    #[must_use]
    pub fn positions(&self) -> (u64, u64) {
        (self.put - self.pending().min(self.put), self.put)
    }

    /// The longest packet sequence that can ever be pushed at once, in dwords.
    #[must_use]
    pub(crate) fn max_dwords(&self) -> u64 {
        self.size_bytes / 8
    }

    /// Stores packets that belong together, if there is room. They are not published to the device yet.
    ///
    /// # Errors
    /// `Memory` in theory only: an access outside the ring's own view.
    pub fn push(&mut self, words: &[u32]) -> Result<bool, DeviceError> {
        let unit = self.kind.unit_bytes();
        let len_bytes = words.len() as u64 * 4;
        let at = self.put * unit % self.size_bytes;
        let skip = match self.kind {
            RingKind::Sdma => sdma::pad_dwords(self.put, self.size_bytes, words.len() as u64) * 4,
            RingKind::Pm4 | RingKind::Aql => 0,
        };
        // Room for two packets stays free, since a full ring would look like an empty one.
        if self.pending() * unit + skip + len_bytes + 2 * aql::PACKET_BYTES > self.size_bytes {
            return Ok(false);
        }
        if skip > 0 {
            self.view.write(at, &vec![0; usize::try_from(skip).unwrap_or(0)])?;
        }
        let at = (at + skip) % self.size_bytes;
        let bytes: &[u8] = bytemuck::cast_slice(words);
        if self.kind == RingKind::Aql {
            self.store_aql(at, words)?;
        } else {
            let head = usize::try_from(self.size_bytes - at).unwrap_or(usize::MAX).min(bytes.len());
            self.view.write(at, &bytes[..head])?;
            self.view.write(0, &bytes[head..])?;
        }
        self.put += (skip + len_bytes) / unit;
        Ok(true)
    }

    /// Stores the dword with the first packet's header last: the firmware polls it, and processes packets in order.
    fn store_aql(&self, at: u64, words: &[u32]) -> Result<(), DeviceError> {
        let Some((header, rest)) = words.split_first() else { return Ok(()) };
        let rest: &[u8] = bytemuck::cast_slice(rest);
        let head = usize::try_from(self.size_bytes - at - 4).unwrap_or(usize::MAX).min(rest.len());
        self.view.write(at + 4, &rest[..head])?;
        if head < rest.len() {
            self.view.write(0, &rest[head..])?;
        }
        // ORDER: release; everything else is stored before the first header.
        fence(Ordering::Release);
        if let Some(first) = self.dwords.get(at / 4) {
            first.store(*header, Ordering::Release);
        }
        Ok(())
    }

    /// Publishes the pushed packets to the device: stores the write pointer, then rings the doorbell.
    pub fn publish(&self) {
        // ORDER: release; packets are stored before the pointer, and the pointer before the doorbell (which has its own
        // fence).
        self.write_pointer.atomic().store(self.put, Ordering::Release);
        let value = if self.kind == RingKind::Aql { self.put.saturating_sub(1) } else { self.put };
        self.doorbell.ring(value);
    }

    /// Decodes the packets from the read pointer on.
    #[must_use]
    pub fn tail(&self) -> Vec<String> {
        let unit = self.kind.unit_bytes();
        let (get, put) = self.positions();
        let count = ((put - get) * unit / 4).min(TAIL_DWORDS);
        let dwords = &self.dwords;
        let first = get * unit / 4;
        let word = |n| dwords.get((first + n) % dwords.count()).map_or(0, |w| w.load(Ordering::Relaxed));
        let words: Vec<u32> = (0..count).map(word).collect();
        let lines = match self.kind {
            RingKind::Pm4 => pm4::describe(self.core.chip.gfx, &words),
            RingKind::Aql => aql::describe(&words),
            RingKind::Sdma => sdma::describe(self.core.chip.sdma, &words),
        };
        lines.into_iter().take(TAIL_PACKETS).map(|(_, line)| line).collect()
    }
}

impl Drop for HwRing {
    fn drop(&mut self) {
        if let Err(e) = destroy(&self.core, self.queue_id) {
            // The device may still access the buffers, so they are leaked.
            log::warn!("{}: queue {} was not destroyed, its buffers stay allocated: {e}", self.core.tag, self.queue_id);
            self.buffers.drain(..).for_each(std::mem::forget);
        }
    }
}

fn create(core: &Core, args: &mut kfd::CreateQueue) -> Result<(), CallError> {
    if core.driver.minor() >= kfd::MINOR_SDMA_ENGINE {
        return core.driver.call(&kfd::CREATE_QUEUE, args);
    }
    // The older struct is the newer one without its last fields.
    let mut short = kfd::CreateQueueV11::default();
    let len = size_of::<kfd::CreateQueueV11>();
    bytemuck::bytes_of_mut(&mut short).copy_from_slice(&bytemuck::bytes_of(args)[..len]);
    core.driver.call(&kfd::CREATE_QUEUE_V11, &mut short)?;
    bytemuck::bytes_of_mut(args)[..len].copy_from_slice(bytemuck::bytes_of(&short));
    Ok(())
}

fn destroy(core: &Core, queue_id: u32) -> Result<(), CallError> {
    core.driver.call(&kfd::DESTROY_QUEUE, &mut kfd::DestroyQueue { queue_id, pad: 0 })
}

/// The doorbell of a queue in the process's doorbell slice, which is mapped once per device.
fn map_doorbell(core: &Arc<Core>, doorbell_offset: u64) -> Result<Doorbell, DeviceError> {
    let slice_bytes = kfd::DOORBELL_SLICE_BYTES.next_multiple_of(core.driver.page_bytes());
    let page_offset = doorbell_offset % slice_bytes;
    let refused = |errno| core.refused("map doorbells", CallError { name: "mmap", errno });
    let page = core.driver.doorbells(core.node.gpu_id, || {
        let request = MapRequest::file(core.driver.kfd(), doorbell_offset - page_offset, slice_bytes);
        Mapped::new(core.driver.port(), &request).map(Arc::new)
    });
    let view = page.and_then(|page| page.view()).map_err(refused)?;
    let bad = |e: doorbell_ioctl::port::ViewError| doorbell_hcq::memory::MemError::Driver(e.to_string());
    Ok(Doorbell::new(&view, page_offset, core.driver.port()).map_err(bad)?)
}

/// Fills a new AQL ring with invalid packets, and writes the `amd_queue_t` around the pointers for the firmware.
fn init_aql(core: &Core, ring: &View, page: &View, base: u64, size_bytes: u64) -> Result<(), DeviceError> {
    let empty = aql::Packet::Invalid.emit().map_err(doorbell_hcq::error::SubmitError::from)?;
    for at in (0..size_bytes).step_by(aql::PACKET_BYTES as usize) {
        ring.write(at, bytemuck::cast_slice(&empty))?;
    }
    let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let queue = aql::queue::AmdQueue {
        base,
        size_packets: small(size_bytes / aql::PACKET_BYTES),
        group_aperture_hi: APERTURE_LDS_HI,
        private_aperture_hi: APERTURE_SCRATCH_HI,
        max_cu_id: small(core.node.cu_count().saturating_sub(1)),
        max_wave_id: small((core.node.value("max_waves_per_simd") * core.node.value("simd_per_cu")).saturating_sub(1)),
        read_dispatch_id_field_offset: small(READ_POINTER),
        properties: aql::queue::QUEUE_PROPERTIES_IS_PTR64 | aql::queue::QUEUE_PROPERTIES_ENABLE_PROFILING,
        ..aql::queue::AmdQueue::default()
    };
    page.write(0, &queue.emit())?;
    Ok(())
}

/// Bits 63:32 of the apertures' addresses on gfx9 and later.
pub(crate) const APERTURE_LDS_HI: u32 = 0x1_0000;
pub(crate) const APERTURE_SCRATCH_HI: u32 = 0x2_0000;
