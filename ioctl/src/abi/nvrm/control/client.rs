//! Commands to the client and to the device: what GPUs there are and what they can do.
//!
//! Source: `ctrl/*.h` of release 580. Sizes are in bytes unless a field says otherwise.

use super::Control;
use crate::abi::Kind;
use Kind::{Dec, GpuId, Handle, Hex, Pointer, Reserved, Signed, Text, Words};

abi_struct! {
    /// The driver's release, as text.
    BuildVersion = "NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_V2_PARAMS", 1032 {
        driver_version_buffer as "driverVersionBuffer": [u8; 256], Out, Text;
        version_buffer as "versionBuffer": [u8; 256], Out, Text;
        driver_branch as "driverBranch": [u8; 256], Out, Hex;
        title_buffer as "titleBuffer": [u8; 256], Out, Text;
        changelist_number as "changelistNumber": u32, Out, Dec;
        official_changelist_number as "officialChangelistNumber": u32, Out, Dec;
    }
}

abi_struct! {
    /// Whether the NVLink fabric is up.
    FabricStatus = "NV0000_CTRL_SYSTEM_GET_FABRIC_STATUS_PARAMS", 4 {
        fabric_status as "fabricStatus": u32, Out, Dec;
    }
}

abi_struct! {
    /// How GPUs reach each other.
    P2pCaps = "NV0000_CTRL_SYSTEM_GET_P2P_CAPS_V2_PARAMS", 8348 {
        gpu_ids as "gpuIds": [u32; 32], In, Words;
        gpu_count as "gpuCount": u32, In, Dec;
        p2p_caps as "p2pCaps": u32, Out, Hex;
        p2p_optimal_read_ces as "p2pOptimalReadCEs": u32, Out, Dec;
        p2p_optimal_write_ces as "p2pOptimalWriteCEs": u32, Out, Dec;
        p2p_caps_status as "p2pCapsStatus": [u8; 9], Out, Hex;
        pad1 as "": [u8; 3], In, Reserved;
        bus_peer_ids as "busPeerIds": [u32; 1024], Out, Words;
        bus_egm_peer_ids as "busEgmPeerIds": [u32; 1024], Out, Words;
    }
}

abi_struct! {
    /// All GPUs; unused entries are all ones.
    ProbedIds = "NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS", 384 {
        gpu_ids as "gpuIds": [u32; 32], Out, Words;
        excluded_gpu_ids as "excludedGpuIds": [u32; 32], Out, Words;
        gpu_flags as "gpuFlags": [u8; 128], Out, Hex;
    }
}

abi_struct! {
    /// GPUs in use; unused entries are all ones.
    AttachedIds = "NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS", 128 {
        gpu_ids as "gpuIds": [u32; 32], Out, Words;
    }
}

abi_struct! {
    /// The instances that belong to a GPU id.
    IdInfo = "NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS", 32 {
        gpu_id as "gpuId": u32, In, GpuId;
        gpu_flags as "gpuFlags": u32, Out, Hex;
        device_instance as "deviceInstance": u32, Out, Dec;
        sub_device_instance as "subDeviceInstance": u32, Out, Dec;
        sli_status as "sliStatus": u32, Out, Dec;
        board_id as "boardId": u32, Out, Dec;
        gpu_instance as "gpuInstance": u32, Out, Dec;
        numa_id as "numaId": i32, Out, Signed;
    }
}

abi_struct! {
    /// A GPU's UUID before it is attached.
    UuidFromGpuId = "NV0000_CTRL_GPU_GET_UUID_FROM_GPU_ID_PARAMS", 268 {
        gpu_id as "gpuId": u32, In, GpuId;
        flags: u32, In, Hex;
        gpu_uuid as "gpuUuid": [u8; 256], Out, Hex;
        uuid_str_len as "uuidStrLen": u32, Out, Dec;
    }
}

