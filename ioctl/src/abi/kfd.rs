//! KFD, the compute driver of AMD GPUs: `/dev/kfd`, ioctl type `K`.
//!
//! Source: `include/uapi/linux/kfd_ioctl.h` of Linux 6.1 (interface 1.11) to 6.12 (1.17). The driver picks the handler
//! by number alone and copies as many bytes as the request word says, so an older, shorter struct works on a newer
//! kernel. Tested range: interface 1.11 to 1.17.

use super::{Count, Desc, Dir, Element, Embedded, Ioctl, Kind};
use Kind::{
    Address, Dec, Enum, EventId, Fd, Flags, GpuId, Handle, Hex, MapOffset, Nested, Pointer, QueueId, Reserved, Signed,
    Union, Words,
};

const K: u8 = b'K';

/// The interface's major number; another one is another interface.
pub const KFD_IOCTL_MAJOR_VERSION: u32 = 1;
/// Minors that this code was written and tested for.
pub const TESTED_MINORS: std::ops::RangeInclusive<u32> = 11..=17;
/// Since this minor, RUNTIME_ENABLE belongs to the bring-up and signal events carry an age.
pub const MINOR_EVENT_AGE: u32 = 14;
/// Since this minor, CREATE_QUEUE has its longer form.
pub const MINOR_SDMA_ENGINE: u32 = 17;

pub const QUEUE_TYPE_COMPUTE: u32 = 0;
pub const QUEUE_TYPE_SDMA: u32 = 1;
pub const QUEUE_TYPE_COMPUTE_AQL: u32 = 2;
pub const QUEUE_TYPE_SDMA_XGMI: u32 = 3;
/// Since 1.17.
pub const QUEUE_TYPE_SDMA_BY_ENG_ID: u32 = 4;
const QUEUE_TYPES: &[(u64, &str)] =
    &[(0, "COMPUTE"), (1, "SDMA"), (2, "COMPUTE_AQL"), (3, "SDMA_XGMI"), (4, "SDMA_BY_ENG_ID")];

pub const MAX_QUEUE_PERCENTAGE: u32 = 100;
pub const MAX_QUEUE_PRIORITY: u32 = 15;
pub const MIN_QUEUE_RING_SIZE: u32 = 1024;

pub const EVENT_SIGNAL: u32 = 0;
pub const EVENT_HW_EXCEPTION: u32 = 3;
pub const EVENT_DEBUG: u32 = 5;
pub const EVENT_MEMORY: u32 = 8;
const EVENT_TYPES: &[(u64, &str)] = &[
    (0, "SIGNAL"),
    (1, "NODECHANGE"),
    (2, "DEVICESTATECHANGE"),
    (3, "HW_EXCEPTION"),
    (4, "SYSTEM_EVENT"),
    (5, "DEBUG_EVENT"),
    (6, "PROFILE_EVENT"),
    (7, "QUEUE_EVENT"),
    (8, "MEMORY"),
];
pub const SIGNAL_EVENT_LIMIT: u32 = 4096;

pub const WAIT_RESULT_COMPLETE: u32 = 0;
pub const WAIT_RESULT_TIMEOUT: u32 = 1;
pub const WAIT_RESULT_FAIL: u32 = 2;

pub const ALLOC_MEM_FLAGS_VRAM: u32 = 1 << 0;
pub const ALLOC_MEM_FLAGS_GTT: u32 = 1 << 1;
pub const ALLOC_MEM_FLAGS_USERPTR: u32 = 1 << 2;
pub const ALLOC_MEM_FLAGS_DOORBELL: u32 = 1 << 3;
pub const ALLOC_MEM_FLAGS_MMIO_REMAP: u32 = 1 << 4;
pub const ALLOC_MEM_FLAGS_CONTIGUOUS: u32 = 1 << 23;
pub const ALLOC_MEM_FLAGS_EXT_COHERENT: u32 = 1 << 24;
pub const ALLOC_MEM_FLAGS_UNCACHED: u32 = 1 << 25;
pub const ALLOC_MEM_FLAGS_COHERENT: u32 = 1 << 26;
pub const ALLOC_MEM_FLAGS_AQL_QUEUE_MEM: u32 = 1 << 27;
pub const ALLOC_MEM_FLAGS_NO_SUBSTITUTE: u32 = 1 << 28;
pub const ALLOC_MEM_FLAGS_PUBLIC: u32 = 1 << 29;
pub const ALLOC_MEM_FLAGS_EXECUTABLE: u32 = 1 << 30;
pub const ALLOC_MEM_FLAGS_WRITABLE: u32 = 1 << 31;
const ALLOC_FLAGS: &[(u64, &str)] = &[
    (1 << 0, "VRAM"),
    (1 << 1, "GTT"),
    (1 << 2, "USERPTR"),
    (1 << 3, "DOORBELL"),
    (1 << 4, "MMIO_REMAP"),
    (1 << 23, "CONTIGUOUS"),
    (1 << 24, "EXT_COHERENT"),
    (1 << 25, "UNCACHED"),
    (1 << 26, "COHERENT"),
    (1 << 27, "AQL_QUEUE_MEM"),
    (1 << 28, "NO_SUBSTITUTE"),
    (1 << 29, "PUBLIC"),
    (1 << 30, "EXECUTABLE"),
    (1 << 31, "WRITABLE"),
];

