//! Several processes on one card, and what ends or interrupts one: fork, signals, kill -9 in each phase.
//!
//! Source: `kfd_process.c`, `kfd_chardev.c`, `kfd_doorbell.c`, `kfd_events.c` of Linux 6.12. A killed process's state
//! is given back by a worker of the kernel, some time after it is gone.

use super::client::{Buffer, CARD, HOST, Kfd, PAGE, Queue, Ring, asked};
use super::packets::{signal, wait_mem, write_data};
use super::{on_card, unbound};
use crate::bench::Bench;
use crate::case::{Case, Problem, Step, holds, same};
use crate::child::{Child, Cue, Interruption};
use doorbell_ioctl::abi::drm;
use doorbell_ioctl::abi::kfd as k;
use doorbell_ioctl::port::{Errno, Fd, MapRequest, Mapped, let_signals_interrupt};
use std::sync::Arc;

/// What page faults leave in the kernel's log.
const LOG: &[&str] = &["PageFault", "page fault", "amdgpu"];
/// Where a second process maps what it was given, and where nothing is mapped.
const VA: u64 = 0x7000_0000;
const NOWHERE: u64 = 0x1234_5000;
/// Of open(2)'s flags.
const O_CLOEXEC: u32 = 0o2_000_000;
const VRAM_BYTES: u64 = 8 << 20;
/// The processes that have the driver open.
const PROCESSES: &str = "/sys/class/kfd/kfd/proc";
/// Rounds of two processes at once.
const ROUNDS: u32 = 50;
/// The longest wait of a process that is to be killed in it.
const LONG_MS: u32 = 60_000;
/// Phase, what the process has when it is killed.
const PHASES: &[(&str, &str)] = &[
    ("open", "A process that is killed after open leaves nothing; a new one works"),
    ("bound", "A process that is killed with an address space leaves nothing; a new one works"),
    ("memory", "A process that is killed with memory mapped gives it back; a new one works"),
    ("queues", "A process that is killed with queues gives them back; a new one works"),
    ("pending", "A process that is killed with work pending leaves nothing; a new one works"),
    ("wait", "A process that is killed while it waits for an event leaves nothing; a new one works"),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut all: Vec<Case> = PHASES
        .iter()
        .map(|(phase, what)| on_card(&format!("kill.{phase}"), what, move |kfd| killed(kfd, phase)))
        .collect();
    all.extend(kills());
    all.extend(together());
    all.extend(apart());
    all.extend(signals());
    let mut all: Vec<Case> = all.into_iter().map(|case| case.beside(second)).collect();
    all.extend(forks());
    all.extend(sleeps());
    all
}

/// What the second process does, by part.
fn second(bench: &Bench, cue: &Cue) -> Step {
    if cue.part() == "open" {
        let kfd = Kfd::unbound(bench)?;
        stay(cue)?;
        return kfd.close();
    }
    let kfd = Kfd::bound(bench)?;
    let kept = match cue.part() {
        "bound" => stay(cue),
        "work" => rounds(&kfd, 1),
        "rounds" => cue.tell("ready").and_then(|()| cue.hear()).and_then(|_| rounds(&kfd, ROUNDS)),
        "memory" => {
            let (_host, _card) = (kfd.buffer(PAGE, HOST)?, kfd.buffer(VRAM_BYTES, CARD)?);
            stay(cue)
        }
        "queues" => {
            let _queues = (kfd.queue(Ring::Pm4)?, kfd.queue(Ring::Sdma)?, kfd.queue(Ring::Aql)?);
            rounds(&kfd, 1)?;
            stay(cue)
        }
        "pending" => {
            let (mut queue, memory) = (kfd.queue(Ring::Pm4)?, kfd.buffer(PAGE, HOST)?);
            queue.submit(&wait_mem(5, memory.va, 1, u32::MAX))?;
            bench.pause();
            stay(cue)
        }
        "wait" => {
            let event = kfd.event(k::EVENT_SIGNAL, true)?;
            cue.tell("ready")?;
            same("WAIT_EVENTS", kfd.wait(&mut [asked(event)], false, LONG_MS)?, k::WAIT_RESULT_COMPLETE)
        }
        "handler" => interrupted(&kfd, cue),
        "restart" => restarted(&kfd, cue),
        "handles" => handles(&kfd, cue),
        "event" => {
            let event = kfd.event(k::EVENT_SIGNAL, false)?;
            kfd.call(&k::SET_EVENT, &mut k::SetEvent { event_id: event, pad: 0 })?;
            cue.tell(&event.to_string())?;
            cue.hear()?;
            kfd.wait_for(event).map(|_| ())
        }
        "fault" => {
            let mut queue = kfd.queue(Ring::Pm4)?;
            let fault = kfd.event(k::EVENT_MEMORY, false)?;
            queue.submit(&write_data(NOWHERE, 1))?;
            kfd.wait_for(fault)?;
            stay(cue)
        }
        "no-import" => {
            let dmabuf_fd = cue.number(0)? as u32;
            let mut args = k::ImportDmabuf { va_addr: VA, gpu_id: kfd.gpu_id, dmabuf_fd, handle: 0 };
            let answer = kfd.raw(k::IMPORT_DMABUF.desc.request, bytemuck::bytes_of_mut(&mut args));
            // No file of this process, or one that is no dma-buf.
            holds("it is refused", matches!(answer, Err(Errno::EINVAL | Errno::EBADF)))?;
            stay(cue)
        }
        "import" => import(&kfd, cue, false),
        "import-pending" => import(&kfd, cue, true),
        other => Err(Problem::failed(format!("no part is called {other}"))),
    };
    kept?;
    kfd.close()
}

