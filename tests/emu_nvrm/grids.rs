//! Grids: QMDs of every version arrive with their numbers, followed by semaphores and chains, and what the scheduler
//! refuses.

use super::client::{Buffer, Channel, Device, PAGE, release, wait};
use doorbell::emu::nvrm::compute::{ComputeFault, Launch as Arrived, Machine, NoCompute};
use doorbell::emu::nvrm::{Chip, Config, ReportKind, SoftNv};
use doorbell::hcq::packet::GpuVa;
use doorbell::hcq::packet::nv::qmd::{Action, Constant, Dependent, Invalidate, Launch, Qmd, Release, Version};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// Offsets in the page of a grid's things: code, bank 0, semaphores, QMDs.
const BANK: u64 = 0x1000;
const SIGNAL: u64 = 0x2000;
const QMDS: u64 = 0x3000;

/// A grid of 4x2 CTAs of 64 threads on this chip.
pub fn launch(chip: Chip, memory: &Buffer) -> Launch {
    let facts = chip.facts();
    let bank = Constant { address: GpuVa(memory.va + BANK), len_bytes: 0x240, invalidate: true };
    let mut constants = [None; 8];
    constants[0] = Some(bank);
    constants[3] = Some(Constant { len_bytes: 0x40, invalidate: false, ..bank });
    Launch {
        program: GpuVa(memory.va),
        registers: 24,
        barriers: 2,
        sass_version: facts.sm_version >> 4 & 0xf0 | facts.sm_version & 0xf,
        grid: [4, 2, 1],
        block: [64, 1, 1],
        cluster: None,
        shared_bytes: 0x400,
        shared_config: [32 << 10, facts.sm_shared_kib << 10],
        local_bytes: 0,
        constants,
        releases: Vec::new(),
        dependent: None,
        invalidate: Invalidate::DATA,
        sysmembar: true,
    }
}

/// Puts a QMD into memory and gives the methods that launch it.
fn methods(chip: Chip, memory: &Buffer, slot: u64, qmd: &Qmd) -> [u32; 4] {
    for (n, word) in qmd.words().iter().enumerate() {
        memory.view.write_u32(QMDS + slot * 0x200 + n as u64 * 4, *word).unwrap();
    }
    let va = ((memory.va + QMDS + slot * 0x200) >> 8) as u32;
    if chip == Chip::Sm75 { [0x2001_20ad, va, 0x2001_20af, 3] } else { [0x2001_20ad, va, 0x2001_20b0, 9] }
}

fn submit(device: &Device, channel: &mut Channel, memory: &Buffer, launch: &Launch) {
    let chip = Chip::named(device.facts().name).unwrap();
    let qmd = launch.emit(chip.facts().qmd).unwrap();
    channel.push(&methods(chip, memory, 0, &qmd));
    channel.push(&release(memory.va + SIGNAL, 1));
    channel.ring();
}

#[test]
fn qmds_of_every_version_arrive_with_grid_banks_and_windows() {
    for chip in Chip::ALL {
        let (device, seen) = Device::with_sms(chip, |_, _| Ok(()));
        let mut channel = device.compute();
        let memory = device.vram(16 * PAGE);
        // SHARED_WINDOW_A, LOCAL_WINDOW_A: docs/nv.md 2.1.
        channel.submit(&[0x2002_20a8, 0x7294, 0, 0x2002_21ec, 0x7293, 0]);
        let asked = launch(chip, &memory);
        submit(&device, &mut channel, &memory, &asked);
        memory.wait_u64(SIGNAL, 1);
        let got = seen.launches.lock().unwrap().pop().unwrap();
        let mut banks = [None; 8];
        banks[0] = Some((memory.va + BANK, 0x240));
        banks[3] = Some((memory.va + BANK, 0x40));
        let want = Arrived {
            chip,
            qmd_va: memory.va + QMDS,
            entry: memory.va,
            grid: [4, 2, 1],
            block: [64, 1, 1],
            cluster: [1; 3],
            registers: 24,
            barriers: 2,
            shared_bytes: 0x400,
            local_bytes: 0,
            banks,
            shared_window: 0x7294 << 32,
            local_window: 0x7293 << 32,
        };
        assert_eq!(got, want, "{chip:?}");
        assert_eq!(device.reports(), [], "{chip:?}");
    }
}

