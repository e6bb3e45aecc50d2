//! The NVIDIA device against the software RM: bring-up, memory, copies, launches, recorded lists, faults, hangs,
//! tear-down.
#![cfg(target_os = "linux")]

mod clusters;
mod code;
#[path = "../device_amd/engines.rs"]
mod engines;
mod events;
mod faults;
mod host;
mod rm_only;
mod tensors;
mod tf32;
mod units;

use doorbell::device::nv::{Driver, NvDevice, NvOptions, Placement, Selector, explain};
use doorbell::device::{
    Arg, Code, Command, Device, DeviceError, Geometry, Kernel, KernelImage, Memory, Patch, QueueKind,
};
use doorbell::emu::nvrm::{Call, Chip, Config, Refusal, SoftNv};
use doorbell::hcq::signal::WaitError;
use doorbell_ioctl::abi::nvrm::{self, Release};
use doorbell_ioctl::port::{Errno, LinuxPort, Port};
use doorbell_ioctl::trace::{Log, Trace, What, leftovers};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use units::{Does, Units};

const LONG: Duration = Duration::from_secs(20);
pub const CUBIN: &[u8] = include_bytes!("../data/cubin/device_sm90.cubin");

/// A machine with its trace.
struct Rig {
    soft: Arc<SoftNv>,
    units: Arc<Units>,
    port: Arc<dyn Port>,
    log: Log,
}

impl Rig {
    fn new(config: Config) -> Self {
        let units = Arc::new(Units::default());
        let soft = SoftNv::with_compute(config, Arc::clone(&units) as _).unwrap();
        let (trace, log) = Trace::log(Arc::clone(&soft) as _);
        Self { soft, units, port: trace, log }
    }

    fn hopper() -> Self {
        Self::new(Config::new(Chip::Sm90))
    }

    fn open(&self) -> NvDevice {
        self.open_with(&small_options()).unwrap()
    }

    fn open_with(&self, options: &NvOptions) -> Result<NvDevice, DeviceError> {
        let driver = Driver::open("NV", Arc::clone(&self.port), options.any_release)?;
        NvDevice::open("NV", &driver, &Selector::Index(0), options)
    }

    fn load(&self, d: &NvDevice, name: &str, does: Does) -> Kernel {
        let k = d.load(&[KernelImage { name, code: Code::Elf { bytes: CUBIN, entry: name } }]).unwrap().remove(0);
        self.units.known.lock().unwrap().insert(k.entry(), does);
        k
    }

    fn add(&self, d: &NvDevice) -> Kernel {
        self.load(d, "add", Does::Add)
    }

    /// What the machine has complained about.
    fn reports(&self) -> Vec<String> {
        self.soft.reports().into_iter().map(|r| r.to_string()).collect()
    }

    /// The same, and what the run did not free.
    fn complaints(&self) -> Vec<String> {
        self.reports().into_iter().chain(leftovers(&self.log.events())).collect()
    }

    /// Names of the calls so far, with class or command.
    fn calls(&self) -> Vec<String> {
        let text = |e: &doorbell_ioctl::trace::Event| match &e.what {
            What::Ioctl(_) => Some(e.what.to_string()),
            _ => None,
        };
        self.log.events().iter().filter_map(text).collect()
    }
}

/// Small rings, so that wrapping and waiting for room happen.
pub fn small_options() -> NvOptions {
    NvOptions {
        ring_entries: 16,
        push_bytes: 8192,
        launch_bytes: 16 << 10,
        staging_bytes: 64 << 10,
        ..NvOptions::default()
    }
}

pub fn words(d: &NvDevice, values: &[u32]) -> Memory {
    let memory = d.alloc(values.len() as u64 * 4).unwrap();
    d.copy_in(&memory, 0, bytemuck::cast_slice(values)).unwrap();
    memory
}

pub fn read(d: &NvDevice, memory: &Memory) -> Vec<u32> {
    let mut out = vec![0u32; (memory.len_bytes() / 4) as usize];
    d.copy_out(memory, 0, bytemuck::cast_slice_mut(&mut out)).unwrap();
    out
}

pub fn launch(kernel: &Kernel, memory: &Memory, value: i64, groups: u32, local: u32) -> Command {
    let geometry = Geometry::of([groups, 1, 1], [local, 1, 1]);
    Command::exec(kernel, [Arg::Buffer(memory.at(0)), Arg::Var(value)], 1).over(geometry)
}

/// Numbers that differ at each place.
pub fn pattern(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| i.wrapping_mul(0x9e37_79b9) ^ 0x5bd1).collect()
}

