//! Several GPUs on a machine.

use super::device::{On, scale};
use super::{Bench, settled};
use crate::object::Id;
use crate::{Config, FaultKind, Machine, Table};
use doorbell_device::metal::{MetalDevice, Selector};
use doorbell_device::{Command, Device, QueueKind};
use std::sync::Arc;

fn two() -> Config {
    Config { gpus: 2, ..Config::default() }
}

#[test]
fn the_list_of_devices_has_them_all_and_a_buffer_belongs_to_one() {
    let b = Bench::on(two());
    b.pool(|| {
        let all = Id((b.table.copy_all_devices)());
        assert_eq!(b.send::<u64>(all, "count"), 2);
        let other: Id = b.send1(all, "objectAtIndex:", 1_u64);
        assert_ne!(b.send::<u64>(other, "registryID"), b.send::<u64>(b.device, "registryID"));
        let theirs: Id = b.send2(other, "newBufferWithLength:options:", 16_u64, 0_u64);
        let queue = b.queue();
        let buffer: Id = b.send(queue, "commandBuffer");
        let blit: Id = b.send(buffer, "blitCommandEncoder");
        b.fill(blit, theirs, 1);
        assert_eq!(b.faults(), [FaultKind::OtherDevice]);
        b.send::<()>(blit, "endEncoding");
        b.release(&[theirs, queue, all]);
    });
    b.ends_well();
}

#[test]
fn a_device_is_opened_by_its_number_and_copies_go_between_two() {
    let machine = Machine::new(two());
    let entered = machine.enter();
    let objc = Table::of_thread().objc();
    let open = |index| MetalDevice::open("METAL", objc, &Selector::Index(index), None);
    let first = On::of(Arc::clone(&machine), open(0).unwrap());
    let second = On::of(Arc::clone(&machine), open(1).unwrap());
    assert_eq!(open(2).unwrap_err().to_string(), "device METAL cannot be opened: there are fewer GPUs");
    let (kernel, kernel2) = (first.kernel("scale").unwrap(), second.kernel("scale").unwrap());
    let (a, b) = (first.memory(&[1.0; 8]), second.memory(&[0.0; 8]));
    first.device.submit(QueueKind::Compute, &[scale(&kernel, &a, &a, 3)]).unwrap();
    let commands = [Command::copy(b.at(0), a.at(0), 32), scale(&kernel2, &b, &b, 5)];
    second.device.submit(QueueKind::Compute, &commands).unwrap();
    assert_eq!(second.values(&b), [15.0; 8]);
    assert!(first.device.submit(QueueKind::Compute, &[scale(&kernel, &b, &b, 5)]).is_err(), "the other's memory");
    drop((kernel, kernel2, a, b, commands));
    for on in [first, second] {
        on.device.close().unwrap();
    }
    drop(entered);
    assert_eq!((machine.take_faults(), settled(&machine)), (vec![], vec![]));
}
