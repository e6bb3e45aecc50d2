//! The AMD device against the software KFD: bring-up, memory, copies, launches, recorded lists, faults, hangs,
//! tear-down.
#![cfg(target_os = "linux")]

mod code;
mod engines;
mod faults;
mod host;
mod objects;
mod peers;
mod replay;
mod units;

use doorbell::device::amd::{AmdDevice, AmdOptions, Driver, Placement, Selector};
use doorbell::device::{
    Arg, Code, Command, Device, DeviceError, Geometry, Kernel, KernelImage, Memory, Patch, QueueKind,
};
use doorbell::emu::kfd::{Chip, Config, SoftKfd};
use doorbell::hcq::signal::{WaitBy, WaitError};
use doorbell_ioctl::abi::kfd;
use doorbell_ioctl::fault::{Call, Faults, Plan, Trouble};
use doorbell_ioctl::port::{Errno, Port};
use doorbell_ioctl::trace::{Log, Trace, What, leftovers};
use std::sync::Arc;
use std::time::{Duration, Instant};
use units::Units;

const LONG: Duration = Duration::from_secs(20);
const CHIPS: [Chip; 3] = [Chip::Gfx1100, Chip::Gfx942, Chip::Gfx1201];

/// A machine with its trace.
struct Rig {
    chip: Chip,
    soft: Arc<SoftKfd>,
    units: Arc<Units>,
    port: Arc<dyn Port>,
    log: Log,
}

impl Rig {
    fn new(config: Config) -> Self {
        let units = Arc::new(Units::default());
        let chip = config.chip;
        Self::over(chip, SoftKfd::with_compute(config, Arc::clone(&units) as _).unwrap(), units)
    }

    /// A machine that executes machine code.
    fn with_code(config: Config) -> Self {
        Self::over(config.chip, SoftKfd::new(config).unwrap(), Arc::default())
    }

    fn over(chip: Chip, soft: Arc<SoftKfd>, units: Arc<Units>) -> Self {
        let (trace, log) = Trace::log(Arc::clone(&soft) as _);
        Self { chip, soft, units, port: trace, log }
    }

    fn of(chip: Chip) -> Self {
        Self::new(Config::new(chip))
    }

    fn open(&self) -> AmdDevice {
        self.open_with(&small_options()).unwrap()
    }

    fn open_with(&self, options: &AmdOptions) -> Result<AmdDevice, DeviceError> {
        let driver = Driver::open("AMD", Arc::clone(&self.port))?;
        AmdDevice::open("AMD", &driver, &Selector::Index(0), options)
    }

    /// The machine's findings, and what the run did not free.
    fn complaints(&self) -> Vec<String> {
        self.reports().into_iter().chain(leftovers(&self.log.events())).collect()
    }

    /// What the machine has complained about. gfx9's interrupts carry no event id: one of them may find the other
    /// queue's slot written before that queue's own interrupt comes, which then finds nothing; the event is signalled
    /// all the same.
    fn reports(&self) -> Vec<String> {
        let is_race =
            |text: &String| self.chip == Chip::Gfx942 && text.contains("found no event whose slot was written");
        self.soft.reports().into_iter().map(|r| r.to_string()).filter(|text| !is_race(text)).collect()
    }

    fn calls(&self) -> Vec<String> {
        let text = |e: &doorbell_ioctl::trace::Event| match &e.what {
            What::Ioctl(_) => Some(e.what.to_string()),
            _ => None,
        };
        self.log.events().iter().filter_map(text).collect()
    }
}

/// Small rings, so that wrapping and waiting for room happen.
fn small_options() -> AmdOptions {
    AmdOptions { ring_bytes: 16 << 10, kernargs_bytes: 4096, staging_bytes: 64 << 10, ..AmdOptions::default() }
}

fn name(chip: Chip) -> &'static str {
    match chip {
        Chip::Gfx1100 => "gfx1100",
        Chip::Gfx942 => "gfx942",
        Chip::Gfx1201 => "gfx1201",
    }
}

