//! Events: files that wake up for errors and interrupts.

use super::client::{Device, code, outcome, refused, want};
use super::methods::BAD_HEADER;
use super::on_card;
use crate::case::{Case, Step, holds, same};
use doorbell_ioctl::abi::nvrm::{self as rm, Status};
use doorbell_ioctl::port::{Fd, PollEvents, PollFd};

const INTERRUPTS: u32 = rm::NV01_EVENT_NONSTALL_INTR | rm::NV01_EVENT_WITHOUT_EVENT_DATA;
pub(super) const HOST: u32 = rm::NV2080_NOTIFIERS_FIFO_EVENT_MTHD | INTERRUPTS;
/// NON_STALL_INTERRUPT with its value.
pub(super) const INTERRUPT: [u32; 2] = [0x2001_0008, 0];
/// The channel ends with code 32.
const BAD: [u32; 1] = [BAD_HEADER];
const REPEAT: u32 = 2;
const NV2080_ENGINE_TYPE_COPY0: u32 = 0x09;

pub(super) fn name(device: &Device<'_>, file: Fd) -> Result<(), Status> {
    let mut args = rm::AllocOsEvent { h_client: device.client.root, fd: file.0, ..Default::default() };
    device.client.call(file, &rm::ALLOC_OS_EVENT, &mut args).and_then(|()| outcome(args.status))
}

fn forget(device: &Device<'_>, file: Fd) -> Result<(), Status> {
    let mut args = rm::FreeOsEvent { h_client: device.client.root, fd: file.0, ..Default::default() };
    device.client.call(file, &rm::FREE_OS_EVENT, &mut args).and_then(|()| outcome(args.status))
}

pub(super) fn event(device: &Device<'_>, source: u32, file: Fd, notify_index: u32) -> Result<u32, Status> {
    let mut params = rm::EventAlloc {
        h_parent_client: 0,
        h_src_resource: source,
        h_class: rm::NV01_EVENT_OS_EVENT,
        notify_index,
        data: u64::from(file.0.cast_unsigned()),
    };
    device.client.alloc_with(source, rm::NV01_EVENT_OS_EVENT, &mut params)
}

fn set(device: &Device<'_>, event: u32, action: u32) -> Result<(), Status> {
    let params = rm::SetNotification { event, action, ..Default::default() };
    device.client.control(device.subdevice, &rm::EVENT_SET_NOTIFICATION, params).map(|_| ())
}

fn poll(device: &Device<'_>, file: Fd, timeout_ms: i32) -> Step<bool> {
    let mut fds = [PollFd { fd: file, wanted: PollEvents::IN, seen: PollEvents::empty() }];
    Ok(device.client.bench.port.poll(&mut fds, timeout_ms)? == 1 && fds[0].seen.contains(PollEvents::IN))
}

fn patience(device: &Device<'_>) -> i32 {
    i32::try_from(device.client.bench.patience.as_millis()).unwrap_or(10_000)
}

/// The words of an event, and whether there are more.
fn data(device: &Device<'_>, file: Fd) -> Result<([u32; 4], u32), Status> {
    let mut words = [0_u32; 4];
    let p_event = (&raw mut words).expose_provenance() as u64;
    let mut args = rm::RmGetEventData { p_event, ..Default::default() };
    device.client.call(file, &rm::GET_EVENT_DATA, &mut args).and_then(|()| outcome(args.status))?;
    Ok((std::hint::black_box(words), args.more_events))
}