#[test]
fn the_vector_of_the_facts_runs_as_it_stands() {
    // docs/nv.md 4.2: computed from NVIDIA's header.
    let (device, seen) = Device::with_sms(Chip::Sm90, |_, _| Ok(()));
    let mut channel = device.compute();
    let memory = device.vram(16 * PAGE);
    let mut words = [0_u32; 96];
    let vector = [
        (0, 0x013f_0000),
        (10, 0x0000_1009),
        (13, 0x0000_0009),
        (16, 0x9000_0000),
        (17, 0x0300_0000),
        (18, 0xbc04_0040),
        (19, 0x0000_3e83),
        (22, 7),
        (32, 4),
        (33, 2),
        (34, 1),
        (35, 0x0001_0000),
        (36, 0x0001_0080),
        (37, 0x1012_0001),
    ];
    for (at, word) in vector {
        words[at] = word;
    }
    let signal = memory.va + SIGNAL;
    (words[20], words[21]) = (signal as u32, (signal >> 32) as u32);
    (words[38], words[39]) = (memory.va as u32, (memory.va >> 32) as u32);
    let bank = (memory.va + BANK) >> 6;
    (words[48], words[49]) = (bank as u32, (bank >> 32) as u32 | 0x24 << 19);
    let qmd = Qmd::from_words(Version::V4_0, &words).unwrap();
    channel.submit(&methods(Chip::Sm90, &memory, 0, &qmd));
    memory.wait_u64(SIGNAL, 7);
    let got = seen.launches.lock().unwrap().pop().unwrap();
    assert_eq!((got.grid, got.block, got.registers, got.barriers), ([4, 2, 1], [128, 1, 1], 18, 2));
    assert_eq!((got.shared_bytes, got.banks[0]), (0x400, Some((memory.va + BANK, 0x240))));
}

#[test]
fn releases_of_the_qmd_come_after_the_grid_with_the_width_of_the_version() {
    for chip in Chip::ALL {
        let (device, _seen) = Device::with_sms(chip, |launch, machine| {
            machine.vm.write_u32(launch.banks[0].unwrap().0 + 0x100, 0x600d).unwrap();
            Ok(())
        });
        let mut channel = device.compute();
        let memory = device.vram(16 * PAGE);
        let wide = chip != Chip::Sm75;
        let payload = if wide { 3 << 32 | 4 } else { 4 };
        let release =
            |at| Release { address: GpuVa(memory.va + SIGNAL + at), payload, timestamp: at == 0, sysmembar: at == 0 };
        let releases = vec![release(0), Release { sysmembar: true, ..release(64) }];
        let asked = Launch { releases, ..launch(chip, &memory) };
        memory.view.write_u64(SIGNAL + 64, u64::MAX).unwrap();
        let qmd = asked.emit(chip.facts().qmd).unwrap();
        channel.submit(&methods(chip, &memory, 0, &qmd));
        memory.wait_u64(SIGNAL, payload);
        assert_eq!(memory.view.read_u32(BANK + 0x100), Ok(0x600d));
        assert_ne!(memory.view.read_u64(SIGNAL + 8), Ok(0), "the time");
        let second = if wide { payload } else { 0xffff_ffff_0000_0004 };
        wait("the second release", || memory.view.read_u64(SIGNAL + 64).unwrap() == second);
    }
}

