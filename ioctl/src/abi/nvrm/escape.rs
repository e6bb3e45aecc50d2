//! The structs of RM's calls: `nvos.h` and `nv-ioctl.h` of release 580.
//!
//! A call returns 0 in any case: the outcome is in `status`. Sizes are in bytes, addresses are of the process.

use super::super::Kind;
use super::alloc::CLASSES;
use super::control_names::CONTROLS;
use super::status::STATUSES;
use Kind::{Address, Choice, Dec, Enum, Fd, GpuId, Handle, Hex, Nested, Pointer, Reserved, Signed, Text, Words};

abi_struct! {
    /// Frees an object and all below it.
    RmFree = "NVOS00_PARAMETERS", 16 {
        h_root as "hRoot": u32, In, Handle;
        h_object_parent as "hObjectParent": u32, In, Handle;
        h_object_old as "hObjectOld": u32, In, Handle;
        status: u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// Memory of the process made an object: `pMemory` is page-aligned, `limit` the last byte.
    AllocMemoryParams = "NVOS02_PARAMETERS", 48 {
        h_root as "hRoot": u32, In, Handle;
        h_object_parent as "hObjectParent": u32, In, Handle;
        h_object_new as "hObjectNew": u32, In, Handle;
        h_class as "hClass": u32, In, Choice(CLASSES);
        flags: u32, In, Hex;
        pad1 as "": u32, In, Reserved;
        p_memory as "pMemory": u64, InOut, Address;
        limit: u64, In, Hex;
        status: u32, Out, Enum(STATUSES);
        pad2 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// On the device file; `fd` is -1 unless the memory is a file.
    RmAllocMemory = "nv_ioctl_nvos02_parameters_with_fd", 56 {
        params: AllocMemoryParams, In, Nested(&AllocMemoryParams::LAYOUT);
        fd: i32, In, Fd;
        pad1 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// The older, shorter form of [`RmAlloc`]; the size of the request distinguishes them.
    RmAlloc21 = "NVOS21_PARAMETERS", 32 {
        h_root as "hRoot": u32, In, Handle;
        h_object_parent as "hObjectParent": u32, In, Handle;
        h_object_new as "hObjectNew": u32, InOut, Handle;
        h_class as "hClass": u32, In, Choice(CLASSES);
        p_alloc_parms as "pAllocParms": u64, In, Pointer;
        params_size as "paramsSize": u32, In, Hex;
        status: u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// A new object of a class below a parent. With `h_object_new` 0 the driver chooses the handle. The driver copies
    /// the whole struct of the class whatever `params_size` says.
    RmAlloc = "NVOS64_PARAMETERS", 48 {
        h_root as "hRoot": u32, In, Handle;
        h_object_parent as "hObjectParent": u32, In, Handle;
        h_object_new as "hObjectNew": u32, InOut, Handle;
        h_class as "hClass": u32, In, Choice(CLASSES);
        p_alloc_parms as "pAllocParms": u64, In, Pointer;
        p_rights_requested as "pRightsRequested": u64, In, Pointer;
        params_size as "paramsSize": u32, In, Hex;
        flags: u32, In, Hex;
        status: u32, Out, Enum(STATUSES);
        pad1 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// A command to an object; `params_size` has to be that of the command's struct.
    RmControl = "NVOS54_PARAMETERS", 32 {
        h_client as "hClient": u32, In, Handle;
        h_object as "hObject": u32, In, Handle;
        cmd: u32, In, Choice(CONTROLS);
        flags: u32, In, Hex;
        params: u64, In, Pointer;
        params_size as "paramsSize": u32, In, Hex;
        status: u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// An object of another client made one of ours.
    RmDupObject = "NVOS55_PARAMETERS", 28 {
        h_client as "hClient": u32, In, Handle;
        h_parent as "hParent": u32, In, Handle;
        h_object as "hObject": u32, InOut, Handle;
        h_client_src as "hClientSrc": u32, In, Handle;
        h_object_src as "hObjectSrc": u32, In, Handle;
        flags: u32, In, Hex;
        status: u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// Access rights of other clients to an object.
    RmShare = "NVOS57_PARAMETERS", 24 {
        h_client as "hClient": u32, In, Handle;
        h_object as "hObject": u32, In, Handle;
        share_policy as "sharePolicy": [u8; 12], In, Hex;
        status: u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// Waits until channels are idle.
    RmIdleChannels = "NVOS30_PARAMETERS", 56 {
        h_client as "hClient": u32, In, Handle;
        h_device as "hDevice": u32, In, Handle;
        h_channel as "hChannel": u32, In, Handle;
        num_channels as "numChannels": u32, In, Dec;
        ph_clients as "phClients": u64, In, Pointer;
        ph_devices as "phDevices": u64, In, Pointer;
        ph_channels as "phChannels": u64, In, Pointer;
        flags: u32, In, Hex;
        timeout: u32, In, Dec;
        status: u32, Out, Enum(STATUSES);
        pad1 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// The older memory interface; the union by `function` is kept as bytes.
    RmVidHeapControl = "NVOS32_PARAMETERS", 184 {
        h_root as "hRoot": u32, In, Handle;
        h_object_parent as "hObjectParent": u32, In, Handle;
        function: u32, In, Dec;
        h_va_space as "hVASpace": u32, In, Handle;
        ivc_heap_number as "ivcHeapNumber": u16, In, Dec;
        pad1 as "": u16, In, Reserved;
        status: u32, Out, Enum(STATUSES);
        total: u64, Out, Dec;
        free: u64, Out, Dec;
        data: [u8; 144], InOut, Hex;
    }
}

abi_struct! {
    /// Maps a part of a memory object for the CPU; `pLinearAddress` returns a cookie for [`RmUnmapMemory`].
    MapMemoryParams = "NVOS33_PARAMETERS", 48 {
        h_client as "hClient": u32, In, Handle;
        h_device as "hDevice": u32, In, Handle;
        h_memory as "hMemory": u32, In, Handle;
        pad1 as "": u32, In, Reserved;
        offset: u64, In, Hex;
        length: u64, In, Hex;
        p_linear_address as "pLinearAddress": u64, Out, Address;
        status: u32, Out, Enum(STATUSES);
        flags: u32, In, Hex;
    }
}

abi_struct! {
    /// Arms `fd`, a file opened for this mapping alone, for one mmap at offset 0.
    RmMapMemory = "nv_ioctl_nvos33_parameters_with_fd", 56 {
        params: MapMemoryParams, In, Nested(&MapMemoryParams::LAYOUT);
        fd: i32, In, Fd;
        pad1 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// After munmap.
    RmUnmapMemory = "NVOS34_PARAMETERS", 32 {
        h_client as "hClient": u32, In, Handle;
        h_device as "hDevice": u32, In, Handle;
        h_memory as "hMemory": u32, In, Handle;
        pad1 as "": u32, In, Reserved;
        p_linear_address as "pLinearAddress": u64, In, Address;
        status: u32, Out, Enum(STATUSES);
        flags: u32, In, Hex;
    }
}

abi_struct! {
    /// A context DMA, of the time before virtual memory.
    RmAllocContextDma2 = "NVOS39_PARAMETERS", 56 {
        h_object_parent as "hObjectParent": u32, In, Handle;
        h_sub_device as "hSubDevice": u32, In, Handle;
        h_object_new as "hObjectNew": u32, InOut, Handle;
        h_class as "hClass": u32, In, Choice(CLASSES);
        flags: u32, In, Hex;
        selector: u32, In, Dec;
        h_memory as "hMemory": u32, In, Handle;
        pad1 as "": u32, In, Reserved;
        offset: u64, In, Hex;
        limit: u64, In, Hex;
        status: u32, Out, Enum(STATUSES);
        pad2 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// The oldest event of a file.
    RmGetEventData = "NVOS41_PARAMETERS", 16 {
        p_event as "pEvent": u64, In, Pointer;
        more_events as "MoreEvents": u32, Out, Dec;
        status: u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// A memory object mapped for the GPU without UVM (releases from 580; before, the last words are missing).
    RmMapMemoryDma = "NVOS46_PARAMETERS", 64 {
        h_client as "hClient": u32, In, Handle;
        h_device as "hDevice": u32, In, Handle;
        h_dma as "hDma": u32, In, Handle;
        h_memory as "hMemory": u32, In, Handle;
        offset: u64, In, Hex;
        length: u64, In, Hex;
        flags: u32, In, Hex;
        flags2: u32, In, Hex;
        kind_override as "kindOverride": u32, In, Dec;
        pad1 as "": u32, In, Reserved;
        dma_offset as "dmaOffset": u64, InOut, Address;
        status: u32, Out, Enum(STATUSES);
        pad2 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// Undoes [`RmMapMemoryDma`].
    RmUnmapMemoryDma = "NVOS47_PARAMETERS", 48 {
        h_client as "hClient": u32, In, Handle;
        h_device as "hDevice": u32, In, Handle;
        h_dma as "hDma": u32, In, Handle;
        h_memory as "hMemory": u32, In, Handle;
        flags: u32, In, Hex;
        pad1 as "": u32, In, Reserved;
        dma_offset as "dmaOffset": u64, In, Address;
        size: u64, In, Hex;
        status: u32, Out, Enum(STATUSES);
        pad2 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// A context DMA bound to a channel.
    RmBindContextDma = "NVOS49_PARAMETERS", 16 {
        h_client as "hClient": u32, In, Handle;
        h_channel as "hChannel": u32, In, Handle;
        h_ctx_dma as "hCtxDma": u32, In, Handle;
        status: u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// A mapping that the process has moved.
    RmUpdateDeviceMappingInfo = "NVOS56_PARAMETERS", 40 {
        h_client as "hClient": u32, In, Handle;
        h_device as "hDevice": u32, In, Handle;
        h_memory as "hMemory": u32, In, Handle;
        pad1 as "": u32, In, Reserved;
        p_old_cpu_address as "pOldCpuAddress": u64, In, Pointer;
        p_new_cpu_address as "pNewCpuAddress": u64, In, Pointer;
        status: u32, Out, Enum(STATUSES);
        pad2 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// One card: `reg_*` is BAR0, `fb_*` BAR1 (bytes), `minor_number` the number of its device file.
    CardInfo = "nv_ioctl_card_info_t", 72 {
        valid: u8, Out, Dec;
        pad1 as "": [u8; 3], In, Reserved;
        domain as "pci_info.domain": u32, Out, Dec;
        bus as "pci_info.bus": u8, Out, Dec;
        slot as "pci_info.slot": u8, Out, Dec;
        function as "pci_info.function": u8, Out, Dec;
        pad2 as "": u8, In, Reserved;
        vendor_id as "pci_info.vendor_id": u16, Out, Dec;
        device_id as "pci_info.device_id": u16, Out, Dec;
        gpu_id: u32, Out, GpuId;
        interrupt_line: u16, Out, Dec;
        pad3 as "": u16, In, Reserved;
        reg_address: u64, Out, Hex;
        reg_size: u64, Out, Hex;
        fb_address: u64, Out, Hex;
        fb_size: u64, Out, Hex;
        minor_number: u32, Out, Dec;
        dev_name: [u8; 10], Out, Text;
        pad4 as "": u16, In, Reserved;
    }
}

abi_struct! {
    /// Ties a device file to a control file; once each.
    RegisterFd = "nv_ioctl_register_fd_t", 4 {
        ctl_fd: i32, In, Fd;
    }
}

abi_struct! {
    /// A queue of events on a file.
    AllocOsEvent = "nv_ioctl_alloc_os_event_t", 16 {
        h_client as "hClient": u32, In, Handle;
        h_device as "hDevice": u32, In, Handle;
        fd: i32, In, Fd;
        status as "Status": u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// Undoes [`AllocOsEvent`].
    FreeOsEvent = "nv_ioctl_free_os_event_t", 16 {
        h_client as "hClient": u32, In, Handle;
        h_device as "hDevice": u32, In, Handle;
        fd: i32, In, Fd;
        status as "Status": u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// How a card came up.
    StatusCode = "nv_ioctl_status_code_t", 12 {
        domain: u32, In, Dec;
        bus: u8, In, Dec;
        slot: u8, In, Dec;
        pad1 as "": u16, In, Reserved;
        status: u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// `cmd` 0x32 queries the release's name; 0 requires the given one, 0x31 a compatible one.
    CheckVersion = "nv_ioctl_rm_api_version_t", 72 {
        cmd: u32, In, Dec;
        reply: u32, Out, Dec;
        version_string as "versionString": [u8; 64], InOut, Text;
    }
}

abi_struct! {
    /// Another call by number, for structs that do not fit a request word.
    Xfer = "nv_ioctl_xfer_t", 16 {
        cmd: u32, In, Dec;
        size: u32, In, Hex;
        ptr: u64, In, Pointer;
    }
}

abi_struct! {
    /// Bytes of a block of the system's memory.
    SysParams = "nv_ioctl_sys_params_t", 8 {
        memblock_size: u64, In, Hex;
    }
}

abi_struct! {
    /// Memory of a card that is a node of the system.
    NumaInfo = "nv_ioctl_numa_info_t", 560 {
        nid: i32, InOut, Signed;
        status: u32, Out, Enum(STATUSES);
        memblock_size: u64, InOut, Hex;
        numa_mem_addr: u64, InOut, Dec;
        numa_mem_size: u64, InOut, Hex;
        use_auto_online: u8, InOut, Dec;
        pad1 as "": [u8; 7], In, Reserved;
        addresses as "offline_addresses.addresses": [u64; 64], InOut, Hex;
        num_entries as "offline_addresses.numEntries": u32, InOut, Dec;
        pad2 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// Whether that memory is in use.
    SetNumaStatus = "nv_ioctl_set_numa_status_t", 4 {
        status: u32, Out, Enum(STATUSES);
    }
}

abi_struct! {
    /// Memory objects as a dma-buf.
    ExportToDmabufFd = "nv_ioctl_export_to_dma_buf_fd_t", 2608 {
        fd: i32, InOut, Fd;
        h_client as "hClient": u32, In, Handle;
        total_objects as "totalObjects": u32, In, Dec;
        num_objects as "numObjects": u32, In, Dec;
        index: u32, In, Dec;
        pad1 as "": u32, In, Reserved;
        total_size as "totalSize": u64, In, Hex;
        mapping_type as "mappingType": u8, In, Dec;
        b_allow_mmap as "bAllowMmap": u8, In, Dec;
        pad2 as "": u16, In, Reserved;
        handles: [u32; 128], In, Words;
        pad3 as "": u32, In, Reserved;
        offsets: [u64; 128], In, Hex;
        sizes: [u64; 128], In, Hex;
        status: u32, Out, Enum(STATUSES);
        pad4 as "": u32, In, Reserved;
    }
}

abi_struct! {
    /// How an open without blocking has ended.
    WaitOpenComplete = "nv_ioctl_wait_open_complete_t", 8 {
        rc: i32, Out, Signed;
        adapter_status as "adapterStatus": u32, Out, Dec;
    }
}
