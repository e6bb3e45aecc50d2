//! Events: which ones RM sends to files, with its codes, and what polls see. Rules: `osapi.c`, `event_api.c`,
//! `event_notification.c`, `subdevice_ctrl_event_kernel.c` and `nv.c` of the open kernel modules 595.45.

use super::client::Device;
use doorbell::emu::nvrm::{Chip, Config, SoftNv};
use doorbell_ioctl::abi::nvrm as rm;
use doorbell_ioctl::abi::nvrm::Release;
use doorbell_ioctl::port::{Fd, PollEvents, PollFd};

/// Codes of `nvstatuscodes.h`.
const INSUFFICIENT_RESOURCES: u32 = 0x1a;
const INVALID_ARGUMENT: u32 = 0x1f;
const INVALID_EVENT: u32 = 0x28;
const INVALID_OBJECT: u32 = 0x31;
const INVALID_STATE: u32 = 0x40;
const NOT_SUPPORTED: u32 = 0x56;
const OBJECT_NOT_FOUND: u32 = 0x57;
const OPERATING_SYSTEM: u32 = 0x59;
/// The interrupts of channels, as an event without data.
const INTERRUPTS: u32 = rm::NV01_EVENT_NONSTALL_INTR | rm::NV01_EVENT_WITHOUT_EVENT_DATA;
/// NON_STALL_INTERRUPT (0x20 on subchannel 0) with a count of one, and its value.
const INTERRUPT: [u32; 2] = [0x2001_0008, 0];

fn name(device: &Device, file: Fd) -> u32 {
    let mut args = rm::AllocOsEvent { h_client: device.client.root, fd: file.0, ..Default::default() };
    device.client.call(file, &rm::ALLOC_OS_EVENT, &mut args).unwrap();
    args.status
}

fn forget(device: &Device, file: Fd) -> u32 {
    let mut args = rm::FreeOsEvent { h_client: device.client.root, fd: file.0, ..Default::default() };
    device.client.call(file, &rm::FREE_OS_EVENT, &mut args).unwrap();
    args.status
}

/// An event of `source`'s notifier for a file: the object, or the code of the refusal.
fn event(device: &Device, source: u32, file: Fd, notify_index: u32) -> Result<u32, u32> {
    let mut params = rm::EventAlloc {
        h_parent_client: 0,
        h_src_resource: source,
        h_class: rm::NV01_EVENT_OS_EVENT,
        notify_index,
        data: file.0 as u64,
    };
    device.client.alloc_with(source, rm::NV01_EVENT_OS_EVENT, &mut params).map_err(|status| status.0)
}

fn set(device: &Device, event: u32, action: u32) -> u32 {
    let params = rm::SetNotification { event, action, ..Default::default() };
    device.client.control(device.subdevice, &rm::EVENT_SET_NOTIFICATION, params).map_or_else(|status| status.0, |_| 0)
}

fn poll(device: &Device, file: Fd, timeout_ms: i32) -> bool {
    let mut fds = [PollFd { fd: file, wanted: PollEvents::IN, seen: PollEvents::empty() }];
    device.client.port.poll(&mut fds, timeout_ms) == Ok(1) && fds[0].seen == PollEvents::IN
}

fn data(device: &Device, file: Fd) -> Result<[u32; 4], u32> {
    let mut data = [0_u32; 4];
    let mut args = rm::RmGetEventData { p_event: data.as_mut_ptr() as u64, ..Default::default() };
    device.client.call(file, &rm::GET_EVENT_DATA, &mut args).unwrap();
    if args.status == 0 { Ok(data) } else { Err(args.status) }
}

#[test]
fn an_event_needs_a_file_with_a_name_and_an_object_that_notifies() {
    let device = Device::new(Chip::Sm90);
    let file = device.client.open("/dev/nvidiactl");
    let subdevice = device.subdevice;
    assert_eq!(event(&device, subdevice, file, rm::NV2080_NOTIFIERS_RC_ERROR), Err(OBJECT_NOT_FOUND));
    assert_eq!((forget(&device, file), name(&device, file)), (INVALID_EVENT, 0));
    assert_eq!(name(&device, file), INSUFFICIENT_RESOURCES);
    let other = device.client.open("/dev/nvidiactl");
    assert_eq!((name(&device, other), data(&device, other)), (0, Err(OPERATING_SYSTEM)));
    for source in [device.device, device.space] {
        assert_eq!(event(&device, source, file, rm::NV2080_NOTIFIERS_RC_ERROR), Err(INVALID_OBJECT));
    }
    let host = rm::NV2080_NOTIFIERS_FIFO_EVENT_MTHD | INTERRUPTS;
    assert_eq!(event(&device, device.compute().handle, file, host), Err(INVALID_ARGUMENT));
    assert_eq!(event(&device, subdevice, file, rm::NV2080_NOTIFIERS_RC_ERROR | INTERRUPTS), Err(NOT_SUPPORTED));
    let object = event(&device, subdevice, file, host).unwrap();
    device.client.free(object).unwrap();
    assert_eq!((forget(&device, file), forget(&device, file)), (0, INVALID_EVENT));
    assert_eq!(event(&device, subdevice, file, host), Err(OBJECT_NOT_FOUND));
}

