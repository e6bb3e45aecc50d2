//! UVM: files, registrations, ranges, mappings, peers.

use super::client::{Client, Device, HUGE, PAGE, code, copy, outcome, refused, refused_as, release, want};
use super::{on_card, with_client};
use crate::case::{Case, Change, Step, holds, same};
use doorbell_ioctl::abi::nvrm::{self as rm, Status};
use doorbell_ioctl::abi::uvm;
use doorbell_ioctl::port::Errno;

pub(crate) fn cases() -> Vec<Case> {
    let mut all = files();
    all.extend(registrations());
    all.extend(ranges());
    all.extend(mappings());
    all.extend(peers());
    all
}

fn initialize(client: &Client<'_>, file: doorbell_ioctl::port::Fd, flags: u64) -> Result<(), Status> {
    let mut args = uvm::Initialize { flags, ..Default::default() };
    client.call(file, &uvm::INITIALIZE, &mut args).and_then(|()| outcome(args.rm_status))
}

fn files() -> Vec<Case> {
    vec![
        with_client("uvm.before-initialize", "A call before UVM_INITIALIZE is ILLEGAL_ACTION", |client| {
            let file = client.open("/dev/nvidia-uvm")?;
            let mut args = uvm::CreateExternalRange { base: HUGE, length: HUGE, ..Default::default() };
            let got = client.call(file, &uvm::CREATE_EXTERNAL_RANGE, &mut args).and_then(|()| outcome(args.rm_status));
            refused("UVM_CREATE_EXTERNAL_RANGE", got, code::ILLEGAL_ACTION)
        }),
        with_client(
            "uvm.initialize-twice",
            "UVM_INITIALIZE again with the same flags succeeds, with others not",
            |client| {
                let file = client.open("/dev/nvidia-uvm")?;
                want("UVM_INITIALIZE", initialize(client, file, 0))?;
                want("again", initialize(client, file, 0))?;
                refused("with other flags", initialize(client, file, 1), code::INVALID_ARGUMENT)
            },
        ),
        with_client("uvm.initialize-unknown-flags", "UVM_INITIALIZE refuses flags that are none", |client| {
            let file = client.open("/dev/nvidia-uvm")?;
            refused("UVM_INITIALIZE", initialize(client, file, 1 << 40), code::INVALID_ARGUMENT)
        }),
        with_client("uvm.mm-without-a-space", "UVM_MM_INITIALIZE for a file without a space is refused", |client| {
            let (file, other) = (client.open("/dev/nvidia-uvm")?, client.open("/dev/nvidia-uvm")?);
            let mut args = uvm::MmInitialize { uvm_fd: other.0, ..Default::default() };
            let got = client.call(file, &uvm::MM_INITIALIZE, &mut args).and_then(|()| outcome(args.rm_status));
            refused("UVM_MM_INITIALIZE", got, code::INVALID_ARGUMENT)
        }),
        on_card("uvm.mm-twice", "A space has one UVM_MM_INITIALIZE", |device| {
            let file = device.client.open("/dev/nvidia-uvm")?;
            let mut args = uvm::MmInitialize { uvm_fd: device.uvm.0, ..Default::default() };
            let got = device.client.call(file, &uvm::MM_INITIALIZE, &mut args).and_then(|()| outcome(args.rm_status));
            refused("UVM_MM_INITIALIZE", got, code::INVALID_STATE)
        }),
        with_client("uvm.unknown-command", "A command that is none is refused", |client| {
            let file = client.open("/dev/nvidia-uvm")?;
            want("UVM_INITIALIZE", initialize(client, file, 0))?;
            // Its built-in tests are asked last, and are switched off.
            let got = client.raw(file, 999, &mut [0; 16]);
            holds("ENOSYS, or EINVAL", matches!(got, Err(Errno::ENOSYS | Errno::EINVAL)))
        }),
        on_card("uvm.pageable-memory", "UVM tells whether a card reads plain memory", |device| {
            let mut args = uvm::PageableMemAccess { pageable_mem_access: 7, ..Default::default() };
            want("UVM_PAGEABLE_MEM_ACCESS", device.uvm_call(&uvm::PAGEABLE_MEM_ACCESS, &mut args, |a| a.rm_status))?;
            holds("0 or 1", args.pageable_mem_access < 2)?;
            let mut args =
                uvm::PageableMemAccessOnGpu { gpu_uuid: device.uuid, pageable_mem_access: 7, ..Default::default() };
            let reported = device.uvm_call(&uvm::PAGEABLE_MEM_ACCESS_ON_GPU, &mut args, |a| a.rm_status);
            want("UVM_PAGEABLE_MEM_ACCESS_ON_GPU", reported)?;
            holds("0 or 1 on the card", args.pageable_mem_access < 2)?;
            args.gpu_uuid[0] ^= 1;
            let got = device.uvm_call(&uvm::PAGEABLE_MEM_ACCESS_ON_GPU, &mut args, |a| a.rm_status);
            refused("of another card", got, code::INVALID_DEVICE)
        }),
    ]
}

