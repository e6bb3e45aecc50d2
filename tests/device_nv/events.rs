//! How a host waits: asleep until the channel's interrupt, or an error, wakes it; polling with short sleeps where the
//! driver sends no events.

use super::units::Does;
use super::{LONG, Rig, launch, read, small_options, words};
use doorbell::device::nv::NvOptions;
use doorbell::device::{Arg, Command, Device, Kernel, Memory, QueueKind};
use doorbell::emu::nvrm::{Call, Chip, Config, Refusal};
use doorbell::hcq::signal::WaitBy;
use doorbell_ioctl::abi::nvrm::{self, Release};
use doorbell_ioctl::abi::request_number;
use doorbell_ioctl::port::PollEvents;
use doorbell_ioctl::trace::{What, leftovers};
use std::time::{Duration, Instant};

#[path = "../../benches/support/cpu_time.rs"]
mod cpu_time;

/// What the polls so far have seen.
fn polls(rig: &Rig) -> Vec<PollEvents> {
    let seen = |e: &doorbell_ioctl::trace::Event| match &e.what {
        What::Poll { fds, .. } => Some(fds[0].2),
        _ => None,
    };
    rig.log.events().iter().filter_map(seen).collect()
}

fn late(kernel: &Kernel, memory: &Memory, ms: i64) -> Command {
    launch(kernel, memory, ms, 1, 1)
}

#[test]
fn a_waiting_host_sleeps_until_the_channels_interrupt_wakes_it_under_every_release() {
    for (major, minor, patch) in [(535, 230, 2), (550, 90, 7), (570, 124, 6), (580, 159, 4), (595, 45, 4)] {
        let rig = Rig::new(Config { release: Release { major, minor, patch }, ..Config::new(Chip::Sm90) });
        let d = rig.open();
        let (k, m) = (rig.load(&d, "add", Does::AddLate), words(&d, &[0; 64]));
        for kind in [QueueKind::Compute, QueueKind::Copy] {
            let before = polls(&rig).len();
            let mut point = d.submit(QueueKind::Compute, &[late(&k, &m, 400)]).unwrap();
            if kind == QueueKind::Copy {
                // The copy queue's host waits for the kernel; the other one has had its interrupt after it.
                point = d.submit(kind, &[Command::Wait(point), Command::copy(m.at(128), m.at(0), 4)]).unwrap();
            }
            let began = Instant::now();
            let ran = cpu_time::of(1, || d.wait(&point, LONG).unwrap());
            let took = began.elapsed();
            assert!(took > Duration::from_millis(300), "{major} {kind:?}: {took:?}");
            // A host that spins would run all the time: asleep it runs for a few looks, traced ones here.
            assert!(ran < Duration::from_millis(40), "{major} {kind:?}: ran {ran:?} of {took:?}");
            let polls = polls(&rig).split_off(before);
            assert!(polls.len() < 40, "{major} {kind:?}: {polls:?}");
            assert_eq!(polls.last(), Some(&PollEvents::IN), "{major} {kind:?}: {polls:?}");
        }
        assert_eq!(read(&d, &m)[0], 800);
        drop((k, m));
        d.close().unwrap();
        drop(d);
        assert_eq!(rig.complaints(), Vec::<String>::new(), "{major}");
    }
}

#[test]
fn work_that_ends_at_once_asks_for_no_events() {
    let rig = Rig::hopper();
    let d = rig.open_with(&NvOptions { spin: LONG, ..small_options() }).unwrap();
    let (k, m) = (rig.add(&d), words(&d, &[0; 64]));
    for _ in 0..50 {
        let point = d.submit(QueueKind::Compute, &[launch(&k, &m, 1, 1, 64)]).unwrap();
        d.wait(&point, LONG).unwrap();
    }
    assert_eq!((read(&d, &m), polls(&rig).len()), (vec![50; 64], 0));
    assert!(!rig.calls().iter().any(|call| call.contains("OS_EVENT")));
    // Nor does a device that is to do without.
    let rig = Rig::hopper();
    let d = rig.open_with(&NvOptions { events: false, ..small_options() }).unwrap();
    let (k, m) = (rig.load(&d, "add", Does::AddLate), words(&d, &[0; 64]));
    d.wait(&d.submit(QueueKind::Compute, &[late(&k, &m, 50)]).unwrap(), LONG).unwrap();
    assert_eq!((read(&d, &m)[0], polls(&rig).len()), (50, 0));
}

#[test]
fn a_host_may_sleep_at_once_or_spin_to_the_end() {
    let rig = Rig::hopper();
    let d = rig.open_with(&NvOptions { spin: LONG, ..small_options() }).unwrap();
    let (k, m) = (rig.load(&d, "add", Does::AddLate), words(&d, &[0; 64]));
    let mut seen = Vec::new();
    for by in [WaitBy::Options, WaitBy::Spin, WaitBy::Sleep] {
        let point = d.submit(QueueKind::Compute, &[late(&k, &m, 50)]).unwrap();
        point.wait_by(LONG, by).unwrap();
        assert!(point.timeline().lacks(by).is_none(), "{by:?}");
        seen.push(polls(&rig).len());
    }
    assert!(seen[1] == 0 && seen[2] > 0, "{seen:?}");
    assert_eq!((read(&d, &m)[0], polls(&rig).last()), (150, Some(&PollEvents::IN)));
    // Without events a host naps.
    let rig = Rig::hopper();
    let d = rig.open_with(&NvOptions { events: false, ..small_options() }).unwrap();
    let (k, m) = (rig.add(&d), words(&d, &[0; 64]));
    let point = d.submit(QueueKind::Compute, &[launch(&k, &m, 1, 1, 64)]).unwrap();
    point.wait_by(LONG, WaitBy::Sleep).unwrap();
    let why = point.timeline().lacks(WaitBy::Sleep).unwrap();
    assert!(why.contains("interrupt") && point.timeline().lacks(WaitBy::Spin).is_none(), "{why}");
}

