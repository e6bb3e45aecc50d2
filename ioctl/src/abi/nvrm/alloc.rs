//! Classes of RM's objects and the parameters of an allocation of each: `alloc/*.h`, `class/*.h` of release 580.

use super::super::{Choice, Kind, Layout};
use Kind::{Address, Dec, Fd, Handle, Hex, Nested, Pointer, Reserved, Signed, Text};

abi_struct! {
    /// Class NV01_ROOT_CLIENT; none is the usual.
    RootAlloc = "NV0000_ALLOC_PARAMETERS", 120 {
        h_client as "hClient": u32, In, Handle;
        process_id as "processID": u32, In, Dec;
        process_name as "processName": [u8; 100], In, Text;
        pad1 as "": u32, In, Reserved;
        p_os_pid_info as "pOsPidInfo": u64, In, Pointer;
    }
}

abi_struct! {
    /// Class NV01_DEVICE_0: `vaMode` 0 is one address space by choice.
    DeviceAlloc = "NV0080_ALLOC_PARAMETERS", 56 {
        device_id as "deviceId": u32, In, Dec;
        h_client_share as "hClientShare": u32, In, Handle;
        h_target_client as "hTargetClient": u32, In, Handle;
        h_target_device as "hTargetDevice": u32, In, Handle;
        flags: u32, In, Hex;
        pad1 as "": u32, In, Reserved;
        va_space_size as "vaSpaceSize": u64, In, Hex;
        va_start_internal as "vaStartInternal": u64, In, Dec;
        va_limit_internal as "vaLimitInternal": u64, In, Dec;
        va_mode as "vaMode": u32, In, Dec;
        pad2 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// Class NV20_SUBDEVICE_0.
    SubdeviceAlloc = "NV2080_ALLOC_PARAMETERS", 4 {
        sub_device_id as "subDeviceId": u32, In, Dec;
    }
}

abi_struct! {
    /// Class NV01_EVENT_OS_EVENT: `data` is the number of a file that ALLOC_OS_EVENT named.
    EventAlloc = "NV0005_ALLOC_PARAMETERS", 24 {
        h_parent_client as "hParentClient": u32, In, Handle;
        h_src_resource as "hSrcResource": u32, In, Handle;
        h_class as "hClass": u32, In, Hex;
        notify_index as "notifyIndex": u32, In, Hex;
        data: u64, In, Fd;
    }
}

abi_struct! {
    /// Class GT200_DEBUGGER.
    DebuggerAlloc = "NV83DE_ALLOC_PARAMETERS", 12 {
        h_debugger_client_obsolete as "hDebuggerClient_Obsolete": u32, In, Handle;
        h_app_client as "hAppClient": u32, In, Handle;
        h_class3d_object as "hClass3dObject": u32, In, Handle;
    }
}

abi_struct! {
    /// Class FERMI_VASPACE_A. Bytes and GPU addresses.
    VaSpaceAlloc = "NV_VASPACE_ALLOCATION_PARAMETERS", 56 {
        index: u32, InOut, Dec;
        flags: u32, InOut, Hex;
        va_size as "vaSize": u64, InOut, Hex;
        va_start_internal as "vaStartInternal": u64, InOut, Dec;
        va_limit_internal as "vaLimitInternal": u64, InOut, Dec;
        big_page_size as "bigPageSize": u32, InOut, Hex;
        pad1 as "": u32, In, Reserved;
        va_base as "vaBase": u64, InOut, Address;
        pasid: u32, InOut, Dec;
        pad2 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// Class KEPLER_CHANNEL_GROUP_A.
    ChannelGroupAlloc = "NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS", 20 {
        h_object_error as "hObjectError": u32, In, Handle;
        h_object_ecc_error as "hObjectEccError": u32, In, Handle;
        h_va_space as "hVASpace": u32, In, Handle;
        engine_type as "engineType": u32, In, Dec;
        b_is_calling_context_vgpu_plugin as "bIsCallingContextVgpuPlugin": u8, In, Dec;
        pad1 as "": [u8; 3], In, Reserved;
    }
}

abi_struct! {
    /// Class FERMI_CONTEXT_SHARE_A; the driver returns the subcontext.
    CtxShareAlloc = "NV_CTXSHARE_ALLOCATION_PARAMETERS", 12 {
        h_va_space as "hVASpace": u32, In, Handle;
        flags: u32, In, Hex;
        subctx_id as "subctxId": u32, InOut, Dec;
    }
}

abi_struct! {
    /// A piece of memory by physical address.
    MemoryDesc = "NV_MEMORY_DESC_PARAMS", 24 {
        base: u64, In, Address;
        size: u64, In, Hex;
        address_space as "addressSpace": u32, In, Hex;
        cache_attrib as "cacheAttrib": u32, In, Dec;
    }
}

abi_struct! {
    /// Classes *_CHANNEL_GPFIFO_*: `gpFifoOffset` is the ring's GPU address, `gpFifoEntries` a power of two; USERD at
    /// `userdOffset[0]` bytes in `hUserdMemory[0]`. One of `hContextShare` and `hVASpace`, not both.
    ChannelAlloc = "NV_CHANNEL_ALLOC_PARAMS", 368 {
        h_object_error as "hObjectError": u32, In, Handle;
        h_object_buffer as "hObjectBuffer": u32, In, Handle;
        gp_fifo_offset as "gpFifoOffset": u64, In, Address;
        gp_fifo_entries as "gpFifoEntries": u32, In, Dec;
        flags: u32, In, Hex;
        h_context_share as "hContextShare": u32, In, Handle;
        h_va_space as "hVASpace": u32, In, Handle;
        h_userd_memory as "hUserdMemory": [u32; 8], In, Handle;
        userd_offset as "userdOffset": [u64; 8], In, Hex;
        engine_type as "engineType": u32, In, Dec;
        cid: u32, In, Dec;
        sub_device_id as "subDeviceId": u32, In, Dec;
        h_object_ecc_error as "hObjectEccError": u32, In, Handle;
        instance_mem as "instanceMem": MemoryDesc, In, Nested(&MemoryDesc::LAYOUT);
        userd_mem as "userdMem": MemoryDesc, In, Nested(&MemoryDesc::LAYOUT);
        ramfc_mem as "ramfcMem": MemoryDesc, In, Nested(&MemoryDesc::LAYOUT);
        mthdbuf_mem as "mthdbufMem": MemoryDesc, In, Nested(&MemoryDesc::LAYOUT);
        h_phys_channel_group as "hPhysChannelGroup": u32, In, Handle;
        internal_flags as "internalFlags": u32, In, Hex;
        error_notifier_mem as "errorNotifierMem": MemoryDesc, In, Nested(&MemoryDesc::LAYOUT);
        ecc_error_notifier_mem as "eccErrorNotifierMem": MemoryDesc, In, Nested(&MemoryDesc::LAYOUT);
        process_id as "ProcessID": u32, In, Dec;
        sub_process_id as "SubProcessID": u32, In, Dec;
        encrypt_iv as "encryptIv": [u8; 12], In, Hex;
        decrypt_iv as "decryptIv": [u8; 12], In, Hex;
        hmac_nonce as "hmacNonce": [u8; 32], In, Hex;
        tpc_config_id as "tpcConfigID": u32, In, Dec;
        pad1 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// The same in releases from 610: one handle more, which moves all that follows.
    ChannelAllocV610 = "NV_CHANNEL_ALLOC_PARAMS", 376 {
        h_object_error as "hObjectError": u32, In, Handle;
        h_object_buffer as "hObjectBuffer": u32, In, Handle;
        gp_fifo_offset as "gpFifoOffset": u64, In, Address;
        gp_fifo_entries as "gpFifoEntries": u32, In, Dec;
        flags: u32, In, Hex;
        h_context_share as "hContextShare": u32, In, Handle;
        h_va_space as "hVASpace": u32, In, Handle;
        h_handle_va_space as "hHandleVASpace": u32, In, Handle;
        h_userd_memory as "hUserdMemory": [u32; 8], In, Handle;
        pad0 as "": u32, In, Reserved;
        userd_offset as "userdOffset": [u64; 8], In, Hex;
        engine_type as "engineType": u32, In, Dec;
        cid: u32, In, Dec;
        sub_device_id as "subDeviceId": u32, In, Dec;
        h_object_ecc_error as "hObjectEccError": u32, In, Handle;
        instance_mem as "instanceMem": MemoryDesc, In, Nested(&MemoryDesc::LAYOUT);
        userd_mem as "userdMem": MemoryDesc, In, Nested(&MemoryDesc::LAYOUT);
        ramfc_mem as "ramfcMem": MemoryDesc, In, Nested(&MemoryDesc::LAYOUT);
        mthdbuf_mem as "mthdbufMem": MemoryDesc, In, Nested(&MemoryDesc::LAYOUT);
        h_phys_channel_group as "hPhysChannelGroup": u32, In, Handle;
        internal_flags as "internalFlags": u32, In, Hex;
        error_notifier_mem as "errorNotifierMem": MemoryDesc, In, Nested(&MemoryDesc::LAYOUT);
        ecc_error_notifier_mem as "eccErrorNotifierMem": MemoryDesc, In, Nested(&MemoryDesc::LAYOUT);
        process_id as "ProcessID": u32, In, Dec;
        sub_process_id as "SubProcessID": u32, In, Dec;
        encrypt_iv as "encryptIv": [u8; 12], In, Hex;
        decrypt_iv as "decryptIv": [u8; 12], In, Hex;
        hmac_nonce as "hmacNonce": [u8; 32], In, Hex;
        tpc_config_id as "tpcConfigID": u32, In, Dec;
        pad1 as "": u32, In, Reserved;
    }
}

impl From<ChannelAlloc> for ChannelAllocV610 {
    fn from(old: ChannelAlloc) -> Self {
        Self {
            h_object_error: old.h_object_error,
            h_object_buffer: old.h_object_buffer,
            gp_fifo_offset: old.gp_fifo_offset,
            gp_fifo_entries: old.gp_fifo_entries,
            flags: old.flags,
            h_context_share: old.h_context_share,
            h_va_space: old.h_va_space,
            h_userd_memory: old.h_userd_memory,
            userd_offset: old.userd_offset,
            engine_type: old.engine_type,
            cid: old.cid,
            sub_device_id: old.sub_device_id,
            h_object_ecc_error: old.h_object_ecc_error,
            instance_mem: old.instance_mem,
            userd_mem: old.userd_mem,
            ramfc_mem: old.ramfc_mem,
            mthdbuf_mem: old.mthdbuf_mem,
            h_phys_channel_group: old.h_phys_channel_group,
            internal_flags: old.internal_flags,
            error_notifier_mem: old.error_notifier_mem,
            ecc_error_notifier_mem: old.ecc_error_notifier_mem,
            process_id: old.process_id,
            sub_process_id: old.sub_process_id,
            encrypt_iv: old.encrypt_iv,
            decrypt_iv: old.decrypt_iv,
            hmac_nonce: old.hmac_nonce,
            tpc_config_id: old.tpc_config_id,
            pad1: old.pad1,
            ..Self::default()
        }
    }
}

impl From<ChannelAllocV610> for ChannelAlloc {
    fn from(new: ChannelAllocV610) -> Self {
        Self {
            h_object_error: new.h_object_error,
            h_object_buffer: new.h_object_buffer,
            gp_fifo_offset: new.gp_fifo_offset,
            gp_fifo_entries: new.gp_fifo_entries,
            flags: new.flags,
            h_context_share: new.h_context_share,
            h_va_space: new.h_va_space,
            h_userd_memory: new.h_userd_memory,
            userd_offset: new.userd_offset,
            engine_type: new.engine_type,
            cid: new.cid,
            sub_device_id: new.sub_device_id,
            h_object_ecc_error: new.h_object_ecc_error,
            instance_mem: new.instance_mem,
            userd_mem: new.userd_mem,
            ramfc_mem: new.ramfc_mem,
            mthdbuf_mem: new.mthdbuf_mem,
            h_phys_channel_group: new.h_phys_channel_group,
            internal_flags: new.internal_flags,
            error_notifier_mem: new.error_notifier_mem,
            ecc_error_notifier_mem: new.ecc_error_notifier_mem,
            process_id: new.process_id,
            sub_process_id: new.sub_process_id,
            encrypt_iv: new.encrypt_iv,
            decrypt_iv: new.decrypt_iv,
            hmac_nonce: new.hmac_nonce,
            tpc_config_id: new.tpc_config_id,
            pad1: new.pad1,
        }
    }
}

abi_struct! {
    /// Classes *_USERMODE_A from Hopper on.
    UsermodeAlloc = "NV_HOPPER_USERMODE_A_PARAMS", 2 {
        b_bar1_mapping as "bBar1Mapping": u8, In, Dec;
        b_priv as "bPriv": u8, In, Dec;
    }
}

abi_struct! {
    /// Classes *_DMA_COPY_*: version 1 names an engine type.
    CopyAlloc = "NVB0B5_ALLOCATION_PARAMETERS", 8 {
        version: u32, In, Dec;
        engine_type as "engineType": u32, In, Dec;
    }
}

abi_struct! {
    /// Classes *_COMPUTE_*; none is the usual.
    GraphicsAlloc = "NV_GR_ALLOCATION_PARAMETERS", 16 {
        version: u32, In, Dec;
        flags: u32, In, Hex;
        size: u32, In, Hex;
        caps: u32, In, Hex;
    }
}

abi_struct! {
    /// Classes NV01_MEMORY_LOCAL_USER, NV01_MEMORY_SYSTEM, NV50_MEMORY_VIRTUAL. Bytes; `limit` is the last one.
    MemoryAlloc = "NV_MEMORY_ALLOCATION_PARAMS", 128 {
        owner: u32, In, Dec;
        kind as "type": u32, In, Dec;
        flags: u32, In, Hex;
        width: u32, In, Dec;
        height: u32, In, Dec;
        pitch: u32, InOut, Dec;
        attr: u32, InOut, Hex;
        attr2: u32, InOut, Hex;
        format: u32, InOut, Dec;
        compr_covg as "comprCovg": u32, InOut, Dec;
        zcull_covg as "zcullCovg": u32, InOut, Dec;
        pad1 as "": u32, In, Reserved;
        range_lo as "rangeLo": u64, InOut, Dec;
        range_hi as "rangeHi": u64, InOut, Dec;
        size: u64, InOut, Hex;
        alignment: u64, InOut, Dec;
        offset: u64, InOut, Hex;
        limit: u64, InOut, Hex;
        address: u64, InOut, Hex;
        ctag_offset as "ctagOffset": u32, InOut, Dec;
        h_va_space as "hVASpace": u32, InOut, Handle;
        internalflags: u32, InOut, Hex;
        tag: u32, InOut, Dec;
        numa_node as "numaNode": i32, InOut, Signed;
        pad2 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// Class NV01_MEMORY_SYSTEM_OS_DESCRIPTOR.
    OsDescMemoryAlloc = "NV_OS_DESC_MEMORY_ALLOCATION_PARAMS", 40 {
        kind as "type": u32, In, Dec;
        flags: u32, In, Hex;
        attr: u32, In, Hex;
        attr2: u32, In, Hex;
        descriptor: u64, In, Dec;
        limit: u64, In, Hex;
        descriptor_type as "descriptorType": u32, In, Dec;
        tag: u32, In, Dec;
    }
}

abi_struct! {
    /// Class NV01_MEMORY_VIRTUAL.
    VirtualMemoryAlloc = "NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS", 24 {
        offset: u64, InOut, Hex;
        limit: u64, InOut, Hex;
        h_va_space as "hVASpace": u32, InOut, Handle;
        pad1 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// Class NV01_CONTEXT_DMA.
    ContextDmaAlloc = "NV_CONTEXT_DMA_ALLOCATION_PARAMS", 32 {
        h_sub_device as "hSubDevice": u32, In, Handle;
        flags: u32, In, Hex;
        h_memory as "hMemory": u32, In, Handle;
        pad1 as "": u32, In, Reserved;
        offset: u64, In, Hex;
        limit: u64, In, Hex;
    }
}

abi_struct! {
    /// Class NV50_P2P; releases from 595 have 16 bytes more.
    P2pAlloc = "NV503B_ALLOC_PARAMETERS", 72 {
        h_sub_device as "hSubDevice": u32, InOut, Handle;
        h_peer_sub_device as "hPeerSubDevice": u32, InOut, Handle;
        sub_device_peer_id_mask as "subDevicePeerIdMask": u32, InOut, Hex;
        peer_sub_device_peer_id_mask as "peerSubDevicePeerIdMask": u32, InOut, Hex;
        mailbox_bar1_addr as "mailboxBar1Addr": u64, InOut, Dec;
        mailbox_total_size as "mailboxTotalSize": u32, InOut, Hex;
        flags: u32, InOut, Hex;
        sub_device_egm_peer_id_mask as "subDeviceEgmPeerIdMask": u32, InOut, Hex;
        peer_sub_device_egm_peer_id_mask as "peerSubDeviceEgmPeerIdMask": u32, InOut, Hex;
        dma_address as "l2pBar1P2PDmaInfo.dma_address": u64, InOut, Hex;
        dma_size as "l2pBar1P2PDmaInfo.dma_size": u64, InOut, Hex;
        p2l_bar1_p2p_dma_info_dma_address as "p2lBar1P2PDmaInfo.dma_address": u64, InOut, Hex;
        p2l_bar1_p2p_dma_info_dma_size as "p2lBar1P2PDmaInfo.dma_size": u64, InOut, Hex;
    }
}

abi_struct! {
    /// Class AMPERE_SMC_PARTITION_REF.
    SmcPartitionAlloc = "NVC637_ALLOCATION_PARAMETERS", 16 {
        cap_descriptor as "capDescriptor": u64, In, Dec;
        swizz_id as "swizzId": u32, In, Dec;
        pad1 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// Class AMPERE_SMC_EXEC_PARTITION_REF.
    SmcExecPartitionAlloc = "NVC638_ALLOCATION_PARAMETERS", 16 {
        cap_descriptor as "capDescriptor": u64, In, Dec;
        exec_partition_id as "execPartitionId": u32, In, Dec;
        pad1 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// Class NV_CONFIDENTIAL_COMPUTE.
    ConfidentialComputeAlloc = "NV_CONFIDENTIAL_COMPUTE_ALLOC_PARAMS", 4 {
        h_client as "hClient": u32, In, Handle;
    }
}

pub const NV01_ROOT: u32 = 0x0000;
pub const NV01_CONTEXT_DMA: u32 = 0x0002;
pub const NV01_EVENT: u32 = 0x0005;
pub const NV01_MEMORY_SYSTEM: u32 = 0x003e;
pub const NV01_MEMORY_LOCAL_PRIVILEGED: u32 = 0x003f;
pub const NV01_MEMORY_LOCAL_USER: u32 = 0x0040;
pub const NV01_ROOT_CLIENT: u32 = 0x0041;
pub const NV01_MEMORY_VIRTUAL: u32 = 0x0070;
pub const NV01_MEMORY_SYSTEM_OS_DESCRIPTOR: u32 = 0x0071;
pub const NV01_EVENT_OS_EVENT: u32 = 0x0079;
pub const NV01_EVENT_KERNEL_CALLBACK_EX: u32 = 0x007e;
pub const NV01_DEVICE_0: u32 = 0x0080;
pub const NV01_MEMORY_LIST_SYSTEM: u32 = 0x0081;
pub const NV01_MEMORY_LIST_FBMEM: u32 = 0x0082;
pub const NV20_SUBDEVICE_0: u32 = 0x2080;
pub const NV20_SUBDEVICE_DIAG: u32 = 0x208f;
pub const NV50_P2P: u32 = 0x503b;
pub const NV50_THIRD_PARTY_P2P: u32 = 0x503c;
pub const NV50_MEMORY_VIRTUAL: u32 = 0x50a0;
pub const GT200_DEBUGGER: u32 = 0x83de;
pub const FERMI_CONTEXT_SHARE_A: u32 = 0x9067;
pub const FERMI_VASPACE_A: u32 = 0x90f1;
pub const KEPLER_CHANNEL_GROUP_A: u32 = 0xa06c;
pub const KEPLER_CHANNEL_GPFIFO_A: u32 = 0xa06f;
pub const VOLTA_USERMODE_A: u32 = 0xc361;
pub const VOLTA_CHANNEL_GPFIFO_A: u32 = 0xc36f;
pub const TURING_USERMODE_A: u32 = 0xc461;
pub const TURING_CHANNEL_GPFIFO_A: u32 = 0xc46f;
pub const AMPERE_USERMODE_A: u32 = 0xc561;
pub const AMPERE_CHANNEL_GPFIFO_A: u32 = 0xc56f;
pub const TURING_DMA_COPY_A: u32 = 0xc5b5;
pub const TURING_COMPUTE_A: u32 = 0xc5c0;
pub const AMPERE_SMC_PARTITION_REF: u32 = 0xc637;
pub const AMPERE_SMC_EXEC_PARTITION_REF: u32 = 0xc638;
pub const AMPERE_SMC_MONITOR_SESSION: u32 = 0xc640;
pub const HOPPER_USERMODE_A: u32 = 0xc661;
pub const AMPERE_DMA_COPY_A: u32 = 0xc6b5;
pub const AMPERE_COMPUTE_A: u32 = 0xc6c0;
pub const BLACKWELL_USERMODE_A: u32 = 0xc761;
pub const AMPERE_DMA_COPY_B: u32 = 0xc7b5;
pub const AMPERE_COMPUTE_B: u32 = 0xc7c0;
pub const HOPPER_MMU_VIDMEM_ACCESS_BIT_BUFFER: u32 = 0xc863;
pub const HOPPER_CHANNEL_GPFIFO_A: u32 = 0xc86f;
pub const HOPPER_DMA_COPY_A: u32 = 0xc8b5;
pub const BLACKWELL_CHANNEL_GPFIFO_A: u32 = 0xc96f;
pub const BLACKWELL_DMA_COPY_A: u32 = 0xc9b5;
pub const ADA_COMPUTE_A: u32 = 0xc9c0;
pub const BLACKWELL_CHANNEL_GPFIFO_B: u32 = 0xca6f;
pub const BLACKWELL_DMA_COPY_B: u32 = 0xcab5;
pub const NV_CONFIDENTIAL_COMPUTE: u32 = 0xcb33;
pub const HOPPER_COMPUTE_A: u32 = 0xcbc0;
pub const BLACKWELL_COMPUTE_A: u32 = 0xcdc0;
pub const BLACKWELL_COMPUTE_B: u32 = 0xcec0;

const fn choice(value: u32, name: &'static str, layout: Option<&'static Layout>) -> Choice {
    Choice { value, name, layout, other: None }
}

const fn channel(value: u32, name: &'static str) -> Choice {
    Choice { value, name, layout: Some(&ChannelAlloc::LAYOUT), other: Some(&ChannelAllocV610::LAYOUT) }
}

/// Every class named here, by number, with its parameters where it has any.
#[rustfmt::skip]
pub const CLASSES: &[Choice] = &[
    choice(NV01_ROOT, "NV01_ROOT", Some(&RootAlloc::LAYOUT)),
    choice(NV01_CONTEXT_DMA, "NV01_CONTEXT_DMA", Some(&ContextDmaAlloc::LAYOUT)),
    choice(NV01_EVENT, "NV01_EVENT", None),
    choice(NV01_MEMORY_SYSTEM, "NV01_MEMORY_SYSTEM", Some(&MemoryAlloc::LAYOUT)),
    choice(NV01_MEMORY_LOCAL_PRIVILEGED, "NV01_MEMORY_LOCAL_PRIVILEGED", None),
    choice(NV01_MEMORY_LOCAL_USER, "NV01_MEMORY_LOCAL_USER", Some(&MemoryAlloc::LAYOUT)),
    choice(NV01_ROOT_CLIENT, "NV01_ROOT_CLIENT", Some(&RootAlloc::LAYOUT)),
    choice(NV01_MEMORY_VIRTUAL, "NV01_MEMORY_VIRTUAL", Some(&VirtualMemoryAlloc::LAYOUT)),
    choice(NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, "NV01_MEMORY_SYSTEM_OS_DESCRIPTOR", Some(&OsDescMemoryAlloc::LAYOUT)),
    choice(NV01_EVENT_OS_EVENT, "NV01_EVENT_OS_EVENT", Some(&EventAlloc::LAYOUT)),
    choice(NV01_EVENT_KERNEL_CALLBACK_EX, "NV01_EVENT_KERNEL_CALLBACK_EX", None),
    choice(NV01_DEVICE_0, "NV01_DEVICE_0", Some(&DeviceAlloc::LAYOUT)),
    choice(NV01_MEMORY_LIST_SYSTEM, "NV01_MEMORY_LIST_SYSTEM", None),
    choice(NV01_MEMORY_LIST_FBMEM, "NV01_MEMORY_LIST_FBMEM", None),
    choice(NV20_SUBDEVICE_0, "NV20_SUBDEVICE_0", Some(&SubdeviceAlloc::LAYOUT)),
    choice(NV20_SUBDEVICE_DIAG, "NV20_SUBDEVICE_DIAG", None),
    choice(NV50_P2P, "NV50_P2P", Some(&P2pAlloc::LAYOUT)),
    choice(NV50_THIRD_PARTY_P2P, "NV50_THIRD_PARTY_P2P", None),
    choice(NV50_MEMORY_VIRTUAL, "NV50_MEMORY_VIRTUAL", Some(&MemoryAlloc::LAYOUT)),
    choice(GT200_DEBUGGER, "GT200_DEBUGGER", Some(&DebuggerAlloc::LAYOUT)),
    choice(FERMI_CONTEXT_SHARE_A, "FERMI_CONTEXT_SHARE_A", Some(&CtxShareAlloc::LAYOUT)),
    choice(FERMI_VASPACE_A, "FERMI_VASPACE_A", Some(&VaSpaceAlloc::LAYOUT)),
    choice(KEPLER_CHANNEL_GROUP_A, "KEPLER_CHANNEL_GROUP_A", Some(&ChannelGroupAlloc::LAYOUT)),
    channel(KEPLER_CHANNEL_GPFIFO_A, "KEPLER_CHANNEL_GPFIFO_A"),
    choice(VOLTA_USERMODE_A, "VOLTA_USERMODE_A", None),
    channel(VOLTA_CHANNEL_GPFIFO_A, "VOLTA_CHANNEL_GPFIFO_A"),
    choice(TURING_USERMODE_A, "TURING_USERMODE_A", None),
    channel(TURING_CHANNEL_GPFIFO_A, "TURING_CHANNEL_GPFIFO_A"),
    choice(AMPERE_USERMODE_A, "AMPERE_USERMODE_A", None),
    channel(AMPERE_CHANNEL_GPFIFO_A, "AMPERE_CHANNEL_GPFIFO_A"),
    choice(TURING_DMA_COPY_A, "TURING_DMA_COPY_A", Some(&CopyAlloc::LAYOUT)),
    choice(TURING_COMPUTE_A, "TURING_COMPUTE_A", Some(&GraphicsAlloc::LAYOUT)),
    choice(AMPERE_SMC_PARTITION_REF, "AMPERE_SMC_PARTITION_REF", Some(&SmcPartitionAlloc::LAYOUT)),
    choice(AMPERE_SMC_EXEC_PARTITION_REF, "AMPERE_SMC_EXEC_PARTITION_REF", Some(&SmcExecPartitionAlloc::LAYOUT)),
    choice(AMPERE_SMC_MONITOR_SESSION, "AMPERE_SMC_MONITOR_SESSION", None),
    choice(HOPPER_USERMODE_A, "HOPPER_USERMODE_A", Some(&UsermodeAlloc::LAYOUT)),
    choice(AMPERE_DMA_COPY_A, "AMPERE_DMA_COPY_A", Some(&CopyAlloc::LAYOUT)),
    choice(AMPERE_COMPUTE_A, "AMPERE_COMPUTE_A", Some(&GraphicsAlloc::LAYOUT)),
    choice(BLACKWELL_USERMODE_A, "BLACKWELL_USERMODE_A", Some(&UsermodeAlloc::LAYOUT)),
    choice(AMPERE_DMA_COPY_B, "AMPERE_DMA_COPY_B", Some(&CopyAlloc::LAYOUT)),
    choice(AMPERE_COMPUTE_B, "AMPERE_COMPUTE_B", Some(&GraphicsAlloc::LAYOUT)),
    choice(HOPPER_MMU_VIDMEM_ACCESS_BIT_BUFFER, "HOPPER_MMU_VIDMEM_ACCESS_BIT_BUFFER", None),
    channel(HOPPER_CHANNEL_GPFIFO_A, "HOPPER_CHANNEL_GPFIFO_A"),
    choice(HOPPER_DMA_COPY_A, "HOPPER_DMA_COPY_A", Some(&CopyAlloc::LAYOUT)),
    channel(BLACKWELL_CHANNEL_GPFIFO_A, "BLACKWELL_CHANNEL_GPFIFO_A"),
    choice(BLACKWELL_DMA_COPY_A, "BLACKWELL_DMA_COPY_A", Some(&CopyAlloc::LAYOUT)),
    choice(ADA_COMPUTE_A, "ADA_COMPUTE_A", Some(&GraphicsAlloc::LAYOUT)),
    channel(BLACKWELL_CHANNEL_GPFIFO_B, "BLACKWELL_CHANNEL_GPFIFO_B"),
    choice(BLACKWELL_DMA_COPY_B, "BLACKWELL_DMA_COPY_B", Some(&CopyAlloc::LAYOUT)),
    choice(NV_CONFIDENTIAL_COMPUTE, "NV_CONFIDENTIAL_COMPUTE", Some(&ConfidentialComputeAlloc::LAYOUT)),
    choice(HOPPER_COMPUTE_A, "HOPPER_COMPUTE_A", Some(&GraphicsAlloc::LAYOUT)),
    choice(BLACKWELL_COMPUTE_A, "BLACKWELL_COMPUTE_A", Some(&GraphicsAlloc::LAYOUT)),
    choice(BLACKWELL_COMPUTE_B, "BLACKWELL_COMPUTE_B", Some(&GraphicsAlloc::LAYOUT)),
];
