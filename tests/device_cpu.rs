//! The CPU device from outside: kernels made of hand-assembled bytes, ordering, deadlines, replays, shutdown, stress.
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

use code::{ADD, COUNT, HOLD, IOTA, STEP};
use doorbell::device::cpu::{CpuDevice, CpuOptions};
use doorbell::device::{
    Arg, Code, Command, Device, DeviceError, Kernel, KernelImage, Memory, Patch, QueueKind, time_command,
};
use doorbell::hcq::error::SubmitError;
use doorbell::hcq::memory::View;
use doorbell::hcq::signal::{SignalPool, Timeline, WaitBy, WaitError};
use std::sync::Arc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);

/// The kernels.
#[cfg(target_arch = "x86_64")]
mod code {
    /// `mov rax, [rdi]; mov rcx, [rdi+8]; add [rax], rcx; ret`: *args[0] += args[1].
    pub const ADD: &[u8] = &[0x48, 0x8b, 0x07, 0x48, 0x8b, 0x4f, 0x08, 0x48, 0x01, 0x08, 0xc3];
    /// `mov rax, [rdi]; mov [rax+rsi*8], rsi; ret`: args[0][tid] = tid.
    pub const IOTA: &[u8] = &[0x48, 0x8b, 0x07, 0x48, 0x89, 0x34, 0xf0, 0xc3];
    /// `mov rax, [rdi]; lock inc qword [rax+rsi*8]; ret`: args[0][tid] += 1.
    pub const COUNT: &[u8] = &[0x48, 0x8b, 0x07, 0xf0, 0x48, 0xff, 0x04, 0xf0, 0xc3];
    /// `mov rax, [rdi]; mov rcx, [rdi+8]; mov rdx, [rcx]; imul rdx, rdx, 3; inc rdx; mov [rax], rdx; ret`: *args[0] =
    /// 3 * *args[1] + 1.
    pub const STEP: &[u8] = &[
        0x48, 0x8b, 0x07, 0x48, 0x8b, 0x4f, 0x08, 0x48, 0x8b, 0x11, 0x48, 0x6b, 0xd2, 0x03, 0x48, 0xff, 0xc2, 0x48,
        0x89, 0x10, 0xc3,
    ];
    /// `mov rax, [rdi]; l: pause; cmp qword [rax], 0; je l; ret`: spins until *args[0] is set.
    pub const HOLD: &[u8] = &[0x48, 0x8b, 0x07, 0xf3, 0x90, 0x48, 0x83, 0x38, 0x00, 0x74, 0xf8, 0xc3];
}

/// The same kernels.
#[cfg(target_arch = "aarch64")]
mod code {
    /// `ldr x2, [x0]; ldr x3, [x0, #8]; ldr x4, [x2]; add x4, x4, x3; str x4, [x2]; ret`.
    pub const ADD: &[u8] = &[
        0x02, 0x00, 0x40, 0xf9, 0x03, 0x04, 0x40, 0xf9, 0x44, 0x00, 0x40, 0xf9, 0x84, 0x00, 0x03, 0x8b, 0x44, 0x00,
        0x00, 0xf9, 0xc0, 0x03, 0x5f, 0xd6,
    ];
    /// `ldr x2, [x0]; str x1, [x2, x1, lsl #3]; ret`.
    pub const IOTA: &[u8] = &[0x02, 0x00, 0x40, 0xf9, 0x41, 0x78, 0x21, 0xf8, 0xc0, 0x03, 0x5f, 0xd6];
    /// `ldr x2, [x0]; add x2, x2, x1, lsl #3; l: ldaxr x3, [x2]; add x3, x3, #1; stlxr w4, x3, [x2]; cbnz w4, l; ret`.
    pub const COUNT: &[u8] = &[
        0x02, 0x00, 0x40, 0xf9, 0x42, 0x0c, 0x01, 0x8b, 0x43, 0xfc, 0x5f, 0xc8, 0x63, 0x04, 0x00, 0x91, 0x43, 0xfc,
        0x04, 0xc8, 0xa4, 0xff, 0xff, 0x35, 0xc0, 0x03, 0x5f, 0xd6,
    ];
    /// `ldr x2, [x0]; ldr x3, [x0, #8]; ldr x3, [x3]; add x3, x3, x3, lsl #1; add x3, x3, #1; str x3, [x2]; ret`.
    pub const STEP: &[u8] = &[
        0x02, 0x00, 0x40, 0xf9, 0x03, 0x04, 0x40, 0xf9, 0x63, 0x00, 0x40, 0xf9, 0x63, 0x04, 0x03, 0x8b, 0x63, 0x04,
        0x00, 0x91, 0x43, 0x00, 0x00, 0xf9, 0xc0, 0x03, 0x5f, 0xd6,
    ];
    /// `ldr x2, [x0]; l: yield; ldar x3, [x2]; cbz x3, l; ret`.
    pub const HOLD: &[u8] = &[
        0x02, 0x00, 0x40, 0xf9, 0x3f, 0x20, 0x03, 0xd5, 0x43, 0xfc, 0xdf, 0xc8, 0xc3, 0xff, 0xff, 0xb4, 0xc0, 0x03,
        0x5f, 0xd6,
    ];
}

