//! docs/nv.md 2, step by step: what each call returns, and its error when it comes in the wrong order.

use super::client::{CONTEXTS, Client, Device, HUGE, PAGE, machine, space_params, uvm_status};
use doorbell::emu::nvrm::{Call, Chip, Config, Refusal, SoftNv, status};
use doorbell_ioctl::abi::nvrm::{self as rm, Release, Status};
use doorbell_ioctl::abi::uvm;
use doorbell_ioctl::port::{Errno, OpenFlags, Port};

#[test]
fn version_check_answers_the_release_and_refuses_another() {
    let client = Client::new(Chip::Sm90);
    let mut args = rm::CheckVersion { cmd: 0x32, ..Default::default() };
    client.call(client.control, &rm::CHECK_VERSION_STR, &mut args).unwrap();
    assert_eq!((args.reply, &args.version_string[..10]), (1, &b"580.159.04"[..]));
    args.cmd = 0;
    assert_eq!(client.call(client.control, &rm::CHECK_VERSION_STR, &mut args), Ok(0));
    args.version_string[9] = b'5';
    assert_eq!(client.call(client.control, &rm::CHECK_VERSION_STR, &mut args), Err(Errno::EINVAL));
    let version = client.control(client.root, &rm::SYSTEM_GET_BUILD_VERSION_V2, rm::BuildVersion::default()).unwrap();
    assert_eq!(&version.driver_version_buffer[..11], b"580.159.04\0");
}

#[test]
fn cards_are_listed_with_their_bars_and_minors() {
    let config = Config { gpus: 2, bar1_bytes: 256 << 20, ..Config::new(Chip::Sm90) };
    let client = Client::of(SoftNv::new(config).unwrap());
    let mut cards = rm::CardInfos::default();
    client.call(client.control, &rm::CARD_INFO, &mut cards).unwrap();
    let [first, second] = [cards.cards[0], cards.cards[1]];
    assert_eq!(
        (first.valid, first.minor_number, first.fb_size, first.vendor_id, first.device_id),
        (1, 0, 256 << 20, 0x10de, 0x2335)
    );
    assert_eq!((second.valid, second.minor_number, cards.cards[2].valid), (1, 1, 0));
    // One place is too few for two cards; sixty-four are as good as thirty-two.
    assert_eq!(client.port.ioctl(client.control, 0xc048_46c8, &mut [0; 72]), Err(Errno::EINVAL));
    assert_eq!(client.port.ioctl(client.control, 0xd200_46c8, &mut [0; 4608]), Ok(0));
    let ids = client.control(client.root, &rm::GPU_GET_PROBED_IDS, rm::ProbedIds::default()).unwrap();
    assert_eq!(ids.gpu_ids[..3], [first.gpu_id, second.gpu_id, u32::MAX]);
    let info = rm::IdInfo { gpu_id: second.gpu_id, ..Default::default() };
    let info = client.control(client.root, &rm::GPU_GET_ID_INFO_V2, info).unwrap();
    assert_eq!((info.device_instance, info.sub_device_instance), (1, 0));
}

#[test]
fn files_that_are_not_there_are_enoent_and_missing_modules_too() {
    let open = |config: Config, path: &str| SoftNv::new(config).unwrap().open(path, OpenFlags::DEVICE);
    let plain = || Config::new(Chip::Sm90);
    assert_eq!(open(plain(), "/dev/nvidia1"), Err(Errno::ENOENT));
    assert_eq!(open(plain(), "/dev/kfd"), Err(Errno::ENOENT));
    assert_eq!(open(Config { no_uvm: true, ..plain() }, "/dev/nvidia-uvm"), Err(Errno::ENOENT));
    assert_eq!(open(Config { no_nodes: true, ..plain() }, "/dev/nvidia0"), Err(Errno::ENOENT));
    assert!(open(plain(), "/dev/nvidia0").is_ok());
}

#[test]
fn register_fd_goes_to_a_device_file_once_and_names_a_control_file() {
    let client = Client::new(Chip::Sm90);
    let card = client.open("/dev/nvidia0");
    let mut args = rm::RegisterFd { ctl_fd: card.0 };
    assert_eq!(client.call(card, &rm::REGISTER_FD, &mut args), Err(Errno::EINVAL), "not a control file");
    args.ctl_fd = client.control.0;
    assert_eq!(client.call(card, &rm::REGISTER_FD, &mut args), Ok(0));
    assert_eq!(client.call(card, &rm::REGISTER_FD, &mut args), Err(Errno::EINVAL), "a second time");
}

