//! A kernel of a cubin on the software multiprocessor, as a driver would launch it.

use doorbell::elf::cubin::Cubin;
use doorbell::emu::sass::{Chip, Fault, Launch, Options, PlainBus, Stats, run};
use std::sync::atomic::AtomicBool;

const CODE: u64 = 0x20_0000_0000;
const BANK0: u64 = 0x30_0000_0000;
const BUFFERS: u64 = 0x10_0000_0000;
const APART: u64 = 0x1000_0000;

/// The address of a buffer.
pub fn address(buffer: usize) -> u64 {
    BUFFERS + APART * buffer as u64
}

/// Sizes of a launch.
#[derive(Clone, Copy)]
pub struct Size {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    pub dynamic_shared_bytes: u32,
}

impl Default for Size {
    fn default() -> Self {
        Self { grid: [1; 3], block: [32, 1, 1], cluster: [1; 3], dynamic_shared_bytes: 0 }
    }
}

/// Constant bank 0 as the driver fills it.
fn bank0(size: Size, window: u64, base: usize, parameters: &[Vec<u8>], offsets: &[u32]) -> Vec<u8> {
    let mut bank = vec![0u8; 0x1400];
    let mut put = |at: usize, bytes: &[u8]| bank[at..at + bytes.len()].copy_from_slice(bytes);
    for k in 0..3 {
        put(4 * k, &size.block[k].to_le_bytes());
        put(0xc + 4 * k, &size.grid[k].to_le_bytes());
        put(0x144 + 4 * k, &size.cluster[k].to_le_bytes());
        put(0x15c + 4 * k, &(size.grid[k] / size.cluster[k]).to_le_bytes());
    }
    // The grid has clusters.
    put(0x140, &u32::from(size.cluster != [1; 3]).to_le_bytes());
    put(0x188, &size.cluster.iter().product::<u32>().to_le_bytes());
    put(0x20, &window.to_le_bytes());
    put(0x28, &0xff_fdc0u32.to_le_bytes());
    put(0x2c, &size.dynamic_shared_bytes.to_le_bytes());
    put(0x198, &(BANK0 + base as u64).to_le_bytes());
    for (value, offset) in parameters.iter().zip(offsets) {
        put(base + *offset as usize, value);
    }
    bank
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
    let k = cubin.kernel(kernel).unwrap_or_else(|| panic!("no kernel {kernel}"));
    let mut bus = PlainBus::default();
    bus.map(CODE, cubin.image(CODE).expect("the image"), true);
    for (at, bytes) in buffers.iter().enumerate() {
        bus.map(address(at), bytes.clone(), true);
    }
    let offsets: Vec<u32> = k.params.iter().map(|p| p.offset).collect();
    let mut bank = bank0(size, options.local_window, k.param_base as usize, parameters, &offsets);
    // `__constant__` variables by generic address.
    if let Some(constants) = k.banks.iter().find(|b| b.number == 3) {
        bank[0xd0..0xd8].copy_from_slice(&(CODE + constants.offset).to_le_bytes());
    }
    let mut banks = [None; 8];
    banks[0] = Some((BANK0, bank.len() as u32));
    bus.map(BANK0, bank, false);
    for b in &k.banks {
        banks[b.number as usize] = Some((CODE + b.offset, b.len_bytes));
    }
    let launch = Launch {
        chip: Chip::Sm90,
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
    let stats = run(&launch, &bus, &AtomicBool::new(false), options)?;
    Ok(((0..buffers.len()).map(|at| bus.bytes(address(at))).collect(), stats))
}
