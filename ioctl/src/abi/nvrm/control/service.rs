//! Commands to a GPU about memory, bus, time, clocks and events.
//!
//! Source: `ctrl/*.h` of release 580. Sizes are in bytes unless a field says otherwise.

use super::Control;
use super::gpu::InfoEntry;
use crate::abi::Kind;
use crate::abi::nvrm::STATUSES;
use Kind::{Dec, Enum, Hex, Nested, Reserved, Words};

abi_struct! {
    /// Values by index (KiB unless the index's documentation differs).
    FbInfo = "NV2080_CTRL_FB_GET_INFO_V2_PARAMS", 1028 {
        fb_info_list_size as "fbInfoListSize": u32, In, Hex;
        fb_info_list as "fbInfoList": [InfoEntry; 128], InOut, Nested(&InfoEntry::LAYOUT);
    }
}

abi_struct! {
    /// Whether BAR1 shows all of VRAM (bytes).
    StaticBar1Info = "NV2080_CTRL_FB_GET_STATIC_BAR1_INFO_PARAMS", 24 {
        b_static_bar1_enabled as "bStaticBar1Enabled": u8, Out, Dec;
        b_static_bar1_write_combined as "bStaticBar1WriteCombined": u8, Out, Dec;
        pad1 as "": [u8; 6], In, Reserved;
        static_bar1_start_offset as "staticBar1StartOffset": u64, Out, Dec;
        static_bar1_size as "staticBar1Size": u64, Out, Hex;
    }
}

abi_struct! {
    /// Offset of a mapping in BAR1.
    Bar1Offset = "NV2080_CTRL_FB_GET_BAR1_OFFSET_PARAMS", 16 {
        cpu_virt_address as "cpuVirtAddress": u64, In, Hex;
        gpu_virt_address as "gpuVirtAddress": u64, Out, Hex;
    }
}

abi_struct! {
    /// PCI ids.
    BusPciInfo = "NV2080_CTRL_BUS_GET_PCI_INFO_PARAMS", 16 {
        pci_device_id as "pciDeviceId": u32, Out, Dec;
        pci_sub_system_id as "pciSubSystemId": u32, Out, Dec;
        pci_revision_id as "pciRevisionId": u32, Out, Dec;
        pci_ext_device_id as "pciExtDeviceId": u32, Out, Dec;
    }
}

abi_struct! {
    /// Values by index.
    BusInfo = "NV2080_CTRL_BUS_GET_INFO_V2_PARAMS", 420 {
        bus_info_list_size as "busInfoListSize": u32, In, Hex;
        bus_info_list as "busInfoList": [InfoEntry; 52], InOut, Nested(&InfoEntry::LAYOUT);
    }
}

abi_struct! {
    /// One BAR: `barSize` in MiB, `barSizeBytes` in bytes.
    PciBar = "NV2080_CTRL_BUS_PCI_BAR_INFO", 24 {
        flags: u32, Out, Hex;
        bar_size as "barSize": u32, Out, Hex;
        bar_size_bytes as "barSizeBytes": u64, Out, Hex;
        bar_offset as "barOffset": u64, Out, Dec;
    }
}

abi_struct! {
    /// The BARs.
    PciBarInfo = "NV2080_CTRL_BUS_GET_PCI_BAR_INFO_PARAMS", 200 {
        pci_bar_count as "pciBarCount": u32, Out, Dec;
        pad1 as "": u32, In, Reserved;
        pci_bar_info as "pciBarInfo": [PciBar; 8], Out, Nested(&PciBar::LAYOUT);
    }
}

abi_struct! {
    /// The GPU's clock, ns.
    TimerTime = "NV2080_CTRL_TIMER_GET_TIME_PARAMS", 8 {
        time_nsec: u64, Out, Dec;
    }
}

abi_struct! {
    /// Both clocks at one time.
    TimeSample = "NV2080_CTRL_TIMER_GPU_CPU_TIME_SAMPLE", 16 {
        cpu_time as "cpuTime": u64, Out, Dec;
        gpu_time as "gpuTime": u64, Out, Dec;
    }
}

abi_struct! {
    /// The processor's clock next to the GPU's, ns.
    TimeCorrelation = "NV2080_CTRL_TIMER_GET_GPU_CPU_TIME_CORRELATION_INFO_PARAMS", 264 {
        cpu_clk_id as "cpuClkId": u8, In, Dec;
        sample_count as "sampleCount": u8, In, Dec;
        pad1 as "": [u8; 6], In, Reserved;
        samples: [TimeSample; 16], Out, Nested(&TimeSample::LAYOUT);
    }
}

abi_struct! {
    /// Clocks raised for some seconds.
    PerfBoost = "NV2080_CTRL_PERF_BOOST_PARAMS", 8 {
        flags: u32, In, Hex;
        duration: u32, In, Dec;
    }
}

abi_struct! {
    /// The performance state in force, one bit.
    CurrentPstate = "NV2080_CTRL_PERF_GET_CURRENT_PSTATE_PARAMS", 4 {
        curr_pstate as "currPstate": u32, Out, Dec;
    }
}

