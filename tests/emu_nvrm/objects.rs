//! RM's objects: parents, handles, lifetimes, memory and its mappings for the processor.

use super::client::{Client, Device, HUGE, PAGE, host_memory, space_params, wait};
use doorbell::emu::nvrm::{Chip, Config, SoftNv, status};
use doorbell_ioctl::abi::nvrm as rm;
use doorbell_ioctl::port::{Errno, MapRequest};
use std::sync::Arc;

#[test]
fn objects_take_only_their_parents() {
    let device = Device::new(Chip::Sm90);
    let client = &device.client;
    let refused = |parent, class| client.alloc(parent, class).unwrap_err();
    assert_eq!(refused(device.subdevice, rm::NV01_DEVICE_0), status::INVALID_OBJECT_PARENT);
    assert_eq!(refused(client.root, rm::NV20_SUBDEVICE_0), status::INVALID_OBJECT_PARENT);
    assert_eq!(refused(device.device, rm::HOPPER_USERMODE_A), status::INVALID_OBJECT_PARENT);
    assert_eq!(refused(device.device, rm::HOPPER_COMPUTE_A), status::INVALID_OBJECT_PARENT);
    assert_eq!(refused(0xdead, rm::NV20_SUBDEVICE_0), status::OBJECT_NOT_FOUND);
    assert_eq!(refused(device.device, 0x1234), status::INVALID_CLASS);
    assert_eq!(refused(device.subdevice, rm::BLACKWELL_USERMODE_A), status::INVALID_CLASS, "another chip's");
    assert_eq!(refused(device.device, rm::KEPLER_CHANNEL_GROUP_A), status::INVALID_ARGUMENT, "params are required");
    let share = client.alloc_with(device.device, rm::FERMI_CONTEXT_SHARE_A, &mut rm::CtxShareAlloc::default());
    assert_eq!(share, Err(status::INVALID_OBJECT_PARENT));
}

#[test]
fn handles_are_the_callers_and_taken_ones_are_refused() {
    let client = Client::new(Chip::Sm90);
    let _card = client.card(0);
    let make = |handle| client.alloc_raw(client.root, client.root, handle, rm::NV01_DEVICE_0, 0);
    assert_eq!(make(0x77), Ok(0x77));
    assert_eq!(make(0x77), Err(status::INSERT_DUPLICATE_NAME));
    assert_eq!(make(client.root), Err(status::INVALID_OBJECT_HANDLE));
    assert_eq!(client.alloc_raw(0x5555, 0x5555, 0, rm::NV01_DEVICE_0, 0), Err(status::INVALID_OBJECT_HANDLE));
    assert_eq!(client.alloc_raw(client.root, client.root, 0, rm::NV01_DEVICE_0, 8), Err(status::INVALID_ADDRESS));
}

#[test]
fn a_device_is_made_by_a_process_that_has_its_card_open() {
    let client = Client::of(SoftNv::new(Config { gpus: 2, ..Config::new(Chip::Sm90) }).unwrap());
    let make = |device_id| {
        let mut params = rm::DeviceAlloc { device_id, ..Default::default() };
        client.alloc_with(client.root, rm::NV01_DEVICE_0, &mut params)
    };
    let card = client.card(1);
    assert_eq!(make(0), Err(status::INSUFFICIENT_PERMISSIONS));
    assert!(make(1).is_ok());
    client.port.close(card).unwrap();
    assert_eq!(make(1), Err(status::INSUFFICIENT_PERMISSIONS));
}

#[test]
fn a_client_belongs_to_its_control_file() {
    let client = Client::new(Chip::Sm90);
    let other = client.open("/dev/nvidiactl");
    let mut args = rm::RmAlloc {
        h_root: client.root,
        h_object_parent: client.root,
        h_class: rm::NV01_DEVICE_0,
        ..Default::default()
    };
    client.call(other, &rm::ALLOC, &mut args).unwrap();
    assert_eq!(args.status, status::INVALID_CLIENT.0);
    client.port.close(client.control).unwrap();
    assert_eq!(client.machine.left_over()[0], 0);
}

