//! Queues: what CREATE_QUEUE and UPDATE_QUEUE check, limits, rings that wrap, stop and start, the end with work
//! pending.

use super::client::{Buffer, HOST, Kfd, PAGE, Queue, Ring};
use super::on_card;
use super::packets::{barrier_and, fence, signal, wait_mem, write_data};
use crate::case::{Case, Step, holds, same};
use doorbell_ioctl::abi::kfd as k;
use doorbell_ioctl::port::Errno;

/// What goes wrong, how, and the error.
type Wrong = (&'static str, fn(&mut k::CreateQueue, &Spare), Errno);

/// Buffers for wrong arguments.
struct Spare {
    big: Buffer,
    unmapped: Buffer,
}

/// The kernel's ENOTSUPP.
const ENOTSUPP: Errno = Errno(524);

const WRONG: &[Wrong] = &[
    ("percentage-101", |a, _| a.queue_percentage = 101, Errno::EINVAL),
    ("priority-16", |a, _| a.queue_priority = 16, Errno::EINVAL),
    ("ring-not-a-power-of-two", |a, _| a.ring_size = 0xc00, Errno::EINVAL),
    ("ring-below-1k", |a, _| a.ring_size = 0x200, Errno::EINVAL),
    ("ring-of-nothing", |a, _| a.ring_size = 0, Errno::EINVAL),
    ("ring-smaller-than-buffer", |a, s| a.ring_base_address = s.big.va, Errno::EINVAL),
    ("ring-larger-than-buffer", |a, _| a.ring_size = 0x2000, Errno::EINVAL),
    ("ring-inside-a-buffer", |a, s| a.ring_base_address = s.big.va + PAGE, Errno::EINVAL),
    ("ring-not-on-the-card", |a, s| a.ring_base_address = s.unmapped.va, Errno::EINVAL),
    ("ring-of-the-kernel", |a, _| a.ring_base_address = 0xffff_8000_0000_0000, Errno::EFAULT),
    ("write-pointer-in-two-pages", |a, s| a.write_pointer_address = s.big.va, Errno::EINVAL),
    ("read-pointer-in-two-pages", |a, s| a.read_pointer_address = s.big.va, Errno::EINVAL),
    ("write-pointer-nowhere", |a, _| a.write_pointer_address = 0, Errno::EINVAL),
    ("read-pointer-of-the-kernel", |a, _| a.read_pointer_address = 0xffff_8000_0000_0000, Errno::EFAULT),
    ("write-pointer-of-the-kernel", |a, _| a.write_pointer_address = 0xffff_8000_0000_0000, Errno::EFAULT),
    ("eop-of-two-pages", |a, _| a.eop_buffer_size = 0x2000, Errno::EINVAL),
    ("eop-in-a-larger-buffer", |a, s| a.eop_buffer_address = s.big.va, Errno::EINVAL),
    ("eop-of-the-kernel", |a, _| a.eop_buffer_address = 0xffff_8000_0000_0000, Errno::EFAULT),
    ("control-stack-too-small", |a, _| a.ctl_stack_size = 0x1000, Errno::EINVAL),
    ("save-area-too-small", |a, _| a.ctx_save_restore_size -= 0x1000, Errno::EINVAL),
    ("save-area-larger-than-buffer", |a, _| a.ctx_save_restore_size += 0x1000, Errno::EINVAL),
    ("no-save-area", |a, _| a.ctx_save_restore_address = 0, Errno::EINVAL),
    ("save-area-of-the-kernel", |a, _| a.ctx_save_restore_address = 0xffff_8000_0000_0000, Errno::EFAULT),
    ("unknown-card", |a, _| a.gpu_id ^= 0x55, Errno::EINVAL),
    ("unknown-type", |a, _| a.queue_type = 9, ENOTSUPP),
    ("unknown-engine", |a, _| (a.queue_type, a.sdma_engine_id) = (k::QUEUE_TYPE_SDMA_BY_ENG_ID, 99), Errno::EINVAL),
];

pub(crate) fn cases() -> Vec<Case> {
    let refused = |(name, spoil, errno): &Wrong| {
        let (spoil, errno) = (*spoil, *errno);
        on_card(&format!("queue.refuse-{name}"), "CREATE_QUEUE refuses it and makes no queue", move |kfd| {
            let spare = Spare { big: kfd.buffer(2 * PAGE, HOST)?, unmapped: kfd.alloc(PAGE, HOST)? };
            let (ring, pointers) = (kfd.buffer(PAGE, HOST)?, kfd.buffer(PAGE, HOST)?);
            let mut args = kfd.queue_args(Ring::Pm4, &ring, pointers.va + 128, pointers.va + 56)?;
            spoil(&mut args, &spare);
            kfd.refused(&k::CREATE_QUEUE, args, errno)
        })
        .provoking(&["amdgpu", "kfd"])
    };
    let mut all: Vec<Case> = WRONG.iter().map(refused).collect();
    for ring in [Ring::Pm4, Ring::Sdma, Ring::Aql] {
        all.extend(every_kind(ring));
    }
    all.extend(updates());
    all.extend(limits());
    all
}

fn name(ring: Ring) -> String {
    format!("{ring:?}").to_lowercase()
}

/// Work that stores `value` at `va`, on any kind of ring.
fn submit(kfd: &Kfd<'_>, queue: &mut Queue, va: u64, value: u32) -> Step {
    match queue.kind {
        Ring::Aql => Ok(()),
        ring => queue.submit(&signal(ring, kfd.gfx()?, va, value)),
    }
}

/// An `amd_signal_t` of value 1.
fn aql_signal(buffer: &Buffer, at: u64) -> Step<u64> {
    buffer.view.write_u64(at, 1)?;
    buffer.view.write_u64(at + 8, 1)?;
    Ok(buffer.va + at)
}

fn every_kind(ring: Ring) -> Vec<Case> {
    let kind = name(ring);
    let mut all = vec![
        on_card(
            &format!("queue.{kind}-works"),
            "A new queue does its first work and moves its read pointer",
            move |kfd| {
                let (mut queue, memory) = (kfd.queue(ring)?, kfd.buffer(PAGE, HOST)?);
                if ring == Ring::Aql {
                    let done = aql_signal(&memory, 0x200)?;
                    queue.submit_aql(barrier_and([0, 0], done))?;
                    kfd.bench.word(&memory.view, 0x208, 0)?;
                } else {
                    submit(kfd, &mut queue, memory.va, 7)?;
                    kfd.bench.word(&memory.view, 0, 7)?;
                }
                let put = queue.put;
                kfd.bench.until("the read pointer", || Ok(queue.read_pointer()? == put))
            },
        ),
        on_card(
            &format!("queue.{kind}-made-and-destroyed-100-times"),
            "Queues come and go without a trace",
            move |kfd| {
                let (pointers, buffer) = (kfd.buffer(PAGE, HOST)?, kfd.buffer(PAGE, HOST)?);
                let args = kfd.queue_args(ring, &buffer, pointers.va + 128, pointers.va + 56)?;
                let mut first = None;
                for _ in 0..100 {
                    let mut made = args;
                    kfd.call(&k::CREATE_QUEUE, &mut made)?;
                    same(
                        "id of a queue whose predecessor is gone",
                        made.queue_id,
                        *first.get_or_insert(made.queue_id),
                    )?;
                    kfd.call(&k::DESTROY_QUEUE, &mut k::DestroyQueue { queue_id: made.queue_id, pad: 0 })?;
                }
                Ok(())
            },
        ),
        on_card(&format!("queue.{kind}-doorbells-differ"), "Two queues have two doorbells of one slice", move |kfd| {
            let (first, second) = (kfd.queue(ring)?, kfd.queue(ring)?);
            let (a, b) = (first.args.doorbell_offset, second.args.doorbell_offset);
            holds("the offsets differ", a != b)?;
            same("one slice", a >> 13, b >> 13)?;
            same("of doorbells", a >> k::MMAP_TYPE_SHIFT, k::MMAP_TYPE_DOORBELL)
        }),
    ];
    if ring != Ring::Aql {
        all.push(on_card(
            &format!("queue.{kind}-wraps"),
            "Work goes over the end of the ring, three laps of it",
            move |kfd| wraps(kfd, ring),
        ));
        all.push(on_card(
            &format!("queue.{kind}-needs-its-doorbell"),
            "Work starts at the doorbell, not before",
            move |kfd| {
                let (mut queue, memory) = (kfd.queue(ring)?, kfd.buffer(PAGE, HOST)?);
                queue.put(&signal(ring, kfd.gfx()?, memory.va, 3))?;
                kfd.bench.pause();
                same("before", memory.view.read_u32(0)?, 0)?;
                queue.ring();
                kfd.bench.word(&memory.view, 0, 3)
            },
        ));
        all.push(on_card(
            &format!("queue.{kind}-stopped-and-started"),
            "A share of 0 stops a queue, another starts it",
            move |kfd| {
                let (mut queue, memory) = (kfd.queue(ring)?, kfd.buffer(PAGE, HOST)?);
                kfd.share(&queue, 0)?;
                submit(kfd, &mut queue, memory.va, 9)?;
                kfd.bench.pause();
                same("while it is stopped", memory.view.read_u32(0)?, 0)?;
                kfd.share(&queue, 100)?;
                kfd.bench.word(&memory.view, 0, 9)
            },
        ));
        all.push(on_card(
            &format!("queue.{kind}-closed-with-work-pending"),
            "A queue that waits is destroyed, its work is not done",
            move |kfd| {
                let (mut queue, memory) = (kfd.queue(ring)?, kfd.buffer(PAGE, HOST)?);
                let wait = match ring {
                    Ring::Sdma => super::packets::sdma_poll(memory.va + 8, 1).to_vec(),
                    _ => wait_mem(5, memory.va + 8, 1, u32::MAX).to_vec(),
                };
                queue.submit(&[&wait[..], &signal(ring, kfd.gfx()?, memory.va, 1)].concat())?;
                kfd.bench.pause();
                kfd.destroy(&queue)?;
                memory.view.write_u32(8, 1)?;
                kfd.bench.pause();
                same("after its end", memory.view.read_u32(0)?, 0)
            },
        ));
        all.push(on_card(
            &format!("queue.{kind}-full-ring"),
            "A ring that is filled to its last dword is done",
            move |kfd| {
                let (mut queue, memory) = (kfd.queue_of(ring, 0x400)?, kfd.buffer(PAGE, HOST)?);
                let one = signal(ring, kfd.gfx()?, memory.va, 5);
                let nop: &[u32] = if ring == Ring::Sdma { &[0] } else { &[0xffff_1000] };
                let fill = 0x400 / 4 - one.len();
                queue.submit(&[nop.repeat(fill), one].concat())?;
                kfd.bench.word(&memory.view, 0, 5)
            },
        ));
    } else {
        all.push(on_card("queue.aql-wraps", "Packets go over the end of the ring, three laps of it", |kfd| {
            let (mut queue, memory) = (kfd.queue_of(Ring::Aql, 0x400)?, kfd.buffer(PAGE, HOST)?);
            for lap in 0..48 {
                let done = aql_signal(&memory, 0x200)?;
                queue.submit_aql(barrier_and([0, 0], done))?;
                kfd.bench.until(&format!("packet {lap}"), || Ok(memory.view.load_acquire_u64(0x208)? == 0))?;
            }
            kfd.bench.until("the read pointer", || Ok(queue.read_pointer()? == 48))
        }));
        all.push(on_card("queue.aql-invalid-slot-holds", "A slot that is still INVALID holds the queue", |kfd| {
            let (mut queue, memory) = (kfd.queue(Ring::Aql)?, kfd.buffer(PAGE, HOST)?);
            let done = aql_signal(&memory, 0x200)?;
            let mut words = barrier_and([0, 0], done);
            words[0] = 1;
            queue.submit_aql(words)?;
            kfd.bench.pause();
            same("before", memory.view.read_u64(0x208)?, 1)?;
            queue.ring.view.store_release_u32(0, 0x1503)?;
            kfd.bench.word(&memory.view, 0x208, 0)
        }));
    }
    all
}

fn wraps(kfd: &Kfd<'_>, ring: Ring) -> Step {
    let (mut queue, memory) = (kfd.queue_of(ring, 0x400)?, kfd.buffer(PAGE, HOST)?);
    let gfx = kfd.gfx()?;
    // SDMA's packets may not cross the end: four dwords divide the ring. PM4's may: 13 dwords cross at many places.
    let packets = |value: u32| match ring {
        Ring::Sdma => fence(gfx, memory.va, value).to_vec(),
        _ => [&write_data(memory.va + 8, value)[..], &signal(ring, gfx, memory.va, value)].concat(),
    };
    let laps = 3 * 256 / packets(0).len() as u32;
    for value in 1..=laps {
        queue.submit(&packets(value))?;
        kfd.bench.word(&memory.view, 0, value)?;
    }
    let (put, dwords) = (queue.put, 256);
    let want = if ring == Ring::Sdma { put } else { put % dwords };
    kfd.bench.until("the read pointer after three laps", || Ok(queue.read_pointer()? == want))
}

fn refused_update(kfd: &Kfd<'_>, spoil: impl Fn(&mut k::UpdateQueue), errno: Errno) -> Step {
    let queue = kfd.queue(Ring::Sdma)?;
    let mut args = Kfd::update_args(&queue);
    spoil(&mut args);
    kfd.refused(&k::UPDATE_QUEUE, args, errno)
}

fn updates() -> Vec<Case> {
    vec![
        on_card("queue.update-unknown", "UPDATE_QUEUE of a queue that is none is EFAULT", |kfd| {
            refused_update(kfd, |a| a.queue_id += 77, Errno::EFAULT)
        }),
        on_card("queue.update-odd-ring", "UPDATE_QUEUE to a ring that is no power of two is EINVAL", |kfd| {
            refused_update(kfd, |a| a.ring_size = 0x1800, Errno::EINVAL)
        }),
        on_card("queue.update-larger-ring", "UPDATE_QUEUE to more than the buffer is EFAULT", |kfd| {
            refused_update(kfd, |a| a.ring_size = 0x2000, Errno::EFAULT)
        }),
        on_card("queue.update-percentage", "UPDATE_QUEUE to 101 percent is EINVAL", |kfd| {
            refused_update(kfd, |a| a.queue_percentage = 101, Errno::EINVAL)
        }),
        on_card("queue.update-priority", "UPDATE_QUEUE to priority 16 is EINVAL", |kfd| {
            refused_update(kfd, |a| a.queue_priority = 16, Errno::EINVAL)
        }),
        on_card("queue.update-ring-of-the-kernel", "UPDATE_QUEUE to the kernel's memory is EFAULT", |kfd| {
            refused_update(kfd, |a| a.ring_base_address = 0xffff_8000_0000_0000, Errno::EFAULT)
        }),
        on_card("queue.destroy-twice", "DESTROY_QUEUE of a destroyed queue is EINVAL", |kfd| {
            let queue = kfd.queue(Ring::Sdma)?;
            kfd.destroy(&queue)?;
            kfd.refused(&k::DESTROY_QUEUE, k::DestroyQueue { queue_id: queue.id, pad: 0 }, Errno::EINVAL)
        }),
        on_card("queue.cu-mask", "SET_CU_MASK takes whole words of compute units", |kfd| {
            let (queue, mask) = (kfd.queue(Ring::Pm4)?, [0xf_u32]);
            let at = mask.as_ptr().expose_provenance() as u64;
            let set = k::SetCuMask { queue_id: queue.id, num_cu_mask: 32, cu_mask_ptr: at };
            kfd.call(&k::SET_CU_MASK, &mut { set })?;
            kfd.refused(&k::SET_CU_MASK, k::SetCuMask { num_cu_mask: 31, ..set }, Errno::EINVAL)?;
            kfd.refused(&k::SET_CU_MASK, k::SetCuMask { num_cu_mask: 0, ..set }, Errno::EINVAL)?;
            kfd.refused(&k::SET_CU_MASK, k::SetCuMask { queue_id: queue.id + 77, ..set }, Errno::EFAULT)
        }),
        on_card("queue.cu-mask-half-a-wgp", "On chips with WGPs half of one is no mask", |kfd| {
            let gfx = kfd.gfx()?;
            kfd.bench.require(gfx != super::client::Gfx::Gfx942, "chip", "this chip has no WGPs")?;
            let (queue, mask) = (kfd.queue(Ring::Pm4)?, [1_u32]);
            let at = mask.as_ptr().expose_provenance() as u64;
            let set = k::SetCuMask { queue_id: queue.id, num_cu_mask: 32, cu_mask_ptr: at };
            kfd.refused(&k::SET_CU_MASK, set, Errno::EINVAL)
        }),
        on_card("queue.wave-state-of-a-running-queue", "GET_QUEUE_WAVE_STATE of a running queue is EINVAL", |kfd| {
            let queue = kfd.queue(Ring::Pm4)?;
            let args = k::GetQueueWaveState { queue_id: queue.id, ..Default::default() };
            kfd.refused(&k::GET_QUEUE_WAVE_STATE, args, Errno::EINVAL)
        }),
        on_card("queue.older-struct", "The shorter struct of older programs makes a queue", |kfd| {
            let (ring, pointers) = (kfd.buffer(PAGE, HOST)?, kfd.buffer(PAGE, HOST)?);
            let args = kfd.queue_args(Ring::Sdma, &ring, pointers.va + 128, pointers.va + 56)?;
            let mut bytes = bytemuck::bytes_of(&args)[..size_of::<k::CreateQueueV11>()].to_vec();
            same("CREATE_QUEUE", kfd.raw(k::CREATE_QUEUE_V11.desc.request, &mut bytes), Ok(0))?;
            let made: k::CreateQueueV11 = bytemuck::pod_read_unaligned(&bytes);
            same("its doorbell's type", made.doorbell_offset >> k::MMAP_TYPE_SHIFT, k::MMAP_TYPE_DOORBELL)?;
            Ok(kfd.call(&k::DESTROY_QUEUE, &mut k::DestroyQueue { queue_id: made.queue_id, pad: 0 })?)
        }),
    ]
}

fn limits() -> Vec<Case> {
    vec![
        on_card("queue.as-many-as-there-are-engines", "SDMA queues end with ENOMEM, ids are lowest first", |kfd| {
            let (ring, pointers) = (kfd.buffer(PAGE, HOST)?, kfd.buffer(PAGE, HOST)?);
            let args = kfd.queue_args(Ring::Sdma, &ring, pointers.va + 128, pointers.va + 56)?;
            const MOST: usize = 1024;
            let mut made = Vec::new();
            let end = loop {
                let mut one = args;
                let answer = kfd.raw(k::CREATE_QUEUE.desc.request, bytemuck::bytes_of_mut(&mut one));
                match answer {
                    Ok(_) if made.len() < MOST => made.push(one.queue_id),
                    end => break end,
                }
            };
            let distinct = made.iter().collect::<std::collections::BTreeSet<_>>().len();
            for queue_id in &made {
                kfd.call(&k::DESTROY_QUEUE, &mut k::DestroyQueue { queue_id: *queue_id, pad: 0 })?;
            }
            same("the end", end, Err(Errno::ENOMEM))?;
            holds("at least two queues", made.len() >= 2)?;
            same("each has an id of its own", distinct, made.len())
        })
        .provoking(&["SDMA", "sdma"]),
        on_card("queue.sixteen-at-once", "Sixteen compute queues work side by side", |kfd| {
            let memory = kfd.buffer(PAGE, HOST)?;
            let mut queues = Vec::new();
            for _ in 0..16 {
                queues.push(kfd.queue(Ring::Pm4)?);
            }
            for (at, queue) in (0..).zip(&mut queues) {
                submit(kfd, queue, memory.va + 8 * at, at as u32 + 1)?;
            }
            for at in 0..16 {
                kfd.bench.word(&memory.view, 8 * at, at as u32 + 1)?;
            }
            Ok(())
        }),
        on_card("queue.priorities", "Every priority from 0 to 15 makes a working queue", |kfd| {
            let memory = kfd.buffer(PAGE, HOST)?;
            for priority in 0..=15 {
                let (ring, pointers) = (kfd.buffer(PAGE, HOST)?, kfd.buffer(PAGE, HOST)?);
                let args = kfd.queue_args(Ring::Sdma, &ring, pointers.va + 128, pointers.va + 56)?;
                let args = k::CreateQueue { queue_priority: priority, ..args };
                let mut queue = kfd.open_queue(Ring::Sdma, ring, pointers, args)?;
                submit(kfd, &mut queue, memory.va, priority + 1)?;
                kfd.bench.word(&memory.view, 0, priority + 1)?;
                kfd.destroy(&queue)?;
            }
            Ok(())
        }),
        on_card("queue.a-wait-blocks-its-queue-only", "While one queue waits another works, and releases it", |kfd| {
            let memory = kfd.buffer(PAGE, HOST)?;
            let (mut waiting, mut other) = (kfd.queue(Ring::Pm4)?, kfd.queue(Ring::Pm4)?);
            let wait = wait_mem(5, memory.va + 32, 3, u32::MAX);
            waiting.submit(&[&wait[..], &write_data(memory.va, 1)].concat())?;
            submit(kfd, &mut other, memory.va + 8, 1)?;
            kfd.bench.word(&memory.view, 8, 1)?;
            same("still waiting", memory.view.read_u32(0)?, 0)?;
            submit(kfd, &mut other, memory.va + 32, 4)?;
            kfd.bench.word(&memory.view, 0, 1)
        }),
        on_card("queue.sdma-by-engine", "A queue on an engine by its number works", |kfd| {
            let mut version = k::GetVersion::default();
            kfd.call(&k::GET_VERSION, &mut version)?;
            kfd.bench.require(version.minor_version >= k::MINOR_SDMA_ENGINE, "interface", "before 1.17")?;
            let memory = kfd.buffer(PAGE, HOST)?;
            let (ring, pointers) = (kfd.buffer(PAGE, HOST)?, kfd.buffer(PAGE, HOST)?);
            let args = kfd.queue_args(Ring::Sdma, &ring, pointers.va + 128, pointers.va + 56)?;
            let args = k::CreateQueue { queue_type: k::QUEUE_TYPE_SDMA_BY_ENG_ID, sdma_engine_id: 1, ..args };
            let mut queue = kfd.open_queue(Ring::Sdma, ring, pointers, args)?;
            queue.submit(&fence(kfd.gfx()?, memory.va, 6))?;
            kfd.bench.word(&memory.view, 0, 6)
        }),
    ]
}
