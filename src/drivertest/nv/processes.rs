//! Several processes on one card, and what ends or interrupts one: fork, signals, kill -9 in each phase.
//!
//! Source: `nv.c`, `nv-mmap.c`, `escape.c`, `client.c`, `uvm.c` of the open kernel modules 595.45. What a file may do
//! is the file's, whichever process holds it: a child of fork goes on with it, and its end closes nothing.

use super::client::{Channel, Client, Device, PAGE, acquire, code, outcome, refused_as, release, want};
use super::events::{HOST, INTERRUPT, event, listening};
use super::memory::free_kib;
use super::methods::BAD_HEADER;
use super::{on_card, with_client};
use crate::bench::Bench;
use crate::case::{Case, Problem, Step, holds, same};
use crate::child::{Child, Cue, Interruption};
use doorbell_ioctl::abi::nvrm::{self as rm, Status};
use doorbell_ioctl::abi::uvm;
use doorbell_ioctl::port::{Errno, Fd, PollEvents, PollFd, let_signals_interrupt};

/// What the end of a process with channels, and a bad entry, leave in the kernel's log.
const LOG: &[&str] = &["Xid"];
const VRAM_BYTES: u64 = 8 << 20;
const VRAM_KIB: u32 = 8 << 10;
/// What the driver may keep of a process for the next one: its pools of page tables.
const KEPT_KIB: u32 = 4 << 10;
/// Rounds of two processes at once.
const ROUNDS: u64 = 50;
/// The longest wait of a process that is to be killed in it.
const LONG_MS: i32 = 60_000;
/// Phase, what the process has when it is killed.
const PHASES: &[(&str, &str)] = &[
    ("open", "A process that is killed with a client leaves nothing; a new one works"),
    ("bound", "A process that is killed with an address space leaves nothing; a new one works"),
    ("memory", "A process that is killed with memory mapped gives it back; a new one works"),
    ("channels", "A process that is killed with channels gives them back; a new one works"),
    ("pending", "A process that is killed with work pending leaves nothing; a new one works"),
    ("wait", "A process that is killed while it waits for an event leaves nothing; a new one works"),
];

pub(crate) fn cases() -> Vec<Case> {
    let kill = |(phase, what): &'static (&str, &str)| {
        on_card(&format!("kill.{phase}"), what, move |device| killed(device, phase))
    };
    let mut all: Vec<Case> = PHASES.iter().map(kill).collect();
    all.extend(kills());
    for case in &mut all {
        case.log = LOG;
    }
    all.extend(together());
    all.extend(signals());
    let mut all: Vec<Case> = all.into_iter().map(|case| case.beside(second)).collect();
    all.extend(forks());
    all.extend(sleeps());
    all
}

/// What the second process does, by part.
fn second(bench: &Bench, cue: &Cue) -> Step {
    if cue.part() == "open" {
        let client = Client::new(bench)?;
        cue.tell(&format!("ready {}", client.root))?;
        cue.hear()?;
        return client.end();
    }
    let device = Device::new(bench)?;
    match cue.part() {
        "bound" => stay(cue),
        "work" => rounds(&device, 1),
        "rounds" => cue.tell("ready").and_then(|()| cue.hear()).and_then(|_| rounds(&device, ROUNDS)),
        "memory" => {
            let (_host, _card) = (device.system(PAGE)?, device.vram(VRAM_BYTES)?);
            stay(cue)
        }
        "channels" => {
            let _channels = (device.compute()?, device.copy(0)?);
            rounds(&device, 1)?;
            stay(cue)
        }
        "pending" => {
            let (mut channel, page) = (device.copy(0)?, device.system(PAGE)?);
            channel.submit(&acquire(page.va, 1))?;
            bench.pause();
            stay(cue)
        }
        "wait" => listening(&device, |file| {
            want("ALLOC", event(&device, device.subdevice, file, HOST))?;
            cue.tell("ready")?;
            holds("an event", poll(&device, file, LONG_MS)? == Ok(true))
        }),
        "handler" => interrupted(&device, cue),
        "stop" => listening(&device, |file| {
            let mut channel = device.copy(0)?;
            want("ALLOC", event(&device, device.subdevice, file, HOST))?;
            channel.submit(&INTERRUPT)?;
            bench.pause();
            cue.tell("ready")?;
            cue.hear()?;
            holds("the event", poll(&device, file, patience(&device))? == Ok(true))
        }),
        "bad" => {
            let mut channel = device.copy(0)?;
            channel.submit(&[BAD_HEADER])?;
            same("the error", device.error(&channel)?, 32)?;
            stay(cue)
        }
        other => Err(Problem::failed(format!("no part is called {other}"))),
    }?;
    device.end()
}