fn registrations() -> Vec<Case> {
    vec![
        on_card("uvm.register-gpu-twice", "A card is registered once", |device| {
            refused("UVM_REGISTER_GPU", device.register_gpu(device.uuid), code::INVALID_DEVICE)
        }),
        on_card(
            "uvm.register-gpu-answers",
            "A card whose memory is a node of the kernel's has the node's number",
            |device| {
                want("UVM_UNREGISTER_GPU_VASPACE", device.unregister_space())?;
                want("UVM_UNREGISTER_GPU", device.unregister_gpu())?;
                let mut args = uvm::RegisterGpu { gpu_uuid: device.uuid, rm_ctrl_fd: -1, ..Default::default() };
                let registered = device.uvm_call(&uvm::REGISTER_GPU, &mut args, |a| a.rm_status);
                want("UVM_REGISTER_GPU", registered)?;
                holds(
                    "0 or 1, and a node where it is 1",
                    args.numa_enabled == 0 || args.numa_enabled == 1 && args.numa_node_id >= 0,
                )
            },
        ),
        on_card("uvm.register-unknown-gpu", "A card that is not there is not registered", |device| {
            refused("UVM_REGISTER_GPU", device.register_gpu([0x55; 16]), code::GPU_UUID_NOT_FOUND)
        }),
        on_card("uvm.register-space-twice", "A card has one address space", |device| {
            refused("UVM_REGISTER_GPU_VASPACE", device.register_space(device.space), code::INVALID_DEVICE)
        }),
        on_card("uvm.register-what-is-no-space", "An object that is no space is not registered", |device| {
            want("UVM_UNREGISTER_GPU_VASPACE", device.unregister_space())?;
            refused("a device", device.register_space(device.device), code::INVALID_OBJECT)?;
            let nothing = device.register_space(0xdead);
            refused_as(
                "nothing",
                nothing,
                &[code::OBJECT_NOT_FOUND, code::INVALID_OBJECT_HANDLE, code::INVALID_OBJECT],
            )?;
            want("UVM_REGISTER_GPU_VASPACE", device.register_space(device.space))
        }),
        on_card("uvm.register-a-space-of-rm", "A space that RM fills is not registered", |device| {
            want("UVM_UNREGISTER_GPU_VASPACE", device.unregister_space())?;
            let mut plain = rm::VaSpaceAlloc::default();
            let plain = want("ALLOC", device.client.alloc_with(device.device, rm::FERMI_VASPACE_A, &mut plain))?;
            refused("UVM_REGISTER_GPU_VASPACE", device.register_space(plain), code::INVALID_FLAGS)?;
            want("UVM_REGISTER_GPU_VASPACE", device.register_space(device.space))
        }),
        on_card("uvm.unregister-and-again", "A space is unregistered once, and may come again", |device| {
            want("UVM_UNREGISTER_GPU_VASPACE", device.unregister_space())?;
            refused("again", device.unregister_space(), code::INVALID_DEVICE)?;
            want("UVM_REGISTER_GPU_VASPACE", device.register_space(device.space))
        }),
        on_card("uvm.unregister-gpu", "A card is unregistered once, and its space with it", |device| {
            want("UVM_UNREGISTER_GPU_VASPACE", device.unregister_space())?;
            want("UVM_UNREGISTER_GPU", device.unregister_gpu())?;
            refused("again", device.unregister_gpu(), code::INVALID_DEVICE)?;
            refused("its space", device.unregister_space(), code::INVALID_DEVICE)
        }),
        on_card("uvm.register-channel-twice", "A channel is registered once", |device| {
            let channel = device.compute()?;
            let got = device.register_channel(channel.handle, 0x70_0000_0000, 512 << 20);
            refused("UVM_REGISTER_CHANNEL", got, code::INVALID_CHANNEL)
        }),
        on_card("uvm.register-what-is-no-channel", "An object that is no channel is not registered", |device| {
            let got = device.register_channel(device.space, 0x70_0000_0000, 512 << 20);
            refused("UVM_REGISTER_CHANNEL", got, code::INVALID_OBJECT_HANDLE)
        }),
        on_card("uvm.unregister-unknown-channel", "A channel that is not registered is not unregistered", |device| {
            refused("UVM_UNREGISTER_CHANNEL", device.unregister_channel(0xdead), code::INVALID_CHANNEL)
        }),
    ]
}

