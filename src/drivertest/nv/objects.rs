//! RM's objects: made, named, duplicated, freed with their children, and what each class refuses.

use super::client::{Device, HUGE, PAGE, code, outcome, refused, space_params, want};
use super::on_card;
use crate::case::{Case, Step, holds, same};
use doorbell_ioctl::abi::nvrm::{self as rm, Status};

fn dup(device: &Device<'_>, object: u32, parent: u32) -> Result<u32, Status> {
    let client = &device.client;
    let mut args = rm::RmDupObject {
        h_client: client.root,
        h_parent: parent,
        h_client_src: client.root,
        h_object_src: object,
        ..Default::default()
    };
    client.call(client.control, &rm::DUP_OBJECT, &mut args)?;
    outcome(args.status).map(|()| args.h_object)
}

/// An object that is not there any more. FREE does not tell: it succeeds for what is not there.
fn gone(device: &Device<'_>, object: u32) -> Step {
    refused("DUP_OBJECT of what is gone", dup(device, object, device.device), code::OBJECT_NOT_FOUND)
}

/// Class, parent by name, code.
type Wrong = (&'static str, fn(&Device<'_>) -> Step<Result<u32, Status>>, Status);
const WRONG: &[Wrong] = &[
    ("unknown-class", |d| Ok(d.client.alloc(d.device, 0xfff1)), code::INVALID_CLASS),
    ("unknown-parent", |d| Ok(d.client.alloc(0xdead, rm::NV20_SUBDEVICE_0)), code::OBJECT_NOT_FOUND),
    (
        "subdevice-below-client",
        |d| Ok(d.client.alloc(d.client.root, rm::NV20_SUBDEVICE_0)),
        code::INVALID_OBJECT_PARENT,
    ),
    ("device-below-device", |d| Ok(d.client.alloc(d.device, rm::NV01_DEVICE_0)), code::INVALID_OBJECT_PARENT),
    (
        "unknown-client",
        |d| Ok(d.client.alloc_raw(0x77, d.device, 0, rm::NV20_SUBDEVICE_0, 0)),
        code::INVALID_OBJECT_HANDLE,
    ),
    (
        "handle-in-use",
        |d| Ok(d.client.alloc_raw(d.client.root, d.device, d.subdevice, rm::NV20_SUBDEVICE_0, 0)),
        code::INSERT_DUPLICATE_NAME,
    ),
    ("space-without-params", |d| Ok(d.client.alloc(d.device, rm::FERMI_VASPACE_A)), code::INVALID_ARGUMENT),
    ("memory-without-params", |d| Ok(d.client.alloc(d.device, rm::NV01_MEMORY_LOCAL_USER)), code::INVALID_ARGUMENT),
    (
        "params-nowhere",
        |d| Ok(d.client.alloc_raw(d.client.root, d.device, 0, rm::FERMI_VASPACE_A, 0x10)),
        code::INVALID_ADDRESS,
    ),
    (
        "device-that-is-not-there",
        |d| {
            let mut params = rm::DeviceAlloc { device_id: 31, ..Default::default() };
            Ok(d.client.alloc_with(d.client.root, rm::NV01_DEVICE_0, &mut params))
        },
        code::INVALID_CLASS,
    ),
    (
        "subdevice-that-is-not-there",
        |d| {
            let mut params = rm::SubdeviceAlloc { sub_device_id: 8 };
            Ok(d.client.alloc_with(d.device, rm::NV20_SUBDEVICE_0, &mut params))
        },
        code::INVALID_CLASS,
    ),
    ("subdevice-that-is-made", |d| Ok(d.client.alloc(d.device, rm::NV20_SUBDEVICE_0)), code::INSUFFICIENT_RESOURCES),
    (
        "group-on-no-engine",
        |d| {
            let mut params = rm::ChannelGroupAlloc { engine_type: 0x20, ..Default::default() };
            Ok(d.client.alloc_with(d.device, rm::KEPLER_CHANNEL_GROUP_A, &mut params))
        },
        code::INVALID_ARGUMENT,
    ),
    (
        "channel-below-client",
        |d| {
            let class = d.channel_class()?;
            Ok(d.client.alloc_with(d.client.root, class, &mut rm::ChannelAlloc::default()))
        },
        code::INVALID_OBJECT_PARENT,
    ),
    (
        "share-below-device",
        |d| Ok(d.client.alloc_with(d.device, rm::FERMI_CONTEXT_SHARE_A, &mut rm::CtxShareAlloc::default())),
        code::INVALID_OBJECT_PARENT,
    ),
];

pub(crate) fn cases() -> Vec<Case> {
    let refuse = |(name, alloc, status): &Wrong| {
        let (alloc, status) = (*alloc, *status);
        on_card(&format!("object.refuse-{name}"), "ALLOC refuses it with its code", move |device| {
            refused("ALLOC", alloc(device)?, status)
        })
    };
    let mut all: Vec<Case> = WRONG.iter().map(refuse).collect();
    all.extend(made());
    all.extend(freed());
    all
}