const SVM_OPS: &[(u64, &str)] = &[(0, "SET_ATTR"), (1, "GET_ATTR")];
const SVM_ATTRIBUTES: &[(u64, &str)] = &[
    (0, "PREFERRED_LOC"),
    (1, "PREFETCH_LOC"),
    (2, "ACCESS"),
    (3, "ACCESS_IN_PLACE"),
    (4, "NO_ACCESS"),
    (5, "SET_FLAGS"),
    (6, "CLR_FLAGS"),
    (7, "GRANULARITY"),
];
const CRIU_OPS: &[(u64, &str)] =
    &[(0, "PROCESS_INFO"), (1, "CHECKPOINT"), (2, "UNPAUSE"), (3, "RESTORE"), (4, "RESUME")];
const CACHE_POLICIES: &[(u64, &str)] = &[(0, "COHERENT"), (1, "NONCOHERENT")];
const WAIT_RESULTS: &[(u64, &str)] = &[(0, "COMPLETE"), (1, "TIMEOUT"), (2, "FAIL")];
const RUNTIME_MODES: &[(u64, &str)] = &[(1, "ENABLE"), (2, "TTMP_SAVE")];

/// Type bits 63:62 of an mmap offset of the kfd file.
pub const MMAP_TYPE_SHIFT: u32 = 62;
pub const MMAP_TYPE_MMIO: u64 = 0;
pub const MMAP_TYPE_EVENTS: u64 = 2;
pub const MMAP_TYPE_DOORBELL: u64 = 3;
/// A process's doorbells on one device: 1024 slots of 8 bytes (gfx9 and later).
pub const DOORBELL_SLICE_BYTES: u64 = 0x2000;

abi_struct! {
    /// The interface's version.
    GetVersion = "struct kfd_ioctl_get_version_args", 8 {
        major_version: u32, Out, Dec;
        minor_version: u32, Out, Dec;
    }
}

abi_struct! {
    /// CREATE_QUEUE up to 1.16. Addresses are GPU addresses of mapped buffers; all must have the sizes that the kernel
    /// checks since 6.12.
    CreateQueueV11 = "struct kfd_ioctl_create_queue_args", 88 {
        ring_base_address: u64, In, Address;
        /// Where the write pointer is stored: a page of its own.
        write_pointer_address: u64, In, Address;
        read_pointer_address: u64, In, Address;
        /// mmap offset of the doorbell slice, with the byte offset of this queue's doorbell in its low bits.
        doorbell_offset: u64, Out, MapOffset;
        /// Bytes, a power of two.
        ring_size: u32, In, Hex;
        gpu_id: u32, In, GpuId;
        queue_type: u32, In, Enum(QUEUE_TYPES);
        /// Bits 7:0 share of the device in percent; bits 15:8 target XCC of a PM4 queue.
        queue_percentage: u32, In, Dec;
        queue_priority: u32, In, Dec;
        queue_id: u32, Out, QueueId;
        eop_buffer_address: u64, In, Address;
        eop_buffer_size: u64, In, Hex;
        ctx_save_restore_address: u64, In, Address;
        ctx_save_restore_size: u32, In, Hex;
        ctl_stack_size: u32, In, Hex;
    }
}

abi_struct! {
    /// CREATE_QUEUE since 1.17.
    CreateQueue = "struct kfd_ioctl_create_queue_args", 96 {
        ring_base_address: u64, In, Address;
        write_pointer_address: u64, In, Address;
        read_pointer_address: u64, In, Address;
        doorbell_offset: u64, Out, MapOffset;
        ring_size: u32, In, Hex;
        gpu_id: u32, In, GpuId;
        queue_type: u32, In, Enum(QUEUE_TYPES);
        queue_percentage: u32, In, Dec;
        queue_priority: u32, In, Dec;
        queue_id: u32, Out, QueueId;
        eop_buffer_address: u64, In, Address;
        eop_buffer_size: u64, In, Hex;
        ctx_save_restore_address: u64, In, Address;
        ctx_save_restore_size: u32, In, Hex;
        ctl_stack_size: u32, In, Hex;
        /// Looked at for type SDMA_BY_ENG_ID only.
        sdma_engine_id: u32, In, Dec;
        pad: u32, In, Reserved;
    }
}

abi_struct! {
    DestroyQueue = "struct kfd_ioctl_destroy_queue_args", 8 {
        queue_id: u32, In, QueueId;
        pad: u32, In, Reserved;
    }
}

abi_struct! {
    SetMemoryPolicy = "struct kfd_ioctl_set_memory_policy_args", 32 {
        alternate_aperture_base: u64, In, Address;
        alternate_aperture_size: u64, In, Hex;
        gpu_id: u32, In, GpuId;
        default_policy: u32, In, Enum(CACHE_POLICIES);
        alternate_policy: u32, In, Enum(CACHE_POLICIES);
        pad: u32, In, Reserved;
    }
}