/// Name, base's offset and length, code.
const RANGES: &[(&str, u64, u64, Status)] = &[
    ("odd-base", 1, HUGE, code::INVALID_ADDRESS),
    ("odd-length", 0, 100, code::INVALID_ADDRESS),
    ("no-length", 0, 0, code::INVALID_ADDRESS),
    ("wraps-around", 0, !0xfff, code::INVALID_ADDRESS),
];

fn ranges() -> Vec<Case> {
    let mut all: Vec<Case> = RANGES
        .iter()
        .map(|(name, offset, length, status)| {
            let (offset, length, status) = (*offset, *length, *status);
            on_card(&format!("uvm.range-{name}"), "UVM_CREATE_EXTERNAL_RANGE refuses it", move |device| {
                let base = device.take_va(HUGE) + offset;
                refused("UVM_CREATE_EXTERNAL_RANGE", device.create_range(base, length), status)
            })
        })
        .collect();
    all.extend([
        on_card("uvm.range-overlap", "Ranges do not overlap", |device| {
            let base = device.take_va(4 * HUGE);
            want("UVM_CREATE_EXTERNAL_RANGE", device.create_range(base, 2 * HUGE))?;
            refused("over its end", device.create_range(base + HUGE, 2 * HUGE), code::UVM_ADDRESS_IN_USE)?;
            refused("the same", device.create_range(base, 2 * HUGE), code::UVM_ADDRESS_IN_USE)?;
            want("behind it", device.create_range(base + 2 * HUGE, HUGE))
        }),
        on_card("uvm.range-freed-as-it-was-made", "UVM_FREE takes a range as it was made, and once", |device| {
            let base = device.take_va(4 * HUGE);
            want("UVM_CREATE_EXTERNAL_RANGE", device.create_range(base, 2 * HUGE))?;
            refused("another length", device.free_range(base, HUGE), code::INVALID_ADDRESS)?;
            refused("from its middle", device.free_range(base + HUGE, HUGE), code::INVALID_ADDRESS)?;
            want("UVM_FREE", device.free_range(base, 2 * HUGE))?;
            refused("again", device.free_range(base, 2 * HUGE), code::INVALID_ADDRESS)
        }),
        on_card(
            "uvm.range-validated",
            "UVM_VALIDATE_VA_RANGE knows a range as it was made, and nothing else",
            |device| {
                let base = device.take_va(4 * HUGE);
                want("UVM_CREATE_EXTERNAL_RANGE", device.create_range(base, 2 * HUGE))?;
                let ask = |base, length| {
                    let mut args = uvm::ValidateVaRange { base, length, ..Default::default() };
                    device.uvm_call(&uvm::VALIDATE_VA_RANGE, &mut args, |a| a.rm_status)
                };
                want("the range", ask(base, 2 * HUGE))?;
                refused("inside", ask(base + HUGE, HUGE), code::INVALID_ADDRESS)?;
                refused("over its end", ask(base + HUGE, 2 * HUGE), code::INVALID_ADDRESS)?;
                refused("elsewhere", ask(base + 8 * HUGE, HUGE), code::INVALID_ADDRESS)
            },
        ),
    ]);
    all
}

/// Name, change of (memory, offset, base's offset, length, kind), code.
type WrongMap = (&'static str, fn(&Device<'_>, u32, u64) -> Result<(), Status>, Status);
const WRONG: &[WrongMap] = &[
    ("no-range", |d, m, base| d.map_part(m, 0, base + 8 * HUGE, HUGE, 1), code::INVALID_ADDRESS),
    ("beyond-the-range", |d, m, base| d.map_part(m, 0, base, 4 * HUGE, 1), code::INVALID_ADDRESS),
    ("odd-base", |d, m, base| d.map_part(m, 0, base + 8, HUGE, 1), code::INVALID_ADDRESS),
    ("no-length", |d, m, base| d.map_part(m, 0, base, 0, 1), code::INVALID_ADDRESS),
    ("more-than-the-memory", |d, m, base| d.map_part(m, 0, base, 2 * HUGE, 1), code::INVALID_OFFSET),
    ("offset-beyond-the-memory", |d, m, base| d.map_part(m, PAGE, base, HUGE, 1), code::INVALID_OFFSET),
    ("odd-offset", |d, m, base| d.map_part(m, 8, base, PAGE, 1), code::INVALID_ADDRESS),
    ("unknown-kind", |d, m, base| d.map_part(m, 0, base, HUGE, 9), code::INVALID_ARGUMENT),
    ("no-memory", |d, _, base| d.map_part(0xdead, 0, base, HUGE, 1), code::OBJECT_NOT_FOUND),
    ("what-is-no-memory", |d, _, base| d.map_part(d.space, 0, base, HUGE, 1), code::INVALID_OBJECT_HANDLE),
];

