//! A device on page tables that RM fills alone, as it is opened where nvidia-uvm is missing: on a connection of its
//! own, next to the run's.

use crate::ladder::Climb;
use crate::raw::pattern;
use crate::rungs::Bench;
use doorbell::device::nv::{Driver, NvDevice, NvOptions, PageTables, Placement, Selector};
use doorbell::device::{Arg, Command, Device, QueueKind};
use doorbell::hcq::memory::View;
use doorbell_ioctl::port::{MapRequest, Mapped, Port};
use hw_contact::{Failure, fail};
use std::sync::Arc;
use std::time::Instant;

/// Shorter than a huge page, and several of them with a rest.
const SIZES: [usize; 3] = [4096, 300 << 10, (6 << 20) + 4096];

pub fn rm_space(climb: &mut Climb) -> Result<String, Failure> {
    let card = climb.card.as_ref().ok_or("the rung card was left out")?;
    let (port, any) = (Arc::clone(&climb.machine.port), climb.args.any_driver);
    let options = NvOptions { tables: PageTables::Rm, ..climb.options() };
    let began = Instant::now();
    let driver = Driver::open_with("NV", port, any, options.tables)?;
    let device = NvDevice::open("NV", &driver, &Selector::Bdf(card.bdf.clone()), &options)?;
    let opened = began.elapsed();
    for len in SIZES {
        there_and_back(&device, len)?;
    }
    let pinned = host_memory(&device, &climb.machine.port)?;
    let kernel = if crate::code::why_none(climb).is_none() {
        kernel(device, climb)?
    } else {
        device.close().map(|()| "no kernel")?
    };
    let most = SIZES[SIZES.len() - 1] >> 20;
    Ok(format!("opened in {:.1} ms, VRAM up to {most} MiB, {pinned}, {kernel}", opened.as_secs_f64() * 1e3))
}

/// From the host to VRAM, from there to other VRAM, and back.
fn there_and_back(device: &NvDevice, len: usize) -> Result<(), Failure> {
    let (a, b, data) = (device.alloc(len as u64)?, device.alloc(len as u64)?, pattern(len, len as u32));
    device.copy_in(&a, 0, &data)?;
    device.submit(QueueKind::Copy, &[Command::copy(b.at(0), a.at(0), len as u64)])?;
    let mut back = vec![0; len];
    device.copy_out(&b, 0, &mut back)?;
    match back.iter().zip(&data).position(|(seen, wanted)| seen != wanted) {
        None => Ok(()),
        Some(at) => Err(format!("{len} bytes of VRAM: byte {at} is {:#x}, not {:#x}", back[at], data[at]).into()),
    }
}

/// A kernel whose code, bank and QMD lie in that space.
fn kernel(device: NvDevice, climb: &Climb) -> Result<&'static str, Failure> {
    let bench = Bench::of(device, climb)?;
    let (kernel, out) = (bench.load("store")?, bench.words(&[0])?);
    bench.run(&kernel, vec![Arg::Buffer(out.at(0))], [1; 3], [1; 3])?;
    let seen = bench.read(&out)?;
    drop((kernel, out));
    bench.close()?;
    if seen == [0x600d] { Ok("a kernel's constant") } else { Err(format!("a kernel's constant: {seen:x?}").into()) }
}

/// The copy engine writes what the host reads without another copy: pinned pages, the driver's own, and pages that were
/// there before.
fn host_memory(device: &NvDevice, port: &Arc<dyn Port>) -> Result<String, Failure> {
    const LEN: usize = 64 << 10;
    let (far, data) = (device.alloc(LEN as u64)?, pattern(LEN, 77));
    device.copy_in(&far, 0, &data)?;
    let ours = Arc::new(Mapped::new(port, &MapRequest::anonymous_shared(LEN as u64)).map_err(fail)?);
    let ours = View::of_device(&ours.view().map_err(fail)?);
    let [host, system] = [Placement::Host, Placement::System].map(|placement| device.alloc_host(LEN as u64, placement));
    for (what, near) in [("pinned", host?), ("system", system?), ("wrapped", device.wrap_host(&ours)?)] {
        let point = device.submit(QueueKind::Copy, &[Command::copy(near.at(0), far.at(0), LEN as u64)])?;
        device.wait(&point, device.patience())?;
        let view = near.host().ok_or_else(|| Failure::from(format!("{what} memory has no view of the host")))?;
        let mut back = vec![0; LEN];
        view.read(0, &mut back).map_err(fail)?;
        if back != data {
            return Err(format!("{what} memory: the host reads other bytes than the GPU wrote").into());
        }
    }
    Ok("pinned, system and wrapped memory written by the GPU".into())
}
