//! The AQL packet processor: slots, barriers, kernel descriptors, completion signals, error codes.
//!
//! Source: docs/amd.md 2.7-2.9, 4.2, 4.4. Left out: agent dispatch packets (a named error), kernarg preload
//! beyond copying the dwords into user SGPRs.

use super::super::chip::{Chip, LDS_GRANULE};
use super::super::compute::Dispatch;
use super::super::gpu::Gpu;
use super::super::queue::{Kind, Queue, Work};
use super::super::vm::{Vm, VmFault};
use super::dispatch::{bad, check_lds, check_workgroup};
use super::pm4::{Pm4, run_dispatch};
use super::stale::{acquire_scope, interrupts, release_scope};
use super::{BadDispatch, Cause, Run, Site, Step, Stop};
use crate::kfd::chip::facts_of;
use doorbell_hcq::bits::{Field, field, split};
use doorbell_hcq::packet::aql::queue::{
    AMD_QUEUE_BYTES, AmdQueue, QUEUE_PROPERTIES_ENABLE_PROFILING, QUEUE_PROPERTIES_IS_PTR64, queue_offset,
    signal_offset,
};
use doorbell_hcq::packet::aql::{Barrier, INVALID_HEADER, KernelDispatch, PACKET_BYTES, PACKET_DWORDS, Packet};
use doorbell_hcq::packet::pm4::regs::{RSRC2_LDS_SIZE, TmpringSize};

const SLOT_TYPE_MASK: u32 = 0xff;

/// Bits of the descriptor's `kernel_code_properties`.
mod property {
    pub(crate) const PRIVATE_SEGMENT_BUFFER: u16 = 1 << 0;
    pub(crate) const DISPATCH_PTR: u16 = 1 << 1;
    pub(crate) const QUEUE_PTR: u16 = 1 << 2;
    pub(crate) const KERNARG_SEGMENT_PTR: u16 = 1 << 3;
    pub(crate) const DISPATCH_ID: u16 = 1 << 4;
    pub(crate) const FLAT_SCRATCH_INIT: u16 = 1 << 5;
    pub(crate) const PRIVATE_SEGMENT_SIZE: u16 = 1 << 6;
    pub(crate) const WAVEFRONT_SIZE32: u16 = 1 << 10;
}

const PRELOAD_LENGTH: Field = field(0, 0, 6);
const PRELOAD_OFFSET: Field = field(0, 7, 15);
/// Code for old firmware precedes the entry of kernels with preloaded arguments.
const PRELOAD_ENTRY_BYTES: u64 = 256;
const USER_SGPRS: usize = 16;

/// The processor's state.
pub(super) struct Aql {
    chip: Chip,
    pm4: Pm4,
    checked: bool,
}

/// A kernel descriptor as the firmware reads it.
struct Descriptor {
    group_bytes: u32,
    entry: u64,
    rsrc1: u32,
    rsrc2: u32,
    rsrc3: u32,
    properties: u16,
    preload: u32,
}

/// Address of the `amd_queue_t` around a queue's read pointer.
fn queue_struct(queue: &Queue) -> u64 {
    queue.setup.read_ptr_va.wrapping_sub(queue_offset::READ_DISPATCH_ID)
}

/// Stores an error mask into the inactive signal of an AQL queue, as far as there is one.
pub(crate) fn signal_inactive(gpu: &Gpu, queue: &Queue, mask: u64) {
    if queue.setup.kind != Kind::Aql {
        return;
    }
    let signal = gpu.vm.read_u64(queue_struct(queue).wrapping_add(queue_offset::QUEUE_INACTIVE_SIGNAL)).unwrap_or(0);
    if signal != 0 && gpu.vm.write_u64(signal.wrapping_add(signal_offset::VALUE), mask).is_ok() {
        let _no_mailbox = mail(gpu, signal);
    }
}

/// Writes a signal's event id to its mailbox and interrupts.
fn mail(gpu: &Gpu, signal: u64) -> Result<(), VmFault> {
    let mailbox = gpu.vm.read_u64(signal.wrapping_add(signal_offset::EVENT_MAILBOX_PTR))?;
    if mailbox != 0 {
        let id = gpu.vm.read_u32(signal.wrapping_add(signal_offset::EVENT_ID))?;
        gpu.vm.write_u64(mailbox, u64::from(id))?;
        gpu.interrupt(None, id);
    }
    Ok(())
}