fn mappings() -> Vec<Case> {
    let refuse = |(name, map, status): &WrongMap| {
        let (map, status) = (*map, *status);
        on_card(&format!("uvm.map-{name}"), "UVM_MAP_EXTERNAL_ALLOCATION refuses it", move |device| {
            let (buffer, base) = (device.vram(HUGE)?, device.take_va(2 * HUGE));
            want("UVM_CREATE_EXTERNAL_RANGE", device.create_range(base, 2 * HUGE))?;
            refused("UVM_MAP_EXTERNAL_ALLOCATION", map(device, buffer.handle, base), status)
        })
    };
    let mut all: Vec<Case> = WRONG.iter().map(refuse).collect();
    all.extend([
        on_card("uvm.map-a-part", "A part of memory is mapped where it is asked for", |device| {
            let (buffer, base) = (device.vram(HUGE)?, device.take_va(HUGE));
            want("UVM_CREATE_EXTERNAL_RANGE", device.create_range(base, HUGE))?;
            want("UVM_MAP_EXTERNAL_ALLOCATION", device.map_part(buffer.handle, PAGE, base, PAGE, 1))?;
            buffer.view.write_u32(PAGE + 16, 0x99)?;
            same("through it", read(device, base + 16)?, 0x99)
        }),
        on_card("uvm.map-replaces", "A second mapping replaces the first", |device| {
            let (one, other, base) = (device.vram(HUGE)?, device.vram(HUGE)?, device.take_va(HUGE));
            one.view.write_u32(0, 1)?;
            other.view.write_u32(0, 2)?;
            want("UVM_CREATE_EXTERNAL_RANGE", device.create_range(base, HUGE))?;
            want("UVM_MAP_EXTERNAL_ALLOCATION", device.map_part(one.handle, 0, base, HUGE, 1))?;
            same("the first", read(device, base)?, 1)?;
            want("UVM_MAP_EXTERNAL_ALLOCATION", device.map_part(other.handle, 0, base, HUGE, 1))?;
            same("the second", read(device, base)?, 2)
        }),
        on_card("uvm.map-outlives-its-handle", "Mapped memory stays when its handle is freed", |device| {
            let (buffer, base) = (device.vram(HUGE)?, device.take_va(HUGE));
            buffer.view.write_u32(8, 0x1234)?;
            want("UVM_CREATE_EXTERNAL_RANGE", device.create_range(base, HUGE))?;
            want("UVM_MAP_EXTERNAL_ALLOCATION", device.map_part(buffer.handle, 0, base, HUGE, 1))?;
            want("FREE", device.client.free(buffer.handle))?;
            same("through the mapping", read(device, base + 8)?, 0x1234)
        }),
        on_card("uvm.unmap-odd", "UVM_UNMAP_EXTERNAL of half a page, and of no range, is refused", |device| {
            let base = device.take_va(HUGE);
            want("UVM_CREATE_EXTERNAL_RANGE", device.create_range(base, HUGE))?;
            refused("half a page", device.unmap_range(base, 100), code::INVALID_ADDRESS)?;
            refused("no range", device.unmap_range(base + 8 * HUGE, HUGE), code::INVALID_ADDRESS)
        }),
        on_card("uvm.unmap-a-part-keeps-the-rest", "What is next to an unmapped part stays mapped", |device| {
            let (buffer, base) = (device.vram(2 * HUGE)?, device.take_va(2 * HUGE));
            buffer.view.write_u32(HUGE, 3)?;
            want("UVM_CREATE_EXTERNAL_RANGE", device.create_range(base, 2 * HUGE))?;
            want("UVM_MAP_EXTERNAL_ALLOCATION", device.map_part(buffer.handle, 0, base, 2 * HUGE, 1))?;
            refused("a part of a page", device.unmap_range(base, PAGE), code::INVALID_ADDRESS)?;
            want("UVM_UNMAP_EXTERNAL", device.unmap_range(base, HUGE))?;
            same("the next page", read(device, base + HUGE)?, 3)?;
            let mut channel = device.copy(1)?;
            let page = device.system(PAGE)?;
            channel.submit(&copy(base, page.va, 4))?;
            same("the page itself is a fault", device.error(&channel)?, 31)
        })
        .provoking(&["Xid"]),
    ]);
    all
}

