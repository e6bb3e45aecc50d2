//! Errors of channels: contents of the notifier, the debugger, events and the reports, which channels die together, and
//! hangs.

use super::client::{Device, HUGE, PAGE, release, wait};
use super::engines::copy;
use super::grids::{DONE, endless, start};
use doorbell::emu::nvrm::compute::{ComputeFault, WarpError};
use doorbell::emu::nvrm::vm::{Access, VmFault};
use doorbell::emu::nvrm::{Chip, ReportKind, status};
use doorbell_ioctl::abi::nvrm as rm;
use doorbell_ioctl::port::{PollEvents, PollFd};

#[test]
fn bad_entries_and_methods_have_their_codes_and_are_named() {
    type Bad = fn(&mut super::client::Channel);
    let cases: [(&str, u32, Bad); 7] = [
        ("GPFIFO entry", 32, |c| c.entry([0, 1])),
        ("Read of 0x0: no mapping", 31, |c| c.entry([1, 1 << 10])),
        ("push buffer", 32, |c| c.push(&[0xc000_0000])),
        ("host has no method 0x0004", 32, |c| c.push(&[0x2001_0001, 1])),
        ("subchannel 3 has no object", 13, |c| c.push(&[0x2001_6040, 0])),
        ("SET_OBJECT 0xbeef", 13, |c| c.push(&[0x2001_2000, 0xbeef])),
        ("compute engine has no method 0x0ffc", 11, |c| c.push(&[0x2001_23ff, 5])),
    ];
    for (text, code, bad) in cases {
        let device = Device::new(Chip::Sm90);
        let mut channel = device.compute();
        bad(&mut channel);
        channel.ring();
        assert_eq!(channel.wait_error(), code, "{text}");
        let report = device.reports().pop().unwrap();
        assert_eq!((report.kind, report.text.contains(text)), (ReportKind::Xid(code), true), "{report}");
    }
}

#[test]
fn a_methods_data_go_on_in_the_next_push_buffer() {
    let device = Device::new(Chip::Sm90);
    let (mut channel, page) = (device.compute(), device.system(PAGE));
    let words = release(page.va, 6);
    channel.push(&words[..2]);
    channel.push(&words[2..]);
    channel.ring();
    page.wait_u64(0, 6);
}

#[test]
fn gp_put_outside_of_the_ring_is_an_error() {
    let device = Device::new(Chip::Sm90);
    let mut channel = device.compute();
    channel.put = channel.entries + 3;
    channel.ring();
    assert_eq!(channel.wait_error(), 32);
}

#[test]
fn stray_access_is_told_by_channel_debugger_and_counters_and_kills_the_group_only() {
    let (device, _) = Device::with_sms(Chip::Sm90, |_, _| Ok(()));
    let client = &device.client;
    let (mut bad, mut good) = (device.copy(0x0b), device.copy(0x0c));
    let compute = device.compute();
    let page = device.system(PAGE);
    let object = client.alloc(compute.handle, rm::HOPPER_COMPUTE_A).unwrap();
    let mut params = rm::DebuggerAlloc { h_app_client: client.root, h_class3d_object: object, ..Default::default() };
    let debugger = client.alloc_with(device.device, rm::GT200_DEBUGGER, &mut params).unwrap();
    bad.submit(&copy(page.va, 0x77_0000_1000, 4));
    assert_eq!(bad.wait_error(), 31);
    let info = client.control(bad.handle, &rm::CHANNEL_GET_MMU_FAULT_INFO, Default::default()).unwrap();
    assert_eq!((info.addr_hi, info.addr_lo, info.fault_type), (0x77, 0x1000, 0));
    assert_eq!(&info.fault_string[..10], b"FAULT_PDE\0");
    let faults = client.control(debugger, &rm::DEBUG_READ_MMU_FAULT_INFO, Default::default()).unwrap();
    let first = faults.mmu_fault_info_list[0];
    assert_eq!((faults.count, first.fault_address, first.access_type), (1, 0x77_0000_1000, 1));
    let count = client.control(device.subdevice, &rm::RC_GET_ERROR_COUNT, Default::default()).unwrap();
    assert_eq!(count.error_count, 1);
    let report = device.reports().pop().unwrap();
    assert_eq!(report.kind, ReportKind::Xid(31));
    assert!(report.text.contains("Write of 0x7700001000: no mapping"), "{report}");
    // The dead channel does nothing more, the other one goes on.
    bad.submit(&release(page.va + 64, 1));
    good.submit(&release(page.va + 128, 1));
    page.wait_u64(128, 1);
    assert_eq!(page.view.read_u64(64), Ok(0));
    assert_eq!(device.schedule(bad.group), Ok(()), "it is put on, and does nothing");
}

