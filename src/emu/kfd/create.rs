//! CREATE_QUEUE, UPDATE_QUEUE, DESTROY_QUEUE, SET_CU_MASK: every check the kernel makes, in its order.
//!
//! Source: docs/amd.md 1.5-1.7; `kfd_chardev.c` (set_queue_properties_from_user), `kfd_queue.c`
//! (kfd_queue_acquire_buffers).

use super::chip::EOP_BYTES;
use super::defect::Defect;
use super::driver::{State, bound, device_index};
use super::gpu::Gpu;
use super::memory::mmap_gpu_bits;
use super::queue::{Kind, Queue, Setup};
use super::{SoftKfd, vm::Vm};
use crate::kfd::chip::facts_of;
use doorbell_ioctl::abi::kfd::{
    CreateQueue, MAX_QUEUE_PERCENTAGE, MAX_QUEUE_PRIORITY, MIN_QUEUE_RING_SIZE, MINOR_SDMA_ENGINE, MMAP_TYPE_DOORBELL,
    MMAP_TYPE_SHIFT, QUEUE_TYPE_COMPUTE, QUEUE_TYPE_COMPUTE_AQL, QUEUE_TYPE_SDMA, QUEUE_TYPE_SDMA_BY_ENG_ID,
    QUEUE_TYPE_SDMA_XGMI, SetCuMask, UpdateQueue,
};
use doorbell_ioctl::port::{CpuPtr, Errno, read_process};
use std::sync::Arc;

/// The kernel's ENOTSUPP, which user space has no name for.
pub(crate) const ENOTSUPP: Errno = Errno(524);
/// First address that no process may use.
const TASK_SIZE: u64 = 0x7fff_ffff_f000;
/// Doorbells of compute queues, then those of SDMA queues, 8 bytes each.
const COMPUTE_SLOTS: std::ops::Range<u64> = 0..0x100;
const SDMA_SLOTS: std::ops::Range<u64> = 0x100..0x200;
const SLOT_BYTES: u64 = 8;
const CU_MASK_MOST: u32 = 1024;

/// Share of the device: the low byte; the next one names an XCC.
fn percentage(value: u32) -> u32 {
    value & 0xff
}

fn check_common(queue_percentage: u32, priority: u32, ring_va: u64, ring_bytes: u32) -> Result<(), Errno> {
    if percentage(queue_percentage) > MAX_QUEUE_PERCENTAGE || priority > MAX_QUEUE_PRIORITY {
        return Err(Errno::EINVAL);
    }
    check_user(ring_va)?;
    let size_ok = ring_bytes == 0 || ring_bytes.is_power_of_two() && ring_bytes >= MIN_QUEUE_RING_SIZE;
    if size_ok { Ok(()) } else { Err(Errno::EINVAL) }
}

/// access_ok: the address could be the process's.
fn check_user(va: u64) -> Result<(), Errno> {
    if va < TASK_SIZE { Ok(()) } else { Err(Errno::EFAULT) }
}