#[test]
fn calls_on_the_wrong_kind_of_file_and_of_the_wrong_size_are_einval() {
    let client = Client::new(Chip::Sm90);
    let card = client.card(0);
    assert_eq!(client.call(card, &rm::ALLOC, &mut rm::RmAlloc::default()), Err(Errno::EINVAL));
    assert_eq!(client.call(client.control, &rm::ALLOC_MEMORY, &mut rm::RmAllocMemory::default()), Err(Errno::EINVAL));
    assert_eq!(client.port.ioctl(client.control, 0xc028_462b, &mut [0; 40]), Err(Errno::EINVAL));
    assert!(client.machine.reports().is_empty());
    assert_eq!(client.port.ioctl(client.control, 0xc010_46ff, &mut [0; 16]), Err(Errno::EINVAL));
    assert_eq!(client.machine.reports()[0].to_string(), "Unknown on gpu 0: RM escape 0xff is not known");
}

#[test]
fn the_whole_way_to_a_scheduled_channel_leaves_no_report() {
    for chip in Chip::ALL {
        let device = Device::new(chip);
        let channel = device.compute();
        assert_eq!(device.reports(), [], "{chip:?}");
        assert_eq!(channel.error(), (0, 0));
        assert_eq!(device.client.machine.left_over()[1], 1);
    }
}

#[test]
fn classes_choose_the_generation() {
    for chip in Chip::ALL {
        let device = Device::new(chip);
        let list = device.client.control(device.device, &rm::GPU_GET_CLASSLIST_V2, rm::ClassList::default()).unwrap();
        let own = doorbell::device::nv::Chip::of_classes(&list.class_list[..list.num_classes as usize]).unwrap();
        assert_eq!(own.name, chip.facts().name);
        assert_eq!((own.compute_class, own.copy_class), (chip.facts().compute_class, chip.facts().copy_class));
    }
}

#[test]
fn the_clock_of_the_bar0_view_runs() {
    let device = Device::new(Chip::Sm90);
    let first = device.usermode.read_u64(0x80).unwrap();
    super::client::wait("a later time", || device.usermode.read_u64(0x80).unwrap() > first);
}

#[test]
fn uvm_calls_before_initialize_are_illegal_and_registering_a_card_twice_is_refused() {
    let client = Client::new(Chip::Sm90);
    let uvm = client.open("/dev/nvidia-uvm");
    let mut range = uvm::CreateExternalRange { base: HUGE, length: HUGE, ..Default::default() };
    let outcome = client.call(uvm, &uvm::CREATE_EXTERNAL_RANGE, &mut range);
    assert_eq!(uvm_status(outcome, range.rm_status), Err(status::ILLEGAL_ACTION));
    let device = Device::new(Chip::Sm90);
    assert_eq!(device.register_gpu(), Err(status::INVALID_DEVICE));
    assert_eq!(device.register_space(device.space), Err(status::INVALID_DEVICE));
}

#[test]
fn address_space_is_registered_after_mm_initialize_and_only_if_uvm_owns_it() {
    let (machine, _) = machine(Config::new(Chip::Sm90), |_, _| Ok(()));
    let client = Client::of(machine);
    let uvm_file = client.open("/dev/nvidia-uvm");
    client.call(uvm_file, &uvm::INITIALIZE, &mut uvm::Initialize::default()).unwrap();
    let _card = client.card(0);
    let device = client.alloc_with(client.root, rm::NV01_DEVICE_0, &mut rm::DeviceAlloc::default()).unwrap();
    let subdevice = client.alloc(device, rm::NV20_SUBDEVICE_0).unwrap();
    let gid = rm::GidInfo { flags: 2, ..Default::default() };
    let gid = client.control(subdevice, &rm::GPU_GET_GID_INFO, gid).unwrap();
    let gpu_uuid: [u8; 16] = gid.data[..16].try_into().unwrap();
    let mut gpu = uvm::RegisterGpu { gpu_uuid, rm_ctrl_fd: -1, ..Default::default() };
    client.call(uvm_file, &uvm::REGISTER_GPU, &mut gpu).unwrap();
    let register = |space| {
        let mut args = uvm::RegisterGpuVaSpace {
            gpu_uuid,
            rm_ctrl_fd: client.control.0,
            h_client: client.root,
            h_va_space: space,
            rm_status: 0,
        };
        let outcome = client.call(uvm_file, &uvm::REGISTER_GPU_VASPACE, &mut args);
        uvm_status(outcome, args.rm_status)
    };
    let own = client.alloc_with(device, rm::FERMI_VASPACE_A, &mut space_params()).unwrap();
    assert_eq!(register(own), Err(status::PAGE_TABLE_NOT_AVAIL), "no MM_INITIALIZE");
    let second = client.open("/dev/nvidia-uvm");
    let mut mm = uvm::MmInitialize { uvm_fd: uvm_file.0, ..Default::default() };
    client.call(second, &uvm::MM_INITIALIZE, &mut mm).unwrap();
    assert_eq!(mm.rm_status, 0);
    let mut plain = rm::VaSpaceAlloc::default();
    let plain = client.alloc_with(device, rm::FERMI_VASPACE_A, &mut plain).unwrap();
    assert_eq!(register(plain), Err(status::INVALID_FLAGS), "not externally owned");
    assert_eq!(register(device), Err(status::INVALID_OBJECT));
    assert_eq!(register(own), Ok(()));
}