fn made() -> Vec<Case> {
    vec![
        on_card("object.handle-of-the-callers-choice", "An object gets the handle that its maker asks for", |device| {
            same("handle", want("ALLOC", device.small_object(0x4711))?, 0x4711)
        }),
        on_card("object.handles-differ", "Objects get handles of their own", |device| {
            let (one, two) = (want("ALLOC", device.small_object(0))?, want("ALLOC", device.small_object(0))?);
            holds("two handles", one != two && one != device.subdevice && two != device.subdevice)
        }),
        on_card("object.second-space", "A device has as many address spaces as are asked for", |device| {
            let second = device.client.alloc_with(device.device, rm::FERMI_VASPACE_A, &mut space_params());
            holds("another handle", want("ALLOC", second)? != device.space)
        }),
        on_card("object.older-alloc", "The shorter struct of ALLOC makes an object", |device| {
            let client = &device.client;
            let mut args = rm::RmAlloc21 {
                h_root: client.root,
                h_object_parent: device.subdevice,
                h_class: device.small_class()?,
                ..Default::default()
            };
            want("ALLOC", client.call(client.control, &rm::ALLOC_NVOS21, &mut args))?;
            same("status", args.status, 0)?;
            want("FREE", client.free(args.h_object_new))
        }),
        on_card("object.wrapped-call", "A call wrapped in IOCTL_XFER_CMD does the same", |device| {
            let client = &device.client;
            let mut inner = rm::RmAlloc {
                h_root: client.root,
                h_object_parent: device.subdevice,
                h_class: device.small_class()?,
                ..Default::default()
            };
            let ptr = (&raw mut inner).expose_provenance() as u64;
            let mut xfer = rm::Xfer { cmd: 0x2b, size: size_of::<rm::RmAlloc>() as u32, ptr };
            want("IOCTL_XFER_CMD", client.call(client.control, &rm::IOCTL_XFER_CMD, &mut xfer))?;
            let inner = std::hint::black_box(&inner);
            holds("an object", inner.status == 0 && inner.h_object_new != 0)?;
            want("FREE", client.free(inner.h_object_new))
        }),
        on_card(
            "object.duplicate",
            "A duplicate is the same memory under another handle, and outlives the first",
            |device| {
                let buffer = device.vram(HUGE)?;
                buffer.view.write_u32(0, 0x1234)?;
                let twin = want("DUP_OBJECT", dup(device, buffer.handle, device.device))?;
                want("FREE", device.client.free(buffer.handle))?;
                let (view, cookie) =
                    want("MAP_MEMORY", device.client.map(device.device, twin, HUGE, device.client.card(0)?)?)?;
                same("what it holds", view.read_u32(0)?, 0x1234)?;
                drop(view);
                want("UNMAP_MEMORY", device.client.unmap(device.device, twin, cookie))?;
                want("FREE", device.client.free(twin))
            },
        ),
        on_card("object.duplicate-under-a-handle", "A duplicate gets the handle that its maker asks for", |device| {
            let buffer = device.vram(PAGE)?;
            let client = &device.client;
            let mut args = rm::RmDupObject {
                h_client: client.root,
                h_parent: device.device,
                h_object: 0x4712,
                h_client_src: client.root,
                h_object_src: buffer.handle,
                ..Default::default()
            };
            want("DUP_OBJECT", client.call(client.control, &rm::DUP_OBJECT, &mut args))?;
            same("status and handle", (args.status, args.h_object), (0, 0x4712))?;
            want("FREE", client.free(0x4712))
        }),
        on_card("object.duplicate-of-nothing", "A duplicate of no object is refused", |device| {
            refused("DUP_OBJECT", dup(device, 0xdead, device.device), code::OBJECT_NOT_FOUND)
        }),
        on_card("object.duplicate-below-memory", "A duplicate below memory is refused", |device| {
            let buffer = device.vram(PAGE)?;
            refused("DUP_OBJECT", dup(device, buffer.handle, buffer.handle), code::INVALID_OBJECT_PARENT)
        }),
        on_card("object.share", "SHARE takes an object and refuses what is none", |device| {
            let client = &device.client;
            let share = |h_object| {
                let mut args = rm::RmShare { h_client: client.root, h_object, ..Default::default() };
                client.call(client.control, &rm::SHARE, &mut args).and_then(|()| outcome(args.status))
            };
            want("SHARE", share(device.device))?;
            refused("SHARE of nothing", share(0xdead), code::OBJECT_NOT_FOUND)
        }),
    ]
}

fn freed() -> Vec<Case> {
    vec![
        on_card("object.free-twice", "A freed object is gone, and FREE of it succeeds again", |device| {
            let one = want("ALLOC", device.small_object(0))?;
            want("FREE", device.client.free(one))?;
            gone(device, one)?;
            want("again", device.client.free(one))
        }),
        on_card("object.free-unknown-client", "FREE for a client that is none is refused", |device| {
            let mut args = rm::RmFree { h_root: 0x77, h_object_old: 0x77, ..Default::default() };
            want("FREE", device.client.call(device.client.control, &rm::FREE, &mut args))?;
            refused("FREE", outcome(args.status), code::INVALID_OBJECT_HANDLE)
        }),
        on_card(
            "object.parent-takes-its-children",
            "Freeing a group frees shares, channels and their objects",
            |device| {
                let group = device.group(1, 0)?;
                let (share, class) = (device.share(group)?, device.compute_class()?);
                let channel = device.channel_in(group, share, class)?;
                want("UVM_UNREGISTER_CHANNEL", device.unregister_channel(channel.handle))?;
                want("FREE of the group", device.client.free(group))?;
                gone(device, share)?;
                gone(device, channel.handle)
            },
        ),
        on_card("object.handle-is-free-again", "A freed handle may be used again", |device| {
            for _ in 0..3 {
                want("ALLOC", device.small_object(0x4711))?;
                want("FREE", device.client.free(0x4711))?;
            }
            Ok(())
        }),
        on_card("object.five-hundred", "Five hundred objects are made and freed", |device| {
            let many: Step<Vec<u32>> = (0..500).map(|_| want("ALLOC", device.small_object(0))).collect();
            many?.into_iter().rev().try_for_each(|handle| want("FREE", device.client.free(handle)))
        }),
    ]
}