impl SoftKfd {
    pub(super) fn create_queue(&self, state: &mut State, args: &mut CreateQueue) -> Result<(), Errno> {
        check_common(args.queue_percentage, args.queue_priority, args.ring_base_address, args.ring_size)?;
        for va in [
            args.read_pointer_address,
            args.write_pointer_address,
            args.eop_buffer_address,
            args.ctx_save_restore_address,
        ] {
            check_user(va)?;
        }
        if args.ring_size == 0 {
            return Err(Errno::EINVAL);
        }
        let kind = self.queue_kind(args)?;
        let index = device_index(self, args.gpu_id).ok_or(Errno::EINVAL)?;
        bound(state, index, Errno::ESRCH)?;
        let gpu = &self.gpus[index];
        if args.queue_type == QUEUE_TYPE_SDMA_BY_ENG_ID && self.config.kfd_minor >= MINOR_SDMA_ENGINE {
            let facts = gpu.facts();
            if args.sdma_engine_id >= facts.num_sdma_engines + facts.num_sdma_xgmi_engines {
                return Err(Errno::EINVAL);
            }
        }
        let pinned = if self.config.check_queue_buffers {
            check_buffers(gpu, args, kind, self.config.page_bytes)?
        } else {
            Vec::new()
        };
        self.check_budget(gpu, kind)?;
        let slot = free_slot(gpu, kind).ok_or(Errno::ENOMEM)?;
        let id = state.take_queue_id();
        let setup = Setup {
            id,
            kind,
            read_ptr_va: args.read_pointer_address,
            write_ptr_va: args.write_pointer_address,
            has_eop: args.eop_buffer_address != 0,
            save_va: args.ctx_save_restore_address,
            doorbell_bytes: slot * SLOT_BYTES,
            xccs: gpu.facts().num_xcc,
            pinned,
        };
        gpu.vm.pin(&setup.pinned, true);
        let active = percentage(args.queue_percentage) > 0;
        let queue = Arc::new(Queue::new(setup, args.ring_base_address, u64::from(args.ring_size), active));
        gpu.start(&queue);
        args.queue_id = id;
        args.doorbell_offset = MMAP_TYPE_DOORBELL << MMAP_TYPE_SHIFT | mmap_gpu_bits(args.gpu_id) | (slot * SLOT_BYTES);
        Ok(())
    }

    fn queue_kind(&self, args: &CreateQueue) -> Result<Kind, Errno> {
        let xgmi_engine = args.sdma_engine_id >= facts_of(self.config.chip).num_sdma_engines;
        match args.queue_type {
            QUEUE_TYPE_COMPUTE => Ok(Kind::Pm4),
            QUEUE_TYPE_COMPUTE_AQL => Ok(Kind::Aql),
            QUEUE_TYPE_SDMA => Ok(Kind::Sdma { xgmi: false }),
            QUEUE_TYPE_SDMA_XGMI => Ok(Kind::Sdma { xgmi: true }),
            QUEUE_TYPE_SDMA_BY_ENG_ID if self.config.kfd_minor >= MINOR_SDMA_ENGINE => {
                Ok(Kind::Sdma { xgmi: xgmi_engine })
            }
            _ => Err(ENOTSUPP),
        }
    }

    fn check_budget(&self, gpu: &Gpu, kind: Kind) -> Result<(), Errno> {
        if gpu.queues().len() >= gpu.facts().max_queues {
            return Err(Errno::ENOSPC);
        }
        if let Kind::Sdma { xgmi } = kind {
            let used = self.machine.queues(gpu.gpu_id, kind);
            if used >= gpu.facts().sdma_queues(xgmi) as usize {
                return Err(Errno::ENOMEM);
            }
        }
        Ok(())
    }

    pub(super) fn destroy_queue(&self, state: &mut State, id: u32) -> Result<(), Errno> {
        if !self.gpus.iter().any(|gpu| gpu.destroy_queue(id)) {
            return Err(Errno::EINVAL);
        }
        state.give_queue_id(id);
        Ok(())
    }

    fn find_queue(&self, id: u32) -> Option<(&Gpu, Arc<Queue>)> {
        self.gpus.iter().find_map(|gpu| {
            let queue = gpu.queues().get(&id).map(Arc::clone)?;
            Some((&**gpu, queue))
        })
    }

    pub(super) fn update_queue(&self, args: &UpdateQueue) -> Result<(), Errno> {
        check_common(args.queue_percentage, args.queue_priority, args.ring_base_address, args.ring_size)?;
        let (gpu, queue) = self.find_queue(args.queue_id).ok_or(Errno::EFAULT)?;
        let (va, bytes) = (args.ring_base_address, u64::from(args.ring_size));
        let runs = va != 0 && bytes != 0;
        if runs && self.config.check_queue_buffers && !is_buffer(&gpu.vm, va, bytes, self.config.page_bytes) {
            return Err(Errno::EFAULT);
        }
        if self.config.defect == Some(Defect::UpdateIgnored) {
            return Ok(());
        }
        queue.change(|control| {
            control.active = runs && percentage(args.queue_percentage) > 0;
            if runs {
                (control.ring_va, control.ring_bytes) = (va, bytes);
            }
        });
        Ok(())
    }