impl Aql {
    pub(crate) fn new(chip: Chip, xccs: u32) -> Self {
        Self { chip, pm4: Pm4::new(chip, xccs), checked: false }
    }

    /// Runs the packet at the ring's read pointer; waits while its slot is still INVALID.
    pub(crate) fn step(&mut self, site: Site<'_>, work: &Work) -> Run<Step> {
        let vm = &site.gpu.vm;
        if !self.checked {
            check_queue(site, work)?;
            self.checked = true;
        }
        let slot = work.ring_va + work.get % (work.ring_bytes / PACKET_BYTES) * PACKET_BYTES;
        site.wait_until(|| Ok(vm.read_u32(slot)? & SLOT_TYPE_MASK != INVALID_HEADER))?;
        let words = vm.read_dwords(slot, PACKET_DWORDS).map_err(Cause::from)?;
        // PANIC: exactly so many were read.
        let words = <[u32; PACKET_DWORDS]>::try_from(words).expect("a slot");
        let packet = Packet::parse(&words).map_err(Cause::from)?;
        let start = site.gpu.clock.ticks();
        self.execute(site, &packet, slot, work.get).map_err(|mut stop: Box<Stop>| {
            stop.packet.get_or_insert_with(|| packet.to_string());
            stop
        })?;
        complete(site, packet.completion().0, start)?;
        vm.write_u32(slot, INVALID_HEADER).map_err(Cause::from)?;
        Ok(Step::Done(1))
    }

    fn execute(&mut self, site: Site<'_>, packet: &Packet, slot: u64, index: u64) -> Run<()> {
        match packet {
            Packet::Invalid => Ok(()),
            Packet::KernelDispatch(p) => Ok(self.dispatch(site, p, slot, index)?),
            Packet::Barrier(p) => {
                barrier(site, p)?;
                acquire_scope(site.gpu, p.header.acquire);
                release_scope(site.gpu, p.header.release);
                Ok(())
            }
            Packet::VendorPm4(p) => self.pm4.indirect(site, &p.ib),
            Packet::AgentDispatch(_) => {
                let what = "agent dispatch on a card".to_owned();
                Err(Cause::NotModelled { packet: "AQL", what }.into())
            }
        }
    }

    fn dispatch(&self, site: Site<'_>, p: &KernelDispatch, slot: u64, index: u64) -> Result<(), Cause> {
        let vm = &site.gpu.vm;
        let queue = read_queue(vm, queue_struct(site.queue))?;
        let (groups, last_partial) = check_grid(p)?;
        let descriptor = self.descriptor(vm, p.kernel_object.0)?;
        if p.group_bytes < descriptor.group_bytes {
            let what = format!("{} bytes of LDS, the descriptor wants {}", p.group_bytes, descriptor.group_bytes);
            return Err(bad(BadDispatch::GroupSegment, what));
        }
        let tmpring = TmpringSize::parse(facts_of(self.chip).gfx, queue.compute_tmpring_size);
        if p.private_bytes > queue.scratch_wave64_lane_bytes {
            let (asked, have) = (p.private_bytes, queue.scratch_wave64_lane_bytes);
            let what = format!("{asked} bytes of scratch a lane, the queue is set up for {have}");
            return Err(bad(BadDispatch::Scratch, what));
        }
        let (user_data, user_data_written) = user_sgprs(site, p, &descriptor, &queue, (slot, index))?;
        let mut rsrc2 = [descriptor.rsrc2];
        let granules = check_lds(p.group_bytes)?.div_ceil(LDS_GRANULE);
        RSRC2_LDS_SIZE
            .set(&mut rsrc2, "lds size", granules)
            .map_err(|e| bad(BadDispatch::GroupSegment, e.to_string()))?;
        let dispatch = Dispatch {
            chip: self.chip,
            entry: descriptor.entry,
            wave32: descriptor.properties & property::WAVEFRONT_SIZE32 != 0,
            groups,
            local: p.workgroup,
            last_partial,
            rsrc1: descriptor.rsrc1,
            rsrc2: rsrc2[0],
            rsrc3: descriptor.rsrc3,
            user_data,
            user_data_written,
            lds_bytes: granules * LDS_GRANULE,
            scratch_base: queue.scratch_backing,
            scratch_wave_bytes: tmpring.wave_bytes,
            scratch_waves: tmpring.waves,
        };
        acquire_scope(site.gpu, p.header.acquire);
        let reads_arguments = descriptor.properties & property::KERNARG_SEGMENT_PTR != 0;
        run_dispatch(site, &dispatch, reads_arguments.then_some(p.kernarg.0))?;
        release_scope(site.gpu, p.header.release);
        Ok(())
    }

