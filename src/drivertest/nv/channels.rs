//! Channels and groups: made, refused, scheduled, bound, preempted, idle.

use super::client::{Channel, Device, ENTRIES, HUGE, PAGE, code, outcome, refused, release, want};
use super::on_card;
use crate::case::{Case, Step, holds, same};
use doorbell_ioctl::abi::nvrm::{self as rm, Status};

/// Name, what is wrong with a channel's parameters, code.
type Wrong = (&'static str, fn(&mut rm::ChannelAlloc, &Device<'_>), Status);
const WRONG: &[Wrong] = &[
    ("share-and-space", |p, d| p.h_va_space = d.space, code::INVALID_ARGUMENT),
    ("entries-not-a-power-of-two", |p, _| p.gp_fifo_entries = 100, code::INVALID_ARGUMENT),
    ("one-entry", |p, _| p.gp_fifo_entries = 1, code::INVALID_ARGUMENT),
    ("no-entries", |p, _| p.gp_fifo_entries = 0, code::INVALID_ARGUMENT),
    ("odd-ring", |p, _| p.gp_fifo_offset += 4, code::INVALID_ARGUMENT),
    ("odd-userd", |p, _| p.userd_offset[0] = 8, code::INVALID_ARGUMENT),
    ("userd-beyond-its-memory", |p, _| p.userd_offset[0] = 1 << 20, code::INVALID_ARGUMENT),
    ("no-userd", |p, _| p.h_userd_memory[0] = 0, code::INVALID_ARGUMENT),
    ("userd-in-what-is-no-memory", |p, d| p.h_userd_memory[0] = d.space, code::INVALID_OBJECT_HANDLE),
    ("another-engine-than-the-groups", |p, _| p.engine_type = 9, code::INVALID_ARGUMENT),
    ("share-that-is-none", |p, d| p.h_context_share = d.space, code::INVALID_CLASS),
    ("notifier-that-is-none", |p, d| p.h_object_error = d.space, code::INVALID_OBJECT_HANDLE),
    ("notifier-that-is-not-there", |p, _| p.h_object_error = 0xdead, code::OBJECT_NOT_FOUND),
];