/// Says that it is ready, and waits for a word or its end.
fn stay(cue: &Cue) -> Step {
    cue.tell("ready")?;
    cue.hear().map(|_| ())
}

/// A queue that does so many signals, one after the other.
fn rounds(kfd: &Kfd<'_>, count: u32) -> Step {
    let (mut queue, memory) = (kfd.queue(Ring::Pm4)?, kfd.buffer(PAGE, HOST)?);
    (1..=count).try_for_each(|value| does(kfd, &mut queue, &memory, value))?;
    kfd.destroy(&queue)
}

fn does(kfd: &Kfd<'_>, queue: &mut Queue, memory: &Buffer, value: u32) -> Step {
    queue.submit(&signal(Ring::Pm4, kfd.gfx()?, memory.va, value))?;
    kfd.bench.word(&memory.view, 0, value)
}

/// How many queues of the copy engines can be made.
fn copy_queues(kfd: &Kfd<'_>) -> Step<usize> {
    /// More than any card has.
    const MOST: usize = 256;
    let mut queues = Vec::new();
    while queues.len() < MOST {
        let Ok(queue) = kfd.queue(Ring::Sdma) else { break };
        queues.push(queue);
    }
    queues.iter().try_for_each(|queue| kfd.destroy(queue))?;
    Ok(queues.len())
}

fn is_listed(kfd: &Kfd<'_>, pid: u32) -> bool {
    kfd.bench.port.read_dir(PROCESSES).is_ok_and(|pids| pids.contains(&pid.to_string()))
}

fn killed(kfd: &Kfd<'_>, phase: &str) -> Step {
    kfd.gfx()?;
    let (mut queue, memory) = (kfd.queue(Ring::Pm4)?, kfd.buffer(PAGE, HOST)?);
    let room = copy_queues(kfd)?;
    let free = kfd.available()?;
    let mut child = kfd.bench.child(phase)?;
    child.says("ready")?;
    match phase {
        "memory" => holds("its memory is taken", kfd.available()? + VRAM_BYTES <= free)?,
        "queues" => holds("its queue is taken", copy_queues(kfd)? < room)?,
        "wait" => kfd.bench.pause(),
        _ => {}
    }
    does(kfd, &mut queue, &memory, 1)?;
    // In a namespace of process numbers the kernel lists another one.
    let (pid, was_listed) = (child.pid(), is_listed(kfd, child.pid()));
    child.kill()?;
    kfd.bench.until("its memory", || Ok(kfd.available()? >= free))?;
    kfd.bench.until("its end in the list of processes", || Ok(!was_listed || !is_listed(kfd, pid)))?;
    kfd.bench.until("its queues", || Ok(copy_queues(kfd)? == room))?;
    does(kfd, &mut queue, &memory, 2)?;
    kfd.bench.child("work")?.end()
}