/// Says that it is ready, and waits for a word or its end.
fn stay(cue: &Cue) -> Step {
    cue.tell("ready")?;
    cue.hear().map(|_| ())
}

/// A channel that does so many releases, one after the other.
fn rounds(device: &Device<'_>, count: u64) -> Step {
    let mut channel = device.compute()?;
    does(device, &mut channel, count)
}

fn does(device: &Device<'_>, channel: &mut Channel, count: u64) -> Step {
    let page = device.system(PAGE)?;
    for value in 1..=count {
        channel.submit(&release(page.va, value))?;
        device.word(&page.view, 0, value)?;
    }
    Ok(())
}

fn patience(device: &Device<'_>) -> i32 {
    i32::try_from(device.client.bench.patience.as_millis()).unwrap_or(LONG_MS)
}

fn poll(device: &Device<'_>, file: Fd, timeout_ms: i32) -> Step<Result<bool, Errno>> {
    let mut fds = [PollFd { fd: file, wanted: PollEvents::IN, seen: PollEvents::empty() }];
    Ok(device.client.bench.port.poll(&mut fds, timeout_ms).map(|ready| ready == 1))
}

/// Waits until a signal ends the wait, then for a channel's interrupt.
fn interrupted(device: &Device<'_>, cue: &Cue) -> Step {
    let_signals_interrupt()?;
    listening(device, |file| {
        let mut channel = device.copy(0)?;
        want("ALLOC", event(device, device.subdevice, file, HOST))?;
        cue.tell("ready")?;
        same("the first wait", poll(device, file, patience(device))?, Err(Errno::EINTR))?;
        cue.tell("interrupted")?;
        cue.hear()?;
        channel.submit(&INTERRUPT)?;
        device.client.bench.until("the event", || match poll(device, file, patience(device))? {
            // A signal more.
            Err(Errno::EINTR) => Ok(false),
            Ok(ready) => Ok(ready),
            Err(errno) => Err(errno.into()),
        })
    })
}

/// FREE of a client that is another process's.
fn free_other(device: &Device<'_>, root: u32) -> Result<(), Status> {
    let mut args = rm::RmFree { h_root: root, h_object_old: root, ..Default::default() };
    device.client.call(device.client.control, &rm::FREE, &mut args)?;
    outcome(args.status)
}

fn killed(device: &Device<'_>, phase: &str) -> Step {
    let mut channel = device.compute()?;
    // What the driver makes for the first other process, it may keep.
    device.client.bench.child("work")?.end()?;
    let free = free_kib(device)?;
    let mut child = device.client.bench.child(phase)?;
    let word = child.hear()?;
    holds("it is ready", word.starts_with("ready"))?;
    match phase {
        "memory" => holds("its memory is taken", free_kib(device)? + VRAM_KIB <= free)?,
        "wait" => device.client.bench.pause(),
        _ => {}
    }
    does(device, &mut channel, 1)?;
    child.kill()?;
    device.client.bench.until("its memory", || Ok(free_kib(device)? + KEPT_KIB >= free))?;
    if let Some(root) = word.strip_prefix("ready ").and_then(|root| root.parse().ok()) {
        // FREE tells of a client that is not there any more as of a handle.
        refused_as("its client", free_other(device, root), &[code::INVALID_OBJECT_HANDLE, code::INVALID_CLIENT])?;
    }
    does(device, &mut channel, 2)?;
    device.client.bench.child("work")?.end()
}

