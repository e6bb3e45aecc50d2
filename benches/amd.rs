//! Host cost of AMD's queues on a null-cost port: calls answered by the software driver while the device is set up,
//! doorbells that cost nothing. Budgets (docs/architecture.md, 5): one kernel from encoding to the doorbell <= 1 us; a
//! replayed graph <= 100 ns a kernel. Run with `cargo bench --bench amd`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use doorbell::device::amd::{AmdDevice, AmdOptions, Driver, Selector};
use doorbell::device::{Arg, Code, Command, Device, Geometry, KernelImage, Memory, Patch, QueueKind};
use doorbell::emu::kfd::compute::{Compute, ComputeFault, Dispatch, Machine};
use doorbell::emu::kfd::{Chip, Config, SoftKfd};
use null_cost::NullCost;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

#[path = "support/null_cost.rs"]
mod null_cost;

/// Compute units for which every kernel is done at once.
#[derive(Debug)]
struct Done;

impl Compute for Done {
    fn run(&self, _: &Dispatch, _: &Machine<'_>) -> Result<(), ComputeFault> {
        Ok(())
    }
}

/// A device on the port.
struct Rig {
    port: Arc<NullCost>,
    device: AmdDevice,
}

impl Rig {
    fn new(chip: Chip) -> Self {
        let inner = SoftKfd::with_compute(Config::new(chip), Arc::new(Done)).expect("software driver");
        let port = NullCost::new(inner);
        let driver = Driver::open("AMD", Arc::clone(&port) as _).expect("driver");
        let options = AmdOptions { ring_bytes: 4 << 20, ..AmdOptions::default() };
        let device = AmdDevice::open("AMD", &driver, &Selector::Index(0), &options).expect("device");
        Self { port, device }
    }

    /// Identical kernels, each on buffers of its own.
    fn commands(&self, count: usize) -> Vec<Command> {
        let kernel = self.device.load(&[KernelImage { name: "k", code: Code::Raw(&image(&self.device.info().arch)) }]);
        let kernel = kernel.expect("load").remove(0);
        let geometry = Geometry::of([64, 1, 1], [64, 1, 1]);
        let memory = |_| self.device.alloc(4096).expect("alloc");
        let make = |_| {
            let [a, b, c]: [Memory; 3] = std::array::from_fn(memory);
            Command::exec(&kernel, [a, b, c].map(|m| Arg::Buffer(m.at(0))), 1).over(geometry)
        };
        (0..count).map(make).collect()
    }

    /// Has a list make the copies of itself that are in flight at once.
    fn set_up(&self, step: impl FnMut()) {
        self.port.prepare(&self.device, COPIES, step);
    }

    fn host_time(&self, iterations: u64, batch: u64, step: impl FnMut()) -> Duration {
        self.port.host_time(&self.device, iterations, batch, step)
    }
}

/// A descriptor with its one instruction, s_endpgm.
fn image(chip: &str) -> Vec<u8> {
    let (rsrc1, properties, end) = match chip {
        "gfx942" => (0x00af_0080_u32, 0x8_u32, 0xbf81_0000_u32),
        "gfx1201" => (0x600f_0000, 0x408, 0xbfb0_0000),
        _ => (0x60af_0000, 0x408, 0xbfb0_0000),
    };
    let mut image = vec![0; 260];
    for (at, value) in [(16, 256), (48, rsrc1), (52, 0x84), (56, properties), (256, end)] {
        image[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    image
}

/// Replays that are in flight at most before one waits for another.
const COPIES: u64 = 4;

fn benches(c: &mut Criterion) {
    for (chip, how) in [(Chip::Gfx1100, "gfx1100, PM4"), (Chip::Gfx1201, "gfx1201, PM4"), (Chip::Gfx942, "gfx942, AQL")]
    {
        let rig = Rig::new(chip);
        let mut g = c.benchmark_group(how);
        let one = rig.commands(1);
        g.bench_function("one kernel, encoded to its doorbell", |b| {
            let step = || drop(black_box(rig.device.submit(QueueKind::Compute, &one)));
            b.iter_custom(|n| rig.host_time(n, 500, step));
        });
        for count in [16, 128] {
            let mut list = rig.device.record(&rig.commands(count)).expect("record");
            rig.set_up(|| drop(list.replay(&[])));
            g.throughput(Throughput::Elements(count as u64));
            g.bench_function(format!("replay of {count} kernels, to its doorbell"), |b| {
                b.iter_custom(|n| rig.host_time(n, COPIES, || drop(black_box(list.replay(&[])))));
            });
            let patches: Vec<Patch> = rig
                .commands(count)
                .iter()
                .enumerate()
                .filter_map(|(command, c)| Some(Patch::Arg { command, arg: 1, value: first_argument(c)? }))
                .collect();
            g.bench_function(format!("replay of {count} kernels, one argument each patched"), |b| {
                b.iter_custom(|n| rig.host_time(n, COPIES, || drop(black_box(list.replay(&patches)))));
            });
        }
        g.finish();
    }
}

fn first_argument(command: &Command) -> Option<Arg> {
    if let Command::Exec { args, .. } = command { args.first().cloned() } else { None }
}

criterion_group! {
    name = amd;
    config = Criterion::default().measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500)).sample_size(30);
    targets = benches
}
criterion_main!(amd);
