//! UVM's ranges: where they may be, what is mapped into them, what a second card sees.

use super::client::{Client, Device, HUGE, PAGE, machine, release, uvm_status};
use super::engines::copy;
use doorbell::emu::nvrm::{Chip, Config, SoftNv, status};
use doorbell_ioctl::abi::nvrm::{self as rm, Release};
use doorbell_ioctl::abi::uvm;

#[test]
fn ranges_are_whole_pages_and_do_not_overlap() {
    let device = Device::new(Chip::Sm90);
    let base = device.take_va(4 * HUGE);
    assert_eq!(device.create_range(base + 1, HUGE), Err(status::INVALID_ADDRESS));
    assert_eq!(device.create_range(base, 100), Err(status::INVALID_ADDRESS));
    assert_eq!(device.create_range(base, 0), Err(status::INVALID_ADDRESS));
    assert_eq!(device.create_range(base, 2 * HUGE), Ok(()));
    assert_eq!(device.create_range(base + HUGE, 2 * HUGE), Err(status::UVM_ADDRESS_IN_USE));
    assert_eq!(device.free_range(base, HUGE), Err(status::INVALID_ADDRESS), "another length");
    assert_eq!(device.free_range(base + HUGE, HUGE), Err(status::INVALID_ADDRESS), "not its start");
    assert_eq!(device.free_range(base, 2 * HUGE), Ok(()));
    assert_eq!(device.create_range(base + HUGE, 2 * HUGE), Ok(()));
}

#[test]
fn mappings_stay_in_their_range_and_their_memory() {
    let device = Device::new(Chip::Sm90);
    let buffer = device.vram(HUGE);
    let base = device.take_va(2 * HUGE);
    assert_eq!(device.map_range(buffer.handle, base, HUGE, 1), Err(status::INVALID_ADDRESS), "no range");
    device.create_range(base, 2 * HUGE).unwrap();
    assert_eq!(device.map_range(buffer.handle, base, 4 * HUGE, 1), Err(status::INVALID_ADDRESS));
    assert_eq!(device.map_range(buffer.handle, base, 2 * HUGE, 1), Err(status::INVALID_OFFSET), "more than the memory");
    assert_eq!(device.map_part(buffer.handle, PAGE, base, HUGE, 1), Err(status::INVALID_OFFSET));
    assert_eq!(device.map_range(buffer.handle, base, HUGE, 9), Err(status::INVALID_ARGUMENT));
    assert_eq!(device.map_range(0xdead, base, HUGE, 1), Err(status::OBJECT_NOT_FOUND));
    assert_eq!(device.map_range(device.space, base, HUGE, 1), Err(status::INVALID_OBJECT_HANDLE));
    assert_eq!(device.map_part(buffer.handle, PAGE, base, PAGE, 1), Ok(()));
}

#[test]
fn a_second_mapping_replaces_the_first_and_unmapping_takes_a_part() {
    let device = Device::new(Chip::Sm90);
    let (one, other, out) = (device.vram(HUGE), device.vram(2 * HUGE), device.system(PAGE));
    one.view.write_u32(0, 1).unwrap();
    other.view.write_u32(0, 2).unwrap();
    other.view.write_u32(HUGE, 3).unwrap();
    let base = device.take_va(2 * HUGE);
    device.create_range(base, 2 * HUGE).unwrap();
    device.map_range(one.handle, base, HUGE, 1).unwrap();
    device.map_range(other.handle, base, 2 * HUGE, 1).unwrap();
    let mut channel = device.copy(0x0b);
    channel.submit(&copy(base, out.va, 4));
    channel.submit(&release(out.va + 64, 1));
    out.wait_u64(64, 1);
    assert_eq!(out.view.read_u32(0), Ok(2));
    let unmap = |length| {
        let mut args = uvm::UnmapExternal { base, length, gpu_uuid: device.uuid, ..Default::default() };
        let outcome = device.client.call(device.uvm, &uvm::UNMAP_EXTERNAL, &mut args);
        uvm_status(outcome, args.rm_status)
    };
    assert_eq!((unmap(PAGE), unmap(HUGE)), (Err(status::INVALID_ADDRESS), Ok(())), "whole pages of the mapping");
    channel.submit(&copy(base + HUGE, out.va, 4));
    channel.submit(&release(out.va + 64, 2));
    out.wait_u64(64, 2);
    assert_eq!(out.view.read_u32(0), Ok(3), "the rest is still there");
    channel.submit(&copy(base, out.va, 4));
    assert_eq!(channel.wait_error(), 31);
}

