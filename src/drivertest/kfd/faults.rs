//! What goes wrong on the card: page faults, bad packets, illegal instructions, kernels that never end. The process
//! gets an event, siblings live where they should, and new work runs.

use super::client::{HOST, Kfd, PAGE, Queue, Ring, asked};
use super::kernels::upload;
use super::on_card;
use super::packets::{dispatch, endless_kernel, fence, release_mem, store_kernel, write_data};
use crate::case::{Case, Step, holds, same};
use doorbell_ioctl::abi::kfd as k;

/// What faults of every kind leave in the kernel's log.
const LOG: &[&str] = &["PageFault", "QueueHung", "Reset", "page fault", "reset", "hung", "HWS", "amdgpu"];
/// An address that nothing is mapped at.
const NOWHERE: u64 = 0x1234_5000;

/// Name, packets that bring a PM4 queue to its end.
const BAD: &[(&str, &[u32])] = &[
    ("unknown-opcode", &[0xc000_9900, 0]),
    ("type-0-header", &[0x1234]),
    ("unknown-register", &[0xc001_7600, 0x250, 0]),
    ("user-config-register", &[0xc001_7900, 0x14, 0]),
    ("predicate-in-the-ring", &[0xc000_2300, 0x0100_0002, 0xffff_1000, 0xffff_1000]),
    ("initiator-without-compute", &[0xc003_1500, 1, 1, 1, 0x8004]),
    ("dispatch-without-lanes", &[0xc003_1500, 1, 1, 1, 0x8005]),
    ("wait-for-unknown-register", &[0xc005_3c00, 0x03, 0x99, 0, 0, 0, 4]),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut all: Vec<Case> = BAD.iter().map(|(name, words)| bad(name, words)).collect();
    all.extend(page_faults());
    all.extend(kernels());
    all.extend(hangs());
    for case in &mut all {
        case.log = LOG;
    }
    all
}

/// The queue stops at the packet, what came before is done, a sibling lives, the reset is reported, a new queue works.
fn bad(name: &str, words: &'static [u32]) -> Case {
    let what = "A bad packet stops its queue at that packet, and its queue only; destroying it tells the process";
    on_card(&format!("fault.packet-{name}"), what, move |kfd| {
        let exception = kfd.event(k::EVENT_HW_EXCEPTION, false)?;
        let memory = kfd.buffer(PAGE, HOST)?;
        let (mut broken, mut sibling) = (kfd.queue(Ring::Pm4)?, kfd.queue(Ring::Pm4)?);
        broken.submit(&[&write_data(memory.va, 1)[..], words, &write_data(memory.va + 8, 1)].concat())?;
        kfd.bench.word(&memory.view, 0, 1)?;
        kfd.bench.hung()?;
        same("what comes after it", memory.view.read_u32(8)?, 0)?;
        works(kfd, &mut sibling, memory.va + 16)?;
        kfd.destroy(&broken)?;
        let reported = kfd.wait_for(exception)?;
        let exception: k::HwException = bytemuck::cast([reported.payload[0], reported.payload[1]]);
        same("the card it names", exception.gpu_id, kfd.gpu_id)?;
        same("memory is not lost", exception.memory_lost, 0)?;
        works(kfd, &mut sibling, memory.va + 24)?;
        works(kfd, &mut kfd.queue(Ring::Pm4)?, memory.va + 32)
    })
}

/// A queue stores 1 at an address of mapped memory.
fn works(kfd: &Kfd<'_>, queue: &mut Queue, va: u64) -> Step {
    let probe = kfd.buffer(PAGE, HOST)?;
    queue.submit(&match queue.kind {
        Ring::Sdma => [&fence(kfd.gfx()?, va, 1)[..], &fence(kfd.gfx()?, probe.va, 1)].concat(),
        _ => [&write_data(va, 1)[..], &release_mem(probe.va, 1)].concat(),
    })?;
    kfd.bench.word(&probe.view, 0, 1)
}

/// A memory event's payload, once it comes.
fn fault(kfd: &Kfd<'_>, event: u32) -> Step<k::MemoryException> {
    Ok(kfd.wait_for(event)?.memory_exception())
}