fn kills() -> Vec<Case> {
    vec![
        on_card(
            "kill.pending-work-is-not-done",
            "What a killed process had submitted is not done, in memory that another one shares",
            |kfd| {
                let memory = kfd.alloc(PAGE, HOST)?;
                let fd = export(kfd, &memory)?;
                let mut child = kfd.bench.child(&format!("import-pending {fd}"))?;
                child.says("ready")?;
                child.kill()?;
                memory.view.write_u32(8, 1)?;
                kfd.bench.pause();
                same("what its queue would have stored", memory.view.read_u32(0)?, 0)?;
                Ok(kfd.bench.port.close(Fd(fd.cast_signed()))?)
            },
        ),
        on_card("kill.spares-others", "A process that is killed leaves another one's queues working", |kfd| {
            let (mut queue, memory) = (kfd.queue(Ring::Pm4)?, kfd.buffer(PAGE, HOST)?);
            let mut child = kfd.bench.child("queues")?;
            child.says("ready")?;
            // Work that is under way when it happens.
            queue.submit(&wait_mem(5, memory.va + 8, 1, u32::MAX))?;
            queue.submit(&signal(Ring::Pm4, kfd.gfx()?, memory.va, 5))?;
            child.kill()?;
            memory.view.write_u32(8, 1)?;
            kfd.bench.word(&memory.view, 0, 5)
        }),
        on_card("kill.many", "Eight processes are killed one after the other; nothing is left of them", |kfd| {
            let free = kfd.available()?;
            for _ in 0..8 {
                let mut child = kfd.bench.child("memory")?;
                child.says("ready")?;
                child.kill()?;
            }
            kfd.bench.until("their memory", || Ok(kfd.available()? >= free))
        }),
    ]
}

fn together() -> Vec<Case> {
    vec![
        on_card("process.two-at-once", "Two processes work on one card at once", |kfd| {
            let mut child = kfd.bench.child("rounds")?;
            child.says("ready")?;
            child.tell("go")?;
            rounds(kfd, ROUNDS)?;
            child.end()
        }),
        on_card("process.six-at-once", "Six processes have memory and work at once, and end by themselves", |kfd| {
            let (mut queue, memory) = (kfd.queue(Ring::Pm4)?, kfd.buffer(PAGE, HOST)?);
            let free = kfd.available()?;
            let mut children = Vec::new();
            for _ in 0..5 {
                children.push(kfd.bench.child("rounds")?);
            }
            children.iter_mut().try_for_each(|child| child.says("ready"))?;
            children.iter_mut().try_for_each(|child| child.tell("go"))?;
            (1..=ROUNDS).try_for_each(|value| does(kfd, &mut queue, &memory, value))?;
            children.into_iter().try_for_each(Child::end)?;
            kfd.bench.until("their memory", || Ok(kfd.available()? >= free))
        }),
        on_card("process.vram-is-shared", "A process's VRAM is missing from what another one may have", |kfd| {
            let free = kfd.available()?;
            let mut child = kfd.bench.child("memory")?;
            child.says("ready")?;
            holds("it is taken", kfd.available()? + VRAM_BYTES <= free)?;
            child.tell("end")?;
            child.end()?;
            kfd.bench.until("it comes back", || Ok(kfd.available()? >= free))
        }),
        on_card("process.dmabuf-closed-by-exec", "A dma-buf that exec closes does not reach another process", |kfd| {
            let memory = kfd.alloc(PAGE, HOST)?;
            let mut args = k::ExportDmabuf { handle: memory.handle, flags: O_CLOEXEC | 2, ..Default::default() };
            kfd.call(&k::EXPORT_DMABUF, &mut args)?;
            let mut child = kfd.bench.child(&format!("no-import {}", args.dmabuf_fd))?;
            child.says("ready")?;
            child.tell("end")?;
            child.end()?;
            Ok(kfd.bench.port.close(Fd(args.dmabuf_fd.cast_signed()))?)
        }),
        on_card("process.dmabuf", "A second process stores to a buffer that it was given as a dma-buf", |kfd| {
            let memory = kfd.alloc(PAGE, HOST)?;
            let fd = export(kfd, &memory)?;
            let mut child = kfd.bench.child(&format!("import {fd}"))?;
            child.says("ready")?;
            same("what its queue stored", memory.view.read_u32(16)?, 77)?;
            // The buffer lives on in the other process.
            kfd.bench.port.close(Fd(fd.cast_signed()))?;
            memory.view.write_u32(24, 78)?;
            child.tell("copy")?;
            child.says("copied")?;
            same("what it copied", memory.view.read_u32(32)?, 78)?;
            child.end()
        }),
    ]
}