#[test]
fn all_threads_that_wait_are_woken_each_by_what_it_waits_for() {
    let rig = Rig::hopper();
    let d = rig.open();
    let (k, m) = (rig.load(&d, "add", Does::AddLate), words(&d, &[0; 64]));
    let points: Vec<_> = (0..8).map(|_| d.submit(QueueKind::Compute, &[late(&k, &m, 60)]).unwrap()).collect();
    std::thread::scope(|scope| {
        for (n, point) in points.iter().enumerate() {
            let (d, rig) = (&d, &rig);
            scope.spawn(move || {
                let ran = cpu_time::of(1, || d.wait(point, LONG).unwrap());
                assert!(ran < Duration::from_millis(60), "{n}: ran {ran:?}");
                let done = rig.units.seen.lock().unwrap().len();
                assert!(done > n, "{n} of {done}");
            });
        }
    });
    assert_eq!(read(&d, &m)[0], 480);
    assert_eq!(rig.reports(), Vec::<String>::new());
}

#[test]
fn an_error_wakes_the_host() {
    let rig = Rig::hopper();
    let d = rig.open();
    let k = rig.load(&d, "load", Does::LoadLate);
    let point = d.submit(QueueKind::Compute, &[Command::exec(&k, [Arg::Var(0x12_3456_7000)], 1)]).unwrap();
    let error = d.wait(&point, LONG).unwrap_err().to_string();
    assert!(error.contains("channel error 31"), "{error}");
    let polls = polls(&rig);
    assert!(polls.len() < 30 && polls.last() == Some(&PollEvents::IN), "{polls:?}");
    drop((k, point));
    drop(d);
    assert_eq!(leftovers(&rig.log.events()), Vec::<String>::new());
}

#[test]
fn a_driver_that_refuses_events_is_waited_for_by_naps() {
    let escape = |request: u32| Call::Escape(request_number(request));
    let calls = [
        (escape(nvrm::ALLOC_OS_EVENT.desc.request), false),
        (Call::Class(nvrm::NV01_EVENT_OS_EVENT), false),
        // Errors alone wake no host then.
        (Call::Control(nvrm::EVENT_SET_NOTIFICATION.cmd), true),
    ];
    for (call, sleeps) in calls {
        let refusals = vec![Refusal { call, nth: 1, status: 0x56 }];
        let rig = Rig::new(Config { refusals, ..Config::new(Chip::Sm90) });
        let d = rig.open();
        let (k, m) = (rig.load(&d, "add", Does::AddLate), words(&d, &[0; 64]));
        d.wait(&d.submit(QueueKind::Compute, &[late(&k, &m, 100)]).unwrap(), LONG).unwrap();
        assert_eq!((read(&d, &m)[0], polls(&rig).is_empty()), (100, !sleeps), "{call:?}");
        drop((k, m));
        d.close().unwrap();
        drop(d);
        assert_eq!(rig.complaints(), Vec::<String>::new(), "{call:?}");
    }
}

#[test]
fn interrupts_that_do_not_arrive_are_noticed_and_no_longer_waited_for() {
    let rig = Rig::new(Config { interrupts_lost: true, ..Config::new(Chip::Sm90) });
    let d = rig.open();
    let (k, m) = (rig.load(&d, "add", Does::AddLate), words(&d, &[0; 64]));
    let mut polled = Vec::new();
    for _ in 0..6 {
        let point = d.submit(QueueKind::Compute, &[late(&k, &m, 30)]).unwrap();
        let began = Instant::now();
        d.wait(&point, LONG).unwrap();
        assert!(began.elapsed() < Duration::from_secs(5));
        polled.push(polls(&rig).len());
    }
    assert!(polls(&rig).iter().all(|seen| seen.is_empty()));
    assert!(polled[0] > 0 && polled[5] == polled[3], "{polled:?}");
    assert_eq!(read(&d, &m)[0], 180);
}

#[test]
fn a_wait_for_work_with_more_behind_it_does_not_wait_for_that() {
    let rig = Rig::hopper();
    let d = rig.open();
    let (k, m) = (rig.load(&d, "add", Does::AddLate), words(&d, &[0; 64]));
    let first = d.submit(QueueKind::Compute, &[late(&k, &m, 100)]).unwrap();
    let second = d.submit(QueueKind::Compute, &[late(&k, &m, 1000)]).unwrap();
    d.wait(&first, LONG).unwrap();
    assert!(!second.is_done());
    d.wait(&second, LONG).unwrap();
    assert_eq!(polls(&rig).last(), Some(&PollEvents::IN));
}