#[test]
fn a_chain_runs_in_order_without_the_host() {
    for chip in [Chip::Sm80, Chip::Sm90, Chip::Sm120] {
        let order = Arc::new(Mutex::new(Vec::new()));
        let reported = Arc::clone(&order);
        let (device, _seen) = Device::with_sms(chip, move |launch, _| {
            reported.lock().unwrap().push(launch.grid[0]);
            Ok(())
        });
        let mut channel = device.compute();
        let memory = device.vram(16 * PAGE);
        let version = chip.facts().qmd;
        for (slot, next) in [(0, Some(2)), (2, Some(1)), (1, None)] {
            let qmd = |slot: u64| GpuVa(memory.va + QMDS + slot * 0x200);
            let dependent = next.map(|next| Dependent { qmd: qmd(next), action: Action::Schedule, prefetch: true });
            let done = Release { address: GpuVa(memory.va + SIGNAL), payload: 9, timestamp: true, sysmembar: true };
            let releases = if next.is_none() { vec![done] } else { Vec::new() };
            let asked = Launch { grid: [10 + slot as u32, 1, 1], dependent, releases, ..launch(chip, &memory) };
            methods(chip, &memory, slot, &asked.emit(version).unwrap());
        }
        let va = ((memory.va + QMDS) >> 8) as u32;
        channel.submit(&[0x2001_20ad, va, 0x2001_20b0, 9]);
        memory.wait_u64(SIGNAL, 9);
        assert_eq!(*order.lock().unwrap(), [10, 12, 11], "{chip:?}");
    }
}

#[test]
fn clusters_arrive_from_hopper_on() {
    let (device, seen) = Device::with_sms(Chip::Sm90, |_, _| Ok(()));
    let mut channel = device.compute();
    let memory = device.vram(16 * PAGE);
    let asked = Launch { cluster: Some([2, 2, 1]), ..launch(Chip::Sm90, &memory) };
    submit(&device, &mut channel, &memory, &asked);
    memory.wait_u64(SIGNAL, 1);
    assert_eq!(seen.launches.lock().unwrap().pop().unwrap().cluster, [2, 2, 1]);
    let asked = Launch { grid: [17, 1, 1], cluster: Some([17, 1, 1]), ..asked };
    submit(&device, &mut channel, &memory, &asked);
    assert_eq!(channel.wait_error(), 13);
}

#[test]
fn a_grid_of_none_runs_nothing_and_releases() {
    let (device, seen) = Device::with_sms(Chip::Sm90, |_, _| Ok(()));
    let mut channel = device.compute();
    let memory = device.vram(16 * PAGE);
    let mut asked = launch(Chip::Sm90, &memory);
    asked.grid[0] = 0;
    submit(&device, &mut channel, &memory, &asked);
    memory.wait_u64(SIGNAL, 1);
    assert!(seen.launches.lock().unwrap().is_empty());
}

#[test]
fn inline_qmds_are_written_by_methods() {
    let (device, seen) = Device::with_sms(Chip::Sm90, |_, _| Ok(()));
    let mut channel = device.compute();
    let memory = device.vram(16 * PAGE);
    let qmd = launch(Chip::Sm90, &memory).emit(Version::V4_0).unwrap();
    let va = memory.va + QMDS;
    // SET_INLINE_QMD_ADDRESS_A/B, LOAD_INLINE_QMD_DATA(0..96).
    let mut words = vec![0x2002_20c6, (va >> 40) as u32 | 1 << 30, (va >> 8) as u32, 0x2060_20c8];
    words.extend(qmd.words());
    words.extend([0x2001_20ad, (va >> 8) as u32, 0x2001_20b0, 9]);
    channel.push(&words);
    channel.push(&release(memory.va + SIGNAL, 1));
    channel.ring();
    memory.wait_u64(SIGNAL, 1);
    assert_eq!(seen.launches.lock().unwrap().len(), 1);
}

