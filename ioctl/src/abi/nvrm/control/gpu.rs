//! Commands to a GPU about itself, its engines and its SMs.
//!
//! Source: `ctrl/*.h` of release 580. Sizes are in bytes unless a field says otherwise.

use super::Control;
use crate::abi::Kind;
use Kind::{Dec, Handle, Hex, Nested, Pointer, Reserved, Text, Words};

abi_struct! {
    /// A requested index and its value; the same in all lists of information.
    InfoEntry = "NV2080_CTRL_GPU_INFO", 8 {
        index: u32, In, Dec;
        data: u32, Out, Dec;
    }
}

abi_struct! {
    /// Values by index.
    GpuInfo = "NV2080_CTRL_GPU_GET_INFO_V2_PARAMS", 564 {
        gpu_info_list_size as "gpuInfoListSize": u32, In, Hex;
        gpu_info_list as "gpuInfoList": [InfoEntry; 70], InOut, Nested(&InfoEntry::LAYOUT);
    }
}

abi_struct! {
    /// The product's name; `flags` 0 selects ASCII. Releases from 595 have 64 bytes of it.
    NameString = "NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS", 132 {
        gpu_name_string_flags as "gpuNameStringFlags": u32, In, Hex;
        gpu_name_string as "gpuNameString": [u8; 128], Out, Text;
    }
}

abi_struct! {
    /// The chip's name.
    ShortNameString = "NV2080_CTRL_GPU_GET_SHORT_NAME_STRING_PARAMS", 64 {
        gpu_short_name_string as "gpuShortNameString": [u8; 64], Out, Text;
    }
}

abi_struct! {
    /// The UUID: flags 2 asks for its 16 bytes.
    GidInfo = "NV2080_CTRL_GPU_GET_GID_INFO_PARAMS", 268 {
        index: u32, In, Dec;
        flags: u32, In, Hex;
        length: u32, Out, Hex;
        data: [u8; 256], Out, Hex;
    }
}

abi_struct! {
    /// Types of the engines.
    Engines = "NV2080_CTRL_GPU_GET_ENGINES_V2_PARAMS", 340 {
        engine_count as "engineCount": u32, Out, Dec;
        engine_list as "engineList": [u32; 84], Out, Words;
    }
}

abi_struct! {
    /// The first copy engine that is not the graphics engine's.
    FirstAsyncCe = "NV2080_CTRL_GPU_GET_FIRST_ASYNC_CE_IDX_PARAMS", 4 {
        first_async_ce_idx as "firstAsyncCEIdx": u32, Out, Dec;
    }
}

abi_struct! {
    /// 2: no compute allowed.
    ComputeModeRules = "NV2080_CTRL_GPU_QUERY_COMPUTE_MODE_RULES_PARAMS", 4 {
        rules: u32, Out, Dec;
    }
}

abi_struct! {
    /// Counts by unit; `units` has 40 bytes each. Releases from 595 have five units more.
    EccStatus = "NV2080_CTRL_GPU_QUERY_ECC_STATUS_PARAMS", 1464 {
        units: [u8; 1440], Out, Hex;
        b_fatal_poison_error as "bFatalPoisonError": u8, Out, Dec;
        uncorrectable_error as "uncorrectableError": u8, Out, Dec;
        pad1 as "": u16, In, Reserved;
        flags: u32, In, Hex;
        gr_route_info_flags as "grRouteInfo.flags": u32, Out, Hex;
        pad2 as "": u32, In, Reserved;
        route as "grRouteInfo.route": u64, In, Dec;
    }
}

abi_struct! {
    /// The same in releases from 595.
    EccStatusV595 = "NV2080_CTRL_GPU_QUERY_ECC_STATUS_PARAMS", 1664 {
        units: [u8; 1640], Out, Hex;
        b_fatal_poison_error as "bFatalPoisonError": u8, Out, Dec;
        uncorrectable_error as "uncorrectableError": u8, Out, Dec;
        pad1 as "": u16, In, Reserved;
        flags: u32, In, Hex;
        gr_route_info_flags as "grRouteInfo.flags": u32, Out, Hex;
        pad2 as "": u32, In, Reserved;
        route as "grRouteInfo.route": u64, In, Dec;
    }
}