abi_struct! {
    /// Clocks read together.
    GetClockCounters = "struct kfd_ioctl_get_clock_counters_args", 40 {
        /// Ticks of the GPU's counter.
        gpu_clock_counter: u64, Out, Dec;
        /// Nanoseconds of the raw monotonic clock.
        cpu_clock_counter: u64, Out, Dec;
        /// Nanoseconds since boot, time asleep included.
        system_clock_counter: u64, Out, Dec;
        /// Hertz of the system counter.
        system_clock_freq: u64, Out, Dec;
        gpu_id: u32, In, GpuId;
        pad: u32, In, Reserved;
    }
}

abi_struct! {
    /// Address windows of one device.
    ProcessDeviceApertures = "struct kfd_process_device_apertures", 56 {
        lds_base: u64, Out, Address;
        lds_limit: u64, Out, Address;
        scratch_base: u64, Out, Address;
        scratch_limit: u64, Out, Address;
        gpuvm_base: u64, Out, Address;
        gpuvm_limit: u64, Out, Address;
        gpu_id: u32, Out, GpuId;
        pad: u32, Out, Reserved;
    }
}

abi_struct! {
    GetProcessApertures = "struct kfd_ioctl_get_process_apertures_args", 400 {
        process_apertures: [ProcessDeviceApertures; 7], Out, Nested(&ProcessDeviceApertures::LAYOUT);
        num_of_nodes: u32, Out, Dec;
        pad: u32, Out, Reserved;
    }
}

abi_struct! {
    GetProcessAperturesNew = "struct kfd_ioctl_get_process_apertures_new_args", 16 {
        kfd_process_device_apertures_ptr: u64, In, Pointer;
        /// In: elements that there is room for. Out: devices.
        num_of_nodes: u32, InOut, Dec;
        pad: u32, In, Reserved;
    }
}

abi_struct! {
    /// Percentage 0 or ring 0 stops the queue and keeps its mapped state.
    UpdateQueue = "struct kfd_ioctl_update_queue_args", 24 {
        ring_base_address: u64, In, Address;
        queue_id: u32, In, QueueId;
        ring_size: u32, In, Hex;
        queue_percentage: u32, In, Dec;
        queue_priority: u32, In, Dec;
    }
}

abi_struct! {
    SetCuMask = "struct kfd_ioctl_set_cu_mask_args", 16 {
        queue_id: u32, In, QueueId;
        /// Bits, a multiple of 32.
        num_cu_mask: u32, In, Dec;
        cu_mask_ptr: u64, In, Pointer;
    }
}

abi_struct! {
    GetQueueWaveState = "struct kfd_ioctl_get_queue_wave_state_args", 24 {
        ctl_stack_address: u64, In, Address;
        ctl_stack_used_size: u32, Out, Hex;
        save_area_used_size: u32, Out, Hex;
        queue_id: u32, In, QueueId;
        pad: u32, In, Reserved;
    }
}

abi_struct! {
    /// Bytes of VRAM that can still be allocated.
    GetAvailableMemory = "struct kfd_ioctl_get_available_memory_args", 16 {
        available: u64, Out, Hex;
        gpu_id: u32, In, GpuId;
        pad: u32, In, Reserved;
    }
}

abi_struct! {
    /// A signal event is signalled by a store of anything but all-ones to its slot (8 bytes each) and an interrupt with
    /// its id.
    CreateEvent = "struct kfd_ioctl_create_event_args", 32 {
        /// Of the first event: the handle of the buffer that holds the slots. Later: 0.
        event_page_offset: u64, InOut, Handle;
        event_trigger_data: u32, Out, Hex;
        event_type: u32, In, Enum(EVENT_TYPES);
        /// 1: a waiter that takes the event clears it.
        auto_reset: u32, In, Dec;
        node_id: u32, In, Dec;
        event_id: u32, Out, EventId;
        event_slot_index: u32, Out, Dec;
    }
}

abi_struct! {
    DestroyEvent = "struct kfd_ioctl_destroy_event_args", 8 {
        event_id: u32, In, EventId;
        pad: u32, In, Reserved;
    }
}

abi_struct! {
    SetEvent = "struct kfd_ioctl_set_event_args", 8 {
        event_id: u32, In, EventId;
        pad: u32, In, Reserved;
    }
}

abi_struct! {
    ResetEvent = "struct kfd_ioctl_reset_event_args", 8 {
        event_id: u32, In, EventId;
        pad: u32, In, Reserved;
    }
}

abi_struct! {
    /// The payload of a memory event. `gpu_id` is 0 when nothing has happened.
    MemoryException = "struct kfd_hsa_memory_exception_data", 32 {
        not_present as "failure.NotPresent": u32, Out, Dec;
        read_only as "failure.ReadOnly": u32, Out, Dec;
        no_execute as "failure.NoExecute": u32, Out, Dec;
        imprecise as "failure.imprecise": u32, Out, Dec;
        /// Address of the page.
        va: u64, Out, Address;
        gpu_id: u32, Out, GpuId;
        /// 0 none, 1 SRAM ECC, 2 poison consumed, 3 GPU hang.
        error_type as "ErrorType": u32, Out, Dec;
    }
}