fn open(options: CpuOptions) -> CpuDevice {
    CpuDevice::open("CPU", &options).unwrap()
}

fn two_threads() -> CpuDevice {
    open(CpuOptions { threads: 2, ..CpuOptions::default() })
}

fn load(device: &dyn Device, code: &[u8]) -> Kernel {
    device.load(&[KernelImage { name: "k", code: Code::Raw(code) }]).unwrap().remove(0)
}

fn words(device: &dyn Device, values: &[u64]) -> Memory {
    let memory = device.alloc(values.len() as u64 * 8).unwrap();
    device.copy_in(&memory, 0, bytemuck::cast_slice(values)).unwrap();
    memory
}

fn read(device: &dyn Device, memory: &Memory) -> Vec<u64> {
    let mut out = vec![0u64; (memory.len_bytes() / 8) as usize];
    device.copy_out(memory, 0, bytemuck::cast_slice_mut(&mut out)).unwrap();
    out
}

fn buffer(memory: &Memory) -> Arg {
    Arg::Buffer(memory.at(0))
}

#[test]
fn kernel_gets_addresses_and_variables() {
    let d = two_threads();
    let (k, m) = (load(&d, ADD), words(&d, &[10, 20]));
    let add = |at, by| Command::exec(&k, [Arg::Buffer(m.at(at)), Arg::Var(by)], 1);
    d.submit(QueueKind::Compute, &[add(0, 5), add(8, -21)]).unwrap();
    assert_eq!(read(&d, &m), [15, u64::MAX]);
}

#[cfg(target_arch = "x86_64")]
/// Tables and function pointers at fixed addresses: without -fPIC these are fields of 32 bits.
#[cfg(target_arch = "x86_64")]
const FIXED_PLACE: &str = r"
    typedef unsigned long u64;
    void *memcpy(void *, const void *, u64);
    static const u64 table[8] = {3, 1, 4, 1, 5, 9, 2, 6};
    static u64 state[8];
    static u64 twice(u64 x) { return 2 * x; }
    static u64 thrice(u64 x) { return 3 * x; }
    static u64 (*const calls[2])(u64) = {twice, thrice};
    void kernel(const u64 *args, u64 tid) {
        u64 *out = (u64 *)args[0];
        memcpy(state, table, args[1]);
        out[tid] = 100 * calls[tid & 1](table[tid]) + state[0];
    }";

#[cfg(target_arch = "x86_64")]
#[test]
fn object_of_gcc_for_a_fixed_place_runs_in_low_memory() {
    let dir = tempfile::tempdir().unwrap();
    let (source, object) = (dir.path().join("k.c"), dir.path().join("k.o"));
    std::fs::write(&source, FIXED_PLACE).unwrap();
    let gcc = std::process::Command::new("gcc").args(["-O2", "-fno-pie", "-c", "-o"]).args([&object, &source]).status();
    assert!(gcc.unwrap().success());
    let bytes = std::fs::read(&object).unwrap();
    assert!(doorbell::elf::link(&bytes).unwrap().needs_low_2gib(), "gcc made code for any place");
    let d = two_threads();
    let code = Code::Elf { bytes: &bytes, entry: "kernel" };
    let k = d
        .load(&[KernelImage { name: "k", code }, KernelImage { name: "add", code: Code::Raw(ADD) }])
        .unwrap()
        .remove(0);
    assert!(k.entry() < 1 << 31);
    let out = words(&d, &[0; 8]);
    d.submit(QueueKind::Compute, &[Command::exec(&k, [buffer(&out), Arg::Var(64)], 8)]).unwrap();
    d.synchronize(LONG).unwrap();
    assert_eq!(read(&d, &out), [603, 303, 803, 303, 1003, 2703, 403, 1803]);
}