abi_struct! {
    /// Whether the GPU has to be reset.
    ResetStatus = "NV2080_CTRL_GPU_GET_RESET_STATUS_PARAMS", 1 {
        b_reset_required as "bResetRequired": u8, Out, Dec;
    }
}

abi_struct! {
    /// What would mend the GPU.
    RecoveryAction = "NV2080_CTRL_GPU_GET_RECOVERY_ACTION_PARAMS", 4 {
        action: u32, Out, Dec;
    }
}

abi_struct! {
    /// Values by index, in the caller's list.
    GrInfoByPointer = "NV2080_CTRL_GR_GET_INFO_PARAMS", 32 {
        gr_info_list_size as "grInfoListSize": u32, In, Hex;
        pad1 as "": u32, In, Reserved;
        gr_info_list as "grInfoList": u64, In, Pointer;
        flags as "grRouteInfo.flags": u32, In, Hex;
        pad2 as "": u32, In, Reserved;
        route as "grRouteInfo.route": u64, In, Dec;
    }
}

abi_struct! {
    /// Values by index. Releases from 595 have one entry more.
    GrInfo = "NV2080_CTRL_GR_GET_INFO_V2_PARAMS", 488 {
        gr_info_list_size as "grInfoListSize": u32, In, Hex;
        gr_info_list as "grInfoList": [InfoEntry; 58], InOut, Nested(&InfoEntry::LAYOUT);
        pad1 as "": u32, In, Reserved;
        flags as "grRouteInfo.flags": u32, In, Hex;
        pad2 as "": u32, In, Reserved;
        route as "grRouteInfo.route": u64, In, Dec;
    }
}

abi_struct! {
    /// The same in releases from 595.
    GrInfoV595 = "NV2080_CTRL_GR_GET_INFO_V2_PARAMS", 496 {
        gr_info_list_size as "grInfoListSize": u32, In, Hex;
        gr_info_list as "grInfoList": [InfoEntry; 59], InOut, Nested(&InfoEntry::LAYOUT);
        pad1 as "": u32, In, Reserved;
        flags as "grRouteInfo.flags": u32, In, Hex;
        pad2 as "": u32, In, Reserved;
        route as "grRouteInfo.route": u64, In, Dec;
    }
}

abi_struct! {
    /// Where each SM sits: 512 records of nine 16-bit numbers.
    GlobalSmOrder = "NV2080_CTRL_GR_GET_GLOBAL_SM_ORDER_PARAMS", 9240 {
        global_sm_id as "globalSmId": [u8; 9216], Out, Hex;
        num_sm as "numSm": u16, Out, Dec;
        num_tpc as "numTpc": u16, Out, Dec;
        pad1 as "": u32, In, Reserved;
        flags as "grRouteInfo.flags": u32, In, Hex;
        pad2 as "": u32, In, Reserved;
        route as "grRouteInfo.route": u64, In, Dec;
    }
}

