//! Events and the page of their slots: made, set, reset, awaited, aged, destroyed, signalled by queues.

use super::client::{EVENT_PAGE_BYTES, HOST, Kfd, PAGE, Ring, asked};
use super::on_card;
use super::packets::{fence, release_event, sdma_trap};
use crate::case::{Case, Step, holds, same};
use doorbell_ioctl::abi::kfd as k;
use doorbell_ioctl::port::Errno;

const COMPLETE: u32 = k::WAIT_RESULT_COMPLETE;
const TIMEOUT: u32 = k::WAIT_RESULT_TIMEOUT;

fn set(kfd: &Kfd<'_>, event_id: u32) -> Step {
    Ok(kfd.call(&k::SET_EVENT, &mut k::SetEvent { event_id, pad: 0 })?)
}

fn reset(kfd: &Kfd<'_>, event_id: u32) -> Step {
    Ok(kfd.call(&k::RESET_EVENT, &mut k::ResetEvent { event_id, pad: 0 })?)
}

fn now(kfd: &Kfd<'_>, events: &[u32], all: bool) -> Step<u32> {
    let mut data: Vec<k::EventData> = events.iter().map(|id| asked(*id)).collect();
    Ok(kfd.wait(&mut data, all, 0)?)
}

pub(crate) fn cases() -> Vec<Case> {
    let mut all = made();
    all.extend(waits());
    all.extend(refusals());
    all.extend(signals());
    all
}

fn made() -> Vec<Case> {
    vec![
        on_card(
            "event.page-is-cleared",
            "The page of slots is filled with ones when it is given to the kernel",
            |kfd| {
                let page = kfd.event_page()?;
                for slot in [0, 1, 255, 4095] {
                    same("a slot", page.view.read_u64(slot * 8)?, u64::MAX)?;
                }
                Ok(())
            },
        ),
        on_card("event.page-too-small", "A page with too few slots is EINVAL", |kfd| {
            let short = kfd.buffer(PAGE, HOST)?;
            let args = k::CreateEvent { event_page_offset: short.handle, ..Default::default() };
            kfd.refused(&k::CREATE_EVENT, args, Errno::EINVAL)
        }),
        on_card("event.page-twice", "A second page is EINVAL", |kfd| {
            kfd.event_page()?;
            let second = kfd.buffer(EVENT_PAGE_BYTES, HOST)?;
            let args = k::CreateEvent { event_page_offset: second.handle, ..Default::default() };
            kfd.refused(&k::CREATE_EVENT, args, Errno::EINVAL)
        }),
        on_card("event.page-unknown-handle", "A page that is no buffer is EINVAL", |kfd| {
            let handle = u64::from(kfd.gpu_id) << 32 | 0x7777;
            kfd.refused(
                &k::CREATE_EVENT,
                k::CreateEvent { event_page_offset: handle, ..Default::default() },
                Errno::EINVAL,
            )
        }),
        on_card("event.page-cannot-be-freed", "The page stays the kernel's: freeing it is EPERM", |kfd| {
            let page = kfd.event_page()?;
            same("UNMAP", kfd.unmap(&page), Ok(1))?;
            kfd.refused(&k::FREE_MEMORY_OF_GPU, k::FreeMemoryOfGpu { handle: page.handle }, Errno::EPERM)
        }),
        on_card(
            "event.ids-are-slots",
            "Signal events have ids of their own, which are their slots and trigger data",
            |kfd| {
                kfd.event_page()?;
                let mut ids = Vec::new();
                for _ in 0..32 {
                    let mut args = k::CreateEvent { auto_reset: 1, ..Default::default() };
                    kfd.call(&k::CREATE_EVENT, &mut args)?;
                    same("slot", args.event_slot_index, args.event_id)?;
                    same("trigger data", args.event_trigger_data, args.event_id)?;
                    holds("an id that is new", !ids.contains(&args.event_id))?;
                    ids.push(args.event_id);
                }
                ids.into_iter().try_for_each(|event_id| {
                    Ok(kfd.call(&k::DESTROY_EVENT, &mut k::DestroyEvent { event_id, pad: 0 })?)
                })
            },
        ),
        on_card("event.all-slots", "Signal events end with ENOSPC, and a destroyed one makes room", |kfd| {
            kfd.event_page()?;
            let mut ids = Vec::new();
            let end = loop {
                let mut args = k::CreateEvent::default();
                match kfd.raw(k::CREATE_EVENT.desc.request, bytemuck::bytes_of_mut(&mut args)) {
                    Ok(_) if ids.len() < 5000 => ids.push(args.event_id),
                    end => break end,
                }
            };
            let mut destroy =
                ids.iter().map(|id| kfd.call(&k::DESTROY_EVENT, &mut k::DestroyEvent { event_id: *id, pad: 0 }));
            destroy.try_for_each(|done| done)?;
            same("the end", end, Err(Errno::ENOSPC))?;
            let _again = kfd.event(k::EVENT_SIGNAL, true)?;
            holds("some thousand", ids.len() > 4000)
        }),
    ]
}