#[test]
fn unregistering_the_space_unmaps_everything() {
    let device = Device::new(Chip::Sm90);
    let mut channel = device.copy(0x0b);
    let out = device.system(PAGE);
    let mut args = uvm::UnregisterGpuVaSpace { gpu_uuid: device.uuid, rm_status: 0 };
    let outcome = device.client.call(device.uvm, &uvm::UNREGISTER_GPU_VASPACE, &mut args);
    assert_eq!(uvm_status(outcome, args.rm_status), Ok(()));
    channel.submit(&release(out.va, 1));
    // The ring itself is out of reach.
    assert_eq!(channel.wait_error(), 31);
    let mut args = uvm::UnregisterGpu { gpu_uuid: device.uuid, rm_status: 0 };
    let outcome = device.client.call(device.uvm, &uvm::UNREGISTER_GPU, &mut args);
    assert_eq!(uvm_status(outcome, args.rm_status), Ok(()));
    assert_eq!(device.register_space(device.space), Err(status::INVALID_DEVICE));
}

#[test]
fn newer_releases_have_shorter_structs_and_older_ones_a_shorter_list() {
    let config = Config { release: Release { major: 595, minor: 45, patch: 4 }, ..Config::new(Chip::Sm90) };
    let device = Device::of(SoftNv::new(config).unwrap());
    let base = device.take_va(HUGE);
    device.create_range(base, HUGE).unwrap();
    let mut args = uvm::FreeV595 { base, ..Default::default() };
    let outcome = device.client.call(device.uvm, &uvm::FREE_V595, &mut args);
    assert_eq!(uvm_status(outcome, args.rm_status), Ok(()));
    let config = Config { release: Release { major: 535, minor: 183, patch: 1 }, ..Config::new(Chip::Sm90) };
    let (machine, _) = machine(config, |_, _| Ok(()));
    let client = Client::of(machine);
    let file = client.open("/dev/nvidia-uvm");
    client.call(file, &uvm::INITIALIZE, &mut uvm::Initialize::default()).unwrap();
    let mut args: uvm::MapExternalAllocationV535 = bytemuck::Zeroable::zeroed();
    (args.base, args.length, args.gpu_attributes_count) = (HUGE, HUGE, 1);
    let outcome = client.call(file, &uvm::MAP_EXTERNAL_ALLOCATION_V535, &mut args);
    assert_eq!(uvm_status(outcome, args.rm_status), Err(status::INVALID_ADDRESS), "its struct ends where 535's does");
    assert_eq!(client.port.ioctl(file, 999, &mut [0; 16]), Err(doorbell_ioctl::port::Errno::ENOSYS));
}

#[test]
fn another_cards_memory_is_mapped_once_they_are_peers() {
    let config = Config { gpus: 2, ..Config::new(Chip::Sm90) };
    let device = Device::of(SoftNv::new(config).unwrap());
    let client = &device.client;
    let mut params = rm::DeviceAlloc { device_id: 1, ..Default::default() };
    let _card = client.card(1);
    let second = client.alloc_with(client.root, rm::NV01_DEVICE_0, &mut params).unwrap();
    let subdevice = client.alloc(second, rm::NV20_SUBDEVICE_0).unwrap();
    let gid = rm::GidInfo { flags: 2, ..Default::default() };
    let gid = client.control(subdevice, &rm::GPU_GET_GID_INFO, gid).unwrap();
    let uuid: [u8; 16] = gid.data[..16].try_into().unwrap();
    let mut gpu = uvm::RegisterGpu { gpu_uuid: uuid, rm_ctrl_fd: -1, ..Default::default() };
    let outcome = client.call(device.uvm, &uvm::REGISTER_GPU, &mut gpu);
    assert_eq!(uvm_status(outcome, gpu.rm_status), Ok(()));
    let mut params = client.vram_params(HUGE);
    let theirs = client.alloc_with(second, rm::NV01_MEMORY_LOCAL_USER, &mut params).unwrap();
    let base = device.take_va(HUGE);
    device.create_range(base, HUGE).unwrap();
    assert_eq!(device.map_range(theirs, base, HUGE, 1), Err(status::INVALID_DEVICE), "no peers yet");
    let mut peers = uvm::EnablePeerAccess { gpu_uuid_a: device.uuid, gpu_uuid_b: uuid, rm_status: 0 };
    let outcome = client.call(device.uvm, &uvm::ENABLE_PEER_ACCESS, &mut peers);
    assert_eq!(uvm_status(outcome, peers.rm_status), Ok(()));
    assert_eq!(device.map_range(theirs, base, HUGE, 1), Ok(()));
}