abi_struct! {
    /// GPCs in use.
    GpcMask = "NV2080_CTRL_GR_GET_GPC_MASK_PARAMS", 24 {
        flags as "grRouteInfo.flags": u32, In, Hex;
        pad1 as "": u32, In, Reserved;
        route as "grRouteInfo.route": u64, In, Dec;
        gpc_mask as "gpcMask": u32, Out, Hex;
        pad2 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// TPCs of a GPC in use.
    TpcMask = "NV2080_CTRL_GR_GET_TPC_MASK_PARAMS", 24 {
        flags as "grRouteInfo.flags": u32, In, Hex;
        pad1 as "": u32, In, Reserved;
        route as "grRouteInfo.route": u64, In, Dec;
        gpc_id as "gpcId": u32, In, Dec;
        tpc_mask as "tpcMask": u32, Out, Hex;
    }
}

abi_struct! {
    /// Bytes of a channel's context.
    CtxBufferSize = "NV2080_CTRL_GR_GET_CTX_BUFFER_SIZE_PARAMS", 16 {
        h_channel as "hChannel": u32, In, Handle;
        pad1 as "": u32, In, Reserved;
        total_buffer_size as "totalBufferSize": u64, Out, Hex;
    }
}

abi_struct! {
    /// The chip: architecture 0x180 is GH100.
    ArchInfo = "NV2080_CTRL_MC_GET_ARCH_INFO_PARAMS", 16 {
        architecture: u32, Out, Hex;
        implementation: u32, Out, Hex;
        revision: u32, Out, Dec;
        sub_revision as "subRevision": u8, Out, Dec;
        pad1 as "": [u8; 3], In, Reserved;
    }
}

abi_struct! {
    /// What a copy engine can do.
    CeCaps = "NV2080_CTRL_CE_GET_CAPS_V2_PARAMS", 8 {
        ce_engine_type as "ceEngineType": u32, In, Dec;
        caps_tbl as "capsTbl": u16, Out, Hex;
        pad1 as "": u16, In, Reserved;
    }
}

abi_struct! {
    /// The physical engines of a copy engine.
    CePceMask = "NV2080_CTRL_CE_GET_CE_PCE_MASK_PARAMS", 8 {
        ce_engine_type as "ceEngineType": u32, In, Dec;
        pce_mask as "pceMask": u32, Out, Hex;
    }
}

pub const GPU_GET_INFO_V2: Control<GpuInfo> = Control::new(0x20800102);
pub const GPU_GET_NAME_STRING: Control<NameString> = Control::new(0x20800110);
pub const GPU_GET_SHORT_NAME_STRING: Control<ShortNameString> = Control::new(0x20800111);
pub const GPU_QUERY_ECC_STATUS: Control<EccStatus> = Control::new(0x2080012f);
pub const GPU_QUERY_ECC_STATUS_V595: Control<EccStatusV595> = Control::new(0x2080012f);
pub const GPU_QUERY_COMPUTE_MODE_RULES: Control<ComputeModeRules> = Control::new(0x20800131);
pub const GPU_GET_GID_INFO: Control<GidInfo> = Control::new(0x2080014a);
pub const GPU_GET_ENGINES_V2: Control<Engines> = Control::new(0x20800170);
pub const GPU_GET_RESET_STATUS: Control<ResetStatus> = Control::new(0x208001ab);
pub const GPU_GET_RECOVERY_ACTION: Control<RecoveryAction> = Control::new(0x208001b2);
pub const GPU_GET_FIRST_ASYNC_CE_IDX: Control<FirstAsyncCe> = Control::new(0x208001e6);
pub const GR_GET_INFO: Control<GrInfoByPointer> = Control::new(0x20801201);
pub const GR_GET_CTX_BUFFER_SIZE: Control<CtxBufferSize> = Control::new(0x20801218);
pub const GR_GET_GLOBAL_SM_ORDER: Control<GlobalSmOrder> = Control::new(0x2080121b);
pub const GR_GET_INFO_V2: Control<GrInfo> = Control::new(0x20801228);
pub const GR_GET_INFO_V2_V595: Control<GrInfoV595> = Control::new(0x20801228);
pub const GR_GET_GPC_MASK: Control<GpcMask> = Control::new(0x2080122a);
pub const GR_GET_TPC_MASK: Control<TpcMask> = Control::new(0x2080122b);
pub const MC_GET_ARCH_INFO: Control<ArchInfo> = Control::new(0x20801701);
pub const CE_GET_CE_PCE_MASK: Control<CePceMask> = Control::new(0x20802a02);
pub const CE_GET_CAPS_V2: Control<CeCaps> = Control::new(0x20802a03);