fn load(d: &AmdDevice, code: u32) -> Kernel {
    load_image(d, &units::kernel(&d.info().arch, code, 0))
}

fn load_image(d: &AmdDevice, image: &[u8]) -> Kernel {
    d.load(&[KernelImage { name: "k", code: Code::Raw(image) }]).unwrap().remove(0)
}

fn words(d: &AmdDevice, values: &[u32]) -> Memory {
    let memory = d.alloc(values.len() as u64 * 4).unwrap();
    d.copy_in(&memory, 0, bytemuck::cast_slice(values)).unwrap();
    memory
}

fn read(d: &AmdDevice, memory: &Memory) -> Vec<u32> {
    let mut out = vec![0u32; (memory.len_bytes() / 4) as usize];
    d.copy_out(memory, 0, bytemuck::cast_slice_mut(&mut out)).unwrap();
    out
}

fn launch(kernel: &Kernel, memory: &Memory, value: i64, groups: u32, local: u32) -> Command {
    let geometry = Geometry::of([groups, 1, 1], [local, 1, 1]);
    Command::exec(kernel, [Arg::Buffer(memory.at(0)), Arg::Var(value)], 1).over(geometry)
}

/// Numbers that differ at each place.
fn pattern(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| i.wrapping_mul(0x9e37_79b9) ^ 0x5bd1).collect()
}

#[test]
fn every_chip_opens_copies_and_closes_clean_on_every_kernel_interface() {
    for chip in CHIPS {
        for kfd_minor in [11, 14, 17] {
            let rig = Rig::new(Config { kfd_minor, ..Config::new(chip) });
            let d = rig.open();
            assert_eq!(d.info().arch, name(chip));
            // Longer than the staging buffers: several pieces, both ways.
            let data = pattern(100_003);
            let m = words(&d, &data);
            assert_eq!(read(&d, &m), data, "{chip:?} 1.{kfd_minor}");
            drop(m);
            d.close().unwrap();
            drop(d);
            assert_eq!(rig.complaints(), Vec::<String>::new(), "{chip:?} 1.{kfd_minor}");
        }
    }
}

/// Pages that hosts of AArch64 have. The machine refuses what is not whole pages of them.
#[test]
fn hosts_with_large_pages_compute_copy_and_close_clean() {
    for page_bytes in [16 << 10, 64 << 10] {
        for chip in CHIPS {
            for kfd_minor in [11, 17] {
                let rig = Rig::new(Config { page_bytes, kfd_minor, ..Config::new(chip) });
                let d = rig.open();
                let data = pattern(100_003);
                let (k, m, other) = (load(&d, units::ADD), words(&d, &data), words(&d, &[1; 64]));
                let host = d.alloc_host(5000, Placement::Pinned).unwrap();
                d.submit(QueueKind::Compute, &[launch(&k, &other, 5, 1, 64)]).unwrap();
                let point = d.submit(QueueKind::Copy, &[Command::copy(host.at(4), other.at(0), 256)]).unwrap();
                d.wait(&point, LONG).unwrap();
                let mut near = [0u32; 64];
                host.host().unwrap().read(4, bytemuck::cast_slice_mut(&mut near)).unwrap();
                assert_eq!(near, [6; 64]);
                assert!(read(&d, &m) == data, "{chip:?} 1.{kfd_minor} {page_bytes}");
                drop((k, m, other, host, point));
                d.close().unwrap();
                drop(d);
                assert_eq!(rig.complaints(), Vec::<String>::new(), "{chip:?} 1.{kfd_minor} {page_bytes}");
            }
        }
    }
}

#[test]
fn launches_find_their_arguments_code_and_geometry() {
    for chip in CHIPS {
        let rig = Rig::of(chip);
        let d = rig.open();
        let (k, m) = (load(&d, units::ADD), words(&d, &pattern(256)));
        let point = d.submit(QueueKind::Compute, &[launch(&k, &m, 5, 2, 64), launch(&k, &m, -2, 4, 32)]).unwrap();
        d.wait(&point, LONG).unwrap();
        let expected: Vec<u32> =
            pattern(256).iter().enumerate().map(|(i, x)| x.wrapping_add(if i < 128 { 3 } else { 0 })).collect();
        assert_eq!(read(&d, &m), expected, "{chip:?}");
        let seen = rig.units.seen.lock().unwrap().clone();
        assert_eq!((seen.len(), seen[0].groups, seen[0].local), (2, [2, 1, 1], [64, 1, 1]));
        assert_eq!((seen[1].wave32, seen[1].entry), (chip != Chip::Gfx942, k.entry()));
    }
}

