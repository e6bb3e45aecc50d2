//! A kernel of a cubin on the software multiprocessor, as a driver would launch it.

pub use crate::bank::Size;
use crate::bank::bank0;
use doorbell::elf::cubin::{Arch, Cubin};
use doorbell::emu::sass::{Decoder, Fault, Launch, Options, PlainBus, SmArch, Stats, run_decoded};
use doorbell::engine::software::translation;
use std::sync::atomic::AtomicBool;

const CODE: u64 = 0x20_0000_0000;
const BANK0: u64 = 0x30_0000_0000;
const BUFFERS: u64 = 0x10_0000_0000;
const APART: u64 = 0x1000_0000;

/// The address of a buffer.
pub fn address(buffer: usize) -> u64 {
    BUFFERS + APART * buffer as u64
}

/// Runs a kernel on buffers; gives them back as the kernel left them.
pub fn launch(
    cubin: &Cubin,
    kernel: &str,
    size: Size,
    buffers: &[Vec<u8>],
    parameters: &[Vec<u8>],
    options: &Options,
) -> Result<(Vec<Vec<u8>>, Stats), Fault> {
    launch_decoded(cubin, (kernel, size), buffers, parameters, (options, &Decoder::default()))
}

/// The same, translated to code of this machine.
pub fn launch_translated(
    cubin: &Cubin,
    kernel: &str,
    size: Size,
    buffers: &[Vec<u8>],
    parameters: &[Vec<u8>],
    options: &Options,
) -> Result<Vec<Vec<u8>>, Fault> {
    let decoder = Decoder::translated(translation()).after(1);
    Ok(launch_decoded(cubin, (kernel, size), buffers, parameters, (options, &decoder))?.0)
}

fn launch_decoded(
    cubin: &Cubin,
    (kernel, size): (&str, Size),
    buffers: &[Vec<u8>],
    parameters: &[Vec<u8>],
    (options, decoder): (&Options, &Decoder),
) -> Result<(Vec<Vec<u8>>, Stats), Fault> {
    let k = cubin.kernel(kernel).unwrap_or_else(|| panic!("no kernel {kernel}"));
    let mut bus = PlainBus::default();
    bus.map(CODE, &cubin.image(CODE).expect("the image"), true);
    for (at, bytes) in buffers.iter().enumerate() {
        bus.map(address(at), bytes, true);
    }
    let chip = SmArch::of(Arch { sm: cubin.sm, specific: false }).expect("a chip whose code runs");
    let constants = k.banks.iter().find(|b| b.number == 3).map_or(0, |b| CODE + b.offset);
    let mut bank = bank0(chip, size, options, (BANK0, k.param_base), constants);
    for (value, place) in parameters.iter().zip(&k.params) {
        bank[(k.param_base + place.offset) as usize..][..value.len()].copy_from_slice(value);
    }
    let mut banks = [None; 8];
    banks[0] = Some((BANK0, bank.len() as u32));
    bus.map(BANK0, &bank, false);
    for b in &k.banks {
        banks[b.number as usize] = Some((CODE + b.offset, b.len_bytes));
    }
    let launch = Launch {
        chip,
        entry: CODE + k.code_offset,
        grid: size.grid,
        block: size.block,
        cluster: size.cluster,
        registers: k.registers,
        barriers: k.barriers.max(1),
        shared_bytes: k.launch_shared_bytes(cubin.sm, size.dynamic_shared_bytes) as u32,
        // Without a bound that the compiler knows: room for the recursions of these kernels.
        local_bytes: k.stack_bytes.unwrap_or(8192).next_multiple_of(16) + 0x240,
        banks,
    };
    let stats = run_decoded(&launch, &bus, &AtomicBool::new(false), options, decoder)?;
    Ok(((0..buffers.len()).map(|at| bus.bytes(address(at))).collect(), stats))
}