    /// Saved waves of a queue: the kernel has none of running queues and copy queues, this driver none at all.
    pub(super) fn wave_state(&self, id: u32) -> Result<(), Errno> {
        let (_, queue) = self.find_queue(id).ok_or(Errno::EFAULT)?;
        let is_copy = matches!(queue.setup.kind, Kind::Sdma { .. });
        if is_copy || queue.control().active {
            return Err(Errno::EINVAL);
        }
        Err(self.unmodelled(&doorbell_ioctl::abi::kfd::GET_QUEUE_WAVE_STATE.desc))
    }

    /// The mask is checked; CUs are not excluded here.
    pub(super) fn set_cu_mask(&self, args: &SetCuMask) -> Result<(), Errno> {
        if args.num_cu_mask == 0 || !args.num_cu_mask.is_multiple_of(32) {
            return Err(Errno::EINVAL);
        }
        let dwords = args.num_cu_mask.min(CU_MASK_MOST) / 32;
        let mut bytes = vec![0; dwords as usize * 4];
        read_process(CpuPtr(args.cu_mask_ptr), &mut bytes)?;
        let (gpu, _) = self.find_queue(args.queue_id).ok_or(Errno::EFAULT)?;
        // Chips with WGPs require both CUs of a pair or none.
        let paired = bytes.iter().all(|b| b & 0x55 == (b >> 1) & 0x55);
        if gpu.facts().gfx.table().gcr && !paired { Err(Errno::EINVAL) } else { Ok(()) }
    }
}

/// A mapping starts at `va` and has exactly these pages. As in the kernel, less than a page fits any mapping.
fn is_buffer(vm: &Vm, va: u64, len_bytes: u64, page: u64) -> bool {
    let whole_pages = len_bytes / page * page;
    vm.extent(va).is_some_and(|(start, have)| start == va && (whole_pages == 0 || have == whole_pages))
}

/// The buffers that CREATE_QUEUE names, by their first addresses.
fn check_buffers(gpu: &Gpu, args: &CreateQueue, kind: Kind, page: u64) -> Result<Vec<u64>, Errno> {
    let mut held = Vec::new();
    let mut hold = |va: u64, len_bytes: u64| {
        if !is_buffer(&gpu.vm, va, len_bytes, page) {
            return Err(Errno::EINVAL);
        }
        held.push(va);
        Ok(())
    };
    hold(args.write_pointer_address & !(page - 1), page)?;
    hold(args.read_pointer_address & !(page - 1), page)?;
    hold(args.ring_base_address, u64::from(args.ring_size))?;
    if matches!(kind, Kind::Sdma { .. }) {
        return Ok(held);
    }
    if args.eop_buffer_address != 0 {
        if args.eop_buffer_size != EOP_BYTES {
            return Err(Errno::EINVAL);
        }
        hold(args.eop_buffer_address, EOP_BYTES.next_multiple_of(page))?;
    }
    let facts = gpu.facts();
    let area = facts.save_area(page);
    if args.ctl_stack_size != area.ctl_stack_bytes || args.ctx_save_restore_size < area.cwsr_bytes {
        return Err(Errno::EINVAL);
    }
    let one = u64::from(args.ctx_save_restore_size) + u64::from(area.debug_bytes);
    hold(args.ctx_save_restore_address, (one * u64::from(facts.num_xcc)).next_multiple_of(page))?;
    Ok(held)
}

fn free_slot(gpu: &Gpu, kind: Kind) -> Option<u64> {
    let queues = gpu.queues();
    let used = |slot: u64| queues.values().any(|q| q.setup.doorbell_bytes == slot * SLOT_BYTES);
    let mut slots = if matches!(kind, Kind::Sdma { .. }) { SDMA_SLOTS } else { COMPUTE_SLOTS };
    slots.find(|slot| !used(*slot))
}