#[test]
fn chunks_cover_each_thread_id_once() {
    for threads in [1, 2, 4] {
        let d = open(CpuOptions { threads, ..CpuOptions::default() });
        let (k, m) = (load(&d, COUNT), words(&d, &[0; 1000]));
        for _ in 0..20 {
            d.submit(QueueKind::Compute, &[Command::exec(&k, [buffer(&m)], 1000)]).unwrap();
        }
        assert_eq!(read(&d, &m), [20; 1000], "{threads} threads");
    }
}

#[test]
fn kernel_of_zero_threads_does_nothing() {
    let d = two_threads();
    let (k, m) = (load(&d, IOTA), words(&d, &[7]));
    d.submit(QueueKind::Compute, &[Command::exec(&k, [buffer(&m)], 0)]).unwrap();
    assert_eq!(read(&d, &m), [7]);
}

#[test]
fn work_goes_on_while_the_host_does_not_wait() {
    let d = two_threads();
    let (k, m) = (load(&d, ADD), words(&d, &[0]));
    std::thread::sleep(Duration::from_millis(5)); // the worker is asleep by now
    let p = d.submit(QueueKind::Compute, &[Command::exec(&k, [buffer(&m), Arg::Var(1)], 1)]).unwrap();
    let start = std::time::Instant::now();
    while !p.is_done() {
        assert!(start.elapsed() < LONG, "nobody runs the queue");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn memory_of_the_program_is_used_where_it_is() {
    let d = two_threads();
    let (k, own) = (load(&d, IOTA), View::anonymous(4096, 64).unwrap());
    let wrapped = d.wrap_host(&own.sub(8, 800).unwrap()).unwrap();
    let point = d.submit(QueueKind::Compute, &[Command::exec(&k, [buffer(&wrapped)], 100)]).unwrap();
    d.wait(&point, LONG).unwrap();
    let mut seen = [0u64; 102];
    own.read(0, bytemuck::cast_slice_mut(&mut seen)).unwrap();
    assert!(seen[0] == 0 && seen[1..101].iter().copied().eq(0..100) && seen[101] == 0);
}

#[test]
fn a_host_may_spin_or_sleep_until_its_work_is_done() {
    for by in [WaitBy::Options, WaitBy::Spin, WaitBy::Sleep] {
        for kind in [QueueKind::Compute, QueueKind::Copy] {
            let d = two_threads();
            let (k, a, b) = (load(&d, ADD), words(&d, &[0]), words(&d, &[9]));
            let command = match kind {
                QueueKind::Compute => Command::exec(&k, [buffer(&a), Arg::Var(2)], 1),
                QueueKind::Copy | QueueKind::CopyEngine(_) => Command::copy(a.at(0), b.at(0), 8),
            };
            for _ in 0..100 {
                let point = d.submit(kind, std::slice::from_ref(&command)).unwrap();
                point.wait_by(LONG, by).unwrap();
                assert!(point.is_done() && point.timeline().lacks(by).is_none());
            }
            assert_eq!(read(&d, &a), [if kind == QueueKind::Compute { 200 } else { 9 }]);
        }
    }
    // Without workers the host is the one that runs the work, however it wants to wait.
    let d = open(CpuOptions { threads: 1, workers: Some(0), ..CpuOptions::default() });
    let (k, a) = (load(&d, ADD), words(&d, &[0]));
    let point = d.submit(QueueKind::Compute, &[Command::exec(&k, [buffer(&a), Arg::Var(2)], 1)]).unwrap();
    assert!(point.timeline().lacks(WaitBy::Options).is_none());
    assert!(point.timeline().lacks(WaitBy::Spin).unwrap().contains("no worker threads"));
    point.wait_by(LONG, WaitBy::Sleep).unwrap();
    assert_eq!(read(&d, &a), [2]);
}

#[test]
fn copy_queue_orders_itself_after_the_kernels_it_reads() {
    let d = two_threads();
    let (k, gate) = (load(&d, HOLD), words(&d, &[0]));
    let add = load(&d, ADD);
    let (a, b) = (words(&d, &[1]), words(&d, &[0]));
    let hold = Command::exec(&k, [buffer(&gate)], 1);
    let inc = Command::exec(&add, [buffer(&a), Arg::Var(41)], 1);
    d.submit(QueueKind::Compute, &[hold, inc]).unwrap();
    let copied = d.submit(QueueKind::Copy, &[Command::copy(b.at(0), a.at(0), 8)]).unwrap();
    std::thread::sleep(Duration::from_millis(10));
    assert!(!copied.is_done(), "the copy overtook the kernel");
    gate.host().unwrap().write(0, &1u64.to_le_bytes()).unwrap();
    copied.wait(LONG).unwrap();
    assert_eq!(read(&d, &b), [42]);
}

#[test]
fn kernel_after_a_copy_on_the_other_queue_sees_its_bytes() {
    let d = two_threads();
    let k = load(&d, STEP);
    let (a, b, c) = (words(&d, &[5]), words(&d, &[0]), words(&d, &[0]));
    for _ in 0..200 {
        d.submit(QueueKind::Copy, &[Command::copy(b.at(0), a.at(0), 8)]).unwrap();
        d.submit(QueueKind::Compute, &[Command::exec(&k, [buffer(&c), buffer(&b)], 1)]).unwrap();
        d.submit(QueueKind::Copy, &[Command::copy(a.at(0), c.at(0), 8)]).unwrap();
    }
    let want = (0..200).fold(5u64, |x, _| x.wrapping_mul(3).wrapping_add(1));
    assert_eq!(read(&d, &a), [want]);
}

#[test]
fn two_devices_take_turns_on_shared_memory() {
    let options = CpuOptions { threads: 2, ..CpuOptions::default() };
    let d0 = CpuDevice::open("CPU", &options).unwrap();
    let d1 = CpuDevice::open("CPU:1", &options).unwrap();
    let (k0, k1) = (load(&d0, STEP), load(&d1, STEP));
    let (a, b) = (words(&d0, &[1]), words(&d1, &[0]));
    for _ in 0..100 {
        d1.submit(QueueKind::Compute, &[Command::exec(&k1, [buffer(&b), buffer(&a)], 1)]).unwrap();
        d0.submit(QueueKind::Compute, &[Command::exec(&k0, [buffer(&a), buffer(&b)], 1)]).unwrap();
    }
    let want = (0..200).fold(1u64, |x, _| x.wrapping_mul(3).wrapping_add(1));
    assert_eq!(read(&d0, &a), [want]);
}

#[test]
fn explicit_wait_orders_unrelated_work_on_two_devices() {
    let options = CpuOptions { threads: 2, ..CpuOptions::default() };
    let d0 = CpuDevice::open("CPU", &options).unwrap();
    let d1 = CpuDevice::open("CPU:1", &options).unwrap();
    let gate = words(&d0, &[0]);
    let held = d0.submit(QueueKind::Compute, &[Command::exec(&load(&d0, HOLD), [buffer(&gate)], 1)]).unwrap();
    let m = words(&d1, &[0]);
    let add = Command::exec(&load(&d1, ADD), [buffer(&m), Arg::Var(1)], 1);
    let after = d1.submit(QueueKind::Compute, &[Command::Wait(held.clone()), add]).unwrap();
    let Err(WaitError::Timeout(report)) = after.wait(Duration::from_millis(10)) else { panic!("no timeout") };
    assert_eq!(report.queue, "CPU:1/compute");
    assert_eq!(report.tail[0], format!("WAIT [{:#x}] >= 1", held.timeline().signal().va()));
    gate.host().unwrap().write(0, &1u64.to_le_bytes()).unwrap();
    after.wait(LONG).unwrap();
    assert_eq!(read(&d1, &m), [1]);
}

#[test]
fn wait_past_its_deadline_returns_a_report_of_the_queue() {
    let d = open(CpuOptions { threads: 2, host_helps: false, ..CpuOptions::default() });
    let gate = words(&d, &[0]);
    let (hold, add) = (load(&d, HOLD), load(&d, ADD));
    let m = words(&d, &[0]);
    let commands = [Command::exec(&hold, [buffer(&gate)], 1), Command::exec(&add, [buffer(&m), Arg::Var(1)], 1)];
    let point = d.submit(QueueKind::Compute, &commands).unwrap();
    let error = d.wait(&point, Duration::from_millis(20)).unwrap_err();
    let DeviceError::Wait(WaitError::Timeout(report)) = &error else { panic!("{error}") };
    assert_eq!((report.queue.as_str(), report.timeout_ms), ("CPU/compute", 20));
    assert_eq!(report.signals, [("timeline".to_string(), 0, 1)]);
    assert!(report.rptr < report.wptr);
    assert!(report.tail[0].starts_with(&format!("EXEC {:#x} kernargs", hold.entry())), "{error}");
    assert!(report.tail.last().unwrap().starts_with("SIGNAL"), "{error}");
    assert!(!error.to_string().contains('\n'));
    gate.host().unwrap().write(0, &1u64.to_le_bytes()).unwrap();
    d.wait(&point, LONG).unwrap();
    assert_eq!(read(&d, &m), [1]);
}

#[test]
fn ring_and_kernargs_wrap_many_times() {
    let d = open(CpuOptions { threads: 2, ring_dwords: 32, kernargs_words: 16, ..CpuOptions::default() });
    let (k, m) = (load(&d, ADD), words(&d, &[0]));
    for n in 0..2000 {
        d.submit(QueueKind::Compute, &[Command::exec(&k, [buffer(&m), Arg::Var(n)], 1)]).unwrap();
    }
    assert_eq!(read(&d, &m), [1999 * 2000 / 2]);
}

#[test]
fn list_longer_than_the_ring_runs_in_pieces() {
    let d = open(CpuOptions { threads: 2, ring_dwords: 16, ..CpuOptions::default() });
    let (k, m) = (load(&d, ADD), words(&d, &[0]));
    let list: Vec<Command> = (0..100).map(|n| Command::exec(&k, [buffer(&m), Arg::Var(n)], 1)).collect();
    d.submit(QueueKind::Compute, &list).unwrap();
    assert_eq!(read(&d, &m), [4950]);
}

#[test]
fn list_with_more_kernargs_than_the_ring_is_refused_and_the_queue_lives() {
    let d = open(CpuOptions { threads: 2, kernargs_words: 16, ..CpuOptions::default() });
    let (k, m) = (load(&d, ADD), words(&d, &[0]));
    let list: Vec<Command> = (0..10).map(|n| Command::exec(&k, [buffer(&m), Arg::Var(n)], 1)).collect();
    assert!(matches!(d.submit(QueueKind::Compute, &list), Err(DeviceError::Submit(SubmitError::Kernargs(_)))));
    d.submit(QueueKind::Compute, &list[1..3]).unwrap();
    assert_eq!(read(&d, &m), [3]);
}

#[test]
fn replay_changes_only_what_is_patched() {
    for inline_ns in [0, u64::MAX] {
        let d = open(CpuOptions { threads: 2, inline_ns, ..CpuOptions::default() });
        let k = load(&d, ADD);
        let (a, b, c) = (words(&d, &[0]), words(&d, &[0]), words(&d, &[9]));
        let list = [
            Command::exec(&k, [buffer(&a), Arg::Var(1)], 1),
            Command::exec(&k, [buffer(&b), Arg::Var(10)], 1),
            Command::copy(c.at(0), b.at(0), 8),
        ];
        let mut graph = d.record(&list).unwrap();
        for _ in 0..100 {
            graph.replay(&[]).unwrap();
        }
        let var = Patch::Arg { command: 0, arg: 1, value: Arg::Var(1000) };
        let swap = Patch::Arg { command: 1, arg: 0, value: buffer(&a) };
        let wide = Patch::Threads { command: 1, threads: 3 };
        let p = graph.replay(&[var, swap, wide]).unwrap();
        d.wait(&p, LONG).unwrap();
        assert_eq!(
            (read(&d, &a), read(&d, &b), read(&d, &c)),
            (vec![1130], vec![1000], vec![1000]),
            "inline {inline_ns}"
        );
        let source = Patch::Arg { command: 2, arg: 1, value: buffer(&a) };
        graph.replay(&[source]).unwrap();
        assert_eq!(read(&d, &c), [2160]);
    }
}

#[test]
fn replays_in_flight_keep_their_own_patches() {
    let d = open(CpuOptions { threads: 2, inline_ns: 0, host_helps: false, ..CpuOptions::default() });
    let (hold, add) = (load(&d, HOLD), load(&d, ADD));
    let (gate, m) = (words(&d, &[0]), words(&d, &[0]));
    let mut graph = d.record(&[Command::exec(&add, [buffer(&m), Arg::Var(0)], 1)]).unwrap();
    d.submit(QueueKind::Compute, &[Command::exec(&hold, [buffer(&gate)], 1)]).unwrap();
    for n in 1..=50 {
        graph.replay(&[Patch::Arg { command: 0, arg: 1, value: Arg::Var(n) }]).unwrap();
    }
    drop(graph);
    drop(add);
    gate.host().unwrap().write(0, &1u64.to_le_bytes()).unwrap();
    assert_eq!(read(&d, &m), [1275]);
}

#[test]
fn patch_of_a_place_that_is_not_there_is_an_error() {
    let d = two_threads();
    let (k, m) = (load(&d, ADD), words(&d, &[0]));
    let list = [Command::exec(&k, [buffer(&m), Arg::Var(1)], 1), Command::copy(m.at(0), m.at(0), 8)];
    let mut graph = d.record(&list).unwrap();
    let bad = [
        Patch::Arg { command: 0, arg: 2, value: Arg::Var(0) },
        Patch::Arg { command: 2, arg: 0, value: Arg::Var(0) },
        Patch::Arg { command: 1, arg: 0, value: Arg::Var(0) },
        Patch::Threads { command: 1, threads: 2 },
    ];
    for patch in bad {
        let error = graph.replay(std::slice::from_ref(&patch)).unwrap_err();
        assert!(matches!(error, DeviceError::Submit(SubmitError::Patch { .. })), "{patch:?}: {error}");
    }
    let long = Patch::Arg { command: 1, arg: 2, value: Arg::Var(9) };
    assert!(matches!(graph.replay(&[long]), Err(DeviceError::Range { .. })));
    assert_eq!(read(&d, &m), [0]);
}

#[test]
fn wait_cannot_be_recorded() {
    let d = two_threads();
    let timeline = Timeline::new("x".into(), SignalPool::new().signal().unwrap());
    assert!(matches!(d.record(&[Command::Wait(timeline.point(1))]), Err(DeviceError::Unsupported { .. })));
}

#[test]
fn stamps_bracket_the_command() {
    let d = two_threads();
    let (k, m) = (load(&d, ADD), words(&d, &[0]));
    let times = time_command(&d, &Command::exec(&k, [buffer(&m), Arg::Var(1)], 10_000), 3, LONG).unwrap();
    assert_eq!(times.len(), 3);
    assert!(times.iter().all(|&ns| ns > 1000), "10,000 chunks in {times:?} ns");
}

#[test]
fn freed_memory_is_not_reused_under_a_running_kernel() {
    let d = two_threads();
    let (hold, add, gate) = (load(&d, HOLD), load(&d, ADD), words(&d, &[0]));
    let m = words(&d, &[1]);
    let va = m.va();
    let list = [Command::exec(&hold, [buffer(&gate)], 1), Command::exec(&add, [buffer(&m), Arg::Var(100)], 1)];
    d.submit(QueueKind::Compute, &list).unwrap();
    drop((list, m));
    let again = d.alloc(8).unwrap();
    assert_eq!(again.va(), va, "the block is reused");
    let opener = {
        let gate = gate.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(10));
            gate.host().unwrap().write(0, &1u64.to_le_bytes()).unwrap();
        })
    };
    // The host's bytes must come after the old owner's kernel.
    d.copy_in(&again, 0, &5u64.to_le_bytes()).unwrap();
    opener.join().unwrap();
    assert_eq!(read(&d, &again), [5]);
}