#[test]
fn hopper_opens_copies_and_closes_clean_under_every_release() {
    for (major, minor, patch) in [
        (535, 230, 2),
        (550, 90, 7),
        (570, 124, 6),
        (580, 159, 4),
        (595, 45, 4),
        (610, 57, 4),
        (615, 71, 9),
        (620, 30, 0),
    ] {
        let rig = Rig::new(Config { release: Release { major, minor, patch }, ..Config::new(Chip::Sm90) });
        let d = rig.open();
        assert_eq!((d.info().arch.as_str(), d.info().memory_bytes), ("sm_90", 16 << 30));
        assert!(d.info().threads >= 100, "{}", d.info().threads);
        // Longer than the staging buffers: several pieces, both ways.
        let data = pattern(100_003);
        let m = words(&d, &data);
        assert_eq!(read(&d, &m), data, "{major}");
        drop(m);
        d.close().unwrap();
        drop(d);
        assert_eq!(rig.complaints(), Vec::<String>::new(), "{major}");
    }
}

#[test]
fn every_chip_opens_copies_and_closes_clean() {
    for chip in [Chip::Sm75, Chip::Sm80, Chip::Sm86, Chip::Sm89, Chip::Sm100, Chip::Sm120] {
        let rig = Rig::new(Config::new(chip));
        let d = rig.open();
        let data = pattern(1000);
        let (a, b) = (words(&d, &data), words(&d, &[0; 1000]));
        // From one queue to the other and back, by semaphores of both.
        let point = d.submit(QueueKind::Compute, &[]).unwrap();
        d.submit(QueueKind::Copy, &[Command::Wait(point), Command::copy(b.at(0), a.at(0), 4000)]).unwrap();
        assert_eq!(read(&d, &b), data, "{chip:?}");
        drop((a, b));
        d.close().unwrap();
        drop(d);
        assert_eq!(rig.complaints(), Vec::<String>::new(), "{chip:?}");
    }
}

/// Pages that hosts of AArch64 have. The machine refuses what is not whole pages of them.
#[test]
fn hosts_with_large_pages_compute_copy_and_close_clean() {
    for page_bytes in [16 << 10, 64 << 10] {
        for no_uvm in [false, true] {
            let rig = Rig::new(Config { page_bytes, no_uvm, ..Config::new(Chip::Sm90) });
            let d = rig.open();
            let data = pattern(100_003);
            let (k, m, other) = (rig.add(&d), words(&d, &data), words(&d, &[1; 64]));
            let host = d.alloc_host(5000, Placement::Host).unwrap();
            d.submit(QueueKind::Compute, &[launch(&k, &other, 5, 1, 64)]).unwrap();
            let point = d.submit(QueueKind::Copy, &[Command::copy(host.at(4), other.at(0), 256)]).unwrap();
            d.wait(&point, LONG).unwrap();
            let mut near = [0u32; 64];
            host.host().unwrap().read(4, bytemuck::cast_slice_mut(&mut near)).unwrap();
            assert_eq!(near, [6; 64]);
            assert!(read(&d, &m) == data, "uvm {} {page_bytes}", !no_uvm);
            drop((k, m, other, host, point));
            d.close().unwrap();
            drop(d);
            assert_eq!(rig.complaints(), Vec::<String>::new(), "uvm {} {page_bytes}", !no_uvm);
        }
    }
}

#[test]
fn launches_find_their_arguments_code_and_geometry() {
    let rig = Rig::hopper();
    let d = rig.open();
    let (k, m) = (rig.add(&d), words(&d, &pattern(256)));
    let point = d.submit(QueueKind::Compute, &[launch(&k, &m, 5, 2, 64), launch(&k, &m, -2, 4, 32)]).unwrap();
    d.wait(&point, LONG).unwrap();
    let expected: Vec<u32> =
        pattern(256).iter().enumerate().map(|(i, x)| x.wrapping_add(if i < 128 { 3 } else { 0 })).collect();
    assert_eq!(read(&d, &m), expected);
    let seen = rig.units.seen.lock().unwrap().clone();
    assert_eq!((seen.len(), seen[0].grid, seen[0].block, seen[1].grid), (2, [2, 1, 1], [64, 1, 1], [4, 1, 1]));
    assert_eq!((seen[1].entry, seen[1].cluster, seen[1].local_bytes), (k.entry(), [1; 3], 0));
    assert_eq!((seen[0].shared_window, seen[0].local_window), (0x7294 << 32, 0x7293 << 32));
}

