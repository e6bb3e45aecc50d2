//! The device where RM alone fills the page tables: because there is no nvidia-uvm, because that refuses, or because it
//! is asked for.

use super::units::Does;
use super::{LONG, Rig, launch, pattern, read, small_options, words};
use doorbell::device::nv::{Driver, NvDevice, NvOptions, PageTables, Placement, Selector};
use doorbell::device::{Arg, Command, Device, DeviceError, Geometry, QueueKind};
use doorbell::emu::nvrm::{Call, Chip, Config, Refusal};
use doorbell_ioctl::abi::nvrm::{self, Release};
use doorbell_ioctl::abi::{Desc, request_number, uvm};
use doorbell_ioctl::fault::{self, Faults, Plan, Trouble};
use doorbell_ioctl::port::{Errno, Port};
use std::sync::Arc;

fn no_uvm(chip: Chip) -> Config {
    Config { no_uvm: true, ..Config::new(chip) }
}

/// A device on page tables of RM, whatever the machine has.
fn open(rig: &Rig, options: NvOptions) -> Result<NvDevice, DeviceError> {
    let driver = Driver::open_with("NV", Arc::clone(&rig.port), options.any_release, PageTables::Rm)?;
    NvDevice::open("NV", &driver, &Selector::Index(0), &options)
}

#[test]
fn machines_without_uvm_compute_and_copy_under_every_release_and_give_all_back() {
    for (major, minor, patch) in [(535, 230, 2), (550, 90, 7), (570, 124, 6), (580, 159, 4), (595, 45, 4)] {
        let rig = Rig::new(Config { release: Release { major, minor, patch }, ..no_uvm(Chip::Sm90) });
        let d = rig.open();
        // Pages of 4 KiB, and of 2 MiB with a rest.
        let (data, large) = (pattern(1000), pattern((5 << 20) / 4 + 1000));
        let (k, m, far) = (rig.add(&d), words(&d, &data), words(&d, &large));
        d.submit(QueueKind::Compute, &[launch(&k, &m, 7, 10, 100)]).unwrap();
        let wanted: Vec<u32> = data.iter().map(|x| x.wrapping_add(7)).collect();
        assert!(read(&d, &m) == wanted && read(&d, &far) == large, "{major}");
        let near = d.alloc_host(4000, Placement::Host).unwrap();
        let point = d.submit(QueueKind::Copy, &[Command::copy(near.at(0), m.at(0), 4000)]).unwrap();
        d.wait(&point, LONG).unwrap();
        let mut back = vec![0u32; 1000];
        near.host().unwrap().read(0, bytemuck::cast_slice_mut(&mut back)).unwrap();
        assert!(back == wanted, "{major}");
        // A point keeps its signal's page.
        drop((k, m, far, near, point));
        d.close().unwrap();
        drop(d);
        assert_eq!(rig.complaints(), Vec::<String>::new(), "{major}");
        let called = |part: &str| rig.calls().iter().any(|call| call.contains(part));
        assert!(called("MAP_MEMORY_DMA") && !called("UVM_"), "{major}");
    }
}

#[test]
fn every_chip_works_so_and_a_machine_with_uvm_is_not_asked_for_it() {
    for chip in Chip::ALL {
        let rig = Rig::new(Config::new(chip));
        let d = open(&rig, small_options()).unwrap();
        let data = pattern(1000);
        let (a, b) = (words(&d, &data), words(&d, &[0; 1000]));
        let point = d.submit(QueueKind::Compute, &[]).unwrap();
        d.submit(QueueKind::Copy, &[Command::Wait(point), Command::copy(b.at(0), a.at(0), 4000)]).unwrap();
        assert_eq!(read(&d, &b), data, "{chip:?}");
        drop((a, b));
        d.close().unwrap();
        drop(d);
        assert_eq!(rig.complaints(), Vec::<String>::new(), "{chip:?}");
        assert!(!rig.calls().iter().any(|call| call.contains("UVM_")), "{chip:?}");
    }
}

