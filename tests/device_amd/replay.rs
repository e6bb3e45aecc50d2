//! Runs of the AMD device, recorded and played again against another software GPU.

use super::units::{self, Units};
use super::{CHIPS, LONG, launch, load, pattern, read, small_options, words};
use doorbell::device::amd::{AmdDevice, Driver, Selector};
use doorbell::device::{Command, Device, QueueKind};
use doorbell::emu::kfd::{Chip, Config, SoftKfd};
use doorbell_ioctl::abi::{kfd, same_call};
use doorbell_ioctl::port::{CpuPtr, LinuxPort, MapRequest, Port};
use doorbell_ioctl::replay::{ReplayOptions, Report, replay, submissions};
use doorbell_ioctl::trace::{Event, FileSink, Log, Trace, What, leftovers, read_trace};
use std::sync::Arc;

/// A software GPU under a recorder.
struct Recorded {
    soft: Arc<SoftKfd>,
    units: Arc<Units>,
    port: Arc<dyn Port>,
    log: Log,
}

fn recorded(config: Config) -> Recorded {
    let units = Arc::new(Units::default());
    let soft = SoftKfd::with_compute(config, Arc::clone(&units) as _).unwrap();
    let log = Log::default();
    let port = Trace::recording(Arc::clone(&soft) as _, Box::new(log.clone()));
    Recorded { soft, units, port, log }
}

/// A program with both queues, several kernels and a recorded list, from open to close.
fn program(port: &Arc<dyn Port>) -> Vec<u32> {
    let driver = Driver::open("AMD", Arc::clone(port)).unwrap();
    let d = AmdDevice::open("AMD", &driver, &Selector::Index(0), &small_options()).unwrap();
    let (k, a, b) = (load(&d, units::ADD), words(&d, &pattern(1024)), words(&d, &[0; 1024]));
    let point = d.submit(QueueKind::Compute, &[launch(&k, &a, 5, 4, 64)]).unwrap();
    d.wait(&point, LONG).unwrap();
    let point = d.submit(QueueKind::Copy, &[Command::copy(b.at(0), a.at(0), 4096)]).unwrap();
    d.wait(&point, LONG).unwrap();
    let mut list = d.record(&[launch(&k, &b, 1, 1, 64), launch(&k, &b, 2, 1, 32)]).unwrap();
    for _ in 0..3 {
        let point = list.replay(&[]).unwrap();
        d.wait(&point, LONG).unwrap();
    }
    let out = read(&d, &b);
    drop((list, point, a, b, k));
    d.close().unwrap();
    out
}

fn played(events: &[Event], config: Config) -> (Recorded, Report) {
    let rig = recorded(config);
    let report = replay(events, &rig.port, &ReplayOptions::default());
    (rig, report)
}

#[test]
fn replay_gives_the_identical_packets_and_launches_on_another_software_gpu() {
    for chip in CHIPS {
        let first = recorded(Config::new(chip));
        let out = program(&first.port);
        assert_eq!(out[0], pattern(1)[0].wrapping_add(5 + 3 + 6));
        let events = first.log.events();
        let (again, report) = played(&events, Config::new(chip));
        assert_eq!(report.differences, [], "{chip:?}");
        assert_eq!(report.timeouts, 0);
        let (mut then, now) = (submissions(&events), submissions(&again.log.events()));
        then.iter_mut().for_each(|s| report.translate(&mut s.bytes));
        assert!(then.len() >= 8 && then.iter().any(|s| s.queue != then[0].queue), "{chip:?}: {}", then.len());
        assert_eq!(then, now, "{chip:?}");
        let launches =
            |units: &Units| units.seen.lock().unwrap().iter().map(|d| (d.groups, d.local)).collect::<Vec<_>>();
        assert_eq!(launches(&first.units), launches(&again.units), "{chip:?}");
        assert_eq!(again.soft.reports().len(), 0);
        assert_eq!(leftovers(&again.log.events()), Vec::<String>::new());
    }
}