    fn descriptor(&self, vm: &Vm, va: u64) -> Result<Descriptor, Cause> {
        let mut bytes = [0; 64];
        vm.read_bytes(va, &mut bytes)?;
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let code = |what: &str| bad(BadDispatch::Code, format!("descriptor at {va:#x}: {what}"));
        if bytes[12..16].iter().chain(&bytes[24..44]).chain(&bytes[60..]).any(|b| *b != 0) {
            return Err(code("reserved bytes are set"));
        }
        let offset = u64::from(word(16)) | u64::from(word(20)) << 32;
        let entry = va.wrapping_add(offset);
        if !entry.is_multiple_of(256) {
            return Err(code("the entry is not aligned to 256 bytes"));
        }
        let (properties, preload) = (half(56), u32::from(half(58)));
        if properties & property::WAVEFRONT_SIZE32 != 0 && !facts_of(self.chip).gfx.table().wave32 {
            return Err(code("wave32 on a chip that has waves of 64 only"));
        }
        let skip = if PRELOAD_LENGTH.get(&[preload]) > 0 { PRELOAD_ENTRY_BYTES } else { 0 };
        Ok(Descriptor {
            group_bytes: word(0),
            entry: entry.wrapping_add(skip),
            rsrc1: word(48),
            rsrc2: word(52),
            rsrc3: word(44),
            properties,
            preload,
        })
    }
}

fn read_queue(vm: &Vm, va: u64) -> Result<AmdQueue, VmFault> {
    let mut bytes = [0; AMD_QUEUE_BYTES];
    vm.read_bytes(va, &mut bytes)?;
    Ok(AmdQueue::parse(&bytes))
}

/// The firmware finds `amd_queue_t` around the pointers; what does not fit there would be read as garbage.
fn check_queue(site: Site<'_>, work: &Work) -> Result<(), Cause> {
    let refuse = |what: String| Err(Cause::QueueStruct(what));
    let va = queue_struct(site.queue);
    let queue = read_queue(&site.gpu.vm, va)?;
    let write_at = site.queue.setup.write_ptr_va.wrapping_sub(va);
    if write_at != queue_offset::WRITE_DISPATCH_ID {
        return refuse(format!("the write pointer is at offset {write_at:#x} of it, not at 0x38"));
    }
    let field = queue.read_dispatch_id_field_offset;
    if u64::from(field) != queue_offset::READ_DISPATCH_ID {
        return refuse(format!("read_dispatch_id_field_base_byte_offset is {field}, not 128"));
    }
    if queue.properties & QUEUE_PROPERTIES_IS_PTR64 == 0 {
        return refuse("queue_properties do not say 64-bit pointers".to_owned());
    }
    let slots = work.ring_bytes / PACKET_BYTES;
    if queue.base != 0 && queue.base != work.ring_va {
        return refuse(format!("base_address is {:#x}, the ring is at {:#x}", queue.base, work.ring_va));
    }
    if queue.size_packets != 0 && u64::from(queue.size_packets) != slots {
        return refuse(format!("size is {} packets, the ring has {slots}", queue.size_packets));
    }
    Ok(())
}

