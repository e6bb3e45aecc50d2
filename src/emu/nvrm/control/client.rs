//! Commands to the client and to a device: which cards there are, and their classes.

use super::super::{status, sysfs};
use super::{Ask, Row, row};
use doorbell_ioctl::abi::nvrm::{self, Status};
use doorbell_ioctl::port::{CpuPtr, write_process};

pub(crate) const ROWS: &[Row] = &[
    row(&nvrm::SYSTEM_GET_BUILD_VERSION_V2, build_version),
    row(&nvrm::SYSTEM_GET_P2P_CAPS_V2, p2p_caps),
    row(&nvrm::SYSTEM_GET_FABRIC_STATUS, |ask| {
        // Nothing needs a fabric manager here.
        ask.store(&nvrm::FabricStatus { fabric_status: 1 });
        Ok(())
    }),
    row(&nvrm::GPU_GET_ATTACHED_IDS, |ask| {
        let gpu_ids = ids(ask);
        ask.store(&nvrm::AttachedIds { gpu_ids });
        Ok(())
    }),
    row(&nvrm::GPU_GET_PROBED_IDS, |ask| {
        let (gpu_ids, excluded_gpu_ids) = (ids(ask), [u32::MAX; 32]);
        ask.store(&nvrm::ProbedIds { gpu_ids, excluded_gpu_ids, ..Default::default() });
        Ok(())
    }),
    row(&nvrm::GPU_GET_ID_INFO_V2, |ask| {
        let mut params: nvrm::IdInfo = ask.read();
        let gpu = index(ask, params.gpu_id)? as u32;
        (params.gpu_flags, params.device_instance, params.sub_device_instance) = (1, gpu, 0);
        (params.board_id, params.gpu_instance, params.numa_id) = (sysfs::gpu_id(gpu as usize), gpu, -1);
        ask.store(&params);
        Ok(())
    }),
    row(&nvrm::GPU_GET_PCI_INFO, |ask| {
        let mut params: nvrm::GpuPciInfo = ask.read();
        let gpu = index(ask, params.gpu_id)?;
        (params.domain, params.bus, params.slot) = (0, sysfs::bus(gpu).into(), 0);
        ask.store(&params);
        Ok(())
    }),
    row(&nvrm::GPU_GET_UUID_FROM_GPU_ID, uuid),
    row(&nvrm::GPU_GET_CLASSLIST, |ask| {
        let mut params: nvrm::ClassListByPointer = ask.read();
        let classes = ask.nv.config.chip.facts().classes();
        if params.num_classes != 0 {
            if params.num_classes < classes.len() as u32 {
                return Err(status::INVALID_ARGUMENT);
            }
            let bytes: Vec<u8> = classes.iter().flat_map(|class| class.to_le_bytes()).collect();
            write_process(CpuPtr(params.class_list), &bytes).map_err(|_| status::INVALID_ADDRESS)?;
        }
        params.num_classes = classes.len() as u32;
        ask.store(&params);
        Ok(())
    }),
    row(&nvrm::GPU_GET_CLASSLIST_V2, |ask| {
        let classes = ask.nv.config.chip.facts().classes();
        // RM lists its own root class too, which is 0.
        let classes = [&[nvrm::NV01_ROOT][..], &classes].concat();
        let mut params = nvrm::ClassList { num_classes: classes.len() as u32, ..Default::default() };
        params.class_list[..classes.len()].copy_from_slice(&classes);
        ask.store(&params);
        Ok(())
    }),
    row(&nvrm::GPU_GET_NUM_SUBDEVICES, |ask| {
        ask.store(&nvrm::NumSubdevices { num_sub_devices: 1 });
        Ok(())
    }),
    row(&nvrm::GPU_GET_VIRTUALIZATION_MODE, |ask| {
        ask.store(&nvrm::VirtualizationMode::default());
        Ok(())
    }),
    row(&nvrm::PERF_CUDA_LIMIT_SET_CONTROL, |_| Ok(())),
    row(&nvrm::CLIENT_GET_ADDR_SPACE_TYPE, |ask| {
        use super::super::memory::Location;
        const SYSMEM: u32 = 1;
        const VIDMEM: u32 = 2;
        const REGMEM: u32 = 3;
        let mut params: nvrm::AddrSpaceType = ask.read();
        params.addr_space_type = match &ask.client.object(params.h_object)?.body {
            super::Body::Memory(memory) if memory.location == Location::Vram => VIDMEM,
            super::Body::Memory(_) => SYSMEM,
            super::Body::Usermode { .. } => REGMEM,
            _ => return Err(status::INVALID_OBJECT),
        };
        ask.store(&params);
        Ok(())
    }),
    row(&nvrm::CONF_COMPUTE_SYSTEM_GET_CAPABILITIES, |ask| {
        let cc_feature = u8::from(ask.nv.config.confidential) * 4;
        ask.store(&nvrm::ConfComputeCapabilities { cc_feature, ..Default::default() });
        Ok(())
    }),
];

fn ids(ask: &Ask<'_>) -> [u32; 32] {
    std::array::from_fn(|gpu| if gpu < ask.nv.gpus.len() { sysfs::gpu_id(gpu) } else { u32::MAX })
}

/// The card of that id.
fn index(ask: &Ask<'_>, gpu_id: u32) -> Result<usize, Status> {
    (0..ask.nv.gpus.len()).find(|gpu| sysfs::gpu_id(*gpu) == gpu_id).ok_or(status::INVALID_ARGUMENT)
}

fn build_version(ask: &mut Ask<'_>) -> Result<(), Status> {
    let mut params = nvrm::BuildVersion::default();
    let release = ask.nv.config.release.to_string();
    params.driver_version_buffer[..release.len()].copy_from_slice(release.as_bytes());
    params.version_buffer = params.driver_version_buffer;
    let title = b"NVIDIA UNIX Open Kernel Module (software)";
    params.title_buffer[..title.len()].copy_from_slice(title);
    ask.store(&params);
    Ok(())
}

fn uuid(ask: &mut Ask<'_>) -> Result<(), Status> {
    const FORMAT_BINARY: u32 = 2;
    let mut params: nvrm::UuidFromGpuId = ask.read();
    let uuid = sysfs::uuid(index(ask, params.gpu_id)?);
    let text = sysfs::uuid_text(&uuid);
    let bytes = if params.flags & FORMAT_BINARY != 0 { &uuid[..] } else { text.as_bytes() };
    params.gpu_uuid = [0; 256];
    params.gpu_uuid[..bytes.len()].copy_from_slice(bytes);
    params.uuid_str_len = bytes.len() as u32;
    ask.store(&params);
    Ok(())
}

fn p2p_caps(ask: &mut Ask<'_>) -> Result<(), Status> {
    // Writes, reads, prop, NVLink; PCI.
    const LINKED: u32 = 0b1111;
    let mut params: nvrm::P2pCaps = ask.read();
    let count = params.gpu_count as usize;
    if count == 0 || count > params.gpu_ids.len() {
        return Err(status::INVALID_ARGUMENT);
    }
    for id in params.gpu_ids.into_iter().take(count) {
        index(ask, id)?;
    }
    params.p2p_caps = if ask.nv.config.peer_links { LINKED } else { 0 };
    ask.store(&params);
    Ok(())
}
