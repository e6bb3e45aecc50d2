//! A launch on the software multiprocessor: what a cubin's kernel does to memory.

use crate::bank::{Size, bank0};
use doorbell::elf::cubin::{Arch, Cubin};
use doorbell::emu::sass::{Launch, Options, PlainBus, SmArch, Stats, run};
use std::sync::atomic::AtomicBool;

const CODE: u64 = 0x10_0000_0000;
const BANK: u64 = 0x11_0000_0000;

/// A launch without its code.
pub struct Case<'a> {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// The parameters' bytes.
    pub params: Vec<u8>,
    /// Where buffers lie, and their bytes.
    pub buffers: &'a [(u64, Vec<u8>)],
    pub dynamic_bytes: u32,
}

/// Runs a kernel; gives the buffers after it. Strict: nothing may be used before it is there.
pub fn launch(cubin: &[u8], name: &str, case: &Case, strict: bool) -> Result<(Vec<Vec<u8>>, Stats), String> {
    launch_clusters(cubin, name, (case, 1), strict)
}

/// The same in clusters of so many blocks.
pub fn launch_clusters(
    cubin: &[u8],
    name: &str,
    case: (&Case, u32),
    strict: bool,
) -> Result<(Vec<Vec<u8>>, Stats), String> {
    launch_with(cubin, name, case, Options { strict, shared_order: strict, ..Options::default() })
}

/// The same by other options.
pub fn launch_with(
    cubin: &[u8],
    name: &str,
    (case, blocks): (&Case, u32),
    options: Options,
) -> Result<(Vec<Vec<u8>>, Stats), String> {
    let file = Cubin::parse(cubin).map_err(|e| e.to_string())?;
    let kernel = file.kernel(name).ok_or_else(|| format!("no kernel {name}"))?;
    let max_instructions = if options.max_instructions == 0 { 4_000_000 } else { options.max_instructions };
    let options = Options { max_instructions, ..options };
    let chip = SmArch::of(Arch { sm: file.sm, specific: false }).ok_or_else(|| format!("sm_{}", file.sm))?;
    let (grid, block) = (case.grid, case.block);
    let size = Size { grid, block, cluster: [blocks, 1, 1], dynamic_shared_bytes: case.dynamic_bytes };
    let constants = kernel.banks.iter().find(|b| b.number == 3).map_or(0, |b| CODE + b.offset);
    let mut bank = bank0(chip, size, &options, (BANK, kernel.param_base), constants);
    bank[kernel.param_base as usize..][..case.params.len()].copy_from_slice(&case.params);
    let mut bus = PlainBus::default();
    let mut banks = [None; 8];
    banks[0] = Some((BANK, bank.len() as u32));
    bus.map(BANK, &bank, false);
    let mut image = file.image(CODE).map_err(|e| e.to_string())?;
    for b in &kernel.banks {
        banks[b.number as usize] = Some((CODE + b.offset, b.len_bytes));
    }
    image.resize(image.len() + 256, 0);
    bus.map(CODE, &image, true);
    for (at, bytes) in case.buffers {
        bus.map(*at, bytes, true);
    }
    let launch = Launch {
        chip,
        entry: CODE + kernel.code_offset,
        grid,
        block,
        cluster: [blocks, 1, 1],
        registers: kernel.registers,
        barriers: kernel.barriers,
        shared_bytes: kernel.launch_shared_bytes(file.sm, case.dynamic_bytes) as u32,
        local_bytes: kernel.stack_bytes.unwrap_or(1024) + 0x240,
        banks,
    };
    let stats = run(&launch, &bus, &AtomicBool::new(false), &options).map_err(|e| format!("{name}: {e}"))?;
    Ok((case.buffers.iter().map(|b| bus.bytes(b.0)).collect(), stats))
}