#[test]
fn graphics_channel_is_registered_after_its_object_and_scheduled_after_that() {
    let device = Device::new(Chip::Sm90);
    let group = device.group(1, 0);
    let share = device.share(group);
    let (ring, notifier) = (device.vram(2 * PAGE), device.system(PAGE));
    let mut params = device.channel_params(&ring, &notifier, share, 64);
    let channel = device.client.alloc_with(group, rm::HOPPER_CHANNEL_GPFIFO_A, &mut params).unwrap();
    assert_eq!(device.schedule(group), Err(status::INVALID_STATE), "not registered");
    assert_eq!(device.register_channel(channel, CONTEXTS, 512 << 20), Err(status::INVALID_STATE), "no runlist");
    let token = device.client.control(channel, &rm::GPFIFO_GET_WORK_SUBMIT_TOKEN, rm::WorkSubmitToken::default());
    assert_eq!(token.map(|_| ()), Err(status::INVALID_STATE));
    device.client.alloc(channel, rm::HOPPER_COMPUTE_A).unwrap();
    assert_eq!(device.register_channel(channel, CONTEXTS, HUGE), Err(status::INVALID_ADDRESS), "window too small");
    assert_eq!(device.register_channel(channel, CONTEXTS + 1, 512 << 20), Err(status::INVALID_ADDRESS), "misaligned");
    device.create_range(CONTEXTS, 512 << 20).unwrap();
    assert_eq!(device.register_channel(channel, CONTEXTS, 512 << 20), Err(status::INVALID_ADDRESS), "no room");
    assert_eq!(device.register_channel(channel, ring.va, 512 << 20), Ok(()), "behind what is in the window");
    assert_eq!(device.register_channel(channel, CONTEXTS, 512 << 20), Err(status::INVALID_CHANNEL), "twice");
    assert_eq!(device.schedule(group), Ok(()));
}

#[test]
fn a_copy_channel_on_the_graphics_runlist_is_not_registered() {
    let device = Device::new(Chip::Sm90);
    let channel = |engine_type| {
        let group = device.group(engine_type, device.space);
        let (ring, notifier) = (device.vram(2 * PAGE), device.system(PAGE));
        let mut params = device.channel_params(&ring, &notifier, 0, 64);
        device.client.alloc_with(group, rm::HOPPER_CHANNEL_GPFIFO_A, &mut params).unwrap()
    };
    for (group, object) in [(0x09, Some(0x09)), (0x0a, Some(0x0a)), (0x0b, None)] {
        let channel = channel(group);
        let made = match object {
            None => device.client.alloc(channel, rm::HOPPER_DMA_COPY_A),
            Some(engine_type) => {
                let mut params = rm::CopyAlloc { version: 1, engine_type };
                device.client.alloc_with(channel, rm::HOPPER_DMA_COPY_A, &mut params)
            }
        };
        made.unwrap();
        assert_eq!(device.register_channel(channel, CONTEXTS, 512 << 20), Err(status::INVALID_OBJECT), "{group:#x}");
    }
}