#[test]
fn read_only_mappings_refuse_writes_and_plain_ones_atomics() {
    let device = Device::new(Chip::Sm90);
    let (memory, page) = (device.vram(HUGE), device.system(PAGE));
    let base = device.take_va(HUGE);
    device.create_range(base, HUGE).unwrap();
    device.map_range(memory.handle, base, HUGE, 3).unwrap();
    let mut channel = device.copy(0x0b);
    channel.push(&copy(base, page.va, 4));
    channel.push(&copy(page.va, base, 4));
    channel.ring();
    assert_eq!(channel.wait_error(), 31);
    let info = device.client.control(channel.handle, &rm::CHANNEL_GET_MMU_FAULT_INFO, Default::default()).unwrap();
    assert_eq!((info.fault_type, u64::from(info.addr_hi) << 32 | u64::from(info.addr_lo)), (6, base));
    let (device, _) = Device::with_sms(Chip::Sm90, |launch, machine| {
        let target = launch.banks[0].unwrap().0;
        let fault = machine.vm.update_u32(target, |n| n + 1).unwrap_err();
        Err(ComputeFault::Memory { fault, place: "the test".to_owned() })
    });
    let memory = device.vram(16 * PAGE);
    device.map_range(memory.handle, memory.va, 16 * PAGE, 2).unwrap();
    let mut channel = device.compute();
    start(&device, &mut channel, &memory);
    assert_eq!(channel.wait_error(), 31);
    let info = device.client.control(channel.handle, &rm::CHANNEL_GET_MMU_FAULT_INFO, Default::default()).unwrap();
    assert_eq!(info.fault_type, 0xf);
}

#[test]
fn exceptions_of_warps_stand_in_the_debuggers_registers() {
    let error = WarpError { sm: 105, code: 0x10, pc: 0x20_0000_0040, va: 0x1234 };
    let (device, _) = Device::with_sms(Chip::Sm90, move |_, _| {
        Err(ComputeFault::Exception { error, text: "illegal address".to_owned() })
    });
    let client = &device.client;
    let group = device.group(1, 0);
    let share = device.share(group);
    let mut channel = device.channel_in(group, share, rm::HOPPER_COMPUTE_A);
    device.schedule(group).unwrap();
    let object = client.alloc(channel.handle, rm::HOPPER_COMPUTE_A).unwrap();
    let mut params = rm::DebuggerAlloc { h_app_client: client.root, h_class3d_object: object, ..Default::default() };
    let debugger = client.alloc_with(device.device, rm::GT200_DEBUGGER, &mut params).unwrap();
    channel.submit(&[0x2001_2000, rm::HOPPER_COMPUTE_A, 0x2002_20a8, 0x7294, 0, 0x2002_21ec, 0x7293, 0]);
    let memory = device.vram(16 * PAGE);
    start(&device, &mut channel, &memory);
    assert_eq!(channel.wait_error(), 13);
    assert_eq!(memory.view.read_u64(DONE), Ok(0));
    let read = |first, count| {
        let mut params = rm::ReadAllSmErrorStates::default();
        (params.h_target_channel, params.starting_sm, params.num_s_ms_to_read) = (channel.handle, first, count);
        client.control(debugger, &rm::DEBUG_READ_ALL_SM_ERROR_STATES, params)
    };
    assert!(read(0, 100).unwrap().sm_error_state_array.iter().all(|sm| sm.hww_warp_esr == 0));
    let second = read(100, 32).unwrap();
    let sm = second.sm_error_state_array[5];
    assert_eq!((sm.hww_warp_esr, sm.hww_warp_esr_pc64, sm.hww_esr_addr), (0x10, 0x20_0000_0040, 0x1234));
    assert_eq!(read(100, 100).unwrap_err(), status::INVALID_ARGUMENT, "132 SMs");
    let clear = rm::ClearAllSmErrorStates { h_target_channel: channel.handle, num_s_ms_to_clear: 132 };
    client.control(debugger, &rm::DEBUG_CLEAR_ALL_SM_ERROR_STATES, clear).unwrap();
    assert_eq!(read(100, 32).unwrap().sm_error_state_array[5].hww_warp_esr, 0);
}