fn page_faults() -> Vec<Case> {
    vec![
        on_card(
            "fault.page-not-present",
            "A store to nowhere raises the memory events with page, card and reason",
            |kfd| {
                let event = kfd.event(k::EVENT_MEMORY, false)?;
                let mut queue = kfd.queue(Ring::Pm4)?;
                queue.submit(&write_data(NOWHERE + 0x678, 1))?;
                let reported = fault(kfd, event)?;
                same("not present", (reported.not_present, reported.read_only, reported.no_execute), (1, 0, 0))?;
                same("page", reported.va, NOWHERE)?;
                same("card", reported.gpu_id, kfd.gpu_id)
            },
        ),
        on_card("fault.page-not-on-this-card", "Memory that the card does not have mapped faults", |kfd| {
            let event = kfd.event(k::EVENT_MEMORY, false)?;
            let (mut queue, host_only) = (kfd.queue(Ring::Sdma)?, kfd.alloc(PAGE, HOST)?);
            queue.submit(&fence(kfd.gfx()?, host_only.va, 1))?;
            let reported = fault(kfd, event)?;
            same("not present, at", (reported.not_present, reported.va), (1, host_only.va))
        }),
        on_card("fault.page-unmapped-again", "Memory that was unmapped faults", |kfd| {
            let event = kfd.event(k::EVENT_MEMORY, false)?;
            let (mut queue, buffer) = (kfd.queue(Ring::Sdma)?, kfd.buffer(PAGE, HOST)?);
            works(kfd, &mut queue, buffer.va)?;
            same("UNMAP", kfd.unmap(&buffer), Ok(1))?;
            queue.submit(&fence(kfd.gfx()?, buffer.va, 2))?;
            same("at", fault(kfd, event)?.va, buffer.va)?;
            same("what is there", buffer.view.read_u32(0)?, 1)
        }),
        on_card("fault.page-read-only", "A store to read-only memory says so, and does not arrive", |kfd| {
            let event = kfd.event(k::EVENT_MEMORY, false)?;
            let (mut queue, buffer) = (kfd.queue(Ring::Sdma)?, kfd.buffer(PAGE, k::ALLOC_MEM_FLAGS_GTT)?);
            queue.submit(&fence(kfd.gfx()?, buffer.va, 1))?;
            let reported = fault(kfd, event)?;
            same("read only", (reported.not_present, reported.read_only), (0, 1))?;
            same("what is there", buffer.view.read_u32(0)?, 0)
        }),
        on_card(
            "fault.page-ends-the-cards-queues",
            "After a page fault no queue of the process on the card goes on",
            |kfd| {
                let event = kfd.event(k::EVENT_MEMORY, false)?;
                let memory = kfd.buffer(PAGE, HOST)?;
                let (mut bad, mut other) = (kfd.queue(Ring::Pm4)?, kfd.queue(Ring::Sdma)?);
                bad.submit(&write_data(NOWHERE, 1))?;
                fault(kfd, event)?;
                other.submit(&fence(kfd.gfx()?, memory.va, 1))?;
                for _ in 0..10 {
                    kfd.bench.pause();
                    same("the other queue's store", memory.view.read_u32(0)?, 0)?;
                }
                Ok(())
            },
        ),
        on_card("fault.page-then-new-queues", "After a page fault new queues work", |kfd| {
            let event = kfd.event(k::EVENT_MEMORY, false)?;
            let memory = kfd.buffer(PAGE, HOST)?;
            let mut bad = kfd.queue(Ring::Pm4)?;
            bad.submit(&write_data(NOWHERE, 1))?;
            fault(kfd, event)?;
            kfd.destroy(&bad)?;
            works(kfd, &mut kfd.queue(Ring::Pm4)?, memory.va)
        }),
    ]
}