#[test]
fn a_release_that_does_not_wait_comes_before_the_grid_every_time() {
    let (device, _seen) = Device::with_sms(Chip::Sm90, |launch, machine| {
        machine.vm.write_u64(launch.banks[0].unwrap().0 + 0x100, machine.clock.ns()).unwrap();
        Ok(())
    });
    let mut channel = device.compute();
    let memory = device.vram(16 * PAGE);
    let qmd = launch(Chip::Sm90, &memory).emit(Version::V4_0).unwrap();
    let signal = memory.va + SIGNAL;
    channel.push(&methods(Chip::Sm90, &memory, 0, &qmd));
    // A release without WFI, of the time as well; the grid writes its own time when it runs.
    channel.push(&[0x2005_0017, signal as u32, (signal >> 32) as u32, 1, 0, 0x0300_0001]);
    channel.ring();
    wait("the grid", || memory.view.read_u64(BANK + 0x100).unwrap() != 0);
    let (released, ran) = (memory.view.read_u64(SIGNAL + 8).unwrap(), memory.view.read_u64(BANK + 0x100).unwrap());
    assert!(0 < released && released < ran, "{released} {ran}");
}

#[test]
fn without_strict_mode_a_grid_runs_where_it_is_launched() {
    let config = Config { strict: false, ..Config::new(Chip::Sm90) };
    let (machine, seen) = super::client::machine(config, |launch, machine| {
        machine.vm.write_u32(launch.banks[0].unwrap().0 + 0x100, 1).unwrap();
        Ok(())
    });
    let device = Device::of(machine);
    let mut channel = device.compute();
    let memory = device.vram(16 * PAGE);
    let qmd = launch(Chip::Sm90, &memory).emit(Version::V4_0).unwrap();
    channel.push(&methods(Chip::Sm90, &memory, 0, &qmd));
    // A release that does not wait: here the grid is done all the same.
    let signal = memory.va + SIGNAL;
    channel.push(&[0x2005_0017, signal as u32, (signal >> 32) as u32, 1, 0, 0x0100_0001]);
    channel.ring();
    memory.wait_u64(SIGNAL, 1);
    assert_eq!(memory.view.read_u32(BANK + 0x100), Ok(1));
    assert_eq!(seen.launches.lock().unwrap().len(), 1);
    channel.doorbell.ring(0xfff);
    assert_eq!(device.reports(), [], "a doorbell of no channel is let pass");
}

#[test]
fn grids_that_no_scheduler_starts_are_graphics_exceptions() {
    type Change = fn(&mut Launch, u64);
    let cases: [(&str, u32, Change); 11] = [
        ("CTA of [1024, 2, 1]", 13, |l, _| l.block = [1024, 2, 1]),
        ("2 registers", 13, |l, _| l.registers = 2),
        ("do not fit into an SM", 13, |l, _| (l.registers, l.block) = (128, [1024, 1, 1])),
        ("shared memory", 13, |l, _| l.shared_bytes = 64 << 10),
        ("shared memory", 13, |l, _| l.shared_config = [240 << 10, 240 << 10]),
        ("code of version 0x80", 13, |l, _| l.sass_version = 0x80),
        ("not at a multiple of 128", 13, |l, _| l.program.0 += 16),
        ("local memory", 13, |l, _| l.local_bytes = 0x240),
        ("Fetch of", 31, |l, _| l.program.0 = 0xf0_0000_0000),
        ("Read of", 31, |l, _| l.constants[0].as_mut().unwrap().address.0 = 0xf0_0000_0000),
        ("17 barriers", 13, |l, _| l.barriers = 17),
    ];
    for (text, code, change) in cases {
        let (device, seen) = Device::with_sms(Chip::Sm90, |_, _| Ok(()));
        let mut channel = device.compute();
        let memory = device.vram(16 * PAGE);
        let mut asked = launch(Chip::Sm90, &memory);
        change(&mut asked, memory.va);
        submit(&device, &mut channel, &memory, &asked);
        assert_eq!(channel.wait_error(), code, "{text}");
        let report = device.reports().pop().unwrap();
        assert_eq!(report.kind, ReportKind::Xid(code));
        assert!(report.text.contains(text), "{report}");
        assert!(seen.launches.lock().unwrap().is_empty(), "{text}");
    }
}