#[test]
fn the_short_form_of_alloc_does_the_same() {
    let client = Client::new(Chip::Sm75);
    let _card = client.card(0);
    let mut args = rm::RmAlloc21 {
        h_root: client.root,
        h_object_parent: client.root,
        h_class: rm::NV01_DEVICE_0,
        ..Default::default()
    };
    client.call(client.control, &rm::ALLOC_NVOS21, &mut args).unwrap();
    assert_eq!((args.status, args.h_object_new != 0), (0, true));
    let mut xfer_inner = args;
    xfer_inner.h_object_new = 0;
    let mut xfer = rm::Xfer { cmd: 0x2b, size: 32, ptr: &raw mut xfer_inner as u64 };
    client.call(client.control, &rm::IOCTL_XFER_CMD, &mut xfer).unwrap();
    assert_eq!(xfer_inner.status, 0);
    assert_ne!(xfer_inner.h_object_new, args.h_object_new);
}

#[test]
fn freeing_a_parent_frees_its_children_and_what_needs_it() {
    let device = Device::new(Chip::Sm90);
    let channel = device.compute();
    let before = device.client.machine.left_over();
    assert_eq!(before[1], 1);
    device.client.free(channel.group).unwrap();
    let after = device.client.machine.left_over();
    // Group, context share, channel, compute object.
    assert_eq!((before[0] - after[0], after[1]), (4, 0));
    assert_eq!(device.client.free(channel.handle), Ok(()), "FREE of what is not there");
    let second = device.compute();
    device.client.free(second.ring.handle).unwrap();
    assert_eq!(device.client.machine.left_over()[1], 1, "a channel keeps the memory of its USERD");
    device.client.free(device.client.root).unwrap();
    assert_eq!(device.client.machine.left_over()[0], 0);
}

#[test]
fn closing_the_control_file_ends_everything_and_its_threads() {
    let device = Device::new(Chip::Sm90);
    let (_one, _other) = (device.compute(), device.copy(0x0b));
    let machine = Arc::clone(&device.client.machine);
    assert_eq!(machine.left_over()[1], 2);
    device.client.port.close(device.client.control).unwrap();
    assert_eq!(machine.left_over()[..2], [0, 0]);
    device.client.port.close(device.uvm).unwrap();
    assert_eq!(machine.left_over()[2], 0);
}

/// Threads of this process that have the name of this test's: spawned threads take it over.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn threads_end_with_the_machine() {
    // Other tests start and end threads meanwhile: look for the state where the machine's own are gone.
    let before = threads();
    let device = Device::new(Chip::Sm90);
    let channels: Vec<_> = (0..8).map(|_| device.compute()).collect();
    let machine = Arc::downgrade(&device.client.machine);
    drop(channels);
    drop(device);
    assert_eq!(machine.strong_count(), 0);
    wait("the machine's threads' end", || threads() <= before + 64);
}

#[test]
fn vram_is_counted_and_refused_when_there_is_no_more() {
    let config = Config { vram_bytes: 8 << 20, ..Config::new(Chip::Sm90) };
    let device = Device::of(SoftNv::new(config).unwrap());
    let alloc = |bytes| {
        let mut params = device.client.vram_params(bytes);
        device.client.alloc_with(device.device, rm::NV01_MEMORY_LOCAL_USER, &mut params).map(|h| (h, params.size))
    };
    let (first, size) = alloc(5 << 20).unwrap();
    assert_eq!(size, 6 << 20, "huge pages round up");
    assert_eq!(alloc(4 << 20), Err(status::NO_MEMORY));
    device.client.free(first).unwrap();
    assert!(alloc(4 << 20).is_ok());
    let mut empty = rm::MemoryAlloc { size: 0, ..device.client.vram_params(PAGE) };
    let refused = device.client.alloc_with(device.device, rm::NV01_MEMORY_LOCAL_USER, &mut empty);
    assert_eq!(refused, Err(status::INVALID_ARGUMENT));
    let mut here = device.client.vram_params(PAGE);
    let refused = device.client.alloc_with(device.device, rm::NV01_MEMORY_SYSTEM, &mut here);
    assert_eq!(refused, Err(status::INVALID_ARGUMENT), "system memory that is asked to lie in VRAM");
}

#[test]
fn memory_that_uvm_maps_outlives_its_handle() {
    let device = Device::new(Chip::Sm90);
    let mut copy = device.copy(0x0b);
    let (source, target) = (device.vram(HUGE), device.system(PAGE));
    source.view.write_u64(8, 0x1234_5678).unwrap();
    device.client.free(source.handle).unwrap();
    copy.submit(&super::engines::copy(source.va + 8, target.va, 8));
    copy.submit(&super::client::release(target.va + 64, 1));
    target.wait_u64(64, 1);
    assert_eq!(target.view.read_u64(0), Ok(0x1234_5678));
}

