//! Channels and groups: made, refused, scheduled, bound, preempted, idle.

use super::client::{Channel, Device, ENTRIES, HUGE, PAGE, code, outcome, refused, refused_as, release, want};
use super::on_card;
use crate::case::{Case, Step, holds, same};
use doorbell_ioctl::abi::nvrm::{self as rm, Status};

/// Name, what is wrong with a channel's parameters, code.
type Wrong = (&'static str, fn(&mut rm::ChannelAlloc, &Device<'_>), Status);
const WRONG: &[Wrong] = &[
    ("share-and-space", |p, d| p.h_va_space = d.space, code::INVALID_ARGUMENT),
    ("entries-not-a-power-of-two", |p, _| p.gp_fifo_entries = 100, code::INVALID_ARGUMENT),
    ("no-entries", |p, _| p.gp_fifo_entries = 0, code::INVALID_ARGUMENT),
    ("userd-in-what-is-no-memory", |p, d| p.h_userd_memory[0] = d.space, code::OBJECT_NOT_FOUND),
    ("another-engine-than-the-groups", |p, _| p.engine_type = 9, code::INVALID_ARGUMENT),
    ("share-that-is-none", |p, d| p.h_context_share = d.space, code::INVALID_OBJECT_HANDLE),
    ("notifier-that-is-none", |p, d| p.h_object_error = d.space, code::INVALID_STATE),
    ("notifier-that-is-not-there", |p, _| p.h_object_error = 0xdead, code::INVALID_STATE),
];

