//! UVM, NVIDIA's unified memory driver: `/dev/nvidia-uvm`. It owns the GPU's address space; RM's memory is mapped
//! through it.
//!
//! A request is the bare number of the command, without the struct's size; the outcome is the struct's `rm_status`, one
//! of RM's codes. Source: `uvm_ioctl.h`, `uvm_linux_ioctl.h`, `uvm_types.h` of the open kernel modules 580.142;
//! compared with `tests/nv.rs`'s table. Left out: managed memory's policies, the tools' event queues, IS_8_SUPPORTED
//! (its number reads as a request word with a type).

use super::nvrm::STATUSES;
use super::{Desc, Ioctl, Kind};
use Kind::{Address, Dec, Enum, Fd, Handle, Hex, Nested, Reserved, Signed};

/// How a range is mapped for a GPU: reading, writing and atomics.
pub const MAPPING_READ_WRITE_ATOMIC: u32 = 1;
pub const MAPPING_READ_WRITE: u32 = 2;
pub const MAPPING_READ_ONLY: u32 = 3;

abi_struct! {
    /// How one GPU maps a range: type 1 is read, write and atomics; caching 0 the driver's choice.
    GpuMappingAttributes = "UvmGpuMappingAttributes", 36 {
        gpu_uuid as "gpuUuid": [u8; 16], In, Hex;
        gpu_mapping_type as "gpuMappingType": u32, In, Dec;
        gpu_caching_type as "gpuCachingType": u32, In, Dec;
        gpu_format_type as "gpuFormatType": u32, In, Dec;
        gpu_element_bits as "gpuElementBits": u32, In, Dec;
        gpu_compression_type as "gpuCompressionType": u32, In, Dec;
    }
}