#[test]
fn rings_wrap_and_full_rings_wait() {
    for chip in CHIPS {
        let rig = Rig::of(chip);
        let d = rig.open();
        let (k, m) = (load(&d, units::ADD), words(&d, &[0; 64]));
        for _ in 0..300 {
            d.submit(QueueKind::Compute, &[launch(&k, &m, 1, 1, 64)]).unwrap();
        }
        assert_eq!(read(&d, &m), [300; 64], "{chip:?}");
        let many: Vec<Command> = (0..60).map(|_| launch(&k, &m, 1, 1, 64)).collect();
        d.submit(QueueKind::Compute, &many).unwrap();
        assert_eq!(read(&d, &m), [360; 64], "{chip:?}");
    }
}

#[test]
fn queues_wait_for_each_other_by_the_memories_they_share() {
    let rig = Rig::of(Chip::Gfx1100);
    let d = rig.open();
    let (k, a, b) = (load(&d, units::ADD), words(&d, &[0; 1024]), words(&d, &[0; 1024]));
    for _ in 0..50 {
        let copy = |to: &Memory, from: &Memory| Command::copy(to.at(0), from.at(0), 4096);
        d.submit(QueueKind::Compute, &[launch(&k, &a, 1, 16, 64)]).unwrap();
        d.submit(QueueKind::Copy, &[copy(&b, &a)]).unwrap();
        d.submit(QueueKind::Compute, &[launch(&k, &b, 1, 16, 64)]).unwrap();
        d.submit(QueueKind::Copy, &[copy(&a, &b)]).unwrap();
    }
    assert_eq!(read(&d, &a), [100; 1024]);
}

#[test]
fn threads_that_submit_and_wait_at_once_all_get_their_work() {
    for chip in CHIPS {
        let rig = Rig::of(chip);
        let d = rig.open();
        let k = load(&d, units::ADD);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (d, k) = (&d, &k);
                scope.spawn(move || {
                    let m = words(d, &[thread; 64]);
                    for round in 1..=25 {
                        let point = d.submit(QueueKind::Compute, &[launch(k, &m, 1, 1, 64)]).unwrap();
                        d.wait(&point, LONG).unwrap();
                        assert_eq!(read(d, &m), [thread + round; 64], "{chip:?} thread {thread}");
                    }
                });
            }
        });
        assert_eq!(rig.reports(), Vec::<String>::new(), "{chip:?}");
    }
}

#[test]
fn copies_inside_a_compute_submission_keep_their_place() {
    let rig = Rig::of(Chip::Gfx1100);
    let d = rig.open();
    let (k, a, b) = (load(&d, units::ADD), words(&d, &[1; 64]), words(&d, &[0; 64]));
    let commands = [
        launch(&k, &a, 1, 1, 64),
        Command::copy(b.at(0), a.at(0), 256),
        launch(&k, &a, 1, 1, 64),
        launch(&k, &b, 10, 1, 64),
    ];
    let point = d.submit(QueueKind::Compute, &commands).unwrap();
    d.wait(&point, LONG).unwrap();
    assert_eq!((read(&d, &a), read(&d, &b)), (vec![3; 64], vec![12; 64]));
    // As a recorded list as well.
    let mut list = d.record(&commands).unwrap();
    list.replay(&[]).unwrap();
    assert_eq!((read(&d, &a), read(&d, &b)), (vec![5; 64], vec![14; 64]));
}