fn kernels() -> Vec<Case> {
    vec![
        on_card("fault.kernel-wild-store", "A lane's store to nowhere is a memory event", |kfd| {
            let event = kfd.event(k::EVENT_MEMORY, false)?;
            let (memory, program) = (kfd.buffer(PAGE, HOST)?, upload(kfd, store_kernel(kfd.gfx()?))?);
            memory.view.write_u64(0x100, NOWHERE)?;
            let mut queue = kfd.queue(Ring::Pm4)?;
            queue.submit(&dispatch(kfd.gfx()?, program.va + 0x100, memory.va + 0x100, [1, 1, 1], [64, 1, 1]))?;
            let reported = fault(kfd, event)?;
            same("not present, at", (reported.not_present, reported.va), (1, NOWHERE))
        }),
        on_card(
            "fault.kernel-code-not-executable",
            "Code in memory that may not be executed is a memory event",
            |kfd| {
                let event = kfd.event(k::EVENT_MEMORY, false)?;
                let memory = kfd.buffer(PAGE, HOST)?;
                let program = kfd.buffer(PAGE, k::ALLOC_MEM_FLAGS_GTT | k::ALLOC_MEM_FLAGS_WRITABLE)?;
                program.view.copy_from_slice(0x100, store_kernel(kfd.gfx()?))?;
                memory.view.write_u64(0x100, memory.va + 0x800)?;
                let mut queue = kfd.queue(Ring::Pm4)?;
                queue.submit(&dispatch(kfd.gfx()?, program.va + 0x100, memory.va + 0x100, [1, 1, 1], [64, 1, 1]))?;
                let reported = fault(kfd, event)?;
                same("no execute, at", (reported.no_execute, reported.va), (1, program.va))
            },
        ),
        on_card(
            "fault.kernel-illegal-instruction",
            "Zeros are no instruction: the queue stops, its end is told",
            |kfd| {
                let exception = kfd.event(k::EVENT_HW_EXCEPTION, false)?;
                let (memory, program) = (kfd.buffer(PAGE, HOST)?, kfd.buffer(PAGE, HOST)?);
                let mut queue = kfd.queue(Ring::Pm4)?;
                let words = dispatch(kfd.gfx()?, program.va + 0x100, memory.va + 0x100, [1, 1, 1], [64, 1, 1]);
                queue.submit(&[&words[..], &release_mem(memory.va, 1)].concat())?;
                kfd.bench.hung()?;
                same("what comes after it", memory.view.read_u32(0)?, 0)?;
                kfd.destroy(&queue)?;
                kfd.wait_for(exception).map(|_| ())
            },
        ),
        on_card(
            "fault.kernel-exception-reaches-the-process",
            "With RUNTIME_ENABLE an illegal instruction is written for the process",
            exception,
        ),
        on_card("fault.kernel-too-many-lanes", "A workgroup of more than 1024 lanes does not start", |kfd| {
            let exception = kfd.event(k::EVENT_HW_EXCEPTION, false)?;
            let (memory, program) = (kfd.buffer(2 * PAGE, HOST)?, upload(kfd, store_kernel(kfd.gfx()?))?);
            memory.view.write_u64(0x100, memory.va + PAGE)?;
            let mut queue = kfd.queue(Ring::Pm4)?;
            queue.submit(&dispatch(kfd.gfx()?, program.va + 0x100, memory.va + 0x100, [1, 1, 1], [64, 17, 1]))?;
            kfd.bench.hung()?;
            same("no lane has run", memory.view.read_u32(PAGE)?, 0)?;
            kfd.destroy(&queue)?;
            kfd.wait_for(exception).map(|_| ())
        }),
    ]
}