#[test]
fn faults_of_kernels_are_the_mmus_with_their_place() {
    let (device, _) = Device::with_sms(Chip::Sm90, |_, _| {
        let fault = VmFault { va: 0x55, access: Access::Read, mapped: false };
        Err(ComputeFault::Memory { fault, place: "pc 0x40 of CTA 0,0,0".to_owned() })
    });
    let mut channel = device.compute();
    let memory = device.vram(16 * PAGE);
    start(&device, &mut channel, &memory);
    assert_eq!(channel.wait_error(), 31);
    assert!(device.reports()[0].text.contains("pc 0x40 of CTA 0,0,0"));
}

#[test]
fn siblings_die_with_the_offender_and_are_told() {
    let device = Device::new(Chip::Sm90);
    let group = device.group(1, 0);
    let share = device.share(group);
    let mut first = device.channel_in(group, share, rm::HOPPER_COMPUTE_A);
    let mut second = device.channel_in(group, share, rm::HOPPER_DMA_COPY_A);
    device.schedule(group).unwrap();
    first.submit(&[0xc000_0000]);
    assert_eq!(first.wait_error(), 32);
    let page = device.system(PAGE);
    second.submit(&release(page.va, 1));
    std::thread::sleep(std::time::Duration::from_millis(3));
    assert_eq!(page.view.read_u64(0), Ok(0));
    assert_eq!(second.error(), (32, 0xffff));
}

#[test]
fn the_error_notifier_control_writes_an_error_as_on_a_card() {
    for each in [false, true] {
        let device = Device::new(Chip::Sm90);
        let group = device.group(1, 0);
        let share = device.share(group);
        let first = device.channel_in(group, share, rm::HOPPER_COMPUTE_A);
        let second = device.channel_in(group, share, rm::HOPPER_DMA_COPY_A);
        let params = rm::SetErrorNotifier { b_notify_each_channel_in_tsg: each.into() };
        device.client.control(first.handle, &rm::CHANNEL_SET_ERROR_NOTIFIER, params).unwrap();
        assert_eq!(first.error(), (13, 0xffff));
        assert_eq!(second.error(), if each { (13, 0xffff) } else { (0, 0) });
    }
}

#[test]
fn a_hanging_grid_is_reset_by_preemption_and_freed() {
    let (device, seen) = Device::with_sms(Chip::Sm90, endless);
    let mut channel = device.compute();
    let memory = device.vram(16 * PAGE);
    start(&device, &mut channel, &memory);
    wait("the grid", || !seen.launches.lock().unwrap().is_empty());
    let params = rm::GroupPreempt { b_wait: 1, b_manual_timeout: 1, timeout_us: 2000, ..Default::default() };
    let outcome = device.client.control(channel.group, &rm::GROUP_PREEMPT, params);
    assert_eq!(outcome.unwrap_err(), status::TIMEOUT);
    assert_eq!(channel.wait_error(), 43);
    assert_eq!(memory.view.read_u64(DONE), Ok(0));
    device.client.free(channel.group).unwrap();
    assert_eq!(device.client.machine.left_over()[1], 0);
}