#[test]
fn recorded_lists_replay_with_patched_arguments() {
    for chip in CHIPS {
        let rig = Rig::of(chip);
        let d = rig.open();
        let (k, a, b) = (load(&d, units::ADD), words(&d, &[0; 64]), words(&d, &[0; 64]));
        let mut list = d.record(&[launch(&k, &a, 1, 1, 64), launch(&k, &a, 10, 1, 32)]).unwrap();
        for _ in 0..10 {
            list.replay(&[]).unwrap();
        }
        let to_b = Patch::Arg { command: 1, arg: 0, value: Arg::Buffer(b.at(128)) };
        let by_100 = Patch::Arg { command: 0, arg: 1, value: Arg::Var(100) };
        for _ in 0..10 {
            list.replay(&[to_b.clone(), by_100.clone()]).unwrap();
        }
        let expected_a: Vec<u32> = (0..64).map(|i| 1010 + if i < 32 { 100 } else { 0 }).collect();
        let expected_b: Vec<u32> = (0..64).map(|i| if i < 32 { 0 } else { 100 }).collect();
        assert_eq!((read(&d, &a), read(&d, &b)), (expected_a, expected_b), "{chip:?}");
        let no_such = Patch::Arg { command: 2, arg: 0, value: Arg::Var(0) };
        assert!(list.replay(&[no_such]).unwrap_err().to_string().contains("argument 0 of command 2"));
    }
}

#[test]
fn timestamps_are_host_nanoseconds_in_order() {
    for chip in CHIPS {
        let rig = Rig::of(chip);
        let d = rig.open();
        let (k, m) = (load(&d, units::ADD), words(&d, &[0; 1024]));
        for command in [launch(&k, &m, 1, 16, 64), Command::copy(m.at(0), m.at(2048), 2048)] {
            let stamp = d.stamp().unwrap();
            let before = doorbell_ioctl::port::monotonic_ns();
            let point = d.submit(QueueKind::Compute, &[command.stamped(stamp.clone())]).unwrap();
            d.wait(&point, LONG).unwrap();
            let after = doorbell_ioctl::port::monotonic_ns();
            let (start, stop) = stamp.times_ns();
            // The two clocks are read one after the other; a preempted thread reads them far apart.
            let slack = 50_000_000;
            assert!(before < start + slack && start <= stop && stop < after + slack, "{before} {start} {stop} {after}");
        }
    }
}

#[test]
fn timestamps_of_a_recorded_list_are_in_order_at_each_replay() {
    for chip in CHIPS {
        let rig = Rig::of(chip);
        let d = rig.open();
        let (k, m) = (load(&d, units::ADD), words(&d, &[0; 64]));
        let stamps = [d.stamp().unwrap(), d.stamp().unwrap()];
        let commands = stamps.clone().map(|stamp| launch(&k, &m, 1, 1, 64).stamped(stamp));
        let mut list = d.record(&commands).unwrap();
        let mut last = 0;
        // More than there are copies.
        for _ in 0..6 {
            let point = list.replay(&[]).unwrap();
            d.wait(&point, LONG).unwrap();
            let ([(a, b), (c, e)], before) = (stamps.each_ref().map(doorbell::device::Stamp::times_ns), last);
            assert!(before <= a && a <= b && b <= c && c <= e, "{chip:?}: {before} {a} {b} {c} {e}");
            last = e;
        }
        assert_eq!(read(&d, &m), [12; 64], "{chip:?}");
        assert_eq!(rig.reports(), Vec::<String>::new(), "{chip:?}");
    }
}

#[test]
fn scratch_grows_with_the_kernels_that_want_it() {
    for chip in CHIPS {
        let rig = Rig::of(chip);
        let d = rig.open();
        let m = words(&d, &[0; 64]);
        for private_bytes in [16, 4, 1000] {
            let k = load_image(&d, &units::kernel(name(chip), units::ADD, private_bytes));
            let point = d.submit(QueueKind::Compute, &[launch(&k, &m, 1, 1, 64)]).unwrap();
            d.wait(&point, LONG).unwrap();
        }
        assert_eq!(read(&d, &m), [3; 64]);
        let seen = rig.units.seen.lock().unwrap().clone();
        assert!(seen.iter().all(|s| s.scratch_base != 0 && s.scratch_waves > 0), "{seen:?}");
        assert!(seen[0].scratch_base == seen[1].scratch_base && seen[2].scratch_wave_bytes >= 64_000, "{seen:?}");
    }
}