#[test]
fn mappings_of_the_processor_need_a_fresh_file_of_the_right_kind() {
    let device = Device::new(Chip::Sm90);
    let client = &device.client;
    let mut params = client.vram_params(HUGE);
    let vram = client.alloc_with(device.device, rm::NV01_MEMORY_LOCAL_USER, &mut params).unwrap();
    let unregistered = client.open("/dev/nvidia0");
    assert!(client.map(device.device, vram, HUGE, unregistered).is_ok());
    let control = client.open("/dev/nvidiactl");
    assert_eq!(client.map(device.device, vram, HUGE, control).err(), Some(status::INVALID_ARGUMENT));
    let card = client.card(0);
    assert_eq!(client.map(client.root, vram, HUGE, card).err(), Some(status::INVALID_OBJECT_PARENT));
    assert_eq!(client.map(device.device, vram, HUGE + 1, card).err(), Some(status::INVALID_LIMIT));
    let (view, cookie) = client.map(device.device, vram, HUGE, card).unwrap();
    view.write_u32(HUGE - 4, 9).unwrap();
    assert_eq!(client.map(device.device, vram, HUGE, card).err(), Some(status::STATE_IN_USE), "armed already");
    let wrong = MapRequest::file(card, 0, PAGE);
    assert_eq!(client.port.mmap(&wrong), Err(Errno::ENXIO), "another length");
    let offset = MapRequest::file(card, PAGE, HUGE);
    assert_eq!(client.port.mmap(&offset), Err(Errno::EINVAL));
    let mut unmap = rm::RmUnmapMemory {
        h_client: client.root,
        h_device: device.device,
        h_memory: vram,
        p_linear_address: cookie + 1,
        ..Default::default()
    };
    client.call(client.control, &rm::UNMAP_MEMORY, &mut unmap).unwrap();
    assert_eq!(unmap.status, status::OBJECT_NOT_FOUND.0);
    (unmap.p_linear_address, unmap.status) = (cookie, 0);
    client.call(client.control, &rm::UNMAP_MEMORY, &mut unmap).unwrap();
    assert_eq!(unmap.status, 0);
    assert_eq!(client.port.mmap(&MapRequest::file(card, 0, HUGE)), Err(Errno::EINVAL), "armed no more");
}

#[test]
fn bar1_has_an_end_and_confidential_computing_closes_it() {
    let config = Config { bar1_bytes: 4 << 20, ..Config::new(Chip::Sm90) };
    let device = Device::of(SoftNv::new(config).unwrap());
    let _first = device.vram(HUGE);
    let mut params = device.client.vram_params(4 << 20);
    let big = device.client.alloc_with(device.device, rm::NV01_MEMORY_LOCAL_USER, &mut params).unwrap();
    let refused = device.client.map(device.device, big, 4 << 20, device.client.card(0));
    assert_eq!(refused.err(), Some(status::NO_MEMORY));
    let config = Config { confidential: true, ..Config::new(Chip::Sm90) };
    let device = Device::of(SoftNv::new(config).unwrap());
    let mut params = device.client.vram_params(HUGE);
    let vram = device.client.alloc_with(device.device, rm::NV01_MEMORY_LOCAL_USER, &mut params).unwrap();
    let refused = device.client.map(device.device, vram, HUGE, device.client.card(0));
    assert_eq!(refused.err(), Some(status::NOT_SUPPORTED));
    let cc = device.client.alloc(device.client.root, rm::NV_CONFIDENTIAL_COMPUTE).unwrap();
    let caps = device.client.control(cc, &rm::CONF_COMPUTE_SYSTEM_GET_CAPABILITIES, Default::default()).unwrap();
    assert_ne!(caps.cc_feature, 0);
}