#[test]
fn context_windows_end_below_40_bits_before_hopper() {
    let device = Device::new(Chip::Sm80);
    let group = device.group(1, 0);
    let share = device.share(group);
    let (ring, notifier) = (device.vram(2 * PAGE), device.system(PAGE));
    let mut params = device.channel_params(&ring, &notifier, share, 64);
    let channel = device.client.alloc_with(group, rm::AMPERE_CHANNEL_GPFIFO_A, &mut params).unwrap();
    device.client.alloc(channel, rm::AMPERE_COMPUTE_A).unwrap();
    assert_eq!(device.register_channel(channel, 1 << 40, 512 << 20), Err(status::OUT_OF_RANGE));
    assert_eq!(device.register_channel(channel, CONTEXTS, 512 << 20), Ok(()));
}

#[test]
fn queries_answer_the_chips_numbers() {
    let device = Device::new(Chip::Sm90);
    let client = &device.client;
    let order = client.control(device.subdevice, &rm::GR_GET_GLOBAL_SM_ORDER, rm::GlobalSmOrder::default()).unwrap();
    assert_eq!((order.num_sm, order.num_tpc), (132, 66));
    let name = client.control(device.subdevice, &rm::GPU_GET_NAME_STRING, rm::NameString::default()).unwrap();
    assert_eq!(&name.gpu_name_string[..12], b"NVIDIA H200\0");
    let mut info = rm::GrInfo { gr_info_list_size: 3, ..Default::default() };
    for (entry, index) in info.gr_info_list.iter_mut().zip([0x0c, 0x17, 0x20]) {
        entry.index = index;
    }
    let info = client.control(device.subdevice, &rm::GR_GET_INFO_V2, info).unwrap();
    assert_eq!(info.gr_info_list[..3].iter().map(|e| e.data).collect::<Vec<_>>(), [0x900, 9, 2]);
    let mut list = [rm::InfoEntry { index: 0x0d, data: 0 }, rm::InfoEntry { index: 0x14, data: 0 }];
    let pointer =
        rm::GrInfoByPointer { gr_info_list_size: 2, gr_info_list: list.as_mut_ptr() as u64, ..Default::default() };
    client.control(device.subdevice, &rm::GR_GET_INFO, pointer).unwrap();
    assert_eq!(list.map(|e| e.data), [64, 8]);
    let engines = client.control(device.subdevice, &rm::GPU_GET_ENGINES_V2, rm::Engines::default()).unwrap();
    assert_eq!((engines.engine_count, &engines.engine_list[..3]), (11, &[1, 9, 10][..]));
    let mut bus = rm::BusInfo { bus_info_list_size: 1, ..Default::default() };
    bus.bus_info_list[0].index = 7;
    let bus = client.control(device.subdevice, &rm::BUS_GET_INFO_V2, bus).unwrap();
    assert_eq!(bus.bus_info_list[0].data, 5 << 16 | 16 << 20);
    let mut fb = rm::FbInfo { fb_info_list_size: 2, ..Default::default() };
    (fb.fb_info_list[0].index, fb.fb_info_list[1].index) = (7, 0x16);
    let fb = client.control(device.subdevice, &rm::FB_GET_INFO_V2, fb).unwrap();
    assert_eq!(fb.fb_info_list[..2].iter().map(|e| e.data).collect::<Vec<_>>(), [16 << 20, 16 << 20]);
    device.vram(HUGE);
    let fb = client.control(device.subdevice, &rm::FB_GET_INFO_V2, fb).unwrap();
    assert_eq!(fb.fb_info_list[1].data, (16 << 20) - 2048);
    assert_eq!(device.reports(), []);
}

#[test]
fn temperature_is_read_by_an_instruction_of_the_thermal_system() {
    let device = Device::new(Chip::Sm90);
    let mut params = vec![0_u8; 24 + 32 * 44];
    let word = |bytes: &mut [u8], at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    word(&mut params, 0, 1);
    word(&mut params, 8, 44);
    word(&mut params, 20, 2);
    word(&mut params, 24 + 8, 0x1500);
    word(&mut params, 24 + 44 + 8, 0x9999);
    device.client.control_raw(device.subdevice, 0x2080_0513, &mut params).unwrap();
    let read = |at: usize| u32::from_le_bytes(params[at..at + 4].try_into().unwrap());
    assert_eq!((read(24), read(28), read(24 + 16)), (0, 1, 42));
    assert_eq!((read(16), read(24 + 44)), (1, status::INVALID_ARGUMENT.0));
}