#[test]
fn host_visible_memory_is_copied_without_staging() {
    let rig = Rig::of(Chip::Gfx1100);
    let d = rig.open();
    let device = words(&d, &[0; 4096]);
    for placement in [Placement::Host, Placement::Pinned] {
        let host = d.alloc_host(16384, placement).unwrap();
        let data = pattern(4096);
        host.host().unwrap().write(0, bytemuck::cast_slice(&data)).unwrap();
        d.submit(QueueKind::Copy, &[Command::copy(device.at(0), host.at(0), 16384)]).unwrap();
        assert_eq!(read(&d, &device), data, "{placement:?}");
    }
    assert!(matches!(d.alloc_host(4096, Placement::Vram), Err(DeviceError::Unsupported { .. })));
    drop(device);
    d.close().unwrap();
    drop(d);
    assert_eq!(rig.complaints(), Vec::<String>::new());
}

#[test]
fn memory_is_reused_and_runs_out_with_an_error() {
    let rig = Rig::new(Config { vram_bytes: 256 << 20, ..Config::new(Chip::Gfx1100) });
    let d = rig.open();
    let a = d.alloc(64 << 20).unwrap();
    let va = a.va();
    drop(a);
    assert_eq!(d.alloc(64 << 20).unwrap().va(), va, "the freed block is used again");
    let held: Vec<Memory> = std::iter::from_fn(|| d.alloc(32 << 20).ok()).take(20).collect();
    assert!((4..9).contains(&held.len()), "{}", held.len());
    assert!(matches!(d.alloc(32 << 20), Err(DeviceError::OutOfMemory { .. })));
    assert!(matches!(d.alloc(1 << 40), Err(DeviceError::TooBig { .. })));
    drop(held);
    d.alloc(128 << 20).unwrap();
}

#[test]
fn hang_is_a_report_within_the_deadline_and_the_next_device_works() {
    // Exceptions are not enabled, so an illegal instruction is a wave that halts for ever, like an endless loop.
    for (chip, code) in CHIPS.into_iter().flat_map(|chip| [(chip, units::HANG), (chip, units::ILLEGAL)]) {
        let rig = Rig::of(chip);
        let d = rig.open_with(&AmdOptions { submit_timeout: Duration::from_millis(300), ..small_options() }).unwrap();
        let (hang, m) = (load(&d, code), words(&d, &[0; 64]));
        let point = d.submit(QueueKind::Compute, &[launch(&hang, &m, 0, 1, 1)]).unwrap();
        let start = Instant::now();
        let error = d.wait(&point, Duration::from_millis(200)).unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(5));
        let DeviceError::Wait(WaitError::Timeout(report)) = &error else { panic!("{error}") };
        assert_eq!((report.queue.as_str(), report.signals[0].1, report.signals[0].2), ("AMD/compute", 0, 1));
        let line = report.to_string();
        assert!(line.contains("last kernels: k at 0x") && line.contains("last calls: "), "{line}");
        assert!(line.contains(if chip == Chip::Gfx942 { "KERNEL_DISPATCH" } else { "RELEASE_MEM" }), "{line}");
        // Copies still run: another queue.
        assert_eq!(read(&d, &words(&d, &[7; 8])), [7; 8]);
        drop(m);
        drop(hang);
        assert!(d.close().is_err());
        drop(d);
        let d = Rig::of(chip).open();
        assert_eq!(read(&d, &words(&d, &[9; 8])), [9; 8]);
    }
}