#[test]
fn pinned_memory_is_the_processes_own_and_private_memory_is_reported() {
    let device = Device::new(Chip::Sm90);
    let client = &device.client;
    let (at, view) = host_memory(&client.port, 16 * PAGE);
    let pin = |file, address: u64, flags| {
        let mut args = rm::RmAllocMemory { fd: -1, ..Default::default() };
        args.params = rm::AllocMemoryParams {
            h_root: client.root,
            h_object_parent: device.device,
            h_object_new: 0x1000,
            h_class: rm::NV01_MEMORY_SYSTEM_OS_DESCRIPTOR,
            flags,
            p_memory: address,
            limit: 16 * PAGE - 1,
            ..Default::default()
        };
        client.call(file, &rm::ALLOC_MEMORY, &mut args).map(|_| args.params.status)
    };
    assert_eq!(pin(client.control, at.0, 0x4000_1010), Err(Errno::EINVAL), "of the device file only");
    assert_eq!(pin(device.card, at.0, 0x1010), Ok(status::INVALID_FLAGS.0));
    assert_eq!(pin(device.card, at.0 + 4, 0x4000_1010), Ok(status::NOT_SUPPORTED.0));
    let private = vec![0_u8; 32 * PAGE as usize];
    let inside = (private.as_ptr() as u64).next_multiple_of(PAGE);
    assert_eq!(pin(device.card, inside, 0x4000_1010), Ok(status::INVALID_ADDRESS.0));
    assert!(device.reports()[0].to_string().contains("pinned memory"));
    assert_eq!(pin(device.card, at.0, 0x4000_1010), Ok(0));
    assert_eq!(pin(device.card, at.0, 0x4000_1010), Ok(status::INSERT_DUPLICATE_NAME.0));
    let va = device.take_va(16 * PAGE);
    device.create_range(va, 16 * PAGE).unwrap();
    device.map_range(0x1000, va, 16 * PAGE, 1).unwrap();
    let mut copy = device.copy(0x0b);
    let target = device.system(PAGE);
    view.write_u32(PAGE, 0xabcd).unwrap();
    copy.submit(&super::engines::copy(va + PAGE, target.va, 4));
    copy.submit(&super::client::release(target.va + 64, 1));
    target.wait_u64(64, 1);
    assert_eq!(target.view.read_u32(0), Ok(0xabcd));
}

#[test]
fn a_duplicate_is_another_handle_of_the_same_memory() {
    let device = Device::new(Chip::Sm90);
    let client = &device.client;
    let buffer = device.vram(HUGE);
    let mut args = rm::RmDupObject {
        h_client: client.root,
        h_parent: device.device,
        h_client_src: client.root,
        h_object_src: buffer.handle,
        ..Default::default()
    };
    client.call(client.control, &rm::DUP_OBJECT, &mut args).unwrap();
    assert_eq!(args.status, 0);
    client.free(buffer.handle).unwrap();
    let va = device.take_va(HUGE);
    device.create_range(va, HUGE).unwrap();
    device.map_range(args.h_object, va, HUGE, 1).unwrap();
    args.h_object_src = device.subdevice;
    args.h_object = 0;
    client.call(client.control, &rm::DUP_OBJECT, &mut args).unwrap();
    assert_eq!(args.status, status::NOT_SUPPORTED.0);
}