#[test]
fn wrong_arguments_are_refused_before_anything_runs() {
    let d = two_threads();
    let other = two_threads();
    let (k, m) = (load(&d, ADD), words(&d, &[0]));
    let foreign = load(&other, ADD);
    let submit = |c: Command| d.submit(QueueKind::Compute, &[c]).unwrap_err();
    assert!(matches!(submit(Command::exec(&foreign, [], 1)), DeviceError::WrongDevice { what: "kernel", .. }));
    assert!(matches!(submit(Command::exec(&k, [Arg::Buffer(m.at(9))], 1)), DeviceError::Range { .. }));
    assert!(matches!(submit(Command::copy(m.at(1), m.at(0), 8)), DeviceError::Range { .. }));
    let on_copy = d.submit(QueueKind::Copy, &[Command::exec(&k, [], 1)]).unwrap_err();
    assert_eq!(on_copy.to_string(), "copy queue cannot run kernels");
    assert!(matches!(other.copy_in(&m, 0, &[0]), Err(DeviceError::WrongDevice { .. })));
    assert!(matches!(d.copy_out(&m, 1, &mut [0; 8]), Err(DeviceError::Range { .. })));
}

#[test]
fn closed_device_refuses_work_and_ends_its_threads() {
    let d = open(CpuOptions { threads: 4, ..CpuOptions::default() });
    let (k, m) = (load(&d, ADD), words(&d, &[0]));
    let list = [Command::exec(&k, [buffer(&m), Arg::Var(1)], 1)];
    let mut graph = d.record(&list).unwrap();
    d.submit(QueueKind::Copy, &[Command::copy(m.at(0), m.at(0), 8)]).unwrap();
    for _ in 0..100 {
        d.submit(QueueKind::Compute, &list).unwrap();
    }
    d.close().unwrap();
    d.close().unwrap();
    assert_eq!(read(&d, &m), [100], "close waits for the queued work");
    assert!(matches!(d.submit(QueueKind::Compute, &list), Err(DeviceError::Closed { .. })));
    assert!(matches!(graph.replay(&[]), Err(DeviceError::Closed { .. })));
    drop(d);
    assert!(matches!(graph.replay(&[]), Err(DeviceError::Closed { .. })));
}