/// The save area's header names a payload and an event (docs/amd.md 7.3); it is VRAM, so the copy engine writes it.
fn exception(kfd: &Kfd<'_>) -> Step {
    let on = k::RuntimeEnable { mode_mask: 1, ..Default::default() };
    kfd.call(&k::RUNTIME_ENABLE, &mut { on })?;
    let event = kfd.event(k::EVENT_SIGNAL, true)?;
    let (memory, program) = (kfd.buffer(PAGE, HOST)?, kfd.buffer(PAGE, HOST)?);
    let (mut queue, mut copy) = (kfd.queue(Ring::Pm4)?, kfd.queue(Ring::Sdma)?);
    let (save, payload) = (queue.args.ctx_save_restore_address + 24, memory.va + 8);
    let header = [2, save as u32, (save >> 32) as u32, 2, payload as u32, (payload >> 32) as u32, event];
    copy.submit(&[&header[..], &fence(kfd.gfx()?, memory.va, 1)].concat())?;
    kfd.bench.word(&memory.view, 0, 1)?;
    queue.submit(&dispatch(kfd.gfx()?, program.va + 0x100, memory.va + 0x100, [1, 1, 1], [64, 1, 1]))?;
    kfd.wait_for(event)?;
    same("code 4, illegal instruction", memory.view.read_u64(8)?, 1 << 3)?;
    kfd.destroy(&queue)?;
    kfd.destroy(&copy)?;
    Ok(kfd.call(&k::RUNTIME_ENABLE, &mut k::RuntimeEnable::default())?)
}

fn hangs() -> Vec<Case> {
    vec![
        on_card(
            "hang.endless-kernel",
            "A kernel that never ends is taken away with its queue, siblings work meanwhile",
            |kfd| {
                let (memory, program) = (kfd.buffer(2 * PAGE, HOST)?, upload(kfd, endless_kernel(kfd.gfx()?))?);
                let (mut endless, mut sibling) = (kfd.queue(Ring::Pm4)?, kfd.queue(Ring::Pm4)?);
                let words = dispatch(kfd.gfx()?, program.va + 0x100, memory.va + 0x100, [1, 1, 1], [64, 1, 1]);
                endless.submit(&[&words[..], &release_mem(memory.va, 1)].concat())?;
                works(kfd, &mut sibling, memory.va + 8)?;
                kfd.destroy(&endless)?;
                same("what waits behind it", memory.view.read_u32(0)?, 0)?;
                works(kfd, &mut sibling, memory.va + 16)
            },
        ),
        on_card(
            "hang.endless-kernel-within-the-deadline",
            "Destroying an endless kernel's queue takes no longer than patience",
            |kfd| {
                let (memory, program) = (kfd.buffer(2 * PAGE, HOST)?, upload(kfd, endless_kernel(kfd.gfx()?))?);
                let mut endless = kfd.queue(Ring::Pm4)?;
                endless.submit(
                    &[
                        &write_data(memory.va, 1)[..],
                        &dispatch(kfd.gfx()?, program.va + 0x100, memory.va + 0x100, [1, 1, 1], [64, 1, 1]),
                    ]
                    .concat(),
                )?;
                kfd.bench.word(&memory.view, 0, 1)?;
                let began = std::time::Instant::now();
                kfd.destroy(&endless)?;
                holds("within patience", began.elapsed() < kfd.bench.patience)
            },
        ),
        on_card("hang.several-at-once", "Three endless kernels end with their queues, and the card works", |kfd| {
            let (memory, program) = (kfd.buffer(2 * PAGE, HOST)?, upload(kfd, endless_kernel(kfd.gfx()?))?);
            let mut queues = [kfd.queue(Ring::Pm4)?, kfd.queue(Ring::Pm4)?, kfd.queue(Ring::Pm4)?];
            for queue in &mut queues {
                queue.submit(&dispatch(kfd.gfx()?, program.va + 0x100, memory.va + 0x100, [1, 1, 1], [64, 1, 1]))?;
            }
            kfd.bench.pause();
            for queue in &queues {
                kfd.destroy(queue)?;
            }
            works(kfd, &mut kfd.queue(Ring::Pm4)?, memory.va)
        }),
        on_card("hang.no-false-alarm", "A queue that only waits is not told as hung", |kfd| {
            let exception = kfd.event(k::EVENT_HW_EXCEPTION, false)?;
            let (memory, mut queue) = (kfd.buffer(PAGE, HOST)?, kfd.queue(Ring::Pm4)?);
            queue.submit(&super::packets::wait_mem(5, memory.va, 1, u32::MAX))?;
            kfd.bench.pause();
            kfd.destroy(&queue)?;
            same("no exception", kfd.wait(&mut [asked(exception)], false, 0)?, k::WAIT_RESULT_TIMEOUT)
        }),
    ]
}
