//! Commands to the debugger's object, and the query for confidential computing.
//!
//! Source: `ctrl/*.h` of release 580. Sizes are in bytes unless a field says otherwise.

use super::Control;
use crate::abi::Kind;
use Kind::{Address, Dec, Handle, Hex, Nested, Reserved};

abi_struct! {
    /// The error state of one SM.
    SmErrorState = "NV83DE_SM_ERROR_STATE_REGISTERS", 48 {
        hww_global_esr as "hwwGlobalEsr": u32, Out, Hex;
        hww_warp_esr as "hwwWarpEsr": u32, Out, Hex;
        hww_warp_esr_pc as "hwwWarpEsrPc": u32, Out, Hex;
        hww_global_esr_report_mask as "hwwGlobalEsrReportMask": u32, Out, Hex;
        hww_warp_esr_report_mask as "hwwWarpEsrReportMask": u32, Out, Hex;
        pad1 as "": u32, In, Reserved;
        hww_esr_addr as "hwwEsrAddr": u64, Out, Address;
        hww_warp_esr_pc64 as "hwwWarpEsrPc64": u64, Out, Address;
        hww_cga_esr as "hwwCgaEsr": u32, Out, Hex;
        hww_cga_esr_report_mask as "hwwCgaEsrReportMask": u32, Out, Hex;
    }
}

abi_struct! {
    /// Up to 100 SMs from `startingSM` on.
    ReadAllSmErrorStates = "NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS", 4824 {
        h_target_channel as "hTargetChannel": u32, In, Handle;
        num_s_ms_to_read as "numSMsToRead": u32, In, Dec;
        sm_error_state_array as "smErrorStateArray": [SmErrorState; 100], Out, Nested(&SmErrorState::LAYOUT);
        mmu_fault_info as "mmuFaultInfo": u32, Out, Dec;
        valid as "mmuFault.valid": u8, Out, Dec;
        pad1 as "": [u8; 3], In, Reserved;
        fault_info as "mmuFault.faultInfo": u32, Out, Dec;
        starting_sm as "startingSM": u32, In, Dec;
    }
}

abi_struct! {
    /// Whether there was a fault, and which.
    MmuFaultPresence = "NV83DE_MMU_FAULT_INFO", 8 {
        valid: u8, Out, Dec;
        pad1 as "": [u8; 3], In, Reserved;
        fault_info as "faultInfo": u32, Out, Dec;
    }
}

abi_struct! {
    /// One fault of the MMU.
    MmuFaultEntry = "NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_ENTRY", 16 {
        fault_address as "faultAddress": u64, Out, Address;
        fault_type as "faultType": u32, Out, Dec;
        access_type as "accessType": u32, Out, Dec;
    }
}

abi_struct! {
    /// The last faults of the MMU.
    ReadMmuFaultInfo = "NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_PARAMS", 72 {
        mmu_fault_info_list as "mmuFaultInfoList": [MmuFaultEntry; 4], Out, Nested(&MmuFaultEntry::LAYOUT);
        count: u32, Out, Dec;
        pad1 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// Forgets the errors.
    ClearAllSmErrorStates = "NV83DE_CTRL_DEBUG_CLEAR_ALL_SM_ERROR_STATES_PARAMS", 8 {
        h_target_channel as "hTargetChannel": u32, In, Handle;
        num_s_ms_to_clear as "numSMsToClear": u32, In, Dec;
    }
}

abi_struct! {
    /// Which exceptions stop a kernel.
    SetExceptionMask = "NV83DE_CTRL_DEBUG_SET_EXCEPTION_MASK_PARAMS", 4 {
        exception_mask as "exceptionMask": u32, In, Hex;
    }
}

abi_struct! {
    /// 1 on, 2 off.
    SetModeMmuDebug = "NV83DE_CTRL_DEBUG_SET_MODE_MMU_DEBUG_PARAMS", 4 {
        action: u32, In, Dec;
    }
}

abi_struct! {
    /// Bytes of a memory object.
    ReadMemory = "NV83DE_CTRL_DEBUG_READ_MEMORY_PARAMS", 24 {
        h_memory as "hMemory": u32, In, Handle;
        length: u32, In, Hex;
        offset: u64, In, Hex;
        buffer: u64, In, Dec;
    }
}

abi_struct! {
    /// `ccFeature` 0: no confidential computing.
    ConfComputeCapabilities = "NV_CONF_COMPUTE_CTRL_CMD_SYSTEM_GET_CAPABILITIES_PARAMS", 6 {
        cpu_capability as "cpuCapability": u8, Out, Dec;
        gpus_capability as "gpusCapability": u8, Out, Dec;
        environment: u8, Out, Dec;
        cc_feature as "ccFeature": u8, Out, Dec;
        dev_tools_mode as "devToolsMode": u8, Out, Dec;
        multi_gpu_mode as "multiGpuMode": u8, Out, Dec;
    }
}

pub const DEBUG_SET_MODE_MMU_DEBUG: Control<SetModeMmuDebug> = Control::new(0x83de0307);
pub const DEBUG_SET_EXCEPTION_MASK: Control<SetExceptionMask> = Control::new(0x83de0309);
pub const DEBUG_READ_ALL_SM_ERROR_STATES: Control<ReadAllSmErrorStates> = Control::new(0x83de030c);
pub const DEBUG_CLEAR_ALL_SM_ERROR_STATES: Control<ClearAllSmErrorStates> = Control::new(0x83de0310);
pub const DEBUG_READ_MEMORY: Control<ReadMemory> = Control::new(0x83de0315);
pub const DEBUG_READ_MMU_FAULT_INFO: Control<ReadMmuFaultInfo> = Control::new(0x83de0328);
pub const CONF_COMPUTE_SYSTEM_GET_CAPABILITIES: Control<ConfComputeCapabilities> = Control::new(0xcb330101);