#[test]
fn rings_wrap_and_full_rings_wait() {
    let rig = Rig::hopper();
    let d = rig.open();
    let (k, m) = (rig.add(&d), words(&d, &[0; 64]));
    for _ in 0..300 {
        d.submit(QueueKind::Compute, &[launch(&k, &m, 1, 1, 64)]).unwrap();
    }
    assert_eq!(read(&d, &m), [300; 64]);
    let many: Vec<Command> = (0..10).map(|_| launch(&k, &m, 1, 1, 64)).collect();
    d.submit(QueueKind::Compute, &many).unwrap();
    assert_eq!(read(&d, &m), [310; 64]);
    // More than the ring of launches can ever hold at once.
    let too_many: Vec<Command> = (0..100).map(|_| launch(&k, &m, 1, 1, 64)).collect();
    assert!(d.submit(QueueKind::Compute, &too_many).is_err());
    assert_eq!(read(&d, &m), [310; 64], "nothing of it was queued");
    d.submit(QueueKind::Compute, &[launch(&k, &m, 1, 1, 64)]).unwrap();
    assert_eq!(read(&d, &m), [311; 64]);
}

#[test]
fn queues_wait_for_each_other_by_the_memories_they_share() {
    let rig = Rig::new(Config { shuffle: 7, ..Config::new(Chip::Sm90) });
    let d = rig.open();
    let (k, a, b) = (rig.add(&d), words(&d, &[0; 1024]), words(&d, &[0; 1024]));
    for _ in 0..30 {
        let copy = |to: &Memory, from: &Memory| Command::copy(to.at(0), from.at(0), 4096);
        d.submit(QueueKind::Compute, &[launch(&k, &a, 1, 16, 64)]).unwrap();
        d.submit(QueueKind::Copy, &[copy(&b, &a)]).unwrap();
        d.submit(QueueKind::Compute, &[launch(&k, &b, 1, 16, 64)]).unwrap();
        d.submit(QueueKind::Copy, &[copy(&a, &b)]).unwrap();
    }
    assert_eq!(read(&d, &a), [60; 1024]);
    assert_eq!(rig.reports(), Vec::<String>::new());
}

#[test]
fn threads_that_submit_and_wait_at_once_all_get_their_work() {
    let rig = Rig::hopper();
    let d = rig.open();
    let k = rig.add(&d);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (d, k) = (&d, &k);
            scope.spawn(move || {
                let m = words(d, &[thread; 64]);
                for round in 1..=20 {
                    let point = d.submit(QueueKind::Compute, &[launch(k, &m, 1, 1, 64)]).unwrap();
                    d.wait(&point, LONG).unwrap();
                    assert_eq!(read(d, &m), [thread + round; 64], "thread {thread}");
                }
            });
        }
    });
    assert_eq!(rig.reports(), Vec::<String>::new());
}