abi_struct! {
    /// A file's address space.
    Initialize = "UVM_INITIALIZE_PARAMS", 16 {
        flags: u64, In, Hex;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
        pad1 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// On a second file: keeps the process's memory map alive for the first.
    MmInitialize = "UVM_MM_INITIALIZE_PARAMS", 8 {
        uvm_fd as "uvmFd": i32, In, Fd;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// A GPU by UUID; `rmCtrlFd` is -1 except with MIG.
    RegisterGpu = "UVM_REGISTER_GPU_PARAMS", 40 {
        gpu_uuid: [u8; 16], In, Hex;
        numa_enabled as "numaEnabled": u8, Out, Dec;
        pad1 as "": [u8; 3], In, Reserved;
        numa_node_id as "numaNodeId": i32, Out, Signed;
        rm_ctrl_fd as "rmCtrlFd": i32, In, Fd;
        h_client as "hClient": u32, In, Handle;
        h_smc_part_ref as "hSmcPartRef": u32, In, Handle;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// Undoes [`RegisterGpu`].
    UnregisterGpu = "UVM_UNREGISTER_GPU_PARAMS", 20 {
        gpu_uuid: [u8; 16], In, Hex;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// An address space of the GPU, made EXTERNALLY_OWNED.
    RegisterGpuVaSpace = "UVM_REGISTER_GPU_VASPACE_PARAMS", 32 {
        gpu_uuid as "gpuUuid": [u8; 16], In, Hex;
        rm_ctrl_fd as "rmCtrlFd": i32, In, Fd;
        h_client as "hClient": u32, In, Handle;
        h_va_space as "hVaSpace": u32, In, Handle;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// Undoes [`RegisterGpuVaSpace`].
    UnregisterGpuVaSpace = "UVM_UNREGISTER_GPU_VASPACE_PARAMS", 20 {
        gpu_uuid as "gpuUuid": [u8; 16], In, Hex;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// A channel, with the window of GPU addresses for its context (bytes).
    RegisterChannel = "UVM_REGISTER_CHANNEL_PARAMS", 56 {
        gpu_uuid as "gpuUuid": [u8; 16], In, Hex;
        rm_ctrl_fd as "rmCtrlFd": i32, In, Fd;
        h_client as "hClient": u32, In, Handle;
        h_channel as "hChannel": u32, In, Handle;
        pad1 as "": u32, In, Reserved;
        base: u64, In, Address;
        length: u64, In, Hex;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
        pad2 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// Undoes [`RegisterChannel`]; releases before 595.
    UnregisterChannel = "UVM_UNREGISTER_CHANNEL_PARAMS", 28 {
        gpu_uuid as "gpuUuid": [u8; 16], In, Hex;
        h_client as "hClient": u32, In, Handle;
        h_channel as "hChannel": u32, In, Handle;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// Two GPUs that may map each other's memory.
    EnablePeerAccess = "UVM_ENABLE_PEER_ACCESS_PARAMS", 36 {
        gpu_uuid_a as "gpuUuidA": [u8; 16], In, Hex;
        gpu_uuid_b as "gpuUuidB": [u8; 16], In, Hex;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// Undoes [`EnablePeerAccess`].
    DisablePeerAccess = "UVM_DISABLE_PEER_ACCESS_PARAMS", 36 {
        gpu_uuid_a as "gpuUuidA": [u8; 16], In, Hex;
        gpu_uuid_b as "gpuUuidB": [u8; 16], In, Hex;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// Addresses for [`MapExternalAllocation`]; 4 KiB aligned.
    CreateExternalRange = "UVM_CREATE_EXTERNAL_RANGE_PARAMS", 24 {
        base: u64, In, Address;
        length: u64, In, Hex;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
        pad1 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// A memory object mapped into a range, `offset` bytes into it.
    MapExternalAllocation = "UVM_MAP_EXTERNAL_ALLOCATION_PARAMS", 9264 {
        base: u64, In, Address;
        length: u64, In, Hex;
        offset: u64, In, Hex;
        per_gpu_attributes as "perGpuAttributes": [GpuMappingAttributes; 256], In, Nested(&GpuMappingAttributes::LAYOUT);
        gpu_attributes_count as "gpuAttributesCount": u64, In, Dec;
        rm_ctrl_fd as "rmCtrlFd": i32, In, Fd;
        h_client as "hClient": u32, In, Handle;
        h_memory as "hMemory": u32, In, Handle;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// A range that reads as zeros.
    MapExternalSparse = "UVM_MAP_EXTERNAL_SPARSE_PARAMS", 40 {
        base: u64, In, Address;
        length: u64, In, Hex;
        gpu_uuid as "gpuUuid": [u8; 16], In, Hex;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
        pad1 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// Removes a mapping of one GPU.
    UnmapExternal = "UVM_UNMAP_EXTERNAL_PARAMS", 40 {
        base: u64, In, Address;
        length: u64, In, Hex;
        gpu_uuid as "gpuUuid": [u8; 16], In, Hex;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
        pad1 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// Frees a range; releases before 595.
    Free = "UVM_FREE_PARAMS", 24 {
        base: u64, In, Address;
        length: u64, In, Hex;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
        pad1 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// Whether the GPU reads plain memory.
    PageableMemAccess = "UVM_PAGEABLE_MEM_ACCESS_PARAMS", 8 {
        pageable_mem_access as "pageableMemAccess": u8, Out, Dec;
        pad1 as "": [u8; 3], In, Reserved;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// The same for one GPU.
    PageableMemAccessOnGpu = "UVM_PAGEABLE_MEM_ACCESS_ON_GPU_PARAMS", 24 {
        gpu_uuid: [u8; 16], In, Hex;
        pageable_mem_access as "pageableMemAccess": u8, Out, Dec;
        pad1 as "": [u8; 3], In, Reserved;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// Whether a range is managed.
    ValidateVaRange = "UVM_VALIDATE_VA_RANGE_PARAMS", 24 {
        base: u64, In, Address;
        length: u64, In, Hex;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
        pad1 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// Memory for semaphores.
    AllocSemaphorePool = "UVM_ALLOC_SEMAPHORE_POOL_PARAMS", 9248 {
        base: u64, In, Address;
        length: u64, In, Hex;
        per_gpu_attributes as "perGpuAttributes": [GpuMappingAttributes; 256], In, Nested(&GpuMappingAttributes::LAYOUT);
        gpu_attributes_count as "gpuAttributesCount": u64, In, Dec;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
        pad1 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// Managed memory moved.
    Migrate = "UVM_MIGRATE_PARAMS", 80 {
        base: u64, In, Address;
        length: u64, In, Hex;
        destination_uuid as "destinationUuid": [u8; 16], In, Hex;
        flags: u32, In, Hex;
        pad1 as "": u32, In, Reserved;
        semaphore_address as "semaphoreAddress": u64, In, Hex;
        semaphore_payload as "semaphorePayload": u32, In, Dec;
        cpu_numa_node as "cpuNumaNode": u32, In, Dec;
        user_space_start as "userSpaceStart": u64, Out, Dec;
        user_space_length as "userSpaceLength": u64, Out, Dec;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
        pad2 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// Addresses for kernels that launch kernels.
    MapDynamicParallelismRegion = "UVM_MAP_DYNAMIC_PARALLELISM_REGION_PARAMS", 40 {
        base: u64, In, Address;
        length: u64, In, Hex;
        gpu_uuid as "gpuUuid": [u8; 16], In, Hex;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
        pad1 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// [`MapExternalAllocation`] of releases before 550: 32 GPUs at most.
    MapExternalAllocationV535 = "UVM_MAP_EXTERNAL_ALLOCATION_PARAMS", 1200 {
        base: u64, In, Address;
        length: u64, In, Hex;
        offset: u64, In, Hex;
        per_gpu_attributes as "perGpuAttributes": [GpuMappingAttributes; 32], In, Nested(&GpuMappingAttributes::LAYOUT);
        gpu_attributes_count as "gpuAttributesCount": u64, In, Dec;
        rm_ctrl_fd as "rmCtrlFd": i32, In, Fd;
        h_client as "hClient": u32, In, Handle;
        h_memory as "hMemory": u32, In, Handle;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// [`UnregisterChannel`] since 595.
    UnregisterChannelV595 = "UVM_UNREGISTER_CHANNEL_PARAMS", 12 {
        h_client as "hClient": u32, In, Handle;
        h_channel as "hChannel": u32, In, Handle;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// [`Free`] since 595.
    FreeV595 = "UVM_FREE_PARAMS", 16 {
        base: u64, In, Address;
        rm_status as "rmStatus": u32, Out, Enum(STATUSES);
        pad1 as "": u32, In, Reserved;
    }
}

pub const INITIALIZE: Ioctl<Initialize> = Ioctl::bare(0x30000001, "UVM_INITIALIZE", &Initialize::LAYOUT);
pub const MM_INITIALIZE: Ioctl<MmInitialize> = Ioctl::bare(75, "UVM_MM_INITIALIZE", &MmInitialize::LAYOUT);
pub const REGISTER_GPU: Ioctl<RegisterGpu> = Ioctl::bare(37, "UVM_REGISTER_GPU", &RegisterGpu::LAYOUT);
pub const UNREGISTER_GPU: Ioctl<UnregisterGpu> = Ioctl::bare(38, "UVM_UNREGISTER_GPU", &UnregisterGpu::LAYOUT);
pub const REGISTER_GPU_VASPACE: Ioctl<RegisterGpuVaSpace> =
    Ioctl::bare(25, "UVM_REGISTER_GPU_VASPACE", &RegisterGpuVaSpace::LAYOUT);
pub const UNREGISTER_GPU_VASPACE: Ioctl<UnregisterGpuVaSpace> =
    Ioctl::bare(26, "UVM_UNREGISTER_GPU_VASPACE", &UnregisterGpuVaSpace::LAYOUT);
pub const REGISTER_CHANNEL: Ioctl<RegisterChannel> = Ioctl::bare(27, "UVM_REGISTER_CHANNEL", &RegisterChannel::LAYOUT);
pub const UNREGISTER_CHANNEL: Ioctl<UnregisterChannel> =
    Ioctl::bare(28, "UVM_UNREGISTER_CHANNEL", &UnregisterChannel::LAYOUT).until(594);
pub const UNREGISTER_CHANNEL_V595: Ioctl<UnregisterChannelV595> =
    Ioctl::bare(28, "UVM_UNREGISTER_CHANNEL", &UnregisterChannelV595::LAYOUT).since(595);
pub const ENABLE_PEER_ACCESS: Ioctl<EnablePeerAccess> =
    Ioctl::bare(29, "UVM_ENABLE_PEER_ACCESS", &EnablePeerAccess::LAYOUT);
pub const DISABLE_PEER_ACCESS: Ioctl<DisablePeerAccess> =
    Ioctl::bare(30, "UVM_DISABLE_PEER_ACCESS", &DisablePeerAccess::LAYOUT);
pub const MAP_EXTERNAL_ALLOCATION: Ioctl<MapExternalAllocation> =
    Ioctl::bare(33, "UVM_MAP_EXTERNAL_ALLOCATION", &MapExternalAllocation::LAYOUT).since(550);
pub const MAP_EXTERNAL_ALLOCATION_V535: Ioctl<MapExternalAllocationV535> =
    Ioctl::bare(33, "UVM_MAP_EXTERNAL_ALLOCATION", &MapExternalAllocationV535::LAYOUT).until(549);
pub const FREE: Ioctl<Free> = Ioctl::bare(34, "UVM_FREE", &Free::LAYOUT).until(594);
pub const FREE_V595: Ioctl<FreeV595> = Ioctl::bare(34, "UVM_FREE", &FreeV595::LAYOUT).since(595);
pub const PAGEABLE_MEM_ACCESS: Ioctl<PageableMemAccess> =
    Ioctl::bare(39, "UVM_PAGEABLE_MEM_ACCESS", &PageableMemAccess::LAYOUT);
pub const MIGRATE: Ioctl<Migrate> = Ioctl::bare(51, "UVM_MIGRATE", &Migrate::LAYOUT).since(550);
pub const MAP_DYNAMIC_PARALLELISM_REGION: Ioctl<MapDynamicParallelismRegion> =
    Ioctl::bare(65, "UVM_MAP_DYNAMIC_PARALLELISM_REGION", &MapDynamicParallelismRegion::LAYOUT);
pub const UNMAP_EXTERNAL: Ioctl<UnmapExternal> = Ioctl::bare(66, "UVM_UNMAP_EXTERNAL", &UnmapExternal::LAYOUT);
pub const ALLOC_SEMAPHORE_POOL: Ioctl<AllocSemaphorePool> =
    Ioctl::bare(68, "UVM_ALLOC_SEMAPHORE_POOL", &AllocSemaphorePool::LAYOUT).since(550);
pub const PAGEABLE_MEM_ACCESS_ON_GPU: Ioctl<PageableMemAccessOnGpu> =
    Ioctl::bare(70, "UVM_PAGEABLE_MEM_ACCESS_ON_GPU", &PageableMemAccessOnGpu::LAYOUT);
pub const VALIDATE_VA_RANGE: Ioctl<ValidateVaRange> =
    Ioctl::bare(72, "UVM_VALIDATE_VA_RANGE", &ValidateVaRange::LAYOUT);
pub const CREATE_EXTERNAL_RANGE: Ioctl<CreateExternalRange> =
    Ioctl::bare(73, "UVM_CREATE_EXTERNAL_RANGE", &CreateExternalRange::LAYOUT);
pub const MAP_EXTERNAL_SPARSE: Ioctl<MapExternalSparse> =
    Ioctl::bare(74, "UVM_MAP_EXTERNAL_SPARSE", &MapExternalSparse::LAYOUT);

/// All calls of UVM described here.
pub const TABLE: &[&Desc] = &[
    &INITIALIZE.desc,
    &MM_INITIALIZE.desc,
    &REGISTER_GPU.desc,
    &UNREGISTER_GPU.desc,
    &REGISTER_GPU_VASPACE.desc,
    &UNREGISTER_GPU_VASPACE.desc,
    &REGISTER_CHANNEL.desc,
    &UNREGISTER_CHANNEL.desc,
    &UNREGISTER_CHANNEL_V595.desc,
    &ENABLE_PEER_ACCESS.desc,
    &DISABLE_PEER_ACCESS.desc,
    &MAP_EXTERNAL_ALLOCATION.desc,
    &MAP_EXTERNAL_ALLOCATION_V535.desc,
    &FREE.desc,
    &FREE_V595.desc,
    &PAGEABLE_MEM_ACCESS.desc,
    &MIGRATE.desc,
    &MAP_DYNAMIC_PARALLELISM_REGION.desc,
    &UNMAP_EXTERNAL.desc,
    &ALLOC_SEMAPHORE_POOL.desc,
    &PAGEABLE_MEM_ACCESS_ON_GPU.desc,
    &VALIDATE_VA_RANGE.desc,
    &CREATE_EXTERNAL_RANGE.desc,
    &MAP_EXTERNAL_SPARSE.desc,
];
