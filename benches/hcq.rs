//! Host cost of the CPU device's queue: submission, replay, and a recorded list of 16 trivial kernels.
//! Budgets: submit <= 1 us, replay <= 200 ns a kernel on the queue, a recorded call of 16 trivial kernels <= 1 us.
//! Run with `cargo bench --bench hcq`.

use criterion::{Criterion, criterion_group, criterion_main};
use doorbell::device::cpu::{CpuDevice, CpuOptions};
use doorbell::device::{Arg, Code, Command, Device, KernelImage, Patch, QueueKind};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// `mov rax, [rdi]; mov rcx, [rdi+8]; add [rax], rcx; ret`: *args[0] += args[1].
const ADD: &[u8] = &[0x48, 0x8b, 0x07, 0x48, 0x8b, 0x4f, 0x08, 0x48, 0x01, 0x08, 0xc3];
const WAIT: Duration = Duration::from_secs(10);

fn additions(device: &CpuDevice, count: usize) -> Vec<Command> {
    let kernel = device.load(&[KernelImage { name: "add", code: Code::Raw(ADD) }]).expect("load").remove(0);
    let buffer = || Arg::Buffer(device.alloc(64).expect("alloc").at(0));
    (0..count).map(|_| Command::exec(&kernel, [buffer(), Arg::Var(1)], 1)).collect()
}

fn open(inline_ns: u64) -> CpuDevice {
    CpuDevice::open("CPU", &CpuOptions { inline_ns, ..CpuOptions::default() }).expect("open")
}

/// The host's part of `step`, batches of 100 with a wait between them that is not counted.
fn host_time(device: &CpuDevice, iterations: u64, mut step: impl FnMut()) -> Duration {
    let mut total = Duration::ZERO;
    let mut left = iterations;
    while left > 0 {
        let batch = left.min(100);
        let start = Instant::now();
        (0..batch).for_each(|_| step());
        total += start.elapsed();
        device.synchronize(WAIT).expect("synchronize");
        left -= batch;
    }
    total
}

fn benches(c: &mut Criterion) {
    let device = open(0);
    let one = additions(&device, 1);
    c.bench_function("submit one kernel: host", |b| {
        b.iter_custom(|n| host_time(&device, n, || drop(black_box(device.submit(QueueKind::Compute, &one)))));
    });
    c.bench_function("submit one kernel and wait", |b| {
        b.iter(|| device.submit(QueueKind::Compute, &one).and_then(|p| device.wait(&p, WAIT)));
    });
    let sixteen = additions(&device, 16);
    let mut queued = device.record(&sixteen).expect("record");
    c.bench_function("replay 16 kernels on the queue: host", |b| {
        b.iter_custom(|n| host_time(&device, n, || drop(black_box(queued.replay(&[])))));
    });
    let patch: Vec<Patch> = (0..16).map(|command| Patch::Arg { command, arg: 1, value: Arg::Var(2) }).collect();
    c.bench_function("replay 16 kernels, 16 patches, on the queue: host", |b| {
        b.iter_custom(|n| host_time(&device, n, || drop(black_box(queued.replay(&patch)))));
    });
    c.bench_function("replay 16 kernels on the queue and wait", |b| {
        b.iter(|| queued.replay(&[]).and_then(|p| device.wait(&p, WAIT)));
    });
    let idle = open(u64::MAX);
    let sixteen = additions(&idle, 16);
    let mut here = idle.record(&sixteen).expect("record");
    c.bench_function("replay 16 kernels on the submitting thread", |b| {
        b.iter(|| here.replay(&[]).and_then(|p| idle.wait(&p, WAIT)));
    });
}

criterion_group! {
    name = hcq;
    config = Criterion::default().measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    targets = benches
}
criterion_main!(hcq);
