//! amdgpu's render node (`/dev/dri/renderD*`), ioctl type `d`: the calls that a KFD process makes, and the buffer calls
//! of other programs.
//!
//! Source: `drm/drm.h`, `drm/amdgpu_drm.h`. Driver calls start at number 0x40. A union of an `in` and an `out` struct
//! is described by both. Left out: command submission and its fences: KFD queues need none of it.

use super::{Count, Desc, Dir, Element, Embedded, Ioctl, Kind};
use Kind::{Address, Dec, Enum, Flags, Handle, Hex, MapOffset, Nested, Pointer, Reserved, Signed, Words};

const D: u8 = b'd';
const DRM_COMMAND_BASE: u8 = 0x40;

pub const AMDGPU_INFO_TIMESTAMP: u32 = 0x05;
pub const AMDGPU_INFO_FW_VERSION: u32 = 0x0e;
pub const AMDGPU_INFO_VRAM_USAGE: u32 = 0x10;
pub const AMDGPU_INFO_GTT_USAGE: u32 = 0x11;
pub const AMDGPU_INFO_VRAM_GTT: u32 = 0x14;
pub const AMDGPU_INFO_DEV_INFO: u32 = 0x16;
pub const AMDGPU_INFO_MEMORY: u32 = 0x19;
pub const AMDGPU_INFO_SENSOR: u32 = 0x1d;
/// The last fault of the process's GPU address space; newer than the headers of the tests.
pub const AMDGPU_INFO_GPUVM_FAULT: u32 = 0x23;
const QUERIES: &[(u64, &str)] = &[
    (0x00, "ACCEL_WORKING"),
    (0x02, "HW_IP_INFO"),
    (0x05, "TIMESTAMP"),
    (0x0e, "FW_VERSION"),
    (0x10, "VRAM_USAGE"),
    (0x11, "GTT_USAGE"),
    (0x14, "VRAM_GTT"),
    (0x15, "READ_MMR_REG"),
    (0x16, "DEV_INFO"),
    (0x17, "VIS_VRAM_USAGE"),
    (0x19, "MEMORY"),
    (0x1d, "SENSOR"),
    (0x1f, "VRAM_LOST_COUNTER"),
    (0x23, "GPUVM_FAULT"),
];
const DOMAINS: &[(u64, &str)] = &[(1, "CPU"), (2, "GTT"), (4, "VRAM"), (8, "GDS"), (16, "GWS"), (32, "OA")];
const VA_OPERATIONS: &[(u64, &str)] = &[(1, "MAP"), (2, "UNMAP"), (3, "CLEAR"), (4, "REPLACE")];
const CTX_OPERATIONS: &[(u64, &str)] = &[
    (1, "ALLOC_CTX"),
    (2, "FREE_CTX"),
    (3, "QUERY_STATE"),
    (4, "QUERY_STATE2"),
    (5, "GET_STABLE_PSTATE"),
    (6, "SET_STABLE_PSTATE"),
];

abi_struct! {
    /// The driver's name and version; lengths in, lengths found out.
    Version = "struct drm_version", 64 {
        version_major: u32, Out, Dec;
        version_minor: u32, Out, Dec;
        version_patchlevel: u32, Out, Dec;
        tail as "": u32, In, Reserved;
        name_len: u64, InOut, Dec;
        name: u64, In, Pointer;
        date_len: u64, InOut, Dec;
        date: u64, In, Pointer;
        desc_len: u64, InOut, Dec;
        desc: u64, In, Pointer;
    }
}

abi_struct! {
    /// A query: the answer is written to `return_pointer`, at most `return_size` bytes.
    Info = "struct drm_amdgpu_info", 32 {
        return_pointer: u64, In, Pointer;
        return_size: u32, In, Dec;
        query: u32, In, Enum(QUERIES);
        /// By query: a firmware's type, index and number; a sensor's type; a register's offset.
        detail as "query_fw": [u32; 4], In, Words;
    }
}

abi_struct! {
    /// Answer to FW_VERSION.
    InfoFirmware = "struct drm_amdgpu_info_firmware", 8 {
        ver: u32, Out, Hex;
        feature: u32, Out, Dec;
    }
}

abi_struct! {
    /// Answer to GPUVM_FAULT (Linux 6.7 and later).
    GpuvmFault = "struct drm_amdgpu_info_gpuvm_fault", 16 {
        /// Byte address.
        addr: u64, Out, Hex;
        /// The hub's protection fault status register; 0: there was none.
        status: u32, Out, Hex;
        /// Bits 7:0 which kind of hub, 15:8 which of that kind.
        vmhub: u32, Out, Hex;
    }
}

/// The hub that `vmhub` names: what issued the access.
#[must_use]
pub fn hub_name(vmhub: u32) -> String {
    let kind = match vmhub & 0xff {
        0 => "GFX",
        1 => "MM0",
        2 => "MM1",
        other => return format!("{other:#x}"),
    };
    let index = vmhub >> 8 & 0xff;
    if index == 0 { kind.into() } else { format!("{kind} {index}") }
}

abi_struct! {
    HeapInfo = "struct drm_amdgpu_heap_info", 32 {
        total_heap_size: u64, Out, Hex;
        usable_heap_size: u64, Out, Hex;
        heap_usage: u64, Out, Hex;
        max_allocation: u64, Out, Hex;
    }
}