abi_struct! {
    /// The payload of a hardware exception. `gpu_id` is 0 when nothing has happened.
    HwException = "struct kfd_hsa_hw_exception_data", 16 {
        /// 0 whole GPU, 1 per engine.
        reset_type: u32, Out, Dec;
        /// 0 hang, 1 ECC.
        reset_cause: u32, Out, Dec;
        /// 1: the contents of VRAM are gone.
        memory_lost: u32, Out, Dec;
        gpu_id: u32, Out, GpuId;
    }
}

abi_struct! {
    /// Since 1.14: 0 to ignore; else the last age seen, to detect a signal between two waits.
    SignalEvent = "struct kfd_hsa_signal_event_data", 8 {
        last_event_age: u64, InOut, Dec;
    }
}

abi_struct! {
    /// One element of WAIT_EVENTS' array. `payload` is a [`MemoryException`], [`HwException`] or [`SignalEvent`], by
    /// the event's type.
    EventData = "struct kfd_event_data", 48 {
        payload as "memory_exception_data": [u64; 4], InOut, Union(&[
            ("memory_exception_data", &MemoryException::LAYOUT),
            ("hw_exception_data", &HwException::LAYOUT),
            ("signal_event_data", &SignalEvent::LAYOUT),
        ]);
        kfd_event_data_ext: u64, InOut, Address;
        event_id: u32, InOut, EventId;
        pad: u32, InOut, Reserved;
    }
}

impl EventData {
    /// The payload of a memory event.
    #[must_use]
    pub fn memory_exception(&self) -> MemoryException {
        bytemuck::cast(self.payload)
    }

    /// The payload of a hardware exception event.
    #[must_use]
    pub fn hw_exception(&self) -> HwException {
        let [a, b, ..] = self.payload;
        bytemuck::cast([a, b])
    }
}

abi_struct! {
    WaitEvents = "struct kfd_ioctl_wait_events_args", 24 {
        events_ptr: u64, In, Pointer;
        num_events: u32, In, Dec;
        wait_for_all: u32, In, Dec;
        /// Milliseconds; 0 polls, all-ones waits without limit.
        timeout: u32, In, Dec;
        wait_result: u32, Out, Enum(WAIT_RESULTS);
    }
}

abi_struct! {
    SetScratchBackingVa = "struct kfd_ioctl_set_scratch_backing_va_args", 16 {
        va_addr: u64, In, Address;
        gpu_id: u32, In, GpuId;
        pad: u32, In, Reserved;
    }
}

abi_struct! {
    GetTileConfig = "struct kfd_ioctl_get_tile_config_args", 40 {
        tile_config_ptr: u64, In, Pointer;
        macro_tile_config_ptr: u64, In, Pointer;
        num_tile_configs: u32, InOut, Dec;
        num_macro_tile_configs: u32, InOut, Dec;
        gpu_id: u32, In, GpuId;
        gb_addr_config: u32, Out, Hex;
        num_banks: u32, Out, Dec;
        num_ranks: u32, Out, Dec;
    }
}

abi_struct! {
    SetTrapHandler = "struct kfd_ioctl_set_trap_handler_args", 24 {
        tba_addr: u64, In, Address;
        tma_addr: u64, In, Address;
        gpu_id: u32, In, GpuId;
        pad: u32, In, Reserved;
    }
}

abi_struct! {
    /// Ties the process's address space on a device to an open render node, which must stay open.
    AcquireVm = "struct kfd_ioctl_acquire_vm_args", 8 {
        drm_fd: u32, In, Fd;
        gpu_id: u32, In, GpuId;
    }
}

abi_struct! {
    /// `va_addr` is an address that the process has reserved; the CPU maps `mmap_offset` of the render node there.
    AllocMemoryOfGpu = "struct kfd_ioctl_alloc_memory_of_gpu_args", 40 {
        va_addr: u64, In, Address;
        size: u64, In, Hex;
        handle: u64, Out, Handle;
        /// In, for USERPTR: the CPU address. Out otherwise.
        mmap_offset: u64, InOut, MapOffset;
        gpu_id: u32, In, GpuId;
        flags: u32, In, Flags(ALLOC_FLAGS);
    }
}

abi_struct! {
    FreeMemoryOfGpu = "struct kfd_ioctl_free_memory_of_gpu_args", 8 {
        handle: u64, In, Handle;
    }
}

abi_struct! {
    MapMemoryToGpu = "struct kfd_ioctl_map_memory_to_gpu_args", 24 {
        handle: u64, In, Handle;
        /// gpu ids, 32 bits each.
        device_ids_array_ptr: u64, In, Pointer;
        n_devices: u32, In, Dec;
        /// Devices at the array's start that have it already.
        n_success: u32, InOut, Dec;
    }
}

abi_struct! {
    UnmapMemoryFromGpu = "struct kfd_ioctl_unmap_memory_from_gpu_args", 24 {
        handle: u64, In, Handle;
        device_ids_array_ptr: u64, In, Pointer;
        n_devices: u32, In, Dec;
        n_success: u32, InOut, Dec;
    }
}