#[test]
fn replay_at_other_addresses_translates_structs_and_packets() {
    for chip in CHIPS {
        let first = recorded(Config::new(chip));
        program(&first.port);
        let events = first.log.events();
        // Other memory is mapped where the recorded run had its own.
        let linux: Arc<dyn Port> = LinuxPort::new();
        let mut held = Vec::new();
        for event in &events {
            if let What::Mmap { map, result: Ok(at) } = &event.what {
                held.extend(linux.mmap(&MapRequest { addr: Some(*at), ..MapRequest::reserve(map.len_bytes) }));
            }
        }
        let (again, report) = played(&events, Config::new(chip));
        assert!(!held.is_empty() && report.moved.len() > 4, "{chip:?}: {:?}", report.moved);
        assert_eq!(report.differences, [], "{chip:?}");
        let (mut then, now) = (submissions(&events), submissions(&again.log.events()));
        assert_ne!(then, now, "{chip:?}: the packets hold other addresses");
        then.iter_mut().for_each(|s| report.translate(&mut s.bytes));
        assert_eq!(then, now, "{chip:?}");
        let seen = again.units.seen.lock().unwrap().len();
        assert_eq!(seen, first.units.seen.lock().unwrap().len());
        assert_eq!(again.soft.reports().len(), 0);
    }
}

#[test]
fn memory_that_no_mapping_of_the_replay_holds_is_not_written() {
    let first = recorded(Config::new(Chip::Gfx1100));
    program(&first.port);
    let mut events = first.log.events();
    let own = vec![7u8; 64];
    let at = CpuPtr(own.as_ptr().expose_provenance() as u64);
    let wrong = Event { moment: events[0].moment, what: What::Memory { at, bytes: vec![0; 64] } };
    events.insert(events.len() / 2, wrong);
    let (_, report) = played(&events, Config::new(Chip::Gfx1100));
    assert_eq!(own, [7; 64]);
    let reported: Vec<String> = report.differences.iter().map(ToString::to_string).collect();
    assert!(reported.len() == 1 && reported[0].contains("lie in no mapping of this replay"), "{reported:?}");
}

#[test]
fn what_a_recording_saw_late_of_the_device_does_not_undo_what_the_device_has_done_today() {
    let first = recorded(Config::new(Chip::Gfx1100));
    program(&first.port);
    let mut events = first.log.events();
    let pointers: Vec<u64> = events
        .iter()
        .filter_map(|event| match &event.what {
            What::Ioctl(call) if same_call(call.request, kfd::CREATE_QUEUE.desc.request) => {
                kfd::CREATE_QUEUE.desc.layout.field("read_pointer_address")?.read(&call.after)
            }
            _ => None,
        })
        .collect();
    assert_eq!(pointers.len(), 2);
    // Before each doorbell the recorder had found the read pointers as they were at the start.
    for at in (0..events.len()).rev().filter(|at| matches!(events[*at].what, What::Doorbell { .. })).collect::<Vec<_>>()
    {
        let moment = events[at].moment;
        let late = |pointer: &u64| Event { moment, what: What::Memory { at: CpuPtr(*pointer), bytes: vec![0; 8] } };
        events.splice(at..at, pointers.iter().map(late).collect::<Vec<_>>());
    }
    let (again, report) = played(&events, Config::new(Chip::Gfx1100));
    assert_eq!((report.differences, report.timeouts), (vec![], 0));
    assert_eq!(again.soft.reports().len(), 0);
}

#[test]
fn a_machine_of_another_kind_is_told_field_by_field() {
    let first = recorded(Config::new(Chip::Gfx1100));
    program(&first.port);
    let (_, report) = played(&first.log.events(), Config { kfd_minor: 14, ..Config::new(Chip::Gfx1100) });
    let lines: Vec<String> = report.differences.iter().map(ToString::to_string).collect();
    let wanted = "AMDKFD_IOC_GET_VERSION: minor_version: 0x11 then, 0xe now";
    assert!(lines.iter().any(|l| l.contains(wanted)), "{lines:#?}");
}

#[test]
fn a_recording_goes_through_its_file() {
    let units = Arc::new(Units::default());
    let soft = SoftKfd::with_compute(Config::new(Chip::Gfx1100), Arc::clone(&units) as _).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.trace");
    let sink = FileSink::new(std::io::BufWriter::new(std::fs::File::create(&path).unwrap())).unwrap();
    let port: Arc<dyn Port> = Trace::recording(soft, Box::new(sink));
    program(&port);
    drop(port);
    let events = read_trace(std::fs::File::open(&path).unwrap()).unwrap();
    let (again, report) = played(&events, Config::new(Chip::Gfx1100));
    assert_eq!(report.differences, []);
    assert_eq!(again.units.seen.lock().unwrap().len(), units.seen.lock().unwrap().len());
}