#[test]
fn memory_fault_ends_the_device_with_the_address() {
    for chip in CHIPS {
        let rig = Rig::of(chip);
        let d = rig.open();
        let load_kernel = load(&d, units::LOAD);
        let wild = Command::exec(&load_kernel, [Arg::Var(0x1234_5678_9000)], 1).over(Geometry::default());
        let point = d.submit(QueueKind::Compute, &[wild]).unwrap();
        let error = d.wait(&point, LONG).unwrap_err();
        let DeviceError::Wait(WaitError::Fault(report)) = &error else { panic!("{error}") };
        let fault = report.fault.clone().unwrap();
        assert!(fault.contains("memory fault at 0x123456789000") && fault.contains("not present"), "{fault}");
        assert!(fault.contains("amdgpu says address 0x123456789000, status 0x1, hub GFX"), "{fault}");
        let again = d.submit(QueueKind::Compute, &[]).unwrap_err();
        assert!(again.to_string().contains("memory fault"), "{again}");
        assert!(d.alloc(4).is_err());
        drop((load_kernel, point));
        d.close().unwrap();
        drop(d);
        assert_eq!(leftovers(&rig.log.events()), Vec::<String>::new());
    }
}

#[test]
fn a_fault_is_told_to_its_own_card_once_and_the_card_can_be_opened_again() {
    let rig = Rig::new(Config { gpus: 2, ..Config::new(Chip::Gfx1100) });
    let driver = Driver::open("AMD", Arc::clone(&rig.port)).unwrap();
    let open = |n| AmdDevice::open(&format!("AMD:{n}"), &driver, &Selector::Index(n), &small_options()).unwrap();
    let (a, b) = (open(0), open(1));
    let (ka, hold) = (load(&a, units::ADD), load(&a, units::HANG));
    let ma = words(&a, &[1; 64]);
    // The first card waits for what does not end while the second one faults, so that its waiter is woken by a fault
    // that is not its own.
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let point = a.submit(QueueKind::Copy, &[Command::copy(ma.at(0), ma.at(128), 64)]).unwrap();
            a.wait(&point, LONG).unwrap();
            let hung = a.submit(QueueKind::Compute, &[launch(&hold, &ma, 0, 1, 1)]).unwrap();
            a.wait(&hung, Duration::from_millis(400)).unwrap_err()
        });
        let kb = load(&b, units::LOAD);
        std::thread::sleep(Duration::from_millis(50));
        let wild = Command::exec(&kb, [Arg::Var(0x1234_5678_9000)], 1).over(Geometry::default());
        let point = b.submit(QueueKind::Compute, &[wild]).unwrap();
        assert!(matches!(b.wait(&point, LONG).unwrap_err(), DeviceError::Wait(WaitError::Fault(_))));
        let hung = waiter.join().unwrap();
        assert!(matches!(&hung, DeviceError::Wait(WaitError::Timeout(_))), "{hung}");
    });
    assert_eq!(read(&a, &words(&a, &[7; 8])), [7; 8], "the copy queue of the first card works");
    b.close().unwrap();
    drop((b, ka));
    for _ in 0..2 {
        let b = open(1);
        let (kb, mb) = (load(&b, units::ADD), words(&b, &[2; 64]));
        let point = b.submit(QueueKind::Compute, &[launch(&kb, &mb, 1, 1, 64)]).unwrap();
        b.wait(&point, LONG).unwrap();
        assert_eq!(read(&b, &mb), [3; 64]);
        drop((kb, mb));
        b.close().unwrap();
    }
}

#[test]
fn a_list_whose_first_replay_had_no_memory_is_replayed_later() {
    let alloc = kfd::ALLOC_MEMORY_OF_GPU.desc.request;
    for at in 1..40 {
        let rig = Rig::of(Chip::Gfx942);
        let count = |log: &Log| log.events().iter().filter(|e| e.to_string().contains("ALLOC_MEMORY")).count() as u64;
        let plan = Plan::one(Call::Ioctl(alloc), at, Trouble::Fail(Errno::ENOMEM));
        let port: Arc<dyn Port> = Faults::new(Arc::clone(&rig.port), plan) as _;
        let Ok(driver) = Driver::open("AMD", port) else { continue };
        let Ok(d) = AmdDevice::open("AMD", &driver, &Selector::Index(0), &small_options()) else { continue };
        let image = units::kernel(&d.info().arch, units::ADD, 0);
        let Ok(mut k) = d.load(&[KernelImage { name: "k", code: Code::Raw(&image) }]) else { continue };
        let (k, Ok(m)) = (k.remove(0), d.alloc(256)) else { continue };
        if d.copy_in(&m, 0, &[0; 256]).is_err() {
            continue;
        }
        let mut list = d.record(&[launch(&k, &m, 1, 1, 64)]).unwrap();
        let before = count(&rig.log);
        let ran = (0..8).filter(|_| list.replay(&[]).is_ok()).count() as u32;
        assert!(ran >= 7, "allocation {at} (the first replay began at {before}): {ran} of 8 ran");
        assert_eq!(read(&d, &m), [ran; 64]);
    }
}