abi_struct! {
    AllocQueueGws = "struct kfd_ioctl_alloc_queue_gws_args", 16 {
        queue_id: u32, In, QueueId;
        num_gws: u32, In, Dec;
        first_gws: u32, Out, Dec;
        pad: u32, In, Reserved;
    }
}

abi_struct! {
    GetDmabufInfo = "struct kfd_ioctl_get_dmabuf_info_args", 32 {
        size: u64, Out, Hex;
        metadata_ptr: u64, In, Pointer;
        metadata_size: u32, InOut, Dec;
        gpu_id: u32, Out, GpuId;
        flags: u32, Out, Flags(ALLOC_FLAGS);
        dmabuf_fd: u32, In, Fd;
    }
}

abi_struct! {
    ImportDmabuf = "struct kfd_ioctl_import_dmabuf_args", 24 {
        va_addr: u64, In, Address;
        handle: u64, Out, Handle;
        gpu_id: u32, In, GpuId;
        dmabuf_fd: u32, In, Fd;
    }
}

abi_struct! {
    ExportDmabuf = "struct kfd_ioctl_export_dmabuf_args", 16 {
        handle: u64, In, Handle;
        /// O_CLOEXEC, O_RDWR.
        flags: u32, In, Hex;
        dmabuf_fd: u32, Out, Fd;
    }
}

abi_struct! {
    SmiEvents = "struct kfd_ioctl_smi_events_args", 8 {
        gpuid: u32, In, GpuId;
        anon_fd: u32, Out, Fd;
    }
}

abi_struct! {
    CriuDeviceBucket = "struct kfd_criu_device_bucket", 16 {
        user_gpu_id: u32, InOut, GpuId;
        actual_gpu_id: u32, InOut, GpuId;
        drm_fd: u32, InOut, Fd;
        pad: u32, InOut, Reserved;
    }
}

abi_struct! {
    CriuBoBucket = "struct kfd_criu_bo_bucket", 48 {
        addr: u64, InOut, Address;
        size: u64, InOut, Hex;
        offset: u64, InOut, Hex;
        restored_offset: u64, InOut, Hex;
        gpu_id: u32, InOut, GpuId;
        alloc_flags: u32, InOut, Flags(ALLOC_FLAGS);
        dmabuf_fd: u32, InOut, Fd;
        pad: u32, InOut, Reserved;
    }
}

abi_struct! {
    Criu = "struct kfd_ioctl_criu_args", 56 {
        devices: u64, In, Pointer;
        bos: u64, In, Pointer;
        priv_data: u64, In, Pointer;
        priv_data_size: u64, InOut, Hex;
        num_devices: u32, InOut, Dec;
        num_bos: u32, InOut, Dec;
        num_objects: u32, InOut, Dec;
        pid: u32, InOut, Dec;
        op: u32, In, Enum(CRIU_OPS);
        tail as "": u32, In, Reserved;
    }
}

abi_struct! {
    SvmAttribute = "struct kfd_ioctl_svm_attribute", 8 {
        ty as "type": u32, InOut, Enum(SVM_ATTRIBUTES);
        value: u32, InOut, Hex;
    }
}

abi_struct! {
    /// `nattr` attributes follow the struct; the request word carries the true size.
    Svm = "struct kfd_ioctl_svm_args", 24 {
        start_addr: u64, In, Address;
        size: u64, In, Hex;
        op: u32, In, Enum(SVM_OPS);
        nattr: u32, In, Dec;
    }
}

abi_struct! {
    /// -1 queries, 0 off, 1 on.
    SetXnackMode = "struct kfd_ioctl_set_xnack_mode_args", 4 {
        xnack_enabled: i32, InOut, Signed;
    }
}

abi_struct! {
    /// Mode 0 resets the process's debug settings.
    RuntimeEnable = "struct kfd_ioctl_runtime_enable_args", 16 {
        r_debug: u64, In, Address;
        mode_mask: u32, In, Flags(RUNTIME_MODES);
        capabilities_mask: u32, Out, Hex;
    }
}

abi_struct! {
    DbgTrap = "struct kfd_ioctl_dbg_trap_args", 32 {
        pid: u32, In, Dec;
        op: u32, In, Dec;
        /// By `op`.
        args as "": [u32; 6], InOut, Words;
    }
}

abi_struct! {
    /// Heads each XCC's part of a context-save area.
    ContextSaveAreaHeader = "struct kfd_context_save_area_header", 40 {
        control_stack_offset as "wave_state.control_stack_offset": u32, Out, Hex;
        control_stack_size as "wave_state.control_stack_size": u32, Out, Hex;
        wave_state_offset as "wave_state.wave_state_offset": u32, Out, Hex;
        wave_state_size as "wave_state.wave_state_size": u32, Out, Hex;
        debug_offset: u32, In, Hex;
        debug_size: u32, In, Hex;
        err_payload_addr: u64, In, Address;
        err_event_id: u32, In, EventId;
        reserved1: u32, In, Reserved;
    }
}

const fn pointed(pointer: &'static str, element: Element, count: Count, dir: Dir) -> Embedded {
    Embedded { pointer, element, count, dir }
}