fn waits() -> Vec<Case> {
    vec![
        on_card("event.auto-reset", "An event with auto reset is taken by one wait", |kfd| {
            let event = kfd.event(k::EVENT_SIGNAL, true)?;
            same("before", now(kfd, &[event], false)?, TIMEOUT)?;
            set(kfd, event)?;
            same("the first wait", now(kfd, &[event], false)?, COMPLETE)?;
            same("the second", now(kfd, &[event], false)?, TIMEOUT)
        }),
        on_card("event.manual-reset", "An event without auto reset stays until it is reset", |kfd| {
            let event = kfd.event(k::EVENT_SIGNAL, false)?;
            set(kfd, event)?;
            same("the first wait", now(kfd, &[event], false)?, COMPLETE)?;
            same("the second", now(kfd, &[event], false)?, COMPLETE)?;
            reset(kfd, event)?;
            same("after RESET_EVENT", now(kfd, &[event], false)?, TIMEOUT)
        }),
        on_card("event.any", "A wait for any of two ends with either", |kfd| {
            let (a, b) = (kfd.event(k::EVENT_SIGNAL, false)?, kfd.event(k::EVENT_SIGNAL, false)?);
            set(kfd, b)?;
            same("any", now(kfd, &[a, b], false)?, COMPLETE)?;
            reset(kfd, b)?;
            same("none", now(kfd, &[a, b], false)?, TIMEOUT)
        }),
        on_card("event.all", "A wait for all of two ends with both", |kfd| {
            let (a, b) = (kfd.event(k::EVENT_SIGNAL, false)?, kfd.event(k::EVENT_SIGNAL, false)?);
            set(kfd, a)?;
            same("one", now(kfd, &[a, b], true)?, TIMEOUT)?;
            set(kfd, b)?;
            same("both", now(kfd, &[a, b], true)?, COMPLETE)
        }),
        on_card("event.no-events", "A wait for nothing is complete at once", |kfd| {
            same("wait_result", kfd.wait(&mut [], false, 0)?, COMPLETE)
        }),
        on_card("event.timeout", "A wait with a time-out ends, and not before its time", |kfd| {
            let event = kfd.event(k::EVENT_SIGNAL, true)?;
            let began = std::time::Instant::now();
            same("wait_result", kfd.wait(&mut [asked(event)], false, 20)?, TIMEOUT)?;
            holds("20 ms have passed", began.elapsed().as_millis() >= 19)
        }),
        on_card("event.age", "The age shows a signal between two waits, taken or not", |kfd| {
            let mut version = k::GetVersion::default();
            kfd.call(&k::GET_VERSION, &mut version)?;
            kfd.bench.require(version.minor_version >= k::MINOR_EVENT_AGE, "interface", "before 1.14")?;
            let event = kfd.event(k::EVENT_SIGNAL, true)?;
            let mut data = [k::EventData { payload: [1, 0, 0, 0], ..asked(event) }];
            same("nothing yet", kfd.wait(&mut data, false, 0)?, TIMEOUT)?;
            set(kfd, event)?;
            same("somebody takes it", now(kfd, &[event], false)?, COMPLETE)?;
            same("by its age", kfd.wait(&mut data, false, 0)?, COMPLETE)?;
            same("the new age", data[0].payload[0], 2)?;
            same("and no more", kfd.wait(&mut data, false, 0)?, TIMEOUT)
        }),
        on_card(
            "event.destroyed-while-awaited",
            "A wait for an event that is destroyed meanwhile fails with EIO",
            |kfd| {
                let event = kfd.event(k::EVENT_SIGNAL, true)?;
                let patience = u32::try_from(kfd.bench.patience.as_millis()).unwrap_or(10_000);
                std::thread::scope(|scope| {
                    let wait = scope.spawn(|| kfd.wait(&mut [asked(event)], false, patience));
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    kfd.destroy_event(event)?;
                    let answer = wait.join().map_err(|_| crate::Problem::failed("the waiting thread panicked"))?;
                    same("WAIT_EVENTS", answer, Err(Errno::EIO))
                })
            },
        ),
    ]
}

