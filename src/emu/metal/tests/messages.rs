//! Messages that are traced, recorded, replayed and made to fail: the Metal device on the stand-in, with a tap between.

use super::device::{On, scale};
use super::settled;
use crate::{Config, Machine, Table};
use doorbell_device::metal::objc::Objc;
use doorbell_device::metal::{family_of, replay};
use doorbell_device::{Command, Device, DeviceError, QueueKind};
use doorbell_hcq::memory::View;
use doorbell_ioctl::abi::Value;
use doorbell_ioctl::fault::{MessageFaults, message_fault};
use doorbell_ioctl::replay::{ReplayOptions, Report};
use doorbell_ioctl::trace::{Event, FileSink, Log, MessageTrace, Sink, What, read_trace};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// A run with launches, copies, times, replays of a list, and memory of the program.
fn recorded() -> Vec<Event> {
    let log = Log::default();
    let tap = MessageTrace::recording(Box::new(log.clone()));
    let on = On::through(Config::default(), |objc| objc.tapped(Box::new(tap)), PATIENCE).unwrap();
    let kernel = on.kernel("scale").unwrap();
    let (a, b) = (on.memory(&[1.0; 16]), on.memory(&[0.0; 16]));
    let own = View::anonymous(16 << 10, 16 << 10).unwrap();
    let wrapped = on.device.wrap_host(&own).unwrap();
    let stamp = on.device.stamp().unwrap();
    let commands = [
        scale(&kernel, &b, &a, 3),
        scale(&kernel, &a, &b, 5).stamped(stamp),
        Command::copy(b.at(0), a.at(32), 32),
        Command::copy(wrapped.at(64), a.at(0), 64),
    ];
    on.device.submit(QueueKind::Compute, &commands).unwrap();
    assert_eq!(on.values(&b), [[15.0; 8], [3.0; 8]].concat());
    let mut list = on.device.record(&[scale(&kernel, &b, &a, 2)]).unwrap();
    on.device.copy_in(&a, 0, &[0; 8]).unwrap();
    list.replay(&[]).unwrap();
    assert_eq!(on.values(&b)[..3], [0.0, 0.0, 30.0]);
    let missing = on.kernel("nobody").unwrap_err();
    assert!(missing.to_string().contains("it has scale"), "{missing}");
    drop((list, kernel, a, b, wrapped, commands));
    on.ends_well();
    log.events()
}

/// Plays a recording on a machine of its own, which must find no mistake and no object left over.
fn played(events: &[Event]) -> Report {
    let machine = Machine::new(Config::default());
    let entered = machine.enter();
    let options = ReplayOptions { queue_timeout: PATIENCE };
    let report = replay(events, Table::of_thread().objc(), &options);
    drop(entered);
    assert_eq!(machine.take_faults(), []);
    assert_eq!(settled(&machine), []);
    report
}

#[test]
fn a_recorded_run_replays_with_the_same_answers_and_results() {
    let events = recorded();
    let computed = events.iter().filter(|e| matches!(e.what, What::Computed { .. })).count();
    assert!(computed >= 3, "{computed}");
    assert_eq!(family_of(&events), Some(7));
    let mut file = Vec::new();
    let mut sink = FileSink::new(&mut file).unwrap();
    events.iter().for_each(|event| sink.event(event));
    let read = read_trace(&file[..]).unwrap();
    assert_eq!(read, events);
    let report = played(&read);
    assert_eq!(report.differences, []);
    assert_eq!((report.timeouts, report.doorbells), (0, 4));
    assert!(report.calls > 100, "{}", report.calls);
}

#[test]
fn a_replay_finds_a_result_and_an_answer_that_differ() {
    let mut events = recorded();
    for event in &mut events {
        let What::Message(event) = &mut event.what else { continue };
        if let Some(Value::Text(Some(text))) = event.message.arguments.first_mut()
            && text.contains("in[i] * float(by)")
        {
            *text = text.replace("in[i] * float(by)", "in[i] + float(by)");
        }
        if event.message.selector == "maxTotalThreadsPerThreadgroup" {
            event.result = Value::Unsigned(7);
        }
    }
    let report = played(&events);
    let texts: Vec<String> = report.differences.iter().map(ToString::to_string).collect();
    let has = |part: &str| texts.iter().any(|text| text.contains(part));
    assert!(has("maxTotalThreadsPerThreadgroup: 7 then, 1024 now"), "{texts:?}");
    assert!(has("computed: ") && has(" bytes differ, the first at 0x"), "{texts:?}");
}