abi_struct! {
    /// Answer to MEMORY.
    MemoryInfo = "struct drm_amdgpu_memory_info", 96 {
        vram: HeapInfo, Out, Nested(&HeapInfo::LAYOUT);
        /// What the CPU can reach through the BAR; smaller than `vram` on a small BAR.
        cpu_accessible_vram: HeapInfo, Out, Nested(&HeapInfo::LAYOUT);
        gtt: HeapInfo, Out, Nested(&HeapInfo::LAYOUT);
    }
}

abi_struct! {
    /// The beginning of the answer to DEV_INFO; the kernel's struct is longer.
    DeviceInfo = "struct drm_amdgpu_info_device", 56 {
        device_id: u32, Out, Hex;
        chip_rev: u32, Out, Hex;
        external_rev: u32, Out, Hex;
        pci_rev: u32, Out, Hex;
        family: u32, Out, Dec;
        num_shader_engines: u32, Out, Dec;
        num_shader_arrays_per_engine: u32, Out, Dec;
        /// kHz of the clock of timestamps.
        gpu_counter_freq: u32, Out, Dec;
        /// kHz.
        max_engine_clock: u64, Out, Dec;
        /// kHz.
        max_memory_clock: u64, Out, Dec;
        cu_active_number: u32, Out, Dec;
        cu_ao_mask: u32, Out, Hex;
    }
}

abi_struct! {
    GemCreateIn = "struct drm_amdgpu_gem_create_in", 32 {
        bo_size: u64, In, Hex;
        alignment: u64, In, Hex;
        domains: u64, In, Flags(DOMAINS);
        domain_flags: u64, In, Hex;
    }
}

abi_struct! {
    GemCreateOut = "struct drm_amdgpu_gem_create_out", 8 {
        handle: u32, Out, Handle;
        pad as "_pad": u32, Out, Reserved;
    }
}

abi_struct! {
    GemMmapIn = "struct drm_amdgpu_gem_mmap_in", 8 {
        handle: u32, In, Handle;
        pad as "_pad": u32, In, Reserved;
    }
}

abi_struct! {
    GemMmapOut = "struct drm_amdgpu_gem_mmap_out", 8 {
        addr_ptr: u64, Out, MapOffset;
    }
}

abi_struct! {
    CtxIn = "struct drm_amdgpu_ctx_in", 16 {
        op: u32, In, Enum(CTX_OPERATIONS);
        flags: u32, In, Hex;
        ctx_id: u32, In, Dec;
        priority: i32, In, Signed;
    }
}

abi_struct! {
    /// The answer to ALLOC_CTX; other operations have other answers.
    CtxOut = "union drm_amdgpu_ctx_out", 16 {
        ctx_id as "alloc.ctx_id": u32, Out, Dec;
        rest as "": [u32; 3], Out, Words;
    }
}

abi_struct! {
    GemVa = "struct drm_amdgpu_gem_va", 40 {
        handle: u32, In, Handle;
        pad as "_pad": u32, In, Reserved;
        operation: u32, In, Enum(VA_OPERATIONS);
        flags: u32, In, Hex;
        va_address: u64, In, Address;
        offset_in_bo: u64, In, Hex;
        map_size: u64, In, Hex;
    }
}

abi_struct! {
    GemUserptr = "struct drm_amdgpu_gem_userptr", 24 {
        addr: u64, In, Address;
        size: u64, In, Hex;
        flags: u32, In, Hex;
        handle: u32, Out, Handle;
    }
}

const fn text(pointer: &'static str, length: &'static str) -> Embedded {
    Embedded { pointer, element: Element::Bytes, count: Count::Field(length), dir: Dir::Out }
}

pub const VERSION: Ioctl<Version> = Ioctl::both(D, 0x00, "DRM_IOCTL_VERSION", &Version::LAYOUT).embedding(&[
    text("name", "name_len"),
    text("date", "date_len"),
    text("desc", "desc_len"),
]);
pub const GEM_CREATE: Ioctl<GemCreateIn> =
    Ioctl::both(D, DRM_COMMAND_BASE, "DRM_IOCTL_AMDGPU_GEM_CREATE", &GemCreateIn::LAYOUT)
        .answering(&GemCreateOut::LAYOUT);
pub const GEM_MMAP: Ioctl<GemMmapIn> =
    Ioctl::both(D, DRM_COMMAND_BASE + 0x01, "DRM_IOCTL_AMDGPU_GEM_MMAP", &GemMmapIn::LAYOUT)
        .answering(&GemMmapOut::LAYOUT);
pub const CTX: Ioctl<CtxIn> =
    Ioctl::both(D, DRM_COMMAND_BASE + 0x02, "DRM_IOCTL_AMDGPU_CTX", &CtxIn::LAYOUT).answering(&CtxOut::LAYOUT);
pub const INFO: Ioctl<Info> = Ioctl::write(D, DRM_COMMAND_BASE + 0x05, "DRM_IOCTL_AMDGPU_INFO", &Info::LAYOUT)
    .embedding(&[text("return_pointer", "return_size")]);
pub const GEM_VA: Ioctl<GemVa> = Ioctl::write(D, DRM_COMMAND_BASE + 0x08, "DRM_IOCTL_AMDGPU_GEM_VA", &GemVa::LAYOUT);
pub const GEM_USERPTR: Ioctl<GemUserptr> =
    Ioctl::both(D, DRM_COMMAND_BASE + 0x11, "DRM_IOCTL_AMDGPU_GEM_USERPTR", &GemUserptr::LAYOUT);

/// Every call described here.
#[rustfmt::skip]
pub const TABLE: &[&Desc] = &[
    &VERSION.desc, &GEM_CREATE.desc, &GEM_MMAP.desc, &CTX.desc, &INFO.desc, &GEM_VA.desc, &GEM_USERPTR.desc,
];