fn apart() -> Vec<Case> {
    vec![
        on_card("process.handles-are-its-own", "Buffers, queues and events of another process are unknown", |kfd| {
            let mut child = kfd.bench.child("handles")?;
            let numbers = child.hear()?;
            let numbers: Vec<u64> = numbers.split(' ').filter_map(|word| word.parse().ok()).collect();
            let &[handle, queue, event] = &numbers[..] else {
                return Err(Problem::failed("it names a buffer, a queue and an event"));
            };
            kfd.refused(&k::FREE_MEMORY_OF_GPU, k::FreeMemoryOfGpu { handle }, Errno::EINVAL)?;
            let queue_id = queue as u32;
            kfd.refused(&k::DESTROY_QUEUE, k::DestroyQueue { queue_id, pad: 0 }, Errno::EINVAL)?;
            kfd.refused(&k::SET_EVENT, k::SetEvent { event_id: event as u32, pad: 0 }, Errno::EINVAL)?;
            child.tell("end")?;
            child.end()
        }),
        on_card("process.events-are-its-own", "An event of the same number in another process is another one", |kfd| {
            let own = kfd.event(k::EVENT_SIGNAL, false)?;
            let mut child = kfd.bench.child("event")?;
            same("the number that it got", child.hear()?, own.to_string())?;
            same("its event is not this one", kfd.wait(&mut [asked(own)], false, 0)?, k::WAIT_RESULT_TIMEOUT)?;
            kfd.call(&k::RESET_EVENT, &mut k::ResetEvent { event_id: own, pad: 0 })?;
            child.tell("look")?;
            child.end()
        }),
        on_card("process.fault-is-its-own", "A page fault of a process leaves another one's queues working", |kfd| {
            let (mut queue, memory) = (kfd.queue(Ring::Pm4)?, kfd.buffer(PAGE, HOST)?);
            let fault = kfd.event(k::EVENT_MEMORY, false)?;
            let mut child = kfd.bench.child("fault")?;
            child.says("ready")?;
            same("this one is told nothing", kfd.wait(&mut [asked(fault)], false, 0)?, k::WAIT_RESULT_TIMEOUT)?;
            does(kfd, &mut queue, &memory, 3)?;
            child.kill()?;
            does(kfd, &mut queue, &memory, 4)
        })
        .provoking(LOG),
    ]
}

/// What the machine's sleep must leave as it is.
fn sleeps() -> Vec<Case> {
    vec![
        on_card(
            "suspend.work-goes-on",
            "Queues go on after the machine's sleep with the work that was pending",
            |kfd| {
                let (mut queue, memory) = (kfd.queue(Ring::Pm4)?, kfd.buffer(PAGE, HOST)?);
                queue.submit(&wait_mem(5, memory.va + 8, 1, u32::MAX))?;
                queue.submit(&signal(Ring::Pm4, kfd.gfx()?, memory.va, 1))?;
                kfd.bench.sleep()?;
                same("before what it waits for", memory.view.read_u32(0)?, 0)?;
                memory.view.write_u32(8, 1)?;
                kfd.bench.word(&memory.view, 0, 1)?;
                does(kfd, &mut queue, &memory, 2)?;
                rounds(kfd, 1)
            },
        ),
        on_card(
            "suspend.memory-stays",
            "Memory of card and host keep what they hold over the machine's sleep",
            |kfd| {
                let (host, card) = (kfd.buffer(PAGE, HOST)?, kfd.buffer(VRAM_BYTES, CARD)?);
                for at in (0..PAGE).step_by(256) {
                    host.view.write_u32(at, at as u32 ^ 0x5a5a)?;
                    card.view.write_u32(at, at as u32 ^ 0xa5a5)?;
                }
                kfd.bench.sleep()?;
                for at in (0..PAGE).step_by(256) {
                    same("host memory", host.view.read_u32(at)?, at as u32 ^ 0x5a5a)?;
                    same("VRAM", card.view.read_u32(at)?, at as u32 ^ 0xa5a5)?;
                }
                Ok(())
            },
        ),
        on_card("suspend.event-stays", "An event that happened before the machine's sleep is there after it", |kfd| {
            let event = kfd.event(k::EVENT_SIGNAL, true)?;
            kfd.call(&k::SET_EVENT, &mut k::SetEvent { event_id: event, pad: 0 })?;
            kfd.bench.sleep()?;
            kfd.wait_for(event).map(|_| ())
        }),
    ]
}