#[test]
fn copies_inside_a_compute_submission_keep_their_place() {
    let rig = Rig::hopper();
    let d = rig.open();
    let (k, a, b) = (rig.add(&d), words(&d, &[1; 64]), words(&d, &[0; 64]));
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
fn recorded_lists_are_chains_that_replay_with_patched_arguments() {
    let rig = Rig::hopper();
    let d = rig.open();
    let (k, a, b) = (rig.add(&d), words(&d, &[0; 64]), words(&d, &[0; 64]));
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
    assert_eq!((read(&d, &a), read(&d, &b)), (expected_a, expected_b));
    let no_such = Patch::Arg { command: 2, arg: 0, value: Arg::Var(0) };
    assert!(list.replay(&[no_such]).unwrap_err().to_string().contains("argument 0 of command 2"));
    assert_eq!(rig.reports(), Vec::<String>::new());
}

#[test]
fn timestamps_are_host_nanoseconds_in_order() {
    let rig = Rig::hopper();
    let d = rig.open();
    let (k, m) = (rig.add(&d), words(&d, &[0; 1024]));
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

#[test]
fn local_memory_grows_with_the_kernels_that_want_it() {
    let rig = Rig::hopper();
    let d = rig.open();
    let m = words(&d, &[0; 64]);
    let (plain, stack) = (rig.add(&d), rig.load(&d, "stack", Does::Add));
    for k in [&plain, &stack, &plain] {
        let point = d.submit(QueueKind::Compute, &[launch(k, &m, 1, 1, 64)]).unwrap();
        d.wait(&point, LONG).unwrap();
    }
    assert_eq!(read(&d, &m), [3; 64]);
    let seen = rig.units.seen.lock().unwrap().clone();
    assert_eq!((seen[0].local_bytes, seen[2].local_bytes), (0, 0));
    assert!(seen[1].local_bytes >= 2048, "{}", seen[1].local_bytes);
    assert_eq!(rig.reports(), Vec::<String>::new());
}

#[test]
fn clusters_and_large_shared_memory_reach_the_grid() {
    let rig = Rig::hopper();
    let d = rig.open();
    let (k, clusters, m) = (rig.add(&d), rig.load(&d, "clusters", Does::Add), words(&d, &[0; 256]));
    let geometry = Geometry { local_bytes: 227 << 10, ..Geometry::of([1, 1, 1], [64, 1, 1]) };
    let large = Command::exec(&k, [Arg::Buffer(m.at(0)), Arg::Var(1)], 1).over(geometry);
    let point = d.submit(QueueKind::Compute, &[large, launch(&clusters, &m, 1, 4, 64)]).unwrap();
    d.wait(&point, LONG).unwrap();
    let seen = rig.units.seen.lock().unwrap().clone();
    assert_eq!((seen[0].shared_bytes, seen[1].cluster), (228 << 10, [2, 1, 1]));
    let refused = |geometry| {
        let command = Command::exec(&clusters, [Arg::Buffer(m.at(0)), Arg::Var(1)], 1).over(geometry);
        d.submit(QueueKind::Compute, &[command]).unwrap_err().to_string()
    };
    let g = |groups, local, local_bytes| Geometry { local_bytes, ..Geometry::of(groups, local) };
    assert!(refused(g([3, 1, 1], [1; 3], 0)).contains("not a multiple"));
    assert!(refused(g([2, 1, 1], [1; 3], 228 << 10)).contains("bytes of shared memory, sm_90 has 233472"));
    assert!(refused(g([2, 1, 1], [32, 32, 2], 0)).contains("1 to 1024 threads"));
}

#[test]
fn memory_is_reused_and_runs_out_with_an_error() {
    let rig = Rig::new(Config { vram_bytes: 256 << 20, ..Config::new(Chip::Sm90) });
    let d = rig.open();
    let a = d.alloc(64 << 20).unwrap();
    let va = a.va();
    drop(a);
    assert_eq!(d.alloc(64 << 20).unwrap().va(), va, "the freed block is used again");
    let held: Vec<Memory> = std::iter::from_fn(|| d.alloc(32 << 20).ok()).take(20).collect();
    assert!((3..9).contains(&held.len()), "{}", held.len());
    assert!(matches!(d.alloc(32 << 20), Err(DeviceError::OutOfMemory { .. })));
    assert!(matches!(d.alloc(1 << 40), Err(DeviceError::TooBig { .. })));
    drop(held);
    d.alloc(128 << 20).unwrap();
}

#[test]
fn hang_is_a_report_within_the_deadline_and_the_next_device_works() {
    let rig = Rig::hopper();
    // How many entries wake hosts is a matter of time.
    let options = NvOptions { submit_timeout: Duration::from_millis(300), events: false, ..small_options() };
    let d = rig.open_with(&options).unwrap();
    let (hang, m) = (rig.load(&d, "hang", Does::Hang), words(&d, &[0; 64]));
    let point = d.submit(QueueKind::Compute, &[Command::exec(&hang, [], 1)]).unwrap();
    let start = Instant::now();
    let error = d.wait(&point, Duration::from_millis(200)).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(5));
    let DeviceError::Wait(WaitError::Timeout(report)) = &error else { panic!("{error}") };
    assert_eq!((report.queue.as_str(), report.signals[0].1, report.signals[0].2), ("NV/compute", 1, 2));
    let line = report.to_string();
    for part in ["last kernels: hang at 0x", "last calls: ", "GP_PUT 2", "COMPUTE SEND_PCAS_A=", "HOST SEM_EXECUTE="] {
        assert!(line.contains(part), "{part}: {line}");
    }
    // Copies still run: another channel.
    assert_eq!(read(&d, &words(&d, &[7; 8])), [7; 8]);
    drop((m, hang));
    assert!(d.close().is_err());
    drop(d);
    let rig = Rig::hopper();
    let d = rig.open();
    assert_eq!(read(&d, &words(&d, &[9; 8])), [9; 8]);
}

#[test]
fn memory_fault_ends_the_device_with_the_address() {
    let rig = Rig::hopper();
    let d = rig.open();
    let kernel = rig.load(&d, "load", Does::Load);
    let wild = Command::exec(&kernel, [Arg::Var(0x12_3456_7000)], 1);
    let point = d.submit(QueueKind::Compute, &[wild]).unwrap();
    let error = d.wait(&point, LONG).unwrap_err();
    let DeviceError::Wait(WaitError::Fault(report)) = &error else { panic!("{error}") };
    let fault = report.fault.clone().unwrap();
    assert!(fault.contains("channel error 31 (MMU fault)") && fault.contains("0x1234567000"), "{fault}");
    let again = d.submit(QueueKind::Compute, &[]).unwrap_err();
    assert!(again.to_string().contains("MMU fault"), "{again}");
    assert!(d.alloc(4).is_err());
    drop((kernel, point));
    d.close().unwrap();
    drop(d);
    assert_eq!(leftovers(&rig.log.events()), Vec::<String>::new());
}

#[test]
fn a_copy_that_waits_for_a_kernel_that_faulted_is_told_the_fault() {
    let rig = Rig::hopper();
    let d = rig.open();
    let kernel = rig.load(&d, "load", Does::Load);
    let (a, b) = (words(&d, &[1; 8]), words(&d, &[2; 8]));
    let wild = d.submit(QueueKind::Compute, &[Command::exec(&kernel, [Arg::Var(0x12_3456_7000)], 1)]).unwrap();
    let copy = [Command::Wait(wild), Command::copy(b.at(0), a.at(0), 32)];
    let error = match d.submit(QueueKind::Copy, &copy) {
        Ok(point) => d.wait(&point, LONG).unwrap_err(),
        // The fault was seen before the copy was queued.
        Err(error) => error,
    };
    assert!(error.to_string().contains("0x1234567000"), "{error}");
}

#[test]
fn wrong_images_and_devices_are_refused_before_anything_is_queued() {
    let rig = Rig::hopper();
    let d = rig.open();
    let (k, m) = (rig.add(&d), words(&d, &[0; 64]));
    let load = |code| d.load(&[KernelImage { name: "k", code }]).unwrap_err().to_string();
    assert!(load(Code::Raw(&[0; 16])).contains("a cubin is needed"));
    assert!(load(Code::Elf { bytes: b"no ELF", entry: "k" }).contains("the file is not a cubin"));
    let older = include_bytes!("../data/cubin/module_sm80.cubin");
    assert!(load(Code::Elf { bytes: older, entry: "k" }).contains("the cubin is for sm_80, the device is sm_90"));
    assert!(load(Code::Elf { bytes: CUBIN, entry: "none" }).contains("no kernel none, it has add, clusters"));
    let short = Command::exec(&k, [Arg::Buffer(m.at(0))], 1);
    let error = d.submit(QueueKind::Compute, &[short]).unwrap_err().to_string();
    assert!(error.contains("pass 1 arguments of 8 bytes to add, which takes 2 of 16"), "{error}");
    let other = Rig::hopper().open();
    let theirs = words(&other, &[0; 64]);
    let wrong = d.submit(QueueKind::Compute, &[launch(&k, &theirs, 1, 1, 1)]);
    assert!(matches!(wrong, Err(DeviceError::WrongDevice { .. })));
    d.submit(QueueKind::Compute, &[launch(&k, &m, 1, 1, 64)]).unwrap();
    assert_eq!(read(&d, &m), [1; 64]);
}

#[test]
fn machines_that_cannot_be_used_say_what_is_wrong() {
    let linux: Arc<dyn Port> = LinuxPort::new();
    if !Path::new("/dev/nvidiactl").exists() {
        let error = Driver::open("NV", Arc::clone(&linux), false).unwrap_err().to_string();
        assert_eq!(error, "device NV cannot be opened: open /dev/nvidiactl: ENOENT (no nvidia driver)");
        // A node that a container brought along, or that was left behind.
        let error = explain(&*linux, "/dev/nvidiactl", Errno::ENXIO);
        assert_eq!(error, "open /dev/nvidiactl: ENXIO (a node is there, but no nvidia driver)");
    }
    let hopper = || Config::new(Chip::Sm90);
    let refused = |config: Config| Rig::new(config).open_with(&small_options()).unwrap_err().to_string();
    let error = refused(Config { no_nodes: true, ..hopper() });
    assert!(error.contains("its node is missing: mknod -m 666 /dev/nvidia0 c "), "{error}");
    let error = refused(Config { confidential: true, ..hopper() });
    assert!(error.contains("confidential computing is on"), "{error}");
    let error = refused(Config { compute_prohibited: true, ..hopper() });
    assert!(error.contains("compute mode is \"prohibited\""), "{error}");
    let error = refused(Config { mig: true, ..hopper() });
    assert!(error.contains("MIG is on, and no instance"), "{error}");
}

#[test]
fn an_unknown_release_is_opened_by_what_it_answers() {
    for (major, minor, patch) in [(596, 1, 0), (630, 10, 2), (534, 1, 1)] {
        let rig = Rig::new(Config { release: Release { major, minor, patch }, ..Config::new(Chip::Sm90) });
        let d = rig.open();
        assert_eq!(read(&d, &words(&d, &pattern(64))), pattern(64), "{major}");
        assert!(d.telemetry().ecc_errors.is_some() && !d.telemetry().name.is_empty(), "{major}");
        d.close().unwrap();
    }
}

#[test]
fn gpus_are_chosen_by_index_bus_and_uuid() {
    let rig = Rig::new(Config { gpus: 2, ..Config::new(Chip::Sm90) });
    let driver = Driver::open("NV", Arc::clone(&rig.port), false).unwrap();
    let open = |selector: &Selector| NvDevice::open("NV", &driver, selector, &small_options());
    let second = open(&Selector::Index(1)).unwrap();
    let (bdf, uuid) = (second.gpu().card.bdf.clone(), doorbell::device::nv::uuid_text(&second.gpu().uuid));
    drop(second);
    for text in [format!("bdf={bdf}"), format!("uuid={uuid}")] {
        let selector = Selector::parse(Some(&text)).unwrap();
        assert_eq!(open(&selector).unwrap().gpu().card.bdf, bdf, "{text}");
    }
    let error = open(&Selector::Index(2)).unwrap_err().to_string();
    assert!(error.contains("no such GPU; there are 2: ") && error.contains(&bdf), "{error}");
    // Both at once, each with work of its own; the second waits for the first.
    let (a, b) = (open(&Selector::Index(0)).unwrap(), open(&Selector::Index(1)).unwrap());
    let (ka, kb) = (rig.add(&a), rig.add(&b));
    let (ma, mb) = (words(&a, &[1; 64]), words(&b, &[2; 64]));
    let pa = a.submit(QueueKind::Compute, &[launch(&ka, &ma, 1, 1, 64)]).unwrap();
    let pb = b.submit(QueueKind::Compute, &[Command::Wait(pa), launch(&kb, &mb, 1, 1, 64)]).unwrap();
    b.wait(&pb, LONG).unwrap();
    assert_eq!((read(&a, &ma), read(&b, &mb)), (vec![2; 64], vec![3; 64]));
}

#[test]
fn copies_reach_the_memory_of_a_peer_in_both_directions() {
    let rig = Rig::new(Config { gpus: 2, ..Config::new(Chip::Sm90) });
    let driver = Driver::open("NV", Arc::clone(&rig.port), false).unwrap();
    let open = |name: &str, n| NvDevice::open(name, &driver, &Selector::Index(n), &small_options()).unwrap();
    let (a, b) = (open("NV", 0), open("NV:1", 1));
    let (k, data) = (rig.add(&a), pattern(4096));
    let (ma, mb) = (words(&a, &data), words(&b, &[0; 4096]));
    assert!(a.reaches(&mb) && b.reaches(&ma));
    for round in 1..=5 {
        // A kernel of one, a copy of the other after it, and back by the first.
        a.submit(QueueKind::Compute, &[launch(&k, &ma, 1, 64, 64)]).unwrap();
        b.submit(QueueKind::Copy, &[Command::copy(mb.at(0), ma.at(0), 16384)]).unwrap();
        let wanted: Vec<u32> = data.iter().map(|x| x.wrapping_add(round)).collect();
        assert_eq!(read(&b, &mb), wanted, "{round}");
        a.submit(QueueKind::Copy, &[Command::copy(ma.at(8192), mb.at(0), 8192)]).unwrap();
        assert_eq!(read(&a, &ma)[2048..], wanted[..2048], "{round}");
        a.submit(QueueKind::Copy, &[Command::copy(ma.at(8192), mb.at(8192), 8192)]).unwrap();
    }
    let enabled = rig.calls().iter().filter(|call| call.contains("UVM_ENABLE_PEER_ACCESS")).count();
    assert_eq!(enabled, 1, "once a pair");
    drop((ma, mb, k));
    a.close().unwrap();
    b.close().unwrap();
    drop((a, b, driver));
    assert_eq!(rig.complaints(), Vec::<String>::new());
}

#[test]
fn a_channel_waits_for_another_card_s_signal_by_itself_and_for_one_of_a_closed_card() {
    let rig = Rig::new(Config { gpus: 2, ..Config::new(Chip::Sm90) });
    let driver = Driver::open("NV", Arc::clone(&rig.port), false).unwrap();
    let open = |name: &str, n| NvDevice::open(name, &driver, &Selector::Index(n), &small_options()).unwrap();
    let (a, b) = (open("NV", 0), open("NV:1", 1));
    let (ka, kb) = (rig.load(&a, "add", Does::AddLate), rig.load(&b, "add", Does::AddLate));
    let (ma, mb, mc) = (words(&a, &[7; 64]), words(&b, &[0; 64]), words(&b, &[0; 64]));
    let first = a.submit(QueueKind::Compute, &[launch(&ka, &ma, 1000, 1, 1)]).unwrap();
    let copied = b.submit(QueueKind::Copy, &[Command::copy(mb.at(0), ma.at(0), 256)]).unwrap();
    assert!(!first.is_done(), "the host did not wait");
    b.wait(&copied, LONG).unwrap();
    assert_eq!(read(&b, &mb)[..2], [1007, 7]);
    // The other card is closed before the channel comes to the wait for its signal.
    let second = a.submit(QueueKind::Compute, &[launch(&ka, &ma, 300, 1, 1)]).unwrap();
    b.submit(QueueKind::Compute, &[launch(&kb, &mc, 600, 1, 1)]).unwrap();
    let third = b.submit(QueueKind::Compute, &[Command::Wait(second.clone()), launch(&kb, &mb, 1, 1, 1)]).unwrap();
    assert!(!second.is_done(), "the host did not wait");
    drop((ka, ma));
    a.close().unwrap();
    drop(a);
    b.wait(&third, LONG).unwrap();
    assert_eq!((read(&b, &mb)[0], read(&b, &mc)[0]), (1008, 600));
    drop((kb, mb, mc, copied, first, second, third));
    b.close().unwrap();
    drop((b, driver));
    assert_eq!(rig.complaints(), Vec::<String>::new());
}

#[test]
fn a_card_is_opened_again_after_a_fault_whether_its_memory_lives_or_not() {
    let rig = Rig::new(Config { gpus: 2, ..Config::new(Chip::Sm90) });
    let driver = Driver::open("NV", Arc::clone(&rig.port), false).unwrap();
    let open = |name: &str, n| NvDevice::open(name, &driver, &Selector::Index(n), &small_options()).unwrap();
    let a = open("NV", 0);
    let ma = words(&a, &pattern(64));
    let mut kept = Vec::new();
    // The second time memory of the first device still lives, the third time nothing does.
    for keeps in [true, false, false] {
        let b = open("NV:1", 1);
        let mb = words(&b, &[0; 64]);
        b.submit(QueueKind::Copy, &[Command::copy(mb.at(0), ma.at(0), 256)]).unwrap();
        assert_eq!(read(&b, &mb), pattern(64));
        let kernel = rig.load(&b, "load", Does::Load);
        let wild = Command::exec(&kernel, [Arg::Var(0x12_3456_7000)], 1);
        let point = b.submit(QueueKind::Compute, &[wild]).unwrap();
        assert!(matches!(b.wait(&point, LONG).unwrap_err(), DeviceError::Wait(WaitError::Fault(_))));
        b.close().unwrap();
        if keeps {
            kept.push((mb, kernel));
        } else {
            kept.clear();
        }
    }
    assert_eq!(read(&a, &ma), pattern(64), "the first card is none the worse");
    drop(ma);
    a.close().unwrap();
    drop((a, driver));
    assert_eq!(leftovers(&rig.log.events()), Vec::<String>::new());
}

#[test]
fn refused_steps_of_opening_leave_no_addresses_behind() {
    let refusals = vec![Refusal { call: Call::Class(nvrm::KEPLER_CHANNEL_GROUP_A), nth: 1, status: 0x56 }];
    let rig = Rig::new(Config { refusals, ..Config::new(Chip::Sm90) });
    let driver = Driver::open("NV", Arc::clone(&rig.port), false).unwrap();
    let open = || NvDevice::open("NV", &driver, &Selector::Index(0), &small_options());
    assert!(open().unwrap_err().to_string().contains("KEPLER_CHANNEL_GROUP_A"));
    assert_eq!(driver.describe(1 << 32), "no buffers");
    let d = open().unwrap();
    assert_eq!(read(&d, &words(&d, &pattern(64))), pattern(64));
}

#[test]
fn memory_of_a_gpu_without_a_link_is_not_reached() {
    let rig = Rig::new(Config { gpus: 2, peer_links: false, ..Config::new(Chip::Sm90) });
    let driver = Driver::open("NV", Arc::clone(&rig.port), false).unwrap();
    let open = |name: &str, n| NvDevice::open(name, &driver, &Selector::Index(n), &small_options()).unwrap();
    let (a, b) = (open("NV", 0), open("NV:1", 1));
    let (ma, mb) = (words(&a, &[1; 64]), words(&b, &[2; 64]));
    assert!(!a.reaches(&mb) && !b.reaches(&ma));
    let error = b.submit(QueueKind::Copy, &[Command::copy(mb.at(0), ma.at(0), 256)]).unwrap_err().to_string();
    assert!(error.contains("UVM_ENABLE_PEER_ACCESS") && error.contains("NV_ERR_NOT_SUPPORTED"), "{error}");
    // Memory of the process itself needs no link.
    let host = a.alloc_host(256, Placement::Host).unwrap();
    host.host().unwrap().write(0, &[7; 256]).unwrap();
    b.submit(QueueKind::Copy, &[Command::copy(mb.at(0), host.at(0), 256)]).unwrap();
    assert_eq!(read(&b, &mb), [0x0707_0707; 64]);
}

#[test]
fn bring_up_goes_through_the_steps_in_their_order() {
    let rig = Rig::hopper();
    let _d = rig.open();
    let calls = rig.calls();
    let steps = [
        "CHECK_VERSION_STR",
        "NV01_ROOT_CLIENT",
        "UVM_INITIALIZE",
        "UVM_MM_INITIALIZE",
        "CARD_INFO",
        "REGISTER_FD",
        "GPU_GET_ID_INFO_V2",
        "NV01_DEVICE_0",
        "NV20_SUBDEVICE_0",
        "GPU_GET_CLASSLIST_V2",
        "HOPPER_USERMODE_A",
        "FERMI_VASPACE_A",
        "UVM_REGISTER_GPU",
        "UVM_REGISTER_GPU_VASPACE",
        "KEPLER_CHANNEL_GROUP_A",
        "FERMI_CONTEXT_SHARE_A",
        "HOPPER_CHANNEL_GPFIFO_A",
        "HOPPER_COMPUTE_A",
        "GPFIFO_GET_WORK_SUBMIT_TOKEN",
        "UVM_REGISTER_CHANNEL",
        "HOPPER_DMA_COPY_A",
        "GPFIFO_SCHEDULE",
        "GT200_DEBUGGER",
    ];
    let mut from = 0;
    for step in steps {
        let at = calls[from..].iter().position(|c| c.contains(step));
        from += at.unwrap_or_else(|| panic!("{step} does not come after {from} of {calls:#?}")) + 1;
    }
}

#[test]
fn telemetry_is_what_the_driver_says_and_what_it_refuses_is_left_out() {
    for (major, minor, patch) in [(580, 159, 4), (595, 45, 4)] {
        let rig = Rig::new(Config { release: Release { major, minor, patch }, ..Config::new(Chip::Sm90) });
        let d = rig.open();
        let t = d.telemetry();
        assert_eq!((t.name.as_str(), t.vram_bytes, t.temperature_c), ("NVIDIA H200", Some(16 << 30), Some(42)));
        assert!(t.vram_free_bytes.unwrap() < 16 << 30 && t.clocks_khz.unwrap()[0] > 1_000_000, "{t:?}");
        assert_eq!((t.link, t.ecc_errors, t.performance_state), (Some((5, 16)), Some((0, 0)), Some(0)));
        assert_eq!((t.channel_errors, t.needs_reset), (Some(0), Some(false)));
        let state = d.state().unwrap();
        assert!(
            state.line.starts_with("NVIDIA H200, ") && state.line.contains("42 C, PCIe 5 x16, ECC 0"),
            "{}",
            state.line
        );
        assert_eq!(state.values["temperature_c"], 42);
        assert_eq!(rig.reports(), Vec::<String>::new());
    }
    // NV_ERR_NOT_SUPPORTED
    let refused =
        [nvrm::THERMAL_SYSTEM_EXECUTE_V2.cmd, nvrm::PERF_GET_LEVEL_INFO_V2.cmd, nvrm::GPU_QUERY_ECC_STATUS.cmd];
    let refusals = refused.map(|cmd| Refusal { call: Call::Control(cmd), nth: 1, status: 0x56 }).to_vec();
    let rig = Rig::new(Config { refusals, ..Config::new(Chip::Sm90) });
    let t = rig.open().telemetry();
    assert_eq!((t.temperature_c, t.clocks_khz, t.ecc_errors, t.link), (None, None, None, Some((5, 16))));
}

#[test]
fn copies_run_on_an_engine_of_their_own_beside_a_kernel_that_hangs() {
    let rig = Rig::hopper();
    let d = rig.open_with(&NvOptions { submit_timeout: Duration::from_millis(300), ..small_options() }).unwrap();
    let own = |call: &&String| {
        call.contains("HOPPER_DMA_COPY_A") && call.contains("version=1") && !call.contains("engine_type=1,")
    };
    assert_eq!(rig.calls().iter().filter(own).count(), 1, "{:#?}", rig.calls());
    let hang = rig.load(&d, "hang", Does::Hang);
    d.submit(QueueKind::Compute, &[Command::exec(&hang, [], 1)]).unwrap();
    let data = pattern(5000);
    assert_eq!(read(&d, &words(&d, &data)), data);
    // The same without one.
    let rig = Rig::hopper();
    let d = rig.open_with(&NvOptions { own_copy_engine: false, ..small_options() }).unwrap();
    assert_eq!(rig.calls().iter().filter(own).count(), 0);
    assert_eq!(read(&d, &words(&d, &data)), data);
}

#[test]
fn failed_open_gives_everything_back() {
    let rig = Rig::hopper();
    // More addresses than there are.
    let options = NvOptions { push_bytes: 1 << 45, ..small_options() };
    assert!(rig.open_with(&options).is_err());
    assert_eq!(leftovers(&rig.log.events()), Vec::<String>::new());
}