pub const GET_VERSION: Ioctl<GetVersion> = Ioctl::read(K, 0x01, "AMDKFD_IOC_GET_VERSION", &GetVersion::LAYOUT);
pub const CREATE_QUEUE: Ioctl<CreateQueue> =
    Ioctl::both(K, 0x02, "AMDKFD_IOC_CREATE_QUEUE", &CreateQueue::LAYOUT).since(MINOR_SDMA_ENGINE);
pub const CREATE_QUEUE_V11: Ioctl<CreateQueueV11> =
    Ioctl::both(K, 0x02, "AMDKFD_IOC_CREATE_QUEUE", &CreateQueueV11::LAYOUT).until(MINOR_SDMA_ENGINE - 1);
pub const DESTROY_QUEUE: Ioctl<DestroyQueue> = Ioctl::both(K, 0x03, "AMDKFD_IOC_DESTROY_QUEUE", &DestroyQueue::LAYOUT);
pub const SET_MEMORY_POLICY: Ioctl<SetMemoryPolicy> =
    Ioctl::write(K, 0x04, "AMDKFD_IOC_SET_MEMORY_POLICY", &SetMemoryPolicy::LAYOUT);
pub const GET_CLOCK_COUNTERS: Ioctl<GetClockCounters> =
    Ioctl::both(K, 0x05, "AMDKFD_IOC_GET_CLOCK_COUNTERS", &GetClockCounters::LAYOUT);
pub const GET_PROCESS_APERTURES: Ioctl<GetProcessApertures> =
    Ioctl::read(K, 0x06, "AMDKFD_IOC_GET_PROCESS_APERTURES", &GetProcessApertures::LAYOUT);
pub const UPDATE_QUEUE: Ioctl<UpdateQueue> = Ioctl::write(K, 0x07, "AMDKFD_IOC_UPDATE_QUEUE", &UpdateQueue::LAYOUT);
pub const CREATE_EVENT: Ioctl<CreateEvent> = Ioctl::both(K, 0x08, "AMDKFD_IOC_CREATE_EVENT", &CreateEvent::LAYOUT);
pub const DESTROY_EVENT: Ioctl<DestroyEvent> = Ioctl::write(K, 0x09, "AMDKFD_IOC_DESTROY_EVENT", &DestroyEvent::LAYOUT);
pub const SET_EVENT: Ioctl<SetEvent> = Ioctl::write(K, 0x0a, "AMDKFD_IOC_SET_EVENT", &SetEvent::LAYOUT);
pub const RESET_EVENT: Ioctl<ResetEvent> = Ioctl::write(K, 0x0b, "AMDKFD_IOC_RESET_EVENT", &ResetEvent::LAYOUT);
pub const WAIT_EVENTS: Ioctl<WaitEvents> = Ioctl::both(K, 0x0c, "AMDKFD_IOC_WAIT_EVENTS", &WaitEvents::LAYOUT)
    .embedding(&[pointed("events_ptr", Element::Struct(&EventData::LAYOUT), Count::Field("num_events"), Dir::InOut)]);
pub const SET_SCRATCH_BACKING_VA: Ioctl<SetScratchBackingVa> =
    Ioctl::both(K, 0x11, "AMDKFD_IOC_SET_SCRATCH_BACKING_VA", &SetScratchBackingVa::LAYOUT);
pub const GET_TILE_CONFIG: Ioctl<GetTileConfig> =
    Ioctl::both(K, 0x12, "AMDKFD_IOC_GET_TILE_CONFIG", &GetTileConfig::LAYOUT).embedding(&[
        pointed("tile_config_ptr", Element::U32, Count::Field("num_tile_configs"), Dir::Out),
        pointed("macro_tile_config_ptr", Element::U32, Count::Field("num_macro_tile_configs"), Dir::Out),
    ]);
pub const SET_TRAP_HANDLER: Ioctl<SetTrapHandler> =
    Ioctl::write(K, 0x13, "AMDKFD_IOC_SET_TRAP_HANDLER", &SetTrapHandler::LAYOUT);
pub const GET_PROCESS_APERTURES_NEW: Ioctl<GetProcessAperturesNew> =
    Ioctl::both(K, 0x14, "AMDKFD_IOC_GET_PROCESS_APERTURES_NEW", &GetProcessAperturesNew::LAYOUT).embedding(&[
        pointed(
            "kfd_process_device_apertures_ptr",
            Element::Struct(&ProcessDeviceApertures::LAYOUT),
            Count::Field("num_of_nodes"),
            Dir::Out,
        ),
    ]);
pub const ACQUIRE_VM: Ioctl<AcquireVm> = Ioctl::write(K, 0x15, "AMDKFD_IOC_ACQUIRE_VM", &AcquireVm::LAYOUT);
pub const ALLOC_MEMORY_OF_GPU: Ioctl<AllocMemoryOfGpu> =
    Ioctl::both(K, 0x16, "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU", &AllocMemoryOfGpu::LAYOUT);
pub const FREE_MEMORY_OF_GPU: Ioctl<FreeMemoryOfGpu> =
    Ioctl::write(K, 0x17, "AMDKFD_IOC_FREE_MEMORY_OF_GPU", &FreeMemoryOfGpu::LAYOUT);
