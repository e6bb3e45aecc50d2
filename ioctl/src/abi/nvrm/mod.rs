//! RM, NVIDIA's resource manager: `/dev/nvidiactl` and `/dev/nvidia0..`, ioctl type `F`.
//!
//! A few calls carry everything: ALLOC makes an object of a class, CONTROL sends it a command; both point at a struct
//! that depends on the class or the command. A call returns 0 in any case, the outcome is the struct's `status`.
//! Source: `nv-ioctl.h`, `nv-ioctl-numbers.h`, `nv_escape.h`, `nvos.h`, `alloc/`, `class/` and `ctrl/` of the open
//! kernel modules 580.142, compiled; every struct and number is compared with that table in `tests/nv.rs`. Releases:
//! see [`Release`]. Left out: display, video and virtualisation; of the [`VID_HEAP_CONTROL`] union only its bytes.

mod alloc;
mod control;
mod control_names;
mod escape;
mod notify;
mod release;
mod status;

pub use alloc::*;
pub use control::*;
pub use control_names::CONTROLS;
pub use escape::*;
pub use notify::*;
pub use release::{CHANNELS_MOVED, Release, ReleaseError};
pub use status::{STATUSES, Status};

use super::{Count, Desc, Dir, Element, Embedded, Ioctl, Kind, Layout};

const F: u8 = b'F';

/// Entries of one CARD_INFO.
pub(crate) const MAX_CARDS: usize = 32;

abi_struct! {
    /// The cards of a machine; entries without one have `valid` 0.
    CardInfos = "nv_ioctl_card_info_t[32]", 2304 {
        cards as "": [CardInfo; MAX_CARDS], Out, Kind::Nested(&CardInfo::LAYOUT);
    }
}

abi_struct! {
    /// MAP_MEMORY_DMA of releases before 580.
    RmMapMemoryDmaV535 = "NVOS46_PARAMETERS", 56 {
        h_client as "hClient": u32, In, Kind::Handle;
        h_device as "hDevice": u32, In, Kind::Handle;
        h_dma as "hDma": u32, In, Kind::Handle;
        h_memory as "hMemory": u32, In, Kind::Handle;
        offset: u64, In, Kind::Hex;
        length: u64, In, Kind::Hex;
        flags: u32, In, Kind::Hex;
        pad1 as "": u32, In, Kind::Reserved;
        dma_offset as "dmaOffset": u64, InOut, Kind::Address;
        status: u32, Out, Kind::Enum(STATUSES);
        pad2 as "": u32, In, Kind::Reserved;
    }
}

const fn pointed(pointer: &'static str, element: Element, count: Count, dir: Dir) -> Embedded {
    Embedded { pointer, element, count, dir }
}

const fn rm<T>(number: u8, name: &'static str, layout: &'static Layout) -> Ioctl<T> {
    Ioctl::both(F, number, name, layout)
}

/// The parameters of a new object, by its class.
const ALLOC_PARAMS: &[Embedded] =
    &[pointed("p_alloc_parms", Element::Chosen("h_class"), Count::Whole("params_size"), Dir::InOut)];

pub const ALLOC_MEMORY: Ioctl<RmAllocMemory> = rm(0x27, "NV_ESC_RM_ALLOC_MEMORY", &RmAllocMemory::LAYOUT);
pub const FREE: Ioctl<RmFree> = rm(0x29, "NV_ESC_RM_FREE", &RmFree::LAYOUT);
pub const CONTROL: Ioctl<RmControl> = rm(0x2a, "NV_ESC_RM_CONTROL", &RmControl::LAYOUT).embedding(&[pointed(
    "params",
    Element::Chosen("cmd"),
    Count::Field("params_size"),
    Dir::InOut,
)]);
pub const ALLOC: Ioctl<RmAlloc> = rm(0x2b, "NV_ESC_RM_ALLOC", &RmAlloc::LAYOUT).embedding(ALLOC_PARAMS);
pub const ALLOC_NVOS21: Ioctl<RmAlloc21> = rm(0x2b, "NV_ESC_RM_ALLOC", &RmAlloc21::LAYOUT).embedding(ALLOC_PARAMS);
pub const DUP_OBJECT: Ioctl<RmDupObject> = rm(0x34, "NV_ESC_RM_DUP_OBJECT", &RmDupObject::LAYOUT);
pub const SHARE: Ioctl<RmShare> = rm(0x35, "NV_ESC_RM_SHARE", &RmShare::LAYOUT);
pub const IDLE_CHANNELS: Ioctl<RmIdleChannels> = rm(0x41, "NV_ESC_RM_IDLE_CHANNELS", &RmIdleChannels::LAYOUT)
    .embedding(&[
        pointed("ph_clients", Element::U32, Count::Field("num_channels"), Dir::In),
        pointed("ph_devices", Element::U32, Count::Field("num_channels"), Dir::In),
        pointed("ph_channels", Element::U32, Count::Field("num_channels"), Dir::In),
    ]);