#[test]
fn a_notifier_is_switched_on_once_and_only_where_an_event_is_plugged_in() {
    for (major, count) in [(535, 181), (550, 187), (570, 197), (580, 198), (595, 199)] {
        let release = Release { major, minor: 0, patch: 0 };
        let device = Device::of(SoftNv::new(Config { release, ..Config::new(Chip::Sm90) }).unwrap());
        let file = device.client.open("/dev/nvidiactl");
        let error = rm::NV2080_NOTIFIERS_RC_ERROR;
        assert_eq!((name(&device, file), set(&device, error, 2)), (0, INVALID_STATE), "{major}");
        event(&device, device.subdevice, file, error).unwrap();
        for (notifier, action) in [(count, 2), (rm::NV2080_NOTIFIERS_TIMER, 2), (error, 3)] {
            assert_eq!(set(&device, notifier, action), INVALID_ARGUMENT, "{major}: {notifier}, {action}");
        }
        assert_eq!([set(&device, count - 1, 2), set(&device, error, 2)], [0, 0], "{major}");
        assert_eq!((set(&device, error, 1), set(&device, error, 0), set(&device, error, 1)), (INVALID_STATE, 0, 0));
        if major < 550 {
            // The client maps its channels' memory with the structs of later releases.
            continue;
        }
        let mut channel = device.compute();
        channel.submit(&[0xc000_0000]);
        assert!(poll(&device, file, 20_000), "{major}");
        assert_eq!(data(&device, file).map(|d| d[1..3].to_vec()), Ok(vec![error, 32]), "{major}");
        // Once was asked for.
        let mut channel = device.compute();
        channel.submit(&[0xc000_0000]);
        channel.wait_error();
        assert!(!poll(&device, file, 0), "{major}");
    }
}

#[test]
fn a_channels_interrupt_wakes_those_who_listen_for_it_and_no_others() {
    let device = Device::new(Chip::Sm90);
    let files = [0; 4].map(|_| device.client.open("/dev/nvidiactl"));
    assert_eq!(files.map(|file| name(&device, file)), [0; 4]);
    let [host, graphics, copies, plain] = files;
    let listen = |file, index| event(&device, device.subdevice, file, index).unwrap();
    listen(host, rm::NV2080_NOTIFIERS_FIFO_EVENT_MTHD | INTERRUPTS);
    listen(graphics, rm::NV2080_NOTIFIERS_GR0 | INTERRUPTS);
    // The third copy engine (NV2080_ENGINE_TYPE 0x0b) has a runlist of its own.
    listen(copies, (rm::NV2080_NOTIFIERS_CE0 + 2) | INTERRUPTS);
    // Without the flag a notifier receives no interrupt, enabled or not.
    listen(plain, rm::NV2080_NOTIFIERS_FIFO_EVENT_MTHD);
    assert_eq!(set(&device, rm::NV2080_NOTIFIERS_FIFO_EVENT_MTHD, 2), 0);
    let looks = || files.map(|file| poll(&device, file, 0));
    assert_eq!(looks(), [false; 4]);
    device.compute().submit(&INTERRUPT);
    assert!(poll(&device, host, 20_000) && poll(&device, graphics, 20_000));
    // A look has taken it, and there is no data.
    assert_eq!((looks(), data(&device, host)), ([false; 4], Err(OPERATING_SYSTEM)));
    device.copy(0x0b).submit(&INTERRUPT);
    assert!(poll(&device, host, 20_000) && poll(&device, copies, 20_000));
    assert_eq!(looks(), [false; 4]);
    assert!(device.reports().is_empty(), "{:?}", device.reports());
}