pub fn cases() -> Vec<Case> {
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
            let token = |channel: &Channel| {
                let got = device.client.control(channel.handle, &rm::GPFIFO_GET_WORK_SUBMIT_TOKEN, Default::default());
                want("GPFIFO_GET_WORK_SUBMIT_TOKEN", got).map(|t: rm::WorkSubmitToken| t.work_submit_token)
            };
            holds("two tokens", token(&one)? != token(&two)?)
        }),
        on_card("channel.made-and-freed-20-times", "Channels come and go without a trace", |device| {
            for n in 1..=20 {
                let mut channel = device.copy(0x0b)?;
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
                let (mut channel, page) = (device.copy(0x0b)?, device.system(PAGE)?);
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
            let channel = device.copy(0x0b)?;
            let class = device.compute_class()?;
            refused("ALLOC", device.client.alloc(channel.handle, class), code::INVALID_CLASS)
        }),
        on_card("channel.copy-object-of-another-engine", "A copy object is of its channel's engine", |device| {
            let (channel, class) = (device.copy(0x0b)?, device.copy_class()?);
            let mut wrong = rm::CopyAlloc { version: 1, engine_type: 0x0c };
            refused("ALLOC", device.client.alloc_with(channel.handle, class, &mut wrong), code::INVALID_ARGUMENT)?;
            let mut right = rm::CopyAlloc { version: 1, engine_type: 0x0b };
            want("ALLOC", device.client.alloc_with(channel.handle, class, &mut right)).map(|_| ())
        }),
        on_card("channel.share-of-another-group", "A channel's context share is of its own group", |device| {
            let (group, other) = (device.group(1, 0)?, device.group(1, 0)?);
            let (share, ring, notifier) = (device.share(other)?, device.vram(2 * PAGE)?, device.system(PAGE)?);
            let mut params = device.channel_params(&ring, &notifier, share);
            let class = device.channel_class()?;
            refused("ALLOC", device.client.alloc_with(group, class, &mut params), code::INVALID_OBJECT_PARENT)
        }),
        on_card("channel.ends-with-its-userd", "A channel ends with the memory of its USERD", |device| {
            let channel = device.copy(0x0b)?;
            want("FREE", device.client.free(channel.ring.handle))?;
            refused("FREE of the channel", device.client.free(channel.handle), code::OBJECT_NOT_FOUND)
        }),
    ];
    // NV2080_ENGINE_TYPE of the copy engines.
    all.extend((0x09..=0x0c_u32).map(|engine| {
        on_card(&format!("channel.copy-engine-{}", engine - 9), "A channel on this copy engine works", move |device| {
            works(device, &mut device.copy(engine)?, 6)
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
                refused("UVM_REGISTER_CHANNEL without an object", early, code::INVALID_OBJECT)?;
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
            want("UVM_CREATE_EXTERNAL_RANGE", device.create_range(taken, HUGE))?;
            refused("taken", register(taken, 512 << 20), code::UVM_ADDRESS_IN_USE)?;
            want("UVM_REGISTER_CHANNEL", register(0x70_0000_0000, 512 << 20))
        }),
        on_card("group.time-slice", "A group's time slice is what was set, and not 0", |device| {
            let group = device.group(1, 0)?;
            let set = |timeslice_us| {
                device.client.control(group, &rm::GROUP_SET_TIMESLICE, rm::GroupTimeslice { timeslice_us })
            };
            refused("0", set(0).map(|_| ()), code::INVALID_ARGUMENT)?;
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
            "A group off its runlist does nothing until it is put on again",
            |device| {
                let (mut channel, page) = (device.compute()?, device.system(PAGE)?);
                works(device, &mut channel, 1)?;
                let off = rm::GroupSchedule::default();
                want("GROUP_GPFIFO_SCHEDULE", device.client.control(channel.group, &rm::GROUP_GPFIFO_SCHEDULE, off))?;
                channel.submit(&release(page.va, 3))?;
                device.client.bench.pause();
                same("while it is off", page.view.read_u64(0)?, 0)?;
                want("GROUP_GPFIFO_SCHEDULE", device.schedule(channel.group))?;
                device.word(&page.view, 0, 3)
            },
        ),
        on_card("channel.bind", "A channel is bound to its own engine and to no other", |device| {
            let channel = device.copy(0x0b)?;
            let bind =
                |engine_type| device.client.control(channel.handle, &rm::CHANNEL_BIND, rm::ChannelBind { engine_type });
            want("CHANNEL_BIND", bind(0x0b))?;
            refused("another", bind(0x0c).map(|_| ()), code::INVALID_ARGUMENT)
        }),
        on_card("channel.token-in-the-notifier", "The token is written where it is asked for", |device| {
            let channel = device.copy(0x0b)?;
            let ask = |index| {
                let params = rm::TokenNotifIndex { index };
                device.client.control(channel.handle, &rm::GPFIFO_SET_WORK_SUBMIT_TOKEN_NOTIF_INDEX, params).map(|_| ())
            };
            want("GPFIFO_SET_WORK_SUBMIT_TOKEN_NOTIF_INDEX", ask(1))?;
            let token = device.client.control(channel.handle, &rm::GPFIFO_GET_WORK_SUBMIT_TOKEN, Default::default());
            let token: rm::WorkSubmitToken = want("GPFIFO_GET_WORK_SUBMIT_TOKEN", token)?;
            same("the record", channel.notifier.view.read_u32(16 + 8)?, token.work_submit_token)?;
            refused("beyond the notifier", ask(1 << 20), code::INVALID_ARGUMENT)
        }),
        on_card("channel.idle", "IDLE_CHANNELS tells a channel that works from one that is done", |device| {
            let (mut channel, page) = (device.copy(0x0b)?, device.system(PAGE)?);
            let idle = |timeout| {
                let (h_client, h_channel) = (device.client.root, channel_handle(&channel));
                let mut args = rm::RmIdleChannels { h_client, h_channel, timeout, ..Default::default() };
                device
                    .client
                    .call(device.client.control, &rm::IDLE_CHANNELS, &mut args)
                    .and_then(|()| outcome(args.status))
            };
            want("an idle one", idle(1_000_000))?;
            channel.push(&super::client::acquire(page.va, 1))?;
            channel.ring()?;
            let handle = channel.handle;
            let busy = |timeout| {
                let (h_client, h_channel) = (device.client.root, handle);
                let mut args = rm::RmIdleChannels { h_client, h_channel, timeout, ..Default::default() };
                device
                    .client
                    .call(device.client.control, &rm::IDLE_CHANNELS, &mut args)
                    .and_then(|()| outcome(args.status))
            };
            refused("one that waits", busy(1000), code::TIMEOUT)?;
            page.view.write_u64(0, 1)?;
            want("when it is done", busy(1_000_000))
        }),
        on_card("channel.idle-unknown", "IDLE_CHANNELS of what is no channel is refused", |device| {
            let (h_client, h_channel) = (device.client.root, 0xdead);
            let mut args = rm::RmIdleChannels { h_client, h_channel, timeout: 10, ..Default::default() };
            let got = device.client.call(device.client.control, &rm::IDLE_CHANNELS, &mut args);
            refused("IDLE_CHANNELS", got.and_then(|()| outcome(args.status)), code::OBJECT_NOT_FOUND)
        }),
    ]
}

fn channel_handle(channel: &Channel) -> u32 {
    channel.handle
}

/// A group and a channel in it without object and registration.
fn unregistered(device: &Device<'_>) -> Step<(u32, u32)> {
    let group = device.group(1, 0)?;
    let (share, ring, notifier) = (device.share(group)?, device.vram(2 * PAGE)?, device.system(PAGE)?);
    let mut params = device.channel_params(&ring, &notifier, share);
    let class = device.channel_class()?;
    Ok((group, want("ALLOC", device.client.alloc_with(group, class, &mut params))?))
}

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
            let (mut channel, page) = (device.copy(0x0b)?, device.system(PAGE)?);
            // The entry that bound the object is done before the ring is filled.
            works(device, &mut channel, 1)?;
            for value in 1..u64::from(ENTRIES) {
                channel.push(&release(page.va, value))?;
            }
            channel.ring()?;
            device.word(&page.view, 0, u64::from(ENTRIES) - 1)
        }),
        on_card("channel.needs-its-doorbell", "Work starts at the doorbell, not before", |device| {
            let (mut channel, page) = (device.copy(0x0b)?, device.system(PAGE)?);
            works(device, &mut channel, 1)?;
            channel.push(&release(page.va, 2))?;
            device.client.bench.pause();
            same("before", page.view.read_u64(0)?, 0)?;
            channel.ring()?;
            device.word(&page.view, 0, 2)
        }),
    ]
}
