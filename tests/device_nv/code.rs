//! The machine code of `device.ptx`, as ptxas made it, on the emulated multiprocessors: from ioctl to signal.

use super::{CUBIN, LONG, launch, pattern, read, small_options, words};
use doorbell::device::nv::{Driver, NvDevice, NvOptions, Selector};
use doorbell::device::{Arg, Code, Command, Device, DeviceError, Geometry, Kernel, KernelImage, QueueKind};
use doorbell::elf::cubin::Arch;
use doorbell::emu::nvrm::{Chip, Config, SoftNv};
use doorbell::hcq::signal::WaitError;
use doorbell::isa::sass::compile::assemble;
use std::sync::Arc;
use std::time::Duration;

fn open() -> (Arc<SoftNv>, NvDevice) {
    open_chip(Chip::Sm90)
}

fn open_chip(chip: Chip) -> (Arc<SoftNv>, NvDevice) {
    let soft = SoftNv::new(Config::new(chip)).unwrap();
    let driver = Driver::open("NV", Arc::clone(&soft) as _, false).unwrap();
    let options = NvOptions { submit_timeout: Duration::from_secs(5), ..small_options() };
    let d = NvDevice::open("NV", &driver, &Selector::Index(0), &options).unwrap();
    (soft, d)
}

fn load(d: &NvDevice, name: &str) -> Kernel {
    d.load(&[KernelImage { name, code: Code::Elf { bytes: CUBIN, entry: name } }]).unwrap().remove(0)
}

#[test]
fn machine_code_finds_arguments_stack_and_clusters() {
    let (soft, d) = open();
    let m = words(&d, &pattern(256));
    let commands = [
        launch(&load(&d, "add"), &m, 5, 4, 64),
        launch(&load(&d, "stack"), &m, 100, 1, 256),
        launch(&load(&d, "clusters"), &m, -7, 4, 64),
    ];
    let point = d.submit(QueueKind::Compute, &commands).unwrap();
    d.wait(&point, LONG).unwrap();
    let expected: Vec<u32> = pattern(256).iter().map(|x| x.wrapping_add(98)).collect();
    assert_eq!(read(&d, &m), expected);
    // As a chain, too.
    let mut list = d.record(&commands).unwrap();
    for _ in 0..3 {
        list.replay(&[]).unwrap();
    }
    let expected: Vec<u32> = expected.iter().map(|x| x.wrapping_add(3 * 98)).collect();
    assert_eq!(read(&d, &m), expected);
    let reports: Vec<String> = soft.reports().iter().map(ToString::to_string).collect();
    assert_eq!(reports, Vec::<String>::new());
}

#[test]
fn machine_code_of_other_chips_runs_by_their_own_descriptors_and_banks() {
    // Without the kernel of clusters, which comes last.
    let text = include_str!("../data/cubin/device.ptx").split("// Clusters of two").next().unwrap();
    for chip in [Chip::Sm80, Chip::Sm86, Chip::Sm89, Chip::Sm120] {
        let name = chip.facts().name;
        let cubin = assemble(&text.replace("sm_90", "sm_80"), Arch::parse(name).unwrap()).unwrap();
        let (soft, d) = open_chip(chip);
        let load =
            |entry| d.load(&[KernelImage { name: entry, code: Code::Elf { bytes: &cubin, entry } }]).unwrap().remove(0);
        let m = words(&d, &pattern(256));
        let commands = [launch(&load("add"), &m, 5, 4, 64), launch(&load("stack"), &m, 100, 1, 256)];
        let point = d.submit(QueueKind::Compute, &commands).unwrap();
        d.wait(&point, LONG).unwrap();
        d.record(&commands).unwrap().replay(&[]).unwrap();
        let expected: Vec<u32> = pattern(256).iter().map(|x| x.wrapping_add(210)).collect();
        assert_eq!(read(&d, &m), expected, "{name}");
        assert_eq!(soft.reports().iter().map(ToString::to_string).collect::<Vec<_>>(), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn constants_are_read_at_their_generic_address() {
    const CONSTANTS: &[u8] = include_bytes!("../data/cubin/constants_sm90.cubin");
    let (soft, d) = open();
    let (which, out) = (words(&d, &(0..64).map(|i| i / 8).collect::<Vec<_>>()), words(&d, &[0; 64]));
    let code = Code::Elf { bytes: CONSTANTS, entry: "choose" };
    let kernel = d.load(&[KernelImage { name: "choose", code }]).unwrap().remove(0);
    let geometry = Geometry::of([2, 1, 1], [32, 1, 1]);
    let args = [Arg::Buffer(which.at(0)), Arg::Buffer(out.at(0))];
    let point = d.submit(QueueKind::Compute, &[Command::exec(&kernel, args, 1).over(geometry)]).unwrap();
    d.wait(&point, LONG).unwrap();
    let (primes, squares) = ([2, 3, 5, 7, 11, 13, 17, 19], [0, 1, 4, 9, 16, 25, 36, 49]);
    let wanted: Vec<u32> = (0..64).map(|i| if i / 8 % 2 == 1 { primes[i % 8] } else { squares[i % 8] }).collect();
    assert_eq!(read(&d, &out), wanted);
    assert_eq!(soft.reports().len(), 0);
}

#[test]
fn wild_load_is_told_with_its_address() {
    let (_soft, d) = open();
    let wild = Command::exec(&load(&d, "load"), [Arg::Var(0x12_3456_7000)], 1);
    let point = d.submit(QueueKind::Compute, &[wild]).unwrap();
    let error = d.wait(&point, LONG).unwrap_err();
    let DeviceError::Wait(WaitError::Fault(report)) = &error else { panic!("{error}") };
    let fault = report.fault.clone().unwrap();
    assert!(fault.contains("channel error 31 (MMU fault)") && fault.contains("0x1234567000"), "{fault}");
    // The line of the machine's kernel log is there, too.
    assert!(
        fault.contains("kernel log: NVRM: Xid (PCI:0000:17:00): 31, pid=") && fault.contains("CTA 0,0,0 warp 0"),
        "{fault}"
    );
}

#[test]
fn endless_loop_is_found_by_the_deadline() {
    let (_soft, d) = open();
    let point = d.submit(QueueKind::Compute, &[Command::exec(&load(&d, "hang"), [], 1)]).unwrap();
    let error = d.wait(&point, Duration::from_millis(200)).unwrap_err();
    assert!(matches!(&error, DeviceError::Wait(WaitError::Timeout(_))), "{error}");
}
