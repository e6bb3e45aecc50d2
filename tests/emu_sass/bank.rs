//! Constant bank 0 of a launch by hand, as each chip's code reads it.

use doorbell::emu::sass::{Options, SmArch};

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

/// Where code of a chip looks for what the driver fills into constant bank 0; 0: nowhere.
struct Places {
    block: usize,
    grid: usize,
    local_window: usize,
    shared_window: usize,
    stack: usize,
    dynamic_shared: usize,
    /// Shared memory that the driver keeps: 1 KiB.
    kept_shared: usize,
    /// The address that parameters are read at through memory: of the parameters, or of the bank.
    own: (usize, bool),
    constants: usize,
    clusters: Option<Clusters>,
}

/// Whether there are clusters, their size along each axis, how many of them, CTAs of one.
#[derive(Clone, Copy)]
struct Clusters {
    flag: usize,
    size: usize,
    grid: usize,
    ctas: usize,
}

fn places(chip: SmArch) -> Places {
    let old = Places {
        block: 0,
        grid: 0xc,
        local_window: 0x20,
        shared_window: 0x18,
        stack: 0x28,
        dynamic_shared: 0x2c,
        kept_shared: 0x114,
        own: (0x40, false),
        constants: 0x50,
        clusters: None,
    };
    match chip {
        SmArch::Sm80 | SmArch::Sm86 | SmArch::Sm89 => old,
        SmArch::Sm90 => {
            let clusters = Some(Clusters { flag: 0x140, size: 0x144, grid: 0x15c, ctas: 0x188 });
            Places { own: (0x198, true), constants: 0xd0, clusters, ..old }
        }
        SmArch::Sm120 => Places {
            block: 0x360,
            grid: 0x370,
            local_window: 0x2f8,
            shared_window: 0x2f0,
            stack: 0x37c,
            dynamic_shared: 0x2ac,
            kept_shared: 0x16c,
            own: (0x348, true),
            constants: 0x120,
            clusters: Some(Clusters { flag: 0x36c, size: 0x2a0, grid: 0x2c0, ctas: 0x2cc }),
        },
    }
}

/// Constant bank 0 as the driver fills it, without the parameters: its address in memory, the offset of the parameters
/// in it, and the address of bank 3.
pub fn bank0(chip: SmArch, size: Size, options: &Options, (bank0, params): (u64, u32), constants: u64) -> Vec<u8> {
    let (mut bank, at) = (vec![0u8; 0x1400], places(chip));
    let mut put = |at: usize, bytes: &[u8]| bank[at..at + bytes.len()].copy_from_slice(bytes);
    for k in 0..3 {
        put(at.block + 4 * k, &size.block[k].to_le_bytes());
        put(at.grid + 4 * k, &size.grid[k].to_le_bytes());
    }
    if let Some(c) = at.clusters {
        for k in 0..3 {
            put(c.size + 4 * k, &size.cluster[k].to_le_bytes());
            put(c.grid + 4 * k, &(size.grid[k] / size.cluster[k]).to_le_bytes());
        }
        put(c.flag, &u32::from(size.cluster != [1; 3]).to_le_bytes());
        put(c.ctas, &size.cluster.iter().product::<u32>().to_le_bytes());
    }
    put(at.local_window, &options.local_window.to_le_bytes());
    put(at.shared_window, &options.shared_window.to_le_bytes());
    put(at.stack, &0xff_fdc0u32.to_le_bytes());
    put(at.dynamic_shared, &size.dynamic_shared_bytes.to_le_bytes());
    put(at.kept_shared, &1024u32.to_le_bytes());
    let (own, of_params) = at.own;
    put(own, &(bank0 + if of_params { params.into() } else { 0 }).to_le_bytes());
    if chip == SmArch::Sm120 {
        // CTAs of clusters look for these words 0xa0 below.
        bank.copy_within(0x250..0x2d0, 0x1b0);
    }
    let mut put = |at: usize, bytes: &[u8]| bank[at..at + bytes.len()].copy_from_slice(bytes);
    // `__constant__` variables by generic address.
    put(at.constants, &constants.to_le_bytes());
    bank
}