fn signals() -> Vec<Case> {
    vec![
        on_card("signal.handler", "A signal with a handler ends a wait with EINTR; the wait can be repeated", |kfd| {
            let mut child = kfd.bench.child("handler")?;
            child.says("ready")?;
            child.interrupt_until_it_says("interrupted", Interruption::Handler)?;
            child.tell("set")?;
            child.end()
        }),
        on_card(
            "signal.stop-and-continue",
            "A stopped process's wait goes on, with the events that had happened before",
            |kfd| {
                let mut child = kfd.bench.child("restart")?;
                child.says("ready")?;
                kfd.bench.pause();
                child.interrupt(Interruption::Stop)?;
                kfd.bench.pause();
                child.tell("set")?;
                child.end()
            },
        ),
    ]
}

/// Waits until a signal ends the wait, then for an event that is set when the first process says so.
fn interrupted(kfd: &Kfd<'_>, cue: &Cue) -> Step {
    let_signals_interrupt()?;
    let event = kfd.event(k::EVENT_SIGNAL, true)?;
    let patience = u32::try_from(kfd.bench.patience.as_millis()).unwrap_or(LONG_MS);
    cue.tell("ready")?;
    same("the first wait", kfd.wait(&mut [asked(event)], false, patience), Err(Errno::EINTR))?;
    cue.tell("interrupted")?;
    cue.hear()?;
    kfd.call(&k::SET_EVENT, &mut k::SetEvent { event_id: event, pad: 0 })?;
    kfd.bench.until("the event", || match kfd.wait(&mut [asked(event)], false, patience) {
        // A signal more.
        Err(Errno::EINTR) => Ok(false),
        Ok(result) => Ok(result == k::WAIT_RESULT_COMPLETE),
        Err(errno) => Err(errno.into()),
    })
}

/// Waits for two events. One has happened before the process is stopped, and has been taken by the wait.
fn restarted(kfd: &Kfd<'_>, cue: &Cue) -> Step {
    let (first, second) = (kfd.event(k::EVENT_SIGNAL, true)?, kfd.event(k::EVENT_SIGNAL, true)?);
    let set = |event_id| kfd.call(&k::SET_EVENT, &mut k::SetEvent { event_id, pad: 0 });
    set(first)?;
    cue.tell("ready")?;
    let patience = u32::try_from(kfd.bench.patience.as_millis()).unwrap_or(LONG_MS);
    std::thread::scope(|scope| {
        let setter = scope.spawn(|| cue.hear().and_then(|_| Ok(set(second)?)));
        let result = kfd.wait(&mut [asked(first), asked(second)], true, patience);
        let set = setter.join().map_err(|_| Problem::failed("a thread panicked"))?;
        same("the wait for both", result?, k::WAIT_RESULT_COMPLETE).and(set)
    })
}

/// Names the last of many buffers, queues and events, which the first process has none of.
fn handles(kfd: &Kfd<'_>, cue: &Cue) -> Step {
    let (mut buffer, mut event) = (kfd.alloc(PAGE, HOST)?, kfd.event(k::EVENT_SIGNAL, true)?);
    for _ in 0..20 {
        (buffer, event) = (kfd.alloc(PAGE, HOST)?, kfd.event(k::EVENT_SIGNAL, true)?);
    }
    let mut queue = kfd.queue(Ring::Pm4)?;
    cue.tell(&format!("{} {} {event}", buffer.handle, queue.id))?;
    cue.hear()?;
    let memory = kfd.buffer(PAGE, HOST)?;
    does(kfd, &mut queue, &memory, 6)?;
    kfd.call(&k::SET_EVENT, &mut k::SetEvent { event_id: event, pad: 0 })?;
    kfd.free(&buffer)
}

/// An inheritable file of a buffer.
fn export(kfd: &Kfd<'_>, buffer: &Buffer) -> Step<u32> {
    let read_write = 2;
    let mut args = k::ExportDmabuf { handle: buffer.handle, flags: read_write, ..Default::default() };
    kfd.call(&k::EXPORT_DMABUF, &mut args)?;
    Ok(args.dmabuf_fd)
}

