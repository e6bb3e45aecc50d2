//! Runs of the NVIDIA device, recorded and played again against another software GPU: the same calls, the same methods,
//! the same grids.
//!
//! A program of its own: a recording is played at its own addresses, which no other device of the process may have.
#![cfg(target_os = "linux")]

use doorbell::device::nv::{Driver, NvDevice, NvOptions, Selector};
use doorbell::device::{Arg, Code, Command, Device, Geometry, Kernel, KernelImage, Memory, QueueKind};
use doorbell::emu::nvrm::{Chip, Config, SoftNv};
use doorbell_ioctl::abi::nvrm::Release;
use doorbell_ioctl::port::{CpuPtr, LinuxPort, MapRequest, Port};
use doorbell_ioctl::replay::{ReplayOptions, Report, replay, submissions};
use doorbell_ioctl::trace::{Event, Log, Trace, What, leftovers};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[path = "device_nv/units.rs"]
#[allow(dead_code)] // what other tests' kernels do
mod units;

use units::{Does, Units};

const LONG: Duration = Duration::from_secs(60);
const CUBIN: &[u8] = include_bytes!("data/cubin/device_sm90.cubin");

/// One test at a time: each needs the recorded addresses.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A software GPU under a recorder.
struct Recorded {
    soft: Arc<SoftNv>,
    units: Arc<Units>,
    port: Arc<dyn Port>,
    log: Log,
}

fn recorded(config: Config) -> Recorded {
    let units = Arc::new(Units::default());
    let soft = SoftNv::with_compute(config, Arc::clone(&units) as _).unwrap();
    let log = Log::default();
    let port = Trace::recording(Arc::clone(&soft) as _, Box::new(log.clone()));
    Recorded { soft, units, port, log }
}

fn words(d: &NvDevice, values: &[u32]) -> Memory {
    let memory = d.alloc(values.len() as u64 * 4).unwrap();
    d.copy_in(&memory, 0, bytemuck::cast_slice(values)).unwrap();
    memory
}

fn pattern(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| i.wrapping_mul(0x9e37_79b9) ^ 0x5bd1).collect()
}

fn launch(kernel: &Kernel, memory: &Memory, value: i64, groups: u32) -> Command {
    let geometry = Geometry::of([groups, 1, 1], [64, 1, 1]);
    Command::exec(kernel, [Arg::Buffer(memory.at(0)), Arg::Var(value)], 1).over(geometry)
}

/// A program with both queues, several kernels and a recorded list, from open to close.
fn program(rig: &Recorded) -> Vec<u32> {
    let driver = Driver::open("NV", Arc::clone(&rig.port), false).unwrap();
    let options = NvOptions {
        ring_entries: 64,
        push_bytes: 8192,
        launch_bytes: 32 << 10,
        staging_bytes: 64 << 10,
        ..NvOptions::default()
    };
    let d = NvDevice::open("NV", &driver, &Selector::Index(0), &options).unwrap();
    let image = KernelImage { name: "add", code: Code::Elf { bytes: CUBIN, entry: "add" } };
    let k = d.load(&[image]).unwrap().remove(0);
    rig.units.known.lock().unwrap().insert(k.entry(), Does::Add);
    let (a, b) = (words(&d, &pattern(1024)), words(&d, &[0; 1024]));
    let point = d.submit(QueueKind::Compute, &[launch(&k, &a, 5, 4)]).unwrap();
    d.wait(&point, LONG).unwrap();
    let point = d.submit(QueueKind::Copy, &[Command::copy(b.at(0), a.at(0), 4096)]).unwrap();
    d.wait(&point, LONG).unwrap();
    let mut list = d.record(&[launch(&k, &b, 1, 1), launch(&k, &b, 2, 1)]).unwrap();
    for _ in 0..3 {
        let point = list.replay(&[]).unwrap();
        d.wait(&point, LONG).unwrap();
    }
    let mut out = vec![0u32; 1024];
    d.copy_out(&b, 0, bytemuck::cast_slice_mut(&mut out)).unwrap();
    drop((list, point, a, b, k));
    d.close().unwrap();
    out
}

/// Plays a recording; kernels do what they did at the same places.
fn played(first: &Recorded, events: &[Event], config: Config) -> (Recorded, Report) {
    let rig = recorded(config);
    rig.units.known.lock().unwrap().extend(first.units.known.lock().unwrap().iter());
    let report = replay(events, &rig.port, &ReplayOptions { queue_timeout: LONG });
    (rig, report)
}

#[test]
fn replay_gives_the_identical_methods_and_grids_on_another_software_gpu() {
    identical(|| Config::new(Chip::Sm90));
}

#[test]
fn recordings_of_machines_without_uvm_are_followed_too() {
    identical(|| Config { no_uvm: true, ..Config::new(Chip::Sm90) });
}

/// Releases from 610 put the fields of channels elsewhere.
#[test]
fn recordings_of_drivers_with_moved_channel_fields_are_followed_too() {
    let release = Release { major: 615, minor: 71, patch: 9 };
    identical(|| Config { release, ..Config::new(Chip::Sm90) });
}

