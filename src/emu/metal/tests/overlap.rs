//! Command buffers of one queue run at the same time, unless tracked resources or events order them.

use super::device::{On, scale};
use super::{Bench, settled};
use crate::object::Id;
use crate::{Config, FaultKind, Knobs, Machine, Order};
use doorbell_device::{Command, Device, QueueKind};
use doorbell_ioctl::fault::{MessageFaults, message_fault};
use std::time::Duration;

const UNTRACKED: u64 = 1 << 8;

fn hold(machine: &Machine, hold: bool) {
    machine.set(Knobs { hold, ..Knobs::default() });
}

/// A command buffer fills a buffer and the next one copies it, both committed before either begins.
fn fill_then_copy(b: &Bench, options: u64, has_event: bool) -> (u8, Vec<FaultKind>) {
    b.pool(|| {
        let (from, to, queue): (Id, Id, Id) = (b.buffer_of(16, options), b.buffer(16), b.queue());
        let event: Id = b.send(b.device, "newSharedEvent");
        hold(&b.machine, true);
        let all: Vec<Id> = (0..2).map(|_| b.send(queue, "commandBuffer")).collect();
        for (at, buffer) in all.iter().enumerate() {
            if has_event && at == 1 {
                b.send2::<_, _, ()>(*buffer, "encodeWaitForEvent:value:", event, 1_u64);
            }
            let blit: Id = b.send(*buffer, "blitCommandEncoder");
            if at == 0 {
                b.fill(blit, from, 7)
            } else {
                b.copy(blit, from, to, 16)
            }
            b.send::<()>(blit, "endEncoding");
            if has_event && at == 0 {
                b.send2::<_, _, ()>(*buffer, "encodeSignalEvent:value:", event, 1_u64);
            }
            b.send::<()>(*buffer, "commit");
        }
        hold(&b.machine, false);
        all.iter().for_each(|buffer| b.send::<()>(*buffer, "waitUntilCompleted"));
        let first = b.bytes(to)[0];
        b.release(&[from, to, queue, event]);
        (first, b.faults())
    })
}

#[test]
fn a_missing_event_between_users_of_an_untracked_buffer_is_found() {
    let on = |order| Bench::on(Config { order, ..Config::default() });
    // Found in any order, and seen in the result where the newest goes first.
    for (order, result) in [(Order::Commit, 7), (Order::Newest, 0xaa)] {
        let b = on(order);
        assert_eq!(fill_then_copy(&b, UNTRACKED, false), (result, vec![FaultKind::Unordered]), "{order:?}");
        assert_eq!(fill_then_copy(&b, UNTRACKED, true), (7, vec![]), "{order:?}");
        assert_eq!(fill_then_copy(&b, 0, false), (7, vec![]), "the framework tracks it: {order:?}");
        b.ends_well();
    }
}

#[test]
fn a_command_buffer_that_waits_holds_back_nobody_else() {
    let b = Bench::new();
    b.pool(|| {
        let (data, queue): (Id, Id) = (b.buffer(16), b.queue());
        let event: Id = b.send(b.device, "newSharedEvent");
        let (waits, goes): (Id, Id) = (b.send(queue, "commandBuffer"), b.send(queue, "commandBuffer"));
        b.send2::<_, _, ()>(waits, "encodeWaitForEvent:value:", event, 1_u64);
        let blit: Id = b.send(goes, "blitCommandEncoder");
        b.fill(blit, data, 3);
        b.send::<()>(blit, "endEncoding");
        b.send::<()>(waits, "commit");
        b.send::<()>(goes, "commit");
        b.send::<()>(goes, "waitUntilCompleted");
        assert_eq!((b.bytes(data)[0], b.send::<u64>(waits, "status")), (3, 3));
        b.send1::<_, ()>(event, "setSignaledValue:", 1_u64);
        b.send::<()>(waits, "waitUntilCompleted");
        b.release(&[data, queue, event]);
    });
    b.ends_well();
}

/// What they compute in their order.
const SIX_AND_TWO: [f32; 8] = [6.0, 6.0, 6.0, 6.0, 2.0, 2.0, 2.0, 2.0];

/// Three submissions of the device that use each other's results, committed before the first begins.
fn three_submissions(config: Config, lost: &[&str]) -> (Vec<f32>, Vec<FaultKind>) {
    let plan = lost.iter().map(|text| message_fault(text).unwrap()).collect();
    let wrap = |objc: doorbell_device::metal::objc::Objc| objc.tapped(Box::new(MessageFaults::new(objc, plan)));
    let on = On::through(config, wrap, Duration::from_secs(20)).unwrap();
    let kernel = on.kernel("scale").unwrap();
    let (a, b) = (on.memory(&[1.0; 8]), on.memory(&[0.0; 8]));
    hold(&on.machine, true);
    for commands in [[scale(&kernel, &b, &a, 2)], [scale(&kernel, &a, &b, 3)], [Command::copy(b.at(0), a.at(0), 16)]] {
        on.device.submit(QueueKind::Compute, &commands).unwrap();
    }
    hold(&on.machine, false);
    let values = on.values(&b);
    on.device.close().unwrap();
    let machine = std::sync::Arc::clone(&on.machine);
    drop((kernel, a, b, on));
    // Command buffers that the device takes for done may still run: what they find is told when all have ended.
    assert_eq!(settled(&machine), []);
    let faults = machine.take_faults().into_iter().map(|fault| fault.kind).collect();
    (values, faults)
}

#[test]
fn the_device_s_own_events_order_its_submissions_without_help_of_the_framework() {
    for order in [Order::Commit, Order::Newest, Order::Seeded(1), Order::Seeded(2)] {
        let config = Config { order, all_untracked: true, ..Config::default() };
        assert_eq!(three_submissions(config, &[]), (SIX_AND_TWO.to_vec(), vec![]), "{order:?}");
    }
}

#[test]
fn a_wait_that_the_device_would_forget_is_found() {
    let config = || Config { order: Order::Newest, all_untracked: true, ..Config::default() };
    let (values, faults) = three_submissions(config(), &["encodeWaitForEvent:value::2:lose"]);
    assert_ne!(values, SIX_AND_TWO);
    assert!(faults.contains(&FaultKind::Unordered), "{faults:?}");
    // Where the framework tracks the buffers, it orders them by itself.
    let config = Config { all_untracked: false, ..config() };
    assert_eq!(three_submissions(config, &["encodeWaitForEvent:value::2:lose"]), (SIX_AND_TWO.to_vec(), vec![]));
}
