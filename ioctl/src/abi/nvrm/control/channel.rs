//! Commands to channels and channel groups.
//!
//! Source: `ctrl/*.h` of release 580. Sizes are in bytes unless a field says otherwise.

use super::Control;
use crate::abi::Kind;
use Kind::{Dec, Handle, Hex, QueueId, Reserved, Text};

abi_struct! {
    /// A channel group put on its runlist, or taken off.
    GroupSchedule = "NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS", 3 {
        b_enable as "bEnable": u8, In, Dec;
        b_skip_submit as "bSkipSubmit": u8, In, Dec;
        b_skip_enable as "bSkipEnable": u8, In, Dec;
    }
}

abi_struct! {
    /// Preempts a channel group, with a timeout in microseconds.
    GroupPreempt = "NVA06C_CTRL_PREEMPT_PARAMS", 8 {
        b_wait as "bWait": u8, In, Dec;
        b_manual_timeout as "bManualTimeout": u8, In, Dec;
        pad1 as "": u16, In, Reserved;
        timeout_us as "timeoutUs": u32, In, Dec;
    }
}

abi_struct! {
    /// A channel group's time slice, microseconds.
    GroupTimeslice = "NVA06C_CTRL_TIMESLICE_PARAMS", 8 {
        timeslice_us as "timesliceUs": u64, InOut, Dec;
    }
}

abi_struct! {
    /// A channel without a group bound to an engine.
    ChannelBind = "NVA06F_CTRL_BIND_PARAMS", 4 {
        engine_type as "engineType": u32, In, Dec;
    }
}

abi_struct! {
    /// A channel without a group put on its runlist.
    ChannelSchedule = "NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS", 3 {
        b_enable as "bEnable": u8, In, Dec;
        b_skip_submit as "bSkipSubmit": u8, In, Dec;
        b_skip_enable as "bSkipEnable": u8, In, Dec;
    }
}

abi_struct! {
    /// Whether an error is reported to all channels of the group.
    SetErrorNotifier = "NVA06F_CTRL_SET_ERROR_NOTIFIER_PARAMS", 1 {
        b_notify_each_channel_in_tsg as "bNotifyEachChannelInTSG": u8, In, Dec;
    }
}

abi_struct! {
    /// What an object of a channel runs on.
    ClassEngineId = "NV906F_CTRL_GET_CLASS_ENGINEID_PARAMS", 16 {
        h_object as "hObject": u32, In, Handle;
        class_engine_id as "classEngineID": u32, Out, Dec;
        class_id as "classID": u32, Out, Dec;
        engine_id as "engineID": u32, Out, Dec;
    }
}

abi_struct! {
    /// A channel reset.
    ResetChannel = "NV906F_CTRL_CMD_RESET_CHANNEL_PARAMS", 16 {
        engine_id as "engineID": u32, In, Dec;
        subdevice_instance as "subdeviceInstance": u32, In, Dec;
        reset_reason as "resetReason": u32, In, Dec;
        b_is_rc_pending as "bIsRcPending": u8, In, Dec;
        pad1 as "": [u8; 3], In, Reserved;
    }
}

abi_struct! {
    /// The fault that a channel died of.
    ChannelMmuFault = "NV906F_CTRL_GET_MMU_FAULT_INFO_PARAMS", 104 {
        addr_hi as "addrHi": u32, Out, Dec;
        addr_lo as "addrLo": u32, Out, Dec;
        fault_type as "faultType": u32, Out, Dec;
        fault_string as "faultString": [u8; 32], Out, Text;
        pad1 as "": u32, In, Reserved;
        shader_program_va as "shaderProgramVA": [u8; 56], Out, Hex;
    }
}

abi_struct! {
    /// Whether the end of a channel waits for a debugger.
    DeferRcState = "NV906F_CTRL_CMD_GET_DEFER_RC_STATE_PARAMS", 1 {
        b_defer_rc_pending as "bDeferRCPending": u8, Out, Dec;
    }
}

abi_struct! {
    /// What is stored to the doorbell.
    WorkSubmitToken = "NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS", 4 {
        work_submit_token as "workSubmitToken": u32, Out, QueueId;
    }
}

abi_struct! {
    /// Offset in the notifier at which the token is kept up to date.
    TokenNotifIndex = "NVC36F_CTRL_GPFIFO_SET_WORK_SUBMIT_TOKEN_NOTIF_INDEX_PARAMS", 4 {
        index: u32, In, Dec;
    }
}

pub const CHANNEL_GET_CLASS_ENGINEID: Control<ClassEngineId> = Control::new(0x906f0101);
pub const CHANNEL_RESET_CHANNEL: Control<ResetChannel> = Control::new(0x906f0102);
pub const CHANNEL_GET_DEFER_RC_STATE: Control<DeferRcState> = Control::new(0x906f0105);
pub const CHANNEL_GET_MMU_FAULT_INFO: Control<ChannelMmuFault> = Control::new(0x906f0106);
pub const GROUP_GPFIFO_SCHEDULE: Control<GroupSchedule> = Control::new(0xa06c0101);
pub const GROUP_SET_TIMESLICE: Control<GroupTimeslice> = Control::new(0xa06c0103);
pub const GROUP_GET_TIMESLICE: Control<GroupTimeslice> = Control::new(0xa06c0104);
pub const GROUP_PREEMPT: Control<GroupPreempt> = Control::new(0xa06c0105);
pub const CHANNEL_GPFIFO_SCHEDULE: Control<ChannelSchedule> = Control::new(0xa06f0103);
pub const CHANNEL_BIND: Control<ChannelBind> = Control::new(0xa06f0104);
pub const CHANNEL_SET_ERROR_NOTIFIER: Control<SetErrorNotifier> = Control::new(0xa06f0108);
pub const GPFIFO_GET_WORK_SUBMIT_TOKEN: Control<WorkSubmitToken> = Control::new(0xc36f0108);
pub const GPFIFO_SET_WORK_SUBMIT_TOKEN_NOTIF_INDEX: Control<TokenNotifIndex> = Control::new(0xc36f010a);