#[test]
fn a_recording_that_is_cut_up_is_replayed_as_far_as_it_goes() {
    let events = recorded();
    for step in [2, 3, 7] {
        let some: Vec<Event> = events.iter().step_by(step).cloned().collect();
        let machine = Machine::new(Config::default());
        let entered = machine.enter();
        let options = ReplayOptions { queue_timeout: Duration::from_millis(20) };
        let report = replay(&some, Table::of_thread().objc(), &options);
        drop(entered);
        assert!(!report.differences.is_empty());
        let _mistakes_of_a_program_with_holes = machine.take_faults();
    }
}

#[test]
fn a_trace_without_memory_has_the_messages_in_words() {
    let log = Log::default();
    let tap = MessageTrace::new(Box::new(log.clone()));
    let on = On::through(Config::default(), |objc| objc.tapped(Box::new(tap)), PATIENCE).unwrap();
    let (kernel, a) = (on.kernel("scale").unwrap(), on.memory(&[1.0; 8]));
    on.device.submit(QueueKind::Compute, &[scale(&kernel, &a, &a, 2)]).unwrap();
    assert_eq!(on.values(&a), [2.0; 8]);
    drop((kernel, a));
    on.ends_well();
    let lines: Vec<String> = log.events().iter().map(|event| event.what.to_string()).collect();
    for part in [
        "MTLCreateSystemDefaultDevice() = 0x",
        " newBufferWithLength: 32 options: 0] = 0x",
        " newLibraryWithSource: 0x",
        " error: no error] = 0x",
        " dispatchThreadgroups: {1, 1, 1} threadsPerThreadgroup: {8, 1, 1}]",
        " setBytes: <0200000000000000> length: 8 atIndex: 2]",
        " commit]",
        "respondsToSelector: @selector(setMathMode:)] = 1",
    ] {
        assert!(lines.iter().any(|line| line.contains(part)), "{part} in\n{}", lines.join("\n"));
    }
    assert!(!lines.iter().any(|line| line.starts_with("memory(")));
}

/// A device with faults; its errors are made by the machine's own functions.
fn faulty(plan: &[&str]) -> Result<On, DeviceError> {
    let plan = plan.iter().map(|text| message_fault(text).unwrap()).collect();
    // What is lost is waited for when the device is closed.
    On::through(Config::default(), |objc: Objc| objc.tapped(Box::new(MessageFaults::new(objc, plan))), PATIENCE / 20)
}

#[test]
fn injected_nils_and_errors_are_reported_as_the_framework_s() {
    let why = |spec: &str| faulty(&[spec]).map(|_| ()).unwrap_err().to_string();
    assert_eq!(why("newSharedEvent:1:nil"), "device METAL cannot be opened: Metal gives no shared event");
    let no_family = why("hasUnifiedMemory:1:nil");
    assert!(no_family.contains("memory of its own"), "{no_family}");
    let on = faulty(&["newLibraryWithSource:options:error::1:error", "newBufferWithLength:options::2:nil"]).unwrap();
    let load = on.kernel("scale").unwrap_err().to_string();
    assert!(load.ends_with("(DoorbellInjectedFault error 1.) (DoorbellInjectedFault 1)"), "{load}");
    on.kernel("scale").unwrap();
    let a = on.memory(&[1.0; 8]);
    assert!(matches!(on.device.alloc(64), Err(DeviceError::OutOfMemory { asked: 64, .. })));
    drop((on.device.alloc(64).unwrap(), a));
    on.ends_well();
}

#[test]
fn a_lost_and_a_failed_commit_are_a_hang_and_a_fault() {
    let on = faulty(&["commit:2:lose"]).unwrap();
    let (kernel, a) = (on.kernel("scale").unwrap(), on.memory(&[1.0; 8]));
    let launch = || on.device.submit(QueueKind::Compute, &[scale(&kernel, &a, &a, 2)]).unwrap();
    on.device.wait(&launch(), PATIENCE).unwrap();
    let error = on.device.wait(&launch(), Duration::from_millis(100)).unwrap_err().to_string();
    assert!(error.contains("event at 1 of 2") && error.contains("scale: status 0"), "{error}");
    drop((kernel, a, on));

    let on = faulty(&["commit:2:fail"]).unwrap();
    let (kernel, a) = (on.kernel("scale").unwrap(), on.memory(&[1.0; 8]));
    let launch = || on.device.submit(QueueKind::Compute, &[scale(&kernel, &a, &a, 2)]).unwrap();
    on.device.wait(&launch(), PATIENCE).unwrap();
    let error = on.device.wait(&launch(), PATIENCE).unwrap_err().to_string();
    assert!(error.contains("DoorbellInjectedFault 1) in scale"), "{error}");
    assert!(on.device.close().is_err());
    drop((kernel, a, on));
}