/// Maps the buffer that it was given. `pending`: leaves a queue waiting that would store to it.
fn import(kfd: &Kfd<'_>, cue: &Cue, pending: bool) -> Step {
    let dmabuf_fd = cue.number(0)? as u32;
    let mut args = k::ImportDmabuf { va_addr: VA, gpu_id: kfd.gpu_id, dmabuf_fd, handle: 0 };
    kfd.call(&k::IMPORT_DMABUF, &mut args)?;
    let cards = [kfd.gpu_id];
    kfd.call(&k::MAP_MEMORY_TO_GPU, &mut Kfd::map_args(args.handle, &cards))?;
    let (mut queue, done) = (kfd.queue(Ring::Pm4)?, kfd.buffer(PAGE, HOST)?);
    if pending {
        queue.submit(&[&wait_mem(5, VA + 8, 1, u32::MAX)[..], &write_data(VA, 1)].concat())?;
        kfd.bench.pause();
        return stay(cue);
    }
    queue.submit(&write_data(VA + 16, 77))?;
    does(kfd, &mut queue, &done, 1)?;
    stay(cue)?;
    queue.submit(&super::packets::copy_data(VA + 24, VA + 32))?;
    does(kfd, &mut queue, &done, 2)?;
    cue.tell("copied")?;
    kfd.destroy(&queue)?;
    let k::MapMemoryToGpu { handle, device_ids_array_ptr, n_devices, n_success } = Kfd::map_args(args.handle, &cards);
    kfd.call(
        &k::UNMAP_MEMORY_FROM_GPU,
        &mut k::UnmapMemoryFromGpu { handle, device_ids_array_ptr, n_devices, n_success },
    )?;
    kfd.call(&k::FREE_MEMORY_OF_GPU, &mut k::FreeMemoryOfGpu { handle: args.handle })?;
    // The port of a real process does not know the file, which ends with it.
    let _inherited = kfd.bench.port.close(Fd(dmabuf_fd.cast_signed()));
    Ok(())
}

fn forks() -> Vec<Case> {
    vec![
        unbound("fork.call", "A child of fork may not use the parent's file: EBADF", |kfd| {
            let here = Mapped::reserve(&kfd.bench.port, PAGE, PAGE)?;
            let mut version = k::GetVersion::default();
            let bytes = bytemuck::bytes_of_mut(&mut version);
            let seen = kfd.bench.forked(kfd.kfd, k::GET_VERSION.desc.request, bytes, here.base())?;
            same("GET_VERSION in the child", seen.answer, Err(Errno::EBADF))?;
            kfd.call(&k::GET_VERSION, &mut version)?;
            same("major version in the parent", version.major_version, 1)
        }),
        on_card("fork.mappings", "A child of fork has the parent's memory mapped, and no doorbells", |kfd| {
            let (queue, memory) = (kfd.queue(Ring::Pm4)?, kfd.buffer(PAGE, HOST)?);
            let slice = queue.args.doorbell_offset & !(k::DOORBELL_SLICE_BYTES - 1);
            let slice = MapRequest::file(kfd.kfd, slice, k::DOORBELL_SLICE_BYTES);
            let doorbells = Arc::new(Mapped::new(&kfd.bench.port, &slice)?);
            let ask = |at| {
                let mut version = [0; size_of::<k::GetVersion>()];
                kfd.bench.forked(kfd.kfd, k::GET_VERSION.desc.request, &mut version, at)
            };
            holds("memory is mapped", ask(memory.view.base())?.mapped)?;
            holds("doorbells are not", !ask(doorbells.base())?.mapped)
        }),
        on_card("fork.parent-goes-on", "The end of a child of fork leaves the parent's queues working", |kfd| {
            let (mut queue, memory) = (kfd.queue(Ring::Pm4)?, kfd.buffer(PAGE, HOST)?);
            does(kfd, &mut queue, &memory, 1)?;
            for value in 2..6 {
                let mut version = [0; size_of::<k::GetVersion>()];
                kfd.bench.forked(kfd.kfd, k::GET_VERSION.desc.request, &mut version, memory.view.base())?;
                does(kfd, &mut queue, &memory, value)?;
            }
            Ok(())
        }),
        unbound("fork.render-node", "A child of fork may ask the render node by the parent's file", |kfd| {
            let here = Mapped::reserve(&kfd.bench.port, PAGE, PAGE)?;
            let mut version = drm::Version::default();
            let bytes = bytemuck::bytes_of_mut(&mut version);
            let seen = kfd.bench.forked(kfd.render, drm::VERSION.desc.request, bytes, here.base())?;
            same("VERSION in the child", seen.answer, Ok(0))?;
            holds("a version", version.version_major > 0)
        }),
    ]
}