#[test]
fn control_of_the_wrong_size_class_or_number_is_refused_as_the_kernel_does() {
    let device = Device::new(Chip::Sm90);
    let client = &device.client;
    let refused = |object, cmd, len| client.control_raw(object, cmd, &mut vec![0; len]).unwrap_err();
    assert_eq!(refused(device.subdevice, rm::MC_GET_ARCH_INFO.cmd, 12), status::INVALID_ARGUMENT);
    assert_eq!(refused(device.device, rm::MC_GET_ARCH_INFO.cmd, 16), status::NOT_SUPPORTED);
    assert_eq!(refused(0x1234, rm::MC_GET_ARCH_INFO.cmd, 16), status::OBJECT_NOT_FOUND);
    assert_eq!(device.reports(), []);
    assert_eq!(refused(device.subdevice, 0x2080_0112, 4), status::NOT_SUPPORTED);
    assert_eq!(refused(device.subdevice, 0x2080_ffff, 4), status::NOT_SUPPORTED);
    let reports: Vec<String> = device.reports().iter().map(ToString::to_string).collect();
    assert!(reports[0].contains("NV2080_CTRL_CMD_GPU_SET_POWER"), "{reports:?}");
    assert!(reports[1].starts_with("Unknown") && reports[1].contains("0x2080ffff"), "{reports:?}");
}

#[test]
fn releases_differ_in_the_sizes_that_they_take() {
    let release = |major| Release { major, minor: 1, patch: 1 };
    for major in [535, 550, 570, 580, 595] {
        let config = Config { release: release(major), ..Config::new(Chip::Sm90) };
        let client = Client::of(SoftNv::new(config).unwrap());
        let new = client.port.ioctl(client.control, 0xc040_4657, &mut [0; 64]).is_ok();
        let old = client.port.ioctl(client.control, 0xc038_4657, &mut [0; 56]).is_ok();
        assert_eq!((new, old), (major >= 580, major < 580), "MAP_MEMORY_DMA of {major}");
        let _card = client.card(0);
        let device = client.alloc(client.root, rm::NV01_DEVICE_0).unwrap();
        let subdevice = client.alloc(device, rm::NV20_SUBDEVICE_0).unwrap();
        let taken = |cmd, len| client.control_raw(subdevice, cmd, &mut vec![0; len]).is_ok();
        assert_eq!(taken(rm::GPU_GET_NAME_STRING.cmd, 68), major >= 595);
        assert_eq!(taken(rm::GR_GET_INFO_V2.cmd, 488), major < 595);
        // 535 reads only the beginning of an address space's params.
        let mut params = space_params();
        params.pasid = 7;
        client.alloc_with(device, rm::FERMI_VASPACE_A, &mut params).unwrap();
        assert_eq!((params.big_page_size, params.pasid), (64 << 10, 7));
    }
}

#[test]
fn configured_refusals_come_at_their_turn_and_no_other() {
    let refusal = |call, nth, status: Status| Refusal { call, nth, status: status.0 };
    let refusals = vec![
        refusal(Call::Class(rm::NV20_SUBDEVICE_0), 1, status::NO_MEMORY),
        refusal(Call::Control(rm::GPU_GET_NUM_SUBDEVICES.cmd), 2, status::TIMEOUT),
        refusal(Call::Uvm(uvm::INITIALIZE.desc.request), 1, status::NOT_SUPPORTED),
    ];
    let client = Client::of(SoftNv::new(Config { refusals, ..Config::new(Chip::Sm90) }).unwrap());
    let _card = client.card(0);
    let device = client.alloc(client.root, rm::NV01_DEVICE_0).unwrap();
    assert_eq!(client.alloc(device, rm::NV20_SUBDEVICE_0), Err(status::NO_MEMORY));
    assert!(client.alloc(device, rm::NV20_SUBDEVICE_0).is_ok());
    let ask = || client.control(device, &rm::GPU_GET_NUM_SUBDEVICES, rm::NumSubdevices::default()).map(|_| ());
    assert_eq!([ask(), ask(), ask()], [Ok(()), Err(status::TIMEOUT), Ok(())]);
    let file = client.open("/dev/nvidia-uvm");
    let mut args = uvm::Initialize::default();
    client.call(file, &uvm::INITIALIZE, &mut args).unwrap();
    assert_eq!(args.rm_status, status::NOT_SUPPORTED.0);
}