/// What RM takes unseen: the host engine would find it, once the channel ran.
type Unseen = (&'static str, fn(&mut rm::ChannelAlloc));
const UNSEEN: &[Unseen] = &[
    ("one-entry", |p| p.gp_fifo_entries = 1),
    ("odd-ring", |p| p.gp_fifo_offset += 4),
    ("odd-userd", |p| p.userd_offset[0] = 8),
    ("userd-beyond-its-memory", |p| p.userd_offset[0] = 1 << 20),
    ("no-userd", |p| p.h_userd_memory[0] = 0),
];

pub(crate) fn cases() -> Vec<Case> {
    let refuse = |(name, spoil, status): &Wrong| {
        let (spoil, status) = (*spoil, *status);
        on_card(&format!("channel.refuse-{name}"), "ALLOC of a channel refuses it", move |device| {
            let group = device.group(1, 0)?;
            let (share, ring, notifier) = (device.share(group)?, device.vram(2 * PAGE)?, device.system(PAGE)?);
            let mut params = device.channel_params(&ring, &notifier, share);
            spoil(&mut params, device);
            let class = device.channel_class()?;
            refused("ALLOC", device.client.alloc_with(group, class, &mut params), status)
        })
    };
    let mut all: Vec<Case> = WRONG.iter().map(refuse).collect();
    all.extend(UNSEEN.iter().map(|(name, spoil)| {
        let spoil = *spoil;
        let what = "ALLOC of a channel takes it, and other channels work";
        on_card(&format!("channel.takes-{name}"), what, move |device| {
            let group = device.group(1, 0)?;
            let (share, ring, notifier) = (device.share(group)?, device.vram(2 * PAGE)?, device.system(PAGE)?);
            let mut params = device.channel_params(&ring, &notifier, share);
            spoil(&mut params);
            want("ALLOC", device.client.alloc_with(group, device.channel_class()?, &mut params))?;
            works(device, &mut device.compute()?, 5)
        })
    }));
    all.extend(made());
    all.extend(order());
    all.extend(rings());
    all
}

fn works(device: &Device<'_>, channel: &mut Channel, value: u64) -> Step {
    let page = device.system(PAGE)?;
    channel.submit(&release(page.va, value))?;
    device.word(&page.view, 0, value)
}

fn made() -> Vec<Case> {
    let mut all = vec![
        on_card("channel.compute-works", "A compute channel releases a semaphore", |device| {
            works(device, &mut device.compute()?, 5)
        }),
        on_card("channel.eight-at-once", "Eight channels work side by side", |device| {
            let mut channels = Vec::new();
            for _ in 0..8 {
                channels.push(device.compute()?);
            }
            for (n, channel) in (1..).zip(&mut channels) {
                works(device, channel, n)?;
            }
            Ok(())
        }),
        on_card("channel.tokens-differ", "Each channel has a token of its own", |device| {
            let (one, two) = (device.compute()?, device.compute()?);
            let token = |channel: &Channel| want("GPFIFO_GET_WORK_SUBMIT_TOKEN", token(device, channel.handle));
            holds("two tokens", token(&one)? != token(&two)?)
        }),
        on_card("channel.made-and-freed-20-times", "Channels come and go without a trace", |device| {
            for n in 1..=20 {
                let mut channel = device.copy(0)?;
                works(device, &mut channel, n)?;
                want("UVM_UNREGISTER_CHANNEL", device.unregister_channel(channel.handle))?;
                want("FREE", device.client.free(channel.group))?;
            }
            Ok(())
        }),
        on_card(
            "channel.closed-with-work-pending",
            "A channel that waits is freed, and its work is not done",
            |device| {
                let (mut channel, page) = (device.copy(0)?, device.system(PAGE)?);
                channel.push(&super::client::acquire(page.va + 64, 1))?;
                channel.push(&release(page.va, 1))?;
                channel.ring()?;
                device.client.bench.pause();
                want("UVM_UNREGISTER_CHANNEL", device.unregister_channel(channel.handle))?;
                want("FREE", device.client.free(channel.group))?;
                page.view.write_u64(64, 1)?;
                device.client.bench.pause();
                same("after its end", page.view.read_u64(0)?, 0)
            },
        ),
        on_card("channel.object-of-another-engine", "A copy engine's channel has no compute object", |device| {
            let channel = device.copy(0)?;
            let class = device.compute_class()?;
            refused_as("ALLOC", device.client.alloc(channel.handle, class), OTHER_RUNLIST)
        }),
        on_card("channel.copy-object-of-another-engine", "A channel's objects are of one runlist", |device| {
            let (channel, own) = (device.copy(0)?, device.copy_engine(0)?);
            let other = device.copy_object(channel.handle, device.copy_engine(1)?);
            refused_as("ALLOC", other, OTHER_RUNLIST)?;
            want("ALLOC", device.copy_object(channel.handle, own)).map(|_| ())
        }),
        on_card("channel.copy-object-without-params", "A copy object without parameters is COPY0's", |device| {
            let graphics = device.copy_engines()?.first().is_some_and(|(engine, graphics)| *engine == 9 && *graphics);
            device.client.bench.require(graphics, "chip", "COPY0 is not on the graphics engine's runlist")?;
            let group = device.group(device.copy_engine(0)?, device.space)?;
            let channel = unregistered_in(device, group, 0)?;
            want("ALLOC", device.client.alloc(channel, device.copy_class()?))?;
            let got = device.register_channel(channel, 0x70_0000_0000, 512 << 20);
            refused("UVM_REGISTER_CHANNEL", got, code::INVALID_OBJECT)
        }),
        on_card("channel.share-of-another-group", "A channel's context share is of its own group", |device| {
            let (group, other) = (device.group(1, 0)?, device.group(1, 0)?);
            let (share, ring, notifier) = (device.share(other)?, device.vram(2 * PAGE)?, device.system(PAGE)?);
            let mut params = device.channel_params(&ring, &notifier, share);
            let class = device.channel_class()?;
            refused("ALLOC", device.client.alloc_with(group, class, &mut params), code::INVALID_OBJECT_PARENT)
        }),
        on_card(
            "channel.outlives-the-handle-of-its-userd",
            "A channel does not end with the memory of its USERD",
            |device| {
                let channel = device.copy(0)?;
                let before = want("GPFIFO_GET_WORK_SUBMIT_TOKEN", token(device, channel.handle))?;
                want("FREE", device.client.free(channel.ring.handle))?;
                let after = want("GPFIFO_GET_WORK_SUBMIT_TOKEN", token(device, channel.handle))?;
                same("the token", after, before)?;
                works(device, &mut device.copy(0)?, 3)
            },
        ),
    ];
    // NV2080_ENGINE_TYPE of the copy engines.
    all.extend((0x09..=0x0c_u32).map(|engine| {
        let what = "A channel on this copy engine works; UVM refuses one on the graphics engine's runlist";
        on_card(&format!("channel.copy-engine-{}", engine - 9), what, move |device| {
            let known = device.copy_engines()?.into_iter().find(|(known, _)| *known == engine);
            device.client.bench.require(known.is_some(), "copy-engines", "the card does not have this one")?;
            if known.is_some_and(|(_, graphics)| !graphics) {
                return works(device, &mut device.copy_on(engine)?, 6);
            }
            let group = device.group(engine, device.space)?;
            let channel = unregistered_in(device, group, 0)?;
            want("ALLOC", device.copy_object(channel, engine))?;
            let got = device.register_channel(channel, 0x70_0000_0000, 512 << 20);
            refused("UVM_REGISTER_CHANNEL", got, code::INVALID_OBJECT)
        })
    }));
    all
}

fn order() -> Vec<Case> {
    vec![
        on_card(
            "group.schedule-before-registering",
            "A group is scheduled after its channel is registered",
            |device| {
                let (group, channel) = unregistered(device)?;
                refused("GROUP_GPFIFO_SCHEDULE", device.schedule(group), code::INVALID_STATE)?;
                let early = device.register_channel(channel, 0x70_0000_0000, 512 << 20);
                refused("UVM_REGISTER_CHANNEL without an object", early, code::INVALID_STATE)?;
                want("ALLOC", device.client.alloc(channel, device.compute_class()?))?;
                want("UVM_REGISTER_CHANNEL", device.register_channel(channel, 0x70_0000_0000, 512 << 20))?;
                want("GROUP_GPFIFO_SCHEDULE", device.schedule(group))
            },
        ),
        on_card("group.context-window", "The window of a context is whole pages, large enough, and free", |device| {
            let (_, channel) = unregistered(device)?;
            want("ALLOC", device.client.alloc(channel, device.compute_class()?))?;
            let register = |base, length| device.register_channel(channel, base, length);
            refused("too small", register(0x70_0000_0000, HUGE), code::INVALID_ADDRESS)?;
            refused("misaligned", register(0x70_0000_0001, 512 << 20), code::INVALID_ADDRESS)?;
            let taken = device.take_va(512 << 20);
            want("UVM_CREATE_EXTERNAL_RANGE", device.create_range(taken, 512 << 20))?;
            refused("taken", register(taken, 512 << 20), code::INVALID_ADDRESS)?;
            // UVM looks for room in the window.
            let free = 0x70_0000_0000;
            want("UVM_CREATE_EXTERNAL_RANGE", device.create_range(free, HUGE))?;
            want("UVM_REGISTER_CHANNEL", register(free, 512 << 20))
        }),
        on_card("group.time-slice", "A group's time slice is what was set", |device| {
            let group = device.group(1, 0)?;
            let set = |timeslice_us| {
                device.client.control(group, &rm::GROUP_SET_TIMESLICE, rm::GroupTimeslice { timeslice_us })
            };
            want("GROUP_SET_TIMESLICE", set(1234))?;
            let got = device.client.control(group, &rm::GROUP_GET_TIMESLICE, rm::GroupTimeslice::default());
            same("timeslice_us", want("GROUP_GET_TIMESLICE", got)?.timeslice_us, 1234)
        }),
        on_card("group.preempt-idle", "An idle group is preempted at once", |device| {
            let channel = device.compute()?;
            let params = rm::GroupPreempt { b_wait: 1, ..Default::default() };
            want("GROUP_PREEMPT", device.client.control(channel.group, &rm::GROUP_PREEMPT, params)).map(|_| ())
        }),
        on_card(
            "group.taken-off-its-runlist",
            "A group that was taken off its runlist works when it is put on again",
            |device| {
                let (mut channel, page) = (device.compute()?, device.system(PAGE)?);
                works(device, &mut channel, 1)?;
                let off = rm::GroupSchedule::default();
                want("GROUP_GPFIFO_SCHEDULE", device.client.control(channel.group, &rm::GROUP_GPFIFO_SCHEDULE, off))?;
                // An H100 does it all the same.
                channel.submit(&release(page.va, 3))?;
                want("GROUP_GPFIFO_SCHEDULE", device.schedule(channel.group))?;
                device.word(&page.view, 0, 3)
            },
        ),
        on_card("channel.bind", "A channel is bound to its own engine and to no other", |device| {
            let (channel, own, other) = (device.copy(0)?, device.copy_engine(0)?, device.copy_engine(1)?);
            let bind =
                |engine_type| device.client.control(channel.handle, &rm::CHANNEL_BIND, rm::ChannelBind { engine_type });
            want("CHANNEL_BIND", bind(own))?;
            refused("another", bind(other).map(|_| ()), code::INVALID_STATE)
        }),
        on_card("channel.token-in-the-notifier", "The token is written where it is asked for", |device| {
            let channel = device.copy(0)?;
            let ask = |index| {
                let params = rm::TokenNotifIndex { index };
                device.client.control(channel.handle, &rm::GPFIFO_SET_WORK_SUBMIT_TOKEN_NOTIF_INDEX, params).map(|_| ())
            };
            want("GPFIFO_SET_WORK_SUBMIT_TOKEN_NOTIF_INDEX", ask(1))?;
            let token = device.client.control(channel.handle, &rm::GPFIFO_GET_WORK_SUBMIT_TOKEN, Default::default());
            let token: rm::WorkSubmitToken = want("GPFIFO_GET_WORK_SUBMIT_TOKEN", token)?;
            same("the record", channel.notifier.view.read_u32(16 + 8)?, token.work_submit_token)?;
            refused("beyond the notifier", ask(1 << 20), code::OUT_OF_RANGE)
        }),
        on_card("channel.idle", "IDLE_CHANNELS of an idle channel succeeds", |device| {
            let mut channel = device.copy(0)?;
            works(device, &mut channel, 4)?;
            want("IDLE_CHANNELS", idle(device, SINGLE, device.device, channel.handle))
        }),
        on_card("channel.idle-list-of-one", "IDLE_CHANNELS of a list takes the client's own channels only", |device| {
            let mut channel = device.copy(0)?;
            works(device, &mut channel, 4)?;
            let ask = |client: u32| -> Result<(), Status> {
                let (clients, devices, channels) = ([client], [device.device], [channel.handle]);
                let at = |list: &[u32; 1]| list.as_ptr().expose_provenance() as u64;
                let mut args = rm::RmIdleChannels {
                    h_client: device.client.root,
                    num_channels: 1,
                    ph_clients: at(&clients),
                    ph_devices: at(&devices),
                    ph_channels: at(&channels),
                    flags: SINGLE & !(0xf << 4),
                    timeout: 1_000_000,
                    ..Default::default()
                };
                let called = device.client.call(device.client.control, &rm::IDLE_CHANNELS, &mut args);
                std::hint::black_box((clients, devices, channels));
                called.and_then(|()| outcome(args.status))
            };
            want("IDLE_CHANNELS", ask(device.client.root))?;
            refused("of another client", ask(device.client.root ^ 1), code::INSUFFICIENT_PERMISSIONS)
        }),
        on_card("channel.idle-list", "IDLE_CHANNELS of a list of no channels succeeds", |device| {
            want("IDLE_CHANNELS", idle(device, 0, device.device, 0xdead))
        }),
        on_card("channel.idle-unknown", "IDLE_CHANNELS on what is no device is refused", |device| {
            let codes = &[code::OBJECT_NOT_FOUND, code::INVALID_OBJECT_HANDLE, code::INVALID_DEVICE];
            refused_as("IDLE_CHANNELS", idle(device, SINGLE, 0xdead, 0xdead), codes)
        }),
    ]
}

/// NVOS30 flags: one channel; its push buffer and its entries have to be done.
const SINGLE: u32 = 1 << 4 | 3 << 8;

fn idle(device: &Device<'_>, flags: u32, h_device: u32, h_channel: u32) -> Result<(), Status> {
    let h_client = device.client.root;
    let mut args =
        rm::RmIdleChannels { h_client, h_device, h_channel, flags, timeout: 1_000_000, ..Default::default() };
    device.client.call(device.client.control, &rm::IDLE_CHANNELS, &mut args).and_then(|()| outcome(args.status))
}

/// A group and a channel in it without object and registration.
fn unregistered(device: &Device<'_>) -> Step<(u32, u32)> {
    let group = device.group(1, 0)?;
    Ok((group, unregistered_in(device, group, device.share(group)?)?))
}

fn unregistered_in(device: &Device<'_>, group: u32, share: u32) -> Step<u32> {
    let (ring, notifier) = (device.vram(2 * PAGE)?, device.system(PAGE)?);
    let mut params = device.channel_params(&ring, &notifier, share);
    let class = device.channel_class()?;
    want("ALLOC", device.client.alloc_with(group, class, &mut params))
}

fn token(device: &Device<'_>, channel: u32) -> Result<u32, Status> {
    let got = device.client.control(channel, &rm::GPFIFO_GET_WORK_SUBMIT_TOKEN, rm::WorkSubmitToken::default());
    got.map(|reported| reported.work_submit_token)
}

/// An object of another runlist than the channel's: RM finds the runlist taken or, where each runlist has channels of
/// its own (SR-IOV, MIG), no such class on the engine.
const OTHER_RUNLIST: &[Status] = &[code::INVALID_STATE, code::INVALID_CLASS];

fn rings() -> Vec<Case> {
    vec![
        on_card("channel.ring-wraps", "Entries go over the end of the ring, three laps of it", |device| {
            let (mut channel, page) = (device.compute()?, device.system(PAGE)?);
            for value in 1..=u64::from(3 * ENTRIES) {
                channel.submit(&release(page.va, value))?;
                device.word(&page.view, 0, value)?;
            }
            Ok(())
        }),
        on_card("channel.get-follows-put", "GPGet follows GPPut on cards that store it", |device| {
            let class = device.channel_class()?;
            device.client.bench.require(
                class <= rm::HOPPER_CHANNEL_GPFIFO_A,
                "chip",
                "this card does not store GPGet",
            )?;
            let mut channel = device.compute()?;
            works(device, &mut channel, 1)?;
            device.client.bench.until("GPGet", || Ok(channel.get()? == channel.put))
        }),
        on_card("channel.full-ring", "A ring that is filled but for one entry is done", |device| {
            let (mut channel, page) = (device.copy(0)?, device.system(PAGE)?);
            // The entry that bound the object is done before the ring is filled.
            works(device, &mut channel, 1)?;
            for value in 1..u64::from(ENTRIES) {
                channel.push(&release(page.va, value))?;
            }
            channel.ring()?;
            device.word(&page.view, 0, u64::from(ENTRIES) - 1)
        }),
        on_card("channel.needs-its-doorbell", "Work starts at the doorbell, not before", |device| {
            let (mut channel, page) = (device.copy(0)?, device.system(PAGE)?);
            works(device, &mut channel, 1)?;
            channel.push(&release(page.va, 2))?;
            device.client.bench.pause();
            same("before", page.view.read_u64(0)?, 0)?;
            channel.ring()?;
            device.word(&page.view, 0, 2)
        }),
    ]
}