#[test]
fn channels_refuse_what_the_hardware_cannot_have() {
    let device = Device::new(Chip::Sm90);
    let client = &device.client;
    let group = device.group(1, 0);
    let share = device.share(group);
    let (ring, notifier) = (device.vram(2 * PAGE), device.system(PAGE));
    let good = device.channel_params(&ring, &notifier, share, 64);
    let refused = |parent, change: &dyn Fn(&mut rm::ChannelAlloc)| {
        let mut params = good;
        change(&mut params);
        client.alloc_with(parent, rm::HOPPER_CHANNEL_GPFIFO_A, &mut params).unwrap_err()
    };
    assert_eq!(refused(group, &|p| p.h_va_space = device.space), status::INVALID_ARGUMENT, "share and space");
    assert_eq!(refused(group, &|p| p.gp_fifo_entries = 100), status::INVALID_ARGUMENT);
    assert_eq!(refused(group, &|p| p.h_userd_memory[0] = device.space), status::OBJECT_NOT_FOUND);
    assert_eq!(refused(group, &|p| p.h_object_error = device.space), status::INVALID_STATE);
    assert_eq!(refused(group, &|p| p.engine_type = 9), status::INVALID_ARGUMENT, "another engine than the group's");
    assert_eq!(refused(group, &|p| p.h_userd_memory[0] = notifier.handle), status::NOT_SUPPORTED, "USERD placement");
    assert_eq!(refused(device.device, &|_| {}), status::INVALID_ARGUMENT, "a share without a group");
    assert_eq!(refused(group, &|p| p.h_context_share = device.space), status::INVALID_OBJECT_HANDLE);
    let other_group = device.group(1, 0);
    let other = device.share(other_group);
    assert_eq!(refused(group, &|p| p.h_context_share = other), status::INVALID_OBJECT_PARENT);
    let mut params = good;
    client.alloc_with(group, rm::HOPPER_CHANNEL_GPFIFO_A, &mut params).unwrap();
    let unseen: [fn(&mut rm::ChannelAlloc); 4] = [
        |p| p.userd_offset[0] = 8,
        |p| p.userd_offset[0] = 1 << 20,
        |p| p.h_userd_memory[0] = 0,
        |p| p.gp_fifo_offset += 4,
    ];
    for change in unseen {
        let mut params = good;
        change(&mut params);
        client.alloc_with(group, rm::HOPPER_CHANNEL_GPFIFO_A, &mut params).unwrap();
    }
    assert_eq!(refused(group, &|p| p.h_context_share = 0), status::INVALID_ARGUMENT, "some with a share, some without");
    let copies = device.group(0x0b, device.space);
    let mut params = rm::ChannelAlloc { h_context_share: 0, ..good };
    let channel = client.alloc_with(copies, rm::HOPPER_CHANNEL_GPFIFO_A, &mut params).unwrap();
    let mut right = rm::CopyAlloc { version: 1, engine_type: 0x0b };
    assert!(client.alloc_with(channel, rm::HOPPER_DMA_COPY_A, &mut right).is_ok());
    assert_eq!(client.alloc(channel, rm::HOPPER_COMPUTE_A), Err(status::INVALID_STATE), "another runlist");
    let mut wrong = rm::CopyAlloc { version: 1, engine_type: 0x0c };
    assert_eq!(client.alloc_with(channel, rm::HOPPER_DMA_COPY_A, &mut wrong), Err(status::INVALID_STATE));
    let mut engine = rm::ChannelGroupAlloc { engine_type: 0x20, ..Default::default() };
    let refused = client.alloc_with(device.device, rm::KEPLER_CHANNEL_GROUP_A, &mut engine);
    assert_eq!(refused, Err(status::INVALID_ARGUMENT), "no such engine");
}

#[test]
fn mig_and_prohibited_compute_show_where_channels_are_made() {
    let device = Device::of(SoftNv::new(Config { mig: true, ..Config::new(Chip::Sm90) }).unwrap());
    let mut params = rm::ChannelGroupAlloc { engine_type: 1, ..Default::default() };
    let refused = device.client.alloc_with(device.device, rm::KEPLER_CHANNEL_GROUP_A, &mut params);
    assert_eq!(refused, Err(status::INVALID_STATE));
    // Of GPU_GET_INFO: 1 is on, 2 off, 0 that the chip cannot.
    for (chip, mig, mode) in
        [(Chip::Sm90, true, 1), (Chip::Sm90, false, 2), (Chip::Sm80, false, 2), (Chip::Sm89, false, 0)]
    {
        let device = Device::of(SoftNv::new(Config { mig, ..Config::new(chip) }).unwrap());
        let mut asked = rm::GpuInfo { gpu_info_list_size: 1, ..Default::default() };
        asked.gpu_info_list[0].index = 0x2a;
        let reported = device.client.control(device.subdevice, &rm::GPU_GET_INFO_V2, asked).unwrap();
        assert_eq!(reported.gpu_info_list[0].data, mode, "{chip:?}");
    }
    let device = Device::of(SoftNv::new(Config { compute_prohibited: true, ..Config::new(Chip::Sm90) }).unwrap());
    let rules = device.client.control(device.subdevice, &rm::GPU_QUERY_COMPUTE_MODE_RULES, Default::default());
    assert_eq!(rules.unwrap().rules, 2);
}

#[test]
fn a_lost_card_answers_nothing_more() {
    let device = Device::new(Chip::Sm90);
    let channel = device.compute();
    device.client.machine.lose_gpu(0);
    let refused = device.client.control(device.subdevice, &rm::MC_GET_ARCH_INFO, Default::default());
    assert_eq!(refused, Err(status::GPU_IS_LOST));
    let refused = device.client.alloc_with(device.device, rm::FERMI_VASPACE_A, &mut space_params());
    assert_eq!(refused, Err(status::GPU_IS_LOST));
    assert!(device.reports()[0].to_string().starts_with("Xid 79"));
    device.client.free(channel.group).unwrap();
}