const DEVICE_IDS: &[Embedded] = &[pointed("device_ids_array_ptr", Element::U32, Count::Field("n_devices"), Dir::In)];
pub const MAP_MEMORY_TO_GPU: Ioctl<MapMemoryToGpu> =
    Ioctl::both(K, 0x18, "AMDKFD_IOC_MAP_MEMORY_TO_GPU", &MapMemoryToGpu::LAYOUT).embedding(DEVICE_IDS);
pub const UNMAP_MEMORY_FROM_GPU: Ioctl<UnmapMemoryFromGpu> =
    Ioctl::both(K, 0x19, "AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU", &UnmapMemoryFromGpu::LAYOUT).embedding(DEVICE_IDS);
pub const SET_CU_MASK: Ioctl<SetCuMask> = Ioctl::write(K, 0x1a, "AMDKFD_IOC_SET_CU_MASK", &SetCuMask::LAYOUT)
    .embedding(&[pointed("cu_mask_ptr", Element::U32, Count::FieldOver("num_cu_mask", 32), Dir::In)]);
pub const GET_QUEUE_WAVE_STATE: Ioctl<GetQueueWaveState> =
    Ioctl::both(K, 0x1b, "AMDKFD_IOC_GET_QUEUE_WAVE_STATE", &GetQueueWaveState::LAYOUT);
pub const GET_DMABUF_INFO: Ioctl<GetDmabufInfo> = Ioctl::both(
    K,
    0x1c,
    "AMDKFD_IOC_GET_DMABUF_INFO",
    &GetDmabufInfo::LAYOUT,
)
.embedding(&[pointed("metadata_ptr", Element::Bytes, Count::Field("metadata_size"), Dir::Out)]);
pub const IMPORT_DMABUF: Ioctl<ImportDmabuf> = Ioctl::both(K, 0x1d, "AMDKFD_IOC_IMPORT_DMABUF", &ImportDmabuf::LAYOUT);
pub const ALLOC_QUEUE_GWS: Ioctl<AllocQueueGws> =
    Ioctl::both(K, 0x1e, "AMDKFD_IOC_ALLOC_QUEUE_GWS", &AllocQueueGws::LAYOUT);
pub const SMI_EVENTS: Ioctl<SmiEvents> = Ioctl::both(K, 0x1f, "AMDKFD_IOC_SMI_EVENTS", &SmiEvents::LAYOUT).since(3);
pub const SVM: Ioctl<Svm> = Ioctl::both(K, 0x20, "AMDKFD_IOC_SVM", &Svm::LAYOUT).since(5);
pub const SET_XNACK_MODE: Ioctl<SetXnackMode> =
    Ioctl::both(K, 0x21, "AMDKFD_IOC_SET_XNACK_MODE", &SetXnackMode::LAYOUT).since(5);
pub const CRIU_OP: Ioctl<Criu> = Ioctl::both(K, 0x22, "AMDKFD_IOC_CRIU_OP", &Criu::LAYOUT).since(7).embedding(&[
    pointed("devices", Element::Struct(&CriuDeviceBucket::LAYOUT), Count::Field("num_devices"), Dir::InOut),
    pointed("bos", Element::Struct(&CriuBoBucket::LAYOUT), Count::Field("num_bos"), Dir::InOut),
    pointed("priv_data", Element::Bytes, Count::Field("priv_data_size"), Dir::InOut),
]);
pub const AVAILABLE_MEMORY: Ioctl<GetAvailableMemory> =
    Ioctl::both(K, 0x23, "AMDKFD_IOC_AVAILABLE_MEMORY", &GetAvailableMemory::LAYOUT).since(9);
pub const EXPORT_DMABUF: Ioctl<ExportDmabuf> =
    Ioctl::both(K, 0x24, "AMDKFD_IOC_EXPORT_DMABUF", &ExportDmabuf::LAYOUT).since(12);
pub const RUNTIME_ENABLE: Ioctl<RuntimeEnable> =
    Ioctl::both(K, 0x25, "AMDKFD_IOC_RUNTIME_ENABLE", &RuntimeEnable::LAYOUT).since(13);
pub const DBG_TRAP: Ioctl<DbgTrap> = Ioctl::both(K, 0x26, "AMDKFD_IOC_DBG_TRAP", &DbgTrap::LAYOUT).since(13);