#[test]
fn a_kernel_that_reads_what_is_not_mapped_is_told_and_another_device_works() {
    let rig = Rig::new(no_uvm(Chip::Sm90));
    let d = rig.open();
    let (load, m) = (rig.load(&d, "load", Does::Load), words(&d, &[1; 64]));
    let run = |argument| {
        let command = Command::exec(&load, [argument], 1).over(Geometry::of([1; 3], [1; 3]));
        let point = d.submit(QueueKind::Compute, &[command]).unwrap();
        d.wait(&point, LONG)
    };
    run(Arg::Buffer(m.at(0))).unwrap();
    let error = run(Arg::Var(0x12_3456_7000)).unwrap_err().to_string();
    assert!(error.contains("0x1234567000") && error.contains("channel error 31"), "{error}");
    drop((load, m));
    drop(d);
    let d = rig.open();
    let m = words(&d, &[3; 64]);
    assert_eq!(read(&d, &m), [3; 64]);
    drop(m);
    d.close().unwrap();
    drop(d);
    let left = doorbell_ioctl::trace::leftovers(&rig.log.events());
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn refused_ranges_and_mappings_are_named_and_leave_nothing() {
    let map = Call::Escape(request_number(nvrm::MAP_MEMORY_DMA.desc.request));
    for (call, name) in [(Call::Class(nvrm::NV50_MEMORY_VIRTUAL), "NV50_MEMORY_VIRTUAL"), (map, "MAP_MEMORY_DMA")] {
        for nth in 1..12 {
            // NV_ERR_INSUFFICIENT_RESOURCES; rings move to system memory when their first place is refused.
            let refusals = vec![Refusal { call, nth, status: 0x1a }, Refusal { call, nth: nth + 1, status: 0x1a }];
            let rig = Rig::new(Config { refusals, ..no_uvm(Chip::Sm90) });
            let outcome = rig.open_with(&small_options()).and_then(|d| {
                let m = d.alloc(4096)?;
                drop(m);
                d.close()
            });
            if let Err(error) = &outcome {
                let error = error.to_string();
                assert!(error.contains(name) && error.contains("NV_ERR_INSUFFICIENT_RESOURCES"), "{nth}: {error}");
            }
            assert!(nth > 4 || outcome.is_err(), "{name} {nth}");
            let left = doorbell_ioctl::trace::leftovers(&rig.log.events());
            assert_eq!(left, Vec::<String>::new(), "{name} {nth}");
        }
    }
}

#[test]
fn cards_do_not_see_each_others_memory_and_copies_go_by_the_host() {
    let rig = Rig::new(Config { gpus: 2, ..no_uvm(Chip::Sm90) });
    let driver = Driver::open("NV", Arc::clone(&rig.port), false).unwrap();
    let open = |name: &str, n| NvDevice::open(name, &driver, &Selector::Index(n), &small_options()).unwrap();
    let (a, b) = (open("NV", 0), open("NV:1", 1));
    let (ma, mb) = (words(&a, &pattern(64)), words(&b, &[0; 64]));
    assert!(!a.reaches(&mb) && !b.reaches(&ma));
    let refused = b.submit(QueueKind::Copy, &[Command::copy(mb.at(0), ma.at(0), 256)]);
    assert!(matches!(refused, Err(DeviceError::WrongDevice { .. })), "{refused:?}");
    assert_eq!((read(&a, &ma), read(&b, &mb)), (pattern(64), vec![0; 64]));
}

/// A launch and copies give the right numbers, by page tables of RM, and nothing of it stays.
fn works_by_rm(rig: &Rig, port: Arc<dyn Port>, what: &str) {
    let driver = Driver::open("NV", port, false).unwrap_or_else(|e| panic!("{what}: {e}"));
    let d = NvDevice::open("NV", &driver, &Selector::Index(0), &small_options());
    let d = d.unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(!d.gpu().uses_uvm(), "{what}");
    let data = pattern(1000);
    let (k, m) = (rig.add(&d), words(&d, &data));
    d.submit(QueueKind::Compute, &[launch(&k, &m, 7, 10, 100)]).unwrap();
    let wanted: Vec<u32> = data.iter().map(|x| x.wrapping_add(7)).collect();
    assert!(read(&d, &m) == wanted, "{what}");
    drop((k, m));
    d.close().unwrap();
    drop((d, driver));
    assert_eq!(rig.complaints(), Vec::<String>::new(), "{what}");
}

#[test]
fn what_uvm_refuses_is_done_by_rm_alone() {
    let calls =
        [uvm::INITIALIZE.desc, uvm::REGISTER_GPU.desc, uvm::REGISTER_GPU_VASPACE.desc, uvm::REGISTER_CHANNEL.desc];
    for (major, minor, patch) in [(535, 230, 2), (580, 159, 4), (595, 45, 4)] {
        for call in &calls {
            // NV_ERR_NOT_SUPPORTED
            let refusals = vec![Refusal { call: Call::Uvm(call.request), nth: 1, status: 0x56 }];
            let release = Release { major, minor, patch };
            let rig = Rig::new(Config { release, refusals, ..Config::new(Chip::Sm90) });
            works_by_rm(&rig, Arc::clone(&rig.port), &format!("{} of {major}", call.name));
            assert!(rig.calls().iter().any(|c| c.contains(call.name) && c.contains("NOT_SUPPORTED")), "{}", call.name);
        }
    }
}

#[test]
fn a_uvm_file_that_this_process_may_not_open_is_done_without() {
    // The control file is the first, then UVM's two.
    let call = |desc: &Desc| fault::Call::Ioctl(desc.request);
    let troubles = [
        (fault::Call::Open, 2, Errno::EACCES),
        (fault::Call::Open, 2, Errno::EPERM),
        (fault::Call::Open, 3, Errno::EMFILE),
        (call(&uvm::INITIALIZE.desc), 1, Errno::EINVAL),
        (call(&uvm::MM_INITIALIZE.desc), 1, Errno::EINVAL),
        (call(&uvm::REGISTER_GPU.desc), 1, Errno::EBUSY),
    ];
    for (call, nth, errno) in troubles {
        let rig = Rig::hopper();
        let plan = Plan::one(call, nth, Trouble::Fail(errno));
        let faults = Faults::new(Arc::clone(&rig.port), plan.clone());
        works_by_rm(&rig, Arc::clone(&faults) as _, &plan.to_string());
        assert_eq!(faults.injected().len(), 1, "{plan}");
    }
}

#[test]
fn one_card_that_uvm_refuses_leaves_it_to_the_others() {
    let refusals = vec![Refusal { call: Call::Uvm(uvm::REGISTER_GPU.desc.request), nth: 1, status: 0x56 }];
    let rig = Rig::new(Config { gpus: 3, refusals, ..Config::new(Chip::Sm90) });
    let driver = Driver::open("NV", Arc::clone(&rig.port), false).unwrap();
    let open = |name: &str, n| NvDevice::open(name, &driver, &Selector::Index(n), &small_options()).unwrap();
    let cards = [open("NV", 0), open("NV:1", 1), open("NV:2", 2)];
    assert_eq!(cards.each_ref().map(|d| d.gpu().uses_uvm()), [false, true, true]);
    let [a, b, c] = &cards;
    let [ma, mb, mc] = [(a, 1), (b, 2), (c, 3)].map(|(d, value)| words(d, &[value; 64]));
    assert!(!a.reaches(&mb) && !b.reaches(&ma) && !a.reaches(&mc) && b.reaches(&mc) && c.reaches(&mb));
    b.submit(QueueKind::Copy, &[Command::copy(mb.at(0), mc.at(0), 128)]).unwrap();
    assert_eq!((read(a, &ma), read(b, &mb)[30..34].to_vec()), (vec![1; 64], vec![3, 3, 2, 2]));
    assert_eq!(rig.reports(), Vec::<String>::new());
}

#[test]
fn where_rm_refuses_too_its_call_is_named() {
    // NV_ERR_NOT_SUPPORTED, NV_ERR_INSUFFICIENT_RESOURCES
    let refusals = vec![
        Refusal { call: Call::Uvm(uvm::REGISTER_GPU.desc.request), nth: 1, status: 0x56 },
        Refusal { call: Call::Class(nvrm::FERMI_VASPACE_A), nth: 2, status: 0x1a },
    ];
    let rig = Rig::new(Config { refusals, ..Config::new(Chip::Sm90) });
    let error = rig.open_with(&small_options()).unwrap_err().to_string();
    assert!(error.contains("FERMI_VASPACE_A: NV_ERR_INSUFFICIENT_RESOURCES"), "{error}");
    assert_eq!(doorbell_ioctl::trace::leftovers(&rig.log.events()), Vec::<String>::new());
}