/// Workgroups, and lanes of the last ones.
fn check_grid(p: &KernelDispatch) -> Result<([u32; 3], [u32; 3]), Cause> {
    let used = p.dimensions as usize;
    if !(1..=3).contains(&used) || p.grid.contains(&0) {
        let what = format!("{} dimensions, grid {:?}", p.dimensions, p.grid);
        return Err(bad(BadDispatch::Dimensions, what));
    }
    if (used..3).any(|d| p.grid[d] != 1 || p.workgroup[d] != 1) {
        let what = format!("{used} dimensions, but grid {:?} of workgroups {:?}", p.grid, p.workgroup);
        return Err(bad(BadDispatch::Dimensions, what));
    }
    check_workgroup(p.workgroup)?;
    let groups = std::array::from_fn(|d| p.grid[d].div_ceil(p.workgroup[d]));
    let last = std::array::from_fn(|d| (p.grid[d] - 1) % p.workgroup[d] + 1);
    Ok((groups, last))
}

/// User SGPRs in the order of docs/amd.md 4.4.
fn user_sgprs(
    site: Site<'_>,
    p: &KernelDispatch,
    descriptor: &Descriptor,
    queue: &AmdQueue,
    (slot, index): (u64, u64),
) -> Result<(Vec<u32>, u32), Cause> {
    let mut words: Vec<u32> = Vec::with_capacity(USER_SGPRS);
    let scratch_lo_hi = split(queue.scratch_backing);
    let optional: [(u16, &[u32]); 7] = [
        (property::PRIVATE_SEGMENT_BUFFER, &queue.scratch_resource_descriptor),
        (property::DISPATCH_PTR, &split(slot)),
        (property::QUEUE_PTR, &split(queue_struct(site.queue))),
        (property::KERNARG_SEGMENT_PTR, &split(p.kernarg.0)),
        (property::DISPATCH_ID, &split(index)),
        (property::FLAT_SCRATCH_INIT, &scratch_lo_hi),
        (property::PRIVATE_SEGMENT_SIZE, &[p.private_bytes]),
    ];
    for (bit, values) in optional {
        if descriptor.properties & bit != 0 {
            words.extend_from_slice(values);
        }
    }
    let preload = [descriptor.preload];
    let (count, offset) = (PRELOAD_LENGTH.get(&preload), PRELOAD_OFFSET.get(&preload));
    words.extend(site.gpu.vm.read_dwords(p.kernarg.0.wrapping_add(4 * u64::from(offset)), count as usize)?);
    if words.len() > USER_SGPRS {
        let what = format!("{} user SGPRs, the hardware has {USER_SGPRS}", words.len());
        return Err(bad(BadDispatch::Code, what));
    }
    let written = (1_u32 << words.len()) - 1;
    words.resize(USER_SGPRS, 0);
    Ok((words, written))
}

/// Waits until all, or any, of the signals are 0.
fn barrier(site: Site<'_>, p: &Barrier) -> Result<(), Cause> {
    let signals: Vec<u64> = p.signals.iter().map(|s| s.0).filter(|va| *va != 0).collect();
    if signals.is_empty() {
        return Ok(());
    }
    site.wait_until(|| {
        let mut zeros = 0;
        for &signal in &signals {
            zeros += usize::from(site.gpu.vm.read_u64(signal.wrapping_add(signal_offset::VALUE))? == 0);
        }
        Ok(if p.any { zeros > 0 } else { zeros == signals.len() })
    })
}

/// Timestamps, decrement, mailbox, interrupt: in this order.
fn complete(site: Site<'_>, signal: u64, start: u64) -> Result<(), Cause> {
    if signal == 0 {
        return Ok(());
    }
    let vm = &site.gpu.vm;
    let properties = vm.read_u32(queue_struct(site.queue).wrapping_add(queue_offset::QUEUE_PROPERTIES))?;
    if properties & QUEUE_PROPERTIES_ENABLE_PROFILING != 0 {
        vm.write_u64(signal.wrapping_add(signal_offset::START_TS), start)?;
        vm.write_u64(signal.wrapping_add(signal_offset::END_TS), site.gpu.clock.ticks())?;
    }
    vm.update_u64(signal.wrapping_add(signal_offset::VALUE), |value| value.wrapping_sub(1))?;
    if vm.read_u64(signal.wrapping_add(signal_offset::EVENT_MAILBOX_PTR))? != 0 {
        interrupts(site.gpu, site.queue, "AQL completion")?;
    }
    Ok(mail(site.gpu, signal)?)
}