pub const VID_HEAP_CONTROL: Ioctl<RmVidHeapControl> = rm(0x4a, "NV_ESC_RM_VID_HEAP_CONTROL", &RmVidHeapControl::LAYOUT);
pub const MAP_MEMORY: Ioctl<RmMapMemory> = rm(0x4e, "NV_ESC_RM_MAP_MEMORY", &RmMapMemory::LAYOUT);
pub const UNMAP_MEMORY: Ioctl<RmUnmapMemory> = rm(0x4f, "NV_ESC_RM_UNMAP_MEMORY", &RmUnmapMemory::LAYOUT);
pub const GET_EVENT_DATA: Ioctl<RmGetEventData> = rm(0x52, "NV_ESC_RM_GET_EVENT_DATA", &RmGetEventData::LAYOUT);
pub const ALLOC_CONTEXT_DMA2: Ioctl<RmAllocContextDma2> =
    rm(0x54, "NV_ESC_RM_ALLOC_CONTEXT_DMA2", &RmAllocContextDma2::LAYOUT);
pub const MAP_MEMORY_DMA: Ioctl<RmMapMemoryDma> =
    rm(0x57, "NV_ESC_RM_MAP_MEMORY_DMA", &RmMapMemoryDma::LAYOUT).since(580);
pub const MAP_MEMORY_DMA_V535: Ioctl<RmMapMemoryDmaV535> =
    rm(0x57, "NV_ESC_RM_MAP_MEMORY_DMA", &RmMapMemoryDmaV535::LAYOUT).until(579);
pub const UNMAP_MEMORY_DMA: Ioctl<RmUnmapMemoryDma> =
    rm(0x58, "NV_ESC_RM_UNMAP_MEMORY_DMA", &RmUnmapMemoryDma::LAYOUT).since(550);
pub const BIND_CONTEXT_DMA: Ioctl<RmBindContextDma> = rm(0x59, "NV_ESC_RM_BIND_CONTEXT_DMA", &RmBindContextDma::LAYOUT);
pub const UPDATE_DEVICE_MAPPING_INFO: Ioctl<RmUpdateDeviceMappingInfo> =
    rm(0x5e, "NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO", &RmUpdateDeviceMappingInfo::LAYOUT);
pub const CARD_INFO: Ioctl<CardInfos> = rm(200, "NV_ESC_CARD_INFO", &CardInfos::LAYOUT);
pub const REGISTER_FD: Ioctl<RegisterFd> = rm(201, "NV_ESC_REGISTER_FD", &RegisterFd::LAYOUT);
pub const ALLOC_OS_EVENT: Ioctl<AllocOsEvent> = rm(206, "NV_ESC_ALLOC_OS_EVENT", &AllocOsEvent::LAYOUT);
pub const FREE_OS_EVENT: Ioctl<FreeOsEvent> = rm(207, "NV_ESC_FREE_OS_EVENT", &FreeOsEvent::LAYOUT);
pub const STATUS_CODE: Ioctl<StatusCode> = rm(209, "NV_ESC_STATUS_CODE", &StatusCode::LAYOUT);
pub const CHECK_VERSION_STR: Ioctl<CheckVersion> = rm(210, "NV_ESC_CHECK_VERSION_STR", &CheckVersion::LAYOUT);
pub const IOCTL_XFER_CMD: Ioctl<Xfer> = rm(211, "NV_ESC_IOCTL_XFER_CMD", &Xfer::LAYOUT).embedding(&[pointed(
    "ptr",
    Element::Bytes,
    Count::Field("size"),
    Dir::InOut,
)]);
pub const SYS_PARAMS: Ioctl<SysParams> = rm(214, "NV_ESC_SYS_PARAMS", &SysParams::LAYOUT);
pub const NUMA_INFO: Ioctl<NumaInfo> = rm(215, "NV_ESC_NUMA_INFO", &NumaInfo::LAYOUT);
pub const SET_NUMA_STATUS: Ioctl<SetNumaStatus> = rm(216, "NV_ESC_SET_NUMA_STATUS", &SetNumaStatus::LAYOUT);
pub const EXPORT_TO_DMABUF_FD: Ioctl<ExportToDmabufFd> =
    rm(217, "NV_ESC_EXPORT_TO_DMABUF_FD", &ExportToDmabufFd::LAYOUT);
pub const WAIT_OPEN_COMPLETE: Ioctl<WaitOpenComplete> = rm(218, "NV_ESC_WAIT_OPEN_COMPLETE", &WaitOpenComplete::LAYOUT);

/// All calls of RM described here.
pub const TABLE: &[&Desc] = &[
    &ALLOC_MEMORY.desc,
    &FREE.desc,
    &CONTROL.desc,
    &ALLOC.desc,
    &ALLOC_NVOS21.desc,
    &DUP_OBJECT.desc,
    &SHARE.desc,
    &IDLE_CHANNELS.desc,
    &VID_HEAP_CONTROL.desc,
    &MAP_MEMORY.desc,
    &UNMAP_MEMORY.desc,
    &GET_EVENT_DATA.desc,
    &ALLOC_CONTEXT_DMA2.desc,
    &MAP_MEMORY_DMA.desc,
    &MAP_MEMORY_DMA_V535.desc,
    &UNMAP_MEMORY_DMA.desc,
    &BIND_CONTEXT_DMA.desc,
    &UPDATE_DEVICE_MAPPING_INFO.desc,
    &CARD_INFO.desc,
    &REGISTER_FD.desc,
    &ALLOC_OS_EVENT.desc,
    &FREE_OS_EVENT.desc,
    &STATUS_CODE.desc,
    &CHECK_VERSION_STR.desc,
    &IOCTL_XFER_CMD.desc,
    &SYS_PARAMS.desc,
    &NUMA_INFO.desc,
    &SET_NUMA_STATUS.desc,
    &EXPORT_TO_DMABUF_FD.desc,
    &WAIT_OPEN_COMPLETE.desc,
];