/// What the card reads at an address.
fn read(device: &Device<'_>, va: u64) -> Step<u32> {
    let (mut channel, page) = (device.copy(0)?, device.system(PAGE)?);
    channel.push(&copy(va, page.va + 64, 4))?;
    channel.push(&release(page.va, 1))?;
    channel.ring()?;
    device.word(&page.view, 0, 1)?;
    Ok(page.view.read_u32(64)?)
}

fn peers() -> Vec<Case> {
    vec![
        on_card("uvm.peer-of-itself", "A card is no peer of itself", |device| {
            let mut args = uvm::EnablePeerAccess { gpu_uuid_a: device.uuid, gpu_uuid_b: device.uuid, rm_status: 0 };
            let got = device.uvm_call(&uvm::ENABLE_PEER_ACCESS, &mut args, |a| a.rm_status);
            refused("UVM_ENABLE_PEER_ACCESS", got, code::INVALID_DEVICE)
        }),
        on_card("uvm.peer-unknown", "A card that is not registered is no peer", |device| {
            let mut args = uvm::DisablePeerAccess { gpu_uuid_a: device.uuid, gpu_uuid_b: [9; 16], rm_status: 0 };
            let got = device.uvm_call(&uvm::DISABLE_PEER_ACCESS, &mut args, |a| a.rm_status);
            refused("UVM_DISABLE_PEER_ACCESS", got, code::INVALID_DEVICE)
        }),
        on_card("uvm.peers-map-each-other", "Another card's memory is mapped while the cards are peers", two_cards)
            .on(Change::Nv(|config| config.gpus = 2)),
    ]
}

fn two_cards(device: &Device<'_>) -> Step {
    let client = &device.client;
    let ids =
        want("GPU_GET_PROBED_IDS", client.control(client.root, &rm::GPU_GET_PROBED_IDS, rm::ProbedIds::default()))?;
    client.bench.require(ids.gpu_ids[1] != u32::MAX, "two-cards", "there is one card")?;
    client.card(1)?;
    let mut params = rm::DeviceAlloc { device_id: 1, h_client_share: client.root, ..Default::default() };
    let second = want("ALLOC", client.alloc_with(client.root, rm::NV01_DEVICE_0, &mut params))?;
    let subdevice = want("ALLOC", client.alloc_with(second, rm::NV20_SUBDEVICE_0, &mut rm::SubdeviceAlloc::default()))?;
    let asked = rm::GidInfo { flags: 2, length: 16, ..Default::default() };
    let gid = want("GPU_GET_GID_INFO", client.control(subdevice, &rm::GPU_GET_GID_INFO, asked))?;
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&gid.data[..16]);
    want("UVM_REGISTER_GPU", device.register_gpu(uuid))?;
    let mut params = client.vram_params(HUGE);
    let theirs = want("ALLOC", client.alloc_with(second, rm::NV01_MEMORY_LOCAL_USER, &mut params))?;
    let base = device.take_va(HUGE);
    want("UVM_CREATE_EXTERNAL_RANGE", device.create_range(base, HUGE))?;
    refused("before they are peers", device.map_part(theirs, 0, base, HUGE, 1), code::INVALID_DEVICE)?;
    let pair = |on: bool| {
        let (gpu_uuid_a, gpu_uuid_b, rm_status) = (device.uuid, uuid, 0);
        if on {
            let mut args = uvm::EnablePeerAccess { gpu_uuid_a, gpu_uuid_b, rm_status };
            return device.uvm_call(&uvm::ENABLE_PEER_ACCESS, &mut args, |a| a.rm_status);
        }
        let mut args = uvm::DisablePeerAccess { gpu_uuid_a, gpu_uuid_b, rm_status };
        device.uvm_call(&uvm::DISABLE_PEER_ACCESS, &mut args, |a| a.rm_status)
    };
    refused("UVM_DISABLE_PEER_ACCESS too early", pair(false), code::INVALID_DEVICE)?;
    want("UVM_ENABLE_PEER_ACCESS", pair(true))?;
    refused("again", pair(true), code::INVALID_DEVICE)?;
    want("UVM_MAP_EXTERNAL_ALLOCATION", device.map_part(theirs, 0, base, HUGE, 1))?;
    want("UVM_DISABLE_PEER_ACCESS", pair(false))?;
    let mut args = uvm::UnregisterGpu { gpu_uuid: uuid, rm_status: 0 };
    want("UVM_UNREGISTER_GPU", device.uvm_call(&uvm::UNREGISTER_GPU, &mut args, |a| a.rm_status))
}