#[test]
fn an_idle_group_is_preempted_at_once_and_a_hanging_one_can_simply_be_freed() {
    let (device, seen) = Device::with_sms(Chip::Sm90, endless);
    let mut channel = device.compute();
    let params = rm::GroupPreempt { b_wait: 1, ..Default::default() };
    assert!(device.client.control(channel.group, &rm::GROUP_PREEMPT, params).is_ok());
    let mut idle = rm::RmIdleChannels {
        h_client: device.client.root,
        h_device: device.device,
        h_channel: channel.handle,
        flags: 1 << 4,
        timeout: 1000,
        ..Default::default()
    };
    device.client.call(device.client.control, &rm::IDLE_CHANNELS, &mut idle).unwrap();
    wait("an idle channel", || {
        let mut idle = idle;
        device.client.call(device.client.control, &rm::IDLE_CHANNELS, &mut idle).unwrap();
        idle.status == 0
    });
    let memory = device.vram(16 * PAGE);
    start(&device, &mut channel, &memory);
    wait("the grid", || !seen.launches.lock().unwrap().is_empty());
    device.client.call(device.client.control, &rm::IDLE_CHANNELS, &mut idle).unwrap();
    assert_eq!(idle.status, status::TIMEOUT.0);
    device.client.free(channel.group).unwrap();
    assert_eq!(device.client.machine.left_over()[1], 0);
}

#[test]
fn a_reset_channel_says_so() {
    let device = Device::new(Chip::Sm90);
    let channel = device.compute();
    let reset = |engine_id| {
        let params = rm::ResetChannel { engine_id, ..Default::default() };
        device.client.control(channel.handle, &rm::CHANNEL_RESET_CHANNEL, params).map(|_| ())
    };
    assert_eq!(reset(0), Err(status::OBJECT_NOT_FOUND), "an engine has to be named");
    reset(1).unwrap();
    assert_eq!(channel.wait_error(), 43);
}

#[test]
fn poll_wakes_up_for_an_error_that_a_file_listens_to() {
    let device = Device::new(Chip::Sm90);
    let client = &device.client;
    let file = client.open("/dev/nvidiactl");
    let mut event = rm::AllocOsEvent { h_client: client.root, h_device: device.device, fd: file.0, status: 0 };
    client.call(file, &rm::ALLOC_OS_EVENT, &mut event).unwrap();
    assert_eq!(event.status, 0);
    let mut params = rm::EventAlloc {
        h_parent_client: client.root,
        h_src_resource: device.subdevice,
        h_class: rm::NV01_EVENT_OS_EVENT,
        notify_index: 37,
        data: file.0 as u64,
    };
    let object = client.alloc_with(device.subdevice, rm::NV01_EVENT_OS_EVENT, &mut params).unwrap();
    let params = rm::SetNotification { event: 37, action: 2, ..Default::default() };
    client.control(device.subdevice, &rm::EVENT_SET_NOTIFICATION, params).unwrap();
    let poll = |timeout| {
        let mut fds = [PollFd { fd: file, wanted: PollEvents::IN, seen: PollEvents::empty() }];
        client.port.poll(&mut fds, timeout).map(|n| (n, fds[0].seen))
    };
    assert_eq!(poll(0), Ok((0, PollEvents::empty())));
    let mut channel = device.compute();
    channel.submit(&[0xc000_0000]);
    assert_eq!(poll(20_000), Ok((1, PollEvents::IN)));
    let mut data = [0_u32; 4];
    let mut args = rm::RmGetEventData { p_event: data.as_mut_ptr() as u64, ..Default::default() };
    client.call(file, &rm::GET_EVENT_DATA, &mut args).unwrap();
    assert_eq!((args.status, data), (0, [object, 37, 32, 1]));
    assert_eq!(poll(0), Ok((0, PollEvents::empty())));
}

#[test]
fn a_lost_card_ends_its_channels() {
    let (device, seen) = Device::with_sms(Chip::Sm90, endless);
    let mut channel = device.compute();
    let memory = device.vram(16 * PAGE);
    start(&device, &mut channel, &memory);
    wait("the grid", || !seen.launches.lock().unwrap().is_empty());
    device.client.machine.lose_gpu(0);
    device.client.free(channel.group).unwrap();
    assert_eq!(memory.view.read_u64(DONE), Ok(0));
}