/// A recording from a machine is played on another of its kind.
fn identical(config: impl Fn() -> Config) {
    let _alone = alone();
    let first = recorded(config());
    let out = program(&first);
    assert_eq!(out[0], pattern(1)[0].wrapping_add(5 + 3 + 6));
    let events = first.log.events();
    let (again, report) = played(&first, &events, config());
    assert_eq!(report.differences, []);
    assert_eq!((report.timeouts, report.doorbells > 8), (0, true));
    let (then, now) = (submissions(&events), submissions(&again.log.events()));
    assert!(then.len() >= 8 && then.iter().any(|s| s.queue != then[0].queue), "{}", then.len());
    // Entries, and the methods they name.
    assert!(then.iter().all(|s| s.bytes.len() > 16 && s.queue_type == 0xc86f));
    assert_eq!(then, now);
    let grids =
        |units: &Units| units.seen.lock().unwrap().iter().map(|l| (l.entry, l.grid, l.block)).collect::<Vec<_>>();
    assert_eq!(grids(&first.units).len(), 7);
    assert_eq!(grids(&first.units), grids(&again.units));
    assert_eq!(again.soft.reports().len(), 0);
    assert_eq!(leftovers(&again.log.events()), Vec::<String>::new());
}

/// Words where channels say how far they have read (GP_GET, 0x88 in a USERD of 512 bytes, before GP_PUT), and what the
/// recording last found there.
fn read_pointers(events: &[Event]) -> Vec<(u64, u32)> {
    let mut found: BTreeMap<u64, u32> = BTreeMap::new();
    for event in events {
        if let What::Memory { at, bytes } = &event.what {
            let words = bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b));
            found.extend((at.0..).step_by(4).zip(words));
        }
    }
    let is_entry = |value: Option<&u32>| value.is_some_and(|v| (1..64).contains(v));
    found
        .iter()
        .filter(|(at, v)| *at & 0x1ff == 0x88 && is_entry(Some(v)) && is_entry(found.get(&(*at + 4))))
        .map(|(at, v)| (*at, *v))
        .collect()
}

/// A busy machine's recorder sees the device's words late: what the device of today has written since stays.
#[test]
fn read_pointers_that_a_recording_saw_late_are_not_put_back() {
    let _alone = alone();
    let first = recorded(Config::new(Chip::Sm90));
    program(&first);
    let mut events = first.log.events();
    let channels = read_pointers(&events);
    assert!(channels.len() >= 2, "{channels:x?}");
    // Before the last doorbell of all: nothing writes the other channel's again.
    let last = events.iter().rposition(|e| matches!(e.what, What::Doorbell { .. })).unwrap();
    for (at, value) in channels {
        let what = What::Memory { at: CpuPtr(at), bytes: (value - 1).to_le_bytes().to_vec() };
        events.insert(last, Event { what, ..events[last].clone() });
    }
    let rig = recorded(Config::new(Chip::Sm90));
    rig.units.known.lock().unwrap().extend(first.units.known.lock().unwrap().iter());
    let report = replay(&events, &rig.port, &ReplayOptions { queue_timeout: Duration::from_secs(3) });
    assert_eq!((report.differences, report.timeouts), (vec![], 0));
}

#[test]
fn a_machine_of_another_kind_is_told_field_by_field() {
    let _alone = alone();
    let first = recorded(Config::new(Chip::Sm90));
    program(&first);
    let release = Release { major: 580, minor: 95, patch: 5 };
    let config = Config { release, bar1_bytes: 8 << 30, ..Config::new(Chip::Sm90) };
    let (_, report) = played(&first, &first.log.events(), config);
    let lines: Vec<String> = report.differences.iter().map(ToString::to_string).collect();
    let reported = |call: &str, field: &str| lines.iter().any(|l| l.contains(call) && l.contains(field));
    assert!(reported("NV_ESC_CHECK_VERSION_STR", "version_string: "), "{lines:#?}");
    assert!(reported("NV_ESC_CARD_INFO", "cards.fb_size: 0x400000000 then, 0x200000000 now"), "{lines:#?}");
}

#[test]
fn addresses_that_somebody_else_has_are_told_as_differences() {
    let _alone = alone();
    let first = recorded(Config::new(Chip::Sm90));
    program(&first);
    let events = first.log.events();
    let linux: Arc<dyn Port> = LinuxPort::new();
    let held = events.iter().find_map(|event| match &event.what {
        What::Mmap { map, result: Ok(at) } if map.fd.is_none() => {
            let request = MapRequest { addr: Some(*at), ..MapRequest::reserve(map.len_bytes) };
            linux.mmap(&request).ok().map(|now| (now, map.len_bytes, *at))
        }
        _ => None,
    });
    let (now, len_bytes, at) = held.unwrap();
    assert_eq!(now, at, "the recorded device has given it back");
    let (_, report) = played(&first, &events, Config::new(Chip::Sm90));
    let reported = report.differences.iter().any(|d| d.call == "mmap" && d.what.contains("cannot be translated"));
    assert!(reported, "{:?}", report.differences);
    linux.munmap(now, len_bytes).unwrap();
}