/// A file with a name, which is forgotten at the end.
pub(super) fn listening(device: &Device<'_>, body: impl FnOnce(Fd) -> Step) -> Step {
    let file = device.client.open("/dev/nvidiactl")?;
    want("ALLOC_OS_EVENT", name(device, file))?;
    body(file)?;
    want("FREE_OS_EVENT", forget(device, file))
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        on_card("event.file-needs-a-name", "An event for a file without a name is refused", |device| {
            let file = device.client.open("/dev/nvidiactl")?;
            refused("ALLOC", event(device, device.subdevice, file, HOST), code::OBJECT_NOT_FOUND)
        }),
        on_card("event.name-once", "A file has one name, and it is forgotten once", |device| {
            let file = device.client.open("/dev/nvidiactl")?;
            refused("FREE_OS_EVENT too early", forget(device, file), code::INVALID_EVENT)?;
            want("ALLOC_OS_EVENT", name(device, file))?;
            refused("again", name(device, file), code::INSUFFICIENT_RESOURCES)?;
            want("FREE_OS_EVENT", forget(device, file))?;
            refused("FREE_OS_EVENT again", forget(device, file), code::INVALID_EVENT)
        }),
        on_card("event.source-that-tells-nothing", "An event of a space is refused", |device| {
            listening(device, |file| {
                refused("ALLOC", event(device, device.space, file, rm::NV2080_NOTIFIERS_RC_ERROR), code::INVALID_OBJECT)
            })
        }),
        on_card(
            "event.interrupts-of-a-channel-object",
            "Interrupts are told by the card, not by a channel",
            |device| {
                let channel = device.copy(0)?;
                listening(device, |file| {
                    refused("ALLOC", event(device, channel.handle, file, HOST), code::INVALID_ARGUMENT)
                })
            },
        ),
        on_card("event.interrupts-of-no-engine", "A notifier without interrupts refuses an event for them", |device| {
            listening(device, |file| {
                let index = rm::NV2080_NOTIFIERS_RC_ERROR | INTERRUPTS;
                refused("ALLOC", event(device, device.subdevice, file, index), code::NOT_SUPPORTED)
            })
        }),
        on_card("event.action-without-an-event", "A notifier without an event cannot be switched on", |device| {
            refused("EVENT_SET_NOTIFICATION", set(device, rm::NV2080_NOTIFIERS_RC_ERROR, REPEAT), code::INVALID_STATE)
        }),
        on_card("event.action-that-is-none", "An unknown action, and an unknown notifier, are refused", |device| {
            listening(device, |file| {
                want("ALLOC", event(device, device.subdevice, file, rm::NV2080_NOTIFIERS_RC_ERROR))?;
                refused("action", set(device, rm::NV2080_NOTIFIERS_RC_ERROR, 3), code::INVALID_ARGUMENT)?;
                refused("notifier", set(device, 0xffff, REPEAT), code::INVALID_ARGUMENT)
            })
        }),
        on_card("event.no-data", "A file to which nothing has happened has no data and wakes nobody", |device| {
            listening(device, |file| {
                holds("poll", !poll(device, file, 0)?)?;
                refused("GET_EVENT_DATA", data(device, file), code::OPERATING_SYSTEM)
            })
        }),
        on_card("event.interrupt-wakes", "A channel's interrupt wakes a file that listens, once", |device| {
            let mut channel = device.copy(0)?;
            listening(device, |file| {
                want("ALLOC", event(device, device.subdevice, file, HOST))?;
                holds("nothing yet", !poll(device, file, 0)?)?;
                channel.submit(&INTERRUPT)?;
                holds("it wakes", poll(device, file, patience(device))?)?;
                holds("once", !poll(device, file, 0)?)
            })
        }),
        on_card(
            "event.interrupt-of-its-engine",
            "An engine's interrupt wakes its own listeners, and no others",
            |device| {
                let notifier = |nth| -> Step<u32> {
                    let engine = device.copy_engine(nth)? - NV2080_ENGINE_TYPE_COPY0;
                    Ok((rm::NV2080_NOTIFIERS_CE0 + engine) | INTERRUPTS)
                };
                let (first, second) = (notifier(0)?, notifier(1)?);
                let mut channel = device.copy(0)?;
                listening(device, |own| {
                    listening(device, |other| {
                        want("ALLOC", event(device, device.subdevice, own, first))?;
                        want("ALLOC", event(device, device.subdevice, other, second))?;
                        channel.submit(&INTERRUPT)?;
                        holds("its own", poll(device, own, patience(device))?)?;
                        holds("no other", !poll(device, other, 0)?)
                    })
                })
            },
        ),
        on_card("event.error-wakes-with-its-data", "An error wakes a file, with notifier and code", |device| {
            let mut channel = device.copy(0)?;
            listening(device, |file| {
                let object = want("ALLOC", event(device, device.subdevice, file, rm::NV2080_NOTIFIERS_RC_ERROR))?;
                want("EVENT_SET_NOTIFICATION", set(device, rm::NV2080_NOTIFIERS_RC_ERROR, REPEAT))?;
                channel.submit(&BAD)?;
                holds("it wakes", poll(device, file, patience(device))?)?;
                let (reported, more) = want("GET_EVENT_DATA", data(device, file))?;
                same("more of them", more, 0)?;
                same(
                    "object, notifier, code",
                    reported[..3].to_vec(),
                    vec![object, rm::NV2080_NOTIFIERS_RC_ERROR, 32],
                )?;
                holds("once", !poll(device, file, 0)?)
            })
        })
        .provoking(&["Xid"]),
        on_card("event.switched-off", "A notifier that is off tells nothing", |device| {
            let mut channel = device.copy(0)?;
            listening(device, |file| {
                want("ALLOC", event(device, device.subdevice, file, rm::NV2080_NOTIFIERS_RC_ERROR))?;
                want("EVENT_SET_NOTIFICATION", set(device, rm::NV2080_NOTIFIERS_RC_ERROR, REPEAT))?;
                want("off", set(device, rm::NV2080_NOTIFIERS_RC_ERROR, 0))?;
                channel.submit(&BAD)?;
                same("the error itself", device.error(&channel)?, 32)?;
                holds("no wake-up", !poll(device, file, 0)?)
            })
        })
        .provoking(&["Xid"]),
    ]
}
