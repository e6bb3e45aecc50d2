//! Memory that only the GPU reaches, copies of encoders, and the queue for copies.

use super::Bench;
use super::device::{On, scale};
use crate::object::Id;
use crate::{Config, FaultKind, Knobs, Order};
use doorbell_device::metal::MetalOptions;
use doorbell_device::{Command, Device, QueueKind};
use std::time::Duration;

const PRIVATE: u64 = 2 << 4;

fn private(config: Config) -> On {
    On::with(config, &MetalOptions { private: true, ..MetalOptions::default() })
}

#[test]
fn private_buffers_are_copied_and_filled_by_encoders_only() {
    let b = Bench::new();
    b.pool(|| {
        let (own, seen, queue): (Id, Id, Id) = (b.buffer_of(32, PRIVATE), b.buffer(32), b.queue());
        assert_eq!(b.send::<*mut u8>(own, "contents"), std::ptr::null_mut());
        assert_eq!(b.faults(), [FaultKind::Private]);
        let buffer: Id = b.send(queue, "commandBuffer");
        let blit: Id = b.send(buffer, "blitCommandEncoder");
        b.fill(blit, own, 9);
        b.copy(blit, own, seen, 16);
        b.send::<()>(blit, "endEncoding");
        b.send::<()>(buffer, "commit");
        b.send::<()>(buffer, "waitUntilCompleted");
        assert_eq!(b.bytes(seen), [[9; 16], [0xaa; 16]].concat());
        b.release(&[own, seen, queue]);
    });
    b.ends_well();
}

#[test]
fn copies_that_overlap_or_leave_a_buffer_and_storage_that_is_not_there_are_found() {
    let b = Bench::new();
    b.pool(|| {
        let (a, queue): (Id, Id) = (b.buffer(32), b.queue());
        let buffer: Id = b.send(queue, "commandBuffer");
        let blit: Id = b.send(buffer, "blitCommandEncoder");
        b.copy(blit, a, a, 16);
        assert_eq!(b.faults(), [FaultKind::Overlap]);
        b.copy(blit, a, a, 33);
        assert_eq!(b.faults(), [FaultKind::Range]);
        b.send::<()>(blit, "endEncoding");
        // Managed storage, of GPUs with memory of their own.
        assert_eq!(b.buffer_of(32, 1 << 4), Id::NIL);
        assert_eq!(b.faults(), [FaultKind::WrongArgument]);
        b.release(&[a, queue]);
    });
    b.ends_well();
}

#[test]
fn kernels_work_on_private_memory_and_the_host_copies_through_a_shared_buffer() {
    for order in [Order::Commit, Order::Newest] {
        let on = private(Config { order, all_untracked: true, ..Config::default() });
        let kernel = on.kernel("scale").unwrap();
        let (a, b) = (on.memory(&[1.5; 16]), on.memory(&[0.0; 16]));
        assert!(a.host().is_none() && on.device.alloc_pinned(64).unwrap().host().is_some());
        let commands = [scale(&kernel, &b, &a, 2), Command::copy(a.at(32), b.at(0), 32)];
        on.device.submit(QueueKind::Compute, &commands).unwrap();
        assert_eq!(on.values(&b), [3.0; 16]);
        assert_eq!(on.values(&a), [[1.5; 8], [3.0; 8]].concat());
        // Bytes that begin and end anywhere.
        on.device.copy_in(&a, 5, &[1, 2, 3]).unwrap();
        let mut bytes = [0; 5];
        on.device.copy_out(&a, 4, &mut bytes).unwrap();
        assert_eq!(bytes, [1.5_f32.to_le_bytes()[0], 1, 2, 3, 0]);
        drop((commands, kernel, a, b));
        on.ends_well();
    }
}

#[test]
fn more_than_a_staging_buffer_holds_is_copied_in_pieces() {
    let on = private(Config::default());
    let bytes: Vec<u8> = (0..(9_u32 << 20) + 8).map(|n| (n % 251) as u8).collect();
    let memory = on.device.alloc(bytes.len() as u64 + 4).unwrap();
    on.device.copy_in(&memory, 3, &bytes).unwrap();
    let mut back = vec![0; bytes.len()];
    on.device.copy_out(&memory, 3, &mut back).unwrap();
    assert!(back == bytes);
    drop(memory);
    on.ends_well();
}

#[test]
fn the_copy_queue_runs_beside_kernels_and_after_what_its_memories_need() {
    let on =
        On::with(Config { order: Order::Newest, all_untracked: true, ..Config::default() }, &MetalOptions::default());
    let kernel = on.kernel("scale").unwrap();
    let (a, b, c) = (on.memory(&[1.0; 8]), on.memory(&[0.0; 8]), on.memory(&[0.0; 8]));
    on.machine.set(Knobs { hold: true, ..Knobs::default() });
    on.device.submit(QueueKind::Compute, &[scale(&kernel, &b, &a, 2)]).unwrap();
    let copied = on.device.submit(QueueKind::Copy, &[Command::copy(c.at(0), b.at(0), 16)]).unwrap();
    on.device.submit(QueueKind::Compute, &[scale(&kernel, &a, &c, 5)]).unwrap();
    on.machine.set(Knobs::default());
    assert_eq!(copied.timeline().queue(), "METAL/copy");
    assert_eq!(on.values(&a), [[10.0; 4], [0.0; 4]].concat());
    let error = on.device.submit(QueueKind::Copy, &[scale(&kernel, &b, &a, 2)]).unwrap_err().to_string();
    assert_eq!(error, "device METAL cannot run scale on its copy queue");
    on.device.synchronize(Duration::from_secs(20)).unwrap();
    drop((kernel, a, b, c));
    on.ends_well();
}