fn refusals() -> Vec<Case> {
    vec![
        on_card("event.set-unknown", "SET_EVENT and RESET_EVENT of no event are EINVAL", |kfd| {
            kfd.refused(&k::SET_EVENT, k::SetEvent { event_id: 4000, pad: 0 }, Errno::EINVAL)?;
            kfd.refused(&k::RESET_EVENT, k::ResetEvent { event_id: 4000, pad: 0 }, Errno::EINVAL)
        }),
        on_card("event.set-a-memory-event", "The host may not signal a memory event", |kfd| {
            let event = kfd.event(k::EVENT_MEMORY, false)?;
            kfd.refused(&k::SET_EVENT, k::SetEvent { event_id: event, pad: 0 }, Errno::EINVAL)?;
            same("it stays", now(kfd, &[event], false)?, TIMEOUT)
        }),
        on_card("event.destroy-twice", "DESTROY_EVENT of a destroyed event is EINVAL", |kfd| {
            let event = kfd.event(k::EVENT_SIGNAL, true)?;
            kfd.destroy_event(event)?;
            kfd.refused(&k::DESTROY_EVENT, k::DestroyEvent { event_id: event, pad: 0 }, Errno::EINVAL)
        }),
        on_card("event.wait-destroyed", "WAIT_EVENTS of a destroyed event is EINVAL", |kfd| {
            let event = kfd.event(k::EVENT_SIGNAL, true)?;
            kfd.destroy_event(event)?;
            same("WAIT_EVENTS", kfd.wait(&mut [asked(event)], false, 0), Err(Errno::EINVAL))
        }),
        on_card("event.wait-too-many", "WAIT_EVENTS of more than memory can hold is refused", |kfd| {
            let args = k::WaitEvents { num_events: u32::MAX, events_ptr: 0x1000, ..Default::default() };
            let mut bytes = bytemuck::bytes_of(&args).to_vec();
            let answer = kfd.raw(k::WAIT_EVENTS.desc.request, &mut bytes);
            holds("ENOMEM or EFAULT", matches!(answer, Err(Errno::ENOMEM | Errno::EFAULT)))
        }),
    ]
}

fn signals() -> Vec<Case> {
    vec![
        on_card(
            "event.signalled-by-pm4",
            "A queue's packet wakes a waiting thread, and the kernel takes the slot",
            |kfd| {
                let event = kfd.event(k::EVENT_SIGNAL, true)?;
                let page = kfd.event_page()?;
                let mut queue = kfd.queue(Ring::Pm4)?;
                let slot = page.va + 8 * u64::from(event);
                queue.submit(&release_event(slot, event))?;
                kfd.wait_for(event)?;
                same("its slot", page.view.read_u64(8 * u64::from(event))?, u64::MAX)
            },
        ),
        on_card("event.signalled-by-sdma", "A copy engine's fence and trap wake a waiting thread", |kfd| {
            let event = kfd.event(k::EVENT_SIGNAL, true)?;
            let page = kfd.event_page()?;
            let mut queue = kfd.queue(Ring::Sdma)?;
            let slot = page.va + 8 * u64::from(event);
            queue.submit(&[&fence(kfd.gfx()?, slot, event)[..], &sdma_trap(event)].concat())?;
            kfd.wait_for(event)?;
            same("its slot", page.view.read_u64(8 * u64::from(event))?, u64::MAX)
        }),
        on_card("event.signalled-by-aql", "A completion signal with a mailbox wakes a waiting thread", |kfd| {
            let event = kfd.event(k::EVENT_SIGNAL, true)?;
            let page = kfd.event_page()?;
            let (mut queue, memory) = (kfd.queue(Ring::Aql)?, kfd.buffer(PAGE, HOST)?);
            memory.view.write_u64(0x200, 1)?;
            memory.view.write_u64(0x208, 1)?;
            memory.view.write_u64(0x210, page.va + 8 * u64::from(event))?;
            memory.view.write_u32(0x218, event)?;
            queue.submit_aql(super::packets::barrier_and([0, 0], memory.va + 0x200))?;
            kfd.wait_for(event)?;
            same("the signal", memory.view.read_u64(0x208)?, 0)
        }),
        on_card("event.hundred-signals", "A hundred signals in a row are a hundred wake-ups", |kfd| {
            let event = kfd.event(k::EVENT_SIGNAL, true)?;
            let page = kfd.event_page()?;
            let mut queue = kfd.queue(Ring::Pm4)?;
            for _ in 0..100 {
                queue.submit(&release_event(page.va + 8 * u64::from(event), event))?;
                kfd.wait_for(event)?;
            }
            Ok(())
        }),
        on_card("event.only-its-own", "A signal wakes those who wait for this event, and no others", |kfd| {
            let (a, b) = (kfd.event(k::EVENT_SIGNAL, true)?, kfd.event(k::EVENT_SIGNAL, true)?);
            let page = kfd.event_page()?;
            let mut queue = kfd.queue(Ring::Pm4)?;
            queue.submit(&release_event(page.va + 8 * u64::from(a), a))?;
            kfd.wait_for(a)?;
            same("the other one", now(kfd, &[b], false)?, TIMEOUT)
        }),
    ]
}