abi_struct! {
    /// Where a GPU sits on the bus.
    GpuPciInfo = "NV0000_CTRL_GPU_GET_PCI_INFO_PARAMS", 12 {
        gpu_id as "gpuId": u32, In, GpuId;
        domain: u32, Out, Dec;
        bus: u16, Out, Dec;
        slot: u16, Out, Dec;
    }
}

abi_struct! {
    /// Address space of a memory object.
    AddrSpaceType = "NV0000_CTRL_CLIENT_GET_ADDR_SPACE_TYPE_PARAMS", 12 {
        h_object as "hObject": u32, In, Handle;
        map_flags as "mapFlags": u32, In, Hex;
        addr_space_type as "addrSpaceType": u32, Out, Dec;
    }
}

abi_struct! {
    /// Classes of a device; with a count of 0 the driver returns how many there are.
    ClassListByPointer = "NV0080_CTRL_GPU_GET_CLASSLIST_PARAMS", 16 {
        num_classes as "numClasses": u32, InOut, Dec;
        pad1 as "": u32, In, Reserved;
        class_list as "classList": u64, InOut, Pointer;
    }
}

abi_struct! {
    /// Classes of a device.
    ClassList = "NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS", 804 {
        num_classes as "numClasses": u32, Out, Dec;
        class_list as "classList": [u32; 200], Out, Words;
    }
}

abi_struct! {
    /// How many GPUs act as one.
    NumSubdevices = "NV0080_CTRL_GPU_GET_NUM_SUBDEVICES_PARAMS", 4 {
        num_sub_devices as "numSubDevices": u32, Out, Dec;
    }
}

abi_struct! {
    /// Whether the GPU is a guest's.
    VirtualizationMode = "NV0080_CTRL_GPU_GET_VIRTUALIZATION_MODE_PARAMS", 8 {
        virtualization_mode as "virtualizationMode": u32, Out, Dec;
        is_grid_build as "isGridBuild": u8, Out, Dec;
        pad1 as "": [u8; 3], In, Reserved;
    }
}

abi_struct! {
    /// Whether clocks are capped for compute.
    CudaLimit = "NV0080_CTRL_PERF_CUDA_LIMIT_CONTROL_PARAMS", 1 {
        b_cuda_limit as "bCudaLimit": u8, In, Dec;
    }
}

pub const SYSTEM_GET_P2P_CAPS_V2: Control<P2pCaps> = Control::new(0x0000012b);
pub const SYSTEM_GET_FABRIC_STATUS: Control<FabricStatus> = Control::new(0x00000136);
pub const SYSTEM_GET_BUILD_VERSION_V2: Control<BuildVersion> = Control::new(0x0000013e);
pub const GPU_GET_ATTACHED_IDS: Control<AttachedIds> = Control::new(0x00000201);
pub const GPU_GET_ID_INFO_V2: Control<IdInfo> = Control::new(0x00000205);
pub const GPU_GET_PROBED_IDS: Control<ProbedIds> = Control::new(0x00000214);
pub const GPU_GET_PCI_INFO: Control<GpuPciInfo> = Control::new(0x0000021b);
pub const GPU_GET_UUID_FROM_GPU_ID: Control<UuidFromGpuId> = Control::new(0x00000275);
pub const CLIENT_GET_ADDR_SPACE_TYPE: Control<AddrSpaceType> = Control::new(0x00000d01);
pub const GPU_GET_CLASSLIST: Control<ClassListByPointer> = Control::new(0x00800201);
pub const GPU_GET_NUM_SUBDEVICES: Control<NumSubdevices> = Control::new(0x00800280);
pub const GPU_GET_VIRTUALIZATION_MODE: Control<VirtualizationMode> = Control::new(0x00800289);
pub const GPU_GET_CLASSLIST_V2: Control<ClassList> = Control::new(0x00800292);
pub const PERF_CUDA_LIMIT_SET_CONTROL: Control<CudaLimit> = Control::new(0x00801909);