fn kills() -> Vec<Case> {
    vec![
        on_card("kill.spares-others", "A process that is killed leaves another one's channels working", |device| {
            let (mut channel, page) = (device.compute()?, device.system(PAGE)?);
            let mut child = device.client.bench.child("channels")?;
            child.says("ready")?;
            // Work that is under way when it happens.
            channel.submit(&acquire(page.va + 16, 1))?;
            channel.submit(&release(page.va, 5))?;
            child.kill()?;
            page.view.write_u64(16, 1)?;
            device.word(&page.view, 0, 5)?;
            device.is_well(&channel)
        }),
        on_card("kill.many", "Eight processes are killed one after the other; nothing is left of them", |device| {
            device.client.bench.child("work")?.end()?;
            let free = free_kib(device)?;
            for _ in 0..8 {
                let mut child = device.client.bench.child("memory")?;
                child.says("ready")?;
                child.kill()?;
            }
            device.client.bench.until("their memory", || Ok(free_kib(device)? + KEPT_KIB >= free))
        }),
    ]
}

fn together() -> Vec<Case> {
    vec![
        on_card("process.two-at-once", "Two processes work on one card at once", |device| {
            let mut child = device.client.bench.child("rounds")?;
            child.says("ready")?;
            child.tell("go")?;
            rounds(device, ROUNDS)?;
            child.end()
        }),
        on_card("process.five-at-once", "Five processes work at once, and end by themselves", |device| {
            let mut children = Vec::new();
            for _ in 0..4 {
                children.push(device.client.bench.child("rounds")?);
            }
            children.iter_mut().try_for_each(|child| child.says("ready"))?;
            children.iter_mut().try_for_each(|child| child.tell("go"))?;
            rounds(device, ROUNDS)?;
            children.into_iter().try_for_each(Child::end)
        }),
        on_card("process.vram-is-shared", "A process's VRAM is missing from what another one may have", |device| {
            let free = free_kib(device)?;
            let mut child = device.client.bench.child("memory")?;
            child.says("ready")?;
            holds("it is taken", free_kib(device)? + VRAM_KIB <= free)?;
            child.tell("end")?;
            child.end()?;
            device.client.bench.until("it comes back", || Ok(free_kib(device)? + KEPT_KIB >= free))
        }),
        on_card("process.client-is-its-own", "Another process's client is refused", |device| {
            let mut child = device.client.bench.child("open")?;
            let word = child.hear()?;
            let root = word.strip_prefix("ready ").and_then(|root| root.parse().ok());
            let root = root.ok_or_else(|| Problem::failed("it names its client"))?;
            refused_as("FREE", free_other(device, root), &[code::INVALID_CLIENT, code::INSUFFICIENT_PERMISSIONS])?;
            child.tell("end")?;
            child.end()
        }),
        on_card("process.error-is-its-own", "An error of a process's channel leaves another one's working", |device| {
            let mut channel = device.compute()?;
            let mut child = device.client.bench.child("bad")?;
            child.says("ready")?;
            does(device, &mut channel, 1)?;
            device.is_well(&channel)?;
            child.tell("end")?;
            child.end()
        })
        .provoking(LOG),
    ]
}

fn signals() -> Vec<Case> {
    vec![
        on_card(
            "signal.handler",
            "A signal with a handler ends a wait with EINTR; the wait can be repeated",
            |device| {
                let mut child = device.client.bench.child("handler")?;
                child.says("ready")?;
                child.interrupt_until_it_says("interrupted", Interruption::Handler)?;
                child.tell("go on")?;
                child.end()
            },
        ),
        on_card("signal.stop-and-continue", "An event of a process outlives that the process is stopped", |device| {
            let mut child = device.client.bench.child("stop")?;
            child.says("ready")?;
            child.interrupt(Interruption::Stop)?;
            child.tell("look")?;
            child.end()
        }),
    ]
}

