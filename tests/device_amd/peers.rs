//! Copies between the memories of two GPUs of one driver: by the copy engine where they are linked, else refused so
//! that the host copies.

use super::{LONG, Rig, launch, load, pattern, read, small_options, units, words};
use doorbell::device::amd::{AmdDevice, Driver, Selector};
use doorbell::device::{Command, Device, DeviceError, QueueKind};
use doorbell::emu::kfd::{Chip, Config};
use doorbell_ioctl::trace::leftovers;
use std::sync::Arc;

fn two(rig: &Rig) -> (AmdDevice, AmdDevice) {
    let driver = Driver::open("AMD", Arc::clone(&rig.port)).unwrap();
    let open = |n| AmdDevice::open(&format!("AMD:{n}"), &driver, &Selector::Index(n), &small_options()).unwrap();
    (open(0), open(1))
}

#[test]
fn copies_between_two_gpus_run_on_the_copy_engine_after_the_kernels_that_wrote() {
    for chip in super::CHIPS {
        let rig = Rig::new(Config { gpus: 2, ..Config::new(chip) });
        let (a, b) = two(&rig);
        let (ka, kb) = (load(&a, units::ADD), load(&b, units::ADD));
        let data = pattern(70_000);
        let (ma, mb) = (words(&a, &data), words(&b, &vec![0; 70_000]));
        assert!(a.reaches(&mb) && b.reaches(&ma));
        for _ in 0..3 {
            a.submit(QueueKind::Compute, &[launch(&ka, &ma, 1, 1, 64)]).unwrap();
            // The destination's device copies, then works on what came.
            b.submit(QueueKind::Compute, &[Command::copy(mb.at(0), ma.at(0), 280_000), launch(&kb, &mb, 10, 1, 64)])
                .unwrap();
            // And back a piece, by the device that has the source.
            a.submit(QueueKind::Copy, &[Command::copy(mb.at(279_000), ma.at(0), 1000)]).unwrap();
        }
        let came = |i: usize| data[i].wrapping_add(if i < 64 { 3 } else { 0 });
        let mut expected: Vec<u32> = (0..70_000).map(|i| came(i).wrapping_add(if i < 64 { 10 } else { 0 })).collect();
        (0..250).for_each(|i| expected[69_750 + i] = came(i));
        assert_eq!(read(&b, &mb), expected, "{chip:?}");
        let bytes = |d: &AmdDevice| d.memory_used();
        assert!(bytes(&a) > 0 && bytes(&b) > 0);
        drop((ka, kb, ma, mb));
        a.close().unwrap();
        b.close().unwrap();
        drop((a, b));
        assert_eq!(rig.complaints(), Vec::<String>::new(), "{chip:?}");
    }
}

#[test]
fn a_source_may_be_freed_and_its_device_closed_while_a_peer_still_reads() {
    let rig = Rig::new(Config { gpus: 2, ..Config::new(Chip::Gfx1100) });
    let (a, b) = two(&rig);
    let data = pattern(1 << 20);
    let (ma, mb) = (words(&a, &data), words(&b, &vec![0; 1 << 20]));
    let point = b.submit(QueueKind::Copy, &[Command::copy(mb.at(0), ma.at(0), 4 << 20)]).unwrap();
    drop(ma);
    a.close().unwrap();
    b.wait(&point, LONG).unwrap();
    assert_eq!(read(&b, &mb), data);
}

#[test]
fn a_queue_waits_for_another_gpu_s_signal_by_itself_and_for_one_of_a_closed_gpu() {
    for chip in super::CHIPS {
        let rig = Rig::new(Config { gpus: 2, ..Config::new(chip) });
        let (a, b) = two(&rig);
        let (ka, kb) = (load(&a, units::ADD_LATE), load(&b, units::ADD_LATE));
        let (ma, mb, mc) = (words(&a, &[7; 64]), words(&b, &[0; 64]), words(&b, &[0; 64]));
        let first = a.submit(QueueKind::Compute, &[launch(&ka, &ma, 1000, 1, 1)]).unwrap();
        let copied = b.submit(QueueKind::Copy, &[Command::copy(mb.at(0), ma.at(0), 256)]).unwrap();
        assert!(!first.is_done(), "{chip:?}: the host did not wait");
        b.wait(&copied, LONG).unwrap();
        assert_eq!(read(&b, &mb)[..2], [1007, 7], "{chip:?}");
        // The other GPU is closed before the queue comes to the wait for its signal.
        let second = a.submit(QueueKind::Compute, &[launch(&ka, &ma, 300, 1, 1)]).unwrap();
        b.submit(QueueKind::Compute, &[launch(&kb, &mc, 600, 1, 1)]).unwrap();
        let third = b.submit(QueueKind::Compute, &[Command::Wait(second.clone()), launch(&kb, &mb, 1, 1, 1)]).unwrap();
        assert!(!second.is_done(), "{chip:?}: the host did not wait");
        drop((ka, ma));
        a.close().unwrap();
        drop(a);
        b.wait(&third, LONG).unwrap();
        assert_eq!((read(&b, &mb)[0], read(&b, &mc)[0]), (1008, 600), "{chip:?}");
        drop((kb, mb, mc, copied, first, second, third));
        b.close().unwrap();
        drop(b);
        assert_eq!(rig.complaints(), Vec::<String>::new(), "{chip:?}");
    }
}

#[test]
fn gpus_without_a_link_and_other_drivers_are_not_reached() {
    let rig = Rig::new(Config { gpus: 2, peer_links: false, ..Config::new(Chip::Gfx1100) });
    let (a, b) = two(&rig);
    let (ma, mb) = (words(&a, &[1; 64]), words(&b, &[2; 64]));
    assert!(!a.reaches(&mb) && a.reaches(&ma));
    let refused = b.submit(QueueKind::Copy, &[Command::copy(mb.at(0), ma.at(0), 256)]).unwrap_err();
    assert!(refused.to_string().contains("MAP_MEMORY_TO_GPU: EINVAL"), "{refused}");
    let other = Rig::of(Chip::Gfx1100).open();
    let theirs = words(&other, &[3; 64]);
    assert!(!a.reaches(&theirs));
    let refused = a.submit(QueueKind::Copy, &[Command::copy(ma.at(0), theirs.at(0), 256)]);
    assert!(matches!(refused, Err(DeviceError::WrongDevice { .. })));
    assert_eq!(read(&b, &mb), [2; 64]);
    drop((ma, mb));
    a.close().unwrap();
    b.close().unwrap();
    drop((a, b));
    assert_eq!(leftovers(&rig.log.events()), Vec::<String>::new());
}