#[test]
fn a_refused_step_of_opening_leaves_nothing_and_the_next_opening_works() {
    for (call, nth) in [
        (kfd::RUNTIME_ENABLE.desc.request, 1),
        (kfd::CREATE_EVENT.desc.request, 1),
        (kfd::CREATE_EVENT.desc.request, 2),
        (kfd::CREATE_EVENT.desc.request, 3),
        (kfd::CREATE_QUEUE.desc.request, 1),
    ] {
        let rig = Rig::of(Chip::Gfx1100);
        let plan = Plan::one(Call::Ioctl(call), nth, Trouble::Fail(Errno::ENOMEM));
        let driver = Driver::open("AMD", Faults::new(Arc::clone(&rig.port), plan) as _).unwrap();
        let open = || AmdDevice::open("AMD", &driver, &Selector::Index(0), &small_options());
        assert!(open().is_err(), "{}", Call::Ioctl(call));
        let d = open().unwrap();
        let (k, m) = (load(&d, units::ADD), words(&d, &[2; 64]));
        let point = d.submit(QueueKind::Compute, &[launch(&k, &m, 1, 1, 64)]).unwrap();
        d.wait(&point, LONG).unwrap();
        assert_eq!(read(&d, &m), [3; 64]);
        drop((k, m, point));
        d.close().unwrap();
        drop((d, driver));
        assert_eq!(rig.complaints(), Vec::<String>::new(), "{} {nth}", Call::Ioctl(call));
    }
}

#[test]
fn wrong_launches_are_refused_before_anything_is_queued() {
    let rig = Rig::of(Chip::Gfx1100);
    let d = rig.open();
    let (k, m) = (load(&d, units::ADD), words(&d, &[0; 64]));
    let refused = |geometry| {
        let command = Command::exec(&k, [Arg::Buffer(m.at(0)), Arg::Var(1)], 1).over(geometry);
        d.submit(QueueKind::Compute, &[command]).unwrap_err().to_string()
    };
    let g = |groups, local, local_bytes| Geometry { local_bytes, ..Geometry::of(groups, local) };
    assert!(refused(g([1; 3], [32, 32, 2], 0)).contains("at most 1024"));
    assert!(refused(g([1; 3], [1 << 31, 1 << 31, 4], 0)).contains("at most 1024"));
    assert!(refused(g([1; 3], [1; 3], 65_537)).contains("at most 65536"));
    assert!(refused(g([1, 1 << 16, 1], [1; 3], 0)).contains("along y"));
    let other = Rig::of(Chip::Gfx1100).open();
    let theirs = words(&other, &[0; 64]);
    let wrong = d.submit(QueueKind::Compute, &[launch(&k, &theirs, 1, 1, 1)]);
    assert!(matches!(wrong, Err(DeviceError::WrongDevice { .. })));
    d.submit(QueueKind::Compute, &[launch(&k, &m, 1, 1, 64)]).unwrap();
    assert_eq!(read(&d, &m), [1; 64]);
}