#[test]
fn device_that_hangs_can_still_be_dropped() {
    let d = open(CpuOptions { threads: 2, host_helps: false, ..CpuOptions::default() });
    let gate = words(&d, &[0]);
    let point = d.submit(QueueKind::Compute, &[Command::exec(&load(&d, HOLD), [buffer(&gate)], 1)]).unwrap();
    drop(d);
    assert!(matches!(point.wait(LONG), Err(WaitError::Lost { .. })));
    gate.host().unwrap().write(0, &1u64.to_le_bytes()).unwrap();
}

#[test]
fn stress_many_hosts_on_one_queue() {
    let d = Arc::new(open(CpuOptions {
        threads: 3,
        spin_ns: 1000,
        ring_dwords: 256,
        kernargs_words: 256,
        ..CpuOptions::default()
    }));
    let k = load(&*d, ADD);
    let count = load(&*d, COUNT);
    let threads: Vec<_> = (0..4u64)
        .map(|n| {
            let (d, k, count) = (Arc::clone(&d), k.clone(), count.clone());
            std::thread::spawn(move || {
                let (m, c) = (words(&*d, &[0]), words(&*d, &[0; 16]));
                let mut graph = d.record(&[Command::exec(&k, [buffer(&m), Arg::Var(1)], 1)]).unwrap();
                for i in 0..1000u64 {
                    let p = d.submit(QueueKind::Compute, &[Command::exec(&count, [buffer(&c)], 16)]).unwrap();
                    graph.replay(&[]).unwrap();
                    if i % (n + 2) == 0 {
                        d.wait(&p, LONG).unwrap();
                    }
                    if i % 97 == 0 {
                        std::thread::sleep(Duration::from_micros(300));
                    }
                }
                assert_eq!((read(&*d, &m), read(&*d, &c)), (vec![1000], vec![1000; 16]));
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    d.synchronize(LONG).unwrap();
    assert_eq!(d.memory_used(), 0);
}
