//! What goes wrong on the card: bad entries and methods, stray accesses, rights, siblings, resets.

use super::client::{Channel, Device, ENTRIES, HUGE, PAGE, code, copy, refused, release, want};
use super::methods::BAD_HEADER;
use super::on_card;
use crate::case::{Case, Step, holds, same};
use doorbell_ioctl::abi::nvrm as rm;
use doorbell_ioctl::abi::uvm;

/// What a channel's death leaves in the kernel's log, and what the software machine finds where the card says nothing.
const LOG: &[&str] = &["Xid", "are no part of an address", "ends within a method's data"];

/// Name, code, what is submitted.
type Bad = (&'static str, u32, fn(&mut Channel) -> Step);
const BAD: &[Bad] = &[
    ("entry-without-length", 32, |c| c.entry([0, 1])),
    // The lowest bits are no part of the address: it is read from 0.
    ("entry-misaligned", 31, |c| c.entry([1, 1 << 10])),
    ("header", 32, |c| c.push(&[BAD_HEADER])),
    // ILLEGAL, a method of chips with syncpoints, and one of no chip.
    ("host-method", 32, |c| c.push(&[0x2001_0001, 0, 0x2001_001c, 0, 0x2001_0015, 0])),
    // Which object a subchannel has is the graphics engine's to know.
    ("subchannel-without-object", 13, |c| c.push(&[0x2001_6040, 0])),
    ("object-that-is-none", 13, |c| c.push(&[0x2001_2000, 0xbeef])),
    ("compute-method", 11, |c| c.push(&[0x2001_23ff, 5])),
];

/// Where nothing is mapped.
const NOWHERE: u64 = 0x77_0000_1000;

pub(crate) fn cases() -> Vec<Case> {
    let mut all: Vec<Case> = BAD.iter().map(|(name, code, submit)| bad(name, *code, *submit)).collect();
    all.extend(accesses());
    all.extend(groups());
    for case in &mut all {
        case.log = LOG;
    }
    all
}

fn works(device: &Device<'_>, channel: &mut Channel) -> Step {
    let page = device.system(PAGE)?;
    channel.submit(&release(page.va, 7))?;
    device.word(&page.view, 0, 7)
}

/// The channel ends with its code, another one works, and so does a new one.
fn bad(name: &str, code: u32, submit: fn(&mut Channel) -> Step) -> Case {
    let what = "It ends its channel with its code in the notifier, and no other channel; a new one works";
    on_card(&format!("fault.{name}"), what, move |device| {
        let (mut broken, mut sibling) = (device.compute()?, device.copy(0)?);
        works(device, &mut broken)?;
        submit(&mut broken)?;
        broken.ring()?;
        same("code", device.error(&broken)?, code)?;
        holds("a time", broken.notifier.view.read_u64(0)? > 0)?;
        works(device, &mut sibling)?;
        device.is_well(&sibling)?;
        works(device, &mut device.compute()?)
    })
}

fn accesses() -> Vec<Case> {
    vec![
        on_card("fault.put-outside-of-the-ring", "A GPPut that is outside of the ring ends the channel", |device| {
            let mut channel = device.compute()?;
            works(device, &mut channel)?;
            channel.put = ENTRIES + 3;
            channel.ring()?;
            same("code", device.error(&channel)?, 32)
        }),
        on_card("fault.header-beyond-its-buffer", "A method's data go on in the next entry's push buffer", |device| {
            let (mut channel, page) = (device.compute()?, device.system(PAGE)?);
            let words = release(page.va, 6);
            channel.submit(&words[..2])?;
            device.client.bench.pause();
            same("before", page.view.read_u64(0)?, 0)?;
            channel.submit(&words[2..])?;
            device.word(&page.view, 0, 6)?;
            device.is_well(&channel)
        }),
        on_card("fault.write-nowhere", "A store to nowhere ends the channel with address and kind", |device| {
            let (mut channel, page) = (device.copy(0)?, device.system(PAGE)?);
            channel.submit(&copy(page.va, NOWHERE, 4))?;
            same("code", device.error(&channel)?, 31)?;
            let reported = device.client.control(channel.handle, &rm::CHANNEL_GET_MMU_FAULT_INFO, Default::default());
            let reported: rm::ChannelMmuFault = want("CHANNEL_GET_MMU_FAULT_INFO", reported)?;
            same("address", u64::from(reported.addr_hi) << 32 | u64::from(reported.addr_lo), NOWHERE)?;
            same("FAULT_PDE", reported.fault_type, 0)?;
            same("its name", &reported.fault_string[..10], b"FAULT_PDE\0".as_slice())
        }),
        on_card("fault.read-nowhere", "A load from nowhere ends the channel, and stores nothing", |device| {
            let (mut channel, page) = (device.copy(0)?, device.system(PAGE)?);
            page.view.write_u32(64, 9)?;
            channel.submit(&copy(NOWHERE, page.va + 64, 4))?;
            same("code", device.error(&channel)?, 31)?;
            same("the destination", page.view.read_u32(64)?, 9)
        }),
        on_card(
            "fault.read-only",
            "A store to a read-only mapping is a fault of its kind, and does not arrive",
            |device| {
                let (mut channel, page, target) = (device.copy(0)?, device.system(PAGE)?, device.vram(HUGE)?);
                let base = device.take_va(HUGE);
                want("UVM_CREATE_EXTERNAL_RANGE", device.create_range(base, HUGE))?;
                let kind = uvm::MAPPING_READ_ONLY;
                want("UVM_MAP_EXTERNAL_ALLOCATION", device.map_part(target.handle, 0, base, HUGE, kind))?;
                page.view.write_u32(64, 5)?;
                channel.submit(&copy(page.va + 64, base, 4))?;
                same("code", device.error(&channel)?, 31)?;
                let reported =
                    device.client.control(channel.handle, &rm::CHANNEL_GET_MMU_FAULT_INFO, Default::default());
                let reported: rm::ChannelMmuFault = want("CHANNEL_GET_MMU_FAULT_INFO", reported)?;
                same("FAULT_RO_VIOLATION", reported.fault_type, 6)?;
                same("what is there", target.view.read_u32(0)?, 0)
            },
        ),
        on_card("fault.unmapped-again", "Memory that was unmapped is a fault", |device| {
            let (mut channel, page, target) = (device.copy(0)?, device.system(PAGE)?, device.vram(HUGE)?);
            page.view.write_u32(64, 5)?;
            channel.push(&copy(page.va + 64, target.va, 4))?;
            channel.push(&release(page.va, 1))?;
            channel.ring()?;
            device.word(&page.view, 0, 1)?;
            want("UVM_UNMAP_EXTERNAL", device.unmap_range(target.va, HUGE))?;
            page.view.write_u32(64, 6)?;
            channel.submit(&copy(page.va + 64, target.va, 4))?;
            same("code", device.error(&channel)?, 31)?;
            same("what is there", target.view.read_u32(0)?, 5)
        }),
        on_card("fault.space-unregistered", "When its space is unregistered a channel reaches nothing", |device| {
            let (mut channel, page) = (device.copy(0)?, device.system(PAGE)?);
            works(device, &mut channel)?;
            want("UVM_UNREGISTER_CHANNEL", device.unregister_channel(channel.handle))?;
            want("UVM_UNREGISTER_GPU_VASPACE", device.unregister_space())?;
            channel.push(&release(page.va, 1))?;
            channel.ring()?;
            device.client.bench.pause();
            same("its store", page.view.read_u64(0)?, 0)
        }),
        on_card("fault.counted", "The card counts its channels' errors", |device| {
            let count = || {
                let got = device.client.control(device.subdevice, &rm::RC_GET_ERROR_COUNT, Default::default());
                want("RC_GET_ERROR_COUNT", got).map(|reported: rm::RcErrorCount| reported.error_count)
            };
            let before = count()?;
            let mut channel = device.copy(0)?;
            channel.submit(&[BAD_HEADER])?;
            device.error(&channel)?;
            // The host engine's errors count twice.
            device.client.bench.until("one more error", || Ok(count()? > before))
        }),
    ]
}

fn groups() -> Vec<Case> {
    vec![
        on_card(
            "fault.dead-channel-does-nothing",
            "A dead channel does nothing more; its group may still be scheduled",
            |device| {
                let (mut channel, page) = (device.copy(0)?, device.system(PAGE)?);
                channel.submit(&[BAD_HEADER])?;
                same("code", device.error(&channel)?, 32)?;
                channel.submit(&release(page.va, 1))?;
                device.client.bench.pause();
                same("its store", page.view.read_u64(0)?, 0)?;
                want("GROUP_GPFIFO_SCHEDULE", device.schedule(channel.group))
            },
        ),
        on_card("fault.siblings-die-together", "Channels of a group die together, and each is told", |device| {
            let (mut first, mut second) = siblings(device)?;
            first.submit(&[BAD_HEADER])?;
            same("code", device.error(&first)?, 32)?;
            let page = device.system(PAGE)?;
            second.submit(&release(page.va, 1))?;
            device.client.bench.pause();
            same("the sibling's store", page.view.read_u64(0)?, 0)?;
            same("the sibling's code", device.error(&second)?, 32)
        }),
        on_card(
            "fault.error-is-written-when-asked",
            "SET_ERROR_NOTIFIER writes an error into the record of a channel, or of each of its group",
            |device| {
                let (first, second) = siblings(device)?;
                for (b_notify_each_channel_in_tsg, channel) in [(0, &first), (1, &second)] {
                    device.is_well(&second)?;
                    let params = rm::SetErrorNotifier { b_notify_each_channel_in_tsg };
                    let set = device.client.control(first.handle, &rm::CHANNEL_SET_ERROR_NOTIFIER, params);
                    want("CHANNEL_SET_ERROR_NOTIFIER", set)?;
                    same("the record", device.error(channel)?, 13)?;
                }
                Ok(())
            },
        ),
        on_card("fault.reset-channel", "A reset channel says so, and a new one works", |device| {
            let channel = device.copy(0)?;
            let reset = |engine_id| {
                let params = rm::ResetChannel { engine_id, ..Default::default() };
                device.client.control(channel.handle, &rm::CHANNEL_RESET_CHANNEL, params).map(|_| ())
            };
            refused("without an engine", reset(0), code::OBJECT_NOT_FOUND)?;
            device.is_well(&channel)?;
            want("CHANNEL_RESET_CHANNEL", reset(device.copy_engine(0)?))?;
            same("code", device.error(&channel)?, 43)?;
            works(device, &mut device.copy(0)?)
        }),
        on_card("fault.ten-in-a-row", "Ten channels die one after another, and the eleventh works", |device| {
            for _ in 0..10 {
                let mut channel = device.copy(0)?;
                channel.submit(&[BAD_HEADER])?;
                same("code", device.error(&channel)?, 32)?;
                want("UVM_UNREGISTER_CHANNEL", device.unregister_channel(channel.handle))?;
                want("FREE", device.client.free(channel.group))?;
            }
            works(device, &mut device.copy(0)?)
        }),
    ]
}

/// A compute and a copy channel of one group.
fn siblings(device: &Device<'_>) -> Step<(Channel, Channel)> {
    let group = device.group(1, 0)?;
    let share = device.share(group)?;
    let first = device.channel_in(group, share, device.compute_class()?)?;
    let second = device.channel_in(group, share, device.copy_class()?)?;
    want("GROUP_GPFIFO_SCHEDULE", device.schedule(group))?;
    Ok((first, second))
}