abi_struct! {
    /// A clock domain, kHz.
    ClkInfo = "NV2080_CTRL_PERF_GET_CLK_INFO", 24 {
        flags: u32, In, Hex;
        domain: u32, In, Dec;
        current_freq as "currentFreq": u32, Out, Dec;
        default_freq as "defaultFreq": u32, Out, Dec;
        min_freq as "minFreq": u32, Out, Dec;
        max_freq as "maxFreq": u32, Out, Dec;
    }
}

abi_struct! {
    /// Clocks of a performance level.
    LevelInfo = "NV2080_CTRL_PERF_GET_LEVEL_INFO_V2_PARAMS", 780 {
        level: u32, In, Dec;
        flags: u32, In, Hex;
        perf_get_clk_info_list as "perfGetClkInfoList": [ClkInfo; 32], Out, Nested(&ClkInfo::LAYOUT);
        perf_get_clk_info_list_size as "perfGetClkInfoListSize": u32, In, Hex;
    }
}

abi_struct! {
    /// Action 0 off, 1 once, 2 each time.
    SetNotification = "NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS", 20 {
        event: u32, In, Dec;
        action: u32, In, Dec;
        b_notify_state as "bNotifyState": u8, In, Dec;
        pad1 as "": [u8; 3], In, Reserved;
        info32: u32, In, Dec;
        info16: u16, In, Dec;
        pad2 as "": u16, In, Reserved;
    }
}

abi_struct! {
    /// Recorded errors.
    RcErrorCount = "NV2080_CTRL_RC_GET_ERROR_COUNT_PARAMS", 4 {
        error_count as "errorCount": u32, Out, Dec;
    }
}

abi_struct! {
    /// One query to the thermal system: an opcode and up to eight words, in which the answer is returned.
    ThermalInstruction = "NV2080_CTRL_THERMAL_SYSTEM_INSTRUCTION", 44 {
        result: u32, Out, Enum(STATUSES);
        executed: u32, Out, Dec;
        opcode: u32, In, Hex;
        operands: [u32; 8], InOut, Words;
    }
}

abi_struct! {
    /// Questions to the thermal system. `client_instruction_size_of` is the size of one.
    ThermalSystemExecute = "NV2080_CTRL_THERMAL_SYSTEM_EXECUTE_V2_PARAMS", 1432 {
        client_api_version as "clientAPIVersion": u32, In, Dec;
        client_api_revision as "clientAPIRevision": u32, In, Dec;
        client_instruction_size_of as "clientInstructionSizeOf": u32, In, Hex;
        execute_flags as "executeFlags": u32, In, Hex;
        successful_instructions as "successfulInstructions": u32, Out, Dec;
        instruction_list_size as "instructionListSize": u32, In, Dec;
        instruction_list as "instructionList": [ThermalInstruction; 32], InOut, Nested(&ThermalInstruction::LAYOUT);
    }
}

/// Opcodes of [`ThermalInstruction`]: number of sensors; which target a sensor measures, by index; a target's type; a
/// sensor's degrees.
pub const THERMAL_SENSORS_AVAILABLE: u32 = 0x500;
pub const THERMAL_SENSOR_TARGET: u32 = 0x520;
pub const THERMAL_TARGETS_AVAILABLE: u32 = 0x100;
pub const THERMAL_TARGET_TYPE: u32 = 0x101;
pub const THERMAL_SENSOR_RANGE: u32 = 0x540;
pub const THERMAL_SENSOR_READING: u32 = 0x1500;
/// Types of targets.
pub const THERMAL_TARGET_GPU: u32 = 1;
pub const THERMAL_TARGET_MEMORY: u32 = 2;

pub const EVENT_SET_NOTIFICATION: Control<SetNotification> = Control::new(0x20800301);
pub const TIMER_GET_TIME: Control<TimerTime> = Control::new(0x20800403);
pub const TIMER_GET_GPU_CPU_TIME_CORRELATION_INFO: Control<TimeCorrelation> = Control::new(0x20800406);
pub const THERMAL_SYSTEM_EXECUTE_V2: Control<ThermalSystemExecute> = Control::new(0x20800513);
pub const FB_GET_INFO_V2: Control<FbInfo> = Control::new(0x20801303);
pub const FB_GET_BAR1_OFFSET: Control<Bar1Offset> = Control::new(0x20801310);
pub const FB_GET_STATIC_BAR1_INFO: Control<StaticBar1Info> = Control::new(0x20801354);
pub const BUS_GET_PCI_INFO: Control<BusPciInfo> = Control::new(0x20801801);
pub const BUS_GET_PCI_BAR_INFO: Control<PciBarInfo> = Control::new(0x20801803);
pub const BUS_GET_INFO_V2: Control<BusInfo> = Control::new(0x20801823);
pub const PERF_BOOST: Control<PerfBoost> = Control::new(0x2080200a);
pub const PERF_GET_LEVEL_INFO_V2: Control<LevelInfo> = Control::new(0x2080200b);
pub const PERF_GET_CURRENT_PSTATE: Control<CurrentPstate> = Control::new(0x20802068);
pub const RC_GET_ERROR_COUNT: Control<RcErrorCount> = Control::new(0x20802205);