#[test]
fn missing_driver_wrong_version_and_unknown_gpu_say_what_they_found() {
    let linux: Arc<dyn Port> = doorbell_ioctl::port::LinuxPort::new();
    if linux.read_dir("/sys/devices/virtual/kfd").is_err() {
        let error = Driver::open("AMD", linux).unwrap_err().to_string();
        assert_eq!(error, "device AMD cannot be opened: open /dev/kfd: ENOENT (no amdgpu driver)");
    }
    let rig = Rig::new(Config { kfd_minor: 10, ..Config::new(Chip::Gfx1100) });
    let error = rig.open_with(&small_options()).unwrap_err().to_string();
    assert!(error.contains("KFD interface 1.10, tested are 1.11 to 1.17"), "{error}");
    let rig = Rig::of(Chip::Gfx1201);
    let driver = Driver::open("AMD", Arc::clone(&rig.port)).unwrap();
    for selector in [Selector::Index(1), Selector::Gfx("gfx1100".into()), Selector::Bdf("0000:99:00.0".into())] {
        let error = AmdDevice::open("AMD", &driver, &selector, &small_options()).unwrap_err().to_string();
        assert!(error.contains("no such GPU; there are 1: gfx1201 at "), "{error}");
    }
}

#[test]
fn a_host_may_sleep_at_once_or_spin_to_the_end() {
    for chip in CHIPS {
        let rig = Rig::of(chip);
        let d = rig.open_with(&AmdOptions { spin: LONG, ..small_options() }).unwrap();
        let (k, m) = (load(&d, units::ADD_LATE), words(&d, &[0; 64]));
        let sleeps = || rig.calls().iter().filter(|call| call.contains(kfd::WAIT_EVENTS.desc.name)).count();
        let mut seen = vec![sleeps()];
        for by in [WaitBy::Options, WaitBy::Spin, WaitBy::Sleep] {
            let point = d.submit(QueueKind::Compute, &[launch(&k, &m, 50, 1, 1)]).unwrap();
            point.wait_by(LONG, by).unwrap();
            assert!(point.is_done() && point.timeline().lacks(by).is_none(), "{chip:?} {by:?}");
            seen.push(sleeps());
        }
        assert_eq!(read(&d, &m)[0], 150);
        // A look for faults is a call without a sleep.
        assert!(seen[3] > seen[2], "{chip:?}: {seen:?}");
        let k = load(&d, units::LOAD);
        let point = d.submit(QueueKind::Compute, &[Command::exec(&k, [Arg::Var(0x12_3456_7000)], 1)]).unwrap();
        let error = point.wait_by(LONG, WaitBy::Spin).unwrap_err();
        assert!(matches!(error, WaitError::Fault(_)), "{chip:?}: a host that spins sees a fault: {error}");
    }
}

#[test]
fn two_gpus_of_one_driver_share_its_events() {
    let rig = Rig::new(Config { gpus: 2, ..Config::new(Chip::Gfx1100) });
    let driver = Driver::open("AMD", Arc::clone(&rig.port)).unwrap();
    let open = |n| AmdDevice::open(&format!("AMD:{n}"), &driver, &Selector::Index(n), &small_options()).unwrap();
    let (a, b) = (open(0), open(1));
    let (ka, kb) = (load(&a, units::ADD), load(&b, units::ADD));
    let (ma, mb) = (words(&a, &[1; 64]), words(&b, &[2; 64]));
    let pa = a.submit(QueueKind::Compute, &[launch(&ka, &ma, 1, 1, 64)]).unwrap();
    // A wait for the other device's queue, in a packet of this one.
    let pb = b.submit(QueueKind::Compute, &[Command::Wait(pa), launch(&kb, &mb, 1, 1, 64)]).unwrap();
    b.wait(&pb, LONG).unwrap();
    assert_eq!((read(&a, &ma), read(&b, &mb)), (vec![2; 64], vec![3; 64]));
    assert_eq!(rig.calls().iter().filter(|c| c.contains("ACQUIRE_VM")).count(), 2);
}

#[test]
fn failed_open_gives_everything_back() {
    // A small card has no room for a copy queue's second staging buffer, or whatever is asked last: nothing may stay.
    let rig = Rig::of(Chip::Gfx1100);
    let options = AmdOptions { ring_bytes: 1 << 40, ..small_options() };
    assert!(rig.open_with(&options).is_err());
    assert_eq!(leftovers(&rig.log.events()), Vec::<String>::new());
}
