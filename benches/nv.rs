//! Host cost of NVIDIA's queues on a null-cost port: calls answered by the software driver while the device is set up,
//! doorbells that cost nothing. Budgets (docs/architecture.md, 5): a launch (QMD, bank, push buffer, doorbell) <= 500
//! ns; a replayed graph <= 100 ns a kernel. Run with `cargo bench --bench nv`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use doorbell::device::nv::{Driver, NvDevice, NvOptions, Selector};
use doorbell::device::{Arg, Code, Command, Device, Geometry, KernelImage, Memory, QueueKind};
use doorbell::emu::nvrm::compute::{Compute, ComputeFault, Launch, Machine};
use doorbell::emu::nvrm::{Chip, Config, SoftNv};
use null_cost::NullCost;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

#[path = "support/null_cost.rs"]
mod null_cost;

const CUBIN: &[u8] = include_bytes!("../tests/data/cubin/device_sm90.cubin");
/// Replays that are in flight at most before one waits for another.
const COPIES: u64 = 4;

/// SMs for which every grid is done at once.
#[derive(Debug)]
struct Done;

impl Compute for Done {
    fn run(&self, _: &Launch, _: &Machine<'_>) -> Result<(), ComputeFault> {
        Ok(())
    }
}

/// A device on the port.
struct Rig {
    port: Arc<NullCost>,
    device: NvDevice,
}

impl Rig {
    fn new() -> Self {
        let port =
            NullCost::new(SoftNv::with_compute(Config::new(Chip::Sm90), Arc::new(Done)).expect("software driver"));
        let driver = Driver::open("NV", Arc::clone(&port) as _, false).expect("driver");
        let device = NvDevice::open("NV", &driver, &Selector::Index(0), &NvOptions::default()).expect("device");
        Self { port, device }
    }

    /// Identical kernels, each on a buffer of its own.
    fn commands(&self, count: usize) -> Vec<Command> {
        let code = Code::Elf { bytes: CUBIN, entry: "add" };
        let kernel = self.device.load(&[KernelImage { name: "add", code }]).expect("load").remove(0);
        let geometry = Geometry::of([64, 1, 1], [64, 1, 1]);
        let memory = |_| self.device.alloc(4096).expect("alloc");
        let make = |m: Memory| Command::exec(&kernel, [Arg::Buffer(m.at(0)), Arg::Var(1)], 1).over(geometry);
        (0..count).map(memory).map(make).collect()
    }

    fn host_time(&self, iterations: u64, batch: u64, step: impl FnMut()) -> Duration {
        self.port.host_time(&self.device, iterations, batch, step)
    }
}

fn benches(c: &mut Criterion) {
    let rig = Rig::new();
    let mut g = c.benchmark_group("sm_90");
    let one = rig.commands(1);
    g.bench_function("one kernel, encoded to its doorbell", |b| {
        b.iter_custom(|n| rig.host_time(n, 500, || drop(black_box(rig.device.submit(QueueKind::Compute, &one)))));
    });
    for count in [16, 128] {
        let many = rig.commands(count);
        g.throughput(Throughput::Elements(count as u64));
        g.bench_function(format!("list of {count} kernels, encoded to its doorbell"), |b| {
            b.iter_custom(|n| rig.host_time(n, 16, || drop(black_box(rig.device.submit(QueueKind::Compute, &many)))));
        });
        let mut list = rig.device.record(&many).expect("record");
        rig.port.prepare(&rig.device, COPIES, || drop(list.replay(&[])));
        g.bench_function(format!("replay of {count} kernels, to its doorbell"), |b| {
            b.iter_custom(|n| rig.host_time(n, COPIES, || drop(black_box(list.replay(&[])))));
        });
        // The next submission frees what the list held, which calls the driver.
        drop(list);
        rig.port.prepare(&rig.device, 1, || drop(rig.device.submit(QueueKind::Compute, &one)));
    }
    g.finish();
}

criterion_group! {
    name = nv;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(2));
    targets = benches
}
criterion_main!(nv);