/// What the machine's sleep must leave as it is.
fn sleeps() -> Vec<Case> {
    vec![
        on_card(
            "suspend.work-goes-on",
            "Channels go on after the card's sleep with the work that was pending",
            |device| {
                let (mut channel, page) = (device.compute()?, device.system(PAGE)?);
                channel.submit(&acquire(page.va + 16, 1))?;
                channel.submit(&release(page.va, 1))?;
                device.client.bench.sleep()?;
                same("before what it waits for", page.view.read_u64(0)?, 0)?;
                page.view.write_u64(16, 1)?;
                device.word(&page.view, 0, 1)?;
                does(device, &mut channel, 2)?;
                device.is_well(&channel)?;
                rounds(device, 1)
            },
        ),
        on_card(
            "suspend.memory-stays",
            "Memory of card and host keep what they hold over the card's sleep",
            |device| {
                let (host, card) = (device.system(PAGE)?, device.vram(VRAM_BYTES)?);
                for at in (0..PAGE).step_by(256) {
                    host.view.write_u32(at, at as u32 ^ 0x5a5a)?;
                    card.view.write_u32(at, at as u32 ^ 0xa5a5)?;
                }
                device.client.bench.sleep()?;
                for at in (0..PAGE).step_by(256) {
                    same("host memory", host.view.read_u32(at)?, at as u32 ^ 0x5a5a)?;
                    same("VRAM", card.view.read_u32(at)?, at as u32 ^ 0xa5a5)?;
                }
                Ok(())
            },
        ),
    ]
}

fn forks() -> Vec<Case> {
    vec![
        with_client("fork.objects", "A child of fork makes an object by the parent's file, which stays", |client| {
            let params = rm::DeviceAlloc { h_client_share: client.root, ..Default::default() };
            let _card = client.card(0)?;
            let mut params = std::hint::black_box(params);
            let mut args = rm::RmAlloc {
                h_root: client.root,
                h_object_parent: client.root,
                h_object_new: 0x5f0,
                h_class: rm::NV01_DEVICE_0,
                p_alloc_parms: (&raw mut params).expose_provenance() as u64,
                ..Default::default()
            };
            let at = doorbell_ioctl::port::CpuPtr(args.p_alloc_parms);
            let bytes = bytemuck::bytes_of_mut(&mut args);
            let seen = client.bench.forked(client.control, rm::ALLOC.desc.request, bytes, at)?;
            same("ALLOC in the child", (seen.answer, args.status), (Ok(0), 0))?;
            holds("memory is mapped in it", seen.mapped)?;
            want("FREE in the parent", client.free(0x5f0))?;
            want("a device in the parent", client.alloc_with(client.root, rm::NV01_DEVICE_0, &mut params)).map(|_| ())
        }),
        on_card(
            "fork.ranges",
            "A child of fork makes a range by the parent's UVM file, and the parent has it",
            |device| {
                let base = device.take_va(PAGE);
                let mut args = uvm::CreateExternalRange { base, length: PAGE, ..Default::default() };
                let at = doorbell_ioctl::port::CpuPtr((&raw const args).expose_provenance() as u64);
                let bytes = bytemuck::bytes_of_mut(&mut args);
                let request = uvm::CREATE_EXTERNAL_RANGE.desc.request;
                let seen = device.client.bench.forked(device.uvm, request, bytes, at)?;
                same("UVM_CREATE_EXTERNAL_RANGE in the child", (seen.answer, args.rm_status), (Ok(0), 0))?;
                super::client::refused("the same one", device.create_range(base, PAGE), code::UVM_ADDRESS_IN_USE)?;
                want("UVM_FREE in the parent", device.free_range(base, PAGE))
            },
        ),
        on_card("fork.parent-goes-on", "The end of a child of fork leaves the parent's channels working", |device| {
            let mut channel = device.compute()?;
            does(device, &mut channel, 1)?;
            for count in 1..4 {
                let mut args = rm::SysParams { memblock_size: 0 };
                let at = doorbell_ioctl::port::CpuPtr((&raw const args).expose_provenance() as u64);
                let bytes = bytemuck::bytes_of_mut(&mut args);
                device.client.bench.forked(device.client.control, rm::SYS_PARAMS.desc.request, bytes, at)?;
                does(device, &mut channel, count)?;
            }
            Ok(())
        }),
    ]
}