#[test]
fn local_memory_that_the_channel_has_lets_the_grid_start() {
    let (device, seen) = Device::with_sms(Chip::Sm90, |_, _| Ok(()));
    let mut channel = device.compute();
    let memory = device.vram(16 * PAGE);
    let tpc = 0x26_0000_u64;
    let slm = device.vram(tpc * 66);
    // LOCAL_MEMORY_A, NON_THROTTLED_A: docs/nv.md 3.4.
    channel.submit(&[0x2002_21e4, (slm.va >> 32) as u32, slm.va as u32, 0x2003_20b9, 0, tpc as u32, 0xff]);
    let asked = Launch { local_bytes: 0x260, ..launch(Chip::Sm90, &memory) };
    submit(&device, &mut channel, &memory, &asked);
    memory.wait_u64(SIGNAL, 1);
    assert_eq!(seen.launches.lock().unwrap().pop().unwrap().local_bytes, 0x260);
    let asked = Launch { local_bytes: 0x280, ..asked };
    submit(&device, &mut channel, &memory, &asked);
    assert_eq!(channel.wait_error(), 13);
}

#[test]
fn garbage_in_a_qmd_is_named_and_a_field_that_is_not_modelled_too() {
    let (device, _seen) = Device::with_sms(Chip::Sm90, |_, _| Ok(()));
    let memory = device.vram(16 * PAGE);
    let good = launch(Chip::Sm90, &memory).emit(Version::V4_0).unwrap();
    let mut words = good.words().to_vec();
    words[90] = 0xffff;
    let bad = Qmd::from_words(Version::V4_0, &words).unwrap();
    let mut channel = device.compute();
    channel.submit(&methods(Chip::Sm90, &memory, 0, &bad));
    assert_eq!(channel.wait_error(), 13);
    assert!(device.reports()[0].text.contains("dword 90"), "{:?}", device.reports());
    let mut latched = good;
    latched.set("WAIT_ON_LATCH_VALID", 0, 1).unwrap();
    let mut channel = device.compute();
    channel.submit(&methods(Chip::Sm90, &memory, 0, &latched));
    assert_eq!(channel.wait_error(), 13);
    let unmodelled = device.reports().into_iter().find(|r| r.kind == ReportKind::Unmodelled).unwrap();
    assert!(unmodelled.text.contains("WAIT_ON_LATCH_VALID"), "{unmodelled}");
}

#[test]
fn turing_has_no_second_pcas() {
    let (device, _seen) = Device::with_sms(Chip::Sm75, |_, _| Ok(()));
    let mut channel = device.compute();
    channel.submit(&[0x2001_20ad, 0x1000, 0x2001_20b0, 9]);
    assert_eq!(channel.wait_error(), 11);
}

#[test]
fn a_machine_without_sms_refuses_every_grid() {
    let machine = SoftNv::with_compute(Config::new(Chip::Sm90), Arc::new(NoCompute)).unwrap();
    let device = Device::of(machine);
    let mut channel = device.compute();
    let memory = device.vram(16 * PAGE);
    let asked = launch(Chip::Sm90, &memory);
    submit(&device, &mut channel, &memory, &asked);
    assert_eq!(channel.wait_error(), 13);
    assert!(device.reports().iter().any(|r| r.kind == ReportKind::Unmodelled && r.text.contains("no SMs")));
}

/// A grid that ends when the test signals it.
pub fn endless(_: &Arrived, machine: &Machine<'_>) -> Result<(), ComputeFault> {
    while !machine.stop.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    Err(ComputeFault::Stopped)
}

/// Launches a plain grid, followed by a release.
pub fn start(device: &Device, channel: &mut Channel, memory: &Buffer) {
    let chip = Chip::named(device.facts().name).unwrap();
    submit(device, channel, memory, &launch(chip, memory));
}

pub const DONE: u64 = SIGNAL;
