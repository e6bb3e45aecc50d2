//! A launch on the software multiprocessor: what a cubin's kernel does to memory.

use doorbell::elf::cubin::Cubin;
use doorbell::emu::sass::{Chip, Launch, Options, PlainBus, Stats, run};
use std::sync::atomic::AtomicBool;

const CODE: u64 = 0x10_0000_0000;
const BANK: u64 = 0x11_0000_0000;

/// A launch but for its code.
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
    (case, blocks): (&Case, u32),
    strict: bool,
) -> Result<(Vec<Vec<u8>>, Stats), String> {
    let file = Cubin::parse(cubin).map_err(|e| e.to_string())?;
    let kernel = file.kernel(name).ok_or_else(|| format!("no kernel {name}"))?;
    let options = Options { strict, shared_order: strict, max_instructions: 4_000_000, ..Options::default() };
    let mut bank = vec![0; 0x210];
    for k in 0..3 {
        bank[4 * k..][..4].copy_from_slice(&case.block[k].to_le_bytes());
        bank[12 + 4 * k..][..4].copy_from_slice(&case.grid[k].to_le_bytes());
    }
    bank[0x20..0x28].copy_from_slice(&options.local_window.to_le_bytes());
    bank[0x28..0x2c].copy_from_slice(&0xff_fdc0u32.to_le_bytes());
    bank[0x2c..0x30].copy_from_slice(&case.dynamic_bytes.to_le_bytes());
    // Clusters: how large, how many, and where the parameters lie in all memory.
    let words = [(0x140, 1), (0x144, blocks), (0x148, 1), (0x14c, 1), (0x15c, case.grid[0] / blocks), (0x188, blocks)];
    for (at, word) in words.into_iter().chain([(0x160, case.grid[1]), (0x164, case.grid[2])]) {
        bank[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    bank[0x198..0x1a0].copy_from_slice(&(BANK + 0x210).to_le_bytes());
    bank.extend(&case.params);
    let mut bus = PlainBus::default();
    let mut banks = [None; 8];
    banks[0] = Some((BANK, bank.len() as u32));
    bus.map(BANK, bank, false);
    let mut image = file.image(CODE).map_err(|e| e.to_string())?;
    for b in &kernel.banks {
        banks[b.number as usize] = Some((CODE + b.offset, b.len_bytes));
    }
    image.resize(image.len() + 256, 0);
    bus.map(CODE, image, true);
    for (at, bytes) in case.buffers {
        bus.map(*at, bytes.clone(), true);
    }
    let launch = Launch {
        chip: Chip::Sm90,
        entry: CODE + kernel.code_offset,
        grid: case.grid,
        block: case.block,
        cluster: [blocks, 1, 1],
        registers: kernel.registers,
        barriers: kernel.barriers,
        shared_bytes: (kernel.shared_bytes.max(0x400) + case.dynamic_bytes).next_multiple_of(128),
        local_bytes: kernel.stack_bytes.unwrap_or(1024) + 0x240,
        banks,
    };
    let stats = run(&launch, &bus, &AtomicBool::new(false), &options).map_err(|e| format!("{name}: {e}"))?;
    Ok((case.buffers.iter().map(|b| bus.bytes(b.0)).collect(), stats))
}