/// Every call, in the order of the numbers.
#[rustfmt::skip]
pub const TABLE: &[&Desc] = &[
    &GET_VERSION.desc, &CREATE_QUEUE.desc, &CREATE_QUEUE_V11.desc, &DESTROY_QUEUE.desc, &SET_MEMORY_POLICY.desc,
    &GET_CLOCK_COUNTERS.desc, &GET_PROCESS_APERTURES.desc, &UPDATE_QUEUE.desc, &CREATE_EVENT.desc, &DESTROY_EVENT.desc,
    &SET_EVENT.desc, &RESET_EVENT.desc, &WAIT_EVENTS.desc, &SET_SCRATCH_BACKING_VA.desc, &GET_TILE_CONFIG.desc,
    &SET_TRAP_HANDLER.desc, &GET_PROCESS_APERTURES_NEW.desc, &ACQUIRE_VM.desc, &ALLOC_MEMORY_OF_GPU.desc,
    &FREE_MEMORY_OF_GPU.desc, &MAP_MEMORY_TO_GPU.desc, &UNMAP_MEMORY_FROM_GPU.desc, &SET_CU_MASK.desc,
    &GET_QUEUE_WAVE_STATE.desc, &GET_DMABUF_INFO.desc, &IMPORT_DMABUF.desc, &ALLOC_QUEUE_GWS.desc, &SMI_EVENTS.desc,
    &SVM.desc, &SET_XNACK_MODE.desc, &CRIU_OP.desc, &AVAILABLE_MEMORY.desc, &EXPORT_DMABUF.desc, &RUNTIME_ENABLE.desc,
    &DBG_TRAP.desc,
];

/// The highest number that the driver of interface 1.`minor` knows; above it is ENOTTY.
#[must_use]
pub fn last_number(minor: u32) -> u8 {
    let known = TABLE.iter().filter(|d| d.since <= minor).map(|d| super::request_number(d.request));
    known.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The request words of AMD's interface 1.17, compiled from the kernel's header elsewhere.
    #[rustfmt::skip]
    const REQUESTS: &[(&str, u32)] = &[
        ("GET_VERSION", 0x80084b01), ("CREATE_QUEUE", 0xc0604b02), ("CREATE_QUEUE", 0xc0584b02), ("DESTROY_QUEUE", 0xc0084b03),
        ("SET_MEMORY_POLICY", 0x40204b04), ("GET_CLOCK_COUNTERS", 0xc0284b05), ("GET_PROCESS_APERTURES", 0x81904b06),
        ("UPDATE_QUEUE", 0x40184b07), ("CREATE_EVENT", 0xc0204b08), ("DESTROY_EVENT", 0x40084b09), ("SET_EVENT", 0x40084b0a),
        ("RESET_EVENT", 0x40084b0b), ("WAIT_EVENTS", 0xc0184b0c), ("SET_SCRATCH_BACKING_VA", 0xc0104b11),
        ("GET_TILE_CONFIG", 0xc0284b12), ("SET_TRAP_HANDLER", 0x40184b13), ("GET_PROCESS_APERTURES_NEW", 0xc0104b14),
        ("ACQUIRE_VM", 0x40084b15), ("ALLOC_MEMORY_OF_GPU", 0xc0284b16), ("FREE_MEMORY_OF_GPU", 0x40084b17),
        ("MAP_MEMORY_TO_GPU", 0xc0184b18), ("UNMAP_MEMORY_FROM_GPU", 0xc0184b19), ("SET_CU_MASK", 0x40104b1a),
        ("GET_QUEUE_WAVE_STATE", 0xc0184b1b), ("GET_DMABUF_INFO", 0xc0204b1c), ("IMPORT_DMABUF", 0xc0184b1d),
        ("ALLOC_QUEUE_GWS", 0xc0104b1e), ("SMI_EVENTS", 0xc0084b1f), ("SVM", 0xc0184b20), ("SET_XNACK_MODE", 0xc0044b21),
        ("CRIU_OP", 0xc0384b22), ("AVAILABLE_MEMORY", 0xc0104b23), ("EXPORT_DMABUF", 0xc0104b24), ("RUNTIME_ENABLE", 0xc0104b25),
        ("DBG_TRAP", 0xc0204b26),
    ];

    #[test]
    fn request_words_are_the_kernels() {
        let ours: Vec<(&str, u32)> =
            TABLE.iter().map(|d| (d.name.strip_prefix("AMDKFD_IOC_").unwrap(), d.request)).collect();
        assert_eq!(ours, REQUESTS);
    }

    #[test]
    fn fields_newer_than_the_installed_header_are_where_the_kernel_has_them() {
        let offset = |layout: &crate::abi::Layout, name: &str| layout.field(name).unwrap().offset;
        assert_eq!(offset(&CreateQueue::LAYOUT, "sdma_engine_id"), 88);
        assert_eq!(offset(&ExportDmabuf::LAYOUT, "dmabuf_fd"), 12);
        assert_eq!(offset(&RuntimeEnable::LAYOUT, "capabilities_mask"), 12);
        assert_eq!(offset(&DbgTrap::LAYOUT, "args"), 8);
        assert_eq!(offset(&ContextSaveAreaHeader::LAYOUT, "err_payload_addr"), 24);
        assert_eq!(offset(&ContextSaveAreaHeader::LAYOUT, "err_event_id"), 32);
    }

    #[test]
    fn both_forms_of_create_queue_agree_where_they_overlap() {
        for (a, b) in CreateQueue::LAYOUT.fields.iter().zip(CreateQueueV11::LAYOUT.fields) {
            assert_eq!(a, b);
        }
    }

    #[test]
    fn older_interfaces_end_earlier() {
        assert_eq!([8, 9, 11, 12, 13, 17].map(last_number), [0x22, 0x23, 0x23, 0x24, 0x26, 0x26]);
    }
}
